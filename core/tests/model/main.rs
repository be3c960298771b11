//! The protocol's models at a small size, over the production core.
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[allow(dead_code)] // the example that searches the large sizes uses the rest
mod kit;
mod random;
mod scenes;

use kit::check::check;
use kit::models::{Size, all};
use kit::mutants::try_all;

/// More states than any of them has.
const MOST: usize = 10_000_000;

#[test]
fn models_hold() {
    for (setup, hits) in all(Size::Small) {
        let outcome = check(&setup, &hits, MOST, 2);
        if let Some((why, steps)) = &outcome.violation {
            panic!("{}: {why}\nafter {steps:#?}", outcome.name);
        }
        assert!(outcome.exhausted, "{} has more than {} states", outcome.name, outcome.unique_states);
        assert_eq!(outcome.missed, Vec::<&str>::new(), "{} shows less than it should", outcome.name);
    }
}

#[test]
fn every_rule_is_needed() {
    let mut survivors = Vec::new();
    try_all(2, |refutation| {
        if refutation.broken.is_none() {
            survivors.push((refutation.mutant, refutation.by));
        }
    });
    assert!(survivors.is_empty(), "nothing breaks without {survivors:?}");
}
