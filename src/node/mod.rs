//! One member of a cluster: what it is asked to do, and how it hangs together.
//!
//! A node has a *home arbiter*: the thread on which it was started. All its connections are read
//! there and its objects live there, so that a light call costs no hop between threads. Its state is
//! behind one lock that is held briefly ([`state`](self)); handles and requests may be used from any
//! thread.

mod builder;
pub(crate) mod builtin;
mod calls;
mod connect;
mod connection;
pub(crate) mod construction;
pub(crate) mod current;
mod events;
mod home;
mod incoming;
mod keeper;
mod leases;
mod members;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod objects;
mod outcomes;
mod outgoing;
mod peer;
mod report;
pub(crate) mod responder;
mod session;
mod settled;
mod shutdown;
mod state;
mod streams;
mod surroundings;
mod suspicion;
pub(crate) mod trace;

pub use builder::Builder;
pub(crate) use calls::Progress;
pub use events::{Event, NodeEvent, NodeEvents, Watch};
#[cfg(feature = "metrics")]
pub use metrics::describe_metrics;
pub(crate) use names::NameRef;
pub(crate) use objects::{Entry, Waiter};
pub(crate) use outgoing::{Ask, Message, MessageSource, MessageTarget};
pub use report::{HeldReport, NodeReport, ObjectReport, PeerReport};
pub use shutdown::{Leak, ShutdownReport};
#[cfg(feature = "launch")]
pub(crate) use surroundings::random_bytes;
pub(crate) use surroundings::{NodeClock, Surroundings};

use crate::cluster::{Peer, Rank};
use crate::error::{Error, Result};
use crate::object::occupant::Occupant;
use crate::object::{Hosted, Outcome, Response};
use crate::payload::Outgoing;
use crate::reference::handle::{Handle, Origins};
use crate::reference::{RRef, Request};
use crate::registry::{Function, Placement, Registry, function};
use builder::Config;
use calls::PendingCall;
use construction::Construction;
use home::Home;
use names::Names;
use outcomes::Outcomes;
use rref_core::lifetime::{HandleKey, Lifetime};
use rref_core::wire::NameKind;
use rref_core::{NodeUid, ObjectId, Rules};
use state::{Lanes, Locked, Phase, State};
use std::any::type_name;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use trace::Traced;
use tracing::Span;

/// One member of a cluster. Clones are the same node.
///
/// Made by [`Node::builder`]. `Send` and `Sync`: it may be used from any thread, inside and outside
/// of async code.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

/// What all clones of a node share.
pub(crate) struct Inner {
    name: String,
    uid: NodeUid,
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) names: Names,
    pub(crate) home: Arc<Home>,
    pub(crate) transport: Arc<dyn crate::transport::Transport>,
    /// Where it listens, once it does.
    pub(crate) listening: OnceLock<String>,
    state: Mutex<State>,
    /// Whether connections are to say that they have nothing unread.
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) clock: NodeClock,
    /// Told when a peer has settled more, if anybody waits for that.
    pub(crate) settled: Notify,
    /// How many wait for it.
    pub(crate) confirming: AtomicUsize,
    /// Told when a peer joins or is lost.
    pub(crate) peers_changed: Notify,
    /// False once it takes no new calls of its own; read without the lock by calls on its own objects.
    open: AtomicBool,
    /// Told when a name is given to a reference.
    pub(crate) names_changed: Notify,
    /// What handles have in common.
    pub(crate) origins: Origins,
    /// How calls of this node have ended.
    pub(crate) outcomes: Outcomes,
    /// How calls of other nodes have ended here.
    pub(crate) handled: Outcomes,
    /// The task that accepts connections.
    pub(crate) accepting: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// True once the node is closed.
    pub(crate) closed: watch::Sender<bool>,
}

impl Node {
    /// Begins a node with a name that must be unique in its cluster.
    ///
    /// ```
    /// use rref::prelude::*;
    ///
    /// fn twice(x: i64) -> i64 { 2 * x }
    ///
    /// # actix::System::new().block_on(async {
    /// let node = Node::builder("me").function(twice).start().await?;
    /// assert_eq!(node.call("me", twice, (21,)).await?, 42);
    /// node.shutdown().await;
    /// # Ok::<_, Error>(())
    /// # }).unwrap();
    /// ```
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    /// The node whose function or handler runs on this thread now; none outside of one.
    ///
    /// A remote function uses it to make calls and objects of its own.
    pub fn current() -> Option<Node> {
        current::current()
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its identity: another one at each start.
    pub fn uid(&self) -> NodeUid {
        self.0.uid
    }

    /// Where it listens, with the port it was given; none if it does not listen.
    pub fn local_addr(&self) -> Option<String> {
        self.0.listening.get().cloned()
    }

    /// What others are told to dial.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match &self.0.config.advertise {
            Some(address) => vec![address.clone()],
            None => self.local_addr().into_iter().collect(),
        }
    }

    /// The number of this process in a launched cluster: see [`launch`](crate::launch). `None` in a
    /// node that was not told any.
    pub fn rank(&self) -> Option<Rank> {
        self.0.config.rank.map(|(rank, _)| Rank(rank))
    }

    /// How many processes the launched cluster has, this one included. `None` in a node that was not
    /// told.
    pub fn world_size(&self) -> Option<u32> {
        self.0.config.rank.map(|(_, world_size)| world_size)
    }

    /// Runs `function(args)` on `peer` and keeps the result there.
    ///
    /// Returns at once: the reference can be used and passed on before the owner has heard of it, and
    /// calls on it arrive behind the creation. What goes wrong there is reported by those calls;
    /// [`RRef::ready`] waits for it.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`], [`Error::OwnerDied`], [`Error::Unreachable`], [`Error::Encode`],
    /// [`Error::TooLarge`], [`Error::ShuttingDown`]; on this very node also
    /// [`Error::NotRegistered`]. Nothing was sent then.
    pub fn remote<F, Args, K>(
        &self,
        peer: impl Into<Peer>,
        function: F,
        args: Args,
    ) -> Result<RRef<<F::Return as Outcome<F::Kind>>::Object>>
    where
        F: Function<Args, K>,
        F::Return: Outcome<F::Kind>,
        Args: Send + 'static,
    {
        const { function::assert_item::<F>() };
        let peer = peer.into().into_name();
        if peer == self.0.name {
            self.check_open()?;
            let placement = self.registered_function::<F>()?;
            let (handle, construction) = self.begin_local()?;
            let construction = construction.placed(placement);
            let (node, traced) = (self.clone(), Traced::current());
            self.0.home.run(move || {
                let _traced = traced.enter();
                function::run(&node, placement, function, args, move |returned| {
                    construction.settle(returned)
                });
            });
            return Ok(RRef::new(handle));
        }
        self.check_open()?;
        let owner = self.lock().find(&peer)?;
        let name = self.function_name::<F, Args, K>()?;
        let payload = F::encode(self, &args)?.0;
        let handle = self.create(owner, MessageSource::Function(name), payload)?;
        Ok(RRef::new(handle))
    }

    /// Runs `function(args)` on `peer` and brings the result here.
    ///
    /// The call is under way when this returns, whether or not the request is polled. Calls to this
    /// very node are not encoded; the value is moved.
    ///
    /// # Errors
    /// Those of [`Node::remote`], and [`Error::Timeout`], [`Error::Remote`] when the function
    /// panics, [`Error::NotRegistered`], [`Error::SchemaMismatch`], [`Error::NotSent`],
    /// [`Error::OutcomeUnknown`].
    pub fn call<F, Args, K>(&self, peer: impl Into<Peer>, function: F, args: Args) -> Request<F::Return>
    where
        F: Function<Args, K>,
        F::Return: Response,
        Args: Send + 'static,
    {
        const { function::assert_item::<F>() };
        let peer = peer.into().into_name();
        if peer == self.0.name {
            let placement = match self.check_open().and_then(|()| self.registered_function::<F>()) {
                Ok(placement) => placement,
                Err(error) => return Request::failed(self, error),
            };
            let (reply, result) = oneshot::channel();
            let (node, traced) = (self.clone(), Traced::current());
            self.0.home.run(move || {
                if !reply.is_closed() {
                    let _traced = traced.enter();
                    function::run(&node, placement, function, args, move |returned| {
                        drop(reply.send(returned))
                    });
                }
            });
            return Request::local(self, result);
        }
        let owner = self.lock().find(&peer);
        match owner {
            Ok(owner) => self.call_uid(owner, function, &args),
            Err(error) => Request::failed(self, error),
        }
    }

    /// Calls a function on the node with this identity, which is another one.
    pub(crate) fn call_uid<F, Args, K>(&self, owner: NodeUid, _: F, args: &Args) -> Request<F::Return>
    where
        F: Function<Args, K>,
        F::Return: Response,
    {
        let started = (|| {
            self.check_open()?;
            let name = self.function_name::<F, Args, K>()?;
            let payload = F::encode(self, args)?.0;
            self.start_call(owner, MessageTarget::Function(name), payload, F::Return::STREAMS)
        })();
        Request::started(self, started)
    }

    /// Hosts a value or an actor that was made here, and gives a reference to it.
    ///
    /// It lives as long as somebody, here or elsewhere, holds one. An actor gets the same protection
    /// as one made by a remote function: a panic in its handlers kills it alone.
    ///
    /// # Errors
    /// [`Error::ShuttingDown`].
    pub fn host<T: Hosted>(&self, object: T) -> Result<RRef<T>> {
        let (handle, construction) = self.begin_local()?;
        self.0.home.run(move || construction.seat(object));
        Ok(RRef::new(handle))
    }

    /// Waits until a node of that name is connected.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`.
    pub async fn wait_for(&self, peer: impl Into<Peer>, limit: Duration) -> Result<()> {
        let peer = peer.into().into_name();
        self.wait_until(limit, |state| {
            state
                .by_name
                .get(&peer)
                .and_then(|uid| state.peers.get(uid))
                .is_some_and(|peer| peer.is_reachable())
        })
        .await
    }

    /// Waits until `count` other nodes are connected.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`.
    pub async fn wait_for_peers(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait_until(limit, |state| {
            state.peers.values().filter(|peer| peer.is_reachable()).count() >= count
        })
        .await
    }

    /// Waits until no node of that name is there: it has left or is known to be dead.
    #[cfg(feature = "launch")]
    pub(crate) async fn wait_for_loss(&self, peer: &str, limit: Duration) -> Result<()> {
        let mut events = self.events();
        let lost = || {
            let state = self.lock();
            let peer = state.by_name.get(peer).and_then(|uid| state.peers.get(uid));
            peer.is_none_or(|peer| matches!(peer.link, peer::Link::Dead(_)))
        };
        let wait = async { while !lost() && events.next().await.is_some() {} };
        tokio::time::timeout(limit, wait).await.map_err(|_| Error::Timeout(limit))
    }

    async fn wait_until(&self, limit: Duration, reached: impl Fn(&State) -> bool) -> Result<()> {
        let wait = async {
            loop {
                let changed = self.0.peers_changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if reached(&self.lock()) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, wait).await.map_err(|_| Error::Timeout(limit))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) fn is(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::new(self.0.state.lock().unwrap_or_else(PoisonError::into_inner), self)
    }

    /// A node that is none: what references made outside of any message belong to.
    pub(crate) fn nowhere() -> Node {
        static NOWHERE: OnceLock<Node> = OnceLock::new();
        NOWHERE
            .get_or_init(|| {
                let (home, _) = Home::new();
                let home = Arc::new(home);
                let uid = NodeUid(0);
                let (lifetime, config) = (Lifetime::new(uid, Rules::ALL), Config::default());
                let clock = NodeClock::new(&config.surroundings);
                let mut state = State::new("nowhere".into(), lifetime, &config, clock.clone(), home.clone());
                state.phase = Phase::Closed;
                let draining = state.draining.clone();
                Node(Arc::new(Inner {
                    draining,
                    name: "nowhere".into(),
                    uid,
                    config,
                    registry: Registry::default(),
                    names: Names::default(),
                    home,
                    transport: Arc::new(crate::transport::Network::new()),
                    listening: OnceLock::new(),
                    state: Mutex::new(state),
                    clock,
                    open: AtomicBool::new(false),
                    settled: Notify::new(),
                    confirming: AtomicUsize::new(0),
                    peers_changed: Notify::new(),
                    names_changed: Notify::new(),
                    origins: Origins::default(),
                    outcomes: Outcomes::default(),
                    handled: Outcomes::default(),
                    accepting: Mutex::new(None),
                    closed: watch::Sender::new(true),
                }))
            })
            .clone()
    }

    /// The last share of a handle is gone.
    pub(crate) fn drop_handle(&self, key: HandleKey) {
        let mut state = self.lock();
        let state = &mut *state;
        state.lifetime.drop_handle(key, &mut Lanes { peers: &mut state.peers });
    }

    /// Where a function that is registered here runs.
    fn registered_function<F: 'static>(&self) -> Result<Placement> {
        let path = self.0.registry.path_of::<F>();
        if let Some(entry) = self.0.registry.functions.get(&path) {
            return Ok(entry.placement);
        }
        let item = path.rsplit("::").next().unwrap_or(&path);
        Err(Error::NotRegistered {
            call: format!(".function({item})"),
            what: path.into_owned(),
            node: self.0.name.clone(),
        })
    }

    fn function_name<F: Function<Args, K>, Args, K>(&self) -> Result<Arc<NameRef>> {
        let path = || self.0.registry.path_of::<F>();
        self.0.names.get::<F>(NameKind::Function, path, F::schema)
    }

    /// Whether calls of this node may still begin.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.0.open.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(Error::ShuttingDown { node: self.0.name.clone() }),
        }
    }

    /// No calls of this node begin from now on.
    pub(crate) fn stop_calls(&self) {
        self.0.open.store(false, Ordering::Release);
    }

    /// Numbers a new object of this node; something must become of the construction.
    pub(crate) fn begin_local(&self) -> Result<(Arc<Handle>, Construction)> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(Error::ShuttingDown { node: self.0.name.clone() });
        }
        let key = state.lifetime.create(self.0.uid);
        state.objects.insert(key.id, Entry::Pending(VecDeque::new()));
        Ok((Handle::counted(self, key), Construction::new(self, key.id, None)))
    }

    /// Asks `owner` for a new object.
    pub(crate) fn create(
        &self,
        owner: NodeUid,
        source: MessageSource,
        payload: Outgoing,
    ) -> Result<Arc<Handle>> {
        check_size(&payload)?;
        // The span is that of the sending only: nobody waits for the end of a creation.
        let (trace, _span) = trace::leaving(self, owner, source.function());
        let mut state = self.lock();
        state.check(owner)?;
        state.check_target(&payload)?;
        let key = state.lifetime.create(owner);
        let handle = Handle::counted(self, key);
        // The message keeps the handle until it is in its lane: its number must be sent.
        let mut payload = payload;
        payload.creates = Some(handle.clone());
        state.submit(owner, Message::new(Ask::Create { id: key.id, source }, payload).traced(trace));
        Ok(handle)
    }

    /// Starts a call; the reply comes through the receiver.
    pub(crate) fn start_call(
        &self,
        owner: NodeUid,
        target: MessageTarget,
        payload: Outgoing,
        streams: bool,
    ) -> Result<Started> {
        check_size(&payload)?;
        let schema = target.schema();
        let (trace, span) = trace::leaving(self, owner, target.function());
        let mut state = self.lock();
        state.check(owner)?;
        state.check_target(&payload)?;
        let (reply, result) = oneshot::channel();
        let call_id = state.next_call;
        state.next_call += 1;
        let message = Message::new(Ask::Call { call_id, target }, payload).traced(trace);
        // The peer was there a moment ago, under the same lock.
        if let Some(ticket) = state.submit(owner, message) {
            let progress = Progress::Queued(ticket);
            state.calls.insert(
                call_id,
                PendingCall {
                    owner,
                    progress,
                    timeout_ms: u64::MAX,
                    streams,
                    schema,
                    trace_id: trace.trace_id,
                    reply,
                },
            );
        }
        Ok(Started { call_id, result, span })
    }

    /// Sends a call that nobody waits for.
    pub(crate) fn cast(&self, owner: NodeUid, target: MessageTarget, payload: Outgoing) -> Result<()> {
        check_size(&payload)?;
        let (trace, _span) = trace::leaving(self, owner, target.function());
        let mut state = self.lock();
        state.check(owner)?;
        state.check_target(&payload)?;
        state.check_queue(owner, &self.0.config.send_queue)?;
        state.submit(owner, Message::new(Ask::Call { call_id: 0, target }, payload).traced(trace));
        Ok(())
    }

    /// Tells the owner, if the call is not under way yet, how long it may take.
    pub(crate) fn limit_call(&self, call_id: u64, limit: Duration) {
        if let Some(call) = self.lock().calls.get_mut(&call_id) {
            call.timeout_ms = if limit == Duration::MAX { u64::MAX } else { millis(limit) };
        }
    }

    /// Nobody waits for this call any more.
    pub(crate) fn cancel_call(&self, call_id: u64) {
        let mut state = self.lock();
        state.cancel_call(call_id);
    }

    /// Gives `waiter` an object of this node when it exists. Returns the object if nobody waits for
    /// it any more.
    pub(crate) fn with_object(&self, id: ObjectId, waiter: Waiter) -> Option<Arc<dyn Occupant>> {
        let mut state = self.lock();
        if state.phase == Phase::Closed {
            let node = self.0.name.clone();
            state.after(move || waiter(Err(Error::ShuttingDown { node }), false));
            return None;
        }
        state.with_object(id, waiter);
        match state.objects.get(&id) {
            Some(Entry::Live(occupant)) => Some(occupant.clone()),
            _ => None,
        }
    }

    pub(crate) fn call_finished(&self, id: ObjectId) {
        self.lock().lifetime.call_finished(id);
    }
}

/// A call that is under way.
pub(crate) struct Started {
    pub(crate) call_id: u64,
    pub(crate) result: oneshot::Receiver<Result<crate::payload::Incoming>>,
    /// The caller's span, for as long as somebody waits.
    pub(crate) span: Span,
}

/// Refuses what the other side would refuse.
fn check_size(payload: &Outgoing) -> Result<()> {
    let (size, limit) = (payload.bytes() as u64, rref_core::wire::Limits::DEFAULT.message);
    if size > limit {
        return Err(Error::TooLarge { what: "a message".into(), size, limit });
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} {})", self.0.name, self.0.uid)
    }
}

/// What a type is called, without its path.
pub(crate) fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}
