//! Figure 1: MPF on three states.
//!
//! The probability distributions over three states form a triangle. A one-parameter family
//! p⁽∞⁾(θ) is a curve in it; the dynamics carry the data p⁽⁰⁾ along another curve to p⁽∞⁾(θ).
//! Learning lowers D_KL(p⁽⁰⁾ ‖ p⁽ᵋ⁾(θ)) for a small ε, which pulls p⁽∞⁾ towards the data.
//!
//! Every state has data here, so the flow into states without data (the first order in ε) is
//! zero; the divergence is computed from the dynamics themselves, to all orders.

use crate::Result;
use crate::output::{Entry, Experiment, Machine, OutputArgs, Table, digits, page};
use crate::plot::{self, Area, INK, RED, TEXT, TITLE, dashes};
use mpf_core::{
    DenseConnectivity, Dynamics, LinearEnergies, Minimizer, MinimizerOptions, from_fn,
    kl_divergence,
};
use ndarray::{Array1, array};
use plotters::prelude::*;
use serde::Serialize;

#[derive(clap::Args)]
pub struct Args {
    /// How long the dynamics run before they are compared with the data.
    #[arg(long, default_value_t = 0.1)]
    epsilon: f64,
    /// Where learning starts.
    #[arg(long, default_value_t = 2.2)]
    start: f64,
}

/// Three connected states with E_i = θ φ_i + base_i, and the data.
struct System {
    model: LinearEnergies,
    connectivity: DenseConnectivity,
    data: Array1<f64>,
    epsilon: f64,
}

impl System {
    fn new(epsilon: f64) -> Result<Self> {
        Ok(Self {
            model: LinearEnergies::new(array![[-1.0, 0.3], [0.2, -0.8], [1.0, 0.5]])?,
            connectivity: DenseConnectivity::all_to_all(3),
            data: array![0.19, 0.42, 0.39],
            epsilon,
        })
    }

    fn dynamics(&self, theta: f64) -> Result<Dynamics> {
        Ok(Dynamics::new(
            &self.model.energies(&[theta, 1.0]),
            &self.connectivity,
        )?)
    }

    fn stage(&self, iteration: usize, theta: f64) -> Result<Stage> {
        let dynamics = self.dynamics(theta)?;
        let later = dynamics.evolve(self.data.view(), self.epsilon);
        Ok(Stage {
            iteration,
            theta,
            kl_epsilon: kl_divergence(self.data.view(), later.view()),
            kl_infinity: kl_divergence(self.data.view(), dynamics.equilibrium().view()),
            p_epsilon: later.to_vec(),
            p_infinity: dynamics.equilibrium().to_vec(),
        })
    }

    /// Returns the values of θ along the minimisation of `divergence`, its minimum last.
    fn minimise(&self, start: f64, divergence: fn(&Stage) -> f64) -> Result<Vec<f64>> {
        let value = |theta: f64| self.stage(0, theta).map_or(f64::NAN, |s| divergence(&s));
        let mut objective = from_fn(1, |t: &[f64], grad: &mut [f64]| {
            const H: f64 = 1e-5;
            grad[0] = (value(t[0] + H) - value(t[0] - H)) / (2.0 * H);
            value(t[0])
        });
        let minimizer = Minimizer::new(MinimizerOptions {
            gradient_tolerance: 1e-8,
            ..Default::default()
        })?;
        let mut path = Vec::new();
        let found = minimizer.minimize_l1(&mut objective, &[start], &[], |p| {
            path.push(p.theta[0]);
        })?;
        path.push(found.theta[0]);
        Ok(path)
    }
}

/// One panel.
#[derive(Clone, Debug, Serialize)]
struct Stage {
    iteration: usize,
    theta: f64,
    kl_epsilon: f64,
    kl_infinity: f64,
    p_epsilon: Vec<f64>,
    p_infinity: Vec<f64>,
}

#[derive(Serialize)]
struct Results {
    machine: Machine,
    epsilon: f64,
    data: Vec<f64>,
    theta_mpf: f64,
    theta_maximum_likelihood: f64,
    stages: Vec<Stage>,
}

pub fn run(args: &Args, output: &OutputArgs) -> Result<Entry> {
    if !(args.epsilon > 0.0 && args.epsilon.is_finite() && args.start.is_finite()) {
        return Err("--epsilon must be positive and --start finite".into());
    }
    let output = output.open("fig1")?;
    let results = compute(args)?;
    let system = System::new(args.epsilon)?;
    let svg = draw(&system, &results.stages)?;
    let table = Table::of(
        &results.stages,
        &[
            ("iteration", &|s| s.iteration.to_string()),
            ("θ", &|s| format!("{:.4}", s.theta)),
            ("D(p⁰‖pᵋ)", &|s| digits(s.kl_epsilon)),
            ("D(p⁰‖p∞)", &|s| digits(s.kl_infinity)),
        ],
    );
    let reading = reading(&results);
    let caption = "The triangle of all distributions over three states, the model's curve in it, the \
                   data, and the path along which the dynamics carry the data, before, during and after \
                   learning.";
    let lead = "Minimum probability flow on three states.";
    let page = page(TITLE_OF_PAGE, lead, &reading, (&svg, caption), &table);
    output.publish(&Experiment {
        title: TITLE_OF_PAGE,
        results: &results,
        figures: &[("fig1.svg", svg)],
        table: &table.markdown(),
        page: &page.finish(),
        reading: &reading,
    })
}

const TITLE_OF_PAGE: &str = "Figure 1: dynamics from the data to the model";

fn reading(results: &Results) -> Vec<String> {
    let (first, last) = (&results.stages[0], &results.stages[2]);
    vec![
        format!(
            "Learning moved θ from {:.4} to {:.4}, and the divergence of the model from the data \
             from {} to {}.",
            first.theta,
            last.theta,
            digits(first.kl_infinity),
            digits(last.kl_infinity)
        ),
        format!(
            "MPF ends at θ = {:.4}; maximum likelihood, min D(p⁰‖p∞), is at θ = {:.4}.",
            results.theta_mpf, results.theta_maximum_likelihood
        ),
    ]
}

fn compute(args: &Args) -> Result<Results> {
    let system = System::new(args.epsilon)?;
    let path = system.minimise(args.start, |s| s.kl_epsilon)?;
    let best = system.minimise(args.start, |s| s.kl_infinity)?;
    let last = path.len() - 1;
    // The middle panel: the first step with less than half of the way to go.
    let half = 0.5 * (path[0] + path[last]);
    let middle = path
        .iter()
        .position(|t| (t - path[last]).abs() < (half - path[last]).abs())
        .unwrap_or(last);
    Ok(Results {
        machine: Machine::this(),
        epsilon: args.epsilon,
        data: system.data.to_vec(),
        theta_mpf: path[last],
        theta_maximum_likelihood: best[best.len() - 1],
        stages: [0, middle, last]
            .into_iter()
            .map(|k| system.stage(k, path[k]))
            .collect::<Result<_>>()?,
    })
}

/// The corners of the triangle: all probability in state 0, 1 or 2.
const CORNERS: [(f64, f64); 3] = [(0.0, 0.0), (0.5, 0.866), (1.0, 0.0)];

fn place(p: &[f64]) -> (f64, f64) {
    let x = p.iter().zip(CORNERS).map(|(p, c)| p * c.0).sum();
    let y = p.iter().zip(CORNERS).map(|(p, c)| p * c.1).sum();
    (x, y)
}

fn draw(system: &System, stages: &[Stage]) -> Result<String> {
    plot::svg((1200, 470), |root| {
        let (top, bottom) = root.split_vertically(420);
        for (panel, stage) in top.split_evenly((1, 3)).iter().zip(stages) {
            draw_stage(panel, system, stage)?;
        }
        draw_legend(&bottom)
    })
}

fn draw_stage(panel: &Area<'_>, system: &System, stage: &Stage) -> Result {
    let caption = format!("iteration {}: θ = {:.2}", stage.iteration, stage.theta);
    let divergences = format!(
        "D(p⁰‖pᵋ) = {}, D(p⁰‖p∞) = {}",
        digits(stage.kl_epsilon),
        digits(stage.kl_infinity)
    );
    let mut chart = ChartBuilder::on(panel)
        .margin(8)
        .margin_top(44)
        .build_cartesian_2d(-0.12..1.12, -0.1..0.97)?;
    let centred = |size: (&'static str, i32)| {
        let anchor = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Center,
        );
        size.into_text_style(panel).color(&INK).pos(anchor)
    };
    let middle = panel.dim_in_pixel().0 as i32 / 2;
    panel.draw(&Text::new(caption, (middle, 14), centred(TITLE)))?;
    panel.draw(&Text::new(divergences, (middle, 36), centred(TEXT)))?;

    chart.draw_series([PathElement::new(
        vec![CORNERS[0], CORNERS[1], CORNERS[2], CORNERS[0]],
        INK.mix(0.5),
    )])?;
    for (state, (corner, shift)) in CORNERS
        .iter()
        .zip([(-0.05, -0.04), (0.0, 0.05), (0.05, -0.04)])
        .enumerate()
    {
        let at = (corner.0 + shift.0, corner.1 + shift.1);
        chart.draw_series([Text::new(format!("state {state}"), at, centred(TEXT))])?;
    }

    let family: Vec<(f64, f64)> = (-400..=400)
        .map(|k| place(&system.model.probabilities(&[0.0125 * f64::from(k), 1.0])))
        .collect();
    let red = RED.stroke_width(2);
    chart.draw_series(
        dashes(&family, 0.035, 0.02)
            .into_iter()
            .map(|piece| PathElement::new(piece, red)),
    )?;

    let dynamics = system.dynamics(stage.theta)?;
    let flow: Vec<(f64, f64)> = (0..=300)
        .map(|k| 1e-3 * (1.035f64.powi(k) - 1.0))
        .map(|t| place(&dynamics.evolve(system.data.view(), t).to_vec()))
        .collect();
    chart.draw_series([PathElement::new(flow, INK.stroke_width(2))])?;

    let [data, later, model] = [
        place(&system.data.to_vec()),
        place(&stage.p_epsilon),
        place(&stage.p_infinity),
    ];
    chart.draw_series([Circle::new(model, 7, RED.stroke_width(2))])?;
    chart.draw_series([Circle::new(data, 6, INK.filled())])?;
    chart.draw_series([TriangleMarker::new(later, 8, INK.mix(0.65).filled())])?;
    Ok(())
}

fn draw_legend(area: &Area<'_>) -> Result {
    let text = TEXT.into_text_style(area).color(&INK);
    let y = 18;
    let entry = |x: i32, label: &str| Text::new(label.to_owned(), (x, y - 9), text.clone());
    for x in [60, 72, 84] {
        area.draw(&PathElement::new(
            vec![(x, y), (x + 7, y)],
            RED.stroke_width(2),
        ))?;
    }
    area.draw(&entry(98, "model family p∞(θ)"))?;
    area.draw(&PathElement::new(
        vec![(285, y), (315, y)],
        INK.stroke_width(2),
    ))?;
    area.draw(&entry(322, "dynamics from data to model"))?;
    area.draw(&Circle::new((560, y), 6, INK.filled()))?;
    area.draw(&entry(572, "data p⁰"))?;
    area.draw(&TriangleMarker::new((670, y), 8, INK.mix(0.65).filled()))?;
    area.draw(&entry(682, "pᵋ, after a time ε"))?;
    area.draw(&Circle::new((860, y), 7, RED.stroke_width(2)))?;
    area.draw(&entry(873, "model p∞"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args {
            epsilon: 0.1,
            start: 2.2,
        }
    }

    #[test]
    fn learning_pulls_the_model_to_the_data() {
        let results = compute(&args()).unwrap();
        let stages = &results.stages;
        assert!(stages.windows(2).all(|w| w[1].kl_epsilon < w[0].kl_epsilon));
        assert!(
            stages
                .windows(2)
                .all(|w| w[1].kl_infinity < w[0].kl_infinity)
        );
        // With a small ε, MPF's minimum is near maximum likelihood's but not the same.
        let distance = (results.theta_mpf - results.theta_maximum_likelihood).abs();
        assert!(distance > 1e-4 && distance < 0.2, "{distance}");
        // For long dynamics the two are the same.
        let late = compute(&Args {
            epsilon: 50.0,
            ..args()
        })
        .unwrap();
        assert!((late.theta_mpf - late.theta_maximum_likelihood).abs() < 1e-4);
    }

    #[test]
    fn the_figure_has_three_panels() {
        let results = compute(&args()).unwrap();
        let svg = draw(&System::new(0.1).unwrap(), &results.stages).unwrap();
        assert_eq!(svg.matches("iteration ").count(), 3);
    }
}
