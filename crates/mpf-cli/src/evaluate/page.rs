//! The report: a page with figures and tables about one model.

use super::evaluation::{Compared, Evaluation, compared};
use crate::failure::Failure;
use crate::figures::network::{Edge, network};
use crate::figures::{self, Matrix, Point, clusters};
use crate::fit::{drift_in_words, held_out_in_words, polishing_in_words};
use crate::model::{FitRecord, Model, StandardErrors};
use mpf_baselines::GoodnessOfFit;
use mpf_ising::SpinCouplings;
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
    // An RBM has no couplings between visible units.
    let is_coupled = model.hidden.is_none() || pairs(model).iter().any(|p| p.2 != 0.0);
    let drawn = || -> mpf_report::Result<(Vec<Figure>, Vec<Figure>, Vec<Figure>)> {
        Ok((
            moments(evaluation, goodness)?,
            match is_coupled {
                true => couplings(model, truth, evaluation, &order)?,
                false => Vec::new(),
            },
            learning(model.fit.as_ref())?,
        ))
    };
    let (of_moments, of_couplings, of_learning) =
        drawn().map_err(|error| Failure::undrawn(&*error))?;
    page.figures(&of_moments);
    if is_coupled {
        page.heading("Couplings");
        page.figures(&of_couplings);
        strongest(&mut page, model);
    }
    units(&mut page, model, evaluation, &order);
    if let Some(fit) = &model.fit {
        page.heading("How it was fitted");
        page.figures(&of_learning);
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

fn moments(evaluation: &Evaluation, goodness: &GoodnessOfFit) -> mpf_report::Result<Vec<Figure>> {
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

/// Returns K of every pair i < j.
fn pairs(model: &Model) -> Vec<(usize, usize, f64)> {
    let d = model.names.len();
    let spins = model.couplings.to_spins();
    mpf_baselines::pairs(d)
        .map(|(i, j)| (i, j, spins.couplings[[i, j]]))
        .collect()
}

/// Where the intervals of the couplings are. Those of a penalised fit are around the estimate without
/// the penalty.
struct Intervals<'a> {
    errors: Option<&'a StandardErrors>,
    centres: SpinCouplings,
}

impl<'a> Intervals<'a> {
    fn of(model: &'a Model) -> Self {
        let errors = model.errors.as_ref();
        let corrected = errors.and_then(|e| e.corrected.as_ref());
        Self {
            errors,
            centres: corrected.unwrap_or(&model.couplings).to_spins(),
        }
    }

    fn is_corrected(&self) -> bool {
        self.errors.is_some_and(|e| e.corrected.is_some())
    }

    fn centre(&self, i: usize, j: usize) -> f64 {
        self.centres.couplings[[i, j]]
    }

    /// Returns NaN without error bars, and ∞ for a coupling that the data do not determine.
    fn error(&self, i: usize, j: usize) -> f64 {
        self.errors.map_or(f64::NAN, |e| e.couplings[i][j])
    }
}

fn strongest_pairs(model: &Model, most: usize) -> Vec<(usize, usize, f64)> {
    let mut pairs = pairs(model);
    pairs.retain(|p| p.2 != 0.0);
    pairs.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
    pairs.truncate(most);
    pairs
}

fn couplings(
    model: &Model,
    truth: Option<&Model>,
    evaluation: &Evaluation,
    order: &[usize],
) -> mpf_report::Result<Vec<Figure>> {
    let spins = model.couplings.to_spins();
    let all: Vec<f64> = pairs(model).iter().map(|p| p.2).collect();
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
        figures::matrix(
            "couplings K",
            &Matrix {
                names: &model.names,
                order,
                values: |i, j| spins.couplings[[i, j]],
                clip,
            },
        )?,
        format!("Red pairs tend to agree, blue ones to differ; white is zero. {ordered}{clipped}"),
    )];
    if all.is_empty() {
        return Ok(figures);
    }
    let edges: Vec<Edge> = strongest_pairs(model, NETWORK)
        .into_iter()
        .map(|(i, j, coupling)| Edge { i, j, coupling })
        .collect();
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
    let intervals = Intervals::of(model);
    let around = if intervals.is_corrected() {
        " Points and bars are of the estimate without the penalty; the table has both."
    } else {
        ""
    };
    let rows: Vec<_> = strongest_pairs(model, STRONGEST)
        .into_iter()
        .map(|(i, j, _)| {
            let name = format!("{} – {}", model.names[i], model.names[j]);
            (name, intervals.centre(i, j), intervals.error(i, j))
        })
        .collect();
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
        let points: Vec<Point> = pairs(model)
            .into_iter()
            .map(|(i, j, _)| Point {
                x: true_spins.couplings[[i, j]],
                y: intervals.centre(i, j),
                x_error: 0.0,
                y_error: intervals.error(i, j),
            })
            .collect();
        figures.push((
            figures::scatter("fitted against true", "true K", "fitted K", &points)?,
            format!("The couplings that made the data, and those that were found.{around}"),
        ));
    }
    Ok(figures)
}

fn strongest(page: &mut Page, model: &Model) {
    let intervals = Intervals::of(model);
    let mut header = vec!["pair", "K", "± error", "J (0/1)"];
    if intervals.is_corrected() {
        header.insert(2, "K without the penalty");
    }
    let rows = strongest_pairs(model, STRONGEST).into_iter();
    let rows = rows.map(|(i, j, k)| {
        let mut row = vec![
            format!("{} – {}", model.names[i], model.names[j]),
            format!("{k:.3}"),
            match intervals.error(i, j) {
                f64::INFINITY => "undetermined".to_owned(),
                e if e.is_nan() => "–".to_owned(),
                e => format!("{e:.3}"),
            },
            format!("{:.3}", model.couplings.get(i, j)),
        ];
        if intervals.is_corrected() {
            row.insert(2, format!("{:.3}", intervals.centre(i, j)));
        }
        row
    });
    let table = Table::new(header, rows);
    if !table.rows.is_empty() {
        page.table(&table);
    }
}

fn learning(fit: Option<&FitRecord>) -> mpf_report::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let Some(fit) = fit else {
        return Ok(figures);
    };
    if fit.trace.len() > 1 && !fit.nodewise {
        let last = fit.trace[fit.trace.len() - 1].value;
        let along = || fit.trace.iter().map(|p| p.iteration as f64);
        let gradient: Vec<_> = along()
            .zip(fit.trace.iter().map(|p| p.gradient_norm))
            .collect();
        let above: Vec<_> = along()
            .zip(fit.trace.iter().map(|p| p.value - last))
            .collect();
        let curves = [
            ("largest gradient", gradient),
            ("objective above the last", above),
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
        let points: Vec<Point> = fit
            .path
            .iter()
            .map(|p| Point {
                x: p.lambda,
                y: p.held_out,
                x_error: 0.0,
                y_error: p.standard_error,
            })
            .collect();
        figures.push((
            figures::path("penalty path", of.0, &points, of.1)?,
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
    let first = letters.next().map(char::to_uppercase);
    first
        .into_iter()
        .flatten()
        .chain(letters)
        .chain(['.'])
        .collect()
}

fn fitted(page: &mut Page, fit: &FitRecord) {
    let none = || "–".to_owned();
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    if let Some(held_out) = &fit.held_out {
        page.text(&sentence(&held_out_in_words(held_out)));
    }
    if let Some(drift) = &fit.drift {
        page.text(&sentence(&drift_in_words(drift)));
    }
    if let Some(polishing) = &fit.polishing {
        page.text(&sentence(&polishing_in_words(polishing)));
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
