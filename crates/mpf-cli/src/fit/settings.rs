//! The settings that the result of a fit depends on.

use super::args::FitArgs;
use crate::checkpoint;
use crate::data::DataRecord;
use crate::methods::{Strength, name_of};
use mpf_baselines::Polish;
use mpf_core::{Fnv1a, Settings};
use mpf_ising::Support;

/// Lists what the couplings and their error bars depend on.
pub(super) fn settings(args: &FitArgs, record: &DataRecord, support: &Support) -> Settings {
    let options = &args.options;
    let strength = |s: Option<Strength>| match s {
        None => "not given".to_owned(),
        Some(Strength::Auto) => "auto".to_owned(),
        Some(Strength::Given(value)) => value.to_string(),
    };
    let number = |n: Option<f64>| n.map_or("not given".to_owned(), |n| n.to_string());
    let count = |n: Option<usize>| n.map_or("not given".to_owned(), |n| n.to_string());
    let (n_samples, n_units) = (record.n_samples, record.n_units);
    let data = format!("{n_samples} × {n_units}, {}", record.fingerprint);
    let polish = match args.polish {
        Polish::IfDrifting => "auto".to_owned(),
        Polish::Updates(updates) => updates.to_string(),
    };
    let settings = checkpoint::settings("fit")
        .with("the data", data)
        .with("--method", &args.method)
        .with("--model", name_of(options.model))
        .with("--smooth-potential", number(options.smooth_potential))
        .with("--refine", options.refine.map_or_else(String::new, name_of))
        .with("--held-out", args.held_out)
        .with("--l1", strength(options.l1))
        .with("--l2", strength(options.l2))
        .with("--rule", name_of(args.rule_or_default()))
        .with("--folds", args.n_folds())
        .with(
            "--neighbours",
            name_of(options.neighbours.unwrap_or_default()),
        )
        .with("--nodewise", options.nodewise)
        .with("--support", edges(support))
        .with("--tolerance", options.tolerance())
        .with("--precision", name_of(options.precision))
        .with("--max-iterations", options.max_iterations())
        .with("--max-seconds", options.limit())
        .with("--damping", number(options.damping))
        .with("--updates", count(options.updates))
        .with("--sweeps", count(options.sweeps))
        .with("--seed", options.seed)
        .with("--polish", polish)
        .with("--errors", name_of(args.errors))
        .with("--resamples", count(args.resamples))
        .with("--block-length", count(args.block_length));
    match options.model.has_hidden_units() {
        true => settings
            .with("--hidden", count(options.hidden))
            .with("--starts", count(options.starts)),
        false => settings,
    }
}

/// Describes the free pairs, not the file that lists them.
fn edges(support: &Support) -> String {
    let Support::Edges(pairs) = support else {
        return "all".to_owned();
    };
    let mut hash = Fnv1a::default();
    for &(i, j) in pairs {
        hash.add(&(i as u64).to_le_bytes());
        hash.add(&(j as u64).to_le_bytes());
    }
    format!("of {} pairs, {hash}", pairs.len())
}
