//! A digest of what a node is listed for, and of what it holds: equal if both tables agree.
//!
//! Kept up to date with every change, so that asking costs nothing however many objects there are.

use super::Lifetime;
use crate::{NodeUid, ObjectId, Stamp};

/// Number and combined hash of a set of objects.
///
/// Independent of order. Not meant to withstand a peer that lies: it guards against bugs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest {
    /// How many there are.
    pub count: u64,
    /// The sum of their hashes.
    pub hash: u64,
}

impl Digest {
    pub(super) fn add(&mut self, id: &ObjectId) {
        self.count = self.count.wrapping_add(1);
        self.hash = self.hash.wrapping_add(hash(id));
    }

    pub(super) fn remove(&mut self, id: &ObjectId) {
        self.count = self.count.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(hash(id));
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014), over all parts of the identity.
fn hash(id: &ObjectId) -> u64 {
    let parts =
        [id.owner.0 as u64, (id.owner.0 >> 64) as u64, id.creator.0 as u64, (id.creator.0 >> 64) as u64];
    parts.into_iter().fold(id.create_no, |hash, part| {
        let mut z = (hash ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

impl Lifetime {
    /// What `holder` is listed for here, for our heartbeats to it.
    pub fn listed_for(&self, holder: NodeUid) -> Digest {
        self.peers.get(&holder).map_or(Digest::default(), |peer| peer.listed)
    }

    /// What we hold of `owner`'s and have told it, if that can be compared with a digest of its that
    /// knows our lane up to `acked` and its own up to `at`; none if anything is under way either way.
    pub fn holding_of(&self, owner: NodeUid, acked: Stamp, at: Stamp) -> Option<Digest> {
        let Some(peer) = self.peers.get(&owner) else { return Some(Digest::default()) };
        // The owner may have handed us what we have not yet asked it for.
        let created = peer.creates_sent == peer.creates;
        let told = created && peer.processed == at && peer.said <= acked && peer.releases.is_empty();
        (told || !self.rules.compare_at_position).then_some(peer.holding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_of_order_and_empty_again() {
        let id = |create_no| ObjectId { owner: NodeUid(1 << 70), creator: NodeUid(2), create_no };
        let (mut a, mut b) = (Digest::default(), Digest::default());
        (1..5).for_each(|no| a.add(&id(no)));
        (1..5).rev().for_each(|no| b.add(&id(no)));
        assert_eq!(a, b);
        b.remove(&id(2));
        b.add(&id(6));
        assert_ne!(a, b);
        [1, 3, 4, 6].iter().for_each(|no| b.remove(&id(*no)));
        assert_eq!(b, Digest::default());
    }
}
