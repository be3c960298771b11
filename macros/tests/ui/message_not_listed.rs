use rref::prelude::*;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Get;

#[derive(Object)]
#[object(messages())]
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

fn visit(counter: &RRef<Counter>, list: &RRef<Vec<i64>>) {
    let _ = counter.send(Get);
    let _ = list.do_send(Get);
}

fn main() {}
