//! What a frame takes on the wire, and whether it may be sent at all.
//!
//! Knows sizes and limits; the bytes are written by `encode`, which relies on what is checked here.

use super::Limits;
use super::codec::{DESCRIPTOR, EncodeError, HEADER, Kind, padding};
use super::cursor::{OBJECT, cut};
use super::frame::{Body, Chunk, Frame, GoneReason, Payload, SegmentData, Source, Target};
use super::storage::shape_bytes;
use crate::{ObjectId, Seq};

/// Bodies up to this size are copied: cheaper than one more entry in a vectored write.
pub(super) const COPY_BODY: usize = 4 << 10;

/// Segments and chunks from this size on go out as parts of their own.
pub(super) const APART: usize = 1 << 10;

/// What has to be known before the first byte is written.
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// Bytes of the frame, and how many of them are copied.
    pub(super) len: usize,
    pub(super) copied: usize,
    pub(super) refs: usize,
    pub(super) body: usize,
    /// How much of a Gone's texts is written.
    pub(super) text: usize,
}

impl Plan {
    /// Checks the frame and measures it.
    pub(super) fn new(seq: Seq, frame: &Frame, limits: &Limits) -> Result<Plan, EncodeError> {
        let kind = Kind::of(frame);
        if (seq == 0) == kind.in_sequence() {
            return Err(EncodeError::Invalid { what: "seq" });
        }
        let mut plan = Plan { kind, len: 0, copied: 0, refs: 0, body: 0, text: 0 };
        let fields = plan.fields(frame, limits)?;
        plan.len = HEADER + plan.refs * OBJECT + fields;
        plan.copied = plan.len;
        if let Some(payload) = payload(frame) {
            plan.payload(payload, limits)?;
        }
        if let Frame::Chunk(chunk) = frame {
            plan.body = chunk.bytes.len();
            plan.add(plan.body, plan.body < APART);
        }
        at_most(plan.len, kind.cap(limits).min(u32::MAX as usize), "frame")?;
        Ok(plan)
    }

    fn add(&mut self, len: usize, copy: bool) {
        self.len += len;
        if copy {
            self.copied += len;
        }
    }

    /// Checks all but the payload; counts the reference table and gives the size of the fields.
    fn fields(&mut self, frame: &Frame, limits: &Limits) -> Result<usize, EncodeError> {
        match frame {
            Frame::Name(name) => {
                non_zero(name.index.into(), "name index")?;
                Ok(24 + text(&name.path, limits.path, "path")?)
            }
            Frame::Peer(peer) => {
                at_most(peer.addresses.len(), limits.addresses.min(u16::MAX.into()), "addresses")?;
                let mut size = 20 + text(&peer.name, limits.name, "node name")?;
                for address in &peer.addresses {
                    size += 2 + text(address, limits.address, "address")?;
                }
                Ok(size)
            }
            Frame::Create(create) => {
                non_zero(create.create_no, "create_no")?;
                let (_, name, object) = source(&create.source);
                non_zero(name.into(), "name index")?;
                Ok(40 + optional(object)?)
            }
            Frame::Call(call) | Frame::Cast(call) => {
                if (call.call_id == 0) != (self.kind == Kind::Cast) {
                    return Err(EncodeError::Invalid { what: "call_id" });
                }
                let (_, name, object) = target(&call.target);
                let nameless =
                    matches!(call.target, Target::Ready { .. } | Target::Flush { .. } | Target::Ended { .. });
                if !nameless {
                    non_zero(name.into(), "name index")?;
                }
                Ok(48 + optional(object)?)
            }
            Frame::Reply(reply) | Frame::Item(reply) | Frame::End(reply) => {
                non_zero(reply.call_id, "call_id")?;
                Ok(16)
            }
            Frame::More { call_id, items } => {
                non_zero(*call_id, "call_id")?;
                non_zero(*items, "items")?;
                Ok(16)
            }
            Frame::Cancel { call_id } => {
                non_zero(*call_id, "call_id")?;
                Ok(8)
            }
            Frame::Claim(objects) => {
                self.table(objects.iter(), objects.len(), limits.objects, "objects")?;
                Ok(0)
            }
            Frame::Release(objects) => {
                self.table(objects.iter().map(|(id, _)| id), objects.len(), limits.objects, "objects")?;
                Ok(12 * objects.len())
            }
            Frame::Gone(objects) => {
                self.table(objects.iter().map(|(id, _)| id), objects.len(), limits.objects, "objects")?;
                Ok(self.texts(objects, limits))
            }
            Frame::InventoryItems(objects) => {
                self.table(objects.iter(), objects.len(), limits.objects, "objects")?;
                Ok(0)
            }
            Frame::InventoryBegin { next_create, .. } => {
                non_zero(*next_create, "create_no")?;
                Ok(24)
            }
            Frame::InventoryEnd => Ok(0),
            Frame::Heartbeat(beat) => {
                non_zero(beat.nonce, "nonce")?;
                Ok(80)
            }
            Frame::HeartbeatEcho(echo) => {
                non_zero(echo.nonce, "nonce")?;
                Ok(32)
            }
            Frame::Chunk(chunk) => check_chunk(chunk, limits),
            Frame::Credit { .. } => Ok(16),
            Frame::Leave(_) => Ok(8),
            Frame::Ack(ack) => {
                at_most(ack.exceptions.len(), limits.exceptions.min(u32::MAX as usize), "exceptions")?;
                Ok(16 + 16 * ack.exceptions.len())
            }
        }
    }

    fn table<'a>(
        &mut self,
        mut objects: impl Iterator<Item = &'a ObjectId>,
        count: usize,
        limit: usize,
        what: &'static str,
    ) -> Result<(), EncodeError> {
        at_most(count, limit.min(u16::MAX.into()), what)?;
        if objects.any(|id| id.create_no == 0) {
            return Err(EncodeError::Invalid { what: "create_no" });
        }
        self.refs = count;
        Ok(())
    }

    /// Size of a Gone's fields. Its texts are for people: so that a frame of many objects fits, each is
    /// cut to an equal share of the room, unless they all fit as they are.
    fn texts(&mut self, objects: &[(ObjectId, GoneReason)], limits: &Limits) -> usize {
        let size =
            |limit: usize| objects.iter().map(|(_, why)| cut(reason(why).1, limit).len()).sum::<usize>();
        let fixed = 4 * objects.len();
        let room = Kind::Gone.cap(limits).saturating_sub(HEADER + OBJECT * objects.len() + fixed);
        self.text = limits.text.min(u16::MAX.into());
        if size(self.text) > room {
            self.text = self.text.min(room / objects.len().max(1));
        }
        fixed + size(self.text)
    }

    fn payload(&mut self, payload: &Payload, limits: &Limits) -> Result<(), EncodeError> {
        self.table(payload.refs.iter(), payload.refs.len(), limits.refs, "reference table")?;
        at_most(payload.segments.len(), limits.segments.min(u16::MAX.into()), "segments")?;
        let mut message = 0u64;
        let mut chunked = matches!(payload.body, Body::Chunked);
        let mut fixed = self.refs * OBJECT;
        for (index, segment) in payload.segments.iter().enumerate() {
            at_most(segment.shape.len(), limits.ndim.min(u8::MAX.into()), "axes")?;
            fixed += DESCRIPTOR + 8 * segment.shape.len();
            let size =
                shape_bytes(segment.dtype, &segment.shape).ok_or(EncodeError::Shape { segment: index })?;
            match &segment.data {
                SegmentData::Inline(bytes) if bytes.len() == size => {}
                SegmentData::Inline(_) => return Err(EncodeError::Shape { segment: index }),
                SegmentData::Chunked => chunked = true,
                SegmentData::Typed(_) => return Err(EncodeError::Invalid { what: "assembled segment" }),
            }
            message = message.saturating_add(size as u64);
        }
        if chunked != (payload.transfer != 0) {
            return Err(EncodeError::Invalid { what: "transfer" });
        }
        self.add(fixed, true);
        if let Body::Inline(body) = &payload.body {
            at_most(body.len(), limits.body, "body")?;
            message = message.saturating_add(body.len() as u64);
            self.body = body.len();
            self.add(body.len(), body.len() <= COPY_BODY);
        }
        if message > limits.message {
            return Err(EncodeError::TooLarge { what: "message", size: message, limit: limits.message });
        }
        for segment in &payload.segments {
            if let SegmentData::Inline(bytes) = &segment.data {
                self.add(padding(self.len), true);
                self.add(bytes.len(), bytes.len() < APART);
            }
        }
        Ok(())
    }
}

/// The payload of a frame that has one.
pub(super) fn payload(frame: &Frame) -> Option<&Payload> {
    match frame {
        Frame::Create(create) => Some(&create.payload),
        Frame::Call(call) | Frame::Cast(call) => Some(&call.payload),
        Frame::Reply(reply) | Frame::Item(reply) | Frame::End(reply) => Some(&reply.payload),
        _ => None,
    }
}

/// Code, name index and object of a source.
pub(super) fn source(source: &Source) -> (u8, u32, Option<&ObjectId>) {
    match source {
        Source::Function { name } => (1, *name, None),
        Source::Message { object, name } => (2, *name, Some(object)),
        Source::Copy { name } => (3, *name, None),
    }
}

/// Code, name index and object of a target.
pub(super) fn target(target: &Target) -> (u8, u32, Option<&ObjectId>) {
    match target {
        Target::Function { name } => (1, *name, None),
        Target::Message { object, name } => (2, *name, Some(object)),
        Target::Method { object, name } => (3, *name, Some(object)),
        Target::Fetch { object, name } => (4, *name, Some(object)),
        Target::Ready { object } => (5, 0, Some(object)),
        Target::Flush { object } => (6, 0, Some(object)),
        Target::Ended { object } => (7, 0, Some(object)),
    }
}

/// Code and text of a reason.
pub(super) fn reason(reason: &GoneReason) -> (u8, &str) {
    match reason {
        GoneReason::Freed => (1, ""),
        GoneReason::NeverCreated => (2, ""),
        GoneReason::CreatorDied => (3, ""),
        GoneReason::LeaseExpired => (4, ""),
        GoneReason::Stopped => (5, ""),
        GoneReason::CreateFailed(text) => (6, text),
        GoneReason::Died(text) => (7, text),
        GoneReason::Unreachable => (8, ""),
    }
}

/// Checks a chunk, and gives the size of its fields.
fn check_chunk(chunk: &Chunk, limits: &Limits) -> Result<usize, EncodeError> {
    non_zero(chunk.transfer.into(), "transfer")?;
    at_most(chunk.bytes.len(), limits.chunk, "chunk")?;
    match chunk.fault(limits) {
        None => Ok(16),
        Some(what) => Err(EncodeError::Invalid { what }),
    }
}

fn at_most(size: usize, limit: usize, what: &'static str) -> Result<(), EncodeError> {
    if size > limit {
        return Err(EncodeError::TooLarge { what, size: size as u64, limit: limit as u64 });
    }
    Ok(())
}

fn non_zero(value: u64, what: &'static str) -> Result<(), EncodeError> {
    if value == 0 { Err(EncodeError::Invalid { what }) } else { Ok(()) }
}

/// Checks the length of a text, and gives it.
fn text(text: &str, limit: usize, what: &'static str) -> Result<usize, EncodeError> {
    at_most(text.len(), limit.min(u16::MAX.into()), what)?;
    Ok(text.len())
}

/// Size of an object id that may be absent.
fn optional(object: Option<&ObjectId>) -> Result<usize, EncodeError> {
    match object {
        None => Ok(0),
        Some(object) => non_zero(object.create_no, "create_no").map(|()| OBJECT),
    }
}
