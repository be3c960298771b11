//! Random interleavings: with all rules nothing is lost or leaked, and each rule is needed.

use crate::world::{Check, World};
use proptest::prelude::*;
use rref_core::Rules;

/// What happens next: a kind, and three choices within it.
type Step = (u8, u8, u8, u8);

/// At most so many objects in one run.
const OBJECTS: usize = 3;

fn step(w: &mut World, (kind, a, b, c): Step) -> Check {
    let n = w.nodes.len();
    let (i, which) = (a as usize % n, b as usize);
    let to = (i + 1 + c as usize % (n - 1)) % n;
    let handles = w.nodes[i].handles.len();
    match kind % 20 {
        0..=4 => {
            let lanes = w.lanes.iter().filter(|(_, lane)| !lane.is_empty());
            let busy: Vec<(usize, usize)> = lanes.map(|(pair, _)| *pair).collect();
            if let Some(&(from, to)) = busy.get(which % busy.len().max(1)) {
                w.deliver(from, to)?;
            }
        }
        5 | 6 if handles > 0 => w.send(i, to, &[w.nodes[i].handles[which % handles].id])?,
        // A message that takes its sender's handle along.
        7 | 8 if handles > 0 => {
            w.send(i, to, &[w.nodes[i].handles[which % handles].id])?;
            w.check()?;
            w.drop_nth(i, which % handles)?;
        }
        9 if handles > 0 => {
            let ids = [which, which + 1, which].map(|k| w.nodes[i].handles[k % handles].id);
            w.send(i, to, &ids)?;
        }
        10 | 11 => w.drop_nth(i, which)?,
        12 if handles > 0 => w.clone_handle(i, w.nodes[i].handles[which % handles])?,
        13 if w.created.len() < OBJECTS => {
            w.create(i, if c % 4 == 0 { i } else { to })?;
        }
        14 => w.send_create(i)?,
        15 if c % 16 == 1 => w.die(i, which)?,
        15 => w.construct(i, which, c % 8 != 0)?,
        16 if handles > 0 => w.call(i, w.nodes[i].handles[which % handles].id)?,
        17 => w.finish_call(i, which)?,
        18 if c % 2 == 0 => w.make_ack(i, to, &[]),
        18 => w.deliver_ack(which)?,
        19 => w.flush(i)?,
        _ => {}
    }
    w.check()
}

fn run(rules: Rules, nodes: usize, steps: impl IntoIterator<Item = Step>) -> Check {
    let mut w = World::new(nodes, rules);
    steps.into_iter().try_for_each(|s| step(&mut w, s))?;
    w.finish()
}

/// A small generator of our own, so that the same runs are found again on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn step(&mut self) -> Step {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        (a, b, c, d)
    }
}

/// The first violation in some thousands of runs, with the number of runs it took.
fn violation(rules: Rules) -> Option<(u64, String)> {
    (1..20_000).find_map(|seed| {
        let mut random = Random(seed);
        let steps: Vec<Step> = (0..120).map(|_| random.step()).collect();
        run(rules, 3, steps).err().map(|why| (seed, why))
    })
}

fn needed(rules: Rules, expect: &[&str]) {
    let Some((seed, why)) = violation(rules) else { panic!("nothing breaks without it") };
    println!("run {seed}: {why}");
    assert!(expect.iter().any(|e| why.contains(e)), "unexpected kind of violation: {why}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 26_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_lost_nothing_leaked(steps in prop::collection::vec(any::<Step>(), 0..200)) {
        prop_assert_eq!(run(Rules::ALL, 3, steps), Ok(()));
    }

    #[test]
    fn four_nodes(steps in prop::collection::vec(any::<Step>(), 0..200)) {
        prop_assert_eq!(run(Rules::ALL, 4, steps), Ok(()));
    }
}

#[test]
fn same_steps_same_state() {
    let steps = |seed| {
        let mut random = Random(seed);
        let mut w = World::new(3, Rules::ALL);
        (0..300).for_each(|_| step(&mut w, random.step()).unwrap());
        w.nodes.into_iter().map(|n| n.life).collect::<Vec<_>>()
    };
    assert_eq!(steps(7), steps(7));
}

#[test]
fn needs_pins() {
    needed(Rules { pin_until_settled: false, ..Rules::ALL }, &["I1", "R4", "told"]);
}

#[test]
fn needs_settle_after_claim_acked() {
    needed(Rules { settle_after_claim_acked: false, ..Rules::ALL }, &["I1", "R4", "told"]);
}

#[test]
fn needs_seen_at_release() {
    needed(Rules { seen_at_release: false, ..Rules::ALL }, &["I1", "I4"]);
}

#[test]
fn needs_flush_releases_first() {
    needed(Rules { flush_releases_first: false, ..Rules::ALL }, &["I1", "I4"]);
}

#[test]
fn needs_guard_release() {
    needed(Rules { guard_release: false, ..Rules::ALL }, &["I1", "I4"]);
}

#[test]
fn needs_park_claims() {
    needed(Rules { park_claims: false, ..Rules::ALL }, &["told"]);
}

/// The owner hands one object out again and again while the holder drops it.
fn reintroduce(random: &mut Random, rules: Rules) -> Check {
    let mut w = World::new(2, rules);
    let id = w.create(0, 0)?.id;
    w.construct(0, 0, true)?;
    for _ in 0..12 {
        let (kind, a, ..) = random.step();
        match kind % 8 {
            0 | 1 if !w.nodes[0].handles.is_empty() => w.send(0, 1, &[id])?,
            2 => w.deliver(1, 0)?,
            3 => w.drop_nth(1, a as usize)?,
            4 => w.drop_all(1)?,
            5 => w.flush(1)?,
            6 if a % 8 == 0 => w.drop_all(0)?,
            _ => w.deliver(0, 1)?,
        }
        w.check()?;
    }
    w.finish()
}

#[test]
fn release_vs_reintroduce() {
    let mut random = Random(1);
    for round in 0..100_000 {
        assert_eq!(reintroduce(&mut random, Rules::ALL), Ok(()), "round {round}");
    }
    for rules in
        [Rules { guard_release: false, ..Rules::ALL }, Rules { seen_at_release: false, ..Rules::ALL }]
    {
        assert!((0..1_000).any(|_| reintroduce(&mut random, rules).is_err()), "{rules:?}");
    }
}
