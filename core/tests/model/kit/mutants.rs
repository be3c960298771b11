//! The protocol less one rule, and what shows that the rule is needed: a model in which something breaks,
//! or, where no invariant of the models sees it, a single situation.

use super::actions::Action;
use super::check::check;
use super::models::{Size, all};
use super::setup::{Duties, Setup};
use rref_core::lease::{Keeper, LeaseSettings, Leases};
use rref_core::lifetime::{Digest, Lifetime};
use rref_core::session::{Accept, Class, Lane, LaneLimits, Progress};
use rref_core::wire::Heartbeat;
use rref_core::{NodeUid, Rules};
use std::time::Duration;

/// The most states searched for one mutant.
const MOST: usize = 3_000_000;

/// What happened to a mutant.
#[derive(Clone, Debug)]
pub struct Refutation {
    pub mutant: &'static str,
    /// The model or situation that was to refute it.
    pub by: String,
    /// What broke, and the steps to it.
    pub broken: Option<(String, Vec<Action>)>,
}

/// A situation that must go well with all rules, and must not without the one it is about.
pub type Situation = fn(Rules) -> Result<(), String>;

enum Judge {
    Model(&'static str),
    Situation(&'static str, Situation),
}

/// What refutes the protocol without this rule.
fn judge(rule: &str) -> Judge {
    Judge::Model(match rule {
        "pin_until_settled" | "settle_after_claim_acked" | "guard_release" => "M1 lanes",
        "seen_at_release" | "flush_releases_first" | "compare_at_position" => "M1 batches",
        "park_claims" => "M5 create",
        "settle_broken" | "give_up" => "M4 owner crash",
        "settle_with_exceptions" | "spare_excepted_owners" => "M7 two owners",
        "broken_releases_nothing" | "keep_broken_apart" | "list_no_fenced" => "M6 fence of the receiver",
        "close_older_first"
        | "list_present_at_reset"
        | "reclaim_at_reset"
        | "renew_listed"
        | "sweep_old_listings"
        | "spare_introduced" => "M3 owner reset",
        "keep_pins_at_reset" | "keep_unsettled_at_reset" => "M3 any reset",
        "report_lost_creations" => "M5 create, reset",
        "guard_absence" => "M3 inventory",
        "report_dead_creators" => "M5 create, crash",
        "ack_waits_for_position" | "confirm_anew_at_reset" | "relist_after_fence" | "reset_after_fence" => {
            "M6 fence and return"
        }
        "reset_after_give_up" => "M8 one way",
        "wait_for_grace" | "wait_for_clear" | "ask_lapsed" | "clear_when_drained" => "M4 crash",
        "ask_after_silence" | "clear_when_claims_acked" => "M4 crash by crash",
        "ask_unheard" => "M8 unknown member",
        "clock_from_mention" => "M5 creator unknown",
        "drain_before_judging" => "M4 owner blocked",
        "extend_when_late" | "keep_pins_at_give_up" => "M4 owner asleep",
        "drop_pins_at_fence" => "M4 two crashes",
        "keep_listings_of_leavers" => "M4 leave",
        "drop_duplicates" => return Judge::Situation("frames are applied once", frames_are_applied_once),
        "drop_foreign_acks" => return Judge::Situation("acks name their session", acks_name_their_session),
        "always_heartbeat" => {
            return Judge::Situation("busy lanes need heartbeats", busy_lanes_need_heartbeats);
        }
        "mismatch_twice" => return Judge::Situation("one mismatch is none", one_mismatch_is_none),
        _ => "none",
    })
}

/// Tries every mutant: each rule of the core left out, and each duty of its caller.
pub fn try_all(threads: usize, mut each: impl FnMut(Refutation)) {
    let models = all(Size::Small);
    let find = |name: &str| models.iter().map(|(setup, _)| setup).find(|setup| setup.name == name);
    for (mutant, rules) in Rules::each_omitted() {
        let (by, broken) = match judge(mutant) {
            Judge::Model(name) => {
                (name, find(name).and_then(|setup| search(&setup.with_rules(rules), threads)))
            }
            Judge::Situation(name, situation) => {
                let sound = situation(Rules::ALL).is_ok();
                (name, situation(rules).err().filter(|_| sound).map(|why| (why, Vec::new())))
            }
        };
        each(Refutation { mutant, by: by.to_string(), broken });
    }
    let duties = [
        ("one_lane_for_all_connections", "M1 lanes", Duties { two_lanes: true, ..Duties::ALL }),
        ("chunked_messages_keep_handles", "M1 chunks", Duties { keep_transfers: false, ..Duties::ALL }),
    ];
    for (mutant, by, duties) in duties {
        let broken = find(by).and_then(|setup| search(&setup.with_duties(duties), threads));
        each(Refutation { mutant, by: by.to_string(), broken });
    }
}

fn search(setup: &Setup, threads: usize) -> Option<(String, Vec<Action>)> {
    check(setup, &[], MOST, threads).violation
}

/// A connected lane that has sent one frame and processed one.
fn lane(rules: Rules) -> Result<Lane<()>, String> {
    let mut lane = Lane::new(rules, LaneLimits::default());
    lane.connected(0, 1).map_err(|e| e.to_string())?;
    lane.push(Class::Control, 1, ());
    lane.next_to_send();
    lane.accept(1).map_err(|e| e.to_string())?;
    lane.processed_frame(1, 0, 0, Class::Control, 1).map_err(|e| e.to_string())?;
    Ok(lane)
}

fn frames_are_applied_once(rules: Rules) -> Result<(), String> {
    match lane(rules)?.accept(1) {
        Ok(Accept::Duplicate) => Ok(()),
        other => Err(format!("I6: frame 1 came again: {other:?}")),
    }
}

fn acks_name_their_session(rules: Rules) -> Result<(), String> {
    let mut lane = lane(rules)?;
    let progress = lane.ack_frame(7, 0, 1, 1, Vec::new()).map_err(|e| e.to_string())?;
    if progress == Progress::default() {
        Ok(())
    } else {
        Err(format!("session 7 settles in session 1: {progress:?}"))
    }
}

fn busy_lanes_need_heartbeats(rules: Rules) -> Result<(), String> {
    let settings = LeaseSettings::default();
    let (me, peer) = (NodeUid(1), NodeUid(2));
    let mut keeper = Keeper::new(me, rules, settings.heartbeat);
    let mut now = Duration::ZERO;
    keeper.publish(now, peer, Heartbeat { session_no: 1, ..Heartbeat::default() });
    let mut last = now;
    while now < settings.ttl * 2 {
        keeper.lane_was_busy(peer);
        last = if keeper.beats(now).is_empty() { last } else { now };
        now += settings.heartbeat;
    }
    if now.saturating_sub(last) < settings.reliance() {
        Ok(())
    } else {
        Err(format!("no heartbeat since {last:?}, at {now:?}"))
    }
}

fn one_mismatch_is_none(rules: Rules) -> Result<(), String> {
    let (me, peer) = (NodeUid(1), NodeUid(2));
    let mut leases = Leases::new(me, rules, LeaseSettings::default(), Duration::ZERO);
    leases.mention(Duration::ZERO, peer);
    let life = Lifetime::new(me, rules);
    let beat = Heartbeat {
        uid: peer,
        session_no: 1,
        nonce: 1,
        listed: Digest { count: 1, hash: 1 },
        ..Heartbeat::default()
    };
    let first = leases.differs(&life, peer, &beat);
    let second = leases.differs(&life, peer, &beat);
    if (first, second) == (false, true) {
        Ok(())
    } else {
        Err(format!("told to repair: {first}, then {second}"))
    }
}
