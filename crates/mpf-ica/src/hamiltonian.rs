//! Moves many states at a time by HAM(x; θ_H) of Appendix H.
//!
//! The force Jᵀ sign(Jq) changes only where a response u = Jq changes its sign, which few do in
//! one leapfrog step. So the steps are taken in the responses, u = Jq and w = Jv, with
//! A = JJᵀ:
//!
//! ```text
//! w ← w − ½ε A s,   u ← u + ε w,   s ← sign(u),   w ← w − ½ε A s
//! ```
//!
//! and A s is corrected by one row of A per changed sign: O(d) for a step, not O(d²). After L
//! steps q and v follow from sums of the signs, by two matrix products for the whole block:
//!
//! ```text
//! v′ = v − ε Jᵀ c,           c = ½ s₀ + s₁ + … + s_{L−1} + ½ s_L
//! q′ = q + εL v − ε² Jᵀ e,   e = ½L s₀ + (L − 1) s₁ + … + 1 s_{L−1}
//! ```
//!
//! This is the map of `mpf-samplers`' leapfrog followed by v ← −v, up to rounding; tests compare
//! the two.

use crate::Result;
use crate::batch::{view, view_mut};
use crate::model::sign;
use mpf_core::{check_option, check_positive};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// How long trajectories are. Step size and time are drawn for every trajectory, independently of
/// its state: the connectivity stays symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The leapfrog step ε. Default 0.05.
    pub step_size: f64,
    /// ε is scaled by a factor from [1 − `jitter`, 1 + `jitter`]. Default 0.1.
    pub jitter: f64,
    /// The shortest total time. Default 0.5.
    pub shortest: f64,
    /// The longest total time. Default 1.5.
    pub longest: f64,
}

impl Default for Trajectory {
    fn default() -> Self {
        Self {
            step_size: 0.05,
            jitter: 0.1,
            shortest: 0.5,
            longest: 1.5,
        }
    }
}

impl Trajectory {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a step or time that is not positive and finite, a jitter
    /// outside [0, 1), and times that are in the wrong order or take more than 10,000 steps.
    pub fn check(&self) -> Result<()> {
        let (jitter, longest) = (self.jitter, self.longest);
        check_positive("step_size", self.step_size)?;
        check_option("jitter", jitter, "in [0, 1)", (0.0..1.0).contains(&jitter))?;
        check_positive("shortest", self.shortest)?;
        let in_range = longest >= self.shortest && longest <= 1e4 * self.step_size;
        let holds = in_range && longest.is_finite();
        let requirement = "at least `shortest`, and at most 10,000 steps";
        Ok(check_option("longest", longest, requirement, holds)?)
    }

    /// Draws ε and L of one trajectory. L is from 1 to 100,000.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> (f64, usize) {
        let step = self.step_size * (1.0 + self.jitter * (2.0 * rng.random::<f64>() - 1.0));
        let time = self.shortest + (self.longest - self.shortest) * rng.random::<f64>();
        (step, ((time / step).round() as usize).clamp(1, 100_000))
    }
}

/// The dynamics under fixed filters θ_H.
pub(crate) struct Hamiltonian<'a> {
    filters: ArrayView2<'a, f64>,
    /// JJᵀ.
    gram: Array2<f64>,
}

impl<'a> Hamiltonian<'a> {
    pub(crate) fn new(filters: ArrayView2<'a, f64>) -> Self {
        Self {
            gram: filters.dot(&filters.t()),
            filters,
        }
    }
}

/// States {q, v}, one per row, that move together in reused buffers.
#[derive(Clone)]
pub(crate) struct Ensemble {
    n_dims: usize,
    n_states: usize,
    /// q.
    pub(crate) positions: Vec<f64>,
    /// v.
    momenta: Vec<f64>,
    /// u = Jq.
    responses: Vec<f64>,
    /// s = sign(u).
    signs: Vec<f64>,
    /// A s.
    forces: Vec<f64>,
    /// w = Jv.
    velocities: Vec<f64>,
    /// c, then ε c.
    momentum_sums: Vec<f64>,
    /// e, then −ε² e.
    position_sums: Vec<f64>,
    /// ε and L of each state.
    steps: Vec<(f64, usize)>,
}

impl Ensemble {
    /// Allocates room for `capacity` states.
    pub(crate) fn new(capacity: usize, n_dims: usize) -> Self {
        let room = || vec![0.0; capacity * n_dims];
        Self {
            n_dims,
            n_states: 0,
            positions: room(),
            momenta: room(),
            responses: room(),
            signs: room(),
            forces: room(),
            velocities: room(),
            momentum_sums: room(),
            position_sums: room(),
            steps: vec![(0.0, 0); capacity],
        }
    }

    fn used(&self) -> usize {
        self.n_states * self.n_dims
    }

    /// Puts the states at `rows`, with the forces of `hamiltonian`.
    pub(crate) fn place<'r>(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        rows: impl ExactSizeIterator<Item = &'r [f64]>,
    ) {
        let (n, d) = (rows.len(), self.n_dims);
        self.n_states = n;
        for (q, row) in self.positions.chunks_exact_mut(d).zip(rows) {
            q.copy_from_slice(row);
        }
        let q = view(&self.positions, n, d);
        let mut u = view_mut(&mut self.responses, n, d);
        general_mat_mul(1.0, &q, &hamiltonian.filters.t(), 0.0, &mut u);
        for (s, &u) in self.signs.iter_mut().zip(&self.responses[..n * d]) {
            *s = sign(u);
        }
        let s = view(&self.signs, n, d);
        let mut f = view_mut(&mut self.forces, n, d);
        general_mat_mul(1.0, &s, &hamiltonian.gram, 0.0, &mut f);
    }

    /// Draws v ~ N(0, I) for every state.
    pub(crate) fn draw_momenta<R: Rng + ?Sized>(&mut self, rng: &mut R) {
        let used = self.used();
        for v in &mut self.momenta[..used] {
            *v = rng.sample(StandardNormal);
        }
    }

    /// Draws ε and L for every state.
    pub(crate) fn draw_steps(&mut self, mut draw: impl FnMut() -> (f64, usize)) {
        for step in &mut self.steps[..self.n_states] {
            *step = draw();
        }
    }

    /// Applies x ← HAM(x): L leapfrog steps, then v ← −v.
    pub(crate) fn integrate(&mut self, hamiltonian: &Hamiltonian<'_>) {
        let (n, d) = (self.n_states, self.n_dims);
        let j = hamiltonian.filters;
        let gram = hamiltonian.gram.as_slice().expect("standard layout");
        let v = view(&self.momenta, n, d);
        let mut w = view_mut(&mut self.velocities, n, d);
        general_mat_mul(1.0, &v, &j.t(), 0.0, &mut w);
        for row in 0..n {
            let range = row * d..(row + 1) * d;
            let (step, n_steps) = self.steps[row];
            let (c, e) = (
                &mut self.momentum_sums[range.clone()],
                &mut self.position_sums[range.clone()],
            );
            leapfrog(
                &mut self.responses[range.clone()],
                &mut self.velocities[range.clone()],
                &mut self.signs[range.clone()],
                &mut self.forces[range.clone()],
                (c, e),
                gram,
                (step, n_steps),
            );
            for c in c {
                *c *= step;
            }
            for e in e {
                *e *= -step * step;
            }
            let time = step * n_steps as f64;
            let q = &mut self.positions[range.clone()];
            for (q, v) in q.iter_mut().zip(&self.momenta[range]) {
                *q += time * v;
            }
        }
        let mut q = view_mut(&mut self.positions, n, d);
        general_mat_mul(1.0, &view(&self.position_sums, n, d), &j, 1.0, &mut q);
        // −v′ = ε Jᵀ c − v.
        let mut v = view_mut(&mut self.momenta, n, d);
        general_mat_mul(1.0, &view(&self.momentum_sums, n, d), &j, -1.0, &mut v);
    }

    /// Returns E of state `row`.
    pub(crate) fn potential(&self, row: usize) -> f64 {
        let u = &self.responses[row * self.n_dims..][..self.n_dims];
        u.iter().map(|u| u.abs()).sum()
    }

    /// Returns ½vᵀv of state `row`.
    pub(crate) fn kinetic(&self, row: usize) -> f64 {
        let v = &self.momenta[row * self.n_dims..][..self.n_dims];
        0.5 * v.iter().map(|v| v * v).sum::<f64>()
    }

    /// Returns H of state `row`.
    pub(crate) fn total(&self, row: usize) -> f64 {
        self.potential(row) + self.kinetic(row)
    }

    /// Multiplies the signs of state `row` by `weight`, for
    /// [`Ensemble::add_signs_times_positions`].
    pub(crate) fn scale_signs(&mut self, row: usize, weight: f64) {
        for s in &mut self.signs[row * self.n_dims..(row + 1) * self.n_dims] {
            *s *= weight;
        }
    }

    /// Sets `out` ← `keep` · `out` + Σ s qᵀ over the states.
    pub(crate) fn add_signs_times_positions(&self, keep: f64, out: &mut Array2<f64>) {
        let (n, d) = (self.n_states, self.n_dims);
        let (s, q) = (view(&self.signs, n, d), view(&self.positions, n, d));
        general_mat_mul(1.0, &s.t(), &q, keep, out);
    }

    /// Copies every state of `other`.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.n_states = other.n_states;
        for row in 0..other.n_states {
            self.copy_state(other, row);
        }
    }

    /// Copies state `row` of `other`.
    pub(crate) fn copy_state(&mut self, other: &Self, row: usize) {
        let range = row * self.n_dims..(row + 1) * self.n_dims;
        let copy = |to: &mut Vec<f64>, from: &Vec<f64>| {
            to[range.clone()].copy_from_slice(&from[range.clone()]);
        };
        copy(&mut self.positions, &other.positions);
        copy(&mut self.momenta, &other.momenta);
        copy(&mut self.responses, &other.responses);
        copy(&mut self.signs, &other.signs);
        copy(&mut self.forces, &other.forces);
    }
}

/// Takes one state's leapfrog steps in its responses, by the equations at the top of this module.
fn leapfrog(
    u: &mut [f64],
    w: &mut [f64],
    s: &mut [f64],
    f: &mut [f64],
    (c, e): (&mut [f64], &mut [f64]),
    gram: &[f64],
    (step, n_steps): (f64, usize),
) {
    let d = u.len();
    let length = n_steps as f64;
    for ((c, e), s) in c.iter_mut().zip(e.iter_mut()).zip(&*s) {
        *c = length * s;
        *e = 0.5 * length * length * s;
    }
    for done in 1..=n_steps {
        // The closing half kick of a step is merged with the opening one of the next. The last is
        // left out: v′ follows from the sums.
        let kick = if done == 1 { 0.5 * step } else { step };
        for ((u, w), f) in u.iter_mut().zip(w.iter_mut()).zip(&*f) {
            *w -= kick * f;
            *u += step * *w;
        }
        let left = (n_steps - done) as f64;
        for k in 0..d {
            if u[k] * s[k] > 0.0 {
                continue;
            }
            let change = sign(u[k]) - s[k];
            if change != 0.0 {
                s[k] += change;
                // This sign counts from here on: once for each step left, and half at the last.
                c[k] += change * (left + 0.5);
                e[k] += change * 0.5 * left * (left + 1.0);
                for (f, a) in f.iter_mut().zip(&gram[k * d..(k + 1) * d]) {
                    *f += change * a;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filters;
    use mpf_core::rng::stream;
    use mpf_samplers::{PhasePoint, leapfrog};

    /// Returns filters like a fit's, and states like its data.
    fn setting(d: usize, seed: u64) -> (Filters, Array2<f64>) {
        let mut rng = stream(seed, 3);
        let noise = 0.5 / (d as f64).sqrt();
        let j = Array2::from_shape_fn((d, d), |(a, b)| {
            f64::from(a == b) + noise * rng.sample::<f64, _>(StandardNormal)
        });
        let filters = Filters::new(j).unwrap();
        let data = filters.draw(400, &mut rng).unwrap();
        (filters, data)
    }

    fn ensemble(filters: &Filters, data: &Array2<f64>, seed: u64) -> Ensemble {
        let mut rng = stream(seed, 4);
        let mut states = Ensemble::new(data.nrows(), data.ncols());
        let rows = data.outer_iter().map(|r| r.to_slice().unwrap());
        states.place(&Hamiltonian::new(filters.as_array()), rows);
        states.draw_momenta(&mut rng);
        states.draw_steps(|| Trajectory::default().draw(&mut rng));
        states
    }

    #[test]
    fn the_map_is_the_plain_leapfrog_with_negated_momentum() {
        for (d, seed) in [(1, 1), (2, 2), (7, 3), (20, 4)] {
            let (filters, data) = setting(d, seed);
            let mut states = ensemble(&filters, &data, seed);
            let start = states.clone();
            states.integrate(&Hamiltonian::new(filters.as_array()));
            let mut off = 0;
            for row in 0..data.nrows() {
                let range = row * d..(row + 1) * d;
                let q = &start.positions[range.clone()];
                let v = &start.momenta[range.clone()];
                let mut point = PhasePoint::new(&filters, q, v).unwrap();
                assert!((point.hamiltonian() - start.total(row)).abs() < 1e-11);
                let (step, n_steps) = start.steps[row];
                leapfrog(&filters, &mut point, step, n_steps);
                point.negate_momentum();
                let close =
                    |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-11);
                // Thirty steps of rounding at 1e-15, except where a response is so close to 0 that
                // rounding decides its sign, which is rare.
                let same = close(&states.positions[range.clone()], &point.position)
                    && close(&states.momenta[range], &point.momentum)
                    && (states.total(row) - point.hamiltonian()).abs() < 1e-10;
                off += usize::from(!same);
            }
            assert!(off <= 1, "{off} of {} differ at d = {d}", data.nrows());
        }
    }

    #[test]
    fn the_map_is_its_own_inverse() {
        let (filters, data) = setting(12, 5);
        let mut states = ensemble(&filters, &data, 6);
        let hamiltonian = Hamiltonian::new(filters.as_array());
        let start = states.clone();
        states.integrate(&hamiltonian);
        states.integrate(&hamiltonian);
        let (there, back) = (&start.positions, &states.positions);
        let off = there
            .iter()
            .zip(back)
            .filter(|(a, b)| (*a - *b).abs() > 1e-9);
        // At least 99.9 % of the states return; the kink spoils a few.
        assert!(off.count() <= 12);
    }
}
