//! How a simulated cluster is set up, run and judged.

use super::cluster::TestCluster;
use super::network::Counts;
use super::panics::{self, Listening, Panic};
use super::trace::Trace;
use crate::node::Builder;
use rref_core::Rules;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// What a test gives: `?` works with any error, and with texts.
pub type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The variable that names the one seed to run, whatever the test says.
const SEED: &str = "RREF_SEED";
/// The variable that names the folder for traces of failed runs.
const FOLDER: &str = "RREF_TESTKIT_DIR";
/// Events that a failure's text shows.
const TAIL: usize = 40;
/// Events in a failure's diagram: more do not fit a screen.
const DIAGRAM: usize = 200;

pub(super) struct Settings {
    pub(super) names: Vec<String>,
    pub(super) make: Box<dyn Fn(&str) -> Builder>,
    pub(super) latency: Range<Duration>,
    pub(super) full_mesh: bool,
    pub(super) trace_events: usize,
    pub(super) rules: Rules,
    limit: Duration,
    leaks_allowed: bool,
    panics_allowed: bool,
}

/// Sets up a simulated cluster. Made by [`TestCluster::builder`].
#[must_use = "nothing happens until `run`"]
pub struct ClusterBuilder {
    settings: Settings,
    seeds: Range<u64>,
}

impl TestCluster {
    /// Sets up a cluster whose nodes `make` sets up: the same function that the program itself uses.
    ///
    /// What it says of transport and addresses is overruled; all else is as in production.
    ///
    /// ```
    /// use rref::prelude::*;
    /// use rref::testkit::{TestCluster, ms};
    ///
    /// fn twice(x: i64) -> i64 { 2 * x }
    ///
    /// fn node(name: &str) -> rref::Builder { Node::builder(name).function(twice) }
    ///
    /// TestCluster::builder(node).nodes(3).latency(ms(1)..ms(20)).seeds(0..5).run(async |cluster| {
    ///     let answer = cluster.node("n1").call("n3", twice, (21,));
    ///     cluster.partition(["n3"]);
    ///     cluster.advance(ms(5_000)).await;
    ///     cluster.heal();
    ///     assert_eq!(answer.await?, 42);
    ///     Ok(())
    /// });
    /// ```
    pub fn builder(make: impl Fn(&str) -> Builder + 'static) -> ClusterBuilder {
        let settings = Settings {
            names: numbered(3),
            make: Box::new(make),
            latency: Duration::from_millis(1)..Duration::from_millis(10),
            full_mesh: false,
            trace_events: 10_000,
            rules: Rules::ALL,
            limit: Duration::from_secs(3600),
            leaks_allowed: false,
            panics_allowed: false,
        };
        ClusterBuilder { settings, seeds: 0..1 }
    }
}

/// `n1`, `n2`, ...
fn numbered(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("n{n}")).collect()
}

impl ClusterBuilder {
    /// How many nodes; they are named `n1`, `n2`, ... Default 3.
    pub fn nodes(mut self, count: usize) -> Self {
        self.settings.names = numbered(count);
        self
    }

    /// The nodes' names, instead of `n1`, `n2`, ...
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.settings.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// The seed that all randomness comes from. Default 0.
    pub fn seed(self, seed: u64) -> Self {
        self.seeds(seed..seed.saturating_add(1))
    }

    /// Runs the test once with each of these seeds.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// How long anything takes from one node to another: drawn anew for each write, in whole
    /// milliseconds, the end excluded. Default 1 ms to 10 ms.
    pub fn latency(mut self, latency: Range<Duration>) -> Self {
        self.settings.latency = latency;
        self
    }

    /// Connects each pair of nodes at the start, the one that is named first to the other.
    ///
    /// By default each node joins through the first one and connects to others when it has something
    /// for them, as in production.
    pub fn full_mesh(mut self) -> Self {
        self.settings.full_mesh = true;
        self
    }

    /// How much virtual time a run may take. Default an hour.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.settings.limit = limit;
        self
    }

    /// Does not check, at the end, that every object has been freed.
    pub fn allow_leaks(mut self) -> Self {
        self.settings.leaks_allowed = true;
        self
    }

    /// Panics of handlers and functions do not fail the test.
    pub fn allow_panics(mut self) -> Self {
        self.settings.panics_allowed = true;
        self
    }

    /// How many of the newest events are kept. Default 10,000; 0 for none, which is faster. The hash is
    /// that of all events in any case.
    pub fn trace_events(mut self, count: usize) -> Self {
        self.settings.trace_events = count;
        self
    }

    /// Leaves out one rule of the protocol, to show that a test notices: for tests of rref itself.
    ///
    /// # Panics
    /// If there is no mutant of that name.
    #[doc(hidden)]
    pub fn mutant(mut self, name: &str) -> Self {
        let rules = &mut self.settings.rules;
        match name {
            "unpin_at_send" => rules.pin_until_settled = false,
            "release_unguarded" => rules.guard_release = false,
            // Any other is the name of the rule itself.
            _ => match Rules::each_omitted().find(|(rule, _)| *rule == name) {
                Some((_, omitted)) => *rules = omitted,
                None => panic!("there is no mutant `{name}`"),
            },
        }
        self
    }

    /// Runs the test, once for each seed, until one fails.
    ///
    /// Call it from a plain `#[test]` function: a simulation has a runtime of its own. The test has
    /// passed when it returns `Ok`, no handler has panicked unnoticed, and every object has been freed.
    ///
    /// The environment variable `RREF_SEED` chooses one seed instead. The trace of a failed run and a
    /// sequence diagram are written to files in `RREF_TESTKIT_DIR` (default: `rref-testkit` in the
    /// system's folder for temporary files).
    ///
    /// # Panics
    /// If a run fails: the text says why, what each node has, what happened last, and how to repeat it.
    #[track_caller]
    pub fn run(self, test: impl AsyncFn(TestCluster) -> TestResult) -> Summary {
        let seeds = match std::env::var(SEED) {
            Err(_) => self.seeds.clone(),
            Ok(text) => match text.trim().parse::<u64>() {
                Ok(seed) => seed..seed.saturating_add(1),
                Err(_) => panic!("{SEED} must be a number, not `{text}`"),
            },
        };
        let mut total = Summary::default();
        let simulation = Simulation { settings: Rc::new(self.settings) };
        for seed in seeds {
            match simulation.run(seed, &test) {
                Ok(summary) => total.add(&summary),
                Err(failure) => panic!("{failure}\n{}", failure.written()),
            }
        }
        total
    }

    /// What runs single seeds: for programs that do something else with a failure.
    pub fn build(self) -> Simulation {
        Simulation { settings: Rc::new(self.settings) }
    }
}

/// A cluster that is set up, to be run with any seed.
///
/// ```
/// use rref::prelude::*;
/// use rref::testkit::TestCluster;
///
/// let simulation = TestCluster::builder(|name| Node::builder(name)).nodes(2).build();
/// let failure = simulation.run(7, async |_| Err("no".into())).unwrap_err();
/// assert_eq!((failure.seed, failure.reason.as_str()), (7, "no"));
/// ```
pub struct Simulation {
    settings: Rc<Settings>,
}

impl Simulation {
    /// Runs the test once, with this seed.
    ///
    /// # Errors
    /// How it failed.
    ///
    /// # Panics
    /// Inside of another runtime.
    #[track_caller]
    pub fn run(
        &self,
        seed: u64,
        test: impl AsyncFnOnce(TestCluster) -> TestResult,
    ) -> Result<Summary, Box<Failure>> {
        if tokio::runtime::Handle::try_current().is_ok() {
            panic!(
                "a simulation has a runtime of its own: call it from a plain `#[test] fn`, not an async one"
            );
        }
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            match runtime.enable_all().start_paused(true).build() {
                Ok(runtime) => runtime,
                Err(error) => panic!("cannot make a runtime: {error}"),
            }
        };
        actix_rt::System::with_tokio_rt(runtime).block_on(self.live(seed, test))
    }

    async fn live(
        &self,
        seed: u64,
        test: impl AsyncFnOnce(TestCluster) -> TestResult,
    ) -> Result<Summary, Box<Failure>> {
        let settings = &*self.settings;
        let cluster = TestCluster::new(self.settings.clone(), seed);
        let teller = cluster.clone();
        let listening = Listening::start(move |panic| teller.panicked(panic));
        let body = async {
            cluster.boot().await?;
            test(cluster.clone()).await?;
            if !settings.leaks_allowed {
                cluster.finish().await?;
            }
            Ok(())
        };
        let ended = timeout(settings.limit, contained(body)).await;
        drop(listening);
        let panics = cluster.take_panics();
        let reason = match ended {
            Err(_) => Some(format!("the test is not over after {:?} of virtual time", settings.limit)),
            Ok(Err(reason)) => Some(reason),
            Ok(Ok(())) if !panics.is_empty() && !settings.panics_allowed => {
                Some("something panicked, and the test did not ask for it (`take_panics`)".to_string())
            }
            Ok(Ok(())) => None,
        };
        let trace = cluster.trace();
        let result = match reason {
            None => Ok(Summary {
                runs: 1,
                virtual_time: cluster.now(),
                counts: cluster.counts(),
                trace_hash: trace.hash(),
            }),
            Some(reason) => Err(Box::new(Failure { seed, reason, panics, report: cluster.report(), trace })),
        };
        cluster.end();
        result
    }
}

/// Runs the test's own code; its panic is the reason for its failure.
async fn contained(body: impl Future<Output = TestResult>) -> Result<(), String> {
    let mut body = pin!(body);
    poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(task))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(ended)) => Poll::Ready(ended.map_err(|error| error.to_string())),
        Err(panic) => Poll::Ready(Err(panics::text(&*panic))),
    })
    .await
}

/// What runs have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many.
    pub runs: u64,
    /// Virtual time that has passed in all of them.
    pub virtual_time: Duration,
    /// What has happened on their networks.
    pub counts: Counts,
    /// A hash of everything that has happened; see [`Trace`].
    pub trace_hash: u64,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.runs += other.runs;
        self.virtual_time += other.virtual_time;
        self.counts.connections += other.counts.connections;
        self.counts.broken += other.counts.broken;
        self.counts.frames += other.counts.frames;
        self.trace_hash = self.trace_hash.rotate_left(1) ^ other.trace_hash;
    }
}

/// A run that has failed. Its `Display` says everything that helps to find out why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// What the test said.
    pub reason: String,
    /// The panics that nobody had asked for.
    pub panics: Vec<Panic>,
    /// What each node had.
    pub report: String,
    /// What had happened.
    pub trace: Trace,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "with seed {}: {}", self.seed, self.reason)?;
        for panic in &self.panics {
            writeln!(f, "panic {panic}")?;
        }
        write!(f, "\nwhat each node had:\n{}\nwhat happened last:\n{}", self.report, self.trace.tail(TAIL))
    }
}

impl Failure {
    /// Writes the trace and the diagram to files, and says where they are and how to repeat the run.
    fn written(&self) -> String {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test");
        let folder =
            std::env::var_os(FOLDER).map_or_else(|| std::env::temp_dir().join("rref-testkit"), PathBuf::from);
        let files = self.write_to(&folder, &format!("{}-{}", test.replace("::", "-"), self.seed));
        format!("{files}\nto repeat it: {SEED}={} cargo test {test}", self.seed)
    }

    /// Writes the whole trace, and a sequence diagram of its end, to two files in `folder`. Says where they
    /// are, or why they are not.
    pub fn write_to(&self, folder: &Path, name: &str) -> String {
        let base = folder.join(name);
        let (text, diagram) = (base.with_extension("txt"), base.with_extension("mmd"));
        let files = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&text, format!("{self}\n\n{}", self.trace)))
            .and_then(|()| std::fs::write(&diagram, self.trace.mermaid(DIAGRAM)));
        match files {
            Ok(()) => format!("the whole trace: {}\nas a diagram: {}", text.display(), diagram.display()),
            Err(error) => format!("the trace cannot be written to {}: {error}", folder.display()),
        }
    }
}
