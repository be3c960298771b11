//! What the tables hold, for people and for tests. Changes nothing.

use super::held::Standing;
use super::{GoneReason, HandleKey, Lifetime};
use crate::{NodeUid, ObjectId, Stamp};

/// How far an object of this node has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedState {
    /// Claimed or handed to us before its creation has arrived.
    Expected,
    /// Under construction.
    Pending,
    /// There.
    Live,
    /// Failed or stopped, kept while somebody holds it.
    Failed(GoneReason),
}

/// One object of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnedReport {
    /// The object.
    pub id: ObjectId,
    /// How far it has come.
    pub state: OwnedState,
    /// The nodes that hold it, in order.
    pub holders: Vec<NodeUid>,
    /// Handles in this process.
    pub local: u64,
    /// Calls queued or running.
    pub calls: u64,
}

/// One entry for a foreign object, or for handles that are dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldReport {
    /// The object.
    pub id: ObjectId,
    /// Which entry for the object it is.
    pub generation: u32,
    /// Handles in this process.
    pub handles: u64,
    /// Who has been sent the object and has not settled, with the last frame's position.
    pub pins: Vec<(NodeUid, Stamp)>,
    /// Whether the owner is known to list us.
    pub confirmed: bool,
    /// Whether our Create of it has no position yet.
    pub queued: bool,
    /// Why the handles are dead, if they are.
    pub broken: Option<GoneReason>,
}

impl Lifetime {
    /// Objects of this node, expected ones included, in order of identity.
    pub fn owned(&self) -> impl Iterator<Item = OwnedReport> {
        self.owned.iter().map(|(id, entry)| OwnedReport {
            id,
            state: entry.report_state(),
            holders: entry.holders.iter().map(|(node, _)| node).collect(),
            local: entry.local,
            calls: entry.calls,
        })
    }

    /// Foreign objects this node holds, in order of identity, then the dead handles.
    pub fn held(&self) -> impl Iterator<Item = HeldReport> {
        let held = self.held.iter().map(|(id, entry)| HeldReport {
            id,
            generation: entry.generation,
            handles: entry.handles.get(),
            pins: entry.pins().collect(),
            confirmed: entry.standing() == Standing::Confirmed,
            queued: entry.standing() == Standing::Queued,
            broken: None,
        });
        let broken = self.broken.iter().map(|(&(id, generation), entry)| HeldReport {
            id,
            generation,
            handles: entry.handles.get(),
            pins: Vec::new(),
            confirmed: false,
            queued: false,
            broken: Some(entry.reason.clone()),
        });
        held.chain(broken)
    }

    /// Number of own objects, expected ones included. Not constant time, nor are the counts below.
    pub fn owned_count(&self) -> usize {
        self.owned.len()
    }

    /// Number of foreign objects held, dead handles not counted.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Number of entries of dead handles.
    pub fn broken_count(&self) -> usize {
        self.broken.len()
    }

    /// Own objects that were spoken of before their creation arrived.
    pub fn parked_count(&self) -> usize {
        self.expected
    }

    /// Pins: (object, receiver) pairs not settled.
    pub fn pin_count(&self) -> usize {
        self.peers.values().flat_map(|peer| peer.pins.values()).map(|pins| pins.len()).sum()
    }

    /// Releases not sent yet.
    pub fn pending_releases(&self) -> usize {
        self.peers.values().map(|peer| peer.releases.len()).sum()
    }

    /// Why this handle is dead, if it is: the reason its calls get.
    pub fn broken_reason(&self, key: HandleKey) -> Option<&GoneReason> {
        self.broken.get(&(key.id, key.generation)).map(|entry| &entry.reason)
    }

    /// Whether nothing is owned, held, pinned, under way or unsettled.
    pub fn is_clean(&self) -> bool {
        self.owned.is_empty()
            && self.held.is_empty()
            && self.broken.is_empty()
            && self.peers.values().all(|peer| {
                peer.waiting.is_empty()
                    && peer.queued.is_empty()
                    && peer.releases.is_empty()
                    && peer.unsettled.is_empty()
                    && peer.pins.is_empty()
            })
    }
}
