//! The integration tests of mpf-ising, in one program: it links once.

mod extremes;
mod fit;
mod flow;
mod local;
mod logistic;
mod messages;
mod missing;
mod path;
mod potential;
mod preflight;
mod reference;
mod ridge;
mod sandwich;
mod stream;
