//! Ready-made actors for [`rref`], and the arithmetic they need.
//!
//! - [`pipeline`]: [`pipeline::Stage`], an actor that holds some consecutive layers of a network and
//!   trains them together with its neighbours, which may live in other processes;
//! - [`nn`]: the layers, the loss and the optimiser, on plain `ndarray` arrays;
//! - [`random`]: a small generator, so that equal seeds mean equal runs on every machine.
//!
//! Only `pipeline::stage` and `pipeline::messages` know actix and rref. Everything else is plain
//! computation: no clock, no task, no socket, and the same result every time.

pub mod nn;
pub mod pipeline;
pub mod random;
