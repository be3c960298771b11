//! Every fault does what it says, and no more.

use crate::program::*;
use rref::prelude::*;
use rref::testkit::{FrameKind, TaskError, ms, secs};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_partition_holds_back_and_healing_delivers() {
    cluster(3).full_mesh().run(async |cluster| {
        let n1 = cluster.node("n1");
        cluster.partition(["n3"]);
        let held = n1.call("n3", add, (1, 2));
        assert_eq!(n1.call("n2", add, (1, 2)).await?, 3);
        // For longer, and calls would not be waited for.
        cluster.advance(secs(3)).await;
        cluster.heal();
        let begun = cluster.now();
        assert_eq!(held.await?, 3);
        assert!(cluster.now() - begun < secs(1));
        Ok(())
    });
}

#[test]
fn a_group_is_cut_off_from_others_but_not_from_itself() {
    cluster(4).full_mesh().run(async |cluster| {
        cluster.partition(["n1", "n2"]);
        assert_eq!(cluster.node("n1").call("n2", add, (1, 2)).await?, 3);
        assert_eq!(cluster.node("n3").call("n4", add, (1, 2)).await?, 3);
        for (from, to) in [("n1", "n3"), ("n4", "n2")] {
            let limit = secs(2);
            let lost = cluster.node(from).call(to, add, (1, 2)).timeout(limit).await;
            assert_eq!(lost, Err(Error::Timeout(limit)));
        }
        cluster.heal();
        Ok(())
    });
}

/// In one direction: the call gets there and its effect is seen, but no reply comes.
#[test]
fn a_oneway_partition_lets_the_other_direction_through() {
    cluster(2).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        counter.ready().await?;
        cluster.partition_oneway(["n2"], ["n1"]);
        assert!(counter.send(Add(1)).timeout(secs(2)).await.is_err());
        let n2 = cluster.node("n2");
        assert_eq!(n2.report().handled.get("ok"), Some(&2), "{}", n2.report());
        cluster.heal();
        assert_eq!(counter.send(Add(1)).await?, 2);
        Ok(())
    });
}

#[test]
fn new_connections_time_out_under_a_partition() {
    cluster(2).run(async |cluster| {
        let n1 = cluster.node("n1");
        cluster.partition(["n2"]);
        cluster.cut("n1", "n2");
        let error = n1.call("n2", add, (1, 2)).timeout(secs(30)).await.unwrap_err();
        let unreachable =
            matches!(error, Error::Unreachable { .. } | Error::NotSent { .. } | Error::OutcomeUnknown { .. });
        assert!(unreachable, "{error:?}");
        cluster.heal();
        n1.wait_for("n2", secs(10)).await?;
        assert_eq!(n1.call("n2", add, (1, 2)).await?, 3);
        Ok(())
    });
}

#[test]
fn a_delayed_way_is_slower_by_just_that() {
    cluster(2).latency(ms(1)..ms(2)).run(async |cluster| {
        let n1 = cluster.node("n1");
        n1.call("n2", add, (1, 2)).await?;
        cluster.delay("n2", "n1", ms(500));
        let begun = cluster.now();
        n1.call("n2", add, (1, 2)).await?;
        assert_eq!(cluster.now() - begun, ms(502));
        cluster.delay("n2", "n1", ms(0));
        let begun = cluster.now();
        n1.call("n2", add, (1, 2)).await?;
        assert_eq!(cluster.now() - begun, ms(2));
        Ok(())
    });
}

#[test]
fn lost_frames_are_sent_again() {
    cluster(2).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        counter.ready().await?;
        for kind in [FrameKind::Call, FrameKind::Reply] {
            let before = cluster.counts().broken;
            cluster.drop_frames_between("n2", "n1", FrameKind::Call, 1);
            cluster.drop_frames(kind, 3);
            counter.send(Add(1)).await?;
            // The one that goes the other way has lost nothing.
            assert_eq!(cluster.frames_to_drop() % 10, if kind == FrameKind::Call { 1 } else { 2 });
            assert_eq!(cluster.counts().broken - before, 3);
        }
        assert_eq!(counter.send(Add(0)).await?, 2, "each call was run once");
        Ok(())
    });
}

#[test]
fn a_crash_drops_everything_and_says_nothing() {
    cluster(2).allow_leaks().run(async |cluster| {
        let n1 = cluster.node("n1");
        let dropped = Rc::new(Cell::new(false));
        let guard = SetOnDrop(dropped.clone());
        let program = cluster.on("n2", async move |node| {
            let _guard = guard;
            let _held = node.remote("n1", counter, ());
            std::future::pending::<()>().await;
        });
        cluster.eventually("n2 holds an object of n1", || n1.report().objects.len() == 1).await;
        let running = n1.call("n2", wait, (60_000,));
        cluster.advance(secs(1)).await;
        let n2 = cluster.node("n2");
        cluster.crash("n2");
        assert!(dropped.get(), "the program was dropped");
        assert_eq!(program.await, Err(TaskError::Crashed("n2".into())));
        assert!(matches!(n2.call("n2", add, (1, 2)).await, Err(Error::ShuttingDown { .. })));
        assert!(matches!(running.await, Err(Error::OutcomeUnknown { .. })));
        let error = n1.call("n2", add, (1, 2)).await.unwrap_err();
        assert!(matches!(error, Error::OwnerDied { .. }), "{error:?}");
        cluster.advance(secs(10)).await;
        // No release was sent: the crash was no farewell.
        assert_eq!(n1.report().objects.len(), 1);
        Ok(())
    });
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn a_restarted_node_is_a_new_one() {
    cluster(3).run(async |cluster| {
        let n1 = cluster.node("n1");
        let old = cluster.node("n3").uid();
        let new = cluster.restart("n3").await?;
        assert_ne!(old, new.uid());
        n1.wait_for("n3", secs(20)).await?;
        assert_eq!(n1.call("n3", add, (1, 2)).await?, 3);
        // The first one, which the others had joined, may go too.
        cluster.restart("n1").await?;
        cluster.node("n2").wait_for("n1", secs(20)).await?;
        assert_eq!(cluster.node("n2").call("n1", add, (1, 2)).await?, 3);
        assert_eq!(cluster.running(), ["n1", "n2", "n3"]);
        Ok(())
    });
}

#[test]
fn a_paused_node_does_nothing_and_then_catches_up() {
    cluster(2).run(async |cluster| {
        let n1 = cluster.node("n1");
        cluster.pause("n2");
        let call = n1.call("n2", add, (1, 2));
        let ticks = Rc::new(Cell::new(0));
        let clock = ticks.clone();
        let _running = cluster.on("n2", async move |_| {
            for _ in 0..100 {
                clock.set(clock.get() + 1);
                tokio::time::sleep(ms(10)).await;
            }
        });
        // For longer, and calls would not be waited for.
        cluster.advance(secs(3)).await;
        assert_eq!(ticks.get(), 0);
        cluster.resume("n2");
        assert_eq!(call.await?, 3);
        cluster.advance(secs(2)).await;
        assert_eq!(ticks.get(), 100);
        Ok(())
    });
}

/// The owner counts how long a caller may wait by its own clock.
#[test]
fn a_fast_clock_ends_calls_too_early() {
    cluster(2).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        for (millionths, run) in [(0, 1), (1_000_000, 1), (-500_000, 2)] {
            cluster.skew_clock("n2", millionths);
            counter.do_send(Nap(6_000))?;
            let added = counter.send(Add(1)).timeout(secs(10)).await;
            assert_eq!(added.is_ok(), millionths <= 0, "{millionths}: {added:?}");
            assert_eq!(counter.send(Add(0)).await?, run);
        }
        Ok(())
    });
}

#[test]
fn a_slow_node_takes_its_time() {
    cluster(2).latency(ms(1)..ms(2)).run(async |cluster| {
        let n1 = cluster.node("n1");
        n1.call("n2", add, (1, 2)).await?;
        cluster.slow("n2", ms(300));
        let begun = cluster.now();
        n1.call("n2", add, (1, 2)).await?;
        assert!(cluster.now() - begun >= ms(300));
        cluster.slow("n2", ms(0));
        cluster.advance(secs(1)).await;
        let begun = cluster.now();
        n1.call("n2", add, (1, 2)).await?;
        assert_eq!(cluster.now() - begun, ms(2));
        Ok(())
    });
}
