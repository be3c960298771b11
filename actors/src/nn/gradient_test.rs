//! Every derivative in this module against finite differences.

use super::*;
use crate::random::SplitMix64;

const LABELS: [u8; 3] = [0, 2, 1];
/// Small, because a rectifier that passes zero within a step has no single slope there; large enough for `f32`.
const STEP: f32 = 1e-3;

fn layers() -> Vec<Box<dyn Layer>> {
    mlp(4, 6, 3, 3, 11).iter().map(LayerSpec::build).collect()
}

fn input() -> Array2<f32> {
    let mut random = SplitMix64::new(5);
    Array2::from_shape_simple_fn((3, 4), || random.next_f32() - 0.3)
}

fn loss(layers: &[Box<dyn Layer>], input: &Array2<f32>) -> f64 {
    let logits = layers.iter().fold(input.clone(), |x, layer| layer.infer(x));
    softmax_cross_entropy(logits, &LABELS, LABELS.len()).sum / LABELS.len() as f64
}

/// Runs one forward and backward pass; returns the gradient with respect to the input.
fn backpropagate(layers: &mut [Box<dyn Layer>], input: &Array2<f32>) -> Array2<f32> {
    let logits = layers.iter_mut().fold(input.clone(), |x, layer| layer.forward(0, x));
    let top = softmax_cross_entropy(logits, &LABELS, LABELS.len()).gradient;
    layers.iter_mut().rev().fold(top, |g, layer| layer.backward(0, g))
}

fn assert_close(exact: f32, low: f64, high: f64, what: &str) {
    let estimate = (high - low) / (2.0 * f64::from(STEP));
    assert!((f64::from(exact) - estimate).abs() < 2e-3, "{what}: {exact} but the slope is {estimate}");
}

#[test]
fn parameter_gradients_are_slopes_of_the_loss() {
    let (mut layers, input) = (layers(), input());
    backpropagate(&mut layers, &input);
    for l in 0..layers.len() {
        for p in 0..layers[l].parameters().len() {
            for i in 0..layers[l].parameters()[p].value.len() {
                let (w, exact) = {
                    let parameters = layers[l].parameters();
                    (parameters[p].value[i], parameters[p].gradient[i])
                };
                let mut at = |x: f32| {
                    layers[l].parameters()[p].value[i] = x;
                    loss(&layers, &input)
                };
                let (low, high) = (at(w - STEP), at(w + STEP));
                at(w);
                assert_close(exact, low, high, &format!("layer {l}, parameter {p}, element {i}"));
            }
        }
    }
}

#[test]
fn the_input_gradient_is_the_slope_too() {
    let (mut layers, input) = (layers(), input());
    let gradient = backpropagate(&mut layers, &input);
    for ((row, column), &exact) in gradient.indexed_iter() {
        let at = |delta: f32| {
            let mut moved = input.clone();
            moved[[row, column]] += delta;
            loss(&layers, &moved)
        };
        assert_close(exact, at(-STEP), at(STEP), &format!("input {row}, {column}"));
    }
}

#[test]
fn micro_batches_add_up_to_the_whole_batch() {
    let (mut whole, mut parts, input) = (layers(), layers(), input());
    backpropagate(&mut whole, &input);
    for (micro, rows) in [0..1, 1..3].into_iter().enumerate() {
        let x = input.slice(ndarray::s![rows.clone(), ..]).to_owned();
        let logits = parts.iter_mut().fold(x, |x, layer| layer.forward(micro, x));
        let top = softmax_cross_entropy(logits, &LABELS[rows], LABELS.len()).gradient;
        parts.iter_mut().rev().fold(top, |g, layer| layer.backward(micro, g));
    }
    for (a, b) in whole.iter_mut().zip(&mut parts) {
        for (a, b) in a.parameters().iter().zip(b.parameters()) {
            assert!(a.gradient.iter().zip(b.gradient.iter()).all(|(x, y)| (x - y).abs() < 1e-6));
        }
    }
}

#[test]
fn reset_forgets_what_was_under_way() {
    let (mut layers, input) = (layers(), input());
    backpropagate(&mut layers, &input);
    layers.iter_mut().for_each(|layer| layer.reset());
    assert!(layers.iter_mut().flat_map(|l| l.parameters()).all(|p| p.gradient.iter().all(|g| *g == 0.0)));
}

#[test]
fn a_perceptron_has_a_rectifier_between_each_two_dense_layers() {
    let layers = mlp(64, 32, 10, 3, 0);
    assert_eq!(layers.len(), 5);
    assert!(layers.windows(2).all(|pair| pair[0].outputs() == pair[1].inputs()));
    assert_eq!((layers[0].inputs(), layers[4].outputs()), (64, 10));
    assert_eq!(mlp(64, 32, 10, 0, 0).len(), 1, "never without a layer");
}
