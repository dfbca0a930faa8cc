//! Minimum probability flow as one of the methods.

use crate::method::{Description, FitterMethod, OwnObjective, Takes, margin_sandwich};
use mpf_ising::Mpf;

pub(crate) static MPF: FitterMethod<Mpf> = FitterMethod {
    description: Description {
        name: "mpf",
        title: "MPF",
        summary: "Minimum probability flow",
        takes: &[
            Takes::Penalties,
            Takes::Neighbourhoods,
            Takes::NodeWise,
            Takes::Support,
            Takes::Sandwich,
            Takes::Potential,
        ],
        objective: Some(OwnObjective::Flow),
        max_units: usize::MAX,
        is_local: true,
        competes: true,
    },
    estimator: |options| Mpf {
        neighbourhood: options.neighbourhood,
        ..Mpf::default()
    },
    sandwich: margin_sandwich,
    always_node_wise: false,
};
