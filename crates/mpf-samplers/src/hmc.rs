//! Leapfrog integration and Hamiltonian Monte Carlo (the paper's Appendix H).
//!
//! ```text
//! H(q, v) = E(q) + ½ vᵀv,   p(q) ∝ exp(−E(q))
//!
//! leapfrog, step ε:  v ← v − ½ε ∇E(q),   q ← q + ε v,   v ← v − ½ε ∇E(q)
//! transition:        v ~ N(0, I);  L leapfrog steps;  accept with chance min(1, exp(H − H′))
//! ```
//!
//! The leapfrog map keeps volume, and integrating again after v ← −v leads back to the start,
//! which is what makes the connectivity of Appendix H symmetric. The step size is adapted in a
//! warm-up by dual averaging (Hoffman & Gelman 2014) and then frozen.
//!
//! Not for discrete states, nor for targets whose scales differ by orders of magnitude:
//! there is one step size and no mass matrix, so whiten first.

use crate::Result;
use crate::error::{Error, check_count, check_finite};
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::check_option;
use mpf_core::rng::stream;
use ndarray::{Array2, ArrayView1};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// E(q) of p(q) ∝ exp(−E(q)), with its gradient.
///
/// Value and gradient come together because they share their work.
pub trait SmoothEnergy {
    /// The length of q.
    fn n_dims(&self) -> usize;

    /// Writes ∇E(q) to `gradient` and returns E(q). +∞ forbids q, and so do −∞ and NaN, here or in
    /// the gradient: no chain stays there. A trajectory may ask at any q, infinite or NaN too.
    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64;
}

impl<E: SmoothEnergy + ?Sized> SmoothEnergy for &E {
    fn n_dims(&self) -> usize {
        (**self).n_dims()
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        (**self).energy_and_gradient(q, gradient)
    }
}

/// A point (q, v) of phase space, with E and ∇E there. Finite when it is made; [`leapfrog`] may
/// change that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePoint {
    /// q.
    pub position: Vec<f64>,
    /// v.
    pub momentum: Vec<f64>,
    /// E(q).
    pub potential: f64,
    /// ∇E(q).
    pub gradient: Vec<f64>,
}

impl PhasePoint {
    /// The point at `position` with `momentum`.
    ///
    /// # Errors
    /// [`Error::Count`] for a wrong length; [`Error::NotFinite`] for a position or momentum that is
    /// not finite, [`Error::NonFiniteStart`] where E or ∇E is not.
    pub fn new<E: SmoothEnergy>(energy: &E, position: &[f64], momentum: &[f64]) -> Result<Self> {
        check_count("entries of the position", energy.n_dims(), position.len())?;
        check_count("entries of the momentum", energy.n_dims(), momentum.len())?;
        check_finite("position", position)?;
        check_finite("momentum", momentum)?;
        let mut gradient = vec![0.0; position.len()];
        let potential = energy.energy_and_gradient(position, &mut gradient);
        let gradient_index = gradient.iter().position(|g| !g.is_finite());
        if !potential.is_finite() || gradient_index.is_some() {
            return Err(Error::NonFiniteStart {
                energy: potential,
                gradient_index,
            });
        }
        Ok(Self {
            position: position.to_vec(),
            momentum: momentum.to_vec(),
            potential,
            gradient,
        })
    }

    /// H = E(q) + ½ vᵀv. +∞ where vᵀv overflows; not finite where the point is not.
    pub fn hamiltonian(&self) -> f64 {
        self.potential + 0.5 * self.momentum.iter().map(|v| v * v).sum::<f64>()
    }

    /// v ← −v.
    pub fn negate_momentum(&mut self) {
        for v in &mut self.momentum {
            *v = -*v;
        }
    }
}

/// Moves `point` by `n_steps` leapfrog steps of `step_size`. `n_steps` evaluations of E.
///
/// Negating the momentum and integrating again leads back to the start, to rounding, unless the
/// trajectory is chaotic or crosses a kink of E. Stops early where E is not finite, and leaves
/// the point there. Steps that are too long, or a gradient that is not finite, may leave numbers
/// that are not finite in the point: look before you use it.
///
/// ```
/// use mpf_samplers::hmc::{PhasePoint, SmoothEnergy, leapfrog};
///
/// struct Bowl;
/// impl SmoothEnergy for Bowl {
///     fn n_dims(&self) -> usize { 1 }
///     fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
///         gradient[0] = q[0];
///         0.5 * q[0] * q[0]
///     }
/// }
/// let mut point = PhasePoint::new(&Bowl, &[1.0], &[0.0])?;
/// leapfrog(&Bowl, &mut point, 0.01, 314);
/// assert!((point.position[0] + 1.0).abs() < 1e-4); // half a turn: cos π
/// point.negate_momentum();
/// leapfrog(&Bowl, &mut point, 0.01, 314);
/// assert!((point.position[0] - 1.0).abs() < 1e-12);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
///
/// # Panics
/// May panic when `point` is of another energy.
pub fn leapfrog<E: SmoothEnergy>(
    energy: &E,
    point: &mut PhasePoint,
    step_size: f64,
    n_steps: usize,
) {
    let PhasePoint {
        position,
        momentum,
        potential,
        gradient,
    } = point;
    let kick = |momentum: &mut [f64], gradient: &[f64], by: f64| {
        for (v, g) in momentum.iter_mut().zip(gradient) {
            *v -= by * g;
        }
    };
    for _ in 0..n_steps {
        // Two half kicks, never joined to a whole one: then every step is the mirror image of
        // its reverse.
        kick(momentum, gradient, 0.5 * step_size);
        for (q, v) in position.iter_mut().zip(&*momentum) {
            *q += step_size * v;
        }
        *potential = energy.energy_and_gradient(position, gradient);
        if !potential.is_finite() {
            return;
        }
        kick(momentum, gradient, 0.5 * step_size);
    }
}

/// Options of [`Hmc`], unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct HmcOptions {
    /// ε; the first guess when a warm-up follows. Default 0.1.
    pub step_size: f64,
    /// ε L, the time of a trajectory: about a quarter turn of the widest direction. Default 1.5.
    pub trajectory: f64,
    /// Every transition scales ε by a factor from [1 − `jitter`, 1 + `jitter`], so that no
    /// trajectory closes on itself. Default 0.1.
    pub jitter: f64,
    /// H beyond the start by more than this is a divergence; may be +∞. Default 1000.
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

/// Where an [`Hmc`] chain is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HmcState {
    /// The momentum is of the last transition and redrawn in the next.
    point: PhasePoint,
    proposal: PhasePoint,
}

impl HmcState {
    /// q; finite.
    pub fn position(&self) -> &[f64] {
        &self.point.position
    }

    /// E(q); finite.
    pub fn energy(&self) -> f64 {
        self.point.potential
    }
}

/// What HMC transitions did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HmcCount {
    /// Transitions counted.
    pub transitions: u64,
    /// How many were accepted.
    pub accepted: u64,
    /// The sum of their acceptance probabilities.
    pub acceptance: f64,
    /// Trajectories that ran off: H rose beyond the limit, or H or q was not finite. Any at all mean
    /// that part of the target is too steep for this step size, and is missed.
    pub divergences: u64,
    /// Leapfrog steps, each one gradient.
    pub leapfrog_steps: u64,
}

impl HmcCount {
    /// The mean acceptance probability: finite, between 0 and 1, but NaN without transitions.
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
    /// HMC with the step size of the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for an option outside its range, [`Error::Count`] for no dimensions.
    pub fn new(energy: E, options: HmcOptions) -> Result<Self> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let HmcOptions {
            step_size,
            trajectory,
            jitter,
            divergence,
            target_acceptance,
        } = options;
        for (name, value) in [("step_size", step_size), ("trajectory", trajectory)] {
            check_option(name, value, "positive and finite", positive(value))?;
        }
        check_option(
            "jitter",
            jitter,
            "0 ≤ jitter < 1",
            (0.0..1.0).contains(&jitter),
        )?;
        check_option("divergence", divergence, "positive", divergence > 0.0)?;
        check_option(
            "target_acceptance",
            target_acceptance,
            "between 0 and 1",
            target_acceptance > 0.0 && target_acceptance < 1.0,
        )?;
        if energy.n_dims() == 0 {
            return Err(Error::Count {
                what: "dimensions of the energy",
                expected: 1,
                found: 0,
            });
        }
        Ok(Self { energy, options })
    }

    /// Adapts the step size over `n_steps` transitions from `start`, then freezes it. Returns the
    /// sampler, the state reached, and what the transitions did. The step size stays positive and
    /// finite, whatever the energy does.
    ///
    /// # Errors
    /// As [`Hmc::new`] and [`Hmc::state`].
    pub fn warm_up(
        energy: E,
        options: HmcOptions,
        start: &[f64],
        n_steps: usize,
        seed: u64,
    ) -> Result<(Self, HmcState, HmcCount)> {
        let mut hmc = Self::new(energy, options)?;
        let mut state = hmc.state(start)?;
        let mut rng = stream(seed, 0);
        let mut count = HmcCount::default();
        hmc.options.step_size = hmc.rough_step_size(&state, &mut rng);
        let mut averaging = DualAveraging::new(hmc.options.step_size);
        for _ in 0..n_steps {
            let told = hmc.step(&mut state, &mut rng);
            averaging.update(hmc.options.target_acceptance - told.acceptance);
            hmc.options.step_size = averaging.step_size();
            count.add(told);
        }
        if n_steps > 0 {
            hmc.options.step_size = averaging.averaged_step_size();
        }
        Ok((hmc, state, count))
    }

    /// The options, with the step size that is in use.
    pub fn options(&self) -> &HmcOptions {
        &self.options
    }

    /// The energy.
    pub fn energy(&self) -> &E {
        &self.energy
    }

    /// Leapfrog steps of a transition: the trajectory divided by ε, at least 1 and at most 10 000.
    pub fn n_leapfrog_steps(&self) -> usize {
        // A step that a warm-up drove to nothing must not make a transition endless.
        ((self.options.trajectory / self.options.step_size).round() as usize).clamp(1, 10_000)
    }

    /// A chain's state at `position`.
    ///
    /// # Errors
    /// [`Error::Count`] for a wrong length; [`Error::NotFinite`] for a position that is not finite,
    /// [`Error::NonFiniteStart`] where E or ∇E is not.
    pub fn state(&self, position: &[f64]) -> Result<HmcState> {
        let point = PhasePoint::new(&self.energy, position, &vec![0.0; position.len()])?;
        Ok(HmcState {
            proposal: point.clone(),
            point,
        })
    }

    /// Doubles or halves ε until one leapfrog step is accepted about half of the time (Hoffman &
    /// Gelman, Algorithm 4).
    fn rough_step_size<R: Rng + ?Sized>(&self, state: &HmcState, rng: &mut R) -> f64 {
        let mut start = state.point.clone();
        draw_momentum(&mut start.momentum, rng);
        let accepted = |step_size: f64| {
            let mut point = start.clone();
            leapfrog(&self.energy, &mut point, step_size, 1);
            // NaN counts as rejected.
            start.hamiltonian() - point.hamiltonian() > 0.5f64.ln() && is_finite(&point.position)
        };
        let mut step_size = self.options.step_size;
        let grow = accepted(step_size);
        for _ in 0..60 {
            let next = if grow {
                2.0 * step_size
            } else {
                0.5 * step_size
            };
            // Beyond the ends of `f64` there is no step size.
            if clamp_step(next) != next {
                return step_size;
            }
            if accepted(next) != grow {
                return if grow { step_size } else { next };
            }
            step_size = next;
        }
        step_size
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
        // An energy that is flat far out would let a position overflow.
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

    /// Every coordinate uniform on [−2, 2].
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
        let PhasePoint {
            position,
            momentum,
            gradient,
            ..
        } = &state.point;
        [position, momentum, gradient].map(Vec::len) == [self.energy.n_dims(); 3]
    }
}

fn is_finite(values: &[f64]) -> bool {
    values.iter().all(|v| v.is_finite())
}

/// The nearest step size that is positive and finite.
fn clamp_step(step_size: f64) -> f64 {
    step_size.clamp(f64::MIN_POSITIVE, f64::MAX)
}

fn draw_momentum<R: Rng + ?Sized>(momentum: &mut [f64], rng: &mut R) {
    for v in momentum {
        *v = rng.sample(StandardNormal);
    }
}

/// Nesterov's dual averaging of ln ε with Hoffman & Gelman's constants (their Eq. 6).
struct DualAveraging {
    /// Where ln ε is drawn to: ten times the first guess.
    centre: f64,
    round: f64,
    /// The running mean of target − acceptance.
    shortfall: f64,
    log_step: f64,
    log_averaged: f64,
}

impl DualAveraging {
    fn new(step_size: f64) -> Self {
        Self {
            centre: clamp_step(10.0 * step_size).ln(),
            round: 0.0,
            shortfall: 0.0,
            log_step: step_size.ln(),
            log_averaged: 0.0,
        }
    }

    fn update(&mut self, shortfall: f64) {
        const GAMMA: f64 = 0.05;
        const DELAY: f64 = 10.0;
        const KAPPA: f64 = 0.75;
        self.round += 1.0;
        let weight = 1.0 / (self.round + DELAY);
        self.shortfall += weight * (shortfall - self.shortfall);
        self.log_step = self.centre - self.round.sqrt() / GAMMA * self.shortfall;
        let keep = self.round.powf(-KAPPA);
        self.log_averaged += keep * (self.log_step - self.log_averaged);
    }

    fn step_size(&self) -> f64 {
        clamp_step(self.log_step.exp())
    }

    fn averaged_step_size(&self) -> f64 {
        clamp_step(self.log_averaged.exp())
    }
}
