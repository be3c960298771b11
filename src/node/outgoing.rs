//! From a message to frames in a lane: the steps between `send` and the socket.
//!
//! A message waits in its peer's [`Outbound`](rref_core::session::Outbound) until the connection has
//! room for it. Only then does it get its place in the lane, and only then are its handles pinned.

use super::calls::Progress;
use super::names::NameRef;
use super::peer::Peer;
use super::state::{Lanes, State};
use crate::error::{Error, Result};
use crate::payload::{Outgoing, segment_bytes};
use bytes::Bytes;
use rref_core::session::{self, Class, Emit, Ticket};
use rref_core::wire::{
    Body, Call, Chunk, Create, DType, Encoded, Frame, HEADER, Limits, Name, Payload, PeerInfo, Reply,
    Segment, SegmentData, Source, Status, Target, Trace, encode,
};
use rref_core::{NodeUid, ObjectId, Seq, Stamp};
use std::sync::Arc;

/// Messages with more bytes than this go in chunks, so that small ones need not wait behind them.
const WHOLE: usize = 64 * 1024;

/// What a message asks for.
pub(crate) enum Ask {
    Create {
        id: ObjectId,
        source: MessageSource,
    },
    Call {
        call_id: u64,
        target: MessageTarget,
    },
    Reply {
        call_id: u64,
        status: Status,
    },
    /// The reply that starts a stream, an element of it, or its end.
    Stream {
        call_id: u64,
        part: StreamPart,
        status: Status,
    },
}

/// What of a stream a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPart {
    Start,
    Item,
    End,
}

/// Where a new object comes from, with names not yet turned into indices.
pub(crate) enum MessageSource {
    Function(Arc<NameRef>),
    Message(ObjectId, Arc<NameRef>),
    /// The value of the object whose handle is in the message.
    Copy(Arc<NameRef>),
}

impl MessageSource {
    /// What is called, for people.
    pub(crate) fn function(&self) -> &str {
        match self {
            MessageSource::Function(name) | MessageSource::Message(_, name) | MessageSource::Copy(name) => {
                &name.path
            }
        }
    }
}

/// What a call asks of its target, with names not yet turned into indices.
pub(crate) enum MessageTarget {
    Function(Arc<NameRef>),
    Message(ObjectId, Arc<NameRef>),
    Method(ObjectId, Arc<NameRef>),
    Fetch(ObjectId, Arc<NameRef>),
    Ready(ObjectId),
    Flush(ObjectId),
    Ended(ObjectId),
}

impl MessageTarget {
    fn object(&self) -> Option<ObjectId> {
        match self {
            MessageTarget::Function(_) => None,
            MessageTarget::Message(object, _)
            | MessageTarget::Method(object, _)
            | MessageTarget::Fetch(object, _)
            | MessageTarget::Ready(object)
            | MessageTarget::Flush(object)
            | MessageTarget::Ended(object) => Some(*object),
        }
    }

    /// What is called, for people.
    pub(crate) fn function(&self) -> &str {
        match self {
            MessageTarget::Function(name)
            | MessageTarget::Message(_, name)
            | MessageTarget::Method(_, name)
            | MessageTarget::Fetch(_, name) => &name.path,
            MessageTarget::Ready(_) => "ready",
            MessageTarget::Flush(_) => "flush",
            MessageTarget::Ended(_) => "watch",
        }
    }

    /// The caller's schema of what it calls.
    pub(crate) fn schema(&self) -> u128 {
        self.name().map_or(0, |name| name.schema)
    }

    fn name(&self) -> Option<&Arc<NameRef>> {
        match self {
            MessageTarget::Function(name)
            | MessageTarget::Message(_, name)
            | MessageTarget::Method(_, name)
            | MessageTarget::Fetch(_, name) => Some(name),
            MessageTarget::Ready(_) | MessageTarget::Flush(_) | MessageTarget::Ended(_) => None,
        }
    }
}

/// A message to another node that has no place in the lane yet.
pub(crate) struct Message {
    ask: Ask,
    payload: Outgoing,
    trace: Trace,
    /// Bytes of the body and the tensors, counted once.
    bytes: usize,
}

impl Message {
    pub(crate) fn new(ask: Ask, payload: Outgoing) -> Message {
        let bytes = payload.bytes();
        Message { ask, payload, trace: Trace::default(), bytes }
    }

    /// Says to which trace it belongs.
    pub(crate) fn traced(self, trace: Trace) -> Message {
        Message { trace, ..self }
    }

    pub(crate) fn reply(call_id: u64, status: Status, payload: Outgoing) -> Message {
        Message::new(Ask::Reply { call_id, status }, payload)
    }

    /// Starts a stream.
    pub(crate) fn stream_reply(call_id: u64, payload: Outgoing) -> Message {
        Message::new(Ask::Stream { call_id, part: StreamPart::Start, status: Status::Ok }, payload)
    }

    /// An element of a stream.
    pub(crate) fn item(call_id: u64, payload: Outgoing) -> Message {
        Message::new(Ask::Stream { call_id, part: StreamPart::Item, status: Status::Ok }, payload)
    }

    /// The end of a stream.
    pub(crate) fn end(call_id: u64, status: Status, payload: Outgoing) -> Message {
        Message::new(Ask::Stream { call_id, part: StreamPart::End, status }, payload)
    }

    /// The call it asks for; 0 for a cast, none for creations and replies.
    pub(crate) fn call_id(&self) -> Option<u64> {
        match self.ask {
            Ask::Call { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    /// The object it creates.
    pub(crate) fn creation(&self) -> Option<ObjectId> {
        match self.ask {
            Ask::Create { id, .. } => Some(id),
            _ => None,
        }
    }

    fn name(&self) -> Option<&Arc<NameRef>> {
        match &self.ask {
            Ask::Create {
                source:
                    MessageSource::Function(name) | MessageSource::Message(_, name) | MessageSource::Copy(name),
                ..
            } => Some(name),
            Ask::Call { target, .. } => target.name(),
            Ask::Reply { .. } | Ask::Stream { .. } => None,
        }
    }

    fn is_large(&self) -> bool {
        self.bytes > WHOLE
    }

    /// Whether the body is large enough to be worth a part of its own.
    fn body_in_chunks(&self) -> bool {
        self.is_large() && self.payload.body.len() > WHOLE / 2
    }

    fn part(&self, part: usize) -> Bytes {
        match part.checked_sub(1) {
            None if self.body_in_chunks() => self.payload.body.clone(),
            None => Bytes::new(),
            Some(index) => match self.payload.segments.get(index).map(|segment| &segment.data) {
                Some(SegmentData::Inline(bytes)) => bytes.clone(),
                _ => Bytes::new(),
            },
        }
    }

    fn part_dtype(&self, part: usize) -> DType {
        part.checked_sub(1)
            .and_then(|index| self.payload.segments.get(index))
            .map_or(DType::U8, |segment| segment.dtype)
    }
}

impl session::Message for Message {
    fn key(&self) -> Option<ObjectId> {
        match &self.ask {
            Ask::Create { source: MessageSource::Message(object, _), .. } => Some(*object),
            Ask::Create { .. } | Ask::Reply { .. } | Ask::Stream { .. } => None,
            Ask::Call { target, .. } => target.object(),
        }
    }

    fn creates(&self) -> Option<ObjectId> {
        self.creation()
    }

    fn is_reply(&self) -> bool {
        matches!(self.ask, Ask::Reply { .. } | Ask::Stream { .. })
    }

    fn stream(&self) -> Option<u64> {
        match self.ask {
            Ask::Stream { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        // Header, fixed fields and, for each segment, its descriptor and its alignment.
        let overhead = HEADER + 128 + self.payload.refs.len() * 40 + self.payload.segments.len() * 136;
        self.bytes + overhead
    }

    fn credit_bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn parts(&self) -> usize {
        if self.is_large() { self.payload.segments.len() + 1 } else { 0 }
    }

    fn part_len(&self, part: usize) -> usize {
        match part.checked_sub(1) {
            None if self.body_in_chunks() => self.payload.body.len(),
            None => 0,
            Some(index) => self.payload.segments.get(index).map_or(0, segment_bytes),
        }
    }

    fn element_size(&self, part: usize) -> usize {
        self.part_dtype(part).size()
    }
}

/// What [`State::fill`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// A frame was put into the lane.
    Something,
    /// There is nothing to send, or no room.
    Nothing,
}

impl State {
    /// Queues a message for `to` and sees to it that somebody sends it; none if it is dropped,
    /// because the peer is gone.
    pub(crate) fn submit(&mut self, to: NodeUid, message: Message) -> Option<Ticket> {
        match self.peers.get_mut(&to).filter(|peer| peer.takes_messages()) {
            Some(peer) => {
                let ticket = peer.outbound.submit(message);
                self.wake(to);
                Some(ticket)
            }
            None => {
                self.later(message);
                None
            }
        }
    }

    /// Nobody waits for this call any more: it is taken back, or its owner is told.
    pub(crate) fn cancel_call(&mut self, call_id: u64) {
        let Some(call) = self.calls.remove(&call_id) else { return };
        let (owner, progress) = (call.owner, call.progress);
        // Dropping its sender wakes whoever polled the request: that may be any code.
        self.later(call);
        let Some(peer) = self.peers.get_mut(&owner) else { return };
        match progress {
            Progress::Queued(ticket) => {
                let withdrawn = peer.outbound.withdraw(ticket);
                self.later(withdrawn);
            }
            Progress::Sequenced(_) => {
                if peer.takes_messages() && peer.push(Class::Control, &Frame::Cancel { call_id }).is_ok() {
                    self.wake(owner);
                }
            }
        }
    }

    /// Moves the next message, or piece of one, from `to`'s queue into its lane.
    pub(crate) fn fill(&mut self, to: NodeUid) -> Filled {
        let Some(peer) = self.peers.get_mut(&to) else { return Filled::Nothing };
        let room = peer.lane.room();
        let (message, transfer) = match peer.outbound.next(room) {
            None => return Filled::Nothing,
            Some(Emit::Message { message, transfer }) => (message, transfer),
            Some(Emit::Chunk { transfer, part, offset, len, message }) => {
                let total = session::Message::part_len(message, part.into());
                // An empty part needs no chunk: its segment says that it is empty.
                if total == 0 {
                    return Filled::Something;
                }
                let frame = Frame::Chunk(Chunk {
                    transfer,
                    part,
                    dtype: message.part_dtype(part.into()),
                    total: total as u64,
                    bytes: message.part(part.into()).slice(offset..offset + len),
                });
                if let Err(error) = peer.push(Class::User, &frame) {
                    self.fail_session(to, format!("cannot encode a chunk: {error}"));
                }
                return Filled::Something;
            }
        };
        if let Err(error) = self.sequence(to, message, transfer) {
            self.fail_session(to, error.to_string());
        }
        Filled::Something
    }

    /// Gives a message its place in the lane, with everything that must precede it.
    fn sequence(&mut self, to: NodeUid, message: Message, transfer: u32) -> Result<()> {
        let me = self.lifetime.me();
        self.lifetime.flush(to, &mut Lanes { peers: &mut self.peers });
        let name = match self.introduce(to, &message) {
            Ok(name) => name,
            Err(error) => {
                self.later(message);
                return Err(error);
            }
        };
        let Some(peer) = self.peers.get_mut(&to) else { return Ok(()) };
        let at = Stamp { session_no: peer.lane.session_no(), seq: peer.lane.next_seq() };
        let refs: Vec<ObjectId> = message.payload.refs.iter().map(|handle| handle.id()).collect();
        self.lifetime.introduce(&refs, to, at);
        let large = message.is_large();
        let body_in_chunks = message.body_in_chunks();
        let Message { ask, payload, trace, .. } = message;
        let Outgoing { refs: guard, body, segments, creates, target: addressee } = payload;
        let payload = Payload {
            refs,
            body: if body_in_chunks { Body::Chunked } else { Body::Inline(body) },
            segments: segments.into_iter().map(|segment| frame_segment(segment, large)).collect(),
            transfer: 0,
        };
        let chunked = matches!(payload.body, Body::Chunked)
            || payload.segments.iter().any(|segment| matches!(segment.data, SegmentData::Chunked));
        let payload = Payload { transfer: if chunked { transfer } else { 0 }, ..payload };
        let mut given_up = None;
        let frame = match ask {
            Ask::Create { id, source } => {
                debug_assert_eq!(id.creator, me);
                self.lifetime.create_sent(id, at);
                let source = match source {
                    MessageSource::Function(_) => Source::Function { name },
                    MessageSource::Message(object, _) => Source::Message { object, name },
                    MessageSource::Copy(_) => Source::Copy { name },
                };
                Frame::Create(Create { create_no: id.create_no, source, trace, payload })
            }
            Ask::Call { call_id, target } => {
                let target = match target {
                    MessageTarget::Function(_) => Target::Function { name },
                    MessageTarget::Message(object, _) => Target::Message { object, name },
                    MessageTarget::Method(object, _) => Target::Method { object, name },
                    MessageTarget::Fetch(object, _) => Target::Fetch { object, name },
                    MessageTarget::Ready(object) => Target::Ready { object },
                    MessageTarget::Flush(object) => Target::Flush { object },
                    MessageTarget::Ended(object) => Target::Ended { object },
                };
                let mut timeout_ms = u64::MAX;
                match self.calls.get_mut(&call_id) {
                    Some(call) => {
                        call.progress = Progress::Sequenced(at.seq);
                        timeout_ms = call.timeout_ms;
                    }
                    // Its chunks were under way when the caller gave up, so it had to be sent.
                    None => given_up = (call_id != 0).then_some(Frame::Cancel { call_id }),
                }
                let call = Call { call_id, target, timeout_ms, trace, payload };
                if call_id == 0 { Frame::Cast(call) } else { Frame::Call(call) }
            }
            Ask::Reply { call_id, status } => Frame::Reply(Reply { call_id, status, payload }),
            Ask::Stream { call_id, part, status } => {
                let reply = Reply { call_id, status, payload };
                match part {
                    StreamPart::Start => Frame::Reply(reply),
                    StreamPart::Item => Frame::Item(reply),
                    StreamPart::End => Frame::End(reply),
                }
            }
        };
        // From here on the pins hold what the guard held.
        if !guard.is_empty() || creates.is_some() || addressee.is_some() {
            self.later((guard, creates, addressee));
        }
        let Some(peer) = self.peers.get_mut(&to) else { return Ok(()) };
        peer.push(Class::User, &frame)?;
        given_up.map_or(Ok(()), |cancel| peer.push(Class::Control, &cancel))
    }

    /// Tells `to` what must precede the message, and gives the index of the name it uses; 0 if none.
    fn introduce(&mut self, to: NodeUid, message: &Message) -> Result<u32> {
        self.introduce_owners(to, &message.payload)?;
        match (message.name(), self.peers.get_mut(&to)) {
            (Some(name), Some(peer)) => peer.name_index(name),
            _ => Ok(0),
        }
    }

    /// Tells `to` where the owners of a message's handles are, if it may not know.
    fn introduce_owners(&mut self, to: NodeUid, payload: &Outgoing) -> Result<()> {
        let me = self.lifetime.me();
        for handle in &payload.refs {
            let owner = handle.id().owner;
            if owner == me || owner == to {
                continue;
            }
            let Some(info) = self.peers.get(&owner).map(|peer| peer.info.clone()) else { continue };
            self.tell(to, info)?;
        }
        Ok(())
    }
}

/// A segment as its own frame has it; its elements may have gone ahead in chunks.
fn frame_segment(segment: Segment, large: bool) -> Segment {
    if large && segment_bytes(&segment) > 0 {
        Segment { data: SegmentData::Chunked, ..segment }
    } else {
        segment
    }
}

impl Peer {
    /// Encodes a frame for the next place in the lane and puts it there.
    pub(crate) fn push(&mut self, class: Class, frame: &Frame) -> Result<()> {
        let encoded = self.encode(self.lane.next_seq(), self.settled, frame)?;
        let weight = encoded.len();
        self.lane.push(class, weight, encoded);
        self.lane.ack_stamped();
        Ok(())
    }

    /// Encodes a frame with what there is to acknowledge.
    pub(crate) fn encode(&self, seq: Seq, settled: Seq, frame: &Frame) -> Result<Encoded> {
        encode(seq, self.lane.processed(), settled, frame, &Limits::DEFAULT)
            .map_err(|error| Error::Encode(error.to_string()))
    }

    /// The index of a name in this session; announces it at its first use.
    fn name_index(&mut self, name: &NameRef) -> Result<u32> {
        if self.names_sent.len() <= name.id {
            self.names_sent.resize(name.id + 1, 0);
        }
        if self.names_sent[name.id] == 0 {
            self.next_name += 1;
            self.names_sent[name.id] = self.next_name;
            let frame = Frame::Name(Name {
                index: self.next_name,
                kind: name.kind,
                path: name.path.to_string(),
                schema: name.schema,
            });
            self.push(Class::Control, &frame)?;
        }
        Ok(self.names_sent[name.id])
    }

    /// What others are told of this node.
    pub(crate) fn describe(info: &PeerInfo) -> String {
        format!("{} ({})", info.name, info.uid)
    }
}
