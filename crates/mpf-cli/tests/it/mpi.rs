//! Fits and chains across ranks: the same bits for any number of them, differences that are named,
//! and ranks that are killed. Needs the feature `mpi` and mpirun.

use crate::common::mpf;
use mpf_core::rng::stream;
use rand::RngExt;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `mpirun -n N`, on however few cores there are, also for root.
fn launcher(folder: &Path, n: usize) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["--oversubscribe", "--bind-to", "none", "-n", &n.to_string()])
        .current_dir(folder)
        .envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ]);
    command
}

/// `mpirun -n N mpf ARGUMENTS`.
fn mpirun(folder: &Path, n: usize, arguments: &str) -> Command {
    let mut command = launcher(folder, n);
    command
        .arg(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace());
    command
}

fn run(folder: &Path, n: usize, arguments: &str) -> Output {
    mpirun(folder, n, arguments).output().expect("mpirun runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with 60,000 samples of 40 units in one packed file and in two.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for arguments in [
        "demo -n 60000 -o r.csv --truth t.json",
        "pack r.csv -o r.bits",
    ] {
        let outcome = mpf(path, arguments);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    }
    let rows = fs::read_to_string(path.join("r.csv")).unwrap();
    let (header, rows) = rows.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    for (name, rows) in [("a", &rows[..25_000]), ("b", &rows[25_000..])] {
        fs::write(
            path.join("part.csv"),
            format!("{header}\n{}\n", rows.join("\n")),
        )
        .unwrap();
        assert_eq!(mpf(path, &format!("pack part.csv -o {name}.bits")).code, 0);
    }
    folder
}

/// J and V of a model, as they are written.
fn parameters(path: &Path) -> [serde_json::Value; 2] {
    let model = fs::read_to_string(path).unwrap();
    let model: serde_json::Value = serde_json::from_str(&model).unwrap();
    ["couplings", "potential"].map(|key| model[key].clone())
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let folder = folder();
    let path = folder.path();
    for options in [
        "--max-iterations 12",
        "--method mpf --refine none --l1 0.003 --max-iterations 12",
        "--model k-pairwise --method pl --max-iterations 8",
        "--method pl --l2 auto --folds 2 --max-iterations 4",
    ] {
        let alone = mpf(
            path,
            &format!("fit r.bits --stream {options} --force -o one.json"),
        );
        assert!([0, 3].contains(&alone.code), "{}", alone.stderr);
        for (n, data) in [(2, "r.bits"), (3, "a.bits b.bits"), (4, "r.bits")] {
            let outcome = run(
                path,
                n,
                &format!("fit {data} --stream {options} --force -o many.json"),
            );
            let message = text(&outcome.stderr);
            assert!(
                message.contains(&format!("streamed by {n} ranks")),
                "{message}"
            );
            let (one, many) = (path.join("one.json"), path.join("many.json"));
            assert_eq!(parameters(&one), parameters(&many), "{options}, {n} ranks");
            fs::remove_file(many).unwrap();
        }
    }
    // What all ranks read is counted: each looks at the first samples for itself.
    let json = "--json fit r.bits --stream --method pl --max-iterations 2 --force -o m.json";
    let bytes = |report: &str| {
        let report: serde_json::Value = serde_json::from_str(report).unwrap();
        report["bytes_read"].as_u64().unwrap()
    };
    let alone = bytes(&mpf(path, json).stdout);
    let both = bytes(&text(&run(path, 2, json).stdout));
    assert!(both > alone, "{both} {alone}");
    // Few samples are not shared: rank 0 takes all steps of a fit.
    let fit = "fit r.bits --polish 0 --max-iterations 12 --force -o";
    mpf(path, &format!("{fit} one.json"));
    let outcome = run(path, 2, &format!("{fit} many.json"));
    let message = text(&outcome.stderr);
    assert!(message.contains("for rank 0 alone"), "{message}");
    let (one, many) = (path.join("one.json"), path.join("many.json"));
    assert_eq!(parameters(&one), parameters(&many));
}

#[test]
fn chains_are_shared_and_draw_the_same_states() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(mpf(path, "demo -n 100 -o r.csv --truth t.json").code, 0);
    for options in [
        "--sampler gibbs --chains 5",
        // Some ranks have no chain.
        "--sampler auto --chains 2",
        "--sampler tempering --burn-in 100",
    ] {
        let options = format!("sample t.json -n 1000 {options} --force");
        let alone = mpf(path, &format!("{options} -o one.npy"));
        assert_eq!(alone.code, 0, "{}", alone.stderr);
        for n in [2, 3] {
            let outcome = run(path, n, &format!("{options} -o many.npy"));
            let message = text(&outcome.stderr);
            assert!(outcome.status.success(), "{message}");
            // One rank prints, and says the same of the draws.
            let printed = text(&outcome.stdout).replace("many.npy", "one.npy");
            assert_eq!(printed, alone.stdout);
            let read = |name: &str| fs::read(path.join(name)).unwrap();
            assert!(read("one.npy") == read("many.npy"), "{options}, {n} ranks");
            fs::remove_file(path.join("many.npy")).unwrap();
        }
    }
    let outcome = run(path, 2, "sample t.json -o x.npy --checkpoint c.ckpt");
    assert!(text(&outcome.stderr).contains("no rank has all chains"));
    let outcome = run(path, 2, "sample none.json -o x.npy");
    assert!(text(&outcome.stderr).contains("rank 1: cannot read none.json"));
    assert!(!path.join("x.npy").exists());
}

#[test]
fn ranks_that_differ_stop_before_the_first_sum() {
    let folder = folder();
    let path = folder.path();
    // Each rank runs a command line of its own.
    let each = |first: &str, second: &str| {
        let script = format!(
            "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec \"$0\" {second}; else exec \"$0\" {first}; fi"
        );
        let mut both = launcher(path, 2);
        both.args(["sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_mpf"));
        both.output().expect("mpirun runs")
    };
    for (first, second, expected) in [
        (
            "fit r.bits -o m.json",
            "fit r.bits --l1 0.5 -o m.json",
            "rank 1: --l1 is 0.5, and on rank 0",
        ),
        (
            "fit r.bits -o m.json",
            "fit a.bits -o m.json",
            "rank 1: the data is 25000",
        ),
        (
            "fit a.bits b.bits -o m.json",
            "fit a.bits c.bits -o m.json",
            "rank 1: cannot read c.bits",
        ),
        (
            "fit c.bits -o m.json",
            "fit c.bits -o m.json",
            "rank 0: cannot read c.bits: no such file or directory; rank 1: cannot read c.bits",
        ),
        (
            "sample t.json --seed 1 -o m.npy",
            "sample t.json --seed 2 -o m.npy",
            "rank 1: --seed is 2, and on rank 0 1",
        ),
    ] {
        let outcome = each(first, second);
        let message = text(&outcome.stderr);
        assert!(message.contains(expected), "{second}: {message}");
        assert_ne!(outcome.status.code(), Some(0));
        assert!(!path.join("m.json").exists());
    }
    let outcome = run(path, 2, "fit r.csv -o m.json");
    assert!(text(&outcome.stderr).contains("would all do the same"));
}

/// The processes of `mpf` that a job has started, by rank.
fn ranks_of(job: &Child) -> Vec<(usize, i32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let status = text(&read("status"));
        let parent = status
            .lines()
            .find_map(|l| l.strip_prefix("PPid:")?.trim().parse().ok());
        if parent != Some(job.id()) {
            continue;
        }
        let environment = text(&read("environ"));
        let rank = environment
            .split('\0')
            .find_map(|v| v.strip_prefix("OMPI_COMM_WORLD_RANK="));
        if let Some(rank) = rank.and_then(|r| r.parse().ok()) {
            found.push((rank, pid));
        }
    }
    found
}

#[test]
fn killed_ranks_are_named_and_the_work_goes_on_with_others() {
    let folder = folder();
    let path = folder.path();
    // Enough iterations to be killed in the middle, and a checkpoint after each.
    let fit = "fit r.bits --stream --method pl --tolerance 1e-9 --max-iterations 60 --force";
    let whole = mpf(path, &format!("{fit} -o whole.json"));
    assert!([0, 3].contains(&whole.code), "{}", whole.stderr);
    let expected = parameters(&path.join("whole.json"));
    let mut rng = stream(11, 0);
    let start = Instant::now();
    let timed = run(path, 2, &format!("{fit} -o timed.json"));
    assert!([Some(0), Some(3)].contains(&timed.status.code()));
    let usual = start.elapsed();
    let (mut n_killed, mut resumed) = (0, 0);
    while n_killed < 20 {
        let n = rng.random_range(2..=4);
        let kept = format!("{fit} -o m.json --checkpoint c.ckpt --checkpoint-every 0 --resume");
        let mut command = mpirun(path, n, &kept);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        resumed += usize::from(path.join("c.ckpt").exists());
        let mut job = command.spawn().unwrap();
        let wait = usual
            .mul_f64(rng.random_range(0.05..0.9))
            .max(Duration::from_millis(50));
        std::thread::sleep(wait);
        let ranks = ranks_of(&job);
        if ranks.is_empty() {
            let _ = job.wait();
        } else {
            let (rank, pid) = ranks[rng.random_range(0..ranks.len())];
            let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
            let is_killed = killed.is_ok_and(|s| s.success());
            let outcome = job.wait_with_output().unwrap();
            let message = text(&outcome.stderr);
            if is_killed && message.contains("signal 9") {
                n_killed += 1;
                assert!(message.contains(&format!("rank {rank} ")), "{message}");
            }
        }
        // It may have been done before it was killed.
        if path.join("m.json").exists() {
            assert_eq!(parameters(&path.join("m.json")), expected);
            fs::remove_file(path.join("m.json")).unwrap();
            let _ = fs::remove_file(path.join("c.ckpt"));
        }
    }
    assert!(resumed > 0, "some work was kept");
    let outcome = run(
        path,
        3,
        &format!("{fit} -o m.json --checkpoint c.ckpt --resume"),
    );
    assert!(
        [Some(0), Some(3)].contains(&outcome.status.code()),
        "{}",
        text(&outcome.stderr)
    );
    assert_eq!(parameters(&path.join("m.json")), expected);
}
