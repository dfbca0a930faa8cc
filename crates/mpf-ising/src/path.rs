//! Penalty paths, and the choice of a penalty by cross-validation or EBIC.
//!
//! ```text
//! minimise F(h, K) + λ₁ Σ_{i<j} |K_ij|        or        F(h, K) + (λ₂/2) Σ_{i<j} K_ij²
//!
//! λ₁ max = max_ij |∂F/∂K_ij| at K = 0 and the best h: the smallest λ₁ that leaves no coupling
//! λ₂ max = 10 rms_ij |∂F/∂K_ij| at the same place: there the rms of K is at most .1
//!
//! CV(λ)   = Σ_f (M_f/M) F_f(fit without fold f)       F_f the objective on fold f, no penalty
//! EBIC(λ) = 2 M F* + Σ_i k_i (ln M + 2 γ ln d)        k_i neighbours of unit i, F* the minimum
//!                                                     of F over the couplings of that graph
//! ```
//!
//! A path starts at the largest λ, where the answer is known, and every fit starts from the one
//! before. F is the objective of the fitter's [`Estimator`]. Node by node, λ₁ max is twice the
//! largest slope of a row, as rows carry half of the penalty.
//!
//! No finite λ₂ makes couplings vanish. The bound on their rms holds because F, minimised over h, is
//! convex in K, and its gradient G is monotone: at the minimum G = −λ₂ K, hence
//! λ₂ ‖K‖² = −G(K)·K ≤ −G(0)·K ≤ ‖G(0)‖ ‖K‖.
//!
//! **A choice at the edge** of computed λ's says little: the best λ may lie beyond. Cross-validation
//! then goes on in the same ratios, by three decades at most, until the choice has a neighbour on
//! either side ([`CrossValidation::edge`] says if it has none even so). Above λ₁ max there is
//! nothing to find, as every model there has no couplings.
//!
//! **EBIC** is the sum over rows of the criterion of Barber & Drton (2015) for neighbourhood
//! selection by logistic regression, γ = ½ by default. It is exact for pseudolikelihood, whose
//! rows are likelihoods. The losses of MPF and RISE agree with it to second order,
//! exp(−a) = 1 − a + a²/2 … and ln(1 + exp(−2a)) = ln 2 − a + a²/2 …; there it holds for weak
//! couplings only, and cross-validation is the choice for strong ones. EBIC needs exact zeros, so
//! ridge paths have none.
//!
//! **Which rule?** The minimum of CV predicts best and keeps false edges: the penalty that removes
//! the last false edge shrinks the true couplings too much. Use the one-standard-error rule or EBIC
//! for the graph, and the minimum for the couplings themselves.

mod choice;
mod walker;

use crate::Result;
use crate::bits::{Samples, States};
use crate::blocks::part;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::fit::{Estimator, Fit, FitOptions, Fitter, Mode};
use crate::folds::{FoldAssignment, Folds};
use crate::stream::{Data, Stream};
use crate::support::{Support, pairs};
use mpf_core::{StopReason, check_not_negative, check_not_zero, check_option};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use walker::{Held, PathState, Walker, independent};

pub use choice::{CrossValidation, Edge, HeldOutScore, PathPoint, Rule};

/// The largest λ₂ keeps the rms of K below this.
const SMALL_COUPLING: f64 = 0.1;

/// How far beyond either end of the computed λ's cross-validation goes for a choice inside.
const DECADES_BEYOND: f64 = 3.0;

/// The most iterations of the unpenalised fits that EBIC needs. They do not converge if couplings
/// run away, but the graph is then too large anyway.
const REFIT_ITERATIONS: usize = 100;

/// The most λ's that a path computes.
const MAX_LAMBDAS: usize = 1_000_000;

/// The penalty that varies along a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Penalty {
    /// λ₁; the fitter's own λ₁ is ignored, its λ₂ stays.
    #[default]
    L1,
    /// λ₂; the fitter's own λ₂ is ignored, its λ₁ stays.
    L2,
}

/// Options of a [`PenaltyPath`]; [`PenaltyPath::new`] checks them.
#[derive(Clone, Debug)]
pub struct PathOptions {
    /// The penalty that varies. Default: λ₁.
    pub penalty: Penalty,
    /// How many λ's, from the computed largest one downwards in equal ratios. Cross-validation adds
    /// more where its choice would be the last or the first of them. Default 30.
    pub n_lambdas: usize,
    /// The smallest λ as a part of the largest. Default 0.001.
    pub smallest: f64,
    /// Use these λ's instead, given in any order, and no others. Default: compute them.
    pub lambdas: Option<Vec<f64>>,
    /// Cross-validation stops after this many λ's in a row without a new smallest held-out score:
    /// fits with too small a penalty take longest. Default 3.
    pub patience: usize,
    /// γ of EBIC: 0 for BIC, up to 1 for many units. Default 0.5.
    pub gamma: f64,
    /// How many folds cross-validation has. Default 5.
    pub n_folds: usize,
    /// How samples are assigned to folds. Default: contiguous blocks.
    pub assignment: FoldAssignment,
    /// How the point is chosen. Default: the smallest held-out score.
    pub rule: Rule,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            penalty: Penalty::default(),
            n_lambdas: 30,
            smallest: 1e-3,
            lambdas: None,
            patience: 3,
            gamma: 0.5,
            n_folds: 5,
            assignment: FoldAssignment::default(),
            rule: Rule::default(),
        }
    }
}

/// Fits along a path of penalties, with checked options.
///
/// ```
/// use mpf_ising::{Boundary, Exact, Fitter, Lattice, PenaltyPath};
///
/// let truth = Lattice::new(3, 3, Boundary::Open)?
///     .spin_glass(1.0, &mut mpf_core::rng::stream(2, 0))?;
/// let states = Exact::new(&truth)?.draw(2000, 3);
/// let fitter: Fitter = Fitter::default();
/// let found = PenaltyPath::default().cross_validate(&fitter, &states, |_| {})?;
/// assert!(found.chosen().fit.couplings.mean_square_error(&truth) < 0.1);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PenaltyPath {
    options: PathOptions,
}

/// A path under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathProgress {
    /// Points that are done.
    pub done: usize,
    /// Points to do at most, unless the choice is at the edge.
    pub total: usize,
    /// The λ that was done last.
    pub lambda: f64,
}

impl PenaltyPath {
    /// Makes a path after checking the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a λ that is negative or not finite, no λ's or more than a
    /// million computed ones, a patience of 0, a smallest part outside 0 < r < 1, or a γ outside
    /// 0 ≤ γ ≤ 1; [`Error::EbicOfRidge`].
    pub fn new(options: PathOptions) -> Result<Self> {
        let (n, most) = match &options.lambdas {
            None => (options.n_lambdas, MAX_LAMBDAS),
            Some(given) => (given.len(), usize::MAX),
        };
        let holds = (1..=most).contains(&n);
        check_option("n_lambdas", n as f64, "from 1 to 1,000,000", holds)?;
        check_not_zero("patience", options.patience)?;
        for &lambda in options.lambdas.iter().flatten() {
            check_not_negative("lambdas", lambda)?;
        }
        let smallest = options.smallest;
        let holds = smallest > 0.0 && smallest < 1.0;
        check_option("smallest", smallest, "between 0 and 1", holds)?;
        let gamma = options.gamma;
        check_option("gamma", gamma, "from 0 to 1", (0.0..=1.0).contains(&gamma))?;
        if options.rule == Rule::Ebic && options.penalty == Penalty::L2 {
            return Err(Error::EbicOfRidge);
        }
        Ok(Self { options })
    }

    /// Returns the λ's of the path, largest first. Computed ones begin at the λ max of the data.
    ///
    /// # Errors
    /// Those of [`Fitter::coupling_slopes`], for computed λ's.
    pub fn lambdas<'a, E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        data: impl Into<Data<'a>>,
    ) -> Result<Vec<f64>> {
        let data = data.into();
        self.lambdas_from(fitter, data, || independent(fitter, data))
    }

    /// Returns the λ's, given the best model without couplings.
    fn lambdas_from<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        data: Data<'_>,
        independent: impl FnOnce() -> Result<Couplings>,
    ) -> Result<Vec<f64>> {
        if let Some(given) = &self.options.lambdas {
            let mut lambdas = given.clone();
            lambdas.sort_by(|a, b| b.total_cmp(a));
            return Ok(lambdas);
        }
        let largest = self.largest(fitter, data, &independent()?)?;
        let last = (self.options.n_lambdas.max(2) - 1) as f64;
        Ok((0..self.options.n_lambdas)
            .map(|k| largest * self.options.smallest.powf(k as f64 / last))
            .collect())
    }

    /// Returns λ max, given the best model without couplings.
    fn largest<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        data: Data<'_>,
        independent: &Couplings,
    ) -> Result<f64> {
        let slopes = fitter.coupling_slopes(independent, data)?;
        let strongest = slopes.iter().fold(0.0f64, |m, (_, slope)| m.max(*slope));
        let lambda = match self.options.penalty {
            Penalty::L1 => strongest,
            Penalty::L2 => {
                let rms = |unit: f64| {
                    let squares = slopes
                        .iter()
                        .map(|(_, slope)| (slope / unit) * (slope / unit));
                    (squares.sum::<f64>() / slopes.len().max(1) as f64).sqrt()
                };
                let plain = rms(1.0);
                // The squares may overflow where the slopes do not.
                let rms = if plain.is_finite() {
                    plain
                } else {
                    strongest * rms(strongest)
                };
                rms / SMALL_COUPLING
            }
        };
        if lambda.is_finite() {
            Ok(lambda)
        } else {
            Err(Error::NotFiniteObjective { value: lambda })
        }
    }

    /// Fits along the path, each fit starting from the one before, and calls `observer` after
    /// each.
    ///
    /// # Errors
    /// Those of [`PenaltyPath::lambdas`] and [`Fitter::fit`]; [`mpf_core::Error::Cancelled`].
    pub fn fit<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        samples: &Samples,
        mut observer: impl FnMut(&PathProgress),
    ) -> Result<Vec<PathPoint>> {
        let lambdas = self.lambdas(fitter, samples)?;
        let mut walker = Walker::new(fitter, Held::Samples(samples.clone()), self.options.penalty)?;
        let mut path = Vec::with_capacity(lambdas.len());
        for &lambda in &lambdas {
            let fit = walker.step(lambda)?;
            path.push(self.point(&walker, lambda, fit)?);
            observer(&PathProgress {
                done: path.len(),
                total: lambdas.len(),
                lambda,
            });
        }
        Ok(path)
    }

    /// Fits along the path to all data and to the training samples of every fold, scores the latter
    /// on the held-out samples, and calls `observer` after every λ. Stops early after
    /// [`PathOptions::patience`] λ's without a new smallest score, and goes beyond the computed λ's
    /// while the choice is at their edge. Ends with the λ's that are done when the time of the fitter's
    /// [`Cancel`](mpf_core::Cancel) is over. The checkpoint of the fitter's options keeps the points
    /// that are done.
    ///
    /// # Errors
    /// [`Error::Folds`] for more folds than samples, or fewer than two; those of
    /// [`PenaltyPath::lambdas`] and [`Fitter::fit`]; [`mpf_core::Error::Cancelled`].
    pub fn cross_validate<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        states: &States,
        mut observer: impl FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let options = &self.options;
        let folds = Folds::new(states.n_samples(), options.n_folds, options.assignment)?;
        let mut parts = (0..folds.n_folds()).map(|fold| {
            let (training, held_out) = folds.split(states, fold)?;
            Ok((
                Held::Samples(Samples::new(&training)?),
                Held::Samples(Samples::new(&held_out)?),
            ))
        });
        let all = Held::Samples(Samples::new(states)?);
        self.validate(fitter, all, &mut parts, &mut observer)
    }

    /// As [`PenaltyPath::cross_validate`], over samples that are read as they are needed. Folds are
    /// contiguous blocks, and are fitted one after the other.
    ///
    /// # Errors
    /// As [`PenaltyPath::cross_validate`]; [`Error::Unreadable`].
    pub fn cross_validate_stream<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        stream: &Stream,
        mut observer: impl FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let (n_samples, n_folds) = (stream.n_rows(), self.options.n_folds);
        if n_folds < 2 || n_samples < n_folds {
            return Err(Error::Folds { n_folds, n_samples });
        }
        let mut parts = (0..n_folds).map(|fold| {
            let (training, held_out) = stream.split(part(n_samples, n_folds, fold))?;
            Ok((Held::Stream(training), Held::Stream(held_out)))
        });
        let all = Held::Stream(stream.clone());
        self.validate(fitter, all, &mut parts, &mut observer)
    }

    /// Validates on data to train on, and their held-out samples, of every fold.
    fn validate<E: Estimator>(
        &self,
        fitter: &Fitter<E>,
        held: Held,
        parts: &mut dyn Iterator<Item = Result<(Held, Held)>>,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let options = &self.options;
        let checkpoint = &fitter.options().minimizer.checkpoint;
        let cancel = &fitter.options().minimizer.cancel;
        let penalty = self.options.penalty;
        let is_late = || cancel.reason() == Some(StopReason::TimeLimit);
        let mut all = Walker::new(fitter, held, penalty)?;
        let lambdas = self.lambdas_from(fitter, all.data(), || match &fitter.options().start {
            // It begins there.
            None => Ok(all.options.start.clone().expect("it has a start")),
            Some(_) => independent(fitter, all.data()),
        })?;
        // A path that has no time to begin is its start, fitted to all data.
        let begin = |part: Result<(Held, Held)>| {
            let (training, held_out) = part?;
            Ok((Walker::new(fitter, training, penalty)?, held_out))
        };
        let in_time = parts.take_while(|_| !is_late());
        let mut parts = in_time.map(begin).collect::<Result<Vec<_>>>()?;
        if is_late() {
            parts.clear();
        }
        let sizes = parts.iter().map(|(_, out)| out.data().total_weight());
        let sizes: Vec<f64> = sizes.collect();
        let smaller = self.beyond(&lambdas, false);
        let larger = self.beyond(&lambdas, true);
        let mut found = CrossValidation {
            penalty,
            rule: options.rule,
            path: Vec::with_capacity(lambdas.len()),
            scores: Vec::with_capacity(lambdas.len()),
        };
        // How many points of the path are above the largest of `lambdas`.
        let mut n_above = 0;
        if let Some(earlier) = checkpoint.resume::<PathState>()? {
            // The fit that the λ's come from may have been cut short.
            fitter.options().minimizer.cancel.check()?;
            let known = [&larger[..], &lambdas[..], &smaller[..]].concat();
            n_above = earlier.check(all.data().n_units(), &known, larger.len(), parts.len())?;
            all.options.start = earlier.found.path.last().map(|p| p.fit.couplings.clone());
            for ((walker, _), start) in parts.iter_mut().zip(earlier.folds) {
                walker.options.start = Some(start);
            }
            found = earlier.found;
        }
        loop {
            let n_below = found.path.len() - n_above;
            let next = if n_above == 0 && self.goes_on(&found, lambdas.len()) {
                lambdas.iter().chain(&smaller).nth(n_below)
            } else {
                None
            };
            let (lambda, at) = match next {
                Some(&lambda) => (lambda, found.path.len()),
                None if found.edge() == Some(Edge::Largest) && n_above < larger.len() => {
                    // The fits above start without couplings, as the one at the top did: those of the
                    // smallest λ are far from them.
                    for walker in parts.iter_mut().map(|(walker, _)| walker).chain([&mut all]) {
                        walker.restart()?;
                    }
                    n_above += 1;
                    (larger[larger.len() - n_above], 0)
                }
                None => break,
            };
            // A stream is read by one fit at a time.
            let is_streamed = all.data().stream().is_some();
            let (is_first, has_folds) = (found.path.is_empty(), !parts.is_empty());
            let mut begun = match is_first {
                true => all.options.start.clone(),
                false => None,
            };
            let mut fit_all = || {
                let mut fit = match has_folds {
                    true => Some(all.step(lambda)?),
                    false => None,
                };
                if is_late() && is_first {
                    fit = all.stay(begun.take())?.or(fit);
                } else if is_late() {
                    return Err(mpf_core::Error::Cancelled.into());
                }
                let fit = fit.map_or_else(|| all.step(lambda), Ok)?;
                self.point(&all, lambda, fit)
            };
            let score = |(walker, held_out): &mut (Walker<'_, E>, Held)| {
                if is_late() {
                    return Err(mpf_core::Error::Cancelled.into());
                }
                let fit = walker.step(lambda)?;
                fitter.objective_value(&fit.couplings, held_out.data())
            };
            let (point, scores): (_, Result<Vec<f64>>) = if is_streamed {
                (fit_all(), parts.iter_mut().map(score).collect())
            } else {
                rayon::join(fit_all, || parts.par_iter_mut().map(score).collect())
            };
            // Fits that the time limit cut short are no basis for a choice, if there are others.
            let is_over = is_late();
            if is_over && !is_first {
                break;
            }
            found.path.insert(at, point?);
            found.scores.insert(
                at,
                match is_over {
                    true => HeldOutScore::new(Vec::new(), &[]),
                    false => HeldOutScore::new(scores?, &sizes),
                },
            );
            let progress = PathProgress {
                done: found.path.len(),
                total: found.path.len().max(lambdas.len()),
                lambda,
            };
            observer(&progress);
            if parts.is_empty() || is_over {
                return Ok(found);
            }
            let starts = parts.iter().map(|(walker, _)| walker.options.start.clone());
            checkpoint.offer(|| PathState {
                found: found.clone(),
                folds: starts.clone().flatten().collect(),
            });
        }
        checkpoint.note(PathState {
            found: found.clone(),
            folds: parts
                .into_iter()
                .filter_map(|(walker, _)| walker.options.start)
                .collect(),
        });
        Ok(found)
    }

    /// Returns the λ's beyond one end of computed ones, largest first.
    fn beyond(&self, lambdas: &[f64], larger: bool) -> Vec<f64> {
        let n = lambdas.len();
        if self.options.lambdas.is_some() || n < 2 {
            return Vec::new();
        }
        let decades = -self.options.smallest.log10() / (n - 1) as f64;
        // Three decades in steps of three decades are one step, whatever the rounding.
        let steps = (DECADES_BEYOND / decades + 1e-9) as usize;
        let lambda = |k: f64| lambdas[0] * self.options.smallest.powf(k / (n - 1) as f64);
        let beyond: Vec<f64> = if larger {
            (1..=steps).rev().map(|k| lambda(-(k as f64))).collect()
        } else {
            (n..n + steps).map(|k| lambda(k as f64)).collect()
        };
        // None where nothing is penalised; fewer where numbers end.
        beyond
            .into_iter()
            .filter(|lambda| *lambda > 0.0 && lambda.is_finite())
            .collect()
    }

    /// Returns whether a path of `n_lambdas` goes on to smaller λ's: the last
    /// [`PathOptions::patience`] scores have not all missed the smallest, or the choice is the last
    /// point.
    fn goes_on(&self, found: &CrossValidation, n_lambdas: usize) -> bool {
        let Some(best) = found.index_by(Rule::Minimum) else {
            return true;
        };
        let n = found.path.len();
        (n < n_lambdas && n - 1 - best < self.options.patience)
            || found.edge() == Some(Edge::Smallest)
    }

    fn point<E: Estimator>(
        &self,
        walker: &Walker<'_, E>,
        lambda: f64,
        fit: Fit,
    ) -> Result<PathPoint> {
        let data = walker.data();
        let d = data.n_units();
        let coupled: Vec<(usize, usize)> = pairs(d)
            .filter(|&(i, j)| fit.couplings.get(i, j) != 0.0)
            .collect();
        let n_couplings = coupled.len();
        let ebic = match self.options.penalty {
            Penalty::L1 => Some(self.ebic(walker, &fit, coupled)?),
            Penalty::L2 => None,
        };
        Ok(PathPoint {
            lambda,
            n_couplings,
            objective: walker.fitter.objective_value(&fit.couplings, data)?,
            ebic,
            fit,
        })
    }

    /// Returns EBIC of the graph of a fit. The couplings are fitted again without λ₁: the criterion
    /// judges the graph, not how much the penalty shrank its couplings.
    fn ebic<E: Estimator>(
        &self,
        walker: &Walker<'_, E>,
        fit: &Fit,
        coupled: Vec<(usize, usize)>,
    ) -> Result<f64> {
        let (fitter, data) = (walker.fitter, walker.data());
        let n_couplings = coupled.len();
        let mut options = FitOptions {
            l1: 0.0,
            support: Support::Edges(coupled),
            start: Some(fit.couplings.clone()),
            ..walker.options.clone()
        };
        let limits = &mut options.minimizer;
        limits.max_iterations = limits.max_iterations.min(REFIT_ITERATIONS);
        let couplings = match fitter.with_options(options)?.fit(data) {
            // Fixed biases and no coupling leave nothing to fit.
            Err(Error::NothingFree) => fit.couplings.clone(),
            refit => refit?.couplings,
        };
        let value = fitter.objective_value(&couplings, data)?;
        // Node by node the value is a sum over rows in every form.
        let sum = match fitter.options().mode {
            Mode::Joint => fitter.estimator().mean_loss(value),
            Mode::NodeWise => value,
        };
        let n = data.n_effective();
        let price = n.ln() + 2.0 * self.options.gamma * (data.n_units() as f64).ln();
        // Every coupling makes two neighbours.
        Ok(2.0 * n * sum + 2.0 * n_couplings as f64 * price)
    }
}
