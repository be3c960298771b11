//! A key-value service of several processes, and what its clients notice when one of them is killed.
//!
//! ```text
//! cargo run --release --example service
//! cargo run --release --example service -- --json --clients 32
//! ```
//!
//! This program starts itself five times over: the starter, three servers with a shard each, and a
//! process full of clients. Clients find the shards by name, spread their keys over them, and know
//! only the crate [`service_api`]. In mid-load the starter kills a server with `SIGKILL`, starts
//! another process under its name, and reports how soon the clients knew and how soon they were
//! served again.

mod client;
mod server;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use client::{Plan, Report};
use rref::launch::{self, Cluster};
use rref::prelude::*;
use service_api::{SHARD, Seen};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Ranks of the shards' processes are 1 to this; the clients' follows.
const SHARDS: u32 = 3;
/// The process that is killed.
const VICTIM: u32 = 2;
/// How long anything may take before the run has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds within which clients must know.
const NOTICE: f64 = 10.0;

/// A sharded key-value service, one process of which is killed.
#[derive(Parser)]
struct Options {
    /// Print one JSON object at the end, and nothing else.
    #[arg(long)]
    json: bool,
    /// Clients that call at the same time.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Keys of each client.
    #[arg(long, default_value_t = 100)]
    keys: usize,
    /// Calls of each client after the service has recovered.
    #[arg(long, default_value_t = 1000)]
    calls_after: u64,
}

/// The last line with `--json`.
#[derive(Serialize)]
struct Summary {
    shards: u32,
    clients: usize,
    calls: u64,
    errors: BTreeMap<String, u64>,
    seconds_to_notice: f64,
    seconds_to_recover: f64,
    keys: u64,
    keys_lost: u64,
    wrong: u64,
    leaked: usize,
}

/// Gathers what the clients see. They know it as `service_api::MonitorApi`.
#[derive(Object)]
#[object(name = "kv.Monitor", messages(Seen))]
struct Monitor(mpsc::UnboundedSender<(Instant, Seen)>);

impl Actor for Monitor {
    type Context = Context<Self>;
}

impl Handler<Seen> for Monitor {
    type Result = ();

    fn handle(&mut self, seen: Seen, _: &mut Self::Context) {
        // Nobody listens any more when the run has failed.
        let _ = self.0.send((Instant::now(), seen));
    }
}

/// Each process offers what its part is, and that alone.
fn node(name: &str) -> Builder {
    let node = match name {
        "driver" => Node::builder(name).register::<Monitor>(),
        "worker4" => client::node(name),
        _ => server::node(name),
    };
    node.function(left_over)
}

/// Objects that live on the node that is asked, and references it holds.
fn left_over() -> usize {
    Node::current().map_or(0, |node| {
        let report = node.report();
        report.objects.len() + report.held.len()
    })
}

fn main() -> Result<()> {
    launch::worker(node)?; // a worker stays in here until it is told to stop
    let options = Options::parse();
    ensure!(options.clients > 0 && options.keys > 1, "--clients and --keys: at least 1 and 2");
    System::new().block_on(run(options))
}

async fn run(options: Options) -> Result<()> {
    let say = |line: String| {
        if !options.json {
            println!("{line}");
        }
    };
    let mut cluster = launch::local(SHARDS as usize + 1).start(node).await?;
    let node = cluster.node().clone();
    for rank in 1..=SHARDS {
        open(&node, rank).await?;
    }
    let (seen, mut sight) = mpsc::unbounded_channel();
    node.register_name("monitor", &node.host(Monitor(seen))?)?;
    say(format!("processes {:?}: driver, {SHARDS} shards, clients", cluster.pids()));

    let plan = Plan {
        shards: (1..=SHARDS).map(|rank| format!("{SHARD}@worker{rank}")).collect(),
        clients: options.clients,
        keys: options.keys,
        calls_after: options.calls_after,
    };
    let clients = node.call("worker4", client::run, (plan,)).timeout(Duration::MAX);
    let chaos = kill_and_replace(&mut cluster, &mut sight, &say);
    let (report, times) = tokio::try_join!(
        async { clients.await?.map_err(|error| anyhow!("the clients gave up: {error}")) },
        chaos
    )?;

    let leaked = close(&node).await?;
    let left = cluster.shutdown().await?;
    let summary = summary(&options, report, times, leaked + left.leaked.len());
    say(format!(
        "{} calls; failed: {:?}; all other answers were right, but for {} keys that died with their shard\n\
         and were written again: {} keys in the end. Leaked: {}",
        summary.calls, summary.errors, summary.keys_lost, summary.keys, summary.leaked
    ));
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    }
    check(&options, &summary)
}

/// Opens the shard of the server with this rank, under the name that clients look up.
async fn open(node: &Node, rank: u32) -> Result<()> {
    let opened = node.call(rref::Rank(rank), server::open, ()).await?;
    opened.map_err(|error| anyhow!("shard {rank} does not open: {error}"))
}

/// Kills a server while the clients call it and puts another in its place. Gives the seconds until the
/// clients knew, and until all of them were served again.
async fn kill_and_replace(
    cluster: &mut Cluster,
    sight: &mut mpsc::UnboundedReceiver<(Instant, Seen)>,
    say: &impl Fn(String),
) -> Result<(f64, f64)> {
    let (_, seen) = next(sight).await?;
    ensure!(seen == Seen::Steady, "{seen:?} before anything was killed");
    let killed = Instant::now();
    cluster.kill(VICTIM)?;
    say(format!("all clients have been served by all shards; killed worker{VICTIM}"));

    let (at, seen) = next(sight).await?;
    let Seen::Lost(shard, reason) = seen else { return Err(anyhow!("{seen:?} instead of a loss")) };
    ensure!(shard as u32 + 1 == VICTIM, "shard {shard} is lost, which nobody killed: {reason}");
    let notice = (at - killed).as_secs_f64();
    say(format!("after {notice:.3} s the clients knew: {reason}"));

    cluster.restart(VICTIM).await?;
    open(cluster.node(), VICTIM).await?;
    let (at, seen) = next(sight).await?;
    ensure!(seen == Seen::Recovered, "{seen:?} instead of a recovery");
    let recovery = (at - killed).as_secs_f64();
    say(format!(
        "after {recovery:.3} s a new process, {}, serves all of them",
        cluster.pids()[VICTIM as usize]
    ));
    Ok((notice, recovery))
}

async fn next(sight: &mut mpsc::UnboundedReceiver<(Instant, Seen)>) -> Result<(Instant, Seen)> {
    let seen = tokio::time::timeout(PATIENCE, sight.recv()).await;
    seen.context("the clients saw nothing for a minute")?.context("the monitor is gone")
}

/// Takes all names away and counts what is left, once nothing is or the wait is over: freeing takes a
/// message or two.
async fn close(node: &Node) -> Result<usize> {
    for rank in 1..=SHARDS {
        ensure!(node.call(rref::Rank(rank), server::close, ()).await?, "shard {rank} had lost its name");
    }
    node.unregister_name("monitor");
    let begun = Instant::now();
    loop {
        let mut left = 0;
        for rank in 0..=SHARDS + 1 {
            left += node.call(rref::Rank(rank), left_over, ()).await?;
        }
        if left == 0 || begun.elapsed() > Duration::from_secs(5) {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn summary(options: &Options, report: Report, (notice, recovery): (f64, f64), leaked: usize) -> Summary {
    Summary {
        shards: SHARDS,
        clients: options.clients,
        calls: report.calls,
        errors: report.errors,
        seconds_to_notice: (notice * 1e3).round() / 1e3,
        seconds_to_recover: (recovery * 1e3).round() / 1e3,
        keys: report.keys,
        keys_lost: report.keys_lost,
        wrong: report.wrong,
        leaked,
    }
}

/// What the example claims.
fn check(options: &Options, summary: &Summary) -> Result<()> {
    ensure!(summary.wrong == 0, "{} wrong answers", summary.wrong);
    ensure!(!summary.errors.is_empty(), "no call failed: the shard was not killed under load");
    ensure!(summary.seconds_to_notice <= NOTICE, "noticed after {} s only", summary.seconds_to_notice);
    let keys = (options.clients * options.keys) as u64;
    ensure!(summary.keys == keys, "{} keys in the end instead of {keys}", summary.keys);
    ensure!(summary.leaked == 0, "{} objects or references leaked", summary.leaked);
    Ok(())
}
