//! The options of the methods, shared by `mpf fit` and `mpf compare`.

use crate::failure::{Failure, INTERRUPTED};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use mpf_baselines::{
    MachineOptions, MachineTrainer, Method, MethodOptions, Methods, Recipe, Refine, Takes,
};
use mpf_core::{Cancel, MinimizerOptions, StopReason};
use mpf_ising::{CountPotential, Neighbourhood, Support};
use std::str::FromStr;

/// The name of the default recipe.
pub const AUTO: &str = "auto";

/// The trainer of machines that no other model has.
pub const PCD: &str = "pcd";

/// Parses `auto` or the name of one of `methods`; the help lists them.
pub fn name_parser(methods: &Methods) -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO)
        .help("MPF, refined by exact maximum likelihood (up to 16 units) or pseudolikelihood");
    let listed = methods.iter().map(|method| {
        let description = method.describe();
        PossibleValue::new(description.name).help(description.summary)
    });
    let persistent = PossibleValue::new(PCD).help("Persistent contrastive divergence: RBMs alone");
    PossibleValuesParser::new(std::iter::once(auto).chain(listed).chain([persistent]))
}

/// Returns the method called `name`.
///
/// # Errors
/// A name that is not listed.
pub fn find(methods: &Methods, name: &str) -> Result<&'static dyn Method, Failure> {
    methods.find(name).ok_or_else(|| match name {
        PCD => Failure::input("the method pcd is for machines with hidden units")
            .hint("add --model rbm, or use --polish to refine an Ising model by it"),
        _ => Failure::input(format!("there is no method {name}")),
    })
}

/// Returns the name of a value on the command line.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |v| v.get_name().to_owned())
}

/// The argument of `--l1` and `--l2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strength {
    /// A number.
    Given(f64),
    /// `auto`: chosen by cross-validation.
    Auto,
}

impl Strength {
    /// Returns the number, or 0 if it is still to be chosen.
    pub fn number(self) -> f64 {
        match self {
            Self::Given(value) => value,
            Self::Auto => 0.0,
        }
    }
}

impl FromStr for Strength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let given = not_negative(text).map(Self::Given);
        given.map_err(|_| "a penalty is a number that is not negative, or `auto`".into())
    }
}

/// Parses a limit. Infinity is refused: it limits nothing, and a model file cannot hold it.
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a number that is not negative, and not infinite".into()),
    }
}

/// The argument of `--neighbours`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Neighbours {
    /// All states that differ in one unit
    #[default]
    Single,
    /// Those, and the state with every unit flipped
    #[value(name = "single+all")]
    SingleAndAll,
    /// Those that differ in one unit and are not in the data: the paper's sum
    NonData,
}

impl Neighbours {
    fn rule(self) -> Neighbourhood {
        match self {
            Self::Single => Neighbourhood::SingleFlips,
            Self::SingleAndAll => Neighbourhood::SingleFlipsAndComplement,
            Self::NonData => Neighbourhood::OutsideData,
        }
    }
}

/// The argument of `--refine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RefineName {
    /// No refinement: the default of every method but `auto`
    None,
    /// By pseudolikelihood
    Pl,
    /// By exact maximum likelihood, up to 20 units
    Ml,
}

/// The argument of `--model`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModelName {
    /// Pairs of units: E = xᵀJx
    #[default]
    Ising,
    /// Pairs, and a potential of the number of active units: E = xᵀJx + V(Σ x)
    KPairwise,
    /// Hidden units, summed out: a restricted Boltzmann machine
    Rbm,
    /// Hidden units and pairs: a semi-restricted Boltzmann machine
    Srbm,
}

impl ModelName {
    /// Returns whether there are hidden units.
    pub fn has_hidden_units(self) -> bool {
        matches!(self, Self::Rbm | Self::Srbm)
    }
}

/// The arithmetic of a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// Single precision far from the minimum where that is faster (256 units and more), then double
    Auto,
    /// Double precision throughout
    Double,
}

/// Options of `mpf fit` and `mpf compare`. Those that are not given are `None`, so that options which
/// cannot apply are noticed.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// The model that is fitted
    #[arg(long, value_enum, default_value_t)]
    pub model: ModelName,
    /// K-pairwise: γ on ½ΣV''(n)², which makes V smooth [default: 0, V is free]
    #[arg(long, value_name = "γ", value_parser = not_negative)]
    pub smooth_potential: Option<f64>,
    /// RBMs: number of hidden units [default: 20]; with `compare`, adds both machines
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// RBMs by MPF or PL: random starts, of which the lowest objective is kept [default: 3]
    #[arg(long, value_name = "N")]
    pub starts: Option<usize>,
    /// Refine the fit, starting from its solution, with the same penalty
    #[arg(long, value_enum)]
    pub refine: Option<RefineName>,
    /// λ₁ on Σ|K_ij| (spin couplings), or `auto`: by cross-validation [default: 0]
    #[arg(long, value_name = "λ|auto")]
    pub l1: Option<Strength>,
    /// λ₂ on ½ΣK_ij², or `auto`: by cross-validation; 0 for none
    /// [default: 1/M for M samples, if the method takes penalties]
    #[arg(long, value_name = "λ|auto")]
    pub l2: Option<Strength>,
    /// MPF: states that probability may flow to [default: single]
    #[arg(long, value_enum)]
    pub neighbours: Option<Neighbours>,
    /// Fit every row by itself and average (RISE always does)
    #[arg(long)]
    pub nodewise: bool,
    /// TAP: damping of the inverse covariance [default: 0.0001]
    #[arg(long, value_name = "λ")]
    pub damping: Option<f64>,
    /// CD: number of updates [default: 1000]
    #[arg(long, value_name = "N")]
    pub updates: Option<usize>,
    /// CD: Gibbs sweeps per update [default: 1]
    #[arg(long, value_name = "K")]
    pub sweeps: Option<usize>,
    /// Converged when no gradient is larger, in standardised units (with a ridge: scaled by its
    /// curvature); below about 1e-8 rounding decides, which counts as converged
    /// [default: 1e-6; of RBMs 1e-4]
    #[arg(long, value_name = "G", value_parser = not_negative)]
    pub tolerance: Option<f64>,
    /// Arithmetic on the way to the minimum; the result is of double precision in either case
    #[arg(long, value_enum, default_value_t = PrecisionName::Auto)]
    pub precision: PrecisionName,
    /// Most iterations [default: 10000; of RBMs 1000 for each start]
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<usize>,
    /// Most seconds of the whole command: a fit stops there, and steps after it are left out;
    /// `compare` leaves out the methods that have not ended by then
    #[arg(long, value_name = "S", value_parser = not_negative)]
    pub max_seconds: Option<f64>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl MethodArgs {
    /// Returns the default tolerance and the default of the most iterations.
    fn defaults(&self) -> (f64, usize) {
        match self.model.has_hidden_units() {
            true => (1e-4, 1000),
            false => (1e-6, 10_000),
        }
    }

    /// Returns the tolerance of the gradient.
    pub fn tolerance(&self) -> f64 {
        self.tolerance.unwrap_or(self.defaults().0)
    }

    /// Returns the most iterations of a fit, or of one start of it.
    pub fn max_iterations(&self) -> usize {
        self.max_iterations.unwrap_or(self.defaults().1)
    }

    /// Returns the most seconds.
    pub fn limit(&self) -> f64 {
        self.max_seconds.unwrap_or(f64::INFINITY)
    }

    /// Does `work` within the most seconds.
    ///
    /// # Errors
    /// Those of `work`; [`Failure::too_late`] if it was the time limit that stopped it.
    pub fn in_time<T>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&Cancel) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let cancel = cancel.within(self.limit());
        work(&cancel).map_err(|failure| {
            // Work that the time limit stops reports itself as interrupted.
            let is_asked = cancel.reason() == Some(StopReason::Cancelled);
            match failure.code == INTERRUPTED && self.limit().is_finite() && !is_asked {
                true => Failure::too_late(self.limit()),
                false => failure,
            }
        })
    }

    /// Returns the fit of a machine by the method called `name`.
    ///
    /// # Errors
    /// Methods that train no machine, and options that it would silently ignore.
    pub fn machine(&self, name: &str, cancel: &Cancel) -> Result<MachineOptions, Failure> {
        let trainer = match name {
            AUTO | "pl" => MachineTrainer::Pseudolikelihood,
            "mpf" => MachineTrainer::Mpf,
            "cd" => MachineTrainer::Contrastive,
            PCD => MachineTrainer::Persistent,
            _ => {
                return Err(
                    Failure::input(format!("the method {name} trains no hidden units"))
                        .hint("use --method pl, mpf, cd or pcd"),
                );
            }
        };
        let has_updates = matches!(
            trainer,
            MachineTrainer::Contrastive | MachineTrainer::Persistent
        );
        let given = [
            (self.l1.is_some(), "--l1"),
            (self.l2 == Some(Strength::Auto), "--l2 auto"),
            (self.refine.is_some(), "--refine"),
            (self.neighbours.is_some(), "--neighbours"),
            (self.nodewise, "--nodewise"),
            (self.damping.is_some(), "--damping"),
            (self.smooth_potential.is_some(), "--smooth-potential"),
        ];
        Failure::given(
            &given,
            |option| format!("machines with hidden units have no {option}"),
            "leave it out, or use --model ising",
        )?;
        if !has_updates && (self.updates.is_some() || self.sweeps.is_some()) {
            let why = format!("--updates and --sweeps do nothing with --method {name}");
            return Err(Failure::input(why).hint("leave them out, or use --method cd or pcd"));
        }
        if has_updates && self.starts.is_some() {
            let why = format!("--starts does nothing with --method {name}");
            return Err(Failure::input(why).hint(
                "contrastive divergence has no objective to choose by: use --method pl or mpf",
            ));
        }
        for (option, number) in [("--hidden", self.hidden), ("--starts", self.starts)] {
            if number == Some(0) {
                let why = format!("{option} 0 asks for none");
                return Err(Failure::input(why).hint("ask for at least one"));
            }
        }
        let plain = MachineOptions::default();
        Ok(MachineOptions {
            n_hidden: self.hidden.unwrap_or(plain.n_hidden),
            semi_restricted: self.model == ModelName::Srbm,
            trainer,
            l2: self.l2.map(Strength::number),
            starts: self.starts.unwrap_or(plain.starts),
            updates: self.updates.unwrap_or(plain.updates),
            sweeps: self.sweeps.unwrap_or(plain.sweeps),
            seed: self.seed,
            minimizer: self.minimizer(cancel),
        })
    }

    /// Returns the recipe called `name`, without what only one command adds to it.
    ///
    /// # Errors
    /// A name that is not listed, and options that the recipe would silently ignore.
    pub fn recipe(
        &self,
        methods: &Methods,
        name: &str,
        support: Support,
        cancel: &Cancel,
    ) -> Result<Recipe, Failure> {
        let method = find(methods, if name == AUTO { "mpf" } else { name })?;
        self.check(method, &support)?;
        if self.smooth_potential.is_some() && self.model != ModelName::KPairwise {
            return Err(Failure::input(
                "--smooth-potential does nothing without --model k-pairwise",
            )
            .hint("leave it out, or add --model k-pairwise"));
        }
        let of_machines = [
            (self.hidden.is_some(), "--hidden"),
            (self.starts.is_some(), "--starts"),
        ];
        Failure::given(
            &of_machines,
            |option| format!("{option} does nothing without --model rbm or srbm"),
            "leave it out, or add --model rbm",
        )?;
        if self.model == ModelName::KPairwise && self.nodewise {
            return Err(
                Failure::input("--model k-pairwise cannot fit every row by itself")
                    .hint("leave out --nodewise: V belongs to all units"),
            );
        }
        if self.model == ModelName::KPairwise && self.refine == Some(RefineName::Ml) {
            return Err(Failure::input("--refine ml fits pairs alone")
                .hint("use --refine pl, and --polish for the likelihood"));
        }
        let refine = match self.refine {
            None if name == AUTO => Refine::Auto,
            None | Some(RefineName::None) => Refine::Nothing,
            Some(RefineName::Pl) => Refine::By(find(methods, "pl")?),
            Some(RefineName::Ml) => Refine::By(find(methods, "ml")?),
        };
        if self.nodewise && self.refine == Some(RefineName::Ml) {
            return Err(Failure::input("--refine ml cannot fit every row by itself")
                .hint("leave out --nodewise, or use --refine pl"));
        }
        Ok(Recipe {
            method,
            refine,
            options: self.options(support, cancel),
            ..Default::default()
        })
    }

    /// Returns the options of the methods; a penalty that is still to be chosen is 0.
    fn options(&self, support: Support, cancel: &Cancel) -> MethodOptions {
        let plain = MethodOptions::default();
        MethodOptions {
            l1: self.l1.map_or(plain.l1, Strength::number),
            l2: self.l2.map(Strength::number),
            neighbourhood: self
                .neighbours
                .map_or(plain.neighbourhood, Neighbours::rule),
            node_wise: self.nodewise,
            potential: self.potential(),
            support,
            start: None,
            minimizer: self.minimizer(cancel),
            damping: self.damping.unwrap_or(plain.damping),
            updates: self.updates.unwrap_or(plain.updates),
            sweeps: self.sweeps.unwrap_or(plain.sweeps),
            seed: self.seed,
        }
    }

    fn minimizer(&self, cancel: &Cancel) -> MinimizerOptions {
        MinimizerOptions {
            gradient_tolerance: self.tolerance(),
            max_iterations: self.max_iterations(),
            max_seconds: self.limit(),
            rough_start: self.precision == PrecisionName::Auto,
            cancel: cancel.clone(),
            ..Default::default()
        }
    }

    /// Returns the potential that is fitted.
    fn potential(&self) -> Option<CountPotential> {
        (self.model == ModelName::KPairwise).then(|| CountPotential {
            smoothness: self.smooth_potential.unwrap_or(0.0),
        })
    }

    /// Returns the first option that is given and that `method` does not take.
    pub fn refused(&self, method: &dyn Method, support: &Support) -> Option<&'static str> {
        let takes = method.describe().takes;
        let has_penalty = self.l1.is_some() || self.l2.is_some();
        let has_neighbours = self.neighbours.is_some();
        let is_k_pairwise = self.model == ModelName::KPairwise;
        let has_updates = self.updates.is_some() || self.sweeps.is_some();
        let given = [
            (has_penalty, Takes::Penalties, "--l1 and no --l2"),
            (has_neighbours, Takes::Neighbourhoods, "--neighbours"),
            (self.nodewise, Takes::NodeWise, "--nodewise"),
            (is_k_pairwise, Takes::Potential, "--model k-pairwise"),
            (*support != Support::Full, Takes::Support, "--support"),
            (self.damping.is_some(), Takes::Damping, "--damping"),
            (has_updates, Takes::Updates, "--updates and no --sweeps"),
        ];
        let refused = given
            .into_iter()
            .find(|(is_given, option, _)| *is_given && !takes.contains(option));
        refused.map(|(_, _, name)| name)
    }

    fn check(&self, method: &dyn Method, support: &Support) -> Result<(), Failure> {
        let Some(option) = self.refused(method, support) else {
            return Ok(());
        };
        let name = method.describe().name;
        Err(
            Failure::input(format!("the method {name} has no {option}")).hint(match option {
                "--damping" => "leave the option out, or use --method tap",
                "--updates and no --sweeps" => "leave the option out, or use --method cd",
                _ => "leave the option out, or use --method mpf or pl",
            }),
        )
    }
}

/// Refuses a method that is for fewer units.
pub(crate) fn check_units(recipe: &Recipe, n_units: usize) -> Result<(), Failure> {
    let last = recipe.last(n_units).describe();
    if n_units <= last.max_units {
        return Ok(());
    }
    let why = format!(
        "{} is for up to {} units, and the data have {n_units}",
        last.title, last.max_units
    );
    Err(Failure::input(why).hint("use the method auto or pl, and no --refine ml"))
}

/// Refuses folds that `n_samples` cannot be cut into.
///
/// # Errors
/// [`mpf_ising::Error::Folds`], in words.
pub fn check_folds(n_folds: usize, n_samples: usize) -> Result<(), Failure> {
    if (2..=n_samples).contains(&n_folds) {
        return Ok(());
    }
    Err(mpf_ising::Error::Folds { n_folds, n_samples }.into())
}
