//! The integration tests of mpf-ica, in one program: it links once.

mod common;
mod extremes;
mod fit;
mod flow;
mod images;
mod model;
