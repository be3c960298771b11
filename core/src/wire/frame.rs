//! What a frame says, as plain types. How it looks on the wire is `codec`'s business.

use super::dtype::{DType, Storage};
pub use crate::lifetime::Digest;
use crate::{NodeUid, ObjectId, Seq, Stamp};
use bytes::Bytes;

/// A frame together with the lane position stamped on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamped {
    /// Position in the sender's lane; 0 for frames outside the sequence
    /// ([`Kind::in_sequence`](super::Kind::in_sequence)).
    pub seq: Seq,
    /// Every frame of the receiver's lane up to here has been processed by the sender.
    pub ack: Seq,
    /// Every introduction in the receiver's lane up to here is settled.
    pub settled: Seq,
    /// What it says.
    pub frame: Frame,
}

/// Everything one node says to another after the handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Gives a path an index, before its first use in a session.
    Name(Name),
    /// Tells where a third node can be found, before the first handle of an object it owns.
    Peer(PeerInfo),
    /// Makes an object at the receiver; is itself the creator's claim.
    Create(Create),
    /// Asks for a reply.
    Call(Call),
    /// A call without a reply (`call_id` 0).
    Cast(Call),
    /// Answers a call.
    Reply(Reply),
    /// One element of a streaming reply.
    Item(Reply),
    /// The end of a streaming reply.
    End(Reply),
    /// The caller no longer waits: a call that has not started need not run.
    Cancel {
        /// The call, as its caller numbered it.
        call_id: u64,
    },
    /// The sender holds these objects of the receiver.
    Claim(Vec<ObjectId>),
    /// The sender holds these objects no longer, unless the receiver introduced them after `Stamp`.
    Release(Vec<(ObjectId, Stamp)>),
    /// These objects of the sender do not exist.
    Gone(Vec<(ObjectId, GoneReason)>),
    /// One piece of a message too large for one frame.
    Chunk(Chunk),
    /// How much the receiver may have sent in this session in all. Neither limit ever decreases.
    Credit {
        /// Calls, casts and creations.
        calls: u64,
        /// Bytes of their bodies and segments.
        bytes: u64,
    },
    /// The sender is going away.
    Leave(LeaveStage),
    /// The caller takes so many more elements of a streaming reply.
    More {
        /// The call, as its caller numbered it.
        call_id: u64,
        /// How many more, on top of those granted before ([`STREAM_CREDIT`] at first).
        items: u64,
    },
    /// Acknowledges outside the sequence, when the lane has nothing else to say.
    Ack(Ack),
    /// What the sender holds of the receiver's follows.
    InventoryBegin {
        /// The next object that the sender will ask the receiver for, not 0: every lower number has been
        /// sent, or never will be.
        next_create: u64,
        /// The sender has seen every introduction of the receiver's up to here.
        seen: Stamp,
    },
    /// Objects of the receiver that the sender holds, between begin and end.
    InventoryItems(Vec<ObjectId>),
    /// Everything the sender holds of the receiver's has been named.
    InventoryEnd,
    /// Renews the sender's lease; on a keeper's connection only.
    Heartbeat(Heartbeat),
    /// Says that a heartbeat has arrived; on a keeper's connection only.
    HeartbeatEcho(HeartbeatEcho),
}

/// Elements of a streaming reply that its caller takes before it has sent any [`Frame::More`].
pub const STREAM_CREDIT: u64 = 32;

/// What a [`Name`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NameKind {
    /// A registered function.
    Function = 1,
    /// A message of an object.
    Message = 2,
    /// A function that runs against an object where it lives.
    Method = 3,
    /// A type that can be fetched.
    Type = 4,
}

/// Binds `index` to a path for the rest of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// Chosen by the sender, contiguous from 1.
    pub index: u32,
    /// What it names.
    pub kind: NameKind,
    /// Path of the item, at most [`super::Limits::path`] bytes.
    pub path: String,
    /// Identity of its argument and result types.
    pub schema: u128,
}

/// A node that the sender knows.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerInfo {
    /// Its identity.
    pub uid: NodeUid,
    /// Its name in the cluster.
    pub name: String,
    /// Where it can be reached, best first.
    pub addresses: Vec<String>,
}

/// Where a new object comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// The result of a registered function.
    Function {
        /// Index of its [`Name`].
        name: u32,
    },
    /// The result of a message to an object of the receiver.
    Message {
        /// The object that handles the message.
        object: ObjectId,
        /// Index of the message's [`Name`].
        name: u32,
    },
    /// A copy of the value in the body.
    Copy {
        /// Index of the type's [`Name`].
        name: u32,
    },
}

/// Makes one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// The object's number; contiguous per (creator, owner).
    pub create_no: u64,
    /// How it is made.
    pub source: Source,
    /// Trace context.
    pub trace: Trace,
    /// Arguments.
    pub payload: Payload,
}

/// What a call asks of its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Run a registered function.
    Function {
        /// Index of its [`Name`].
        name: u32,
    },
    /// Give a message to an object.
    Message {
        /// The receiving object.
        object: ObjectId,
        /// Index of the message's [`Name`].
        name: u32,
    },
    /// Run a method against an object.
    Method {
        /// The object it runs against.
        object: ObjectId,
        /// Index of the method's [`Name`].
        name: u32,
    },
    /// Bring a snapshot of an object.
    Fetch {
        /// The object.
        object: ObjectId,
        /// Index of the type's [`Name`].
        name: u32,
    },
    /// Answer once the object exists, or say why it does not.
    Ready {
        /// The object.
        object: ObjectId,
    },
    /// Answer once everything asked of the object before has been handled.
    Flush {
        /// The object.
        object: ObjectId,
    },
    /// Answer once the object does not exist any more, and say why.
    Ended {
        /// The object.
        object: ObjectId,
    },
}

/// A call or a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The caller's number for it, not 0; 0 in a cast.
    pub call_id: u64,
    /// What is asked.
    pub target: Target,
    /// Milliseconds the caller is prepared to wait, counted from arrival; `u64::MAX` for no limit.
    pub timeout_ms: u64,
    /// Trace context.
    pub trace: Trace,
    /// Arguments.
    pub payload: Payload,
}

/// Whether a call succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The body is the result.
    Ok = 0,
    /// The body says what went wrong.
    Failed = 1,
}

/// Answers a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The call it answers.
    pub call_id: u64,
    /// How it ended.
    pub status: Status,
    /// Result or error.
    pub payload: Payload,
}

/// The trace a call belongs to; zeros when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Identity of the whole trace.
    pub trace_id: u128,
    /// The caller's span.
    pub span_id: u64,
}

/// What a message carries: handles, a postcard body, and tensors beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Payload {
    /// Reference table: the body holds indices into it.
    pub refs: Vec<ObjectId>,
    /// The message itself.
    pub body: Body,
    /// Tensor data: the body holds indices into it.
    pub segments: Vec<Segment>,
    /// The transfer whose chunks carry the parts marked [`Body::Chunked`] and
    /// [`SegmentData::Chunked`]; 0 for none.
    pub transfer: u32,
}

/// A message's body: in its own frame, or in chunks before it.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// In the frame.
    Inline(Bytes),
    /// Part 0 of the payload's transfer.
    Chunked,
}

impl Default for Body {
    fn default() -> Self {
        Body::Inline(Bytes::new())
    }
}

/// One tensor's data, C order, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Element type.
    pub dtype: DType,
    /// Length of each axis; at most [`super::Limits::ndim`] of them.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: SegmentData,
}

/// Where a segment's elements are.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentData {
    /// In the frame, as bytes.
    Inline(Bytes),
    /// Part `i + 1` of the payload's transfer, `i` being the segment's index.
    Chunked,
    /// Assembled from chunks into storage of its element type.
    Typed(Storage),
}

/// One piece of a part of a transfer. Pieces of a part arrive in order, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// The sender's number for the transfer, not 0.
    pub transfer: u32,
    /// 0 for the body, `i + 1` for segment `i`.
    pub part: u16,
    /// Element type of the part (`U8` for the body).
    pub dtype: DType,
    /// Bytes of the whole part.
    pub total: u64,
    /// The piece. Its length is a multiple of the element size.
    pub bytes: Bytes,
}

/// How far a leaving node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LeaveStage {
    /// It takes no new work.
    Draining = 1,
    /// It sends nothing more.
    Leaving = 2,
}

/// Acknowledges outside the sequence. `ack` and `settled` are in the header.
#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    /// The session it speaks of; another session's is dropped.
    pub session_no: u32,
    /// The last position the sender had assigned: it counts once all up to here is processed.
    pub at: Seq,
    /// Owners to whose objects `settled` does not apply.
    pub exceptions: Vec<NodeUid>,
}

/// What one node says to another at a fixed rate, whatever else happens: see [`crate::lease`].
///
/// All but `nonce` is what the node's main loop last published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The sender.
    pub uid: NodeUid,
    /// The session it speaks of; another session's renews nothing. 0 while there is none.
    pub session_no: u32,
    /// The sender's number for this heartbeat, not 0.
    pub nonce: u64,
    /// The sender's newest question whether everybody is clear; 0 before the first.
    pub asks: u64,
    /// The receiver's newest question after which the sender has been clear; 0 if none.
    pub clear: u64,
    /// What the receiver is listed for at the sender ...
    pub listed: Digest,
    /// ... once everything up to here in the receiver's lane had been processed ...
    pub ack: Seq,
    /// ... and everything up to here in the sender's had been said.
    pub at: Seq,
}

/// Says that a heartbeat has arrived, and that its session is the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeartbeatEcho {
    /// The sender of the echo.
    pub uid: NodeUid,
    /// The session it speaks of.
    pub session_no: u32,
    /// The heartbeat's number, not 0.
    pub nonce: u64,
}

/// Why an object does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GoneReason {
    /// Its last holder let go.
    Freed,
    /// Its creation was lost with the session that carried it.
    NeverCreated,
    /// Its creator crashed before asking for it.
    CreatorDied,
    /// The owner gave up on this holder's lease and freed it.
    LeaseExpired,
    /// Somebody stopped it.
    Stopped,
    /// Its constructor failed, with this cause.
    CreateFailed(String),
    /// Its handler panicked, with this text.
    Died(String),
    /// Its owner was out of reach for longer than any lease: the holder's own verdict.
    Unreachable,
}
