//! A call under way, as its caller holds it.

use crate::error::{Error, Result};
use crate::node::{Node, Started};
use crate::object::{Received, Response};
use crate::payload::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tracing::Span;

/// A call under way. Await it for the result.
///
/// The call is sent when it is made, not when the request is first polled. Dropping the request
/// cancels the call if it has not started on its owner, and releases the handles in its arguments.
///
/// # Errors
/// [`Error::Timeout`] after the node's default timeout (60 s) or the one given here; others as the
/// method that made the request says.
#[must_use = "a request that is dropped cancels its call; for fire and forget use do_send"]
pub struct Request<R> {
    node: Node,
    state: State<R>,
    limit: Duration,
    timer: Timer,
    /// What a subscriber sees of it: from the call to the result.
    span: Span,
}

enum State<R> {
    /// It could not be sent.
    Failed(Error),
    /// The callee is on this node: the value is moved.
    Local(oneshot::Receiver<Result<R>>),
    /// The callee is on another node.
    Remote {
        call_id: u64,
        result: oneshot::Receiver<Result<Incoming>>,
    },
    Done,
}

enum Timer {
    /// Not polled yet: the timer belongs to the runtime that polls.
    Unset,
    Never,
    Runtime(Pin<Box<Sleep>>),
    /// Polled outside of tokio: the node's own thread keeps the time.
    Home(oneshot::Receiver<()>),
}

impl<R> Request<R> {
    fn new(node: &Node, state: State<R>) -> Request<R> {
        let limit = node.inner().config.default_timeout;
        Request { node: node.clone(), state, limit, timer: Timer::Unset, span: Span::none() }
    }

    pub(crate) fn failed(node: &Node, error: Error) -> Request<R> {
        Request::new(node, State::Failed(error))
    }

    pub(crate) fn local(node: &Node, result: oneshot::Receiver<Result<R>>) -> Request<R> {
        Request::new(node, State::Local(result))
    }

    pub(crate) fn started(node: &Node, started: Result<Started>) -> Request<R> {
        match started {
            Ok(Started { call_id, result, span }) => {
                let mut request = Request::new(node, State::Remote { call_id, result });
                request.span = span;
                request
            }
            Err(error) => Request::failed(node, error),
        }
    }

    /// Waits at most `limit`, counted from the first poll; `Duration::MAX` for no limit.
    ///
    /// A call that runs out of time is cancelled if it has not started; its owner keeps count too,
    /// unless the call was on its way before the limit was set.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self.timer = Timer::Unset;
        if let State::Remote { call_id, .. } = &self.state {
            self.node.limit_call(*call_id, limit);
        }
        self
    }

    fn poll_timer(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if let Timer::Unset = self.timer {
            self.timer = if self.limit == Duration::MAX {
                Timer::Never
            } else if Runtime::try_current().is_ok() {
                Timer::Runtime(Box::pin(tokio::time::sleep(self.limit)))
            } else {
                let (over, receiver) = oneshot::channel();
                let limit = self.limit;
                self.node.inner().home.run(move || {
                    actix_rt::spawn(async move {
                        tokio::time::sleep(limit).await;
                        let _ = over.send(());
                    });
                });
                Timer::Home(receiver)
            };
        }
        match &mut self.timer {
            Timer::Unset | Timer::Never => Poll::Pending,
            Timer::Runtime(sleep) => sleep.as_mut().poll(task),
            Timer::Home(over) => Pin::new(over).poll(task).map(drop),
        }
    }
}

impl<R: Response> Request<R> {
    /// Waits for the result on a thread that runs no tasks: for programs that are not async.
    ///
    /// # Errors
    /// [`Error::WouldBlockRuntime`] on a thread of an actix or tokio runtime, where it would keep the
    /// reply from being read; then the call is cancelled if it has not started. Otherwise those of
    /// the request.
    pub fn blocking(mut self) -> Result<R> {
        if Runtime::try_current().is_ok() {
            return Err(Error::WouldBlockRuntime);
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut task = Context::from_waker(&waker);
        // This thread keeps the time itself: the node's may be the one that is stuck.
        self.timer = Timer::Never;
        let deadline = Instant::now().checked_add(self.limit);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut task) {
                return result;
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => {
                    let limit = self.limit;
                    self.cancel();
                    return Err(Error::Timeout(limit));
                }
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }
}

/// Wakes a thread that waits in [`Request::blocking`].
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Nothing in a request is pinned.
impl<R> Unpin for Request<R> {}

impl<R: Response> Future for Request<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<R>> {
        let this = &mut *self;
        let closed = |node: &Node| Error::ShuttingDown { node: node.name().to_string() };
        let result = match &mut this.state {
            State::Failed(error) => Poll::Ready(Err(error.clone())),
            State::Local(result) => {
                Pin::new(result).poll(task).map(|got| got.unwrap_or_else(|_| Err(closed(&this.node))))
            }
            State::Remote { result, .. } => Pin::new(result).poll(task).map(|got| {
                got.unwrap_or_else(|_| Err(closed(&this.node)))
                    .and_then(|incoming| R::decode(Received(incoming)))
            }),
            // As other futures do: it has given its result away.
            State::Done => return Poll::Pending,
        };
        if let Poll::Ready(result) = result {
            this.state = State::Done;
            this.ended(result.as_ref().err());
            return Poll::Ready(result);
        }
        if this.poll_timer(task).is_ready() {
            let limit = this.limit;
            this.cancel();
            let error = Error::Timeout(limit);
            this.ended(Some(&error));
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }
}

impl<R> Request<R> {
    /// Counts how the call has ended, and ends its span.
    fn ended(&mut self, error: Option<&Error>) {
        let outcome = self.node.inner().outcomes.count(error);
        self.end_span(outcome);
    }

    fn end_span(&mut self, outcome: &'static str) {
        if !self.span.is_disabled() {
            self.span.record("outcome", outcome);
            self.span = Span::none();
        }
    }

    fn cancel(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Done);
        if let State::Remote { call_id, .. } = &state {
            self.node.cancel_call(*call_id);
        }
        // A local call notices that nobody holds the receiver any more.
        drop(state);
    }
}

impl<R> Drop for Request<R> {
    fn drop(&mut self) {
        match &self.state {
            State::Done => return,
            State::Failed(error) => {
                self.node.inner().outcomes.count(Some(error));
            }
            State::Local(_) | State::Remote { .. } => {
                self.node.inner().outcomes.other("cancelled");
                self.end_span("cancelled");
            }
        }
        self.cancel();
    }
}

impl<R> std::fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Failed(error) => format!("failed: {error}"),
            State::Local(_) | State::Remote { .. } => "under way".to_string(),
            State::Done => "done".to_string(),
        };
        write!(f, "Request({state})")
    }
}
