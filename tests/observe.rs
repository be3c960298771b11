//! What can be seen from outside: spans under one trace id, and the report.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use rref::prelude::*;
use rref::{NodeReport, RemoteKind, Streaming, transport::Network};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

// A subscriber that remembers.

#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    /// The span in which it was made.
    within: Option<usize>,
    /// Texts of events inside it.
    events: Vec<String>,
    handles: usize,
}

impl Seen {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

#[derive(Default)]
struct Log {
    spans: Vec<Seen>,
    entered: Vec<usize>,
}

/// Spans of calls, and events of this test, on one thread.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Log>>);

impl Memory {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    /// The only span of this kind and function.
    fn one(&self, name: &str, function: &str) -> (usize, Seen) {
        let log = self.log();
        let is_it = |seen: &&Seen| seen.name == name && seen.field("function").ends_with(function);
        let found: Vec<&Seen> = log.spans.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name} {function} in {:#?}", log.spans);
        let index = log.spans.iter().position(|seen| is_it(&seen)).unwrap();
        (index, found[0].clone())
    }
}

/// tracing keeps for the whole process what subscribers think of a place in the code: tests with
/// subscribers of their own go one after the other.
static ALONE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);

impl Subscriber for Memory {
    /// Threads where nobody listens are to be asked too, and not to share this answer.
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["rref::call", "observe"].contains(&metadata.target())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut log = self.log();
        let within = log.entered.last().copied().filter(|_| attributes.is_contextual());
        let mut seen = Seen { name: attributes.metadata().name(), within, handles: 1, ..Seen::default() };
        attributes.record(&mut seen);
        log.spans.push(seen);
        Id::from_u64(log.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.log().spans[index(span)]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Seen::default();
        event.record(&mut text);
        let mut log = self.log();
        if let Some(span) = log.entered.last().copied() {
            log.spans[span].events.push(text.field("message").to_string());
        }
    }

    fn enter(&self, span: &Id) {
        self.log().entered.push(index(span));
    }

    fn exit(&self, span: &Id) {
        assert_eq!(self.log().entered.pop(), Some(index(span)));
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.log().spans[index(span)].handles += 1;
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let seen = &mut self.log().spans[index(&span)];
        seen.handles -= 1;
        seen.handles == 0
    }
}

fn index(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

// The program of all nodes.

fn leaf(text: String) -> usize {
    tracing::info!("at the leaf");
    text.len()
}

fn broken() -> i64 {
    panic!("broken")
}

async fn broken_later() -> i64 {
    tokio::task::yield_now().await;
    panic!("broken later")
}

fn broken_stream() -> Streaming<i64> {
    Streaming::from_iter((0..).map(|n| if n < 1 { n } else { panic!("broken stream") }))
}

fn here() -> Node {
    Node::current().unwrap()
}

async fn relay(peer: String, text: String) -> usize {
    tokio::task::yield_now().await;
    here().call(peer, leaf, (text,)).await.unwrap()
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
struct Plain(String, String);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
struct Detached(String, String);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
struct InContext(String, String);

/// Goes through another object of the same node first.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
struct Through(String, String);

/// Takes nothing else until it is released.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Block;

#[derive(Object)]
#[object(messages(Plain, Detached, InContext, Through, Block))]
struct Relay;

impl Actor for Relay {
    type Context = Context<Self>;
}

fn relay_object() -> Relay {
    Relay
}

impl Handler<Plain> for Relay {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, Plain(peer, text): Plain, _: &mut Self::Context) -> Self::Result {
        let request = here().call(peer, leaf, (text,));
        Box::pin(async move { request.await.unwrap() })
    }
}

impl Handler<Detached> for Relay {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, Detached(peer, text): Detached, _: &mut Self::Context) -> Self::Result {
        Box::pin(relay(peer, text))
    }
}

impl Handler<InContext> for Relay {
    type Result = ResponseActFuture<Self, usize>;

    fn handle(&mut self, InContext(peer, text): InContext, _: &mut Self::Context) -> Self::Result {
        Box::pin(relay(peer, text).into_actor(self))
    }
}

impl Handler<Through> for Relay {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, Through(peer, text): Through, _: &mut Self::Context) -> Self::Result {
        let other = here().host(Relay).unwrap();
        Box::pin(async move { other.send(Plain(peer, text)).await.unwrap() })
    }
}

static GATE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(0));

impl Handler<Block> for Relay {
    type Result = ();

    fn handle(&mut self, _: Block, context: &mut Self::Context) {
        context.wait(async { GATE.acquire().await.unwrap().forget() }.into_actor(self));
    }
}

fn node(name: &str, network: &Network) -> rref::Builder {
    Node::builder(name)
        .transport(network.clone())
        .listen(name)
        .insecure()
        .register::<Relay>()
        .function(leaf)
        .function(broken)
        .function(broken_later)
        .function(broken_stream)
        .function(relay)
        .function(relay_object)
}

/// Three nodes on this thread, joined, before anybody listens to spans.
async fn three() -> [Node; 3] {
    let network = Network::new();
    let c = node("c", &network).start().await.unwrap();
    let b = node("b", &network).join("c").start().await.unwrap();
    let a = node("a", &network).join("c").join("b").start().await.unwrap();
    [a, b, c]
}

async fn leave(nodes: [Node; 3]) {
    for node in nodes {
        let report = node.shutdown().await;
        assert!(report.leaked.is_empty(), "{:?}", report.leaked);
    }
}

/// Checks that a call of `function` from `a` to `b` that ended in a call of `leaf` is one trace.
fn one_trace(memory: &Memory, function: &str) {
    let (_, call) = memory.one("call", function);
    let (handle_index, handle) = memory.one("handle", function);
    let (_, nested) = memory.one("call", "::leaf");
    let (_, end) = memory.one("handle", "::leaf");
    let id = call.field("trace_id");
    assert_eq!(id.len(), 32);
    for seen in [&handle, &nested, &end] {
        assert_eq!(seen.field("trace_id"), id, "{function}: {:#?}", memory.log().spans);
    }
    assert_eq!((call.field("peer"), handle.field("peer")), ("b", "a"));
    assert_eq!((nested.field("peer"), end.field("peer")), ("c", "b"));
    assert_eq!(handle.field("parent_id"), call.field("span_id"));
    assert_eq!(end.field("parent_id"), nested.field("span_id"));
    assert_ne!(call.field("span_id"), nested.field("span_id"));
    assert_eq!(nested.within, Some(handle_index), "{function}");
    assert_eq!((handle.within, end.within), (None, None));
    assert_eq!((call.field("outcome"), nested.field("outcome")), ("ok", "ok"));
    assert_eq!(end.events, ["at the leaf"]);
    let log = memory.log();
    assert!(log.entered.is_empty());
    assert!(log.spans.iter().all(|seen| seen.handles == 0), "left open: {:#?}", log.spans);
    assert!(!format!("{:?}", log.spans).contains("secret"), "a span shows what a message carries");
}

#[actix::test]
async fn a_call_and_what_it_calls_are_one_trace() {
    let _alone = ALONE.acquire().await.unwrap();
    let nodes = three().await;
    let [a, ..] = &nodes;
    let object = a.remote("b", relay_object, ()).unwrap();
    object.ready().await.unwrap();
    let (to, text) = ("c".to_string(), "secret".to_string());
    let mut ids = Vec::new();
    for function in ["relay", "Plain", "Detached", "InContext", "Through"] {
        let memory = Memory::default();
        let listening = tracing::subscriber::set_default(memory.clone());
        let (to, text) = (to.clone(), text.clone());
        let length = match function {
            "relay" => a.call("b", relay, (to, text)).await,
            "Plain" => object.send(Plain(to, text)).await,
            "Detached" => object.send(Detached(to, text)).await,
            "InContext" => object.send(InContext(to, text)).await,
            _ => object.send(Through(to, text)).await,
        };
        assert_eq!(length.unwrap(), 6);
        drop(listening);
        one_trace(&memory, &format!("::{function}"));
        ids.push(memory.one("call", function).1.field("trace_id").to_string());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "calls of their own are traces of their own");
    drop(object);
    leave(nodes).await;
}

#[actix::test]
async fn a_node_that_does_not_trace_passes_the_trace_on() {
    let _alone = ALONE.acquire().await.unwrap();
    let network = Network::new();
    // With a single subscriber tracing asks the thread that comes by first, for the whole process.
    let _second = tracing::Dispatch::new(Memory::default());
    // On a thread of its own, where nobody listens.
    let b = node("b", &network).spawn().unwrap();
    let c = node("c", &network).join("b").start().await.unwrap();
    let a = node("a", &network).join("c").join("b").start().await.unwrap();
    let memory = Memory::default();
    let listening = tracing::subscriber::set_default(memory.clone());
    a.call("b", relay, ("c".to_string(), "text".to_string())).await.unwrap();
    drop(listening);
    let ((_, call), (_, end)) = (memory.one("call", "::relay"), memory.one("handle", "::leaf"));
    assert_eq!(call.field("trace_id"), end.field("trace_id"));
    assert_eq!(call.field("span_id"), end.field("parent_id"));
    assert_eq!(memory.log().spans.len(), 2);
    leave([a, b, c]).await;
}

#[actix::test]
async fn an_error_says_to_which_trace_it_belongs() {
    let _alone = ALONE.acquire().await.unwrap();
    let nodes = three().await;
    let [a, ..] = &nodes;
    let trace_of = |error: Error, text: &str| match error {
        Error::Remote { kind: RemoteKind::Panic, trace_id, message, .. } if message == text => trace_id,
        other => panic!("{other}"),
    };
    let memory = Memory::default();
    let listening = tracing::subscriber::set_default(memory.clone());
    let at_once = trace_of(a.call("b", broken, ()).await.unwrap_err(), "broken");
    let later = trace_of(a.call("b", broken_later, ()).await.unwrap_err(), "broken later");
    let mut stream = a.call("b", broken_stream, ()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), 0);
    let streamed = trace_of(stream.next().await.unwrap().unwrap_err(), "broken stream");
    drop(listening);
    for (function, id) in [("::broken", at_once), ("_later", later), ("_stream", streamed)] {
        let (_, call) = memory.one("call", function);
        assert_eq!(call.field("trace_id"), format!("{id:032x}"));
        assert_eq!(memory.one("handle", function).1.handles, 0);
    }
    assert_eq!(memory.one("call", "::broken").1.field("outcome"), "remote");
    drop(stream);
    leave(nodes).await;
}

/// Lets the nodes of this thread run until `condition` holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("still not so: {what}");
}

fn count(report: &NodeReport, outcome: &str) -> (u64, u64) {
    let of = |counts: &BTreeMap<&'static str, u64>| counts.get(outcome).copied().unwrap_or(0);
    (of(&report.outcomes), of(&report.handled))
}

#[actix::test]
async fn the_report_counts_what_waits_and_how_calls_end() {
    let _alone = ALONE.acquire().await.unwrap();
    let nodes = three().await;
    let [a, b, _] = &nodes;
    let object = a.remote("b", relay_object, ()).unwrap();
    object.ready().await.unwrap();
    assert_eq!((count(&a.report(), "ok").0, count(&b.report(), "ok").1), (1, 1));

    object.send(Block).await.unwrap();
    let waiting: Vec<_> = (0..3).map(|_| object.send(Block)).collect();
    let queued = || b.report().objects.iter().map(|object| object.queued).sum::<usize>();
    until("three calls wait in the object's queue", || queued() == 3).await;
    let report = b.report();
    assert_eq!(report.objects[0].calls, 3);
    let of_a = report.peers.iter().find(|peer| peer.name == "a").unwrap();
    assert_eq!((of_a.running, of_a.waiting_for_credit, of_a.queued_bytes), (3, 0, 0));
    assert!(report.to_string().contains("3 calls, 3 queued"), "{report}");

    // A request that is dropped is counted as such, and its call is not run.
    drop(waiting);
    assert_eq!(count(&a.report(), "cancelled"), (3, 0));
    // What goes to one node arrives in order: the cancellations are there when this call is.
    a.call("b", leaf, ("text".to_string(),)).await.unwrap();
    GATE.add_permits(1);
    until("the queue has run dry", || queued() == 0 && b.report().objects[0].calls == 0).await;
    assert_eq!(count(&b.report(), "timeout").1, 3, "{}", b.report());

    assert!(a.call("b", broken, ()).await.is_err());
    assert_eq!((count(&a.report(), "remote").0, count(&b.report(), "remote").1), (1, 1));
    drop(object);
    leave(nodes).await;
}
