// Captures that are `Copy` are refused as well, but only when the program is built: see the
// documentation of `Builder::function`.

use rref::prelude::*;

fn main() {
    let greeting = String::from("hello");
    let _ = Node::builder("me").function(move |name: String| format!("{greeting}, {name}"));
}
