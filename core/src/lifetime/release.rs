//! Releases, batched (R5): sent with the 64th, with the next frame to the owner, or by the timer.
//!
//! Knows no clock: it asks for the timer, and is called when it fires.

use super::held::Standing;
use super::{Control, Effect, Lifetime, Outbox, RELEASE_BATCH};
use crate::{NodeUid, ObjectId, Stamp};

impl Lifetime {
    /// Sends the pending releases to `owner`. To be called before anything else gets a position in
    /// the lane there: a release must not follow what came after it. Next to free when there are
    /// none.
    pub fn flush(&mut self, owner: NodeUid, out: &mut impl Outbox) {
        if self.rules.flush_releases_first {
            self.send_releases(owner, out);
        }
    }

    /// Sends all pending releases: the answer to [`Effect::FlushReleases`].
    pub fn flush_all(&mut self, out: &mut impl Outbox) {
        self.timer_armed = false;
        let pending = self.peers.iter().filter(|(_, peer)| !peer.releases.is_empty());
        let owners: Vec<NodeUid> = pending.map(|(owner, _)| *owner).collect();
        for owner in owners {
            self.send_releases(owner, out);
        }
    }

    /// Sends the pending releases to `owner` if they fill a frame.
    pub(super) fn flush_if_full(&mut self, owner: NodeUid, out: &mut impl Outbox) {
        if self.peers.get(&owner).is_some_and(|peer| peer.releases.len() >= RELEASE_BATCH) {
            self.send_releases(owner, out);
        }
    }

    fn send_releases(&mut self, owner: NodeUid, out: &mut impl Outbox) {
        let Some(peer) = self.peers.get_mut(&owner) else { return };
        if peer.releases.is_empty() {
            return;
        }
        let mut releases = std::mem::take(&mut peer.releases);
        if !self.rules.seen_at_release {
            releases.iter_mut().for_each(|(_, seen)| *seen = peer.seen);
        }
        let mut said = Stamp::ZERO;
        for batch in releases.chunks(RELEASE_BATCH) {
            said = out.enqueue(owner, Control::Release(batch.to_vec()));
        }
        let peer = self.peer(owner);
        peer.said = peer.said.max(said);
    }

    /// Turns the entry absent if nothing holds it, and notes its release with what has been seen up
    /// to now. An object whose Create is still to be sent stays: its number is spent. Returns
    /// whether the entry is gone.
    pub(super) fn release_if_unused(&mut self, id: ObjectId) -> bool {
        let Some(held) = self.held.get(&id) else { return false };
        if !held.handles.is_zero() || held.is_pinned() || held.standing() == Standing::Queued {
            return false;
        }
        self.held.remove(&id);
        self.peer(id.owner).holding.remove(&id);
        self.note_release(id);
        true
    }

    /// A release of the object is due, with what has been seen up to now.
    pub(super) fn note_release(&mut self, id: ObjectId) {
        let peer = self.peer(id.owner);
        peer.releases.push((id, peer.seen));
        if !self.timer_armed {
            self.timer_armed = true;
            self.effects.push(Effect::FlushReleases);
        }
    }
}
