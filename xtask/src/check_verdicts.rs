//! Counts the verdicts of `mpf evaluate` on models that made the data, and on models that did not.
//!
//! First every model is evaluated on exact draws from itself, so "disagrees" is false; the command
//! fails if there is one. Then models that are wrong by known amounts are evaluated on exact draws
//! from the right one; the command fails if the most wrong of a kind is not always found.

use crate::output::Table;
use crate::{Result, npy};
use mpf_core::Cancel;
use mpf_core::rng::stream;
use mpf_ising::{Couplings, States};
use mpf_report::progress;
use rand::RngExt;
use rayon::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

// xtask may not depend on the test kit, which is not published: `cargo package --workspace` would fail.
#[path = "../../crates/mpf-testkit/src/judged.rs"]
mod judged;
use judged::{JudgedModel, judged_models};

#[derive(clap::Args)]
pub struct Args {
    /// Data sets per model.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Data sets per wrong model.
    #[arg(long, default_value_t = 10)]
    wrong_seeds: u64,
    /// Samples per data set.
    #[arg(long, default_value_t = 5000)]
    samples: usize,
}

const VERDICTS: [&str; 3] = ["agrees", "cannot-judge", "disagrees"];

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let program = crate::program::build()?;
    let judge = Judge {
        program: &program,
        samples: args.samples,
        cancel,
    };
    let right = judge.all("model", &right_models(), args.seeds)?;
    let condemned: usize = right.iter().map(|counts| counts.verdicts[2]).sum();
    let wrong_models = wrong_models()?;
    let wrong = judge.all("wrong model", &wrong_models, args.wrong_seeds)?;
    let missed = wrong_models
        .iter()
        .zip(&wrong)
        .filter(|(case, counts)| case.is_found && counts.verdicts[2] < args.wrong_seeds as usize);
    match (condemned, missed.count()) {
        (0, 0) => Ok(()),
        (0, n) => Err(format!("{n} models that are wrong by far were not found").into()),
        (n, _) => Err(format!("{n} true models were condemned").into()),
    }
}

/// A model, and data that it made or did not make.
struct Case {
    name: String,
    model: Couplings,
    draw: Box<dyn Fn(usize, u64) -> States + Send + Sync>,
    /// Whether it must be found wrong for every seed.
    is_found: bool,
}

/// Returns models with data from themselves.
fn right_models() -> Vec<Case> {
    let models = judged_models().into_iter();
    let cases = models.map(|model| Case {
        name: model.name.to_owned(),
        model: model.couplings.clone(),
        draw: Box::new(move |n, seed| model.draw(n, seed)),
        is_found: false,
    });
    cases.collect()
}

/// Returns wrong models of six kinds, each kind from nearly right to wrong by far.
fn wrong_models() -> Result<Vec<Case>> {
    const WARM: (usize, usize) = (5, 5);
    const COLD: (usize, usize) = (4, 6);
    let lattice = |side, k, h| JudgedModel::on_lattice("", side, k, h);
    let mut wrong = Vec::new();
    let mut add = |name: String, model: Couplings, truth: JudgedModel, is_found| {
        wrong.push(Case {
            name,
            model,
            draw: Box::new(move |n, seed| truth.draw(n, seed)),
            is_found,
        });
    };
    for (off, is_found) in [(0.02, false), (0.05, false), (0.1, true)] {
        let name = format!("warm lattice, all K too large by {off}");
        let model = lattice(WARM, 0.2 + off, 0.1).couplings;
        add(name, model, lattice(WARM, 0.2, 0.1), is_found);
    }
    for (off, is_found) in [(0.05, false), (0.1, false), (0.2, true)] {
        let mut spins = lattice(WARM, 0.2, 0.1).couplings.to_spins();
        spins.couplings[[6, 7]] += off;
        spins.couplings[[7, 6]] += off;
        let name = format!("warm lattice, one K too large by {off}");
        let model = Couplings::from_spins(&spins)?;
        add(name, model, lattice(WARM, 0.2, 0.1), is_found);
    }
    for (k, is_found) in [(0.05, false), (0.1, false), (0.2, true)] {
        let name = format!("independent units, data of a lattice with K = {k}");
        let model = lattice(WARM, 0.0, 0.0).couplings;
        add(name, model, lattice(WARM, k, 0.0), is_found);
    }
    for (h, is_found) in [(0.02, false), (0.0, true)] {
        let name = format!("ferromagnet, h = {h} for .03 (modes 4 : 1)");
        let model = lattice(COLD, 0.8, h).couplings;
        add(name, model, lattice(COLD, 0.8, 0.03), is_found);
    }
    for (k, is_found) in [(-1.1, false), (-0.9, true)] {
        let name = format!("antiferromagnet, K = {k} for -1.2");
        let model = lattice(COLD, k, 0.0).couplings;
        add(name, model, lattice(COLD, -1.2, 0.0), is_found);
    }
    for (t, is_found) in [(0.05, false), (0.1, false), (0.2, true)] {
        wrong.push(Case {
            name: format!("no interaction of three spins, data with T = {t}"),
            model: Couplings::zeros(TRIPLET_UNITS)?,
            draw: Box::new(move |n, seed| with_triplet(t, n, seed)),
            is_found,
        });
    }
    Ok(wrong)
}

const TRIPLET_UNITS: usize = 22;

/// Draws from p ∝ exp(T s_0 s_1 s_2): all means and pairs are those of independent fair units.
fn with_triplet(t: f64, n: usize, seed: u64) -> States {
    let mut rng = stream(seed, 0);
    let mut states = States::new(TRIPLET_UNITS).expect("a few units");
    for _ in 0..n {
        let mut row = rng.random_range(0..1u64 << TRIPLET_UNITS) & !1;
        // The product of three spins is 1 with an odd number of active ones.
        let is_odd = rng.random::<f64>() < 0.5 * (1.0 + t.tanh());
        let others = (row >> 1 & 1) ^ (row >> 2 & 1);
        row |= others ^ u64::from(is_odd);
        states.push(&[row]);
    }
    states
}

/// How often each verdict was given, and how often parallel tempering drew.
#[derive(Default)]
struct Counts {
    verdicts: [usize; 3],
    tempered: usize,
}

impl Counts {
    fn row(&self, name: &str) -> Vec<String> {
        let numbers = self.verdicts.iter().chain([&self.tempered]);
        let numbers = numbers.map(ToString::to_string);
        [name.to_owned()].into_iter().chain(numbers).collect()
    }
}

/// The program, and what it is run with.
struct Judge<'a> {
    program: &'a Path,
    samples: usize,
    cancel: &'a Cancel,
}

impl Judge<'_> {
    /// Counts the verdicts on all of `cases`, and prints them.
    fn all(&self, what: &'static str, cases: &[Case], seeds: u64) -> Result<Vec<Counts>> {
        let bar = progress::bar(cases.len() as u64 * seeds).with_prefix(format!("{what}s"));
        let counts = cases.par_iter().map(|case| self.counts(case, seeds, &bar));
        let counts = counts.collect::<Result<Vec<Counts>>>()?;
        bar.finish_and_clear();
        let named = cases.iter().zip(&counts);
        let rows = named.map(|(case, counts)| counts.row(&case.name));
        let header = [what, "agrees", "cannot judge", "disagrees", "tempered"];
        println!("{}", Table::new(header, rows).markdown());
        Ok(counts)
    }

    /// Evaluates a model on the data of every seed.
    fn counts(&self, case: &Case, seeds: u64, bar: &progress::ProgressBar) -> Result<Counts> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        self.write_model(at, &case.model)?;
        let mut counts = Counts::default();
        for seed in 0..seeds {
            if self.cancel.is_cancelled() {
                return Err(mpf_core::Error::Cancelled.into());
            }
            fs::write(
                at.join("x.npy"),
                npy::encode_states(&(case.draw)(self.samples, seed)),
            )?;
            let said = self.mpf(at, &format!("--json evaluate m.json x.npy --seed {seed}"))?;
            let found: Value = serde_json::from_slice(&said)?;
            let verdict = VERDICTS.iter().position(|v| found["verdict"] == *v);
            counts.verdicts[verdict.ok_or("mpf evaluate gave no verdict")?] += 1;
            let by = found["model_moments_by"].as_str().unwrap_or_default();
            counts.tempered += usize::from(by.contains("tempering"));
            bar.inc(1);
        }
        Ok(counts)
    }

    /// Writes `m.json` to a folder.
    fn write_model(&self, at: &Path, model: &Couplings) -> Result {
        let couplings = model.as_array();
        let names: Vec<String> = (0..couplings.nrows()).map(|i| format!("u{i}")).collect();
        let mut text = format!("unit,{}\n", names.join(","));
        for (name, row) in names.iter().zip(couplings.rows()) {
            let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
            text += &format!("{name},{}\n", cells.join(","));
        }
        fs::write(at.join("table.csv"), text)?;
        self.mpf(at, "convert table.csv -o m.json --assume binary --force")?;
        Ok(())
    }

    /// Runs `mpf` in a folder and returns what it prints.
    fn mpf(&self, at: &Path, arguments: &str) -> Result<Vec<u8>> {
        let mut command = Command::new(self.program);
        command.args(arguments.split_whitespace());
        let output = command.current_dir(at).output()?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into())
        }
    }
}
