//! The diagnosis of a run of an Ising sampler.

use super::{Summary, summary};
use crate::Result;
use crate::run::Run;
use crate::sampler::Tally;
use mpf_core::EnergyModel;
use mpf_ising::{Couplings, IsingModel, States};
use serde::Serialize;

/// Diagnostics of the draws of all chains of an Ising sampler, with warnings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDiagnostics {
    /// Number of chains.
    pub chains: usize,
    /// The energy xᵀJx.
    pub energy: Summary,
    /// The number of active units.
    pub n_active: Summary,
    /// How often a replica of [`Tempering`](crate::Tempering) went to the hottest level and back.
    pub round_trips: Option<u64>,
    /// Reasons to distrust the draws.
    pub warnings: Vec<String>,
}

impl<I: Tally> Run<States, I> {
    /// Diagnoses the energy and the number of active units.
    ///
    /// ```
    /// use mpf_ising::Couplings;
    /// use mpf_samplers::{ChainRunner, Gibbs};
    /// use ndarray::array;
    ///
    /// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
    /// let run = ChainRunner::default().run(&Gibbs::new(&j)?)?;
    /// let found = run.diagnose(&j)?;
    /// assert!(found.warnings.is_empty());
    /// // States 00, 10, 01, 11 have the energies 0, 1, ½, −½.
    /// let weights = [1.0, (-1f64).exp(), (-0.5f64).exp(), 0.5f64.exp()];
    /// let mean = (weights[1] + 0.5 * weights[2] - 0.5 * weights[3]) / weights.iter().sum::<f64>();
    /// assert!((found.energy.mean - mean).abs() < 5.0 * found.energy.mcse);
    /// # Ok::<(), mpf_samplers::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`summary`]: at least 8 draws per chain are needed.
    ///
    /// # Panics
    /// When the draws are of other units than `couplings`.
    pub fn diagnose(&self, couplings: &Couplings) -> Result<RunDiagnostics> {
        let (model, theta) = (IsingModel::new(couplings.n_units()), couplings.pack());
        let energy = summary(&self.series(|row| model.energy(&theta, row)))?;
        let active = |row: &[u64]| f64::from(row.iter().map(|w| w.count_ones()).sum::<u32>());
        let n_active = summary(&self.series(active))?;
        let round_trips = self.chains.iter().try_fold(0u64, |sum, chain| {
            Some(sum.saturating_add(chain.info.round_trips()?))
        });
        let mut warnings = Vec::new();
        for (what, found) in [("energy", &energy), ("number of active units", &n_active)] {
            if found.rhat > 1.01 {
                warnings.push(format!(
                    "the chains do not agree on the {what} (R-hat {:.3}): draw more, or use \
                     --sampler tempering",
                    found.rhat
                ));
            } else if found.bulk_ess < 100.0 * self.chains.len() as f64 {
                warnings.push(format!(
                    "only {:.0} effective draws of the {what}: draw more, or use --thin",
                    found.bulk_ess
                ));
            }
        }
        if round_trips == Some(0) {
            warnings.push("no replica travelled the whole ladder: draw more".into());
        }
        Ok(RunDiagnostics {
            chains: self.chains.len(),
            energy,
            n_active,
            round_trips,
            warnings,
        })
    }
}
