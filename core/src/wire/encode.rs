//! Frames to bytes. Knows the layout that `codec` documents; must not know who sends them.
//!
//! A frame is measured and checked first, then written into one buffer of exactly the right size. Large
//! bodies and segments are not copied: they become parts of their own, for a vectored write.

use super::Limits;
use super::codec::{ALIGN, CHUNKED, EncodeError, padding};
use super::cursor::{cut, put_object, put_text};
use super::frame::{Body, Call, Frame, Payload, Reply, SegmentData, Trace};
use super::measure::{APART, COPY_BODY, Plan, payload, reason, source, target};
use crate::{NodeUid, ObjectId, Seq};
use bytes::{BufMut, Bytes};

/// A frame's bytes, in one or more parts that follow each other without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    head: Bytes,
    rest: Vec<Bytes>,
    len: usize,
}

impl Encoded {
    /// The parts in order, none of them empty. A small frame has exactly one.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.head).chain(&self.rest)
    }

    /// How many parts there are; at least one.
    pub fn part_count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Bytes of the whole frame.
    #[allow(clippy::len_without_is_empty)] // a frame is never empty
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Writes a frame.
///
/// `seq` is the frame's position in its lane (0 for a frame outside the sequence,
/// and for nothing else); `ack` and `settled`
/// are as in [`Stamped`](super::Stamped). Texts of a Gone beyond [`Limits::text`] are cut, and cut
/// further where the frame would not fit [`Limits::control`] otherwise.
///
/// What this writes, [`decode()`](super::decode()) accepts under the same limits, with one exception:
/// the bytes of inline segments of booleans are not looked at.
///
/// # Errors
///
/// If something is above its limit, if a value is not allowed where it stands (an id that is 0, a
/// transfer without chunked parts, [`SegmentData::Typed`]), or if a segment does not have the bytes of
/// its shape.
pub fn encode(
    seq: Seq,
    ack: Seq,
    settled: Seq,
    frame: &Frame,
    limits: &Limits,
) -> Result<Encoded, EncodeError> {
    let plan = Plan::new(seq, frame, limits)?;
    let mut out = Out { buf: Vec::with_capacity(plan.copied), apart: Vec::new(), apart_len: 0 };
    plan.write(&mut out, [seq, ack, settled], frame);
    let Out { buf, apart, .. } = out;
    let copied = Bytes::from(buf);
    let Some((first, _)) = apart.first() else {
        return Ok(Encoded { head: copied, rest: Vec::new(), len: plan.len });
    };
    let head = copied.slice(..*first);
    let rest = apart_parts(&copied, head.len(), apart);
    Ok(Encoded { head, rest, len: plan.len })
}

/// What follows the head: the parts of their own, and between them what was copied from `from` on.
fn apart_parts(copied: &Bytes, mut from: usize, apart: Vec<(usize, Bytes)>) -> Vec<Bytes> {
    let mut rest = Vec::with_capacity(apart.len() * 2);
    for (at, bytes) in apart {
        if at > from {
            rest.push(copied.slice(from..at));
            from = at;
        }
        rest.push(bytes);
    }
    if copied.len() > from {
        rest.push(copied.slice(from..));
    }
    rest
}

/// The bytes copied so far, and where among them the others belong.
struct Out {
    buf: Vec<u8>,
    apart: Vec<(usize, Bytes)>,
    apart_len: usize,
}

impl Out {
    fn bytes(&mut self, bytes: &Bytes, copy: bool) {
        if copy {
            self.buf.put_slice(bytes);
        } else {
            self.apart.push((self.buf.len(), bytes.clone()));
            self.apart_len += bytes.len();
        }
    }

    fn align(&mut self) {
        let zeros = padding(self.buf.len() + self.apart_len);
        self.buf.put_slice(&[0; ALIGN][..zeros]);
    }
}

impl Plan {
    fn write(&self, out: &mut Out, [seq, ack, settled]: [Seq; 3], frame: &Frame) {
        let payload = payload(frame);
        let (flags, segments, transfer) = match (payload, frame) {
            (Some(p), _) => {
                (u8::from(matches!(p.body, Body::Chunked)) * CHUNKED, p.segments.len(), p.transfer)
            }
            (None, Frame::Chunk(chunk)) => (0, 0, chunk.transfer),
            (None, _) => (0, 0, 0),
        };
        // The casts lose nothing: `new` has compared the sizes with the width of their fields.
        let buf = &mut out.buf;
        buf.put_u32_le(self.len as u32);
        buf.put_u8(self.kind as u8);
        buf.put_u8(flags);
        buf.put_u16_le(self.refs as u16);
        buf.put_u64_le(seq);
        buf.put_u64_le(ack);
        buf.put_u64_le(settled);
        buf.put_u32_le(self.body as u32);
        buf.put_u16_le(segments as u16);
        buf.put_u16_le(0);
        buf.put_u32_le(transfer);
        buf.put_u32_le(0);
        write_table(buf, frame);
        self.write_fields(buf, frame);
        if let Some(payload) = payload {
            write_payload(out, payload);
        }
        if let Frame::Chunk(chunk) = frame {
            out.bytes(&chunk.bytes, chunk.bytes.len() < APART);
        }
    }

    fn write_fields(&self, buf: &mut Vec<u8>, frame: &Frame) {
        match frame {
            Frame::Name(name) => {
                buf.put_u32_le(name.index);
                buf.put_slice(&[name.kind as u8, 0]);
                buf.put_u16_le(name.path.len() as u16);
                buf.put_u128_le(name.schema);
                buf.put_slice(name.path.as_bytes());
            }
            Frame::Peer(peer) => {
                buf.put_u128_le(peer.uid.0);
                buf.put_u16_le(peer.addresses.len() as u16);
                put_text(buf, &peer.name);
                for address in &peer.addresses {
                    put_text(buf, address);
                }
            }
            Frame::Create(create) => {
                buf.put_u64_le(create.create_no);
                write_trace(buf, &create.trace);
                write_aim(buf, source(&create.source));
            }
            Frame::Call(Call { call_id, target: aim, timeout_ms, trace, .. })
            | Frame::Cast(Call { call_id, target: aim, timeout_ms, trace, .. }) => {
                buf.put_u64_le(*call_id);
                buf.put_u64_le(*timeout_ms);
                write_trace(buf, trace);
                write_aim(buf, target(aim));
            }
            Frame::Reply(Reply { call_id, status, .. })
            | Frame::Item(Reply { call_id, status, .. })
            | Frame::End(Reply { call_id, status, .. }) => {
                buf.put_u64_le(*call_id);
                buf.put_u64_le(*status as u64);
            }
            Frame::Cancel { call_id } => buf.put_u64_le(*call_id),
            Frame::More { call_id, items } => {
                buf.put_u64_le(*call_id);
                buf.put_u64_le(*items);
            }
            Frame::Claim(_) | Frame::InventoryItems(_) | Frame::InventoryEnd => {}
            Frame::InventoryBegin { next_create, seen } => {
                buf.put_u64_le(*next_create);
                buf.put_u32_le(seen.session_no);
                buf.put_u32_le(0);
                buf.put_u64_le(seen.seq);
            }
            Frame::Heartbeat(beat) => {
                write_beat(buf, beat.uid, beat.session_no, beat.nonce);
                for value in [beat.asks, beat.clear, beat.listed.count, beat.listed.hash, beat.ack, beat.at] {
                    buf.put_u64_le(value);
                }
            }
            Frame::HeartbeatEcho(echo) => write_beat(buf, echo.uid, echo.session_no, echo.nonce),
            Frame::Release(objects) => {
                for (_, seen) in objects {
                    buf.put_u32_le(seen.session_no);
                    buf.put_u64_le(seen.seq);
                }
            }
            Frame::Gone(objects) => {
                for (_, why) in objects {
                    let (code, text) = reason(why);
                    buf.put_slice(&[code, 0]);
                    put_text(buf, cut(text, self.text));
                }
            }
            Frame::Chunk(chunk) => {
                buf.put_u16_le(chunk.part);
                buf.put_slice(&[chunk.dtype as u8, 0, 0, 0, 0, 0]);
                buf.put_u64_le(chunk.total);
            }
            Frame::Credit { calls, bytes } => {
                buf.put_u64_le(*calls);
                buf.put_u64_le(*bytes);
            }
            Frame::Leave(stage) => buf.put_u64_le(*stage as u64),
            Frame::Ack(ack) => {
                buf.put_u32_le(ack.session_no);
                buf.put_u32_le(ack.exceptions.len() as u32);
                buf.put_u64_le(ack.at);
                for owner in &ack.exceptions {
                    buf.put_u128_le(owner.0);
                }
            }
        }
    }
}

fn write_table(buf: &mut Vec<u8>, frame: &Frame) {
    match frame {
        Frame::Claim(objects) | Frame::InventoryItems(objects) => {
            objects.iter().for_each(|id| put_object(buf, id));
        }
        Frame::Release(objects) => objects.iter().for_each(|(id, _)| put_object(buf, id)),
        Frame::Gone(objects) => objects.iter().for_each(|(id, _)| put_object(buf, id)),
        _ => payload(frame).into_iter().flat_map(|p| &p.refs).for_each(|id| put_object(buf, id)),
    }
}

fn write_beat(buf: &mut Vec<u8>, uid: NodeUid, session_no: u32, nonce: u64) {
    buf.put_u128_le(uid.0);
    buf.put_u32_le(session_no);
    buf.put_u32_le(0);
    buf.put_u64_le(nonce);
}

fn write_trace(buf: &mut Vec<u8>, trace: &Trace) {
    buf.put_u128_le(trace.trace_id);
    buf.put_u64_le(trace.span_id);
}

fn write_aim(buf: &mut Vec<u8>, (code, name, object): (u8, u32, Option<&ObjectId>)) {
    buf.put_slice(&[code, 0, 0, 0]);
    buf.put_u32_le(name);
    if let Some(object) = object {
        put_object(buf, object);
    }
}

fn write_payload(out: &mut Out, payload: &Payload) {
    for segment in &payload.segments {
        let chunked = u8::from(matches!(segment.data, SegmentData::Chunked)) * CHUNKED;
        out.buf.put_slice(&[segment.dtype as u8, segment.shape.len() as u8, chunked, 0, 0, 0, 0, 0]);
        for dim in &segment.shape {
            out.buf.put_u64_le(*dim as u64);
        }
    }
    if let Body::Inline(body) = &payload.body {
        out.bytes(body, body.len() <= COPY_BODY);
    }
    for segment in &payload.segments {
        if let SegmentData::Inline(bytes) = &segment.data {
            out.align();
            out.bytes(bytes, bytes.len() < APART);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DType, Segment, Target};

    /// The plan's sizes are exact, so that the buffer neither grows nor has to be shrunk.
    #[test]
    fn the_buffer_has_exactly_the_planned_size() {
        let object = ObjectId { owner: NodeUid(1), creator: NodeUid(2), create_no: 3 };
        for (body, segment) in [(0, 0), (10, 1), (4096, 1023), (4097, 1024), (70, 5000)] {
            let data = SegmentData::Inline(Bytes::from(vec![1; segment]));
            let segments = vec![Segment { dtype: DType::U8, shape: vec![segment], data }; 3];
            let body = Body::Inline(Bytes::from(vec![2; body]));
            let payload = Payload { refs: vec![object; 2], body, segments, transfer: 0 };
            let frame = Frame::Cast(Call {
                call_id: 0,
                target: Target::Ready { object },
                timeout_ms: 1,
                trace: Trace::default(),
                payload,
            });
            let plan = Plan::new(1, &frame, &Limits::DEFAULT).unwrap();
            let mut out = Out { buf: Vec::new(), apart: Vec::new(), apart_len: 0 };
            plan.write(&mut out, [1, 0, 0], &frame);
            assert_eq!((out.buf.len(), out.buf.len() + out.apart_len), (plan.copied, plan.len));
        }
    }
}
