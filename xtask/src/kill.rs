//! Kills the program again and again; it must end with the numbers of an uninterrupted run.

use crate::Cli;
use clap::Parser;
use mpf_core::rng;
use rand::RngExt;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A small Figure 2 with all its methods and two models.
const FIG2: &str = "reproduce-fig2 --resume --lattice 3 --samples 2000 --variance 1 --seed 1 \
                    --seeds 2 --iterations 40 --cd1-updates 20 --cd10-updates 6 --lambdas 4 \
                    --correlation-draws 300";

/// Too few repetitions for its expectations to hold.
const ERRORS: &str = "check-errors --resume --repetitions 2 --samples 300 --correlated-samples 500 \
                      --block 20 --bootstrapped 0";

/// Holds the arguments of [`program`].
const ARGUMENTS: &str = "XTASK_TEST_ARGUMENTS";

/// Runs the program in the process that a test has started: a second build of everything here would take
/// minutes. Does nothing if it is asked for by hand.
#[test]
#[ignore = "the program that the other tests start"]
fn program() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else {
        return;
    };
    let words = ["xtask"].into_iter().chain(arguments.split_whitespace());
    std::process::exit(crate::execute(Cli::parse_from(words)).into());
}

fn start(options: &str, folder: &Path) -> Child {
    let folder = folder.to_str().expect("the folder has a plain name");
    Command::new(std::env::current_exe().expect("the tests know their program"))
        .args(["--exact", "kill::program", "--ignored", "--nocapture"])
        .env(ARGUMENTS, format!("{options} --out {folder}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn end(run: Child) -> Output {
    run.wait_with_output().expect("the program ends")
}

/// Returns `results.json` without times.
fn results(folder: &Path) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let time = |key: &str| matches!(key, "seconds" | "machine" | "reading");
                fields.retain(|key, _| !time(key));
                fields.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            _ => {}
        }
    }
    let text = fs::read_to_string(folder.join("results.json")).expect("there are results");
    let mut value = serde_json::from_str(&text).expect("and they are whole");
    clean(&mut value);
    value
}

fn has_checkpoint(folder: &Path) -> bool {
    folder.join("checkpoint.bin").exists()
}

/// Kills the program `kills` times, each after a random time of up to `reach` of a whole run, and
/// lets it end. `found` must return the same as in a run without kills.
fn kill<T: PartialEq + std::fmt::Debug>(
    options: &str,
    kills: usize,
    reach: f64,
    found: impl Fn(&Path, &Output) -> T,
) {
    let options = &format!("{options} --checkpoint-every 0");
    let whole = tempfile::tempdir().unwrap();
    let clock = Instant::now();
    let ended = end(start(options, whole.path()));
    let length = clock.elapsed().as_secs_f64();
    let expected = found(whole.path(), &ended);
    assert!(!has_checkpoint(whole.path()));

    let mut random = rng::stream(mpf_testkit::seed(), 0);
    let mut folder = tempfile::tempdir().unwrap();
    let (mut killed, mut ends) = (0, 0);
    while killed < kills || ends == 0 {
        let mut run = start(options, folder.path());
        if killed < kills {
            sleep(Duration::from_secs_f64(
                reach * length * random.random::<f64>(),
            ));
            run.kill().unwrap();
            killed += 1;
        }
        let ended = end(run);
        // No code: it was killed before it ended.
        if ended.status.code().is_some() {
            assert_eq!(found(folder.path(), &ended), expected);
            assert!(!has_checkpoint(folder.path()));
            folder = tempfile::tempdir().unwrap();
            ends += 1;
        } else if folder.path().join("results.json").exists() {
            assert_eq!(found(folder.path(), &ended), expected);
        }
    }
}

#[test]
fn killed_at_random_moments_figure_2_has_the_same_numbers() {
    kill(FIG2, 8, 0.4, |folder, _| results(folder));
}

#[test]
fn killed_at_random_moments_a_check_says_the_same() {
    kill(ERRORS, 5, 0.8, |_, ended| {
        assert_eq!(ended.status.code(), Some(1));
        String::from_utf8(ended.stdout.clone()).unwrap()
    });
}

#[test]
fn a_signal_leaves_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (stopped, whole) = (folder.path().join("a"), folder.path().join("b"));
    let longer = format!("{FIG2} --seeds 4 --checkpoint-every 0.1").replace("--seeds 2 ", "");
    let run = start(&longer, &stopped);
    let clock = Instant::now();
    while !has_checkpoint(&stopped) && clock.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(2));
    }
    let signalled = Command::new("kill")
        .args(["-TERM", &run.id().to_string()])
        .status();
    assert!(signalled.unwrap().success());
    let ended = end(run);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("with --resume continues it"), "{said}");
    assert!(has_checkpoint(&stopped));

    let other = end(start(&longer.replace("--seed 1", "--seed 2"), &stopped));
    assert_eq!(other.status.code(), Some(1));
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(said.contains("--seed was 1 and is 2"), "{said}");

    assert!(end(start(&longer, &stopped)).status.success());
    assert!(end(start(&longer, &whole)).status.success());
    assert_eq!(results(&stopped), results(&whole));
}
