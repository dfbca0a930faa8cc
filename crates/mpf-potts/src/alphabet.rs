//! Letters and their codes.

use crate::{Error, Result};

/// The letters of an alignment, in the order of their codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alphabet {
    letters: Vec<u8>,
    /// Letters that stand for several others, and are read as gaps or drop their sequence.
    ambiguous: &'static [u8],
    /// Letters that are read as another.
    aliases: &'static [(u8, u8)],
}

impl Alphabet {
    /// Returns the gap and the twenty amino acids.
    pub fn protein() -> Self {
        Self::known(b"-ACDEFGHIKLMNPQRSTVWY", b"BJOUXZ*", &[])
    }

    /// Returns the gap and A, C, G, U; T is read as U.
    pub fn rna() -> Self {
        Self::known(b"-ACGU", b"BDHKMNRSVWXY", &[(b'T', b'U')])
    }

    /// Returns the gap and A, C, G, T; U is read as T.
    pub fn dna() -> Self {
        Self::known(b"-ACGT", b"BDHKMNRSVWXY", &[(b'U', b'T')])
    }

    /// Returns 0 and 1.
    pub fn binary() -> Self {
        Self::known(b"01", b"", &[])
    }

    fn known(letters: &[u8], ambiguous: &'static [u8], aliases: &'static [(u8, u8)]) -> Self {
        Self {
            letters: letters.to_vec(),
            ambiguous,
            aliases,
        }
    }

    /// Makes an alphabet of 2 to 32 different characters. If the first is `-` or `.`, it is the gap,
    /// and so is the other.
    ///
    /// # Errors
    /// [`Error::Alphabet`].
    pub fn custom(letters: &str) -> Result<Self> {
        let problem = |problem| Error::Alphabet {
            letters: letters.to_string(),
            problem,
        };
        if !letters.bytes().all(|c| c.is_ascii_graphic() && c != b'>') {
            return Err(problem("letters are visible ASCII characters other than >"));
        }
        let mut letters = letters.as_bytes().to_vec();
        if !(2..=32).contains(&letters.len()) {
            return Err(problem("2 to 32 letters are needed"));
        }
        if (1..letters.len()).any(|k| letters[..k].contains(&letters[k])) {
            return Err(problem("a letter occurs twice"));
        }
        if letters[0] == b'.' {
            letters[0] = b'-';
        }
        Ok(Self::known(&letters, b"", &[]))
    }

    /// Returns the number of letters, the gap included.
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// Returns whether there are no letters, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Returns whether the letter of code 0 is the gap.
    pub fn has_gap(&self) -> bool {
        self.letters[0] == b'-'
    }

    /// Returns the letter of a code, `?` beyond them.
    pub fn letter(&self, code: u8) -> char {
        self.letters
            .get(usize::from(code))
            .map_or('?', |c| char::from(*c))
    }

    /// Returns all letters in the order of their codes.
    pub fn letters(&self) -> String {
        self.letters.iter().map(|c| char::from(*c)).collect()
    }

    /// Returns what an upper-case letter stands for.
    pub(crate) fn read(&self, letter: u8) -> Reading {
        if self.has_gap() && matches!(letter, b'-' | b'.' | b'~') {
            return Reading::Code(0);
        }
        let alias = self.aliases.iter().find(|(from, _)| *from == letter);
        let letter = alias.map_or(letter, |(_, to)| *to);
        match self.letters.iter().position(|c| *c == letter) {
            Some(code) => Reading::Code(code as u8),
            None if self.ambiguous.contains(&letter) => Reading::Ambiguous,
            None => Reading::Unknown,
        }
    }

    /// Guesses the alphabet of sequences: RNA or DNA if nine of ten letters are theirs, otherwise
    /// protein.
    pub fn guess<'a>(sequences: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut counts = [0usize; 256];
        for letter in sequences.take(200).flatten() {
            counts[usize::from(letter.to_ascii_uppercase())] += 1;
        }
        let sum = |letters: &[u8]| {
            letters
                .iter()
                .map(|c| counts[usize::from(*c)])
                .sum::<usize>()
        };
        let all = sum(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if 10 * sum(b"ACGTUN") >= 9 * all && all > 0 {
            if sum(b"U") > sum(b"T") {
                Self::rna()
            } else {
                Self::dna()
            }
        } else {
            Self::protein()
        }
    }
}

/// What a letter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Code(u8),
    Ambiguous,
    Unknown,
}
