//! Sums over all q^d states, up to 2²⁰ of them.

use super::objective::add_chunks;
use super::{LocalModel, SiteData};
use crate::Result;
use crate::energy::boltzmann_and_log_z;
use crate::error::{check_count, check_option};
use crate::objective::Objective;
use crate::rng::{DrawTable, stream};
use ndarray::Array2;
use rayon::prelude::*;

/// A model at θ with the probability of every state. State number n has x_i = ⌊n / q^i⌋ mod q.
#[derive(Clone, Debug)]
pub struct LocalExact {
    n_sites: usize,
    n_states: usize,
    log_z: f64,
    probabilities: Vec<f64>,
}

/// The most states that are enumerated: those of 20 binary sites.
const MOST_STATES: usize = 1 << 20;

/// Returns the number of all states, if they can be enumerated.
fn count(model: &impl LocalModel) -> Result<usize> {
    let q = model.n_states();
    let states = (0..model.n_sites()).try_fold(1usize, |n, _| n.checked_mul(q));
    let states = states.unwrap_or(usize::MAX);
    let (n, holds) = (states as f64, states <= MOST_STATES);
    check_option(
        "the number of states",
        n,
        "at most 2^20 to enumerate",
        holds,
    )?;
    Ok(states)
}

fn write_state(mut number: usize, n_states: usize, x: &mut [u8]) {
    for site in x {
        *site = (number % n_states) as u8;
        number /= n_states;
    }
}

impl LocalExact {
    /// Enumerates the model at `theta`.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for more than 2²⁰ states,
    /// [`Error::Count`](crate::Error::Count) for another number of parameters,
    /// [`Error::Overflow`](crate::Error::Overflow) for energies that are NaN or −∞, or all +∞.
    pub fn new(model: &impl LocalModel, theta: &[f64]) -> Result<Self> {
        check_count("parameters", model.n_params(), theta.len())?;
        let (n_sites, n_states) = (model.n_sites(), model.n_states());
        let energies: Vec<f64> = (0..count(model)?)
            .into_par_iter()
            .map_init(
                || vec![0; n_sites],
                |x, number| {
                    write_state(number, n_states, x);
                    model.energy(theta, x)
                },
            )
            .collect();
        let (probabilities, log_z) = boltzmann_and_log_z(&energies);
        if !log_z.is_finite() {
            return Err(crate::Error::Overflow {
                what: "the partition function",
            });
        }
        Ok(Self {
            n_sites,
            n_states,
            log_z,
            probabilities,
        })
    }

    /// Returns ln Z = ln Σ_x exp(−E(x)).
    pub fn log_z(&self) -> f64 {
        self.log_z
    }

    /// Returns p(x) of every state, by its number.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Returns the mean of `f` over all states.
    pub fn mean(&self, mut f: impl FnMut(&[u8]) -> f64) -> f64 {
        let mut x = vec![0; self.n_sites];
        let mut sum = 0.0;
        for (number, p) in self.probabilities.iter().enumerate() {
            write_state(number, self.n_states, &mut x);
            sum += p * f(&x);
        }
        sum
    }

    /// Returns the mean over `data` of ln p(x).
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count) for data of other sites or states.
    pub fn log_likelihood(&self, data: &SiteData) -> Result<f64> {
        crate::check_count("sites of the data", self.n_sites, data.n_sites())?;
        crate::check_count("states of a site", self.n_states, data.n_states())?;
        let number = |row: &[u8]| {
            let digits = row.iter().rev();
            digits.fold(0, |n, &a| n * self.n_states + usize::from(a))
        };
        let rows = data.weights().iter().enumerate().filter(|(_, w)| **w > 0.0);
        let terms = rows.map(|(m, w)| w * self.probabilities[number(data.row(m))].ln());
        Ok(terms.sum::<f64>() / data.total_weight())
    }

    /// Draws `n` independent states, one a row.
    pub fn draw(&self, n: usize, seed: u64) -> Array2<u8> {
        let numbers = DrawTable::new(self.probabilities.clone());
        let mut rng = stream(seed, 0);
        let mut draws = Array2::zeros((n, self.n_sites));
        let mut x = vec![0; self.n_sites];
        for mut row in draws.rows_mut() {
            write_state(numbers.draw(&mut rng), self.n_states, &mut x);
            row.iter_mut().zip(&x).for_each(|(a, b)| *a = *b);
        }
        draws
    }
}

/// Minus the mean log-likelihood, by enumeration, as an [`Objective`].
pub struct ExactLikelihood<'a, M> {
    model: &'a M,
    data: &'a SiteData,
}

impl<'a, M: LocalModel> ExactLikelihood<'a, M> {
    /// Takes the likelihood of `data`.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for more than 2²⁰ states,
    /// [`Error::Count`](crate::Error::Count) for data of other sites or states.
    pub fn new(model: &'a M, data: &'a SiteData) -> Result<Self> {
        data.check(model)?;
        count(model)?;
        Ok(Self { model, data })
    }
}

impl<M: LocalModel> Objective for ExactLikelihood<'_, M> {
    fn n_params(&self) -> usize {
        self.model.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let Ok(exact) = LocalExact::new(self.model, theta) else {
            return f64::INFINITY;
        };
        let (model, data) = (self.model, self.data);
        let scale = 1.0 / data.total_weight();
        let energy = add_chunks(data.n_distinct(), grad, |rows, grad| {
            let mut sum = 0.0;
            for m in rows.filter(|&m| data.weights()[m] > 0.0) {
                let weight = scale * data.weights()[m];
                sum += weight * model.energy(theta, data.row(m));
                model.add_energy_grad(theta, data.row(m), weight, grad);
            }
            sum
        });
        let mut means = vec![0.0; grad.len()];
        add_chunks(exact.probabilities.len(), &mut means, |numbers, means| {
            let mut x = vec![0; exact.n_sites];
            // Forbidden states may have no gradient.
            for number in numbers.filter(|&n| exact.probabilities[n] > 0.0) {
                write_state(number, exact.n_states, &mut x);
                model.add_energy_grad(theta, &x, exact.probabilities[number], means);
            }
            0.0
        });
        for (g, mean) in grad.iter_mut().zip(&means) {
            *g -= mean;
        }
        energy + exact.log_z
    }
}
