//! The protocol's rules as switches, so that a model can leave one out and watch what breaks.
//!
//! Knows names only; what a rule says is in the code that asks for it, and in the protocol's page.

use std::hash::{Hash, Hasher};

/// Declares the rules, each a switch, with a list of their names.
macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Which rules of the protocol are in force.
        ///
        /// Production runs with [`Rules::ALL`]. Tests and models turn single rules off to show that
        /// each one is needed: a rule whose omission breaks nothing is not a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Rules {
            /// Every rule in force: what production uses.
            pub const ALL: Rules = Rules { $($name: true,)* };

            /// Each rule's name, with all rules but that one.
            ///
            /// ```
            /// use rref_core::Rules;
            /// let (name, rules) = Rules::each_omitted().next().unwrap();
            /// assert_eq!(name, "pin_until_settled");
            /// assert!(!rules.pin_until_settled && rules.guard_release);
            /// ```
            pub fn each_omitted() -> impl Iterator<Item = (&'static str, Rules)> {
                [$((stringify!($name), Rules { $name: false, ..Rules::ALL }),)*].into_iter()
            }
        }
    };
}

rules! {
    /// R2, R3: pins are kept until the receiver settles, not dropped when the frame is sent.
    pin_until_settled,
    /// R2: an introduction settles when its claim is acknowledged, not when it is received.
    settle_after_claim_acked,
    /// R5: `seen` is read when the entry turns absent, not when the batch is flushed.
    seen_at_release,
    /// R5: whatever is enqueued for an owner flushes its pending releases first.
    flush_releases_first,
    /// R6: a release older than the last introduction is ignored.
    guard_release,
    /// Section 4: a claim for an object under construction parks as a holder.
    park_claims,
    /// Section 3: an `ack` counts only once everything sent before it has been processed.
    ack_waits_for_position,
    /// Section 3: an acknowledgement that speaks of another session is dropped.
    drop_foreign_acks,
    /// Section 3: introductions of broken entries count as settled.
    settle_broken,
    /// Section 3: owners out of reach are left out of `settled`, and do not hold everybody's pins.
    settle_with_exceptions,
    /// Section 3: exceptions never apply to pins on objects of the excepted owners.
    spare_excepted_owners,
    /// Section 4: a broken entry sends no release.
    broken_releases_nothing,
    /// Section 4: handles of a broken entry never touch a later entry of the same object.
    keep_broken_apart,
    /// Section 2: a frame that was processed before is dropped.
    drop_duplicates,
    /// Section 2: a newer connection closes the older one before `recv_next` is read.
    close_older_first,
    /// Section 6, step 1: pins toward the peer outlive the session.
    keep_pins_at_reset,
    /// Section 6, step 2: unsettled introductions from the peer outlive the session.
    keep_unsettled_at_reset,
    /// Section 6, step 3: everything present is listed in the inventory.
    list_present_at_reset,
    /// Section 6, step 3: what awaits a claim of the old session awaits the inventory's end.
    reclaim_at_reset,
    /// Section 6, step 3: and so does what was confirmed in it.
    confirm_anew_at_reset,
    /// Section 6, step 4: an item renews a listing of the old session.
    renew_listed,
    /// Section 6, step 4: a listing of the old session that nothing renewed ends with the inventory.
    sweep_old_listings,
    /// Section 6, step 4: what was introduced since the switch survives the sweep.
    spare_introduced,
    /// Section 6, step 5: creations lost with the old session are reported.
    report_lost_creations,
    /// Section 6: absence from an inventory acts as a release with what had been seen.
    guard_absence,
    /// R7: what a fenced node was to create is reported.
    report_dead_creators,
    /// R10: what a fenced node lists when it returns is listed again, if it still exists.
    relist_after_fence,
    /// R10: what is sent to a node while it is fenced lists and pins nothing.
    list_no_fenced,
    /// R10: a fence drops the pins toward the node.
    drop_pins_at_fence,
    /// R10: a fence ends the session; the node returns by a reset.
    reset_after_fence,
    /// R13: giving an owner up ends the session with it.
    reset_after_give_up,
    /// R13: pins on a given-up owner's objects stay until their receivers settle.
    keep_pins_at_give_up,
    /// R13: an owner that is silent for too long is given up.
    give_up,
    /// R8, R9: a silent node is fenced only after TTL + grace, however its connections look.
    wait_for_grace,
    /// R9: ... and only when every other peer has said that it is clear.
    wait_for_clear,
    /// R9: ... of a question asked after the silence was long enough.
    ask_after_silence,
    /// R9: peers that are silent, but not yet for TTL + grace, are asked too.
    ask_lapsed,
    /// Section 10: members that have never been heard of are asked too.
    ask_unheard,
    /// R9: a peer is clear only when its readers hold nothing unprocessed.
    clear_when_drained,
    /// R9: ... and its claims to the asking owner are acknowledged.
    clear_when_claims_acked,
    /// R11: nothing is judged before what has been received is processed.
    drain_before_judging,
    /// R11: a node whose own tick was late extends all leases by as much.
    extend_when_late,
    /// Section 4: a node's lease clock starts at its first mention.
    clock_from_mention,
    /// Section 6: what a leaving node is listed for ages out as after a crash.
    keep_listings_of_leavers,
    /// Section 3: heartbeats are sent however busy the lane is.
    always_heartbeat,
    /// Section 6: digests are compared only where both sides speak of the same position.
    compare_at_position,
    /// Section 6: only a mismatch seen twice is one.
    mismatch_twice,
}

impl Default for Rules {
    fn default() -> Self {
        Rules::ALL
    }
}

impl Hash for Rules {
    /// Nothing: they are the same in all states of a run, and hashing states is what models do.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
