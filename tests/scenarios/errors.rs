//! What goes wrong, and that it concerns only those whom it concerns.

use crate::common::program::*;
use crate::common::{bare, cluster, until};
use rref::prelude::*;
use rref::{RemoteKind, Result};

const TEXT: &str = "it said: \"no\"\n\t\\ {braces} – ünïcode \u{1F4A5} \0 end";

fn failed() -> Error {
    Error::CreateFailed(TEXT.into())
}

/// Every consumer hears of it: of all modes, on all nodes, before and after it has happened.
#[test]
fn remote_with_exception() {
    cluster(async |[a, _b, _c], _| {
        for owner in ["a", "b"] {
            let never = a.remote(owner, fallible, (TEXT.into(),))?;
            let (early, ready) = (never.send(Add(1)), never.ready());
            let elsewhere = a.call("c", bump, (never.clone(), 1));
            assert_eq!(early.await, Err(failed()));
            assert_eq!(ready.await, Err(failed()));
            assert_eq!(elsewhere.await?, Err(failed().to_string()));
            assert_eq!(never.send(Add(1)).await, Err(failed()));
            let derived = never.remote(Snapshot)?;
            let error = derived.to_here().await;
            assert!(matches!(&error, Err(Error::CreateFailed(why)) if why.contains(TEXT)), "{error:?}");
            // For data the whole result is the value.
            let typed: RRef<Result<i64, String>> = a.remote(owner, divide, (1, 0))?;
            assert_eq!(typed.to_here().await?, Err("cannot divide 1 by 0".into()));
        }
        Ok(())
    });
}

#[test]
fn remote_throw() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            match a.call(owner, explode, (TEXT.into(),)).await {
                Err(Error::Remote { kind, message, node, function, .. }) => {
                    assert_eq!((kind, message.as_str(), node.as_str()), (RemoteKind::Panic, TEXT, owner));
                    assert!(function.ends_with("explode"), "{function}");
                }
                other => panic!("{other:?}"),
            }
            let never = a.remote(owner, explode, (TEXT.into(),))?;
            for _ in 0..2 {
                let error = never.to_here().await;
                assert!(matches!(&error, Err(Error::CreateFailed(why)) if why.contains(TEXT)), "{error:?}");
            }
            assert_eq!(a.call(owner, add, (1, 2)).await?, 3);
        }
        Ok(())
    });
}

#[test]
fn py_raise_in_user_func_escaped_str() {
    cluster(async |[a, _b], _| {
        // As long as it is, and each of its characters as it was.
        let long = TEXT.repeat(100);
        assert_eq!(a.call("b", text, (long.clone(),)).await?, long);
        let error = a.call("b", explode, (long.clone(),)).await;
        assert!(matches!(&error, Err(Error::Remote { message, .. }) if *message == long), "{error:?}");
        // Too long for an error: cut, not refused.
        let error = a.call("b", explode, ("é".repeat(100_000),)).await;
        let cut = |message: &str| message.len() < 20_000 && message.starts_with("éé");
        assert!(matches!(&error, Err(Error::Remote { message, .. }) if cut(message)), "{error:?}");
        Ok(())
    });
}

#[test]
fn local_value_not_on_owner() {
    cluster(async |[a, _b], _| {
        let x = a.remote("b", add, (1, 2))?;
        let error = x.local_value().await.err();
        let expected = Error::NotOwner { rref: format!("{x:?}"), node: "a".into(), owner: "b".into() };
        assert_eq!(error.as_ref(), Some(&expected));
        let text = expected.to_string();
        assert!(text.contains(&x.id().to_string()) && text.contains("to_here()"), "{text}");
        Ok(())
    });
}

fn unregistered(x: i64) -> i64 {
    x
}

fn unregistered_method(x: &i64, y: i64) -> i64 {
    x + y
}

#[test]
fn function_not_on_callee() {
    cluster(async |[a, _b], _| {
        for owner in ["a", "b"] {
            let missing = |call: &str, error: &Error| match error {
                Error::NotRegistered { what, node, call: line } => {
                    what.contains("unregistered") && node == owner && line == call
                }
                _ => false,
            };
            let error = a.call(owner, unregistered, (1,)).await.unwrap_err();
            assert!(missing(".function(unregistered)", &error), "{error:?}");
            let x = a.remote(owner, add, (1, 2))?;
            let error = x.apply(unregistered_method, (1,)).await.unwrap_err();
            assert!(missing(".method(unregistered_method)", &error), "{error:?}");
            assert_eq!(x.to_here().await?, 3, "the session lives");
        }
        // A creation: at once where it is known at once, otherwise from every use.
        let error = a.remote("a", unregistered, (1,)).unwrap_err();
        assert!(matches!(error, Error::NotRegistered { .. }), "{error:?}");
        let never = a.remote("b", unregistered, (1,))?;
        match never.to_here().await {
            Err(Error::CreateFailed(why)) => {
                assert!(why.contains("`b`") && why.contains(".function(unregistered)"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    });
}

#[test]
fn rref_pickle_not_supported() {
    cluster(async |[a, b], _| {
        let x = a.remote("b", add, (1, 2))?;
        let error = serde_json::to_string(&x).unwrap_err().to_string();
        assert_eq!(error, Error::NotInMessage.to_string());
        let nested = serde_json::to_string(&vec![Some((1, x.clone()))]).unwrap_err().to_string();
        assert_eq!(nested, error);
        let error = serde_json::from_str::<RRef<i64>>("0").unwrap_err().to_string();
        assert!(error.contains("inside a message"), "{error}");
        // Nothing was pinned or counted by the attempts.
        assert_eq!(a.report().held.iter().map(|held| (held.handles, held.pins.len())).max(), Some((1, 0)));
        assert_eq!(x.to_here().await?, 3);
        assert_eq!(b.report().objects.len(), 1);
        Ok(())
    });
}

/// Catches: a panic that takes the node, the arbiter or another object with it.
#[test]
fn handler_panic_kills_only_its_object() {
    cluster(async |[a, _b, _c], _| {
        for owner in ["a", "b"] {
            let (bad, good) = (a.remote(owner, counter, (1,))?, a.remote(owner, counter, (2,))?);
            let elsewhere = a.remote("c", shelf, ())?;
            elsewhere.send(Put(bad.clone())).await?;
            bad.do_send(Nap(100))?;
            let (hit, queued, untouched) =
                (bad.send(Panic(TEXT.into())), bad.send(Add(1)), good.send(Add(1)));
            let died = Error::ObjectDied { reason: TEXT.into() };
            assert_eq!(hit.await, Err(died.clone()));
            assert_eq!(queued.await, Err(died.clone()));
            assert_eq!(untouched.await, Ok(3));
            // Later calls, and those of other holders.
            assert_eq!(bad.send(Add(1)).await, Err(died.clone()));
            assert_eq!(bad.ready().await, Err(died.clone()));
            assert_eq!(a.call("c", bump, (bad.clone(), 1)).await?, Err(died.to_string()));
            assert_eq!(good.send(Add(1)).await, Ok(4));
            assert_eq!(a.call(owner, add, (1, 2)).await?, 3);
        }
        Ok(())
    });
}

/// A peer dies in mid-call: its callers are told, and nobody else notices.
#[test]
fn handle_send_exceptions() {
    bare(
        |builder| builder,
        async |[a, b, c], faults| {
            {
                let lost = a.remote("b", counter, (0,)).unwrap();
                let kept = a.remote("c", counter, (0,)).unwrap();
                assert_eq!((lost.send(Add(1)).await, kept.send(Add(1)).await), (Ok(1), Ok(1)));
                let (waiting, elsewhere) = (a.call("b", slow, (1000, 1)), a.call("c", slow, (1000, 1)));
                until("b works on it", || b.report().peers.iter().any(|peer| peer.running > 0)).await;
                faults.crash("b");
                let error = waiting.await;
                assert!(
                    matches!(&error, Err(Error::OutcomeUnknown { peer, .. }) if peer == "b"),
                    "{error:?}"
                );
                for error in [
                    lost.send(Add(1)).await.err(),
                    lost.do_send(Add(1)).err(),
                    lost.remote(Snapshot).err(),
                    a.call("b", add, (1, 2)).await.err(),
                    a.remote("b", add, (1, 2)).err(),
                    lost.ready().await.err(),
                ] {
                    assert!(
                        matches!(&error, Some(Error::OwnerDied { owner, .. }) if owner == "b"),
                        "{error:?}"
                    );
                }
                // A dead handle may still be passed on, and its receiver is told as well.
                let told = a.call("c", bump, (lost.clone(), 1)).await;
                assert!(!matches!(told, Ok(Ok(_))), "{told:?}");
                assert_eq!(elsewhere.await, Ok(1));
                assert_eq!(kept.send(Add(1)).await, Ok(2));
            }
            crate::common::assert_no_leaks(&[&a, &c]).await;
            b.shutdown().await;
            Ok(())
        },
    );
}
