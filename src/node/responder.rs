//! The owner's side of one call: an obligation to answer it exactly once.

use super::Node;
use super::outgoing::Message;
use super::trace::Traced;
use crate::error::{Error, RemoteKind, Result, WireError};
use crate::object::invoke::{Completion, contained};
use crate::object::{Answer, Handled};
use crate::payload::Outgoing;
use bytes::Bytes;
use rref_core::wire::{Status, Trace};
use rref_core::{NodeUid, ObjectId};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// Answers a call from another node. Dropped unanswered, it answers that there is no reply.
pub(crate) struct Responder {
    pub(crate) node: Node,
    pub(crate) caller: NodeUid,
    /// 0 for a cast: nobody waits.
    pub(crate) call_id: u64,
    /// Of the caller's credit, what the call takes.
    pub(crate) bytes: u64,
    /// The object it runs against, kept from being freed meanwhile.
    pub(crate) object: Option<ObjectId>,
    /// What was called, for errors.
    pub(crate) function: Arc<str>,
    /// Set when the caller no longer waits.
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    /// After this the caller no longer waits.
    pub(crate) deadline: Option<Instant>,
    pub(crate) answered: bool,
    /// Whether elements have been announced, so that the answer is the end of a stream.
    pub(crate) streaming: bool,
    /// The trace it belongs to, once it has begun; its span ends with the answer.
    pub(crate) traced: Traced,
}

impl Responder {
    /// Sends the result, or the error, to the caller.
    pub(crate) fn complete(mut self, result: Result<Outgoing>) {
        self.node.inner().handled.count(result.as_ref().err());
        self.answer(result);
    }

    /// Tells one who watches an object that it has ended: no call has failed by that.
    pub(crate) fn ended(mut self, reason: Error) {
        self.answer(Err(reason));
    }

    /// The call begins: gives what its code must be run in.
    pub(crate) fn begin(&mut self, trace: Trace) -> Traced {
        self.traced = Traced::arrived(&self.node, self.caller, &self.function, trace);
        self.traced.clone()
    }

    /// Whether the caller no longer waits, so that the call need not start.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Acquire))
            || self.deadline.is_some_and(|deadline| self.node.inner().config.surroundings.now() >= deadline)
    }

    fn answer(&mut self, result: Result<Outgoing>) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let message = if self.streaming { Message::end } else { Message::reply };
        let reply = match result {
            Ok(payload) => message(self.call_id, Status::Ok, payload),
            Err(error) => {
                if self.call_id == 0 {
                    tracing::debug!("a cast of `{}` failed: {error}", self.function);
                }
                let body = postcard::to_allocvec(&WireError::of(error)).unwrap_or_default();
                let payload = Outgoing { body: Bytes::from(body), ..Outgoing::default() };
                message(self.call_id, Status::Failed, payload)
            }
        };
        let mut state = self.node.lock();
        if let Some(object) = self.object {
            state.lifetime.call_finished(object);
        }
        state.call_done(self.caller, self.call_id, self.bytes);
        if self.call_id != 0 {
            state.submit(self.caller, reply);
        } else {
            state.later(reply);
        }
    }

    /// A completion that sends a handler's result, or the elements of one that streams.
    pub(crate) fn answering<R: Handled>(self) -> Answering<R> {
        Answering { responder: self, result: PhantomData }
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
                trace_id: self.traced.id(),
            };
            self.node.inner().handled.count(Some(&error));
            self.answer(Err(error));
        }
    }
}

impl Completion<Outgoing> for Responder {
    fn cancelled(&self) -> bool {
        self.is_cancelled()
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

/// A [`Responder`] for a handler's result.
pub(crate) struct Answering<R> {
    responder: Responder,
    result: PhantomData<fn(R)>,
}

impl<R: Handled> Completion<R> for Answering<R> {
    fn cancelled(&self) -> bool {
        self.responder.is_cancelled()
    }

    fn complete(self, result: Result<R>) {
        match result {
            Ok(value) => value.respond(Answer(self.responder)),
            Err(error) => self.responder.complete(Err(error)),
        }
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
