//! The network in memory with a gate on each one-way link: what is sent while the gate is shut waits
//! there, in order, until it is opened. And a node that is cut off as if its machine had died.

use rref::transport::{BoxFuture, Listener, Network, Stream, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// All links of a cluster.
#[derive(Clone, Default)]
pub struct Gate {
    network: Network,
    links: Arc<Mutex<Links>>,
}

#[derive(Default)]
struct Links {
    shut: BTreeSet<(String, String)>,
    dead: BTreeSet<String>,
    losses: BTreeMap<(String, String), u32>,
    wakers: Vec<Waker>,
}

impl Gate {
    /// Holds back what `from` sends to `to` from now on.
    pub fn shut(&self, from: &str, to: &str) {
        self.lock().shut.insert((from.into(), to.into()));
    }

    /// Lets everything through again.
    pub fn open(&self) {
        let mut links = self.lock();
        links.shut.clear();
        links.wakers.drain(..).for_each(Waker::wake);
    }

    /// The next `times` times that `from` sends something to `to`, other than to greet it, it is lost
    /// and the connection breaks.
    pub fn lose(&self, from: &str, to: &str, times: u32) {
        self.lock().losses.insert((from.into(), to.into()), times);
    }

    /// How much of it has not been lost yet.
    pub fn still_to_lose(&self) -> u32 {
        self.lock().losses.values().sum()
    }

    /// Breaks all connections; new ones work.
    pub fn cut_connections(&self) {
        self.network.cut_connections();
    }

    /// The machine of `name` dies: connections break, and nobody listens there any more.
    pub fn kill(&self, name: &str) {
        let mut links = self.lock();
        links.dead.insert(name.into());
        links.wakers.drain(..).for_each(Waker::wake);
    }

    /// The transport of the node `name`.
    pub fn of(&self, name: &str) -> Dialler {
        Dialler { name: name.into(), gate: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if something is to be lost.
    fn loses(&self, from: &str, to: &str) -> io::Result<()> {
        match self.lock().losses.get_mut(&(from.into(), to.into())) {
            Some(times) if *times > 0 => {
                *times -= 1;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            _ => Ok(()),
        }
    }

    /// Pending while the link is shut.
    fn pass(&self, from: &str, to: &str, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut links = self.lock();
        if links.dead.contains(from) || links.dead.contains(to) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        links.wakers.push(task.waker().clone());
        if links.shut.contains(&(from.into(), to.into())) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

/// One node's way into the network.
pub struct Dialler {
    name: String,
    gate: Gate,
}

impl Transport for Dialler {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (us, them) = {
                let links = self.gate.lock();
                (links.dead.contains(&self.name), links.dead.contains(address))
            };
            if us {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if them {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let stream = self.gate.network.dial(address).await?;
            let gate = self.gate.clone();
            let (from, to) = (self.name.clone(), address.to_string());
            Ok(Box::new(Gated { stream, gate, from, to, greeted: false }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, rref::Result<Box<dyn Listener>>> {
        self.gate.network.listen(address)
    }

    fn is_local(&self, _: &str) -> bool {
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// The dialling end: it sees both directions.
struct Gated {
    stream: Box<dyn Stream>,
    gate: Gate,
    from: String,
    to: String,
    /// Whether an answer to the hello has come.
    greeted: bool,
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.pass(&self.to, &self.from, task))?;
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(task, buffer))?;
        if self.greeted && buffer.filled().len() > before {
            self.gate.loses(&self.to, &self.from)?;
        }
        self.greeted = true;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.gate.pass(&self.from, &self.to, task))?;
        if self.greeted {
            self.gate.loses(&self.from, &self.to)?;
        }
        Pin::new(&mut self.stream).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}
