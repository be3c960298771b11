//! What two Hellos make of a session.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use rref_core::Rules;
use rref_core::session::{Accept, Class, Lane, LaneError, LaneLimits, Meeting, Position, Resume};

fn lane() -> Lane<u64> {
    Lane::new(Rules::ALL, LaneLimits::default())
}

/// The first lane dials the second.
fn meet(dials: &mut Lane<u64>, answers: &mut Lane<u64>) -> (Meeting, Meeting) {
    let (theirs, position) = answers.hello_arrived(dials.hello()).unwrap();
    (dials.answer_arrived(position).unwrap(), theirs)
}

fn transfer(from: &mut Lane<u64>, to: &mut Lane<u64>) -> Vec<u64> {
    let mut got = Vec::new();
    while let Some(frame) = from.next_to_send().copied() {
        let seq = to.recv_next();
        assert_eq!(to.accept(seq), Ok(Accept::Process));
        to.processed_frame(seq, 0, 0, Class::Control, 1).unwrap();
        got.push(frame);
    }
    got
}

fn push(lane: &mut Lane<u64>, frames: impl IntoIterator<Item = u64>) {
    for frame in frames {
        lane.push(Class::Control, 1, frame);
    }
}

/// Two lanes in session 1, with three frames sent by the first, two of them processed.
fn pair() -> (Lane<u64>, Lane<u64>) {
    let (mut a, mut b) = (lane(), lane());
    let met = meet(&mut a, &mut b);
    let resumed = Meeting::Resumed(Resume { resent_frames: 0 });
    assert_eq!(met, (resumed, resumed));
    push(&mut a, [1, 2]);
    assert_eq!(transfer(&mut a, &mut b), [1, 2]);
    push(&mut a, [3]);
    assert_eq!(a.next_to_send(), Some(&3));
    (a, b)
}

#[test]
fn a_broken_connection_is_resumed_from_either_side() {
    for a_dials in [true, false] {
        let (mut a, mut b) = pair();
        let (ours, theirs) = if a_dials { meet(&mut a, &mut b) } else { meet(&mut b, &mut a) };
        let (of_a, of_b) = if a_dials { (ours, theirs) } else { (theirs, ours) };
        assert_eq!(of_a, Meeting::Resumed(Resume { resent_frames: 1 }));
        assert_eq!(of_b, Meeting::Resumed(Resume { resent_frames: 0 }));
        assert_eq!(transfer(&mut a, &mut b), [3]);
    }
}

#[test]
fn a_hello_ends_the_older_connection() {
    let (mut a, _) = pair();
    assert!(a.is_connected());
    assert_eq!(a.hello(), Position { session_no: 1, recv_next: 1 });
    assert!(!a.is_connected());
    assert_eq!(a.next_to_send(), None);
}

/// Whoever cannot go on says so, whoever dials; both sides then begin session 2, with nothing in it.
#[test]
fn an_ended_session_is_followed_by_the_next() {
    for (a_ends, a_dials) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut a, mut b) = pair();
        if a_ends {
            a.end_session()
        } else {
            b.end_session()
        }
        let (ours, theirs) = if a_dials { meet(&mut a, &mut b) } else { meet(&mut b, &mut a) };
        let (of_a, of_b) = if a_dials { (ours, theirs) } else { (theirs, ours) };
        // Only a Hello of the same session tells what was processed; 3 had been sent.
        let maybe_processed = if !a_dials && a_ends { 2 } else { 3 };
        assert_eq!(of_a, Meeting::Reset { session_no: 2, maybe_processed }, "{a_ends} {a_dials}");
        assert_eq!(of_b, Meeting::Reset { session_no: 2, maybe_processed: 0 });
        for lane in [&a, &b] {
            assert_eq!((lane.session_no(), lane.recv_next(), lane.last_assigned()), (2, 1, 0));
            assert!(lane.is_connected() && !lane.is_ended());
        }
        push(&mut a, [7]);
        assert_eq!(transfer(&mut a, &mut b), [7]);
    }
}

#[test]
fn an_ended_session_keeps_nothing_and_grows_by_nothing() {
    let (mut a, _) = pair();
    a.end_session();
    assert_eq!((a.unacked_frames(), a.room(), a.is_connected()), (0, 0, false));
    assert_eq!((a.push(Class::Control, 1000, 4), a.push(Class::Control, 1000, 5)), (4, 5));
    assert_eq!((a.unacked_frames(), a.unacked_bytes(), a.has_unsent()), (0, 0, false));
    assert_eq!(a.connected(1, 3), Err(LaneError::Ended));
}

/// The acceptor has switched, and its HelloAck is lost: the next Hello speaks of a session that it has
/// left.
#[test]
fn a_lost_answer_means_another_reset() {
    let (mut a, mut b) = pair();
    a.end_session();
    b.hello_arrived(a.hello()).unwrap();
    assert_eq!((a.session_no(), b.session_no()), (1, 2));
    b.disconnected();
    let (ours, theirs) = meet(&mut a, &mut b);
    assert!(matches!(ours, Meeting::Reset { session_no: 3, .. }), "{ours:?}");
    assert!(matches!(theirs, Meeting::Reset { session_no: 3, .. }), "{theirs:?}");
}

#[test]
fn an_answer_that_does_not_fit_changes_nothing() {
    let (mut a, mut b) = pair();
    a.end_session();
    meet(&mut a, &mut b);
    a.hello();
    let before = a.clone();
    let old = Position { session_no: 1, recv_next: 3 };
    assert_eq!(a.answer_arrived(old), Err(LaneError::WrongAnswer { ours: 2, theirs: 1 }));
    let gap = Position { session_no: 2, recv_next: 9 };
    assert!(matches!(a.answer_arrived(gap), Err(LaneError::ResumeGap { .. })));
    assert_eq!(a, before);
}

#[test]
fn session_numbers_run_out_with_an_error() {
    let mut a = lane();
    let last = Position { session_no: u32::MAX, recv_next: 0 };
    assert_eq!(a.hello_arrived(last), Err(LaneError::NoSessionLeft));
    assert_eq!(a, lane());
}
