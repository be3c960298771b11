//! Plain `fn` items as remote functions.
//!
//! A function is told apart by its arguments and by whether it is async: each is a marker type, so
//! that one blanket implementation covers each combination (as in axum's handlers).

use super::{FunctionEntry, Placement, schema};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::construction::Construction;
use crate::node::trace::Traced;
use crate::object::invoke::{contained, contained_future};
use crate::object::{Answer, Returns, Site};
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
    note = "a closure must not capture anything: what it needs is an argument",
    note = "the tuple must match the parameters exactly; each must be serde data without lifetimes; at most 6",
    note = "the result must be data or an rref actor (`#[derive(rref::Object)]`)"
)]
pub trait Function<Args, Marker>: Copy + Send + Sync + 'static {
    /// What it returns.
    type Return: Returns<Self::Kind>;
    /// Whether that is an object, a `Result` of one, or a stream.
    type Kind: 'static;

    /// Whether it is an `async fn`.
    #[doc(hidden)]
    const ASYNC: bool;

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

fn function_schema<A: DeserializeOwned, R: Returns<K>, K>() -> Result<u128, String> {
    Ok(schema::join(&[schema::schema_of::<A>()?.0, R::schema()?]))
}

macro_rules! functions {
    ($($($arg:ident)*;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<F, R, K, $($arg,)*> Function<($($arg,)*), (Plainly, K)> for F
        where
            F: Fn($($arg),*) -> R + Copy + Send + Sync + 'static,
            R: Returns<K>,
            K: 'static,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            type Return = R;
            type Kind = K;

            const ASYNC: bool = false;

            #[allow(non_snake_case)] // the macro's type names serve as variables
            fn invoke(self, ($($arg,)*): ($($arg,)*)) -> Invocation<R> {
                Invocation::Done(self($($arg),*))
            }

            fn schema() -> Result<u128, String> {
                function_schema::<($($arg,)*), R, K>()
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
            R: Returns<K>,
            K: 'static,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            type Return = R;
            type Kind = K;

            const ASYNC: bool = true;

            #[allow(non_snake_case)] // the macro's type names serve as variables
            fn invoke(self, ($($arg,)*): ($($arg,)*)) -> Invocation<R> {
                Invocation::Running(Box::pin(self($($arg),*)))
            }

            fn schema() -> Result<u128, String> {
                function_schema::<($($arg,)*), R, K>()
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
pub(crate) fn run<F, A, K>(
    node: &Node,
    placement: Placement,
    function: F,
    args: A,
    done: impl FnOnce(Result<F::Return>) + 'static,
) where
    F: Function<A, K>,
    A: Send + 'static,
{
    let name = type_name::<F>();
    if placement == Placement::Blocking && !F::ASYNC && node.inner().config.surroundings.has_threads() {
        let (on, traced) = (node.clone(), Traced::current());
        let work = move || {
            let _traced = traced.enter();
            contained(&on, name, || match function.invoke(args) {
                Invocation::Done(value) => Ok(value),
                Invocation::Running(_) => Err(Error::Config(format!("`{name}` is async"))),
            })
        };
        let (node, pool) = (node.clone(), tokio::task::spawn_blocking(work));
        actix_rt::spawn(async move {
            let closed = |_| Err(Error::ShuttingDown { node: node.name().to_string() });
            done(pool.await.unwrap_or_else(closed));
        });
        return;
    }
    match contained(node, name, || Ok(function.invoke(args))) {
        Err(error) => done(Err(error)),
        Ok(Invocation::Done(value)) => done(Ok(value)),
        Ok(Invocation::Running(future)) => {
            let running = contained_future(node.clone(), name, future);
            actix_rt::spawn(async move { done(running.await) });
        }
    }
}

/// The registry's entry for `function`.
pub(crate) fn entry<F, A, K>(function: F, placement: Placement) -> Result<FunctionEntry, String>
where
    F: Function<A, K>,
    A: Send + 'static,
{
    let decode = |incoming: Incoming| {
        let node = incoming.node.clone();
        contained(&node, type_name::<F>(), || F::decode(ReceivedArgs(incoming)))
    };
    Ok(FunctionEntry {
        placement,
        schema: F::schema()?,
        call: Box::new(move |incoming, responder| {
            if responder.is_cancelled() {
                return responder.complete(Err(Error::Timeout(std::time::Duration::ZERO)));
            }
            let node = incoming.node.clone();
            match decode(incoming) {
                Err(error) => responder.complete(Err(error)),
                Ok(args) => run(&node, placement, function, args, move |returned| match returned {
                    Ok(returned) => returned.respond(Answer(responder)),
                    Err(error) => responder.complete(Err(error)),
                }),
            }
        }),
        create: Box::new(move |incoming, construction| {
            let node = incoming.node.clone();
            match decode(incoming) {
                Err(error) => construction.fail(error),
                Ok(args) => {
                    let construction = construction.placed(placement);
                    run(&node, placement, function, args, move |returned| construction.settle(returned));
                }
            }
        }),
    })
}

/// What of a function the node needs to settle an object: used by local and remote creation alike.
impl Construction {
    /// Seats what the function returned, or records why there is nothing.
    pub(crate) fn settle<R: Returns<K>, K>(self, returned: Result<R>) {
        match returned {
            Err(error) => self.fail(error),
            Ok(returned) => returned.keep(Site(self)),
        }
    }
}
