use rref::prelude::*;

#[derive(Serialize, Deserialize, Object)]
#[object(messages())]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
