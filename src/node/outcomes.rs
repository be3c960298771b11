//! How calls have ended, counted: for the report and for metrics.

use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls by how they have ended.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// The usual end, without a lock.
    ok: AtomicU64,
    others: Mutex<BTreeMap<&'static str, u64>>,
}

impl Outcomes {
    /// A call has ended with this error, or well. Gives the outcome's name.
    pub(crate) fn count(&self, error: Option<&Error>) -> &'static str {
        let Some(error) = error else {
            self.ok.fetch_add(1, Ordering::Relaxed);
            return "ok";
        };
        self.other(error.kind());
        error.kind()
    }

    /// A call has ended in a way that is no error of its own.
    pub(crate) fn other(&self, outcome: &'static str) {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome).or_default() += 1;
    }

    /// How many calls have ended in which way; `ok` is always among them.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        counts.insert("ok", self.ok.load(Ordering::Relaxed));
        counts
    }
}
