//! Whole pipelines in one loop, without actors.

use super::{Engine, EpochOutcome, Output, Slot, StageError, StageSpec, Turn};
use crate::{
    nn::mlp,
    pipeline::{Schedule, split},
    random::SplitMix64,
};
use ndarray::{Array2, ArrayD};

const KINDS: [Schedule; 2] = [Schedule::Gpipe, Schedule::OneForwardOneBackward];

fn pipeline(kind: Schedule, stages: usize, micro_batches: usize) -> Vec<Engine> {
    let parts = split(&mlp(6, 8, 3, 4, 9), stages);
    let mut engines: Vec<Engine> = parts
        .into_iter()
        .enumerate()
        .map(|(stage, layers)| {
            let spec = StageSpec {
                stage,
                stages,
                layers,
                rows: 50,
                batch: 16,
                micro_batches,
                schedule: kind,
                learning_rate: 0.1,
                momentum: 0.5,
            };
            Engine::new(spec).unwrap()
        })
        .collect();
    let mut random = SplitMix64::new(4);
    let labels: Vec<u8> = (0..50).map(|_| random.below(3) as u8).collect();
    let inputs = Array2::from_shape_fn((50, 6), |(row, column)| {
        random.next_f32() + if usize::from(labels[row]) == column { 1.0 } else { 0.0 }
    });
    engines[0].load_inputs(inputs.clone(), inputs).unwrap();
    engines[stages - 1].load_labels(labels.clone(), labels).unwrap();
    engines
}

/// One epoch; `order` decides who has a turn next, as the network would.
fn epoch(engines: &mut [Engine], epoch: u32, mut order: impl FnMut(usize) -> usize) -> Vec<EpochOutcome> {
    let stages = engines.len();
    engines.iter_mut().for_each(|engine| engine.begin(epoch, 1).unwrap());
    let mut outcomes = vec![None; stages];
    let mut idle = 0;
    while outcomes.iter().any(Option::is_none) {
        let at = order(stages);
        idle += 1;
        assert!(idle < 10_000, "nobody can go on");
        let Turn::Ran { output, finished, .. } = engines[at].advance().unwrap() else { continue };
        idle = 0;
        match output {
            Some(Output::Activation(slot, data)) => engines[at + 1].accept_activation(slot, data).unwrap(),
            Some(Output::Gradient(slot, data)) => engines[at - 1].accept_gradient(slot, data).unwrap(),
            None => {}
        }
        if finished.is_some() {
            outcomes[at] = finished;
        }
    }
    outcomes.into_iter().flatten().collect()
}

fn round_robin() -> impl FnMut(usize) -> usize {
    let mut turn = 0;
    move |stages| {
        turn += 1;
        turn % stages
    }
}

fn parameters(engines: &[Engine]) -> Vec<ArrayD<f32>> {
    engines.iter().flat_map(Engine::parameters).collect()
}

#[test]
fn every_split_schedule_and_order_of_turns_gives_the_same_parameters() {
    let mut reference = pipeline(Schedule::Gpipe, 1, 4);
    let losses: Vec<_> = (1..=3).map(|n| epoch(&mut reference, n, round_robin())[0].loss).collect();
    for kind in KINDS {
        for stages in 1..=4 {
            for seed in 0..3 {
                let mut engines = pipeline(kind, stages, 4);
                let mut random = SplitMix64::new(seed);
                for n in 1..=3 {
                    let outcomes = epoch(&mut engines, n, |stages| random.below(stages));
                    assert_eq!(outcomes[stages - 1].loss, losses[n as usize - 1]);
                    assert!(outcomes[..stages - 1].iter().all(|outcome| outcome.loss.is_none()));
                }
                assert_eq!(parameters(&engines), parameters(&reference), "{kind:?}, {stages} stages");
            }
        }
    }
}

#[test]
fn the_peak_is_what_the_schedule_promises() {
    for (kind, expected) in KINDS.into_iter().zip([vec![8, 8, 8], vec![3, 2, 1]]) {
        let outcomes = epoch(&mut pipeline(kind, 3, 8), 1, round_robin());
        assert_eq!(outcomes.iter().map(|outcome| outcome.peak_in_flight).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn training_lowers_the_loss_and_finds_the_labels() {
    let mut engines = pipeline(Schedule::OneForwardOneBackward, 2, 4);
    let losses: Vec<f64> = (1..=30).filter_map(|n| epoch(&mut engines, n, round_robin())[1].loss).collect();
    assert!(losses[29] < losses[0] / 2.0, "{losses:?}");
    let test = engines[0].test_inputs().unwrap().clone();
    let hidden = engines[0].infer(test).unwrap();
    let score = engines[1].score(&engines[1].infer(hidden).unwrap()).unwrap();
    assert!(score.correct >= 45 && score.rows == 50, "{score:?}");
}

#[test]
fn strangers_are_refused() {
    let mut engines = pipeline(Schedule::Gpipe, 2, 2);
    let data = || Array2::<f32>::zeros((8, 8));
    let slot = |epoch, step, micro| Slot { epoch, step, micro };
    let top = &mut engines[1];
    assert!(matches!(
        top.accept_activation(slot(1, 0, 0), Array2::zeros((8, 7))),
        Err(StageError::Shape { .. })
    ));
    assert!(matches!(
        top.accept_gradient(slot(1, 0, 0), Array2::zeros((8, 3))),
        Err(StageError::Unexpected(_))
    ));
    top.accept_activation(slot(1, 0, 0), data()).unwrap();
    assert!(matches!(top.accept_activation(slot(1, 0, 0), data()), Err(StageError::Unexpected(_))), "twice");
    for micro in 1..4 {
        top.accept_activation(slot(1, 0, micro), data()).unwrap();
    }
    assert!(
        matches!(top.accept_activation(slot(1, 0, 9), data()), Err(StageError::Unexpected(_))),
        "too many"
    );
    top.begin(2, 1).unwrap();
    assert!(matches!(top.accept_activation(slot(1, 0, 5), data()), Err(StageError::Unexpected(_))), "late");
    assert_eq!(top.begin(3, 1), Err(StageError::Busy));
}

#[test]
fn a_micro_batch_of_the_wrong_size_is_an_error_and_not_a_panic() {
    let mut engines = pipeline(Schedule::Gpipe, 2, 2);
    engines[1].begin(1, 1).unwrap();
    engines[1].accept_activation(Slot { epoch: 1, step: 0, micro: 0 }, Array2::zeros((3, 8))).unwrap();
    assert!(matches!(engines[1].advance(), Err(StageError::Shape { .. })));
}

#[test]
fn data_must_be_loaded_and_fit() {
    let spec = pipeline(Schedule::Gpipe, 1, 2)[0].spec().clone();
    let mut engine = Engine::new(spec).unwrap();
    assert!(matches!(engine.begin(1, 1), Err(StageError::NotLoaded(_))));
    assert!(matches!(
        engine.load_inputs(Array2::zeros((49, 6)), Array2::zeros((1, 6))),
        Err(StageError::Shape { .. })
    ));
    assert!(matches!(
        engine.load_inputs(Array2::zeros((50, 6)), Array2::zeros((1, 5))),
        Err(StageError::Shape { .. })
    ));
    assert!(matches!(engine.load_labels(vec![0; 3], vec![]), Err(StageError::Shape { .. })));
    assert_eq!(engine.advance(), Ok(Turn::Waiting));
}
