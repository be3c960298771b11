//! A session with a peer starts anew: what of the old one lives on, and in what form.
//!
//! Both sides do this in one step, as their lane switches, and process nothing between. Positions of
//! the old session need no rewriting where they only have to compare lower than everything in the new
//! one: a [`Stamp`] names its session. So pins toward the peer fall with the first settled mark of the
//! new session, unsettled introductions keep that mark at 0 until they settle, and listings from before
//! are known by their stamp.

use super::held::Standing;
use super::holder::{Fence, Introduction};
use super::{Lifetime, Outbox};
use crate::{NodeUid, ObjectId, Stamp};

impl Lifetime {
    /// The lane to `peer` has switched to session `session_no`, with nothing sent in it yet. Enqueues the
    /// inventory as its first frames; what is stamped on them as settled must be 0, whatever was stamped
    /// before.
    pub fn reset(&mut self, peer: NodeUid, session_no: u32, out: &mut impl Outbox) {
        let rules = self.rules;
        let known = self.peer(peer);
        let start = Stamp { session_no, seq: 0 };
        known.session_no = session_no;
        known.processed = start;
        known.seen = start;
        known.told = start;
        known.said = start;
        known.inventory = None;
        if known.fence == Fence::Fenced {
            known.fence = Fence::Returning;
        }
        // Who gave the peer up returns with nothing; whoever is not in the inventory is released by it.
        known.gone = None;
        known.releases.clear();
        if !rules.keep_pins_at_reset {
            self.drop_pins_toward(peer, out);
        }
        if !rules.keep_unsettled_at_reset {
            self.forget_introductions(peer);
        }
        let end = self.enqueue_inventory(peer, rules.list_present_at_reset, out);
        if rules.reclaim_at_reset {
            self.await_inventory(peer, end);
        }
    }

    /// Everything we hold of the owner's, and every introduction that waits for a claim to it, now
    /// waits for the inventory. Confirmed entries too: the owner may have fenced us.
    fn await_inventory(&mut self, owner: NodeUid, end: Stamp) {
        let present: Vec<ObjectId> = self.held.iter_of(owner).map(|(id, _)| id).collect();
        let mut waiting = std::mem::take(&mut self.peer(owner).waiting);
        let mut again = std::collections::BTreeMap::<_, Vec<Introduction>>::new();
        while let Some(((_, id), introductions)) = waiting.pop_first() {
            again.entry((end, id)).or_default().extend(introductions);
        }
        for id in present {
            let anew = self.rules.confirm_anew_at_reset;
            if let Some(held) = self.held.get_mut(&id)
                && held.standing() != Standing::Queued
                && (anew || held.standing() != Standing::Confirmed)
            {
                held.set_standing(Standing::Awaiting(end));
                again.entry((end, id)).or_default();
            }
        }
        self.peer(owner).waiting = again;
    }

    /// Forgets that introductions of this node are unsettled: only to show that it must not be done.
    fn forget_introductions(&mut self, from: NodeUid) {
        self.peer(from).unsettled.clear();
        for peer in self.peers.values_mut() {
            let all = peer.waiting.values_mut().chain(peer.queued.values_mut());
            all.for_each(|introductions| introductions.retain(|(introducer, _)| *introducer != from));
        }
    }
}
