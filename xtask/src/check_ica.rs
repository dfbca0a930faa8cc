//! Checks ICA and score matching at full size against bounds that were measured independently. A
//! bound that does not hold makes the command fail.

use crate::output::{Machine, Table, digits};
use crate::run::{RunArgs, parsed, settings};
use crate::{Result, fig3};
use mpf_core::rng::{stream, substream};
use mpf_core::{
    Cancel, Checkpoint, Cube, Flow, GaussianPrecision, Minimizer, Objective, ScoreMatching,
    score_closed_form,
};
use mpf_ica::{
    Alternating, Filters, Fit, FitOptions, Fitter, NeighbourRule, NoiseNeighbours, Trainer,
    Trajectory, Whitening, WhiteningMethod, amari_index,
};
use mpf_samplers::{PhasePoint, leapfrog};
use ndarray::Array2;
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Number of seeds of every check.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Patches, and samples of synthetic sources.
    #[arg(long, default_value_t = 100_000)]
    samples: usize,
    /// Folder of photographs to check as well, as they are and with normalised contrast.
    #[arg(long)]
    images: Option<PathBuf>,
}

/// One bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Check {
    what: String,
    found: f64,
    at_least: Option<f64>,
    at_most: Option<f64>,
    holds: bool,
}

#[derive(Serialize)]
struct Checks {
    machine: Machine,
    checks: Vec<Check>,
}

impl Checks {
    /// Runs a group of checks as a unit of work.
    fn gather(
        &mut self,
        checkpoint: &Checkpoint,
        name: &str,
        check: impl FnOnce() -> Result<Vec<Check>>,
    ) -> Result {
        checkpoint.check_cancelled()?;
        let known = checkpoint.is_finished(name);
        let found = checkpoint.unit(name, |_| check())?;
        if known {
            found.iter().for_each(Check::print);
        }
        self.checks.extend(found);
        Ok(())
    }

    fn table(&self) -> String {
        let bound = |b: Option<f64>| b.map_or("–".to_owned(), digits);
        let table = Table::of(
            &self.checks,
            &[
                ("check", &|c| c.what.clone()),
                ("found", &|c| digits(c.found)),
                ("at least", &|c| bound(c.at_least)),
                ("at most", &|c| bound(c.at_most)),
                ("holds", &|c| if c.holds { "yes" } else { "NO" }.to_owned()),
            ],
        );
        table.markdown()
    }
}

impl Check {
    /// Checks that `found` is within bounds, which belong to their range.
    fn new(what: impl Into<String>, found: f64, bounds: impl RangeBounds<f64>) -> Self {
        let number = |bound: Bound<&f64>| match bound {
            Bound::Included(&bound) | Bound::Excluded(&bound) => Some(bound),
            Bound::Unbounded => None,
        };
        let check = Self {
            what: what.into(),
            found,
            at_least: number(bounds.start_bound()),
            at_most: number(bounds.end_bound()),
            holds: bounds.contains(&found),
        };
        check.print();
        check
    }

    fn print(&self) {
        let shown = if self.holds { "ok    " } else { "FAILED" };
        eprintln!("{shown} {}: {}", self.what, digits(self.found));
    }
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let settings = settings("check-ica", args)?;
    let settings = fig3::with_checksum(settings, args.images.as_deref())?;
    let checks = run.run_with("check-ica", settings, cancel, |output, checkpoint| {
        let mut checks = Checks {
            machine: Machine::this(),
            checks: Vec::new(),
        };
        checks.gather(checkpoint, "score matching", || score_matching(args))?;
        synthetic(args, checkpoint, &mut checks)?;
        checks.gather(checkpoint, "isotropic neighbours", || {
            isotropic(args, cancel)
        })?;
        image_patches(args, checkpoint, &mut checks)?;
        output.write_json("results.json", &checks)?;
        output.show(&checks.table(), &[])?;
        Ok(checks.checks)
    })?;
    let failed = checks.iter().filter(|c| !c.holds).count();
    if failed > 0 {
        return Err(format!("{failed} of {} checks failed", checks.len()).into());
    }
    Ok(())
}

/// Checks Appendix C.
fn score_matching(args: &Args) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let mut rng = stream(args.seed, 0);
    let states: Vec<Vec<f64>> = (0..200)
        .map(|_| vec![rng.sample::<f64, _>(StandardNormal)])
        .collect();
    let gaussian = GaussianPrecision::new(1);
    let theta = [1.7];
    let mut grad = [0.0];
    let limit = ScoreMatching::new(&gaussian, &states)?.value_and_gradient(&theta, &mut grad);
    let mut last: Option<f64> = None;
    for side in [0.1, 0.05, 0.025] {
        let cube = Cube::new(side, 8)?;
        let k = Flow::new(&gaussian, &cube, &states)?.value_and_gradient(&theta, &mut grad);
        let error = ((k - side) / (side.powi(3) / 48.0) - limit).abs();
        let what = format!("score-matching limit, error at ε = {side}");
        checks.push(Check::new(what, error, ..=0.1));
        if let Some(last) = last {
            let what = format!("score-matching limit, error falls by, to ε = {side}");
            checks.push(Check::new(what, last / error, 3.9..=4.1));
        }
        last = Some(error);
    }
    let moment = states.iter().map(|x| x[0] * x[0]).sum::<f64>() / states.len() as f64;
    let closed = score_closed_form(&gaussian, &states)?[0];
    let what = "Gaussian precision, closed form against inverse second moment";
    checks.push(Check::new(what, (closed * moment - 1.0).abs(), ..=1e-12));
    for (side, bound) in [(0.4f64, 2e-2), (0.1, 2e-3)] {
        let cube = Cube::new(side, 8)?;
        let mut flow = Flow::new(&gaussian, &cube, &states)?;
        // K is flat: its curvature is of order ε³/48, so minimise in that unit.
        let unit = side.powi(3) / 48.0;
        let mut scaled = mpf_core::from_fn(1, |theta: &[f64], grad: &mut [f64]| {
            let k = flow.value_and_gradient(theta, grad);
            grad[0] /= unit;
            (k - side) / unit
        });
        let found = Minimizer::default().minimize(&mut scaled, &[1.0])?;
        let error = (found.theta[0] * moment - 1.0).abs();
        let what = format!("Gaussian precision by cubes of {side}, relative error");
        checks.push(Check::new(what, error, ..=bound));
    }
    Ok(checks)
}

fn fit(trainer: Trainer, data: &Array2<f64>, seed: u64, cancel: &Cancel) -> Result<Fit> {
    let options = FitOptions {
        trainer,
        seed,
        cancel: cancel.clone(),
        ..Default::default()
    };
    Ok(Fitter::new(options)?.fit(data.view())?)
}

/// Returns whitened mixtures of Laplace sources, and their mixing matrix after whitening.
fn sources(d: usize, n: usize, seed: u64) -> Result<(Array2<f64>, Array2<f64>)> {
    let truth = Filters::random(d, seed);
    let data = truth.draw(n, &mut stream(seed, 1))?;
    let whitening = Whitening::new(data.view(), WhiteningMethod::Zca)?;
    let (_, mixing) = truth.log_determinant_and_inverse()?;
    let white = whitening.apply(data.view())?;
    Ok((white, whitening.transform().dot(&mixing)))
}

/// Checks that both trainers find synthetic sources as well as maximum likelihood does.
fn synthetic(args: &Args, checkpoint: &Checkpoint, checks: &mut Checks) -> Result {
    for d in [4, 8, 16] {
        for seed in args.seed..args.seed + args.seeds {
            checks.gather(checkpoint, &format!("{d} sources, seed {seed}"), || {
                synthetic_one(args, d, seed, &checkpoint.cancel())
            })?;
        }
    }
    Ok(())
}

fn synthetic_one(args: &Args, d: usize, seed: u64, cancel: &Cancel) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let (data, mixing) = sources(d, args.samples, seed)?;
    let best = fit(Trainer::maximum_likelihood(), &data, seed, cancel)?;
    let best_index = amari_index(&best.filters, mixing.view())?;
    for (name, trainer) in [
        ("stochastic", Trainer::stochastic()),
        ("the paper's", Trainer::alternating()),
    ] {
        let found = fit(trainer, &data, seed, cancel)?;
        if cancel.is_cancelled() {
            break;
        }
        let setting = format!("{d} Laplace sources, seed {seed}, {name} trainer");
        let gap = best.log_likelihood - found.log_likelihood;
        let what = format!("{setting}: gap in nats");
        checks.push(Check::new(what, gap, ..=0.005));
        let above = amari_index(&found.filters, mixing.view())? - best_index;
        let what = format!("{setting}: Amari index above ML's");
        checks.push(Check::new(what, above, ..=0.003));
    }
    Ok(checks)
}

/// Checks Appendix H: one Hamiltonian neighbour is enough where Gaussian ones must be many.
fn isotropic(args: &Args, cancel: &Cancel) -> Result<Vec<Check>> {
    let (data, _) = sources(16, args.samples.min(5000), args.seed)?;
    let best = fit(Trainer::maximum_likelihood(), &data, args.seed, cancel)?;
    let gap = |rule: NeighbourRule| -> Result<f64> {
        let trainer = Trainer::Alternating(Alternating {
            rounds: 30,
            averaged_rounds: 1,
            rule,
            ..Default::default()
        });
        let found = fit(trainer, &data, args.seed, cancel)?;
        Ok(best.log_likelihood - found.log_likelihood)
    };
    let one = gap(NeighbourRule::Hamiltonian(Trajectory::default()))?;
    let what = "16 sources, 5000 samples, gap with 1 Hamiltonian neighbour";
    let mut checks = vec![Check::new(what, one, ..=0.1)];
    for per_sample in [1, 10, 100] {
        let noise = NoiseNeighbours::Gaussian { scale: 0.5 };
        let found = gap(NeighbourRule::Noise { noise, per_sample })?;
        if cancel.is_cancelled() {
            break;
        }
        // Only the gap with one neighbour has a bound; the others are for the reader.
        let least = match per_sample {
            1 => Bound::Included(5.0 * one),
            _ => Bound::Unbounded,
        };
        let what = format!("16 sources, 5000 samples, gap with {per_sample} Gaussian neighbours");
        checks.push(Check::new(what, found, (least, Bound::Unbounded)));
    }
    Ok(checks)
}

/// Checks patches of dead leaves and, if there are any, of photographs.
fn image_patches(args: &Args, checkpoint: &Checkpoint, checks: &mut Checks) -> Result {
    let base = fig3::Args {
        patches: args.samples,
        seed: args.seed,
        ..parsed(Vec::new())
    };
    let mut sets = vec![("dead leaves", base.clone(), 0.3)];
    if args.images.is_some() {
        for (what, normalise, bound) in [
            ("photographs", false, 0.95),
            ("photographs, normalised", true, 0.3),
        ] {
            let images = args.images.clone();
            let photographs = fig3::Args {
                images,
                normalise,
                ..base.clone()
            };
            sets.push((what, photographs, bound));
        }
    }
    for seed in args.seed..args.seed + args.seeds {
        for (what, set, bound) in &sets {
            let name = format!("{what}, seed {seed}");
            checks.gather(checkpoint, &name, || {
                let data = fig3::patches(set, seed)?.white;
                let (found, mut checks) = patches(&data, &name, *bound, seed, checkpoint)?;
                if set.images.is_none() {
                    checks.push(reversibility(&found.filters, &data, seed)?);
                }
                Ok(checks)
            })?;
        }
    }
    Ok(())
}

/// Checks the gap to maximum likelihood, and that the last phase was kept only where it helps.
fn patches(
    data: &Array2<f64>,
    name: &str,
    bound: f64,
    seed: u64,
    checkpoint: &Checkpoint,
) -> Result<(Fit, Vec<Check>)> {
    let cancel = &checkpoint.cancel();
    let best = fit(Trainer::maximum_likelihood(), data, seed, cancel)?;
    let found = fit(Trainer::stochastic(), data, seed, cancel)?;
    checkpoint.check_cancelled()?;
    let gap = |nats: f64| best.log_likelihood - nats;
    let (what, nats) = (format!("{name}: gap in nats"), gap(found.log_likelihood));
    let mut checks = vec![Check::new(what, nats, ..=bound)];
    let part = found.smallest_singular_value / found.median_singular_value;
    let what = format!("{name}: σ_min over the median");
    checks.push(Check::new(what, part, Fit::LOST_RATIO..));
    if let Some(phase) = &found.last_phase {
        let (before, after) = (phase.log_likelihood_before, phase.log_likelihood_after);
        let what = format!("{name}: nats that the other choice of phase would have gained");
        let gained = before.max(after) - found.log_likelihood;
        checks.push(Check::new(what, gained, ..=0.1));
        eprintln!(
            "       last phase: flow {:+.3} ± {:.3}, gap {:.2} before it, {:.2} after it",
            phase.flow_after - phase.flow_before,
            phase.standard_error,
            gap(before),
            gap(after)
        );
    }
    eprintln!(
        "       {} filters rescued, {:.1} s of learning (ML {:.1} s)",
        found.rescued.len(),
        found.seconds,
        best.seconds
    );
    Ok((found, checks))
}

/// Checks that the dynamics are reversible, to 1e-9 for 99.9 % of the samples.
fn reversibility(filters: &Filters, data: &Array2<f64>, seed: u64) -> Result<Check> {
    let n = data.nrows().min(5000);
    let mut back = 0;
    for sample in 0..n {
        let position = data.row(sample).to_vec();
        let mut normal = stream(seed, 2 + sample % 8);
        let momentum = position.iter().map(|_| normal.sample(StandardNormal));
        let momentum: Vec<f64> = momentum.collect();
        let mut point = PhasePoint::new(filters, &position, &momentum)?;
        // The same ε and L both ways.
        let random = &mut substream(seed, sample as u64);
        let (step, n_steps) = Trajectory::default().draw(random);
        for _ in 0..2 {
            leapfrog(filters, &mut point, step, n_steps);
            point.negate_momentum();
        }
        let there = point.position.iter().chain(&point.momentum);
        let mut pairs = there.zip(position.iter().chain(&momentum));
        back += usize::from(pairs.all(|(a, b)| (a - b).abs() <= 1e-9));
    }
    let what = format!("dead leaves, seed {seed}: states that HAM leads back to, to 1e-9");
    Ok(Check::new(what, back as f64 / n as f64, 0.999..))
}
