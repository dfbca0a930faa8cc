//! Where results go: a folder, in which files appear whole or not at all.

use crate::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder of one experiment.
pub struct Output {
    folder: PathBuf,
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
        let attempt = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(contents.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        attempt().map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }

    /// Writes `value` as indented JSON.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result {
        self.write(name, &(serde_json::to_string_pretty(value)? + "\n"))
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
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            processor,
        }
    }
}

/// A Markdown table with right-aligned numbers.
pub fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r[column].chars().count());
        cells
            .chain([header[column].chars().count(), 3])
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
    };
    line(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, &w)| {
            if column == 0 {
                "-".repeat(w)
            } else {
                "-".repeat(w - 1) + ":"
            }
        })
        .collect();
    line(&rule);
    rows.iter().for_each(|row| line(row));
    text
}

/// Four significant digits.
pub fn digits(value: f64) -> String {
    if value == 0.0 || (1e-3..1e4).contains(&value.abs()) {
        let decimals = 3 - value.abs().max(1e-3).log10().floor().clamp(-3.0, 3.0) as i32;
        format!("{value:.*}", decimals.max(0) as usize)
    } else {
        format!("{value:.3e}")
    }
}

/// `results` without what differs from run to run and from machine to machine: times, the machine,
/// sentences about times, and digits beyond the fifth (vector units round differently).
#[cfg(test)]
pub fn without_times(results: &impl Serialize) -> serde_json::Value {
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
            Value::Number(number) if number.is_f64() => {
                let short = format!("{:.4e}", number.as_f64().unwrap_or(f64::NAN));
                *value = Value::String(short);
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(results).expect("results can be written");
    clean(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let shown: Vec<String> = [0.0, 0.017_2, 7.770_4, 59.86, 1234.5, 2.5e-5, -0.5]
            .into_iter()
            .map(digits)
            .collect();
        assert_eq!(
            shown,
            [
                "0.000000", "0.01720", "7.770", "59.86", "1234", "2.500e-5", "-0.5000"
            ]
        );
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![
            vec!["MPF".into(), "0.5".into()],
            vec!["MFT+TAP".into(), "12".into()],
        ];
        assert_eq!(
            markdown_table(&["method", "ε_J"], &rows),
            "| method  | ε_J |\n| ------- | --: |\n| MPF     | 0.5 |\n| MFT+TAP |  12 |\n"
        );
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(Some(folder.path()), "unused").unwrap();
        output.write("a.txt", "one").unwrap();
        output.write("a.txt", "two").unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join("a.txt")).unwrap(),
            "two"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
