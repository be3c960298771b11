//! One entry of the holder's table, small while it rests.
//!
//! Of a million references nearly all rest: confirmed by their owner, and not on their way to anybody. Such an
//! entry is two counts; whatever else there may be to know about one is in a box of its own.

use super::table::NodeStamps;
use crate::{NodeUid, Stamp};

/// What the owner knows of us as a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Standing {
    /// We create the object, and the Create has no position yet.
    Queued,
    /// Our claim, or our Create, is under way at this position.
    Awaiting(Stamp),
    /// It lists us.
    Confirmed,
}

/// An entry that is present: handles or pins, or a Create yet to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) handles: Count,
    pub(super) generation: u32,
    /// None exactly while it rests, so that equal entries compare equal.
    unrest: Option<Box<Unrest>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unrest {
    standing: Standing,
    /// Frames in flight that carry the object: the last one's position, by receiver. One position is
    /// enough, as receivers settle in order.
    pins: NodeStamps,
}

/// A number of handles. It stays at its end, should it ever get there: an object is then kept for ever, rather
/// than freed too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Count(u32);

impl Count {
    pub(super) const ONE: Count = Count(1);

    pub(super) fn get(self) -> u64 {
        u64::from(self.0)
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub(super) fn add_one(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    pub(super) fn take_one(&mut self) {
        if self.0 < u32::MAX {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

impl Held {
    /// An entry without handles.
    pub(super) fn new(generation: u32, standing: Standing) -> Held {
        let mut held = Held { handles: Count::default(), generation, unrest: None };
        held.set_standing(standing);
        held
    }

    pub(super) fn standing(&self) -> Standing {
        self.unrest.as_ref().map_or(Standing::Confirmed, |unrest| unrest.standing)
    }

    pub(super) fn set_standing(&mut self, standing: Standing) {
        self.change(|unrest| unrest.standing = standing);
    }

    pub(super) fn pins(&self) -> impl Iterator<Item = (NodeUid, Stamp)> {
        self.unrest.iter().flat_map(|unrest| unrest.pins.iter())
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.unrest.as_ref().is_some_and(|unrest| !unrest.pins.is_empty())
    }

    /// Returns the receiver's pin before.
    pub(super) fn pin(&mut self, receiver: NodeUid, at: Stamp) -> Option<Stamp> {
        self.change(|unrest| unrest.pins.set(receiver, at))
    }

    pub(super) fn unpin(&mut self, receiver: NodeUid) {
        if self.is_pinned() {
            self.change(|unrest| unrest.pins.remove(receiver));
        }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut Unrest) -> R) -> R {
        let rest = || Box::new(Unrest { standing: Standing::Confirmed, pins: NodeStamps::Empty });
        let unrest = self.unrest.get_or_insert_with(rest);
        let result = change(unrest);
        if unrest.standing == Standing::Confirmed && unrest.pins.is_empty() {
            self.unrest = None;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_small() {
        // B-tree leaves are little more than half full after appends: 24 bytes, with the key, make about 44.
        assert!(size_of::<Held>() <= 16, "{}", size_of::<Held>());
    }

    #[test]
    fn an_entry_at_rest_is_like_any_other() {
        let at = Stamp { session_no: 1, seq: 7 };
        let mut held = Held::new(0, Standing::Awaiting(at));
        assert_eq!((held.standing(), held.is_pinned()), (Standing::Awaiting(at), false));
        assert_eq!(held.pin(NodeUid(3), at), None);
        held.set_standing(Standing::Confirmed);
        assert_eq!(held.pins().collect::<Vec<_>>(), [(NodeUid(3), at)]);
        held.unpin(NodeUid(3));
        held.unpin(NodeUid(4));
        assert_eq!(held, Held::new(0, Standing::Confirmed));
    }

    #[test]
    fn a_count_stays_at_its_end() {
        let mut count = Count(u32::MAX - 1);
        count.add_one();
        count.add_one();
        count.take_one();
        assert_eq!(count.get(), u64::from(u32::MAX));
        let mut count = Count::ONE;
        count.take_one();
        count.take_one();
        assert!(count.is_zero());
    }
}
