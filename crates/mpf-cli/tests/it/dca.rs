//! `mpf dca` from the file to the scores.

use crate::common::mpf;
use std::fs;

/// A family in which the first and the third site go together, and the second is on its own.
const FAMILY: &str = ">first/11-13\nACD\n>b\nAFD\n>c\nGCE\n>d\nGFE\n";

#[test]
fn a_family_becomes_scores_arrays_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("f.fasta"), FAMILY).unwrap();
    fs::write(at.join("d.txt"), "11 12 9.5\n11 13 3.25\n12 13 20\n").unwrap();
    for method in ["pl", "mpf"] {
        let options = format!(
            "dca f.fasta --focus first --method {method} --structure d.txt --separation 0 \
             -o s.csv -o m.npz -o r.html --mutations e.csv --force --json"
        );
        let run = mpf(at, &options);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let summary: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(
            (&summary["n_sites"], &summary["n_sequences"]),
            (&3.into(), &4.into())
        );
        let scores = fs::read_to_string(at.join("s.csv")).unwrap();
        let best = scores.lines().nth(2).unwrap();
        assert!(best.starts_with("1,11,A,13,D,1,3,"), "{best}");
        assert!(best.ends_with(",3.250"), "{best}");
        assert_eq!(scores.lines().count(), 2 + 3);
        // Replacing D at 13 by E, which goes with G, costs energy; 20 other letters at each site.
        let mutations = fs::read_to_string(at.join("e.csv")).unwrap();
        let change = mutations
            .lines()
            .find_map(|l| l.strip_prefix("13,D,E,"))
            .unwrap();
        assert!(change.parse::<f64>().unwrap() > 0.0);
        assert_eq!(mutations.lines().count(), 2 + 3 * 20);
        assert!(fs::metadata(at.join("m.npz")).unwrap().len() > 3 * 441 * 8);
        assert!(
            fs::read_to_string(at.join("r.html"))
                .unwrap()
                .contains("contact map")
        );
    }
    // Both modes agree on who goes with whom. Four sequences are enough for three sites, not for one more.
    let run = mpf(at, "dca f.fasta --mode node-wise -o n.csv");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stderr.contains("noise"), "{}", run.stderr);
    fs::write(at.join("few.fasta"), ">a\nACDE\n>b\nAFDE\n>c\nGCEF\n").unwrap();
    let run = mpf(at, "dca few.fasta -o few.csv");
    assert!(
        run.stderr.contains("3.000 effective sequences for 4 sites"),
        "{}",
        run.stderr
    );
    let scores = fs::read_to_string(at.join("n.csv")).unwrap();
    assert!(
        scores.lines().nth(2).unwrap().starts_with("1,1,A,3,D,"),
        "{scores}"
    );
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("f.fasta"), FAMILY).unwrap();
    fs::write(at.join("unequal.fasta"), ">a\nACDW\n>b\nAC\n").unwrap();
    fs::write(at.join("letter.fasta"), ">a\nACDW\n>b\nAC1W\n").unwrap();
    fs::write(at.join("far.txt"), "900 901 3\n").unwrap();
    for (arguments, message) in [
        ("dca unequal.fasta -o s.csv", "line 4"),
        ("dca letter.fasta -o s.csv", "column 3"),
        ("dca letter.fasta -o s.csv", "--alphabet -ABC"),
        ("dca f.fasta --alphabet -ABC -o s.csv", "\"-ABC\""),
        ("dca f.fasta --theta 1 -o s.csv", "--theta is 1"),
        ("dca f.fasta --focus zebra -o s.csv", "zebra"),
        ("dca f.fasta --alphabet AA -o s.csv", "twice"),
        ("dca f.fasta --l2=-1 -o s.csv", "--l2"),
        ("dca f.fasta --structure far.txt -o s.csv", "far.txt"),
        (
            "dca f.fasta --memory-limit 0.01 --mode joint -o s.csv",
            "memory-limit",
        ),
        ("dca f.fasta -o s.txt", "s.txt"),
        ("dca none.fasta -o s.csv", "none.fasta"),
    ] {
        let run = mpf(at, arguments);
        assert_eq!(run.code, 2, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments}: {}", run.stderr);
        assert!(!at.join("s.csv").exists(), "{arguments}");
    }
}

/// Short sequences take far more memory than their letters.
#[test]
fn many_short_sequences_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let names = ">b\nAC\n>c\nAD\n".repeat(100_000);
    let lines = "AC\nAD\n".repeat(100_000);
    for (name, text) in [("x.fasta", names), ("x.txt", lines)] {
        std::fs::write(path.join(name), text).unwrap();
        let outcome = mpf(path, &format!("dca {name} -o s.csv --memory-limit 30"));
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        let said = format!("the sequences of {name} would take about");
        assert!(outcome.stderr.contains(&said), "{}", outcome.stderr);
    }
}
