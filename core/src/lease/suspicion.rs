//! When calls to a peer should fail, long before anything about its lease is judged.
//!
//! Knows times and signs of life; nothing here frees memory or ends a session: whoever is suspected
//! keeps all it has, and is trusted again with the next thing it says, or echoes.

use super::judge::{Lease, Leases};
use super::settings::LeaseSettings;
use crate::NodeUid;
use std::time::Duration;

/// Why calls to a peer should fail for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suspicion {
    /// Nothing has come from it for [`LeaseSettings::suspect_after`].
    Silent,
    /// It speaks, but none of this node's heartbeats has reached it for so long that it may have let
    /// go of what this node holds ([`Leases::deadline`] has passed).
    Unheard,
}

impl Leases {
    /// The peer has shown that it lives, by anything it has sent: it is silent no more.
    pub fn sign_of_life(&mut self, now: Duration, peer: NodeUid) {
        let time = self.clock.time(now);
        let Some(lease) = self.peers.get_mut(&peer) else { return };
        lease.sign = Some(time);
        lease.disproves(Suspicion::Silent);
    }

    /// A connection with the peer stands, after none did or in place of another: whatever was suspected
    /// before is seen anew.
    pub fn connected(&mut self, now: Duration, peer: NodeUid) {
        self.sign_of_life(now, peer);
        if let Some(lease) = self.peers.get_mut(&peer) {
            lease.suspected = None;
        }
    }

    /// Why calls to the peer should fail now; none if they should not.
    pub fn suspicion(&self, peer: NodeUid) -> Option<Suspicion> {
        self.peers.get(&peer)?.suspected
    }

    /// Until when, by the caller's clock, this node may rely on what it holds of `owner`'s. None before
    /// the first echo. A policy for calls: memory does not depend on it.
    pub fn deadline(&self, owner: NodeUid) -> Option<Duration> {
        self.peers.get(&owner)?.deadline(&self.settings)
    }
}

impl Lease {
    fn deadline(&self, settings: &LeaseSettings) -> Option<Duration> {
        Some(self.echo_sent?.saturating_add(settings.reliance()))
    }

    /// Something has happened that speaks against this suspicion.
    pub(super) fn disproves(&mut self, suspicion: Suspicion) {
        self.suspected = self.suspected.filter(|suspected| *suspected != suspicion);
    }

    /// What is to be suspected from `time` on that was not before, with the caller's clock `late` ahead
    /// of the lease clock.
    pub(super) fn raises_suspicion(
        &self,
        time: Duration,
        late: Duration,
        settings: &LeaseSettings,
    ) -> Option<Suspicion> {
        let long = |since: Option<Duration>| {
            since.is_some_and(|since| time.saturating_sub(since) >= settings.suspect_after)
        };
        let passed = match self.deadline(settings) {
            Some(deadline) => time.saturating_add(late) >= deadline,
            // No echo yet, or none in this session.
            None => self.echoed.is_some_and(|since| time.saturating_sub(since) >= settings.reliance()),
        };
        if self.suspected.is_some() {
            None
        } else if long(self.renewed.max(self.sign)) {
            Some(Suspicion::Silent)
        } else if long(self.echoed) && passed {
            // After a pause of this node's own the deadline has passed at once: only what happens
            // afterwards shows whether it is heard.
            Some(Suspicion::Unheard)
        } else {
            None
        }
    }
}
