//! The lane, rule by rule.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use rref_core::session::{Accept, AckDue, Class, Lane, LaneError, LaneLimits, Progress};
use rref_core::{NodeUid, Rules, Seq};

const LIMITS: LaneLimits =
    LaneLimits { send_window: 100, receive_window: 100, resend_limit: 1000, ack_frames: 4 };

fn lane() -> Lane<u64> {
    Lane::new(Rules::ALL, LIMITS)
}

/// A connected lane that has sent `count` control frames of 10 bytes.
fn sent(count: u64) -> Lane<u64> {
    let mut lane = lane();
    lane.connected(0, 1).unwrap();
    for n in 1..=count {
        assert_eq!(lane.push(Class::Control, 10, n), n);
        assert_eq!(lane.next_to_send(), Some(&n));
    }
    lane
}

fn process(lane: &mut Lane<u64>, seq: Seq) -> Progress {
    assert_eq!(lane.accept(seq), Ok(Accept::Process));
    lane.processed_frame(seq, 0, 0, Class::Control, 1).unwrap()
}

fn send_all(lane: &mut Lane<u64>) -> Vec<u64> {
    std::iter::from_fn(|| lane.next_to_send().copied()).collect()
}

#[test]
fn no_user_frame_before_handshake() {
    let mut lane = lane();
    lane.push(Class::User, 10, 1);
    assert!(!lane.has_unsent());
    assert_eq!(lane.next_to_send(), None);
    assert_eq!(lane.transmitted(), 0);
    lane.connected(0, 1).unwrap();
    assert!(lane.has_unsent());
    assert_eq!(send_all(&mut lane), [1]);
    lane.push(Class::User, 10, 2);
    lane.disconnected();
    assert_eq!(lane.next_to_send(), None);
    assert_eq!(lane.transmitted(), 1);
}

#[test]
fn frame_lost_first_middle_last() {
    for lost in 1..=5 {
        let mut sender = sent(5);
        let mut receiver = lane();
        receiver.connected(0, 1).unwrap();
        (1..lost).for_each(|seq| drop(process(&mut receiver, seq)));
        sender.disconnected();
        receiver.disconnected();
        let resume = sender.connected(receiver.session_no(), receiver.recv_next()).unwrap();
        receiver.connected(sender.session_no(), sender.recv_next()).unwrap();
        assert_eq!(resume.resent_frames, 6 - lost);
        let resent = send_all(&mut sender);
        assert_eq!(resent, (lost..=5).collect::<Vec<_>>());
        resent.into_iter().for_each(|seq| drop(process(&mut receiver, seq)));
        assert_eq!(receiver.processed(), 5);
    }
}

/// A frame that any connection was given may have run, whatever the next connection has come to.
#[test]
fn transmitted_outlives_the_connection() {
    let mut lane = sent(5);
    lane.disconnected();
    lane.connected(1, 2).unwrap();
    assert_eq!(lane.next_to_send(), Some(&2));
    assert_eq!(lane.transmitted(), 5);
    assert_eq!(lane.processed_frame(1, 5, 0, Class::Control, 1).unwrap().acked, Some(5));
    assert!(!lane.has_unsent(), "what is acked is not sent again");
}

#[test]
fn gap_and_duplicate() {
    let mut lane = lane();
    lane.connected(0, 1).unwrap();
    assert_eq!(lane.accept(2), Err(LaneError::Gap { expected: 1, got: 2 }));
    assert_eq!(lane.accept(0), Err(LaneError::Gap { expected: 1, got: 0 }));
    process(&mut lane, 1);
    lane.ack_stamped();
    assert_eq!(lane.accept(1), Ok(Accept::Duplicate));
    assert_eq!(lane.ack_due(), AckDue::Later, "the sender does not know");
    let again = lane.processed_frame(1, 0, 0, Class::Control, 1);
    assert_eq!(again, Err(LaneError::Gap { expected: 2, got: 1 }));
    assert_eq!(lane.processed(), 1);
}

#[test]
fn resume_refused() {
    let mut lane = sent(5);
    lane.ack_frame(1, 0, 3, 0, vec![]).unwrap();
    lane.push(Class::Control, 10, 6);
    let before = lane.clone();
    for wanted in [0, 1, 3, 7, u64::MAX] {
        let refused = lane.connected(1, wanted);
        assert_eq!(refused, Err(LaneError::ResumeGap { wanted, oldest: 4, next: 6 }));
    }
    assert_eq!(lane.connected(2, 4), Err(LaneError::UnknownSession { ours: 1, theirs: 2 }));
    assert_eq!(lane.connected(0, 1), Err(LaneError::UnknownSession { ours: 1, theirs: 0 }));
    assert_eq!(lane, before);
    assert!(lane.connected(1, 4).is_ok());
}

#[test]
fn peer_without_session() {
    let mut lane = sent(2);
    assert!(lane.connected(0, 2).is_err(), "it cannot have processed anything");
    lane.connected(0, 1).unwrap();
    assert_eq!(send_all(&mut lane), [1, 2], "nothing was lost with the first connection");
    process(&mut lane, 1);
    assert!(lane.connected(0, 1).is_err(), "what we received came from a session it has lost");
}

#[test]
fn stale_incarnation_ack_ignored() {
    let mut lane = sent(3);
    let before = lane.clone();
    assert_eq!(lane.ack_frame(2, 0, 3, 3, vec![]), Ok(Progress::default()));
    assert_eq!(lane.ack_frame(0, 0, 99, 99, vec![]), Ok(Progress::default()));
    assert_eq!(lane, before);
}

#[test]
fn ack_of_unsent() {
    let mut lane = sent(3);
    lane.disconnected();
    lane.push(Class::Control, 10, 4);
    let before = lane.clone();
    let error = Err(LaneError::AckOfUnsent { ack: 4, sent: 3 });
    assert_eq!(lane.ack_frame(1, 0, 4, 0, vec![]), error);
    assert_eq!(lane.ack_frame(1, 9, 0, 4, vec![]), error, "even if it had to wait");
    assert_eq!(lane.processed_frame(1, 4, 0, Class::Control, 1), error);
    assert_eq!(lane, before);
}

#[test]
fn ack_is_monotonic() {
    let mut lane = sent(3);
    let progress = lane.processed_frame(1, 2, 1, Class::Control, 1).unwrap();
    assert_eq!(progress, Progress { acked: Some(2), settled: Some(1), settled_except: None });
    assert_eq!((lane.unacked_frames(), lane.unacked_bytes()), (1, 10));
    assert_eq!(lane.processed_frame(2, 1, 0, Class::Control, 1), Ok(Progress::default()));
    assert_eq!(lane.ack_frame(1, 0, 2, 1, vec![]), Ok(Progress::default()));
}

#[test]
fn ack_waits_for_position() {
    let mut lane = sent(3);
    assert_eq!(lane.ack_frame(1, 2, 2, 2, vec![]), Ok(Progress::default()));
    assert_eq!(lane.ack_frame(1, 3, 3, 2, vec![]), Ok(Progress::default()), "the latest is kept");
    assert_eq!(process(&mut lane, 1), Progress::default());
    assert_eq!(process(&mut lane, 2), Progress::default());
    let progress = process(&mut lane, 3);
    assert_eq!(progress, Progress { acked: Some(3), settled: Some(2), settled_except: None });
    assert_eq!(lane.unacked_frames(), 0);
}

#[test]
fn ack_rule_off_applies_at_once() {
    let mut lane = Lane::new(Rules { ack_waits_for_position: false, ..Rules::ALL }, LIMITS);
    lane.connected(0, 1).unwrap();
    lane.push(Class::Control, 1, 1u64);
    lane.next_to_send();
    assert_eq!(lane.ack_frame(1, 5, 1, 0, vec![]).unwrap().acked, Some(1));
}

/// The peer may have sent a Gone before it processed our Claim. A resume must not confirm the claim.
#[test]
fn resume_does_not_report_an_ack() {
    let mut lane = sent(3);
    lane.connected(1, 3).unwrap();
    assert_eq!(lane.unacked_frames(), 1);
    let progress = lane.processed_frame(1, 2, 0, Class::Control, 1).unwrap();
    assert_eq!(progress.acked, Some(2));
}

/// The receiver's side of the above: an Ack lost with the connection is sent again.
#[test]
fn ack_is_owed_after_resume() {
    let mut lane = lane();
    lane.connected(0, 1).unwrap();
    assert_eq!(lane.ack_due(), AckDue::No);
    process(&mut lane, 1);
    lane.ack_stamped();
    assert_eq!(lane.ack_due(), AckDue::No);
    lane.connected(1, 1).unwrap();
    assert_eq!(lane.ack_due(), AckDue::Later);
}

#[test]
fn settled_with_exceptions_moves_apart() {
    let (x, y) = (NodeUid(1), NodeUid(2));
    let mut lane = sent(9);
    let except = |progress: Progress| progress.settled_except.map(|e| (e.upto, e.exceptions));
    assert_eq!(except(lane.ack_frame(1, 0, 0, 5, vec![x]).unwrap()), Some((5, vec![x])));
    assert_eq!(except(lane.ack_frame(1, 0, 0, 5, vec![x]).unwrap()), None, "known");
    assert_eq!(except(lane.ack_frame(1, 0, 0, 7, vec![x, y]).unwrap()), Some((7, vec![x, y])));
    assert_eq!(lane.ack_frame(1, 0, 0, 4, vec![]).unwrap().settled, Some(4), "lower, but for all owners");
    assert_eq!(except(lane.ack_frame(1, 0, 0, 4, vec![x]).unwrap()), None, "said already");
    // Exceptions wait for their position like the rest.
    assert_eq!(lane.ack_frame(1, 1, 0, 9, vec![x]), Ok(Progress::default()));
    assert_eq!(except(process(&mut lane, 1)), Some((9, vec![x])));
}

#[test]
fn ack_due_by_frames_bytes_and_hint() {
    let mut lane = lane();
    assert_eq!(lane.ack_due(), AckDue::No);
    (1..=3).for_each(|seq| drop(process(&mut lane, seq)));
    assert_eq!(lane.ack_due(), AckDue::Later);
    process(&mut lane, 4);
    assert_eq!(lane.ack_due(), AckDue::Now);
    lane.ack_stamped();
    assert_eq!(lane.ack_due(), AckDue::No);
    lane.processed_frame(5, 0, 0, Class::User, 24).unwrap();
    assert_eq!(lane.ack_due(), AckDue::Later);
    lane.processed_frame(6, 0, 0, Class::Control, 1).unwrap();
    assert_eq!(lane.ack_due(), AckDue::Now);
    lane.ack_stamped();
    lane.owe_ack();
    assert_eq!(lane.ack_due(), AckDue::Later);
}

#[test]
fn beyond_window() {
    let mut lane = lane();
    lane.processed_frame(1, 0, 0, Class::User, 100).unwrap();
    lane.processed_frame(2, 0, 0, Class::Control, 500).unwrap();
    let error = lane.processed_frame(3, 0, 0, Class::User, 1);
    assert_eq!(error, Err(LaneError::BeyondWindow { unacked: 101, window: 100 }));
    assert_eq!(lane.processed(), 2);
    lane.ack_stamped();
    lane.processed_frame(3, 0, 0, Class::User, 1000).unwrap();
}

#[test]
fn room_counts_user_bytes_only() {
    let mut lane = sent(3);
    assert_eq!(lane.room(), usize::MAX);
    lane.push(Class::User, 60, 4);
    assert_eq!(lane.room(), 40);
    lane.push(Class::User, 60, 5);
    assert_eq!(lane.room(), 0);
    send_all(&mut lane);
    lane.ack_frame(1, 0, 4, 0, vec![]).unwrap();
    assert_eq!(lane.room(), 40);
    lane.set_send_window(80);
    assert_eq!(lane.room(), 20);
    lane.ack_frame(1, 0, 5, 0, vec![]).unwrap();
    assert_eq!((lane.room(), lane.unacked_bytes()), (usize::MAX, 0));
}

#[test]
fn overfull_with_control_frames() {
    let mut lane = lane();
    for n in 0..100 {
        lane.push(Class::Control, 10, n);
    }
    assert!(!lane.is_overfull());
    lane.push(Class::Control, 1, 100);
    assert!(lane.is_overfull());
}
