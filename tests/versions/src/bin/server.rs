//! The newer build: its `Order` has a count. Serves until its input ends.

use rref::prelude::*;
use std::io::Read;
use versions::{Return, double};

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
struct Order {
    item: String,
    count: u64,
}

#[derive(Object)]
#[object(name = "shop", messages(Order, Return))]
struct Shop(u64);

impl Actor for Shop {
    type Context = Context<Self>;
}

impl Handler<Order> for Shop {
    type Result = u64;

    fn handle(&mut self, order: Order, _: &mut Self::Context) -> u64 {
        self.0 += if order.item.is_empty() { 0 } else { order.count };
        self.0
    }
}

impl Handler<Return> for Shop {
    type Result = u64;

    fn handle(&mut self, Return { count }: Return, _: &mut Self::Context) -> u64 {
        self.0 = self.0.saturating_sub(count);
        self.0
    }
}

#[actix::main]
async fn main() -> rref::Result<()> {
    let builder = Node::builder("server").register::<Shop>().function(double);
    let node = builder.message_name::<Order>("shop.Order").listen("127.0.0.1:0").insecure().start().await?;
    let shop = node.host(Shop(5))?;
    node.register_name("shop", &shop)?;
    println!("{}", node.local_addr().unwrap_or_default());
    // The thread lives as long as the process: whoever started it closes the pipe, or is gone.
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let _ = end.await;
    drop(shop);
    node.shutdown().await;
    Ok(())
}
