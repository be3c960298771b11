//! What a trace has seen, and where it goes next.
//!
//! One run of a type's `Deserialize` sees one variant of each enum, so a trace is several runs over the
//! same type. A run is linear in the number of types: it looks into each `Option`, sequence or map of a
//! type once and leaves later ones empty, which also ends recursion through them. At an enum it takes,
//! in this order: a variant not seen yet, one that leads to an enum with such variants, the cheapest one.
//! The trace is over when a run has found nothing new.
//!
//! Pure: knows no serde. Types are told apart by name, but only their order of appearance is hashed:
//! a module's path is no part of a type's shape.

use super::{Fnv, Schema};
use std::collections::{BTreeMap, BTreeSet};

/// From this depth on a run makes for the end: containers stay empty, enums take the cheapest variant.
const SOFT_DEPTH: usize = 32;
/// Runs give up at this depth. Bounds the stack.
const HARD_DEPTH: usize = 96;
/// Values in one run.
const STEPS: usize = 1 << 16;
/// Values in one trace.
const TOTAL_STEPS: usize = 1 << 20;
/// Runs in one trace.
const RUNS: usize = 1 << 10;

/// A type, by the names of its visitor and of what that makes.
pub(super) type Key = (&'static str, &'static str);

/// Why a run ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Too deep, or too many values.
    Bounds,
    /// The type needs a format that describes itself.
    Refused,
}

#[derive(Debug)]
pub(super) struct Recorder {
    hash: Fnv,
    /// Numbers of types, by first appearance.
    numbers: BTreeMap<Key, usize>,
    enums: BTreeMap<usize, Vec<Variant>>,
    total_steps: usize,
    runs: usize,
    /// The type that cannot travel; nothing inside when it is the traced one.
    refused: Option<Option<&'static str>>,
    run: Run,
}

/// State of the current run.
#[derive(Debug, Default)]
struct Run {
    /// Containers that were looked into.
    entered: BTreeSet<usize>,
    /// Names of the types around the current value.
    inside: Vec<&'static str>,
    /// Enums around the current value.
    choices: Vec<Choice>,
    steps: usize,
    /// A variant was seen, or seen to fail, for the first time.
    progress: bool,
    /// The variant at fault for an error is found: those around it are not.
    blamed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    number: usize,
    variant: usize,
    /// Steps of the run when it was made.
    since: usize,
}

#[derive(Debug, Default)]
struct Variant {
    seen: Seen,
    /// How many of the values being read are this variant.
    active: usize,
    /// Enums met directly inside.
    below: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Never,
    Failed,
    /// To the end, at best with this many values inside.
    Whole(usize),
}

impl Recorder {
    pub(super) fn new() -> Recorder {
        Recorder {
            hash: Fnv::new(),
            numbers: BTreeMap::new(),
            enums: BTreeMap::new(),
            total_steps: 0,
            runs: 0,
            refused: None,
            run: Run::default(),
        }
    }

    /// Starts a run.
    pub(super) fn begin(&mut self) {
        self.run = Run::default();
        self.runs += 1;
        for variant in self.enums.values_mut().flatten() {
            variant.active = 0;
        }
    }

    /// Ends a run; says whether there should be another.
    pub(super) fn end(&mut self, complete: bool) -> bool {
        self.hash.text(if complete { "end" } else { "stop" });
        self.run.progress && self.runs < RUNS && self.total_steps < TOTAL_STEPS
    }

    pub(super) fn schema(&self) -> Schema {
        self.hash.finish()
    }

    /// Whether the type cannot travel, and which type inside it is the reason.
    pub(super) fn refused(&self) -> Option<Option<&'static str>> {
        self.refused
    }

    /// A value of the type `name` needs a format that describes itself.
    pub(super) fn refuse(&mut self, name: &'static str) -> Stop {
        // serde buffers such values in types of its own: the user's is the one around them.
        if name.starts_with("serde") && name.contains("private") {
            return self.refuse_around();
        }
        self.refused.get_or_insert(Some(name));
        Stop::Refused
    }

    /// The type around the current value needs a format that describes itself.
    pub(super) fn refuse_around(&mut self) -> Stop {
        self.refused.get_or_insert(self.run.inside.last().copied());
        Stop::Refused
    }

    /// Counts a value and records what it is.
    pub(super) fn value(&mut self, what: &str) -> Result<(), Stop> {
        self.run.steps += 1;
        self.total_steps += 1;
        if self.run.steps > STEPS || self.total_steps > TOTAL_STEPS {
            return Err(Stop::Bounds);
        }
        self.hash.text(what);
        Ok(())
    }

    /// Records a value that describes itself without the deserialiser's help.
    pub(super) fn marked(&mut self, what: &str) {
        self.run.steps += 1;
        self.total_steps += 1;
        self.hash.text("mark");
        self.hash.text(what);
    }

    pub(super) fn names(&mut self, names: &[&str]) {
        self.hash.number(names.len());
        for name in names {
            self.hash.text(name);
        }
    }

    pub(super) fn number(&mut self, number: usize) {
        self.hash.number(number);
    }

    /// Goes into a value of the type `name`. Every successful call is followed by [`Recorder::up`].
    pub(super) fn down(&mut self, name: &'static str) -> Result<(), Stop> {
        if self.run.inside.len() >= HARD_DEPTH {
            return Err(Stop::Bounds);
        }
        self.run.inside.push(name);
        Ok(())
    }

    pub(super) fn up(&mut self) {
        self.run.inside.pop();
    }

    /// Whether to look into a container that may as well be empty.
    pub(super) fn enter(&mut self, key: Key) -> bool {
        let number = self.number_of(key);
        self.hash.number(number);
        let enters = !self.is_deep() && self.run.entered.insert(number);
        self.hash.text(if enters { "in" } else { "empty" });
        enters
    }

    /// Picks a variant of an enum with `count` of them, at least 1; [`Recorder::chosen`] follows.
    pub(super) fn choose(&mut self, key: Key, count: usize) -> usize {
        let number = self.number_of(key);
        if let Some(parent) = self.run.choices.last().copied()
            && let Some(variant) = self.variant(parent)
        {
            variant.below.insert(number);
        }
        self.enums.entry(number).or_default().resize_with(count, Variant::default);
        let variant = self.pick(number);
        let choice = Choice { number, variant, since: self.run.steps };
        if let Some(variant) = self.variant(choice) {
            variant.active += 1;
        }
        self.run.choices.push(choice);
        self.hash.number(number);
        self.hash.number(variant);
        variant
    }

    /// The variant picked last was read, or failed.
    pub(super) fn chosen(&mut self, complete: bool) {
        let Some(choice) = self.run.choices.pop() else { return };
        let cost = self.run.steps - choice.since;
        let blame = !complete && !self.run.blamed;
        self.run.blamed |= blame;
        let Some(variant) = self.variant(choice) else { return };
        variant.active = variant.active.saturating_sub(1);
        let before = variant.seen;
        variant.seen = match before {
            Seen::Whole(best) if complete => Seen::Whole(best.min(cost)),
            _ if complete => Seen::Whole(cost),
            Seen::Never if blame => Seen::Failed,
            unchanged => unchanged,
        };
        let news = matches!(
            (before, variant.seen),
            (Seen::Never, Seen::Failed) | (Seen::Never | Seen::Failed, Seen::Whole(_))
        );
        self.run.progress |= news;
    }

    fn pick(&self, number: usize) -> usize {
        let Some(variants) = self.enums.get(&number) else { return 0 };
        let whole = variants.iter().enumerate().filter_map(|(i, variant)| match variant.seen {
            Seen::Whole(cost) => Some((cost, i)),
            Seen::Never | Seen::Failed => None,
        });
        let cheapest = whole.min().map(|(_, i)| i);
        if self.is_deep()
            && let Some(cheapest) = cheapest
        {
            return cheapest;
        }
        let idle = || variants.iter().enumerate().filter(|(_, variant)| variant.active == 0);
        idle()
            .find(|(_, variant)| variant.seen == Seen::Never)
            .or_else(|| idle().find(|(_, variant)| self.leads_on(&variant.below)))
            .map(|(i, _)| i)
            .or(cheapest)
            // All are being read further out. One of them ends, but which is not known yet: take turns.
            .or_else(|| variants.iter().enumerate().min_by_key(|(_, v)| v.active).map(|(i, _)| i))
            .unwrap_or(0)
    }

    /// Whether a variant not seen yet can be met by way of these enums.
    fn leads_on(&self, below: &BTreeSet<usize>) -> bool {
        let mut met = below.clone();
        let mut open: Vec<usize> = below.iter().copied().collect();
        while let Some(number) = open.pop() {
            for variant in self.enums.get(&number).into_iter().flatten() {
                if variant.seen == Seen::Never && variant.active == 0 {
                    return true;
                }
                open.extend(variant.below.iter().copied().filter(|n| met.insert(*n)));
            }
        }
        false
    }

    fn variant(&mut self, choice: Choice) -> Option<&mut Variant> {
        self.enums.get_mut(&choice.number)?.get_mut(choice.variant)
    }

    fn number_of(&mut self, key: Key) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(key).or_insert(next)
    }

    fn is_deep(&self) -> bool {
        self.run.inside.len() >= SOFT_DEPTH
    }
}
