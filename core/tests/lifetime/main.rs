//! The lifetime tables, driven over ordered lanes without a network.

mod directed;
mod random;
mod world;
