//! What users hold: references to objects, requests, borrows.
//!
//! A reference turns what is asked of it into a job for a seat on this node, or into a message for
//! another one. Must not know frames, lanes or connections.

pub(crate) mod handle;
mod request;

pub use request::Request;

use crate::error::{Error, Result};
use crate::node::{MessageSource, MessageTarget, NameRef, Node, Started, Waiter, short_name};
use crate::object::occupant::Occupant;
use crate::object::seat::Seat;
use crate::object::{Accepts, Data, Hosted, LocalValue, Object, RemoteMessage, Response, Value, invoke};
use crate::payload::{self, Outgoing};
use crate::registry::schema;
use crate::registry::{LocalMessage, Method, function};
use handle::Handle;
use rref_core::ObjectId;
use rref_core::lifetime::HandleKey;
use rref_core::wire::NameKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::any::type_name;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A reference to an object `T` that lives on one node of the cluster, its *owner*.
///
/// It is a typed address and a share in the object's life: as long as any node holds one, the object
/// is not freed. Cloning and dropping it does no I/O and never waits. It may be put into any
/// message, and be used at once: calls on an object that is still being made wait behind its
/// creation.
///
/// Outside of a message it cannot be serialised: that gives an error that says so.
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
/// impl Actor for Counter { type Context = Context<Self>; }
/// impl Handler<Add> for Counter {
///     type Result = i64;
///     fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) -> i64 { self.0 += n; self.0 }
/// }
///
/// fn counter(start: i64) -> Counter { Counter(start) }
///
/// # actix::System::new().block_on(async {
/// let node = Node::builder("me").register::<Counter>().function(counter).start().await?;
/// let c: RRef<Counter> = node.remote("me", counter, (10,))?;
/// assert_eq!(c.send(Add(5)).await?, 15);
/// # node.shutdown().await;
/// # Ok::<_, Error>(())
/// # }).unwrap();
/// ```
pub struct RRef<T> {
    handle: Arc<Handle>,
    object: PhantomData<fn() -> T>,
}

impl<T> RRef<T> {
    pub(crate) fn new(handle: Arc<Handle>) -> RRef<T> {
        RRef { handle, object: PhantomData }
    }

    /// The name of the node that owns the object; its uid if the name is not known here.
    pub fn owner(&self) -> String {
        self.node().lock().name_of(self.id().owner)
    }

    /// The object's identity.
    pub fn id(&self) -> ObjectId {
        self.handle.id()
    }

    /// The node that holds this reference.
    pub fn node(&self) -> &Node {
        self.handle.node()
    }

    /// Whether the object lives on this node.
    pub fn is_local(&self) -> bool {
        self.handle.is_local()
    }

    /// The message keeps this reference until it has its place in the lane: the object must not be
    /// released before it.
    fn addressed(&self, payload: Outgoing) -> Outgoing {
        Outgoing { target: Some(self.handle.clone()), ..payload }
    }

    /// Starts a call of the object on another node.
    fn call(&self, target: MessageTarget, payload: Outgoing) -> Result<Started> {
        self.node().start_call(self.id().owner, target, self.addressed(payload))
    }

    /// Gives `run` the object's seat on this node, when it exists.
    fn with_seat(&self, run: impl FnOnce(Result<&dyn Occupant>) + Send + 'static) {
        if let Err(error) = self.node().check_open() {
            return run(Err(error));
        }
        if let Some(seat) = self.handle.seat() {
            return run(Ok(&*seat));
        }
        let handle = self.handle.clone();
        let waiter: Waiter = Box::new(move |occupant, counted| {
            match &occupant {
                Ok(occupant) => run(Ok(&**occupant)),
                Err(error) => run(Err(error.clone())),
            }
            if counted {
                // What runs is queued at the seat by now, and a seat serves its queue to the end.
                handle.node().call_finished(handle.id());
            }
        });
        // Not remembered while calls still wait for it: later ones would pass them by.
        if let Some(seat) = self.node().with_object(self.id(), waiter) {
            self.handle.remember_seat(&seat);
        }
    }
}

impl<T: Object> RRef<T> {
    /// Sends a message to the object; the request gives its handler's result.
    ///
    /// Messages of one node to one object are handled in the order in which they were sent.
    ///
    /// # Errors
    /// [`Error::ObjectDied`] when a handler panics, [`Error::CreateFailed`], [`Error::Gone`],
    /// [`Error::Remote`], [`Error::NotRegistered`], [`Error::SchemaMismatch`],
    /// [`Error::WrongType`], [`Error::Timeout`], [`Error::NotSent`], [`Error::OutcomeUnknown`],
    /// [`Error::OwnerDied`], [`Error::Unreachable`], [`Error::Encode`], [`Error::Decode`],
    /// [`Error::ShuttingDown`]. Each says whether the handler may have run.
    pub fn send<M>(&self, message: M) -> Request<M::Result>
    where
        M: RemoteMessage<Result: Response>,
        T: Accepts<M>,
    {
        if self.is_local() {
            let (reply, result) = oneshot::channel();
            let node = self.node().clone();
            self.with_seat(move |occupant| {
                match occupant.and_then(|seat| local_message::<T, M>(&node, seat)) {
                    Ok((seat, local)) => (local.send)(seat, &node, message, reply),
                    Err(error) => drop(reply.send(Err(error))),
                }
            });
            return Request::local(self.node(), result);
        }
        let started = self
            .message(&message)
            .and_then(|(name, payload)| self.call(MessageTarget::Message(self.id(), name), payload));
        Request::started(self.node(), started)
    }

    /// Sends a message and does not wait: nobody hears of its result, or of what goes wrong there.
    ///
    /// # Errors
    /// What keeps it from being sent: [`Error::OwnerDied`], [`Error::Unreachable`],
    /// [`Error::Encode`], [`Error::TooLarge`], [`Error::ShuttingDown`].
    pub fn do_send<M>(&self, message: M) -> Result<()>
    where
        M: RemoteMessage<Result: Response>,
        T: Accepts<M>,
    {
        if self.is_local() {
            self.node().check_open()?;
            let node = self.node().clone();
            self.with_seat(move |occupant| {
                match occupant.and_then(|seat| local_message::<T, M>(&node, seat)) {
                    Ok((seat, local)) => (local.cast)(seat, &node, message),
                    Err(error) => tracing::debug!("a cast failed: {error}"),
                }
            });
            return Ok(());
        }
        let (name, payload) = self.message(&message)?;
        let payload = self.addressed(payload);
        self.node().cast(self.id().owner, MessageTarget::Message(self.id(), name), payload)
    }

    /// Sends a message whose result stays at the owner, as an object of its own.
    ///
    /// Returns at once, as [`Node::remote`] does. A handler that cannot give a result makes every
    /// call on the new object fail with [`Error::CreateFailed`].
    ///
    /// # Errors
    /// What keeps it from being sent, as for [`RRef::do_send`].
    pub fn remote<M>(&self, message: M) -> Result<RRef<M::Result>>
    where
        M: RemoteMessage<Result: Object>,
        T: Accepts<M>,
    {
        if self.is_local() {
            let (handle, construction) = self.node().begin_local()?;
            let node = self.node().clone();
            self.with_seat(move |occupant| {
                match occupant.and_then(|seat| local_message::<T, M>(&node, seat)) {
                    Ok((seat, local)) => (local.create)(seat, &node, message, construction),
                    Err(error) => construction.fail(error),
                }
            });
            return Ok(RRef::new(handle));
        }
        let path = || type_name::<M>().into();
        let name = self.node().inner().names.get::<M>(NameKind::Message, path, || {
            Ok(schema::join(&[schema::schema_of::<M>()?.0, <M::Result as Object>::schema()?]))
        })?;
        let payload = self.addressed(Outgoing::encode(self.node(), &message)?);
        let handle = self.node().create(self.id().owner, MessageSource::Message(self.id(), name), payload)?;
        Ok(RRef::new(handle))
    }

    /// Waits until the object exists.
    ///
    /// # Errors
    /// Why it does not: [`Error::CreateFailed`], [`Error::Gone`], [`Error::ObjectDied`], or what
    /// keeps this node from knowing.
    pub fn ready(&self) -> Request<()> {
        if self.is_local() {
            let (reply, result) = oneshot::channel();
            self.with_seat(move |occupant| drop(reply.send(occupant.map(drop))));
            return Request::local(self.node(), result);
        }
        let target = MessageTarget::Ready(self.id());
        let started = self.call(target, Outgoing::default());
        Request::started(self.node(), started)
    }

    /// Runs a registered function against the object where it lives; only its result travels.
    ///
    /// # Errors
    /// As [`RRef::send`]. A panic of the function fails this call only
    /// ([`Error::Remote`]): it had the object by shared reference.
    pub fn apply<F, Args, K>(&self, method: F, args: Args) -> Request<F::Return>
    where
        F: Method<T, Args, K>,
        T: Hosted,
        Args: Send + 'static,
    {
        const { function::assert_item::<F>() };
        let node = self.node();
        if self.is_local() {
            let path = node.inner().registry.path_of::<F>();
            if !node.inner().registry.methods.contains_key(&path) {
                let call = format!(".method({})", short_name::<F>());
                let (what, node_name) = (path.into_owned(), node.name().to_string());
                return Request::failed(node, Error::NotRegistered { what, node: node_name, call });
            }
            let (reply, result) = oneshot::channel();
            let on = node.clone();
            self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
                Ok(seat) => {
                    let run = move |object: &T| Ok(method.invoke(object, args));
                    invoke::apply::<T, _, _>(seat, &on, type_name::<F>(), run, reply);
                }
                Err(error) => drop(reply.send(Err(error))),
            });
            return Request::local(node, result);
        }
        let started = (|| {
            let path = || node.inner().registry.path_of::<F>();
            let name = node.inner().names.get::<(F, T)>(NameKind::Method, path, F::schema)?;
            let payload = F::encode(node, &args)?.0;
            self.call(MessageTarget::Method(self.id(), name), payload)
        })();
        Request::started(node, started)
    }

    fn message<M>(&self, message: &M) -> Result<(Arc<NameRef>, Outgoing)>
    where
        M: RemoteMessage<Result: Response>,
    {
        let path = || type_name::<M>().into();
        let name = self.node().inner().names.get::<M>(NameKind::Message, path, || {
            Ok(schema::join(&[schema::schema_of::<M>()?.0, <M::Result as Response>::schema()?]))
        })?;
        Ok((name, Outgoing::encode(self.node(), message)?))
    }
}

impl<T: Data> RRef<T> {
    /// Brings a snapshot of the value here: on the owner a clone, elsewhere a copy over the wire.
    ///
    /// It shows what the caller's earlier messages to the object have done. A fetch that times out
    /// leaves the reference usable.
    ///
    /// # Errors
    /// As [`RRef::send`].
    pub fn to_here(&self) -> Request<T>
    where
        T: Clone,
    {
        let node = self.node();
        if self.is_local() {
            let (reply, result) = oneshot::channel();
            let on = node.clone();
            self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
                Ok(seat) => {
                    let clone = |value: &T| Ok(value.clone());
                    invoke::apply::<T, _, _>(seat, &on, "to_here", clone, reply);
                }
                Err(error) => drop(reply.send(Err(error))),
            });
            return Request::local(node, result);
        }
        let started = (|| {
            let name = node.inner().names.get::<T>(NameKind::Type, T::wire_name, <T as Object>::schema)?;
            self.call(MessageTarget::Fetch(self.id(), name), Outgoing::default())
        })();
        Request::started(node, started)
    }

    /// Borrows the value on the node that owns it: no copy, no serialisation.
    ///
    /// # Errors
    /// [`Error::NotOwner`] elsewhere, at once and without any I/O; on the owner
    /// [`Error::CreateFailed`], [`Error::Gone`], [`Error::ObjectDied`], [`Error::ShuttingDown`].
    pub async fn local_value(&self) -> Result<LocalValue<T>> {
        if !self.is_local() {
            return Err(Error::NotOwner {
                rref: format!("{self:?}"),
                node: self.node().name().to_string(),
                owner: self.owner(),
            });
        }
        let (reply, result) = oneshot::channel();
        let node = self.node().clone();
        self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
            Ok(seat) => {
                let share = |value: &mut Value<T>| Ok(value.share());
                invoke::with_host(seat, &node, "local_value", share, reply);
            }
            Err(error) => drop(reply.send(Err(error))),
        });
        let closed = || Error::ShuttingDown { node: self.node().name().to_string() };
        result.await.unwrap_or_else(|_| Err(closed()))
    }
}

fn typed_seat<T: Hosted>(occupant: &dyn Occupant) -> Result<&Seat<T::Host>> {
    occupant.seat().downcast_ref().ok_or_else(|| Error::WrongType {
        expected: T::wire_name().into_owned(),
        found: occupant.wire_name().into_owned(),
    })
}

fn local_message<'a, T: Object, M: RemoteMessage>(
    node: &'a Node,
    occupant: &'a dyn Occupant,
) -> Result<(&'a dyn std::any::Any, &'a LocalMessage<M>)> {
    match node.inner().registry.local_message::<M>(occupant.seat_type()) {
        Some(local) => Ok((occupant.seat(), local)),
        None => Err(Error::NotRegistered {
            what: format!("{} for {}", type_name::<M>(), occupant.wire_name()),
            node: node.name().to_string(),
            call: format!(".register::<{}>()", short_name::<T>()),
        }),
    }
}

impl<T> Clone for RRef<T> {
    fn clone(&self) -> RRef<T> {
        RRef::new(self.handle.clone())
    }
}

impl<T> fmt::Debug for RRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RRef<{}>({} {})", short_name::<T>(), self.owner(), self.id())
    }
}

impl<T> PartialEq for RRef<T> {
    fn eq(&self, other: &RRef<T>) -> bool {
        self.id() == other.id()
    }
}

impl<T> Eq for RRef<T> {}

impl<T> Hash for RRef<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.id().hash(hasher);
    }
}

/// A reference inside a message: its index in the message's reference table.
#[derive(Serialize, Deserialize)]
#[serde(rename = "RRef")]
struct Index(u32);

impl<T: Object> Serialize for RRef<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = payload::put_handle(&self.handle).map_err(serde::ser::Error::custom)?;
        Index(index).serialize(serializer)
    }
}

impl<'de, T: Object> Deserialize<'de> for RRef<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RRef<T>, D::Error> {
        if schema::tracing() {
            schema::mark(&format!("RRef<{}>", T::wire_name()));
            let node = Node::nowhere();
            let id = ObjectId { owner: node.uid(), creator: node.uid(), create_no: 0 };
            return Ok(RRef::new(Handle::counted(&node, HandleKey { id, generation: 0 })));
        }
        let Index(index) = Index::deserialize(deserializer)?;
        let handle = payload::take_handle(index).map_err(serde::de::Error::custom)?;
        Ok(RRef::new(handle))
    }
}
