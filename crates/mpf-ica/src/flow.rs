//! ln K(J) and its gradient over fixed neighbours.
//!
//! ```text
//! K(J) = 1/M Σ_j Σ_i exp(½ [E(q_j; J) − E(q_i; J)] + b_ij)
//! ∇ ln K = ½ Σ_j Σ_i p_ij (sign(Jq_j) q_jᵀ − sign(Jq_i) q_iᵀ),   p_ij = exp(…) / Σ exp(…)
//! ```
//!
//! (Appendix H's objective.) b_ij collects the terms that do not depend on J: ½ ln(g_ji/g_ij), and
//! for Hamiltonian neighbours ½ [½vᵀv − ½v′ᵀv′], which does not cancel. ln K has the minimiser of
//! K, and overflows only where an energy does.

use crate::batch::{BLOCK, blocks, groups, view, view_mut};
use crate::connectivity::Neighbours;
use crate::error::check_finite;
use crate::model::sign;
use crate::{Error, Result};
use mpf_core::Objective;
use mpf_core::check_count;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;
use std::ops::Range;

/// ln K of Laplace ICA as an [`Objective`] over J, row by row. O(M d²) by matrix products.
///
/// −∞ when no draw found a neighbour; ±∞ or NaN where energies overflow.
pub struct NeighbourFlow<'a> {
    data: ArrayView2<'a, f64>,
    neighbours: &'a Neighbours,
    per_sample: usize,
    groups: Vec<Group>,
}

/// One group of samples, with buffers for a block of them and their neighbours.
struct Group {
    samples: Range<usize>,
    /// Jq, then weighted signs, of a block.
    responses: Vec<f64>,
    /// Jq′, then weighted signs, of the block's neighbours.
    neighbour_responses: Vec<f64>,
    /// ½[E_j − E_i] + b_ij of a block.
    exponents: Vec<f64>,
    sum: Sum,
}

/// Σ e^{exponent − shift}, and its gradient.
struct Sum {
    shift: f64,
    value: f64,
    grad: Array2<f64>,
}

impl Sum {
    /// Raises the shift to `shift`, if it is lower.
    fn raise(&mut self, shift: f64) {
        if shift > self.shift {
            let scale = (self.shift - shift).exp();
            self.value *= scale;
            self.grad *= scale;
            self.shift = shift;
        }
    }
}

impl<'a> NeighbourFlow<'a> {
    /// Prepares the flow from the rows of `data` to their `neighbours`.
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] without samples; [`mpf_core::Error::Count`] unless every sample has
    /// the same number of neighbours, of its length; [`Error::NonFinite`] for a sample, a neighbour
    /// or a weight that is not finite.
    pub fn new(data: ArrayView2<'a, f64>, neighbours: &'a Neighbours) -> Result<Self> {
        let (n, d) = data.dim();
        if n == 0 || d == 0 {
            return Err(Error::TooFewSamples {
                n_samples: n,
                n_dims: d,
            });
        }
        let (rows, columns) = neighbours.positions.dim();
        check_count("entries of a neighbour", d, columns)?;
        let per_sample = (rows / n).max(1);
        check_count("neighbours", n * per_sample, rows)?;
        check_finite("data", data)?;
        check_finite("neighbours", neighbours.positions.view())?;
        // −∞ is the weight of a draw that found no neighbour.
        let mut weights = neighbours.ln_weights.iter().enumerate();
        let refused = |w: f64| w.is_nan() || w == f64::INFINITY;
        if let Some((row, &value)) = weights.find(|w| refused(*w.1)) {
            return Err(Error::NonFinite {
                what: "logarithms of the neighbours' weights",
                row,
                column: 0,
                value,
            });
        }
        let block = block_size(per_sample);
        let group = |samples: Range<usize>| {
            let size = block.min(samples.len()) * d;
            Group {
                samples,
                responses: vec![0.0; size],
                neighbour_responses: vec![0.0; size * per_sample],
                exponents: vec![0.0; size / d * per_sample],
                sum: Sum {
                    shift: 0.0,
                    value: 0.0,
                    grad: Array2::zeros((d, d)),
                },
            }
        };
        Ok(Self {
            data,
            neighbours,
            per_sample,
            groups: groups(n, block).into_iter().map(group).collect(),
        })
    }
}

/// Returns how many samples have about [`BLOCK`] neighbours.
fn block_size(per_sample: usize) -> usize {
    (BLOCK / per_sample).max(1)
}

impl Group {
    fn accumulate(
        &mut self,
        filters: ArrayView2<'_, f64>,
        data: ArrayView2<'_, f64>,
        neighbours: &Neighbours,
        per_sample: usize,
    ) {
        let d = data.ncols();
        self.sum.shift = f64::NEG_INFINITY;
        self.sum.value = 0.0;
        self.sum.grad.fill(0.0);
        for samples in blocks(self.samples.clone(), block_size(per_sample)) {
            let n = samples.len();
            let pairs = samples.start * per_sample..samples.end * per_sample;
            let x = data.slice(s![samples, ..]);
            let y = neighbours.positions.slice(s![pairs.clone(), ..]);
            let (u, u_neighbour) = (
                &mut self.responses[..n * d],
                &mut self.neighbour_responses[..n * per_sample * d],
            );
            let mut product = view_mut(u, n, d);
            general_mat_mul(1.0, &x, &filters.t(), 0.0, &mut product);
            let mut product = view_mut(u_neighbour, n * per_sample, d);
            general_mat_mul(1.0, &y, &filters.t(), 0.0, &mut product);

            let exponents = &mut self.exponents[..n * per_sample];
            let ln_weights = &neighbours.ln_weights[pairs];
            let energies = u_neighbour.chunks_exact(d).map(energy);
            for ((exponent, e_i), b) in exponents.iter_mut().zip(energies).zip(ln_weights) {
                *exponent = b - 0.5 * e_i;
            }
            for (exponents, u) in exponents
                .chunks_exact_mut(per_sample)
                .zip(u.chunks_exact(d))
            {
                let half = 0.5 * energy(u);
                exponents.iter_mut().for_each(|e| *e += half);
            }
            let largest = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            self.sum.raise(largest);
            if exponents.iter().all(|e| *e == f64::NEG_INFINITY) {
                // No sample of this block has a neighbour: ∞ − ∞ would be NaN.
                continue;
            }

            let of_sample = per_sample * d;
            for ((u, u_neighbours), exponents) in u
                .chunks_exact_mut(d)
                .zip(u_neighbour.chunks_exact_mut(of_sample))
                .zip(exponents.chunks_exact(per_sample))
            {
                let mut outflow = 0.0;
                for (u, exponent) in u_neighbours.chunks_exact_mut(d).zip(exponents) {
                    let rate = (exponent - self.sum.shift).exp();
                    outflow += rate;
                    u.iter_mut().for_each(|u| *u = -0.5 * rate * sign(*u));
                }
                u.iter_mut().for_each(|u| *u = 0.5 * outflow * sign(*u));
                self.sum.value += outflow;
            }
            let grad = &mut self.sum.grad;
            general_mat_mul(1.0, &view(u, n, d).t(), &x, 1.0, grad);
            let signs = view(u_neighbour, n * per_sample, d);
            general_mat_mul(1.0, &signs.t(), &y, 1.0, grad);
        }
    }
}

fn energy(responses: &[f64]) -> f64 {
    responses.iter().map(|u| u.abs()).sum()
}

impl Objective for NeighbourFlow<'_> {
    fn n_params(&self) -> usize {
        self.data.ncols() * self.data.ncols()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let (n, d) = self.data.dim();
        let (data, neighbours, per_sample) = (self.data, self.neighbours, self.per_sample);
        let filters = view(theta, d, d);
        self.groups
            .par_iter_mut()
            .for_each(|group| group.accumulate(filters, data, neighbours, per_sample));
        let sums = || self.groups.iter().map(|g| &g.sum);
        let shift = sums().map(|s| s.shift).fold(f64::NEG_INFINITY, f64::max);
        // Avoids ∞ − ∞ where no sample has a neighbour.
        let scale = |s: &Sum| {
            if s.shift == shift {
                1.0
            } else {
                (s.shift - shift).exp()
            }
        };
        let total: f64 = sums().map(|s| s.value * scale(s)).sum();
        let mut out = view_mut(grad, d, d);
        out.fill(0.0);
        for sum in sums() {
            out.scaled_add(scale(sum) / total, &sum.grad);
        }
        shift + (total / n as f64).ln()
    }
}
