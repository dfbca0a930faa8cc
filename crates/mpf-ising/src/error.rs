//! The errors of this crate, with the place and the value.

/// An error of `mpf-ising`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every sample has the same number of active units.
    #[error(
        "every sample has {n_active} active units: the potential V of a K-pairwise model is not \
         identified; fit an Ising model, or samples whose numbers differ"
    )]
    OneCount {
        /// The number.
        n_active: usize,
    },
    /// A potential that is not finite, or too large.
    #[error("V({n_active}) is {value}: the potential must be finite and within 1e150")]
    Potential {
        /// The number of active units.
        n_active: usize,
        /// V.
        value: f64,
    },
    /// There are no samples or no units.
    #[error("the data are {rows} × {columns} (samples × units): at least 1 × 1 is needed")]
    NoData {
        /// Samples found.
        rows: usize,
        /// Units found.
        columns: usize,
    },
    /// An entry of binary data is neither 0 nor 1.
    #[error(
        "row {row}, column {column}: found {value}, but binary data hold only 0 and 1{}",
        if *value == -1.0 { " (for ±1 spins use the conversion from spins)" } else { "" }
    )]
    NotBinary {
        /// The sample, from 0.
        row: usize,
        /// The unit, from 0.
        column: usize,
        /// What was found.
        value: f64,
    },
    /// An entry of spin data is neither −1 nor +1.
    #[error(
        "row {row}, column {column}: found {value}, but spins are only −1 and +1{}",
        if *value == 0.0 { " (for 0/1 data use the conversion from binary)" } else { "" }
    )]
    NotSpin {
        /// The sample, from 0.
        row: usize,
        /// The unit, from 0.
        column: usize,
        /// What was found.
        value: f64,
    },
    /// Weights and samples differ in number.
    #[error("{weights} weights for {samples} samples: one weight per sample is needed")]
    WeightCount {
        /// Weights given.
        weights: usize,
        /// Samples given.
        samples: usize,
    },
    /// A weight is negative or not finite.
    #[error("the weight of row {row} is {value}, but weights must be finite and not negative")]
    Weight {
        /// The sample, from 0.
        row: usize,
        /// The weight found.
        value: f64,
    },
    /// The sum of the weights is too large or too small.
    #[error(
        "the weights add up to {sum:e}: scale them to between 1e-30 and 1e30, only their ratios matter"
    )]
    WeightSum {
        /// The sum of the weights.
        sum: f64,
    },
    /// All weights are zero.
    #[error("all weights are zero: no sample is left")]
    NoWeight,
    /// A coupling matrix that is not square.
    #[error("the coupling matrix is {rows} × {columns}: it must be square and not empty")]
    NotSquare {
        /// Rows found.
        rows: usize,
        /// Columns found.
        columns: usize,
    },
    /// A coupling matrix that is not symmetric.
    #[error("couplings must be symmetric, but J[{i}, {j}] = {upper} and J[{j}, {i}] = {lower}")]
    NotSymmetric {
        /// Row.
        i: usize,
        /// Column.
        j: usize,
        /// The entry at (i, j).
        upper: f64,
        /// The entry at (j, i).
        lower: f64,
    },
    /// A coupling or field that is NaN or infinite.
    #[error("the coupling of units {i} and {j} is {value}: it must be finite")]
    NotFinite {
        /// Row.
        i: usize,
        /// Column; equal to `i` for a bias or field.
        j: usize,
        /// What was found.
        value: f64,
    },
    /// Couplings so large that an energy would overflow.
    #[error(
        "the couplings add up to {sum} in absolute value: an energy would overflow, so scale them \
         down"
    )]
    TooLarge {
        /// Σ_ij |J_ij|.
        sum: f64,
    },
    /// Two inputs have different numbers of units.
    #[error("{what}: {found} units, but {expected} are expected")]
    UnitCount {
        /// What has the wrong size.
        what: &'static str,
        /// Units needed.
        expected: usize,
        /// Units found.
        found: usize,
    },
    /// An edge joins a unit to itself or to one that does not exist.
    #[error("edge ({i}, {j}) is not a pair of different units among 0..{n_units}")]
    Edge {
        /// One end.
        i: usize,
        /// The other end.
        j: usize,
        /// How many units there are.
        n_units: usize,
    },
    /// A lattice without units.
    #[error("a lattice of {rows} × {columns} units is empty: at least 1 × 1 is needed")]
    EmptyLattice {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
    },
    /// A lattice has too many units for their pairs to be counted.
    #[error(
        "a lattice of {rows} × {columns} units is too large: at most {limit} units can have their \
         couplings counted"
    )]
    LargeLattice {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
        /// The most units of a lattice.
        limit: usize,
    },
    /// Memory cannot hold the result.
    #[error("{count} {what} are more than memory can hold: use fewer")]
    OutOfMemory {
        /// What does not fit.
        what: &'static str,
        /// The number asked for.
        count: usize,
    },
    /// More free couplings than one objective can number.
    #[error(
        "{n_couplings} couplings of {n_units} units are too many for one objective: give a support \
         with fewer pairs, or fit node by node"
    )]
    TooManyCouplings {
        /// Units of the data.
        n_units: usize,
        /// Couplings that were to be free at once.
        n_couplings: usize,
    },
    /// A pair is given twice.
    #[error("the pair ({i}, {j}) is given twice: a coupling is one parameter")]
    RepeatedPair {
        /// One end.
        i: usize,
        /// The other end.
        j: usize,
    },
    /// Too many units for a sum over all states.
    #[error("{n_units} units have 2^{n_units} states: exact enumeration stops at {limit} units")]
    TooManyUnits {
        /// Units of the model.
        n_units: usize,
        /// The most that can be enumerated.
        limit: usize,
    },
    /// Every flip leads to a data state, so the sum over i ∉ D is empty.
    #[error(
        "every single flip of every sample is itself in the data, so the flow into non-data \
         states is identically zero: keep all flips (the default neighbourhood)"
    )]
    NoFlipsLeft,
    /// Every flip of one unit leads to a data state, so the sum of its row is empty.
    #[error(
        "every flip of unit {unit} leads to a data state, so that its row of a node-wise fit is \
         undetermined: keep all flips (the default neighbourhood), or fit jointly"
    )]
    NoFlipsLeftOfUnit {
        /// The unit, from 0.
        unit: usize,
    },
    /// The complement flips all units at once, which a single row cannot see.
    #[error("the all-bits-flipped neighbour cannot be used node by node: fit jointly")]
    NodeWiseComplement,
    /// No parameter is free.
    #[error("no parameter is free: every unit is constant or fixed, and no coupling is left")]
    NothingFree,
    /// There are fewer than two folds, or fewer samples than folds.
    #[error(
        "{n_samples} samples cannot be held out in {n_folds} folds: at least 2 folds and a sample \
         for each are needed"
    )]
    Folds {
        /// Folds asked for.
        n_folds: usize,
        /// Samples there are.
        n_samples: usize,
    },
    /// The folds are of another number of samples.
    #[error("the folds are of {assigned} samples, but there are {found}")]
    FoldSamples {
        /// Samples in the folds.
        assigned: usize,
        /// Samples found.
        found: usize,
    },
    /// The data do not hold two blocks.
    #[error(
        "blocks of {block_length} samples: {n_samples} samples must hold at least two of them, \
         and thirty to be of use"
    )]
    BlockLength {
        /// Samples in a block.
        block_length: usize,
        /// Samples there are.
        n_samples: usize,
    },
    /// The sandwich formula does not cover this fit.
    #[error("no standard errors from the sandwich formula: {reason}; the bootstrap has no limits")]
    NoErrorBars {
        /// What is not covered.
        reason: &'static str,
    },
    /// The objective or one of its slopes overflows.
    #[error("the objective or its slope is {value} at the given couplings: use smaller ones")]
    NotFiniteObjective {
        /// The first number that is not finite.
        value: f64,
    },
    /// Too many parameters for one Hessian.
    #[error(
        "{n_parameters} parameters need a Hessian of their square, which is refused beyond \
         {limit}: fit node by node, restrict the support, or use the bootstrap"
    )]
    TooManyParameters {
        /// Parameters that are free.
        n_parameters: usize,
        /// The largest allowed number.
        limit: usize,
    },
    /// The Hessian is singular.
    #[error(
        "the data do not determine the {} (the Hessian is singular there): leave it out of the \
         support, or use a ridge penalty",
        if i == j { format!("field of unit {i}") } else { format!("coupling of units {i} and {j}") }
    )]
    Undetermined {
        /// A unit.
        i: usize,
        /// The other unit; equal to `i` for a field.
        j: usize,
    },
    /// Without its penalty a fit runs away, and has no intervals.
    #[error(
        "intervals are around the estimate without the penalty, and the data do not determine its \
         {}: fit fewer couplings, give more samples, or use the bootstrap for errors of the \
         penalised estimate",
        if i == j { format!("field of unit {i}") } else { format!("coupling of units {i} and {j}") }
    )]
    UndeterminedWithoutPenalty {
        /// A unit.
        i: usize,
        /// The other unit; equal to `i` for a field.
        j: usize,
    },
    /// The mask and the data have different shapes.
    #[error(
        "the data are {rows} × {columns}, but the mask of unknown entries is {mask_rows} × \
         {mask_columns}"
    )]
    MaskShape {
        /// Samples.
        rows: usize,
        /// Units.
        columns: usize,
        /// Rows of the mask.
        mask_rows: usize,
        /// Columns of the mask.
        mask_columns: usize,
    },
    /// All entries of a unit are unknown.
    #[error("unit {unit} was never observed: leave its column out")]
    NeverObserved {
        /// The unit, from 0.
        unit: usize,
    },
    /// Every flip of a unit needs an unknown entry.
    #[error(
        "no sample has unit {unit} and all units that it may be coupled to observed: restrict the \
         support, or complete the samples instead of leaving flips out"
    )]
    NothingKnown {
        /// The unit, from 0.
        unit: usize,
    },
    /// Every sample has too many unknown entries.
    #[error("every sample has more than {most_unknown} unknown entries")]
    AllLeftOut {
        /// The largest number of unknown entries that is summed over.
        most_unknown: usize,
    },
    /// Unknown entries were given with a neighbourhood that looks at whole states.
    #[error("with unknown entries only all single flips, the default neighbourhood, can be used")]
    MissingNeighbourhood,
    /// EBIC was asked for on a path of λ₂.
    #[error(
        "EBIC needs couplings that are exactly zero: use it with λ₁, or choose λ₂ by another rule"
    )]
    EbicOfRidge,
    /// The method does not have this option.
    #[error("{method} does not have {option}: {reason}")]
    NotOffered {
        /// The method.
        method: &'static str,
        /// What was asked for.
        option: &'static str,
        /// Why not, or what to use instead.
        reason: &'static str,
    },
    /// Too many units for a sum over all states in every iteration.
    #[error(
        "{n_units} units have 2^{n_units} states, too many to sum over in every iteration: exact \
         maximum likelihood stops at {limit} units; use pseudolikelihood or MPF"
    )]
    TooManyUnitsForLikelihood {
        /// Units of the data.
        n_units: usize,
        /// The largest allowed number.
        limit: usize,
    },
    /// Samples that are read during a fit cannot be read any more.
    #[error("{what}")]
    Unreadable {
        /// What is wrong, and where.
        what: String,
    },
    /// An error of `mpf-core`: of the minimiser, an option or a checkpoint, or a stop that was asked for.
    #[error(transparent)]
    Core(#[from] mpf_core::Error),
}

/// Checks that there are samples and units.
pub(crate) fn check_data(rows: usize, columns: usize) -> Result<(), Error> {
    if rows == 0 || columns == 0 {
        return Err(Error::NoData { rows, columns });
    }
    Ok(())
}

/// Checks that `what` has the `expected` number of units.
///
/// # Errors
/// [`Error::UnitCount`].
pub fn check_units(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(Error::UnitCount {
        what,
        expected,
        found,
    })
}
