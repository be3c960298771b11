//! The types a tensor can hold.

use bytes::Bytes;
use half::{bf16, f16};
use ndarray::{ArcArray, IxDyn};
use rref_core::wire::{DType, Storage};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::{Debug, Display};

/// The type of a tensor's elements: `f32`, `f64`, [`f16`](struct@f16), [`bf16`], the integers of 8 to
/// 64 bits, and `bool`.
///
/// Sealed: both sides of a connection must agree on the list.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot hold `{Self}`",
    label = "not an element type",
    note = "elements are f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64 and bool"
)]
pub trait Element:
    sealed::Sealed
    + Copy
    + Default
    + PartialEq
    + Debug
    + Display
    + Send
    + Sync
    + Serialize
    + DeserializeOwned
    + 'static
{
    /// Its name on the wire.
    const DTYPE: DType;

    /// The elements of received storage, without a copy; none when they have another type.
    #[doc(hidden)]
    fn from_storage(storage: Storage) -> Option<Vec<Self>>;
}

mod sealed {
    /// Plain bytes: no padding, so that elements can be sent as they are.
    pub trait Sealed: bytemuck::NoUninit {}
}

macro_rules! elements {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
                const DTYPE: DType = DType::$variant;

                fn from_storage(storage: Storage) -> Option<Vec<$type>> {
                    match storage {
                        Storage::$variant(elements) => Some(elements),
                        _ => None,
                    }
                }
            }
        )*
    };
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    bool => Bool,
}

/// The elements of `array`, which is in C order, as little-endian bytes.
///
/// No copy on little-endian machines: the bytes keep the array's storage alive until they are sent.
pub(super) fn to_le_bytes<A: Element>(array: &ArcArray<A, IxDyn>) -> Bytes {
    let kept = Kept(array.clone());
    if cfg!(target_endian = "little") || size_of::<A>() == 1 {
        Bytes::from_owner(kept)
    } else {
        Bytes::from(swapped(kept.as_ref(), size_of::<A>()))
    }
}

/// `bytes` with the bytes of each element, `size` of them, in reverse.
fn swapped(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut swapped = bytes.to_vec();
    for element in swapped.chunks_exact_mut(size) {
        element.reverse();
    }
    swapped
}

/// Keeps an array alive while a socket writes from its storage.
struct Kept<A>(ArcArray<A, IxDyn>);

impl<A: Element> AsRef<[u8]> for Kept<A> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self.0.as_slice().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<A: Element>(elements: Vec<A>) {
        let array = ndarray::Array1::from_vec(elements.clone()).into_dyn().into_shared();
        let bytes = to_le_bytes(&array);
        assert_eq!(bytes.len(), elements.len() * A::DTYPE.size());
        let mut storage = Storage::new(A::DTYPE);
        storage.extend_from_le_bytes(&bytes).unwrap();
        assert_eq!(A::from_storage(storage.clone()), Some(elements));
        let other = if A::DTYPE == DType::F32 { Storage::U8(vec![]) } else { Storage::F32(vec![]) };
        assert_eq!(A::from_storage(other), None);
    }

    #[test]
    fn every_element_type_survives_its_bytes() {
        round_trip(vec![1.5f32, -0.0, f32::INFINITY]);
        round_trip(vec![1.5f64, f64::MIN]);
        round_trip(vec![f16::from_f32(1.5), f16::MAX]);
        round_trip(vec![bf16::from_f32(1.5), bf16::MIN]);
        round_trip(vec![i8::MIN, 1]);
        round_trip(vec![i16::MIN, 1]);
        round_trip(vec![i32::MIN, 1]);
        round_trip(vec![i64::MIN, 1]);
        round_trip(vec![u8::MAX, 1]);
        round_trip(vec![u16::MAX, 1]);
        round_trip(vec![u32::MAX, 1]);
        round_trip(vec![u64::MAX, 1]);
        round_trip(vec![true, false]);
    }

    #[test]
    fn big_endian_machines_swap_each_element() {
        assert_eq!(swapped(&0x0102_0304u32.to_be_bytes(), 4), 0x0102_0304u32.to_le_bytes());
        assert_eq!(swapped(&[1, 2, 3, 4], 2), [2, 1, 4, 3]);
        assert!(swapped(&[], 8).is_empty());
    }
}
