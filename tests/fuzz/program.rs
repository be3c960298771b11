//! What every node runs: items, chests that hold items, and functions that pass references on.

use super::world::world;
use rref::prelude::*;

pub fn node(name: &str) -> rref::Builder {
    Node::builder(name)
        .register::<Item>()
        .function(item)
        .function(chest)
        .function(store)
        .function(forward)
        .function(give)
}

/// An object that tells the oracle when it is made, used and dropped.
#[derive(Object)]
#[object(name = "Item", messages(Touch))]
pub struct Item {
    number: u64,
}

impl Actor for Item {
    type Context = Context<Self>;
}

impl Drop for Item {
    fn drop(&mut self) {
        world(|world| world.item_dropped(self.number));
    }
}

/// Uses an item; each call of a node has a greater `order` than its earlier ones.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
pub struct Touch {
    pub from: String,
    pub order: u64,
}

impl Handler<Touch> for Item {
    type Result = u64;

    fn handle(&mut self, Touch { from, order }: Touch, _: &mut Self::Context) -> u64 {
        world(|world| world.call_run(self.number, &from, order));
        self.number
    }
}

pub fn item(number: u64) -> Item {
    world(|world| world.item_made(number));
    Item { number }
}

/// An object that holds others.
pub type Chest = Vec<RRef<Item>>;

pub fn chest(number: u64, items: Chest) -> Chest {
    world(|world| world.chest_made(number));
    items
}

/// References at several depths.
#[derive(Default, Serialize, Deserialize)]
pub struct Parcel {
    pub items: Vec<RRef<Item>>,
    pub chests: Vec<RRef<Chest>>,
    pub inner: Option<Box<Parcel>>,
}

/// Keeps what is in a parcel.
pub fn store(parcel: Parcel) -> bool {
    let Some(node) = Node::current() else { return false };
    keep(node.name(), parcel);
    true
}

fn keep(node: &str, mut parcel: Parcel) {
    let inner = parcel.inner.take();
    world(|world| {
        let bag = world.bag(node);
        bag.items.append(&mut parcel.items);
        bag.chests.append(&mut parcel.chests);
    });
    if let Some(inner) = inner {
        keep(node, *inner);
    }
}

/// Passes a parcel along `route`; the last one keeps it.
pub async fn forward(parcel: Parcel, route: Vec<String>) -> Result<(), String> {
    let node = Node::current().ok_or("no node")?;
    let mut rest = route.into_iter();
    match rest.next() {
        None => keep(node.name(), parcel),
        // It is passed on when this returns; nobody waits for the end of the route.
        Some(next) => drop(node.remote(next, forward, (parcel, rest.collect::<Vec<_>>()))),
    }
    Ok(())
}

/// Gives one of the references that the node keeps.
pub fn give(which: u64) -> Option<RRef<Item>> {
    let node = Node::current()?;
    world(|world| {
        let items = &world.bag(node.name()).items;
        let index = usize::try_from(which).unwrap_or(0).checked_rem(items.len())?;
        items.get(index).cloned()
    })
}
