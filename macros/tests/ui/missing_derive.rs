use rref::prelude::*;

struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn main() {
    let _ = Node::builder("me").register::<Counter>();
    let _ = Node::builder("me").function(counter);
}
