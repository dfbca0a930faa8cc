//! `mpf`: from a binary matrix to a fitted Ising model and a report.
//!
//! The program is a thin layer: it parses options, reads and writes files, and prints; the libraries
//! compute. Its readers take bytes from strangers, so they never allocate ahead of what they have
//! read.
//!
//! [`run`] takes the list of methods: a program with methods of its own passes
//! `Methods::default().with(&MINE)`, and they appear in the help, in fits and in comparisons.

mod checkpoint;
mod cli;
mod compare;
mod console;
mod convert;
mod data;
mod dca;
mod demo;
mod draw;
mod edges;
pub mod embed;
mod evaluate;
mod failure;
mod figures;
mod fit;
mod mat;
mod memory;
mod methods;
mod model;
mod npz;
mod output;
mod pack;
mod packed;
mod packer;
mod ranks;
mod raster_file;
mod sample;
mod text;

pub use checkpoint::give_up;
pub use cli::{command, run};
pub use ranks::n_launched;

use mpf_report::npy;

/// Readers and writers for tests and fuzzing. Not part of the interface: anything here may change.
#[doc(hidden)]
pub mod internal {
    pub use crate::data::{DataArgs, Raster};
    pub use crate::edges::parse as parse_edges;
    pub use crate::model::{Convention, FitRecord, Model};
    pub use crate::npy::Header;
    pub use crate::packer::Missing;
    pub use crate::raster_file::write as write_raster;
}
