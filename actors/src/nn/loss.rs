//! Softmax and cross-entropy, taken together: their joint gradient is simply `p - y`.

use ndarray::Array2;

/// What the loss of one micro-batch is, and where it pulls.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// Sum over the rows of `-ln p(label)`; not divided, so that sums of micro-batches are sums.
    pub sum: f64,
    /// Gradient with respect to the logits, already divided by the rows of the whole batch.
    pub gradient: Array2<f32>,
}

/// Cross-entropy of `softmax(logits)` against class numbers, one label a row.
///
/// `batch_rows` is the number of rows of the whole batch of which these rows are a part: dividing by it
/// here makes the sum of the micro-batches' gradients the gradient of the batch's mean loss. A label
/// that is no column counts as a class of probability zero among the others: it adds the largest
/// finite loss and the gradient `p`. Rows without a label are ignored.
pub fn softmax_cross_entropy(logits: Array2<f32>, labels: &[u8], batch_rows: usize) -> Loss {
    let mut gradient = logits;
    let scale = 1.0 / batch_rows.max(1) as f32;
    let mut sum = 0.0;
    for (mut row, &label) in gradient.rows_mut().into_iter().zip(labels) {
        // Without the largest logit taken off, exp() overflows for logits above 88.
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.mapv_inplace(|x| (x - largest).exp());
        let total: f32 = row.iter().sum();
        row.mapv_inplace(|x| x / total);
        if let Some(p) = row.get_mut(usize::from(label)) {
            sum -= f64::from(p.max(f32::MIN_POSITIVE)).ln();
            *p -= 1.0;
        } else {
            sum -= f64::from(f32::MIN_POSITIVE).ln();
        }
        row.mapv_inplace(|x| x * scale);
    }
    Loss { sum, gradient }
}

/// In how many rows the largest logit is that of the label. The first of equals counts.
pub fn correct(logits: &Array2<f32>, labels: &[u8]) -> usize {
    logits
        .rows()
        .into_iter()
        .zip(labels)
        .filter(|(row, label)| {
            let mut best = (0, f32::NEG_INFINITY);
            for (class, &logit) in row.iter().enumerate() {
                if logit > best.1 {
                    best = (class, logit);
                }
            }
            best.0 == usize::from(**label)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn equal_logits_lose_the_log_of_the_classes() {
        let loss = softmax_cross_entropy(array![[5.0, 5.0, 5.0, 5.0]], &[2], 1);
        assert!((loss.sum - 4.0f64.ln()).abs() < 1e-6);
        assert_eq!(loss.gradient, array![[0.25, 0.25, -0.75, 0.25]]);
    }

    #[test]
    fn gradients_are_divided_by_the_rows_of_the_batch() {
        let loss = softmax_cross_entropy(array![[0.0, 0.0]], &[0], 4);
        assert_eq!(loss.gradient, array![[-0.125, 0.125]]);
    }

    #[test]
    fn huge_logits_stay_finite() {
        let loss = softmax_cross_entropy(array![[1e30, -1e30]], &[1], 1);
        assert!(loss.sum.is_finite() && loss.gradient.iter().all(|g| g.is_finite()));
    }

    #[test]
    fn counts_the_rows_whose_largest_logit_is_the_label() {
        assert_eq!(correct(&array![[0.0, 1.0], [3.0, 1.0], [0.5, 0.5]], &[1, 1, 0]), 2);
    }
}
