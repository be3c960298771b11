#![expect(dead_code, reason = "only the shapes of these types matter: nobody makes or reads values of them")]

use super::{Fnv, Schema, join, mark, of_text, schema_of, tracing};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    num::{NonZeroI64, NonZeroU8},
    ops::{Bound, Range, RangeInclusive},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

fn id<T: DeserializeOwned>() -> Schema {
    schema_of::<T>().unwrap()
}

fn refused<T: DeserializeOwned>() -> String {
    schema_of::<T>().unwrap_err()
}

/// Whether all of them differ.
fn distinct(ids: &[Schema]) -> bool {
    ids.iter().collect::<BTreeSet<_>>().len() == ids.len()
}

#[derive(Serialize, Deserialize)]
struct Tree {
    value: i32,
    children: Vec<Tree>,
}

#[derive(Serialize, Deserialize)]
struct Generic<T> {
    a: T,
    b: Vec<Option<T>>,
}

#[derive(Serialize, Deserialize)]
enum Expr {
    Sum(Box<Expr>, Box<Expr>),
    Negated(Box<Expr>),
    Named { name: String, value: Option<Box<Expr>> },
    Number(f64),
    Nothing,
}

mod later {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub struct Tree {
        value: i64,
        children: Vec<Tree>,
    }

    #[derive(Serialize, Deserialize)]
    pub enum Expr {
        Sum(Box<Expr>, Box<Expr>),
        Negated(Box<Expr>),
        Named { name: String, value: Option<Box<Expr>> },
        Number(f32),
        Nothing,
    }
}

mod elsewhere {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub struct Tree {
        value: i32,
        children: Vec<Tree>,
    }
}

#[test]
fn the_same_shape_has_the_same_identity() {
    assert_eq!(id::<Tree>(), id::<Tree>());
    assert_eq!(id::<Tree>(), id::<elsewhere::Tree>(), "a module's path is no part of the shape");
    assert_eq!(id::<Box<i32>>(), id::<i32>());
    assert_eq!(id::<HashMap<u8, String>>(), id::<BTreeMap<u8, String>>());
    assert_eq!(id::<Vec<i32>>(), id::<VecDeque<i32>>());
    assert_eq!(id::<usize>(), id::<u64>());
}

#[test]
fn identities_are_the_same_in_every_build() {
    // Published values of the hash, then our own: a change here cuts off nodes of older versions.
    let fnv = |text: &[u8]| {
        let mut hash = Fnv::new();
        hash.bytes(text);
        hash.finish().0
    };
    assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    assert_eq!(fnv(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    assert_eq!(id::<i32>().0, 0x2ce0_2816_1623_ea96_2cfb_2af1_78e1_6b18);
    assert_eq!(id::<Expr>().0, 0x3ca2_4d63_9bd2_5fc8_8a58_e94d_b19e_6fb2);
}

#[test]
fn a_change_anywhere_changes_the_identity() {
    assert!(distinct(&[id::<Tree>(), id::<later::Tree>()]));
    assert!(distinct(&[id::<Expr>(), id::<later::Expr>()]));
    assert!(distinct(&[id::<Generic<f32>>(), id::<Generic<f64>>(), id::<Generic<Option<f32>>>()]));
    assert!(distinct(&[id::<(i32, i64)>(), id::<(i64, i32)>(), id::<(i32, i64, ())>(), id::<[i32; 2]>()]));
    assert!(distinct(&[id::<Vec<u8>>(), id::<String>(), id::<Option<u8>>(), id::<BTreeMap<u8, u8>>()]));
    assert!(distinct(&[id::<()>(), id::<(((),),)>(), id::<((), ())>()]));
    assert!(distinct(&[
        id::<i8>(),
        id::<i16>(),
        id::<i32>(),
        id::<i64>(),
        id::<i128>(),
        id::<u8>(),
        id::<u16>(),
        id::<u32>(),
        id::<u64>(),
        id::<u128>(),
        id::<f32>(),
        id::<f64>(),
        id::<bool>(),
        id::<char>(),
        id::<String>(),
    ]));
}

#[test]
fn names_and_attributes_count() {
    #[derive(Deserialize)]
    #[serde(rename = "Point")]
    struct A {
        _x: i32,
        _y: i32,
    }
    #[derive(Deserialize)]
    #[serde(rename = "Point")]
    struct Swapped {
        _y: i32,
        _x: i32,
    }
    #[derive(Deserialize)]
    #[serde(rename = "Point")]
    struct Skipped {
        _x: i32,
        #[serde(skip)]
        _y: i32,
    }
    #[derive(Deserialize)]
    #[serde(rename = "Position")]
    struct Renamed {
        _x: i32,
        _y: i32,
    }
    assert!(distinct(&[id::<A>(), id::<Swapped>(), id::<Skipped>(), id::<Renamed>()]));
}

#[test]
fn every_variant_counts_wherever_it_is() {
    type Pair<A, B> = (Result<i32, String>, Result<A, B>);
    assert!(distinct(&[id::<Pair<f64, u8>>(), id::<Pair<f64, u16>>(), id::<Pair<f32, u8>>()]));

    // An enum that only one variant of another leads to.
    #[derive(Deserialize)]
    enum Inner<T> {
        _A,
        _B,
        _C(T),
    }
    #[derive(Deserialize)]
    enum Outer<T> {
        _Nested(Vec<Option<Inner<T>>>),
        _Plain,
    }
    assert!(distinct(&[id::<Outer<i32>>(), id::<Outer<i64>>(), id::<Outer<Tree>>()]));
    assert!(distinct(&[id::<Outer<Outer<i32>>>(), id::<Outer<Outer<i64>>>()]));
    type Deep<T> = Result<Result<Result<Result<(), Inner<T>>, ()>, ()>, ()>;
    assert!(distinct(&[id::<Deep<i32>>(), id::<Deep<i64>>()]));

    // A container seen before is not looked into again, but it is told apart.
    type Three<T> = (Vec<i32>, Vec<f32>, Vec<T>);
    assert!(distinct(&[id::<Three<i32>>(), id::<Three<f32>>()]));
}

#[test]
fn variants_that_end_only_after_each_other() {
    #[derive(Deserialize)]
    enum Left<T> {
        _Over(Right<T>),
    }
    #[derive(Deserialize)]
    enum Right<T> {
        _Back(Box<Left<T>>),
        _Two(Box<Left<T>>, Box<Right<T>>),
        _End(T),
    }
    assert!(distinct(&[id::<Left<i32>>(), id::<Left<i64>>(), id::<Right<i32>>()]));
}

#[test]
fn a_large_recursive_family_takes_no_time() {
    macro_rules! family {
        ($($name:ident)*) => { $(
            #[derive(Deserialize)]
            enum $name {
                Zero(Box<Node<$name>>), One(Vec<Node<$name>>), Two(Box<All>, Box<All>, Box<All>), _End,
            }
        )* };
    }
    #[derive(Deserialize)]
    struct Node<T> {
        _attributes: Vec<All>,
        _left: Option<Box<T>>,
        _right: T,
        _all: Option<Box<All>>,
    }
    family!(A B C D E F G H I J K L);
    #[derive(Deserialize)]
    struct All(
        Vec<A>,
        Option<Box<B>>,
        Vec<C>,
        BTreeMap<u8, D>,
        Vec<E>,
        Option<Box<F>>,
        Vec<G>,
        Vec<H>,
        Vec<I>,
        Vec<J>,
        Vec<K>,
        Vec<L>,
    );
    assert_eq!(id::<All>(), id::<All>());
}

#[test]
fn what_postcard_carries_is_seen_to_the_end() {
    // Something behind each of them: were it not seen, the two would be equal.
    macro_rules! seen {
        ($($type:ty),* $(,)?) => { $(
            assert_ne!(id::<($type, i32)>(), id::<($type, i64)>(), stringify!($type));
        )* };
    }
    seen!(i128, u128, char, bool, String, PathBuf, OsString, (), Box<str>, Box<[u8]>, Arc<u8>);
    seen!(Duration, SystemTime, SocketAddr, IpAddr, NonZeroU8, NonZeroI64, std::ffi::CString);
    seen!(Range<i32>, RangeInclusive<u8>, Bound<i64>, std::num::Wrapping<u8>, std::cmp::Reverse<u8>);
    seen!(HashMap<(u8, IpAddr), BTreeSet<Vec<u8>>>, BTreeMap<Option<char>, Duration>, [[f32; 32]; 4]);
    seen!(Result<Vec<Expr>, Tree>, Option<Expr>, Generic<Expr>, std::marker::PhantomData<u8>);
    seen!(std::cell::RefCell<u8>, std::sync::Mutex<u8>, std::sync::atomic::AtomicBool);
}

#[test]
fn types_whose_format_describes_itself_are_refused_by_name() {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        _A(i32),
        _B(String),
    }
    #[derive(Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        _A { _x: i32 },
    }
    #[derive(Deserialize)]
    struct Flat {
        _x: i32,
        #[serde(flatten)]
        _rest: Generic<i32>,
    }
    #[derive(Deserialize)]
    struct Around {
        _ok: i32,
        _list: Vec<Holder>,
    }
    #[derive(Deserialize)]
    struct Holder {
        _untagged: Option<Untagged>,
    }
    for (text, name) in [
        (refused::<Untagged>(), "Untagged` cannot travel"),
        (refused::<Tagged>(), "Tagged` cannot travel"),
        (refused::<Flat>(), "Flat` cannot travel"),
        (refused::<serde::de::IgnoredAny>(), "IgnoredAny` cannot travel"),
        (refused::<Around>(), "Around` cannot travel"),
        (refused::<Around>(), "Untagged>`: its format"),
    ] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn adjacently_tagged_enums_are_refused_because_postcard_does_not_read_them() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "kind", content = "value")]
    enum Adjacent {
        A(i32),
    }
    let bytes = postcard::to_allocvec(&Adjacent::A(1)).unwrap();
    postcard::from_bytes::<Adjacent>(&bytes).unwrap_err();
    assert!(refused::<(u8, Adjacent)>().contains("in `rref::"), "{}", refused::<(u8, Adjacent)>());
}

#[test]
fn a_panic_in_users_code_is_an_error() {
    struct Panics;
    impl<'de> Deserialize<'de> for Panics {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Panics, D::Error> {
            panic!("bang {}", 7)
        }
    }
    let text = refused::<(i32, Panics)>();
    assert!(text.contains("Panics") && text.contains("bang 7"), "{text}");
    assert!(!tracing());
    id::<Tree>();
}

#[test]
fn a_type_that_checks_its_values_ends_the_trace_and_no_more() {
    #[derive(Deserialize)]
    #[serde(try_from = "i32")]
    struct Even(#[serde(skip)] i32);
    impl TryFrom<i32> for Even {
        type Error = String;
        fn try_from(value: i32) -> Result<Even, String> {
            if value % 2 == 0 { Ok(Even(value)) } else { Err(format!("{value} is odd")) }
        }
    }
    assert_eq!(id::<Even>(), id::<Even>());
    assert!(distinct(&[id::<(Even,)>(), id::<(i64, Even)>()]));
    // Only the variant at fault is given up, also when it is the first.
    #[derive(Deserialize)]
    enum Choice<T> {
        _Strict(Even),
        _Free(T),
    }
    assert!(distinct(&[id::<Vec<Choice<i32>>>(), id::<Vec<Choice<i64>>>()]));
    assert!(distinct(&[id::<(Choice<u8>, i32)>(), id::<(Choice<u8>, i64)>()]));
}

#[test]
fn bounds_hold() {
    struct Endless;
    impl<'de> Deserialize<'de> for Endless {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Endless, D::Error> {
            <(Box<Endless>,)>::deserialize(d).map(|_| Endless)
        }
    }
    #[derive(Deserialize)]
    enum Never {}
    #[derive(Deserialize)]
    enum Forever {
        _A(Box<Forever>),
        _B(Box<Forever>, Never),
    }
    type Wide = [[[[[u8; 32]; 32]; 32]; 32]; 32];
    assert_eq!(id::<Endless>(), id::<Endless>());
    assert_eq!(id::<Never>(), id::<Never>());
    assert_eq!(id::<Forever>(), id::<Forever>());
    std::thread::Builder::new().stack_size(256 << 20).spawn(id::<Box<Wide>>).unwrap().join().unwrap();
}

#[test]
fn types_may_describe_themselves() {
    struct Handle<const N: usize>;
    impl<'de, const N: usize> Deserialize<'de> for Handle<N> {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Handle<N>, D::Error> {
            assert!(tracing());
            mark(&format!("RRef<{N}>"));
            Ok(Handle)
        }
    }
    assert!(distinct(&[id::<Handle<1>>(), id::<Handle<2>>(), id::<(Handle<1>,)>()]));
    assert!(distinct(&[id::<(Handle<1>, i32)>(), id::<(Handle<1>, i64)>()]));
    assert!(!tracing());
    mark("outside a trace: nothing happens");
}

#[test]
fn a_trace_within_a_trace_does_not_disturb_it() {
    struct Nosy;
    impl<'de> Deserialize<'de> for Nosy {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Nosy, D::Error> {
            id::<Expr>();
            assert!(tracing());
            i32::deserialize(d).map(|_| Nosy)
        }
    }
    assert_eq!(id::<(Nosy, i64)>(), id::<(i32, i64)>());
}

#[test]
fn parts_count_in_their_order() {
    let (a, b) = (id::<i32>().0, id::<i64>().0);
    let all = [
        of_text(""),
        of_text("a"),
        join(&[]),
        join(&[a]),
        join(&[a, b]),
        join(&[b, a]),
        join(&[a, b, b]),
        a,
        b,
    ];
    assert!(distinct(&all.map(Schema)));
}
