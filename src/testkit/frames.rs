//! What the bytes on a connection are: frames, one by one, with their kinds.
//!
//! Knows the wire as `rref-core` reads it; must not know faults or time.

use bytes::{Buf, Bytes, BytesMut};
use rref_core::wire::{Frame, HELLO_MAX, Kind, Limits, NameKind, Source, Target, decode, frame_len, header};
use rref_core::{NodeUid, ObjectId};
use std::collections::BTreeMap;

/// Bytes before a handshake's length is known.
const GREETING: usize = 8;

/// One thing on its way: a frame, or bytes that are none.
pub(super) struct Piece {
    /// None for a handshake, and for bytes that are no frames.
    pub(super) kind: Option<Kind>,
    pub(super) bytes: Bytes,
}

/// What is expected next in one direction of a connection.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Greeting,
    Frames,
    /// Not frames, or not any more: passed on as it comes.
    Opaque,
}

/// Cuts one direction of a connection into frames.
pub(super) struct Splitter {
    stage: Stage,
    rest: BytesMut,
}

impl Splitter {
    pub(super) fn new() -> Splitter {
        Splitter { stage: Stage::Greeting, rest: BytesMut::new() }
    }

    /// Takes bytes in and gives what is complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.rest.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while !self.rest.is_empty() {
            let (kind, length) = match self.stage {
                Stage::Greeting => match self.greeting() {
                    Some(length) => (None, length),
                    None => break,
                },
                Stage::Frames => match frame_len(&self.rest, &Limits::DEFAULT) {
                    Ok(Some(length)) if length <= self.rest.len() => {
                        (self.rest.get(4).copied().and_then(Kind::from_code), length)
                    }
                    Ok(_) => break,
                    Err(_) => {
                        self.stage = Stage::Opaque;
                        continue;
                    }
                },
                Stage::Opaque => (None, self.rest.len()),
            };
            pieces.push(Piece { kind, bytes: self.rest.split_to(length).freeze() });
        }
        pieces
    }

    /// What has come of something incomplete.
    pub(super) fn remainder(&mut self) -> Option<Piece> {
        let bytes = self.rest.split().freeze();
        (!bytes.is_empty()).then_some(Piece { kind: None, bytes })
    }

    /// The length of a handshake message that is complete.
    fn greeting(&mut self) -> Option<usize> {
        let length = self.rest.get(4..GREETING)?;
        let length = GREETING + Buf::get_u32_le(&mut &length[..]) as usize;
        if !self.rest.starts_with(b"rref") || length > HELLO_MAX {
            self.stage = Stage::Opaque;
            return Some(self.rest.len());
        }
        if length > self.rest.len() {
            return None;
        }
        self.stage = Stage::Frames;
        Some(length)
    }
}

/// Whether a frame is outside of the lane's sequence: it says nothing that has to arrive.
pub(super) fn is_aside(frame: &[u8]) -> bool {
    header(frame).is_ok_and(|header| header.seq == 0)
}

/// What a node has told another of names, so that a trace can say what a call is for.
#[derive(Default)]
pub(super) struct Told {
    names: Vec<String>,
}

impl Told {
    /// A frame in a few words.
    pub(super) fn describe(&mut self, bytes: &Bytes, nodes: &BTreeMap<NodeUid, String>) -> String {
        let Ok(stamped) = decode(bytes.clone(), &Limits::DEFAULT) else { return String::new() };
        let object = |id: &ObjectId| object(*id, nodes);
        let list = |ids: &mut dyn Iterator<Item = ObjectId>| {
            ids.map(|id| object(&id)).collect::<Vec<_>>().join(", ")
        };
        match &stamped.frame {
            Frame::Name(name) => {
                let index = name.index as usize;
                // A peer of any kind may number as it likes: only the order that is agreed on counts.
                if index == self.names.len() + 1 {
                    self.names.push(short(name.kind, &name.path));
                }
                short(name.kind, &name.path)
            }
            Frame::Peer(peer) => peer.name.clone(),
            Frame::Create(create) => match create.source {
                Source::Function { name } => format!("#{} by {}", create.create_no, self.name(name)),
                Source::Message { object: on, name } => {
                    format!("#{} by {} to {}", create.create_no, self.name(name), object(&on))
                }
                Source::Copy { name } => format!("#{} as a copy of {}", create.create_no, self.name(name)),
            },
            Frame::Call(call) | Frame::Cast(call) => {
                let refs = match call.payload.refs.is_empty() {
                    true => String::new(),
                    false => format!(" with {}", list(&mut call.payload.refs.iter().copied())),
                };
                format!("{}{}{refs}", number(call.call_id), self.target(&call.target, nodes))
            }
            Frame::Reply(reply) | Frame::Item(reply) | Frame::End(reply) => {
                format!("{}{:?}", number(reply.call_id), reply.status)
            }
            Frame::Cancel { call_id } => format!("({call_id})"),
            Frame::Claim(objects) => list(&mut objects.iter().copied()),
            Frame::Release(objects) => list(&mut objects.iter().map(|(id, _)| *id)),
            Frame::Gone(objects) => list(&mut objects.iter().map(|(id, _)| *id)),
            Frame::Ack(_) => format!("up to {}", stamped.ack),
            Frame::More { call_id, items } => format!("({call_id}) {items}"),
            Frame::Credit { calls, bytes } => format!("{calls} calls, {bytes} bytes"),
            Frame::Leave(stage) => format!("{stage:?}"),
            Frame::Chunk(chunk) => format!("of transfer {}", chunk.transfer),
            Frame::InventoryBegin { next_create, .. } => format!("of all below #{next_create}"),
            Frame::InventoryItems(objects) => list(&mut objects.iter().copied()),
            Frame::InventoryEnd => String::new(),
            Frame::Heartbeat(beat) => format!("{} of session {}", beat.nonce, beat.session_no),
            Frame::HeartbeatEcho(echo) => format!("{} of session {}", echo.nonce, echo.session_no),
        }
    }

    fn name(&self, index: u32) -> &str {
        (index as usize).checked_sub(1).and_then(|index| self.names.get(index)).map_or("?", String::as_str)
    }

    fn target(&self, target: &Target, nodes: &BTreeMap<NodeUid, String>) -> String {
        let object = |id: ObjectId| object(id, nodes);
        match *target {
            Target::Function { name } => self.name(name).to_string(),
            Target::Message { object: on, name } | Target::Method { object: on, name } => {
                format!("{} to {}", self.name(name), object(on))
            }
            Target::Fetch { object: on, .. } => format!("fetch {}", object(on)),
            Target::Ready { object: on } => format!("ready? {}", object(on)),
            Target::Flush { object: on } => format!("flush {}", object(on)),
            Target::Ended { object: on } => format!("ended? {}", object(on)),
        }
    }
}

/// A call's number, so that its reply can be found.
fn number(call_id: u64) -> String {
    if call_id == 0 { String::new() } else { format!("({call_id}) ") }
}

/// `a/b#3`: object 3 that b asked a for.
fn object(id: ObjectId, nodes: &BTreeMap<NodeUid, String>) -> String {
    let name = |uid: NodeUid| nodes.get(&uid).cloned().unwrap_or_else(|| uid.to_string());
    format!("{}/{}#{}", name(id.owner), name(id.creator), id.create_no)
}

/// The last part of a path.
fn short(kind: NameKind, path: &str) -> String {
    match kind {
        NameKind::Type => path.to_string(),
        _ => path.rsplit("::").next().unwrap_or(path).to_string(),
    }
}
