//! Real processes in a test: copies of the test's own binary, which can be killed, stopped and continued.
//!
//! For the little that a simulation cannot show. Unix only.

use crate::error::{Error, Result};
use crate::node::{Builder, Node};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Set in the copies: the name of the node.
const NAME: &str = "RREF_TESTKIT_PROCESS";
/// Set in the copies but the first: whom to join.
const JOIN: &str = "RREF_TESTKIT_JOIN";
/// Begins the line in which a copy tells its address.
const MARK: &str = "rref-testkit-address ";
/// What asks a node whether it has anything left.
const CLEAN: &str = "rref.testkit.clean";
/// How long the others may take, by the clock on the wall.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two questions.
const LOOK: Duration = Duration::from_millis(10);

/// Processes that each run one node, named `p1`, `p2`, ... They end with this value.
///
/// ```no_run
/// use rref::prelude::*;
/// use rref::testkit::processes::{Processes, serve_if_child};
///
/// fn twice(x: i64) -> i64 { 2 * x }
/// fn node(name: &str) -> Builder { Node::builder(name).function(twice) }
///
/// #[test]
/// fn calls_reach_another_process() -> Result<(), Error> {
///     serve_if_child(node);
///     let processes = Processes::start(1)?;
///     let me = processes.join(node("test"))?;
///     assert_eq!(me.call("p1", twice, (21,)).blocking()?, 42);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Processes {
    running: Vec<Process>,
    /// Where the first one listens.
    address: String,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    alive: bool,
}

/// In a copy of the test: sets up the node with `make`, serves until the test is over, and exits. In the test
/// itself: does nothing.
///
/// The first line of every test that starts processes.
pub fn serve_if_child(make: impl FnOnce(&str) -> Builder) {
    let Ok(name) = std::env::var(NAME) else { return };
    let mut builder = make(&name).function_as(CLEAN, clean).listen("127.0.0.1:0").insecure();
    if let Ok(address) = std::env::var(JOIN) {
        builder = builder.join(address);
    }
    let code = match builder.spawn() {
        Ok(node) => {
            // In a line of its own, whatever the test harness has written before.
            println!("\n{MARK}{}", node.local_addr().unwrap_or_default());
            // It ends when the test does, however it ends.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            0
        }
        Err(error) => {
            eprintln!("`{name}` does not start: {error}");
            1
        }
    };
    std::process::exit(code);
}

/// Whether the current node has nothing left; what it has otherwise.
fn clean() -> Option<String> {
    Node::current().and_then(|node| left(&node))
}

fn left(node: &Node) -> Option<String> {
    let report = node.report();
    let clean = report.objects.is_empty() && report.held.is_empty();
    (!clean).then(|| report.to_string())
}

impl Processes {
    /// Starts `count` copies of this binary, in which the test that calls this runs alone: it must begin with
    /// [`serve_if_child`].
    ///
    /// # Errors
    /// [`Error::Launch`] if one does not start, or if the name of the test is not known: test harnesses give
    /// it to the thread, but not with `--test-threads=1`.
    pub fn start(count: usize) -> Result<Processes> {
        let failed = |reason: String| Error::Launch { worker: "testkit".into(), reason };
        let thread = thread::current();
        let test = thread.name().filter(|name| *name != "main");
        let test = test.ok_or_else(|| failed("the thread does not have the name of its test".into()))?;
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut processes = Processes { running: Vec::new(), address: String::new() };
        for index in 1..=count {
            let name = format!("p{index}");
            let mut command = Command::new(&program);
            command.args([test, "--exact", "--nocapture"]).env(NAME, &name).env_remove(JOIN);
            if index > 1 {
                command.env(JOIN, &processes.address);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let failed = |reason: String| Error::Launch { worker: name.clone(), reason };
            let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
            let output = child.stdout.take();
            processes.running.push(Process { name: name.clone(), child, alive: true });
            let output = output.ok_or_else(|| failed("it has no output".into()))?;
            let address = address(output).ok_or_else(|| failed("it ended before it had started".into()))?;
            if index == 1 {
                processes.address = address;
            }
        }
        Ok(processes)
    }

    /// Starts a node of the test's own process that joins the others and knows all of them.
    ///
    /// # Errors
    /// Those of [`Builder::spawn`]; [`Error::Timeout`] if the others are not all there.
    pub fn join(&self, builder: Builder) -> Result<Node> {
        let builder = builder.function_as(CLEAN, clean).listen("127.0.0.1:0").insecure();
        let node = builder.join(self.address.clone()).spawn()?;
        let begun = Instant::now();
        let all = |node: &Node| {
            let peers = node.report().peers;
            let connected =
                |name: &str| peers.iter().any(|peer| peer.name == name && peer.link == "connected");
            self.running.iter().filter(|process| process.alive).all(|process| connected(&process.name))
        };
        while !all(&node) {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Timeout(PATIENCE));
            }
            thread::sleep(LOOK);
        }
        Ok(node)
    }

    /// Where the first process listens: for nodes that join by themselves.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Kills a process (`SIGKILL`) and waits until it is gone.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`]; [`Error::Launch`] if the system refuses.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let process = self.find(name)?;
        let failed = |error: std::io::Error| Error::Launch { worker: name.into(), reason: error.to_string() };
        process.child.kill().map_err(failed)?;
        process.child.wait().map_err(failed)?;
        process.alive = false;
        Ok(())
    }

    /// Stops a process (`SIGSTOP`), and returns when it does nothing any more. Its connections stay.
    ///
    /// # Errors
    /// As [`Processes::kill`].
    pub fn stop(&mut self, name: &str) -> Result<()> {
        let pid = self.signal(name, Signal::STOP)?;
        let failed = |reason: String| Error::Launch { worker: name.into(), reason };
        let waited = waitpid(Some(pid), WaitOptions::UNTRACED).map_err(|error| failed(error.to_string()))?;
        match waited {
            Some((_, status)) if status.stopped() => Ok(()),
            _ => Err(failed("it has ended".into())),
        }
    }

    /// Continues a process that was stopped (`SIGCONT`).
    ///
    /// # Errors
    /// As [`Processes::kill`].
    pub fn resume(&mut self, name: &str) -> Result<()> {
        self.signal(name, Signal::CONT).map(drop)
    }

    /// The names of those that have not been killed.
    pub fn names(&self) -> Vec<&str> {
        let alive = self.running.iter().filter(|process| process.alive);
        alive.map(|process| process.name.as_str()).collect()
    }

    /// Waits until neither `node` nor any process that has not been killed has an object or a reference.
    ///
    /// # Panics
    /// If something is left after a minute, or a process does not answer.
    pub fn assert_no_leaks(&self, node: &Node) {
        let begun = Instant::now();
        loop {
            let mut remains: Vec<String> = left(node).into_iter().collect();
            for name in self.names() {
                match node.call(name, clean, ()).timeout(PATIENCE).blocking() {
                    Ok(there) => remains.extend(there),
                    Err(error) => panic!("`{name}` does not say what it has: {error}"),
                }
            }
            if remains.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "something is left behind:\n{}", remains.concat());
            thread::sleep(LOOK);
        }
    }

    fn find(&mut self, name: &str) -> Result<&mut Process> {
        let unknown = || Error::UnknownPeer { peer: name.to_string(), node: "testkit".into() };
        self.running.iter_mut().find(|process| process.alive && process.name == name).ok_or_else(unknown)
    }

    fn signal(&mut self, name: &str, signal: Signal) -> Result<Pid> {
        let process = self.find(name)?;
        let failed = |reason: String| Error::Launch { worker: name.into(), reason };
        let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed("it has no process number".into()))?;
        kill_process(pid, signal).map_err(|error| failed(error.to_string()))?;
        Ok(pid)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.running.iter_mut().filter(|process| process.alive) {
            // Killed even if it is stopped; one that has ended by itself needs nothing.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// The address that a copy tells; what else it writes is passed on, then and later.
fn address(output: impl Read + Send + 'static) -> Option<String> {
    let mut lines = BufReader::new(output).lines();
    let address = loop {
        let line = lines.next()?.ok()?;
        match line.strip_prefix(MARK) {
            Some(address) => break address.to_string(),
            None => println!("{line}"),
        }
    };
    // A pipe that nobody reads would stop the process.
    thread::spawn(move || lines.map_while(std::io::Result::ok).for_each(|line| println!("{line}")));
    Some(address)
}
