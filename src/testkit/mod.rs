//! Whole clusters in one test: simulated time, simulated network, faults on request, every run
//! repeatable from its seed. Needs the feature `testkit`.
//!
//! The nodes of a [`TestCluster`] run the program's own code: the same actors, functions and builder.
//! Only how they are started differs. All of them live on one thread; each has a set of tasks of its
//! own, so that one can crash, pause or lag alone. Time is virtual: it passes when every node waits,
//! and then it jumps to the next thing that is due. A wait of an hour costs nothing.
//!
//! ```
//! use rref::prelude::*;
//! use rref::testkit::{TestCluster, secs};
//!
//! #[derive(Serialize, Deserialize, Message)]
//! #[rtype(result = "i64")]
//! struct Add(i64);
//!
//! #[derive(Object)]
//! #[object(messages(Add))]
//! struct Counter(i64);
//! impl Actor for Counter { type Context = Context<Self>; }
//! impl Handler<Add> for Counter {
//!     type Result = i64;
//!     fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) -> i64 { self.0 += n; self.0 }
//! }
//! fn counter() -> Counter { Counter(0) }
//!
//! fn node(name: &str) -> rref::Builder { Node::builder(name).register::<Counter>().function(counter) }
//!
//! TestCluster::builder(node).nodes(2).seed(7).run(async |cluster| {
//!     let counter = cluster.node("n1").remote("n2", counter, ())?;
//!     cluster.partition(["n2"]);
//!     // Nobody knows whether this arrives: the caller gives up.
//!     assert!(counter.send(Add(1)).timeout(secs(5)).await.is_err());
//!     cluster.heal();
//!     // It did arrive, when it could.
//!     assert_eq!(counter.send(Add(1)).await?, 2);
//!     Ok(())
//! });
//! ```
//!
//! **The same binary and seed give the same run**, to the last byte: see [`Trace::hash`]. That holds as
//! long as the program takes its time from tokio or actix, and its randomness from
//! [`TestCluster::random`] or from a seed. `tokio::select!` without `biased`, the order of a std
//! `HashMap`, threads, and `std::time` are not repeatable.
//!
//! The kit is for tests: it panics where an assertion would. Must not be used by any other part of rref.
//!
//! The book's chapter on testing begins from here; another one says what a simulation cannot show.

mod builder;
mod cluster;
mod frames;
mod host;
mod network;
mod panics;
mod probe;
#[cfg(unix)]
pub mod processes;
mod random;
mod simulated;
mod stream;
mod task;
mod trace;

pub use builder::{ClusterBuilder, Failure, Simulation, Summary, TestResult};
pub use cluster::{EVENTUALLY, TestCluster};
pub use network::Counts;
pub use panics::Panic;
pub use probe::{Probe, Recorder};
pub use random::Random;
pub use rref_core::wire::Kind as FrameKind;
pub(crate) use simulated::Simulated;
pub use task::{Task, TaskError};
pub use trace::{Trace, TraceEvent, What};

use std::time::Duration;

/// So many milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// So many seconds.
pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}
