//! Which message has to wait for which: lines that are served from their head.
//!
//! A message stands in at most three lines and may go when it heads all of them. Knows submission
//! numbers; must not know sizes or credit.

use crate::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

/// What ordering and scheduling need to know of a message. Answers must not change while it is queued.
pub trait Message {
    /// The object it is addressed to: messages with the same key keep their order. Ignored in a reply.
    fn key(&self) -> Option<ObjectId>;

    /// The object it creates. Creations keep their order, and messages keyed by the new object wait
    /// behind its creation. Ignored in a reply.
    fn creates(&self) -> Option<ObjectId>;

    /// Whether it answers a call: it needs no call credit and keeps no order but that of its stream.
    fn is_reply(&self) -> bool;

    /// The call whose streaming reply it is a part of: those parts keep their order. Only asked of a
    /// reply.
    fn stream(&self) -> Option<u64> {
        None
    }

    /// Bytes of everything: at least what its own frame weighs in the lane, plus all chunked parts.
    fn bytes(&self) -> usize;

    /// Bytes of call credit it takes, as its receiver counts them: those of its body and segments.
    /// Ignored in a reply.
    fn credit_bytes(&self) -> u64;

    /// Number of parts that travel in chunks, at most 65,536; 0 if all is in the message's own frame.
    fn parts(&self) -> usize;

    /// Bytes of a chunked part.
    fn part_len(&self, part: usize) -> usize;

    /// Bytes of one element of a chunked part; chunks hold whole elements.
    fn element_size(&self, part: usize) -> usize;
}

/// The position of a message in the order of submission.
pub(super) type Number = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Line {
    /// All creations: their numbers are contiguous, so they arrive in order.
    Creations,
    Object(ObjectId),
    Stream(u64),
}

/// The lines a message stands in, each once.
fn lines_of<M: Message>(message: &M) -> impl Iterator<Item = Line> + use<M> {
    let lines = if message.is_reply() {
        [message.stream().map(Line::Stream), None, None]
    } else {
        let (key, created) = (message.key(), message.creates());
        [
            key.map(Line::Object),
            created.filter(|_| created != key).map(Line::Object),
            created.map(|_| Line::Creations),
        ]
    };
    lines.into_iter().flatten()
}

/// All lines with somebody in them. Each is sorted by number, which is the order of joining.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lines(BTreeMap<Line, BTreeSet<Number>>);

impl Lines {
    /// Puts a message, the latest of all, in its lines. Returns in how many it is not the head.
    pub(super) fn join<M: Message>(&mut self, number: Number, message: &M) -> u8 {
        let mut behind = 0;
        for line in lines_of(message) {
            let members = self.0.entry(line).or_default();
            behind += u8::from(!members.is_empty());
            members.insert(number);
        }
        behind
    }

    /// Takes a message out of its lines. Calls `promoted` for each line that has a new head.
    pub(super) fn leave<M: Message>(
        &mut self,
        number: Number,
        message: &M,
        mut promoted: impl FnMut(Number),
    ) {
        for line in lines_of(message) {
            let Some(members) = self.0.get_mut(&line) else { continue };
            let was_head = members.first() == Some(&number);
            members.remove(&number);
            match members.first() {
                Some(&head) if was_head => promoted(head),
                Some(_) => {}
                None => drop(self.0.remove(&line)),
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
