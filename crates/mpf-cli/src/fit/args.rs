//! The options of `mpf fit`, and the recipe that they ask for.

use super::time::{has_penalty, n_determined};
use crate::checkpoint::CheckpointArgs;
use crate::data::{DataArgs, Raster};
use crate::failure::Failure;
use crate::memory::MemoryLimit;
use crate::methods::{AUTO, MethodArgs, Neighbours, Strength, check_folds, check_units};
use crate::output::ForceArg;
use clap::{Args, ValueEnum};
use mpf_baselines::{ErrorBarsBy, Methods, Polish, Recipe, Refine, Takes};
use mpf_core::Cancel;
use mpf_ising::internal::n_blocks;
use mpf_ising::{ErrorBars, FoldAssignment, PathOptions, Penalty, Rule, Samples, States, Support};
use std::borrow::Cow;
use std::path::PathBuf;

/// Parses the argument of `--polish`.
fn polish(text: &str) -> Result<Polish, String> {
    match text {
        "auto" => Ok(Polish::IfDrifting),
        number => number
            .parse()
            .map(Polish::Updates)
            .map_err(|_| "a number of updates, or `auto`".into()),
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
    pub(crate) data: DataArgs,
    /// More packed files of the same units, whose samples follow
    #[arg(value_name = "SHARD")]
    pub(super) shards: Vec<PathBuf>,
    /// Model file to write: .json, .npz or .csv; `-` writes JSON to standard output
    #[arg(short, long, value_name = "MODEL")]
    pub(super) output: PathBuf,
    /// Method of the fit
    #[arg(long, default_value = AUTO, help_heading = "Method")]
    pub(super) method: String,
    #[command(flatten)]
    pub(super) options: MethodArgs,
    /// With `--l1 auto` or `--l2 auto`, how the penalty is chosen [default: min]
    #[arg(long, value_enum, help_heading = "Method")]
    pub(super) rule: Option<RuleName>,
    /// With `--l1 auto` or `--l2 auto`, the number of folds [default: 5]
    #[arg(long, help_heading = "Method")]
    pub(super) folds: Option<usize>,
    /// Part of the samples, the last ones, that a second fit leaves out to judge the model; 0 for
    /// no such fit
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.2,
        help_heading = "Method"
    )]
    pub(super) held_out: f64,
    /// Updates of stochastic maximum likelihood (persistent CD) after the fit, which are kept;
    /// `auto`: 200 if the model drifts off its data, kept if held-out samples get likelier
    #[arg(
        long,
        value_name = "N|auto",
        value_parser = polish,
        default_value = "auto",
        help_heading = "Method"
    )]
    pub(super) polish: Polish,
    /// File of the couplings that are free, two units on a line; the others are zero
    #[arg(long, value_name = "EDGES", help_heading = "Method")]
    pub(super) support: Option<PathBuf>,
    /// Error bars of the couplings
    #[arg(long, value_enum, default_value_t, help_heading = "Error bars")]
    pub(super) errors: ErrorsName,
    /// Bootstrap: number of resamples [default: 200]
    #[arg(long, help_heading = "Error bars")]
    pub(super) resamples: Option<usize>,
    /// Number of successive samples that are correlated; 1 for independent samples
    /// [default: six autocorrelation times of the data]
    #[arg(long, value_name = "N", help_heading = "Error bars")]
    pub(super) block_length: Option<usize>,
    #[command(flatten)]
    pub(crate) memory: MemoryLimit,
    /// Packed files: the memory that the fit may take; what it does not need keeps samples from one
    /// evaluation to the next, and changes no digit [default: 400]
    #[arg(long = "memory", value_name = "MB", help_heading = "Limits")]
    pub(super) stream_memory: Option<f64>,
    /// Packed files: read all samples into memory, as from any other file; without this only those of
    /// up to 67 million entries
    #[arg(long, conflicts_with = "stream_memory", help_heading = "Limits")]
    pub(super) in_memory: bool,
    /// Packed files: read the samples tile by tile, however few they are
    #[arg(long, conflicts_with = "in_memory", help_heading = "Limits")]
    pub(super) stream: bool,
    #[command(flatten)]
    pub(super) checkpoint: CheckpointArgs,
    #[command(flatten)]
    pub(super) force: ForceArg,
}

impl FitArgs {
    /// Returns whether several processes share this fit: the data are packed.
    pub(crate) fn is_shared(&self) -> bool {
        super::packed::is_packed(&self.data.data) && !self.in_memory
    }

    /// Refuses options that contradict each other or cannot apply.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let no_path = self.path_of().is_none();
        let no_bootstrap = self.errors != ErrorsName::Bootstrap;
        let path = "--l1 auto or --l2 auto";
        for (is_useless, option, needs) in [
            (self.rule.is_some() && no_path, "--rule", path),
            (self.folds.is_some() && no_path, "--folds", path),
            (
                self.resamples.is_some() && no_bootstrap,
                "--resamples",
                "--errors bootstrap",
            ),
        ] {
            if is_useless {
                let why = format!("{option} does nothing without {needs}");
                return Err(Failure::input(why).hint(format!("leave it out, or add {needs}")));
            }
        }
        if self.options.l1 == Some(Strength::Auto) && self.options.l2 == Some(Strength::Auto) {
            return Err(Failure::input("--l1 auto and --l2 auto at the same time")
                .hint("choose one of them and fix the other"));
        }
        if self.rule == Some(RuleName::Ebic) && self.path_of() == Some(Penalty::L2) {
            return Err(
                Failure::input("--rule ebic needs couplings that are exactly zero")
                    .hint("use --l1 auto, or another rule for --l2 auto"),
            );
        }
        if let Some(few @ (0 | 1)) = self.resamples {
            let why = format!("--resamples {few}: a spread needs at least two of them");
            return Err(Failure::input(why).hint("200 give standard errors to 5 %"));
        }
        if self.block_length == Some(0) {
            return Err(Failure::input("--block-length 0: a block has samples")
                .hint("use 1 for independent samples"));
        }
        if !(0.0..=0.9).contains(&self.held_out) {
            let why = format!("--held-out {}: a part of the samples", self.held_out);
            return Err(Failure::input(why).hint("give a fraction from 0 to 0.9, such as 0.2"));
        }
        Ok(())
    }

    /// Returns the penalty that is to be chosen.
    fn path_of(&self) -> Option<Penalty> {
        match (self.options.l1, self.options.l2) {
            (Some(Strength::Auto), _) => Some(Penalty::L1),
            (_, Some(Strength::Auto)) => Some(Penalty::L2),
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
        let recipe = self
            .options
            .recipe(methods, &self.method, support, cancel)?;
        let d = raster.states.n_units();
        let last = recipe.last(d).describe();
        check_units(&recipe, d)?;
        if self.errors == ErrorsName::Sandwich && !last.takes.contains(&Takes::Sandwich) {
            let why = format!("the method {} has no --errors sandwich", last.name);
            return Err(Failure::input(why).hint("use --errors bootstrap"));
        }
        if self.errors == ErrorsName::Sandwich && recipe.options.potential.is_some() {
            return Err(
                Failure::input("--errors sandwich knows no --model k-pairwise")
                    .hint("use --errors bootstrap"),
            );
        }
        if self.errors != ErrorsName::None {
            let n = raster.states.n_samples();
            n_blocks(n, self.block_length.unwrap_or(1))?;
        }
        Ok(Recipe {
            choose: self.choose(raster.fold_assignment(recipe.options.seed)),
            // Rows with counts are in no order: there is no last part of a recording.
            held_out: if raster.weights.is_some() {
                0.0
            } else {
                self.held_out
            },
            polish: self.polish,
            errors: match self.errors {
                ErrorsName::None => ErrorBarsBy::Nothing,
                ErrorsName::Sandwich => ErrorBarsBy::Sandwich,
                ErrorsName::Bootstrap => ErrorBarsBy::Bootstrap(self.resamples.unwrap_or(200)),
            },
            block_length: self.block_length,
            ..recipe
        })
    }

    /// Returns the path along which a penalty is to be chosen.
    pub(super) fn choose(&self, assignment: FoldAssignment) -> Option<PathOptions> {
        self.path_of().map(|penalty| PathOptions {
            penalty,
            n_folds: self.n_folds(),
            assignment,
            rule: match self.rule_or_default() {
                RuleName::Min => Rule::Minimum,
                RuleName::OneStandardError => Rule::OneStandardError,
                RuleName::Ebic => Rule::Ebic,
            },
            ..Default::default()
        })
    }

    /// Refuses more folds than samples, and a sandwich that could not be computed after the fit.
    pub(super) fn check_samples(&self, recipe: &Recipe, samples: &Samples) -> Result<(), Failure> {
        if let Some(path) = &recipe.choose {
            check_folds(path.n_folds, samples.n_observed())?;
        }
        if self.errors != ErrorsName::Sandwich {
            return Ok(());
        }
        let neighbours = self.options.neighbours.unwrap_or_default();
        if neighbours != Neighbours::Single && matches!(recipe.refine, Refine::Nothing) {
            return Err(Failure::input(
                "--errors sandwich is for the neighbours of the default alone",
            )
            .hint("leave out --neighbours, or use --errors bootstrap"));
        }
        let d = samples.n_units();
        let is_node_wise = recipe.last(d).is_node_wise(&recipe.options);
        // Units that never change have no parameters.
        let means = samples.means();
        let varying = means.iter().filter(|m| **m > 0.0 && **m < 1.0).count();
        let n_parameters = d + recipe.options.support.most_pairs(varying);
        let limit = ErrorBars::MAX_JOINT_PARAMETERS;
        if !is_node_wise && n_parameters > limit {
            let why = format!(
                "--errors sandwich: {n_parameters} parameters, and a joint fit may have {limit}"
            );
            return Err(Failure::input(why).hint("add --nodewise, or use --errors bootstrap"));
        }
        if !has_penalty(recipe) {
            return Ok(());
        }
        // The penalty cannot be taken back.
        let n_parameters = if is_node_wise {
            d
        } else {
            d + n_determined(recipe, samples)?
        };
        if n_parameters as f64 >= samples.total_weight() {
            let why = format!(
                "--errors sandwich: {n_parameters} parameters, and only {} samples",
                samples.n_observed()
            );
            let hint = "use --errors bootstrap; rows by themselves (--nodewise) have fewer";
            return Err(Failure::input(why).hint(hint));
        }
        Ok(())
    }

    pub(super) fn n_folds(&self) -> usize {
        self.folds.unwrap_or(5)
    }

    pub(super) fn rule_or_default(&self) -> RuleName {
        self.rule.unwrap_or_default()
    }

    /// Returns every sample by itself, if a step of the recipe needs that.
    pub(super) fn states<'a>(
        &self,
        raster: &'a Raster,
    ) -> Result<Option<Cow<'a, States>>, Failure> {
        let why = match (self.path_of(), self.errors) {
            (Some(_), _) => "--l1 auto or --l2 auto",
            (None, ErrorsName::None) if raster.weights.is_some() => return Ok(None),
            (None, ErrorsName::None) => "--held-out",
            (None, _) => "--errors",
        };
        raster.every_sample(why).map(Some)
    }
}
