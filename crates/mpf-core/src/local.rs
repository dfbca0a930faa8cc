//! Models of discrete sites, fitted through the energy differences of their single-site changes.
//!
//! ```text
//! x ∈ {0, …, q−1}^d          Δ_ia = E(x with x_i = a; θ) − E(x; θ),   Δ_{i x_i} = 0
//!
//! flow             Σ_i Σ_{a≠x_i} exp(−½ Δ_ia)        K(θ) over single-site changes
//! pseudolikelihood Σ_i ln Σ_a exp(−Δ_ia)             −Σ_i ln p(x_i | rest)
//! screening        Σ_i exp(−(1/q) Σ_a Δ_ia)          interaction screening (RISE); for q = 2 the flow
//! ```
//!
//! A [`LocalModel`] gives Δ and the gradient of a weighted sum of it. Everything else follows:
//! [`LocalObjective`] is one of the three sums, averaged over data in parallel; [`LocalFitter`]
//! minimises it with penalties in scaled coordinates, cross-validates the penalty and computes error
//! bars; [`LocalExact`] enumerates. `mpf-samplers` draws from the same models.
//!
//! Not for Ising models, where `mpf-ising` is some ten times faster.

mod data;
mod errors;
mod exact;
mod fit;
mod objective;

pub use data::SiteData;
pub use errors::LocalErrors;
pub use exact::{ExactLikelihood, LocalExact};
pub use fit::{LocalFitOptions, LocalFitter, LocalPathPoint, Scales};
pub use objective::{LocalLoss, LocalObjective};

use crate::connectivity::Connectivity;
use crate::energy::EnergyModel;

/// A model of d sites with q states each, whose single-site changes are cheap.
///
/// Only [`LocalModel::n_sites`] is required: by default differences come from whole energies, which
/// is slow and right, and a test can compare faster ones with it. The other methods buy speed. A
/// model may keep *surroundings*, numbers of a state from which differences follow at once (local
/// fields, the inputs of hidden units); they are kept up to date as a sampler changes sites.
pub trait LocalModel: EnergyModel<State = [u8]> + Sync {
    /// Returns d, the number of sites.
    fn n_sites(&self) -> usize;

    /// Returns q, the number of states of a site: 2 to 256. Default 2.
    fn n_states(&self) -> usize {
        2
    }

    /// Appends to θ numbers that follow from it alone, such as exponentials of weights: once for all
    /// states. The methods below, and only they, get θ with these numbers. Default: none.
    fn prepare(&self, theta: &mut Vec<f64>) {
        let _ = theta;
    }

    /// Returns how many numbers the surroundings of a state are. Default 0.
    fn n_surroundings(&self) -> usize {
        0
    }

    /// Writes the surroundings of `x`.
    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        let _ = (theta, x, surroundings);
    }

    /// Brings the surroundings up to date after site `site` of `x` was changed from `old` to what it
    /// is now. By default they are computed afresh.
    fn update(&self, theta: &[f64], x: &[u8], site: usize, old: u8, surroundings: &mut [f64]) {
        let _ = (site, old);
        self.surroundings(theta, x, surroundings);
    }

    /// Writes Δ_ia of site i for a = 0, …, q−1; it is 0 for a = x_i.
    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let here = self.energy(at.theta, at.x);
        let mut y = at.x.to_vec();
        for (a, difference) in differences.iter_mut().enumerate() {
            y[site] = a as u8;
            let is_own = y[site] == at.x[site];
            *difference = if is_own {
                0.0
            } else {
                self.energy(at.theta, &y) - here
            };
        }
    }

    /// Writes Δ of all sites, q numbers each.
    fn differences(&self, at: At<'_>, differences: &mut [f64]) {
        let q = self.n_states();
        for (site, differences) in differences.chunks_exact_mut(q).enumerate() {
            self.site_differences(at, site, differences);
        }
    }

    /// Adds Σ_ia `weights[i q + a]` ∂Δ_ia/∂θ to `grad`; `weights[i q + x_i]` is 0.
    fn add_gradient(&self, at: At<'_>, weights: &[f64], grad: &mut [f64]) {
        let mut y = at.x.to_vec();
        for (site, weights) in weights.chunks_exact(self.n_states()).enumerate() {
            for (a, &weight) in weights.iter().enumerate() {
                y[site] = a as u8;
                if weight != 0.0 {
                    self.add_energy_grad(at.theta, &y, weight, grad);
                }
            }
            y[site] = at.x[site];
        }
        self.add_energy_grad(at.theta, at.x, -weights.iter().sum::<f64>(), grad);
    }
}

/// θ as [`LocalModel::prepare`] leaves it, a state and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// θ.
    pub theta: &'a [f64],
    /// The state.
    pub x: &'a [u8],
    /// What [`LocalModel::surroundings`] wrote.
    pub surroundings: &'a [f64],
}

/// All states that differ in one site: the neighbours of [`Flow`](crate::Flow) over which
/// [`LocalLoss::Flow`] is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteChanges {
    /// q, the number of states of a site.
    pub n_states: usize,
}

impl Connectivity<[u8]> for SiteChanges {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        x: &[u8],
        scratch: &mut [u8],
        mut visit: impl FnMut(&[u8], f64),
    ) {
        scratch.copy_from_slice(x);
        for site in 0..x.len() {
            for a in (0..self.n_states)
                .map(|a| a as u8)
                .filter(|&a| a != x[site])
            {
                scratch[site] = a;
                visit(scratch, 0.0);
            }
            scratch[site] = x[site];
        }
    }
}
