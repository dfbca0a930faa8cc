//! The model file: couplings, what they mean, and where they come from. See `docs/model-file.md`.
//!
//! In memory the convention is the paper's, x ∈ {0,1}^d and E = xᵀJx. A file may also be in spins;
//! it then keeps the diagonal of J beside the fields, so that going back is exact. The checksum is
//! that of the model in the paper's convention, whatever the file.

mod csv_form;
mod npz_form;

use crate::data::DataRecord;
use crate::failure::Failure;
use crate::output;
use mpf_core::{Fnv1a, StopReason, TracePoint};
use mpf_ising::{Couplings, CrossValidation, ErrorBars, Fit, Penalty, SpinCouplings, Warning};
use mpf_report::files;
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What `format` says in every model file.
const FORMAT: &str = "mpf-model";
/// The version that is written and read.
const VERSION: u32 = 1;

/// How the numbers of a file are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Convention {
    /// 0/1: p(x) = exp(−xᵀJx)/Z
    #[default]
    #[value(name = "binary", alias = "0/1")]
    #[serde(rename = "p(x) = exp(-x'Jx)/Z, x in {0,1}^d, J symmetric, biases on the diagonal")]
    Binary,
    /// ±1: p(s) = exp(Σ h s + Σ_{i<j} K s s)/Z
    #[value(name = "spins", alias = "±1")]
    #[serde(rename = "p(s) = exp(sum_i h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s in {-1,+1}^d")]
    Spins,
}

/// Standard errors. NaN where a parameter was not free.
#[derive(Clone, Debug, PartialEq)]
pub struct StandardErrors {
    /// How they were found.
    pub method: String,
    /// Of h.
    pub fields: Vec<f64>,
    /// Of the diagonal of J.
    pub biases: Vec<f64>,
    /// Of K; those of J are twice as large.
    pub couplings: Vec<Vec<f64>>,
}

impl StandardErrors {
    /// As a fit found them.
    pub fn new(method: &str, bars: ErrorBars) -> Self {
        Self {
            method: method.to_owned(),
            fields: bars.fields,
            biases: bars.biases,
            couplings: bars.couplings,
        }
    }
}

/// One λ of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// λ₁ or λ₂.
    pub lambda: f64,
    /// Couplings that differ from zero.
    pub n_couplings: usize,
    /// The held-out objective.
    pub held_out: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The extended Bayesian information criterion, on a path of λ₁.
    pub ebic: Option<f64>,
}

/// How the couplings were found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitRecord {
    /// The method, as on the command line.
    pub method: String,
    /// λ₁, on Σ_{i<j} |K_ij|.
    pub l1: f64,
    /// λ₂, on ½ Σ_{i<j} K_ij².
    pub l2: f64,
    /// How a penalty was chosen, if it was.
    pub chosen_by: Option<String>,
    /// Which states probability flows to.
    pub neighbours: String,
    /// Whether every row was fitted by itself.
    pub nodewise: bool,
    /// Updates of stochastic maximum likelihood after the fit.
    pub polish: usize,
    /// How many couplings were free.
    pub n_free_couplings: usize,
    /// What all randomness came from.
    pub seed: u64,
    /// The gradient tolerance.
    pub tolerance: f64,
    /// Why learning stopped; none for closed forms.
    pub stop: Option<String>,
    /// Whether the result is a minimum, or a closed form.
    pub converged: bool,
    /// The objective at the end.
    pub value: Option<f64>,
    /// How far from a minimum it is.
    pub kkt_residual: Option<f64>,
    /// Iterations.
    pub iterations: usize,
    /// Evaluations.
    pub evaluations: usize,
    /// Learning time.
    pub seconds: f64,
    /// What to be careful about.
    pub warnings: Vec<String>,
    /// The learning curve; of a long fit, every so many iterations.
    pub trace: Vec<TracePoint>,
    /// What was varied along the path: `l1` or `l2`.
    pub path_of: Option<String>,
    /// The penalties that were tried.
    pub path: Vec<PathRecord>,
}

/// Points of a learning curve that a model file keeps.
const TRACE_POINTS: usize = 500;

impl FitRecord {
    /// Describes how a fit went; its options are for the caller to add.
    pub fn new(fit: &Fit) -> Self {
        let is_learned = fit.stop != StopReason::ClosedForm;
        let is_not_converged = |w: &Warning| matches!(w, Warning::NotConverged { .. });
        Self {
            stop: is_learned.then(|| fit.stop.to_string()),
            converged: !fit.warnings.iter().any(is_not_converged),
            value: is_learned.then_some(fit.value),
            kkt_residual: is_learned.then_some(fit.kkt_residual),
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            seconds: fit.seconds,
            warnings: fit.warnings.iter().map(ToString::to_string).collect(),
            trace: thinned(&fit.trace),
            ..Self::default()
        }
    }

    /// Adds the penalties that were tried.
    pub fn set_path(&mut self, path: &CrossValidation) {
        let name = match path.penalty {
            Penalty::L1 => "l1",
            Penalty::L2 => "l2",
        };
        self.path_of = Some(name.into());
        let points = path.path.iter().zip(&path.scores);
        self.path = points
            .map(|(point, score)| PathRecord {
                lambda: point.lambda,
                n_couplings: point.n_couplings,
                held_out: score.mean,
                standard_error: score.standard_error,
                ebic: point.ebic,
            })
            .collect();
    }
}

/// Keeps every n-th point and the last one.
fn thinned(trace: &[TracePoint]) -> Vec<TracePoint> {
    let step = trace.len().div_ceil(TRACE_POINTS).max(1);
    let last = trace.len().saturating_sub(1);
    let kept = trace.iter().enumerate();
    kept.filter(|(k, _)| k.is_multiple_of(step) || *k == last)
        .map(|(_, point)| *point)
        .collect()
}

/// A model with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What wrote it.
    pub program: String,
    /// J.
    pub couplings: Couplings,
    /// What the units are called.
    pub names: Vec<String>,
    /// How sure the parameters are.
    pub errors: Option<StandardErrors>,
    /// How they were found.
    pub fit: Option<FitRecord>,
    /// What from.
    pub data: Option<DataRecord>,
}

/// A list of numbers in which `null` stands for "not free".
type Numbers = Vec<Option<f64>>;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorsFile {
    method: String,
    fields: Numbers,
    biases: Numbers,
    /// Of K in either convention.
    couplings: Vec<Numbers>,
}

/// How a model looks in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    format: String,
    format_version: u32,
    #[serde(default)]
    program: String,
    convention: Convention,
    /// Of the model in the paper's convention; a file written by hand has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    units: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    biases: Option<Vec<f64>>,
    /// J or K; empty where the matrix is kept elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    couplings: Vec<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    standard_errors: Option<ErrorsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fit: Option<FitRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<DataRecord>,
}

fn optional(values: &[f64]) -> Numbers {
    values.iter().map(|v| v.is_finite().then_some(*v)).collect()
}

fn plain(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().map(|v| v.unwrap_or(f64::NAN)).collect()
}

impl ErrorsFile {
    fn new(errors: &StandardErrors) -> Self {
        // Both conventions at once: the biases' and fields' errors are not functions of each other.
        Self {
            method: errors.method.clone(),
            fields: optional(&errors.fields),
            biases: optional(&errors.biases),
            couplings: errors.couplings.iter().map(|r| optional(r)).collect(),
        }
    }

    fn read(self, d: usize) -> Result<StandardErrors, String> {
        let errors = StandardErrors {
            method: self.method,
            fields: plain(&self.fields),
            biases: plain(&self.biases),
            couplings: self.couplings.iter().map(|r| plain(r)).collect(),
        };
        let rows = errors.couplings.iter().map(Vec::len);
        let lengths = [
            errors.fields.len(),
            errors.biases.len(),
            errors.couplings.len(),
        ];
        if lengths.into_iter().chain(rows).any(|n| n != d) {
            return Err(format!("the standard errors are not of {d} units"));
        }
        Ok(errors)
    }
}

impl ModelFile {
    /// In either convention. Twice and half of a number are exact.
    fn new(model: &Model, convention: Convention) -> Self {
        let rows = |m: &Array2<f64>| m.rows().into_iter().map(|r| r.to_vec()).collect();
        let spins = (convention == Convention::Spins).then(|| model.couplings.to_spins());
        Self {
            format: FORMAT.into(),
            format_version: VERSION,
            program: model.program.clone(),
            convention,
            checksum: None,
            units: model.names.clone(),
            fields: spins.as_ref().map(|s| s.fields.to_vec()),
            biases: spins
                .as_ref()
                .map(|_| model.couplings.as_array().diag().to_vec()),
            couplings: match &spins {
                Some(spins) => rows(&spins.couplings),
                None => rows(model.couplings.as_array()),
            },
            standard_errors: model.errors.as_ref().map(ErrorsFile::new),
            fit: model.fit.clone(),
            data: model.data.clone(),
        }
    }

    fn read(self) -> Result<Model, String> {
        if self.format != FORMAT {
            return Err(format!("its format is {:?}, not {FORMAT:?}", self.format));
        }
        if self.format_version != VERSION {
            return Err(format!(
                "it is of version {}, but this program knows {VERSION}",
                self.format_version
            ));
        }
        let d = self.units.len();
        let matrix = square(&self.couplings, d)?;
        let couplings = match self.convention {
            Convention::Binary => Couplings::new(matrix).map_err(|e| e.to_string())?,
            Convention::Spins => from_spins(matrix, self.fields, self.biases)?,
        };
        let model = Model {
            program: self.program,
            couplings,
            names: self.units,
            errors: self.standard_errors.map(|e| e.read(d)).transpose()?,
            fit: self.fit,
            data: self.data,
        };
        match self.checksum {
            Some(sum) if sum != model.checksum() => {
                Err("its checksum does not match: it was damaged or edited".into())
            }
            _ => Ok(model),
        }
    }
}

/// A matrix of d × d numbers.
fn square(rows: &[Vec<f64>], d: usize) -> Result<Array2<f64>, String> {
    if rows.len() != d {
        return Err(format!("{} rows of couplings for {d} units", rows.len()));
    }
    if let Some(row) = rows.iter().position(|r| r.len() != d) {
        return Err(format!(
            "row {row} of the couplings has {} entries, but there are {d} units",
            rows[row].len()
        ));
    }
    Ok(Array2::from_shape_fn((d, d), |(i, j)| rows[i][j]))
}

/// J from spins. The biases, where they are kept, say what J's diagonal was to the last digit;
/// then the fields must be the ones that follow from it.
fn from_spins(
    couplings: Array2<f64>,
    fields: Option<Vec<f64>>,
    biases: Option<Vec<f64>>,
) -> Result<Couplings, String> {
    let fields = fields.ok_or("a model in spins needs its fields")?;
    let spins = SpinCouplings {
        fields: Array1::from(fields),
        couplings,
    };
    let model = Couplings::from_spins(&spins).map_err(|e| e.to_string())?;
    let Some(biases) = biases else {
        return Ok(model);
    };
    let mut j = model.as_array().clone();
    if biases.len() != j.nrows() {
        return Err(format!("{} biases for {} units", biases.len(), j.nrows()));
    }
    j.diag_mut().assign(&Array1::from(biases));
    let model = Couplings::new(j).map_err(|e| e.to_string())?;
    let expected = model.to_spins().fields;
    match (0..expected.len()).find(|&i| expected[i] != spins.fields[i]) {
        None => Ok(model),
        Some(i) => Err(format!(
            "fields and biases disagree at unit {i}: h = {} but the biases give {}; remove the \
             biases if the fields are right",
            spins.fields[i], expected[i]
        )),
    }
}

/// The forms that a model file can have, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Npz,
    Csv,
}

impl Form {
    fn of(path: &Path) -> Result<Self, Failure> {
        match output::extension(path).as_str() {
            "json" => Ok(Self::Json),
            "npz" => Ok(Self::Npz),
            "csv" => Ok(Self::Csv),
            _ => Err(Failure::input(format!(
                "{}: a model file ends in .json, .npz or .csv",
                path.display()
            ))
            .hint("name it model.json")),
        }
    }
}

/// Refuses a name that [`Model::write`] would refuse.
///
/// # Errors
/// A name that does not end in .json, .npz or .csv.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    Form::of(path).map(drop)
}

impl Model {
    /// Couplings that were not fitted.
    pub fn unfitted(couplings: Couplings, names: Vec<String>) -> Self {
        Self {
            program: Self::this_program(),
            couplings,
            names,
            errors: None,
            fit: None,
            data: None,
        }
    }

    /// This program and its version.
    pub fn this_program() -> String {
        format!("mpf {}", env!("CARGO_PKG_VERSION"))
    }

    /// Over everything but how it is written down.
    fn checksum(&self) -> String {
        let file = ModelFile::new(self, Convention::Binary);
        let text = serde_json::to_string(&file).expect("a model can be written");
        let mut hash = Fnv1a::default();
        hash.add(text.as_bytes());
        hash.to_string()
    }

    /// A hash of the couplings: of equal models, whatever their history.
    pub fn couplings_fingerprint(&self) -> String {
        let mut hash = Fnv1a::default();
        for number in self.couplings.as_array() {
            hash.add(&number.to_le_bytes());
        }
        hash.to_string()
    }

    /// With its checksum, ready to be written.
    fn file(&self, convention: Convention) -> ModelFile {
        ModelFile {
            checksum: Some(self.checksum()),
            ..ModelFile::new(self, convention)
        }
    }

    /// The model as JSON.
    pub fn to_json(&self, convention: Convention) -> String {
        let text = serde_json::to_string_pretty(&self.file(convention));
        short_rows(&text.expect("a model can be written")) + "\n"
    }

    /// Writes the model in the form that the name asks for.
    ///
    /// # Errors
    /// A name of no known form, and those of the file system.
    pub fn write(&self, path: &Path, convention: Convention) -> Result<(), Failure> {
        let contents = match Form::of(path)? {
            Form::Json => self.to_json(convention).into_bytes(),
            Form::Npz => npz_form::write(self).expect("memory can be written"),
            Form::Csv => csv_form::write(self, convention).into_bytes(),
        };
        files::write(path, &contents).map_err(|e| Failure::unwritten(path, &e))
    }

    /// Reads a model; `assumed` is the convention of a bare matrix, which does not say it.
    ///
    /// # Errors
    /// A [`Failure`] that says what is wrong with the file.
    pub fn read(path: &Path, assumed: Option<Convention>) -> Result<Self, Failure> {
        Form::of(path)?;
        let bytes = fs::read(path).map_err(|e| Failure::unreadable(path, &e))?;
        Self::from_bytes(path, &bytes, assumed)
    }

    /// As [`Model::read`] from the bytes of a file, whose name says the form.
    ///
    /// # Errors
    /// As [`Model::read`].
    pub fn from_bytes(
        path: &Path,
        bytes: &[u8],
        assumed: Option<Convention>,
    ) -> Result<Self, Failure> {
        let form = Form::of(path)?;
        let wrong = |why: String| {
            let failure = Failure::input(format!("{}: {why}", path.display()));
            if why.contains("checksum") {
                failure.hint("if you edited it, remove the checksum; otherwise fit again")
            } else {
                failure.hint("docs/model-file.md describes the format; `mpf fit` writes it")
            }
        };
        let text =
            || std::str::from_utf8(bytes).map_err(|_| wrong("this is no text in UTF-8".into()));
        match form {
            Form::Json => {
                let file: ModelFile = serde_json::from_str(text()?)
                    .map_err(|e| wrong(format!("this is no model file: {e}")))?;
                file.read().map_err(wrong)
            }
            Form::Npz => npz_form::read(path, bytes),
            Form::Csv => csv_form::read(text()?, assumed).map_err(wrong),
        }
    }
}

/// Puts lists of numbers on one line each: a matrix then looks like one.
fn short_rows(pretty: &str) -> String {
    let mut out = String::with_capacity(pretty.len());
    let mut list: Option<String> = None;
    for line in pretty.lines() {
        let trimmed = line.trim();
        let opens = trimmed.ends_with('[');
        match &mut list {
            // A list within a list: the outer one is not flat.
            Some(open) if opens => {
                out.push_str(open);
                out.push('\n');
                *open = line.to_owned();
            }
            Some(open) if trimmed.starts_with(']') => {
                out.push_str(open);
                out.push_str(trimmed);
                out.push('\n');
                list = None;
            }
            Some(open) if trimmed.ends_with('{') => {
                out.push_str(open);
                out.push('\n');
                out.push_str(line);
                out.push('\n');
                list = None;
            }
            Some(open) => {
                open.push_str(trimmed);
                if trimmed.ends_with(',') {
                    open.push(' ');
                }
            }
            None if opens => list = Some(line.to_owned()),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;
    use rayon::prelude::*;

    pub(super) fn example() -> Model {
        Model {
            program: "mpf 0.1.0".into(),
            couplings: Couplings::new(array![
                [1.0 / 3.0, -0.7, 1e-17],
                [-0.7, 2.2, 0.1],
                [1e-17, 0.1, 5e300]
            ])
            .unwrap(),
            names: vec!["a".into(), "b,\"β\"".into(), "c".into()],
            errors: Some(StandardErrors {
                method: "sandwich".into(),
                fields: vec![0.1, f64::NAN, 0.3],
                biases: vec![0.1, 0.2, 0.3],
                couplings: vec![vec![f64::NAN, 0.1, 0.2]; 3],
            }),
            fit: Some(FitRecord {
                method: "mpf".into(),
                value: Some(0.1),
                trace: vec![TracePoint {
                    iteration: 1,
                    evaluations: 2,
                    value: 0.3,
                    gradient_norm: 1e-7,
                    seconds: 0.25,
                }],
                ..Default::default()
            }),
            data: None,
        }
    }

    /// NaN differs from itself, so that models are compared as they are written.
    pub(super) fn same(a: &Model, b: &Model) -> bool {
        a.to_json(Convention::Binary) == b.to_json(Convention::Binary)
    }

    #[test]
    fn every_form_and_convention_is_read_back_to_the_last_bit() {
        let folder = tempfile::tempdir().unwrap();
        for convention in [Convention::Binary, Convention::Spins] {
            // (A .npz file holds both.)
            for name in ["m.json", "m.npz", "m.csv"] {
                let path = folder.path().join(name);
                example().write(&path, convention).unwrap();
                let back = Model::read(&path, None).unwrap();
                assert!(same(&example(), &back), "{name} {convention:?}");
                assert_eq!(example().couplings, back.couplings);
            }
        }
    }

    #[test]
    fn a_changed_digit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        let text = example().to_json(Convention::Binary);
        fs::write(&path, text.replace("2.2", "2.3")).unwrap();
        let failure = Model::read(&path, None).unwrap_err();
        assert!(failure.message.contains("checksum"), "{failure}");
        let start = text.find("  \"checksum\"").unwrap();
        let end = start + text[start..].find('\n').unwrap() + 1;
        let by_hand = text.replace(&text[start..end], "").replace("2.2", "2.3");
        fs::write(&path, by_hand).unwrap();
        let back = Model::read(&path, None).unwrap();
        assert_eq!(back.couplings.get(1, 1), 2.3);
    }

    /// Damages the file of a model at every place, to `values` of the byte that is there, and at
    /// every length. What is still read is the same model. Returns how often it was noticed.
    fn damage(
        model: &Model,
        form: Form,
        convention: Convention,
        values: impl Fn(u8) -> Vec<u8> + Sync,
    ) -> usize {
        let (name, whole) = match form {
            Form::Json => ("m.json", model.to_json(convention).into_bytes()),
            Form::Npz => ("m.npz", npz_form::write(model).unwrap()),
            Form::Csv => ("m.csv", csv_form::write(model, convention).into_bytes()),
        };
        // A convention that may be wrong is only for tables that do not say theirs.
        let assumptions: &[_] = match form {
            Form::Csv => &[None, Some(Convention::Spins)],
            _ => &[None],
        };
        let check = |bytes: &[u8], what: &dyn Fn() -> String| {
            let noticed = assumptions.iter().filter(|assumed| {
                match Model::from_bytes(Path::new(name), bytes, **assumed) {
                    Ok(read) => {
                        assert!(same(&read, model), "{form:?} {}", what());
                        false
                    }
                    Err(failure) => {
                        assert!(!failure.message.is_empty());
                        true
                    }
                }
            });
            noticed.count()
        };
        assert_eq!(check(&whole, &|| "untouched".into()), 0);
        let places = whole.par_iter().enumerate().map(|(at, &byte)| {
            let mut damaged = whole.clone();
            let mut noticed = check(&whole[..at], &|| format!("cut at {at}"));
            for value in values(byte) {
                damaged[at] = value;
                noticed += check(&damaged, &|| format!("byte {at}: {byte} to {value}"));
            }
            noticed
        });
        places.sum()
    }

    #[test]
    fn every_changed_byte_of_a_small_file_is_noticed_or_harmless() {
        let couplings = Couplings::new(array![[1.0 / 3.0, -0.7], [-0.7, 2.5e-7]]).unwrap();
        let model = Model::unfitted(couplings, vec!["a".into(), "b".into()]);
        for form in [Form::Json, Form::Csv, Form::Npz] {
            let every = |byte| (0..=255).filter(|v| *v != byte).collect();
            let noticed = damage(&model, form, Convention::Binary, every);
            assert!(noticed > 50_000, "{noticed}");
        }
    }

    #[test]
    fn changed_bytes_of_any_form_are_noticed_or_harmless() {
        // Every bit, and what has a meaning in one of the forms.
        let some = |byte: u8| {
            let bits = (0..8).map(|bit| byte ^ (1 << bit));
            let all = bits.chain(*b"09-.e,:\"#{}[] \n\r\0\xff");
            all.filter(|v| *v != byte).collect()
        };
        let model = Model {
            couplings: Couplings::new(array![[1.0 / 3.0, -0.7], [-0.7, 2.5e-7]]).unwrap(),
            names: vec!["a".into(), "b,\"β\"".into()],
            errors: Some(StandardErrors {
                method: "sandwich".into(),
                fields: vec![0.1, f64::NAN],
                biases: vec![0.1, 0.2],
                couplings: vec![vec![f64::NAN, 0.1]; 2],
            }),
            fit: None,
            ..example()
        };
        for (form, convention) in [
            (Form::Json, Convention::Spins),
            (Form::Csv, Convention::Spins),
            // It holds both conventions.
            (Form::Npz, Convention::Binary),
        ] {
            let noticed = damage(&model, form, convention, some);
            assert!(noticed > 5_000, "{noticed}");
        }
    }

    #[test]
    fn spins_without_biases_are_read() {
        let text = r#"{"format": "mpf-model", "format_version": 1, "units": ["a", "b"],
            "convention": "p(s) = exp(sum_i h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s in {-1,+1}^d",
            "fields": [0.5, 0.25], "couplings": [[0, 1], [1, 0]]}"#;
        let model = serde_json::from_str::<ModelFile>(text).unwrap().read();
        assert_eq!(
            model.unwrap().couplings.as_array(),
            array![[1.0, -2.0], [-2.0, 1.5]]
        );
        let edited = text.replace("[0.5, 0.25]", "[0.5, 0.25], \"biases\": [1.0, 1.0]");
        let error = serde_json::from_str::<ModelFile>(&edited).unwrap().read();
        assert!(error.unwrap_err().contains("disagree at unit 1"));
    }
}
