//! How bytes get from one node to another: the only code with sockets.
//!
//! A transport dials and listens; what the bytes mean is decided elsewhere. Must not know frames,
//! lanes or objects.

mod memory;
mod tcp;

pub use memory::Network;
pub use tcp::Tcp;

use crate::Result;
use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// A future that a transport returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An established connection, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

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
}

/// Accepts connections until it is dropped.
pub trait Listener: Send + 'static {
    /// The address others can dial.
    fn address(&self) -> String;

    /// The next connection, and where it comes from.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>>;
}
