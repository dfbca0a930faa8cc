//! The neighbours of a state: the connectivity g of the rates
//!
//! ```text
//! Γ_ij = g_ij (g_ji/g_ij)^½ exp(½ [E_j − E_i])        from state j into state i ≠ j
//! ```
//!
//! (Eq. `gamma symmetric` for g_ij = g_ji, Appendix D for any other g). A fixed rule visits every
//! neighbour with the average weight √(g_ij g_ji). A sampled rule opens each connection with
//! probability g_ij and weighs it by (g_ji/g_ij)^½, which has the same average. Detailed balance
//! then holds on average, and the model distribution stays the fixed point.

use crate::Result;
use crate::error::{check_entries, check_not_zero};
use crate::linalg::square_size;
use crate::rng;
use ndarray::Array2;
use rand::{Rng, RngExt};
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;

/// A rule that gives every state its neighbours.
pub trait Connectivity<X: ?Sized> {
    /// Calls `visit(x′, ln √(g_ij g_ji))` for every neighbour x′ (state i) of `x` (state j).
    /// The logarithm is finite: a state with g_ij g_ji = 0 is no neighbour.
    ///
    /// `sample` is the index of `x` in the data: a rule that depends on the state alone ignores
    /// it, a drawn one finds its random stream by it. `scratch` has the shape of `x`; the rule
    /// builds its neighbours there instead of allocating them.
    fn for_each_neighbour(&self, sample: usize, x: &X, scratch: &mut X, visit: impl FnMut(&X, f64));
}

/// A rule whose connections are drawn at random (Appendix D).
pub trait SampledConnectivity<X: ?Sized> {
    /// Draws the connections out of `x` once, each with its probability g_ij, and calls
    /// `visit(x′, ½ ln(g_ji / g_ij))` for those that opened. The logarithm is finite.
    fn draw_neighbours<R: Rng + ?Sized>(
        &self,
        x: &X,
        scratch: &mut X,
        rng: &mut R,
        visit: impl FnMut(&X, f64),
    );
}

/// A sampled rule with fixed draws: the mean over `draws` draws, the same ones at every evaluation.
/// An optimiser then sees one function. [`Drawn::redraw`] draws anew.
#[derive(Clone, Debug)]
pub struct Drawn<S> {
    rule: S,
    draws: usize,
    seed: u64,
}

impl<S> Drawn<S> {
    /// Takes `draws` draws of `rule` for every sample, fixed by `seed`.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) when `draws` is 0.
    pub fn new(rule: S, draws: usize, seed: u64) -> Result<Self> {
        check_not_zero("draws", draws)?;
        Ok(Self { rule, draws, seed })
    }

    /// Replaces all draws by new ones.
    pub fn redraw(&mut self) {
        self.seed = rng::next_seed(self.seed);
    }
}

impl<X: ?Sized, S: SampledConnectivity<X>> Connectivity<X> for Drawn<S> {
    fn for_each_neighbour(
        &self,
        sample: usize,
        x: &X,
        scratch: &mut X,
        mut visit: impl FnMut(&X, f64),
    ) {
        let mut rng = rng::substream(self.seed, sample as u64);
        let ln_draws = (self.draws as f64).ln();
        for _ in 0..self.draws {
            self.rule
                .draw_neighbours(x, scratch, &mut rng, |y, ln_weight| {
                    visit(y, ln_weight - ln_draws);
                });
        }
    }
}

/// The paper's sum over i ∉ D: a rule without the neighbours that are data states.
///
/// With few distinct states this discards most or all of K. The sum over all neighbours is just as
/// consistent; prefer it unless you need the paper's exact sum.
#[derive(Clone, Debug)]
pub struct OutsideData<C, X> {
    rule: C,
    data: HashSet<X>,
}

impl<C, X: Hash + Eq> OutsideData<C, X> {
    /// Removes the neighbours found in `data` from `rule`.
    pub fn new(rule: C, data: impl IntoIterator<Item = X>) -> Self {
        Self {
            rule,
            data: data.into_iter().collect(),
        }
    }
}

impl<X, C> Connectivity<X> for OutsideData<C, X::Owned>
where
    X: ?Sized + Hash + Eq + ToOwned,
    X::Owned: Hash + Eq + Borrow<X>,
    C: Connectivity<X>,
{
    fn for_each_neighbour(
        &self,
        sample: usize,
        x: &X,
        scratch: &mut X,
        mut visit: impl FnMut(&X, f64),
    ) {
        self.rule
            .for_each_neighbour(sample, x, scratch, |y, ln_weight| {
                if !self.data.contains(y) {
                    visit(y, ln_weight);
                }
            });
    }
}

/// Any g over a few enumerated states, symmetric or not: `g[[i, j]]` is the probability of a
/// connection from state j to state i. The diagonal is ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseConnectivity {
    g: Array2<f64>,
}

impl DenseConnectivity {
    /// Makes a rule of its matrix.
    ///
    /// # Errors
    /// [`Error::NotSquare`](crate::Error::NotSquare), or [`Error::Entry`](crate::Error::Entry) for an
    /// entry outside [0, 1] or so close to 0 that the product of two such entries underflows.
    pub fn new(g: Array2<f64>) -> Result<Self> {
        square_size(g.view())?;
        check_entries("g", &g, "0, or a probability from 1e-150 to 1", |v| {
            v == 0.0 || (1e-150..=1.0).contains(&v)
        })?;
        Ok(Self { g })
    }

    /// Connects every state with every other.
    pub fn all_to_all(n_states: usize) -> Self {
        Self {
            g: Array2::ones((n_states, n_states)),
        }
    }

    /// Returns the number of states.
    pub fn n_states(&self) -> usize {
        self.g.nrows()
    }

    /// Returns √(g_ij g_ji), the average weight of the connection from j to i.
    pub(crate) fn weight(&self, i: usize, j: usize) -> f64 {
        (self.g[[i, j]] * self.g[[j, i]]).sqrt()
    }
}

impl Connectivity<usize> for DenseConnectivity {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        &j: &usize,
        scratch: &mut usize,
        mut visit: impl FnMut(&usize, f64),
    ) {
        for i in (0..self.n_states()).filter(|&i| i != j) {
            let weight = self.weight(i, j);
            if weight > 0.0 {
                *scratch = i;
                visit(scratch, weight.ln());
            }
        }
    }
}

impl SampledConnectivity<usize> for DenseConnectivity {
    fn draw_neighbours<R: Rng + ?Sized>(
        &self,
        &j: &usize,
        scratch: &mut usize,
        rng: &mut R,
        mut visit: impl FnMut(&usize, f64),
    ) {
        for i in (0..self.n_states()).filter(|&i| i != j) {
            let (to, back) = (self.g[[i, j]], self.g[[j, i]]);
            if rng.random::<f64>() < to && back > 0.0 {
                *scratch = i;
                visit(scratch, 0.5 * (back / to).ln());
            }
        }
    }
}
