//! Counts the verdicts of `mpf evaluate` on models that made the data.
//!
//! Every model is evaluated on exact draws from itself, so "disagrees" is false; the command fails if
//! there is one.

use crate::Result;
use crate::output::markdown_table;
use mpf_core::Cancel;
use mpf_report::progress;
use mpf_testkit::{JudgedModel, judged_models};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Data sets per model.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Samples per data set.
    #[arg(long, default_value_t = 5000)]
    samples: usize,
}

const VERDICTS: [&str; 3] = ["agrees", "cannot-judge", "disagrees"];

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "mpf-cli"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if !build.status()?.success() {
        return Err("cannot build mpf".into());
    }
    let program = std::env::current_exe()?.with_file_name("mpf");
    let folder = tempfile::tempdir()?;
    let models = judged_models();
    let bar = progress::bar(models.len() as u64 * args.seeds).with_prefix("verdicts");
    let mut rows = Vec::new();
    let mut false_verdicts = 0;
    for model in &models {
        let (mut counts, mut tempered) = ([0; 3], 0);
        for seed in 0..args.seeds {
            if cancel.is_cancelled() {
                return Ok(());
            }
            let found = evaluate(&program, folder.path(), model, args.samples, seed)?;
            let verdict = VERDICTS.iter().position(|v| found["verdict"] == *v);
            counts[verdict.ok_or("mpf evaluate gave no verdict")?] += 1;
            let by = found["model_moments_by"].as_str().unwrap_or_default();
            tempered += usize::from(by.contains("tempering"));
            bar.inc(1);
        }
        false_verdicts += counts[2];
        let numbers = counts.iter().chain([&tempered]);
        let mut row = vec![model.name.to_owned()];
        row.extend(numbers.map(ToString::to_string));
        rows.push(row);
    }
    bar.finish_and_clear();
    let header = ["model", "agrees", "cannot judge", "disagrees", "tempered"];
    println!("{}", markdown_table(&header, &rows));
    match false_verdicts {
        0 => Ok(()),
        n => Err(format!("{n} true models were condemned").into()),
    }
}

/// Runs `mpf evaluate` in `folder` and returns what it prints.
fn evaluate(
    program: &Path,
    folder: &Path,
    model: &JudgedModel,
    samples: usize,
    seed: u64,
) -> Result<Value> {
    let couplings = model.couplings.as_array();
    let table = couplings.rows().into_iter().map(|row| {
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        cells.join(",")
    });
    let names: Vec<String> = (0..couplings.nrows()).map(|i| format!("u{i}")).collect();
    let mut text = format!("unit,{}\n", names.join(","));
    for (name, row) in names.iter().zip(table) {
        text += &format!("{name},{row}\n");
    }
    fs::write(folder.join("table.csv"), text)?;
    ndarray_npy::write_npy(folder.join("x.npy"), &model.draw(samples, seed).to_binary())?;
    let mpf = |arguments: &str| -> Result<Vec<u8>> {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        let output = command.current_dir(folder).output()?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into())
        }
    };
    mpf("convert table.csv -o m.json --assume binary --force")?;
    let said = mpf(&format!("--json evaluate m.json x.npy --seed {seed}"))?;
    Ok(serde_json::from_slice(&said)?)
}
