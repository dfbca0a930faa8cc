//! Writes results to a folder, in which files appear whole or not at all, and prints tables.

use crate::Result;
use crate::report::Page;
pub use mpf_report::text::{Table, digits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::hint::black_box;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Folder for the results [default: a folder of this command in target/reproduce]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

impl OutputArgs {
    /// Makes the folder: the one given, or `target/reproduce/<name>` in the workspace.
    pub fn open(&self, name: &str) -> Result<Output> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => workspace().join("target/reproduce").join(name),
        };
        fs::create_dir_all(&folder)
            .map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
        Ok(Output { folder })
    }
}

/// The folder of one command.
pub struct Output {
    folder: PathBuf,
}

/// A finished experiment.
pub struct Experiment<'a, R> {
    pub title: &'a str,
    /// Goes into `results.json`.
    pub results: &'a R,
    /// File names and SVG; the first figure stands for the experiment in the index.
    pub figures: &'a [(&'a str, String)],
    /// In Markdown.
    pub table: &'a str,
    /// In HTML.
    pub page: &'a str,
    /// The findings, a sentence each.
    pub reading: &'a [String],
}

/// Starts the report of an experiment with its findings, a figure with its caption, and a table.
pub fn page(
    title: &str,
    lead: &str,
    reading: &[String],
    (svg, caption): (&str, &str),
    table: &Table,
) -> Page {
    let mut page = Page::new(title, lead);
    page.heading("What was found");
    page.list(reading);
    page.figure(svg, caption);
    page.table(table);
    page
}

/// An experiment in the index of `reproduce-all`.
#[derive(Serialize, Deserialize)]
pub struct Entry {
    pub title: String,
    /// The folder of its `report.html`.
    pub folder: PathBuf,
    /// Its main figure as SVG.
    pub figure: String,
    /// The findings, a sentence each.
    pub reading: Vec<String>,
}

impl Output {
    /// Writes `contents` under a temporary name, then renames it.
    pub fn write(&self, name: &str, contents: &(impl AsRef<[u8]> + ?Sized)) -> Result {
        let path = self.folder.join(name);
        mpf_report::files::write(&path, contents.as_ref())
            .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }

    /// Writes `value` as indented JSON.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result {
        self.write(name, &(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes all files of an experiment and prints its table.
    pub fn publish<R: Serialize>(&self, experiment: &Experiment<'_, R>) -> Result<Entry> {
        self.write_json("results.json", experiment.results)?;
        for (name, svg) in experiment.figures {
            self.write(name, svg)?;
        }
        self.write("report.html", experiment.page)?;
        self.show(experiment.table, experiment.reading)?;
        Ok(Entry {
            title: experiment.title.to_owned(),
            folder: self.folder.clone(),
            figure: experiment.figures[0].1.clone(),
            reading: experiment.reading.to_vec(),
        })
    }

    /// Writes `table.md` and prints it; on a terminal also prints `notes`, a line each.
    pub fn show(&self, table: &str, notes: &[String]) -> Result {
        self.write("table.md", table)?;
        println!("{}", table.trim_end());
        if std::io::stdout().is_terminal() {
            println!();
            notes.iter().for_each(|line| println!("{line}"));
        }
        eprintln!("written to {}", self.shown());
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder, relative to the current one if it is inside it.
    pub fn shown(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let folder = self.folder.strip_prefix(here).unwrap_or(&self.folder);
        folder.display().to_string()
    }
}

/// Median and quartiles, interpolated between values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub lower: f64,
    pub upper: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = share * (values.len() - 1) as f64;
            let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
            low + at.fract() * (high - low)
        };
        Self {
            median: quantile(0.5),
            lower: quantile(0.25),
            upper: quantile(0.75),
        }
    }

    pub fn shown(self) -> String {
        format!(
            "{} ({}–{})",
            digits(self.median),
            digits(self.lower),
            digits(self.upper)
        )
    }
}

/// Returns the slope of a line through `points` by least squares.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let covariance: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    covariance / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>()
}

/// Runs `time` so often and returns the shortest of each of its times.
pub fn fastest<const N: usize>(
    rounds: usize,
    mut time: impl FnMut() -> Result<[f64; N]>,
) -> Result<[f64; N]> {
    let mut best = [f64::INFINITY; N];
    for _ in 0..rounds {
        for (best, seconds) in best.iter_mut().zip(time()?) {
            *best = best.min(seconds);
        }
    }
    Ok(best)
}

/// Returns the seconds of the fastest of so many runs.
pub fn seconds_of<T>(rounds: usize, mut run: impl FnMut() -> T) -> f64 {
    let time = |_| {
        let clock = Instant::now();
        black_box(run());
        clock.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

/// Fails if expectations did not hold.
pub fn check_expectations(failed: usize) -> Result {
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} of the expectations do not hold").into()),
    }
}

/// Returns the root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
}

/// The software and hardware that made the numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub version: &'static str,
    /// The least version of Rust that builds this workspace.
    rust: &'static str,
    pub threads: usize,
    /// Known on Linux only.
    pub processor: Option<String>,
}

impl Machine {
    pub fn this() -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            rust: env!("CARGO_PKG_RUST_VERSION"),
            threads: rayon::current_num_threads(),
            processor,
        }
    }
}

/// The settings of an experiment in its `results.json`: its options and the machine.
#[derive(Serialize)]
pub struct Settings<A> {
    pub machine: Machine,
    #[serde(flatten)]
    pub args: A,
    /// What follows from the options.
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl<A: Clone> Settings<A> {
    pub fn of(args: &A) -> Self {
        Self {
            machine: Machine::this(),
            args: args.clone(),
            more: Map::new(),
        }
    }

    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

/// Returns `results` without the fields that differ from run to run: times, the machine, sentences
/// about times.
#[cfg(test)]
pub fn exact_without_times(results: &impl Serialize) -> serde_json::Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|key, _| {
                    let time = key.ends_with("seconds") || key.ends_with("slope");
                    !time && key != "machine" && key != "reading"
                });
                fields.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(results).expect("results can be written");
    clean(&mut value);
    value
}

/// Rounds [`exact_without_times`] to five digits: vector units round differently from machine to
/// machine.
#[cfg(test)]
pub fn without_times(results: &impl Serialize) -> serde_json::Value {
    fn round(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // A difference of large numbers: its digits vary with the vector instructions.
                if let Some(norm @ Value::Number(_)) = fields.get_mut("gradient_norm") {
                    *norm = Value::String("small".into());
                }
                fields.values_mut().for_each(round);
            }
            Value::Array(items) => items.iter_mut().for_each(round),
            Value::Number(number) if number.is_f64() => {
                let short = format!("{:.4e}", number.as_f64().unwrap_or(f64::NAN));
                *value = Value::String(short);
            }
            _ => {}
        }
    }
    let mut value = exact_without_times(results);
    round(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn quartiles_are_interpolated_between_sorted_values() {
        let of = |values: &[f64]| {
            let spread = Spread::of(values.to_vec());
            [spread.lower, spread.median, spread.upper]
        };
        assert_eq!(of(&[4.0, 0.0, 2.0, 1.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(of(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
    }
}
