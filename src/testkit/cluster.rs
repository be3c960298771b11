//! The cluster as a test sees it: its nodes, its faults, its time.

use super::builder::Settings;
use super::host::Process;
use super::network::{Counts, Network, Place};
use super::panics::Panic;
use super::random::Random;
use super::simulated::Simulated;
use super::stream::Wire;
use super::task::Task;
use super::trace::{Trace, What};
use crate::error::{Error, Result};
use crate::node::{Node, Surroundings};
use crate::object::invoke::contained_future;
use rref_core::wire::Kind;
use std::cell::RefCell;
use std::fmt::Write;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// How long [`TestCluster::eventually`] waits, in virtual time.
pub const EVENTUALLY: Duration = Duration::from_secs(60);

/// How long [`TestCluster::assert_no_leaks`] waits for what is under way, in virtual time.
const SETTLE: Duration = Duration::from_secs(300);

/// How long a process takes to start again.
const RESTART: Duration = Duration::from_secs(1);

/// Shortest and longest time between two looks at a condition while nothing happens on any node.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// A whole cluster inside one test. Clones are the same cluster.
///
/// Made by [`TestCluster::builder`], which also shows how to use it. Nodes are called by their names;
/// a name that the cluster does not have, or a node that does not run where one is needed, is a
/// mistake in the test: the method panics.
#[derive(Clone)]
pub struct TestCluster {
    shared: Rc<Shared>,
}

struct Shared {
    seed: u64,
    settings: Rc<Settings>,
    network: Network,
    members: RefCell<Vec<Option<Member>>>,
    random: RefCell<Random>,
    panics: RefCell<Vec<Panic>>,
    progress: Rc<Notify>,
    begun: Instant,
}

struct Member {
    process: Rc<Process>,
    simulated: Arc<Simulated>,
    /// None while it starts.
    node: Option<Node>,
}

impl TestCluster {
    pub(super) fn new(settings: Rc<Settings>, seed: u64) -> TestCluster {
        let trace = Trace::new(settings.trace_events);
        let network = Network::new(&settings.names, seed, settings.latency.clone(), trace);
        let members = settings.names.iter().map(|_| None).collect();
        let shared = Shared {
            seed,
            settings,
            network,
            members: RefCell::new(members),
            random: RefCell::new(Random::fork(seed, "test")),
            panics: RefCell::default(),
            progress: Rc::default(),
            begun: Instant::now(),
        };
        TestCluster { shared: Rc::new(shared) }
    }

    /// Starts every node and waits until each knows all others.
    pub(super) async fn boot(&self) -> Result<(), String> {
        let count = self.shared.settings.names.len();
        let order: Vec<Place> = match self.shared.settings.full_mesh {
            // So that of each pair the one with the smaller name dials.
            true => (0..count).rev().collect(),
            false => (0..count).collect(),
        };
        for place in order {
            let started = self.start(place).await;
            started.map_err(|error| format!("`{}` does not start: {error}", self.name(place)))?;
        }
        let all_known = || self.nodes().iter().all(|node| node.lock().peers.len() + 1 >= count);
        if self.run_until(all_known, EVENTUALLY).await {
            return Ok(());
        }
        Err(format!("not every node hears of every other:\n{}", self.report()))
    }

    async fn start(&self, place: Place) -> Result<Node> {
        let Shared { seed, settings, network, members, progress, .. } = &*self.shared;
        let name = &settings.names[place];
        let joined: Vec<String> = self.running().into_iter().filter(|other| other != name).collect();
        let number = network.start(place);
        let process = Process::start(progress.clone());
        let simulated = Arc::new(Simulated::new(Random::fork(*seed, &format!("{name} {number}"))));
        let surroundings = Surroundings::Simulation(simulated.clone());
        members.borrow_mut()[place] =
            Some(Member { process: process.clone(), simulated: simulated.clone(), node: None });
        let wire = Wire { network: network.clone(), place, process: number };
        let mut builder = (settings.make)(name)
            .transport(wire)
            .listen(name.clone())
            .insecure()
            .simulated(surroundings, settings.rules);
        let met = if settings.full_mesh { joined.len() } else { 1 };
        for other in joined.into_iter().take(met) {
            builder = builder.join(other);
        }
        let crashed = || Error::ShuttingDown { node: name.clone() };
        let started = process.spawn(builder.start()).ok_or_else(crashed)?;
        let node = started.await.unwrap_or_else(|_| Err(crashed()))?;
        network.know(node.uid(), place);
        if let Some(member) = &mut members.borrow_mut()[place] {
            member.node = Some(node.clone());
        }
        Ok(node)
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Draws from random numbers that belong to the seed, for what the test itself decides.
    pub fn random<R>(&self, draw: impl FnOnce(&mut Random) -> R) -> R {
        draw(&mut self.shared.random.borrow_mut())
    }

    /// The names of all nodes, in order.
    pub fn names(&self) -> &[String] {
        &self.shared.settings.names
    }

    /// The names of the nodes that run.
    pub fn running(&self) -> Vec<String> {
        self.nodes().iter().map(|node| node.name().to_string()).collect()
    }

    /// The nodes that run, in the order of the cluster's names.
    pub fn nodes(&self) -> Vec<Node> {
        let members = self.shared.members.borrow();
        members.iter().flatten().filter_map(|member| member.node.clone()).collect()
    }

    /// A node that runs.
    ///
    /// What the test asks of it happens as if a program of that node asked. Its tasks run in the
    /// node's process; what the test itself spawns does not, and survives a crash: use
    /// [`TestCluster::on`] for that.
    #[track_caller]
    pub fn node(&self, name: &str) -> Node {
        let place = self.place(name);
        let members = self.shared.members.borrow();
        match members[place].as_ref().and_then(|member| member.node.clone()) {
            Some(node) => node,
            None => panic!("`{name}` does not run"),
        }
    }

    /// Runs code as a program on the node `name`: in its process, which a crash ends.
    ///
    /// It begins at once, whether or not the task is awaited.
    #[track_caller]
    pub fn on<F, R>(&self, name: &str, program: F) -> Task<R>
    where
        F: AsyncFnOnce(Node) -> R + 'static,
        R: 'static,
    {
        let node = self.node(name);
        let process = self.process(name);
        let on = node.clone();
        let running = contained_future(on, "program", Box::pin(async move { program(node).await }));
        Task::new(name.to_string(), process.spawn(running))
    }

    /// The process of `name` ends at once: no destructor says anything to others, what waits to be sent
    /// is lost, and its connections break. What it has already written arrives or not, by the seed.
    ///
    /// Does nothing if it does not run.
    ///
    /// # Panics
    /// If a task of that very node calls it.
    #[track_caller]
    pub fn crash(&self, name: &str) {
        let place = self.place(name);
        let member = self.shared.members.borrow_mut()[place].take();
        if let Some(member) = member {
            self.shared.network.crash(place);
            member.end();
        }
    }

    /// Starts `name` again, as a new process that knows nothing: after a crash, or after crashing it.
    ///
    /// It takes a second to start, in which the others can notice that the old process is gone.
    ///
    /// # Errors
    /// Those of [`Builder::start`](crate::Builder::start): it joins the others as at the beginning, and
    /// may find none.
    pub async fn restart(&self, name: &str) -> Result<Node> {
        let place = self.place(name);
        self.crash(name);
        sleep(RESTART).await;
        self.start(place).await
    }

    /// `name` does nothing until [`resume`](TestCluster::resume): as a process that was sent `SIGSTOP`, or a
    /// machine that swaps. Its connections stay, and what is sent to it waits.
    #[track_caller]
    pub fn pause(&self, name: &str) {
        self.tell(name, "is paused");
        self.process(name).set_paused(true);
    }

    /// Ends a pause.
    #[track_caller]
    pub fn resume(&self, name: &str) {
        self.tell(name, "goes on");
        self.process(name).set_paused(false);
    }

    /// `name` gets to what there is to do only after `lag`, each time; zero ends it.
    #[track_caller]
    pub fn slow(&self, name: &str, lag: Duration) {
        self.tell(name, &format!("lags by {lag:?}"));
        self.process(name).set_lag(lag);
    }

    /// The clock of `name` runs by so many millionths faster than virtual time from now on; slower if
    /// negative, not at all at -1,000,000. Good clocks are within 50.
    ///
    /// It is what the node goes by when it judges how much time has passed, as for the deadlines of calls
    /// that it is asked, and for its heartbeats and leases. Other timers go by virtual time; so does the test.
    #[track_caller]
    pub fn skew_clock(&self, name: &str, millionths: i64) {
        self.tell(name, &format!("its clock runs {millionths} millionths fast"));
        let place = self.place(name);
        match &self.shared.members.borrow()[place] {
            Some(member) => member.simulated.skew(millionths),
            None => panic!("`{name}` does not run"),
        }
    }

    /// The clock of `name` jumps ahead by so much, as when its machine has slept: it has not lived through that
    /// time.
    #[track_caller]
    pub fn step_clock(&self, name: &str, by: Duration) {
        self.tell(name, &format!("its clock jumps by {by:?}"));
        let place = self.place(name);
        match &self.shared.members.borrow()[place] {
            Some(member) => member.simulated.step(by),
            None => panic!("`{name}` does not run"),
        }
    }

    /// Cuts the nodes of `group` off from all others, in both directions.
    ///
    /// As with a cable that is pulled, nobody is told: connections stay, what is sent waits, and new
    /// connections time out. Partitions add up until [`heal`](TestCluster::heal).
    #[track_caller]
    pub fn partition<S: AsRef<str>>(&self, group: impl IntoIterator<Item = S>) {
        let group = self.places(group);
        let all = 0..self.names().len();
        self.shared.network.change_ways(&group, "cut off from the others", |blocked| {
            for inner in &group {
                for outer in all.clone().filter(|outer| !group.contains(outer)) {
                    blocked.extend([(*inner, outer), (outer, *inner)]);
                }
            }
        });
    }

    /// Holds back what the nodes `from` send to the nodes `to`; the other direction works.
    #[track_caller]
    pub fn partition_oneway<S: AsRef<str>, R: AsRef<str>>(
        &self,
        from: impl IntoIterator<Item = S>,
        to: impl IntoIterator<Item = R>,
    ) {
        let (from, to) = (self.places(from), self.places(to));
        let about: Vec<Place> = from.iter().chain(&to).copied().collect();
        self.shared.network.change_ways(&about, "nothing gets from the first to the last", |blocked| {
            blocked.extend(from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))));
        });
    }

    /// Ends all partitions: what waited arrives.
    pub fn heal(&self) {
        self.shared.network.change_ways(&[], "all partitions end", |blocked| blocked.clear());
    }

    /// What `from` sends to `to` takes `more` time from now on, on top of the latency; zero ends it.
    #[track_caller]
    pub fn delay(&self, from: &str, to: &str, more: Duration) {
        self.shared.network.delay((self.place(from), self.place(to)), more);
    }

    /// Breaks the connections between two nodes; what is under way is lost, and they connect anew.
    #[track_caller]
    pub fn cut(&self, one: &str, other: &str) {
        let pair = [self.place(one), self.place(other)];
        self.shared.network.cut(|a, b| pair == [a, b] || pair == [b, a]);
    }

    /// Breaks all connections.
    pub fn cut_connections(&self) {
        self.shared.network.cut(|_, _| true);
    }

    /// The next `times` frames of a kind are lost, whoever sends them: the connection breaks just before
    /// each arrives.
    ///
    /// That is the only way in which frames are lost: a connection loses nothing else, as with TCP.
    ///
    /// ```
    /// use rref::prelude::*;
    /// use rref::testkit::{FrameKind, TestCluster};
    ///
    /// fn twice(x: i64) -> i64 { 2 * x }
    ///
    /// TestCluster::builder(|name| Node::builder(name).function(twice)).nodes(2).run(async |cluster| {
    ///     cluster.drop_frames(FrameKind::Reply, 2);
    ///     assert_eq!(cluster.node("n1").call("n2", twice, (21,)).await?, 42);
    ///     assert_eq!(cluster.frames_to_drop(), 0);
    ///     Ok(())
    /// });
    /// ```
    pub fn drop_frames(&self, kind: Kind, times: u32) {
        self.shared.network.lose(kind, None, times);
    }

    /// As [`drop_frames`](TestCluster::drop_frames), but only those that `from` sends to `to`.
    #[track_caller]
    pub fn drop_frames_between(&self, from: &str, to: &str, kind: Kind, times: u32) {
        self.shared.network.lose(kind, Some((self.place(from), self.place(to))), times);
    }

    /// From now on no frames are lost, whatever was asked for before.
    pub fn keep_frames(&self) {
        self.shared.network.lose_nothing();
    }

    /// How many frames are still to be lost.
    pub fn frames_to_drop(&self) -> u32 {
        self.shared.network.still_to_lose()
    }

    /// Virtual time since the cluster began.
    pub fn now(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// Lets virtual time pass. It costs what happens meanwhile, and no more.
    pub async fn advance(&self, time: Duration) {
        sleep(time).await;
    }

    /// Waits until `condition` holds; false if it does not within `limit` of virtual time.
    ///
    /// The condition is looked at whenever a node has done something, and now and then in between.
    pub async fn run_until(&self, condition: impl Fn() -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut look = LOOK.0;
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if condition() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            let next = deadline.min(Instant::now() + look);
            tokio::select! {
                biased;
                () = progress => look = LOOK.0,
                () = sleep_until(next) => look = LOOK.1.min(look * 2),
            }
        }
    }

    /// Waits until `condition` holds, for up to a minute of virtual time.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn eventually(&self, what: &str, condition: impl Fn() -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            if !self.run_until(condition, EVENTUALLY).await {
                panic!("still not so after {EVENTUALLY:?}, at {caller}: {what}");
            }
        }
    }

    /// Writes a note into the trace.
    pub fn note(&self, text: &str) {
        self.shared.network.lock().told(&[], text);
    }

    /// What every running node has.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for node in self.nodes() {
            let _ = write!(text, "{}", node.report());
        }
        text
    }

    /// Waits until no running node has an object, a reference, a pin or a call any more.
    ///
    /// Done at the end of every test unless
    /// [`allow_leaks`](super::ClusterBuilder::allow_leaks) is asked for; drop every reference before.
    ///
    /// # Panics
    /// If something is left after a few minutes of virtual time.
    pub async fn assert_no_leaks(&self) {
        if let Err(leaks) = self.settle().await {
            panic!("{leaks}");
        }
    }

    async fn settle(&self) -> Result<(), String> {
        if self.run_until(|| self.nodes().iter().all(is_clean), SETTLE).await {
            return Ok(());
        }
        Err(format!("something is left behind:\n{}", self.report()))
    }

    /// Ends all faults, waits until nothing is held, and shuts every node down.
    pub(super) async fn finish(&self) -> Result<(), String> {
        self.heal();
        self.keep_frames();
        for member in self.shared.members.borrow().iter().flatten() {
            member.process.set_paused(false);
            member.process.set_lag(Duration::ZERO);
        }
        self.settle().await?;
        for node in self.nodes() {
            let report = node.shutdown().await;
            if let Some(leak) = report.leaked.first() {
                return Err(format!("`{}` leaked {leak}", node.name()));
            }
            if !report.complete {
                return Err(format!("`{}` did not finish its work in time", node.name()));
            }
        }
        Ok(())
    }

    /// Ends every process.
    pub(super) fn end(&self) {
        for place in 0..self.names().len() {
            let member = self.shared.members.borrow_mut()[place].take();
            if let Some(member) = member {
                member.end();
            }
        }
    }

    /// What has happened so far.
    pub fn trace(&self) -> Trace {
        self.shared.network.lock().trace.clone()
    }

    /// Connections and frames so far.
    pub fn counts(&self) -> Counts {
        self.shared.network.lock().counts
    }

    /// The panics of handlers, functions and programs so far; from now on they count as expected.
    ///
    /// A test with others fails, even if nobody noticed them.
    pub fn take_panics(&self) -> Vec<Panic> {
        std::mem::take(&mut self.shared.panics.borrow_mut())
    }

    pub(super) fn panicked(&self, panic: Panic) {
        let place = panic.node.as_ref().and_then(|name| self.names().iter().position(|known| known == name));
        // The hook may be called at any time, but never with the network locked.
        let mut world = self.shared.network.lock();
        let at = world.elapsed();
        let about = place.map(|place| world.name(place)).into_iter().collect();
        let text = format!("panics: {}", panic.text);
        world.trace.push(at, text.as_bytes(), || What::Told { about, text: text.clone() });
        drop(world);
        self.shared.panics.borrow_mut().push(panic);
    }

    #[track_caller]
    fn tell(&self, name: &str, text: &str) {
        let place = self.place(name);
        self.shared.network.lock().told(&[place], text);
    }

    fn name(&self, place: Place) -> &str {
        &self.shared.settings.names[place]
    }

    #[track_caller]
    fn place(&self, name: &str) -> Place {
        match self.names().iter().position(|known| known == name) {
            Some(place) => place,
            None => panic!("there is no node `{name}` in this cluster, only {:?}", self.names()),
        }
    }

    #[track_caller]
    fn places<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Vec<Place> {
        names.into_iter().map(|name| self.place(name.as_ref())).collect()
    }

    #[track_caller]
    fn process(&self, name: &str) -> Rc<Process> {
        let place = self.place(name);
        match &self.shared.members.borrow()[place] {
            Some(member) => member.process.clone(),
            None => panic!("`{name}` does not run"),
        }
    }
}

impl Member {
    /// Drops everything that runs; then what is left is as good as closed.
    fn end(self) {
        self.process.kill();
        if let Some(node) = self.node {
            node.close();
        }
    }
}

/// Whether a node has nothing of its own, of others or for others.
fn is_clean(node: &Node) -> bool {
    let state = node.lock();
    state.lifetime.owned().next().is_none()
        && state.lifetime.held().next().is_none()
        && state.calls.is_empty()
        && state.parked.is_empty()
        && state
            .peers
            .values()
            .filter(|peer| peer.takes_messages())
            .all(|peer| peer.running.is_empty() && peer.is_quiet())
}
