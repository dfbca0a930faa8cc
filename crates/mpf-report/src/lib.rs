//! What the programs of this workspace show: HTML pages, plots, tables and progress, files that
//! appear whole or not at all, and what Ctrl-C does.
//!
//! Nothing here knows a model or a method.

mod checkpoint;
pub mod files;
pub mod interrupt;
pub mod plot;
pub mod progress;
pub mod report;
pub mod text;

pub use checkpoint::CheckpointFile;

/// What a fallible function of this crate returns.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
