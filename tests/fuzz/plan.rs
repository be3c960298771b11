//! What happens in a run: drawn from the seed, one step after the other.

use super::program::*;
use super::weather::Weather;
use super::world::world;
use rref::ObjectId;
use rref::prelude::*;
use rref::testkit::{FrameKind, Random, TestCluster, ms, secs};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub calls: u64,
    pub handoffs: u64,
    pub cuts: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub partitions: u64,
}

/// The programs of a run, and what they have done.
pub struct Plan {
    cluster: TestCluster,
    random: RefCell<Random>,
    pub done: Cell<Done>,
    next: Cell<u64>,
    /// Milliseconds that may still pass at a stretch: so nobody is cut off for so long that its lease ends.
    stretch: Cell<u64>,
    /// Programs that have not ended.
    under_way: Rc<Cell<usize>>,
    /// What excuses what, in runs in which nodes crash.
    weather: Option<Rc<Weather>>,
}

/// A program that has not ended; a crash may end it too.
struct UnderWay(Rc<Cell<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Plan {
    pub fn new(cluster: &TestCluster) -> Plan {
        let random = RefCell::new(Random::fork(cluster.seed(), "plan"));
        let (done, next, stretch) = (Cell::default(), Cell::new(1), Cell::new(40_000));
        let (cluster, under_way) = (cluster.clone(), Rc::default());
        Plan { cluster, random, done, next, stretch, under_way, weather: None }
    }

    /// A plan for runs in which nodes crash: it leaves it to others to let much time pass.
    pub fn with_crashes(cluster: &TestCluster, weather: Rc<Weather>) -> Plan {
        Plan { weather: Some(weather), stretch: Cell::new(0), ..Plan::new(cluster) }
    }

    pub fn is_quiet(&self) -> bool {
        self.under_way.get() == 0
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    /// A node that runs.
    fn node(&self) -> String {
        self.random.borrow_mut().pick(&self.cluster.running()).cloned().unwrap_or_default()
    }

    /// A node that may have crashed.
    fn peer(&self) -> String {
        self.random.borrow_mut().pick(self.cluster.names()).cloned().unwrap_or_default()
    }

    /// As what a node calls objects.
    pub fn caller(&self, node: &str) -> String {
        self.weather.as_ref().map_or_else(|| node.to_string(), |weather| weather.process(node))
    }

    pub fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    pub fn count(&self, count: impl FnOnce(&mut Done)) {
        let mut done = self.done.get();
        count(&mut done);
        self.done.set(done);
    }

    /// How long a caller waits: sometimes not long enough.
    fn patience(&self) -> Duration {
        match self.below(4) {
            0 => ms(1 + self.below(40)),
            1 => ms(self.below(5_000)),
            _ => secs(60),
        }
    }

    /// Runs a program as `node`, which calls the object `about` if that is known; what it cannot help is no
    /// violation.
    fn spawn<F>(&self, node: &str, about: Option<ObjectId>, program: F)
    where
        F: AsyncFnOnce(Node) -> Result<(), Error> + 'static,
    {
        self.under_way.set(self.under_way.get() + 1);
        let under_way = UnderWay(self.under_way.clone());
        let (name, cluster, weather) = (node.to_string(), self.cluster.clone(), self.weather.clone());
        let task = self.cluster.on(node, async move |node| {
            if let Err(error) = program(node).await
                && !may_be_told(&cluster, weather.as_deref(), &error, &name, about)
            {
                world(|world| world.violated(format!("a program on `{name}` failed: {error:?}")));
            }
            drop(under_way);
        });
        drop(task);
    }

    /// Notes that an object was asked for.
    fn asked(&self, id: ObjectId, number: u64) {
        if let Some(weather) = &self.weather {
            weather.asked(id);
        }
        world(|world| world.asked.insert(id, number));
    }

    /// One of the references `node` keeps.
    fn some_item(&self, node: &str) -> Option<RRef<Item>> {
        world(|world| self.random.borrow_mut().pick(&world.bag(node).items).cloned())
    }

    fn some_chest(&self, node: &str) -> Option<RRef<Chest>> {
        world(|world| self.random.borrow_mut().pick(&world.bag(node).chests).cloned())
    }

    /// Takes something out of a node's bag, or a second handle to it.
    fn parcel(&self, node: &str, depth: u64) -> Parcel {
        let mut parcel = Parcel::default();
        for _ in 0..=self.below(2) {
            parcel.items.extend(self.some_item(node));
        }
        if self.below(3) == 0 {
            parcel.chests.extend(self.some_chest(node));
        }
        if depth > 0 {
            parcel.inner = Some(Box::new(self.parcel(node, depth - 1)));
        }
        parcel
    }

    /// One step.
    pub async fn step(&self) {
        let node = self.node();
        match self.below(100) {
            0..12 => self.create(&node),
            12..32 => self.touch(&node),
            32..52 => self.hand_over(&node),
            52..60 => self.forward(&node),
            60..68 => self.ask(&node),
            68..74 => self.use_chests(&node),
            74..90 => self.let_go(&node),
            90..98 => self.cluster.advance(ms(self.below(40))).await,
            // Long enough for a peer that is cut off to be given up for now.
            _ => {
                let time = self.below(10_000).min(self.stretch.get());
                self.stretch.set(self.stretch.get() - time);
                self.cluster.advance(ms(time)).await;
            }
        }
        if self.below(3) == 0 {
            self.cluster.advance(ms(self.below(8))).await;
        }
    }

    fn create(&self, node: &str) {
        let (number, peer) = (self.number(), self.peer());
        match self.cluster.node(node).remote(peer, item, (number,)) {
            Ok(made) => {
                self.asked(made.id(), number);
                world(|world| {
                    world.items.insert(number, made.id());
                    world.bag(node).items.push(made);
                });
            }
            Err(error) if may_be_told(&self.cluster, self.weather.as_deref(), &error, node, None) => {}
            Err(error) => world(|world| world.violated(format!("`{node}` cannot create: {error:?}"))),
        }
    }

    fn touch(&self, node: &str) {
        let Some(item) = self.some_item(node) else { return };
        self.count(|done| done.calls += 1);
        let touch = Touch { from: self.caller(node), order: self.number() };
        if self.below(5) == 0 {
            // What keeps it from being sent is not what this is about.
            let _ = item.do_send(touch);
            return;
        }
        let request = item.send(touch).timeout(self.patience());
        self.spawn(node, Some(item.id()), async move |_| request.await.map(drop));
    }

    fn hand_over(&self, node: &str) {
        let (peer, depth) = (self.peer(), self.below(3));
        let parcel = self.parcel(node, depth);
        self.count(|done| done.handoffs += 1);
        let request = self.cluster.node(node).call(peer, store, (parcel,)).timeout(self.patience());
        // The handle may be gone before the frame has left.
        if self.below(2) == 0 {
            self.let_go(node);
        }
        self.spawn(node, None, async move |_| request.await.map(drop));
    }

    fn forward(&self, node: &str) {
        let parcel = self.parcel(node, 0);
        let route: Vec<String> = (0..self.below(4)).map(|_| self.peer()).collect();
        self.count(|done| done.handoffs += 1 + route.len() as u64);
        let request = self.cluster.node(node).call(self.peer(), forward, (parcel, route));
        let request = request.timeout(self.patience());
        if self.below(2) == 0 {
            self.let_go(node);
        }
        self.spawn(node, None, async move |_| request.await.map(drop));
    }

    /// Asks another node for one of its references.
    fn ask(&self, node: &str) {
        self.count(|done| done.handoffs += 1);
        let request = self.cluster.node(node).call(self.peer(), give, (self.below(8),));
        let request = request.timeout(self.patience());
        self.spawn(node, None, async move |node| {
            let given = request.await?;
            world(|world| world.bag(node.name()).items.extend(given));
            Ok(())
        });
    }

    fn use_chests(&self, node: &str) {
        if self.below(2) == 0 {
            let items: Vec<RRef<Item>> = (0..self.below(3)).filter_map(|_| self.some_item(node)).collect();
            let contents = items.iter().map(RRef::id).collect();
            self.count(|done| done.handoffs += 1);
            let number = self.number();
            if let Ok(made) = self.cluster.node(node).remote(self.peer(), chest, (number, items)) {
                self.asked(made.id(), number);
                world(|world| {
                    world.contents.insert(made.id(), contents);
                    world.bag(node).chests.push(made);
                });
            }
            return;
        }
        let Some(chest) = self.some_chest(node) else { return };
        self.count(|done| done.handoffs += 1);
        let request = chest.to_here().timeout(self.patience());
        // Its answer may also be that something in it is lost.
        self.spawn(node, None, async move |node| {
            let mut items = request.await?;
            drop(chest);
            world(|world| world.bag(node.name()).items.append(&mut items));
            Ok(())
        });
    }

    /// Drops some of what a node keeps.
    fn let_go(&self, node: &str) {
        let all = self.below(3) == 0;
        let (item, chest) = (self.below(16) as usize, self.below(16) as usize);
        let dropped = world(|world| {
            let bag = world.bag(node);
            if all {
                let dropped = (std::mem::take(&mut bag.items), std::mem::take(&mut bag.chests));
                world.unconfirm(node);
                return dropped;
            }
            let mut dropped = (Vec::new(), Vec::new());
            if let Some(index) = item.checked_rem(bag.items.len()) {
                dropped.0.push(bag.items.swap_remove(index));
            }
            if let Some(index) = chest.checked_rem(bag.chests.len()) {
                dropped.1.push(bag.chests.swap_remove(index));
            }
            world.unconfirm(node);
            dropped
        });
        drop(dropped);
    }

    /// Something goes wrong, or is well again.
    pub fn fault(&self) {
        let (one, other) = (self.node(), self.node());
        match self.below(14) {
            0..3 => {
                self.count(|done| done.cuts += 1);
                self.cluster.cut(&one, &other);
            }
            3 => {
                self.count(|done| done.cuts += 1);
                self.cluster.cut_connections();
            }
            4 => self.cluster.partition([&one]),
            5 => self.cluster.partition_oneway([&one], [&other]),
            6 | 7 => self.cluster.delay(&one, &other, ms(self.below(300))),
            8 => self.cluster.slow(&one, ms(self.below(20))),
            9 => self.cluster.pause(&one),
            10 => self.cluster.resume(&one),
            11 | 12 => {
                let kind = self.random.borrow_mut().pick(&FrameKind::ALL).copied();
                let kind = kind.unwrap_or(FrameKind::Ack);
                self.cluster.drop_frames_between(&one, &other, kind, 1);
            }
            _ => self.cluster.heal(),
        }
    }

    /// Ends all faults.
    pub fn repair(&self) {
        self.cluster.heal();
        self.cluster.keep_frames();
        for name in &self.cluster.running() {
            self.cluster.resume(name);
            self.cluster.slow(name, Duration::ZERO);
            for other in self.cluster.names() {
                self.cluster.delay(name, other, Duration::ZERO);
            }
        }
    }

    /// Uses everything that is held: it must be there.
    pub async fn touch_all(&self) {
        for name in self.cluster.names() {
            let (items, chests) = world(|world| {
                let bag = world.bag(name);
                (bag.items.clone(), bag.chests.clone())
            });
            for chest in chests {
                // What is in it is used like the rest, and not kept.
                match chest.to_here().await {
                    Ok(items) => self.touch_each(name, &items).await,
                    Err(Error::Gone(_)) if is_lost(&self.cluster, chest.id()) => {
                        drop(world(|world| world.forget(chest.id())));
                    }
                    Err(error) => world(|world| {
                        world.violated(format!("`{name}` holds {chest:?} and cannot use it: {error:?}"));
                    }),
                }
            }
            self.touch_each(name, &items).await;
        }
    }

    async fn touch_each(&self, name: &str, items: &[RRef<Item>]) {
        for item in items {
            self.count(|done| done.calls += 1);
            let order = self.number();
            let touched = item.send(Touch { from: name.to_string(), order }).await;
            if matches!(touched, Err(Error::Gone(_))) && is_lost(&self.cluster, item.id()) {
                drop(world(|world| world.forget(item.id())));
                continue;
            }
            world(|world| match touched {
                Ok(_) if world.was_run(order) => {}
                Ok(_) => world.violated(format!("call {order} of `{name}` was answered and not run")),
                Err(error) => {
                    world.violated(format!("`{name}` holds {item:?} and cannot use it: {error:?}"));
                }
            });
        }
    }
}

/// Whether an object has never come to be because its creation was lost with the session that carried it:
/// the two nodes were cut off from each other for too long, and have begun anew.
fn is_lost(cluster: &TestCluster, id: ObjectId) -> bool {
    let nodes = cluster.nodes();
    let owner = nodes.iter().find(|node| node.uid() == id.owner).map(Node::report);
    let peers = owner.map(|report| report.peers).unwrap_or_default();
    let anew = peers.iter().any(|peer| peer.uid == id.creator && peer.session > 1);
    anew && !world(|world| world.was_made(id))
}

/// A program's message may have been about any object: also about one that it brings back to its owner.
fn is_any_lost(cluster: &TestCluster) -> bool {
    world(|world| world.all()).into_iter().any(|id| is_lost(cluster, id))
}

/// Whether a program on `node` that has called `about` may be told this.
fn may_be_told(
    cluster: &TestCluster,
    weather: Option<&Weather>,
    error: &Error,
    node: &str,
    about: Option<ObjectId>,
) -> bool {
    match weather {
        Some(weather) => weather.allows(error, node, about),
        None => is_excused(error) || (matches!(error, Error::Gone(_)) && is_any_lost(cluster)),
    }
}

/// What a program may be told while the network fails.
fn is_excused(error: &Error) -> bool {
    matches!(
        error,
        Error::Timeout(_) | Error::NotSent { .. } | Error::OutcomeUnknown { .. } | Error::Unreachable { .. }
    )
}
