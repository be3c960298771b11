//! A seated object with its type erased: what the node's table of objects holds.

use super::seat::{Seat, Verdict};
use super::{Hosted, invoke};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::responder::Responder;
use std::any::{Any, TypeId};
use std::borrow::Cow;

/// Told when a flush is done.
pub(crate) type Flushed = Box<dyn FnOnce(Result<()>) + Send>;

/// An object in its seat.
pub(crate) trait Occupant: Send + Sync {
    /// Its `Seat<T::Host>`.
    fn seat(&self) -> &dyn Any;
    /// The type of its seat.
    fn seat_type(&self) -> TypeId;
    /// The object's name on the wire.
    fn wire_name(&self) -> Cow<'static, str>;
    /// Calls that wait in its queue.
    fn queued(&self) -> usize;
    /// Ends it once what is queued has run.
    fn stop(&self);
    /// Answers once what is queued has run.
    fn flush(&self, node: &Node, done: Flushed);
    /// Sends a snapshot; `schema` is what the caller takes the type for.
    fn fetch(&self, node: &Node, path: &str, schema: u128, responder: Responder);
}

/// An object of type `T` in its seat.
pub(crate) struct Occupied<T: Hosted> {
    seat: Seat<T::Host>,
}

impl<T: Hosted> Occupied<T> {
    pub(crate) fn new(seat: Seat<T::Host>) -> Occupied<T> {
        Occupied { seat }
    }
}

impl<T: Hosted> Occupant for Occupied<T> {
    fn seat(&self) -> &dyn Any {
        &self.seat
    }

    fn seat_type(&self) -> TypeId {
        TypeId::of::<Seat<T::Host>>()
    }

    fn wire_name(&self) -> Cow<'static, str> {
        T::wire_name()
    }

    fn queued(&self) -> usize {
        self.seat.queued()
    }

    fn flush(&self, node: &Node, done: Flushed) {
        invoke::with_host(&self.seat, node, "flush", |_| Ok(()), done);
    }

    fn stop(&self) {
        self.seat.queue(Box::new(|_, _, _| Verdict::Stop));
    }

    fn fetch(&self, node: &Node, path: &str, schema: u128, responder: Responder) {
        let name = T::wire_name();
        if name != path {
            let error = Error::WrongType { expected: path.to_string(), found: name.into_owned() };
            return responder.complete(Err(error));
        }
        let Some(fetcher) = T::fetcher() else {
            let reason = format!("`{name}` is an actor without a snapshot");
            return responder.complete(Err(Error::Encode(reason)));
        };
        let ours = match (fetcher.schema)() {
            Ok(ours) => ours,
            Err(reason) => return responder.complete(Err(Error::Encode(reason))),
        };
        if ours != schema {
            let node = node.name().to_string();
            let error = Error::SchemaMismatch { path: path.to_string(), node, ours: schema, theirs: ours };
            return responder.complete(Err(error));
        }
        let on = node.clone();
        invoke::with_host(&self.seat, node, "to_here", move |host| (fetcher.fetch)(host, &on), responder);
    }
}
