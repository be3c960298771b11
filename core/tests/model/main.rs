//! The protocol's models at a small size, over the production core.
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[allow(dead_code)] // the example beside it uses the rest
mod kit;

use kit::check::check;
use kit::models::{Size, all};

#[test]
fn models() {
    let only = std::env::var("MODEL").unwrap_or_default();
    for (setup, hits) in all(Size::Small) {
        if !setup.name.contains(&only) { continue; }
        let t = std::time::Instant::now();
        let outcome = check(&setup, &hits, 3_000_000, 2);
        println!("{} {} depth {} {:?} exhausted {} hits {:?} missed {:?}", outcome.name, outcome.unique_states, outcome.depth, t.elapsed(), outcome.exhausted, outcome.hits, outcome.missed);
        if let Some((why, path)) = &outcome.violation { println!("   {}", why.chars().take(3000).collect::<String>()); for s in path { println!("      {s:?}"); } }
    }
}

#[test]
fn find_mutants() {
    let only = std::env::var("MUTANT").unwrap_or_default();
    let models = all(Size::Small);
    for (name, rules) in rref_core::Rules::each_omitted() {
        if !name.contains(&only) { continue; }
        let mut found = false;
        for (setup, _) in &models {
            let outcome = check(&setup.with_rules(rules), &[], 100_000, 2);
            if let Some((why, path)) = outcome.violation {
                println!("{name}: {} in {} steps: {}", setup.name, path.len(), why.chars().take(150).collect::<String>().replace('\n', " "));
                found = true;
                if only.is_empty() { break; }
                for s in path { println!("      {s:?}"); }
            }
        }
        if !found { println!("{name}: NOT REFUTED"); }
    }
}
