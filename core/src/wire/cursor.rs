//! Reading little-endian fields from untrusted bytes. Knows integers and strings, but no layout.

use super::codec::DecodeError;
use crate::{NodeUid, ObjectId};
use bytes::BufMut;

/// Bytes of an [`ObjectId`] on the wire.
pub(super) const OBJECT: usize = 40;

/// A position in a buffer. Every read says what it reads, for the error.
pub(super) struct Reader<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at `at`, which may be beyond the end: then there is nothing to read.
    pub(super) fn new(buf: &'a [u8], at: usize) -> Reader<'a> {
        Reader { buf, at: at.min(buf.len()) }
    }

    /// Offset from the start of the buffer.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub(super) fn left(&self) -> usize {
        self.buf.len() - self.at
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = self.buf.get(self.at..).unwrap_or_default();
        let taken = rest.get(..len).ok_or(DecodeError::Truncated { what })?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = self.buf.get(self.at..).unwrap_or_default();
        let taken = rest.first_chunk::<N>().ok_or(DecodeError::Truncated { what })?;
        self.at += N;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self, what: &'static str) -> Result<u128, DecodeError> {
        self.array(what).map(u128::from_le_bytes)
    }

    /// Reads bytes that must be zero.
    pub(super) fn zeros(&mut self, len: usize, what: &'static str) -> Result<(), DecodeError> {
        if self.take(len, what)?.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Reserved { what });
        }
        Ok(())
    }

    /// Refuses a count above its limit, or one whose entries of at least `each` bytes cannot all be
    /// there; to be called before room for them is made.
    pub(super) fn count(
        &self,
        count: usize,
        limit: usize,
        each: usize,
        what: &'static str,
    ) -> Result<(), DecodeError> {
        at_most(count, limit, what)?;
        match count.checked_mul(each) {
            Some(size) if size <= self.left() => Ok(()),
            _ => Err(DecodeError::Truncated { what }),
        }
    }

    pub(super) fn text(
        &mut self,
        len: usize,
        limit: usize,
        what: &'static str,
    ) -> Result<String, DecodeError> {
        at_most(len, limit, what)?;
        let text = std::str::from_utf8(self.take(len, what)?).map_err(|_| DecodeError::Utf8 { what })?;
        Ok(text.to_owned())
    }

    pub(super) fn object(&mut self) -> Result<ObjectId, DecodeError> {
        let owner = NodeUid(self.u128("object id")?);
        let creator = NodeUid(self.u128("object id")?);
        let create_no = self.non_zero_u64("create_no")?;
        Ok(ObjectId { owner, creator, create_no })
    }

    pub(super) fn non_zero_u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.u64(what)? {
            0 => Err(DecodeError::Value { what, value: 0 }),
            value => Ok(value),
        }
    }

    pub(super) fn non_zero_u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        match self.u32(what)? {
            0 => Err(DecodeError::Value { what, value: 0 }),
            value => Ok(value),
        }
    }

    /// Nothing may follow what has been read.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}

/// Refuses what is above its limit.
pub(super) fn at_most(size: usize, limit: usize, what: &'static str) -> Result<(), DecodeError> {
    if size > limit {
        return Err(DecodeError::TooLarge { what, size: size as u64, limit: limit as u64 });
    }
    Ok(())
}

pub(super) fn put_object(buf: &mut Vec<u8>, id: &ObjectId) {
    buf.put_u128_le(id.owner.0);
    buf.put_u128_le(id.creator.0);
    buf.put_u64_le(id.create_no);
}

/// Writes a 16-bit length and the text. The caller has checked that the length fits.
pub(super) fn put_text(buf: &mut Vec<u8>, text: &str) {
    buf.put_u16_le(text.len() as u16);
    buf.put_slice(text.as_bytes());
}

/// The longest prefix of at most `limit` bytes that ends between two characters.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
