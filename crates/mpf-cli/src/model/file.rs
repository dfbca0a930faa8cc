//! The JSON form of a model, which the other forms contain without its matrix.

use super::record::{FitRecord, StandardErrors};
use super::{Convention, Hidden, Model};
use crate::data::DataRecord;
use mpf_ising::{Couplings, ErrorBars, SpinCouplings};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use std::collections::HashMap;
use std::io::{self, Write};

/// The value of `format` in every model file.
pub(super) const FORMAT: &str = "mpf-model";
/// The format version that is written and read.
pub(super) const VERSION: u32 = 1;

/// A list of numbers in which `null` stands for "not free".
type Numbers = Vec<Option<f64>>;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorsFile {
    method: String,
    fields: Numbers,
    biases: Numbers,
    /// Of K in either convention.
    couplings: Vec<Numbers>,
    /// Pairs whose coupling the data do not determine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undetermined: Vec<(usize, usize)>,
    /// Successive samples in a block.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    block_length: usize,
    /// The paper's J that intervals are centred on, in either convention; that of the model if there
    /// is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    corrected: Vec<Vec<f64>>,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_one(n: &usize) -> bool {
    *n == 1
}

/// The fields of a model file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelFile {
    pub(super) format: String,
    pub(super) format_version: u32,
    #[serde(default)]
    pub(super) program: String,
    pub(super) convention: Convention,
    /// Of the model in the paper's convention; a file written by hand has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<String>,
    pub(super) units: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fields: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) biases: Option<Vec<f64>>,
    /// J or K; empty where the matrix is kept elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) couplings: Vec<Vec<f64>>,
    /// V(0), …, V(d) of a K-pairwise model, in either convention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) potential: Vec<f64>,
    /// The hidden units of an RBM, in 0/1 in either convention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hidden: Option<Hidden>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) standard_errors: Option<ErrorsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fit: Option<FitRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<DataRecord>,
}

fn optional(values: &[f64]) -> Numbers {
    values.iter().map(|v| v.is_finite().then_some(*v)).collect()
}

fn plain(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().map(|v| v.unwrap_or(f64::NAN)).collect()
}

fn rows(matrix: &Array2<f64>) -> Vec<Vec<f64>> {
    matrix.rows().into_iter().map(|row| row.to_vec()).collect()
}

impl ErrorsFile {
    fn new(errors: &StandardErrors) -> Self {
        let bars = &errors.bars;
        let corrected = bars.corrected.as_ref();
        // Errors of biases do not follow from those of fields: the file keeps both.
        Self {
            method: errors.method.clone(),
            fields: optional(&bars.fields),
            biases: optional(&bars.biases),
            couplings: bars.couplings.iter().map(|r| optional(r)).collect(),
            undetermined: errors.undetermined().collect(),
            block_length: errors.block_length,
            corrected: corrected.map_or_else(Vec::new, |j| rows(j.as_array())),
        }
    }

    fn read(self, d: usize) -> Result<StandardErrors, String> {
        let mut bars = ErrorBars {
            fields: plain(&self.fields),
            biases: plain(&self.biases),
            couplings: self.couplings.iter().map(|r| plain(r)).collect(),
            corrected: match self.corrected.is_empty() {
                true => None,
                false => {
                    let matrix = square(&self.corrected, d)?;
                    Some(Couplings::new(matrix).map_err(|e| e.to_string())?)
                }
            },
        };
        let rows = bars.couplings.iter().map(Vec::len);
        let lengths = [bars.fields.len(), bars.biases.len(), bars.couplings.len()];
        if lengths.into_iter().chain(rows).any(|n| n != d) {
            return Err(format!("the standard errors are not of {d} units"));
        }
        let is_pair = |&(i, j): &(usize, usize)| i < d && j < d && i != j;
        if let Some((i, j)) = self.undetermined.iter().find(|pair| !is_pair(pair)) {
            return Err(format!("({i}, {j}) is no pair of {d} units"));
        }
        bars.mark(self.undetermined);
        Ok(StandardErrors {
            method: self.method,
            block_length: self.block_length,
            bars,
        })
    }
}

impl ModelFile {
    /// Describes `model` without a checksum. Conversions between the conventions are exact: they
    /// double and halve.
    pub(super) fn new(model: &Model, convention: Convention) -> Self {
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
            potential: model.couplings.potential().unwrap_or(&[]).to_vec(),
            hidden: model.hidden.clone(),
            standard_errors: model.errors.as_ref().map(ErrorsFile::new),
            fit: model.fit.clone(),
            data: model.data.clone(),
        }
    }

    /// Checks format, version, shapes and checksum, and returns the model.
    pub(super) fn read(self) -> Result<Model, String> {
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
        let mut numbers = HashMap::new();
        for (i, name) in self.units.iter().enumerate() {
            if let Some(other) = numbers.insert(name.as_str(), i) {
                return Err(format!("units {other} and {i} are both named {name:?}"));
            }
        }
        let matrix = square(&self.couplings, d)?;
        let couplings = match self.convention {
            Convention::Binary => Couplings::new(matrix).map_err(|e| e.to_string())?,
            Convention::Spins => from_spins(matrix, self.fields, self.biases)?,
        };
        let couplings = match self.potential.is_empty() {
            true => couplings,
            false => couplings
                .with_potential(self.potential)
                .map_err(|e| e.to_string())?,
        };
        if self.hidden.is_some() && couplings.potential().is_some() {
            return Err("it has hidden units and a potential, which no model of mpf has".into());
        }
        let model = Model {
            program: self.program,
            couplings,
            hidden: self.hidden,
            names: self.units,
            errors: self.standard_errors.map(|e| e.read(d)).transpose()?,
            fit: self.fit,
            data: self.data,
        };
        model.machine().map_err(|e| e.to_string())?;
        match self.checksum {
            Some(sum) if sum != model.checksum() => {
                Err("its checksum does not match: it was damaged or edited".into())
            }
            _ => Ok(model),
        }
    }
}

/// Returns the rows as a d × d matrix.
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

/// Converts spin couplings to J. Biases, if the file keeps them, are J's diagonal to the last digit,
/// and the fields must agree with them.
fn from_spins(
    couplings: Array2<f64>,
    fields: Option<Vec<f64>>,
    biases: Option<Vec<f64>>,
) -> Result<Couplings, String> {
    let fields = fields.ok_or("a model in spins needs its fields")?;
    let diagonal = couplings.diag();
    if let Some(i) = (0..diagonal.len()).find(|&i| diagonal[i] != 0.0) {
        return Err(format!(
            "K[{i}, {i}] is {}, but a spin has no coupling to itself: its field is in `fields`",
            diagonal[i]
        ));
    }
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

/// Writes JSON with an entry of an object on a line, and lists of numbers and texts on one line each: a
/// matrix then looks like one.
#[derive(Default)]
pub(super) struct ShortLists {
    /// Of every list and object that is open, whether its entries have lines of their own.
    open: Vec<bool>,
    /// Whether the next entry is the first of a list.
    is_first: bool,
}

impl ShortLists {
    fn new_line(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        out.write_all(b"\n")?;
        (0..self.open.len()).try_for_each(|_| out.write_all(b"  "))
    }

    /// Begins a list or an object; one that is the first entry of a list gets a line, and so do those
    /// after it.
    fn begin(&mut self, out: &mut (impl Write + ?Sized), has_lines: bool) -> io::Result<()> {
        if std::mem::take(&mut self.is_first)
            && let Some(list) = self.open.last_mut()
        {
            *list = true;
            self.new_line(out)?;
        }
        self.open.push(has_lines);
        out.write_all(if has_lines { b"{" } else { b"[" })
    }

    fn end(&mut self, out: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.is_first = false;
        if self.open.pop() == Some(true) {
            self.new_line(out)?;
        }
        out.write_all(bracket)
    }
}

impl Formatter for ShortLists {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, false)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.is_first = first;
        match self.open.last() {
            _ if first => Ok(()),
            Some(true) => {
                out.write_all(b",")?;
                self.new_line(out)
            }
            _ => out.write_all(b", "),
        }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, true)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        self.new_line(out)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.is_first = false;
        out.write_all(b": ")
    }
}
