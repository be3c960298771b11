//! Stochastic gradient descent with momentum.

use super::Layer;
use serde::{Deserialize, Serialize};

/// `v = momentum * v + g; w = w - learning_rate * v` (Polyak's heavy ball, as PyTorch writes it).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    learning_rate: f32,
    momentum: f32,
    /// One array per parameter, in the order of the layers; made at the first step.
    velocity: Vec<Vec<f32>>,
}

impl Sgd {
    /// `momentum` of 0 is plain gradient descent.
    pub fn new(learning_rate: f32, momentum: f32) -> Self {
        Self { learning_rate, momentum, velocity: Vec::new() }
    }

    /// Changes the parameters of `layers` by their accumulated gradients and sets those to zero. Must be
    /// called with the same layers every time: the velocities are matched by position.
    pub fn step(&mut self, layers: &mut [Box<dyn Layer>]) {
        let parameters = layers.iter_mut().flat_map(|layer| layer.parameters());
        for (index, parameter) in parameters.enumerate() {
            if index == self.velocity.len() {
                self.velocity.push(vec![0.0; parameter.value.len()]);
            }
            let velocity = &mut self.velocity[index];
            for ((w, g), v) in parameter.value.iter_mut().zip(parameter.gradient).zip(velocity) {
                *v = self.momentum * *v + *g;
                *w -= self.learning_rate * *v;
                *g = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Dense;
    use ndarray::array;

    #[test]
    fn momentum_carries_on_without_a_gradient() {
        let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(Dense::new(array![[1.0f32]]))];
        let mut sgd = Sgd::new(0.5, 0.5);
        layers[0].parameters()[0].gradient[0] = 1.0;
        sgd.step(&mut layers);
        assert_eq!(layers[0].snapshot()[0], array![[0.5]].into_dyn(), "w = 1 - 0.5 * 1");
        assert_eq!(layers[0].parameters()[0].gradient[0], 0.0, "a gradient is used once");
        sgd.step(&mut layers);
        assert_eq!(layers[0].snapshot()[0], array![[0.25]].into_dyn(), "v = 0.5, w = 0.5 - 0.5 * 0.5");
    }

    #[test]
    fn finds_the_bottom_of_a_bowl() {
        let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(Dense::new(array![[4.0f32]]))];
        let mut sgd = Sgd::new(0.1, 0.9);
        for _ in 0..200 {
            let w = layers[0].snapshot()[0][[0, 0]];
            layers[0].parameters()[0].gradient[0] = w; // of w^2 / 2
            sgd.step(&mut layers);
        }
        assert!(layers[0].snapshot()[0][[0, 0]].abs() < 1e-2);
    }
}
