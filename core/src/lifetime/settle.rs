//! Watermarks: which claims are acknowledged, and which introductions are settled (R2, R3).
//!
//! Knows positions only. Which session a position belongs to, and whether an ack may count yet, is
//! the session's business: it hands acks and settled marks on when they hold
//! ([`crate::Rules::ack_waits_for_position`] is its switch).

use super::held::Standing;
use super::holder::{Introduction, Peer};
use super::{Lifetime, Outbox};
use crate::{NodeUid, ObjectId, Seq, Stamp};
use std::collections::BTreeSet;

impl Lifetime {
    /// A frame of `peer` has been processed, at position `at`, with all its consequences.
    pub fn processed(&mut self, peer: NodeUid, at: Stamp) {
        let peer = self.peer(peer);
        peer.processed = peer.processed.max(at);
        peer.seen = peer.seen.max(at);
    }

    /// The peer has processed everything of ours up to `at`: claims up to there are confirmed, and
    /// the introductions that waited for them settle. Costs as much as is newly confirmed.
    pub fn on_acked(&mut self, peer: NodeUid, at: Stamp) {
        while let Some(((claimed, id), introductions)) = self.pop_waiting(peer, at) {
            if let Some(held) = self.held.get_mut(&id)
                && held.standing() == Standing::Awaiting(claimed)
            {
                held.set_standing(Standing::Confirmed);
            }
            for introduction in introductions {
                self.settle(introduction, peer);
            }
        }
    }

    /// The position of our last claim or Create to `owner` that is not acknowledged; zero if none is.
    pub fn last_claim(&self, owner: NodeUid) -> Stamp {
        let last = self.peers.get(&owner).and_then(|peer| peer.waiting.last_key_value());
        last.map_or(Stamp::ZERO, |((at, _), _)| *at)
    }

    /// Whether all our claims and Creates to `owner` up to this position are acknowledged.
    pub fn is_claim_acked(&self, owner: NodeUid, upto: Stamp) -> bool {
        let first = self.peers.get(&owner).and_then(|peer| peer.waiting.first_key_value());
        first.is_none_or(|((at, _), _)| *at > upto)
    }

    fn pop_waiting(&mut self, peer: NodeUid, at: Stamp) -> Option<((Stamp, ObjectId), Vec<Introduction>)> {
        let waiting = &mut self.peers.get_mut(&peer)?.waiting;
        let first = waiting.first_entry()?;
        (first.key().0 <= at).then(|| first.remove_entry())
    }

    /// The peer has settled every introduction of ours up to `at`, but for objects of the owners in
    /// `exceptions`: pins up to there fall (R3). Costs as much as newly falls.
    pub fn on_settled(&mut self, peer: NodeUid, at: Stamp, exceptions: &[NodeUid], out: &mut impl Outbox) {
        let Some(Peer { pins, .. }) = self.peers.get(&peer) else { return };
        if pins.is_empty() {
            return;
        }
        let exceptions: BTreeSet<NodeUid> = exceptions.iter().copied().collect();
        let spared = |owner: &NodeUid| self.rules.spare_excepted_owners && exceptions.contains(owner);
        let owners: Vec<NodeUid> = pins.keys().filter(|owner| !spared(owner)).copied().collect();
        for owner in owners {
            while let Some(id) = self.pop_pin(peer, owner, at) {
                if self.unpinned(id, peer) {
                    self.flush_if_full(owner, out);
                }
            }
        }
    }

    fn pop_pin(&mut self, peer: NodeUid, owner: NodeUid, at: Stamp) -> Option<ObjectId> {
        let by_owner = &mut self.peers.get_mut(&peer)?.pins;
        let pins = by_owner.get_mut(&owner)?;
        let id = match pins.first() {
            Some((pinned, id)) if *pinned <= at => *id,
            _ => return None,
        };
        pins.pop_first();
        if pins.is_empty() {
            by_owner.remove(&owner);
        }
        Some(id)
    }

    /// Whether every introduction of ours to `peer` up to there has settled.
    pub fn is_settled(&self, peer: NodeUid, upto: Stamp) -> bool {
        let pins = self.peers.get(&peer).map(|peer| peer.pins.values());
        pins.into_iter().flatten().all(|pins| pins.first().is_none_or(|(at, _)| *at > upto))
    }

    /// The watermark to stamp on frames to `peer`: every introduction in its lane up to here is
    /// settled. A position in the session its last processed frame belongs to.
    pub fn settled_for(&self, peer: NodeUid) -> Seq {
        self.settled_except(peer, &[])
    }

    /// The same, leaving out introductions of objects of the owners in `exceptions`.
    pub fn settled_except(&self, peer: NodeUid, exceptions: &[NodeUid]) -> Seq {
        let Some(peer) = self.peers.get(&peer) else { return 0 };
        let left_out = |owner: &NodeUid| self.rules.settle_with_exceptions && exceptions.contains(owner);
        let open = peer.unsettled.iter().filter(|(owner, _)| !left_out(owner));
        let first = open.filter_map(|(_, at)| at.first_key_value()).map(|(at, _)| *at).min();
        match first {
            // A frame under way counts as little as what is not settled.
            Some(at) if at <= peer.processed => {
                if at.session_no == peer.processed.session_no {
                    at.seq.saturating_sub(1)
                } else {
                    0
                }
            }
            _ => peer.processed.seq,
        }
    }

    /// The owners whose silence keeps introductions of `peer` from settling.
    pub fn unsettled_owners(&self, peer: NodeUid) -> impl Iterator<Item = NodeUid> {
        self.peers.get(&peer).into_iter().flat_map(|peer| peer.unsettled.keys().copied())
    }

    /// Notes an introduction that settles with the entry's claim, or its Create.
    pub(super) fn settle_later(&mut self, introduction: Introduction, id: ObjectId, standing: Standing) {
        let owner = self.peer(id.owner);
        match standing {
            Standing::Confirmed => return,
            Standing::Queued => owner.queued.entry(id.create_no).or_default().push(introduction),
            Standing::Awaiting(at) => owner.waiting.entry((at, id)).or_default().push(introduction),
        }
        let (from, at) = introduction;
        *self.peer(from).unsettled.entry(id.owner).or_default().entry(at).or_default() += 1;
    }

    /// One introduction of an object of `owner` has settled.
    pub(super) fn settle(&mut self, introduction: Introduction, owner: NodeUid) {
        let (from, at) = introduction;
        let unsettled = &mut self.peer(from).unsettled;
        let Some(positions) = unsettled.get_mut(&owner) else { return };
        if let Some(count) = positions.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                positions.remove(&at);
            }
        }
        if positions.is_empty() {
            unsettled.remove(&owner);
        }
    }
}
