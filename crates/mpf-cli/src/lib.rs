//! `mpf`: from a binary matrix to a fitted Ising model and a report.
//!
//! The program is a thin layer: it reads and writes files, and talks to people. What it computes
//! is computed by the libraries. Readers take bytes from strangers, so that they never allocate
//! ahead of what they have read.

mod checkpoint;
mod cli;
mod compare;
mod console;
mod convert;
mod data;
mod demo;
mod draw;
mod edges;
mod evaluate;
mod failure;
mod figures;
mod fit;
mod memory;
mod methods;
mod model;
mod npy;
mod npz;
mod output;
mod packer;
mod raster_file;
mod sample;
mod text;

pub use cli::{command, run};

/// The readers and writers, for tests and fuzzing: not part of the interface.
#[doc(hidden)]
pub mod internal {
    pub use crate::data::{DataArgs, Raster};
    pub use crate::edges::parse as parse_edges;
    pub use crate::model::{Convention, FitRecord, Model};
    pub use crate::npy::Header;
    pub use crate::packer::Coding;
    pub use crate::raster_file::write as write_raster;
}
