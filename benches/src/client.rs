//! The driver's process: an actix system on a thread of its own, with the node that asks.

use crate::cores::{self, Side};
use crate::measure::Effort;
use crate::raw::{Echo, Source};
use crate::report::Row;
use crate::rows::{self, MIB};
use crate::server::{self, Server};
use crate::work;
use anyhow::Context;
use rref::Node;

/// The ways to the other process.
pub struct Client {
    /// Raw TCP, there and back.
    pub echo: Echo,
    /// Raw TCP, one way.
    pub source: Source,
    /// Ours.
    pub node: Node,
}

/// Runs the named rows.
pub fn run(names: Vec<&'static str>, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let server = Server::start()?;
    if !cores::keep(Side::Client, &cores::available()) {
        eprintln!("there is no core for each process: ratios of round trips are not to be trusted");
    }
    // A task of the node's home, as an actor's future is. Whatever is measured runs in it.
    actix::System::new().block_on(async { actix::spawn(measure(server, names, effort)).await? })
}

async fn measure(server: Server, names: Vec<&'static str>, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let addresses = &server.addresses;
    let mut client = Client {
        echo: Echo::connect(&addresses.echo).await.context("the raw echo")?,
        source: Source::connect(&addresses.source, 64 * MIB).await.context("the raw source")?,
        node: work::node("client").join(&addresses.node).start().await?,
    };
    client.node.wait_for(server::NAME, std::time::Duration::from_secs(10)).await?;
    let mut results = Vec::new();
    for name in names {
        let row = rows::run(name, &mut client, effort).await.with_context(|| format!("row `{name}`"))?;
        eprintln!("{name}: {:.2} {}", row.ours, row.unit);
        results.push(row);
    }
    client.node.shutdown().await;
    Ok(results)
}
