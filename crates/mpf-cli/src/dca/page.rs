//! The report of `mpf dca`: contact map, distribution of scores, precision against rank.

use super::Outcome;
use crate::output::MARK;
use mpf_report::Result;
use mpf_report::plot::{BLUE, INK, RED, TEXT, chart, mesh, svg};
use mpf_report::report::Page;
use mpf_report::text::Table;
use plotters::prelude::*;
use serde_json::Value;

const SIZE: (u32, u32) = (480, 440);
/// Bins of the distribution of scores.
const BINS: usize = 60;

/// Returns the page.
pub(super) fn html(outcome: &Outcome, summary: &Value) -> Result<String> {
    let n = outcome.scores.n_sites();
    let title = format!("Contacts of {}", summary["family"].as_str().unwrap_or(""));
    let lead = format!(
        "{} sequences ({:.0} effective), {n} sites, {} by {}; {MARK}.",
        outcome.alignment.n_sequences(),
        outcome.sequences.total_weight(),
        match outcome.options.mode {
            mpf_potts::Mode::Joint => "a joint fit",
            mpf_potts::Mode::NodeWise => "a fit of every site",
        },
        summary["method"].as_str().unwrap_or(""),
    );
    let mut page = Page::new(&title, &lead);
    let caption = match outcome.distances {
        Some(_) => {
            "Upper left: the best-scored pairs, as many as twice the sites, the second half of them \
             pale; red ones are no contacts. Lower right: contacts of the structure."
        }
        None => "The best-scored pairs, as many as twice the sites, the second half of them pale.",
    };
    page.figure(&contact_map(outcome)?, caption);
    page.figure(
        &distribution(outcome)?,
        "How many pairs have which score, on a logarithmic scale: contacts are the tail to the right.",
    );
    if outcome.judged.is_some() {
        page.figure(
            &precision_curve(outcome)?,
            "The part of contacts among the best pairs. Only pairs that are far enough apart in the \
             sequence, and whose distance is known, are judged.",
        );
        let row = |(name, rank, part): (&str, usize, f64)| {
            [name.into(), rank.to_string(), format!("{part:.3}")]
        };
        let rows = outcome.precisions().into_iter().map(row);
        page.table(&Table::new(["pairs", "number", "precision"], rows));
    }
    page.heading("Best pairs");
    let rows = outcome.ranked.iter().take(n).enumerate();
    let rows = rows.map(|(k, pair)| {
        let (i, j) = (outcome.site(pair.i), outcome.site(pair.j));
        let known = outcome
            .distances
            .as_ref()
            .and_then(|d| d.get(i.number, j.number));
        [
            (k + 1).to_string(),
            format!("{}{}", i.letter, i.number),
            format!("{}{}", j.letter, j.number),
            format!("{:.4}", pair.score),
            known.map_or(String::new(), |d| format!("{d:.1}")),
        ]
    });
    let table = Table::new(["rank", "site", "site", "score", "distance (Å)"], rows);
    page.folded_table("As many as there are sites", &table);
    page.settings(summary);
    Ok(page.finish())
}

/// Draws the best pairs above the diagonal, and known contacts below it.
pub(super) fn contact_map(outcome: &Outcome) -> Result<String> {
    let n = outcome.scores.n_sites();
    let sites = &outcome.alignment.sites;
    let numbers = sites.iter().map(|s| s.number as f64);
    let low = numbers.clone().fold(f64::INFINITY, f64::min) - 1.0;
    let high = numbers.fold(0.0, f64::max) + 1.0;
    let rule = outcome.rule;
    let far = |i: usize, j: usize| sites[i].number.abs_diff(sites[j].number) > rule.separation;
    svg(SIZE, |area| {
        let mut chart = chart(area, "contact map", 50).build_cartesian_2d(low..high, low..high)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh()
            .label_style(TEXT)
            .x_label_formatter(&|site| format!("{site:.0}"))
            .y_label_formatter(&|site| format!("{site:.0}"))
            .x_desc("site")
            .y_desc("site")
            .draw()?;
        if let Some(distances) = &outcome.distances {
            let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
            let contacts = pairs.filter(|(i, j)| {
                let distance = distances.get(sites[*i].number, sites[*j].number);
                far(*i, *j) && distance.is_some_and(|d| d < rule.nearer_than)
            });
            chart.draw_series(contacts.map(|(i, j)| {
                let place = (sites[j].number as f64, sites[i].number as f64);
                Circle::new(place, 1, INK.mix(0.5).filled())
            }))?;
        }
        let best = outcome.ranked.iter().filter(|pair| far(pair.i, pair.j));
        chart.draw_series(best.take(2 * n).enumerate().map(|(rank, pair)| {
            let (i, j) = (sites[pair.i].number, sites[pair.j].number);
            let distance = outcome.distances.as_ref().and_then(|d| d.get(i, j));
            let colour = match distance {
                Some(d) if d >= rule.nearer_than => RED,
                _ => BLUE,
            };
            let strength = if rank < n { 1.0 } else { 0.35 };
            Circle::new((i as f64, j as f64), 2, colour.mix(strength).filled())
        }))?;
        Ok(())
    })
}

fn distribution(outcome: &Outcome) -> Result<String> {
    let scores = outcome.ranked.iter().map(|pair| pair.score);
    let low = scores.clone().fold(f64::INFINITY, f64::min);
    let high = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let width = ((high - low) / BINS as f64).max(f64::MIN_POSITIVE);
    let mut counts = [0usize; BINS];
    for score in scores {
        counts[(((score - low) / width) as usize).min(BINS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1) as f64;
    svg(SIZE, |area| {
        let mut chart = chart(area, "scores", 60)
            .build_cartesian_2d(low..high + width, (0.5..2.0 * most).log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh()
            .label_style(TEXT)
            .x_desc("score")
            .y_desc("pairs")
            .draw()?;
        let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        chart.draw_series(bars.map(|(k, count)| {
            let left = low + k as f64 * width;
            Rectangle::new([(left, 0.5), (left + width, *count as f64)], BLUE.filled())
        }))?;
        Ok(())
    })
}

fn precision_curve(outcome: &Outcome) -> Result<String> {
    let judged = outcome.judged.as_deref().unwrap_or(&[]);
    let most = judged.len().min(3 * outcome.scores.n_sites()).max(2);
    let mut contacts = 0;
    let mut points = Vec::with_capacity(most);
    for (k, (_, is_contact)) in judged.iter().take(most).enumerate() {
        contacts += usize::from(*is_contact);
        points.push(((k + 1) as f64, contacts as f64 / (k + 1) as f64));
    }
    svg(SIZE, |area| {
        let mut chart = chart(area, "precision against rank", 50)
            .build_cartesian_2d((1.0..most as f64).log_scale(), 0.0..1.02)?;
        mesh(&mut chart, ("pairs", 11), ("part of contacts", 11))?;
        chart.draw_series(LineSeries::new(points, BLUE.stroke_width(2)))?;
        Ok(())
    })
}
