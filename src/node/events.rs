//! What happens to peers and objects, for those who want to know.

use super::objects::Entry;
use super::outgoing::MessageTarget;
use super::state::State;
use super::{Node, Started};
use crate::error::{Error, Result};
use crate::payload::Outgoing;
use crate::reference::RRef;
use futures_core::Stream;
use rref_core::lifetime::HandleKey;
use rref_core::{NodeUid, ObjectId};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Events that wait for a subscriber; one that lags further behind misses the newest.
const BACKLOG: usize = 1024;

/// Something that happened to another node, as this one sees it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// It has joined, or is connected for the first time.
    PeerUp {
        /// Its name.
        name: String,
        /// Its identity.
        uid: NodeUid,
    },
    /// It has been silent or out of reach for 6 s ([`LeaseSettings::suspect_after`]): calls to it fail, but
    /// it may return.
    ///
    /// [`LeaseSettings::suspect_after`]: crate::LeaseSettings::suspect_after
    PeerSuspect {
        /// Its name.
        name: String,
        /// Its identity.
        uid: NodeUid,
        /// What keeps it out of reach.
        reason: String,
    },
    /// It is connected again, or is silent no more.
    PeerBack {
        /// Its name.
        name: String,
        /// Its identity.
        uid: NodeUid,
    },
    /// The name of this very node is another's: it leaves the cluster, and all peers go down.
    NameTaken {
        /// Who has it.
        holder: NodeUid,
    },
    /// It has left, or is gone for good.
    PeerDown {
        /// Its name.
        name: String,
        /// Its identity.
        uid: NodeUid,
        /// How this node knows.
        reason: String,
    },
}

impl NodeEvent {
    /// The node it is about.
    pub fn uid(&self) -> NodeUid {
        match self {
            NodeEvent::PeerUp { uid, .. }
            | NodeEvent::PeerSuspect { uid, .. }
            | NodeEvent::PeerBack { uid, .. }
            | NodeEvent::PeerDown { uid, .. } => *uid,
            NodeEvent::NameTaken { holder } => *holder,
        }
    }
}

/// Something that happened to one object, or to its owner.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The object is no more, for this reason; the last event.
    Ended(Error),
    /// Its owner has been silent or out of reach for 6 s, for this reason.
    OwnerSuspect(String),
    /// Its owner is connected again, or is silent no more.
    OwnerBack,
}

/// A stream of what happens to other nodes. Made by [`Node::events`].
#[derive(Debug)]
pub struct NodeEvents {
    events: mpsc::Receiver<NodeEvent>,
}

impl NodeEvents {
    /// The next event; none once the node is closed.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        self.events.recv().await
    }
}

impl Stream for NodeEvents {
    type Item = NodeEvent;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<NodeEvent>> {
        self.events.poll_recv(task)
    }
}

/// A stream of what happens to one object. Made by [`RRef::watch`].
pub struct Watch {
    node: Node,
    events: NodeEvents,
    owner: NodeUid,
    /// The call that is answered when the object ends; 0 on the owner itself.
    call_id: Arc<AtomicU64>,
    ended: Option<oneshot::Receiver<Error>>,
}

impl Watch {
    /// The next event; none after [`Event::Ended`].
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|task| Pin::new(&mut *self).poll_next(task)).await
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        let Some(ended) = &mut this.ended else { return Poll::Ready(None) };
        if let Poll::Ready(reason) = Pin::new(ended).poll(task) {
            this.ended = None;
            let closed = || Error::ShuttingDown { node: this.node.name().to_string() };
            return Poll::Ready(Some(Event::Ended(reason.unwrap_or_else(|_| closed()))));
        }
        while let Poll::Ready(Some(event)) = this.events.events.poll_recv(task) {
            match event {
                NodeEvent::PeerSuspect { uid, reason, .. } if uid == this.owner => {
                    return Poll::Ready(Some(Event::OwnerSuspect(reason)));
                }
                NodeEvent::PeerBack { uid, .. } if uid == this.owner => {
                    return Poll::Ready(Some(Event::OwnerBack));
                }
                _ => {}
            }
        }
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let call_id = self.call_id.load(Ordering::Acquire);
        if call_id != 0 && self.ended.is_some() {
            self.node.cancel_call(call_id);
        }
    }
}

impl Node {
    /// What happens to other nodes from now on.
    ///
    /// Up to 1,024 events wait for a slow reader; those beyond are lost for it.
    pub fn events(&self) -> NodeEvents {
        NodeEvents { events: self.lock().subscribe() }
    }
}

impl<T> RRef<T> {
    /// What happens to the object, and to its owner, from now on.
    ///
    /// Watching does not change how long the object lives. Dropping the stream ends it.
    pub fn watch(&self) -> Watch {
        let node = self.node().clone();
        let events = node.events();
        let owner = self.id().owner;
        let call_id = Arc::default();
        let ended = match self.is_local() {
            true => node.watch_own(self.id()),
            false => node.watch_foreign(self.key(), Arc::clone(&call_id)),
        };
        Watch { node, events, owner, call_id, ended: Some(ended) }
    }
}

impl Node {
    /// Asks to be told when an object of this node ends.
    fn watch_own(&self, id: ObjectId) -> oneshot::Receiver<Error> {
        let (tell, told) = oneshot::channel();
        let mut state = self.lock();
        match state.objects.get(&id) {
            Some(Entry::Live(_) | Entry::Pending(_)) => {
                let tell = Arc::new(Mutex::new(Some(tell)));
                let probe = tell.clone();
                let watcher = Watcher {
                    tell: Box::new(move |reason| {
                        if let Some(tell) = tell.lock().unwrap_or_else(PoisonError::into_inner).take() {
                            let _ = tell.send(reason);
                        }
                    }),
                    gone: Box::new(move || {
                        let tell = probe.lock().unwrap_or_else(PoisonError::into_inner);
                        tell.as_ref().is_none_or(oneshot::Sender::is_closed)
                    }),
                };
                state.watch(id, watcher);
            }
            Some(Entry::Failed(error)) => drop(tell.send(error.clone())),
            None => drop(tell.send(Error::Gone(crate::Gone::Freed))),
        }
        told
    }

    /// Asks the owner to tell when an object ends; the call that asks is noted.
    fn watch_foreign(&self, key: HandleKey, call: Arc<AtomicU64>) -> oneshot::Receiver<Error> {
        let (tell, told) = oneshot::channel();
        // At once, so that whoever watches before a call hears of what the call does.
        let asked = self.ask_for_end(key.id, &call);
        let node = self.clone();
        self.inner().home.run(move || drop(actix_rt::spawn(node.keep_asking(key, call, asked, tell))));
        told
    }

    fn ask_for_end(&self, id: ObjectId, call: &AtomicU64) -> Result<Started> {
        let started = self.start_call(id.owner, MessageTarget::Ended(id), Outgoing::default(), false)?;
        call.store(started.call_id, Ordering::Release);
        Ok(started)
    }

    /// Waits for the answer, and asks again whenever a session has ended under the question.
    async fn keep_asking(
        self,
        key: HandleKey,
        call: Arc<AtomicU64>,
        asked: Result<Started>,
        mut tell: oneshot::Sender<Error>,
    ) {
        let mut asked = asked;
        loop {
            let error = match asked {
                Err(error) => error,
                Ok(started) => tokio::select! {
                    biased;
                    () = tell.closed() => return,
                    answer = started.result => match answer {
                        Ok(Err(error)) => error,
                        // The watch was dropped, or the node is closed.
                        Ok(Ok(_)) | Err(_) => return,
                    },
                },
            };
            let again = matches!(
                error,
                Error::OutcomeUnknown { .. } | Error::NotSent { .. } | Error::Unreachable { .. }
            );
            if !again {
                let _ = tell.send(error);
                return;
            }
            if let Err(error) = self.back(key, &mut tell).await {
                let _ = tell.send(error);
                return;
            }
            asked = self.ask_for_end(key.id, &call);
        }
    }

    /// Waits until the owner of an object can be asked again.
    ///
    /// # Errors
    /// Why that will never be.
    async fn back(&self, key: HandleKey, tell: &mut oneshot::Sender<Error>) -> Result<()> {
        loop {
            let changed = self.inner().peers_changed.notified();
            {
                let state = self.lock();
                if let Some(reason) = state.lifetime.broken_reason(key) {
                    return Err(Error::from(reason.clone()));
                }
                match state.check(key.id.owner) {
                    Err(Error::Unreachable { .. }) => {}
                    checked => return checked,
                }
            }
            tokio::select! {
                biased;
                // Nobody wants to know any more: whatever is said is not heard.
                () = tell.closed() => return Ok(()),
                () = changed => {}
            }
        }
    }
}

/// Who is told when an object ends.
pub(crate) type EndWatcher = Box<dyn FnOnce(Error) + Send>;

/// A watcher, and whether it still wants to know.
pub(crate) struct Watcher {
    pub(crate) tell: EndWatcher,
    pub(crate) gone: Box<dyn Fn() -> bool + Send>,
}

impl State {
    fn subscribe(&mut self) -> mpsc::Receiver<NodeEvent> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.subscribers.retain(|subscriber| !subscriber.is_closed());
        self.subscribers.push(sender);
        receiver
    }

    /// Tells whoever subscribed, after the lock is released.
    pub(crate) fn announce(&mut self, event: NodeEvent) {
        self.subscribers.retain(|subscriber| !subscriber.is_closed());
        if !self.subscribers.is_empty() {
            let subscribers = self.subscribers.clone();
            self.after(move || {
                for subscriber in subscribers {
                    // A full backlog is the subscriber's loss.
                    let _ = subscriber.try_send(event.clone());
                }
            });
        }
    }

    /// Remembers who is to be told when an object of this node ends.
    pub(crate) fn watch(&mut self, id: ObjectId, watcher: Watcher) {
        let watchers = self.watchers.entry(id).or_default();
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| !(watcher.gone)());
        }
        watchers.push(watcher);
    }

    /// An object of this node is no more.
    pub(crate) fn object_gone(&mut self, id: ObjectId, reason: &Error) {
        for watcher in self.watchers.remove(&id).unwrap_or_default() {
            let reason = reason.clone();
            self.after(move || (watcher.tell)(reason));
        }
    }
}
