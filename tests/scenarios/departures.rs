//! Nodes that join and nodes that leave, while others work.

use crate::common::program::{self, *};
use crate::common::{bare, cluster_of, seconds, until};
use rref::NodeUid;
use rref::prelude::*;
use rref::testkit::TestCluster;

fn there<T>(found: Option<T>) -> anyhow::Result<T> {
    found.ok_or_else(|| anyhow::anyhow!("nothing there"))
}

#[test]
fn use_rref_after_shutdown() {
    bare(
        |builder| builder,
        async |[a, b], _| {
            let (far, near) = (a.remote("b", counter, (7,)).unwrap(), a.host(Counter(7)).unwrap());
            let (x, y) = (a.remote("b", add, (1, 2)).unwrap(), a.host(3i64).unwrap());
            // Used before: a handle may remember the way.
            assert_eq!((far.send(Add(1)).await, near.send(Add(1)).await), (Ok(8), Ok(8)));
            assert_eq!((x.to_here().await, y.to_here().await), (Ok(3), Ok(3)));
            assert_eq!(a.shutdown().await.leaked.len(), 4);
            let down = Error::ShuttingDown { node: "a".into() };
            for c in [&far, &near] {
                assert_eq!(c.send(Add(1)).await, Err(down.clone()), "{c:?}");
                assert_eq!(c.ready().await, Err(down.clone()), "{c:?}");
                let derived = c.remote(Snapshot);
                assert_eq!(derived.err(), Some(down.clone()), "{c:?}");
                let _ = c.do_send(Add(1));
            }
            for x in [&x, &y] {
                assert_eq!(x.to_here().await, Err(down.clone()), "{x:?}");
                assert_eq!(x.apply(plus, (1,)).await, Err(down.clone()), "{x:?}");
            }
            assert_eq!(y.local_value().await.err(), Some(down.clone()));
            assert_eq!(a.call("b", add, (1, 2)).await, Err(down.clone()));
            assert_eq!(a.call("a", add, (1, 2)).await, Err(down.clone()));
            assert_eq!(a.remote("b", add, (1, 2)).err(), Some(down.clone()));
            assert_eq!(a.host(1i64).err(), Some(down));
            // Cloned and dropped without harm, and told apart.
            assert_ne!(far.clone(), near.clone());
            drop((far, near, x, y));
            crate::common::assert_no_leaks(&[&b]).await;
            Ok(())
        },
    );
}

/// Idle nodes wait for busy ones, but not for ever.
#[test]
fn graceful_shutdown_with_uneven_workload() {
    bare(
        |builder| builder,
        async |[a, b, c], _| {
            let work = a.call("b", slow, (3000, 1));
            until("b works on it", || b.report().peers.iter().any(|peer| peer.running > 0)).await;
            let (work, of_a, of_b, of_c) = tokio::join!(work, a.shutdown(), b.shutdown(), c.shutdown());
            assert_eq!(work, Ok(1), "a node left before its work was done");
            assert!(of_a.complete && of_b.complete && of_c.complete);
            Ok(())
        },
    );
    bare(
        |builder| builder.shutdown_deadline(seconds(5)),
        async |[a, b], _| {
            let work = a.call("b", slow, (600_000, 1));
            until("b works on it", || b.report().peers.iter().any(|peer| peer.running > 0)).await;
            assert!(!b.shutdown().await.complete);
            let error = work.await;
            assert!(matches!(&error, Err(Error::OutcomeUnknown { peer, .. }) if peer == "b"), "{error:?}");
            assert!(a.shutdown().await.complete);
            Ok(())
        },
    );
}

/// A shutdown with a failure in every step still ends, and says so.
#[test]
fn shutdown_errors() {
    bare(
        |builder| builder,
        async |[a, b, c], faults| {
            let (lost, kept) = (a.remote("b", counter, (7,)).unwrap(), a.remote("c", counter, (7,)).unwrap());
            assert_eq!((lost.send(Add(1)).await, kept.send(Add(1)).await), (Ok(8), Ok(8)));
            let dead = kept.send(Panic("on its way out".into()));
            let work = a.call("c", slow, (600_000, 1));
            faults.crash("b");
            // Nothing comes back from c: not even what it has done.
            faults.partition_oneway(["c"], ["a"]);
            let report = a.shutdown().await;
            assert!(!report.complete);
            assert!(report.leaked.iter().any(|leak| leak.object == kept.id()), "{:?}", report.leaked);
            assert_eq!(work.await, Err(Error::ShuttingDown { node: "a".into() }));
            assert!(dead.await.is_err());
            // A second time it has nothing to do.
            assert!(a.shutdown().await.leaked.is_empty());
            faults.heal();
            b.shutdown().await;
            c.shutdown().await;
            assert!(lost.send(Add(1)).await.is_err());
            Ok(())
        },
    );
}

/// With short limits of their own, nodes come and go without those that stay noticing.
#[test]
fn leaves_while_others_work() {
    cluster_of(
        |builder| builder.shutdown_deadline(seconds(1)),
        async |[a, b, c], _| {
            let x = a.remote("c", counter, (0,))?;
            let y = b.call("a", bump_all, (Vec::new(), 0)).await?;
            assert_eq!(y, Ok(0));
            let of_b = b.remote("c", counter, (5,))?;
            of_b.ready().await?;
            drop(of_b);
            assert!(b.shutdown().await.leaked.is_empty());
            assert_eq!(x.send(Add(1)).await?, 1);
            until("b's object is freed", || c.report().objects.len() == 1).await;
            let error = a.call("b", add, (1, 2)).await;
            assert!(matches!(&error, Err(Error::OwnerDied { .. })), "{error:?}");
            Ok(())
        },
    );
}

/// A node joins while another one is out of reach of its introducer, for a moment or for so long that the
/// session begins anew: the two still meet, or the one would not ask the other before it frees. Catches:
/// news of members for those alone who are connected, or for once only.
#[test]
fn who_joins_meets_whom_its_introducer_could_not_reach() {
    for away in [3, 30] {
        let cluster = TestCluster::builder(program::node).names(["a", "b", "c"]).build();
        let ended = cluster.run(0, async |cluster| {
            cluster.crash("c");
            cluster.advance(seconds(10)).await;
            cluster.partition(["b"]);
            cluster.cut("a", "b");
            cluster.advance(seconds(away)).await;
            let c = cluster.restart("c").await?;
            cluster.heal();
            let b = cluster.node("b");
            let connected = |node: &Node, name: &str, uid: NodeUid| {
                let peers = node.report().peers;
                peers.iter().any(|peer| peer.name == name && peer.uid == uid && peer.link == "connected")
            };
            until("b and c have met", || connected(&b, "c", c.uid()) && connected(&c, "b", b.uid())).await;
            assert_eq!(b.call("c", add, (1, 2)).await?, 3);
            Ok(())
        });
        if let Err(failure) = ended {
            panic!("away for {away} s: {failure}");
        }
    }
}

/// Who has let go of everything leaves without leaks, and so does everybody else, whatever had been under way.
#[test]
fn shutdown_zero_leak() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], _| {
            let shelf = a.remote("c", shelf, ())?;
            let (x, y) = (a.remote("b", counter, (1,))?, c.remote("a", counter, (2,))?);
            shelf.send(Put(x.clone())).await?;
            shelf.send(Put(x.clone())).await?;
            assert_eq!(y.send(Add(1)).await?, 3);
            let taken = there(shelf.send(Take).await?)?;
            drop((x, y, taken, shelf));
            // What is under way when a node leaves, it may still take for held.
            let nodes = [a, b, c];
            until("all is let go", || nodes.iter().all(|node| node.report().objects.is_empty())).await;
            for node in nodes {
                let report = node.shutdown().await;
                assert!(report.leaked.is_empty() && report.complete, "{:?}", report.leaked);
            }
            Ok(())
        },
    );
}
