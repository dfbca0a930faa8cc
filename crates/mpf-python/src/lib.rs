//! The native part of the Python package `minprobflow`: conversions, threads and signals around
//! [`mpf_cli::embed`] and the libraries. It has no statistics and no defaults.

mod arrays;
mod ica;
mod ising;
mod potts;
mod run;

use pyo3::prelude::*;

/// Conversions between Python and the libraries of `mpf`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::ica::{fit_ica, ica_sample};
    #[pymodule_export]
    use super::ising::{Model, compare, diagnose, evaluate, fit};
    #[pymodule_export]
    use super::potts::{dca, fit_potts, potts_sample, potts_score};
    #[cfg(debug_assertions)]
    #[pymodule_export]
    use super::run::_panic;
    #[pymodule_export]
    use super::run::in_python;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Progress is shown by Python, which knows terminals from notebooks.
        mpf_cli::embed::hide_bars();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
