//! The actor around [`Engine`]: takes messages, runs operations, passes results to the neighbours.

use super::{
    Activation, Connect, Disconnect, Engine, EpochReport, Evaluate, Evaluation, Gradient, LoadInputs,
    LoadLabels, Output, Parameters, Slot, Span, StageError, StageSpec, TestActivation, Train, Turn,
};
use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, MessageResult, ResponseFuture, WrapFuture,
};
use ndarray::{Array1, Array2, Ix1, Ix2};
use rref::{Object, RRef, Tensor};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Makes a stage: the function to register and to call with `node.remote(peer, stage, (spec,))`.
///
/// # Errors
/// [`StageError::Spec`] says what is wrong with the description; the reference then fails with
/// `CreateFailed`.
pub fn stage(spec: StageSpec) -> Result<Stage, StageError> {
    Ok(Stage {
        engine: Engine::new(spec)?,
        previous: None,
        next: None,
        epoch: None,
        evaluation: None,
        passed: None,
        turn_due: false,
        failed: None,
    })
}

/// Some consecutive layers of a network, trained together with the stages before and after it.
#[derive(Object)]
#[object(messages(
    Connect,
    Disconnect,
    LoadInputs,
    LoadLabels,
    Train,
    Evaluate,
    Parameters,
    Activation,
    Gradient,
    TestActivation
))]
pub struct Stage {
    engine: Engine,
    previous: Option<RRef<Stage>>,
    next: Option<RRef<Stage>>,
    epoch: Option<Epoch>,
    /// Who waits for the test set to pass, and in which round.
    evaluation: Option<(u32, oneshot::Sender<Score>)>,
    /// The last round that passed, for an `Evaluate` that comes behind its own test set.
    passed: Option<(u32, Score)>,
    /// Whether a turn is in the queue already; one is enough.
    turn_due: bool,
    /// Set for good by the first error in mid-training.
    failed: Option<StageError>,
}

/// The answer to [`Evaluate`]: nothing, or the score from the last stage.
type Score = Result<Option<Evaluation>, StageError>;

/// The epoch under way: who waits for it, and how the time went.
struct Epoch {
    reply: oneshot::Sender<Result<EpochReport, StageError>>,
    /// The same moment on both clocks: `Instant` measures, `SystemTime` can be compared with other
    /// processes.
    began: Instant,
    began_us: u64,
    busy: Duration,
    timeline: Option<Vec<Span>>,
}

impl Epoch {
    fn new(reply: oneshot::Sender<Result<EpochReport, StageError>>, timeline: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            reply,
            began: Instant::now(),
            began_us: now.as_micros() as u64,
            busy: Duration::ZERO,
            timeline: timeline.then(Vec::new),
        }
    }

    fn since_began_us(&self, at: Instant) -> u64 {
        self.began_us + at.duration_since(self.began).as_micros() as u64
    }
}

impl Stage {
    fn usable(&self) -> Result<(), StageError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(StageError::Failed(error.to_string())))
    }

    fn connected(&self) -> Result<(), StageError> {
        if !self.engine.spec().is_first() && self.previous.is_none() {
            return Err(StageError::NotConnected("previous".into()));
        }
        if !self.engine.spec().is_last() && self.next.is_none() {
            return Err(StageError::NotConnected("next".into()));
        }
        Ok(())
    }

    /// Gives up: whoever waits gets the reason, and so does whoever asks later.
    fn fail(&mut self, error: StageError) {
        if let Some(epoch) = self.epoch.take() {
            // The driver may have gone; then nobody wants to know.
            let _ = epoch.reply.send(Err(error.clone()));
        }
        if let Some((_, reply)) = self.evaluation.take() {
            let _ = reply.send(Err(error.clone()));
        }
        self.failed.get_or_insert(error);
    }

    /// Books a turn behind everything that is already waiting on this thread, sockets included. Running
    /// the whole plan in one go instead would hold back the first micro-batch until the last is done,
    /// and the next stage would have nothing to do meanwhile.
    fn book_turn(&mut self, ctx: &mut Context<Self>) {
        if self.turn_due || self.epoch.is_none() {
            return;
        }
        self.turn_due = true;
        ctx.spawn(tokio::task::yield_now().into_actor(self).map(|(), stage, ctx| stage.turn(ctx)));
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        self.turn_due = false;
        if self.epoch.is_none() {
            return;
        }
        match self.run_one() {
            Ok(true) => self.book_turn(ctx),
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Runs one operation, if one is ready, and passes on what came of it.
    fn run_one(&mut self) -> Result<bool, StageError> {
        let start = Instant::now();
        let Turn::Ran { op, step, output, finished } = self.engine.advance()? else { return Ok(false) };
        let end = Instant::now();
        if let Some(epoch) = &mut self.epoch {
            epoch.busy += end - start;
            let (start_us, end_us) = (epoch.since_began_us(start), epoch.since_began_us(end));
            if let Some(timeline) = &mut epoch.timeline {
                timeline.push(Span { op, step, start_us, end_us });
            }
        }
        match output {
            Some(Output::Activation(Slot { epoch, step, micro }, data)) => {
                let message = Activation { epoch, step, micro, data: Tensor::from(data) };
                tell("next", self.next.as_ref(), |next| next.do_send(message))?;
            }
            Some(Output::Gradient(Slot { epoch, step, micro }, data)) => {
                let message = Gradient { epoch, step, micro, data: Tensor::from(data) };
                tell("previous", self.previous.as_ref(), |previous| previous.do_send(message))?;
            }
            None => {}
        }
        let (Some(outcome), Some(_)) = (finished, &self.epoch) else { return Ok(true) };
        if let Some(epoch) = self.epoch.take() {
            let _ = epoch.reply.send(Ok(EpochReport {
                loss: outcome.loss,
                peak_in_flight: outcome.peak_in_flight,
                busy_seconds: epoch.busy.as_secs_f64(),
                timeline: epoch.timeline.unwrap_or_default(),
            }));
        }
        Ok(true)
    }

    /// Takes the test set through this stage; the last one scores it, the others pass it on.
    fn pass_test(&mut self, round: u32, data: Array2<f32>) {
        let result = self.usable().and_then(|()| {
            let output = self.engine.infer(data)?;
            if self.engine.spec().is_last() {
                return self.engine.score(&output).map(Some);
            }
            let message = TestActivation { round, data: Tensor::from(output) };
            tell("next", self.next.as_ref(), |next| next.do_send(message))?;
            Ok(None)
        });
        match self.evaluation.take() {
            Some((waiting, reply)) if waiting == round => {
                let _ = reply.send(result);
            }
            other => {
                self.evaluation = other;
                self.passed = Some((round, result));
            }
        }
    }
}

fn tell(
    neighbour: &str,
    target: Option<&RRef<Stage>>,
    send: impl FnOnce(&RRef<Stage>) -> rref::Result<()>,
) -> Result<(), StageError> {
    let target = target.ok_or_else(|| StageError::NotConnected(neighbour.into()))?;
    send(target)
        .map_err(|error| StageError::Neighbour { neighbour: neighbour.into(), reason: error.to_string() })
}

/// A tensor from another process as a matrix; that it is one is not certain before.
fn matrix(what: &str, tensor: Tensor<f32>) -> Result<Array2<f32>, StageError> {
    let found = tensor.shape().to_vec();
    tensor.into_array().into_dimensionality::<Ix2>().map_err(|_| StageError::Shape {
        what: what.into(),
        found,
        expected: "(rows, width)".into(),
    })
}

fn list(what: &str, tensor: Tensor<u8>) -> Result<Vec<u8>, StageError> {
    let found = tensor.shape().to_vec();
    let list: Array1<u8> = tensor
        .into_array()
        .into_dimensionality::<Ix1>()
        .map_err(|_| StageError::Shape { what: what.into(), found, expected: "(rows)".into() })?;
    Ok(list.to_vec())
}

impl Actor for Stage {
    type Context = Context<Self>;
}

impl Handler<Connect> for Stage {
    type Result = ();
    fn handle(&mut self, Connect { previous, next }: Connect, _: &mut Self::Context) {
        (self.previous, self.next) = (previous, next);
    }
}

impl Handler<Disconnect> for Stage {
    type Result = ();
    fn handle(&mut self, _: Disconnect, _: &mut Self::Context) {
        (self.previous, self.next) = (None, None);
    }
}

impl Handler<LoadInputs> for Stage {
    type Result = Result<(), StageError>;
    fn handle(&mut self, LoadInputs { train, test }: LoadInputs, _: &mut Self::Context) -> Self::Result {
        self.engine.load_inputs(matrix("training inputs", train)?, matrix("test inputs", test)?)
    }
}

impl Handler<LoadLabels> for Stage {
    type Result = Result<(), StageError>;
    fn handle(&mut self, LoadLabels { train, test }: LoadLabels, _: &mut Self::Context) -> Self::Result {
        self.engine.load_labels(list("training labels", train)?, list("test labels", test)?)
    }
}

impl Handler<Train> for Stage {
    type Result = ResponseFuture<Result<EpochReport, StageError>>;
    fn handle(&mut self, train: Train, ctx: &mut Self::Context) -> Self::Result {
        let begun = self
            .usable()
            .and_then(|()| self.connected())
            .and_then(|()| self.engine.begin(train.epoch, train.seed));
        let (reply, answer) = oneshot::channel();
        if begun.is_ok() {
            self.epoch = Some(Epoch::new(reply, train.timeline));
            self.book_turn(ctx);
        }
        Box::pin(async move {
            begun?;
            answer.await.unwrap_or(Err(StageError::Dropped))
        })
    }
}

impl Handler<Activation> for Stage {
    type Result = ();
    fn handle(&mut self, message: Activation, ctx: &mut Self::Context) {
        let Activation { epoch, step, micro, data } = message;
        let accepted = matrix("activation", data)
            .and_then(|data| self.engine.accept_activation(Slot { epoch, step, micro }, data));
        match accepted {
            Ok(()) => self.book_turn(ctx),
            Err(error) => self.fail(error),
        }
    }
}

impl Handler<Gradient> for Stage {
    type Result = ();
    fn handle(&mut self, message: Gradient, ctx: &mut Self::Context) {
        let Gradient { epoch, step, micro, data } = message;
        let accepted = matrix("gradient", data)
            .and_then(|data| self.engine.accept_gradient(Slot { epoch, step, micro }, data));
        match accepted {
            Ok(()) => self.book_turn(ctx),
            Err(error) => self.fail(error),
        }
    }
}

impl Handler<Evaluate> for Stage {
    type Result = ResponseFuture<Score>;
    fn handle(&mut self, Evaluate { round }: Evaluate, _: &mut Self::Context) -> Self::Result {
        if let Err(error) =
            self.usable().and_then(|()| if self.epoch.is_some() { Err(StageError::Busy) } else { Ok(()) })
        {
            return Box::pin(std::future::ready(Err(error)));
        }
        if let Some((_, result)) = self.passed.take_if(|(passed, _)| *passed == round) {
            return Box::pin(std::future::ready(result));
        }
        let (reply, answer) = oneshot::channel();
        // A reply that still waits for an older round is dropped here, and its caller told.
        self.evaluation = Some((round, reply));
        if self.engine.spec().is_first() {
            match self.engine.test_inputs().cloned() {
                Ok(inputs) => self.pass_test(round, inputs),
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            }
        }
        Box::pin(async move { answer.await.unwrap_or(Err(StageError::Dropped)) })
    }
}

impl Handler<TestActivation> for Stage {
    type Result = ();
    fn handle(&mut self, TestActivation { round, data }: TestActivation, _: &mut Self::Context) {
        match matrix("test activation", data) {
            Ok(data) => self.pass_test(round, data),
            Err(error) => self.fail(error),
        }
    }
}

impl Handler<Parameters> for Stage {
    type Result = MessageResult<Parameters>;
    fn handle(&mut self, _: Parameters, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.engine.parameters().into_iter().map(Tensor::from).collect())
    }
}
