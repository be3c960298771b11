//! Sending references so that they are safe before anything else happens. Knows pins; must not know how
//! they come to fall.

use super::RRef;
use crate::error::Result;
use crate::node::Node;
use crate::object::{Accepts, Object, RemoteMessage, Response};
use rref_core::{NodeUid, Stamp};
use std::future::Future;
use std::sync::atomic::Ordering;

impl<T: Object> RRef<T> {
    /// Sends a message as [`RRef::send`] does, and gives its result once every reference in it is safe with
    /// the receiver: their owners know that the receiver holds them.
    ///
    /// A reference that was just sent lives by the sender's hold until its owner has heard of the
    /// receiver. If the sender crashes before and the receiver cannot reach the owner in time, the
    /// receiver gets a typed error. Who cannot have that waits here for the owners; nothing else in this
    /// crate does. When an owner is out of reach this takes until it returns or its leases are over.
    ///
    /// The message is on its way when this returns, whether or not the future is polled.
    ///
    /// ```
    /// use rref::prelude::*;
    ///
    /// #[derive(Serialize, Deserialize, Message)]
    /// #[rtype(result = "usize")]
    /// struct Keep(RRef<i64>);
    ///
    /// #[derive(Default, Object)]
    /// #[object(messages(Keep))]
    /// struct Shelf(Vec<RRef<i64>>);
    /// impl Actor for Shelf { type Context = Context<Self>; }
    /// impl Handler<Keep> for Shelf {
    ///     type Result = usize;
    ///     fn handle(&mut self, Keep(x): Keep, _: &mut Self::Context) -> usize { self.0.push(x); self.0.len() }
    /// }
    /// fn shelf() -> Shelf { Shelf::default() }
    /// fn number(x: i64) -> i64 { x }
    ///
    /// # actix::System::new().block_on(async {
    /// # let network = rref::transport::Network::new();
    /// # let node = |name: &str| Node::builder(name).transport(network.clone()).listen(name).insecure()
    /// #     .register::<Shelf>().function(shelf).function(number);
    /// # let (owner, keeper) = (node("owner").start().await?, node("keeper").join("owner").start().await?);
    /// # let me = node("me").join("owner").join("keeper").start().await?;
    /// let x = me.remote("owner", number, (42,))?;
    /// let shelf = me.remote("keeper", shelf, ())?;
    /// assert_eq!(shelf.send_confirmed(Keep(x)).await?, 1);
    /// // Whatever becomes of this node now, the keeper has it.
    /// # drop(shelf);
    /// # for node in [&me, &keeper, &owner] { node.shutdown().await; }
    /// # Ok::<_, Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`RRef::send`]; after the handler has run also [`Error::OwnerDied`](crate::Error::OwnerDied)
    /// and [`Error::Unreachable`](crate::Error::Unreachable), if the receiver is lost.
    pub fn send_confirmed<M>(&self, message: M) -> impl Future<Output = Result<M::Result>> + use<T, M>
    where
        M: RemoteMessage<Result: Response>,
        T: Accepts<M>,
    {
        let request = self.send(message);
        let (node, local, receiver) = (self.node().clone(), self.is_local(), self.id().owner);
        async move {
            let result = request.await?;
            if !local {
                node.settled_with(receiver).await?;
            }
            Ok(result)
        }
    }
}

/// Counts as one who waits for pins to fall.
struct Waiting<'a>(&'a Node);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.inner().confirming.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Node {
    /// Waits until everything that this node has handed to `receiver` so far is settled.
    async fn settled_with(&self, receiver: NodeUid) -> Result<()> {
        self.inner().confirming.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(self);
        let upto = {
            let state = self.lock();
            let lane = state.peers.get(&receiver).map(|peer| &peer.lane);
            lane.map_or(Stamp::ZERO, |lane| Stamp {
                session_no: lane.session_no(),
                seq: lane.last_assigned(),
            })
        };
        loop {
            let (settled, changed) = (self.inner().settled.notified(), self.inner().peers_changed.notified());
            {
                let state = self.lock();
                state.check(receiver)?;
                if state.lifetime.is_settled(receiver, upto) {
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                () = settled => {}
                () = changed => {}
            }
        }
    }
}
