//! The traits of samplers: one step of a Markov chain, and what it takes to run many.

use crate::Result;
use mpf_ising::States;
use ndarray::{Array2, Axis, s};
use rand::Rng;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A Markov kernel that leaves its distribution unchanged.
pub trait Sampler {
    /// Everything that the next step depends on.
    type State;
    /// A report of one step, for the reader only.
    type Info;

    /// Moves `state` by one step, drawing everything random from `rng`.
    ///
    /// # Panics
    /// May panic when `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut Self::State, rng: &mut R) -> Self::Info;
}

/// A [`Sampler`] that a [`ChainRunner`](crate::ChainRunner) can start, record and resume.
pub trait ChainSampler:
    Sampler<
        State: Clone + Send + Serialize + DeserializeOwned + 'static,
        Info: Tally + Clone + Send + Serialize + DeserializeOwned + 'static,
    > + Sync
{
    /// The list that a chain records its states in.
    type Draws: Draws;

    /// Returns a state to begin with: spread out, not drawn from the target.
    ///
    /// # Errors
    /// When the target has no finite energy there.
    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Self::State>;

    /// Returns an empty list of draws.
    fn no_draws(&self) -> Self::Draws;

    /// Appends the present state to `draws`.
    ///
    /// # Panics
    /// When `state` or `draws` are of another model.
    fn record(&self, state: &Self::State, draws: &mut Self::Draws);

    /// Returns whether `state` has the shape of this sampler's states, so that no step from it
    /// panics. Its numbers are trusted.
    fn accepts(&self, state: &Self::State) -> bool;
}

/// A sampler of p(x)^β ∝ exp(−β E(x)), as [`Tempering`](crate::Tempering) and
/// [`annealed_log_z_of`](crate::annealed_log_z_of) need one for every β.
pub trait Heated: ChainSampler {
    /// Returns β.
    fn inverse_temperature(&self) -> f64;

    /// Returns E(x), at β = 1.
    fn energy(&self, state: &Self::State) -> f64;
}

/// A list of draws: packed [`States`], or an array of numbers or sites with one row per draw.
pub trait Draws: Clone + Send + Serialize + DeserializeOwned + 'static {
    /// Returns the number of draws.
    fn n_draws(&self) -> usize;

    /// Returns the number of units or coordinates of a draw.
    fn width(&self) -> usize;

    /// Appends another list.
    ///
    /// # Panics
    /// When their widths differ.
    fn append(&mut self, later: &Self);

    /// Returns the first `n` draws, or all if there are fewer.
    fn first(&self, n: usize) -> Self;
}

impl Draws for States {
    fn n_draws(&self) -> usize {
        self.n_samples()
    }

    fn width(&self) -> usize {
        self.n_units()
    }

    fn append(&mut self, later: &Self) {
        Self::append(self, later);
    }

    fn first(&self, n: usize) -> Self {
        self.slice(0..n.min(self.n_samples()))
    }
}

impl<T: Clone + Send + Serialize + DeserializeOwned + 'static> Draws for Array2<T> {
    fn n_draws(&self) -> usize {
        self.nrows()
    }

    fn width(&self) -> usize {
        self.ncols()
    }

    fn append(&mut self, later: &Self) {
        Self::append(self, Axis(0), later.view()).expect("rows of the same length");
    }

    fn first(&self, n: usize) -> Self {
        self.slice(s![..n.min(self.nrows()), ..]).to_owned()
    }
}

/// An [`Info`](Sampler::Info) that adds up over steps.
pub trait Tally: Default {
    /// Adds the tally of later steps. Counts saturate.
    fn add(&mut self, later: Self);

    /// Returns how often a replica went to the hottest level and back; `None` for samplers
    /// without levels.
    fn round_trips(&self) -> Option<u64> {
        None
    }
}

impl Tally for () {
    fn add(&mut self, (): Self) {}
}
