//! What many references cost: memory on both sides, and bytes on the wire while nothing happens.
//!
//! One process owns the objects and another one holds a reference to each. Memory is what the system has
//! given to a process, before and after; so the figures include what the allocator wastes.

use crate::report::{self, Row};
use anyhow::{Context as _, Result};
use clap::Args;
use rref::launch;
use rref::prelude::*;
use rref::transport::{BoxFuture, Listener, Stream, Tcp, Transport};
use rref::{Builder, LeaseSettings};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// References that travel in one message.
const PAGE: usize = 1024;
/// How long the pair is watched while idle: some fifty heartbeats each way.
const IDLE: Duration = Duration::from_secs(10);
/// What one call may take: a million objects are made in one.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Args)]
pub struct References {
    /// How many objects, with one reference each.
    #[arg(long, default_value_t = 1_000_000)]
    count: usize,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// Bytes that this process has written to any connection.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// TCP that counts what it writes, on connections of all kinds.
struct Counting;

impl Transport for Counting {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move { Ok(Box::new(Counted(Tcp.dial(address).await?)) as Box<dyn Stream>) })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, rref::Result<Box<dyn Listener>>> {
        Box::pin(async move { Ok(Box::new(Accepting(Tcp.listen(address).await?)) as Box<dyn Listener>) })
    }

    fn is_local(&self, address: &str) -> bool {
        Tcp.is_local(address)
    }
}

struct Accepting(Box<dyn Listener>);

impl Listener for Accepting {
    fn address(&self) -> String {
        self.0.address()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>> {
        Box::pin(async move {
            let (stream, from) = self.0.accept().await?;
            Ok((Box::new(Counted(stream)) as Box<dyn Stream>, from))
        })
    }
}

struct Counted(Box<dyn Stream>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(task, bytes);
        if let Poll::Ready(Ok(count)) = written {
            WRITTEN.fetch_add(count as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}

/// Owns many numbers.
#[derive(Object)]
#[object(messages(Page))]
struct Stock(Vec<RRef<u64>>);

impl Actor for Stock {
    type Context = actix::Context<Self>;
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Vec<RRef<u64>>")]
struct Page(usize);

impl Handler<Page> for Stock {
    type Result = Vec<RRef<u64>>;

    fn handle(&mut self, Page(page): Page, _: &mut Self::Context) -> Self::Result {
        self.0.chunks(PAGE).nth(page).unwrap_or_default().to_vec()
    }
}

fn stock(count: usize) -> Result<Stock, String> {
    let node = Node::current().ok_or("no node runs this")?;
    let numbers = (0..count as u64).map(|number| node.host(number));
    numbers.collect::<rref::Result<_>>().map(Stock).map_err(|error| error.to_string())
}

fn written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// Bytes of memory that the system has given to this process.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The node of both processes. With heartbeats ten times as often as usual, so that there are enough to
/// count.
pub fn node(name: &str) -> Builder {
    Node::builder(name)
        .transport(Counting)
        .leases(LeaseSettings::shortened(10))
        .default_timeout(PATIENCE)
        .register::<Stock>()
        .function(stock)
        .function(written)
        .function(memory)
}

/// Measures, and prints the rows.
pub fn references(options: &References) -> Result<()> {
    let rows = actix::System::new().block_on(measure(options.count.max(1)))?;
    if options.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        print!("{}", report::table(&rows));
    }
    Ok(())
}

/// Memory here and at the owner.
async fn memories(node: &Node) -> Result<[f64; 2]> {
    let there = node.call("worker1", memory, ()).await?;
    let both = [memory(), there];
    let [here, there] =
        both.map(|bytes| bytes.context("this system does not tell how much memory is in use"));
    Ok([here? as f64, there? as f64])
}

/// Bytes a second that the two write while they have nothing to say.
async fn idle(node: &Node) -> Result<f64> {
    // What the last call left to be acknowledged is said by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let total = async || Ok::<_, anyhow::Error>(written() + node.call("worker1", written, ()).await?);
    let (begun, before) = (Instant::now(), total().await?);
    tokio::time::sleep(IDLE).await;
    Ok((total().await? - before) as f64 / begun.elapsed().as_secs_f64())
}

async fn measure(count: usize) -> Result<Vec<Row>> {
    let cluster = launch::local(1).start(node).await?;
    let node = cluster.node().clone();
    eprintln!("the owner makes {count} objects");
    let stock = node.remote("worker1", stock, (count,))?;
    stock.ready().await?;
    let mut one = stock.send(Page(0)).await?;
    one.truncate(1);
    eprintln!("idle with one reference, {IDLE:?}");
    let idle_with_one = idle(&node).await?;
    let before = memories(&node).await?;
    eprintln!("references to all of them");
    let mut all = Vec::with_capacity(count);
    for page in 0..count.div_ceil(PAGE) {
        all.extend(stock.send(Page(page)).await?);
    }
    eprintln!("idle with {count} references, {IDLE:?}");
    let idle_with_all = idle(&node).await?;
    let after = memories(&node).await?;
    let [held, listed] = [0, 1].map(|side| (after[side] - before[side]) / count as f64);
    let begun = Instant::now();
    drop(all);
    let dropped = count as f64 / begun.elapsed().as_secs_f64();
    drop(one);
    drop(stock);
    let report = cluster.shutdown().await?;
    anyhow::ensure!(report.leaked.is_empty(), "{} leaked", report.leaked.len());
    let ratio = idle_with_all / idle_with_one;
    let bytes = |row, ours: f64, bound| Row {
        row,
        ours,
        baseline: None,
        baseline_name: None,
        unit: "B",
        ratio: None,
        bound,
        holds: Some(ours <= bound),
    };
    Ok(vec![
        Row {
            row: "idle bytes",
            ours: idle_with_all,
            baseline: Some(idle_with_one),
            baseline_name: Some("one reference"),
            unit: "B/s",
            ratio: Some(ratio),
            // A heartbeat more or less in the time watched.
            bound: 1.05,
            holds: Some(ratio <= 1.05),
        },
        bytes("held reference", held, 128.0),
        bytes("listed object", listed, 192.0),
        Row {
            row: "drop 1M",
            ours: dropped,
            baseline: None,
            baseline_name: None,
            unit: "1/s",
            ratio: None,
            bound: 1e6,
            holds: Some(dropped >= 1e6),
        },
    ])
}
