//! The options of `mpf fit`, and the recipe that they ask for.

use crate::checkpoint::CheckpointArgs;
use crate::data::{DataArgs, Raster};
use crate::failure::Failure;
use crate::memory::MemoryLimit;
use crate::methods::{MethodArgs, Strength, find};
use clap::{Args, ValueEnum};
use mpf_baselines::{ErrorBarsBy, Methods, Polish, Recipe};
use mpf_core::Cancel;
use mpf_ising::{PathOptions, Penalty, Rule, States, Support};
use std::borrow::Cow;
use std::path::PathBuf;
use std::str::FromStr;

/// The argument of `--polish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolishArg(pub(super) Polish);

impl FromStr for PolishArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(Polish::IfDrifting)),
            number => number
                .parse()
                .map(|updates| Self(Polish::Updates(updates)))
                .map_err(|_| "a number of updates, or `auto`".into()),
        }
    }
}

/// The argument of `--rule`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RuleName {
    /// The best held-out objective: for the couplings
    #[default]
    Min,
    /// The largest λ within one standard error of it: for few couplings
    #[value(name = "1se")]
    OneStandardError,
    /// The smallest EBIC: for the graph (λ₁ only)
    Ebic,
}

/// The argument of `--errors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ErrorsName {
    /// No error bars
    #[default]
    None,
    /// The sandwich formula: the time of a few fits
    Sandwich,
    /// Refits of resampled data: any method, slower
    Bootstrap,
}

/// Options of `mpf fit`.
#[derive(Args, Clone, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    pub(super) data: DataArgs,
    /// Model file to write: .json, .npz or .csv
    #[arg(short, long, value_name = "MODEL")]
    pub(super) output: PathBuf,
    /// Method of the fit
    #[arg(long, default_value = "mpf", help_heading = "Method")]
    pub(super) method: String,
    #[command(flatten)]
    pub(super) options: MethodArgs,
    /// With `auto`, how the penalty is chosen
    #[arg(long, value_enum, default_value_t, help_heading = "Method")]
    pub(super) rule: RuleName,
    /// With `auto`, the number of folds
    #[arg(long, default_value_t = 5, help_heading = "Method")]
    pub(super) folds: usize,
    /// Updates of stochastic maximum likelihood (persistent CD) after the fit;
    /// `auto`: 300 if the model does not stay with its data and has no penalty nor error bars
    #[arg(
        long,
        value_name = "N|auto",
        default_value = "auto",
        help_heading = "Method"
    )]
    pub(super) polish: PolishArg,
    /// File of the couplings that are free, two units on a line; the others are zero
    #[arg(long, value_name = "EDGES", help_heading = "Method")]
    pub(super) support: Option<PathBuf>,
    /// Error bars of the couplings
    #[arg(long, value_enum, default_value_t, help_heading = "Error bars")]
    pub(super) errors: ErrorsName,
    /// Bootstrap: number of resamples
    #[arg(long, default_value_t = 200, help_heading = "Error bars")]
    pub(super) resamples: usize,
    /// Number of successive samples that are correlated; 1 for independent samples
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Error bars"
    )]
    pub(super) block_length: usize,
    #[command(flatten)]
    pub(super) memory: MemoryLimit,
    #[command(flatten)]
    pub(super) checkpoint: CheckpointArgs,
}

impl FitArgs {
    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let plain = matches!(self.polish.0, Polish::IfDrifting | Polish::Updates(0));
        if self.errors != ErrorsName::None && !plain {
            return Err(
                Failure::input("--errors are those of the fit, which --polish changes")
                    .hint("leave out one of the two"),
            );
        }
        if self.options.l1 == Strength::Auto && self.options.l2 == Strength::Auto {
            return Err(Failure::input("--l1 auto and --l2 auto at the same time")
                .hint("choose one of them and fix the other"));
        }
        if self.rule == RuleName::Ebic && self.path_of() == Some(Penalty::L2) {
            return Err(
                Failure::input("--rule ebic needs couplings that are exactly zero")
                    .hint("use --l1 auto, or another rule for --l2 auto"),
            );
        }
        Ok(())
    }

    /// Returns the penalty that is to be chosen.
    fn path_of(&self) -> Option<Penalty> {
        match (self.options.l1, self.options.l2) {
            (Strength::Auto, _) => Some(Penalty::L1),
            (_, Strength::Auto) => Some(Penalty::L2),
            _ => None,
        }
    }

    /// Returns the recipe of the fit, without a checkpoint.
    pub(super) fn recipe(
        &self,
        methods: &Methods,
        raster: &Raster,
        support: Support,
        cancel: &Cancel,
    ) -> Result<Recipe, Failure> {
        let method = find(methods, &self.method)?;
        let options = self.options.options(support, cancel);
        self.options.check(method, &options)?;
        let choose = self.path_of().map(|penalty| PathOptions {
            penalty,
            n_folds: self.folds,
            assignment: raster.fold_assignment(options.seed),
            rule: match self.rule {
                RuleName::Min => Rule::Minimum,
                RuleName::OneStandardError => Rule::OneStandardError,
                RuleName::Ebic => Rule::Ebic,
            },
            ..Default::default()
        });
        Ok(Recipe {
            method,
            options,
            choose,
            polish: self.polish.0,
            errors: match self.errors {
                ErrorsName::None => ErrorBarsBy::Nothing,
                ErrorsName::Sandwich => ErrorBarsBy::Sandwich,
                ErrorsName::Bootstrap => ErrorBarsBy::Bootstrap(self.resamples),
            },
            block_length: self.block_length,
        })
    }

    /// Returns every sample by itself, if a step of the recipe needs that.
    pub(super) fn states<'a>(
        &self,
        raster: &'a Raster,
    ) -> Result<Option<Cow<'a, States>>, Failure> {
        let why = match (self.path_of(), self.errors) {
            (Some(_), _) => "--l1 auto or --l2 auto",
            (None, ErrorsName::None) => return Ok(None),
            (None, _) => "--errors",
        };
        raster.every_sample(why).map(Some)
    }
}
