//! What users hold: references to objects, requests, borrows.
//!
//! A reference turns what is asked of it into a job for a seat on this node, or into a message for
//! another one. Must not know frames, lanes or connections.

pub(crate) mod any;
mod confirmed;
pub(crate) mod handle;
mod request;
mod scope;
mod streaming;
mod weak;

pub use request::Request;
pub use scope::Scope;
pub(crate) use streaming::StreamStart;
pub use streaming::Streaming;
pub use weak::WeakRRef;

use crate::error::{Error, Result};
use crate::node::construction::Construction;
use crate::node::trace::Traced;
use crate::node::{MessageSource, MessageTarget, NameRef, Node, Started, Waiter, short_name};
use crate::object::occupant::Occupant;
use crate::object::seat::Seat;
use crate::object::{
    Accepts, Data, Hosted, LocalValue, Object, RemoteMessage, Response, Snapshot, Value, invoke,
};
use crate::payload::{self, Incoming, Outgoing};
use crate::registry::method::{MethodArgs, MethodReply, MethodSeat};
use crate::registry::schema;
use crate::registry::{LocalMessage, Method, function};
use actix::{Actor, Addr, Context};
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
use std::time::Duration;
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

    /// The same reference to something that takes the messages of a `U`.
    #[cfg(feature = "testkit")]
    pub(crate) fn retyped<U>(self) -> RRef<U> {
        RRef::new(self.handle)
    }

    /// Which share of the object it is.
    pub(crate) fn key(&self) -> HandleKey {
        self.handle.key()
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
    fn call(&self, target: MessageTarget, payload: Outgoing, streams: bool) -> Result<Started> {
        self.node().start_call(self.id().owner, target, self.addressed(payload), streams)
    }

    /// Gives `run` the object's seat on this node, when it exists.
    fn with_seat(&self, run: impl FnOnce(Result<&dyn Occupant>) + Send + 'static) {
        if let Err(error) = self.node().check_open() {
            return run(Err(error));
        }
        if let Some(seat) = self.handle.seat() {
            return run(Ok(&*seat));
        }
        self.with_entry(run);
    }

    /// As [`RRef::with_seat`], from the node's table, which knows whether the object has died since.
    fn with_entry(&self, run: impl FnOnce(Result<&dyn Occupant>) + Send + 'static) {
        if let Err(error) = self.node().check_open() {
            return run(Err(error));
        }
        let handle = self.handle.clone();
        // It may have to wait until the object exists: its trace comes with it.
        let traced = Traced::current();
        let waiter: Waiter = Box::new(move |occupant, counted| {
            let _traced = traced.enter();
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
        let started = self.message(&message).and_then(|(name, payload)| {
            let target = MessageTarget::Message(self.id(), name);
            self.call(target, payload, <M::Result as Response>::STREAMS)
        });
        Request::started(self.node(), started)
    }

    /// Sends a message and does not wait: nobody hears of its result, or of what goes wrong there.
    ///
    /// Whoever sends faster than the owner takes is stopped by [`Error::Overloaded`] in the end
    /// ([`Builder::send_queue`](crate::Builder::send_queue)); await [`send`](RRef::send) to go at its pace.
    ///
    /// # Errors
    /// What keeps it from being sent: [`Error::OwnerDied`], [`Error::Unreachable`],
    /// [`Error::Encode`], [`Error::TooLarge`], [`Error::Overloaded`], [`Error::ShuttingDown`].
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
        let path = || self.node().inner().registry.path_of::<M>();
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
            self.with_entry(move |occupant| drop(reply.send(occupant.map(drop))));
            return Request::local(self.node(), result);
        }
        let target = MessageTarget::Ready(self.id());
        let started = self.call(target, Outgoing::default(), false);
        Request::started(self.node(), started)
    }

    /// Waits until everything this node has asked of the object so far has been handled.
    ///
    /// Orders what follows, also by other nodes: there is no order across a hand-off otherwise.
    ///
    /// # Errors
    /// As [`RRef::send`].
    pub fn flush(&self) -> Request<()> {
        if self.is_local() {
            let (reply, result) = oneshot::channel();
            let node = self.node().clone();
            self.with_seat(move |occupant| match occupant {
                Ok(occupant) => occupant.flush(&node, Box::new(move |done| drop(reply.send(done)))),
                Err(error) => drop(reply.send(Err(error))),
            });
            return Request::local(self.node(), result);
        }
        let target = MessageTarget::Flush(self.id());
        Request::started(self.node(), self.call(target, Outgoing::default(), false))
    }

    /// Runs a registered function against the object where it lives; only its result travels.
    ///
    /// The function is a `fn(&T, ..)`, a `fn(&mut T, ..)`, or for data an `async fn(&T, ..)`, which
    /// works on the value as it was when it began.
    ///
    /// # Errors
    /// As [`RRef::send`]. A panic of a function that has the object by shared reference fails this
    /// call only ([`Error::Remote`]); one that may have changed it ends the object.
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
                    method.invoke(MethodSeat(seat), &on, MethodArgs::local(args), MethodReply::local(reply))
                }
                Err(error) => drop(reply.send(Err(error))),
            });
            return Request::local(node, result);
        }
        let started = (|| {
            let path = || node.inner().registry.path_of::<F>();
            let name = node.inner().names.get::<(F, T)>(NameKind::Method, path, F::schema)?;
            let payload = F::encode(node, &args)?.0;
            self.call(MessageTarget::Method(self.id(), name), payload, false)
        })();
        Request::started(node, started)
    }

    fn message<M>(&self, message: &M) -> Result<(Arc<NameRef>, Outgoing)>
    where
        M: RemoteMessage<Result: Response>,
    {
        let path = || self.node().inner().registry.path_of::<M>();
        let name = self.node().inner().names.get::<M>(NameKind::Message, path, || {
            Ok(schema::join(&[schema::schema_of::<M>()?.0, <M::Result as Response>::schema()?]))
        })?;
        Ok((name, Outgoing::encode(self.node(), message)?))
    }
}

impl<T: Hosted> RRef<T> {
    /// Runs a closure against the object on the node that owns it, after what was asked before.
    ///
    /// # Errors
    /// [`Error::NotOwner`] elsewhere, at once; on the owner [`Error::CreateFailed`],
    /// [`Error::Gone`], [`Error::ObjectDied`], [`Error::ShuttingDown`], and [`Error::Remote`] if the
    /// closure panics.
    pub async fn with_local<R, F>(&self, look: F) -> Result<R>
    where
        F: FnOnce(&T) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.check_local()?;
        let (reply, result) = oneshot::channel();
        let node = self.node().clone();
        self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
            Ok(seat) => invoke::apply::<T, _, _>(seat, &node, "with_local", |object| Ok(look(object)), reply),
            Err(error) => drop(reply.send(Err(error))),
        });
        self.local_result(result).await
    }

    /// The address of the actor, for actix code on the node that owns it.
    ///
    /// What is sent through it takes actix's own way: it is not contained, cancelled or counted, and
    /// the address alone does not keep the object alive.
    ///
    /// # Errors
    /// As [`RRef::with_local`].
    pub async fn local_addr(&self) -> Result<Addr<T>>
    where
        T: Hosted<Host = T> + Actor<Context = Context<T>>,
    {
        self.check_local()?;
        let (reply, result) = oneshot::channel();
        self.with_seat(move |occupant| {
            drop(reply.send(occupant.and_then(typed_seat::<T>).map(|seat| seat.addr().clone())));
        });
        self.local_result(result).await
    }

    fn check_local(&self) -> Result<()> {
        if self.is_local() {
            return Ok(());
        }
        Err(Error::NotOwner {
            rref: format!("{self:?}"),
            node: self.node().name().to_string(),
            owner: self.owner(),
        })
    }

    async fn local_result<R>(&self, result: oneshot::Receiver<Result<R>>) -> Result<R> {
        let closed = || Error::ShuttingDown { node: self.node().name().to_string() };
        result.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl<T: Snapshot> RRef<T> {
    /// As [`RRef::to_here`], on a thread that runs no tasks; easy to debug.
    ///
    /// # Errors
    /// [`Error::WouldBlockRuntime`] on a thread of an actix or tokio runtime, at once, instead of a
    /// deadlock; [`Error::Timeout`] after `limit`; else as [`RRef::send`].
    pub fn fetch(&self, limit: Duration) -> Result<T::Snapshot> {
        self.to_here().timeout(limit).blocking()
    }

    /// Brings a snapshot of the object here: on the owner a clone, elsewhere a copy over the wire.
    ///
    /// It shows what the caller's earlier messages to the object have done. A fetch that times out
    /// leaves the reference usable.
    ///
    /// # Errors
    /// As [`RRef::send`].
    pub fn to_here(&self) -> Request<T::Snapshot> {
        let node = self.node();
        if self.is_local() {
            let (reply, result) = oneshot::channel();
            let on = node.clone();
            self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
                Ok(seat) => {
                    let take = |object: &T| Ok(object.snapshot());
                    invoke::apply::<T, _, _>(seat, &on, "to_here", take, reply);
                }
                Err(error) => drop(reply.send(Err(error))),
            });
            return Request::local(node, result);
        }
        let started = (|| {
            let schema = <T::Snapshot as Object>::schema;
            let name = node.inner().names.get::<T>(NameKind::Type, T::wire_name, schema)?;
            self.call(MessageTarget::Fetch(self.id(), name), Outgoing::default(), false)
        })();
        Request::started(node, started)
    }
}

impl<T: Data> RRef<T> {
    /// Makes a new, independent object on `peer` with the value that this one has now.
    ///
    /// The bytes go from the owner to `peer`, not through this node. `peer` must know the type: it is
    /// registered there with [`Builder::register`](crate::Builder::register). Returns at once.
    ///
    /// # Errors
    /// As [`Node::remote`]. That the type is not registered, or the value cannot be had, is told by
    /// calls on the copy ([`Error::CreateFailed`]).
    pub fn copy_to(&self, peer: impl Into<crate::Peer>) -> Result<RRef<T>> {
        let node = self.node();
        let peer = peer.into().into_name();
        if peer == node.name() {
            let (handle, construction) = node.begin_local()?;
            let source = self.clone();
            node.inner().home.run(move || adopt(source, construction));
            return Ok(RRef::new(handle));
        }
        let owner = node.lock().find(&peer)?;
        let name = node.inner().names.get::<T>(NameKind::Type, T::wire_name, <T as Object>::schema)?;
        let payload = Outgoing::encode(node, self)?;
        let handle = node.create(owner, MessageSource::Copy(name), payload)?;
        Ok(RRef::new(handle))
    }

    /// Borrows the value on the node that owns it: no copy, no serialisation.
    ///
    /// # Errors
    /// [`Error::NotOwner`] elsewhere, at once and without any I/O; on the owner
    /// [`Error::CreateFailed`], [`Error::Gone`], [`Error::ObjectDied`], [`Error::ShuttingDown`].
    pub async fn local_value(&self) -> Result<LocalValue<T>> {
        self.check_local()?;
        let (reply, result) = oneshot::channel();
        let node = self.node().clone();
        self.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
            Ok(seat) => {
                let share = |value: &mut Value<T>| Ok(value.share());
                invoke::with_host(seat, &node, "local_value", share, reply);
            }
            Err(error) => drop(reply.send(Err(error))),
        });
        self.local_result(result).await
    }
}

/// Makes a copy of `source` here, whoever owns it. Runs on the home arbiter.
pub(crate) fn adopt<T: Data>(source: RRef<T>, construction: Construction) {
    let (reply, result) = oneshot::channel();
    let node = source.node().clone();
    if source.is_local() {
        let on = node.clone();
        source.with_seat(move |occupant| match occupant.and_then(typed_seat::<T>) {
            // `T` need not be `Clone`: a copy is made as for another node.
            Ok(seat) => {
                let encode = move |value: &T| Outgoing::encode(&on, value).map(|sent| sent.arrived(&on));
                invoke::apply::<T, _, _>(seat, &node, "copy_to", encode, reply);
            }
            Err(error) => drop(reply.send(Err(error))),
        });
        actix_rt::spawn(async move { take_copy::<T>(result.await, construction) });
        return;
    }
    let started = (|| {
        let name = node.inner().names.get::<T>(NameKind::Type, T::wire_name, <T as Object>::schema)?;
        let target = MessageTarget::Fetch(source.id(), name);
        source.call(target, Outgoing::default(), false)
    })();
    match started {
        Ok(started) => {
            actix_rt::spawn(async move {
                take_copy::<T>(started.result.await, construction);
                drop(source);
            });
        }
        Err(error) => construction.fail(error),
    }
}

fn take_copy<T: Data>(
    fetched: Result<Result<Incoming>, oneshot::error::RecvError>,
    construction: Construction,
) {
    let node = construction.node().clone();
    let closed = || Error::ShuttingDown { node: node.name().to_string() };
    let value = fetched
        .unwrap_or_else(|_| Err(closed()))
        .and_then(|incoming| invoke::contained(&node, type_name::<T>(), || incoming.decode::<T>()));
    match value {
        Ok(value) => construction.seat(value),
        Err(error) => construction.fail(error),
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
            return Ok(RRef::new(Handle::unreal()));
        }
        let Index(index) = Index::deserialize(deserializer)?;
        let handle = payload::take_handle(index).map_err(serde::de::Error::custom)?;
        Ok(RRef::new(handle))
    }
}
