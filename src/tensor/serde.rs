//! A tensor in a message is a number, that of the segment that holds its elements; elsewhere it is its
//! shape and its elements.

use super::{Element, Tensor, element::to_le_bytes};
use crate::{payload, registry::schema};
use ndarray::{Array1, ArrayD, IxDyn};
use rref_core::wire::{Segment, SegmentData, Storage};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// What a segment's descriptor has room for.
const MAX_AXES: usize = 8;

/// A tensor in a message: index of its segment.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Tensor")]
struct Index(u32);

/// A tensor outside a message, to write.
#[derive(Serialize)]
#[serde(rename = "Tensor")]
struct Written<'a, A> {
    shape: &'a [usize],
    data: &'a [A],
}

/// A tensor outside a message, as read.
#[derive(Deserialize)]
#[serde(rename = "Tensor")]
struct Read<A> {
    shape: Vec<u64>,
    data: Vec<A>,
}

/// In a message an index, and the elements beside the body without a copy; elsewhere inline.
impl<A: Element> Serialize for Tensor<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !payload::in_message() {
            return Written { shape: self.shape(), data: self.as_slice() }.serialize(serializer);
        }
        let index = put(self).map_err(ser::Error::custom)?;
        Index(index).serialize(serializer)
    }
}

/// Takes what [`Serialize`] wrote, in the same place: in a message or elsewhere.
impl<'de, A: Element> Deserialize<'de> for Tensor<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tensor<A>, D::Error> {
        if schema::tracing() {
            schema::mark(&format!("Tensor<{}>", A::DTYPE.name()));
            return Ok(Tensor::from(Array1::from_vec(Vec::new())));
        }
        if !payload::in_message() {
            let Read { shape, data } = Read::<A>::deserialize(deserializer)?;
            let shape = shape.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
            let shape = shape.map_err(|_| de::Error::custom("an axis is too long for this machine"))?;
            return assemble(&shape, data).map_err(de::Error::custom);
        }
        let Index(index) = Index::deserialize(deserializer)?;
        take(index).map_err(de::Error::custom)
    }
}

/// Errors are kept beside the serializer as well, which may lose them: here, or by `payload`, which has
/// more to say than a text.
fn put<A: Element>(tensor: &Tensor<A>) -> Result<u32, String> {
    if tensor.ndim() > MAX_AXES {
        return Err(payload::note(format!("a tensor in a message has at most {MAX_AXES} axes")));
    }
    payload::put_segment(A::DTYPE, tensor.shape(), to_le_bytes(&tensor.array))
}

fn take<A: Element>(index: u32) -> Result<Tensor<A>, String> {
    from_segment(payload::take_segment(index)?).map_err(payload::note)
}

fn from_segment<A: Element>(segment: Segment) -> Result<Tensor<A>, String> {
    let mismatch = || {
        format!(
            "the message carries {} where a Tensor<{}> was expected",
            segment.dtype.name(),
            A::DTYPE.name()
        )
    };
    if segment.dtype != A::DTYPE {
        return Err(mismatch());
    }
    let storage = match segment.data {
        SegmentData::Typed(storage) => storage,
        SegmentData::Inline(bytes) => {
            let mut storage = Storage::new(A::DTYPE);
            storage.reserve_exact(bytes.len() / A::DTYPE.size());
            storage.extend_from_le_bytes(&bytes).map_err(|error| error.to_string())?;
            storage
        }
        SegmentData::Chunked => return Err(String::from("a tensor's elements did not arrive")),
    };
    let data = A::from_storage(storage).ok_or_else(mismatch)?;
    assemble(&segment.shape, data)
}

/// A tensor of `shape` from exactly as many elements. No copy.
fn assemble<A: Element>(shape: &[usize], data: Vec<A>) -> Result<Tensor<A>, String> {
    let product = shape.iter().try_fold(1usize, |product, axis| product.checked_mul(*axis));
    if product != Some(data.len()) {
        return Err(format!("the shape {shape:?} does not fit {} elements", data.len()));
    }
    let array = ArrayD::from_shape_vec(IxDyn(shape), data).map_err(|error| error.to_string())?;
    Ok(Tensor::from(array))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use ndarray::{Array2, arr2};
    use rref_core::wire::DType;

    fn segment(shape: &[usize], data: SegmentData) -> Segment {
        Segment { dtype: DType::F32, shape: shape.to_vec(), data }
    }

    fn inline(elements: &[f32]) -> SegmentData {
        SegmentData::Inline(elements.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into())
    }

    fn error<A: Element>(segment: Segment) -> String {
        from_segment::<A>(segment).unwrap_err()
    }

    #[test]
    fn outside_a_message_a_tensor_is_its_shape_and_elements() {
        let tensor = Tensor::from(arr2(&[[1i64, 2], [3, 4], [-5, 6]]));
        let bytes = postcard::to_allocvec(&tensor).unwrap();
        assert_eq!(bytes, postcard::to_allocvec(&([3usize, 2].as_slice(), tensor.as_slice())).unwrap());
        assert_eq!(postcard::from_bytes::<Tensor<i64>>(&bytes).unwrap(), tensor);
        let empty = Tensor::from(Array2::<bool>::default((0, 7)));
        let bytes = postcard::to_allocvec(&empty).unwrap();
        assert_eq!(postcard::from_bytes::<Tensor<bool>>(&bytes).unwrap(), empty);
    }

    #[test]
    fn a_shape_must_fit_its_elements() {
        let read = |shape: &[u64], data: &[u8]| {
            let bytes = postcard::to_allocvec(&(shape, data)).unwrap();
            postcard::from_bytes::<Tensor<u8>>(&bytes).is_ok()
        };
        assert!(read(&[2, 3], &[0; 6]) && read(&[], &[7]) && read(&[0, 1 << 20], &[]));
        assert!(!read(&[2, 3], &[0; 5]) && !read(&[], &[]) && !read(&[1], &[]));
        assert!(!read(&[1 << 63, 2], &[]), "the product overflows");
        assert!(!read(&[1 << 33, 1 << 33, 0], &[]), "ndarray wants the others' product to fit as well");
        assert_eq!(assemble(&[2, 3], vec![0u8; 5]).unwrap_err(), "the shape [2, 3] does not fit 5 elements");
    }

    #[test]
    fn typed_storage_moves_in_without_a_copy() {
        let elements = vec![1.0f32, 2.0, 3.0, 4.0];
        let start = elements.as_ptr();
        let data = SegmentData::Typed(Storage::F32(elements));
        let tensor = from_segment::<f32>(segment(&[2, 2], data)).unwrap();
        assert_eq!(tensor.as_slice().as_ptr(), start);
        assert_eq!(tensor.into_array().as_ptr(), start);
    }

    #[test]
    fn bytes_become_elements() {
        let tensor = from_segment::<f32>(segment(&[2, 1], inline(&[1.0, -2.0]))).unwrap();
        assert_eq!(tensor, Tensor::from(arr2(&[[1.0], [-2.0]])));
        let nothing = from_segment::<f32>(segment(&[3, 0], inline(&[]))).unwrap();
        assert_eq!(nothing.shape(), [3, 0]);
        let unaligned = Bytes::from(vec![0; 9]).slice(1..);
        assert_eq!(from_segment::<f32>(segment(&[2], SegmentData::Inline(unaligned))).unwrap().len(), 2);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let expected = "the message carries f32 where a Tensor<i64> was expected";
        assert_eq!(error::<i64>(segment(&[1], inline(&[1.0]))), expected);
        error::<f32>(segment(&[1], SegmentData::Typed(Storage::U8(vec![1]))));
        assert!(error::<f32>(segment(&[3], inline(&[1.0]))).contains("[3]"));
        error::<f32>(segment(&[usize::MAX, 2], inline(&[])));
        error::<f32>(segment(&[1], SegmentData::Inline(Bytes::from_static(&[0; 5]))));
        error::<f32>(segment(&[1], SegmentData::Chunked));
        let two = SegmentData::Inline(Bytes::from_static(&[2]));
        error::<bool>(Segment { dtype: DType::Bool, shape: vec![1], data: two });
    }
}
