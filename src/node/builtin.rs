//! What every node can be asked for without being told so: functions like any user's, registered by
//! the builder, for what is about references themselves.

use super::state::Phase;
use super::{Entry, Node};
use crate::error::{Error, Gone, Result};
use crate::object::{Object, Response};
use crate::reference::any::AnyRef;
use crate::reference::handle::Handle;
use crate::reference::{RRef, Request};
use crate::registry::Function;
use rref_core::lifetime::{Arrival, HandleKey};
use rref_core::wire::GoneReason;
use rref_core::{NodeUid, ObjectId};

/// Names and labels that a node keeps.
const DIRECTORY_LIMIT: usize = 65_536;

impl super::Builder {
    /// Registers what every node offers.
    pub(super) fn builtins(self) -> Self {
        self.function_as("rref.upgrade", upgrade)
            .function_as("rref.stop", stop)
            .function_as("rref.share", share)
            .function_as("rref.lookup", lookup)
            .function_as("rref.type_names", type_names)
    }
}

/// A strong reference to an object of this node, if it is there.
pub(crate) fn upgrade(owner: u128, creator: u128, create_no: u64) -> Option<AnyRef> {
    let node = Node::current()?;
    let id = ObjectId { owner: NodeUid(owner), creator: NodeUid(creator), create_no };
    let mut state = node.lock();
    // A call counts as a reference for as long as the handle needs to come into being.
    match state.lifetime.call_arrived(id) {
        Arrival::Run | Arrival::Wait => {}
        _ => return None,
    }
    let type_name = match state.objects.get(&id) {
        Some(Entry::Live(occupant)) => occupant.wire_name().into_owned(),
        _ => {
            state.lifetime.call_finished(id);
            return None;
        }
    };
    let key = HandleKey { id, generation: 0 };
    state.lifetime.clone_handle(key);
    state.lifetime.call_finished(id);
    drop(state);
    Some(AnyRef::new(Handle::counted(&node, key), type_name))
}

/// Ends an object of this node, whoever holds it; calls that are queued still run.
pub(crate) fn stop(object: AnyRef) {
    let Some(node) = Node::current() else { return };
    let id = object.handle().id();
    let mut state = node.lock();
    let Some(entry) = state.objects.get_mut(&id) else { return };
    let before = std::mem::replace(entry, Entry::Failed(Error::Gone(Gone::Stopped)));
    if let Entry::Failed(error) = before {
        state.objects.insert(id, Entry::Failed(error));
        return;
    }
    state.object_gone(id, &Error::Gone(Gone::Stopped));
    state.lifetime.died(id, GoneReason::Stopped);
    if let Entry::Pending(waiting) = before {
        for waiter in waiting {
            state.after(move || waiter(Err(Error::Gone(Gone::Stopped)), true));
        }
    } else if let Entry::Live(occupant) = before {
        state.after(move || occupant.stop());
    }
}

/// Keeps a reference here under a label, for [`Node::shared`].
pub(crate) fn share(label: String, object: AnyRef) -> Result<(), String> {
    let Some(node) = Node::current() else { return Err("no node runs this".into()) };
    node.put_name(label, object).map_err(|error| error.to_string())
}

/// The names of the types of objects of this node, by creator and number; empty for those that are not there.
pub(crate) fn type_names(objects: Vec<(u128, u64)>) -> Vec<String> {
    let Some(node) = Node::current() else { return Vec::new() };
    let state = node.lock();
    let type_name = |(creator, create_no): (u128, u64)| {
        let id = ObjectId { owner: node.uid(), creator: NodeUid(creator), create_no };
        match state.objects.get(&id) {
            Some(Entry::Live(occupant)) => occupant.wire_name().into_owned(),
            _ => String::new(),
        }
    };
    objects.into_iter().map(type_name).collect()
}

/// The reference that is kept here under a name.
pub(crate) fn lookup(name: String) -> Option<AnyRef> {
    let node = Node::current()?;
    node.lock().directory.get(&name).cloned()
}

impl Node {
    /// Calls a function on the node with this identity; used for functions of this module.
    pub(crate) fn ask<F, Args, K>(&self, to: NodeUid, function: F, args: Args) -> Request<F::Return>
    where
        F: Function<Args, K>,
        F::Return: Response,
        Args: Send + 'static,
    {
        if to == self.uid() {
            return self.call(self.name(), function, args);
        }
        self.call_uid(to, function, &args)
    }

    /// Keeps a reference under a name; others find it with [`Node::lookup`].
    ///
    /// The name keeps the object alive until [`Node::unregister_name`] or the node's shutdown. A name
    /// that is in use is given to the new object.
    ///
    /// # Errors
    /// [`Error::ShuttingDown`]; [`Error::Overloaded`] for more than 65,536 names.
    pub fn register_name<T: Object>(&self, name: impl Into<String>, object: &RRef<T>) -> Result<()> {
        self.put_name(name.into(), AnyRef::of(object))
    }

    /// Forgets a name; true if there was one.
    pub fn unregister_name(&self, name: &str) -> bool {
        let mut state = self.lock();
        let before = state.directory.remove(name);
        let found = before.is_some();
        state.later(before);
        found
    }

    pub(super) fn put_name(&self, name: String, object: AnyRef) -> Result<()> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(Error::ShuttingDown { node: self.name().to_string() });
        }
        if state.directory.len() >= DIRECTORY_LIMIT && !state.directory.contains_key(&name) {
            let reason = format!("it keeps {DIRECTORY_LIMIT} names already");
            return Err(Error::Overloaded { node: self.name().to_string(), reason });
        }
        let before = state.directory.insert(name, object);
        state.later(before);
        drop(state);
        self.inner().names_changed.notify_waiters();
        Ok(())
    }

    /// Finds a reference by name: `"param-server@worker1"` asks that node, a bare name this one.
    ///
    /// # Errors
    /// [`Error::UnknownName`] if the node has no such name, [`Error::WrongType`] if it names an
    /// object of another type, and those of [`Node::call`].
    pub async fn lookup<T: Object>(&self, name: &str) -> Result<RRef<T>> {
        let (name, peer) = name.rsplit_once('@').unwrap_or((name, self.name()));
        match self.call(peer, lookup, (name.to_string(),)).await? {
            Some(found) => found.typed(),
            None => Err(Error::UnknownName { name: name.to_string(), node: peer.to_string() }),
        }
    }

    /// Waits for what another node shares with this one under a label: see [`RRef::share_with`].
    ///
    /// # Errors
    /// [`Error::WrongType`], [`Error::ShuttingDown`]; wrap it in a timeout to bound the wait.
    pub async fn shared<T: Object>(&self, label: &str) -> Result<RRef<T>> {
        loop {
            let changed = self.inner().names_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.lock();
                if let Some(found) = state.directory.get(label).cloned() {
                    drop(state);
                    return found.typed();
                }
                if state.phase == Phase::Closed {
                    return Err(Error::ShuttingDown { node: self.name().to_string() });
                }
            }
            changed.await;
        }
    }
}

impl<T: Object> RRef<T> {
    /// Gives `peer` a share of the object under a label; there `node.shared(label)` gets it.
    ///
    /// No data is copied. The label keeps the object alive on that node until
    /// [`Node::unregister_name`].
    ///
    /// # Errors
    /// Those of [`Node::call`]; [`Error::Overloaded`].
    pub async fn share_with(&self, peer: impl Into<crate::Peer>, label: impl Into<String>) -> Result<()> {
        let peer = peer.into();
        let name = peer.clone().into_name();
        let shared = self.node().call(peer, share, (label.into(), AnyRef::of(self))).await?;
        shared.map_err(|reason| Error::Overloaded { node: name, reason })
    }

    /// Ends the object, whoever still holds it: later calls fail with
    /// [`Error::Gone`]`(`[`Gone::Stopped`]`)`, those that are queued still run.
    ///
    /// # Errors
    /// Those of [`Node::call`].
    pub fn stop(&self) -> Request<()> {
        self.node().ask(self.id().owner, stop, (AnyRef::of(self),))
    }
}
