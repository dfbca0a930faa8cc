//! Killed, stopped and continued: files are whole at any moment, and what is continued ends with
//! the same bits as what was never stopped.
use crate::common::{mpf, write_few_units};
use mpf_cli::internal::Model;
use mpf_core::rng::next_seed;
use mpf_core::{Cancel, Checkpoint, Settings};
use mpf_report::CheckpointFile;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Kills per kind of work.
const KILLS: usize = 6;
/// Runs after which work that never ends is given up.
const MOST_RUNS: usize = 400;

/// Numbers from 0 to 1, of a seed that can be had again.
struct Moments(u64);

impl Moments {
    fn new(salt: u64) -> Self {
        let seed = std::env::var("MPF_TEST_SEED").ok();
        let seed: u64 = seed.and_then(|s| s.parse().ok()).unwrap_or(1);
        Self(next_seed(seed ^ next_seed(salt)))
    }

    fn next(&mut self) -> f64 {
        self.0 = next_seed(self.0);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn start(folder: &Path, arguments: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

/// When to kill.
#[derive(Clone, Copy)]
enum Moment<'a> {
    /// After so long.
    After(Duration),
    /// In the middle of the first write of this file after so long.
    Writing(&'a str, Duration),
    /// Not at all.
    Never,
}

/// Runs it until it is killed, which gives `None`, or ends by itself.
fn run_until(folder: &Path, arguments: &str, moment: Moment<'_>) -> Option<(ExitStatus, String)> {
    let mut child = start(folder, arguments);
    let began = Instant::now();
    let time = match moment {
        Moment::After(time) | Moment::Writing(_, time) => time,
        Moment::Never => Duration::MAX,
    };
    let mut before = None;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            let stderr = child.stderr.as_mut().unwrap();
            stderr.read_to_string(&mut said).unwrap();
            return Some((status, said));
        }
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            match moment {
                // A write is short: nothing is waited for.
                Moment::Writing(name, _) => {
                    let now = seen(folder, name);
                    if *before.get_or_insert(now) != now {
                        break;
                    }
                }
                _ => break,
            }
        }
        std::thread::sleep(left.min(Duration::from_millis(1)));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// What changes as soon as a file begins to be written: its temporary one, its size, its time.
fn seen(folder: &Path, name: &str) -> (bool, Option<(u64, SystemTime)>) {
    let temporary = names(folder).iter().any(|n| n.starts_with(".mpf-"));
    let file = fs::metadata(folder.join(name)).ok();
    (temporary, file.map(|m| (m.len(), m.modified().unwrap())))
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Nothing but `known` files and temporary ones that say so, at most one for each.
fn check_names(folder: &Path, known: &[&str]) {
    for name in names(folder) {
        let temporary = name.strip_prefix(".mpf-").and_then(|n| n.rsplit_once('.'));
        let target = temporary.map_or(name.as_str(), |(target, _)| target);
        assert!(known.contains(&target), "{name}");
    }
    assert!(names(folder).len() <= 2 * known.len());
}

/// The checkpoint is not there, or whole: only its settings keep another run from resuming it.
fn check_checkpoint(path: &Path) {
    let file = CheckpointFile::new(path, u64::MAX, |_| {}).unwrap();
    let settings = Settings::new("another");
    let checkpoint = Checkpoint::new(file, settings, Duration::MAX, &Cancel::new());
    if let Err(error) = checkpoint.load() {
        let error = error.to_string();
        assert!(error.contains("of another run: the command was"), "{error}");
    }
}

/// J, V and W, to the last bit, and the error bars.
fn numbers(path: &Path) -> Vec<u64> {
    let model = Model::read(path, None).unwrap_or_else(|e| panic!("{e}"));
    let errors = model.errors.iter().flat_map(|e| e.bars.couplings.concat());
    let potential = model.couplings.potential().unwrap_or_default().iter();
    let hidden = model.hidden.iter().flat_map(|h| h.weights.concat());
    let all = model.couplings.as_array().iter().chain(potential).copied();
    all.chain(hidden).chain(errors).map(f64::to_bits).collect()
}

/// Kills a fit again and again, and lets it continue, until it has been killed often enough and
/// has then come to its end.
fn kill_and_continue(salt: u64, options: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let at = |name: &str| path.join(name);
    write_few_units(path, 1000, "r.npy");
    let began = Instant::now();
    let whole = format!("fit r.npy {options} -o whole.json --checkpoint w --checkpoint-every 0");
    let code = mpf(path, &whole).code;
    let time = began.elapsed();
    // Converged, or as far as it goes.
    assert!(code == 0 || code == 3, "{options}");
    let plain = mpf(path, &format!("fit r.npy {options} -o plain.json"));
    assert_eq!(plain.code, code, "{}", plain.stderr);
    assert!(plain.stdout.contains("plain.json"), "{}", plain.stdout);
    let expected = numbers(&at("plain.json"));
    assert_eq!(
        numbers(&at("whole.json")),
        expected,
        "checkpoints change nothing"
    );
    assert!(!at("w").exists(), "it is removed at the end");
    let old = fs::read(at("t.json")).unwrap();
    fs::write(at("m.json"), &old).unwrap();

    let known = ["r.npy", "t.json", "whole.json", "plain.json", "m.json", "c"];
    let arguments =
        format!("fit r.npy {options} -o m.json --checkpoint c --checkpoint-every 0 --resume");
    let mut moments = Moments::new(salt);
    let (mut kills, mut ends) = (0, 0);
    for _ in 0..MOST_RUNS {
        // Half of the kills come in the middle of a write; at last it may run to its end.
        let limit = time.mul_f64(0.6 * moments.next());
        let moment = match kills {
            KILLS.. => Moment::Never,
            _ if kills % 2 == 0 => Moment::After(limit),
            _ => Moment::Writing("c", limit),
        };
        match run_until(path, &arguments, moment) {
            None => kills += 1,
            Some((status, said)) => {
                assert_eq!(status.code(), Some(code), "{said}");
                assert!(!at("c").exists());
                assert_eq!(numbers(&at("m.json")), expected, "{options}");
                ends += 1;
                if kills >= KILLS {
                    break;
                }
                fs::write(at("m.json"), &old).unwrap();
            }
        }
        check_names(path, &known);
        check_checkpoint(&at("c"));
        let now = fs::read(at("m.json")).unwrap();
        assert!(now == old || numbers(&at("m.json")) == expected);
    }
    assert!(kills >= KILLS && ends > 0, "{kills} kills, {ends} ends");
    let left: BTreeSet<String> = known[..5].iter().map(|&n| n.to_owned()).collect();
    assert_eq!(names(path), left, "what was left behind is gone at the end");
}

#[test]
fn a_killed_fit_ends_with_the_same_bits() {
    kill_and_continue(1, "--tolerance 1e-9 --polish 20");
}

#[test]
fn a_killed_fit_by_rows_ends_with_the_same_bits() {
    kill_and_continue(2, "--method rise --tolerance 1e-9 --polish 0");
}

#[test]
fn killed_contrastive_divergence_ends_with_the_same_bits() {
    kill_and_continue(3, "--method cd --updates 60");
}

#[test]
fn a_killed_penalty_path_ends_with_the_same_bits() {
    kill_and_continue(4, "--method pl --l1 auto --folds 2 --tolerance 1e-4");
}

#[test]
fn a_killed_bootstrap_ends_with_the_same_bits() {
    kill_and_continue(
        5,
        "--tolerance 1e-3 --polish 0 --errors bootstrap --resamples 12",
    );
}

#[test]
fn a_killed_machine_ends_with_the_same_bits() {
    kill_and_continue(8, "--model srbm --hidden 2 --starts 2 --max-iterations 30");
}

#[test]
fn killed_draws_are_the_same_draws() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(mpf(path, "demo -n 100 -o r.npy --truth t.json").code, 0);
    let sample = "sample t.json -n 4000 --thin 3 --sampler tempering";
    let began = Instant::now();
    assert_eq!(mpf(path, &format!("{sample} -o whole.npy")).code, 0);
    let time = began.elapsed();
    let arguments =
        format!("{sample} -o x.npy --checkpoint c --checkpoint-every 0 --resume --force");
    let mut moments = Moments::new(6);
    let mut kills = 0;
    for _ in 0..MOST_RUNS {
        let limit = time.mul_f64(0.7 * moments.next());
        let moment = match kills {
            KILLS.. => Moment::Never,
            _ if kills % 2 == 0 => Moment::After(limit),
            _ => Moment::Writing("c", limit),
        };
        let ended = run_until(path, &arguments, moment);
        check_names(path, &["r.npy", "t.json", "whole.npy", "x.npy", "c"]);
        check_checkpoint(&path.join("c"));
        match ended {
            None => kills += 1,
            Some((status, said)) => {
                assert_eq!(status.code(), Some(0), "{said}");
                let same = fs::read(path.join("x.npy")).unwrap()
                    == fs::read(path.join("whole.npy")).unwrap();
                assert!(same);
                if kills >= KILLS {
                    return;
                }
            }
        }
    }
    panic!("only {kills} kills, or it never ended");
}

#[test]
fn a_killed_conversion_leaves_the_old_file_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Large enough that most of the time is spent on writing.
    let d = 160;
    let header: Vec<String> = (0..d).map(|i| format!("u{i}")).collect();
    let mut table = format!("unit,{}\n", header.join(","));
    for i in 0..d {
        let row = (0..d).map(|j| format!("{}", 1.0 / (1 + i + j) as f64));
        table += &format!("u{i},{}\n", row.collect::<Vec<_>>().join(","));
    }
    fs::write(path.join("table.csv"), table).unwrap();
    let convert = "convert table.csv --assume binary";
    assert_eq!(mpf(path, &format!("{convert} -o new.json")).code, 0);
    assert_eq!(mpf(path, "demo -n 10 -o r.npy --truth old.json").code, 0);
    let old = fs::read(path.join("old.json")).unwrap();
    let new = fs::read(path.join("new.json")).unwrap();
    let began = Instant::now();
    assert_eq!(mpf(path, &format!("{convert} -o m.json")).code, 0);
    let time = began.elapsed();
    let known = ["table.csv", "new.json", "old.json", "r.npy", "m.json"];
    let mut moments = Moments::new(7);
    let mut kills = 0;
    for _ in 0..MOST_RUNS {
        fs::write(path.join("m.json"), &old).unwrap();
        let moment = match kills % 2 {
            0 => Moment::After(time.mul_f64(0.3 + 0.8 * moments.next())),
            _ => Moment::Writing("m.json", Duration::ZERO),
        };
        let ended = run_until(path, &format!("{convert} -o m.json"), moment);
        kills += usize::from(ended.is_none());
        let found = fs::read(path.join("m.json")).unwrap();
        assert!(found == new || (found == old && ended.is_none()));
        check_names(path, &known);
        if kills >= 2 * KILLS {
            break;
        }
    }
    assert!(kills >= 2 * KILLS, "{kills} kills");
}

/// Waits until the file is there.
fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "no {path:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Resumes a fit and tells it to stop; returns the size of its checkpoint, whose trace grows with
/// every update.
fn size_when_stopped_again(folder: &Path, arguments: &str) -> u64 {
    let mut child = start(folder, &format!("{arguments} --resume"));
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    signal(&child, "TERM");
    stderr.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert_eq!(said, "resuming from c: fit under way\n");
    fs::metadata(folder.join("c")).unwrap().len()
}

#[test]
fn a_fit_that_is_told_to_stop_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_few_units(path, 10_000, "r.npy");
    let fit = "fit r.npy --method cd --updates 200";
    assert_eq!(mpf(path, &format!("{fit} -o whole.json")).code, 0);
    for name in ["TERM", "INT"] {
        // Once there is a checkpoint the fit is under way.
        let arguments = format!("{fit} -o m.json --checkpoint c --checkpoint-every 0");
        let mut child = start(path, &arguments);
        wait_for(&path.join("c"));
        std::thread::sleep(Duration::from_millis(50));
        // Twice, as when a program and then its group are told: that is one wish.
        signal(&child, name);
        signal(&child, name);
        let mut said = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        assert!(said.contains("the work is kept in c"), "{said}");
        let hint = format!("{arguments} --resume");
        assert!(said.trim_end().ends_with(&hint), "{said}");
        assert!(!path.join("m.json").exists());

        // Stopped again at once, it is at least as far as it was.
        let size = fs::metadata(path.join("c")).unwrap().len();
        let second = size_when_stopped_again(path, &arguments);
        assert!(second >= size && size_when_stopped_again(path, &arguments) >= second);

        // Without --resume it is not overwritten; with other settings it is not continued.
        let kept = fs::read(path.join("c")).unwrap();
        for (changed, expected) in [
            (arguments.clone(), "c is already there"),
            (
                format!("{arguments} --resume --seed 7"),
                "--seed was 0 and is 7",
            ),
            (
                format!("{arguments} --resume --nodewise").replace("cd", "pl"),
                "--method was cd and is pl",
            ),
            (
                format!("{arguments} --resume").replace("r.npy", "r.npy --transpose"),
                "the data was 10000 × 17",
            ),
        ] {
            let outcome = mpf(path, &changed);
            assert_eq!(outcome.code, 2, "{changed}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
            assert_eq!(fs::read(path.join("c")).unwrap(), kept);
        }

        let outcome = mpf(path, &format!("{arguments} --resume"));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let resumed = outcome.stderr.contains("resuming from c: ");
        assert!(resumed, "{}", outcome.stderr);
        assert_eq!(
            numbers(&path.join("m.json")),
            numbers(&path.join("whole.json"))
        );
        assert!(!path.join("c").exists());
        fs::remove_file(path.join("m.json")).unwrap();
    }
    // A resume without a checkpoint is a fresh start.
    let fresh = "fit r.npy --method independent -o m.json --checkpoint c --resume";
    let outcome = mpf(path, fresh);
    assert_eq!(outcome.code, 0);
    assert!(
        outcome.stderr.contains("starting afresh"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn without_a_checkpoint_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(mpf(path, "demo -n 2000 -o r.npy --truth t.json").code, 0);
    let mut child = start(path, "fit r.npy --method cd --updates 1000000 -o m.json");
    // It has read its data, so that it listens.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    signal(&child, "TERM");
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("nothing was written"), "{said}");
    let left = ["r.npy", "t.json"].map(str::to_owned);
    assert_eq!(names(path), BTreeSet::from(left));
}
