//! The same binary and seed give the same run, to the last byte.

use crate::program::*;
use rref::prelude::*;
use rref::testkit::{Summary, TestCluster, TestResult, ms, secs};

/// Something of everything: calls both ways, hand-offs, names, timers, faults, a crash.
async fn program(cluster: TestCluster) -> TestResult {
    let names: Vec<String> = cluster.names().to_vec();
    let counters: Vec<RRef<Counter>> =
        (1..=4).map(|n| cluster.node("n1").remote(format!("n{n}"), counter, ())).collect::<Result<_, _>>()?;
    for (index, one) in counters.iter().enumerate() {
        one.share_with("n2", format!("counter {index}")).await?;
        one.do_send(Tick)?;
    }
    for round in 0..20 {
        let from = cluster.random(|random| random.pick(&names).cloned()).unwrap_or_default();
        let to = cluster.random(|random| random.pick(&names).cloned()).unwrap_or_default();
        let call = cluster.node(&from).call(to.as_str(), add, (1, 2));
        match round % 5 {
            0 => cluster.partition([&from]),
            1 => cluster.cut_connections(),
            2 => cluster.slow(&to, ms(3)),
            3 => cluster.heal(),
            _ => cluster.slow(&to, ms(0)),
        }
        let _ = call.timeout(secs(8)).await;
    }
    cluster.heal();
    cluster.restart("n5").await?;
    drop(counters);
    Ok(())
}

fn once(seed: u64) -> Summary {
    match cluster(5).latency(ms(1)..ms(30)).allow_leaks().build().run(seed, program) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..3 {
        let first = once(seed);
        assert!(first.counts.frames > 100 && first.counts.broken > 0, "{first:?}");
        assert_eq!(first, once(seed), "seed {seed}");
        // On another thread, with other thread-locals and another stack.
        let other = std::thread::spawn(move || once(seed)).join();
        assert_eq!(Ok(first), other.map_err(|_| "it panicked"));
    }
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(once(0).trace_hash, once(1).trace_hash);
}
