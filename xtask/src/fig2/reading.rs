//! Says in sentences what the numbers show, and where they contradict the paper.

use super::path::{BEST, CONVERGED, Path};
use super::results::{Data, Method, OfSupport, Point, Results};
use super::{CD_LAST_RATE, Source, TAP_LAMBDA};
use crate::output::{Spread, digits};
use mpf_report::text::duration;

/// Levels of ε_J at which the work of all methods is compared.
const LEVELS: [f64; 5] = [0.5, 0.3, 0.2, 0.1, 0.05];

/// Adds the findings of every choice of free parameters, and all of them in one list.
pub(super) fn add_to(results: &mut Results) {
    let supports = results.supports.iter();
    let found: Vec<Vec<String>> = supports.map(|part| of(results, part)).collect();
    let mut all = of_samples(results);
    for (part, found) in results.supports.iter_mut().zip(found) {
        let (name, n) = (part.support.name(), part.n_parameters);
        all.push(format!("With {name} free ({n} parameters):"));
        all.extend(found.iter().cloned());
        part.reading = found;
    }
    results.reading = all;
}

fn of(results: &Results, part: &OfSupport) -> Vec<String> {
    let mut lines = reaches_the_paper(part);
    lines.extend(order_on_the_path(part));
    lines.extend(ridge(part));
    lines.extend(chain(part));
    lines.extend(against_the_paper(results, part));
    lines.extend(work_to_levels(part));
    lines.extend(best_at_the_end(results, part));
    lines.extend(overfitted(part));
    lines.extend(run_away(part));
    lines.extend(rates(part));
    lines.extend(cut_short(part));
    lines
}

/// Returns the paths from the samples that all methods learn from.
fn main_paths(part: &OfSupport) -> impl Iterator<Item = &Path> {
    let main = part.paths.first().map(|p| p.sampler);
    let whole = part.paths.iter().filter(|p| p.stop != "cancelled");
    whole.filter(move |p| Some(p.sampler) == main)
}

fn plain<'a>(part: &'a OfSupport, name: &str) -> Option<&'a Path> {
    main_paths(part).find(|p| p.name == name && p.ridge == 0.0)
}

/// Says where MPF and PL were below the ε_J of Table E-1.
fn reaches_the_paper(part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    for path in main_paths(part).filter(|p| p.ridge == 0.0) {
        let name = &path.name;
        let method = part.methods.iter().find(|m| m.name == *name);
        let Some(paper) = method.and_then(|m| m.paper) else {
            continue;
        };
        let (best, last) = (path.passed.best.eps_j, path.passed.last.iteration);
        let found = match path.passed.below_paper {
            Some((first, until)) if until < last => format!(
                "is reached: {name} was below it between iterations {first} and {until} of {last}"
            ),
            Some((first, _)) => format!(
                "is reached: {name} was below it from iteration {first} to its last, {last}"
            ),
            None => format!(
                "is not reached: in {last} iterations {name} came no closer than {}, {:.1} times as \
                 large",
                digits(best),
                best / paper.eps_j
            ),
        };
        lines.push(format!(
            "The paper's ε_J of {name}, {}, {found}.",
            paper.eps_j
        ));
    }
    lines
}

/// Says where on their paths MPF is ahead of PL, as in the paper, and where not.
fn order_on_the_path(part: &OfSupport) -> Option<String> {
    let (mpf, pl) = (plain(part, "MPF")?, plain(part, "PL")?);
    let both = common_states(mpf, pl);
    let verdicts = [("holds", true), ("is reversed", false)].map(|(verdict, holds)| {
        let states = both.iter().filter(|(_, a, b)| (a < b) == holds);
        let states = states.map(|(state, a, b)| format!("{state} ({})", against(*a, *b)));
        (verdict, states.collect::<Vec<_>>())
    });
    let said = verdicts.iter().filter(|(_, states)| !states.is_empty());
    let said = said.map(|(verdict, states)| format!("{verdict} {}", and(states)));
    let said = said.collect::<Vec<_>>().join(", and ");
    (!said.is_empty()).then(|| format!("The paper's order, MPF before PL, {said}."))
}

fn against(a: f64, b: f64) -> String {
    format!("{} against {}", digits(a), digits(b))
}

/// Names a state of a path in a sentence.
fn at(state: &str) -> String {
    match state {
        BEST => "at the best of both paths".to_owned(),
        CONVERGED => "at convergence".to_owned(),
        other if other.ends_with("iterations") => format!("after {other}"),
        other => format!("at {other}"),
    }
}

fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// Returns the states that both paths reached, in words, with their ε_J.
fn common_states(a: &Path, b: &Path) -> Vec<(String, f64, f64)> {
    let states = a.states().into_iter();
    let both = states.filter_map(|(s, found)| Some((at(&s), found?.eps_j, b.state(&s)?.eps_j)));
    both.collect()
}

/// Says what the ridge does at the end of a path.
fn ridge(part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    for with in main_paths(part).filter(|p| p.ridge > 0.0) {
        let without = plain(part, &with.name);
        if let Some((state, a, b)) = without.and_then(|p| common_states(p, with).pop()) {
            let change = if b < a { "lowers" } else { "raises" };
            lines.push(format!(
                "A ridge of 1/M {change} the ε_J of {} {state} from {} to {}.",
                with.name,
                digits(a),
                digits(b)
            ));
        }
    }
    lines
}

/// Compares fits from the chain with fits from exact draws.
fn chain(part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    for exact in main_paths(part).filter(|p| p.sampler == Source::Exact) {
        let chain = part.paths.iter().find(|p| {
            p.sampler == Source::SwendsenWang && p.label() == exact.label() && p.stop != "cancelled"
        });
        let Some(chain) = chain else { continue };
        if let Some((state, a, b)) = common_states(exact, chain).pop() {
            lines.push(format!(
                "{} from one Swendsen-Wang chain has ε_J = {} {state}, {:.1} times that from exact \
                 draws; at its best {}.",
                chain.label(),
                digits(b),
                b / a,
                digits(chain.passed.best.eps_j)
            ));
        }
    }
    lines
}

/// Finds a method by its name, unless it was interrupted.
fn method<'a>(part: &'a OfSupport, name: &str) -> Option<&'a Method> {
    let mut done = part.methods.iter().filter(|m| m.stop != "cancelled");
    done.find(|m| m.name == name)
}

/// Returns the first point with ε_J below `level`.
fn reached(method: &Method, level: f64) -> Option<&Point> {
    method.trace.iter().find(|p| p.eps_j < level)
}

/// Returns the point with the smallest ε_J.
fn best(method: &Method) -> &Point {
    let points = method.trace.iter();
    let best = points.min_by(|a, b| a.eps_j.total_cmp(&b.eps_j));
    best.expect("a trace has its start")
}

/// Names the work of a method until a point. Lattice fits take milliseconds.
fn work(name: &str, point: &Point) -> String {
    let time = duration(point.seconds);
    format!("{name} {} ({time})", counted(name, point.evaluations))
}

fn counted(name: &str, n: usize) -> String {
    let unit = match name.starts_with("CD") {
        true => "update",
        false => "evaluation",
    };
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

/// Lists what every method needed for every level, the fastest first.
fn work_to_levels(part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    for level in LEVELS {
        let above = part.methods.iter().filter(|m| m.trace[0].eps_j > level);
        let mut all: Vec<(&Point, &str)> = above
            .filter_map(|m| Some((reached(m, level)?, m.name.as_str())))
            .collect();
        all.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
        let works: Vec<String> = all.iter().map(|(p, name)| work(name, p)).collect();
        if !works.is_empty() {
            let works = works.join(", ");
            lines.push(format!("Learning to ε_J < {level} took {works}."));
        }
    }
    lines
}

fn best_at_the_end(results: &Results, part: &OfSupport) -> Vec<String> {
    let by = |error: fn(&Method) -> Option<f64>| {
        let methods = part.methods.iter();
        let scored = methods.filter_map(|m| Some((error(m)?, m.name.as_str())));
        scored.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let mut lines = Vec::new();
    if let Some((error, name)) = by(|m| Some(m.eps_j)) {
        let (error, zero) = (digits(error), digits(results.no_couplings.eps_j));
        lines.push(format!(
            "At the end {name} had the best couplings, ε_J = {error}; no couplings at all score {zero}."
        ));
    }
    if let Some((error, name)) = by(|m| m.eps_corr.map(|e| e.value)) {
        let (error, samples) = (digits(error), digits(results.data.eps_corr));
        lines.push(format!(
            "At the end {name} had the best correlations, ε_corr = {error}; those of the samples \
             themselves err by {samples}."
        ));
    }
    lines
}

fn overfitted(part: &OfSupport) -> Vec<String> {
    let worse = |m: &&Method| best(m).iteration > 0 && best(m).eps_j < 0.9 * m.eps_j;
    let methods = part.methods.iter().filter(worse);
    methods
        .map(|m| {
            format!(
                "{} passed ε_J = {} at iteration {} and ended at {}: it fitted the noise of the \
                 samples.",
                m.name,
                digits(best(m).eps_j),
                best(m).iteration,
                digits(m.eps_j)
            )
        })
        .collect()
}

/// The work of a method until a point: evaluations, and the time of one of them over all steps of the
/// run.
struct Work<'a> {
    name: &'a str,
    evaluations: usize,
    each: Spread,
}

impl<'a> Work<'a> {
    /// Returns `None` for a run without steps.
    fn new(method: &'a Method, until: &Point) -> Option<Self> {
        let steps = method.trace.windows(2).filter_map(|pair| {
            let evaluations = pair[1].evaluations.checked_sub(pair[0].evaluations)?;
            let seconds = pair[1].seconds - pair[0].seconds;
            (evaluations > 0).then(|| seconds / evaluations as f64)
        });
        let times: Vec<f64> = steps.collect();
        (!times.is_empty()).then(|| Self {
            name: &method.name,
            evaluations: until.evaluations,
            each: Spread::of(times),
        })
    }

    /// Compares the times of two works; `None` if the quartiles of an evaluation do not tell them
    /// apart.
    fn is_faster_than(&self, other: &Self) -> Option<bool> {
        let (a, b) = (self.evaluations as f64, other.evaluations as f64);
        let is_faster = a * self.each.upper < b * other.each.lower;
        let is_slower = a * self.each.lower > b * other.each.upper;
        (is_faster || is_slower).then_some(is_faster)
    }

    fn shown(&self) -> String {
        format!(
            "{} {} of {} ({} to {})",
            self.name,
            counted(self.name, self.evaluations),
            duration(self.each.median),
            duration(self.each.lower),
            duration(self.each.upper)
        )
    }
}

/// Checks the claims of the paper's main text and Table E-1.
fn against_the_paper(results: &Results, part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    let mut judge = |holds: Option<bool>, claim: &str, found: String| {
        let verdict = match holds {
            Some(true) => "This agrees with the paper",
            Some(false) => "This contradicts the paper",
            None => "Times vary too much to tell whether this agrees with the paper",
        };
        lines.push(format!("{verdict}, {claim}: {found}."));
    };
    let (mpf, pl) = (method(part, "MPF"), method(part, "PL"));
    if let (Some(mpf), Some(pl)) = (mpf, pl) {
        let mut compare = |what: &str, a: f64, b: f64| {
            judge(
                Some(a < b),
                &format!("where MPF has the smaller error of the {what} than PL at the end"),
                format!("here it is {}", against(a, b)),
            );
        };
        compare("couplings", mpf.eps_j, pl.eps_j);
        if let (Some(a), Some(b)) = (mpf.eps_corr, pl.eps_corr) {
            compare("correlations", a.value, b.value);
        }
        // The lowest level that both reach.
        let both = LEVELS.iter().rev().find_map(|&level| {
            let a = Work::new(mpf, reached(mpf, level)?)?;
            Some((level, a, Work::new(pl, reached(pl, level)?)?))
        });
        if let Some((level, a, b)) = both {
            let papers = mpf.paper.zip(pl.paper).map_or(String::new(), |(a, b)| {
                let ratio = b.seconds / a.seconds;
                format!("; in the paper's whole runs PL took {ratio:.0} times as long")
            });
            judge(
                a.is_faster_than(&b),
                "where MPF learns faster than PL",
                format!("ε_J < {level} took {} and {}{papers}", a.shown(), b.shown()),
            );
        }
    }
    if let (Some(mpf), Some(cd)) = (mpf, method(part, "CD-1")) {
        let b = best(cd);
        let works = reached(mpf, b.eps_j * (1.0 + 1e-9)).and_then(|a| Work::new(mpf, a));
        if let Some((a, b)) = works.zip(Work::new(cd, b)) {
            judge(
                a.is_faster_than(&b),
                "where MPF is faster than contrastive divergence",
                format!(
                    "the best of CD-1, ε_J = {}, took {} and {}",
                    digits(best(cd).eps_j),
                    b.shown(),
                    a.shown()
                ),
            );
        }
    }
    if let Some(tap) = method(part, "MFT+TAP") {
        judge(
            Some(tap.eps_j > results.no_couplings.eps_j),
            "where MFT+TAP does worse than random parameters in this cold glass",
            format!(
                "here it has {} with λ = {TAP_LAMBDA:e}, and no couplings have {}",
                digits(tap.eps_j),
                digits(results.no_couplings.eps_j)
            ),
        );
    }
    lines
}

/// Names the fits whose couplings ran away.
fn run_away(part: &OfSupport) -> Option<String> {
    let methods = part.methods.iter().filter(|m| m.ran_away);
    let mut names: Vec<String> = methods.map(|m| m.name.clone()).collect();
    for path in main_paths(part).filter(|p| p.ran_away) {
        if !names.contains(&path.label()) {
            names.push(path.label());
        }
    }
    if names.is_empty() {
        return (!part.methods.is_empty()).then(|| "No couplings ran away.".to_owned());
    }
    let mut line = format!(
        "Couplings ran away with {}: some are larger than these samples can determine.",
        and(&names)
    );
    let held: Vec<String> = main_paths(part)
        .filter(|p| p.ridge > 0.0 && !p.ran_away && names.contains(&p.name))
        .map(|p| p.name.clone())
        .collect();
    if !held.is_empty() {
        line += &format!(" The ridge stops it for {}.", and(&held));
    }
    Some(line)
}

/// Says how informative the samples are.
pub(super) fn of_samples(results: &Results) -> Vec<String> {
    let samples = results.settings.args.samples;
    let sources = results.settings.args.sampler.sources();
    let data = [Some(&results.data), results.chain.as_ref()];
    let said = sources.iter().zip(data.into_iter().flatten());
    said.map(|(source, data)| independence(*source, data, samples))
        .collect()
}

fn independence(source: Source, data: &Data, samples: usize) -> String {
    match source {
        Source::Exact => format!(
            "The {samples} exact samples are independent draws (autocorrelation time of the energy \
             {:.2}; 1 in theory); {} of them are distinct, and their correlations err by {}.",
            data.tau_energy,
            data.distinct_samples,
            digits(data.eps_corr)
        ),
        Source::SwendsenWang => format!(
            "The {samples} states of the Swendsen-Wang chain, {} of them distinct, have an \
             autocorrelation time of the energy of {:.1} sweeps: they are worth about {:.0} \
             independent ones at best, and their correlations err by {}.",
            data.distinct_samples,
            data.tau_energy,
            data.effective_samples,
            digits(data.eps_corr)
        ),
    }
}

/// Compares the schedule and the time of CD with the paper's, whose rate falls from 3 to 0.1.
fn rates(part: &OfSupport) -> Vec<String> {
    let mut lines = Vec::new();
    let first = part.support.cd_first_rate();
    let cd = || part.methods.iter().filter(|m| m.name.starts_with("CD"));
    if cd().next().is_some() && first != 3.0 {
        lines.push(format!(
            "CD's learning rate fell from {first} to {CD_LAST_RATE}, not from the paper's 3 to 0.1."
        ));
    }
    for m in cd() {
        let ratio = m.paper.map(|p| p.seconds / m.seconds.max(1e-9));
        if let Some(ratio) = ratio.filter(|r| *r >= 2.0) {
            lines.push(format!(
                "The paper gave {} {ratio:.0} times the time it had here.",
                m.name
            ));
        }
    }
    lines
}

/// Names the methods that did not come to their end.
fn cut_short(part: &OfSupport) -> Vec<String> {
    let cut = part.methods.iter().filter(|m| m.stop == "cancelled");
    cut.map(|m| {
        format!(
            "{} was interrupted after {} iterations.",
            m.name, m.iterations
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::methods::Learner;
    use super::super::results::{Data, NoCouplings, Point};
    use super::super::{Args, Free, Samplers, Start, Supports};
    use super::*;
    use crate::correlations::Estimate;
    use crate::output::Settings;

    fn learner(name: &str, errors: &[f64], seconds_per_step: f64, eps_corr: f64) -> Method {
        let point = |(k, &eps_j): (usize, &f64)| Point {
            iteration: k,
            evaluations: 2 * k,
            seconds: k as f64 * seconds_per_step,
            gradient_norm: 0.09f64.powi(k as i32),
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
            evaluations: last.evaluations,
            stop: "converged".to_owned(),
            lambda: None,
            ran_away: false,
            warnings: Vec::new(),
            paper: None,
            trace,
        }
    }

    fn results(methods: Vec<Method>) -> Results {
        let paths = methods.iter().map(|m| Path::of_method(m, Source::Exact, 2));
        let paths = paths.collect::<Vec<_>>().into_iter();
        Results {
            settings: Settings::of(&Args {
                samples: 100,
                variance: 1.0,
                lattice: 3,
                sampler: Samplers::Exact,
                support: Supports::Full,
                start: Start::Random,
                methods: Vec::new(),
                seed: 0,
                seeds: 1,
                iterations: 2,
                path_iterations: None,
                tolerance: 1e-6,
                cd1_updates: 1,
                cd10_updates: 1,
                lambdas: 1,
                correlation_draws: 100,
            }),
            data: Data {
                distinct_samples: 90,
                tau_energy: 1.0,
                effective_samples: 100.0,
                eps_corr: 1e-5,
            },
            chain: None,
            no_couplings: NoCouplings {
                eps_j: 0.8,
                eps_corr: 0.2,
            },
            supports: vec![OfSupport {
                support: Free::Full,
                n_parameters: 45,
                paths: paths.collect(),
                methods,
                over_seeds: Vec::new(),
                paths_over_seeds: Vec::new(),
                reading: Vec::new(),
            }],
            reading: Vec::new(),
        }
    }

    fn said(methods: Vec<Method>) -> String {
        let results = results(methods);
        of(&results, &results.supports[0]).join("\n")
    }

    #[test]
    fn it_contradicts_the_paper_when_the_numbers_do() {
        let mpf = learner("MPF", &[0.8, 0.15, 0.4], 1.0, 0.02);
        let pl = learner("PL", &[0.8, 0.5, 0.1], 2.0, 0.001);
        let text = said(vec![mpf, pl]);
        assert!(text.contains(
            "Learning to ε_J < 0.5 took MPF 2 evaluations (1.0 s), PL 4 evaluations (4.0 s)."
        ));
        assert!(text.contains(
            "is reversed at the best of both paths (0.1500 against 0.1000), at tolerance 1e-2 \
             (0.4000 against 0.1000), after 2 iterations"
        ));
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
        let text = said(vec![mpf, pl]);
        assert!(
            text.contains(
                "agrees with the paper, where MPF has the smaller error of the couplings"
            )
        );
        assert!(text.contains("contradicts the paper, where MPF learns faster than PL"));
        // The same number of evaluations, some of them twice as slow as others.
        let errors = [0.8, 0.7, 0.6, 0.4, 0.2];
        let mut pl = learner("PL", &errors, 1.5, 0.01);
        for (at, seconds) in [0.0, 1.0, 3.0, 4.0, 6.0].into_iter().enumerate() {
            pl.trace[at].seconds = seconds;
        }
        let text = said(vec![learner("MPF", &errors, 1.4, 0.001), pl]);
        assert!(text.contains(
            "Times vary too much to tell whether this agrees with the paper, where MPF learns \
             faster than PL: ε_J < 0.3 took MPF 8 evaluations of 700 ms (700 ms to 700 ms) and PL 8 \
             evaluations of 750 ms (500 ms to 1.0 s)."
        ));
        let failing = learner("MFT+TAP", &[0.8, 7.0], 0.1, 0.5);
        let text = said(vec![failing]);
        assert!(text.contains("agrees with the paper, where MFT+TAP does worse than random"));
    }

    #[test]
    fn it_says_where_the_papers_error_is_reached() {
        let with_paper = |name: &str, errors: &[f64]| Method {
            paper: Learner::Mpf.paper(),
            ..learner(name, errors, 1.0, 0.01)
        };
        let mpf = with_paper("MPF", &[0.8, 0.01, 0.016, 0.2]);
        let pl = with_paper("PL", &[0.8, 0.5, 0.0344, 0.1]);
        let text = said(vec![mpf, pl]);
        assert!(text.contains(
            "MPF, 0.0172, is reached: MPF was below it between iterations 1 and 2 of 3."
        ));
        assert!(text.contains("PL came no closer than 0.03440, 2.0 times as large"));
        assert!(text.contains(
            "holds at the best of both paths (0.01000 against 0.03440), at tolerance 1e-2 (0.01600 \
             against 0.03440) and after 2 iterations (0.01600 against 0.03440), and is reversed at \
             tolerance 1e-3 (0.2000 against 0.1000) and at convergence (0.2000 against 0.1000)."
        ));
    }

    #[test]
    fn it_compares_ridge_and_chain_with_the_plain_fit() {
        let mut all = results(vec![learner("MPF", &[0.8, 0.1, 0.4], 1.0, 0.01)]);
        let mut add = |errors: &[f64], ridge: f64, source: Source, ran_away: bool| {
            let path = Path::of_method(&learner("MPF", errors, 1.0, 0.01), source, 2);
            all.supports[0].paths.push(Path {
                ridge,
                ran_away,
                ..path
            });
        };
        add(&[0.8, 0.1, 0.2], 0.01, Source::Exact, false);
        add(&[0.8, 0.3, 1.0], 0.0, Source::SwendsenWang, true);
        all.supports[0].methods[0].ran_away = true;
        let text = of(&all, &all.supports[0]).join("\n");
        assert!(text.contains("1/M lowers the ε_J of MPF at convergence from 0.4000 to 0.2000."));
        assert!(text.contains(
            "MPF from one Swendsen-Wang chain has ε_J = 1.000 at convergence, 2.5 times that from \
             exact draws; at its best 0.3000."
        ));
        assert!(
            text.contains("ran away with MPF: some")
                && text.contains("The ridge stops it for MPF.")
        );
    }
}
