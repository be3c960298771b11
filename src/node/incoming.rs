//! What a received frame does: the order and the accounts are kept under the lock, user code runs
//! after it.

use super::Node;
use super::calls::PendingCall;
use super::construction::Construction;
use super::events::Watcher;
use super::objects::Entry;
use super::responder::Responder;
use super::state::{Lanes, State};
use super::streams::Inlet;
use super::trace::Traced;
use crate::error::{Error, Gone, WireError};
use crate::object::occupant::Occupant;
use crate::payload::{Incoming, Outgoing, payload_bytes};
use crate::reference::StreamStart;
use crate::reference::handle::Handle;
use crate::registry::{FunctionEntry, MessageEntries, MethodEntry};
use rref_core::lifetime::ImportState;
use rref_core::session::{Accept, Class, Credit};
use rref_core::wire::{
    Call, Create, Frame, Limits, Name, NameKind, Payload, Reply, Source, Stamped, Status, Target,
};
use rref_core::{NodeUid, ObjectId, Seq, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Names a peer may announce in one session.
const NAMES_LIMIT: usize = 65_536;

/// A peer's name, matched with what is registered here.
pub(crate) struct NamedEntry {
    path: Arc<str>,
    schema: u128,
    entry: Named,
}

enum Named {
    Function(Arc<FunctionEntry>),
    Message(Arc<MessageEntries>),
    Method(Arc<MethodEntry>),
    /// A type; how a copy of one is made, or why it cannot be. A fetch needs neither.
    Type(Result<fn(Incoming, Construction), WireError>),
    /// Not registered, or with other types: every use is answered with this.
    Refused(WireError),
}

/// Why a session cannot go on.
type Broken = String;

impl Node {
    /// Takes in a frame of `from`'s that `weight` bytes carried.
    ///
    /// # Errors
    /// What the peer did wrong; the session with it must end.
    pub(crate) fn receive(
        &self,
        state: &mut State,
        from: NodeUid,
        stamped: Stamped,
        weight: usize,
    ) -> Result<(), Broken> {
        let Stamped { seq, ack, settled, frame } = stamped;
        let Some(peer) = state.peers.get_mut(&from) else { return Ok(()) };
        peer.frames_received += 1;
        let progress = if let Frame::Ack(outside) = frame {
            peer.lane
                .ack_frame(outside.session_no, outside.at, ack, settled, outside.exceptions)
                .map_err(|error| error.to_string())?
        } else {
            match peer.lane.accept(seq).map_err(|error| error.to_string())? {
                Accept::Duplicate => return Ok(()),
                Accept::Process => {}
            }
            let at = Stamp { session_no: peer.lane.session_no(), seq };
            let class = class_of(&frame);
            self.process(state, from, at, frame)?;
            state.lifetime.processed(from, at);
            let Some(peer) = state.peers.get_mut(&from) else { return Ok(()) };
            peer.lane.processed_frame(seq, ack, settled, class, weight).map_err(|error| error.to_string())?
        };
        let session_no = state.peers.get(&from).map_or(0, |peer| peer.lane.session_no());
        let stamp = |seq: Seq| Stamp { session_no, seq };
        let settles = progress.acked.is_some();
        if let Some(acked) = progress.acked {
            state.lifetime.on_acked(from, stamp(acked));
        }
        let mut lanes = Lanes { peers: &mut state.peers };
        if let Some(upto) = progress.settled {
            state.lifetime.on_settled(from, stamp(upto), &[], &mut lanes);
        }
        let settled_except = progress.settled_except.is_some();
        if let Some(except) = progress.settled_except {
            state.lifetime.on_settled(from, stamp(except.upto), &except.exceptions, &mut lanes);
        }
        if (progress.settled.is_some() || settled_except)
            && self.inner().confirming.load(Ordering::Acquire) > 0
        {
            let node = self.clone();
            state.after(move || node.inner().settled.notify_waiters());
        }
        state.update_settled(from);
        if settles {
            // An acknowledged claim may settle introductions of any third node.
            state.arm_later();
        }
        Ok(())
    }

    fn process(&self, state: &mut State, from: NodeUid, at: Stamp, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::Name(name) => self.name_announced(state, from, name),
            Frame::Peer(info) => state.peer_told(info, !self.addresses().is_empty()),
            Frame::Create(create) => self.create_arrived(state, from, at, create),
            Frame::Call(call) | Frame::Cast(call) => self.call_arrived(state, from, at, call),
            Frame::Reply(reply) => self.reply_arrived(state, from, at, reply),
            Frame::Item(item) => {
                let payload = state.assembled(from, item.payload)?;
                let Imports { incoming, .. } = self.import(state, from, at, payload);
                state.item_arrived(from, item.call_id, incoming)
            }
            Frame::End(end) => {
                let payload = state.assembled(from, end.payload)?;
                let Imports { incoming, .. } = self.import(state, from, at, payload);
                let owner = state.name_of(from);
                state.stream_ended(from, end.call_id, |schema, trace_id| {
                    (end.status == Status::Failed).then(|| remote_error(&incoming, &owner, schema, trace_id))
                });
                state.later(incoming);
                Ok(())
            }
            Frame::More { call_id, items } => state.more_granted(from, call_id, items),
            Frame::Cancel { call_id } => {
                state.cancel_outlet(from, call_id);
                if let Some(flag) = state.peers.get(&from).and_then(|peer| peer.running.get(&call_id)) {
                    flag.store(true, Ordering::Release);
                }
                Ok(())
            }
            Frame::Claim(objects) => state
                .lifetime
                .on_claim(from, &objects, &mut Lanes { peers: &mut state.peers })
                .map_err(|error| error.to_string()),
            Frame::Release(objects) => {
                state.lifetime.on_release(from, &objects).map_err(|error| error.to_string())
            }
            Frame::Gone(objects) => state.lifetime.on_gone(from, &objects).map_err(|error| error.to_string()),
            Frame::Chunk(chunk) => match state.peers.get_mut(&from) {
                Some(peer) => peer.assembly.chunk(chunk, &Limits::DEFAULT).map_err(|error| error.to_string()),
                None => Ok(()),
            },
            Frame::Credit { calls, bytes } => {
                if let Some(peer) = state.peers.get_mut(&from) {
                    peer.outbound.credit(Credit { calls, bytes });
                }
                Ok(())
            }
            Frame::Leave(_) => {
                let name = state.name_of(from);
                tracing::info!("`{name}` has left");
                state.leases.left(from);
                state.peer_died(from, "it left the cluster".into());
                Ok(())
            }
            Frame::InventoryBegin { next_create, seen } => state
                .lifetime
                .on_inventory_begin(from, at, next_create, seen)
                .map_err(|error| error.to_string()),
            Frame::InventoryItems(objects) => state
                .lifetime
                .on_inventory_items(from, &objects, &mut Lanes { peers: &mut state.peers })
                .map_err(|error| error.to_string()),
            Frame::InventoryEnd => state
                .lifetime
                .on_inventory_end(from, &mut Lanes { peers: &mut state.peers })
                .map_err(|error| error.to_string()),
            // Outside the sequence: taken in before this point, or on a connection of its own.
            Frame::Ack(_) => Ok(()),
            Frame::Heartbeat(_) | Frame::HeartbeatEcho(_) => Err("a heartbeat between messages".into()),
        }
    }

    fn name_announced(&self, state: &mut State, from: NodeUid, name: Name) -> Result<(), Broken> {
        let entry = self.match_name(&name);
        let Some(peer) = state.peers.get_mut(&from) else { return Ok(()) };
        if name.index as usize != peer.names_received.len() + 1 || peer.names_received.len() >= NAMES_LIMIT {
            return Err(format!("name index {} out of order", name.index));
        }
        let entry = NamedEntry { path: name.path.into(), schema: name.schema, entry };
        peer.names_received.push(Arc::new(entry));
        Ok(())
    }

    fn match_name(&self, name: &Name) -> Named {
        let registry = &self.inner().registry;
        let path = name.path.as_str();
        let (schema, entry) = match name.kind {
            NameKind::Function => match registry.functions.get(path) {
                Some(entry) => (entry.schema, Named::Function(entry.clone())),
                None => return not_registered(path, "function"),
            },
            NameKind::Method => match registry.methods.get(path) {
                Some(entry) => (entry.schema, Named::Method(entry.clone())),
                None => return not_registered(path, "method"),
            },
            NameKind::Message => match registry.messages(path) {
                Some(entries) => (entries.schema, Named::Message(entries.clone())),
                None => return not_registered(path, "message"),
            },
            NameKind::Type => match registry.types.get(path) {
                Some((schema, adopt)) if *schema == name.schema => return Named::Type(Ok(*adopt)),
                Some((theirs, _)) => {
                    return Named::Type(Err(WireError::Schema { path: name.path.clone(), theirs: *theirs }));
                }
                None => {
                    let call = format!(".register::<{path}>()");
                    return Named::Type(Err(WireError::NotRegistered { what: path.to_string(), call }));
                }
            },
        };
        if schema != name.schema {
            return Named::Refused(WireError::Schema { path: name.path.clone(), theirs: schema });
        }
        entry
    }

    /// Counts the handles of a frame.
    fn import(&self, state: &mut State, from: NodeUid, at: Stamp, payload: Payload) -> Imports {
        let mut lanes = Lanes { peers: &mut state.peers };
        let imported = state.lifetime.import(&payload.refs, from, at, &mut lanes);
        let mut gone = None;
        let mut handles = Vec::with_capacity(imported.len());
        for import in imported {
            if let (ImportState::Gone(reason), None) = (&import.state, &gone) {
                gone = Some(Error::from(reason.clone()));
            }
            let owner = import.key.id.owner;
            handles.push(Handle::counted(self, import.key));
            if owner != self.uid() && owner != from {
                state.wake(owner);
            }
        }
        if !handles.is_empty() {
            state.arm();
            // Whatever becomes of the message while the lock is held, its handles outlive that.
            state.later(handles.clone());
        }
        Imports { incoming: Incoming::new(self, handles, payload.body, payload.segments), gone }
    }

    fn create_arrived(
        &self,
        state: &mut State,
        from: NodeUid,
        at: Stamp,
        create: Create,
    ) -> Result<(), Broken> {
        let (payload, bytes) = state.charge(from, create.payload)?;
        // Looked up first: from `on_create` on something must become of the creation, and what is
        // imported must not be dropped under the lock.
        let entry = match create.source {
            Source::Function { name } | Source::Message { name, .. } | Source::Copy { name } => {
                state.named(from, name)?
            }
        };
        let Imports { incoming, gone } = self.import(state, from, at, payload);
        let id = match state.lifetime.on_create(from, create.create_no) {
            Ok(id) => id,
            Err(error) => {
                state.later(incoming);
                return Err(error.to_string());
            }
        };
        state.objects.insert(id, Entry::Pending(VecDeque::new()));
        let construction = Construction::new(self, id, Some((from, bytes)));
        let (node, trace) = (self.clone(), create.trace);
        state.unpark(id);
        if let Some(error) = gone {
            state.later(incoming);
            state.after(move || construction.fail(error));
            return Ok(());
        }
        match create.source {
            Source::Function { .. } => {
                state.after(move || match &entry.entry {
                    Named::Function(function) => {
                        let traced = Traced::arrived(&node, from, &entry.path, trace);
                        let _traced = traced.enter();
                        (function.create)(incoming, construction);
                    }
                    other => construction.fail(refusal(other, &entry, node.name())),
                });
            }
            Source::Message { object, .. } => {
                let waiter = Box::new(move |occupant: Result<Arc<dyn Occupant>, Error>, counted: bool| {
                    // Once the handler is queued, the seat outlives it.
                    let _count = counted.then(|| Counted { node: node.clone(), object });
                    let occupant = match occupant {
                        Ok(occupant) => occupant,
                        Err(error) => return construction.fail(error),
                    };
                    match message_entry(&entry, &*occupant) {
                        Ok(message) => {
                            let traced = Traced::arrived(&node, from, &entry.path, trace);
                            let _traced = traced.enter();
                            (message.create)(occupant.seat(), incoming, construction);
                        }
                        Err(error) => construction.fail(error.at(node.name(), entry.schema, 0)),
                    }
                });
                state.with_object(object, waiter);
            }
            Source::Copy { .. } => {
                state.after(move || match &entry.entry {
                    Named::Type(Ok(adopt)) => {
                        let traced = Traced::arrived(&node, from, &entry.path, trace);
                        let _traced = traced.enter();
                        adopt(incoming, construction);
                    }
                    Named::Type(Err(error)) => {
                        construction.fail(error.clone().at(incoming.node.name(), entry.schema, 0));
                    }
                    other => construction.fail(refusal(other, &entry, incoming.node.name())),
                });
            }
        }
        Ok(())
    }

    fn call_arrived(&self, state: &mut State, from: NodeUid, at: Stamp, call: Call) -> Result<(), Broken> {
        // All that a frame can have wrong comes first: what is imported must not be dropped under the
        // lock.
        let (name, object) = match call.target {
            Target::Function { name } => (Some(name), None),
            Target::Message { object, name }
            | Target::Method { object, name }
            | Target::Fetch { object, name } => (Some(name), Some(object)),
            Target::Ready { object } | Target::Flush { object } | Target::Ended { object } => {
                (None, Some(object))
            }
        };
        let entry = match name {
            Some(name) => Some(state.named(from, name)?),
            None => None,
        };
        let (payload, bytes) = state.charge(from, call.payload)?;
        let Some(peer) = state.peers.get_mut(&from) else { return Ok(()) };
        let cancel = (call.call_id != 0).then(|| Arc::new(AtomicBool::new(false)));
        if let Some(cancel) = &cancel
            && peer.running.insert(call.call_id, cancel.clone()).is_some()
        {
            return Err(format!("call {} while it is under way", call.call_id));
        }
        let Imports { incoming, gone } = self.import(state, from, at, payload);
        let function =
            entry.as_ref().map_or_else(|| Arc::from(unnamed(&call.target)), |entry| entry.path.clone());
        let mut responder = Responder {
            node: self.clone(),
            caller: from,
            call_id: call.call_id,
            bytes,
            object: None,
            function,
            cancel,
            deadline: self.deadline(call.timeout_ms),
            answered: false,
            streaming: false,
            traced: Traced::default(),
        };
        let trace = call.trace;
        if let Some(error) = gone {
            state.later(incoming);
            state.after(move || responder.complete(Err(error)));
            return Ok(());
        }
        let Some(object) = object else {
            state.after(move || match entry.as_deref() {
                Some(NamedEntry { entry: Named::Function(function), .. }) => {
                    let traced = responder.begin(trace);
                    let _traced = traced.enter();
                    (function.call)(incoming, responder);
                }
                Some(entry) => {
                    let error = refusal(&entry.entry, entry, incoming.node.name());
                    responder.complete(Err(error));
                }
                // Only calls of an object have no name.
                None => drop((incoming, responder)),
            });
            return Ok(());
        };
        let target = call.target;
        if let Target::Ended { .. } = target {
            state.later(incoming);
            watch_arrived(state, object, responder);
            return Ok(());
        }
        state.with_object(
            object,
            Box::new(move |occupant, counted| {
                responder.object = counted.then_some(object);
                match occupant {
                    Ok(occupant) => {
                        let traced = responder.begin(trace);
                        let _traced = traced.enter();
                        run(target, entry, &*occupant, incoming, responder);
                    }
                    Err(error) => responder.complete(Err(error)),
                }
            }),
        );
        Ok(())
    }

    fn reply_arrived(&self, state: &mut State, from: NodeUid, at: Stamp, reply: Reply) -> Result<(), Broken> {
        if state.calls.get(&reply.call_id).is_some_and(|call| call.owner != from) {
            return Err(format!("a reply to call {}, which was another node's", reply.call_id));
        }
        let payload = state.assembled(from, reply.payload)?;
        let Imports { incoming, .. } = self.import(state, from, at, payload);
        let status = reply.status;
        // Only an error says whose it is.
        let owner = if status == Status::Failed { state.name_of(from) } else { String::new() };
        match state.calls.remove(&reply.call_id) {
            Some(call) => {
                let PendingCall { reply: waiting, schema, trace_id, streams, .. } = call;
                let mut incoming = incoming;
                if streams && status == Status::Ok {
                    let (items, receiver) = mpsc::unbounded_channel();
                    state.inlets.insert(reply.call_id, Inlet::new(from, schema, trace_id, items));
                    incoming.stream = Some(StreamStart { call_id: reply.call_id, items: receiver });
                }
                state.after(move || {
                    let result = match status {
                        Status::Ok => Ok(incoming),
                        Status::Failed => Err(remote_error(&incoming, &owner, schema, trace_id)),
                    };
                    // Nobody may wait any more; then the result and its handles are dropped here.
                    drop(waiting.send(result));
                });
            }
            // The caller gave up.
            None => state.later(incoming),
        }
        Ok(())
    }
}

/// What came with a frame, its handles counted.
struct Imports {
    incoming: Incoming,
    /// Set if a handle points at an object of this node that is gone: the call fails with it.
    gone: Option<Error>,
}

/// Counts as a reference to an object until it is dropped.
struct Counted {
    node: Node,
    object: ObjectId,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.node.lock().lifetime.call_finished(self.object);
    }
}

impl State {
    /// A payload with its chunked parts in their places.
    fn assembled(&mut self, from: NodeUid, mut payload: Payload) -> Result<Payload, Broken> {
        if payload.transfer != 0
            && let Some(peer) = self.peers.get_mut(&from)
        {
            peer.assembly.finish(&mut payload, &Limits::DEFAULT).map_err(|error| error.to_string())?;
        }
        Ok(payload)
    }

    /// Takes what a call brings, and how many bytes that is, from its sender's credit.
    fn charge(&mut self, from: NodeUid, payload: Payload) -> Result<(Payload, u64), Broken> {
        let chunked = payload.transfer != 0;
        let payload = self.assembled(from, payload)?;
        let bytes = payload_bytes(&payload);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.grant.received(bytes, chunked).map_err(|error| error.to_string())?;
        }
        Ok((payload, bytes))
    }

    fn named(&self, from: NodeUid, name: u32) -> Result<Arc<NamedEntry>, Broken> {
        self.peers
            .get(&from)
            .and_then(|peer| peer.names_received.get((name as usize).wrapping_sub(1)))
            .cloned()
            .ok_or_else(|| format!("name index {name} was never announced"))
    }
}

fn class_of(frame: &Frame) -> Class {
    match frame {
        Frame::Create(_)
        | Frame::Call(_)
        | Frame::Cast(_)
        | Frame::Reply(_)
        | Frame::Item(_)
        | Frame::End(_)
        | Frame::Chunk(_) => Class::User,
        _ => Class::Control,
    }
}

fn not_registered(path: &str, kind: &str) -> Named {
    let item = path.rsplit("::").next().unwrap_or(path);
    let call = match kind {
        "message" => format!(".register::<T>() for the object `T` that lists `{item}`"),
        _ => format!(".{kind}({item})"),
    };
    Named::Refused(WireError::NotRegistered { what: path.to_string(), call })
}

/// Why an entry cannot be used as it was.
fn refusal(named: &Named, entry: &NamedEntry, node: &str) -> Error {
    match named {
        Named::Refused(error) => error.clone().at(node, entry.schema, 0),
        _ => Error::Decode(format!("`{}` is not what the call takes it for", entry.path)),
    }
}

fn message_entry<'a>(
    entry: &'a NamedEntry,
    occupant: &dyn Occupant,
) -> Result<&'a crate::registry::MessageEntry, WireError> {
    match &entry.entry {
        Named::Message(entries) => entries.by_seat.get(&occupant.seat_type()).ok_or_else(|| {
            let object = occupant.wire_name();
            let item = object.rsplit("::").next().unwrap_or(&object).to_string();
            WireError::NotRegistered {
                what: format!("{} for {object}", entry.path),
                call: format!(".register::<{item}>()"),
            }
        }),
        Named::Refused(error) => Err(error.clone()),
        _ => Err(WireError::Decode(format!("`{}` is not a message", entry.path))),
    }
}

/// Does what a call asks of an object that is there.
fn run(
    target: Target,
    entry: Option<Arc<NamedEntry>>,
    occupant: &dyn Occupant,
    incoming: Incoming,
    responder: Responder,
) {
    let node = incoming.node.clone();
    match (target, entry) {
        (Target::Message { .. }, Some(entry)) => match message_entry(&entry, occupant) {
            Ok(message) => (message.call)(occupant.seat(), incoming, responder),
            Err(error) => responder.complete(Err(error.at(node.name(), entry.schema, 0))),
        },
        (Target::Method { .. }, Some(entry)) => match &entry.entry {
            Named::Method(method) if method.seat == occupant.seat_type() => {
                (method.call)(occupant.seat(), incoming, responder);
            }
            Named::Method(method) => {
                let (expected, found) = (method.object.to_string(), occupant.wire_name().into_owned());
                responder.complete(Err(Error::WrongType { expected, found }));
            }
            other => responder.complete(Err(refusal(other, &entry, node.name()))),
        },
        (Target::Fetch { .. }, Some(entry)) => occupant.fetch(&node, &entry.path, entry.schema, responder),
        (Target::Flush { .. }, _) => {
            occupant
                .flush(&node, Box::new(move |done| responder.complete(done.map(|()| Outgoing::default()))));
        }
        _ => responder.complete(Ok(Outgoing::default())),
    }
}

/// Keeps a call that is answered when the object ends. It is no reference to the object.
fn watch_arrived(state: &mut State, object: ObjectId, responder: Responder) {
    let error = match state.objects.get(&object) {
        Some(Entry::Live(_) | Entry::Pending(_)) => {
            let cancel = responder.cancel.clone();
            let gone = move || cancel.as_ref().is_none_or(|flag| flag.load(Ordering::Acquire));
            let tell = move |reason| responder.ended(reason);
            return state.watch(object, Watcher { tell: Box::new(tell), gone: Box::new(gone) });
        }
        Some(Entry::Failed(error)) => error.clone(),
        None => Error::Gone(Gone::Freed),
    };
    state.after(move || responder.ended(error));
}

/// What people call a call that names nothing.
fn unnamed(target: &Target) -> &'static str {
    match target {
        Target::Flush { .. } => "flush",
        Target::Ended { .. } => "watch",
        _ => "ready",
    }
}

impl Node {
    /// When a call that may take this long, and has arrived now, need not be started any more.
    fn deadline(&self, timeout_ms: u64) -> Option<Instant> {
        if timeout_ms == u64::MAX {
            return None;
        }
        self.inner().config.surroundings.now().checked_add(Duration::from_millis(timeout_ms))
    }
}

fn remote_error(incoming: &Incoming, owner: &str, schema: u128, trace_id: u128) -> Error {
    match postcard::from_bytes::<WireError>(&incoming.body) {
        Ok(error) => error.at(owner, schema, trace_id),
        Err(_) => Error::Decode("the owner reported an error of an unknown kind".into()),
    }
}
