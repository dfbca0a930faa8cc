//! The tables and the report of Figure 3.

use super::mosaic;
use super::results::{Method, PAPER, Results, Seed};
use crate::output::{digits, markdown_table};
use crate::report::Page;
use mpf_ica::LastPhase;

pub(super) const TITLE: &str = "Figure 3: filters of natural-image ICA";

/// Writes the table, one of the last phase if there was one, and one of all seeds if there are
/// several.
pub(super) fn tables(results: &Results) -> String {
    let (header, rows) = table(results);
    let mut text = markdown_table(&header, &rows);
    let (header, rows) = phase_table(results);
    if !rows.is_empty() {
        text += "\n";
        text += &markdown_table(&header, &rows);
    }
    if results.over_seeds.len() > 1 {
        let (header, rows) = seeds_table(results);
        text += "\n";
        text += &markdown_table(&header, &rows);
    }
    text
}

fn nats(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

fn table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "",
        "nats",
        "paper",
        "seconds",
        "steps",
        "σ_min",
        "median σ",
        "rescues",
        "stopped",
    ];
    let dash = || "–".to_owned();
    let row = |name: &str, value, paper, method: Option<&Method>| {
        let cell = |f: &dyn Fn(&Method) -> String| method.map_or_else(dash, f);
        vec![
            name.to_owned(),
            nats(value),
            nats(paper),
            cell(&|m| format!("{:.1}", m.seconds)),
            cell(&|m| m.steps.to_string()),
            cell(&|m| digits(m.sigma_min)),
            cell(&|m| digits(m.sigma_median)),
            cell(&|m| m.rescues.len().to_string()),
            cell(&|m| m.stop.to_string()),
        ]
    };
    let found = results.log_likelihood;
    let rows = vec![
        row("start", Some(found.start), Some(PAPER.start), None),
        row("MPF", Some(found.mpf), Some(PAPER.mpf), Some(&results.mpf)),
        row(
            "maximum likelihood",
            found.ml,
            PAPER.ml,
            results.ml.as_ref(),
        ),
        row("gap", found.gap, PAPER.gap, None),
    ];
    (header, rows)
}

/// One row per seed whose last phase was judged.
fn phase_table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "seed",
        "held out",
        "transitions",
        "flow before the last phase",
        "after",
        "change",
        "kept",
        "gap before",
        "gap after",
    ];
    let row = |s: &Seed| {
        let phase = s.last_phase?;
        let gap = |nats: f64| s.log_likelihood.ml.map(|ml| ml - nats);
        Some(vec![
            s.seed.to_string(),
            phase.held_out.to_string(),
            phase.transitions.to_string(),
            nats(Some(phase.flow_before)),
            nats(Some(phase.flow_after)),
            change(&phase),
            if phase.kept { "yes" } else { "no" }.to_owned(),
            nats(gap(phase.log_likelihood_before)),
            nats(gap(phase.log_likelihood_after)),
        ])
    };
    (header, results.over_seeds.iter().filter_map(row).collect())
}

/// Returns the change of the held-out flow with its standard error.
pub(super) fn change(phase: &LastPhase) -> String {
    let change = phase.flow_after - phase.flow_before;
    format!("{change:+.2} ± {:.2}", phase.standard_error)
}

fn seeds_table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec!["seed", "start", "MPF", "ML", "gap", "rescues", "σ_min"];
    let row = |s: &Seed| {
        vec![
            s.seed.to_string(),
            nats(Some(s.log_likelihood.start)),
            nats(Some(s.log_likelihood.mpf)),
            nats(s.log_likelihood.ml),
            nats(s.log_likelihood.gap),
            s.rescues.to_string(),
            digits(s.sigma_min),
        ]
    };
    (header, results.over_seeds.iter().map(row).collect())
}

pub(super) fn of(results: &Results, mosaics: &str, curves: &str) -> String {
    let mut page = Page::new(
        TITLE,
        "An ICA model with a Laplace prior, learned from whitened image patches by minimum \
         probability flow over Hamiltonian neighbours and by maximum likelihood, from the same \
         start.",
    );
    page.heading("What was found");
    page.list(&results.reading);
    let (header, rows) = table(results);
    page.table(&header, &rows);
    page.text(
        "Nats are means of ln p(x; J) over the patches; the paper's are of van Hateren's \
         photographs, so that only the gaps compare. ln p = −Σ|J_k x| − d ln 2 + ln|det J|.",
    );
    let (header, rows) = phase_table(results);
    if !rows.is_empty() {
        page.heading("The last phase");
        page.table(&header, &rows);
        page.text(
            "The last phase is kept if it lowers the flow from held-out patches to neighbours that \
             are the same for the filters before and after it: Metropolis transitions under either \
             lead to them, as many as it takes to forget the patch. No likelihood enters. The gaps \
             to maximum likelihood show how well that works.",
        );
    }
    if results.over_seeds.len() > 1 {
        page.heading("Over seeds");
        let (header, rows) = seeds_table(results);
        page.table(&header, &rows);
    }
    page.heading("Filters");
    page.figure(mosaics, &mosaic::caption(results.settings.size));
    page.heading("Likelihood against learning time");
    page.figure(
        curves,
        "Mean log-likelihood of the patches; on the right the last nats. Measuring it does not \
         count as learning.",
    );
    page.heading("Settings");
    page.settings(&results.settings);
    page.finish()
}
