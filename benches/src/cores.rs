//! Which core each of the two processes runs on.
//!
//! Left alone, the scheduler puts two processes that talk now on one core, where a wake-up costs 5 us,
//! and now on two, where it costs 25, and a ratio of the two says nothing. Both processes, and so
//! baseline and ours alike, keep a core of their own, as on two machines.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which side of the measurement this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asks and measures.
    Client,
    /// It answers.
    Server,
}

/// Keeps the calling thread, and threads it starts, on one core; false if there are not two to share.
///
/// `all` are the cores that the client was given before it kept to one.
pub fn keep(side: Side, all: &[usize]) -> bool {
    let core = match (side, all) {
        (Side::Client, [first, _, ..]) => *first,
        (Side::Server, [_, second, ..]) => *second,
        _ => return false,
    };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).is_ok()
}

/// The cores that this process may use.
pub fn available() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => Vec::new(),
    }
}
