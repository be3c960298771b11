//! The two programs that one would run on two hosts: a server with a board, and a client that writes
//! on it.
//!
//! On two machines in a network that can be trusted (there is no encryption yet):
//!
//! ```text
//! host A$ two_machines server --listen 10.0.0.1:7000 --trusted-network
//! host B$ two_machines client --join 10.0.0.1:7000 --listen 10.0.0.2:0 --trusted-network
//! ```
//!
//! Without arguments it runs both itself, the server on 127.0.0.1 and two clients on 127.0.0.2, which
//! is as far apart as one machine allows. The second client is given only the address of the first:
//! it must learn of the server, and reach it, by what the members tell each other.
//!
//! ```text
//! cargo run --release --example two_machines
//! ```

mod client;
mod server;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use rref::prelude::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Serves the board until it is told to end (Ctrl-C or SIGTERM).
    Server(Server),
    /// Joins, writes on the board and is called back by it, then leaves.
    Client(Client),
}

#[derive(Args)]
struct Network {
    /// Where to listen; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// The address that others are to dial instead, as for a container.
    #[arg(long)]
    advertise: Option<String>,
    /// Listen on addresses beyond this machine: whoever can reach them can call everything.
    #[arg(long)]
    trusted_network: bool,
}

#[derive(Args)]
struct Server {
    #[command(flatten)]
    network: Network,
    /// End by itself when so many clients have come and gone.
    #[arg(long)]
    clients: Option<usize>,
}

#[derive(Args)]
struct Client {
    #[command(flatten)]
    network: Network,
    /// The address of any member.
    #[arg(long)]
    join: String,
    /// The name of this node.
    #[arg(long, default_value = "client")]
    name: String,
    /// Stay until standard input ends.
    #[arg(long)]
    stay: bool,
}

impl Network {
    /// The settings that depend on where a program runs.
    fn apply(&self, mut node: Builder) -> Builder {
        node = match self.trusted_network {
            true => node.listen(&self.listen).insecure_any_address(),
            false => node.listen(&self.listen).insecure(),
        };
        match &self.advertise {
            Some(address) => node.advertise(address),
            None => node,
        }
    }
}

fn main() -> Result<()> {
    match Options::parse().part {
        Some(Part::Server(options)) => System::new().block_on(server::run(options)),
        Some(Part::Client(options)) => System::new().block_on(client::run(options)),
        None => both(),
    }
}

/// A program that this one has started; it does not outlive it.
struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    name: &'static str,
}

impl Program {
    fn start(name: &'static str, arguments: &[&str]) -> Result<Program> {
        println!("$ two_machines {}", arguments.join(" "));
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Program { child, output, name })
    }

    /// Passes on its output, up to the line that begins with `start`; gives the rest of that line.
    fn line(&mut self, start: &str) -> Result<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            print!("{}: {line}", self.name);
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return Ok(rest.to_string());
            }
            line.clear();
        }
        bail!("{} ended and never said: {start}..", self.name)
    }

    /// Lets it end and waits for that.
    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            print!("{}: {line}", self.name);
            line.clear();
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "{} failed: {status}", self.name);
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both hosts on this machine: two of its addresses.
fn both() -> Result<()> {
    let mut server = Program::start("server", &["server", "--listen", "127.0.0.1:0", "--clients", "2"])?;
    let address = server.line("listening on ")?;
    let here = ["--listen", "127.0.0.2:0"];
    let mut first = Program::start(
        "first",
        &[&["client", "--name", "first", "--stay", "--join", &address], &here[..]].concat(),
    )?;
    let door = first.line("listening on ")?;
    ensure!(door.starts_with("127.0.0.2:"), "the first client listens on {door}");
    first.line("done")?;
    let second =
        Program::start("second", &[&["client", "--name", "second", "--join", &door], &here[..]].concat())?;
    second.end()?;
    first.end()?;
    server.end()?;
    println!(
        "two hosts: calls went both ways between {address} and 127.0.0.2, also to a client that had been\n\
         told of the other client only; all three left in order, nothing leaked"
    );
    Ok(())
}
