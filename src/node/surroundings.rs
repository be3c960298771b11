//! What a node takes from outside: randomness, time and threads. A simulation gives its own, so that a
//! run can be repeated, and a clock can be wrong.

use crate::error::{Error, Result};
#[cfg(feature = "testkit")]
use crate::testkit::Simulated;
#[cfg(feature = "testkit")]
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where a node's randomness and time come from, and whether it may start threads.
#[derive(Clone, Debug, Default)]
pub(crate) enum Surroundings {
    /// The operating system.
    #[default]
    System,
    /// A simulation: everything on one thread, randomness from a seed.
    #[cfg(feature = "testkit")]
    Simulation(Arc<Simulated>),
}

impl Surroundings {
    /// # Errors
    /// [`Error::Config`] on a system without a source of randomness.
    pub(crate) fn random_bytes<const N: usize>(&self) -> Result<[u8; N]> {
        match self {
            Surroundings::System => random_bytes(),
            #[cfg(feature = "testkit")]
            Surroundings::Simulation(simulated) => Ok(simulated.random_bytes()),
        }
    }

    /// What this node's clock shows: for what a node judges by its own time, such as deadlines of calls.
    /// Heartbeats and judgements go by it; other timers do not.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Surroundings::System => Instant::now(),
            #[cfg(feature = "testkit")]
            Surroundings::Simulation(simulated) => simulated.now(),
        }
    }

    /// Waits until this node's clock has moved on by `time`: what is periodic for a node goes by its own clock.
    pub(crate) async fn sleep(&self, time: Duration) {
        match self {
            Surroundings::System => tokio::time::sleep(time).await,
            #[cfg(feature = "testkit")]
            Surroundings::Simulation(simulated) => {
                let end = self.now() + time;
                // Its speed may change meanwhile.
                while let Some(left) = end.checked_duration_since(self.now()).filter(|left| !left.is_zero()) {
                    tokio::time::sleep(simulated.virtual_time(left)).await;
                }
            }
        }
    }

    /// Whether threads may be started: otherwise what would have run there runs where the node lives.
    pub(crate) fn has_threads(&self) -> bool {
        matches!(self, Surroundings::System)
    }
}

/// A node's time, from its start; what its leases go by.
#[derive(Clone, Debug)]
pub(crate) struct NodeClock {
    surroundings: Surroundings,
    started: Instant,
}

impl NodeClock {
    /// A clock that starts now.
    pub(crate) fn new(surroundings: &Surroundings) -> NodeClock {
        NodeClock { surroundings: surroundings.clone(), started: surroundings.now() }
    }

    /// Waits until the clock shows this.
    pub(crate) async fn sleep_until(&self, due: Duration) {
        self.surroundings.sleep(due.saturating_sub(self.now())).await;
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.surroundings.now().saturating_duration_since(self.started)
    }
}

/// Random bytes from the operating system.
///
/// # Errors
/// [`Error::Config`] on a system without a source of randomness.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Config(format!("no random numbers from the system: {error}")))?;
    Ok(bytes)
}
