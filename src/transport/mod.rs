//! How bytes get from one node to another: the only code with sockets.
//!
//! A transport dials and listens; what the bytes mean is decided elsewhere. Must not know frames,
//! lanes or objects.

mod memory;
mod tcp;

pub use memory::Network;
pub use tcp::Tcp;

use crate::Result;
use std::any::{Any, TypeId};
use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A future that a transport returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An established connection, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The stream as what it is, so that one of the system's can be moved to another thread's reactor.
    #[doc(hidden)]
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;

    /// Whether it is a socket of the system.
    #[doc(hidden)]
    fn is_socket(&self) -> bool;
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn is_socket(&self) -> bool {
        TypeId::of::<S>() == TypeId::of::<TcpStream>()
    }
}

/// A stream on its way from one thread to another.
///
/// A socket is served by the reactor where it was opened: were that thread blocked, so would be the
/// socket.
pub(crate) enum Portable {
    Socket(std::net::TcpStream),
    Other(Box<dyn Stream>),
}

impl Portable {
    /// Takes a stream from the current thread's reactor.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn take(stream: Box<dyn Stream>) -> io::Result<Portable> {
        // Of what is in the box: a box of a stream is a stream as well.
        if !(*stream).is_socket() {
            return Ok(Portable::Other(stream));
        }
        match stream.into_any().downcast::<TcpStream>() {
            Ok(socket) => Ok(Portable::Socket(socket.into_std()?)),
            Err(_) => Err(io::Error::other("a socket of an unknown kind")),
        }
    }

    /// Gives it to the current thread's reactor.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn settle(self) -> io::Result<Box<dyn Stream>> {
        match self {
            Portable::Socket(socket) => Ok(Box::new(TcpStream::from_std(socket)?)),
            Portable::Other(stream) => Ok(stream),
        }
    }
}

/// Carries bytes between nodes. [`Tcp`] is the default; [`Network`] stays in memory, for tests.
pub trait Transport: Send + Sync + 'static {
    /// Connects to `address`.
    ///
    /// # Errors
    /// `ConnectionRefused` must mean that nobody listens there: a node whose every known address
    /// refuses is taken for dead.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Listens on `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse) and
    /// [`Error::Config`](crate::Error::Config) for addresses it cannot use.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Box<dyn Listener>>>;

    /// Whether `address` can be reached from this machine only.
    fn is_local(&self, address: &str) -> bool;

    /// Whether all nodes on it live on one thread, under one clock that may be paused. Heartbeats are
    /// then sent by a task of that thread; else by a thread of their own, which a blocked handler does
    /// not delay. Default no.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// Accepts connections until it is dropped.
pub trait Listener: Send + 'static {
    /// The address others can dial.
    fn address(&self) -> String;

    /// The next connection, and where it comes from.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_known_in_its_box() {
        let mut listener = Tcp.listen("127.0.0.1:0").await.unwrap();
        let dialled = Tcp.dial(&listener.address()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        for stream in [dialled, accepted] {
            assert!(matches!(Portable::take(stream), Ok(Portable::Socket(_))));
        }
        let memory: Box<dyn Stream> = Box::new(tokio::io::duplex(1).0);
        assert!(matches!(Portable::take(memory), Ok(Portable::Other(_))));
    }
}
