//! The process of one node: a set of tasks of its own, which can be paused, slowed down and dropped.
//!
//! actix spawns every actor and every future onto the set of tasks that runs at the moment, so
//! whatever a node starts ends up in its own.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{Sleep, sleep};

type Run = Pin<Box<dyn Future<Output = ()>>>;

/// Runs the tasks of one process until it is killed.
pub(super) struct Process {
    tasks: RefCell<Option<Rc<LocalSet>>>,
    /// Polls the tasks. None once the process is dead.
    run: RefCell<Option<Run>>,
    paused: Cell<bool>,
    /// How long the process needs to get to what there is to do.
    lag: Cell<Duration>,
    waker: RefCell<Option<Waker>>,
    /// Told whenever something may have changed.
    progress: Rc<Notify>,
}

impl Process {
    /// Starts a process that runs on the current set of tasks.
    pub(super) fn start(progress: Rc<Notify>) -> Rc<Process> {
        let tasks = Rc::new(LocalSet::new());
        let set = tasks.clone();
        let run: Run = Box::pin(async move { set.run_until(pending()).await });
        let process = Rc::new(Process {
            tasks: RefCell::new(Some(tasks)),
            run: RefCell::new(Some(run)),
            paused: Cell::new(false),
            lag: Cell::new(Duration::ZERO),
            waker: RefCell::new(None),
            progress,
        });
        tokio::task::spawn_local(Driver { process: process.clone(), turn: None });
        process
    }

    /// Runs a task in the process; none if it is dead.
    pub(super) fn spawn<F>(&self, task: F) -> Option<JoinHandle<F::Output>>
    where
        F: Future + 'static,
    {
        let tasks = self.tasks.borrow();
        tasks.as_ref().map(|tasks| tasks.spawn_local(task))
    }

    /// Drops all tasks, wherever they are.
    ///
    /// # Panics
    /// If one of them asks for it: it would drop itself.
    pub(super) fn kill(&self) {
        let Ok(mut run) = self.run.try_borrow_mut() else {
            panic!("a node cannot end itself: call this from the test, not from code that runs as the node")
        };
        drop(run.take());
        drop(run);
        let tasks = self.tasks.borrow_mut().take();
        drop(tasks);
        self.wake();
        self.progress.notify_waiters();
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.set(paused);
        self.wake();
    }

    pub(super) fn set_lag(&self, lag: Duration) {
        self.lag.set(lag);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Gives a process its turns.
struct Driver {
    process: Rc<Process>,
    /// When the next turn comes, of a process that lags.
    turn: Option<Pin<Box<Sleep>>>,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        *this.process.waker.borrow_mut() = Some(task.waker().clone());
        if this.process.run.borrow().is_none() {
            return Poll::Ready(());
        }
        if this.process.paused.get() {
            this.turn = None;
            return Poll::Pending;
        }
        let lag = this.process.lag.get();
        if lag.is_zero() {
            this.turn = None;
        } else {
            let turn = this.turn.get_or_insert_with(|| Box::pin(sleep(lag)));
            if turn.as_mut().poll(task).is_pending() {
                return Poll::Pending;
            }
            this.turn = None;
        }
        let mut run = this.process.run.borrow_mut();
        let ended = run.as_mut().is_none_or(|run| run.as_mut().poll(task).is_ready());
        drop(run);
        this.process.progress.notify_waiters();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    }
}
