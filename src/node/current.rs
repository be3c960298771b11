//! Which node runs the code that runs now. Several nodes may share a thread, so it is set around
//! every piece of user code, and unset after it.

use super::Node;
use std::cell::RefCell;

thread_local! {
    static CURRENT: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// Makes `node` the current one until the guard is dropped.
pub(crate) fn enter(node: &Node) -> Entered {
    let node = Some(node.clone());
    Entered { before: CURRENT.with_borrow_mut(|current| std::mem::replace(current, node)) }
}

/// The node whose code runs on this thread now.
pub(crate) fn current() -> Option<Node> {
    CURRENT.with_borrow(Clone::clone)
}

pub(crate) struct Entered {
    before: Option<Node>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        let left = CURRENT.with_borrow_mut(|current| std::mem::replace(current, before));
        drop(left);
    }
}
