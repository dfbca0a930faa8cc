//! Draws from a model, with diagnostics.

use crate::console::Console;
use crate::failure::Failure;
use crate::fit::SYNCED;
use crate::memory;
use crate::model::Model;
use clap::ValueEnum;
use mpf_baselines::Machine;
use mpf_core::{Checkpoint, OneProcess, rng};
use mpf_ising::{Couplings, States, flip_bit};
use mpf_report::progress;
use mpf_report::text::{digits, duration};
use mpf_samplers::diagnostics::RunDiagnostics;
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, ExactEnumeration, Gibbs, Heated, Run, SwendsenWang,
    Tally, Tempering, TemperingOptions,
};
use std::sync::Arc;
use std::time::Instant;

/// The most units that `--sampler auto` enumerates: a million states.
const ENUMERATED_UNITS: usize = 20;
/// The most rows of the data among which chains look for their starts.
const CANDIDATES: usize = 2000;

/// Bytes of the state at a temperature beside its bits and units: its place in lists.
const STATE: usize = 100;
/// Chains and their draws that are tried before the others, and the most seconds for them.
const TRIED_CHAINS: usize = 4;
const TRIED_DRAWS: usize = 300;
const TRIED_SECONDS: f64 = 0.2;
/// A trial of fewer seconds is repeated with so many times the draws.
const TELLING_SECONDS: f64 = 0.02;
const TRIED_MORE: usize = 8;

/// The argument of `--sampler`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SamplerName {
    /// Enumeration up to 20 units, else Gibbs sweeps, and tempering where their chains do not agree
    #[default]
    Auto,
    /// Gibbs sweeps: warm models, such as those of spikes
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
pub struct DrawOptions<'a> {
    /// The sampler.
    pub sampler: SamplerName,
    /// The chains; `n_draws` is the number of states of all of them together.
    pub chains: ChainOptions,
    /// Data in which half of the chains of `--sampler auto` start.
    pub starts: Option<&'a States>,
    /// Where the time that the draws take is announced.
    pub console: Console,
}

/// States drawn from a model.
pub struct Drawn {
    /// The states, chain after chain.
    pub states: States,
    /// How they were drawn.
    pub how: How,
}

/// How states were drawn, and how far to trust them.
pub struct How {
    /// The sampler that drew them.
    pub sampler: SamplerName,
    /// Why it is not the one that was tried first.
    pub remark: Option<String>,
    /// `None` for fewer than eight draws per chain.
    pub diagnostics: Option<RunDiagnostics>,
}

impl How {
    /// Returns the effective draws of the slowest quantity; 0 where they are unknown, and infinite
    /// where nothing varies.
    pub fn effective_draws(&self) -> f64 {
        self.diagnostics.as_ref().map_or(0.0, |found| {
            let fewest = found.fewest_draws;
            fewest.map_or(f64::INFINITY, |fewest| fewest.value)
        })
    }
}

/// The model that states are drawn from.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// An Ising or K-pairwise model.
    Ising(&'a Couplings),
    /// A machine with hidden units.
    Machine(&'a Machine),
}

impl<'a> Target<'a> {
    /// Takes `machine`, that of the model, or else its couplings.
    pub(crate) fn of(model: &'a Model, machine: Option<&'a Machine>) -> Self {
        machine.map_or(Self::Ising(&model.couplings), Self::Machine)
    }

    fn n_units(&self) -> usize {
        match self {
            Self::Ising(couplings) => couplings.n_units(),
            Self::Machine(machine) => machine.n_units(),
        }
    }
}

/// Draws states of `target`.
///
/// # Errors
/// Those of the sampler, one that cannot draw from this kind of model, and an interruption.
pub fn draw(target: Target<'_>, options: &DrawOptions<'_>) -> Result<Drawn, Failure> {
    let sampler = match options.sampler {
        SamplerName::Auto if target.n_units() <= ENUMERATED_UNITS => SamplerName::Exact,
        other => other,
    };
    let per_unit = match (sampler, target) {
        // A state is its bits.
        (SamplerName::Exact | SamplerName::Sw, _) => 0,
        (_, Target::Ising(couplings)) => Gibbs::bytes_per_unit(couplings),
        (_, Target::Machine(_)) => size_of::<f64>(),
    };
    let drawing = Drawing {
        target,
        options,
        state: per_unit * target.n_units(),
        start: Instant::now(),
    };
    drawing.check_memory()?;
    match (sampler, target) {
        (SamplerName::Auto, _) => drawing.gibbs_or_tempering(),
        (SamplerName::Tempering, _) => drawing.tempering(),
        (SamplerName::Gibbs, Target::Ising(j)) => drawing.run(sampler, &Gibbs::new(j)?, None),
        (SamplerName::Gibbs, Target::Machine(m)) => drawing.run(sampler, &m.gibbs(1.0)?, None),
        (SamplerName::Sw, Target::Ising(j)) => drawing.run(sampler, &SwendsenWang::new(j)?, None),
        (SamplerName::Sw, Target::Machine(_)) => {
            Err(Failure::input("--sampler sw knows no hidden units")
                .hint("use --sampler gibbs or tempering"))
        }
        (SamplerName::Exact, Target::Ising(j)) => {
            drawing.run(sampler, &ExactEnumeration::new(j)?, None)
        }
        (SamplerName::Exact, Target::Machine(m)) => {
            let ChainOptions { n_draws, seed, .. } = options.chains;
            let drawn = m.exact()?.draw(n_draws, seed);
            Ok(Drawn {
                states: States::from_binary(drawn.view())?,
                how: How {
                    sampler,
                    remark: None,
                    diagnostics: None,
                },
            })
        }
    }
}

struct Drawing<'a> {
    target: Target<'a>,
    options: &'a DrawOptions<'a>,
    /// Bytes of the state of a chain.
    state: usize,
    start: Instant,
}

impl Drawing<'_> {
    /// Returns the bytes of the draws and their chains.
    fn bytes(&self) -> u64 {
        memory::of_draws(
            self.options.chains.n_draws,
            self.target.n_units(),
            self.n_chains(),
            self.state,
            self.options.chains.checkpoint.is_on(),
        )
    }

    /// Refuses draws that do not fit into memory.
    fn check_memory(&self) -> Result<(), Failure> {
        let needed = self.bytes().saturating_add(memory::of_program());
        memory::check("so many draws", needed, None, "ask for fewer at a time")
    }

    /// Runs Gibbs sweeps, and tempering if their chains do not agree.
    fn gibbs_or_tempering(&self) -> Result<Drawn, Failure> {
        let plain = match self.target {
            Target::Ising(couplings) => {
                let gibbs = Gibbs::new(couplings)?;
                let starts = self.starts(&gibbs, |row| gibbs.state(row))?;
                self.run(SamplerName::Gibbs, &gibbs, Some(starts))?
            }
            Target::Machine(machine) => {
                let gibbs = machine.gibbs(1.0)?;
                let starts = self.starts(&gibbs, |row| gibbs.state(row))?;
                self.run(SamplerName::Gibbs, &gibbs, Some(starts))?
            }
        };
        let worst = match &plain.how.diagnostics {
            Some(found) if !found.agree => found.worst_rhat,
            _ => return Ok(plain),
        };
        drop(plain);
        let mut options = self.options.clone();
        options.chains.checkpoint = options.chains.checkpoint.entry("tempering");
        let mut drawn = Drawing {
            options: &options,
            ..*self
        }
        .tempering()?;
        let worst = worst.map(|worst| {
            format!(
                " on {} (R-hat {})",
                worst.of,
                if worst.value.is_finite() {
                    digits(worst.value)
                } else {
                    "infinite".into()
                }
            )
        });
        drawn.how.remark = Some(format!(
            "chains of plain Gibbs sweeps do not agree{}: these draws are from parallel tempering",
            worst.unwrap_or_default()
        ));
        Ok(drawn)
    }

    fn tempering(&self) -> Result<Drawn, Failure> {
        let ladder = TemperingOptions {
            // Fitted couplings may be large: the hottest copy has none.
            hottest: 0.0,
            seed: self.options.chains.seed,
            cancel: self.options.chains.cancel.clone(),
            ..Default::default()
        };
        match self.target {
            Target::Ising(couplings) => self.run_levels(&Tempering::tune(couplings, &ladder)?),
            Target::Machine(machine) => self
                .run_levels(&Tempering::tune_levels(&ladder, |beta| {
                    machine.gibbs(beta)
                })?),
        }
    }

    /// Runs chains that have a state at every temperature.
    fn run_levels<G: Heated<Draws = States>>(
        &self,
        tempering: &Tempering<G>,
    ) -> Result<Drawn, Failure>
    where
        Tempering<G>: ChainSampler<Draws = States, Info: Sync>,
    {
        let row = 8 * self.target.n_units().div_ceil(64);
        let n_levels = tempering.inverse_temperatures().len();
        let drawing = Drawing {
            state: n_levels * (self.state + row + STATE),
            ..*self
        };
        drawing.check_memory()?;
        drawing.run(SamplerName::Tempering, tempering, None)
    }

    fn n_chains(&self) -> usize {
        let chains = &self.options.chains;
        chains.n_chains.min(chains.n_draws).max(1)
    }

    /// Returns starts that show whether Gibbs sweeps move from mode to mode: random states and
    /// their opposites, and in every second chain rows of the data far from each other.
    fn starts<S: ChainSampler<Draws = States>>(
        &self,
        sampler: &S,
        state: impl Fn(&[u64]) -> mpf_samplers::Result<S::State>,
    ) -> Result<Vec<S::State>, Failure> {
        let n_chains = self.n_chains();
        let mut rng = rng::stream(self.options.chains.seed, n_chains);
        let from_data = self
            .options
            .starts
            .map_or_else(Vec::new, |data| far_apart(data, n_chains / 2));
        let mut starts = Vec::with_capacity(n_chains);
        for row in from_data {
            starts.push(state(row)?);
        }
        while starts.len() < n_chains {
            let start = sampler.random_start(&mut rng)?;
            let mut recorded = sampler.no_draws();
            sampler.record(&start, &mut recorded);
            let mut opposite = recorded.row(0).to_vec();
            (0..recorded.n_units()).for_each(|unit| flip_bit(&mut opposite, unit));
            starts.extend([start, state(&opposite)?]);
        }
        starts.truncate(n_chains);
        Ok(starts)
    }

    fn diagnose<I: Sync + Tally>(&self, run: &Run<States, I>) -> Option<RunDiagnostics> {
        match self.target {
            Target::Ising(couplings) => run.diagnose(couplings).ok(),
            Target::Machine(machine) => run.diagnose_by(|row| machine.energy(row)).ok(),
        }
    }

    /// Draws a few states by the same sampler, and says how long `chains` take.
    fn announce<S: ChainSampler<Draws = States, Info: Sync>>(
        &self,
        sampler: &S,
        chains: &ChainOptions,
    ) -> Result<(), Failure> {
        let steps = chains.burn_in as f64 + chains.n_draws as f64 * chains.thinning as f64;
        let is_short = steps <= TRIED_DRAWS as f64;
        let few = match is_short {
            // Of short chains, the beginning counts too.
            true => ChainOptions {
                n_chains: chains
                    .n_chains
                    .min(TRIED_CHAINS * TRIED_DRAWS / steps as usize),
                checkpoint: Checkpoint::default(),
                ranks: Arc::new(OneProcess),
                ..chains.clone()
            },
            false => ChainOptions {
                n_chains: chains.n_chains.min(TRIED_CHAINS),
                n_draws: TRIED_DRAWS,
                burn_in: 0,
                thinning: 1,
                ..Default::default()
            },
        };
        let mut few = ChainOptions {
            cancel: chains.cancel.within(TRIED_SECONDS),
            ..few
        };
        // Of a moment, most is the start of the threads.
        let (drawing, diagnosing, draws) = loop {
            let start = Instant::now();
            let run = ChainRunner::new(few.clone())?.run(sampler)?;
            let drawing = start.elapsed().as_secs_f64();
            let drawn = run.chains.iter().map(|chain| chain.draws.n_samples());
            let draws = drawn.sum::<usize>().max(1) as f64;
            let start = Instant::now();
            let _ = self.diagnose(&run);
            let diagnosing = start.elapsed().as_secs_f64();
            let (tried, most) = match is_short {
                true => (&mut few.n_chains, chains.n_chains),
                false => (&mut few.n_draws, steps as usize),
            };
            if drawing.max(diagnosing) >= TELLING_SECONDS || *tried >= most || run.cancelled {
                break (drawing, diagnosing, draws);
            }
            *tried = tried.saturating_mul(TRIED_MORE).min(most);
        };
        let n_chains = few.n_chains;
        let threads = rayon::current_num_threads();
        // Chains run in parallel, as many as there are threads.
        let rounds = |n: usize| n.div_ceil(threads) as f64;
        let all = self.options.chains.n_draws as f64;
        let chain = match is_short {
            true => drawing / rounds(n_chains),
            false => steps * drawing / (rounds(n_chains) * draws / n_chains as f64),
        };
        let seconds = SYNCED
            + self.start.elapsed().as_secs_f64()
            + rounds(chains.n_chains) * chain
            + diagnosing * all / draws;
        self.options.console.note(&format!(
            "these draws take about {} and {}",
            duration(seconds),
            memory::expected_in_words(self.bytes().saturating_add(memory::held()))
        ));
        Ok(())
    }

    fn run<S: ChainSampler<Draws = States, Info: Sync>>(
        &self,
        name: SamplerName,
        sampler: &S,
        starts: Option<Vec<S::State>>,
    ) -> Result<Drawn, Failure> {
        let (n_chains, n_draws) = (self.n_chains(), self.options.chains.n_draws);
        let runner = ChainRunner::new(ChainOptions {
            n_chains,
            n_draws: n_draws.div_ceil(n_chains),
            ..self.options.chains.clone()
        })?;
        if self.options.console.has_notes() {
            self.announce(sampler, runner.options())?;
        }
        let bar = progress::bar(100 * n_chains as u64).with_prefix("draws");
        let run = match starts {
            Some(starts) => runner.run_from(sampler, starts, |_| bar.inc(1)),
            None => runner.run_with_progress(sampler, |_| bar.inc(1)),
        };
        bar.finish_and_clear();
        let run = run?;
        if run.cancelled {
            return Err(Failure::interrupted());
        }
        let diagnostics = self.diagnose(&run);
        let mut states = run.pooled();
        drop(run);
        if states.n_samples() > n_draws {
            states = states.slice(0..n_draws);
        }
        Ok(Drawn {
            states,
            how: How {
                sampler: name,
                remark: None,
                diagnostics,
            },
        })
    }
}

/// Returns `n` rows, each as far as possible from those before it: among a few thousand rows, a row
/// of every mode that holds a fair share of them.
fn far_apart(data: &States, n: usize) -> Vec<&[u64]> {
    let step = data.n_samples().div_ceil(CANDIDATES).max(1);
    let rows: Vec<&[u64]> = data.rows().step_by(step).collect();
    let mut nearest = vec![u32::MAX; rows.len()];
    let mut found: Vec<&[u64]> = rows.first().copied().into_iter().collect();
    while found.len() < n.min(rows.len()) {
        let last = found[found.len() - 1];
        for (nearest, row) in nearest.iter_mut().zip(&rows) {
            let differ = row.iter().zip(last).map(|(a, b)| (a ^ b).count_ones());
            *nearest = differ.sum::<u32>().min(*nearest);
        }
        let furthest = (0..rows.len()).max_by_key(|&at| nearest[at]);
        found.push(rows[furthest.expect("data have rows")]);
    }
    found.truncate(n);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_rows_far_apart() {
        let mut data = States::new(8).unwrap();
        for row in [
            0b0000_0001,
            0b0000_0011,
            0b1111_1110,
            0b0000_0111,
            0b0001_1111,
        ] {
            data.push(&[row]);
        }
        // All 8 bits differ from the first; then 4 from one and 4 from the other.
        let expected: [&[u64]; 3] = [&[0b0000_0001], &[0b1111_1110], &[0b0001_1111]];
        assert_eq!(far_apart(&data, 3), expected);
        assert_eq!(far_apart(&data, 9).len(), 5);
        assert!(far_apart(&data, 0).is_empty());
    }
}
