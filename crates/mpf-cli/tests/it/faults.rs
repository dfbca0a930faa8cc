//! Fails the n-th system call of small runs, for every n: no panic, no wrong file, no torn file. Calls
//! that are interrupted or short are made again, so that many of them can be in one run.
//!
//! `tests/faults.c` does the failing. Allocations are many: by default a spread of them fails, and
//! every one with `MPF_EVERY_ALLOCATION=1`.
use crate::common::mpf;
use mpf_cli::internal::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands, and what each writes. The fit is told its memory: it would ask the system before each of its
/// steps, in hundreds of reads, as the others do a few times. A sweep may write a checkpoint, so there are few.
const JOBS: [(&str, &str); 3] = [
    (
        "fit r.csv --threads 1 --memory-limit 1000 -o out.json --checkpoint c --checkpoint-every 0 \
         --resume --force",
        "out.json",
    ),
    (
        "sample t.json -n 8 --burn-in 4 --threads 1 -o out.npy --checkpoint c --checkpoint-every 0 \
         --resume --force",
        "out.npy",
    ),
    (
        "evaluate t.json r.csv --draws 200 --threads 1 -o out.html --force",
        "out.html",
    ),
];

/// The allocations that fail at the start of a run, one by one, before a spread of the rest does.
const FIRST_ALLOCATIONS: usize = 30;
/// How many of the rest fail.
const SPREAD: usize = 40;
/// Of harmless faults there is one in so many calls, from the first call on, from the second, and so on.
const HARMLESS_EVERY: [usize; 3] = [2, 3, 7];

/// The exit codes of a run that could not do all of its work: failed, wrong input, a step failed,
/// out of memory.
const FAILURES: [i32; 4] = [1, 2, 4, 5];

struct Ended {
    code: i32,
    stderr: String,
}

/// A folder with data, a model, an older output, and the library that fails calls.
struct Bench {
    folder: tempfile::TempDir,
    library: PathBuf,
    _library_folder: tempfile::TempDir,
}

impl Bench {
    /// `None` without a C compiler.
    fn new() -> Option<Self> {
        let library_folder = tempfile::tempdir().unwrap();
        let library = library_folder.path().join("libfaults.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .args([source, "-ldl"])
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            return None;
        }
        // In memory where that can be had: thousands of runs sync their files.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        let bits = |row: u32| {
            [
                row & 1,
                row >> 1 & 1,
                u32::from(row % 5 < 2),
                u32::from(row % 7 < 3),
            ]
        };
        let rows = (0..60u32).map(|row| bits(row).map(|x| x.to_string()).join(","));
        fs::write(
            folder.path().join("r.csv"),
            rows.collect::<Vec<_>>().join("\n"),
        )
        .unwrap();
        let made = mpf(folder.path(), "fit r.csv --method tap -o t.json");
        assert_eq!(made.code, 0, "{}", made.stderr);
        Some(Self {
            folder,
            library,
            _library_folder: library_folder,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Every file and what is in it: all that the next run can know of the last.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let names = self.names().into_iter();
        let files = names.map(|name| (name.clone(), fs::read(self.path(&name)).unwrap()));
        files.collect()
    }

    /// Runs `job` with the `at`-th `call` failing, 0 for none; returns how it ended and, unless it
    /// ended without memory, how many such calls it made.
    fn run(&self, job: &str, call: &str, kind: &str, at: usize) -> (Ended, Option<usize>) {
        self.run_every(job, call, kind, at, 0)
    }

    /// As [`Bench::run`], with another failure after every `every` calls unless that is 0.
    fn run_every(
        &self,
        job: &str,
        call: &str,
        kind: &str,
        at: usize,
        every: usize,
    ) -> (Ended, Option<usize>) {
        let count = self.library.with_file_name("count");
        let _ = fs::remove_file(&count);
        let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
            .args(job.split_whitespace())
            .current_dir(self.folder.path())
            .env("RUST_BACKTRACE", "0")
            .env("LD_PRELOAD", &self.library)
            .env("MPF_FAULT_CALL", call)
            .env("MPF_FAULT_KIND", kind)
            .env("MPF_FAULT_AT", at.to_string())
            .env("MPF_FAULT_EVERY", every.to_string())
            .env("MPF_FAULT_COUNT", &count)
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let place = format!("mpf {job}: {call} {at}, {kind}: {stderr}");
        assert_eq!(output.status.signal(), None, "{place}");
        assert!(!stderr.contains("panicked"), "{place}");
        let code = output.status.code().expect("it ends by itself");
        let counted = fs::read_to_string(&count).ok();
        let counted = counted.and_then(|text| text.trim().parse().ok());
        (Ended { code, stderr }, counted)
    }

    /// Removes what a run left, and puts an older output there.
    fn tidy(&self, output: &str) {
        for name in self.names() {
            if name != "r.csv" && name != "t.json" {
                fs::remove_file(self.path(&name)).unwrap();
            }
        }
        fs::write(self.path(output), "precious").unwrap();
    }
}

/// What an output says, without times.
fn contents(path: &Path) -> Vec<u8> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("json") => {
            let model = Model::read(path, None).unwrap_or_else(|e| panic!("{e}"));
            let couplings = model.couplings.as_array();
            couplings.iter().flat_map(|j| j.to_le_bytes()).collect()
        }
        // Of a page, that it is whole; it tells how long it took to make.
        Some("html") => {
            let page = fs::read_to_string(path).unwrap();
            assert!(page.trim_end().ends_with("</html>"));
            Vec::new()
        }
        _ => fs::read(path).unwrap(),
    }
}

/// The calls to fail of `total`.
fn places(call: &str, total: usize) -> Vec<usize> {
    let every = std::env::var_os("MPF_EVERY_ALLOCATION").is_some();
    if call != "alloc" || every || total <= FIRST_ALLOCATIONS + SPREAD {
        return (1..=total).collect();
    }
    let rest = total - FIRST_ALLOCATIONS;
    let spread = (1..=SPREAD).map(|k| FIRST_ALLOCATIONS + k * rest / SPREAD);
    (1..=FIRST_ALLOCATIONS).chain(spread).collect()
}

/// Fails `call` everywhere in every job.
fn fail_everywhere(call: &str, kind: &str) {
    let Some(bench) = Bench::new() else {
        eprintln!("SKIPPED: no C compiler");
        return;
    };
    for (job, output) in JOBS {
        bench.tidy(output);
        let (ended, total) = bench.run(job, call, kind, 0);
        assert_eq!(ended.code, 0, "mpf {job}: {}", ended.stderr);
        let total = total.expect("the library counts");
        assert!(total > 0, "mpf {job} makes no {call}");
        let expected = contents(&bench.path(output));
        let data = ["r.csv", "t.json"].map(|name| fs::read(bench.path(name)).unwrap());
        let mut seen = BTreeSet::new();
        for at in places(call, total) {
            bench.tidy(output);
            let (ended, _) = bench.run(job, call, kind, at);
            let place = format!(
                "mpf {job}: {call} {at} of {total}, {kind}: {}",
                ended.stderr
            );
            let unchanged = ["r.csv", "t.json"].map(|name| fs::read(bench.path(name)).unwrap());
            assert_eq!(data, unchanged, "{place}");
            let is_old = fs::read(bench.path(output)).unwrap() == b"precious";
            if ended.code == 0 || ended.code == 4 {
                assert!(!is_old, "{place}");
            } else {
                assert!(FAILURES.contains(&ended.code), "{}: {place}", ended.code);
                assert!(!ended.stderr.is_empty(), "{place}");
            }
            if !is_old {
                assert_eq!(contents(&bench.path(output)), expected, "{place}");
            }
            // Only a program without memory, like one that was killed, cannot tidy up.
            if ended.code != 5 {
                let left = bench.names();
                let hidden = left.iter().find(|name| name.starts_with(".mpf-"));
                assert_eq!(hidden, None, "{place}");
            }
            if ended.code != 0 && is_old && seen.insert(bench.files()) {
                // What is left does not keep the next run from its work. (If the same was left before,
                // the next run was the same.)
                let (again, _) = bench.run(job, call, kind, 0);
                assert_eq!(again.code, 0, "after {place}: {}", again.stderr);
                assert_eq!(contents(&bench.path(output)), expected, "after {place}");
                let hidden = bench.names().into_iter().find(|n| n.starts_with(".mpf-"));
                assert_eq!(hidden, None, "after {place}");
            }
        }
    }
}

/// Makes a fault that a job must not notice at every `call`, many of them in each run.
fn disturb_everywhere(calls: &[&str], kind: &str) {
    let Some(bench) = Bench::new() else {
        eprintln!("SKIPPED: no C compiler");
        return;
    };
    for (job, output) in JOBS {
        bench.tidy(output);
        let (ended, _) = bench.run(job, "none", kind, 0);
        assert_eq!(ended.code, 0, "mpf {job}: {}", ended.stderr);
        let expected = contents(&bench.path(output));
        let data = ["r.csv", "t.json"].map(|name| fs::read(bench.path(name)).unwrap());
        for call in calls {
            let phases = HARMLESS_EVERY.iter();
            for (every, at) in phases.flat_map(|every| (1..=*every).map(|at| (*every, at))) {
                bench.tidy(output);
                let (ended, total) = bench.run_every(job, call, kind, at, every);
                let place = format!(
                    "mpf {job}: {call} {at} and every {every}th after it, {kind}: {}",
                    ended.stderr
                );
                assert_eq!(ended.code, 0, "{place}");
                assert!(total.expect("the library counts") > 0, "{place}");
                assert_eq!(contents(&bench.path(output)), expected, "{place}");
                let unchanged = ["r.csv", "t.json"].map(|name| fs::read(bench.path(name)).unwrap());
                assert_eq!(data, unchanged, "{place}");
                let hidden = bench.names().into_iter().find(|n| n.starts_with(".mpf-"));
                assert_eq!(hidden, None, "{place}");
            }
        }
    }
}

#[test]
fn reads_that_fail() {
    fail_everywhere("read", "error");
}

#[test]
fn writes_that_fail() {
    fail_everywhere("write", "error");
}

#[test]
fn syncs_and_renames_that_fail() {
    fail_everywhere("fsync", "error");
    fail_everywhere("rename", "error");
}

#[test]
fn files_that_cannot_be_opened() {
    fail_everywhere("open", "error");
}

#[test]
fn memory_that_ends() {
    fail_everywhere("alloc", "error");
}

#[test]
fn interrupted_calls_change_nothing() {
    disturb_everywhere(&["read", "write", "fsync", "open"], "interrupted");
}

#[test]
fn short_calls_change_nothing() {
    disturb_everywhere(&["read", "write"], "short");
}
