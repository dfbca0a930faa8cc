//! Full disks, folders that cannot be written to, closed pipes: a clear message, the documented
//! exit code, nothing half-written, and old files untouched.
#![cfg(target_os = "linux")]

mod common;

use common::{Outcome, mpf};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

/// Every command that writes, each of its outputs larger than a kilobyte, with their names.
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

/// `mpf` where no file can grow beyond a kilobyte: writes fail half-way.
fn mpf_on_a_full_disk(folder: &Path, arguments: &str) -> Outcome {
    let output = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
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
    let folder = folder();
    let path = folder.path();
    for (arguments, outputs) in WRITERS {
        for old in [false, true] {
            let before = names(path);
            if old {
                for output in outputs {
                    fs::write(path.join(output), "precious").unwrap();
                }
            }
            let outcome = mpf_on_a_full_disk(path, arguments);
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
    fs::write(path.join("small.csv"), "a,b\n0,1\n1,0\n1,1\n0,0\n1,1\n").unwrap();
    // The model fits into a kilobyte if little is said about it; its checkpoint does not.
    let fit = "fit small.csv --method cd --updates 40 -o m.csv --checkpoint c --checkpoint-every 0";
    let outcome = mpf_on_a_full_disk(path, fit);
    let warnings = outcome.stderr.matches("cannot write c").count();
    assert_eq!(warnings, 1, "once is enough: {}", outcome.stderr);
    assert!(
        outcome.stderr.contains("goes on without"),
        "{}",
        outcome.stderr
    );
    assert!(!path.join("c").exists());
}

#[test]
fn standard_output_on_a_full_disk() {
    let folder = folder();
    let path = folder.path();
    for (arguments, _) in WRITERS
        .iter()
        .chain(&[("completions bash", &[] as &[&str])])
    {
        for json in ["", "--json "] {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
                .args(format!("{json}{arguments}").split_whitespace())
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
    let folder = folder();
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
            assert!(fs::metadata(path.join(output)).unwrap().len() > 1024);
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
    check_message(&outcome, "used for something else");
    assert_eq!(names(path), before);
}
