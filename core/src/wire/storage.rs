//! Elements from bytes, and messages from chunks.
//!
//! Knows nothing of frames but [`Chunk`] and [`Payload`]; must not know what a message means. Memory
//! grows with the bytes that have arrived, never with what a peer announces.

use super::Limits;
use super::codec::DecodeError;
use super::dtype::{DType, Storage};
use super::frame::{Body, Chunk, Payload, SegmentData};
use bytes::Bytes;
use half::{bf16, f16};
use std::collections::BTreeMap;

/// Smallest step by which an incomplete part grows, in bytes.
const STEP: usize = 64 << 10;

/// Why bytes are not elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StorageError {
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is neither 0 nor 1")]
    Bool,
    /// The bytes do not end where an element does.
    #[error("{bytes} bytes are not a whole number of {}", dtype.name())]
    Length {
        /// The element type.
        dtype: DType,
        /// The number of bytes.
        bytes: usize,
    },
}

/// Bytes that elements of `dtype` take in this shape.
///
/// `None` if the product of the dims that are not 0 is above `isize::MAX`, as ndarray counts, or the
/// bytes are.
pub fn shape_bytes(dtype: DType, shape: &[usize]) -> Option<usize> {
    const MAX: usize = isize::MAX as usize;
    let product = shape
        .iter()
        .filter(|dim| **dim != 0)
        .try_fold(1usize, |product, dim| product.checked_mul(*dim).filter(|product| *product <= MAX))?;
    if shape.contains(&0) {
        return Some(0);
    }
    product.checked_mul(dtype.size()).filter(|bytes| *bytes <= MAX)
}

impl Storage {
    /// Appends elements in their little-endian form.
    ///
    /// # Errors
    ///
    /// If `bytes` is not a whole number of elements, or has a boolean that is neither 0 nor 1. Then
    /// nothing is appended.
    pub fn extend_from_le_bytes(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        // `as_chunks` gives the compiler the length in advance: it reserves once and vectorises the loop.
        macro_rules! extend {
            ($elements:ident, $type:ty) => {{
                let (chunks, rest) = bytes.as_chunks::<{ size_of::<$type>() }>();
                if !rest.is_empty() {
                    return Err(StorageError::Length { dtype: self.dtype(), bytes: bytes.len() });
                }
                $elements.extend(chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)));
            }};
        }
        match self {
            Storage::F32(v) => extend!(v, f32),
            Storage::F64(v) => extend!(v, f64),
            Storage::F16(v) => extend!(v, f16),
            Storage::BF16(v) => extend!(v, bf16),
            Storage::I8(v) => extend!(v, i8),
            Storage::I16(v) => extend!(v, i16),
            Storage::I32(v) => extend!(v, i32),
            Storage::I64(v) => extend!(v, i64),
            Storage::U8(v) => v.extend_from_slice(bytes),
            Storage::U16(v) => extend!(v, u16),
            Storage::U32(v) => extend!(v, u32),
            Storage::U64(v) => extend!(v, u64),
            Storage::Bool(v) => {
                // A fold without an early exit, so that it vectorises too.
                if bytes.iter().fold(0, |all, byte| all | byte) > 1 {
                    return Err(StorageError::Bool);
                }
                v.extend(bytes.iter().map(|byte| *byte != 0));
            }
        }
        Ok(())
    }

    /// Storage with exactly these elements; see [`extend_from_le_bytes`](Self::extend_from_le_bytes).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_le_bytes(dtype: DType, bytes: &[u8]) -> Result<Storage, StorageError> {
        let mut storage = Storage::new(dtype);
        storage.extend_from_le_bytes(bytes)?;
        Ok(storage)
    }
}

impl Chunk {
    /// What is wrong with a chunk taken by itself, if anything; both sides judge by this.
    pub(super) fn fault(&self, limits: &Limits) -> Option<&'static str> {
        let size = self.dtype.size();
        let len = self.bytes.len() as u64;
        if usize::from(self.part) > limits.segments {
            Some("more parts than segments")
        } else if self.part == 0 && self.dtype != DType::U8 {
            Some("a body is bytes")
        } else if self.part == 0 && self.total > limits.body as u64 {
            Some("the body is too large")
        } else if self.total > limits.message {
            Some("the part is too large")
        } else if !self.bytes.len().is_multiple_of(size) || !self.total.is_multiple_of(size as u64) {
            Some("an element is cut in two")
        } else if len > self.total {
            Some("the piece is larger than its part")
        } else if len == 0 && self.total != 0 {
            Some("the piece is empty")
        } else {
            None
        }
    }
}

/// The receiver's side of chunked messages, for one session.
///
/// Give it every [`Chunk`] in lane order, then every [`Payload`] that comes in a frame of its own. After
/// an error the session has to be closed: the peer broke the protocol, and its transfers are no longer
/// worth keeping.
///
/// Pieces of different parts and of different transfers may alternate. It holds at most
/// [`Limits::transfers`] messages of at most [`Limits::message`] bytes; what all sessions may hold
/// together is for its owner to watch, by [`open_bytes`](Self::open_bytes).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembly {
    open: BTreeMap<u32, Transfer>,
    bytes: u64,
}

/// One message under way.
#[derive(Clone, Debug, Default, PartialEq)]
struct Transfer {
    parts: BTreeMap<u16, Part>,
    /// Bytes announced for all parts that have begun; bounded by the message limit.
    announced: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    total: u64,
    data: Storage,
}

impl Part {
    /// Bytes received.
    fn have(&self) -> u64 {
        (self.data.len() * self.data.dtype().size()) as u64
    }

    /// Makes room for `len` more bytes, doubling what is there but never beyond the total.
    fn grow(&mut self, len: usize) {
        let size = self.data.dtype().size();
        let have = self.data.len() * size;
        if self.data.capacity() * size - have >= len {
            return;
        }
        let left = usize::try_from(self.total).unwrap_or(usize::MAX).saturating_sub(have);
        let step = STEP.max(have).max(len).min(left);
        self.data.reserve_exact(step / size);
    }
}

impl Assembly {
    /// Nothing under way.
    pub fn new() -> Assembly {
        Assembly::default()
    }

    /// Takes one piece.
    ///
    /// # Errors
    ///
    /// If the piece contradicts the ones before it, goes beyond its part's total, or opens more than the
    /// limits allow.
    pub fn chunk(&mut self, chunk: Chunk, limits: &Limits) -> Result<(), DecodeError> {
        let Chunk { transfer, part, dtype, total, .. } = chunk;
        let fault = |what| Err(DecodeError::Transfer { transfer, part, what });
        if transfer == 0 {
            return fault("the number 0");
        }
        if let Some(what) = chunk.fault(limits) {
            return fault(what);
        }
        if chunk.bytes.len() > limits.chunk {
            return fault("the piece is too large");
        }
        if !self.open.contains_key(&transfer) && self.open.len() >= limits.transfers {
            return fault("too many open transfers");
        }
        let open = self.open.entry(transfer).or_default();
        let announced = open.announced.saturating_add(total);
        let entry = match open.parts.get_mut(&part) {
            Some(entry) => entry,
            None if announced > limits.message => return fault("the message is too large"),
            None => {
                open.announced = announced;
                open.parts.entry(part).or_insert(Part { total, data: Storage::new(dtype) })
            }
        };
        if entry.total != total {
            return fault("the total has changed");
        }
        if entry.data.dtype() != dtype {
            return fault("the element type has changed");
        }
        let len = chunk.bytes.len();
        if len as u64 > total - entry.have() {
            return fault("more bytes than its total");
        }
        entry.grow(len);
        entry.data.extend_from_le_bytes(&chunk.bytes)?;
        self.bytes += len as u64;
        Ok(())
    }

    /// Puts the parts of the payload's transfer where the payload says [`Body::Chunked`] or
    /// [`SegmentData::Chunked`], and sets its transfer to 0. A payload without a transfer stays as it is.
    ///
    /// # Errors
    ///
    /// If a part is missing or incomplete, is not what its segment says, or belongs to no segment.
    pub fn finish(&mut self, payload: &mut Payload, limits: &Limits) -> Result<(), DecodeError> {
        let transfer = payload.transfer;
        let segments = payload.segments.len();
        // Part numbers have 16 bits; a decoded payload is within them.
        super::cursor::at_most(segments, limits.segments.min(usize::from(u16::MAX) - 1), "segments")?;
        let mut open = self.open.remove(&transfer).unwrap_or_default();
        self.bytes -= open.parts.values().map(Part::have).sum::<u64>();
        let mut take = |part: u16| match open.parts.remove(&part) {
            None => Err(DecodeError::Transfer { transfer, part, what: "the part is missing" }),
            Some(p) if p.have() != p.total => {
                Err(DecodeError::Transfer { transfer, part, what: "the part is incomplete" })
            }
            Some(p) => Ok(p),
        };
        if matches!(payload.body, Body::Chunked) {
            payload.body = match take(0)?.data {
                Storage::U8(bytes) => Body::Inline(Bytes::from(bytes)),
                _ => return Err(DecodeError::Transfer { transfer, part: 0, what: "a body is bytes" }),
            };
        }
        for (part, segment) in (1..).zip(&mut payload.segments) {
            if !matches!(segment.data, SegmentData::Chunked) {
                continue;
            }
            let Part { total, data } = take(part)?;
            if data.dtype() != segment.dtype {
                return Err(DecodeError::Transfer { transfer, part, what: "not the segment's element type" });
            }
            if shape_bytes(segment.dtype, &segment.shape).is_none_or(|bytes| bytes as u64 != total) {
                return Err(DecodeError::Transfer { transfer, part, what: "not the bytes of the shape" });
            }
            segment.data = SegmentData::Typed(data);
        }
        if let Some(part) = open.parts.into_keys().next() {
            return Err(DecodeError::Transfer { transfer, part, what: "nothing refers to the part" });
        }
        payload.transfer = 0;
        Ok(())
    }

    /// Bytes received for messages that are not complete. The memory behind them is at most twice as
    /// much, and 64 KiB for each part.
    pub fn open_bytes(&self) -> u64 {
        self.bytes
    }

    /// Messages under way.
    pub fn open_transfers(&self) -> usize {
        self.open.len()
    }

    /// Forgets everything under way: the session that carried it has ended.
    pub fn clear(&mut self) {
        *self = Assembly::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(part: u16, dtype: DType, total: u64, bytes: &[u8]) -> Chunk {
        Chunk { transfer: 1, part, dtype, total, bytes: Bytes::copy_from_slice(bytes) }
    }

    #[test]
    fn memory_follows_what_arrived_not_what_was_announced() {
        let mut assembly = Assembly::new();
        assembly.chunk(piece(1, DType::F64, 4 << 30, &[0; 64]), &Limits::DEFAULT).unwrap();
        let part = &assembly.open[&1].parts[&1];
        assert!(part.data.capacity() * 8 <= 128 << 10);
    }

    #[test]
    fn a_part_never_takes_more_than_its_total_or_twice_what_arrived() {
        let total = 1_000_000u64;
        let bytes = vec![7; 10_000];
        let mut assembly = Assembly::new();
        for step in 1..=100u64 {
            assembly.chunk(piece(1, DType::U16, total, &bytes), &Limits::DEFAULT).unwrap();
            let capacity = assembly.open[&1].parts[&1].data.capacity() as u64 * 2;
            assert!(capacity <= total && capacity <= 2 * step * 10_000 + STEP as u64);
        }
        assert_eq!(assembly.open[&1].parts[&1].data.capacity() as u64 * 2, total);
    }
}
