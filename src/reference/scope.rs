//! Scopes: stop, at one place, what was made in it.

use super::RRef;
use crate::cluster::Peer;
use crate::error::Result;
use crate::node::{Node, builtin};
use crate::object::{Accepts, Object, Outcome, RemoteMessage};
use crate::reference::any::AnyRef;
use crate::registry::Function;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects that end together: closing the scope stops what was created in it, whoever still holds it.
///
/// For cycles of references between nodes, which are not collected, and for work whose objects must
/// not outlive it.
///
/// ```
/// use rref::prelude::*;
///
/// fn zero() -> i64 { 0 }
///
/// # actix::System::new().block_on(async {
/// let node = Node::builder("me").function(zero).start().await?;
/// let scope = node.scope();
/// let x: RRef<i64> = scope.remote("me", zero, ())?;
/// x.ready().await?;
/// scope.close().await;
/// assert!(matches!(x.to_here().await, Err(Error::Gone(_))));
/// # node.shutdown().await;
/// # Ok::<_, Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Scope {
    node: Node,
    members: Arc<Mutex<Vec<AnyRef>>>,
}

impl Node {
    /// An empty scope.
    pub fn scope(&self) -> Scope {
        Scope { node: self.clone(), members: Arc::default() }
    }
}

impl Scope {
    /// As [`Node::remote`]; the object belongs to the scope.
    ///
    /// # Errors
    /// Those of [`Node::remote`].
    pub fn remote<F, Args, K>(
        &self,
        peer: impl Into<Peer>,
        function: F,
        args: Args,
    ) -> Result<RRef<<F::Return as Outcome<F::Kind>>::Object>>
    where
        F: Function<Args, K>,
        F::Return: Outcome<F::Kind>,
        Args: Send + 'static,
    {
        self.node.remote(peer, function, args).inspect(|made| self.add(made))
    }

    /// As [`RRef::remote`]; the new object belongs to the scope.
    ///
    /// # Errors
    /// Those of [`RRef::remote`].
    pub fn send_remote<T, M>(&self, object: &RRef<T>, message: M) -> Result<RRef<M::Result>>
    where
        M: RemoteMessage<Result: Object>,
        T: Accepts<M>,
    {
        object.remote(message).inspect(|made| self.add(made))
    }

    /// Puts an object that exists into the scope.
    pub fn add<T: Object>(&self, object: &RRef<T>) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).push(AnyRef::of(object));
    }

    /// Stops every object of the scope and waits until their owners have done so.
    ///
    /// Owners that are lost are passed over: their objects are lost too.
    pub async fn close(self) {
        let members = std::mem::take(&mut *self.members.lock().unwrap_or_else(PoisonError::into_inner));
        let stops: Vec<_> = members
            .into_iter()
            .map(|member| self.node.ask(member.handle().id().owner, builtin::stop, (member,)))
            .collect();
        for stop in stops {
            if let Err(error) = stop.await {
                tracing::debug!("an object of a scope could not be stopped: {error}");
            }
        }
    }
}
