//! What the two builds have in common: the messages that have not changed.

use actix::Message;
use serde::{Deserialize, Serialize};

/// Gives things back; the answer is how many are still sold.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u64")]
pub struct Return {
    /// How many.
    pub count: u64,
}

/// A function of both.
pub fn double(x: i64) -> i64 {
    2 * x
}
