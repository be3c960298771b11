//! The client process: many clients of the service. It knows the interface crate and rref, and nothing
//! of the servers.

use rref::prelude::*;
use rref::{Event, Watch};
use service_api::{Get, Len, MonitorApi, Put, Seen, ShardApi, shard_of};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// How long a shard that is lost may stay away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before asking again a node that does not have the name yet.
const PAUSE: Duration = Duration::from_millis(10);
/// Answers from every shard before a client calls itself steady.
const WARM: u64 = 50;

/// What the clients are to do.
#[derive(Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Names of the shards, in an order that all clients share: `kv@worker1` and so on.
    pub shards: Vec<String>,
    /// Clients that call at the same time.
    pub clients: usize,
    /// Keys of each client.
    pub keys: usize,
    /// Calls that each makes after it has recovered from a loss.
    pub calls_after: u64,
}

/// What the clients have to tell in the end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Calls made, failed ones included.
    pub calls: u64,
    /// Failed ones by the name of the error.
    pub errors: BTreeMap<String, u64>,
    /// Keys that a lost shard took with it; their clients have written them again.
    pub keys_lost: u64,
    /// Answers that were not what was written.
    pub wrong: u64,
    /// Keys that the shards have in the end.
    pub keys: u64,
}

/// What a client's process offers.
pub fn node(name: &str) -> Builder {
    Node::builder(name).function(run)
}

/// Calls the shards until one was lost and is back, then reports.
pub async fn run(plan: Plan) -> Result<Report, String> {
    let node = Node::current().ok_or("no node runs this")?;
    serve(node, plan).await.map_err(|error| error.to_string())
}

async fn serve(node: Node, plan: Plan) -> Result<Report, Error> {
    let service = Rc::new(Service {
        monitor: node.lookup("monitor@driver").await?,
        shards: plan.shards.iter().map(|_| RefCell::default()).collect(),
        progress: RefCell::default(),
        report: RefCell::default(),
        node,
        plan,
    });
    let clients: Vec<_> =
        (0..service.plan.clients).map(|id| actix::spawn(client(service.clone(), id))).collect();
    for client in clients {
        client.await.map_err(|error| Error::Config(format!("a client ended early: {error}")))??;
    }
    let mut report = service.report.take();
    for shard in 0..service.plan.shards.len() {
        report.keys += service.shard(shard).await?.send(Len).await?;
    }
    Ok(report)
}

/// What all clients of this process share.
struct Service {
    node: Node,
    plan: Plan,
    monitor: RRef<MonitorApi>,
    /// The shards as far as they are known, and how often each was lost.
    shards: Vec<RefCell<Known>>,
    progress: RefCell<Progress>,
    report: RefCell<Report>,
}

#[derive(Default)]
struct Known {
    shard: Option<RRef<ShardApi>>,
    losses: u64,
}

/// How many clients have come how far.
#[derive(Default)]
struct Progress {
    steady: usize,
    recovered: usize,
}

impl Service {
    /// The shard, looked up by its name if it is not known, or not any more.
    async fn shard(self: &Rc<Self>, shard: usize) -> Result<RRef<ShardApi>, Error> {
        if let Some(known) = &self.shards[shard].borrow().shard {
            return Ok(known.clone());
        }
        let name = &self.plan.shards[shard];
        let (_, peer) = name.split_once('@').unwrap_or((name, ""));
        let find = async {
            loop {
                // After a loss: until another process has the node's name.
                self.node.wait_for(peer, PATIENCE).await?;
                match self.node.lookup::<ShardApi>(name).await {
                    // It is there and has no shard yet, or is lost once more.
                    Err(error) if is_passing(&error) => actix::clock::sleep(PAUSE).await,
                    found => return found,
                }
            }
        };
        let found = actix::clock::timeout(PATIENCE, find).await.unwrap_or(Err(Error::Timeout(PATIENCE)))?;
        let mut known = self.shards[shard].borrow_mut();
        // Another client may have been faster.
        if known.shard.is_none() {
            known.shard = Some(found.clone());
            actix::spawn(watch(found.watch(), shard, self.monitor.clone()));
        }
        Ok(found)
    }

    /// This reference is dead: the next call looks the name up again.
    fn lost(&self, shard: usize, object: &RRef<ShardApi>) {
        let mut known = self.shards[shard].borrow_mut();
        if known.shard.as_ref() == Some(object) {
            known.shard = None;
            known.losses += 1;
        }
    }

    /// Asks until there is an answer: each message here may be repeated, whether it had run or not.
    async fn ask<M>(self: &Rc<Self>, shard: usize, message: impl Fn() -> M) -> Result<M::Result, Error>
    where
        M: rref::RemoteMessage<Result: rref::Response>,
        ShardApi: Accepts<M>,
    {
        loop {
            let object = self.shard(shard).await?;
            self.report.borrow_mut().calls += 1;
            match object.send(message()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    *self.report.borrow_mut().errors.entry(kind(&error)).or_default() += 1;
                    if !is_loss(&error) {
                        return Err(error);
                    }
                    self.lost(shard, &object);
                }
            }
        }
    }

    /// One more client has come so far: tells it when all have.
    fn one_more(&self, count: impl FnOnce(&mut Progress) -> &mut usize, all: Seen) {
        let mut progress = self.progress.borrow_mut();
        let count = count(&mut progress);
        *count += 1;
        if *count == self.plan.clients {
            tell(&self.monitor, all);
        }
    }
}

/// Waits for the end of a shard and tells the monitor if it was lost. Holds no reference to it, so that
/// it is freed when the clients are done.
async fn watch(mut watch: Watch, shard: usize, monitor: RRef<MonitorApi>) {
    while let Some(event) = watch.next().await {
        match event {
            Event::Ended(Error::Gone(_)) => {}
            Event::Ended(error) => tell(&monitor, Seen::Lost(shard, error.to_string())),
            _ => {}
        }
    }
}

fn tell(monitor: &RRef<MonitorApi>, seen: Seen) {
    if let Err(error) = monitor.do_send(seen) {
        eprintln!("the monitor is lost: {error}");
    }
}

/// One client: writes and reads its own keys, all shards in turn, for as long as the plan says.
async fn client(service: Rc<Service>, id: usize) -> Result<(), Error> {
    let shards = service.plan.shards.len();
    let keys: Vec<String> = (0..service.plan.keys).map(|key| format!("client{id}/key{key}")).collect();
    // What is stored under a key, and how often its shard had been lost by then.
    let mut stored: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut answers = vec![0; shards];
    let (mut steady, mut recovered, mut after) = (false, false, 0);
    for round in 0.. {
        // Only then is every key stored at its end.
        let counts = recovered;
        for key in &keys {
            let shard = shard_of(key, shards);
            let losses = || service.shards[shard].borrow().losses;
            let found = service.ask(shard, || Get(key.clone())).await?;
            match (stored.get(&**key), found) {
                (Some((value, _)), Some(found)) if *value == found => {}
                (None, None) => {}
                (Some((_, then)), None) if *then < losses() => service.report.borrow_mut().keys_lost += 1,
                _ => service.report.borrow_mut().wrong += 1,
            }
            // Known before the call: if the shard is lost during it, a miss later is no surprise.
            let before = losses();
            service.ask(shard, || Put { key: key.clone(), value: round }).await?;
            stored.insert(key, (round, before));
            answers[shard] += 2;
            if !steady && answers.iter().all(|answers| *answers >= WARM) {
                steady = true;
                service.one_more(|progress| &mut progress.steady, Seen::Steady);
            }
            // Whoever knew of the loss before asking has been answered by the new shard.
            if steady && !recovered && before > 0 {
                recovered = true;
                service.one_more(|progress| &mut progress.recovered, Seen::Recovered);
            }
            if recovered {
                after += 2;
            }
        }
        if counts
            && after >= service.plan.calls_after
            && service.progress.borrow().recovered == service.plan.clients
        {
            break;
        }
    }
    Ok(())
}

/// The process that owned the shard is gone, or about to be.
fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::OwnerDied { .. }
            | Error::OutcomeUnknown { .. }
            | Error::NotSent { .. }
            | Error::Unreachable { .. }
            | Error::ObjectDied { .. }
            | Error::ShuttingDown { .. }
            | Error::Gone(_)
    )
}

/// A lookup that fails like this may succeed a moment later.
fn is_passing(error: &Error) -> bool {
    is_loss(error) || matches!(error, Error::UnknownName { .. } | Error::UnknownPeer { .. })
}

/// The name of an error's variant.
fn kind(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_string()
}
