//! The sums of one step of the stochastic trainer over a block of its batch.

use super::{Metropolis, Phase};
use crate::batch::{BLOCK, blocks};
use crate::hamiltonian::{Ensemble, Hamiltonian};
use mpf_core::rng;
use ndarray::{Array2, ArrayView2};
use rand::{Rng, RngExt};
use std::ops::Range;

/// Sums over the samples of a step.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) weights: f64,
    /// Weights that were clipped.
    pub(super) clipped: usize,
    pub(super) acceptance: f64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.weights += other.weights;
        self.clipped += other.clipped;
        self.acceptance += other.acceptance;
    }
}

/// One block of the batch, with its buffers and sums.
pub(super) struct Worker {
    /// Its part of the batch.
    pub(super) rows: Range<usize>,
    pub(super) states: Ensemble,
    /// Where the states were or, with Metropolis, where they are proposed to go.
    others: Ensemble,
    pub(super) tally: Tally,
    /// Σ w (sign(Jq) qᵀ − sign(Jq′) q′ᵀ).
    pub(super) grad: Array2<f64>,
}

/// Shares a batch of `n` samples out in blocks.
pub(super) fn workers(n: usize, d: usize) -> Vec<Worker> {
    let worker = |rows: Range<usize>| Worker {
        states: Ensemble::new(rows.len(), d),
        others: Ensemble::new(rows.len(), d),
        rows,
        tally: Tally::default(),
        grad: Array2::zeros((d, d)),
    };
    blocks(0..n, BLOCK).map(worker).collect()
}

impl Worker {
    /// Draws the neighbours of this block of `rows`, and sums.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn work(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        data: ArrayView2<'_, f64>,
        rows: &[u32],
        phase: Phase,
        clip: f64,
        seed: u64,
        index: usize,
    ) {
        let mut rng = rng::substream(seed, index as u64);
        self.place(hamiltonian, data, rows);
        match phase {
            Phase::Trajectory(trajectory) => {
                self.states.draw_momenta(&mut rng);
                self.states.draw_steps(|| trajectory.draw(&mut rng));
                self.others.copy_from(&self.states);
                self.states.integrate(hamiltonian);
                for row in 0..self.rows.len() {
                    let fall = self.others.total(row) - self.states.total(row);
                    let weight = (0.5 * fall).min(clip).exp();
                    self.tally.weights += weight;
                    self.tally.clipped += usize::from(0.5 * fall > clip);
                    self.tally.acceptance += fall.min(0.0).exp();
                    self.others.scale_signs(row, weight);
                    self.states.scale_signs(row, -weight);
                }
                self.others.add_signs_times_positions(0.0, &mut self.grad);
            }
            Phase::Metropolis(metropolis) => {
                self.states.add_signs_times_positions(0.0, &mut self.grad);
                let n = self.rows.len();
                self.walk(hamiltonian, metropolis, &mut rng);
                self.tally.acceptance /= metropolis.transitions as f64;
                self.tally.weights = n as f64;
                for row in 0..n {
                    self.states.scale_signs(row, -1.0);
                }
            }
        }
        self.states.add_signs_times_positions(1.0, &mut self.grad);
    }

    /// Makes the transitions of `metropolis` from where the states are.
    pub(super) fn walk<R: Rng + ?Sized>(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        metropolis: Metropolis,
        rng: &mut R,
    ) {
        for _ in 0..metropolis.transitions {
            self.transition(hamiltonian, metropolis, rng);
        }
    }

    /// Puts the states at this block of `rows`.
    pub(super) fn place(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        data: ArrayView2<'_, f64>,
        rows: &[u32],
    ) {
        let d = data.ncols();
        let from = data.as_slice().expect("standard layout");
        let rows = rows[self.rows.clone()].iter();
        let rows = rows.map(|&r| &from[r as usize * d..][..d]);
        self.tally = Tally::default();
        self.states.place(hamiltonian, rows);
    }

    /// Makes one transition of every state: a trajectory, then accept or stay.
    fn transition<R: Rng + ?Sized>(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        metropolis: Metropolis,
        rng: &mut R,
    ) {
        self.states.draw_momenta(rng);
        self.others.copy_from(&self.states);
        self.others
            .draw_steps(|| (metropolis.step_size, metropolis.leapfrog_steps));
        self.others.integrate(hamiltonian);
        for row in 0..self.rows.len() {
            let fall = self.states.total(row) - self.others.total(row);
            // A trajectory that diverged is rejected: `min` alone would ignore NaN.
            let acceptance = if fall.is_nan() {
                0.0
            } else {
                fall.min(0.0).exp()
            };
            self.tally.acceptance += acceptance;
            if rng.random::<f64>() < acceptance {
                self.states.copy_state(&self.others, row);
            }
        }
    }
}
