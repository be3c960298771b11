//! How a node leaves: it finishes what it has begun, gives back what it holds, and says what leaked.
//!
//! Everything is bounded: a dead peer or a handler that never ends delays it, but not for ever.

use super::state::{Lanes, Phase};
use super::{Entry, Node};
use crate::error::{Error, Result};
use rref_core::lifetime::HandleKey;
use rref_core::session::Class;
use rref_core::wire::{Frame, LeaveStage};
use rref_core::{NodeUid, ObjectId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Pause between two looks at whether everything is done.
const LOOK: Duration = Duration::from_millis(2);

/// Objects of others that are asked for their types, for the report of leaks.
const TYPES: usize = 256;
/// How long the answers may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a node still had when it left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// References that nobody had let go of: see [`Leak`]. Empty in a program that drops what it makes.
    pub leaked: Vec<Leak>,
    /// Whether all work was done, and all peers informed, within the deadline.
    pub complete: bool,
}

/// A reference that was still held when the node left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// The object.
    pub object: ObjectId,
    /// The name of its type; empty if its owner did not say.
    pub type_name: String,
    /// The node that owns it.
    pub owner: String,
    /// The node that asked for it.
    pub creator: String,
    /// The nodes that hold it; for objects of other nodes this one only.
    pub holders: Vec<String>,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} of `{}`, created by `{}`, is still held by {}",
            if self.type_name.is_empty() { "object" } else { &self.type_name },
            self.object,
            self.owner,
            self.creator,
            self.holders.join(", ")
        )
    }
}

impl Node {
    /// Leaves the cluster.
    ///
    /// New calls fail with [`Error::ShuttingDown`]. Calls under way, here and to others, are waited
    /// for; then every reference that is still held is given back, and reported as a leak. Bounded by
    /// [`Builder::shutdown_deadline`](crate::Builder::shutdown_deadline). A second call does nothing.
    pub async fn shutdown(&self) -> ShutdownReport {
        let types = self.types_of_held().await;
        {
            let mut state = self.lock();
            if state.phase != Phase::Running {
                return ShutdownReport { leaked: Vec::new(), complete: true };
            }
            state.phase = Phase::Draining;
            self.stop_calls();
        }
        self.forget_names();
        // None if it lies beyond what a clock can say.
        let deadline = Instant::now().checked_add(self.inner().config.shutdown_deadline);
        let mut complete = self.wait_while(deadline, Node::is_busy).await;
        let leaked = self.leaks(&types);
        for leak in &leaked {
            tracing::warn!("leaked: {leak}; drop every RRef before shutdown()");
        }
        self.give_back();
        complete &= self.wait_while(deadline, Node::owes_peers).await;
        self.say_goodbye();
        complete &= self.wait_while(deadline, Node::owes_peers).await;
        self.close();
        self.stop_listening().await;
        if !complete {
            tracing::warn!(
                "node `{}` left before all was done: its shutdown deadline has passed; report() says what still runs, shutdown_deadline() allows more time",
                self.name()
            );
        }
        ShutdownReport { leaked, complete }
    }

    /// Gives the address back, so that another node may listen there as soon as this returns.
    async fn stop_listening(&self) {
        let accepting = self.inner().accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    /// Names keep objects alive on purpose: what they hold is no leak.
    fn forget_names(&self) {
        let mut state = self.lock();
        let names = std::mem::take(&mut state.directory);
        state.later(names);
    }

    /// Serves until the process is asked to end (`SIGTERM`, or `SIGINT` as by Ctrl-C) or the node is
    /// shut down, then leaves as [`Node::shutdown`] does.
    ///
    /// ```no_run
    /// use rref::prelude::*;
    ///
    /// #[actix::main]
    /// async fn main() -> Result<(), Error> {
    ///     let node = Node::builder("shard1").listen("127.0.0.1:7000").insecure().start().await?;
    ///     let report = node.serve().await?;
    ///     println!("left; {} leaked", report.leaked.len());
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the process cannot listen for signals.
    pub async fn serve(&self) -> Result<ShutdownReport> {
        let mut closed = self.inner().closed.subscribe();
        tokio::select! {
            biased;
            asked = asked_to_end() => asked?,
            _ = closed.wait_for(|closed| *closed) => {}
        }
        tracing::info!("node `{}` drains and leaves", self.name());
        Ok(self.shutdown().await)
    }

    /// Waits while `condition` holds; false if the deadline passes first.
    async fn wait_while(&self, deadline: Option<Instant>, condition: fn(&Node) -> bool) -> bool {
        while condition(self) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            sleep(LOOK).await;
        }
        true
    }

    /// Whether calls of others are under way here, or own calls there, or releases are on their way.
    fn is_busy(&self) -> bool {
        let state = self.lock();
        let live = |uid| state.peers.get(&uid).is_some_and(|peer| peer.is_reachable());
        state.calls.values().any(|call| live(call.owner))
            || state.peers.values().any(|peer| peer.is_reachable() && !peer.running.is_empty())
            || (state.lifetime.pin_count() > 0 && state.peers.values().any(|peer| peer.is_reachable()))
    }

    /// Whether a peer that listens has not acknowledged everything.
    fn owes_peers(&self) -> bool {
        let state = self.lock();
        state.lifetime.pending_releases() > 0
            || state.peers.values().any(|peer| peer.is_reachable() && !peer.is_quiet())
    }

    /// Of what types the objects of others are that are held here: their owners know. Only for the report of leaks,
    /// so not of more than a few, and nobody waits for long.
    async fn types_of_held(&self) -> BTreeMap<ObjectId, String> {
        let mut by_owner: BTreeMap<NodeUid, Vec<ObjectId>> = BTreeMap::new();
        {
            let state = self.lock();
            if state.phase != Phase::Running {
                return BTreeMap::new();
            }
            let held = state.lifetime.held().filter(|held| held.handles > 0 && held.broken.is_none());
            let reachable = |uid: NodeUid| state.peers.get(&uid).is_some_and(|peer| peer.is_reachable());
            for held in held.filter(|held| reachable(held.id.owner)).take(TYPES) {
                by_owner.entry(held.id.owner).or_default().push(held.id);
            }
        }
        let ask = |(owner, ids): (NodeUid, Vec<ObjectId>)| {
            let objects: Vec<(u128, u64)> = ids.iter().map(|id| (id.creator.0, id.create_no)).collect();
            (ids, self.ask(owner, super::builtin::type_names, (objects,)))
        };
        let asked: Vec<_> = by_owner.into_iter().map(ask).collect();
        let mut types = BTreeMap::new();
        let answers = async {
            for (ids, answer) in asked {
                types.extend(ids.into_iter().zip(answer.await.unwrap_or_default()));
            }
        };
        // Those that are missing are reported without.
        let _ = timeout(PATIENCE.min(self.inner().config.shutdown_deadline), answers).await;
        types
    }

    /// What is still held.
    fn leaks(&self, types: &BTreeMap<ObjectId, String>) -> Vec<Leak> {
        let state = self.lock();
        let owned = state.lifetime.owned().filter(|owned| owned.local > 0 || !owned.holders.is_empty()).map(
            |owned| {
                let mut holders: Vec<String> = owned.holders.iter().map(|uid| state.name_of(*uid)).collect();
                if owned.local > 0 {
                    holders.push(self.name().to_string());
                }
                let type_name = match state.objects.get(&owned.id) {
                    Some(Entry::Live(occupant)) => occupant.wire_name().into_owned(),
                    _ => String::new(),
                };
                (owned.id, type_name, holders)
            },
        );
        let held =
            state.lifetime.held().filter(|held| held.handles > 0 && held.broken.is_none()).map(|held| {
                let type_name = types.get(&held.id).cloned().unwrap_or_default();
                (held.id, type_name, vec![self.name().to_string()])
            });
        owned
            .chain(held)
            .map(|(object, type_name, holders)| Leak {
                object,
                type_name,
                owner: state.name_of(object.owner),
                creator: state.name_of(object.creator),
                holders,
            })
            .collect()
    }

    /// Gives back every reference to objects of others. Handles that users still have are dead.
    fn give_back(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let held: Vec<(HandleKey, u64)> = state
            .lifetime
            .held()
            .map(|held| (HandleKey { id: held.id, generation: held.generation }, held.handles))
            .collect();
        let mut lanes = Lanes { peers: &mut state.peers };
        for (key, handles) in held {
            for _ in 0..handles {
                state.lifetime.drop_handle(key, &mut lanes);
            }
        }
        state.lifetime.flush_all(&mut lanes);
        let uids: Vec<_> = state.peers.keys().copied().collect();
        for uid in uids {
            state.wake(uid);
        }
    }

    fn say_goodbye(&self) {
        let mut state = self.lock();
        let uids: Vec<_> = state.peers.keys().copied().collect();
        for uid in uids {
            // Its last word says that what it was handed is claimed or dropped: nobody asks again.
            state.update_settled(uid);
            if let Some(peer) = state.peers.get_mut(&uid).filter(|peer| peer.is_connected())
                && peer.push(Class::Control, &Frame::Leave(LeaveStage::Leaving)).is_ok()
            {
                state.wake(uid);
            }
        }
    }

    /// Ends everything at once: connections, objects, calls.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        self.stop_calls();
        let node = self.name().to_string();
        for (_, call) in std::mem::take(&mut state.calls) {
            let error = Error::ShuttingDown { node: node.clone() };
            state.after(move || drop(call.reply.send(Err(error))));
        }
        let inlets = std::mem::take(&mut state.inlets);
        state.later(inlets);
        // In the order of their numbers: dropping an actor runs user code.
        let objects: BTreeMap<_, _> = std::mem::take(&mut state.objects).into_iter().collect();
        let parked = std::mem::take(&mut state.parked);
        state.later((objects, parked));
        let uids: Vec<_> = state.peers.keys().copied().collect();
        for uid in uids {
            state.peer_died(uid, format!("node `{node}` has shut down"));
        }
        drop(state);
        self.inner().closed.send_replace(true);
        self.inner().peers_changed.notify_waiters();
        self.inner().names_changed.notify_waiters();
    }
}

/// Waits for the signal that asks the process to end.
async fn asked_to_end() -> Result<()> {
    let failed = |error| Error::Config(format!("cannot listen for signals: {error}"));
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        tokio::select! {
            biased;
            _ = terminate.recv() => Ok(()),
            done = tokio::signal::ctrl_c() => done.map_err(failed),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(failed)
}
