//! Data of NumPy, read as the program reads a file.

use crate::run::{exception, guarded};
use mpf_cli::embed::{self, Raster};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use std::io::{self, Read};

pub type Matrix<'py> = Bound<'py, PyArray2<f64>>;
pub type Vector<'py> = Bound<'py, PyArray1<f64>>;

/// Bytes between two looks for signals.
const CHUNK: usize = 1 << 24;

/// The bytes of a `.npy` or `.npz` file: a header, then the memory of an array as it is.
#[derive(FromPyObject)]
pub struct Data<'py> {
    header: Vec<u8>,
    body: PyReadonlyArray1<'py, u8>,
    names: Option<Vec<String>>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
}

/// Bytes that end with an error after Ctrl-C.
struct Heeding<'a> {
    bytes: &'a [u8],
    unheard: usize,
    signal: &'a mut Option<PyErr>,
}

impl Read for Heeding<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unheard >= CHUNK {
            self.unheard = 0;
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                *self.signal = Some(error);
                return Err(io::Error::other("interrupted"));
            }
        }
        let n = self.bytes.read(buffer)?;
        self.unheard += n;
        Ok(n)
    }
}

impl Data<'_> {
    /// Packs the data under the options of a command.
    pub fn read(&self, py: Python<'_>, command: &str, options: &[String]) -> PyResult<Raster> {
        let body = self.body.as_slice()?;
        let weights = self
            .weights
            .as_ref()
            .map(|w| w.as_slice().map(<[f64]>::to_vec));
        let weights = weights.transpose()?;
        let (header, names) = (self.header.as_slice(), self.names.clone());
        let mut signal = None;
        let raster = py.detach(|| {
            let length = (header.len() + body.len()) as u64;
            let body = Heeding {
                bytes: body,
                unheard: 0,
                signal: &mut signal,
            };
            let bytes = header.chain(body);
            guarded(|| embed::read(command, options, bytes, length, names, weights))
        })?;
        match signal {
            Some(error) => Err(error),
            None => raster.map_err(exception),
        }
    }
}
