//! The plan of one training step: which micro-batch a stage takes forwards or backwards next.

use serde::{Deserialize, Serialize};

/// How forward and backward passes of the micro-batches take turns.
///
/// Both fill and drain the pipeline once a step, so both idle for `(S - 1) / (M + S - 1)` of the time
/// with S equal stages and M micro-batches. They differ in what a stage must remember meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Schedule {
    /// All forwards, then all backwards. A stage remembers the activations of all M micro-batches.
    Gpipe,
    /// As soon as the first gradient is due, one backward after each forward. Stage k remembers the
    /// activations of at most S - k micro-batches.
    OneForwardOneBackward,
}

/// One operation of a stage; the number is that of the micro-batch, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Through the layers, upwards.
    Forward(usize),
    /// Back through them.
    Backward(usize),
}

/// What stage `stage` (from 0) of `stages` does in a step of `micro_batches`, in this order.
///
/// Backwards go in the order of the micro-batches in both schedules, so the gradients are summed in
/// the same order everywhere and equal seeds give equal parameters, bit by bit.
pub fn schedule(kind: Schedule, stage: usize, stages: usize, micro_batches: usize) -> Vec<Op> {
    let ahead = match kind {
        Schedule::Gpipe => micro_batches,
        // How many micro-batches enter the pipeline behind the first before its gradient is back.
        Schedule::OneForwardOneBackward => stages.saturating_sub(stage + 1).min(micro_batches),
    };
    let mut plan = Vec::with_capacity(2 * micro_batches);
    plan.extend((0..ahead).map(Op::Forward));
    for forward in ahead..micro_batches {
        plan.push(Op::Forward(forward));
        plan.push(Op::Backward(forward - ahead));
    }
    plan.extend((micro_batches - ahead..micro_batches).map(Op::Backward));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const KINDS: [Schedule; 2] = [Schedule::Gpipe, Schedule::OneForwardOneBackward];

    fn every_size(mut check: impl FnMut(Schedule, usize, usize)) {
        for kind in KINDS {
            for stages in 1..=6 {
                for micro_batches in 1..=12 {
                    check(kind, stages, micro_batches);
                }
            }
        }
    }

    fn peak(plan: &[Op]) -> usize {
        let (mut now, mut most) = (0usize, 0);
        for op in plan {
            match op {
                Op::Forward(_) => now += 1,
                Op::Backward(_) => now -= 1,
            }
            most = most.max(now);
        }
        most
    }

    #[test]
    fn each_micro_batch_goes_once_up_and_then_once_down_in_order() {
        every_size(|kind, stages, m| {
            for stage in 0..stages {
                let plan = schedule(kind, stage, stages, m);
                let up: Vec<_> = plan
                    .iter()
                    .filter_map(|op| if let Op::Forward(i) = op { Some(*i) } else { None })
                    .collect();
                let down: Vec<_> = plan
                    .iter()
                    .filter_map(|op| if let Op::Backward(i) = op { Some(*i) } else { None })
                    .collect();
                assert_eq!(up, (0..m).collect::<Vec<_>>());
                assert_eq!(down, up);
                let mut forwarded = BTreeSet::new();
                for op in plan {
                    match op {
                        Op::Forward(i) => assert!(forwarded.insert(i)),
                        Op::Backward(i) => assert!(forwarded.contains(&i)),
                    }
                }
            }
        });
    }

    #[test]
    fn gpipe_remembers_all_and_1f1b_no_more_than_the_stages_above() {
        every_size(|kind, stages, m| {
            for stage in 0..stages {
                let expected = match kind {
                    Schedule::Gpipe => m,
                    Schedule::OneForwardOneBackward => m.min(stages - stage),
                };
                assert_eq!(peak(&schedule(kind, stage, stages, m)), expected);
            }
        });
    }

    /// Runs all plans in lockstep, one operation a tick, each as soon as its input is there.
    fn ticks(kind: Schedule, stages: usize, m: usize) -> usize {
        let plans: Vec<_> = (0..stages).map(|stage| schedule(kind, stage, stages, m)).collect();
        let mut done: Vec<BTreeSet<Op>> = vec![BTreeSet::new(); stages];
        for tick in 1.. {
            let before = done.clone();
            for stage in 0..stages {
                let Some(&op) = plans[stage].get(done[stage].len()) else { continue };
                let ready = match op {
                    Op::Forward(_) => stage == 0 || before[stage - 1].contains(&op),
                    Op::Backward(_) => stage + 1 == stages || before[stage + 1].contains(&op),
                };
                if ready {
                    done[stage].insert(op);
                }
            }
            assert_ne!(done, before, "{kind:?}, {stages} stages, {m} micro-batches: nobody can go on");
            if done.iter().all(|done| done.len() == 2 * m) {
                return tick;
            }
        }
        unreachable!()
    }

    #[test]
    fn nobody_waits_for_ever_and_the_bubble_is_the_predicted_one() {
        every_size(|kind, stages, m| assert_eq!(ticks(kind, stages, m), 2 * (m + stages - 1)));
    }
}
