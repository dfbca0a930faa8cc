//! The tables beside the paper's, and the report.

use super::Free;
use super::figure::Figures;
use super::path::{Path, TOLERANCES};
use super::results::{OfSupport, Paper, Point, Results};
use crate::correlations::Estimate;
use crate::output::{digits, markdown_table};
use crate::report::Page;

pub(super) const TITLE: &str = "Figure 2 and Table E-1: recovering a spin glass";

type Table = (Vec<String>, Vec<Vec<String>>);

/// Writes all tables, with those of several models if there are any.
pub(super) fn tables(results: &Results) -> String {
    let mut text = String::new();
    for part in &results.supports {
        for (caption, table) in tables_of(results, part) {
            if !text.is_empty() {
                text += "\n";
            }
            text += &format!("{}: {caption}\n\n", part.support.title());
            text += &markdown_table(&words(&table.0), &table.1);
        }
    }
    text
}

impl Free {
    fn title(self) -> &'static str {
        match self {
            Self::Lattice => "Lattice couplings free",
            Self::Full => "All couplings free",
        }
    }
}

fn words(header: &[String]) -> Vec<&str> {
    header.iter().map(String::as_str).collect()
}

fn tables_of(results: &Results, part: &OfSupport) -> Vec<(String, Table)> {
    let mut tables = vec![("at the end, beside Table E-1".to_owned(), end_table(part))];
    if !part.paths.is_empty() {
        tables.push((
            "ε_J where MPF and PL are stopped".to_owned(),
            path_table(results, part),
        ));
    }
    let seeds = results.settings.args.seeds;
    if seeds > 1 {
        tables.push((
            format!("medians (quartiles) over {seeds} models"),
            seeds_table(part),
        ));
        if !part.paths.is_empty() {
            tables.push((
                format!("ε_J where they are stopped, medians (quartiles) over {seeds} models"),
                path_seeds_table(results, part),
            ));
        }
    }
    tables
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn end_table(part: &OfSupport) -> Table {
    let header = header(&[
        "method",
        "ε_J",
        "couplings",
        "biases",
        "ε_corr",
        "seconds",
        "evaluations",
        "stopped",
        "paper ε_J",
        "paper ε_corr",
        "paper s",
    ]);
    let rows = part
        .methods
        .iter()
        .map(|m| {
            let paper = |f: fn(Paper) -> f64| {
                m.paper.map_or("–".to_owned(), |p| {
                    let value = f(p);
                    format!("{value}")
                })
            };
            vec![
                m.name.clone(),
                digits(m.eps_j),
                digits(m.eps_j_off_diagonal),
                digits(m.eps_j_diagonal),
                m.eps_corr.map_or("–".to_owned(), shown_estimate),
                format!("{:.2}", m.seconds),
                m.evaluations.to_string(),
                m.stop.clone(),
                paper(|p| p.eps_j),
                paper(|p| p.eps_corr),
                paper(|p| p.seconds),
            ]
        })
        .collect();
    (header, rows)
}

fn shown_estimate(estimate: Estimate) -> String {
    if estimate.standard_error > 0.0 {
        format!("{:.1e} ± {:.0e}", estimate.value, estimate.standard_error)
    } else {
        format!("{:.1e}", estimate.value)
    }
}

/// The columns of a state after its ε_J.
const COLUMNS: [&str; 3] = ["iteration", "evaluations", "seconds"];

/// Returns the number of columns of the sampler `at`: the chain beside exact draws has ε_J and the
/// iteration only.
fn n_columns(at: usize) -> usize {
    if at == 0 { 1 + COLUMNS.len() } else { 2 }
}

/// A row for every state of every fit, with columns for every sampler.
fn path_table(results: &Results, part: &OfSupport) -> Table {
    let sources = results.settings.args.sampler.sources();
    let mut names = header(&["fit", "stopped at"]);
    for (at, source) in sources.iter().enumerate() {
        names.push(format!("ε_J, {}", source.name()));
        names.extend(header(&COLUMNS[..n_columns(at) - 1]));
    }
    let mut rows = Vec::new();
    for (path, others) in by_fit(part) {
        for (state, _) in path.states() {
            let mut row = vec![path.label(), state.clone()];
            for (at, &source) in sources.iter().enumerate() {
                let found = others.iter().find(|p| p.sampler == source);
                let cells = cells(found.and_then(|p| p.state(&state)));
                row.extend(cells.into_iter().take(n_columns(at)));
            }
            rows.push(row);
        }
    }
    (names, rows)
}

fn cells(state: Option<Point>) -> [String; 4] {
    match state {
        None => ["–"; 4].map(str::to_owned),
        Some(s) => [
            digits(s.eps_j),
            s.iteration.to_string(),
            s.evaluations.to_string(),
            format!("{:.2}", s.seconds),
        ],
    }
}

/// Returns the first path of every fit, and those of the fit from all samplers.
fn by_fit(part: &OfSupport) -> Vec<(&Path, Vec<&Path>)> {
    let mut fits: Vec<(&Path, Vec<&Path>)> = Vec::new();
    for path in &part.paths {
        match fits.iter_mut().find(|(p, _)| p.label() == path.label()) {
            Some((_, paths)) => paths.push(path),
            None => fits.push((path, vec![path])),
        }
    }
    fits
}

fn seeds_table(part: &OfSupport) -> Table {
    let header = header(&["method", "models", "ε_J", "ε_corr", "seconds"]);
    let rows = part
        .over_seeds
        .iter()
        .map(|o| {
            vec![
                o.name.to_owned(),
                o.seeds.len().to_string(),
                o.eps_j.shown(),
                o.eps_corr.shown(),
                o.seconds.shown(),
            ]
        })
        .collect();
    (header, rows)
}

fn path_seeds_table(results: &Results, part: &OfSupport) -> Table {
    let sources = results.settings.args.sampler.sources();
    let mut names = header(&["fit", "stopped at"]);
    for source in sources {
        names.push(format!("ε_J, {}", source.name()));
        names.push("models".to_owned());
    }
    let mut rows = Vec::new();
    for (path, _) in by_fit(part) {
        for (state, _) in path.states() {
            let mut row = vec![path.label(), state.clone()];
            for &source in sources {
                let found = part
                    .paths_over_seeds
                    .iter()
                    .find(|p| p.name == path.name && p.ridge == path.ridge && p.sampler == source);
                let found = found.and_then(|p| p.states.iter().find(|s| s.state == state));
                row.push(found.map_or("–".to_owned(), |s| s.eps_j.shown()));
                row.push(found.map_or(0, |s| s.models).to_string());
            }
            rows.push(row);
        }
    }
    (names, rows)
}

/// Lists the choices that the paper's text does not settle.
fn assumptions(results: &Results) -> Vec<String> {
    let s = &results.settings.args;
    let mut list = Vec::new();
    for part in &results.supports {
        list.push(match part.support {
            Free::Lattice => format!(
                "Free parameters, {}: those between neighbours on the lattice, and the biases, {} \
                 in all. The paper's text says that J \u{201c}only had non-zero elements \
                 corresponding to nearest-neighbor units\u{201d} and biases.",
                part.support.name(),
                part.n_parameters
            ),
            Free::Full => format!(
                "Free parameters, {}: every pair of units and the biases, {} in all. The fit is not \
                 told which units are neighbours.",
                part.support.name(),
                part.n_parameters
            ),
        });
    }
    list.push(format!("Number of samples: M = {}.", s.samples));
    let samplers: Vec<&str> = s.sampler.sources().iter().map(|s| s.name()).collect();
    list.push(format!(
        "Samples: {}; the paper's are of a Swendsen-Wang chain, with a burn-in that it does not give \
         (here a tenth of the chain).",
        samplers.join(" and, for MPF and PL, a ")
    ));
    list.push(format!(
        "Boundary of the lattice: {}.",
        format!("{:?}", s.boundary).to_lowercase()
    ));
    list.push("Start: free parameters drawn from N(0, 0.01), the same for all methods.".to_owned());
    list.push(format!(
        "Normalisation of ε_J: ‖Ĵ − J‖²_F/d² over all entries, diagonal included; Ĵ = 0 then scores \
         {}.",
        digits(results.no_couplings.eps_j)
    ));
    let paths: Vec<String> = results
        .supports
        .iter()
        .map(|p| format!("{} with {}", s.path_iterations(p.support), p.support.name()))
        .collect();
    list.push(format!(
        "Stopping: MPF and PL after {} iterations, CD-1 after {} and CD-10 after {} updates. \
         Tolerances are on the largest entry of the gradient in standardised units; converged means \
         1e-6, or rounding, within {} iterations.",
        s.iterations,
        s.cd1_updates,
        s.cd10_updates,
        paths.join(" and ")
    ));
    let rates: Vec<String> = results
        .supports
        .iter()
        .map(|p| {
            let first = s.cd_first_rate(p.support);
            format!("{first} to {} with {}", s.cd_last_rate, p.support.name())
        })
        .collect();
    list.push(format!(
        "Learning rate of CD: from {}; the paper's falls from 3 to 0.1.",
        rates.join(" and from ")
    ));
    list.push(format!(
        "Regulariser of the pseudo-inverse in MFT+TAP: λ = {:e}.",
        s.tap_lambda
    ));
    list.push(format!(
        "Ridge, not in the paper: λ₂ = 1/M = {:e} on spin couplings and fields.",
        s.ridge(super::Ridge::OneOverM)
    ));
    list
}

pub(super) fn of(results: &Results, figures: &[Figures]) -> String {
    let s = &results.settings.args;
    let mut page = Page::new(
        TITLE,
        &format!(
            "A {0}×{0} lattice of binary units with couplings of variance {1}, learned from {2} \
             samples by {3} methods from the same random start.",
            s.lattice,
            s.variance,
            s.samples,
            s.methods.len()
        ),
    );
    for (part, figures) in results.supports.iter().zip(figures) {
        let title = part.support.title();
        page.heading(&format!("{title}: {} parameters", part.n_parameters));
        page.figure(
            &figures.panels,
            "Above: mean square error of the couplings. Below: mean square error of the pair \
             correlations. Left: until MPF ended; middle: until PL ended; right: the whole run.",
        );
        for (caption, (header, rows)) in tables_of(results, part) {
            page.heading(&format!("{title}: {caption}"));
            page.table(&words(&header), &rows);
        }
        page.heading(&format!("{title}: what holds, what does not"));
        page.list(&part.reading);
        page.figure(
            &figures.by_work,
            "Both errors against learning time (left) and evaluations of the objective (right).",
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
             the fit did not reach.",
        ));
    }
    let mut warnings = Vec::new();
    for part in &results.supports {
        for m in &part.methods {
            let name = part.support.name();
            warnings.extend(
                m.warnings
                    .iter()
                    .map(|w| format!("{}, {name}: {w}.", m.name)),
            );
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
