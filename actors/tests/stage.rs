//! The stage as an actor, through rref: two stages on one node, and what a careless driver gets.

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, but does not see that helpers here are part of them"
)]

use ndarray::{Array1, Array2};
use rref::{Error, Node, RRef, Tensor};
use rref_actors::{
    nn::mlp,
    pipeline::{
        Activation, Connect, Disconnect, Evaluate, LoadInputs, LoadLabels, Parameters, Schedule, Stage,
        StageError, StageSpec, Train, split, stage,
    },
};
use std::time::Duration;

async fn node() -> Node {
    Node::builder("solo").register::<Stage>().function(stage).start().await.unwrap()
}

fn specs() -> Vec<StageSpec> {
    split(&mlp(4, 8, 2, 4, 1), 2)
        .into_iter()
        .enumerate()
        .map(|(k, layers)| StageSpec {
            stage: k,
            stages: 2,
            layers,
            rows: 30,
            batch: 12,
            micro_batches: 4,
            schedule: Schedule::OneForwardOneBackward,
            learning_rate: 0.2,
            momentum: 0.5,
        })
        .collect()
}

async fn pipeline(node: &Node) -> (RRef<Stage>, RRef<Stage>) {
    let mut stages = specs().into_iter().map(|spec| node.remote("solo", stage, (spec,)).unwrap());
    let (bottom, top) = (stages.next().unwrap(), stages.next().unwrap());
    bottom.send(Connect { previous: None, next: Some(top.clone()) }).await.unwrap();
    top.send(Connect { previous: Some(bottom.clone()), next: None }).await.unwrap();
    (bottom, top)
}

/// Rows whose first or second column says which class they are.
fn inputs(rows: usize) -> Tensor<f32> {
    Tensor::from(Array2::from_shape_fn((rows, 4), |(row, column)| if column == row % 2 { 1.0 } else { 0.1 }))
}

fn labels(rows: usize) -> Tensor<u8> {
    Tensor::from(Array1::from_shape_fn(rows, |row| (row % 2) as u8))
}

async fn load((bottom, top): &(RRef<Stage>, RRef<Stage>)) {
    bottom.send(LoadInputs { train: inputs(30), test: inputs(10) }).await.unwrap().unwrap();
    top.send(LoadLabels { train: labels(30), test: labels(10) }).await.unwrap().unwrap();
}

fn train(epoch: u32) -> Train {
    Train { epoch, seed: 3, timeline: true }
}

#[actix::test]
async fn two_stages_learn_and_are_freed() {
    let node = node().await;
    let stages = pipeline(&node).await;
    load(&stages).await;
    let (bottom, top) = &stages;
    for epoch in 1..=10 {
        let (below, above) = (bottom.send(train(epoch)), top.send(train(epoch)));
        let (below, above) = (below.await.unwrap().unwrap(), above.await.unwrap().unwrap());
        assert_eq!((below.peak_in_flight, above.peak_in_flight), (2, 1));
        assert!(below.loss.is_none() && above.loss.is_some());
        // Three steps of 12, 12 and 6 rows, cut into 4 each, up and down.
        assert_eq!(below.timeline.len(), 24);
        assert!(below.timeline.iter().all(|span| span.start_us <= span.end_us));
    }
    let (below, above) = (bottom.send(Evaluate { round: 1 }), top.send(Evaluate { round: 1 }));
    assert_eq!(below.await.unwrap(), Ok(None));
    let score = above.await.unwrap().unwrap().unwrap();
    assert_eq!((score.correct, score.rows), (10, 10));
    let shapes: Vec<_> = top.send(Parameters).await.unwrap().iter().map(|p| p.shape().to_vec()).collect();
    assert_eq!(shapes, [vec![8, 8], vec![8], vec![8, 2], vec![2]]);

    bottom.send(Disconnect).await.unwrap();
    top.send(Disconnect).await.unwrap();
    drop(stages);
    for _ in 0..200 {
        if node.report().objects.is_empty() {
            return;
        }
        actix::clock::sleep(Duration::from_millis(10)).await;
    }
    panic!("stages outlived their references: {:?}", node.report().objects);
}

#[actix::test]
async fn a_senseless_description_fails_the_creation() {
    let node = node().await;
    let lonely: RRef<Stage> =
        node.remote("solo", stage, (StageSpec { layers: vec![], ..specs()[0].clone() },)).unwrap();
    let error = lonely.ready().await.unwrap_err();
    assert!(matches!(&error, Error::CreateFailed(text) if text.contains("no layers")), "{error}");
}

#[actix::test]
async fn what_is_missing_is_named() {
    let node = node().await;
    let bottom = node.remote("solo", stage, (specs()[0].clone(),)).unwrap();
    assert_eq!(bottom.send(train(1)).await.unwrap(), Err(StageError::NotConnected("next".into())));
    let (bottom, _top) = pipeline(&node).await;
    assert_eq!(bottom.send(train(1)).await.unwrap(), Err(StageError::NotLoaded("inputs".into())));
    assert_eq!(
        bottom.send(Evaluate { round: 1 }).await.unwrap(),
        Err(StageError::NotLoaded("inputs".into()))
    );
    let flat = LoadInputs { train: Tensor::from(Array1::zeros(30)), test: inputs(1) };
    assert!(matches!(bottom.send(flat).await.unwrap(), Err(StageError::Shape { .. })));
}

#[actix::test]
async fn a_stage_that_got_nonsense_fails_its_epoch_and_stays_failed() {
    let node = node().await;
    let stages = pipeline(&node).await;
    load(&stages).await;
    let (bottom, top) = stages;
    let waiting = top.send(train(1));
    let nonsense = Activation { epoch: 1, step: 0, micro: 0, data: Tensor::from(Array2::zeros((1, 99))) };
    top.do_send(nonsense).unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(StageError::Shape { .. })));
    assert!(matches!(top.send(train(2)).await.unwrap(), Err(StageError::Failed(_))));
    assert!(matches!(top.send(Evaluate { round: 1 }).await.unwrap(), Err(StageError::Failed(_))));
    bottom.send(Disconnect).await.unwrap();
}
