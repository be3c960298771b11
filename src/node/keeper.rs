//! The keeper: sends heartbeats to all peers and answers theirs, on connections of its own, whatever
//! the rest of the node is doing.
//!
//! It runs on a thread that never runs user code; with a simulated transport on the home arbiter, where
//! all nodes share one clock. Knows what was last published for each peer and where the peer can be
//! dialled; must not know the node's state: it only moves frames to and from the home arbiter.

use super::Node;
use crate::transport::{Portable, Stream};
use bytes::{Buf, BytesMut};
use rref_core::NodeUid;
use rref_core::lease::{Keeper, Reader};
use rref_core::wire::{Frame, Heartbeat, Hello, HelloAck, Limits, decode, encode, frame_len};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A dial with its handshake that takes longer has failed.
const DIAL: Duration = Duration::from_secs(5);
/// A frame on these connections is never longer.
const FRAME_LIMIT: usize = 1024;
/// Heartbeats that may wait for a peer that does not read; more are of no use to it.
const BACKLOG: usize = 4;
/// What connections have to say that is not taken in yet; they wait then.
const NEWS: usize = 256;
/// A peer's heartbeats that the home arbiter has not taken in; more say nothing new.
const UNREAD: usize = 16;
/// Beats without a word after which whoever should be dialled dials itself.
const PATIENCE: u32 = 2;

/// What the home arbiter asks of the keeper.
pub(crate) enum Command {
    /// What heartbeats to a peer say from now on.
    Publish { peer: NodeUid, beat: Heartbeat, addresses: Vec<String>, dials: bool },
    /// No more heartbeats to it.
    Forget(NodeUid),
    /// A peer has dialled; these bytes came behind its Hello.
    Adopt { peer: NodeUid, stream: Portable, input: BytesMut },
    /// Look at all connections, and say so.
    Look,
}

/// The way to the keeper. The default one leads nowhere.
#[derive(Default)]
pub(crate) struct KeeperHandle(Option<mpsc::UnboundedSender<Command>>);

impl KeeperHandle {
    /// Does nothing when the keeper is no more.
    pub(crate) fn tell(&self, command: Command) {
        if let Some(commands) = &self.0 {
            let _ = commands.send(command);
        }
    }
}

/// Starts the keeper of a node.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn start(node: &Node, period: Duration) -> io::Result<KeeperHandle> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let node = node.clone();
    if node.inner().transport.is_simulated() || !node.inner().config.surroundings.has_threads() {
        actix_rt::spawn(run(node, period, inbox));
    } else {
        let name = format!("rref-keeper-{}", node.name());
        std::thread::Builder::new().name(name).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => {
                    tokio::task::LocalSet::new().block_on(&runtime, run(node, period, inbox));
                }
                Err(error) => tracing::error!("no heartbeats can be sent: {error}; the node's leases end"),
            }
        })?;
    }
    Ok(KeeperHandle(Some(commands)))
}

/// What a connection has to say.
enum News {
    Frame(NodeUid, Frame),
    /// The connection with this number has ended.
    Closed(NodeUid, u64),
    Dialled(NodeUid, Box<dyn Stream>, BytesMut),
    /// Nobody answers there for now.
    Missed(NodeUid),
}

/// The way to one peer.
#[derive(Default)]
struct Route {
    addresses: Vec<String>,
    /// Whether this node is the one that dials.
    dials: bool,
    dialling: bool,
    /// Beats since something came from it.
    missed: u32,
    /// Its heartbeats that the home arbiter has not taken in.
    unread: Arc<AtomicUsize>,
    /// The connection in use: its number, and where frames to it go.
    connection: Option<(u64, mpsc::Sender<Vec<u8>>)>,
}

struct Running {
    node: Node,
    keeper: Keeper,
    routes: BTreeMap<NodeUid, Route>,
    connections: u64,
    news: mpsc::Sender<News>,
    /// Beats without a word after which a connection is dialled anew: a whole lease. The old one stays until the
    /// new one stands, since what comes by it still counts.
    silent: u32,
}

async fn run(node: Node, period: Duration, mut commands: mpsc::UnboundedReceiver<Command>) {
    let (news, mut happened) = mpsc::channel(NEWS);
    let keeper = Keeper::new(node.uid(), node.inner().config.rules, period);
    let mut closed = node.inner().closed.subscribe();
    let beats = node.inner().config.leases.ttl.as_nanos().checked_div(period.as_nanos()).unwrap_or(0);
    let silent = u32::try_from(beats).unwrap_or(u32::MAX);
    let mut running = Running { node, keeper, routes: BTreeMap::new(), connections: 0, news, silent };
    let clock = running.node.inner().clock.clone();
    loop {
        let due = running.keeper.next_due();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            Some(news) = happened.recv() => running.happened(news),
            command = commands.recv() => match command {
                Some(command) => running.obey(command, &mut happened).await,
                None => return,
            },
            () = clock.sleep_until(due.unwrap_or(Duration::MAX)), if due.is_some() => running.beat(),
        }
    }
}

impl Running {
    fn now(&self) -> Duration {
        self.node.now()
    }

    async fn obey(&mut self, command: Command, happened: &mut mpsc::Receiver<News>) {
        match command {
            Command::Publish { peer, beat, addresses, dials } => {
                let route = self.routes.entry(peer).or_default();
                (route.addresses, route.dials) = (addresses, dials);
                self.keeper.publish(self.now(), peer, beat);
            }
            Command::Forget(peer) => {
                self.keeper.forget(peer);
                self.routes.remove(&peer);
            }
            Command::Adopt { peer, stream, input } => match stream.settle() {
                Ok(stream) => self.connected(peer, stream, input),
                Err(error) => tracing::debug!("a connection for heartbeats is lost: {error}"),
            },
            Command::Look => self.look(happened).await,
        }
    }

    /// Takes in what has arrived by now, and says so.
    async fn look(&mut self, happened: &mut mpsc::Receiver<News>) {
        // Each turn, the runtime looks at the sockets and the connections' tasks run.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        while let Ok(news) = happened.try_recv() {
            self.happened(news);
        }
        let node = self.node.clone();
        self.node.inner().home.run(move || node.reader_drained(Reader::Keeper));
    }

    /// Sends the heartbeats that are due.
    fn beat(&mut self) {
        for (peer, beat) in self.keeper.beats(self.now()) {
            self.send(peer, &Frame::Heartbeat(beat));
            let Some(route) = self.routes.get_mut(&peer) else { continue };
            route.missed = route.missed.saturating_add(1);
            if route.connection.is_none() || route.missed > self.silent {
                self.dial(peer);
            }
        }
    }

    fn send(&mut self, peer: NodeUid, frame: &Frame) {
        let Some(route) = self.routes.get(&peer) else { return };
        let Some((_, frames)) = &route.connection else { return };
        let encoded = match encode(0, 0, 0, frame, &Limits::DEFAULT) {
            Ok(encoded) => encoded,
            Err(error) => return tracing::error!("cannot encode a heartbeat: {error}"),
        };
        let bytes: Vec<u8> = encoded.parts().flat_map(|part| part.to_vec()).collect();
        // One that finds no room is lost: the peer has not read those before it.
        let _ = frames.try_send(bytes);
    }

    /// Dials the peer, if it is this node's turn.
    fn dial(&mut self, peer: NodeUid) {
        let Some(route) = self.routes.get_mut(&peer) else { return };
        let due = route.dials || route.missed > PATIENCE;
        if route.dialling || !due || route.addresses.is_empty() {
            return;
        }
        route.dialling = true;
        let (node, news, addresses) = (self.node.clone(), self.news.clone(), route.addresses.clone());
        actix_rt::spawn(async move {
            for address in &addresses {
                if let Ok(Ok((stream, input))) = timeout(DIAL, greet(&node, address, peer)).await {
                    let _ = news.send(News::Dialled(peer, stream, input)).await;
                    return;
                }
            }
            let _ = news.send(News::Missed(peer)).await;
        });
    }

    fn happened(&mut self, news: News) {
        if let News::Frame(peer, _) = &news
            && let Some(route) = self.routes.get_mut(peer)
        {
            route.missed = 0;
        }
        match news {
            News::Frame(peer, Frame::Heartbeat(beat)) => {
                if let Some(echo) = self.keeper.on_heartbeat(peer, &beat) {
                    self.send(peer, &Frame::HeartbeatEcho(echo));
                }
                let Some(route) = self.routes.get(&peer) else { return };
                let unread = route.unread.clone();
                if unread.fetch_add(1, Ordering::AcqRel) >= UNREAD {
                    unread.fetch_sub(1, Ordering::AcqRel);
                    return;
                }
                let node = self.node.clone();
                self.node.inner().home.run(move || {
                    unread.fetch_sub(1, Ordering::AcqRel);
                    node.heartbeat_arrived(peer, &beat);
                });
            }
            News::Frame(peer, Frame::HeartbeatEcho(echo)) => {
                if let Some(sent) = self.keeper.on_echo(peer, &echo) {
                    let node = self.node.clone();
                    self.node.inner().home.run(move || node.echo_arrived(peer, sent));
                }
            }
            News::Frame(..) => {}
            News::Closed(peer, number) => {
                if let Some(route) = self.routes.get_mut(&peer)
                    && route.connection.as_ref().is_some_and(|(current, _)| *current == number)
                {
                    route.connection = None;
                }
            }
            News::Dialled(peer, stream, input) => {
                if let Some(route) = self.routes.get_mut(&peer) {
                    route.dialling = false;
                    self.connected(peer, stream, input);
                }
            }
            News::Missed(peer) => {
                if let Some(route) = self.routes.get_mut(&peer) {
                    route.dialling = false;
                }
            }
        }
    }

    /// A connection stands. It replaces the one before, which the peer may not have.
    fn connected(&mut self, peer: NodeUid, stream: Box<dyn Stream>, input: BytesMut) {
        self.connections += 1;
        let number = self.connections;
        let (frames, outgoing) = mpsc::channel(BACKLOG);
        let route = self.routes.entry(peer).or_default();
        (route.connection, route.missed) = (Some((number, frames)), 0);
        let (reader, writer) = split(stream);
        actix_rt::spawn(write(writer, outgoing));
        let news = self.news.clone();
        actix_rt::spawn(async move {
            if let Err(error) = read(reader, input, peer, &news).await {
                tracing::debug!("a connection for heartbeats has ended: {error}");
            }
            let _ = news.send(News::Closed(peer, number)).await;
        });
        self.keeper.beat_now(self.now(), peer);
    }
}

/// Dials a peer and says what the connection is for.
async fn greet(node: &Node, address: &str, peer: NodeUid) -> io::Result<(Box<dyn Stream>, BytesMut)> {
    let mut stream = node.inner().transport.dial(address).await?;
    let hello: Hello = node.keeper_hello();
    stream.write_all(&hello.encode().map_err(io::Error::other)?).await?;
    stream.flush().await?;
    let mut input = BytesMut::new();
    match super::connect::read_handshake(&mut stream, &mut input, HelloAck::decode).await? {
        HelloAck::Accepted { endpoint, .. } if endpoint.uid == peer => Ok((stream, input)),
        HelloAck::Accepted { .. } => Err(io::Error::other("another node answers there")),
        HelloAck::Rejected { text, .. } => Err(io::Error::other(text)),
    }
}

async fn write(mut stream: WriteHalf<Box<dyn Stream>>, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if stream.write_all(&frame).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
    // Replaced: the peer shall read no more of it.
    let _ = stream.shutdown().await;
}

async fn read(
    mut stream: ReadHalf<Box<dyn Stream>>,
    mut input: BytesMut,
    peer: NodeUid,
    news: &mpsc::Sender<News>,
) -> io::Result<()> {
    loop {
        while let Some(length) = frame_len(&input, &Limits::DEFAULT).map_err(io::Error::other)? {
            if length > FRAME_LIMIT {
                return Err(io::Error::other("a frame that is no heartbeat"));
            }
            if input.len() < length {
                break;
            }
            let bytes = bytes::Bytes::copy_from_slice(&input[..length]);
            input.advance(length);
            let frame = decode(bytes, &Limits::DEFAULT).map_err(io::Error::other)?.frame;
            if !matches!(frame, Frame::Heartbeat(_) | Frame::HeartbeatEcho(_)) {
                return Err(io::Error::other("a frame that is no heartbeat"));
            }
            if news.send(News::Frame(peer, frame)).await.is_err() {
                return Ok(());
            }
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
