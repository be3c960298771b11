//! What happens to peers and objects, for those who want to know.

use super::Node;
use super::state::State;
use crate::error::Error;
use crate::reference::RRef;
use futures_core::Stream;
use rref_core::{NodeUid, ObjectId};
use std::pin::Pin;
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
    /// It has been out of reach for 6 s: calls to it fail, but it may return.
    PeerSuspect {
        /// Its name.
        name: String,
        /// Its identity.
        uid: NodeUid,
        /// What keeps it out of reach.
        reason: String,
    },
    /// It is connected again.
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
    /// Its owner has been out of reach for 6 s, for this reason.
    OwnerSuspect(String),
    /// Its owner is connected again.
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
    call_id: u64,
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
        if self.call_id != 0 && self.ended.is_some() {
            self.node.cancel_call(self.call_id);
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
        let (call_id, ended) = node.watch_end(self.id());
        Watch { node, events, owner, call_id, ended: Some(ended) }
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
