//! All state of a node, behind one lock that is held briefly and never across an await.
//!
//! No user code runs under the lock: what may run some (dropping a handle, waking a caller, a
//! handler) is put off with [`State::after`] until the lock is released.

use super::NodeClock;
use super::builder::Config;
use super::builder::SendQueue;
use super::calls::{ByNumber, PendingCall};
use super::events::{NodeEvent, Watcher};
use super::home::{self, Home};
use super::keeper::KeeperHandle;
use super::objects::{Entry, Waiter};
use super::outgoing::Message;
use super::peer::{Link, Peer};
use super::streams::Inlet;
use crate::error::{Error, Gone, Result};
use crate::payload::Outgoing;
use crate::reference::any::AnyRef;
use rref_core::lease::{Leases, Reader};
use rref_core::lifetime::{Control, Effect, Lifetime, Outbox};
use rref_core::session::{AckDue, Class, Credit, LaneLimits};
use rref_core::wire::{Frame, GoneReason, Limits, encode};
use rref_core::{NodeUid, ObjectId, Rules, Stamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;

/// How far a node's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// It takes no new calls of its own and finishes what it has.
    Draining,
    Closed,
}

type After = Box<dyn FnOnce() + Send>;

/// All state of one node.
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) lifetime: Lifetime,
    pub(crate) peers: BTreeMap<NodeUid, Peer>,
    pub(crate) by_name: HashMap<String, NodeUid>,
    pub(crate) objects: HashMap<ObjectId, Entry>,
    /// Calls for objects whose creation has not arrived.
    pub(crate) parked: BTreeMap<ObjectId, Vec<Waiter>>,
    /// Who is told when an object of this node ends.
    pub(crate) watchers: HashMap<ObjectId, Vec<Watcher>>,
    /// Who is told of other nodes.
    pub(crate) subscribers: Vec<mpsc::Sender<NodeEvent>>,
    /// References that are kept under a name.
    pub(crate) directory: BTreeMap<String, AnyRef>,
    pub(crate) calls: HashMap<u64, PendingCall, ByNumber>,
    /// Streams of other nodes that are read here.
    pub(crate) inlets: BTreeMap<u64, Inlet>,
    pub(crate) next_call: u64,
    /// What each peer may have under way here at a time.
    pub(crate) credit: Credit,
    pub(crate) lane_limits: LaneLimits,
    /// The rules that lanes follow.
    pub(crate) rules: Rules,
    /// Who is silent for how long, and what follows from it.
    pub(crate) leases: Leases,
    /// The thread that sends heartbeats.
    pub(crate) keeper: KeeperHandle,
    /// Connections that are to say that they have nothing unread, with what each had received when it was asked.
    pub(crate) to_drain: BTreeMap<NodeUid, u64>,
    /// Whether there are any; read without the lock.
    pub(crate) draining: Arc<AtomicBool>,
    /// Whether the sockets are about to be looked at for that.
    pub(crate) looking: bool,
    /// Whether other nodes can dial this one.
    pub(crate) listens: bool,
    /// How often the tables of two nodes were found to differ.
    pub(crate) divergences: u64,
    clock: NodeClock,
    /// Peers that want a connection.
    pub(crate) to_dial: Vec<NodeUid>,
    /// Peers with far more to resend than there is room for; their sessions end when the lock is released.
    pub(crate) flooded: Vec<NodeUid>,
    after: Vec<After>,
    home: Arc<Home>,
}

impl State {
    /// The state of a node that has just started.
    pub(crate) fn new(
        name: String,
        lifetime: Lifetime,
        config: &Config,
        clock: NodeClock,
        home: Arc<Home>,
    ) -> State {
        let rules = config.rules;
        let leases = Leases::new(lifetime.me(), rules, config.leases, Duration::ZERO);
        State {
            name,
            phase: Phase::Running,
            lifetime,
            peers: BTreeMap::new(),
            by_name: HashMap::new(),
            objects: HashMap::new(),
            parked: BTreeMap::new(),
            watchers: HashMap::new(),
            subscribers: Vec::new(),
            directory: BTreeMap::new(),
            calls: HashMap::default(),
            inlets: BTreeMap::new(),
            next_call: 1,
            credit: config.credit,
            lane_limits: LaneLimits { resend_limit: config.resend_buffer, ..LaneLimits::default() },
            rules,
            leases,
            keeper: KeeperHandle::default(),
            to_drain: BTreeMap::new(),
            draining: Arc::default(),
            looking: false,
            listens: config.listen.is_some() || config.advertise.is_some(),
            divergences: 0,
            clock,
            to_dial: Vec::new(),
            flooded: Vec::new(),
            after: Vec::new(),
            home,
        }
    }

    /// Runs `task` once the lock is released, after what was put off before.
    pub(crate) fn after(&mut self, task: impl FnOnce() + Send + 'static) {
        self.after.push(Box::new(task));
    }

    /// Drops `value` once the lock is released.
    pub(crate) fn later<T: Send + 'static>(&mut self, value: T) {
        if std::mem::needs_drop::<T>() {
            self.after(move || drop(value));
        }
    }

    /// Time since the node has started.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The connection to `uid` is to say that it has nothing unread.
    pub(crate) fn want_drained(&mut self, uid: NodeUid) {
        let received = self.peers.get(&uid).map_or(0, |peer| peer.bytes_received);
        self.to_drain.entry(uid).or_insert(received);
        self.draining.store(true, Ordering::Release);
    }

    /// It says so. Returns whether somebody wanted to know.
    pub(crate) fn was_drained(&mut self, uid: NodeUid) -> bool {
        let wanted = self.to_drain.remove(&uid).is_some();
        self.draining.store(!self.to_drain.is_empty(), Ordering::Release);
        wanted
    }

    /// Starts the batch timer for a release or a claim, unless it runs.
    pub(crate) fn arm(&self) {
        self.home.arm();
    }

    /// Starts the batch timer for what is not urgent, unless it runs.
    pub(crate) fn arm_later(&self) {
        self.home.arm_later();
    }

    /// The batch timer has run out: sends the releases and acknowledgements that found no company.
    pub(crate) fn batch_over(&mut self) {
        self.lifetime.flush_all(&mut Lanes { peers: &mut self.peers });
        let uids: Vec<NodeUid> = self.peers.keys().copied().collect();
        for uid in uids {
            self.update_settled(uid);
            if let Some(peer) = self.peers.get_mut(&uid)
                && (peer.lane.ack_due() != AckDue::No || peer.lane.unacked_frames() > 0)
            {
                peer.ack_now = true;
                self.wake(uid);
            }
        }
    }

    /// Somebody should send what is queued for `to`: its connection, or one that is to be made.
    pub(crate) fn wake(&mut self, to: NodeUid) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.is_flooded() {
            self.flooded.push(to);
        }
        match peer.link {
            Link::Connected(_) => {
                if let Some(waker) = peer.waker.take() {
                    waker.wake();
                }
            }
            Link::Idle => {
                peer.link = Link::Dialing { greeted: false };
                self.to_dial.push(to);
            }
            Link::Dialing { .. } | Link::Unreachable(_) | Link::Dead(_) => {}
        }
    }

    /// The uid of a node that is known by name.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`], [`Error::OwnerDied`], [`Error::Unreachable`], [`Error::ShuttingDown`].
    pub(crate) fn find(&self, name: &str) -> Result<NodeUid> {
        let uid = *self
            .by_name
            .get(name)
            .ok_or_else(|| Error::UnknownPeer { peer: name.to_string(), node: self.name.clone() })?;
        self.check(uid)?;
        Ok(uid)
    }

    /// Whether calls to `uid` have a chance.
    pub(crate) fn check(&self, uid: NodeUid) -> Result<()> {
        if self.phase != Phase::Running {
            return Err(Error::ShuttingDown { node: self.name.clone() });
        }
        let Some(peer) = self.peers.get(&uid) else {
            let reason = "its address has not been told".to_string();
            return Err(Error::Unreachable { peer: uid.to_string(), reason });
        };
        let name = || peer.info.name.clone();
        match (&peer.link, &peer.silent) {
            (Link::Dead(reason), _) => Err(Error::OwnerDied { owner: name(), reason: reason.clone() }),
            (Link::Unreachable(reason), _) | (_, Some(reason)) => {
                Err(Error::Unreachable { peer: name(), reason: reason.clone() })
            }
            _ if self.lifetime.is_given_up(uid) => {
                let reason = "it has been given up, and has not returned yet".to_string();
                Err(Error::Unreachable { peer: name(), reason })
            }
            _ => Ok(()),
        }
    }

    /// Whether the handle that a message is addressed to is alive.
    ///
    /// # Errors
    /// Why it is not: the object may still be there, but this handle keeps nothing any more.
    pub(crate) fn check_target(&self, payload: &Outgoing) -> Result<()> {
        let dead = payload.target.as_ref().and_then(|handle| self.lifetime.broken_reason(handle.key()));
        dead.map_or(Ok(()), |reason| Err(Error::from(reason.clone())))
    }

    /// Whether there is room for one more message that nobody waits for.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn check_queue(&self, to: NodeUid, room: &SendQueue) -> Result<()> {
        let Some(peer) = self.peers.get(&to) else { return Ok(()) };
        let (messages, bytes) = (peer.outbound.len(), peer.outbound.bytes());
        if messages < room.messages && bytes < room.bytes {
            return Ok(());
        }
        let name = &peer.info.name;
        let reason = format!(
            "{messages} messages ({bytes} bytes) wait until `{name}` takes them; send slower, or await `send`"
        );
        Err(Error::Overloaded { node: self.name.clone(), reason })
    }

    /// The name of a node, or its uid while the name is not known.
    pub(crate) fn name_of(&self, uid: NodeUid) -> String {
        if uid == self.lifetime.me() {
            return self.name.clone();
        }
        self.peers.get(&uid).map_or_else(|| uid.to_string(), |peer| peer.info.name.clone())
    }

    /// A call or cast of `caller`'s, with so many bytes, has ended here.
    pub(crate) fn call_done(&mut self, caller: NodeUid, call_id: u64, bytes: u64) {
        if let Some(peer) = self.peers.get_mut(&caller) {
            peer.running.remove(&call_id);
            peer.outlets.remove(&call_id);
        }
        self.return_credit(caller, bytes);
    }

    /// A creation that came with so many bytes has ended here.
    pub(crate) fn creation_done(&mut self, creator: Option<(NodeUid, u64)>) {
        if let Some((creator, bytes)) = creator {
            self.return_credit(creator, bytes);
        }
    }

    fn return_credit(&mut self, to: NodeUid, bytes: u64) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.grant.done(bytes);
        if let Some(Credit { calls, bytes }) = peer.grant.update()
            && peer.push(Class::Control, &Frame::Credit { calls, bytes }).is_ok()
        {
            self.wake(to);
        }
    }

    /// `uid` is out of reach: all calls to it fail, those that may reach it as unknown.
    pub(crate) fn suspend_calls(&mut self, uid: NodeUid, reason: &str) {
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        let name = peer.info.name.clone();
        let unsent = peer.outbound.cancel(|message| message.call_id().is_some());
        let withdrawn: HashSet<u64> = unsent.iter().filter_map(Message::call_id).collect();
        self.later(unsent);
        self.cancel_sent(uid, &withdrawn);
        self.fail_inlets(uid, &Error::OutcomeUnknown { peer: name.clone(), reason: reason.to_string() });
        self.end_calls(uid, |id, call| Some(call.suspended(&name, reason, withdrawn.contains(&id))));
    }

    /// Tells `uid`, should it return, that nobody waits for its answers any more: streams and watches would go on
    /// there for ever.
    fn cancel_sent(&mut self, uid: NodeUid, withdrawn: &HashSet<u64>) {
        let calls = self.calls.iter().filter(|(_, call)| call.owner == uid).map(|(id, _)| *id);
        let inlets = self.inlets.iter().filter(|(_, inlet)| inlet.owner == uid).map(|(id, _)| *id);
        let mut sent: Vec<u64> = calls.chain(inlets).filter(|id| !withdrawn.contains(id)).collect();
        sent.sort_unstable();
        let Some(peer) = self.peers.get_mut(&uid).filter(|peer| peer.takes_messages()) else { return };
        for call_id in sent {
            // One that cannot be encoded is not known there.
            let _ = peer.push(Class::Control, &Frame::Cancel { call_id });
        }
        self.wake(uid);
    }

    /// Takes those calls to `uid` off the table for which `why` finds an error, and gives it to them.
    pub(crate) fn end_calls(&mut self, uid: NodeUid, why: impl Fn(u64, &PendingCall) -> Option<Error>) {
        let to_uid = self.calls.iter().filter(|(_, call)| call.owner == uid);
        let mut lost: Vec<(u64, Error)> =
            to_uid.filter_map(|(id, call)| Some((*id, why(*id, call)?))).collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        for (id, error) in lost {
            if let Some(call) = self.calls.remove(&id) {
                self.after(move || drop(call.reply.send(Err(error))));
            }
        }
    }

    /// `uid` is gone for good: its objects are lost, and nothing more is sent to it.
    ///
    /// Memory that it holds here is not freed by this: it may only be the way to it that is lost.
    pub(crate) fn peer_died(&mut self, uid: NodeUid, reason: String) {
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        let (name, transmitted) = (peer.info.name.clone(), peer.lane.transmitted());
        self.fail_inlets(uid, &Error::OutcomeUnknown { peer: name.clone(), reason: reason.clone() });
        self.end_calls(uid, |_, call| Some(call.lost(&name, &reason, transmitted)));
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        if matches!(peer.link, Link::Dead(_)) {
            return;
        }
        peer.link = Link::Dead(reason.clone());
        peer.silent = None;
        peer.lane.end_session();
        let waker = peer.waker.take();
        let unsent = peer.outbound.drain();
        peer.assembly.clear();
        peer.running.values().for_each(|cancel| cancel.store(true, Ordering::Release));
        self.later(unsent);
        self.cancel_outlets(uid);
        self.after(move || waker.into_iter().for_each(|waker| waker.wake()));
        self.leases.reader_closed(Reader::Lane(uid));
        self.announce(NodeEvent::PeerDown { name: name.clone(), uid, reason: reason.clone() });
        self.lifetime.owner_died(uid, GoneReason::Died(reason));
        self.fail_parked(uid);
        if self.phase == Phase::Running {
            self.inherit_name(&name);
        }
        // What it owned settles now, and those who handed it to us want to know.
        self.arm();
    }

    /// The peer broke the protocol, or this node cannot go on with it: the session ends.
    pub(crate) fn fail_session(&mut self, uid: NodeUid, reason: String) {
        if let Some(peer) = self.peers.get(&uid) {
            let peer = Peer::describe(&peer.info);
            tracing::error!("closing the session with {peer}: {reason}; its calls fail, others go on");
        }
        self.peer_died(uid, reason);
    }
}

/// Where the lifetime tables put their frames: straight into the lanes.
pub(crate) struct Lanes<'a> {
    pub(crate) peers: &'a mut BTreeMap<NodeUid, Peer>,
}

impl Outbox for Lanes<'_> {
    fn enqueue(&mut self, to: NodeUid, control: Control) -> Stamp {
        let Some(peer) = self.peers.get_mut(&to) else {
            // An owner nobody has told us of: nothing said to it can arrive.
            return Stamp::ZERO;
        };
        let frame = match control {
            Control::Claim(objects) => Frame::Claim(objects),
            Control::Release(objects) => Frame::Release(objects),
            Control::Gone(objects) => Frame::Gone(objects),
            Control::InventoryBegin { next_create, seen } => Frame::InventoryBegin { next_create, seen },
            Control::InventoryItems(objects) => Frame::InventoryItems(objects),
            Control::InventoryEnd => Frame::InventoryEnd,
        };
        let at = Stamp { session_no: peer.lane.session_no(), seq: peer.lane.next_seq() };
        if !peer.takes_messages() {
            return at;
        }
        match encode(at.seq, peer.lane.processed(), peer.settled, &frame, &Limits::DEFAULT) {
            Ok(encoded) => {
                let weight = encoded.len();
                peer.lane.push(Class::Control, weight, encoded);
                peer.lane.ack_stamped();
            }
            // Cannot happen for frames of this size; the lane then misses nothing.
            Err(error) => tracing::error!("cannot encode a lifetime frame: {error}"),
        }
        at
    }
}

/// The state while it is locked. Unlocking does what was put off.
pub(crate) struct Locked<'a> {
    /// Absent only while it is dropped.
    guard: Option<MutexGuard<'a, State>>,
    node: &'a super::Node,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(guard: MutexGuard<'a, State>, node: &'a super::Node) -> Locked<'a> {
        Locked { guard: Some(guard), node }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is taken only by drop"),
        }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is taken only by drop"),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.guard.take() else { return };
        for effect in state.lifetime.take_effects() {
            match effect {
                Effect::Free(id) => {
                    state.object_gone(id, &Error::Gone(Gone::Freed));
                    let entry = state.objects.remove(&id);
                    state.later(entry);
                }
                // The owner answers each call itself; when it is lost they are failed together.
                Effect::Broken(..) => {}
                Effect::NeverComes(id, reason) => state.never_comes(id, reason),
                Effect::FlushReleases => state.home.arm(),
            }
        }
        // Not sooner: frames of that very session may have been in hand.
        for uid in std::mem::take(&mut state.flooded) {
            state.end_overfull(uid);
        }
        let after = std::mem::take(&mut state.after);
        let to_dial = std::mem::take(&mut state.to_dial);
        drop(state);
        for uid in to_dial {
            self.node.dial_soon(uid);
        }
        for task in after {
            home::contained(task);
        }
    }
}
