//! Running one message, or one function, against a seated actor.
//!
//! All panics of user code end here: each is turned into an error for the caller it concerns.
//! Knows seats; must not know peers, lanes or frames.

use super::Hosted;
use super::seat::{Busy, Death, Job, Seat, Verdict, panic_text};
use crate::error::{Error, Gone, RemoteKind, Result};
use crate::node::trace::{self, Traced};
use crate::node::{Node, current};
use actix::dev::MessageResponse;
use actix::{Actor, ActorFuture, Context, Handler, Message, ResponseActFuture, ResponseFuture};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Where a result goes.
pub(crate) trait Completion<R>: Send + 'static {
    /// Whether nobody waits any more, so that a call that has not started need not run.
    fn cancelled(&self) -> bool;
    /// Delivers the result.
    fn complete(self, result: Result<R>);
}

impl<R: Send + 'static> Completion<R> for oneshot::Sender<Result<R>> {
    fn cancelled(&self) -> bool {
        self.is_closed()
    }

    fn complete(self, result: Result<R>) {
        // The caller may have gone; then the result is dropped.
        let _ = self.send(result);
    }
}

impl<R: 'static> Completion<R> for Box<dyn FnOnce(Result<R>) + Send> {
    fn cancelled(&self) -> bool {
        false
    }

    fn complete(self, result: Result<R>) {
        self(result);
    }
}

/// For calls nobody waits for.
pub(crate) struct Discard;

impl<R> Completion<R> for Discard {
    fn cancelled(&self) -> bool {
        false
    }

    fn complete(self, result: Result<R>) {
        if let Err(error) = result {
            tracing::debug!("a cast failed: {error}");
        }
    }
}

/// A completion that says why when it is dropped unserved: its actor died, or was stopped.
struct Owed<R, C: Completion<R>> {
    completion: Option<C>,
    death: Arc<OnceLock<Death>>,
    result: std::marker::PhantomData<fn(R)>,
}

impl<R, C: Completion<R>> Owed<R, C> {
    fn new(completion: C, death: Arc<OnceLock<Death>>) -> Self {
        Owed { completion: Some(completion), death, result: std::marker::PhantomData }
    }

    fn cancelled(&self) -> bool {
        self.completion.as_ref().is_none_or(C::cancelled)
    }

    fn complete(mut self, result: Result<R>) {
        if let Some(completion) = self.completion.take() {
            completion.complete(result);
        }
    }
}

impl<R, C: Completion<R>> Drop for Owed<R, C> {
    fn drop(&mut self) {
        if let Some(completion) = self.completion.take() {
            completion.complete(Err(death_error(self.death.get())));
        }
    }
}

/// What a caller is told of an object that no longer runs.
pub(crate) fn death_error(death: Option<&Death>) -> Error {
    match death {
        Some(Death::Panicked(text)) => Error::ObjectDied { reason: text.clone() },
        Some(Death::Stopped) | None => Error::Gone(Gone::Stopped),
    }
}

fn panicked(function: &str, text: String, node: &Node) -> Error {
    Error::Remote {
        kind: RemoteKind::Panic,
        message: text,
        node: node.name().to_string(),
        function: function.to_string(),
        trace_id: trace::current_id(),
    }
}

/// Queues a message for a seated actor. `decode` runs as the job starts.
pub(crate) fn message<H, M, C>(
    seat: &Seat<H>,
    node: &Node,
    decode: impl FnOnce() -> Result<M> + Send + 'static,
    completion: C,
) where
    H: Actor<Context = Context<H>> + Handler<M>,
    M: Message<Result: Send> + Send + 'static,
    C: Completion<M::Result>,
{
    let owed = Owed::new(completion, seat.death());
    let (node, traced) = (node.clone(), Traced::current());
    let job: Job<H> = Box::new(move |actor, context, busy| {
        let _traced = traced.enter();
        if owed.cancelled() {
            owed.complete(Err(Error::Timeout(std::time::Duration::ZERO)));
            return Verdict::Fine;
        }
        let message = match contained(&node, std::any::type_name::<M>(), decode) {
            Ok(message) => message,
            Err(error) => {
                owed.complete(Err(error));
                return Verdict::Fine;
            }
        };
        handle(actor, context, busy, node, message, owed)
    });
    seat.queue(job);
}

/// Runs the handler and sees to it that its result, or the reason for having none, gets out.
fn handle<H, M, C>(
    actor: &mut H,
    context: &mut Context<H>,
    busy: &Busy,
    node: Node,
    message: M,
    owed: Owed<M::Result, C>,
) -> Verdict
where
    H: Actor<Context = Context<H>> + Handler<M>,
    M: Message<Result: Send> + Send + 'static,
    C: Completion<M::Result>,
{
    let (tx, mut rx) = oneshot::channel::<M::Result>();
    let mut failure: Option<Arc<OnceLock<String>>> = None;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut response = Some(<H as Handler<M>>::handle(actor, message, context));
        // A `ResponseFuture` runs as a detached task, where tokio would swallow its panic.
        if let Some(slot) =
            (&mut response as &mut dyn Any).downcast_mut::<Option<ResponseFuture<M::Result>>>()
        {
            let failure = failure.insert(Arc::default());
            *slot = slot.take().map(|future| named(future, failure.clone(), node.clone()));
        } else if trace::current_id() != 0
            && let Some(slot) =
                (&mut response as &mut dyn Any).downcast_mut::<Option<ResponseActFuture<H, M::Result>>>()
        {
            // It is polled in the actor's context, where other calls run in between.
            let traced = Traced::current();
            *slot = slot.take().map(|future| Box::pin(InTrace { future, traced }) as _);
        }
        if let Some(response) = response {
            response.handle(context, Some(tx));
        }
    }));
    if let Err(panic) = run {
        let text = panic_text(&*panic);
        owed.complete(Err(Error::ObjectDied { reason: text.clone() }));
        return Verdict::Poisoned(text);
    }
    match rx.try_recv() {
        Ok(result) => owed.complete(Ok(result)),
        Err(TryRecvError::Closed) => owed.complete(Err(no_reply::<M>(&node))),
        Err(TryRecvError::Empty) => {
            let (busy, traced) = (busy.clone(), Traced::current());
            actix_rt::spawn(async move {
                let _busy = busy;
                let result = rx.await;
                let _traced = traced.enter();
                match result {
                    Ok(result) => owed.complete(Ok(result)),
                    Err(_) => match (failure.as_ref().and_then(|failure| failure.get()), owed.death.get()) {
                        (Some(text), _) => {
                            let error = panicked(std::any::type_name::<M>(), text.clone(), &node);
                            owed.complete(Err(error));
                        }
                        (None, Some(_)) => drop(owed),
                        (None, None) => owed.complete(Err(no_reply::<M>(&node))),
                    },
                }
            });
        }
    }
    Verdict::Fine
}

fn no_reply<M>(node: &Node) -> Error {
    Error::Remote {
        kind: RemoteKind::NoReply,
        message: "the handler dropped its reply".into(),
        node: node.name().to_string(),
        function: std::any::type_name::<M>().to_string(),
        trace_id: trace::current_id(),
    }
}

/// Wraps a detached response so that its panic is remembered before tokio swallows it.
fn named<R: 'static>(
    mut future: ResponseFuture<R>,
    failure: Arc<OnceLock<String>>,
    node: Node,
) -> ResponseFuture<R> {
    let traced = Traced::current();
    Box::pin(poll_fn(move |task| {
        let _current = current::enter(&node);
        let _traced = traced.enter();
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
            Ok(poll) => poll,
            Err(panic) => {
                let _ = failure.set(panic_text(&*panic));
                // The task must end without a result; tokio contains this.
                resume_unwind(panic)
            }
        }
    }))
}

/// A response that runs in its actor's context, in the trace of its call.
struct InTrace<H: Actor, R> {
    future: ResponseActFuture<H, R>,
    traced: Traced,
}

impl<H: Actor, R> ActorFuture<H> for InTrace<H, R> {
    type Output = R;

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut H,
        context: &mut H::Context,
        task: &mut task::Context<'_>,
    ) -> Poll<R> {
        let this = &mut *self;
        let _traced = this.traced.enter();
        this.future.as_mut().poll(actor, context, task)
    }
}

/// Queues something to do with a host, unless nobody waits for it any more when its turn comes.
fn when_wanted<H, R, C>(
    seat: &Seat<H>,
    node: &Node,
    completion: C,
    run: impl FnOnce(&mut H, &Node, Owed<R, C>) -> Verdict + Send + 'static,
) where
    H: Actor<Context = Context<H>>,
    R: Send + 'static,
    C: Completion<R>,
{
    let owed = Owed::new(completion, seat.death());
    let (node, traced) = (node.clone(), Traced::current());
    seat.queue(Box::new(move |host, _, _| {
        let _traced = traced.enter();
        if owed.cancelled() {
            owed.complete(Err(Error::Timeout(std::time::Duration::ZERO)));
            return Verdict::Fine;
        }
        run(host, &node, owed)
    }));
}

/// Queues a function that runs against `&T` in its actor's context.
pub(crate) fn apply<T, R, C>(
    seat: &Seat<T::Host>,
    node: &Node,
    function: &'static str,
    run: impl FnOnce(&T) -> Result<R> + Send + 'static,
    completion: C,
) where
    T: Hosted,
    R: Send + 'static,
    C: Completion<R>,
{
    // It has the object by shared reference only: a panic leaves the object as it was.
    with_host(seat, node, function, |host| run(T::get(host)), completion);
}

/// A user's future under way on the current arbiter.
pub(crate) type Running<R> = Pin<Box<dyn Future<Output = R>>>;

/// Queues a function that begins at the host and goes on beside it.
pub(crate) fn apply_async<H, R, C>(
    seat: &Seat<H>,
    node: &Node,
    function: &'static str,
    start: impl FnOnce(&H, &Node) -> Result<Running<R>> + Send + 'static,
    completion: C,
) where
    H: Actor<Context = Context<H>>,
    R: Send + 'static,
    C: Completion<R>,
{
    when_wanted(seat, node, completion, move |host, node, owed| {
        match contained(node, function, || start(host, node)) {
            Err(error) => owed.complete(Err(error)),
            Ok(running) => {
                let running = contained_future(node.clone(), function, running);
                actix_rt::spawn(async move { owed.complete(running.await) });
            }
        }
        Verdict::Fine
    });
}

/// Queues a function that may change the object: its panic ends the object.
pub(crate) fn apply_mut<H, R, C>(
    seat: &Seat<H>,
    node: &Node,
    function: &'static str,
    run: impl FnOnce(&mut H) -> Result<R> + Send + 'static,
    completion: C,
) where
    H: Actor<Context = Context<H>>,
    R: Send + 'static,
    C: Completion<R>,
{
    when_wanted(seat, node, completion, move |host, node, owed| {
        match contained(node, function, || run(host)) {
            Err(Error::Remote { kind: RemoteKind::Panic, message, .. }) => {
                owed.complete(Err(Error::ObjectDied { reason: message.clone() }));
                Verdict::Poisoned(message)
            }
            result => {
                owed.complete(result);
                Verdict::Fine
            }
        }
    });
}

/// Queues something to do with the host itself, which a panic leaves as it was.
pub(crate) fn with_host<H, R, C>(
    seat: &Seat<H>,
    node: &Node,
    what: &'static str,
    run: impl FnOnce(&mut H) -> Result<R> + Send + 'static,
    completion: C,
) where
    H: Actor<Context = Context<H>>,
    R: Send + 'static,
    C: Completion<R>,
{
    when_wanted(seat, node, completion, move |host, node, owed| {
        owed.complete(contained(node, what, || run(host)));
        Verdict::Fine
    });
}

/// Runs user code; a panic becomes an error that names the function.
pub(crate) fn contained<R>(node: &Node, function: &str, run: impl FnOnce() -> Result<R>) -> Result<R> {
    let _current = current::enter(node);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(panic) => Err(panicked(function, panic_text(&*panic), node)),
    }
}

/// Polls a user's future, in the trace of whoever calls this; a panic becomes an error that names the
/// function.
pub(crate) fn contained_future<R: 'static>(
    node: Node,
    function: &'static str,
    future: Running<R>,
) -> impl Future<Output = Result<R>> + 'static {
    contained_in(Traced::current(), node, function, future)
}

async fn contained_in<R>(
    traced: Traced,
    node: Node,
    function: &'static str,
    mut future: Running<R>,
) -> Result<R> {
    let result = poll_fn(|task| {
        let _current = current::enter(&node);
        let _traced = traced.enter();
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panicked(function, panic_text(&*panic), &node))),
        }
    })
    .await;
    // Its Drop is user code as well.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(future))) {
        tracing::warn!("dropping the future of `{function}` panicked: {}", panic_text(&*panic));
    }
    result
}
