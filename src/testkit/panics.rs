//! Panics: caught where they happen, named by the node whose code it was.
//!
//! A panic in a handler is an error for its callers, and easily overlooked in a test. So the test kit
//! writes down each one.

use crate::node::Node;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::PanicHookInfo;
use std::rc::Rc;
use std::sync::Once;

/// A panic in code that ran in a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Panic {
    /// The node whose code it was; none for the test's own code.
    pub node: Option<String>,
    /// What it said.
    pub text: String,
    /// The file and the line.
    pub location: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "on `{node}` at {}: {}", self.location, self.text),
            None => write!(f, "in the test at {}: {}", self.location, self.text),
        }
    }
}

type Told = Rc<dyn Fn(Panic)>;

thread_local! {
    static LISTENER: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// Tells of this thread's panics until it is dropped.
pub(super) struct Listening;

impl Listening {
    pub(super) fn start(told: impl Fn(Panic) + 'static) -> Listening {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| hook(info, &*before)));
        });
        LISTENER.set(Some(Rc::new(told)));
        Listening
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENER.set(None);
    }
}

fn hook(info: &PanicHookInfo<'_>, otherwise: &(dyn Fn(&PanicHookInfo<'_>) + Send + Sync)) {
    let listener = LISTENER.try_with(|listener| listener.try_borrow().ok()?.clone()).ok().flatten();
    let Some(told) = listener else { return otherwise(info) };
    let node = Node::current().map(|node| node.name().to_string());
    let location = info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
    told(Panic { node, text: text(info.payload()), location });
}

/// The text of a panic, or a stand-in where it carries something else.
pub(super) fn text(panic: &(dyn Any + Send)) -> String {
    crate::object::seat::panic_text(panic)
}
