//! Single situations, spelled out: resets step by step, fences and returns, give-up, crashes. Every step
//! is checked against the invariants, as in the models.

use crate::kit::actions::Action;
use crate::kit::setup::Setup;
use crate::kit::world::{Content, World, index, uid};
use rref_core::lease::PeerState;
use rref_core::lifetime::{Control, GoneReason, HandleKey};
use rref_core::{ObjectId, Rules};

/// B owns, A introduces, C receives; X is another owner.
const B: usize = 0;
const A: usize = 1;
const C: usize = 2;
const X: usize = 3;

struct Scene {
    setup: Setup,
    world: World,
}

impl Scene {
    /// `A` holds an object of `B`'s.
    fn new(setup: Setup) -> Scene {
        let setup =
            Setup { start: if setup.start.is_empty() { vec![(A, B)] } else { setup.start.clone() }, ..setup };
        let mut world = setup.world();
        world.budget.gives = 100;
        world.budget.calls = 100;
        world.budget.creates = 100;
        world.budget.resets = 100;
        world.budget.cuts = 100;
        world.budget.crashes = 100;
        world.budget.blocks = 100;
        world.budget.leaves = 100;
        Scene { setup, world }
    }

    fn empty(mut setup: Setup) -> Scene {
        setup.start = vec![(A, B)];
        let mut scene = Scene::new(setup);
        scene.drop_all(A);
        scene.settle();
        scene
    }

    #[track_caller]
    fn act(&mut self, action: Action) {
        self.world.step(&self.setup, action.clone());
        assert_eq!(self.world.bad, None, "after {action:?}");
    }

    fn object(&self) -> ObjectId {
        *self.world.ghost.created.last().unwrap()
    }

    fn give(&mut self, from: usize, to: usize) {
        let ids = vec![self.object()];
        self.act(Action::Give { from, to, ids });
    }

    fn drop_all(&mut self, node: usize) {
        while let Some(key) = self.world.nodes[node].handles.first().copied() {
            self.act(Action::Drop { node, key });
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        self.act(Action::Deliver { from, to });
    }

    /// What the protocol does by itself, without the application, and without time.
    fn settle(&mut self) {
        for _ in 0..200 {
            let next = self.world.actions(&self.setup).into_iter().find(|action| {
                matches!(
                    action,
                    Action::Deliver { .. }
                        | Action::Receive { .. }
                        | Action::Ack { .. }
                        | Action::Dial { .. }
                        | Action::Answer { .. }
                        | Action::Emit { .. }
                        | Action::Construct { .. }
                        | Action::Return { .. }
                )
            });
            match next {
                Some(action) => self.act(action),
                None => return,
            }
        }
        panic!("never comes to rest");
    }

    /// Ticks of all nodes that can, with everything settled before each.
    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            for node in 0..self.world.nodes.len() {
                self.settle();
                if self.world.may_tick(&self.setup, node) && self.world.nodes[node].alive {
                    self.act(Action::Tick { node });
                }
            }
        }
        self.settle();
    }

    /// Ends the session of two nodes and begins the next.
    fn reset(&mut self, ends: usize, other: usize) {
        self.act(Action::End { node: ends, peer: other });
        self.act(Action::Dial { from: ends, to: other });
        self.act(Action::Answer { from: ends, to: other });
    }

    fn is_freed(&self) -> bool {
        self.world.ghost.freed.contains(&self.object())
    }

    fn holders(&self, id: ObjectId) -> Vec<usize> {
        let owned = self.world.nodes[index(id.owner)].life.owned().find(|owned| owned.id == id);
        owned.map_or(Vec::new(), |owned| owned.holders.into_iter().map(index).collect())
    }

    fn pins(&self, node: usize) -> usize {
        self.world.nodes[node].life.pin_count()
    }

    fn reason(&self, node: usize) -> Option<&GoneReason> {
        let key: HandleKey = *self.world.nodes[node].handles.first()?;
        self.world.nodes[node].life.broken_reason(key)
    }

    fn state(&self, of: usize, at: usize) -> Option<PeerState> {
        self.world.nodes[at].leases.as_ref()?.state(uid(of))
    }

    /// Everybody lets go: nothing may be left anywhere.
    #[track_caller]
    fn finish(mut self) {
        for node in 0..self.world.nodes.len() {
            if self.world.nodes[node].alive {
                self.drop_all(node);
            }
        }
        self.settle();
        self.ticks(12);
        assert_eq!(self.world.is_clean(), Ok(()));
    }
}

fn untimed() -> Setup {
    Setup::new("scene")
}

fn timed() -> Setup {
    Setup { timed: true, longest_wait: Some(1000), longest_block: 1000, ..Setup::new("scene") }
}

/// Section 6, step 3: a claim in the lost window is made again by the inventory, and settles with its end.
#[test]
fn reset_while_awaiting() {
    let mut scene = Scene::new(untimed());
    scene.give(A, C);
    scene.deliver(A, C);
    scene.drop_all(A);
    // C's claim is under way, and is lost.
    scene.act(Action::End { node: C, peer: B });
    assert!(!scene.holders(scene.object()).contains(&C));
    scene.act(Action::Dial { from: C, to: B });
    scene.act(Action::Answer { from: C, to: B });
    // The begin is acknowledged: that confirms nothing yet.
    scene.deliver(C, B);
    scene.act(Action::Ack { from: B, to: C, except: false, late: false });
    assert!(scene.world.nodes[C].life.held().all(|held| !held.confirmed));
    assert_eq!(scene.pins(A), 1);
    scene.settle();
    assert_eq!(scene.holders(scene.object()), [C]);
    assert!(scene.world.nodes[C].life.held().all(|held| held.confirmed));
    assert_eq!(scene.pins(A), 0);
    scene.finish();
}

/// Steps 1 and 2: neither the pin nor the unsettled introduction is forgotten with the session that
/// carried it.
#[test]
fn pins_and_unsettled_introductions_outlive_the_session() {
    let mut scene = Scene::new(untimed());
    scene.give(A, C);
    scene.deliver(A, C);
    scene.drop_all(A);
    scene.reset(A, C);
    scene.deliver(A, C);
    scene.deliver(A, C);
    scene.deliver(C, A);
    // Everything between A and C is processed, and still the pin stays: B has not heard of C.
    scene.world.acknowledge(&scene.setup, C, A, false, false);
    assert_eq!(scene.pins(A), 1);
    scene.settle();
    assert_eq!((scene.pins(A), scene.holders(scene.object())), (0, vec![C]));
    scene.finish();
}

/// Step 1: a pin for a frame that the reset discarded falls with the new session's first settled mark.
#[test]
fn a_pin_for_a_lost_frame_falls() {
    let mut scene = Scene::new(untimed());
    scene.give(A, C);
    scene.drop_all(A);
    assert_eq!(scene.pins(A), 1);
    scene.reset(A, C);
    assert_eq!(scene.pins(A), 1);
    scene.settle();
    assert_eq!(scene.pins(A), 0);
    assert!(scene.is_freed());
    scene.finish();
}

/// The models' own record of I6 sees a frame that is applied again, and one of a session that is over.
#[test]
fn frames_out_of_place_are_seen() {
    let again = Rules { drop_duplicates: false, ..Rules::ALL };
    for (rules, reset) in [(again, false), (Rules::ALL, true)] {
        let mut scene = Scene::new(Setup { rules, ..untimed() });
        scene.give(A, C);
        let frame = scene.world.frames[&(A, C)].values().next().unwrap().clone();
        scene.deliver(A, C);
        if reset {
            scene.reset(A, C);
        }
        scene.world.process(&scene.setup, A, C, frame);
        assert!(scene.world.bad.as_ref().is_some_and(|why| why.starts_with("I6: frame")), "{reset}");
    }
}

/// Step 4: a release that the reset discarded is made good by absence from the inventory.
#[test]
fn a_lost_release_is_made_good() {
    let mut scene = Scene::new(untimed());
    scene.drop_all(A);
    scene.reset(B, A);
    assert_eq!(scene.holders(scene.object()), [A]);
    scene.settle();
    assert!(scene.is_freed());
    scene.finish();
}

/// Step 4: what the owner introduces after its switch is not swept away with the old listings, and a
/// release of an entry from before the switch counts.
#[test]
fn introduced_after_the_switch_stays() {
    let mut scene = Scene::new(Setup { start: vec![(B, B)], owners_let_go: false, ..untimed() });
    scene.give(B, C);
    scene.settle();
    scene.drop_all(C);
    scene.act(Action::End { node: C, peer: B });
    scene.act(Action::Dial { from: C, to: B });
    scene.give(B, C);
    scene.act(Action::Answer { from: C, to: B });
    scene.drop_all(B);
    scene.settle();
    assert_eq!(scene.holders(scene.object()), [C]);
    assert!(!scene.is_freed());
    scene.drop_all(C);
    scene.settle();
    assert!(scene.is_freed());
    scene.finish();
}

/// session_reset_inventory, in the core: any mixture of holdings, and afterwards both tables agree.
#[test]
fn session_reset_inventory() {
    let mut scene = Scene::new(Setup { start: vec![(A, B); 5], ..untimed() });
    let keys = scene.world.nodes[A].handles.clone();
    for key in &keys[..2] {
        scene.act(Action::Drop { node: A, key: *key });
    }
    scene.act(Action::Give { from: A, to: C, ids: vec![keys[3].id] });
    scene.reset(B, A);
    scene.act(Action::Drop { node: A, key: keys[4] });
    scene.settle();
    let held: Vec<ObjectId> = scene.world.nodes[A].life.held().map(|held| held.id).collect();
    assert_eq!(held, [keys[2].id, keys[3].id]);
    assert_eq!(scene.world.nodes[B].life.listed_for(uid(A)).count, 2);
    scene.finish();
}

/// Step 5: a Create that the reset discarded is reported to its creator, to whoever has the handle from
/// it, and to the calls that wait for it; later creations go on.
#[test]
fn a_lost_creation_is_reported() {
    let mut scene = Scene::empty(untimed());
    scene.act(Action::Create { node: A, owner: B });
    scene.act(Action::Emit { node: A });
    scene.give(A, C);
    scene.deliver(A, C);
    scene.deliver(C, B);
    scene.act(Action::Call { node: C, id: scene.object() });
    scene.deliver(C, B);
    assert_eq!(scene.world.nodes[B].parked, [scene.object()]);
    scene.reset(A, B);
    scene.settle();
    assert_eq!(scene.world.nodes[B].parked, []);
    assert_eq!(scene.reason(A), Some(&GoneReason::NeverCreated));
    assert_eq!(scene.reason(C), Some(&GoneReason::NeverCreated));
    scene.act(Action::Create { node: A, owner: B });
    scene.settle();
    assert_eq!(scene.object().create_no, 3);
    assert_eq!(scene.holders(scene.object()), [A]);
    scene.finish();
}

/// Step 5: what has no position yet is not lost.
#[test]
fn a_creation_without_a_position_is_sent_in_the_next_session() {
    let mut scene = Scene::empty(untimed());
    scene.act(Action::Create { node: A, owner: B });
    scene.give(A, C);
    scene.reset(A, B);
    let begin = scene.world.frames[&(A, B)].values().next().unwrap();
    assert!(
        matches!(begin.content, Content::Control(Control::InventoryBegin { next_create: 2, .. })),
        "{begin:?}"
    );
    scene.settle();
    assert_eq!(scene.holders(scene.object()), [A, C]);
    scene.finish();
}

/// **introducer_crash_after_send**, in the core: A sends the handle, drops it and crashes; C, which reads
/// it only then, keeps the object.
#[test]
fn introducer_crash_after_send() {
    let mut scene = Scene::new(timed());
    scene.give(A, C);
    scene.drop_all(A);
    scene.act(Action::Crash { node: A });
    assert_eq!(scene.holders(scene.object()), [A]);
    scene.act(Action::Receive { from: A, to: C });
    scene.ticks(8);
    assert_eq!(scene.holders(scene.object()), [C]);
    assert!(scene.reason(C).is_none());
    scene.drop_all(C);
    scene.settle();
    assert!(scene.is_freed());
    scene.finish();
}

/// introducer_crash_while_receiver_blocked: C's keeper beats on, and its main loop reads nothing for many
/// leases.
#[test]
fn introducer_crash_while_receiver_blocked() {
    let mut scene = Scene::new(timed());
    scene.give(A, C);
    scene.act(Action::Block { node: C });
    scene.act(Action::Crash { node: A });
    scene.ticks(40);
    assert_eq!((scene.state(A, B), scene.state(C, B)), (Some(PeerState::Lapsed), Some(PeerState::Up)));
    assert!(!scene.is_freed());
    scene.act(Action::Unblock { node: C });
    scene.settle();
    assert_eq!(scene.holders(scene.object()), [C]);
    assert_eq!(scene.state(A, B), Some(PeerState::Fenced));
    scene.finish();
}

/// receiver_crash_after_forward: C forwards what it has not confirmed, and crashes; A's pin holds until C
/// is fenced, and by then the next one is listed.
#[test]
fn receiver_crash_after_forward() {
    let mut scene = Scene::new(Setup { nodes: 4, ..timed() });
    scene.give(A, C);
    scene.deliver(A, C);
    scene.give(C, X);
    scene.drop_all(A);
    scene.act(Action::Crash { node: C });
    assert_eq!((scene.holders(scene.object()), scene.pins(A)), (vec![A], 1));
    scene.ticks(10);
    assert_eq!((scene.holders(scene.object()), scene.pins(A)), (vec![X], 0));
    scene.finish();
}

/// two_introducers_crash, in turn.
#[test]
fn two_introducers_crash() {
    let mut scene = Scene::new(Setup { nodes: 4, ..timed() });
    scene.give(A, C);
    scene.act(Action::Crash { node: A });
    scene.act(Action::Receive { from: A, to: C });
    scene.give(C, X);
    scene.act(Action::Crash { node: C });
    scene.ticks(12);
    assert_eq!(scene.holders(scene.object()), [X]);
    scene.finish();
}

/// R7: what a dead creator never asked for is reported to those who wait for it.
#[test]
fn creator_crash_before_create() {
    let mut scene = Scene::empty(timed());
    scene.act(Action::Create { node: A, owner: B });
    scene.give(A, C);
    scene.deliver(A, C);
    scene.deliver(C, B);
    scene.act(Action::Call { node: C, id: scene.object() });
    scene.act(Action::Crash { node: A });
    scene.ticks(8);
    assert_eq!(scene.reason(C), Some(&GoneReason::CreatorDied));
    // Later ones learn it at once.
    scene.act(Action::Call { node: B, id: scene.object() });
    assert_eq!(scene.world.nodes[B].parked, []);
    scene.finish();
}

/// holder_paused_beyond: a fenced node returns by a reset; what still exists is listed again, the rest is
/// gone for it.
#[test]
fn fenced_node_returns() {
    let mut scene = Scene::new(Setup { start: vec![(A, B), (A, B)], ..timed() });
    let ids: Vec<ObjectId> = scene.world.nodes[A].handles.iter().map(|key| key.id).collect();
    scene.act(Action::Give { from: A, to: C, ids: vec![ids[0]] });
    scene.settle();
    // The owner's side is judged before A's own.
    scene.act(Action::Cut { from: B, to: A });
    for _ in 0..4 {
        for node in [B, C, A] {
            scene.settle();
            if scene.state(A, B) != Some(PeerState::Fenced) {
                scene.act(Action::Tick { node });
            }
        }
    }
    assert_eq!(scene.holders(ids[0]), [C]);
    assert!(scene.world.ghost.freed.contains(&ids[1]));
    scene.act(Action::Heal { from: B, to: A });
    scene.settle();
    assert_eq!(scene.holders(ids[0]), [A, C]);
    let reasons: Vec<_> = scene.world.nodes[A]
        .handles
        .iter()
        .map(|key| scene.world.nodes[A].life.broken_reason(*key))
        .collect();
    assert_eq!(reasons, [None, Some(&GoneReason::LeaseExpired)]);
    scene.finish();
}

/// What is sent to a fenced node lists and pins nothing: it might never return.
#[test]
fn nothing_is_listed_for_a_fenced_node() {
    let mut scene = Scene::new(Setup { start: vec![(B, B)], owners_let_go: false, ..timed() });
    scene.give(B, C);
    scene.settle();
    scene.act(Action::Cut { from: B, to: C });
    scene.ticks(6);
    assert_eq!(scene.state(C, B), Some(PeerState::Fenced));
    scene.give(B, C);
    assert_eq!(scene.holders(scene.object()), Vec::<usize>::new());
    scene.drop_all(B);
    assert!(scene.is_freed());
    scene.finish();
}

/// receiver_cut_off_from_owner_for_good: C cannot claim; it gives the owner up, its handles break, and A's
/// pin goes.
#[test]
fn receiver_cut_off_from_owner_for_good() {
    let mut scene = Scene::new(Setup { heals: false, ..timed() });
    scene.act(Action::Cut { from: B, to: C });
    scene.give(A, C);
    scene.deliver(A, C);
    scene.drop_all(A);
    scene.settle();
    assert_eq!((scene.pins(A), scene.reason(C)), (1, None));
    scene.ticks(8);
    assert_eq!(scene.reason(C), Some(&GoneReason::Unreachable));
    assert_eq!(scene.pins(A), 0);
    assert!(scene.is_freed());
    // What comes later is broken from birth, and settled at once.
    scene.finish();
}

/// After giving up, the next contact is a reset, whoever dials; the owner forgets the old listings.
#[test]
fn contact_after_giving_up_is_a_reset() {
    for from in [B, C] {
        let mut scene = Scene::new(timed());
        scene.give(A, C);
        scene.settle();
        assert_eq!(scene.holders(scene.object()), [A, C]);
        scene.world.nodes[C].life.give_up(uid(B));
        scene.world.end_session(&scene.setup, C, B);
        scene.act(Action::Dial { from, to: B + C - from });
        scene.act(Action::Answer { from, to: B + C - from });
        scene.settle();
        assert_eq!(scene.holders(scene.object()), [A]);
        assert_eq!(scene.reason(C), Some(&GoneReason::Unreachable));
        // A new handle has nothing to do with the old one.
        scene.give(A, C);
        scene.settle();
        assert_eq!(scene.holders(scene.object()), [A, C]);
        scene.finish();
    }
}

/// graceful_leave: what is released needs no grace; what is still listed ages out as after a crash.
#[test]
fn graceful_leave() {
    let mut scene = Scene::new(Setup { start: vec![(A, B), (A, B)], ..timed() });
    let ids: Vec<ObjectId> = scene.world.nodes[A].handles.iter().map(|key| key.id).collect();
    // The second one is on its way to C as A leaves.
    scene.act(Action::Give { from: A, to: C, ids: vec![ids[1]] });
    scene.act(Action::Leave { node: A });
    scene.deliver(A, B);
    assert!(scene.world.ghost.freed.contains(&ids[0]));
    assert_eq!(scene.holders(ids[1]), [A]);
    scene.settle();
    scene.act(Action::Exit { node: A });
    assert_eq!(scene.holders(ids[1]), [A, C]);
    scene.ticks(6);
    assert_eq!(scene.holders(ids[1]), [C]);
    scene.finish();
}

/// blocked_arbiter_keeps_leases: a handler that blocks for many leases costs nobody anything.
#[test]
fn blocked_arbiter_keeps_leases() {
    for blocked in [A, B] {
        let mut scene = Scene::new(Setup { runs: 40, ..timed() });
        scene.act(Action::Block { node: blocked });
        scene.ticks(30);
        scene.act(Action::Unblock { node: blocked });
        scene.ticks(4);
        assert_eq!(scene.holders(scene.object()), [A]);
        assert_eq!((scene.state(A, B), scene.state(B, A)), (Some(PeerState::Up), Some(PeerState::Up)));
        scene.finish();
    }
}
