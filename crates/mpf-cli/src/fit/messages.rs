//! Messages of `mpf fit` before and after the fit.

use super::FitArgs;
use crate::console::Console;
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory;
use crate::model::{FitRecord, Model};
use mpf_baselines::Drift;
use mpf_ising::{Preflight, Samples};
use mpf_report::text::digits;
use std::fmt::Write as _;

/// Findings of the preflight that are shown before the rest is counted.
const FINDINGS: usize = 8;

/// Refuses data in which no unit changes.
pub(super) fn refuse_constant(raster: &Raster, samples: &Samples) -> Result<(), Failure> {
    if samples.means().iter().any(|m| *m > 0.0 && *m < 1.0) {
        return Ok(());
    }
    let n = samples.n_units();
    Err(Failure::input(format!(
        "{}: all {n} units are constant over the {} samples",
        raster.file,
        samples.n_observed()
    ))
    .hint("a model needs units that change; is the threshold of the data right, or --transpose?"))
}

pub(super) fn tell_preflight(
    console: Console,
    raster: &Raster,
    preflight: &Preflight,
    needed: u64,
) {
    console.note(&format!(
        "{}: {} samples × {} units, {} distinct, {:.1} % silent",
        raster.file,
        preflight.n_samples,
        preflight.n_units,
        preflight.n_distinct,
        100.0 * preflight.silent_fraction
    ));
    console.note(&format!(
        "a plain MPF fit takes about {} s, this one {}",
        digits(preflight.seconds),
        memory::in_words(needed)
    ));
    if preflight.n_units > preflight.n_samples {
        console.warning(&format!(
            "{} has more units ({}) than samples ({}): are rows samples? otherwise --transpose",
            raster.file, preflight.n_units, preflight.n_samples
        ));
    }
    for finding in preflight.findings.iter().take(FINDINGS) {
        console.note(&format!("note: {finding}"));
    }
    if preflight.findings.len() > FINDINGS {
        let more = preflight.findings.len() - FINDINGS;
        console.note(&format!(
            "note: {more} more findings; --json lists them all"
        ));
    }
}

pub(super) fn largest_coupling(model: &Model) -> f64 {
    let spins = model.couplings.to_spins();
    spins.couplings.iter().fold(0.0, |m, k| m.max(k.abs()))
}

pub(super) fn summary(args: &FitArgs, model: &Model, record: &FitRecord, largest: f64) -> String {
    let mut text = format!("{}: {}", record.method, args.output.display());
    if record.polish > 0 {
        let _ = write!(text, ", polished by {} updates", record.polish);
    }
    if let Some(stop) = &record.stop {
        let _ = write!(text, ", {stop} after {} iterations", record.iterations);
    }
    let _ = writeln!(text, ", {} s", digits(record.seconds));
    if let Some(value) = record.value {
        let _ = writeln!(
            text,
            "objective {value:.6}, KKT residual {:.1e}",
            record.kkt_residual.unwrap_or_default()
        );
    }
    if let Some(by) = &record.chosen_by {
        let _ = writeln!(
            text,
            "penalty {} = {} by {by}",
            record.path_of.as_deref().unwrap_or_default(),
            digits(record.l1.max(record.l2))
        );
    }
    let j = model.couplings.as_array();
    let coupled = j.indexed_iter().filter(|((a, b), v)| a < b && **v != 0.0);
    let _ = writeln!(
        text,
        "{} of {} couplings differ from zero, the largest |K| is {}",
        coupled.count(),
        record.n_free_couplings,
        digits(largest)
    );
    text
}

/// Says where chains go that start at the data.
pub(super) fn drift_in_words(drift: &Drift) -> String {
    format!(
        "the model does not stay with the data: chains that start there go from {:.1} % active to \
         {:.1} % in {} sweeps",
        100.0 * drift.before,
        100.0 * drift.after,
        Drift::SWEEPS
    )
}
