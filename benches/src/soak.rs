//! Runs the cluster fuzz with as many seeds as asked for, on all cores.

#[path = "../../tests/fuzz/crashes.rs"]
mod crashes;
#[path = "../../tests/fuzz/liveness.rs"]
mod liveness;
#[path = "../../tests/fuzz/plan.rs"]
mod plan;
#[path = "../../tests/fuzz/program.rs"]
mod program;
#[path = "../../tests/fuzz/run.rs"]
mod run;
#[path = "../../tests/fuzz/weather.rs"]
mod weather;
#[path = "../../tests/fuzz/world.rs"]
mod world;

use anyhow::{Result, bail};
use clap::Args;
use run::{Options, Shown, command, run};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

#[derive(Args)]
pub struct Soak {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Nodes also crash, stop for a while and return, and clocks go wrong.
    #[arg(long)]
    crashes: bool,
    /// Leaves a rule of the protocol out: `unpin_at_send`, `release_unguarded`, or the name of a rule in
    /// `rref_core::Rules`, as `wait_for_grace`.
    #[arg(long)]
    mutant: Option<String>,
    /// Writes what happens in each failing run, and a diagram, to this folder.
    #[arg(long, num_args = 0..=1, default_missing_value = "soak-traces")]
    trace: Option<PathBuf>,
}

/// The last line of the output.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    from: u64,
    virtual_hours: f64,
    wall_seconds: f64,
    calls: u64,
    handoffs: u64,
    cuts: u64,
    crashes: u64,
    pauses: u64,
    partitions: u64,
    frames: u64,
    violations: u64,
    first_violation: Option<u64>,
}

impl Summary {
    fn add(&mut self, shown: &Shown) {
        self.virtual_hours += shown.virtual_time.as_secs_f64() / 3600.0;
        self.calls += shown.done.calls;
        self.handoffs += shown.done.handoffs;
        self.cuts += shown.done.cuts;
        self.crashes += shown.done.crashes;
        self.pauses += shown.done.pauses;
        self.partitions += shown.done.partitions;
        self.frames += shown.frames;
    }
}

/// Runs the seeds and prints a summary, as one line of JSON.
pub fn soak(soak: &Soak) -> Result<()> {
    let begun = Instant::now();
    let summary = Mutex::new(Summary { seeds: soak.seeds, from: soak.from, ..Summary::default() });
    let next = AtomicU64::new(soak.from);
    let end = soak.from.saturating_add(soak.seeds);
    let options = Options { mutant: soak.mutant.clone(), crashes: soak.crashes, trace: soak.trace.is_some() };
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let ended = run(seed, &options);
            // No other thread panics while it has it.
            let Ok(mut summary) = summary.lock() else { return };
            match ended {
                Ok(shown) => summary.add(&shown),
                Err(failure) => {
                    summary.violations += 1;
                    let first = summary.first_violation.map_or(seed, |first| first.min(seed));
                    summary.first_violation = Some(first);
                    eprintln!(
                        "violation with seed {seed}: {}\nto repeat it: {}",
                        failure.reason,
                        command(seed, &options)
                    );
                    if let Some(folder) = &soak.trace {
                        eprintln!("{}", failure.write_to(folder, &format!("soak-{seed}")));
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let Ok(mut summary) = summary.into_inner() else { bail!("a run panicked") };
    summary.wall_seconds = begun.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&summary)?);
    if summary.violations > 0 {
        bail!("{} of {} seeds show violations", summary.violations, summary.seeds);
    }
    Ok(())
}
