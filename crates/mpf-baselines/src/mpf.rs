//! Minimum probability flow as one of the methods.

use crate::method::{Description, MarginMethod, OwnObjective, Takes};
use mpf_ising::Mpf;

pub(crate) static MPF: MarginMethod<Mpf> = MarginMethod {
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
    always_node_wise: false,
};
