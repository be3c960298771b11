//! What each step does to a world.

use super::actions::Action;
use super::setup::{Hit, Setup};
use super::world::{Content, Packet, World, index, uid};
use rref_core::lifetime::{HandleKey, OwnedState};
use rref_core::session::Position;
use rref_core::{NodeUid, ObjectId, Seq};

impl World {
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
                    self.call_arrives(setup, node, node, id, false);
                } else {
                    let tainted = self.ghost.tainted.contains(&(node, id));
                    self.at(setup, node, |life, post| {
                        life.flush(id.owner, post);
                        post.send(owner, Content::Call(id, tainted));
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

    pub fn acknowledge(&mut self, setup: &Setup, from: usize, to: usize, except: bool, late: bool) {
        let exceptions = if except { self.exceptions(from, to) } else { Vec::new() };
        if except {
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
        if lane.is_ended() {
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
            self.ghost.over.insert((peer, node), lane.session_no());
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
        self.ghost.applied.retain(|(_, to), _| *to != i);
        self.ghost.over.retain(|(_, to), _| *to != i);
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
