//! What references promise, one test a promise: in simulated clusters, through the public API only.
//!
//! One binary, since every node of every test runs the same program, whose functions and actors take
//! far longer to compile than the tests take to run.

mod arguments;
mod common;
mod departures;
mod endings;
mod errors;
mod faults;
mod handoff;
mod leases;
mod lifecycle;
mod messages;
mod mutants;
mod pressure;
mod remote;
mod silence;
mod timeouts;
