//! What can go wrong in a stage.

use serde::{Deserialize, Serialize};

/// Why a stage refused a message or gave up an epoch. Travels as a value, so the driver can tell a stage
/// that reports trouble from a stage that cannot be reached at all (`rref::Error`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The description of the stage makes no sense; it was not created.
    #[error("the stage cannot be built: {0}")]
    Spec(String),
    /// Training or evaluation was asked for before the data was loaded. Nothing has run.
    #[error("the {0} have not been loaded; send them first")]
    NotLoaded(String),
    /// A neighbour is needed and unknown. Nothing has been lost if it comes before any training.
    #[error("the {0} stage is not connected; send Connect first")]
    NotConnected(String),
    /// A second epoch was asked for while one is under way; the first goes on.
    #[error("an epoch is under way; wait for its end")]
    Busy,
    /// An array has another shape than the layers need.
    #[error("{what} of shape {found:?} where {expected} is needed")]
    Shape {
        /// Which array.
        what: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that fits, in words.
        expected: String,
    },
    /// An activation or gradient arrived twice, or for a step that is over or too far ahead: the
    /// neighbour is not following the same plan. The epoch is lost.
    #[error("unexpected {0}; are both stages of the same run?")]
    Unexpected(String),
    /// A neighbour could not be told. The epoch is lost.
    #[error("cannot send to the {neighbour} stage: {reason}")]
    Neighbour {
        /// `previous` or `next`.
        neighbour: String,
        /// What rref said.
        reason: String,
    },
    /// The stage failed earlier and keeps no usable state; create it anew.
    #[error("the stage failed earlier: {0}")]
    Failed(String),
    /// The stage stopped, or a newer request took the place of this one.
    #[error("the stage dropped the request")]
    Dropped,
}
