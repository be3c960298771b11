//! Plain functions that run against an object where it lives: `fn(&T, ..) -> R` and its relatives.
//!
//! As with functions, a marker type tells the kinds apart: by shared reference, by mutable reference
//! (for actors and for data, which is copied while somebody borrows it), and async on data.

use super::function::{EncodedArgs, ReceivedArgs, decode_args, encode_args};
use super::{MethodEntry, schema};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::responder::Responder;
use crate::object::invoke::Completion;
use crate::object::seat::Seat;
use crate::object::{Data, Hosted, Object, Value, invoke};
use crate::payload::Outgoing;
use actix::{Actor, Context};
use serde::{Serialize, de::DeserializeOwned};
use std::any::{TypeId, type_name};
use tokio::sync::oneshot;

/// A `fn` item that runs against an object on its owner; only its result travels.
///
/// Implemented for all whose first parameter is `&T` or `&mut T`, and whose up to five others, and
/// result, are [`Data`]; for data also for `async fn(&T, ..)`:
/// `fn norm(x: &Tensor<f32>, k: f32) -> f32` is used as `rref.apply(norm, (0.5,))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be applied to `{T}` with arguments `{Args}`",
    label = "not a method of `{T}` for these arguments",
    note = "the first parameter must be `&{T}` or `&mut {T}`; the others are the tuple: `(x, y)`, `(x,)` for one, `()` for none",
    note = "`&mut` on data needs `Clone`; `async` works on data by shared reference"
)]
pub trait Method<T: Hosted, Args, Marker>: Copy + Send + Sync + 'static {
    /// What it returns.
    type Return: Data;

    /// Runs it at the object's seat.
    #[doc(hidden)]
    fn invoke(
        self,
        seat: MethodSeat<'_, T>,
        node: &Node,
        args: MethodArgs<Args>,
        reply: MethodReply<Self::Return>,
    );
    /// Identity of its argument and result types, and of the object.
    #[doc(hidden)]
    fn schema() -> Result<u128, String>;
    /// Encodes its arguments.
    #[doc(hidden)]
    fn encode(node: &Node, args: &Args) -> Result<EncodedArgs>;
    /// Decodes its arguments.
    #[doc(hidden)]
    fn decode(args: ReceivedArgs) -> Result<Args>;
}

/// The seat a method runs at, opaque to users.
#[doc(hidden)]
pub struct MethodSeat<'a, T: Hosted>(pub(crate) &'a Seat<T::Host>);

/// A method's arguments, still to be decoded if they have travelled; opaque to users.
#[doc(hidden)]
pub struct MethodArgs<A>(Box<dyn FnOnce() -> Result<A> + Send>);

impl<A: Send + 'static> MethodArgs<A> {
    pub(crate) fn local(args: A) -> MethodArgs<A> {
        MethodArgs(Box::new(move || Ok(args)))
    }
}

/// Where a method's result goes, opaque to users.
#[doc(hidden)]
pub enum MethodReply<R> {
    #[doc(hidden)]
    Local(LocalReply<R>),
    #[doc(hidden)]
    Remote(RemoteReply<R>),
}

/// To a caller on this node.
#[doc(hidden)]
pub struct LocalReply<R>(oneshot::Sender<Result<R>>);

/// To a caller on another node.
#[doc(hidden)]
pub struct RemoteReply<R>(crate::node::responder::Encoding<R>);

impl<R: Data> MethodReply<R> {
    pub(crate) fn local(reply: oneshot::Sender<Result<R>>) -> MethodReply<R> {
        MethodReply::Local(LocalReply(reply))
    }

    fn remote(responder: Responder) -> MethodReply<R> {
        MethodReply::Remote(RemoteReply(responder.encoding(|node, value| Outgoing::encode(node, &value))))
    }
}

impl<R: Data> Completion<R> for MethodReply<R> {
    fn cancelled(&self) -> bool {
        match self {
            MethodReply::Local(reply) => reply.0.is_closed(),
            MethodReply::Remote(reply) => reply.0.cancelled(),
        }
    }

    fn complete(self, result: Result<R>) {
        match self {
            MethodReply::Local(reply) => drop(reply.0.send(result)),
            MethodReply::Remote(reply) => reply.0.complete(result),
        }
    }
}

/// Marks a method that takes its object by shared reference.
#[doc(hidden)]
pub struct ByRef;

/// Marks a method that takes an actor by mutable reference.
#[doc(hidden)]
pub struct ByMutActor;

/// Marks a method that takes data by mutable reference.
#[doc(hidden)]
pub struct ByMutData;

/// Marks an async method on data.
#[doc(hidden)]
pub struct AsyncByRef;

fn method_schema<T: Object, A: DeserializeOwned, R: Object>() -> Result<u128, String> {
    let args = schema::schema_of::<A>()?.0;
    Ok(schema::join(&[schema::of_text(&T::wire_name()), args, R::schema()?]))
}

/// What is the same for all kinds of methods.
macro_rules! encoding {
    ($object:ident, $result:ident, $($arg:ident)*) => {
        type Return = $result;

        fn schema() -> Result<u128, String> {
            method_schema::<$object, ($($arg,)*), $result>()
        }

        fn encode(node: &Node, args: &($($arg,)*)) -> Result<EncodedArgs> {
            encode_args(node, args)
        }

        fn decode(args: ReceivedArgs) -> Result<($($arg,)*)> {
            decode_args(args)
        }
    };
}

macro_rules! methods {
    ($($($arg:ident)*;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<F, T, R, $($arg,)*> Method<T, ($($arg,)*), ByRef> for F
        where
            F: for<'a> Fn(&'a T $(, $arg)*) -> R + Copy + Send + Sync + 'static,
            T: Hosted,
            R: Data,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            encoding!(T, R, $($arg)*);

            fn invoke(
                self,
                seat: MethodSeat<'_, T>,
                node: &Node,
                args: MethodArgs<($($arg,)*)>,
                reply: MethodReply<R>,
            ) {
                let run = move |object: &T| {
                    #[allow(non_snake_case)] // the macro's type names serve as variables
                    let ($($arg,)*) = (args.0)()?;
                    Ok(self(object $(, $arg)*))
                };
                invoke::apply::<T, _, _>(seat.0, node, type_name::<F>(), run, reply);
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F, T, R, $($arg,)*> Method<T, ($($arg,)*), ByMutActor> for F
        where
            F: for<'a> Fn(&'a mut T $(, $arg)*) -> R + Copy + Send + Sync + 'static,
            T: Hosted<Host = T> + Actor<Context = Context<T>>,
            R: Data,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            encoding!(T, R, $($arg)*);

            fn invoke(
                self,
                seat: MethodSeat<'_, T>,
                node: &Node,
                args: MethodArgs<($($arg,)*)>,
                reply: MethodReply<R>,
            ) {
                let run = move |object: &mut T| {
                    #[allow(non_snake_case)] // the macro's type names serve as variables
                    let ($($arg,)*) = (args.0)()?;
                    Ok(self(object $(, $arg)*))
                };
                invoke::apply_mut(seat.0, node, type_name::<F>(), run, reply);
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F, T, R, $($arg,)*> Method<T, ($($arg,)*), ByMutData> for F
        where
            F: for<'a> Fn(&'a mut T $(, $arg)*) -> R + Copy + Send + Sync + 'static,
            T: Data + Clone,
            R: Data,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            encoding!(T, R, $($arg)*);

            fn invoke(
                self,
                seat: MethodSeat<'_, T>,
                node: &Node,
                args: MethodArgs<($($arg,)*)>,
                reply: MethodReply<R>,
            ) {
                let run = move |value: &mut Value<T>| {
                    #[allow(non_snake_case)] // the macro's type names serve as variables
                    let ($($arg,)*) = (args.0)()?;
                    Ok(self(value.make_mut() $(, $arg)*))
                };
                invoke::apply_mut(seat.0, node, type_name::<F>(), run, reply);
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F, T, R, $($arg,)*> Method<T, ($($arg,)*), AsyncByRef> for F
        where
            F: for<'a> AsyncFn(&'a T $(, $arg)*) -> R + Copy + Send + Sync + 'static,
            T: Data,
            R: Data,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            encoding!(T, R, $($arg)*);

            fn invoke(
                self,
                seat: MethodSeat<'_, T>,
                node: &Node,
                args: MethodArgs<($($arg,)*)>,
                reply: MethodReply<R>,
            ) {
                let start = move |value: &Value<T>, _: &Node| {
                    #[allow(non_snake_case)] // the macro's type names serve as variables
                    let ($($arg,)*) = (args.0)()?;
                    let value = value.share();
                    Ok(Box::pin(async move { self(&*value $(, $arg)*).await }) as invoke::Running<R>)
                };
                invoke::apply_async(seat.0, node, type_name::<F>(), start, reply);
            }
        }
    )* };
}

methods! { ; A; A B; A B C; A B C D; A B C D E; }

/// The registry's entry for `method`.
pub(crate) fn entry<F, T, A, K>(method: F) -> Result<MethodEntry, String>
where
    F: Method<T, A, K>,
    T: Hosted,
    A: 'static,
{
    Ok(MethodEntry {
        schema: F::schema()?,
        seat: TypeId::of::<Seat<T::Host>>(),
        object: T::wire_name(),
        call: Box::new(move |seat, incoming, responder| {
            let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() else {
                let (expected, found) = (T::wire_name().into_owned(), "another object".to_string());
                return responder.complete(Err(Error::WrongType { expected, found }));
            };
            let node = incoming.node.clone();
            let args = MethodArgs(Box::new(move || F::decode(ReceivedArgs(incoming))));
            method.invoke(MethodSeat(seat), &node, args, MethodReply::remote(responder));
        }),
    })
}
