//! The seat: how actors of the user's fare when their handlers panic, stop or take their time. Each
//! test takes both ways, that of the owner itself and that of another node.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

mod raw;

use raw::{bounded, eventually, finish};
use rref::prelude::*;
use rref::transport::Network;
use rref::{Builder, Gone, RemoteKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Gates that handlers wait at, by number: each test has its own.
fn gate(number: u32) -> Arc<Semaphore> {
    static GATES: Mutex<Option<HashMap<u32, Arc<Semaphore>>>> = Mutex::new(None);
    let mut gates = GATES.lock().unwrap();
    gates.get_or_insert_default().entry(number).or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
}

async fn pass(number: u32) {
    gate(number).acquire().await.unwrap().forget();
}

fn open(number: u32) {
    gate(number).add_permits(1);
}

/// How a handler of [`Work`] does it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Way {
    Plain,
    Act,
    Atomic,
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($($field:ty),*) -> $result:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Serialize, Deserialize, Message)]
        #[rtype(result = $result)]
        struct $name($($field),*);
    )* };
}

messages! {
    /// Panics.
    Bang() -> "i64";
    /// Waits at the gate, with the actor, and panics.
    Act(u32) -> "i64";
    /// Waits at the gate, with the actor to itself, and panics.
    Atomic(u32) -> "i64";
    /// Waits at the gate, without the actor, and panics.
    Detached(u32) -> "i64";
    /// Waits at the gate with the actor to itself, and notes when it begins and ends.
    Hold(u32) -> "()";
    /// Waits at the gate beside other messages, and notes when it begins and ends.
    Beside(u32) -> "()";
    /// Notes a number.
    Note(u32) -> "()";
    /// What was noted.
    Notes() -> "Vec<String>";
    /// Stops the actor.
    Stop() -> "()";
}

/// What an actor does as it ends, besides ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Ending {
    stopping_goes_on: bool,
    stopped_panics: bool,
    drop_panics: bool,
}

#[derive(Object)]
#[object(messages(Bang, Act, Atomic, Detached, Hold, Beside, Note, Notes, Stop))]
struct Worker {
    notes: Vec<String>,
    ending: Ending,
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn stopping(&mut self, _: &mut Self::Context) -> Running {
        if self.ending.stopping_goes_on { Running::Continue } else { Running::Stop }
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        assert!(!self.ending.stopped_panics, "bang in stopped");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        assert!(!self.ending.drop_panics, "bang in Drop");
    }
}

impl Handler<Bang> for Worker {
    type Result = i64;

    fn handle(&mut self, _: Bang, _: &mut Self::Context) -> i64 {
        panic!("bang 13")
    }
}

impl Handler<Act> for Worker {
    type Result = ResponseActFuture<Self, i64>;

    fn handle(&mut self, Act(number): Act, _: &mut Self::Context) -> Self::Result {
        Box::pin(pass(number).into_actor(self).map(|(), _, _| panic!("bang 13")))
    }
}

impl Handler<Atomic> for Worker {
    type Result = AtomicResponse<Self, i64>;

    fn handle(&mut self, Atomic(number): Atomic, _: &mut Self::Context) -> Self::Result {
        AtomicResponse::new(Box::pin(pass(number).into_actor(self).map(|(), _, _| panic!("bang 13"))))
    }
}

impl Handler<Detached> for Worker {
    type Result = ResponseFuture<i64>;

    fn handle(&mut self, Detached(number): Detached, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            pass(number).await;
            panic!("bang 13")
        })
    }
}

impl Handler<Hold> for Worker {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, Hold(number): Hold, _: &mut Self::Context) -> Self::Result {
        self.notes.push(format!("+{number}"));
        let end = move |(), actor: &mut Self, _: &mut Self::Context| actor.notes.push(format!("-{number}"));
        AtomicResponse::new(Box::pin(pass(number).into_actor(self).map(end)))
    }
}

impl Handler<Beside> for Worker {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, Beside(number): Beside, _: &mut Self::Context) -> Self::Result {
        self.notes.push(format!("+{number}"));
        let end = move |(), actor: &mut Self, _: &mut Self::Context| actor.notes.push(format!("-{number}"));
        Box::pin(pass(number).into_actor(self).map(end))
    }
}

impl Handler<Note> for Worker {
    type Result = ();

    fn handle(&mut self, Note(number): Note, _: &mut Self::Context) {
        self.notes.push(number.to_string());
    }
}

impl Handler<Notes> for Worker {
    type Result = Vec<String>;

    fn handle(&mut self, _: Notes, _: &mut Self::Context) -> Vec<String> {
        self.notes.clone()
    }
}

impl Handler<Stop> for Worker {
    type Result = ();

    fn handle(&mut self, _: Stop, context: &mut Self::Context) {
        context.stop();
    }
}

fn worker(ending: Ending) -> Worker {
    Worker { notes: Vec::new(), ending }
}

fn number() -> i64 {
    4
}

fn build(name: &str) -> Builder {
    Node::builder(name).register::<Worker>().function(worker).function(number)
}

async fn pair() -> (Node, Node) {
    let network = Network::new();
    let owner = build("owner").transport(network.clone()).listen("owner").insecure();
    let owner = owner.start().await.unwrap();
    let caller = build("caller").transport(network).join("owner").start().await.unwrap();
    (owner, caller)
}

async fn end(owner: Node, caller: Node) {
    eventually("all objects are freed", || owner.report().objects.is_empty()).await;
    finish([caller, owner]).await;
}

fn plain(node: &Node) -> RRef<Worker> {
    node.remote("owner", worker, (Ending::default(),)).unwrap()
}

/// What `owner` was sent before has been queued there.
async fn arrived(node: &Node) {
    assert_eq!(node.call("owner", number, ()).await, Ok(4));
}

fn died() -> Error {
    Error::ObjectDied { reason: "bang 13".into() }
}

/// The call that panics, the one behind it, and every later one say that the object died, and why.
async fn dies(object: &RRef<Worker>, way: Way, number: u32) {
    let hit = match way {
        Way::Plain => object.send(Bang()),
        Way::Act => object.send(Act(number)),
        Way::Atomic => object.send(Atomic(number)),
    };
    // Not finished when the actor dies: it waits, or runs beside.
    let beside = object.send(Beside(number + 1));
    arrived(object.node()).await;
    open(number);
    assert_eq!(bounded(hit).await, Err(died()), "{way:?}");
    assert_eq!(bounded(beside).await, Err(died()), "{way:?}");
    assert_eq!(bounded(object.send(Note(1))).await, Err(died()), "{way:?}");
    assert_eq!(bounded(object.ready()).await, Err(died()), "{way:?}");
}

#[actix::test]
async fn panic_kills_the_object_alone() {
    let (owner, caller) = pair().await;
    for (base, node) in [(100, &owner), (200, &caller)] {
        let bystander = plain(node);
        for (step, way) in [(0, Way::Plain), (10, Way::Act), (20, Way::Atomic)] {
            dies(&plain(node), way, base + step).await;
        }
        bystander.send(Note(7)).await.unwrap();
        assert_eq!(bystander.send(Notes()).await, Ok(vec!["7".into()]));
    }
    end(owner, caller).await;
}

/// A `ResponseFuture` runs without the actor: its panic fails the call, and nothing else.
#[actix::test]
async fn panic_of_a_detached_future_fails_its_call() {
    let (owner, caller) = pair().await;
    for (number, node) in [(300, &owner), (310, &caller)] {
        let object = plain(node);
        let hit = object.send(Detached(number));
        object.send(Note(1)).await.unwrap();
        open(number);
        let error = bounded(hit).await.unwrap_err();
        let Error::Remote { kind, message, node: at, function, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*kind, message.as_str(), at.as_str()), (RemoteKind::Panic, "bang 13", "owner"));
        assert!(function.ends_with("Detached"), "{function}");
        assert_eq!(object.send(Notes()).await, Ok(vec!["1".into()]));
    }
    end(owner, caller).await;
}

/// With plain `Actor::start` each of these would abort the process.
#[actix::test]
async fn endings_that_would_abort() {
    let (owner, caller) = pair().await;
    let mut number = 400;
    for node in [&owner, &caller] {
        for bits in 0..8 {
            let ending = Ending {
                stopping_goes_on: bits & 1 != 0,
                stopped_panics: bits & 2 != 0,
                drop_panics: bits & 4 != 0,
            };
            for way in [Way::Plain, Way::Act, Way::Atomic] {
                let object = node.remote("owner", worker, (ending,)).unwrap();
                dies(&object, way, number).await;
                number += 2;
            }
            // And an end without a panic in a handler: nobody holds it any more.
            let object = node.remote("owner", worker, (ending,)).unwrap();
            object.send(Note(1)).await.unwrap();
        }
        arrived(node).await;
    }
    end(owner, caller).await;
}

/// An atomic response has the actor to itself, and what is queued behind it keeps its order.
#[actix::test]
async fn atomic_responses_are_exclusive() {
    let (owner, caller) = pair().await;
    for (base, node) in [(500, &owner), (510, &caller)] {
        let object = plain(node);
        let (first, second) = (object.send(Hold(base)), object.send(Hold(base + 1)));
        let noted = object.send(Note(3));
        arrived(node).await;
        // The second may pass its gate at once; it must not have begun.
        open(base + 1);
        arrived(node).await;
        open(base);
        for request in [first, second, noted] {
            assert_eq!(bounded(request).await, Ok(()));
        }
        let expected =
            [format!("+{base}"), format!("-{base}"), format!("+{}", base + 1), format!("-{}", base + 1)];
        let notes = object.send(Notes()).await.unwrap();
        assert_eq!(notes[..4], expected);
        assert_eq!(notes[4..], ["3"]);
    }
    end(owner, caller).await;
}

/// Other asynchronous responses run side by side.
#[actix::test]
async fn other_responses_interleave() {
    let (owner, caller) = pair().await;
    for (base, node) in [(520, &owner), (530, &caller)] {
        let object = plain(node);
        let (first, second) = (object.send(Beside(base)), object.send(Beside(base + 1)));
        open(base + 1);
        assert_eq!(bounded(second).await, Ok(()));
        open(base);
        assert_eq!(bounded(first).await, Ok(()));
        let expected =
            [format!("+{base}"), format!("+{}", base + 1), format!("-{}", base + 1), format!("-{base}")];
        assert_eq!(object.send(Notes()).await.unwrap(), expected);
    }
    end(owner, caller).await;
}

#[actix::test]
async fn stopped_actor() {
    let (owner, caller) = pair().await;
    for (number, node) in [(600, &owner), (610, &caller)] {
        let object = plain(node);
        let held = object.send(Hold(number));
        let stop = object.send(Stop());
        let queued = object.send(Note(1));
        arrived(node).await;
        open(number);
        assert_eq!(bounded(held).await, Ok(()));
        assert_eq!(bounded(stop).await, Ok(()));
        let stopped = Err(Error::Gone(Gone::Stopped));
        assert_eq!(bounded(queued).await, stopped);
        assert_eq!(bounded(object.send(Note(2))).await, stopped);
        assert_eq!(bounded(object.ready()).await, stopped);
    }
    end(owner, caller).await;
}

/// A call that is dropped while it is queued does not run; one that has begun does.
#[actix::test]
async fn dropped_requests() {
    let (owner, caller) = pair().await;
    for (number, node) in [(700, &owner), (710, &caller)] {
        let object = plain(node);
        let held = object.send(Hold(number));
        let unwanted = object.send(Note(1));
        let wanted = object.send(Note(2));
        arrived(node).await;
        drop(held);
        drop(unwanted);
        // Behind the cancellations in the lane.
        arrived(node).await;
        open(number);
        assert_eq!(bounded(wanted).await, Ok(()));
        let expected = [format!("+{number}"), format!("-{number}"), "2".into()];
        assert_eq!(object.send(Notes()).await.unwrap(), expected);
    }
    end(owner, caller).await;
}
