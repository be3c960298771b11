//! What an [`RRef`](crate::RRef) can point at, and how its owner keeps it.
//!
//! The traits users meet are here; [`seat`](self) and `invoke` are the only code in the crate that
//! drives actix actors. Must not know peers, lanes or frames.

#[doc(hidden)]
pub mod hint;
pub(crate) mod invoke;
pub(crate) mod occupant;
pub(crate) mod seat;
mod value;

pub use value::{LocalValue, Value};

use crate::node::construction::Construction;
use crate::node::responder::Responder;
use crate::payload::{Incoming, Outgoing};
use crate::reference::{RRef, Streaming, adopt};
use crate::registry::Messages;
use crate::{Error, Result, node::Node};
use actix::{Actor, Context, Handler, Message};
use serde::{Serialize, de::DeserializeOwned};
use std::borrow::Cow;

/// Plain data: anything that can be shared and serialised.
///
/// Blanket-implemented for everything with serde's derives; asks for no `Clone`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel in an rref message",
    label = "not plain data",
    note = "data needs `#[derive(serde::Serialize, serde::Deserialize)]` and `Send + Sync + 'static`"
)]
pub trait Data: Serialize + DeserializeOwned + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Data for T {}

/// Something an [`RRef`](crate::RRef) can point at: it has a name that both programs know.
///
/// Implemented for all [`Data`], and by `#[derive(Object)]` for actix actors and for interface
/// types, which stand for an actor that this program does not link.
///
/// ```
/// use rref::Object;
/// assert_eq!(Vec::<f32>::wire_name(), "alloc::vec::Vec<f32>");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be held by an RRef",
    label = "neither plain data nor an rref actor",
    note = "if `{Self}` is an actix actor: `#[derive(rref::Object)] #[object(messages(...))]`",
    note = "if `{Self}` is data: `#[derive(serde::Serialize, serde::Deserialize)]` (and `Send + Sync`)"
)]
pub trait Object: Sized + 'static {
    /// The name of the type on the wire; by default its path.
    ///
    /// Two programs that share a type share its name when it lives in a library. For types of a
    /// binary give one: `#[object(name = "kv.Shard", messages(..))]`.
    fn wire_name() -> Cow<'static, str>;

    /// Identity of the type, to be compared between two programs.
    #[doc(hidden)]
    fn schema() -> Result<u128, String> {
        Ok(crate::registry::schema::of_text(&Self::wire_name()))
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> Object for T {
    fn wire_name() -> Cow<'static, str> {
        Cow::Borrowed(std::any::type_name::<T>())
    }

    fn schema() -> Result<u128, String> {
        Ok(crate::registry::schema::schema_of::<T>()?.0)
    }
}

/// An [`Object`] that this program can host: it says which actor it lives in.
///
/// Data lives in a [`Value`]; an actor lives in itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be hosted by a node",
    label = "neither plain data nor an rref actor",
    note = "if `{Self}` is an actix actor: `#[derive(rref::Object)] #[object(messages(...))]`",
    note = "if `{Self}` is data: `#[derive(serde::Serialize, serde::Deserialize)]` (and `Send + Sync`)"
)]
pub trait Hosted: Object + Send {
    /// The actor it lives in.
    type Host: Actor<Context = Context<Self::Host>>;

    /// Moves it into its actor.
    fn into_host(self) -> Self::Host;

    /// Borrows it from its actor, for functions that run against it.
    fn get(host: &Self::Host) -> &Self;

    /// Lists the messages other nodes may send; called once by
    /// [`Builder::register`](crate::Builder::register).
    fn messages(messages: &mut Messages<'_, Self>) {
        let _ = messages;
    }

    /// Encodes it as a result; none for actors, which cannot travel.
    #[doc(hidden)]
    fn encode(&self, node: &Node) -> Option<Result<Encoded>> {
        let _ = node;
        None
    }

    /// What a fetch brings; none for actors without a [`Snapshot`].
    #[doc(hidden)]
    fn fetcher() -> Option<Fetcher<Self::Host>> {
        None
    }

    /// How a copy from another node is made; none for actors.
    #[doc(hidden)]
    fn adopt() -> Option<Adopt> {
        None
    }
}

/// An object that can be fetched: what [`RRef::to_here`](crate::RRef::to_here) brings.
///
/// For data that is `Clone` it is the value itself. An actor offers one with
/// `#[object(messages(..), snapshot)]` and an implementation of this trait.
///
/// ```
/// use rref::prelude::*;
///
/// #[derive(Object)]
/// #[object(messages(), snapshot)]
/// struct Counter { count: i64, log: std::fs::File }
/// impl Actor for Counter { type Context = Context<Self>; }
/// impl rref::Snapshot for Counter {
///     type Snapshot = i64;
///     fn snapshot(&self) -> i64 { self.count }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be fetched",
    label = "has no snapshot",
    note = "data needs `Clone`; an actor needs `#[object(messages(..), snapshot)]` and `impl rref::Snapshot`"
)]
pub trait Snapshot: Hosted {
    /// What travels.
    type Snapshot: Data;

    /// Takes it.
    fn snapshot(&self) -> Self::Snapshot;
}

#[diagnostic::do_not_recommend]
impl<T: Data + Clone> Snapshot for T {
    type Snapshot = T;

    fn snapshot(&self) -> T {
        self.clone()
    }
}

/// How a copy is made, opaque to users.
#[doc(hidden)]
pub struct Adopt(pub(crate) fn(Incoming, Construction));

/// An encoded result, opaque to users.
#[doc(hidden)]
pub struct Encoded(pub(crate) Outgoing);

/// How a snapshot is taken from a host, opaque to users.
#[doc(hidden)]
pub struct Fetcher<H> {
    pub(crate) fetch: fn(&H, &Node) -> Result<Outgoing>,
    pub(crate) schema: fn() -> Result<u128, String>,
}

impl<T: Snapshot<Host = T> + Actor<Context = Context<T>>> Fetcher<T> {
    /// Used by the derive.
    pub fn snapshot() -> Fetcher<T> {
        Fetcher {
            fetch: |object, node| Outgoing::encode(node, &object.snapshot()),
            schema: <T::Snapshot as Object>::schema,
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> Hosted for T {
    type Host = Value<T>;

    fn into_host(self) -> Value<T> {
        Value::new(self)
    }

    fn get(host: &Value<T>) -> &T {
        host
    }

    fn encode(&self, node: &Node) -> Option<Result<Encoded>> {
        Some(Outgoing::encode(node, self).map(Encoded))
    }

    fn fetcher() -> Option<Fetcher<Value<T>>> {
        Some(Fetcher { fetch: |host, node| Outgoing::encode::<T>(node, host), schema: <T as Object>::schema })
    }

    fn adopt() -> Option<Adopt> {
        Some(Adopt(|incoming, construction| {
            let node = incoming.node.clone();
            match invoke::contained(&node, "copy_to", || incoming.decode::<RRef<T>>()) {
                Ok(source) => adopt(source, construction),
                Err(error) => construction.fail(error),
            }
        }))
    }
}

/// An actix message that can cross nodes.
///
/// Blanket: actix's `Message` derive and serde's derives are enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a remote message",
    label = "cannot be sent through an RRef",
    note = "a remote message needs `#[derive(Message, serde::Serialize, serde::Deserialize)]`, `#[rtype(result = \"...\")]` and `Send`; its result must be `Send`"
)]
pub trait RemoteMessage: Message<Result: Send> + Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<M: Message<Result: Send> + Serialize + DeserializeOwned + Send + 'static> RemoteMessage for M {}

/// `Self` takes the message `M` from other nodes.
///
/// Derived for each message in `#[object(messages(..))]`, so that a message missing from the list
/// does not compile; for data it holds whenever `Value<Self>: Handler<M>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take `{M}` through an RRef",
    label = "not in the object's list of messages",
    note = "add `{M}` to `#[object(messages(..))]` of `{Self}` and implement `Handler<{M}>`",
    note = "for data implement `Handler<{M}> for Value<{Self}>` and register it with `.message::<{Self}, {M}>()`"
)]
pub trait Accepts<M: RemoteMessage>: Object {}

#[diagnostic::do_not_recommend]
impl<T: Data, M: RemoteMessage> Accepts<M> for T where Value<T>: Handler<M> {}

/// A result that can travel back to a caller. All [`Data`] is.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel back as a result",
    label = "not plain data",
    note = "an actor stays where it was made: use `remote(..)`, which gives an RRef to it",
    note = "data needs `#[derive(serde::Serialize, serde::Deserialize)]` and `Send + Sync + 'static`"
)]
pub trait Response: Send + Sized + 'static {
    /// Whether it comes element by element.
    #[doc(hidden)]
    const STREAMS: bool = false;

    /// Decodes a received result.
    #[doc(hidden)]
    fn decode(received: Received) -> Result<Self>;

    /// Identity of the type, to be compared between two programs.
    #[doc(hidden)]
    fn schema() -> Result<u128, String>;
}

/// A received result, opaque to users.
#[doc(hidden)]
pub struct Received(pub(crate) crate::payload::Incoming);

#[diagnostic::do_not_recommend]
impl<T: Data> Response for T {
    fn decode(received: Received) -> Result<T> {
        received.0.decode()
    }

    fn schema() -> Result<u128, String> {
        <T as Object>::schema()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> Response for Streaming<T> {
    const STREAMS: bool = true;

    fn decode(received: Received) -> Result<Streaming<T>> {
        Streaming::received(received.0)
    }

    fn schema() -> Result<u128, String> {
        <Streaming<T> as Handled>::schema()
    }
}

/// What a handler of a registered message may return: an object, or a [`Streaming`] of data.
#[diagnostic::on_unimplemented(
    message = "a remote message cannot result in `{Self}`",
    label = "neither data, nor an rref actor, nor a stream",
    note = "data needs `#[derive(serde::Serialize, serde::Deserialize)]` and `Send + Sync + 'static`"
)]
pub trait Handled: Send + Sized + 'static {
    /// Sends it to the caller.
    #[doc(hidden)]
    fn respond(self, to: Answer);

    /// Keeps it as an object.
    #[doc(hidden)]
    fn keep(self, site: Site);

    /// Identity of the type, to be compared between two programs.
    #[doc(hidden)]
    fn schema() -> Result<u128, String>;
}

/// The obligation to answer a call, opaque to users.
#[doc(hidden)]
pub struct Answer(pub(crate) Responder);

/// The obligation to make an object, opaque to users.
#[doc(hidden)]
pub struct Site(pub(crate) Construction);

#[diagnostic::do_not_recommend]
impl<T: Hosted> Handled for T {
    fn respond(self, to: Answer) {
        let node = to.0.node.clone();
        // The type's `Serialize` is user code.
        let encoded = invoke::contained(&node, &to.0.function, || match self.encode(&node) {
            Some(encoded) => encoded.map(|encoded| encoded.0),
            None => Err(Error::Encode(format!(
                "`{}` is an actor and cannot travel; use `remote(..)`, which gives an RRef to it",
                std::any::type_name::<T>()
            ))),
        });
        to.0.complete(encoded);
    }

    fn keep(self, site: Site) {
        site.0.seat(self);
    }

    fn schema() -> Result<u128, String> {
        <T as Object>::schema()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> Handled for Streaming<T> {
    fn respond(self, to: Answer) {
        to.0.stream(self);
    }

    fn keep(self, site: Site) {
        site.0.fail(Error::CreateFailed("a stream is no object; use `call` or `send`".into()));
    }

    fn schema() -> Result<u128, String> {
        let item = <T as Object>::schema()?;
        Ok(crate::registry::schema::join(&[crate::registry::schema::of_text("rref::Streaming"), item]))
    }
}

/// What a remote function may return: an object, for actors a `Result` of one, or a stream.
#[diagnostic::on_unimplemented(
    message = "a remote function cannot return `{Self}`",
    label = "neither data, nor an rref actor, nor a `Result` of one, nor a stream",
    note = "return plain data, an actor with `#[derive(Object)]`, `Result<Actor, impl Display>`, or `Streaming<data>`"
)]
pub trait Returns<Kind>: Send + 'static {
    /// Sends it to the caller.
    #[doc(hidden)]
    fn respond(self, to: Answer);

    /// Keeps it as an object.
    #[doc(hidden)]
    fn keep(self, site: Site);

    /// Identity of the type, to be compared between two programs.
    #[doc(hidden)]
    fn schema() -> Result<u128, String>;
}

/// The function's result is a stream.
#[doc(hidden)]
pub struct Streamed;

#[diagnostic::do_not_recommend]
impl<T: Hosted> Returns<Plain> for T {
    fn respond(self, to: Answer) {
        Handled::respond(self, to);
    }

    fn keep(self, site: Site) {
        Handled::keep(self, site);
    }

    fn schema() -> Result<u128, String> {
        <T as Object>::schema()
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> Returns<Fallible> for Result<T, E>
where
    T: Hosted<Host = T> + Actor<Context = Context<T>>,
    E: std::fmt::Display + Send + 'static,
{
    fn respond(self, to: Answer) {
        match self {
            Ok(actor) => Handled::respond(actor, to),
            Err(error) => {
                let cause = failure::<T>(&to.0.node, &error);
                to.0.complete(Err(cause));
            }
        }
    }

    fn keep(self, site: Site) {
        match self {
            Ok(actor) => site.0.seat(actor),
            Err(error) => {
                let cause = failure::<T>(site.0.node(), &error);
                site.0.fail(cause);
            }
        }
    }

    fn schema() -> Result<u128, String> {
        <T as Object>::schema()
    }
}

/// What a constructor's error says; its `Display` is user code.
fn failure<T>(node: &Node, error: &impl std::fmt::Display) -> Error {
    let text = invoke::contained(node, std::any::type_name::<T>(), || Ok(error.to_string()));
    text.map_or_else(|panic| panic, Error::CreateFailed)
}

#[diagnostic::do_not_recommend]
impl<T: Data> Returns<Streamed> for Streaming<T> {
    fn respond(self, to: Answer) {
        Handled::respond(self, to);
    }

    fn keep(self, site: Site) {
        Handled::keep(self, site);
    }

    fn schema() -> Result<u128, String> {
        <Streaming<T> as Handled>::schema()
    }
}

/// What [`Node::remote`](crate::Node::remote) can keep: an object, or for actors a `Result` of one.
///
/// For data the whole `Result` is the value; for actors an `Err` becomes
/// [`CreateFailed`](crate::Error::CreateFailed).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept as an object",
    label = "neither data, nor an rref actor, nor a `Result` of one",
    note = "return plain data, an actor with `#[derive(Object)]`, or `Result<Actor, impl Display>`"
)]
pub trait Outcome<Kind>: Returns<Kind> {
    /// What the [`RRef`](crate::RRef) to the result points at.
    type Object: Hosted;
}

/// The function's result is the object.
#[doc(hidden)]
pub struct Plain;

/// The function's result is an actor, or an error.
#[doc(hidden)]
pub struct Fallible;

#[diagnostic::do_not_recommend]
impl<T: Hosted> Outcome<Plain> for T {
    type Object = T;
}

#[diagnostic::do_not_recommend]
impl<T, E> Outcome<Fallible> for Result<T, E>
where
    T: Hosted<Host = T> + Actor<Context = Context<T>>,
    E: std::fmt::Display + Send + 'static,
{
    type Object = T;
}
