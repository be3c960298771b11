//! One connection: a task that reads until the socket has run dry and then writes what has gathered,
//! many frames at a time.
//!
//! It holds no protocol state: when it ends, the session waits for the next connection.

use super::Node;
use super::outgoing::Filled;
use super::peer::Link;
use super::state::State;
use crate::transport::Stream;
use bytes::{Buf, Bytes, BytesMut};
use rref_core::NodeUid;
use rref_core::lease::Reader;
use rref_core::session::AckDue;
use rref_core::wire::{Encoded, Limits, Stamped, decode, frame_len};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWrite};

/// Bytes asked of the socket at a time.
const READ: usize = 64 * 1024;
/// Bytes gathered for one write, unless a single frame is larger.
const WRITE: usize = 256 * 1024;
/// Parts that one system call takes.
const SLICES: usize = 64;
/// Parts up to this size are copied together: a slice of its own costs more.
const COPY: usize = 4 * 1024;
/// Room for small parts; it grows with the largest write.
const SMALL: usize = 4 * COPY;
/// More than a socket's receive buffer holds, on systems as they are usually set up.
const SOCKET: u64 = 64 << 20;
/// Reads before other tasks get their turn.
const TURNS: usize = 32;

/// A connection with its handshake behind it.
pub(crate) struct Connection {
    node: Node,
    peer: NodeUid,
    /// Which of the pair's connections this is.
    number: u64,
    stream: Box<dyn Stream>,
    input: BytesMut,
    output: Output,
    /// Frames taken in and their lengths; kept for its memory.
    frames: Vec<(Result<Stamped, Ended>, usize)>,
    /// The handshake may have left frames in the input.
    fresh: bool,
}

/// Bytes on their way out.
struct Output {
    parts: VecDeque<Bytes>,
    /// Small parts, gathered until a large one or the end.
    small: BytesMut,
    bytes: usize,
    /// Bytes that the peer's account does not have yet.
    uncounted: u64,
}

impl Output {
    fn new() -> Output {
        let small = BytesMut::with_capacity(SMALL);
        Output { parts: VecDeque::new(), small, bytes: 0, uncounted: 0 }
    }

    fn push(&mut self, frame: &Encoded) {
        self.bytes += frame.len();
        self.uncounted += frame.len() as u64;
        for part in frame.parts() {
            if part.len() <= COPY {
                self.small.extend_from_slice(part);
            } else {
                self.seal();
                self.parts.push_back(part.clone());
            }
        }
    }

    /// Puts the gathered small parts in their place among the large ones.
    fn seal(&mut self) {
        if !self.small.is_empty() {
            self.parts.push_back(self.small.split().freeze());
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written.min(self.bytes);
        while let Some(part) = self.parts.front_mut() {
            if written < part.len() {
                part.advance(written);
                return;
            }
            written -= part.len();
            self.parts.pop_front();
        }
    }
}

/// Why a connection has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer or the network closed it.
    Lost(String),
    /// A newer one has taken over, or the peer is dead.
    Replaced,
    /// The peer broke the protocol.
    Broken(String),
}

impl Connection {
    pub(crate) fn new(
        node: Node,
        peer: NodeUid,
        number: u64,
        stream: Box<dyn Stream>,
        input: BytesMut,
    ) -> Connection {
        let output = Output::new();
        Connection { node, peer, number, stream, input, output, frames: Vec::new(), fresh: true }
    }

    /// Sends `bytes` before any frame.
    pub(crate) fn send_first(&mut self, bytes: Vec<u8>) {
        self.output.bytes += bytes.len();
        self.output.uncounted += bytes.len() as u64;
        self.output.parts.push_back(Bytes::from(bytes));
    }

    /// Whether this connection still carries the session.
    fn is_current(&self, state: &State) -> bool {
        state.peers.get(&self.peer).is_some_and(|peer| peer.link == Link::Connected(self.number))
    }

    /// Reads once and takes in what is complete; false when there is nothing to read now.
    fn read(&mut self, task: &mut Context<'_>) -> Result<bool, Ended> {
        // A frame that has begun is given its room at once, but no more than its kind may have.
        let wanted = frame_len(&self.input, &Limits::DEFAULT)
            .map_err(|error| Ended::Broken(error.to_string()))?
            .map_or(READ, |length| length.saturating_sub(self.input.len()).max(READ));
        // Room grows with what has come: a length alone makes nobody allocate.
        self.input.reserve(wanted.min(READ.max(2 * self.input.len())));
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(task);
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(Ended::Lost(error.to_string())),
            Poll::Ready(Ok(0)) => Err(Ended::Lost("the peer closed the connection".into())),
            Poll::Ready(Ok(count)) => self.take_in(count).map(|()| true),
        }
    }

    /// Takes in every frame that is complete.
    fn take_in(&mut self, count: usize) -> Result<(), Ended> {
        let limits = Limits::DEFAULT;
        let mut frames = std::mem::take(&mut self.frames);
        loop {
            let length = match frame_len(&self.input, &limits) {
                Ok(Some(length)) if length <= self.input.len() => length,
                Ok(_) => break,
                Err(error) => {
                    frames.push((Err(Ended::Broken(error.to_string())), 0));
                    break;
                }
            };
            let bytes = if length <= COPY {
                // A slice would keep the whole buffer from being used again.
                let copy = Bytes::copy_from_slice(&self.input[..length]);
                self.input.advance(length);
                copy
            } else {
                self.input.split_to(length).freeze()
            };
            let frame = decode(bytes, &limits).map_err(|error| Ended::Broken(error.to_string()));
            // What came before a bad frame still counts.
            let bad = frame.is_err();
            frames.push((frame, length));
            if bad {
                break;
            }
        }
        let mut state = self.node.lock();
        if !self.is_current(&state) {
            return Err(Ended::Replaced);
        }
        if let Some(peer) = state.peers.get_mut(&self.peer) {
            peer.bytes_received += count as u64;
            // While this runs nobody need wake it: it will look for output anyway.
            peer.waker = None;
        }
        let back = count > 0 && state.showed_life(self.peer);
        for (frame, length) in frames.drain(..) {
            self.node.receive(&mut state, self.peer, frame?, length).map_err(Ended::Broken)?;
        }
        if let Some(peer) = state.peers.get(&self.peer) {
            let (flooded, ack_due) = (peer.is_flooded(), peer.lane.ack_due());
            if flooded {
                state.flooded.push(self.peer);
            }
            if ack_due == AckDue::Later {
                state.arm_later();
            }
        }
        drop(state);
        if back {
            self.node.inner().peers_changed.notify_waiters();
        }
        self.frames = frames;
        Ok(())
    }

    /// Somebody may want to know that everything that was received then is taken in: it is when nothing is left,
    /// or when more has come since than any socket holds. A peer that never pauses must not keep the others'
    /// leases from being judged.
    fn drained(&mut self, dry: bool) {
        let mut state = self.node.lock();
        let received = state.peers.get(&self.peer).map_or(0, |peer| peer.bytes_received);
        let passed = |then: &u64| received.saturating_sub(*then) >= SOCKET;
        if !dry && !state.to_drain.get(&self.peer).is_some_and(passed) {
            return;
        }
        if self.is_current(&state) && state.was_drained(self.peer) {
            state.leases.reader_drained(Reader::Lane(self.peer));
            self.node.advance_leases(&mut state);
        }
    }

    /// Fills the output from the lane. True when that was all there is for now: then it asks to be
    /// woken for more.
    fn gather(&mut self, task: &mut Context<'_>) -> Result<bool, Ended> {
        let mut state = self.node.lock();
        if !self.is_current(&state) {
            return Err(Ended::Replaced);
        }
        let mut all = false;
        while self.output.bytes < WRITE {
            let Some(peer) = state.peers.get_mut(&self.peer) else { return Err(Ended::Replaced) };
            if let Some(frame) = peer.lane.next_to_send() {
                self.output.push(frame);
                peer.frames_sent += 1;
            } else if state.fill(self.peer) == Filled::Nothing {
                all = true;
                break;
            }
        }
        let Some(peer) = state.peers.get_mut(&self.peer) else { return Err(Ended::Replaced) };
        let due = match peer.lane.ack_due() {
            AckDue::No => false,
            AckDue::Later => peer.ack_now,
            AckDue::Now => true,
        };
        peer.ack_now = false;
        let ack = due.then(|| peer.ack());
        for frame in [ack, peer.ack_with_exceptions()].into_iter().flatten() {
            self.output.push(&frame.map_err(|error| Ended::Broken(error.to_string()))?);
            peer.frames_sent += 1;
        }
        self.output.seal();
        peer.bytes_sent += std::mem::take(&mut self.output.uncounted);
        if peer.poller.is_none() {
            peer.poller = Some(task.waker().clone());
        }
        if all {
            peer.waker = Some(task.waker().clone());
        }
        Ok(all)
    }

    /// Writes once what the output holds.
    fn write(&mut self, task: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        // The usual case: only small frames, gathered in one part.
        if let (Some(part), 1) = (self.output.parts.front(), self.output.parts.len()) {
            return stream.poll_write(task, part);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&self.output.parts) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        stream.poll_write_vectored(task, &slices[..count])
    }

    fn drive(&mut self, task: &mut Context<'_>) -> Result<(), Ended> {
        if std::mem::replace(&mut self.fresh, false) {
            self.take_in(0)?;
        }
        let mut turns = 0;
        let dry = loop {
            if !self.read(task)? {
                break true;
            }
            turns += 1;
            if turns == TURNS {
                task.waker().wake_by_ref();
                break false;
            }
        };
        if self.node.inner().draining.load(Ordering::Acquire) {
            self.drained(dry);
        }
        let mut all = false;
        loop {
            if self.output.parts.is_empty() {
                if all {
                    return Ok(());
                }
                all = self.gather(task)?;
                if self.output.parts.is_empty() {
                    return Ok(());
                }
            }
            match self.write(task) {
                // One that was replaced would wait for its socket for ever.
                Poll::Pending if self.is_current(&self.node.lock()) => return Ok(()),
                Poll::Pending => return Err(Ended::Replaced),
                Poll::Ready(Err(error)) => return Err(Ended::Lost(error.to_string())),
                Poll::Ready(Ok(0)) => return Err(Ended::Lost("the peer takes nothing more".into())),
                Poll::Ready(Ok(count)) => self.output.advance(count),
            }
        }
    }
}

impl Future for Connection {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Ended> {
        match self.drive(task) {
            Ok(()) => Poll::Pending,
            Err(ended) => Poll::Ready(ended),
        }
    }
}
