//! One node's share of an object: what all clones of an `RRef` on a node have in common.

use crate::node::Node;
use crate::object::occupant::Occupant;
use rref_core::lifetime::HandleKey;
use rref_core::{NodeUid, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// A counted handle. Dropping the last share tells the node. Small, for there may be millions.
pub(crate) struct Handle {
    origin: Arc<Origin>,
    create_no: u64,
    /// For objects of this very node, once they are served in order: the way to them without the
    /// table. Weak, so that one that died or whose node has shut down is not kept.
    seat: OnceLock<Box<Weak<dyn Occupant>>>,
    generation: u32,
}

/// What many handles of a node have in common.
struct Origin {
    node: Node,
    owner: NodeUid,
    creator: NodeUid,
}

/// The origins in use on one node, by owner and creator. Weak: each is kept by its handles.
#[derive(Default)]
pub(crate) struct Origins(Mutex<HashMap<(NodeUid, NodeUid), Weak<Origin>>>);

impl Origins {
    fn of(&self, node: &Node, owner: NodeUid, creator: NodeUid) -> Arc<Origin> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = known.get(&(owner, creator)).and_then(Weak::upgrade) {
            return origin;
        }
        if known.len() == known.capacity() {
            known.retain(|_, origin| origin.strong_count() > 0);
        }
        let origin = Arc::new(Origin { node: node.clone(), owner, creator });
        known.insert((owner, creator), Arc::downgrade(&origin));
        origin
    }
}

impl Handle {
    /// Takes over a handle that the lifetime table has counted already.
    pub(crate) fn counted(node: &Node, key: HandleKey) -> Arc<Handle> {
        let HandleKey { id: ObjectId { owner, creator, create_no }, generation } = key;
        let origin = node.inner().origins.of(node, owner, creator);
        Arc::new(Handle { origin, create_no, seat: OnceLock::new(), generation })
    }

    /// A handle of nothing: what a type gets while only its schema is traced.
    pub(crate) fn unreal() -> Arc<Handle> {
        let node = Node::nowhere();
        let id = ObjectId { owner: node.uid(), creator: node.uid(), create_no: 0 };
        Handle::counted(&node, HandleKey { id, generation: 0 })
    }

    pub(crate) fn node(&self) -> &Node {
        &self.origin.node
    }

    pub(crate) fn key(&self) -> HandleKey {
        HandleKey { id: self.id(), generation: self.generation }
    }

    pub(crate) fn id(&self) -> ObjectId {
        let Origin { owner, creator, .. } = *self.origin;
        ObjectId { owner, creator, create_no: self.create_no }
    }

    /// Whether the object lives on this node.
    pub(crate) fn is_local(&self) -> bool {
        self.origin.owner == self.origin.node.uid()
    }

    pub(crate) fn seat(&self) -> Option<Arc<dyn Occupant>> {
        self.seat.get()?.upgrade()
    }

    pub(crate) fn remember_seat(&self, seat: &Arc<dyn Occupant>) {
        let _ = self.seat.set(Box::new(Arc::downgrade(seat)));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.origin.node.drop_handle(self.key());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_stay_small() {
        // With the counts of its Arc, what an allocator gives in 64 bytes.
        assert!(size_of::<Handle>() <= 40, "{}", size_of::<Handle>());
    }

    #[test]
    fn origins_are_shared_and_not_kept() {
        let node = Node::nowhere();
        let origins = Origins::default();
        let of = |creator| origins.of(&node, node.uid(), NodeUid(creator));
        let (one, same, other) = (of(1), of(1), of(2));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same, other));
        for creator in 0..1000 {
            of(creator);
        }
        assert!(origins.0.lock().unwrap().len() < 20);
    }
}
