//! The service: replicas that count, and a client that adds on all of them.

use rref::prelude::*;
use rref::testkit::{ms, secs};
use std::collections::BTreeMap;

/// The same on every node, in production and in simulation.
pub fn node(name: &str) -> rref::Builder {
    Node::builder(name).register::<Replica>().function(replica)
}

/// One copy of the count.
#[derive(Object)]
#[object(messages(Add, AddOnce, Read))]
pub struct Replica {
    count: i64,
    /// The newest addition of each client.
    done: BTreeMap<String, u64>,
}

impl Actor for Replica {
    type Context = Context<Self>;
}

pub fn replica() -> Replica {
    Replica { count: 0, done: BTreeMap::new() }
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Add(pub i64);

impl Handler<Add> for Replica {
    type Result = ();

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) {
        self.count += n;
    }
}

/// An addition with a number: each client counts its own, from 1.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct AddOnce {
    pub client: String,
    pub number: u64,
    pub n: i64,
}

impl Handler<AddOnce> for Replica {
    type Result = ();

    fn handle(&mut self, AddOnce { client, number, n }: AddOnce, _: &mut Self::Context) {
        // Messages of one node to one object arrive in order: the newest number is enough.
        let newest = self.done.entry(client).or_default();
        if number > *newest {
            *newest = number;
            self.count += n;
        }
    }
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Read;

impl Handler<Read> for Replica {
    type Result = i64;

    fn handle(&mut self, _: Read, _: &mut Self::Context) -> i64 {
        self.count
    }
}

/// How the client adds.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// The bug: what was not answered in time is sent again, although it may have been done.
    Naive,
    /// The repair: a replica knows what it has done.
    Once,
}

/// Adds on all replicas.
pub struct Counter {
    client: String,
    replicas: Vec<RRef<Replica>>,
    way: Way,
    next: u64,
}

impl Counter {
    pub fn new(client: &str, replicas: Vec<RRef<Replica>>, way: Way) -> Counter {
        Counter { client: client.to_string(), replicas, way, next: 1 }
    }

    /// Adds on every replica, however long it takes.
    pub async fn add(&mut self, n: i64) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        for replica in &self.replicas {
            loop {
                let request = match self.way {
                    Way::Naive => replica.send(Add(n)),
                    Way::Once => replica.send(AddOnce { client: self.client.clone(), number, n }),
                };
                match request.timeout(secs(1)).await {
                    Ok(()) => break,
                    Err(Error::Timeout(_) | Error::OutcomeUnknown { .. } | Error::Unreachable { .. }) => {
                        tokio::time::sleep(ms(100)).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
