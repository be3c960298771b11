//! A replicated counter with a bug that only a partition shows, found in simulation, repaired, and found
//! to be repaired. And what simulation costs: an idle cluster, and one of a hundred nodes.
//!
//! `cargo run --release --example replicated_counter --features testkit`
//!
//! The book's tutorial for people who test actor systems goes through it.

mod scale;
mod service;

use rref::testkit::{ClusterBuilder, Failure, Simulation, TestCluster, TestResult, ms, secs};
use service::{Counter, Read, Way, replica};

const SEEDS: u64 = 50;
const ADDITIONS: i64 = 10;

fn cluster() -> ClusterBuilder {
    TestCluster::builder(service::node).nodes(3).latency(ms(1)..ms(20))
}

/// Counts on three replicas, as a program of the first node, and compares them in the end.
async fn count(cluster: TestCluster, way: Way, partitions: bool) -> TestResult {
    let n1 = cluster.node("n1");
    let replicas = ["n1", "n2", "n3"].map(|name| n1.remote(name, replica, ()));
    let replicas = replicas.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut counter = Counter::new("n1", replicas.clone(), way);
    let program = cluster.on("n1", async move |_| {
        for _ in 0..ADDITIONS {
            counter.add(1).await?;
        }
        Ok::<_, rref::Error>(())
    });
    for _ in 0..ADDITIONS {
        let (victim, cut_off, well) =
            cluster.random(|random| (random.within(2..4), random.below(3_000), random.below(2_000)));
        if partitions {
            cluster.partition([format!("n{victim}")]);
        }
        cluster.advance(ms(cut_off)).await;
        cluster.heal();
        cluster.advance(ms(well)).await;
    }
    program.await??;
    for replica in &replicas {
        let count = replica.send(Read).await?;
        if count != ADDITIONS {
            return Err(format!(
                "the replica on {} says {count} after {ADDITIONS} additions",
                replica.owner()
            )
            .into());
        }
    }
    Ok(())
}

/// The first seed with which the test fails.
fn search(simulation: &Simulation, way: Way, partitions: bool) -> Option<Box<Failure>> {
    (0..SEEDS)
        .find_map(|seed| simulation.run(seed, async |cluster| count(cluster, way, partitions).await).err())
}

fn main() -> Result<(), String> {
    let simulation = cluster().build();
    if let Some(failure) = search(&simulation, Way::Naive, false) {
        return Err(format!("it should work as long as the network does: {failure}"));
    }
    println!("without partitions: {SEEDS} seeds, and every replica counts right");

    let failure = search(&simulation, Way::Naive, true).ok_or("partitions should show the bug")?;
    println!("with partitions: seed {} fails: {}", failure.seed, failure.reason);
    let again = simulation.run(failure.seed, async |cluster| count(cluster, Way::Naive, true).await);
    let again = again.err().ok_or("the same seed should fail again")?;
    let (hash, repeated) = (failure.trace.hash(), again.trace.hash());
    if hash != repeated {
        return Err(format!("the run was not repeated: {hash:016x} and {repeated:016x}"));
    }
    println!("again with seed {}: the same failure, and the same trace ({hash:016x})", failure.seed);
    println!("what happened before the end:\n{}", failure.trace.tail(12));
    let folder = std::env::temp_dir().join("rref-testkit");
    println!("{}", failure.write_to(&folder, "replicated_counter"));

    if let Some(failure) = search(&simulation, Way::Once, true) {
        return Err(format!("the repair does not hold: {failure}"));
    }
    println!("repaired: {SEEDS} seeds with partitions, and every replica counts right");

    println!("{}", scale::pace(5, secs(3600), false)?);
    println!("{}", scale::pace(5, secs(3600), true)?);
    println!("{}", scale::hops(100, 20)?);
    Ok(())
}
