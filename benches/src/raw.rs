//! The baseline: TCP sockets of tokio, without anything on top.

use crate::work::SMALL;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes that the server writes at a time; they stay in its cache.
const PIECE: usize = 256 * 1024;

/// Sends back whatever comes, on every connection.
pub async fn serve_echo(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..count]).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Sends as many bytes as a request of eight bytes asks for.
pub async fn serve_source(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let piece = vec![1; PIECE];
            while let Ok(mut left) = stream.read_u64().await {
                while left > 0 {
                    let count = left.min(PIECE as u64);
                    if stream.write_all(&piece[..count as usize]).await.is_err() {
                        return;
                    }
                    left -= count;
                }
            }
        });
    }
}

/// One connection to the echo.
pub struct Echo {
    stream: TcpStream,
    buffer: [u8; SMALL],
}

impl Echo {
    /// Connects.
    pub async fn connect(address: &str) -> io::Result<Echo> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Echo { stream, buffer: [0; SMALL] })
    }

    /// One small message there and back.
    pub async fn call(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.buffer).await?;
        self.stream.read_exact(&mut self.buffer).await.map(drop)
    }
}

/// One connection to the source of bytes, with a buffer that has been written to before.
pub struct Source {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Source {
    /// Connects; fetches of up to `largest` bytes are possible.
    pub async fn connect(address: &str, largest: usize) -> io::Result<Source> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Source { stream, buffer: vec![1; largest] })
    }

    /// Brings `bytes` here.
    pub async fn fetch(&mut self, bytes: usize) -> io::Result<()> {
        self.stream.write_u64(bytes as u64).await?;
        self.stream.read_exact(&mut self.buffer[..bytes]).await.map(drop)
    }
}
