//! The seat: the place an object's actor has on its owner, and the only way to reach it.
//!
//! Plain `Actor::start` cannot be used: after a panic tokio drops the actor's future while it
//! unwinds, actix runs `stopping()` on the broken actor, and a second panic there aborts the whole
//! process. So the seat hosts the context's future itself: a panic is caught and named, and what is
//! left of the actor is dropped outside the unwinding.
//!
//! Calls do not go through actix's mailbox but through a queue of jobs that an `ActorFuture` inside
//! the context drains. So a call can be cancelled, expire and be explained before it starts, and
//! functions can run against the actor. Handlers are ordinary actix handlers and notice nothing.
//!
//! Knows actix and the current node; must not know peers, lanes or frames.

use crate::node::{Node, current};
use actix::{Actor, ActorContext, ActorFuture, Addr, AsyncContext, Context};
use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use tokio::sync::mpsc;

/// Something to do with the actor, in its own context. It must not panic: jobs contain the panics
/// of user code themselves, since only they know whom to tell.
pub(crate) type Job<H> = Box<dyn FnOnce(&mut H, &mut Context<H>, &Busy) -> Verdict + Send>;

/// Keeps the actor from being stopped: a job takes one along for work that goes on after it.
pub(crate) type Busy = mpsc::Sender<Infallible>;

/// What a job did to its actor.
pub(crate) enum Verdict {
    /// The actor is as good as before.
    Fine,
    /// User code panicked while it had the actor: it cannot be trusted any more.
    Poisoned(String),
    /// The actor is to end once what is queued has run.
    Stop,
}

/// Why an actor no longer runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Death {
    /// It stopped itself, or nobody held it any more.
    Stopped,
    /// A handler panicked, with this text.
    Panicked(String),
}

/// A hosted actor. Dropping the seat closes its queue; the actor is stopped once the queue has run
/// dry, what runs is over, and nobody has its address. Its timers do not keep it.
pub(crate) struct Seat<H: Actor<Context = Context<H>>> {
    /// Keeps the actor running: actix stops an actor whose last address is gone.
    addr: Addr<H>,
    jobs: mpsc::UnboundedSender<Job<H>>,
    /// Jobs in the queue.
    queued: Arc<AtomicUsize>,
    death: Arc<OnceLock<Death>>,
}

impl<H: Actor<Context = Context<H>>> Seat<H> {
    /// Starts `actor` on the current arbiter. `on_death` is told when it no longer runs.
    pub(crate) fn start(node: Node, actor: H, on_death: impl FnOnce(Death) + 'static) -> Seat<H> {
        let mut context = Context::new();
        let addr = context.address();
        let (jobs, queue) = mpsc::unbounded_channel();
        let death = Arc::new(OnceLock::new());
        let queued = Arc::new(AtomicUsize::new(0));
        let (busy, idle) = mpsc::channel(1);
        context.spawn(Pump {
            queue,
            queued: queued.clone(),
            death: death.clone(),
            stopping: false,
            busy: Some(busy),
            idle,
        });
        let host = Host { future: Some(Box::pin(context.into_future(actor))), death: death.clone() };
        actix_rt::spawn(async move {
            let death = host.run(node).await;
            on_death(death);
        });
        Seat { addr, jobs, queued, death }
    }

    /// Queues a job. It is dropped unrun if the actor dies first.
    pub(crate) fn queue(&self, job: Job<H>) {
        // Counted first, so that the count never falls below zero.
        self.queued.fetch_add(1, Ordering::Relaxed);
        // A refused job is dropped, and tells its caller so.
        let _ = self.jobs.send(job);
    }

    /// Jobs that have not begun.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Where to look up why a job was dropped.
    pub(crate) fn death(&self) -> Arc<OnceLock<Death>> {
        self.death.clone()
    }
}

impl<H: Actor<Context = Context<H>>> Seat<H> {
    /// The actor's address.
    pub(crate) fn addr(&self) -> &Addr<H> {
        &self.addr
    }
}

/// Drains the queue from inside the actor's context.
struct Pump<H: Actor<Context = Context<H>>> {
    queue: mpsc::UnboundedReceiver<Job<H>>,
    queued: Arc<AtomicUsize>,
    death: Arc<OnceLock<Death>>,
    /// Whether the actor ends with its queue, whoever still has its seat.
    stopping: bool,
    /// For jobs to clone; none once there can be no more of them.
    busy: Option<Busy>,
    /// Ends when all clones are dropped.
    idle: mpsc::Receiver<Infallible>,
}

impl<H: Actor<Context = Context<H>>> ActorFuture<H> for Pump<H> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut H,
        context: &mut Context<H>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        let this = &mut *self;
        // An atomic response runs: until it is done the actor takes nothing else.
        while let Some(busy) = this.busy.as_ref().filter(|_| !context.waiting()) {
            match this.queue.poll_recv(task) {
                Poll::Ready(Some(job)) => {
                    this.queued.fetch_sub(1, Ordering::Relaxed);
                    match job(actor, context, busy) {
                        Verdict::Fine => {}
                        Verdict::Poisoned(text) => {
                            // `terminate` skips `stopping`, which would run on a broken actor.
                            let _ = this.death.set(Death::Panicked(text));
                            context.terminate();
                            return Poll::Ready(());
                        }
                        Verdict::Stop => {
                            this.queue.close();
                            this.stopping = true;
                        }
                    }
                }
                Poll::Ready(None) => this.busy = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        if this.busy.is_some() {
            return Poll::Pending;
        }
        // Whoever has the address may still use it; dropping the last one wakes the context.
        if !this.stopping && (this.idle.poll_recv(task).is_pending() || context.connected()) {
            return Poll::Pending;
        }
        context.stop();
        Poll::Ready(())
    }
}

/// What actix runs an actor with.
type ActorRun<H> = Pin<Box<actix::dev::ContextFut<H, Context<H>>>>;

/// Polls the context's future and contains its panics.
struct Host<H: Actor<Context = Context<H>>> {
    future: Option<ActorRun<H>>,
    death: Arc<OnceLock<Death>>,
}

impl<H: Actor<Context = Context<H>>> Host<H> {
    async fn run(mut self, node: Node) -> Death {
        let ended = poll_fn(|task| {
            let Some(future) = self.future.as_mut() else { return Poll::Ready(Ok(())) };
            let _current = current::enter(&node);
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        })
        .await;
        let death = match ended {
            Ok(()) => Death::Stopped,
            Err(panic) => Death::Panicked(panic_text(&*panic)),
        };
        // Told before the queue is dropped, so that queued calls can say why they were not run.
        let death = self.death.get_or_init(|| death).clone();
        if let Some(mut future) = self.future.take() {
            future.as_mut().ctx().terminate();
            let _current = current::enter(&node);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(future))) {
                tracing::warn!(
                    "an actor's Drop panicked: {}; its node and the other objects are not affected",
                    panic_text(&*panic)
                );
            }
        }
        death
    }
}

/// The text of a panic, or a stand-in where it carries something else.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_string())
}
