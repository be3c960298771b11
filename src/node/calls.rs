//! Calls of this node that wait for their reply.

use crate::error::{Error, Result};
use crate::payload::Incoming;
use rref_core::session::Ticket;
use rref_core::{NodeUid, Seq};
use std::hash::{BuildHasherDefault, Hasher};
use tokio::sync::oneshot;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for its place in the lane: it has certainly not run.
    Queued(Ticket),
    /// It has this place in the lane.
    Sequenced(Seq),
}

/// Hashes numbers that this node itself hands out in a row: nobody can choose them so that they collide.
pub(crate) type ByNumber = BuildHasherDefault<Spread>;

/// Spreads one number over all bits.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: neighbours end up far apart.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A call that waits for its reply.
pub(crate) struct PendingCall {
    pub(crate) owner: NodeUid,
    pub(crate) progress: Progress,
    /// Milliseconds after which the owner need not start it; `u64::MAX` unless the caller set a
    /// limit. The node's default is not among them: the caller may still ask for a longer one.
    pub(crate) timeout_ms: u64,
    /// Whether its result is a stream.
    pub(crate) streams: bool,
    /// The caller's schema of what it calls, for the error that says that it differs.
    pub(crate) schema: u128,
    /// The trace it belongs to, for its error; 0 for none.
    pub(crate) trace_id: u128,
    pub(crate) reply: oneshot::Sender<Result<Incoming>>,
}

impl PendingCall {
    /// What its caller is told when the owner is lost for good: nothing beyond `transmitted` ever
    /// leaves this node.
    pub(crate) fn lost(&self, owner: &str, reason: &str, transmitted: Seq) -> Error {
        let (peer, reason) = (owner.to_string(), reason.to_string());
        match self.progress {
            Progress::Sequenced(seq) if seq <= transmitted => Error::OutcomeUnknown { peer, reason },
            _ => Error::NotSent { peer, reason },
        }
    }

    /// What its caller is told when the session begins anew, of which nothing beyond `maybe_processed` was
    /// taken in; none if the call has no place in it yet, and goes on in the next one.
    pub(crate) fn cut_off(&self, owner: &str, reason: &str, maybe_processed: Seq) -> Option<Error> {
        let (peer, reason) = (owner.to_string(), reason.to_string());
        match self.progress {
            Progress::Queued(_) => None,
            Progress::Sequenced(seq) if seq <= maybe_processed => {
                Some(Error::OutcomeUnknown { peer, reason })
            }
            Progress::Sequenced(_) => Some(Error::NotSent { peer, reason }),
        }
    }

    /// What its caller is told when the owner is out of reach, but may return: what could not be
    /// taken back will be sent then.
    pub(crate) fn suspended(&self, owner: &str, reason: &str, withdrawn: bool) -> Error {
        let (peer, reason) = (owner.to_string(), reason.to_string());
        if withdrawn { Error::NotSent { peer, reason } } else { Error::OutcomeUnknown { peer, reason } }
    }
}
