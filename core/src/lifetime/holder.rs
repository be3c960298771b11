//! The holder's table: foreign objects this node has handles of, or hands on.
//!
//! Knows nothing of objects themselves; calls through a handle are the caller's business.

use super::held::{Count, Held, Standing};
use super::inventory::Inventory;
use super::{CONTROL_BATCH, Control, Digest, Effect, GoneReason, HandleKey, ImportState, Imported, Lifetime};
use super::{Outbox, ProtocolError};
use crate::{NodeUid, ObjectId, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// Handles whose entry is dead. They send nothing and touch no later entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Broken {
    pub(super) handles: Count,
    pub(super) reason: GoneReason,
}

/// An introduction that is not settled: who made it, and where.
pub(super) type Introduction = (NodeUid, Stamp);

/// Whether a peer is dead to us as a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Fence {
    #[default]
    None,
    /// It is, and nothing that is sent to it arrives.
    Fenced,
    /// It has returned by a reset, and its inventory is not complete.
    Returning,
}

/// What is known about the other end of a lane. It stays when nothing is under way: the numbers
/// must go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// Objects we have asked it for: the last `create_no`.
    pub(super) creates: u64,
    /// The last of those whose Create has a position, or never will.
    pub(super) creates_sent: u64,
    /// Why it is gone for good, if it is.
    pub(super) gone: Option<GoneReason>,
    /// Everything in its lane up to here has been processed.
    pub(super) processed: Stamp,
    /// Every introduction in its lane up to here has been taken in. Ahead of `processed` while a
    /// frame with handles is under way.
    pub(super) seen: Stamp,
    /// The session that its lane is in, as of the last reset; 0 before the first one.
    pub(super) session_no: u32,
    /// As a holder: whether it is dead to us.
    pub(super) fence: Fence,
    /// As a holder: the inventory that is arriving.
    pub(super) inventory: Option<Inventory>,
    /// As a holder: what it is listed for here.
    pub(super) listed: Digest,
    /// As an owner: what we hold of it, but for objects whose Create has no position yet.
    pub(super) holding: Digest,
    /// As a holder: our last introduction or Gone to it.
    pub(super) told: Stamp,
    /// As an owner: our last Create, Claim, Release or inventory to it.
    pub(super) said: Stamp,
    /// As an owner: our claims and Creates under way to it, each with the introductions that settle
    /// when it is acknowledged.
    pub(super) waiting: BTreeMap<(Stamp, ObjectId), Vec<Introduction>>,
    /// As an owner: introductions of objects whose Create has no position yet, by `create_no`.
    pub(super) queued: BTreeMap<u64, Vec<Introduction>>,
    /// As an owner: releases of the current batch, with what we had seen.
    pub(super) releases: Vec<(ObjectId, Stamp)>,
    /// As an introducer: how many of its introductions are not settled, by owner and position.
    pub(super) unsettled: BTreeMap<NodeUid, BTreeMap<Stamp, usize>>,
    /// As a receiver: our pins toward it, by owner of the object, in order of position.
    pub(super) pins: BTreeMap<NodeUid, BTreeSet<(Stamp, ObjectId)>>,
}

impl Lifetime {
    pub(super) fn create_foreign(&mut self, id: ObjectId) -> HandleKey {
        if let Some(reason) = self.owner_gone(id.owner) {
            self.peer(id.owner).creates_sent = id.create_no;
            self.effects.push(Effect::Broken(id, reason.clone()));
            return self.import_broken(id, reason).key;
        }
        let held = self.entry(id, Standing::Queued);
        held.handles = Count::ONE;
        HandleKey { id, generation: held.generation }
    }

    /// The object's Create has been given position `at` in the lane to its owner. If all handles
    /// have been dropped meanwhile, its release follows.
    pub fn create_sent(&mut self, id: ObjectId, at: Stamp) {
        let Some(held) = self.held.get_mut(&id) else { return };
        if held.standing() != Standing::Queued {
            return;
        }
        held.set_standing(Standing::Awaiting(at));
        let peer = self.peer(id.owner);
        peer.holding.add(&id);
        peer.said = peer.said.max(at);
        peer.creates_sent = peer.creates_sent.max(id.create_no);
        let introductions = peer.queued.remove(&id.create_no).unwrap_or_default();
        peer.waiting.insert((at, id), introductions);
        // A full batch waits for the next frame or the timer: this call has no way to send.
        self.release_if_unused(id);
    }

    /// A Gone has arrived: the entries break, their pins fall, their introductions settle.
    ///
    /// # Errors
    /// [`ProtocolError::NotTheirs`], with nothing changed.
    pub fn on_gone(&mut self, from: NodeUid, ids: &[(ObjectId, GoneReason)]) -> Result<(), ProtocolError> {
        if let Some((id, _)) = ids.iter().find(|(id, _)| id.owner != from) {
            return Err(ProtocolError::NotTheirs { from, id: *id });
        }
        for (id, reason) in ids {
            self.break_entry(*id, reason);
        }
        Ok(())
    }

    pub(super) fn owner_gone(&self, owner: NodeUid) -> Option<GoneReason> {
        self.peers.get(&owner)?.gone.clone()
    }

    /// Why an imported handle is not worth a claim, if so: its owner is dead, or it bears our name
    /// as creator with a number we have not given out, which must not pass for a later creation.
    fn dead_from_birth(&self, id: &ObjectId) -> Option<GoneReason> {
        let peer = self.peers.get(&id.owner);
        if id.creator == self.me && id.create_no > peer.map_or(0, |peer| peer.creates) {
            return Some(GoneReason::NeverCreated);
        }
        peer?.gone.clone()
    }

    pub(super) fn break_entry(&mut self, id: ObjectId, reason: &GoneReason) {
        let Some(held) = self.held.remove(&id) else { return };
        if held.standing() != Standing::Queued {
            self.peer(id.owner).holding.remove(&id);
        }
        for (to, at) in held.pins() {
            self.peer(to).unpin(at, id);
        }
        self.settle_entry(id, held.standing());
        self.break_handles(id, held.generation, held.handles, reason);
    }

    /// Breaks the handles of an entry, and keeps the entry if it has pins: its receivers may be well.
    pub(super) fn break_unless_pinned(&mut self, id: ObjectId, reason: &GoneReason) {
        let Some(held) = self.held.get(&id) else { return };
        let (standing, generation, handles) = (held.standing(), held.generation, held.handles);
        if !self.rules.keep_pins_at_give_up || !held.is_pinned() || standing == Standing::Queued {
            return self.break_entry(id, reason);
        }
        self.settle_entry(id, standing);
        self.break_handles(id, generation, handles, reason);
        let generation = self.next_generation(id);
        if let Some(held) = self.held.get_mut(&id) {
            held.handles = Count::default();
            held.generation = generation;
        }
    }

    /// The introductions that wait for an entry's claim settle without it.
    fn settle_entry(&mut self, id: ObjectId, standing: Standing) {
        if !self.rules.settle_broken {
            return;
        }
        let peer = self.peer(id.owner);
        let introductions = match standing {
            Standing::Queued => peer.queued.remove(&id.create_no),
            // The claim itself stays: its ack is still to come.
            Standing::Awaiting(at) => peer.waiting.get_mut(&(at, id)).map(std::mem::take),
            Standing::Confirmed => None,
        };
        for introduction in introductions.into_iter().flatten() {
            self.settle(introduction, id.owner);
        }
    }

    fn break_handles(&mut self, id: ObjectId, generation: u32, handles: Count, reason: &GoneReason) {
        if !handles.is_zero() {
            self.broken.insert((id, generation), Broken { handles, reason: reason.clone() });
        }
        self.effects.push(Effect::Broken(id, reason.clone()));
    }

    /// R2, the introducer's side. A broken handle finds no entry and needs no pin.
    pub(super) fn pin(&mut self, id: ObjectId, to: NodeUid, at: Stamp) {
        if !self.rules.pin_until_settled || to == self.me {
            return;
        }
        let Some(held) = self.held.get_mut(&id) else { return };
        let before = held.pin(to, at);
        let peer = self.peer(to);
        if let Some(before) = before {
            peer.unpin(before, id);
        }
        peer.pins.entry(id.owner).or_default().insert((at, id));
    }

    /// R2, the receiver's side: claims what is absent, as few frames as possible to each owner.
    pub(super) fn claim_new(&mut self, refs: &[ObjectId], from: NodeUid, out: &mut impl Outbox) {
        let mut claims: BTreeMap<NodeUid, BTreeSet<ObjectId>> = BTreeMap::new();
        for id in refs {
            let foreign = id.owner != self.me && id.owner != from;
            if foreign && !self.held.contains(id) && self.dead_from_birth(id).is_none() {
                claims.entry(id.owner).or_default().insert(*id);
            }
        }
        for (owner, ids) in claims {
            let ids = Vec::from_iter(ids);
            for some in ids.chunks(CONTROL_BATCH) {
                self.flush(owner, out);
                let at = out.enqueue(owner, Control::Claim(some.to_vec()));
                let peer = self.peer(owner);
                peer.said = peer.said.max(at);
                for &id in some {
                    self.entry(id, Standing::Awaiting(at));
                    // Claims to an owner that nobody has told of share one position.
                    self.peer(owner).waiting.entry((at, id)).or_default();
                }
            }
        }
    }

    pub(super) fn import_foreign(&mut self, id: ObjectId, from: NodeUid, at: Stamp) -> Imported {
        let given_up = self.owner_gone(id.owner).is_some();
        if (given_up || !self.held.contains(&id))
            && let Some(reason) = self.dead_from_birth(&id)
        {
            return self.import_broken(id, reason);
        }
        // Only the owner's own introductions find nothing here, and it has listed us.
        let held = self.entry(id, Standing::Confirmed);
        held.handles.add_one();
        let (key, standing) = (HandleKey { id, generation: held.generation }, held.standing());
        // The owner keeps no pins, so its introductions need no settling.
        if from != id.owner && self.rules.settle_after_claim_acked {
            self.settle_later((from, at), id, standing);
        }
        Imported { key, state: ImportState::Ok }
    }

    /// A handle that is dead from birth, with an entry of its own.
    pub(super) fn import_broken(&mut self, id: ObjectId, reason: GoneReason) -> Imported {
        let generation = self.next_generation(id);
        self.broken.insert((id, generation), Broken { handles: Count::ONE, reason: reason.clone() });
        Imported { key: HandleKey { id, generation }, state: ImportState::Gone(reason) }
    }

    /// The object's entry; a new one, without handles yet, if there is none.
    fn entry(&mut self, id: ObjectId, standing: Standing) -> &mut Held {
        let mut generation = 0;
        if !self.held.contains(&id) {
            generation = self.next_generation(id);
            if standing != Standing::Queued {
                self.peer(id.owner).holding.add(&id);
            }
        }
        self.held.get_or_insert_with(id, || Held::new(generation, standing))
    }

    /// Above every entry of the object, broken or not, so that no two share a key. Generation 0 of an own
    /// object is its owner entry.
    fn next_generation(&self, id: ObjectId) -> u32 {
        let newest = self.broken.range((id, 0)..=(id, u32::MAX)).next_back().map(|((_, g), _)| *g);
        let newest = newest.max(self.held.get(&id).map(|held| held.generation));
        newest.map_or(u32::from(id.owner == self.me), |newest| newest.saturating_add(1))
    }

    /// The count a foreign or broken handle belongs to.
    pub(super) fn foreign_handles(&mut self, key: HandleKey) -> Option<&mut Count> {
        match self.held.get_mut(&key.id) {
            Some(held) if held.generation == key.generation || !self.rules.keep_broken_apart => {
                Some(&mut held.handles)
            }
            _ => self.broken.get_mut(&(key.id, key.generation)).map(|broken| &mut broken.handles),
        }
    }
}

impl Peer {
    pub(super) fn unpin(&mut self, at: Stamp, id: ObjectId) {
        if let Some(pins) = self.pins.get_mut(&id.owner) {
            pins.remove(&(at, id));
            if pins.is_empty() {
                self.pins.remove(&id.owner);
            }
        }
    }
}
