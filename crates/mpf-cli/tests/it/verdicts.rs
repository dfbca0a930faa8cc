//! `mpf evaluate` on models with known answers: it never condemns the model that made the data.

use crate::common::mpf;
use mpf_cli::internal::{Convention, Model, write_raster};
use mpf_testkit::{judged_models, seed_or};
use serde_json::Value;
use std::path::Path;

fn names(d: usize) -> Vec<String> {
    (0..d).map(|i| format!("u{i}")).collect()
}

/// Evaluates `couplings` on 5000 exact draws of a model.
fn evaluate(at: &Path, judged: &mpf_testkit::JudgedModel, options: &str, seed: u64) -> Value {
    let names = names(judged.couplings.n_units());
    let model = Model::unfitted(judged.couplings.clone(), names.clone());
    model.write(&at.join("m.json"), Convention::Binary).unwrap();
    let states = judged.draw(5000, seed);
    write_raster(&at.join("x.npy"), &states, &names, false).unwrap();
    let said = mpf(
        at,
        &format!("--json evaluate m.json x.npy --seed {seed} {options}"),
    );
    assert_eq!(said.code, 0, "{}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn true_models_are_not_condemned() {
    let folder = tempfile::tempdir().unwrap();
    let seed = seed_or(1);
    let mut judged = 0;
    for model in judged_models() {
        let found = evaluate(folder.path(), &model, "--draws 10000", seed);
        assert_ne!(found["verdict"], "disagrees", "{}: {found}", model.name);
        judged += usize::from(found["verdict"] == "agrees");
    }
    // "Cannot judge" is an answer, but not for most models.
    assert!(judged >= 7, "{judged}");
}

#[test]
fn frozen_chains_are_seen_and_tempered() {
    let folder = tempfile::tempdir().unwrap();
    let models = judged_models();
    let frozen = models
        .iter()
        .find(|m| m.name.starts_with("antiferromagnet"));
    let frozen = frozen.unwrap();
    for seed in 1..4 {
        let plain = evaluate(folder.path(), frozen, "--draws 4000 --sampler gibbs", seed);
        // Modes of equal energy: the energy and the number active look well.
        for what in ["energy", "n_active"] {
            let rhat = plain["diagnostics"][what]["rhat"].as_f64().unwrap();
            assert!(rhat < 1.1, "{what}: {rhat}");
        }
        // All eight random starts fall into the same mode once in 128 seeds.
        assert_eq!(plain["diagnostics"]["agree"], false, "{plain}");
        assert_eq!(plain["verdict"], "cannot-judge");
        let worst = plain["diagnostics"]["worst_rhat"]["of"].as_str().unwrap();
        assert!(
            worst.starts_with("unit") || worst.contains("overlap"),
            "{worst}"
        );
        let warnings = plain["warnings"].to_string();
        assert!(warnings.contains("cannot judge"), "{warnings}");
        assert!(!warnings.contains("two standard errors"), "{warnings}");

        let auto = evaluate(folder.path(), frozen, "--draws 10000", seed);
        assert_eq!(auto["verdict"], "agrees", "{auto}");
        assert!(auto["model_moments_by"].to_string().contains("tempering"));
        let warnings = auto["warnings"].to_string();
        assert!(warnings.contains("parallel tempering"), "{warnings}");
    }
}
