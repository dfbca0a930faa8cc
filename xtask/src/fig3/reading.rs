//! Says in sentences what the numbers of Figure 3 show.

use super::Training;
use super::page;
use super::results::{LogLikelihood, Results};
use mpf_ica::Fit;

pub(super) fn of(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let LogLikelihood { start, mpf, .. } = results.log_likelihood;
    match (results.log_likelihood.ml, results.log_likelihood.gap) {
        (Some(ml), Some(gap)) => lines.push(format!(
            "From {start:.2} nats MPF reached {mpf:.2} and maximum likelihood {ml:.2}: MPF is \
             {gap:.2} nats short. The paper, on other images: -189.23, -120.61, -120.33, 0.28 \
             short."
        )),
        _ => lines.push(format!(
            "Interrupted: from {start:.2} nats MPF had reached {mpf:.2}; there is no maximum \
             likelihood to compare with."
        )),
    }
    if let Some(ml) = &results.ml {
        lines.push(format!(
            "MPF learned for {:.1} s, maximum likelihood for {:.1} s and stopped because: {}.",
            results.mpf.seconds, ml.seconds, ml.stop
        ));
    }
    let rescues = &results.mpf.rescues;
    lines.push(match rescues.as_slice() {
        [] => "No direction of the patches was lost on the way.".to_owned(),
        [one] => format!(
            "One filter was replaced at step {}, where a direction of the patches had been lost.",
            one.step
        ),
        many => format!(
            "{} filters were replaced, where directions of the patches had been lost.",
            many.len()
        ),
    });
    if let Some(phase) = &results.mpf.last_phase {
        lines.push(format!(
            "The last phase changed the flow of held-out patches by {} nats and was {}: its \
             likelihood is {:.2} nats, and {:.2} without it.",
            page::change(phase),
            match (phase.kept, phase.settled) {
                (true, _) => "kept",
                (false, true) => "undone",
                (false, false) => "undone, as that had not settled",
            },
            phase.log_likelihood_after,
            phase.log_likelihood_before,
        ));
    }
    let part = results.mpf.sigma_min / results.mpf.sigma_median;
    if part < Fit::LOST_RATIO {
        lines.push(format!(
            "A direction of the patches is lost: the smallest singular value is {part:.3} of the \
             median one. Try another seed."
        ));
    }
    if results.settings.args.trainer == Training::Paper && results.mpf.sigma_min.is_finite() {
        let trace = &results.mpf.trace;
        let best = trace.iter().map(|p| p.log_likelihood).fold(start, f64::max);
        if best > mpf + 0.1 {
            lines.push(format!(
                "The paper's procedure passed {best:.2} nats on its way: the inner minimisation \
                 runs beyond the reach of its neighbours."
            ));
        }
    }
    if let Some(matched) = &results.matched {
        lines.push(format!(
            "The filters look alike in kind; matched one to one, {} of {} agree to |cos| > 0.9.",
            matched.alike, matched.filters
        ));
    }
    let gaps: Vec<f64> = results
        .over_seeds
        .iter()
        .filter_map(|s| s.log_likelihood.gap)
        .collect();
    if gaps.len() > 1 {
        let least = gaps.iter().copied().fold(f64::INFINITY, f64::min);
        let most = gaps.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        lines.push(format!(
            "Over {} seeds the gap runs from {least:.2} to {most:.2} nats.",
            gaps.len()
        ));
    }
    lines
}
