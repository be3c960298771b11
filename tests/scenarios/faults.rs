//! What is lost on the way, and what becomes of those who wait for it; and a whole program on top.

use crate::common::program::*;
use crate::common::{assert_no_leaks, bare, cluster, cluster_of, holders, millis, seconds, until};
use rref::prelude::*;
use rref::testkit::FrameKind;
use std::sync::Arc;
use tokio::sync::Notify;

/// Each kind of frame is lost three times, the connection breaking as it is sent: what it was for is
/// done, once.
#[test]
fn check_failed_messages() {
    cluster(async |[a, b, c], faults| {
        // The creation.
        faults.drop_frames_between("a", "c", FrameKind::Create, 3);
        let x = a.remote("c", counter, (7,))?;
        x.ready().await?;
        assert_eq!(faults.frames_to_drop(), 0, "nothing was lost");
        assert_eq!(c.report().objects.len(), 1);
        // A call on it.
        faults.drop_frames_between("a", "c", FrameKind::Call, 3);
        assert_eq!(x.send(Add(1)).await?, 8);
        assert_eq!(faults.frames_to_drop(), 0, "nothing was lost");
        // The message that shares it, and the claim of the one it is shared with.
        let shelf = a.remote("b", shelf, ())?;
        shelf.ready().await?;
        faults.drop_frames_between("a", "b", FrameKind::Call, 3);
        faults.drop_frames_between("b", "c", FrameKind::Claim, 3);
        shelf.send(Put(x.clone())).await?;
        until("b holds it", || holders(&c, &x) == Some(vec!["a".into(), "b".into()])).await;
        assert_eq!(faults.frames_to_drop(), 0, "nothing was lost");
        // The deletions, of one that is not the last and of the last.
        faults.drop_frames_between("b", "c", FrameKind::Release, 3);
        drop(shelf);
        until("b has let go", || holders(&c, &x) == Some(vec!["a".into()])).await;
        assert_eq!(x.send(Add(1)).await?, 9);
        faults.drop_frames_between("a", "c", FrameKind::Release, 3);
        drop(x);
        until("it is freed", || c.report().objects.is_empty()).await;
        until("all was lost that should be", || faults.frames_to_drop() == 0).await;
        assert!(b.report().objects.is_empty());
        Ok(())
    });
}

/// Those who wait for an object that never comes to be are woken, and told why.
#[test]
fn remote_message_dropped() {
    // On oneself: a constructor that fails late.
    cluster_of(
        |builder| builder.function(fail_late),
        async |[a, _b], _| {
            for owner in ["a", "b"] {
                let x = a.remote(owner, fail_late, (1000,))?;
                let (early, ready) = (x.to_here().timeout(millis(100)), x.ready());
                assert_eq!(early.await, Err(Error::Timeout(millis(100))));
                let error = x.to_here().await.unwrap_err();
                assert!(matches!(&error, Error::CreateFailed(why) if why.contains("too late")), "{error:?}");
                assert_eq!(ready.await, Err(error.clone()));
                assert_eq!(x.to_here().await, Err(error));
            }
            Ok(())
        },
    );
    // On another: the creation never arrives, and then there is nobody to arrive at.
    bare(
        |builder| builder,
        async |[a, b, c], faults| {
            {
                faults.partition_oneway(["a"], ["b"]);
                let x = a.remote("b", add, (1, 2)).unwrap();
                let late = x.to_here().timeout(seconds(1)).await;
                assert_eq!(late, Err(Error::Timeout(seconds(1))));
                let (fetched, ready) = (x.to_here(), x.ready());
                faults.crash("b");
                faults.heal();
                for error in [fetched.await.unwrap_err(), ready.await.unwrap_err()] {
                    let known = matches!(error, Error::OutcomeUnknown { .. } | Error::NotSent { .. });
                    assert!(known && error.to_string().contains("`b`"), "{error:?}");
                }
                let error = x.to_here().await.unwrap_err();
                assert!(matches!(&error, Error::OwnerDied { owner, .. } if owner == "b"), "{error:?}");
                assert_eq!(a.call("c", add, (1, 2)).await, Ok(3));
            }
            assert_no_leaks(&[&a, &c]).await;
            b.shutdown().await;
            Ok(())
        },
    );
}

async fn fail_late(ms: u64) -> i64 {
    tokio::time::sleep(millis(ms)).await;
    panic!("too late")
}

const TRAINERS: i64 = 3;
const ROUNDS: i64 = 10;

/// What one trainer finds in one round.
fn gradient(trainer: i64, round: i64, weight: i64) -> i64 {
    weight * (trainer + 2) - 7 * round
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "i64")]
struct Push(i64);

/// Waits in each round for all trainers, and then moves the weight by the mean of what they found.
#[derive(Object)]
#[object(name = "Server", messages(Push))]
struct Server {
    weight: i64,
    sum: i64,
    pushed: i64,
    updated: Arc<Notify>,
}

impl Actor for Server {
    type Context = Context<Self>;
}

impl Handler<Push> for Server {
    type Result = ResponseActFuture<Self, i64>;

    fn handle(&mut self, Push(gradient): Push, _: &mut Self::Context) -> Self::Result {
        self.sum += gradient;
        self.pushed += 1;
        let updated = self.updated.clone();
        if self.pushed == TRAINERS {
            self.weight -= self.sum / TRAINERS;
            (self.sum, self.pushed) = (0, 0);
            updated.notify_waiters();
            return Box::pin(actix::fut::ready(self.weight));
        }
        // Made here, so that it hears of an update from now on.
        let update = updated.notified_owned();
        Box::pin(update.into_actor(self).map(|(), server, _| server.weight))
    }
}

fn server() -> Server {
    Server { weight: 100, sum: 0, pushed: 0, updated: Arc::default() }
}

async fn train(server: RRef<Server>, trainer: i64) -> Result<i64, String> {
    let mut weight = 100;
    for round in 0..ROUNDS {
        let found = gradient(trainer, round, weight);
        weight = server.send(Push(found)).await.map_err(|error| error.to_string())?;
    }
    Ok(weight)
}

#[test]
fn my_parameter_server() {
    let mut weight = 100;
    for round in 0..ROUNDS {
        let sum: i64 = (0..TRAINERS).map(|trainer| gradient(trainer, round, weight)).sum();
        weight -= sum / TRAINERS;
    }
    cluster_of(
        |builder| builder.register::<Server>().function(server).function(train),
        async |[a, _b, _c, _d], _| {
            let server = a.remote("a", server, ())?;
            let trained = ["b", "c", "d"].into_iter().zip(0..TRAINERS);
            let trained: Vec<_> =
                trained.map(|(peer, trainer)| a.call(peer, train, (server.clone(), trainer))).collect();
            for result in trained {
                assert_eq!(result.await?, Ok(weight));
            }
            Ok(())
        },
    );
}
