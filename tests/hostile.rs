//! Peers that break the protocol, over a real socket. After each the others are served on: that is
//! what every test ends with.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod raw;

use raw::{Log, RawPeer, bounded, eventually, finish, frame_bytes, hello};
use rref::prelude::*;
use rref::transport::{Network, Stream, Tcp, Transport};
use rref_core::wire::{
    Ack, Call, Create, Frame, HelloAck, Limits, Name, NameKind, Payload, RejectReason, Reply, Source, Status,
    Target, Trace,
};
use rref_core::{NodeUid, ObjectId, Stamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn add(x: i64, y: i64) -> i64 {
    x + y
}

/// A node, and another that uses it while a third misbehaves.
struct Cluster {
    owner: Node,
    bystander: Node,
    held: RRef<i64>,
    address: String,
    log: Log,
}

impl Cluster {
    async fn start() -> Cluster {
        let log = Log::capture();
        let owner = Node::builder("owner").function(add).listen("127.0.0.1:0").insecure();
        let owner = owner.start().await.unwrap();
        let address = owner.local_addr().unwrap();
        let bystander = Node::builder("bystander").join(&*address).start().await.unwrap();
        let held = bystander.remote("owner", add, (20, 1)).unwrap();
        assert_eq!(held.to_here().await, Ok(21));
        Cluster { owner, bystander, held, address, log }
    }

    /// A peer with its handshake behind it.
    async fn peer(&self) -> RawPeer {
        let peer = RawPeer::join(&Tcp, &self.address, &hello("mallory", 666, &[])).await;
        assert!(peer.is_accepted(), "{:?}", peer.answer);
        peer
    }

    /// The peer sent something for which its session must end: it does, with one line in the log
    /// that says who and why.
    async fn expect_closed(self, peer: RawPeer, why: &str) {
        peer.closed().await;
        let lines = self.log.matching("closing the session");
        assert_eq!(lines.len(), 1, "{:?}", self.log.lines());
        assert!(lines[0].contains("mallory") && lines[0].contains(why), "{lines:?}");
        // Whoever broke the protocol is not let in again.
        let again = RawPeer::join(&Tcp, &self.address, &hello("mallory", 666, &[])).await;
        assert!(
            matches!(again.answer, HelloAck::Rejected { reason: RejectReason::Denied, .. }),
            "{:?}",
            again.answer
        );
        self.expect_served().await;
    }

    /// The bystander's session, its object, and new peers are as before.
    async fn expect_served(self) {
        let Cluster { owner, bystander, held, address, .. } = self;
        assert_eq!(bounded(held.to_here()).await, Ok(21));
        assert_eq!(bounded(bystander.call("owner", add, (1, 2))).await, Ok(3));
        let newcomer = Node::builder("newcomer").join(address).start().await.unwrap();
        assert_eq!(bounded(newcomer.call("owner", add, (3, 4))).await, Ok(7));
        drop(held);
        finish([newcomer, bystander, owner]).await;
    }
}

/// Sends `bytes` instead of a Hello, and waits for the node to close the connection.
async fn instead_of_hello(address: &str, bytes: &[u8]) {
    let mut stream = Tcp.dial(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = bounded(stream.read_to_end(&mut answer)).await;
    assert!(answer.is_empty(), "{answer:?}");
}

#[actix::test]
async fn wrong_magic() {
    let cluster = Cluster::start().await;
    // One byte is enough: nothing waits for the rest of a Hello that cannot be one.
    instead_of_hello(&cluster.address, b"G").await;
    instead_of_hello(&cluster.address, b"GET / HTTP/1.1\r\n\r\n").await;
    eventually("a line for each", || cluster.log.matching("came to nothing").len() == 2).await;
    cluster.expect_served().await;
}

#[actix::test]
async fn hello_of_4_gib() {
    let cluster = Cluster::start().await;
    instead_of_hello(&cluster.address, &[b"rref".as_slice(), &u32::MAX.to_le_bytes()].concat()).await;
    cluster.expect_served().await;
}

#[actix::test]
async fn hello_cut_short_at_every_byte() {
    let cluster = Cluster::start().await;
    let whole = hello("mallory", 666, &["127.0.0.1:1".into()]).encode().unwrap();
    for length in 0..whole.len() {
        let mut stream = Tcp.dial(&cluster.address).await.unwrap();
        stream.write_all(&whole[..length]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = bounded(stream.read_to_end(&mut answer)).await;
        assert!(answer.is_empty(), "{length}: {answer:?}");
    }
    // None of them became a peer.
    assert_eq!(cluster.owner.report().peers.len(), 1);
    cluster.expect_served().await;
}

#[actix::test]
async fn hello_byte_by_byte() {
    let cluster = Cluster::start().await;
    let mut stream = Tcp.dial(&cluster.address).await.unwrap();
    for byte in hello("patient", 7, &[]).encode().unwrap() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = bytes::BytesMut::new();
    while HelloAck::decode(&answer).unwrap().is_none() {
        assert_ne!(bounded(stream.read_buf(&mut answer)).await.unwrap(), 0);
    }
    drop(stream);
    cluster.expect_served().await;
}

/// A peer that begins its Hello and never ends it is turned away when its time is over.
#[actix::test]
async fn slow_hello() {
    tokio::time::pause();
    let log = Log::capture();
    let network = Network::new();
    let owner = Node::builder("owner").transport(network.clone()).function(add).listen("owner").insecure();
    let owner = owner.start().await.unwrap();
    let mut stream: Box<dyn Stream> = network.dial("owner").await.unwrap();
    let whole = hello("mallory", 666, &[]).encode().unwrap();
    stream.write_all(&whole[..whole.len() - 1]).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty());
    assert_eq!(log.matching("did not finish its handshake").len(), 1, "{:?}", log.lines());
    let other = Node::builder("other").transport(network).join("owner").start().await.unwrap();
    assert_eq!(other.call("owner", add, (1, 2)).await, Ok(3));
    finish([other, owner]).await;
}

#[actix::test]
async fn garbage_frame() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    // A plausible length, and a kind that does not exist.
    let mut bytes = vec![0xee; 64];
    bytes[..4].copy_from_slice(&64u32.to_le_bytes());
    peer.send_bytes(&bytes).await;
    cluster.expect_closed(peer, "kind").await;
}

#[actix::test]
async fn frame_of_length_zero() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    peer.send_bytes(&[0; 4]).await;
    cluster.expect_closed(peer, "").await;
}

#[actix::test]
async fn frame_one_byte_over_the_limit() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let length = Limits::DEFAULT.frame as u32 + 1;
    peer.send_bytes(&length.to_le_bytes()).await;
    cluster.expect_closed(peer, &length.to_string()).await;
}

#[actix::test]
async fn frame_of_4_gib_without_a_body() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    peer.send_bytes(&u32::MAX.to_le_bytes()).await;
    cluster.expect_closed(peer, &u32::MAX.to_string()).await;
}

/// What came before a bad frame still counts, however they arrive.
#[actix::test]
async fn frames_before_a_bad_one_count() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let name = Name { index: 1, kind: NameKind::Function, path: "nobody".into(), schema: 0 };
    let mut bytes = peer.frame(&Frame::Name(name));
    bytes.extend_from_slice(&[0; 4]);
    let frames = |owner: &Node| {
        owner.report().peers.iter().find(|peer| peer.name == "mallory").map(|peer| peer.frames_received)
    };
    peer.send_bytes(&bytes).await;
    eventually("the name is taken in", || frames(&cluster.owner) == Some(1)).await;
    cluster.expect_closed(peer, "").await;
}

#[actix::test]
async fn frame_out_of_order() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    peer.send_bytes(&frame_bytes(3, 0, 0, &Frame::Credit { calls: 1 << 20, bytes: 1 << 30 })).await;
    cluster.expect_closed(peer, "frame 3").await;
}

#[actix::test]
async fn ack_of_frames_never_sent() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let ack = Ack { session_no: 1, at: 0, exceptions: Vec::new() };
    peer.send_bytes(&frame_bytes(0, 99, 0, &Frame::Ack(ack))).await;
    cluster.expect_closed(peer, "99").await;
}

#[actix::test]
async fn stamp_that_acks_frames_never_sent() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    peer.send_bytes(&frame_bytes(1, 77, 0, &Frame::Credit { calls: 1 << 20, bytes: 1 << 30 })).await;
    cluster.expect_closed(peer, "77").await;
}

#[actix::test]
async fn claim_of_a_foreign_object() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let id = ObjectId { owner: NodeUid(5), creator: NodeUid(666), create_no: 1 };
    peer.send(&Frame::Claim(vec![id])).await;
    cluster.expect_closed(peer, "another node's").await;
}

#[actix::test]
async fn release_of_a_foreign_object() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let id = ObjectId { owner: NodeUid(5), creator: NodeUid(666), create_no: 1 };
    peer.send(&Frame::Release(vec![(id, Stamp::ZERO)])).await;
    cluster.expect_closed(peer, "another node's").await;
}

/// Releasing what somebody else holds takes nothing from them; claiming it takes nothing either.
#[actix::test]
async fn release_of_what_others_hold() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let id = cluster.held.id();
    peer.send(&Frame::Release(vec![(id, Stamp { session_no: u32::MAX, seq: u64::MAX })])).await;
    peer.send(&Frame::Claim(vec![id])).await;
    peer.send(&Frame::Release(vec![(id, Stamp { session_no: u32::MAX, seq: u64::MAX })])).await;
    let frames = |owner: &Node| {
        owner.report().peers.iter().find(|peer| peer.name == "mallory").map(|peer| peer.frames_received)
    };
    eventually("all are taken in", || frames(&cluster.owner) == Some(3)).await;
    let report = cluster.owner.report();
    assert_eq!(report.objects.len(), 1);
    assert_eq!(report.objects[0].holders, ["bystander"]);
    drop(peer);
    cluster.expect_served().await;
}

/// A claim of an object that is no more is answered, and costs the node nothing.
#[actix::test]
async fn claim_of_what_is_no_more() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let freed = {
        let object = cluster.owner.host(1i64).unwrap();
        object.ready().await.unwrap();
        object.id()
    };
    peer.send(&Frame::Claim(vec![freed])).await;
    assert!(matches!(peer.receive().await, Frame::Gone(gone) if gone[0].0 == freed));
    assert_eq!(cluster.owner.report().objects.len(), 1);
    drop(peer);
    cluster.expect_served().await;
}

/// Late replies are normal, since callers give up; one to another node's call is not.
#[actix::test]
async fn reply_to_a_call_never_made() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let reply = Reply { call_id: 4711, status: Status::Ok, payload: Payload::default() };
    peer.send(&Frame::Reply(reply)).await;
    let id = ObjectId { owner: cluster.owner.uid(), creator: NodeUid(5), create_no: 1 };
    let call = Call {
        call_id: 1,
        target: Target::Ready { object: id },
        timeout_ms: 1000,
        trace: Trace::default(),
        payload: Payload::default(),
    };
    // Its session goes on: the next frame is answered, or waits for its object.
    peer.send(&Frame::Call(call)).await;
    eventually("the call is there", || {
        cluster.owner.report().peers.iter().any(|peer| peer.name == "mallory" && peer.frames_received == 2)
    })
    .await;
    assert!(cluster.log.matching("closing the session").is_empty(), "{:?}", cluster.log.lines());
    drop(peer);
    cluster.expect_served().await;
}

#[actix::test]
async fn creation_out_of_order() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let name = Name { index: 1, kind: NameKind::Function, path: "nobody".into(), schema: 0 };
    peer.send(&Frame::Name(name)).await;
    let create = Create {
        create_no: 9,
        source: Source::Function { name: 1 },
        trace: Trace::default(),
        payload: Payload::default(),
    };
    peer.send(&Frame::Create(create)).await;
    cluster.expect_closed(peer, "creation number 9").await;
}

#[actix::test]
async fn name_never_announced() {
    let cluster = Cluster::start().await;
    let mut peer = cluster.peer().await;
    let call = Call {
        call_id: 1,
        target: Target::Function { name: 3 },
        timeout_ms: 1000,
        trace: Trace::default(),
        payload: Payload::default(),
    };
    peer.send(&Frame::Call(call)).await;
    cluster.expect_closed(peer, "never announced").await;
}

/// A node that shows another's identity takes over its connection at most: the session goes on as
/// soon as the real one returns.
#[actix::test]
async fn replayed_hello_of_a_live_session() {
    let cluster = Cluster::start().await;
    let uid = cluster.bystander.uid().0;
    // As it was sent at first; the session has long gone on.
    let replay = RawPeer::join(&Tcp, &cluster.address, &hello("bystander", uid, &[])).await;
    assert!(
        matches!(replay.answer, HelloAck::Rejected { reason: RejectReason::UnknownSession, .. }),
        "{:?}",
        replay.answer
    );
    replay.closed().await;
    // Nor does a Hello that is refused change what is known of the peer.
    let renamed = RawPeer::join(&Tcp, &cluster.address, &hello("mallory", uid, &[])).await;
    assert!(!renamed.is_accepted(), "{:?}", renamed.answer);
    let names: Vec<String> = cluster.owner.report().peers.into_iter().map(|peer| peer.name).collect();
    assert_eq!(names, ["bystander"]);
    cluster.expect_served().await;
}

/// A session that nobody here knows is followed by a new one, in which nothing is taken for granted.
#[actix::test]
async fn hello_of_a_session_nobody_knows() {
    let cluster = Cluster::start().await;
    let mut stranger = hello("mallory", 666, &[]);
    stranger.endpoint.session_no = 12;
    stranger.endpoint.recv_next = 40;
    let peer = RawPeer::join(&Tcp, &cluster.address, &stranger).await;
    let HelloAck::Accepted { endpoint, .. } = &peer.answer else { panic!("{:?}", peer.answer) };
    assert_eq!((endpoint.session_no, endpoint.recv_next), (13, 1));
    drop(peer);
    // Numbers have an end: whoever claims the last one gets no further.
    let mut last = hello("trudy", 667, &[]);
    last.endpoint.session_no = u32::MAX;
    last.endpoint.recv_next = 0;
    let peer = RawPeer::join(&Tcp, &cluster.address, &last).await;
    assert!(
        matches!(peer.answer, HelloAck::Rejected { reason: RejectReason::UnknownSession, .. }),
        "{:?}",
        peer.answer
    );
    peer.closed().await;
    assert!(cluster.owner.report().peers.iter().all(|peer| peer.name != "trudy"));
    cluster.expect_served().await;
}
