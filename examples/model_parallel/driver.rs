//! What the driver does with the stages: make, introduce, feed, train, ask, let go.

use crate::{data::Data, options::Options};
use anyhow::{Context, Result, anyhow};
use ndarray::{Array1, ArrayD};
use rref::{Node, RRef, Tensor};
use rref_actors::pipeline::{
    Connect, Disconnect, EpochReport, Evaluate, LoadInputs, LoadLabels, Parameters, Stage, StageError, Train,
    stage,
};
use std::time::Duration;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

/// When a stage says that its neighbour is lost, the neighbour's own failure is the better message; this
/// is how long to wait for it.
const BLAME_GRACE: Duration = Duration::from_secs(2);
/// How long released objects may take to disappear from the workers before they count as leaked.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

/// Registered on every node: bytes this process has sent to its peers.
pub fn bytes_sent() -> u64 {
    Node::current().map_or(0, |node| node.report().bytes_sent)
}

/// Registered on every node: objects that live on it.
pub fn live_objects() -> u64 {
    Node::current().map_or(0, |node| node.report().objects.len() as u64)
}

/// The worker of a stage: ranks count from 1, stages from 0.
fn worker(stage: usize) -> String {
    format!("worker{}", stage + 1)
}

/// The handles of all stages, bottom first.
pub struct Pipeline {
    stages: Vec<RRef<Stage>>,
}

impl Pipeline {
    /// One stage per worker. Returns before the workers have heard of it: the messages that follow queue
    /// up behind the creation.
    pub fn create(node: &Node, options: &Options, data: &Data) -> Result<Self> {
        let stages = options
            .stages(data)
            .into_iter()
            .enumerate()
            .map(|(k, spec)| {
                node.remote(worker(k), stage, (spec,)).with_context(|| format!("cannot create stage {k}"))
            })
            .collect::<Result<_>>()?;
        Ok(Self { stages })
    }

    /// Introduces the stages to their neighbours and gives each end its half of the data.
    pub async fn prepare(&self, data: &Data) -> Result<()> {
        let connecting = self.stages.iter().enumerate().map(|(k, stage)| {
            let previous = k.checked_sub(1).and_then(|k| self.stages.get(k)).cloned();
            stage.send(Connect { previous, next: self.stages.get(k + 1).cloned() })
        });
        gather("connect", plain(connecting)).await?;

        let (Some(first), Some(last)) = (self.stages.first(), self.stages.last()) else { return Ok(()) };
        let inputs = first.send(LoadInputs {
            train: Tensor::from(data.train_inputs.clone()),
            test: Tensor::from(data.test_inputs.clone()),
        });
        let labels = last.send(LoadLabels {
            train: Tensor::from(Array1::from(data.train_labels.clone())),
            test: Tensor::from(Array1::from(data.test_labels.clone())),
        });
        gather("load", [(0, inputs), (self.stages.len() - 1, labels)]).await?;
        Ok(())
    }

    /// One epoch on all stages; their reports, bottom first. No time limit: how long an epoch takes is
    /// the user's choice, and a worker that dies is noticed without one.
    pub async fn train(&self, epoch: u32, seed: u64, timeline: bool) -> Result<Vec<EpochReport>> {
        let requests = self
            .stages
            .iter()
            .map(|stage| stage.send(Train { epoch, seed, timeline }).timeout(Duration::MAX));
        gather("train", requests.enumerate()).await
    }

    /// Share of the test set that is right.
    pub async fn evaluate(&self, round: u32) -> Result<f64> {
        let requests = self.stages.iter().map(|stage| stage.send(Evaluate { round }));
        let scores = gather("evaluate", requests.enumerate()).await?;
        let score = scores.into_iter().flatten().next_back().context("the last stage gave no score")?;
        Ok(score.correct as f64 / score.rows.max(1) as f64)
    }

    /// All parameters, bottom first.
    pub async fn parameters(&self) -> Result<Vec<ArrayD<f32>>> {
        let parts =
            gather("fetch parameters", plain(self.stages.iter().map(|stage| stage.send(Parameters)))).await?;
        Ok(parts.into_iter().flatten().map(Tensor::into_array).collect())
    }

    /// Another handle to the last stage.
    pub fn any_handle(&self) -> Option<RRef<Stage>> {
        self.stages.last().cloned()
    }

    /// Cuts the circles between neighbours, then drops all handles.
    pub async fn release(self) -> Result<()> {
        gather("disconnect", plain(self.stages.iter().map(|stage| stage.send(Disconnect)))).await?;
        Ok(())
    }
}

type Answer<R> = Result<Result<R, StageError>, rref::Error>;

/// Requests that no stage can refuse, in the form of those that it can, numbered by stage.
fn plain<R: Send + 'static>(
    requests: impl Iterator<Item = impl Future<Output = Result<R, rref::Error>> + Send + 'static>,
) -> impl Iterator<Item = (usize, impl Future<Output = Answer<R>> + Send + 'static)> {
    requests.enumerate().map(|(k, request)| (k, async move { request.await.map(Ok) }))
}

/// Awaits requests to several stages at once; answers come in the order of the requests.
///
/// Fails as soon as one stage cannot be reached, and names it with its worker. An error that a living
/// stage reports comes second: it is often only the echo of a neighbour's death.
async fn gather<R, F>(what: &str, requests: impl IntoIterator<Item = (usize, F)>) -> Result<Vec<R>>
where
    R: Send + 'static,
    F: Future<Output = Answer<R>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (position, (stage, request)) in requests.into_iter().enumerate() {
        tasks.spawn(async move { (position, stage, request.await) });
    }
    let mut answers: Vec<Option<R>> = (0..tasks.len()).map(|_| None).collect();
    let mut complaint: Option<(anyhow::Error, Instant)> = None;
    loop {
        let next = match &complaint {
            None => tasks.join_next().await,
            Some((_, until)) => timeout_at(*until, tasks.join_next()).await.unwrap_or(None),
        };
        match next.transpose()? {
            None => break,
            Some((position, _, Ok(Ok(answer)))) => answers[position] = Some(answer),
            Some((_, stage, Ok(Err(error)))) => {
                let error = anyhow!("stage {stage} on {} cannot {what}: {error}", worker(stage));
                complaint.get_or_insert((error, Instant::now() + BLAME_GRACE));
            }
            Some((_, stage, Err(error))) => {
                let message = format!("lost stage {stage} on {} (to {what})", worker(stage));
                return Err(anyhow::Error::from(error).context(message));
            }
        }
    }
    match complaint {
        Some((error, _)) => Err(error),
        None => Ok(answers.into_iter().flatten().collect()),
    }
}

/// What every worker has sent, by rank.
pub async fn bytes_of_workers(node: &Node, workers: usize) -> Result<Vec<u64>> {
    let mut bytes = Vec::with_capacity(workers);
    for stage in 0..workers {
        let answer = node.call(worker(stage), bytes_sent, ()).await;
        bytes.push(answer.with_context(|| format!("cannot ask {}", worker(stage)))?);
    }
    Ok(bytes)
}

/// What is left when everything should be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaks {
    /// Handles that this process still holds.
    pub handles: usize,
    /// Objects that still live, by worker.
    pub objects: Vec<u64>,
}

impl Leaks {
    /// Both together: a handle that is kept and the object that it keeps alive count once each.
    pub fn total(&self) -> u64 {
        self.handles as u64 + self.objects.iter().sum::<u64>()
    }

    /// One line for the reader.
    pub fn describe(&self) -> String {
        if self.total() == 0 {
            return "nothing leaked: all handles are dropped and all objects freed".into();
        }
        format!("leaked: {} handles held here, objects alive by worker {:?}", self.handles, self.objects)
    }
}

/// Counts what is left, once nothing is or the grace is over: freeing takes a message or two.
pub async fn count_leaks(node: &Node, workers: usize) -> Result<Leaks> {
    let deadline = Instant::now() + RELEASE_GRACE;
    loop {
        let mut objects = Vec::with_capacity(workers);
        for stage in 0..workers {
            objects.push(node.call(worker(stage), live_objects, ()).await?);
        }
        let leaks = Leaks { handles: node.report().held.len(), objects };
        if leaks.total() == 0 || Instant::now() >= deadline {
            return Ok(leaks);
        }
        sleep(Duration::from_millis(20)).await;
    }
}
