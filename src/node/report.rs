//! What a node has, for people: one call answers "who keeps this alive?".

use super::Node;
use super::objects::Entry;
use rref_core::lease::{LeaseReport, PeerState};
use rref_core::lifetime::OwnedState;
use rref_core::{NodeUid, ObjectId};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a node has at one moment. Made by [`Node::report`]; its `Display` is a short text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's name.
    pub node: String,
    /// Its identity.
    pub uid: NodeUid,
    /// Objects that live here.
    pub objects: Vec<ObjectReport>,
    /// Objects of other nodes that are held here.
    pub held: Vec<HeldReport>,
    /// Other nodes that this one knows.
    pub peers: Vec<PeerReport>,
    /// Calls of this node that wait for their reply.
    pub calls: usize,
    /// How many calls of this node have ended in which way: `ok`, `cancelled` (the request was dropped),
    /// or the [`kind`](crate::Error::kind) of their error. Casts and creations are not among them.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How many calls and casts of other nodes have ended here in which way.
    pub handled: BTreeMap<&'static str, u64>,
    /// Calls that wait for an object whose creation has not arrived.
    pub parked: usize,
    /// How often this node and another one were found to differ on who holds what, and were made equal.
    /// Anything but 0 is a bug.
    pub divergences: u64,
    /// Bytes written to connections so far.
    pub bytes_sent: u64,
    /// Bytes read from connections so far.
    pub bytes_received: u64,
}

/// An object that lives on the node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Its identity.
    pub id: ObjectId,
    /// The name of its type; empty while it is being made.
    pub type_name: String,
    /// `expected`, `pending`, `live`, or why it failed.
    pub state: String,
    /// The names of the nodes that hold it.
    pub holders: Vec<String>,
    /// Handles on this very node.
    pub local_handles: u64,
    /// Calls that are queued or running.
    pub calls: u64,
    /// Those that wait in its queue, local ones included; for an object under construction, those that
    /// wait for it.
    pub queued: usize,
}

/// An object of another node that is held here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldReport {
    /// Its identity.
    pub id: ObjectId,
    /// The name of its owner.
    pub owner: String,
    /// Handles on this node.
    pub handles: u64,
    /// Nodes that were sent the object and have not settled yet.
    pub pins: Vec<String>,
    /// Whether the owner is known to list this node as a holder.
    pub confirmed: bool,
    /// Why its handles are dead, if they are.
    pub broken: Option<String>,
}

/// Another node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: NodeUid,
    /// `idle`, `dialing`, `connected`, or why calls to it fail: `silent`, `unreachable` or `dead`.
    pub link: String,
    /// The number of the session: what two nodes have said to each other since they last began anew.
    pub session: u32,
    /// As a holder of this node's objects: `up`, `lapsed` (its lease has run out; it keeps everything), or
    /// `fenced` (what it held is let go).
    pub lease: String,
    /// How long its lease still runs, unless it is renewed.
    pub lease_left: Duration,
    /// Messages that wait for room on the connection, or for credit.
    pub queued: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// Those that wait until the peer lets this node send more calls: it has too many unfinished.
    pub waiting_for_credit: usize,
    /// Frames sent and not acknowledged yet.
    pub unacknowledged: usize,
    /// Calls of the peer that are under way here.
    pub running: usize,
    /// Bytes of the arguments of the peer's calls and creations that are not over here.
    pub unfinished_bytes: u64,
    /// Bytes written to connections to it so far.
    pub bytes_sent: u64,
    /// Bytes read from connections to it so far.
    pub bytes_received: u64,
    /// Frames sent so far.
    pub frames_sent: u64,
    /// Frames received so far.
    pub frames_received: u64,
}

impl Node {
    /// What the node has at this moment.
    pub fn report(&self) -> NodeReport {
        let state = self.lock();
        let objects = state
            .lifetime
            .owned()
            .map(|owned| ObjectReport {
                id: owned.id,
                type_name: match state.objects.get(&owned.id) {
                    Some(Entry::Live(occupant)) => occupant.wire_name().into_owned(),
                    _ => String::new(),
                },
                state: match owned.state {
                    OwnedState::Expected => "expected".into(),
                    OwnedState::Pending => "pending".into(),
                    OwnedState::Live => "live".into(),
                    OwnedState::Failed(reason) => crate::Error::from(reason).to_string(),
                },
                holders: owned.holders.iter().map(|uid| state.name_of(*uid)).collect(),
                local_handles: owned.local,
                calls: owned.calls,
                queued: match state.objects.get(&owned.id) {
                    Some(Entry::Live(occupant)) => occupant.queued(),
                    Some(Entry::Pending(waiting)) => waiting.len(),
                    _ => 0,
                },
            })
            .collect();
        let held = state
            .lifetime
            .held()
            .map(|held| HeldReport {
                id: held.id,
                owner: state.name_of(held.id.owner),
                handles: held.handles,
                pins: held.pins.iter().map(|(uid, _)| state.name_of(*uid)).collect(),
                confirmed: held.confirmed,
                broken: held.broken.map(|reason| crate::Error::from(reason).to_string()),
            })
            .collect();
        let leases: BTreeMap<NodeUid, LeaseReport> =
            state.leases.report(state.now()).map(|lease| (lease.peer, lease)).collect();
        let peers: Vec<PeerReport> = state
            .peers
            .values()
            .map(|peer| PeerReport {
                name: peer.info.name.clone(),
                uid: peer.info.uid,
                link: match &peer.silent {
                    Some(reason) => format!("silent: {reason}"),
                    None => peer.link.to_string(),
                },
                session: peer.lane.session_no(),
                lease: match leases.get(&peer.info.uid).map(|lease| lease.state) {
                    None | Some(PeerState::Up) => "up".into(),
                    Some(PeerState::Lapsed) => "lapsed".into(),
                    Some(PeerState::Fenced) => "fenced".into(),
                },
                lease_left: leases.get(&peer.info.uid).map_or(Duration::ZERO, |lease| lease.left),
                queued: peer.outbound.len(),
                queued_bytes: peer.outbound.bytes(),
                waiting_for_credit: peer.outbound.waiting_for_credit(),
                unacknowledged: peer.lane.unacked_frames(),
                running: peer.running.len(),
                unfinished_bytes: peer.grant.unfinished().bytes,
                bytes_sent: peer.bytes_sent,
                bytes_received: peer.bytes_received,
                frames_sent: peer.frames_sent,
                frames_received: peer.frames_received,
            })
            .collect();
        NodeReport {
            node: self.name().to_string(),
            uid: self.uid(),
            objects,
            held,
            calls: state.calls.len(),
            outcomes: self.inner().outcomes.counts(),
            handled: self.inner().handled.counts(),
            parked: state.parked.values().map(Vec::len).sum(),
            divergences: state.divergences,
            bytes_sent: peers.iter().map(|peer| peer.bytes_sent).sum(),
            bytes_received: peers.iter().map(|peer| peer.bytes_received).sum(),
            peers,
        }
    }
}

impl fmt::Display for super::peer::Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use super::peer::Link;
        match self {
            Link::Idle => f.write_str("idle"),
            Link::Dialing { .. } => f.write_str("dialing"),
            Link::Connected(_) => f.write_str("connected"),
            Link::Unreachable(reason) => write!(f, "unreachable: {reason}"),
            Link::Dead(reason) => write!(f, "dead: {reason}"),
        }
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "node {} ({}): {} objects, {} held, {} calls waiting, {} parked, {} bytes sent, {} received, calls so far {:?}, handled {:?}",
            self.node,
            self.uid,
            self.objects.len(),
            self.held.len(),
            self.calls,
            self.parked,
            self.bytes_sent,
            self.bytes_received,
            self.outcomes,
            self.handled
        )?;
        for object in &self.objects {
            writeln!(
                f,
                "  object {} {} ({}): held by {:?} and {} handles here, {} calls, {} queued",
                object.id,
                object.type_name,
                object.state,
                object.holders,
                object.local_handles,
                object.calls,
                object.queued
            )?;
        }
        for held in &self.held {
            let state = match &held.broken {
                Some(reason) => format!("broken: {reason}"),
                None if held.confirmed => "confirmed".to_string(),
                None => "its owner has not confirmed it yet".to_string(),
            };
            writeln!(
                f,
                "  holds {} of {} ({state}): {} handles, sent to {:?}",
                held.id, held.owner, held.handles, held.pins
            )?;
        }
        for peer in &self.peers {
            writeln!(
                f,
                "  peer {} ({}): {}, session {}, its lease {} for {:.1?}, {} messages queued ({} for want of credit), {} frames unacknowledged, {} of its calls run here ({} bytes)",
                peer.name,
                peer.uid,
                peer.link,
                peer.session,
                peer.lease,
                peer.lease_left,
                peer.queued,
                peer.waiting_for_credit,
                peer.unacknowledged,
                peer.running,
                peer.unfinished_bytes
            )?;
        }
        Ok(())
    }
}
