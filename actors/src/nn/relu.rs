//! The rectifier.

use super::{Layer, Parameter};
use ndarray::{Array2, ArrayD, Zip};
use std::collections::BTreeMap;

/// `y = max(x, 0)`, element by element. The gradient passes where `x > 0`.
#[derive(Debug, Default)]
pub struct Relu {
    /// The outputs of the micro-batches under way; where one is zero the gradient stops.
    outputs: BTreeMap<usize, Array2<f32>>,
}

impl Layer for Relu {
    fn forward(&mut self, micro: usize, input: Array2<f32>) -> Array2<f32> {
        let output = self.infer(input);
        self.outputs.insert(micro, output.clone());
        output
    }

    fn backward(&mut self, micro: usize, mut gradient: Array2<f32>) -> Array2<f32> {
        if let Some(output) = self.outputs.remove(&micro) {
            Zip::from(&mut gradient).and(&output).for_each(|g, &y| {
                if y <= 0.0 {
                    *g = 0.0;
                }
            });
        }
        gradient
    }

    fn infer(&self, mut input: Array2<f32>) -> Array2<f32> {
        input.mapv_inplace(|x| x.max(0.0));
        input
    }

    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        Vec::new()
    }

    fn snapshot(&self) -> Vec<ArrayD<f32>> {
        Vec::new()
    }

    fn reset(&mut self) {
        self.outputs.clear();
    }
}
