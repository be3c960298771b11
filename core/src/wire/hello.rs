//! The handshake: the first bytes on a connection, either way.
//!
//! Knows the layout, not the policy: whether a peer is let in is decided elsewhere. A Hello is parsed
//! before anybody has shown who they are, so it is small (4 KiB at most), its layout is fixed for all
//! versions of the protocol, and it is refused at the first byte that is wrong.
//!
//! Integers are little-endian, offsets in bytes, `length` counts what follows it:
//!
//! ```text
//!  0 "rref" | 4 length u32 | 8 tag u8 | 9 by tag
//!
//! tag 1, Hello      9 channel u8 | 10 version_min u16 | 12 version_max u16 | 14 zero u16 | 16 token 16 bytes
//!                  32 endpoint
//! tag 2, accepted   9 zero u8 | 10 version u16 | 12 zero u32 | 16 endpoint
//! tag 3, rejected   9 reason u8 | 10 version_min u16 | 12 version_max u16 | 14 text length u16
//!                  16 uid u128 | 32 text
//!
//! endpoint          uid u128, features u64, recv_next u64, calls u64, call_bytes u64, window u64,
//!                   session_no u32, ttl_ms u32, addresses u16, name length u16, name, addresses x { length u16, text }
//! ```

use super::Limits;
use super::codec::{DecodeError, EncodeError};
use super::cursor::{Reader, at_most, cut, put_text};
use crate::{NodeUid, Seq};
use bytes::BufMut;
use std::fmt;

/// Bytes of the largest Hello or HelloAck, with magic and length.
pub const HELLO_MAX: usize = 4 << 10;

const MAGIC: [u8; 4] = *b"rref";
const PREFIX: usize = 8;
const HELLO: u8 = 1;
const ACCEPTED: u8 = 2;
const REJECTED: u8 = 3;

/// Names and addresses in a Hello have the default limits, whatever frames are configured to.
const LIMITS: &Limits = &Limits::DEFAULT;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Channel {
    /// The session's lane.
    Data = 1,
    /// Heartbeats.
    Keeper = 2,
}

/// What each side says of itself and of the session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its identity.
    pub uid: NodeUid,
    /// Its name in the cluster; at most 256 bytes.
    pub name: String,
    /// Where it can be reached, best first; at most 16, each of at most 256 bytes.
    pub addresses: Vec<String>,
    /// One bit for each optional feature it has. Unknown bits are ignored.
    pub features: u64,
    /// The session it speaks of; 0 if it knows of none.
    pub session_no: u32,
    /// The position of the frame it expects next.
    pub recv_next: Seq,
    /// Milliseconds after which a lease that nobody renews ends.
    pub ttl_ms: u32,
    /// Calls, casts and creations the other side may send at first: see
    /// [`Frame::Credit`](super::Frame::Credit).
    pub calls: u64,
    /// Bytes in them that the other side may send at first.
    pub call_bytes: u64,
    /// Unacknowledged bytes it accepts.
    pub window: u64,
}

/// The secret by which a launched process is recognised. It does not show in debug output, and comparing
/// takes the same time wherever two differ.
#[derive(Clone, Copy, Default, Eq)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// No token.
    pub const NONE: Token = Token([0; 16]);
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Token::NONE { "none" } else { "(secret)" })
    }
}

/// The first message of the side that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for.
    pub channel: Channel,
    /// Oldest version of the protocol it speaks, from 1.
    pub version_min: u16,
    /// Newest version of the protocol it speaks, not below `version_min`.
    pub version_max: u16,
    /// Its launch token, or [`Token::NONE`].
    pub token: Token,
    /// Who it is.
    pub endpoint: Endpoint,
}

/// Why a connection is turned down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RejectReason {
    /// No version in common.
    Version = 1,
    /// The token is not the one that was given out.
    Token = 2,
    /// Another live node has this name.
    NameTaken = 3,
    /// The other side's own connection attempt goes first.
    Simultaneous = 4,
    /// The session is not known.
    UnknownSession = 5,
    /// There is no such channel here, or none to which it belongs.
    WrongChannel = 6,
    /// The node is leaving.
    ShuttingDown = 7,
    /// This peer is not allowed in.
    Denied = 8,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloAck {
    /// The connection stands.
    Accepted {
        /// The version to speak, from 1.
        version: u16,
        /// Who the acceptor is.
        endpoint: Endpoint,
    },
    /// The connection is closed after this.
    Rejected {
        /// Why, for a program.
        reason: RejectReason,
        /// Why, for a person; cut to 1 KiB when it is written.
        text: String,
        /// Who says so.
        uid: NodeUid,
        /// Oldest version of the protocol it speaks, from 1.
        version_min: u16,
        /// Newest version of the protocol it speaks, not below `version_min`.
        version_max: u16,
    },
}

impl Hello {
    /// Its bytes.
    ///
    /// # Errors
    ///
    /// If name or addresses are too long, by themselves or together; if the versions are no range.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut buf = start(HELLO);
        check_versions(self.version_min, self.version_max)?;
        buf.put_u8(self.channel as u8);
        buf.put_u16_le(self.version_min);
        buf.put_u16_le(self.version_max);
        buf.put_u16_le(0);
        buf.put_slice(&self.token.0);
        put_endpoint(&mut buf, &self.endpoint)?;
        finish(buf)
    }

    /// Reads a Hello from the start of what has been received, and says how many bytes it took.
    ///
    /// `None` if more bytes are needed; there are never more than [`HELLO_MAX`].
    ///
    /// # Errors
    ///
    /// As soon as the bytes cannot become a Hello any more.
    pub fn decode(buf: &[u8]) -> Result<Option<(Hello, usize)>, DecodeError> {
        let Some((_, mut r, len)) = open(buf, &[HELLO])? else {
            return Ok(None);
        };
        let channel = match r.u8("channel")? {
            1 => Channel::Data,
            2 => Channel::Keeper,
            code => return Err(DecodeError::Value { what: "channel", value: code.into() }),
        };
        let (version_min, version_max) = versions(&mut r)?;
        r.zeros(2, "hello")?;
        let token = Token(r.array("token")?);
        let endpoint = endpoint(&mut r)?;
        r.end()?;
        Ok(Some((Hello { channel, version_min, version_max, token, endpoint }, len)))
    }
}

impl HelloAck {
    /// Its bytes.
    ///
    /// # Errors
    ///
    /// As [`Hello::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        match self {
            HelloAck::Accepted { version, endpoint } => {
                let mut buf = start(ACCEPTED);
                check_versions(*version, *version)?;
                buf.put_u8(0);
                buf.put_u16_le(*version);
                buf.put_u32_le(0);
                put_endpoint(&mut buf, endpoint)?;
                finish(buf)
            }
            HelloAck::Rejected { reason, text, uid, version_min, version_max } => {
                let mut buf = start(REJECTED);
                check_versions(*version_min, *version_max)?;
                let text = cut(text, LIMITS.text);
                buf.put_u8(*reason as u8);
                buf.put_u16_le(*version_min);
                buf.put_u16_le(*version_max);
                buf.put_u16_le(text.len() as u16);
                buf.put_u128_le(uid.0);
                buf.put_slice(text.as_bytes());
                finish(buf)
            }
        }
    }

    /// Reads a HelloAck, as [`Hello::decode`] reads a Hello.
    ///
    /// # Errors
    ///
    /// As soon as the bytes cannot become a HelloAck any more.
    pub fn decode(buf: &[u8]) -> Result<Option<(HelloAck, usize)>, DecodeError> {
        let Some((tag, mut r, len)) = open(buf, &[ACCEPTED, REJECTED])? else {
            return Ok(None);
        };
        let ack = if tag == ACCEPTED {
            r.zeros(1, "hello")?;
            let version = match r.u16("version")? {
                0 => return Err(DecodeError::Value { what: "version", value: 0 }),
                version => version,
            };
            r.zeros(4, "hello")?;
            HelloAck::Accepted { version, endpoint: endpoint(&mut r)? }
        } else {
            let reason = reason(r.u8("reason")?)?;
            let (version_min, version_max) = versions(&mut r)?;
            let len = r.u16("text")?.into();
            let uid = NodeUid(r.u128("uid")?);
            let text = r.text(len, LIMITS.text, "text")?;
            HelloAck::Rejected { reason, text, uid, version_min, version_max }
        };
        r.end()?;
        Ok(Some((ack, len)))
    }
}

fn start(tag: u8) -> Vec<u8> {
    let mut buf = Vec::with_capacity(256);
    buf.put_slice(&MAGIC);
    // Its length, once that is known.
    buf.put_u32_le(0);
    buf.put_u8(tag);
    buf
}

fn finish(mut buf: Vec<u8>) -> Result<Vec<u8>, EncodeError> {
    if buf.len() > HELLO_MAX {
        return Err(too_large("hello", buf.len(), HELLO_MAX));
    }
    let len = (buf.len() - PREFIX) as u32;
    buf.iter_mut().skip(MAGIC.len()).zip(len.to_le_bytes()).for_each(|(byte, value)| *byte = value);
    Ok(buf)
}

/// Checks what is there of magic, length and tag. Once all is there: the tag, a reader of what follows
/// it, and the bytes in all.
fn open<'a>(buf: &'a [u8], tags: &[u8]) -> Result<Option<(u8, Reader<'a>, usize)>, DecodeError> {
    if buf.iter().zip(&MAGIC).any(|(byte, magic)| byte != magic) {
        return Err(DecodeError::Magic);
    }
    let Some(said) = buf.get(MAGIC.len()..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Ok(None);
    };
    let said = u32::from_le_bytes(*said) as usize;
    at_most(said, HELLO_MAX - PREFIX, "hello")?;
    if said == 0 {
        return Err(DecodeError::Truncated { what: "hello" });
    }
    let Some(tag) = buf.get(PREFIX).copied() else {
        return Ok(None);
    };
    if !tags.contains(&tag) {
        return Err(DecodeError::Value { what: "hello tag", value: tag.into() });
    }
    let len = PREFIX + said;
    Ok(buf.get(..len).map(|all| (tag, Reader::new(all, PREFIX + 1), len)))
}

fn versions(r: &mut Reader<'_>) -> Result<(u16, u16), DecodeError> {
    let (min, max) = (r.u16("version")?, r.u16("version")?);
    if min == 0 || min > max {
        return Err(DecodeError::Value { what: "version", value: min.into() });
    }
    Ok((min, max))
}

fn check_versions(min: u16, max: u16) -> Result<(), EncodeError> {
    if min == 0 || min > max { Err(EncodeError::Invalid { what: "version" }) } else { Ok(()) }
}

fn reason(code: u8) -> Result<RejectReason, DecodeError> {
    Ok(match code {
        1 => RejectReason::Version,
        2 => RejectReason::Token,
        3 => RejectReason::NameTaken,
        4 => RejectReason::Simultaneous,
        5 => RejectReason::UnknownSession,
        6 => RejectReason::WrongChannel,
        7 => RejectReason::ShuttingDown,
        8 => RejectReason::Denied,
        _ => return Err(DecodeError::Value { what: "reason", value: code.into() }),
    })
}

fn too_large(what: &'static str, size: usize, limit: usize) -> EncodeError {
    EncodeError::TooLarge { what, size: size as u64, limit: limit as u64 }
}

fn put_endpoint(buf: &mut Vec<u8>, endpoint: &Endpoint) -> Result<(), EncodeError> {
    if endpoint.name.len() > LIMITS.name {
        return Err(too_large("node name", endpoint.name.len(), LIMITS.name));
    }
    if endpoint.addresses.len() > LIMITS.addresses {
        return Err(too_large("addresses", endpoint.addresses.len(), LIMITS.addresses));
    }
    if let Some(address) = endpoint.addresses.iter().find(|address| address.len() > LIMITS.address) {
        return Err(too_large("address", address.len(), LIMITS.address));
    }
    buf.put_u128_le(endpoint.uid.0);
    let numbers =
        [endpoint.features, endpoint.recv_next, endpoint.calls, endpoint.call_bytes, endpoint.window];
    for value in numbers {
        buf.put_u64_le(value);
    }
    buf.put_u32_le(endpoint.session_no);
    buf.put_u32_le(endpoint.ttl_ms);
    buf.put_u16_le(endpoint.addresses.len() as u16);
    put_text(buf, &endpoint.name);
    for address in &endpoint.addresses {
        put_text(buf, address);
    }
    Ok(())
}

fn endpoint(r: &mut Reader<'_>) -> Result<Endpoint, DecodeError> {
    let uid = NodeUid(r.u128("uid")?);
    let features = r.u64("features")?;
    let recv_next = r.u64("recv_next")?;
    let calls = r.u64("calls")?;
    let call_bytes = r.u64("call bytes")?;
    let window = r.u64("window")?;
    let session_no = r.u32("session_no")?;
    let ttl_ms = r.u32("ttl")?;
    let count = r.u16("addresses")?.into();
    let len = r.u16("node name")?.into();
    let name = r.text(len, LIMITS.name, "node name")?;
    let addresses = read_addresses(r, count, LIMITS)?;
    Ok(Endpoint { uid, name, addresses, features, session_no, recv_next, ttl_ms, calls, call_bytes, window })
}

/// Reads `count` addresses, each a 16-bit length and text.
pub(super) fn read_addresses(
    r: &mut Reader<'_>,
    count: usize,
    limits: &Limits,
) -> Result<Vec<String>, DecodeError> {
    r.count(count, limits.addresses, 2, "addresses")?;
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        let len = r.u16("address")?.into();
        addresses.push(r.text(len, limits.address, "address")?);
    }
    Ok(addresses)
}
