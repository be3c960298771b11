//! What can happen next in a world, and how it happens.

use super::models::{Hit, Setup};
use super::world::{Content, Packet, World, index, uid};
use rref_core::lifetime::{HandleKey, OwnedState};
use rref_core::session::Position;
use rref_core::{NodeUid, ObjectId, Seq, Stamp};

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
    /// `from` says what it has processed, but for objects of an owner; `late` ones may be overtaken.
    Ack {
        from: usize,
        to: usize,
        except: Option<usize>,
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
            if !setup.keeps(i, key.id) {
                actions.push(Action::Drop { node: i, key: *key });
            }
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
                for id in ids.iter().filter(|id| setup.may_give(i, to, **id)) {
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
            let pair = (from < to && setup.heals) || (setup.one_way && setup.heals);
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
        } else if idle && self.must_dial(from, to) && !self.nodes[from].blocked && !self.nodes[to].blocked {
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

    fn must_dial(&self, from: usize, to: usize) -> bool {
        let down = |i: usize, j: usize| self.nodes[i].lanes.get(&j).is_some_and(|lane| !lane.is_connected());
        let pending = |i: usize, j: usize| self.answers.contains_key(&(i, j));
        (down(from, to) || down(to, from))
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
        if self.is_ack_news(setup, from, to, None) {
            actions.push(Action::Ack { from, to, except: None, late: false });
            if self.budget.acks > 0 && !self.wire.contains_key(&(from, to)) {
                actions.push(Action::Ack { from, to, except: None, late: true });
            }
        }
        if setup.exceptions {
            for x in (0..self.nodes.len()).filter(|x| *x != from && *x != to && self.is_cut(from, *x)) {
                if self.is_ack_news(setup, from, to, Some(x)) && !self.is_ack_news(setup, from, to, None) {
                    actions.push(Action::Ack { from, to, except: Some(x), late: false });
                }
            }
        }
    }

    /// Whether the other side would learn something that it waits for.
    pub fn is_ack_news(&self, setup: &Setup, from: usize, to: usize, except: Option<usize>) -> bool {
        let (node, other) = (&self.nodes[from], &self.nodes[to]);
        let Some(lane) = node.lanes.get(&to) else { return false };
        let exceptions: Vec<NodeUid> = except.into_iter().map(uid).collect();
        let (session_no, ack) = (lane.session_no(), lane.processed());
        let settled = node.life.settled_except(uid(to), &exceptions);
        let acked = Stamp { session_no, seq: ack };
        let upto = Stamp { session_no, seq: settled };
        let news = (except.is_none() && ack > 0 && !other.life.is_claim_acked(uid(from), acked))
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

    /// Does one step.
    pub fn step(&mut self, setup: &Setup, action: Action) {
        self.act(setup, action);
        if setup.timed {
            self.settle_leases(setup);
        }
        self.check_invariants(setup);
    }

    fn act(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Give { from, to, ids } => {
                self.budget.gives -= 1;
                self.give(setup, from, to, &ids);
            }
            Action::Begin { from, to, key } => {
                self.budget.gives -= 1;
                let handles = &mut self.nodes[from].handles;
                if let Some(at) = handles.iter().position(|held| *held == key) {
                    handles.remove(at);
                }
                self.nodes[from].transfers.push((to, key));
                if !setup.duties.keep_transfers {
                    self.at(setup, from, |life, post| life.drop_handle(key, post));
                }
            }
            Action::Finish { from } => {
                let (to, key) = self.nodes[from].transfers.remove(0);
                self.give(setup, from, to, &[key.id]);
                if setup.duties.keep_transfers {
                    self.at(setup, from, |life, post| life.drop_handle(key, post));
                }
            }
            Action::Drop { node, key } => {
                let handles = &mut self.nodes[node].handles;
                if let Some(at) = handles.iter().position(|held| *held == key) {
                    handles.remove(at);
                }
                self.at(setup, node, |life, post| life.drop_handle(key, post));
                self.untaint(node, key.id);
            }
            Action::Create { node, owner } => {
                self.budget.creates -= 1;
                self.create(setup, node, owner);
            }
            Action::Emit { node } => {
                let id = self.nodes[node].queued.remove(0);
                self.at(setup, node, |life, post| {
                    life.flush(id.owner, post);
                    let at = post.send(index(id.owner), Content::Create(id.create_no));
                    life.create_sent(id, at);
                });
            }
            Action::Construct { node, id, well } => {
                self.nodes[node].constructing.retain(|other| *other != id);
                self.construct(setup, node, id, well);
            }
            Action::Call { node, id } => {
                self.budget.calls -= 1;
                let owner = index(id.owner);
                if owner == node {
                    self.call_arrives(setup, node, node, id);
                } else {
                    self.at(setup, node, |life, post| {
                        life.flush(id.owner, post);
                        post.send(owner, Content::Call(id));
                    });
                }
            }
            Action::Return { node, id } => {
                self.nodes[node].running.remove(0);
                self.at(setup, node, |life, _| life.call_finished(id));
            }
            Action::Flush { node } => self.flush(setup, node),
            Action::Deliver { from, to } => self.deliver(setup, from, to),
            Action::Transmit { from, to } => {
                if let Some(seq) = self.next_seq(from, to)
                    && let Some(frame) = self.frames.get(&(from, to)).and_then(|frames| frames.get(&seq))
                {
                    let packet = Packet::Frame(frame.clone());
                    self.wire.entry((from, to)).or_default().push_back(packet);
                }
            }
            Action::Receive { from, to } => self.receive(setup, from, to),
            Action::Ack { from, to, except, late } => self.acknowledge(setup, from, to, except, late),
            Action::Break { a, b } => {
                self.budget.breaks -= 1;
                self.disconnect(setup, a, b);
            }
            Action::Dial { from, to } => self.dial(setup, from, to),
            Action::Answer { from, to } => {
                if let Some(position) = self.answers.remove(&(from, to))
                    && let Some(lane) = self.nodes[from].lanes.get_mut(&to)
                {
                    match lane.answer_arrived(position) {
                        Ok(meeting) => self.met(setup, from, to, meeting),
                        Err(error) => self.fail(format!("I6: {error}")),
                    }
                }
            }
            Action::LoseAnswer { from, to } => {
                self.budget.breaks -= 1;
                setup.hit(Hit::AnswerLost);
                self.answers.remove(&(from, to));
                self.disconnect(setup, from, to);
            }
            Action::End { node, peer } => {
                self.budget.resets -= 1;
                self.end_session(setup, node, peer);
            }
            Action::Inventory { node, owner } => {
                self.budget.inventories -= 1;
                self.at(setup, node, |life, post| life.send_inventory(uid(owner), post));
            }
            Action::Crash { node } => {
                self.budget.crashes -= 1;
                self.crash(setup, node);
            }
            Action::Lose { from, to } => {
                self.wire.remove(&(from, to));
            }
            Action::Leave { node } => self.leave(setup, node),
            Action::Exit { node } => self.crash(setup, node),
            Action::Cut { from, to } => {
                self.budget.cuts -= 1;
                if setup.timed {
                    self.ghost.lose(from, to);
                }
                self.cut.insert((from, to));
                if !setup.one_way {
                    self.cut.insert((to, from));
                }
                self.answers.remove(&(from, to));
                self.answers.remove(&(to, from));
                self.disconnect(setup, from, to);
            }
            Action::Heal { from, to } => {
                self.cut.remove(&(from, to));
                if !setup.one_way {
                    self.cut.remove(&(to, from));
                }
            }
            Action::Block { node } => self.block(setup, node),
            Action::Unblock { node } => self.unblock(setup, node),
            Action::Tick { node } => self.tick(setup, node),
            Action::Meet { a, b } => self.meet(setup, a, b),
            Action::Mail { node } => self.read_mail(setup, node),
        }
    }

    pub fn give(&mut self, setup: &Setup, from: usize, to: usize, ids: &[ObjectId]) {
        let refs = ids.iter().map(|id| (*id, self.ghost.tainted.contains(&(from, *id)))).collect();
        self.at(setup, from, |life, post| {
            life.flush(uid(to), post);
            let at = post.send(to, Content::Message(refs));
            life.introduce(ids, uid(to), at);
        });
    }

    pub fn create(&mut self, setup: &Setup, node: usize, owner: usize) -> HandleKey {
        let key = self.at(setup, node, |life, _| life.create(uid(owner)));
        if !self.ghost.created.insert(key.id) {
            self.fail(format!("I10: {} twice", key.id));
        }
        let n = &mut self.nodes[node];
        n.handles.push(key);
        n.handles.sort();
        if owner == node {
            n.constructing.push(key.id);
            self.ghost.begun.insert(key.id);
        } else if n.life.held().any(|held| held.id == key.id && held.queued) {
            n.queued.push(key.id);
        }
        key
    }

    pub fn construct(&mut self, setup: &Setup, node: usize, id: ObjectId, well: bool) {
        self.at(setup, node, |life, _| {
            if well {
                life.created(id);
            } else {
                life.create_failed(id, rref_core::lifetime::GoneReason::CreateFailed(String::new()));
            }
        });
    }

    /// A node has let go of an object: what it gets from now on is judged anew.
    pub fn untaint(&mut self, node: usize, id: ObjectId) {
        if !self.nodes[node].life.held().any(|held| held.id == id) {
            self.ghost.tainted.remove(&(node, id));
        }
    }

    fn next_seq(&mut self, from: usize, to: usize) -> Option<Seq> {
        self.nodes[from].lanes.get_mut(&to)?.next_to_send().copied()
    }

    pub fn deliver(&mut self, setup: &Setup, from: usize, to: usize) {
        if let Some(seq) = self.next_seq(from, to)
            && let Some(frame) = self.frames.get_mut(&(from, to)).and_then(|frames| frames.remove(&seq))
        {
            self.process(setup, from, to, frame);
        }
    }

    fn receive(&mut self, setup: &Setup, from: usize, to: usize) {
        let packet = self.wire.get_mut(&(from, to)).and_then(|wire| wire.pop_front());
        self.wire.retain(|_, wire| !wire.is_empty());
        match packet {
            Some(Packet::Frame(frame)) => self.process(setup, from, to, frame),
            Some(Packet::Ack { session_no, at, ack, settled, exceptions }) => {
                self.take_ack(setup, from, to, session_no, at, ack, settled, exceptions);
            }
            None => {}
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of an Ack
    fn take_ack(
        &mut self,
        setup: &Setup,
        from: usize,
        to: usize,
        session_no: u32,
        at: Seq,
        ack: Seq,
        settled: Seq,
        exceptions: Vec<NodeUid>,
    ) {
        let Some(lane) = self.nodes[to].lanes.get_mut(&from) else { return };
        if session_no != lane.session_no() {
            setup.hit(Hit::ForeignAck);
        }
        match lane.ack_frame(session_no, at, ack, settled, exceptions) {
            Ok(progress) => self.progress(setup, to, from, progress),
            Err(error) => self.fail(format!("I6: {error}")),
        }
    }

    pub fn acknowledge(&mut self, setup: &Setup, from: usize, to: usize, except: Option<usize>, late: bool) {
        let exceptions: Vec<NodeUid> = except.into_iter().map(uid).collect();
        if except.is_some() {
            setup.hit(Hit::Exception);
        }
        let node = &mut self.nodes[from];
        let settled = node.life.settled_except(uid(to), &exceptions);
        let Some(lane) = node.lanes.get_mut(&to) else { return };
        let (session_no, at, ack) = (lane.session_no(), lane.last_assigned(), lane.processed());
        lane.ack_stamped();
        if late || setup.flight {
            self.budget.acks -= u8::from(late);
            let packet = Packet::Ack { session_no, at, ack, settled, exceptions };
            self.wire.entry((from, to)).or_default().push_back(packet);
        } else {
            self.take_ack(setup, from, to, session_no, at, ack, settled, exceptions);
        }
    }

    /// As [`World::acknowledge`], with nothing under way.
    pub fn acknowledge_at_once(&mut self, setup: &Setup, from: usize, to: usize) {
        let settled = self.nodes[from].life.settled_for(uid(to));
        let Some(lane) = self.nodes[from].lanes.get_mut(&to) else { return };
        let (session_no, at, ack) = (lane.session_no(), lane.last_assigned(), lane.processed());
        lane.ack_stamped();
        self.take_ack(setup, from, to, session_no, at, ack, settled, Vec::new());
    }

    fn disconnect(&mut self, setup: &Setup, a: usize, b: usize) {
        for (i, j) in [(a, b), (b, a)] {
            if let Some(lane) = self.nodes[i].lanes.get_mut(&j) {
                lane.disconnected();
            }
            self.wire.remove(&(i, j));
            self.connection_down(setup, i, j);
        }
    }

    /// Everything that waits between two nodes is processed.
    pub fn step_all(&mut self, setup: &Setup, a: usize, b: usize) {
        while !self.nodes[a].queued.is_empty() {
            self.act(setup, Action::Emit { node: a });
        }
        for _ in 0..8 {
            for (from, to) in [(a, b), (b, a)] {
                while self.nodes[from].lanes.get(&to).is_some_and(|lane| lane.has_unsent()) {
                    self.deliver(setup, from, to);
                }
                self.acknowledge_at_once(setup, from, to);
            }
        }
    }

    fn dial(&mut self, setup: &Setup, from: usize, to: usize) {
        let Some(lane) = self.nodes[from].lanes.get_mut(&to) else { return };
        let hello = lane.hello();
        if !lane.is_connected() {
            // The old connection is over, with what was in flight on it.
            self.wire.remove(&(to, from));
            self.connection_down(setup, from, to);
        }
        let Some(lane) = self.nodes[to].lanes.get_mut(&from) else { return };
        if !setup.may_lose && lane.is_ended() {
            setup.hit(Hit::ResetByAcceptor);
        }
        self.wire.remove(&(from, to));
        let before: Position = hello;
        match lane.hello_arrived(before) {
            Ok((meeting, position)) => {
                self.met(setup, to, from, meeting);
                self.answers.insert((from, to), position);
            }
            Err(error) => self.fail(format!("I6: {error}")),
        }
    }

    pub fn end_session(&mut self, setup: &Setup, node: usize, peer: usize) {
        if let Some(lane) = self.nodes[node].lanes.get_mut(&peer) {
            lane.end_session();
        }
        if setup.timed {
            // Heartbeats of the session renew nothing any more.
            self.ghost.lose(node, peer);
        }
        setup.note_lost(self.frames.get(&(node, peer)));
        self.frames.remove(&(node, peer));
        self.answers.remove(&(node, peer));
        self.wire.remove(&(peer, node));
        self.connection_down(setup, node, peer);
    }

    /// The node is gone. What it had sent may still arrive.
    fn crash(&mut self, setup: &Setup, i: usize) {
        for j in (0..self.nodes.len()).filter(|j| *j != i) {
            let open = !self.is_cut(i, j)
                && self.nodes[i].lanes.get(&j).is_some_and(|lane| lane.is_connected())
                && self.nodes[j].lanes.get(&i).is_some_and(|lane| lane.is_connected());
            if open && self.nodes[j].alive && !setup.flight {
                while let Some(seq) = self.next_seq(i, j) {
                    if let Some(frame) = self.frames.get_mut(&(i, j)).and_then(|frames| frames.remove(&seq)) {
                        self.wire.entry((i, j)).or_default().push_back(Packet::Frame(frame));
                    }
                }
            }
            for pair in [(i, j), (j, i)] {
                self.frames.remove(&pair);
                self.answers.remove(&pair);
                self.cut.remove(&pair);
            }
            self.wire.remove(&(j, i));
        }
        self.strangers.retain(|(a, b)| *a != i && *b != i);
        let fresh = World::new(setup).nodes.swap_remove(i);
        self.nodes[i] = fresh;
        self.nodes[i].alive = false;
        self.nodes[i].lanes.clear();
        self.nodes[i].leases = None;
        for id in self.ghost.created.iter().filter(|id| id.owner == uid(i)) {
            self.ghost.freed.remove(id);
        }
        self.ghost.tainted.retain(|(node, _)| *node != i);
        self.ghost.unheard.retain(|(a, b)| *a != i && *b != i);
        self.ghost.unechoed.retain(|(a, b)| *a != i && *b != i);
    }

    fn leave(&mut self, setup: &Setup, i: usize) {
        self.budget.leaves -= 1;
        for key in std::mem::take(&mut self.nodes[i].handles) {
            self.at(setup, i, |life, post| life.drop_handle(key, post));
        }
        self.flush(setup, i);
        self.nodes[i].left = true;
        for j in (0..self.nodes.len()).filter(|j| *j != i) {
            self.at(setup, i, |_, post| post.send(j, Content::Leave));
        }
        setup.hit(Hit::Leave);
    }

    /// Whether an object is under construction at its owner or expected there.
    pub fn is_early(&self, owner: usize, id: ObjectId) -> bool {
        let owned = self.nodes[owner].life.owned().find(|owned| owned.id == id);
        owned.is_none_or(|owned| matches!(owned.state, OwnedState::Expected | OwnedState::Pending))
    }
}
