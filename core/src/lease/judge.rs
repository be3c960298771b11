//! The main loop's part: renewals, questions and answers, and who is dead.

use super::clear::{Asker, Clearance, Reader, newest};
use super::clock::LeaseClock;
use super::settings::LeaseSettings;
use super::suspicion::Suspicion;
use crate::lifetime::Lifetime;
use crate::wire::Heartbeat;
use crate::{NodeUid, Rules, Seq, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// What has been found out about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It has been silent, or has not heard this node, for so long that calls to it should fail. Nothing
    /// is freed.
    Suspected(NodeUid, Suspicion),
    /// Its lease has run out. Nothing is freed.
    Lapsed(NodeUid),
    /// It was lapsed or fenced, and has renewed its lease.
    Returned(NodeUid),
    /// It is dead as a holder (R9): fence it, and end the session.
    Fence(NodeUid),
    /// It is out of reach as an owner (R13): give it up, and end the session.
    GiveUp(NodeUid),
}

/// A holder as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerState {
    /// Its lease runs.
    Up,
    /// Its lease has run out, and it keeps everything.
    Lapsed,
    /// It is dead, until it returns by a reset.
    Fenced,
}

/// One peer's leases, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The peer.
    pub peer: NodeUid,
    /// As a holder.
    pub state: PeerState,
    /// How long its lease still runs; zero if it has run out.
    pub left: Duration,
    /// Whether it has announced that it sends nothing more.
    pub leaving: bool,
    /// Whether others are being asked if it may be fenced or given up.
    pub asked_about: bool,
}

/// What is known of one peer's time. Times are by the lease clock unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    state: PeerState,
    /// The last renewal, or the first mention; none while the clock has not started.
    pub(super) renewed: Option<Duration>,
    /// The last sign of life that was no renewal.
    pub(super) sign: Option<Duration>,
    pub(super) suspected: Option<Suspicion>,
    /// It has sent a heartbeat ever.
    heard: bool,
    /// The last echo, or the first mention.
    pub(super) echoed: Option<Duration>,
    /// When the last heartbeat that it echoed was sent, by the caller's clock.
    pub(super) echo_sent: Option<Duration>,
    /// Given up, and no reset since.
    given_up: bool,
    leaving: bool,
    /// Its answer: the newest of our questions that it was clear after.
    answered: u64,
    /// Its newest question.
    asked: u64,
    /// Its newest question after which our readers were found drained, with our last claim to it then.
    drained: Option<(u64, Stamp)>,
    /// Our answer.
    clear: u64,
    /// Our question since its silence has been long enough to fence it, or to give it up.
    fence_after: Option<u64>,
    give_up_after: Option<u64>,
    /// The mismatch of digests last seen: what it listed and what we held.
    mismatch: Option<[crate::lifetime::Digest; 2]>,
}

impl Lease {
    fn new(time: Option<Duration>) -> Lease {
        Lease {
            state: PeerState::Up,
            renewed: time,
            sign: None,
            suspected: None,
            heard: false,
            echoed: time,
            echo_sent: None,
            given_up: false,
            leaving: false,
            answered: 0,
            asked: 0,
            drained: None,
            clear: 0,
            fence_after: None,
            give_up_after: None,
            mismatch: None,
        }
    }
}

/// The leases of one node with all its peers; see the module's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leases {
    me: NodeUid,
    rules: Rules,
    pub(super) settings: LeaseSettings,
    pub(super) clock: LeaseClock,
    pub(super) peers: BTreeMap<NodeUid, Lease>,
    clearance: Clearance,
    /// The time by the lease clock at the last tick.
    ticked: Duration,
    /// Our last question.
    question: u64,
    news: bool,
}

impl Leases {
    /// Without peers, as of `now`. The settings should have passed [`LeaseSettings::check`].
    pub fn new(me: NodeUid, rules: Rules, settings: LeaseSettings, now: Duration) -> Leases {
        let clock = LeaseClock::new(now, settings.heartbeat, rules.extend_when_late);
        let mut clearance = Clearance::default();
        clearance.opened(Reader::Keeper);
        Leases {
            me,
            rules,
            settings,
            clock,
            peers: BTreeMap::new(),
            clearance,
            ticked: now,
            question: 0,
            news: false,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &LeaseSettings {
        &self.settings
    }

    /// A node has been heard of: its lease clock starts, unless it runs. So one that dies before it ever
    /// connects is found dead too, and one that has never connected is asked before others are.
    pub fn mention(&mut self, now: Duration, peer: NodeUid) {
        if peer == self.me || self.peers.contains_key(&peer) {
            return;
        }
        let time = self.rules.clock_from_mention.then(|| self.clock.time(now));
        self.peers.insert(peer, Lease::new(time));
        self.news = true;
    }

    /// A node is gone for good, and nothing hangs on it any more.
    pub fn forget(&mut self, peer: NodeUid) {
        self.peers.remove(&peer);
    }

    /// The nodes to which heartbeats go.
    pub fn peers(&self) -> impl Iterator<Item = NodeUid> {
        self.peers.keys().copied()
    }

    /// Input may come by this reader from now on.
    pub fn reader_opened(&mut self, reader: Reader) {
        self.clearance.opened(reader);
    }

    /// No input comes by it any more; what it had received and not given is lost.
    pub fn reader_closed(&mut self, reader: Reader) {
        self.clearance.closed(reader);
    }

    /// It was polled until it had nothing more, and everything it gave has been processed.
    pub fn reader_drained(&mut self, reader: Reader) {
        self.clearance.drained(reader);
    }

    /// The readers that have to be polled before something can be judged or answered.
    pub fn behind(&self) -> impl Iterator<Item = Reader> {
        self.clearance.behind()
    }

    /// The lane to the peer is in a new session.
    pub fn session_reset(&mut self, now: Duration, peer: NodeUid) {
        self.mention(now, peer);
        let time = self.clock.time(now);
        let Some(lease) = self.peers.get_mut(&peer) else { return };
        lease.given_up = false;
        lease.give_up_after = None;
        lease.echoed = Some(time);
        lease.echo_sent = None;
        lease.mismatch = None;
        lease.renewed = Some(time);
        lease.suspected = None;
        lease.fence_after = None;
        if lease.state == PeerState::Fenced {
            lease.state = PeerState::Lapsed;
        }
        // Our claims have other positions now: what it asked is asked again.
        lease.drained = None;
        if lease.asked > lease.clear {
            self.clearance.ask(Asker::Peer(peer, lease.asked));
        }
    }

    /// A heartbeat has arrived. `session_no` is the session that the lane to its sender is in, 0 if that
    /// has ended. Returns whether it renewed the lease: one of another session does not.
    pub fn on_heartbeat(&mut self, now: Duration, from: NodeUid, beat: &Heartbeat, session_no: u32) -> bool {
        self.mention(now, from);
        let time = self.clock.time(now);
        let tick = self.ticked;
        let Some(lease) = self.peers.get_mut(&from) else { return false };
        if beat.uid != from || session_no == 0 || beat.session_no != session_no {
            return false;
        }
        lease.heard = true;
        lease.renewed = Some(time);
        lease.disproves(Suspicion::Silent);
        lease.fence_after = None;
        if beat.asks > lease.asked {
            lease.asked = beat.asks;
            self.clearance.ask(Asker::Peer(from, beat.asks));
        }
        if beat.clear > lease.answered && beat.clear <= self.question {
            lease.answered = beat.clear;
            if self.peers.values().any(|lease| lease.fence_after.is_some() || lease.give_up_after.is_some()) {
                self.clearance.ask(Asker::Judge(tick));
            }
        }
        true
    }

    /// The peer has echoed the heartbeat that was sent at `sent`, in the current session.
    pub fn on_echo(&mut self, now: Duration, from: NodeUid, sent: Duration) {
        let time = self.clock.time(now);
        let Some(lease) = self.peers.get_mut(&from) else { return };
        if lease.given_up {
            return;
        }
        lease.echoed = Some(time);
        lease.give_up_after = None;
        lease.echo_sent = lease.echo_sent.max(Some(sent));
        lease.disproves(Suspicion::Unheard);
    }

    /// The peer sends nothing more. What it is listed for ages out as after a crash, but it is not asked
    /// any more: it has let go of what it had received.
    pub fn left(&mut self, peer: NodeUid) {
        if let Some(lease) = self.peers.get_mut(&peer) {
            lease.leaving = true;
        }
    }

    /// Without the rule that a leaving node's listings age out: they end at once.
    fn fence_leavers(&mut self, verdicts: &mut Vec<Verdict>) {
        for (peer, lease) in &mut self.peers {
            if lease.leaving && lease.state != PeerState::Fenced {
                lease.state = PeerState::Fenced;
                verdicts.push(Verdict::Fence(*peer));
            }
        }
    }

    /// A heartbeat period has passed. Everything is judged once all readers are drained. Returns how
    /// late the tick was; above a second or so the main loop was blocked.
    pub fn tick(&mut self, now: Duration, lifetime: &Lifetime) -> Duration {
        let late = self.clock.tick(now);
        self.ticked = self.clock.time(now);
        let mentioned: Vec<NodeUid> = lifetime.mentioned().collect();
        for peer in mentioned {
            self.mention(now, peer);
        }
        self.clearance.ask(Asker::Judge(self.ticked));
        late
    }

    /// Goes as far as what has been delivered allows. Cheap when nothing has changed.
    pub fn advance(&mut self, lifetime: &Lifetime) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if !self.rules.keep_listings_of_leavers {
            self.fence_leavers(&mut verdicts);
        }
        if !self.rules.drain_before_judging {
            self.judge(self.ticked, lifetime, &mut verdicts);
        }
        loop {
            let round = self.clearance.advance();
            if round.is_empty() {
                break;
            }
            for (peer, question) in newest(&round) {
                if let Some(lease) = self.peers.get_mut(&peer) {
                    lease.drained = Some((question, lifetime.last_claim(peer)));
                }
            }
            let judged = round.iter().filter_map(|asker| match asker {
                Asker::Judge(time) => Some(*time),
                Asker::Peer(..) => None,
            });
            if let Some(time) = judged.max() {
                self.judge(time, lifetime, &mut verdicts);
            }
        }
        self.answer(lifetime);
        verdicts
    }

    /// Updates our answers: clear is who has no unprocessed input and no claim of before under way.
    fn answer(&mut self, lifetime: &Lifetime) {
        for (peer, lease) in &mut self.peers {
            if !self.rules.clear_when_drained && lease.asked > lease.clear {
                lease.drained = Some((lease.asked, lifetime.last_claim(*peer)));
            }
            if let Some((question, claim)) = lease.drained
                && question > lease.clear
                && (!self.rules.clear_when_claims_acked || lifetime.is_claim_acked(*peer, claim))
            {
                lease.clear = question;
                self.news = true;
            }
        }
    }

    /// Whether what [`Leases::publish`] says has changed since this was asked last: then it should be
    /// published at once, not only with the next tick.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What our heartbeats to `peer` should say from now on: its lane is in session `session_no` (0 if
    /// that has ended), with everything of the peer's up to `ack` processed, and `at` our last position.
    pub fn publish(
        &self,
        lifetime: &Lifetime,
        peer: NodeUid,
        session_no: u32,
        ack: Seq,
        at: Seq,
    ) -> Heartbeat {
        let listed = lifetime.listed_for(peer);
        let clear = self.peers.get(&peer).map_or(0, |lease| lease.clear);
        Heartbeat { session_no, asks: self.question, clear, listed, ack, at, ..Heartbeat::default() }
    }

    /// Whether a heartbeat shows that the peer's table and ours differ, for the second time in the same
    /// way: then [`Lifetime::send_inventory`] is due, and somebody should look for the bug.
    pub fn differs(&mut self, lifetime: &Lifetime, from: NodeUid, beat: &Heartbeat) -> bool {
        let Some(lease) = self.peers.get_mut(&from) else { return false };
        let stamp = |seq| Stamp { session_no: beat.session_no, seq };
        let Some(held) = lifetime.holding_of(from, stamp(beat.ack), stamp(beat.at)) else { return false };
        if held == beat.listed {
            lease.mismatch = None;
            return false;
        }
        let mismatch = Some([held, beat.listed]);
        let again = lease.mismatch == mismatch || !self.rules.mismatch_twice;
        lease.mismatch = mismatch.filter(|_| !again);
        again
    }

    /// Whether nothing has been heard of the peer for TTL + grace, or ever.
    pub fn is_silent(&self, now: Duration, peer: NodeUid) -> bool {
        let time = self.clock.time(now);
        let renewed = self.peers.get(&peer).and_then(|lease| lease.renewed);
        renewed.is_none_or(|renewed| time.saturating_sub(renewed) >= self.settings.silence())
    }

    /// The peer's state as a holder; none if it has never been mentioned.
    pub fn state(&self, peer: NodeUid) -> Option<PeerState> {
        self.peers.get(&peer).map(|lease| lease.state)
    }

    /// All leases, in order of identity.
    pub fn report(&self, now: Duration) -> impl Iterator<Item = LeaseReport> {
        let time = self.clock.time(now);
        self.peers.iter().map(move |(peer, lease)| {
            let end = lease.renewed.map(|renewed| renewed.saturating_add(self.settings.ttl));
            LeaseReport {
                peer: *peer,
                state: lease.state,
                left: end.map_or(Duration::ZERO, |end| end.saturating_sub(time)),
                leaving: lease.leaving,
                asked_about: lease.fence_after.is_some() || lease.give_up_after.is_some(),
            }
        })
    }

    fn judge(&mut self, time: Duration, lifetime: &Lifetime, verdicts: &mut Vec<Verdict>) {
        let silent = |since: Option<Duration>| since.map(|since| time.saturating_sub(since));
        let (ttl, long, late) = (self.settings.ttl, self.settings.silence(), self.clock.late());
        let long = if self.rules.wait_for_grace { long } else { ttl };
        // One question for all whose silence has become long enough.
        let question = self.question + 1;
        let mut asks = false;
        for (peer, lease) in &mut self.peers {
            let silence = silent(lease.renewed);
            match lease.state {
                PeerState::Up if silence.is_some_and(|silence| silence >= ttl) => {
                    lease.state = PeerState::Lapsed;
                    verdicts.push(Verdict::Lapsed(*peer));
                }
                PeerState::Lapsed if silence.is_some_and(|silence| silence < ttl) => {
                    lease.state = PeerState::Up;
                    verdicts.push(Verdict::Returned(*peer));
                }
                _ => {}
            }
            if let Some(suspicion) = lease.raises_suspicion(time, late, &self.settings) {
                lease.suspected = Some(suspicion);
                verdicts.push(Verdict::Suspected(*peer, suspicion));
            }
            let dead = lease.state != PeerState::Fenced && silence.is_some_and(|silence| silence >= long);
            if dead && lease.fence_after.is_none() && (lifetime.is_held_by(*peer) || lease.heard) {
                lease.fence_after = Some(question);
                asks = true;
            }
            let lost = !lease.given_up && silent(lease.echoed).is_some_and(|silence| silence >= long);
            if lost && self.rules.give_up && lease.give_up_after.is_none() && lifetime.depends_on(*peer) {
                lease.give_up_after = Some(question);
                asks = true;
            }
        }
        if asks {
            self.question = question;
            self.news = true;
        }
        let due: Vec<Verdict> =
            self.peers.iter().flat_map(|(peer, lease)| self.due(time, *peer, lease)).collect();
        for verdict in &due {
            match verdict {
                Verdict::Fence(peer) => {
                    if let Some(lease) = self.peers.get_mut(peer) {
                        lease.state = PeerState::Fenced;
                        lease.fence_after = None;
                    }
                }
                Verdict::GiveUp(peer) => {
                    if let Some(lease) = self.peers.get_mut(peer) {
                        lease.given_up = true;
                        lease.give_up_after = None;
                    }
                }
                Verdict::Suspected(..) | Verdict::Lapsed(_) | Verdict::Returned(_) => {}
            }
        }
        verdicts.extend(due);
    }

    /// What can be done about a peer now.
    fn due(&self, time: Duration, peer: NodeUid, lease: &Lease) -> impl Iterator<Item = Verdict> {
        let answered = |question: &u64| self.all_clear(time, peer, *question);
        let fence = lease.fence_after.as_ref().is_some_and(answered);
        let give_up = lease.give_up_after.as_ref().is_some_and(answered);
        fence.then_some(Verdict::Fence(peer)).into_iter().chain(give_up.then_some(Verdict::GiveUp(peer)))
    }

    /// Whether everybody who might still hold something unread has been clear after this question.
    fn all_clear(&self, time: Duration, about: NodeUid, question: u64) -> bool {
        let asked = |peer: NodeUid, lease: &Lease| {
            let silence = lease.renewed.map(|renewed| time.saturating_sub(renewed));
            let limit = if self.rules.ask_lapsed { self.settings.silence() } else { self.settings.ttl };
            peer != about
                && !lease.leaving
                && lease.state != PeerState::Fenced
                && (lease.heard || self.rules.ask_unheard)
                && silence.is_some_and(|silence| silence < limit)
        };
        let enough = if self.rules.ask_after_silence { question } else { 1 };
        !self.rules.wait_for_clear
            || self.peers.iter().all(|(peer, lease)| !asked(*peer, lease) || lease.answered >= enough)
    }
}
