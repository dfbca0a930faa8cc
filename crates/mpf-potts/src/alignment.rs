//! Alignments: from the bytes of a file to sequences of codes.
//!
//! Sequences of equal length are FASTA, a2m, Stockholm or one a line; of unequal length, a3m: there
//! lower-case letters are insertions, and equal in number without them. In an alignment of equal
//! lengths a column of lower-case letters and dots alone is an insertion, and left out. A focus
//! sequence leaves out the columns where it has a gap or a lower-case letter.

mod parse;

use crate::alphabet::Reading;
use crate::weights::sequence_weights;
use crate::{Alphabet, Error, Result, Sequences};
use parse::Record;

/// What becomes of a sequence with ambiguous letters, such as X or N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ambiguous {
    /// The letters are read as gaps.
    #[default]
    Gap,
    /// The sequence is left out, as plmc does.
    Drop,
}

/// How an alignment is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The letters; `None` guesses.
    pub alphabet: Option<Alphabet>,
    /// The beginning of the name of the sequence whose residues are the sites.
    pub focus: Option<String>,
    /// Columns with a larger part of gaps are left out. 1 keeps all.
    pub most_gaps_in_column: f64,
    /// Sequences with a larger part of gaps are left out. 1 keeps all.
    pub most_gaps_in_sequence: f64,
    /// What becomes of ambiguous letters.
    pub ambiguous: Ambiguous,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            alphabet: None,
            focus: None,
            most_gaps_in_column: 1.0,
            most_gaps_in_sequence: 1.0,
            ambiguous: Ambiguous::default(),
        }
    }
}

/// A column of the alignment that is a site of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number among the aligned columns, from 1.
    pub column: usize,
    /// The number of the residue in the focus sequence, or of the column without one.
    pub number: usize,
    /// The letter of the focus sequence, or the most frequent one.
    pub letter: char,
}

/// Aligned sequences as codes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Alignment {
    /// The letters.
    pub alphabet: Alphabet,
    /// The names of the sequences that are kept.
    pub names: Vec<String>,
    /// The place of every kept sequence in the file, from 0.
    pub places: Vec<usize>,
    /// The codes in the alphabet, sequence by sequence.
    pub codes: Vec<u8>,
    /// The sites of the model.
    pub sites: Vec<Site>,
    focus: Option<usize>,
    /// The number of sequences in the file.
    pub n_read: usize,
}

impl Alignment {
    /// Reads the text of an alignment; a compressed file is decompressed before.
    ///
    /// # Errors
    /// Names the line and the sequence of what is wrong: see [`Error`].
    pub fn read(text: &[u8], options: &ReadOptions) -> Result<Self> {
        let records = parse::records(text)?;
        let n_read = records.len();
        let alphabet = options.alphabet.clone().unwrap_or_else(|| {
            Alphabet::guess(records.iter().map(|record| record.letters.as_slice()))
        });
        let focus = options.focus.as_deref();
        let focus = focus.map(|name| find_focus(&records, name)).transpose()?;
        let is_case_sensitive = alphabet.letters().bytes().any(|c| c.is_ascii_lowercase());
        let length = records[0].letters.len();
        let has_inserts = !is_case_sensitive && records.iter().any(|r| r.letters.len() != length);
        let numbers = focus.map(|k| residue_numbers(&records[k], has_inserts));
        let aligned = align(records, has_inserts)?;
        let n_columns = aligned[0].letters.len();

        let mut kept: Vec<bool> = if is_case_sensitive {
            vec![true; n_columns]
        } else {
            kept_columns(&aligned, focus)
        };

        let mut codes = Vec::with_capacity(aligned.len() * n_columns);
        let mut is_ambiguous = vec![false; aligned.len()];
        for (sequence, is_ambiguous) in aligned.iter().zip(&mut is_ambiguous) {
            for (column, &letter) in sequence.letters.iter().enumerate() {
                let upper = if is_case_sensitive {
                    letter
                } else {
                    letter.to_ascii_uppercase()
                };
                codes.push(match alphabet.read(upper) {
                    Reading::Code(code) => code,
                    Reading::Ambiguous => {
                        *is_ambiguous = true;
                        0
                    }
                    Reading::Unknown => {
                        return Err(Error::Letter {
                            line: sequence.line,
                            name: sequence.name.clone(),
                            column: column + 1,
                            letter: char::from(letter),
                            alphabet: alphabet.letters(),
                        });
                    }
                });
            }
        }
        let drop = options.ambiguous == Ambiguous::Drop;
        let mut rows: Vec<usize> = (0..n_read)
            .filter(|m| !(drop && is_ambiguous[*m]))
            .collect();

        if alphabet.has_gap() {
            let is_gap = |m: &usize, j: usize| codes[m * n_columns + j] == 0;
            let most = |part: f64, n: usize| part * n as f64;
            rows.retain(|m| {
                let columns = (0..n_columns).filter(|j| kept[*j]);
                let gaps = columns.clone().filter(|j| is_gap(m, *j)).count();
                gaps as f64 <= most(options.most_gaps_in_sequence, columns.count())
            });
            for (j, kept) in kept.iter_mut().enumerate() {
                let gaps = rows.iter().filter(|m| is_gap(m, j)).count();
                *kept &= gaps as f64 <= most(options.most_gaps_in_column, rows.len());
            }
        }
        let columns: Vec<usize> = (0..n_columns).filter(|j| kept[*j]).collect();
        if rows.is_empty() || columns.len() < 2 {
            return Err(Error::NothingLeft {
                sequences: rows.len(),
                columns: columns.len(),
                of_sequences: n_read,
                of_columns: n_columns,
            });
        }
        let sites = columns.iter().map(|&j| {
            let code = match focus {
                Some(k) => codes[k * n_columns + j],
                None => most_frequent(rows.iter().map(|m| codes[m * n_columns + j])),
            };
            Site {
                column: j + 1,
                number: numbers.as_ref().map_or(j + 1, |numbers| numbers[j]),
                letter: alphabet.letter(code),
            }
        });
        let sites = sites.collect();
        let chosen = rows
            .iter()
            .flat_map(|m| columns.iter().map(move |j| (m, j)));
        let codes = chosen.map(|(m, j)| codes[m * n_columns + j]).collect();
        let mut names: Vec<String> = aligned.into_iter().map(|a| a.name).collect();
        let names = rows
            .iter()
            .map(|m| std::mem::take(&mut names[*m]))
            .collect();
        Ok(Self {
            alphabet,
            names,
            codes,
            sites,
            focus: focus.and_then(|k| rows.iter().position(|m| *m == k)),
            places: rows,
            n_read,
        })
    }

    /// Returns the number of sequences that are kept.
    pub fn n_sequences(&self) -> usize {
        self.names.len()
    }

    /// Returns the codes of the focus sequence, if there is one and it is kept.
    pub fn focus(&self) -> Option<&[u8]> {
        let n = self.sites.len();
        self.focus.map(|k| &self.codes[k * n..(k + 1) * n])
    }

    /// Returns the weight of every sequence: see [`sequence_weights`].
    pub fn weights(&self, theta: f64) -> Vec<f64> {
        sequence_weights(&self.codes, self.sites.len(), theta)
    }

    /// Returns the states of codes: the codes themselves, or with gaps ignored those of the letters
    /// only, where a gap has the code q.
    pub fn states(&self, codes: &[u8], ignore_gaps: bool) -> Vec<u8> {
        if !(ignore_gaps && self.alphabet.has_gap()) {
            return codes.to_vec();
        }
        let gap = (self.alphabet.len() - 1) as u8;
        let state = |code: &u8| code.checked_sub(1).unwrap_or(gap);
        codes.iter().map(state).collect()
    }

    /// Returns the sequences with `weights`, the gap as a state or ignored.
    ///
    /// # Errors
    /// As [`Sequences::new`].
    pub fn sequences(&self, weights: &[f64], ignore_gaps: bool) -> Result<Sequences> {
        let ignored = ignore_gaps && self.alphabet.has_gap();
        let n_states = self.alphabet.len() - usize::from(ignored);
        let states = self.states(&self.codes, ignore_gaps);
        Sequences::new(&states, self.sites.len(), n_states, weights)
    }
}

/// Finds the sequence whose name begins with `name`.
fn find_focus(records: &[Record], name: &str) -> Result<usize> {
    let place = records.iter().position(|r| r.name.starts_with(name));
    place.ok_or_else(|| Error::Focus {
        name: name.to_string(),
        first: records[0].name.clone(),
    })
}

/// Returns for every letter, insertions of an a3m left out, the number of its residue or of the next
/// one after it. The name tells the first: of "NAME/21-180" it is 21, of "NAME/180-21", on the other
/// strand, 180, and the numbers fall. Otherwise it is 1.
fn residue_numbers(record: &Record, has_inserts: bool) -> Vec<usize> {
    let word = record.name.split_whitespace().next().unwrap_or("");
    let range = word.rsplit_once('/').and_then(|(_, r)| r.split_once('-'));
    let number = |text: &str| text.parse::<usize>().ok();
    let range = range.and_then(|(start, end)| Some((number(start)?, number(end)?)));
    let (mut next, end) = range.unwrap_or((1, usize::MAX));
    let is_falling = end < next;
    let number = |letter: &u8| {
        let number = next;
        if letter.is_ascii_alphabetic() {
            next = if is_falling {
                next.saturating_sub(1)
            } else {
                next + 1
            };
        }
        let is_column = !(has_inserts && is_insert(*letter));
        is_column.then_some(number)
    };
    record.letters.iter().filter_map(number).collect()
}

fn is_insert(letter: u8) -> bool {
    letter.is_ascii_lowercase() || letter == b'.'
}

/// Leaves out insertions, if there are any, and checks that the lengths are then equal.
fn align(mut records: Vec<Record>, has_inserts: bool) -> Result<Vec<Record>> {
    if has_inserts {
        for record in &mut records {
            record.letters.retain(|c| !is_insert(*c));
        }
    }
    let first = &records[0];
    let expected = first.letters.len();
    match records.iter().find(|r| r.letters.len() != expected) {
        None => Ok(records),
        Some(other) => Err(Error::Length {
            line: other.line,
            name: other.name.clone(),
            found: other.letters.len(),
            expected,
            first_line: first.line,
            first_name: first.name.clone(),
        }),
    }
}

/// Returns which columns are sites: those where the focus has an upper-case letter, or without a
/// focus all but insertions.
fn kept_columns(aligned: &[Record], focus: Option<usize>) -> Vec<bool> {
    let n = aligned[0].letters.len();
    match focus {
        Some(k) => {
            let letters = aligned[k].letters.iter();
            letters
                .map(|c| !c.is_ascii_lowercase() && !matches!(c, b'-' | b'.' | b'~'))
                .collect()
        }
        None => {
            let column = |j: usize| aligned.iter().map(move |a| a.letters[j]);
            let has_lower = |j| column(j).any(|c| c.is_ascii_lowercase());
            (0..n)
                .map(|j| !(has_lower(j) && column(j).all(is_insert)))
                .collect()
        }
    }
}

fn most_frequent(codes: impl Iterator<Item = u8>) -> u8 {
    let mut counts = [0usize; 256];
    for code in codes {
        counts[usize::from(code)] += 1;
    }
    let most = counts
        .iter()
        .enumerate()
        .max_by_key(|(code, n)| (**n, 256 - code));
    most.map_or(0, |(code, _)| code as u8)
}
