//! Who holds what, and when an object may be freed.
//!
//! Every node runs one [`Lifetime`]. As an owner it lists, for each of its objects, the nodes that
//! hold it; as a holder it counts, for each foreign object, the handles of its own process and the
//! frames in flight that carry one. Only the first and the last handle of a node reach the wire, as
//! [`Control::Claim`] and [`Control::Release`]; nothing here ever waits for the network.
//!
//! The rules R1 to R7 and R12 of the protocol:
//!
//! - R1: an owner lists the receiver before the frame that carries the handle is queued.
//! - R2: a node that hands on a foreign handle *pins* its own entry until the receiver has settled;
//!   the receiver claims, unless it holds the object already.
//! - R3: pins at or below the receiver's *settled* watermark fall.
//! - R4: a handle that goes to its owner needs neither pin nor claim: lane order suffices.
//! - R5: without handles and pins an entry is released; releases are batched.
//! - R6: a release is ignored if the owner introduced the object to that node again since.
//! - R7: `create_no` tells an object that is yet to come (parked) from one already freed (`Gone`).
//! - R12: a queued or running call counts as a local reference.
//!
//! What becomes of it all when nodes or sessions end:
//!
//! - [`Lifetime::fence`] (R8, R10): a *holder* is dead; its listings and the pins toward it fall;
//! - [`Lifetime::give_up`] (R13) and [`Lifetime::owner_died`]: an *owner* is out of reach, or dead; its
//!   handles break;
//! - [`Lifetime::reset`]: the session with a peer starts anew; an inventory makes both tables agree.
//!
//! When the first two may be called is decided elsewhere ([`crate::lease`]): a node that falls silent
//! keeps everything it is listed for until then.
//!
//! This module knows identities, lane positions and rules. It must not know connections, clocks,
//! frames' bytes, types of objects or locks: the caller serialises calls and moves the frames. It
//! relies on three promises of the caller: lanes are ordered and exactly-once; positions are
//! assigned by [`Outbox::enqueue`] and by the caller's own sends in one order; and a message keeps
//! its handles until [`Lifetime::introduce`] has been called for it.

mod digest;
mod fence;
mod held;
mod holder;
mod inventory;
mod owner;
mod release;
mod report;
mod reset;
mod settle;
mod table;

pub use digest::Digest;
pub use owner::Arrival;
pub use report::{HeldReport, OwnedReport, OwnedState};

pub use crate::wire::frame::GoneReason;
use crate::{NodeUid, ObjectId, Rules, Stamp};
use held::Held;
use holder::{Broken, Fence, Peer};
use owner::Owned;
use std::collections::BTreeMap;
use table::Table;

/// Releases to one owner that go into one frame; as many send a batch off at once.
pub const RELEASE_BATCH: usize = 64;

/// Claims or answers to claims that go into one frame at most.
pub const CONTROL_BATCH: usize = 1024;

/// Objects that may be expected (claimed or handed to us before their creation has arrived) unless
/// [`Lifetime::set_parked_limit`] says otherwise.
pub const PARKED_LIMIT: usize = 65_536;

/// A lifetime frame's content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// The sender holds these objects of the receiver.
    Claim(Vec<ObjectId>),
    /// The sender holds these no longer, unless the receiver introduced them after the stamp.
    Release(Vec<(ObjectId, Stamp)>),
    /// These objects of the sender do not exist.
    Gone(Vec<(ObjectId, GoneReason)>),
    /// What the sender holds of the receiver's follows: everything, as of this moment.
    InventoryBegin {
        /// The next object it will ask the receiver for: every lower number has been sent, or never
        /// will be.
        next_create: u64,
        /// The sender has seen every introduction of the receiver's up to here.
        seen: Stamp,
    },
    /// Objects that the sender holds, between begin and end.
    InventoryItems(Vec<ObjectId>),
    /// What has not been named since the begin is not held.
    InventoryEnd,
}

/// Where lifetime frames go.
pub trait Outbox {
    /// Assigns the next position in the lane to `to` at once, queues the frame there and returns
    /// the position.
    fn enqueue(&mut self, to: NodeUid, control: Control) -> Stamp;
}

/// What the caller has to do besides sending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// This object of ours is held by nobody: drop it (or what is left of a failed one).
    Free(ObjectId),
    /// The handles of this foreign object are dead: fail its calls with the reason.
    Broken(ObjectId, GoneReason),
    /// This object of ours was expected, and will not be created: fail the calls that are parked for it.
    NeverComes(ObjectId, GoneReason),
    /// Releases wait: call [`Lifetime::flush_all`] within a millisecond or so.
    FlushReleases,
}

/// Names one counted handle.
///
/// The generation keeps the handles of a broken entry apart from those of a later entry for the
/// same object. Copying a key counts nothing: [`Lifetime::clone_handle`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleKey {
    /// The object.
    pub id: ObjectId,
    /// Which entry for this object the handle belongs to.
    pub generation: u32,
}

/// One entry of a received reference table, as a counted handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Imported {
    /// The handle; it counts until dropped, also when it is gone from birth.
    pub key: HandleKey,
    /// Whether it can be used.
    pub state: ImportState,
}

/// Whether an imported handle can be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImportState {
    /// It can.
    Ok,
    /// The object does not exist, or its owner is known to be dead. No claim was sent.
    Gone(GoneReason),
}

/// A peer broke the protocol: the session with it cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProtocolError {
    /// Creations must be numbered without gaps or repetition.
    #[error("creation number {got} arrived from {from}, expected {expected}")]
    CreateOutOfOrder {
        /// The creator.
        from: NodeUid,
        /// The next number in order.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// A claim or release names an object that is not this node's.
    #[error("{from} claims or releases {id} here, which is another node's")]
    NotOurs {
        /// The sender.
        from: NodeUid,
        /// The object.
        id: ObjectId,
    },
    /// A node spoke as the owner of an object that is not its own.
    #[error("{from} reports {id} gone, which is another node's")]
    NotTheirs {
        /// The sender.
        from: NodeUid,
        /// The object.
        id: ObjectId,
    },
    /// The parts of an inventory must come in order.
    #[error("{from} sends {what} where it has no place")]
    InventoryOutOfOrder {
        /// The sender.
        from: NodeUid,
        /// What it sent.
        what: &'static str,
    },
    /// Too many claims for objects whose creation has not arrived.
    #[error("{from} claims {id} before its creation, and {limit} such objects are parked already")]
    TooManyParked {
        /// The sender.
        from: NodeUid,
        /// The object.
        id: ObjectId,
        /// The limit in force, in objects.
        limit: usize,
    },
}

/// The lifetime state of one node; see the module's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime {
    me: NodeUid,
    rules: Rules,
    parked_limit: usize,
    /// Own objects, and those expected to become so.
    owned: Table<Owned>,
    /// The highest `create_no` that has arrived, by creator.
    created_upto: BTreeMap<NodeUid, u64>,
    /// Entries of `owned` in state `Expected`.
    expected: usize,
    /// Foreign objects we hold or pin.
    held: Table<Held>,
    /// Handles whose entry is dead, by object and generation.
    broken: BTreeMap<(ObjectId, u32), Broken>,
    /// What is known about the other ends of our lanes.
    peers: BTreeMap<NodeUid, Peer>,
    /// Whether `Effect::FlushReleases` is out and not yet answered by `flush_all`.
    timer_armed: bool,
    effects: Vec<Effect>,
}

impl Lifetime {
    /// Empty tables for the node `me`. Production passes [`Rules::ALL`].
    pub fn new(me: NodeUid, rules: Rules) -> Self {
        Lifetime {
            me,
            rules,
            parked_limit: PARKED_LIMIT,
            owned: Table::default(),
            created_upto: BTreeMap::new(),
            expected: 0,
            held: Table::default(),
            broken: BTreeMap::new(),
            peers: BTreeMap::new(),
            timer_armed: false,
            effects: Vec::new(),
        }
    }

    /// Bounds the number of objects that may be expected at a time.
    pub fn set_parked_limit(&mut self, objects: usize) {
        self.parked_limit = objects;
    }

    /// The node these tables belong to.
    pub fn me(&self) -> NodeUid {
        self.me
    }

    /// What there is to do, oldest first; the list is empty afterwards.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Numbers a new object at `owner` and counts one handle of it.
    ///
    /// At another node the number is spent: its Create must be sent, in the order of the numbers,
    /// and [`Lifetime::create_sent`] called for it. At this node construction starts, and ends with
    /// [`Lifetime::created`] or [`Lifetime::create_failed`]. If the owner is known to be dead, the
    /// handle is broken from birth, no Create is due, and an [`Effect::Broken`] says so.
    pub fn create(&mut self, owner: NodeUid) -> HandleKey {
        let create_no = {
            let peer = self.peer(owner);
            peer.creates += 1;
            peer.creates
        };
        let id = ObjectId { owner, creator: self.me, create_no };
        if owner == self.me {
            self.create_own(id);
            HandleKey { id, generation: 0 }
        } else {
            self.create_foreign(id)
        }
    }

    /// Counts one more handle. A key that counts nothing is ignored.
    pub fn clone_handle(&mut self, key: HandleKey) {
        if self.is_own_entry(key) {
            self.add_local(key.id);
        } else if let Some(handles) = self.foreign_handles(key) {
            handles.add_one();
        }
    }

    /// Counts one handle less; the last one frees, releases or forgets the entry (R5). A key that
    /// counts nothing is ignored.
    pub fn drop_handle(&mut self, key: HandleKey, out: &mut impl Outbox) {
        if self.is_own_entry(key) {
            self.drop_local(key.id);
            return;
        }
        let Some(handles) = self.foreign_handles(key) else { return };
        handles.take_one();
        if !handles.is_zero() {
            return;
        }
        let released = match self.broken.remove(&(key.id, key.generation)) {
            Some(_) if self.rules.broken_releases_nothing => false,
            Some(_) => {
                self.note_release(key.id);
                true
            }
            None => self.release_if_unused(key.id),
        };
        if released {
            self.flush_if_full(key.id.owner, out);
        }
    }

    /// A frame with these handles has been given position `at` in the lane to `to` (R1, R2, R4).
    ///
    /// To be called between the assignment of the position and the drop of the frame's own handles.
    ///
    /// Nothing is noted for a receiver that is fenced: the frame is lost with its session.
    pub fn introduce(&mut self, refs: &[ObjectId], to: NodeUid, at: Stamp) {
        if self.rules.list_no_fenced && self.peers.get(&to).is_some_and(|peer| peer.fence == Fence::Fenced) {
            return;
        }
        for id in refs {
            if id.owner == self.me {
                self.list(*id, to, at);
            } else if id.owner != to {
                self.pin(*id, to, at);
            }
        }
    }

    /// A frame with these handles has arrived from `from` at position `at`: one counted handle for
    /// each entry, in order.
    ///
    /// All handles of a frame must come in one call: from then on a release may tell the owner that
    /// everything it introduced up to `at` has been seen.
    pub fn import(
        &mut self,
        refs: &[ObjectId],
        from: NodeUid,
        at: Stamp,
        out: &mut impl Outbox,
    ) -> Vec<Imported> {
        let peer = self.peer(from);
        peer.seen = peer.seen.max(at);
        self.claim_new(refs, from, out);
        refs.iter()
            .map(
                |id| {
                    if id.owner == self.me {
                        self.import_own(*id)
                    } else {
                        self.import_foreign(*id, from, at)
                    }
                },
            )
            .collect()
    }

    /// Own entries have generation 0; own handles that were gone from birth have others.
    fn is_own_entry(&self, key: HandleKey) -> bool {
        key.id.owner == self.me && key.generation == 0
    }

    fn peer(&mut self, node: NodeUid) -> &mut Peer {
        self.peers.entry(node).or_default()
    }
}
