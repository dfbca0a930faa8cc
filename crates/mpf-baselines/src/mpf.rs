//! Minimum probability flow as one of the methods.

use crate::method::{Description, FitterMethod, OwnObjective, Takes};
use mpf_ising::{Fitter, Mpf};

pub(crate) static MPF: FitterMethod<Mpf> = FitterMethod {
    description: Description {
        takes: &[
            Takes::Penalties,
            Takes::Neighbourhoods,
            Takes::NodeWise,
            Takes::Support,
            Takes::Sandwich,
            Takes::Potential,
        ],
        objective: Some(OwnObjective::Flow),
        is_local: true,
        ..Description::new("mpf", "MPF", "Minimum probability flow")
    },
    estimator: |options| Mpf {
        neighbourhood: options.neighbourhood,
        ..Mpf::default()
    },
    sandwich: Fitter::corrected_sandwich,
    always_node_wise: false,
};
