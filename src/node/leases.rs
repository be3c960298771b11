//! The home arbiter's part of leases: it delivers to the core what has happened, and carries out its
//! verdicts.
//!
//! When somebody is dead is judged by [`rref_core::lease`]; heartbeats are moved by the keeper.

use super::Node;
use super::keeper::Command;
use super::peer::Link;
use super::state::{Lanes, Phase, State};
use crate::error::Error;
use rref_core::lease::{Reader, Verdict};
use rref_core::wire::{Channel, Heartbeat, Hello, PROTOCOL_VERSION};
use rref_core::{NodeUid, session::Position};
use std::time::Duration;

/// A tick that is later than this says that the thread was blocked.
const LATE: Duration = Duration::from_secs(1);

impl Node {
    /// Time since the node has started.
    pub(crate) fn now(&self) -> Duration {
        self.inner().clock.now()
    }

    /// Ticks for as long as the node lives.
    pub(crate) async fn keep_leases(self) {
        let mut closed = self.inner().closed.subscribe();
        let period = self.inner().config.leases.heartbeat;
        let mut due = self.now().saturating_add(period);
        loop {
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = self.inner().clock.sleep_until(due) => {}
            }
            self.tick();
            due = self.now().saturating_add(period);
        }
    }

    fn tick(&self) {
        let mut state = self.lock();
        let now = state.now();
        let State { leases, lifetime, .. } = &mut *state;
        let late = leases.tick(now, lifetime);
        if late > LATE {
            tracing::warn!(
                "the thread of `{}` was blocked for {late:?}: a handler or a function computes or waits in it; give it `Placement::Blocking` or `Placement::Dedicated`",
                self.name()
            );
        }
        state.forget_sessions();
        state.end_stalled();
        state.forget_dead();
        state.publish_leases();
        self.advance_leases(&mut state);
    }

    /// A peer's heartbeat has come.
    pub(crate) fn heartbeat_arrived(&self, from: NodeUid, beat: &Heartbeat) {
        let mut state = self.lock();
        if state.phase == Phase::Closed {
            return;
        }
        self.heard(&mut state, from);
        let now = state.now();
        let session_no = state.peers.get(&from).map_or(0, |peer| peer.lane.live_session());
        if state.leases.on_heartbeat(now, from, beat, session_no) {
            let State { leases, lifetime, .. } = &mut *state;
            if leases.differs(lifetime, from, beat) {
                state.divergences += 1;
                let name = state.name_of(from);
                tracing::error!(
                    "`{name}` lists this node for other objects than it holds: the tables are made equal; please report this, it should not happen"
                );
                let state = &mut *state;
                state.lifetime.send_inventory(from, &mut Lanes { peers: &mut state.peers });
                state.wake(from);
            }
        }
        self.advance_leases(&mut state);
    }

    /// A peer has echoed the heartbeat that was sent at `sent`.
    pub(crate) fn echo_arrived(&self, from: NodeUid, sent: Duration) {
        let mut state = self.lock();
        let now = state.now();
        state.leases.on_echo(now, from, sent);
        self.heard(&mut state, from);
        self.advance_leases(&mut state);
    }

    /// Something has come from a peer.
    fn heard(&self, state: &mut State, from: NodeUid) {
        if state.showed_life(from) {
            // Who waits for it looks again.
            let node = self.clone();
            state.after(move || node.inner().peers_changed.notify_waiters());
        }
    }

    /// A reader was polled until it had nothing more.
    pub(crate) fn reader_drained(&self, reader: Reader) {
        let mut state = self.lock();
        state.leases.reader_drained(reader);
        self.advance_leases(&mut state);
    }

    /// Goes as far as what was delivered allows, and has the readers polled that are behind.
    pub(crate) fn advance_leases(&self, state: &mut State) {
        let State { leases, lifetime, .. } = &mut *state;
        let verdicts = leases.advance(lifetime);
        if !verdicts.is_empty() {
            // Who waits for a peer looks again.
            let node = self.clone();
            state.after(move || node.inner().peers_changed.notify_waiters());
        }
        for verdict in verdicts {
            state.carry_out(verdict);
        }
        if state.leases.take_news() {
            state.publish_leases();
        }
        let behind: Vec<Reader> = state.leases.behind().collect();
        if behind.is_empty() || std::mem::replace(&mut state.looking, true) {
            return;
        }
        let node = self.clone();
        state.after(move || {
            let home = node.clone();
            home.inner().home.run(move || drop(actix_rt::spawn(node.look())));
        });
    }

    /// Has everything polled that may hold unread input.
    async fn look(self) {
        // Each turn, the runtime looks at the sockets: what has arrived by now is seen by the polls.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut state = self.lock();
        state.looking = false;
        let behind: Vec<Reader> = state.leases.behind().collect();
        for reader in behind {
            match reader {
                Reader::Lane(uid) => state.drain(uid),
                Reader::Keeper => state.keeper.tell(Command::Look),
            }
        }
    }

    /// What this node says to a peer's keeper.
    pub(crate) fn keeper_hello(&self) -> Hello {
        let (token, version) = (self.inner().config.token, PROTOCOL_VERSION);
        let endpoint = self.endpoint(&self.lock(), None, Position::UNKNOWN);
        Hello { channel: Channel::Keeper, version_min: version, version_max: version, token, endpoint }
    }
}

impl State {
    /// Has the connection to `uid` polled, which then says that it holds nothing unread.
    fn drain(&mut self, uid: NodeUid) {
        self.want_drained(uid);
        if let Some(peer) = self.peers.get(&uid)
            && let Some(poller) = peer.poller.clone()
        {
            self.after(move || poller.wake());
        }
    }

    /// Tells the keeper what to say to everybody.
    pub(crate) fn publish_leases(&mut self) {
        let peers: Vec<NodeUid> = self.leases.peers().collect();
        for uid in peers {
            let Some(peer) = self.peers.get(&uid) else { continue };
            let (ack, at) = (peer.lane.processed(), peer.lane.last_assigned());
            let beat = self.leases.publish(&self.lifetime, uid, peer.lane.live_session(), ack, at);
            let dead = matches!(peer.link, Link::Dead(_));
            let addresses = if dead { Vec::new() } else { peer.info.addresses.clone() };
            let dials = self.lifetime.me() < uid || !self.listens;
            self.keeper.tell(Command::Publish { peer: uid, beat, addresses, dials });
        }
    }

    fn carry_out(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Suspected(uid, suspicion) => self.suspect_silent(uid, suspicion),
            Verdict::Lapsed(uid) => {
                tracing::info!(
                    "the lease of `{}` has run out; what it holds is kept for now",
                    self.name_of(uid)
                );
            }
            Verdict::Returned(uid) => tracing::info!("`{}` has renewed its lease", self.name_of(uid)),
            Verdict::Fence(uid) => {
                tracing::warn!(
                    "`{}` has been silent for longer than its lease and the grace: what it held here is let go",
                    self.name_of(uid)
                );
                self.end_session(uid);
                self.lifetime.fence(uid, &mut Lanes { peers: &mut self.peers });
                self.fail_parked(uid);
            }
            Verdict::GiveUp(uid) => self.give_up(uid),
        }
    }

    /// The owner has been out of reach for longer than any lease: its references are broken.
    fn give_up(&mut self, uid: NodeUid) {
        let name = self.name_of(uid);
        let reason = "it has been out of reach for longer than its leases last".to_string();
        tracing::warn!("`{name}` is given up: {reason}; references to its objects are broken");
        self.end_session(uid);
        self.lose_way(uid, &name, &reason);
        self.lifetime.give_up(uid);
        // What it owned settles now, and those who handed it to us want to know.
        self.arm();
    }

    /// Nothing of what is under way to `uid` has a known outcome. Not every owner is a peer: references
    /// may outlive what is known of their owner.
    fn lose_way(&mut self, uid: NodeUid, name: &str, reason: &str) {
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        match peer.link {
            Link::Dead(_) => {}
            Link::Idle => {
                peer.link = Link::Unreachable(reason.to_string());
                self.to_dial.push(uid);
            }
            _ => peer.link = Link::Unreachable(reason.to_string()),
        }
        let unsent = peer.outbound.drain();
        self.later(unsent);
        self.fail_inlets(uid, &Error::OutcomeUnknown { peer: name.into(), reason: reason.into() });
        self.end_calls(uid, |_, call| Some(call.lost(name, reason, u64::MAX)));
    }

    /// Forgets nodes that are gone for good, once nothing hangs on them any more.
    fn forget_dead(&mut self) {
        let now = self.now();
        // Of some, nothing was ever known but what they owned or were to create.
        let dead = |uid: &NodeUid| {
            self.peers
                .get(uid)
                .is_none_or(|peer| matches!(peer.link, Link::Dead(_)) && peer.running.is_empty())
        };
        let gone = |uid: &NodeUid| self.leases.is_silent(now, *uid) && dead(uid);
        let gone: Vec<NodeUid> = self.leases.peers().filter(gone).collect();
        for uid in gone {
            // Handles that are dead still say whose they were.
            if !self.lifetime.forget(uid) {
                continue;
            }
            self.leases.forget(uid);
            self.keeper.tell(Command::Forget(uid));
            let Some(peer) = self.peers.remove(&uid) else { continue };
            if self.by_name.get(&peer.info.name) == Some(&uid) {
                self.by_name.remove(&peer.info.name);
            }
            self.later(peer);
        }
    }
}
