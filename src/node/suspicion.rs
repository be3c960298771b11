//! Calls to a peer that has fallen silent on an open connection: they fail, until it says something.
//!
//! When that is so is judged by [`rref_core::lease`]. The connection stays: whoever is only slow, or
//! was stopped for a while, goes on where it was, and one whose machine is gone is found out by the
//! transport or when its lease is over. Must not know handles: nothing is freed by this.

use super::events::NodeEvent;
use super::peer::{Link, Peer};
use super::state::State;
use rref_core::NodeUid;
use rref_core::lease::{Reader, Suspicion};
use std::task::Waker;

impl State {
    /// The peer has sent something. True if that makes it trusted again, which others may wait for.
    #[must_use]
    pub(crate) fn showed_life(&mut self, uid: NodeUid) -> bool {
        let now = self.now();
        self.leases.sign_of_life(now, uid);
        self.trust_again(uid)
    }

    /// Ends a suspicion for which there is no reason any more. True if that was so.
    #[must_use]
    pub(crate) fn trust_again(&mut self, uid: NodeUid) -> bool {
        if self.leases.suspicion(uid).is_some() {
            return false;
        }
        let Some(peer) = self.peers.get_mut(&uid) else { return false };
        if peer.silent.take().is_none() {
            return false;
        }
        let name = peer.info.name.clone();
        tracing::info!("`{name}` answers again");
        self.announce(NodeEvent::PeerBack { name, uid });
        // Its owners' exceptions are over.
        self.arm_later();
        true
    }

    /// The peer is suspected. One without a connection is dialled, and that tells whether it is there.
    pub(crate) fn suspect_silent(&mut self, uid: NodeUid, suspicion: Suspicion) {
        let after = self.leases.settings().suspect_after;
        let Some(peer) = self.peers.get_mut(&uid).filter(|peer| peer.is_connected()) else { return };
        let reason = match suspicion {
            Suspicion::Silent => format!("nothing has come from it for {after:?}"),
            Suspicion::Unheard => "it does not answer this node's heartbeats".to_string(),
        };
        peer.silent = Some(reason.clone());
        let name = peer.info.name.clone();
        tracing::warn!("`{name}` is silent: {reason}; its calls fail until it answers again");
        self.announce(NodeEvent::PeerSuspect { name: name.clone(), uid, reason: reason.clone() });
        self.suspend_calls(uid, &reason);
        self.inherit_name(&name);
        // What it owns can be excepted from what is settled.
        self.arm_later();
    }

    /// The name has a new holder, whose predecessor was silent: its connection ends, and should it return,
    /// it has to ask.
    pub(crate) fn cut_off_predecessor(&mut self, name: &str, holder: NodeUid) {
        let before = |peer: &&Peer| peer.is_connected() && peer.info.name == name && peer.info.uid != holder;
        let before = self.peers.values().find(before).map(|peer| peer.info.uid);
        if let Some(before) = before {
            self.cut_off(before);
        }
    }

    fn cut_off(&mut self, uid: NodeUid) {
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&uid).filter(|peer| peer.is_connected()) else { return };
        peer.lane.disconnected();
        peer.down_since = Some(now);
        peer.lose_connection();
        let wakers = peer.take_wakers();
        self.leases.reader_closed(Reader::Lane(uid));
        self.was_drained(uid);
        self.to_dial.push(uid);
        self.after(move || wakers.into_iter().flatten().for_each(|waker| waker.wake()));
        self.arm_later();
    }
}

impl Peer {
    /// Whether it is connected, and calls to it make sense.
    pub(crate) fn is_reachable(&self) -> bool {
        self.is_connected() && self.silent.is_none()
    }

    /// What makes the connection's task look at the state again, whether it waits for frames or its socket.
    pub(crate) fn take_wakers(&mut self) -> [Option<Waker>; 2] {
        [self.waker.take(), self.poller.take()]
    }

    /// It has no connection any more, and is dialled.
    pub(crate) fn lose_connection(&mut self) {
        self.link = match self.silent.take() {
            None => Link::Dialing { greeted: false },
            Some(reason) => Link::Unreachable(reason),
        };
    }
}
