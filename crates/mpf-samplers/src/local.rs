//! Gibbs sampling of any [`LocalModel`].
//!
//! ```text
//! p(x_i = a | rest) ∝ exp(−β Δ_ia),   Δ_ia = E(x with x_i = a) − E(x)
//! ```
//!
//! A sweep visits the sites in their order. The model's surroundings are kept up to date from change
//! to change, and computed afresh from time to time so that rounding does not build up.
//! [`Tempering`](crate::Tempering) and [`annealed_log_z_of`](crate::annealed_log_z_of) run over it:
//!
//! ```
//! # use mpf_core::{EnergyModel, LocalModel};
//! # struct Independent;
//! # impl EnergyModel for Independent {
//! #     type State = [u8];
//! #     fn n_params(&self) -> usize { 1 }
//! #     fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
//! #         theta[0] * x.iter().map(|&x| f64::from(x)).sum::<f64>()
//! #     }
//! #     fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
//! #         out[0] += scale * x.iter().map(|&x| f64::from(x)).sum::<f64>();
//! #     }
//! # }
//! # impl LocalModel for Independent {
//! #     fn n_sites(&self) -> usize { 3 }
//! # }
//! use mpf_samplers::{AnnealedOptions, LocalGibbs, annealed_log_z_of, draw};
//!
//! let (model, theta) = (Independent, [0.5]);
//! let gibbs = LocalGibbs::new(&model, &theta, 1.0)?;
//! assert_eq!(draw(&gibbs, 100, 1)?.dim(), (100, 3));
//!
//! let found = annealed_log_z_of(gibbs.log_states(), &AnnealedOptions::default(), |beta| {
//!     LocalGibbs::new(&model, &theta, beta)
//! })?;
//! // Three independent sites: Z = (1 + e^−½)³.
//! let exact = 3.0 * (-0.5f64).exp().ln_1p();
//! assert!((found.log_z - exact).abs() < 5.0 * found.standard_error);
//! # Ok::<(), mpf_samplers::Error>(())
//! ```

use crate::Result;
use crate::gibbs::FlipCount;
use crate::sampler::{ChainSampler, Heated, Sampler};
use mpf_core::{At, LocalModel, check_count, check_finite, check_not_negative};
use mpf_ising::{States, get_bit};
use ndarray::{Array2, ArrayView1};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Sweeps after which surroundings are computed afresh.
const REFRESH_SWEEPS: u32 = 1024;

/// Gibbs sweeps of a model at fixed parameters.
pub struct LocalGibbs<'a, M> {
    model: &'a M,
    /// With what the model prepares.
    theta: Vec<f64>,
    inverse_temperature: f64,
}

/// The state of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalState {
    sites: Vec<u8>,
    surroundings: Vec<f64>,
    sweeps_since_refresh: u32,
}

impl LocalState {
    /// Returns x.
    pub fn sites(&self) -> &[u8] {
        &self.sites
    }
}

impl<'a, M: LocalModel> LocalGibbs<'a, M> {
    /// Samples exp(−β E(x; θ)); β = 1 is the model itself.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for another number of parameters,
    /// [`mpf_core::Error::Entry`] for a parameter,
    /// [`mpf_core::Error::Option`] for a β that is negative or not finite.
    pub fn new(model: &'a M, theta: &[f64], beta: f64) -> Result<Self> {
        check_count("parameters", model.n_params(), theta.len())?;
        check_finite("parameters", theta)?;
        check_not_negative("inverse_temperature", beta)?;
        let mut theta = theta.to_vec();
        model.prepare(&mut theta);
        Ok(Self {
            model,
            theta,
            inverse_temperature: beta,
        })
    }

    /// Returns d ln q, the logarithm of the number of all states: ln Z at β = 0.
    pub fn log_states(&self) -> f64 {
        self.model.n_sites() as f64 * (self.model.n_states() as f64).ln()
    }

    /// Makes a chain's state of x.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for another number of sites, [`mpf_core::Error::Entry`] for a state
    /// that a site does not have.
    pub fn state(&self, sites: &[u8]) -> Result<LocalState> {
        check_count("sites of a state", self.model.n_sites(), sites.len())?;
        if let Some(index) = sites.iter().position(|&a| !self.is_state(a)) {
            return Err(mpf_core::Error::Entry {
                what: "sites",
                index,
                value: f64::from(sites[index]),
                requirement: "below the number of states of a site",
            }
            .into());
        }
        let mut surroundings = vec![0.0; self.model.n_surroundings()];
        self.model
            .surroundings(&self.theta, sites, &mut surroundings);
        Ok(LocalState {
            sites: sites.to_vec(),
            surroundings,
            sweeps_since_refresh: 0,
        })
    }

    fn is_state(&self, a: u8) -> bool {
        usize::from(a) < self.model.n_states()
    }
}

/// Draws a from weights exp(−β Δ_a), which it overwrites. A Δ that is NaN or +∞ has no weight;
/// without any weight the site stays as it is.
fn draw_site(beta: f64, differences: &mut [f64], own: u8, u: f64) -> u8 {
    let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sum = 0.0;
    for d in differences.iter_mut() {
        // 0 · ∞ is NaN: forbidden states stay so at β = 0.
        let weight = (beta * (least - *d)).exp();
        sum += if weight.is_nan() { 0.0 } else { weight };
        *d = sum;
    }
    let chosen = differences.iter().position(|&c| u * sum < c);
    chosen.map_or(own, |a| a as u8)
}

impl<M: LocalModel> Sampler for LocalGibbs<'_, M> {
    type State = LocalState;
    type Info = FlipCount;

    fn step<R: Rng + ?Sized>(&self, state: &mut LocalState, rng: &mut R) -> FlipCount {
        let LocalState {
            sites,
            surroundings,
            sweeps_since_refresh,
        } = state;
        *sweeps_since_refresh = sweeps_since_refresh.saturating_add(1);
        if *sweeps_since_refresh >= REFRESH_SWEEPS {
            *sweeps_since_refresh = 0;
            self.model.surroundings(&self.theta, sites, surroundings);
        }
        let mut buffer = [0.0; 256];
        let differences = &mut buffer[..self.model.n_states()];
        let mut changes = 0;
        for site in 0..sites.len() {
            let at = At {
                theta: &self.theta,
                x: sites,
                surroundings,
            };
            self.model.site_differences(at, site, differences);
            let old = sites[site];
            let new = draw_site(self.inverse_temperature, differences, old, rng.random());
            if new != old {
                sites[site] = new;
                self.model
                    .update(&self.theta, sites, site, old, surroundings);
                changes += 1;
            }
        }
        FlipCount {
            updates: sites.len() as u64,
            flips: changes,
        }
    }
}

impl<M: LocalModel> ChainSampler for LocalGibbs<'_, M> {
    type Draws = Array2<u8>;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<LocalState> {
        let q = self.model.n_states();
        let sites = (0..self.model.n_sites()).map(|_| rng.random_range(0..q) as u8);
        self.state(&sites.collect::<Vec<_>>())
    }

    fn no_draws(&self) -> Array2<u8> {
        Array2::zeros((0, self.model.n_sites()))
    }

    fn record(&self, state: &LocalState, draws: &mut Array2<u8>) {
        let row = ArrayView1::from(&state.sites);
        draws.push_row(row).expect("draws of the same model");
    }

    fn accepts(&self, state: &LocalState) -> bool {
        state.sites.len() == self.model.n_sites()
            && state.sites.iter().all(|&a| self.is_state(a))
            && state.surroundings.len() == self.model.n_surroundings()
    }
}

impl<M: LocalModel> Heated for LocalGibbs<'_, M> {
    fn inverse_temperature(&self) -> f64 {
        self.inverse_temperature
    }

    fn energy(&self, state: &LocalState) -> f64 {
        self.model.energy(&self.theta, &state.sites)
    }
}

/// [`LocalGibbs`] of binary sites that records packed [`States`], as the samplers of Ising models do.
pub struct BinaryGibbs<'a, M>(LocalGibbs<'a, M>);

impl<'a, M: LocalModel> BinaryGibbs<'a, M> {
    /// Samples exp(−β E(x; θ)).
    ///
    /// # Errors
    /// As [`LocalGibbs::new`]; [`mpf_core::Error::Count`] for a model whose sites are not binary.
    pub fn new(model: &'a M, theta: &[f64], beta: f64) -> Result<Self> {
        check_count("states of a binary site", 2, model.n_states())?;
        LocalGibbs::new(model, theta, beta).map(Self)
    }

    /// Returns d ln 2.
    pub fn log_states(&self) -> f64 {
        self.0.log_states()
    }

    /// Makes a chain's state of a packed row.
    ///
    /// # Errors
    /// As [`LocalGibbs::state`].
    pub fn state(&self, row: &[u64]) -> Result<LocalState> {
        let sites = (0..self.0.model.n_sites()).map(|i| u8::from(get_bit(row, i)));
        self.0.state(&sites.collect::<Vec<_>>())
    }
}

impl<M: LocalModel> Sampler for BinaryGibbs<'_, M> {
    type State = LocalState;
    type Info = FlipCount;

    fn step<R: Rng + ?Sized>(&self, state: &mut LocalState, rng: &mut R) -> FlipCount {
        self.0.step(state, rng)
    }
}

impl<M: LocalModel> ChainSampler for BinaryGibbs<'_, M> {
    type Draws = States;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<LocalState> {
        self.0.random_start(rng)
    }

    fn no_draws(&self) -> States {
        States::new(self.0.model.n_sites()).expect("a model has sites")
    }

    fn record(&self, state: &LocalState, draws: &mut States) {
        let mut row = vec![0u64; draws.words_per_row()];
        for (i, _) in state.sites.iter().enumerate().filter(|(_, x)| **x == 1) {
            row[i / 64] |= 1 << (i % 64);
        }
        draws.push(&row);
    }

    fn accepts(&self, state: &LocalState) -> bool {
        self.0.accepts(state)
    }
}

impl<M: LocalModel> Heated for BinaryGibbs<'_, M> {
    fn inverse_temperature(&self) -> f64 {
        self.0.inverse_temperature()
    }

    fn energy(&self, state: &LocalState) -> f64 {
        self.0.energy(state)
    }
}
