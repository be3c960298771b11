//! What one simulated process takes from outside: randomness from the seed, and a clock of its own.

use super::random::Random;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The surroundings of one process.
#[derive(Debug)]
pub(crate) struct Simulated {
    random: Mutex<Random>,
    clock: Mutex<Clock>,
}

/// A clock that may run faster or slower than virtual time.
#[derive(Debug)]
struct Clock {
    /// When its speed was set, and what it showed then.
    set: (Instant, Instant),
    /// Millionths by which it runs fast.
    fast: i64,
}

impl Simulated {
    pub(super) fn new(random: Random) -> Simulated {
        let now = Instant::now();
        Simulated { random: Mutex::new(random), clock: Mutex::new(Clock { set: (now, now), fast: 0 }) }
    }

    pub(crate) fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        std::array::from_fn(|_| random.byte())
    }

    /// What the process's clock shows.
    pub(crate) fn now(&self) -> Instant {
        self.clock().now()
    }

    /// From now on the clock runs by so many millionths faster than virtual time; slower if negative. It
    /// never goes back.
    pub(super) fn skew(&self, millionths: i64) {
        let mut clock = self.clock();
        clock.set = (Instant::now(), clock.now());
        clock.fast = millionths.max(-1_000_000);
    }

    /// The clock jumps ahead, with all timers as they were: for them, the time has not passed.
    pub(super) fn step(&self, by: Duration) {
        let mut clock = self.clock();
        clock.set = (Instant::now(), clock.now() + by);
    }

    /// How much virtual time passes while the clock moves on by so much; at least a microsecond.
    pub(crate) fn virtual_time(&self, shown: Duration) -> Duration {
        let speed = u64::try_from(1_000_000 + self.clock().fast).unwrap_or(0);
        let micros = u64::try_from(shown.as_micros()).unwrap_or(u64::MAX).saturating_mul(1_000_000);
        // A clock that stands still is looked at again now and then.
        Duration::from_micros(micros.checked_div(speed).unwrap_or(1_000_000).max(1))
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock {
    fn now(&self) -> Instant {
        let micros = i128::try_from(self.set.0.elapsed().as_micros()).unwrap_or(i128::MAX);
        let shown = micros.saturating_mul(1_000_000 + i128::from(self.fast)) / 1_000_000;
        self.set.1 + Duration::from_micros(u64::try_from(shown).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_skewed_clock_runs_on_from_what_it_shows() {
        let simulated = Simulated::new(Random::new(0));
        let begun = simulated.now();
        simulated.skew(500_000);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(simulated.now() - begun, Duration::from_secs(15));
        simulated.skew(-1_000_000);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(simulated.now() - begun, Duration::from_secs(15));
        simulated.skew(0);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(simulated.now() - begun, Duration::from_secs(16));
    }
}
