//! A shelf of texts in one process, used from another.

use newcomer_api::{Get, Put, ShelfApi};
use rref::{launch, prelude::*};
use std::collections::BTreeMap;

#[derive(Object)]
#[object(name = "tutorial.Shelf", messages(Put, Get))]
struct Shelf(BTreeMap<String, String>);

impl Actor for Shelf {
    type Context = Context<Self>;
}

impl Handler<Put> for Shelf {
    type Result = Option<String>;

    fn handle(&mut self, Put(key, text): Put, _: &mut Self::Context) -> Option<String> {
        self.0.insert(key, text)
    }
}

impl Handler<Get> for Shelf {
    type Result = Option<String>;

    fn handle(&mut self, Get(key): Get, _: &mut Self::Context) -> Option<String> {
        self.0.get(&key).cloned()
    }
}

/// Runs in the server's process: puts up a shelf and gives it a name.
fn open() -> Result<(), String> {
    let node = Node::current().ok_or("no node runs this")?;
    let shelf = node.host(Shelf(BTreeMap::new())).map_err(|error| error.to_string())?;
    node.register_name("shelf", &shelf).map_err(|error| error.to_string())
}

fn node(name: &str) -> Builder {
    Node::builder(name).register::<Shelf>().function(open)
}

fn main() -> Result<(), Error> {
    launch::worker(node)?; // the server's process stays in here
    System::new().block_on(async {
        let cluster = launch::local(1).start(node).await?; // starts this program once more
        let me = cluster.node();
        me.call("worker1", open, ()).await?.map_err(Error::Config)?;

        let shelf: RRef<ShelfApi> = me.lookup("shelf@worker1").await?;
        shelf.send(Put("greeting".into(), "hello".into())).await?;
        let found = shelf.send(Get("greeting".into())).await?;
        println!("process {} has {found:?}", cluster.pids()[1]);
        assert_eq!(found.as_deref(), Some("hello"));

        drop(shelf);
        assert!(cluster.shutdown().await?.leaked.is_empty());
        Ok(())
    })
}
