//! Streaming replies: the owner's task that sends elements, and the caller's account of them.

use super::Node;
use super::outgoing::Message;
use super::responder::Responder;
use super::state::State;
use crate::error::{Error, RemoteKind, Result};
use crate::object::invoke::contained;
use crate::object::{Data, seat::panic_text};
use crate::payload::{Incoming, Outgoing};
use crate::reference::Streaming;
use futures_core::Stream;
use rref_core::NodeUid;
use rref_core::session::Class;
use rref_core::wire::{Frame, STREAM_CREDIT};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore, mpsc};

/// Elements a caller may grant ahead; more is a protocol error.
const GRANT_LIMIT: usize = 1 << 20;

/// The owner's side of one stream.
pub(crate) struct Outlet {
    permits: Semaphore,
    cancelled: Notify,
}

impl Outlet {
    fn cancel(&self) {
        self.permits.close();
        self.cancelled.notify_one();
    }
}

/// The caller's side of one stream.
pub(crate) struct Inlet {
    pub(super) owner: NodeUid,
    schema: u128,
    trace_id: u128,
    items: mpsc::UnboundedSender<Result<Incoming>>,
    /// Elements the owner may still send.
    credit: u64,
}

impl Inlet {
    pub(crate) fn new(
        owner: NodeUid,
        schema: u128,
        trace_id: u128,
        items: mpsc::UnboundedSender<Result<Incoming>>,
    ) -> Inlet {
        Inlet { owner, schema, trace_id, items, credit: STREAM_CREDIT }
    }
}

impl Responder {
    /// Sends a stream's elements as the caller takes them.
    pub(crate) fn stream<T: Data>(mut self, streaming: Streaming<T>) {
        if self.call_id == 0 {
            // Nobody would read it.
            return self.complete(Ok(Outgoing::default()));
        }
        self.streaming = true;
        let outlet =
            Arc::new(Outlet { permits: Semaphore::new(STREAM_CREDIT as usize), cancelled: Notify::new() });
        let mut state = self.node.lock();
        if let Some(peer) = state.peers.get_mut(&self.caller) {
            peer.outlets.insert(self.call_id, outlet.clone());
        }
        let started = Message::stream_reply(self.call_id, Outgoing::default());
        state.submit(self.caller, started);
        drop(state);
        actix_rt::spawn(self.pump(streaming, outlet));
    }

    async fn pump<T: Data>(self, mut streaming: Streaming<T>, outlet: Arc<Outlet>) {
        let node = self.node.clone();
        loop {
            match outlet.permits.acquire().await {
                Ok(permit) => permit.forget(),
                // The caller has gone.
                Err(_) => return self.complete(Ok(Outgoing::default())),
            }
            let next = std::future::poll_fn(|task| {
                let _current = super::current::enter(&node);
                let _traced = self.traced.enter();
                let poll = AssertUnwindSafe(|| Pin::new(&mut streaming).poll_next(task));
                match catch_unwind(poll) {
                    Ok(poll) => poll.map(Ok),
                    Err(panic) => std::task::Poll::Ready(Err(panic_text(&*panic))),
                }
            });
            let item = tokio::select! {
                biased;
                () = outlet.cancelled.notified() => return self.complete(Ok(Outgoing::default())),
                item = next => item,
            };
            let encoded = match item {
                Ok(None) => return self.complete(Ok(Outgoing::default())),
                Ok(Some(Err(error))) => Err(error),
                Ok(Some(Ok(item))) => contained(&node, &self.function, || Outgoing::encode(&node, &item)),
                Err(message) => Err(Error::Remote {
                    kind: RemoteKind::Panic,
                    message,
                    node: node.name().to_string(),
                    function: self.function.to_string(),
                    trace_id: self.traced.id(),
                }),
            };
            match encoded {
                Ok(payload) => {
                    let item = Message::item(self.call_id, payload);
                    node.lock().submit(self.caller, item);
                }
                Err(error) => return self.complete(Err(error)),
            }
        }
    }
}

impl State {
    /// The caller takes more elements.
    pub(crate) fn more_granted(&mut self, caller: NodeUid, call_id: u64, items: u64) -> Result<(), String> {
        let outlet = self.peers.get(&caller).and_then(|peer| peer.outlets.get(&call_id));
        let Some(outlet) = outlet else { return Ok(()) };
        let items = usize::try_from(items).unwrap_or(usize::MAX);
        if outlet.permits.available_permits().saturating_add(items) > GRANT_LIMIT {
            return Err(format!("it grants {items} elements of a stream"));
        }
        let outlet = outlet.clone();
        self.after(move || outlet.permits.add_permits(items));
        Ok(())
    }

    /// The caller wants no more of a stream.
    pub(crate) fn cancel_outlet(&mut self, caller: NodeUid, call_id: u64) {
        if let Some(outlet) = self.peers.get(&caller).and_then(|peer| peer.outlets.get(&call_id)).cloned() {
            self.after(move || outlet.cancel());
        }
    }

    /// The caller is lost, with all that it reads.
    pub(crate) fn cancel_outlets(&mut self, caller: NodeUid) {
        let Some(peer) = self.peers.get_mut(&caller) else { return };
        let outlets = std::mem::take(&mut peer.outlets);
        self.after(move || outlets.values().for_each(|outlet| outlet.cancel()));
    }

    /// An element of a stream has arrived.
    pub(crate) fn item_arrived(
        &mut self,
        owner: NodeUid,
        call_id: u64,
        incoming: Incoming,
    ) -> Result<(), String> {
        match self.inlets.get_mut(&call_id) {
            Some(inlet) if inlet.owner == owner => {
                let Some(credit) = inlet.credit.checked_sub(1) else {
                    self.later(incoming);
                    return Err("it sends more of a stream than it may".into());
                };
                inlet.credit = credit;
                let items = inlet.items.clone();
                self.after(move || drop(items.send(Ok(incoming))));
            }
            // The caller has dropped the stream.
            _ => self.later(incoming),
        }
        Ok(())
    }

    /// A stream has ended, with an error perhaps: `error` gets the caller's schema and
    /// the trace's identity.
    pub(crate) fn stream_ended(
        &mut self,
        owner: NodeUid,
        call_id: u64,
        error: impl FnOnce(u128, u128) -> Option<Error>,
    ) {
        if self.inlets.get(&call_id).is_some_and(|inlet| inlet.owner == owner)
            && let Some(inlet) = self.inlets.remove(&call_id)
        {
            let error = error(inlet.schema, inlet.trace_id);
            self.after(move || {
                if let Some(error) = error {
                    let _ = inlet.items.send(Err(error));
                }
            });
        }
    }

    /// The owner is lost, with all that it streams.
    pub(crate) fn fail_inlets(&mut self, owner: NodeUid, error: &Error) {
        let lost: Vec<u64> =
            self.inlets.iter().filter(|(_, inlet)| inlet.owner == owner).map(|(id, _)| *id).collect();
        for call_id in lost {
            self.stream_ended(owner, call_id, |_, _| Some(error.clone()));
        }
    }
}

impl Node {
    /// Lets the owner send so many more elements.
    pub(crate) fn take_more(&self, call_id: u64, items: u64) {
        let mut state = self.lock();
        let Some(inlet) = state.inlets.get_mut(&call_id) else { return };
        inlet.credit += items;
        let owner = inlet.owner;
        if let Some(peer) = state.peers.get_mut(&owner).filter(|peer| peer.takes_messages())
            && peer.push(Class::Control, &Frame::More { call_id, items }).is_ok()
        {
            state.wake(owner);
        }
    }

    /// Nobody reads this stream any more.
    pub(crate) fn end_stream(&self, call_id: u64) {
        let mut state = self.lock();
        let Some(inlet) = state.inlets.remove(&call_id) else { return };
        let owner = inlet.owner;
        state.later(inlet);
        if let Some(peer) = state.peers.get_mut(&owner).filter(|peer| peer.takes_messages())
            && peer.push(Class::Control, &Frame::Cancel { call_id }).is_ok()
        {
            state.wake(owner);
        }
    }
}
