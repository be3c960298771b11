//! What the nodes of these tests run.

use rref::prelude::*;
use rref::testkit::{ClusterBuilder, Recorder, TestCluster, ms};

pub fn cluster(nodes: usize) -> ClusterBuilder {
    TestCluster::builder(node).nodes(nodes)
}

pub fn node(name: &str) -> rref::Builder {
    Node::builder(name)
        .register::<Counter>()
        .register::<Recorder<Add>>()
        .function(counter)
        .function(add)
        .function_on(rref::Placement::Blocking, blocking)
        .function_on(rref::Placement::Dedicated, dedicated)
        .function(explode)
        .function(wait)
}

pub fn add(x: i64, y: i64) -> i64 {
    x + y
}

pub fn blocking(x: i64) -> i64 {
    x
}

pub fn dedicated() -> Counter {
    Counter(0)
}

pub fn explode() -> i64 {
    panic!("this function always fails")
}

pub async fn wait(millis: u64) -> u64 {
    tokio::time::sleep(ms(millis)).await;
    millis
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Add(pub i64);

/// Adds one each second from now on.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Tick;

/// Handles nothing else for so many milliseconds.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Nap(pub u64);

#[derive(Object)]
#[object(messages(Add, Tick, Nap))]
pub struct Counter(pub i64);

pub fn counter() -> Counter {
    Counter(0)
}

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

impl Handler<Nap> for Counter {
    type Result = ();

    fn handle(&mut self, Nap(millis): Nap, context: &mut Self::Context) {
        context.wait(tokio::time::sleep(ms(millis)).into_actor(self));
    }
}

impl Handler<Tick> for Counter {
    type Result = ();

    fn handle(&mut self, _: Tick, context: &mut Self::Context) {
        context.run_interval(ms(1000), |counter, _| counter.0 += 1);
    }
}
