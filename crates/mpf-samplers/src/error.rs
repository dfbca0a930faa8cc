//! The errors of this crate, with the numbers that say where.

/// An error of `mpf-samplers`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sampler of Ising models alone.
    #[error(
        "{sampler} knows no potential of the number of active units, which this K-pairwise model \
         has: use Gibbs sweeps or parallel tempering"
    )]
    HasPotential {
        /// The sampler.
        sampler: &'static str,
    },
    /// A lattice too wide for a transfer matrix.
    #[error(
        "the {rows} × {columns} lattice is {width} units wide: a transfer matrix over 2^{width} \
         states is refused beyond {limit} (parallel tempering has no such limit)"
    )]
    LatticeTooWide {
        /// Rows of the lattice.
        rows: usize,
        /// Columns of the lattice.
        columns: usize,
        /// The smaller of the two.
        width: usize,
        /// The widest accepted.
        limit: usize,
    },
    /// A lattice whose rims are joined.
    #[error(
        "the {rows} × {columns} lattice is periodic: exact draws are for open boundaries \
         (parallel tempering is for any)"
    )]
    PeriodicLattice {
        /// Rows of the lattice.
        rows: usize,
        /// Columns of the lattice.
        columns: usize,
    },
    /// A coupling between units that are not neighbours on the lattice.
    #[error(
        "J[{i}, {j}] = {value}, but units {i} and {j} are not neighbours on the open \
         {rows} × {columns} lattice"
    )]
    OffLattice {
        /// The first unit.
        i: usize,
        /// The second unit.
        j: usize,
        /// Their coupling.
        value: f64,
        /// Rows of the lattice.
        rows: usize,
        /// Columns of the lattice.
        columns: usize,
    },
    /// Couplings so large that β times an energy would overflow.
    #[error(
        "the couplings add up to {sum} in absolute value: at the inverse temperature {beta} an \
         energy would overflow"
    )]
    CouplingsTooLarge {
        /// Σ_ij |J_ij|.
        sum: f64,
        /// β.
        beta: f64,
    },
    /// A packed state with bits beyond its last unit.
    #[error("the packed state has bits set beyond its last unit, {last}")]
    BitsBeyond {
        /// The last unit.
        last: usize,
    },
    /// More steps than a `usize` can count.
    #[error(
        "burn_in + n_draws · thinning = {burn_in} + {n_draws} · {thinning} steps are more than can \
         be counted: ask for fewer"
    )]
    TooManySteps {
        /// Steps before the first draw.
        burn_in: usize,
        /// Draws per chain.
        n_draws: usize,
        /// Steps per draw.
        thinning: usize,
    },
    /// A starting state of another sampler.
    #[error("start {chain} is not a state of this sampler: make it with the sampler's `state`")]
    ForeignStart {
        /// The chain, from 0.
        chain: usize,
    },
    /// A starting point where E or ∇E is not finite.
    #[error(
        "the energy is {energy} at the starting point{}: start where it is finite",
        gradient_index.map_or(String::new(), |k| format!(", and entry {k} of its gradient is not finite"))
    )]
    NonFiniteStart {
        /// The energy there.
        energy: f64,
        /// The first entry of the gradient that is not finite, if one is.
        gradient_index: Option<usize>,
    },
    /// Too few draws for a diagnostic.
    #[error("{what} needs at least {needed} draws per chain, found {found}")]
    TooFewDraws {
        /// The diagnostic.
        what: &'static str,
        /// Draws needed in each chain.
        needed: usize,
        /// Draws found.
        found: usize,
    },
    /// A draw that is NaN or infinite.
    #[error("draw {draw} of chain {chain} is {value}: diagnostics need finite numbers")]
    NonFiniteDraw {
        /// The chain, from 0.
        chain: usize,
        /// The draw, from 0.
        draw: usize,
        /// The value found.
        value: f64,
    },
    /// An error of the Ising model or its states.
    #[error(transparent)]
    Ising(#[from] mpf_ising::Error),
    /// An option outside its range, or a checkpoint that cannot be used.
    #[error(transparent)]
    Core(#[from] mpf_core::Error),
}

/// Checks that no energy of these couplings overflows at β.
pub(crate) fn check_magnitude(couplings: &mpf_ising::Couplings, beta: f64) -> Result<(), Error> {
    let sum = couplings.as_array().iter().map(|j| j.abs()).sum::<f64>();
    // Twice the sum bounds every local field and every energy.
    if (2.0 * sum * beta).is_finite() {
        Ok(())
    } else {
        Err(Error::CouplingsTooLarge { sum, beta })
    }
}

/// Refuses a K-pairwise model.
pub(crate) fn check_no_potential(
    sampler: &'static str,
    couplings: &mpf_ising::Couplings,
) -> Result<(), Error> {
    match couplings.potential() {
        None => Ok(()),
        Some(_) => Err(Error::HasPotential { sampler }),
    }
}
