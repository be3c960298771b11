//! Single situations, spelled out.

use crate::world::{Content, World, at, uid};
use rref_core::lifetime::{Arrival, Control, Effect, GoneReason, HandleKey, ImportState, Lifetime, Outbox};
use rref_core::lifetime::{OwnedState, ProtocolError, RELEASE_BATCH};
use rref_core::{NodeUid, ObjectId, Rules, Stamp};

/// Nodes of the scenes: B owns, A introduces, C receives.
const B: usize = 0;
const A: usize = 1;
const C: usize = 2;

/// Notes what is enqueued; one position after the other whatever the receiver.
#[derive(Default)]
struct Notes(Vec<(NodeUid, Control)>);

impl Outbox for Notes {
    fn enqueue(&mut self, to: NodeUid, control: Control) -> Stamp {
        self.0.push((to, control));
        at(self.0.len() as u64)
    }
}

/// A live object at B, held by A and confirmed there.
fn scene(rules: Rules) -> Result<(World, HandleKey), String> {
    let mut w = World::new(3, rules);
    let key = w.create(A, B)?;
    w.send_create(A)?;
    w.deliver(A, B)?;
    w.construct(B, 0, true)?;
    w.settle_down()?;
    assert!(w.nodes[A].life.held().all(|h| h.confirmed && h.handles == 1));
    w.sent.clear();
    Ok((w, key))
}

fn claims(w: &World) -> usize {
    w.sent.iter().filter(|(_, _, c)| matches!(c, Content::Control(Control::Claim(_)))).count()
}

fn releases(w: &World) -> usize {
    w.sent.iter().filter(|(_, _, c)| matches!(c, Content::Control(Control::Release(_)))).count()
}

fn pins(w: &World, i: usize) -> usize {
    w.nodes[i].life.pin_count()
}

#[test]
fn clone_drop_local() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.deliver(A, C).unwrap();
    let imported = w.nodes[C].handles[0];
    for _ in 0..100 {
        w.clone_handle(C, imported).unwrap();
    }
    w.drop_all(C).unwrap();
    w.settle_down().unwrap();
    assert_eq!((claims(&w), releases(&w)), (1, 1));
    w.finish().unwrap();
}

#[test]
fn same_handle_twice_in_frame() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id, key.id]).unwrap();
    assert_eq!(pins(&w, A), 1);
    w.deliver(A, C).unwrap();
    assert_eq!(w.nodes[C].life.held().next().unwrap().handles, 2);
    w.drop_nth(C, 0).unwrap();
    w.settle_down().unwrap();
    assert_eq!((claims(&w), releases(&w), pins(&w, A)), (1, 0, 0));
    w.drop_nth(C, 0).unwrap();
    w.settle_down().unwrap();
    assert_eq!((claims(&w), releases(&w)), (1, 1));
    w.finish().unwrap();
}

#[test]
fn claim_suppressed_when_held() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.settle_down().unwrap();
    w.sent.clear();
    w.send(A, C, &[key.id]).unwrap();
    w.deliver(A, C).unwrap();
    // Settled on the spot: the watermark already covers the frame.
    assert_eq!(w.nodes[C].life.settled_for(uid(A)), 2);
    w.settle_down().unwrap();
    assert_eq!(w.sent, [(A, C, Content::Message(vec![key.id]))]);
    assert_eq!(pins(&w, A), 0);
    w.finish().unwrap();
}

#[test]
fn handoff_to_owner() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, B, &[key.id]).unwrap();
    w.drop_all(A).unwrap();
    w.flush(A).unwrap();
    assert_eq!((pins(&w, A), claims(&w), w.nodes[A].life.held_count()), (0, 0, 0));
    w.settle_down().unwrap();
    // The owner's own handle is all that is left.
    let owned = w.nodes[B].life.owned().next().unwrap();
    assert_eq!((owned.local, owned.holders.len(), w.freed.len()), (1, 0, 0));
    w.drop_all(B).unwrap();
    assert!(w.freed.contains(&key.id));
    // A second one comes home too late: gone from birth, and still a counted handle.
    w.expect_gone = true;
    w.send(A, B, &[key.id]).unwrap();
    w.deliver(A, B).unwrap();
    let late = w.nodes[B].handles[0];
    assert_eq!(w.nodes[B].life.broken_reason(late), Some(&GoneReason::Freed));
    w.finish().unwrap();
}

#[test]
fn settle_lost_10_times() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.drop_all(A).unwrap();
    w.deliver(A, C).unwrap();
    w.deliver(C, B).unwrap();
    w.make_ack(B, C, &[]);
    w.deliver_ack(0).unwrap();
    for _ in 0..10 {
        w.make_ack(C, A, &[]);
        w.acks.clear();
        w.flush(A).unwrap();
        assert_eq!(pins(&w, A), 1);
    }
    w.make_ack(C, A, &[]);
    w.acks.push(w.acks[0].clone());
    w.deliver_ack(0).unwrap();
    assert_eq!(pins(&w, A), 0);
    w.deliver_ack(0).unwrap();
    w.settle_down().unwrap();
    assert_eq!(releases(&w), 1);
    w.finish().unwrap();
}

#[test]
fn call_after_free() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.drop_all(A).unwrap();
    w.settle_down().unwrap();
    let life = &mut w.nodes[B].life;
    assert_eq!(life.call_arrived(key.id), Arrival::Gone(GoneReason::Freed));
    let next = ObjectId { create_no: key.id.create_no + 1, ..key.id };
    assert_eq!(life.call_arrived(ObjectId { owner: uid(C), ..next }), Arrival::NotOwner);
    assert!(life.is_clean());
    // A parked call counts once: as a reason to expect the object, then, asked for again, as a call.
    assert_eq!((life.call_arrived(next), life.parked_count()), (Arrival::Park, 1));
    assert_eq!((life.on_create(uid(A), next.create_no), life.parked_count()), (Ok(next), 0));
    assert_eq!(life.call_arrived(next), Arrival::Wait);
    assert_eq!(life.owned().map(|owned| owned.calls).collect::<Vec<_>>(), [1]);
}

#[test]
fn introducer_may_drop_at_once() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.drop_all(A).unwrap();
    w.flush(A).unwrap();
    assert_eq!(releases(&w), 0);
    w.settle_down().unwrap();
    assert_eq!((claims(&w), releases(&w)), (1, 1));
    assert_eq!(w.nodes[B].life.owned().next().unwrap().holders, [uid(C)]);
    w.finish().unwrap();
}

#[test]
fn create_then_drop() {
    let mut w = World::new(2, Rules::ALL);
    let key = w.create(A, B).unwrap();
    w.drop_all(A).unwrap();
    w.flush(A).unwrap();
    assert!(w.sent.is_empty(), "nothing may precede the Create");
    w.send_create(A).unwrap();
    w.flush(A).unwrap();
    w.deliver(A, B).unwrap();
    w.deliver(A, B).unwrap();
    assert!(w.freed.is_empty(), "it is under construction");
    w.construct(B, 0, true).unwrap();
    assert!(w.freed.contains(&key.id));
    w.finish().unwrap();
}

#[test]
fn failed_object_keeps_its_reason_while_held() {
    let mut w = World::new(2, Rules::ALL);
    let id = w.create(A, B).unwrap().id;
    w.send_create(A).unwrap();
    w.call(A, id).unwrap();
    w.deliver(A, B).unwrap();
    w.deliver(A, B).unwrap();
    assert_eq!(w.nodes[B].running, [id], "a call waits behind construction");
    w.construct(B, 0, false).unwrap();
    w.finish_call(B, 0).unwrap();
    let why = GoneReason::CreateFailed("x".into());
    assert_eq!(w.nodes[B].life.call_arrived(id), Arrival::Failed(why.clone()));
    assert_eq!(w.nodes[B].life.owned().next().unwrap().state, OwnedState::Failed(why));
    w.finish().unwrap();
}

#[test]
fn queued_call_keeps_its_object() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.call(A, key.id).unwrap();
    w.drop_all(A).unwrap();
    w.settle_down().unwrap();
    assert!(w.freed.is_empty());
    w.finish_call(B, 0).unwrap();
    assert!(w.freed.contains(&key.id));
}

/// A creates at B, hands on to C before the Create is sent, and C hands on to B.
#[test]
fn third_party_is_faster_than_the_create() {
    let mut w = World::new(3, Rules::ALL);
    let key = w.create(A, B).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.deliver(A, C).unwrap();
    w.call(C, key.id).unwrap();
    w.send(C, B, &[key.id]).unwrap();
    w.drop_all(C).unwrap();
    w.flush(C).unwrap();
    while w.lanes.get(&(C, B)).is_some_and(|l| !l.is_empty()) {
        w.deliver(C, B).unwrap();
    }
    let owned = w.nodes[B].life.owned().next().unwrap();
    assert_eq!((owned.state, owned.local, owned.holders.len()), (OwnedState::Expected, 1, 0));
    assert_eq!((w.nodes[B].parked.len(), w.nodes[B].life.parked_count()), (1, 1));
    w.send_create(A).unwrap();
    w.deliver(A, B).unwrap();
    assert_eq!((w.nodes[B].running.len(), w.nodes[B].life.parked_count()), (1, 0));
    w.finish().unwrap();
}

#[test]
fn parked_limit() {
    let mut life = Lifetime::new(uid(B), Rules::ALL);
    life.set_parked_limit(2);
    let id = |create_no| ObjectId { owner: uid(B), creator: uid(A), create_no };
    let out = &mut Notes::default();
    life.on_claim(uid(C), &[id(1), id(2), id(1)], out).unwrap();
    let err = life.on_claim(uid(C), &[id(3)], out).unwrap_err();
    assert_eq!(err, ProtocolError::TooManyParked { from: uid(C), id: id(3), limit: 2 });
    // A call over the limit is told so, and counts nowhere; one for what is expected already parks.
    assert_eq!((life.call_arrived(id(3)), life.call_arrived(id(2))), (Arrival::TooMany, Arrival::Park));
    assert_eq!((life.owned_count(), life.parked_count()), (2, 2));
    let home = life.import(&[id(3), id(2)], uid(C), at(1), out);
    assert_eq!(home[0].state, ImportState::Gone(GoneReason::NeverCreated));
    assert_eq!(home[1].state, ImportState::Ok);
    // The dead handle touches nothing of the object that comes after all.
    for no in 1..=3 {
        life.on_create(uid(A), no).unwrap();
    }
    life.drop_handle(home[0].key, out);
    assert_eq!(life.owned().map(|o| o.local).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!((life.parked_count(), life.broken_count()), (0, 0));
    assert!(out.0.is_empty());
}

#[test]
fn protocol_errors() {
    let mut life = Lifetime::new(uid(B), Rules::ALL);
    let out = &mut Notes::default();
    let before = life.clone();
    let own = ObjectId { owner: uid(B), creator: uid(A), create_no: 1 };
    let foreign = ObjectId { owner: uid(C), ..own };
    let not_ours = ProtocolError::NotOurs { from: uid(A), id: foreign };
    assert_eq!(life.on_claim(uid(A), &[own, foreign], out), Err(not_ours.clone()));
    assert_eq!(life.on_release(uid(A), &[(foreign, at(1))]), Err(not_ours));
    let not_theirs = ProtocolError::NotTheirs { from: uid(A), id: foreign };
    assert_eq!(life.on_gone(uid(A), &[(foreign, GoneReason::Freed)]), Err(not_theirs));
    let gap = ProtocolError::CreateOutOfOrder { from: uid(A), expected: 1, got: 2 };
    assert_eq!(life.on_create(uid(A), 2), Err(gap));
    assert_eq!(life, before);
    life.on_create(uid(A), 1).unwrap();
    assert!(life.on_create(uid(A), 1).is_err());
}

#[test]
fn full_batch_goes_at_once() {
    let mut life = Lifetime::new(uid(A), Rules::ALL);
    let out = &mut Notes::default();
    let ids: Vec<ObjectId> =
        (1..=150).map(|create_no| ObjectId { owner: uid(B), creator: uid(B), create_no }).collect();
    let imported = life.import(&ids, uid(B), at(5), out);
    assert!(out.0.is_empty(), "the owner's own introductions need no claim");
    for import in imported {
        life.drop_handle(import.key, out);
    }
    let batches = |out: &Notes| -> Vec<usize> {
        let lens = out.0.iter().map(|(_, c)| match c {
            Control::Release(r) => r.len(),
            _ => 0,
        });
        lens.collect()
    };
    assert_eq!(batches(out), [RELEASE_BATCH, RELEASE_BATCH]);
    assert_eq!(life.take_effects(), [Effect::FlushReleases]);
    // What the frame under way has introduced counts as seen.
    assert!(matches!(&out.0[0].1, Control::Release(r) if r.iter().all(|(_, seen)| *seen == at(5))));
    life.flush_all(out);
    assert_eq!(batches(out), [RELEASE_BATCH, RELEASE_BATCH, 150 - 2 * RELEASE_BATCH]);
    assert!(life.is_clean());
}

#[test]
fn claim_follows_the_release() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.settle_down().unwrap();
    w.drop_all(C).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.sent.clear();
    w.deliver(A, C).unwrap();
    let kinds: Vec<bool> =
        w.sent.iter().map(|(_, _, c)| matches!(c, Content::Control(Control::Release(_)))).collect();
    assert_eq!(kinds, [true, false]);
    w.finish().unwrap();
}

/// C claims an object that is gone; handles of the dead entry never touch the next one.
#[test]
fn broken_handles_keep_to_themselves() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.send(A, C, &[key.id]).unwrap();
    w.deliver(A, C).unwrap();
    let gone = vec![(key.id, GoneReason::LeaseExpired)];
    w.expect_gone = true;
    w.with(C, |n| n.life.on_gone(uid(B), &gone)).unwrap().unwrap();
    let old = w.nodes[C].handles[0];
    assert_eq!(w.broken, [(C, key.id, GoneReason::LeaseExpired)]);
    assert_eq!(w.nodes[C].life.broken_reason(old), Some(&GoneReason::LeaseExpired));
    w.send(A, C, &[key.id]).unwrap();
    w.deliver(A, C).unwrap();
    let new = w.nodes[C].handles[1];
    assert_ne!(old, new);
    w.clone_handle(C, old).unwrap();
    w.sent.clear();
    w.with(C, |n| (0..2).for_each(|_| n.life.drop_handle(old, &mut n.mail))).unwrap();
    w.nodes[C].handles = vec![new];
    w.flush(C).unwrap();
    assert_eq!((w.nodes[C].life.broken_count(), releases(&w)), (0, 0));
    assert_eq!(w.nodes[C].life.held().map(|h| h.handles).collect::<Vec<_>>(), [1]);
    w.finish().unwrap();
}

/// Without the rule, an ack that overtakes the Gone confirms an object that does not exist.
#[test]
fn needs_ack_waits_for_position() {
    let run = |rules| {
        let (mut w, key) = scene(rules).unwrap();
        w.drop_all(A).unwrap();
        w.settle_down().unwrap();
        assert!(w.freed.contains(&key.id));
        w.expect_gone = true;
        // As after a lapse: A speaks of an object that has been freed meanwhile.
        w.send(A, C, &[key.id]).unwrap();
        w.deliver(A, C).unwrap();
        w.deliver(C, B).unwrap();
        w.make_ack(B, C, &[]);
        w.deliver_ack(0).unwrap();
        let confirmed = w.nodes[C].life.held().any(|h| h.confirmed);
        w.finish().unwrap();
        confirmed
    };
    assert!(!run(Rules::ALL));
    assert!(run(Rules { ack_waits_for_position: false, ..Rules::ALL }));
}

/// Without the rule, a dead owner holds the introducer's pins on its objects for ever.
#[test]
fn needs_settle_broken() {
    let run = |rules| {
        let (mut w, key) = scene(rules).unwrap();
        w.send(A, C, &[key.id]).unwrap();
        w.drop_all(A).unwrap();
        w.deliver(A, C).unwrap();
        w.expect_gone = true;
        // Only C has learned of the end of B: its claim is never acknowledged.
        w.with(C, |n| n.life.owner_died(uid(B), GoneReason::LeaseExpired)).unwrap();
        w.drop_all(C).unwrap();
        w.make_ack(C, A, &[]);
        w.deliver_ack(0).unwrap();
        (pins(&w, A), w.nodes[C].life.is_clean())
    };
    assert_eq!(run(Rules::ALL), (0, true));
    assert_eq!(run(Rules { settle_broken: false, ..Rules::ALL }), (1, false));
}

#[test]
fn dead_owner_breaks_everything_of_its() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    let queued = w.create(A, B).unwrap();
    let other = w.create(C, A).unwrap().id;
    w.send_create(C).unwrap();
    w.deliver(C, A).unwrap();
    w.send(A, C, &[key.id, queued.id]).unwrap();
    w.expect_gone = true;
    w.with(A, |n| n.life.owner_died(uid(B), GoneReason::LeaseExpired)).unwrap();
    assert_eq!(w.broken.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(), [key.id, queued.id]);
    assert_eq!((pins(&w, A), w.nodes[A].life.held_count(), w.nodes[A].life.broken_count()), (0, 0, 2));
    // Born broken from now on, imports and creations alike; a late position is no news.
    w.with(A, |n| n.life.create_sent(queued.id, at(9))).unwrap();
    let born = w.create(A, B).unwrap();
    assert!(w.nodes[A].life.broken_reason(born).is_some());
    w.deliver(A, C).unwrap();
    w.send(C, A, &[key.id]).unwrap();
    w.deliver(C, A).unwrap();
    assert_eq!(w.nodes[A].life.broken_count(), 4);
    assert_eq!(w.nodes[A].life.settled_for(uid(C)), 2);
    // It holds nothing of A's, but if it did: nothing of A's own is freed by this.
    assert_eq!(w.nodes[A].life.owned().map(|o| o.id).collect::<Vec<_>>(), [other]);
    w.drop_all(A).unwrap();
    assert_eq!((w.nodes[A].life.held_count(), w.nodes[A].life.broken_count()), (0, 0));
}

/// The end of a peer frees nothing it held.
#[test]
fn dead_holder_keeps_its_listing() {
    let (mut w, key) = scene(Rules::ALL).unwrap();
    w.with(B, |n| n.life.owner_died(uid(A), GoneReason::LeaseExpired)).unwrap();
    assert_eq!(w.nodes[B].life.owned().next().unwrap().holders, [uid(A)]);
    assert!(!w.freed.contains(&key.id));
}

#[test]
fn one_dead_owner_does_not_hold_others_pins() {
    const X: usize = 3;
    let mut w = World::new(4, Rules::ALL);
    let ids = [B, X].map(|owner| {
        let id = w.create(A, owner).unwrap().id;
        w.send_create(A).unwrap();
        w.deliver(A, owner).unwrap();
        id
    });
    // X says nothing; its object comes first.
    w.send(A, C, &[ids[1]]).unwrap();
    w.send(A, C, &[ids[0]]).unwrap();
    w.deliver(A, C).unwrap();
    w.deliver(A, C).unwrap();
    w.deliver(C, B).unwrap();
    w.make_ack(B, C, &[]);
    w.deliver_ack(0).unwrap();
    let life = &w.nodes[C].life;
    assert_eq!(life.unsettled_owners(uid(A)).collect::<Vec<_>>(), [uid(X)]);
    assert_eq!((life.settled_for(uid(A)), life.settled_except(uid(A), &[uid(X)])), (0, 2));
    w.make_ack(C, A, &[uid(X)]);
    w.deliver_ack(0).unwrap();
    let pinned = w.nodes[A].life.held().filter(|h| !h.pins.is_empty());
    assert_eq!(pinned.map(|h| h.id).collect::<Vec<_>>(), [ids[1]]);
}

/// A peer invents an object in our name; our next creation has nothing to do with it.
#[test]
fn invented_creation_is_dead_from_birth() {
    let mut life = Lifetime::new(uid(A), Rules::ALL);
    let out = &mut Notes::default();
    let id = ObjectId { owner: uid(B), creator: uid(A), create_no: 1 };
    let invented = life.import(&[id], uid(C), at(1), out).remove(0);
    assert_eq!(invented.state, ImportState::Gone(GoneReason::NeverCreated));
    assert!(out.0.is_empty());
    let own = life.create(uid(B));
    assert_eq!(own.id, id);
    assert_ne!(own, invented.key);
    life.drop_handle(invented.key, out);
    assert_eq!(life.held().map(|h| (h.handles, h.queued)).collect::<Vec<_>>(), [(1, true)]);
}

/// The parts of an inventory have an order, and numbers cannot be taken back or run over.
#[test]
fn inventories_out_of_order() {
    let mut life = Lifetime::new(uid(B), Rules::ALL);
    let out = &mut Notes::default();
    life.on_create(uid(A), 1).unwrap();
    let out_of_order = |what| Err(ProtocolError::InventoryOutOfOrder { from: uid(A), what });
    assert_eq!(life.on_inventory_items(uid(A), &[], out), out_of_order("an inventory's items"));
    assert_eq!(life.on_inventory_end(uid(A), out), out_of_order("an inventory's end"));
    let taken_back = life.on_inventory_begin(uid(A), at(2), 1, Stamp::ZERO);
    assert_eq!(taken_back, Err(ProtocolError::CreateOutOfOrder { from: uid(A), expected: 2, got: 1 }));
    life.on_inventory_begin(uid(A), at(2), u64::MAX, Stamp::ZERO).unwrap();
    let twice = life.on_inventory_begin(uid(A), at(3), u64::MAX, Stamp::ZERO);
    assert_eq!(twice, out_of_order("an inventory's begin"));
    let foreign = ObjectId { owner: uid(C), creator: uid(A), create_no: 1 };
    let not_ours = ProtocolError::NotOurs { from: uid(A), id: foreign };
    assert_eq!(life.on_inventory_items(uid(A), &[foreign], out), Err(not_ours));
    life.on_inventory_end(uid(A), out).unwrap();
    life.on_create(uid(A), u64::MAX).unwrap();
    assert!(life.on_create(uid(A), u64::MAX).is_err());
    assert!(life.on_create(uid(A), 0).is_err());
}

/// What a peer lists that does not exist is answered, and not remembered.
#[test]
fn an_inventory_of_nothing_leaves_nothing() {
    let mut life = Lifetime::new(uid(B), Rules::ALL);
    let out = &mut Notes::default();
    life.on_create(uid(C), 9).unwrap_err();
    let ids: Vec<ObjectId> =
        (1..=3).map(|n| ObjectId { owner: uid(B), creator: uid(A), create_no: n }).collect();
    life.on_inventory_begin(uid(A), at(1), 4, Stamp::ZERO).unwrap();
    life.on_inventory_items(uid(A), &ids, out).unwrap();
    life.on_inventory_end(uid(A), out).unwrap();
    let gone: Vec<_> = ids.iter().map(|id| (*id, GoneReason::NeverCreated)).collect();
    assert_eq!(out.0, [(uid(A), Control::Gone(gone))]);
    assert!(life.is_clean());
    assert_eq!(life.call_arrived(ids[2]), Arrival::Gone(GoneReason::Freed));
}
