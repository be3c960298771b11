//! Tensors: n-dimensional arrays that move between nodes without passing through the message's body.
//!
//! Knows ndarray, how a tensor looks inside and outside a message, and nothing of calls, objects or
//! connections.

mod element;
mod serde;

pub use element::Element;
pub use rref_core::wire::DType;

use ndarray::{ArcArray, Array, ArrayD, ArrayViewD, ArrayViewMutD, Dimension, IxDyn};
use std::fmt;

/// An n-dimensional array in C order, shared and immutable until somebody asks for [`Tensor::make_mut`].
///
/// Cloning costs a reference count, whatever the size. In a message the elements travel beside the body
/// as they are in memory: sending copies nothing, and what arrives is already a `Vec<A>`. Calls on the
/// same node pass the tensor itself.
///
/// ```
/// # use rref::Tensor;
/// let x = Tensor::from(ndarray::arr2(&[[1.0f32, 2.0], [3.0, 4.0]]));   // no copy
/// let mut y = x.clone();                                               // no copy
/// y.make_mut()[[0, 0]] = 10.0;                                         // copies: `x` has it too
/// assert_eq!(x.view()[[0, 0]], 1.0);
/// assert_eq!(y.as_slice(), [10.0, 2.0, 3.0, 4.0]);
/// let array = y.into_array() * 2.0;                                    // no copy: nobody else has it
/// assert_eq!(array.sum(), 38.0);
/// ```
///
/// # Serialisation
///
/// In a message of a running node a tensor has at most 8 axes, and costs an index in the body. Anywhere
/// else, e.g. in a checkpoint, it serialises inline as `{ shape, data }`. JSON has no word for NaN and
/// infinities: use a binary format for data that may contain them.
#[derive(Clone, PartialEq)]
pub struct Tensor<A> {
    /// In C order without gaps; every constructor sees to that.
    array: ArcArray<A, IxDyn>,
}

impl<A: Element> Tensor<A> {
    /// The elements as an ndarray view. No copy.
    pub fn view(&self) -> ArrayViewD<'_, A> {
        self.array.view()
    }

    /// The elements in C order. No copy.
    pub fn as_slice(&self) -> &[A] {
        // There always is a slice of an array in C order.
        self.array.as_slice().unwrap_or_default()
    }

    /// A view to write through. No copy when nobody else holds the elements, one copy otherwise: the
    /// other holders never see the change.
    pub fn make_mut(&mut self) -> ArrayViewMutD<'_, A> {
        self.array.view_mut()
    }

    /// The elements as an ndarray array. No copy when nobody else holds them, one copy otherwise.
    pub fn into_array(self) -> ArrayD<A> {
        self.array.into_owned()
    }

    /// A copy of the elements as an ndarray array. Always copies; [`Tensor::into_array`] may not have to.
    pub fn to_array(&self) -> ArrayD<A> {
        self.array.to_owned()
    }

    /// Length of each axis, in elements.
    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// Number of axes; 0 for a single number.
    pub fn ndim(&self) -> usize {
        self.array.ndim()
    }

    /// Number of elements; the product of the shape.
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Whether there are no elements: some axis has length 0.
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }
}

/// No copy when the array is in C order, one copy otherwise.
impl<A: Element, D: Dimension> From<Array<A, D>> for Tensor<A> {
    fn from(array: Array<A, D>) -> Tensor<A> {
        Tensor::from(array.into_shared())
    }
}

/// No copy when the array is in C order, one copy otherwise. A slice of a larger array keeps all of that
/// array's memory, here and until it is sent.
impl<A: Element, D: Dimension> From<ArcArray<A, D>> for Tensor<A> {
    fn from(array: ArcArray<A, D>) -> Tensor<A> {
        let array = array.into_dyn();
        if array.is_standard_layout() {
            return Tensor { array };
        }
        Tensor { array: array.as_standard_layout().into_owned().into_shared() }
    }
}

/// Element type, shape and elements; ndarray abbreviates large arrays.
impl<A: Element> fmt::Debug for Tensor<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>{:?} ", A::DTYPE.name(), self.shape())?;
        fmt::Display::fmt(&self.array, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Array2, Array3, arr0, arr2, s};

    fn ones() -> Array2<f32> {
        Array2::ones((3, 4))
    }

    #[test]
    fn arrays_go_in_and_out_without_a_copy() {
        let array = ones();
        let elements = array.as_ptr();
        let tensor = Tensor::from(array);
        assert_eq!(tensor.as_slice().as_ptr(), elements);
        let other = tensor.clone();
        assert_eq!(other.as_slice().as_ptr(), elements);
        drop(tensor);
        let array = other.into_array();
        assert_eq!(array.as_ptr(), elements, "nobody else had it");
        let (vec, _) = array.into_raw_vec_and_offset();
        assert_eq!(vec.as_ptr(), elements);
    }

    #[test]
    fn shared_elements_are_copied_before_they_change_hands() {
        let tensor = Tensor::from(ones());
        let other = tensor.clone();
        assert_ne!(other.into_array().as_ptr(), tensor.as_slice().as_ptr());
        assert_ne!(tensor.to_array().as_ptr(), tensor.as_slice().as_ptr());
        assert_eq!(tensor.view(), ones().into_dyn());
    }

    #[test]
    fn writing_copies_only_when_shared() {
        let mut tensor = Tensor::from(ones());
        let elements = tensor.as_slice().as_ptr();
        tensor.make_mut().fill(2.0);
        assert_eq!(tensor.as_slice().as_ptr(), elements);
        let before = tensor.clone();
        tensor.make_mut()[[0, 0]] = 5.0;
        assert_ne!(tensor.as_slice().as_ptr(), elements);
        assert_eq!((before.view()[[0, 0]], tensor.view()[[0, 0]]), (2.0, 5.0));
    }

    #[test]
    fn elements_being_sent_do_not_change() {
        let mut tensor = Tensor::from(ones());
        let sent = element::to_le_bytes(&tensor.array);
        assert_eq!(sent.as_ptr(), tensor.as_slice().as_ptr().cast());
        tensor.make_mut().fill(9.0);
        assert_eq!(sent[..4], 1.0f32.to_le_bytes());
        assert_eq!(tensor.as_slice()[0], 9.0);
    }

    #[test]
    fn anything_comes_out_in_c_order() {
        let turned = Tensor::from(arr2(&[[1, 2], [3, 4]]).reversed_axes());
        assert_eq!(turned.as_slice(), [1, 3, 2, 4]);
        let mut backwards = Array1::from_vec(vec![1u8, 2, 3]);
        backwards.invert_axis(ndarray::Axis(0));
        assert_eq!(Tensor::from(backwards).as_slice(), [3, 2, 1]);
        let columns = arr2(&[[1i64, 2, 3], [4, 5, 6]]).into_shared();
        assert_eq!(Tensor::from(columns.slice_move(s![.., 1..])).as_slice(), [2, 3, 5, 6]);
        let mut turned = turned;
        turned.make_mut()[[0, 1]] = 7;
        assert_eq!(turned.as_slice(), [1, 7, 2, 4]);
    }

    #[test]
    fn a_slice_of_rows_is_not_copied() {
        let rows = arr2(&[[1i64, 2], [3, 4], [5, 6]]).into_shared();
        let start = rows.as_ptr();
        let mut tensor = Tensor::from(rows.slice_move(s![1..2, ..]));
        assert_eq!(tensor.as_slice().as_ptr(), start.wrapping_add(2));
        assert_eq!(element::to_le_bytes(&tensor.array).len(), 16);
        tensor.make_mut()[[0, 0]] = 9;
        assert_eq!(tensor.as_slice(), [9, 4]);
        assert_eq!(tensor.into_array(), arr2(&[[9i64, 4]]).into_dyn());
    }

    #[test]
    fn corner_shapes() {
        let number = Tensor::from(arr0(3.5f64));
        assert_eq!((number.ndim(), number.len(), number.shape().len()), (0, 1, 0));
        assert_eq!(number.as_slice(), [3.5]);
        let mut nothing = Tensor::from(Array3::<bool>::default((2, 0, 3)));
        assert!(nothing.is_empty() && nothing.ndim() == 3 && nothing.as_slice().is_empty());
        nothing.make_mut().fill(true);
        assert_eq!(nothing.into_array().shape(), [2, 0, 3]);
    }

    #[test]
    fn compares_and_prints_shape_and_elements() {
        let tensor = Tensor::from(arr2(&[[1, 2]]));
        assert_eq!(tensor, Tensor::from(arr2(&[[1, 2]])));
        assert_ne!(tensor, Tensor::from(arr2(&[[1], [2]])));
        assert_eq!(format!("{tensor:?}"), "Tensor<i32>[1, 2] [[1, 2]]");
        assert!(format!("{:?}", Tensor::from(Array1::<f32>::zeros(100_000))).len() < 200);
    }
}
