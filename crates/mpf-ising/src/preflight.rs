//! A look at the data before a fit: what will go wrong with which method, and what a fit will cost.
//!
//! ```text
//! a pair of which some joint value (00, 10, 01, 11) never occurs: its coupling has no finite optimum
//! x_i = c + Σ_j w_j x_j for all samples: the covariance of the units has no inverse
//! memory ≈ bits and counts + sums (2 + chunks) 8 d² and lists of set bits + matrices 5 · 8 d²
//!          + 400 bytes per parameter, 160 of them L-BFGS's corrections
//! time of an evaluation of the flow: that of a part of the samples
//! ```
//!
//! (Fits in standardised units took 46 to 95 evaluations on lattices and recordings; strong
//! couplings take more.)

mod linear;

use crate::Result;
use crate::bits::{Samples, States};
use crate::couplings::{check_square, n_packed};
use crate::error::{Error, check_units};
use crate::flow::{IsingFlow, Neighbourhood, all_pairs, check_count, flip_mask};
use crate::kernel::{self, Kernel};
use linear::linear_units;
use mpf_core::{Cancel, FlowForm, Objective, StopReason};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// Bytes that a minimisation holds per parameter: the ten corrections of L-BFGS (two numbers each),
/// its iterates and bounds, and the indices of the parameter.
const BYTES_PER_PARAMETER: usize = 400;
/// Matrices of d × d numbers around a fit: moments, couplings in both conventions, the result.
const MATRICES: usize = 5;
/// Evaluations are timed until there are this many, or this long; the fastest counts.
const TIMED_EVALUATIONS: usize = 30;
const TIMED_LONG_ENOUGH: Duration = Duration::from_millis(100);
/// The most distinct samples on which an evaluation is timed.
const TIMED_SAMPLES: usize = 4096;
/// The most samples times pairs of units that are timed, a fraction of a second.
const TIMED_SUMS: usize = 300_000_000;

/// A unit with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedUnit {
    /// Its column, from 0.
    pub index: usize,
    /// Its name, if names were given.
    pub name: Option<String>,
}

impl fmt::Display for NamedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (unit {})", self.index),
            None => write!(f, "unit {}", self.index),
        }
    }
}

/// The joint values that two units never have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairRelation {
    /// They are never 1 together.
    NeverTogether,
    /// They are never 0 together.
    NeverBothSilent,
    /// The first is never 1 without the second.
    OnlyWith,
    /// They are always equal.
    Equal,
    /// They are always different.
    Opposite,
}

/// A property of the data that will matter to a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finding {
    /// A unit that never changes.
    Constant {
        /// The unit.
        unit: NamedUnit,
        /// Its constant value, 0 or 1.
        value: u8,
    },
    /// Two units of which some joint value never occurs.
    Pair {
        /// The first unit of the relation.
        first: NamedUnit,
        /// The second unit of the relation.
        second: NamedUnit,
        /// What they never or always do.
        relation: PairRelation,
    },
    /// A unit that is a linear function of others.
    Linear {
        /// The unit.
        unit: NamedUnit,
        /// The others, with their coefficients.
        of: Vec<(NamedUnit, f64)>,
    },
    /// One state holds more than half of the samples.
    OneStateDominates {
        /// The share of that state.
        share: f64,
        /// Whether it is the silent one.
        silent: bool,
    },
    /// Most flips lead to states that are themselves in the data.
    FlipsIntoData {
        /// The share of such flips.
        share: f64,
    },
    /// More parameters than samples.
    FewSamples {
        /// Samples.
        n_samples: usize,
        /// Units.
        n_units: usize,
        /// Parameters of a model with all couplings.
        n_parameters: usize,
    },
}

impl Finding {
    /// Says what this does to which method.
    pub fn consequence(&self) -> &'static str {
        match self {
            Self::Constant { .. } => {
                "MPF, PL, RISE, CD and ML give it no couplings and the bias of half a \
                 pseudo-count; mean field and TAP need λ > 0"
            }
            Self::Pair {
                relation: PairRelation::Equal | PairRelation::Opposite,
                ..
            } => {
                "MPF, PL, RISE and ML: without a penalty their coupling runs away, and other units' \
                 couplings to the two cannot be told apart; mean field and TAP need λ > 0; leave \
                 one out"
            }
            Self::Pair { .. } => {
                "MPF, PL, RISE and ML: without a penalty their coupling has no finite optimum and \
                 runs away; use l1 or l2"
            }
            Self::Linear { .. } => {
                "mean field and TAP need λ > 0; rows of RISE and node-wise fits are undetermined \
                 without a penalty, and so are their standard errors"
            }
            Self::OneStateDominates { .. } => {
                "MPF and RISE weigh the rare states by exponentials and lose precision; prefer PL, \
                 or ML up to 20 units"
            }
            Self::FlipsIntoData { .. } => {
                "MPF over non-data states leaves these flips out, which biases it or leaves \
                 nothing; keep all single flips (the default)"
            }
            Self::FewSamples {
                n_units, n_samples, ..
            } if n_samples <= n_units => {
                "every unit is a linear function of others: mean field and TAP need λ > 0, and the \
                 other methods overfit without a penalty: choose l1 by cross-validation or EBIC"
            }
            Self::FewSamples { .. } => {
                "MPF, PL, RISE and CD overfit without a penalty: choose l1 by cross-validation or \
                 EBIC"
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { unit, value } => write!(f, "{unit} is always {value}")?,
            Self::Pair {
                first,
                second,
                relation,
            } => match relation {
                PairRelation::NeverTogether => {
                    write!(f, "{first} and {second} are never 1 together")?;
                }
                PairRelation::NeverBothSilent => {
                    write!(f, "{first} and {second} are never 0 together")?;
                }
                PairRelation::OnlyWith => write!(f, "{first} is never 1 without {second}")?,
                PairRelation::Equal => write!(f, "{first} and {second} are always equal")?,
                PairRelation::Opposite => write!(f, "{first} and {second} are always different")?,
            },
            Self::Linear { unit, of } => {
                write!(f, "{unit} is a linear function of ")?;
                for (k, (other, weight)) in of.iter().enumerate() {
                    write!(
                        f,
                        "{}{weight:.3} × {other}",
                        if k == 0 { "" } else { " + " }
                    )?;
                }
            }
            Self::OneStateDominates { share, silent } => write!(
                f,
                "{} holds {:.1} % of the samples",
                if *silent {
                    "the silent state"
                } else {
                    "one state"
                },
                100.0 * share
            )?,
            Self::FlipsIntoData { share } => write!(
                f,
                "{:.1} % of all single flips lead to states that are in the data",
                100.0 * share
            )?,
            Self::FewSamples {
                n_samples,
                n_units,
                n_parameters,
            } => write!(
                f,
                "{n_samples} samples for {n_units} units and {n_parameters} parameters"
            )?,
        }
        write!(f, ": {}", self.consequence())
    }
}

/// What the data look like, what to be careful about, and what a fit will cost.
#[derive(Clone, Debug, Serialize)]
pub struct Preflight {
    /// The number of samples.
    pub n_samples: usize,
    /// The number of units.
    pub n_units: usize,
    /// The number of distinct samples.
    pub n_distinct: usize,
    /// The share of samples in which no unit is 1.
    pub silent_fraction: f64,
    /// The share of single flips that lead to states in the data.
    pub flips_into_data: f64,
    /// An estimate of the bytes that a joint fit with all couplings will hold, data included.
    pub bytes: usize,
    /// The seconds of an evaluation of such a fit with the current threads, by a part of the samples.
    pub seconds_per_evaluation: f64,
    /// What to be careful about.
    pub findings: Vec<Finding>,
}

impl Preflight {
    /// Examines `samples`; `names` are those of the units, if they have some. O(M d²/64 + M d + d³)
    /// and some evaluations of the flow on a part of the samples.
    ///
    /// # Errors
    /// [`Error::UnitCount`] unless there is one name per unit; [`Error::TooManyCouplings`] from
    /// 65,536 units on, and [`Error::OutOfMemory`], before anything large is held.
    pub fn new(samples: &Samples, names: Option<&[String]>) -> Result<Self> {
        Self::cancellable(samples, names, &Cancel::new())
    }

    /// As [`Preflight::new`], until `cancel` is set. If its time is over, findings that are not made yet
    /// are left out: they are no reason to lose a fit.
    ///
    /// # Errors
    /// Also [`mpf_core::Error::Cancelled`].
    pub fn cancellable(
        samples: &Samples,
        names: Option<&[String]>,
        cancel: &Cancel,
    ) -> Result<Self> {
        let d = samples.n_units();
        if let Some(names) = names {
            check_units("names", d, names.len())?;
        }
        check_count(d, d, all_pairs(d))?;
        check_square(d)?;
        let name = |index: usize| NamedUnit {
            index,
            name: names.map(|names| names[index].clone()),
        };
        let flips_into_data = match flip_mask(samples, Neighbourhood::OutsideData) {
            Ok((_, share)) => share,
            Err(Error::NoFlipsLeft) => 1.0,
            Err(other) => return Err(other),
        };
        let n_samples = samples.n_effective() as usize;
        let mut findings = Vec::new();
        let means = samples.means();
        let varies: Vec<usize> = (0..d)
            .filter(|&i| means[i] > 0.0 && means[i] < 1.0)
            .collect();
        for i in (0..d).filter(|i| varies.binary_search(i).is_err()) {
            findings.push(Finding::Constant {
                unit: name(i),
                value: u8::from(means[i] >= 1.0),
            });
        }
        let mut twins = vec![false; d];
        for (k, &i) in varies.iter().enumerate() {
            match cancel.reason() {
                None => {}
                Some(StopReason::TimeLimit) => break,
                Some(_) => return Err(mpf_core::Error::Cancelled.into()),
            }
            for &j in &varies[k + 1..] {
                for (first, second, relation) in relations(samples.joint_values(i, j), i, j) {
                    if matches!(relation, PairRelation::Equal | PairRelation::Opposite) {
                        twins[j] = true;
                    }
                    findings.push(Finding::Pair {
                        first: name(first),
                        second: name(second),
                        relation,
                    });
                }
            }
        }
        let single: Vec<usize> = varies.into_iter().filter(|&i| !twins[i]).collect();
        // With no more samples than units every unit is a linear function of others: `FewSamples`.
        let linear = if samples.n_distinct() > single.len() {
            linear_units(samples, &single, cancel)?
        } else {
            Vec::new()
        };
        for (unit, of) in linear {
            findings.push(Finding::Linear {
                unit: name(unit),
                of: of.into_iter().map(|(j, w)| (name(j), w)).collect(),
            });
        }
        let (share, silent_fraction, silent) = commonest(samples);
        if share > 0.5 {
            findings.push(Finding::OneStateDominates { share, silent });
        }
        if flips_into_data > 0.5 {
            findings.push(Finding::FlipsIntoData {
                share: flips_into_data,
            });
        }
        let n_parameters = n_packed(d);
        if n_samples < n_parameters {
            findings.push(Finding::FewSamples {
                n_samples,
                n_units: d,
                n_parameters,
            });
        }
        Ok(Self {
            n_samples,
            n_units: d,
            n_distinct: samples.n_distinct(),
            silent_fraction,
            flips_into_data,
            bytes: bytes_of_fit(samples, n_parameters),
            seconds_per_evaluation: seconds_per_evaluation(samples)?,
            findings,
        })
    }
}

/// Estimates the bytes that a fit holds, `samples` included, if it minimises over `n_parameters` at
/// once: d(d+1)/2 for a joint fit with all couplings, d per thread for a node-wise one. Saturates.
/// Costs one pass over the data.
pub fn bytes_of_fit(samples: &Samples, n_parameters: usize) -> usize {
    let d = samples.n_units();
    let parameters = BYTES_PER_PARAMETER.saturating_mul(n_parameters);
    let matrices = (8 * MATRICES).saturating_mul(d.saturating_mul(d));
    let data = samples
        .bytes()
        .saturating_add(kernel::working_bytes(samples));
    data.saturating_add(matrices).saturating_add(parameters)
}

/// Returns what two units never do, given the joint values that occur (bits 0 to 3: 00, 10, 01, 11).
fn relations(seen: u8, i: usize, j: usize) -> Vec<(usize, usize, PairRelation)> {
    match seen {
        0b1001 => vec![(i, j, PairRelation::Equal)],
        0b0110 => vec![(i, j, PairRelation::Opposite)],
        _ => [
            (0b0001, i, j, PairRelation::NeverBothSilent),
            (0b0010, i, j, PairRelation::OnlyWith),
            (0b0100, j, i, PairRelation::OnlyWith),
            (0b1000, i, j, PairRelation::NeverTogether),
        ]
        .into_iter()
        .filter(|(bit, ..)| seen & bit == 0)
        .map(|(_, first, second, relation)| (first, second, relation))
        .collect(),
    }
}

/// Returns the share of the commonest state, that of the silent state, and whether they are the same.
fn commonest(samples: &Samples) -> (f64, f64, bool) {
    let total = samples.total_weight();
    let (mut largest, mut silent, mut at_silent) = (0.0, 0.0, false);
    for (m, row) in samples.states().rows().enumerate() {
        let share = samples.weight(m) / total;
        let is_silent = row.iter().all(|w| *w == 0);
        if is_silent {
            silent = share;
        }
        if share > largest {
            (largest, at_silent) = (share, is_silent);
        }
    }
    (largest, silent, at_silent)
}

/// Times one evaluation of the flow and its gradient on part of the samples, by one thread: short
/// work in several is slowed by everything else that the machine does.
fn seconds_per_evaluation(samples: &Samples) -> Result<f64> {
    let n = samples.n_distinct();
    let pairs = samples.n_units() * samples.n_units();
    let timed = TIMED_SAMPLES.min(TIMED_SUMS / pairs).max(64);
    let part: States = samples.states().slice(0..n.min(timed));
    let part = Samples::unmerged(part, None);
    let kernel = Kernel {
        serial: true,
        ..Kernel::default()
    };
    let (flips, form) = (Neighbourhood::SingleFlips, FlowForm::Sum);
    let mut flow = IsingFlow::with_kernel(&part, flips, form, kernel)?;
    let theta = vec![0.0; flow.n_params()];
    let mut grad = theta.clone();
    // Short ones are repeated: the first warms up the caches, and any may be disturbed by other
    // programs.
    let (start, mut fastest) = (Instant::now(), f64::INFINITY);
    for _ in 0..TIMED_EVALUATIONS {
        let clock = Instant::now();
        flow.value_and_gradient(&theta, &mut grad);
        fastest = fastest.min(clock.elapsed().as_secs_f64());
        if start.elapsed() > TIMED_LONG_ENOUGH {
            break;
        }
    }
    let whole = fastest * n as f64 / part.n_distinct() as f64;
    Ok(whole / rayon::current_num_threads() as f64)
}
