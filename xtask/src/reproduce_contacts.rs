//! Precision and time of contacts by pseudolikelihood and by MPF, for every family in a folder.
//!
//! A family is `NAME.fasta.gz` with `NAME_distances.dat`: column i, column j, another program's score,
//! and the distance in Å. A contact is nearer than 7 Å and more than 4 columns apart.

use crate::output::{OutputArgs, Table, digits};
use crate::plot::{STYLES, chart, key, mesh, svg};
use crate::{Error, Result};
use flate2::read::MultiGzDecoder;
use mpf_core::Cancel;
use mpf_potts::{
    Alignment, ContactRule, Distances, FitOptions, Loss, ReadOptions, Scores, fit, judged,
    precision,
};
use plotters::prelude::*;
use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

const RULE: ContactRule = ContactRule {
    nearer_than: 7.0,
    separation: 4,
};

#[derive(clap::Args)]
pub struct Args {
    /// Folder with alignments and distances.
    folder: PathBuf,
    /// Only families whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
}

/// One fit.
#[derive(Serialize)]
struct Row {
    family: String,
    method: &'static str,
    lambda: f64,
    sequences: usize,
    effective: f64,
    sites: usize,
    /// At L/5, L/2, L and 2L.
    precision: [Option<f64>; 4],
    iterations: usize,
    stop: String,
    seconds: f64,
    curve: Vec<f64>,
}

pub fn run(args: &Args, output: &OutputArgs, cancel: &Cancel) -> Result {
    let output = output.open("contacts")?;
    let mut families = Vec::new();
    for entry in fs::read_dir(&args.folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(family) = name.strip_suffix("_distances.dat") {
            families.push(family.to_owned());
        }
    }
    families.retain(|family| family.contains(&args.only));
    families.sort();
    if families.is_empty() {
        let folder = args.folder.display();
        return Err(format!("{folder} has no NAME.fasta.gz with NAME_distances.dat").into());
    }
    let mut rows = Vec::new();
    for family in &families {
        let text = unpack(&args.folder.join(format!("{family}.fasta.gz")))?;
        let alignment = Alignment::read(&text, &ReadOptions::default())?;
        let list = args.folder.join(format!("{family}_distances.dat"));
        let distances = Distances::from_list(&fs::read_to_string(list)?)?;
        let n = alignment.sites.len();
        let sequences = alignment.sequences(&alignment.weights(0.2), false)?;
        for (method, loss) in [("PL", Loss::Pseudolikelihood), ("MPF", Loss::Flow)] {
            let mut options = FitOptions::new(loss, &sequences);
            options.minimizer.cancel = cancel.clone();
            let fit = fit(&sequences, &options, |_| {})?;
            if cancel.is_cancelled() {
                return Ok(());
            }
            let scores = Scores::new(&fit.model, Some(0));
            let judged = judged(&scores, &alignment.sites, &distances, RULE);
            eprintln!(
                "{family} by {method}: {} after {:.1} s",
                fit.stop, fit.seconds
            );
            rows.push(Row {
                family: family.clone(),
                method,
                lambda: options.penalties.couplings,
                sequences: alignment.n_sequences(),
                effective: sequences.total_weight(),
                sites: n,
                precision: [n / 5, n / 2, n, 2 * n].map(|rank| precision(&judged, rank)),
                iterations: fit.iterations,
                stop: fit.stop.to_string(),
                seconds: fit.seconds,
                curve: (1..=3 * n)
                    .map_while(|rank| precision(&judged, rank))
                    .collect(),
            });
        }
    }
    output.write_json("results.json", &rows)?;
    for family in &families {
        output.write(&format!("{family}.svg"), &figure(family, &rows)?)?;
    }
    let part =
        |row: &Row, at: usize| row.precision[at].map_or("–".to_owned(), |p| format!("{p:.3}"));
    let table = Table::of(
        &rows,
        &[
            ("family", &|r| r.family.clone()),
            ("method", &|r| r.method.to_owned()),
            ("λ", &|r| digits(r.lambda)),
            ("sequences", &|r| {
                format!("{} ({:.0})", r.sequences, r.effective)
            }),
            ("sites", &|r| r.sites.to_string()),
            ("L/5", &|r| part(r, 0)),
            ("L/2", &|r| part(r, 1)),
            ("L", &|r| part(r, 2)),
            ("2L", &|r| part(r, 3)),
            ("iterations", &|r| r.iterations.to_string()),
            ("seconds", &|r| format!("{:.1}", r.seconds)),
        ],
    );
    output.show(&table.markdown(), &[])
}

/// Reads a gzipped file.
pub fn unpack(path: &Path) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| -> Error { format!("{}: {e}", path.display()).into() };
    let bytes = fs::read(path).map_err(cannot)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes.as_slice())
        .read_to_end(&mut text)
        .map_err(cannot)?;
    Ok(text)
}

/// Draws precision against rank.
fn figure(family: &str, rows: &[Row]) -> Result<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.family == family).collect();
    let most = rows
        .iter()
        .map(|row| row.curve.len())
        .max()
        .unwrap_or(2)
        .max(2);
    svg((560, 420), |area| {
        let mut chart = chart(area, family, 50)
            .build_cartesian_2d((1.0..most as f64).log_scale(), 0.0..1.02)?;
        mesh(&mut chart, ("pairs", 11), ("part of contacts", 11))?;
        for (row, style) in rows.iter().zip(STYLES) {
            // A dot for each power of two.
            let ranks = (0..)
                .map(|k| 1usize << k)
                .take_while(|rank| *rank <= row.curve.len());
            let points: Vec<_> = ranks
                .map(|rank| (rank as f64, row.curve[rank - 1]))
                .collect();
            style.draw(&mut chart, &points, 0, row.method)?;
        }
        key(&mut chart, SeriesLabelPosition::MiddleRight)
    })
}
