//! One node's way into the simulated network: what its transport, its listener and its streams do.

use super::network::{Network, Place};
use crate::error::{Error, Result};
use crate::transport::{BoxFuture, Listener, Stream, Transport};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Bytes on their way in one direction before a writer waits.
const BUFFER: usize = 256 * 1024;

/// The transport of one process.
pub(super) struct Wire {
    pub(super) network: Network,
    pub(super) place: Place,
    pub(super) process: u64,
}

impl Wire {
    /// Waits until both ways to `address` are open; an error if nobody is there.
    ///
    /// A dial is answered by the machine, not by the process: one that is paused is connected to.
    async fn reach(&self, address: &str) -> io::Result<()> {
        loop {
            let changed = self.network.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let way = {
                let mut world = self.network.lock();
                if !world.is_alive(self.place, self.process) {
                    return Err(io::ErrorKind::NetworkDown.into());
                }
                // The place outlives its process: a dead one refuses, once it can be reached.
                let Some(to) = world.place_of(address) else {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                };
                let (there, back) = ((self.place, to), (to, self.place));
                match world.is_open(there) && world.is_open(back) {
                    true => Some((there, back, world.latency(there) + world.latency(back))),
                    false => None,
                }
            };
            let Some((there, back, round_trip)) = way else {
                // As with TCP, nobody says so: whoever dials gives up in time.
                changed.await;
                continue;
            };
            if !round_trip.is_zero() {
                sleep(round_trip).await;
            }
            let world = self.network.lock();
            if world.is_open(there) && world.is_open(back) {
                return Ok(());
            }
        }
    }
}

impl Transport for Wire {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            self.reach(address).await?;
            let connection = self.network.lock().connect(self.place, address);
            let connection = connection.ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(End::new(self, connection, 0)) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let mut world = self.network.lock();
            if world.listener(address).is_some() {
                let (address, reason) = (address.to_string(), "a node listens there".to_string());
                return Err(Error::AddressInUse { address, reason });
            }
            let incoming = world.listen(address.to_string(), self.place, self.process);
            let wire = Wire { network: self.network.clone(), ..*self };
            Ok(Box::new(Accepting { wire, incoming, address: address.to_string() }) as Box<dyn Listener>)
        })
    }

    fn is_local(&self, _: &str) -> bool {
        true
    }
}

struct Accepting {
    wire: Wire,
    incoming: mpsc::UnboundedReceiver<(u64, Place)>,
    address: String,
}

impl Listener for Accepting {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>> {
        Box::pin(async move {
            let (connection, from) = self.incoming.recv().await.ok_or(io::ErrorKind::NotConnected)?;
            let from = self.wire.network.lock().name(from);
            Ok((Box::new(End::new(&self.wire, connection, 1)) as Box<dyn Stream>, from))
        })
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.incoming.close();
        while let Ok((connection, _)) = self.incoming.try_recv() {
            self.wire.network.lock().close(connection, 1);
        }
    }
}

/// One end of a connection.
struct End {
    network: Network,
    place: Place,
    process: u64,
    connection: u64,
    /// 0 for the end that has dialled.
    side: usize,
    /// Runs out when the next piece arrives.
    arrival: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl End {
    fn new(wire: &Wire, connection: u64, side: usize) -> End {
        let (place, process) = (wire.place, wire.process);
        End { network: wire.network.clone(), place, process, connection, side, arrival: None }
    }

    /// Whether the moment has come; if not, the task is woken when it has.
    fn has_come(&mut self, due: Instant, task: &mut Context<'_>) -> bool {
        if due <= Instant::now() {
            return true;
        }
        let timer = match self.arrival.take() {
            Some((at, timer)) if at == due => timer,
            _ => Box::pin(sleep_until(due)),
        };
        let (_, timer) = self.arrival.insert((due, timer));
        timer.as_mut().poll(task).is_ready()
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let network = this.network.clone();
        let mut world = network.lock();
        let theirs = 1 - this.side;
        let before = buffer.filled().len();
        loop {
            let Some(connection) = world.connections.get(&this.connection) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            if connection.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let open = world.is_open(connection.way(theirs));
            let pipe = &connection.pipes[theirs];
            let next = pipe.queue.front().map(|parcel| parcel.due);
            let due = next.or(pipe.ends).filter(|_| open);
            let ready = due.is_some_and(|due| this.has_come(due, task));
            if buffer.remaining() == 0 || !ready {
                break;
            }
            if next.is_none() {
                // The end.
                return Poll::Ready(Ok(()));
            }
            if !world.arrive(this.connection, theirs) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let Some(connection) = world.connections.get_mut(&this.connection) else { break };
            let pipe = &mut connection.pipes[theirs];
            if let Some(parcel) = pipe.queue.front_mut() {
                let part = parcel.bytes.split_to(parcel.bytes.len().min(buffer.remaining()));
                pipe.bytes -= part.len();
                buffer.put_slice(&part);
                if parcel.bytes.is_empty() {
                    pipe.queue.pop_front();
                }
            }
            if let Some(writer) = pipe.writer.take() {
                writer.wake();
            }
        }
        if buffer.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        if let Some(connection) = world.connections.get_mut(&this.connection) {
            connection.pipes[theirs].reader = Some(task.waker().clone());
        }
        Poll::Pending
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut world = self.network.lock();
        let alive = world.is_alive(self.place, self.process);
        let Some(connection) = world.connections.get_mut(&self.connection).filter(|_| alive) else {
            return Poll::Ready(Err(io::ErrorKind::NetworkDown.into()));
        };
        if connection.broken || !connection.is_read(self.side) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let pipe = &mut connection.pipes[self.side];
        if pipe.bytes >= BUFFER {
            pipe.writer = Some(task.waker().clone());
            return Poll::Pending;
        }
        world.send(self.connection, self.side, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.network.lock().end(self.connection, self.side);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.network.lock().close(self.connection, self.side);
    }
}
