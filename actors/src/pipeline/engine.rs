//! What one stage knows and computes. Pure: events come in as calls, results go out as values; it knows
//! no clock, no neighbour and no actor, so a test can drive a whole pipeline in a loop.

use super::{Op, StageError, StageSpec, schedule};
use crate::{
    nn::{Layer, LayerSpec, Sgd, correct, softmax_cross_entropy},
    random::shuffled,
};
use ndarray::{Array2, ArrayD, Axis};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// Which micro-batch of which step of which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Number of the epoch.
    pub epoch: u32,
    /// Step of the epoch, from 0.
    pub step: u32,
    /// Micro-batch of the step, from 0.
    pub micro: u32,
}

/// What must go to a neighbour after an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// For the next stage.
    Activation(Slot, Array2<f32>),
    /// For the previous stage.
    Gradient(Slot, Array2<f32>),
}

/// What [`Engine::advance`] did.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// Nothing: no epoch is under way, or the next operation's input is not there yet.
    Waiting,
    /// One operation.
    Ran {
        /// Which.
        op: Op,
        /// In which step of the epoch, from 0.
        step: u32,
        /// What to pass on, if there is a neighbour in that direction.
        output: Option<Output>,
        /// Set after the last operation of the epoch.
        finished: Option<EpochOutcome>,
    },
}

/// What is known at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochOutcome {
    /// Mean loss per row; the last stage only.
    pub loss: Option<f64>,
    /// The most micro-batches whose activations were kept at one time.
    pub peak_in_flight: usize,
}

/// The score on the test set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Rows of which the label was found.
    pub correct: usize,
    /// All rows.
    pub rows: usize,
}

/// Training set and test set, or one half of each: inputs at the first stage, labels at the last.
struct Loaded<T> {
    train: T,
    test: T,
}

/// The epoch under way.
struct Run {
    epoch: u32,
    /// The order of the training rows.
    order: Vec<usize>,
    step: u32,
    /// The plan of this step and how far it is done.
    plan: Vec<Op>,
    done: usize,
    in_flight: usize,
    peak_in_flight: usize,
    loss: f64,
}

/// The state of one stage; [`super::Stage`] is the actor around it.
///
/// Call [`Engine::advance`] until it says [`Turn::Waiting`] after [`Engine::begin`] and after every
/// array that was accepted. After an error the engine's state is of no use any more.
pub struct Engine {
    spec: StageSpec,
    layers: Vec<Box<dyn Layer>>,
    optimiser: Sgd,
    inputs: Option<Loaded<Array2<f32>>>,
    labels: Option<Loaded<Vec<u8>>>,
    /// Arrived and not yet used. Early ones are normal: a neighbour may be a step ahead.
    activations: BTreeMap<Slot, Array2<f32>>,
    gradients: BTreeMap<Slot, Array2<f32>>,
    run: Option<Run>,
    last_epoch: Option<u32>,
}

impl Engine {
    /// A stage with fresh layers.
    ///
    /// # Errors
    /// [`StageError::Spec`] says what is wrong with the description.
    pub fn new(spec: StageSpec) -> Result<Self, StageError> {
        spec.check()?;
        Ok(Self {
            layers: spec.layers.iter().map(LayerSpec::build).collect(),
            optimiser: Sgd::new(spec.learning_rate, spec.momentum),
            spec,
            inputs: None,
            labels: None,
            activations: BTreeMap::new(),
            gradients: BTreeMap::new(),
            run: None,
            last_epoch: None,
        })
    }

    /// What the stage was made from.
    pub fn spec(&self) -> &StageSpec {
        &self.spec
    }

    /// Takes the inputs; the first stage only uses them.
    ///
    /// # Errors
    /// [`StageError::Shape`] when the width or the number of training rows is another than the spec's,
    /// [`StageError::Busy`] in mid-epoch.
    pub fn load_inputs(&mut self, train: Array2<f32>, test: Array2<f32>) -> Result<(), StageError> {
        self.idle()?;
        self.check_rows("training inputs", train.nrows(), train.shape())?;
        self.check_width("training inputs", &train, self.spec.inputs())?;
        self.check_width("test inputs", &test, self.spec.inputs())?;
        self.inputs = Some(Loaded { train, test });
        Ok(())
    }

    /// Takes the labels; the last stage only uses them.
    ///
    /// # Errors
    /// [`StageError::Shape`] when there is another number of training labels than the spec's rows,
    /// [`StageError::Busy`] in mid-epoch.
    pub fn load_labels(&mut self, train: Vec<u8>, test: Vec<u8>) -> Result<(), StageError> {
        self.idle()?;
        self.check_rows("training labels", train.len(), &[train.len()])?;
        self.labels = Some(Loaded { train, test });
        Ok(())
    }

    /// Begins an epoch; `advance` does its work.
    ///
    /// # Errors
    /// [`StageError::Busy`] in mid-epoch, [`StageError::NotLoaded`] without the data this stage needs,
    /// [`StageError::Unexpected`] when the epoch is not above the last one.
    pub fn begin(&mut self, epoch: u32, seed: u64) -> Result<(), StageError> {
        self.idle()?;
        if self.spec.is_first() && self.inputs.is_none() {
            return Err(StageError::NotLoaded("inputs".into()));
        }
        if self.spec.is_last() && self.labels.is_none() {
            return Err(StageError::NotLoaded("labels".into()));
        }
        if self.last_epoch.is_some_and(|last| epoch <= last) {
            return Err(StageError::Unexpected(format!("epoch {epoch}")));
        }
        self.last_epoch = Some(epoch);
        self.run = Some(Run {
            epoch,
            order: shuffled(self.spec.rows, seed, epoch),
            step: 0,
            plan: self.plan(0),
            done: 0,
            in_flight: 0,
            peak_in_flight: 0,
            loss: 0.0,
        });
        Ok(())
    }

    /// Takes the previous stage's output. It may be early, even before its epoch has begun here.
    ///
    /// # Errors
    /// [`StageError::Unexpected`] for one that is late, doubled or too far ahead, [`StageError::Shape`].
    pub fn accept_activation(&mut self, slot: Slot, data: Array2<f32>) -> Result<(), StageError> {
        self.check_width("activation", &data, self.spec.inputs())?;
        self.check_slot("activation", slot, self.spec.is_first(), &self.activations)?;
        self.activations.insert(slot, data);
        Ok(())
    }

    /// Takes the next stage's gradient.
    ///
    /// # Errors
    /// As [`Engine::accept_activation`].
    pub fn accept_gradient(&mut self, slot: Slot, data: Array2<f32>) -> Result<(), StageError> {
        self.check_width("gradient", &data, self.spec.outputs())?;
        self.check_slot("gradient", slot, self.spec.is_last(), &self.gradients)?;
        self.gradients.insert(slot, data);
        Ok(())
    }

    /// Does the next operation of the plan if its input is there; at most one, so that the caller can
    /// let messages in between.
    ///
    /// # Errors
    /// [`StageError::Shape`] when the arrays of a micro-batch do not have as many rows as they should.
    pub fn advance(&mut self) -> Result<Turn, StageError> {
        let Some((op, slot)) = self.next_op() else { return Ok(Turn::Waiting) };
        let output = match op {
            Op::Forward(micro) => {
                let Some(input) = self.forward_input(slot) else { return Ok(Turn::Waiting) };
                self.forward(micro, slot, input)?
            }
            Op::Backward(micro) => {
                let Some(gradient) = self.gradients.remove(&slot) else { return Ok(Turn::Waiting) };
                self.backward(micro, slot, gradient)?
            }
        };
        let finished = self.count(op);
        Ok(Turn::Ran { op, step: slot.step, output, finished })
    }

    /// The test set, if this stage has it.
    ///
    /// # Errors
    /// [`StageError::NotLoaded`].
    pub fn test_inputs(&self) -> Result<&Array2<f32>, StageError> {
        self.inputs.as_ref().map(|inputs| &inputs.test).ok_or_else(|| StageError::NotLoaded("inputs".into()))
    }

    /// Takes rows through the layers and remembers nothing.
    ///
    /// # Errors
    /// [`StageError::Shape`].
    pub fn infer(&self, data: Array2<f32>) -> Result<Array2<f32>, StageError> {
        self.check_width("test activation", &data, self.spec.inputs())?;
        Ok(self.layers.iter().fold(data, |x, layer| layer.infer(x)))
    }

    /// Compares logits of the test set with its labels.
    ///
    /// # Errors
    /// [`StageError::NotLoaded`] without labels, [`StageError::Shape`] when there is not one a row.
    pub fn score(&self, logits: &Array2<f32>) -> Result<Evaluation, StageError> {
        let labels = self.labels.as_ref().ok_or_else(|| StageError::NotLoaded("labels".into()))?;
        if labels.test.len() != logits.nrows() {
            let expected = format!("({}, classes)", labels.test.len());
            return Err(StageError::Shape {
                what: "test logits".into(),
                found: logits.shape().into(),
                expected,
            });
        }
        Ok(Evaluation { correct: correct(logits, &labels.test), rows: labels.test.len() })
    }

    /// Copies of all parameters, from the bottom up.
    pub fn parameters(&self) -> Vec<ArrayD<f32>> {
        self.layers.iter().flat_map(|layer| layer.snapshot()).collect()
    }

    fn idle(&self) -> Result<(), StageError> {
        if self.run.is_some() { Err(StageError::Busy) } else { Ok(()) }
    }

    fn check_rows(&self, what: &str, rows: usize, shape: &[usize]) -> Result<(), StageError> {
        if rows == self.spec.rows {
            return Ok(());
        }
        let expected = format!("{} rows", self.spec.rows);
        Err(StageError::Shape { what: what.into(), found: shape.into(), expected })
    }

    fn check_width(&self, what: &str, data: &Array2<f32>, width: usize) -> Result<(), StageError> {
        if data.ncols() == width {
            return Ok(());
        }
        let expected = format!("(rows, {width})");
        Err(StageError::Shape { what: what.into(), found: data.shape().into(), expected })
    }

    /// An honest neighbour is never more than one step ahead, so two steps of micro-batches are the most
    /// that can wait here; more would be memory that a mistaken neighbour fills.
    fn check_slot(
        &self,
        what: &str,
        slot: Slot,
        no_such_neighbour: bool,
        waiting: &BTreeMap<Slot, Array2<f32>>,
    ) -> Result<(), StageError> {
        let late = match &self.run {
            Some(run) => (slot.epoch, slot.step) < (run.epoch, run.step),
            None => self.last_epoch.is_some_and(|last| slot.epoch <= last),
        };
        let full = waiting.len() >= 2 * self.spec.micro_batches;
        if late || full || no_such_neighbour || waiting.contains_key(&slot) {
            return Err(StageError::Unexpected(format!("{what} {slot:?}")));
        }
        Ok(())
    }

    /// Where the rows of a step lie in the order of the epoch.
    fn batch(&self, step: u32) -> Range<usize> {
        let start = (step as usize).saturating_mul(self.spec.batch).min(self.spec.rows);
        start..start.saturating_add(self.spec.batch).min(self.spec.rows)
    }

    /// Into how many micro-batches a step is cut.
    fn micro_batches(&self, step: u32) -> usize {
        self.spec.micro_batches.min(self.batch(step).len())
    }

    /// Where the rows of a micro-batch lie in the order of the epoch: equal parts, up to one row.
    fn micro_batch(&self, slot: Slot) -> Range<usize> {
        let batch = self.batch(slot.step);
        let (rows, parts, part) = (batch.len(), self.micro_batches(slot.step).max(1), slot.micro as usize);
        batch.start + part * rows / parts..batch.start + (part + 1) * rows / parts
    }

    fn plan(&self, step: u32) -> Vec<Op> {
        schedule(self.spec.schedule, self.spec.stage, self.spec.stages, self.micro_batches(step))
    }

    fn next_op(&self) -> Option<(Op, Slot)> {
        let run = self.run.as_ref()?;
        let op = *run.plan.get(run.done)?;
        let (Op::Forward(micro) | Op::Backward(micro)) = op;
        Some((op, Slot { epoch: run.epoch, step: run.step, micro: micro as u32 }))
    }

    /// The rows of this epoch's order that belong to a micro-batch.
    fn rows(&self, slot: Slot) -> &[usize] {
        self.run.as_ref().and_then(|run| run.order.get(self.micro_batch(slot))).unwrap_or(&[])
    }

    fn forward_input(&mut self, slot: Slot) -> Option<Array2<f32>> {
        match &self.inputs {
            Some(inputs) if self.spec.is_first() => Some(inputs.train.select(Axis(0), self.rows(slot))),
            _ => self.activations.remove(&slot),
        }
    }

    fn forward(
        &mut self,
        micro: usize,
        slot: Slot,
        input: Array2<f32>,
    ) -> Result<Option<Output>, StageError> {
        self.check_micro("activation", &input, slot)?;
        let output = self.layers.iter_mut().fold(input, |x, layer| layer.forward(micro, x));
        let Some(labels) = self.labels.as_ref().filter(|_| self.spec.is_last()) else {
            return Ok(Some(Output::Activation(slot, output)));
        };
        // The last stage has the loss at once; its gradient waits for the backward operation's turn.
        let labels: Vec<u8> =
            self.rows(slot).iter().filter_map(|&row| labels.train.get(row)).copied().collect();
        let loss = softmax_cross_entropy(output, &labels, self.batch(slot.step).len());
        self.gradients.insert(slot, loss.gradient);
        if let Some(run) = &mut self.run {
            run.loss += loss.sum;
        }
        Ok(None)
    }

    fn backward(
        &mut self,
        micro: usize,
        slot: Slot,
        gradient: Array2<f32>,
    ) -> Result<Option<Output>, StageError> {
        self.check_micro("gradient", &gradient, slot)?;
        let input_gradient = self.layers.iter_mut().rev().fold(gradient, |g, layer| layer.backward(micro, g));
        Ok((!self.spec.is_first()).then_some(Output::Gradient(slot, input_gradient)))
    }

    fn check_micro(&self, what: &str, data: &Array2<f32>, slot: Slot) -> Result<(), StageError> {
        let rows = self.micro_batch(slot).len();
        if data.nrows() == rows {
            return Ok(());
        }
        let expected = format!("({rows}, width)");
        Err(StageError::Shape { what: what.into(), found: data.shape().into(), expected })
    }

    /// Books an operation; after the last of a step the optimiser's turn has come, after the last step
    /// the epoch is over.
    fn count(&mut self, op: Op) -> Option<EpochOutcome> {
        let (next, steps) = (self.run.as_ref()?.step + 1, self.spec.rows.div_ceil(self.spec.batch));
        let next_plan = self.plan(next);
        let run = self.run.as_mut()?;
        run.done += 1;
        match op {
            Op::Forward(_) => run.in_flight += 1,
            Op::Backward(_) => run.in_flight = run.in_flight.saturating_sub(1),
        }
        run.peak_in_flight = run.peak_in_flight.max(run.in_flight);
        if run.done < run.plan.len() {
            return None;
        }
        self.optimiser.step(&mut self.layers);
        if (next as usize) < steps {
            (run.step, run.plan, run.done) = (next, next_plan, 0);
            return None;
        }
        let loss = self.spec.is_last().then_some(run.loss / self.spec.rows as f64);
        let outcome = EpochOutcome { loss, peak_in_flight: run.peak_in_flight };
        self.run = None;
        Some(outcome)
    }
}
