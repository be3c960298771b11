//! When calls to a peer should fail: suspicions, which come and go and end nothing.

use rref_core::lease::{LeaseSettings, Leases, Reader, Suspicion, Verdict};
use rref_core::lifetime::Lifetime;
use rref_core::wire::Heartbeat;
use rref_core::{NodeUid, Rules};
use std::time::Duration;

const ME: NodeUid = NodeUid(1);
const A: NodeUid = NodeUid(2);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A node that knows `A` from the start, and has its first sign of life then.
fn node() -> (Leases, Lifetime) {
    let mut leases = Leases::new(ME, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
    leases.mention(Duration::ZERO, A);
    leases.sign_of_life(Duration::ZERO, A);
    (leases, Lifetime::new(ME, Rules::ALL))
}

/// A tick, in which everything is found drained.
fn tick(leases: &mut Leases, life: &Lifetime, second: u64) -> Vec<Verdict> {
    leases.tick(seconds(second), life);
    let mut verdicts = leases.advance(life);
    leases.reader_drained(Reader::Keeper);
    verdicts.extend(leases.advance(life));
    verdicts
}

fn renew(leases: &mut Leases, second: u64) {
    let beat = Heartbeat { uid: A, session_no: 1, nonce: 1, ..Heartbeat::default() };
    assert!(leases.on_heartbeat(seconds(second), A, &beat, 1));
}

#[test]
fn silence_is_suspect_after_six_seconds() {
    let (mut leases, life) = node();
    assert_eq!(tick(&mut leases, &life, 2), []);
    assert_eq!(tick(&mut leases, &life, 4), []);
    assert_eq!(leases.suspicion(A), None);
    assert_eq!(tick(&mut leases, &life, 6), [Verdict::Suspected(A, Suspicion::Silent)]);
    assert_eq!(leases.suspicion(A), Some(Suspicion::Silent));
    // Said once.
    assert_eq!(tick(&mut leases, &life, 8), []);
    // Whatever comes ends it, whether or not it renews the lease.
    leases.sign_of_life(seconds(9), A);
    assert_eq!(leases.suspicion(A), None);
    for second in (10..=14).step_by(2) {
        assert_eq!(tick(&mut leases, &life, second), []);
    }
    assert_eq!(tick(&mut leases, &life, 16), [Verdict::Suspected(A, Suspicion::Silent)]);
    renew(&mut leases, 17);
    assert_eq!(leases.suspicion(A), None);
}

/// One-way: its heartbeats come, ours are never echoed.
#[test]
fn whoever_does_not_hear_us_is_suspect_when_the_lease_cannot_be_relied_on() {
    let (mut leases, life) = node();
    leases.on_echo(seconds(1), A, seconds(1));
    assert_eq!(leases.deadline(A), Some(Duration::from_millis(29_700)));
    for second in (2..=28).step_by(2) {
        renew(&mut leases, second);
        assert_eq!(tick(&mut leases, &life, second), [], "{second}");
    }
    renew(&mut leases, 30);
    assert_eq!(tick(&mut leases, &life, 30), [Verdict::Suspected(A, Suspicion::Unheard)]);
    // That it lives says nothing of whether it hears.
    leases.sign_of_life(seconds(31), A);
    assert_eq!(leases.suspicion(A), Some(Suspicion::Unheard));
    leases.on_echo(seconds(32), A, seconds(32));
    assert_eq!(leases.suspicion(A), None);
}

/// R11, for calls: a node that was paused suspects nobody of its own silence.
#[test]
fn a_pause_of_ones_own_makes_nobody_suspect() {
    let (mut leases, life) = node();
    leases.on_echo(seconds(1), A, seconds(1));
    renew(&mut leases, 1);
    assert_eq!(tick(&mut leases, &life, 2), []);
    // Both the other one's heartbeats and its echoes have waited meanwhile.
    assert_eq!(tick(&mut leases, &life, 100), []);
    renew(&mut leases, 100);
    leases.on_echo(seconds(100), A, seconds(2));
    for second in [102, 104] {
        renew(&mut leases, second);
        assert_eq!(tick(&mut leases, &life, second), [], "{second}");
    }
    // Only now has it been unheard for long enough afterwards.
    renew(&mut leases, 106);
    assert_eq!(tick(&mut leases, &life, 106), [Verdict::Suspected(A, Suspicion::Unheard)]);
}

/// Nothing is judged before what has arrived is taken in.
#[test]
fn unread_input_comes_before_the_suspicion() {
    let (mut leases, life) = node();
    leases.reader_opened(Reader::Lane(A));
    for second in [2, 4] {
        leases.tick(seconds(second), &life);
        leases.reader_drained(Reader::Lane(A));
        leases.reader_drained(Reader::Keeper);
        assert_eq!(leases.advance(&life), []);
    }
    leases.tick(seconds(6), &life);
    leases.reader_drained(Reader::Keeper);
    assert_eq!(leases.advance(&life), []);
    // It was in the socket.
    leases.sign_of_life(seconds(6), A);
    leases.reader_drained(Reader::Lane(A));
    assert_eq!(leases.advance(&life), []);
    assert_eq!(leases.suspicion(A), None);
}
