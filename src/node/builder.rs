//! How a node is set up: what it offers, where it listens, whom it joins.

use super::home::Home;
use super::keeper;
use super::names::Names;
use super::outcomes::Outcomes;
use super::peer::CREDIT;
use super::state::State;
use super::{Inner, Node, NodeClock, Surroundings};
use crate::error::{Error, Result};
use crate::object::{Handled, Hosted, RemoteMessage};
use crate::reference::handle::Origins;
use crate::registry::{Function, Messages, Method, Placement, Registry, function, method};
use crate::transport::{Tcp, Transport};
use actix::Handler;
use rref_core::lease::LeaseSettings;
use rref_core::lifetime::Lifetime;
use rref_core::session::{Credit, LaneLimits};
use rref_core::wire::{Limits, Token};
use rref_core::{NodeUid, Rules};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The smallest resend buffer that is of use.
const LEAST_RESEND_BUFFER: usize = 512 << 10;

/// How much may wait for one peer before what nobody waits for is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendQueue {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// Settings that stay as they are while a node lives.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: Option<String>,
    pub(crate) advertise: Option<String>,
    pub(crate) join: Vec<String>,
    pub(crate) join_deadline: Duration,
    pub(crate) default_timeout: Duration,
    pub(crate) credit: Credit,
    /// Bytes kept for each peer until it has acknowledged them.
    pub(crate) resend_buffer: usize,
    pub(crate) send_queue: SendQueue,
    pub(crate) shutdown_deadline: Duration,
    pub(crate) leases: LeaseSettings,
    pub(crate) token: Token,
    pub(crate) rank: Option<(u32, u32)>,
    pub(crate) surroundings: Surroundings,
    /// The rules of lifetime: all of them, but for tests that show what each is for.
    pub(crate) rules: Rules,
    insecure: bool,
    insecure_any_address: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: None,
            advertise: None,
            join: Vec::new(),
            join_deadline: Duration::from_secs(30),
            default_timeout: Duration::from_secs(60),
            credit: CREDIT,
            resend_buffer: LaneLimits::default().resend_limit,
            send_queue: SendQueue { messages: 262_144, bytes: 256 << 20 },
            shutdown_deadline: Duration::from_secs(5),
            leases: LeaseSettings::default(),
            token: Token::NONE,
            rank: None,
            surroundings: Surroundings::System,
            rules: Rules::ALL,
            insecure: false,
            insecure_any_address: false,
        }
    }
}

/// Sets up a node. Made by [`Node::builder`].
///
/// Registration is explicit: only what is named here can be asked for by other nodes. A usual
/// program has one function that makes the builder, and uses it on every node.
///
/// ```
/// use rref::prelude::*;
///
/// fn add(x: Tensor<f32>, y: f32) -> Tensor<f32> { Tensor::from(x.into_array() + y) }
/// fn norm(x: &Tensor<f32>, k: f32) -> f32 { k * x.view().iter().map(|v| v * v).sum::<f32>().sqrt() }
///
/// fn node(name: &str) -> rref::Builder {
///     Node::builder(name).function(add).method(norm)
/// }
/// # let _ = node("worker1");
/// ```
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    name: String,
    config: Config,
    registry: Registry,
    transport: Arc<dyn Transport>,
}

impl Builder {
    pub(super) fn new(name: String) -> Builder {
        let (config, registry) = (Config::default(), Registry::default());
        Builder { name, config, registry, transport: Arc::new(Tcp) }.builtins()
    }

    /// Accepts the messages that `T` lists in its `#[object(messages(..))]`; for data, copies of it
    /// ([`RRef::copy_to`](crate::RRef::copy_to)).
    pub fn register<T: Hosted>(mut self) -> Self {
        if let Some(adopt) = T::adopt() {
            match T::schema() {
                Ok(schema) => drop(self.registry.types.insert(T::wire_name(), (schema, adopt.0))),
                Err(reason) => self.registry.mistakes.push(format!("type `{}`: {reason}", T::wire_name())),
            }
        }
        T::messages(&mut Messages { registry: &mut self.registry, object: PhantomData });
        self
    }

    /// Accepts the message `M` for objects `T`; for data, which have no list of their own.
    pub fn message<T: Hosted, M>(mut self) -> Self
    where
        M: RemoteMessage<Result: Handled>,
        T::Host: Handler<M>,
    {
        Messages::<T> { registry: &mut self.registry, object: PhantomData }.message::<M>();
        self
    }

    /// Gives the message `M` an explicit name on the wire, instead of the path of its type; on both
    /// sides, for what is sent from here as well.
    ///
    /// For programs that do not share the type, or that may move it.
    ///
    /// ```
    /// use rref::prelude::*;
    ///
    /// #[derive(Serialize, Deserialize, Message)]
    /// #[rtype(result = "()")]
    /// struct Order { item: String }
    ///
    /// let builder = Node::builder("me").message_name::<Order>("shop.Order");
    /// ```
    pub fn message_name<M: RemoteMessage>(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.registry.name_message::<M>(name.into());
        self
    }

    /// Accepts calls of a `fn` or `async fn` item, under the path where it is defined.
    ///
    /// The path is part of the program's text: put functions that two programs share into a library,
    /// or name them with [`Builder::function_as`].
    ///
    /// A closure that captures something is no function item: only its type would travel. What it needs
    /// is an argument. It does not compile, even if all it captures is `Copy`:
    ///
    /// ```compile_fail
    /// # use rref::prelude::*;
    /// let offset = 1;
    /// let builder = Node::builder("me").function(move |x: i64| x + offset);
    /// ```
    pub fn function<F, Args, K>(self, function: F) -> Self
    where
        F: Function<Args, K>,
        Args: Send + 'static,
        K: 'static,
    {
        self.function_on(Placement::Shared, function)
    }

    /// Accepts calls of a function, and says on which thread it, or what it makes, is to run.
    ///
    /// ```
    /// use rref::{Placement, prelude::*};
    ///
    /// fn slow(n: u64) -> u64 { (0..n).map(|x| x ^ n).max().unwrap_or(0) }
    ///
    /// let builder = Node::builder("me").function_on(Placement::Blocking, slow);
    /// ```
    pub fn function_on<F, Args, K>(mut self, placement: Placement, function: F) -> Self
    where
        F: Function<Args, K>,
        Args: Send + 'static,
        K: 'static,
    {
        const { function::assert_item::<F>() };
        let path = self.registry.path_of::<F>();
        match function::entry(function, placement) {
            Ok(entry) => {
                self.registry.functions.insert(path, Arc::new(entry));
            }
            Err(reason) => self.registry.mistakes.push(format!("function `{path}`: {reason}")),
        }
        self
    }

    /// Accepts calls of a function under an explicit name; callers must name it likewise.
    pub fn function_as<F, Args, K>(mut self, name: impl Into<Cow<'static, str>>, function: F) -> Self
    where
        F: Function<Args, K>,
        Args: Send + 'static,
        K: 'static,
    {
        self.registry.name::<F>(name.into());
        self.function(function)
    }

    /// Accepts a function that runs against `&T` where the object lives: see
    /// [`RRef::apply`](crate::RRef::apply).
    pub fn method<F, T, Args, K>(mut self, method: F) -> Self
    where
        F: Method<T, Args, K>,
        T: Hosted,
        Args: 'static,
        K: 'static,
    {
        const { function::assert_item::<F>() };
        let path = self.registry.path_of::<F>();
        match method::entry(method) {
            Ok(entry) => {
                self.registry.methods.insert(path, Arc::new(entry));
            }
            Err(reason) => self.registry.mistakes.push(format!("method `{path}`: {reason}")),
        }
        self
    }

    /// Accepts a method under an explicit name; callers must name it likewise.
    pub fn method_as<F, T, Args, K>(mut self, name: impl Into<Cow<'static, str>>, method: F) -> Self
    where
        F: Method<T, Args, K>,
        T: Hosted,
        Args: 'static,
        K: 'static,
    {
        self.registry.name::<F>(name.into());
        self.method(method)
    }

    /// Listens on `address` (`host:port`; port 0 takes any free one). Default: does not listen.
    ///
    /// A node that does not listen can join others, but nodes that it did not join cannot reach it.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.config.listen = Some(address.into());
        self
    }

    /// Tells others to dial `address` instead of the one listened on: for containers and NAT.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.config.advertise = Some(address.into());
        self
    }

    /// Joins the cluster of the node at `address` as it starts. May be given more than once.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.config.join.push(address.into());
        self
    }

    /// How long [`Builder::start`] tries to join. Default 30 s.
    pub fn join_deadline(mut self, limit: Duration) -> Self {
        self.config.join_deadline = limit;
        self
    }

    /// Allows connections without encryption and authentication, on loopback addresses only.
    ///
    /// Whoever can connect can then call everything that is registered.
    pub fn insecure(mut self) -> Self {
        self.config.insecure = true;
        self
    }

    /// Allows [`insecure`](Builder::insecure) connections on any address.
    ///
    /// **Everyone who can reach the address can call everything that is registered.**
    pub fn insecure_any_address(mut self) -> Self {
        self.config.insecure_any_address = true;
        self.insecure()
    }

    /// A secret that every node of the cluster must show; wrong ones are turned away.
    ///
    /// It keeps other users of the machine out of a launched cluster; it does not encrypt anything.
    pub fn token(mut self, token: [u8; 16]) -> Self {
        self.config.token = Token(token);
        self
    }

    /// The number of this process in a launched cluster, and how many there are.
    pub fn rank(mut self, rank: u32, world_size: u32) -> Self {
        self.config.rank = Some((rank, world_size));
        self
    }

    /// How long a call waits for its reply unless it says otherwise. Default 60 s;
    /// `Duration::MAX` for no limit. Calls under way are not affected.
    pub fn default_timeout(mut self, limit: Duration) -> Self {
        self.config.default_timeout = limit;
        self
    }

    /// How much one other node may have unfinished here at a time: calls, casts and creations, and the
    /// bytes of their arguments. Default 65,536 and 256 MiB; at least 1 each.
    ///
    /// A node that has used up its credit keeps further messages in its own queue until something here
    /// is done ([`PeerReport::waiting_for_credit`](crate::PeerReport::waiting_for_credit) counts them).
    /// Replies, releases and cancels pass. While credit is left the next call may be of any size, so
    /// that a call larger than all of it can still be made.
    pub fn peer_credit(mut self, calls: u64, bytes: u64) -> Self {
        self.config.credit = Credit { calls, bytes };
        self
    }

    /// How much may wait here for one other node that takes messages more slowly than they are sent. Beyond
    /// either, [`RRef::do_send`](crate::RRef::do_send) to its objects gives [`Error::Overloaded`]; calls that
    /// somebody waits for are not refused. Default 262,144 messages and 256 MiB; at least 1 each.
    pub fn send_queue(mut self, messages: usize, bytes: usize) -> Self {
        self.config.send_queue = SendQueue { messages: messages.max(1), bytes: bytes.max(1) };
        self
    }

    /// How many bytes this node keeps for each other node until that one has acknowledged them. Default
    /// 64 MiB, at least 512 KiB.
    ///
    /// Calls take up to half of it, and wait for room: with a small one, large messages are slow. What the
    /// protocol itself has to say never waits. Should that fill it, with nothing acknowledged for a heartbeat,
    /// or four times over, the session begins anew, rather than memory grow: calls under way end with
    /// [`Error::OutcomeUnknown`], and no reference is lost.
    pub fn resend_buffer(mut self, bytes: usize) -> Self {
        self.config.resend_buffer = bytes;
        self
    }

    /// How long leases last: how soon what a crashed node held is freed, and for how long a node may be
    /// out of reach without losing what it holds. All nodes of a cluster should use the same. Default: see
    /// [`LeaseSettings`].
    ///
    /// Checked by [`Builder::start`]: [`Error::Config`] names the rule that is broken.
    ///
    /// ```
    /// use rref::{LeaseSettings, prelude::*};
    ///
    /// // For a test that waits for a crash to be noticed: all times a tenth of the default.
    /// let builder = Node::builder("me").leases(LeaseSettings::shortened(10));
    /// ```
    pub fn leases(mut self, settings: LeaseSettings) -> Self {
        self.config.leases = settings;
        self
    }

    /// How long [`Node::shutdown`] waits for work in progress and for peers. Default 5 s.
    pub fn shutdown_deadline(mut self, limit: Duration) -> Self {
        self.config.shutdown_deadline = limit;
        self
    }

    /// Carries bytes by `transport` instead of TCP.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Arc::new(transport);
        self
    }

    /// Makes it a node of a simulation.
    #[cfg(feature = "testkit")]
    pub(crate) fn simulated(mut self, surroundings: Surroundings, rules: Rules) -> Self {
        self.config.surroundings = surroundings;
        self.config.rules = rules;
        self
    }

    /// Starts the node on the current thread, which becomes its home arbiter, listens, and joins.
    ///
    /// Must be called inside an actix `System` (or another tokio `LocalSet`).
    ///
    /// # Errors
    /// [`Error::Config`] for settings that do not fit together or things that cannot be registered,
    /// [`Error::AddressInUse`], and those of joining: [`Error::Unreachable`], [`Error::NameTaken`],
    /// [`Error::Denied`].
    pub async fn start(self) -> Result<Node> {
        self.check()?;
        let Builder { name, config, registry, transport } = self;
        let uid = NodeUid(u128::from_le_bytes(config.surroundings.random_bytes()?));
        let (home, inbox) = Home::new();
        let home = Arc::new(home);
        let lifetime = Lifetime::new(uid, config.rules);
        let clock = NodeClock::new(&config.surroundings);
        let state = State::new(name.clone(), lifetime, &config, clock.clone(), home.clone());
        let (draining, period) = (state.draining.clone(), config.leases.heartbeat);
        let node = Node(Arc::new(Inner {
            name,
            uid,
            config,
            registry,
            names: Names::default(),
            home,
            transport,
            listening: OnceLock::new(),
            state: Mutex::new(state),
            clock,
            draining,
            open: AtomicBool::new(true),
            settled: Notify::new(),
            confirming: AtomicUsize::new(0),
            peers_changed: Notify::new(),
            names_changed: Notify::new(),
            origins: Origins::default(),
            outcomes: Outcomes::default(),
            handled: Outcomes::default(),
            accepting: Mutex::new(None),
            closed: watch::Sender::new(false),
        }));
        actix_rt::spawn(inbox.serve());
        actix_rt::spawn(node.clone().keep_batches());
        actix_rt::spawn(node.clone().keep_leases());
        match keeper::start(&node, period) {
            Ok(keeper) => node.lock().keeper = keeper,
            Err(error) => {
                node.close();
                return Err(Error::Config(format!("no thread for heartbeats: {error}")));
            }
        }
        if let Err(error) = node.enter_cluster().await {
            node.close();
            return Err(error);
        }
        Ok(node)
    }

    /// Starts the node on a thread of its own; for `#[tokio::main]` and for programs that are not
    /// async. Returns when it listens and has joined. The thread ends with [`Node::shutdown`].
    ///
    /// # Errors
    /// Those of [`Builder::start`].
    pub fn spawn(self) -> Result<Node> {
        let (started, result) = std::sync::mpsc::channel();
        let name = format!("rref-{}", self.name);
        let run = move || {
            actix_rt::System::new().block_on(async move {
                match self.start().await {
                    Ok(node) => {
                        let mut closed = node.0.closed.subscribe();
                        let _ = started.send(Ok(node));
                        let _ = closed.wait_for(|closed| *closed).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(|error| Error::Config(format!("cannot start a thread for the node: {error}")))?;
        result
            .recv()
            .unwrap_or_else(|_| Err(Error::Config("the node's thread ended before it had started".into())))
    }

    /// Finds what does not fit together, before anything is started.
    fn check(&self) -> Result<()> {
        let limit = Limits::DEFAULT.name;
        if self.name.is_empty() || self.name.len() > limit {
            return Err(Error::Config(format!("a node's name must have 1 to {limit} bytes")));
        }
        if let Some(mistake) = self.registry.mistakes.first() {
            return Err(Error::Config(format!("cannot register {mistake}")));
        }
        if self.config.resend_buffer < LEAST_RESEND_BUFFER {
            let given = self.config.resend_buffer;
            return Err(Error::Config(format!(
                "a resend buffer of {given} bytes: give {LEAST_RESEND_BUFFER} or more"
            )));
        }
        if let Err(error) = self.config.leases.check() {
            return Err(Error::Config(format!("leases: {error}")));
        }
        let Some(address) = &self.config.listen else { return Ok(()) };
        if !self.config.insecure {
            return Err(Error::Config(format!(
                "listening on {address} without encryption must be asked for: add `.insecure()` to the builder (loopback addresses only)"
            )));
        }
        if !self.config.insecure_any_address && !self.transport.is_local(address) {
            return Err(Error::Config(format!(
                "`.insecure()` listens on loopback addresses only, and {address} is none: use 127.0.0.1, or `.insecure_any_address()` where the network itself is trusted"
            )));
        }
        tracing::warn!(
            "node `{}` accepts unencrypted connections on {address}: whoever reaches it can call what is registered",
            self.name
        );
        Ok(())
    }
}

impl Node {
    /// Listens and joins, as the settings say.
    async fn enter_cluster(&self) -> Result<()> {
        let config = &self.0.config;
        if let Some(address) = &config.listen {
            let listener = self.0.transport.listen(address).await?;
            let _ = self.0.listening.set(listener.address());
            let accepting = actix_rt::spawn(self.clone().accept(listener));
            *self.0.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepting);
        }
        for address in &config.join {
            self.join(address, config.join_deadline).await?;
        }
        Ok(())
    }

    /// Sends what waited for company, for as long as the node lives.
    async fn keep_batches(self) {
        let mut closed = self.0.closed.subscribe();
        loop {
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = self.0.home.batch_over() => self.lock().batch_over(),
            }
        }
    }
}
