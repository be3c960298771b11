//! A network in memory: deterministic under a paused clock, with faults on request.

use super::{BoxFuture, Listener, Stream, Transport};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// Bytes a connection holds in each direction before its writer waits.
const BUFFER: usize = 256 * 1024;

/// A network in memory. Clones are the same network; addresses are any text.
///
/// For tests of nodes that live in one process. Give each node's builder a clone:
///
/// ```
/// use rref::prelude::*;
///
/// fn twice(x: i64) -> i64 { 2 * x }
///
/// # actix::System::new().block_on(async {
/// let network = rref::transport::Network::new();
/// let node = |name| Node::builder(name).transport(network.clone()).function(twice);
/// let a = node("a").listen("a").insecure().start().await?;
/// let b = node("b").join("a").start().await?;
/// assert_eq!(b.call("a", twice, (21,)).await?, 42);
/// # a.shutdown().await;
/// # b.shutdown().await;
/// # Ok::<_, rref::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Network {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    listening: BTreeMap<String, mpsc::UnboundedSender<DuplexStream>>,
    connections: Vec<Weak<Cut>>,
    unreachable: bool,
    next_port: u32,
}

/// Set once a connection is cut; both ends then read an error.
#[derive(Default)]
struct Cut {
    broken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Network {
    /// A network of its own.
    pub fn new() -> Network {
        Network::default()
    }

    /// Breaks every connection that is open now. Bytes under way are lost; new connections work.
    pub fn cut_connections(&self) {
        let connections = std::mem::take(&mut self.lock().connections);
        for cut in connections.iter().filter_map(Weak::upgrade) {
            cut.broken.store(true, Ordering::Release);
            for waker in cut.wakers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                waker.wake();
            }
        }
    }

    /// While `true`, new connections fail with a time-out, as when a cable is pulled.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Network {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let mut shared = self.lock();
            if shared.unreachable {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (ours, theirs) = tokio::io::duplex(BUFFER);
            let accepted = shared.listening.get(address).is_some_and(|to| to.send(theirs).is_ok());
            if !accepted {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let cut = Arc::new(Cut::default());
            shared.connections.retain(|cut| cut.strong_count() > 0);
            shared.connections.push(Arc::downgrade(&cut));
            Ok(Box::new(Breakable { stream: ours, cut }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let mut shared = self.lock();
            let address = match address.strip_suffix(":0") {
                Some(host) => {
                    shared.next_port += 1;
                    format!("{host}:{}", shared.next_port)
                }
                None => address.to_string(),
            };
            if shared.listening.get(&address).is_some_and(|to| !to.is_closed()) {
                return Err(Error::AddressInUse { address, reason: "a node listens there".into() });
            }
            let (sender, incoming) = mpsc::unbounded_channel();
            shared.listening.insert(address.clone(), sender);
            Ok(Box::new(Accepting { incoming, address }) as Box<dyn Listener>)
        })
    }

    fn is_local(&self, _: &str) -> bool {
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

struct Accepting {
    incoming: mpsc::UnboundedReceiver<DuplexStream>,
    address: String,
}

impl Listener for Accepting {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>> {
        Box::pin(async move {
            let stream = self.incoming.recv().await.ok_or(io::ErrorKind::NotConnected)?;
            Ok((Box::new(stream) as Box<dyn Stream>, "memory".to_string()))
        })
    }
}

/// The dialling end of a connection: cutting it closes it, which the other end reads as its end.
struct Breakable {
    stream: DuplexStream,
    cut: Arc<Cut>,
}

impl Breakable {
    fn check(&self, task: &mut Context<'_>) -> io::Result<()> {
        if !self.cut.broken.load(Ordering::Acquire) {
            let mut wakers = self.cut.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            if !wakers.iter().any(|waker| waker.will_wake(task.waker())) {
                wakers.push(task.waker().clone());
            }
            // Cut between the first look and the registration.
            if !self.cut.broken.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Breakable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(task)?;
        Pin::new(&mut self.stream).poll_read(task, buffer)
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(task)?;
        Pin::new(&mut self.stream).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(task)?;
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}
