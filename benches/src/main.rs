//! Measures rref against what it is built on, in one run on one machine: only the ratios count.
//!
//! `cargo run --release -p rref-bench -- compare [--quick] [--json] [--rows name,..]`
//!
//! And runs the cluster fuzz for as long as one likes:
//!
//! `cargo run --release -p rref-bench -- soak --seeds N [--from S] [--crashes] [--mutant X] [--trace [FOLDER]]`
//!
//! And measures what a million references cost:
//!
//! `cargo run --release -p rref-bench -- references [--count N] [--json]`
//!
//! To compare, the program starts itself a second time as the server: a raw TCP echo and a node. Baseline and ours
//! take turns, round by round, so that a slow moment of the machine meets both.

mod client;
mod cores;
mod measure;
mod raw;
mod references;
mod report;
mod rows;
mod server;
mod soak;
mod work;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures rref against raw TCP and plain actix")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every row and prints medians and ratios.
    Compare(Compare),
    /// Runs random clusters in simulation and compares them with an oracle.
    Soak(soak::Soak),
    /// Measures what many references cost in memory, and on the wire while nothing happens.
    References(references::References),
    /// What `compare` starts as its other process: serves until its standard input ends.
    #[command(hide = true)]
    Serve,
}

#[derive(Args)]
struct Compare {
    /// Fewer and shorter rounds: about half a minute in all.
    #[arg(long)]
    quick: bool,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Only these rows, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    // In the process that `references` starts: serves, and does not return.
    rref::launch::worker(references::node)?;
    match Arguments::parse().command {
        Command::Serve => server::serve(),
        Command::Compare(options) => compare(&options),
        Command::Soak(options) => soak::soak(&options),
        Command::References(options) => references::references(&options),
    }
}

fn compare(options: &Compare) -> anyhow::Result<()> {
    let chosen = rows::choose(&options.rows)?;
    let effort = if options.quick { measure::Effort::QUICK } else { measure::Effort::FULL };
    let results = client::run(chosen, effort)?;
    if options.json {
        for row in &results {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        print!("{}", report::table(&results));
    }
    Ok(())
}
