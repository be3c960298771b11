//! The life of a session above its connections: how it is resumed, begun anew and ended, and what
//! becomes of calls, streams, names and accounts then.
//!
//! Which of them is due is decided in the core, by the lanes and the leases; must not know bytes.

use super::peer::Peer;
use super::state::{Lanes, State};
use crate::error::Error;
use rref_core::lease::Reader;
use rref_core::session::{LaneError, Meeting, Position};
use rref_core::{NodeUid, Seq};
use std::sync::atomic::Ordering;

/// Which side of a handshake this node is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It has dialled, and the other one has answered.
    Dialler,
    /// It was dialled, and decides.
    Acceptor,
}

impl State {
    /// A new connection stands: the session goes on over it, or begins anew. Gives what to tell the
    /// other side of it.
    ///
    /// # Errors
    /// Why the connection is of no use; the session is as before, or has ended.
    pub(crate) fn meet(&mut self, uid: NodeUid, side: Side, peer: Position) -> Result<Position, LaneError> {
        let Some(known) = self.peers.get_mut(&uid) else { return Ok(Position::UNKNOWN) };
        let met = match side {
            Side::Acceptor => known.lane.hello_arrived(peer),
            Side::Dialler => known.lane.answer_arrived(peer).map(|meeting| (meeting, Position::UNKNOWN)),
        };
        let (meeting, position) = met?;
        known.down_since = None;
        if let Meeting::Reset { session_no, maybe_processed } = meeting {
            self.session_began(uid, session_no, maybe_processed);
        }
        self.leases.reader_opened(Reader::Lane(uid));
        Ok(position)
    }

    /// The lane to `uid` is in a new session. Of the old one, nothing beyond `maybe_processed` has been
    /// taken in over there.
    fn session_began(&mut self, uid: NodeUid, session_no: u32, maybe_processed: Seq) {
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        let name = peer.info.name.clone();
        tracing::warn!(
            "the session with `{name}` begins anew, as number {session_no}: calls under way end with `OutcomeUnknown` unless it is certain that they have not run"
        );
        peer.begin_session();
        let reason = "the session has begun anew".to_string();
        self.cancel_outlets(uid);
        self.fail_inlets(uid, &Error::OutcomeUnknown { peer: name.clone(), reason: reason.clone() });
        self.end_calls(uid, |_, call| call.cut_off(&name, &reason, maybe_processed));
        self.lifetime.reset(uid, session_no, &mut Lanes { peers: &mut self.peers });
        let now = self.now();
        self.leases.session_reset(now, uid);
        self.update_settled(uid);
        // News of members may have been lost with the old one.
        self.spread(uid);
        // So that heartbeats speak of it at once, not only with the next tick.
        self.publish_leases();
    }

    /// The session with `uid` cannot go on: its connection is closed, and the next one begins another.
    pub(crate) fn end_session(&mut self, uid: NodeUid) {
        self.leases.reader_closed(Reader::Lane(uid));
        self.was_drained(uid);
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        peer.lane.end_session();
        peer.down_since.get_or_insert(now);
        let wakers = peer.take_wakers();
        if peer.is_connected() {
            peer.lose_connection();
            self.to_dial.push(uid);
        }
        // Its task then sees that it is replaced.
        self.after(move || wakers.into_iter().flatten().for_each(|waker| waker.wake()));
        // What it owns can be excepted from what is settled.
        self.arm_later();
    }

    /// Ends the sessions with peers for which too much is kept, as it was when this was done last, a heartbeat
    /// ago, and that have acknowledged nothing since. A peer that is only slow goes on acknowledging.
    pub(crate) fn end_stalled(&mut self) {
        let stalled = |peer: &mut Peer| {
            let acked = peer.lane.last_assigned().saturating_sub(peer.lane.unacked_frames() as u64);
            let overfull = peer.lane.is_overfull().then_some(acked);
            let stands_still = std::mem::replace(&mut peer.overfull_at, overfull) == overfull;
            (stands_still && overfull.is_some()).then_some(peer.info.uid)
        };
        let stalled: Vec<NodeUid> = self.peers.values_mut().filter_map(stalled).collect();
        for uid in stalled {
            self.end_overfull(uid);
        }
    }

    /// Ends the session with a peer rather than keep ever more for it.
    pub(crate) fn end_overfull(&mut self, uid: NodeUid) {
        let Some(peer) = self.peers.get(&uid).filter(|peer| peer.lane.is_overfull()) else { return };
        tracing::warn!(
            "`{}` does not acknowledge what it is sent, and the resend buffer is full: the session with it begins anew",
            peer.info.name
        );
        self.end_session(uid);
    }

    /// Sessions that have been without a connection for longer than the window are not resumed.
    pub(crate) fn forget_sessions(&mut self) {
        let (now, window) = (self.now(), self.leases.settings().resume_window);
        let lost = |peer: &&Peer| {
            let down = peer.down_since.is_some_and(|since| now.saturating_sub(since) >= window);
            down && !peer.lane.is_ended() && peer.connections > 0
        };
        let lost: Vec<NodeUid> = self.peers.values().filter(lost).map(|peer| peer.info.uid).collect();
        for uid in lost {
            self.end_session(uid);
        }
    }
}

impl Peer {
    /// Nothing has been said in the new session: names, accounts and streams start over. What has no
    /// place in the lane yet stays, and goes out in it.
    fn begin_session(&mut self) {
        self.names_sent.clear();
        self.next_name = 0;
        self.names_received.clear();
        self.told.clear();
        self.assembly.clear();
        self.settled = 0;
        self.settled_except = None;
        self.owes_exceptions = false;
        self.grant.restart();
        self.outbound.restart();
        // Their callers have been told that they are lost.
        self.running.values().for_each(|cancel| cancel.store(true, Ordering::Release));
    }
}
