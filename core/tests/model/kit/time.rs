//! Heartbeats, ticks and verdicts: the caller's side of the leases.
//!
//! A tick of a node's clock is one heartbeat period. Clocks of live nodes are at most
//! [`Setup::skew`] ticks apart. Between two ticks of a node, whatever a healthy node has been sent is
//! processed: that is what the protocol assumes of the longest delay.

use super::setup::{Hit, Setup};
use super::world::{Content, Packet, World, index, uid};
use rref_core::ObjectId;
use rref_core::lease::{Reader, Verdict};
use rref_core::wire::Heartbeat;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A tick.
pub const TICK: Duration = Duration::from_secs(1);

impl World {
    fn now(&self, i: usize) -> Duration {
        TICK * u32::try_from(self.nodes[i].now).unwrap_or(u32::MAX)
    }

    pub fn may_tick(&self, setup: &Setup, i: usize) -> bool {
        let needless = self.nodes[i].now >= setup.runs && !self.time_matters(setup);
        if !setup.timed || needless || self.nodes[i].left {
            return false;
        }
        if setup.slow_mail
            && !self.nodes[i].blocked
            && !self.nodes[i].inbox.is_empty()
            && self.nodes[i].now >= setup.mail_waits
        {
            return false;
        }
        if self.nodes[i].blocked && self.nodes[i].slept >= setup.longest_block {
            return false;
        }
        let real = |i: usize| self.nodes[i].now * setup.period(i);
        let running = (0..self.nodes.len()).filter(|j| self.nodes[*j].alive && !self.nodes[*j].left);
        if real(i) > running.map(real).min().unwrap_or(0) + setup.skew {
            return false;
        }
        // Word of members spreads within TTL + grace.
        let silence = u64::from(setup.ttl + setup.grace);
        let stranger = |(a, b): &(usize, usize)| *a == i || *b == i;
        if self.nodes[i].now + 1 >= silence && self.strangers.iter().any(stranger) {
            return false;
        }
        let ticks_first = |j: usize| self.nodes[j].alive && !self.nodes[j].left && real(j) <= real(i);
        if setup.ordered_ticks && (0..i).any(ticks_first) {
            return false;
        }
        // A node that has left may take its time, but not for ever.
        if self.nodes.iter().any(|node| node.left) && self.nodes[i].now >= setup.last_exit {
            return false;
        }
        self.pairs().all(|(from, to)| self.is_caught_up(setup, from, to))
    }

    /// Whether somebody waits for somebody who is silent.
    fn time_matters(&self, setup: &Setup) -> bool {
        self.pairs().any(|(i, j)| {
            let asleep = self.nodes[i].blocked && setup.sleepers.contains(&i);
            if asleep {
                return true;
            }
            let silent = !self.nodes[j].alive || self.nodes[j].left || self.is_cut(i, j);
            let life = &self.nodes[i].life;
            self.nodes[i].alive && silent && (life.is_held_by(uid(j)) || life.depends_on(uid(j)))
        })
    }

    /// Whether nothing waits between the two that a healthy node would have processed by now.
    fn is_caught_up(&self, setup: &Setup, from: usize, to: usize) -> bool {
        let (sender, receiver) = (&self.nodes[from], &self.nodes[to]);
        if !receiver.alive || receiver.blocked || receiver.left {
            return true;
        }
        if self.wire.get(&(from, to)).is_some_and(|wire| !wire.is_empty()) {
            return false;
        }
        if !sender.alive || self.is_cut(from, to) {
            return true;
        }
        if !sender.transfers.is_empty() {
            return false;
        }
        if !receiver.inbox.is_empty() && (!setup.slow_mail || receiver.now >= setup.mail_waits) {
            return false;
        }
        if self.answers.contains_key(&(from, to)) && !sender.blocked {
            return false;
        }
        let lane = |i: usize, j: usize| self.nodes[i].lanes.get(&j);
        let down = lane(from, to).is_some_and(|lane| !lane.is_connected())
            || lane(to, from).is_some_and(|lane| !lane.is_connected());
        if down {
            return sender.blocked || sender.left;
        }
        !lane(from, to).is_some_and(|lane| lane.has_unsent())
            && (sender.blocked || sender.left || !self.has_ack_news(setup, from, to))
    }

    fn has_ack_news(&self, setup: &Setup, from: usize, to: usize) -> bool {
        self.is_ack_news(setup, from, to, false)
            || (setup.exceptions && self.is_ack_news(setup, from, to, true))
    }

    pub fn tick(&mut self, setup: &Setup, i: usize) {
        let waits = self.no_pin_waits_for_another_owner(setup);
        self.check(waits);
        self.nodes[i].now += 1;
        setup.latest.fetch_max(self.nodes[i].now, Ordering::Relaxed);
        let slowest = setup.periods.iter().copied().max().unwrap_or(1);
        if self.nodes[i].now * setup.period(i) > setup.bound() * slowest {
            self.fail("I8: waits for ever");
        }
        if self.nodes[i].blocked {
            self.nodes[i].slept += 1;
        } else {
            self.judge(i);
        }
        let beats = self.beat(setup, i);
        if beats > self.nodes.len() - 1 {
            self.fail(format!("I9: {beats} heartbeats in a tick"));
        }
    }

    /// The main loop's tick.
    fn judge(&mut self, i: usize) {
        let now = self.now(i);
        let node = &mut self.nodes[i];
        if let Some(leases) = &mut node.leases {
            leases.tick(now, &node.life);
        }
    }

    /// The keeper's beats, to everybody. Returns how many.
    fn beat(&mut self, setup: &Setup, i: usize) -> usize {
        if self.sleeps(setup, i) {
            return 0;
        }
        let peers: Vec<usize> = match &self.nodes[i].leases {
            Some(leases) => leases.peers().map(index).filter(|j| !self.are_strangers(i, *j)).collect(),
            None => return 0,
        };
        if self.nodes[i].left {
            return 0;
        }
        for j in &peers {
            let beat = match self.nodes[i].published.get(j) {
                Some(beat) => *beat,
                None => self.published(i, *j),
            };
            let beat = Heartbeat { uid: uid(i), nonce: 1, ..beat };
            if self.nodes[*j].alive && !self.cut.contains(&(i, *j)) && !self.sleeps(setup, *j) {
                let session_no = self.session(*j, i);
                self.nodes[*j].inbox.entry(i).or_default().0 = Some(beat);
                let echoed = session_no > 0 && session_no == beat.session_no;
                if echoed && !self.cut.contains(&(*j, i)) {
                    self.nodes[i].inbox.entry(*j).or_default().1 = true;
                }
            }
        }
        peers.len()
    }

    /// Whether the whole machine stands still, and what is sent to it is lost.
    fn sleeps(&self, setup: &Setup, i: usize) -> bool {
        self.nodes[i].blocked && setup.sleepers.contains(&i)
    }

    /// Two nodes hear of each other: each starts the other's clock, and their keepers connect.
    pub fn meet(&mut self, _: &Setup, a: usize, b: usize) {
        self.strangers.remove(&(a, b));
        for (i, j) in [(a, b), (b, a)] {
            let now = self.now(i);
            if let Some(leases) = &mut self.nodes[i].leases {
                leases.mention(now, uid(j));
                leases.reader_opened(Reader::Lane(uid(j)));
            }
        }
    }

    /// A node's first heartbeats.
    pub fn first_beats(&mut self, setup: &Setup, i: usize) {
        self.beat(setup, i);
    }

    fn session(&self, i: usize, j: usize) -> u32 {
        let lane = self.nodes[i].lanes.get(&j);
        lane.filter(|lane| !lane.is_ended()).map_or(0, |lane| lane.session_no())
    }

    fn published(&self, i: usize, j: usize) -> Heartbeat {
        let node = &self.nodes[i];
        let (Some(leases), Some(lane)) = (&node.leases, node.lanes.get(&j)) else {
            return Heartbeat::default();
        };
        leases.publish(&node.life, uid(j), self.session(i, j), lane.processed(), lane.last_assigned())
    }

    pub fn block(&mut self, setup: &Setup, i: usize) {
        self.budget.blocks -= 1;
        self.nodes[i].blocked = true;
        if setup.sleepers.contains(&i) {
            // The others have an excuse; the sleeper itself has none.
            for j in (0..self.nodes.len()).filter(|j| *j != i) {
                self.ghost.unheard.insert((j, i));
                self.ghost.unechoed.insert((j, i));
            }
        }
        self.nodes[i].slept = 0;
        let peers: Vec<usize> = self.nodes[i].lanes.keys().copied().collect();
        for j in peers {
            let beat = self.published(i, j);
            self.nodes[i].published.insert(j, beat);
        }
    }

    /// The main loop runs again. If ticks were missed, one is due, before anything is read.
    pub fn unblock(&mut self, setup: &Setup, i: usize) {
        let node = &mut self.nodes[i];
        node.blocked = false;
        node.published.clear();
        if std::mem::take(&mut node.slept) > 0 {
            self.judge(i);
            self.advance(setup, i);
        }
    }

    /// The main loop takes what the keeper has received.
    pub fn read_mail(&mut self, _: &Setup, i: usize) {
        let now = self.now(i);
        for (j, (beat, echoed)) in std::mem::take(&mut self.nodes[i].inbox) {
            let session_no = self.session(i, j);
            // Mail from before the sender ended its session says nothing of what it sends since.
            let together = session_no > 0 && session_no == self.session(j, i);
            let node = &mut self.nodes[i];
            let Some(leases) = &mut node.leases else { return };
            if let Some(beat) = beat
                && leases.on_heartbeat(now, uid(j), &beat, session_no)
                && together
                && !self.cut.contains(&(j, i))
            {
                self.ghost.unheard.remove(&(i, j));
            }
            if echoed {
                if together && !self.cut.contains(&(i, j)) && !self.cut.contains(&(j, i)) {
                    self.ghost.unechoed.remove(&(i, j));
                }
                leases.on_echo(now, uid(j), now);
            }
        }
    }

    /// Lets every main loop go as far as it can: mail is read, readers with nothing left are polled,
    /// what can be judged is judged, and what is new is said at once.
    pub fn settle_leases(&mut self, setup: &Setup) {
        for _ in 0..100 {
            let mut moved = false;
            for i in 0..self.nodes.len() {
                if !self.nodes[i].alive || self.nodes[i].blocked || self.nodes[i].left {
                    continue;
                }
                if !self.nodes[i].inbox.is_empty() && !setup.slow_mail {
                    self.read_mail(setup, i);
                    moved = true;
                }
                self.poll_readers(i);
                moved |= self.advance(setup, i);
                let news = self.nodes[i].leases.as_mut().is_some_and(|leases| leases.take_news());
                if news && setup.prompt {
                    self.beat(setup, i);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
        self.fail("the leases never come to rest");
    }

    /// A live sender's frames may still be in the network; a dead one's have arrived if they ever will.
    fn poll_readers(&mut self, i: usize) {
        let wires: Vec<usize> = self
            .wire
            .iter()
            .filter(|((_, to), wire)| *to == i && !wire.is_empty())
            .map(|((from, _), _)| *from)
            .collect();
        let mail = !self.nodes[i].inbox.is_empty();
        let Some(leases) = &mut self.nodes[i].leases else { return };
        let behind: Vec<Reader> = leases.behind().collect();
        for reader in behind {
            let full = match reader {
                Reader::Keeper => mail,
                Reader::Lane(from) => wires.contains(&index(from)),
            };
            if !full {
                leases.reader_drained(reader);
            }
        }
    }

    /// Acts on verdicts. Returns whether there were any.
    fn advance(&mut self, setup: &Setup, i: usize) -> bool {
        let node = &mut self.nodes[i];
        let Some(leases) = &mut node.leases else { return false };
        let verdicts = leases.advance(&node.life);
        for verdict in &verdicts {
            match verdict {
                Verdict::Fence(peer) => self.fence(setup, i, index(*peer)),
                Verdict::GiveUp(peer) => self.give_up(setup, i, index(*peer)),
                Verdict::Suspected(..) | Verdict::Lapsed(_) | Verdict::Returned(_) => {}
            }
        }
        !verdicts.is_empty()
    }

    fn fence(&mut self, setup: &Setup, i: usize, j: usize) {
        setup.hit(Hit::Fence);
        if self.nodes[j].alive && !self.nodes[j].left {
            if !self.ghost.unheard.contains(&(i, j)) {
                self.fail(format!("I1: {i} fenced {j}, which is well"));
            }
            self.taint(i, j);
        }
        if let Some(lane) = self.nodes[i].lanes.get(&j) {
            self.ghost.over.insert((j, i), lane.session_no());
        }
        if setup.rules.reset_after_fence {
            self.end_session(setup, i, j);
        }
        self.at(setup, i, |life, post| life.fence(uid(j), post));
    }

    fn give_up(&mut self, setup: &Setup, i: usize, j: usize) {
        setup.hit(Hit::GiveUp);
        if self.nodes[j].alive && !self.nodes[j].left && !self.ghost.unechoed.contains(&(i, j)) {
            self.fail(format!("I1: {i} gave {j} up, which is well"));
        }
        self.taint(j, i);
        if setup.rules.reset_after_give_up {
            self.end_session(setup, i, j);
        }
        self.at(setup, i, |life, _| life.give_up(uid(j)));
        self.nodes[i].queued.retain(|id| id.owner != uid(j));
    }

    /// `holder` has lost `owner`: what it has of the owner's, and what it has sent on and is not
    /// processed, may turn out to be gone.
    fn taint(&mut self, owner: usize, holder: usize) {
        let ids: Vec<ObjectId> =
            self.ghost.created.iter().filter(|id| id.owner == uid(owner)).copied().collect();
        for id in &ids {
            if self.nodes[holder].life.held().any(|held| held.id == *id && held.broken.is_none()) {
                self.ghost.tainted.insert((holder, *id));
            }
        }
        let lost = |id: &ObjectId| ids.contains(id);
        for ((from, to), frames) in &mut self.frames {
            for frame in frames.values_mut().filter(|_| *from == holder || *to == holder) {
                taint_content(&mut frame.content, &lost);
            }
        }
        for ((from, to), packets) in &mut self.wire {
            for packet in packets.iter_mut().filter(|_| *from == holder || *to == holder) {
                if let Packet::Frame(frame) = packet {
                    taint_content(&mut frame.content, &lost);
                }
            }
        }
    }

    pub fn connection_up(&mut self, setup: &Setup, i: usize, j: usize, reset: bool) {
        let now = self.now(i);
        if let Some(leases) = &mut self.nodes[i].leases {
            leases.reader_opened(Reader::Lane(uid(j)));
            if reset {
                setup.hit(Hit::Reset);
                leases.session_reset(now, uid(j));
            }
        } else if reset {
            setup.hit(Hit::Reset);
        }
    }

    pub fn connection_down(&mut self, _: &Setup, i: usize, j: usize) {
        if let Some(leases) = &mut self.nodes[i].leases {
            leases.reader_closed(Reader::Lane(uid(j)));
        }
    }
}

fn taint_content(content: &mut Content, lost: &impl Fn(&ObjectId) -> bool) {
    match content {
        Content::Message(refs) => {
            refs.iter_mut().filter(|(id, _)| lost(id)).for_each(|(_, tainted)| *tainted = true);
        }
        Content::Call(id, tainted) => *tainted |= lost(id),
        _ => {}
    }
}
