//! ln Z of a model, by the most exact means that its size allows.

use crate::Result;
use mpf_core::Cancel;
use mpf_ising::{Couplings, Exact, Lattice};
use mpf_samplers::{AnnealedEstimate, AnnealedOptions, ExactLattice, annealed_log_z};
use serde::{Deserialize, Serialize};

/// Where a log-likelihood comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogZSource {
    /// A sum over all states.
    Enumeration,
    /// A transfer matrix.
    Lattice,
    /// Annealed importance sampling.
    Annealed,
}

/// ln Z, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogZ {
    /// ln Z.
    pub value: f64,
    /// Its standard error; 0 where it is exact.
    pub standard_error: f64,
    /// Where it comes from.
    pub source: LogZSource,
    /// The number of equally weighted chains that annealed importance sampling was worth; `None`
    /// where ln Z is exact.
    pub effective_chains: Option<f64>,
}

impl LogZ {
    /// The most units for which annealing is quick enough to be done unasked.
    pub const MAX_ANNEALED_UNITS: usize = 400;
    /// Fewer effective chains than this, and the standard error means nothing.
    const MIN_EFFECTIVE_CHAINS: f64 = 10.0;

    /// Sums over all states up to [`Exact::MAX_UNITS`] units, uses the transfer matrix of `lattice`
    /// if the couplings lie on it, and anneals otherwise, if that is asked for.
    ///
    /// # Errors
    /// Those of [`Exact::new`], [`ExactLattice::new`] and [`annealed_log_z`].
    pub fn of(
        couplings: &Couplings,
        lattice: Option<&Lattice>,
        annealed: Option<&AnnealedOptions>,
    ) -> Result<Option<Self>> {
        if couplings.n_units() <= Exact::MAX_UNITS {
            let value = Exact::new(couplings)?.log_z();
            return Ok(Some(Self::exact(value, LogZSource::Enumeration)));
        }
        if let Some(lattice) = lattice.filter(|_| couplings.potential().is_none()) {
            match ExactLattice::new(couplings, lattice) {
                Ok(found) => return Ok(Some(Self::exact(found.log_z(), LogZSource::Lattice))),
                // Couplings beyond the lattice: not its case.
                Err(mpf_samplers::Error::OffLattice { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let found = annealed.map(|annealed| annealed_log_z(couplings, annealed));
        Ok(found.transpose()?.map(Self::annealed))
    }

    /// Returns how ln Z is estimated of a model for which annealing is quick enough.
    pub(crate) fn quick(n_units: usize, seed: u64, cancel: &Cancel) -> Option<AnnealedOptions> {
        (n_units <= Self::MAX_ANNEALED_UNITS).then(|| AnnealedOptions {
            seed,
            cancel: cancel.clone(),
            ..Default::default()
        })
    }

    /// Returns a value without an error.
    pub(crate) fn exact(value: f64, source: LogZSource) -> Self {
        Self {
            value,
            standard_error: 0.0,
            source,
            effective_chains: None,
        }
    }

    pub(crate) fn annealed(found: AnnealedEstimate) -> Self {
        Self {
            value: found.log_z,
            standard_error: found.standard_error,
            source: LogZSource::Annealed,
            effective_chains: Some(found.effective_chains),
        }
    }

    /// Returns whether the standard error can be believed.
    pub fn is_reliable(&self) -> bool {
        self.effective_chains
            .is_none_or(|n| n >= Self::MIN_EFFECTIVE_CHAINS)
    }
}
