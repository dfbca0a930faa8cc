//! Exact maximum likelihood for small models.
//!
//! ```text
//! −LL = ln Z(J) + Σ_ij J_ij ⟨x_i x_j⟩_data                       nats per sample
//! ∂(−LL)/∂h_i  = ⟨s_i⟩_model − ⟨s_i⟩_data                         s = 2x − 1
//! ∂(−LL)/∂K_ij = ⟨s_i s_j⟩_model − ⟨s_i s_j⟩_data
//! ```
//!
//! (paper, Eq. `KL likelihood` and the section on maximum likelihood.) Z and the model's moments
//! are summed over all 2^d states in every evaluation: the yardstick that none of the other
//! methods has. It goes through the same [`Fitter`](mpf_ising::Fitter) as MPF, in the same
//! standardised units, with the same penalties and supports. Not for more than
//! [`MaximumLikelihood::MAX_UNITS`] units, and slow near that: d = 20 takes about 0.1 s per
//! evaluation.

mod sandwich;

use crate::Result;
use crate::method::{Description, FitterMethod, OwnObjective, Takes};
use mpf_core::Objective;
use mpf_ising::{
    Couplings, Error, Estimator, Exact, FitOptions, Mode, Samples, SpinCouplings, Terms,
};
use ndarray::Array2;

/// −LL as a function of θ = (h of all units, K of the pairs).
pub struct NegativeLogLikelihood {
    pairs: Vec<(usize, usize)>,
    /// ⟨x_i x_j⟩ of the data, means on the diagonal.
    pair_means: Array2<f64>,
}

impl NegativeLogLikelihood {
    /// Makes the objective of `samples`, with the couplings of `pairs` free and the others zero.
    ///
    /// # Errors
    /// [`Error::TooManyUnitsForLikelihood`]; [`Error::Edge`] for a pair that is not one.
    pub fn new(samples: &Samples, pairs: Vec<(usize, usize)>) -> Result<Self> {
        MaximumLikelihood.check_units(samples.n_units())?;
        let terms = Terms::new(samples, 0..samples.n_units(), pairs)?;
        Ok(Self::of(&terms))
    }

    fn of(terms: &Terms<'_>) -> Self {
        Self {
            pairs: terms.pairs().to_vec(),
            pair_means: terms.samples().pair_means(),
        }
    }
}

impl Objective for NegativeLogLikelihood {
    fn n_params(&self) -> usize {
        self.pair_means.nrows() + self.pairs.len()
    }

    /// Returns +∞, with a zero gradient, for parameters that overflow or are not finite.
    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let d = self.pair_means.nrows();
        let (fields, couplings) = theta.split_at(d);
        let spins = SpinCouplings::of_pairs(fields, &self.pairs, couplings);
        let Ok(exact) = Couplings::from_spins(&spins).and_then(|j| Exact::new(&j)) else {
            grad.fill(0.0);
            return f64::INFINITY;
        };
        // Model minus data of ⟨x_i x_j⟩; s_i = 2 x_i − 1.
        let off = exact.pair_means() - &self.pair_means;
        let (field_grads, coupling_grads) = grad.split_at_mut(d);
        for (i, g) in field_grads.iter_mut().enumerate() {
            *g = 2.0 * off[[i, i]];
        }
        for (&(i, j), g) in self.pairs.iter().zip(coupling_grads) {
            *g = 4.0 * off[[i, j]] - 2.0 * (off[[i, i]] + off[[j, j]]);
        }
        let energy: f64 = exact
            .couplings()
            .as_array()
            .iter()
            .zip(&self.pair_means)
            .map(|(j, m)| j * m)
            .sum();
        exact.log_z() + energy
    }
}

/// Exact maximum likelihood, as an estimator of [`Fitter`](mpf_ising::Fitter): up to
/// [`MaximumLikelihood::MAX_UNITS`] units, jointly. Penalties are added to −LL per sample.
///
/// ```
/// use mpf_baselines::MaximumLikelihood;
/// use mpf_ising::{Exact, FitOptions, Fitter, Samples};
/// use ndarray::array;
///
/// let data = array![[0, 0], [0, 1], [1, 1], [1, 1], [1, 0], [0, 0]];
/// let samples = Samples::from_binary(data.view())?;
/// let fit = Fitter::new(MaximumLikelihood, FitOptions::default())?.fit(&samples)?;
/// // At the maximum the model's moments are those of the data.
/// let moments = Exact::new(&fit.couplings)?.pair_means() - samples.pair_means();
/// assert!(moments.iter().all(|off| off.abs() < 1e-6));
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MaximumLikelihood;

impl MaximumLikelihood {
    /// The most units that are fitted by enumeration.
    pub const MAX_UNITS: usize = 20;
}

impl Estimator for MaximumLikelihood {
    fn check(&self, options: &FitOptions) -> mpf_ising::Result<()> {
        if options.potential.is_some() {
            return Err(Error::NotOffered {
                method: "exact maximum likelihood",
                option: "K-pairwise models",
                reason: "it fits the pairs alone; use MPF or PL, and polish",
            });
        }
        match options.mode {
            Mode::Joint => Ok(()),
            Mode::NodeWise => Err(Error::NotOffered {
                method: "exact maximum likelihood",
                option: "a node-wise mode",
                reason: "the likelihood is not a sum over units; fit jointly",
            }),
        }
    }

    fn check_units(&self, n_units: usize) -> mpf_ising::Result<()> {
        let limit = Self::MAX_UNITS;
        if n_units > limit {
            return Err(Error::TooManyUnitsForLikelihood { n_units, limit });
        }
        Ok(())
    }

    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        Box::new(NegativeLogLikelihood::of(&terms))
    }
}

/// [`MaximumLikelihood`] as one of the methods.
pub(crate) static ML: FitterMethod<MaximumLikelihood> = FitterMethod {
    description: Description {
        takes: &[Takes::Penalties, Takes::Support, Takes::Sandwich],
        objective: Some(OwnObjective::LogLikelihood),
        max_units: MaximumLikelihood::MAX_UNITS,
        ..Description::new("ml", "ML", "Exact maximum likelihood, up to 20 units")
    },
    estimator: |_| MaximumLikelihood,
    sandwich: sandwich::error_bars,
    always_node_wise: false,
};
