//! Draws from a model, and what they are worth.

use crate::checkpoint::{CheckpointArgs, Keeper, Settings};
use crate::console::Console;
use crate::failure::Failure;
use crate::memory;
use clap::ValueEnum;
use mpf_core::{Cancel, EnergyModel};
use mpf_ising::{Couplings, IsingModel, States};
use mpf_report::progress;
use mpf_samplers::diagnostics::{self, Summary};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, Chains, ExactEnumeration, Gibbs, Run, Sampler,
    SwendsenWang, Tally, Tempering, TemperingOptions,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A sampler's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SamplerName {
    /// Gibbs sweeps: warm models, such as those of spikes
    #[default]
    Gibbs,
    /// Swendsen-Wang clusters: unfrustrated models near their critical point
    Sw,
    /// Parallel tempering: cold, frustrated models
    Tempering,
    /// Independent draws by enumeration, up to 24 units
    Exact,
}

/// How to draw.
#[derive(Clone, Debug)]
pub struct DrawOptions {
    /// The sampler.
    pub sampler: SamplerName,
    /// How many states.
    pub n_draws: usize,
    /// From how many chains.
    pub chains: usize,
    /// Steps of every chain that are thrown away.
    pub burn_in: usize,
    /// Steps per draw.
    pub thinning: usize,
    /// What all draws depend on.
    pub seed: u64,
}

/// One quantity of the draws. NaN, in JSON null, for one that never changes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Diagnosis {
    /// Its mean.
    pub mean: f64,
    /// The standard error of the mean.
    pub standard_error: f64,
    /// Effective draws.
    pub effective_draws: f64,
    /// R̂: above 1.01 the chains do not agree.
    pub rhat: f64,
    /// The autocorrelation time in draws.
    pub autocorrelation_time: f64,
}

impl From<Summary> for Diagnosis {
    fn from(summary: Summary) -> Self {
        Self {
            mean: summary.mean,
            standard_error: summary.mcse,
            effective_draws: summary.bulk_ess,
            rhat: summary.rhat,
            autocorrelation_time: summary.autocorrelation_time,
        }
    }
}

/// What all draws together are worth.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnostics {
    /// Chains.
    pub chains: usize,
    /// Of the energy.
    pub energy: Diagnosis,
    /// Of the number of active units.
    pub n_active: Diagnosis,
    /// Tempering: visits of a replica to the hottest level and back.
    pub round_trips: Option<u64>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

/// Draws from a model.
pub struct Drawn {
    /// Chain after chain.
    pub states: States,
    /// What they are worth; `None` for fewer than eight draws per chain.
    pub diagnostics: Option<Diagnostics>,
}

/// Where unfinished draws are kept, and the settings that they depend on.
pub struct Keeping<'a> {
    /// What was asked for.
    pub args: &'a CheckpointArgs,
    /// The settings.
    pub settings: Settings,
    /// Who is told.
    pub console: Console,
}

/// Draws states of `couplings`.
///
/// # Errors
/// Those of the sampler, and an interruption.
pub fn draw(
    couplings: &Couplings,
    options: &DrawOptions,
    cancel: &Cancel,
) -> Result<Drawn, Failure> {
    let nowhere = Keeping {
        args: &CheckpointArgs::default(),
        settings: Settings::new("draw"),
        console: Console {
            json: false,
            quiet: true,
        },
    };
    draw_and(couplings, options, &nowhere, cancel, Ok)
}

/// As [`draw`], and does `then` with the draws; unfinished ones are kept until that is done.
///
/// # Errors
/// As [`draw`]; a checkpoint that cannot be used; those of `then`.
pub fn draw_and<T>(
    couplings: &Couplings,
    options: &DrawOptions,
    keeping: &Keeping<'_>,
    cancel: &Cancel,
    then: impl FnOnce(Drawn) -> Result<T, Failure>,
) -> Result<T, Failure> {
    memory::check(
        "so many draws",
        memory::of_draws(options.n_draws, couplings.n_units()),
        None,
        "ask for fewer at a time",
    )?;
    let task = Task {
        couplings,
        options,
        keeping,
        cancel,
    };
    match options.sampler {
        SamplerName::Gibbs => task.run(&Gibbs::new(couplings)?, |_| None, then),
        SamplerName::Sw => task.run(&SwendsenWang::new(couplings)?, |_| None, then),
        SamplerName::Exact => task.run(&ExactEnumeration::new(couplings)?, |_| None, then),
        SamplerName::Tempering => {
            let tempering = Tempering::tune(
                couplings,
                &TemperingOptions {
                    // From no couplings at all: fitted ones may be large.
                    hottest: 0.0,
                    seed: options.seed,
                    ..Default::default()
                },
            )?;
            task.run(&tempering, |swaps| Some(swaps.round_trips), then)
        }
    }
}

/// Unfinished draws, if any are done.
type Kept<S> = Option<Chains<<S as Sampler>::State, States, <S as Sampler>::Info>>;

/// Pieces that a run is done in, so that it can be kept in between.
const PIECES: usize = 100;

struct Task<'a> {
    couplings: &'a Couplings,
    options: &'a DrawOptions,
    keeping: &'a Keeping<'a>,
    cancel: &'a Cancel,
}

impl Task<'_> {
    fn run<S, T>(
        &self,
        sampler: &S,
        round_trips: impl Fn(&S::Info) -> Option<u64>,
        then: impl FnOnce(Drawn) -> Result<T, Failure>,
    ) -> Result<T, Failure>
    where
        S: ChainSampler<Draws = States, Info: Tally + Send + Sync, State: Send> + Sync,
        S::State: Clone + Serialize + DeserializeOwned,
        S::Info: Clone + Serialize + DeserializeOwned,
    {
        let Keeping {
            args,
            settings,
            console,
        } = self.keeping;
        let in_words = |chains: &Kept<S>| match chains {
            None => "nothing is done yet".to_owned(),
            Some(chains) => format!("{} steps of every chain done", chains.steps()),
        };
        let keeper = Keeper::new(args, settings.clone(), *console, in_words)?;
        let drawn = self.draw(sampler, round_trips, &keeper);
        keeper.end(drawn.and_then(then))
    }

    fn draw<S>(
        &self,
        sampler: &S,
        round_trips: impl Fn(&S::Info) -> Option<u64>,
        keeper: &Keeper<Kept<S>>,
    ) -> Result<Drawn, Failure>
    where
        S: ChainSampler<Draws = States, Info: Tally + Send + Sync, State: Send> + Sync,
        S::State: Clone + Serialize + DeserializeOwned,
        S::Info: Clone + Serialize + DeserializeOwned,
    {
        let options = self.options;
        let n_chains = options.chains.min(options.n_draws).max(1);
        let n_draws = options.n_draws.div_ceil(n_chains);
        let runner = ChainRunner::new(ChainOptions {
            seed: options.seed,
            n_chains,
            n_draws,
            burn_in: options.burn_in,
            thinning: options.thinning,
            cancel: self.cancel.clone(),
        })?;
        // The runner has seen that this can be counted.
        let total = options.burn_in + n_draws * options.thinning;
        let piece = if keeper.is_on() {
            total.div_ceil(PIECES)
        } else {
            total
        };
        let bar = progress::bar(100 * n_chains as u64).with_prefix("draws");
        let mut chains = match keeper.get(Clone::clone) {
            Some(mut chains) => {
                // By no steps: only looks whether they are chains of this sampler.
                runner.advance(sampler, &mut chains, 0, |_| {})?;
                chains
            }
            None => runner.begin(sampler)?,
        };
        while chains.steps() < total {
            runner.advance(sampler, &mut chains, piece, |_| bar.inc(1))?;
            if self.cancel.is_cancelled() {
                bar.finish_and_clear();
                keeper.keep(|kept| *kept = Some(chains));
                return Err(Failure::interrupted());
            }
            keeper.keep_when_due(|kept| *kept = Some(chains.clone()));
        }
        bar.finish_and_clear();
        let run = runner.finish(chains);
        let trips: Option<u64> = run.chains.iter().map(|c| round_trips(&c.info)).sum();
        let diagnostics = diagnose(&run, self.couplings, trips);
        let mut states = run.pooled();
        drop(run);
        if states.n_samples() > options.n_draws {
            states = states.slice(0..options.n_draws);
        }
        Ok(Drawn {
            states,
            diagnostics,
        })
    }
}

fn diagnose<I>(
    run: &Run<States, I>,
    couplings: &Couplings,
    round_trips: Option<u64>,
) -> Option<Diagnostics> {
    let (model, theta) = (IsingModel::new(couplings.n_units()), couplings.pack());
    let of = |series: Vec<Vec<f64>>| diagnostics::summary(&series).ok().map(Diagnosis::from);
    let energy = of(run.series(|row| model.energy(&theta, row)))?;
    let n_active =
        of(run.series(|row| f64::from(row.iter().map(|w| w.count_ones()).sum::<u32>())))?;
    let mut warnings = Vec::new();
    for (what, diagnosis) in [("energy", &energy), ("number of active units", &n_active)] {
        if diagnosis.rhat > 1.01 {
            warnings.push(format!(
                "the chains do not agree on the {what} (R-hat {:.3}): draw more, or use \
                 --sampler tempering",
                diagnosis.rhat
            ));
        } else if diagnosis.effective_draws < 100.0 * run.chains.len() as f64 {
            warnings.push(format!(
                "only {:.0} effective draws of the {what}: draw more, or use --thin",
                diagnosis.effective_draws
            ));
        }
    }
    if round_trips == Some(0) {
        warnings.push("no replica travelled the whole ladder: draw more".into());
    }
    Some(Diagnostics {
        chains: run.chains.len(),
        energy,
        n_active,
        round_trips,
        warnings,
    })
}
