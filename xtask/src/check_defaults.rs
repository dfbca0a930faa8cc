//! Fits data sets with the defaults of `mpf fit`, and compares what they give on unseen samples.
//!
//! Every recipe is fitted to the even rows of a data set and scored on the odd ones, in bits per
//! sample. The default must be within .05 bits of the best of independent units, plain MPF and plain
//! pseudolikelihood, and never worse than independent units.

mod counts;

use crate::glass::{lower_triangle, symmetric};
use crate::output::{Output, Table, digits};
use crate::run::RunArgs;
use crate::{Result, npy, progress};
use mpf_baselines::{LogZ, MethodOptions, Methods, Recipe};
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::{Boundary, Couplings, Exact, Lattice, States, mosaic_couplings};
use mpf_report::text::duration;
use mpf_samplers::{AnnealedOptions, ChainOptions, ChainRunner, ExactLattice, Gibbs};
use rand_distr::{Distribution, Normal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How far the default may be from the best, in bits per sample.
const SLACK: f64 = 0.05;

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Folder of recordings: every .npy file in it that is a matrix of 0 and 1, rows being samples.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Levels of the annealing that scores models of more than 24 units.
    #[arg(long, default_value_t = 4000)]
    levels: usize,
    /// Compare the number of active units of K-pairwise models with the data, instead.
    #[arg(long)]
    counts: bool,
    /// Draws from every model that `--counts` compares.
    #[arg(long, default_value_t = 200_000)]
    draws: usize,
}

/// Bits per sample on the odd rows, and the error of ln Z in bits.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Score {
    bits: f64,
    error: f64,
    seconds: f64,
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let work = |output: &Output, checkpoint: &Checkpoint| {
        let mut sets = synthetic()?;
        if let Some(folder) = &args.data {
            sets.extend(recordings(folder)?);
        }
        if args.counts {
            return output.show(&counts::table(args, &sets, checkpoint)?, &[]);
        }
        let (table, failures) = table(args, &sets, checkpoint)?;
        output.show(&table, &failures)?;
        match failures.len() {
            0 => Ok(()),
            n => Err(format!("{n} of the data sets missed the mark").into()),
        }
    };
    run.run("check-defaults", args, cancel, work)
}

/// Returns the table and the failures.
fn table(
    args: &Args,
    sets: &[(String, States)],
    checkpoint: &Checkpoint,
) -> Result<(String, Vec<String>)> {
    let recipes = recipes(&checkpoint.cancel());
    let bar = progress::bar((sets.len() * recipes.len()) as u64).with_prefix("fits");
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (name, states) in sets {
        let (training, test) = halves(states)?;
        let mut scores = Vec::new();
        for (by, recipe) in &recipes {
            let work = |_: &Checkpoint| score(recipe, &training, &test, args);
            let score = checkpoint.unit(format!("{name}: {by}"), work)?;
            checkpoint.check_cancelled()?;
            bar.inc(1);
            scores.push(score);
        }
        let best = scores[..3]
            .iter()
            .map(|s| s.bits)
            .fold(f64::INFINITY, f64::min);
        let (null, default) = (scores[0], scores[5]);
        let off = default.bits - best;
        let is_fine = off <= SLACK && default.bits <= null.bits;
        if !is_fine {
            failures.push(format!(
                "{name}: the default has {:.3} bits per sample, the best {best:.3}, independent \
                 units {:.3}",
                default.bits, null.bits
            ));
        }
        let mut row = vec![
            name.clone(),
            format!("{} × {}", states.n_samples(), states.n_units()),
        ];
        row.extend(scores.iter().map(|s| match s.bits {
            large if large >= 1e3 => digits(large),
            bits => format!("{bits:.3}"),
        }));
        row.push(format!("{:.3}", default.error));
        row.push(format!("{off:+.3}"));
        row.push(duration(default.seconds));
        row.push(if is_fine { "ok" } else { "MISSED" }.to_owned());
        rows.push(row);
    }
    bar.finish_and_clear();
    let mut header = vec!["data", "samples × units"];
    header.extend(recipes.iter().map(|(name, _)| *name));
    header.extend(["± of ln Z", "default − best", "time", ""]);
    let table = format!(
        "Bits per sample on the odd rows, fitted to the even ones; fewer are better. \"Best\" is the \
         best of the first three.\n\n{}",
        Table::new(header, rows).markdown()
    );
    Ok((table, failures))
}

/// Returns what is compared; the default comes last.
fn recipes(cancel: &Cancel) -> [(&'static str, Recipe); 6] {
    let methods = Methods::default();
    let mut options = MethodOptions::default();
    options.minimizer.cancel = cancel.clone();
    let plain = MethodOptions {
        l2: Some(0.0),
        ..options.clone()
    };
    let alone = |name: &str, options: &MethodOptions| {
        Recipe::alone(methods.find(name).expect("it is listed"), options.clone())
    };
    [
        ("independent", alone("independent", &options)),
        ("MPF, plain", alone("mpf", &plain)),
        ("PL, plain", alone("pl", &plain)),
        ("MPF", alone("mpf", &options)),
        ("PL", alone("pl", &options)),
        ("default", default_recipe(cancel)),
    ]
}

fn default_recipe(cancel: &Cancel) -> Recipe {
    let mut recipe = Recipe::default();
    recipe.options.minimizer.cancel = cancel.clone();
    recipe
}

fn score(recipe: &Recipe, training: &States, test: &States, args: &Args) -> Result<Score> {
    let clock = Instant::now();
    let couplings = recipe.fit(training)?.fit.couplings;
    let seconds = clock.elapsed().as_secs_f64();
    let energy: f64 = test.rows().map(|row| couplings.energy(row)).sum();
    let energy = energy / test.n_samples() as f64;
    let found = log_z(
        &couplings,
        &annealed(args, &recipe.options.minimizer.cancel),
    )?;
    let bits = std::f64::consts::LN_2;
    Ok(Score {
        bits: (energy + found.value) / bits,
        error: found.standard_error / bits,
        seconds,
    })
}

fn annealed(args: &Args, cancel: &Cancel) -> AnnealedOptions {
    AnnealedOptions {
        n_levels: args.levels,
        cancel: cancel.clone(),
        ..Default::default()
    }
}

fn log_z(couplings: &Couplings, annealed: &AnnealedOptions) -> Result<LogZ> {
    Ok(LogZ::of(couplings, None, Some(annealed))?.expect("it may be annealed"))
}

/// Returns the even and the odd rows.
fn halves(states: &States) -> Result<(States, States)> {
    let mut halves = [
        States::new(states.n_units())?,
        States::new(states.n_units())?,
    ];
    for (m, row) in states.rows().enumerate() {
        halves[m % 2].push(row);
    }
    let [even, odd] = halves;
    Ok((even, odd))
}

/// Returns models that are easy, cold, sparse, small and short of samples, with draws from them.
fn synthetic() -> Result<Vec<(String, States)>> {
    let mut random = rng::stream(11, 0);
    let normal = Normal::new(0.0, 1.0)?;
    let mut dense = |d: usize, deviation: f64, bias: f64| -> Result<Couplings> {
        let entry = |i, k| match i == k {
            true => bias,
            false => deviation * normal.sample(&mut random),
        };
        let j = symmetric(d, lower_triangle(d), entry);
        Ok(Couplings::new(j)?)
    };
    let small = dense(10, 0.6, 0.5)?;
    let sparse = dense(20, 0.8, 4.0)?;
    let short = dense(24, 0.5, 0.0)?;
    let lattice = Lattice::new(6, 6, Boundary::Open)?;
    let cold = lattice.spin_glass(4.0, &mut rng::stream(12, 0))?;
    let retina = mosaic_couplings(5, 6, &mut rng::stream(13, 0))?;
    let chains = ChainRunner::new(ChainOptions {
        n_draws: 2000,
        thinning: 20,
        ..Default::default()
    })?;
    let drawn = chains.run(&Gibbs::new(&retina)?)?.pooled();
    Ok(vec![
        ("10 units".into(), Exact::new(&small)?.draw(4000, 1)),
        (
            "20 rarely active units".into(),
            Exact::new(&sparse)?.draw(4000, 2),
        ),
        (
            "24 units, few samples".into(),
            Exact::new(&short)?.draw(300, 3),
        ),
        (
            "cold 6 × 6 lattice".into(),
            ExactLattice::new(&cold, &lattice)?.draw(4000, 4),
        ),
        ("retina of 30 cells".into(), drawn),
    ])
}

/// Returns the matrices of 0 and 1 in `folder`.
fn recordings(folder: &Path) -> Result<Vec<(String, States)>> {
    let unreadable = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let paths =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = paths.map_err(unreadable)?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "npy"));
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().display().to_string();
        match npy::read_bits(&path) {
            Ok(bits) => found.push((name, States::from_binary(bits.view())?)),
            Err(why) => eprintln!("note: {name} is left out: {why}"),
        }
    }
    if found.is_empty() {
        return Err(format!("{}: no .npy file of 0 and 1", folder.display()).into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn halves_are_every_other_row() {
        let mut states = States::new(5).unwrap();
        (0..7u64).for_each(|m| states.push(&[m]));
        let (even, odd) = halves(&states).unwrap();
        let rows = |states: &States| states.rows().map(|r| r[0]).collect::<Vec<_>>();
        assert_eq!((rows(&even), rows(&odd)), (vec![0, 2, 4, 6], vec![1, 3, 5]));
    }

    #[test]
    fn a_score_is_the_likelihood_of_the_test_rows() {
        let (_, states) = synthetic().unwrap().swap_remove(0);
        let (training, test) = halves(&states).unwrap();
        let args = Args {
            data: None,
            levels: 10,
            counts: false,
            draws: 0,
        };
        let recipes = recipes(&Cancel::new());
        let (name, recipe) = &recipes[3];
        assert_eq!(*name, "MPF");
        let found = score(recipe, &training, &test, &args).unwrap();
        let couplings = recipe.fit(&training).unwrap().fit.couplings;
        let samples = mpf_ising::Samples::new(&test).unwrap();
        let ll = Exact::new(&couplings).unwrap().log_likelihood(&samples);
        assert!((found.bits + ll.unwrap() / 2f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn recordings_are_matrices_of_0_and_1() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, rows: &Array2<f64>| {
            let bytes = npy::encode(rows.view().into_dyn());
            fs::write(folder.path().join(name), bytes).unwrap();
        };
        assert!(recordings(folder.path()).is_err());
        write("a.npy", &Array2::eye(3));
        write("b.npy", &Array2::from_elem((3, 3), 2.0));
        let found = recordings(folder.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0.as_str(), found[0].1.n_units()), ("a.npy", 3));
    }
}
