//! A peer that speaks the wire format by hand, and so can say what no node would; and a look at what
//! a node logs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails stops its test")]
#![allow(dead_code, reason = "each test file uses some of it")]

use bytes::{Buf, BytesMut};
use rref::transport::{Stream, Transport};
use rref::{Node, NodeUid};
use rref_core::wire::{
    Channel, Encoded, Endpoint, Frame, Hello, HelloAck, Limits, PROTOCOL_VERSION, Stamped, Token, decode,
    encode, frame_len,
};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// How long a test waits for what should come at once, before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a node, at whose other end is no node.
pub struct RawPeer {
    stream: Box<dyn Stream>,
    input: BytesMut,
    /// Position of the last frame sent.
    pub seq: u64,
    /// What the node said of itself.
    pub answer: HelloAck,
}

/// A Hello as a node called `name` would send it.
pub fn hello(name: &str, uid: u128, addresses: &[String]) -> Hello {
    Hello {
        channel: Channel::Data,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        token: Token::NONE,
        endpoint: Endpoint {
            uid: NodeUid(uid),
            name: name.into(),
            addresses: addresses.to_vec(),
            features: 0,
            session_no: 0,
            recv_next: 1,
            ttl_ms: 30_000,
            calls: 1024,
            call_bytes: 1 << 20,
            window: 8 << 20,
        },
    }
}

impl RawPeer {
    /// Connects and does the handshake.
    pub async fn join(transport: &impl Transport, address: &str, hello: &Hello) -> RawPeer {
        let mut stream = transport.dial(address).await.unwrap();
        stream.write_all(&hello.encode().unwrap()).await.unwrap();
        let mut input = BytesMut::new();
        let answer = loop {
            if let Some((answer, length)) = HelloAck::decode(&input).unwrap() {
                input.advance(length);
                break answer;
            }
            let read = bounded(stream.read_buf(&mut input)).await.unwrap();
            assert_ne!(read, 0, "the node closed the connection in the handshake");
        };
        RawPeer { stream, input, seq: 0, answer }
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.answer, HelloAck::Accepted { .. })
    }

    /// A frame with the next position in the lane, as bytes.
    pub fn frame(&mut self, frame: &Frame) -> Vec<u8> {
        self.seq += 1;
        frame_bytes(self.seq, 0, 0, frame)
    }

    pub async fn send(&mut self, frame: &Frame) {
        let bytes = self.frame(frame);
        self.send_bytes(&bytes).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame that is in the sequence.
    pub async fn receive(&mut self) -> Frame {
        loop {
            if let Some(length) = frame_len(&self.input, &Limits::DEFAULT).unwrap()
                && self.input.len() >= length
            {
                let bytes = self.input.split_to(length).freeze();
                let Stamped { frame, .. } = decode(bytes, &Limits::DEFAULT).unwrap();
                // News of other members may come at any time.
                if matches!(frame, Frame::Ack(_) | Frame::Peer(_)) {
                    continue;
                }
                return frame;
            }
            let read = bounded(self.stream.read_buf(&mut self.input)).await.unwrap();
            assert_ne!(read, 0, "the node closed the connection");
        }
    }

    /// Waits until the node has closed the connection.
    pub async fn closed(mut self) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = bounded(self.stream.read_to_end(&mut rest)).await;
    }
}

/// A frame with these stamps, as bytes.
pub fn frame_bytes(seq: u64, ack: u64, settled: u64, frame: &Frame) -> Vec<u8> {
    let encoded: Encoded = encode(seq, ack, settled, frame, &Limits::DEFAULT).unwrap();
    encoded.parts().flat_map(|part| part.to_vec()).collect()
}

/// Fails the test if what should come at once does not come at all.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("nothing in {PATIENCE:?}"))
}

/// Waits until `reached` is true of the node.
pub async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: not in {PATIENCE:?}"));
}

/// Shuts the nodes down, in this order; none may have leaked anything.
pub async fn finish<const N: usize>(nodes: [Node; N]) {
    for node in nodes {
        let report = bounded(node.shutdown()).await;
        assert!(report.leaked.is_empty(), "{}: {:?}", node.name(), report.leaked);
    }
}

/// What the current thread logs, from warnings upwards, while this lives.
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Log {
    pub fn capture() -> Log {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Lines(lines.clone()));
        Log { lines, _guard: guard }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines that contain `text`.
    pub fn matching(&self, text: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.contains(text)).collect()
    }
}

struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{value:?} ");
    }
}
