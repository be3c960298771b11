//! What can happen next in a world.

use super::setup::Setup;
use super::world::{Packet, World, index, uid};
use rref_core::lifetime::HandleKey;
use rref_core::{NodeUid, ObjectId, Stamp};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// A node sends handles of these objects to another; it keeps its own.
    Give {
        from: usize,
        to: usize,
        ids: Vec<ObjectId>,
    },
    /// A node starts to send a handle in a large message, and lets its own go.
    Begin {
        from: usize,
        to: usize,
        key: HandleKey,
    },
    /// The last frame of the large message gets its position.
    Finish {
        from: usize,
    },
    Drop {
        node: usize,
        key: HandleKey,
    },
    Create {
        node: usize,
        owner: usize,
    },
    /// The oldest creation without a position gets one.
    Emit {
        node: usize,
    },
    Construct {
        node: usize,
        id: ObjectId,
        well: bool,
    },
    Call {
        node: usize,
        id: ObjectId,
    },
    Return {
        node: usize,
        id: ObjectId,
    },
    Flush {
        node: usize,
    },
    /// `to` processes the next frame of `from`.
    Deliver {
        from: usize,
        to: usize,
    },
    /// A frame goes onto the connection.
    Transmit {
        from: usize,
        to: usize,
    },
    /// What has arrived is processed.
    Receive {
        from: usize,
        to: usize,
    },
    /// `from` says what it has processed; `except`, but for objects of owners out of its reach; `late` ones
    /// may be overtaken.
    Ack {
        from: usize,
        to: usize,
        except: bool,
        late: bool,
    },
    /// Both ends lose the connection, with all that is in flight.
    Break {
        a: usize,
        b: usize,
    },
    /// `from` dials; `to` answers.
    Dial {
        from: usize,
        to: usize,
    },
    /// The answer arrives.
    Answer {
        from: usize,
        to: usize,
    },
    /// The answer is lost with its connection.
    LoseAnswer {
        from: usize,
        to: usize,
    },
    /// `node` cannot go on with its session to `peer`.
    End {
        node: usize,
        peer: usize,
    },
    Inventory {
        node: usize,
        owner: usize,
    },
    Crash {
        node: usize,
    },
    /// What else a dead node had sent does not arrive.
    Lose {
        from: usize,
        to: usize,
    },
    Leave {
        node: usize,
    },
    Exit {
        node: usize,
    },
    Cut {
        from: usize,
        to: usize,
    },
    Heal {
        from: usize,
        to: usize,
    },
    Block {
        node: usize,
    },
    Unblock {
        node: usize,
    },
    Tick {
        node: usize,
    },
    /// Two nodes hear of each other.
    Meet {
        a: usize,
        b: usize,
    },
    Mail {
        node: usize,
    },
}

impl World {
    /// Everything that can happen next. Nothing can once something has gone wrong.
    pub fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.bad.is_some() {
            return actions;
        }
        for i in 0..self.nodes.len() {
            let node = &self.nodes[i];
            if !node.alive {
                continue;
            }
            if node.blocked {
                actions.push(Action::Unblock { node: i });
            } else {
                self.of_application(setup, i, &mut actions);
                self.of_node(setup, i, &mut actions);
            }
            if self.may_tick(setup, i) {
                actions.push(Action::Tick { node: i });
            }
        }
        let known = |pair: &&(usize, usize)| self.nodes[pair.0].alive && self.nodes[pair.1].alive;
        actions.extend(self.strangers.iter().filter(known).map(|(a, b)| Action::Meet { a: *a, b: *b }));
        for (from, to) in self.pairs() {
            self.of_pair(setup, from, to, &mut actions);
        }
        actions
    }

    fn of_application(&self, setup: &Setup, i: usize, actions: &mut Vec<Action>) {
        let node = &self.nodes[i];
        let mut before = None;
        let mut ids: Vec<ObjectId> = Vec::new();
        for key in &node.handles {
            if before.replace(*key) == Some(*key) {
                continue;
            }
            actions.push(Action::Drop { node: i, key: *key });
            if !ids.contains(&key.id) && self.is_usable(i, *key) {
                ids.push(key.id);
            }
        }
        if node.left {
            return;
        }
        for to in
            (0..self.nodes.len()).filter(|to| *to != i && self.nodes[*to].alive && !self.nodes[*to].left)
        {
            if self.budget.gives > 0 {
                for id in ids.iter().filter(|_| setup.may_give(i, to)) {
                    actions.push(Action::Give { from: i, to, ids: vec![*id] });
                }
                if setup.pairs && ids.len() > 1 {
                    actions.push(Action::Give { from: i, to, ids: ids.clone() });
                }
                if setup.chunks
                    && let Some(key) = node.handles.first().filter(|key| self.is_usable(i, **key))
                {
                    actions.push(Action::Begin { from: i, to, key: *key });
                }
            }
            if self.budget.creates > 0 && setup.may_create(i, to) {
                actions.push(Action::Create { node: i, owner: to });
            }
        }
        if self.budget.calls > 0 {
            let known = ids.iter().filter(|id| !node.queued.contains(id));
            actions.extend(known.map(|id| Action::Call { node: i, id: *id }));
        }
        if self.budget.leaves > 0 && setup.may_leave(i) && node.transfers.is_empty() && node.queued.is_empty()
        {
            actions.push(Action::Leave { node: i });
        }
    }

    fn is_usable(&self, i: usize, key: HandleKey) -> bool {
        if key.id.owner == uid(i) {
            return key.generation == 0;
        }
        self.nodes[i].life.broken_reason(key).is_none()
    }

    fn of_node(&self, setup: &Setup, i: usize, actions: &mut Vec<Action>) {
        let node = &self.nodes[i];
        if !node.transfers.is_empty() {
            actions.push(Action::Finish { from: i });
        }
        if !node.queued.is_empty() {
            actions.push(Action::Emit { node: i });
        }
        for id in &node.constructing {
            actions.push(Action::Construct { node: i, id: *id, well: true });
            if setup.failing {
                actions.push(Action::Construct { node: i, id: *id, well: false });
            }
        }
        actions.extend(node.running.first().map(|id| Action::Return { node: i, id: *id }));
        if node.timer {
            actions.push(Action::Flush { node: i });
        }
        if !node.inbox.is_empty() {
            actions.push(Action::Mail { node: i });
        }
        if self.budget.crashes > 0 && setup.may_crash(i) {
            actions.push(Action::Crash { node: i });
        }
        if node.left && node.transfers.is_empty() {
            actions.push(Action::Exit { node: i });
        }
        if self.budget.blocks > 0 && setup.may_block(i) {
            actions.push(Action::Block { node: i });
        }
    }

    fn of_pair(&self, setup: &Setup, from: usize, to: usize, actions: &mut Vec<Action>) {
        let (alive, there) = (self.nodes[from].alive, self.nodes[to].alive && !self.nodes[to].left);
        if alive && self.cut.contains(&(from, to)) {
            let pair = setup.heals && (from < to || setup.one_way);
            if pair {
                actions.push(Action::Heal { from, to });
            }
        }
        if !there {
            return;
        }
        let ready = !self.nodes[to].blocked
            && self.nodes[to].lanes.get(&from).is_some_and(|lane| lane.is_connected());
        if self.wire.get(&(from, to)).is_some_and(|wire| !wire.is_empty()) {
            if ready {
                actions.push(Action::Receive { from, to });
            }
            if !alive {
                actions.push(Action::Lose { from, to });
            }
        }
        if !alive {
            return;
        }
        if from < to {
            self.of_connection(setup, from, to, actions);
        }
        let idle = !self.is_cut(from, to);
        if self.answers.contains_key(&(from, to)) {
            if idle && !self.nodes[from].blocked {
                actions.push(Action::Answer { from, to });
            }
            if self.budget.breaks > 0 {
                actions.push(Action::LoseAnswer { from, to });
            }
        } else if idle
            && self.must_dial(setup, from, to)
            && !self.nodes[from].blocked
            && !self.nodes[to].blocked
        {
            actions.push(Action::Dial { from, to });
        }
        let Some(lane) = self.nodes[from].lanes.get(&to) else { return };
        if setup.flight {
            if lane.has_unsent() {
                actions.push(Action::Transmit { from, to });
            }
        } else if ready && lane.has_unsent() && idle {
            actions.push(Action::Deliver { from, to });
        }
        if idle && !self.nodes[from].blocked && (ready || setup.flight) && lane.is_connected() {
            self.of_acks(setup, from, to, actions);
        }
        if self.budget.inventories > 0 && lane.is_connected() && !self.nodes[from].blocked && setup.owns(to) {
            actions.push(Action::Inventory { node: from, owner: to });
        }
    }

    /// What can happen to the connection of a pair, from either side.
    fn of_connection(&self, setup: &Setup, a: usize, b: usize, actions: &mut Vec<Action>) {
        let up = |i: usize, j: usize| self.nodes[i].lanes.get(&j).is_some_and(|lane| lane.is_connected());
        if self.budget.breaks > 0 && setup.flight && up(a, b) && up(b, a) {
            actions.push(Action::Break { a, b });
        }
        if self.budget.resets > 0 && setup.may_reset(a, b) {
            for (node, peer) in [(a, b), (b, a)] {
                if up(node, peer) {
                    actions.push(Action::End { node, peer });
                }
            }
        }
        if self.budget.cuts > 0 && setup.may_cut(a, b) && !self.is_cut(a, b) {
            actions.push(Action::Cut { from: a, to: b });
            if setup.one_way {
                actions.push(Action::Cut { from: b, to: a });
            }
        }
    }

    fn must_dial(&self, setup: &Setup, from: usize, to: usize) -> bool {
        let down = |i: usize, j: usize| self.nodes[i].lanes.get(&j).is_some_and(|lane| !lane.is_connected());
        let pending = |i: usize, j: usize| self.answers.contains_key(&(i, j));
        // Whoever has claimed too much tries again when less waits.
        let full = |i: usize| self.nodes[i].life.parked_count() >= setup.parked_limit;
        (down(from, to) || down(to, from))
            && !full(from)
            && !full(to)
            && !pending(from, to)
            && !pending(to, from)
            && !self.nodes[from].left
            && !self.nodes[to].left
    }

    /// Whether the pair has no connection either way.
    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a, b)) || self.cut.contains(&(b, a)) || self.are_strangers(a, b)
    }

    pub fn are_strangers(&self, a: usize, b: usize) -> bool {
        self.strangers.contains(&(a, b)) || self.strangers.contains(&(b, a))
    }

    fn of_acks(&self, setup: &Setup, from: usize, to: usize, actions: &mut Vec<Action>) {
        if self.is_ack_news(setup, from, to, false) {
            actions.push(Action::Ack { from, to, except: false, late: false });
            if self.budget.acks > 0 && !self.wire.contains_key(&(from, to)) {
                actions.push(Action::Ack { from, to, except: false, late: true });
            }
        } else if setup.exceptions && self.is_ack_news(setup, from, to, true) {
            actions.push(Action::Ack { from, to, except: true, late: false });
        }
    }

    /// The owners that keep introductions of `to` from settling at `from`, and are out of its reach.
    pub fn exceptions(&self, from: usize, to: usize) -> Vec<NodeUid> {
        let out_of_reach = |owner: &NodeUid| {
            let owner = index(*owner);
            owner != to && (!self.nodes[owner].alive || self.is_cut(from, owner))
        };
        self.nodes[from].life.unsettled_owners(uid(to)).filter(out_of_reach).collect()
    }

    /// Whether the other side would learn something that it waits for.
    pub fn is_ack_news(&self, setup: &Setup, from: usize, to: usize, except: bool) -> bool {
        let (node, other) = (&self.nodes[from], &self.nodes[to]);
        let Some(lane) = node.lanes.get(&to) else { return false };
        let exceptions = if except { self.exceptions(from, to) } else { Vec::new() };
        let (session_no, ack) = (lane.session_no(), lane.processed());
        let settled = node.life.settled_except(uid(to), &exceptions);
        let acked = Stamp { session_no, seq: ack };
        let upto = Stamp { session_no, seq: settled };
        let news = (!except && ack > 0 && !other.life.is_claim_acked(uid(from), acked))
            || other.life.held().any(|held| {
                let excepted = exceptions.contains(&held.id.owner) && setup.rules.spare_excepted_owners;
                !excepted
                    && settled > 0
                    && held.pins.iter().any(|(receiver, at)| *receiver == uid(from) && *at <= upto)
            });
        let held = other.lanes.get(&from).and_then(|lane| lane.held_ack());
        news && held.is_none_or(|(_, a, s)| (a, s) != (ack, settled))
            && !self.wire.get(&(from, to)).into_iter().flatten().any(|packet| {
                matches!(packet, Packet::Ack { ack: a, settled: s, .. } if (*a, *s) == (ack, settled))
            })
    }
}
