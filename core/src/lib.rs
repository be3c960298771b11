//! The pure core of rref: protocol logic without sockets, clocks, tasks or locks.
//!
//! Everything here is a state machine: events go in, frames and actions come out, time and
//! randomness are parameters. So the same code runs in production, in a simulator, under a model
//! checker and under a fuzzer. Four parts, which talk in plain values:
//!
//! - [`lifetime`]: who holds what, and when an object may be freed;
//! - [`lease`]: which nodes are alive, and when one that is silent counts as dead;
//! - [`session`]: the ordered exactly-once lane between two nodes, above connections;
//! - [`wire`]: frames, from bytes and to bytes, with every limit a decoder enforces.
//!
//! Users want the `rref` crate; this one is for those who test or extend the protocol.

pub mod id;
pub mod lease;
pub mod lifetime;
pub mod rules;
pub mod session;
pub mod wire;

pub use id::{NodeUid, ObjectId, Seq, Stamp};
pub use rules::Rules;
