//! The fully connected layer.

use super::{Layer, Parameter};
use crate::random::SplitMix64;
use ndarray::{Array1, Array2, ArrayD, Axis};
use std::collections::BTreeMap;

/// Initial weights of the dense layer `index` of the run `seed`: uniform in `±sqrt(6 / inputs)`, which
/// keeps the variance of activations through a ReLU (He and others, 2015). Row by row, so the shape is
/// `(inputs, outputs)`. Only exact arithmetic and one square root: equal seeds are equal everywhere.
pub fn init_dense(inputs: usize, outputs: usize, seed: u64, index: u64) -> Array2<f32> {
    let mut random = SplitMix64::stream(seed, index);
    let bound = (6.0 / inputs.max(1) as f32).sqrt();
    Array2::from_shape_simple_fn((inputs, outputs), || (2.0 * random.next_f32() - 1.0) * bound)
}

/// `y = x W + b` for rows `x`.
pub struct Dense {
    weight: Array2<f32>,
    bias: Array1<f32>,
    weight_gradient: Array2<f32>,
    bias_gradient: Array1<f32>,
    /// The inputs of the micro-batches under way: the gradient of `W` is `x^T g`.
    inputs: BTreeMap<usize, Array2<f32>>,
}

impl Dense {
    /// A layer with these weights, shaped `(inputs, outputs)`, and a bias of zero.
    pub fn new(weight: Array2<f32>) -> Self {
        let (inputs, outputs) = weight.dim();
        Self {
            // The optimiser walks over flat slices, so the layout must be the standard one.
            weight: weight.as_standard_layout().into_owned(),
            bias: Array1::zeros(outputs),
            weight_gradient: Array2::zeros((inputs, outputs)),
            bias_gradient: Array1::zeros(outputs),
            inputs: BTreeMap::new(),
        }
    }
}

impl Layer for Dense {
    fn forward(&mut self, micro: usize, input: Array2<f32>) -> Array2<f32> {
        let output = input.dot(&self.weight) + &self.bias;
        self.inputs.insert(micro, input);
        output
    }

    fn backward(&mut self, micro: usize, gradient: Array2<f32>) -> Array2<f32> {
        if let Some(input) = self.inputs.remove(&micro) {
            self.weight_gradient += &input.t().dot(&gradient);
            self.bias_gradient += &gradient.sum_axis(Axis(0));
        }
        gradient.dot(&self.weight.t())
    }

    fn infer(&self, input: Array2<f32>) -> Array2<f32> {
        input.dot(&self.weight) + &self.bias
    }

    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        let weight = self.weight.as_slice_mut().zip(self.weight_gradient.as_slice_mut());
        let bias = self.bias.as_slice_mut().zip(self.bias_gradient.as_slice_mut());
        // Always both: the four arrays are made in standard layout and never replaced.
        [weight, bias].into_iter().flatten().map(|(value, gradient)| Parameter { value, gradient }).collect()
    }

    fn snapshot(&self) -> Vec<ArrayD<f32>> {
        vec![self.weight.clone().into_dyn(), self.bias.clone().into_dyn()]
    }

    fn reset(&mut self) {
        self.inputs.clear();
        self.weight_gradient.fill(0.0);
        self.bias_gradient.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn computes_rows_times_weights_plus_bias() {
        let mut dense = Dense::new(array![[1.0, 2.0], [3.0, 4.0]]);
        dense.parameters()[1].value.copy_from_slice(&[10.0, 20.0]);
        assert_eq!(dense.forward(0, array![[1.0, 1.0]]), array![[14.0, 26.0]]);
        assert_eq!(dense.infer(array![[1.0, 1.0]]), array![[14.0, 26.0]]);
    }

    #[test]
    fn gradients_of_micro_batches_add_up_in_any_order() {
        let (a, b) = (array![[1.0, 0.0]], array![[0.0, 1.0]]);
        let mut dense = Dense::new(array![[1.0], [1.0]]);
        dense.forward(0, a);
        dense.forward(1, b);
        assert_eq!(dense.backward(1, array![[2.0]]), array![[2.0, 2.0]]);
        dense.backward(0, array![[3.0]]);
        let parameters = dense.parameters();
        assert_eq!(parameters[0].gradient, [3.0, 2.0]);
        assert_eq!(parameters[1].gradient, [5.0]);
    }

    #[test]
    fn initial_weights_depend_on_seed_and_index_and_stay_in_bounds() {
        let weight = init_dense(24, 10, 1, 0);
        assert_eq!(weight, init_dense(24, 10, 1, 0));
        assert_ne!(weight, init_dense(24, 10, 2, 0));
        assert_ne!(weight, init_dense(24, 10, 1, 1));
        assert!(weight.iter().all(|w| w.abs() <= 0.5));
    }
}
