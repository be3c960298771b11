//! Runs in which nodes crash, return under their names, stop for a while, are cut off in one direction or
//! both, and have clocks that run fast, slow or jump; then all faults end, and every table must come to
//! what living nodes hold.

use super::liveness::{differences, touch_all};
use super::plan::{Done, Plan};
use super::run::check;
use super::weather::{RECOVERY, Weather};
use super::world::world;
use rref::ObjectId;
use rref::testkit::{FrameKind, Random, TestCluster, TestResult, ms, secs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Crashes in one run: a few, so that something is left to be wrong.
const CRASHES: u64 = 5;
/// A process that has not started after this will not.
const START: Duration = Duration::from_secs(30);
/// How often the oracle looks while nothing else is done.
const LOOK: Duration = Duration::from_secs(3);

/// What ends a fault.
enum End {
    Resume(String),
    Heal,
    Restart(String),
    Steady(String),
    Swift(String),
}

struct Faults {
    cluster: TestCluster,
    weather: Rc<Weather>,
    random: RefCell<Random>,
    /// When what is well again.
    due: RefCell<Vec<(Duration, End)>>,
    /// Whether faults may last for longer than TTL + grace.
    long: bool,
}

pub async fn live(cluster: TestCluster, steps: u64, done: &Cell<Done>) -> TestResult {
    world(|world| world.freed = Some(Vec::new()));
    let weather = Rc::new(Weather::new(&cluster));
    let plan = Plan::with_crashes(&cluster, weather.clone());
    let mut random = Random::fork(cluster.seed(), "crashes");
    let often = [4, 10, 25][random.below(3) as usize];
    let faults = Faults {
        cluster: cluster.clone(),
        weather: weather.clone(),
        long: random.percent(50),
        random: RefCell::new(random),
        due: RefCell::default(),
    };
    for _ in 0..steps {
        plan.step().await;
        if faults.percent(often) {
            faults.strike(&plan).await;
        }
        let time = match faults.below(100) {
            0..4 => faults.below(70_000),
            4..24 => faults.below(10_000),
            _ => 0,
        };
        faults.pass(ms(time)).await?;
    }
    faults.end_all().await;
    plan.repair();
    cluster.note("all faults have ended");
    let limit = weather.liveness_limit();
    // Looking after each event would take longer than all events.
    let settled = async || {
        let end = cluster.now() + limit;
        while !differences(&cluster, &weather).is_empty() {
            if cluster.now() >= end {
                return false;
            }
            cluster.advance(secs(1)).await;
        }
        true
    };
    let differ = || {
        let differences = differences(&cluster, &weather).join("\n");
        format!("the tables are not what is held {limit:?} after the last fault:\n{differences}")
    };
    if !settled().await {
        return Err(differ().into());
    }
    if !cluster.run_until(|| plan.is_quiet(), secs(300)).await {
        return Err("a program does not end".into());
    }
    // Dials that hang must time out.
    cluster.advance(RECOVERY).await;
    faults.look()?;
    touch_all(&cluster, &weather, &plan).await;
    check()?;
    if !settled().await {
        return Err(differ().into());
    }
    let bags = world(|world| std::mem::take(&mut world.bags));
    drop(bags);
    cluster.assert_no_leaks().await;
    // An actor ends a moment after its last reference is gone.
    let living = || world(|world| world.living());
    if !cluster.run_until(|| living().is_empty(), secs(10)).await {
        return Err(format!("nobody holds items {:?}, and they live", living()).into());
    }
    done.set(plan.done.get());
    check()
}

impl Faults {
    fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    fn percent(&self, chance: u64) -> bool {
        self.random.borrow_mut().percent(chance)
    }

    /// A node that runs.
    fn node(&self) -> String {
        self.random.borrow_mut().pick(&self.cluster.running()).cloned().unwrap_or_default()
    }

    /// How long a fault lasts: for less than any lease, or for longer.
    fn duration(&self) -> Duration {
        if self.long && self.percent(40) { ms(30_000 + self.below(70_000)) } else { ms(self.below(15_000)) }
    }

    fn after(&self, time: Duration, end: End) {
        self.due.borrow_mut().push((self.cluster.now() + time, end));
    }

    /// Something goes wrong.
    async fn strike(&self, plan: &Plan) {
        let (one, other) = (self.node(), self.node());
        let time = self.duration();
        match self.below(22) {
            0..3 => self.crash(plan, &one),
            3..6 => {
                if !self.weather.is_paused(&one) {
                    plan.count(|done| done.pauses += 1);
                    self.weather.paused(&one, true);
                    self.cluster.pause(&one);
                    self.after(time, End::Resume(one));
                }
            }
            6..9 if one != other => {
                plan.count(|done| done.partitions += 1);
                self.block(&one, &other);
                if self.percent(30) {
                    self.block(&other, &one);
                }
                self.after(time, End::Heal);
            }
            9 => {
                plan.count(|done| done.partitions += 1);
                for name in self.cluster.names().to_vec().iter().filter(|name| **name != one) {
                    self.block(&one, name);
                    self.block(name, &one);
                }
                self.after(time, End::Heal);
            }
            10 | 11 => {
                // A few percent, as no clock is wrong that is not broken.
                self.cluster.skew_clock(&one, i64::try_from(self.below(60_001)).unwrap_or(0) - 30_000);
                self.after(secs(self.below(200)), End::Steady(one));
            }
            12 => {
                // It jumps by up to two minutes.
                self.cluster.step_clock(&one, ms(self.below(12_000) * 10));
            }
            13 => {
                self.cluster.slow(&one, ms(1 + self.below(20)));
                self.after(secs(self.below(60)), End::Swift(one));
            }
            14 | 15 => self.cluster.delay(&one, &other, ms(self.below(300))),
            16..18 => {
                plan.count(|done| done.cuts += 1);
                self.cluster.cut(&one, &other);
            }
            18 => {
                plan.count(|done| done.cuts += 1);
                self.cluster.cut_connections();
            }
            _ => {
                let kind = self.random.borrow_mut().pick(&FrameKind::ALL).copied();
                self.cluster.drop_frames_between(&one, &other, kind.unwrap_or(FrameKind::Ack), 1);
            }
        }
    }

    fn block(&self, from: &str, to: &str) {
        self.weather.block(from, to);
        self.cluster.partition_oneway([from], [to]);
    }

    fn crash(&self, plan: &Plan, name: &str) {
        if self.cluster.running().len() < 3 || self.weather.crashes_so_far() >= CRASHES {
            return;
        }
        plan.count(|done| done.crashes += 1);
        self.kill(name);
        if self.percent(60) {
            let pause = if self.percent(50) { ms(self.below(3_000)) } else { ms(self.below(100_000)) };
            self.after(pause, End::Restart(name.to_string()));
        }
    }

    /// A process ends; what it had is nobody's any more.
    fn kill(&self, name: &str) {
        let uid = self.cluster.node(name).uid();
        self.weather.crashes(name);
        let bag = world(|world| {
            world.dead.insert(uid);
            world.confirmed.retain(|(holder, _)| holder != name);
            world.bags.remove(name)
        });
        self.cluster.crash(name);
        drop(bag);
        // These were faults of the process.
        self.due.borrow_mut().retain(|(_, end)| match end {
            End::Resume(of) | End::Steady(of) | End::Swift(of) => of != name,
            End::Heal | End::Restart(_) => true,
        });
    }

    async fn restart(&self, name: &str) {
        match tokio::time::timeout(START, self.cluster.restart(name)).await {
            Ok(Ok(node)) => self.weather.started(&node),
            // It finds nobody to join: it stays dead.
            Ok(Err(_)) | Err(_) => self.cluster.crash(name),
        }
    }

    async fn end(&self, end: End) {
        match end {
            End::Resume(name) => {
                self.weather.paused(&name, false);
                self.cluster.resume(&name);
            }
            End::Heal => {
                self.weather.heal();
                self.cluster.heal();
            }
            End::Steady(name) => self.cluster.skew_clock(&name, 0),
            End::Swift(name) => self.cluster.slow(&name, Duration::ZERO),
            End::Restart(name) => self.restart(&name).await,
        }
    }

    /// Lets time pass, ends what is over, and looks at everything now and then.
    async fn pass(&self, time: Duration) -> TestResult {
        let end = self.cluster.now() + time;
        loop {
            while let Some(over) = self.over() {
                self.end(over).await;
            }
            self.look()?;
            let now = self.cluster.now();
            if now >= end {
                return Ok(());
            }
            let due = self.due.borrow().iter().map(|(due, _)| *due).min().unwrap_or(end);
            self.cluster.advance(due.min(end).min(now + LOOK).saturating_sub(now)).await;
        }
    }

    /// The first of what is over by now.
    fn over(&self) -> Option<End> {
        let mut due = self.due.borrow_mut();
        let now = self.cluster.now();
        let first = (0..due.len()).min_by_key(|index| due[*index].0)?;
        (due[first].0 <= now).then(|| due.swap_remove(first).1)
    }

    /// All is well again; who was to start again does.
    async fn end_all(&self) {
        let due = std::mem::take(&mut *self.due.borrow_mut());
        let (restarts, others): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, end)| matches!(end, End::Restart(_)));
        for (_, end) in others.into_iter().chain(restarts) {
            self.end(end).await;
        }
        self.weather.update();
    }

    /// What the oracle sees of the nodes, and what it thinks of it.
    fn look(&self) -> TestResult {
        self.weather.update();
        for freed in world(|world| world.freed.as_mut().map(std::mem::take)).into_iter().flatten() {
            for (holder, confirmed) in freed.holders {
                let uid =
                    self.cluster.nodes().iter().find(|node| node.name() == holder).map(|node| node.uid());
                if uid.is_some_and(|uid| !self.weather.excuses(uid, freed.id, confirmed)) {
                    let listed = if confirmed { "was listed for it" } else { "had got it" };
                    let what =
                        format!("item {} ({}) was freed while `{holder}` {listed}", freed.number, freed.id);
                    world(|world| world.violated(what));
                }
            }
        }
        world(|world| world.confirmed.clear());
        for node in self.cluster.nodes() {
            let report = node.report();
            // Of two handles to one object, one may be dead: then it is not said which one is kept.
            let dead: BTreeSet<ObjectId> =
                report.held.iter().filter(|held| held.broken.is_some()).map(|held| held.id).collect();
            let confirmed = report.held.iter().filter(|held| held.confirmed).map(|held| held.id);
            let local =
                report.objects.iter().filter(|object| object.local_handles > 0).map(|object| object.id);
            world(|world| {
                for id in confirmed.chain(local).filter(|id| !dead.contains(id)) {
                    if world.was_made(id) && world.has(node.name(), id) {
                        world.confirmed.insert((node.name().to_string(), id));
                    }
                }
            });
            for peer in &report.peers {
                let fenced = peer.lease == "fenced" && self.weather.is_alive(peer.uid);
                if fenced && !self.weather.severed(node.uid(), peer.uid) {
                    let what = format!("`{}` has fenced `{}` for no reason", node.name(), peer.name);
                    world(|world| world.violated(what));
                }
            }
        }
        check()
    }
}
