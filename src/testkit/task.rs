//! A program that runs as one node, seen from the test.

use crate::error::{Error, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// A program that runs on a node: see [`TestCluster::on`](super::TestCluster::on).
///
/// Dropping it lets the program run on.
#[must_use = "await it to learn how the program ended"]
pub struct Task<R> {
    node: String,
    handle: Option<JoinHandle<Result<R>>>,
}

/// Why a program on a node has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// Its node has crashed.
    #[error("the program ended with its node: `{0}` has crashed")]
    Crashed(String),
    /// It has panicked.
    #[error("the program on `{node}` panicked: {text}")]
    Panicked {
        /// Where it ran.
        node: String,
        /// What it said.
        text: String,
    },
}

impl<R> Task<R> {
    /// Without a handle it never began: its node had crashed.
    pub(super) fn new(node: String, handle: Option<JoinHandle<Result<R>>>) -> Task<R> {
        Task { node, handle }
    }
}

impl<R> Future for Task<R> {
    type Output = Result<R, TaskError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let node = self.node.clone();
        let Some(handle) = &mut self.handle else { return Poll::Ready(Err(TaskError::Crashed(node))) };
        Pin::new(handle).poll(task).map(|ended| match ended {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(Error::Remote { message, .. })) => Err(TaskError::Panicked { node, text: message }),
            Ok(Err(error)) => Err(TaskError::Panicked { node, text: error.to_string() }),
            Err(_) => Err(TaskError::Crashed(node)),
        })
    }
}
