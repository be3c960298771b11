//! The layout of a frame, its header, and what can be wrong with either.
//!
//! All integers are little-endian; offsets count from the frame's first byte. The header has 48 bytes:
//!
//! ```text
//!        0       1       2       3       4       5       6       7
//!    +-------+-------+-------+-------+-------+-------+-------+-------+
//!  0 |            length             | kind  | flags |     refs      |
//!    +-------+-------+-------+-------+-------+-------+-------+-------+
//!  8 |                              seq                              |
//!    +---------------------------------------------------------------+
//! 16 |                              ack                              |
//!    +---------------------------------------------------------------+
//! 24 |                            settled                            |
//!    +-------------------------------+---------------+---------------+
//! 32 |             body              |   segments    |       0       |
//!    +-------------------------------+---------------+---------------+
//! 40 |           transfer            |               0               |
//!    +-------------------------------+-------------------------------+
//! ```
//!
//! - `length`: the whole frame, header included;
//! - `flags`: bit 0, the body comes in chunks; the other bits are 0;
//! - `refs`: entries of the reference table;
//! - `seq`, `ack`, `settled`: see [`Stamped`](super::Stamped); `seq` is 0 in an Ack, a Heartbeat and its echo,
//!   and nowhere else;
//! - `body`: bytes of the body, or of the chunk;
//! - `segments`: number of segment descriptors;
//! - `transfer`: the transfer of the parts that come in chunks; 0 for none.
//!
//! Then, without gaps:
//!
//! ```text
//! reference table   refs x { owner u128, creator u128, create_no u64 }
//! fields            by kind, see below
//! descriptors       segments x { dtype u8, ndim u8, flags u8, 0 u8, 0 u32, ndim x dim u64 }
//! body              body bytes
//! segments          for each inline one: zeros up to a multiple of 64, then its bytes
//! ```
//!
//! Bit 0 of a descriptor's flags says that the segment comes in chunks. Claim, Release, Gone and an
//! inventory's Items keep their objects in the reference table; the kinds without a payload have `body`,
//! `segments`, `transfer` and, but for those four, `refs` 0.
//!
//! ```text
//!  1 Name     index u32, kind u8, 0 u8, path length u16, schema u128, path
//!  2 Peer     uid u128, addresses u16, name length u16, name, addresses x { length u16, text }
//!  3 Create   create_no u64, trace id u128, span id u64, source u8, 0 u24, name u32, [object]
//!  4 Call     call_id u64, timeout_ms u64, trace id u128, span id u64, target u8, 0 u24, name u32, [object]
//!  5 Cast     as Call, with call_id 0
//!  6 Reply    call_id u64, status u8, 0 u56
//!  7 Item     as Reply
//!  8 End      as Reply
//!  9 Cancel   call_id u64
//! 10 Claim
//! 11 Release  refs x { session_no u32, seq u64 }
//! 12 Gone     refs x { reason u8, 0 u8, length u16, text }
//! 13 Chunk    part u16, dtype u8, 0 u40, total u64; then the bytes, at 64
//! 14 Credit   calls u64, bytes u64
//! 15 Leave    stage u8, 0 u56
//! 16 Ack      session_no u32, exceptions u32, at u64, exceptions x uid u128
//! 17 More     call_id u64, items u64
//! 18 Begin    next_create u64, session_no u32, 0 u32, seq u64            (of an inventory)
//! 19 Items
//! 20 End      nothing
//! 21 Beat     uid u128, session_no u32, 0 u32, nonce u64, asks u64, clear u64, count u64, hash u64,
//!             ack u64, at u64                                            (a heartbeat)
//! 22 Echo     uid u128, session_no u32, 0 u32, nonce u64
//!
//! source  1 function, 2 message (with object), 3 copy
//! target  1 function, 2 message, 3 method, 4 fetch, 5 ready, 6 flush, 7 ended (these three
//!         with name 0); all but 1 with object
//! reason  1 freed, 2 never created, 3 creator died, 4 lease expired, 5 stopped, 6 create failed, 7 died,
//!         8 unreachable; text in 6 and 7 alone
//! ```
//!
//! An encoding is canonical: one frame, one sequence of bytes. So a decoder refuses what an encoder
//! would not have written, down to a padding byte that is not zero.

use super::Limits;
use super::cursor::Reader;
use super::frame::Frame;
use super::storage::StorageError;
use crate::Seq;

/// The version of the layout that this crate speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bytes of a frame's header.
pub const HEADER: usize = 48;

/// Segment and chunk bytes start at multiples of this, from the frame's start.
pub(super) const ALIGN: usize = 64;

/// In the header's and a descriptor's flags: comes in chunks.
pub(super) const CHUNKED: u8 = 1;

/// Bytes of a segment descriptor without its dims.
pub(super) const DESCRIPTOR: usize = 8;

/// Zeros needed at `at` to reach a multiple of [`ALIGN`].
pub(super) fn padding(at: usize) -> usize {
    at.wrapping_neg() % ALIGN
}

/// What kind of frame it is; the number is its code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`Frame::Name`]
    Name = 1,
    /// [`Frame::Peer`]
    Peer = 2,
    /// [`Frame::Create`]
    Create = 3,
    /// [`Frame::Call`]
    Call = 4,
    /// [`Frame::Cast`]
    Cast = 5,
    /// [`Frame::Reply`]
    Reply = 6,
    /// [`Frame::Item`]
    Item = 7,
    /// [`Frame::End`]
    End = 8,
    /// [`Frame::Cancel`]
    Cancel = 9,
    /// [`Frame::Claim`]
    Claim = 10,
    /// [`Frame::Release`]
    Release = 11,
    /// [`Frame::Gone`]
    Gone = 12,
    /// [`Frame::Chunk`]
    Chunk = 13,
    /// [`Frame::Credit`]
    Credit = 14,
    /// [`Frame::Leave`]
    Leave = 15,
    /// [`Frame::Ack`]
    Ack = 16,
    /// [`Frame::More`]
    More = 17,
    /// [`Frame::InventoryBegin`]
    InventoryBegin = 18,
    /// [`Frame::InventoryItems`]
    InventoryItems = 19,
    /// [`Frame::InventoryEnd`]
    InventoryEnd = 20,
    /// [`Frame::Heartbeat`]
    Heartbeat = 21,
    /// [`Frame::HeartbeatEcho`]
    HeartbeatEcho = 22,
}

impl Kind {
    /// Every kind, in the order of the codes, which count from 1 without gaps.
    pub const ALL: [Kind; 22] = [
        Kind::Name,
        Kind::Peer,
        Kind::Create,
        Kind::Call,
        Kind::Cast,
        Kind::Reply,
        Kind::Item,
        Kind::End,
        Kind::Cancel,
        Kind::Claim,
        Kind::Release,
        Kind::Gone,
        Kind::Chunk,
        Kind::Credit,
        Kind::Leave,
        Kind::Ack,
        Kind::More,
        Kind::InventoryBegin,
        Kind::InventoryItems,
        Kind::InventoryEnd,
        Kind::Heartbeat,
        Kind::HeartbeatEcho,
    ];

    /// The kind with this code; none for codes that are not given out.
    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The kind of a frame.
    pub fn of(frame: &Frame) -> Kind {
        match frame {
            Frame::Name(_) => Kind::Name,
            Frame::Peer(_) => Kind::Peer,
            Frame::Create(_) => Kind::Create,
            Frame::Call(_) => Kind::Call,
            Frame::Cast(_) => Kind::Cast,
            Frame::Reply(_) => Kind::Reply,
            Frame::Item(_) => Kind::Item,
            Frame::End(_) => Kind::End,
            Frame::Cancel { .. } => Kind::Cancel,
            Frame::Claim(_) => Kind::Claim,
            Frame::Release(_) => Kind::Release,
            Frame::Gone(_) => Kind::Gone,
            Frame::Chunk(_) => Kind::Chunk,
            Frame::Credit { .. } => Kind::Credit,
            Frame::Leave(_) => Kind::Leave,
            Frame::Ack(_) => Kind::Ack,
            Frame::More { .. } => Kind::More,
            Frame::InventoryBegin { .. } => Kind::InventoryBegin,
            Frame::InventoryItems(_) => Kind::InventoryItems,
            Frame::InventoryEnd => Kind::InventoryEnd,
            Frame::Heartbeat(_) => Kind::Heartbeat,
            Frame::HeartbeatEcho(_) => Kind::HeartbeatEcho,
        }
    }

    /// Whether it has a position in its lane. The others have 0.
    pub fn in_sequence(self) -> bool {
        !matches!(self, Kind::Ack | Kind::Heartbeat | Kind::HeartbeatEcho)
    }

    /// Whether its reference table is what it says, not something that goes with it.
    pub(super) fn has_objects(self) -> bool {
        matches!(self, Kind::Claim | Kind::Release | Kind::Gone | Kind::InventoryItems)
    }

    /// Whether it keeps the protocol going and carries nothing of the user's: [`Limits::control`]
    /// applies.
    pub fn is_control(self) -> bool {
        !self.has_payload() && self != Kind::Chunk
    }

    /// Whether it carries a [`Payload`](super::Payload).
    pub fn has_payload(self) -> bool {
        matches!(self, Kind::Create | Kind::Call | Kind::Cast | Kind::Reply | Kind::Item | Kind::End)
    }

    /// Largest frame of this kind, in bytes.
    pub fn cap(self, limits: &Limits) -> usize {
        if self.is_control() { limits.control.min(limits.frame) } else { limits.frame }
    }
}

/// Why a frame or a Hello cannot be written. It is the sender's own mistake: nothing has been sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Something is larger than its limit, in bytes or in number.
    #[error("{what}: {size} is more than the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// A value that the receiver would refuse.
    #[error("{what} cannot be sent")]
    Invalid {
        /// What is wrong.
        what: &'static str,
    },
    /// A segment's bytes are not what its shape says.
    #[error("segment {segment} does not have the bytes of its shape")]
    Shape {
        /// Index of the segment.
        segment: usize,
    },
}

/// Why bytes from a peer make no sense. The session they came in has to be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Does not start as a Hello does.
    #[error("not an rref handshake")]
    Magic,
    /// The frame's length leaves no room for its header.
    #[error("frame of {0} bytes is shorter than its header")]
    Short(u32),
    /// The frame's length is not the number of bytes that are there.
    #[error("frame of {said} bytes has {got}")]
    Length {
        /// The length in the header.
        said: u64,
        /// The bytes given to the decoder.
        got: u64,
    },
    /// Something is larger than its limit, in bytes or in number.
    #[error("{what}: {size} is more than the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The end comes too early.
    #[error("ends within: {what}")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// A kind of frame that does not exist.
    #[error("no kind of frame has the code {0}")]
    Kind(u8),
    /// A value that is not allowed where it stands.
    #[error("{what} cannot be {value}")]
    Value {
        /// What has the value.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// Bytes that have to be zero are not.
    #[error("reserved bytes are not zero: {what}")]
    Reserved {
        /// Where they are.
        what: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("{what} is not UTF-8")]
    Utf8 {
        /// Which text.
        what: &'static str,
    },
    /// Something follows the end.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The shape of a segment is larger than any memory.
    #[error("shape of segment {segment} overflows")]
    Shape {
        /// Index of the segment.
        segment: usize,
    },
    /// Elements that cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A chunked message does not hold together.
    #[error("transfer {transfer}, part {part}: {what}")]
    Transfer {
        /// The transfer.
        transfer: u32,
        /// The part: 0 for the body, `i + 1` for segment `i`.
        part: u16,
        /// What is wrong.
        what: &'static str,
    },
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Bytes of the whole frame.
    pub len: u32,
    /// What kind of frame it is.
    pub kind: Kind,
    /// See [`Stamped::seq`](super::Stamped::seq).
    pub seq: Seq,
    /// See [`Stamped::ack`](super::Stamped::ack).
    pub ack: Seq,
    /// See [`Stamped::settled`](super::Stamped::settled).
    pub settled: Seq,
    pub(super) body_chunked: bool,
    pub(super) refs: u16,
    pub(super) body: u32,
    pub(super) segments: u16,
    pub(super) transfer: u32,
}

/// Length in bytes of the frame that `buf` starts with, or `None` while it cannot be known.
///
/// Five bytes suffice. A length that is too small for a header, or above the cap for its kind, is an
/// error at once, before the caller makes room for it.
pub fn frame_len(buf: &[u8], limits: &Limits) -> Result<Option<usize>, DecodeError> {
    let Some(len) = buf.first_chunk::<4>().map(|len| u32::from_le_bytes(*len)) else {
        return Ok(None);
    };
    if (len as usize) < HEADER {
        return Err(DecodeError::Short(len));
    }
    check_cap(len, limits.frame)?;
    let Some(code) = buf.get(4) else {
        return Ok(None);
    };
    let kind = Kind::from_code(*code).ok_or(DecodeError::Kind(*code))?;
    check_cap(len, kind.cap(limits))?;
    Ok(Some(len as usize))
}

fn check_cap(len: u32, cap: usize) -> Result<(), DecodeError> {
    super::cursor::at_most(len as usize, cap, "frame")
}

/// Reads the header that `buf` starts with.
///
/// Cheap, and checks only what can be seen in the header alone; sizes are not compared with any limit.
pub fn header(buf: &[u8]) -> Result<Header, DecodeError> {
    const WHAT: &str = "header";
    let mut r = Reader::new(buf, 0);
    let len = r.u32(WHAT)?;
    let code = r.u8(WHAT)?;
    let kind = Kind::from_code(code).ok_or(DecodeError::Kind(code))?;
    let flags = r.u8(WHAT)?;
    let refs = r.u16(WHAT)?;
    let seq = r.u64(WHAT)?;
    let ack = r.u64(WHAT)?;
    let settled = r.u64(WHAT)?;
    let body = r.u32(WHAT)?;
    let segments = r.u16(WHAT)?;
    r.zeros(2, WHAT)?;
    let transfer = r.u32(WHAT)?;
    r.zeros(4, WHAT)?;
    if flags & !CHUNKED != 0 {
        return Err(DecodeError::Reserved { what: "flags" });
    }
    if (seq == 0) == kind.in_sequence() {
        return Err(DecodeError::Value { what: "seq", value: seq });
    }
    let body_chunked = flags & CHUNKED != 0;
    Ok(Header { len, kind, seq, ack, settled, body_chunked, refs, body, segments, transfer })
}
