//! Layers, loss and optimiser of a feed-forward network, on two-dimensional `f32` arrays whose rows are
//! samples.
//!
//! Nothing here knows where a layer runs. What a layer must remember between the forward and the
//! backward pass it keeps per micro-batch, because a pipeline has several of them under way at once.
//! Shapes are the caller's duty: a layer given rows of the wrong width panics inside `ndarray`, so
//! [`crate::pipeline`] checks what arrives from other processes before it gets here.

mod dense;
mod loss;
mod relu;
mod sgd;

pub use dense::{Dense, init_dense};
pub use loss::{Loss, correct, softmax_cross_entropy};
pub use relu::Relu;
pub use sgd::Sgd;

use ndarray::{Array2, ArrayD};
use serde::{Deserialize, Serialize};

/// One layer of a network.
pub trait Layer: Send {
    /// Rows in, rows out. Remembers what [`Layer::backward`] of the same `micro` will need.
    fn forward(&mut self, micro: usize, input: Array2<f32>) -> Array2<f32>;

    /// Takes the gradient of the loss with respect to this layer's output, adds to the gradients of its
    /// parameters and returns the gradient with respect to its input. Forgets the micro-batch; one that
    /// was never forwarded counts as one of zero rows.
    fn backward(&mut self, micro: usize, gradient: Array2<f32>) -> Array2<f32>;

    /// Like `forward`, but remembers nothing: for evaluation.
    fn infer(&self, input: Array2<f32>) -> Array2<f32>;

    /// The parameters with their accumulated gradients, always in the same order.
    fn parameters(&mut self) -> Vec<Parameter<'_>>;

    /// Copies of the parameters, in the order of [`Layer::parameters`].
    fn snapshot(&self) -> Vec<ArrayD<f32>>;

    /// Forgets every micro-batch under way and sets the accumulated gradients to zero.
    fn reset(&mut self);
}

/// A parameter array and the gradient that has been accumulated for it, both flat and of equal length.
pub struct Parameter<'a> {
    /// What the optimiser changes.
    pub value: &'a mut [f32],
    /// The sum over the micro-batches so far. The optimiser sets it to zero after use.
    pub gradient: &'a mut [f32],
}

/// What a layer is before it exists: small, and the same on every node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LayerSpec {
    /// `x W + b`; the initial `W` follows from the seed (see [`init_dense`]), `b` starts at zero.
    Dense {
        /// Width of a row that goes in.
        inputs: usize,
        /// Width of a row that comes out.
        outputs: usize,
        /// The run's seed.
        seed: u64,
        /// Which dense layer of the network this is; layers of one seed must differ.
        index: u64,
    },
    /// `max(x, 0)`, element by element.
    Relu {
        /// Width of a row, in and out.
        width: usize,
    },
}

impl LayerSpec {
    /// Width of a row that goes in.
    pub fn inputs(&self) -> usize {
        match self {
            Self::Dense { inputs, .. } => *inputs,
            Self::Relu { width } => *width,
        }
    }

    /// Width of a row that comes out.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Dense { outputs, .. } => *outputs,
            Self::Relu { width } => *width,
        }
    }

    /// Number of `f32` parameters, or `None` when it does not fit a `usize`.
    pub fn parameters(&self) -> Option<usize> {
        match self {
            Self::Dense { inputs, outputs, .. } => inputs.checked_add(1)?.checked_mul(*outputs),
            Self::Relu { .. } => Some(0),
        }
    }

    /// Makes the layer.
    pub fn build(&self) -> Box<dyn Layer> {
        match *self {
            Self::Dense { inputs, outputs, seed, index } => {
                Box::new(Dense::new(init_dense(inputs, outputs, seed, index)))
            }
            Self::Relu { .. } => Box::new(Relu::default()),
        }
    }
}

/// The layers of a multilayer perceptron: `dense` dense layers with a [`Relu`] between each two,
/// `features` wide at the bottom, `classes` wide at the top and `hidden` between. At least one dense
/// layer, whatever `dense` says.
pub fn mlp(features: usize, hidden: usize, classes: usize, dense: usize, seed: u64) -> Vec<LayerSpec> {
    let dense = dense.max(1);
    let mut layers = Vec::with_capacity(2 * dense - 1);
    for index in 0..dense {
        let inputs = if index == 0 { features } else { hidden };
        let top = index + 1 == dense;
        let outputs = if top { classes } else { hidden };
        layers.push(LayerSpec::Dense { inputs, outputs, seed, index: index as u64 });
        if !top {
            layers.push(LayerSpec::Relu { width: hidden });
        }
    }
    layers
}

#[cfg(test)]
mod gradient_test;
