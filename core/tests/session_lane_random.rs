//! Two lanes over connections that break anywhere: every frame once, in order, and all is acked.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rref_core::session::{Accept, AckDue, Class, Lane, LaneLimits, Progress};
use rref_core::{Rules, Seq};
use std::collections::VecDeque;

const LIMITS: LaneLimits =
    LaneLimits { send_window: 100, receive_window: 100, resend_limit: 1 << 20, ack_frames: 3 };

#[derive(Clone, Debug)]
struct Frame {
    seq: Seq,
    ack: Seq,
    class: Class,
    weight: usize,
    value: u64,
}

#[derive(Clone, Debug)]
enum Wire {
    Frame(Frame),
    Ack { at: Seq, ack: Seq },
}

struct Side {
    lane: Lane<Frame>,
    /// What is on its way to this side.
    incoming: VecDeque<Wire>,
    pushed: u64,
    received: Vec<u64>,
    /// For each position processed: the last position of ours at that time.
    assigned_at: Vec<Seq>,
    acked: Seq,
}

impl Side {
    fn new() -> Self {
        let lane = Lane::new(Rules::ALL, LIMITS);
        Side { lane, incoming: VecDeque::new(), pushed: 0, received: vec![], assigned_at: vec![0], acked: 0 }
    }

    fn push(&mut self, class: Class, weight: usize) {
        if class == Class::User && weight > self.lane.room() {
            return;
        }
        self.pushed += 1;
        let (seq, ack) = (self.lane.next_seq(), self.lane.processed());
        let frame = Frame { seq, ack, class, weight, value: self.pushed };
        assert_eq!(self.lane.push(class, weight, frame), seq);
        self.lane.ack_stamped();
    }
}

struct Pair {
    sides: [Side; 2],
    /// Whether any Hello was ever read by each side: before, its peer knows no session.
    known: [bool; 2],
}

impl Pair {
    fn send(&mut self, from: usize) {
        if let Some(frame) = self.sides[from].lane.next_to_send().cloned() {
            self.sides[1 - from].incoming.push_back(Wire::Frame(frame));
        }
    }

    fn ack(&mut self, from: usize) {
        let lane = &mut self.sides[from].lane;
        if !lane.is_connected() || lane.ack_due() == AckDue::No {
            return;
        }
        let (at, ack) = (lane.last_assigned(), lane.processed());
        lane.ack_stamped();
        self.sides[1 - from].incoming.push_back(Wire::Ack { at, ack });
    }

    fn deliver(&mut self, to: usize) {
        let side = &mut self.sides[to];
        // Half-open: only one end knows of the connection yet, so it does not read.
        if !side.lane.is_connected() {
            return;
        }
        let Some(wire) = side.incoming.pop_front() else { return };
        let progress = match wire {
            Wire::Ack { at, ack } => side.lane.ack_frame(1, at, ack, ack, vec![]).unwrap(),
            Wire::Frame(frame) => {
                assert_eq!(side.lane.accept(frame.seq), Ok(Accept::Process), "resumed at the right place");
                side.received.push(frame.value);
                side.assigned_at.push(side.lane.last_assigned());
                side.lane.processed_frame(frame.seq, frame.ack, frame.ack, frame.class, frame.weight).unwrap()
            }
        };
        self.check(to, progress);
    }

    fn check(&mut self, to: usize, progress: Progress) {
        let (side, peer) = (&self.sides[to], &self.sides[1 - to]);
        assert_eq!(progress.acked, progress.settled);
        let Some(acked) = progress.acked else { return };
        assert!(acked > side.acked && acked <= peer.lane.processed());
        let before = peer.assigned_at[acked as usize];
        assert!(side.lane.processed() >= before, "an ack overtook what was said before it");
        self.sides[to].acked = acked;
    }

    fn cut(&mut self) {
        for side in &mut self.sides {
            side.lane.disconnected();
            side.incoming.clear();
        }
    }

    /// `both`: otherwise HelloAck is lost, and only side `acceptor` believes in the connection.
    fn connect(&mut self, acceptor: usize, both: bool) {
        self.cut();
        let hello = self.sides.each_ref().map(|side| side.lane.recv_next());
        for to in if both { vec![acceptor, 1 - acceptor] } else { vec![acceptor] } {
            let session = u32::from(self.known[1 - to] || to != acceptor);
            self.sides[to].lane.connected(session, hello[1 - to]).unwrap();
            self.known[to] = true;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize, bool, usize),
    Send(usize),
    Deliver(usize),
    Ack(usize),
    Cut,
    Connect(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize, any::<bool>(), 1..150usize).prop_map(|(s, user, w)| Step::Push(s, user, w)),
        6 => (0..2usize).prop_map(Step::Send),
        6 => (0..2usize).prop_map(Step::Deliver),
        3 => (0..2usize).prop_map(Step::Ack),
        1 => Just(Step::Cut),
        2 => (0..2usize, any::<bool>()).prop_map(|(s, both)| Step::Connect(s, both)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_frame_once_in_order(steps in prop::collection::vec(step(), 0..200)) {
        let mut pair = Pair { sides: [Side::new(), Side::new()], known: [false; 2] };
        pair.connect(0, true);
        for step in steps {
            match step {
                Step::Push(side, user, weight) => {
                    pair.sides[side].push(if user { Class::User } else { Class::Control }, weight);
                }
                Step::Send(side) => pair.send(side),
                Step::Deliver(side) => pair.deliver(side),
                Step::Ack(side) => pair.ack(side),
                Step::Cut => pair.cut(),
                Step::Connect(side, both) => pair.connect(side, both),
            }
        }
        pair.connect(0, true);
        loop {
            for side in 0..2 {
                while pair.sides[side].lane.has_unsent() {
                    pair.send(side);
                }
                pair.ack(side);
            }
            if pair.sides.iter().all(|side| side.incoming.is_empty()) {
                break;
            }
            for side in 0..2 {
                while !pair.sides[side].incoming.is_empty() {
                    pair.deliver(side);
                }
            }
        }
        for (side, peer) in [(0, 1), (1, 0)] {
            let (side, peer) = (&pair.sides[side], &pair.sides[peer]);
            prop_assert_eq!(&peer.received, &(1..=side.pushed).collect::<Vec<_>>());
            prop_assert_eq!(side.acked, side.lane.last_assigned());
            prop_assert_eq!((side.lane.unacked_frames(), side.lane.unacked_bytes()), (0, 0));
            prop_assert_eq!(side.lane.room(), usize::MAX);
            prop_assert_eq!(side.lane.ack_due(), AckDue::No);
        }
    }
}
