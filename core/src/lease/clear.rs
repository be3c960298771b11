//! Whether everything this node has received is processed.
//!
//! Knows readers and questions. A *round* begins with one or more questions and ends when every reader
//! that was open then has been polled since and had nothing (or has been closed). Questions that come
//! during a round wait for the next one: a round that began before a question does not answer it.

use crate::NodeUid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Something that input arrives by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reader {
    /// The data connection of a peer.
    Lane(NodeUid),
    /// The way from the keeper's thread to the main loop.
    Keeper,
}

/// Who wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asker {
    /// This node, to judge leases as of this time by the lease clock.
    Judge(Duration),
    /// A peer, by its question's number.
    Peer(NodeUid, u64),
}

/// The state of rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clearance {
    open: BTreeSet<Reader>,
    /// Readers of the current round that have not been polled since it began.
    behind: BTreeSet<Reader>,
    /// For whom the current round is.
    round: BTreeSet<Asker>,
    /// For whom the next one is.
    next: BTreeSet<Asker>,
}

impl Clearance {
    pub(super) fn opened(&mut self, reader: Reader) {
        self.open.insert(reader);
        if !self.round.is_empty() {
            // What the old connection had received is lost; what this one has is not read yet.
            self.behind.insert(reader);
        }
    }

    pub(super) fn closed(&mut self, reader: Reader) {
        self.open.remove(&reader);
        self.behind.remove(&reader);
    }

    /// The reader was polled until it had nothing more.
    pub(super) fn drained(&mut self, reader: Reader) {
        self.behind.remove(&reader);
    }

    /// Readers that must be polled before the round can end.
    pub(super) fn behind(&self) -> impl Iterator<Item = Reader> {
        self.behind.iter().copied()
    }

    pub(super) fn ask(&mut self, asker: Asker) {
        self.next.insert(asker);
    }

    /// Ends the round if it can, and begins the next one. Returns for whom it was.
    pub(super) fn advance(&mut self) -> BTreeSet<Asker> {
        let mut done = BTreeSet::new();
        if self.behind.is_empty() {
            done.append(&mut self.round);
            if !self.next.is_empty() {
                self.round = std::mem::take(&mut self.next);
                self.behind = self.open.clone();
                if self.behind.is_empty() {
                    done.append(&mut self.round);
                }
            }
        }
        done
    }
}

/// The newest question of each peer that a finished round answers.
pub(super) fn newest(askers: &BTreeSet<Asker>) -> BTreeMap<NodeUid, u64> {
    let peers = askers.iter().filter_map(|asker| match asker {
        Asker::Peer(peer, question) => Some((*peer, *question)),
        Asker::Judge(_) => None,
    });
    // In order, so the last one of each peer is the newest.
    peers.collect()
}
