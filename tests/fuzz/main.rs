//! Random clusters: whatever users and networks do, nothing is freed that somebody holds, nothing is done
//! twice, and in the end every table shows exactly what is held.
//!
//! `cargo run --release -p rref-bench -- soak` runs the same with as many seeds as one likes.

mod crashes;
mod liveness;
mod plan;
mod program;
mod run;
mod seeds;
mod weather;
mod world;
