//! Random walks through worlds that are too large to search: many faults of many kinds in one run.
//!
//! A walk is a list of numbers, each of which picks one of the steps that are possible then; when the list
//! is used up, the first possible step is taken until nothing is possible any more. So any list is a walk,
//! a shorter list is a simpler one, and a failing list can be made shorter as it is.

use super::actions::Action;
use super::setup::Setup;
use super::world::{Budget, uid};
use rref_core::ObjectId;

/// More steps than any walk has.
const MOST: usize = 20_000;

/// How a walk went wrong: what broke, and the steps to it.
pub type Failure = (String, Vec<Action>);

/// Walks to the end. Returns how many steps it took.
pub fn walk(setup: &Setup, picks: &[u16]) -> Result<usize, Failure> {
    let mut world = setup.world();
    let mut steps = Vec::new();
    let mut picks = picks.iter();
    while steps.len() < MOST {
        let mut actions = world.actions(setup);
        if let Some(why) = &world.bad {
            return Err((why.clone(), steps));
        }
        if actions.is_empty() {
            return match world.is_clean() {
                Ok(()) => Ok(steps.len()),
                Err(why) => Err((why, steps)),
            };
        }
        let pick = picks.next().map_or(0, |pick| usize::from(*pick) % actions.len());
        let action = actions.swap_remove(pick);
        steps.push(action.clone());
        world.step(setup, action);
    }
    Err(("the walk never ends".into(), steps))
}

/// The same walk with fewer picks, as few as can be found by leaving some out.
pub fn minimise(setup: &Setup, picks: &[u16]) -> Vec<u16> {
    let mut least = picks.to_vec();
    let mut size = least.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < least.len() {
            let mut fewer = least.clone();
            fewer.drain(at..(at + size).min(least.len()));
            if walk(setup, &fewer).is_err() {
                least = fewer;
            } else {
                at += size;
            }
        }
        if size == 1 {
            return least;
        }
        size = size.div_ceil(2);
    }
}

/// Numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood 2014).
pub fn picks(seed: u64, count: usize) -> Vec<u16> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u16
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The worlds to walk in.
pub fn worlds() -> Vec<Setup> {
    let base = Setup {
        nodes: 4,
        start: vec![(1, 0), (2, 0), (3, 3), (1, 2)],
        owners_let_go: false,
        ..Setup::new("")
    };
    let budget = Budget { gives: 12, calls: 4, ..Budget::default() };
    vec![
        Setup {
            name: "breaks",
            flight: true,
            stamps: true,
            batch: true,
            chunks: true,
            pairs: true,
            creators: vec![(1, 0), (0, 2)],
            budget: Budget { breaks: 6, creates: 3, ..budget.clone() },
            ..base.clone()
        },
        Setup {
            name: "resets",
            stamps: true,
            batch: true,
            pairs: true,
            failing: true,
            creators: vec![(1, 0), (3, 0), (0, 2)],
            budget: Budget { resets: 5, breaks: 3, creates: 4, acks: 4, inventories: 2, ..budget.clone() },
            ..base.clone()
        },
        Setup {
            name: "crashes",
            timed: true,
            skew: 1,
            ttl: 3,
            ordered_ticks: false,
            nodes: 5,
            crashers: vec![0, 1, 2, 4],
            blockers: vec![0, 1, 2, 3],
            longest_block: 8,
            leavers: vec![4],
            creators: vec![(1, 0), (4, 3)],
            budget: Budget { crashes: 2, blocks: 2, creates: 2, resets: 1, leaves: 1, ..budget.clone() },
            ..base.clone()
        },
        Setup {
            name: "partitions",
            timed: true,
            ttl: 3,
            one_way: true,
            cuts: vec![(0, 1), (0, 2), (1, 2), (0, 3)],
            creators: vec![(1, 0)],
            budget: Budget { cuts: 3, resets: 1, creates: 1, ..budget.clone() },
            ..base.clone()
        },
        Setup {
            name: "owners",
            timed: true,
            ttl: 3,
            exceptions: true,
            pairs: true,
            crashers: vec![0, 1, 3],
            blockers: vec![2],
            longest_block: 8,
            nested: Some((ObjectId { owner: uid(2), creator: uid(1), create_no: 1 }, 0)),
            cuts: vec![(2, 3)],
            budget: Budget { crashes: 1, cuts: 1, blocks: 1, ..budget },
            ..base
        },
    ]
}
