//! The options of the methods, shared by `mpf fit` and `mpf compare`.

use crate::failure::Failure;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use mpf_baselines::{Method, MethodOptions, Methods, Takes};
use mpf_core::{Cancel, MinimizerOptions};
use mpf_ising::{Neighbourhood, Support};
use std::str::FromStr;

/// Parses the name of one of `methods`; the help lists them.
pub fn name_parser(methods: &Methods) -> PossibleValuesParser {
    PossibleValuesParser::new(methods.iter().map(|method| {
        let description = method.describe();
        PossibleValue::new(description.name).help(description.summary)
    }))
}

/// Returns the method called `name`.
///
/// # Errors
/// A name that is not listed.
pub fn find(methods: &Methods, name: &str) -> Result<&'static dyn Method, Failure> {
    methods
        .find(name)
        .ok_or_else(|| Failure::input(format!("there is no method {name}")))
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
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(Self::Given(value)),
            _ => Err("a penalty is a number that is not negative, or `auto`".into()),
        }
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

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::SingleAndAll => "single+all",
            Self::NonData => "non-data",
        }
    }
}

/// Options of `mpf fit` and `mpf compare`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// λ₁ on Σ|K_ij| (spin couplings); `auto` chooses it by cross-validation
    #[arg(long, value_name = "λ|auto", default_value = "0")]
    pub l1: Strength,
    /// λ₂ on ½ΣK_ij²; `auto` chooses it by cross-validation
    #[arg(long, value_name = "λ|auto", default_value = "0")]
    pub l2: Strength,
    /// MPF: the states that probability may flow to
    #[arg(long, value_enum, default_value_t)]
    pub neighbours: Neighbours,
    /// Fit every row by itself and average (RISE always does)
    #[arg(long)]
    pub nodewise: bool,
    /// TAP: damping of the inverse covariance
    #[arg(long, value_name = "λ", default_value_t = 1e-4)]
    pub damping: f64,
    /// CD: number of updates
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub updates: usize,
    /// CD: number of Gibbs sweeps per update
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub sweeps: usize,
    /// Largest gradient, in standardised units, of a converged fit
    #[arg(long, value_name = "G", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// Iteration limit
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_iterations: usize,
    /// Time limit of learning, in seconds
    #[arg(long, value_name = "S")]
    pub max_seconds: Option<f64>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl MethodArgs {
    /// Returns the options of the methods; a penalty that is still to be chosen is 0.
    pub fn options(&self, support: Support, cancel: &Cancel) -> MethodOptions {
        MethodOptions {
            l1: self.l1.number(),
            l2: self.l2.number(),
            neighbourhood: self.neighbours.rule(),
            node_wise: self.nodewise,
            support,
            minimizer: MinimizerOptions {
                gradient_tolerance: self.tolerance,
                max_iterations: self.max_iterations,
                max_seconds: self.max_seconds.unwrap_or(f64::INFINITY),
                cancel: cancel.clone(),
                ..Default::default()
            },
            damping: self.damping,
            updates: self.updates,
            sweeps: self.sweeps,
            seed: self.seed,
        }
    }

    /// Refuses options that `method` would silently ignore.
    ///
    /// # Errors
    /// A [`Failure`] that names the first of them.
    pub fn check(&self, method: &dyn Method, options: &MethodOptions) -> Result<(), Failure> {
        let description = method.describe();
        let is_auto = [self.l1, self.l2].contains(&Strength::Auto);
        let penalised = is_auto && !description.takes.contains(&Takes::Penalties);
        let refused = penalised.then_some(Takes::Penalties);
        let option = match refused.or_else(|| options.refused_by(&description)) {
            None => return Ok(()),
            Some(Takes::Penalties) => "--l1 and --l2",
            Some(Takes::NodeWise) => "--nodewise",
            Some(Takes::Support) => "--support",
            Some(Takes::Neighbourhoods) => "--neighbours",
            Some(Takes::Sandwich) => "--errors sandwich",
            Some(Takes::Damping) => "--damping",
            Some(Takes::Updates) => "--updates and --sweeps",
        };
        let name = description.name;
        Err(Failure::input(format!("the method {name} has no {option}"))
            .hint("leave the option out, or use --method mpf or pl"))
    }
}
