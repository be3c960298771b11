//! Three hundred seeds, and that the same runs find out a protocol with a rule missing.

use crate::run::{Options, command, run};

fn passes(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = run(seed, &Options::default()) {
            panic!("{failure}\nto repeat it: {}", command(seed, None));
        }
    }
}

/// How many seeds it takes until a protocol without one of its rules is found out.
fn found_after(mutant: &str) -> Option<u64> {
    let options = Options { mutant: Some(mutant.to_string()), ..Options::default() };
    (0..200).find(|seed| run(*seed, &options).is_err())
}

// In three parts, so that they run side by side.

#[test]
fn seeds_0_to_99() {
    passes(0..100);
}

#[test]
fn seeds_100_to_199() {
    passes(100..200);
}

#[test]
fn seeds_200_to_299() {
    passes(200..300);
}

#[test]
fn pins_that_fall_when_a_frame_is_sent_are_found_out() {
    assert!(found_after("unpin_at_send").is_some());
}

#[test]
fn releases_without_their_guard_are_found_out() {
    assert!(found_after("release_unguarded").is_some());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let once = || run(11, &Options::default()).map_err(|failure| failure.to_string());
    assert_eq!(once(), once());
}
