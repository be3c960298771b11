use rref::prelude::*;

fn add(x: i64, y: i64) -> i64 {
    x + y
}

fn double(x: i64) -> i64 {
    2 * x
}

fn sum(list: &Vec<i64>, start: i64) -> i64 {
    list.iter().fold(start, |sum, x| sum + x)
}

fn calls(node: &Node, list: &RRef<Vec<i64>>, text: &RRef<String>) {
    let _ = node.call("worker1", add, (1,));
    let _ = node.call("worker1", add, (1, "two"));
    let _ = node.call("worker1", double, 1);
    let _ = node.remote("worker1", add, (1, 2, 3));
    let _ = list.apply(sum, ());
    let _ = text.apply(sum, (0,));
}

fn main() {}
