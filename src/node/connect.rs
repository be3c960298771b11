//! How connections come about: dialling, accepting, the handshake, and what to make of a loss.
//!
//! Nothing of ours is read from a stream before its Hello has been checked.

use super::Node;
use super::connection::{Connection, Ended};
use super::events::NodeEvent;
use super::keeper::Command;
use super::peer::{Link, Peer};
use super::session::Side;
use super::state::{Phase, State};
use crate::error::{Error, Result};
use crate::transport::{Listener, Portable, Stream};
use bytes::{Buf, BytesMut};
use rref_core::NodeUid;
use rref_core::lease::Reader;
use rref_core::session::{Credit, LaneError, Position};
use rref_core::wire::{Channel, Endpoint, Hello, HelloAck, PROTOCOL_VERSION, PeerInfo, RejectReason};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// A handshake that takes longer has failed.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A dial that takes longer has failed.
const DIAL: Duration = Duration::from_secs(5);
/// Connections that may be in their handshake at a time.
const HALF_OPEN: usize = 256;
/// First and longest pause between two dials.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Why a dial came to nothing.
enum Miss {
    /// Nobody listens there.
    Refused(String),
    /// Another process answers there.
    OtherNode(String),
    Rejected {
        reason: RejectReason,
        text: String,
        uid: NodeUid,
    },
    Failed(String),
    /// There is a connection by now.
    Needless,
}

impl Miss {
    fn text(&self) -> String {
        match self {
            Miss::Refused(text) | Miss::OtherNode(text) | Miss::Failed(text) => text.clone(),
            Miss::Rejected { text, .. } => text.clone(),
            Miss::Needless => "connected otherwise".into(),
        }
    }
}

impl Node {
    /// Makes a connection to `uid`, from any thread.
    pub(crate) fn dial_soon(&self, uid: NodeUid) {
        let node = self.clone();
        self.inner().home.run(move || {
            actix_rt::spawn(async move { node.dial(uid).await });
        });
    }

    /// Dials until there is a connection, or the peer is known to be dead.
    async fn dial(&self, uid: NodeUid) {
        let begun = Instant::now();
        let suspect_after = self.inner().config.leases.suspect_after;
        let mut disputed = None;
        let mut pause = PAUSE.0;
        loop {
            let addresses = {
                let state = self.lock();
                match state.peers.get(&uid) {
                    Some(peer) if matches!(peer.link, Link::Dialing { .. } | Link::Unreachable(_)) => {
                        peer.info.addresses.clone()
                    }
                    _ => return,
                }
            };
            // The last attempt's Hello, if there was one, is no longer under way.
            if let Some(Peer { link: Link::Dialing { greeted }, .. }) = self.lock().peers.get_mut(&uid) {
                *greeted = false;
            }
            let mut refused = !addresses.is_empty();
            let mut reason = "it has no address to dial and did not return".to_string();
            for address in &addresses {
                match self.attempt(address, Some(uid)).await {
                    Ok(_) | Err(Miss::Needless) => return,
                    Err(Miss::Refused(text)) => reason = text,
                    Err(Miss::Rejected { reason: RejectReason::Simultaneous, text, .. }) => {
                        refused = false;
                        reason = text;
                    }
                    Err(Miss::Rejected { reason: RejectReason::NameTaken, text, uid: holder }) => {
                        // Between two halves of a cluster that have just met, a name is disputed at
                        // first: the greater uid gives way. One that was out of reach for long enough
                        // to be given up has lost it. But who has not seen that the holder is dead, and
                        // that this node has its name now, needs a moment to find out.
                        let since: &mut Instant = disputed.get_or_insert_with(Instant::now);
                        let found_out = holder == uid || since.elapsed() >= suspect_after;
                        let returning = begun.elapsed() >= suspect_after && self.lock().has_met(uid);
                        if found_out && (holder < self.uid() || returning) {
                            return self.lose_name(holder);
                        }
                        refused = false;
                        reason = text;
                    }
                    Err(miss @ (Miss::OtherNode(_) | Miss::Rejected { .. })) => {
                        return self.give_up(uid, miss.text());
                    }
                    Err(miss) => {
                        refused = false;
                        reason = miss.text();
                    }
                }
            }
            if refused {
                return self.give_up(uid, reason);
            }
            if begun.elapsed() >= suspect_after {
                self.suspect(uid, &reason);
            }
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// The peer is gone for good.
    fn give_up(&self, uid: NodeUid, reason: String) {
        let mut state = self.lock();
        if state.peers.get(&uid).is_some_and(|peer| !peer.is_connected()) {
            let name = state.name_of(uid);
            tracing::warn!(
                "`{name}` is gone: {reason}; calls to its objects fail from now on; create them anew elsewhere"
            );
            state.peer_died(uid, reason);
        }
        drop(state);
        self.inner().peers_changed.notify_waiters();
    }

    /// The peer has been out of reach for too long: its calls fail, but its return is welcome.
    fn suspect(&self, uid: NodeUid, reason: &str) {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&uid) else { return };
        if !matches!(peer.link, Link::Dialing { .. }) {
            return;
        }
        peer.link = Link::Unreachable(reason.to_string());
        let name = peer.info.name.clone();
        state.announce(NodeEvent::PeerSuspect { name: name.clone(), uid, reason: reason.to_string() });
        tracing::warn!("`{name}` cannot be reached: {reason}; its calls fail until it returns");
        state.suspend_calls(uid, reason);
        state.inherit_name(&name);
        drop(state);
        self.inner().peers_changed.notify_waiters();
    }

    /// Dials a member of the cluster by its address, with pauses, until `deadline` has passed.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NameTaken`], [`Error::Denied`].
    pub(crate) async fn join(&self, address: &str, deadline: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut pause = PAUSE.0;
        let mut known = None;
        loop {
            let miss = match self.attempt(address, known).await {
                Ok(_) | Err(Miss::Needless) => return Ok(()),
                Err(miss) => miss,
            };
            match &miss {
                // It knows this node already: say so, and where the session stands.
                Miss::Rejected { reason: RejectReason::UnknownSession, uid, .. } if known.is_none() => {
                    known = Some(*uid);
                    continue;
                }
                Miss::Rejected { reason: RejectReason::NameTaken, .. } => {
                    let (name, holder) = (self.name().to_string(), address.to_string());
                    return Err(Error::NameTaken { name, holder });
                }
                Miss::Rejected { reason: RejectReason::Simultaneous, .. } => {}
                Miss::Rejected { text, .. } => {
                    return Err(Error::Denied { node: address.to_string(), reason: text.clone() });
                }
                _ => {}
            }
            if begun.elapsed() + pause > deadline {
                let peer = address.to_string();
                let reason = format!("{} after {deadline:?}; is a node listening there?", miss.text());
                return Err(Error::Unreachable { peer, reason });
            }
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Dials once; on success the connection is served from then on.
    async fn attempt(&self, address: &str, expected: Option<NodeUid>) -> Result<NodeUid, Miss> {
        let dialled = timeout(DIAL, self.inner().transport.dial(address)).await;
        let mut stream = match dialled {
            Err(_) => return Err(Miss::Failed(format!("{address} does not answer"))),
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(Miss::Refused(format!("{address} refuses connections")));
            }
            Ok(Err(error)) => return Err(Miss::Failed(format!("{address}: {error}"))),
        };
        let hello = self.hello(expected)?;
        let exchange = async {
            stream.write_all(&hello).await?;
            stream.flush().await?;
            let mut input = BytesMut::new();
            let ack = read_handshake(&mut stream, &mut input, HelloAck::decode).await?;
            io::Result::Ok((ack, input))
        };
        let (ack, input) = match timeout(HANDSHAKE, exchange).await {
            Err(_) => return Err(Miss::Failed(format!("{address} does not finish the handshake"))),
            Ok(Err(error)) => return Err(Miss::Failed(format!("{address}: {error}"))),
            Ok(Ok(done)) => done,
        };
        match ack {
            HelloAck::Rejected { reason, text, uid, .. } => Err(Miss::Rejected { reason, text, uid }),
            HelloAck::Accepted { endpoint, .. } => {
                let uid = endpoint.uid;
                if expected.is_some_and(|expected| expected != uid) {
                    let text = format!("another process, `{}`, answers at {address}", endpoint.name);
                    return Err(Miss::OtherNode(text));
                }
                let mut state = self.lock();
                let attached = state.attach(endpoint, Side::Dialler);
                let (number, _) = attached.map_err(|(_, text)| Miss::Failed(text))?;
                drop(state);
                self.carry(Connection::new(self.clone(), uid, number, stream, input), uid, number);
                Ok(uid)
            }
        }
    }

    /// Our Hello, unless there is a connection by now.
    fn hello(&self, expected: Option<NodeUid>) -> Result<Vec<u8>, Miss> {
        let mut state = self.lock();
        if state.phase == Phase::Closed {
            return Err(Miss::Needless);
        }
        if let Some(peer) = expected.and_then(|uid| state.peers.get_mut(&uid)) {
            match &mut peer.link {
                Link::Connected(_) | Link::Dead(_) => return Err(Miss::Needless),
                Link::Dialing { greeted } => *greeted = true,
                _ => {}
            }
        }
        let position = match expected.and_then(|uid| state.peers.get_mut(&uid)) {
            Some(peer) => peer.lane.hello(),
            None => Position::UNKNOWN,
        };
        let endpoint = self.endpoint(&state, expected, position);
        drop(state);
        let (token, version) = (self.inner().config.token, PROTOCOL_VERSION);
        let hello =
            Hello { channel: Channel::Data, version_min: version, version_max: version, token, endpoint };
        hello.encode().map_err(|error| Miss::Failed(error.to_string()))
    }

    /// What this node says of itself, and of its session with `peer`, in which it is at `position`.
    pub(super) fn endpoint(&self, state: &State, peer: Option<NodeUid>, position: Position) -> Endpoint {
        let known = peer.and_then(|uid| state.peers.get(&uid));
        let config = &self.inner().config;
        let credit = known.map_or(state.credit, |peer| peer.grant.granted());
        Endpoint {
            uid: self.uid(),
            name: self.name().to_string(),
            addresses: self.addresses(),
            features: 0,
            session_no: position.session_no,
            recv_next: position.recv_next,
            ttl_ms: config.leases.ttl.as_millis().try_into().unwrap_or(u32::MAX),
            calls: credit.calls,
            call_bytes: credit.bytes,
            window: state.lane_limits.receive_window as u64,
        }
    }

    /// Accepts connections for as long as the node lives.
    pub(crate) async fn accept(self, mut listener: Box<dyn Listener>) {
        let half_open = Arc::new(Semaphore::new(HALF_OPEN));
        let mut closed = self.inner().closed.subscribe();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: more attempts at once would not help.
                    tracing::warn!(
                        "cannot accept a connection: {error}; allow more open files if this goes on"
                    );
                    sleep(PAUSE.0).await;
                    continue;
                }
            };
            let Ok(permit) = half_open.clone().try_acquire_owned() else {
                tracing::debug!("{from} is turned away: {HALF_OPEN} handshakes are under way");
                continue;
            };
            let node = self.clone();
            actix_rt::spawn(async move {
                match timeout(HANDSHAKE, node.welcome(stream, &from)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(
                        "a connection from {from} came to nothing: {error}; it is no rref node, or its network fails"
                    ),
                    Err(_) => tracing::warn!(
                        "{from} did not finish its handshake in {HANDSHAKE:?}; it is no rref node, or its thread is blocked"
                    ),
                }
                drop(permit);
            });
        }
    }

    /// The acceptor's side of the handshake.
    async fn welcome(&self, mut stream: Box<dyn Stream>, from: &str) -> io::Result<()> {
        let mut input = BytesMut::new();
        let hello = read_handshake(&mut stream, &mut input, Hello::decode).await?;
        let uid = hello.endpoint.uid;
        let name = hello.endpoint.name.clone();
        let channel = hello.channel;
        let answer = self.admit(hello);
        let (ack, number) = match answer {
            Ok((number, endpoint)) => {
                (HelloAck::Accepted { version: PROTOCOL_VERSION, endpoint }, Some(number))
            }
            Err((reason, text)) => {
                if !matches!(reason, RejectReason::Simultaneous | RejectReason::WrongChannel) {
                    tracing::warn!("`{name}` at {from} is turned away: {text}");
                }
                let (version_min, version_max) = (PROTOCOL_VERSION, PROTOCOL_VERSION);
                let known = self.lock().by_name.get(&name).copied();
                // Who has the name is told to whoever wants it.
                let uid = match (reason, known) {
                    (RejectReason::NameTaken, Some(holder)) if name != self.name() => holder,
                    _ => self.uid(),
                };
                (HelloAck::Rejected { reason, text, uid, version_min, version_max }, None)
            }
        };
        let ack = ack.encode().map_err(io::Error::other)?;
        let Some(number) = number else {
            stream.write_all(&ack).await?;
            return stream.flush().await;
        };
        if channel == Channel::Keeper {
            stream.write_all(&ack).await?;
            stream.flush().await?;
            let stream = Portable::take(stream)?;
            self.lock().keeper.tell(Command::Adopt { peer: uid, stream, input });
            return Ok(());
        }
        let mut connection = Connection::new(self.clone(), uid, number, stream, input);
        connection.send_first(ack);
        self.carry(connection, uid, number);
        Ok(())
    }

    /// Lets a peer in and gives its connection a number, or says why not.
    fn admit(&self, hello: Hello) -> Result<(u64, Endpoint), (RejectReason, String)> {
        if hello.version_min > PROTOCOL_VERSION || hello.version_max < PROTOCOL_VERSION {
            let text = format!(
                "it speaks protocol versions {} to {}, this node {PROTOCOL_VERSION}",
                hello.version_min, hello.version_max
            );
            return Err((RejectReason::Version, text));
        }
        if hello.token != self.inner().config.token {
            return Err((RejectReason::Token, "its launch token is not this cluster's".into()));
        }
        let uid = hello.endpoint.uid;
        if uid == self.uid() {
            return Err((RejectReason::Denied, "a node cannot join itself".into()));
        }
        let mut state = self.lock();
        if hello.channel == Channel::Keeper {
            return match state.peers.get(&uid) {
                Some(peer) if peer.connections > 0 && peer.takes_messages() => {
                    Ok((0, self.endpoint(&state, None, Position::UNKNOWN)))
                }
                _ => Err((RejectReason::WrongChannel, "heartbeats of a node that is not connected".into())),
            };
        }
        if state.phase != Phase::Running {
            return Err((RejectReason::ShuttingDown, format!("`{}` is shutting down", self.name())));
        }
        if let Some(peer) = state.peers.get(&uid) {
            match &peer.link {
                Link::Dead(reason) => {
                    return Err((RejectReason::Denied, format!("it was given up before: {reason}")));
                }
                Link::Dialing { greeted: true } if self.uid() < uid => {
                    return Err((RejectReason::Simultaneous, "this node's own dial goes first".into()));
                }
                _ => {}
            }
        }
        let (number, position) = state.attach(hello.endpoint, Side::Acceptor)?;
        let endpoint = self.endpoint(&state, Some(uid), position);
        Ok((number, endpoint))
    }

    /// Serves a connection until it ends.
    fn carry(&self, connection: Connection, uid: NodeUid, number: u64) {
        // Its keeper is to be met at once, not only with the next tick.
        self.advance_leases(&mut self.lock());
        self.inner().peers_changed.notify_waiters();
        let node = self.clone();
        actix_rt::spawn(async move {
            let ended = connection.await;
            node.connection_ended(uid, number, ended);
        });
    }

    fn connection_ended(&self, uid: NodeUid, number: u64, ended: Ended) {
        let mut state = self.lock();
        let closed = state.phase != Phase::Running;
        let now = state.now();
        let Some(peer) = state.peers.get_mut(&uid) else { return };
        if peer.link != Link::Connected(number) {
            return;
        }
        peer.lane.disconnected();
        peer.waker = None;
        peer.down_since = Some(now);
        state.leases.reader_closed(Reader::Lane(uid));
        state.was_drained(uid);
        // What it owned can be excepted from what is settled.
        state.arm_later();
        let Some(peer) = state.peers.get_mut(&uid) else { return };
        match ended {
            Ended::Broken(reason) => state.fail_session(uid, reason),
            Ended::Lost(_) | Ended::Replaced if closed => peer.link = Link::Idle,
            Ended::Lost(reason) => {
                let name = peer.info.name.clone();
                tracing::debug!("the connection to `{name}` is lost: {reason}; dialling again");
                peer.lose_connection();
                state.to_dial.push(uid);
            }
            Ended::Replaced => {}
        }
        drop(state);
        self.inner().peers_changed.notify_waiters();
    }
}

impl State {
    /// Makes a new connection the one that carries the session with a peer, and numbers it. Gives also
    /// where the session stands now.
    fn attach(&mut self, endpoint: Endpoint, side: Side) -> Result<(u64, Position), (RejectReason, String)> {
        let uid = endpoint.uid;
        self.claim_name(&endpoint)?;
        let info = PeerInfo { uid, name: endpoint.name, addresses: endpoint.addresses };
        let known = self.peers.contains_key(&uid);
        let (credit, rules, limits) = (self.credit, self.rules, self.lane_limits);
        let peer = self.peers.entry(uid).or_insert_with(|| Peer::new(info.clone(), credit, rules, limits));
        // One that does not know the session, while this node has it and a connection that works, has
        // not heard of that connection yet.
        let unheard = endpoint.session_no == 0 && peer.is_connected() && peer.lane.recv_next() > 1;
        let theirs = Position { session_no: endpoint.session_no, recv_next: endpoint.recv_next };
        let met = match unheard {
            true => Err((RejectReason::UnknownSession, "this node is connected already".to_string())),
            false => self.meet(uid, side, theirs).map_err(|error| match error {
                // Overtaken by another connection: whoever still has none dials again.
                LaneError::ResumeGap { .. } | LaneError::Overtaken { .. } => {
                    (RejectReason::Simultaneous, error.to_string())
                }
                _ => (RejectReason::UnknownSession, error.to_string()),
            }),
        };
        let position = match met {
            Ok(position) => position,
            Err(why) => {
                // Whoever is turned away leaves nothing behind, and changes nothing.
                if !known {
                    self.peers.remove(&uid);
                }
                return Err(why);
            }
        };
        let now = self.now();
        self.leases.mention(now, uid);
        self.leases.connected(now, uid);
        let _ = self.trust_again(uid);
        let Some(peer) = self.peers.get_mut(&uid) else {
            return Err((RejectReason::UnknownSession, "it is forgotten".into()));
        };
        peer.info = info;
        peer.connections += 1;
        let before = std::mem::replace(&mut peer.link, Link::Connected(peer.connections));
        let window = usize::try_from(endpoint.window).unwrap_or(usize::MAX);
        // The rest of what is kept for it is for what cannot wait.
        peer.lane.set_send_window(window.min(limits.resend_limit / 2));
        peer.outbound.credit(Credit { calls: endpoint.calls, bytes: endpoint.call_bytes });
        // The last word on it may have been lost with the old connection.
        peer.owes_exceptions = peer.settled_except.is_some();
        let (number, wakers) = (peer.connections, peer.take_wakers());
        let name = peer.info.name.clone();
        self.by_name.insert(name.clone(), uid);
        if number == 1 {
            self.cut_off_predecessor(&name, uid);
        }
        wakers.into_iter().flatten().for_each(|waker| waker.wake());
        match before {
            Link::Unreachable(_) => {
                self.announce(NodeEvent::PeerBack { name, uid });
                self.spread(uid);
            }
            _ if number == 1 => {
                self.announce(NodeEvent::PeerUp { name, uid });
                self.spread(uid);
            }
            _ => {}
        }
        Ok((number, position))
    }

    /// Checks that the name is free, or its holder lost.
    fn claim_name(&self, endpoint: &Endpoint) -> Result<(), (RejectReason, String)> {
        let name = &endpoint.name;
        let taken = if *name == self.name {
            true
        } else {
            let holder = self.by_name.get(name).filter(|uid| **uid != endpoint.uid);
            // One that is known by hearsay only has shown no sign of life, and one that is silent none of
            // late.
            let lives = |peer: &Peer| peer.is_reachable() || matches!(peer.link, Link::Dialing { .. });
            holder.and_then(|uid| self.peers.get(uid)).is_some_and(lives)
        };
        if taken {
            return Err((RejectReason::NameTaken, format!("the name `{name}` is taken")));
        }
        Ok(())
    }
}

/// Reads one handshake message, and nothing before it is complete.
pub(super) async fn read_handshake<T, E: std::error::Error + Send + Sync + 'static>(
    stream: &mut Box<dyn Stream>,
    input: &mut BytesMut,
    decode: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
) -> io::Result<T> {
    loop {
        if let Some((message, length)) = decode(input).map_err(io::Error::other)? {
            input.advance(length);
            return Ok(message);
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
