//! What a message carries, on its way out and on its way in: handles, a postcard body, and tensors
//! beside it.
//!
//! Serde gives a type no way to reach the message it is serialised into, so a thread-local stack of
//! contexts does: [`Outgoing::encode`] and [`Incoming::decode`] push one, and the `Serialize` and
//! `Deserialize` of [`RRef`](crate::RRef) and [`Tensor`](crate::Tensor) find it. Knows handles;
//! must not know lanes, peers or objects.

mod guard;

use crate::error::{Error, Result};
use crate::node::Node;
use crate::reference::StreamStart;
use crate::reference::handle::Handle;
use bytes::Bytes;
use rref_core::wire::{Body, DType, Limits, Payload, Segment, SegmentData};
use serde::{Serialize, de::DeserializeOwned};
use std::{cell::RefCell, sync::Arc};

/// An encoded message that has no place in a lane yet: the *frame guard*.
///
/// It owns a share of every handle in the message, so that dropping the original handles while it
/// waits releases nothing, and dropping the guard undoes everything.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) refs: Vec<Arc<Handle>>,
    pub(crate) body: Bytes,
    pub(crate) segments: Vec<Segment>,
    /// The object that the message creates: held like those it names.
    pub(crate) creates: Option<Arc<Handle>>,
    /// The object it is addressed to: without this share, a release could pass the message by.
    pub(crate) target: Option<Arc<Handle>>,
}

/// A received message whose handles are already counted.
pub(crate) struct Incoming {
    pub(crate) node: Node,
    pub(crate) refs: Vec<Arc<Handle>>,
    pub(crate) body: Bytes,
    pub(crate) segments: Vec<Segment>,
    /// Set in the reply that starts a stream.
    pub(crate) stream: Option<StreamStart>,
}

enum Context {
    Encode { node: Node, refs: Vec<Arc<Handle>>, segments: Vec<Segment> },
    Decode { refs: Vec<Arc<Handle>>, segments: Vec<Option<Segment>> },
}

thread_local! {
    /// A stack, because a `Serialize` may itself encode another message.
    static CONTEXTS: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    /// Postcard drops the text of custom errors, so it is kept beside.
    static NOTE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Pops its context on every way out, unwinding included.
struct Scope;

impl Scope {
    fn push(context: Context) -> Scope {
        NOTE.set(None);
        CONTEXTS.with_borrow_mut(|stack| stack.push(context));
        Scope
    }

    fn finish(self) -> Option<Context> {
        std::mem::forget(self);
        CONTEXTS.with_borrow_mut(|stack| stack.pop())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Popped first and dropped after the borrow has ended: dropping a handle may come back here.
        let context = CONTEXTS.with_borrow_mut(|stack| stack.pop());
        drop(context);
    }
}

impl Outgoing {
    /// Encodes `value` as a message of `node`.
    ///
    /// On an error, or a panic in the type's own `Serialize`, every handle is as before.
    pub(crate) fn encode<T: Serialize + ?Sized>(node: &Node, value: &T) -> Result<Outgoing> {
        let scope =
            Scope::push(Context::Encode { node: node.clone(), refs: Vec::new(), segments: Vec::new() });
        let body = postcard::to_allocvec(value)
            .map_err(|error| NOTE.take().map_or_else(|| Error::Encode(error.to_string()), as_encode))?;
        let limit = Limits::default().body;
        if body.len() > limit {
            return Err(Error::TooLarge {
                what: "a message's body (tensors travel beside it)".into(),
                size: body.len() as u64,
                limit: limit as u64,
            });
        }
        match scope.finish() {
            Some(Context::Encode { refs, segments, .. }) => {
                Ok(Outgoing { refs, body: Bytes::from(body), segments, creates: None, target: None })
            }
            _ => Err(Error::Encode("the encoding context was lost".into())),
        }
    }

    /// The message as if it had travelled, for a receiver on the same node.
    pub(crate) fn arrived(self, node: &Node) -> Incoming {
        Incoming::new(node, self.refs, Body::Inline(self.body), self.segments)
    }

    /// Bytes of the body and the tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len() + self.segments.iter().map(segment_bytes).sum::<usize>()
    }
}

/// Bytes of a payload whose parts are all there: as many as its sender counted.
pub(crate) fn payload_bytes(payload: &Payload) -> u64 {
    let body = match &payload.body {
        Body::Inline(body) => body.len(),
        Body::Chunked => 0,
    };
    (body + payload.segments.iter().map(segment_bytes).sum::<usize>()) as u64
}

/// Bytes of an inline segment.
pub(crate) fn segment_bytes(segment: &Segment) -> usize {
    match &segment.data {
        SegmentData::Inline(bytes) => bytes.len(),
        SegmentData::Typed(storage) => storage.len() * segment.dtype.size(),
        SegmentData::Chunked => 0,
    }
}

impl Incoming {
    /// What a frame carried; its chunked parts are assembled already.
    pub(crate) fn new(node: &Node, refs: Vec<Arc<Handle>>, body: Body, segments: Vec<Segment>) -> Incoming {
        let body = match body {
            Body::Inline(bytes) => bytes,
            Body::Chunked => Bytes::new(),
        };
        Incoming { node: node.clone(), refs, body, segments, stream: None }
    }

    /// Decodes the body. Whatever comes of it, handles that the value did not take are released.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<T> {
        let segments = self.segments.into_iter().map(Some).collect();
        let _scope = Scope::push(Context::Decode { refs: self.refs, segments });
        guard::from_bytes(&self.body)
            .map_err(|error| NOTE.take().map_or_else(|| Error::Decode(error.to_string()), as_decode))
    }
}

fn as_encode(error: Error) -> Error {
    match error {
        Error::Decode(text) => Error::Encode(text),
        other => other,
    }
}

fn as_decode(error: Error) -> Error {
    match error {
        Error::Encode(text) => Error::Decode(text),
        other => other,
    }
}

/// Keeps `error` beside the serializer, which would lose it, and gives the text for it.
pub(crate) fn fail(error: Error) -> String {
    let text = error.to_string();
    NOTE.set(Some(error));
    text
}

/// Keeps a text beside the serializer, which would lose it.
pub(crate) fn note(text: String) -> String {
    NOTE.set(Some(Error::Encode(text.clone())));
    text
}

/// Whether the current thread is encoding or decoding a message.
pub(crate) fn in_message() -> bool {
    CONTEXTS.with_borrow(|stack| !stack.is_empty())
}

/// Puts a handle into the message being encoded and gives its index in the reference table.
pub(crate) fn put_handle(handle: &Arc<Handle>) -> Result<u32, String> {
    CONTEXTS.with_borrow_mut(|stack| match stack.last_mut() {
        Some(Context::Encode { node, refs, .. }) => {
            if !handle.node().is(node) {
                return Err(fail(Error::Encode(format!(
                    "a reference of node `{}` cannot travel in a message of node `{}`; send it from its own node",
                    handle.node().name(),
                    node.name()
                ))));
            }
            // Types may serialise a field twice, and values often hold one handle in many places.
            if let Some(index) = refs.iter().position(|held| held.id() == handle.id()) {
                return Ok(index as u32);
            }
            let limit = Limits::default().refs;
            if refs.len() >= limit {
                return Err(fail(Error::TooLarge {
                    what: "the number of references in a message".into(),
                    size: refs.len() as u64 + 1,
                    limit: limit as u64,
                }));
            }
            refs.push(handle.clone());
            Ok(refs.len() as u32 - 1)
        }
        _ => Err(fail(Error::NotInMessage)),
    })
}

/// The handle at `index` of the message being decoded.
pub(crate) fn take_handle(index: u32) -> Result<Arc<Handle>, String> {
    CONTEXTS.with_borrow(|stack| match stack.last() {
        Some(Context::Decode { refs, .. }) => refs.get(index as usize).cloned().ok_or_else(|| {
            note(format!("reference {index} is outside the message's table of {}", refs.len()))
        }),
        _ => Err(fail(Error::NotInMessage)),
    })
}

/// Puts a tensor's storage beside the message being encoded and gives its index.
pub(crate) fn put_segment(dtype: DType, shape: &[usize], bytes: Bytes) -> Result<u32, String> {
    CONTEXTS.with_borrow_mut(|stack| match stack.last_mut() {
        Some(Context::Encode { segments, .. }) => {
            let limit = Limits::default().segments;
            if segments.len() >= limit {
                return Err(fail(Error::TooLarge {
                    what: "the number of tensors in a message".into(),
                    size: segments.len() as u64 + 1,
                    limit: limit as u64,
                }));
            }
            segments.push(Segment { dtype, shape: shape.to_vec(), data: SegmentData::Inline(bytes) });
            Ok(segments.len() as u32 - 1)
        }
        _ => Err(note("a tensor's segment outside a message".into())),
    })
}

/// Takes the tensor at `index` out of the message being decoded; each can be taken once.
pub(crate) fn take_segment(index: u32) -> Result<Segment, String> {
    CONTEXTS.with_borrow_mut(|stack| match stack.last_mut() {
        Some(Context::Decode { segments, .. }) => segments
            .get_mut(index as usize)
            .and_then(Option::take)
            .ok_or_else(|| note(format!("segment {index} is not in the message, or used twice"))),
        _ => Err(note("a tensor's segment outside a message".into())),
    })
}
