//! Files of earlier versions, in `tests/corpus`.
use crate::common::mpf;
use mpf_cli::internal::Model;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

#[test]
fn every_model_is_read() {
    let mut read = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().unwrap().to_str().unwrap();
        if !["json", "npz", "csv"].contains(&extension) || path.ends_with("data.csv") {
            continue;
        }
        let model = Model::read(&path, None).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert_eq!(model.names, ["a", "b", "c", "d", "e"], "{path:?}");
        assert!(model.fit.is_some() && model.data.is_some(), "{path:?}");
        read += 1;
    }
    assert!(read >= 14, "{read} models");
    // All forms and conventions hold the same model.
    let couplings = |name: &str| Model::read(&corpus().join(name), None).unwrap().couplings;
    for name in ["default.npz", "default.csv", "spins.json", "spins.csv"] {
        assert_eq!(couplings(name), couplings("default.json"), "{name}");
    }
    // Of J, to the last digit.
    let first = couplings("default.json").get(0, 1);
    assert_eq!(first, -0.888279552284139);
    for name in ["sandwich.json", "bootstrap.json"] {
        let model = Model::read(&corpus().join(name), None).unwrap();
        let errors = model.errors.unwrap();
        assert!(format!("{}.json", errors.method) == name, "{name}");
        assert!(errors.bars.couplings[0][1] > 0.0);
    }
    for name in ["k-pairwise.npz", "k-pairwise.csv"] {
        assert_eq!(couplings(name), couplings("k-pairwise.json"), "{name}");
    }
    assert!(couplings("k-pairwise.json").potential().is_some());
    let hidden = |name: &str| Model::read(&corpus().join(name), None).unwrap().hidden;
    assert_eq!(hidden("srbm.npz"), hidden("srbm.json"));
    assert!(hidden("srbm.json").is_some() && hidden("rbm.json").is_some());
    let path = Model::read(&corpus().join("path.json"), None).unwrap();
    assert!(!path.fit.unwrap().path.is_empty());
}

#[test]
fn every_checkpoint_goes_on_or_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::copy(corpus().join("data.csv"), path.join("data.csv")).unwrap();
    let fit = "fit data.csv --method cd --updates 1000 --seed 3 --polish 0 --held-out 0 -o m.json";
    for (name, expected) in [
        ("header-v1.ckpt", "format version 1"),
        ("header-v2.ckpt", "format version 2"),
        ("cd-v3.ckpt", "resuming from c: fit under way"),
    ] {
        fs::copy(corpus().join(name), path.join("c")).unwrap();
        let outcome = mpf(path, &format!("{fit} --checkpoint c --resume"));
        let is_refused = outcome.stderr.contains("of another run: the program was")
            || outcome.stderr.contains("format version");
        assert!(
            outcome.stderr.contains(expected) || is_refused,
            "{name}: {}",
            outcome.stderr
        );
        assert_eq!(outcome.code, if is_refused { 2 } else { 0 }, "{name}");
    }
}

#[test]
fn every_packed_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["data.csv", "packed.bits"] {
        fs::copy(corpus().join(name), path.join(name)).unwrap();
    }
    let fit = |data: &str, model: &str| {
        let options = "--method pl --polish 0 --held-out 0 --tolerance 1e-9";
        let outcome = mpf(path, &format!("fit {data} {options} -o {model}"));
        assert_eq!(outcome.code, 0, "{data}: {}", outcome.stderr);
        Model::read(&path.join(model), None).unwrap()
    };
    let expected = fit("data.csv", "a.json");
    let streamed = fit("packed.bits --stream", "b.json");
    let whole = fit("packed.bits", "c.json");
    assert_eq!(whole.couplings, expected.couplings);
    assert_eq!(streamed.names, expected.names);
    // Streamed sums are added in another order.
    let differences = streamed.couplings.as_array() - expected.couplings.as_array();
    assert!(differences.iter().all(|x| x.abs() < 1e-6), "{differences}");
}
