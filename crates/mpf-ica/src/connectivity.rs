//! The neighbours of a state in a continuous space.
//!
//! ```text
//! Hamiltonian   x′ = HAM(x; θ_H), x = {q, v}                g_ij = g_ji            (Appendix H)
//! Gaussian      q′ = q + σ n, n ~ N(0, I)                   g_ij = g_ji
//! cube          q′ = q + ε n, n uniform in [−½, ½]ᵈ         g_ij = g_ji            (Appendix C)
//! ```
//!
//! [`Neighbours`] holds those of a whole data set, which the objective works on. Isotropic Gaussian neighbours are here for
//! comparison: the paper needs several hundred of them per sample, and so do we.

use crate::batch::{BLOCK, blocks, entries, entries_mut, groups};
use crate::hamiltonian::{Ensemble, Hamiltonian, Trajectory};
use crate::model::Filters;
use mpf_core::{SampledConnectivity, rng};
use ndarray::{Array2, ArrayView2};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// Joins {q, v} to the state that Hamiltonian dynamics lead it to, with the momentum negated
/// (Appendix H).
///
/// The paper's other connections, to all momenta at the same q, add a constant to K and are left
/// out. A state whose energy is not finite at either end has no neighbour.
#[derive(Clone, Debug)]
pub struct HamiltonianNeighbours {
    /// θ_H.
    pub filters: Filters,
    /// Step size and time.
    pub trajectory: Trajectory,
}

/// Joins q to q plus independent noise, the same in all directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseNeighbours {
    /// q + σ n with n ~ N(0, I).
    Gaussian {
        /// σ.
        scale: f64,
    },
    /// A uniformly drawn point of the cube of side ε about q.
    Cube {
        /// ε.
        side: f64,
    },
}

impl SampledConnectivity<[f64]> for NoiseNeighbours {
    fn draw_neighbours<R: Rng + ?Sized>(
        &self,
        x: &[f64],
        scratch: &mut [f64],
        rng: &mut R,
        mut visit: impl FnMut(&[f64], f64),
    ) {
        for (y, x) in scratch.iter_mut().zip(x) {
            let noise = match self {
                Self::Gaussian { scale } => scale * rng.sample::<f64, _>(StandardNormal),
                Self::Cube { side } => side * (rng.random::<f64>() - 0.5),
            };
            *y = x + noise;
        }
        visit(scratch, 0.0);
    }
}

/// The neighbours of a whole data set, drawn once.
///
/// They may not be finite where the data or a rule's own numbers are not, and where a trajectory
/// diverges; [`NeighbourFlow::new`](crate::NeighbourFlow::new) refuses such neighbours.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// q′, one per row; those of the first sample come first.
    pub positions: Array2<f64>,
    /// b of each, which is added to ½[E(q) − E(q′)]: ½ ln(g_ji/g_ij), and the kinetic terms.
    pub ln_weights: Vec<f64>,
}

impl Neighbours {
    /// Draws `per_sample` neighbours of every row of `data` by a rule over q. Of several that one draw
    /// visits, the last counts.
    ///
    /// # Panics
    /// If the rows have another length than the rule's.
    pub fn draw(
        rule: &(impl SampledConnectivity<[f64]> + Sync),
        data: ArrayView2<'_, f64>,
        per_sample: usize,
        seed: u64,
    ) -> Self {
        let (n, d) = data.dim();
        let mut positions = Array2::zeros((n * per_sample, d));
        // A draw that visits no state has weight 0.
        let mut ln_weights = vec![f64::NEG_INFINITY; n * per_sample];
        let data = data.as_standard_layout();
        let from = entries(data.view());
        let ln_draws = (per_sample as f64).ln();
        // Without draws or dimensions there is nothing to cut, but chunks must not be empty.
        entries_mut(&mut positions)
            .par_chunks_mut((per_sample * d).max(1))
            .zip(ln_weights.par_chunks_mut(per_sample.max(1)))
            .enumerate()
            .for_each_init(
                || vec![0.0; d],
                |scratch, (sample, (to, ln_weights))| {
                    let mut rng = rng::substream(seed, sample as u64);
                    let x = &from[sample * d..(sample + 1) * d];
                    for (to, ln_weight) in to.chunks_exact_mut(d).zip(ln_weights) {
                        rule.draw_neighbours(x, scratch, &mut rng, |y, weight| {
                            to.copy_from_slice(y);
                            *ln_weight = weight - ln_draws;
                        });
                    }
                },
            );
        Self {
            positions,
            ln_weights,
        }
    }

    /// Draws one neighbour of every row of `data` by [`HamiltonianNeighbours`]: v ~ N(0, I), then
    /// HAM(x; θ_H). Moves many states at a time, which is much faster than the rule itself.
    ///
    /// # Panics
    /// If the rows have another length than the filters.
    pub fn hamiltonian(rule: &HamiltonianNeighbours, data: ArrayView2<'_, f64>, seed: u64) -> Self {
        let (n, d) = data.dim();
        let data = data.as_standard_layout();
        let from = entries(data.view());
        let mut positions = Array2::zeros((n, d));
        let mut ln_weights = vec![0.0; n];
        let hamiltonian = Hamiltonian::new(rule.filters.as_array());
        let groups = groups(n, BLOCK);
        let size = groups.first().map_or(1, ExactSizeIterator::len);
        let parts = entries_mut(&mut positions)
            .par_chunks_mut(size * d)
            .zip(ln_weights.par_chunks_mut(size));
        let parts = groups.into_par_iter().zip(parts);
        parts.for_each(|(rows, (to, ln_weights))| {
            let mut states = Ensemble::new(BLOCK.min(rows.len()), d);
            let first = rows.start;
            for block in blocks(rows, BLOCK) {
                // One stream per block: the thread does not matter.
                let mut rng = rng::substream(seed, block.start as u64);
                let rows = block.clone().map(|r| &from[r * d..(r + 1) * d]);
                states.place(&hamiltonian, rows);
                states.draw_momenta(&mut rng);
                states.draw_steps(|| rule.trajectory.draw(&mut rng));
                let weights = &mut ln_weights[block.start - first..block.end - first];
                for (row, weight) in weights.iter_mut().enumerate() {
                    *weight = 0.5 * states.kinetic(row);
                }
                states.integrate(&hamiltonian);
                for (row, weight) in weights.iter_mut().enumerate() {
                    *weight -= 0.5 * states.kinetic(row);
                }
                to[(block.start - first) * d..(block.end - first) * d]
                    .copy_from_slice(&states.positions[..block.len() * d]);
            }
        });
        Self {
            positions,
            ln_weights,
        }
    }
}
