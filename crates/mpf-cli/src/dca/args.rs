//! The options of `mpf dca`.

use crate::failure::Failure;
use crate::memory::MemoryLimit;
use crate::output::ForceArg;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How the alignment is read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Alignment")]
pub(super) struct AlignmentArgs {
    /// Take the residues of this sequence as sites; the beginning of its name suffices
    #[arg(long, value_name = "NAME")]
    pub(super) focus: Option<String>,
    /// protein, rna, dna, binary, or the letters themselves, the gap first; by default guessed
    #[arg(long, value_name = "LETTERS", allow_hyphen_values = true)]
    pub(super) alphabet: Option<String>,
    /// Sequences that differ in at most this part of the sites share a weight; -1 gives all the
    /// weight 1
    #[arg(long, default_value_t = 0.2, allow_hyphen_values = true)]
    pub(super) theta: f64,
    /// Model the letters alone; by default the gap is a state
    #[arg(long)]
    pub(super) ignore_gaps: bool,
    /// Leave out columns with a larger part of gaps
    #[arg(long, value_name = "PART", default_value_t = 1.0)]
    pub(super) column_gaps: f64,
    /// Leave out sequences with a larger part of gaps
    #[arg(long, value_name = "PART", default_value_t = 1.0)]
    pub(super) sequence_gaps: f64,
    /// Read ambiguous letters such as X as gaps, or drop their sequences
    #[arg(long, value_enum, default_value_t)]
    pub(super) ambiguous: AmbiguousName,
}

/// Options of `mpf dca`.
#[derive(Args, Clone, Debug)]
pub struct DcaArgs {
    /// The alignment: FASTA, a2m, a3m, Stockholm or one sequence a line, gzipped or not; `-` reads
    /// standard input
    pub(super) family: PathBuf,
    /// File to write, repeatable: .csv has the ranked pairs, .npz the matrix and the parameters,
    /// .html the report, .svg its contact map, .json the summary
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(super) output: Vec<PathBuf>,
    /// File for the energy change of every single mutation of the focus sequence
    #[arg(long, value_name = "CSV", requires = "focus")]
    pub(super) mutations: Option<PathBuf>,
    /// Pseudolikelihood, or minimum probability flow
    #[arg(long, value_enum, default_value_t = MethodName::Pl)]
    pub(super) method: MethodName,
    #[command(flatten)]
    pub(super) alignment: AlignmentArgs,
    /// λ on ½ΣJ² [default: 0.01 for pl; for mpf 0.01 times its curvature, about 0.07 for proteins and 0.02 for RNA]
    #[arg(long, value_name = "λ", help_heading = "Fit")]
    pub(super) l2: Option<f64>,
    /// λ on ½Σh² [default: 0.01]
    #[arg(long, value_name = "λ", help_heading = "Fit")]
    pub(super) l2_fields: Option<f64>,
    /// λ on Σ‖J_ij‖, which empties whole pairs
    #[arg(long, value_name = "λ", default_value_t = 0.0, help_heading = "Fit")]
    pub(super) group: f64,
    /// Units of the three penalties: of a mean over sequences, or those of plmc's -le, -lh and -lg
    #[arg(long, value_enum, default_value_t, help_heading = "Fit")]
    pub(super) units: UnitsName,
    /// One fit of all sites, or one for each; by default joint if it fits into memory
    #[arg(long, value_enum, help_heading = "Fit")]
    pub(super) mode: Option<ModeName>,
    /// Converged when no entry of the gradient is larger, in units in which the curvature is about 1
    #[arg(long, value_name = "G", default_value_t = 1e-2, help_heading = "Fit")]
    pub(super) tolerance: f64,
    /// Most iterations; for a node-wise fit of each site
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        help_heading = "Limits"
    )]
    pub(super) max_iterations: usize,
    #[command(flatten)]
    pub(super) memory: MemoryLimit,
    /// Known distances: a PDB file (.pdb, .ent; Cβ atoms), or lines of two numbers of sites and a
    /// distance
    #[arg(long, value_name = "FILE", help_heading = "Contacts")]
    pub(super) structure: Option<PathBuf>,
    /// The chain of the PDB file; by default the first
    #[arg(long, help_heading = "Contacts")]
    pub(super) chain: Option<char>,
    /// Contacts are nearer than this
    #[arg(
        long,
        value_name = "Å",
        default_value_t = 8.0,
        help_heading = "Contacts"
    )]
    pub(super) distance: f64,
    /// Pairs this far apart in the sequence, or nearer, are not judged
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Contacts")]
    pub(super) separation: usize,
    #[command(flatten)]
    pub(super) force: ForceArg,
}

impl DcaArgs {
    /// Refuses options that mean nothing.
    pub(super) fn check(&self) -> Result<(), Failure> {
        type Holds = fn(f64) -> bool;
        const THETA: &str = "it is the part of sites that may differ, below 1: 0.2 for 80 % identity; \
                             -1 for no weights";
        const PART: &str = "it is a part, from 0 to 1: 0.5 is half";
        const POSITIVE: &str = "it is finite and positive";
        const NEAR: &str = "it is a positive number of Å";
        let is_part = |value| (0.0..=1.0).contains(&value);
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        let read = &self.alignment;
        let options: [(&str, f64, Holds, &str); 5] = [
            ("--theta", read.theta, |value| value < 1.0, THETA),
            ("--column-gaps", read.column_gaps, is_part, PART),
            ("--sequence-gaps", read.sequence_gaps, is_part, PART),
            ("--tolerance", self.tolerance, is_positive, POSITIVE),
            ("--distance", self.distance, |value| value > 0.0, NEAR),
        ];
        for (name, value, holds, hint) in options {
            if !holds(value) {
                return Err(Failure::input(format!("{name} is {value}")).hint(hint));
            }
        }
        Ok(())
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodName {
    Pl,
    Mpf,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AmbiguousName {
    #[default]
    Gap,
    Drop,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnitsName {
    #[default]
    Mean,
    Plmc,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModeName {
    Joint,
    NodeWise,
}
