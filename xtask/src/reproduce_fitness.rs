//! One- and two-point statistics of samples from fitted Potts models against those of the alignment,
//! by MPF, MPF + polish and pseudolikelihood.
//!
//! ```text
//! f_i(a)       part of sequences with letter a at site i
//! c_ij(a, b) = f_ij(a, b) − f_i(a) f_j(b)
//! ```
//!
//! Polishing is stochastic maximum likelihood (persistent contrastive divergence, in centred couplings)
//! from MPF's parameters. MPF-BML does the same in MATLAB, in 10 to 20 minutes for its example, HIV p7.
//!
//! At the minimum of pseudolikelihood, and at the maximum of the likelihood, the model's f_i(a) is the
//! alignment's less λ_h h_i(a), so λ_h is near 0. Sequences with many gaps make gaps attract each other, which
//! leaves a mode of many gaps; they are left out.

use crate::output::{Machine, OutputArgs, Table, digits};
use crate::plot::{Area, BLUE, INK, TEXT, TITLE, svg};
use crate::reproduce_contacts::unpack;
use crate::{Result, progress};
use mpf_baselines::{Direction, LocalContrastiveOptions, local_contrastive};
use mpf_core::{Cancel, EnergyModel, SiteData, Stopwatch, rng};
use mpf_ising::internal::pairs;
use mpf_potts::{
    Alignment, CentredSteps, FitOptions, Loss, Penalties, Potts, ReadOptions, Sequences, fit,
    relative_curvature,
};
use mpf_samplers::{ChainOptions, ChainRunner, ChainSampler, LocalGibbs, diagnostics};
use ndarray::ArrayView2;
use plotters::prelude::*;
use serde::Serialize;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Serialize)]
pub struct Args {
    /// The alignment, gzipped or not.
    family: PathBuf,
    /// Sequences that differ in at most this part of the sites share a weight; -1 gives all the
    /// weight 1.
    #[arg(long, default_value_t = -1.0, allow_hyphen_values = true)]
    theta: f64,
    /// Sequences with a larger part of gaps and ambiguous letters are left out.
    #[arg(long, default_value_t = 0.03)]
    sequence_gaps: f64,
    /// λ on ½ΣJ² of PL and of polishing; MPF has this times its relative curvature.
    #[arg(long, default_value_t = 0.001)]
    l2: f64,
    /// λ on ½Σh² of all methods.
    #[arg(long, default_value_t = 1e-5)]
    l2_fields: f64,
    /// Updates of polishing.
    #[arg(long, default_value_t = 200)]
    updates: usize,
    /// Chains of polishing.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// The first learning rate of polishing; it falls to a tenth.
    #[arg(long, default_value_t = 0.1)]
    rate: f64,
    /// Chains that make the samples: half from sequences of the alignment, half from random ones.
    #[arg(long, default_value_t = 40)]
    chains: usize,
    /// Samples of each chain, two sweeps apart, after 500 sweeps.
    #[arg(long, default_value_t = 500)]
    draws: usize,
    /// The seed of polishing and sampling.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// f_i(a) and c_ij(a, b), in the order of a model's fields and couplings.
struct Statistics {
    one: Vec<f64>,
    two: Vec<f64>,
}

impl Statistics {
    /// Computes the statistics of `rows` whose weights add up to one.
    fn of<'a>(model: &Potts, rows: impl Iterator<Item = (&'a [u8], f64)>) -> Self {
        let mut means = vec![0.0; model.n_params()];
        for (row, weight) in rows {
            // −∂E/∂θ has a one for every letter and every pair of letters.
            model.add_energy_grad(&[], row, -weight, &mut means);
        }
        let (n, q) = (model.n_sites(), model.n_states());
        let mut two = means.split_off(n * q);
        for ((i, j), block) in pairs(n).zip(two.chunks_exact_mut(q * q)) {
            for (k, c) in block.iter_mut().enumerate() {
                *c -= means[i * q + k / q] * means[j * q + k % q];
            }
        }
        Self { one: means, two }
    }
}

/// How near one list of numbers is to another.
#[derive(Clone, Copy, Debug, Serialize)]
struct Agreement {
    correlation: f64,
    /// Of the regression on the data.
    slope: f64,
    /// The root of the mean squared difference.
    rms: f64,
}

impl Agreement {
    fn of(data: &[f64], model: &[f64]) -> Self {
        let n = data.len() as f64;
        let mean = |x: &[f64]| x.iter().sum::<f64>() / n;
        let (mean_x, mean_y) = (mean(data), mean(model));
        let [mut xx, mut yy, mut xy, mut square] = [0.0; 4];
        for (x, y) in data.iter().zip(model) {
            square += (x - y).powi(2);
            let (x, y) = (x - mean_x, y - mean_y);
            xx += x * x;
            yy += y * y;
            xy += x * y;
        }
        Self {
            correlation: xy / (xx * yy).sqrt(),
            slope: xy / xx,
            rms: (square / n).sqrt(),
        }
    }
}

#[derive(Serialize)]
struct Row {
    method: &'static str,
    /// Of the fit, polishing included.
    seconds: f64,
    sampling_seconds: f64,
    /// Of the energy, over all chains.
    rhat: f64,
    one: Agreement,
    two: Agreement,
}

#[derive(Serialize)]
struct Results<'a> {
    args: &'a Args,
    machine: Machine,
    sequences: usize,
    left_out: usize,
    sites: usize,
    /// Two random halves of the alignment: what its own noise is.
    halves: [Agreement; 2],
    rows: Vec<Row>,
}

pub fn run(args: &Args, output: &OutputArgs, cancel: &Cancel) -> Result {
    let output = output.open("fitness")?;
    let options = ReadOptions {
        most_gaps_in_sequence: args.sequence_gaps,
        ..ReadOptions::default()
    };
    let alignment = Alignment::read(&unpack(&args.family)?, &options)?;
    let weights = alignment.weights(args.theta);
    let sequences = alignment.sequences(&weights, false)?;
    let (n, q) = (sequences.n_sites(), sequences.n_states());

    let spinner = progress::spinner("MPF");
    let (mpf, mpf_seconds) = fitted(&sequences, Loss::Flow, args, cancel)?;
    spinner.set_message("polish");
    let clock = Stopwatch::start();
    let rows = ArrayView2::from_shape((alignment.n_sequences(), n), &alignment.codes)?;
    let data = SiteData::new(rows, q)?.weighted(&weights)?;
    let of_fields = args.l2_fields / args.l2.max(f64::MIN_POSITIVE);
    let mut penalised = vec![of_fields; n * q];
    penalised.resize(mpf.n_params(), 1.0);
    let mut data_slope = vec![0.0; mpf.n_params()];
    for (row, &weight) in sequences.rows().zip(sequences.weights()) {
        mpf.add_energy_grad(&[], row, weight, &mut data_slope);
    }
    let steps = CentredSteps::new(&sequences);
    let options = LocalContrastiveOptions {
        data_slope,
        direction: Some(Direction::new(move |slope| steps.apply(slope))),
        updates: args.updates,
        persistent: true,
        batch_size: args.batch,
        learning_rate: args.rate,
        l2: args.l2,
        penalised,
        seed: args.seed,
        cancel: cancel.clone(),
        ..LocalContrastiveOptions::default()
    };
    let polished = local_contrastive(&mpf, &data, mpf.theta(), &options, |_| {})?;
    let polished = Potts::new(n, q, polished.theta);
    let polish_seconds = mpf_seconds + clock.seconds();
    spinner.set_message("PL");
    let (pl, pl_seconds) = fitted(&sequences, Loss::Pseudolikelihood, args, cancel)?;

    let weighted = sequences.rows().zip(sequences.weights().iter().copied());
    let of_data = Statistics::of(&mpf, weighted);
    let mut results = Results {
        args,
        machine: Machine::this(),
        sequences: alignment.n_sequences(),
        left_out: alignment.n_read - alignment.n_sequences(),
        sites: n,
        halves: halves(&mpf, &alignment, &weights),
        rows: Vec::new(),
    };
    let mut drawn = Vec::new();
    for (method, model, seconds) in [
        ("MPF", &mpf, mpf_seconds),
        ("MPF + polish", &polished, polish_seconds),
        ("PL", &pl, pl_seconds),
    ] {
        spinner.set_message(format!("samples of {method}"));
        let clock = Stopwatch::start();
        let (statistics, rhat) = sampled(model, &sequences, args, cancel)?;
        results.rows.push(Row {
            method,
            seconds,
            sampling_seconds: clock.seconds(),
            rhat,
            one: Agreement::of(&of_data.one, &statistics.one),
            two: Agreement::of(&of_data.two, &statistics.two),
        });
        drawn.push((method, statistics));
    }
    spinner.finish_and_clear();
    output.write_json("results.json", &results)?;
    output.write("statistics.svg", &figure(&of_data, &drawn)?)?;
    output.show(&table(&results), &[])
}

fn fitted(sequences: &Sequences, loss: Loss, args: &Args, cancel: &Cancel) -> Result<(Potts, f64)> {
    let mut options = FitOptions::new(loss, sequences);
    options.penalties = Penalties {
        couplings: args.l2 * relative_curvature(loss, sequences),
        fields: args.l2_fields,
        group: 0.0,
    };
    options.minimizer.cancel = cancel.clone();
    let fit = fit(sequences, &options, |_| {})?;
    Ok((fit.model, fit.seconds))
}

/// Returns the statistics of samples, and R̂ of their energies.
fn sampled(
    model: &Potts,
    sequences: &Sequences,
    args: &Args,
    cancel: &Cancel,
) -> Result<(Statistics, f64)> {
    let gibbs = LocalGibbs::new(model, model.theta(), 1.0)?;
    let runner = ChainRunner::new(ChainOptions {
        seed: args.seed,
        n_chains: args.chains,
        n_draws: args.draws,
        burn_in: 500,
        thinning: 2,
        cancel: cancel.clone(),
        ..ChainOptions::default()
    })?;
    let mut random = rng::stream(args.seed, 0);
    let n_distinct = sequences.n_distinct();
    let starts = (0..args.chains).map(|chain| match chain % 2 {
        0 => Ok(gibbs.state(row(sequences, chain * n_distinct / args.chains))?),
        _ => Ok(gibbs.random_start(&mut random)?),
    });
    let run = runner.run_from(&gibbs, starts.collect::<Result<_>>()?, |_| {})?;
    if run.cancelled {
        return Err(mpf_core::Error::Cancelled.into());
    }
    let energies: Vec<Vec<f64>> = run
        .chains
        .iter()
        .map(|chain| {
            let rows = chain.draws.rows().into_iter();
            rows.map(|row| model.energy_of(&row.to_vec())).collect()
        })
        .collect();
    let draws = run.pooled();
    let weight = 1.0 / draws.nrows() as f64;
    let rows = draws.rows().into_iter();
    let rows = rows.map(|row| (row.to_slice().expect("rows are whole"), weight));
    Ok((Statistics::of(model, rows), diagnostics::rhat(&energies)?))
}

fn row(sequences: &Sequences, m: usize) -> &[u8] {
    &sequences.codes()[m * sequences.n_sites()..][..sequences.n_sites()]
}

/// Compares the even with the odd sequences of the alignment.
fn halves(model: &Potts, alignment: &Alignment, weights: &[f64]) -> [Agreement; 2] {
    let half = |parity: usize| {
        let rows = alignment.codes.chunks_exact(model.n_sites());
        let rows = rows.zip(weights).skip(parity).step_by(2);
        let total: f64 = rows.clone().map(|(_, w)| w).sum();
        Statistics::of(model, rows.map(|(row, w)| (row, w / total)))
    };
    let (even, odd) = (half(0), half(1));
    [
        Agreement::of(&even.one, &odd.one),
        Agreement::of(&even.two, &odd.two),
    ]
}

fn table(results: &Results<'_>) -> String {
    let cells = |name: &str, one: Agreement, two: Agreement, times: [String; 3]| {
        let mut row = vec![name.to_owned()];
        row.extend([one.correlation, one.rms].map(|x| format!("{x:.4}")));
        row.extend([two.correlation, two.slope].map(|x| format!("{x:.3}")));
        row.push(format!("{:.5}", two.rms));
        row.extend(times);
        row
    };
    let [one, two] = results.halves;
    let none = [const { String::new() }; 3];
    let mut rows = vec![cells("one half of the alignment", one, two, none)];
    rows.extend(results.rows.iter().map(|row| {
        let times = [
            digits(row.rhat),
            format!("{:.1}", row.seconds),
            format!("{:.1}", row.sampling_seconds),
        ];
        cells(row.method, row.one, row.two, times)
    }));
    let header = [
        "against the alignment",
        "f: r",
        "f: rms",
        "c: r",
        "c: slope",
        "c: rms",
        "R̂ of E",
        "fit (s)",
        "samples (s)",
    ];
    format!(
        "{} sequences of {} sites, {} left out.\n\n{}",
        results.sequences,
        results.sites,
        results.left_out,
        Table::new(header, rows).markdown()
    )
}

/// Draws the statistics of samples against those of the alignment: f above, c below.
fn figure(data: &Statistics, drawn: &[(&str, Statistics)]) -> Result<String> {
    svg((960, 640), |area| {
        let panels = area.split_evenly((2, drawn.len()));
        let (above, below) = panels.split_at(drawn.len());
        for ((method, model), panel) in drawn.iter().zip(above) {
            let title = format!("{method}: f_i(a)");
            scatter(panel, &title, &data.one, &model.one)?;
        }
        for ((method, model), panel) in drawn.iter().zip(below) {
            let title = format!("{method}: c_ij(a, b)");
            scatter(panel, &title, &data.two, &model.two)?;
        }
        Ok(())
    })
}

/// Draws the largest pairs of numbers, some hundreds of them: what matters shows in every panel.
fn scatter(area: &Area<'_>, title: &str, data: &[f64], model: &[f64]) -> Result {
    const MOST: usize = 800;
    let (low, high) = data
        .iter()
        .chain(model)
        .fold((0.0f64, 0.0f64), |(l, h), &x| (l.min(x), h.max(x)));
    let margin = 0.05 * (high - low).max(1e-9);
    let range = low - margin..high + margin;
    let mut points: Vec<_> = data.iter().zip(model).collect();
    let size = |(x, y): &(&f64, &f64)| x.abs().max(y.abs());
    points.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(range.clone(), range)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh()
        .x_labels(4)
        .y_labels(5)
        .label_style(TEXT)
        .x_desc("alignment")
        .y_desc("samples")
        .draw()?;
    chart.draw_series(LineSeries::new([(low, low), (high, high)], INK.mix(0.5)))?;
    let dots = points.into_iter().take(MOST);
    chart.draw_series(dots.map(|(x, y)| Circle::new((*x, *y), 2, BLUE.mix(0.6).filled())))?;
    Ok(())
}
