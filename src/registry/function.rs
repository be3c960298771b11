//! Plain `fn` items as remote functions.
//!
//! A function is told apart by its arguments and by whether it is async: each is a marker type, so
//! that one blanket implementation covers each combination (as in axum's handlers).

use super::{FunctionEntry, encode_result, schema};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::construction::Construction;
use crate::node::responder::Responder;
use crate::object::invoke::{contained, contained_future};
use crate::object::{Object, Outcome};
use crate::payload::{Incoming, Outgoing};
use serde::{Serialize, de::DeserializeOwned};
use std::any::type_name;
use std::future::Future;
use std::pin::Pin;

/// A `fn` or `async fn` item that other nodes may call.
///
/// Implemented for all that take up to six [`Data`](crate::Data) arguments and return data, an
/// actor, or a `Result` of an actor. Pass the item itself and its arguments as a tuple:
/// `node.call("worker1", add, (x, 1.0))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be called remotely with arguments `{Args}`",
    label = "not a remote function for these arguments",
    note = "pass a plain `fn` or `async fn` by name, and its arguments as a tuple: `(x, y)`, `(x,)` for one, `()` for none",
    note = "the tuple must match the parameters exactly; each must be serde data without lifetimes; at most 6",
    note = "the result must be data or an rref actor (`#[derive(rref::Object)]`)"
)]
pub trait Function<Args, Marker>: Copy + Send + Sync + 'static {
    /// What it returns.
    type Return: Outcome<Self::Kind> + Send;
    /// Whether that is an object, or a `Result` of one.
    type Kind: 'static;

    /// Runs it.
    #[doc(hidden)]
    fn invoke(self, args: Args) -> Invocation<Self::Return>;
    /// Identity of its argument and result types.
    #[doc(hidden)]
    fn schema() -> Result<u128, String>;
    /// Encodes its arguments.
    #[doc(hidden)]
    fn encode(node: &Node, args: &Args) -> Result<EncodedArgs>;
    /// Decodes its arguments.
    #[doc(hidden)]
    fn decode(args: ReceivedArgs) -> Result<Args>;
}

/// Encoded arguments, opaque to users.
#[doc(hidden)]
pub struct EncodedArgs(pub(crate) Outgoing);

/// Received arguments, opaque to users.
#[doc(hidden)]
pub struct ReceivedArgs(pub(crate) Incoming);

/// A function's result, at once or later.
#[doc(hidden)]
pub enum Invocation<R> {
    /// It was a plain function.
    Done(R),
    /// It was async.
    Running(Pin<Box<dyn Future<Output = R>>>),
}

/// Marks a plain function.
#[doc(hidden)]
pub struct Plainly;

/// Marks an async function.
#[doc(hidden)]
pub struct Asynchronously;

pub(crate) fn encode_args<A: Serialize>(node: &Node, args: &A) -> Result<EncodedArgs> {
    Outgoing::encode(node, args).map(EncodedArgs)
}

pub(crate) fn decode_args<A: DeserializeOwned>(args: ReceivedArgs) -> Result<A> {
    args.0.decode()
}

fn function_schema<A: DeserializeOwned, O: Object>() -> Result<u128, String> {
    Ok(schema::join(&[schema::schema_of::<A>()?.0, O::schema()?]))
}

macro_rules! functions {
    ($($($arg:ident)*;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<F, R, K, $($arg,)*> Function<($($arg,)*), (Plainly, K)> for F
        where
            F: Fn($($arg),*) -> R + Copy + Send + Sync + 'static,
            R: Outcome<K> + Send,
            K: 'static,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            type Return = R;
            type Kind = K;

            #[allow(non_snake_case)] // the macro's type names serve as variables
            fn invoke(self, ($($arg,)*): ($($arg,)*)) -> Invocation<R> {
                Invocation::Done(self($($arg),*))
            }

            fn schema() -> Result<u128, String> {
                function_schema::<($($arg,)*), R::Object>()
            }

            fn encode(node: &Node, args: &($($arg,)*)) -> Result<EncodedArgs> {
                encode_args(node, args)
            }

            fn decode(args: ReceivedArgs) -> Result<($($arg,)*)> {
                decode_args(args)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F, Fut, R, K, $($arg,)*> Function<($($arg,)*), (Asynchronously, K)> for F
        where
            F: Fn($($arg),*) -> Fut + Copy + Send + Sync + 'static,
            Fut: Future<Output = R> + 'static,
            R: Outcome<K> + Send,
            K: 'static,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            type Return = R;
            type Kind = K;

            #[allow(non_snake_case)] // the macro's type names serve as variables
            fn invoke(self, ($($arg,)*): ($($arg,)*)) -> Invocation<R> {
                Invocation::Running(Box::pin(self($($arg),*)))
            }

            fn schema() -> Result<u128, String> {
                function_schema::<($($arg,)*), R::Object>()
            }

            fn encode(node: &Node, args: &($($arg,)*)) -> Result<EncodedArgs> {
                encode_args(node, args)
            }

            fn decode(args: ReceivedArgs) -> Result<($($arg,)*)> {
                decode_args(args)
            }
        }
    )* };
}

functions! { ; A; A B; A B C; A B C D; A B C D E; A B C D E G; }

/// Refuses, at compile time, what only looks like a function item: its type must identify it.
pub(crate) const fn assert_item<F>() {
    assert!(
        size_of::<F>() == 0,
        "rref: pass the function itself (a `fn` item), not a fn pointer or a closure that captures: only its type identifies it on the other node"
    );
}

/// Runs `function` and hands what it returns, or its panic, to `done`.
///
/// A plain function runs at once; an async one as a task of the current arbiter.
pub(crate) fn run<F, A, K>(node: &Node, function: F, args: A, done: impl FnOnce(Result<F::Return>) + 'static)
where
    F: Function<A, K>,
{
    let name = type_name::<F>();
    match contained(node, name, || Ok(function.invoke(args))) {
        Err(error) => done(Err(error)),
        Ok(Invocation::Done(value)) => done(Ok(value)),
        Ok(Invocation::Running(future)) => {
            let node = node.clone();
            actix_rt::spawn(async move { done(contained_future(node, name, future).await) });
        }
    }
}

/// The registry's entry for `function`.
pub(crate) fn entry<F, A, K>(function: F) -> Result<FunctionEntry, String>
where
    F: Function<A, K>,
    A: 'static,
{
    let decode = |incoming: Incoming| {
        let node = incoming.node.clone();
        contained(&node, type_name::<F>(), || F::decode(ReceivedArgs(incoming)))
    };
    Ok(FunctionEntry {
        schema: F::schema()?,
        call: Box::new(move |incoming, responder| {
            if responder.is_cancelled() {
                return responder.complete(Err(Error::Timeout(std::time::Duration::ZERO)));
            }
            let node = incoming.node.clone();
            match decode(incoming) {
                Err(error) => responder.complete(Err(error)),
                Ok(args) => run(&node.clone(), function, args, move |returned| {
                    let result = returned.and_then(|returned| {
                        contained(&node, type_name::<F>(), || {
                            let object = returned.outcome().map_err(Error::CreateFailed)?;
                            encode_result(&node, object)
                        })
                    });
                    responder.complete(result);
                }),
            }
        }),
        create: Box::new(move |incoming, construction| {
            let node = incoming.node.clone();
            match decode(incoming) {
                Err(error) => construction.fail(error),
                Ok(args) => run(&node, function, args, move |returned| construction.settle(returned)),
            }
        }),
    })
}

/// What of a function the node needs to settle an object: used by local and remote creation alike.
impl Construction {
    /// Seats what the function returned, or records why there is nothing.
    pub(crate) fn settle<R: Outcome<K>, K>(self, returned: Result<R>) {
        match returned {
            Err(error) => self.fail(error),
            // The error's `Display` is user code.
            Ok(returned) => match contained(self.node(), type_name::<R>(), || {
                returned.outcome().map_err(Error::CreateFailed)
            }) {
                Ok(object) => self.seat(object),
                Err(error) => self.fail(error),
            },
        }
    }
}

impl Responder {
    /// Whether the caller has given up, so that the call need not start.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Acquire))
    }
}
