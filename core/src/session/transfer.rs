//! Large messages on their way: cut into chunks, taking turns.
//!
//! Knows how far each transfer has come; must not know why a message may be sent.

use super::order::{Message, Number};
use std::collections::VecDeque;

/// The next chunk of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) part: u16,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A message some of whose chunks may have gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transfer {
    pub(super) number: Number,
    /// Its number on the wire, not 0.
    pub(super) id: u32,
    /// Bytes it takes from the budget.
    pub(super) bytes: usize,
    part: usize,
    offset: usize,
}

impl Transfer {
    /// The next piece, of about `chunk_size` bytes in whole elements, at least one.
    ///
    /// A part without elements gets one empty chunk, so that the receiver hears of every part.
    pub(super) fn piece<M: Message>(&self, message: &M, chunk_size: usize) -> Piece {
        let element = message.element_size(self.part).max(1);
        let size = (chunk_size / element * element).max(element);
        let left = message.part_len(self.part).saturating_sub(self.offset);
        // `Message::parts` is bounded so that this never saturates.
        let part = u16::try_from(self.part).unwrap_or(u16::MAX);
        Piece { part, offset: self.offset, len: left.min(size) }
    }

    /// Notes that the piece has gone. Returns whether it was the last one.
    fn advance<M: Message>(&mut self, message: &M, piece: Piece) -> bool {
        self.offset += piece.len;
        if self.offset >= message.part_len(self.part) {
            self.part += 1;
            self.offset = 0;
        }
        self.part >= message.parts()
    }
}

/// The open transfers of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Transfers {
    /// The front one is next to emit a chunk.
    turn: VecDeque<Transfer>,
    /// All chunks have gone: its message is next, before anything else.
    finished: Option<Transfer>,
    bytes: usize,
    last_id: u32,
}

impl Transfers {
    pub(super) fn len(&self) -> usize {
        self.turn.len() + usize::from(self.finished.is_some())
    }

    /// Bytes of all open messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn open(&mut self, number: Number, bytes: usize) {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        self.bytes += bytes;
        self.turn.push_back(Transfer { number, id: self.last_id, bytes, part: 0, offset: 0 });
    }

    /// The transfer whose turn it is.
    pub(super) fn front(&self) -> Option<&Transfer> {
        self.turn.front()
    }

    /// The transfer that waits only for its own message's frame.
    pub(super) fn finished(&self) -> Option<&Transfer> {
        self.finished.as_ref()
    }

    /// The front transfer has emitted `piece`: the next one's turn.
    pub(super) fn emitted<M: Message>(&mut self, message: &M, piece: Piece) {
        let Some(mut transfer) = self.turn.pop_front() else { return };
        if transfer.advance(message, piece) {
            self.finished = Some(transfer);
        } else {
            self.turn.push_back(transfer);
        }
    }

    /// The finished transfer's message has gone.
    pub(super) fn close_finished(&mut self) {
        if let Some(transfer) = self.finished.take() {
            self.bytes -= transfer.bytes;
        }
    }

    /// Whether a message's transfer is open.
    pub(super) fn contains(&self, number: Number) -> bool {
        self.finished.iter().chain(&self.turn).any(|transfer| transfer.number == number)
    }

    /// The open messages.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> {
        self.turn.iter().chain(&self.finished).map(|transfer| transfer.number)
    }

    /// Forgets all transfers, but uses no number twice.
    pub(super) fn clear(&mut self) {
        self.turn.clear();
        self.finished = None;
        self.bytes = 0;
    }
}
