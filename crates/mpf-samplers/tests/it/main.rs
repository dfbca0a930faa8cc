//! The integration tests of mpf-samplers, in one program: it links once.

mod annealed;
mod chains;
mod exact_lattice;
mod extremes;
mod hmc;
mod hostile;
mod invariance;
mod local;
