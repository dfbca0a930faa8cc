//! The integration tests of mpf-ising, in one program: it links once.

mod extremes;
mod fit;
mod flow;
mod messages;
mod preflight;
mod reference;
