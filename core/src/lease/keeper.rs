//! Heartbeats: the part that runs beside the main loop, whatever that is doing.
//!
//! Knows when to beat, what was last published, and which beats are not echoed; must not know handles,
//! lanes or user code. The keeper's thread owns one of these and moves its frames.

use crate::wire::{Heartbeat, HeartbeatEcho};
use crate::{NodeUid, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Beats remembered until their echo comes. More than fit in a lease: older echoes are of no use.
const REMEMBERED: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Paced {
    published: Heartbeat,
    due: Duration,
    nonce: u64,
    sent: VecDeque<(u64, Duration)>,
    busy: bool,
}

/// The heartbeats of one node to all its peers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    me: NodeUid,
    rules: Rules,
    period: Duration,
    peers: BTreeMap<NodeUid, Paced>,
}

impl Keeper {
    /// For the node `me`, one beat to each peer every `period`.
    pub fn new(me: NodeUid, rules: Rules, period: Duration) -> Keeper {
        Keeper { me, rules, period, peers: BTreeMap::new() }
    }

    /// What the main loop says of itself to `peer`, until it says something else. A new question or
    /// answer makes a beat due at once, and so does the first call. `nonce` and `uid` are filled in here.
    pub fn publish(&mut self, now: Duration, peer: NodeUid, heartbeat: Heartbeat) {
        let fresh = || Paced { published: heartbeat, due: now, nonce: 0, sent: VecDeque::new(), busy: false };
        let paced = self.peers.entry(peer).or_insert_with(fresh);
        let before = std::mem::replace(&mut paced.published, heartbeat);
        if (before.asks, before.clear) != (heartbeat.asks, heartbeat.clear) {
            paced.due = paced.due.min(now);
        }
    }

    /// No more heartbeats to `peer`.
    pub fn forget(&mut self, peer: NodeUid) {
        self.peers.remove(&peer);
    }

    /// A beat was lost for want of a connection, and now there is one: another is due.
    pub fn beat_now(&mut self, now: Duration, peer: NodeUid) {
        if let Some(paced) = self.peers.get_mut(&peer) {
            paced.due = paced.due.min(now);
        }
    }

    /// The lane to `peer` has carried something since the last beat. Changes nothing: a holder's
    /// deadline counts from echoed beats alone, so there is one however busy the lane.
    pub fn lane_was_busy(&mut self, peer: NodeUid) {
        if let Some(paced) = self.peers.get_mut(&peer) {
            paced.busy = true;
        }
    }

    /// When the next beat is due; none without peers.
    pub fn next_due(&self) -> Option<Duration> {
        self.peers.values().map(|paced| paced.due).min()
    }

    /// The beats that are due. At most one a peer, however late it is.
    pub fn beats(&mut self, now: Duration) -> Vec<(NodeUid, Heartbeat)> {
        let mut beats = Vec::new();
        for (peer, paced) in self.peers.iter_mut().filter(|(_, paced)| paced.due <= now) {
            paced.due = now.saturating_add(self.period);
            if std::mem::take(&mut paced.busy) && !self.rules.always_heartbeat {
                continue;
            }
            paced.nonce += 1;
            if paced.sent.len() == REMEMBERED {
                paced.sent.pop_front();
            }
            paced.sent.push_back((paced.nonce, now));
            beats.push((*peer, Heartbeat { uid: self.me, nonce: paced.nonce, ..paced.published }));
        }
        beats
    }

    /// A peer's heartbeat has arrived. The echo is due if it speaks of the session that is current here;
    /// the heartbeat itself goes to the main loop either way.
    pub fn on_heartbeat(&self, from: NodeUid, heartbeat: &Heartbeat) -> Option<HeartbeatEcho> {
        let session_no = self.peers.get(&from)?.published.session_no;
        let current = heartbeat.uid == from && session_no > 0 && heartbeat.session_no == session_no;
        current.then_some(HeartbeatEcho { uid: self.me, session_no, nonce: heartbeat.nonce })
    }

    /// An echo has arrived. Returns when its heartbeat was sent: the main loop wants to know
    /// ([`Leases::on_echo`](super::Leases::on_echo)). None for one that is unknown, too old, of another
    /// session, or a repetition.
    pub fn on_echo(&mut self, from: NodeUid, echo: &HeartbeatEcho) -> Option<Duration> {
        let paced = self.peers.get_mut(&from)?;
        if echo.uid != from || echo.session_no != paced.published.session_no {
            return None;
        }
        let position = paced.sent.iter().position(|(nonce, _)| *nonce == echo.nonce)?;
        let (_, sent) = paced.sent.remove(position)?;
        // What was sent before it says less.
        paced.sent.drain(..position);
        Some(sent)
    }
}
