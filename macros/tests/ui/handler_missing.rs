use rref::prelude::*;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Get;

#[derive(Object)]
#[object(messages(Get))]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
