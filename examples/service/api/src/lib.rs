//! What clients and servers of the key-value service share: messages and names, and no code of either.

use rref::prelude::*;

/// Every shard process gives its shard this name.
pub const SHARD: &str = "kv";

/// Stores a value; answers with the one that was there before.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<u64>")]
pub struct Put {
    /// What to find it by.
    pub key: String,
    /// What to store.
    pub value: u64,
}

/// Asks for the value of a key.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<u64>")]
pub struct Get(pub String);

/// Asks how many keys a shard has.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
pub struct Len;

/// A shard of the store, as clients see it.
#[derive(Object)]
#[object(remote = "kv.Shard", messages(Put, Get, Len))]
pub struct ShardApi;

/// Something a client process has seen happen to a shard.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub enum Seen {
    /// Every client has had answers from every shard.
    Steady,
    /// The shard is lost, for this reason.
    Lost(usize, String),
    /// Every client has had an answer again from all shards.
    Recovered,
}

/// Whoever wants to know what clients see.
#[derive(Object)]
#[object(remote = "kv.Monitor", messages(Seen))]
pub struct MonitorApi;

/// The shard that has a key. Every process must come to the same answer, and `std`'s hashers do not
/// promise that: this is FNV-1a.
pub fn shard_of(key: &str, shards: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The remainder is smaller than a usize.
    (hash % shards.max(1) as u64) as usize
}
