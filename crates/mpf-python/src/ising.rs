//! `mpf fit`, `compare`, `evaluate` and `sample`, and their models, with hidden units or without.

use crate::arrays::{Data, Matrix, Vector};
use crate::run::{exception, run};
use mpf_cli::embed::{self, Convention, Failure};
use mpf_ising::{Couplings, Support};
use numpy::{PyArray2, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An Ising model, K-pairwise model or RBM with its history: a model file in memory.
#[pyclass(frozen, module = "minprobflow._native")]
pub struct Model(Arc<embed::Model>);

fn convention(name: Option<&str>) -> PyResult<Option<Convention>> {
    match name {
        None => Ok(None),
        Some("binary") => Ok(Some(Convention::Binary)),
        Some("spins") => Ok(Some(Convention::Spins)),
        Some(other) => Err(exception(Failure::input(format!(
            "there is no convention {other:?}: it is \"binary\" or \"spins\""
        )))),
    }
}

#[pymethods]
impl Model {
    /// Makes a model of couplings that were not fitted.
    #[new]
    fn new(couplings: PyReadonlyArray2<'_, f64>, names: Vec<String>) -> PyResult<Self> {
        let made = Couplings::new(couplings.as_array().to_owned());
        let made = made.map_err(|error| exception(error.into()))?;
        Ok(Self(Arc::new(embed::Model::unfitted(made, names))))
    }

    /// Reads a model file.
    #[classmethod]
    fn read(_: &Bound<'_, PyType>, path: PathBuf, assumed: Option<&str>) -> PyResult<Self> {
        let model = embed::Model::read(&path, convention(assumed)?);
        model.map(Arc::new).map(Self).map_err(exception)
    }

    /// Writes a model file.
    fn write(&self, path: PathBuf, to: Option<&str>) -> PyResult<()> {
        let to = convention(to)?.unwrap_or_default();
        self.0.write(&path, to).map_err(exception)
    }

    /// Reads the text of a model file in JSON.
    #[classmethod]
    fn from_json(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        let model = embed::Model::from_bytes(Path::new("model.json"), text.as_bytes(), None);
        model.map(Arc::new).map(Self).map_err(exception)
    }

    /// The text of a model file in JSON.
    fn to_json(&self) -> String {
        self.0.to_json(Convention::Binary)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let read = py.get_type::<Self>().getattr("from_json")?;
        Ok((read, (self.to_json(),)))
    }

    /// The names of the units.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.names.clone()
    }

    /// J, with biases on the diagonal.
    #[getter]
    fn couplings<'py>(&self, py: Python<'py>) -> Matrix<'py> {
        self.0.couplings.as_array().to_pyarray(py)
    }

    /// V of the number of active units.
    #[getter]
    fn potential<'py>(&self, py: Python<'py>) -> Option<Vector<'py>> {
        self.0.couplings.potential().map(|v| v.to_pyarray(py))
    }

    /// W and c of hidden units.
    #[getter]
    fn hidden<'py>(&self, py: Python<'py>) -> PyResult<Option<(Matrix<'py>, Vector<'py>)>> {
        let Some(hidden) = &self.0.hidden else {
            return Ok(None);
        };
        let weights = PyArray2::from_vec2(py, &hidden.weights)?;
        Ok(Some((weights, hidden.biases.to_pyarray(py))))
    }

    /// h and K of ±1 spins.
    fn spins<'py>(&self, py: Python<'py>) -> (Vector<'py>, Matrix<'py>) {
        let spins = self.0.couplings.to_spins();
        (spins.fields.to_pyarray(py), spins.couplings.to_pyarray(py))
    }

    /// Standard errors of the diagonal of J and of its couplings, which are twice those of K, and the J
    /// that intervals are centred on.
    fn errors<'py>(&self, py: Python<'py>) -> Option<(Matrix<'py>, Option<Matrix<'py>>)> {
        let bars = &self.0.errors.as_ref()?.bars;
        let centre = bars.corrected.as_ref();
        let centre = centre.map(|c| c.as_array().to_pyarray(py));
        Some((bars.of_couplings().to_pyarray(py), centre))
    }

    /// How the model was fitted, in JSON.
    #[getter]
    fn record(&self) -> Option<String> {
        let record = self.0.fit.as_ref()?;
        Some(serde_json::to_string(record).expect("a record can be written"))
    }

    /// Draws states of 0 and 1; also returns warnings.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        options: Vec<String>,
        n_threads: usize,
    ) -> PyResult<(Bound<'py, PyArray2<u8>>, Vec<String>)> {
        let model = self.0.clone();
        let (states, warnings) = run(py, n_threads, None, move |cancel, _| {
            embed::sample(&embed::parse("sample", &options)?, &model, cancel)
        })?;
        Ok((py.detach(|| states.to_binary()).to_pyarray(py), warnings))
    }

    /// ln p of every row; also returns what was measured, in JSON.
    fn score<'py>(
        &self,
        py: Python<'py>,
        data: Data<'py>,
        options: Vec<String>,
        seed: u64,
        n_threads: usize,
    ) -> PyResult<(Vector<'py>, String)> {
        let raster = data.read(py, "fit", &options)?;
        let model = self.0.clone();
        let (scores, measure) = run(py, n_threads, None, move |cancel, _| {
            embed::score(&model, &raster, seed, cancel)
        })?;
        let measure = serde_json::to_string(&measure).expect("a measure can be written");
        Ok((scores.to_pyarray(py), measure))
    }
}

/// Runs `mpf fit`; returns the model, notes on how the data were read, and findings.
#[pyfunction]
pub fn fit(
    py: Python<'_>,
    data: Data<'_>,
    options: Vec<String>,
    support: Option<Vec<(usize, usize)>>,
    n_threads: usize,
    show: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Model, Vec<String>, Vec<String>)> {
    let args = embed::parse("fit", &options).map_err(exception)?;
    let raster = data.read(py, "fit", &options)?;
    let notes = raster.notes.clone();
    let (model, findings) = run(py, n_threads, show, move |cancel, show| {
        let support = support.map_or(Support::Full, Support::Edges);
        embed::fit(&args, &raster, support, cancel, show)
    })?;
    Ok((Model(Arc::new(model)), notes, findings))
}

/// Runs the preflight of `mpf fit`; returns its numbers, in JSON, and its findings.
#[pyfunction]
pub fn diagnose(
    py: Python<'_>,
    data: Data<'_>,
    options: Vec<String>,
    n_threads: usize,
) -> PyResult<(String, Vec<String>)> {
    let raster = data.read(py, "fit", &options)?;
    run(py, n_threads, None, move |cancel, _| {
        embed::preflight(&raster, cancel)
    })
}

/// Runs `mpf compare`; returns the page, the table and the numbers in JSON.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    data: Data<'_>,
    options: Vec<String>,
    n_threads: usize,
) -> PyResult<[String; 3]> {
    let args = embed::parse("compare", &options).map_err(exception)?;
    let raster = data.read(py, "compare", &options)?;
    run(py, n_threads, None, move |cancel, _| {
        embed::compare(&args, &raster, cancel)
    })
}

/// Runs `mpf evaluate`; returns the page and the numbers in JSON.
#[pyfunction]
pub fn evaluate(
    py: Python<'_>,
    model: &Model,
    data: Data<'_>,
    truth: Option<&Model>,
    options: Vec<String>,
    n_threads: usize,
) -> PyResult<(String, String)> {
    let args = embed::parse("evaluate", &options).map_err(exception)?;
    let raster = data.read(py, "evaluate", &options)?;
    let (model, truth) = (model.0.clone(), truth.map(|t| t.0.clone()));
    run(py, n_threads, None, move |cancel, _| {
        embed::evaluate(&args, &model, &raster, truth.as_deref(), cancel)
    })
}
