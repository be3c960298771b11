//! What the run tells: lines and a progress bar for people, one JSON object for programs.

use crate::{
    Training,
    data::Data,
    driver::Leaks,
    options::{Options, Schedule},
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Where lines for people go: stdout, or stderr when stdout belongs to the JSON.
pub struct Human {
    stderr: bool,
}

impl Human {
    /// `json`: keep stdout free.
    pub fn new(json: bool) -> Self {
        Self { stderr: json }
    }

    /// Prints one line.
    pub fn line(&self, text: &str) {
        if self.stderr { eprintln!("{text}") } else { println!("{text}") }
    }

    /// A bar on stderr that counts epochs; invisible when stderr is not a terminal.
    pub fn progress(&self, epochs: u32) -> Progress {
        let bar = ProgressBar::new(u64::from(epochs));
        // The template is a constant; were it wrong, the bar would merely look plain.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} epoch {pos}/{len} {msg} {eta} left") {
            bar.set_style(style);
        }
        bar.tick();
        Progress(bar)
    }
}

/// The progress bar of the training.
pub struct Progress(ProgressBar);

impl Progress {
    /// Moves the bar and prints the epoch's line above it.
    pub fn epoch_done(&self, human: &Human, epoch: u32, loss: f64, accuracy: f64) {
        self.0
            .suspend(|| human.line(&format!("epoch {epoch:3}  loss {loss:.4}  test accuracy {accuracy:.4}")));
        self.0.set_message(format!("loss {loss:.4}"));
        self.0.inc(1);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// The whole run, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The driver and one per stage.
    pub processes: usize,
    /// Process ids, the driver's first, then by stage.
    pub pids: Vec<u32>,
    /// Rows of the data set.
    pub rows: usize,
    /// Columns of the data set.
    pub features: usize,
    /// Passes over the training set.
    pub epochs: u32,
    /// `gpipe` or `1f1b`.
    pub schedule: Schedule,
    /// Stages of the pipeline.
    pub stages: usize,
    /// Micro-batches of a batch.
    pub micro_batches: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// The run's seed.
    pub seed: u64,
    /// Mean training loss per row, by epoch.
    pub losses: Vec<f64>,
    /// Share of the test set that was right after the last epoch.
    pub test_accuracy: f64,
    /// Largest difference of any parameter to the plain loop; null when it is not finite.
    pub max_abs_diff: f32,
    /// Bytes sent to peers, by process, the driver's first.
    pub bytes_sent: Vec<u64>,
    /// The most micro-batches with activations in memory, by stage.
    pub peak_in_flight: Vec<usize>,
    /// Seconds of computing, by stage.
    pub busy_seconds: Vec<f64>,
    /// Share of idle time that the schedule cannot avoid with equal stages and free messages.
    pub bubble_predicted: f64,
    /// Share of time in which the stages did not compute.
    pub bubble_measured: f64,
    /// Seconds of training with its evaluations.
    pub seconds: f64,
    /// Handles the driver still held and objects still alive after everything was let go.
    pub leaked: u64,
}

impl Summary {
    /// Puts together what is known at the end.
    pub fn new(
        options: &Options,
        data: &Data,
        pids: Vec<u32>,
        training: &Training,
        max_abs_diff: f32,
        bytes_sent: Vec<u64>,
        leaks: &Leaks,
    ) -> Self {
        let (stages, micro_batches) = (options.stages as f64, options.micro_batches as f64);
        let available = stages * training.train_seconds;
        Self {
            processes: pids.len(),
            pids,
            rows: data.rows(),
            features: data.features(),
            epochs: options.epochs,
            schedule: options.schedule,
            stages: options.stages,
            micro_batches: options.micro_batches,
            hidden: options.hidden,
            seed: options.seed,
            losses: training.losses.clone(),
            test_accuracy: training.accuracies.last().copied().unwrap_or(0.0),
            max_abs_diff,
            bytes_sent,
            peak_in_flight: training.peak_in_flight.clone(),
            busy_seconds: training.busy_seconds.clone(),
            bubble_predicted: (stages - 1.0) / (micro_batches + stages - 1.0),
            bubble_measured: 1.0 - training.busy_seconds.iter().sum::<f64>() / available,
            seconds: training.seconds,
            leaked: leaks.total(),
        }
    }

    /// The same for people.
    pub fn explain(&self, human: &Human) {
        human.line(&format!("trained in {:.2} s, test accuracy {:.4}", self.seconds, self.test_accuracy));
        human.line(&format!(
            "{} processes {:?}; the driver sent {} to them",
            self.processes,
            self.pids,
            bytes(self.bytes_sent.first().copied().unwrap_or(0))
        ));
        for stage in 0..self.stages {
            human.line(&format!(
                "stage {stage}: busy {:.2} s, at most {} micro-batches in flight, sent {}",
                self.busy_seconds[stage],
                self.peak_in_flight[stage],
                bytes(self.bytes_sent.get(stage + 1).copied().unwrap_or(0))
            ));
        }
        human.line(&format!(
            "bubble: {:.1} % predicted, {:.1} % measured (with messages, and with stages sharing cores)",
            100.0 * self.bubble_predicted,
            100.0 * self.bubble_measured
        ));
        human.line(&format!("largest parameter difference to the plain loop: {:e}", self.max_abs_diff));
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}
