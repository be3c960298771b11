//! What a stage is told at its creation.

use super::{Schedule, StageError};
use crate::nn::LayerSpec;
use serde::{Deserialize, Serialize};

/// Refuse stages above this many parameters (1 GiB of `f32`): the description comes from another
/// process, and a slip there must not make this one allocate without end.
const MOST_PARAMETERS: usize = 1 << 28;
/// Likewise for rows and micro-batches.
const MOST_ROWS: usize = 1 << 28;

/// One stage of a pipeline: its place, its layers and the plan that all stages share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Which stage, from 0.
    pub stage: usize,
    /// How many stages there are.
    pub stages: usize,
    /// This stage's layers, from the bottom up; the width of each is that of the next.
    pub layers: Vec<LayerSpec>,
    /// Rows of the training set. Every stage counts the steps of an epoch by it.
    pub rows: usize,
    /// Rows of a batch: one step of the optimiser. The last batch of an epoch may be smaller.
    pub batch: usize,
    /// Into how many parts a batch is cut; a batch of fewer rows is cut into rows.
    pub micro_batches: usize,
    /// How forwards and backwards take turns.
    pub schedule: Schedule,
    /// Step width of the optimiser.
    pub learning_rate: f32,
    /// Share of the last step that goes on; 0 for plain gradient descent.
    pub momentum: f32,
}

impl StageSpec {
    /// Whether a stage can be built from this; the error says what is wrong.
    pub fn check(&self) -> Result<(), StageError> {
        let wrong = |what: String| Err(StageError::Spec(what));
        if self.stage >= self.stages {
            return wrong(format!("stage {} of {}", self.stage, self.stages));
        }
        if self.layers.is_empty() {
            return wrong("it has no layers; use fewer stages".into());
        }
        if let Some(pair) = self.layers.windows(2).find(|pair| pair[0].outputs() != pair[1].inputs()) {
            return wrong(format!("{:?} does not fit on {:?}", pair[1], pair[0]));
        }
        if self.layers.iter().any(|layer| layer.inputs() == 0 || layer.outputs() == 0) {
            return wrong("a layer has no width".into());
        }
        let parameters =
            self.layers.iter().try_fold(0usize, |sum, layer| sum.checked_add(layer.parameters()?));
        if parameters.is_none_or(|parameters| parameters > MOST_PARAMETERS) {
            return wrong(format!("more than {MOST_PARAMETERS} parameters"));
        }
        if self.rows == 0 || self.batch == 0 || self.micro_batches == 0 {
            return wrong("rows, batch and micro_batches must be at least 1".into());
        }
        if self.rows > MOST_ROWS || self.micro_batches > self.batch {
            return wrong("too many rows, or more micro-batches than rows in a batch".into());
        }
        Ok(())
    }

    /// Width of a row that comes in.
    pub fn inputs(&self) -> usize {
        self.layers.first().map_or(0, LayerSpec::inputs)
    }

    /// Width of a row that goes out.
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(0, LayerSpec::outputs)
    }

    /// Whether this is the stage that gets the inputs.
    pub fn is_first(&self) -> bool {
        self.stage == 0
    }

    /// Whether this is the stage that gets the labels.
    pub fn is_last(&self) -> bool {
        self.stage + 1 == self.stages
    }
}

/// Cuts a network into `stages` parts of as equal a number of dense layers as possible; an activation
/// function stays with the dense layer below it. Some parts are empty when there are more stages than
/// dense layers.
pub fn split(layers: &[LayerSpec], stages: usize) -> Vec<Vec<LayerSpec>> {
    let dense = layers.iter().filter(|layer| matches!(layer, LayerSpec::Dense { .. })).count().max(1);
    let mut parts = vec![Vec::new(); stages];
    let mut seen = 0usize;
    for layer in layers {
        if matches!(layer, LayerSpec::Dense { .. }) {
            seen += 1;
        }
        if let Some(part) = parts.get_mut(seen.saturating_sub(1) * stages / dense) {
            part.push(layer.clone());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp;

    #[test]
    fn a_split_network_is_the_network_in_order() {
        for dense in 1..=9 {
            for stages in 1..=dense {
                let layers = mlp(8, 4, 2, dense, 0);
                let parts = split(&layers, stages);
                assert_eq!(parts.len(), stages);
                assert_eq!(parts.concat(), layers);
                let counts: Vec<_> = parts
                    .iter()
                    .map(|part| part.iter().filter(|l| matches!(l, LayerSpec::Dense { .. })).count())
                    .collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(*least >= 1 && most - least <= 1, "{dense} layers, {stages} stages: {counts:?}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let good = StageSpec {
            stage: 0,
            stages: 1,
            layers: mlp(4, 4, 2, 2, 0),
            rows: 10,
            batch: 4,
            micro_batches: 2,
            schedule: Schedule::Gpipe,
            learning_rate: 0.1,
            momentum: 0.9,
        };
        assert_eq!(good.check(), Ok(()));
        let bad = [
            StageSpec { stage: 1, ..good.clone() },
            StageSpec { layers: vec![], ..good.clone() },
            StageSpec { layers: vec![LayerSpec::Relu { width: 0 }], ..good.clone() },
            StageSpec { layers: [mlp(4, 4, 2, 1, 0), mlp(4, 4, 2, 1, 0)].concat(), ..good.clone() },
            StageSpec { layers: mlp(usize::MAX, 4, 2, 1, 0), ..good.clone() },
            StageSpec { rows: 0, ..good.clone() },
            StageSpec { micro_batches: 5, ..good.clone() },
        ];
        for spec in bad {
            assert!(matches!(spec.check(), Err(StageError::Spec(_))), "{spec:?}");
        }
    }
}
