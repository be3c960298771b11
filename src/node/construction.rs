//! The owner's side of one creation: an obligation to seat the object or say why there is none.

use super::Node;
use super::objects::Entry;
use crate::error::{Error, Gone, Result};
use crate::object::invoke::{Completion, contained};
use crate::object::occupant::{Occupant, Occupied};
use crate::object::seat::{Death, Seat};
use crate::object::{Handled, Hosted, Site};
use crate::registry::Placement;
use rref_core::wire::GoneReason;
use rref_core::{NodeUid, ObjectId};
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::oneshot;

/// An object under construction. Dropped unsettled, its creation has failed.
pub(crate) struct Construction {
    node: Node,
    id: ObjectId,
    /// Whose creation it is, and what it takes of that node's credit, if it came from another node.
    creator: Option<(NodeUid, u64)>,
    settled: bool,
    placement: Placement,
}

impl Construction {
    pub(crate) fn new(node: &Node, id: ObjectId, creator: Option<(NodeUid, u64)>) -> Construction {
        let placement = Placement::Shared;
        Construction { node: node.clone(), id, creator, settled: false, placement }
    }

    /// The node that makes the object.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Where the object is to live.
    pub(crate) fn placed(mut self, placement: Placement) -> Construction {
        self.placement = placement;
        self
    }

    /// Starts the object's actor, where it is to live.
    ///
    /// Must run on the node's home arbiter.
    pub(crate) fn seat<T: Hosted>(self, object: T) {
        if self.placement != Placement::Dedicated || !self.node.inner().config.surroundings.has_threads() {
            return self.seat_here(object, None);
        }
        let (ended, end) = oneshot::channel();
        let name = format!("rref-{}", self.node.name());
        let thread = move || {
            actix_rt::System::new().block_on(async move {
                self.seat_here(object, Some(ended));
                // Dropped unsent if there is no actor.
                let _ = end.await;
            });
        };
        // A construction that is dropped with the closure has failed, and says so.
        if let Err(error) = std::thread::Builder::new().name(name).spawn(thread) {
            tracing::error!("cannot start a thread for an object: {error}");
        }
    }

    /// Starts the object's actor and serves the calls that wait for it, in order.
    /// `ended` is told when the actor no longer runs.
    fn seat_here<T: Hosted>(mut self, object: T, ended: Option<oneshot::Sender<()>>) {
        let (node, id) = (self.node.clone(), self.id);
        let started = contained(&node, std::any::type_name::<T>(), || {
            let on_death = {
                let node = node.clone();
                move |death| {
                    node.object_ended(id, death);
                    drop(ended);
                }
            };
            Ok(Seat::start(node.clone(), object.into_host(), on_death))
        });
        let seat = match started {
            Ok(seat) => seat,
            Err(error) => return self.fail(error),
        };
        self.settled = true;
        let occupant: Arc<dyn Occupant> = Arc::new(Occupied::<T>::new(seat));
        loop {
            let waiting = {
                let mut state = self.node.lock();
                match state.objects.get_mut(&self.id) {
                    // Calls that come while the first ones are served queue up behind them.
                    Some(Entry::Pending(queue)) if !queue.is_empty() => std::mem::take(queue),
                    Some(entry) => {
                        *entry = Entry::Live(occupant.clone());
                        state.lifetime.created(self.id);
                        state.creation_done(self.creator);
                        return;
                    }
                    None => return,
                }
            };
            for waiter in waiting {
                waiter(Ok(occupant.clone()), true);
            }
        }
    }

    /// Records that there is no object, and why; every call on its handles says so.
    pub(crate) fn fail(mut self, error: Error) {
        self.fail_with(error);
    }

    fn fail_with(&mut self, error: Error) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let cause = match error {
            Error::CreateFailed(cause) => cause,
            other => other.to_string(),
        };
        let mut state = self.node.lock();
        state.object_gone(self.id, &Error::CreateFailed(cause.clone()));
        let failed = Entry::Failed(Error::CreateFailed(cause.clone()));
        let before = state.objects.get_mut(&self.id).map(|entry| std::mem::replace(entry, failed));
        state.lifetime.create_failed(self.id, GoneReason::CreateFailed(cause.clone()));
        state.creation_done(self.creator);
        if let Some(Entry::Pending(waiting)) = before {
            for waiter in waiting {
                let cause = cause.clone();
                state.after(move || waiter(Err(Error::CreateFailed(cause)), true));
            }
        }
    }

    /// A completion that seats a handler's result.
    pub(crate) fn typed<R: Handled>(self) -> Keeping<R> {
        Keeping { construction: self, result: PhantomData }
    }
}

impl Drop for Construction {
    fn drop(&mut self) {
        if !self.settled {
            self.fail_with(Error::CreateFailed("its constructor was dropped".into()));
        }
    }
}

/// A [`Construction`] that waits for a handler's result.
pub(crate) struct Keeping<R> {
    construction: Construction,
    result: PhantomData<fn(R)>,
}

impl<R: Handled> Completion<R> for Keeping<R> {
    fn cancelled(&self) -> bool {
        // The object's number has been given out: something must become of it.
        false
    }

    fn complete(self, result: Result<R>) {
        match result {
            Ok(object) => object.keep(Site(self.construction)),
            Err(error) => self.construction.fail(error),
        }
    }
}

impl Node {
    /// An object's actor no longer runs.
    fn object_ended(&self, id: ObjectId, death: Death) {
        let (error, reason) = match death {
            Death::Panicked(text) => {
                tracing::warn!("object {id} died: {text}; its callers are told");
                (Error::ObjectDied { reason: text.clone() }, GoneReason::Died(text))
            }
            Death::Stopped => (Error::Gone(Gone::Stopped), GoneReason::Stopped),
        };
        let mut state = self.lock();
        // Freed objects have no entry any more: their actor was meant to stop.
        if let Some(entry) = state.objects.get_mut(&id) {
            let before = std::mem::replace(entry, Entry::Failed(error.clone()));
            state.object_gone(id, &error);
            state.lifetime.died(id, reason);
            state.later(before);
        }
    }
}
