//! Packs numbers into bits as they are read.
//!
//! A file is a sequence of lines of equal length: the samples of a C-ordered array or a text, the
//! units of a Fortran-ordered or transposed one. Nothing is allocated ahead of what was read:
//! a size in a header cannot claim more memory than the file has bytes.

use mpf_ising::States;

/// What the numbers stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// 0 and 1.
    #[default]
    Binary,
    /// −1 and +1.
    Spins,
}

/// What is wrong with a number or a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Problem {
    /// Neither of the two values.
    Value(f64),
    /// Not a count: negative, infinite or not a number.
    Count(f64),
    /// A line that is longer or shorter than the first.
    Length {
        /// Numbers in the first line.
        expected: usize,
        /// Numbers in this one.
        found: usize,
    },
}

/// Collects bits, and counts if one of the columns holds them.
pub struct Packer {
    coding: Coding,
    /// Whether lines are units.
    by_unit: bool,
    /// The column that holds counts.
    counts: Option<usize>,
    row: Vec<u64>,
    /// Numbers of the current line so far, and the bits among them.
    position: usize,
    n_bits: usize,
    lines: usize,
    width: Option<usize>,
    states: Option<States>,
    weights: Vec<f64>,
}

impl Packer {
    /// Returns an empty packer. Lines are samples, or units if `by_unit`.
    pub fn new(coding: Coding, by_unit: bool, counts: Option<usize>) -> Self {
        Self {
            coding,
            by_unit,
            counts,
            row: Vec::new(),
            position: 0,
            n_bits: 0,
            lines: 0,
            width: None,
            states: None,
            weights: Vec::new(),
        }
    }

    /// Returns the number of complete lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Returns the number of units, without the column of counts; `None` before the first line.
    pub fn n_units(&self) -> Option<usize> {
        let columns = if self.by_unit {
            self.lines
        } else {
            self.width?
        };
        Some(columns - usize::from(self.counts.is_some_and(|c| c < columns)))
    }

    /// Returns how many numbers of the current line were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Adds the next number of the current line.
    ///
    /// # Errors
    /// [`Problem::Value`], [`Problem::Count`].
    #[inline]
    pub fn push(&mut self, value: f64) -> Result<(), Problem> {
        let of_units = if self.by_unit {
            self.lines
        } else {
            self.position
        };
        if self.counts == Some(of_units) {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Problem::Count(value));
            }
            self.weights.push(value);
        } else {
            let zero = match self.coding {
                Coding::Binary => 0.0,
                Coding::Spins => -1.0,
            };
            let bit = value == 1.0;
            if !bit && value != zero {
                return Err(Problem::Value(value));
            }
            if self.n_bits.is_multiple_of(64) {
                self.row.push(0);
            }
            self.row[self.n_bits / 64] |= u64::from(bit) << (self.n_bits % 64);
            self.n_bits += 1;
        }
        self.position += 1;
        Ok(())
    }

    /// Ends the current line.
    ///
    /// # Errors
    /// [`Problem::Length`].
    pub fn end_line(&mut self) -> Result<(), Problem> {
        let found = self.position;
        let expected = *self.width.get_or_insert(found);
        if found != expected {
            return Err(Problem::Length { expected, found });
        }
        if self.n_bits > 0 {
            let states = match &mut self.states {
                Some(states) => states,
                empty => empty.insert(States::new(self.n_bits).expect("there is a bit")),
            };
            states.push(&self.row);
        }
        self.row.clear();
        self.position = 0;
        self.n_bits = 0;
        self.lines += 1;
        Ok(())
    }

    /// Returns the samples and their counts; `None` if there are none.
    pub fn finish(self) -> Option<(States, Option<Vec<f64>>)> {
        let states = self.states?;
        let states = if self.by_unit {
            states.transposed().ok()?
        } else {
            states
        };
        Some((states, self.counts.map(|_| self.weights)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(lines: &[&[f64]], by_unit: bool, counts: Option<usize>) -> Packer {
        let mut packer = Packer::new(Coding::Binary, by_unit, counts);
        for line in lines {
            line.iter().for_each(|v| packer.push(*v).unwrap());
            packer.end_line().unwrap();
        }
        packer
    }

    #[test]
    fn by_samples_and_by_units_are_the_same() {
        let rows = pack(&[&[0.0, 7.0, 1.0], &[1.0, 2.5, 1.0]], false, Some(1));
        let columns = pack(&[&[0.0, 1.0], &[7.0, 2.5], &[1.0, 1.0]], true, Some(1));
        let (rows, counts) = rows.finish().unwrap();
        assert_eq!(rows.to_binary(), ndarray::array![[0, 1], [1, 1]]);
        assert_eq!(counts.unwrap(), [7.0, 2.5]);
        assert_eq!(columns.finish().unwrap().0, rows);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let mut packer = pack(&[&[0.0, 1.0]], false, None);
        assert_eq!(packer.push(2.0), Err(Problem::Value(2.0)));
        assert!(matches!(packer.push(f64::NAN), Err(Problem::Value(_))));
        packer.push(1.0).unwrap();
        let problem = packer.end_line().unwrap_err();
        assert_eq!(
            problem,
            Problem::Length {
                expected: 2,
                found: 1
            }
        );
        let mut spins = Packer::new(Coding::Spins, false, Some(0));
        assert_eq!(spins.push(-1.0), Err(Problem::Count(-1.0)));
        spins.push(3.0).unwrap();
        assert_eq!(spins.push(0.0), Err(Problem::Value(0.0)));
        spins.push(-1.0).unwrap();
        assert!(Packer::new(Coding::Binary, false, None).finish().is_none());
    }
}
