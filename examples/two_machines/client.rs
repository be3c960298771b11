//! The client: finds the board by its name, writes on it, and is told of what it wrote.

use crate::Client;
use crate::server::{Board, Reader, Subscribe, Unsubscribe, Write, node};
use anyhow::{Context as _, Result, ensure};
use rref::prelude::*;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the server may take to be found, and to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines that each client writes.
const LINES: usize = 100;

pub async fn run(options: Client) -> Result<()> {
    let node = options.network.apply(node(&options.name)).join(&options.join).start().await?;
    println!("listening on {}", node.local_addr().context("it does not listen")?);
    // It may be known to the member that was joined, and not yet here.
    node.wait_for("server", PATIENCE).await?;
    tokio::time::timeout(PATIENCE, write(&node)).await.context("the server is too slow")??;
    println!("done");
    if options.stay {
        // On a thread of its own: this one has a node to serve.
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    }
    // The server lets go of the reader a moment after it has answered.
    while !node.report().objects.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let report = node.shutdown().await;
    ensure!(report.complete, "it did not finish its work in time");
    ensure!(report.leaked.is_empty(), "leaked: {:?}", report.leaked);
    println!("left; leaked: 0");
    Ok(())
}

async fn write(node: &Node) -> Result<()> {
    let board: RRef<Board> = node.lookup("board@server").await?;
    let (sender, mut lines) = mpsc::unbounded_channel();
    let reader = node.host(Reader(sender))?;
    board.send(Subscribe(reader.clone())).await?;
    for number in 0..LINES {
        let line = format!("{} {number}", node.name());
        board.send(Write(line.clone())).await?;
        let told = lines.recv().await.context("the board has forgotten its reader")?;
        ensure!(told == line, "wrote {line:?}, was told of {told:?}");
    }
    board.send(Unsubscribe(reader)).await?;
    println!("wrote {LINES} lines on {board:?} and was told of each by the server");
    Ok(())
}
