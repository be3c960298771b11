//! The command line.

use crate::{data::Data, plain::Recipe};
use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use rref_actors::{nn, pipeline};
use serde::Serialize;
use std::path::PathBuf;

/// Trains a digit classifier split over processes, and checks it against a plain loop.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// Stages of the pipeline; each is a process of its own
    #[arg(long, default_value_t = 2)]
    pub stages: usize,
    /// Into how many micro-batches a batch is cut
    #[arg(long, default_value_t = 8)]
    pub micro_batches: usize,
    /// Passes over the training set
    #[arg(long, default_value_t = 12)]
    pub epochs: u32,
    /// Width of the hidden layers
    #[arg(long, default_value_t = 512)]
    pub hidden: usize,
    /// Of the initial weights and the order of the rows
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Rows of a batch
    #[arg(long, default_value_t = 96)]
    pub batch: usize,
    /// How forward and backward passes take turns
    #[arg(long, value_enum, default_value_t = Schedule::OneForwardOneBackward)]
    pub schedule: Schedule,
    /// Draw the loss curve and what the stages did when, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Keep a reference on purpose; the run must report it
    #[arg(long)]
    pub leak: bool,
    /// Kill the worker of this stage (from 0) in the second epoch; the run must fail and name it
    #[arg(long, value_name = "STAGE")]
    pub kill_stage: Option<usize>,
    /// Print one JSON object as the last line of stdout, everything else to stderr
    #[arg(long)]
    pub json: bool,
}

/// [`pipeline::Schedule`] as the command line and the JSON spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
pub enum Schedule {
    /// All forwards, then all backwards
    #[value(name = "gpipe")]
    #[serde(rename = "gpipe")]
    Gpipe,
    /// One forward, one backward: fewer activations in memory
    #[value(name = "1f1b")]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
}

impl Schedule {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpipe => "gpipe",
            Self::OneForwardOneBackward => "1f1b",
        }
    }
}

impl From<Schedule> for pipeline::Schedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Gpipe => Self::Gpipe,
            Schedule::OneForwardOneBackward => Self::OneForwardOneBackward,
        }
    }
}

/// Step width and momentum of the optimiser; not options, because the digits need no others.
const LEARNING_RATE: f32 = 0.03;
const MOMENTUM: f32 = 0.9;

impl Options {
    /// What clap cannot see: options that contradict each other.
    pub fn check(&self) -> Result<()> {
        if !(1..=8).contains(&self.stages) {
            bail!("--stages must be 1 to 8: each is a process and a layer or more");
        }
        if self.epochs == 0 || self.hidden == 0 {
            bail!("--epochs and --hidden must be at least 1");
        }
        if self.micro_batches == 0 || self.micro_batches > self.batch {
            bail!("--micro-batches must be 1 to {}, the rows of a batch", self.batch);
        }
        if let Some(stage) = self.kill_stage {
            if stage >= self.stages {
                bail!("--kill-stage {stage}: stages are counted from 0, there are {}", self.stages);
            }
            if self.epochs < 2 {
                bail!("--kill-stage needs --epochs 2 or more: it kills in the second");
            }
        }
        Ok(())
    }

    /// Dense layers of the network: four, so that two stages carry nearly the same load, or one a stage.
    /// More would be harder to train, and are not needed for digits.
    fn dense_layers(&self) -> usize {
        self.stages.max(4)
    }

    /// What each stage is told at its creation.
    pub fn stages(&self, data: &Data) -> Vec<pipeline::StageSpec> {
        let layers = nn::mlp(data.features(), self.hidden, data.classes, self.dense_layers(), self.seed);
        pipeline::split(&layers, self.stages)
            .into_iter()
            .enumerate()
            .map(|(stage, layers)| pipeline::StageSpec {
                stage,
                stages: self.stages,
                layers,
                rows: data.train_labels.len(),
                batch: self.batch,
                micro_batches: self.micro_batches,
                schedule: self.schedule.into(),
                learning_rate: LEARNING_RATE,
                momentum: MOMENTUM,
            })
            .collect()
    }

    /// The same training for the plain loop.
    pub fn recipe(&self, data: &Data) -> Recipe {
        let mut widths = vec![self.hidden; self.dense_layers() + 1];
        widths[0] = data.features();
        widths[self.dense_layers()] = data.classes;
        Recipe {
            widths,
            seed: self.seed,
            epochs: self.epochs,
            batch: self.batch,
            micro_batches: self.micro_batches,
            learning_rate: LEARNING_RATE,
            momentum: MOMENTUM,
        }
    }

    /// What is about to happen, in one line.
    pub fn headline(&self, data: &Data) -> String {
        format!(
            "{} digits for training, {} for the test; {} dense layers of {} in {} stages; {} with {} micro-batches of a batch of {}",
            data.train_labels.len(),
            data.test_labels.len(),
            self.dense_layers(),
            self.hidden,
            self.stages,
            self.schedule.name(),
            self.micro_batches,
            self.batch
        )
    }
}
