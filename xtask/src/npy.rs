//! Whole arrays in `.npy` files.

use crate::Result;
use mpf_ising::States;
use mpf_report::npy::{Error, Header};
use ndarray::{Array2, ArrayViewD};
use std::fs::File;
use std::path::Path;

/// Encodes numbers.
pub fn encode(array: ArrayViewD<'_, f64>) -> Vec<u8> {
    let numbers = array.iter().flat_map(|value| value.to_le_bytes());
    file("<f8", array.shape(), numbers)
}

/// Encodes samples as 0 and 1, a row each.
pub fn encode_states(states: &States) -> Vec<u8> {
    let bits = states.to_binary();
    file("|u1", bits.shape(), bits.iter().copied())
}

fn file(descr: &str, shape: &[usize], numbers: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::new(descr, shape).write(&mut bytes);
    header.expect("memory can be written");
    bytes.extend(numbers);
    bytes
}

/// Reads a matrix of numbers.
pub fn read(path: &Path) -> Result<Array2<f64>> {
    read_as(path, Some)
}

/// Reads a matrix of 0 and 1.
pub fn read_bits(path: &Path) -> Result<Array2<u8>> {
    read_as(path, |value| match value {
        0.0 => Some(0),
        1.0 => Some(1),
        _ => None,
    })
}

fn read_as<T>(path: &Path, convert: impl Fn(f64) -> Option<T>) -> Result<Array2<T>> {
    let unreadable = |why: &str| format!("cannot read {}: {why}", path.display());
    let mut file = File::open(path).map_err(|e| unreadable(&e.to_string()))?;
    let mut numbers = Vec::new();
    let mut read = || {
        let header = Header::read(&mut file)?;
        let n = header.n_entries().unwrap_or(u64::MAX);
        header.dtype()?.for_each(&mut file, n, |value| {
            let number = convert(value).ok_or(Error::Header("it does not hold 0 and 1 alone"))?;
            numbers.push(number);
            Ok::<_, Error>(())
        })?;
        Ok::<_, Error>(header)
    };
    let header = read().map_err(|e| unreadable(&format!("{e:?}")))?;
    match *header.shape {
        [rows, columns] if !header.fortran => {
            let shape = (rows as usize, columns as usize);
            Ok(Array2::from_shape_vec(shape, numbers)?)
        }
        _ => Err(unreadable("it holds no matrix in C order").into()),
    }
}
