//! `mpf sample`: draws from a model file.

use crate::checkpoint::{self, CheckpointArgs};
use crate::console::Console;
use crate::draw::{self, DrawOptions, Drawn, SamplerName, Target};
use crate::failure::{Failure, WRONG_INPUT};
use crate::methods::name_of;
use crate::model::Model;
use crate::output::{self, ForceArg, Output};
use crate::ranks::{self, Job};
use crate::raster_file;
use clap::Args;
use mpf_core::{Cancel, Settings};
use mpf_ising::States;
use mpf_report::text::digits;
use mpf_samplers::ChainOptions;
use mpf_samplers::diagnostics::Summary;
use serde_json::json;
use std::path::PathBuf;

/// Options of `mpf sample`.
#[derive(Args, Clone, Debug)]
pub struct SampleArgs {
    /// A model file
    model: PathBuf,
    /// Number of states
    #[arg(short, value_name = "N", default_value_t = 10_000)]
    n: usize,
    /// Data file to write: .npy, .csv, .tsv or .txt; `-` writes .csv to standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Sampler
    #[arg(long, value_enum, default_value_t)]
    sampler: SamplerName,
    /// Write −1 and +1 instead of 0 and 1
    #[arg(long)]
    spins: bool,
    /// Number of independent chains
    #[arg(long, default_value_t = 4)]
    chains: usize,
    /// Steps of every chain before its first draw
    #[arg(long, value_name = "STEPS", default_value_t = 1000)]
    burn_in: usize,
    /// Steps per draw
    #[arg(long, value_name = "STEPS", default_value_t = 1)]
    thin: usize,
    /// Seed of all draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
    #[command(flatten)]
    force: ForceArg,
}

impl SampleArgs {
    /// Refuses to draw nothing.
    fn check(&self) -> Result<(), Failure> {
        for (n, option, what) in [
            (self.n, "-n", "states"),
            (self.chains, "--chains", "chains"),
        ] {
            if n == 0 {
                let why = format!("{option} 0 asks for no {what}");
                return Err(Failure::input(why).hint("ask for at least one"));
            }
        }
        Ok(())
    }

    fn chains(&self, cancel: &Cancel) -> ChainOptions {
        ChainOptions {
            n_draws: self.n,
            n_chains: self.chains,
            burn_in: self.burn_in,
            thinning: self.thin,
            seed: self.seed,
            cancel: cancel.clone(),
            ..Default::default()
        }
    }

    fn draw(
        &self,
        model: &Model,
        chains: ChainOptions,
        console: Console,
    ) -> Result<Drawn, Failure> {
        let machine = model.machine()?;
        let options = DrawOptions {
            sampler: self.sampler,
            chains,
            starts: None,
            console,
        };
        draw::draw(Target::of(model, machine.as_ref()), &options)
    }

    /// Lists what the draws depend on.
    fn settings(&self, model: &Model) -> Settings {
        checkpoint::settings("sample")
            .with("the model", model.couplings_fingerprint())
            .with("--sampler", name_of(self.sampler))
            .with("-n", self.n)
            .with("--chains", self.chains)
            .with("--burn-in", self.burn_in)
            .with("--thin", self.thin)
            .with("--seed", self.seed)
    }
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &SampleArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    let console = console.beside(&args.output)?;
    let job = Job::start()?;
    let opened = open(args);
    let own = opened.as_ref().map(|model| || args.settings(model));
    if let Err(failure) = ranks::agree(&*job.ranks, own.map_err(Clone::clone)) {
        // Rank 0 says it for all.
        return match job.ranks.rank() {
            0 => Err(failure),
            _ => Ok(WRONG_INPUT),
        };
    }
    let model = opened?;
    let settings = || args.settings(&model);
    let checkpoint = args.checkpoint.open(settings, console, cancel)?;
    let chains = ChainOptions {
        checkpoint: checkpoint.entry("chains"),
        ranks: job.ranks.clone(),
        ..args.chains(cancel)
    };
    // Every rank has all draws, and one of them speaks and writes.
    let outcome = match job.ranks.rank() {
        0 => args
            .draw(&model, chains, console)
            .and_then(|drawn| write(args, console, &model, &drawn)),
        _ => args.draw(&model, chains, Console::silent()).map(|_| 0),
    };
    let outcome = args.checkpoint.end(&checkpoint, console, outcome);
    job.end(outcome)
}

/// Checks the arguments; returns the model.
fn open(args: &SampleArgs) -> Result<Model, Failure> {
    raster_file::check_name(&args.output)?;
    let mut outputs = vec![Output::Raster(&args.output)];
    outputs.extend(args.checkpoint.output());
    output::check(&[&args.model], &outputs, args.force)?;
    args.check()?;
    if args.checkpoint.is_given() && ranks::n_launched() > 1 {
        return Err(Failure::input("--checkpoint: no rank has all chains")
            .hint("draw in one process, or without it"));
    }
    Model::read(&args.model, None)
}

/// Draws from a model in memory; also returns the warnings.
///
/// # Errors
/// Those of the command.
pub fn draw(
    args: &SampleArgs,
    model: &Model,
    cancel: &Cancel,
) -> Result<(States, Vec<String>), Failure> {
    args.check()?;
    let Drawn { states, how } = args.draw(model, args.chains(cancel), Console::silent())?;
    let found = how.diagnostics.map_or_else(Vec::new, |d| d.warnings);
    Ok((states, how.remark.into_iter().chain(found).collect()))
}

fn write(args: &SampleArgs, console: Console, model: &Model, drawn: &Drawn) -> Result<u8, Failure> {
    raster_file::write(&args.output, &drawn.states, &model.names, args.spins)?;
    let how = &drawn.how;
    let mut text = format!(
        "{}: {} states of {} units by --sampler {}\n",
        args.output.display(),
        args.n,
        model.names.len(),
        name_of(how.sampler)
    );
    how.remark.iter().for_each(|remark| console.warning(remark));
    if let Some(found) = &how.diagnostics {
        found.warnings.iter().for_each(|w| console.warning(w));
        let line = |what: &str, of: &Summary| {
            format!(
                "{what}: {} ± {}, R-hat {:.3}, {:.0} effective draws\n",
                digits(of.mean),
                digits(of.mcse),
                of.rhat,
                of.bulk_ess
            )
        };
        text += &line("energy", &found.energy);
        text += &line("active units", &found.n_active);
        if let (Some(rhat), Some(draws)) = (found.worst_rhat, found.fewest_draws) {
            text += &format!(
                "at worst: R-hat {:.3} of {}, {:.0} effective draws of {}\n",
                rhat.value, rhat.of, draws.value, draws.of
            );
        }
    }
    console.result(&text)?;
    console.json(&json!({
        "output": args.output.display().to_string(),
        "n_samples": args.n,
        "sampler": name_of(how.sampler),
        "remark": how.remark,
        "diagnostics": how.diagnostics,
    }))?;
    Ok(0)
}
