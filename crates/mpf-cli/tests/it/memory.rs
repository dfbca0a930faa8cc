//! What a fit is said to take before it begins, and what it takes.
use crate::common::mpf;
use mpf_cli::internal::write_raster;
use mpf_core::rng::stream;
use mpf_ising::States;
use rand::RngExt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Independent units, `active` of them 1.
fn write_data(path: &Path, n_samples: usize, d: usize, active: f64) {
    let mut rng = stream(1, 0);
    let mut states = States::new(d).unwrap();
    let mut row = vec![0u64; states.words_per_row()];
    for _ in 0..n_samples {
        row.fill(0);
        for unit in 0..d {
            row[unit / 64] |= u64::from(rng.random::<f64>() < active) << (unit % 64);
        }
        states.push(&row);
    }
    let names: Vec<String> = (0..d).map(|i| i.to_string()).collect();
    write_raster(path, &states, &names, false).unwrap();
}

/// Megabytes at the most, and what is said on standard error.
fn peak(folder: &Path, arguments: &str) -> (f64, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", "2")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let mut kilobytes = 0.0;
    // The high-water mark only rises, so that its last value is the one.
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        if let Some(number) = line.and_then(|l| l.trim().strip_suffix("kB")) {
            kilobytes = number.trim().parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    (1.024e-3 * kilobytes, said)
}

/// The megabytes that a command is said to take.
fn announced(said: &str) -> f64 {
    let starts = ["this fit takes about", "these draws take about"];
    let mut lines = said.lines();
    let line = lines.find(|l| starts.iter().any(|start| l.starts_with(start)));
    let bytes = line.and_then(|l| l.rsplit_once(" and ")).unwrap().1;
    bytes.strip_suffix(" MB").unwrap().parse().unwrap()
}

fn check(folder: &Path, arguments: &str) {
    let (peak, said) = peak(folder, arguments);
    let estimate = announced(&said);
    assert!(
        (0.75..1.25).contains(&(estimate / peak)),
        "{arguments}: {estimate} MB announced, {peak} MB taken"
    );
}

#[test]
fn the_estimate_is_within_a_quarter_of_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    for active in [0.5, 0.05] {
        // With twice as many units, ln Z would take four times as long.
        write_data(&folder.path().join("x.npy"), 150_000, 100, active);
        // Further iterations fill L-BFGS's corrections, which are a small part.
        check(
            folder.path(),
            "fit x.npy --max-iterations 2 --tolerance 0 --polish 0 -o m.json",
        );
    }
}

/// Steps that take more than the fit itself, each with few iterations.
#[test]
fn every_step_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (n_samples, d, options) in [
        (
            300,
            400,
            "--method mpf --checkpoint c --checkpoint-every 0 --max-iterations 15",
        ),
        (2000, 50, "--method pl --errors sandwich"),
        // Small matrices, which an allocator keeps.
        (2000, 40, "--method pl --errors sandwich"),
        (1000, 120, "--method pl --nodewise --errors sandwich"),
        (60_000, 100, "--method cd --updates 3"),
        (1000, 300, "--method tap"),
        (50_000, 60, "--method mpf --l1 auto --max-iterations 2"),
        (
            50_000,
            60,
            "--method mpf --errors bootstrap --resamples 4 --max-iterations 2",
        ),
        (
            20_000,
            150,
            "--method pl --errors bootstrap --resamples 2 --max-iterations 12",
        ),
        (
            300,
            200,
            "--method mpf --errors bootstrap --resamples 100 --max-iterations 2",
        ),
    ] {
        write_data(&path.join("x.npy"), n_samples, d, 0.3);
        check(
            path,
            &format!("fit x.npy {options} --polish 0 --held-out 0 --tolerance 0 -o m.json"),
        );
    }
}

#[test]
fn a_comparison_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    // Many samples, then many parameters. A comparison spends its time on ln Z, so that the first has few
    // units, and the second few fits.
    for (n_samples, d, options) in [
        (100_000, 26, "--methods mpf,tap --folds 3"),
        (3000, 200, "--methods mpf --l2 0.001 --folds 2"),
    ] {
        write_data(&folder.path().join("x.npy"), n_samples, d, 0.3);
        let arguments = &format!("compare x.npy {options}");
        let refused = mpf(folder.path(), &format!("{arguments} --memory-limit 1"));
        let said = refused.stderr.split_once("would take about ").unwrap().1;
        let estimate: f64 = said.split_once(" MB").unwrap().0.parse().unwrap();
        let (peak, _) = peak(folder.path(), &format!("{arguments} --tolerance 0.1"));
        assert!(
            (0.75..1.25).contains(&(estimate / peak)),
            "{n_samples} × {d}: {estimate} MB announced, {peak} MB taken"
        );
    }
}

#[test]
fn chains_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_data(&path.join("x.npy"), 100, 200, 0.3);
    let fitted = mpf(
        path,
        "fit x.npy --method mpf --max-iterations 3 --held-out 0 --polish 0 -o m.json --force",
    );
    assert!(matches!(fitted.code, 0 | 3), "{}", fitted.stderr);
    // Each has a field for every unit.
    let draws = "sample m.json -n 25000 --chains 25000 --burn-in 1 --sampler gibbs --force";
    check(path, &format!("{draws} -o s.npy"));
    let kept = "--checkpoint c --checkpoint-every 0";
    check(path, &format!("{draws} {kept} -o s.npy"));
}

#[test]
fn what_does_not_fit_is_refused_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    write_data(&folder.path().join("x.npy"), 50, 400, 0.5);
    let fit = |options: &str| {
        let arguments = format!("fit x.npy {options} -o m.json --force --held-out 0");
        mpf(folder.path(), &arguments)
    };
    let refused = fit("--memory-limit 40");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert!(
        refused.stderr.contains("--memory-limit allows only 40"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--nodewise"), "{}", refused.stderr);
    assert!(!folder.path().join("m.json").exists());
    // What the hint says does help.
    fs::write(folder.path().join("edges.txt"), "0 1\n1 2\n").unwrap();
    for options in [
        "--memory-limit 40 --support edges.txt --max-iterations 2",
        "--memory-limit 40 --nodewise --max-iterations 2 --polish 0",
        "--memory-limit 500 --max-iterations 2 --polish 0",
    ] {
        let outcome = fit(options);
        assert!(
            matches!(outcome.code, 0 | 3),
            "{options}: {}",
            outcome.stderr
        );
    }
}
