//! What bad input gets: a typed error that says what to do, and everything else goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]
#![allow(clippy::ptr_arg, reason = "a method names the type of the object, here a Vec")]

mod raw;

use raw::{Log, RawPeer, bounded, finish, hello};
use rref::Builder;
use rref::prelude::*;
use rref::transport::{Network, Tcp};
use rref_core::wire::Frame;
use std::future::Future;
use std::pin::Pin;
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

/// Takes the same message, and is never registered.
#[derive(Object)]
#[object(messages(Add))]
struct Tally;

impl Actor for Tally {
    type Context = Context<Self>;
}

impl Handler<Add> for Tally {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        n
    }
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn tally() -> Tally {
    Tally
}

fn twice(x: i64) -> i64 {
    2 * x
}

fn norm(x: &Vec<f32>, k: f32) -> f32 {
    k * x.iter().sum::<f32>()
}

fn ones(n: usize) -> Vec<f32> {
    vec![1.0; n]
}

mod other {
    pub fn twice(x: i32) -> i32 {
        2 * x
    }

    pub fn norm(x: &Vec<f32>, k: f64) -> f64 {
        k * f64::from(x.iter().sum::<f32>())
    }
}

/// Two nodes in memory, `caller` joined to `owner`.
async fn pair(owner: Builder, caller: Builder) -> (Node, Node) {
    let network = Network::new();
    let owner = owner.transport(network.clone()).listen("owner").insecure().start().await.unwrap();
    let caller = caller.transport(network).join("owner").start().await.unwrap();
    (owner, caller)
}

fn owner() -> Builder {
    Node::builder("owner").function(twice).function(ones)
}

fn caller() -> Builder {
    Node::builder("caller")
}

/// Whether the error's text has each of these words.
#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

// What nobody knows.

#[actix::test]
async fn unknown_peer() {
    let (owner, caller) = pair(owner(), caller()).await;
    let expected = Error::UnknownPeer { peer: "nobody".into(), node: "caller".into() };
    assert_eq!(caller.call("nobody", twice, (1,)).await, Err(expected.clone()));
    assert_eq!(caller.remote("nobody", twice, (1,)).unwrap_err(), expected);
    says(&expected, &["nobody", "caller", "join", "wait_for"]);
    let limit = Duration::from_millis(1);
    assert_eq!(caller.wait_for("nobody", limit).await, Err(Error::Timeout(limit)));
    finish([caller, owner]).await;
}

#[actix::test]
async fn unregistered_function() {
    let (owner, caller) = pair(Node::builder("owner"), caller()).await;
    for node in [&owner, &caller] {
        let error = node.call("owner", twice, (1,)).await.unwrap_err();
        let Error::NotRegistered { what, node: lacking, call } = &error else { panic!("{error:?}") };
        assert_eq!(
            (what.as_str(), lacking.as_str(), call.as_str()),
            ("bad_input::twice", "owner", ".function(twice)")
        );
        says(&error, &["twice", "`owner`", "add `.function(twice)`", "Node::builder()"]);
    }
    // On the owner nothing has to travel, so `remote` itself says so.
    assert!(matches!(owner.remote("owner", twice, (1,)), Err(Error::NotRegistered { .. })));
    let object = caller.remote("owner", twice, (1,)).unwrap();
    let error = object.ready().await.unwrap_err();
    assert!(matches!(error, Error::CreateFailed(_)), "{error:?}");
    says(&error, &["bad_input::twice", "`owner`", ".function(twice)"]);
    drop(object);
    finish([caller, owner]).await;
}

#[actix::test]
async fn unregistered_method() {
    let (owner, caller) = pair(owner(), caller()).await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", ones, (3,)).unwrap();
        let error = object.apply(norm, (1.0,)).await.unwrap_err();
        assert!(
            matches!(&error, Error::NotRegistered { node, call, .. } if node == "owner" && call == ".method(norm)"),
            "{error:?}"
        );
        assert_eq!(object.to_here().await.unwrap().len(), 3);
    }
    finish([caller, owner]).await;
}

#[actix::test]
async fn unregistered_message() {
    let (owner, caller) = pair(owner().function(counter), caller().register::<Counter>()).await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", counter, (0,)).unwrap();
        let error = object.send(Add(1)).await.unwrap_err();
        assert!(matches!(&error, Error::NotRegistered { node, .. } if node == "owner"), "{error:?}");
        says(&error, &["bad_input::Add", ".register::<", "Node::builder()"]);
        // The object is there; and what a message would have made is not.
        assert_eq!(object.ready().await, Ok(()));
        let made = object.remote(Add(1)).unwrap();
        let error = made.ready().await.unwrap_err();
        assert!(matches!(error, Error::CreateFailed(_)), "{error:?}");
        says(&error, &["bad_input::Add", "`owner`", ".register::<"]);
    }
    finish([caller, owner]).await;
}

/// The owner knows the message, but not for this type of object.
#[actix::test]
async fn message_registered_for_another_object() {
    let (owner, caller) = pair(owner().register::<Counter>().function(tally), caller()).await;
    for node in [&owner, &caller] {
        let object = node.remote("owner", tally, ()).unwrap();
        let error = object.send(Add(1)).await.unwrap_err();
        assert!(
            matches!(&error, Error::NotRegistered { node, call, .. } if node == "owner" && call == ".register::<Tally>()"),
            "{error:?}"
        );
        says(&error, &["bad_input::Add", "bad_input::Tally"]);
        // Nobody hears of a cast that fails; it does no harm.
        object.do_send(Add(1)).unwrap();
        assert_eq!(object.ready().await, Ok(()));
    }
    finish([caller, owner]).await;
}

// Types that differ.

#[track_caller]
fn mismatch(error: Error, path: &str) {
    let Error::SchemaMismatch { path: found, node, ours, theirs } = &error else { panic!("{error:?}") };
    assert_eq!(found, path);
    assert_eq!(node, "owner");
    assert!(ours != theirs && *ours != 0 && *theirs != 0);
    says(
        &error,
        &[path, "`owner`", &format!("{ours:032x} here"), &format!("{theirs:032x} there"), "new name"],
    );
}

#[actix::test]
async fn mismatched_function() {
    let (owner, caller) =
        pair(owner().function_as("double", twice), caller().function_as("double", other::twice)).await;
    let error = caller.call("owner", other::twice, (1,)).await.unwrap_err();
    let Error::SchemaMismatch { ours, theirs, .. } = error else { panic!("{error:?}") };
    mismatch(error, "double");
    let object = caller.remote("owner", other::twice, (1,)).unwrap();
    let error = object.ready().await.unwrap_err();
    assert!(matches!(error, Error::CreateFailed(_)), "{error:?}");
    says(&error, &["double", "`owner`", &format!("{ours:032x}"), &format!("{theirs:032x}")]);
    // The session lives on.
    drop(object);
    assert_eq!(caller.call("owner", ones, (2,)).await, Ok(vec![1.0, 1.0]));
    finish([caller, owner]).await;
}

#[actix::test]
async fn mismatched_method() {
    let (owner, caller) =
        pair(owner().method_as("norm", norm), caller().method_as("norm", other::norm)).await;
    let object = caller.remote("owner", ones, (2,)).unwrap();
    mismatch(object.apply(other::norm, (1.0,)).await.unwrap_err(), "norm");
    assert_eq!(object.to_here().await, Ok(vec![1.0, 1.0]));
    drop(object);
    finish([caller, owner]).await;
}

type Run = Box<dyn FnOnce(Node) -> Pin<Box<dyn Future<Output = Error>>>>;

/// Two programs whose message `Put` differs: types of one path, as those of two versions are.
fn two_puts() -> (Builder, Builder, Run) {
    let owner = {
        #[derive(Serialize, Deserialize, Message)]
        #[rtype(result = "()")]
        struct Put(f32);
        impl Handler<Put> for Value<Vec<f32>> {
            type Result = ();
            fn handle(&mut self, Put(x): Put, _: &mut Self::Context) {
                self.push(x);
            }
        }
        owner().message::<Vec<f32>, Put>()
    };
    #[derive(Serialize, Deserialize, Message)]
    #[rtype(result = "()")]
    struct Put(f32, u8);
    impl Handler<Put> for Value<Vec<f32>> {
        type Result = ();
        fn handle(&mut self, _: Put, _: &mut Self::Context) {}
    }
    let run: Run = Box::new(|node| {
        Box::pin(async move {
            let object = node.remote("owner", ones, (2,)).unwrap();
            object.do_send(Put(1.0, 2)).unwrap();
            let error = object.send(Put(1.0, 2)).await.unwrap_err();
            assert_eq!(object.to_here().await, Ok(vec![1.0, 1.0]));
            error
        })
    });
    (owner, caller(), run)
}

#[actix::test]
async fn mismatched_message() {
    let (owner, caller, run) = two_puts();
    let (owner, caller) = pair(owner, caller).await;
    mismatch(run(caller.clone()).await, "bad_input::two_puts::Put");
    finish([caller, owner]).await;
}

/// Two programs whose type `Point` differs; references to it do not, so it shows when it is fetched.
fn two_points() -> (Builder, Builder, Run) {
    let owner = {
        #[derive(Clone, Serialize, Deserialize)]
        struct Point {
            x: f32,
        }
        fn lend() -> RRef<Point> {
            let node = Node::current().unwrap();
            node.host(Point { x: 1.0 }).unwrap()
        }
        owner().register::<Point>().function_as("lend", lend)
    };
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Point {
        x: f64,
    }
    fn lend() -> RRef<Point> {
        unreachable!("it runs on the owner")
    }
    let run: Run = Box::new(|node| {
        Box::pin(async move {
            let object = node.call("owner", lend, ()).await.unwrap();
            let error = object.to_here().await.map(|point| point.x).unwrap_err();
            assert_eq!(object.ready().await, Ok(()));
            // The owner knows the type, in another form.
            let Error::CreateFailed(why) = object.copy_to("owner").unwrap().ready().await.unwrap_err() else {
                panic!("no such copy can be made")
            };
            assert!(why.contains("Point") && why.contains("has other types on `owner`"), "{why}");
            error
        })
    });
    (owner, caller().function_as("lend", lend), run)
}

#[actix::test]
async fn mismatched_fetch() {
    let (owner, caller, run) = two_points();
    let (owner, caller) = pair(owner, caller).await;
    mismatch(run(caller.clone()).await, "bad_input::two_points::Point");
    finish([caller, owner]).await;
}

// Functions that return an error.

fn refuse(why: String) -> Result<Counter, String> {
    Err(why)
}

fn parse(text: String) -> Result<i64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

#[actix::test]
async fn function_that_returns_an_error() {
    let (owner, caller) = pair(owner().function(refuse).function(parse), caller()).await;
    let why = "no \"disk\" left,\n\tC:\\ is full: größer, 磁盘, 🦀 \0".to_string();
    for node in [&owner, &caller] {
        // An actor's constructor: every call says why there is none.
        let object = node.remote("owner", refuse, (why.clone(),)).unwrap();
        let expected = Error::CreateFailed(why.clone());
        assert_eq!(object.ready().await, Err(expected.clone()));
        assert_eq!(object.ready().await, Err(expected.clone()));
        says(&expected, &["could not be created", &why]);
        // Data: the whole `Result` is the value.
        let parsed = node.call("owner", parse, ("x\"\n".to_string(),)).await;
        assert_eq!(parsed, Ok(Err("`x\"\n` is no number".into())));
        let kept = node.remote("owner", parse, ("7".to_string(),)).unwrap();
        assert_eq!(kept.to_here().await, Ok(Ok(7)));
    }
    finish([caller, owner]).await;
}

// References outside of messages.

#[actix::test]
async fn rref_serialised_outside_a_message() {
    let (owner, caller) = pair(owner(), caller()).await;
    let object = caller.remote("owner", twice, (21,)).unwrap();
    let words = ["inside a message", "registered name"];
    let text = serde_json::to_string(&object).unwrap_err().to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    let text = serde_json::to_string(&vec![Some(object.clone())]).unwrap_err().to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    let text = serde_json::from_str::<RRef<i64>>("0").unwrap_err().to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    // postcard has errors without a text.
    assert!(postcard::to_allocvec(&object).is_err());
    assert!(postcard::from_bytes::<RRef<i64>>(&[0]).is_err());
    // None of it did anything to the reference, or to the next message.
    assert_eq!(object.to_here().await, Ok(42));
    assert_eq!(caller.call("owner", twice, (1,)).await, Ok(2));
    drop(object);
    finish([caller, owner]).await;
}

fn first(objects: Vec<RRef<i64>>) -> usize {
    objects.len()
}

#[actix::test]
async fn rref_in_a_message_of_another_node() {
    let (owner, caller) = pair(owner().function(first), caller()).await;
    let object = owner.host(1i64).unwrap();
    let error = caller.call("owner", first, (vec![object.clone()],)).await.unwrap_err();
    assert!(matches!(error, Error::Encode(_)), "{error:?}");
    says(&error, &["`owner`", "`caller`", "send it from its own node"]);
    drop(object);
    finish([caller, owner]).await;
}

// Messages that are too large, or too deep.

fn length(text: String) -> usize {
    text.len()
}

fn text(length: usize) -> String {
    "x".repeat(length)
}

#[actix::test]
async fn message_too_large() {
    let (owner, caller) = pair(owner().function(length).function(text), caller()).await;
    let huge = 17 << 20;
    let too_large = |error: &Error| {
        let Error::TooLarge { size, limit, .. } = error else { panic!("{error:?}") };
        assert!(*size > huge as u64 && *limit == 16 << 20);
        says(error, &["body", "tensors travel beside it", &limit.to_string()]);
    };
    too_large(&caller.call("owner", length, ("x".repeat(huge),)).await.unwrap_err());
    too_large(&caller.remote("owner", length, ("x".repeat(huge),)).unwrap_err());
    // So is a result: the call has run.
    too_large(&caller.call("owner", text, (huge,)).await.unwrap_err());
    // What fits, fits, and the session lives on.
    let fits = (16 << 20) - 16;
    assert_eq!(caller.call("owner", length, ("x".repeat(fits),)).await, Ok(fits));
    assert_eq!(caller.call("owner", text, (fits,)).await.map(|text| text.len()), Ok(fits));
    finish([caller, owner]).await;
}

#[actix::test]
async fn too_many_references_in_a_message() {
    let (owner, caller) = pair(owner().function(first), caller()).await;
    let mut objects: Vec<RRef<i64>> = (0..1025).map(|n| caller.host(n).unwrap()).collect();
    let error = caller.call("owner", first, (objects.clone(),)).await.unwrap_err();
    let expected =
        Error::TooLarge { what: "the number of references in a message".into(), size: 1025, limit: 1024 };
    assert_eq!(error, expected);
    // Repeats take no room of their own.
    objects.pop();
    let repeated: Vec<_> = objects.iter().chain(&objects).cloned().collect();
    assert_eq!(caller.call("owner", first, (repeated,)).await, Ok(2048));
    assert_eq!(objects[1023].to_here().await, Ok(1023));
    drop(objects);
    finish([caller, owner]).await;
}

#[derive(Serialize, Deserialize)]
struct Nest(Option<Box<Nest>>);

fn depth(mut nest: Nest) -> usize {
    let mut depth = 1;
    while let Nest(Some(inner)) = nest {
        nest = *inner;
        depth += 1;
    }
    depth
}

fn nested(depth: usize) -> Nest {
    (1..depth).fold(Nest(None), |inner, _| Nest(Some(Box::new(inner))))
}

#[actix::test]
async fn message_too_deep() {
    let (owner, caller) = pair(owner().function(depth).function(nested), caller()).await;
    assert_eq!(caller.call("owner", depth, (nested(40),)).await, Ok(40));
    let error = caller.call("owner", depth, (nested(10_000),)).await.unwrap_err();
    assert!(matches!(error, Error::Decode(_)), "{error:?}");
    says(&error, &["cannot decode", "deeper than 128 levels"]);
    let error = caller.call("owner", nested, (10_000,)).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Decode(_)), "{error:?}");
    assert_eq!(caller.call("owner", twice, (1,)).await, Ok(2));
    finish([caller, owner]).await;
}

// Listening and joining.

#[actix::test]
async fn port_in_use() {
    let holder = owner().listen("127.0.0.1:0").insecure().start().await.unwrap();
    let address = holder.local_addr().unwrap();
    let error = caller().listen(&*address).insecure().start().await.unwrap_err();
    assert!(matches!(&error, Error::AddressInUse { address: said, .. } if *said == address), "{error:?}");
    says(&error, &[&address, "another port", "port 0"]);
    let error = caller().listen(&*address).insecure().spawn().unwrap_err();
    assert!(matches!(error, Error::AddressInUse { .. }), "{error:?}");
    finish([holder]).await;
}

#[actix::test]
async fn listening_must_be_allowed() {
    let config = |error: Error, words: &[&str]| {
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        says(&error, words);
    };
    config(owner().listen("127.0.0.1:0").start().await.unwrap_err(), &["add `.insecure()`", "loopback"]);
    config(owner().listen("127.0.0.1:0").spawn().unwrap_err(), &["add `.insecure()`"]);
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = owner().listen(address).insecure().start().await.unwrap_err();
        config(error, &[address, "127.0.0.1", "insecure_any_address()"]);
    }
    config(owner().listen("no address").insecure().start().await.unwrap_err(), &["no address"]);
    config(Node::builder("").start().await.unwrap_err(), &["name", "1 to 256"]);
    let log = Log::capture();
    let open = owner().listen("0.0.0.0:0").insecure_any_address().start().await.unwrap();
    assert_eq!(log.matching("unencrypted").len(), 1, "{:?}", log.lines());
    finish([open]).await;
}

#[actix::test]
async fn name_taken() {
    let network = Network::new();
    let holder = owner().transport(network.clone()).listen("owner").insecure().start().await.unwrap();
    let first = caller().transport(network.clone()).join("owner").start().await.unwrap();
    for name in ["caller", "owner"] {
        let error = Node::builder(name).transport(network.clone()).join("owner").start().await.unwrap_err();
        assert!(matches!(&error, Error::NameTaken { name: said, .. } if said == name), "{error:?}");
        says(&error, &[name, "another name"]);
    }
    assert_eq!(first.call("owner", twice, (1,)).await, Ok(2));
    finish([first, holder]).await;
}

#[actix::test]
async fn wrong_token() {
    let network = Network::new();
    let holder = owner().transport(network.clone()).token([7; 16]).listen("owner").insecure();
    let holder = holder.start().await.unwrap();
    let member = caller().transport(network.clone()).token([7; 16]).join("owner").start().await.unwrap();
    for stranger in [Node::builder("stranger").token([8; 16]), Node::builder("stranger")] {
        let error = stranger.transport(network.clone()).join("owner").start().await.unwrap_err();
        assert!(matches!(&error, Error::Denied { node, .. } if node == "owner"), "{error:?}");
        says(&error, &["token"]);
        // The secret itself is nobody's business.
        assert!(!error.to_string().contains("0707") && !error.to_string().contains("[7"), "{error}");
    }
    assert_eq!(holder.report().peers.len(), 1);
    assert_eq!(member.call("owner", twice, (1,)).await, Ok(2));
    finish([member, holder]).await;
}

#[actix::test]
async fn join_to_nobody() {
    tokio::time::pause();
    let network = Network::new();
    let begun = tokio::time::Instant::now();
    let error = caller().transport(network.clone()).join("nobody").start().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { peer, .. } if peer == "nobody"), "{error:?}");
    says(&error, &["nobody", "30s", "is a node listening there?"]);
    // On the paused clock: it kept trying for the whole of its deadline, and no longer.
    let tried = begun.elapsed();
    assert!(tried > Duration::from_secs(25) && tried <= Duration::from_secs(31), "{tried:?}");
    network.set_unreachable(true);
    let error = caller().transport(network).join("x").join_deadline(Duration::ZERO).start().await;
    assert!(matches!(error, Err(Error::Unreachable { .. })), "{error:?}");
}

// A peer that vanishes.

/// A peer that takes calls and never answers, and where it listens.
async fn ghost(node: &Node, listens: bool) -> (RawPeer, Option<tokio::net::TcpListener>) {
    let listener = match listens {
        true => Some(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap()),
        false => None,
    };
    let addresses: Vec<_> = listener.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
    let address = node.local_addr().unwrap();
    let peer = RawPeer::join(&Tcp, &address, &hello("ghost", 13, &addresses)).await;
    node.wait_for("ghost", raw::PATIENCE).await.unwrap();
    (peer, listener)
}

#[actix::test]
async fn peer_that_vanishes_in_mid_call() {
    let node = owner().listen("127.0.0.1:0").insecure().start().await.unwrap();
    let (mut peer, listener) = ghost(&node, true).await;
    let object = node.remote("ghost", twice, (1,)).unwrap();
    let sent = node.call("ghost", twice, (1,));
    let fetched = object.to_here();
    let mut calls = 0;
    while calls < 2 {
        calls += usize::from(matches!(peer.receive().await, Frame::Call(_)));
    }
    drop(listener);
    drop(peer);
    for error in [bounded(sent).await.unwrap_err(), bounded(fetched).await.unwrap_err()] {
        assert!(matches!(&error, Error::OutcomeUnknown { peer, .. } if peer == "ghost"), "{error:?}");
        says(&error, &["`ghost`", "may have run"]);
    }
    // From now on nothing is sent, and the error says what became of the objects.
    let died = |error: &Error| {
        assert!(matches!(error, Error::OwnerDied { owner, .. } if owner == "ghost"), "{error:?}");
        says(error, &["`ghost` died", "refuses connections", "objects are lost"]);
    };
    died(&node.call("ghost", twice, (1,)).await.unwrap_err());
    died(&node.remote("ghost", twice, (1,)).unwrap_err());
    died(&object.to_here().await.unwrap_err());
    died(&object.ready().await.unwrap_err());
    assert_eq!(node.call("owner", twice, (1,)).await, Ok(2));
    drop(object);
    finish([node]).await;
}

/// It cannot be dialled, so its return is waited for; its calls are not.
#[actix::test]
async fn peer_that_falls_silent() {
    let network = Network::new();
    let node = owner().transport(network.clone()).listen("owner").insecure().start().await.unwrap();
    let mut peer = RawPeer::join(&network, "owner", &hello("ghost", 13, &[])).await;
    node.wait_for("ghost", raw::PATIENCE).await.unwrap();
    let sent = node.call("ghost", twice, (1,));
    while !matches!(peer.receive().await, Frame::Call(_)) {}
    tokio::time::pause();
    drop(peer);
    let error = sent.await.unwrap_err();
    assert!(matches!(&error, Error::OutcomeUnknown { peer, .. } if peer == "ghost"), "{error:?}");
    let error = node.call("ghost", twice, (1,)).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { peer, .. } if peer == "ghost"), "{error:?}");
    // The same process returns, and is served.
    let back = RawPeer::join(&network, "owner", &{
        let mut hello = hello("ghost", 13, &[]);
        hello.endpoint.session_no = 1;
        hello.endpoint.recv_next = 3;
        hello
    })
    .await;
    assert!(back.is_accepted(), "{:?}", back.answer);
    drop(back);
    finish([node]).await;
}

// After shutdown.

#[actix::test]
async fn use_after_shutdown() {
    let build =
        |builder: Builder| builder.function(counter).register::<Counter>().method(norm).function(twice);
    let (owner, caller) = pair(build(owner()), build(caller())).await;
    for node in [&caller, &owner] {
        let counter_ref = node.remote("owner", counter, (0,)).unwrap();
        let fresh = node.remote("owner", counter, (0,)).unwrap();
        let ones_ref = node.remote("owner", ones, (2,)).unwrap();
        assert_eq!(counter_ref.send(Add(1)).await, Ok(1));
        assert_eq!(ones_ref.to_here().await.unwrap().len(), 2);
        // Held on purpose, and reported.
        let report = bounded(node.shutdown()).await;
        assert_eq!(report.leaked.len(), 3, "{:?}", report.leaked);
        let closed = Error::ShuttingDown { node: node.name().into() };
        says(&closed, &[node.name(), "shutting down"]);
        for peer in ["owner", "caller"] {
            assert_eq!(bounded(node.call(peer, twice, (1,))).await, Err(closed.clone()), "{peer}");
            assert_eq!(node.remote(peer, twice, (1,)).unwrap_err(), closed, "{peer}");
        }
        assert_eq!(node.host(1i64).unwrap_err(), closed);
        for object in [&counter_ref, &fresh] {
            assert_eq!(bounded(object.send(Add(1))).await, Err(closed.clone()));
            assert_eq!(object.do_send(Add(1)).unwrap_err(), closed);
            assert_eq!(object.remote(Add(1)).unwrap_err(), closed);
            assert_eq!(bounded(object.ready()).await, Err(closed.clone()));
        }
        assert_eq!(bounded(ones_ref.to_here()).await, Err(closed.clone()));
        assert_eq!(bounded(ones_ref.apply(norm, (1.0,))).await, Err(closed.clone()));
        let borrowed = bounded(ones_ref.local_value()).await.map(|value| value.len());
        match ones_ref.is_local() {
            true => assert_eq!(borrowed, Err(closed)),
            false => assert!(matches!(borrowed, Err(Error::NotOwner { .. })), "{borrowed:?}"),
        }
        // A second shutdown has nothing to do.
        assert!(bounded(node.shutdown()).await.leaked.is_empty());
    }
}
