//! The owner's table: what this node owns, who holds it, and when it is freed.
//!
//! Knows nothing of how an object is made, called or dropped; it says *when*.

use super::holder::Fence;
use super::table::NodeStamps;
use super::{CONTROL_BATCH, Control, Effect, GoneReason, HandleKey, ImportState, Imported, Lifetime, Outbox};
use super::{OwnedState, ProtocolError};
use crate::{NodeUid, ObjectId, Stamp};

/// One object of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owned {
    pub(super) state: State,
    /// The nodes that hold it, each with the position at which we last introduced it to them.
    pub(super) holders: NodeStamps,
    /// Handles in this process.
    pub(super) local: u64,
    /// Calls queued or running (R12).
    pub(super) calls: u64,
}

/// How far an object has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Somebody spoke of it before its creation arrived.
    Expected,
    /// Under construction.
    Pending,
    Live,
    /// Kept while listed or referenced, so that callers learn why. Boxed: entries are many.
    Failed(Box<GoneReason>),
}

impl Owned {
    fn new(state: State) -> Owned {
        Owned { state, holders: NodeStamps::default(), local: 0, calls: 0 }
    }

    pub(super) fn report_state(&self) -> OwnedState {
        match &self.state {
            State::Expected => OwnedState::Expected,
            State::Pending => OwnedState::Pending,
            State::Live => OwnedState::Live,
            State::Failed(why) => OwnedState::Failed((**why).clone()),
        }
    }
}

/// What becomes of a call that has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// The object is there. The call counts as a reference until [`Lifetime::call_finished`].
    Run,
    /// The object is under construction: keep the call behind it. It counts as with `Run`.
    Wait,
    /// The object failed or was stopped; nothing is counted.
    Failed(GoneReason),
    /// The object does not exist any more; nothing is counted.
    Gone(GoneReason),
    /// Its creation has not arrived: keep the call, and ask again after [`Lifetime::on_create`] for the
    /// object, or fail it after an [`Effect::NeverComes`]. Until then the object counts as expected.
    Park,
    /// Its creation has not arrived, and too many objects are expected already; nothing is counted.
    TooMany,
    /// The object is another node's; nothing is counted.
    NotOwner,
}

impl Lifetime {
    /// A Create has arrived: the object is under construction, its creator listed, and whoever
    /// claimed it beforehand too.
    ///
    /// # Errors
    /// [`ProtocolError::CreateOutOfOrder`] if the number is not the creator's next one.
    pub fn on_create(&mut self, from: NodeUid, create_no: u64) -> Result<ObjectId, ProtocolError> {
        let created = self.created_upto(from);
        if created.checked_add(1) != Some(create_no) {
            let expected = created.saturating_add(1);
            return Err(ProtocolError::CreateOutOfOrder { from, expected, got: create_no });
        }
        let id = ObjectId { owner: self.me, creator: from, create_no };
        self.construct(id);
        // The creator holds it, as by a claim; an introduction by us may have listed it already.
        self.list_claimant(id, from);
        Ok(id)
    }

    /// Construction has succeeded. If nobody holds the object any more, it is freed at once.
    pub fn created(&mut self, id: ObjectId) {
        if let Some(entry) = self.owned.get_mut(&id)
            && entry.state == State::Pending
        {
            entry.state = State::Live;
            self.free_if_unused(id);
        }
    }

    /// Construction has failed: calls get the reason as long as somebody holds the object.
    pub fn create_failed(&mut self, id: ObjectId, why: GoneReason) {
        self.fail(id, why);
    }

    /// The object has ended early, by a panic in a handler or a stop: calls get the reason as long
    /// as somebody holds it.
    pub fn died(&mut self, id: ObjectId, why: GoneReason) {
        self.fail(id, why);
    }

    fn fail(&mut self, id: ObjectId, why: GoneReason) {
        if let Some(entry) = self.owned.get_mut(&id)
            && matches!(entry.state, State::Pending | State::Live)
        {
            entry.state = State::Failed(Box::new(why));
            self.free_if_unused(id);
        }
    }

    /// A call for the object has arrived, from a peer or from this node (R7, R12).
    pub fn call_arrived(&mut self, id: ObjectId) -> Arrival {
        if id.owner != self.me {
            return Arrival::NotOwner;
        }
        if !self.owned.contains(&id) {
            if let Some(reason) = self.missing(id) {
                return Arrival::Gone(reason);
            }
            if !self.expect(id) {
                return Arrival::TooMany;
            }
        }
        let Some(entry) = self.owned.get_mut(&id) else { return Arrival::TooMany };
        let arrival = match &entry.state {
            State::Expected => Arrival::Park,
            State::Failed(why) => return Arrival::Failed((**why).clone()),
            State::Pending => Arrival::Wait,
            State::Live => Arrival::Run,
        };
        entry.calls += 1;
        arrival
    }

    /// A call that counted (`Run`, `Wait`) has ended, in whatever way.
    pub fn call_finished(&mut self, id: ObjectId) {
        if let Some(entry) = self.owned.get_mut(&id) {
            entry.calls = entry.calls.saturating_sub(1);
            self.free_if_unused(id);
        }
    }

    /// A Claim has arrived: the sender becomes a holder; what does not exist is answered (R6, R7).
    ///
    /// # Errors
    /// [`ProtocolError::NotOurs`], with nothing changed; [`ProtocolError::TooManyParked`].
    pub fn on_claim(
        &mut self,
        from: NodeUid,
        ids: &[ObjectId],
        out: &mut impl Outbox,
    ) -> Result<(), ProtocolError> {
        self.check_ours(from, ids.iter())?;
        let mut gone = Vec::new();
        for &id in ids {
            match self.claimed(id, from)? {
                None => {}
                Some(reason) => gone.push((id, reason)),
            }
        }
        self.send_gone(from, &gone, out);
        Ok(())
    }

    /// Tells a holder that these objects do not exist.
    pub(super) fn send_gone(&mut self, to: NodeUid, gone: &[(ObjectId, GoneReason)], out: &mut impl Outbox) {
        for some in gone.chunks(CONTROL_BATCH) {
            self.flush(to, out);
            let at = out.enqueue(to, Control::Gone(some.to_vec()));
            let peer = self.peer(to);
            peer.told = peer.told.max(at);
        }
    }

    /// Lists a claimant, or says why the object is gone.
    pub(super) fn claimed(
        &mut self,
        id: ObjectId,
        from: NodeUid,
    ) -> Result<Option<GoneReason>, ProtocolError> {
        let park = self.rules.park_claims;
        if !self.owned.contains(&id) {
            if let Some(reason) = self.missing(id) {
                return Ok(Some(reason));
            }
            if !park {
                return Ok(Some(GoneReason::NeverCreated));
            }
            if !self.expect(id) {
                return Err(ProtocolError::TooManyParked { from, id, limit: self.parked_limit });
            }
        }
        let Some(entry) = self.owned.get(&id) else { return Ok(None) };
        if !park && matches!(entry.state, State::Expected | State::Pending) {
            return Ok(Some(GoneReason::NeverCreated));
        }
        // One that never comes is not listed for again: a Gone may be on its way to the claimant that breaks this
        // very claim, and broken entries send no release.
        if let State::Failed(why) = &entry.state
            && matches!(**why, GoneReason::NeverCreated | GoneReason::CreatorDied)
        {
            return Ok(Some((**why).clone()));
        }
        self.list_claimant(id, from);
        Ok(None)
    }

    /// A claim, a Create or an item lists its sender as of the current session: before everything we
    /// have introduced in it, and after what a session before knew.
    pub(super) fn list_claimant(&mut self, id: ObjectId, from: NodeUid) {
        let session_no = self.peers.get(&from).map_or(0, |peer| peer.session_no);
        let at = Stamp { session_no, seq: 0 };
        let Some(entry) = self.owned.get_mut(&id) else { return };
        if entry.holders.get(from).is_none_or(|listed| listed < at) {
            self.set_holder(id, from, at);
        }
    }

    fn set_holder(&mut self, id: ObjectId, node: NodeUid, at: Stamp) {
        let Some(entry) = self.owned.get_mut(&id) else { return };
        if entry.holders.set(node, at).is_none() {
            self.peer(node).listed.add(&id);
        }
    }

    /// Strikes a node off an object's holders, and frees the object if that was all that held it.
    pub(super) fn strike(&mut self, id: ObjectId, node: NodeUid) {
        if let Some(entry) = self.owned.get_mut(&id)
            && entry.holders.remove(node).is_some()
        {
            self.peer(node).listed.remove(&id);
            self.free_if_unused(id);
        }
    }

    /// A Release has arrived: the sender is struck off, unless we introduced the object to it after
    /// what it had seen (R6).
    ///
    /// # Errors
    /// [`ProtocolError::NotOurs`], with nothing changed.
    pub fn on_release(&mut self, from: NodeUid, ids: &[(ObjectId, Stamp)]) -> Result<(), ProtocolError> {
        self.check_ours(from, ids.iter().map(|(id, _)| id))?;
        for (id, seen) in ids {
            let Some(entry) = self.owned.get(id) else { continue };
            let introduced = entry.holders.get(from);
            if introduced.is_some_and(|at| at <= *seen || !self.rules.guard_release) {
                self.strike(*id, from);
            }
        }
        Ok(())
    }

    pub(super) fn check_ours<'a>(
        &self,
        from: NodeUid,
        mut ids: impl Iterator<Item = &'a ObjectId>,
    ) -> Result<(), ProtocolError> {
        let me = self.me;
        ids.find(|id| id.owner != me).map_or(Ok(()), |id| Err(ProtocolError::NotOurs { from, id: *id }))
    }

    pub(super) fn create_own(&mut self, id: ObjectId) {
        self.construct(id).local += 1;
    }

    /// The next object of its creator goes under construction; whoever waits for it is there.
    fn construct(&mut self, id: ObjectId) -> &mut Owned {
        self.created_upto.insert(id.creator, id.create_no);
        let entry = self.owned.get_or_insert_with(id, || Owned::new(State::Pending));
        // Its number is new, so what was there already was expected, or failed as its creator was
        // fenced: that one has returned.
        self.expected -= usize::from(entry.state == State::Expected);
        entry.state = State::Pending;
        // Parked calls count again when they are asked for again.
        entry.calls = 0;
        entry
    }

    pub(super) fn add_local(&mut self, id: ObjectId) {
        if let Some(entry) = self.owned.get_mut(&id) {
            entry.local += 1;
        }
    }

    pub(super) fn drop_local(&mut self, id: ObjectId) {
        if let Some(entry) = self.owned.get_mut(&id) {
            entry.local = entry.local.saturating_sub(1);
            self.free_if_unused(id);
        }
    }

    /// R1: the receiver is listed from the moment the frame has its position.
    pub(super) fn list(&mut self, id: ObjectId, to: NodeUid, at: Stamp) {
        if to != self.me {
            self.set_holder(id, to, at);
            let peer = self.peer(to);
            peer.told = peer.told.max(at);
        }
    }

    /// R4: a handle has come home. If the object is freed, or would be one expected object too
    /// many, the handle is gone from birth.
    pub(super) fn import_own(&mut self, id: ObjectId) -> Imported {
        if !self.owned.contains(&id) {
            if let Some(reason) = self.missing(id) {
                return self.import_broken(id, reason);
            }
            if !self.expect(id) {
                return self.import_broken(id, GoneReason::NeverCreated);
            }
        }
        self.add_local(id);
        Imported { key: HandleKey { id, generation: 0 }, state: ImportState::Ok }
    }

    pub(super) fn created_upto(&self, creator: NodeUid) -> u64 {
        self.created_upto.get(&creator).copied().unwrap_or(0)
    }

    /// Why an object that is not in the table does not exist; none if its creation may yet arrive.
    fn missing(&self, id: ObjectId) -> Option<GoneReason> {
        // Our own creations do not travel: nobody can know of one before it is in the table.
        if id.creator == self.me || id.create_no <= self.created_upto(id.creator) {
            return Some(GoneReason::Freed);
        }
        let dead = self.peers.get(&id.creator).is_some_and(|creator| creator.fence != Fence::None);
        (dead && self.rules.report_dead_creators).then_some(GoneReason::CreatorDied)
    }

    /// An expected object will not be created: its holders and parked calls learn why.
    pub(super) fn fail_expected(&mut self, id: ObjectId, reason: GoneReason, out: &mut impl Outbox) {
        let Some(entry) = self.owned.get_mut(&id) else { return };
        if entry.state != State::Expected {
            return;
        }
        self.expected -= 1;
        let holders = std::mem::take(&mut entry.holders);
        entry.calls = 0;
        // Handles of this process keep the reason.
        entry.state = State::Failed(Box::new(reason.clone()));
        if entry.local == 0 {
            self.owned.remove(&id);
        }
        for (holder, _) in holders.iter() {
            self.peer(holder).listed.remove(&id);
            self.send_gone(holder, &[(id, reason.clone())], out);
        }
        self.effects.push(Effect::NeverComes(id, reason));
    }

    /// The expected objects of a creator, in order.
    pub(super) fn expected_of(&self, creator: NodeUid) -> Vec<ObjectId> {
        let ours = self.owned.of(self.me, creator);
        ours.filter(|(_, entry)| entry.state == State::Expected).map(|(id, _)| id).collect()
    }

    /// Makes an entry for an object that is yet to come; false if there are too many.
    fn expect(&mut self, id: ObjectId) -> bool {
        if self.expected >= self.parked_limit {
            return false;
        }
        self.expected += 1;
        self.owned.insert(id, Owned::new(State::Expected));
        true
    }

    /// Free iff created, no holder, no local reference, no call.
    pub(super) fn free_if_unused(&mut self, id: ObjectId) {
        let Some(entry) = self.owned.get(&id) else { return };
        if entry.local > 0 || entry.calls > 0 || !entry.holders.is_empty() {
            return;
        }
        match entry.state {
            // Its construction goes on; the end of it comes back here.
            State::Pending => {}
            // Nothing to drop: whoever spoke of it has let go before it came.
            State::Expected => {
                self.owned.remove(&id);
                self.expected -= 1;
            }
            State::Live | State::Failed(_) => {
                self.owned.remove(&id);
                self.effects.push(Effect::Free(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_small() {
        // B-tree leaves are little more than half full after appends: 88 bytes make about 160.
        assert!(size_of::<Owned>() <= 80, "{}", size_of::<Owned>());
    }
}
