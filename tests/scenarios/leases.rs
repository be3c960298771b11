//! Nodes that fall silent: what a crash frees and what it must not, who returns with what, and what a
//! session that begins anew carries on.

use crate::common::program::{self, *};
use crate::common::{assert_no_leaks, bare, cluster, holders, millis, seconds, until};
use rref::prelude::*;
use rref::testkit::TestCluster;
use rref::{Gone, LeaseSettings, NodeReport};

fn there<T>(found: Option<T>) -> anyhow::Result<T> {
    found.ok_or_else(|| anyhow::anyhow!("nothing there"))
}

/// TTL and grace: nobody is dead before.
fn silence() -> std::time::Duration {
    LeaseSettings::default().silence()
}

/// Longer than anything takes that leases decide.
fn long() -> std::time::Duration {
    silence() * 3
}

fn named(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| name.to_string()).collect())
}

fn peer<'a>(report: &'a NodeReport, name: &str) -> anyhow::Result<&'a rref::PeerReport> {
    there(report.peers.iter().find(|peer| peer.name == name))
}

/// A shelf at `owner`, which has one reference, and another one for `user`.
async fn shelf_of(owner: &Node, user: &Node) -> rref::Result<(RRef<Shelf>, RRef<Shelf>)> {
    let shelf = owner.host(Shelf::default())?;
    shelf.share_with(user.name(), "shelf").await?;
    let theirs = user.shared("shelf").await?;
    user.unregister_name("shelf");
    Ok((shelf, theirs))
}

/// A counter at `b` that `a` has made and put on a shelf at `c`, and `a` has let go of.
async fn on_c(a: &Node, b: &Node) -> anyhow::Result<RRef<Shelf>> {
    let shelf = a.remote("c", shelf, ())?;
    let x = a.remote("b", counter, (7,))?;
    shelf.send(Put(x.clone())).await?;
    until("c holds it", || holders(b, &x) == named(&["a", "c"])).await;
    let id = x.id();
    drop(x);
    let listed = |node: &Node| node.report().objects.into_iter().find(|object| object.id == id);
    until("only c holds it", || listed(b).is_some_and(|object| object.holders == ["c"])).await;
    Ok(shelf)
}

/// Catches: memory that is freed as soon as a connection is lost, and memory that is never freed.
#[test]
fn holder_crash_frees_after_ttl_grace() {
    bare::<3>(
        |builder| builder,
        async |[a, b, _c], cluster| {
            let shelf = on_c(&a, &b).await?;
            let begun = cluster.now();
            cluster.crash("c");
            let freed = || b.report().objects.is_empty();
            assert!(!cluster.run_until(freed, silence() - seconds(2)).await, "freed too early");
            // Its last heartbeat was up to 2 s old; a tick, and a moment in which all others say that they are clear.
            assert!(cluster.run_until(freed, seconds(4) + millis(100)).await, "{}", b.report());
            assert!(cluster.now() - begun >= silence() - seconds(2));
            drop(shelf);
            // In the end nobody remembers it.
            let forgotten = || [&a, &b].into_iter().all(|node| peer(&node.report(), "c").is_err());
            assert!(cluster.run_until(forgotten, long()).await, "{}{}", a.report(), b.report());
            assert_no_leaks(&[&a, &b]).await;
            Ok(())
        },
    );
}

/// The owner's link to the receiver gets slower and slower, but never silent.
async fn slow_down(cluster: &TestCluster, from: &str, to: &str) {
    cluster.advance(seconds(5)).await;
    for step in 1..=4 {
        cluster.delay(from, to, seconds(20 * step));
        cluster.advance(seconds(25)).await;
    }
}

/// The receiver's claim takes longer than the introducer's lease lasts: the owner must not free before.
/// Catches: a fence that does not ask whether everybody is clear.
#[test]
fn introducer_crash_after_send() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            let (shelf, theirs) = shelf_of(&c, &a).await?;
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            slow_down(&cluster, "c", "b").await;
            theirs.send(Put(x.clone())).await?;
            drop((x, theirs));
            cluster.crash("a");
            cluster.advance(seconds(75)).await;
            assert_eq!(b.report().objects.len(), 1, "freed while c had it in hand");
            cluster.delay("c", "b", seconds(0));
            let x = there(shelf.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, 8);
            // What the introducer had goes in the end.
            let alone = || holders(&b, &x) == named(&["c"]);
            assert!(cluster.run_until(alone, long()).await, "{}", b.report());
            drop((x, shelf));
            assert_no_leaks(&[&b, &c]).await;
            Ok(())
        },
    );
}

/// Who has passed a reference on is gone: it lives with the next one, and nothing is left of the first.
#[test]
fn receiver_crash_after_forward() {
    bare::<4>(
        |builder| builder,
        async |[a, b, _c, d], cluster| {
            let last = d.host(Shelf::default())?;
            let middle = on_c(&a, &b).await?;
            // c is only a station on the way to d.
            last.share_with("a", "last").await?;
            let at_d = a.shared::<Shelf>("last").await?;
            a.unregister_name("last");
            cluster.advance(seconds(5)).await;
            cluster.delay("d", "b", seconds(10));
            let x = there(middle.send(Peek).await?)?;
            at_d.send(Put(x)).await?;
            cluster.crash("c");
            drop((middle, at_d));
            cluster.advance(silence() + seconds(10)).await;
            let x = there(last.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, 8);
            let alone = || holders(&b, &x) == named(&["d"]) && a.report().held.is_empty();
            assert!(cluster.run_until(alone, long()).await, "{}{}", a.report(), b.report());
            cluster.delay("d", "b", seconds(0));
            drop((x, last));
            assert_no_leaks(&[&a, &b, &d]).await;
            Ok(())
        },
    );
}

/// From a to c to d, and both a and c crash before d's claim is there.
#[test]
fn two_introducers_crash() {
    bare::<4>(
        |builder| builder,
        async |[a, b, _c, d], cluster| {
            let last = d.host(Shelf::default())?;
            last.share_with("c", "last").await?;
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            slow_down(&cluster, "d", "b").await;
            // c's function takes what is shared with it and puts the reference there.
            assert_eq!(a.call("c", put_on_shared, (x.clone(),)).await?, Ok(1));
            drop(x);
            cluster.crash("a");
            cluster.advance(seconds(20)).await;
            cluster.crash("c");
            cluster.advance(seconds(55)).await;
            assert_eq!(b.report().objects.len(), 1, "freed while d had it in hand");
            cluster.delay("d", "b", seconds(0));
            let x = there(last.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, 8);
            let alone = || holders(&b, &x) == named(&["d"]);
            assert!(cluster.run_until(alone, long()).await, "{}", b.report());
            drop((x, last));
            assert_no_leaks(&[&b, &d]).await;
            Ok(())
        },
    );
}

/// The receiver cannot reach the owner for a while; the introducer covers it, however soon it lets go.
#[test]
fn receiver_partitioned_shorter_than_grace() {
    cluster(async |[a, b, c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        shelf.ready().await?;
        for (from, to) in [("b", "c"), ("c", "b")] {
            cluster.partition_oneway([from], [to]);
        }
        shelf.send(Put(x.clone())).await?;
        let id = x.id();
        drop(x);
        cluster.advance(seconds(50)).await;
        let kept: Vec<_> =
            b.report().objects.iter().map(|object| (object.id, object.holders.clone())).collect();
        assert_eq!(kept, [(id, vec!["a".to_string()])]);
        cluster.heal();
        let x = there(shelf.send(Peek).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        until("c is listed", || holders(&b, &x).is_some_and(|holders| holders.contains(&"c".into()))).await;
        drop(shelf);
        until("c has let go", || c.report().held.is_empty()).await;
        Ok(())
    });
}

/// The receiver never reaches the owner again: it is told so, and nobody keeps anything for it.
#[test]
fn receiver_cut_off_from_owner_for_good() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            let (shelf, theirs) = shelf_of(&c, &a).await?;
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            for (from, to) in [("b", "c"), ("c", "b")] {
                cluster.partition_oneway([from], [to]);
            }
            theirs.send(Put(x.clone())).await?;
            drop((x, theirs));
            let x = there(shelf.send(Take).await?)?;
            let freed = || a.report().held.is_empty() && b.report().objects.is_empty();
            assert!(cluster.run_until(freed, long()).await, "{}{}", a.report(), b.report());
            let error = x.send(Add(1)).await;
            assert!(matches!(&error, Err(Error::Unreachable { peer, .. }) if peer == "b"), "{error:?}");
            let broken: Vec<_> = c.report().held.iter().map(|held| held.broken.is_some()).collect();
            assert_eq!(broken, [true], "{}", c.report());
            // The way is there again: the reference stays dead, new ones work.
            cluster.heal();
            until("they are connected", || peer(&c.report(), "b").is_ok_and(|b| b.link == "connected")).await;
            let error = x.send(Add(1)).await;
            assert!(matches!(error, Err(Error::Broken(_))), "{error:?}");
            let y = c.remote("b", counter, (1,))?;
            assert_eq!(y.send(Add(1)).await?, 2);
            drop((x, y, shelf));
            assert_no_leaks(&[&a, &b, &c]).await;
            Ok(())
        },
    );
}

/// A reference to an object of a node that is dead, and forgotten by the receiver: it breaks like any other,
/// and nobody keeps anything for it.
#[test]
fn reference_to_a_forgotten_owner() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            let (shelf, theirs) = shelf_of(&c, &a).await?;
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            // a does not see that b is gone, and has more patience than c.
            cluster.skew_clock("a", -200_000);
            for (from, to) in [("a", "b"), ("b", "a")] {
                cluster.partition_oneway([from], [to]);
            }
            drop(b);
            cluster.crash("b");
            let forgotten = || peer(&c.report(), "b").is_err();
            assert!(cluster.run_until(forgotten, long()).await, "{}", c.report());
            theirs.send(Put(x.clone())).await?;
            drop((x, theirs));
            let broken = || c.report().held.iter().all(|held| held.broken.is_some());
            assert!(!broken(), "it is known to be dead already: {}", c.report());
            assert!(cluster.run_until(broken, long()).await, "{}", c.report());
            assert!(cluster.run_until(|| a.report().held.is_empty(), long()).await, "{}", a.report());
            let x = there(shelf.send(Take).await?)?;
            let error = x.send(Add(1)).await;
            assert!(matches!(error, Err(Error::Unreachable { .. } | Error::Broken(_))), "{error:?}");
            drop((x, shelf));
            assert_no_leaks(&[&a, &c]).await;
            Ok(())
        },
    );
}

/// Who stood still while another node died and came back under its name takes the new one for a rival of the
/// old one, until it has noticed; the new one must not leave for that.
#[test]
fn restart_while_a_peer_stands_still() {
    TestCluster::builder(program::node).nodes(3).run(async |cluster| {
        // The greater of two identities would give way: it is the new one now and then.
        for _ in 0..6 {
            cluster.pause("n2");
            let new = cluster.restart("n3").await?;
            cluster.advance(seconds(8)).await;
            cluster.resume("n2");
            let met = || peer(&new.report(), "n2").is_ok_and(|peer| peer.link == "connected");
            assert!(cluster.run_until(met, seconds(30)).await, "{}", new.report());
            assert!(new.is_ready());
        }
        Ok(())
    });
}

/// The claim was in the part of a session that is lost: the inventory of the next one makes up for it.
#[test]
fn reset_while_awaiting() {
    cluster(async |[a, b, _c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        shelf.ready().await?;
        for (from, to) in [("b", "c"), ("c", "b")] {
            cluster.partition_oneway([from], [to]);
        }
        cluster.cut("b", "c");
        shelf.send(Put(x.clone())).await?;
        let session = |node: &Node, other: &str| peer(&node.report(), other).map(|peer| peer.session);
        let before = session(&b, "c")?;
        // Longer than a session is kept.
        cluster.advance(seconds(20)).await;
        cluster.heal();
        until("c is listed", || holders(&b, &x) == named(&["a", "c"])).await;
        assert!(session(&b, "c")? > before, "the session went on");
        drop(x);
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

/// A session that begins anew: the tables are equal after it, what was under way has a typed end, and
/// nothing is done twice.
#[test]
fn session_reset_inventory() {
    cluster(async |[a, b], cluster| {
        let x = a.remote("b", counter, (0,))?;
        let gone = a.remote("b", probe, ())?;
        let kept = b.remote("a", counter, (5,))?;
        for handle in [&x, &kept] {
            handle.ready().await?;
        }
        gone.ready().await?;
        // The call arrives, its answer does not.
        cluster.partition_oneway(["b"], ["a"]);
        let unknown = x.send(Log(0));
        cluster.advance(seconds(1)).await;
        cluster.partition(["a"]);
        cluster.cut("a", "b");
        drop(gone);
        let error = unknown.timeout(seconds(300)).await;
        assert!(matches!(&error, Err(Error::OutcomeUnknown { peer, .. }) if peer == "b"), "{error:?}");
        cluster.advance(seconds(20)).await;
        let before = peer(&a.report(), "b")?.session;
        cluster.heal();
        until("they are connected", || peer(&a.report(), "b").is_ok_and(|b| b.link == "connected")).await;
        assert!(peer(&a.report(), "b")?.session > before, "the session went on");
        // The first one has run, once.
        assert!(x.send(Log(1)).await?);
        until("what was dropped meanwhile is freed", || probes() == (1, 1)).await;
        assert_eq!(holders(&b, &x), named(&["a"]));
        assert_eq!(holders(&a, &kept), named(&["b"]));
        assert_eq!(kept.send(Add(1)).await?, 6);
        Ok(())
    });
}

/// A holder that sleeps for longer than its lease: what it alone held is gone, and it is told so; what
/// others kept it has again.
#[test]
fn holder_paused_beyond() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            let alone = c.remote("b", counter, (1,))?;
            let shared = c.remote("b", counter, (2,))?;
            shared.share_with("a", "shared").await?;
            let theirs = a.shared::<Counter>("shared").await?;
            a.unregister_name("shared");
            alone.ready().await?;
            cluster.pause("c");
            let struck = || holders(&b, &theirs) == named(&["a"]) && b.report().objects.len() == 1;
            assert!(cluster.run_until(struck, long()).await, "{}", b.report());
            cluster.resume("c");
            let error = alone.send(Add(1)).timeout(seconds(60)).await;
            let expected = [Err(Error::Gone(Gone::LeaseExpired)), Err(Error::Gone(Gone::Freed))];
            // The call may have been under way before the session began anew.
            let unknown = matches!(&error, Err(Error::OutcomeUnknown { .. } | Error::NotSent { .. }));
            assert!(unknown || expected.contains(&error), "{error:?}");
            until("c is listed again", || holders(&b, &theirs) == named(&["a", "c"])).await;
            let error = alone.send(Add(1)).await;
            assert!(expected.contains(&error), "{error:?}");
            assert_eq!(shared.send(Add(1)).await?, 3);
            drop((alone, shared, theirs));
            assert_no_leaks(&[&a, &b, &c]).await;
            Ok(())
        },
    );
}

/// An owner that sleeps finds everybody's heartbeats waiting, and takes nothing from anybody.
#[test]
fn owner_paused_takes_nothing() {
    cluster(async |[a, b, c], cluster| {
        let x = a.remote("b", counter, (1,))?;
        let y = c.remote("b", counter, (2,))?;
        x.ready().await?;
        y.ready().await?;
        cluster.pause("b");
        cluster.advance(silence() - seconds(15)).await;
        cluster.resume("b");
        cluster.advance(seconds(30)).await;
        assert_eq!(holders(&b, &x), named(&["a"]));
        assert_eq!(holders(&b, &y), named(&["c"]));
        assert_eq!((x.send(Add(1)).await?, y.send(Add(1)).await?), (2, 3));
        Ok(())
    });
}

/// An object that was to be created by a node that has crashed: who waits for it is told.
#[test]
fn creator_crash_ends_the_wait() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            // a's creation does not reach b, but the reference reaches c.
            cluster.partition_oneway(["a"], ["b"]);
            let shelf = c.host(Shelf::default())?;
            shelf.share_with("a", "shelf").await?;
            let theirs = a.shared::<Shelf>("shelf").await?;
            let x = a.remote("b", counter, (7,))?;
            theirs.send(Put(x)).await?;
            drop(theirs);
            let x = there(shelf.send(Take).await?)?;
            let waiting = x.send(Add(1)).timeout(long());
            cluster.crash("a");
            let error = waiting.await;
            assert_eq!(error, Err(Error::Gone(Gone::CreatorDied)));
            cluster.heal();
            drop((x, shelf));
            assert!(cluster.run_until(|| b.report().parked == 0, long()).await);
            assert_no_leaks(&[&b, &c]).await;
            Ok(())
        },
    );
}

/// Clocks that run fast, slow, or jump: nobody loses what it holds, and the dead are still found.
#[test]
fn clock_step_and_drift() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], cluster| {
            let x = a.remote("b", counter, (0,))?;
            let y = c.remote("b", counter, (0,))?;
            x.ready().await?;
            y.ready().await?;
            // A fifth fast, a fifth slow, and then the other way round.
            for (fast, slow) in [("b", "a"), ("a", "b"), ("c", "b")] {
                cluster.skew_clock(fast, 200_000);
                cluster.skew_clock(slow, -200_000);
                cluster.advance(seconds(300)).await;
                assert_eq!((holders(&b, &x), holders(&b, &y)), (named(&["a"]), named(&["c"])));
            }
            // Ten hours in a minute: all that b has not seen in them is not missed.
            for _ in 0..60 {
                cluster.step_clock("b", seconds(600));
                cluster.advance(seconds(1)).await;
            }
            cluster.skew_clock("b", 0);
            cluster.advance(seconds(60)).await;
            assert_eq!((holders(&b, &x), holders(&b, &y)), (named(&["a"]), named(&["c"])));
            assert_eq!((x.send(Add(1)).await?, y.send(Add(1)).await?), (1, 1));
            drop(y);
            until("c has let go", || b.report().objects.len() == 1).await;
            cluster.crash("a");
            let freed = || b.report().objects.is_empty();
            assert!(cluster.run_until(freed, long()).await, "{}", b.report());
            drop(x);
            assert_no_leaks(&[&b, &c]).await;
            Ok(())
        },
    );
}

/// Waits for the owner, and for nothing else does anybody.
#[test]
fn send_confirmed_waits_for_the_owner() {
    cluster(async |[a, b, c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        shelf.ready().await?;
        cluster.delay("c", "b", seconds(5));
        let begun = cluster.now();
        shelf.send(Put(x.clone())).await?;
        assert!(cluster.now() - begun < seconds(1), "a plain send waits for nobody");
        drop(there(shelf.send(Take).await?)?);
        let confirmed = shelf.send_confirmed(Put(x.clone()));
        drop(x);
        assert_eq!(confirmed.await?, 1);
        assert!(cluster.now() - begun >= seconds(5));
        assert!(a.report().held.iter().all(|held| held.pins.is_empty()), "{}", a.report());
        assert!(
            b.report().objects.iter().all(|object| object.holders.contains(&"c".into())),
            "{}",
            b.report()
        );
        cluster.delay("c", "b", seconds(0));
        drop(shelf);
        until("all is let go", || c.report().objects.is_empty()).await;
        Ok(())
    });
}
