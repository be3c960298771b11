//! A network split over several actors that train it together, micro-batch by micro-batch
//! (GPipe: Huang and others, 2019; 1F1B: PipeDream-flush, Narayanan and others, 2021).
//!
//! ```text
//!  inputs --> [stage 0] -- activations --> [stage 1] -- activations --> [stage 2] <-- labels
//!                       <-- gradients ---           <-- gradients ---
//! ```
//!
//! Each stage holds some consecutive layers. The driver creates the stages where they shall live,
//! introduces neighbours to each other ([`Connect`]), gives the inputs to the first and the labels to
//! the last ([`LoadInputs`], [`LoadLabels`]) and then says [`Train`] to all of them, once an epoch.
//! Activations and gradients go from stage to stage and never through the driver; the order of the
//! rows is not sent either, both ends derive it from the seed.
//!
//! - [`schedule`]: which stage does what when; a pure function.
//! - `engine`: what a stage knows and computes; pure, it can be driven by hand.
//! - `stage`, `messages`: the actor around it; the only part that knows actix and rref.

mod engine;
#[cfg(test)]
mod engine_test;
mod error;
mod messages;
mod schedule;
mod spec;
mod stage;

pub use engine::{Engine, EpochOutcome, Evaluation, Output, Slot, Turn};
pub use error::StageError;
pub use messages::{
    Activation, Connect, Disconnect, EpochReport, Evaluate, Gradient, LoadInputs, LoadLabels, Parameters,
    Span, TestActivation, Train,
};
pub use schedule::{Op, Schedule, schedule};
pub use spec::{StageSpec, split};
pub use stage::{Stage, stage};
