//! Models of the protocol over the production core: a few nodes, their lanes, and everything that can
//! happen to them, one step at a time.
//!
//! - `world`: the state, what a node does with the core, and what its frames do at the other end;
//! - `actions`: what can happen next; `steps`: how it happens;
//! - `time`: heartbeats, ticks and verdicts;
//! - `invariants`: what must hold in every state, and when nothing can happen any more;
//! - `setup`: which nodes, budgets and rules make a model; `models`: all of them;
//! - `check`: the models as stateright sees them;
//! - `walks`: random walks through larger worlds;
//! - `mutants`: the protocol less one rule, and what shows that the rule is needed.
//!
//! Used by the tests beside it at a small size, and by `examples/model_check.rs` at a larger one.

pub mod actions;
pub mod check;
pub mod invariants;
pub mod models;
pub mod mutants;
pub mod setup;
pub mod steps;
pub mod time;
pub mod walks;
pub mod world;
