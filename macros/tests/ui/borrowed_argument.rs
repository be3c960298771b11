use rref::prelude::*;

fn length(text: &str) -> usize {
    text.len()
}

fn main() {
    let _ = Node::builder("me").function(length);
}
