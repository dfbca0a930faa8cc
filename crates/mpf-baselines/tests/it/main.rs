//! The integration tests of mpf-baselines, in one program: it links once.

mod contrastive;
mod drift;
mod extremes;
mod goodness;
mod heldout;
mod hostile;
mod k_pairwise;
mod lattice;
mod local_ising;
mod machine;
mod mean_field;
mod methods;
mod objectives;
mod rbm;
mod recipe;
mod reference;
