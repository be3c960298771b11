//! The end of a peer, as a holder (R8, R10) or as an owner (R13).
//!
//! Knows what follows from it; when it is due is judged by [`crate::lease`].

use super::holder::Fence;
use super::owner::State;
use super::{GoneReason, Lifetime, Outbox};
use crate::{NodeUid, ObjectId};

impl Lifetime {
    /// The peer is dead as a holder: it is struck off all our objects, our pins toward it fall, and
    /// what others wait for it to create fails. If it returns, it does so by a reset.
    ///
    /// What *we* hold of its objects, and introductions of its that are not settled, stay.
    pub fn fence(&mut self, peer: NodeUid, out: &mut impl Outbox) {
        if peer == self.me {
            return;
        }
        self.peer(peer).fence = Fence::Fenced;
        self.strike_all(peer);
        if self.rules.drop_pins_at_fence {
            self.drop_pins_toward(peer, out);
        }
        if self.rules.report_dead_creators {
            for id in self.expected_of(peer) {
                self.fail_expected(id, GoneReason::CreatorDied, out);
            }
        }
    }

    /// Strikes the node off all our objects.
    fn strike_all(&mut self, node: NodeUid) {
        let listed = self.owned.iter().filter(|(_, entry)| entry.holders.get(node).is_some());
        let ids: Vec<ObjectId> = listed.map(|(id, _)| id).collect();
        for id in ids {
            self.strike(id, node);
        }
    }

    /// Drops all pins toward a receiver; what they alone held is released.
    pub(super) fn drop_pins_toward(&mut self, receiver: NodeUid, out: &mut impl Outbox) {
        let pins = std::mem::take(&mut self.peer(receiver).pins);
        for (owner, pinned) in pins {
            for (_, id) in pinned {
                self.unpinned(id, receiver);
            }
            self.flush_if_full(owner, out);
        }
    }

    /// The owner is out of reach for longer than any lease: all handles of its objects break, their
    /// introductions settle, and what arrives of it is broken from birth, until a reset (R13). The session
    /// with it must end.
    ///
    /// Pins on its objects stay until their receivers settle: those may reach the owner, and until they do,
    /// it must list this node. Messages to it that have no position yet, creations among them, must not be
    /// sent any more.
    pub fn give_up(&mut self, owner: NodeUid) {
        self.lose_owner(owner, GoneReason::Unreachable, true);
    }

    /// The owner is certain never to come back: all handles of its objects break, pins on them
    /// fall, their introductions settle, and what arrives of it later is broken from birth.
    ///
    /// It frees nothing here: what the dead node held of ours, and pins toward it, stay.
    pub fn owner_died(&mut self, owner: NodeUid, reason: GoneReason) {
        self.lose_owner(owner, reason, false);
    }

    fn lose_owner(&mut self, owner: NodeUid, reason: GoneReason, may_return: bool) {
        if owner == self.me {
            return;
        }
        for id in self.held.of_owner(owner) {
            if may_return {
                self.break_unless_pinned(id, &reason);
            } else {
                self.break_entry(id, &reason);
            }
        }
        let settle = self.rules.settle_broken;
        let peer = self.peer(owner);
        peer.gone = Some(reason);
        peer.creates_sent = peer.creates;
        peer.releases.clear();
        if settle {
            // Entries that were released while their claim was under way are left here.
            let waiting = std::mem::take(&mut peer.waiting);
            let queued = std::mem::take(&mut peer.queued);
            for introduction in waiting.into_values().chain(queued.into_values()).flatten() {
                self.settle(introduction, owner);
            }
        }
    }

    /// Whether anything here waits for the peer's end as a holder: a listing, a pin toward it, or an
    /// object it was to create.
    pub fn is_held_by(&self, peer: NodeUid) -> bool {
        let known = self.peers.get(&peer);
        known.is_some_and(|known| known.listed.count > 0 || !known.pins.is_empty())
            // Expected numbers are above all others.
            || self.owned.latest_of(self.me, peer).is_some_and(|entry| entry.state == State::Expected)
    }

    /// Whether anything here depends on the peer as an owner: an entry, or an introduction that settles
    /// with a claim to it.
    pub fn depends_on(&self, owner: NodeUid) -> bool {
        let known = self.peers.get(&owner);
        known.is_some_and(|known| !known.waiting.is_empty() || !known.queued.is_empty())
            || self.held.iter_of(owner).next().is_some()
    }

    /// The node is gone for good: what is known of its lane is dropped, unless something still hangs on
    /// it. Returns whether these tables now know nothing of it; if they do, that it is gone is known too.
    ///
    /// Up to where it has created objects here is kept: that tells a freed one from one to come.
    pub fn forget(&mut self, peer: NodeUid) -> bool {
        if self.is_held_by(peer) || self.depends_on(peer) || self.owned.latest_of(self.me, peer).is_some() {
            return false;
        }
        let unsettled = self.peers.get(&peer).is_some_and(|known| !known.unsettled.is_empty());
        let first = ObjectId { owner: peer, creator: NodeUid(0), create_no: 0 };
        let handles = self.broken.range((first, 0)..).next();
        if unsettled || handles.is_some_and(|((id, _), _)| id.owner == peer) {
            return false;
        }
        self.peers.remove(&peer);
        true
    }

    /// Every node that something here depends on, as a holder, an owner or the creator of an expected
    /// object: their lease clocks must run. Some come more than once.
    pub fn mentioned(&self) -> impl Iterator<Item = NodeUid> {
        let me = self.me;
        let holders = self.peers.iter().filter(|(_, peer)| peer.listed.count > 0 || !peer.pins.is_empty());
        let claimed =
            self.peers.iter().filter(|(_, peer)| !peer.waiting.is_empty() || !peer.queued.is_empty());
        let creators = self.owned.latest().filter(|(_, entry)| entry.state == State::Expected);
        let peers = holders.chain(claimed).map(|(node, _)| *node);
        let all = peers.chain(creators.map(|(creator, _)| creator)).chain(self.held.owners());
        all.filter(move |node| *node != me)
    }

    /// A pin on this object has fallen.
    pub(super) fn unpinned(&mut self, id: ObjectId, receiver: NodeUid) -> bool {
        let Some(held) = self.held.get_mut(&id) else { return false };
        held.unpin(receiver);
        self.release_if_unused(id)
    }

    /// Whether the handles of this owner's objects are dead from birth.
    pub fn is_given_up(&self, owner: NodeUid) -> bool {
        self.owner_gone(owner).is_some()
    }
}
