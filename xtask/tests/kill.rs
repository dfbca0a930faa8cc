//! The program is killed again and again, and ends with the numbers of a run that never was.
#![cfg(unix)]

use mpf_core::rng;
use rand::RngExt;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A small Figure 2 with all its methods and two models.
fn start(folder: &Path) -> Child {
    let options = "reproduce-fig2 --resume --checkpoint-every 0 --lattice 3 --samples 2000 \
                   --variance 1 --seed 1 --seeds 2 --iterations 40 --cd1-updates 20 \
                   --cd10-updates 6 --lambdas 4 --correlation-draws 300";
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(options.split_whitespace())
        .arg("--out")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// What `results.json` holds besides times.
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

#[test]
fn killed_at_random_moments_it_ends_with_the_same_numbers() {
    let seed = match std::env::var("MPF_TEST_SEED") {
        Ok(text) => text.parse().expect("MPF_TEST_SEED is a number"),
        Err(_) => 1,
    };
    let whole = tempfile::tempdir().unwrap();
    let clock = Instant::now();
    assert!(start(whole.path()).wait().unwrap().success());
    let length = clock.elapsed().as_secs_f64();
    let expected = results(whole.path());
    assert_eq!(expected["methods"].as_array().map(Vec::len), Some(6));
    assert!(!whole.path().join("checkpoint.bin").exists());

    let mut random = rng::stream(seed, 0);
    let mut folder = tempfile::tempdir().unwrap();
    let (mut kills, mut ends) = (0, 0);
    // Most are killed in what they do anew, some after they have come to the end.
    while kills < 10 || ends == 0 {
        let mut run = start(folder.path());
        if kills < 10 {
            let moment = 0.4 * length * random.random::<f64>();
            sleep(Duration::from_secs_f64(moment));
            run.kill().unwrap();
            kills += 1;
        }
        let ended = run.wait().unwrap();
        if ended.success() {
            assert_eq!(results(folder.path()), expected);
            assert!(!folder.path().join("checkpoint.bin").exists());
            folder = tempfile::tempdir().unwrap();
            ends += 1;
        } else {
            // Killed, and not stopped by an error.
            assert_eq!(ended.code(), None, "{ended}");
            if folder.path().join("results.json").exists() {
                assert_eq!(results(folder.path()), expected);
            }
        }
    }
}
