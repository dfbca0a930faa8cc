//! The mean over data of a function of the differences, in parallel and to the same bits.

use super::{At, LocalModel, SiteData};
use crate::Result;
use crate::objective::Objective;
use rayon::prelude::*;
use std::ops::Range;

/// The function of the differences Δ_ia = E(x with x_i = a) − E(x) that is summed over the sites i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalLoss {
    /// Minimum probability flow over all single-site changes: Σ_{a≠x_i} exp(−½ Δ_ia).
    #[default]
    Flow,
    /// Minus the log-pseudolikelihood: ln Σ_a exp(−Δ_ia).
    Pseudolikelihood,
    /// Interaction screening: exp(−(1/q) Σ_a Δ_ia).
    Screening,
}

impl LocalLoss {
    /// Returns the loss of one site in state `own`, and replaces its Δ by the slopes ∂loss/∂Δ.
    pub fn value_and_slopes(self, own: u8, differences: &mut [f64]) -> f64 {
        let own = usize::from(own);
        match self {
            Self::Flow => {
                let mut value = 0.0;
                for (a, d) in differences.iter_mut().enumerate() {
                    let rate = if a == own { 0.0 } else { (-0.5 * *d).exp() };
                    value += rate;
                    *d = -0.5 * rate;
                }
                value
            }
            Self::Pseudolikelihood => {
                let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
                let mut sum = 0.0;
                for d in differences.iter_mut() {
                    *d = (least - *d).exp();
                    sum += *d;
                }
                for d in differences.iter_mut() {
                    *d /= -sum;
                }
                sum.ln() - least
            }
            Self::Screening => {
                let share = 1.0 / differences.len() as f64;
                let value = (-share * differences.iter().sum::<f64>()).exp();
                differences.fill(-share * value);
                value
            }
        }
    }
}

/// The mean of a [`LocalLoss`] over weighted data, summed over the sites, as an [`Objective`]. +∞ or
/// NaN on overflow. The number of threads cannot change a digit.
pub struct LocalObjective<'a, M> {
    model: &'a M,
    data: &'a SiteData,
    loss: LocalLoss,
}

/// Numbers that one thread works with.
pub(super) struct Scratch {
    surroundings: Vec<f64>,
    differences: Vec<f64>,
}

impl<'a, M: LocalModel> LocalObjective<'a, M> {
    /// Averages `loss` over `data`.
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count) for a model of other sites or states.
    pub fn new(model: &'a M, data: &'a SiteData, loss: LocalLoss) -> Result<Self> {
        data.check(model)?;
        Ok(Self { model, data, loss })
    }

    pub(super) fn scratch(&self) -> Scratch {
        Scratch {
            surroundings: vec![0.0; self.model.n_surroundings()],
            differences: vec![0.0; self.data.n_sites() * self.data.n_states()],
        }
    }

    /// Returns θ with what the model prepares.
    pub(super) fn prepared(&self, theta: &[f64]) -> Vec<f64> {
        let mut theta = theta.to_vec();
        self.model.prepare(&mut theta);
        theta
    }

    /// Returns the loss of one row at a prepared θ; adds `weight` times its gradient to `grad`.
    pub(super) fn add_row(
        &self,
        theta: &[f64],
        x: &[u8],
        weight: f64,
        scratch: &mut Scratch,
        grad: &mut [f64],
    ) -> f64 {
        let Scratch {
            surroundings,
            differences,
        } = scratch;
        self.model.surroundings(theta, x, surroundings);
        let at = At {
            theta,
            x,
            surroundings,
        };
        self.model.differences(at, differences);
        let mut value = 0.0;
        let sites = differences.chunks_exact_mut(self.data.n_states());
        for (differences, &own) in sites.zip(x) {
            value += self.loss.value_and_slopes(own, differences);
            for slope in differences.iter_mut() {
                *slope *= weight;
            }
            differences[usize::from(own)] = 0.0;
        }
        self.model.add_gradient(at, differences, grad);
        value
    }
}

/// Cuts `0..n` into chunks that depend on n alone, runs them in parallel and adds up the (value,
/// gradient) of each in their order.
pub(super) fn add_chunks(
    n: usize,
    grad: &mut [f64],
    chunk: impl Fn(Range<usize>, &mut [f64]) -> f64 + Sync,
) -> f64 {
    /// Enough to keep a machine busy; every one of them holds a gradient.
    const MOST_CHUNKS: usize = 64;
    const LEAST_ROWS: usize = 16;
    let n_chunks = n.div_ceil(LEAST_ROWS).clamp(1, MOST_CHUNKS);
    let parts: Vec<(f64, Vec<f64>)> = (0..n_chunks)
        .into_par_iter()
        .map(|at| {
            let mut part = vec![0.0; grad.len()];
            let range = at * n / n_chunks..(at + 1) * n / n_chunks;
            (chunk(range, &mut part), part)
        })
        .collect();
    grad.fill(0.0);
    let mut value = 0.0;
    for (part, slopes) in &parts {
        value += part;
        for (g, s) in grad.iter_mut().zip(slopes) {
            *g += s;
        }
    }
    value
}

impl<M: LocalModel> Objective for LocalObjective<'_, M> {
    fn n_params(&self) -> usize {
        self.model.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let scale = 1.0 / self.data.total_weight();
        let this = &*self;
        let theta = &this.prepared(theta);
        add_chunks(self.data.n_distinct(), grad, |rows, grad| {
            let mut scratch = this.scratch();
            let mut value = 0.0;
            for m in rows {
                let weight = scale * this.data.weights()[m];
                // 0 · ∞ would be NaN.
                if weight > 0.0 {
                    let row = this.data.row(m);
                    value += weight * this.add_row(theta, row, weight, &mut scratch, grad);
                }
            }
            value
        })
    }
}
