//! Limits of time, names and locks: found before the work where that is possible, and heard in every
//! step of it.
use crate::common::{mpf, write_few_units};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn folder(n_samples: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = mpf(
        folder.path(),
        &format!("demo -n {n_samples} -o r.npy --truth t.json"),
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    folder
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

fn terminate(mut child: Child) -> (Option<i32>, String) {
    let sent = Command::new("kill").arg(child.id().to_string()).status();
    assert!(sent.unwrap().success());
    let stderr = child.stderr.take().unwrap();
    let said = std::io::read_to_string(stderr).unwrap();
    (child.wait().unwrap().code(), said)
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "no {path:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the program handles SIGTERM.
fn wait_for_handler(child: &Child) {
    const SIGTERM: u32 = 15;
    let began = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        if caught >> (SIGTERM - 1) & 1 == 1 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no handler");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn two_jobs_do_not_share_a_checkpoint() {
    let folder = folder(2000);
    let path = folder.path();
    let fit = "fit r.npy --method cd --updates 1000000 --checkpoint c --checkpoint-every 0 -o";
    let first = start(path, &format!("{fit} a.json"));
    wait_for(&path.join("c"));
    for other in [fit.to_owned(), fit.replace("-o", "--resume -o")] {
        let second = mpf(path, &format!("{other} b.json"));
        assert_eq!(second.code, 2, "{}", second.stderr);
        let holder = format!("c: process {} on ", first.id());
        assert!(second.stderr.contains(&holder), "{}", second.stderr);
        assert!(second.stderr.contains("is working with it"));
    }
    let (code, said) = terminate(first);
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(names(path), ["c", "r.npy", "t.json"]);
    // A job that is killed leaves a lock that nobody holds.
    let mut killed = start(path, &format!("{fit} a.json --resume"));
    wait_for(&path.join(".mpf-c.lock"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let third = start(path, &format!("{fit} a.json --resume"));
    wait_for(&path.join(".mpf-c.lock"));
    std::thread::sleep(Duration::from_millis(200));
    let (code, said) = terminate(third);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("resuming from c"), "{said}");
}

#[test]
fn folds_blocks_and_methods_that_cannot_be_are_found_before_the_trials() {
    let folder = folder(100);
    for arguments in [
        "fit r.npy --l1 auto --folds 1 -o m.json",
        "fit r.npy --l2 auto --folds 101 -o m.json",
        "compare r.npy --folds 1",
        "compare r.npy --folds 101",
        "compare r.npy --block-length 0",
        "compare r.npy --block-length 51",
        "compare r.npy --methods pl,ml",
    ] {
        let refused = mpf(folder.path(), arguments);
        assert_eq!(refused.code, 2, "{arguments}: {}", refused.stderr);
        let said = &refused.stderr;
        assert!(!said.contains(" about "), "{arguments}: {said}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_reported_to_the_quiet_too() {
    let folder = folder(1000);
    for quiet in ["-q", "--json"] {
        let fit = format!(
            "trap '' XFSZ; ulimit -f 200; exec \"$0\" fit r.npy --method independent --errors \
             bootstrap --resamples 40 -o m.json --checkpoint c --checkpoint-every 0 {quiet}"
        );
        let output = Command::new("bash")
            .args(["-c", &fit])
            .arg(env!("CARGO_BIN_EXE_mpf"))
            .current_dir(folder.path())
            .output()
            .expect("there is a shell");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let warnings = said.matches("warning: cannot write c").count();
        assert_eq!(warnings, 1, "{quiet}: {said}");
    }
}

#[test]
fn names_and_numbers_that_cannot_work_are_found_before_the_work() {
    let folder = folder(200);
    let path = folder.path();
    let fit = "fit r.npy --method independent";
    for length in [245, 255] {
        let name = "x".repeat(length - 5) + ".json";
        let outcome = mpf(path, &format!("{fit} -o {name} --checkpoint {name}.c"));
        // The checkpoint has two bytes more.
        let expected = if length == 245 { 0 } else { 2 };
        assert_eq!(outcome.code, expected, "{}", outcome.stderr);
        let outcome = mpf(path, &format!("{fit} -o {name}"));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        assert_eq!(mpf(path, &format!("convert {name} -o m.npz")).code, 0);
    }
    let name = "x".repeat(251) + ".json";
    let outcome = mpf(path, &format!("{fit} -o {name}"));
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("choose a shorter name"),
        "{}",
        outcome.stderr
    );
    for few in [0, 1] {
        let errors = format!("--l1 auto --method pl --errors bootstrap --resamples {few}");
        let outcome = mpf(path, &format!("fit r.npy {errors} -o m.json"));
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("at least two"),
            "{}",
            outcome.stderr
        );
        assert!(!path.join("m.json").exists());
    }
    // 820 parameters, or fewer if some pairs are not determined, and 200 samples.
    for (options, expected) in [
        ("--block-length 0", "a block has samples"),
        ("--errors sandwich", "only 200 samples"),
    ] {
        let outcome = mpf(path, &format!("fit r.npy --method pl {options} -o m.json"));
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    for option in ["--tolerance", "--max-seconds", "--memory-limit"] {
        for number in ["inf", "nan", "-1"] {
            let outcome = mpf(path, &format!("{fit} -o m.json {option}={number}"));
            assert_eq!(outcome.code, 2, "{option} {number}");
            assert!(
                outcome.stderr.contains("not negative"),
                "{}",
                outcome.stderr
            );
        }
    }
}

/// Data on standard input are a file too, if the shell opened one.
#[test]
fn standard_input_is_not_overwritten() {
    let folder = folder(200);
    let path = folder.path();
    for command in [
        "fit - --method independent --force -o r.csv < r.csv",
        "dca - --alphabet binary --force -o r.csv < r.csv",
    ] {
        fs::copy(path.join("r.npy"), path.join("r.csv")).unwrap();
        let output = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {command}")])
            .arg(env!("CARGO_BIN_EXE_mpf"))
            .current_dir(path)
            .output()
            .expect("there is a shell");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert_eq!(
            fs::read(path.join("r.csv")).unwrap(),
            fs::read(path.join("r.npy")).unwrap(),
            "{command}"
        );
    }
}

#[test]
fn a_link_to_the_output_stays() {
    let folder = folder(200);
    let path = folder.path();
    fs::create_dir(path.join("results")).unwrap();
    std::os::unix::fs::symlink("results/m.json", path.join("m.json")).unwrap();
    for _ in 0..2 {
        let outcome = mpf(path, "fit r.npy --method independent -o m.json");
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    }
    assert!(
        fs::symlink_metadata(path.join("m.json"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(names(&path.join("results")), ["m.json"]);
    // A loop, and a link into a folder that is not there.
    std::os::unix::fs::symlink("loop.json", path.join("loop.json")).unwrap();
    std::os::unix::fs::symlink("none/m.json", path.join("lost.json")).unwrap();
    for name in ["loop.json", "lost.json"] {
        let outcome = mpf(path, &format!("fit r.npy --method independent -o {name}"));
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(
        path.join("x.csv"),
        "a\x1b[31m,b\x07,\"c\nwarning: d\"\n0,1,1\n1,0,1\n1,1,1\n0,0,1\n",
    )
    .unwrap();
    let outcome = mpf(path, "fit x.csv -o m.json --polish 0");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let hidden = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    assert!(!hidden(&outcome.stderr) && !hidden(&outcome.stdout));
    // An end of line in a name does not begin a line.
    assert!(!outcome.stderr.contains("\nwarning: d"));
    assert!(
        outcome.stderr.contains("a\\u{1b}[31m"),
        "{}",
        outcome.stderr
    );
    assert_eq!(mpf(path, "sample m.json -n 10 -o y.csv").code, 0);
    let header = fs::read_to_string(path.join("y.csv")).unwrap();
    assert!(header.starts_with("a\x1b[31m,b\x07,\"c\nwarning: d\"\n"));
}

/// The first step that the limit cuts is different for each.
#[test]
fn the_time_limit_is_that_of_all_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_few_units(path, 1000, "r.npy");
    for (options, expected) in [
        (
            "--errors bootstrap --resamples 20000 --polish 0",
            "the error bars failed: the time limit was reached",
        ),
        (
            "--polish 1000000",
            "the check on held-out samples failed: the time limit was reached",
        ),
        (
            "--l1 auto --method pl --folds 1000",
            "the choice of the penalty failed: the time limit was reached",
        ),
    ] {
        let fit = format!("fit r.npy {options} --max-seconds 1 -o m.json");
        let outcome = mpf(path, &fit);
        assert_eq!(outcome.code, 4, "{options}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(expected),
            "{options}: {}",
            outcome.stderr
        );
        assert_eq!(mpf(path, "convert m.json -o m.npz").code, 0);
        fs::remove_file(path.join("m.json")).unwrap();
    }
    let outcome = mpf(path, "fit r.npy --max-seconds 0 -o m.json");
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("--max-seconds 0 passed"),
        "{}",
        outcome.stderr
    );
    assert!(!path.join("m.json").exists());
}

#[test]
fn a_comparison_ends_at_the_time_limit() {
    let folder = folder(2000);
    for options in [
        "--methods cd --updates 100000000 --max-seconds 0.5",
        "--max-seconds 0",
    ] {
        let outcome = mpf(folder.path(), &format!("compare r.npy {options}"));
        assert_eq!(outcome.code, 1, "{options}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("passed before there was a result"),
            "{options}: {}",
            outcome.stderr
        );
    }
}

/// Tuning a ladder of many units hears nothing: the program ends all the same.
#[test]
fn a_step_that_is_deaf_does_not_hold_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let d = 800;
    let names: Vec<String> = (0..d).map(|i| format!("u{i}")).collect();
    let mut table = format!("unit,{}\n", names.join(","));
    for (i, name) in names.iter().enumerate() {
        let row = (0..d).map(|j| if i == j { "0" } else { "-0.001" });
        table += &format!("{name},{}\n", row.collect::<Vec<_>>().join(","));
    }
    fs::write(path.join("m.csv"), table).unwrap();
    assert_eq!(mpf(path, "convert m.csv --assume binary -o m.json").code, 0);
    let sample = "sample m.json -n 100000 --sampler tempering -o x.npy --checkpoint c";
    let child = start(path, sample);
    wait_for(&path.join(".mpf-c.lock"));
    std::thread::sleep(Duration::from_millis(300));
    let (code, said) = terminate(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("the work is kept in c"), "{said}");
    assert_eq!(names_without_lock(path), ["c", "m.csv", "m.json"]);
}

/// Pipes that nobody writes to.
#[cfg(target_os = "linux")]
#[test]
fn a_read_that_waits_hears_a_signal() {
    let folder = folder(200);
    let path = folder.path();
    let made = Command::new("mkfifo")
        .args(["p.npy", "p.json"])
        .current_dir(path)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no mkfifo");
        return;
    }
    for command in [
        "fit p.npy -o m.json",
        "fit r.npy --support p.json -o m.json",
        "compare p.npy",
        "evaluate t.json p.npy",
        "sample p.json -o x.npy",
        "dca p.npy -o x.csv",
        "dca r.npy --structure p.json -o x.csv",
    ] {
        let child = start(path, command);
        wait_for_handler(&child);
        let (code, said) = terminate(child);
        assert_eq!(code, Some(130), "{command}: {said}");
    }
    assert_eq!(names(path), ["p.json", "p.npy", "r.npy", "t.json"]);
}

fn names_without_lock(folder: &Path) -> Vec<String> {
    let mut names = names(folder);
    names.retain(|name| !name.ends_with(".lock"));
    names
}

#[test]
fn separable_data_end_the_descent_of_the_logarithm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut text = String::new();
    let mut state = 1u64;
    for _ in 0..12 {
        let row: Vec<&str> = (0..20)
            .map(|_| {
                state = mpf_core::rng::next_seed(state);
                if state >> 63 == 1 { "1" } else { "0" }
            })
            .collect();
        text += &(row.join(",") + "\n");
    }
    fs::write(path.join("x.csv"), text).unwrap();
    let outcome = mpf(
        path,
        "fit x.csv --method logrise --l2 0 --polish 0 --held-out 0 -o m.json",
    );
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("the data are separable"),
        "{}",
        outcome.stderr
    );
}

/// Says what it takes before it begins, unless nobody reads that.
#[test]
fn long_commands_announce_their_time() {
    let folder = tempfile::tempdir().unwrap();
    write_few_units(folder.path(), 500, "r.npy");
    for (arguments, words) in [
        (
            "compare r.npy --methods pl,tap --folds 2",
            "this comparison takes about ",
        ),
        (
            "sample t.json -n 100 --force -o s.npy",
            "these draws take about ",
        ),
    ] {
        let said = mpf(folder.path(), arguments);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
        let quiet = mpf(folder.path(), &format!("{arguments} -q"));
        assert_eq!(quiet.code, 0, "{}", quiet.stderr);
        assert!(!quiet.stderr.contains(words), "{}", quiet.stderr);
    }
}

#[test]
fn no_more_than_the_limit_is_announced() {
    let folder = folder(20_000);
    let fit = "fit r.npy --l1 auto --max-seconds 0.4 --json --force -o m.json";
    let outcome = mpf(folder.path(), fit);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let seconds = report["expected_seconds"].as_f64().unwrap();
    assert!(seconds <= 0.4, "{seconds}");
}

/// The fourth unit is the majority of the others: no pair separates it, but all three do. Nobody knows how
/// often the error bars will have to be fitted again.
#[test]
fn a_fit_that_may_be_repeated_is_announced_as_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for at in 0..240u32 {
        let bits = [at & 1, at >> 1 & 1, at >> 2 & 1];
        let majority = u32::from(bits.iter().sum::<u32>() > 1);
        text += &format!("{},{},{},{majority}\n", bits[0], bits[1], bits[2]);
    }
    fs::write(folder.path().join("x.csv"), text).unwrap();
    let fit = "fit x.csv --method pl --force -o m.json";
    let plain = mpf(folder.path(), fit);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    assert!(plain.stderr.contains("takes about"), "{}", plain.stderr);
    let bars = mpf(folder.path(), &format!("{fit} --errors sandwich"));
    assert_eq!(bars.code, 0, "{}", bars.stderr);
    assert!(bars.stderr.contains("takes at least"), "{}", bars.stderr);
    assert!(bars.stderr.contains("up to 20 times"), "{}", bars.stderr);
}

#[test]
fn a_streamed_fit_announces_its_memory() {
    let folder = folder(500);
    let path = folder.path();
    let packed = mpf(path, "pack r.npy -o r.bits");
    assert_eq!(packed.code, 0, "{}", packed.stderr);
    let fit = "fit r.bits --stream --polish 0 --max-iterations 2 -o m.json";
    let outcome = mpf(path, fit);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("this fit takes about"),
        "{}",
        outcome.stderr
    );
}
