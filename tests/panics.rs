//! Panics of user code, wherever it runs: each becomes an error for the call it concerns, and the
//! node, its sessions and its other objects go on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

mod raw;

use raw::{bounded, eventually, finish};
use rref::prelude::*;
use rref::transport::Network;
use rref::{Builder, RemoteKind};
use serde::{Deserializer, Serializer};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The value for which the types below panic: their other values are harmless, as those are that a
/// schema is found with.
const ARMED: u8 = 77;

/// Panics when it is dropped, on the node that received it.
struct DropBomb {
    armed: bool,
}

impl Drop for DropBomb {
    fn drop(&mut self) {
        if std::mem::take(&mut self.armed) {
            panic!("bang in Drop");
        }
    }
}

impl Serialize for DropBomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(ARMED)
    }
}

impl<'de> Deserialize<'de> for DropBomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DropBomb, D::Error> {
        Ok(DropBomb { armed: u8::deserialize(deserializer)? == ARMED })
    }
}

/// Panics when it is serialised.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct SerializeBomb(u8);

impl Serialize for SerializeBomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, ARMED, "bang in Serialize");
        serializer.serialize_newtype_struct("SerializeBomb", &self.0)
    }
}

/// Panics when it is deserialised.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeserializeBomb(u8);

impl<'de> Deserialize<'de> for DeserializeBomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DeserializeBomb, D::Error> {
        let value = u8::deserialize(deserializer)?;
        assert_ne!(value, ARMED, "bang in Deserialize");
        Ok(DeserializeBomb(value))
    }
}

/// An error that panics when it is shown.
struct DisplayBomb;

impl std::fmt::Display for DisplayBomb {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("bang in Display")
    }
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Bang;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Take(DeserializeBomb);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "SerializeBomb")]
struct Give;

#[derive(Object)]
#[object(messages(Add, Bang, Take, Give))]
struct Counter {
    count: i64,
    _bomb: Option<DropBomb>,
    started: Option<&'static str>,
}

impl Actor for Counter {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(text) = self.started {
            panic!("{text}");
        }
    }
}

impl Handler<Add> for Counter {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.count += n;
        self.count
    }
}

impl Handler<Bang> for Counter {
    type Result = ();

    fn handle(&mut self, Bang: Bang, _: &mut Self::Context) {
        panic!("bang in the handler");
    }
}

impl Handler<Take> for Counter {
    type Result = ();

    fn handle(&mut self, _: Take, _: &mut Self::Context) {}
}

impl Handler<Give> for Counter {
    type Result = MessageResult<Give>;

    fn handle(&mut self, Give: Give, _: &mut Self::Context) -> Self::Result {
        MessageResult(SerializeBomb(ARMED))
    }
}

/// An actor that cannot be moved into its seat.
struct Stubborn;

impl Actor for Stubborn {
    type Context = Context<Self>;
}

impl Object for Stubborn {
    fn wire_name() -> Cow<'static, str> {
        "Stubborn".into()
    }
}

impl Hosted for Stubborn {
    type Host = Stubborn;

    fn into_host(self) -> Stubborn {
        panic!("bang in into_host")
    }

    fn get(host: &Stubborn) -> &Stubborn {
        host
    }
}

fn counter(count: i64) -> Counter {
    Counter { count, _bomb: None, started: None }
}

fn armed_counter() -> Counter {
    Counter { count: 0, _bomb: Some(DropBomb { armed: true }), started: None }
}

fn false_start() -> Counter {
    Counter { count: 0, _bomb: None, started: Some("bang in started") }
}

fn no_counter() -> Counter {
    panic!("bang in the constructor")
}

async fn no_counter_later() -> Counter {
    tokio::task::yield_now().await;
    panic!("bang in the constructor")
}

fn unspeakable(fail: bool) -> Result<Counter, DisplayBomb> {
    if fail { Err(DisplayBomb) } else { Ok(counter(0)) }
}

async fn unspeakable_later(fail: bool) -> Result<Counter, DisplayBomb> {
    tokio::task::yield_now().await;
    unspeakable(fail)
}

fn stubborn() -> Stubborn {
    Stubborn
}

fn bang(text: String) -> i64 {
    panic!("{text}")
}

async fn bang_later(text: String) -> i64 {
    tokio::task::yield_now().await;
    panic!("{text}")
}

/// Panics with something that is no text.
fn bang_without_text() -> i64 {
    std::panic::panic_any(7u8)
}

fn apply_bang(count: &i64) -> i64 {
    panic!("bang at {count}")
}

fn number() -> i64 {
    4
}

fn take_drop_bomb(_: DropBomb) -> i64 {
    1
}

fn take_bomb(bomb: DeserializeBomb) -> DeserializeBomb {
    bomb
}

fn give_bomb(n: u8) -> SerializeBomb {
    SerializeBomb(n)
}

fn hold(_: RRef<i64>, _: SerializeBomb) {}

fn build(name: &str) -> Builder {
    Node::builder(name)
        .register::<Counter>()
        .function(counter)
        .function(armed_counter)
        .function(false_start)
        .function(no_counter)
        .function(no_counter_later)
        .function(unspeakable)
        .function(unspeakable_later)
        .function(stubborn)
        .function(bang)
        .function(bang_later)
        .function(bang_without_text)
        .function(number)
        .function(take_drop_bomb)
        .function(take_bomb)
        .function(give_bomb)
        .function(hold)
        .method(apply_bang)
}

/// `owner`, and `caller` which has joined it. What is called on `owner` by itself takes the local
/// way, by `caller` the remote one.
async fn pair() -> (Node, Node) {
    let network = Network::new();
    let owner = build("owner").transport(network.clone()).listen("owner").insecure();
    let owner = owner.start().await.unwrap();
    let caller = build("caller").transport(network).join("owner").start().await.unwrap();
    (owner, caller)
}

/// Both ways still work, nothing is left over, and both nodes end as usual.
async fn end(owner: Node, caller: Node) {
    for node in [&owner, &caller] {
        let counter = node.remote("owner", counter, (1,)).unwrap();
        assert_eq!(bounded(counter.send(Add(1))).await, Ok(2));
        assert_eq!(bounded(node.call("owner", number, ())).await, Ok(4));
    }
    eventually("all objects are freed", || owner.report().objects.is_empty()).await;
    eventually("all calls have ended", || {
        let report = owner.report();
        report.calls == 0 && report.peers.iter().all(|peer| peer.running == 0)
    })
    .await;
    finish([caller, owner]).await;
}

#[track_caller]
fn remote_panic(error: Error, function: &str, text: &str) {
    let Error::Remote { kind, message, node, function: found, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*kind, node.as_str()), (RemoteKind::Panic, "owner"));
    assert!(found.contains(function) && message.contains(text), "{error:?}");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[track_caller]
fn create_failed(error: Error, text: &str) {
    assert!(matches!(&error, Error::CreateFailed(cause) if cause.contains(text)), "{error:?}");
}

#[actix::test]
async fn panicking_function() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let text = || "bang \"1\"\n🦀".to_string();
        remote_panic(node.call("owner", bang, (text(),)).await.unwrap_err(), "panics::bang", &text());
        remote_panic(node.call("owner", bang_later, (text(),)).await.unwrap_err(), "bang_later", &text());
        let error = node.call("owner", bang_without_text, ()).await.unwrap_err();
        remote_panic(error, "bang_without_text", "a panic without a text");
        // Data made by a function that panics.
        let object = node.remote("owner", bang, (text(),)).unwrap();
        create_failed(object.to_here().await.unwrap_err(), &text());
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_constructor() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        for object in [
            node.remote("owner", no_counter, ()).unwrap(),
            node.remote("owner", no_counter_later, ()).unwrap(),
        ] {
            let queued = object.send(Add(1));
            create_failed(object.ready().await.unwrap_err(), "bang in the constructor");
            create_failed(queued.await.unwrap_err(), "bang in the constructor");
            create_failed(object.send(Add(1)).await.unwrap_err(), "no_counter");
        }
        let object = node.remote("owner", stubborn, ()).unwrap();
        create_failed(object.ready().await.unwrap_err(), "bang in into_host");
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_display_of_an_error() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", unspeakable, (true,)).unwrap();
        create_failed(bounded(object.ready()).await.unwrap_err(), "bang in Display");
        let object = node.remote("owner", unspeakable_later, (true,)).unwrap();
        create_failed(bounded(object.ready()).await.unwrap_err(), "bang in Display");
        let object = node.remote("owner", unspeakable, (false,)).unwrap();
        assert_eq!(object.send(Add(3)).await, Ok(3));
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_handler() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let bystander = node.remote("owner", counter, (5,)).unwrap();
        let object = node.remote("owner", counter, (0,)).unwrap();
        let hit = object.send(Bang);
        let queued = object.send(Add(1));
        let made = object.remote(Add(1)).unwrap();
        let died = Error::ObjectDied { reason: "bang in the handler".into() };
        assert_eq!(hit.await, Err(died.clone()));
        assert_eq!(queued.await, Err(died.clone()));
        create_failed(made.ready().await.unwrap_err(), "bang in the handler");
        assert_eq!(object.send(Add(1)).await, Err(died.clone()));
        assert_eq!(object.ready().await, Err(died));
        assert_eq!(bystander.send(Add(1)).await, Ok(6));
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_method() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", number, ()).unwrap();
        remote_panic(object.apply(apply_bang, ()).await.unwrap_err(), "apply_bang", "bang at 4");
        // It had the object by shared reference only.
        assert_eq!(object.to_here().await, Ok(4));
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_started() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", false_start, ()).unwrap();
        let died = Error::ObjectDied { reason: "bang in started".into() };
        assert_eq!(bounded(object.send(Add(1))).await, Err(died.clone()));
        assert_eq!(bounded(object.send(Add(1))).await, Err(died));
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_drop_of_an_actor() {
    let (owner, caller) = pair().await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", armed_counter, ()).unwrap();
        assert_eq!(object.send(Add(1)).await, Ok(1));
        drop(object);
        // And of one whose handler has panicked before.
        let object = node.remote("owner", armed_counter, ()).unwrap();
        let died = Error::ObjectDied { reason: "bang in the handler".into() };
        assert_eq!(object.send(Bang).await, Err(died));
    }
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_drop_of_arguments() {
    let (owner, caller) = pair().await;
    let error = owner.call("owner", take_drop_bomb, (DropBomb { armed: true },)).await.unwrap_err();
    remote_panic(error, "take_drop_bomb", "bang in Drop");
    let error = caller.call("owner", take_drop_bomb, (DropBomb { armed: false },)).await.unwrap_err();
    remote_panic(error, "take_drop_bomb", "bang in Drop");
    let object = caller.remote("owner", take_drop_bomb, (DropBomb { armed: false },)).unwrap();
    create_failed(object.ready().await.unwrap_err(), "bang in Drop");
    drop(object);
    // Cancelled before it could run: nobody but the node drops them.
    drop(owner.call("owner", take_drop_bomb, (DropBomb { armed: true },)));
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_serialize() {
    let (owner, caller) = pair().await;
    // Of a result, on the owner.
    let error = caller.call("owner", give_bomb, (ARMED,)).await.unwrap_err();
    remote_panic(error, "give_bomb", "bang in Serialize");
    let object = caller.remote("owner", give_bomb, (ARMED,)).unwrap();
    remote_panic(object.to_here().await.unwrap_err(), "to_here", "bang in Serialize");
    drop(object);
    let object = caller.remote("owner", counter, (0,)).unwrap();
    remote_panic(object.send(Give).await.unwrap_err(), "Give", "bang in Serialize");
    assert_eq!(object.send(Add(1)).await, Ok(1));
    drop(object);
    // On the same node nothing is serialised.
    assert_eq!(owner.call("owner", give_bomb, (ARMED,)).await, Ok(SerializeBomb(ARMED)));
    // Of an argument, in the caller's own code: it unwinds there, and nothing was sent.
    let held = caller.host(1i64).unwrap();
    let call = || drop(caller.call("owner", hold, (held.clone(), SerializeBomb(ARMED))));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(caller.call("owner", hold, (held.clone(), SerializeBomb(1))).await, Ok(()));
    // No context of the message that came to nothing is left behind.
    assert!(serde_json::to_string(&held).is_err());
    drop(held);
    end(owner, caller).await;
}

#[actix::test]
async fn panicking_deserialize() {
    let (owner, caller) = pair().await;
    let error = caller.call("owner", take_bomb, (DeserializeBomb(ARMED),)).await.unwrap_err();
    remote_panic(error, "take_bomb", "bang in Deserialize");
    assert_eq!(caller.call("owner", take_bomb, (DeserializeBomb(1),)).await, Ok(DeserializeBomb(1)));
    let object = caller.remote("owner", take_bomb, (DeserializeBomb(ARMED),)).unwrap();
    create_failed(object.ready().await.unwrap_err(), "bang in Deserialize");
    drop(object);
    // Of a message: the object has not seen it, and lives on.
    let object = caller.remote("owner", counter, (0,)).unwrap();
    remote_panic(object.send(Take(DeserializeBomb(ARMED))).await.unwrap_err(), "Take", "bang in Deserialize");
    assert_eq!(object.send(Add(1)).await, Ok(1));
    drop(object);
    end(owner, caller).await;
}
