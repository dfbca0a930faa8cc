//! Samples packed one bit per entry.
//!
//! [`States`] keeps all samples in their order, a row of ⌈d/64⌉ words each; unit u of a row is bit
//! u mod 64 of word u / 64. Fits read [`Samples`]: every distinct row once, with its weight, stored
//! by rows and again by columns. That is 2 bits per entry (if d fills its words), and 8 bytes per
//! distinct row if rows repeat or have weights.

mod samples;

use crate::Result;
use crate::error::{Error, check_data};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

pub use samples::Samples;
pub(crate) use samples::{RowIndex, check_sum, negligible};

/// A number that may be a bit or a spin.
pub trait Entry: Copy + private::Sealed {
    /// Returns the value as `f64`.
    fn to_f64(self) -> f64;
}

mod private {
    /// Closes [`Entry`](super::Entry) to other types.
    pub trait Sealed {}
}

macro_rules! entries {
    ($($t:ty => $convert:expr),* $(,)?) => {$(
        impl private::Sealed for $t {}
        impl Entry for $t {
            fn to_f64(self) -> f64 {
                $convert(self)
            }
        }
    )*};
}

entries! {
    bool => |v| if v { 1.0 } else { 0.0 },
    u8 => f64::from, u16 => f64::from, u32 => f64::from, u64 => |v| v as f64,
    i8 => f64::from, i16 => f64::from, i32 => f64::from, i64 => |v| v as f64,
    f32 => f64::from, f64 => |v| v,
}

/// Packed samples in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StatesFile")]
pub struct States {
    n_units: usize,
    bits: Vec<u64>,
}

/// The stored form of [`States`], unchecked.
#[derive(Deserialize)]
struct StatesFile {
    n_units: usize,
    bits: Vec<u64>,
}

impl TryFrom<StatesFile> for States {
    type Error = String;

    fn try_from(file: StatesFile) -> Result<Self, String> {
        let mut states = Self::new(file.n_units).map_err(|e| e.to_string())?;
        let words = states.words_per_row();
        let beyond = !last_word_mask(file.n_units);
        if !file.bits.len().is_multiple_of(words)
            || file
                .bits
                .chunks_exact(words)
                .any(|row| row[words - 1] & beyond != 0)
        {
            return Err(format!("the bits are not those of {} units", file.n_units));
        }
        states.bits = file.bits;
        Ok(states)
    }
}

/// Returns the number of words that hold `n` bits.
#[inline(always)]
pub(crate) fn words_for(n: usize) -> usize {
    n.div_ceil(64)
}

impl States {
    /// Makes an empty list of samples of `n_units` units.
    ///
    /// # Errors
    /// [`Error::NoData`] for 0 units.
    pub fn new(n_units: usize) -> Result<Self> {
        if n_units == 0 {
            return Err(Error::NoData {
                rows: 0,
                columns: 0,
            });
        }
        Ok(Self::without_samples(n_units))
    }

    /// Does the same for an `n_units` that is known to be positive.
    pub(crate) fn without_samples(n_units: usize) -> Self {
        debug_assert!(n_units > 0);
        Self {
            n_units,
            bits: Vec::new(),
        }
    }

    /// Packs 0/1 data, one row per sample.
    ///
    /// # Errors
    /// [`Error::NoData`]; [`Error::NotBinary`] with the first entry that is neither 0 nor 1.
    pub fn from_binary<T: Entry>(data: ArrayView2<'_, T>) -> Result<Self> {
        Self::pack(data, [0.0, 1.0], |row, column, value| Error::NotBinary {
            row,
            column,
            value,
        })
    }

    /// Packs ±1 spins, one row per sample: +1 becomes 1 and −1 becomes 0.
    ///
    /// # Errors
    /// [`Error::NoData`]; [`Error::NotSpin`] with the first entry that is neither −1 nor +1.
    pub fn from_spins<T: Entry>(data: ArrayView2<'_, T>) -> Result<Self> {
        Self::pack(data, [-1.0, 1.0], |row, column, value| Error::NotSpin {
            row,
            column,
            value,
        })
    }

    fn pack<T: Entry>(
        data: ArrayView2<'_, T>,
        [zero, one]: [f64; 2],
        wrong: impl Fn(usize, usize, f64) -> Error,
    ) -> Result<Self> {
        let (rows, columns) = data.dim();
        check_data(rows, columns)?;
        let words = words_for(columns);
        let mut bits = vec![0u64; rows * words];
        for (row, (packed, values)) in bits.chunks_exact_mut(words).zip(data.rows()).enumerate() {
            for (column, value) in values.iter().enumerate() {
                let value = value.to_f64();
                if value == one {
                    packed[column / 64] |= 1 << (column % 64);
                } else if value != zero {
                    return Err(wrong(row, column, value));
                }
            }
        }
        Ok(Self {
            n_units: columns,
            bits,
        })
    }

    /// Returns the number of samples.
    pub fn n_samples(&self) -> usize {
        self.bits.len() / self.words_per_row()
    }

    /// Returns the number of units of a sample.
    pub fn n_units(&self) -> usize {
        self.n_units
    }

    /// Returns the number of words in a row.
    #[inline(always)]
    pub fn words_per_row(&self) -> usize {
        words_for(self.n_units)
    }

    /// Returns one sample, packed. Bits beyond the last unit are zero.
    ///
    /// # Panics
    /// For a sample that does not exist.
    #[inline(always)]
    pub fn row(&self, sample: usize) -> &[u64] {
        let words = self.words_per_row();
        &self.bits[sample * words..(sample + 1) * words]
    }

    /// Iterates over all samples, packed.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.bits.chunks_exact(self.words_per_row())
    }

    /// Returns whether `unit` is 1 in `sample`.
    ///
    /// # Panics
    /// For a unit or sample that does not exist.
    pub fn get(&self, sample: usize, unit: usize) -> bool {
        assert!(unit < self.n_units, "unit {unit} of {}", self.n_units);
        get_bit(self.row(sample), unit)
    }

    /// Appends a packed sample.
    ///
    /// # Panics
    /// For a row with the wrong number of words, or with bits beyond the last unit.
    pub fn push(&mut self, row: &[u64]) {
        assert_eq!(row.len(), self.words_per_row(), "words in a row");
        assert!(
            row[row.len() - 1] & !last_word_mask(self.n_units) == 0,
            "bits beyond unit {}",
            self.n_units - 1
        );
        self.bits.extend_from_slice(row);
    }

    /// Appends samples of ⌈d/8⌉ bytes each, unit u in bit u mod 8 of byte u / 8. Returns whether no bit
    /// beyond the last unit is set; if one is, nothing is appended.
    ///
    /// # Panics
    /// For bytes that are no whole number of samples.
    #[must_use]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        let (width, words) = (self.n_units.div_ceil(8), self.words_per_row());
        assert!(bytes.len().is_multiple_of(width), "bytes of whole samples");
        let (n, start) = (bytes.len() / width, self.bits.len());
        self.bits.resize(start + n * words, 0);
        let mut last_words = 0;
        let rows = self.bits[start..].chunks_exact_mut(words);
        for (row, packed) in rows.zip(bytes.chunks_exact(width)) {
            let (whole, rest) = packed.as_chunks::<8>();
            for (word, bytes) in row.iter_mut().zip(whole) {
                *word = u64::from_le_bytes(*bytes);
            }
            if !rest.is_empty() {
                row[words - 1] = match packed.last_chunk() {
                    // One read, of bytes before the rest too.
                    Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
                    None => rest.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)),
                };
            }
            last_words |= row[words - 1];
        }
        let are_valid = last_words & !last_word_mask(self.n_units) == 0;
        if !are_valid {
            self.bits.truncate(start);
        }
        are_valid
    }

    /// Makes room for `n` more samples.
    pub(crate) fn reserve(&mut self, n: usize) {
        self.bits.reserve_exact(n * self.words_per_row());
    }

    /// Appends all samples of `other`.
    ///
    /// # Panics
    /// If `other` has another number of units.
    pub fn append(&mut self, other: &Self) {
        assert_eq!(self.n_units, other.n_units, "units of appended samples");
        self.bits.extend_from_slice(&other.bits);
    }

    /// Returns the samples in `range`, in order.
    ///
    /// # Panics
    /// For a range beyond the samples.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let words = self.words_per_row();
        Self {
            n_units: self.n_units,
            bits: self.bits[range.start * words..range.end * words].to_vec(),
        }
    }

    /// Returns the bits by unit, ⌈samples/64⌉ words each: bit m mod 64 of word m / 64 is sample m.
    /// Bits beyond the last sample are zero.
    pub fn columns(&self) -> Vec<u64> {
        let blocks = transpose(self);
        let by_unit = |unit: usize| blocks.iter().skip(unit).step_by(self.n_units);
        (0..self.n_units).flat_map(by_unit).copied().collect()
    }

    /// Returns the transpose: samples become units and units become samples.
    ///
    /// # Errors
    /// [`Error::NoData`] without samples, as there would be no units.
    pub fn transposed(&self) -> Result<Self> {
        check_data(self.n_units, self.n_samples())?;
        Ok(Self {
            n_units: self.n_samples(),
            bits: self.columns(),
        })
    }

    /// Returns the samples as 0/1, one row each.
    pub fn to_binary(&self) -> Array2<u8> {
        Array2::from_shape_fn((self.n_samples(), self.n_units), |(m, u)| {
            u8::from(get_bit(self.row(m), u))
        })
    }

    /// Returns the samples as ±1, one row each.
    pub fn to_spins(&self) -> Array2<i8> {
        self.to_binary().mapv(|x| 2 * x as i8 - 1)
    }
}

/// Returns bit `unit` of a packed row.
///
/// # Panics
/// For a row that is too short.
#[inline(always)]
pub fn get_bit(row: &[u64], unit: usize) -> bool {
    row[unit / 64] >> (unit % 64) & 1 == 1
}

/// Flips bit `unit` of a packed row.
///
/// # Panics
/// For a row that is too short.
pub fn flip_bit(row: &mut [u64], unit: usize) {
    row[unit / 64] ^= 1 << (unit % 64);
}

/// Returns the number of set bits.
#[inline]
pub fn n_active(row: &[u64]) -> usize {
    row.iter().map(|w| w.count_ones() as usize).sum()
}

/// Calls `f` with every set bit of a packed row, in order.
pub fn for_each_set_bit(row: &[u64], mut f: impl FnMut(usize)) {
    for (w, &word) in row.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(64 * w + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// Calls `f(i, j, times)` for the active units i ≤ j, in order, with the times that J_ij is in xᵀJx.
pub(crate) fn for_each_active_pair(row: &[u64], mut f: impl FnMut(usize, usize, f64)) {
    for_each_set_bit(row, |i| {
        f(i, i, 1.0);
        for_each_set_bit(row, |j| {
            if j > i {
                f(i, j, 2.0);
            }
        });
    });
}

/// Returns the mask of the bits of the last word that belong to units.
pub fn last_word_mask(n_units: usize) -> u64 {
    match n_units % 64 {
        0 => u64::MAX,
        used => (1 << used) - 1,
    }
}

/// Returns the bits of `states` by unit, for every 64 samples.
fn transpose(states: &States) -> Vec<u64> {
    let (n, d) = (states.n_samples(), states.n_units());
    let mut columns = vec![0u64; n.div_ceil(64) * d];
    let mut square = [0u64; 64];
    for (block, samples) in columns.chunks_exact_mut(d).zip((0..n).step_by(64)) {
        for (unit_word, units) in block.chunks_mut(64).enumerate() {
            square.fill(0);
            for (k, m) in (samples..n.min(samples + 64)).enumerate() {
                square[k] = states.row(m)[unit_word];
            }
            transpose_64(&mut square);
            units.copy_from_slice(&square[..units.len()]);
        }
    }
    columns
}

/// Transposes a 64 × 64 bit matrix in place: bit j of word i changes places with bit i of word j.
/// Six rounds that swap ever smaller off-diagonal blocks.
fn transpose_64(block: &mut [u64; 64]) {
    let mut mask = 0x0000_0000_FFFF_FFFFu64;
    for width in [32, 16, 8, 4, 2, 1] {
        for pair in block.chunks_exact_mut(2 * width) {
            let (low, high) = pair.split_at_mut(width);
            for (low, high) in low.iter_mut().zip(high) {
                let swap = ((*low >> width) ^ *high) & mask;
                *low ^= swap << width;
                *high ^= swap;
            }
        }
        mask ^= mask << (width / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng::stream;
    use ndarray::{Array2, array};
    use rand::RngExt;

    pub(super) fn random(n: usize, d: usize, active: f64, seed: u64) -> Array2<u8> {
        let mut rng = stream(seed, 0);
        Array2::from_shape_simple_fn((n, d), || u8::from(rng.random::<f64>() < active))
    }

    #[test]
    fn transposing_swaps_units_and_samples() {
        for (n, d) in [(37, 1), (64, 65), (3, 129)] {
            let x = random(n, d, 0.4, d as u64);
            let states = States::from_binary(x.view()).unwrap();
            let transposed = states.transposed().unwrap();
            assert_eq!(transposed.to_binary(), x.t());
            assert_eq!(transposed.transposed().unwrap(), states);
        }
        assert!(States::new(3).unwrap().transposed().is_err());
    }

    #[test]
    fn packing_round_trips_for_odd_sizes_and_every_type() {
        for d in [1, 63, 64, 65, 100, 129] {
            let x = random(37, d, 0.4, d as u64);
            let states = States::from_binary(x.view()).unwrap();
            assert_eq!(states.to_binary(), x);
            assert!((0..37).all(|m| (0..d).all(|u| states.get(m, u) == (x[[m, u]] == 1))));
            let as_i8 = States::from_binary(x.mapv(|v| v as i8).view()).unwrap();
            let as_bool = States::from_binary(x.mapv(|v| v == 1).view()).unwrap();
            let as_f64 = States::from_binary(x.mapv(f64::from).view()).unwrap();
            let as_spins = States::from_spins(x.mapv(|v| 2 * v as i8 - 1).view()).unwrap();
            for other in [as_i8, as_bool, as_f64, as_spins] {
                assert_eq!(states, other);
            }
            assert_eq!(states.to_spins(), x.mapv(|v| 2 * v as i8 - 1));
        }
    }

    #[test]
    fn bytes_are_samples_unless_a_bit_has_no_unit() {
        for d in [1, 7, 8, 56, 57, 63, 64, 65, 100, 128] {
            let states = States::from_binary(random(9, d, 0.4, d as u64).view()).unwrap();
            let bytes_of = |row: &[u64]| -> Vec<u8> {
                let all = row.iter().flat_map(|word| word.to_le_bytes());
                all.take(d.div_ceil(8)).collect()
            };
            let mut bytes: Vec<u8> = states.rows().flat_map(bytes_of).collect();
            let mut read = States::new(d).unwrap();
            assert!(read.push_bytes(&bytes[..2 * d.div_ceil(8)]));
            assert!(read.push_bytes(&bytes[2 * d.div_ceil(8)..]));
            assert_eq!(read, states, "{d}");
            if d % 8 > 0 {
                bytes[4 * d.div_ceil(8) - 1] |= 0x80;
                assert!(!read.push_bytes(&bytes));
                assert_eq!(read, states, "{d}");
            }
        }
    }

    #[test]
    fn transposed_views_are_packed_by_their_own_rows() {
        let x = random(5, 70, 0.5, 3);
        let turned = States::from_binary(x.t()).unwrap();
        assert_eq!(turned.to_binary(), x.t());
    }

    #[test]
    fn bad_data_are_errors_that_name_the_place() {
        let mut x = Array2::<f64>::zeros((9, 20));
        x[[7, 19]] = 2.0;
        x[[8, 0]] = f64::NAN;
        assert_eq!(
            States::from_binary(x.view()),
            Err(Error::NotBinary {
                row: 7,
                column: 19,
                value: 2.0
            })
        );
        assert!(matches!(
            States::from_binary(array![[0.0, f64::NAN]].view()),
            Err(Error::NotBinary { row: 0, column: 1, value }) if value.is_nan()
        ));
        assert!(matches!(
            States::from_spins(array![[1i8, 0]].view()),
            Err(Error::NotSpin {
                row: 0,
                column: 1,
                ..
            })
        ));
        for shape in [(0, 3), (3, 0)] {
            assert!(matches!(
                States::from_binary(Array2::<u8>::zeros(shape).view()),
                Err(Error::NoData { .. })
            ));
        }
    }
}
