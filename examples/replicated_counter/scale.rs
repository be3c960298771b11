//! What a simulation costs.

use rref::prelude::*;
use rref::testkit::{TestCluster, ms, secs};
use std::time::{Duration, Instant};

/// A cluster that does nothing, or in which each node calls each other one every two seconds: virtual over
/// wall time.
pub fn pace(nodes: usize, time: Duration, talks: bool) -> Result<String, String> {
    let node = |name: &str| Node::builder(name).function(make);
    let cluster = TestCluster::builder(node).nodes(nodes).full_mesh();
    let begun = Instant::now();
    let simulation = cluster.limit(time * 2).build();
    let ended = simulation.run(0, async |cluster| {
        for name in cluster.names().iter().filter(|_| talks) {
            let others: Vec<String> =
                cluster.names().iter().filter(|other| *other != name).cloned().collect();
            drop(cluster.on(name, async move |node| {
                loop {
                    for other in &others {
                        let _ = node.call(other.as_str(), make, (0,)).await;
                    }
                    tokio::time::sleep(secs(2)).await;
                }
            }));
        }
        cluster.advance(time).await;
        Ok(())
    });
    let summary = ended.map_err(|failure| failure.to_string())?;
    let wall = begun.elapsed();
    let ratio = summary.virtual_time.as_secs_f64() / wall.as_secs_f64();
    if ratio < 100.0 {
        return Err(format!("a cluster of {nodes} nodes: only {ratio:.0} times as fast as the clock"));
    }
    Ok(format!(
        "{nodes} nodes that {}: {:.0} virtual seconds in {:.1} ms, {ratio:.0} times as fast as the clock",
        if talks { "call each other every 2 s" } else { "are idle" },
        summary.virtual_time.as_secs_f64(),
        wall.as_secs_f64() * 1e3,
    ))
}

/// Nobody knows more than the first node at the start; a reference travels, and is freed behind itself.
pub fn hops(nodes: usize, hops: usize) -> Result<String, String> {
    let node = |name: &str| Node::builder(name).function(make).function(pass);
    let simulation = TestCluster::builder(node).nodes(nodes).latency(ms(1)..ms(20)).trace_events(0).build();
    let begun = Instant::now();
    let mut learned = (Duration::ZERO, Duration::ZERO);
    let ended = simulation.run(0, async |cluster| {
        learned = (begun.elapsed(), cluster.now());
        let route: Vec<String> = (2..2 + hops).map(|n| format!("n{n}")).collect();
        let value = cluster.node("n1").remote(format!("n{nodes}"), make, (42,))?;
        let found = cluster.node("n1").call("n1", pass, (value, route)).await??;
        if found != 42 {
            return Err(format!("{found} has come back instead of 42").into());
        }
        // That everything is freed is checked at the end of every run.
        Ok(())
    });
    let summary = ended.map_err(|failure| failure.to_string())?;
    Ok(format!(
        "{nodes} nodes have learned of each other after {:.0} ms of virtual time and {:.0} ms; a reference through {hops} hops, and everything freed: {:.0} ms in all, {} connections, {} frames{}",
        learned.1.as_secs_f64() * 1e3,
        learned.0.as_secs_f64() * 1e3,
        begun.elapsed().as_secs_f64() * 1e3,
        summary.counts.connections,
        summary.counts.frames,
        memory().map(|mb| format!(", {mb} MB at most")).unwrap_or_default(),
    ))
}

fn make(x: i64) -> i64 {
    x
}

/// Passes a reference along a route; the last node reads it.
async fn pass(value: RRef<i64>, route: Vec<String>) -> Result<i64, String> {
    let node = Node::current().ok_or("no node")?;
    let mut rest = route.into_iter();
    match rest.next() {
        None => value.to_here().await.map_err(|error| error.to_string()),
        Some(next) => {
            let passed = node.call(next, pass, (value, rest.collect::<Vec<_>>()));
            // Boxed: the future would contain itself otherwise.
            let passed: std::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(passed);
            passed.await.map_err(|error: Error| error.to_string())?
        }
    }
}

/// The most memory that this process has had, where the system says so.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb / 1024)
}
