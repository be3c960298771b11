//! The program that all nodes of a test cluster run: functions, methods and actors.

use rref::prelude::*;
use std::cell::Cell;
use std::time::Duration;

/// The same registration on every node.
pub fn node(name: &str) -> rref::Builder {
    Node::builder(name)
        .register::<Counter>()
        .register::<Shelf>()
        .register::<Probe>()
        .message::<Rate, SetRate>()
        .function(add)
        .function(text)
        .function(slow)
        .function(endless)
        .function(fetch)
        .function(sum)
        .function(sum_tensor)
        .function(tensor)
        .function(counter)
        .function(fallible)
        .function(divide)
        .function(explode)
        .function(explode_with)
        .function(shelf)
        .function(probe)
        .function(slow_probe)
        .function(counter_of_size)
        .function(rate)
        .function(pair_from)
        .function(make_on)
        .function(add_on)
        .function(chain)
        .function(make_here)
        .function(make_list_here)
        .function(bump)
        .function(bump_all)
        .function(put_on_shared)
        .function(drop_it)
        .function(bump_large)
        .function(make_late)
        .function(hold_probe)
        .function(hold_1)
        .function(hold_2)
        .function(hold_3)
        .function(keep)
        .method(plus)
}

// Plain functions.

pub fn add(x: i64, y: i64) -> i64 {
    x + y
}

pub fn text(text: String) -> String {
    text
}

/// Gives `value` after `ms` milliseconds.
pub async fn slow(ms: u64, value: i64) -> i64 {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    value
}

/// All numbers from 0.
pub fn endless() -> rref::Streaming<i64> {
    rref::Streaming::from_iter(0..)
}

pub fn divide(x: i64, y: i64) -> Result<i64, String> {
    x.checked_div(y).ok_or_else(|| format!("cannot divide {x} by {y}"))
}

pub fn explode(text: String) -> i64 {
    panic!("{text}")
}

pub fn explode_with(_: RRef<i64>) -> i64 {
    panic!("with a handle in its hands")
}

/// A method on numbers.
pub fn plus(x: &i64, y: i64) -> i64 {
    x + y
}

pub fn tensor(len: usize, value: f32) -> Tensor<f32> {
    Tensor::from(ndarray::Array1::from_elem(len, value))
}

pub fn sum_tensor(x: Tensor<f32>) -> f64 {
    x.as_slice().iter().map(|v| f64::from(*v)).sum()
}

/// Keeps a tensor with something beside it.
pub fn keep(x: Tensor<u32>, n: i64) -> (Tensor<u32>, i64) {
    (x, n)
}

// Functions that are given references. What goes wrong in them is data for the caller.

pub async fn fetch(x: RRef<i64>) -> Result<i64, Told> {
    x.to_here().await.map_err(told)
}

pub async fn sum(list: Vec<RRef<i64>>) -> Result<i64, Told> {
    let mut sum = 0;
    for x in list {
        sum += x.to_here().await.map_err(told)?;
    }
    Ok(sum)
}

/// A message that a caller sees, for an error inside of a function.
pub type Told = String;

fn told(error: Error) -> Told {
    error.to_string()
}

fn current() -> Result<Node, Told> {
    Node::current().ok_or_else(|| "there is no current node".to_string())
}

/// Makes two numbers on `peer`: a tuple of references to a third node.
pub fn pair_from(peer: String, x: i64, y: i64) -> Result<(RRef<i64>, RRef<i64>), Told> {
    let node = current()?;
    let x = node.remote(&peer, add, (x, 0)).map_err(told)?;
    let y = node.remote(&peer, add, (y, 0)).map_err(told)?;
    Ok((x, y))
}

/// Makes a number on `peer` and gives the reference to it.
pub fn make_on(peer: String, x: i64, y: i64) -> Result<RRef<i64>, Told> {
    current()?.remote(peer, add, (x, y)).map_err(told)
}

/// Makes a number on `peer` and fetches it.
pub async fn add_on(peer: String, x: i64, y: i64) -> Result<i64, Told> {
    current()?.remote(peer, add, (x, y)).map_err(told)?.to_here().await.map_err(told)
}

/// Passes a reference along `route`; the last one adds `n`. Each keeps its handle only for the call.
pub async fn chain(c: RRef<Counter>, route: Vec<String>, n: i64) -> Result<i64, Told> {
    let mut rest = route.into_iter();
    match rest.next() {
        None => c.send(Add(n)).await.map_err(told),
        Some(next) => {
            let request = current()?.call(next, chain, (c, rest.collect::<Vec<_>>(), n));
            boxed(request).await
        }
    }
}

/// The chain's own future would contain itself.
fn boxed(request: Request<Result<i64, Told>>) -> std::pin::Pin<Box<dyn Future<Output = Result<i64, Told>>>> {
    Box::pin(async move { request.await.map_err(told)? })
}

/// A counter that lives where the function runs.
pub fn make_here(start: i64) -> Result<RRef<Counter>, Told> {
    current()?.host(Counter(start)).map_err(told)
}

pub fn make_list_here(n: i64) -> Result<Vec<RRef<Counter>>, Told> {
    (0..n).map(make_here).collect()
}

pub async fn bump(c: RRef<Counter>, n: i64) -> Result<i64, Told> {
    c.send(Add(n)).await.map_err(told)
}

pub async fn bump_all(list: Vec<RRef<Counter>>, n: i64) -> Result<i64, Told> {
    let mut sum = 0;
    for c in &list {
        sum += c.send(Add(n)).await.map_err(told)?;
    }
    Ok(sum)
}

/// Puts a reference on the shelf that was shared with this node as `last`.
pub async fn put_on_shared(c: RRef<Counter>) -> Result<usize, Told> {
    let here = Node::current().ok_or("no node runs this")?;
    let last = here.shared::<Shelf>("last").await.map_err(told)?;
    last.send(Put(c)).await.map_err(told)
}

/// Takes a reference and lets go of it at once.
pub fn drop_it(c: RRef<Counter>) -> bool {
    drop(c);
    true
}

pub async fn bump_large(c: RRef<Counter>, _ballast: Tensor<f32>) -> Result<i64, Told> {
    c.send(Add(1)).await.map_err(told)
}

/// Uses its argument for a second and gives a new counter.
pub async fn make_late(c: RRef<Counter>) -> Result<RRef<Counter>, Told> {
    c.send(AddLater(1, 1000)).await.map_err(told)?;
    make_here(0)
}

// References to references, each one level deeper.

pub fn hold_probe(x: RRef<Probe>) -> RRef<Probe> {
    x
}

pub fn hold_1(x: RRef<RRef<Probe>>) -> Vec<RRef<RRef<Probe>>> {
    vec![x]
}

pub type Depth3 = RRef<Vec<RRef<RRef<Probe>>>>;

pub fn hold_2(x: Depth3) -> (Depth3,) {
    (x,)
}

pub fn hold_3(x: RRef<(Depth3,)>) -> Option<RRef<(Depth3,)>> {
    Some(x)
}

// A counter.

#[derive(Object)]
#[object(messages(Add, AddLater, AddDetached, Nap, Panic, PanicWith, Snapshot, Log))]
pub struct Counter(pub i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

pub fn counter(start: i64) -> Counter {
    Counter(start)
}

/// A counter whose creation needs a message of the size of `ballast`.
pub fn counter_of_size(start: i64, _ballast: Tensor<f32>) -> Counter {
    Counter(start)
}

pub fn fallible(reason: String) -> Result<Counter, String> {
    Err(reason)
}

/// Adds and gives the new count.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Add(pub i64);

/// Adds after a pause, in the actor's context: other messages are handled meanwhile.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct AddLater(pub i64, pub u64);

/// Gives its argument after a pause, in a task of its own.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct AddDetached(pub i64, pub u64);

/// Handles nothing else for so many milliseconds.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Nap(pub u64);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Panic(pub String);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct PanicWith(pub RRef<i64>);

/// The count: as an object of its own with `remote`.
#[derive(Clone, Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Snapshot;

/// Expects to be the `n`th of its kind; gives whether it was.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "bool")]
pub struct Log(pub i64);

impl Handler<Add> for Counter {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.0 += n;
        self.0
    }
}

impl Handler<AddLater> for Counter {
    type Result = ResponseActFuture<Self, i64>;

    fn handle(&mut self, AddLater(n, ms): AddLater, _: &mut Self::Context) -> Self::Result {
        let pause = tokio::time::sleep(Duration::from_millis(ms));
        Box::pin(pause.into_actor(self).map(move |(), this, _| {
            this.0 += n;
            this.0
        }))
    }
}

impl Handler<AddDetached> for Counter {
    type Result = ResponseFuture<i64>;

    fn handle(&mut self, AddDetached(n, ms): AddDetached, _: &mut Self::Context) -> Self::Result {
        let sum = self.0 + n;
        Box::pin(slow(ms, sum))
    }
}

impl Handler<Nap> for Counter {
    type Result = ();

    fn handle(&mut self, Nap(ms): Nap, context: &mut Self::Context) {
        context.wait(tokio::time::sleep(Duration::from_millis(ms)).into_actor(self));
    }
}

impl Handler<Panic> for Counter {
    type Result = i64;

    fn handle(&mut self, Panic(text): Panic, _: &mut Self::Context) -> i64 {
        panic!("{text}")
    }
}

impl Handler<PanicWith> for Counter {
    type Result = i64;

    fn handle(&mut self, PanicWith(_x): PanicWith, _: &mut Self::Context) -> i64 {
        panic!("with a handle in its hands")
    }
}

impl Handler<Snapshot> for Counter {
    type Result = i64;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> i64 {
        self.0
    }
}

impl Handler<Log> for Counter {
    type Result = bool;

    fn handle(&mut self, Log(n): Log, _: &mut Self::Context) -> bool {
        let in_order = self.0 == n;
        self.0 += 1;
        in_order
    }
}

// An actor that keeps references in its state.

#[derive(Object)]
#[object(messages(Put, Peek, Take, Count, Rest))]
#[derive(Default)]
pub struct Shelf(Vec<RRef<Counter>>);

impl Actor for Shelf {
    type Context = Context<Self>;
}

pub fn shelf() -> Shelf {
    Shelf(Vec::new())
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
pub struct Put(pub RRef<Counter>);

/// The last reference, which stays.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<RRef<Counter>>")]
pub struct Peek;

/// The last reference, which goes.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<RRef<Counter>>")]
pub struct Take;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
pub struct Count;

/// Handles nothing else for so many milliseconds.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Rest(pub u64);

impl Handler<Put> for Shelf {
    type Result = usize;

    fn handle(&mut self, Put(c): Put, _: &mut Self::Context) -> usize {
        self.0.push(c);
        self.0.len()
    }
}

impl Handler<Peek> for Shelf {
    type Result = Option<RRef<Counter>>;

    fn handle(&mut self, _: Peek, _: &mut Self::Context) -> Self::Result {
        self.0.last().cloned()
    }
}

impl Handler<Take> for Shelf {
    type Result = Option<RRef<Counter>>;

    fn handle(&mut self, _: Take, _: &mut Self::Context) -> Self::Result {
        self.0.pop()
    }
}

impl Handler<Count> for Shelf {
    type Result = usize;

    fn handle(&mut self, _: Count, _: &mut Self::Context) -> usize {
        self.0.len()
    }
}

impl Handler<Rest> for Shelf {
    type Result = ();

    fn handle(&mut self, Rest(ms): Rest, context: &mut Self::Context) {
        context.wait(tokio::time::sleep(Duration::from_millis(ms)).into_actor(self));
    }
}

// An actor that counts how often it is made and dropped. Each test has a thread of its own.

thread_local! {
    static MADE: Cell<u32> = const { Cell::new(0) };
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

/// How many probes this test has made, and how many of them are dropped.
pub fn probes() -> (u32, u32) {
    (MADE.get(), DROPPED.get())
}

#[derive(Object)]
#[object(messages(Ping))]
pub struct Probe(());

impl Actor for Probe {
    type Context = Context<Self>;
}

impl Drop for Probe {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

pub fn probe() -> Probe {
    MADE.set(MADE.get() + 1);
    Probe(())
}

pub async fn slow_probe(ms: u64) -> Probe {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    probe()
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Ping;

impl Handler<Ping> for Probe {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

// Data with messages of its own: one is registered, the other is not.

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate(pub f32);

pub fn rate(rate: f32) -> Rate {
    Rate(rate)
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "f32")]
pub struct SetRate(pub f32);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "f32")]
pub struct Forgotten;

impl Handler<SetRate> for Value<Rate> {
    type Result = f32;

    fn handle(&mut self, SetRate(rate): SetRate, _: &mut Context<Self>) -> f32 {
        std::mem::replace(&mut self.0, rate)
    }
}

impl Handler<Forgotten> for Value<Rate> {
    type Result = f32;

    fn handle(&mut self, _: Forgotten, _: &mut Context<Self>) -> f32 {
        self.0
    }
}
