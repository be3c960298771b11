//! What a peer is told of the references that it has handed on to this node: up to where they are
//! settled, so that it need not hold on to them any longer.
//!
//! Knows watermarks, and which owners are out of reach; must not know when an Ack is due.

use super::peer::Peer;
use super::state::State;
use crate::error::Result;
use rref_core::session::SettledExcept;
use rref_core::wire::{Ack, Encoded, Frame};
use rref_core::{NodeUid, Seq};

/// Owners that one Ack may leave out. When more of them are out of reach, all wait for them.
const EXCEPTIONS: usize = 1024;

impl State {
    /// Brings the settled watermarks for a peer up to date.
    pub(crate) fn update_settled(&mut self, uid: NodeUid) {
        let settled = self.lifetime.settled_for(uid);
        // No claim gets through to an owner out of reach, and what waits for that must not hold up what
        // is said of all others.
        let out_of_reach = |owner: &NodeUid| self.peers.get(owner).is_none_or(|peer| !peer.is_reachable());
        let exceptions: Vec<NodeUid> = self.lifetime.unsettled_owners(uid).filter(out_of_reach).collect();
        let except = (1..=EXCEPTIONS).contains(&exceptions.len()).then(|| {
            let upto = self.lifetime.settled_except(uid, &exceptions);
            SettledExcept { upto, exceptions }
        });
        let except = except.filter(|except| except.upto > settled);
        let Some(peer) = self.peers.get_mut(&uid) else { return };
        if settled > peer.settled {
            peer.settled = settled;
            peer.lane.owe_ack();
        }
        if except != peer.settled_except {
            peer.owes_exceptions = except.is_some();
            peer.settled_except = except;
            if peer.owes_exceptions {
                peer.lane.owe_ack();
            }
        }
    }
}

impl Peer {
    /// What it is to be told of all frames of its own.
    pub(crate) fn ack(&mut self) -> Result<Encoded> {
        let ack = self.encode_ack(self.settled, Vec::new())?;
        self.lane.ack_stamped();
        Ok(ack)
    }

    /// More is settled than that, but for objects of some owners; none if it knows already.
    ///
    /// Not while frames wait to be sent: the peer would have to keep it until they have come, and keeps
    /// the latest Ack only.
    pub(crate) fn ack_with_exceptions(&mut self) -> Option<Result<Encoded>> {
        if !self.owes_exceptions || self.lane.has_unsent() {
            return None;
        }
        self.owes_exceptions = false;
        let SettledExcept { upto, exceptions } = self.settled_except.clone()?;
        Some(self.encode_ack(upto, exceptions))
    }

    fn encode_ack(&self, settled: Seq, exceptions: Vec<NodeUid>) -> Result<Encoded> {
        let at = self.lane.last_assigned();
        let ack = Ack { session_no: self.lane.session_no(), at, exceptions };
        self.encode(0, settled, &Frame::Ack(ack))
    }
}
