//! Measures the autocorrelation, speed and error of every sampler on the paper's lattice.
//!
//! Chains start from exact draws, so that only the sampler's own memory is measured:
//!
//! ```text
//! τ    integrated autocorrelation time in steps, of the energy and of s_i s_j for random pairs
//! MSE  mean over i < j of (⟨s_i s_j⟩ from one chain's states − exact)², mean over chains
//! ```
//!
//! A step visits every unit once; with parallel tempering once at every level.

mod figure;

use crate::output::{Settings, Table, digits};
use crate::run::RunArgs;
use crate::{Result, progress};
use indicatif::ProgressBar;
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::internal::spin_correlations;
use mpf_ising::{Boundary, Couplings, Lattice, Samples, States, get_bit};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, ExactLattice, Gibbs, Run, Scan, SwendsenWang, Tally,
    Tempering, TemperingOptions, diagnostics,
};
use ndarray::Array2;
use rand::RngExt;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

#[derive(Clone, clap::Args, Serialize)]
pub struct Args {
    /// States recorded by every chain, one per step.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Chains of every sampler.
    #[arg(long, default_value_t = 8)]
    chains: usize,
    /// Random pairs whose τ is measured.
    #[arg(long, default_value_t = 300)]
    pairs: usize,
    /// Variance of the couplings J (the paper: 10, a cold spin glass).
    #[arg(long, default_value_t = 10.0)]
    variance: f64,
    /// Side of the square lattice.
    #[arg(long, default_value_t = 10)]
    lattice: usize,
    /// Seed of the model and the chains.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seconds to measure the speed of a sampler, on one core.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

#[derive(Serialize)]
struct Results {
    settings: Settings<Args>,
    samplers: Vec<Measured>,
}

#[derive(Serialize, Deserialize)]
struct Measured {
    name: String,
    tau_energy: f64,
    /// Over the pairs that moved at all.
    tau_pair_median: f64,
    /// Beyond about a tenth of a chain this is only a lower bound.
    tau_pair_worst: f64,
    /// Pairs that never changed in any chain, although exact draws say that they do.
    pairs_stuck: usize,
    updates_per_second: f64,
    steps_per_second: f64,
    /// Steps per second divided by the median τ of a pair.
    effective_per_second: f64,
    mse: f64,
    /// From the spread over chains. It is large, because errors share few directions.
    mse_standard_error: f64,
    /// MSE against the number of states.
    curve: Vec<Point>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Point {
    states: usize,
    mse: f64,
    standard_error: f64,
}

/// The model and its exact correlations.
struct Bench<'a> {
    args: &'a Args,
    checkpoint: &'a Checkpoint,
    bar: ProgressBar,
    couplings: &'a Couplings,
    correlations: Array2<f64>,
    pairs: Vec<(usize, usize)>,
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    run.run("samplers", args, cancel, |output, checkpoint| {
        let results = compute(args, checkpoint)?;
        if results.samplers.is_empty() {
            return Ok(());
        }
        output.write_json("results.json", &results)?;
        output.write("samplers.svg", &figure::draw(&results)?)?;
        output.show(&table(&results), &notes(&results))
    })
}

fn notes(results: &Results) -> Vec<String> {
    let Args { samples, pairs, .. } = results.settings.args;
    let mut notes = vec![format!(
        "τ in steps (one visit to every unit, at every level of the tempering); MSE of ⟨s_i s_j⟩ \
         from {samples} states."
    )];
    for sampler in &results.samplers {
        let (name, stuck) = (&sampler.name, sampler.pairs_stuck);
        if stuck > 0 {
            let note = format!("{name}: {stuck} of {pairs} pairs never changed in any chain.");
            notes.push(note);
        }
        if sampler.tau_pair_worst > 0.1 * samples as f64 {
            notes.push(format!(
                "{name}: the worst τ is of the order of the chains' length, so only a lower bound."
            ));
        }
    }
    notes
}

fn table(results: &Results) -> String {
    let table = Table::of(
        &results.samplers,
        &[
            ("sampler", &|s| s.name.clone()),
            ("τ of energy", &|s| digits(s.tau_energy)),
            ("τ of a pair, median", &|s| digits(s.tau_pair_median)),
            ("worst", &|s| digits(s.tau_pair_worst)),
            ("million updates/s", &|s| {
                digits(1e-6 * s.updates_per_second)
            }),
            ("independent states/s", &|s| digits(s.effective_per_second)),
            ("MSE", &|s| {
                format!("{:.1e} ± {:.1e}", s.mse, s.mse_standard_error)
            }),
        ],
    );
    table.markdown()
}

fn compute(args: &Args, checkpoint: &Checkpoint) -> Result<Results> {
    let lattice = Lattice::new(args.lattice, args.lattice, Boundary::Open)?;
    let couplings = lattice.spin_glass(args.variance, &mut rng::stream(args.seed, 0))?;
    let d = lattice.n_units();
    let exact = ExactLattice::new(&couplings, &lattice)?;
    let starts = exact.draw(args.chains, rng::next_seed(args.seed));
    let options = TemperingOptions {
        seed: args.seed,
        cancel: checkpoint.cancel(),
        ..Default::default()
    };
    let tempering = Tempering::tune(&couplings, &options)?;
    let ladder = tempering.inverse_temperatures();
    let bench = Bench {
        args,
        checkpoint,
        bar: progress::bar(5).with_prefix("samplers"),
        couplings: &couplings,
        correlations: exact.spin_correlations(),
        pairs: random_pairs(d, args.pairs, args.seed),
    };
    let mut samplers = Vec::new();
    let rows = || starts.rows();
    let states = rows().map(<[u64]>::to_vec).collect();
    samplers.extend(bench.measure("exact draws", &exact, states, d)?);
    let name = format!("parallel tempering, {} levels", ladder.len());
    let states = tempered_starts(&tempering, &couplings, &lattice, args)?;
    samplers.extend(bench.measure(&name, &tempering, states, d * ladder.len())?);
    for (name, scan) in [
        ("Gibbs", Scan::Sequential),
        ("Gibbs, random scan", Scan::Random),
    ] {
        let gibbs = Gibbs::with_scan(&couplings, scan)?;
        let states = rows().map(|row| Ok(gibbs.state(row)?));
        samplers.extend(bench.measure(name, &gibbs, states.collect::<Result<_>>()?, d)?);
    }
    let clusters = SwendsenWang::new(&couplings)?;
    let states = rows().map(|row| Ok(clusters.state(row)?));
    let states = states.collect::<Result<_>>()?;
    samplers.extend(bench.measure("Swendsen-Wang", &clusters, states, d)?);
    bench.bar.finish_and_clear();
    Ok(Results {
        // β of the tempering's levels.
        settings: Settings::of(&Args {
            pairs: bench.pairs.len(),
            ..args.clone()
        })
        .with("ladder", ladder),
        samplers,
    })
}

/// Draws exact states for every level of every chain.
fn tempered_starts(
    tempering: &Tempering,
    couplings: &Couplings,
    lattice: &Lattice,
    args: &Args,
) -> Result<Vec<<Tempering as mpf_samplers::Sampler>::State>> {
    let mut levels = Vec::new();
    let mut seed = rng::next_seed(args.seed);
    for beta in tempering.inverse_temperatures() {
        let warmer = Couplings::new(couplings.as_array() * beta)?;
        levels.push(ExactLattice::new(&warmer, lattice)?.draw(args.chains, seed));
        seed = rng::next_seed(seed);
    }
    let chain = |chain: usize| {
        let mut rows = States::new(lattice.n_units())?;
        for level in &levels {
            rows.push(level.row(chain));
        }
        Ok(tempering.state(&rows)?)
    };
    (0..args.chains).map(chain).collect()
}

/// Draws `n` different pairs i < j, or returns all pairs if there are fewer.
fn random_pairs(d: usize, n: usize, seed: u64) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = (0..d).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
    let mut rng = rng::stream(seed, 1);
    let n = n.min(all.len());
    for k in 0..n {
        let other = rng.random_range(k..all.len());
        all.swap(k, other);
    }
    all.truncate(n);
    all
}

impl Bench<'_> {
    /// Measures one sampler, as a unit of work. Returns `None` when cancelled.
    fn measure<S>(
        &self,
        name: &str,
        sampler: &S,
        starts: Vec<S::State>,
        updates_per_step: usize,
    ) -> Result<Option<Measured>>
    where
        S: ChainSampler<Draws = States, Info: Tally + Send + Sync, State: Send + Clone> + Sync,
    {
        if self.checkpoint.is_cancelled() {
            return Ok(None);
        }
        let runner = ChainRunner::new(ChainOptions {
            seed: self.args.seed,
            n_chains: self.args.chains,
            n_draws: self.args.samples,
            burn_in: 0,
            thinning: 1,
            cancel: self.checkpoint.cancel(),
            ..Default::default()
        })?;
        let measured = self.checkpoint.unit(name, |_| -> Result<_> {
            let steps_per_second = self.steps_per_second(sampler, starts[0].clone());
            let run = runner.run_from(sampler, starts, |_| {})?;
            if run.cancelled {
                return Ok(None);
            }
            let energies = run.series(|row| self.couplings.energy(row));
            let tau_energy = diagnostics::integrated_autocorrelation_time(&energies)?;
            let (taus, stuck) = self.pair_times(&run)?;
            let curve = self.curve(&run)?;
            let last = curve[curve.len() - 1].clone();
            let tau_pair_median = taus.get(taus.len() / 2).copied().unwrap_or(f64::NAN);
            Ok(Some(Measured {
                name: name.to_owned(),
                tau_energy,
                tau_pair_median,
                tau_pair_worst: taus.last().copied().unwrap_or(f64::NAN),
                pairs_stuck: stuck,
                updates_per_second: steps_per_second * updates_per_step as f64,
                steps_per_second,
                effective_per_second: steps_per_second / tau_pair_median.max(1.0),
                mse: last.mse,
                mse_standard_error: last.standard_error,
                curve,
            }))
        });
        self.bar.inc(1);
        measured
    }

    /// Times steps on this thread for `--seconds`.
    fn steps_per_second<S: ChainSampler>(&self, sampler: &S, mut state: S::State) -> f64 {
        let mut rng = rng::stream(self.args.seed, 2);
        let limit = Duration::from_secs_f64(self.args.seconds);
        let clock = Instant::now();
        let mut steps = 0u32;
        while steps == 0 || clock.elapsed() < limit {
            for _ in 0..100 {
                sampler.step(&mut state, &mut rng);
            }
            steps += 100;
        }
        f64::from(steps) / clock.elapsed().as_secs_f64()
    }

    /// Returns τ of the pairs that changed, in ascending order, and the number of pairs that should
    /// have changed but did not.
    fn pair_times<I: Sync>(&self, run: &Run<States, I>) -> Result<(Vec<f64>, usize)> {
        let times: Vec<f64> = self
            .pairs
            .par_iter()
            .map(|&(i, j)| {
                let agree = |row: &[u64]| f64::from(u8::from(get_bit(row, i) == get_bit(row, j)));
                diagnostics::integrated_autocorrelation_time(&run.series(agree))
            })
            .collect::<mpf_samplers::Result<_>>()?;
        let total = (self.args.samples * self.args.chains) as f64;
        let stuck = self.pairs.iter().zip(&times).filter(|&(&(i, j), tau)| {
            // Independent draws would change more than ten times.
            let turns = 0.5 * (1.0 - self.correlations[[i, j]].abs()) * total;
            tau.is_nan() && turns > 10.0
        });
        let stuck = stuck.count();
        let mut moved: Vec<f64> = times.into_iter().filter(|t| !t.is_nan()).collect();
        moved.sort_by(f64::total_cmp);
        Ok((moved, stuck))
    }

    /// Returns the error of the correlations from the first 10, 20, 50, … states of a chain.
    fn curve<I>(&self, run: &Run<States, I>) -> Result<Vec<Point>> {
        let mut sizes: Vec<usize> = (1..)
            .flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.pow(power)))
            .take_while(|&n| n < self.args.samples)
            .collect();
        sizes.push(self.args.samples);
        let mut curve = Vec::new();
        for states in sizes {
            let mut errors = Vec::new();
            for chain in &run.chains {
                let samples = Samples::new(&chain.draws.slice(0..states))?;
                let found = spin_correlations(&samples.pair_means());
                errors.push(mean_square_difference(&found, &self.correlations));
            }
            let n = errors.len() as f64;
            let mse = errors.iter().sum::<f64>() / n;
            let square = errors.iter().map(|e| (e - mse).powi(2)).sum::<f64>();
            curve.push(Point {
                states,
                mse,
                standard_error: (square / (n * (n - 1.0))).sqrt(),
            });
        }
        Ok(curve)
    }
}

/// Returns the mean over i < j.
fn mean_square_difference(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    let d = a.nrows();
    let squares = (a - b).mapv(|e| e * e);
    // Both diagonals are 1.
    squares.sum() / (d * (d - 1)).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_testkit::StopAfter;

    #[test]
    fn a_small_glass_runs_through_and_ranks_as_expected() {
        let args = Args {
            samples: 2000,
            chains: 2,
            pairs: 20,
            variance: 6.0,
            lattice: 4,
            seed: 1,
            seconds: 0.0,
        };
        // Stopped after the first sampler, then resumed.
        let file = StopAfter::new(1);
        let one = compute(&args, &file.checkpoint()).unwrap();
        assert_eq!(one.samplers.len(), 1);
        let results = compute(&args, &file.resumed().1).unwrap();
        let [exact, tempering, gibbs, _, clusters] = &results.samplers[..] else {
            panic!("five samplers");
        };
        // Independent draws: 1, but for the noise of 4000 of them.
        assert!(
            (0.8..1.3).contains(&exact.tau_energy),
            "{}",
            exact.tau_energy
        );
        assert!(tempering.tau_energy < gibbs.tau_energy);
        assert!(exact.mse < gibbs.mse && exact.mse < clusters.mse);
        assert_eq!(exact.curve.last().unwrap().states, 2000);
        let svg = figure::draw(&results).unwrap();
        assert!(svg.contains("Swendsen-Wang") && svg.contains("states drawn"));
        assert_eq!(table(&results).lines().count(), 7);
        assert_eq!(
            one.samplers[0].steps_per_second, exact.steps_per_second,
            "measured once"
        );
        let again = compute(&args, &Checkpoint::default()).unwrap();
        assert_eq!(again.samplers[1].mse, tempering.mse);
    }

    #[test]
    fn pairs_are_different_and_ordered() {
        let mut pairs = random_pairs(10, 40, 3);
        assert!(pairs.iter().all(|(i, j)| i < j && *j < 10));
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 40);
        assert_eq!(random_pairs(4, 100, 3).len(), 6);
    }
}
