//! The older build: its `Order` is one item. Prints what it finds at the server's address.

use rref::prelude::*;
use versions::{Return, double};

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
struct Order {
    item: String,
}

#[derive(Object)]
#[object(remote = "shop", messages(Order, Return))]
struct Shop;

#[actix::main]
async fn main() -> rref::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let node = Node::builder("client").message_name::<Order>("shop.Order").join(address).start().await?;
    let shop = node.lookup::<Shop>("shop@server").await?;
    for _ in 0..2 {
        match shop.send(Order { item: "pen".into() }).await {
            Err(Error::SchemaMismatch { path, ours, theirs, .. }) if ours != theirs => {
                println!("{path} differs")
            }
            other => println!("{other:?}"),
        }
    }
    shop.do_send(Order { item: "pen".into() })?;
    println!("{} are left", shop.send(Return { count: 1 }).await?);
    println!("{} is twice 21", node.call("server", double, (21,)).await?);
    drop(shop);
    node.shutdown().await;
    Ok(())
}
