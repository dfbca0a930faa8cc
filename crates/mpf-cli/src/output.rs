//! Checks that results can be written, and what they would replace, before hours are spent on them.

use crate::failure::{Failure, plain};
use crate::model::Model;
use crate::{console, data};
use clap::Args;
use mpf_report::files;
use serde::Serialize;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The option of every command that writes files.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ForceArg {
    /// Replace existing files that mpf did not write, and go on where mpf would stop to ask
    #[arg(long, help_heading = "Everywhere")]
    pub force: bool,
}

/// A file that a command writes.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    /// A model, in any of its forms.
    Model(&'a Path),
    /// A page, a plot or numbers.
    Report(&'a Path),
    /// States; nothing in the file tells who wrote it.
    Raster(&'a Path),
    /// A checkpoint, which has its own rules.
    Checkpoint(&'a Path),
}

/// Returns the reports that a command writes. An archive has no mark.
pub fn reports<'a>(paths: &'a [PathBuf]) -> Vec<Output<'a>> {
    let report = |path: &'a PathBuf| match extension(path).as_str() {
        "npz" => Output::Raster(path),
        _ => Output::Report(path),
    };
    paths.iter().map(report).collect()
}

/// Checks all files of a command before any of them is read: outputs must be writable, be neither an
/// input nor each other, and replace only files of their kind that this program wrote.
///
/// # Errors
/// A [`Failure`] that names the file.
pub fn check(inputs: &[&Path], outputs: &[Output<'_>], force: ForceArg) -> Result<(), Failure> {
    let inputs: Vec<(&Path, Identity)> = inputs
        .iter()
        .map(|path| match data::is_standard(path) {
            // It may be a file that the shell has opened.
            true => (*path, Identity::of(Path::new("/dev/stdin"))),
            false => (*path, Identity::of(path)),
        })
        .collect();
    for (path, identity) in &inputs {
        refuse_hidden(path, identity)?;
    }
    let mut others: Vec<(&Path, Identity)> = Vec::new();
    for &output in outputs {
        let (Output::Model(path)
        | Output::Report(path)
        | Output::Raster(path)
        | Output::Checkpoint(path)) = output;
        let identity = Identity::of(path);
        refuse_hidden(path, &identity)?;
        if let Some((input, _)) = inputs.iter().find(|(_, other)| other.is(&identity)) {
            return Err(Failure::input(format!(
                "{} would be overwritten: {} is read by this command",
                path.display(),
                input.display()
            ))
            .hint("write to another file"));
        }
        if let Some((other, _)) = others.iter().find(|(_, other)| other.is(&identity)) {
            return Err(Failure::input(format!(
                "{} and {} are the same file",
                other.display(),
                path.display()
            ))
            .hint("give every output a name of its own"));
        }
        others.push((path, identity));
        match output {
            Output::Checkpoint(_) if data::is_standard(path) => {
                let why = "--checkpoint -: standard output cannot keep a checkpoint";
                return Err(Failure::input(why).hint("name a file"));
            }
            _ if data::is_standard(path) => continue,
            _ => check_writable(path)?,
        }
        if !force.force && !may_replace(path, output) {
            return Err(Failure::input(format!(
                "{} exists and is not a {} that mpf wrote",
                path.display(),
                match output {
                    Output::Model(_) => "model",
                    Output::Report(_) => "report",
                    Output::Raster(_) | Output::Checkpoint(_) => "file",
                }
            ))
            .hint("choose another name, or replace it with --force"));
        }
    }
    Ok(())
}

/// Refuses names that this program gives to locks and temporary files, which it replaces and removes.
fn refuse_hidden(path: &Path, identity: &Identity) -> Result<(), Failure> {
    let name = identity.path.file_name().unwrap_or_default();
    if !name
        .as_encoded_bytes()
        .starts_with(files::TEMPORARY.as_bytes())
    {
        return Ok(());
    }
    let why = format!(
        "names that begin with {} are temporary files of mpf",
        files::TEMPORARY
    );
    Err(Failure::at(path, why).hint("rename it"))
}

/// What a path is, whatever its spelling.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    /// The canonical path; of a file that does not exist yet, that of its folder with the name.
    path: PathBuf,
    /// Device and inode of an existing file.
    file: Option<(u64, u64)>,
}

impl Identity {
    fn of(path: &Path) -> Self {
        let mut missing = Vec::new();
        let path = files::target(path).unwrap_or_else(|_| path.to_owned());
        let mut at = std::path::absolute(&path).unwrap_or(path);
        let found = loop {
            match fs::canonicalize(&at) {
                Ok(found) => break found,
                Err(_) => match (at.file_name(), at.parent()) {
                    (Some(name), Some(folder)) => {
                        missing.push(name.to_owned());
                        at = folder.to_owned();
                    }
                    _ => break at,
                },
            }
        };
        let path = missing
            .iter()
            .rev()
            .fold(found, |path, name| path.join(name));
        Self {
            file: device_and_inode(&path),
            path,
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.path == other.path || (self.file.is_some() && self.file == other.file)
    }
}

#[cfg(unix)]
fn device_and_inode(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn device_and_inode(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Returns whether nothing is lost if `path` becomes this file.
fn may_replace(path: &Path, output: Output<'_>) -> bool {
    let Ok(found) = fs::metadata(path) else {
        return true;
    };
    // Devices and pipes hold nothing, and neither does an empty file.
    if !found.is_file() || found.len() == 0 {
        return true;
    }
    match output {
        Output::Checkpoint(_) => true,
        Output::Raster(_) => false,
        Output::Model(_) => Model::read(path, None).is_ok(),
        Output::Report(_) => {
            let mut start = Vec::new();
            let read = fs::File::open(path).and_then(|f| f.take(4096).read_to_end(&mut start));
            read.is_ok() && String::from_utf8_lossy(&start).contains(MARK)
        }
    }
}

/// The text near the start of every report that this program writes.
pub const MARK: &str = "written by mpf";

/// Returns the JSON form of a report, with the mark.
///
/// # Panics
/// If `report` cannot be written as JSON.
pub fn json_report(report: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Marked<'a, T> {
        program: String,
        #[serde(flatten)]
        report: &'a T,
    }
    let program = format!("{MARK} {}", env!("CARGO_PKG_VERSION"));
    let marked = Marked { program, report };
    serde_json::to_string_pretty(&marked).expect("a report can be written") + "\n"
}

/// Returns an SVG with the mark, as a comment.
pub fn marked_svg(svg: &str) -> String {
    match svg.find('>') {
        Some(end) => format!("{}<!-- {MARK} -->{}", &svg[..=end], &svg[end + 1..]),
        None => svg.to_owned(),
    }
}

/// Writes a file, or standard output for `-`.
///
/// # Errors
/// Those of the file system.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    if data::is_standard(path) {
        return console::print_with(|out| out.write_all(contents));
    }
    files::write(path, contents).map_err(|error| Failure::unwritten(path, &error))
}

/// Checks that a file can be made at `path`, by making another one in its folder.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let wrong = |why: String| Failure::input(format!("cannot write {}: {why}", path.display()));
    let target = match files::target(path) {
        Ok(target) => target,
        Err(error) => return Err(wrong(plain(&error)).hint("choose another name")),
    };
    let folder = files::folder(&target);
    match fs::symlink_metadata(&target) {
        Err(error) if error.kind() == ErrorKind::InvalidFilename => {
            return Err(wrong(plain(&error)).hint("choose a shorter name"));
        }
        _ => {}
    }
    if path.is_dir() {
        return Err(wrong("it is a folder".into()).hint("name a file in it"));
    }
    if !folder.is_dir() {
        return Err(
            wrong(format!("there is no folder {}", folder.display())).hint("make the folder first")
        );
    }
    if fs::metadata(path).is_ok_and(|m| m.permissions().readonly()) {
        return Err(wrong("the file there is write-protected".into())
            .hint("choose another name, or make it writable"));
    }
    // Pipes and devices are written directly.
    if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(plain(&error)).hint("choose a folder that you may write to")),
    }
}

/// Refuses a name that does not end in one of `known`.
///
/// # Errors
/// A [`Failure`] that lists them.
pub fn check_extension(path: &Path, known: &[&str]) -> Result<(), Failure> {
    if known.contains(&extension(path).as_str()) {
        return Ok(());
    }
    let why = format!("the name must end in .{}", known.join(", ."));
    Err(Failure::at(path, why).hint(format!("name it result.{}", known[0])))
}

/// Returns the extension of a name in small letters.
pub fn extension(path: &Path) -> String {
    let end = path.extension().and_then(|e| e.to_str());
    end.map_or_else(String::new, str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: ForceArg = ForceArg { force: false };

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_same_file_is_noticed_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        write(&at("data.npy"), "x");
        fs::hard_link(at("data.npy"), at("linked.npy")).unwrap();
        let report = |path: &'static str| at(path);
        let names = ["data.npy", "./data.npy", "sub/../data.npy", "linked.npy"];
        for name in names {
            let output = report(name);
            let output = Output::Report(&output);
            let force = ForceArg { force: true };
            let failure = check(&[&at("data.npy")], &[output], force).unwrap_err();
            assert!(
                failure.message.contains("would be overwritten"),
                "{failure}"
            );
        }
        // Two outputs that do not exist yet.
        let (a, b) = (at("new.json"), at("sub/../new.json"));
        let outputs = [&a, &b].map(|path| Output::Report(path));
        let failure = check(&[], &outputs, ASK).unwrap_err();
        assert!(failure.message.contains("the same file"), "{failure}");
        assert!(check(&[&at("data.npy")], &outputs[..1], ASK).is_ok());
        let standard = Path::new("-");
        let failure = check(&[], &[Output::Report(standard); 2], ASK).unwrap_err();
        assert!(failure.message.contains("the same file"), "{failure}");
        let failure = check(&[], &[Output::Checkpoint(standard)], ASK).unwrap_err();
        assert!(failure.message.contains("--checkpoint -"), "{failure}");
        assert!(check(&[standard], &[Output::Report(standard)], ASK).is_ok());
    }

    /// The lock of a checkpoint `c`, and what a write of `m.json` would take for a file that a killed
    /// program left behind.
    #[test]
    fn files_with_names_of_temporary_ones_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".mpf-c.lock", ".mpf-m.json.abc123"] {
            write(&at(name), "0,1\n");
            let other = at("other.json");
            let other = Output::Model(&other);
            let path = at(name);
            let same = Output::Model(&path);
            for failure in [
                check(&[&path], &[other], ASK).unwrap_err(),
                check(&[], &[same], ForceArg { force: true }).unwrap_err(),
            ] {
                assert!(failure.message.contains("temporary files"), "{failure}");
            }
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(".mpf-c.lock", at("x.csv")).unwrap();
            assert!(check(&[&at("x.csv")], &[], ASK).is_err());
        }
    }

    #[test]
    fn only_files_of_this_program_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let written = Model::unfitted(
            mpf_ising::Couplings::zeros(2).unwrap(),
            vec!["a".into(), "b".into()],
        );
        written
            .write(&at("m.json"), crate::model::Convention::Binary)
            .unwrap();
        write(
            &at("r.json"),
            &json_report(
                &[("a", 1)]
                    .into_iter()
                    .collect::<std::collections::BTreeMap<_, _>>(),
            ),
        );
        write(&at("r.svg"), &marked_svg("<svg width=\"1\"></svg>"));
        write(&at("notes.json"), "{\"mine\": 1}");
        write(&at("empty.json"), "");
        let model: fn(&Path) -> Output<'_> = |path| Output::Model(path);
        let report: fn(&Path) -> Output<'_> = |path| Output::Report(path);
        let raster: fn(&Path) -> Output<'_> = |path| Output::Raster(path);
        let cases = [
            ("m.json", model, true),
            ("m.json", report, false),
            ("r.json", report, true),
            ("r.json", model, false),
            ("r.svg", report, true),
            ("notes.json", model, false),
            ("notes.json", report, false),
            ("empty.json", model, true),
            ("none.json", raster, true),
            ("m.json", raster, false),
        ];
        for (name, output, expected) in cases {
            let path = at(name);
            let output = [output(&path)];
            assert_eq!(check(&[], &output, ASK).is_ok(), expected, "{output:?}");
            assert!(check(&[], &output, ForceArg { force: true }).is_ok());
        }
    }
}
