//! What a node may be asked for: functions, methods and messages, each under its path, each with the
//! identity of its types.
//!
//! Filled by the builder, never changed afterwards, so that no lock guards it. Entries are closures
//! that know the types; the node calls them with undecoded messages. Must not know peers or lanes.

pub(crate) mod function;
pub(crate) mod method;
pub(crate) mod schema;

pub use function::Function;
pub use method::Method;

use crate::error::Result;
use crate::node::Node;
use crate::node::construction::Construction;
use crate::node::responder::Responder;
use crate::object::seat::Seat;
use crate::object::{Handled, Hosted, RemoteMessage, invoke};
use crate::payload::Incoming;
use actix::Handler;
use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::oneshot;

type Path = Cow<'static, str>;

/// Everything registered on one node.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) functions: HashMap<Path, Arc<FunctionEntry>>,
    pub(crate) methods: HashMap<Path, Arc<MethodEntry>>,
    /// Types that can be copied to this node.
    pub(crate) types: HashMap<Path, TypeEntry>,
    messages: HashMap<Path, Arc<MessageEntries>>,
    local: HashMap<(TypeId, TypeId), Box<dyn Any + Send + Sync>>,
    /// Explicit names, by the type of the function item.
    names: HashMap<TypeId, Path>,
    /// What could not be registered; reported at start.
    pub(crate) mistakes: Vec<String>,
}

/// On which thread of a node something runs: see
/// [`Builder::function_on`](crate::Builder::function_on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// On the node's home arbiter, with its connections: the fastest for light work.
    #[default]
    Shared,
    /// The function runs on the home arbiter; an object that it makes gets a thread of its own, with
    /// its own actix `System`, until it ends. For objects that work hard.
    Dedicated,
    /// The function runs on tokio's pool of blocking threads, so that it may block or compute for
    /// long; an object that it makes lives on the home arbiter. For functions that are not async.
    Blocking,
}

/// The schema of a type, and what makes an object of a value that was sent here.
pub(crate) type TypeEntry = (u128, fn(Incoming, Construction));

/// A registered function.
pub(crate) struct FunctionEntry {
    pub(crate) placement: Placement,
    pub(crate) schema: u128,
    /// Runs it and sends its result back.
    pub(crate) call: Box<dyn Fn(Incoming, Responder) + Send + Sync>,
    /// Runs it and keeps its result here.
    pub(crate) create: Box<dyn Fn(Incoming, Construction) + Send + Sync>,
}

/// Decodes a call's arguments, runs it against a seat, and answers.
pub(crate) type MethodCall = Box<dyn Fn(&dyn Any, Incoming, Responder) + Send + Sync>;

/// A registered method: a function that runs against an object.
pub(crate) struct MethodEntry {
    pub(crate) schema: u128,
    /// The seat's type must be the one the method was registered for.
    pub(crate) call: MethodCall,
    /// The type of seat it runs against.
    pub(crate) seat: TypeId,
    /// The object's type, for errors.
    pub(crate) object: Path,
}

/// One message, as the several hosts that take it do.
pub(crate) struct MessageEntries {
    pub(crate) schema: u128,
    pub(crate) by_seat: HashMap<TypeId, MessageEntry>,
}

/// A message as one type of host takes it.
pub(crate) struct MessageEntry {
    /// Runs the handler and sends its result back.
    pub(crate) call: fn(&dyn Any, Incoming, Responder),
    /// Runs the handler and keeps its result here.
    pub(crate) create: fn(&dyn Any, Incoming, Construction),
}

/// Where the result of a call on the same node goes.
pub(crate) type ResultSender<R> = oneshot::Sender<Result<R>>;

/// How a message reaches a host on the same node: without encoding.
pub(crate) struct LocalMessage<M: RemoteMessage> {
    pub(crate) send: fn(&dyn Any, &Node, M, ResultSender<M::Result>),
    pub(crate) cast: fn(&dyn Any, &Node, M),
    pub(crate) create: fn(&dyn Any, &Node, M, Construction),
}

impl Registry {
    /// The path of a function item or a message: its explicit name, or where it is defined.
    pub(crate) fn path_of<F: 'static>(&self) -> Path {
        self.names.get(&TypeId::of::<F>()).cloned().unwrap_or(Cow::Borrowed(type_name::<F>()))
    }

    pub(crate) fn name<F: 'static>(&mut self, name: Path) {
        self.names.insert(TypeId::of::<F>(), name);
    }

    /// Gives a message an explicit name, whether or not it has been registered before.
    pub(crate) fn name_message<M: 'static>(&mut self, name: Path) {
        let entries = self.messages.remove(&self.path_of::<M>());
        self.name::<M>(name.clone());
        if let Some(entries) = entries
            && self.messages.insert(name.clone(), entries).is_some()
        {
            self.mistakes.push(format!("message `{name}`: two messages have this name"));
        }
    }

    pub(crate) fn messages(&self, path: &str) -> Option<&Arc<MessageEntries>> {
        self.messages.get(path)
    }

    /// How `M` reaches a host with this type of seat on the same node.
    pub(crate) fn local_message<M: RemoteMessage>(&self, seat: TypeId) -> Option<&LocalMessage<M>> {
        self.local.get(&(seat, TypeId::of::<M>()))?.downcast_ref()
    }
}

/// The messages of one type of object, while it is being registered.
pub struct Messages<'a, T: Hosted> {
    pub(crate) registry: &'a mut Registry,
    pub(crate) object: PhantomData<fn() -> T>,
}

impl<T: Hosted> Messages<'_, T> {
    /// Lets other nodes send `M` to a `T`.
    ///
    /// Called by the derive for each message in `#[object(messages(..))]`. A message whose result is
    /// an actor can be used with [`RRef::remote`](crate::RRef::remote) only.
    pub fn message<M>(&mut self) -> &mut Self
    where
        M: RemoteMessage<Result: Handled>,
        T::Host: Handler<M>,
    {
        let path = self.registry.path_of::<M>();
        let schema = match message_schema::<M>() {
            Ok(schema) => schema,
            Err(reason) => {
                self.registry.mistakes.push(format!("message `{path}`: {reason}"));
                return self;
            }
        };
        let seat = TypeId::of::<Seat<T::Host>>();
        let entries = self
            .registry
            .messages
            .entry(path.clone())
            .or_insert_with(|| Arc::new(MessageEntries { schema, by_seat: HashMap::new() }));
        if entries.schema != schema {
            self.registry.mistakes.push(format!("message `{path}`: two messages have this name"));
            return self;
        }
        // The registry is not shared before the node starts.
        if let Some(entries) = Arc::get_mut(entries) {
            let entry = MessageEntry { call: call::<T, M>, create: create::<T, M> };
            entries.by_seat.insert(seat, entry);
        }
        let local = LocalMessage::<M> {
            send: |seat, node, message, reply| {
                if let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() {
                    invoke::message(seat, node, move || Ok(message), reply);
                }
            },
            cast: |seat, node, message| {
                if let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() {
                    invoke::message(seat, node, move || Ok(message), invoke::Discard);
                }
            },
            create: |seat, node, message, construction| {
                if let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() {
                    invoke::message(seat, node, move || Ok(message), construction.typed());
                }
            },
        };
        self.registry.local.insert((seat, TypeId::of::<M>()), Box::new(local));
        self
    }
}

fn call<T, M>(seat: &dyn Any, incoming: Incoming, responder: Responder)
where
    T: Hosted,
    M: RemoteMessage<Result: Handled>,
    T::Host: Handler<M>,
{
    let node = incoming.node.clone();
    if let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() {
        invoke::message(seat, &node, move || incoming.decode::<M>(), responder.answering::<M::Result>());
    }
}

fn create<T, M>(seat: &dyn Any, incoming: Incoming, construction: Construction)
where
    T: Hosted,
    M: RemoteMessage<Result: Handled>,
    T::Host: Handler<M>,
{
    let node = incoming.node.clone();
    if let Some(seat) = seat.downcast_ref::<Seat<T::Host>>() {
        invoke::message(seat, &node, move || incoming.decode::<M>(), construction.typed());
    }
}

/// Identity of a message: its own type and its result's.
pub(crate) fn message_schema<M: RemoteMessage<Result: Handled>>() -> Result<u128, String> {
    Ok(schema::join(&[schema::schema_of::<M>()?.0, <M::Result as Handled>::schema()?]))
}
