//! Frames: what nodes say to each other, as values and as bytes.
//!
//! - [`frame`] has the meaning, as plain types; [`codec`] the layout, and what can be wrong with it;
//! - [`encode()`] and [`decode()`] turn one into the other;
//! - [`hello`] is the handshake before the first frame;
//! - [`Assembly`] puts messages together that were too large for one frame;
//! - [`Limits`] says how large anything may be.
//!
//! Knows no socket, no lane and no meaning of a handle. Bytes come from a peer that may be hostile:
//! nothing here panics on them, and nothing is allocated for a size before that size has been compared
//! with a limit and with the bytes that are there.

pub mod codec;
mod cursor;
mod decode;
pub mod dtype;
mod encode;
pub mod frame;
pub mod hello;
mod limits;
mod measure;
mod storage;

pub use codec::{DecodeError, EncodeError, HEADER, Header, Kind, PROTOCOL_VERSION, frame_len, header};
pub use decode::decode;
pub use dtype::{DType, Storage};
pub use encode::{Encoded, encode};
pub use frame::*;
pub use hello::{Channel, Endpoint, HELLO_MAX, Hello, HelloAck, RejectReason, Token};
pub use limits::Limits;
pub use storage::{Assembly, StorageError, shape_bytes};
