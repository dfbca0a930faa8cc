//! The diagnosis of a run of an Ising sampler.

use super::bits::Bits;
use super::normal::normal_quantile;
use super::{Summary, summary};
use crate::Result;
use crate::run::Run;
use crate::sampler::Tally;
use mpf_ising::{Couplings, States, n_active};
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::fmt;

/// Diagnostics of the draws of all chains of an Ising sampler, with warnings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDiagnostics {
    /// Number of chains.
    pub chains: usize,
    /// The energy xᵀJx.
    pub energy: Summary,
    /// The number of active units.
    pub n_active: Summary,
    /// The overlap of a chain with the next, q = 1/d Σ_i s_i s′_i; `None` for a single chain.
    pub overlap: Option<Summary>,
    /// The largest R̂ of the energy, the number active, the overlap and all units; `None` where all
    /// are constant.
    pub worst_rhat: Option<Worst>,
    /// The fewest effective draws of these.
    pub fewest_draws: Option<Worst>,
    /// Whether no R̂ exceeds 1.01, or what few draws show by chance, and tempering travelled its
    /// ladder.
    pub agree: bool,
    /// How often a replica of [`Tempering`](crate::Tempering) went to the hottest level and back.
    pub round_trips: Option<u64>,
    /// Reasons to distrust the draws.
    pub warnings: Vec<String>,
}

/// The diagnostic of the quantity that is worst in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The quantity.
    pub of: Quantity,
    /// Its R̂ or its effective draws. R̂ is +∞, and `null` in JSON, for chains that never leave
    /// different states.
    pub value: f64,
}

/// What is diagnosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The energy xᵀJx.
    Energy,
    /// The number of active units.
    NActive,
    /// The overlap of two chains.
    Overlap,
    /// A unit, from 0.
    Unit(usize),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Energy => write!(f, "the energy"),
            Self::NActive => write!(f, "the number of active units"),
            Self::Overlap => write!(f, "the overlap between chains"),
            Self::Unit(unit) => write!(f, "unit {unit}"),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<I: Tally + Sync> Run<States, I> {
    /// Diagnoses the energy, the number of active units, the overlap between chains and every unit.
    /// O(d N) for N draws of d units, 64 of them at a time; beside the draws it needs as much memory
    /// again and a few numbers per draw.
    ///
    /// ```
    /// use mpf_ising::Couplings;
    /// use mpf_samplers::{ChainRunner, Gibbs};
    /// use ndarray::array;
    ///
    /// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
    /// let run = ChainRunner::default().run(&Gibbs::new(&j)?)?;
    /// let found = run.diagnose(&j)?;
    /// assert!(found.agree && found.warnings.is_empty());
    /// // States 00, 10, 01, 11 have the energies 0, 1, ½, −½.
    /// let weights = [1.0, (-1f64).exp(), (-0.5f64).exp(), 0.5f64.exp()];
    /// let mean = (weights[1] + 0.5 * weights[2] - 0.5 * weights[3]) / weights.iter().sum::<f64>();
    /// assert!((found.energy.mean - mean).abs() < 5.0 * found.energy.mcse);
    ///
    /// // Two units that hardly ever differ, and never change: chains stay where they began.
    /// let j = Couplings::new(array![[20.0, -20.0], [-20.0, 20.0]])?;
    /// let frozen = ChainRunner::default().run(&Gibbs::new(&j)?)?.diagnose(&j)?;
    /// assert_eq!(frozen.worst_rhat.unwrap().value, f64::INFINITY);
    /// assert!(!frozen.agree);
    /// # Ok::<(), mpf_samplers::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`summary`]: at least 8 draws per chain are needed, of every chain as many.
    ///
    /// # Panics
    /// When the draws are of other units than `couplings`.
    pub fn diagnose(&self, couplings: &Couplings) -> Result<RunDiagnostics> {
        self.diagnose_by(|row| couplings.energy(row))
    }

    /// As [`Run::diagnose`], for draws from a model with this energy.
    ///
    /// # Errors
    /// As [`Run::diagnose`].
    pub fn diagnose_by(&self, energy: impl FnMut(&[u64]) -> f64) -> Result<RunDiagnostics> {
        let energy = summary(&self.series(energy))?;
        let n_active = summary(&self.series(|row| n_active(row) as f64))?;
        let overlap = match self.chains.len() {
            1 => None,
            _ => Some(summary(&self.overlaps())?),
        };
        let named = [(Quantity::Energy, &energy), (Quantity::NActive, &n_active)];
        let named = named.into_iter();
        let named = named.chain(overlap.iter().map(|of| (Quantity::Overlap, of)));
        let mut found: Vec<_> = named.map(|(of, s)| (of, s.rhat, s.bulk_ess)).collect();
        let units = self.units().into_iter().enumerate();
        found.extend(units.map(|(unit, (rhat, ess))| (Quantity::Unit(unit), rhat, ess)));
        let worst = |values: &dyn Fn(&(Quantity, f64, f64)) -> f64, sign: f64| {
            let all = found.iter().map(|one| Worst {
                of: one.0,
                value: values(one),
            });
            all.filter(|one| !one.value.is_nan())
                .max_by(|a, b| (sign * a.value).total_cmp(&(sign * b.value)))
        };
        let worst_rhat = worst(&|one| one.1, 1.0);
        let fewest_draws = worst(&|one| one.2, -1.0);
        let round_trips = self.chains.iter().try_fold(0u64, |sum, chain| {
            Some(sum.saturating_add(chain.info.round_trips()?))
        });
        let limit = self.rhat_limit(found.len());
        let mut warnings = Vec::new();
        let remedy = match round_trips {
            None => "draw more, or use --sampler tempering",
            Some(_) => "draw more, or use --thin",
        };
        let apart = found.iter().filter(|one| one.1 > limit).count();
        match (worst_rhat, fewest_draws) {
            (Some(worst), _) if apart > 0 => warnings.push(format!(
                "the chains do not agree on {apart} of {} quantities, least on {} (R-hat {}): \
                 {remedy}",
                found.len(),
                worst.of,
                in_words(worst.value)
            )),
            (_, Some(worst)) if worst.value < 100.0 * self.chains.len() as f64 => {
                warnings.push(format!(
                    "only {:.0} effective draws of {}: draw more, or use --thin",
                    worst.value, worst.of
                ));
            }
            _ => {}
        }
        if round_trips == Some(0) {
            warnings.push("no replica travelled the whole ladder: draw more".into());
        }
        Ok(RunDiagnostics {
            chains: self.chains.len(),
            energy,
            n_active,
            overlap,
            worst_rhat,
            fewest_draws,
            agree: apart == 0 && round_trips != Some(0),
            round_trips,
            warnings,
        })
    }

    /// Returns q of every chain with the next, draw by draw; of two chains that is one series.
    fn overlaps(&self) -> Vec<Vec<f64>> {
        let n = self.chains.len();
        let pairs = if n == 2 { 1 } else { n };
        (0..pairs)
            .map(|chain| {
                let (one, other) = (
                    &self.chains[chain].draws,
                    &self.chains[(chain + 1) % n].draws,
                );
                let d = one.n_units() as f64;
                let differ = |(a, b): (&[u64], &[u64])| -> u32 {
                    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
                };
                let both = one.rows().zip(other.rows());
                both.map(|rows| 1.0 - 2.0 * f64::from(differ(rows)) / d)
                    .collect()
            })
            .collect()
    }

    /// Returns R̂ and the effective draws of every unit.
    fn units(&self) -> Vec<(f64, f64)> {
        let n_draws = self.chains[0].draws.n_samples();
        let words = n_draws.div_ceil(64);
        let columns: Vec<Vec<u64>> = self.chains.iter().map(|c| c.draws.columns()).collect();
        (0..self.chains[0].draws.n_units())
            .into_par_iter()
            .map(|unit| {
                let chains = columns.iter().map(|c| &c[unit * words..(unit + 1) * words]);
                Bits::split(chains, n_draws).rhat_and_ess()
            })
            .collect()
    }

    /// Returns the R̂ beyond which chains do not agree: 1.01, or more where the draws are so few that
    /// one of `n` quantities of independent draws exceeds it more often than in one run of 10,000.
    /// R̂² = 1 + (F − 1)/(draws of a half), and F is about χ²/k with k = halves − 1 (Wilson &
    /// Hilferty).
    fn rhat_limit(&self, n: usize) -> f64 {
        let half = (self.chains[0].draws.n_samples() / 2) as f64;
        let k = (2 * self.chains.len() - 1) as f64;
        let z = -normal_quantile(1e-4 / n as f64);
        let f = (1.0 - 2.0 / (9.0 * k) + z * (2.0 / (9.0 * k)).sqrt()).powi(3);
        (1.0 + (f - 1.0) / half).sqrt().max(1.01)
    }
}

fn in_words(rhat: f64) -> String {
    if rhat.is_finite() {
        format!("{rhat:.3}")
    } else {
        "infinite, as no chain ever moves".into()
    }
}
