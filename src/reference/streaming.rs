//! Results that come one by one.

use crate::error::{Error, Result};
use crate::node::Node;
use crate::object::{Data, invoke};
use crate::payload::Incoming;
use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};
use futures_core::Stream;
use rref_core::wire::STREAM_CREDIT;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// A result that comes element by element, with back-pressure.
///
/// A function or a handler returns one, made from any `Stream`; its caller gets one, and reads it as
/// a `Stream` of `Result<T>`. The owner is at most 32 elements ahead of the reader. Dropping it ends
/// the stream at its source.
///
/// ```
/// use rref::prelude::*;
/// use rref::Streaming;
///
/// fn count(upto: u32) -> Streaming<u32> { Streaming::from_iter(0..upto) }
///
/// # actix::System::new().block_on(async {
/// let node = Node::builder("me").function(count).start().await?;
/// let mut numbers = node.call("me", count, (3,)).await?;
/// while let Some(n) = numbers.next().await {
///     println!("{}", n?);
/// }
/// # node.shutdown().await;
/// # Ok::<_, Error>(())
/// # }).unwrap();
/// ```
pub struct Streaming<T> {
    source: Source<T>,
}

enum Source<T> {
    /// Made here.
    Here(Pin<Box<dyn Stream<Item = T> + Send>>),
    /// Sent by another node.
    Remote(Remote),
    /// Ended; further elements there are none.
    Ended,
}

struct Remote {
    node: Node,
    call_id: u64,
    items: mpsc::UnboundedReceiver<Result<Incoming>>,
    /// Elements taken since the source was last told so.
    taken: u64,
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.node.end_stream(self.call_id);
    }
}

/// What a streaming reply brings to its caller.
pub(crate) struct StreamStart {
    pub(crate) call_id: u64,
    pub(crate) items: mpsc::UnboundedReceiver<Result<Incoming>>,
}

impl<T: Data> Streaming<T> {
    /// Streams what `stream` gives.
    pub fn new(stream: impl Stream<Item = T> + Send + 'static) -> Streaming<T> {
        Streaming { source: Source::Here(Box::pin(stream)) }
    }

    /// Streams what an iterator gives. (A `FromIterator` would have to be finite at once.)
    #[allow(clippy::should_implement_trait)] // the iterator is kept, not consumed
    pub fn from_iter(items: impl IntoIterator<Item = T, IntoIter: Send + 'static>) -> Streaming<T> {
        Streaming::new(Iter(items.into_iter()))
    }

    /// The next element; none at the end.
    ///
    /// # Errors
    /// [`Error::Remote`] if the source panics, [`Error::OutcomeUnknown`] if its node is lost,
    /// [`Error::Decode`], [`Error::ShuttingDown`]. Nothing follows an error.
    pub async fn next(&mut self) -> Option<Result<T>> {
        std::future::poll_fn(|task| Pin::new(&mut *self).poll_next(task)).await
    }

    pub(crate) fn received(incoming: Incoming) -> Result<Streaming<T>> {
        let node = incoming.node.clone();
        match incoming.stream {
            Some(StreamStart { call_id, items }) => {
                Ok(Streaming { source: Source::Remote(Remote { node, call_id, items, taken: 0 }) })
            }
            None => Err(Error::Decode("the reply is no stream".into())),
        }
    }
}

/// An iterator as a stream.
struct Iter<I>(I);

impl<I: Iterator> Unpin for Iter<I> {}

impl<I: Iterator> Stream for Iter<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// Nothing in it is pinned: the user's stream has a box of its own.
impl<T> Unpin for Streaming<T> {}

impl<T: Data> Stream for Streaming<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let this = &mut *self;
        let item = match &mut this.source {
            Source::Ended => return Poll::Ready(None),
            Source::Here(stream) => stream.as_mut().poll_next(task).map(|item| item.map(Ok)),
            Source::Remote(remote) => remote.items.poll_recv(task).map(|item| {
                let item = item?;
                remote.taken += 1;
                if remote.taken >= STREAM_CREDIT / 2 {
                    remote.node.take_more(remote.call_id, std::mem::take(&mut remote.taken));
                }
                Some(item.and_then(|incoming| {
                    let node = incoming.node.clone();
                    invoke::contained(&node, "streaming", || incoming.decode())
                }))
            }),
        };
        if matches!(item, Poll::Ready(None | Some(Err(_)))) {
            this.source = Source::Ended;
        }
        item
    }
}

impl<T> std::fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streaming")
    }
}

/// So that a handler's `type Result` can be a stream.
impl<A, M, T> MessageResponse<A, M> for Streaming<T>
where
    A: Actor,
    M: Message<Result = Streaming<T>>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, reply: Option<OneshotSender<Streaming<T>>>) {
        if let Some(reply) = reply {
            let _ = reply.send(self);
        }
    }
}
