//! Everything that can go wrong in this crate, with the place and the value.

/// An error of `mpf-baselines`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Contrastive divergence of a local model that runs away.
    #[error(
        "after update {update} of contrastive divergence, parameter {parameter} is {value}: lower \
         `learning_rate`, or raise `l2`"
    )]
    RanAway {
        /// The update, from 1.
        update: usize,
        /// The parameter.
        parameter: usize,
        /// Its value.
        value: f64,
    },
    /// A machine whose energies overflow.
    #[error(
        "parameter {parameter} of the machine is {value}: weights beyond ±500 overflow; use a larger \
         penalty, or fewer hidden units"
    )]
    Overflowing {
        /// The parameter.
        parameter: usize,
        /// Its value.
        value: f64,
    },
    /// A unit without variance, where its variance has to be inverted.
    #[error(
        "unit {unit} is always {value}, so the covariance of the units has no inverse: leave the \
         unit out, or use λ > 0"
    )]
    ConstantUnit {
        /// The unit, from 0.
        unit: usize,
        /// The value that it always has.
        value: u8,
    },
    /// The covariance of the units has no inverse though no unit is constant.
    #[error(
        "the covariance of the units is singular (smallest eigenvalue {eigenvalue:.1e}, mostly \
         unit {unit}): that unit follows from the others or there are too few samples; use λ > 0"
    )]
    SingularSusceptibility {
        /// The unit that weighs most in the direction without variance.
        unit: usize,
        /// The variance in that direction.
        eigenvalue: f64,
    },
    /// Learning ran away.
    #[error(
        "after update {update} J[{i}, {j}] = {value:e}, beyond ±{limit}: the learning rate \
         {rate} is too large for these data"
    )]
    Diverged {
        /// The update after which it was noticed, from 1.
        update: usize,
        /// A unit.
        i: usize,
        /// The other unit; equal to `i` for a bias.
        j: usize,
        /// What its parameter became.
        value: f64,
        /// The largest size that is believed.
        limit: f64,
        /// The learning rate of that update.
        rate: f64,
    },
    /// A step was left out or given up because the time was over.
    #[error("the time limit was reached")]
    TimeLimit,
    /// Weighted samples where every sample is needed by itself.
    #[error("choosing a penalty and error bars need every sample by itself: give the states too")]
    NoStates,
    /// More distinct samples than chains are numbered for.
    #[error(
        "{n_samples} distinct samples are more chains than the {limit} of contrastive divergence: \
         use fewer samples, or pseudolikelihood"
    )]
    TooManySamples {
        /// Distinct samples of the data.
        n_samples: usize,
        /// The most that are allowed.
        limit: usize,
    },
    /// A number that cannot be a moment of 0/1 units, or the error of one.
    #[error(
        "entry {index} of the {what} is {value} ± {standard_error}: moments of 0/1 units are \
         within ±1, and their errors are finite and not negative"
    )]
    NotAMoment {
        /// Whose entry it is.
        what: &'static str,
        /// Which, from 0.
        index: usize,
        /// The value found.
        value: f64,
        /// The standard error found.
        standard_error: f64,
    },
    /// A result, or what it would be made from, that is not finite.
    #[error("{what} is {value}: it must be finite; are the couplings too large?")]
    NotFinite {
        /// What it is.
        what: &'static str,
        /// What was found.
        value: f64,
    },
    /// An error of the data, the support or the couplings.
    #[error(transparent)]
    Ising(#[from] mpf_ising::Error),
    /// An error of the minimiser or of the linear algebra.
    #[error(transparent)]
    Core(#[from] mpf_core::Error),
    /// An error of the sampler.
    #[error(transparent)]
    Sampler(#[from] mpf_samplers::Error),
}

impl Error {
    /// Returns whether the work was stopped, by whoever asked for it or by a time limit.
    pub fn is_cancelled(&self) -> bool {
        use mpf_core::Error::Cancelled;
        matches!(
            self,
            Self::Core(Cancelled)
                | Self::Ising(mpf_ising::Error::Core(Cancelled))
                | Self::Sampler(mpf_samplers::Error::Core(Cancelled))
        )
    }
}

/// Checks that `mean` and its error are finite, naming `what` when they are not.
pub(crate) fn check_mean(what: &'static str, mean: &mpf_ising::BlockMean) -> Result<(), Error> {
    let both = [mean.value, mean.standard_error];
    match both.into_iter().find(|v| !v.is_finite()) {
        None => Ok(()),
        Some(value) => Err(Error::NotFinite { what, value }),
    }
}
