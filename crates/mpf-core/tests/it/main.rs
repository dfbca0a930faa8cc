//! The integration tests of mpf-core, in one program: it links once.

mod dynamics;
mod extremes;
mod flow;
mod linalg;
mod local;
mod minimize;
mod score;
