//! Packs numbers into bits as they are read.
//!
//! A file is a sequence of lines of equal length: the samples of a C-ordered array or a text, the
//! units of a Fortran-ordered or transposed one. Nothing is allocated ahead of what was read:
//! a size in a header cannot claim more memory than the file has bytes.

use mpf_ising::States;
use std::sync::mpsc::SyncSender;

/// How numbers become bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Two values, that of 0 and that of 1; others are wrong.
    Levels(f64, f64),
    /// 1 above the threshold, 0 elsewhere.
    Above(f64),
}

impl Default for Values {
    fn default() -> Self {
        Self::Levels(0.0, 1.0)
    }
}

/// What becomes of entries that are missing (NaN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// They are wrong.
    #[default]
    #[value(skip)]
    Refuse,
    /// Leave out rows with a missing entry
    Drop,
    /// Keep all rows and fit the entries that are there (`mpf fit`)
    Mask,
}

/// What is wrong with a number or a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Problem {
    /// Neither of the two values.
    Value(f64),
    /// Not a number, where missing entries are not expected.
    Missing,
    /// Not a count: negative, infinite or not a number.
    Count(f64),
    /// A line that is longer or shorter than the first.
    Length {
        /// Numbers in the first line.
        expected: usize,
        /// Numbers in this one.
        found: usize,
    },
    /// Bits that take more bytes than there is room for.
    Memory(u64),
    /// Nobody takes the samples any more: see [`Packer::pour_into`].
    NotTaken,
}

/// Takes samples as they are read.
pub type Sink = SyncSender<Packed>;

/// The samples that a sink takes at a time.
const BATCH: usize = 8192;

/// Samples as packed.
pub struct Packed {
    /// The rows.
    pub states: States,
    /// A 1 for every missing entry, if there are any and they are kept.
    pub unknown: Option<States>,
    /// The counts, if a column holds them.
    pub weights: Option<Vec<f64>>,
    /// The number of rows left out because an entry is missing.
    pub n_left_out: usize,
    /// The number of rows that a sink took before these.
    pub n_taken: usize,
}

/// Collects bits, and counts if one of the columns holds them.
#[derive(Default)]
pub struct Packer {
    values: Values,
    missing: Missing,
    /// Whether lines are units.
    by_unit: bool,
    columns: Columns,
    /// The most bytes of bits.
    room: u64,
    row: Vec<u64>,
    unknown_row: Vec<u64>,
    /// Numbers of the current line so far, and the bits among them.
    position: usize,
    n_bits: usize,
    lines: usize,
    width: Option<usize>,
    states: Option<States>,
    /// The missing entries, unless they are refused.
    unknown: Option<States>,
    weights: Vec<f64>,
    sink: Option<Sink>,
    n_left_out: usize,
    n_taken: usize,
}

/// The columns of a file that are not units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The column that holds counts.
    pub counts: Option<usize>,
    /// Columns that are not read.
    pub dropped: Vec<usize>,
}

impl Columns {
    /// Returns whether a column holds a unit.
    pub fn is_unit(&self, column: usize) -> bool {
        self.counts != Some(column) && !self.dropped.contains(&column)
    }

    /// Returns the names of the units among those of all columns.
    pub fn units(&self, names: Vec<String>) -> Vec<String> {
        let columns = names.into_iter().enumerate();
        let units = columns.filter(|(column, _)| self.is_unit(*column));
        units.map(|(_, name)| name).collect()
    }

    /// Returns how many of `n` columns hold units.
    pub fn n_units(&self, n: usize) -> usize {
        let others = self.dropped.iter().chain(&self.counts);
        n - others.filter(|column| **column < n).count()
    }
}

impl Packer {
    /// Returns an empty packer. Lines are samples, or units if `by_unit`. It takes at most `room`
    /// bytes.
    pub fn new(
        values: Values,
        missing: Missing,
        by_unit: bool,
        columns: Columns,
        room: u64,
    ) -> Self {
        Self {
            values,
            missing,
            by_unit,
            columns,
            room,
            ..Self::default()
        }
    }

    /// Passes samples on to `sink` as they come, if lines are samples; the last ones stay here.
    #[must_use]
    pub fn pour_into(mut self, sink: Option<Sink>) -> Self {
        self.sink = sink.filter(|_| !self.by_unit);
        self
    }

    /// Returns the number of complete lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Returns the columns that are not units.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the number of columns of the samples; `None` before the first line.
    pub fn n_columns(&self) -> Option<usize> {
        if self.by_unit {
            Some(self.lines)
        } else {
            self.width
        }
    }

    /// Returns the number of columns that are units; `None` before the first line.
    pub fn n_units(&self) -> Option<usize> {
        self.n_columns().map(|n| self.columns.n_units(n))
    }

    /// Returns how many numbers of the current line were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Leaves out the current line, which is a unit.
    pub fn drop_line(&mut self) {
        if !self.columns.dropped.contains(&self.lines) {
            self.columns.dropped.push(self.lines);
        }
    }

    /// Adds the next number of the current line; NaN is a missing entry.
    ///
    /// # Errors
    /// [`Problem::Value`], [`Problem::Missing`], [`Problem::Count`].
    #[inline]
    pub fn push(&mut self, value: f64) -> Result<(), Problem> {
        let column = if self.by_unit {
            self.lines
        } else {
            self.position
        };
        if self.columns.is_unit(column) {
            let is_missing = value.is_nan();
            let bit = match self.values {
                _ if is_missing && self.missing == Missing::Refuse => return Err(Problem::Missing),
                _ if is_missing => false,
                Values::Above(threshold) => value > threshold,
                Values::Levels(_, one) if value == one => true,
                Values::Levels(zero, _) if value == zero => false,
                Values::Levels(..) => return Err(Problem::Value(value)),
            };
            if self.n_bits.is_multiple_of(64) {
                self.row.push(0);
                self.unknown_row.push(0);
            }
            let (word, place) = (self.n_bits / 64, self.n_bits % 64);
            self.row[word] |= u64::from(bit) << place;
            self.unknown_row[word] |= u64::from(is_missing) << place;
            self.n_bits += 1;
        } else if self.columns.counts == Some(column) {
            // A row without a count is left out with the rows that miss an entry.
            let is_left_out = value.is_nan() && self.missing == Missing::Drop;
            let is_count = value.is_finite() && value >= 0.0;
            if !is_count && !is_left_out {
                return Err(Problem::Count(value));
            }
            self.weights.push(value);
        }
        self.position += 1;
        Ok(())
    }

    /// Adds entries of the current line that are stored as bytes, eight at a time, up to the first eight
    /// that are not all 0 or 1; returns how many. Adds none if every number has to be looked at.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> usize {
        let is_plain = self.columns == Columns::default();
        if self.values != Values::default() || !is_plain {
            return 0;
        }
        let mut n = 0;
        for &eight in bytes.as_chunks::<8>().0 {
            let eight = u64::from_le_bytes(eight);
            if eight & !0x0101_0101_0101_0101 != 0 {
                break;
            }
            // Moves bit 8 k to bit 56 + k.
            let bits = eight.wrapping_mul(0x0102_0408_1020_4080) >> 56;
            let (word, place) = (self.n_bits / 64, self.n_bits % 64);
            if place == 0 || place > 56 {
                self.row.push(0);
                self.unknown_row.push(0);
            }
            self.row[word] |= bits << place;
            if place > 56 {
                self.row[word + 1] = bits >> (64 - place);
            }
            self.n_bits += 8;
            n += 8;
        }
        self.position += n;
        n
    }

    /// Passes over the next entry of the current line, which is in a column that is not read.
    pub fn skip(&mut self) {
        self.position += 1;
    }

    /// Ends the current line.
    ///
    /// # Errors
    /// [`Problem::Length`], [`Problem::Memory`], [`Problem::NotTaken`].
    pub fn end_line(&mut self) -> Result<(), Problem> {
        let found = self.position;
        let expected = *self.width.get_or_insert(found);
        if found != expected {
            return Err(Problem::Length { expected, found });
        }
        if self.n_bits > 0 {
            self.pour()?;
            let held = self.states.as_ref().map_or(0, States::n_samples) as u64;
            let room = |copies: u64| {
                let bytes = 8 * copies * self.row.len() as u64 * (held + 1);
                if bytes > self.room {
                    Err(Problem::Memory(bytes))
                } else {
                    Ok(())
                }
            };
            room(1)?;
            let new = || States::new(self.n_bits).expect("there is a bit");
            self.states.get_or_insert_with(new).push(&self.row);
            if self.missing != Missing::Refuse {
                room(2)?;
                self.unknown.get_or_insert_with(new).push(&self.unknown_row);
            }
        }
        self.row.clear();
        self.unknown_row.clear();
        self.position = 0;
        self.n_bits = 0;
        self.lines += 1;
        Ok(())
    }

    /// Passes on a batch, if there is one and it is wanted.
    fn pour(&mut self) -> Result<(), Problem> {
        let n = self.states.as_ref().map_or(0, States::n_samples);
        let Some(sink) = self.sink.clone().filter(|_| n == BATCH) else {
            return Ok(());
        };
        // The count of the line that ends now may be there already.
        let next = self.weights.split_off(n.min(self.weights.len()));
        let batch = self.take();
        self.weights = next;
        if let Some(batch) = batch {
            self.n_taken += batch.states.n_samples();
            self.n_left_out += batch.n_left_out;
            sink.send(batch).map_err(|_| Problem::NotTaken)?;
        }
        Ok(())
    }

    /// Returns the samples; `None` if there are none. Those that a sink took are counted.
    pub fn finish(mut self) -> Option<Packed> {
        let mut packed = self.take()?;
        packed.n_left_out += self.n_left_out;
        packed.n_taken = self.n_taken;
        Some(packed)
    }

    /// Returns the samples that are here.
    fn take(&mut self) -> Option<Packed> {
        let turn = |states: States| {
            if self.by_unit {
                states.transposed().ok()
            } else {
                Some(states)
            }
        };
        let mut packed = Packed {
            states: turn(self.states.take()?)?,
            unknown: match self.unknown.take() {
                None => None,
                Some(unknown) => Some(turn(unknown)?),
            },
            weights: self
                .columns
                .counts
                .map(|_| std::mem::take(&mut self.weights)),
            n_left_out: 0,
            n_taken: 0,
        };
        let is_known = |row: &[u64]| row.iter().all(|word| *word == 0);
        match self.missing {
            Missing::Refuse => {}
            Missing::Mask => packed.unknown = packed.unknown.filter(|u| !u.rows().all(is_known)),
            Missing::Drop => packed.drop_unknown(is_known)?,
        }
        Some(packed)
    }
}

impl Packed {
    /// Leaves out the rows with a missing entry or count.
    fn drop_unknown(&mut self, is_known: impl Fn(&[u64]) -> bool) -> Option<()> {
        let unknown = self.unknown.take()?;
        let counts = self.weights.take();
        let mut states = States::new(self.states.n_units()).ok()?;
        let mut weights = counts.as_ref().map(|_| Vec::new());
        for (m, (row, mask)) in self.states.rows().zip(unknown.rows()).enumerate() {
            let count = counts.as_ref().and_then(|counts| counts.get(m).copied());
            if is_known(mask) && !count.is_some_and(f64::is_nan) {
                states.push(row);
                weights.iter_mut().for_each(|w| w.extend(count));
            }
        }
        self.n_left_out = self.states.n_samples() - states.n_samples();
        self.states = states;
        self.weights = weights;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: Values = Values::Levels(0.0, 1.0);

    fn packer(missing: Missing, by_unit: bool, counts: Option<usize>) -> Packer {
        let columns = Columns {
            counts,
            dropped: Vec::new(),
        };
        Packer::new(BINARY, missing, by_unit, columns, u64::MAX)
    }

    fn fill(mut packer: Packer, lines: &[&[f64]]) -> Packer {
        for line in lines {
            line.iter().for_each(|v| packer.push(*v).unwrap());
            packer.end_line().unwrap();
        }
        packer
    }

    #[test]
    fn by_samples_and_by_units_are_the_same() {
        let refuse = |by_unit| packer(Missing::Refuse, by_unit, Some(1));
        let rows = fill(refuse(false), &[&[0.0, 7.0, 1.0], &[1.0, 2.5, 1.0]]);
        let columns = fill(refuse(true), &[&[0.0, 1.0], &[7.0, 2.5], &[1.0, 1.0]]);
        let rows = rows.finish().unwrap();
        assert_eq!(rows.states.to_binary(), ndarray::array![[0, 1], [1, 1]]);
        assert_eq!(rows.weights.unwrap(), [7.0, 2.5]);
        assert_eq!(columns.finish().unwrap().states, rows.states);
    }

    #[test]
    fn bytes_are_packed_as_numbers_are() {
        let refuse = || packer(Missing::Refuse, false, None);
        for width in (1..20).chain([63, 64, 65, 127, 128, 130, 200]) {
            // Some ones, in no pattern that a word has.
            let bytes: Vec<u8> = (0..3 * width).map(|k| u8::from(k * k % 7 < 3)).collect();
            let numbers: Vec<f64> = bytes.iter().map(|b| f64::from(*b)).collect();
            let lines: Vec<&[f64]> = numbers.chunks(width).collect();
            let expected = fill(refuse(), &lines).finish().unwrap();
            let mut packer = refuse();
            for line in bytes.chunks(width) {
                // Numbers that come one by one shift the place of those that follow.
                let alone = packer.lines() % line.len();
                let push = |packer: &mut Packer, bytes: &[u8]| {
                    let all = bytes.iter();
                    all.for_each(|b| packer.push(f64::from(*b)).unwrap());
                };
                push(&mut packer, &line[..alone]);
                let n = packer.push_bytes(&line[alone..]);
                assert_eq!(n, (line.len() - alone) / 8 * 8);
                push(&mut packer, &line[alone + n..]);
                packer.end_line().unwrap();
            }
            assert_eq!(packer.finish().unwrap().states, expected.states, "{width}");
        }
        // The first number that is wrong is left to `push`, and so are columns with a meaning.
        assert_eq!(refuse().push_bytes(&[0, 1, 1, 0, 2, 1, 1, 1]), 0);
        let mut counts = packer(Missing::Refuse, false, Some(1));
        assert_eq!(counts.push_bytes(&[1; 16]), 0);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let mut packer = fill(packer(Missing::Refuse, false, None), &[&[0.0, 1.0]]);
        assert_eq!(packer.push(2.0), Err(Problem::Value(2.0)));
        assert_eq!(packer.push(f64::NAN), Err(Problem::Missing));
        packer.push(1.0).unwrap();
        let problem = packer.end_line().unwrap_err();
        let (expected, found) = (2, 1);
        assert_eq!(problem, Problem::Length { expected, found });
        let counts = Columns {
            counts: Some(0),
            dropped: Vec::new(),
        };
        let spins = Values::Levels(-1.0, 1.0);
        let mut spins = Packer::new(spins, Missing::Refuse, false, counts, 7);
        assert_eq!(spins.push(-1.0), Err(Problem::Count(-1.0)));
        spins.push(3.0).unwrap();
        assert_eq!(spins.push(0.0), Err(Problem::Value(0.0)));
        spins.push(-1.0).unwrap();
        assert_eq!(spins.end_line(), Err(Problem::Memory(8)));
        let nothing = Packer::new(BINARY, Missing::Drop, false, Columns::default(), 9);
        assert!(nothing.finish().is_none());
    }

    #[test]
    fn missing_entries_are_dropped_or_masked() {
        const N: f64 = f64::NAN;
        for by_unit in [false, true] {
            let lines: &[&[f64]] = if by_unit {
                &[
                    &[0.0, N, 1.0, 1.0],
                    &[2.0, 1.0, N, 4.0],
                    &[1.0, 1.0, 0.0, 1.0],
                ]
            } else {
                &[
                    &[0.0, 2.0, 1.0],
                    &[N, 1.0, 1.0],
                    &[1.0, N, 0.0],
                    &[1.0, 4.0, 1.0],
                ]
            };
            let dropped = fill(packer(Missing::Drop, by_unit, Some(1)), lines);
            let dropped = dropped.finish().unwrap();
            assert_eq!(dropped.states.to_binary(), ndarray::array![[0, 1], [1, 1]]);
            assert_eq!(dropped.weights.unwrap(), [2.0, 4.0]);
            assert_eq!((dropped.n_left_out, dropped.unknown), (2, None));
        }
        let masked = fill(
            packer(Missing::Mask, false, None),
            &[&[0.0, N], &[1.0, 1.0]],
        );
        let masked = masked.finish().unwrap();
        assert_eq!(
            masked.unknown.unwrap().to_binary(),
            ndarray::array![[0, 1], [0, 0]]
        );
        assert_eq!(masked.states.to_binary(), ndarray::array![[0, 0], [1, 1]]);
        let whole = fill(packer(Missing::Mask, false, None), &[&[0.0, 1.0]]);
        assert_eq!(whole.finish().unwrap().unknown, None);
    }

    #[test]
    fn numbers_above_a_threshold_are_ones_and_dropped_columns_are_not_read() {
        let columns = Columns {
            counts: None,
            dropped: vec![1],
        };
        let above = Packer::new(Values::Above(0.5), Missing::Refuse, false, columns, 1 << 20);
        let lines: &[&[f64]] = &[&[0.5, -7.0, 3.0], &[0.75, f64::NAN, -1.0]];
        let packed = fill(above, lines).finish().unwrap();
        assert_eq!(packed.states.to_binary(), ndarray::array![[0, 1], [1, 0]]);
    }
}
