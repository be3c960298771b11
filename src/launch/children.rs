//! The worker processes as the starter holds them: started, watched, told to stop, killed, reaped.
//!
//! Knows processes and pipes; must not know nodes. Dropping [`Children`] leaves no process behind.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{
    ENV_LAUNCH, ENV_MASTER_ADDR, ENV_MASTER_PORT, ENV_RANK, ENV_WORLD_SIZE, QUIT, Token, logs, name_of,
    token_to_hex,
};
use crate::Error;

/// How long the end waits for the last lines of workers that are already dead. Only a process that
/// a worker left behind, with the worker's output still open, makes it wait that long.
const LOG_GRACE: Duration = Duration::from_millis(250);

/// The workers of one cluster, by rank from 1.
#[derive(Debug, Default)]
pub(super) struct Children {
    list: Vec<Worker>,
}

/// One worker process.
#[derive(Debug)]
pub(super) struct Worker {
    rank: u32,
    pid: u32,
    /// Behind a lock so that a shared cluster can be watched and killed.
    process: Mutex<Process>,
    logs: Vec<JoinHandle<()>>,
}

/// The parts of a worker that need exclusive use.
#[derive(Debug)]
struct Process {
    child: Child,
    /// Our end of the worker's standard input: closing it makes the worker exit.
    pipe: Option<ChildStdin>,
}

impl Children {
    /// Starts the worker with this rank, which is the next one or one whose process has ended: this
    /// executable with our arguments.
    ///
    /// # Errors
    /// [`Error::Launch`] when the executable is not found or cannot be started.
    pub(super) fn spawn(
        &mut self,
        rank: u32,
        world_size: u32,
        driver: SocketAddr,
        token: &Token,
    ) -> Result<(), Error> {
        let fail = |reason: String| Error::Launch { worker: name_of(rank), reason };
        let program = std::env::current_exe()
            .map_err(|error| fail(format!("the path of this executable is not known: {error}")))?;
        let mut child = Command::new(&program)
            .args(std::env::args_os().skip(1))
            .env(ENV_LAUNCH, "1")
            .env(ENV_RANK, rank.to_string())
            .env(ENV_WORLD_SIZE, world_size.to_string())
            .env(ENV_MASTER_ADDR, driver.ip().to_string())
            .env(ENV_MASTER_PORT, driver.port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| fail(format!("cannot start {}: {error}", program.display())))?;
        let (pipe, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pid = child.id();
        // Listed before anything can fail, so that it is killed and reaped in every case.
        let process = Mutex::new(Process { child, pipe });
        let worker = Worker { rank, pid, process, logs: Vec::new() };
        let place = index_of(rank).filter(|index| *index < self.list.len());
        let index = match place {
            Some(index) => {
                self.list[index] = worker;
                index
            }
            None => {
                self.list.push(worker);
                self.list.len() - 1
            }
        };
        let worker = &mut self.list[index];
        let no_thread = |error| fail(format!("no thread for its output: {error}"));
        if let Some(stdout) = stdout {
            worker.logs.push(logs::forward(&name_of(rank), stdout).map_err(no_thread)?);
        }
        if let Some(stderr) = stderr {
            worker.logs.push(logs::forward(&name_of(rank), stderr).map_err(no_thread)?);
        }
        // A worker that is gone already cannot read this. Its exit status says more than the
        // failed write would, and whoever waits for it to join looks at that.
        worker.write_line(&token_to_hex(token));
        Ok(())
    }

    /// All workers, in order of rank.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Worker> {
        self.list.iter()
    }

    /// The worker with this rank; the starter, rank 0, is none.
    pub(super) fn get(&self, rank: u32) -> Option<&Worker> {
        self.list.get(index_of(rank)?)
    }
}

/// Where the worker with this rank stands in the list; rank 0 is none.
fn index_of(rank: u32) -> Option<usize> {
    usize::try_from(rank).ok()?.checked_sub(1)
}

impl Drop for Children {
    fn drop(&mut self) {
        // All signals first: the workers then die side by side.
        for worker in &self.list {
            let _ = worker.lock().child.kill();
        }
        for worker in &self.list {
            let _ = worker.lock().child.wait();
        }
        let end = Instant::now() + LOG_GRACE;
        while self.list.iter().flat_map(|w| &w.logs).any(|log| !log.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Worker {
    /// Node name, `worker1` and so on.
    pub(super) fn name(&self) -> String {
        name_of(self.rank)
    }

    /// Process id. The system may give it to another process once this one was reaped.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How the process ended, or `None` while it runs. Never blocks.
    ///
    /// # Errors
    /// [`Error::Launch`] when the system does not tell, as when other code reaped the process.
    pub(super) fn status(&self) -> Result<Option<ExitStatus>, Error> {
        self.lock().child.try_wait().map_err(|error| self.fail(format!("no exit status: {error}")))
    }

    /// Asks the worker to shut its node down and exit. The pipe stays open: its end would cut
    /// that short.
    pub(super) fn quit(&self) {
        self.write_line(QUIT);
    }

    /// Kills the process, waits for its end and reaps it. Fine when it has ended already.
    ///
    /// # Errors
    /// [`Error::Launch`] when the system refuses.
    pub(super) fn kill(&self) -> Result<(), Error> {
        let mut process = self.lock();
        let Process { child, pipe } = &mut *process;
        let ended = child.kill().and_then(|()| child.wait());
        // Not before: a worker whose pipe ends exits by itself, which is not how a crash looks.
        *pipe = None;
        ended.map(|_| ()).map_err(|error| self.fail(format!("cannot be killed: {error}")))
    }

    /// An error about this worker.
    pub(super) fn fail(&self, reason: String) -> Error {
        Error::Launch { worker: self.name(), reason }
    }

    /// Writes one short line to the worker. A broken pipe is not reported: the worker has ended
    /// then, and its exit status says so. The lines are far smaller than a pipe: no write blocks.
    fn write_line(&self, line: &str) {
        if let Some(pipe) = &mut self.lock().pipe {
            let _ = pipe.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// A panic elsewhere with the lock held leaves the process as usable as before.
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
