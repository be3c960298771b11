//! What the faults of a run excuse, told from the faults alone: who was cut off from whom, for how long,
//! and who has crashed when.
//!
//! It must not look at what the nodes themselves have concluded: a node that fences another for no reason
//! is to be found out.

use super::world::world;
use rref::prelude::*;
use rref::testkit::{TestCluster, ms, secs};
use rref::{LeaseSettings, NodeUid, ObjectId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Two nodes hear of each other again at the latest so long after the last fault between them: dials and
/// handshakes that hang must time out first.
pub const RECOVERY: Duration = Duration::from_secs(20);
/// Of TTL + grace, what fast clocks, heartbeats under way and ticks may take away.
const MARGIN: Duration = Duration::from_secs(8);
/// A session may begin anew, and what was under way in it may be lost, after this.
const INTERRUPTED: Duration = Duration::from_secs(5);
/// With crashed introducers, a reference that was this long on its way may come too late.
const CHAIN: Duration = Duration::from_secs(40);

type Pair = (NodeUid, NodeUid);

/// The faults so far.
pub struct Weather {
    cluster: TestCluster,
    sky: RefCell<Sky>,
}

#[derive(Default)]
struct Sky {
    /// Everything up to here has been accounted for.
    at: Duration,
    paused: BTreeSet<String>,
    blocked: BTreeSet<(String, String)>,
    live: BTreeMap<String, NodeUid>,
    /// How many processes each name has had before its present one.
    processes: BTreeMap<String, u64>,
    pairs: BTreeMap<Pair, Between>,
    crashes: u64,
    /// How long anything was wrong anywhere.
    trouble: Duration,
    /// When any two nodes were last cut off for as long as a lease and its grace last.
    severed_until: Duration,
    longest_pause: Duration,
    pause_began: BTreeMap<String, Duration>,
    born: BTreeMap<ObjectId, Birth>,
}

/// What two living processes have been through.
#[derive(Default)]
struct Between {
    /// Since when they may not have heard of each other.
    since: Option<Duration>,
    well_since: Option<Duration>,
    severed_until: Duration,
    interrupted: bool,
}

#[derive(Clone, Copy)]
struct Birth {
    at: Duration,
    crashes: u64,
    trouble: Duration,
}

impl Weather {
    pub fn new(cluster: &TestCluster) -> Weather {
        let sky = Sky { at: cluster.now(), ..Sky::default() };
        let weather = Weather { cluster: cluster.clone(), sky: RefCell::new(sky) };
        for node in cluster.nodes() {
            weather.started(&node);
        }
        weather
    }

    /// Accounts for the time that has passed. Due before anything changes, and before anything is judged.
    pub fn update(&self) {
        let now = self.cluster.now();
        let sky = &mut *self.sky.borrow_mut();
        let begun = std::mem::replace(&mut sky.at, now);
        let mut troubled = !sky.paused.is_empty() || !sky.blocked.is_empty();
        let Sky { paused, blocked, live, pairs, severed_until, .. } = sky;
        for (one, first) in live.iter() {
            for (other, second) in live.iter().filter(|(other, _)| *other > one) {
                let bad = [one, other].iter().any(|name| paused.contains(*name))
                    || blocked.contains(&(one.clone(), other.clone()))
                    || blocked.contains(&(other.clone(), one.clone()));
                let between = pairs.entry(pair(*first, *second)).or_default();
                between.pass(begun, now, bad);
                *severed_until = between.severed_until.max(*severed_until);
                troubled |= between.since.is_some();
            }
        }
        if troubled {
            sky.trouble += now - begun;
        }
    }

    pub fn started(&self, node: &Node) {
        self.update();
        self.sky.borrow_mut().live.insert(node.name().to_string(), node.uid());
    }

    /// To be called before the process ends.
    pub fn crashes(&self, name: &str) {
        self.update();
        let sky = &mut *self.sky.borrow_mut();
        sky.crashes += 1;
        *sky.processes.entry(name.to_string()).or_default() += 1;
        sky.paused.remove(name);
        sky.live.remove(name);
    }

    pub fn paused(&self, name: &str, paused: bool) {
        self.update();
        let sky = &mut *self.sky.borrow_mut();
        if paused {
            sky.paused.insert(name.to_string());
            sky.pause_began.insert(name.to_string(), sky.at);
        } else if sky.paused.remove(name)
            && let Some(began) = sky.pause_began.remove(name)
        {
            sky.longest_pause = sky.longest_pause.max(sky.at - began);
        }
    }

    pub fn is_paused(&self, name: &str) -> bool {
        self.sky.borrow().paused.contains(name)
    }

    pub fn block(&self, from: &str, to: &str) {
        self.update();
        self.sky.borrow_mut().blocked.insert((from.to_string(), to.to_string()));
    }

    pub fn heal(&self) {
        self.update();
        self.sky.borrow_mut().blocked.clear();
    }

    pub fn crashes_so_far(&self) -> u64 {
        self.sky.borrow().crashes
    }

    /// The process that now has this name, as callers are told apart: their order is that of one process.
    pub fn process(&self, name: &str) -> String {
        match self.sky.borrow().processes.get(name) {
            None => name.to_string(),
            Some(number) => format!("{name} after {number} crashes"),
        }
    }

    /// An object has been asked for.
    pub fn asked(&self, id: ObjectId) {
        self.update();
        let sky = &mut *self.sky.borrow_mut();
        let birth = Birth { at: sky.at, crashes: sky.crashes, trouble: sky.trouble };
        sky.born.insert(id, birth);
    }

    /// How long after the end of all faults everything must be clean: TTL + grace, with clocks a few percent
    /// slow, as much more as the longest stall, which puts off all leases of the stalled node, and what
    /// dials and ticks take.
    pub fn liveness_limit(&self) -> Duration {
        let silence = LeaseSettings::default().silence();
        silence + silence / 20 + self.sky.borrow().longest_pause + RECOVERY + secs(20)
    }

    pub fn is_alive(&self, uid: NodeUid) -> bool {
        self.sky.borrow().live.values().any(|live| *live == uid)
    }

    /// Whether two living nodes may ever have taken each other for dead.
    pub fn severed(&self, one: NodeUid, other: NodeUid) -> bool {
        self.sky.borrow().pairs.get(&pair(one, other)).is_some_and(|between| !between.severed_until.is_zero())
    }

    /// Whether `holder` may find an object freed that it has a reference to. `confirmed` says that its owner
    /// had listed it: then only its own silence excuses that. A reference may also come back to its owner
    /// after the object was freed.
    pub fn excuses(&self, holder: NodeUid, id: ObjectId, confirmed: bool) -> bool {
        let sky = self.sky.borrow();
        let Some(birth) = sky.born.get(&id) else { return true };
        let between = sky.pairs.get(&pair(holder, id.owner));
        if between.is_some_and(|between| between.severed_until > birth.at) {
            return true;
        }
        let chain = sky.crashes > birth.crashes && sky.trouble - birth.trouble > CHAIN;
        !confirmed && (chain || sky.severed_until > birth.at)
    }

    /// Whether an object may never have come to be: its creation was lost with its creator, or with the
    /// session that carried it.
    pub fn may_be_lost(&self, id: ObjectId) -> bool {
        let sky = self.sky.borrow();
        let interrupted =
            sky.pairs.get(&pair(id.creator, id.owner)).is_some_and(|between| between.interrupted);
        let dead = !sky.live.values().any(|live| *live == id.creator);
        id.creator != id.owner && (interrupted || dead) && !world(|world| world.was_made(id))
    }

    /// Whether a program on `node` may be told this; `about` is the object it has called, if it is known.
    pub fn allows(&self, error: &Error, node: &str, about: Option<ObjectId>) -> bool {
        self.update();
        let sky = self.sky.borrow();
        let Some(holder) = sky.live.get(node).copied() else { return true };
        let (crashes, severed) = (sky.crashes > 0, !sky.severed_until.is_zero());
        let interrupted = sky.pairs.values().any(|between| between.interrupted);
        drop(sky);
        match error {
            Error::Timeout(_)
            | Error::NotSent { .. }
            | Error::OutcomeUnknown { .. }
            | Error::Unreachable { .. } => true,
            Error::OwnerDied { .. } | Error::ObjectDied { .. } | Error::UnknownPeer { .. } => crashes,
            // What was to go with a message, or to be made, held a reference that is dead.
            Error::Broken(_) | Error::CreateFailed(_) => severed || crashes,
            Error::Gone(_) => match about {
                Some(id) => {
                    self.excuses(holder, id, false) || self.may_be_lost(id) || !self.is_alive(id.owner)
                }
                // A message may be about any object: also about one that it brings back to its owner.
                None => crashes || interrupted,
            },
            _ => false,
        }
    }
}

impl Between {
    /// From `begun` to `now`, the way between the two was bad, or it was not.
    fn pass(&mut self, begun: Duration, now: Duration, bad: bool) {
        if bad {
            self.well_since = None;
            self.since.get_or_insert(begun);
        }
        let Some(since) = self.since else { return };
        let mut until = now;
        if !bad {
            let well = *self.well_since.get_or_insert(begun) + RECOVERY;
            if now >= well {
                until = well;
                self.since = None;
                self.well_since = None;
            }
        }
        self.interrupted |= until.saturating_sub(since) >= INTERRUPTED + ms(1);
        if until.saturating_sub(since) + MARGIN >= LeaseSettings::default().silence() {
            self.severed_until = until;
        }
    }
}

fn pair(one: NodeUid, other: NodeUid) -> Pair {
    (one.min(other), one.max(other))
}
