//! The memory that the steps of a fit take.

use super::FitArgs;
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory;
use mpf_baselines::{ErrorBarsBy, Recipe};
use mpf_ising::Samples;

impl FitArgs {
    /// Returns the bytes of the largest step; refuses what does not fit into memory.
    pub(super) fn check_memory(
        &self,
        recipe: &Recipe,
        raster: &Raster,
        samples: &Samples,
    ) -> Result<u64, Failure> {
        let room = self.memory.bytes();
        let n_units = samples.n_units();
        let n_couplings = recipe.options.support.most_pairs(n_units);
        let options = &recipe.options;
        let n_parameters = recipe
            .last(n_units)
            .n_parameters(n_units, n_couplings, options);
        let fit = memory::of_fit(raster, samples, n_parameters);
        memory::check(
            "this fit",
            fit,
            room,
            "fit fewer units, give the couplings that may differ from zero with --support, or fit \
             every row by itself with --nodewise; --memory-limit sets another limit",
        )?;
        // All folds and all data are fitted at the same time.
        let fits = recipe.choose.as_ref().map_or(0, |path| path.n_folds as u64);
        let choice = fit.saturating_mul(fits.saturating_add(1));
        memory::check(
            "choosing the penalty",
            choice,
            room,
            "use fewer --folds, or give a penalty; --memory-limit sets another limit",
        )?;
        let errors = bytes_of_errors(recipe, fit, n_units as u64, n_couplings as u64);
        memory::check(
            "the error bars",
            errors,
            room,
            "use fewer --resamples, or leave out --errors; --memory-limit sets another limit",
        )?;
        Ok(choice.max(errors))
    }
}

/// Returns the bytes of a process that computes the error bars of a fit of `fit` bytes.
fn bytes_of_errors(recipe: &Recipe, fit: u64, d: u64, n_couplings: u64) -> u64 {
    match recipe.errors {
        ErrorBarsBy::Nothing => 0,
        // A Hessian per unit and its inverse, over the unit's bias and couplings.
        ErrorBarsBy::Sandwich => {
            let row = 1 + n_couplings.saturating_mul(2).div_ceil(d);
            let hessians = row.saturating_mul(row).saturating_mul(16 * d);
            fit.saturating_add(hessians)
        }
        // A fit per thread, and the couplings of every resample in both conventions.
        ErrorBarsBy::Bootstrap(resamples) => {
            let resamples = resamples as u64;
            let at_once = resamples.min(rayon::current_num_threads() as u64);
            let couplings = d
                .saturating_mul(d)
                .saturating_mul(16)
                .saturating_mul(resamples);
            fit.saturating_mul(1 + at_once).saturating_add(couplings)
        }
    }
}
