//! The models as stateright sees them.

use super::actions::Action;
use super::setup::{Hit, Setup};
use super::world::World;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest search of one model.
const LIMIT: Duration = Duration::from_secs(900);

/// What the search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub name: &'static str,
    pub unique_states: usize,
    pub depth: usize,
    /// Whether everything was searched.
    pub exhausted: bool,
    /// The first violation, and the steps to it.
    pub violation: Option<(String, Vec<Action>)>,
    /// The latest time on any clock.
    pub ticks: u64,
    pub hits: Vec<&'static str>,
    pub missed: Vec<&'static str>,
}

impl Outcome {
    /// A search that was cut short shows nothing: what it did not come to may be the violation.
    pub fn holds(&self) -> bool {
        self.violation.is_none() && self.exhausted
    }
}

/// A setup, with the situations that it must meet.
#[derive(Clone)]
struct Checked {
    setup: Setup,
}

const SAFE: &str = "invariants";
const CLEAN: &str = "quiescent means clean";

impl Model for Checked {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.setup.world()]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.setup));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut next = last.clone();
        next.step(&self.setup, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(SAFE, |_, world: &World| world.bad.is_none()),
            Property::always(CLEAN, |model: &Checked, world: &World| {
                world.bad.is_some() || !world.actions(&model.setup).is_empty() || world.is_clean().is_ok()
            }),
        ];
        fn hit<const N: usize>(model: &Checked, _: &World) -> bool {
            model.setup.has_hit(Hit::ALL[N].0)
        }
        let conditions: [fn(&Checked, &World) -> bool; 17] = [
            hit::<0>, hit::<1>, hit::<2>, hit::<3>, hit::<4>, hit::<5>, hit::<6>, hit::<7>, hit::<8>,
            hit::<9>, hit::<10>, hit::<11>, hit::<12>, hit::<13>, hit::<14>, hit::<15>, hit::<16>,
        ];
        all.extend(
            Hit::ALL
                .iter()
                .zip(conditions)
                .map(|((_, name), condition)| Property::sometimes(name, condition)),
        );
        all
    }
}

/// Searches a model, at most so many states, and stops at the first violation.
pub fn check(setup: &Setup, must_hit: &[Hit], most: usize, threads: usize) -> Outcome {
    let setup = setup.fresh();
    let begun = Instant::now();
    let checker = Checked { setup: setup.clone() }
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(most)
        .timeout(LIMIT)
        .spawn_bfs()
        .join();
    let violation = [SAFE, CLEAN].iter().find_map(|name| {
        let path = checker.discovery(name)?;
        let last = path.last_state().clone();
        let why = last.bad.clone().or_else(|| last.is_clean().err()).unwrap_or_default();
        Some((why, path.into_actions()))
    });
    let name = |hit: &Hit| Hit::ALL[*hit as usize].1;
    Outcome {
        name: setup.name,
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        // At its time limit the checker says that it is done.
        exhausted: checker.is_done() && begun.elapsed() < LIMIT && checker.state_count() < most,
        violation,
        ticks: setup.latest.load(Ordering::Relaxed),
        hits: Hit::ALL.iter().filter(|(hit, _)| setup.has_hit(*hit)).map(|(_, name)| *name).collect(),
        missed: must_hit.iter().filter(|hit| !setup.has_hit(**hit)).map(name).collect(),
    }
}
