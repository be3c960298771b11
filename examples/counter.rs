//! One counter in a worker process, used from both sides through handles to it.
//!
//! ```text
//! cargo run --release --example counter
//! ```
//!
//! This program starts itself once more as `worker1`. The counter lives there; the driver counts with
//! `send` and `do_send`, then gives its handle to a function on the worker, which counts on the same
//! object. When the last handle is dropped the object is gone.

use anyhow::{Result, ensure};
use rref::launch;
use rref::prelude::*;
use std::time::Duration;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Object)]
#[object(messages(Add))]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Add> for Counter {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.0 += n;
        self.0
    }
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn pid() -> u32 {
    std::process::id()
}

/// Gets a handle as its argument: no copy of the counter, another holder of the same one.
async fn count_to(counter: RRef<Counter>, goal: i64) -> Result<i64, String> {
    let mut now = counter.send(Add(0)).await.map_err(|error| error.to_string())?;
    while now < goal {
        now = counter.send(Add(1)).await.map_err(|error| error.to_string())?;
    }
    Ok(now)
}

/// How many objects live on the node that is asked.
fn live_objects() -> usize {
    Node::current().map_or(0, |node| node.report().objects.len())
}

/// The same registration on every node.
fn node(name: &str) -> Builder {
    Node::builder(name)
        .register::<Counter>()
        .function(counter)
        .function(pid)
        .function(count_to)
        .function(live_objects)
}

fn main() -> Result<()> {
    launch::worker(node)?; // a worker stays in here until it is told to stop
    System::new().block_on(run())
}

async fn run() -> Result<()> {
    let cluster = launch::local(1).start(node).await?;
    let node = cluster.node();
    let there = node.call("worker1", pid, ()).await?;
    ensure!(there != pid(), "the worker is this very process");
    println!("this is process {}, worker1 is process {there}", pid());

    let counter: RRef<Counter> = node.remote("worker1", counter, (10,))?;
    println!("{counter:?}: a handle, before the worker has heard of it");
    counter.do_send(Add(1))?;
    counter.do_send(Add(1))?;
    let now = counter.send(Add(3)).await?;
    ensure!(now == 15, "{now} instead of 15: a message was lost or overtaken");
    println!("two do_send and a send, in that order: 10 + 1 + 1 + 3 = {now}");

    let counted = node.call("worker1", count_to, (counter.clone(), 20)).await?;
    ensure!(counted == Ok(20), "counted to {counted:?}");
    let now = counter.send(Add(0)).await?;
    ensure!(now == 20, "the worker counted on another object: {now} here");
    println!("a function on worker1 counted on through the handle; seen from here: {now}");

    ensure!(node.call("worker1", live_objects, ()).await? == 1, "the counter should live on worker1");
    drop(counter);
    let left = left_over(node).await?;
    ensure!(left == 0, "{left} objects outlive their last handle");
    println!("the handle is dropped: objects left on worker1: {left}");

    let report = cluster.shutdown().await?;
    ensure!(report.leaked.is_empty(), "leaked: {:?}", report.leaked);
    println!("leaked: 0");
    Ok(())
}

/// Dropping a handle does not wait for the network, so the owner hears of it a moment later.
async fn left_over(node: &Node) -> Result<usize> {
    let mut left = 0;
    for _ in 0..500 {
        left = node.call("worker1", live_objects, ()).await?;
        if left == 0 {
            break;
        }
        actix::clock::sleep(Duration::from_millis(2)).await;
    }
    Ok(left)
}
