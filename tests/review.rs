//! What must hold when calls, releases, losses and panics come at the worst moment.
//!
//! Nodes live in one process on an in-memory network. A bug here would often show as a lock taken
//! twice, so every test runs on a thread of its own that is given up after a while.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use rref::prelude::*;
use rref::transport::Network;
use rref::{Gone, NodeReport, Result};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Longer than anything here takes on a busy machine; reached only by a bug.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs a test in an actix system on its own thread, so that a deadlock fails it.
fn bounded<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        actix::System::new().block_on(test());
        let _ = done.send(());
    });
    match over.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

/// Waits until the node's report shows what is expected.
async fn until(node: &Node, what: &str, expected: impl Fn(&NodeReport) -> bool) {
    for _ in 0..2000 {
        if expected(&node.report()) {
            return;
        }
        actix::clock::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {what}:\n{}", node.report());
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Vec<i64>")]
struct Seen;

/// Remembers what it was told, in order.
#[derive(Object)]
#[object(messages(Add, Seen))]
struct Log(Vec<i64>);

impl Actor for Log {
    type Context = Context<Self>;
}

impl Handler<Add> for Log {
    type Result = i64;
    fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) -> i64 {
        self.0.push(n);
        n
    }
}

impl Handler<Seen> for Log {
    type Result = Vec<i64>;
    fn handle(&mut self, _: Seen, _: &mut Context<Self>) -> Vec<i64> {
        self.0.clone()
    }
}

fn log() -> Log {
    Log(Vec::new())
}

fn number(n: i64) -> i64 {
    n
}

fn give(list: Vec<RRef<i64>>) -> usize {
    list.len()
}

fn builder(network: &Network, name: &str) -> rref::Builder {
    Node::builder(name)
        .transport(network.clone())
        .listen(name)
        .insecure()
        .register::<Log>()
        .function(log)
        .function(number)
        .function(give)
}

async fn pair() -> Result<(Network, Node, Node)> {
    let network = Network::new();
    let b = builder(&network, "b").start().await?;
    let a = builder(&network, "a").join("b").start().await?;
    Ok((network, a, b))
}

#[test]
fn a_call_keeps_its_object_until_it_is_sent() {
    bounded(|| async {
        let (_network, a, b) = pair().await.unwrap();
        let log_here: RRef<Log> = a.remote("b", log, ()).unwrap();
        log_here.ready().await.unwrap();
        let witness = b.report().objects.len();
        assert_eq!(witness, 1);
        let call = log_here.send(Add(7));
        drop(log_here);
        assert_eq!(call.await.unwrap(), 7);
        until(&b, "freed", |report| report.objects.is_empty()).await;
    });
}

#[test]
fn a_fetch_keeps_its_object_until_it_is_sent() {
    bounded(|| async {
        let (_network, a, b) = pair().await.unwrap();
        let value: RRef<i64> = a.remote("b", number, (3,)).unwrap();
        value.ready().await.unwrap();
        let call = value.to_here();
        drop(value);
        assert_eq!(call.await.unwrap(), 3);
        until(&b, "freed", |report| report.objects.is_empty()).await;
    });
}

#[test]
fn a_call_with_a_dead_handle_fails_alone() {
    bounded(|| async {
        let (network, a, b) = pair().await.unwrap();
        let c = builder(&network, "c").join("a").join("b").start().await.unwrap();
        let value: RRef<i64> = a.remote("c", number, (3,)).unwrap();
        value.ready().await.unwrap();
        // b learns that c is gone; a keeps the handle.
        c.shutdown().await;
        until(&b, "c dead", |report| report.peers.iter().any(|p| p.name == "c" && p.link.contains("dead")))
            .await;
        let error = a.call("b", give, (vec![value.clone()],)).await.unwrap_err();
        assert!(matches!(error, Error::ObjectDied { .. }), "{error}");
        let made: RRef<usize> = a.remote("b", give, (vec![value],)).unwrap();
        let error = made.ready().await.unwrap_err();
        assert!(matches!(error, Error::CreateFailed(_)), "{error}");
        assert_eq!(a.call("b", number, (5,)).await.unwrap(), 5);
    });
}

#[test]
fn calls_behind_a_construction_keep_their_order_across_threads() {
    bounded(|| async {
        let network = Network::new();
        let node = builder(&network, "a").spawn().unwrap();
        for _ in 0..200 {
            let log: RRef<Log> = node.remote("a", log, ()).unwrap();
            for n in 0..200 {
                log.do_send(Add(n)).unwrap();
            }
            let seen = log.send(Seen).await.unwrap();
            assert_eq!(seen, (0..200).collect::<Vec<_>>());
        }
        node.shutdown().await;
    });
}

struct Rude;

impl std::fmt::Display for Rude {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("rude");
    }
}

fn refuses() -> Result<Log, Rude> {
    Err(Rude)
}

#[test]
fn a_panic_in_a_constructors_error_fails_that_creation_only() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").function(refuses).start().await.unwrap();
        let b = builder(&network, "b").function(refuses).join("a").start().await.unwrap();
        for node in [&a, &b] {
            let made: RRef<Log> = node.remote("a", refuses, ()).unwrap();
            let error = made.ready().await.unwrap_err();
            assert!(error.to_string().contains("rude"), "{error}");
            assert_eq!(node.call("a", number, (1,)).await.unwrap(), 1);
        }
    });
}

static BIG: AtomicUsize = AtomicUsize::new(0);

fn big(x: Tensor<f32>) -> usize {
    BIG.fetch_add(1, Ordering::SeqCst);
    x.len()
}

#[test]
fn a_call_that_is_half_sent_is_not_called_unsent() {
    bounded(|| async {
        let network = Network::new();
        let b = builder(&network, "b").function(big).start().await.unwrap();
        let a = builder(&network, "a").function(big).join("b").start().await.unwrap();
        // More than the window: its transfer is open when the connection breaks.
        let x = Tensor::from(ndarray::Array1::<f32>::zeros(16 << 20));
        let call = a.call("b", big, (x,));
        until(&a, "begun", |report| report.bytes_sent > 1 << 16).await;
        network.set_unreachable(true);
        network.cut_connections();
        until(&a, "cut", |report| report.peers.iter().all(|peer| peer.link != "connected")).await;
        let behind = a.call("b", number, (1,));
        let error = call.await.unwrap_err();
        network.set_unreachable(false);
        a.wait_for("b", LIMIT).await.unwrap();
        assert_eq!(a.call("b", number, (1,)).await.unwrap(), 1);
        until(&a, "quiet", |report| report.peers.iter().all(|p| p.queued == 0 && p.unacknowledged == 0))
            .await;
        // Begun, so it could not be taken back; but its owner is told that nobody waits.
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
        assert!(matches!(behind.await.unwrap_err(), Error::NotSent { .. }));
        assert_eq!(BIG.load(Ordering::SeqCst), 0, "it ran although its caller had been answered");
        b.shutdown().await;
    });
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

#[derive(Object)]
#[object(messages())]
struct Ticker;

impl Actor for Ticker {
    type Context = Context<Self>;
    fn started(&mut self, context: &mut Context<Self>) {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        context.run_interval(Duration::from_millis(1), |_, _| {});
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

fn ticker() -> Ticker {
    Ticker
}

#[test]
fn an_actor_with_a_timer_stops_when_it_is_freed() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").register::<Ticker>().function(ticker).start().await.unwrap();
        let made: RRef<Ticker> = a.remote("a", ticker, ()).unwrap();
        made.ready().await.unwrap();
        until(&a, "started", |_| ALIVE.load(Ordering::SeqCst) == 1).await;
        drop(made);
        until(&a, "stopped", |_| ALIVE.load(Ordering::SeqCst) == 0).await;
    });
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Slow;

/// Answers after a while, without keeping others waiting.
#[derive(Object)]
#[object(messages(Slow))]
struct Sleepy;

impl Actor for Sleepy {
    type Context = Context<Self>;
}

impl Handler<Slow> for Sleepy {
    type Result = ResponseActFuture<Self, i64>;
    fn handle(&mut self, _: Slow, context: &mut Context<Self>) -> Self::Result {
        context.run_interval(Duration::from_millis(1), |_, _| {});
        Box::pin(actix::clock::sleep(Duration::from_millis(30)).into_actor(self).map(|(), _, _| 9))
    }
}

fn sleepy() -> Sleepy {
    Sleepy
}

#[test]
fn a_running_call_keeps_its_actor() {
    bounded(|| async {
        let network = Network::new();
        let node = |name| builder(&network, name).register::<Sleepy>().function(sleepy);
        let a = node("a").start().await.unwrap();
        let b = node("b").join("a").start().await.unwrap();
        for node in [&a, &b] {
            let made: RRef<Sleepy> = node.remote("a", sleepy, ()).unwrap();
            made.ready().await.unwrap();
            let calls = [made.send(Slow), made.send(Slow)];
            drop(made);
            for call in calls {
                assert_eq!(call.await.unwrap(), 9);
            }
            until(&a, "freed", |report| report.objects.is_empty()).await;
        }
    });
}

fn hand_out(of: String) -> RRef<i64> {
    let node = Node::current().unwrap();
    node.remote(of, number, (4,)).unwrap()
}

#[test]
fn a_leaving_node_settles_what_it_was_handed() {
    bounded(|| async {
        let network = Network::new();
        let node = |name: &str| builder(&network, name).function(hand_out);
        let c = node("c").start().await.unwrap();
        let b = node("b").join("c").start().await.unwrap();
        for round in 0..20 {
            let a = node(&format!("a{round}")).join("b").join("c").start().await.unwrap();
            let handed: RRef<i64> = a.call("b", hand_out, ("c".to_string(),)).await.unwrap();
            drop(handed);
            assert!(a.shutdown().await.leaked.is_empty());
        }
        until(&b, "without pins", |report| report.held.is_empty()).await;
        until(&c, "freed", |report| report.objects.is_empty()).await;
    });
}

#[derive(Serialize, Deserialize, Clone, Copy)]
struct AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough<A, B>(A, B);
type L1 = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough<u8, u8>;
type L2 = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough<L1, L1>;
type L3 = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough<L2, L2>;
type L4 = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough<L3, L3>;

fn long(n: u8) -> L4 {
    let a = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough(n, n);
    let b = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough(a, a);
    let c = AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough(b, b);
    AVeryLongNameThatNeedsALotOfRoomOnTheWireWhenItIsRepeatedOftenEnough(c, c)
}

#[test]
fn a_name_that_is_too_long_fails_its_call_only() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").function(long).start().await.unwrap();
        let b = builder(&network, "b").function(long).join("a").start().await.unwrap();
        let value: RRef<L4> = b.remote("a", long, (1,)).unwrap();
        let error = value.to_here().await.map(drop).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        assert_eq!(b.call("a", number, (1,)).await.unwrap(), 1);
        a.shutdown().await;
    });
}

#[test]
fn a_shutdown_may_take_for_ever() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").shutdown_deadline(Duration::MAX).start().await.unwrap();
        assert!(a.shutdown().await.complete);
    });
}

#[test]
fn a_node_that_has_shut_down_runs_nothing_more() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").start().await.unwrap();
        let log: RRef<Log> = a.remote("a", log, ()).unwrap();
        assert_eq!(log.send(Add(1)).await.unwrap(), 1);
        a.shutdown().await;
        let error = log.send(Add(2)).await.unwrap_err();
        assert!(matches!(error, Error::ShuttingDown { .. }), "{error}");
    });
}

/// A waker that looks at the node, as an executor of the user's might.
struct Curious(Node);

impl std::task::Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.0.report();
    }
}

#[test]
fn a_dropped_request_wakes_nobody_under_the_lock() {
    bounded(|| async {
        let (_network, a, _b) = pair().await.unwrap();
        let mut call = a.call("b", number, (1,)).timeout(Duration::MAX);
        let waker = Arc::new(Curious(a.clone())).into();
        let mut task = std::task::Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut call).poll(&mut task).is_pending());
        drop(call);
        assert_eq!(a.call("b", number, (2,)).await.unwrap(), 2);
    });
}

#[test]
fn gone_is_typed() {
    bounded(|| async {
        let (_network, a, b) = pair().await.unwrap();
        let value: RRef<i64> = a.remote("b", number, (1,)).unwrap();
        value.ready().await.unwrap();
        b.shutdown().await;
        until(&a, "b dead", |report| report.peers.iter().any(|peer| peer.link.contains("dead"))).await;
        let error = value.to_here().await.unwrap_err();
        assert!(matches!(error, Error::OwnerDied { .. } | Error::Gone(Gone::Stopped)), "{error}");
    });
}

/// A peer of the test's own making, which may say anything.
mod hostile {
    use super::Network;
    use rref::transport::Transport as _;
    use rref_core::NodeUid;
    use rref_core::wire::{
        Channel, Encoded, Endpoint, Frame, Hello, HelloAck, Limits, PROTOCOL_VERSION, Token, encode,
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    pub struct Peer {
        stream: Box<dyn rref::transport::Stream>,
        seq: u64,
        pub me: NodeUid,
        pub them: NodeUid,
    }

    impl Peer {
        pub async fn join(network: &Network, address: &str) -> Peer {
            let mut stream = network.dial(address).await.unwrap();
            let me = NodeUid(7);
            let endpoint = Endpoint {
                uid: me,
                name: "hostile".into(),
                addresses: Vec::new(),
                features: 0,
                session_no: 0,
                recv_next: 1,
                ttl_ms: 30_000,
                calls: 100,
                call_bytes: 1 << 20,
                window: 1 << 20,
            };
            let version = PROTOCOL_VERSION;
            let hello = Hello {
                channel: Channel::Data,
                version_min: version,
                version_max: version,
                token: Token::NONE,
                endpoint,
            };
            stream.write_all(&hello.encode().unwrap()).await.unwrap();
            let mut input = Vec::new();
            let ack = loop {
                if let Some((ack, _)) = HelloAck::decode(&input).unwrap() {
                    break ack;
                }
                stream.read_buf(&mut input).await.unwrap();
            };
            let HelloAck::Accepted { endpoint, .. } = ack else { panic!("{ack:?}") };
            Peer { stream, seq: 0, me, them: endpoint.uid }
        }

        pub async fn say(&mut self, frame: &Frame) {
            self.seq += 1;
            let encoded: Encoded = encode(self.seq, 0, 0, frame, &Limits::DEFAULT).unwrap();
            for part in encoded.parts() {
                self.stream.write_all(part).await.unwrap();
            }
        }

        /// Reads until the other side closes the connection.
        pub async fn until_closed(&mut self) {
            let mut sink = [0; 4096];
            while self.stream.read(&mut sink).await.unwrap() > 0 {}
        }
    }
}

#[test]
fn a_broken_frame_with_handles_ends_its_session_only() {
    use rref_core::ObjectId;
    use rref_core::wire::{Body, Call, Create, Frame, Payload, Reply, Source, Status, Target, Trace};

    bounded(|| async {
        for case in 0..3 {
            let network = Network::new();
            let a = builder(&network, "a").start().await.unwrap();
            let mut peer = hostile::Peer::join(&network, "a").await;
            // The peer's object, and one of a's that is to come.
            let refs = vec![
                ObjectId { owner: peer.me, creator: peer.me, create_no: 1 },
                ObjectId { owner: peer.them, creator: peer.me, create_no: 9 },
            ];
            let body = Body::Inline(Vec::new().into());
            let payload = Payload { refs, body, segments: Vec::new(), transfer: 0 };
            let trace = Trace::default();
            let frame = match case {
                0 => Frame::Call(Call {
                    call_id: 1,
                    target: Target::Function { name: 1 },
                    timeout_ms: 0,
                    trace,
                    payload,
                }),
                1 => Frame::Create(Create {
                    create_no: 1,
                    source: Source::Function { name: 1 },
                    trace,
                    payload,
                }),
                _ => {
                    let b = builder(&network, "b").function(sleep_long).join("a").start().await.unwrap();
                    let waiting = a.call("b", sleep_long, ());
                    drop(b);
                    std::mem::forget(waiting);
                    Frame::Reply(Reply { call_id: 1, status: Status::Ok, payload })
                }
            };
            peer.say(&frame).await;
            peer.until_closed().await;
            assert_eq!(a.call("a", number, (1,)).await.unwrap(), 1);
            let report = a.report();
            assert!(report.held.iter().all(|held| held.handles == 0), "{report}");
            assert!(report.objects.iter().all(|object| object.local_handles == 0), "{report}");
        }
    });
}

async fn sleep_long() -> i64 {
    actix::clock::sleep(Duration::from_secs(3600)).await;
    0
}

/// Its drop panics, wherever that happens.
#[derive(Serialize, Deserialize)]
struct Touchy(u64);

impl Drop for Touchy {
    fn drop(&mut self) {
        if self.0 == 77 {
            panic!("touchy");
        }
    }
}

fn touch(touchy: Touchy) {
    std::mem::forget(touchy);
}

#[test]
fn a_panic_in_an_arguments_drop_leaves_the_node_alone() {
    bounded(|| async {
        let network = Network::new();
        let a = builder(&network, "a").function(touch).start().await.unwrap();
        // Cancelled before it starts: its argument is dropped by the node.
        drop(a.call("a", touch, (Touchy(77),)));
        assert_eq!(a.call("a", number, (1,)).await.unwrap(), 1);
    });
}

#[test]
fn a_call_for_what_a_dead_node_would_have_created_fails() {
    use rref_core::ObjectId;
    use rref_core::wire::{Body, Call, Frame, LeaveStage, Payload, Target, Trace};

    bounded(|| async {
        let network = Network::new();
        // What is expected of a node is expected until its lease is over: soon, here.
        let leases = rref::LeaseSettings::shortened(100);
        let a = builder(&network, "a").leases(leases).start().await.unwrap();
        // The peer hands out an object of a's that it never asks for, and leaves.
        let mut peer = hostile::Peer::join(&network, "a").await;
        let promised = ObjectId { owner: peer.them, creator: peer.me, create_no: 1 };
        let target = Target::Ready { object: promised };
        let body = Body::Inline(Vec::new().into());
        let payload = Payload { refs: vec![promised], body, segments: Vec::new(), transfer: 0 };
        let call = Call { call_id: 1, target, timeout_ms: 0, trace: Trace::default(), payload };
        peer.say(&Frame::Call(call)).await;
        until(&a, "parked", |report| report.parked == 1).await;
        peer.say(&Frame::Leave(LeaveStage::Leaving)).await;
        until(&a, "failed", |report| report.parked == 0 && report.objects.is_empty()).await;
    });
}
