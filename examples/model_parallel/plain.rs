//! The same training without stages, layers or pipeline: one loop over raw arrays. It shares the data,
//! the initial weights and the order of the rows with the pipeline, and no code that computes.

use crate::data::Data;
use ndarray::{Array1, Array2, ArrayD, Axis};
use rref_actors::{nn::init_dense, random::shuffled};

/// The most by which any parameter may differ from the pipeline's.
pub const TOLERANCE: f32 = 1e-4;

/// What to train, and how.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Of the input, of each hidden layer and of the output.
    pub widths: Vec<usize>,
    /// Of the weights and of the order of the rows.
    pub seed: u64,
    /// Passes over the data.
    pub epochs: u32,
    /// Rows of a batch.
    pub batch: usize,
    /// Parts of a batch whose gradients are summed one after the other, as the pipeline does.
    pub micro_batches: usize,
    /// Step width.
    pub learning_rate: f32,
    /// Share of the last step that goes on.
    pub momentum: f32,
}

/// What came of it.
pub struct Reference {
    /// Weights and bias of each layer, bottom first.
    pub parameters: Vec<ArrayD<f32>>,
    /// Mean loss per row, by epoch.
    #[cfg_attr(not(test), expect(dead_code, reason = "the run compares parameters; the tests losses too"))]
    pub losses: Vec<f64>,
}

/// Trains a multilayer perceptron with ReLU between the layers and softmax cross-entropy on top.
pub fn train(recipe: &Recipe, data: &Data) -> Reference {
    let depth = recipe.widths.len() - 1;
    let mut weights: Vec<Array2<f32>> = (0..depth)
        .map(|l| init_dense(recipe.widths[l], recipe.widths[l + 1], recipe.seed, l as u64))
        .collect();
    let mut biases: Vec<Array1<f32>> = weights.iter().map(|w| Array1::zeros(w.ncols())).collect();
    let mut weight_velocities: Vec<_> = weights.iter().map(|w| Array2::<f32>::zeros(w.dim())).collect();
    let mut bias_velocities: Vec<_> = biases.iter().map(|b| Array1::<f32>::zeros(b.len())).collect();
    let mut losses = Vec::new();

    for epoch in 1..=recipe.epochs {
        let order = shuffled(data.train_labels.len(), recipe.seed, epoch);
        let mut loss = 0.0;
        for batch in order.chunks(recipe.batch) {
            let mut weight_gradients: Vec<_> =
                weights.iter().map(|w| Array2::<f32>::zeros(w.dim())).collect();
            let mut bias_gradients: Vec<_> = biases.iter().map(|b| Array1::<f32>::zeros(b.len())).collect();
            let parts = recipe.micro_batches.min(batch.len());
            for part in 0..parts {
                let rows = &batch[part * batch.len() / parts..(part + 1) * batch.len() / parts];

                // activations[l] is what layer l gets; the last one is the logits.
                let mut activations = vec![data.train_inputs.select(Axis(0), rows)];
                for l in 0..depth {
                    let mut y = activations[l].dot(&weights[l]) + &biases[l];
                    if l + 1 < depth {
                        y.mapv_inplace(|v| if v > 0.0 { v } else { 0.0 });
                    }
                    activations.push(y);
                }

                let mut gradient = activations[depth].clone();
                for (mut row, &at) in gradient.rows_mut().into_iter().zip(rows) {
                    let label = usize::from(data.train_labels[at]);
                    let top = row.fold(f32::NEG_INFINITY, |a, &b| a.max(b));
                    row.mapv_inplace(|v| (v - top).exp());
                    let total = row.iter().sum::<f32>();
                    row.mapv_inplace(|v| v / total);
                    loss -= f64::from(row[label].max(f32::MIN_POSITIVE)).ln();
                    row[label] -= 1.0;
                    row.mapv_inplace(|v| v * (1.0 / batch.len() as f32));
                }

                for l in (0..depth).rev() {
                    weight_gradients[l] += &activations[l].t().dot(&gradient);
                    bias_gradients[l] += &gradient.sum_axis(Axis(0));
                    if l > 0 {
                        gradient = gradient.dot(&weights[l].t());
                        gradient.zip_mut_with(&activations[l], |g, &y| *g = if y > 0.0 { *g } else { 0.0 });
                    }
                }
            }
            for l in 0..depth {
                weight_velocities[l] = &weight_velocities[l] * recipe.momentum + &weight_gradients[l];
                weights[l].scaled_add(-recipe.learning_rate, &weight_velocities[l]);
                bias_velocities[l] = &bias_velocities[l] * recipe.momentum + &bias_gradients[l];
                biases[l].scaled_add(-recipe.learning_rate, &bias_velocities[l]);
            }
        }
        losses.push(loss / data.train_labels.len() as f64);
    }
    let parameters =
        weights.into_iter().zip(biases).flat_map(|(w, b)| [w.into_dyn(), b.into_dyn()]).collect();
    Reference { parameters, losses }
}

/// The largest difference between two lists of parameters, element by element; infinite when they do
/// not have the same shapes or one is not a number.
pub fn largest_difference(ours: &[ArrayD<f32>], theirs: &[ArrayD<f32>]) -> f32 {
    if ours.len() != theirs.len() || ours.iter().zip(theirs).any(|(a, b)| a.shape() != b.shape()) {
        return f32::INFINITY;
    }
    let elements = ours.iter().zip(theirs).flat_map(|(a, b)| a.iter().zip(b));
    elements
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, d| if d.is_nan() { f32::INFINITY } else { most.max(d) })
}

/// Whether a [`largest_difference`] is small enough to call both trainings the same.
pub fn agrees(difference: f32) -> bool {
    difference <= TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser;
    use rref_actors::pipeline::{Engine, Output, Turn};

    fn options(arguments: &[&str]) -> Options {
        let small =
            ["model_parallel", "--epochs", "3", "--hidden", "24", "--batch", "100", "--micro-batches", "7"];
        Options::parse_from(small.iter().chain(arguments))
    }

    /// The pipeline's training in one loop, without processes: its parameters and losses.
    fn pipelined(options: &Options, data: &Data) -> (Vec<ArrayD<f32>>, Vec<f64>) {
        let mut engines: Vec<Engine> =
            options.stages(data).into_iter().map(|spec| Engine::new(spec).unwrap()).collect();
        let last = engines.len() - 1;
        engines[0].load_inputs(data.train_inputs.clone(), data.test_inputs.clone()).unwrap();
        engines[last].load_labels(data.train_labels.clone(), data.test_labels.clone()).unwrap();
        let mut losses = Vec::new();
        for epoch in 1..=options.epochs {
            engines.iter_mut().for_each(|engine| engine.begin(epoch, options.seed).unwrap());
            let mut running = engines.len();
            while running > 0 {
                for k in 0..=last {
                    let Turn::Ran { output, finished, .. } = engines[k].advance().unwrap() else { continue };
                    match output {
                        Some(Output::Activation(slot, x)) => {
                            engines[k + 1].accept_activation(slot, x).unwrap()
                        }
                        Some(Output::Gradient(slot, g)) => engines[k - 1].accept_gradient(slot, g).unwrap(),
                        None => {}
                    }
                    if let Some(outcome) = finished {
                        running -= 1;
                        losses.extend(outcome.loss);
                    }
                }
            }
        }
        (engines.iter().flat_map(Engine::parameters).collect(), losses)
    }

    #[test]
    fn the_pipeline_and_the_plain_loop_agree_until_one_weight_is_shifted() {
        let data = Data::load();
        for arguments in [["--stages", "1"], ["--stages", "2"], ["--stages", "4"], ["--schedule", "gpipe"]] {
            let options = options(&arguments);
            let (mut ours, losses) = pipelined(&options, &data);
            let reference = train(&options.recipe(&data), &data);
            let difference = largest_difference(&ours, &reference.parameters);
            assert!(agrees(difference), "{arguments:?}: {difference}");
            assert!(losses.iter().zip(&reference.losses).all(|(a, b)| (a - b).abs() < 1e-6));

            *ours[2].iter_mut().next().unwrap() += 1e-3;
            let difference = largest_difference(&ours, &reference.parameters);
            assert!(!agrees(difference), "a shift of 1e-3 must not pass: {difference}");
        }
    }

    #[test]
    fn other_shapes_and_nonsense_never_agree() {
        let a = vec![ArrayD::<f32>::zeros(vec![2, 2])];
        assert!(agrees(largest_difference(&a, &a)));
        assert!(!agrees(largest_difference(&a, &[])));
        assert!(!agrees(largest_difference(&a, &[ArrayD::zeros(vec![4])])));
        assert!(!agrees(largest_difference(&a, &[ArrayD::from_elem(vec![2, 2], f32::NAN)])));
    }
}
