//! Virtual time, and waiting without sleeping.

use crate::program::*;
use rref::Placement;
use rref::prelude::*;
use rref::testkit::{TestCluster, ms, secs};
use std::cell::Cell;
use std::time::Instant;

#[test]
fn an_hour_passes_at_once_and_timers_keep_to_it() {
    let begun = Instant::now();
    cluster(3).limit(secs(4_000)).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        counter.send(Tick).await?;
        let (start, seconds) = (cluster.now(), 3600);
        cluster.advance(secs(seconds)).await;
        assert_eq!(cluster.now() - start, secs(seconds));
        assert_eq!(counter.send(Add(0)).await?, i64::try_from(seconds)?);
        Ok(())
    });
    // No machine is so slow that it takes as long.
    assert!(begun.elapsed() < secs(3600));
}

#[test]
fn latency_is_within_its_range_and_differs_between_messages() {
    cluster(2).latency(ms(10)..ms(20)).run(async |cluster| {
        let n1 = cluster.node("n1");
        let mut seen = Vec::new();
        for _ in 0..50 {
            let begun = cluster.now();
            n1.call("n2", add, (1, 2)).await?;
            seen.push(cluster.now() - begun);
        }
        // There and back.
        assert!(seen.iter().all(|time| (ms(20)..ms(40)).contains(time)), "{seen:?}");
        assert!(seen.iter().any(|time| time != &seen[0]), "{seen:?}");
        Ok(())
    });
}

#[test]
fn conditions_are_waited_for_until_their_limit() {
    cluster(2).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        counter.do_send(Add(5))?;
        let n2 = cluster.node("n2");
        cluster
            .eventually("n2 has it", || n2.report().objects.iter().any(|object| object.state == "live"))
            .await;
        let begun = cluster.now();
        assert!(!cluster.run_until(|| n2.report().objects.is_empty(), secs(3)).await);
        assert_eq!(cluster.now() - begun, secs(3));
        drop(counter);
        assert!(cluster.run_until(|| n2.report().objects.is_empty(), secs(3)).await);
        // What no node has a part in is seen too.
        let (flag, begun) = (Cell::new(false), cluster.now());
        let raise = async {
            cluster.advance(secs(2)).await;
            flag.set(true);
        };
        let ((), raised) = tokio::join!(raise, cluster.run_until(|| flag.get(), secs(30)));
        assert!(raised && cluster.now() - begun < secs(5));
        Ok(())
    });
}

#[test]
fn every_placement_runs_in_virtual_time() {
    cluster(2).run(async |cluster| {
        let n1 = cluster.node("n1");
        assert_eq!(n1.call("n2", blocking, (3,)).await?, 3);
        let counter = n1.remote("n2", dedicated, ())?;
        counter.send(Tick).await?;
        cluster.advance(ms(10_500)).await;
        assert_eq!(counter.send(Add(0)).await?, 10);
        Ok(())
    });
    assert_ne!(Placement::Blocking, Placement::Dedicated);
}

#[test]
fn actix_actors_of_ones_own_live_in_a_node() {
    cluster(2).run(async |cluster| {
        let sum = cluster.on("n1", async |node| {
            let plain = Counter(1).start();
            let there = plain.send(Add(1)).await.map_err(|error| error.to_string())?;
            let other = node.call("n2", add, (1, 1)).await.map_err(|error| error.to_string())?;
            assert_eq!(Node::current().map(|node| node.name().to_string()), Some("n1".into()));
            Ok::<_, String>(there + other)
        });
        assert_eq!(sum.await??, 4);
        Ok(())
    });
}

#[test]
fn a_probe_stands_in_for_an_actor() {
    cluster(2).run(async |cluster| {
        let (mut probe, counter) = cluster.probe_with::<Counter, Add>("n2", |Add(n)| n * 100)?;
        let n1 = cluster.node("n1");
        // By way of a node that knows it as a counter.
        let elsewhere = cluster.on("n1", async |_| ());
        elsewhere.await?;
        probe.expect_none(secs(5)).await;
        let here: RRef<Counter> = cluster.on("n2", async move |_| counter).await?;
        assert_eq!(here.send(Add(3)).await?, 300);
        here.do_send(Add(4))?;
        here.do_send(Add(5))?;
        probe.expect_in_order([Add(3), Add(4), Add(5)]).await;
        assert_eq!(probe.waiting(), 0);
        assert_eq!(n1.call("n2", add, (1, 1)).await?, 2);
        Ok(())
    });
}

#[test]
#[should_panic(expected = "message 1 is Add(2) and should be Add(3)")]
fn a_probe_minds_the_order() {
    cluster(1).run(async |cluster| {
        let (mut probe, counter) = cluster.probe::<Counter, Add>("n1")?;
        counter.do_send(Add(1))?;
        counter.do_send(Add(2))?;
        probe.expect_in_order([Add(1), Add(3)]).await;
        Ok(())
    });
}

#[test]
#[should_panic(expected = "is not over after 60s of virtual time")]
fn a_test_that_waits_for_ever_ends() {
    cluster(1).limit(secs(60)).run(async |_: TestCluster| std::future::pending().await);
}
