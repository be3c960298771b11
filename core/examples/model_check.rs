//! Searches the protocol's models, and shows that each of its rules is needed.
//!
//! ```text
//! cargo run --release -p rref-core --example model_check -- [--json] [--mutants] [--small] [--walks N] [NAME]
//! ```
//!
//! With `--json`, one JSON object a line: for each model how many states it has, how deep it goes,
//! whether all properties hold (which takes a search to the end), and which situations it met; with `--mutants` then for each rule whether
//! the protocol breaks without it, and in how many steps. `--small` searches the sizes that the tests
//! use; a NAME, only the models whose names contain it. `--walks N` walks at random instead, in larger
//! worlds, with the seeds 0 to N - 1. The exit code is 0 if all is well: every model searched to the end,
//! every property held, every situation met, and every mutant refuted.

#[allow(dead_code)] // the tests beside it use the rest
#[path = "../tests/model/kit/mod.rs"]
mod kit;

use kit::check::{Outcome, check};
use kit::models::{Size, all};
use kit::mutants::{Refutation, try_all};
use kit::walks::{minimise, picks, walk, worlds};
use std::process::ExitCode;
use std::time::Instant;

/// Bounds memory: a state takes a few kilobytes while it waits to be visited.
const MOST: usize = 60_000_000;
const THREADS: usize = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let json = has("--json");
    let size = if has("--small") { Size::Small } else { Size::Large };
    if let Some(count) = args.iter().position(|arg| arg == "--walks").and_then(|at| args.get(at + 1)) {
        return walk_all(count.parse().unwrap_or(1000), args.iter().rev().find(|arg| *arg != count));
    }
    let name = args.iter().find(|arg| !arg.starts_with("--")).map_or("", String::as_str);
    let models: Vec<_> = all(size).into_iter().filter(|(setup, _)| setup.name.contains(name)).collect();
    let mut well = !models.is_empty();
    if models.is_empty() {
        eprintln!("no model is called {name:?}");
    }
    for (setup, hits) in models {
        let begun = Instant::now();
        let outcome = check(&setup, &hits, MOST, THREADS);
        well &= outcome.holds() && outcome.missed.is_empty();
        report(&outcome, begun.elapsed().as_secs_f32(), json);
    }
    if has("--mutants") {
        try_all(THREADS, |refutation| {
            well &= refutation.broken.is_some();
            report_mutant(&refutation, json);
        });
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Walks in every world, and reports a walk that goes wrong with as few picks as can be.
fn walk_all(count: u64, name: Option<&String>) -> ExitCode {
    let name = name.filter(|name| !name.starts_with("--")).map_or("", String::as_str);
    let mut well = true;
    for setup in worlds().into_iter().filter(|setup| setup.name.contains(name)) {
        let (mut steps, mut failed) = (0, 0);
        for seed in 0..count {
            let picks = picks(seed, 300);
            match walk(&setup, &picks) {
                Ok(taken) => steps += taken,
                Err(_) => {
                    failed += 1;
                    if failed == 1 {
                        let least = minimise(&setup, &picks);
                        if let Err((why, steps)) = walk(&setup, &least) {
                            eprintln!("{} {seed}: {why}", setup.name);
                            steps.iter().for_each(|step| eprintln!("    {step:?}"));
                        }
                    }
                }
            }
        }
        well &= failed == 0;
        println!("{{\"walks\":{:?},\"seeds\":{count},\"steps\":{steps},\"failed\":{failed}}}", setup.name);
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// As JSON: the names have nothing to escape, but for what `Debug` of a string escapes alike.
fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(","))
}

fn report(outcome: &Outcome, seconds: f32, json: bool) {
    let Outcome { name, unique_states, depth, exhausted, ticks, hits, missed, .. } = outcome;
    let holds = outcome.holds();
    if json {
        println!(
            "{{\"model\":{name:?},\"unique_states\":{unique_states},\"depth\":{depth},\"ticks\":{ticks},\"exhausted\":{exhausted},\"holds\":{holds},\"sometimes_hit\":{},\"sometimes_missed\":{},\"seconds\":{seconds:.1}}}",
            list(hits),
            list(missed)
        );
    } else {
        let all = if *exhausted { "all" } else { "the first" };
        println!(
            "{name}: {all} {unique_states} states, {depth} steps deep, {ticks} ticks, {seconds:.1} s: holds: {holds}"
        );
        println!("    met {hits:?}, missed {missed:?}");
    }
    if !exhausted && outcome.violation.is_none() {
        eprintln!("{name}: cut short after {unique_states} states: this shows nothing");
    }
    if let Some((why, steps)) = &outcome.violation {
        eprintln!("{name}: {why}");
        steps.iter().for_each(|step| eprintln!("    {step:?}"));
    }
}

fn report_mutant(refutation: &Refutation, json: bool) {
    let Refutation { mutant, by, broken } = refutation;
    let steps = broken.as_ref().map_or(0, |(_, steps)| steps.len());
    let refuted = broken.is_some();
    if json {
        println!("{{\"mutant\":{mutant:?},\"refuted\":{refuted},\"steps\":{steps},\"by\":{by:?}}}");
    } else {
        let why = broken.as_ref().and_then(|(why, _)| why.lines().next()).unwrap_or("nothing breaks");
        println!("without {mutant}: {by}, {steps} steps: {why}");
    }
}
