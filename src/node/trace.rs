//! Which trace the code on this thread belongs to, and the spans on both sides of a call.
//!
//! A call from within a handler belongs to the trace of the call that is being handled. So each piece
//! of user code runs with its trace set on its thread, as [`current`](super::current) does for the
//! node, and whatever is queued meanwhile takes it along. Without a subscriber, and without a traced
//! caller, there is no trace, and all of this is a few loads and branches.
//!
//! Knows names and numbers; a span must not show what a message carries.

use super::Node;
use rref_core::NodeUid;
use rref_core::wire::Trace;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use tracing::field::Empty;
use tracing::{Span, debug_span};

thread_local! {
    static CURRENT: RefCell<Traced> = const { RefCell::new(Traced(None)) };
}

/// The trace that a piece of user code belongs to; none as a rule.
#[derive(Clone, Default)]
pub(crate) struct Traced(Option<Arc<Context>>);

struct Context {
    trace: Trace,
    /// The owner's span; none if nobody here wants it.
    span: Span,
}

impl Traced {
    /// The trace of the code that runs on this thread now.
    pub(crate) fn current() -> Traced {
        CURRENT.with_borrow(Clone::clone)
    }

    /// A call of `from`'s begins on `node`: its span, if somebody wants it, and its trace.
    ///
    /// Not to be called with the node's state locked: it may run a subscriber.
    pub(crate) fn arrived(node: &Node, from: NodeUid, function: &str, sent: Trace) -> Traced {
        let mut trace = sent;
        let span = debug_span!(
            target: "rref::call",
            parent: None,
            "handle",
            peer = %name_of(node, from),
            function,
            trace_id = %TraceId({
                // The caller does not trace, but this node does.
                if trace.trace_id == 0 {
                    trace = begun(node, trace);
                }
                trace.trace_id
            }),
            parent_id = %SpanId(sent.span_id),
        );
        if trace.trace_id == 0 { Traced(None) } else { Traced(Some(Arc::new(Context { trace, span }))) }
    }

    /// The identity of the trace; 0 for none.
    pub(crate) fn id(&self) -> u128 {
        self.trace().trace_id
    }

    fn trace(&self) -> Trace {
        self.0.as_ref().map_or_else(Trace::default, |context| context.trace)
    }

    /// Makes it the current one, and enters its span, until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let before = CURRENT.replace(self.clone());
        Entered { before, _span: self.0.as_ref().map(|context| context.span.enter()) }
    }
}

/// The identity of the trace that the code on this thread belongs to; 0 for none.
pub(crate) fn current_id() -> u128 {
    CURRENT.with_borrow(Traced::id)
}

pub(crate) struct Entered<'a> {
    before: Traced,
    _span: Option<tracing::span::Entered<'a>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        let left = CURRENT.replace(before);
        // After the borrow has ended: the last share of a span runs its subscriber.
        drop(left);
    }
}

/// A call of `node` leaves for `to`: what its frame says of the trace, and the caller's span, which
/// is disabled if nobody wants it.
///
/// Not to be called with the node's state locked: it may run a subscriber.
pub(crate) fn leaving(node: &Node, to: NodeUid, function: &str) -> (Trace, Span) {
    let mut trace = CURRENT.with_borrow(Traced::trace);
    let span = debug_span!(
        target: "rref::call",
        "call",
        peer = %name_of(node, to),
        function,
        trace_id = %TraceId({
            trace = begun(node, trace);
            trace.trace_id
        }),
        span_id = %SpanId(trace.span_id),
        outcome = Empty,
    );
    (trace, span)
}

/// A new span's identity, within a trace or in a new one.
fn begun(node: &Node, within: Trace) -> Trace {
    let surroundings = &node.inner().config.surroundings;
    // A system without randomness starts no node: zeros would only mean that there is no trace.
    let trace_id = match within.trace_id {
        0 => u128::from_le_bytes(surroundings.random_bytes().unwrap_or_default()),
        known => known,
    };
    Trace { trace_id, span_id: u64::from_le_bytes(surroundings.random_bytes().unwrap_or_default()) }
}

/// The lock must be free again before a subscriber runs.
fn name_of(node: &Node, uid: NodeUid) -> String {
    node.lock().name_of(uid)
}

/// As W3C's trace context writes it.
struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// As W3C's trace context writes it.
struct SpanId(u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
