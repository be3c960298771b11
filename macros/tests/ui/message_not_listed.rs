use rref::prelude::*;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Get;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

// One is listed, and it is another one.
#[derive(Object)]
#[object(messages(Add))]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Add> for Counter {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.0 += n;
        self.0
    }
}

impl Handler<Get> for Counter {
    type Result = i64;

    fn handle(&mut self, _: Get, _: &mut Self::Context) -> i64 {
        self.0
    }
}

// None is listed.
#[derive(Object)]
#[object(messages())]
struct Silent;

impl Actor for Silent {
    type Context = Context<Self>;
}

#[derive(Serialize, Deserialize)]
struct Config;

impl Handler<Add> for Value<Config> {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        n
    }
}

fn visit(counter: &RRef<Counter>, silent: &RRef<Silent>, config: &RRef<Config>, list: &RRef<Vec<i64>>) {
    let _ = counter.send(Get);
    let _ = silent.remote(Get);
    let _ = config.send(Get);
    let _ = list.do_send(Get);
}

fn main() {}
