//! The protocol's rules as switches, so that a model can leave one out and watch what breaks.

/// Which rules of the lifetime protocol are in force.
///
/// Production runs with [`Rules::ALL`]. Tests and models turn single rules off to show that each
/// one is needed: a rule whose omission breaks nothing is not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// R2, R3: pins are kept until the receiver settles, not dropped when the frame is sent.
    pub pin_until_settled: bool,
    /// R2: an introduction settles when its claim is acknowledged, not when it is received.
    pub settle_after_claim_acked: bool,
    /// R5: `seen` is read when the entry turns absent, not when the batch is flushed.
    pub seen_at_release: bool,
    /// R5: whatever is enqueued for an owner flushes its pending releases first.
    pub flush_releases_first: bool,
    /// R6: a release older than the last introduction is ignored.
    pub guard_release: bool,
    /// Section 4: a claim for an object under construction parks as a holder.
    pub park_claims: bool,
    /// Section 3: an `ack` counts only once everything sent before it has been processed.
    pub ack_waits_for_position: bool,
    /// Section 3: introductions of broken entries count as settled.
    pub settle_broken: bool,
}

impl Rules {
    /// Every rule in force: what production uses.
    pub const ALL: Rules = Rules {
        pin_until_settled: true,
        settle_after_claim_acked: true,
        seen_at_release: true,
        flush_releases_first: true,
        guard_release: true,
        park_claims: true,
        ack_waits_for_position: true,
        settle_broken: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Rules::ALL
    }
}
