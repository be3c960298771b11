//! The test kit itself: its time, its faults, its checks, and that a run can be repeated.

mod checks;
mod faults;
mod program;
mod repeat;
mod time;
