//! What references promise, one test a promise: in simulated clusters, through the public API only.
//!
//! One binary, since every node of every test runs the same program, whose functions and actors take
//! far longer to compile than the tests take to run.

mod arguments;
mod common;
mod errors;
mod faults;
mod lifecycle;
mod messages;
mod remote;
mod timeouts;
