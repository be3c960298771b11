//! The README's page: an actor, two functions and a tensor, shared by two nodes.
//!
//! `cargo run --release --example page`

use rref::prelude::*;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

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

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn add(x: Tensor<f32>, y: f32) -> Tensor<f32> {
    Tensor::from(x.into_array() + y)
}

/// Runs where the value lives.
fn norm(x: &Tensor<f32>, k: f32) -> f32 {
    k * x.view().iter().map(|v| v * v).sum::<f32>().sqrt()
}

/// The same registration on every node.
fn node(name: &str) -> Builder {
    Node::builder(name).register::<Counter>().function(counter).function(add).method(norm)
}

async fn driver(node: &Node) -> anyhow::Result<()> {
    let c: RRef<Counter> = node.remote("worker1", counter, (10,))?; // returns at once
    assert_eq!(c.send(Add(5)).await?, 15); // same call, local or remote
    c.do_send(Add(1))?; // fire and forget

    let x = Tensor::from(ndarray::Array2::<f32>::zeros((2, 2)));
    let y: Tensor<f32> = node.call("worker1", add, (x.clone(), 1.0)).await?; // rpc
    assert_eq!(y.view().sum(), 4.0);
    let r: RRef<Tensor<f32>> = node.remote("worker1", add, (x, 1.0))?; // stays there
    assert_eq!(r.apply(norm, (0.5,)).await?, 1.0); // custom logic at the owner
    assert_eq!(r.to_here().await?.view().sum(), 4.0); // snapshot
    assert!(r.local_value().await.is_err()); // typed NotOwner error
    println!("{c:?} counts {}; {r:?} is {:?}", c.send(Add(0)).await?, r.to_here().await?);
    Ok(())
}

#[actix::main]
async fn main() -> anyhow::Result<()> {
    let worker = node("worker1").listen("127.0.0.1:0").insecure().spawn()?;
    let address = worker.local_addr().unwrap_or_default();
    let me = node("driver").join(address).start().await?;
    driver(&me).await?;
    let report = me.shutdown().await;
    println!("leaked: {}", report.leaked.len());
    worker.shutdown().await;
    Ok(())
}
