//! Adaptation of the step size in a warm-up, by dual averaging (Hoffman & Gelman 2014).

use super::leapfrog::{SmoothEnergy, leapfrog};
use super::{Hmc, HmcCount, HmcOptions, HmcState, draw_momentum, is_finite};
use crate::Result;
use crate::sampler::{Sampler, Tally};
use mpf_core::rng::stream;
use rand::Rng;

impl<E: SmoothEnergy> Hmc<E> {
    /// Adapts the step size over `n_steps` transitions from `start`, then freezes it. Returns the
    /// sampler, the state reached and the tally of the transitions. The step size stays positive
    /// and finite for every energy.
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
            let info = hmc.step(&mut state, &mut rng);
            averaging.update(hmc.options.target_acceptance - info.acceptance);
            hmc.options.step_size = averaging.step_size();
            count.add(info);
        }
        if n_steps > 0 {
            hmc.options.step_size = averaging.averaged_step_size();
        }
        Ok((hmc, state, count))
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

/// Returns the nearest step size that is positive and finite.
fn clamp_step(step_size: f64) -> f64 {
    step_size.clamp(f64::MIN_POSITIVE, f64::MAX)
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
