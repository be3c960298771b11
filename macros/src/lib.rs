//! The one derive of [rref](https://docs.rs/rref), where it is documented as `rref::Object`.
//!
//! It writes trait impls that a user could write by hand, and nothing else: no registration happens
//! behind the user's back.

mod attribute;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Lets an actix actor be held by an `RRef`: names it on the wire and lists the messages it takes from
/// other nodes.
///
/// Plain data (anything with serde's derives) needs no derive.
///
/// ```
/// use rref::prelude::*;
///
/// #[derive(Serialize, Deserialize, Message)]
/// #[rtype(result = "i64")]
/// struct Add(i64);
///
/// #[derive(Object)]
/// #[object(messages(Add))]
/// struct Counter(i64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Add> for Counter {
///     type Result = i64;
///     fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> i64 {
///         self.0 += n;
///         self.0
///     }
/// }
/// ```
///
/// # Keys of `#[object(...)]`
///
/// - `messages(Add, Get)`: the messages that other nodes may send. The actor needs a `Handler` for each.
///   Required; `messages()` for none.
/// - `name = "kv.Shard"`: the name on the wire, for programs that do not share the type. Without it the
///   type's path is used, which differs between programs unless the type is in a library that both use.
///   All instances of a generic type share such a name.
/// - `remote = "kv.Shard"`: an interface, for clients that do not link the actor. `RRef<ShardApi>` refers
///   to the actor with this `name` and takes the listed messages; nothing can be hosted as a `ShardApi`.
///
/// ```
/// # use rref::prelude::*;
/// # use std::collections::BTreeMap;
/// # #[derive(Serialize, Deserialize, Message)]
/// # #[rtype(result = "()")]
/// # pub struct Put(String, String);
/// # #[derive(Serialize, Deserialize, Message)]
/// # #[rtype(result = "Option<String>")]
/// # pub struct Get(String);
/// # impl Actor for Shard { type Context = Context<Self>; }
/// # impl Handler<Put> for Shard {
/// #     type Result = ();
/// #     fn handle(&mut self, Put(k, v): Put, _: &mut Self::Context) { self.map.insert(k, v); }
/// # }
/// # impl Handler<Get> for Shard {
/// #     type Result = Option<String>;
/// #     fn handle(&mut self, Get(k): Get, _: &mut Self::Context) -> Option<String> { self.map.get(&k).cloned() }
/// # }
/// #[derive(Object)]                                           // in the server
/// #[object(name = "kv.Shard", messages(Put, Get))]
/// struct Shard { map: BTreeMap<String, String> }
///
/// #[derive(Object)]                                           // in the crate that clients use
/// #[object(remote = "kv.Shard", messages(Put, Get))]
/// pub struct ShardApi;
/// # assert_eq!(ShardApi::wire_name(), Shard::wire_name());
/// ```
///
/// # What it writes
///
/// `impl Object` with the wire name, `impl Accepts<M>` for each message `M`, and, without `remote`,
/// `impl Hosted` with the actor as its own host. A type parameter needs the bound `'static` in the
/// type's own definition. A serde-derived type is data already: the compiler then reports conflicting
/// implementations of `Object`.
#[proc_macro_derive(Object, attributes(object))]
pub fn derive_object(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match attribute::Attribute::of(&input) {
        Ok(attribute) => expand::impls(&input, &attribute).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
