//! A deserialiser that reads nothing: it gives made-up values and tells the recorder what was asked for.
//!
//! Supports what postcard supports, and refuses what postcard refuses. The recorder is never borrowed
//! while users' code runs.

use super::recorder::{Key, Recorder, Stop};
use serde::de::{
    self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
    value::{Error, U32Deserializer},
};
use std::{any::type_name, cell::RefCell};

/// Made-up text and bytes: not empty, without a zero byte, and as long as a UUID, since types that check
/// what they read most often want one of these.
const TEXT: &str = "a";
const BYTES: &[u8] = b"aaaaaaaaaaaaaaaa";

#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    recorder: &'a RefCell<Recorder>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(recorder: &'a RefCell<Recorder>) -> Reader<'a> {
        Reader { recorder }
    }

    fn value(self, what: &str) -> Result<(), Error> {
        self.recorder.borrow_mut().value(what).map_err(stopped)
    }

    fn named(self, what: &str, name: &str) -> Result<(), Error> {
        self.value(what)?;
        self.recorder.borrow_mut().names(&[name]);
        Ok(())
    }

    fn down<'de, V: Visitor<'de>>(self) -> Result<Inside<'a>, Error> {
        self.recorder.borrow_mut().down(type_name::<V::Value>()).map_err(stopped)?;
        Ok(Inside { recorder: self.recorder })
    }

    fn enter<'de, V: Visitor<'de>>(self) -> bool {
        self.recorder.borrow_mut().enter(key::<V>())
    }

    fn refuse<'de, V: Visitor<'de>>(self) -> Error {
        stopped(self.recorder.borrow_mut().refuse(type_name::<V::Value>()))
    }

    fn items<'de, V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        let _inside = self.down::<V>()?;
        visitor.visit_seq(Items { reader: self, left: count })
    }
}

fn key<'de, V: Visitor<'de>>() -> Key {
    (type_name::<V>(), type_name::<V::Value>())
}

fn stopped(stop: Stop) -> Error {
    de::Error::custom(match stop {
        Stop::Bounds => "too deep or too large to look at",
        Stop::Refused => "needs a format that describes itself",
    })
}

/// Comes up again on every way out.
struct Inside<'a> {
    recorder: &'a RefCell<Recorder>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.recorder.borrow_mut().up();
    }
}

macro_rules! primitives {
    ($($method:ident => $what:literal, $visit:ident($value:expr);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.value($what)?;
            visitor.$visit($value)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Error;

    primitives! {
        deserialize_bool => "bool", visit_bool(false);
        deserialize_i8 => "i8", visit_i8(1);
        deserialize_i16 => "i16", visit_i16(1);
        deserialize_i32 => "i32", visit_i32(1);
        deserialize_i64 => "i64", visit_i64(1);
        deserialize_i128 => "i128", visit_i128(1);
        deserialize_u8 => "u8", visit_u8(1);
        deserialize_u16 => "u16", visit_u16(1);
        deserialize_u32 => "u32", visit_u32(1);
        deserialize_u64 => "u64", visit_u64(1);
        deserialize_u128 => "u128", visit_u128(1);
        deserialize_f32 => "f32", visit_f32(1.0);
        deserialize_f64 => "f64", visit_f64(1.0);
        deserialize_char => "char", visit_char('a');
        deserialize_str => "str", visit_str(TEXT);
        deserialize_string => "str", visit_str(TEXT);
        deserialize_bytes => "bytes", visit_bytes(BYTES);
        deserialize_byte_buf => "bytes", visit_bytes(BYTES);
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self.refuse::<V>())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self.refuse::<V>())
    }

    /// For the keys of `flatten` and the tag of a `tag`; other fields and variants have numbers here.
    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(stopped(self.recorder.borrow_mut().refuse_around()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value("option")?;
        if !self.enter::<V>() {
            return visitor.visit_none();
        }
        let _inside = self.down::<V>()?;
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value("unit")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named("unit struct", name)?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named("newtype", name)?;
        let _inside = self.down::<V>()?;
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value("seq")?;
        let count = usize::from(self.enter::<V>());
        self.items(count, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.value("tuple")?;
        self.recorder.borrow_mut().number(len);
        self.items(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named("tuple struct", name)?;
        self.recorder.borrow_mut().number(len);
        self.items(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value("map")?;
        let left = usize::from(self.enter::<V>());
        let _inside = self.down::<V>()?;
        visitor.visit_map(Items { reader: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named("struct", name)?;
        self.recorder.borrow_mut().names(fields);
        self.items(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.named("enum", name)?;
        self.recorder.borrow_mut().names(variants);
        if variants.is_empty() {
            return Err(de::Error::custom("an enum without variants has no values"));
        }
        let _inside = self.down::<V>()?;
        let variant = self.recorder.borrow_mut().choose(key::<V>(), variants.len());
        let result = visitor.visit_enum(Picked { reader: self, variant });
        self.recorder.borrow_mut().chosen(result.is_ok());
        result
    }

    /// postcard is not either: what a type writes for people is no part of its shape.
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A tuple's elements, a sequence's one, or a map's one pair.
struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The variant that the recorder wants to see.
struct Picked<'a> {
    reader: Reader<'a>,
    variant: usize,
}

impl<'de, 'a> EnumAccess<'de> for Picked<'a> {
    type Error = Error;
    type Variant = Content<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Content<'a>), Error> {
        let index = u32::try_from(self.variant).map_err(de::Error::custom)?;
        let value = seed.deserialize(U32Deserializer::<Error>::new(index))?;
        Ok((value, Content { reader: self.reader }))
    }
}

/// What the picked variant holds.
struct Content<'a> {
    reader: Reader<'a>,
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.reader.value("unit variant")
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        self.reader.value("newtype variant")?;
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.value("tuple variant")?;
        self.reader.recorder.borrow_mut().number(len);
        self.reader.items(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.value("struct variant")?;
        self.reader.recorder.borrow_mut().names(fields);
        self.reader.items(fields.len(), visitor)
    }
}
