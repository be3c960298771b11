//! Messages to objects: in all modes, in order, under a connection that breaks.

use crate::common::program::*;
use crate::common::{cluster, millis, seconds, until};
use rref::prelude::*;

#[test]
fn call_method_on_rref() {
    cluster(async |[a, b, _c], _| {
        for owner in ["a", "b"] {
            let c = a.remote(owner, counter, (10,))?;
            assert_eq!(c.send(Add(5)).await?, 15);
            c.do_send(Add(1))?;
            let sixteen = c.remote(Snapshot)?;
            c.do_send(Add(1))?;
            // It was taken between the two: in the order in which they were sent.
            assert_eq!(sixteen.to_here().await?, 16);
            assert_eq!(sixteen.owner(), owner);
            assert_eq!(sixteen.apply(plus, (4,)).await?, 20);
            assert_eq!(c.send(Add(0)).await?, 17);
            let rate = a.remote(owner, rate, (0.5,))?;
            assert_eq!(rate.send(SetRate(0.25)).await?, 0.5);
            assert_eq!(rate.to_here().await?, Rate(0.25));
        }
        until("b's objects are freed", || b.report().objects.is_empty()).await;
        Ok(())
    });
}

/// Async handlers: in the actor's context, and in a task of their own.
#[test]
fn async_class_rref_proxy() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            let c = a.remote(owner, counter, (0,))?;
            let later = c.send(AddLater(100, 1000));
            // Handled while the first one waits.
            assert_eq!(c.send(Add(1)).await?, 1);
            assert_eq!(later.await?, 101);
            let detached = c.send(AddDetached(1000, 1000));
            assert_eq!(c.send(Add(1)).await?, 102);
            // It had looked at the count before.
            assert_eq!(detached.await?, 1101);
            assert_eq!(c.remote(AddLater(1, 100))?.to_here().await?, 103);
        }
        Ok(())
    });
}

#[test]
fn rref_proxy_reuse() {
    cluster(async |[a, _b], _| {
        let c = a.remote("b", counter, (0,))?;
        for n in 1..=100 {
            assert_eq!(c.send(Add(1)).await?, n);
        }
        // A request borrows nothing: many at a time, awaited backwards.
        let many: Vec<_> = (0..100).map(|_| c.clone().send(Add(1))).collect();
        for (n, request) in many.into_iter().enumerate().rev() {
            assert_eq!(request.await?, 101 + n as i64);
        }
        Ok(())
    });
}

#[test]
fn rref_proxy_non_exist() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            let rate = a.remote(owner, rate, (0.5,))?;
            match rate.send(Forgotten).await {
                Err(Error::NotRegistered { what, node, call }) => {
                    assert!(what.contains("Forgotten"), "{what}");
                    assert_eq!(node, owner);
                    assert!(call.contains(".register") || call.contains(".message"), "{call}");
                }
                other => panic!("{other:?}"),
            }
            let never = rate.remote(Forgotten)?.to_here().await;
            assert!(
                matches!(&never, Err(Error::CreateFailed(why)) if why.contains("Forgotten")),
                "{never:?}"
            );
            rate.do_send(Forgotten)?;
            assert_eq!(rate.send(SetRate(1.0)).await?, 0.5, "the session and the object live");
        }
        Ok(())
    });
}

/// Catches: calls that overtake each other, are lost, or are done twice, when connections break with
/// frames on their way and acknowledgements lost.
#[test]
fn fifo_per_caller_object() {
    cluster(async |[a, b], faults| {
        let c = a.remote("b", counter, (0,))?;
        let mut sent = Vec::new();
        for n in 0..400 {
            sent.push(c.send(Log(n)));
            if n % 7 == 0 {
                // As many turns of the tasks as it takes to have something of everything in flight.
                for _ in 0..n % 5 {
                    tokio::task::yield_now().await;
                }
                faults.cut_connections();
            }
            if n % 50 == 0 {
                tokio::time::sleep(millis(25)).await;
            }
        }
        for (n, request) in sent.into_iter().enumerate() {
            assert_eq!(request.await, Ok(true), "call {n}");
        }
        assert_eq!(c.send(Snapshot).await?, 400);
        assert!(b.report().peers.iter().all(|peer| peer.link == "connected"));
        Ok(())
    });
}

/// Two callers of one object: each in its own order, none lost.
#[test]
fn fifo_of_two_callers() {
    cluster(async |[a, _b, c], faults| {
        let object = a.remote("b", counter, (0,))?;
        let shelf = a.remote("c", shelf, ())?;
        shelf.send(Put(object.clone())).await?;
        // `c` passes it to itself: the requests are then c's own.
        let far: Vec<_> = (0..50).map(|_| a.call("c", bump, (object.clone(), 1000))).collect();
        let near: Vec<_> = (0..50).map(|_| object.send(Add(1))).collect();
        faults.cut_connections();
        let mut before = 0;
        for request in near {
            let count = request.await?;
            assert!(count % 1000 == before % 1000 + 1, "{count} after {before}");
            before = count;
        }
        for request in far {
            request.await?.map_err(anyhow::Error::msg)?;
        }
        assert_eq!(object.send(Snapshot).await?, 50_050);
        assert_eq!(c.report().held.len(), 1);
        Ok(())
    });
}

/// A queue behind a call that takes its time stays in order.
#[test]
fn queue_behind_a_busy_actor() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            let c = a.remote(owner, counter, (0,))?;
            c.do_send(Nap(5000))?;
            let queued: Vec<_> = (0..20).map(|n| c.send(Log(n))).collect();
            let early = c.send(Add(1000)).timeout(seconds(1)).await;
            assert_eq!(early, Err(Error::Timeout(seconds(1))));
            for request in queued {
                assert!(request.await?);
            }
            // The one that ran out of time has not run.
            assert_eq!(c.send(Snapshot).await?, 20);
        }
        Ok(())
    });
}
