//! Nodes that are silent while their connections stay open: calls to them fail soon, and that is all.

use crate::common::program::*;
use crate::common::{assert_no_leaks, bare, cluster, seconds, until};
use rref::prelude::*;
use rref::{Event, NodeEvent};
use std::time::Duration;

fn session_and_link(node: &Node, name: &str) -> Option<(u32, String)> {
    let peers = node.report().peers.into_iter();
    peers.filter(|peer| peer.name == name).map(|peer| (peer.session, peer.link)).next()
}

fn is_connected(node: &Node, name: &str) -> bool {
    session_and_link(node, name).is_some_and(|(_, link)| link == "connected")
}

/// As with a machine that is gone: no error from the network. Catches: calls that wait for their own
/// timeout, and a session that ends for a silence.
#[test]
fn silent_owner_is_suspect() {
    cluster(async |[a, b, _c], cluster| {
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        let before = session_and_link(&a, "b");
        let (mut events, mut watch) = (a.events(), x.watch());
        cluster.advance(seconds(5)).await;
        cluster.partition(["b"]);
        let begun = cluster.now();
        let error = x.send(Add(1)).timeout(seconds(300)).await;
        assert!(matches!(&error, Err(Error::OutcomeUnknown { peer, .. }) if peer == "b"), "{error:?}");
        // The last heartbeat may have come up to 2 s before the cut.
        let took = cluster.now() - begun;
        assert!((seconds(4)..seconds(9)).contains(&took), "{took:?}");
        let error = x.send(Add(1)).await;
        assert!(matches!(&error, Err(Error::Unreachable { peer, .. }) if peer == "b"), "{error:?}");
        assert!(matches!(events.next().await, Some(NodeEvent::PeerSuspect { name, .. }) if name == "b"));
        assert!(matches!(watch.next().await, Some(Event::OwnerSuspect(_))));
        cluster.advance(seconds(20)).await;
        assert_eq!(b.report().objects.len(), 1);
        cluster.heal();
        until("b is back", || is_connected(&a, "b")).await;
        assert!(matches!(watch.next().await, Some(Event::OwnerBack)));
        // The first call was under way all the time; nobody could know whether it would run.
        assert!((8..=9).contains(&x.send(Add(1)).await?));
        assert_eq!(session_and_link(&a, "b"), before);
        Ok(())
    });
}

/// A process that is stopped, as by `SIGSTOP`, is silent too, and suspects nobody when it goes on.
#[test]
fn paused_owner_is_suspect_and_suspects_nobody() {
    cluster(async |[a, b, _c], cluster| {
        let x = a.remote("b", counter, (0,))?;
        let y = b.remote("a", counter, (0,))?;
        x.ready().await?;
        y.ready().await?;
        let mut events = b.events();
        cluster.pause("b");
        let error = x.send(Add(1)).timeout(seconds(300)).await;
        assert!(matches!(&error, Err(Error::OutcomeUnknown { .. })), "{error:?}");
        cluster.advance(seconds(15)).await;
        cluster.resume("b");
        until("b is back", || is_connected(&a, "b")).await;
        cluster.advance(seconds(10)).await;
        assert!((1..=2).contains(&x.send(Add(1)).await?));
        assert_eq!(y.send(Add(1)).await?, 1);
        let heard = tokio::time::timeout(Duration::ZERO, events.next()).await;
        assert!(heard.is_err(), "{heard:?}");
        Ok(())
    });
}

/// One way only: b is heard, but hears nothing. Its lease here cannot be relied on for long.
#[test]
fn owner_that_does_not_hear_is_suspect() {
    cluster(async |[a, _b, _c], cluster| {
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        cluster.advance(seconds(5)).await;
        cluster.partition_oneway(["a"], ["b"]);
        let begun = cluster.now();
        let error = x.send(Add(1)).timeout(seconds(300)).await;
        assert!(matches!(&error, Err(Error::OutcomeUnknown { .. })), "{error:?}");
        let took = cluster.now() - begun;
        assert!((seconds(26)..seconds(32)).contains(&took), "{took:?}");
        cluster.heal();
        until("b hears again", || is_connected(&a, "b")).await;
        assert!((8..=9).contains(&x.send(Add(1)).await?));
        Ok(())
    });
}

/// Claims to a silent owner are not acknowledged; what is handed on of others' must not wait for that.
#[test]
fn silent_owner_does_not_hold_others_pins() {
    bare::<4>(
        |builder| builder,
        async |[a, b, c, d], cluster| {
            let shelf = a.remote("c", shelf, ())?;
            let (x, y) = (a.remote("b", counter, (1,))?, a.remote("d", counter, (2,))?);
            x.ready().await?;
            y.ready().await?;
            cluster.partition(["b"]);
            shelf.send(Put(x.clone())).await?;
            shelf.send(Put(y.clone())).await?;
            let pins = |of: &RRef<Counter>| {
                let held = a.report().held.into_iter().filter(|held| held.id == of.id());
                held.map(|held| held.pins.len()).sum::<usize>()
            };
            until("y is settled", || pins(&y) == 0).await;
            assert_eq!(pins(&x), 1);
            cluster.heal();
            until("x is settled", || pins(&x) == 0).await;
            drop((shelf, x, y));
            assert_no_leaks(&[&a, &b, &c, &d]).await;
            Ok(())
        },
    );
}

/// Streams and watches that have failed here end there too, once the owner answers again. Catches: a stream that
/// waits for a reader for ever, and keeps its object.
#[test]
fn what_has_failed_here_ends_there() {
    cluster(async |[a, b, _c], cluster| {
        let x = a.remote("b", counter, (0,))?;
        let watch = x.watch();
        let slow = a.call("b", slow, (600_000, 1));
        let mut numbers = a.call("b", endless, ()).await?;
        assert_eq!(numbers.next().await.transpose()?, Some(0));
        cluster.partition(["b"]);
        while numbers.next().await.transpose().is_ok_and(|number| number.is_some()) {}
        assert!(matches!(slow.await, Err(Error::OutcomeUnknown { .. })));
        cluster.heal();
        until("b is back", || is_connected(&a, "b")).await;
        drop((watch, numbers));
        let running = || b.report().peers.iter().map(|peer| peer.running).sum::<usize>();
        // The stream is over; what remains of watches goes with their object.
        until("the stream is over", || running() <= 3).await;
        drop(x);
        until("nothing holds the object", || b.report().objects.is_empty()).await;
        // What has begun is not interrupted.
        assert_eq!(running(), 1);
        cluster.advance(seconds(600)).await;
        Ok(())
    });
}

/// Silent, then without a connection, then back: told of once.
#[test]
fn silent_and_lost_and_back() {
    cluster(async |[a, _b, _c], cluster| {
        let x = a.remote("b", counter, (0,))?;
        x.ready().await?;
        let mut events = a.events();
        cluster.partition(["b"]);
        cluster.advance(seconds(10)).await;
        cluster.cut("a", "b");
        cluster.advance(seconds(3)).await;
        cluster.heal();
        until("b is back", || is_connected(&a, "b")).await;
        assert_eq!(x.send(Add(1)).await?, 1);
        cluster.advance(seconds(30)).await;
        let mut of_b = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            match event {
                NodeEvent::PeerSuspect { name, .. } if name == "b" => of_b.push("suspect"),
                NodeEvent::PeerBack { name, .. } if name == "b" => of_b.push("back"),
                other => assert!(!format!("{other:?}").contains("\"b\""), "{other:?}"),
            }
        }
        assert_eq!(of_b, ["suspect", "back"]);
        Ok(())
    });
}
