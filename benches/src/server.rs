//! The other process: a raw echo, a raw source of bytes, and a node.

use crate::cores::{self, Side};
use crate::{raw, work};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use tokio::net::TcpListener;

/// Name of the server's node.
pub const NAME: &str = "server";

/// Where the server listens; one line of JSON on its standard output.
#[derive(Serialize, Deserialize)]
pub struct Addresses {
    /// The raw echo.
    pub echo: String,
    /// The raw source of bytes.
    pub source: String,
    /// The node.
    pub node: String,
}

/// Serves until standard input ends: the parent is gone then, however it went.
pub fn serve() -> anyhow::Result<()> {
    cores::keep(Side::Server, &cores::available());
    let node = work::node(NAME).listen("127.0.0.1:0").insecure().spawn()?;
    let (started, addresses) = std::sync::mpsc::channel();
    // One thread for the raw servers, as the node has one: an idle thread costs nothing.
    thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let echo = TcpListener::bind("127.0.0.1:0").await?;
            let source = TcpListener::bind("127.0.0.1:0").await?;
            started.send((echo.local_addr()?, source.local_addr()?))?;
            tokio::spawn(raw::serve_source(source));
            Ok(raw::serve_echo(echo).await?)
        })
    });
    let (echo, source) = addresses.recv().context("the raw servers did not start")?;
    let addresses = Addresses {
        echo: echo.to_string(),
        source: source.to_string(),
        node: node.local_addr().context("the node does not listen")?,
    };
    println!("{}", serde_json::to_string(&addresses)?);
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A running server process.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub addresses: Addresses,
}

impl Server {
    /// Starts this program once more, as the server.
    pub fn start() -> anyhow::Result<Server> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server process")?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let addresses = serde_json::from_str(&line).context("the server process did not start")?;
        Ok(Server { child, addresses })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input is its sign to leave.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
