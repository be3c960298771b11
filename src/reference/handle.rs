//! One node's share of an object: what all clones of an `RRef` on a node have in common.

use crate::node::Node;
use crate::object::occupant::Occupant;
use rref_core::ObjectId;
use rref_core::lifetime::HandleKey;
use std::sync::{Arc, OnceLock, Weak};

/// A counted handle. Dropping the last share tells the node.
pub(crate) struct Handle {
    node: Node,
    key: HandleKey,
    /// For objects of this very node, once they are served in order: the way to them without the
    /// table. Weak, so that one that died or whose node has shut down is not kept.
    seat: OnceLock<Weak<dyn Occupant>>,
}

impl Handle {
    /// Takes over a handle that the lifetime table has counted already.
    pub(crate) fn counted(node: &Node, key: HandleKey) -> Arc<Handle> {
        Arc::new(Handle { node: node.clone(), key, seat: OnceLock::new() })
    }

    /// A handle of nothing: what a type gets while only its schema is traced.
    pub(crate) fn unreal() -> Arc<Handle> {
        let node = Node::nowhere();
        let id = ObjectId { owner: node.uid(), creator: node.uid(), create_no: 0 };
        Handle::counted(&node, HandleKey { id, generation: 0 })
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn key(&self) -> HandleKey {
        self.key
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.key.id
    }

    /// Whether the object lives on this node.
    pub(crate) fn is_local(&self) -> bool {
        self.key.id.owner == self.node.uid()
    }

    pub(crate) fn seat(&self) -> Option<Arc<dyn Occupant>> {
        self.seat.get()?.upgrade()
    }

    pub(crate) fn remember_seat(&self, seat: &Arc<dyn Occupant>) {
        let _ = self.seat.set(Arc::downgrade(seat));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.node.drop_handle(self.key);
    }
}
