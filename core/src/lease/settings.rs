//! How long leases last, and which lengths go together.

use std::time::Duration;

/// The times of the lease protocol. All nodes of a cluster should use the same.
///
/// ```
/// use rref_core::lease::{LeaseSettings, LeaseSettingsError};
/// use std::time::Duration;
///
/// let settings = LeaseSettings { ttl: Duration::from_secs(60), ..LeaseSettings::default() };
/// assert_eq!(settings.check(), Ok(()));
/// let settings = LeaseSettings { grace: Duration::ZERO, ..LeaseSettings::default() };
/// assert!(matches!(settings.check(), Err(LeaseSettingsError::ShorterThanResume { .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseSettings {
    /// From one heartbeat to the next, and from one judgement to the next. Default 2 s.
    pub heartbeat: Duration,
    /// How long a lease lasts that nobody renews; after that its holder is *lapsed*. Default 30 s.
    pub ttl: Duration,
    /// How much longer an owner waits before it fences a lapsed holder. Default 30 s.
    pub grace: Duration,
    /// How long a peer may be silent, or out of reach, before calls to it fail. Nothing is freed by this.
    /// Default 6 s.
    pub suspect_after: Duration,
    /// How long a session without a connection is kept for resumption. Default 10 s.
    pub resume_window: Duration,
    /// The longest time from sending a frame to its being processed, on a healthy node. Default 10 s.
    pub delay: Duration,
    /// How many nodes that hand one reference on to each other may crash in a row without the last
    /// one's losing it. Default 4.
    pub crashes: u32,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        LeaseSettings {
            heartbeat: Duration::from_secs(2),
            ttl: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            suspect_after: Duration::from_secs(6),
            resume_window: Duration::from_secs(10),
            delay: Duration::from_secs(10),
            crashes: 4,
        }
    }
}

impl LeaseSettings {
    /// The default times divided by `factor`, for tests that cannot wait.
    pub fn shortened(factor: u32) -> LeaseSettings {
        let all = LeaseSettings::default();
        let factor = factor.max(1);
        LeaseSettings {
            heartbeat: all.heartbeat / factor,
            ttl: all.ttl / factor,
            grace: all.grace / factor,
            suspect_after: all.suspect_after / factor,
            resume_window: all.resume_window / factor,
            delay: all.delay / factor,
            crashes: all.crashes,
        }
    }

    /// How long a node may be silent before it is fenced, or given up.
    pub fn silence(&self) -> Duration {
        self.ttl.saturating_add(self.grace)
    }

    /// How long after sending a heartbeat that was echoed a holder may rely on its lease, by its own
    /// clock: less than the TTL, so that clocks may differ by a percent.
    pub fn reliance(&self) -> Duration {
        let margin = Duration::from_secs(1).min(self.ttl / 10);
        (self.ttl / 100 * 99).saturating_sub(margin)
    }

    /// Whether the times go together.
    ///
    /// # Errors
    /// The rule that is broken, with the times in it.
    pub fn check(&self) -> Result<(), LeaseSettingsError> {
        let (ttl, grace) = (self.ttl, self.grace);
        if self.heartbeat.is_zero() || self.heartbeat.saturating_mul(2) > self.reliance() {
            return Err(LeaseSettingsError::HeartbeatTooSlow { heartbeat: self.heartbeat, ttl });
        }
        if self.suspect_after < self.heartbeat.saturating_mul(2) {
            let (suspect_after, heartbeat) = (self.suspect_after, self.heartbeat);
            return Err(LeaseSettingsError::SuspectsTooSoon { suspect_after, heartbeat });
        }
        let resume = self.resume_window;
        if self.silence() < resume.saturating_mul(4) {
            return Err(LeaseSettingsError::ShorterThanResume { ttl, grace, resume_window: resume });
        }
        let (crashes, delay) = (self.crashes, self.delay);
        if self.silence() < delay.saturating_mul(crashes.saturating_add(2)) {
            return Err(LeaseSettingsError::ShorterThanChain { ttl, grace, crashes, delay });
        }
        Ok(())
    }
}

/// Lease times that do not go together. Each variant is one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseSettingsError {
    /// A lease must survive the loss of a heartbeat.
    #[error(
        "heartbeat: one every {heartbeat:?} cannot keep a lease of {ttl:?}; two must fit in nine tenths of the TTL"
    )]
    HeartbeatTooSlow {
        /// From one heartbeat to the next.
        heartbeat: Duration,
        /// The lease's length.
        ttl: Duration,
    },
    /// A peer that is well must not be suspected between two heartbeats.
    #[error(
        "suspect after >= 2 x heartbeat: {suspect_after:?} is less than 2 x {heartbeat:?}; calls to a peer that is well would fail"
    )]
    SuspectsTooSoon {
        /// The silence after which calls fail.
        suspect_after: Duration,
        /// From one heartbeat to the next.
        heartbeat: Duration,
    },
    /// TTL + grace >= 4 x resume window.
    #[error(
        "TTL + grace >= 4 x resume window: {ttl:?} + {grace:?} is less than 4 x {resume_window:?}; a node whose connection only breaks would be fenced"
    )]
    ShorterThanResume {
        /// The lease's length.
        ttl: Duration,
        /// What is added before a fence.
        grace: Duration,
        /// How long a session without a connection is kept.
        resume_window: Duration,
    },
    /// TTL + grace >= (crashes + 2) x delay.
    #[error(
        "TTL + grace >= (crashes + 2) x delay: {ttl:?} + {grace:?} is less than ({crashes} + 2) x {delay:?}; a chain of crashes could outrun the grace"
    )]
    ShorterThanChain {
        /// The lease's length.
        ttl: Duration,
        /// What is added before a fence.
        grace: Duration,
        /// How many crashes in one chain are survived.
        crashes: u32,
        /// The longest time from sending to processing.
        delay: Duration,
    },
}
