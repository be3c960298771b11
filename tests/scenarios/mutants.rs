//! That these tests can fail: for each group of scenarios one that does when a rule of the protocol is left out.
//!
//! The rules one by one, against every interleaving, are the models' business.

use crate::common::program::*;
use crate::common::{holders, mutant, needs, seconds, until};

fn there<T>(found: Option<T>) -> anyhow::Result<T> {
    found.ok_or_else(|| anyhow::anyhow!("nothing there"))
}

/// B, lifetime: the owner sends a reference again while the last one's release is under way.
#[test]
fn releases_are_guarded() {
    needs("guard_release", async |[a, b], cluster| {
        let shelf = a.host(Shelf::default())?;
        shelf.share_with("b", "shelf").await?;
        let theirs = b.shared::<Shelf>("shelf").await?;
        b.unregister_name("shelf");
        for _ in 0..20 {
            let x = b.host(Counter(0))?;
            theirs.send(Put(x.clone())).await?;
            theirs.do_send(Put(x.clone()))?;
            // The only one at a goes while the second comes.
            drop(shelf.send(Take).await?);
            drop(x);
            cluster.advance(seconds(1)).await;
            let x = there(shelf.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, 1);
        }
        Ok(())
    });
}

/// C, hand-off: sent and dropped at once.
#[test]
fn what_is_handed_on_is_pinned() {
    needs("pin_until_settled", async |[a, b, c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        shelf.ready().await?;
        for _ in 0..20 {
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            // c's claim takes its time.
            cluster.delay("c", "b", seconds(1));
            shelf.send(Put(x)).await?;
            cluster.advance(seconds(1)).await;
            cluster.delay("c", "b", seconds(0));
            let x = there(shelf.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, 8);
            assert!(b.report().objects.len() <= 1 && c.report().objects.len() == 1);
        }
        Ok(())
    });
}

/// D, creation: a third party knows the object before its owner does.
#[test]
fn claims_that_come_first_wait() {
    needs("park_claims", async |[a, b, _c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        shelf.ready().await?;
        cluster.delay("a", "b", seconds(1));
        let x = a.remote("b", counter, (7,))?;
        shelf.send(Put(x.clone())).await?;
        cluster.advance(seconds(3)).await;
        cluster.delay("a", "b", seconds(0));
        let id = x.id();
        drop(x);
        let listed = || b.report().objects.into_iter().find(|object| object.id == id);
        until("only c is listed", || listed().is_none_or(|object| object.holders == ["c"])).await;
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

/// E, leases: a holder that sleeps for longer than its lease, but not than the grace.
#[test]
fn fences_wait_for_the_grace() {
    needs("wait_for_grace", async |[a, b, _c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        shelf.send(Put(x.clone())).await?;
        until("c holds it", || holders(&b, &x).is_some_and(|holders| holders.contains(&"c".into()))).await;
        drop(x);
        cluster.advance(seconds(5)).await;
        cluster.pause("c");
        cluster.advance(seconds(45)).await;
        cluster.resume("c");
        cluster.advance(seconds(5)).await;
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

/// F, order: connections that break.
#[test]
fn frames_that_come_twice_count_once() {
    needs("drop_duplicates", async |[a, _b], cluster| {
        let x = a.remote("b", counter, (0,))?;
        for round in 0..50 {
            let calls = [x.send(Log(3 * round)), x.send(Log(3 * round + 1))];
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            cluster.cut_connections();
            assert!(x.send(Log(3 * round + 2)).await?);
            for call in calls {
                assert!(call.await?);
            }
        }
        Ok(())
    });
}

/// Tables that differ, which takes a rule left out, are found out by digests, made equal, and counted.
#[test]
fn digest_divergence_injected() {
    mutant("guard_release", async |[a, b], cluster| {
        let shelf = a.host(Shelf::default())?;
        shelf.share_with("b", "shelf").await?;
        let theirs = b.shared::<Shelf>("shelf").await?;
        b.unregister_name("shelf");
        let x = b.host(Counter(0))?;
        theirs.send(Put(x.clone())).await?;
        theirs.do_send(Put(x.clone()))?;
        drop(shelf.send(Take).await?);
        until("the release has struck off a", || holders(&b, &x) == Some(vec![])).await;
        let divergences = || a.report().divergences + b.report().divergences;
        assert_eq!(divergences(), 0);
        until("a is listed again", || holders(&b, &x) == Some(vec!["a".into()])).await;
        assert_eq!(divergences(), 1);
        cluster.advance(seconds(60)).await;
        assert_eq!(divergences(), 1);
        // b's own one is not needed any more.
        drop((x, theirs));
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 1);
        Ok(())
    });
}
