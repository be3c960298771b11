//! Messages to one peer that have no position in the lane yet, and which of them goes next.
//!
//! Knows order, sizes, room and credit; must not know frames, positions or what a message says. What
//! has been emitted is the lane's.
//!
//! The rules:
//!
//! - Messages to one object, parts of one stream, and all creations keep their order; messages to an
//!   object wait for its creation. Nothing else waits for anything but room and credit.
//! - A large message goes in chunks, and after the last one at once the message itself. Meanwhile it
//!   keeps its place in its lines. Open transfers take turns, chunk by chunk.
//! - Small messages go before chunks, but chunks keep a fifth of a busy lane.
//! - Every message but a reply takes the credit of one call, and of its bytes, once there is some of
//!   both. A large one reserves its call when its transfer opens, so that no assembled message is stuck
//!   at the receiver for want of credit; its bytes count once it has gone, so that small ones pass.

use super::credit::Credit;
use super::order::{Lines, Message, Number};
use super::transfer::{Piece, Transfers};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How large messages are sent. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutboundLimits {
    /// Payload of one chunk; rounded down to whole elements, but at least one. Default 256 KiB.
    pub chunk_size: usize,
    /// What a chunk's frame weighs beyond its payload, at most. Default 128.
    pub chunk_overhead: usize,
    /// How many transfers may be open at once. Default 8.
    pub max_transfers: usize,
    /// Sum of the sizes of open transfers: what the receiver has to assemble at a time. A larger
    /// message goes alone. Default 1 GiB.
    pub transfer_budget: usize,
}

impl Default for OutboundLimits {
    fn default() -> Self {
        OutboundLimits {
            chunk_size: 256 << 10,
            chunk_overhead: 128,
            max_transfers: 8,
            transfer_budget: 1 << 30,
        }
    }
}

/// Small messages' share of the lane while chunks wait: this many chunk sizes to one chunk.
const SMALL_SHARE: usize = 4;

/// What to send now. It takes the lane's next position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emit<'a, M> {
    /// A message's own frame: it has left the queue.
    Message {
        /// The message.
        message: M,
        /// The transfer that carried its parts, not 0; 0 if it has none.
        transfer: u32,
    },
    /// A piece of one part of a message, which stays in the queue.
    Chunk {
        /// The transfer's number, not 0.
        transfer: u32,
        /// The part.
        part: u16,
        /// Where the piece begins, in bytes.
        offset: usize,
        /// Bytes of the piece; 0 only for a part without elements.
        len: usize,
        /// The message.
        message: &'a M,
    },
}

/// Names a queued message, for [`Outbound::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(Number);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queued<M> {
    message: M,
    /// In how many lines it is not the head.
    behind: u8,
}

/// Messages that head all their lines, by submission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ready {
    calls: BTreeSet<Number>,
    replies: BTreeSet<Number>,
}

impl Ready {
    fn set_for<M: Message>(&mut self, message: &M) -> &mut BTreeSet<Number> {
        if message.is_reply() { &mut self.replies } else { &mut self.calls }
    }

    /// The first that may go, given whether calls have credit.
    fn first(&self, calls: bool) -> Option<Number> {
        let call = self.calls.first().filter(|_| calls);
        self.replies.first().into_iter().chain(call).min().copied()
    }
}

/// The queue of messages to one peer.
///
/// [`submit`](Outbound::submit), [`next`](Outbound::next) and [`withdraw`](Outbound::withdraw) take
/// O(log n) amortised, whatever waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outbound<M> {
    limits: OutboundLimits,
    /// The usual case, without the lines and sets below, which are empty then: small messages only,
    /// numbered in a row. While calls have credit, the order of submission obeys all rules.
    express: VecDeque<(Number, M)>,
    /// Everything else that is not emitted, by submission.
    queue: BTreeMap<Number, Queued<M>>,
    next_number: Number,
    bytes: usize,
    lines: Lines,
    small: Ready,
    /// Large messages that may open a transfer.
    large: Ready,
    transfers: Transfers,
    /// Bytes of small messages emitted since the last chunk, while a transfer was open.
    small_run: usize,
    limit: Credit,
    sent: Credit,
    /// Credit kept for open transfers.
    calls_reserved: u64,
}

impl<M: Message> Outbound<M> {
    /// An empty queue, without call credit: the peer's first limit comes by [`Outbound::credit`].
    pub fn new(limits: OutboundLimits) -> Self {
        Outbound {
            limits,
            express: VecDeque::new(),
            queue: BTreeMap::new(),
            next_number: 0,
            bytes: 0,
            lines: Lines::default(),
            small: Ready::default(),
            large: Ready::default(),
            transfers: Transfers::default(),
            small_run: 0,
            limit: Credit::default(),
            sent: Credit::default(),
            calls_reserved: 0,
        }
    }

    /// Queues a message.
    pub fn submit(&mut self, message: M) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        self.bytes += message.bytes();
        if self.queue.is_empty() && message.parts() == 0 {
            self.express.push_back((number, message));
        } else {
            self.settle();
            self.line_up(number, message);
        }
        Ticket(number)
    }

    /// Puts a message, the latest of all, in its lines.
    fn line_up(&mut self, number: Number, message: M) {
        let behind = self.lines.join(number, &message);
        if behind == 0 {
            self.ready_for(&message).set_for(&message).insert(number);
        }
        self.queue.insert(number, Queued { message, behind });
    }

    /// The usual case is over: whatever waits gets in its lines. Each message does so once at most.
    fn settle(&mut self) {
        for (number, message) in std::mem::take(&mut self.express) {
            self.line_up(number, message);
        }
    }

    /// What goes next, if its weight is at most `room` bytes ([`Lane::room`](super::Lane::room):
    /// `usize::MAX` if nothing is unacknowledged, else what is left of the window).
    ///
    /// What is first in turn is not passed by something smaller: it would never find room.
    pub fn next(&mut self, room: usize) -> Option<Emit<'_, M>> {
        if let Some((_, message)) = self.express.front() {
            if message.is_reply() || self.has_credit() {
                return self.emit_express(room);
            }
            // Replies go before calls that have no credit.
            self.settle();
        }
        if let Some((number, id)) = self.transfers.finished().map(|transfer| (transfer.number, transfer.id)) {
            return self.emit_finished(number, id, room);
        }
        self.open_transfers();
        let chunk_due =
            self.small_run >= self.limits.chunk_size.saturating_mul(SMALL_SHARE) && self.transfers.len() > 0;
        match self.small.first(self.has_credit()) {
            Some(number) if !chunk_due => self.emit_small(number, room),
            _ => self.emit_chunk(room),
        }
    }

    /// The peer lets us send this much in all. A lower limit than before is an old one, and ignored.
    pub fn credit(&mut self, limit: Credit) {
        self.limit.calls = self.limit.calls.max(limit.calls);
        self.limit.bytes = self.limit.bytes.max(limit.bytes);
    }

    /// Calls, casts and creations emitted so far, and their bytes.
    pub fn sent(&self) -> Credit {
        self.sent
    }

    /// Messages not emitted; one whose chunks are under way is among them.
    pub fn len(&self) -> usize {
        self.express.len() + self.queue.len()
    }

    /// Whether everything is emitted.
    pub fn is_empty(&self) -> bool {
        self.express.is_empty() && self.queue.is_empty()
    }

    /// Messages that head their lines and wait for nothing but call credit. Looks at every message in
    /// the usual case.
    pub fn waiting_for_credit(&self) -> usize {
        if self.has_credit() {
            return 0;
        }
        let express = self.express.iter().filter(|(_, message)| !message.is_reply()).count();
        express + self.small.calls.len() + self.large.calls.len()
    }

    /// Bytes of all messages not emitted, including chunks that have gone already.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes back one message. `None` if it has been emitted, if its transfer is open, or if it creates
    /// an object: creation numbers go out without gaps.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<M> {
        if self.express.front().is_some_and(|(first, _)| *first <= ticket.0) {
            self.settle();
        }
        let queued = self.queue.get(&ticket.0)?;
        if creation(&queued.message) || self.transfers.contains(ticket.0) {
            return None;
        }
        self.remove(ticket.0)
    }

    /// Takes back all messages that `unwanted` picks, in the order of submission, except those that
    /// [`Outbound::withdraw`] would refuse. Looks at every message.
    pub fn cancel(&mut self, mut unwanted: impl FnMut(&M) -> bool) -> Vec<M> {
        self.settle();
        let picked =
            |(number, queued): (&Number, &Queued<M>)| unwanted(&queued.message).then_some(Ticket(*number));
        let tickets: Vec<Ticket> = self.queue.iter().filter_map(picked).collect();
        tickets.into_iter().filter_map(|ticket| self.withdraw(ticket)).collect()
    }

    /// Takes back everything not emitted, open transfers and creations too, in the order of submission:
    /// the peer is lost. Credit and its count stay as they are.
    pub fn drain(&mut self) -> Vec<M> {
        self.settle();
        self.bytes = 0;
        self.lines.clear();
        self.small = Ready::default();
        self.large = Ready::default();
        self.transfers.clear();
        self.small_run = 0;
        self.calls_reserved = 0;
        std::mem::take(&mut self.queue).into_values().map(|queued| queued.message).collect()
    }

    /// A new session begins: what was not emitted stays and is emitted there, open transfers start over,
    /// and call credit counts from 0 again.
    pub fn restart(&mut self) {
        for number in self.transfers.numbers() {
            if let Some(queued) = self.queue.get(&number) {
                self.large.set_for(&queued.message).insert(number);
            }
        }
        self.transfers.clear();
        self.small_run = 0;
        self.calls_reserved = 0;
        self.sent = Credit::default();
        self.limit = Credit::default();
    }

    fn calls_available(&self) -> u64 {
        self.limit.calls.saturating_sub(self.sent.calls).saturating_sub(self.calls_reserved)
    }

    /// Whether one more call may go.
    fn has_credit(&self) -> bool {
        self.calls_available() > 0 && self.sent.bytes < self.limit.bytes
    }

    /// A message leaves the queue.
    fn spend(&mut self, message: &M) {
        if !message.is_reply() {
            self.sent.calls += 1;
            self.sent.bytes = self.sent.bytes.saturating_add(message.credit_bytes());
        }
    }

    fn ready_for(&mut self, message: &M) -> &mut Ready {
        if message.parts() > 0 { &mut self.large } else { &mut self.small }
    }

    /// Opens what may be opened, in the order of submission.
    fn open_transfers(&mut self) {
        while self.transfers.len() < self.limits.max_transfers.max(1) {
            // Scarce credit goes to whoever came first, or one kind could starve the other.
            let small = &self.small.calls;
            let credit = self.has_credit()
                && (self.calls_available() > small.len() as u64 || self.large.calls.first() < small.first());
            let Some(number) = self.large.first(credit) else { return };
            let Some(queued) = self.queue.get(&number) else { return };
            let bytes = queued.message.bytes();
            let together = self.transfers.bytes().saturating_add(bytes);
            if self.transfers.len() > 0 && together > self.limits.transfer_budget {
                return;
            }
            self.calls_reserved += u64::from(!queued.message.is_reply());
            self.large.set_for(&queued.message).remove(&number);
            if self.transfers.len() == 0 {
                self.small_run = 0;
            }
            self.transfers.open(number, bytes);
        }
    }

    fn emit_finished(&mut self, number: Number, transfer: u32, room: usize) -> Option<Emit<'_, M>> {
        if own_frame(&self.queue.get(&number)?.message) > room {
            return None;
        }
        self.transfers.close_finished();
        let message = self.remove(number)?;
        self.calls_reserved -= u64::from(!message.is_reply());
        self.spend(&message);
        Some(Emit::Message { message, transfer })
    }

    fn emit_express(&mut self, room: usize) -> Option<Emit<'_, M>> {
        let bytes = self.express.front()?.1.bytes();
        if bytes > room {
            return None;
        }
        let (_, message) = self.express.pop_front()?;
        self.bytes -= bytes;
        self.spend(&message);
        Some(Emit::Message { message, transfer: 0 })
    }

    fn emit_small(&mut self, number: Number, room: usize) -> Option<Emit<'_, M>> {
        let bytes = self.queue.get(&number)?.message.bytes();
        if bytes > room {
            return None;
        }
        if self.transfers.len() > 0 {
            self.small_run = self.small_run.saturating_add(bytes);
        }
        let message = self.remove(number)?;
        self.spend(&message);
        Some(Emit::Message { message, transfer: 0 })
    }

    fn emit_chunk(&mut self, room: usize) -> Option<Emit<'_, M>> {
        let front = self.transfers.front()?;
        let (number, transfer) = (front.number, front.id);
        let message = &self.queue.get(&number)?.message;
        let piece = front.piece(message, self.limits.chunk_size);
        if piece.len.saturating_add(self.limits.chunk_overhead) > room {
            return None;
        }
        self.small_run = 0;
        self.transfers.emitted(message, piece);
        let Piece { part, offset, len } = piece;
        Some(Emit::Chunk { transfer, part, offset, len, message })
    }

    /// Takes a message out of the queue and its lines; those it held up become ready.
    fn remove(&mut self, number: Number) -> Option<M> {
        let Queued { message, .. } = self.queue.remove(&number)?;
        self.bytes -= message.bytes();
        self.ready_for(&message).set_for(&message).remove(&number);
        let (queue, small, large) = (&mut self.queue, &mut self.small, &mut self.large);
        self.lines.leave(number, &message, |head| {
            let Some(queued) = queue.get_mut(&head) else { return };
            queued.behind -= 1;
            if queued.behind == 0 {
                let ready = if queued.message.parts() > 0 { &mut *large } else { &mut *small };
                ready.set_for(&queued.message).insert(head);
            }
        });
        Some(message)
    }
}

fn creation<M: Message>(message: &M) -> bool {
    !message.is_reply() && message.creates().is_some()
}

/// What a large message's own frame weighs: all but its chunked parts.
fn own_frame<M: Message>(message: &M) -> usize {
    let chunked = (0..message.parts()).fold(0usize, |sum, part| sum.saturating_add(message.part_len(part)));
    message.bytes().saturating_sub(chunked)
}
