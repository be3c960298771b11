//! Local clusters of real processes. Its workers are copies of this very program, so it has its own
//! `main` and no test harness: an argument picks the tests whose name contains it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use rref::launch::{self, Cluster};
use rref::prelude::*;
use rref::{Builder, Node, Rank};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Makes this program one process of a cluster that is started by hand.
const RANKED: &str = "LAUNCH_TEST_RANKED";
/// How long anything here may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Makes this program a starter that is there to be killed; says where its workers shall call.
const VICTIM: &str = "LAUNCH_TEST_VICTIM";

fn pid() -> u32 {
    std::process::id()
}

fn echo(x: i64) -> i64 {
    x
}

/// Never ends.
async fn hang() -> i64 {
    std::future::pending().await
}

/// Starts a cluster from within a worker, which must not work.
async fn nested() -> String {
    match launch::local(1).start(node).await {
        Ok(_) => "it started".into(),
        Err(error) => error.to_string(),
    }
}

/// Connects to `address` and keeps the connection for as long as this process lives.
fn call_home(address: String) -> Result<u32, String> {
    static LINES: Mutex<Vec<TcpStream>> = Mutex::new(Vec::new());
    let mut line = TcpStream::connect(address).map_err(|error| error.to_string())?;
    writeln!(line, "{}", pid()).map_err(|error| error.to_string())?;
    LINES.lock().map_err(|error| error.to_string())?.push(line);
    Ok(pid())
}

fn node(name: &str) -> Builder {
    Node::builder(name).function(pid).function(echo).function(hang).function(nested).function(call_home)
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should not take that long")
}

async fn cluster(workers: usize) -> Cluster {
    bounded(launch::local(workers).start(node)).await.expect("a local cluster")
}

async fn end(cluster: Cluster) {
    let report = bounded(cluster.shutdown()).await.expect("an orderly end");
    assert!(report.leaked.is_empty(), "{:?}", report.leaked);
    assert!(report.complete);
}

async fn processes_are_distinct() {
    let cluster = cluster(2).await;
    let pids = cluster.pids();
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), 3, "{pids:?}");
    assert_eq!(pids[0], pid());
    for rank in [1, 2] {
        let there = cluster.node().call(format!("worker{rank}"), pid, ()).await;
        assert_eq!(there, Ok(pids[rank]));
    }
    // An object there, used from here.
    let kept = cluster.node().remote("worker2", echo, (42,)).unwrap();
    assert_eq!(kept.to_here().await, Ok(42));
    assert_eq!(kept.owner(), "worker2");
    drop(kept);
    end(cluster).await;
}

async fn what_is_held_at_shutdown_is_reported() {
    let cluster = cluster(1).await;
    let kept = cluster.node().remote("worker1", echo, (42,)).unwrap();
    kept.ready().await.unwrap();
    let report = bounded(cluster.shutdown()).await.unwrap();
    assert_eq!(report.leaked.len(), 1, "{:?}", report.leaked);
    assert_eq!((report.leaked[0].object, report.leaked[0].owner.as_str()), (kept.id(), "worker1"));
}

async fn killed_worker() {
    let cluster = cluster(2).await;
    let me = cluster.node().clone();
    let lost = me.remote("worker1", echo, (1,)).unwrap();
    assert_eq!(lost.to_here().await, Ok(1));
    let pending = me.call("worker1", hang, ());
    // Behind this one, so the pending call has been sent.
    assert_eq!(me.call("worker1", echo, (2,)).await, Ok(2));
    cluster.kill(1).unwrap();
    let error = bounded(pending).await.unwrap_err();
    assert!(matches!(&error, Error::OutcomeUnknown { peer, .. } if peer == "worker1"), "{error:?}");
    for error in [
        bounded(me.call("worker1", echo, (3,))).await.unwrap_err(),
        bounded(lost.to_here()).await.unwrap_err(),
        me.remote("worker1", echo, (3,)).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::OwnerDied { owner, .. } if owner == "worker1"), "{error:?}");
        assert!(error.to_string().contains("worker1"), "{error}");
    }
    assert!(!cluster.is_running(1) && cluster.is_running(2));
    // The other one works on, and the cluster ends as usual.
    assert_eq!(me.call("worker2", echo, (4,)).await, Ok(4));
    drop(lost);
    end(cluster).await;
}

async fn restarted_worker() {
    let mut cluster = cluster(2).await;
    let me = cluster.node().clone();
    let (old, lost) = (cluster.pids(), me.remote("worker1", echo, (1,)).unwrap());
    assert_eq!(lost.to_here().await, Ok(1));
    bounded(cluster.restart(1)).await.unwrap();
    assert_ne!(cluster.pids()[1], old[1]);
    assert_eq!(cluster.pids()[2], old[2]);
    // The name is the new process's, the object was the old one's.
    assert_eq!(me.call("worker1", pid, ()).await, Ok(cluster.pids()[1]));
    assert!(matches!(lost.to_here().await, Err(Error::OwnerDied { .. })));
    assert!(matches!(cluster.restart(0).await, Err(Error::Config(_))));
    drop(lost);
    end(cluster).await;
}

async fn strangers_stay_out() {
    let cluster = cluster(1).await;
    let address = cluster.node().local_addr().unwrap();
    for stranger in [Node::builder("stranger"), Node::builder("stranger").token([1; 16])] {
        let error = bounded(stranger.join(&*address).start()).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert!(error.to_string().contains("token"), "{error}");
    }
    assert_eq!(cluster.node().report().peers.len(), 1);
    end(cluster).await;
}

/// Processes that are told their ranks by the environment find each other.
async fn ranks_of_another_launcher() {
    // Free a moment ago, and of the loopback address: nobody else is likely to take it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut processes: Vec<_> = (0..3)
        .map(|rank| {
            Command::new(std::env::current_exe().unwrap())
                .env(RANKED, "1")
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "3")
                .env("MASTER_ADDR", "localhost")
                .env("MASTER_PORT", port.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (rank, process) in processes.iter_mut().enumerate() {
        let mut said = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), format!("rank {rank} of 3 met 0 1 2"));
    }
    for mut process in processes {
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
    }
}

/// What each of those processes does: meets everybody, says so, and stays until its input ends.
async fn ranked() {
    let node = launch::from_env(node).unwrap().insecure().start().await.unwrap();
    let (rank, world_size) = (node.rank().unwrap().0, node.world_size().unwrap());
    node.wait_for_peers(2, PATIENCE).await.unwrap();
    let mut met = String::new();
    for other in 0..world_size {
        met += &format!(" {}", node.call(Rank(other), echo, (other.into(),)).await.unwrap());
    }
    println!("rank {rank} of {world_size} met{met}");
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.send(())
    });
    end.await.unwrap();
    node.shutdown().await;
}

async fn no_cluster_inside_a_worker() {
    let cluster = cluster(1).await;
    let said = bounded(cluster.node().call("worker1", nested, ())).await.unwrap();
    assert!(said.contains("inside a worker process") && said.contains("launch::worker"), "{said}");
    end(cluster).await;
}

async fn dropping_the_cluster_ends_its_workers() {
    let cluster = cluster(2).await;
    let lines = lines_of(&cluster).await;
    drop(cluster);
    lines.into_iter().for_each(expect_end);
}

/// A starter that is killed takes its workers with it.
async fn killed_starter() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .env(VICTIM, listener.local_addr().unwrap().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let workers: BTreeSet<u32> = said.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let lines: Vec<Line> = (0..2).map(|_| accept(&listener)).collect();
    assert_eq!(lines.iter().map(|line| line.pid).collect::<BTreeSet<_>>(), workers, "{said}");
    starter.kill().unwrap();
    starter.wait().unwrap();
    lines.into_iter().for_each(expect_end);
}

/// What [`killed_starter`] starts and kills.
async fn victim(home: String) {
    let cluster = cluster(2).await;
    let mut pids = Vec::new();
    for worker in ["worker1", "worker2"] {
        let pid = cluster.node().call(worker, call_home, (home.clone(),)).await.unwrap().unwrap();
        pids.push(pid.to_string());
    }
    println!("{}", pids.join(" "));
    std::future::pending().await
}

/// A connection that a worker holds: it ends when the worker does.
struct Line {
    pid: u32,
    stream: BufReader<TcpStream>,
}

fn accept(listener: &TcpListener) -> Line {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    let mut pid = String::new();
    stream.read_line(&mut pid).unwrap();
    Line { pid: pid.trim().parse().unwrap(), stream }
}

async fn lines_of(cluster: &Cluster) -> Vec<Line> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut lines = Vec::new();
    for rank in 1..cluster.pids().len() {
        let call = cluster.node().call(format!("worker{rank}"), call_home, (address.clone(),));
        bounded(call).await.unwrap().unwrap();
        lines.push(accept(&listener));
    }
    lines
}

fn expect_end(mut line: Line) {
    let mut rest = Vec::new();
    match line.stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("worker {} lives on: {error}", line.pid)
        }
        _ => {}
    }
}

fn run(name: &str, test: impl Future<Output = ()>) {
    if std::env::args().skip(1).find(|arg| !arg.starts_with('-')).is_some_and(|arg| !name.contains(&arg)) {
        return;
    }
    actix::System::new().block_on(test);
    println!("test {name} ... ok");
}

fn main() -> Result<(), Error> {
    launch::worker(node)?;
    if let Ok(home) = std::env::var(VICTIM) {
        actix::System::new().block_on(victim(home));
        return Ok(());
    }
    if std::env::var_os(RANKED).is_some() {
        actix::System::new().block_on(ranked());
        return Ok(());
    }
    run("processes_are_distinct", processes_are_distinct());
    run("what_is_held_at_shutdown_is_reported", what_is_held_at_shutdown_is_reported());
    run("killed_worker", killed_worker());
    run("restarted_worker", restarted_worker());
    run("strangers_stay_out", strangers_stay_out());
    run("ranks_of_another_launcher", ranks_of_another_launcher());
    run("no_cluster_inside_a_worker", no_cluster_inside_a_worker());
    run("dropping_the_cluster_ends_its_workers", dropping_the_cluster_ends_its_workers());
    run("killed_starter", killed_starter());
    Ok(())
}
