//! A model file holds couplings, their convention and their origin: see `docs/model-file.md`.
//!
//! In memory the convention is the paper's, x ∈ {0,1}^d and E = xᵀJx. A file may also be in spins;
//! it then keeps the diagonal of J beside the fields, so that converting back is exact. The checksum
//! is always that of the model in the paper's convention.

mod csv_form;
mod file;
mod npz_form;
mod record;
#[cfg(test)]
mod tests;

use crate::data::{self, DataRecord};
use crate::failure::Failure;
use crate::memory;
use crate::output;
use file::{ModelFile, ShortLists};
use mpf_baselines::Machine;
use mpf_core::Fnv1a;
use mpf_ising::Couplings;
use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use std::path::Path;

pub use record::{FitRecord, PathRecord, StandardErrors};

/// What the numbers of a model file mean.
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

/// A model with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The program that wrote it, with its version.
    pub program: String,
    /// The paper's J; of a machine with hidden units, its visible part.
    pub couplings: Couplings,
    /// The hidden units, if there are any.
    pub hidden: Option<Hidden>,
    /// The names of the units.
    pub names: Vec<String>,
    /// Standard errors, if they were computed.
    pub errors: Option<StandardErrors>,
    /// How the couplings were found, if they were fitted.
    pub fit: Option<FitRecord>,
    /// The data that they were fitted to.
    pub data: Option<DataRecord>,
}

/// The hidden units of an RBM: E = xᵀJx − Σ_k ln(1 + exp(−c_k − W_k·x)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hidden {
    /// W, a row for every hidden unit.
    pub weights: Vec<Vec<f64>>,
    /// c.
    pub biases: Vec<f64>,
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
            _ if data::is_standard(path) => Ok(Self::Json),
            "json" => Ok(Self::Json),
            "npz" => Ok(Self::Npz),
            "csv" => Ok(Self::Csv),
            _ => {
                let why = "a model file ends in .json, .npz or .csv";
                Err(Failure::at(path, why).hint("name it model.json"))
            }
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
    /// Returns a model of couplings that were not fitted.
    pub fn unfitted(couplings: Couplings, names: Vec<String>) -> Self {
        Self {
            program: Self::this_program(),
            couplings,
            hidden: None,
            names,
            errors: None,
            fit: None,
            data: None,
        }
    }

    /// Returns how the model was fitted.
    ///
    /// # Panics
    /// If it was not.
    pub fn record(&self) -> &FitRecord {
        self.fit.as_ref().expect("the model was fitted")
    }

    /// Returns the machine, if there are hidden units.
    ///
    /// # Errors
    /// Parameters that cannot be those of a machine.
    pub fn machine(&self) -> Result<Option<Machine>, mpf_baselines::Error> {
        let of = |h: &Hidden| Machine::from_parts(&self.couplings, &h.weights, &h.biases);
        self.hidden.as_ref().map(of).transpose()
    }

    /// Returns the name and version of this program.
    pub fn this_program() -> String {
        format!("mpf {}", env!("CARGO_PKG_VERSION"))
    }

    /// Hashes everything but form and convention.
    fn checksum(&self) -> String {
        Self::checksum_of(&ModelFile::new(self, Convention::Binary))
    }

    /// Hashes a file in the convention `Binary`, before it has a checksum.
    fn checksum_of(file: &ModelFile) -> String {
        let mut hash = Fnv1a::default();
        serde_json::to_writer(&mut hash, file).expect("a model can be written");
        hash.to_string()
    }

    /// Hashes the couplings alone, so that models with different histories compare equal.
    pub fn couplings_fingerprint(&self) -> String {
        let mut hash = Fnv1a::default();
        let potential = self.couplings.potential().unwrap_or(&[]);
        let hidden = self.hidden.iter();
        let hidden = hidden.flat_map(|h| h.weights.iter().flatten().chain(&h.biases));
        for number in (self.couplings.as_array().iter().chain(potential)).chain(hidden) {
            hash.add(&number.to_le_bytes());
        }
        hash.to_string()
    }

    /// Returns the fields of the file, with the checksum.
    fn file(&self, convention: Convention) -> ModelFile {
        let mut file = ModelFile::new(self, convention);
        file.checksum = Some(match convention {
            Convention::Binary => Self::checksum_of(&file),
            _ => self.checksum(),
        });
        file
    }

    /// Returns the JSON form.
    pub fn to_json(&self, convention: Convention) -> String {
        let mut text = Vec::new();
        let mut json = Serializer::with_formatter(&mut text, ShortLists::default());
        let written = self.file(convention).serialize(&mut json);
        written.expect("a model can be written");
        text.push(b'\n');
        String::from_utf8(text).expect("JSON is UTF-8")
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
        output::write(path, &contents)
    }

    /// Reads a model; `assumed` is the convention of a bare matrix, which does not state it.
    ///
    /// # Errors
    /// A [`Failure`] that says what is wrong with the file.
    pub fn read(path: &Path, assumed: Option<Convention>) -> Result<Self, Failure> {
        match Form::of(path)? {
            Form::Npz => npz_form::read(path, &memory::read_file(path, None)?),
            form => Self::from_text(path, form, &memory::read_text(path, None)?, assumed),
        }
    }

    /// Reads a model from the bytes of a file; the name of `path` decides the form.
    ///
    /// # Errors
    /// As [`Model::read`].
    pub fn from_bytes(
        path: &Path,
        bytes: &[u8],
        assumed: Option<Convention>,
    ) -> Result<Self, Failure> {
        match Form::of(path)? {
            Form::Npz => npz_form::read(path, bytes),
            form => {
                let text = std::str::from_utf8(bytes);
                let text = text.map_err(|_| Failure::at(path, "this is no text in UTF-8"))?;
                Self::from_text(path, form, text, assumed)
            }
        }
    }

    /// Reads a model from the text of a file of this form.
    fn from_text(
        path: &Path,
        form: Form,
        text: &str,
        assumed: Option<Convention>,
    ) -> Result<Self, Failure> {
        let wrong = |why: String| {
            let hint = if why.contains("checksum") {
                "if you edited it, remove the checksum; otherwise fit again"
            } else {
                "docs/model-file.md describes the format; `mpf fit` writes it"
            };
            Failure::at(path, why).hint(hint)
        };
        if form == Form::Csv {
            return csv_form::read(text, assumed).map_err(wrong);
        }
        let file: ModelFile =
            serde_json::from_str(text).map_err(|e| wrong(format!("this is no model file: {e}")))?;
        file.read().map_err(wrong)
    }
}
