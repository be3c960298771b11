//! The home arbiter's inbox: how other threads get something done where the node lives.

use crate::object::seat::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

type Task = Box<dyn FnOnce() + Send>;

/// How long small lifetime frames and acknowledgements may wait for company.
pub(crate) const BATCH: Duration = Duration::from_millis(1);

/// Runs tasks on the home arbiter, in the order they were given.
pub(crate) struct Home {
    tasks: mpsc::UnboundedSender<Task>,
    armed: AtomicBool,
    armed_now: Notify,
}

/// The receiving end of a [`Home`].
pub(crate) struct Inbox(mpsc::UnboundedReceiver<Task>);

impl Home {
    pub(crate) fn new() -> (Home, Inbox) {
        let (tasks, inbox) = mpsc::unbounded_channel();
        (Home { tasks, armed: AtomicBool::new(false), armed_now: Notify::new() }, Inbox(inbox))
    }

    /// Runs `task` on the home arbiter soon; drops it when the node is no more.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let _ = self.tasks.send(Box::new(task));
    }

    /// Sees to it that the batch timer runs out once more.
    pub(crate) fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            self.armed_now.notify_one();
        }
    }

    /// Waits until something was batched and its time is over.
    pub(crate) async fn batch_over(&self) {
        self.armed_now.notified().await;
        tokio::time::sleep(BATCH).await;
        // Cleared before the batch is taken: what comes after that arms the timer anew.
        self.armed.store(false, Ordering::Release);
    }
}

impl Inbox {
    /// Runs tasks for as long as the node exists.
    pub(crate) async fn serve(mut self) {
        while let Some(task) = self.0.recv().await {
            contained(task);
        }
    }
}

/// Runs a task that may contain user code where nobody expects any, such as the `Drop` of an
/// argument. Its panic must not take along what comes after it.
pub(crate) fn contained(task: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
        tracing::error!("a panic outside of any call: {}", panic_text(&*panic));
    }
}
