//! Leases, heartbeat by heartbeat: what the models take for granted about time.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use rref_core::lease::{Keeper, LeaseSettings, LeaseSettingsError, Leases, PeerState, Reader, Verdict};
use rref_core::lifetime::{Control, Digest, GoneReason, ImportState, Lifetime, Outbox};
use rref_core::wire::{Heartbeat, HeartbeatEcho};
use rref_core::{NodeUid, ObjectId, Rules, Stamp};
use std::time::Duration;

const ME: NodeUid = NodeUid(1);
const A: NodeUid = NodeUid(2);
const C: NodeUid = NodeUid(3);

/// Positions one after the other, nothing kept.
#[derive(Default)]
struct Nowhere(u64);

impl Outbox for Nowhere {
    fn enqueue(&mut self, _: NodeUid, _: Control) -> Stamp {
        self.0 += 1;
        Stamp { session_no: 1, seq: self.0 }
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An owner with one object that `A` holds; `A` and `C` are known.
fn owner() -> (Leases, Lifetime) {
    let mut life = Lifetime::new(ME, Rules::ALL);
    let id = life.on_create(A, 1).unwrap();
    life.created(id);
    let mut leases = Leases::new(ME, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    leases.mention(Duration::ZERO, A);
    leases.mention(Duration::ZERO, C);
    (leases, life)
}

fn beat(from: NodeUid) -> Heartbeat {
    Heartbeat { uid: from, session_no: 1, nonce: 1, ..Heartbeat::default() }
}

/// A tick, with everything drained. Suspicions, which end nothing, are left out.
fn tick(leases: &mut Leases, life: &Lifetime, now: Duration) -> Vec<Verdict> {
    leases.tick(now, life);
    let mut verdicts = leases.advance(life);
    let behind: Vec<Reader> = leases.behind().collect();
    behind.into_iter().for_each(|reader| leases.reader_drained(reader));
    verdicts.extend(leases.advance(life));
    verdicts.retain(|verdict| !matches!(verdict, Verdict::Suspected(..)));
    verdicts
}

#[test]
fn settings_name_the_rule_they_break() {
    let good = LeaseSettings::default();
    assert_eq!(good.check(), Ok(()));
    assert_eq!(LeaseSettings::shortened(100).check(), Ok(()));
    assert_eq!(LeaseSettings::shortened(0), good);
    let slow = LeaseSettings { heartbeat: seconds(15), ..good };
    let hasty = LeaseSettings { suspect_after: seconds(3), ..good };
    let resume = LeaseSettings { resume_window: seconds(16), ..good };
    let chain = LeaseSettings { crashes: 5, ..good };
    assert!(matches!(slow.check(), Err(LeaseSettingsError::HeartbeatTooSlow { .. })));
    assert!(matches!(hasty.check(), Err(LeaseSettingsError::SuspectsTooSoon { .. })));
    assert!(matches!(resume.check(), Err(LeaseSettingsError::ShorterThanResume { .. })));
    assert!(matches!(chain.check(), Err(LeaseSettingsError::ShorterThanChain { .. })));
    assert!(resume.check().unwrap_err().to_string().contains("TTL + grace >= 4 x resume window"));
    assert!(chain.check().unwrap_err().to_string().contains("TTL + grace >= (crashes + 2) x delay"));
}

#[test]
fn reliance_is_less_than_the_ttl_and_never_negative() {
    let of = |ttl| LeaseSettings { ttl, ..LeaseSettings::default() }.reliance();
    assert_eq!(of(seconds(30)), Duration::from_millis(28_700));
    assert_eq!(of(seconds(1)), Duration::from_millis(890));
    assert_eq!(of(Duration::ZERO), Duration::ZERO);
}

/// holder_crash_frees_after_ttl_grace, in the core: not before, and with the first tick after.
#[test]
fn a_silent_holder_is_fenced_after_ttl_and_grace() {
    let (mut leases, life) = owner();
    let mut seen = Vec::new();
    for second in (2..=62).step_by(2) {
        let now = seconds(second);
        let question = leases.publish(&life, C, 1, 0, 0).asks;
        leases.on_heartbeat(now, C, &Heartbeat { clear: question, ..beat(C) }, 1);
        for verdict in tick(&mut leases, &life, now) {
            seen.push((second, verdict));
        }
        if leases.take_news() && second >= 60 {
            let question = leases.publish(&life, C, 1, 0, 0).asks;
            leases.on_heartbeat(now, C, &Heartbeat { clear: question, ..beat(C) }, 1);
            for verdict in tick(&mut leases, &life, now) {
                seen.push((second, verdict));
            }
        }
    }
    assert_eq!(seen, [(30, Verdict::Lapsed(A)), (60, Verdict::Fence(A))]);
    assert_eq!(leases.state(A), Some(PeerState::Fenced));
    assert_eq!(leases.state(C), Some(PeerState::Up));
}

/// Nobody is fenced while another peer has not said that it is clear, however long that takes; and an
/// answer to an older question does not count.
#[test]
fn a_peer_that_is_not_clear_delays_the_fence() {
    let (mut leases, life) = owner();
    for second in (2..=600).step_by(2) {
        leases.on_heartbeat(seconds(second), C, &beat(C), 1);
        let verdicts = tick(&mut leases, &life, seconds(second));
        assert!(verdicts.iter().all(|v| *v == Verdict::Lapsed(A)), "{second} s: {verdicts:?}");
    }
    let question = leases.publish(&life, C, 1, 0, 0).asks;
    assert_eq!(question, 1);
    // An answer to a question that was never asked is none.
    leases.on_heartbeat(seconds(600), C, &Heartbeat { clear: 2, ..beat(C) }, 1);
    assert_eq!(tick(&mut leases, &life, seconds(602)), []);
    leases.on_heartbeat(seconds(602), C, &Heartbeat { clear: 1, ..beat(C) }, 1);
    assert_eq!(tick(&mut leases, &life, seconds(604)), [Verdict::Fence(A)]);
}

#[test]
fn heartbeats_of_another_session_renew_nothing() {
    let (mut leases, _) = owner();
    assert!(!leases.on_heartbeat(seconds(1), A, &beat(A), 2));
    assert!(!leases.on_heartbeat(seconds(1), A, &Heartbeat { session_no: 0, ..beat(A) }, 0));
    assert!(!leases.on_heartbeat(seconds(1), A, &beat(C), 1));
    assert!(leases.on_heartbeat(seconds(1), A, &beat(A), 1));
}

/// R11: a node that was paused for longer than any lease fences nobody when it wakes.
#[test]
fn a_late_tick_extends_all_leases() {
    let (mut leases, life) = owner();
    leases.on_heartbeat(seconds(1), A, &beat(A), 1);
    leases.on_heartbeat(seconds(1), C, &beat(C), 1);
    assert_eq!(leases.tick(seconds(500), &life), seconds(498));
    assert_eq!(tick(&mut leases, &life, seconds(500)), []);
    assert_eq!(leases.report(seconds(500)).map(|lease| lease.left).max(), Some(seconds(29)));
    // From there on the leases run as usual.
    for second in (502..=528).step_by(2) {
        assert_eq!(tick(&mut leases, &life, seconds(second)), [], "{second}");
    }
    assert_eq!(tick(&mut leases, &life, seconds(530)), [Verdict::Lapsed(A), Verdict::Lapsed(C)]);
}

/// R11: a renewal that lies in the keeper's mail, or a frame in a socket, comes before the judgement.
#[test]
fn nothing_is_judged_before_the_readers_are_drained() {
    let (mut leases, life) = owner();
    leases.reader_opened(Reader::Lane(A));
    for second in (2..=58).step_by(2) {
        tick(&mut leases, &life, seconds(second));
    }
    leases.tick(seconds(60), &life);
    assert_eq!(leases.advance(&life), []);
    assert_eq!(leases.behind().collect::<Vec<_>>(), [Reader::Lane(A), Reader::Keeper]);
    leases.reader_drained(Reader::Lane(A));
    assert_eq!(leases.advance(&life), []);
    // The mail holds a heartbeat of A's.
    leases.on_heartbeat(seconds(60), A, &beat(A), 1);
    leases.reader_drained(Reader::Keeper);
    // It is heard again; that it has echoed nothing is a suspicion.
    let verdicts = leases.advance(&life);
    let suspected = |verdict: &&Verdict| matches!(verdict, Verdict::Suspected(A, _));
    assert_eq!(verdicts.iter().filter(suspected).count(), 1);
    assert_eq!(verdicts.iter().find(|verdict| !suspected(verdict)), Some(&Verdict::Returned(A)));
}

/// A question is answered once all readers have been polled since, and all claims of before are acked.
#[test]
fn clear_is_sampled_after_the_question() {
    let mut life = Lifetime::new(ME, Rules::ALL);
    let out = &mut Nowhere::default();
    let mut leases = Leases::new(ME, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    leases.reader_opened(Reader::Lane(A));
    leases.reader_opened(Reader::Lane(C));
    let asks = |asks| Heartbeat { asks, ..beat(A) };
    let answer = |leases: &Leases, life: &Lifetime| leases.publish(life, A, 1, 0, 0).clear;
    leases.on_heartbeat(seconds(1), A, &asks(1), 1);
    leases.advance(&life);
    for reader in [Reader::Keeper, Reader::Lane(A)] {
        leases.reader_drained(reader);
        leases.advance(&life);
        assert_eq!(answer(&leases, &life), 0);
    }
    // The last reader gives a handle of A's object first: it is claimed.
    let id = ObjectId { owner: A, creator: C, create_no: 1 };
    let key = life.import(&[id], C, Stamp { session_no: 1, seq: 1 }, out).remove(0).key;
    leases.reader_drained(Reader::Lane(C));
    leases.advance(&life);
    assert_eq!(answer(&leases, &life), 0);
    // A second question meanwhile has a round of its own.
    leases.on_heartbeat(seconds(2), A, &asks(2), 1);
    leases.advance(&life);
    life.on_acked(A, Stamp { session_no: 1, seq: 1 });
    leases.advance(&life);
    assert_eq!(answer(&leases, &life), 1);
    assert!(leases.take_news());
    [Reader::Keeper, Reader::Lane(A)].into_iter().for_each(|reader| leases.reader_drained(reader));
    // A connection that is replaced has unread input again; one that is lost has none.
    leases.reader_opened(Reader::Lane(A));
    leases.reader_drained(Reader::Lane(C));
    leases.advance(&life);
    assert_eq!(answer(&leases, &life), 1);
    leases.reader_closed(Reader::Lane(A));
    leases.advance(&life);
    assert_eq!(answer(&leases, &life), 2);
    life.drop_handle(key, out);
}

/// A node that dies before it ever connects is found dead too: others wait for what it was to create.
#[test]
fn the_clock_starts_at_the_first_mention() {
    let mut life = Lifetime::new(ME, Rules::ALL);
    let id = ObjectId { owner: ME, creator: A, create_no: 1 };
    life.on_claim(C, &[id], &mut Nowhere::default()).unwrap();
    let mut leases = Leases::new(ME, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    let mut fenced = Vec::new();
    for second in (2..=64).step_by(2) {
        leases.on_heartbeat(seconds(second), C, &beat(C), 1);
        let question = leases.publish(&life, C, 1, 0, 0).asks;
        leases.on_heartbeat(seconds(second), C, &Heartbeat { clear: question, ..beat(C) }, 1);
        let verdicts = tick(&mut leases, &life, seconds(second));
        fenced.extend(verdicts.into_iter().filter(|v| matches!(v, Verdict::Fence(_))).map(|v| (second, v)));
    }
    assert_eq!(fenced, [(64, Verdict::Fence(A))]);
}

#[test]
fn a_leaving_peer_is_not_asked_and_ages_out() {
    let (mut leases, life) = owner();
    leases.left(C);
    for second in (2..60).step_by(2) {
        leases.on_heartbeat(seconds(second), C, &beat(C), 1);
        let verdicts = tick(&mut leases, &life, seconds(second));
        assert!(!verdicts.contains(&Verdict::Fence(A)));
    }
    leases.on_heartbeat(seconds(60), C, &beat(C), 1);
    assert_eq!(tick(&mut leases, &life, seconds(60)), [Verdict::Fence(A)]);
}

/// R13: without echoes for TTL + grace, and with everybody clear, the owner is given up, once.
#[test]
fn an_owner_without_echo_is_given_up() {
    let mut life = Lifetime::new(ME, Rules::ALL);
    life.create(A);
    let mut leases = Leases::new(ME, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    leases.mention(Duration::ZERO, A);
    let mut verdicts = Vec::new();
    for second in (2..=200).step_by(2) {
        // Its heartbeats arrive; ours do not.
        leases.on_heartbeat(seconds(second), A, &beat(A), 1);
        if second == 10 {
            leases.on_echo(seconds(second), A, seconds(9));
            assert_eq!(leases.deadline(A), Some(seconds(9) + LeaseSettings::default().reliance()));
        }
        verdicts.extend(tick(&mut leases, &life, seconds(second)).into_iter().map(|v| (second, v)));
    }
    assert_eq!(verdicts, [(70, Verdict::GiveUp(A))]);
}

#[test]
fn keepers_beat_at_their_rate_and_echo_the_current_session() {
    let mut mine = Keeper::new(ME, Rules::ALL, seconds(2));
    let mut theirs = Keeper::new(A, Rules::ALL, seconds(2));
    let session = |session_no| Heartbeat { session_no, ..Heartbeat::default() };
    assert_eq!(mine.next_due(), None);
    mine.publish(seconds(1), A, session(1));
    theirs.publish(seconds(1), ME, session(1));
    let [(to, first)] = mine.beats(seconds(1))[..] else { panic!("no beat") };
    assert_eq!((to, first.uid, first.nonce), (A, ME, 1));
    assert_eq!((mine.beats(seconds(2)), mine.next_due()), (vec![], Some(seconds(3))));
    // However late, one beat; however busy the lane, a beat.
    mine.lane_was_busy(A);
    let [(_, second)] = mine.beats(seconds(9))[..] else { panic!("no beat") };
    assert_eq!((second.nonce, mine.next_due()), (2, Some(seconds(11))));
    // A question goes out at once.
    mine.publish(seconds(10), A, Heartbeat { asks: 1, ..session(1) });
    let [(_, third)] = mine.beats(seconds(10))[..] else { panic!("no beat") };

    let echo = theirs.on_heartbeat(ME, &second).unwrap();
    assert_eq!(echo, HeartbeatEcho { uid: A, session_no: 1, nonce: 2 });
    assert_eq!(mine.on_echo(A, &echo), Some(seconds(9)));
    // Repeated, older, unknown and foreign ones say nothing.
    assert_eq!(mine.on_echo(A, &echo), None);
    assert_eq!(mine.on_echo(A, &theirs.on_heartbeat(ME, &first).unwrap()), None);
    assert_eq!(mine.on_echo(A, &HeartbeatEcho { nonce: 99, ..echo }), None);
    assert_eq!(mine.on_echo(C, &echo), None);
    theirs.publish(seconds(10), ME, session(2));
    assert_eq!(theirs.on_heartbeat(ME, &third), None);
    theirs.forget(ME);
    assert_eq!(theirs.on_heartbeat(ME, &third), None);
}

/// A dead node that has created an object here: as long as that lives, its death is not forgotten, and
/// references to its own objects that arrive late are broken from birth. Nobody would give it up again.
#[test]
fn a_dead_creator_stays_dead_while_its_objects_live() {
    let (_, mut life) = owner();
    let out = &mut Nowhere::default();
    let [kept] = life.owned().map(|owned| owned.id).collect::<Vec<_>>()[..] else { panic!("no object") };
    life.introduce(&[kept], C, Stamp { session_no: 1, seq: 1 });
    life.owner_died(A, GoneReason::Died("crashed".into()));
    assert!(!life.forget(A), "it is still listed");
    life.fence(A, out);
    assert!(!life.forget(A), "what it has created lives on");
    let id = ObjectId { owner: A, creator: C, create_no: 1 };
    let imported = life.import(&[id], C, Stamp { session_no: 1, seq: 1 }, out).remove(0);
    assert_eq!(imported.state, ImportState::Gone(GoneReason::Died("crashed".into())));
    life.drop_handle(imported.key, out);
    life.on_release(C, &[(kept, Stamp { session_no: 1, seq: 9 })]).unwrap();
    assert!(life.forget(A));
}

/// Nothing can be said to an owner of whom only its objects are known, so that all claims to it have one
/// position. What was introduced again after it was let go settles with the rest.
#[test]
fn claims_that_cannot_be_sent_settle_in_the_end() {
    struct Unknown;
    impl Outbox for Unknown {
        fn enqueue(&mut self, _: NodeUid, _: Control) -> Stamp {
            Stamp::ZERO
        }
    }
    let mut life = Lifetime::new(ME, Rules::ALL);
    let id = ObjectId { owner: C, creator: A, create_no: 1 };
    for seq in 1..=3 {
        let at = Stamp { session_no: 1, seq };
        let imported = life.import(&[id], A, at, &mut Unknown).remove(0);
        life.processed(A, at);
        assert_eq!(life.settled_for(A), 0, "not before its owner is given up");
        if seq < 3 {
            life.drop_handle(imported.key, &mut Unknown);
            life.flush_all(&mut Unknown);
        }
    }
    life.give_up(C);
    assert_eq!(life.settled_for(A), 3);
}

/// A peer that never echoes costs a bounded amount of memory.
#[test]
fn unechoed_beats_are_forgotten() {
    let mut keeper = Keeper::new(ME, Rules::ALL, seconds(1));
    keeper.publish(Duration::ZERO, A, Heartbeat { session_no: 1, ..Heartbeat::default() });
    let beats: Vec<Heartbeat> =
        (0..1000).flat_map(|n| keeper.beats(seconds(n))).map(|(_, beat)| beat).collect();
    let echo = |beat: &Heartbeat| HeartbeatEcho { uid: A, session_no: 1, nonce: beat.nonce };
    assert_eq!(keeper.clone().on_echo(A, &echo(&beats[900])), None);
    assert_eq!(keeper.on_echo(A, &echo(&beats[990])), Some(seconds(990)));
}

/// digest_divergence_injected: a listing is lost; the second heartbeat that shows it brings the repair.
#[test]
fn digest_divergence_injected() {
    struct Frames(Vec<Control>, u64);
    impl Outbox for Frames {
        fn enqueue(&mut self, _: NodeUid, control: Control) -> Stamp {
            self.0.push(control);
            self.1 += 1;
            Stamp { session_no: 1, seq: self.1 }
        }
    }
    let at = |seq| Stamp { session_no: 1, seq };
    let (mut b, mut c) = (Lifetime::new(ME, Rules::ALL), Lifetime::new(C, Rules::ALL));
    let (from_b, from_c) = (&mut Frames(Vec::new(), 0), &mut Frames(Vec::new(), 0));
    let mut leases = Leases::new(C, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    leases.mention(Duration::ZERO, ME);
    // B makes three objects and gives them to C, in frames 1 to 3.
    for n in 1..=3 {
        let key = b.create(ME);
        b.created(key.id);
        b.introduce(&[key.id], C, at(n));
        b.drop_handle(key, from_b);
        c.import(&[key.id], ME, at(n), from_c);
        c.processed(ME, at(n));
    }
    let ids: Vec<ObjectId> = c.held().map(|held| held.id).collect();
    let beat = |b: &Lifetime, ack| Heartbeat { listed: b.listed_for(C), ack, at: 3, ..beat(ME) };
    assert!(!leases.differs(&c, ME, &beat(&b, 0)));
    // A bug: B strikes C off one object, and lists it for another that C has let go.
    b.on_release(C, &[(ids[0], at(3))]).unwrap();
    assert_ne!(b.listed_for(C), Digest::default());
    // Not where the two speak of different positions.
    assert!(!leases.differs(&c, ME, &Heartbeat { at: 2, ..beat(&b, 0) }));
    assert!(!leases.differs(&c, ME, &beat(&b, 0)));
    assert!(leases.differs(&c, ME, &beat(&b, 0)));
    c.send_inventory(ME, from_c);
    for (seq, control) in (1..).zip(std::mem::take(&mut from_c.0)) {
        match control {
            Control::InventoryBegin { next_create, seen } => {
                b.on_inventory_begin(C, at(seq), next_create, seen).unwrap();
            }
            Control::InventoryItems(ids) => b.on_inventory_items(C, &ids, from_b).unwrap(),
            Control::InventoryEnd => b.on_inventory_end(C, from_b).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    // The lost one is freed and said to be gone; the others are listed as before.
    let [Control::Gone(gone)] = &from_b.0[..] else { panic!("{:?}", from_b.0) };
    assert_eq!(gone.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[0]]);
    c.on_gone(ME, gone).unwrap();
    c.processed(ME, at(4));
    assert!(!leases.differs(&c, ME, &Heartbeat { at: 4, ..beat(&b, 3) }));
    assert_eq!(b.listed_for(C).count, 2);
}

/// A dead node does not stay in the tables for ever, nor does it come back from them.
#[test]
fn a_fenced_node_can_be_forgotten() {
    let (mut leases, mut life) = owner();
    leases.left(C);
    let mut verdicts = Vec::new();
    for second in (2..=60).step_by(2) {
        verdicts.extend(tick(&mut leases, &life, seconds(second)));
    }
    assert!(verdicts.contains(&Verdict::Fence(A)), "{verdicts:?}");
    assert!(life.is_held_by(A));
    life.fence(A, &mut Nowhere::default());
    assert!(!life.is_held_by(A) && life.is_clean());
    leases.forget(A);
    tick(&mut leases, &life, seconds(62));
    assert_eq!(leases.peers().collect::<Vec<_>>(), [C]);
}
