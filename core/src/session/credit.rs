//! The receiver's side of call credit: how many calls a peer may have sent in all, and how many bytes
//! in them.
//!
//! Cumulative, in the manner of QUIC's MAX_STREAMS and MAX_DATA (RFC 9000, section 4): an announcement
//! that is lost, repeated or late does no harm. Knows counts only, not calls.
//!
//! A call may go while there is credit left of both kinds, however large it is: so the largest call can
//! always go. A call whose parts travel in chunks needs its credit as its transfer opens. A receiver
//! then holds at most what it granted, one small call more, and what it assembles, which has a bound of
//! its own.

/// Calls and bytes in them; as a limit, all of them since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credit {
    /// Calls, casts and creations.
    pub calls: u64,
    /// Bytes of their bodies and segments.
    pub bytes: u64,
}

/// A peer sent more than it was granted. Its session is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent a call beyond the {} calls and {} bytes it was granted", granted.calls, granted.bytes)]
pub struct Violation {
    /// The cumulative limit in force.
    pub granted: Credit,
}

/// Call credit granted to one peer in one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// How much may be unfinished at a time.
    max: Credit,
    /// What arrived.
    received: Credit,
    /// What is over.
    done: Credit,
    /// The limit last announced.
    granted: Credit,
    /// What is left of sessions before: the peer counts from 0 again, and it still takes its place.
    carried: Credit,
}

fn less(a: Credit, b: Credit) -> Credit {
    Credit { calls: a.calls.saturating_sub(b.calls), bytes: a.bytes.saturating_sub(b.bytes) }
}

impl Grant {
    /// A grant of `max` unfinished calls and bytes (at least 1 each), to be announced as the first
    /// limit.
    pub fn new(max: Credit) -> Self {
        let max = Credit { calls: max.calls.max(1), bytes: max.bytes.max(1) };
        let none = Credit::default();
        Grant { max, received: none, done: none, granted: max, carried: none }
    }

    /// The cumulative limit last announced.
    pub fn granted(&self) -> Credit {
        less(self.granted, self.carried)
    }

    /// A new session begins, in which the peer counts from 0. What it left unfinished in the old one
    /// still takes its place, so that nobody gains by beginning anew: the first limit may be 0.
    pub fn restart(&mut self) {
        self.carried = self.unfinished();
        self.received = self.carried;
        self.done = Credit::default();
        self.granted = Credit {
            calls: self.max.calls.max(self.carried.calls),
            bytes: self.max.bytes.max(self.carried.bytes),
        };
    }

    /// What arrived and is not over.
    pub fn unfinished(&self) -> Credit {
        less(self.received, self.done)
    }

    /// A call, cast or creation with so many bytes arrived; `chunked` if parts of it came ahead, for
    /// which its sender had credit as the first of them left.
    ///
    /// # Errors
    ///
    /// [`Violation`] when the peer had no credit for it; nothing is counted then.
    pub fn received(&mut self, bytes: u64, chunked: bool) -> Result<(), Violation> {
        let (received, granted) = (self.received, self.granted);
        if received.calls >= granted.calls || (received.bytes >= granted.bytes && !chunked) {
            return Err(Violation { granted: self.granted() });
        }
        self.received.calls += 1;
        self.received.bytes = received.bytes.saturating_add(bytes);
        Ok(())
    }

    /// One of them, with so many bytes, is over: its place is free again. Without effect when all are
    /// over.
    pub fn done(&mut self, bytes: u64) {
        self.done.calls = (self.done.calls + 1).min(self.received.calls);
        self.done.bytes = self.done.bytes.saturating_add(bytes).min(self.received.bytes);
    }

    /// The new cumulative limit to announce, once a quarter of the calls or bytes has been freed.
    ///
    /// Not at every call: an announcement is a frame.
    pub fn update(&mut self) -> Option<Credit> {
        let limit = |done: u64, max: u64| done.saturating_add(max);
        let calls = limit(self.done.calls, self.max.calls);
        let bytes = limit(self.done.bytes, self.max.bytes);
        let worth_it = |limit: u64, granted: u64, max: u64| limit.saturating_sub(granted) >= (max / 4).max(1);
        if !worth_it(calls, self.granted.calls, self.max.calls)
            && !worth_it(bytes, self.granted.bytes, self.max.bytes)
        {
            return None;
        }
        self.granted = Credit { calls: calls.max(self.granted.calls), bytes: bytes.max(self.granted.bytes) };
        Some(self.granted())
    }
}
