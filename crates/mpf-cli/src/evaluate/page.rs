//! The report: a page with figures and tables about one model.

use super::evaluation::{Compared, Evaluation, compared};
use crate::failure::Failure;
use crate::figures::network::network;
use crate::figures::{self, Point, clusters};
use crate::fit::{drift_in_words, held_out_in_words, polishing_in_words};
use crate::model::{FitRecord, Model};
use mpf_baselines::GoodnessOfFit;
use mpf_core::TracePoint;
use mpf_report::report::Page;
use mpf_report::text::{Table, digits, duration};

/// The number of pairs that are listed by name.
const STRONGEST: usize = 20;
/// The number of pairs in the network.
const NETWORK: usize = 40;
/// The most points of a scatter plot; of more, every n-th is shown.
const MOST_POINTS: usize = 4000;

type Figure = (String, String);

/// Returns the page.
pub(super) fn page(
    model: &Model,
    truth: Option<&Model>,
    evaluation: &Evaluation,
    goodness: &GoodnessOfFit,
) -> Result<String, Failure> {
    let mut page = Page::new(
        &format!("{} against {}", evaluation.model, evaluation.data),
        &match &model.hidden {
            None => format!(
                "A pairwise (Ising) model of {} units beside {} samples. Spins s = ±1, \
                 p ∝ exp(Σ h s + Σ K s s): a positive K makes two units agree.",
                model.names.len(),
                evaluation.n_samples
            ),
            Some(hidden) => format!(
                "A Boltzmann machine of {} visible and {} hidden units beside {} samples, \
                 p ∝ exp(−xᵀJx) Π_k (1 + exp(−c_k − W_k·x)), x = 0 or 1.",
                model.names.len(),
                hidden.biases.len(),
                evaluation.n_samples
            ),
        },
    );
    careful(&mut page, evaluation);
    agreement(&mut page, evaluation);
    let spins = model.couplings.to_spins();
    let order = clusters::order(model.names.len(), |i, j| spins.couplings[[i, j]]);
    let pairs = Pair::all(model);
    page.figures(&moments(evaluation, goodness)?);
    // An RBM has no couplings between visible units.
    if model.hidden.is_none() || pairs.iter().any(|pair| pair.coupling != 0.0) {
        page.heading("Couplings");
        page.figures(&couplings(model, truth, evaluation, &order, &pairs)?);
        list_strongest(&mut page, model, &pairs);
    }
    units(&mut page, model, evaluation, &order);
    if let Some(fit) = &model.fit {
        page.heading("How it was fitted");
        page.figures(&learning(fit)?);
        fitted(&mut page, fit);
    }
    provenance(&mut page, model);
    Ok(page.finish())
}

fn careful(page: &mut Page, evaluation: &Evaluation) {
    let mut remarks = evaluation.warnings.clone();
    if evaluation.same_data == Some(false) {
        remarks.push("These are not the data that the model was fitted to.".into());
    }
    page.heading("To be careful about");
    if remarks.is_empty() {
        page.text("Nothing: the fit converged and noticed nothing odd.");
    } else {
        page.list(&remarks);
    }
}

fn agreement(page: &mut Page, evaluation: &Evaluation) {
    page.heading("Does it agree with the data?");
    page.table(&evaluation.table());
    page.text(
        "Of equals, 95 % are within two standard errors. Means and pairs are what a pairwise model \
         is fitted to; triplets and the number of active units are what it predicts.",
    );
    if let Some(exact) = &evaluation.exact {
        page.table(&exact.table());
        page.text(&exact.remark());
    }
    if let Some(error) = evaluation.mean_square_error_of_couplings {
        page.text(&format!(
            "Mean square error of J, true against fitted: {}.",
            digits(error)
        ));
    }
}

fn points(all: impl ExactSizeIterator<Item = Compared>) -> Vec<Point> {
    let step = all.len().div_ceil(MOST_POINTS).max(1);
    all.step_by(step)
        .map(|c| Point {
            x: c.data,
            y: c.model,
            x_error: c.data_error,
            y_error: c.model_error,
        })
        .collect()
}

fn moments(evaluation: &Evaluation, goodness: &GoodnessOfFit) -> Result<Vec<Figure>, Failure> {
    let bars = "Bars are two standard errors; the grey line is where both are equal, the red one is \
                fitted, with the errors of both in mind.";
    let means = points(evaluation.means.iter().copied());
    let pairs = points(evaluation.pairs.iter().map(|p| p.covariance));
    let mut figures = vec![
        (
            figures::scatter("means", "data", "model", &means)?,
            format!("The mean activity of every unit. {bars}"),
        ),
        (
            figures::scatter("pair covariances", "data", "model", &pairs)?,
            "The covariance of every pair of units.".to_owned(),
        ),
    ];
    if !goodness.data.triplets.is_empty() {
        let both = goodness.model.triplets.iter().zip(&goodness.data.triplets);
        let triplets = points(both.map(compared));
        figures.push((
            figures::scatter("triplet covariances", "data", "model", &triplets)?,
            format!(
                "Third central moments: {} of {} triplets.",
                triplets.len(),
                goodness.data.triplets.len()
            ),
        ));
    }
    figures.push((
        figures::counts(
            "how many are active together",
            &evaluation.n_active,
            evaluation.n_samples,
        )?,
        format!(
            "The probability of n active units, down to about one of {} samples. Bands are two \
             standard errors; where no sample has n active units, the band ends at 3/M.",
            evaluation.n_samples
        ),
    ));
    Ok(figures)
}

/// A pair of units.
struct Pair {
    i: usize,
    j: usize,
    /// K.
    coupling: f64,
    /// Where its interval is: with a penalty, at the estimate without.
    centre: f64,
    /// NaN without error bars, and ∞ for a coupling that the data do not determine.
    error: f64,
}

impl Pair {
    fn all(model: &Model) -> Vec<Self> {
        let bars = model.errors.as_ref().map(|errors| &errors.bars);
        let corrected = bars.and_then(|bars| bars.corrected.as_ref());
        let couplings = model.couplings.to_spins().couplings;
        let centres = corrected.unwrap_or(&model.couplings).to_spins().couplings;
        let pair = |(i, j)| Self {
            i,
            j,
            coupling: couplings[[i, j]],
            centre: centres[[i, j]],
            error: bars.map_or(f64::NAN, |bars| bars.couplings[i][j]),
        };
        mpf_baselines::pairs(model.names.len()).map(pair).collect()
    }

    fn name(&self, model: &Model) -> String {
        format!("{} – {}", model.names[self.i], model.names[self.j])
    }
}

fn strongest(pairs: &[Pair], most: usize) -> Vec<&Pair> {
    let mut pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.coupling != 0.0).collect();
    pairs.sort_by(|a, b| b.coupling.abs().total_cmp(&a.coupling.abs()));
    pairs.truncate(most);
    pairs
}

fn is_corrected(model: &Model) -> bool {
    let errors = model.errors.as_ref();
    errors.is_some_and(|errors| errors.bars.corrected.is_some())
}

fn couplings(
    model: &Model,
    truth: Option<&Model>,
    evaluation: &Evaluation,
    order: &[usize],
    pairs: &[Pair],
) -> Result<Vec<Figure>, Failure> {
    let spins = model.couplings.to_spins();
    let k = |i, j| spins.couplings[[i, j]];
    let all: Vec<f64> = pairs.iter().map(|pair| pair.coupling).collect();
    // What M samples can determine, as in the warning of couplings that run away.
    let limit = (0.5 * (evaluation.n_samples as f64).ln()).max(1.0);
    let clip = figures::clip(&all, limit);
    let beyond = all.iter().filter(|k| k.abs() > clip).count();
    let ordered = if order.len() > clusters::MOST_UNITS {
        "Units are in the order of the file."
    } else {
        "Units are ordered by clusters (average linkage of |K|); a table below lists them."
    };
    let clipped = if beyond > 0 {
        format!(
            " Colours end at |K| = {}, so that weak pairs are seen; {beyond} {} beyond.",
            digits(clip),
            if beyond == 1 { "is" } else { "are" }
        )
    } else {
        String::new()
    };
    let mut figures = vec![(
        figures::matrix("couplings K", &model.names, order, k, clip)?,
        format!("Red pairs tend to agree, blue ones to differ; white is zero. {ordered}{clipped}"),
    )];
    if all.is_empty() {
        return Ok(figures);
    }
    let edge = |pair: &Pair| (pair.i, pair.j, pair.coupling);
    let edges = strongest(pairs, NETWORK).into_iter().map(edge);
    let edges: Vec<_> = edges.collect();
    if !edges.is_empty() {
        figures.push((
            network(
                "the strongest as a network",
                &model.names,
                order,
                &edges,
                clip,
            ),
            format!(
                "The {} strongest of {} pairs; red agree, blue differ. Units stand in the order of \
                 the matrix; those without such a pair are left out.",
                edges.len(),
                all.len()
            ),
        ));
    }
    let zeros = all.iter().filter(|k| **k == 0.0).count();
    let outermost = if beyond > 0 {
        format!(
            " The outermost bins hold the {beyond} beyond ±{}.",
            digits(clip)
        )
    } else {
        String::new()
    };
    figures.push((
        figures::histogram("their distribution", "K", &all, clip)?,
        format!(
            "{} pairs, {zeros} of them exactly zero.{outermost}",
            all.len()
        ),
    ));
    let around = if is_corrected(model) {
        " Points and bars are of the estimate without the penalty; the table has both."
    } else {
        ""
    };
    let row = |pair: &Pair| (pair.name(model), pair.centre, pair.error);
    let rows = strongest(pairs, STRONGEST).into_iter().map(row);
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let bars = match &model.errors {
            Some(errors) => format!(
                "Bars are two standard errors ({}).{around} The data do not determine couplings of \
                 pairs of which some joint value never occurs.",
                errors.method
            ),
            None => "For error bars fit with --errors sandwich or bootstrap.".to_owned(),
        };
        figures.push((figures::named("the strongest", "K", &rows)?, bars));
    }
    if let Some(truth) = truth {
        let true_spins = truth.couplings.to_spins();
        let point = |pair: &Pair| Point {
            x: true_spins.couplings[[pair.i, pair.j]],
            y: pair.centre,
            x_error: 0.0,
            y_error: pair.error,
        };
        let points: Vec<Point> = pairs.iter().map(point).collect();
        figures.push((
            figures::scatter("fitted against true", "true K", "fitted K", &points)?,
            format!("The couplings that made the data, and those that were found.{around}"),
        ));
    }
    Ok(figures)
}

fn list_strongest(page: &mut Page, model: &Model, pairs: &[Pair]) {
    let mut table = Table::of(
        strongest(pairs, STRONGEST),
        &[
            ("pair", &|pair| pair.name(model)),
            ("K", &|pair| format!("{:.3}", pair.coupling)),
            ("K without the penalty", &|pair| {
                format!("{:.3}", pair.centre)
            }),
            ("± error", &|pair| match pair.error {
                f64::INFINITY => "undetermined".to_owned(),
                e if e.is_nan() => "–".to_owned(),
                e => format!("{e:.3}"),
            }),
            ("J (0/1)", &|pair| {
                format!("{:.3}", model.couplings.get(pair.i, pair.j))
            }),
        ],
    );
    if !is_corrected(model) {
        let rows = [&mut table.header].into_iter().chain(&mut table.rows);
        rows.for_each(|row| drop(row.remove(2)));
    }
    if !table.rows.is_empty() {
        page.table(&table);
    }
}

fn learning(fit: &FitRecord) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    if fit.trace.len() > 1 && !fit.nodewise {
        let last = fit.trace[fit.trace.len() - 1].value;
        let curve = |of: &dyn Fn(&TracePoint) -> f64| {
            let points = fit.trace.iter().map(|p| (p.iteration as f64, of(p)));
            points.collect()
        };
        let curves = [
            ("largest gradient", curve(&|p| p.gradient_norm)),
            ("objective above the last", curve(&|p| p.value - last)),
        ];
        figures.push((
            figures::curves("learning curve", "iteration", &curves)?,
            "How far from a minimum, in standardised units.".to_owned(),
        ));
    }
    if fit.path.iter().any(|p| p.lambda > 0.0) {
        let of = if fit.path_of.as_deref() == Some("l1") {
            ("λ₁", fit.l1)
        } else {
            ("λ₂", fit.l2)
        };
        figures.push((
            figures::path("penalty path", of.0, &fit.path, of.1)?,
            "The objective on held-out samples; bars are standard errors over folds. The red line \
             is the penalty that was chosen."
                .to_owned(),
        ));
    }
    Ok(figures)
}

/// Lists all units in the order of the figures.
fn units(page: &mut Page, model: &Model, evaluation: &Evaluation, order: &[usize]) {
    let fields = model.couplings.to_spins().fields;
    let means = &evaluation.means;
    let table = Table::of(
        order,
        &[
            ("unit", &|&i| model.names[i].clone()),
            ("column", &|i| i.to_string()),
            ("h", &|&i| format!("{:.3}", fields[i])),
            ("J (0/1)", &|&i| format!("{:.3}", model.couplings.get(i, i))),
            ("mean of data", &|&i| digits(means[i].data)),
            ("mean of model", &|&i| digits(means[i].model)),
        ],
    );
    let summary = format!("The {} units, in the order of the figures", order.len());
    page.folded_table(&summary, &table);
}

/// Makes a sentence of a message.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

fn fitted(page: &mut Page, fit: &FitRecord) {
    let none = || "–".to_owned();
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    let remarks = [
        fit.held_out.as_ref().map(held_out_in_words),
        fit.drift.as_ref().map(drift_in_words),
        fit.polishing.as_ref().map(polishing_in_words),
    ];
    for remark in remarks.iter().flatten() {
        page.text(&sentence(remark));
    }
    if !fit.stages.is_empty() {
        page.table(&Table::of(
            &fit.stages,
            &[
                ("stage", &|s| s.name.clone()),
                ("time", &|s| duration(s.seconds)),
                ("iterations", &|s| s.iterations.to_string()),
                ("evaluations", &|s| s.evaluations.to_string()),
                ("stopped", &|s| s.stop.to_string()),
            ],
        ));
    }
    let mut rows = vec![
        ("method", fit.method.clone()),
        ("converged", yes(fit.converged)),
        (
            "stopped",
            fit.stop.clone().unwrap_or_else(|| "closed form".into()),
        ),
        ("objective", fit.value.map_or_else(none, digits)),
        (
            "KKT residual",
            fit.kkt_residual.map_or_else(none, |r| format!("{r:.1e}")),
        ),
        ("iterations", fit.iterations.to_string()),
        ("learning time", duration(fit.seconds)),
        ("λ₁ on |K|", digits(fit.l1)),
        ("λ₂ on K²/2", digits(fit.l2)),
        ("neighbours", fit.neighbours.clone()),
        ("row by row", yes(fit.nodewise)),
        ("polishing updates", fit.polish.to_string()),
        ("free couplings", fit.n_free_couplings.to_string()),
        ("seed", fit.seed.to_string()),
    ];
    if let Some(by) = &fit.chosen_by {
        rows.push(("penalty chosen by", by.clone()));
    }
    let rows = rows.into_iter().map(|(name, value)| [name.into(), value]);
    page.table(&Table::new(["setting", "value"], rows));
}

fn provenance(page: &mut Page, model: &Model) {
    let mut rows = vec![["written by".to_owned(), model.program.clone()]];
    if let Some(data) = &model.data {
        rows.push(["fitted to".into(), data.file.clone()]);
        rows.push(["samples".into(), data.n_samples.to_string()]);
        rows.push(["fingerprint".into(), data.fingerprint.clone()]);
    }
    page.heading("Where it comes from");
    page.table(&Table::new(["model file", ""], rows));
}
