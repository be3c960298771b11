//! A clock that stands still while its node does (R11).
//!
//! Knows the time it is told, and how often it should be told; must not know what is timed.

use std::time::Duration;

/// Time by which leases are judged: it never advances by more than a tick's length from one tick to
/// the next, so that what a paused or starved node did not process does not count against others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseClock {
    period: Duration,
    /// When the next tick is due.
    due: Duration,
    /// How late ticks have been in all.
    late: Duration,
    extend_when_late: bool,
}

impl LeaseClock {
    pub(super) fn new(now: Duration, period: Duration, extend_when_late: bool) -> LeaseClock {
        LeaseClock { period, due: now.saturating_add(period), late: Duration::ZERO, extend_when_late }
    }

    /// The time by this clock.
    pub(super) fn time(&self, now: Duration) -> Duration {
        let now = if self.extend_when_late { now.min(self.due) } else { now };
        now.saturating_sub(self.late)
    }

    /// How far it is behind the clock that it is told.
    pub(super) fn late(&self) -> Duration {
        self.late
    }

    /// A tick has come. Returns how late it was.
    pub(super) fn tick(&mut self, now: Duration) -> Duration {
        let late = now.saturating_sub(self.due);
        if self.extend_when_late {
            self.late = self.late.saturating_add(late);
        }
        self.due = now.saturating_add(self.period);
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn stands_still_while_ticks_are_missing() {
        let mut clock = LeaseClock::new(SECOND * 10, SECOND * 2, true);
        assert_eq!(clock.time(SECOND * 11), SECOND * 11);
        assert_eq!(clock.tick(SECOND * 12), Duration::ZERO);
        assert_eq!(clock.time(SECOND * 13), SECOND * 13);
        // A pause of 100 s: seen from within, and after the tick that ends it.
        assert_eq!(clock.time(SECOND * 114), SECOND * 14);
        assert_eq!(clock.tick(SECOND * 114), SECOND * 100);
        assert_eq!(clock.time(SECOND * 114), SECOND * 14);
        assert_eq!(clock.time(SECOND * 115), SECOND * 15);
    }

    #[test]
    fn goes_on_when_told_to() {
        let mut clock = LeaseClock::new(Duration::ZERO, SECOND, false);
        assert_eq!(clock.tick(SECOND * 101), SECOND * 100);
        assert_eq!(clock.time(SECOND * 101), SECOND * 101);
    }
}
