//! RISE and logRISE (Vuffray et al. 2016): MPF row by row, with their own λ.
//!
//! ```text
//! every row i:  minimise mean exp(−a_i) + λ Σ_j |K_ij|        (logRISE: ln mean exp(−a_i) + …)
//! ```
//!
//! A row carries half of λ₁, since the other end of each coupling carries the other half: λ₁ = 2λ.

use crate::Result;
use crate::method::{Description, FitterMethod, OwnObjective, Takes};
use mpf_core::FlowForm;
use mpf_ising::{FitOptions, Fitter, Mode, Mpf};

/// Returns a fitter of RISE. `options` may set anything but λ₁ and the mode.
///
/// # Errors
/// Those of [`Fitter::new`].
pub fn rise(lambda: f64, options: FitOptions) -> Result<Fitter> {
    node_wise(lambda, FlowForm::Sum, options)
}

/// Returns a fitter of logRISE: the same minimiser as [`rise`] without a penalty, a better scaled
/// trade between the two with one.
///
/// # Errors
/// Those of [`Fitter::new`].
pub fn log_rise(lambda: f64, options: FitOptions) -> Result<Fitter> {
    node_wise(lambda, FlowForm::Log, options)
}

fn node_wise(lambda: f64, form: FlowForm, options: FitOptions) -> Result<Fitter> {
    let estimator = Mpf {
        form,
        ..Mpf::default()
    };
    let options = FitOptions {
        l1: 2.0 * lambda,
        mode: Mode::NodeWise,
        ..options
    };
    Ok(Fitter::new(estimator, options)?)
}

pub(crate) static RISE: FitterMethod<Mpf> = FitterMethod {
    description: Description {
        takes: &[
            Takes::Penalties,
            Takes::Neighbourhoods,
            Takes::NodeWise,
            Takes::Support,
            Takes::Sandwich,
        ],
        objective: Some(OwnObjective::Flow),
        is_local: true,
        ..Description::new("rise", "RISE", "RISE: interaction screening, row by row")
    },
    estimator: |options| Mpf {
        neighbourhood: options.neighbourhood,
        form: FlowForm::Sum,
    },
    sandwich: Fitter::corrected_sandwich,
    always_node_wise: true,
};

pub(crate) static LOG_RISE: FitterMethod<Mpf> = FitterMethod {
    description: Description {
        name: "logrise",
        title: "logRISE",
        summary: "logRISE",
        objective: Some(OwnObjective::LogRise),
        competes: false,
        ..RISE.description
    },
    estimator: |options| Mpf {
        neighbourhood: options.neighbourhood,
        form: FlowForm::Log,
    },
    ..RISE
};
