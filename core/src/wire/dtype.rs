//! Element types of tensors, and storage typed by them.
//!
//! An owned ndarray cannot be made from bytes that somebody else allocated, so what arrives is put
//! into a `Vec` of its own element type at once.

use half::{bf16, f16};

macro_rules! dtypes {
    ($($variant:ident $type:ty = $code:literal, $name:literal, $doc:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DType {
            $(#[doc = $doc] $variant = $code,)*
        }

        impl DType {
            /// The type with this code on the wire; none for codes that are not given out.
            pub fn from_code(code: u8) -> Option<DType> {
                match code { $($code => Some(DType::$variant),)* _ => None }
            }

            /// Bytes of one element.
            pub fn size(self) -> usize {
                match self { $(DType::$variant => size_of::<$type>(),)* }
            }

            /// Its name in Rust.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }
        }

        /// Elements in storage of their own type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Storage {
            $(#[doc = $doc] $variant(Vec<$type>),)*
        }

        impl Storage {
            /// Empty storage for elements of `dtype`; allocates nothing.
            pub fn new(dtype: DType) -> Storage {
                match dtype { $(DType::$variant => Storage::$variant(Vec::new()),)* }
            }

            /// The type of the elements.
            pub fn dtype(&self) -> DType {
                match self { $(Storage::$variant(_) => DType::$variant,)* }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self { $(Storage::$variant(v) => v.len(),)* }
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Makes room for `more` elements beyond those that are there.
            pub fn reserve_exact(&mut self, more: usize) {
                match self { $(Storage::$variant(v) => v.reserve_exact(more),)* }
            }

            /// Elements it can hold without growing.
            pub fn capacity(&self) -> usize {
                match self { $(Storage::$variant(v) => v.capacity(),)* }
            }
        }
    };
}

dtypes! {
    F32 f32 = 1, "f32", "32-bit floating point.";
    F64 f64 = 2, "f64", "64-bit floating point.";
    F16 f16 = 3, "f16", "16-bit IEEE floating point.";
    BF16 bf16 = 4, "bf16", "16-bit brain floating point.";
    I8 i8 = 5, "i8", "8-bit signed integer.";
    I16 i16 = 6, "i16", "16-bit signed integer.";
    I32 i32 = 7, "i32", "32-bit signed integer.";
    I64 i64 = 8, "i64", "64-bit signed integer.";
    U8 u8 = 9, "u8", "8-bit unsigned integer.";
    U16 u16 = 10, "u16", "16-bit unsigned integer.";
    U32 u32 = 11, "u32", "32-bit unsigned integer.";
    U64 u64 = 12, "u64", "64-bit unsigned integer.";
    Bool bool = 13, "bool", "One byte a value, 0 or 1.";
}
