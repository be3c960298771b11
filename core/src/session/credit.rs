//! The receiver's side of call credit: how many calls a peer may have sent in all.
//!
//! Cumulative, in the manner of QUIC's MAX_STREAMS (RFC 9000, section 4.6): an announcement that is
//! lost, repeated or late does no harm. Knows counts only, not calls.

/// A peer sent more calls than it was granted. Its session is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent more calls than the {granted} it was granted")]
pub struct Violation {
    /// The cumulative limit in force.
    pub granted: u64,
}

/// Call credit granted to one peer in one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// How many calls may be unfinished at a time.
    max: u64,
    /// Calls that arrived.
    received: u64,
    /// Calls that are over.
    done: u64,
    /// The limit last announced.
    granted: u64,
}

impl Grant {
    /// A grant of `max` unfinished calls (at least 1), to be announced as the first limit.
    pub fn new(max: u64) -> Self {
        let max = max.max(1);
        Grant { max, received: 0, done: 0, granted: max }
    }

    /// The cumulative limit last announced.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Calls that arrived and are not over.
    pub fn unfinished(&self) -> u64 {
        self.received - self.done
    }

    /// A call, cast or creation arrived.
    ///
    /// # Errors
    ///
    /// [`Violation`] when the peer had no credit for it; nothing is counted then.
    pub fn received(&mut self) -> Result<(), Violation> {
        if self.received >= self.granted {
            return Err(Violation { granted: self.granted });
        }
        self.received += 1;
        Ok(())
    }

    /// One of them is over: its place is free again. Without effect when all are over.
    pub fn done(&mut self) {
        self.done = (self.done + 1).min(self.received);
    }

    /// The new cumulative limit to announce, once a quarter of `max` has been freed.
    ///
    /// Not at every call: an announcement is a frame.
    pub fn update(&mut self) -> Option<u64> {
        let limit = self.done.saturating_add(self.max);
        if limit - self.granted < (self.max / 4).max(1) {
            return None;
        }
        self.granted = limit;
        Some(limit)
    }
}
