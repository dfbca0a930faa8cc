//! V of K-pairwise models, E(x) = xᵀJx + V(n), n = Σ_i x_i: how it is fitted, and what it is where the
//! data show nothing.
//!
//! The parameters are V at the *knots*, the numbers n that the samples show. Between two knots V is
//! a straight line. Below the first and above the last knot, n is left out of the fit: flips that
//! lead there do not count, as if these n were forbidden. The smoothing adds
//! ½ γ Σ_n [V(n−1) − 2 V(n) + V(n+1)]² over the n between the first and the last knot.
//!
//! Forbidden states would make a sample that is seen later impossible, and V = 0 there can leave a
//! second mode in which nearly everything is active. So after the fit the numbers beyond the last
//! knot N (and likewise below the first) get, together, the probability of half a sample:
//!
//! ```text
//! P(N + k) = 2^−k · ½/M        V(n) = V(A) + ln(Z_n/Z_A) − ln(P(n)/P(A))
//! Z_n = Σ_{|x| = n} exp(−xᵀJx)
//! ```
//!
//! A, the *anchor*, is the number that most samples show, and P(A) is from the data. Single flips say
//! little about numbers that few samples show, and next to nothing across a gap, where a second mode of
//! the data may get any weight. So V of the other numbers is set to the data's P(n) as well (in a gap: half a
//! sample) where the model would show n more than twice as often, or, if 100 samples show it, less than
//! half as often. That is what maximum likelihood asks of V, given J.
//!
//! Z_n comes from particles that begin with nothing active and gain one unit at a time, i with probability
//! ∝ exp(−Δ_i), and exchange units in between: Z_{n+1}/Z_n = ⟨Σ_{i silent} exp(−Δ_i)⟩/(n + 1). Others
//! begin with everything active and lose units. Particles that miss a mode find too small a Z_n, so that the
//! larger of the two counts. Then chains of exp(−xᵀJx)/Z_n, which show every n equally often if Z_n is right,
//! correct it by how often they show it.
//!
//! V(n) = a + b n + c n² is the same as J_ij + c for all i and j and J_ii + b. The fit leaves V without
//! such a part, by least squares over the samples: what pairs can say is in J. (Where biases or couplings
//! are not free, V keeps the part that they cannot take.)

use crate::Result;
use crate::bits::n_active;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::stream::Data;
use crate::warning::Warning;
use mpf_core::Cancel;
use mpf_core::rng::{Xoshiro256PlusPlus, substream};
use rand::{Rng, RngExt};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::f64::consts::LN_2;

/// How V is fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountPotential {
    /// γ, on ½ Σ_n [V(n−1) − 2 V(n) + V(n+1)]². Default 0: V is free.
    pub smoothness: f64,
}

/// The knots of V, and the smoothing between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountKnots {
    knots: Vec<usize>,
    /// The weight of the samples at every knot, of all.
    shares: Vec<f64>,
    smoothness: f64,
    /// How many of 1, n, n² are left to J.
    gauge: usize,
}

impl CountKnots {
    /// Takes the numbers that `data` show; `gauge` of 1, n, n² are left to J.
    ///
    /// # Errors
    /// [`Error::OneCount`] when there is only one: V is not identified.
    pub fn new(data: Data<'_>, options: CountPotential, gauge: usize) -> Result<Self> {
        let mut shares = vec![0.0; data.n_units() + 1];
        match data {
            Data::Samples(samples) => {
                for (m, row) in samples.states().rows().enumerate() {
                    shares[n_active(row)] += samples.weight(m) / samples.total_weight();
                }
            }
            Data::Stream(stream) => {
                for (share, weight) in shares.iter_mut().zip(stream.count_weights()) {
                    *share = weight / stream.total_weight();
                }
            }
        }
        let knots: Vec<usize> = (0..shares.len()).filter(|&n| shares[n] > 0.0).collect();
        if knots.len() < 2 {
            return Err(Error::OneCount { n_active: knots[0] });
        }
        Ok(Self {
            shares: knots.iter().map(|&n| shares[n]).collect(),
            knots,
            smoothness: options.smoothness,
            gauge,
        })
    }

    /// Warns where V is nothing but what is left to J.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let n_counts = self.n_knots();
        (n_counts <= self.gauge).then_some(Warning::PotentialNotIdentified { n_counts })
    }

    /// Takes all numbers, for a V that is known.
    pub(crate) fn all(n_units: usize) -> Self {
        Self {
            knots: (0..=n_units).collect(),
            shares: Vec::new(),
            smoothness: 0.0,
            gauge: 0,
        }
    }

    /// Returns the number of values that are parameters.
    pub fn n_knots(&self) -> usize {
        self.knots.len()
    }

    /// Returns the numbers themselves.
    pub fn knots(&self) -> &[usize] {
        &self.knots
    }

    fn first(&self) -> usize {
        self.knots[0]
    }

    fn last(&self) -> usize {
        self.knots[self.knots.len() - 1]
    }

    /// Returns V at the knots.
    pub(crate) fn values<'a>(&'a self, potential: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.knots.iter().map(|&n| potential[n])
    }

    /// Returns the units of V at the knots in which its curvature is about 1: a share p of the
    /// samples has d flips each, and as many lead there.
    pub(crate) fn scales(&self, n_units: usize) -> impl Iterator<Item = f64> + '_ {
        let curvature = move |share: f64| (0.5 * n_units as f64 * share).max(f64::MIN_POSITIVE);
        self.shares
            .iter()
            .map(move |&p| curvature(p).sqrt().recip())
    }

    /// Returns what of 1, n, n² is left to J, orthonormal in the units of [`CountKnots::scales`].
    pub(crate) fn null_space(&self) -> Vec<Vec<f64>> {
        let mut found: Vec<Vec<f64>> = Vec::new();
        for power in 0..self.gauge as i32 {
            let knots = self.knots.iter().zip(&self.shares);
            // Units are those of 1/√share.
            let mut next: Vec<f64> = knots
                .map(|(&n, p)| (n as f64 / self.last() as f64).powi(power) * p.sqrt())
                .collect();
            let length = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
            let before = length(&next);
            // Twice: rounding.
            for _ in 0..2 {
                for q in &found {
                    let along: f64 = q.iter().zip(&next).map(|(q, x)| q * x).sum();
                    next.iter_mut().zip(q).for_each(|(x, q)| *x -= along * q);
                }
            }
            let after = length(&next);
            if after > 1e-9 * before {
                next.iter_mut().for_each(|x| *x /= after);
                found.push(next);
            }
        }
        found
    }

    /// Returns a, b, c of the part a + b n + c n² of V at the knots that is left to J: its least-squares
    /// fit over the samples.
    pub(crate) fn polynomial(&self, values: &[f64]) -> [f64; 3] {
        let scaled: Vec<f64> = values
            .iter()
            .zip(&self.shares)
            .map(|(v, p)| v * p.sqrt())
            .collect();
        let mut part = vec![0.0; values.len()];
        for q in self.null_space() {
            let along: f64 = q.iter().zip(&scaled).map(|(q, x)| q * x).sum();
            part.iter_mut().zip(&q).for_each(|(x, q)| *x += along * q);
        }
        for (x, p) in part.iter_mut().zip(&self.shares) {
            *x /= p.sqrt();
        }
        // A polynomial through two or three of its points.
        let degree = self.gauge.min(self.knots.len()).saturating_sub(1);
        let at = |k: usize| (self.knots[k] as f64, part[k]);
        let ((x, f), (y, g), (z, h)) = (at(0), at(self.knots.len() / 2), at(self.knots.len() - 1));
        match degree {
            0 => [f, 0.0, 0.0],
            1 => {
                let b = (h - f) / (z - x);
                [f - b * x, b, 0.0]
            }
            _ => {
                let (first, second) = ((g - f) / (y - x), (h - g) / (z - y));
                let c = (second - first) / (z - x);
                let b = first - c * (x + y);
                [f - b * x - c * x * x, b, c]
            }
        }
    }

    /// Writes V between the first and the last knot.
    pub fn expand(&self, values: &[f64], potential: &mut [f64]) {
        for (pair, ends) in values.windows(2).zip(self.knots.windows(2)) {
            let (from, to) = (ends[0], ends[1]);
            for (k, v) in potential[from..=to].iter_mut().enumerate() {
                let share = k as f64 / (to - from) as f64;
                *v = (1.0 - share) * pair[0] + share * pair[1];
            }
        }
    }

    /// Returns ½[V(n+1) − V(n)] and ½[V(n−1) − V(n)], +∞ where V is not known.
    pub(crate) fn shifts(&self, potential: &[f64], n: usize) -> [f64; 2] {
        let step = |known: bool, to: usize| {
            if known {
                0.5 * (potential[to] - potential[n])
            } else {
                f64::INFINITY
            }
        };
        [
            step(n >= self.first() && n < self.last(), n + 1),
            step(n > self.first() && n <= self.last(), n.wrapping_sub(1)),
        ]
    }

    /// Returns the smoothing, and writes its slopes and those of the shifts by knot.
    pub(crate) fn pull_back(
        &self,
        potential: &[f64],
        shift_slopes: &[[f64; 2]],
        grad: &mut [f64],
    ) -> f64 {
        let mut slopes = vec![0.0; potential.len()];
        for (n, [silent, active]) in shift_slopes.iter().enumerate() {
            slopes[n] -= 0.5 * (silent + active);
            if *silent != 0.0 {
                slopes[n + 1] += 0.5 * silent;
            }
            if *active != 0.0 {
                slopes[n - 1] += 0.5 * active;
            }
        }
        let mut penalty = 0.0;
        for n in self.first() + 1..self.last() {
            let bend = potential[n - 1] - 2.0 * potential[n] + potential[n + 1];
            penalty += 0.5 * self.smoothness * bend * bend;
            for (at, factor) in [(n - 1, 1.0), (n, -2.0), (n + 1, 1.0)] {
                slopes[at] += self.smoothness * factor * bend;
            }
        }
        grad.fill(0.0);
        for (k, ends) in self.knots.windows(2).enumerate() {
            let (from, to) = (ends[0], ends[1]);
            // A knot belongs to the interval above it, and the last to the one below.
            let inside = from..to + usize::from(to == self.last());
            for n in inside {
                let share = (n - from) as f64 / (to - from) as f64;
                grad[k] += (1.0 - share) * slopes[n];
                grad[k + 1] += share * slopes[n];
            }
        }
        penalty
    }

    /// Returns the model with V everywhere, given V at the knots. Once `cancel` is set, V beyond the knots
    /// is rougher.
    pub(crate) fn complete(
        &self,
        couplings: &Couplings,
        values: &[f64],
        data: Data<'_>,
        cancel: &Cancel,
    ) -> Result<Couplings> {
        let d = data.n_units();
        let mut potential = vec![0.0; d + 1];
        self.expand(values, &mut potential);
        let [a, b, c] = self.polynomial(values);
        for (n, v) in potential.iter_mut().enumerate() {
            let n = n as f64;
            *v -= a + b * n + c * n * n;
        }
        let mut j = couplings.as_array() + c;
        j.diag_mut().iter_mut().for_each(|bias| *bias += b);
        let couplings = Couplings::new(j)?;
        let log_z = log_z(&couplings, cancel);
        self.match_data(&log_z, data.n_effective(), &mut potential);
        couplings.with_potential(potential)
    }

    /// Writes V beyond the knots, and where the model would show a number far too often or too rarely, for
    /// `n_effective` samples.
    fn match_data(&self, log_z: &[f64], n_effective: f64, potential: &mut [f64]) {
        let share = |n: usize| match self.knots.binary_search(&n) {
            Ok(at) => self.shares[at],
            Err(_) => 0.0,
        };
        let of_most = |a: &&usize, b: &&usize| share(**a).total_cmp(&share(**b));
        let anchor = *self.knots.iter().max_by(of_most).expect("two knots");
        let constant = potential[anchor] - log_z[anchor] + share(anchor).ln();
        for (n, v) in potential.iter_mut().enumerate() {
            let beyond = n.saturating_sub(self.last()) + self.first().saturating_sub(n);
            let wanted = match share(n) {
                0.0 => 0.5f64.powi(beyond as i32) * 0.5 / n_effective,
                share => share,
            };
            // Far beyond the knots it is no number any more, but its logarithm is.
            let log_wanted = match wanted >= f64::MIN_POSITIVE {
                true => wanted.ln(),
                false => (0.5 / n_effective).ln() - beyond as f64 * LN_2,
            };
            let level = constant + log_z[n] - log_wanted;
            let is_enough = wanted * n_effective >= ENOUGH;
            let too_often = level - *v > 2f64.ln();
            let too_rarely = is_enough && *v - level > 2f64.ln();
            if beyond > 0 || too_often || too_rarely {
                *v = level;
            }
        }
    }
}

/// Samples that determine P(n).
const ENOUGH: f64 = 100.0;
/// Particles that begin at either end.
const PARTICLES: usize = 256;
/// The fewest of them, where more would take longer than the fit.
const FEWEST_PARTICLES: usize = 16;
/// How many are left when there is no more time.
const PARTICLES_LEFT: usize = 2;
/// Exchanges that a particle tries after every step.
const EXCHANGES: usize = 10;
/// Log odds that all particles of one end change, or all chains: a second or two of work.
const MOST_CHANGES: usize = 1_500_000_000;
/// Chains that correct what the particles found.
const CHAINS: usize = 8;
/// Corrections. In the first half a Z_n only grows, which finds modes that the particles missed; then
/// every round is half as long again as the one before.
const ROUNDS: usize = 20;
/// Sweeps of a chain in the first rounds.
const SWEEPS: usize = 20;

/// Returns how many particles begin at either end of `d` units.
fn n_particles(d: usize) -> usize {
    let changes_of_one = d.saturating_mul(d).saturating_mul(2 * EXCHANGES + 2);
    (MOST_CHANGES / changes_of_one).clamp(FEWEST_PARTICLES, PARTICLES)
}

/// Returns ln Z_n of xᵀJx for n = 0, …, d, by Monte Carlo with fixed seeds. Once `cancel` is set, a few
/// particles go on without exchanges, and nothing is corrected.
fn log_z(couplings: &Couplings, cancel: &Cancel) -> Vec<f64> {
    let (up, down) = rayon::join(
        || log_z_from_one_end(couplings, true, cancel),
        || log_z_from_one_end(couplings, false, cancel),
    );
    let mut log_z: Vec<f64> = up.iter().zip(down).map(|(a, b)| a.max(b)).collect();
    flatten(couplings, &mut log_z, cancel);
    log_z
}

/// Corrects ln Z_n by how often chains of exp(−xᵀJx)/Z_n show n.
fn flatten(couplings: &Couplings, log_z: &mut [f64], cancel: &Cancel) {
    let d = couplings.n_units();
    let mut chains: Vec<Chain> = (0..CHAINS).map(|k| Chain::new(couplings, k)).collect();
    // Of all rounds together, 123 times the first sweeps.
    let most = MOST_CHANGES / d.saturating_mul(d).saturating_mul(123 * CHAINS);
    let mut sweeps = most.clamp(1, SWEEPS);
    for round in (0..ROUNDS).take_while(|_| !cancel.is_cancelled()) {
        let is_search = round < ROUNDS / 2;
        let visits: Vec<Vec<f64>> = chains
            .par_iter_mut()
            .map(|chain| chain.run(couplings, log_z, sweeps))
            .collect();
        for (n, log_z) in log_z.iter_mut().enumerate() {
            let visits: f64 = visits.iter().map(|v| v[n]).sum();
            let even = (CHAINS * sweeps * d) as f64 / (d + 1) as f64;
            // A number that was not visited is no more than somewhat too likely.
            let least = if is_search { 0.0 } else { -1.0 };
            *log_z += (visits / even).ln().max(least);
        }
        if !is_search {
            sweeps += sweeps.div_ceil(2);
        }
    }
    // Z_0 = 1: corrections leave the whole sum undetermined.
    let first = log_z[0];
    log_z.iter_mut().for_each(|z| *z -= first);
}

/// A chain over all numbers of active units.
struct Chain {
    state: Particle,
    n: usize,
    rng: Xoshiro256PlusPlus,
}

impl Chain {
    /// Begins with a number of active units that grows with `k`.
    fn new(couplings: &Couplings, k: usize) -> Self {
        let d = couplings.n_units();
        let mut rng = substream(0x5EED, 2 + k as u64);
        let share = k as f64 / (CHAINS - 1) as f64;
        let mut state = Particle::silent(couplings);
        let mut n = 0;
        for unit in 0..d {
            if rng.random::<f64>() < share {
                state.change(couplings, unit);
                n += 1;
            }
        }
        Self { state, n, rng }
    }

    /// Makes Gibbs sweeps of exp(−xᵀJx)/Z_n, and counts how often it shows n.
    fn run(&mut self, couplings: &Couplings, log_z: &[f64], sweeps: usize) -> Vec<f64> {
        let mut visits = vec![0.0; log_z.len()];
        for _ in 0..sweeps {
            for i in 0..self.state.x.len() {
                let others = self.n - usize::from(self.state.x[i]);
                let odds = self.state.odds[i] + log_z[others] - log_z[others + 1];
                let on = self.rng.random::<f64>() * (1.0 + (-odds).exp()) < 1.0;
                if on != self.state.x[i] {
                    self.state.change(couplings, i);
                    self.n = others + usize::from(on);
                }
                visits[self.n] += 1.0;
            }
        }
        visits
    }
}

/// Returns ln Z_n as particles find it that begin with nothing active (`up`), or with everything.
fn log_z_from_one_end(couplings: &Couplings, up: bool, cancel: &Cancel) -> Vec<f64> {
    let d = couplings.n_units();
    let mut rng = substream(0x5EED, u64::from(up));
    let mut first = Particle::silent(couplings);
    if !up {
        (0..d).for_each(|unit| first.change(couplings, unit));
    }
    let mut particles = vec![first; n_particles(d)];
    let sign = if up { 1.0 } else { -1.0 };
    let mut log_z = if up { 0.0 } else { -couplings.as_array().sum() };
    let mut found = vec![log_z];
    for step in 0..d {
        let is_late = cancel.is_cancelled();
        let n_particles = particles.len();
        let n_next = if is_late {
            n_particles.min(PARTICLES_LEFT)
        } else {
            n_particles
        };
        // Of every particle, ln Σ exp(−Δ) over the units that may change.
        let weights: Vec<f64> = particles
            .iter()
            .map(|Particle { x, odds }| {
                let open = (0..d).filter(|&i| x[i] != up).map(|i| sign * odds[i]);
                let largest = open.clone().fold(f64::NEG_INFINITY, f64::max);
                largest + open.map(|o| (o - largest).exp()).sum::<f64>().ln()
            })
            .collect();
        let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = weights.iter().map(|w| (w - largest).exp()).sum();
        log_z += largest + (sum / n_particles as f64).ln() - ((step + 1) as f64).ln();
        found.push(log_z);
        // Resample evenly, then change one unit of each.
        let offset = rng.random::<f64>();
        let (mut next, mut below) = (0, (weights[0] - largest).exp());
        let chosen: Vec<usize> = (0..n_next)
            .map(|k| {
                let target = (k as f64 + offset) / n_next as f64 * sum;
                while below < target && next + 1 < n_particles {
                    next += 1;
                    below += (weights[next] - largest).exp();
                }
                next
            })
            .collect();
        particles = chosen.iter().map(|&k| particles[k].clone()).collect();
        for (particle, &k) in particles.iter_mut().zip(&chosen) {
            let mut left = rng.random::<f64>();
            let mut unit = None;
            for i in (0..d).filter(|&i| particle.x[i] != up) {
                unit = Some(i);
                left -= (sign * particle.odds[i] - weights[k]).exp();
                if left < 0.0 {
                    break;
                }
            }
            particle.change(couplings, unit.expect("a unit is left to change"));
            for _ in 0..if is_late { 0 } else { EXCHANGES } {
                particle.exchange(couplings, &mut rng);
            }
        }
    }
    if !up {
        found.reverse();
    }
    found
}

/// A state, with the log odds of every unit: −J_ii − 2 Σ_j J_ij x_j.
#[derive(Clone)]
struct Particle {
    x: Vec<bool>,
    odds: Vec<f64>,
}

impl Particle {
    fn silent(couplings: &Couplings) -> Self {
        Self {
            x: vec![false; couplings.n_units()],
            odds: couplings.as_array().diag().iter().map(|b| -b).collect(),
        }
    }

    fn change(&mut self, couplings: &Couplings, unit: usize) {
        self.x[unit] = !self.x[unit];
        let sign = if self.x[unit] { 1.0 } else { -1.0 };
        let row = couplings.as_array().row(unit);
        for (i, (odds, j)) in self.odds.iter_mut().zip(row).enumerate() {
            if i != unit {
                *odds -= 2.0 * sign * j;
            }
        }
    }

    /// Takes two units and, if one is active and the other silent, tries to change both: a Metropolis
    /// step that leaves the number of active units as it is.
    fn exchange(&mut self, couplings: &Couplings, rng: &mut impl Rng) {
        let d = self.x.len();
        let (a, b) = (rng.random_range(0..d), rng.random_range(0..d));
        let (on, off) = if self.x[a] { (a, b) } else { (b, a) };
        if !self.x[on] || self.x[off] {
            return;
        }
        let gain = self.odds[off] - self.odds[on] + 2.0 * couplings.get(on, off);
        if rng.random::<f64>() < gain.exp() {
            self.change(couplings, on);
            self.change(couplings, off);
        }
    }
}

#[cfg(test)]
mod tests;
