//! `mpf`: from a binary matrix to a fitted Ising model and a report.
//!
//! The program is a thin layer: it reads and writes files, and talks to people. What it computes
//! is computed by the libraries. Readers take bytes from strangers, so that they never allocate
//! ahead of what they have read.

pub mod checkpoint;
pub mod cli;
pub mod compare;
pub mod console;
pub mod convert;
pub mod data;
pub mod demo;
pub mod draw;
pub mod edges;
pub mod evaluate;
pub mod failure;
pub mod figures;
pub mod fit;
pub mod memory;
pub mod methods;
pub mod model;
pub mod npy;
mod npz;
pub mod output;
pub mod packer;
pub mod raster_file;
pub mod sample;
mod text;
