//! Trains a digit classifier that is split over processes, through typed references to actix actors.
//!
//! ```text
//! cargo run --release --example model_parallel -- --stages 2 --schedule 1f1b --plot run.svg
//! ```
//!
//! This program starts itself once more for every stage. The driver (rank 0) creates a
//! [`Stage`](rref_actors::pipeline::Stage) on each worker, introduces neighbours to each other, hands out
//! the data once and then only says `Train` once an epoch: activations and gradients go from worker to
//! worker. In the end it trains the same network in a plain loop of its own ([`plain`]) and compares
//! every parameter.

mod data;
mod driver;
mod options;
mod plain;
mod plot;
mod report;

use anyhow::{Context, Result, bail};
use clap::Parser;
use data::Data;
use driver::Pipeline;
use options::Options;
use report::{Human, Summary};
use rref::{Builder, Node, launch};
use rref_actors::pipeline::{EpochReport, Stage, stage};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// The same registration on every node: what may be created, called and sent.
fn node(name: &str) -> Builder {
    Node::builder(name)
        .register::<Stage>()
        .function(stage)
        .function(driver::bytes_sent)
        .function(driver::live_objects)
}

fn main() -> ExitCode {
    // In a worker this serves until the driver is done, and never returns. It comes before the options,
    // because a worker has nothing to do with them.
    let result = launch::worker(node).map_err(Into::into).and_then(|()| {
        let options = Options::parse();
        options.check()?;
        rref::prelude::System::new().block_on(run(options))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let human = Human::new(options.json);
    let data = Data::load();
    let cluster = launch::local(options.stages).start(node).await.context("cannot start the workers")?;
    human.line(&options.headline(&data));

    let pipeline = Pipeline::create(cluster.node(), &options, &data)?;
    pipeline.prepare(&data).await?;
    let training = train(&pipeline, &cluster, &options, &human).await?;
    let trained = pipeline.parameters().await?;

    // The reference loop keeps a core busy for seconds: on a thread of its own, so that this node goes
    // on answering its peers meanwhile.
    let (recipe, rows) = (options.recipe(&data), data.clone());
    let reference = tokio::task::spawn_blocking(move || plain::train(&recipe, &rows)).await?;
    let max_abs_diff = plain::largest_difference(&trained, &reference.parameters);

    let mut bytes_sent = vec![cluster.node().report().bytes_sent];
    bytes_sent.extend(driver::bytes_of_workers(cluster.node(), options.stages).await?);

    if options.leak {
        // A handle that is never dropped keeps its stage alive for good: this is what a leak is.
        std::mem::forget(pipeline.any_handle());
    }
    pipeline.release().await?;
    let leaks = driver::count_leaks(cluster.node(), options.stages).await?;
    human.line(&leaks.describe());

    let summary = Summary::new(&options, &data, cluster.pids(), &training, max_abs_diff, bytes_sent, &leaks);
    summary.explain(&human);
    let left = cluster.shutdown().await?;
    if !left.leaked.is_empty() {
        human.line(&format!("shutdown found {} leaked: {:?}", left.leaked.len(), left.leaked));
    }
    if let Some(path) = &options.plot {
        plot::draw(path, &summary, &training.timelines).with_context(|| format!("cannot draw {path:?}"))?;
        human.line(&format!("drew {}", path.display()));
    }
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    }
    if !plain::agrees(max_abs_diff) {
        bail!(
            "the pipeline's parameters differ from the plain loop's by {max_abs_diff:e}, more than {:e}",
            plain::TOLERANCE
        );
    }
    Ok(())
}

/// What the epochs left behind.
pub struct Training {
    /// Mean loss per row, by epoch.
    pub losses: Vec<f64>,
    /// Share of the test set that was right, by epoch.
    pub accuracies: Vec<f64>,
    /// By stage, over all epochs.
    pub peak_in_flight: Vec<usize>,
    /// By stage, over all epochs.
    pub busy_seconds: Vec<f64>,
    /// Time spent in epochs, without evaluations.
    pub train_seconds: f64,
    /// Time spent in epochs and evaluations.
    pub seconds: f64,
    /// By stage, of the last epoch; empty without `--plot`.
    pub timelines: Vec<Vec<rref_actors::pipeline::Span>>,
}

async fn train(
    pipeline: &Pipeline,
    cluster: &launch::Cluster,
    options: &Options,
    human: &Human,
) -> Result<Training> {
    let mut training = Training {
        losses: Vec::new(),
        accuracies: Vec::new(),
        peak_in_flight: vec![0; options.stages],
        busy_seconds: vec![0.0; options.stages],
        train_seconds: 0.0,
        seconds: 0.0,
        timelines: Vec::new(),
    };
    let progress = human.progress(options.epochs);
    let began = Instant::now();
    for epoch in 1..=options.epochs {
        let timeline = options.plot.is_some() && epoch == options.epochs;
        let started = Instant::now();
        let reports = match options.kill_stage.filter(|_| epoch == 2) {
            None => pipeline.train(epoch, options.seed, timeline).await?,
            Some(victim) => {
                let middle = Duration::from_secs_f64(training.train_seconds / 2.0);
                train_and_kill(pipeline, cluster, options, victim, middle).await?
            }
        };
        training.train_seconds += started.elapsed().as_secs_f64();
        for (stage, report) in reports.iter().enumerate() {
            training.busy_seconds[stage] += report.busy_seconds;
            training.peak_in_flight[stage] = training.peak_in_flight[stage].max(report.peak_in_flight);
        }
        let loss =
            reports.last().and_then(|report| report.loss).context("the last stage reported no loss")?;
        let accuracy = pipeline.evaluate(epoch).await?;
        training.losses.push(loss);
        training.accuracies.push(accuracy);
        if timeline {
            training.timelines = reports.into_iter().map(|report| report.timeline).collect();
        }
        progress.epoch_done(human, epoch, loss, accuracy);
    }
    progress.finish();
    training.seconds = began.elapsed().as_secs_f64();
    if options.kill_stage.is_some() {
        bail!("a worker was killed and nobody noticed");
    }
    Ok(training)
}

/// `--kill-stage`: begins an epoch and kills a worker in the middle of it. Whether the epoch or what
/// comes next fails is a matter of time; that something does is not.
async fn train_and_kill(
    pipeline: &Pipeline,
    cluster: &launch::Cluster,
    options: &Options,
    victim: usize,
    middle: Duration,
) -> Result<Vec<EpochReport>> {
    let killing = async {
        tokio::time::sleep(middle).await;
        // Stage k lives on rank k + 1.
        cluster.kill(victim as u32 + 1)
    };
    let (reports, killed) = tokio::join!(pipeline.train(2, options.seed, false), killing);
    killed.context("cannot kill the worker")?;
    reports
}
