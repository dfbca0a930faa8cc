//! The errors of this crate, with the place and the value.

/// An error of `mpf-potts`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Codes that are not a table of sequences.
    #[error(
        "{codes} codes and {weights} weights are no table of sequences of {n_sites} sites: at least \
         two sites, one sequence and one weight per sequence are needed"
    )]
    Shape {
        /// Codes given.
        codes: usize,
        /// Sites of a sequence.
        n_sites: usize,
        /// Weights given.
        weights: usize,
    },
    /// Too few or too many states.
    #[error("{found} states of a site: this crate works with 2 to 32")]
    States {
        /// States found.
        found: usize,
    },
    /// A code beyond the states.
    #[error("sequence {row}, site {site}: there is no state {code}")]
    Code {
        /// The sequence, from 0.
        row: usize,
        /// The site, from 0.
        site: usize,
        /// The code found.
        code: u8,
    },
    /// A weight that is negative or not finite, or a sum of weights that is 0 or not finite.
    #[error(
        "the weight of sequence {row} is {value}: weights are finite, not negative, and not all 0"
    )]
    Weight {
        /// The sequence, from 0.
        row: usize,
        /// The weight found.
        value: f64,
    },
    /// An alphabet that cannot be used.
    #[error("alphabet {letters:?}: {problem}")]
    Alphabet {
        /// The letters given.
        letters: String,
        /// What is wrong with them.
        problem: &'static str,
    },
    /// A file that is not text.
    #[error("line {line} has a zero byte: this is no alignment in text form")]
    NotText {
        /// The line, from 1.
        line: usize,
    },
    /// A file without sequences.
    #[error("there are no sequences")]
    NoSequences,
    /// A name without letters.
    #[error("line {line}: sequence {name:?} has no letters")]
    EmptySequence {
        /// The line of the name, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A line of an alignment with too many or too few words.
    #[error("line {line} is neither a sequence nor a name and a sequence")]
    Words {
        /// The line, from 1.
        line: usize,
    },
    /// A sequence of another length than the first.
    #[error(
        "line {line}: sequence {name:?} has {found} aligned letters, but the first, {first_name:?} in \
         line {first_line}, has {expected}: sequences must be aligned (in an a3m, lower-case letters \
         are insertions)"
    )]
    Length {
        /// The line of the sequence, from 1.
        line: usize,
        /// Its name.
        name: String,
        /// Its length.
        found: usize,
        /// The length of the first sequence.
        expected: usize,
        /// The line of the first sequence.
        first_line: usize,
        /// The name of the first sequence.
        first_name: String,
    },
    /// A letter that is not in the alphabet.
    #[error(
        "line {line}: sequence {name:?} has {letter:?} in column {column}, which is not in the \
         alphabet {alphabet:?}"
    )]
    Letter {
        /// The line of the sequence, from 1.
        line: usize,
        /// Its name.
        name: String,
        /// The aligned column, from 1.
        column: usize,
        /// The letter.
        letter: char,
        /// The alphabet.
        alphabet: String,
    },
    /// A focus sequence that is not there.
    #[error("no sequence has a name that begins with {name:?}; the first is {first:?}")]
    Focus {
        /// The name given.
        name: String,
        /// The name of the first sequence.
        first: String,
    },
    /// Cut-offs that leave too little.
    #[error(
        "{sequences} of {of_sequences} sequences and {columns} of {of_columns} columns are left: at \
         least one sequence and two columns are needed; loosen the cut-offs for gaps"
    )]
    NothingLeft {
        /// Sequences left.
        sequences: usize,
        /// Columns left.
        columns: usize,
        /// Sequences read.
        of_sequences: usize,
        /// Columns read.
        of_columns: usize,
    },
    /// A structure or a list of distances that cannot be read.
    #[error("line {line}: {problem}")]
    Structure {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The minimisation failed.
    #[error(transparent)]
    Core(#[from] mpf_core::Error),
}
