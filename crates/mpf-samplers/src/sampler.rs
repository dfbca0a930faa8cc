//! What a sampler is: one step of a Markov chain that leaves its distribution unchanged.

use crate::Result;
use crate::chain::Chain;
use rand::Rng;

/// A Markov kernel.
pub trait Sampler {
    /// What the next step needs.
    type State;
    /// What only the reader needs.
    type Info;

    /// Moves `state` by one step, drawing everything random from `rng`. A state that was finite
    /// stays so.
    ///
    /// # Panics
    /// May panic when `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut Self::State, rng: &mut R) -> Self::Info;
}

/// A [`Sampler`] that [`ChainRunner`](crate::ChainRunner) can start and record.
pub trait ChainSampler: Sampler {
    /// Where draws are kept: [`States`](mpf_ising::States), or an array with one row per draw.
    type Draws;

    /// A state to begin with when the caller has none: spread out, not drawn from the target.
    ///
    /// # Errors
    /// When the target has no finite energy there.
    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Self::State>;

    /// No draws yet.
    fn no_draws(&self) -> Self::Draws;

    /// Appends the present state to `draws`.
    ///
    /// # Panics
    /// When `state` or `draws` are of another model.
    fn record(&self, state: &Self::State, draws: &mut Self::Draws);

    /// What is wrong with a chain that cannot be one of this sampler's, `None` if it can: files
    /// that chains were kept in may have been changed. Where it says `None`, a step does not panic
    /// and leaves the target unchanged.
    fn fault(
        &self,
        state: &Self::State,
        chain: &Chain<Self::Draws, Self::Info>,
    ) -> Option<&'static str>;
}

/// An [`Info`](Sampler::Info) that adds up over steps.
pub trait Tally: Default {
    /// Adds what later steps told. Counts stop at their largest number.
    fn add(&mut self, later: Self);
}

impl Tally for () {
    fn add(&mut self, (): Self) {}
}
