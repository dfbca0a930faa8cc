//! Error bars of fits of local models.
//!
//! ```text
//! sandwich:   cov θ̂ = H⁻¹ G H⁻¹,   H the Hessian of the penalised objective,
//!             G = B/(B−1) Σ_b S_b S_bᵀ / M²,   S_b the sum over block b of (score − mean score)
//! bootstrap:  cov over fits to ⌈M/L⌉ blocks of L successive samples drawn with replacement
//! ```

use super::{LocalFitOptions, LocalFitter, LocalModel, LocalObjective, SiteData};
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, check_count, check_option};
use crate::linalg::log_determinant_and_inverse;
use crate::objective::{Objective, Ridge};
use crate::rng::substream;
use ndarray::Array2;
use rand::RngExt;
use rayon::prelude::*;

/// The covariance of fitted parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalErrors {
    /// By pairs of parameters; NaN for those that an ℓ1 penalty has set to zero.
    pub covariance: Array2<f64>,
}

impl LocalErrors {
    /// Returns the standard error of every parameter.
    pub fn standard_errors(&self) -> Vec<f64> {
        // Rounding makes a variance of 0 negative; NaN stays.
        let root = |v: &f64| if *v < 0.0 { 0.0 } else { v.sqrt() };
        self.covariance.diag().iter().map(root).collect()
    }
}

impl<M: LocalModel> LocalFitter<'_, M> {
    /// Computes the sandwich at `theta`, which this fitter fitted to `data`, from blocks of
    /// `block_length` successive samples (1 for independent ones). The Hessian takes two gradients
    /// per parameter.
    ///
    /// # Errors
    /// [`Error::Count`]; [`Error::Option`] for fewer than two blocks; [`Error::Singular`] where the
    /// data do not determine a parameter: add a penalty; [`Error::Cancelled`].
    pub fn sandwich(
        &self,
        theta: &[f64],
        data: &SiteData,
        block_length: usize,
    ) -> Result<LocalErrors> {
        let n_params = self.model.n_params();
        check_count("parameters", n_params, theta.len())?;
        let n_blocks = n_blocks(data, block_length)?;
        let free: Vec<usize> = (0..n_params)
            .filter(|&k| self.options.l1 == 0.0 || theta[k] != 0.0)
            .collect();
        let objective = LocalObjective::new(self.model, data, self.options.loss)?;
        let outer = self.outer_products(&objective, theta, data, n_blocks, &free)?;
        let ridge = self.penalties(self.options.l2).collect();
        let hessian = self.hessian(Ridge::new(objective, ridge)?, theta, &free)?;
        let (_, inverse) = log_determinant_and_inverse(hessian.view())?;
        let found = inverse.dot(&outer).dot(&inverse);
        let mut covariance = Array2::from_elem((n_params, n_params), f64::NAN);
        for (a, &i) in free.iter().enumerate() {
            for (b, &j) in free.iter().enumerate() {
                covariance[[i, j]] = 0.5 * (found[[a, b]] + found[[b, a]]);
            }
        }
        Ok(LocalErrors { covariance })
    }

    /// Returns G of the `free` parameters.
    fn outer_products(
        &self,
        objective: &LocalObjective<'_, M>,
        theta: &[f64],
        data: &SiteData,
        n_blocks: usize,
        free: &[usize],
    ) -> Result<Array2<f64>> {
        /// Blocks whose sums are held at once.
        const AT_ONCE: usize = 256;
        let n = data.n_samples();
        let total = data.total_weight();
        let prepared = objective.prepared(theta);
        let mut mean = vec![0.0; theta.len()];
        let mut unused = LocalObjective::new(self.model, data, self.options.loss)?;
        unused.value_and_gradient(theta, &mut mean);
        let block_sums = |blocks: std::ops::Range<usize>| -> Array2<f64> {
            let rows: Vec<Vec<f64>> = blocks
                .into_par_iter()
                .map_init(
                    || (objective.scratch(), vec![0.0; theta.len()]),
                    |(scratch, score), b| {
                        score.fill(0.0);
                        let mut of_block = 0.0;
                        for m in b * n / n_blocks..(b + 1) * n / n_blocks {
                            let row = data.row(data.order[m] as usize);
                            let weight = data.sample_weights[m] / total;
                            objective.add_row(&prepared, row, weight, scratch, score);
                            of_block += weight;
                        }
                        free.iter()
                            .map(|&k| score[k] - of_block * mean[k])
                            .collect()
                    },
                )
                .collect();
            Array2::from_shape_fn((rows.len(), free.len()), |(b, k)| rows[b][k])
        };
        let mut outer = Array2::zeros((free.len(), free.len()));
        for first in (0..n_blocks).step_by(AT_ONCE) {
            self.options.minimizer.cancel.check()?;
            let sums = block_sums(first..n_blocks.min(first + AT_ONCE));
            outer += &sums.t().dot(&sums);
        }
        outer *= n_blocks as f64 / (n_blocks as f64 - 1.0);
        Ok(outer)
    }

    /// Returns the Hessian of the `free` parameters, by central differences of gradients.
    fn hessian(
        &self,
        mut objective: impl Objective,
        theta: &[f64],
        free: &[usize],
    ) -> Result<Array2<f64>> {
        /// The error is of the order of its square.
        const STEP: f64 = 1e-4;
        let mut point = theta.to_vec();
        let (mut up, mut down) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
        let mut hessian = Array2::zeros((free.len(), free.len()));
        for (a, &i) in free.iter().enumerate() {
            self.options.minimizer.cancel.check()?;
            point[i] = theta[i] + STEP;
            objective.value_and_gradient(&point, &mut up);
            point[i] = theta[i] - STEP;
            objective.value_and_gradient(&point, &mut down);
            point[i] = theta[i];
            for (b, &j) in free.iter().enumerate() {
                let slope = 0.25 * (up[j] - down[j]) / STEP;
                hessian[[a, b]] += slope;
                hessian[[b, a]] += slope;
            }
        }
        Ok(hessian)
    }

    /// Fits `n_resamples` resamples of blocks of `block_length` successive samples, each from
    /// `theta`, and returns the covariance of what they give.
    ///
    /// # Errors
    /// [`Error::Option`] for fewer than two blocks or resamples; those of [`LocalFitter::fit`];
    /// [`Error::Cancelled`].
    pub fn bootstrap(
        &self,
        theta: &[f64],
        data: &SiteData,
        n_resamples: usize,
        block_length: usize,
        seed: u64,
    ) -> Result<LocalErrors> {
        n_blocks(data, block_length)?;
        let enough = n_resamples >= 2;
        check_option("n_resamples", n_resamples as f64, "at least 2", enough)?;
        let mut options = LocalFitOptions {
            start: theta.to_vec(),
            ..self.options.clone()
        };
        options.minimizer.checkpoint = Checkpoint::default();
        let fitter = Self::new(self.model, options)?;
        let n = data.n_samples();
        let checkpoint = &self.options.minimizer.checkpoint;
        let fits = (0..n_resamples)
            .map(|b| {
                self.options.minimizer.cancel.check()?;
                checkpoint.unit(format!("resample {b}"), |_| {
                    let mut rng = substream(seed, b as u64);
                    let starts: Vec<usize> = (0..n.div_ceil(block_length))
                        .map(|_| rng.random_range(0..=n - block_length))
                        .collect();
                    let samples = starts.iter().flat_map(|&s| s..s + block_length).take(n);
                    fitter.fit(&data.of_samples(samples)).map(|fit| fit.theta)
                })
            })
            .collect::<Result<Vec<Vec<f64>>>>()?;
        self.options.minimizer.cancel.check()?;
        let count = n_resamples as f64;
        let fits = Array2::from_shape_fn((n_resamples, theta.len()), |(b, k)| fits[b][k]);
        let mean = fits.sum_axis(ndarray::Axis(0)) / count;
        let fits = fits - &mean;
        Ok(LocalErrors {
            covariance: fits.t().dot(&fits) / (count - 1.0),
        })
    }
}

/// Returns the number of blocks, at least two.
fn n_blocks(data: &SiteData, block_length: usize) -> Result<usize, Error> {
    let holds = block_length > 0 && block_length <= data.n_samples() / 2;
    let requirement = "from 1 to half of the samples";
    check_option("block_length", block_length as f64, requirement, holds)?;
    Ok(data.n_samples() / block_length)
}
