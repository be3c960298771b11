//! The digits: 1,797 handwritten digits of 8 x 8 grey pixels (Alpaydin and Kaynak, UCI), as `smartcore`
//! ships them.

use ndarray::{Array2, Axis};
use rref_actors::random::shuffled;
use smartcore::dataset::digits;

/// The split never depends on the run's seed: accuracies of different runs can be compared.
const SPLIT_SEED: u64 = 1797;

/// Both halves of the data, shuffled once so that classes and writers mix.
#[derive(Clone)]
pub struct Data {
    /// One row a digit, one column a pixel, 0 to 1.
    pub train_inputs: Array2<f32>,
    /// 0 to 9.
    pub train_labels: Vec<u8>,
    /// As `train_inputs`; never trained on.
    pub test_inputs: Array2<f32>,
    /// As `train_labels`.
    pub test_labels: Vec<u8>,
    /// Number of different labels.
    pub classes: usize,
}

impl Data {
    /// Four fifths for training, the rest for the test.
    pub fn load() -> Self {
        let digits = digits::load_dataset();
        let inputs = Array2::from_shape_fn((digits.num_samples, digits.num_features), |(row, column)| {
            digits.data[row * digits.num_features + column] / 16.0
        });
        let order = shuffled(digits.num_samples, SPLIT_SEED, 0);
        let (train, test) = order.split_at(digits.num_samples * 4 / 5);
        let labels = |rows: &[usize]| rows.iter().map(|&row| digits.target[row] as u8).collect();
        Self {
            train_inputs: inputs.select(Axis(0), train),
            train_labels: labels(train),
            test_inputs: inputs.select(Axis(0), test),
            test_labels: labels(test),
            classes: 10,
        }
    }

    /// Rows of both halves.
    pub fn rows(&self) -> usize {
        self.train_labels.len() + self.test_labels.len()
    }

    /// Pixels of a digit.
    pub fn features(&self) -> usize {
        self.train_inputs.ncols()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_is_there_in_both_halves() {
        let data = Data::load();
        assert_eq!((data.rows(), data.features()), (1797, 64));
        assert_eq!((data.train_inputs.nrows(), data.test_inputs.nrows()), (1437, 360));
        for digit in 0..10 {
            assert!(data.train_labels.iter().filter(|label| **label == digit).count() > 120);
            assert!(data.test_labels.iter().filter(|label| **label == digit).count() > 20);
        }
        assert!(data.train_inputs.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }
}
