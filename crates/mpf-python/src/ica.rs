//! Laplace ICA.

use crate::arrays::{Matrix, Vector};
use crate::run::{exception, run, value_error};
use mpf_cli::embed::{self, Failure, Step};
use mpf_ica::{Filters, FitOptions, Fitter, Trainer, Whitening, WhiteningMethod};
use numpy::{PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;

fn failure(error: mpf_ica::Error) -> Failure {
    Failure::input(error.to_string())
}

/// Whitens and fits. Returns J, the mean, the transform and its inverse, the log-likelihood of the
/// whitened data, the steps, the reason for stopping and warnings.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has names for them")]
#[expect(clippy::type_complexity, reason = "Python takes it apart at once")]
pub fn fit_ica<'py>(
    py: Python<'py>,
    data: PyReadonlyArray2<'py, f64>,
    method: Option<&str>,
    whiten: Option<&str>,
    max_iterations: Option<usize>,
    max_seconds: Option<f64>,
    seed: u64,
    n_threads: usize,
    show: Option<&Bound<'_, PyAny>>,
) -> PyResult<(
    Matrix<'py>,
    Vector<'py>,
    Matrix<'py>,
    Matrix<'py>,
    f64,
    usize,
    String,
    Vec<String>,
)> {
    let whiten = match whiten {
        None => WhiteningMethod::default(),
        Some("zca") => WhiteningMethod::Zca,
        Some("pca") => WhiteningMethod::Pca,
        Some(other) => {
            let why = format!("whiten={other:?}: it is \"zca\" or \"pca\"");
            return Err(value_error(why));
        }
    };
    let mut options = FitOptions {
        seed,
        max_seconds: max_seconds.unwrap_or(f64::INFINITY),
        ..Default::default()
    };
    match (method, max_iterations) {
        (None, None) => {}
        (Some("mpf"), None) => options.trainer = Trainer::stochastic(),
        (Some("alternating"), None) => options.trainer = Trainer::alternating(),
        (Some("ml"), None) => options.trainer = Trainer::maximum_likelihood(),
        (Some("ml"), Some(max_iterations)) => {
            options.trainer = Trainer::MaximumLikelihood { max_iterations };
        }
        (None | Some("mpf" | "alternating"), Some(_)) => {
            return Err(value_error("max_iterations is for method=\"ml\" alone"));
        }
        (Some(other), _) => {
            let why = format!("method={other:?}: it is \"mpf\", \"alternating\" or \"ml\"");
            return Err(value_error(why));
        }
    }
    let data = data.as_array().to_owned();
    let (fit, whitening) = run(py, n_threads, show, move |cancel, show| {
        let whitening = Whitening::new(data.view(), whiten).map_err(failure)?;
        let white = whitening.apply(data.view()).map_err(failure)?;
        drop(data);
        options.cancel = cancel.clone();
        let total = options.trainer.n_steps();
        let fitter = Fitter::new(options).map_err(failure)?;
        let fit = fitter.fit_observed(white.view(), |at| {
            show(&Step {
                name: "steps",
                done: Some(at.step),
                total: Some(total),
                message: Some(format!("log-likelihood {:.4}", at.log_likelihood)),
            });
        });
        let fit = fit.map_err(failure)?;
        if cancel.is_cancelled() {
            return Err(Failure::interrupted());
        }
        Ok((fit, whitening))
    })?;
    let mut warnings = Vec::new();
    if fit.lost_a_direction() {
        warnings.push(format!(
            "the filters have lost a direction of the data: their smallest singular value is {:.2e}, \
             the median {:.2e}; try another random_state, or method=\"ml\"",
            fit.smallest_singular_value, fit.median_singular_value
        ));
    }
    Ok((
        fit.filters.as_array().to_pyarray(py),
        whitening.mean().to_pyarray(py),
        whitening.transform().to_pyarray(py),
        whitening.inverse().to_pyarray(py),
        fit.log_likelihood,
        fit.steps,
        fit.stop.to_string(),
        warnings,
    ))
}

/// Draws from p(x; J).
#[pyfunction]
pub fn ica_sample<'py>(
    py: Python<'py>,
    filters: PyReadonlyArray2<'py, f64>,
    n: usize,
    seed: u64,
) -> PyResult<Matrix<'py>> {
    let filters = Filters::new(filters.as_array().to_owned()).map_err(value_error)?;
    let bytes = (16 * filters.n_dims() as u64).saturating_mul(n as u64);
    embed::check_memory("so many draws", bytes).map_err(exception)?;
    let draws = run(py, 1, None, move |_, _| {
        let draws = filters.draw(n, &mut mpf_core::rng::stream(seed, 0));
        draws.map_err(failure)
    })?;
    Ok(draws.to_pyarray(py))
}
