//! Who else is in the cluster: members tell each other of the members they know, so that joining one
//! is joining all, and each keeps a connection to each. The first node may leave like any other.

use super::Node;
use super::events::NodeEvent;
use super::peer::{Link, Peer};
use super::state::State;
use crate::error::Result;
use rref_core::NodeUid;
use rref_core::session::Class;
use rref_core::wire::{Frame, PeerInfo};

/// Nodes that may be known at a time.
const MEMBERS_LIMIT: usize = 65_536;

impl State {
    /// A member is connected for the first time, or again after it was out of reach, or in a new session:
    /// it is told of the others, and they of it. Also those whose connection is just lost, since a node that
    /// nobody has told of would not be asked before something is freed.
    pub(crate) fn spread(&mut self, member: NodeUid) {
        let Some(info) = self.peers.get(&member).map(|peer| peer.info.clone()) else { return };
        let in_reach = |peer: &&Peer| matches!(peer.link, Link::Connected(_) | Link::Dialing { .. });
        let others: Vec<PeerInfo> = self
            .peers
            .values()
            .filter(|peer| peer.info.uid != member && peer.connections > 0)
            .filter(in_reach)
            .map(|peer| peer.info.clone())
            .collect();
        for other in others {
            let uid = other.uid;
            self.spread_one(member, other);
            self.spread_one(uid, info.clone());
        }
    }

    /// Tells `to` of a node, and has it sent at once. News that cannot be encoded are nobody's loss.
    fn spread_one(&mut self, to: NodeUid, info: PeerInfo) {
        if self.tell(to, info).is_ok() {
            self.wake(to);
        }
    }

    /// Tells `to` of a node, once in a session.
    ///
    /// # Errors
    /// [`Error::Encode`](crate::Error::Encode).
    pub(crate) fn tell(&mut self, to: NodeUid, info: PeerInfo) -> Result<()> {
        let Some(peer) = self.peers.get_mut(&to) else { return Ok(()) };
        if peer.told.insert(info.uid) { peer.push(Class::Control, &Frame::Peer(info)) } else { Ok(()) }
    }

    /// A member tells of a node.
    ///
    /// # Errors
    /// What the member did wrong.
    pub(crate) fn peer_told(&mut self, info: PeerInfo, listens: bool) -> Result<(), String> {
        let (me, uid) = (self.lifetime.me(), info.uid);
        if uid == me || self.peers.contains_key(&uid) {
            return Ok(());
        }
        if self.peers.len() >= MEMBERS_LIMIT {
            return Err("it tells of too many nodes".into());
        }
        // A name that is known keeps its node until that one is lost; it is told of its rival.
        let holder = self.by_name.get(&info.name).copied().filter(|holder| !self.is_dead(*holder));
        let kept = holder.filter(|holder| !self.is_out_of_reach(*holder));
        match (holder, kept) {
            (_, Some(holder)) => self.spread_one(holder, info.clone()),
            (None, _) if info.name != self.name => drop(self.by_name.insert(info.name.clone(), uid)),
            _ => {}
        }
        // Both are told of each other: one of the two dials, the smaller uid. Of two nodes with one
        // name it is the greater that has to ask whether the other is there, for it will leave.
        let dials = if info.name == self.name { uid < me } else { me < uid || !listens };
        let can_be_dialled = !info.addresses.is_empty();
        self.peers.insert(uid, Peer::new(info, self.credit, self.rules, self.lane_limits));
        let now = self.now();
        self.leases.mention(now, uid);
        if dials && can_be_dialled && kept.is_none() {
            self.wake(uid);
        }
        Ok(())
    }

    fn is_out_of_reach(&self, uid: NodeUid) -> bool {
        self.peers
            .get(&uid)
            .is_some_and(|peer| peer.silent.is_some() || matches!(peer.link, Link::Unreachable(_)))
    }

    /// Whether there has been a connection with this node.
    pub(crate) fn has_met(&self, uid: NodeUid) -> bool {
        self.peers.get(&uid).is_some_and(|peer| peer.connections > 0)
    }

    /// The node of this name is lost, or out of reach: another one may have been waiting for the name. It has
    /// it once it is connected, and before only if nobody else has.
    pub(crate) fn inherit_name(&mut self, name: &str) {
        let heir = self.peers.values().find(|peer| {
            peer.info.name == name && peer.link == Link::Idle && !peer.info.addresses.is_empty()
        });
        let Some(heir) = heir.map(|peer| peer.info.uid) else { return };
        if self.by_name.get(name).is_none_or(|holder| self.is_dead(*holder)) {
            self.by_name.insert(name.to_string(), heir);
        }
        self.wake(heir);
    }
}

impl Node {
    /// Another node has this one's name: it leaves at once.
    pub(crate) fn lose_name(&self, holder: NodeUid) {
        let name = self.name();
        tracing::error!("the name `{name}` is another node's ({holder}): this node leaves the cluster");
        self.lock().announce(NodeEvent::NameTaken { holder });
        self.close();
    }

    /// Whether the node serves: it has started and joined, and has not begun to shut down.
    ///
    /// For readiness probes.
    pub fn is_ready(&self) -> bool {
        self.check_open().is_ok()
    }
}
