//! Small ordered containers that keep a million entries affordable.
//!
//! They know how to store, and nothing of what is stored.

use crate::{NodeUid, ObjectId, Stamp};
use std::collections::BTreeMap;

/// A map from object to `T`, grouped by (owner, creator).
///
/// The 48 bytes of an [`ObjectId`] would outweigh most entries; grouped, an entry's key is its
/// `create_no` alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table<T> {
    groups: BTreeMap<(NodeUid, NodeUid), BTreeMap<u64, T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { groups: BTreeMap::new() }
    }
}

impl<T> Table<T> {
    pub(super) fn get(&self, id: &ObjectId) -> Option<&T> {
        self.groups.get(&(id.owner, id.creator))?.get(&id.create_no)
    }

    pub(super) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut T> {
        self.groups.get_mut(&(id.owner, id.creator))?.get_mut(&id.create_no)
    }

    pub(super) fn contains(&self, id: &ObjectId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn insert(&mut self, id: ObjectId, value: T) {
        self.groups.entry((id.owner, id.creator)).or_default().insert(id.create_no, value);
    }

    pub(super) fn get_or_insert_with(&mut self, id: ObjectId, make: impl FnOnce() -> T) -> &mut T {
        let group = self.groups.entry((id.owner, id.creator)).or_default();
        group.entry(id.create_no).or_insert_with(make)
    }

    pub(super) fn remove(&mut self, id: &ObjectId) -> Option<T> {
        let group = self.groups.get_mut(&(id.owner, id.creator))?;
        let value = group.remove(&id.create_no);
        if group.is_empty() {
            self.groups.remove(&(id.owner, id.creator));
        }
        value
    }

    /// Entries in all, counted group by group.
    pub(super) fn len(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, &T)> {
        self.groups.iter().flat_map(|(&(owner, creator), group)| {
            group.iter().map(move |(&create_no, value)| (ObjectId { owner, creator, create_no }, value))
        })
    }

    /// The entries of one group.
    pub(super) fn of(&self, owner: NodeUid, creator: NodeUid) -> impl Iterator<Item = (ObjectId, &T)> {
        let group = self.groups.get(&(owner, creator)).into_iter().flatten();
        group.map(move |(&create_no, value)| (ObjectId { owner, creator, create_no }, value))
    }

    /// The latest entry of each group, with its creator.
    pub(super) fn latest(&self) -> impl Iterator<Item = (NodeUid, &T)> {
        self.groups.iter().filter_map(|((_, creator), group)| Some((*creator, group.last_key_value()?.1)))
    }

    /// The latest entry of one group.
    pub(super) fn latest_of(&self, owner: NodeUid, creator: NodeUid) -> Option<&T> {
        Some(self.groups.get(&(owner, creator))?.last_key_value()?.1)
    }

    /// The owners that occur, each once or more.
    pub(super) fn owners(&self) -> impl Iterator<Item = NodeUid> {
        self.groups.keys().map(|(owner, _)| *owner)
    }

    /// Every entry of an object of `owner`.
    pub(super) fn iter_of(&self, owner: NodeUid) -> impl Iterator<Item = (ObjectId, &T)> {
        let groups = self.groups.range((owner, NodeUid(0))..=(owner, NodeUid(u128::MAX)));
        groups.flat_map(|(&(owner, creator), group)| {
            group.iter().map(move |(&create_no, value)| (ObjectId { owner, creator, create_no }, value))
        })
    }

    /// Every object of `owner` in the table.
    pub(super) fn of_owner(&self, owner: NodeUid) -> Vec<ObjectId> {
        self.iter_of(owner).map(|(id, _)| id).collect()
    }
}

/// One stamp for each of a few nodes; none or one of them costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum NodeStamps {
    #[default]
    Empty,
    One(NodeUid, Stamp),
    /// Always two or more, so that equal contents compare equal.
    Many(BTreeMap<NodeUid, Stamp>),
}

impl NodeStamps {
    pub(super) fn get(&self, node: NodeUid) -> Option<Stamp> {
        match self {
            NodeStamps::Empty => None,
            NodeStamps::One(n, stamp) => (*n == node).then_some(*stamp),
            NodeStamps::Many(all) => all.get(&node).copied(),
        }
    }

    /// Sets the node's stamp; returns the one it had.
    pub(super) fn set(&mut self, node: NodeUid, stamp: Stamp) -> Option<Stamp> {
        match self {
            NodeStamps::Empty => {
                *self = NodeStamps::One(node, stamp);
                None
            }
            NodeStamps::One(n, old) if *n == node => Some(std::mem::replace(old, stamp)),
            NodeStamps::One(n, old) => {
                *self = NodeStamps::Many(BTreeMap::from([(*n, *old), (node, stamp)]));
                None
            }
            NodeStamps::Many(all) => all.insert(node, stamp),
        }
    }

    pub(super) fn remove(&mut self, node: NodeUid) -> Option<Stamp> {
        match self {
            NodeStamps::Empty => None,
            NodeStamps::One(n, stamp) => {
                let stamp = (*n == node).then_some(*stamp)?;
                *self = NodeStamps::Empty;
                Some(stamp)
            }
            NodeStamps::Many(all) => {
                let stamp = all.remove(&node);
                if all.len() == 1
                    && let Some((last, at)) = all.pop_first()
                {
                    *self = NodeStamps::One(last, at);
                }
                stamp
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, NodeStamps::Empty)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeUid, Stamp)> {
        let (one, many) = match self {
            NodeStamps::Empty => (None, None),
            NodeStamps::One(node, stamp) => (Some((*node, *stamp)), None),
            NodeStamps::Many(all) => (None, Some(all.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(node, stamp)| (*node, *stamp)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seq: u64) -> Stamp {
        Stamp { session_no: 1, seq }
    }

    #[test]
    fn stamps_compare_by_content() {
        let mut a = NodeStamps::default();
        assert_eq!(a.set(NodeUid(1), stamp(1)), None);
        assert_eq!(a.set(NodeUid(2), stamp(2)), None);
        assert_eq!(a.set(NodeUid(2), stamp(3)), Some(stamp(2)));
        assert_eq!(a.iter().count(), 2);
        assert_eq!(a.remove(NodeUid(1)), Some(stamp(1)));
        assert_eq!(a, NodeStamps::One(NodeUid(2), stamp(3)));
        assert_eq!(a.remove(NodeUid(1)), None);
        assert_eq!(a.get(NodeUid(2)), Some(stamp(3)));
        assert_eq!(a.remove(NodeUid(2)), Some(stamp(3)));
        assert!(a.is_empty());
    }

    #[test]
    fn table_groups_and_forgets_empty_groups() {
        let id = |owner, creator, create_no| ObjectId {
            owner: NodeUid(owner),
            creator: NodeUid(creator),
            create_no,
        };
        let mut t = Table::default();
        for i in [id(1, 2, 1), id(1, 3, 1), id(2, 2, 1), id(1, 2, 2)] {
            t.insert(i, i.create_no);
        }
        assert_eq!(t.len(), 4);
        assert_eq!(t.of_owner(NodeUid(1)), [id(1, 2, 1), id(1, 2, 2), id(1, 3, 1)]);
        assert_eq!(t.iter().count(), 4);
        for i in [id(1, 2, 1), id(1, 3, 1), id(2, 2, 1), id(1, 2, 2)] {
            assert_eq!(t.remove(&i), Some(i.create_no));
        }
        assert_eq!(t.remove(&id(1, 2, 1)), None);
        assert!(t.is_empty());
    }
}
