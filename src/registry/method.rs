//! Plain functions that run against an object where it lives: `fn(&T, ..) -> R`.

use super::function::{EncodedArgs, ReceivedArgs, decode_args, encode_args};
use super::{MethodEntry, schema};
use crate::error::Result;
use crate::node::Node;
use crate::object::seat::Seat;
use crate::object::{Data, Hosted, Object, invoke};
use crate::payload::Outgoing;
use serde::{Serialize, de::DeserializeOwned};
use std::any::{TypeId, type_name};

/// A `fn` item that runs against `&T` on its owner; only its result travels.
///
/// Implemented for all whose first parameter is `&T` and whose up to five others, and result, are
/// [`Data`]: `fn norm(x: &Tensor<f32>, k: f32) -> f32` is used as `rref.apply(norm, (0.5,))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be applied to `&{T}` with arguments `{Args}`",
    label = "not a method of `{T}` for these arguments",
    note = "the first parameter must be `&{T}`; the others are the tuple: `(x, y)`, `(x,)` for one, `()` for none"
)]
pub trait Method<T, Args, Marker>: Copy + Send + Sync + 'static {
    /// What it returns.
    type Return: Data;

    /// Runs it.
    #[doc(hidden)]
    fn invoke(self, object: &T, args: Args) -> Self::Return;
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

/// Marks a method that takes its object by shared reference.
#[doc(hidden)]
pub struct ByRef;

macro_rules! methods {
    ($($($arg:ident)*;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<F, T, R, $($arg,)*> Method<T, ($($arg,)*), ByRef> for F
        where
            F: for<'a> Fn(&'a T $(, $arg)*) -> R + Copy + Send + Sync + 'static,
            T: Object,
            R: Data,
            $($arg: Serialize + DeserializeOwned + Send + 'static,)*
        {
            type Return = R;

            #[allow(non_snake_case)] // the macro's type names serve as variables
            fn invoke(self, object: &T, ($($arg,)*): ($($arg,)*)) -> R {
                self(object $(, $arg)*)
            }

            fn schema() -> Result<u128, String> {
                let args = schema::schema_of::<($($arg,)*)>()?.0;
                Ok(schema::join(&[schema::of_text(&T::wire_name()), args, R::schema()?]))
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
            let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() else { return };
            let node = incoming.node.clone();
            let run = move |object: &T| {
                let args = F::decode(ReceivedArgs(incoming))?;
                Ok(method.invoke(object, args))
            };
            let responder = responder.encoding(|node, value| Outgoing::encode(node, &value));
            invoke::apply(seat, &node, type_name::<F>(), run, responder);
        }),
    })
}
