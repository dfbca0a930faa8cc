//! Hamiltonian Monte Carlo (the paper's Appendix H).
//!
//! ```text
//! H(q, v) = E(q) + ½ vᵀv,   p(q) ∝ exp(−E(q))
//! transition:  v ~ N(0, I);  L leapfrog steps of ε;  accept with chance min(1, exp(H − H′))
//! ```
//!
//! The step size ε is given, or adapted in a warm-up and then frozen.
//!
//! Not for discrete states, nor for targets whose scales differ by orders of magnitude: there is
//! one step size and no mass matrix, so whiten first.

mod leapfrog;
mod step_size;

pub use leapfrog::{PhasePoint, SmoothEnergy, leapfrog};

use crate::Result;
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::{check_count, check_option};
use ndarray::{Array2, ArrayView1};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// Options of [`Hmc`], unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct HmcOptions {
    /// The step size ε; the first guess when a warm-up follows. Default 0.1.
    pub step_size: f64,
    /// The time ε L of a trajectory: about a quarter turn of the widest direction. Default 1.5.
    pub trajectory: f64,
    /// Every transition scales ε by a factor from [1 − `jitter`, 1 + `jitter`], lest a trajectory
    /// close on itself. Default 0.1.
    pub jitter: f64,
    /// A rise of H beyond this is a divergence; may be +∞. Default 1000.
    pub divergence: f64,
    /// Mean acceptance that the warm-up aims for. Default 0.8.
    pub target_acceptance: f64,
}

impl Default for HmcOptions {
    fn default() -> Self {
        Self {
            step_size: 0.1,
            trajectory: 1.5,
            jitter: 0.1,
            divergence: 1000.0,
            target_acceptance: 0.8,
        }
    }
}

/// Hamiltonian Monte Carlo over an energy, with a fixed step size.
#[derive(Clone, Debug)]
pub struct Hmc<E> {
    energy: E,
    options: HmcOptions,
}

/// A state of an [`Hmc`] chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HmcState {
    /// Its momentum is that of the last transition, redrawn in the next.
    point: PhasePoint,
    proposal: PhasePoint,
}

impl HmcState {
    /// Returns q.
    pub fn position(&self) -> &[f64] {
        &self.point.position
    }

    /// Returns E(q).
    pub fn energy(&self) -> f64 {
        self.point.potential
    }
}

/// A tally of HMC transitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HmcCount {
    /// Transitions made.
    pub transitions: u64,
    /// Transitions accepted.
    pub accepted: u64,
    /// The sum of their acceptance probabilities.
    pub acceptance: f64,
    /// Trajectories that ran off: H rose beyond the limit, or H or q was not finite. Even one means
    /// that part of the target is too steep for this step size, and is missed.
    pub divergences: u64,
    /// Leapfrog steps, with one gradient each.
    pub leapfrog_steps: u64,
}

impl HmcCount {
    /// Returns the mean acceptance probability; NaN without transitions.
    pub fn acceptance_rate(&self) -> f64 {
        self.acceptance / self.transitions as f64
    }
}

impl Tally for HmcCount {
    fn add(&mut self, later: Self) {
        self.transitions = self.transitions.saturating_add(later.transitions);
        self.accepted = self.accepted.saturating_add(later.accepted);
        self.acceptance += later.acceptance;
        self.divergences = self.divergences.saturating_add(later.divergences);
        self.leapfrog_steps = self.leapfrog_steps.saturating_add(later.leapfrog_steps);
    }
}

impl<E: SmoothEnergy> Hmc<E> {
    /// Checks the options, and keeps their step size.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for an option outside its range, [`mpf_core::Error::Count`] for
    /// no dimensions.
    pub fn new(energy: E, options: HmcOptions) -> Result<Self> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let (step, time) = (options.step_size, options.trajectory);
        check_option("step_size", step, "positive and finite", positive(step))?;
        check_option("trajectory", time, "positive and finite", positive(time))?;
        let jitter = options.jitter;
        let holds = (0.0..1.0).contains(&jitter);
        check_option("jitter", jitter, "0 ≤ jitter < 1", holds)?;
        let divergence = options.divergence;
        check_option("divergence", divergence, "positive", divergence > 0.0)?;
        let target = options.target_acceptance;
        let holds = target > 0.0 && target < 1.0;
        check_option("target_acceptance", target, "between 0 and 1", holds)?;
        if energy.n_dims() == 0 {
            check_count("dimensions of the energy", 1, 0)?;
        }
        Ok(Self { energy, options })
    }

    /// Returns the options, with the step size in use.
    pub fn options(&self) -> &HmcOptions {
        &self.options
    }

    /// Returns the energy.
    pub fn energy(&self) -> &E {
        &self.energy
    }

    /// Returns the leapfrog steps of a transition: the trajectory divided by ε, between 1 and
    /// 10 000.
    pub fn n_leapfrog_steps(&self) -> usize {
        // A tiny step from a warm-up must not make a transition endless.
        ((self.options.trajectory / self.options.step_size).round() as usize).clamp(1, 10_000)
    }

    /// Makes a chain's state at `position`.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for a wrong length; [`Entry`](mpf_core::Error::Entry) for a
    /// position that is not finite, [`NonFiniteStart`](crate::Error::NonFiniteStart) where E or ∇E
    /// is not.
    pub fn state(&self, position: &[f64]) -> Result<HmcState> {
        let point = PhasePoint::new(&self.energy, position, &vec![0.0; position.len()])?;
        Ok(HmcState {
            proposal: point.clone(),
            point,
        })
    }
}

impl<E: SmoothEnergy> Sampler for Hmc<E> {
    type State = HmcState;
    type Info = HmcCount;

    fn step<R: Rng + ?Sized>(&self, state: &mut HmcState, rng: &mut R) -> HmcCount {
        let HmcState { point, proposal } = state;
        draw_momentum(&mut point.momentum, rng);
        let jitter = self.options.jitter;
        let scale = 1.0 + jitter * (2.0 * rng.random::<f64>() - 1.0);
        let n_steps = self.n_leapfrog_steps();
        proposal.clone_from(point);
        leapfrog(
            &self.energy,
            proposal,
            scale * self.options.step_size,
            n_steps,
        );
        let rise = proposal.hamiltonian() - point.hamiltonian();
        // Where an energy is flat far out, the position may overflow.
        let diverged =
            !rise.is_finite() || rise > self.options.divergence || !is_finite(&proposal.position);
        let acceptance = if diverged {
            0.0
        } else {
            (-rise).exp().min(1.0)
        };
        let accepted = rng.random::<f64>() < acceptance;
        if accepted {
            std::mem::swap(point, proposal);
        }
        HmcCount {
            transitions: 1,
            accepted: u64::from(accepted),
            acceptance,
            divergences: u64::from(diverged),
            leapfrog_steps: n_steps as u64,
        }
    }
}

impl<E: SmoothEnergy + Sync> ChainSampler for Hmc<E> {
    type Draws = Array2<f64>;

    /// Draws every coordinate uniformly from [−2, 2].
    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<HmcState> {
        let position: Vec<f64> = (0..self.energy.n_dims())
            .map(|_| rng.random_range(-2.0..2.0))
            .collect();
        self.state(&position)
    }

    fn no_draws(&self) -> Array2<f64> {
        Array2::zeros((0, self.energy.n_dims()))
    }

    fn record(&self, state: &HmcState, draws: &mut Array2<f64>) {
        draws
            .push_row(ArrayView1::from(state.position()))
            .expect("a row of the same length");
    }

    fn accepts(&self, state: &HmcState) -> bool {
        let point = &state.point;
        let parts = [&point.position, &point.momentum, &point.gradient];
        parts.map(Vec::len) == [self.energy.n_dims(); 3]
    }
}

fn is_finite(values: &[f64]) -> bool {
    values.iter().all(|v| v.is_finite())
}

fn draw_momentum<R: Rng + ?Sized>(momentum: &mut [f64], rng: &mut R) {
    for v in momentum {
        *v = rng.sample(StandardNormal);
    }
}
