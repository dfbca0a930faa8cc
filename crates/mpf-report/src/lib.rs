//! The output of the programs of this workspace: HTML pages, plots, tables, progress bars, files that
//! appear whole or not at all, and the handling of Ctrl-C.
//!
//! This crate knows no model and no method.

mod checkpoint;
pub mod files;
pub mod interrupt;
pub mod npy;
pub mod plot;
pub mod progress;
pub mod report;
pub mod text;

pub use checkpoint::CheckpointFile;

/// The result of a fallible function of this crate.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
