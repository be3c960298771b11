//! Clusters that grow and shrink: whoever joins one member joins all, names are unique, and any node
//! may leave, the first one too.

use rref::prelude::*;
use rref::{LeaseSettings, NodeEvent, transport::Network};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

fn square(x: i64) -> i64 {
    x * x
}

fn node(name: &str, network: &Network) -> rref::Builder {
    Node::builder(name).transport(network.clone()).listen(name).insecure().function(square)
}

async fn everyone_reaches_everyone(nodes: &[&Node]) {
    for from in nodes {
        for to in nodes {
            assert_eq!(from.call(to.name(), square, (7,)).await, Ok(49), "{from:?} calls {to:?}");
        }
    }
}

/// Joining one member is joining all. A newcomer that is not told of would be unknown to the rest.
#[actix::test]
async fn members_learn_of_each_other_through_any_member() {
    let network = Network::new();
    let a = node("a", &network).start().await.unwrap();
    let b = node("b", &network).join("a").start().await.unwrap();
    let c = node("c", &network).join("b").start().await.unwrap();
    let d = node("d", &network).join("a").start().await.unwrap();
    let nodes = [&a, &b, &c, &d];
    for node in nodes {
        node.wait_for_peers(3, SOON).await.unwrap();
    }
    everyone_reaches_everyone(&nodes).await;
    for node in nodes {
        node.shutdown().await;
    }
}

/// The rest goes on without the node that everybody joined.
#[actix::test]
async fn dynamic_rpc_existing_rank_can_communicate_with_new_rank() {
    let network = Network::new();
    let first = node("first", &network).start().await.unwrap();
    let a = node("a", &network).join("first").start().await.unwrap();
    let b = node("b", &network).join("first").start().await.unwrap();
    a.wait_for("b", SOON).await.unwrap();
    b.wait_for("a", SOON).await.unwrap();
    let mut events = a.events();
    first.shutdown().await;
    while !matches!(events.next().await.unwrap(), NodeEvent::PeerDown { name, .. } if name == "first") {}
    everyone_reaches_everyone(&[&a, &b]).await;
    let c = node("c", &network).join("b").start().await.unwrap();
    for (node, peer) in [(&a, "c"), (&c, "a")] {
        node.wait_for(peer, SOON).await.unwrap();
    }
    everyone_reaches_everyone(&[&a, &b, &c]).await;
    for node in [a, b, c] {
        node.shutdown().await;
    }
}

/// A name whose node has left can be taken again, and means the new node.
#[actix::test]
async fn a_name_goes_to_the_newcomer_when_its_node_has_left() {
    let network = Network::new();
    let a = node("a", &network).start().await.unwrap();
    let old = node("shard", &network).join("a").start().await.unwrap();
    let uid = old.uid();
    let mut events = a.events();
    old.shutdown().await;
    while !matches!(events.next().await.unwrap(), NodeEvent::PeerDown { .. }) {}
    let new = node("shard", &network).join("a").start().await.unwrap();
    assert_ne!(new.uid(), uid);
    assert_eq!(a.call("shard", square, (3,)).await, Ok(9));
    for node in [a, new] {
        node.shutdown().await;
    }
}

/// Of two live nodes with one name, the one that comes second is turned away.
#[actix::test]
async fn a_name_in_use_is_refused() {
    let network = Network::new();
    let a = node("a", &network).start().await.unwrap();
    let b = node("b", &network).join("a").start().await.unwrap();
    let again = Node::builder("b").transport(network.clone()).join("a").start().await;
    assert!(matches!(again, Err(Error::NameTaken { name, .. }) if name == "b"));
    let itself = Node::builder("a").transport(network.clone()).join("b").start().await;
    assert!(matches!(itself, Err(Error::NameTaken { .. })));
    for node in [a, b] {
        node.shutdown().await;
    }
}

/// Two halves that did not know of each other, each with a node of the same name, become one cluster:
/// the greater uid leaves.
#[actix::test]
async fn of_two_nodes_with_one_name_the_smaller_uid_stays() {
    let network = Network::new();
    let a = node("a", &network).start().await.unwrap();
    let b = node("b", &network).start().await.unwrap();
    let one = Node::builder("twin").transport(network.clone()).listen("one").insecure().function(square);
    let one = one.join("a").start().await.unwrap();
    let two = Node::builder("twin").transport(network.clone()).listen("two").insecure().function(square);
    let two = two.join("b").start().await.unwrap();
    let (stays, leaves) = if one.uid() < two.uid() { (&one, &two) } else { (&two, &one) };
    let mut events = leaves.events();
    // The bridge brings the halves together.
    let bridge = node("bridge", &network).join("a").join("b").start().await.unwrap();
    let lost = async {
        loop {
            match events.next().await {
                Some(NodeEvent::NameTaken { holder }) => break holder,
                Some(_) => {}
                None => panic!("it ended without a word"),
            }
        }
    };
    let holder = tokio::time::timeout(SOON, lost).await.unwrap();
    assert_eq!(holder, stays.uid());
    assert!(!leaves.is_ready() && stays.is_ready());
    for node in [&bridge, &a, &b, stays] {
        node.shutdown().await;
    }
}

/// Both dial at once: one connection stays, and no call is lost.
#[actix::test]
async fn simultaneous_dial() {
    let network = Network::new();
    for _ in 0..20 {
        let a = node("a", &network).start().await.unwrap();
        let b = node("b", &network).join("a").start().await.unwrap();
        for round in 0..3 {
            network.cut_connections();
            let (x, y) = (a.call("b", square, (round,)), b.call("a", square, (round,)));
            assert_eq!((x.await, y.await), (Ok(round * round), Ok(round * round)));
        }
        a.shutdown().await;
        b.shutdown().await;
    }
}

/// Settings that do not go together are found before anything starts, with the rule that they break.
#[actix::test]
async fn settings_that_do_not_go_together() {
    let good = LeaseSettings::default();
    let network = Network::new();
    for (settings, rule) in [
        (LeaseSettings { grace: Duration::ZERO, ..good }, "TTL + grace >= 4 x resume window"),
        (LeaseSettings { crashes: 9, ..good }, "TTL + grace >= (crashes + 2) x delay"),
        (LeaseSettings { heartbeat: Duration::from_secs(20), ..good }, "heartbeat"),
        (LeaseSettings { suspect_after: Duration::from_secs(1), ..good }, "suspect after >= 2 x heartbeat"),
    ] {
        let started = node("a", &network).leases(settings).start().await;
        assert!(matches!(&started, Err(Error::Config(text)) if text.contains(rule)), "{rule}: {started:?}");
    }
    let started = node("a", &network).resend_buffer(1000).start().await;
    assert!(matches!(&started, Err(Error::Config(text)) if text.contains("524288 or more")), "{started:?}");
    // Short ones that do are fine, and nothing is left of the attempts.
    let a = node("a", &network).leases(LeaseSettings::shortened(20)).start().await.unwrap();
    assert_eq!(a.call("a", square, (3,)).await, Ok(9));
    a.shutdown().await;
}
