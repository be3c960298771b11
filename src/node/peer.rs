//! One other node, as this one sees it: the session with it and the connection that carries it.

use super::incoming::NamedEntry;
use super::outgoing::Message;
use super::streams::Outlet;
use rref_core::session::{Credit, Grant, Lane, LaneLimits, Outbound, OutboundLimits, SettledExcept};
use rref_core::wire::{Assembly, Encoded, PeerInfo};
use rref_core::{NodeUid, Rules, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use std::time::Duration;

/// What a peer may have under way here, unless the builder says otherwise.
pub(crate) const CREDIT: Credit = Credit { calls: 65_536, bytes: 256 << 20 };

/// How many resend buffers may be full for a peer that goes on acknowledging.
const FLOOD: usize = 4;

/// The way to a peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Link {
    /// No connection, and nothing to send.
    Idle,
    /// A connection is being made.
    Dialing {
        /// Whether a Hello of ours is under way: then the smaller uid's connection stays.
        greeted: bool,
    },
    /// The connection with this number carries the session.
    Connected(u64),
    /// Out of reach for too long; it is still dialled. Calls fail with this reason.
    Unreachable(String),
    /// It said that it leaves, or is gone for good, for this reason.
    Dead(String),
}

/// One other node.
pub(crate) struct Peer {
    pub(crate) info: PeerInfo,
    pub(crate) link: Link,
    /// It is connected and silent, and calls fail with this reason.
    pub(crate) silent: Option<String>,
    pub(crate) lane: Lane<Encoded>,
    pub(crate) outbound: Outbound<Message>,
    pub(crate) assembly: Assembly,
    /// What the peer may still send us.
    pub(crate) grant: Grant,
    /// The settled watermark to stamp on what goes to this peer.
    pub(crate) settled: Seq,
    /// A higher one, which leaves out owners that are out of reach.
    pub(crate) settled_except: Option<SettledExcept>,
    /// Whether the peer has yet to be told of that.
    pub(crate) owes_exceptions: bool,
    /// Index of each of our names in this session; 0 for those not announced.
    pub(crate) names_sent: Vec<u32>,
    pub(crate) next_name: u32,
    /// The peer's names, from index 1.
    pub(crate) names_received: Vec<Arc<NamedEntry>>,
    /// Owners whose addresses the peer has been told.
    pub(crate) told: BTreeSet<NodeUid>,
    /// Calls of the peer's that have not been answered, with the flag that cancels each.
    pub(crate) running: BTreeMap<u64, Arc<AtomicBool>>,
    /// Streams the peer reads here.
    pub(crate) outlets: BTreeMap<u64, Arc<Outlet>>,
    /// Since when, by the node's clock, there is no connection; none while there is one, or has never been.
    pub(crate) down_since: Option<Duration>,
    /// Wakes the connection's task, even while it waits for its socket.
    pub(crate) poller: Option<Waker>,
    /// Wakes the connection's task; absent while it runs anyway.
    pub(crate) waker: Option<Waker>,
    /// An acknowledgement has waited long enough for company.
    pub(crate) ack_now: bool,
    /// If too much was kept for it at the last tick: up to where it had acknowledged then.
    pub(crate) overfull_at: Option<Seq>,
    /// Numbers connections, so that an older one's task notices that it is replaced.
    pub(crate) connections: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) frames_sent: u64,
    pub(crate) frames_received: u64,
}

impl Peer {
    /// A peer that may have so much under way here at a time.
    pub(crate) fn new(info: PeerInfo, credit: Credit, rules: Rules, limits: LaneLimits) -> Peer {
        Peer {
            info,
            link: Link::Idle,
            silent: None,
            lane: Lane::new(rules, limits),
            outbound: Outbound::new(OutboundLimits::default()),
            assembly: Assembly::new(),
            grant: Grant::new(credit),
            settled: 0,
            settled_except: None,
            owes_exceptions: false,
            names_sent: Vec::new(),
            next_name: 0,
            names_received: Vec::new(),
            told: BTreeSet::new(),
            running: BTreeMap::new(),
            outlets: BTreeMap::new(),
            down_since: None,
            poller: None,
            waker: None,
            ack_now: false,
            overfull_at: None,
            connections: 0,
            bytes_sent: 0,
            bytes_received: 0,
            frames_sent: 0,
            frames_received: 0,
        }
    }

    /// Whether it makes sense to queue something for it.
    pub(crate) fn takes_messages(&self) -> bool {
        !matches!(self.link, Link::Dead(_))
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Connected(_))
    }

    /// Whether so much is kept for it that its session must end even if it goes on acknowledging.
    pub(crate) fn is_flooded(&self) -> bool {
        self.lane.unacked_bytes() > self.lane.limits().resend_limit.saturating_mul(FLOOD)
    }

    /// Whether everything for it has been sent and acknowledged.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbound.is_empty() && self.lane.unacked_frames() == 0
    }
}
