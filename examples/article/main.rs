//! Everything the article on PyTorch's `RRef` promises, in its order, on two nodes.
//!
//! Beside each row stands the call that really does the job in PyTorch.
//!
//! `cargo run --release --example article`

use ndarray::{Array2, ArrayD, Axis, concatenate};
use rref::prelude::*;
use std::time::Duration;

fn add(x: Tensor<f32>, y: f32) -> Tensor<f32> {
    Tensor::from(x.into_array() + y)
}

fn sqrt(x: Tensor<f32>) -> Tensor<f32> {
    Tensor::from(x.into_array().mapv_into(f32::sqrt))
}

fn cat(parts: Vec<Tensor<f32>>) -> Result<Tensor<f32>, String> {
    let views: Vec<_> = parts.iter().map(Tensor::view).collect();
    concatenate(Axis(0), &views).map(Tensor::from).map_err(|error| error.to_string())
}

/// A structure of the user's own that holds a tensor.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    label: String,
    value: Tensor<f32>,
}

fn sample(label: String, value: Tensor<f32>) -> Sample {
    Sample { label, value }
}

/// Replaces an attribute by itself plus one, where the value lives.
fn increment(sample: &mut Sample) {
    sample.value.make_mut().mapv_inplace(|v| v + 1.0);
}

/// Logic of the user's own: takes a reference and pulls the data from its owner.
async fn total(data: RRef<Tensor<f32>>) -> Result<f32, String> {
    let here = data.to_here().await.map_err(|error| error.to_string())?;
    Ok(here.view().sum())
}

fn node(name: &str) -> rref::Builder {
    Node::builder(name)
        .register::<Tensor<f32>>()
        .function(add)
        .function(sqrt)
        .function(cat)
        .function(sample)
        .method(increment)
        .function(total)
}

fn filled(value: f32) -> Tensor<f32> {
    Tensor::from(Array2::from_elem((2, 2), value))
}

async fn rows(node: &Node) -> anyhow::Result<()> {
    // Access to remote data as if local; the value may not be there yet, `wait()` waits.
    // PyTorch: rpc.remote(..).to_here(), since local_value() raises on every node but the owner.
    let sum: RRef<Tensor<f32>> = node.remote("worker1", add, (filled(0.0), 1.0))?;
    sum.ready().await?;
    let here: ArrayD<f32> = sum.to_here().await?.into_array();
    println!("local_value, wait: zeros + 1, as 1 x 4: {}", here.to_shape((1, 4))?);

    // Data transfer to the current worker. PyTorch: to_here().
    let root = node.remote("worker1", sqrt, (filled(1.0),))?;
    let here = root.to_here().await?;
    println!("transfer: sqrt(ones) to the power 0.5: {}", here.view().mapv(|v| v.powf(0.5)));

    // Lists of tensors. PyTorch: a list as an argument of rpc.remote.
    let whole = node.remote("worker1", cat, (vec![filled(1.0), filled(0.0)],))?;
    let here = whole.to_here().await?.map_err(anyhow::Error::msg)?;
    println!("lists: cat of ones and zeros, doubled: {}", here.view().mapv(|v| 2.0 * v));

    // Custom structures. PyTorch: rref.rpc_sync().method() to change it, to_here() to read it.
    let custom = node.remote("worker1", sample, ("x".to_string(), filled(1.0)))?;
    custom.apply(increment, ()).await?;
    println!("structures: the attribute plus one: {}", custom.to_here().await?.value.view());

    // copy(): to another worker, past the caller. PyTorch has none: a function there calls to_here().
    let copy = sum.copy_to("worker2")?;
    println!("copy: owned by {}, {}", copy.owner(), copy.to_here().await?.view());

    // fetch(): synchronous, easy to debug. PyTorch: to_here(), which always blocks.
    // It blocks its thread, so it has one that runs no tasks.
    let handle = sum.clone();
    let (fetched, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || fetched.send(handle.fetch(Duration::from_secs(10))));
    println!("fetch: {}", result.await??.view());

    // share(): several workers use one object without a copy. PyTorch: the RRef as an argument.
    sum.share_with("worker2", "the sum").await?;
    println!(
        "share, and a function of one's own on worker2: {:?}",
        node.call("worker2", total, (sum,)).await?
    );
    Ok(())
}

#[actix::main]
async fn main() -> anyhow::Result<()> {
    let worker1 = node("worker1").listen("127.0.0.1:0").insecure().spawn()?;
    let first = worker1.local_addr().unwrap_or_default();
    let worker2 = node("worker2").listen("127.0.0.1:0").insecure().join(&first).spawn()?;
    let me = node("me").join(first).start().await?;
    me.wait_for("worker2", Duration::from_secs(10)).await?;
    rows(&me).await?;
    for node in [me, worker2, worker1] {
        println!("{} leaves; leaked {}", node.name(), node.shutdown().await.leaked.len());
    }
    Ok(())
}
