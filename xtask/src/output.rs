//! Where results go: a folder, in which files appear whole or not at all.

use crate::Result;
pub use mpf_report::text::{digits, markdown_table};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// The folder of one experiment.
pub struct Output {
    folder: PathBuf,
}

/// A finished experiment.
pub struct Experiment<'a, R> {
    /// What it is.
    pub title: &'a str,
    /// What goes into `results.json`.
    pub results: &'a R,
    /// File names and drawings; the first stands for the experiment.
    pub figures: &'a [(&'a str, String)],
    /// In Markdown.
    pub table: &'a str,
    /// In HTML.
    pub page: &'a str,
    /// What was found, a sentence each.
    pub reading: &'a [String],
}

/// What `reproduce-all` says of a finished experiment.
#[derive(Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    pub title: String,
    /// Where its `report.html` lies.
    pub folder: PathBuf,
    /// Its main figure as SVG.
    pub figure: String,
    /// What was found, a sentence each.
    pub reading: Vec<String>,
}

impl Output {
    /// `chosen`, or `target/reproduce/<name>` in the workspace.
    pub fn new(chosen: Option<&Path>, name: &str) -> Result<Self> {
        let folder = match chosen {
            Some(folder) => folder.to_owned(),
            None => workspace().join("target/reproduce").join(name),
        };
        fs::create_dir_all(&folder)
            .map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Writes `contents` under a temporary name, then renames it.
    pub fn write(&self, name: &str, contents: &str) -> Result {
        let path = self.folder.join(name);
        mpf_report::files::write(&path, contents.as_bytes())
            .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }

    /// Writes `value` as indented JSON.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result {
        self.write(name, &(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes `results.json`, the drawings, `table.md` and `report.html`, and prints the table; on a
    /// terminal also what was found.
    pub fn publish<R: Serialize>(&self, experiment: &Experiment<'_, R>) -> Result<Entry> {
        self.write_json("results.json", experiment.results)?;
        for (name, svg) in experiment.figures {
            self.write(name, svg)?;
        }
        self.write("table.md", experiment.table)?;
        self.write("report.html", experiment.page)?;
        println!("{}", experiment.table);
        if std::io::stdout().is_terminal() {
            experiment
                .reading
                .iter()
                .for_each(|line| println!("{line}"));
        }
        eprintln!("written to {}", self.shown());
        Ok(Entry {
            title: experiment.title.to_owned(),
            folder: self.folder.clone(),
            figure: experiment.figures[0].1.clone(),
            reading: experiment.reading.to_vec(),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder, relative to where the user is if it is below.
    pub fn shown(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let folder = self.folder.strip_prefix(here).unwrap_or(&self.folder);
        folder.display().to_string()
    }
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
}

/// What the numbers were made by and on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The version of this workspace.
    pub version: &'static str,
    /// The version of Rust that it is built with.
    pub rust: &'static str,
    /// Threads that share the work.
    pub threads: usize,
    /// The processor, where the system says it.
    pub processor: Option<String>,
}

impl Machine {
    /// This one.
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

/// `results` without what differs from run to run: times, the machine, sentences about times.
#[cfg(test)]
pub fn exact_without_times(results: &impl Serialize) -> serde_json::Value {
    use serde_json::Value;
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

/// [`exact_without_times`] without digits beyond the fifth: from machine to machine, vector units
/// round differently.
#[cfg(test)]
pub fn without_times(results: &impl Serialize) -> serde_json::Value {
    use serde_json::Value;
    fn round(value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(round),
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
