//! What the scenario tests share: clusters in memory under a paused clock, a check that nothing is
//! left behind, and the functions and actors that every node of a cluster registers.
//!
//! The clock is paused, so that a wait of a minute costs nothing and no test depends on how fast the
//! machine is: time passes only when every task waits for it.

pub mod gate;
pub mod program;

use gate::Gate;
use rref::{Builder, Node, NodeReport};
use std::time::Duration;

/// Names of a cluster's nodes, in order.
pub const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Runs `test` on a cluster of nodes named `a`, `b`, ... and checks that nothing is left behind.
///
/// Every reference must be dropped when `test` returns. Of each pair of nodes the one with the
/// smaller name has dialled: see [`Gate`].
pub async fn cluster<const N: usize>(test: impl AsyncFnOnce([Node; N], Gate) -> anyhow::Result<()>) {
    cluster_of(|builder| builder, test).await;
}

/// As [`cluster`], with each node's builder changed by `setup`.
pub async fn cluster_of<const N: usize>(
    setup: impl Fn(Builder) -> Builder,
    test: impl AsyncFnOnce([Node; N], Gate) -> anyhow::Result<()>,
) {
    tokio::time::pause();
    let (nodes, gate) = start(setup).await;
    if let Err(error) = test(nodes.clone(), gate).await {
        panic!("{error:?}\n{}", reports(&nodes));
    }
    assert_no_leaks(&nodes.each_ref()).await;
}

/// A cluster that the test itself takes down. The clock is the test's to pause.
pub async fn start<const N: usize>(setup: impl Fn(Builder) -> Builder) -> ([Node; N], Gate) {
    let gate = Gate::default();
    let mut nodes: Vec<Node> = Vec::new();
    // From the last to the first, so that the smaller name dials.
    for index in (0..N).rev() {
        let name = NAMES[index];
        let mut builder = setup(program::node(name)).transport(gate.of(name)).listen(name).insecure();
        for other in &NAMES[index + 1..N] {
            builder = builder.join(*other);
        }
        match builder.start().await {
            Ok(node) => nodes.insert(0, node),
            Err(error) => panic!("`{name}` does not start: {error}"),
        }
    }
    match nodes.try_into() {
        Ok(nodes) => (nodes, gate),
        Err(_) => unreachable!("one node was made for each name"),
    }
}

/// Waits until no node has an object, a held reference, a pin or a call, then shuts all down.
///
/// This is the end of every test: whatever the test was about, a reference that is lost or counted
/// twice on the way shows here.
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
