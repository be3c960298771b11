//! References as arguments and results, to their owners and to others.

use crate::common::program::*;
use crate::common::{cluster, holders, until};

/// Catches: a claim or a pin for a handle that comes home, which nobody would ever release.
#[test]
fn self_remote_rref_as_rpc_arg() {
    cluster(async |[a, _b], _| {
        let x = a.remote("a", add, (1, 2))?;
        assert_eq!(a.call("b", fetch, (x.clone(),)).await?, Ok(3));
        until("b has let go of it", || holders(&a, &x) == Some(vec![])).await;
        Ok(())
    });
}

#[test]
fn self_remote_rref_as_self_rpc_arg() {
    cluster(async |[a, _b], _| {
        let x = a.remote("a", add, (1, 2))?;
        assert_eq!(a.call("a", fetch, (x,)).await?, Ok(3));
        Ok(())
    });
}

#[test]
fn self_remote_rref_as_remote_arg() {
    cluster(async |[a, _b], _| {
        let x = a.remote("a", add, (1, 2))?;
        let y = a.remote("b", fetch, (x,))?;
        assert_eq!(y.to_here().await?, Ok(3));
        Ok(())
    });
}

#[test]
fn self_remote_rref_as_self_remote_arg() {
    cluster(async |[a, _b], _| {
        let x = a.remote("a", add, (1, 2))?;
        let y = a.remote("a", fetch, (x,))?;
        assert_eq!(y.to_here().await?, Ok(3));
        Ok(())
    });
}

#[test]
fn py_rref_args() {
    cluster(async |[a, b], _| {
        let x = a.remote("b", add, (1, 2))?;
        let y = a.remote("b", add, (10, 20))?;
        // To their owner, as a creation and as a call.
        let z = a.remote("b", sum, (vec![x.clone(), y.clone()],))?;
        assert_eq!(z.to_here().await?, Ok(33));
        assert_eq!(a.call("b", sum, (vec![x, y],)).await?, Ok(33));
        // The frames named the objects, and `b` kept nothing of that.
        until("x and y are freed", || b.report().objects.len() == 1).await;
        Ok(())
    });
}

/// Another user fetches from the owner, not through the sender.
#[test]
fn py_rref_args_user_share() {
    cluster(async |[a, b, _c], _| {
        let x = a.remote("b", add, (1, 2))?;
        let y = a.remote("b", add, (10, 20))?;
        let z = a.remote("c", sum, (vec![x.clone(), y, x.clone()],))?;
        assert_eq!(z.to_here().await?, Ok(36));
        assert_eq!(a.call("c", fetch, (x.clone(),)).await?, Ok(3));
        until("c has let go of x", || holders(&b, &x) == Some(vec!["a".into()])).await;
        Ok(())
    });
}

#[test]
fn nested_rref() {
    cluster(async |[a, b, c], _| {
        let pair = a.remote("b", pair_from, ("c".into(), 1, 2))?;
        let (x, y) = pair.to_here().await?.map_err(anyhow::Error::msg)?;
        assert_eq!((x.owner(), y.owner()), ("c".into(), "c".into()));
        assert_eq!((x.to_here().await?, y.to_here().await?), (1, 2));
        // The value at `b` holds them as well, until it is freed itself.
        until("both are listed", || holders(&c, &x) == Some(vec!["a".into(), "b".into()])).await;
        drop(pair);
        until("the pair is freed", || b.report().objects.is_empty()).await;
        until("its handles too", || holders(&c, &x) == Some(vec!["a".into()])).await;
        assert_eq!(y.to_here().await?, 2);
        Ok(())
    });
}

#[test]
fn rpc_return_rref() {
    cluster(async |[a, b, c], _| {
        let x = a.call("b", make_on, ("c".into(), 1, 2)).await?.map_err(anyhow::Error::msg)?;
        assert_eq!(x.owner(), "c");
        assert_eq!(x.to_here().await?, 3);
        until("b has let go of it", || holders(&c, &x) == Some(vec!["a".into()])).await;
        assert!(b.report().held.is_empty());
        // One that the caller itself owns.
        let y = a.call("b", make_on, ("a".into(), 3, 4)).await?.map_err(anyhow::Error::msg)?;
        assert!(y.is_local());
        assert_eq!(*y.local_value().await?, 7);
        Ok(())
    });
}

#[test]
fn pass_local_rrefs() {
    cluster(async |[a, _b, _c], _| {
        let local = a.host(Counter(5))?;
        assert_eq!(a.call("b", bump, (local.clone(), 1)).await?, Ok(6));
        assert_eq!(a.call("c", bump, (local.clone(), 1)).await?, Ok(7));
        assert_eq!(a.remote("b", bump, (local.clone(), 1))?.to_here().await?, Ok(8));
        assert_eq!(local.send(Add(0)).await?, 8);
        Ok(())
    });
}

/// References, not copies: what others do through them is seen by all.
#[test]
fn return_local_rrefs() {
    cluster(async |[a, b, _c], _| {
        let list = a.call("b", make_list_here, (3,)).await?.map_err(anyhow::Error::msg)?;
        for c in &list {
            assert_eq!(c.owner(), "b");
            c.do_send(Add(10))?;
        }
        // Starts 0, 1, 2; 10 from here; each answers with its new count.
        assert_eq!(a.call("c", bump_all, (list.clone(), 100)).await?, Ok(333));
        assert_eq!(a.call("b", bump_all, (list.clone(), 0)).await?, Ok(333));
        assert_eq!(list[2].send(Add(0)).await?, 112);
        assert_eq!(b.report().objects.len(), 3);
        Ok(())
    });
}

/// The argument is usable inside the callee before its owner has heard of the callee: here the
/// owner's link from the first holder is shut, so that nothing can have been confirmed.
#[test]
fn user_rrefs_confirmed() {
    cluster(async |[a, b, _c], faults| {
        let x = a.remote("b", add, (1, 2))?;
        x.ready().await?;
        faults.partition_oneway(["a"], ["b"]);
        assert_eq!(a.call("c", fetch, (x.clone(),)).await?, Ok(3));
        faults.heal();
        until("c has let go of it", || holders(&b, &x) == Some(vec!["a".into()])).await;
        Ok(())
    });
}

/// Catches: identity taken from the handle or the way it came instead of from the object.
#[test]
fn owner_equality() {
    use std::collections::HashSet;
    cluster(async |[a, _b, c], _| {
        let x = a.remote("b", counter, (1,))?;
        let y = a.remote("b", counter, (1,))?;
        assert_eq!(x, x.clone());
        assert_ne!(x, y);
        // The same object, after a way round.
        let shelf = a.remote("c", shelf, ())?;
        shelf.send(Put(x.clone())).await?;
        let again = shelf.send(Peek).await?.ok_or_else(|| anyhow::anyhow!("nothing there"))?;
        assert_eq!(x, again);
        let set: HashSet<_> = [x.clone(), again, y.clone(), y.clone()].into_iter().collect();
        assert_eq!(set.len(), 2);
        assert!(c.report().held.iter().any(|held| held.id == x.id()));
        Ok(())
    });
}

#[test]
fn rref_str() {
    cluster(async |[a, _b], _| {
        let x = a.remote("b", counter, (1,))?;
        let text = format!("{x:?}");
        assert!(text.contains("Counter") && text.contains('b'), "{text}");
        assert!(text.contains(&x.id().to_string()), "{text}");
        assert!(text.len() < 200, "{text}");
        let y = a.remote("b", counter, (1,))?;
        assert_ne!(text, format!("{y:?}"), "two objects look alike");
        Ok(())
    });
}
