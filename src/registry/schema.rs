//! Identity of the types that messages are made of.
//!
//! postcard's bytes do not describe themselves: an `i64` read where an `i32` was written gives nonsense
//! and no error. So both sides compute a number from the shape of a type and compare it before the first
//! use. The shape is found by running the type's own `Deserialize` against a recorder, which needs no
//! derive of ours and sees every serde attribute.
//!
//! Included are the names of types, fields and variants, the order of fields, every primitive, tensors'
//! element types and the wire names of handles' targets. The identity is conservative: replacing a
//! `Vec<A>` by a `VecDeque<A>` may change it although the bytes are the same. Where `Deserialize`
//! rejects the recorder's made-up values (a validating `try_from`), the trace ends early there: the
//! identity is weaker, and still equal on both sides.
//!
//! This module knows serde; it must not know messages, handles or tensors: those call [`mark`].

mod reader;
mod recorder;
#[cfg(test)]
mod tests;

use reader::Reader;
use recorder::Recorder;
use serde::de::DeserializeOwned;
use std::{
    any::{Any, type_name},
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

/// Identity of a type: FNV-1a of 128 bits over its description.
///
/// It tells versions of a program apart. It does not withstand somebody who wants a collision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Schema(pub u128);

/// The identity of what has a name on the wire and no shape there, e.g. an actor.
pub(crate) fn of_text(name: &str) -> u128 {
    let mut hash = Fnv::new();
    hash.text("name");
    hash.text(name);
    hash.finish().0
}

/// The identity of several things together, in this order, e.g. a function's arguments and its result.
pub(crate) fn join(parts: &[u128]) -> u128 {
    let mut hash = Fnv::new();
    hash.text("join");
    hash.number(parts.len());
    for part in parts {
        hash.bytes(&part.to_le_bytes());
    }
    hash.finish().0
}

/// The identity of `T`: the same in every program in which `T` has the same shape.
///
/// Costs some tens of microseconds: keep the result. Time and stack are bounded, also for recursive
/// types. Runs `T::deserialize`, and whatever users' code is in it, on made-up values.
///
/// # Errors
///
/// A text that names the type: when postcard cannot carry it, because its format describes itself
/// (serde's `untagged`, `tag` and `flatten`, `serde_json::Value`), or when its `Deserialize`
/// panics.
pub(crate) fn schema_of<T: DeserializeOwned>() -> Result<Schema, String> {
    let recorder = Rc::new(RefCell::new(Recorder::new()));
    let _scope = Scope::enter(recorder.clone());
    loop {
        recorder.borrow_mut().begin();
        // The value is dropped inside as well: its `Drop` is users' code too.
        let run = catch_unwind(AssertUnwindSafe(|| T::deserialize(Reader::new(&recorder)).is_ok()));
        let complete = run.map_err(|panic| {
            format!("`{}` panics in its Deserialize: {}", type_name::<T>(), panic_text(panic.as_ref()))
        })?;
        let mut recorder = recorder.borrow_mut();
        if let Some(culprit) = recorder.refused() {
            return Err(refusal(type_name::<T>(), culprit));
        }
        if !recorder.end(complete) {
            return Ok(recorder.schema());
        }
    }
}

/// Records `what` as the description of the value being read. Does nothing outside a trace.
pub(crate) fn mark(what: &str) {
    if let Some(recorder) = TRACES.with_borrow(|traces| traces.last().cloned()) {
        recorder.borrow_mut().marked(what);
    }
}

/// Whether this thread is inside [`schema_of`]: what is read now is made up and gets thrown away.
pub(crate) fn tracing() -> bool {
    TRACES.with_borrow(|traces| !traces.is_empty())
}

thread_local! {
    /// The running traces, innermost last: users' code inside one may start another.
    static TRACES: RefCell<Vec<Rc<RefCell<Recorder>>>> = const { RefCell::new(Vec::new()) };
}

/// Ends the trace on every way out.
struct Scope;

impl Scope {
    fn enter(recorder: Rc<RefCell<Recorder>>) -> Scope {
        TRACES.with_borrow_mut(|traces| traces.push(recorder));
        Scope
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        TRACES.with_borrow_mut(|traces| traces.pop());
    }
}

fn refusal(root: &str, culprit: Option<&str>) -> String {
    let place = match culprit {
        Some(name) if name != root => format!(", in `{name}`"),
        _ => String::new(),
    };
    format!(
        "`{root}` cannot travel in a message{place}: its format describes itself, which postcard's does not; \
         do without serde's `untagged`, `tag` and `flatten`, and without types like serde_json::Value"
    )
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a panic without a text",
    }
}

/// FNV-1a with 128 bits, <http://www.isthe.com/chongo/tech/comp/fnv/>.
#[derive(Debug)]
struct Fnv(u128);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    /// The length goes first, so that no two lists of texts run together into the same bytes.
    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.bytes(text.as_bytes());
    }

    /// As 64 bits, on 32-bit machines too.
    fn number(&mut self, number: usize) {
        self.bytes(&(number as u64).to_le_bytes());
    }

    fn finish(&self) -> Schema {
        Schema(self.0)
    }
}
