//! References that do not keep their object alive.

use super::{RRef, Request};
use crate::error::Result;
use crate::node::{Node, builtin};
use crate::object::Object;
use rref_core::ObjectId;
use std::fmt;
use std::marker::PhantomData;

/// A reference that does not keep its object alive: the tool against cycles.
///
/// Made by [`RRef::downgrade`]. It belongs to its node and cannot be sent; send a strong reference
/// and downgrade that.
pub struct WeakRRef<T> {
    node: Node,
    id: ObjectId,
    object: PhantomData<fn() -> T>,
}

impl<T: Object> RRef<T> {
    /// A reference to the same object that does not keep it alive.
    pub fn downgrade(&self) -> WeakRRef<T> {
        WeakRRef { node: self.node().clone(), id: self.id(), object: PhantomData }
    }
}

impl<T: Object> WeakRRef<T> {
    /// The object's identity.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Asks the owner for a strong reference; none if the object is freed, failed or stopped.
    ///
    /// # Errors
    /// What keeps the owner from answering: [`Error::OwnerDied`](crate::Error::OwnerDied),
    /// [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Timeout`](crate::Error::Timeout),
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown),
    /// [`Error::ShuttingDown`](crate::Error::ShuttingDown); and
    /// [`Error::WrongType`](crate::Error::WrongType).
    pub async fn upgrade(&self) -> Result<Option<RRef<T>>> {
        let id = self.id;
        let request: Request<_> =
            self.node.ask(id.owner, builtin::upgrade, (id.owner.0, id.creator.0, id.create_no));
        match request.await? {
            Some(found) => found.typed().map(Some),
            None => Ok(None),
        }
    }
}

impl<T> Clone for WeakRRef<T> {
    fn clone(&self) -> WeakRRef<T> {
        WeakRRef { node: self.node.clone(), id: self.id, object: PhantomData }
    }
}

impl<T> fmt::Debug for WeakRRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakRRef({})", self.id)
    }
}
