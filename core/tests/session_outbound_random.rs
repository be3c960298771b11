//! The queue of outgoing messages against a model that looks at every pair of messages.

use proptest::prelude::*;
use rref_core::session::{Credit, Emit, Message, Outbound, OutboundLimits, Ticket};
use rref_core::{NodeUid, ObjectId};
use std::collections::BTreeMap;

const LIMITS: OutboundLimits =
    OutboundLimits { chunk_size: 40, chunk_overhead: 5, max_transfers: 2, transfer_budget: 300 };

#[derive(Clone, Debug, PartialEq, Eq)]
struct Msg {
    name: usize,
    key: Option<ObjectId>,
    creates: Option<ObjectId>,
    stream: Option<u64>,
    reply: bool,
    inline: usize,
    parts: Vec<usize>,
    element: usize,
}

impl Message for Msg {
    fn key(&self) -> Option<ObjectId> {
        self.key
    }
    fn creates(&self) -> Option<ObjectId> {
        self.creates
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

/// Whether `later` must wait for `earlier`.
fn ordered(earlier: &Msg, later: &Msg) -> bool {
    if earlier.reply || later.reply {
        return earlier.reply && later.reply && earlier.stream.is_some() && earlier.stream == later.stream;
    }
    let objects = |m: &Msg| [m.key, m.creates].into_iter().flatten().collect::<Vec<_>>();
    (earlier.creates.is_some() && later.creates.is_some())
        || objects(earlier).iter().any(|object| objects(later).contains(object))
}

#[derive(Default)]
struct Progress {
    name: usize,
    part: usize,
    offset: usize,
}

#[derive(Default)]
struct Model {
    /// Submitted and neither emitted nor withdrawn.
    waiting: BTreeMap<usize, Msg>,
    transfers: BTreeMap<u32, Progress>,
    /// The transfer whose last chunk has gone.
    finished: Option<u32>,
    limit: Credit,
    sent: Credit,
    emitted: usize,
    /// Bytes of small messages gone since the last chunk.
    small_run: usize,
}

impl Model {
    fn held_up(&self, name: usize) -> bool {
        let message = &self.waiting[&name];
        self.waiting.range(..name).any(|(_, earlier)| ordered(earlier, message))
    }

    fn is_open(&self, name: usize) -> bool {
        self.transfers.values().any(|progress| progress.name == name)
    }

    fn reserved(&self) -> u64 {
        self.waiting.values().filter(|message| !message.reply && self.is_open(message.name)).count() as u64
    }

    /// Small messages that wait for nothing but room, if so much credit is reserved.
    fn small_ready(&self, reserved: u64) -> Vec<usize> {
        let calls = self.limit.calls.saturating_sub(self.sent.calls + reserved) > 0;
        let credit = calls && self.sent.bytes < self.limit.bytes;
        let ready = |m: &&Msg| m.parts.is_empty() && (m.reply || credit) && !self.held_up(m.name);
        self.waiting.values().filter(ready).map(|m| m.name).collect()
    }

    fn message(&mut self, message: &Msg, transfer: u32, room: usize) {
        assert!(!self.held_up(message.name), "{message:?} overtook");
        assert_eq!(self.waiting.remove(&message.name).as_ref(), Some(message), "once");
        assert!(message.inline <= room);
        assert_eq!(transfer != 0, !message.parts.is_empty());
        assert_eq!(self.finished.take().unwrap_or(0), transfer, "right after its last chunk");
        self.emitted += 1;
        if transfer != 0 {
            assert_eq!(self.transfers.remove(&transfer).map(|progress| progress.name), Some(message.name));
        } else {
            self.small_run += message.inline;
        }
        if !message.reply {
            assert!(transfer != 0 || self.sent.bytes < self.limit.bytes, "without credit");
            self.sent.calls += 1;
            self.sent.bytes += message.bytes() as u64;
            assert!(self.sent.calls <= self.limit.calls, "without credit");
        }
    }

    fn chunk(&mut self, transfer: u32, part: u16, offset: usize, len: usize, message: &Msg, room: usize) {
        assert_eq!(self.finished, None);
        assert!(!self.held_up(message.name), "{message:?} overtook");
        assert!(len + LIMITS.chunk_overhead <= room);
        let progress = self.transfers.entry(transfer).or_default();
        if (progress.part, progress.offset) == (0, 0) {
            progress.name = message.name;
        }
        assert_eq!((progress.name, progress.part, progress.offset), (message.name, part as usize, offset));
        let left = message.parts[part as usize] - offset;
        assert!(
            len == left
                || (len.is_multiple_of(message.element)
                    && len > 0
                    && len <= LIMITS.chunk_size.max(message.element))
        );
        progress.offset += len;
        if len == left {
            (progress.part, progress.offset) = (progress.part + 1, 0);
        }
        if progress.part == message.parts.len() {
            self.finished = Some(transfer);
        }
        let open: Vec<_> = self.waiting.values().filter(|m| self.is_open(m.name)).collect();
        assert!(open.len() <= LIMITS.max_transfers);
        assert!(open.len() == 1 || open.iter().map(|m| m.bytes()).sum::<usize>() <= LIMITS.transfer_budget);
        assert!(self.sent.calls + self.reserved() <= self.limit.calls, "an open transfer has its credit");

        // A chunk passes a small message only in its own turn, and never twice in a row.
        // A transfer without a chunk so far
        // may have its credit too, which the model cannot see.
        let passed_over = self.small_ready(LIMITS.max_transfers as u64).first().copied();
        if passed_over.is_some() {
            assert!(self.small_run >= 4 * LIMITS.chunk_size, "{passed_over:?} waits behind a large message");
        }
        self.small_run = 0;
    }

    /// Nothing was emitted.
    fn nothing(&self, room: usize) {
        if room < usize::MAX {
            return;
        }
        assert!(self.transfers.is_empty(), "nothing stops a chunk");
        assert!(self.small_ready(0).is_empty());
        for message in self.waiting.values() {
            let used_up = self.sent.calls == self.limit.calls || self.sent.bytes >= self.limit.bytes;
            let no_credit = !message.reply && used_up;
            assert!(self.held_up(message.name) || no_credit, "nothing stops {message:?}");
        }
    }

    fn step(&mut self, outbound: &mut Outbound<Msg>, room: usize) -> bool {
        match outbound.next(room) {
            Some(Emit::Message { message, transfer }) => self.message(&message, transfer, room),
            Some(Emit::Chunk { transfer, part, offset, len, message }) => {
                self.chunk(transfer, part, offset, len, message, room);
            }
            None => {
                self.nothing(room);
                return false;
            }
        }
        assert_eq!(outbound.len(), self.waiting.len());
        assert_eq!(outbound.bytes(), self.waiting.values().map(Msg::bytes).sum::<usize>());
        assert_eq!(outbound.sent(), self.sent);
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit { key: Option<u8>, creates: bool, kind: u8, inline: usize, parts: Vec<usize>, element: usize },
    Credit { calls: u64, bytes: u64 },
    Next(usize),
    Withdraw(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let parts = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(0..15usize, 1..4)];
    let submit = (prop::option::of(0..6u8), prop::bool::weighted(0.25), 0..6u8, 1..60usize, parts, 1..9usize);
    prop_oneof![
        6 => submit.prop_map(|(key, creates, kind, inline, parts, element)| {
            let parts = parts.into_iter().map(|n| n * element).collect();
            Step::Submit { key, creates, kind, inline, parts, element }
        }),
        2 => (0..4u64, 0..200u64).prop_map(|(calls, bytes)| Step::Credit { calls, bytes }),
        8 => prop_oneof![Just(usize::MAX), 0..100usize].prop_map(Step::Next),
        1 => any::<prop::sample::Index>().prop_map(Step::Withdraw),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn as_the_model_says(steps in prop::collection::vec(step(), 1..150)) {
        let mut outbound = Outbound::new(LIMITS);
        let mut model = Model::default();
        let mut tickets: Vec<Ticket> = vec![];
        let (mut created, mut withdrawn) = (0u64, 0);
        let object = |create_no| ObjectId { owner: NodeUid(1), creator: NodeUid(2), create_no };
        for step in steps {
            match step {
                Step::Submit { key, creates, kind, inline, parts, element } => {
                    let reply = kind < 2;
                    let creates = creates && !reply;
                    // Half of the keys are objects whose creation may still be queued.
                    let key = key.map(|key| {
                        if key < 3 { object(1000 + u64::from(key)) } else { object(created.saturating_sub(u64::from(key) - 3)) }
                    });
                    created += u64::from(creates);
                    let stream = (kind == 0).then_some(u64::from(inline % 2 == 0));
                    let creates = creates.then(|| object(created));
                    let message = Msg { name: tickets.len(), key, creates, stream, reply, inline, parts, element };
                    model.waiting.insert(message.name, message.clone());
                    tickets.push(outbound.submit(message));
                }
                Step::Credit { calls, bytes } => {
                    model.limit.calls += calls;
                    model.limit.bytes += bytes;
                    outbound.credit(model.limit);
                }
                Step::Next(room) => drop(model.step(&mut outbound, room)),
                Step::Withdraw(index) if !tickets.is_empty() => {
                    let name = index.index(tickets.len());
                    if let Some(message) = outbound.withdraw(tickets[name]) {
                        prop_assert!(!model.is_open(name) && message.creates.is_none());
                        prop_assert_eq!(model.waiting.remove(&name), Some(message));
                        withdrawn += 1;
                    }
                }
                Step::Withdraw(_) => {}
            }
        }
        model.limit.calls += 1000;
        model.limit.bytes += 1_000_000;
        outbound.credit(model.limit);
        while model.step(&mut outbound, usize::MAX) {}
        prop_assert!(outbound.is_empty() && outbound.bytes() == 0);
        prop_assert_eq!(model.emitted + withdrawn, tickets.len());
        // Nothing but the counters differs from a queue that was never used.
        prop_assert_eq!(outbound.drain(), vec![]);
    }
}
