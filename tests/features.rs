//! What a user meets after the first hour: sharing, names, scopes, streams, watching, placement.

use rref::prelude::*;
use rref::{Event, Gone, NodeEvent, Placement, Snapshot, Streaming, transport::Network};
use std::sync::Barrier;
use std::time::Duration;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Streaming<i64>")]
struct Countdown;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Boom;

#[derive(Object)]
#[object(messages(Add, Countdown, Boom), snapshot)]
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

impl Handler<Countdown> for Counter {
    type Result = Streaming<i64>;

    fn handle(&mut self, _: Countdown, _: &mut Self::Context) -> Streaming<i64> {
        Streaming::from_iter((0..self.0).rev())
    }
}

impl Handler<Boom> for Counter {
    type Result = ();

    fn handle(&mut self, _: Boom, _: &mut Self::Context) {
        panic!("boom")
    }
}

impl Snapshot for Counter {
    type Snapshot = i64;

    fn snapshot(&self) -> i64 {
        self.0
    }
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn numbers(upto: u64) -> Streaming<u64> {
    Streaming::from_iter(0..upto)
}

fn bad_numbers() -> Streaming<u64> {
    Streaming::from_iter((0..).map(|n| if n < 3 { n } else { panic!("three") }))
}

/// Passed once the thread of the node is stuck, and once it may go on.
static STUCK: Barrier = Barrier::new(2);
static GO_ON: Barrier = Barrier::new(2);

fn stick() {
    STUCK.wait();
    GO_ON.wait();
}

fn list() -> Vec<i64> {
    vec![1, 2, 3]
}

fn push(list: &mut Vec<i64>, n: i64) -> usize {
    list.push(n);
    list.len()
}

fn reset(counter: &mut Counter) -> i64 {
    std::mem::take(&mut counter.0)
}

#[allow(clippy::ptr_arg)] // a method's first parameter is the object's own type
async fn slow_sum(list: &Vec<i64>, k: i64) -> i64 {
    tokio::task::yield_now().await;
    list.iter().sum::<i64>() * k
}

fn thread() -> String {
    format!("{:?}", std::thread::current().id())
}

fn thread_of(_: &Counter) -> String {
    thread()
}

fn dedicated(start: i64) -> Counter {
    Counter(start)
}

fn blocking_thread(_: u8) -> String {
    thread()
}

fn node(name: &str, network: &Network) -> rref::Builder {
    Node::builder(name)
        .transport(network.clone())
        .listen(name)
        .insecure()
        .register::<Counter>()
        .register::<Vec<i64>>()
        .function(counter)
        .function(numbers)
        .function(bad_numbers)
        .function(list)
        .function(stick)
        .method(push)
        .method(reset)
        .method(slow_sum)
        .function(thread)
        .method(thread_of)
        .function_on(Placement::Dedicated, dedicated)
        .function_on(Placement::Blocking, blocking_thread)
}

async fn pair() -> rref::Result<(Node, Node, Network)> {
    let network = Network::new();
    let owner = node("owner", &network).start().await?;
    let user = node("user", &network).join("owner").start().await?;
    Ok((owner, user, network))
}

async fn leave(nodes: [&Node; 2]) {
    for node in nodes {
        let report = node.shutdown().await;
        assert!(report.leaked.is_empty(), "{:?}", report.leaked);
    }
}

#[actix::test]
async fn streams_end_cancel_and_fail() {
    let (owner, user, _) = pair().await.unwrap();
    for peer in ["owner", "user"] {
        let mut stream = user.call(peer, numbers, (1000,)).await.unwrap();
        let mut got = Vec::new();
        while let Some(n) = stream.next().await {
            got.push(n.unwrap());
        }
        assert_eq!(got, (0..1000).collect::<Vec<_>>());

        let c = user.remote(peer, counter, (5,)).unwrap();
        let mut down = c.send(Countdown).await.unwrap();
        assert_eq!(down.next().await.unwrap().unwrap(), 4);
        drop(down);
        assert_eq!(c.send(Add(0)).await.unwrap(), 5);
    }
    let mut bad = user.call("owner", bad_numbers, ()).await.unwrap();
    for n in 0..3 {
        assert_eq!(bad.next().await.unwrap().unwrap(), n);
    }
    assert!(matches!(bad.next().await, Some(Err(Error::Remote { message, .. })) if message == "three"));
    assert!(bad.next().await.is_none());
    leave([&user, &owner]).await;
}

#[actix::test]
async fn a_slow_reader_holds_the_source_back() {
    let (owner, user, _) = pair().await.unwrap();
    let mut stream = user.call("owner", numbers, (u64::MAX,)).await.unwrap();
    for n in 0..100 {
        assert_eq!(stream.next().await.unwrap().unwrap(), n);
    }
    // Only what is granted may be on its way.
    let before = user.report().peers[0].frames_received;
    tokio::task::yield_now().await;
    for _ in 0..50 {
        user.call("owner", thread, ()).await.unwrap();
    }
    assert!(user.report().peers[0].frames_received - before < 50 * 2 + 64);
    drop(stream);
    leave([&user, &owner]).await;
}

#[actix::test]
async fn sharing_names_and_weak_references() {
    let (owner, user, _) = pair().await.unwrap();
    let c = owner.host(Counter(1)).unwrap();
    c.share_with("user", "the counter").await.unwrap();
    let shared: RRef<Counter> = user.shared("the counter").await.unwrap();
    assert_eq!(shared.send(Add(1)).await.unwrap(), 2);
    assert!(matches!(user.shared::<Vec<i64>>("the counter").await, Err(Error::WrongType { .. })));

    owner.register_name("counter", &c).unwrap();
    let found: RRef<Counter> = user.lookup("counter@owner").await.unwrap();
    assert_eq!(found, shared);
    assert!(matches!(user.lookup::<Counter>("nothing@owner").await, Err(Error::UnknownName { .. })));

    let weak = found.downgrade();
    assert_eq!(weak.upgrade().await.unwrap().unwrap(), c);
    drop((found, shared, c));
    assert!(user.unregister_name("the counter"));
    assert!(weak.upgrade().await.unwrap().is_some(), "the name keeps it");
    assert!(owner.unregister_name("counter"));
    while !owner.report().objects.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(weak.upgrade().await.unwrap().is_none());
    leave([&user, &owner]).await;
}

#[actix::test]
async fn stop_and_scope_end_objects_that_are_held() {
    let (owner, user, _) = pair().await.unwrap();
    for peer in ["owner", "user"] {
        let c = user.remote(peer, counter, (1,)).unwrap();
        let queued = c.send(Add(1));
        let mut watch = c.watch();
        c.stop().await.unwrap();
        assert_eq!(queued.await.unwrap(), 2, "what was queued still ran");
        assert_eq!(watch.next().await, Some(Event::Ended(Error::Gone(Gone::Stopped))));
        assert_eq!(watch.next().await, None);
        assert_eq!(c.send(Add(1)).await, Err(Error::Gone(Gone::Stopped)));

        let scope = user.scope();
        let d = scope.remote(peer, counter, (1,)).unwrap();
        assert_eq!(d.send(Add(1)).await.unwrap(), 2);
        scope.close().await;
        assert_eq!(d.send(Add(1)).await, Err(Error::Gone(Gone::Stopped)));
    }
    leave([&user, &owner]).await;
}

#[actix::test]
async fn watching_tells_of_deaths_and_of_owners() {
    let (owner, user, _) = pair().await.unwrap();
    let mut events = user.events();
    let c = user.remote("owner", counter, (1,)).unwrap();
    let mut watch = c.watch();
    assert!(c.send(Boom).await.is_err());
    assert_eq!(watch.next().await, Some(Event::Ended(Error::ObjectDied { reason: "boom".into() })));
    let d = user.remote("owner", counter, (1,)).unwrap();
    d.ready().await.unwrap();
    let mut watch = d.watch();
    drop(c);
    owner.shutdown().await;
    assert!(matches!(events.next().await, Some(NodeEvent::PeerDown { name, .. }) if name == "owner"));
    assert!(matches!(watch.next().await, Some(Event::Ended(_))));
    drop(d);
    user.shutdown().await;
}

#[actix::test]
async fn copies_are_independent_and_pass_the_caller_by() {
    let (owner, user, network) = pair().await.unwrap();
    let third = node("third", &network).join("user").join("owner").start().await.unwrap();
    let original = user.remote("owner", list, ()).unwrap();
    for peer in ["third", "owner", "user"] {
        let copy = original.copy_to(peer).unwrap();
        assert_eq!(copy.owner(), peer);
        assert_eq!(copy.apply(push, (4,)).await.unwrap(), 4);
        assert_eq!(copy.to_here().await.unwrap(), [1, 2, 3, 4]);
    }
    assert_eq!(original.to_here().await.unwrap(), [1, 2, 3]);
    drop(original);
    leave([&user, &third]).await;
    owner.shutdown().await;
}

#[actix::test]
async fn methods_of_every_kind() {
    let (owner, user, _) = pair().await.unwrap();
    for peer in ["owner", "user"] {
        let v = user.remote(peer, list, ()).unwrap();
        assert_eq!(v.apply(push, (4,)).await.unwrap(), 4);
        assert_eq!(v.apply(slow_sum, (2,)).await.unwrap(), 20);
        let c = user.remote(peer, counter, (7,)).unwrap();
        assert_eq!(c.apply(reset, ()).await.unwrap(), 7);
        c.do_send(Add(3)).unwrap();
        c.flush().await.unwrap();
        assert_eq!(c.to_here().await.unwrap(), 3);
    }
    let c = user.host(Counter(9)).unwrap();
    assert_eq!(c.with_local(|c| c.0).await.unwrap(), 9);
    let addr = c.local_addr().await.unwrap();
    assert_eq!(addr.send(Add(1)).await.unwrap(), 10);
    drop((c, addr));
    leave([&user, &owner]).await;
}

#[actix::test]
async fn placement_decides_the_thread() {
    let (owner, user, _) = pair().await.unwrap();
    for peer in ["owner", "user"] {
        let here = thread();
        assert_eq!(user.call(peer, thread, ()).await.unwrap(), here);
        assert_ne!(user.call(peer, blocking_thread, (0,)).await.unwrap(), here);
        let shared = user.remote(peer, counter, (1,)).unwrap();
        assert_eq!(shared.apply(thread_of, ()).await.unwrap(), here);
        let own = user.remote(peer, dedicated, (1,)).unwrap();
        assert_ne!(own.apply(thread_of, ()).await.unwrap(), here);
        assert_eq!(own.send(Add(1)).await.unwrap(), 2);
    }
    leave([&user, &owner]).await;
}

#[test]
fn blocking_calls_serve_programs_that_are_not_async() {
    let network = Network::new();
    let owner = node("owner", &network).spawn().unwrap();
    let user = node("user", &network).join("owner").spawn().unwrap();
    let v = user.remote("owner", list, ()).unwrap();
    assert_eq!(v.fetch(Duration::from_secs(10)).unwrap(), [1, 2, 3]);
    assert_eq!(user.call("owner", numbers, (3,)).blocking().map(drop), Ok(()));
    // A node whose own thread is stuck cannot keep a call beyond its limit.
    let stuck = user.call("user", stick, ());
    STUCK.wait();
    let limit = Duration::from_millis(50);
    assert_eq!(v.fetch(limit), Err(Error::Timeout(limit)));
    GO_ON.wait();
    assert_eq!(stuck.blocking(), Ok(()));
    let inside = actix::System::new().block_on(async { v.fetch(Duration::from_secs(10)) });
    assert_eq!(inside, Err(Error::WouldBlockRuntime));
    drop(v);
    actix::System::new().block_on(async { leave([&user, &owner]).await });
}
