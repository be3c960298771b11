//! A few nodes with ordered lanes between them; every step is checked against the invariants.

use rref_core::lifetime::{
    Arrival, Control, Effect, GoneReason, HandleKey, ImportState, Lifetime, Outbox, OwnedState,
};
use rref_core::{NodeUid, ObjectId, Rules, Seq, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A broken invariant, in words.
pub type Check = Result<(), String>;

/// Position `seq` of the only session.
pub fn at(seq: Seq) -> Stamp {
    Stamp { session_no: 1, seq }
}

/// The node with this index in the world.
pub fn uid(node: usize) -> NodeUid {
    NodeUid((node as u128 + 1) << 96)
}

fn index(node: NodeUid) -> usize {
    (node.0 >> 96) as usize - 1
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Control(Control),
    Message(Vec<ObjectId>),
    Create(u64),
    Call(ObjectId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub seq: Seq,
    pub ack: Seq,
    pub settled: Seq,
    pub content: Content,
}

/// An acknowledgement outside the lane.
#[derive(Clone, Debug)]
pub struct Ack {
    pub from: usize,
    pub to: usize,
    pub at: Seq,
    pub ack: Seq,
    pub settled: Seq,
    pub exceptions: Vec<NodeUid>,
}

/// Assigns positions as a session would; what is stamped was read before the call.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    pub last: BTreeMap<usize, Seq>,
    marks: BTreeMap<usize, (Seq, Seq)>,
    out: Vec<(usize, Frame)>,
}

impl Mail {
    fn send(&mut self, to: usize, content: Content) -> Stamp {
        let last = self.last.entry(to).or_default();
        *last += 1;
        let (ack, settled) = self.marks.get(&to).copied().unwrap_or_default();
        self.out.push((to, Frame { seq: *last, ack, settled, content }));
        at(*last)
    }
}

impl Outbox for Mail {
    fn enqueue(&mut self, to: NodeUid, control: Control) -> Stamp {
        self.send(index(to), Content::Control(control))
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub life: Lifetime,
    pub mail: Mail,
    /// What the application holds.
    pub handles: Vec<HandleKey>,
    /// Numbered creations without a position yet.
    pub queued: VecDeque<ObjectId>,
    /// Objects under construction.
    pub constructing: Vec<ObjectId>,
    /// Calls queued or running.
    pub running: Vec<ObjectId>,
    /// Calls whose object's creation has not arrived.
    pub parked: Vec<ObjectId>,
    /// Positions processed, by sender.
    pub processed: BTreeMap<usize, Seq>,
    /// The timer for releases runs.
    pub timer: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    rules: Rules,
    pub nodes: Vec<Node>,
    /// By (sender, receiver).
    pub lanes: BTreeMap<(usize, usize), VecDeque<Frame>>,
    pub acks: Vec<Ack>,
    pub created: BTreeSet<ObjectId>,
    pub freed: BTreeSet<ObjectId>,
    /// Entries that broke, in order.
    pub broken: Vec<(usize, ObjectId, GoneReason)>,
    /// Whether a Gone is part of the scenario rather than a fault.
    pub expect_gone: bool,
    /// Frames sent in all.
    pub sent: Vec<(usize, usize, Content)>,
}

impl World {
    pub fn new(nodes: usize, rules: Rules) -> World {
        let node = |i| Node {
            life: Lifetime::new(uid(i), rules),
            mail: Mail::default(),
            handles: Vec::new(),
            queued: VecDeque::new(),
            constructing: Vec::new(),
            running: Vec::new(),
            parked: Vec::new(),
            processed: BTreeMap::new(),
            timer: false,
        };
        World {
            rules,
            nodes: (0..nodes).map(node).collect(),
            lanes: BTreeMap::new(),
            acks: Vec::new(),
            created: BTreeSet::new(),
            freed: BTreeSet::new(),
            broken: Vec::new(),
            expect_gone: false,
            sent: Vec::new(),
        }
    }

    /// Runs something at a node, then moves its mail and sees to its effects.
    pub fn with<R>(&mut self, i: usize, run: impl FnOnce(&mut Node) -> R) -> Result<R, String> {
        let count = self.nodes.len();
        let node = &mut self.nodes[i];
        for j in (0..count).filter(|j| *j != i) {
            let ack = node.processed.get(&j).copied().unwrap_or(0);
            let settled = node.life.settled_for(uid(j));
            let before = node.mail.marks.insert(j, (ack, settled)).unwrap_or_default();
            if settled < before.1 {
                return Err(format!("settled mark of {i} for {j} went back to {settled}"));
            }
        }
        let result = run(node);
        for (to, frame) in std::mem::take(&mut node.mail.out) {
            self.sent.push((i, to, frame.content.clone()));
            self.lanes.entry((i, to)).or_default().push_back(frame);
        }
        for effect in node.life.take_effects() {
            match effect {
                Effect::FlushReleases => node.timer = true,
                Effect::Free(id) => {
                    if node.running.contains(&id) {
                        return Err(format!("R12: {id} freed under a call"));
                    }
                    if !self.freed.insert(id) {
                        return Err(format!("{id} freed twice"));
                    }
                }
                Effect::NeverComes(id, reason) => return Err(format!("{id} at {i}: {reason:?}")),
                Effect::Broken(id, reason) if self.expect_gone => self.broken.push((i, id, reason)),
                Effect::Broken(id, reason) => return Err(format!("{i} told that {id} is {reason:?}")),
            }
        }
        Ok(result)
    }

    pub fn create(&mut self, i: usize, owner: usize) -> Result<HandleKey, String> {
        let key = self.with(i, |n| {
            let key = n.life.create(uid(owner));
            n.handles.push(key);
            if owner == i {
                n.constructing.push(key.id);
            } else {
                n.queued.push_back(key.id);
            }
            key
        })?;
        self.created.insert(key.id);
        Ok(key)
    }

    pub fn send_create(&mut self, i: usize) -> Check {
        self.with(i, |n| {
            if let Some(id) = n.queued.pop_front() {
                n.life.flush(id.owner, &mut n.mail);
                let at = n.mail.send(index(id.owner), Content::Create(id.create_no));
                n.life.create_sent(id, at);
            }
        })
    }

    /// Ends the construction of an object, well or badly.
    pub fn construct(&mut self, i: usize, which: usize, well: bool) -> Check {
        self.with(i, |n| {
            if n.constructing.is_empty() {
                return;
            }
            let id = n.constructing.remove(which % n.constructing.len());
            if well {
                n.life.created(id)
            } else {
                n.life.create_failed(id, GoneReason::CreateFailed("x".into()))
            }
        })
    }

    /// A handler of one of the node's objects panics.
    pub fn die(&mut self, i: usize, which: usize) -> Check {
        let live = self.nodes[i].life.owned().filter(|o| o.state == OwnedState::Live);
        let live: Vec<ObjectId> = live.map(|o| o.id).collect();
        match live.get(which % live.len().max(1)) {
            Some(&id) => self.with(i, |n| n.life.died(id, GoneReason::Died("x".into()))),
            None => Ok(()),
        }
    }

    /// Sends handles of these objects; the application keeps its own.
    pub fn send(&mut self, i: usize, to: usize, ids: &[ObjectId]) -> Check {
        self.with(i, |n| {
            n.life.flush(uid(to), &mut n.mail);
            let at = n.mail.send(to, Content::Message(ids.to_vec()));
            n.life.introduce(ids, uid(to), at);
        })
    }

    pub fn clone_handle(&mut self, i: usize, key: HandleKey) -> Check {
        self.with(i, |n| {
            n.life.clone_handle(key);
            n.handles.push(key);
        })
    }

    /// Drops the application's handle at this place.
    pub fn drop_nth(&mut self, i: usize, which: usize) -> Check {
        self.with(i, |n| {
            if !n.handles.is_empty() {
                let key = n.handles.swap_remove(which % n.handles.len());
                n.life.drop_handle(key, &mut n.mail);
            }
        })
    }

    pub fn drop_all(&mut self, i: usize) -> Check {
        while !self.nodes[i].handles.is_empty() {
            self.drop_nth(i, 0)?;
        }
        Ok(())
    }

    /// Calls through a handle; a call to an object whose Create is not sent yet waits, so is left out.
    pub fn call(&mut self, i: usize, id: ObjectId) -> Check {
        let owner = index(id.owner);
        if owner == i {
            return self.call_arrives(i, id);
        }
        self.with(i, |n| {
            if !n.queued.contains(&id) {
                n.life.flush(id.owner, &mut n.mail);
                n.mail.send(owner, Content::Call(id));
            }
        })
    }

    fn call_arrives(&mut self, i: usize, id: ObjectId) -> Check {
        let arrival = self.with(i, |n| {
            let arrival = n.life.call_arrived(id);
            match arrival {
                Arrival::Run | Arrival::Wait => n.running.push(id),
                Arrival::Park => n.parked.push(id),
                _ => {}
            }
            arrival
        })?;
        match arrival {
            Arrival::Gone(_) | Arrival::NotOwner => Err(format!("call for {id} at {i}: {arrival:?}")),
            _ => Ok(()),
        }
    }

    pub fn finish_call(&mut self, i: usize, which: usize) -> Check {
        self.with(i, |n| {
            if !n.running.is_empty() {
                let id = n.running.swap_remove(which % n.running.len());
                n.life.call_finished(id);
            }
        })
    }

    pub fn flush(&mut self, i: usize) -> Check {
        self.with(i, |n| {
            if n.timer {
                n.timer = false;
                n.life.flush_all(&mut n.mail);
            }
        })
    }

    /// The receiver processes the next frame of a lane.
    pub fn deliver(&mut self, from: usize, to: usize) -> Check {
        let Some(frame) = self.lanes.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return Ok(());
        };
        let peer = uid(from);
        let mut calls = Vec::new();
        let expect_gone = self.expect_gone;
        let created = self.with(to, |n| -> Result<Option<ObjectId>, String> {
            n.life.on_acked(peer, at(frame.ack));
            n.life.on_settled(peer, at(frame.settled), &[], &mut n.mail);
            let mut created = None;
            match frame.content {
                Content::Control(Control::Claim(ids)) => {
                    n.life.on_claim(peer, &ids, &mut n.mail).map_err(|e| e.to_string())?;
                }
                Content::Control(Control::Release(ids)) => {
                    n.life.on_release(peer, &ids).map_err(|e| e.to_string())?;
                }
                Content::Control(Control::Gone(ids)) => {
                    if !expect_gone {
                        return Err(format!("{to} told that {ids:?}"));
                    }
                    n.life.on_gone(peer, &ids).map_err(|e| e.to_string())?;
                }
                Content::Control(other) => return Err(format!("{to} got {other:?}")),
                Content::Message(ids) => {
                    for imported in n.life.import(&ids, peer, at(frame.seq), &mut n.mail) {
                        if imported.state != ImportState::Ok && !expect_gone {
                            return Err(format!("R4: {to} got {imported:?}"));
                        }
                        n.handles.push(imported.key);
                    }
                }
                Content::Create(no) => {
                    let id = n.life.on_create(peer, no).map_err(|e| e.to_string())?;
                    n.constructing.push(id);
                    created = Some(id);
                }
                Content::Call(id) => calls.push(id),
            }
            Ok(created)
        })??;
        if let Some(id) = created {
            let parked = &mut self.nodes[to].parked;
            let before = parked.len();
            parked.retain(|p| *p != id);
            calls.extend(std::iter::repeat_n(id, before - parked.len()));
        }
        for id in calls {
            self.call_arrives(to, id)?;
        }
        self.with(to, |n| {
            n.processed.insert(from, frame.seq);
            n.life.processed(peer, at(frame.seq));
        })
    }

    /// A node states what it has processed and settled, outside the lane.
    pub fn make_ack(&mut self, from: usize, to: usize, exceptions: &[NodeUid]) {
        let node = &self.nodes[from];
        self.acks.push(Ack {
            from,
            to,
            at: node.mail.last.get(&to).copied().unwrap_or(0),
            ack: node.processed.get(&to).copied().unwrap_or(0),
            settled: node.life.settled_except(uid(to), exceptions),
            exceptions: exceptions.to_vec(),
        });
    }

    pub fn deliver_ack(&mut self, which: usize) -> Check {
        if self.acks.is_empty() {
            return Ok(());
        }
        let ack = self.acks.swap_remove(which % self.acks.len());
        let waits = self.rules.ack_waits_for_position;
        self.with(ack.to, |n| {
            let peer = uid(ack.from);
            // One that comes too early might as well be lost.
            if !waits || n.processed.get(&ack.from).copied().unwrap_or(0) >= ack.at {
                n.life.on_acked(peer, at(ack.ack));
            }
            n.life.on_settled(peer, at(ack.settled), &ack.exceptions, &mut n.mail);
        })
    }

    /// I1, I2 and I4 of all nodes at once.
    pub fn check(&self) -> Check {
        for (i, node) in self.nodes.iter().enumerate() {
            for key in &node.handles {
                if key.id.owner == uid(i) && key.generation == 0 && self.freed.contains(&key.id) {
                    return Err(format!("{} freed under its owner's own handle", key.id));
                }
            }
            for held in node.life.held().filter(|held| held.broken.is_none()) {
                if self.freed.contains(&held.id) {
                    return Err(format!("I1: {} freed while {i} has {held:?}", held.id));
                }
                let lists = |n: &Node| n.life.owned().any(|o| o.id == held.id && o.holders.contains(&uid(i)));
                if held.confirmed && !lists(&self.nodes[index(held.id.owner)]) {
                    return Err(format!("I4: {i} is confirmed for {} but not listed", held.id));
                }
            }
        }
        Ok(())
    }

    /// Delivers everything, until nothing moves: lanes, timers and acks.
    pub fn settle_down(&mut self) -> Check {
        let n = self.nodes.len();
        for _ in 0..64 {
            let before = self.sent.len();
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j) {
                while self.lanes.get(&(i, j)).is_some_and(|lane| !lane.is_empty()) {
                    self.deliver(i, j)?;
                    self.check()?;
                }
            }
            for i in 0..n {
                self.flush(i)?;
            }
            let quiet = self.lanes.values().all(VecDeque::is_empty) && before == self.sent.len();
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j) {
                self.make_ack(i, j, &[]);
                self.deliver_ack(usize::MAX)?;
                self.check()?;
            }
            if quiet && before == self.sent.len() && self.nodes.iter().all(|n| !n.timer) {
                return Ok(());
            }
        }
        Err("never comes to rest".into())
    }

    /// Lets go of everything: all tables must be clean, all objects freed once.
    pub fn finish(&mut self) -> Check {
        self.acks.clear();
        for _ in 0..8 {
            for i in 0..self.nodes.len() {
                self.drop_all(i)?;
                while !self.nodes[i].queued.is_empty() {
                    self.send_create(i)?;
                }
                while !self.nodes[i].constructing.is_empty() {
                    self.construct(i, 0, true)?;
                }
                while !self.nodes[i].running.is_empty() {
                    self.finish_call(i, 0)?;
                }
            }
            self.settle_down()?;
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if !node.life.is_clean() {
                return Err(format!("LEAK at {i}: {:#?}", node.life));
            }
            if !node.parked.is_empty() {
                return Err(format!("calls parked for ever at {i}: {:?}", node.parked));
            }
        }
        if self.created != self.freed && !self.expect_gone {
            return Err(format!("created {:?}, freed {:?}", self.created, self.freed));
        }
        Ok(())
    }
}
