//! What a [`Stage`] understands.

use super::{Evaluation, Op, Stage, StageError};
use actix::Message;
use rref::{RRef, Tensor};
use serde::{Deserialize, Serialize};

/// Introduces a stage to its neighbours; the first has no previous one, the last no next one. Send it
/// before any training.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Connect {
    /// The stage that gradients go to.
    pub previous: Option<RRef<Stage>>,
    /// The stage that activations go to.
    pub next: Option<RRef<Stage>>,
}

/// Lets go of the neighbours. Stages hold each other, and a circle of references keeps itself alive: it
/// must be cut by hand before the driver drops its own handles, or the stages are never freed.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Disconnect;

/// The inputs, for the first stage: one row a sample, `(rows, features)`.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Result<(), StageError>")]
pub struct LoadInputs {
    /// The training set; as many rows as the stages were told at their creation.
    pub train: Tensor<f32>,
    /// The test set; any number of rows.
    pub test: Tensor<f32>,
}

/// The labels, for the last stage: class numbers, one a row of the inputs and in their order.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Result<(), StageError>")]
pub struct LoadLabels {
    /// Of the training set, shaped `(rows)`.
    pub train: Tensor<u8>,
    /// Of the test set, shaped `(rows)`.
    pub test: Tensor<u8>,
}

/// Trains one epoch. Goes to every stage; each answers when its own part is complete.
#[derive(Debug, Clone, Serialize, Deserialize, Message)]
#[rtype(result = "Result<EpochReport, StageError>")]
pub struct Train {
    /// Number of the epoch; each must be above the one before.
    pub epoch: u32,
    /// The order of the rows follows from this and the epoch.
    pub seed: u64,
    /// Whether the report shall say when each operation ran.
    pub timeline: bool,
}

/// How one stage spent an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Mean loss per row of the training set, before each step; from the last stage only.
    pub loss: Option<f64>,
    /// The most micro-batches whose activations were kept at one time.
    pub peak_in_flight: usize,
    /// Seconds spent computing; the rest was waiting.
    pub busy_seconds: f64,
    /// When each operation ran, if that was asked for; in order.
    pub timeline: Vec<Span>,
}

/// One operation on the clock of its machine; clocks of different machines may disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What ran.
    pub op: Op,
    /// Step of the epoch, from 0.
    pub step: u32,
    /// Start, in microseconds since the Unix epoch.
    pub start_us: u64,
    /// End, likewise.
    pub end_us: u64,
}

/// Takes the test set through the network without training. Goes to every stage when no epoch is under
/// way; each answers when the test set has passed it, the last one with the score.
#[derive(Debug, Clone, Serialize, Deserialize, Message)]
#[rtype(result = "Result<Option<Evaluation>, StageError>")]
pub struct Evaluate {
    /// Tells one evaluation from another; each must be above the one before.
    pub round: u32,
}

/// The parameters of this stage's layers from the bottom up; of a dense layer first the weights
/// `(inputs, outputs)`, then the bias `(outputs)`. In mid-epoch they are those of the last step.
#[derive(Debug, Clone, Serialize, Deserialize, Message)]
#[rtype(result = "Vec<Tensor<f32>>")]
pub struct Parameters;

/// From the previous stage: the output of its layers for one micro-batch.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Activation {
    /// Epoch, from [`Train`].
    pub epoch: u32,
    /// Step of the epoch, from 0.
    pub step: u32,
    /// Micro-batch of the step, from 0.
    pub micro: u32,
    /// `(rows of the micro-batch, width)`.
    pub data: Tensor<f32>,
}

/// From the next stage: the gradient of the loss with respect to what it was sent.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Gradient {
    /// Epoch, from [`Train`].
    pub epoch: u32,
    /// Step of the epoch, from 0.
    pub step: u32,
    /// Micro-batch of the step, from 0.
    pub micro: u32,
    /// Shaped like the activation it answers.
    pub data: Tensor<f32>,
}

/// From the previous stage: the test set, as far as it has got.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct TestActivation {
    /// Round, from [`Evaluate`].
    pub round: u32,
    /// `(rows of the test set, width)`.
    pub data: Tensor<f32>,
}
