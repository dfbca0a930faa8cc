//! The table beside the paper's, and the report.

use super::results::{Paper, Results};
use crate::correlations::Estimate;
use crate::output::{digits, markdown_table};
use crate::report::Page;

pub(super) const TITLE: &str = "Figure 2 and Table E-1: recovering a spin glass";

/// Writes Table E-1, and medians over models if there are several.
pub(super) fn tables(results: &Results) -> String {
    let (header, rows) = table(results);
    let mut text = markdown_table(&header, &rows);
    if results.settings.args.seeds > 1 {
        let (header, rows) = seeds_table(results);
        text += "\n";
        text += &markdown_table(&header, &rows);
    }
    text
}

fn table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "method",
        "ε_J",
        "couplings",
        "biases",
        "ε_corr",
        "seconds",
        "iterations",
        "stopped",
        "paper ε_J",
        "paper ε_corr",
        "paper s",
    ];
    let rows = results
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
                m.iterations.to_string(),
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

fn seeds_table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec!["median (range)", "models", "ε_J", "ε_corr", "seconds"];
    let rows = results
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

pub(super) fn of(results: &Results, panels: &str, log_time: &str) -> String {
    let s = &results.settings.args;
    let mut page = Page::new(
        TITLE,
        &format!(
            "A {0}×{0} lattice of binary units with couplings of variance {1}, learned from {2} \
             samples by {3} methods from the same random start.",
            s.lattice,
            s.variance,
            s.samples,
            results.methods.len()
        ),
    );
    page.heading("Errors against learning time");
    page.figure(
        panels,
        "Above: mean square error of the couplings. Below: mean square error of the pair \
         correlations. Left: until MPF ended; middle: until PL ended; right: the whole run.",
    );
    page.heading("What was found");
    page.list(&results.reading);
    page.figure(
        log_time,
        "The same against the logarithm of the learning time.",
    );
    page.heading("At the end, beside Table E-1 of the paper");
    let (header, rows) = table(results);
    page.table(&header, &rows);
    page.text(
        "ε_J is the mean square error over all entries of J; it is split into what the couplings \
         and what the biases contribute. ε_corr is the mean square error of ⟨s_i s_j⟩ over pairs, \
         with its standard error where it was sampled. Seconds are learning time: drawing samples \
         and measuring errors do not count.",
    );
    if s.seeds > 1 {
        page.heading(&format!("Over {} models", s.seeds));
        let (header, rows) = seeds_table(results);
        page.table(&header, &rows);
    }
    let warnings: Vec<String> = results
        .methods
        .iter()
        .flat_map(|m| m.warnings.iter().map(|w| format!("{}: {w}.", m.name)))
        .collect();
    if !warnings.is_empty() {
        page.heading("Warnings");
        page.list(&warnings);
    }
    page.heading("What was run");
    page.settings(&results.settings);
    page.finish()
}
