//! Time limits: which one holds for what, and that they leave everything usable.

use crate::common::program::*;
use crate::common::{cluster, cluster_of, millis, seconds};
use rref::prelude::*;
use std::time::Duration;

#[test]
fn default_timeout_used() {
    cluster_of(
        |builder| builder.default_timeout(seconds(2)),
        async |[a, _b], _| {
            for owner in ["a", "b"] {
                // The error says which limit it was.
                assert_eq!(a.call(owner, slow, (5000, 1)).await, Err(Error::Timeout(seconds(2))));
                assert_eq!(a.call(owner, slow, (1000, 1)).await, Ok(1));
                let c = a.remote(owner, counter, (0,))?;
                assert_eq!(c.send(AddLater(1, 5000)).await, Err(Error::Timeout(seconds(2))));
            }
            Ok(())
        },
    );
}

#[test]
fn rpc_timeouts() {
    cluster_of(
        |builder| builder.default_timeout(seconds(2)),
        async |[a, _b], _| {
            for owner in ["a", "b"] {
                let by_default = a.call(owner, slow, (1500, 1));
                let short = a.call(owner, slow, (1500, 2)).timeout(millis(100));
                let long = a.call(owner, slow, (10_000, 3)).timeout(seconds(20));
                let unlimited = a.call(owner, slow, (100_000, 4)).timeout(Duration::MAX);
                assert_eq!(short.await, Err(Error::Timeout(millis(100))));
                // Those under way are not touched by another one's limit.
                assert_eq!(by_default.await, Ok(1));
                assert_eq!(long.await, Ok(3));
                assert_eq!(unlimited.await, Ok(4));
            }
            Ok(())
        },
    );
}

#[test]
fn default_is_a_minute() {
    cluster(async |[a, _b], _| {
        assert_eq!(a.call("b", slow, (59_000, 1)).await, Ok(1));
        assert_eq!(a.call("b", slow, (61_000, 1)).await, Err(Error::Timeout(seconds(60))));
        Ok(())
    });
}

/// A creation that takes longer than those who use it wait.
#[test]
fn rref_timeout() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            let x = a.remote(owner, slow, (5000, 7))?;
            assert_eq!(x.ready().timeout(seconds(1)).await, Err(Error::Timeout(seconds(1))));
            assert_eq!(x.to_here().timeout(seconds(1)).await, Err(Error::Timeout(seconds(1))));
            // No timeout of theirs has ended the creation.
            assert_eq!(x.to_here().await, Ok(7));
        }
        Ok(())
    });
}

/// A fetch behind a busy actor, and one whose answer is held up: then it works.
#[test]
fn rref_to_here_timeout() {
    cluster(async |[a, _b], faults| {
        let x = a.remote("b", add, (1, 2))?;
        x.ready().await?;
        faults.partition_oneway(["b"], ["a"]);
        assert_eq!(x.to_here().timeout(millis(200)).await, Err(Error::Timeout(millis(200))));
        faults.heal();
        // The late answer to the first must not be taken for one to the second.
        let y = a.remote("b", add, (10, 20))?;
        assert_eq!(y.to_here().await, Ok(30));
        assert_eq!(x.to_here().await, Ok(3));
        Ok(())
    });
}

/// The limit is the caller's: what the network does not deliver in time is over for it.
#[test]
fn timeout_while_cut_off() {
    cluster(async |[a, _b], faults| {
        let c = a.remote("b", counter, (0,))?;
        c.ready().await?;
        faults.partition_oneway(["a"], ["b"]);
        let late = c.send(Add(1)).timeout(seconds(1)).await;
        assert_eq!(late, Err(Error::Timeout(seconds(1))));
        faults.heal();
        // It may have run, but only once, and never after this.
        let count = c.send(Snapshot).await?;
        assert!(count == 0 || count == 1, "{count}");
        assert_eq!(c.send(Add(1)).await?, count + 1);
        Ok(())
    });
}
