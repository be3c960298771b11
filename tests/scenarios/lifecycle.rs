//! How long objects live: who keeps them, and that everything is freed in the end.

use crate::common::program::*;
use crate::common::{bare, cluster, holders, seconds, until};
use rref::prelude::*;

fn tensor_of(len: usize) -> Tensor<f32> {
    Tensor::from(ndarray::Array1::zeros(len))
}

fn there<T>(found: Option<T>) -> anyhow::Result<T> {
    found.ok_or_else(|| anyhow::anyhow!("nothing there"))
}

/// Catches: a release that is never sent, or sent at the first drop instead of the last.
#[test]
fn drop_last_frees() {
    cluster(async |[a, b], _| {
        let p = a.remote("b", probe, ())?;
        p.ready().await?;
        let more: Vec<_> = (0..10).map(|_| p.clone()).collect();
        drop(p);
        more[3].send(Ping).await?;
        assert_eq!(probes(), (1, 0));
        drop(more);
        until("it is freed", || b.report().objects.is_empty()).await;
        until("its actor is dropped", || probes() == (1, 1)).await;
        // On one's own node as well.
        let own = b.remote("b", probe, ())?;
        own.ready().await?;
        drop(own);
        until("its actor is dropped", || probes() == (2, 2)).await;
        Ok(())
    });
}

/// The caller lets go while the call waits: the argument lives on in the call.
#[test]
fn arg_keeps_alive_while_pending() {
    cluster(async |[a, b, _c], _| {
        let shelf = a.remote("c", shelf, ())?;
        shelf.do_send(Rest(5000))?;
        let x = a.remote("b", counter, (7,))?;
        let put = shelf.send(Put(x.clone()));
        drop(x);
        tokio::time::sleep(seconds(3)).await;
        assert_eq!(b.report().objects.len(), 1, "freed under a waiting call");
        assert_eq!(put.await?, 1);
        let x = there(shelf.send(Take).await?)?;
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

#[test]
fn arg_dropped_after_call() {
    cluster(async |[a, b, c], _| {
        let x = a.remote("b", counter, (7,))?;
        assert!(a.call("c", drop_it, (x.clone(),)).await?);
        until("c has let go", || holders(&b, &x) == Some(vec!["a".into()])).await;
        assert!(c.report().held.is_empty());
        assert_eq!(x.send(Add(1)).await?, 8);
        Ok(())
    });
}

#[test]
fn callee_keeps_in_state() {
    cluster(async |[a, b, _c], _| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        shelf.send(Put(x.clone())).await?;
        drop(x);
        until("only c holds it", || b.report().objects.first().is_some_and(|object| object.holders == ["c"]))
            .await;
        tokio::time::sleep(seconds(10)).await;
        let again = there(shelf.send(Peek).await?)?;
        assert_eq!(again.send(Add(1)).await?, 8);
        // The shelf's end is the end of what it holds.
        drop((again, shelf));
        until("all is freed", || b.report().objects.is_empty()).await;
        Ok(())
    });
}

/// Each object holds the next one, on another node: dropping the head frees all.
#[test]
fn nested_chain_depth5() {
    cluster(async |[a, b, c, d, e], _| {
        let last = a.remote("b", probe, ())?;
        let fifth = a.remote("c", hold_probe, (last,))?;
        let fourth = a.remote("d", hold_1, (fifth,))?;
        let third = a.remote("e", hold_2, (fourth,))?;
        let head = a.remote("b", hold_3, (third,))?;
        head.ready().await?;
        let there = |nodes: &[&Node]| nodes.iter().map(|node| node.report().objects.len()).sum::<usize>();
        until("all is there and a holds the head only", || {
            there(&[&b, &c, &d, &e]) == 5 && a.report().held.len() == 1
        })
        .await;
        tokio::time::sleep(seconds(5)).await;
        assert_eq!((there(&[&b, &c, &d, &e]), probes()), (5, (1, 0)));
        drop(head);
        until("the last one is dropped", || probes() == (1, 1)).await;
        assert_eq!(there(&[&b, &c, &d, &e]), 0);
        Ok(())
    });
}

/// An owner makes an object, gives it away as a result and drops its own handle.
#[test]
fn return_handle() {
    cluster(async |[a, b], _| {
        let x = a.call("b", make_here, (5,)).await?.map_err(anyhow::Error::msg)?;
        until("b has none of its own", || b.report().objects.iter().all(|o| o.local_handles == 0)).await;
        tokio::time::sleep(seconds(5)).await;
        assert_eq!(x.send(Add(1)).await?, 6);
        assert_eq!(holders(&b, &x), Some(vec!["a".into()]));
        Ok(())
    });
}

/// Whatever becomes of a call, the handles in its arguments are let go.
#[test]
fn failing_handler_releases_args() {
    cluster(async |[a, b, _c], _| {
        let x = a.remote("b", add, (1, 2))?;
        let only_a = || holders(&b, &x) == Some(vec!["a".into()]);
        // The handler, a function, a constructor panic; the target is dead, is of a type without it.
        let c = a.remote("c", counter, (0,))?;
        assert!(matches!(c.send(PanicWith(x.clone())).await, Err(Error::ObjectDied { .. })));
        assert!(matches!(c.send(PanicWith(x.clone())).await, Err(Error::ObjectDied { .. })));
        assert!(matches!(a.call("c", explode_with, (x.clone(),)).await, Err(Error::Remote { .. })));
        let never = a.remote("c", explode_with, (x.clone(),))?;
        assert!(matches!(never.to_here().await, Err(Error::CreateFailed(_))));
        assert!(matches!(a.call("c", unregistered, (x.clone(),)).await, Err(Error::NotRegistered { .. })));
        until("c has let go of all", only_a).await;
        // And one that cannot be sent.
        assert!(matches!(a.call("nobody", fetch, (x.clone(),)).await, Err(Error::UnknownPeer { .. })));
        assert_eq!(x.to_here().await?, 3);
        Ok(())
    });
}

fn unregistered(_: RRef<i64>) -> i64 {
    0
}

/// Catches: a Cancel that is not sent, one that ends the wrong call, and a result that comes after
/// its caller has gone and keeps its handles for ever.
#[test]
fn cancelled_call_releases_args_and_result() {
    cluster(async |[a, b, c], _| {
        let shelf = a.remote("c", shelf, ())?;
        let x = a.remote("b", counter, (7,))?;
        shelf.do_send(Rest(5000))?;
        let put = shelf.send(Put(x.clone()));
        let kept = shelf.send(Put(x.clone()));
        until("both wait at c", || c.report().peers.iter().any(|peer| peer.running >= 2)).await;
        drop(put);
        assert_eq!(kept.await?, 1, "the cancelled call has run");
        assert_eq!(shelf.send(Count).await?, 1);
        drop(there(shelf.send(Take).await?)?);
        until("c has let go", || holders(&b, &x) == Some(vec!["a".into()])).await;
        // One that has started: its result comes, and nobody takes it.
        let late = a.call("c", make_late, (x.clone(),));
        until("c works on it", || c.report().peers.iter().any(|peer| peer.running == 1)).await;
        drop(late);
        until("c has let go", || holders(&b, &x) == Some(vec!["a".into()])).await;
        until("the result is freed", || c.report().objects.len() == 1).await;
        // One that has not even been sent, because the request is dropped at once.
        drop(shelf.send(Put(x.clone())));
        tokio::time::sleep(seconds(1)).await;
        assert_eq!(shelf.send(Count).await?, 0);
        Ok(())
    });
}

/// From a to c and back to a, while a has dropped its own.
#[test]
fn handoff_loop() {
    cluster(async |[a, b, _c], faults| {
        let shelf = a.remote("c", shelf, ())?;
        let mut x = a.remote("b", counter, (0,))?;
        for round in 1..=20 {
            let put = shelf.send(Put(x));
            // Every now and then the connections break under it.
            if round % 4 == 0 {
                faults.cut_connections();
            }
            put.await?;
            x = there(shelf.send(Take).await?)?;
            assert_eq!(x.send(Add(1)).await?, round);
        }
        until("c has let go", || holders(&b, &x) == Some(vec!["a".into()])).await;
        Ok(())
    });
}

/// Passed on and dropped in the same breath, with the links in their worst state: the new holder's
/// claim is held up, so that only the sender's pin keeps the object.
#[test]
fn three_party_drop_at_once() {
    cluster(async |[a, b, c], faults| {
        let shelf = a.remote("c", shelf, ())?;
        shelf.ready().await?;
        // The claim, the sender's own frames, the call, and what settles it.
        for held_up in [("c", "b"), ("a", "b"), ("a", "c"), ("c", "a")] {
            let x = a.remote("b", counter, (7,))?;
            x.ready().await?;
            faults.partition_oneway([held_up.0], [held_up.1]);
            let put = shelf.send(Put(x));
            tokio::time::sleep(seconds(2)).await;
            assert_eq!(b.report().objects.len(), 1, "freed on its way, {held_up:?} held up");
            faults.heal();
            assert_eq!(put.await?, 1);
            let again = there(shelf.send(Take).await?)?;
            assert_eq!(again.send(Add(1)).await?, 8);
            drop(again);
            until("it is freed", || b.report().objects.is_empty() && c.report().held.is_empty()).await;
        }
        Ok(())
    });
}

#[test]
fn four_party_fast_chain() {
    cluster(async |[a, _b, _c, d, _e], faults| {
        let x = a.remote("d", counter, (0,))?;
        x.ready().await?;
        let route = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        // Its owner hears of none of the others before the last one calls.
        let through = a.call("b", chain, (x.clone(), route(&["c", "e"]), 5));
        faults.partition_oneway(["a"], ["d"]);
        drop(x);
        assert_eq!(through.await?, Ok(5));
        faults.heal();
        until("it is freed", || d.report().objects.is_empty()).await;
        Ok(())
    });
}

/// Handed round and called under connections that break all the time: each call is done once.
#[test]
fn handoff_and_calls_under_cuts() {
    cluster(async |[a, _b, _c, _d], faults| {
        let x = a.remote("b", counter, (0,))?;
        let mut through = Vec::new();
        for n in 0..60 {
            through.push(a.call(["c", "d"][n % 2], bump, (x.clone(), 1)));
            through.push(a.call("c", chain, (x.clone(), vec!["d".into(), "b".into()], 1)));
            for _ in 0..n % 7 {
                tokio::task::yield_now().await;
            }
            faults.cut_connections();
            if n % 10 == 0 {
                tokio::time::sleep(crate::common::millis(30)).await;
            }
        }
        for request in through {
            request.await?.map_err(anyhow::Error::msg)?;
        }
        assert_eq!(x.send(Add(0)).await?, 120);
        Ok(())
    });
}

/// Nothing has reached the owner, and all is in order when it does.
#[test]
fn pipelined_calls_before_create_ack() {
    cluster(async |[a, b], faults| {
        a.call("b", add, (1, 1)).await?;
        faults.partition_oneway(["a"], ["b"]);
        let c = a.remote("b", counter, (0,))?;
        let calls: Vec<_> = (0..50).map(|n| c.send(Log(n))).collect();
        let derived = c.remote(Snapshot)?;
        let of_derived = derived.apply(plus, (100,));
        c.do_send(Add(1))?;
        assert!(b.report().objects.is_empty());
        faults.heal();
        for call in calls {
            assert!(call.await?);
        }
        assert_eq!(of_derived.await?, 150);
        assert_eq!(c.send(Snapshot).await?, 51);
        // The same behind a constructor that takes its time.
        let p = a.remote("b", slow_probe, (5000,))?;
        let pings: Vec<_> = (0..5).map(|_| p.send(Ping)).collect();
        for ping in pings {
            ping.await?;
        }
        Ok(())
    });
}

/// Somebody else's call is there first: it waits for the creation.
#[test]
fn third_party_call_before_create() {
    cluster(async |[a, b, _c], faults| {
        a.call("b", add, (1, 1)).await?;
        faults.partition_oneway(["a"], ["b"]);
        let x = a.remote("b", counter, (7,))?;
        let early = a.call("c", bump, (x.clone(), 1));
        until("c's call waits at b", || b.report().parked == 1).await;
        assert!(b.report().objects.iter().all(|object| object.state == "expected"));
        faults.heal();
        assert_eq!(early.await?, Ok(8));
        assert_eq!(x.send(Add(1)).await?, 9);
        // A creation that is large is late of its own accord.
        let y = a.remote("b", counter_of_size, (1, tensor_of(2_000_000)))?;
        assert_eq!(a.call("c", bump, (y.clone(), 1)).await?, Ok(2));
        Ok(())
    });
}

/// Calls that were sent before anybody knew, from all nodes.
#[test]
fn ctor_fails() {
    cluster(async |[a, b, _c], faults| {
        a.call("b", add, (1, 1)).await?;
        faults.partition_oneway(["a"], ["b"]);
        let never = a.remote("b", fallible, ("no luck".into(),))?;
        let calls: Vec<_> = (0..10).map(|_| never.send(Add(1))).collect();
        let early = a.call("c", bump, (never.clone(), 1));
        until("c's call waits at b", || b.report().parked == 1).await;
        faults.heal();
        let failed = Error::CreateFailed("no luck".into());
        for call in calls {
            assert_eq!(call.await, Err(failed.clone()));
        }
        assert_eq!(early.await?, Err(failed.to_string()));
        Ok(())
    });
}

/// Catches: a release that overtakes its creation, and a creation that is done twice or not at all.
#[test]
fn create_then_drop() {
    cluster(async |[a, b], faults| {
        drop(a.remote("b", probe, ())?);
        until("made and dropped", || probes() == (1, 1)).await;
        faults.partition_oneway(["a"], ["b"]);
        for _ in 0..10 {
            drop(a.remote("b", probe, ())?);
            drop(a.remote("b", slow_probe, (100,))?);
        }
        faults.heal();
        faults.cut_connections();
        until("made and dropped", || probes() == (21, 21)).await;
        drop(b.remote("b", slow_probe, (100,))?);
        until("made and dropped", || probes() == (22, 22)).await;
        Ok(())
    });
}

/// The call goes in chunks, and the handle in it is dropped at once: its release must not overtake.
#[test]
fn large_call_handle_dropped_at_once() {
    cluster(async |[a, b, _c], _| {
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        let large = a.call("c", bump_large, (x.clone(), tensor_of(2_000_000)));
        drop(x);
        assert_eq!(large.await?, Ok(8));
        // To the owner itself.
        let y = a.remote("b", counter, (7,))?;
        y.ready().await?;
        let large = a.call("b", bump_large, (y.clone(), tensor_of(2_000_000)));
        drop(y);
        assert_eq!(large.await?, Ok(8));
        // And as a creation.
        let z = a.remote("c", counter, (7,))?;
        let large = a.remote("b", bump_large, (z.clone(), tensor_of(2_000_000)))?;
        drop(z);
        assert_eq!(large.to_here().await?, Ok(8));
        drop(large);
        until("all is freed", || b.report().objects.is_empty()).await;
        Ok(())
    });
}

/// One call answers "who keeps this alive?".
#[test]
fn rref_context_debug_info() {
    cluster(async |[a, b, c], faults| {
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        let (same, shelf) = (x.clone(), a.remote("c", shelf, ())?);
        shelf.send(Put(x.clone())).await?;
        until("the hand-off is settled", || a.report().held.iter().all(|held| held.pins.is_empty())).await;
        let report = b.report();
        let object = there(report.objects.iter().find(|object| object.id == x.id()))?;
        let mut by = object.holders.clone();
        by.sort();
        assert_eq!((by, object.local_handles), (vec!["a".to_string(), "c".to_string()], 0));
        assert!(object.type_name.ends_with("Counter") && object.state == "live", "{object:?}");
        let held = there(a.report().held.into_iter().find(|held| held.id == x.id()))?;
        // `same` is a clone: the two are one handle.
        assert_eq!((held.owner.as_str(), held.handles, held.confirmed), ("b", 1, true));
        assert!(c.report().held.iter().any(|held| held.id == x.id() && held.handles == 1));
        // What is under way: a call, and a hand-off that cannot be settled.
        faults.partition_oneway(["c"], ["a"]);
        let call = shelf.send(Put(same));
        until("the call is under way", || c.report().held.iter().any(|held| held.handles == 2)).await;
        let report = a.report();
        assert_eq!(report.calls, 1);
        assert!(report.held.iter().any(|held| held.pins == ["c"]), "{report}");
        assert!(report.to_string().contains("1 calls waiting"), "{report}");
        faults.heal();
        call.await?;
        Ok(())
    });
}

/// A leak is reported by default, with its holder, on both sides.
#[test]
fn rref_leak() {
    bare(
        |builder| builder,
        async |[a, b], _| {
            let kept = a.remote("b", counter, (7,)).unwrap();
            kept.ready().await.unwrap();
            let own = b.host(1i64).unwrap();
            let report = b.shutdown().await;
            let mut leaked: Vec<_> =
                report.leaked.iter().map(|leak| (leak.object, leak.holders.clone())).collect();
            leaked.sort();
            let mut expected = vec![(kept.id(), vec!["a".to_string()]), (own.id(), vec!["b".to_string()])];
            expected.sort();
            assert_eq!(leaked, expected);
            let text: String = report.leaked.iter().map(ToString::to_string).collect();
            assert!(
                text.contains("Counter") && text.contains("created by `a`") && text.contains("held by a"),
                "{text}"
            );
            drop((kept, own));
            crate::common::assert_no_leaks(&[&a]).await;
            Ok(())
        },
    );
    bare(
        |builder| builder,
        async |[a, b], _| {
            let kept = a.remote("b", counter, (7,)).unwrap();
            let report = a.shutdown().await;
            assert_eq!(report.leaked.iter().map(|leak| leak.object).collect::<Vec<_>>(), [kept.id()]);
            assert_eq!(
                (report.leaked[0].owner.as_str(), report.leaked[0].holders.join(" ")),
                ("b", "a".to_string())
            );
            assert!(report.leaked[0].type_name.ends_with("Counter"), "{}", report.leaked[0]);
            // It was given back all the same: the owner is clean while the handle still exists.
            crate::common::assert_no_leaks(&[&b]).await;
            drop(kept);
            Ok(())
        },
    );
}

/// A weak reference keeps nothing, and finds out whether there is still something.
#[test]
fn weak_upgrade_before_and_after_free() {
    cluster(async |[a, b, c], _| {
        let x = a.remote("b", counter, (7,))?;
        let shelf = a.remote("c", shelf, ())?;
        shelf.send(Put(x.clone())).await?;
        let weak = x.downgrade();
        let again = there(weak.upgrade().await?)?;
        assert_eq!(again.send(Add(1)).await?, 8);
        drop((x, again));
        until("only c holds it", || {
            a.report().held.iter().all(|held| held.handles <= 1 && held.pins.is_empty())
        })
        .await;
        // Through the owner: this node itself holds nothing any more.
        assert_eq!(there(weak.upgrade().await?)?.send(Add(1)).await?, 9);
        drop(shelf);
        until("it is freed", || b.report().objects.is_empty() && c.report().objects.is_empty()).await;
        assert!(weak.upgrade().await?.is_none());
        Ok(())
    });
}
