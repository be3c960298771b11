//! Worker processes on this machine, for programs and tests that want a small cluster at once.
//!
//! One program is both sides. The process that the user starts is the *starter*: it calls
//! [`local`], which starts `n` copies of the same executable with the same arguments. Each copy
//! enters through [`worker`] at the top of `main`, serves as a node and never goes further.
//!
//! | process | node name | rank |
//! | --- | --- | --- |
//! | the starter | `driver` | 0 |
//! | the copies | `worker1` to `workerN` | 1 to N |
//!
//! ```no_run
//! use rref::{Builder, Error, Node, launch};
//!
//! fn double(x: i64) -> i64 {
//!     2 * x
//! }
//!
//! // Both sides build their node here, so that they register the same things.
//! fn node(name: &str) -> Builder {
//!     Node::builder(name).function(double)
//! }
//!
//! fn main() -> Result<(), Error> {
//!     launch::worker(node)?; // a worker stays in here until it is told to stop
//!     actix::System::new().block_on(async {
//!         let cluster = launch::local(2).start(node).await?;
//!         let y = cluster.node().call("worker1", double, (21,)).await?;
//!         println!("{y}");
//!         cluster.shutdown().await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What a worker is given
//!
//! The environment holds `RREF_LAUNCH=1` and, named as other launchers name them, `RANK`,
//! `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` (where the driver listens). The standard input is
//! a pipe from the starter. Its first line is a random token that every node of the cluster must
//! show to join. The token is in no argument and no environment variable: those can be read by
//! others on the machine. The traffic itself is not encrypted and stays on the loopback address.
//!
//! # How workers end
//!
//! - [`Cluster::shutdown`] writes `quit` to the pipe, and the worker shuts its node down and exits.
//! - When the pipe ends, the worker exits at once. The system closes the pipe however the starter
//!   ended, by a panic or a `SIGKILL` too, so no worker outlives its starter. A thread that never
//!   runs user code watches the pipe: a handler that blocks or loops does not delay it.
//! - Dropping the [`Cluster`] kills the workers and reaps them.
//!
//! # Other launchers
//!
//! [`from_env`] sets up the node of a process that something else has started, one for each rank, and
//! told of its place in `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
//!
//! # Rules for programs that use it
//!
//! - Call [`worker`] first in `main`, before anything with an effect: each copy runs it again.
//! - The standard input of a worker belongs to this module. Code on a worker must not read it, and
//!   a process started there should get `Stdio::null()` as its standard input.
//! - A process that a worker starts inherits `RREF_LAUNCH`. If it may use this library too, start
//!   it with `Command::env_remove("RREF_LAUNCH")`; this module cannot take the variable away,
//!   because changing the environment of a running process is unsafe.
//! - The test harness of `cargo test` has its own `main`, so [`local`] cannot be used in a
//!   `#[test]` function. Use a test target with `harness = false`, or an example binary.
//!
//! This module knows processes, pipes and environment variables. It knows nodes only through their
//! public interface, and it must not know frames, sessions or leases.

mod children;
mod local;
mod logs;
mod ranked;
mod worker;

pub use local::{Cluster, Local, local};
pub use ranked::from_env;
pub use worker::worker;

/// Set in the environment of a worker; its presence is what makes a process a worker.
const ENV_LAUNCH: &str = "RREF_LAUNCH";
/// Rank of a process: 0 for the first, which the others join.
const ENV_RANK: &str = "RANK";
/// Number of nodes, that of rank 0 included.
const ENV_WORLD_SIZE: &str = "WORLD_SIZE";
/// Address of the driver.
const ENV_MASTER_ADDR: &str = "MASTER_ADDR";
/// Port of the driver.
const ENV_MASTER_PORT: &str = "MASTER_PORT";

/// Name of the node in the starter.
const DRIVER: &str = "driver";
/// Where every node of a local cluster listens: the loopback address, a port chosen by the system.
const LISTEN: &str = "127.0.0.1:0";
/// Line on the pipe that asks a worker to shut down.
const QUIT: &str = "quit";

/// Proof of membership that every node of one cluster shows when it connects.
type Token = [u8; 16];

/// True in a process that [`local`] started, and in those that inherited its environment.
fn in_worker() -> bool {
    std::env::var_os(ENV_LAUNCH).is_some()
}

/// Name of the node with this rank.
fn name_of(rank: u32) -> String {
    if rank == 0 { DRIVER.to_owned() } else { format!("worker{rank}") }
}

/// The token as 32 hex digits.
fn token_to_hex(token: &Token) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reverse of [`token_to_hex`]; `None` unless `text` is exactly 32 hex digits.
fn token_from_hex(text: &str) -> Option<Token> {
    // Checked first: the number parser would take a sign.
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_trip_through_hex() {
        let token: Token = [0, 1, 2, 0x7f, 0x80, 0xff, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xf0];
        let hex = token_to_hex(&token);
        assert_eq!(hex, "0001027f80ff060708090a0b0c0d0ef0");
        assert_eq!(token_from_hex(&hex), Some(token));
    }

    #[test]
    fn anything_but_32_hex_digits_is_no_token() {
        for text in ["", "00", "+001027f80ff060708090a0b0c0d0ef0", "0001027f80ff060708090a0b0c0d0ef0 "] {
            assert_eq!(token_from_hex(text), None, "{text:?}");
        }
    }

    #[test]
    fn names_follow_ranks() {
        assert_eq!(name_of(0), "driver");
        assert_eq!(name_of(12), "worker12");
    }
}
