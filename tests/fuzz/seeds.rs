//! Three hundred seeds, and that the same runs find out a protocol with a rule missing.

use crate::run::{Options, command, run};

fn passes(seeds: std::ops::Range<u64>, options: &Options) {
    for seed in seeds {
        if let Err(failure) = run(seed, options) {
            panic!("{failure}\nto repeat it: {}", command(seed, options));
        }
    }
}

/// How many seeds it takes until a protocol without one of its rules is found out.
fn found_after(mutant: &str, options: Options) -> Option<u64> {
    let options = Options { mutant: Some(mutant.to_string()), ..options };
    (0..200).find(|seed| run(*seed, &options).is_err())
}

// In three parts, so that they run side by side.

#[test]
fn seeds_0_to_99() {
    passes(0..100, &Options::default());
}

#[test]
fn seeds_100_to_199() {
    passes(100..200, &Options::default());
}

#[test]
fn seeds_200_to_299() {
    passes(200..300, &Options::default());
}

// Each run of these passes many minutes of virtual time, in which leases end.

fn crashes() -> Options {
    Options { crashes: true, ..Options::default() }
}

#[test]
fn crashes_with_seeds_0_to_49() {
    passes(0..50, &crashes());
}

#[test]
fn crashes_with_seeds_50_to_99() {
    passes(50..100, &crashes());
}

#[test]
fn pins_that_fall_when_a_frame_is_sent_are_found_out() {
    assert!(found_after("unpin_at_send", Options::default()).is_some());
}

#[test]
fn releases_without_their_guard_are_found_out() {
    assert!(found_after("release_unguarded", Options::default()).is_some());
}

#[test]
fn fences_without_grace_are_found_out() {
    assert!(found_after("wait_for_grace", crashes()).is_some());
}

#[test]
fn owners_that_sleep_and_then_fence_are_found_out() {
    assert!(found_after("extend_when_late", crashes()).is_some());
}

#[test]
fn owners_that_are_never_given_up_are_found_out() {
    assert!(found_after("give_up", crashes()).is_some());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for options in [Options::default(), crashes()] {
        let once = || run(11, &options).map_err(|failure| failure.to_string());
        assert_eq!(once(), once());
    }
}
