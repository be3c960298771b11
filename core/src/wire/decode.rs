//! Bytes to frames. Knows the layout that `codec` documents; must not know what a frame leads to.
//!
//! The bytes are a stranger's. Counts are compared with their limits, and with the bytes that are left,
//! before room is made for anything; bodies and inline segments stay slices of the frame's own bytes.

use super::codec::{CHUNKED, DESCRIPTOR, DecodeError, HEADER, Header, Kind, frame_len, header, padding};
use super::cursor::{OBJECT, Reader, at_most};
use super::dtype::DType;
use super::frame::{
    Ack, Body, Call, Chunk, Create, Digest, Frame, GoneReason, Heartbeat, HeartbeatEcho, LeaveStage, Name,
    NameKind, Payload, PeerInfo, Reply, Segment, SegmentData, Source, Stamped, Status, Target, Trace,
};
use super::storage::{StorageError, shape_bytes};
use super::{Limits, hello};
use crate::{NodeUid, ObjectId, Stamp};
use bytes::Bytes;

/// Reads one frame, which `frame` must be exactly; see [`frame_len`] for where it ends.
///
/// Bodies, inline segments and chunks of the result share memory with `frame`.
///
/// # Errors
///
/// On anything that [`encode()`](super::encode()) would not write under the same limits.
pub fn decode(frame: Bytes, limits: &Limits) -> Result<Stamped, DecodeError> {
    let len = frame_len(&frame, limits)?.ok_or(DecodeError::Truncated { what: "header" })?;
    if len != frame.len() {
        return Err(DecodeError::Length { said: len as u64, got: frame.len() as u64 });
    }
    let header = header(&frame)?;
    check_unused(&header)?;
    let mut d = Decoder { r: Reader::new(&frame, HEADER), frame: &frame, header, limits };
    let refs = d.table()?;
    let body = d.fields(refs)?;
    d.r.end()?;
    let Header { seq, ack, settled, .. } = header;
    Ok(Stamped { seq, ack, settled, frame: body })
}

/// Fields of the header that this kind has no use for are zero.
fn check_unused(h: &Header) -> Result<(), DecodeError> {
    let payload = h.kind.has_payload();
    let chunk = h.kind == Kind::Chunk;
    let table = payload || h.kind.has_objects();
    let unused = [
        (!table && h.refs != 0, "refs"),
        (!payload && h.segments != 0, "segments"),
        (!payload && h.body_chunked, "flags"),
        (!payload && !chunk && h.body != 0, "body"),
        (!payload && !chunk && h.transfer != 0, "transfer"),
        (h.body_chunked && h.body != 0, "body"),
    ];
    match unused.into_iter().find(|(used, _)| *used) {
        Some((_, what)) => Err(DecodeError::Reserved { what }),
        None => Ok(()),
    }
}

struct Decoder<'a> {
    r: Reader<'a>,
    frame: &'a Bytes,
    header: Header,
    limits: &'a Limits,
}

impl Decoder<'_> {
    fn table(&mut self) -> Result<Vec<ObjectId>, DecodeError> {
        let (limit, what) = match self.header.kind.has_payload() {
            true => (self.limits.refs, "reference table"),
            false => (self.limits.objects, "objects"),
        };
        let count = usize::from(self.header.refs);
        self.r.count(count, limit, OBJECT, what)?;
        let mut refs = Vec::with_capacity(count);
        for _ in 0..count {
            refs.push(self.r.object()?);
        }
        Ok(refs)
    }

    fn fields(&mut self, refs: Vec<ObjectId>) -> Result<Frame, DecodeError> {
        Ok(match self.header.kind {
            Kind::Name => Frame::Name(self.name()?),
            Kind::Peer => Frame::Peer(self.peer()?),
            Kind::Create => Frame::Create(self.create(refs)?),
            Kind::Call => Frame::Call(self.call(refs)?),
            Kind::Cast => Frame::Cast(self.call(refs)?),
            Kind::Reply => Frame::Reply(self.reply(refs)?),
            Kind::Item => Frame::Item(self.reply(refs)?),
            Kind::End => Frame::End(self.reply(refs)?),
            Kind::Cancel => Frame::Cancel { call_id: self.r.non_zero_u64("call_id")? },
            Kind::Claim => Frame::Claim(refs),
            Kind::InventoryBegin => self.inventory_begin()?,
            Kind::InventoryItems => Frame::InventoryItems(refs),
            Kind::InventoryEnd => Frame::InventoryEnd,
            Kind::Heartbeat => Frame::Heartbeat(self.heartbeat()?),
            Kind::HeartbeatEcho => {
                let (uid, session_no, nonce) = self.beat()?;
                Frame::HeartbeatEcho(HeartbeatEcho { uid, session_no, nonce })
            }
            Kind::Release => Frame::Release(self.release(refs)?),
            Kind::Gone => Frame::Gone(self.gone(refs)?),
            Kind::Chunk => Frame::Chunk(self.chunk()?),
            Kind::Credit => Frame::Credit { calls: self.r.u64("credit")?, bytes: self.r.u64("credit")? },
            Kind::Leave => Frame::Leave(self.leave()?),
            Kind::Ack => Frame::Ack(self.ack()?),
            Kind::More => {
                Frame::More { call_id: self.r.non_zero_u64("call_id")?, items: self.r.non_zero_u64("items")? }
            }
        })
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        let index = self.r.non_zero_u32("name index")?;
        let kind = match self.r.u8("kind of name")? {
            1 => NameKind::Function,
            2 => NameKind::Message,
            3 => NameKind::Method,
            4 => NameKind::Type,
            code => return Err(DecodeError::Value { what: "kind of name", value: code.into() }),
        };
        self.r.zeros(1, "name")?;
        let len = self.r.u16("path")?;
        let schema = self.r.u128("schema")?;
        let path = self.r.text(len.into(), self.limits.path, "path")?;
        Ok(Name { index, kind, path, schema })
    }

    fn peer(&mut self) -> Result<PeerInfo, DecodeError> {
        let uid = NodeUid(self.r.u128("uid")?);
        let count = self.r.u16("addresses")?.into();
        let len = self.r.u16("node name")?.into();
        let name = self.r.text(len, self.limits.name, "node name")?;
        let addresses = hello::read_addresses(&mut self.r, count, self.limits)?;
        Ok(PeerInfo { uid, name, addresses })
    }

    fn create(&mut self, refs: Vec<ObjectId>) -> Result<Create, DecodeError> {
        let create_no = self.r.non_zero_u64("create_no")?;
        let trace = self.trace()?;
        let (code, name) = self.aim("source")?;
        let source = match code {
            1 => Source::Function { name: self.index(name)? },
            2 => Source::Message { object: self.r.object()?, name: self.index(name)? },
            3 => Source::Copy { name: self.index(name)? },
            _ => return Err(DecodeError::Value { what: "source", value: code.into() }),
        };
        Ok(Create { create_no, source, trace, payload: self.payload(refs)? })
    }

    fn call(&mut self, refs: Vec<ObjectId>) -> Result<Call, DecodeError> {
        let call_id = self.r.u64("call_id")?;
        if (call_id == 0) != (self.header.kind == Kind::Cast) {
            return Err(DecodeError::Value { what: "call_id", value: call_id });
        }
        let timeout_ms = self.r.u64("timeout")?;
        let trace = self.trace()?;
        let (code, name) = self.aim("target")?;
        let target = match code {
            1 => Target::Function { name: self.index(name)? },
            2 => Target::Message { object: self.r.object()?, name: self.index(name)? },
            3 => Target::Method { object: self.r.object()?, name: self.index(name)? },
            4 => Target::Fetch { object: self.r.object()?, name: self.index(name)? },
            5 if name == 0 => Target::Ready { object: self.r.object()? },
            6 if name == 0 => Target::Flush { object: self.r.object()? },
            7 if name == 0 => Target::Ended { object: self.r.object()? },
            5..=7 => return Err(DecodeError::Reserved { what: "name index" }),
            _ => return Err(DecodeError::Value { what: "target", value: code.into() }),
        };
        Ok(Call { call_id, target, timeout_ms, trace, payload: self.payload(refs)? })
    }

    fn reply(&mut self, refs: Vec<ObjectId>) -> Result<Reply, DecodeError> {
        let call_id = self.r.non_zero_u64("call_id")?;
        let status = match self.r.u64("status")? {
            0 => Status::Ok,
            1 => Status::Failed,
            value => return Err(DecodeError::Value { what: "status", value }),
        };
        Ok(Reply { call_id, status, payload: self.payload(refs)? })
    }

    fn release(&mut self, refs: Vec<ObjectId>) -> Result<Vec<(ObjectId, Stamp)>, DecodeError> {
        let mut objects = Vec::with_capacity(refs.len());
        for id in refs {
            let session_no = self.r.u32("stamp")?;
            objects.push((id, Stamp { session_no, seq: self.r.u64("stamp")? }));
        }
        Ok(objects)
    }

    fn gone(&mut self, refs: Vec<ObjectId>) -> Result<Vec<(ObjectId, GoneReason)>, DecodeError> {
        let mut objects = Vec::with_capacity(refs.len());
        for id in refs {
            let code = self.r.u8("reason")?;
            self.r.zeros(1, "reason")?;
            let len = self.r.u16("reason text")?.into();
            let text = self.r.text(len, self.limits.text, "reason text")?;
            let reason = match code {
                6 => GoneReason::CreateFailed(text),
                7 => GoneReason::Died(text),
                1..=5 | 8 if !text.is_empty() => return Err(DecodeError::Reserved { what: "reason text" }),
                1 => GoneReason::Freed,
                2 => GoneReason::NeverCreated,
                3 => GoneReason::CreatorDied,
                4 => GoneReason::LeaseExpired,
                5 => GoneReason::Stopped,
                8 => GoneReason::Unreachable,
                _ => return Err(DecodeError::Value { what: "reason", value: code.into() }),
            };
            objects.push((id, reason));
        }
        Ok(objects)
    }

    fn chunk(&mut self) -> Result<Chunk, DecodeError> {
        let transfer = self.header.transfer;
        let part = self.r.u16("part")?;
        let dtype = self.dtype()?;
        self.r.zeros(5, "chunk")?;
        let total = self.r.u64("total")?;
        at_most(self.header.body as usize, self.limits.chunk, "chunk")?;
        let chunk =
            Chunk { transfer, part, dtype, total, bytes: self.bytes(self.header.body as usize, "chunk")? };
        if transfer == 0 {
            return Err(DecodeError::Value { what: "transfer", value: 0 });
        }
        match chunk.fault(self.limits) {
            None => Ok(chunk),
            Some(what) => Err(DecodeError::Transfer { transfer, part, what }),
        }
    }

    fn leave(&mut self) -> Result<LeaveStage, DecodeError> {
        match self.r.u64("stage")? {
            1 => Ok(LeaveStage::Draining),
            2 => Ok(LeaveStage::Leaving),
            value => Err(DecodeError::Value { what: "stage", value }),
        }
    }

    fn ack(&mut self) -> Result<Ack, DecodeError> {
        let session_no = self.r.u32("session_no")?;
        let count = self.r.u32("exceptions")? as usize;
        let at = self.r.u64("at")?;
        self.r.count(count, self.limits.exceptions, 16, "exceptions")?;
        let mut exceptions = Vec::with_capacity(count);
        for _ in 0..count {
            exceptions.push(NodeUid(self.r.u128("exceptions")?));
        }
        Ok(Ack { session_no, at, exceptions })
    }

    fn inventory_begin(&mut self) -> Result<Frame, DecodeError> {
        let next_create = self.r.non_zero_u64("create_no")?;
        let session_no = self.r.u32("stamp")?;
        self.r.zeros(4, "stamp")?;
        Ok(Frame::InventoryBegin { next_create, seen: Stamp { session_no, seq: self.r.u64("stamp")? } })
    }

    /// What a heartbeat and its echo begin with.
    fn beat(&mut self) -> Result<(NodeUid, u32, u64), DecodeError> {
        let uid = NodeUid(self.r.u128("uid")?);
        let session_no = self.r.u32("session_no")?;
        self.r.zeros(4, "heartbeat")?;
        Ok((uid, session_no, self.r.non_zero_u64("nonce")?))
    }

    fn heartbeat(&mut self) -> Result<Heartbeat, DecodeError> {
        const WHAT: &str = "heartbeat";
        let (uid, session_no, nonce) = self.beat()?;
        let (asks, clear) = (self.r.u64(WHAT)?, self.r.u64(WHAT)?);
        let listed = Digest { count: self.r.u64(WHAT)?, hash: self.r.u64(WHAT)? };
        let (ack, at) = (self.r.u64(WHAT)?, self.r.u64(WHAT)?);
        Ok(Heartbeat { uid, session_no, nonce, asks, clear, listed, ack, at })
    }

    fn trace(&mut self) -> Result<Trace, DecodeError> {
        Ok(Trace { trace_id: self.r.u128("trace")?, span_id: self.r.u64("trace")? })
    }

    /// Code and name index of a source or target.
    fn aim(&mut self, what: &'static str) -> Result<(u8, u32), DecodeError> {
        let code = self.r.u8(what)?;
        self.r.zeros(3, what)?;
        Ok((code, self.r.u32("name index")?))
    }

    fn index(&self, name: u32) -> Result<u32, DecodeError> {
        if name == 0 { Err(DecodeError::Value { what: "name index", value: 0 }) } else { Ok(name) }
    }

    fn dtype(&mut self) -> Result<DType, DecodeError> {
        let code = self.r.u8("element type")?;
        DType::from_code(code).ok_or(DecodeError::Value { what: "element type", value: code.into() })
    }

    /// The next bytes, as a slice of the frame.
    fn bytes(&mut self, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        let from = self.r.at();
        self.r.take(len, what)?;
        Ok(self.frame.slice(from..from + len))
    }

    fn payload(&mut self, refs: Vec<ObjectId>) -> Result<Payload, DecodeError> {
        let Header { transfer, body_chunked, .. } = self.header;
        let count = self.header.segments.into();
        self.r.count(count, self.limits.segments, DESCRIPTOR, "segments")?;
        let mut segments = Vec::with_capacity(count);
        let mut message = u64::from(self.header.body);
        for index in 0..count {
            let (segment, size) = self.descriptor(index)?;
            message = message.saturating_add(size);
            segments.push(segment);
        }
        if message > self.limits.message {
            let (what, limit) = ("message", self.limits.message);
            return Err(DecodeError::TooLarge { what, size: message, limit });
        }
        let chunked = body_chunked || segments.iter().any(|s| matches!(s.data, SegmentData::Chunked));
        if chunked != (transfer != 0) {
            return Err(DecodeError::Value { what: "transfer", value: transfer.into() });
        }
        let body = if body_chunked {
            Body::Chunked
        } else {
            let len = self.header.body as usize;
            at_most(len, self.limits.body, "body")?;
            Body::Inline(self.bytes(len, "body")?)
        };
        for segment in &mut segments {
            self.inline(segment)?;
        }
        Ok(Payload { refs, body, segments, transfer })
    }

    /// A segment without its data, and the bytes its shape asks for.
    fn descriptor(&mut self, index: usize) -> Result<(Segment, u64), DecodeError> {
        const WHAT: &str = "segment descriptor";
        let dtype = self.dtype()?;
        let ndim = self.r.u8(WHAT)?.into();
        let flags = self.r.u8(WHAT)?;
        self.r.zeros(5, WHAT)?;
        let data = match flags {
            0 => SegmentData::Inline(Bytes::new()),
            CHUNKED => SegmentData::Chunked,
            _ => return Err(DecodeError::Reserved { what: WHAT }),
        };
        self.r.count(ndim, self.limits.ndim, 8, "axes")?;
        let mut shape = Vec::with_capacity(ndim);
        for _ in 0..ndim {
            let dim = usize::try_from(self.r.u64(WHAT)?);
            shape.push(dim.map_err(|_| DecodeError::Shape { segment: index })?);
        }
        let size = shape_bytes(dtype, &shape).ok_or(DecodeError::Shape { segment: index })?;
        Ok((Segment { dtype, shape, data }, size as u64))
    }

    /// Reads the elements of a segment, if they are in the frame.
    fn inline(&mut self, segment: &mut Segment) -> Result<(), DecodeError> {
        if matches!(segment.data, SegmentData::Chunked) {
            return Ok(());
        }
        let size = shape_bytes(segment.dtype, &segment.shape).unwrap_or_default();
        self.r.zeros(padding(self.r.at()), "padding")?;
        let bytes = self.bytes(size, "segment")?;
        if segment.dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
            return Err(StorageError::Bool.into());
        }
        segment.data = SegmentData::Inline(bytes);
        Ok(())
    }
}
