//! Random walks: some 10^5 steps through worlds with many faults, minimised when one goes wrong.

use crate::kit::walks::{picks, walk, worlds};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_lost_nothing_leaked(world in 0..5usize, picks in prop::collection::vec(any::<u16>(), 0..400)) {
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
