//! Fits of any local model, and the choice of a penalty.
//!
//! ```text
//! minimise  mean_m Σ_i loss(Δ_mi) + ½ λ₂ Σ_k c_k θ_k² + λ₁ Σ_k c_k |θ_k|
//! ```
//!
//! over θ_k = s_k u_k, u being what L-BFGS sees. By default s_k = 1/√(v_k + λ₂ c_k), v_k the mean
//! square of the scores of parameter k at the start, which is about its curvature: rare and frequent
//! features then take steps of the same size.

use super::{LocalLoss, LocalModel, LocalObjective, SiteData};
use crate::Result;
use crate::error::{
    check_count, check_entries, check_finite, check_not_negative, check_option, check_weights,
};
use crate::minimize::{Minimizer, MinimizerOptions, Minimum, Progress};
use crate::objective::{Objective, Ridge, Scaled};

/// The coordinates of a fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scales {
    /// From the scores of up to 1000 rows at the start.
    #[default]
    Scores,
    /// As given: s of every parameter, positive. All 1 for none.
    Given(Vec<f64>),
}

/// Options of a [`LocalFitter`]; [`LocalFitter::new`] checks them.
#[derive(Clone, Debug, Default)]
pub struct LocalFitOptions {
    /// The objective. Default: the flow.
    pub loss: LocalLoss,
    /// λ₁. Default 0.
    pub l1: f64,
    /// λ₂. Default 0.
    pub l2: f64,
    /// c, the share of every parameter in the penalties: 0 for those that are free of them. Default
    /// empty: all 1.
    pub penalised: Vec<f64>,
    /// The coordinates. Default: from the scores.
    pub scales: Scales,
    /// Where to start. Default empty: θ = 0.
    pub start: Vec<f64>,
    /// Tolerance (on the gradient in scaled coordinates), limits, cancel handle, checkpoint.
    pub minimizer: MinimizerOptions,
}

/// Fits a local model with checked options.
///
/// ```
/// use mpf_core::{EnergyModel, LocalFitOptions, LocalFitter, LocalModel, SiteData};
/// use ndarray::array;
///
/// /// Independent sites, E = Σ_i θ_i x_i.
/// struct Independent;
///
/// impl EnergyModel for Independent {
///     type State = [u8];
///     fn n_params(&self) -> usize {
///         2
///     }
///     fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
///         theta.iter().zip(x).map(|(t, &x)| t * f64::from(x)).sum()
///     }
///     fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
///         out.iter_mut().zip(x).for_each(|(o, &x)| *o += scale * f64::from(x));
///     }
/// }
///
/// impl LocalModel for Independent {
///     fn n_sites(&self) -> usize {
///         2
///     }
/// }
///
/// let data = SiteData::new(array![[1, 0], [1, 1], [0, 0], [1, 0]].view(), 2)?;
/// let fitter = LocalFitter::new(&Independent, LocalFitOptions::default())?;
/// let fit = fitter.fit(&data)?;
/// // θ is minus the log odds: three of four, and one of four.
/// assert!((fit.theta[0] + 3f64.ln()).abs() < 1e-4 && (fit.theta[1] - 3f64.ln()).abs() < 1e-4);
/// # Ok::<(), mpf_core::Error>(())
/// ```
pub struct LocalFitter<'a, M> {
    pub(super) model: &'a M,
    pub(super) options: LocalFitOptions,
}

/// A penalty and its score on samples that it was not fitted to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalPathPoint {
    /// λ₁.
    pub l1: f64,
    /// λ₂.
    pub l2: f64,
    /// The mean loss of a held-out sample, without penalty.
    pub score: f64,
    /// Its standard error, from the spread over the folds.
    pub standard_error: f64,
}

impl<'a, M: LocalModel> LocalFitter<'a, M> {
    /// Makes a fitter after checking the options.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for a penalty that is negative or not finite and for
    /// bad limits; [`Error::Count`](crate::Error::Count) and [`Error::Entry`](crate::Error::Entry)
    /// for lists with another number of parameters, or
    /// numbers that cannot be.
    pub fn new(model: &'a M, options: LocalFitOptions) -> Result<Self> {
        check_not_negative("l1", options.l1)?;
        check_not_negative("l2", options.l2)?;
        let n = model.n_params();
        if !options.penalised.is_empty() {
            check_count("entries of penalised", n, options.penalised.len())?;
            check_weights("penalised", &options.penalised)?;
        }
        if !options.start.is_empty() {
            check_count("entries of the start", n, options.start.len())?;
            check_finite("start", &options.start)?;
        }
        if let Scales::Given(scales) = &options.scales {
            let holds = |s: f64| s > 0.0 && s.is_finite();
            check_count("scales", n, scales.len())?;
            check_entries("scales", scales, "finite and positive", holds)?;
        }
        Minimizer::new(options.minimizer.clone())?;
        Ok(Self { model, options })
    }

    /// Fits; θ of the result is in the model's own units, its KKT residual in scaled ones.
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count) for data of other sites or states;
    /// [`Error::NonFiniteStart`](crate::Error::NonFiniteStart); those of a
    /// checkpoint.
    pub fn fit(&self, data: &SiteData) -> Result<Minimum> {
        self.fit_observed(data, |_| {})
    }

    /// Fits, and calls `observer` after every iteration with θ in the model's own units.
    ///
    /// # Errors
    /// As [`LocalFitter::fit`].
    pub fn fit_observed(
        &self,
        data: &SiteData,
        mut observer: impl FnMut(&Progress<'_>),
    ) -> Result<Minimum> {
        let objective = LocalObjective::new(self.model, data, self.options.loss)?;
        let start = self.start();
        let scales = match &self.options.scales {
            Scales::Given(scales) => scales.clone(),
            Scales::Scores => self.scales_from_scores(&objective, data, &start),
        };
        let mut lambda = Vec::new();
        if self.options.l1 > 0.0 {
            let penalties = self.penalties(self.options.l1).zip(&scales);
            lambda.extend(penalties.map(|(l, s)| l * s));
        }
        let start: Vec<f64> = start.iter().zip(&scales).map(|(t, s)| t / s).collect();
        let ridge = Ridge::new(objective, self.penalties(self.options.l2).collect())?;
        let mut scaled = Scaled::new(ridge, scales.clone());
        let own = |u: &[f64]| -> Vec<f64> { u.iter().zip(&scales).map(|(u, s)| u * s).collect() };
        let minimizer = Minimizer::new(self.options.minimizer.clone())?;
        let mut minimum = minimizer.minimize_l1(&mut scaled, &start, &lambda, |progress| {
            let theta = own(progress.theta);
            observer(&Progress {
                theta: &theta,
                ..*progress
            });
        })?;
        minimum.theta = own(&minimum.theta);
        Ok(minimum)
    }

    pub(super) fn start(&self) -> Vec<f64> {
        match self.options.start.is_empty() {
            true => vec![0.0; self.model.n_params()],
            false => self.options.start.clone(),
        }
    }

    /// Returns λ c of every parameter.
    pub(super) fn penalties(&self, lambda: f64) -> impl Iterator<Item = f64> + '_ {
        let share = |k| self.options.penalised.get(k).copied().unwrap_or(1.0);
        (0..self.model.n_params()).map(move |k| lambda * share(k))
    }

    fn scales_from_scores(
        &self,
        objective: &LocalObjective<'_, M>,
        data: &SiteData,
        theta: &[f64],
    ) -> Vec<f64> {
        const MOST_ROWS: usize = 1000;
        /// Parameters whose scores are smaller than this share of the largest are scaled no further.
        const LEAST_SHARE: f64 = 1e-6;
        let mut scratch = objective.scratch();
        let mut squares = vec![0.0; theta.len()];
        let mut score = vec![0.0; theta.len()];
        let prepared = objective.prepared(theta);
        let mut total = 0.0;
        for m in (0..data.n_distinct()).step_by(data.n_distinct().div_ceil(MOST_ROWS)) {
            let weight = data.weights()[m];
            score.fill(0.0);
            objective.add_row(&prepared, data.row(m), 1.0, &mut scratch, &mut score);
            for (sum, s) in squares.iter_mut().zip(&score) {
                *sum += weight * s * s;
            }
            total += weight;
        }
        let largest = squares.iter().copied().fold(0.0, f64::max);
        let curvature = |sum: f64, ridge: f64| sum.max(LEAST_SHARE * largest) / total + ridge;
        squares
            .iter()
            .zip(self.penalties(self.options.l2))
            .map(|(&sum, ridge)| match curvature(sum, ridge) {
                c if c > 0.0 && c.is_finite() => 1.0 / c.sqrt(),
                _ => 1.0,
            })
            .collect()
    }

    /// Scores every (λ₁, λ₂) of `penalties` on samples left out: `n_folds` stretches of successive
    /// samples, each held out once. The lowest score is the best.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) unless 2 ≤ `n_folds` ≤ the number of samples; those of
    /// [`LocalFitter::fit`]; [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cross_validate(
        &self,
        data: &SiteData,
        penalties: &[(f64, f64)],
        n_folds: usize,
    ) -> Result<Vec<LocalPathPoint>> {
        let n = data.n_samples();
        let holds = (2..=n).contains(&n_folds);
        check_option(
            "n_folds",
            n_folds as f64,
            "from 2 to the number of samples",
            holds,
        )?;
        let mut scores = vec![Vec::with_capacity(n_folds); penalties.len()];
        for fold in 0..n_folds {
            let held_out = fold * n / n_folds..(fold + 1) * n / n_folds;
            let training = data.of_samples((0..n).filter(|m| !held_out.contains(m)));
            let held_out = data.of_samples(held_out);
            let mut start = self.start();
            for (&(l1, l2), scores) in penalties.iter().zip(&mut scores) {
                let options = LocalFitOptions {
                    l1,
                    l2,
                    start,
                    ..self.options.clone()
                };
                let entry = self.options.minimizer.checkpoint.clone();
                start = entry.unit(format!("fold {fold}, l1 {l1}, l2 {l2}"), |entry| {
                    let mut options = options;
                    options.minimizer.checkpoint = entry.clone();
                    Self::new(self.model, options)?
                        .fit(&training)
                        .map(|fit| fit.theta)
                })?;
                self.options.minimizer.cancel.check()?;
                let mut objective = LocalObjective::new(self.model, &held_out, self.options.loss)?;
                let mut unused = vec![0.0; start.len()];
                scores.push(objective.value_and_gradient(&start, &mut unused));
            }
        }
        let point = |(&(l1, l2), scores): (&(f64, f64), &Vec<f64>)| {
            let count = n_folds as f64;
            let score = scores.iter().sum::<f64>() / count;
            let squares = scores.iter().map(|s| (s - score) * (s - score));
            LocalPathPoint {
                l1,
                l2,
                score,
                standard_error: (squares.sum::<f64>() / (count * (count - 1.0))).sqrt(),
            }
        };
        Ok(penalties.iter().zip(&scores).map(point).collect())
    }
}
