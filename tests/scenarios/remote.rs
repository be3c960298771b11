//! Objects and calls on other nodes and on oneself.

use crate::common::program::*;
use crate::common::{cluster, frames_sent, until};
use rref::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// Catches: results mixed up between references, or references that share an object.
#[test]
fn builtin_remote_ret() {
    cluster(async |[a, b], _| {
        let one = a.remote("b", add, (1, 2))?;
        assert_eq!(one.to_here().await?, 3);
        assert_eq!(one.owner(), "b");
        let many: Vec<RRef<i64>> = (0..10).map(|n| a.remote("b", add, (n, 100))).collect::<Result<_, _>>()?;
        // Backwards: a result must not be the next one in line.
        for (n, x) in many.iter().enumerate().rev() {
            assert_eq!(x.to_here().await?, n as i64 + 100);
        }
        assert_eq!(b.report().objects.len(), 11);
        Ok(())
    });
}

#[test]
fn builtin_remote_self() {
    cluster(async |[a, _b], _| {
        let x = a.remote("a", add, (1, 2))?;
        assert!(x.is_local());
        assert_eq!(x.to_here().await?, 3);
        assert_eq!(x.apply(plus, (4,)).await?, 7);
        assert_eq!(a.call("a", add, (3, 4)).await?, 7);
        let c = a.remote("a", counter, (10,))?;
        assert_eq!(c.send(Add(1)).await?, 11);
        assert_eq!(c.remote(Snapshot)?.to_here().await?, 11);
        Ok(())
    });
}

/// Alone in the cluster: nothing may wait for a peer.
#[test]
fn world_size_one() {
    cluster(async |[a], _| {
        let x = a.remote("a", add, (1, 2))?;
        assert_eq!(a.call("a", fetch, (x.clone(),)).await?, Ok(3));
        assert_eq!(a.call("a", add_on, ("a".into(), 2, 3)).await?, Ok(5));
        let y = a.remote("a", sum, (vec![x.clone(), x],))?;
        assert_eq!(y.to_here().await?, Ok(6));
        Ok(())
    });
}

#[test]
fn remote_same_worker() {
    cluster(async |[a, b], _| {
        let x = a.remote("b", add, (1, 2))?;
        let y = a.remote("b", add, (10, 20))?;
        // Not awaited before: the function must wait for what it is given.
        let z = a.remote("b", sum, (vec![x, y],))?;
        assert_eq!(z.to_here().await?, Ok(33));
        // Given to their owner, they need no claims and no pins: only `z` stays.
        until("x and y are freed", || b.report().objects.len() == 1).await;
        Ok(())
    });
}

#[actix::test]
async fn send_to_rank() {
    tokio::time::pause();
    let network = rref::transport::Network::new();
    let worker = node("worker1").transport(network.clone()).listen("w").insecure().rank(1, 2).start().await;
    let worker = worker.unwrap();
    let driver = node("driver").transport(network).join("w").rank(0, 2).start().await.unwrap();
    assert_eq!(driver.call(rref::Rank(1), add, (1, 2)).await, Ok(3));
    assert_eq!(worker.call(rref::Rank(0), add, (1, 2)).await, Ok(3));
    assert_eq!(driver.call(rref::Rank(0), add, (1, 2)).await, Ok(3));
    let unknown = |peer: &str| Error::UnknownPeer { peer: peer.into(), node: "driver".into() };
    assert_eq!(driver.remote("nobody", add, (1, 2)).err(), Some(unknown("nobody")));
    assert_eq!(driver.remote(rref::Rank(7), add, (1, 2)).err(), Some(unknown("worker7")));
    // At once: the request fails without a turn of the clock.
    let before = tokio::time::Instant::now();
    assert_eq!(driver.call("nobody", add, (1, 2)).await, Err(unknown("nobody")));
    assert_eq!(before, tokio::time::Instant::now());
    crate::common::assert_no_leaks(&[&driver, &worker]).await;
}

/// Catches: a claim, a release or a fetch for what never leaves the node.
#[test]
fn local_rref_no_fork() {
    cluster(async |[a, b], _| {
        // A first exchange, so that what is counted is not the cluster's own traffic.
        b.call("a", add, (1, 1)).await?;
        until("all is acknowledged", || {
            [&a, &b].iter().all(|node| node.report().peers.iter().all(|peer| peer.unacknowledged == 0))
        })
        .await;
        let before = (frames_sent(&a), frames_sent(&b));
        let x = a.remote("a", tensor, (1000, 2.0))?;
        let borrowed = x.local_value().await?;
        assert_eq!(borrowed.as_slice()[999], 2.0);
        assert_eq!(x.clone().to_here().await?.len(), 1000);
        let hosted = a.host(vec![1u8, 2, 3])?;
        assert_eq!(*hosted.local_value().await?, [1, 2, 3]);
        drop((x, borrowed, hosted));
        until("the objects are freed", || a.report().objects.is_empty()).await;
        assert_eq!((frames_sent(&a), frames_sent(&b)), before);
        Ok(())
    });
}

#[test]
fn nested_remote() {
    cluster(async |[a, _b, c], _| {
        assert_eq!(a.call("b", add_on, ("c".into(), 2, 3)).await?, Ok(5));
        let x = a.remote("b", add_on, ("c".into(), 20, 3))?;
        assert_eq!(x.to_here().await?, Ok(23));
        // And back to the node that asked, which waits for the call.
        assert_eq!(a.call("b", add_on, ("a".into(), 7, 3)).await?, Ok(10));
        until("c's objects are freed", || c.report().objects.is_empty()).await;
        Ok(())
    });
}

#[test]
fn stress_light_rpc() {
    cluster(async |[a, _b], _| {
        let light: Vec<_> = (0..1000).map(|n| a.call("b", add, (n, n))).collect();
        for (n, request) in light.into_iter().enumerate() {
            assert_eq!(request.await?, 2 * n as i64);
        }
        Ok(())
    });
}

/// 20 MB each way in flight at once: more than the windows and the buffers hold.
#[test]
fn stress_heavy_rpc() {
    cluster(async |[a, _b], _| {
        let big = |n: u32| Tensor::from(ndarray::Array1::from_elem(250_000, n as f32));
        let sums: Vec<_> = (0..20).map(|n| a.call("b", sum_tensor, (big(n),))).collect();
        let made: Vec<_> = (0..20).map(|n| a.call("b", tensor, (250_000, n as f32))).collect();
        for (n, request) in sums.into_iter().enumerate() {
            assert_eq!(request.await?, 250_000.0 * n as f64);
        }
        for (n, request) in made.into_iter().enumerate() {
            assert_eq!(request.await?, big(n as u32));
        }
        Ok(())
    });
}

/// Large tensors go in chunks: small calls of other objects pass them by, and what comes out is what
/// went in. Catches chunks put together in the wrong order, and a large message that blocks the lane.
#[test]
fn large_tensors_and_small_calls() {
    cluster(async |[a, _b], _| {
        let c = a.remote("b", counter, (0,))?;
        c.ready().await?;
        let elements = 2 * 1024 * 1024 + 13;
        let ramp = Tensor::from(ndarray::Array1::from_iter((0..elements).map(|n| n as u32)));
        let large = a.remote("b", keep, (ramp.clone(), 7))?;
        // Tasks of their own: the test's own future gets its turn too rarely to see the order.
        let (ready, small, done) = (large.ready(), c.clone(), Rc::new(Cell::new(0)));
        let seen = done.clone();
        let small = actix::spawn(async move {
            for _ in 0..3 {
                seen.set(small.send(Add(1)).await?);
            }
            Ok::<_, Error>(())
        });
        let large_ready = actix::spawn(async move { ready.await.map(|()| done.get()) });
        assert_eq!(large_ready.await??, 3, "small calls done when the large creation had arrived");
        small.await??;
        let fetch = large.to_here();
        let small: Vec<_> = (0..20).map(|_| c.send(Add(1))).collect();
        for (n, request) in small.into_iter().enumerate() {
            assert_eq!(request.await?, 4 + n as i64);
        }
        let (back, seven) = fetch.await?;
        assert_eq!(seven, 7);
        assert!(back == ramp, "what came back is not what was sent");
        Ok(())
    });
}

/// Two nodes on a network of their own.
async fn pair() -> rref::Result<(Node, Node)> {
    let network = rref::transport::Network::new();
    let b = node("b").transport(network.clone()).listen("b").insecure().start().await?;
    let a = node("a").transport(network).listen("a").insecure().join("b").start().await?;
    Ok((a, b))
}

/// The nodes of one process have nothing in common but the process.
#[actix::test]
async fn init_rpc_twice() {
    tokio::time::pause();
    // Two clusters with the same names, each on a network of its own.
    let (a1, b1) = pair().await.unwrap();
    let (a2, b2) = pair().await.unwrap();
    let x = a1.remote("b", add, (1, 2)).unwrap();
    let y = a2.remote("b", add, (10, 20)).unwrap();
    assert_ne!(b1.uid(), b2.uid());
    assert_eq!((x.to_here().await, y.to_here().await), (Ok(3), Ok(30)));
    // A handle of one cluster cannot slip into the other.
    let error = a2.call("b", fetch, (x.clone(),)).await.unwrap_err();
    assert!(matches!(&error, Error::Encode(text) if text.contains("node `a`")), "{error:?}");
    drop((x, y));
    crate::common::assert_no_leaks(&[&a1, &b1]).await;
    assert_eq!(a2.call("b", add, (1, 2)).await, Ok(3), "the other cluster goes on");
    crate::common::assert_no_leaks(&[&a2, &b2]).await;
}
