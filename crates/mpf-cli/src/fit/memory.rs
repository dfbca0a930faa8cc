//! The memory that the steps of a fit take.
//!
//! ```text
//! fit       program + raster + samples + working + what a checkpoint copies
//! merging   40 bytes per sample, before the fit
//! writing   6 matrices of d × d, half of them as text
//! held out  beside the data and the model, a fit to a part of them
//! penalty   samples of all folds, and a fit on every thread
//! sandwich  joint: 2½ matrices of p × p;  node-wise: two Hessians per unit
//!           then the inverse, scores of 64 blocks on every thread, and the sums of 64 of these
//! bootstrap a fit on every thread beside the couplings of every resample; then these in both conventions
//! ```

use super::FitArgs;
use super::time::n_determined;
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory::{self, FitBytes, MERGED, product};
use mpf_baselines::{ErrorBarsBy, Recipe, Takes};
use mpf_ising::{Samples, States};
use std::borrow::Cow;

/// Copies of L-BFGS's memory while a checkpoint is written: as an entry and as a file.
const COPIES: u64 = 2;
/// Samples, or blocks of them, whose scores are held at a time.
const TILE: u64 = 64;
/// Chains that contrastive divergence moves at a time.
const CHUNK: u64 = 512;
/// Matrices of d × d numbers that a model takes while it becomes a text: itself, its rows, and the text.
const WRITTEN: u64 = 6;
/// Those of a model that waits for the check on held-out samples.
const WAITING: u64 = 3;
/// Those of a fit that minimises nothing.
const UNMINIMISED: u64 = 4;
/// Those of a node-wise fit: its rows, a copy of them for each report, pairs, and the model that comes of it.
const NODE_WISE: u64 = 9;
/// Matrices of d × d numbers in a decomposition, and in what is made of it.
const DECOMPOSITION: u64 = 11;

impl FitArgs {
    /// Returns the bytes of the largest step; refuses what does not fit into memory. A fit that ends
    /// before its first checkpoint is due writes none.
    pub(super) fn check_memory(
        &self,
        recipe: &Recipe,
        raster: &Raster,
        samples: &Samples,
        states: Option<&Cow<'_, States>>,
        writes_checkpoints: bool,
    ) -> Result<u64, Failure> {
        let room = self.memory.bytes();
        let mut bytes = self.bytes_of_fit(recipe, raster, samples, writes_checkpoints);
        if let Some(Cow::Owned(all)) = states {
            // Rows with counts, repeated.
            bytes.raster += 8 * (all.n_samples() * all.words_per_row()) as u64;
        }
        let d = samples.n_units() as u64;
        let merged = product(&[MERGED, samples.n_distinct() as u64]);
        let written = product(&[WRITTEN, 8, d, d]);
        let fit = (bytes.before()).saturating_add(bytes.working.max(merged).max(written));
        memory::check(
            "this fit",
            fit,
            room,
            "fit fewer units, give the couplings that may differ from zero with --support, or fit \
             every row by itself with --nodewise; --memory-limit sets another limit",
        )?;
        let held_out = if recipe.held_out > 0.0 {
            // The first part in both forms, and a fit to it, while the model waits.
            let part = (bytes.samples as f64 * (1.0 - recipe.held_out)) as u64;
            let waiting = product(&[WAITING, 8, d, d]);
            fit.max(bytes.total().saturating_add(waiting))
                .saturating_add(part)
        } else {
            0
        };
        memory::check(
            "the fit to a part of the samples",
            held_out,
            room,
            "leave it out with --held-out 0; --memory-limit sets another limit",
        )?;
        let choice = bytes_of_choice(recipe, bytes, d);
        memory::check(
            "choosing the penalty",
            choice,
            room,
            "use fewer --folds, or give a penalty; --memory-limit sets another limit",
        )?;
        let errors = self.bytes_of_errors(recipe, bytes, samples)?;
        memory::check(
            "the error bars",
            errors,
            room,
            "use fewer --resamples, or leave out --errors; --memory-limit sets another limit",
        )?;
        Ok([fit, held_out, choice, errors]
            .into_iter()
            .fold(0, u64::max))
    }

    /// Returns the parts of the memory of the fit itself.
    fn bytes_of_fit(
        &self,
        recipe: &Recipe,
        raster: &Raster,
        samples: &Samples,
        writes_checkpoints: bool,
    ) -> FitBytes {
        let d = samples.n_units();
        let n_couplings = recipe.options.support.most_pairs(d);
        let last = recipe.last(d);
        let n_parameters = last.n_parameters(d, n_couplings, &recipe.options);
        let mut bytes = FitBytes::new(raster, samples, n_parameters);
        if self.checkpoint.is_given() {
            let copy = bytes_of_state(recipe, d);
            let copies = if writes_checkpoints { COPIES } else { 1 };
            bytes.working = bytes.working.saturating_add(product(&[copies, copy]));
        }
        let takes = last.describe().takes;
        let square = product(&[8, d as u64, d as u64]);
        if n_parameters == 0 {
            bytes.working = product(&[UNMINIMISED, square]);
        } else if last.is_node_wise(&recipe.options) {
            // A checkpoint holds the rows that have ended, and encodes them once more.
            let kept = if self.checkpoint.is_given() { 2 } else { 0 };
            bytes.working = product(&[NODE_WISE + kept, square]);
        }
        if takes.contains(&Takes::Updates) {
            // Moments of every chunk of chains, and the states that these reach.
            let chunks = (samples.n_distinct() as u64).div_ceil(CHUNK);
            let moments = product(&[12, chunks, (d + n_couplings) as u64]);
            bytes.working = bytes
                .working
                .saturating_add(moments)
                .saturating_add(bytes.samples);
        } else if takes.contains(&Takes::Damping) {
            bytes.working = bytes.working.max(product(&[DECOMPOSITION, square]));
        }
        bytes
    }

    /// Returns the bytes of a process that computes the error bars.
    fn bytes_of_errors(
        &self,
        recipe: &Recipe,
        bytes: FitBytes,
        samples: &Samples,
    ) -> Result<u64, Failure> {
        let d = samples.n_units() as u64;
        let threads = rayon::current_num_threads() as u64;
        let data = bytes.before();
        Ok(match recipe.errors {
            ErrorBarsBy::Nothing => 0,
            ErrorBarsBy::Sandwich => {
                let n_couplings = n_determined(recipe, samples)? as u64;
                let last = recipe.last(samples.n_units());
                let p = d + n_couplings;
                // A unit's bias and couplings.
                let row = 1 + n_couplings.saturating_mul(2).div_ceil(d);
                let hessians = product(&[8, d, row, row]);
                let blocks = samples.n_observed() as u64 / self.block_length.unwrap_or(1) as u64;
                let width = d.saturating_mul(row);
                // Influences, and in a joint fit scores of all parameters, beside the scores of rows.
                let (inverse, inverting, row) = if last.is_node_wise(&recipe.options) {
                    (hessians, hessians, width.saturating_add(p))
                } else {
                    // The Hessian, half of it as a factor, and the inverse.
                    let inverting = product(&[5, 4, p, p]);
                    (product(&[8, p, p]), inverting, width.saturating_add(3 * p))
                };
                let scores = product(&[8, TILE.min(blocks), row, threads]);
                let sums = product(&[8, TILE.min(blocks.div_ceil(TILE)), width]);
                let second = inverse.saturating_add(scores).saturating_add(sums);
                data.saturating_add(second.max(hessians.saturating_add(inverting)))
            }
            ErrorBarsBy::Bootstrap(resamples) => {
                let resamples = resamples as u64;
                // Counts of the samples, and the table that merges them, are gone when the fit begins.
                let merging = product(&[MERGED, samples.n_observed() as u64]);
                let fit = bytes_of_resample(samples).saturating_add(bytes.working.max(merging));
                let fits = fit.saturating_mul(resamples.min(threads));
                let couplings = product(&[8, d, d, resamples]);
                // The second half of the couplings, as spins, comes after the fits.
                let most = couplings.saturating_add(fits.max(couplings));
                data.saturating_add(most)
            }
        })
    }
}

/// Returns the bytes of the state of the last fit, L-BFGS's memory among them.
pub(super) fn bytes_of_state(recipe: &Recipe, n_units: usize) -> u64 {
    let options = &recipe.options;
    let n_couplings = options.support.most_pairs(n_units);
    let n_parameters = (recipe.last(n_units)).n_parameters(n_units, n_couplings, options);
    let pairs = options
        .minimizer
        .memory
        .min(options.minimizer.max_iterations);
    product(&[8, 8 + 2 * pairs as u64, n_parameters as u64])
}

/// Returns the bytes of a resample: a row that occurs c times is in it with probability 1 − exp(−c), and
/// has a weight.
fn bytes_of_resample(samples: &Samples) -> u64 {
    let distinct = samples.n_distinct() as f64;
    let share = -(-(samples.n_observed() as f64) / distinct).exp_m1();
    let row = samples.bytes() as f64 / distinct
        + if samples.weights().is_some() {
            0.0
        } else {
            8.0
        };
    (share * distinct * row) as u64
}

/// Returns the bytes of a process that chooses a penalty: every fold holds its samples, and as many
/// fits as there are threads run at a time.
fn bytes_of_choice(recipe: &Recipe, bytes: FitBytes, d: u64) -> u64 {
    let Some(path) = &recipe.choose else {
        return 0;
    };
    let folds = path.n_folds as u64;
    let fits = folds
        .saturating_add(1)
        .min(rayon::current_num_threads() as u64);
    // Of every λ the couplings, and of every fold those that the next fit starts from.
    let couplings = product(&[8, d, d, folds.saturating_add(path.n_lambdas as u64)]);
    bytes
        .before()
        .saturating_add(product(&[bytes.samples, folds.saturating_add(1)]))
        .saturating_add(product(&[bytes.working, fits]))
        .saturating_add(couplings)
}
