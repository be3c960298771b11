use rref::prelude::*;

#[derive(Message)]
#[rtype(result = "i64")]
struct Get;

#[derive(Object)]
#[object(messages(Get))]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Get> for Counter {
    type Result = i64;

    fn handle(&mut self, _: Get, _: &mut Self::Context) -> i64 {
        self.0
    }
}

fn visit(counter: &RRef<Counter>) {
    let _ = counter.send(Get);
}

fn main() {}
