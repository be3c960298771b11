//! Real processes that are killed, stopped, blocked and cut off: what leases and sessions make of it.
//!
//! With leases of a tenth of their usual length, since these clocks cannot be made to jump.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod stock;

use rref::prelude::*;
use rref::testkit::processes::{Processes, serve_if_child};
use rref::transport::{BoxFuture, Listener, Stream, Tcp, Transport};
use rref::{Gone, LeaseSettings};
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long anything here may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// All but one: on a machine that is busy with other tests, a process may well say nothing for half a second.
fn leases() -> LeaseSettings {
    LeaseSettings { suspect_after: Duration::from_secs(6), ..LeaseSettings::shortened(10) }
}

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

/// Keeps references, and may block its node's thread.
#[derive(Default, Object)]
#[object(messages(Put, Take, Block, Use))]
struct Shelf(Vec<RRef<Counter>>);

impl Actor for Shelf {
    type Context = Context<Self>;
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "usize")]
struct Put(RRef<Counter>);

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<RRef<Counter>>")]
struct Take;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
struct Block(Duration);

/// Adds 1 to the last counter.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Result<i64, String>")]
struct Use;

impl Handler<Put> for Shelf {
    type Result = usize;

    fn handle(&mut self, Put(counter): Put, _: &mut Self::Context) -> usize {
        self.0.push(counter);
        self.0.len()
    }
}

impl Handler<Take> for Shelf {
    type Result = Option<RRef<Counter>>;

    fn handle(&mut self, _: Take, _: &mut Self::Context) -> Option<RRef<Counter>> {
        self.0.pop()
    }
}

impl Handler<Block> for Shelf {
    type Result = ();

    fn handle(&mut self, Block(time): Block, _: &mut Self::Context) {
        std::thread::sleep(time);
    }
}

impl Handler<Use> for Shelf {
    type Result = ResponseFuture<Result<i64, String>>;

    fn handle(&mut self, _: Use, _: &mut Self::Context) -> Self::Result {
        let last = self.0.last().cloned();
        Box::pin(async move {
            let last = last.ok_or_else(|| "there is none".to_string())?;
            last.send(Add(1)).await.map_err(|error| format!("{error:?}"))
        })
    }
}

fn counter(start: i64) -> Counter {
    Counter(start)
}

fn shelf() -> Shelf {
    Shelf::default()
}

/// The holders of each object of the node, by its type's name.
fn listed() -> Vec<(String, Vec<String>)> {
    let report = Node::current().map(|node| node.report());
    let objects = report.into_iter().flat_map(|report| report.objects);
    objects.map(|object| (object.type_name, object.holders)).collect()
}

/// Hands a reference on, to the shelf that was shared before, and does not wait for anything.
async fn hand_on(counter: RRef<Counter>) -> Result<(), String> {
    let told = |error: Error| error.to_string();
    let here = Node::current().ok_or("no node runs this")?;
    let shelf = here.shared::<Shelf>("shelf").await.map_err(told)?;
    shelf.do_send(Put(counter)).map_err(told)
}

/// Keeps the shelf under a name.
fn keep(shelf: RRef<Shelf>) -> Result<(), String> {
    let here = Node::current().ok_or("no node runs this")?;
    here.register_name("shelf", &shelf).map_err(|error| error.to_string())
}

fn let_go() {
    if let Some(here) = Node::current() {
        here.unregister_name("shelf");
    }
}

fn node(name: &str) -> Builder {
    stock::register(Node::builder(name))
        .leases(leases())
        .default_timeout(PATIENCE)
        .register::<Counter>()
        .register::<Shelf>()
        .function(counter)
        .function(shelf)
        .function(listed)
        .function(leases_left)
        .function(hand_on)
        .function(keep)
        .function(let_go)
}

/// Waits until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// For what can only be awaited.
fn wait<T>(future: impl Future<Output = T>) -> T {
    actix::System::new().block_on(future)
}

/// Milliseconds for which the lease of each other node still runs here.
fn leases_left() -> Vec<u64> {
    let peers = Node::current().map(|node| node.report().peers).unwrap_or_default();
    peers.iter().map(|peer| peer.lease_left.as_millis() as u64).collect()
}

/// Joins the processes, and waits until all nodes renew their leases with all others: one that is blocked
/// before it has got that far is silent.
fn join(processes: &Processes) -> Result<Node, Error> {
    let me = processes.join(node("test"))?;
    for name in processes.names().into_iter().chain(["test"]) {
        let left = || me.call(name, leases_left, ()).blocking().unwrap();
        let mut least = left();
        until("all leases are renewed", || {
            let now = left();
            let renewed = now.len() == least.len() && now.iter().zip(&least).all(|(now, least)| now > least);
            least = now.iter().zip(&least).map(|(now, least)| *now.min(least)).collect();
            renewed
        });
    }
    Ok(me)
}

/// The holders of the node's counters, each in order.
fn holders(me: &Node, owner: &str) -> Vec<Vec<String>> {
    let listed = me.call(owner, listed, ()).blocking().unwrap();
    let counters = listed.into_iter().filter(|(type_name, _)| type_name.ends_with("Counter"));
    counters
        .map(|(_, mut holders)| {
            holders.sort();
            holders
        })
        .collect()
}

/// A shelf at p2, and on it the only reference to a counter at p1.
fn only_on_p2(me: &Node) -> Result<RRef<Shelf>, Error> {
    let theirs = me.remote("p2", shelf, ())?;
    let x = me.remote("p1", counter, (0,))?;
    theirs.send(Put(x)).blocking()?;
    until("only p2 is listed", || holders(me, "p1") == [["p2"]]);
    Ok(theirs)
}

/// A dead holder's reference is kept until its lease and the grace are over, and not for ever.
#[test]
fn killed_holder() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = join(&processes)?;
    let theirs = only_on_p2(&me)?;
    processes.kill("p2")?;
    until("its death is known", || theirs.send(Take).blocking().is_err());
    assert_eq!(holders(&me, "p1"), [["p2"]], "a crash alone frees nothing");
    until("it is freed", || holders(&me, "p1").is_empty());
    drop(theirs);
    processes.assert_no_leaks(&me);
    Ok(())
}

/// Whoever has passed a reference on is killed at once, with the message on its way.
#[test]
fn introducer_crash_after_send() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(3)?;
    let me = join(&processes)?;
    let theirs = me.remote("p3", shelf, ())?;
    wait(theirs.share_with("p2", "shelf"))?;
    let x = me.remote("p1", counter, (7,))?;
    me.call("p2", hand_on, (x.clone(),)).blocking()?.unwrap();
    processes.kill("p2")?;
    drop(x);
    until("only p3 is listed", || holders(&me, "p1") == [["p3"]]);
    assert_eq!(theirs.send(Use).blocking()?, Ok(8));
    drop(theirs);
    processes.assert_no_leaks(&me);
    Ok(())
}

/// The receiver is blocked for longer than the dead introducer's lease lasts, with the reference unread in
/// its socket; its heartbeats go on. The owner must wait for it.
#[test]
fn introducer_crash_while_receiver_blocked() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(3)?;
    let me = join(&processes)?;
    let theirs = me.remote("p3", shelf, ())?;
    let x = me.remote("p1", counter, (7,))?;
    x.ready().blocking()?;
    wait(theirs.share_with("p2", "shelf"))?;
    // Or p2 could not settle what it is handed, before p3 goes on.
    until("p3 knows that p2 has it", || me.report().held.iter().all(|held| held.pins.is_empty()));
    let blocked = theirs.send(Block(leases().silence() * 2));
    me.call("p2", hand_on, (x.clone(),)).blocking()?.unwrap();
    until("p2 is listed", || holders(&me, "p1") == [["p2", "test"]]);
    drop(x);
    until("only p2 is listed", || holders(&me, "p1") == [["p2"]]);
    processes.kill("p2")?;
    // All the while the object is there, for p3's sake.
    let mut over = false;
    let blocked = std::thread::spawn(move || blocked.blocking());
    until("p3 goes on", || {
        over = blocked.is_finished();
        assert!(over || holders(&me, "p1").len() == 1, "freed while p3 had it in its socket");
        over
    });
    until("only p3 is listed", || holders(&me, "p1") == [["p3"]]);
    assert_eq!(theirs.send(Use).blocking()?, Ok(8));
    drop(theirs);
    processes.assert_no_leaks(&me);
    Ok(())
}

/// A handler that blocks its node's thread costs the node no lease, neither as a holder nor as an owner.
#[test]
fn blocked_arbiter_keeps_leases() -> Result<(), Error> {
    serve_if_child(node);
    let processes = Processes::start(2)?;
    let me = join(&processes)?;
    let (theirs, own) = (only_on_p2(&me)?, me.remote("p2", counter, (0,))?);
    let sessions = |node: &Node| node.report().peers.iter().map(|peer| peer.session).collect::<Vec<_>>();
    let before = sessions(&me);
    let blocked = theirs.send(Block(leases().silence() * 2));
    let blocked = std::thread::spawn(move || blocked.blocking());
    until("p2 goes on", || {
        assert_eq!(holders(&me, "p1"), [["p2"]]);
        blocked.is_finished()
    });
    // Nor was it suspected: it is busy, not silent.
    blocked.join().unwrap()?;
    // Nothing was fenced, given up or begun anew.
    assert_eq!(sessions(&me), before);
    assert_eq!(theirs.send(Use).blocking()?, Ok(1));
    assert_eq!(own.send(Add(1)).blocking()?, 1);
    drop((theirs, own));
    processes.assert_no_leaks(&me);
    Ok(())
}

/// A process that is stopped for less than its lease and the grace loses nothing.
#[test]
fn holder_paused_within_grace() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = join(&processes)?;
    let theirs = only_on_p2(&me)?;
    let lapsed = || {
        let report = me.report();
        report.peers.iter().any(|peer| peer.name == "p2" && peer.lease == "lapsed")
    };
    processes.stop("p2")?;
    // Its lease runs out here as it does at p1.
    until("its lease has run out", lapsed);
    processes.resume("p2")?;
    until("it has renewed its lease", || !lapsed());
    assert_eq!(holders(&me, "p1"), [["p2"]]);
    assert_eq!(theirs.send(Use).blocking()?, Ok(1));
    drop(theirs);
    processes.assert_no_leaks(&me);
    Ok(())
}

/// One that is stopped for longer has lost what it alone held, is told so, and has the rest again.
#[test]
fn holder_paused_beyond() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = join(&processes)?;
    let theirs = me.remote("p2", shelf, ())?;
    let (alone, shared) = (me.remote("p1", counter, (0,))?, me.remote("p1", counter, (10,))?);
    theirs.send(Put(shared.clone())).blocking()?;
    theirs.send(Put(alone.clone())).blocking()?;
    drop(alone);
    until("p2 alone holds one", || holders(&me, "p1").contains(&vec!["p2".to_string()]));
    // Whoever is silent for so long is given up as an owner too: the shelf is found again by its name.
    me.call("p2", keep, (theirs,)).blocking()?.unwrap();
    processes.stop("p2")?;
    until("it is fenced", || holders(&me, "p1") == [["test"]]);
    processes.resume("p2")?;
    until("it is listed again", || holders(&me, "p1") == [["p2", "test"]]);
    let theirs = wait(me.lookup::<Shelf>("shelf@p2"))?;
    me.call("p2", let_go, ()).blocking()?;
    let lost = theirs.send(Use).blocking()?;
    let reasons = [Gone::LeaseExpired, Gone::Freed].map(|gone| Err(format!("{:?}", Error::Gone(gone))));
    assert!(reasons.contains(&lost), "{lost:?}");
    assert!(theirs.send(Take).blocking()?.is_some());
    assert_eq!(theirs.send(Use).blocking()?, Ok(11));
    drop((theirs, shared));
    processes.assert_no_leaks(&me);
    Ok(())
}

/// The name of a process that is stopped goes to a newcomer, after a silence; and the old one, when it
/// goes on, has to leave.
#[test]
fn a_newcomer_takes_the_name_of_a_stopped_process() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = join(&processes)?;
    let theirs = me.remote("p2", shelf, ())?;
    theirs.ready().blocking()?;
    processes.stop("p2")?;
    let mut newcomer = None;
    until("the name is given away", || {
        newcomer = node("p2").listen("127.0.0.1:0").insecure().join(processes.address()).spawn().ok();
        newcomer.is_some()
    });
    let newcomer = newcomer.unwrap();
    let error = theirs.send(Take).blocking().err();
    let lost = |error: &Error| {
        matches!(error, Error::OutcomeUnknown { .. } | Error::Unreachable { .. } | Error::OwnerDied { .. })
    };
    assert!(error.as_ref().is_some_and(lost), "{error:?}");
    until("the name leads to the newcomer", || {
        me.remote("p2", counter, (0,))
            .is_ok_and(|counter| counter.ready().blocking().is_ok() && counter.id().owner == newcomer.uid())
    });
    processes.resume("p2")?;
    let old = theirs.id().owner;
    let gone = || me.report().peers.iter().all(|peer| peer.uid != old || peer.link.starts_with("dead"));
    until("the old one has left", gone);
    drop(theirs);
    until("nothing is left", || me.report().held.is_empty() && newcomer.report().objects.is_empty());
    Ok(())
}

/// TCP whose connections can be cut, all at once, with whatever is under way in them.
#[derive(Clone, Default)]
struct Cuttable(Arc<Mutex<Vec<std::net::TcpStream>>>);

impl Cuttable {
    /// Cuts all there are, and says how many.
    fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.0.lock().unwrap());
        // One that has ended by itself needs no more.
        open.iter().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }

    /// Remembers a connection.
    fn add(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        let socket = stream.into_any().downcast::<TcpStream>();
        let socket = socket.map_err(|_| io::Error::other("not a socket"))?.into_std()?;
        self.0.lock().unwrap().push(socket.try_clone()?);
        Ok(Box::new(TcpStream::from_std(socket)?))
    }
}

struct Accepting(Box<dyn Listener>, Cuttable);

impl Listener for Accepting {
    fn address(&self) -> String {
        self.0.address()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, String)>> {
        Box::pin(async move {
            let (stream, from) = self.0.accept().await?;
            Ok((self.1.add(stream)?, from))
        })
    }
}

impl Transport for Cuttable {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move { self.add(Tcp.dial(address).await?) })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Box<dyn Listener>, Error>> {
        Box::pin(async move {
            Ok(Box::new(Accepting(Tcp.listen(address).await?, self.clone())) as Box<dyn Listener>)
        })
    }

    fn is_local(&self, address: &str) -> bool {
        Tcp.is_local(address)
    }
}

/// A thousand times all connections to another process are cut in the middle of calls in both directions:
/// each call runs exactly once and in its turn, and no session is lost.
#[test]
fn a_thousand_reconnects() -> Result<(), Error> {
    serve_if_child(node);
    let processes = Processes::start(1)?;
    let connections = Cuttable::default();
    let me = processes.join(node("test").transport(connections.clone()))?;
    let there = me.remote("p1", counter, (0,))?;
    let back = me.host(Counter(0))?;
    let theirs = me.remote("p1", shelf, ())?;
    theirs.send(Put(back.clone())).blocking()?;
    let session = me.report().peers[0].session;
    let (mut cuts, mut round, mut sum) = (0, 0, 0);
    while cuts < 1000 {
        round += 1;
        let calls: Vec<_> = (0..8).map(|_| there.send(Add(1))).collect();
        let used = theirs.send(Use);
        cuts += usize::from(connections.cut() > 0);
        for call in calls {
            sum += 1;
            assert_eq!(call.blocking()?, sum, "in round {round}");
        }
        assert_eq!(used.blocking()?, Ok(round), "in round {round}");
    }
    assert_eq!(me.report().peers[0].session, session);
    drop((there, back, theirs));
    processes.assert_no_leaks(&me);
    Ok(())
}

/// A process holds a million references, and is killed: all the objects are freed, once its lease is over.
/// Catches: anything forgotten among so many, and a fence that blocks its node for longer than leases last.
#[test]
fn killed_holder_of_a_million() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(3)?;
    let me = join(&processes)?;
    let stock = me.remote("p1", stock::stock, ())?;
    let hoard = me.remote("p2", stock::hoard, (stock.clone(),))?;
    hoard.ready().timeout(PATIENCE).blocking()?;
    stock.send(stock::Forget).blocking()?;
    let held = me.call("p2", stock::held_here, ()).blocking()?;
    assert_eq!(held, Ok((stock::OBJECTS, (stock::OBJECTS * stock::COPIES) as u64)));
    // What a third process holds at the same owner is none of this.
    let kept = me.remote("p1", counter, (0,))?;
    let theirs = me.remote("p3", shelf, ())?;
    theirs.send(Put(kept.clone())).blocking()?;
    let before = me.call("p1", stock::holders_here, ()).blocking()?.unwrap();
    assert_eq!(before.iter().filter(|holders| **holders == ["p2"]).count(), stock::OBJECTS);
    processes.kill("p2")?;
    let listed = || me.call("p1", stock::holders_here, ()).blocking().unwrap().unwrap();
    until("all is freed", || listed().len() == 2);
    assert_eq!(theirs.send(Use).blocking()?, Ok(1));
    assert_eq!(holders(&me, "p1"), [["p3", "test"]]);
    drop((stock, hoard, kept, theirs));
    processes.assert_no_leaks(&me);
    Ok(())
}

/// A killed owner's references fail, typed and at once; what it held elsewhere is freed in its time.
#[test]
fn owner_crash() -> Result<(), Error> {
    serve_if_child(node);
    let mut processes = Processes::start(2)?;
    let me = join(&processes)?;
    let theirs = only_on_p2(&me)?;
    let lost = me.remote("p2", counter, (0,))?;
    lost.ready().blocking()?;
    let pending = theirs.send(Block(PATIENCE));
    until("it is under way", || me.report().peers.iter().all(|peer| peer.queued == 0));
    processes.kill("p2")?;
    let error = pending.blocking().err();
    assert!(matches!(&error, Some(Error::OutcomeUnknown { peer, .. }) if peer == "p2"), "{error:?}");
    until(
        "it is known to be dead",
        || matches!(lost.send(Add(1)).blocking(), Err(Error::OwnerDied { owner, .. }) if owner == "p2"),
    );
    assert!(matches!(me.remote("p2", counter, (0,)), Err(Error::OwnerDied { .. })));
    until("what it held is freed", || holders(&me, "p1").is_empty());
    drop((theirs, lost));
    processes.assert_no_leaks(&me);
    Ok(())
}
