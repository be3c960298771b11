//! Real processes under the test kit: killed, stopped and continued.
#![cfg(unix)]

use rref::prelude::*;
use rref::testkit::processes::{Processes, serve_if_child};

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Object)]
#[object(messages(Add))]
struct Counter(i64);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Add> for Counter {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.0 += n;
        self.0
    }
}

fn counter() -> Counter {
    Counter(0)
}

fn process() -> u32 {
    std::process::id()
}

fn node(name: &str) -> Builder {
    Node::builder(name).register::<Counter>().function(counter).function(process)
}

#[test]
fn each_node_has_a_process_of_its_own() -> Result<(), Error> {
    serve_if_child(node);
    let processes = Processes::start(2)?;
    let me = processes.join(node("test"))?;
    assert_eq!(processes.names(), ["p1", "p2"]);
    let one = me.call("p1", process, ()).blocking()?;
    let two = me.call("p2", process, ()).blocking()?;
    assert!(one != two && two != std::process::id() && one != std::process::id());
    let counter = me.remote("p2", counter, ())?;
    assert_eq!(counter.send(Add(2)).blocking()?, 2);
    drop(counter);
    processes.assert_no_leaks(&me);
    Ok(())
}

#[test]
fn a_process_that_is_stopped_goes_on_where_it_was() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(1)?;
    let me = processes.join(node("test"))?;
    let counter = me.remote("p1", counter, ())?;
    assert_eq!(counter.send(Add(1)).blocking()?, 1);
    processes.stop("p1")?;
    let late = counter.send(Add(1));
    // A stopped process answers nobody.
    let waits = counter.send(Add(1)).timeout(std::time::Duration::from_millis(50)).blocking();
    assert!(matches!(waits, Err(Error::Timeout(_))), "{waits:?}");
    processes.resume("p1")?;
    assert_eq!(late.blocking()?, 2);
    drop(counter);
    processes.assert_no_leaks(&me);
    Ok(())
}

#[test]
fn a_process_that_is_killed_is_gone() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = processes.join(node("test"))?;
    let counter = me.remote("p2", counter, ())?;
    assert_eq!(counter.send(Add(1)).blocking()?, 1);
    processes.kill("p2")?;
    assert!(counter.send(Add(1)).blocking().is_err());
    assert!(matches!(processes.stop("p2"), Err(Error::UnknownPeer { .. })));
    assert_eq!(processes.names(), ["p1"]);
    drop(counter);
    processes.assert_no_leaks(&me);
    Ok(())
}
