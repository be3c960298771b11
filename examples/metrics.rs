//! Counters and gauges of two nodes, through the `metrics` facade.
//!
//! A program would install an exporter here (for Prometheus, say); this one installs a recorder of its
//! own, of a few lines, and prints what it was told. Run it with `--features metrics`.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use rref::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Add(i64);

#[derive(Object)]
#[object(messages(Add))]
struct Account(i64);

impl Actor for Account {
    type Context = Context<Self>;
}

impl Handler<Add> for Account {
    type Result = i64;

    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
        self.0 += n;
        self.0
    }
}

fn account(start: i64) -> Account {
    Account(start)
}

fn divide(a: i64, b: i64) -> i64 {
    a / b
}

async fn never() -> i64 {
    std::future::pending().await
}

fn node(name: &str) -> rref::Builder {
    Node::builder(name).register::<Account>().function(account).function(divide).function(never)
}

/// Keeps the latest value of each metric, and what it means.
#[derive(Clone, Default)]
struct Table {
    counters: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    /// As bits of a float.
    gauges: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    meanings: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Table {
    fn value(table: &Mutex<BTreeMap<String, Arc<AtomicU64>>>, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        table.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().clone()
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.get(name).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    fn gauge(&self, name: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.get(name).map_or(0.0, |value| f64::from_bits(value.load(Ordering::Relaxed)))
    }

    /// Every metric that is published is described.
    fn check_meanings(&self) {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let meanings = self.meanings.lock().unwrap_or_else(PoisonError::into_inner);
        for name in counters.keys().chain(gauges.keys()) {
            let name = name.split('{').next().unwrap_or_default();
            assert!(meanings.contains_key(name), "{name} is not described");
        }
        println!("{} metrics, each described; no label names an object, a call or a peer", meanings.len());
    }

    fn print(&self) {
        for (name, value) in self.counters.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("{name} {}", value.load(Ordering::Relaxed));
        }
        for (name, value) in self.gauges.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("{name} {}", f64::from_bits(value.load(Ordering::Relaxed)));
        }
    }

    fn describe(&self, key: KeyName, meaning: SharedString) {
        let mut meanings = self.meanings.lock().unwrap_or_else(PoisonError::into_inner);
        meanings.insert(key.as_str().to_string(), meaning.to_string());
    }
}

impl Recorder for Table {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, meaning: SharedString) {
        self.describe(key, meaning);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, meaning: SharedString) {
        self.describe(key, meaning);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, meaning: SharedString) {
        self.describe(key, meaning);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Table::value(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Table::value(&self.gauges, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[actix::main]
async fn main() -> anyhow::Result<()> {
    let table = Table::default();
    metrics::set_global_recorder(table.clone())
        .map_err(|_| anyhow::anyhow!("there is a recorder already"))?;
    rref::describe_metrics();

    let worker = node("worker1").listen("127.0.0.1:0").insecure().spawn()?;
    let driver = node("driver").join(worker.local_addr().unwrap_or_default()).start().await?;

    // Three calls that end well, one that fails, one that takes too long, one that nobody waits for.
    let account = driver.remote("worker1", account, (0,))?;
    for n in 1..=3 {
        account.send(Add(n)).await?;
    }
    assert!(driver.call("worker1", divide, (1, 0)).await.is_err());
    let slow = driver.call("worker1", never, ()).timeout(Duration::from_millis(50));
    assert!(matches!(slow.await, Err(Error::Timeout(_))));
    drop(driver.call("worker1", never, ()));

    driver.publish_metrics();
    worker.publish_metrics();
    table.print();

    let calls =
        |outcome: &str| table.counter(&format!("rref_calls_total{{node=\"driver\",outcome=\"{outcome}\"}}"));
    assert_eq!((calls("ok"), calls("remote"), calls("timeout"), calls("cancelled")), (3, 1, 1, 1));
    assert_eq!(table.gauge("rref_live_objects{node=\"worker1\"}"), 1.0);
    assert_eq!(table.gauge("rref_holders{node=\"worker1\"}"), 1.0);
    assert_eq!(table.gauge("rref_held{node=\"driver\"}"), 1.0);
    assert_eq!(table.gauge("rref_peers_connected{node=\"driver\"}"), 1.0);
    assert!(table.counter("rref_bytes_sent_total{node=\"driver\"}") > 0);

    table.check_meanings();

    drop(account);
    driver.shutdown().await;
    worker.shutdown().await;
    Ok(())
}
