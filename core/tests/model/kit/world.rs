//! The state of a model, and the caller's side of the core: what a node does with frames and effects.

use super::setup::Setup;
use rref_core::lease::Leases;
use rref_core::lifetime::ProtocolError;
use rref_core::lifetime::{Arrival, Control, Effect, GoneReason, HandleKey, ImportState, Lifetime, Outbox};
use rref_core::session::{Accept, Class, Lane, Meeting, Position, Progress};
use rref_core::wire::Heartbeat;
use rref_core::{NodeUid, ObjectId, Seq, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

/// The uid of the node with this index.
pub fn uid(node: usize) -> NodeUid {
    NodeUid((node as u128 + 1) << 96)
}

/// The index of the node with this uid.
pub fn index(node: NodeUid) -> usize {
    (node.0 >> 96) as usize - 1
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Control(Control),
    /// Handles, each with whether its object may be gone: see [`Ghost::tainted`].
    Message(Vec<(ObjectId, bool)>),
    Create(u64),
    /// As with a handle, whether its object may be gone: the caller may have dropped its own since.
    Call(ObjectId, bool),
    Leave,
}

/// A frame with what was stamped on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// No frame says so: its connection does.
    pub session_no: u32,
    pub seq: Seq,
    pub ack: Seq,
    pub settled: Seq,
    pub content: Content,
}

/// What is under way on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    Frame(Frame),
    Ack { session_no: u32, at: Seq, ack: Seq, settled: Seq, exceptions: Vec<NodeUid> },
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub alive: bool,
    /// It has announced that it sends nothing more.
    pub left: bool,
    /// Connections break: what has been sent decides about the future.
    pub resends: bool,
    /// Its main loop is blocked; its keeper is not.
    pub blocked: bool,
    pub life: Lifetime,
    /// By peer. The lane holds positions; their frames are in [`World::frames`].
    pub lanes: BTreeMap<usize, Lane<Seq>>,
    pub leases: Option<Leases>,
    /// Ticks of its clock.
    pub now: u64,
    /// Ticks it has spent blocked.
    pub slept: u64,
    /// Heartbeats, and sending times of echoes, that its main loop has not processed, by sender.
    pub inbox: BTreeMap<usize, (Option<Heartbeat>, bool)>,
    /// What its keeper says while the main loop is blocked.
    pub published: BTreeMap<usize, Heartbeat>,
    /// What the application holds, in order.
    pub handles: Vec<HandleKey>,
    /// Handles inside objects of this node: they are dropped with them.
    pub inside: Vec<(ObjectId, HandleKey)>,
    /// Messages in chunks: their last frame has no position yet.
    pub transfers: Vec<(usize, HandleKey)>,
    /// Creations without a position.
    pub queued: Vec<ObjectId>,
    pub constructing: Vec<ObjectId>,
    /// Calls queued or running, and calls whose object's creation has not arrived.
    pub running: Vec<ObjectId>,
    pub parked: Vec<ObjectId>,
    /// The timer for releases runs.
    pub timer: bool,
}

impl Hash for Node {
    /// Leaves out what decides about nothing: in a lane, how acknowledgements are paced, and what they
    /// said before.
    fn hash<H: Hasher>(&self, h: &mut H) {
        (self.alive, self.left, self.blocked, &self.life, &self.leases, self.now, self.slept).hash(h);
        for (peer, lane) in &self.lanes {
            (peer, lane.session_no(), lane.is_ended(), lane.is_connected()).hash(h);
            (lane.next_seq(), lane.has_unsent(), lane.processed(), lane.held_ack()).hash(h);
            if self.resends {
                lane.hash(h);
            }
        }
        (&self.inbox, &self.published, &self.handles, &self.inside, &self.transfers).hash(h);
        (&self.queued, &self.constructing, &self.running, &self.parked, self.timer).hash(h);
    }
}

/// What no node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    pub created: BTreeSet<ObjectId>,
    /// Objects whose construction began at their owner.
    pub begun: BTreeSet<ObjectId>,
    pub freed: BTreeSet<ObjectId>,
    /// Node and object: the node was fenced by the owner, or has the handle from one that was. It may
    /// find the object gone.
    pub tainted: BTreeSet<(usize, ObjectId)>,
    /// Who has had no heartbeat, and no echo, of whom since the way was cut: an excuse to fence it.
    pub unheard: BTreeSet<(usize, usize)>,
    pub unechoed: BTreeSet<(usize, usize)>,
    /// The session and position of the last frame applied, by sender and receiver.
    pub applied: BTreeMap<(usize, usize), (u32, Seq)>,
    /// The session of a sender that its receiver has ended, or fenced it in: no more of it is to be applied.
    pub over: BTreeMap<(usize, usize), u32>,
}

impl Ghost {
    /// I6: frames are applied once, in order, in a session that is not over.
    fn apply(&mut self, pair: (usize, usize), session_no: u32, seq: Seq) -> Result<(), String> {
        let (session, last) = self.applied.get(&pair).copied().unwrap_or((1, 0));
        self.applied.insert(pair, (session_no, seq));
        if (session_no, seq) != (session, last + 1) {
            return Err(format!("I6: frame {session_no}/{seq} of {pair:?} applied after {session}/{last}"));
        }
        match self.over.get(&pair) {
            Some(over) if session_no <= *over => {
                Err(format!("I6: frame {session_no}/{seq} of {pair:?} applied, and that session is over"))
            }
            _ => Ok(()),
        }
    }

    /// The receiver is in a new session with the sender.
    fn begin(&mut self, pair: (usize, usize), session_no: u32) -> Result<(), String> {
        let (before, _) = self.applied.insert(pair, (session_no, 0)).unwrap_or((1, 0));
        self.over.remove(&pair);
        if session_no > before {
            Ok(())
        } else {
            Err(format!("I6: session {session_no} of {pair:?} begins after {before}"))
        }
    }

    pub fn lose(&mut self, a: usize, b: usize) {
        self.unheard.extend([(a, b), (b, a)]);
        self.unechoed.extend([(a, b), (b, a)]);
    }
}

/// What may still happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub gives: u8,
    pub creates: u8,
    pub calls: u8,
    pub breaks: u8,
    pub resets: u8,
    pub crashes: u8,
    pub cuts: u8,
    pub blocks: u8,
    pub leaves: u8,
    pub acks: u8,
    pub inventories: u8,
}

/// The state of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub nodes: Vec<Node>,
    /// Frames that have a position and are not known to be processed, by sender and receiver.
    pub frames: BTreeMap<(usize, usize), BTreeMap<Seq, Frame>>,
    /// What is in flight, by sender and receiver; of a dead sender, what may still arrive.
    pub wire: BTreeMap<(usize, usize), VecDeque<Packet>>,
    /// HelloAcks in flight, by who dialled and who was dialled.
    pub answers: BTreeMap<(usize, usize), Position>,
    /// Pairs that cannot talk, in this direction.
    pub cut: BTreeSet<(usize, usize)>,
    /// Pairs that have not heard of each other.
    pub strangers: BTreeSet<(usize, usize)>,
    pub budget: Budget,
    pub ghost: Ghost,
    /// What went wrong.
    pub bad: Option<String>,
}

/// Assigns positions and notes the frames.
pub struct Post<'a> {
    lanes: &'a mut BTreeMap<usize, Lane<Seq>>,
    stamps: Option<BTreeMap<usize, Seq>>,
    out: Vec<(usize, Frame)>,
}

impl Post<'_> {
    pub fn send(&mut self, to: usize, content: Content) -> Stamp {
        let Some(lane) = self.lanes.get_mut(&to) else { return Stamp::ZERO };
        let next = lane.next_seq();
        let seq = lane.push(Class::Control, 0, next);
        let at = Stamp { session_no: lane.session_no(), seq };
        let (ack, settled) = match &self.stamps {
            Some(settled) => (lane.processed(), settled.get(&to).copied().unwrap_or(0)),
            None => (0, 0),
        };
        if !lane.is_ended() {
            self.out.push((to, Frame { session_no: at.session_no, seq, ack, settled, content }));
        }
        at
    }
}

impl Outbox for Post<'_> {
    fn enqueue(&mut self, to: NodeUid, control: Control) -> Stamp {
        self.send(index(to), Content::Control(control))
    }
}

impl World {
    /// Nodes that have met, with nothing said.
    pub fn new(setup: &Setup) -> World {
        let count = setup.nodes;
        let life = |i: usize| {
            let mut life = Lifetime::new(uid(i), setup.rules);
            life.set_parked_limit(setup.parked_limit);
            life
        };
        let node = |i: usize| Node {
            alive: true,
            left: false,
            resends: setup.flight,
            blocked: false,
            life: life(i),
            lanes: (0..count).filter(|j| *j != i).map(|j| (j, setup.lane())).collect(),
            leases: setup.timed.then(|| setup.leases(i)),
            now: 0,
            slept: 0,
            inbox: BTreeMap::new(),
            published: BTreeMap::new(),
            handles: Vec::new(),
            inside: Vec::new(),
            transfers: Vec::new(),
            queued: Vec::new(),
            constructing: Vec::new(),
            running: Vec::new(),
            parked: Vec::new(),
            timer: false,
        };
        World {
            nodes: (0..count).map(node).collect(),
            frames: BTreeMap::new(),
            wire: BTreeMap::new(),
            answers: BTreeMap::new(),
            cut: BTreeSet::new(),
            strangers: setup.strangers.iter().copied().collect(),
            budget: setup.budget.clone(),
            ghost: Ghost::default(),
            bad: None,
        }
    }

    pub fn fail(&mut self, why: impl Into<String>) {
        self.bad.get_or_insert(why.into());
    }

    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n = self.nodes.len();
        (0..n).flat_map(move |i| (0..n).filter(move |j| *j != i).map(move |j| (i, j)))
    }

    /// Runs something at a node, moves its frames and sees to its effects.
    pub fn at<R>(&mut self, setup: &Setup, i: usize, run: impl FnOnce(&mut Lifetime, &mut Post) -> R) -> R {
        let node = &mut self.nodes[i];
        let settled = |life: &Lifetime| {
            node.lanes.keys().map(|j| (*j, life.settled_for(uid(*j)))).collect::<BTreeMap<_, _>>()
        };
        let stamps = setup.stamps.then(|| settled(&node.life));
        let mut post = Post { lanes: &mut node.lanes, stamps, out: Vec::new() };
        let result = run(&mut node.life, &mut post);
        for (to, frame) in post.out {
            self.post(setup, i, to, frame);
        }
        for effect in self.nodes[i].life.take_effects() {
            self.effect(setup, i, effect);
        }
        if self.nodes[i].timer && !setup.batch {
            self.flush(setup, i);
        }
        result
    }

    fn post(&mut self, setup: &Setup, from: usize, to: usize, frame: Frame) {
        if !self.nodes[to].alive {
            return;
        }
        let release = matches!(frame.content, Content::Control(Control::Release(_)));
        if release && setup.duties.two_lanes {
            // A second connection with a lane of its own: nothing orders it behind the first.
            let Content::Control(Control::Release(ids)) = &frame.content else { return };
            let (ids, lane) = (ids.clone(), &mut self.nodes[to].lanes);
            if lane.contains_key(&from) {
                let result = self.nodes[to].life.on_release(uid(from), &ids);
                self.check(result.map_err(|e| e.to_string()));
                for effect in self.nodes[to].life.take_effects() {
                    self.effect(setup, to, effect);
                }
            }
            let nothing = Frame { content: Content::Message(Vec::new()), ..frame };
            self.frames.entry((from, to)).or_default().insert(nothing.seq, nothing);
            return;
        }
        self.frames.entry((from, to)).or_default().insert(frame.seq, frame);
    }

    pub fn flush(&mut self, setup: &Setup, i: usize) {
        self.nodes[i].timer = false;
        self.at(setup, i, |life, post| life.flush_all(post));
    }

    pub fn check(&mut self, result: Result<(), String>) {
        if let Err(why) = result {
            self.fail(why);
        }
    }

    fn effect(&mut self, setup: &Setup, i: usize, effect: Effect) {
        match effect {
            Effect::FlushReleases => self.nodes[i].timer = true,
            Effect::Free(id) => {
                if self.nodes[i].running.contains(&id) {
                    self.fail(format!("R12: {id} freed under a call"));
                }
                if self.ghost.begun.contains(&id) && !self.ghost.freed.insert(id) {
                    self.fail(format!("{id} freed twice"));
                }
                let inside = std::mem::take(&mut self.nodes[i].inside);
                let (lost, kept) = inside.into_iter().partition(|(host, _)| *host == id);
                self.nodes[i].inside = kept;
                let lost: Vec<(ObjectId, HandleKey)> = lost;
                for (_, key) in lost {
                    self.at(setup, i, |life, post| life.drop_handle(key, post));
                }
            }
            Effect::Broken(id, reason) => self.told_gone(i, id, &reason),
            Effect::NeverComes(id, reason) => {
                setup.hit(super::setup::Hit::NeverComes);
                self.told_gone(i, id, &reason);
                self.nodes[i].parked.retain(|parked| *parked != id);
            }
        }
    }

    /// A node learns that an object does not exist: is there an excuse?
    pub fn told_gone(&mut self, i: usize, id: ObjectId, reason: &GoneReason) {
        let owner = index(id.owner);
        let excused = !self.nodes[owner].alive
            || self.ghost.tainted.contains(&(i, id))
            || !self.ghost.begun.contains(&id)
            || matches!(reason, GoneReason::CreateFailed(_) | GoneReason::Unreachable);
        if !excused {
            self.fail(format!("I1: {i} told that {id} is {reason:?}"));
        }
    }

    /// `to` processes a frame of `from`'s.
    pub fn process(&mut self, setup: &Setup, from: usize, to: usize, frame: Frame) {
        let Frame { session_no, seq, ack, settled, content } = frame;
        let Some(lane) = self.nodes[to].lanes.get_mut(&from) else { return };
        match lane.accept(seq) {
            Ok(Accept::Process) => {}
            Ok(Accept::Duplicate) => return,
            Err(error) => return self.fail(format!("I6: {error}")),
        }
        let (peer, at) = (uid(from), Stamp { session_no: lane.session_no(), seq });
        let applied = self.ghost.apply((from, to), session_no, seq);
        self.check(applied);
        let result = match content {
            Content::Control(control) => self.control(setup, from, to, at, control),
            Content::Message(refs) => {
                self.message(setup, from, to, at, &refs);
                Ok(())
            }
            Content::Create(no) => self.create_arrives(setup, from, to, no),
            Content::Call(id, tainted) => {
                self.call_arrives(setup, to, from, id, tainted);
                Ok(())
            }
            Content::Leave => {
                if let Some(leases) = &mut self.nodes[to].leases {
                    leases.left(peer);
                }
                Ok(())
            }
        };
        if self.nodes[to].lanes.get(&from).is_some_and(Lane::is_ended) {
            return; // by what the frame said
        }
        self.check(result);
        self.at(setup, to, |life, _| life.processed(peer, at));
        let Some(lane) = self.nodes[to].lanes.get_mut(&from) else { return };
        match lane.processed_frame(seq, ack, settled, Class::Control, 0) {
            Ok(progress) => self.progress(setup, to, from, progress),
            Err(error) => self.fail(format!("I6: {error}")),
        }
    }

    /// What `to` learns of its own frames from `from`.
    pub fn progress(&mut self, setup: &Setup, to: usize, from: usize, progress: Progress) {
        let peer = uid(from);
        let session_no = self.nodes[to].lanes.get(&from).map_or(0, Lane::session_no);
        let stamp = |seq| Stamp { session_no, seq };
        self.at(setup, to, |life, post| {
            if let Some(acked) = progress.acked {
                life.on_acked(peer, stamp(acked));
            }
            if let Some(upto) = progress.settled {
                life.on_settled(peer, stamp(upto), &[], post);
            }
            if let Some(except) = progress.settled_except {
                life.on_settled(peer, stamp(except.upto), &except.exceptions, post);
            }
        });
        if let Some(oldest) =
            self.nodes[to].lanes.get(&from).map(|lane| lane.next_seq() - lane.unacked_frames() as u64)
            && let Some(frames) = self.frames.get_mut(&(to, from))
        {
            *frames = frames.split_off(&oldest);
        }
    }

    fn control(
        &mut self,
        setup: &Setup,
        from: usize,
        to: usize,
        at: Stamp,
        control: Control,
    ) -> Result<(), String> {
        let peer = uid(from);
        setup.note_control(self, to, &control);
        let release = match &control {
            Control::Release(ids) => ids.clone(),
            _ => Vec::new(),
        };
        let result = self.at(setup, to, |life, post| match control {
            Control::Claim(ids) => life.on_claim(peer, &ids, post),
            Control::Release(ids) => life.on_release(peer, &ids),
            Control::Gone(ids) => life.on_gone(peer, &ids),
            Control::InventoryBegin { next_create, seen } => {
                life.on_inventory_begin(peer, at, next_create, seen)
            }
            Control::InventoryItems(ids) => life.on_inventory_items(peer, &ids, post),
            Control::InventoryEnd => life.on_inventory_end(peer, post),
        });
        setup.note_release(self, from, to, &release);
        if let Err(ProtocolError::TooManyParked { .. }) = result {
            // Whoever claims too much loses its session, and claims again in the next one.
            setup.hit(super::setup::Hit::TooManyParked);
            self.end_session(setup, to, from);
            return Ok(());
        }
        result.map_err(|error| error.to_string())
    }

    fn message(&mut self, setup: &Setup, from: usize, to: usize, at: Stamp, refs: &[(ObjectId, bool)]) {
        for (id, tainted) in refs {
            if *tainted && !self.nodes[to].life.held().any(|held| held.id == *id && held.broken.is_none()) {
                self.ghost.tainted.insert((to, *id));
            }
        }
        let ids: Vec<ObjectId> = refs.iter().map(|(id, _)| *id).collect();
        let imported = self.at(setup, to, |life, post| life.import(&ids, uid(from), at, post));
        for (import, (_, tainted)) in imported.into_iter().zip(refs) {
            if let ImportState::Gone(reason) = &import.state
                && !tainted
            {
                self.told_gone(to, import.key.id, reason);
            }
            let node = &mut self.nodes[to];
            match setup
                .nested
                .filter(|(host, inner)| *inner == index(import.key.id.owner) && index(host.owner) == to)
            {
                Some((host, _)) if node.life.owned().any(|owned| owned.id == host) => {
                    node.inside.push((host, import.key));
                }
                _ => node.handles.push(import.key),
            }
            node.handles.sort();
        }
    }

    fn create_arrives(&mut self, setup: &Setup, from: usize, to: usize, no: u64) -> Result<(), String> {
        let id =
            self.at(setup, to, |life, _| life.on_create(uid(from), no)).map_err(|error| error.to_string())?;
        if !self.ghost.begun.insert(id) {
            self.fail(format!("{id} constructed twice"));
        }
        self.nodes[to].constructing.push(id);
        let parked = std::mem::take(&mut self.nodes[to].parked);
        for call in parked {
            if call == id {
                self.call_arrives(setup, to, to, call, false);
            } else {
                self.nodes[to].parked.push(call);
            }
        }
        Ok(())
    }

    /// A call of `from`'s arrives at the owner.
    pub fn call_arrives(&mut self, setup: &Setup, to: usize, from: usize, id: ObjectId, tainted: bool) {
        let arrival = self.at(setup, to, |life, _| life.call_arrived(id));
        match arrival {
            Arrival::Run | Arrival::Wait => self.nodes[to].running.push(id),
            Arrival::Park => {
                setup.hit(super::setup::Hit::Park);
                self.nodes[to].parked.push(id);
            }
            Arrival::Gone(_) if tainted => {}
            Arrival::Gone(reason) => self.told_gone(from, id, &reason),
            Arrival::Failed(_) => {}
            // The caller is told; nothing is counted.
            Arrival::TooMany => setup.hit(super::setup::Hit::TooManyParked),
            Arrival::NotOwner => self.fail(format!("call for {id} at {to}")),
        }
    }

    /// The lane of `i` to `j` is in a new session.
    pub fn met(&mut self, setup: &Setup, i: usize, j: usize, meeting: Meeting) {
        if let Meeting::Reset { session_no, .. } = meeting {
            setup.note_lost(self.frames.get(&(i, j)));
            self.frames.remove(&(i, j));
            self.wire.remove(&(i, j));
            let begun = self.ghost.begin((j, i), session_no);
            self.check(begun);
            // Marks of the old session mean nothing in the new one: its first frames say 0.
            let unmarked = Setup { stamps: false, ..setup.clone() };
            self.at(&unmarked, i, |life, post| life.reset(uid(j), session_no, post));
        }
        self.connection_up(setup, i, j, matches!(meeting, Meeting::Reset { .. }));
    }
}
