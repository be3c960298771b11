//! The server: a board on which everybody can write, and which tells its readers.

use crate::Server;
use anyhow::{Context as _, Result, ensure};
use rref::NodeEvent;
use rref::prelude::*;

/// Writes a line; answers with the number of lines.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
pub struct Write(pub String);

/// Somebody wants to be told of every line from now on.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Subscribe(pub RRef<Reader>);

/// Somebody wants to be told no more.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Unsubscribe(pub RRef<Reader>);

/// A new line; sent to the readers.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Line(pub String);

/// Lives on the server under the name `board`.
#[derive(Default, Object)]
#[object(messages(Write, Subscribe, Unsubscribe))]
pub struct Board {
    lines: usize,
    readers: Vec<RRef<Reader>>,
}

impl Actor for Board {
    type Context = Context<Self>;
}

impl Handler<Write> for Board {
    type Result = usize;

    fn handle(&mut self, Write(line): Write, _: &mut Self::Context) -> usize {
        self.lines += 1;
        // Whoever has died without a word is no reader any more.
        self.readers.retain(|reader| reader.do_send(Line(line.clone())).is_ok());
        self.lines
    }
}

impl Handler<Subscribe> for Board {
    type Result = ();

    fn handle(&mut self, Subscribe(reader): Subscribe, _: &mut Self::Context) {
        self.readers.push(reader);
    }
}

impl Handler<Unsubscribe> for Board {
    type Result = ();

    fn handle(&mut self, Unsubscribe(reader): Unsubscribe, _: &mut Self::Context) {
        self.readers.retain(|known| *known != reader);
    }
}

/// Lives on a client: hands on the lines it is sent.
#[derive(Object)]
#[object(messages(Line))]
pub struct Reader(pub tokio::sync::mpsc::UnboundedSender<String>);

impl Actor for Reader {
    type Context = Context<Self>;
}

impl Handler<Line> for Reader {
    type Result = ();

    fn handle(&mut self, Line(line): Line, _: &mut Self::Context) {
        // The client may have seen enough.
        let _ = self.0.send(line);
    }
}

/// Both programs offer the same, as they are one.
pub fn node(name: &str) -> Builder {
    Node::builder(name).register::<Board>().register::<Reader>()
}

pub async fn run(options: Server) -> Result<()> {
    let node = options.network.apply(node("server")).start().await?;
    let mut events = node.events();
    node.register_name("board", &node.host(Board::default())?)?;
    println!("listening on {}", node.local_addr().context("it does not listen")?);
    let report = match options.clients {
        None => node.serve().await?,
        Some(mut clients) => {
            while clients > 0 {
                match events.next().await.context("the node has closed")? {
                    NodeEvent::PeerUp { name, .. } => println!("{name} has joined"),
                    NodeEvent::PeerDown { name, .. } => {
                        println!("{name} has left");
                        clients -= 1;
                    }
                    other => println!("{other:?}"),
                }
            }
            node.shutdown().await
        }
    };
    ensure!(report.leaked.is_empty(), "leaked: {:?}", report.leaked);
    println!("left; leaked: 0");
    Ok(())
}
