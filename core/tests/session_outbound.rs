//! Ordering, chunks and call credit, rule by rule.

// A failed unwrap is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use rref_core::session::{Credit, Emit, Grant, Message, Outbound, OutboundLimits, Violation};
use rref_core::{NodeUid, ObjectId};

const LIMITS: OutboundLimits =
    OutboundLimits { chunk_size: 100, chunk_overhead: 0, max_transfers: 2, transfer_budget: 1000 };

fn object(create_no: u64) -> ObjectId {
    ObjectId { owner: NodeUid(1), creator: NodeUid(2), create_no }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Msg {
    name: u64,
    key: Option<u64>,
    creates: Option<u64>,
    reply: bool,
    stream: Option<u64>,
    inline: usize,
    parts: Vec<usize>,
    element: usize,
}

impl Message for Msg {
    fn key(&self) -> Option<ObjectId> {
        self.key.map(object)
    }
    fn creates(&self) -> Option<ObjectId> {
        self.creates.map(object)
    }
    fn is_reply(&self) -> bool {
        self.reply
    }
    fn stream(&self) -> Option<u64> {
        self.stream
    }
    fn bytes(&self) -> usize {
        self.inline + self.parts.iter().sum::<usize>()
    }
    fn credit_bytes(&self) -> u64 {
        self.bytes() as u64
    }
    fn parts(&self) -> usize {
        self.parts.len()
    }
    fn part_len(&self, part: usize) -> usize {
        self.parts[part]
    }
    fn element_size(&self, _: usize) -> usize {
        self.element
    }
}

/// Credit for so many calls, of any size.
fn calls(calls: u64) -> Credit {
    Credit { calls, bytes: u64::MAX }
}

/// A small call.
fn call(name: u64, key: impl Into<Option<u64>>) -> Msg {
    Msg { name, key: key.into(), inline: 1, element: 1, ..Msg::default() }
}

fn create(name: u64, creates: u64) -> Msg {
    Msg { creates: Some(creates), ..call(name, None) }
}

fn reply(name: u64) -> Msg {
    Msg { reply: true, ..call(name, None) }
}

fn large(message: Msg) -> Msg {
    Msg { parts: vec![250], ..message }
}

fn queue(messages: impl IntoIterator<Item = Msg>) -> Outbound<Msg> {
    let mut outbound = Outbound::new(LIMITS);
    outbound.credit(calls(u64::MAX));
    for message in messages {
        outbound.submit(message);
    }
    outbound
}

/// The name of the message emitted, or `transfer/part@offset+len`.
fn next(outbound: &mut Outbound<Msg>, room: usize) -> Option<String> {
    Some(match outbound.next(room)? {
        Emit::Message { message, transfer: 0 } => format!("{}", message.name),
        Emit::Message { message, transfer } => format!("{} after {transfer}", message.name),
        Emit::Chunk { transfer, part, offset, len, .. } => format!("{transfer}/{part}@{offset}+{len}"),
    })
}

fn all(outbound: &mut Outbound<Msg>) -> Vec<String> {
    std::iter::from_fn(|| next(outbound, usize::MAX)).collect()
}

#[test]
fn submission_order_if_nothing_else_counts() {
    let mut outbound = queue([call(1, 7), reply(2), call(3, None), create(4, 8), call(5, 7)]);
    assert_eq!((outbound.len(), outbound.bytes()), (5, 5));
    assert_eq!(all(&mut outbound), ["1", "2", "3", "4", "5"]);
    assert!(outbound.is_empty());
    assert_eq!((outbound.bytes(), outbound.sent().calls), (0, 4));
}

#[test]
fn large_message_in_chunks_then_itself() {
    let message = Msg { parts: vec![250, 0, 10], element: 8, ..call(1, 7) };
    let mut outbound = queue([message]);
    assert_eq!(
        all(&mut outbound),
        ["1/0@0+96", "1/0@96+96", "1/0@192+58", "1/1@0+0", "1/2@0+10", "1 after 1"]
    );
}

#[test]
fn element_larger_than_a_chunk() {
    let mut outbound = queue([Msg { parts: vec![300], element: 150, ..call(1, None) }]);
    assert_eq!(all(&mut outbound), ["1/0@0+150", "1/0@150+150", "1 after 1"]);
}

#[test]
fn same_object_waits_others_pass() {
    let mut outbound = queue([large(call(1, 7)), call(2, 7), call(3, 8), call(4, None), reply(5)]);
    assert_eq!(
        all(&mut outbound),
        ["3", "4", "5", "1/0@0+100", "1/0@100+100", "1/0@200+50", "1 after 1", "2"]
    );
}

#[test]
fn small_passes_between_chunks_but_not_before_the_finished_message() {
    let mut outbound = queue([large(call(1, 7))]);
    assert_eq!(next(&mut outbound, 100).unwrap(), "1/0@0+100");
    outbound.submit(call(2, 8));
    assert_eq!(next(&mut outbound, 100).unwrap(), "2");
    assert_eq!(next(&mut outbound, 100).unwrap(), "1/0@100+100");
    assert_eq!(next(&mut outbound, 100).unwrap(), "1/0@200+50");
    outbound.submit(call(3, 8));
    assert_eq!(all(&mut outbound), ["1 after 1", "3"]);
}

#[test]
fn creations_keep_their_order() {
    let mut outbound = queue([large(create(1, 8)), create(2, 9), call(3, 9), call(4, 8), call(5, 7)]);
    assert_eq!(next(&mut outbound, 100).unwrap(), "5");
    let order: Vec<_> = all(&mut outbound).into_iter().filter(|emitted| !emitted.contains('/')).collect();
    assert_eq!(order, ["1 after 1", "2", "3", "4"]);
}

#[test]
fn create_from_a_message_stands_in_the_line_of_its_object() {
    let source = Msg { key: Some(7), ..create(2, 8) };
    let mut outbound = queue([large(call(1, 7)), source, call(3, 8), create(4, 9), call(5, 9), call(6, 1)]);
    let order: Vec<_> = all(&mut outbound).into_iter().filter(|emitted| !emitted.contains('/')).collect();
    assert_eq!(order, ["6", "1 after 1", "2", "3", "4", "5"]);
}

#[test]
fn replies_overtake_streams_do_not() {
    let item = |name| Msg { stream: Some(1), ..reply(name) };
    let mut outbound = queue([large(reply(1)), reply(2), large(item(3)), item(4)]);
    let order: Vec<_> = all(&mut outbound).into_iter().filter(|emitted| !emitted.contains('/')).collect();
    assert_eq!(order, ["2", "1 after 1", "3 after 2", "4"]);
}

#[test]
fn transfers_take_turns_up_to_the_limit() {
    let mut outbound = queue([large(call(1, 1)), large(call(2, 2)), large(call(3, 3))]);
    let emitted = all(&mut outbound);
    let turns: Vec<_> = emitted.iter().map(|emitted| emitted.split('@').next().unwrap()).collect();
    assert_eq!(
        turns,
        [
            "1/0",
            "2/0",
            "1/0",
            "2/0",
            "1/0",
            "1 after 1",
            "2/0",
            "2 after 2",
            "3/0",
            "3/0",
            "3/0",
            "3 after 3"
        ]
    );
}

#[test]
fn transfers_stay_within_the_budget_and_in_line() {
    let sized = |name, bytes| Msg { parts: vec![bytes], ..call(name, name) };
    let mut outbound = queue([sized(1, 900), sized(2, 2000), sized(3, 50)]);
    let order: Vec<_> = all(&mut outbound).into_iter().filter(|emitted| !emitted.contains('/')).collect();
    assert_eq!(order, ["1 after 1", "2 after 2", "3 after 3"], "3 would fit, but 2 would then never");
}

#[test]
fn room_is_respected_and_not_passed() {
    let mut outbound = queue([Msg { inline: 50, ..call(1, 1) }, call(2, 2), large(call(3, 3))]);
    assert_eq!(next(&mut outbound, 49), None);
    assert_eq!(next(&mut outbound, 50).unwrap(), "1");
    assert_eq!(next(&mut outbound, 0), None);
    assert_eq!(next(&mut outbound, 1).unwrap(), "2");
    assert_eq!(next(&mut outbound, 99), None);
    for _ in 0..3 {
        assert!(next(&mut outbound, 100).unwrap().contains('/'));
    }
    assert_eq!(next(&mut outbound, 0), None, "its own frame needs room too");
    assert_eq!(next(&mut outbound, 1).unwrap(), "3 after 1");
}

#[test]
fn chunks_are_not_starved() {
    let mut outbound = queue([large(call(0, 1))]);
    for name in 1..1000 {
        outbound.submit(Msg { inline: 10, ..call(name, 2) });
    }
    let emitted = all(&mut outbound);
    let chunks: Vec<_> = (0..emitted.len()).filter(|i| emitted[*i].contains('/')).collect();
    assert_eq!(chunks, [40, 81, 122]);
    assert_eq!(emitted[123], "0 after 1");
}

#[test]
fn credit_holds_calls_not_replies() {
    let mut outbound = Outbound::new(LIMITS);
    for message in [call(1, 1), reply(2), create(3, 2), large(call(4, 3)), large(reply(5)), call(6, 4)] {
        outbound.submit(message);
    }
    assert_eq!(all(&mut outbound), ["2", "1/0@0+100", "1/0@100+100", "1/0@200+50", "5 after 1"]);
    outbound.credit(calls(2));
    outbound.credit(calls(1));
    assert_eq!(all(&mut outbound), ["1", "3"]);
    outbound.credit(calls(3));
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "2/0@0+100", "the credit is reserved");
    assert_eq!(outbound.sent().calls, 2);
    outbound.credit(calls(4));
    assert_eq!(all(&mut outbound), ["6", "2/0@100+100", "2/0@200+50", "4 after 2"]);
    assert_eq!(outbound.sent().calls, 4);
}

#[test]
fn what_waits_for_credit_is_counted() {
    let mut outbound = Outbound::new(LIMITS);
    outbound.submit(call(1, 7));
    outbound.submit(reply(2));
    assert_eq!(outbound.waiting_for_credit(), 1, "replies need none");
    outbound.submit(large(call(3, None)));
    outbound.submit(call(4, 7));
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "2");
    assert_eq!(outbound.waiting_for_credit(), 2, "4 waits for 1 first of all");
    outbound.credit(calls(1));
    assert_eq!(outbound.waiting_for_credit(), 0);
}

#[test]
fn last_credit_goes_to_the_first() {
    let mut outbound = Outbound::new(LIMITS);
    outbound.submit(call(1, 1));
    outbound.submit(large(call(2, 2)));
    outbound.submit(call(3, 3));
    let mut order = vec![];
    for limit in 1..=3 {
        outbound.credit(calls(limit));
        order.extend(all(&mut outbound).into_iter().filter(|emitted| !emitted.contains('/')));
    }
    assert_eq!(order, ["1", "2 after 1", "3"]);
}

#[test]
fn withdraw_and_cancel() {
    let mut outbound = queue([large(call(1, 7))]);
    let second = outbound.submit(call(2, 7));
    let third = outbound.submit(call(3, 7));
    let created = outbound.submit(create(4, 8));
    assert_eq!(outbound.withdraw(second), Some(call(2, 7)));
    assert_eq!(outbound.withdraw(second), None);
    assert_eq!(outbound.withdraw(created), None, "its number is assigned");
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "4");
    assert!(next(&mut outbound, usize::MAX).unwrap().contains('/'));
    assert_eq!(outbound.cancel(|message| message.name == 1), [], "chunks are under way");
    assert_eq!(outbound.cancel(|message| message.key == Some(7)), [call(3, 7)]);
    assert_eq!(outbound.withdraw(third), None);
    assert_eq!((outbound.len(), outbound.bytes()), (1, 251));
}

#[test]
fn withdrawn_head_lets_the_next_go() {
    let mut outbound = Outbound::new(LIMITS);
    let first = outbound.submit(large(call(1, 7)));
    outbound.submit(call(2, 7));
    outbound.credit(calls(1));
    outbound.withdraw(first);
    assert_eq!(all(&mut outbound), ["2"]);
}

#[test]
fn drain_gives_everything_back_in_order() {
    let messages = [large(call(1, 7)), call(2, 7), large(create(3, 8)), call(4, 8), reply(5)];
    let mut outbound = queue(messages.clone());
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "5");
    assert!(next(&mut outbound, usize::MAX).unwrap().contains('/'));
    assert_eq!(outbound.drain(), messages[..4]);
    assert!(outbound.is_empty() && outbound.bytes() == 0 && outbound.next(usize::MAX).is_none());
    outbound.submit(large(call(6, 7)));
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "3/0@0+100", "transfer numbers are not reused");
}

/// Quadratic work would take minutes.
#[test]
fn a_long_queue_behind_a_large_message() {
    const WAITING: u64 = 100_000;
    let mut outbound = queue([large(call(0, 7))]);
    let tickets: Vec<_> = (1..=WAITING).map(|name| outbound.submit(call(name, 7))).collect();
    for (name, ticket) in (1..=WAITING).zip(tickets) {
        outbound.submit(call(name, 8));
        if name % 2 == 0 {
            outbound.withdraw(ticket).unwrap();
        }
    }
    assert_eq!(all(&mut outbound).len() as u64, 3 + 1 + WAITING / 2 + WAITING);
}

#[test]
fn credit_in_bytes_holds_calls_once_it_is_used_up() {
    let mut outbound = Outbound::new(LIMITS);
    for message in [large(call(1, 1)), call(2, 2), call(3, 3), reply(4), large(call(5, 5))] {
        outbound.submit(message);
    }
    outbound.credit(Credit { calls: 9, bytes: 100 });
    // The large one may go, and small ones pass it: its bytes are spent only when it is complete.
    let emitted = ["2", "3", "4", "1/0@0+100", "2/0@0+100", "1/0@100+100", "2/0@100+100"];
    let rest = ["1/0@200+50", "1 after 1", "2/0@200+50", "5 after 2"];
    assert_eq!(all(&mut outbound), [&emitted[..], &rest].concat());
    assert_eq!(outbound.sent(), Credit { calls: 4, bytes: 504 });
    outbound.submit(call(6, 6));
    outbound.submit(large(call(7, 7)));
    outbound.credit(Credit { calls: 9, bytes: 504 });
    assert_eq!(all(&mut outbound), [""; 0]);
    assert_eq!(outbound.waiting_for_credit(), 2);
    outbound.submit(call(8, 8));
    outbound.credit(Credit { calls: 9, bytes: 505 });
    assert_eq!(outbound.waiting_for_credit(), 0);
    let last = all(&mut outbound);
    assert_eq!((&*last[0], &*last[4]), ("6", "7 after 3"), "one byte lets a transfer open");
    assert_eq!(last.len(), 5, "but only one small call go");
}

/// A grant of so many calls, of any size.
fn grant_of(calls: u64) -> Grant {
    Grant::new(Credit { calls, bytes: u64::MAX })
}

#[test]
fn grant_announces_by_quarters() {
    let mut grant = grant_of(8);
    let announced = |grant: &mut Grant| grant.update().map(|limit| limit.calls);
    assert_eq!(grant.granted(), calls(8));
    (0..8).for_each(|_| grant.received(1, false).unwrap());
    assert_eq!(grant.received(1, false), Err(Violation { granted: calls(8) }));
    assert_eq!(grant.received(1, true), Err(Violation { granted: calls(8) }));
    assert_eq!(grant.unfinished(), Credit { calls: 8, bytes: 8 });
    grant.done(1);
    assert_eq!(announced(&mut grant), None);
    grant.done(1);
    assert_eq!(announced(&mut grant), Some(10));
    assert_eq!(announced(&mut grant), None);
    grant.received(1, false).unwrap();
    grant.received(1, false).unwrap();
    assert_eq!(grant.received(1, false), Err(Violation { granted: calls(10) }));
    (0..20).for_each(|_| grant.done(1));
    assert_eq!(grant.unfinished(), Credit::default());
    assert_eq!(announced(&mut grant), Some(18));
}

#[test]
fn grant_in_bytes() {
    let mut grant = Grant::new(Credit { calls: 100, bytes: 1000 });
    grant.received(999, false).unwrap();
    grant.received(5000, false).unwrap();
    let granted = Credit { calls: 100, bytes: 1000 };
    assert_eq!(grant.received(0, false), Err(Violation { granted }));
    grant.received(70, true).unwrap();
    assert_eq!(grant.unfinished(), Credit { calls: 3, bytes: 6069 });
    grant.done(70);
    assert_eq!(grant.update(), None, "a quarter is 250");
    grant.done(5000);
    assert_eq!(grant.update(), Some(Credit { calls: 102, bytes: 6070 }));
    grant.received(1, false).unwrap();
    assert_eq!(grant.received(1, false), Err(Violation { granted: Credit { calls: 102, bytes: 6070 } }));
}

#[test]
fn grant_of_one() {
    let mut grant = Grant::new(Credit::default());
    for limit in 2..5 {
        grant.received(1, false).unwrap();
        assert!(grant.received(1, false).is_err());
        grant.done(1);
        assert_eq!(grant.update(), Some(Credit { calls: limit, bytes: limit }));
    }
}

#[test]
fn a_new_session_gains_nothing() {
    let mut grant = Grant::new(Credit { calls: 4, bytes: 100 });
    (0..3).for_each(|_| grant.received(50, true).unwrap());
    grant.restart();
    assert_eq!(grant.granted(), Credit { calls: 1, bytes: 0 });
    assert_eq!(grant.unfinished(), Credit { calls: 3, bytes: 150 });
    assert!(grant.received(0, false).is_err());
    grant.done(50);
    assert_eq!(grant.update(), Some(Credit { calls: 2, bytes: 0 }));
    grant.done(50);
    assert_eq!(grant.update(), Some(Credit { calls: 3, bytes: 50 }));
    (0..2).for_each(|_| grant.received(30, false).unwrap());
    grant.done(50);
    assert_eq!(grant.update(), Some(Credit { calls: 4, bytes: 100 }));
    assert_eq!(grant.unfinished(), Credit { calls: 2, bytes: 60 });
    (0..2).for_each(|_| grant.done(30));
    grant.restart();
    assert_eq!(grant.granted(), Credit { calls: 4, bytes: 100 });
}

/// A new session: what was not emitted is sent there, from the start, on the credit given there.
#[test]
fn restart_begins_open_transfers_anew() {
    let mut outbound = queue([call(1, 7), large(call(2, 8)), call(3, 8), create(4, 9), reply(5)]);
    let ticket = outbound.submit(call(6, 7));
    assert_eq!(next(&mut outbound, usize::MAX).unwrap(), "1");
    while next(&mut outbound, usize::MAX).unwrap() != "1/0@0+100" {}
    outbound.restart();
    assert_eq!((outbound.len(), outbound.sent().calls, outbound.waiting_for_credit()), (2, 0, 1));
    assert_eq!(all(&mut outbound), Vec::<String>::new());
    outbound.credit(calls(2));
    assert_eq!(all(&mut outbound), ["2/0@0+100", "2/0@100+100", "2/0@200+50", "2 after 2", "3"]);
    assert_eq!((outbound.bytes(), outbound.sent().calls, outbound.withdraw(ticket)), (0, 2, None));
}
