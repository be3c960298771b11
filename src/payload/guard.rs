//! The decoder of message bodies, which come from a peer and may be hostile.
//!
//! It reads the same format as `postcard::from_bytes` and gives the same values, within three rules:
//!
//! - Containers nest at most [`MAX_DEPTH`] levels. Postcard has no limit, and a stack overflow
//!   aborts the process.
//! - A sequence or map cannot claim more elements than there are bytes left, and all of them
//!   together cannot claim more than the body has bytes. This is known before the first element is
//!   read. An element takes at least one byte of its own, so an honest body never meets the rule,
//!   unless its elements take none (`Vec<()>`): a few bytes could then ask for endless work.
//! - Every byte is used.
//!
//! Scalars and strings are postcard's own work. Containers are read here, from postcard's
//! specified (and stable) wire format, because only the place that reads a length can refuse it,
//! and because wrapping every visitor would cost stack at each level.
//!
//! Knows bytes and serde; must not know handles, tensors or messages.

use postcard::{Deserializer as Postcard, de_flavors::Slice};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

/// How many containers (sequence, tuple, struct, map, enum, option, newtype) may nest.
pub(crate) const MAX_DEPTH: u32 = 128;

/// Why a body was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuardError {
    /// Containers nest deeper than `limit` levels.
    #[error("the body nests deeper than {limit} levels")]
    TooDeep {
        /// The deepest nesting that is accepted, in levels.
        limit: u32,
    },
    /// A sequence or map claims more elements than the body can hold.
    #[error("the body claims {count} elements where at most {left} can follow")]
    TooMany {
        /// The number of elements (of a map: pairs) it claims.
        count: u64,
        /// The number that could have been accepted: the bytes left, less if earlier sequences
        /// have claimed them.
        left: usize,
    },
    /// The value ended before the body did; the number of bytes left over.
    #[error("{0} bytes follow the end of the body")]
    Trailing(usize),
    /// The body is malformed, or the type's own `Deserialize` failed.
    #[error(transparent)]
    Postcard(#[from] postcard::Error),
}

/// Decodes a body that came from a peer.
///
/// # Errors
///
/// [`GuardError`]. A body that broke a limit is refused even if the type's own `Deserialize`
/// swallowed the error.
#[inline]
pub(crate) fn from_bytes<T: DeserializeOwned>(body: &[u8]) -> Result<T, GuardError> {
    decode(body)
}

/// As [`from_bytes`], for a value that may borrow from the body.
#[inline]
fn decode<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, GuardError> {
    let mut reader = Reader { input: Postcard::from_bytes(body), unclaimed: body.len(), fault: None };
    let value = T::deserialize(Guarded { reader: &mut reader, depth: 0 });
    if let Some(fault) = reader.fault {
        return Err(fault);
    }
    let value = value?;
    match reader.input.finalize()?.len() {
        0 => Ok(value),
        left => Err(GuardError::Trailing(left)),
    }
}

type Result<T, E = postcard::Error> = std::result::Result<T, E>;

/// What all levels of one decoding share.
struct Reader<'de> {
    input: Postcard<'de, Slice<'de>>,
    /// Bytes of the whole body minus the elements claimed so far.
    unclaimed: usize,
    /// The first limit that was broken: `postcard::Error` has no place for it.
    fault: Option<GuardError>,
}

impl<'de> Reader<'de> {
    /// The number of bytes not read yet.
    #[inline]
    fn left(&mut self) -> Result<usize> {
        // Postcard tells only at the end, so end it and go on with the rest. Both are two pointers.
        let rest = std::mem::replace(&mut self.input, Postcard::from_bytes(&[])).finalize()?;
        self.input = Postcard::from_bytes(rest);
        Ok(rest.len())
    }

    /// Reads the element count of a sequence or map, and refuses one that cannot be true.
    #[inline]
    fn count(&mut self) -> Result<usize> {
        let count = u64::deserialize(&mut self.input)?;
        // The second bound keeps the work linear: without it, every empty-looking sequence in
        // `Vec<Vec<()>>` could claim all the bytes that follow it.
        let left = self.left()?.min(self.unclaimed);
        match usize::try_from(count) {
            Ok(accepted) if accepted <= left => {
                self.unclaimed -= accepted;
                Ok(accepted)
            }
            _ => Err(self.refuse(GuardError::TooMany { count, left })),
        }
    }

    /// Keeps the first fault and gives the error that ends the decoding.
    #[cold]
    fn refuse(&mut self, fault: GuardError) -> postcard::Error {
        self.fault.get_or_insert(fault);
        postcard::Error::SerdeDeCustom
    }
}

/// A deserializer inside `depth` containers; also the content of an enum's variant.
struct Guarded<'r, 'de> {
    reader: &'r mut Reader<'de>,
    depth: u32,
}

impl<'r, 'de> Guarded<'r, 'de> {
    /// Enters a container.
    #[inline]
    fn enter(self) -> Result<Guarded<'r, 'de>> {
        if self.depth >= MAX_DEPTH {
            return Err(self.reader.refuse(GuardError::TooDeep { limit: MAX_DEPTH }));
        }
        Ok(Guarded { reader: self.reader, depth: self.depth + 1 })
    }

    /// The `left` elements of the container entered last.
    #[inline]
    fn elements(self, left: usize) -> Elements<'r, 'de> {
        Elements { reader: self.reader, depth: self.depth, left }
    }
}

/// Methods that read no container.
macro_rules! forward {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.reader.input.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Guarded<'_, 'de> {
    type Error = postcard::Error;

    forward! {
        deserialize_bool deserialize_char
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_unit
    }

    // The format does not describe itself: postcard refuses these three.
    forward! { deserialize_any deserialize_identifier deserialize_ignored_any }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        self.reader.input.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match u8::deserialize(&mut self.reader.input)? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self.enter()?),
            _ => Err(postcard::Error::DeserializeBadOption),
        }
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self.enter()?)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let inside = self.enter()?;
        let count = inside.reader.count()?;
        visitor.visit_seq(inside.elements(count))
    }

    // The type gives the length of a tuple or struct, not the peer: its elements may take no bytes.
    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        visitor.visit_seq(self.enter()?.elements(len))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let inside = self.enter()?;
        let count = inside.reader.count()?;
        visitor.visit_map(inside.elements(count))
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(self.enter()?)
    }
}

impl<'de> EnumAccess<'de> for Guarded<'_, 'de> {
    type Error = postcard::Error;
    type Variant = Self;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self)> {
        let variant = u32::deserialize(&mut self.reader.input)?;
        let deserializer: serde::de::value::U32Deserializer<postcard::Error> = variant.into_deserializer();
        Ok((seed.deserialize(deserializer)?, self))
    }
}

// An enum and the fields of its variant are one level.
impl<'de> VariantAccess<'de> for Guarded<'_, 'de> {
    type Error = postcard::Error;

    #[inline]
    fn unit_variant(self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        seed.deserialize(self)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        visitor.visit_seq(self.elements(len))
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_seq(self.elements(fields.len()))
    }
}

/// The elements, or pairs, of a container.
struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    depth: u32,
    left: usize,
}

impl<'de> Elements<'_, 'de> {
    #[inline]
    fn read<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        seed.deserialize(Guarded { reader: self.reader, depth: self.depth })
    }

    #[inline]
    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.read(seed).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = postcard::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        self.next(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de> {
    type Error = postcard::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        self.next(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        self.read(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use std::{
        borrow::Cow,
        collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
        fmt::Debug,
        marker::PhantomData,
        time::Duration,
    };

    /// Decodes `body` with and without the guard; they must agree, unless the guard refused it.
    fn compare<'de, T: Deserialize<'de> + Debug + PartialEq>(body: &'de [u8]) -> Result<T, GuardError> {
        let plain = postcard::take_from_bytes::<T>(body);
        let guarded = decode::<T>(body);
        match (&guarded, plain) {
            (Ok(value), Ok((expected, []))) => {
                // The texts are for NaN.
                assert!(*value == expected || format!("{value:?}") == format!("{expected:?}"));
            }
            (Err(GuardError::Trailing(left)), Ok((_, rest))) => assert_eq!(*left, rest.len()),
            (Err(GuardError::Postcard(error)), Err(expected)) => assert_eq!(*error, expected),
            (Err(GuardError::TooMany { .. }), Err(_)) => {}
            (guarded, plain) => panic!("{guarded:?} is not {plain:?} of {body:?}"),
        }
        guarded
    }

    #[track_caller]
    fn round_trip<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: T) {
        let body = postcard::to_allocvec(&value).unwrap();
        assert_eq!(compare::<T>(&body), Ok(value));
        for end in 0..body.len() {
            assert!(compare::<T>(&body[..end]).is_err());
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(compare::<T>(&longer), Err(GuardError::Trailing(1)));
        // Every byte wrong in several ways.
        for at in 0..body.len() {
            for mask in [0x01, 0x02, 0x04, 0x10, 0x40, 0x80, 0xff] {
                let mut wrong = body.clone();
                wrong[at] ^= mask;
                let _ = compare::<T>(&wrong);
            }
        }
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Unit;

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Meters(f64);

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Pair(u8, String);

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    #[serde(transparent)]
    struct Name {
        text: String,
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    #[serde(rename_all = "kebab-case")]
    enum Expr {
        Number(i64),
        Negate(Box<Expr>),
        Add(Box<Expr>, Box<Expr>),
        Call { name: String, arguments: Vec<Expr> },
        NothingAtAll,
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    #[serde(try_from = "u32", into = "u32")]
    struct Even(u32);

    impl TryFrom<u32> for Even {
        type Error = String;
        fn try_from(value: u32) -> Result<Even, String> {
            if value.is_multiple_of(2) { Ok(Even(value)) } else { Err(format!("{value} is odd")) }
        }
    }

    impl From<Even> for u32 {
        fn from(even: Even) -> u32 {
            even.0
        }
    }

    mod millis {
        use serde::{Deserialize, Deserializer, Serializer};
        use std::time::Duration;

        pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(value.as_millis() as u64)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
            assert!(!deserializer.is_human_readable());
            u64::deserialize(deserializer).map(Duration::from_millis)
        }
    }

    /// A type that asks for bytes.
    #[derive(Debug, PartialEq, Clone)]
    struct Blob(Vec<u8>);

    impl Serialize for Blob {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }

    impl<'de> Deserialize<'de> for Blob {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
            struct Bytes;
            impl Visitor<'_> for Bytes {
                type Value = Blob;
                fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                    Ok(Blob(bytes.to_vec()))
                }
            }
            deserializer.deserialize_byte_buf(Bytes)
        }
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    #[serde(rename = "everything", rename_all = "camelCase")]
    struct Everything {
        flag: bool,
        signed: (i8, i16, i32, i64, i128),
        unsigned: (u8, u16, u32, u64, u128, usize),
        floats: (f32, f64),
        letters: [char; 3],
        #[serde(rename = "label")]
        text: String,
        #[serde(default)]
        defaulted: u32,
        #[serde(skip)]
        skipped: Option<u64>,
        #[serde(with = "millis")]
        wait: Duration,
        elapsed: Duration,
        blob: Blob,
        cow: Cow<'static, str>,
        unit: (),
        units: ((), Unit, [(); 2], PhantomData<u8>),
        meters: Meters,
        pair: Pair,
        name: Name,
        even: Even,
        nothing: Option<Option<u8>>,
        something: Option<Option<u8>>,
        result: Result<u16, String>,
        list: Vec<u64>,
        lists: Vec<Vec<String>>,
        deque: VecDeque<Meters>,
        set: BTreeSet<i32>,
        map: HashMap<String, Vec<u8>>,
        tree: BTreeMap<u16, Option<Pair>>,
        range: std::ops::Range<u8>,
        boxed: Box<[u8]>,
        expr: Expr,
    }

    fn everything() -> Everything {
        Everything {
            flag: true,
            signed: (-1, i16::MIN, i32::MAX, i64::MIN, i128::MIN),
            unsigned: (1, u16::MAX, 0, u64::MAX, u128::MAX, usize::MAX),
            floats: (1.5, f64::NEG_INFINITY),
            letters: ['a', 'ß', '🦀'],
            text: "text".into(),
            defaulted: 7,
            skipped: None,
            wait: Duration::from_millis(1500),
            elapsed: Duration::new(3, 4),
            blob: Blob(vec![1, 2, 3]),
            cow: Cow::Borrowed("cow"),
            unit: (),
            units: ((), Unit, [(), ()], PhantomData),
            meters: Meters(0.25),
            pair: Pair(9, "pair".into()),
            name: Name { text: "name".into() },
            even: Even(300),
            nothing: None,
            something: Some(Some(3)),
            result: Err("no".into()),
            list: (0..20).map(|n| n << (3 * n)).collect(),
            lists: vec![vec![], vec!["x".into(), String::new()]],
            deque: [Meters(1.0)].into(),
            set: [-5, 5].into(),
            map: [("key".into(), vec![1])].into(),
            tree: [(1, None), (2, Some(Pair(1, "".into())))].into(),
            range: 1..9,
            boxed: [1, 2].into(),
            expr: Expr::Call {
                name: "f".into(),
                arguments: vec![
                    Expr::Add(Box::new(Expr::Number(-1)), Box::new(Expr::NothingAtAll)),
                    Expr::Negate(Box::new(Expr::Number(i64::MAX))),
                ],
            },
        }
    }

    #[test]
    fn equals_postcard() {
        round_trip(everything());
        round_trip((0..50).map(|n| (n, n.to_string())).collect::<HashMap<u32, String>>());
    }

    #[test]
    fn random_bodies_equal_postcard() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let body: Vec<u8> =
                (0..random() % 40).map(|_| ((random() % 256) >> (random() % 8)) as u8).collect();
            let _ = compare::<Everything>(&body);
            let _ = compare::<Vec<(Expr, Option<Even>)>>(&body);
            let _ = compare::<BTreeMap<Vec<u8>, Result<char, Box<[Pair]>>>>(&body);
        }
    }

    #[test]
    fn borrows_from_the_body() {
        #[derive(Serialize, Deserialize, Debug, PartialEq)]
        struct Borrowing<'a> {
            text: &'a str,
            bytes: &'a [u8],
            #[serde(borrow)]
            more: Vec<Option<&'a str>>,
        }
        let value = Borrowing { text: "text", bytes: b"bytes", more: vec![None, Some("more")] };
        let body = postcard::to_allocvec(&value).unwrap();
        assert_eq!(compare(&body), Ok(value));
    }

    #[test]
    fn self_describing_types_keep_their_error() {
        #[derive(Deserialize, Debug, PartialEq)]
        #[serde(untagged)]
        enum Untagged {
            Number(u8),
        }
        #[derive(Deserialize, Debug, PartialEq)]
        #[serde(tag = "kind")]
        enum Tagged {
            Number { value: u8 },
        }
        #[derive(Deserialize, Debug, PartialEq)]
        #[serde(tag = "kind", content = "value")]
        enum Adjacent {
            Number(u8),
        }
        #[derive(Deserialize, Debug, PartialEq)]
        struct Flat {
            #[serde(flatten)]
            rest: BTreeMap<String, u8>,
        }
        let wont = Err(GuardError::Postcard(postcard::Error::WontImplement));
        assert_eq!(compare::<Untagged>(&[1]).map(drop), wont);
        assert_eq!(compare::<Tagged>(&[0, 1]).map(drop), wont);
        assert_eq!(compare::<Adjacent>(&[0, 1]).map(drop), wont);
        assert_eq!(compare::<Flat>(&[1, 1, b'x', 1]).map(drop), wont);
        assert_eq!(compare::<serde::de::IgnoredAny>(&[1]).map(drop), wont);
    }

    #[test]
    fn own_errors_are_postcards() {
        let custom = Err(GuardError::Postcard(postcard::Error::SerdeDeCustom));
        assert_eq!(compare::<Even>(&[3]), custom);
    }

    /// Runs on the stack a test or a plain thread gets by default, whatever the environment says.
    fn on_small_stack(run: impl FnOnce() + Send + 'static) {
        std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Chain(Option<Box<Chain>>);

    /// Only its options are containers.
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    #[serde(transparent)]
    struct Link(Option<Box<Link>>);

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Node {
        children: Vec<Node>,
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Dictionary {
        entries: BTreeMap<u8, Dictionary>,
    }

    #[test]
    fn deep_bodies_are_refused() {
        on_small_stack(|| {
            const N: usize = 1_000_000;
            fn refused<T: DeserializeOwned + Debug + PartialEq>(body: &[u8]) {
                assert_eq!(from_bytes::<T>(body), Err(GuardError::TooDeep { limit: MAX_DEPTH }));
            }
            refused::<Chain>(&vec![1; N]);
            refused::<Link>(&vec![1; N]);
            refused::<Expr>(&vec![1; N]);
            refused::<Expr>(&vec![2; N]);
            refused::<Expr>(&[3, 0, 1].repeat(N));
            refused::<Everything>(&deep_everything(N));
            refused::<Node>(&vec![1; N]);
            refused::<Dictionary>(&vec![1; N]);
        });
    }

    /// A body whose last field nests `depth` levels.
    fn deep_everything(depth: usize) -> Vec<u8> {
        let mut value = everything();
        value.expr = Expr::NothingAtAll;
        let mut body = postcard::to_allocvec(&value).unwrap();
        body.pop();
        body.extend(std::iter::repeat_n(1, depth));
        body
    }

    #[test]
    fn types_that_nest_without_bytes_are_refused() {
        #[derive(Deserialize, Debug, PartialEq)]
        struct Struct {
            next: Box<Struct>,
        }
        #[derive(Deserialize, Debug, PartialEq)]
        struct Newtype(Box<Newtype>);
        #[derive(Deserialize, Debug, PartialEq)]
        struct Tuple((), Box<Tuple>);
        on_small_stack(|| {
            let refused = GuardError::TooDeep { limit: MAX_DEPTH };
            assert_eq!(from_bytes::<Struct>(&[]), Err(refused.clone()));
            assert_eq!(from_bytes::<Newtype>(&[]), Err(refused.clone()));
            assert_eq!(from_bytes::<Tuple>(&[]), Err(refused));
        });
    }

    #[test]
    fn the_depth_limit_is_exact() {
        on_small_stack(|| {
            // The number is a level, too.
            let deepest = [&[1; MAX_DEPTH as usize - 1][..], &[0, 4]].concat();
            let mut expr = from_bytes::<Expr>(&deepest).unwrap();
            for _ in 1..MAX_DEPTH {
                let Expr::Negate(inner) = expr else { panic!("{expr:?}") };
                expr = *inner;
            }
            assert_eq!(expr, Expr::Number(2));
            let deeper = [&[1; MAX_DEPTH as usize][..], &[0, 4]].concat();
            assert_eq!(from_bytes::<Expr>(&deeper), Err(GuardError::TooDeep { limit: MAX_DEPTH }));
            // Depth is where one is, not how many containers there were.
            let wide = vec![vec![Some(Pair(1, String::new())); 300]; 3];
            assert_eq!(from_bytes(&postcard::to_allocvec(&wide).unwrap()), Ok(wide));
        });
    }

    fn varint(value: u64) -> Vec<u8> {
        postcard::to_allocvec(&value).unwrap()
    }

    #[test]
    fn counts_beyond_the_bytes_left_are_refused() {
        for count in [1, 1 << 20, 1 << 60, u64::MAX] {
            let refused = GuardError::TooMany { count, left: 0 };
            let body = varint(count);
            assert_eq!(from_bytes::<Vec<()>>(&body), Err(refused.clone()));
            assert_eq!(from_bytes::<Vec<u64>>(&body), Err(refused.clone()));
            assert_eq!(from_bytes::<VecDeque<Unit>>(&body), Err(refused.clone()));
            assert_eq!(from_bytes::<HashMap<(), ()>>(&body), Err(refused.clone()));
            assert_eq!(from_bytes::<BTreeMap<u8, u8>>(&body), Err(refused.clone()));
            assert_eq!(from_bytes::<BTreeSet<()>>(&body), Err(refused));
        }
        assert_eq!(from_bytes::<Vec<u8>>(&[3, 1, 2]), Err(GuardError::TooMany { count: 3, left: 2 }));
        assert_eq!(from_bytes::<Vec<u8>>(&[2, 1, 2]), Ok(vec![1, 2]));
        assert_eq!(from_bytes::<Vec<()>>(&[0]), Ok(vec![]));
        // The type says how many elements a tuple has.
        assert_eq!(from_bytes::<[(); 32]>(&[]), Ok([(); 32]));
        // A length that is no number at all is postcard's error.
        let bad = postcard::Error::DeserializeBadVarint;
        assert_eq!(from_bytes::<Vec<u8>>(&[0xff; 16]), Err(bad.into()));
        // Strings and bytes are taken whole, and were always checked.
        let end = GuardError::Postcard(postcard::Error::DeserializeUnexpectedEnd);
        assert_eq!(from_bytes::<String>(&varint(1 << 60)), Err(end.clone()));
        assert_eq!(from_bytes::<Blob>(&varint(1 << 60)), Err(end));
    }

    #[test]
    fn the_same_bytes_cannot_be_claimed_twice() {
        // Each inner sequence claims less than what is left, all together far more.
        let count = 10_000u64;
        let mut body = varint(count);
        for _ in 0..count {
            body.extend(varint(1000));
        }
        // The body has 2 bytes for each number: 20,002 - 10,000 - 10 * 1000 = 2.
        let refused = GuardError::TooMany { count: 1000, left: 2 };
        assert_eq!(from_bytes::<Vec<Vec<()>>>(&body), Err(refused));
        // Elements with a byte of their own always fit, however they are nested.
        round_trip(vec![vec![vec![0u8; 3]; 3], vec![vec![]; 3], vec![]]);
        round_trip(vec![vec![None::<u8>; 100]; 2]);
        round_trip(BTreeMap::from([((), vec![((), 1u8); 9])]));
    }

    #[test]
    fn a_swallowed_refusal_still_counts() {
        #[derive(Debug, PartialEq)]
        struct Careless(Vec<()>);
        impl<'de> Deserialize<'de> for Careless {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Careless, D::Error> {
                Ok(Careless(Vec::deserialize(deserializer).unwrap_or_default()))
            }
        }
        assert_eq!(from_bytes::<Careless>(&[5]), Err(GuardError::TooMany { count: 5, left: 0 }));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert_eq!(from_bytes::<u8>(&[1, 2, 3]), Err(GuardError::Trailing(2)));
        assert_eq!(from_bytes::<()>(&[0]), Err(GuardError::Trailing(1)));
        assert_eq!(from_bytes::<()>(&[]), Ok(()));
    }
}
