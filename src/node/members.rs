//! Who else is in the cluster: members tell each other of the members they know, so that joining one
//! is joining all, and each keeps a connection to each. The first node may leave like any other.

use super::Node;
use super::events::NodeEvent;
use super::peer::{Link, Peer};
use super::state::State;
use rref_core::NodeUid;
use rref_core::session::Class;
use rref_core::wire::{Frame, PeerInfo};

/// Nodes that may be known at a time.
const MEMBERS_LIMIT: usize = 65_536;

impl State {
    /// A member has been connected for the first time: it is told of the others, and they of it.
    pub(crate) fn spread(&mut self, newcomer: NodeUid) {
        let Some(info) = self.peers.get(&newcomer).map(|peer| peer.info.clone()) else { return };
        let others: Vec<PeerInfo> = self
            .peers
            .values()
            .filter(|peer| peer.info.uid != newcomer && peer.is_connected())
            .map(|peer| peer.info.clone())
            .collect();
        for other in others {
            let uid = other.uid;
            self.tell(newcomer, other);
            self.tell(uid, info.clone());
        }
    }

    /// Tells `to` of a node, once in a session.
    fn tell(&mut self, to: NodeUid, info: PeerInfo) {
        if let Some(peer) = self.peers.get_mut(&to)
            && peer.told.insert(info.uid)
            && peer.push(Class::Control, &Frame::Peer(info)).is_ok()
        {
            self.wake(to);
        }
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
        // A name that is known keeps its node until that one is lost.
        let known = self.by_name.get(&info.name).and_then(|uid| self.peers.get(uid));
        if info.name != self.name && known.is_none_or(|peer| matches!(peer.link, Link::Dead(_))) {
            self.by_name.insert(info.name.clone(), uid);
        }
        // Both are told of each other: one of the two dials, the smaller uid. Of two nodes with one
        // name it is the greater that has to ask whether the other is there, for it will leave.
        let dials = if info.name == self.name { uid < me } else { me < uid || !listens };
        let can_be_dialled = !info.addresses.is_empty();
        self.peers.insert(uid, Peer::new(info));
        if dials && can_be_dialled {
            self.wake(uid);
        }
        Ok(())
    }

    /// Whether a refusal because of this node's name means that the name is lost, and not only
    /// disputed: it was this node's before, or a smaller uid has it.
    pub(crate) fn has_lost_name(&self, by: NodeUid) -> bool {
        self.peers.get(&by).is_some_and(|peer| {
            peer.connections > 0 || (peer.info.name == self.name && by < self.lifetime.me())
        })
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
