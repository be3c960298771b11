//! The home arbiter's inbox: how other threads get something done where the node lives.

use crate::object::seat::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

type Task = Box<dyn FnOnce() + Send>;

/// How long releases and claims may wait for company.
const BATCH: Duration = Duration::from_millis(1);
/// How long acknowledgements may wait for a frame that carries them.
///
/// Longer than a tick of the kernel: a nearer timer has to be set in hardware whenever a thread waits,
/// which costs several microseconds at each call.
const QUIET: Duration = Duration::from_millis(10);

/// Nothing is batched.
const IDLE: u8 = 0;
/// Only acknowledgements wait.
const LATER: u8 = 1;
/// A release or a claim waits.
const SOON: u8 = 2;

/// Runs tasks on the home arbiter, in the order they were given.
pub(crate) struct Home {
    tasks: mpsc::UnboundedSender<Task>,
    armed: AtomicU8,
    armed_now: Notify,
}

/// The receiving end of a [`Home`].
pub(crate) struct Inbox(mpsc::UnboundedReceiver<Task>);

impl Home {
    pub(crate) fn new() -> (Home, Inbox) {
        let (tasks, inbox) = mpsc::unbounded_channel();
        (Home { tasks, armed: AtomicU8::new(IDLE), armed_now: Notify::new() }, Inbox(inbox))
    }

    /// Runs `task` on the home arbiter soon; drops it when the node is no more.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let _ = self.tasks.send(Box::new(task));
    }

    /// Sees to it that the batch timer runs out soon.
    pub(crate) fn arm(&self) {
        self.at_least(SOON);
    }

    /// Sees to it that the batch timer runs out once more.
    pub(crate) fn arm_later(&self) {
        self.at_least(LATER);
    }

    fn at_least(&self, urgency: u8) {
        if self.armed.load(Ordering::Acquire) < urgency
            && self.armed.fetch_max(urgency, Ordering::AcqRel) < urgency
        {
            self.armed_now.notify_one();
        }
    }

    /// Waits until something was batched and its time is over.
    pub(crate) async fn batch_over(&self) {
        // The flag decides; a notification may be left over from the batch before.
        while self.armed.load(Ordering::Acquire) == IDLE {
            self.armed_now.notified().await;
        }
        let quiet = sleep(QUIET);
        tokio::pin!(quiet);
        while self.armed.load(Ordering::Acquire) == LATER {
            tokio::select! {
                biased;
                () = &mut quiet => break,
                () = self.armed_now.notified() => {}
            }
        }
        if self.armed.load(Ordering::Acquire) == SOON {
            sleep(BATCH).await;
        }
        // Cleared before the batch is taken: what comes after that arms the timer anew.
        self.armed.store(IDLE, Ordering::Release);
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
        tracing::error!(
            "a panic outside of any call, in the Drop of an argument or a result most likely: {}",
            panic_text(&*panic)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// How long the batch that `arm` starts takes.
    async fn batch(arm: impl AsyncFnOnce(&Home)) -> Duration {
        let (home, _inbox) = Home::new();
        let start = Instant::now();
        tokio::join!(home.batch_over(), arm(&home));
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_shortens_the_wait_of_acknowledgements() {
        let late = batch(async |home| home.arm_later()).await;
        assert!(late >= QUIET, "{late:?}");
        let soon = batch(async |home| {
            home.arm_later();
            tokio::task::yield_now().await;
            home.arm();
        });
        let soon = soon.await;
        assert!(soon >= BATCH && soon < QUIET, "{soon:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_over_once() {
        let (home, _inbox) = Home::new();
        home.arm_later();
        home.arm();
        home.batch_over().await;
        let again = tokio::time::timeout(Duration::from_secs(60), home.batch_over()).await;
        assert!(again.is_err(), "nothing was batched since");
    }
}
