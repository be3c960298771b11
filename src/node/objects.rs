//! The objects of this node, and the calls that wait for them to exist.

use super::peer::Link;
use super::state::State;
use crate::error::{Error, Gone, Result};
use crate::object::occupant::Occupant;
use rref_core::lifetime::{Arrival, GoneReason};
use rref_core::{NodeUid, ObjectId};
use std::collections::VecDeque;
use std::sync::Arc;

/// What to do with an object once it is there, or with the reason why it is not.
///
/// If the second argument is true, the call was counted as a reference to the object, and
/// `call_finished` is due when it ends.
pub(crate) type Waiter = Box<dyn FnOnce(Result<Arc<dyn Occupant>>, bool) + Send>;

/// Calls that may wait for one object to be created.
const WAITING_LIMIT: usize = 65_536;

/// An object of this node.
pub(crate) enum Entry {
    /// Under construction; calls wait in order.
    Pending(VecDeque<Waiter>),
    /// There.
    Live(Arc<dyn Occupant>),
    /// There is none, for this reason; kept while somebody holds it.
    Failed(Error),
}

impl State {
    /// Gives `waiter` the object, now or when it exists, after what was asked before.
    ///
    /// `waiter` runs after the state is unlocked.
    pub(crate) fn with_object(&mut self, id: ObjectId, waiter: Waiter) {
        let (result, counted) = match self.lifetime.call_arrived(id) {
            Arrival::Run | Arrival::Wait => match self.objects.get_mut(&id) {
                Some(Entry::Live(occupant)) => (Ok(occupant.clone()), true),
                Some(Entry::Pending(queue)) if queue.len() < WAITING_LIMIT => {
                    return queue.push_back(waiter);
                }
                Some(Entry::Pending(_)) => {
                    (Err(self.overloaded(format!("{WAITING_LIMIT} calls wait for {id} to be created"))), true)
                }
                Some(Entry::Failed(error)) => (Err(error.clone()), true),
                None => (Err(Error::Gone(Gone::Freed)), true),
            },
            Arrival::Park if self.is_dead(id.creator) => (Err(Error::Gone(Gone::CreatorDied)), false),
            Arrival::Park => {
                let parked = self.parked.entry(id).or_default();
                if parked.len() < WAITING_LIMIT {
                    return parked.push(waiter);
                }
                let reason = format!("{WAITING_LIMIT} calls wait for {id}, which is not created yet");
                (Err(self.overloaded(reason)), false)
            }
            Arrival::TooMany => {
                (Err(self.overloaded(format!("too many objects like {id} are not created yet"))), false)
            }
            Arrival::Failed(reason) | Arrival::Gone(reason) => (Err(Error::from(reason)), false),
            Arrival::NotOwner => (Err(Error::Gone(Gone::Freed)), false),
        };
        self.after(move || waiter(result, counted));
    }

    /// `creator` is gone for good: what it has not asked for will never be created.
    pub(crate) fn fail_parked(&mut self, creator: NodeUid) {
        let lost: Vec<ObjectId> = self.parked.keys().filter(|id| id.creator == creator).copied().collect();
        for id in lost {
            for waiter in self.parked.remove(&id).unwrap_or_default() {
                self.after(move || waiter(Err(Error::Gone(Gone::CreatorDied)), false));
            }
        }
    }

    /// An object that was expected will not be created.
    pub(crate) fn never_comes(&mut self, id: ObjectId, reason: GoneReason) {
        let error = Error::from(reason);
        for waiter in self.parked.remove(&id).unwrap_or_default() {
            let error = error.clone();
            self.after(move || waiter(Err(error), false));
        }
    }

    pub(crate) fn is_dead(&self, uid: NodeUid) -> bool {
        self.peers.get(&uid).is_some_and(|peer| matches!(peer.link, Link::Dead(_)))
    }

    fn overloaded(&self, reason: String) -> Error {
        Error::Overloaded { node: self.name.clone(), reason }
    }

    /// The creation of `id` has arrived: calls that came before it are asked for again.
    pub(crate) fn unpark(&mut self, id: ObjectId) {
        for waiter in self.parked.remove(&id).unwrap_or_default() {
            self.with_object(id, waiter);
        }
    }
}
