//! What the parts of a fit hold in memory.

use super::{ErrorsName, FitArgs};
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory;
use crate::methods::{MethodName, Strength};
use mpf_ising::Samples;

impl FitArgs {
    /// Parameters that are minimised over at the same time.
    fn n_parameters(&self, n_units: usize, n_couplings: usize) -> usize {
        match self.method {
            MethodName::Cd | MethodName::Tap | MethodName::Independent => 0,
            MethodName::Rise | MethodName::Logrise => n_units * rayon::current_num_threads(),
            _ if self.options.nodewise => n_units * rayon::current_num_threads(),
            _ => n_units + n_couplings,
        }
    }

    /// Bytes of the largest part of the work, with so many couplings. Refuses what has no room.
    pub(super) fn check_memory(
        &self,
        raster: &Raster,
        samples: &Samples,
        n_couplings: usize,
    ) -> Result<u64, Failure> {
        let room = self.room.bytes();
        let n_units = samples.n_units();
        let fit = memory::of_fit(raster, samples, self.n_parameters(n_units, n_couplings));
        memory::check(
            "this fit",
            fit,
            room,
            "fit fewer units, give the couplings that may differ from zero with --support, or fit \
             every row by itself with --nodewise; --memory-limit sets another limit",
        )?;
        let auto = [self.options.l1, self.options.l2].contains(&Strength::Auto);
        // All folds and all data are fitted at the same time.
        let fits = if auto { self.folds as u64 } else { 0 };
        let choice = fit.saturating_mul(fits.saturating_add(1));
        memory::check(
            "choosing the penalty",
            choice,
            room,
            "use fewer --folds, or give a penalty; --memory-limit sets another limit",
        )?;
        let errors = self.bytes_of_errors(fit, n_units as u64, n_couplings as u64);
        memory::check(
            "the error bars",
            errors,
            room,
            "use fewer --resamples, or leave out --errors; --memory-limit sets another limit",
        )?;
        Ok(choice.max(errors))
    }

    /// Bytes of a process that computes the error bars of a fit which takes `fit` bytes.
    fn bytes_of_errors(&self, fit: u64, d: u64, n_couplings: u64) -> u64 {
        match self.errors {
            ErrorsName::None => 0,
            // A Hessian per unit and its inverse, over the unit's bias and couplings.
            ErrorsName::Sandwich => {
                let row = 1 + n_couplings.saturating_mul(2).div_ceil(d);
                let hessians = row.saturating_mul(row).saturating_mul(16 * d);
                fit.saturating_add(hessians)
            }
            // A fit per thread, and the couplings of every resample in both conventions.
            ErrorsName::Bootstrap => {
                let resamples = self.resamples as u64;
                let at_once = resamples.min(rayon::current_num_threads() as u64);
                let couplings = d
                    .saturating_mul(d)
                    .saturating_mul(16)
                    .saturating_mul(resamples);
                fit.saturating_mul(1 + at_once).saturating_add(couplings)
            }
        }
    }
}
