//! The owner's side of one call: an obligation to answer it exactly once.

use super::Node;
use super::outgoing::Message;
use crate::error::{Error, RemoteKind, Result, WireError};
use crate::object::invoke::{Completion, contained};
use crate::payload::Outgoing;
use bytes::Bytes;
use rref_core::wire::Status;
use rref_core::{NodeUid, ObjectId};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Answers a call from another node. Dropped unanswered, it answers that there is no reply.
pub(crate) struct Responder {
    pub(crate) node: Node,
    pub(crate) caller: NodeUid,
    /// 0 for a cast: nobody waits.
    pub(crate) call_id: u64,
    /// The object it runs against, kept from being freed meanwhile.
    pub(crate) object: Option<ObjectId>,
    /// What was called, for errors.
    pub(crate) function: Arc<str>,
    /// Set when the caller no longer waits.
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    pub(crate) answered: bool,
}

impl Responder {
    /// Sends the result, or the error, to the caller.
    pub(crate) fn complete(mut self, result: Result<Outgoing>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<Outgoing>) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let reply = match result {
            Ok(payload) => Message::reply(self.call_id, Status::Ok, payload),
            Err(error) => {
                if self.call_id == 0 {
                    tracing::debug!("a cast of `{}` failed: {error}", self.function);
                }
                let body = postcard::to_allocvec(&WireError::of(error)).unwrap_or_default();
                let payload = Outgoing { body: Bytes::from(body), ..Outgoing::default() };
                Message::reply(self.call_id, Status::Failed, payload)
            }
        };
        let mut state = self.node.lock();
        if let Some(object) = self.object {
            state.lifetime.call_finished(object);
        }
        state.call_done(self.caller, self.call_id);
        if self.call_id != 0 {
            state.submit(self.caller, reply);
        } else {
            state.later(reply);
        }
    }

    /// A completion for a result that `encode` turns into a message.
    pub(crate) fn encoding<R>(self, encode: fn(&Node, R) -> Result<Outgoing>) -> Encoding<R> {
        Encoding { responder: self, encode, result: PhantomData }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let error = Error::Remote {
                kind: RemoteKind::NoReply,
                message: "the call was dropped".into(),
                node: self.node.name().to_string(),
                function: self.function.to_string(),
                trace_id: 0,
            };
            self.answer(Err(error));
        }
    }
}

impl Completion<Outgoing> for Responder {
    fn cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    fn complete(self, result: Result<Outgoing>) {
        Responder::complete(self, result);
    }
}

impl Completion<()> for Responder {
    fn cancelled(&self) -> bool {
        Completion::<Outgoing>::cancelled(self)
    }

    fn complete(self, result: Result<()>) {
        Responder::complete(self, result.map(|()| Outgoing::default()));
    }
}

/// A [`Responder`] for results that are still to be encoded.
pub(crate) struct Encoding<R> {
    responder: Responder,
    encode: fn(&Node, R) -> Result<Outgoing>,
    result: PhantomData<fn(R)>,
}

impl<R: 'static> Completion<R> for Encoding<R> {
    fn cancelled(&self) -> bool {
        Completion::<Outgoing>::cancelled(&self.responder)
    }

    fn complete(self, result: Result<R>) {
        let Encoding { responder, encode, .. } = self;
        // The type's `Serialize` is user code.
        let encoded = result.and_then(|value| {
            contained(&responder.node, &responder.function, || encode(&responder.node, value))
        });
        responder.complete(encoded);
    }
}
