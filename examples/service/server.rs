//! A shard process: the actor behind the interface, and how it is opened under its name.

use rref::prelude::*;
use service_api::{Get, Len, Put, SHARD};
use std::collections::HashMap;

/// Some of the keys.
#[derive(Default, Object)]
#[object(name = "kv.Shard", messages(Put, Get, Len))]
pub struct Shard {
    values: HashMap<String, u64>,
}

impl Actor for Shard {
    type Context = Context<Self>;
}

impl Handler<Put> for Shard {
    type Result = Option<u64>;

    fn handle(&mut self, Put { key, value }: Put, _: &mut Self::Context) -> Option<u64> {
        self.values.insert(key, value)
    }
}

impl Handler<Get> for Shard {
    type Result = Option<u64>;

    fn handle(&mut self, Get(key): Get, _: &mut Self::Context) -> Option<u64> {
        self.values.get(&key).copied()
    }
}

impl Handler<Len> for Shard {
    type Result = u64;

    fn handle(&mut self, _: Len, _: &mut Self::Context) -> u64 {
        self.values.len() as u64
    }
}

/// Opens an empty shard on the node that is asked. From then on its name keeps it.
pub fn open() -> Result<(), String> {
    let node = Node::current().ok_or("no node runs this")?;
    let shard = node.host(Shard::default()).map_err(|error| error.to_string())?;
    node.register_name(SHARD, &shard).map_err(|error| error.to_string())
}

/// Takes the name away; the shard ends with its last user.
pub fn close() -> bool {
    Node::current().is_some_and(|node| node.unregister_name(SHARD))
}

/// What a server's process offers.
pub fn node(name: &str) -> Builder {
    Node::builder(name).register::<Shard>().function(open).function(close)
}
