//! Says in sentences what the numbers show, and where they contradict the paper.

use super::Source;
use super::results::{Method, Results};
use crate::output::digits;

/// Levels of ε_J for which the first method to reach them is named.
const LEVELS: [f64; 5] = [0.5, 0.3, 0.2, 0.1, 0.05];

pub(super) fn of(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(first_below(results));
    lines.extend(best_at_the_end(results));
    lines.extend(overfitted(results));
    lines.extend(against_the_paper(results));
    lines.extend(run_away(results));
    lines.push(independence(results));
    lines.extend(rates(results));
    lines.extend(interrupted(results));
    lines.extend(budget(results));
    lines
}

/// Finds a method by its name, unless it was interrupted.
fn method<'a>(results: &'a Results, name: &str) -> Option<&'a Method> {
    let mut done = results.methods.iter().filter(|m| m.stop != "cancelled");
    done.find(|m| m.name == name)
}

/// Returns the seconds after which ε_J was first below `level`.
fn reached(method: &Method, level: f64) -> Option<f64> {
    let point = method.trace.iter().find(|p| p.eps_j < level);
    point.map(|p| p.seconds)
}

fn first_below(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for level in LEVELS {
        let mut times: Vec<(f64, &str)> = results
            .methods
            .iter()
            .filter(|m| m.trace[0].eps_j > level)
            .filter_map(|m| Some((reached(m, level)?, m.name.as_str())))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((first, rest)) = times.split_first() {
            let mut line = format!(
                "{} was first below ε_J = {level}, after {:.2} s",
                first.1, first.0
            );
            if rest.is_empty() {
                line += "; no other method got there.";
            } else {
                let rest: Vec<String> = rest.iter().map(|(s, n)| format!("{n} {s:.2} s")).collect();
                line += &format!(" ({}).", rest.join(", "));
            }
            lines.push(line);
        }
    }
    lines
}

fn best_at_the_end(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let by = |error: fn(&Method) -> Option<f64>| {
        let scored = results
            .methods
            .iter()
            .filter_map(|m| Some((error(m)?, m.name.as_str())));
        scored.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    if let Some((error, name)) = by(|m| Some(m.eps_j)) {
        lines.push(format!(
            "At the end {name} had the best couplings, ε_J = {}; no couplings at all score {}.",
            digits(error),
            digits(results.no_couplings.eps_j)
        ));
    }
    if let Some((error, name)) = by(|m| m.eps_corr.map(|e| e.value)) {
        lines.push(format!(
            "At the end {name} had the best correlations, ε_corr = {}; those of the samples \
             themselves err by {}.",
            digits(error),
            digits(results.data.eps_corr)
        ));
    }
    lines
}

fn overfitted(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for m in &results.methods {
        let best = m.trace.iter().min_by(|a, b| a.eps_j.total_cmp(&b.eps_j));
        if let Some(best) = best.filter(|b| b.eps_j < 0.9 * m.eps_j && b.iteration > 0) {
            lines.push(format!(
                "{} passed ε_J = {} at iteration {} and ended at {}: it fitted the noise of the \
                 samples.",
                m.name,
                digits(best.eps_j),
                best.iteration,
                digits(m.eps_j)
            ));
        }
    }
    lines
}

/// Checks the claims of the paper's main text and Table E-1.
fn against_the_paper(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let mut judge = |holds: bool, claim: &str, found: String| {
        let verdict = if holds {
            "This agrees with the paper"
        } else {
            "This contradicts the paper"
        };
        lines.push(format!("{verdict}, {claim}: {found}."));
    };
    let (mpf, pl) = (method(results, "MPF"), method(results, "PL"));
    if let (Some(mpf), Some(pl)) = (mpf, pl) {
        judge(
            mpf.eps_j < pl.eps_j,
            "where MPF has the smaller error of the couplings than PL at the end",
            format!(
                "here MPF has {} and PL {}",
                digits(mpf.eps_j),
                digits(pl.eps_j)
            ),
        );
        if let (Some(a), Some(b)) = (mpf.eps_corr, pl.eps_corr) {
            judge(
                a.value < b.value,
                "where MPF has the smaller error of the correlations than PL at the end",
                format!(
                    "here MPF has {} and PL {}",
                    digits(a.value),
                    digits(b.value)
                ),
            );
        }
        // Half the error of no couplings: a level that both reach.
        let level = 0.5 * results.no_couplings.eps_j;
        if let (Some(a), Some(b)) = (reached(mpf, level), reached(pl, level)) {
            judge(
                a < b,
                "where MPF learns faster than PL",
                format!(
                    "ε_J = {} took MPF {a:.2} s and PL {b:.2} s, {:.1} times as long (the paper's \
                     whole runs: 13 times)",
                    digits(level),
                    b / a.max(1e-9)
                ),
            );
        }
    }
    if let (Some(mpf), Some(cd)) = (mpf, method(results, "CD-1")) {
        // The best ε_J of CD.
        let best = cd
            .trace
            .iter()
            .map(|p| p.eps_j)
            .fold(f64::INFINITY, f64::min);
        let level = best * (1.0 + 1e-9);
        if let (Some(a), Some(b)) = (reached(mpf, level), reached(cd, level)) {
            judge(
                a < b,
                "where MPF is much faster than contrastive divergence",
                format!(
                    "CD-1's best, ε_J = {}, took it {b:.2} s and MPF {a:.2} s",
                    digits(best)
                ),
            );
        }
    }
    if let Some(tap) = method(results, "MFT+TAP") {
        judge(
            tap.eps_j > results.no_couplings.eps_j,
            "where MFT+TAP does worse than random parameters in this cold glass",
            format!(
                "here it has {} with λ = {:e}, which decides it, and no couplings have {}",
                digits(tap.eps_j),
                results.settings.args.tap_lambda,
                digits(results.no_couplings.eps_j)
            ),
        );
    }
    lines
}

fn run_away(results: &Results) -> Vec<String> {
    let names: Vec<&str> = results
        .methods
        .iter()
        .filter(|m| {
            m.warnings
                .iter()
                .any(|w| w.contains("more than these samples can"))
        })
        .map(|m| m.name.as_str())
        .collect();
    if names.is_empty() {
        return vec!["No couplings ran away.".to_owned()];
    }
    vec![format!(
        "Couplings ran away with {}: some are larger than these samples can determine, and grow \
         with every iteration. A penalty stops it.",
        names.join(" and ")
    )]
}

fn independence(results: &Results) -> String {
    let (data, samples) = (&results.data, results.settings.args.samples);
    match results.settings.args.sampler {
        Source::Exact => format!(
            "The {samples} samples are independent draws (autocorrelation time of the energy {:.2}; \
             1 in theory); {} of them are distinct.",
            data.tau_energy, data.distinct_samples
        ),
        Source::SwendsenWang => format!(
            "The {samples} samples are one Swendsen-Wang chain. The autocorrelation time of the \
             energy is {:.1} sweeps, so that they are worth about {:.0} independent ones at best.",
            data.tau_energy, data.effective_samples
        ),
    }
}

fn interrupted(results: &Results) -> Vec<String> {
    let stopped = results.methods.iter().filter(|m| m.stop == "cancelled");
    stopped
        .map(|m| {
            format!(
                "{} was interrupted after {} iterations.",
                m.name, m.iterations
            )
        })
        .collect()
}

/// The paper's rates are 3.0 and 0.1.
fn rates(results: &Results) -> Option<String> {
    let s = &results.settings.args;
    let has_cd = results.methods.iter().any(|m| m.name.starts_with("CD"));
    let is_paper = s.cd_first_rate == 3.0 && s.cd_last_rate == 0.1;
    (has_cd && !is_paper).then(|| {
        format!(
            "CD's learning rate fell from {} to {}, not from the paper's 3 to 0.1: with all \
             couplings free the first updates at rate 3 overshoot (--cd-first-rate 3 shows it). \
             The paper gave CD hundreds of times the time it had here.",
            s.cd_first_rate, s.cd_last_rate
        )
    })
}

fn budget(results: &Results) -> Vec<String> {
    let stopped = results.methods.iter().filter(|m| m.stop == "time-limit");
    stopped
        .map(|m| {
            format!(
                "{} was stopped by the time budget: its result depends on this machine.",
                m.name
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::{Data, NoCouplings, Point};
    use super::super::{Args, Free, Rim};
    use super::*;
    use crate::correlations::Estimate;
    use crate::output::Settings;
    use crate::run::RunArgs;

    fn learner(name: &str, errors: &[f64], seconds_per_step: f64, eps_corr: f64) -> Method {
        let point = |(k, &eps_j): (usize, &f64)| Point {
            iteration: k,
            seconds: k as f64 * seconds_per_step,
            eps_j,
            eps_corr: None,
        };
        let trace: Vec<Point> = errors.iter().enumerate().map(point).collect();
        let last = trace[trace.len() - 1];
        Method {
            name: name.to_owned(),
            eps_j: last.eps_j,
            eps_j_off_diagonal: last.eps_j,
            eps_j_diagonal: 0.0,
            eps_corr: Some(Estimate {
                value: eps_corr,
                standard_error: 0.0,
            }),
            seconds: last.seconds,
            iterations: last.iteration,
            evaluations: last.iteration,
            stop: "converged".to_owned(),
            lambda: None,
            warnings: Vec::new(),
            paper: None,
            trace,
        }
    }

    fn results(methods: Vec<Method>) -> Results {
        Results {
            settings: Settings::of(&Args {
                samples: 100,
                variance: 1.0,
                lattice: 3,
                boundary: Rim::Open,
                sampler: Source::Exact,
                support: Free::Full,
                methods: Vec::new(),
                seed: 0,
                seeds: 1,
                iterations: 1,
                cd1_updates: 1,
                cd10_updates: 1,
                cd_first_rate: 3.0,
                cd_last_rate: 0.1,
                tap_lambda: 1e-5,
                lambdas: 1,
                budget: None,
                correlation_draws: 100,
                run: RunArgs::default(),
            }),
            data: Data {
                distinct_samples: 90,
                tau_energy: 1.0,
                effective_samples: 100.0,
                eps_corr: 1e-5,
            },
            no_couplings: NoCouplings {
                eps_j: 0.8,
                eps_corr: 0.2,
            },
            methods,
            over_seeds: Vec::new(),
            reading: Vec::new(),
        }
    }

    #[test]
    fn it_contradicts_the_paper_when_the_numbers_do() {
        let mpf = learner("MPF", &[0.8, 0.15, 0.4], 1.0, 0.02);
        let pl = learner("PL", &[0.8, 0.5, 0.1], 2.0, 0.001);
        let text = of(&results(vec![mpf, pl])).join("\n");
        assert!(text.contains("MPF was first below ε_J = 0.5, after 1.00 s (PL 4.00 s)."));
        assert!(text.contains("MPF passed ε_J = 0.1500 at iteration 1 and ended at 0.4000"));
        assert!(text.contains("At the end PL had the best couplings"));
        assert!(
            text.contains(
                "contradicts the paper, where MPF has the smaller error of the couplings"
            )
        );
        assert!(text.contains(
            "contradicts the paper, where MPF has the smaller error of the correlations"
        ));
        assert!(text.contains("agrees with the paper, where MPF learns faster than PL"));
        assert!(text.contains("No couplings ran away."));
    }

    #[test]
    fn it_agrees_when_they_do() {
        let mpf = learner("MPF", &[0.8, 0.05], 1.0, 0.001);
        let pl = learner("PL", &[0.8, 0.2], 0.5, 0.01);
        let text = of(&results(vec![mpf, pl])).join("\n");
        assert!(
            text.contains(
                "agrees with the paper, where MPF has the smaller error of the couplings"
            )
        );
        assert!(text.contains("contradicts the paper, where MPF learns faster than PL"));
        let failing = learner("MFT+TAP", &[0.8, 7.0], 0.1, 0.5);
        let text = of(&results(vec![failing])).join("\n");
        assert!(text.contains("agrees with the paper, where MFT+TAP does worse than random"));
    }
}
