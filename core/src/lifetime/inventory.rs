//! The inventory of a holder: sent after a reset, or when digests differ, and taken in by the owner.
//!
//! After a reset it carries on what the old session knew; within a session it repairs tables that
//! should not differ. The two are told apart by position: the first frame of a session that began
//! with a reset is an inventory's begin.

use super::held::Standing;
use super::holder::Fence;
use super::{CONTROL_BATCH, Control, GoneReason, Lifetime, Outbox, ProtocolError};
use crate::{NodeUid, ObjectId, Stamp};
use std::collections::BTreeSet;

/// An inventory that is arriving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inventory {
    next_create: u64,
    seen: Stamp,
    /// What has been named, within a session. After a reset the listings themselves tell.
    named: Option<BTreeSet<ObjectId>>,
}

impl Lifetime {
    /// Sends the inventory of what we hold of `owner`'s, within a session: its digest and ours differ.
    pub fn send_inventory(&mut self, owner: NodeUid, out: &mut impl Outbox) {
        self.flush(owner, out);
        self.enqueue_inventory(owner, true, out);
    }

    /// Enqueues all parts, and returns the position of the last.
    pub(super) fn enqueue_inventory(&mut self, owner: NodeUid, items: bool, out: &mut impl Outbox) -> Stamp {
        let queued = self.held.of(owner, self.me).find(|(_, held)| held.standing() == Standing::Queued);
        let peer = self.peers.get(&owner);
        let next_create = queued.map_or(peer.map_or(0, |peer| peer.creates) + 1, |(id, _)| id.create_no);
        let seen = peer.map_or(Stamp::ZERO, |peer| peer.seen);
        out.enqueue(owner, Control::InventoryBegin { next_create, seen });
        if items {
            let present = self.held.iter_of(owner).filter(|(_, held)| held.standing() != Standing::Queued);
            let ids: Vec<ObjectId> = present.map(|(id, _)| id).collect();
            for some in ids.chunks(CONTROL_BATCH) {
                out.enqueue(owner, Control::InventoryItems(some.to_vec()));
            }
        }
        let end = out.enqueue(owner, Control::InventoryEnd);
        let peer = self.peer(owner);
        peer.said = peer.said.max(end);
        end
    }

    /// The begin of an inventory has arrived, at position `at`.
    ///
    /// # Errors
    /// [`ProtocolError::InventoryOutOfOrder`] within another one; [`ProtocolError::CreateOutOfOrder`] if
    /// it takes back creations that have arrived.
    pub fn on_inventory_begin(
        &mut self,
        from: NodeUid,
        at: Stamp,
        next_create: u64,
        seen: Stamp,
    ) -> Result<(), ProtocolError> {
        let created = self.created_upto(from);
        if next_create <= created {
            let expected = created.saturating_add(1);
            return Err(ProtocolError::CreateOutOfOrder { from, expected, got: next_create });
        }
        let peer = self.peer(from);
        if peer.inventory.is_some() {
            return Err(ProtocolError::InventoryOutOfOrder { from, what: "an inventory's begin" });
        }
        let after_reset = at == Stamp { session_no: peer.session_no, seq: 1 };
        let named = (!after_reset).then(BTreeSet::new);
        peer.inventory = Some(Inventory { next_create, seen, named });
        Ok(())
    }

    /// Items of an inventory have arrived: each is a claim, and what does not exist is answered.
    ///
    /// # Errors
    /// [`ProtocolError::InventoryOutOfOrder`], [`ProtocolError::NotOurs`], with nothing changed;
    /// [`ProtocolError::TooManyParked`].
    pub fn on_inventory_items(
        &mut self,
        from: NodeUid,
        ids: &[ObjectId],
        out: &mut impl Outbox,
    ) -> Result<(), ProtocolError> {
        self.check_ours(from, ids.iter())?;
        let peer = self.peer(from);
        let fenced = peer.fence != Fence::None;
        let Some(inventory) = &mut peer.inventory else {
            return Err(ProtocolError::InventoryOutOfOrder { from, what: "an inventory's items" });
        };
        let within_session = inventory.named.is_some();
        if (fenced && !self.rules.relist_after_fence) || (!fenced && !self.rules.renew_listed) {
            return Ok(());
        }
        let mut gone = Vec::new();
        for &id in ids {
            // Everything that carried its Create has been discarded.
            let lost = id.creator == from && id.create_no > self.created_upto(from);
            let reason = if lost { Some(GoneReason::NeverCreated) } else { self.claimed(id, from)? };
            match reason {
                Some(GoneReason::Freed) if fenced => gone.push((id, GoneReason::LeaseExpired)),
                Some(reason) => gone.push((id, reason)),
                None if within_session => self.name(from, id),
                None => {}
            }
        }
        self.send_gone(from, &gone, out);
        Ok(())
    }

    /// The end of an inventory has arrived: what it did not name is not held, and what was to be created
    /// below its next number will not be.
    ///
    /// # Errors
    /// [`ProtocolError::InventoryOutOfOrder`] without a begin.
    pub fn on_inventory_end(&mut self, from: NodeUid, out: &mut impl Outbox) -> Result<(), ProtocolError> {
        let peer = self.peer(from);
        let Some(inventory) = peer.inventory.take() else {
            return Err(ProtocolError::InventoryOutOfOrder { from, what: "an inventory's end" });
        };
        peer.fence = Fence::None;
        let session_no = peer.session_no;
        let listed = self.owned.iter().filter_map(|(id, entry)| Some((id, entry.holders.get(from)?)));
        let absent: Vec<ObjectId> = listed
            .filter(|(id, at)| self.is_absent(*id, *at, session_no, &inventory))
            .map(|(id, _)| id)
            .collect();
        for id in absent {
            self.strike(id, from);
        }
        if self.rules.report_lost_creations && inventory.next_create - 1 > self.created_upto(from) {
            self.created_upto.insert(from, inventory.next_create - 1);
            for id in self.expected_of(from) {
                if id.create_no < inventory.next_create {
                    self.fail_expected(id, GoneReason::NeverCreated, out);
                }
            }
        }
        Ok(())
    }

    /// Notes that an object is in the inventory. It is in the table too, so a peer cannot make this grow.
    fn name(&mut self, from: NodeUid, id: ObjectId) {
        if let Some(Inventory { named: Some(named), .. }) = &mut self.peer(from).inventory {
            named.insert(id);
        }
    }

    /// Whether a listing, made or last renewed at `at`, ends with this inventory.
    fn is_absent(&self, id: ObjectId, at: Stamp, session_no: u32, inventory: &Inventory) -> bool {
        match &inventory.named {
            None if at.session_no < session_no => self.rules.sweep_old_listings,
            None => !self.rules.spare_introduced && at.seq > 0,
            Some(named) => !named.contains(&id) && (at <= inventory.seen || !self.rules.guard_absence),
        }
    }
}
