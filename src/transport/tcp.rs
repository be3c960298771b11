//! TCP: small frames leave at once (`TCP_NODELAY`).

use super::{BoxFuture, Listener, Stream, Transport};
use crate::error::{Error, Result};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use tokio::net::{TcpListener, TcpStream};

/// TCP sockets; addresses are `host:port`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Transport for Tcp {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => {
                    Error::AddressInUse { address: address.into(), reason: error.to_string() }
                }
                _ => Error::Config(format!("cannot listen on `{address}`: {error}; give `host:port`")),
            })?;
            let local = listener
                .local_addr()
                .map_err(|error| Error::Config(format!("cannot read the address of `{address}`: {error}")))?;
            Ok(Box::new(Accepting { listener, address: local.to_string() }) as Box<dyn Listener>)
        })
    }

    fn is_local(&self, address: &str) -> bool {
        if let Ok(mut addresses) = address.to_socket_addrs() {
            return addresses.all(|address| is_loopback(address.ip()));
        }
        false
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

struct Accepting {
    listener: TcpListener,
    address: String,
}

impl Listener for Accepting {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn Stream>, from.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_local() {
        for address in ["127.0.0.1:0", "127.1.2.3:80", "[::1]:0", "[::ffff:127.0.0.1]:1"] {
            assert!(Tcp.is_local(address), "{address}");
        }
        for address in ["0.0.0.0:0", "10.0.0.1:1", "[::]:0", "nonsense"] {
            assert!(!Tcp.is_local(address), "{address}");
        }
    }

    #[tokio::test]
    async fn small_frames_leave_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        assert!(stream.nodelay().unwrap());
        let mut ours = Accepting { listener, address: address.to_string() };
        ours.accept().await.unwrap();
    }
}
