//! Full disks, folders that cannot be written to, closed pipes: a clear message, the documented
//! exit code, nothing half-written, and old files untouched.
use crate::common::{Outcome, mpf, write_few_units};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

/// Every command that writes, its first output larger than a kilobyte, with their names.
const WRITERS: [(&str, &[&str]); 9] = [
    ("fit r.csv --method independent -o out.json", &["out.json"]),
    ("fit r.csv --method tap -o out.npz", &["out.npz"]),
    ("fit r.csv --method tap -o out.csv", &["out.csv"]),
    (
        "compare r.csv --methods independent --folds 2 -o out.html -o out.json",
        &["out.html", "out.json"],
    ),
    ("sample t.json -n 2000 -o out.npy", &["out.npy"]),
    ("sample t.json -n 2000 -o out.csv", &["out.csv"]),
    (
        "evaluate t.json r.csv --draws 2000 -o out.html",
        &["out.html"],
    ),
    ("convert t.json --to spins -o out.csv", &["out.csv"]),
    (
        "demo -n 1000 -o out.csv --truth out.json",
        &["out.csv", "out.json"],
    ),
];

/// A folder with data and a model.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = mpf(folder.path(), "demo -n 1000 -o r.csv --truth t.json");
    assert_eq!(made.code, 0, "{}", made.stderr);
    folder
}

/// The same, of few units.
fn folder_of_few_units() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_few_units(folder.path(), 1000, "r.csv");
    let made = mpf(folder.path(), "fit r.csv --method tap -o t.json");
    assert_eq!(made.code, 0, "{}", made.stderr);
    folder
}

/// `mpf` where no file can grow beyond so many kilobytes: writes fail half-way.
fn mpf_with_room_for(kilobytes: usize, folder: &Path, arguments: &str) -> Outcome {
    let limited = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$0\" \"$@\"");
    let output = Command::new("bash")
        .args(["-c", &limited])
        .arg(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("there is a shell");
    Outcome {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// One error, perhaps a hint.
fn check_message(outcome: &Outcome, expected: &str) {
    let errors = outcome.stderr.lines().filter(|l| l.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
}

#[test]
fn a_disk_that_fills_up_half_way() {
    let folder = folder_of_few_units();
    let path = folder.path();
    for (arguments, outputs) in WRITERS {
        for old in [false, true] {
            let before = names(path);
            if old {
                for output in outputs {
                    fs::write(path.join(output), "precious").unwrap();
                }
            }
            let outcome = mpf_with_room_for(1, path, &format!("{arguments} --force"));
            assert_eq!(outcome.code, 1, "mpf {arguments}: {}", outcome.stderr);
            check_message(&outcome, "cannot write out.");
            check_message(&outcome, "untouched");
            for output in outputs {
                if old {
                    assert_eq!(fs::read(path.join(output)).unwrap(), b"precious");
                    fs::remove_file(path.join(output)).unwrap();
                }
            }
            assert_eq!(names(path), before, "mpf {arguments} left something");
        }
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_does_not_stop_the_fit() {
    let folder = folder();
    let path = folder.path();
    // Every resample takes thirteen kilobytes of the checkpoint: the first ones fit, all do not.
    let fit = "fit r.csv --method independent --errors bootstrap --resamples 40 -o m.json \
               --checkpoint c --checkpoint-every 0";
    let outcome = mpf_with_room_for(200, path, fit);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let warnings = outcome.stderr.matches("cannot write c").count();
    assert_eq!(warnings, 1, "once is enough: {}", outcome.stderr);
    assert!(
        outcome.stderr.contains("goes on without"),
        "{}",
        outcome.stderr
    );
    assert_eq!(mpf(path, "convert m.json -o m.npz").code, 0);
    let left = ["m.json", "m.npz", "r.csv", "t.json"].map(str::to_owned);
    assert_eq!(names(path), BTreeSet::from(left));

    // If the model cannot be written either, what was kept before is still there, and whole.
    fs::remove_file(path.join("m.json")).unwrap();
    let outcome = mpf_with_room_for(1, path, fit);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    check_message(
        &outcome,
        "cannot write m.json: file too large, and cannot write c",
    );
    assert!(!path.join("m.json").exists());
    let outcome = mpf(path, &format!("{fit} --resume"));
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(path.join("m.json").exists() && !path.join("c").exists());
}

#[test]
fn standard_output_on_a_full_disk() {
    let folder = folder_of_few_units();
    let path = folder.path();
    for (arguments, _) in WRITERS
        .iter()
        .chain(&[("completions bash", &[] as &[&str])])
    {
        for json in ["", "--json "] {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
                .args(format!("{json}{arguments}").split_whitespace())
                .args((*arguments != "completions bash").then_some("--force"))
                .current_dir(path)
                .stdout(full)
                .output()
                .unwrap();
            let outcome = Outcome {
                code: output.status.code().unwrap(),
                stdout: String::new(),
                stderr: String::from_utf8(output.stderr).unwrap(),
            };
            assert_eq!(outcome.code, 1, "mpf {arguments}: {}", outcome.stderr);
            check_message(&outcome, "cannot write to standard output");
        }
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = folder_of_few_units();
    let path = folder.path();
    for (arguments, outputs) in WRITERS
        .iter()
        .chain(&[("completions bash", &[] as &[&str])])
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mpf"))
            .args(arguments.split_whitespace())
            .current_dir(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The reader goes away before anything is said.
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "mpf {arguments}");
        for output in *outputs {
            assert!(fs::metadata(path.join(output)).unwrap().len() > 0);
            fs::remove_file(path.join(output)).unwrap();
        }
    }
}

#[test]
fn places_that_cannot_be_written_to() {
    let folder = folder();
    let path = folder.path();
    fs::create_dir(path.join("out.json")).unwrap();
    fs::create_dir(path.join("out.csv")).unwrap();
    let before = names(path);
    // No folder, a file in place of a folder, a folder in place of a file, and a folder in which
    // not even root can make a file.
    for (place, expected) in [
        ("nowhere/out", "there is no folder nowhere"),
        ("r.csv/out", "there is no folder r.csv"),
        ("/proc/out", "cannot write /proc/out"),
    ] {
        for (arguments, _) in WRITERS {
            let arguments = arguments.replace(" out.", &format!(" {place}."));
            let outcome = mpf(path, &arguments);
            assert_eq!(outcome.code, 2, "mpf {arguments}: {}", outcome.stderr);
            check_message(&outcome, expected);
            check_message(&outcome, "hint: ");
            assert_eq!(outcome.stdout, "");
        }
    }
    for arguments in [
        "fit r.csv --method tap -o out.json",
        "convert t.json -o out.csv",
        "sample t.json -o out.csv",
        "fit r.csv -o m.json --checkpoint out.json",
    ] {
        let outcome = mpf(path, arguments);
        assert_eq!(outcome.code, 2, "mpf {arguments}: {}", outcome.stderr);
        check_message(&outcome, "it is a folder");
    }
    let outcome = mpf(path, "fit r.csv -o m.json --checkpoint m.json");
    assert_eq!(outcome.code, 2);
    check_message(&outcome, "the same file");
    assert_eq!(names(path), before);
}
