//! The errors of all samplers against states and seconds.

use super::{Measured, Results};
use crate::Result;
use crate::plot::{self, Marks, Panel, STYLES, Series, TITLE};
use plotters::style::IntoFont;

pub(super) fn draw(results: &Results) -> Result<String> {
    let settings = &results.settings.args;
    let caption = format!(
        "{0}×{0} spin glass, variance {1}: error of the correlations, {2} chains",
        settings.lattice, settings.variance, settings.chains
    );
    let seconds = |s: &Measured, states: f64| states / s.steps_per_second;
    let panels = [
        panel(results, "states drawn", |_, states| states),
        panel(results, "seconds on one core", seconds),
    ];
    plot::svg((1300, 500), |root| {
        let root = root.titled(&caption, TITLE.into_font())?;
        plot::panels(&root, 440, 1, &panels)
    })
}

fn panel<'a>(results: &Results, x_label: &'a str, x: impl Fn(&Measured, f64) -> f64) -> Panel<'a> {
    let line = |s: &Measured| {
        let points = s.curve.iter().map(|p| (x(s, p.states as f64), p.mse));
        points.collect()
    };
    let series: Vec<Series> = results
        .samplers
        .iter()
        .zip(STYLES)
        .map(|(sampler, style)| Series::new(&sampler.name, style, line(sampler), Marks::Nothing))
        .collect();
    let points = || series.iter().flat_map(|s| &s.points);
    Panel {
        title: String::new(),
        x: x_label,
        y: "mean square error of ⟨s_i s_j⟩",
        x_range: plot::decades(points().map(|p| p.0)),
        y_range: plot::decades(points().map(|p| p.1)),
        log_x: true,
        series,
    }
}
