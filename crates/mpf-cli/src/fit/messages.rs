//! Messages of `mpf fit` before and after the fit.

use super::FitArgs;
use super::time::Expected;
use crate::console::Console;
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory;
use crate::model::{FitRecord, Model, StandardErrors};
use crate::output::ForceArg;
use mpf_baselines::{Drift, HeldOut, Measure, Polishing, Trained, Verdict};
use mpf_ising::{BlockMean, CrossValidation, Edge, Finding, Preflight, Samples};
use mpf_report::text::{digits, duration};
use std::fmt::Write as _;

/// Places of one kind of finding that are shown before the rest is counted.
const PLACES: usize = 4;
/// Data with more units than this many times the samples are taken to be transposed.
const TRANSPOSED: usize = 5;

/// Refuses data of which no unit changes, and, unless forced, those with far more units than samples,
/// which are probably transposed.
pub(super) fn refuse_shape(
    raster: &Raster,
    samples: &Samples,
    force: ForceArg,
) -> Result<(), Failure> {
    let (units, rows) = (samples.n_units(), samples.n_observed());
    if !samples.means().iter().any(|m| *m > 0.0 && *m < 1.0) {
        let why = format!(
            "{}: all {units} units are constant over the {rows} samples",
            raster.file
        );
        return Err(Failure::input(why).hint(
            "a model needs units that change; is the threshold of the data right, or --transpose?",
        ));
    }
    if !force.force && units > TRANSPOSED * rows {
        let why = format!(
            "{}: {rows} samples of {units} units; are rows units and columns samples?",
            raster.file
        );
        let hint = "add --transpose if so; --force fits the data as they are";
        return Err(Failure::input(why).hint(hint));
    }
    Ok(())
}

pub(super) fn tell_preflight(
    console: Console,
    raster: &Raster,
    preflight: &Preflight,
    expected: Expected,
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
    let polishing = match expected.polishing {
        0.0 if expected.drifts => " with polishing".to_owned(),
        0.0 => String::new(),
        more => format!(" ({} more if it needs polishing)", duration(more)),
    };
    console.note(&format!(
        "this fit takes {} {}{polishing} and {}",
        if expected.is_least {
            "at least"
        } else {
            "about"
        },
        duration(expected.seconds),
        memory::expected_in_words(needed)
    ));
    if expected.is_least {
        console.note(
            "note: couplings run away without the penalty: the error bars repeat their fit until none \
             does, up to 20 times",
        );
    }
    if preflight.n_units > preflight.n_samples {
        console.warning(&format!(
            "{} has more units ({}) than samples ({}): are rows samples? otherwise --transpose",
            raster.file, preflight.n_units, preflight.n_samples
        ));
    }
    for finding in &grouped(&preflight.findings) {
        console.note(&format!("note: {finding}"));
    }
}

/// Words findings, those of one kind together: the first few places, and how many more there are.
pub(crate) fn grouped(findings: &[Finding]) -> Vec<String> {
    let mut groups: Vec<(&'static str, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        let consequence = finding.consequence();
        match groups.iter_mut().find(|(kind, _)| *kind == consequence) {
            Some((_, group)) => group.push(finding),
            None => groups.push((consequence, vec![finding])),
        }
    }
    let words = groups.into_iter().map(|(consequence, group)| {
        let place = |finding: &&Finding| {
            let text = finding.to_string();
            let place = text.strip_suffix(consequence).unwrap_or(&text);
            place.trim_end_matches([':', ' ']).to_owned()
        };
        let shown: Vec<String> = group.iter().take(PLACES).map(place).collect();
        let (more, shown) = (group.len() - shown.len(), shown.join(", "));
        let more = if more > 0 {
            format!(" and {more} more like it")
        } else {
            String::new()
        };
        format!("{shown}{more}: {consequence}")
    });
    words.collect()
}

pub(super) fn largest_coupling(model: &Model) -> f64 {
    let j = model.couplings.as_array().indexed_iter();
    let coupled = j.filter(|((a, b), _)| a != b);
    coupled.fold(0.0, |m: f64, (_, j)| m.max(0.5 * j.abs()))
}

/// Returns the lines that `mpf fit` prints when it is done; the last one is how good the model is.
pub(super) fn summary(
    args: &FitArgs,
    model: &Model,
    record: &FitRecord,
    share: Option<f64>,
    largest: f64,
) -> String {
    let mut text = format!("{}: {}", record.method, args.output.display());
    if let Some(stop) = &record.stop {
        let _ = write!(text, ", {stop}");
    }
    let _ = writeln!(text, ", {}", duration(record.seconds));
    for stage in &record.stages {
        let _ = writeln!(
            text,
            "  {}: {} iterations, {}",
            stage.name,
            stage.iterations,
            duration(stage.seconds)
        );
    }
    if let Some(value) = record.value {
        let _ = writeln!(
            text,
            "objective {value:.6}, KKT residual {:.1e}, {}λ₂ = {}",
            record.kkt_residual.unwrap_or_default(),
            match record.l1 {
                0.0 => String::new(),
                l1 => format!("λ₁ = {}, ", digits(l1)),
            },
            digits(record.l2)
        );
    }
    if let Some(by) = &record.chosen_by {
        let _ = writeln!(
            text,
            "penalty {} = {} by {by}",
            record.path_of.as_deref().unwrap_or_default(),
            digits(if record.path_of.as_deref() == Some("l1") {
                record.l1
            } else {
                record.l2
            })
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
    if let Some(errors) = &model.errors {
        let _ = writeln!(text, "{}", errors_in_words(errors));
    }
    if let Some(polishing) = &record.polishing {
        let _ = writeln!(text, "{}", polishing_in_words(polishing));
    }
    if let Some(held_out) = &record.held_out {
        let _ = write!(text, "{}", held_out_in_words(held_out));
        if let Some(share) = share {
            let _ = write!(text, "; {:.1} % of the multi-information", 100.0 * share);
        }
        let _ = writeln!(text);
    }
    text
}

/// Says what the error bars are.
fn errors_in_words(errors: &StandardErrors) -> String {
    let mut text = format!(
        "error bars by {} from {}",
        errors.method,
        match errors.block_length {
            1 => "single samples, which are taken to be independent".to_owned(),
            n => format!("blocks of {n} samples"),
        }
    );
    if errors.bars.corrected.is_some() {
        text += "; intervals are centred on the estimate without the penalty";
    }
    match errors.undetermined().count() {
        0 => {}
        n => {
            let _ = write!(text, "; the data do not determine {n} couplings");
        }
    }
    text
}

/// Says what came of polishing, and why.
pub(crate) fn polishing_in_words(polishing: &Polishing) -> String {
    let updates = polishing.updates;
    let change = |gain: &BlockMean| {
        format!(
            "{:.3} ± {:.3} bits per sample",
            gain.value.abs(),
            gain.standard_error
        )
    };
    match (&polishing.verdict, polishing.is_kept) {
        (Verdict::Better { gain, .. }, _) => format!(
            "polished by {updates} updates: held-out samples gain {}",
            change(gain)
        ),
        (Verdict::Worse { gain, .. }, true) if gain.value < 0.0 => format!(
            "polished by {updates} updates, as asked, though held-out samples lose {}",
            change(gain)
        ),
        (Verdict::Worse { gain, .. }, kept) => format!(
            "{} by {updates} updates: held-out samples would {} {}",
            if kept {
                "polished, as asked,"
            } else {
                "not polished"
            },
            if gain.value < 0.0 {
                "lose"
            } else {
                "gain only"
            },
            change(gain)
        ),
        (Verdict::NotJudged, true) => format!(
            "polished by {updates} updates, as asked; whether that helps could not be measured"
        ),
        (Verdict::NotJudged, false) => {
            "not polished: whether that helps could not be measured on held-out samples".to_owned()
        }
    }
}

/// Says how good the model is.
pub(crate) fn held_out_in_words(held_out: &HeldOut) -> String {
    let (what, how) = match held_out.measure {
        Measure::Pseudolikelihood => ("pseudolikelihood, held out", String::new()),
        Measure::LogLikelihood { log_z } => (
            "held out",
            match log_z.effective_chains {
                None => String::new(),
                Some(n) => format!(", ln Z from annealing worth {n:.0} chains"),
            },
        ),
    };
    let scored = held_out
        .n_scored
        .map_or_else(String::new, |n| format!(", {n} of them scored"));
    format!(
        "{what}: {:.3} ± {:.3} bits per sample, independent units {:.3}: {:.3} ± {:.3} {} (last {} of {} samples{scored}{how})",
        held_out.model.value,
        held_out.model.standard_error,
        held_out.independent.value,
        held_out.gain.value.abs(),
        held_out.gain.standard_error,
        if held_out.gain.value >= 0.0 {
            "better"
        } else {
            "WORSE"
        },
        held_out.n_held_out,
        held_out.n_held_out + held_out.n_training,
    )
}

/// Lists what is doubtful about a model, for its file, its report and the terminal.
pub(super) fn doubts(trained: &Trained) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(drift) = trained.drift.filter(Drift::has_drifted) {
        let meaning = if (drift.after - drift.before).abs() > drift.spread {
            "it has probable states which the data never show"
        } else {
            "its samples are not quite like the data"
        };
        doubts.push(format!("{}: {meaning}", drift_in_words(&drift)));
    }
    if let Some(edge) = trained.path.as_ref().and_then(CrossValidation::edge) {
        let (end, other) = match edge {
            Edge::Largest => ("largest", "larger"),
            Edge::Smallest => ("smallest", "smaller"),
        };
        doubts.push(format!(
            "the penalty that was chosen is the {end} that was tried: a {other} one may be better"
        ));
    }
    let is_shrunk = trained.options.l1 > 0.0 || trained.options.l2.is_some_and(|l2| l2 > 0.0);
    if is_shrunk
        && let Some(errors) = &trained.errors
        && errors.corrected.is_none()
    {
        doubts.push(
            "the bootstrap does not take the penalty back: its error bars are around couplings that \
             the penalty has shrunk, and miss the truth more often than they say; use --errors \
             sandwich, or no penalty"
                .to_owned(),
        );
    }
    if let Some(held_out) = &trained.held_out
        && held_out.gain.value < -held_out.gain.standard_error
    {
        doubts.push(format!(
            "on held-out samples the model is worse than independent units, by {:.3} ± {:.3} bits \
             per sample: use a larger penalty, such as --l2 auto",
            -held_out.gain.value, held_out.gain.standard_error
        ));
    }
    for failure in &trained.failures {
        doubts.push(format!("{} failed: {}", failure.step, failure.error));
    }
    doubts
}

/// Says where chains go that start at the data.
pub(crate) fn drift_in_words(drift: &Drift) -> String {
    format!(
        "the model {} with the data: chains that start there go from {:.1} % active to {:.1} % in {} \
         sweeps",
        if drift.has_drifted() {
            "does not stay"
        } else {
            "stays"
        },
        100.0 * drift.before,
        100.0 * drift.after,
        Drift::SWEEPS
    )
}
