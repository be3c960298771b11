//! What the scenario tests share: simulated clusters, a check that nothing is left behind, and the
//! functions and actors that every node of a cluster registers.

pub mod program;

use rref::testkit::{ClusterBuilder, Failure, Summary, TestCluster};
use rref::{Builder, Node, NodeReport};
use std::time::Duration;

/// Names of a cluster's nodes, in order.
pub const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Runs `test` on a cluster of nodes named `a`, `b`, ... and checks that nothing is left behind.
///
/// Every reference must be dropped when `test` returns. Each pair of nodes is connected; the one with the
/// smaller name has dialled.
pub fn cluster<const N: usize>(test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>) {
    cluster_of(|builder| builder, test);
}

/// As [`cluster`], with each node's builder changed by `setup`.
pub fn cluster_of<const N: usize>(
    setup: impl Fn(Builder) -> Builder + 'static,
    test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>,
) {
    run(simulation::<N>(setup), test);
}

/// A cluster that the test itself takes down.
pub fn bare<const N: usize>(
    setup: impl Fn(Builder) -> Builder + 'static,
    test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>,
) {
    run(simulation::<N>(setup).allow_leaks(), test);
}

fn simulation<const N: usize>(setup: impl Fn(Builder) -> Builder + 'static) -> ClusterBuilder {
    TestCluster::builder(move |name| setup(program::node(name)))
        .names(NAMES.into_iter().take(N))
        .latency(millis(0)..millis(4))
        .full_mesh()
        // What a panic does to its callers is what many of these tests are about.
        .allow_panics()
}

fn run<const N: usize>(
    cluster: ClusterBuilder,
    test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>,
) {
    if let Err(failure) = ended(cluster, 0, test) {
        panic!("{failure}");
    }
}

fn ended<const N: usize>(
    cluster: ClusterBuilder,
    seed: u64,
    test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>,
) -> Result<Summary, Box<Failure>> {
    cluster.build().run(seed, async |cluster| match cluster.nodes().try_into() {
        Ok(nodes) => Ok(test(nodes, cluster).await?),
        Err(nodes) => Err(format!("{N} nodes were asked for, and there are {nodes:?}").into()),
    })
}

/// Waits until no node has an object, a held reference, a pin or a call, then shuts all down.
///
/// For clusters that the test takes down; the others end with the same check: whatever the test was about,
/// a reference that is lost or counted twice on the way shows there.
pub async fn assert_no_leaks(nodes: &[&Node]) {
    if !holds_within(|| nodes.iter().all(|node| is_clean(&node.report()))).await {
        panic!("something is left behind:\n{}", reports(nodes.iter().copied()));
    }
    for node in nodes {
        let report = node.shutdown().await;
        assert!(report.leaked.is_empty(), "`{}` leaked {:?}", node.name(), report.leaked);
        assert!(report.complete, "`{}` did not finish its work in time", node.name());
    }
}

fn is_clean(report: &NodeReport) -> bool {
    let alive = |link: &str| !link.starts_with("dead");
    report.objects.is_empty()
        && report.held.is_empty()
        && report.calls == 0
        && report.parked == 0
        && report
            .peers
            .iter()
            .filter(|peer| alive(&peer.link))
            .all(|peer| peer.queued == 0 && peer.running == 0 && peer.unacknowledged == 0)
}

/// Waits until `condition` holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    assert!(holds_within(condition).await, "still not so: {what}");
}

/// Whether `condition` comes to hold within a minute of the paused clock.
async fn holds_within(condition: impl Fn() -> bool) -> bool {
    for _ in 0..60_000 {
        if condition() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

fn reports<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> String {
    nodes.into_iter().map(|node| node.report().to_string()).collect()
}

/// The holders that `owner` lists for an object; none if there is no such object.
pub fn holders<T>(owner: &Node, reference: &rref::RRef<T>) -> Option<Vec<String>> {
    let object = owner.report().objects.into_iter().find(|object| object.id == reference.id())?;
    let mut holders = object.holders;
    holders.sort();
    Some(holders)
}

/// Frames a node has sent to all others.
pub fn frames_sent(node: &Node) -> u64 {
    node.report().peers.iter().map(|peer| peer.frames_sent).sum()
}

/// Seconds, as a duration.
pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Milliseconds, as a duration.
pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// As [`cluster`], with a rule of the protocol left out.
pub fn mutant<const N: usize>(
    rule: &str,
    test: impl AsyncFnOnce([Node; N], TestCluster) -> anyhow::Result<()>,
) {
    run(simulation::<N>(|builder| builder).mutant(rule), test);
}

/// Passes if `test` does, and fails in the same cluster with one of the protocol's rules left out: so that what these
/// tests can find out is seen.
pub fn needs<const N: usize>(rule: &str, test: impl AsyncFn([Node; N], TestCluster) -> anyhow::Result<()>) {
    if let Err(failure) = ended(simulation::<N>(|builder| builder), 0, &test) {
        panic!("with all rules: {failure}");
    }
    let without = |seed| ended(simulation::<N>(|builder| builder).mutant(rule), seed, &test);
    let caught = (0..10).any(|seed| without(seed).is_err());
    assert!(caught, "nobody misses the rule `{rule}`");
}
