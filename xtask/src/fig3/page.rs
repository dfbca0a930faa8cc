//! The tables and the report of Figure 3.

use super::mosaic;
use super::results::{Method, PAPER, Results, Seed};
use crate::output::{Table, digits};
use crate::report::Page;
use mpf_ica::LastPhase;

pub(super) const TITLE: &str = "Figure 3: filters of natural-image ICA";

/// Writes the table, one of the last phase if there was one, and one of all seeds if there are
/// several.
pub(super) fn tables(results: &Results) -> String {
    let tables = [table(results), phase_table(results), seeds_table(results)];
    let whole = tables.iter().filter(|table| !table.rows.is_empty());
    whole.map(Table::markdown).collect::<Vec<_>>().join("\n")
}

fn nats(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

fn table(results: &Results) -> Table {
    let cell =
        |m: Option<&Method>, f: &dyn Fn(&Method) -> String| m.map_or_else(|| "–".to_owned(), f);
    let found = results.log_likelihood;
    type Line<'a> = (&'a str, Option<f64>, Option<f64>, Option<&'a Method>);
    let lines: [Line<'_>; 4] = [
        ("start", Some(found.start), Some(PAPER.start), None),
        ("MPF", Some(found.mpf), Some(PAPER.mpf), Some(&results.mpf)),
        (
            "maximum likelihood",
            found.ml,
            PAPER.ml,
            results.ml.as_ref(),
        ),
        ("gap", found.gap, PAPER.gap, None),
    ];
    Table::of(
        &lines,
        &[
            ("", &|l| l.0.to_owned()),
            ("nats", &|l| nats(l.1)),
            ("paper", &|l| nats(l.2)),
            ("seconds", &|l| cell(l.3, &|m| format!("{:.1}", m.seconds))),
            ("steps", &|l| cell(l.3, &|m| m.steps.to_string())),
            ("σ_min", &|l| cell(l.3, &|m| digits(m.sigma_min))),
            ("median σ", &|l| cell(l.3, &|m| digits(m.sigma_median))),
            ("rescues", &|l| cell(l.3, &|m| m.rescues.len().to_string())),
            ("stopped", &|l| cell(l.3, &|m| m.stop.to_string())),
        ],
    )
}

/// Makes a row per seed whose last phase was judged.
fn phase_table(results: &Results) -> Table {
    let seeds = results.over_seeds.iter();
    let phases: Vec<_> = seeds.filter_map(|s| Some((s, s.last_phase?))).collect();
    let gap = |s: &Seed, at: f64| nats(s.log_likelihood.ml.map(|ml| ml - at));
    Table::of(
        &phases,
        &[
            ("seed", &|(s, _)| s.seed.to_string()),
            ("held out", &|(_, p)| p.held_out.to_string()),
            ("transitions", &|(_, p)| p.transitions.to_string()),
            ("flow before the last phase", &|(_, p)| {
                nats(Some(p.flow_before))
            }),
            ("after", &|(_, p)| nats(Some(p.flow_after))),
            ("change", &|(_, p)| change(p)),
            ("kept", &|(_, p)| {
                if p.kept { "yes" } else { "no" }.to_owned()
            }),
            ("gap before", &|(s, p)| gap(s, p.log_likelihood_before)),
            ("gap after", &|(s, p)| gap(s, p.log_likelihood_after)),
        ],
    )
}

/// Returns the change of the held-out flow with its standard error.
pub(super) fn change(phase: &LastPhase) -> String {
    let change = phase.flow_after - phase.flow_before;
    format!("{change:+.2} ± {:.2}", phase.standard_error)
}

fn seeds_table(results: &Results) -> Table {
    let seeds = results.over_seeds.iter();
    Table::of(
        seeds.filter(|_| results.over_seeds.len() > 1),
        &[
            ("seed", &|s| s.seed.to_string()),
            ("start", &|s| nats(Some(s.log_likelihood.start))),
            ("MPF", &|s| nats(Some(s.log_likelihood.mpf))),
            ("ML", &|s| nats(s.log_likelihood.ml)),
            ("gap", &|s| nats(s.log_likelihood.gap)),
            ("rescues", &|s| s.rescues.to_string()),
            ("σ_min", &|s| digits(s.sigma_min)),
        ],
    )
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
    page.table(&table(results));
    page.text(
        "Nats are means of ln p(x; J) over the patches; the paper's are of van Hateren's \
         photographs, so that only the gaps compare. ln p = −Σ|J_k x| − d ln 2 + ln|det J|.",
    );
    let phases = phase_table(results);
    if !phases.rows.is_empty() {
        page.heading("The last phase");
        page.table(&phases);
        page.text(
            "The last phase is kept if it lowers the flow from held-out patches to neighbours that \
             are the same for the filters before and after it: Metropolis transitions under either \
             lead to them, as many as it takes to forget the patch. No likelihood enters. The gaps \
             to maximum likelihood show how well that works.",
        );
    }
    let seeds = seeds_table(results);
    if !seeds.rows.is_empty() {
        page.heading("Over seeds");
        page.table(&seeds);
    }
    page.heading("Filters");
    page.figure(mosaics, &mosaic::caption(results.settings.args.size));
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
