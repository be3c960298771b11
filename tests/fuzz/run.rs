//! One run: the plan, then peace, then a comparison of every table with what is true.

use super::crashes;
use super::plan::{Done, Plan};
use super::program;
use super::world::{reset, world};
use rref::ObjectId;
use rref::testkit::{Failure, Random, TestCluster, TestResult, ms, secs};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A rule of the protocol that is left out.
    pub mutant: Option<String>,
    /// Whether nodes crash, stop for a while and return, and clocks go wrong: a plan of its own.
    pub crashes: bool,
    /// Whether to keep what happens for people to read.
    pub trace: bool,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub done: Done,
    pub virtual_time: Duration,
    pub frames: u64,
    pub trace_hash: u64,
}

/// What repeats a run, with everything that happens.
pub fn command(seed: u64, options: &Options) -> String {
    let mutant = options.mutant.as_ref().map(|mutant| format!(" --mutant {mutant}")).unwrap_or_default();
    let crashes = if options.crashes { " --crashes" } else { "" };
    format!("cargo run --release -p rref-bench -- soak --seeds 1 --from {seed}{crashes}{mutant} --trace")
}

/// Runs one seed.
pub fn run(seed: u64, options: &Options) -> Result<Shown, Box<Failure>> {
    reset();
    let mut random = Random::fork(seed, "shape");
    let nodes = usize::try_from(random.within(3..8)).unwrap_or(3);
    let latency = [1, 5, 30, 150][random.below(4) as usize];
    let mut builder = TestCluster::builder(program::node)
        .nodes(nodes)
        .latency(ms(0)..ms(latency + 1))
        .trace_events(if options.trace { 1_000_000 } else { 0 });
    if let Some(mutant) = &options.mutant {
        builder = builder.mutant(mutant);
    }
    if random.percent(50) {
        builder = builder.full_mesh();
    }
    let (steps, faults) = (random.within(40..160), [0, 3, 10, 25][random.below(4) as usize]);
    let done = Cell::default();
    let ended = builder.limit(secs(5 * 3600)).build().run(seed, async |cluster| {
        if options.crashes {
            crashes::live(cluster, steps, &done).await
        } else {
            live(cluster, steps, faults, &done).await
        }
    });
    reset();
    ended.map(|summary| Shown {
        done: done.get(),
        virtual_time: summary.virtual_time,
        frames: summary.counts.frames,
        trace_hash: summary.trace_hash,
    })
}

async fn live(cluster: TestCluster, steps: u64, faults: u64, done: &Cell<Done>) -> TestResult {
    let plan = Plan::new(&cluster);
    let mut random = Random::fork(cluster.seed(), "faults");
    for _ in 0..steps {
        plan.step().await;
        if random.percent(faults) {
            plan.fault();
        }
        check()?;
    }
    plan.repair();
    cluster.note("all faults have ended");
    if !cluster.run_until(|| plan.is_quiet(), secs(300)).await {
        return Err("a program does not end".into());
    }
    // Those who gave a peer up call it back; what is on a route arrives.
    cluster.advance(secs(10)).await;
    plan.touch_all().await;
    check()?;
    if !cluster.run_until(|| differences(&cluster).is_empty(), secs(120)).await {
        return Err(format!("the tables are not what is held:\n{}", differences(&cluster).join("\n")).into());
    }
    let bags = world(|world| std::mem::take(&mut world.bags));
    drop(bags);
    cluster.assert_no_leaks().await;
    // An actor ends a moment after its last reference is gone.
    let living = || world(|world| world.living());
    if !cluster.run_until(|| living().is_empty(), secs(10)).await {
        let living = living();
        return Err(format!("nobody holds items {living:?}, and they live").into());
    }
    done.set(plan.done.get());
    check()
}

pub fn check() -> TestResult {
    world(|world| match world.violations.first() {
        None => Ok(()),
        Some(violation) => Err(violation.clone().into()),
    })
}

/// Where the nodes' tables are not what the oracle says.
fn differences(cluster: &TestCluster) -> Vec<String> {
    let held = world(|world| world.held());
    let objects: BTreeSet<ObjectId> = held.keys().map(|(_, id)| *id).collect();
    let found = RefCell::new(Vec::new());
    let expect = |what: String, expected: String, actual: String| {
        if expected != actual {
            found.borrow_mut().push(format!("{what}: {actual} instead of {expected}"));
        }
    };
    // Clones share a handle: there may be fewer handles than references, but not none.
    let expect_handles = |what: String, references: u64, handles: u64| {
        if handles > references || (handles == 0) != (references == 0) {
            found.borrow_mut().push(format!("{what}: {handles} handles for {references} references"));
        }
    };
    for node in cluster.nodes() {
        let (name, report) = (node.name().to_string(), node.report());
        let handles: BTreeMap<ObjectId, u64> =
            held.iter().filter(|((holder, _), _)| *holder == name).map(|((_, id), n)| (*id, *n)).collect();
        let foreign: Vec<ObjectId> =
            report.held.iter().filter(|held| held.broken.is_none()).map(|held| held.id).collect();
        let expected: Vec<ObjectId> = handles.keys().filter(|id| id.owner != node.uid()).copied().collect();
        expect(format!("`{name}` holds"), format!("{expected:?}"), format!("{foreign:?}"));
        // What was never made is no object, whoever still has a handle to it.
        let made = |id: ObjectId| world(|world| world.was_made(id));
        let objects_here: Vec<_> = report.objects.iter().filter(|object| made(object.id)).collect();
        let owned: Vec<ObjectId> = objects_here.iter().map(|object| object.id).collect();
        let expected: Vec<ObjectId> = objects.iter().filter(|id| id.owner == node.uid()).copied().collect();
        expect(format!("`{name}` owns"), format!("{expected:?}"), format!("{owned:?}"));
        for object in objects_here {
            let expected: BTreeSet<&String> = held
                .keys()
                .filter(|(holder, id)| *id == object.id && *holder != name)
                .map(|(holder, _)| holder)
                .collect();
            let actual: BTreeSet<&String> = object.holders.iter().collect();
            expect(format!("{} is held by", object.id), format!("{expected:?}"), format!("{actual:?}"));
            let local = handles.get(&object.id).copied().unwrap_or(0);
            expect_handles(format!("{} at home", object.id), local, object.local_handles);
        }
        for held in report.held.iter().filter(|held| held.broken.is_none()) {
            let here = handles.get(&held.id).copied().unwrap_or(0);
            expect_handles(format!("{} at `{name}`", held.id), here, held.handles);
            expect(format!("{} is pinned by `{name}` for", held.id), "[]".into(), format!("{:?}", held.pins));
        }
    }
    found.into_inner()
}
