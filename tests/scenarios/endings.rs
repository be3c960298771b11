//! The ends of objects and of the nodes that hold them: in what order handles go, what nobody can free,
//! who leaves and who comes back.

use crate::common::program::*;
use crate::common::{assert_no_leaks, bare, cluster, cluster_of, holders, millis, seconds, until};
use rref::prelude::*;
use tokio::time::Instant;

/// All orders of `items`.
fn orders(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let beginning_with = |first: usize| {
        let rest: Vec<usize> = items.iter().copied().filter(|item| *item != first).collect();
        orders(&rest).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    items.iter().copied().flat_map(beginning_with).collect()
}

/// A new probe at `b`, and a handle of each of `nodes`, which are its only ones.
async fn shared_probe(a: &Node, nodes: &[&Node]) -> rref::Result<Vec<Option<RRef<Probe>>>> {
    let probe = a.remote("b", probe, ())?;
    let mut handles = Vec::new();
    for node in nodes {
        probe.share_with(node.name(), "probe").await?;
        handles.push(Some(node.shared("probe").await?));
        node.unregister_name("probe");
    }
    Ok(handles)
}

/// The creator, the owner and two others let go in every order: only the last one matters.
#[test]
fn drop_order_irrelevant() {
    cluster(async |[a, b, c, d], _| {
        let nodes = [&a, &b, &c, &d];
        for order in orders(&[0, 1, 2, 3]) {
            let mut handles = shared_probe(&a, &nodes).await?;
            let (_, before) = probes();
            for holder in &order {
                handles[*holder] = None;
                // Long enough for whatever the drop sets off.
                tokio::time::sleep(millis(100)).await;
                let left: Vec<_> = handles.iter().flatten().collect();
                let freed = u32::from(left.is_empty());
                assert_eq!(probes().1 - before, freed, "{order:?}: {} hold it", left.len());
                for handle in left {
                    handle.send(Ping).await?;
                }
            }
            // All in one breath.
            let mut handles = shared_probe(&a, &nodes).await?;
            order.iter().for_each(|holder| handles[*holder] = None);
            until("it is freed", || probes().1 == before + 2).await;
        }
        Ok(())
    });
}

/// An object that holds another one of its kind.
#[derive(Object)]
#[object(messages(Hold))]
struct Link(Option<RRef<Link>>);

impl Actor for Link {
    type Context = Context<Self>;
}

fn link() -> Link {
    Link(None)
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Hold(RRef<Link>);

impl Handler<Hold> for Link {
    type Result = ();

    fn handle(&mut self, Hold(other): Hold, _: &mut Self::Context) {
        self.0 = Some(other);
    }
}

fn with_links(builder: Builder) -> Builder {
    builder.register::<Link>().function(link)
}

/// Two links, at `b` and at `c`, that hold each other.
async fn ring(a: &Node) -> rref::Result<[RRef<Link>; 2]> {
    let (x, y) = (a.remote("b", link, ())?, a.remote("c", link, ())?);
    x.send(Hold(y.clone())).await?;
    y.send(Hold(x.clone())).await?;
    Ok([x, y])
}

/// Nobody can reach them and nobody frees them; but one is told what they are and who holds them.
#[test]
fn cycle_leaks_and_is_reported() {
    bare::<3>(with_links, async |[a, b, c], _| {
        let [x, y] = ring(&a).await.unwrap();
        let (of_b, of_c) = (x.id(), y.id());
        drop((x, y));
        until("a has let go", || a.report().held.is_empty()).await;
        tokio::time::sleep(seconds(600)).await;
        for (node, own, other, holder) in [(&b, of_b, of_c, "c"), (&c, of_c, of_b, "b")] {
            let report = node.report();
            let objects: Vec<_> =
                report.objects.iter().map(|o| (o.id, o.holders.clone(), o.local_handles)).collect();
            assert_eq!(objects, [(own, vec![holder.to_string()], 0)], "{report}");
            let held: Vec<_> =
                report.held.iter().map(|held| (held.id, held.owner.as_str(), held.handles)).collect();
            assert_eq!(held, [(other, holder, 1)], "{report}");
        }
        let leaked = b.shutdown().await.leaked;
        let mut named: Vec<_> =
            leaked.iter().map(|leak| (leak.object, leak.owner.as_str(), leak.holders.join(","))).collect();
        named.sort();
        let mut expected = vec![(of_b, "b", "c".to_string()), (of_c, "c", "b".to_string())];
        expected.sort();
        assert_eq!(named, expected);
        let text = leaked.iter().map(ToString::to_string).collect::<String>();
        assert!(
            text.contains("Link") && text.contains("created by `a`") && text.contains("held by c"),
            "{text}"
        );
        // What b held it has given back, and with it the ring.
        assert_no_leaks(&[&a, &c]).await;
        Ok(())
    });
}

/// The tool against it: one link is stopped, the others follow.
#[test]
fn a_stop_undoes_a_cycle() {
    cluster_of(with_links, async |[a, b, c], _| {
        let [x, y] = ring(&a).await?;
        drop(y);
        x.stop().await?;
        drop(x);
        until("both are freed", || b.report().objects.is_empty() && c.report().objects.is_empty()).await;
        Ok(())
    });
}

/// Who says goodbye is not waited for: what it held is free at once, and what it owned is known to be lost.
#[test]
fn graceful_leave() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], _| {
            // One that it keeps under a name, one that it has forgotten, and one of its own.
            let named = a.remote("b", counter, (7,)).unwrap();
            let forgotten = c.remote("b", probe, ()).unwrap();
            let own = a.remote("c", counter, (7,)).unwrap();
            named.share_with("c", "named").await.unwrap();
            own.ready().await.unwrap();
            forgotten.ready().await.unwrap();
            drop(named);
            until("only c holds them", || b.report().objects.iter().all(|object| object.holders == ["c"]))
                .await;
            assert_eq!(b.report().objects.len(), 2);
            let begun = Instant::now();
            let report = c.shutdown().await;
            assert!(report.complete);
            let mut leaked: Vec<_> = report.leaked.iter().map(|leak| leak.object).collect();
            leaked.sort();
            let mut expected = [forgotten.id(), own.id()];
            expected.sort();
            assert_eq!(leaked, expected);
            until("both are freed", || b.report().objects.is_empty() && probes() == (1, 1)).await;
            let died = own.send(Add(1)).await;
            assert!(matches!(&died, Err(Error::OwnerDied { owner, .. }) if owner == "c"), "{died:?}");
            assert!(begun.elapsed() < seconds(1), "that took {:?}", begun.elapsed());
            drop((forgotten, own));
            assert_no_leaks(&[&a, &b]).await;
            Ok(())
        },
    );
}

/// Who has just passed something on stays until it has arrived.
#[test]
fn graceful_leave_after_a_hand_off() {
    cluster(async |[a, b, c], gate| {
        let x = a.remote("b", counter, (7,))?;
        x.ready().await?;
        gate.partition_oneway(["c"], ["b"]);
        x.share_with("c", "x").await?;
        drop(x);
        // Its own hold is all that keeps the object until c's claim is there.
        let leaving = actix::spawn({
            let a = a.clone();
            async move { a.shutdown().await }
        });
        tokio::time::sleep(seconds(3)).await;
        assert!(!leaving.is_finished(), "it left while all hung on it");
        assert_eq!(b.report().objects.len(), 1, "freed on its way");
        gate.heal();
        let report = leaving.await?;
        assert!(report.complete && report.leaked.is_empty(), "{report:?}");
        let x = c.shared::<Counter>("x").await?;
        c.unregister_name("x");
        assert_eq!(x.send(Add(1)).await?, 8);
        until("a is no holder", || holders(&b, &x) == Some(vec!["c".into()])).await;
        Ok(())
    });
}

/// A process that comes back under its old name is another node: it has nothing of the old one's, and
/// what it does costs the old one nothing.
#[test]
fn holder_restart_same_name() {
    bare::<3>(
        |builder| builder,
        async |[a, b, c], gate| {
            let x = a.remote("b", counter, (0,)).unwrap();
            x.share_with("c", "x").await.unwrap();
            let lost = a.remote("c", counter, (0,)).unwrap();
            lost.ready().await.unwrap();
            let both = Some(vec!["a".to_string(), "c".to_string()]);
            until("c holds it", || holders(&b, &x) == both).await;
            until("a knows that", || a.report().held.iter().all(|held| held.pins.is_empty())).await;
            gate.crash("c");
            let dead =
                |node: &Node| node.report().peers.iter().any(|p| p.name == "c" && p.link.starts_with("dead"));
            until("c is known to be dead", || dead(&a) && dead(&b)).await;
            assert_eq!(holders(&b, &x), both, "a crash alone frees nothing");

            let again = gate.restart("c").await?;
            assert_ne!(again.uid(), c.uid());
            // The name means the new one, the old one's object is none of its objects.
            let first = a.remote("c", counter, (100,)).unwrap();
            assert_eq!(first.send(Add(1)).await, Ok(101));
            assert_eq!(first.id().owner, again.uid());
            let died = lost.send(Add(1)).await;
            assert!(matches!(&died, Err(Error::OwnerDied { owner, .. }) if owner == "c"), "{died:?}");
            // It holds nothing before it is given something, and gives back its own only.
            assert!(again.report().held.is_empty());
            assert_eq!(holders(&b, &x), both);
            x.share_with("c", "x").await.unwrap();
            let theirs = again.shared::<Counter>("x").await.unwrap();
            assert_eq!(theirs.send(Add(1)).await, Ok(1));
            until("both are listed", || holders(&b, &x) == Some(vec!["a".into(), "c".into(), "c".into()]))
                .await;
            again.unregister_name("x");
            drop(theirs);
            until("the new one has let go", || holders(&b, &x) == both).await;
            // What the old one held stays until its lease is over: it might live behind a torn wire.
            drop((x, first, lost));
            until("a has let go", || b.report().objects.iter().all(|object| object.holders == ["c"])).await;
            assert!(gate.run_until(|| b.report().objects.is_empty(), seconds(120)).await, "{}", b.report());
            assert_no_leaks(&[&a, &b, &again]).await;
            Ok(())
        },
    );
}
