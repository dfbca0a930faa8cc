//! What the tests of several crates share. Not published.

mod checkpoint;
mod judged;
mod models;
mod numbers;

pub use checkpoint::{StopAfter, in_memory};
pub use judged::*;
pub use models::*;
pub use numbers::*;

/// Returns the seed of statistical tests: `MPF_TEST_SEED`, or 1. Any seed should pass.
pub fn seed() -> u64 {
    seed_or(1)
}

/// Returns `MPF_TEST_SEED`, or `default`.
pub fn seed_or(default: u64) -> u64 {
    match std::env::var("MPF_TEST_SEED") {
        Ok(text) => text.parse().expect("MPF_TEST_SEED is a number"),
        Err(_) => default,
    }
}
