//! Potts models: fits as `mpf dca` does, draws and scores through what `mpf-core` and `mpf-samplers` do
//! for any model of discrete sites.

use crate::arrays::{Matrix, Vector};
use crate::run::{exception, run, value_error};
use mpf_cli::embed::{self, Failure};
use mpf_core::{Cancel, LocalExact, LocalModel, SiteData};
use mpf_potts::{Potts, Scores};
use mpf_samplers::{AnnealedOptions, ChainOptions, ChainRunner, LocalGibbs, annealed_log_z_of};
use ndarray::Array2;
use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use std::path::PathBuf;

/// The most states that are enumerated.
const ENUMERATED: f64 = (1 << 20) as f64;

type Draws<'py> = Bound<'py, PyArray2<u8>>;

fn is_small(model: &impl LocalModel) -> bool {
    (model.n_states() as f64).powf(model.n_sites() as f64) <= ENUMERATED
}

/// Draws `n` states: independent ones of small models, else by chains of Gibbs sweeps.
fn draw(
    model: &impl LocalModel,
    theta: &[f64],
    n: usize,
    seed: u64,
    cancel: &Cancel,
) -> Result<Array2<u8>, Failure> {
    // The draws, those of every chain, and a copy while they are pooled.
    let bytes = (3 * model.n_sites() as u64).saturating_mul(n as u64);
    embed::check_memory("so many draws", bytes)?;
    if is_small(model) {
        return Ok(LocalExact::new(model, theta)?.draw(n, seed));
    }
    let plain = ChainOptions::default();
    let n_chains = plain.n_chains.min(n).max(1);
    let runner = ChainRunner::new(ChainOptions {
        seed,
        n_chains,
        n_draws: n.div_ceil(n_chains),
        cancel: cancel.clone(),
        ..plain
    })?;
    let run = runner.run(&LocalGibbs::new(model, theta, 1.0)?)?;
    if run.cancelled {
        return Err(Failure::interrupted());
    }
    Ok(run.pooled().slice(ndarray::s![..n, ..]).to_owned())
}

/// Returns ln p of every row: exact for small models, else with ln Z by annealing. Also returns the
/// standard error of ln Z.
fn score(
    model: &impl LocalModel,
    theta: &[f64],
    rows: &Array2<u8>,
    seed: u64,
    cancel: &Cancel,
) -> Result<(Vec<f64>, f64), Failure> {
    // Checks the states.
    let _ = SiteData::new(rows.view(), model.n_states())?;
    mpf_core::check_count("sites of the data", model.n_sites(), rows.ncols())?;
    let (log_z, error) = if is_small(model) {
        (LocalExact::new(model, theta)?.log_z(), 0.0)
    } else {
        let options = AnnealedOptions {
            seed,
            cancel: cancel.clone(),
            ..Default::default()
        };
        let log_states = LocalGibbs::new(model, theta, 0.0)?.log_states();
        let found = annealed_log_z_of(log_states, &options, |beta| {
            LocalGibbs::new(model, theta, beta)
        })?;
        (found.log_z, found.standard_error)
    };
    let energy = |row: ndarray::ArrayView1<'_, u8>| model.energy(theta, &row.to_vec());
    let scores = rows.rows().into_iter().map(|row| -energy(row) - log_z);
    Ok((scores.collect(), error))
}

/// Makes a Potts model of its parameters, which may come from a file.
fn family(theta: &[f64], n_sites: usize, n_states: usize) -> PyResult<Potts> {
    let pairs = n_sites.saturating_sub(1).saturating_mul(n_sites) / 2;
    let fields = n_sites.saturating_mul(n_states);
    let n = pairs
        .saturating_mul(n_states * n_states)
        .saturating_add(fields);
    if n_sites < 2 || theta.len() != n {
        return Err(value_error(format!(
            "{} parameters for {n_sites} sites of {n_states} states, which have {n}",
            theta.len()
        )));
    }
    Ok(Potts::new(n_sites, n_states, theta.to_vec()))
}

/// Fits rows of states as `mpf dca` does. Returns θ and the scores of pairs in the zero-sum gauge, the
/// objective, the iterations, the reason for stopping and whether the fit converged.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has names for them")]
pub fn fit_potts<'py>(
    py: Python<'py>,
    codes: PyReadonlyArray2<'py, u8>,
    n_states: usize,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    gap: Option<usize>,
    options: Vec<String>,
    n_threads: usize,
    show: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vector<'py>, Matrix<'py>, f64, usize, String, bool)> {
    // `mpf dca` names a file, which is not read here.
    let options = [options, vec!["X".to_owned()]].concat();
    let args = embed::parse("dca", &options).map_err(exception)?;
    let n_sites = codes.as_array().ncols();
    let codes: Vec<u8> = codes.as_array().iter().copied().collect();
    let weights = weights.as_ref().map(|w| w.as_slice().map(<[f64]>::to_vec));
    let weights = weights.transpose()?;
    let (fit, scores) = run(py, n_threads, show, move |cancel, show| {
        let shape = (n_sites, n_states);
        let fit = embed::fit_potts(&args, &codes, shape, weights.as_deref(), cancel, show)?;
        let scores = Scores::new(&fit.model, gap.filter(|gap| *gap < n_states));
        Ok::<_, Failure>((fit, scores))
    })?;
    let matrix = Array2::from_shape_fn((n_sites, n_sites), |(i, j)| match i == j {
        true => 0.0,
        false => scores.get(i, j),
    });
    let theta = fit.model.zero_sum().theta().to_pyarray(py);
    let converged = fit.stop.is_converged();
    let stop = fit.stop.to_string();
    let matrix = matrix.to_pyarray(py);
    Ok((theta, matrix, fit.value, fit.iterations, stop, converged))
}

/// Draws states of a Potts model.
#[pyfunction]
pub fn potts_sample<'py>(
    py: Python<'py>,
    theta: PyReadonlyArray1<'py, f64>,
    shape: (usize, usize),
    n: usize,
    seed: u64,
    n_threads: usize,
) -> PyResult<Draws<'py>> {
    let model = family(theta.as_slice()?, shape.0, shape.1)?;
    let draws = run(py, n_threads, None, move |cancel, _| {
        draw(&model, model.theta(), n, seed, cancel)
    })?;
    Ok(draws.to_pyarray(py))
}

/// ln p of rows of states, and the standard error of ln Z.
#[pyfunction]
pub fn potts_score<'py>(
    py: Python<'py>,
    theta: PyReadonlyArray1<'py, f64>,
    shape: (usize, usize),
    codes: PyReadonlyArray2<'py, u8>,
    seed: u64,
    n_threads: usize,
) -> PyResult<(Vector<'py>, f64)> {
    let model = family(theta.as_slice()?, shape.0, shape.1)?;
    let codes = codes.as_array().to_owned();
    let (scores, error) = run(py, n_threads, None, move |cancel, _| {
        score(&model, model.theta(), &codes, seed, cancel)
    })?;
    Ok((scores.to_pyarray(py), error))
}

/// Runs `mpf dca` on a file. Returns the summary, the table, the archive and the page.
#[pyfunction]
pub fn dca(
    py: Python<'_>,
    family: PathBuf,
    options: Vec<String>,
    n_threads: usize,
) -> PyResult<(String, String, Vec<u8>, String)> {
    let name = family.to_string_lossy().into_owned();
    let options = [options, vec!["--".to_owned(), name]].concat();
    let args = embed::parse("dca", &options).map_err(exception)?;
    let found = run(py, n_threads, None, move |cancel, _| {
        embed::dca(&args, cancel)
    })?;
    Ok((found.summary, found.table, found.archive, found.page))
}
