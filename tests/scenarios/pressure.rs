//! Links that break all the time, and windows that are full.

use crate::common::program::*;
use crate::common::{cluster, cluster_of, holders, millis, seconds, until};
use rref::{Error, RRef, Tensor};
use std::time::Duration;

/// A thousand connections, each cut with something of everything under way: all is done once and in
/// order.
#[test]
fn flapping_link() {
    cluster(async |[a, b], gate| {
        let (there, back) = (a.remote("b", counter, (0,))?, b.remote("a", counter, (0,))?);
        let mut next = 0;
        for round in 0..1000 {
            let calls = [there.send(Log(next)), there.send(Log(next + 1))];
            there.do_send(Log(next + 2))?;
            let answered = back.send(Log(round));
            let probe = a.remote("b", probe, ())?;
            let ping = probe.send(Ping);
            drop(probe);
            // Each round the cut comes a little later in the frames' way.
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            gate.cut_connections();
            // Only over a new connection.
            assert!(there.send(Log(next + 3)).await?, "in round {round}");
            for call in calls {
                assert!(call.await?, "in round {round}");
            }
            assert!(answered.await?, "in round {round}");
            ping.await?;
            next += 4;
        }
        assert_eq!((there.send(Snapshot).await?, back.send(Snapshot).await?), (4000, 1000));
        until("every probe is made and dropped", || probes() == (1000, 1000)).await;
        assert!(b.report().peers.iter().all(|peer| peer.link == "connected"));
        Ok(())
    });
}

/// Calls that one node may have unfinished at another.
const WINDOW: i64 = 65_536;

/// No call goes through any more, but releases, claims and what settles them do.
#[test]
fn gc_progress_when_window_full() {
    cluster(async |[a, b, c], _| {
        let busy = a.remote("b", counter, (0,))?;
        let released = a.remote("b", probe, ())?;
        let claimed = a.remote("b", counter, (7,))?;
        claimed.share_with("c", "claimed").await?;
        released.ready().await?;
        drop(claimed);
        until("only c holds it", || b.report().objects.iter().any(|object| object.holders == ["c"])).await;
        busy.do_send(Nap(600_000))?;
        for n in 0..WINDOW {
            busy.do_send(Log(n))?;
        }
        let stuck = || {
            let report = a.report();
            report.peers.iter().any(|peer| peer.name == "b" && peer.waiting_for_credit > 0)
        };
        until("the window is full", stuck).await;
        drop(released);
        until("it is freed", || probes() == (1, 1)).await;
        // From c it comes back to a, which has to claim it, and to settle.
        let claimed = a.lookup::<Counter>("claimed@c").await?;
        until("a holds it", || holders(&b, &claimed) == Some(vec!["a".into(), "c".into()])).await;
        c.unregister_name("claimed");
        until("only a holds it", || holders(&b, &claimed) == Some(vec!["a".into()])).await;
        assert!(c.report().held.is_empty());
        drop(claimed);
        until("it is freed", || b.report().objects.len() == 1).await;
        assert!(stuck(), "the window was not full after all");
        // Late, but in order and whole.
        assert_eq!(busy.send(Snapshot).timeout(Duration::MAX).await?, WINDOW);
        Ok(())
    });
}

/// The same while a large message has filled the window in bytes, since nothing is acknowledged.
#[test]
fn gc_progress_when_byte_window_full() {
    cluster(async |[a, b, c], gate| {
        let released = a.remote("b", probe, ())?;
        let claimed = a.remote("b", counter, (7,))?;
        claimed.share_with("c", "claimed").await?;
        released.ready().await?;
        drop(claimed);
        until("only c holds it", || b.report().objects.iter().any(|object| object.holders == ["c"])).await;
        gate.partition_oneway(["b"], ["a"]);
        let large = a.call("b", sum_tensor, (Tensor::from(ndarray::Array1::from_elem(4 << 20, 1.0)),));
        let stuck = || {
            let peers = a.report().peers;
            peers.iter().find(|peer| peer.name == "b").map(|peer| (peer.queued, peer.bytes_sent))
        };
        // Whatever can move has moved by then.
        tokio::time::sleep(seconds(1)).await;
        let full = stuck();
        assert!(full.is_some_and(|(queued, sent)| queued == 1 && sent < 16 << 20), "{full:?}");
        drop(released);
        until("it is freed", || probes() == (1, 1)).await;
        let claimed = a.lookup::<Counter>("claimed@c").await?;
        c.unregister_name("claimed");
        until("a holds it", || holders(&b, &claimed) == Some(vec!["a".into(), "c".into()])).await;
        // Not even one more chunk of the large message.
        let passed = stuck().zip(full).map(|((queued, now), (_, then))| (queued, now - then));
        assert!(passed.is_some_and(|(queued, bytes)| queued == 1 && bytes < 64 << 10), "{passed:?}");
        gate.heal();
        assert_eq!(large.await?, f64::from(4 << 20));
        until("only a holds it", || holders(&b, &claimed) == Some(vec!["a".into()])).await;
        assert_eq!(claimed.send(Add(1)).await?, 8);
        Ok(())
    });
}

/// What an owner that acknowledges nothing is told of releases does not pile up: the session begins anew,
/// and its inventory says the same in less. Catches: a limit that is looked at only while something can be
/// sent, or not at all.
#[test]
fn resend_buffer_full() {
    cluster_of(
        |builder| builder.resend_buffer(512 << 10),
        async |[a, b], cluster| {
            let kept = a.remote("b", counter, (0,))?;
            let many = (0..30_000).map(|n| a.remote("b", add, (n, 1))).collect::<Result<Vec<_>, _>>()?;
            until("all is there", || b.report().objects.len() == 30_001).await;
            let to_b = || a.report().peers.into_iter().find(|peer| peer.name == "b");
            let unacknowledged = || to_b().map(|peer| peer.unacknowledged);
            until("all is acknowledged", || unacknowledged() == Some(0)).await;
            let before = to_b().map(|peer| peer.session);
            cluster.partition(["b"]);
            let call = kept.send(Add(1));
            until("it is under way", || unacknowledged() > Some(0)).await;
            drop(many);
            // All of it is in the buffer, for a heartbeat, and then nothing.
            cluster.advance(millis(10)).await;
            assert!(unacknowledged() > Some(400), "{:?}", unacknowledged());
            cluster.advance(seconds(5)).await;
            assert_eq!(unacknowledged(), Some(0));
            cluster.heal();
            let error = call.await;
            assert!(matches!(&error, Err(Error::OutcomeUnknown { peer, .. }) if peer == "b"), "{error:?}");
            until("b has let go of the rest", || b.report().objects.len() == 1).await;
            // Whether that call has run nobody could know.
            assert!((1..=2).contains(&kept.send(Add(1)).await?));
            assert!(to_b().map(|peer| peer.session) > before);
            Ok(())
        },
    );
}

/// Who does not wait for answers is stopped in the end, and goes on when there is room. Catches: a queue that
/// grows for as long as somebody sends.
#[test]
fn do_send_to_a_slow_owner_is_refused_in_the_end() {
    cluster_of(
        |builder| builder.peer_credit(10, 1 << 20).send_queue(100, 1 << 20),
        async |[a, _b], _| {
            let x = a.remote("b", counter, (0,))?;
            x.ready().await?;
            x.do_send(Nap(20_000))?;
            let queued =
                |x: &RRef<Counter>| (0..).find_map(|n| x.do_send(Log(n)).err().map(|error| (n, error)));
            let (sent, error) = queued(&x).unwrap_or((0, Error::WouldBlockRuntime));
            assert!(matches!(error, Error::Overloaded { node, .. } if node == "a"));
            assert!((99..=110).contains(&sent), "{sent}");
            let waits = a.report().peers.iter().map(|peer| peer.queued).max();
            assert!(waits <= Some(100), "{waits:?}");
            // Who waits is not refused, and comes after all that was sent before.
            assert!(x.send(Log(sent)).await?);
            x.do_send(Log(sent + 1))?;
            assert_eq!(x.send(Snapshot).await?, sent + 2);
            Ok(())
        },
    );
}

/// One that only takes its time goes on acknowledging, and keeps its session. Catches: a limit alone, without a look
/// at whether anything moves.
#[test]
fn many_releases_at_once_leave_the_session_alone() {
    cluster_of(
        |builder| builder.resend_buffer(512 << 10),
        async |[a, b], _| {
            let kept = a.remote("b", counter, (0,))?;
            let many = (0..30_000).map(|n| a.remote("b", add, (n, 1))).collect::<Result<Vec<_>, _>>()?;
            until("all is there", || b.report().objects.len() == 30_001).await;
            let call = kept.send(Add(1));
            drop(many);
            assert_eq!(call.await?, 1);
            until("the rest is freed", || b.report().objects.len() == 1).await;
            assert!(a.report().peers.iter().all(|peer| peer.session == 1));
            Ok(())
        },
    );
}
