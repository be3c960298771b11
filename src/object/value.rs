//! The actor that plain data lives in, and the borrow of it that its owner may take.

use actix::{Actor, Context};
use std::{fmt, ops, sync::Arc};

/// The actor that hosts plain data.
///
/// Implement `Handler<M> for Value<YourData>` to let other nodes send `M` to it. It derefs to the
/// data; a write copies the data only while somebody still borrows it
/// ([`LocalValue`]), which needs `Clone`.
///
/// ```
/// use rref::prelude::*;
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Config { rate: f32 }
///
/// #[derive(Serialize, Deserialize, Message)]
/// #[rtype(result = "()")]
/// struct SetRate(f32);
///
/// impl Handler<SetRate> for Value<Config> {
///     type Result = ();
///     fn handle(&mut self, SetRate(rate): SetRate, _: &mut Context<Self>) { self.rate = rate; }
/// }
/// let builder = Node::builder("me").message::<Config, SetRate>();
/// ```
pub struct Value<T> {
    value: Arc<T>,
}

impl<T> Value<T> {
    pub(crate) fn new(value: T) -> Value<T> {
        Value { value: Arc::new(value) }
    }

    /// The value, to be changed; copied first if somebody borrows it.
    pub(crate) fn make_mut(&mut self) -> &mut T
    where
        T: Clone,
    {
        Arc::make_mut(&mut self.value)
    }

    pub(crate) fn share(&self) -> LocalValue<T> {
        LocalValue(self.value.clone())
    }
}

impl<T: Send + Sync + 'static> Actor for Value<T> {
    type Context = Context<Self>;
}

impl<T> ops::Deref for Value<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> ops::DerefMut for Value<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.make_mut()
    }
}

/// A borrow of a value on the node that owns it: no copy, no serialisation.
///
/// It is the value as it was when the borrow was taken: later writers write to a copy.
pub struct LocalValue<T>(Arc<T>);

impl<T> ops::Deref for LocalValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for LocalValue<T> {
    fn clone(&self) -> LocalValue<T> {
        LocalValue(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for LocalValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
