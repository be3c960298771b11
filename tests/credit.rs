//! How much a node lets others leave unfinished with it, in calls and in bytes.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod raw;

use raw::{Log, RawPeer, eventually, finish, hello};
use rref::prelude::*;
use rref::transport::Network;
use rref::{Builder, PeerReport};
use rref_core::wire::{Body, Call, Frame, Name, NameKind, Payload, Target, Trace};
use rref_core::{NodeUid, ObjectId};
use tokio::sync::Semaphore;

const KIB: usize = 1024;

/// Calls of `keep` end one for each permit.
static GATE: Semaphore = Semaphore::const_new(0);

async fn keep(data: Vec<u8>) -> usize {
    if let Ok(permit) = GATE.acquire().await {
        permit.forget();
    }
    data.len()
}

fn length(data: Vec<u8>) -> usize {
    data.len()
}

fn node(name: &str, network: &Network) -> Builder {
    let builder = Node::builder(name).transport(network.clone()).listen(name).insecure();
    builder.function(keep).function(length)
}

fn peer(node: &Node, name: &str) -> PeerReport {
    node.report().peers.into_iter().find(|peer| peer.name == name).unwrap()
}

#[actix::test]
async fn bytes_of_unfinished_calls_are_bounded() {
    tokio::time::pause();
    let network = Network::new();
    let owner = node("owner", &network).peer_credit(1000, 100 * KIB as u64).start().await.unwrap();
    let caller = node("caller", &network).join("owner").start().await.unwrap();
    let other = node("other", &network).join("owner").start().await.unwrap();

    let data = vec![0; 30 * KIB];
    let calls: Vec<_> = (0..20).map(|_| caller.call("owner", keep, (data.clone(),))).collect();
    eventually("the credit is used up", || peer(&caller, "owner").waiting_for_credit > 0).await;
    // The fourth uses up what the first three have left; the owner has no more of them than that.
    eventually("four are there", || peer(&owner, "caller").running == 4).await;
    let held = peer(&owner, "caller").unfinished_bytes as usize;
    assert!((120 * KIB..121 * KIB).contains(&held), "{held}");
    assert_eq!(peer(&caller, "owner").waiting_for_credit, 16);
    // Whoever has credit is served; whoever gives up in time is not sent.
    assert_eq!(other.call("owner", length, (data.clone(),)).await.unwrap(), data.len());
    let late = caller.call("owner", length, (vec![1],));
    drop(late);
    // Each that ends lets another one go.
    for done in 1..=20 {
        GATE.add_permits(1);
        let left = 20 - done;
        eventually("the next is there", || peer(&owner, "caller").running == left.min(4)).await;
        assert!(peer(&owner, "caller").unfinished_bytes as usize <= 121 * KIB);
    }
    for call in calls {
        assert_eq!(call.await.unwrap(), data.len());
    }
    eventually("nothing is charged", || peer(&owner, "caller").unfinished_bytes == 0).await;
    // More than all of the credit at a time, small parts and chunks alike.
    for size in [60 * KIB, 3000 * KIB, 1] {
        let calls = [(); 3].map(|()| caller.call("owner", length, (vec![7; size],)));
        for call in calls {
            assert_eq!(call.await.unwrap(), size);
        }
    }
    finish([other, caller, owner]).await;
}

#[actix::test]
async fn a_peer_that_spends_more_bytes_than_it_has_is_turned_away() {
    let log = Log::capture();
    let network = Network::new();
    let owner = node("owner", &network).peer_credit(1000, 100 * KIB as u64).start().await.unwrap();
    let bystander = node("bystander", &network).join("owner").start().await.unwrap();
    let mut mallory = RawPeer::join(&network, "owner", &hello("mallory", 666, &[])).await;
    assert!(mallory.is_accepted(), "{:?}", mallory.answer);
    // Calls of an object that is not created yet stay until it is.
    let object = ObjectId { owner: owner.uid(), creator: NodeUid(666), create_no: 1 };
    let schema = 0;
    mallory.send(&Frame::Name(Name { index: 1, kind: NameKind::Method, path: "m".into(), schema })).await;
    for call_id in 1..=3 {
        let payload = Payload { body: Body::Inline(vec![0; 60 * KIB].into()), ..Payload::default() };
        let target = Target::Method { object, name: 1 };
        let call = Call { call_id, target, timeout_ms: u64::MAX, trace: Trace::default(), payload };
        mallory.send(&Frame::Call(call)).await;
        if call_id == 2 {
            eventually("two are within its credit", || peer(&owner, "mallory").running == 2).await;
        }
    }
    mallory.closed().await;
    let lines = log.matching("closing the session");
    assert!(lines.len() == 1 && lines[0].contains("mallory") && lines[0].contains("granted"), "{lines:?}");
    assert_eq!(bystander.call("owner", length, (vec![1],)).await.unwrap(), 1);
    finish([bystander, owner]).await;
}
