//! Real processes under load: what a million handles cost, what a large transfer may hold up, and what a
//! consumer that does not keep up has to keep.
//!
//! Its workers are copies of this very program, so it has its own `main` and no test harness: an argument
//! picks the tests whose name contains it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod stock;

use rref::launch::{self, Cluster};
use rref::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

use stock::*;

/// How long anything here may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(name: &str) -> Builder {
    stock::register(Node::builder(name))
        .register::<Consumer>()
        .register::<Latch>()
        .function(holders_at)
        .function(queued_at)
        .function(queued_here)
        .function(resident)
        .function(resident_at)
        .function(number)
        .function(keep_number)
        .function(weigh)
        .function(consumer)
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should not take that long")
}

async fn cluster(workers: usize) -> Cluster {
    bounded(launch::local(workers).start(node)).await.expect("a local cluster")
}

async fn end(cluster: Cluster) {
    let report = bounded(cluster.shutdown()).await.expect("an orderly end");
    assert!(report.leaked.is_empty(), "{:?}", report.leaked);
    assert!(report.complete);
}

/// The same at `peer`.
async fn holders_at(peer: String) -> Result<Vec<Vec<String>>, Told> {
    current()?.call(peer, holders_here, ()).await.map_err(told)?
}

fn number(n: u64) -> u64 {
    n
}

// A million handles.

/// One process holds a million handles of another's objects and drops them at once. Catches: a frame for
/// each handle or each object, and anything that is forgotten among so many.
async fn million_handle_drop() {
    let cluster = cluster(2).await;
    let me = cluster.node();
    let stock = me.remote("worker1", stock, ()).unwrap();
    let hoard = me.remote("worker2", hoard, (stock.clone(),)).unwrap();
    bounded(hoard.ready().timeout(PATIENCE)).await.unwrap();
    bounded(stock.send(Forget)).await.unwrap();
    let (objects, handles) = me.call("worker2", held_here, ()).await.unwrap().unwrap();
    assert_eq!((objects, handles), (OBJECTS, (OBJECTS * COPIES) as u64));
    let holders = me.call("worker1", holders_here, ()).await.unwrap().unwrap();
    assert_eq!(holders.iter().filter(|holders| **holders == ["worker2"]).count(), OBJECTS);

    let (dropped, frames, left) = bounded(hoard.send(LetGo).timeout(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(dropped, OBJECTS * COPIES);
    assert_eq!(left, 1, "the stock itself is left");
    // 64 releases in a frame, and a few frames for the rest.
    let most = OBJECTS as u64 / 64 + 64;
    assert!(frames <= most, "{frames} frames, more than {most}");
    assert_eq!(me.call("worker2", held_here, ()).await.unwrap(), Ok((0, 0)));
    drop((stock, hoard));
    end(cluster).await;
}

// A large transfer.

/// Bytes of each large message; two are always under way.
const LARGE: usize = 48 << 20;
/// Bytes that may pass before a small call is answered: some windows of 8 MiB, for what is on its way to
/// either side, and less than a single large message.
const PASSING: u64 = 32 << 20;

fn weigh(large: Tensor<u8>) -> usize {
    large.len()
}

/// Makes a number on `peer` and keeps it under a name.
async fn keep_number(peer: String) -> Result<(), Told> {
    let node = current()?;
    let kept = node.remote(peer, number, (1,)).map_err(told)?;
    kept.ready().await.map_err(told)?;
    node.register_name("kept", &kept).map_err(told)
}

fn sent_to(node: &Node, peer: &str) -> u64 {
    node.report().peers.iter().filter(|other| other.name == peer).map(|other| other.bytes_sent).sum()
}

/// Large messages follow each other without a gap; a release, a claim and a small call to the same
/// process pass them by. It is bytes that tell, not time.
async fn large_transfer_does_not_delay_control() {
    let cluster = cluster(2).await;
    let me = cluster.node();
    bounded(me.call("worker2", keep_number, ("worker1".into(),))).await.unwrap().unwrap();
    let go_on = Rc::new(Cell::new(true));
    let large = Tensor::from(ndarray::Array1::<u8>::zeros(LARGE));
    let transfers: Vec<_> = (0..2)
        .map(|_| {
            let (me, large, go_on) = (me.clone(), large.clone(), go_on.clone());
            actix::spawn(async move {
                let mut done = 0;
                while go_on.get() {
                    assert_eq!(me.call("worker1", weigh, (large.clone(),)).await, Ok(LARGE));
                    done += 1;
                }
                done
            })
        })
        .collect();
    bounded(async {
        while sent_to(me, "worker1") < 1 << 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..4 {
        let claimed = bounded(me.lookup::<u64>("kept@worker2")).await.unwrap();
        let before = sent_to(me, "worker1");
        let holders = bounded(me.call("worker1", holders_here, ())).await.unwrap().unwrap();
        let passed = sent_to(me, "worker1") - before;
        assert!(passed < PASSING, "{passed} bytes passed before a small call was answered");
        let mut both = holders.iter().filter(|holders| holders.len() == 2);
        assert!(both.next().is_some(), "the claim has not arrived: {holders:?}");
        drop(claimed);
        // Seen by another process: a call from here would take the release with it.
        let held = || async { me.call("worker2", holders_at, ("worker1".into(),)).await.unwrap().unwrap() };
        bounded(async { while held().await.iter().any(|holders| holders.len() > 1) {} }).await;
    }
    go_on.set(false);
    for transfer in transfers {
        assert!(bounded(transfer).await.unwrap() > 0);
    }
    end(cluster).await;
}

// A consumer that does not keep up.

/// Calls, casts and creations that one process may have unfinished at another.
const WINDOW: usize = 65_536;

/// Lets pass who has a permit.
#[derive(Object)]
#[object(messages(Pass))]
struct Latch(Arc<Semaphore>);

impl Actor for Latch {
    type Context = Context<Self>;
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Pass;

impl Handler<Pass> for Latch {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Pass, _: &mut Self::Context) -> Self::Result {
        let permits = self.0.clone();
        Box::pin(async move { drop(permits.acquire().await) })
    }
}

/// Counts items in their order.
#[derive(Object)]
#[object(messages(Wait, Item, Seen))]
struct Consumer(u64);

impl Actor for Consumer {
    type Context = Context<Self>;
}

fn consumer() -> Consumer {
    Consumer(0)
}

/// Takes nothing more before it may pass.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Wait(RRef<Latch>);

impl Handler<Wait> for Consumer {
    type Result = ();

    fn handle(&mut self, Wait(latch): Wait, context: &mut Self::Context) {
        let passed = async move { drop(latch.send(Pass).timeout(Duration::MAX).await) };
        context.wait(passed.into_actor(self));
    }
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Item(u64);

impl Handler<Item> for Consumer {
    type Result = ();

    fn handle(&mut self, Item(n): Item, _: &mut Self::Context) {
        // One out of order is not counted, nor is any after it.
        self.0 += u64::from(n == self.0);
    }
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
struct Seen;

impl Handler<Seen> for Consumer {
    type Result = u64;

    fn handle(&mut self, _: Seen, _: &mut Self::Context) -> u64 {
        self.0
    }
}

/// What waits in the queues of the objects here.
fn queued_here() -> Result<usize, Told> {
    Ok(current()?.report().objects.iter().map(|object| object.queued).sum())
}

/// The same at `peer`, for one that cannot call it itself.
async fn queued_at(peer: String) -> Result<usize, Told> {
    current()?.call(peer, queued_here, ()).await.map_err(told)?
}

/// Bytes of this process that are in memory; none where the system does not tell.
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    pages.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

/// The same at `peer`.
async fn resident_at(peer: String) -> Result<Option<u64>, Told> {
    current()?.call(peer, resident, ()).await.map_err(told)
}

/// A producer that never waits, and a consumer that is held up: what the consumer's process keeps stays
/// within the window, however much there is to come; and in the end it gets all, in order.
async fn slow_consumer() {
    let cluster = cluster(2).await;
    let me = cluster.node();
    let permits = Arc::new(Semaphore::new(0));
    let latch = me.host(Latch(permits.clone())).unwrap();
    let consumer = me.remote("worker1", consumer, ()).unwrap();
    consumer.send(Wait(latch)).await.unwrap();
    let mut sent = 0;
    let (mut kept, mut memory) = (Vec::new(), Vec::new());
    for burst in [WINDOW + WINDOW / 2, WINDOW / 2] {
        for _ in 0..burst {
            consumer.do_send(Item(sent)).unwrap();
            sent += 1;
        }
        // Until all that may arrive has arrived, and some may not.
        let full = || {
            let mut peers = me.report().peers.into_iter();
            peers
                .any(|peer| peer.name == "worker1" && peer.waiting_for_credit > 0 && peer.unacknowledged == 0)
        };
        let queued = || async { me.call("worker2", queued_at, ("worker1".into(),)).await.unwrap().unwrap() };
        bounded(async {
            while !full() {
                let queued = queued().await;
                assert!(queued <= WINDOW, "{queued} messages wait at the consumer");
            }
            kept.push(queued().await);
            // By another node: this one's calls wait for room like all else.
            let there = me.call("worker2", resident_at, ("worker1".into(),)).await.unwrap();
            memory.push(there.unwrap().unwrap_or(0));
        })
        .await;
    }
    assert!(kept[0] > 0 && kept[0] <= WINDOW, "{kept:?}");
    assert_eq!(kept[0], kept[1], "it grows with what is to come");
    // What half a window more would take, were it kept there.
    let more = (WINDOW / 2 * 64) as u64;
    assert!(memory[1] < memory[0] + more, "{memory:?}");
    permits.add_permits(1);
    assert_eq!(bounded(consumer.send(Seen).timeout(PATIENCE)).await, Ok(sent));
    drop(consumer);
    end(cluster).await;
}

fn run(name: &str, test: impl Future<Output = ()>) {
    if std::env::args().skip(1).find(|arg| !arg.starts_with('-')).is_some_and(|arg| !name.contains(&arg)) {
        return;
    }
    actix::System::new().block_on(test);
    println!("test {name} ... ok");
}

fn main() -> Result<(), Error> {
    launch::worker(node)?;
    run("million_handle_drop", million_handle_drop());
    run("large_transfer_does_not_delay_control", large_transfer_does_not_delay_control());
    run("slow_consumer", slow_consumer());
    Ok(())
}
