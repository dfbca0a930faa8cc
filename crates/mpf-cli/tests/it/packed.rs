//! Packed files: `mpf pack`, fits that stream them, and what goes wrong with either.

use crate::common::{Outcome, mpf, write_few_units};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A folder with 20,000 samples of 40 units and their packed form.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, "demo -n 20000 -o r.csv --truth t.json");
    good(path, "pack r.csv -o r.bits");
    folder
}

/// A folder with 20,000 samples of 17 units and their packed form.
fn folder_of_few_units() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_few_units(folder.path(), 20_000, "r.csv");
    good(folder.path(), "pack r.csv -o r.bits");
    folder
}

fn good(folder: &Path, arguments: &str) -> Outcome {
    let outcome = mpf(folder, arguments);
    assert_eq!(outcome.code, 0, "{arguments}: {}", outcome.stderr);
    outcome
}

fn bad(folder: &Path, arguments: &str, expected: &[&str]) {
    let outcome = mpf(folder, arguments);
    assert_ne!(outcome.code, 0, "{arguments}");
    for text in expected {
        assert!(
            outcome.stderr.contains(text),
            "{arguments}: {}",
            outcome.stderr
        );
    }
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
}

fn model(folder: &Path, name: &str) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// All numbers of J, whatever the shape.
fn couplings(model: &serde_json::Value) -> Vec<f64> {
    fn numbers(value: &serde_json::Value, found: &mut Vec<f64>) {
        match value {
            serde_json::Value::Array(list) => list.iter().for_each(|v| numbers(v, found)),
            other => found.extend(other.as_f64()),
        }
    }
    let mut found = Vec::new();
    numbers(&model["couplings"], &mut found);
    assert!(!found.is_empty(), "a model has couplings");
    found
}

#[test]
fn a_streamed_fit_is_that_of_the_same_samples_in_memory() {
    let folder = folder();
    let path = folder.path();
    // The default first.
    for (method, close) in [
        ("", 1e-9),
        ("--method mpf --refine none", 1e-9),
        ("--method pl", 1e-9),
        // A last digit can decide when a coupling leaves zero. Then both end where no gradient is above
        // the tolerance, each at a place of its own.
        ("--l1 0.01", 1e-6),
    ] {
        let options = format!("{method} --force");
        let in_memory = format!("fit r.csv {options} --held-out 0 --polish 0 -o memory.json");
        good(path, &in_memory);
        let steps = "--stream --held-out 0 --polish 0";
        let streamed = format!("fit r.bits {steps} {options} -o stream.json");
        let streamed = good(path, &streamed);
        assert!(
            streamed.stdout.contains("MB a second"),
            "{}",
            streamed.stdout
        );
        let (memory, stream) = (model(path, "memory.json"), model(path, "stream.json"));
        assert_eq!(memory["data"]["fingerprint"], stream["data"]["fingerprint"]);
        assert_eq!(memory["names"], stream["names"]);
        let off = couplings(&memory).into_iter().zip(couplings(&stream));
        let off = off.fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        // Equal rows are merged in memory alone: sums differ in their last digits, and the two
        // searches take the same steps.
        assert!(off < close, "{method}: {off}");
    }
    // All steps are there.
    let whole = good(path, "fit r.bits --stream --force -o stream.json");
    assert!(whole.stdout.contains("held out: "), "{}", whole.stdout);
    // The same bits, however little is held.
    let options = "--method mpf --refine none --max-iterations 10 --force";
    mpf(path, &format!("fit r.bits --stream {options} -o a.json"));
    for more in ["--memory 90", "--threads 1", "--threads 3 --memory 120"] {
        let fit = format!("fit r.bits --stream {options} {more} -o b.json");
        mpf(path, &fit);
        assert_eq!(
            couplings(&model(path, "a.json")),
            couplings(&model(path, "b.json")),
            "{more}"
        );
    }
}

#[test]
fn a_small_packed_file_is_fitted_like_any_other() {
    let folder = folder_of_few_units();
    let path = folder.path();
    let rows = fs::read_to_string(path.join("r.csv")).unwrap();
    let (header, rows) = rows.split_once('\n').unwrap();
    let (first, second) = rows.split_at(rows.len() / 2 / 34 * 34);
    for (name, rows) in [("a", first), ("b", second)] {
        fs::write(path.join("part.csv"), format!("{header}\n{rows}")).unwrap();
        good(path, &format!("pack part.csv -o {name}.bits"));
    }
    for options in ["", "--l1 0.01", "--method pl --errors sandwich"] {
        good(path, &format!("fit r.csv {options} --force -o memory.json"));
        let expected = model(path, "memory.json");
        for data in ["r.bits", "r.bits --memory 100 --threads 1", "a.bits b.bits"] {
            let fit = format!("fit {data} {options} --force -o packed.json");
            let packed = good(path, &fit);
            assert!(packed.stdout.contains("held out: "), "{}", packed.stdout);
            let found = model(path, "packed.json");
            for part in ["couplings", "standard_errors", "names"] {
                assert_eq!(found[part], expected[part], "{fit}: {part}");
            }
            let fingerprint = |model: &serde_json::Value| model["data"]["fingerprint"].clone();
            assert_eq!(fingerprint(&found), fingerprint(&expected));
        }
    }
    bad(
        path,
        "fit r.bits --memory 1 -o m.json",
        &["allows only 1.000 MB", "--memory-limit"],
    );
    bad(path, "fit r.csv --stream -o m.json", &["--stream"]);
}

#[test]
fn every_source_packs_to_the_same_bytes() {
    let folder = folder();
    let path = folder.path();
    let whole = fs::read(path.join("r.bits")).unwrap();
    let text = fs::read_to_string(path.join("r.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (header, rows) = (lines[0], &lines[1..]);
    for (name, rows) in [("a.csv", &rows[..9000]), ("b.csv", &rows[9000..])] {
        fs::write(path.join(name), format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    }
    good(path, "pack a.csv b.csv -o two.bits");
    assert!(
        fs::read(path.join("two.bits")).unwrap() == whole,
        "two files"
    );
    let piped = Command::new("sh")
        .args(["-c", "cat r.csv | \"$0\" pack - -o pipe.bits"])
        .arg(env!("CARGO_BIN_EXE_mpf"))
        .current_dir(path)
        .status();
    assert!(piped.unwrap().success());
    assert!(fs::read(path.join("pipe.bits")).unwrap() == whole, "a pipe");
    // Shards are one recording.
    good(path, "pack a.csv -o a.bits");
    good(path, "pack b.csv -o b.bits");
    let options = "--method mpf --refine none --max-iterations 5 --held-out 0 --polish 0 --force";
    mpf(path, &format!("fit r.bits {options} -o one.json"));
    mpf(path, &format!("fit a.bits b.bits {options} -o shards.json"));
    assert_eq!(
        couplings(&model(path, "one.json")),
        couplings(&model(path, "shards.json"))
    );
    // Files of other units cannot follow.
    fs::write(path.join("c.csv"), "0 1\n1 0\n").unwrap();
    bad(path, "pack r.csv c.csv -o x.bits", &["c.csv"]);
    assert!(!path.join("x.bits").exists());
}

#[test]
fn few_units_are_merged_and_counts_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut text = String::from("a,b,c,n\n");
    for m in 0..40u32 {
        let bit = |k: u32| m.wrapping_mul(2_654_435_761).wrapping_shr(7 + 3 * k) & 1;
        text += &format!("{},{},{},{}\n", bit(0), bit(1), bit(2), m % 3);
    }
    fs::write(path.join("r.csv"), text).unwrap();
    good(path, "pack r.csv --counts n -o r.bits");
    good(path, "fit r.csv --counts n --polish 0 -o memory.json");
    let memory = model(path, "memory.json");
    for options in ["--polish 0", "--stream"] {
        good(
            path,
            &format!("fit r.bits {options} --force -o packed.json"),
        );
        let packed = model(path, "packed.json");
        assert_eq!(couplings(&memory), couplings(&packed), "{options}");
        assert_eq!(memory["data"]["fingerprint"], packed["data"]["fingerprint"]);
    }
}

#[test]
fn what_a_stream_cannot_do_is_said() {
    let folder = folder();
    let path = folder.path();
    for option in ["--errors sandwich", "--nodewise", "--neighbours non-data"] {
        let name = option.split(' ').next().unwrap();
        bad(
            path,
            &format!("fit r.bits --stream {option} -o m.json"),
            &[name, "in memory"],
        );
    }
    bad(
        path,
        "fit r.bits --stream --method tap -o m.json",
        &["memory"],
    );
    bad(
        path,
        "fit r.bits --spins -o m.json",
        &["--spins", "mpf pack"],
    );
    bad(
        path,
        "fit r.bits --stream --memory 1 -o m.json",
        &["--memory allows only"],
    );
    bad(path, "fit r.csv r.bits -o m.json", &["several files"]);
    bad(path, "fit r.bits nothing.bits -o m.json", &["nothing.bits"]);
    assert!(!path.join("m.json").exists());
}

#[test]
fn damage_is_named_and_nothing_is_lost() {
    let folder = folder();
    let path = folder.path();
    let whole = fs::read(path.join("r.bits")).unwrap();
    let mut damaged = whole.clone();
    damaged[50_000] ^= 1;
    fs::write(path.join("d.bits"), &damaged).unwrap();
    for fit in ["fit d.bits -o m.json", "fit d.bits --stream -o m.json"] {
        bad(path, fit, &["d.bits: block 0 (bytes 32 to", "checksum"]);
    }
    bad(path, "evaluate t.json d.bits", &["block 0"]);
    fs::write(path.join("c.bits"), &whole[..60_000]).unwrap();
    bad(
        path,
        "fit c.bits -o m.json",
        &["ends at byte 60000, in block 0"],
    );
    fs::write(path.join("f.bits"), &whole[..20]).unwrap();
    bad(path, "fit f.bits -o m.json", &["header"]);
    // A disk that fills up half-way.
    #[cfg(target_os = "linux")]
    {
        fs::write(path.join("old.bits"), "precious").unwrap();
        let limited = "trap '' XFSZ; ulimit -f 40; exec \"$0\" pack r.csv --force -o old.bits";
        let outcome = Command::new("bash")
            .args(["-c", limited])
            .arg(env!("CARGO_BIN_EXE_mpf"))
            .current_dir(path)
            .output()
            .unwrap();
        let message = String::from_utf8(outcome.stderr).unwrap();
        assert_eq!(outcome.status.code(), Some(1), "{message}");
        assert!(
            message.contains("cannot write old.bits: block 0, from byte 32"),
            "{message}"
        );
        assert_eq!(fs::read(path.join("old.bits")).unwrap(), b"precious");
        let left = fs::read_dir(path).unwrap().flatten();
        let left = left.filter(|e| e.file_name().to_string_lossy().starts_with(".mpf-"));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn the_reader_of_the_documentation_reads_it() {
    let folder = folder();
    let path = folder.path();
    let page = include_str!("../../../../docs/packed-file.md");
    let reader = page.split("```python\n").nth(1).unwrap();
    let reader = reader.split("```").next().unwrap();
    assert!(
        reader.lines().filter(|l| l.starts_with("    ")).count() <= 20,
        "twenty lines"
    );
    let program = format!(
        "{reader}\nrows, counts, footer = read_bits('r.bits')\n\
         text = open('r.csv').read().split()\n\
         assert footer['names'] == text[0].split(','), footer\n\
         expected = np.array([line.split(',') for line in text[1:]], np.uint8)\n\
         assert (rows == expected).all() and counts is None\nprint('read')\n"
    );
    let run = Command::new("python3")
        .args(["-c", &program])
        .current_dir(path)
        .output();
    match run {
        Ok(run) if run.status.success() => assert_eq!(run.stdout, b"read\n"),
        Ok(run) => {
            let why = String::from_utf8_lossy(&run.stderr);
            assert!(why.contains("No module named"), "{why}");
            eprintln!("SKIPPED: no NumPy");
        }
        Err(_) => eprintln!("SKIPPED: no Python"),
    }
}
