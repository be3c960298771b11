//! What the kit finds wrong with a test, and how it says so.

use crate::program::*;
use rref::prelude::*;
use rref::testkit::{Failure, FrameKind, TestCluster, TestResult, secs};

fn failing(test: impl AsyncFnOnce(TestCluster) -> TestResult) -> Failure {
    match cluster(2).build().run(3, test) {
        Err(failure) => *failure,
        Ok(summary) => panic!("the test should fail: {summary:?}"),
    }
}

#[test]
fn a_leak_is_found_and_named() {
    let failure = failing(async |cluster| {
        let leaked = cluster.node("n1").remote("n2", counter, ())?;
        std::mem::forget(leaked);
        Ok(())
    });
    assert!(failure.reason.contains("something is left behind"), "{failure}");
    assert!(failure.report.contains("Counter (live): held by [\"n1\"]"), "{failure}");
}

#[test]
fn a_panic_is_named_even_if_nobody_waits_for_it() {
    let failure = failing(async |cluster| {
        assert!(cluster.node("n1").call("n2", explode, ()).await.is_err());
        Ok(())
    });
    let [panic] = &failure.panics[..] else { panic!("{failure}") };
    assert_eq!((panic.node.as_deref(), panic.text.as_str()), (Some("n2"), "this function always fails"));
    assert!(panic.location.contains("program.rs:"), "{panic}");
    assert!(failure.trace.to_string().contains("n2: panics: this function always fails"), "{failure}");
}

#[test]
fn expected_panics_can_be_taken() {
    cluster(2).run(async |cluster| {
        assert!(cluster.node("n1").call("n2", explode, ()).await.is_err());
        let panics = cluster.take_panics();
        assert_eq!(panics.len(), 1);
        let program = cluster.on("n2", async |_| panic!("in a program")).await;
        assert!(
            program.is_err_and(|error: rref::testkit::TaskError| error.to_string().contains("in a program"))
        );
        assert_eq!(cluster.take_panics()[0].node.as_deref(), Some("n2"));
        Ok(())
    });
}

#[test]
fn a_failing_assertion_of_the_test_is_its_reason() {
    let failure = failing(async |cluster| {
        cluster.node("n1").call("n2", add, (1, 2)).await?;
        cluster.partition(["n2"]);
        assert_eq!(cluster.names().len(), 3, "there should be three");
        Ok(())
    });
    assert!(failure.reason.contains("there should be three"), "{failure}");
    let text = failure.to_string();
    for part in ["with seed 3", "Call (1) add", "Reply (1) Ok", "n2: cut off from the others", "node n1"] {
        assert!(text.contains(part), "`{part}` is missing in {text}");
    }
    let diagram = failure.trace.mermaid(100);
    for part in ["sequenceDiagram", "n1->>n2: ", "n2->>n1: ", "Note over n2"] {
        assert!(diagram.contains(part), "`{part}` is missing in {diagram}");
    }
}

#[test]
fn an_error_of_the_test_is_its_reason() {
    let failure = failing(async |_| Err("not good".into()));
    assert_eq!(failure.reason, "not good");
}

#[test]
fn a_node_that_does_not_start_is_named() {
    let simulation = TestCluster::builder(|_| Node::builder("")).nodes(1).build();
    let failure = simulation.run(0, async |_| Ok(())).expect_err("an empty name");
    assert!(failure.reason.contains("`n1` does not start"), "{failure}");
}

#[test]
#[should_panic(expected = "there is no node `n9` in this cluster")]
fn an_unknown_node_is_a_mistake() {
    cluster(2).run(async |cluster| {
        cluster.pause("n9");
        Ok(())
    });
}

#[test]
fn a_failing_run_says_how_to_repeat_it() {
    let run = || {
        cluster(1).seeds(5..9).run(async |cluster| match cluster.seed() {
            7 => Err("seven".into()),
            _ => Ok(()),
        })
    };
    let text = std::panic::catch_unwind(run).expect_err("one seed fails");
    let text = text.downcast_ref::<String>().expect("a text");
    assert!(text.contains("with seed 7: seven"), "{text}");
    let test = "checks::a_failing_run_says_how_to_repeat_it";
    assert!(text.contains(&format!("RREF_SEED=7 cargo test {test}")), "{text}");
    let (_, path) = text.split_once("the whole trace: ").expect("a path");
    let path = path.lines().next().unwrap_or_default();
    assert!(std::fs::read_to_string(path).expect("the trace").contains("n1: starts"));
}

#[actix::test]
async fn a_simulation_inside_a_runtime_is_refused() {
    let refused = std::panic::catch_unwind(|| cluster(1).run(async |_| Ok(())));
    let text = refused.expect_err("it is refused");
    assert!(text.downcast_ref::<&str>().is_some_and(|text| text.contains("plain `#[test] fn`")));
}

#[test]
fn faults_that_are_left_end_before_the_check() {
    cluster(3).run(async |cluster| {
        let counter = cluster.node("n1").remote("n2", counter, ())?;
        counter.ready().await?;
        cluster.partition(["n2"]);
        cluster.pause("n1");
        cluster.slow("n3", secs(1));
        cluster.drop_frames(FrameKind::Release, 1_000);
        Ok(())
    });
}
