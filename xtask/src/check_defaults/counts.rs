//! The number of active units: K-pairwise models beside the default Ising model.
//!
//! Fitted to the first half of a data set and judged by the second: the L1 distance of P(n), how many of
//! the n ≤ 15 are within two standard errors of the second half's P(n) (its own, from blocks; then those of both
//! halves, as the model has the errors of the first), and the log-likelihood. The last but one column is what
//! the model adds where no sample of the first half is.

use super::{Args, annealed, default_recipe, log_z};
use crate::Result;
use crate::output::Table;
use mpf_baselines::{Recipe, block_length};
use mpf_core::{Cancel, Checkpoint};
use mpf_ising::{CountPotential, States, block_mean, n_active};
use mpf_samplers::{AnnealedOptions, ChainOptions, ChainRunner, Gibbs};
use serde::{Deserialize, Serialize};

/// Chains of the annealing: as many as it takes to know ln Z better than the mean of the samples.
const CHAINS: usize = 1000;
/// The largest number that is compared by itself.
const MOST: usize = 15;

const MODELS: [&str; 3] = [
    "Ising, default",
    "K-pairwise, MPF alone",
    "K-pairwise, default",
];

/// What one model gave.
#[derive(Serialize, Deserialize)]
struct Found {
    shares: Vec<f64>,
    /// ln p of every sample of the second half.
    scores: Vec<f64>,
    /// The error of ln Z, if it can be believed.
    error: Option<f64>,
    rhat: f64,
}

pub(super) fn table(
    args: &Args,
    sets: &[(String, States)],
    checkpoint: &Checkpoint,
) -> Result<String> {
    let mut rows = Vec::new();
    for (name, states) in sets {
        let (n, d) = (states.n_samples(), states.n_units());
        let (training, test) = (states.slice(0..n / 2), states.slice(n / 2..n));
        let (seen, expected) = (shares(&training), shares(&test));
        let (first, second) = (errors(&training)?, errors(&test)?);
        let near = |shares: &[f64]| {
            let count = |error: &dyn Fn(usize) -> f64| {
                let off = |n: usize| (shares[n] - expected[n]).abs();
                (0..second.len())
                    .filter(|&n| off(n) <= 2.0 * error(n))
                    .count()
            };
            let both = count(&|n| first[n].hypot(second[n]));
            format!("{}, {both} of {}", count(&|n| second[n]), second.len())
        };
        let mut ising = None;
        for model in MODELS {
            let found = checkpoint.unit(format!("{name}: counts, {model}"), |_| {
                find(model, &training, &test, args, &checkpoint.cancel())
            })?;
            checkpoint.check_cancelled()?;
            let unseen = (0..=d).filter(|&n| seen[n] == 0.0);
            let beside = ising.get_or_insert_with(|| (found.scores.clone(), found.error));
            let gains: Vec<f64> = found
                .scores
                .iter()
                .zip(&beside.0)
                .map(|(a, b)| a - b)
                .collect();
            let gain = block_mean(&gains, block_length(&test)?)?;
            let of_log_z = found.error.zip(beside.1);
            rows.push(vec![
                name.clone(),
                model.to_owned(),
                format!("{:.3}", distance(&found.shares, &expected)),
                near(&found.shares),
                match of_log_z {
                    _ if model == MODELS[0] => "–".to_owned(),
                    None => "not known".to_owned(),
                    Some((a, b)) => {
                        let error = gain.standard_error.hypot(a).hypot(b);
                        format!("{:+.3} ± {error:.3}", gain.value)
                    }
                },
                format!("{:.4}", unseen.map(|n| found.shares[n]).sum::<f64>()),
                format!("{:.3}", found.rhat),
            ]);
        }
        rows.push(vec![
            name.clone(),
            "the first half itself".into(),
            format!("{:.3}", distance(&seen, &expected)),
            near(&seen),
        ]);
        rows.last_mut().expect("a row").resize(7, "–".into());
    }
    let header = [
        "data",
        "model",
        "L1 of P(n)",
        "n ≤ 15 within two errors: of the second half, of both",
        "nats per sample above Ising",
        "P(n not seen)",
        "R-hat",
    ];
    Ok(Table::new(header, rows).markdown())
}

fn find(
    model: &str,
    training: &States,
    test: &States,
    args: &Args,
    cancel: &Cancel,
) -> Result<Found> {
    let mut recipe = default_recipe(cancel);
    if model != MODELS[0] {
        recipe.options.potential = Some(CountPotential::default());
    }
    if model == MODELS[1] {
        recipe = Recipe::alone(recipe.method, recipe.options);
    }
    let couplings = recipe.fit(training)?.fit.couplings;
    let log_z = log_z(
        &couplings,
        &AnnealedOptions {
            n_chains: CHAINS,
            ..annealed(args, cancel)
        },
    )?;
    let scores = test.rows().map(|row| -couplings.energy(row) - log_z.value);
    let chains = ChainOptions {
        n_draws: args.draws / 8,
        n_chains: 8,
        thinning: 10,
        cancel: cancel.clone(),
        ..Default::default()
    };
    let run = ChainRunner::new(chains)?.run(&Gibbs::new(&couplings)?)?;
    Ok(Found {
        shares: shares(&run.pooled()),
        scores: scores.collect(),
        error: log_z.is_reliable().then_some(log_z.standard_error),
        rhat: run.diagnose(&couplings)?.n_active.rhat,
    })
}

/// Returns the share of the samples with n active units, n = 0, …, d.
fn shares(states: &States) -> Vec<f64> {
    let mut shares = vec![0.0; states.n_units() + 1];
    for row in states.rows() {
        shares[n_active(row)] += 1.0 / states.n_samples() as f64;
    }
    shares
}

/// Returns the standard errors of the shares of n ≤ 15.
fn errors(states: &States) -> Result<Vec<f64>> {
    let length = block_length(states)?;
    let error = |n: usize| -> Result<f64> {
        let is_there = states.rows().map(|row| f64::from(n_active(row) == n));
        Ok(block_mean(&is_there.collect::<Vec<f64>>(), length)?.standard_error)
    };
    (0..=MOST.min(states.n_units())).map(error).collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum()
}
