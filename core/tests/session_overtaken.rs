//! Hellos and answers that come too late: another connection stands already.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use rref_core::session::{Class, Lane, LaneError, LaneLimits, Meeting, Position};
use rref_core::{Rules, Seq};

fn lane() -> Lane<u64> {
    Lane::new(Rules::ALL, LaneLimits::default())
}

fn at(session_no: u32, recv_next: Seq) -> Position {
    Position { session_no, recv_next }
}

/// Two lanes that have met, of which the first has sent `count` frames.
fn pair(count: u64) -> [Lane<u64>; 2] {
    let [mut a, mut b] = [lane(), lane()];
    connect(&mut a, &mut b, Position::UNKNOWN);
    for n in 1..=count {
        a.push(Class::User, 1, n);
    }
    while a.next_to_send().is_some() {}
    [a, b]
}

/// `a` dials, and says this.
fn connect(a: &mut Lane<u64>, b: &mut Lane<u64>, hello: Position) -> [Meeting; 2] {
    let (there, answer) = b.hello_arrived(hello).unwrap();
    [a.answer_arrived(answer).unwrap(), there]
}

fn process(lane: &mut Lane<u64>, upto: Seq) {
    for seq in lane.recv_next()..=upto {
        lane.accept(seq).unwrap();
        lane.processed_frame(seq, 0, 0, Class::User, 1).unwrap();
    }
}

/// A Hello that another connection has overtaken speaks of a position that its sender has left behind.
#[test]
fn a_hello_that_was_overtaken_begins_no_session() {
    let [mut a, mut b] = pair(3);
    process(&mut b, 1);
    let overtaken = b.hello();
    process(&mut b, 3);
    let hello = b.hello();
    connect(&mut b, &mut a, hello);
    let refused = a.hello_arrived(overtaken);
    assert!(matches!(refused, Err(LaneError::ResumeGap { wanted: 2, oldest: 4, .. })), "{refused:?}");
    assert_eq!((a.session_no(), a.is_connected()), (1, true));
    // One that expects what was never sent is another matter.
    assert!(matches!(a.hello_arrived(at(1, 9)), Ok((Meeting::Reset { session_no: 2, .. }, _))));
}

#[test]
fn an_answer_that_was_overtaken_is_of_no_use() {
    let [mut a, mut b] = pair(3);
    let (_, answer) = b.hello_arrived(a.hello()).unwrap();
    process(&mut b, 3);
    let hello = b.hello();
    connect(&mut b, &mut a, hello);
    assert!(matches!(a.answer_arrived(answer), Err(LaneError::ResumeGap { .. })));
    assert_eq!((a.session_no(), a.is_connected()), (1, true));
}

/// Both dial, and both ask for a new session: the second Hello finds it begun.
#[test]
fn two_that_dial_at_once_begin_one_session() {
    let [mut a, mut b] = pair(3);
    a.end_session();
    b.end_session();
    let (ours, theirs) = (a.hello(), b.hello());
    let [here, there] = connect(&mut a, &mut b, ours);
    assert_eq!([here, there].map(|met| matches!(met, Meeting::Reset { session_no: 2, .. })), [true; 2]);
    let late = a.hello_arrived(theirs);
    assert!(matches!(late, Err(LaneError::Overtaken { ours: 2, theirs: 1 })), "{late:?}");
    assert_eq!((a.session_no(), a.is_connected()), (2, true));
    // The side that was dialled knows that the other one has followed once it hears from it.
    process(&mut b, 1);
    assert!(matches!(b.hello_arrived(ours), Err(LaneError::Overtaken { .. })));
}
