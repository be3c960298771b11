use rref::prelude::*;

#[derive(Object)]
#[object(remote = "kv.Shard", messages())]
struct ShardApi;

fn host(node: &Node) {
    let _ = node.host(ShardApi);
}

fn main() {}
