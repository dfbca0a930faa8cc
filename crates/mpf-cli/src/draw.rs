//! Draws from a model, with diagnostics.

use crate::failure::Failure;
use crate::memory;
use clap::ValueEnum;
use mpf_core::{Cancel, Checkpoint};
use mpf_ising::{Couplings, States};
use mpf_report::progress;
use mpf_samplers::diagnostics::RunDiagnostics;
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, ExactEnumeration, Gibbs, SwendsenWang, Tempering,
    TemperingOptions,
};

/// The argument of `--sampler`.
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

/// Options of [`draw`].
#[derive(Clone, Debug)]
pub struct DrawOptions {
    /// The sampler.
    pub sampler: SamplerName,
    /// The number of states.
    pub n_draws: usize,
    /// The number of chains.
    pub chains: usize,
    /// Steps of every chain before its first draw.
    pub burn_in: usize,
    /// Steps per draw.
    pub thinning: usize,
    /// The seed of all draws.
    pub seed: u64,
    /// Where unfinished draws are kept.
    pub checkpoint: Checkpoint,
}

/// States drawn from a model.
pub struct Drawn {
    /// The states, chain after chain.
    pub states: States,
    /// `None` for fewer than eight draws per chain.
    pub diagnostics: Option<RunDiagnostics>,
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
    memory::check(
        "so many draws",
        memory::of_draws(options.n_draws, couplings.n_units()),
        None,
        "ask for fewer at a time",
    )?;
    match options.sampler {
        SamplerName::Gibbs => run(&Gibbs::new(couplings)?, couplings, options, cancel),
        SamplerName::Sw => run(&SwendsenWang::new(couplings)?, couplings, options, cancel),
        SamplerName::Exact => run(
            &ExactEnumeration::new(couplings)?,
            couplings,
            options,
            cancel,
        ),
        SamplerName::Tempering => {
            let ladder = TemperingOptions {
                // Fitted couplings may be large: the hottest copy has none.
                hottest: 0.0,
                seed: options.seed,
                ..Default::default()
            };
            let tempering = Tempering::tune(couplings, &ladder)?;
            run(&tempering, couplings, options, cancel)
        }
    }
}

fn run<S: ChainSampler<Draws = States>>(
    sampler: &S,
    couplings: &Couplings,
    options: &DrawOptions,
    cancel: &Cancel,
) -> Result<Drawn, Failure> {
    let n_chains = options.chains.min(options.n_draws).max(1);
    let runner = ChainRunner::new(ChainOptions {
        seed: options.seed,
        n_chains,
        n_draws: options.n_draws.div_ceil(n_chains),
        burn_in: options.burn_in,
        thinning: options.thinning,
        cancel: cancel.clone(),
        checkpoint: options.checkpoint.clone(),
    })?;
    let bar = progress::bar(100 * n_chains as u64).with_prefix("draws");
    let run = runner.run_with_progress(sampler, |_| bar.inc(1));
    bar.finish_and_clear();
    let run = run?;
    if run.cancelled {
        return Err(Failure::interrupted());
    }
    let diagnostics = run.diagnose(couplings).ok();
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
