//! Random walks, tens of thousands, through worlds with many faults (breaks, resets, crashes, partitions,
//! blocked nodes), minimised when one goes wrong. With those of `tests/lifetime` they are 10^5 and more.

use crate::kit::walks::{picks, walk, worlds};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_lost_nothing_leaked(world in 0..5usize, picks in prop::collection::vec(any::<u16>(), 0..200)) {
        let setup = &worlds()[world];
        if let Err((why, steps)) = walk(setup, &picks) {
            prop_assert!(false, "{}: {why}\nafter {steps:#?}", setup.name);
        }
    }
}

/// The first seeds of `model_check --walks`: the same on every machine.
#[test]
fn first_seeds() {
    for setup in worlds() {
        for seed in 0..20 {
            if let Err((why, steps)) = walk(&setup, &picks(seed, 300)) {
                panic!("{} {seed}: {why}\nafter {steps:#?}", setup.name);
            }
        }
    }
}

/// Seeds that have failed once. In these a claim crosses the Gone of an object that never comes, of which the owner
/// has a handle itself: the claimant stayed listed for ever.
#[test]
fn seeds_that_have_failed() {
    for (world, seed) in [("crashes", 182_654), ("partitions", 85_637)] {
        let setup = worlds().into_iter().find(|setup| setup.name == world);
        let walked = setup.map(|setup| walk(&setup, &picks(seed, 300)));
        assert!(matches!(walked, Some(Ok(_))), "{world} {seed}: {walked:?}");
    }
}
