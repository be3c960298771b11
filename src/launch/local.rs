//! The starter's side: starts the workers, waits until they have joined, and ends them.
//!
//! Knows the public interface of a node and the worker processes; must not know how nodes talk.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::children::{Children, Worker};
use super::{DRIVER, ENV_LAUNCH, LISTEN, in_worker, name_of};
use crate::{Builder, Error, Node, ShutdownReport};

/// Most workers that one starter may have.
const MAX_WORKERS: usize = 1024;
/// How long all workers together may take to join, unless the user says otherwise.
const JOIN_DEADLINE: Duration = Duration::from_secs(30);
/// How often the starter looks whether a worker ended while it waits for them to join.
const WATCH_EVERY: Duration = Duration::from_millis(20);
/// How long workers may take to exit after `quit`; more than they allow their own node.
const QUIT_GRACE: Duration = Duration::from_secs(5);
/// How often the starter looks whether a worker has exited.
const EXIT_POLL: Duration = Duration::from_millis(10);
/// How long a driver whose cluster did not come up may take to shut down.
const ABORT_LIMIT: Duration = Duration::from_secs(5);
/// What to do about a worker that did not come up.
const HINT: &str = "see what it printed, on standard error behind its name, and make sure that main \
                    calls rref::launch::worker(node)? before anything else";

/// Prepares a cluster of this process and `n` workers; [`Local::start`] starts it.
///
/// `n` may be 0, for a cluster of the driver alone, and at most 1024. The program must call
/// [`worker`](super::worker) at the top of `main`.
///
/// ```no_run
/// use rref::{Builder, Error, Node, launch};
///
/// fn node(name: &str) -> Builder {
///     Node::builder(name)
/// }
///
/// fn main() -> Result<(), Error> {
///     launch::worker(node)?;
///     actix::System::new().block_on(async {
///         let cluster = launch::local(4).start(node).await?;
///         println!("processes: {:?}", cluster.pids());
///         cluster.shutdown().await?;
///         Ok(())
///     })
/// }
/// ```
pub fn local(n: usize) -> Local {
    Local { workers: n, deadline: JOIN_DEADLINE }
}

/// A local cluster that is not started yet; made by [`local`].
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start` is awaited"]
pub struct Local {
    workers: usize,
    deadline: Duration,
}

impl Local {
    /// Sets how long all workers together may take to join; 30 s if not called.
    ///
    /// ```no_run
    /// # use rref::{Builder, Error, Node, launch};
    /// # fn node(name: &str) -> Builder { Node::builder(name) }
    /// # async fn example() -> Result<(), Error> {
    /// let patient = launch::local(64).deadline(std::time::Duration::from_secs(120));
    /// let cluster = patient.start(node).await?;
    /// # cluster.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Starts the driver node here, then the workers, and returns when all of them have joined.
    ///
    /// `node` gets the name of the node, which it must pass to [`Node::builder`]; everything else
    /// in it is up to the program. The address, the token and the rank are set here, over
    /// whatever `node` set. Must be awaited inside an actix system.
    ///
    /// Dropping the future before it is done kills the workers that it had started.
    ///
    /// # Errors
    /// - [`Error::Config`]: more than 1024 workers; the process is a worker itself; `node` gave
    ///   its node another name.
    /// - [`Error::Launch`]: a worker could not be started, ended before it joined, or did not
    ///   join before the deadline. All workers are killed and reaped by then.
    /// - Whatever starting the driver node fails with.
    pub async fn start(self, node: fn(&str) -> Builder) -> Result<Cluster, Error> {
        if in_worker() {
            return Err(Error::Config(format!(
                "launch::local inside a worker process ({ENV_LAUNCH} is set) would start workers \
                 without end: call rref::launch::worker(node)? at the top of main; a program that \
                 a worker starts on purpose needs env_remove(\"{ENV_LAUNCH}\")"
            )));
        }
        if self.workers > MAX_WORKERS {
            return Err(Error::Config(format!(
                "launch::local({}): at most {MAX_WORKERS} workers",
                self.workers
            )));
        }
        // Cannot fail below the limit just checked.
        let world_size = u32::try_from(self.workers + 1).unwrap_or(u32::MAX);
        let token = crate::node::random_bytes::<16>()?;
        let driver = node(DRIVER).listen(LISTEN).insecure().token(token).rank(0, world_size).start().await?;

        let mut children = Children::default();
        match self.bring_up(&driver, &mut children, world_size, &token).await {
            Ok(()) => Ok(Cluster { node: driver, children, deadline: self.deadline }),
            Err(error) => {
                drop(children);
                // The error at hand matters more than how well the driver ends.
                let _ = tokio::time::timeout(ABORT_LIMIT, driver.shutdown()).await;
                Err(error)
            }
        }
    }

    /// Starts the workers and waits for them. On an error the caller drops `children`.
    async fn bring_up(
        &self,
        driver: &Node,
        children: &mut Children,
        world_size: u32,
        token: &super::Token,
    ) -> Result<(), Error> {
        if driver.name() != DRIVER {
            return Err(wrong_name(DRIVER, driver.name()));
        }
        let address = address_of(driver)?;
        let until = Instant::now() + self.deadline;
        for rank in 1..world_size {
            children.spawn(rank, world_size, address, token)?;
        }
        let children = &*children;
        tokio::select! {
            // An exit is looked at first: it says more than a deadline that passed meanwhile.
            biased;
            error = first_end(children.iter()) => Err(error),
            joined = all_join(driver, children, until, self.deadline) => joined,
        }
    }
}

/// Where the workers find the driver.
fn address_of(driver: &Node) -> Result<SocketAddr, Error> {
    let address = driver.local_addr().and_then(|text| text.parse().ok());
    address.ok_or_else(|| Error::Config("the driver of a local cluster does not listen on TCP".to_owned()))
}

/// Waits until every worker has joined the driver.
async fn all_join(
    driver: &Node,
    children: &Children,
    until: Instant,
    deadline: Duration,
) -> Result<(), Error> {
    for worker in children.iter() {
        joins(driver, worker, until, deadline).await?;
    }
    Ok(())
}

/// Waits until this worker has joined the driver.
async fn joins(driver: &Node, worker: &Worker, until: Instant, deadline: Duration) -> Result<(), Error> {
    let left = until.saturating_duration_since(Instant::now());
    driver
        .wait_for(&worker.name(), left)
        .await
        .map_err(|error| worker.fail(format!("has not joined within {deadline:?}: {error}; {HINT}")))
}

/// Waits until some worker has ended, which none should, and says which and how.
async fn first_end<'a>(children: impl Iterator<Item = &'a Worker> + Clone) -> Error {
    loop {
        for worker in children.clone() {
            match worker.status() {
                Ok(None) => {}
                Ok(Some(status)) => return worker.fail(format!("ended before it joined, {status}; {HINT}")),
                Err(error) => return error,
            }
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// The error for a `node` function that does not use the name it was given.
pub(super) fn wrong_name(given: &str, used: &str) -> Error {
    Error::Config(format!(
        "the node function was given the name {given:?} but built a node named {used:?}: \
         it must start from Node::builder(name)"
    ))
}

/// A running local cluster: the driver node in this process and its workers.
///
/// Dropping it kills the workers and reaps them, without asking their nodes to shut down; that
/// may block for a moment. [`Cluster::shutdown`] is the orderly way.
///
/// ```no_run
/// use rref::{Builder, Error, Node, launch};
///
/// fn pid() -> u32 {
///     std::process::id()
/// }
///
/// fn node(name: &str) -> Builder {
///     Node::builder(name).function(pid)
/// }
///
/// fn main() -> Result<(), Error> {
///     launch::worker(node)?;
///     actix::System::new().block_on(async {
///         let cluster = launch::local(2).start(node).await?;
///         let there = cluster.node().call("worker2", pid, ()).await?;
///         assert_eq!(there, cluster.pids()[2]);
///         cluster.kill(2)?; // to see what the program makes of a lost worker
///         assert!(!cluster.is_running(2));
///         cluster.shutdown().await?;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping the cluster kills its workers"]
pub struct Cluster {
    node: Node,
    children: Children,
    /// How long a worker may take to join.
    deadline: Duration,
}

impl Cluster {
    /// The driver: the node of this process, named `driver`, rank 0.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Process ids by rank: this process first, then the workers.
    ///
    /// Workers that have ended stay in the list; the system may reuse their ids.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(std::process::id()).chain(self.children.iter().map(Worker::pid)).collect()
    }

    /// Whether the process with this rank runs. True for rank 0, which is this process, and false
    /// for ranks that the cluster does not have.
    pub fn is_running(&self, rank: u32) -> bool {
        rank == 0 || matches!(self.status(rank), Ok(None))
    }

    /// How the worker with this rank ended, or `None` while it runs. Does not block.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no worker with this rank; [`Error::Launch`] when the
    /// system does not tell, as when other code of the program reaps child processes.
    pub fn status(&self, rank: u32) -> Result<Option<ExitStatus>, Error> {
        self.worker(rank)?.status()
    }

    /// Kills the worker with this rank at once (`SIGKILL`) and reaps it, as a crash would end it:
    /// its node says no farewell. Fine when the worker has ended already.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no worker with this rank, and 0 is none;
    /// [`Error::Launch`] when the system refuses.
    pub fn kill(&self, rank: u32) -> Result<(), Error> {
        self.worker(rank)?.kill()
    }

    /// Starts a new process in the place of the worker with this rank, and returns when it has joined.
    /// The old one is killed if it still runs.
    ///
    /// The new node has the name and the rank of the old one and nothing else of it: its objects are
    /// lost, and references to them stay dead. Other workers get to know it a moment later.
    ///
    /// # Errors
    /// Those of [`Cluster::kill`]; [`Error::Launch`] when the worker could not be started, ended before
    /// it joined, or did not join before the deadline that [`Local::deadline`] set. The cluster stays
    /// as it is but for this worker.
    pub async fn restart(&mut self, rank: u32) -> Result<(), Error> {
        self.kill(rank)?;
        let until = Instant::now() + self.deadline;
        // The name is the old node's until this node knows that it is gone.
        if self.node.wait_for_loss(&name_of(rank), self.deadline).await.is_err() {
            let reason = format!("this node still takes the killed one for alive after {:?}", self.deadline);
            return Err(Error::Launch { worker: name_of(rank), reason });
        }
        // Not kept here as well: whatever is in a cluster is in its `Debug`, and the token is a secret.
        let token = self.node.inner().config.token.0;
        let world_size = u32::try_from(self.children.iter().len() + 1).unwrap_or(u32::MAX);
        self.children.spawn(rank, world_size, address_of(&self.node)?, &token)?;
        let worker = self.worker(rank)?;
        let joined = tokio::select! {
            biased;
            error = first_end(std::iter::once(worker)) => Err(error),
            joined = joins(&self.node, worker, until, self.deadline) => joined,
        };
        if joined.is_err() {
            // The error at hand matters more.
            let _ = worker.kill();
        }
        joined
    }

    /// Ends the cluster: shuts the driver node down, tells the workers to do the same, and waits
    /// until they have exited, 5 s at most; those that have not are killed.
    ///
    /// The driver goes first, so that the workers get back what it held of theirs. Returns the
    /// report of the driver. Workers that ended before this call are no error.
    ///
    /// # Errors
    /// [`Error::Launch`] for the first worker that had to be killed or that failed while it shut
    /// down. No worker is left behind in that case either.
    pub async fn shutdown(self) -> Result<ShutdownReport, Error> {
        let Cluster { node, children, .. } = self;
        let report = node.shutdown().await;
        let mut asked = Vec::new();
        for worker in children.iter() {
            if matches!(worker.status(), Ok(None)) {
                worker.quit();
                asked.push(worker);
            }
        }
        let until = Instant::now() + QUIT_GRACE;
        let mut result = Ok(());
        for worker in asked {
            // The first error is the one that is told; the others must still be waited for.
            result = result.and(exited(worker, until).await);
        }
        drop(children);
        result.map(|()| report)
    }

    /// The worker with this rank.
    fn worker(&self, rank: u32) -> Result<&Worker, Error> {
        self.children.get(rank).ok_or_else(|| {
            Error::Config(match rank {
                0 => format!("rank 0 is {}, this process, and not a worker", name_of(0)),
                _ => format!("no worker has rank {rank}: there are {}", self.children.iter().len()),
            })
        })
    }
}

/// Waits for the exit of a worker that was told to quit, and kills it when `until` has passed.
async fn exited(worker: &Worker, until: Instant) -> Result<(), Error> {
    loop {
        match worker.status()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(worker.fail(format!("failed at shutdown, {status}"))),
            None if Instant::now() >= until => {
                worker.kill()?;
                return Err(worker.fail(format!("did not exit within {QUIT_GRACE:?} and was killed")));
            }
            None => tokio::time::sleep(EXIT_POLL).await,
        }
    }
}
