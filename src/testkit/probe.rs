//! A stand-in for an actor: it takes messages and tells the test what has come.

use super::cluster::{EVENTUALLY, TestCluster};
use crate::error::Result;
use crate::object::{Accepts, Handled, Hosted, Object, RemoteMessage};
use crate::reference::RRef;
use crate::registry::Messages;
use actix::{Actor, Context, Handler, MessageResult};
use std::any::type_name;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// What a [`Probe`] is on its node. The node's builder registers it, for each message that a probe is to
/// take: `.register::<Recorder<Add>>()`.
pub struct Recorder<M: RemoteMessage> {
    inbox: Arc<Inbox<M>>,
}

struct Inbox<M: RemoteMessage> {
    received: Mutex<Received<M>>,
    news: Notify,
}

/// What is answered to a message.
type Answer<M> = Box<dyn FnMut(&M) -> <M as actix::Message>::Result + Send>;

struct Received<M: RemoteMessage> {
    messages: VecDeque<M>,
    reply: Answer<M>,
}

impl<M: RemoteMessage> Inbox<M> {
    fn lock(&self) -> MutexGuard<'_, Received<M>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: RemoteMessage<Result: Handled>> Actor for Recorder<M> {
    type Context = Context<Self>;
}

impl<M: RemoteMessage<Result: Handled>> Handler<M> for Recorder<M> {
    type Result = MessageResult<M>;

    fn handle(&mut self, message: M, _: &mut Context<Self>) -> MessageResult<M> {
        let mut received = self.inbox.lock();
        let reply = (received.reply)(&message);
        received.messages.push_back(message);
        drop(received);
        self.inbox.news.notify_waiters();
        MessageResult(reply)
    }
}

impl<M: RemoteMessage> Object for Recorder<M> {
    fn wire_name() -> Cow<'static, str> {
        Cow::Borrowed(type_name::<Self>())
    }
}

impl<M: RemoteMessage<Result: Handled>> Accepts<M> for Recorder<M> {}

impl<M: RemoteMessage<Result: Handled>> Hosted for Recorder<M> {
    type Host = Self;

    fn into_host(self) -> Self {
        self
    }

    fn get(host: &Self) -> &Self {
        host
    }

    fn messages(messages: &mut Messages<'_, Self>) {
        messages.message::<M>();
    }
}

/// The test's side of a stand-in for an actor: what has been sent to it, in order.
///
/// ```
/// use rref::prelude::*;
/// use rref::testkit::{Recorder, TestCluster, ms};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, Message)]
/// #[rtype(result = "()")]
/// struct Alarm(String);
///
/// // What the program knows of whoever wants to hear of alarms.
/// #[derive(Object)]
/// #[object(remote = "Pager", messages(Alarm))]
/// struct Pager;
///
/// fn watch(pager: RRef<Pager>, value: i64) -> Result<(), String> {
///     if value < 10 { return Ok(()) }
///     pager.do_send(Alarm(format!("{value} is too much"))).map_err(|error| error.to_string())
/// }
///
/// let node = |name: &str| Node::builder(name).function(watch).register::<Recorder<Alarm>>();
/// TestCluster::builder(node).nodes(2).run(async |cluster| {
///     let (mut probe, pager) = cluster.probe::<Pager, Alarm>("n1")?;
///     let n1 = cluster.node("n1");
///     n1.call("n2", watch, (pager.clone(), 9)).await??;
///     probe.expect_none(ms(1_000)).await;
///     n1.call("n2", watch, (pager, 10)).await??;
///     assert_eq!(probe.expect().await, Alarm("10 is too much".into()));
///     Ok(())
/// });
/// ```
pub struct Probe<M: RemoteMessage> {
    inbox: Arc<Inbox<M>>,
}

impl TestCluster {
    /// Makes a stand-in for a `T` on the node `name`, which answers each message with the default.
    ///
    /// `T` is what the program's references point at: an actor, or an interface type. The stand-in lives
    /// as long as somebody holds the reference.
    ///
    /// # Errors
    /// [`Error::ShuttingDown`](crate::Error::ShuttingDown).
    #[track_caller]
    pub fn probe<T, M>(&self, name: &str) -> Result<(Probe<M>, RRef<T>)>
    where
        T: Accepts<M>,
        M: RemoteMessage<Result: Handled + Default>,
    {
        self.probe_with(name, |_| M::Result::default())
    }

    /// As [`probe`](TestCluster::probe), with what it answers.
    ///
    /// # Errors
    /// [`Error::ShuttingDown`](crate::Error::ShuttingDown).
    #[track_caller]
    pub fn probe_with<T, M>(
        &self,
        name: &str,
        reply: impl FnMut(&M) -> M::Result + Send + 'static,
    ) -> Result<(Probe<M>, RRef<T>)>
    where
        T: Accepts<M>,
        M: RemoteMessage<Result: Handled>,
    {
        let received = Received { messages: VecDeque::new(), reply: Box::new(reply) };
        let inbox = Arc::new(Inbox { received: Mutex::new(received), news: Notify::new() });
        let recorder = self.node(name).host(Recorder { inbox: inbox.clone() })?;
        Ok((Probe { inbox }, recorder.retyped()))
    }
}

impl<M: RemoteMessage> Probe<M> {
    /// The next message, as soon as it has come.
    ///
    /// # Panics
    /// If none comes within a minute of virtual time.
    pub async fn expect(&mut self) -> M {
        match timeout(EVENTUALLY, self.next()).await {
            Ok(message) => message,
            Err(_) => panic!("no {} has come within {EVENTUALLY:?}", type_name::<M>()),
        }
    }

    /// The next messages are these, in this order.
    ///
    /// # Panics
    /// If another one comes, or none within a minute of virtual time.
    pub async fn expect_in_order(&mut self, expected: impl IntoIterator<Item = M>)
    where
        M: Debug + PartialEq,
    {
        for (index, expected) in expected.into_iter().enumerate() {
            let found = self.expect().await;
            assert!(found == expected, "message {index} is {found:?} and should be {expected:?}");
        }
    }

    /// Nothing comes for so long.
    ///
    /// # Panics
    /// If something does.
    pub async fn expect_none(&mut self, time: Duration) {
        if timeout(time, self.next()).await.is_ok() {
            panic!("a {} has come, and none was expected", type_name::<M>());
        }
    }

    /// What has come and was not taken yet.
    pub fn waiting(&self) -> usize {
        self.inbox.lock().messages.len()
    }

    async fn next(&mut self) -> M {
        loop {
            let news = self.inbox.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(message) = self.inbox.lock().messages.pop_front() {
                return message;
            }
            news.await;
        }
    }
}
