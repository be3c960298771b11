// An actor stays where it was made: it can be kept, not brought here.

use rref::prelude::*;

#[derive(Object)]
#[object(messages())]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn bring(node: &Node) {
    let _ = node.call("worker1", counter, (1,));
}

fn fetch(counter: &RRef<Counter>) {
    let _ = counter.to_here();
}

fn main() {}
