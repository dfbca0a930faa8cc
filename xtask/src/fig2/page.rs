//! The tables beside the paper's, and the report.

use super::figure::Drawings;
use super::path::{Path, TOLERANCES};
use super::results::{Method, OfSupport, Paper, Results};
use super::{CD_LAST_RATE, Free, Source, Start, TAP_LAMBDA};
use crate::correlations::Estimate;
use crate::output::{Table, digits};
use crate::report::Page;

pub(super) const TITLE: &str = "Figure 2 and Table E-1: recovering a spin glass";

/// Writes all tables, with those of several models if there are any.
pub(super) fn tables(results: &Results) -> String {
    let mut tables = Vec::new();
    for part in &results.supports {
        let title = part.support.title();
        for (caption, table) in tables_of(results, part) {
            tables.push(format!("{title}: {caption}\n\n{}", table.markdown()));
        }
    }
    tables.join("\n")
}

impl Free {
    fn title(self) -> &'static str {
        match self {
            Self::Lattice => "Lattice couplings free",
            Self::Full => "All couplings free",
        }
    }
}

fn tables_of(results: &Results, part: &OfSupport) -> Vec<(String, Table)> {
    const STOPPED: &str = "ε_J where MPF and PL are stopped";
    let mut tables = vec![("at the end, beside Table E-1".to_owned(), end_table(part))];
    let has_paths = !part.paths.is_empty();
    if has_paths {
        tables.push((STOPPED.to_owned(), path_table(results, part, false)));
    }
    let seeds = results.settings.args.seeds;
    if seeds > 1 {
        let medians = format!("medians (quartiles) over {seeds} models");
        tables.push((medians.clone(), seeds_table(part)));
        if has_paths {
            let caption = format!("{STOPPED}, {medians}");
            tables.push((caption, path_table(results, part, true)));
        }
    }
    tables
}

fn end_table(part: &OfSupport) -> Table {
    let paper =
        |m: &Method, f: fn(Paper) -> f64| m.paper.map_or(NONE.to_owned(), |p| f(p).to_string());
    Table::of(
        &part.methods,
        &[
            ("method", &|m| m.name.clone()),
            ("ε_J", &|m| digits(m.eps_j)),
            ("couplings", &|m| digits(m.eps_j_off_diagonal)),
            ("biases", &|m| digits(m.eps_j_diagonal)),
            ("ε_corr", &|m| {
                m.eps_corr.map_or(NONE.to_owned(), shown_estimate)
            }),
            ("seconds", &|m| shown_seconds(m.seconds)),
            ("evaluations", &|m| m.evaluations.to_string()),
            ("stopped", &|m| m.stop.clone()),
            ("paper ε_J", &|m| paper(m, |p| p.eps_j)),
            ("paper ε_corr", &|m| paper(m, |p| p.eps_corr)),
            ("paper s", &|m| paper(m, |p| p.seconds)),
        ],
    )
}

const NONE: &str = "–";

fn shown_estimate(estimate: Estimate) -> String {
    if estimate.standard_error > 0.0 {
        format!("{:.1e} ± {:.0e}", estimate.value, estimate.standard_error)
    } else {
        format!("{:.1e}", estimate.value)
    }
}

/// Fits of lattice couplings take milliseconds.
fn shown_seconds(seconds: f64) -> String {
    format!("{seconds:.*}", if seconds < 0.1 { 4 } else { 2 })
}

/// Makes a row for every state of every fit, with columns for every sampler: of the first model, or
/// medians and quartiles over all.
fn path_table(results: &Results, part: &OfSupport, over_seeds: bool) -> Table {
    let sources = results.settings.args.sampler.sources();
    // The columns after ε_J.
    let columns = |source: Source| match source {
        _ if over_seeds => &["models"][..],
        _ if source == sources[0] => &["iteration", "evaluations", "seconds"],
        _ => &["iteration"],
    };
    let mut header = ["fit", "stopped at"].map(str::to_owned).to_vec();
    for &source in sources {
        header.push(format!("ε_J, {}", source.name()));
        header.extend(columns(source).iter().map(|&name| name.to_owned()));
    }
    let cells = |at: usize, state: &str| {
        if over_seeds {
            let mut states = part.paths_over_seeds[at].states.iter();
            let found = states.find(|s| s.state == state)?;
            return Some(vec![found.eps_j.shown(), found.models.to_string()]);
        }
        let found = part.paths[at].state(state)?;
        Some(vec![
            digits(found.eps_j),
            found.iteration.to_string(),
            found.evaluations.to_string(),
            shown_seconds(found.seconds),
        ])
    };
    let mut rows = Vec::new();
    for fit in part.paths.iter().filter(|p| p.sampler == sources[0]) {
        for (state, _) in fit.states() {
            let mut row = vec![fit.label(), state.clone()];
            for &source in sources {
                let is_this = |p: &Path| p.sampler == source && p.label() == fit.label();
                let found = part.paths.iter().position(is_this);
                let mut found = found.and_then(|at| cells(at, &state)).unwrap_or_default();
                found.resize(1 + columns(source).len(), NONE.to_owned());
                row.append(&mut found);
            }
            rows.push(row);
        }
    }
    Table { header, rows }
}

fn seeds_table(part: &OfSupport) -> Table {
    Table::of(
        &part.over_seeds,
        &[
            ("method", &|o| o.name.clone()),
            ("models", &|o| o.seeds.len().to_string()),
            ("ε_J", &|o| o.eps_j.shown()),
            ("ε_corr", &|o| o.eps_corr.shown()),
            ("seconds", &|o| o.seconds.shown()),
        ],
    )
}

/// Lists the choices that the paper's text does not settle.
fn assumptions(results: &Results) -> Vec<String> {
    let s = &results.settings.args;
    let of_supports = |shown: &dyn Fn(Free) -> String| {
        let supports = results.supports.iter().map(|part| part.support);
        let shown: Vec<String> = supports
            .map(|free| format!("{} with {}", shown(free), free.name()))
            .collect();
        shown.join(" and ")
    };
    let mut list = Vec::new();
    for part in &results.supports {
        let why = match part.support {
            Free::Lattice => {
                "those between neighbours on the lattice. The paper's text says that J \u{201c}only \
                 had non-zero elements corresponding to nearest-neighbor units\u{201d}, and biases"
            }
            Free::Full => {
                "those of every pair of units. The fit is not told which units are neighbours"
            }
        };
        list.push(format!(
            "Free parameters, {} and biases ({}): {why}.",
            part.support.name(),
            part.n_parameters
        ));
    }
    let start = match s.start {
        Start::Random => "free parameters drawn from N(0, 0.01)",
        Start::Zero => "Ĵ = 0",
    };
    let samplers: Vec<&str> = s.sampler.sources().iter().map(|s| s.name()).collect();
    list.extend([
        format!("Number of samples: M = {}.", s.samples),
        format!(
            "Samples: {}; the paper's are of a Swendsen-Wang chain, with a burn-in that it does not \
             give (here a tenth of the chain).",
            samplers.join(" and, for MPF and PL, a ")
        ),
        "Boundary of the lattice: open.".to_owned(),
        format!("Start: {start}, the same for all methods."),
        format!(
            "Normalisation of ε_J: ‖Ĵ − J‖²_F/d² over all entries, diagonal included; Ĵ = 0 then \
             scores {}.",
            digits(results.no_couplings.eps_j)
        ),
        format!(
            "Stopping: MPF and PL after {} iterations, CD-1 after {} and CD-10 after {} updates. \
             Tolerances are on the largest entry of the gradient of the mean over samples, in \
             standardised units; converged means {:e}, or rounding, within {}. Without a ridge the \
             objective is flat there: how far a fit has come when it meets a tolerance depends on \
             its start.",
            s.iterations,
            s.cd1_updates,
            s.cd10_updates,
            s.tolerance,
            of_supports(&|free| format!("{} iterations", s.path_iterations(free)))
        ),
        format!(
            "Learning rate of CD: from {}; the paper's falls from 3 to 0.1.",
            of_supports(&|free| format!("{} to {CD_LAST_RATE}", free.cd_first_rate()))
        ),
        format!("Regulariser of the pseudo-inverse in MFT+TAP: λ = {TAP_LAMBDA:e}."),
        format!(
            "Ridge, not in the paper: λ₂ = 1/M = {:e} on spin couplings and fields.",
            s.ridge()
        ),
    ]);
    list
}

pub(super) fn of(results: &Results, drawings: &[Drawings]) -> String {
    let s = &results.settings.args;
    let mut page = Page::new(
        TITLE,
        &format!(
            "A {0}×{0} lattice of binary units with couplings of variance {1}, learned from {2} \
             samples by {3} methods from the same start.",
            s.lattice,
            s.variance,
            s.samples,
            s.methods.len()
        ),
    );
    for (part, [(_, panels), (_, by_work)]) in results.supports.iter().zip(drawings) {
        let title = part.support.title();
        page.heading(&format!("{title}: {} parameters", part.n_parameters));
        page.figure(
            panels,
            "Above: mean square error of the couplings. Below: mean square error of the pair \
             correlations. Left: until MPF ended; middle: until PL ended; right: the whole run, on a \
             logarithmic axis.",
        );
        for (caption, table) in tables_of(results, part) {
            page.heading(&format!("{title}: {caption}"));
            page.table(&table);
        }
        page.heading(&format!("{title}: what holds, what does not"));
        page.list(&part.reading);
        page.figure(
            by_work,
            "Both errors against evaluations of the objective, on a logarithmic axis.",
        );
    }
    page.heading("The samples");
    page.list(&super::reading::of_samples(results));
    page.heading("What the paper leaves open, and what was taken here");
    page.list(&assumptions(results));
    page.heading("How to read the tables");
    page.text(
        "ε_J is the mean square error over all entries of J; it is split into what the couplings \
         and what the biases contribute. ε_corr is the mean square error of ⟨s_i s_j⟩ over pairs, \
         with its standard error where it was sampled. Seconds are learning time: drawing samples \
         and measuring errors do not count. An evaluation computes the objective and its gradient; \
         CD counts updates.",
    );
    if results.supports.iter().any(|p| !p.paths.is_empty()) {
        let [loose, tight] = TOLERANCES;
        page.text(&format!(
            "The rows of MPF and PL show one fit from its start on: where its ε_J is best, which \
             only the truth can tell, where its gradient is first within {loose:e} and {tight:e}, \
             after as many iterations as in the figure, and at convergence. A dash is a state that \
             the fit did not reach, or a fit that was not made.",
        ));
    }
    let mut warnings = Vec::new();
    for part in &results.supports {
        for m in &part.methods {
            let shown = |w: &String| format!("{}, {}: {w}.", m.name, part.support.name());
            warnings.extend(m.warnings.iter().map(shown));
        }
    }
    if !warnings.is_empty() {
        page.heading("Warnings");
        page.list(&warnings);
    }
    page.heading("What was run");
    page.settings(&results.settings);
    page.finish()
}
