//! What the oracle knows: which references each node keeps, which objects have been made and dropped,
//! which calls have been run.
//!
//! All nodes live on one thread, so that it can look into all of them.

use super::program::{Chest, Item};
use rref::{NodeUid, ObjectId, RRef};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// References that a node keeps.
#[derive(Default)]
pub struct Bag {
    pub items: Vec<RRef<Item>>,
    pub chests: Vec<RRef<Chest>>,
}

/// What is true.
#[derive(Default)]
pub struct World {
    pub bags: BTreeMap<String, Bag>,
    /// What was put into each chest.
    pub contents: BTreeMap<ObjectId, Vec<ObjectId>>,
    /// The number that each object was asked for with.
    pub asked: BTreeMap<ObjectId, u64>,
    /// Items that were to be made.
    pub items: BTreeMap<u64, ObjectId>,
    made: BTreeSet<u64>,
    chests_made: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    run: BTreeSet<u64>,
    /// The newest call of each node to each item.
    newest: BTreeMap<(u64, String), u64>,
    /// Processes that have crashed: their objects end with them.
    pub dead: BTreeSet<NodeUid>,
    /// Where a node that holds an object may find it freed: what is freed while it is held is judged later.
    pub freed: Option<Vec<Freed>>,
    /// What a node holds and is known to be listed for by the owner.
    pub confirmed: BTreeSet<(String, ObjectId)>,
    /// What must not happen and did.
    pub violations: Vec<String>,
}

/// An object that was freed while nodes held it.
pub struct Freed {
    pub number: u64,
    pub id: ObjectId,
    /// Who held it, and whether the owner was known to list it.
    pub holders: Vec<(String, bool)>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// Looks into the world of the run on this thread. References that leave it must be dropped outside.
pub fn world<R>(look: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(look)
}

/// Begins anew.
pub fn reset() {
    let before = WORLD.take();
    drop(before);
}

impl World {
    pub fn bag(&mut self, node: &str) -> &mut Bag {
        self.bags.entry(node.to_string()).or_default()
    }

    pub fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    pub fn item_made(&mut self, number: u64) {
        if !self.made.insert(number) {
            self.violated(format!("item {number} was made twice"));
        }
    }

    pub fn chest_made(&mut self, number: u64) {
        if !self.chests_made.insert(number) {
            self.violated(format!("chest {number} was made twice"));
        }
    }

    /// Whether an object has come to be.
    pub fn was_made(&self, id: ObjectId) -> bool {
        self.asked
            .get(&id)
            .is_some_and(|number| self.made.contains(number) || self.chests_made.contains(number))
    }

    /// Every object that was asked for.
    pub fn all(&self) -> Vec<ObjectId> {
        self.asked.keys().copied().collect()
    }

    /// An object will never be: nobody can hold it.
    pub fn forget(&mut self, id: ObjectId) -> Bag {
        let mut forgotten = Bag::default();
        for bag in self.bags.values_mut() {
            forgotten.items.extend(bag.items.extract_if(.., |item| item.id() == id));
            forgotten.chests.extend(bag.chests.extract_if(.., |chest| chest.id() == id));
        }
        self.contents.remove(&id);
        self.contents.values_mut().for_each(|items| items.retain(|item| *item != id));
        forgotten
    }

    pub fn item_dropped(&mut self, number: u64) {
        if !self.dropped.insert(number) {
            self.violated(format!("item {number} was dropped twice"));
        }
        let Some(id) = self.items.get(&number).copied() else { return };
        if self.dead.contains(&id.owner) {
            return;
        }
        let holds = |bag: &Bag| bag.items.iter().any(|item| item.id() == id);
        let holders: Vec<String> =
            self.bags.iter().filter(|(_, bag)| holds(bag)).map(|(name, _)| name.clone()).collect();
        if holders.is_empty() {
            return;
        }
        match &mut self.freed {
            None => {
                let what = format!("item {number} ({id}) was freed while {holders:?} held it");
                self.violated(what);
            }
            Some(freed) => {
                let confirmed = |name: String| {
                    let confirmed = self.confirmed.contains(&(name.clone(), id));
                    (name, confirmed)
                };
                let holders = holders.into_iter().map(confirmed).collect();
                freed.push(Freed { number, id, holders });
            }
        }
    }

    /// Whether a node keeps a reference to the object.
    pub fn has(&self, node: &str, id: ObjectId) -> bool {
        self.bags.get(node).is_some_and(|bag| {
            bag.items.iter().any(|item| item.id() == id) || bag.chests.iter().any(|chest| chest.id() == id)
        })
    }

    /// A node has dropped something: what it gets again may not be listed yet.
    pub fn unconfirm(&mut self, node: &str) {
        let confirmed = std::mem::take(&mut self.confirmed);
        self.confirmed =
            confirmed.into_iter().filter(|(name, id)| name != node || self.has(name, *id)).collect();
    }

    /// A call has been run: `order` grows with each call of the same node.
    pub fn call_run(&mut self, item: u64, from: &str, order: u64) {
        if !self.run.insert(order) {
            self.violated(format!("call {order} of `{from}` to item {item} was run twice"));
        }
        if let Some(before) = self.newest.insert((item, from.to_string()), order)
            && before > order
        {
            self.violated(format!("call {order} of `{from}` to item {item} was run after call {before}"));
        }
    }

    pub fn was_run(&self, order: u64) -> bool {
        self.run.contains(&order)
    }

    /// Items that have been made and are not dropped, of processes that live.
    pub fn living(&self) -> Vec<u64> {
        let dead = |number: &u64| self.items.get(number).is_some_and(|id| self.dead.contains(&id.owner));
        self.made.difference(&self.dropped).copied().filter(|number| !dead(number)).collect()
    }

    /// The objects each node holds, of its own and of others: in its bag, and in the chests that live there
    /// and that somebody holds. With how many handles.
    pub fn held(&self) -> BTreeMap<(String, ObjectId), u64> {
        let mut held: BTreeMap<(String, ObjectId), u64> = BTreeMap::new();
        let mut chests: BTreeMap<ObjectId, String> = BTreeMap::new();
        for (name, bag) in &self.bags {
            for item in &bag.items {
                *held.entry((name.clone(), item.id())).or_default() += 1;
            }
            for chest in &bag.chests {
                *held.entry((name.clone(), chest.id())).or_default() += 1;
                chests.insert(chest.id(), chest.owner());
            }
        }
        for (chest, owner) in chests {
            for item in self.contents.get(&chest).into_iter().flatten() {
                *held.entry((owner.clone(), *item)).or_default() += 1;
            }
        }
        held
    }
}
