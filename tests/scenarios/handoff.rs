//! References on their way from one node to another: what a hand-off waits for, what it costs, what
//! puts it in order, and what becomes of those that never arrive.

use crate::common::program::*;
use crate::common::{assert_no_leaks, bare, cluster, cluster_of, holders, millis, seconds, until};
use rref::prelude::*;
use std::time::Duration;
use tokio::time::Instant;

fn there<T>(found: Option<T>) -> anyhow::Result<T> {
    found.ok_or_else(|| anyhow::anyhow!("nothing there"))
}

fn same(x: RRef<Counter>, y: RRef<Counter>) -> bool {
    x == y
}

/// Catches: a holder that counts an object once however often it was sent, so that the first copy
/// dropped takes it from the others; and a claim for each copy.
#[test]
fn duplicate_to_same_actor() {
    cluster_of(
        |builder| builder.function(same),
        async |[a, b, c], _| {
            let shelf = a.remote("c", shelf, ())?;
            let x = a.remote("b", counter, (0,))?;
            shelf.send(Put(x.clone())).await?;
            until("c is listed", || holders(&b, &x) == Some(vec!["a".into(), "c".into()])).await;
            let quiet = |node: &Node| node.report().peers.iter().all(|peer| peer.unacknowledged == 0);
            until("all is acknowledged", || [&a, &b, &c].into_iter().all(quiet)).await;
            let told_b =
                || c.report().peers.iter().find(|peer| peer.name == "b").map(|peer| peer.frames_sent);
            let before = told_b();
            shelf.send(Put(x.clone())).await?;
            shelf.send(Put(x.clone())).await?;
            // Twice in one message as well.
            assert!(a.call("c", same, (x.clone(), x.clone())).await?);
            tokio::time::sleep(seconds(1)).await;
            assert_eq!(told_b(), before, "c told b what b knew");
            drop(x);
            for left in (0..3).rev() {
                let copy = there(shelf.send(Take).await?)?;
                assert_eq!(copy.send(Add(1)).await?, 3 - left);
                drop(copy);
                tokio::time::sleep(seconds(1)).await;
                assert_eq!(b.report().objects.len(), usize::from(left > 0), "with {left} copies left");
            }
            Ok(())
        },
    );
}

/// Everything the owner says or hears is a second late; nobody else is.
#[test]
fn three_party_no_wait() {
    cluster(async |[a, _b, c], gate| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        shelf.ready().await?;
        for other in ["a", "c"] {
            gate.partition_oneway([other], ["b"]);
            gate.partition_oneway(["b"], [other]);
        }
        let handed_on = async {
            let begun = Instant::now();
            assert_eq!(shelf.send(Count).await?, 0);
            let without = begun.elapsed();
            let begun = Instant::now();
            assert_eq!(shelf.send(Put(x.clone())).await?, 1);
            let with = begun.elapsed();
            // Back again, as a result, and as an argument of a creation.
            let begun = Instant::now();
            let back = there(shelf.send(Take).await?)?;
            let returned = begun.elapsed();
            let begun = Instant::now();
            assert!(a.remote("c", drop_it, (back,))?.to_here().await?);
            let created_with = begun.elapsed();
            // The links that it takes are a few milliseconds long.
            for time in [without, with, returned, created_with] {
                assert!(time < millis(100), "{time:?}");
            }
            assert!(c.report().peers.iter().any(|peer| peer.unacknowledged > 0), "its claim was not late");
            anyhow::Ok(())
        };
        let late = async {
            tokio::time::sleep(seconds(1)).await;
            gate.heal();
        };
        tokio::join!(handed_on, late).0?;
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

/// A message with a handle that nobody handles.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Unheard(RRef<Counter>);

impl Handler<Unheard> for Value<Rate> {
    type Result = ();

    fn handle(&mut self, _: Unheard, _: &mut Context<Self>) {}
}

/// Messages that arrive where nobody takes them: what they carry is let go of there and here.
#[test]
fn undeliverable_message_releases_refs() {
    cluster(async |[a, b, c], _| {
        let x = a.remote("b", counter, (7,))?;
        let rate = a.remote("c", rate, (0.5,))?;
        let dead = a.remote("c", counter, (0,))?;
        let y = a.remote("b", add, (1, 2))?;
        assert!(matches!(dead.send(Panic("dies".into())).await, Err(Error::ObjectDied { .. })));
        let stopped = a.remote("c", shelf, ())?;
        stopped.stop().await?;
        // Three times each: what is left behind may show with the second only.
        for _ in 0..3 {
            let unheard = rate.send(Unheard(x.clone())).await;
            assert!(matches!(unheard, Err(Error::NotRegistered { .. })), "{unheard:?}");
            let late = stopped.send(Put(x.clone())).await;
            assert!(matches!(late, Err(Error::Gone(_))), "{late:?}");
            let late = dead.send(PanicWith(y.clone())).await;
            assert!(matches!(late, Err(Error::ObjectDied { .. })), "{late:?}");
            dead.do_send(PanicWith(y.clone()))?;
            rate.do_send(Unheard(x.clone()))?;
            stopped.do_send(Put(x.clone()))?;
            let never = rate.remote(Unheard(x.clone()))?;
            let error = never.ready().await;
            assert!(matches!(error, Err(Error::CreateFailed(_))), "{error:?}");
        }
        let only_a = Some(vec!["a".to_string()]);
        until("c has let go", || holders(&b, &x) == only_a && holders(&b, &y) == only_a).await;
        until("a is told so", || a.report().held.iter().all(|held| held.pins.is_empty())).await;
        assert!(c.report().held.is_empty());
        assert_eq!(x.send(Add(1)).await?, 8);
        drop((x, y));
        until("both are freed", || b.report().objects.is_empty()).await;
        Ok(())
    });
}

/// Calls, casts and creations that one node may have unfinished at another.
const WINDOW: i64 = 65_536;

/// The same for a message that has not even left, for want of room: its caller gives up, or the one it
/// is for is lost.
#[test]
fn undeliverable_message_releases_refs_while_it_waits() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], gate| {
            let busy = a.remote("c", counter, (0,)).unwrap();
            let shelf = a.remote("c", shelf, ()).unwrap();
            shelf.ready().await.unwrap();
            busy.do_send(Nap(600_000)).unwrap();
            for n in 0..WINDOW {
                busy.do_send(Log(n)).unwrap();
            }
            let waiting =
                |node: &Node| node.report().peers.iter().map(|peer| peer.waiting_for_credit).sum::<usize>();
            until("the window is full", || waiting(&a) > 0).await;
            let xs: Vec<_> = (0..4).map(|n| a.remote("b", counter, (n,)).unwrap()).collect();
            let [given_up, late, cast, lost] = xs.try_into().unwrap();
            until("all are made", || {
                b.report().objects.iter().filter(|object| object.state == "live").count() == 4
            })
            .await;
            let given_up = shelf.send(Put(given_up));
            let late = shelf.send(Put(late)).timeout(seconds(1));
            shelf.do_send(Put(cast)).unwrap();
            let lost = shelf.send(Put(lost));
            tokio::time::sleep(millis(500)).await;
            assert_eq!(b.report().objects.len(), 4, "freed under a message that waits");
            drop(given_up);
            until("the first is freed", || b.report().objects.len() == 3).await;
            assert_eq!(late.await, Err(Error::Timeout(Duration::from_secs(1))));
            until("the second is freed", || b.report().objects.len() == 2).await;
            assert!(waiting(&a) > 0 && c.report().held.is_empty());
            gate.crash("c");
            let lost = lost.await;
            assert!(matches!(lost, Err(Error::NotSent { .. })), "{lost:?}");
            until("all are freed", || b.report().objects.is_empty()).await;
            drop((busy, shelf));
            assert_no_leaks(&[&a, &b]).await;
            Ok(())
        },
    );
}

/// Between callers only a flush makes an order, and it makes one.
#[test]
fn flush_orders_across_handoff() {
    cluster(async |[a, b, _c], gate| {
        let x = a.remote("b", counter, (0,))?;
        assert_eq!(a.call("c", bump, (x.clone(), 0)).await?, Ok(0));
        // What is on its way when the reference is handed on may well come second.
        gate.partition_oneway(["a"], ["b"]);
        x.do_send(Add(1))?;
        assert_eq!(a.call("c", bump, (x.clone(), 10)).await?, Ok(10));
        gate.heal();
        assert_eq!(x.send(Add(0)).await?, 11);
        // Not after a flush, however late it is and however long the object is busy.
        gate.partition_oneway(["a"], ["b"]);
        x.do_send(Nap(5000))?;
        x.do_send(Add(100))?;
        let late = async {
            tokio::time::sleep(seconds(1)).await;
            gate.heal();
        };
        let (flushed, ()) = tokio::join!(x.flush(), late);
        flushed?;
        let object = there(b.report().objects.into_iter().find(|object| object.id == x.id()))?;
        assert_eq!((object.queued, object.calls), (0, 0), "not all has been handled");
        gate.partition_oneway(["a"], ["b"]);
        assert_eq!(a.call("c", bump, (x.clone(), 1000)).await?, Ok(1111));
        gate.heal();
        Ok(())
    });
}

/// An owner that its new holder cannot reach holds up what is said of its own objects, and of no others.
#[test]
fn one_dead_owner_does_not_hold_others_pins() {
    cluster(async |[a, b, c, d], gate| {
        let shelf = a.remote("c", shelf, ())?;
        let (x, y) = (a.remote("b", counter, (7,))?, a.remote("d", counter, (7,))?);
        for made in [x.ready(), y.ready(), shelf.ready()] {
            made.await?;
        }
        gate.partition_oneway(["c"], ["b"]);
        gate.cut_connections();
        let cut_off = || c.report().peers.iter().any(|peer| peer.name == "b" && peer.link != "connected");
        until("c has lost b", cut_off).await;
        shelf.send(Put(x.clone())).await?;
        shelf.send(Put(y.clone())).await?;
        // Only a's pin on x waits for b.
        let pinned = || a.report().held.into_iter().filter(|held| !held.pins.is_empty()).map(|held| held.id);
        until("y's hand-off is settled", || pinned().eq([x.id()])).await;
        drop((there(shelf.send(Take).await?)?, y));
        until("it is freed", || d.report().objects.is_empty()).await;
        // As long as it takes for a new one: settled, then passed on again.
        let z = a.remote("d", counter, (7,))?;
        shelf.send(Put(z.clone())).await?;
        drop((there(shelf.send(Take).await?)?, z));
        until("it is freed", || d.report().objects.is_empty()).await;
        assert!(cut_off(), "b was not out of reach");
        let id = x.id();
        drop(x);
        tokio::time::sleep(seconds(1)).await;
        assert!(pinned().eq([id]), "x is not pinned until c can claim it");
        gate.heal();
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        until("x's hand-off is settled", || pinned().next().is_none()).await;
        assert_eq!(holders(&b, &x), Some(vec!["a".into()]));
        Ok(())
    });
}

/// How long, in virtual time, each thing takes that a user does with references to objects at `b`.
async fn times(
    a: &Node,
    x: &RRef<Counter>,
    shelf: &RRef<Shelf>,
) -> anyhow::Result<Vec<(&'static str, Duration)>> {
    let mut times = Vec::new();
    let mut begun = Instant::now();
    let mut took = |what| {
        times.push((what, begun.elapsed()));
        begun = Instant::now();
    };
    let copy = x.clone();
    took("clone");
    copy.do_send(Add(1))?;
    took("do_send");
    let call = copy.send(Add(1));
    took("send");
    let made = a.remote("b", counter, (0,))?;
    took("remote");
    let result = made.remote(Snapshot)?;
    took("remote of a message");
    let weak = result.downgrade();
    took("downgrade");
    drop((made, result, weak));
    took("drop of the last");
    shelf.do_send(Put(copy.clone()))?;
    took("hand-off, not awaited");
    drop(copy);
    took("drop after the hand-off");
    let taken = there(shelf.send(Take).await?)?;
    took("hand-off, there and back");
    a.call("c", drop_it, (taken,)).await?;
    took("hand-off, there and dropped");
    drop(call);
    Ok(times)
}

/// Whatever is done with references, but for calls of which the answer is awaited, takes as long with the owner a
/// second away as with it next door. Catches: anything that asks the owner first.
#[test]
fn nothing_waits_for_the_owner() {
    cluster(async |[a, _b, _c], cluster| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        shelf.ready().await?;
        // What is said for the first time takes longer, and random delays of the others' links do not help.
        let _ = times(&a, &x, &shelf).await?;
        let near = times(&a, &x, &shelf).await?;
        for other in ["a", "c"] {
            cluster.delay(other, "b", seconds(1));
            cluster.delay("b", other, seconds(1));
        }
        let far = times(&a, &x, &shelf).await?;
        for ((what, near), (_, far)) in near.into_iter().zip(far) {
            // The links between a and c are up to 4 ms long, each way.
            let limit = if what.starts_with("hand-off, there") { millis(16) } else { Duration::ZERO };
            assert!(far.max(near) <= limit, "{what}: {near:?} with the owner near, {far:?} with it far");
        }
        Ok(())
    });
}
