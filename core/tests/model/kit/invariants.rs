//! What must hold: in every state, and when nothing can happen any more.

use super::setup::{Hit, Setup};
use super::world::{Content, Packet, World, index, uid};
use rref_core::lifetime::{HandleKey, HeldReport};
use rref_core::{ObjectId, Stamp};

impl World {
    /// I1 to I5 and I7; the others are checked where they could break.
    pub fn check_invariants(&mut self, setup: &Setup) {
        let result = self.holds(setup);
        self.check(result);
    }

    fn holds(&self, setup: &Setup) -> Result<(), String> {
        let freed = &self.ghost.freed;
        for (i, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let own = node.handles.iter().chain(node.inside.iter().map(|(_, key)| key));
            for key in own.filter(|key| key.id.owner == uid(i) && key.generation == 0) {
                if freed.contains(&key.id) {
                    return Err(format!("I7: {} freed under its owner's own handle", key.id));
                }
            }
            self.all_handles_count(i)?;
            self.pins_lie_above(i)?;
            let mut chain = false;
            for held in node.life.held().filter(|held| held.broken.is_none()) {
                // A confirmation is as good as the session it came in.
                let excused =
                    if held.confirmed { self.is_stale(i, held.id) } else { self.is_lost(i, held.id) };
                if freed.contains(&held.id) && !excused && held.handles + held.pins.len() as u64 > 0 {
                    return Err(format!("I1: {} freed while {i} has {held:?}", held.id));
                }
                if held.confirmed && !excused && !self.is_listed(i, held.id) {
                    return Err(format!("I4: {i} is confirmed for {} but not listed", held.id));
                }
                // A pin of a pin of an entry that waits for its claim.
                chain |= held.pins.iter().any(|(to, _)| {
                    let mut next = self.nodes[index(*to)].life.held();
                    next.any(|h| {
                        h.id == held.id
                            && !h.confirmed
                            && h.pins.iter().any(|(last, _)| {
                                self.nodes[index(*last)].life.held().any(|l| l.id == held.id && !l.confirmed)
                            })
                    })
                });
            }
            if chain {
                setup.hit(Hit::Chain);
            }
        }
        self.nothing_freed_in_flight()?;
        for (owner, holder) in self.pairs() {
            self.tables_agree(owner, holder)?;
        }
        Ok(())
    }

    /// Every handle of the application is counted, alive or broken.
    fn all_handles_count(&self, i: usize) -> Result<(), String> {
        let node = &self.nodes[i];
        let waiting = node.transfers.iter().map(|(_, key)| key);
        let all = node.handles.iter().chain(node.inside.iter().map(|(_, key)| key)).chain(waiting);
        let foreign = all.filter(|key| key.id.owner != uid(i));
        let mut counts = std::collections::BTreeMap::<HandleKey, u64>::new();
        foreign.for_each(|key| *counts.entry(*key).or_default() += 1);
        for (key, count) in counts {
            let entry = |h: &HeldReport| h.id == key.id && h.generation == key.generation;
            let counted = node.life.held().find(entry).map_or(0, |held| held.handles);
            if counted != count {
                return Err(format!("I1: {i} has {count} handles {key:?}, {counted} are counted"));
            }
        }
        Ok(())
    }

    /// I5: what a receiver has settled is not pinned any more, whatever became of its session since.
    fn pins_lie_above(&self, i: usize) -> Result<(), String> {
        let node = &self.nodes[i];
        let mut count = 0;
        for held in node.life.held() {
            count += held.pins.len();
            for (to, at) in &held.pins {
                let Some(lane) = node.lanes.get(&index(*to)) else { continue };
                let (settled, except) = lane.settled_marks();
                let upto = match except {
                    Some(except) if !except.exceptions.contains(&held.id.owner) => settled.max(except.upto),
                    _ => settled,
                };
                // A session in which nothing is settled says nothing of pins from before it.
                if upto > 0 && *at <= (Stamp { session_no: lane.session_no(), seq: upto }) {
                    return Err(format!("I5: {i} pins {} at {at:?}, {to} has settled {upto}", held.id));
                }
            }
        }
        if count != node.life.pin_count() {
            return Err(format!("I5: {i} has {count} pins, and looks for {}", node.life.pin_count()));
        }
        Ok(())
    }

    /// With nothing under way, a pin on an object whose owner the receiver can reach is settled, whichever
    /// other owners are out of its reach.
    pub fn no_pin_waits_for_another_owner(&self, setup: &Setup) -> Result<(), String> {
        if !setup.exceptions || self.nodes.iter().any(|node| node.blocked || node.left) {
            return Ok(());
        }
        let well =
            |a: usize, b: usize| a == b || (self.nodes[a].alive && self.nodes[b].alive && !self.is_cut(a, b));
        for (i, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            for held in node.life.held() {
                for (to, at) in &held.pins {
                    let (to, owner) = (index(*to), index(held.id.owner));
                    if well(i, to) && well(to, owner) {
                        return Err(format!("the pin of {i} on {} to {to} at {at:?} waits", held.id));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a node has lost its lease, or its session, with the owner of an object, or has the handle
    /// from one that had.
    fn is_lost(&self, i: usize, id: ObjectId) -> bool {
        let owner = index(id.owner);
        self.ghost.tainted.contains(&(i, id))
            // Its creation was lost; a Gone is on its way to whoever claimed it.
            || !self.ghost.begun.contains(&id)
            || !self.nodes[owner].alive
            || self.nodes[owner].lanes.get(&i).is_none_or(|lane| lane.is_ended())
            || self.nodes[i].life.is_given_up(id.owner)
    }

    /// Whether what a node believes of an object stems from a session that the owner has left.
    fn is_stale(&self, i: usize, id: ObjectId) -> bool {
        let owner = index(id.owner);
        let session =
            |a: usize, b: usize| self.nodes[a].lanes.get(&b).map(|lane| (lane.session_no(), lane.is_ended()));
        !self.nodes[owner].alive
            || !self.ghost.begun.contains(&id)
            || self.nodes[i].life.is_given_up(id.owner)
            || session(owner, i) != session(i, owner)
            || session(owner, i).is_some_and(|(_, ended)| ended)
    }

    fn is_listed(&self, i: usize, id: ObjectId) -> bool {
        let mut owned = self.nodes[index(id.owner)].life.owned();
        owned.any(|owned| owned.id == id && owned.holders.contains(&uid(i)))
    }

    /// I2: what is on its way to a live node is not freed.
    fn nothing_freed_in_flight(&self) -> Result<(), String> {
        if self.ghost.freed.is_empty() {
            return Ok(());
        }
        let waiting =
            self.frames.iter().flat_map(|(pair, frames)| frames.values().map(move |frame| (pair, frame)));
        let packets =
            self.wire.iter().flat_map(|(pair, packets)| packets.iter().map(move |packet| (pair, packet)));
        let flying = packets.filter_map(|(pair, packet)| match packet {
            Packet::Frame(frame) => Some((pair, frame)),
            Packet::Ack { .. } => None,
        });
        for ((from, to), frame) in waiting.chain(flying) {
            let Content::Message(refs) = &frame.content else { continue };
            let processed = self.nodes[*to].lanes.get(from).map_or(0, |lane| lane.processed());
            // One that dies with the next Hello matters to nobody.
            let lane = |i: usize, j: usize| self.nodes[i].lanes.get(&j);
            let lost = !self.nodes[*to].alive
                || self.nodes[*to].left
                || lane(*to, *from).is_none_or(|lane| lane.is_ended())
                || (self.nodes[*from].alive
                    && lane(*from, *to).map(|l| l.session_no()) != lane(*to, *from).map(|l| l.session_no()));
            for (id, tainted) in refs {
                if self.ghost.freed.contains(id) && !tainted && !lost && frame.seq > processed {
                    return Err(format!("I2: {id} freed while it is on its way from {from} to {to}"));
                }
            }
        }
        Ok(())
    }

    /// I3 and I4: with nothing under way between them, both tables say the same.
    fn tables_agree(&self, owner: usize, holder: usize) -> Result<(), String> {
        let (o, h) = (&self.nodes[owner], &self.nodes[holder]);
        let (Some(to), Some(back)) = (o.lanes.get(&holder), h.lanes.get(&owner)) else { return Ok(()) };
        let quiet = to.is_connected()
            && back.is_connected()
            && to.session_no() == back.session_no()
            && to.processed() == back.last_assigned()
            && back.processed() == to.last_assigned();
        if !quiet {
            return Ok(());
        }
        let at = |lane: &rref_core::session::Lane<u64>| Stamp {
            session_no: lane.session_no(),
            seq: lane.processed(),
        };
        let Some(held) = h.life.holding_of(uid(owner), at(to), at(back)) else { return Ok(()) };
        if held != o.life.listed_for(uid(holder)) {
            return Err(format!(
                "I3: {owner} lists {holder} for {:?}, which holds {held:?}",
                o.life.listed_for(uid(holder))
            ));
        }
        Ok(())
    }

    /// Whether nothing is left, once nothing can happen any more.
    pub fn is_clean(&self) -> Result<(), String> {
        for (i, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            if !node.life.is_clean() {
                return Err(format!("LEAK at {i}: {:#?}", node.life));
            }
            if !node.parked.is_empty() {
                return Err(format!("calls parked for ever at {i}: {:?}", node.parked));
            }
            let owned = self.ghost.begun.iter().filter(|id| id.owner == uid(i));
            for id in owned {
                if !self.ghost.freed.contains(id) {
                    return Err(format!("LEAK: {id} is never freed"));
                }
            }
        }
        Ok(())
    }
}
