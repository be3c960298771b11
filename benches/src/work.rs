//! What is asked of the other process, the same for every way of asking.

use rref::prelude::*;

/// Bytes of a raw echo: about what a small call weighs with its header.
pub const SMALL: usize = 128;

/// Adds to a counter and gives its new value: the small call.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
pub struct Add(pub i64);

/// The same actor behind an `RRef` and behind a plain actix address.
#[derive(Object)]
#[object(messages(Add))]
pub struct Counter(pub i64);

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

/// Makes a counter.
pub fn counter(start: i64) -> Counter {
    Counter(start)
}

/// Makes a small value, to be created, fetched and dropped.
pub fn number(n: i64) -> i64 {
    n
}

/// Makes a tensor of so many bytes.
pub fn tensor(bytes: u64) -> Tensor<f32> {
    Tensor::from(ndarray::Array1::from_elem(bytes as usize / size_of::<f32>(), 1.0f32))
}

/// A node that offers all of it.
pub fn node(name: &str) -> rref::Builder {
    Node::builder(name).register::<Counter>().function(counter).function(number).function(tensor)
}
