//! How far a fit is, and the settings that its result depends on.

use super::{ErrorsName, FitArgs, Polish, RuleName};
use crate::checkpoint::Settings;
use crate::data::{Hash, Raster};
use crate::methods::Strength;
use clap::ValueEnum;
use mpf_baselines::MethodSnapshot;
use mpf_ising::{Couplings, PathSnapshot, Support};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is done, and what the next step needs.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Work {
    /// The penalties that were tried.
    pub(super) path: Option<PathSnapshot>,
    fit: Option<MethodSnapshot>,
    polish: Option<MethodSnapshot>,
    /// The fits of the bootstrap, by the number of the resample.
    pub(super) resamples: BTreeMap<usize, Couplings>,
}

/// A minimisation among the stages of the work.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// The fit itself.
    Fit,
    /// The updates after it.
    Polish,
}

impl Work {
    pub(super) fn of(&self, stage: Stage) -> &Option<MethodSnapshot> {
        match stage {
            Stage::Fit => &self.fit,
            Stage::Polish => &self.polish,
        }
    }

    pub(super) fn of_mut(&mut self, stage: Stage) -> &mut Option<MethodSnapshot> {
        match stage {
            Stage::Fit => &mut self.fit,
            Stage::Polish => &mut self.polish,
        }
    }

    /// How far it is.
    pub(super) fn in_words(&self) -> String {
        let mut parts = Vec::new();
        if let Some(path) = &self.path {
            parts.push(format!("{} penalties", path.n_done()));
        }
        for (snapshot, after) in [(&self.fit, ""), (&self.polish, " after the fit")] {
            if let Some(snapshot) = snapshot {
                parts.push(format!("{snapshot}{after}"));
            }
        }
        if !self.resamples.is_empty() {
            parts.push(format!("{} resamples", self.resamples.len()));
        }
        if parts.is_empty() {
            "nothing is done yet".into()
        } else {
            format!("{} done", parts.join(", "))
        }
    }
}

/// Everything that the couplings and their error bars depend on.
pub(super) fn settings(args: &FitArgs, raster: &Raster, support: &Support) -> Settings {
    let options = &args.options;
    let strength = |s: Strength| match s {
        Strength::Auto => "auto".to_owned(),
        Strength::Given(value) => value.to_string(),
    };
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map_or_else(String::new, |v| v.get_name().to_owned())
    };
    let data = raster.record();
    let data = format!(
        "{} × {}, {}",
        data.n_samples, data.n_units, data.fingerprint
    );
    let polish = match args.polish {
        Polish::Auto => "auto".to_owned(),
        Polish::Given(updates) => updates.to_string(),
    };
    Settings::new("fit")
        .with("the data", &data)
        .with("--method", args.method.as_str())
        .with("--l1", &strength(options.l1))
        .with("--l2", &strength(options.l2))
        .with("--rule", &name(RuleName::to_possible_value(&args.rule)))
        .with("--folds", &args.folds)
        .with("--neighbours", options.neighbours.as_str())
        .with_flag("--nodewise", options.nodewise)
        .with_optional("--support", edges(support).as_ref())
        .with("--tolerance", &options.tolerance)
        .with("--max-iterations", &options.max_iterations)
        .with_optional("--max-seconds", options.max_seconds.as_ref())
        .with("--damping", &options.damping)
        .with("--updates", &options.updates)
        .with("--sweeps", &options.sweeps)
        .with("--seed", &options.seed)
        .with("--polish", &polish)
        .with(
            "--errors",
            &name(ErrorsName::to_possible_value(&args.errors)),
        )
        .with("--resamples", &args.resamples)
        .with("--block-length", &args.block_length)
}

/// The free pairs, whatever the file that named them.
fn edges(support: &Support) -> Option<String> {
    let Support::Edges(pairs) = support else {
        return None;
    };
    let mut hash = Hash::default();
    for &(i, j) in pairs {
        hash.add(&(i as u64).to_le_bytes());
        hash.add(&(j as u64).to_le_bytes());
    }
    Some(format!("of {} pairs, {hash}", pairs.len()))
}
