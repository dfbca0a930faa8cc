//! The options of the methods, and the method that they make.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use mpf_baselines::contrastive::ContrastiveOptions;
use mpf_baselines::{Expansion, Method};
use mpf_core::{Cancel, MinimizerOptions};
use mpf_ising::{FitOptions, Mode, Neighbourhood, Support};
use std::str::FromStr;

/// A method's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodName {
    /// Minimum probability flow
    Mpf,
    /// Pseudolikelihood
    Pl,
    /// RISE: interaction screening, row by row
    Rise,
    /// logRISE
    Logrise,
    /// Contrastive divergence
    Cd,
    /// Mean field theory with the TAP correction
    Tap,
    /// Exact maximum likelihood, up to 20 units
    Ml,
    /// No couplings: the null model
    Independent,
}

impl MethodName {
    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mpf => "mpf",
            Self::Pl => "pl",
            Self::Rise => "rise",
            Self::Logrise => "logrise",
            Self::Cd => "cd",
            Self::Tap => "tap",
            Self::Ml => "ml",
            Self::Independent => "independent",
        }
    }

    fn has_penalties(self) -> bool {
        !matches!(self, Self::Cd | Self::Tap | Self::Independent)
    }
}

/// λ, or the wish that it be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strength {
    /// This one.
    Given(f64),
    /// By cross-validation.
    Auto,
}

impl Strength {
    /// The number, or 0 where it is still to be chosen.
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

/// Where probability may flow, by the names of the command line.
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

    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::SingleAndAll => "single+all",
            Self::NonData => "non-data",
        }
    }
}

/// What `fit` and `compare` share.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// λ₁ on Σ|K_ij| (spin couplings), or `auto`: by cross-validation
    #[arg(long, value_name = "λ|auto", default_value = "0")]
    pub l1: Strength,
    /// λ₂ on ½ΣK_ij², or `auto`: by cross-validation
    #[arg(long, value_name = "λ|auto", default_value = "0")]
    pub l2: Strength,
    /// MPF: which states probability may flow to
    #[arg(long, value_enum, default_value_t)]
    pub neighbours: Neighbours,
    /// Fit every row by itself and average (RISE always does)
    #[arg(long)]
    pub nodewise: bool,
    /// TAP: damping of the inverse covariance
    #[arg(long, value_name = "λ", default_value_t = 1e-4)]
    pub damping: f64,
    /// CD: updates
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub updates: usize,
    /// CD: Gibbs sweeps per update
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub sweeps: usize,
    /// Converged when no gradient in standardised units is larger
    #[arg(long, value_name = "G", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// Most iterations
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_iterations: usize,
    /// Most seconds of learning
    #[arg(long, value_name = "S")]
    pub max_seconds: Option<f64>,
    /// What all randomness depends on
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl MethodArgs {
    /// The method with these options, on `support`.
    ///
    /// # Errors
    /// An option that the method does not have.
    pub fn method(
        &self,
        name: MethodName,
        support: Support,
        cancel: &Cancel,
    ) -> Result<Method, Failure> {
        self.check(name, &support)?;
        let options = FitOptions {
            l1: self.l1.number(),
            l2: self.l2.number(),
            neighbourhood: self.neighbours.rule(),
            support: support.clone(),
            mode: if self.nodewise {
                Mode::NodeWise
            } else {
                Mode::Joint
            },
            minimizer: MinimizerOptions {
                gradient_tolerance: self.tolerance,
                max_iterations: self.max_iterations,
                max_seconds: self.max_seconds.unwrap_or(f64::INFINITY),
                cancel: cancel.clone(),
                ..Default::default()
            },
            ..Default::default()
        };
        // λ₁ means the same for every method: RISE's own λ is half of it.
        let lambda = 0.5 * options.l1;
        Ok(match name {
            MethodName::Mpf => Method::Mpf(options),
            MethodName::Pl => Method::Pseudolikelihood(options),
            MethodName::Rise => Method::Rise { lambda, options },
            MethodName::Logrise => Method::LogRise { lambda, options },
            MethodName::Ml => Method::MaximumLikelihood(options),
            MethodName::Independent => Method::Independent,
            MethodName::Tap => Method::MeanField {
                expansion: Expansion::Tap,
                lambda: self.damping,
            },
            MethodName::Cd => Method::ContrastiveDivergence(ContrastiveOptions {
                sweeps: self.sweeps,
                updates: self.updates,
                support,
                seed: self.seed,
                max_seconds: self.max_seconds.unwrap_or(f64::INFINITY),
                cancel: cancel.clone(),
                ..Default::default()
            }),
        })
    }

    /// Refuses what would silently be ignored.
    fn check(&self, name: MethodName, support: &Support) -> Result<(), Failure> {
        let penalty = self.l1 != Strength::Given(0.0) || self.l2 != Strength::Given(0.0);
        let restricted = *support != Support::Full;
        let closed = matches!(name, MethodName::Tap | MethodName::Independent);
        let refused = [
            (penalty && !name.has_penalties(), "--l1 and --l2"),
            (
                self.nodewise && (!name.has_penalties() || name == MethodName::Ml),
                "--nodewise",
            ),
            (restricted && closed, "--support"),
            (
                self.neighbours != Neighbours::Single
                    && !matches!(
                        name,
                        MethodName::Mpf | MethodName::Rise | MethodName::Logrise
                    ),
                "--neighbours",
            ),
        ];
        match refused.into_iter().find(|(wrong, _)| *wrong) {
            None => Ok(()),
            Some((_, option)) => Err(Failure::input(format!(
                "the method {} has no {option}",
                name.as_str()
            ))
            .hint("leave the option out, or use --method mpf or pl")),
        }
    }
}
