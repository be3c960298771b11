//! Nodes join and leave under load, and nothing is lost but what was on those that left.
//!
//! ```text
//! cargo run --release --example dynamic
//! ```
//!
//! All nodes are in this process, each on a thread of its own, and talk over TCP. One node counts on
//! the counters of all others as fast as it can. Meanwhile nodes come, each by way of another member,
//! and the oldest one leaves, the very first among them. In the end every counter that is left must
//! stand at exactly the number of answers it gave.

use anyhow::{Context as _, Result, anyhow, ensure};
use rref::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// Nodes beside the one that counts.
const MEMBERS: usize = 3;
/// How often one joins and another leaves.
const ROUNDS: usize = 5;
/// Counters on each node.
const COUNTERS: usize = 4;
/// Answers from every counter between two changes.
const LOAD: i64 = 100;
/// How long anything may take before the run has failed.
const PATIENCE: Duration = Duration::from_secs(30);

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

fn node(name: &str) -> Builder {
    Node::builder(name).listen("127.0.0.1:0").insecure().register::<Counter>().function(counter)
}

/// One counter, as the node that counts sees it.
struct Counted {
    counter: RRef<Counter>,
    /// The answers it gave.
    answers: Cell<i64>,
    /// What ended it.
    error: RefCell<Option<Error>>,
}

/// A member that has joined, and the counters it owns.
struct Member {
    node: Node,
    counted: Vec<Rc<Counted>>,
}

/// The node that counts, and what its counting tasks share.
struct Load {
    node: Node,
    /// Told at every answer and every error.
    progress: Rc<Notify>,
    stop: Rc<Cell<bool>>,
}

impl Load {
    /// Makes counters on a member and counts on them until it leaves.
    fn begin(&self, member: Node) -> Result<Member> {
        let mut counted = Vec::new();
        for _ in 0..COUNTERS {
            let counter = self.node.remote(member.name(), counter, ())?;
            let one = Rc::new(Counted { counter, answers: Cell::default(), error: RefCell::default() });
            counted.push(one.clone());
            let (progress, stop) = (self.progress.clone(), self.stop.clone());
            actix::spawn(async move {
                while !stop.get() && one.error.borrow().is_none() {
                    match one.counter.send(Add(1)).await {
                        Ok(_) => one.answers.set(one.answers.get() + 1),
                        Err(error) => *one.error.borrow_mut() = Some(error),
                    }
                    progress.notify_one();
                }
            });
        }
        Ok(Member { node: member, counted })
    }

    /// Waits until `reached` holds.
    async fn until(&self, what: &str, reached: impl Fn() -> Result<bool>) -> Result<()> {
        let wait = async {
            while !reached()? {
                self.progress.notified().await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("waited in vain: {what}"))?
    }

    /// Waits until every counter has given so many answers more; none may fail.
    async fn go_on(&self, members: &VecDeque<Member>) -> Result<()> {
        let all: Vec<_> = members.iter().flat_map(|member| &member.counted).collect();
        let goals: Vec<i64> = all.iter().map(|one| one.answers.get() + LOAD).collect();
        self.until("answers from every counter", || {
            for one in &all {
                if let Some(error) = &*one.error.borrow() {
                    return Err(anyhow!("{:?} failed, and its node had not left: {error}", one.counter));
                }
            }
            Ok(all.iter().zip(&goals).all(|(one, goal)| one.answers.get() >= *goal))
        })
        .await
    }
}

#[actix::main]
async fn main() -> Result<()> {
    let first = node("node1").spawn()?;
    let load = Load {
        node: node("counting").join(address(&first)?).start().await?,
        progress: Rc::default(),
        stop: Rc::default(),
    };
    let mut members = VecDeque::from([load.begin(first)?]);
    for number in 2..=MEMBERS {
        members.push_back(join(&load, &members, number).await?);
    }
    load.go_on(&members).await?;

    let mut lost = 0;
    for number in MEMBERS + 1..=MEMBERS + ROUNDS {
        // By way of the oldest, which leaves next: what is known of others must not depend on it.
        members.push_back(join(&load, &members, number).await?);
        load.go_on(&members).await?;
        let leaver = members.pop_front().context("no member")?;
        lost += leave(&load, leaver).await?;
        load.go_on(&members).await?;
    }
    finish(load, members, lost).await
}

fn address(node: &Node) -> Result<String> {
    node.local_addr().with_context(|| format!("{node:?} does not listen"))
}

/// A new node joins the oldest member, hears from it of all others, and is given counters.
async fn join(load: &Load, members: &VecDeque<Member>, number: usize) -> Result<Member> {
    let door = members.front().context("no member to join")?;
    let newcomer = node(&format!("node{number}")).join(address(&door.node)?).spawn()?;
    let others = members.iter().map(|member| member.node.name()).chain([load.node.name()]);
    for other in others {
        newcomer.wait_for(other, PATIENCE).await.with_context(|| format!("node{number} and {other}"))?;
    }
    load.node.wait_for(newcomer.name(), PATIENCE).await?;
    println!("node{number} has joined {} and knows all {} others", door.node.name(), members.len() + 1);
    load.begin(newcomer)
}

/// The member leaves while its counters are called. Gives the number of counters that went with it.
async fn leave(load: &Load, Member { node, counted }: Member) -> Result<usize> {
    let report = node.shutdown().await;
    ensure!(report.complete, "{} did not finish its work in time", node.name());
    load.until("the end of a counter whose node has left", || {
        Ok(counted.iter().all(|one| one.error.borrow().is_some()))
    })
    .await?;
    let answers: i64 = counted.iter().map(|one| one.answers.get()).sum();
    let errors: Vec<String> =
        counted.iter().flat_map(|one| one.error.take()).map(|e| e.to_string()).collect();
    println!(
        "{} has left after {answers} answers; its {} counters: {}",
        node.name(),
        errors.len(),
        errors[0]
    );
    Ok(errors.len())
}

/// Stops the load and compares every counter that is left with the answers it gave.
async fn finish(load: Load, members: VecDeque<Member>, lost: usize) -> Result<()> {
    load.stop.set(true);
    let (mut counters, mut answers) = (0, 0);
    for one in members.iter().flat_map(|member| &member.counted) {
        // Behind the task's last call, whose answer is on its way.
        let stands_at = one.counter.send(Add(0)).await?;
        load.until("the last answer", || Ok(one.answers.get() >= stands_at)).await?;
        let counted = one.answers.get();
        ensure!(stands_at == counted, "{:?} stands at {stands_at} after {counted} answers", one.counter);
        counters += 1;
        answers += counted;
    }
    println!(
        "{counters} counters on {} nodes gave {answers} answers and stand at exactly that;\n\
         lost: the {lost} counters of the {ROUNDS} nodes that left, and nothing else",
        members.len()
    );
    let nodes: Vec<Node> = members.into_iter().map(|member| member.node).collect();
    let left = load.node.shutdown().await.leaked.len();
    for node in nodes {
        node.shutdown().await;
    }
    ensure!(left == 0, "{left} references leaked");
    println!("leaked: {left}");
    Ok(())
}
