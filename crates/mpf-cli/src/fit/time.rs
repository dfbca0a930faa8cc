//! The time that the steps of a fit take. The fits are tried out on these data for a moment, and the rest
//! of their way is extrapolated; sweeps of a Gibbs chain are timed. The other steps are so many of both:
//!
//! ```text
//! fit          as tried, and so is the refinement from where the trial got to
//! penalty      22 λ's for all data and every fold, each a part of a fit
//! held out     0.6 of a fit, 2·10⁵ sweeps of annealing (or 2^d states), at most 10⁵ of drifting chains
//! polishing    4000 sweeps an update, for all data and for the part
//! error bars   0.6 of a fit a resample; or p³ for a Hessian, three times
//! ```
//!
//! The parts are those of lattices and recordings: other λ's, and resamples of fewer rows, take fewer
//! iterations than the fit itself.

use crate::failure::Failure;
use mpf_baselines::{Drift, ErrorBarsBy, Method, MethodOptions, Polish, Recipe, Takes};
use mpf_core::rng::stream;
use mpf_core::{Checkpoint, StopReason};
use mpf_ising::{Couplings, FitProgress, Penalty, Preflight, Samples, Support};
use mpf_samplers::{Gibbs, Sampler};
use ndarray::Array2;
use std::time::{Duration, Instant};

/// Evaluations of a fit whose trial says nothing, and those that a trial should have.
const PLAIN: f64 = 60.0;
const TRIED: f64 = 30.0;
/// The part of all fits that a trial may take, and its least and most seconds.
const TRIAL: f64 = 0.1;
const TRIAL_SECONDS: (f64, f64) = (0.05, 0.3);
/// The fewest distinct samples of a trial.
const TRIAL_SAMPLES: usize = 256;
/// The λ's of a path, and the part of a fit that each takes.
const PATH: f64 = 22.0;
const PATH_L1: f64 = 0.3;
const PATH_L2: f64 = 0.1;
/// The part of a fit that one to a part of the data takes, and one to a resample.
const AGAIN: f64 = 0.6;
const RESAMPLE: f64 = 0.6;
/// Chains that polishing sweeps in an update.
const POLISHED: f64 = 4000.0;
/// Sweeps of annealed importance sampling.
const ANNEALING: f64 = 2e5;
/// The most units whose states are enumerated, and that are annealed.
const ENUMERATED: usize = 24;
const ANNEALED: usize = 400;
/// Seconds of simple steps: of a sum over states, a factorisation, a decomposition, a product.
const PER_STATE: f64 = 2.5e-9;
const PER_PIVOT: f64 = 5e-10;
const PER_ROTATION: f64 = 7.5e-9;
const PER_PRODUCT: f64 = 1.2e-10;

/// The seconds that a fit is expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Without polishing that only a drifting model gets.
    pub seconds: f64,
    /// Those of that polishing; 0 if it cannot happen.
    pub polishing: f64,
}

/// What single steps take on these data, in seconds.
struct Pace<'a> {
    recipe: &'a Recipe,
    d: usize,
    /// All fits of the recipe once, and the last of them.
    fits: f64,
    last: f64,
    sweep: f64,
}

impl Expected {
    /// Adds up the steps of `recipe`, and the `elapsed` seconds before them.
    pub(super) fn new(
        recipe: &Recipe,
        samples: &Samples,
        preflight: &Preflight,
        elapsed: f64,
    ) -> Result<Self, Failure> {
        let d = samples.n_units();
        let clock = Instant::now();
        let threads = rayon::current_num_threads() as f64;
        let (fits, last) = Trial::new(recipe, samples, preflight)?.run()?;
        let pace = Pace {
            recipe,
            d,
            fits,
            last,
            sweep: seconds_per_sweep(samples, &recipe.options.support)? / threads,
        };
        let is_judged = recipe.held_out > 0.0;
        let judged = if is_judged {
            AGAIN * pace.last + pace.log_z()
        } else {
            0.0
        };
        let updates = |n: usize| {
            let once = n as f64 * POLISHED * pace.sweep;
            if is_judged {
                2.0 * once + pace.log_z()
            } else {
                once
            }
        };
        let (polished, polishing) = match recipe.polish {
            Polish::Updates(n) => (updates(n), 0.0),
            Polish::IfDrifting if recipe.last(d).describe().is_local => {
                (0.0, updates(Polish::DEFAULT_UPDATES))
            }
            Polish::IfDrifting => (0.0, 0.0),
        };
        let drift = (Drift::n_chains(d) * Drift::SWEEPS) as f64;
        let steps = pace.fit() + drift * pace.sweep + judged + polished + pace.errors(samples);
        Ok(Self {
            seconds: elapsed + clock.elapsed().as_secs_f64() + steps,
            polishing,
        })
    }
}

/// A short try of the fits of a recipe.
struct Trial<'a> {
    recipe: &'a Recipe,
    samples: &'a Samples,
    /// The first of many samples, of which more than a few evaluations would take too long.
    part: Option<Samples>,
    evaluation: f64,
    seconds: f64,
}

impl<'a> Trial<'a> {
    fn new(
        recipe: &'a Recipe,
        samples: &'a Samples,
        preflight: &Preflight,
    ) -> Result<Self, Failure> {
        let all = preflight.seconds * (1.0 + n_fits(recipe));
        // The end of a fit with a potential is slower than its beginning.
        let seconds = match recipe.options.potential {
            Some(_) => TRIAL_SECONDS.1,
            None => (TRIAL * all).clamp(TRIAL_SECONDS.0, TRIAL_SECONDS.1),
        };
        let evaluation = preflight.seconds / PLAIN;
        let n = samples.n_distinct();
        let most = (n as f64 * seconds / (TRIED * evaluation)) as usize;
        let most = most.max(TRIAL_SAMPLES);
        let part = if most < n {
            Some(Samples::new(&samples.states().slice(0..most))?)
        } else {
            None
        };
        Ok(Self {
            recipe,
            samples,
            part,
            evaluation,
            seconds,
        })
    }

    /// Returns the seconds of all fits, and of the last of them.
    fn run(&self) -> Result<(f64, f64), Failure> {
        let (recipe, options) = (self.recipe, &self.recipe.options);
        let last = recipe.last(self.samples.n_units());
        if recipe.choose.is_some() || std::ptr::addr_eq(last, recipe.method) {
            let (seconds, _) = self.fit(last, options)?;
            return Ok((seconds, seconds));
        }
        let (first, start) = self.fit(recipe.method, &Recipe::rough(options))?;
        let refining = MethodOptions {
            start,
            ..options.clone()
        };
        let (seconds, _) = self.fit(last, &refining)?;
        Ok((first + seconds, seconds))
    }

    /// Tries one fit; returns the seconds of the whole, and how far it got.
    fn fit(
        &self,
        method: &dyn Method,
        options: &MethodOptions,
    ) -> Result<(f64, Option<Couplings>), Failure> {
        let d = self.samples.n_units();
        let takes = method.describe().takes;
        if takes.contains(&Takes::Damping) {
            return Ok((PER_ROTATION * (d as f64).powi(3), None));
        }
        let samples = self.part.as_ref().unwrap_or(self.samples);
        let scale = self.samples.n_distinct() as f64 / samples.n_distinct() as f64;
        let mut options = options.clone();
        if takes.contains(&Takes::Penalties) {
            options.l2 = Some(options.l2_of(self.samples.n_effective()));
        }
        let minimizer = &mut options.minimizer;
        let cancel = minimizer.cancel.clone();
        minimizer.checkpoint = Checkpoint::default();
        minimizer.cancel = cancel.within(self.seconds);
        let mut trace = Vec::new();
        let clock = Instant::now();
        let fit = method.fit(samples, &options, &mut |at| trace.push(Point::new(at)));
        let seconds = clock.elapsed().as_secs_f64();
        if cancel.reason() == Some(StopReason::Cancelled) {
            return Err(Failure::interrupted());
        }
        let is_whole = fit.as_ref().is_ok_and(|f| f.stop != StopReason::TimeLimit);
        // What fails here fails again, with its message.
        let couplings = fit.ok().map(|fit| fit.couplings);
        if is_whole {
            return Ok((scale * seconds, couplings));
        }
        let (what, total) = method.steps(d, &options);
        let minimizer = &options.minimizer;
        let whole = match total {
            Some(total) => trace.last().map(|at| at.seconds_of(total)),
            None => seconds_to(minimizer.gradient_tolerance, &trace),
        };
        let most = match (what, trace.last()) {
            ("units" | "updates", _) | (_, None) => f64::INFINITY,
            (_, Some(at)) => at.seconds_of(minimizer.max_iterations),
        };
        let whole = whole.map_or(PLAIN * self.evaluation, |whole| scale * whole);
        Ok((whole.max(seconds).min(scale * most), couplings))
    }
}

/// Returns how many fits follow the first, roughly.
fn n_fits(recipe: &Recipe) -> f64 {
    let resamples = match recipe.errors {
        ErrorBarsBy::Bootstrap(resamples) => RESAMPLE * resamples as f64,
        _ => 0.0,
    };
    path_fits(recipe) + resamples
}

/// Returns how many whole fits a path takes.
fn path_fits(recipe: &Recipe) -> f64 {
    recipe.choose.as_ref().map_or(0.0, |path| {
        let part = match path.penalty {
            Penalty::L1 => PATH_L1,
            Penalty::L2 => PATH_L2,
        };
        PATH * part * (path.n_folds as f64 + 1.0)
    })
}

/// An iteration of a trial.
#[derive(Clone, Copy)]
struct Point {
    iteration: usize,
    seconds: f64,
    residual: f64,
}

impl Point {
    fn new(at: &FitProgress<'_>) -> Self {
        Self {
            iteration: at.iteration,
            seconds: at.seconds,
            residual: at.gradient_norm,
        }
    }

    /// Returns the seconds of so many iterations like those so far.
    fn seconds_of(self, iterations: usize) -> f64 {
        self.seconds * iterations as f64 / self.iteration.max(1) as f64
    }
}

/// Returns when the residual falls to `tolerance`, if it goes on as in the second half of the trial: by
/// the same factor in the same time. `None` if it did not fall there.
fn seconds_to(tolerance: f64, trace: &[Point]) -> Option<f64> {
    let end = trace.last()?.seconds;
    let lowest = |before: f64| {
        let points = trace.iter().filter(|at| at.seconds <= before);
        points.map(|at| at.residual).fold(f64::INFINITY, f64::min)
    };
    let (half, now) = (lowest(0.5 * end), lowest(end));
    let rate = (half / now).ln() / (0.5 * end);
    let left = (now / tolerance).ln() / rate;
    (rate > 0.0 && rate.is_finite()).then_some(end + left.max(0.0))
}

impl Pace<'_> {
    /// Returns the seconds until there is a model.
    fn fit(&self) -> f64 {
        match path_fits(self.recipe) {
            0.0 => self.fits,
            fits => fits * self.last,
        }
    }

    fn states(&self) -> f64 {
        PER_STATE * self.d as f64 * (self.d as f64).exp2()
    }

    fn log_z(&self) -> f64 {
        match self.d {
            d if d <= ENUMERATED => self.states(),
            d if d <= ANNEALED => ANNEALING * self.sweep,
            _ => 0.0,
        }
    }

    fn errors(&self, samples: &Samples) -> f64 {
        let last = self.recipe.last(self.d);
        match self.recipe.errors {
            ErrorBarsBy::Nothing => 0.0,
            ErrorBarsBy::Bootstrap(resamples) => resamples as f64 * RESAMPLE * self.last,
            ErrorBarsBy::Sandwich => {
                // Constant units have no parameters.
                let means = samples.means();
                let varying = means.iter().filter(|m| **m > 0.0 && **m < 1.0).count();
                let d = varying.max(1) as f64;
                let share = d / self.d as f64;
                let n_couplings = self.recipe.options.support.most_pairs(self.d) as f64;
                let n_couplings = share * share * n_couplings;
                let blocks = samples.n_observed() as f64;
                // A Hessian of all parameters, or one of every unit's.
                let (hessians, p) = match last.steps(self.d, &self.recipe.options).0 {
                    "units" => (d, 1.0 + 2.0 * n_couplings / d),
                    _ => (1.0, d + n_couplings),
                };
                let threads = rayon::current_num_threads() as f64;
                let products = PER_PRODUCT * blocks * p * p / threads;
                hessians * (3.0 * PER_PIVOT * p.powi(3) + products)
            }
        }
    }
}

/// Times sweeps of one chain over a model with the means of `samples` and couplings too weak to
/// matter. The fastest of some batches counts: others may have been disturbed.
fn seconds_per_sweep(samples: &Samples, support: &Support) -> Result<f64, Failure> {
    const BATCHES: usize = 20;
    const ENOUGH: Duration = Duration::from_micros(100);
    const WEAK: f64 = 1e-9;
    let d = samples.n_units();
    let mut j = Array2::zeros((d, d));
    // All different, as couplings of a fit are: some samplers gain by those that repeat.
    for (k, (a, b)) in support.pairs(d)?.into_iter().enumerate() {
        j[[a, b]] = WEAK / (1 + k) as f64;
        j[[b, a]] = j[[a, b]];
    }
    for (i, mean) in samples.means().into_iter().enumerate() {
        let mean = mean.clamp(WEAK, 1.0 - WEAK);
        j[[i, i]] = ((1.0 - mean) / mean).ln();
    }
    let gibbs = Gibbs::new(&Couplings::new(j)?)?;
    let mut rng = stream(0, 0);
    let mut state = gibbs.state(samples.states().row(0))?;
    let batches = (0..BATCHES).map(|_| {
        let (clock, mut sweeps) = (Instant::now(), 0.0);
        while clock.elapsed() < ENOUGH {
            gibbs.step(&mut state, &mut rng);
            sweeps += 1.0;
        }
        clock.elapsed().as_secs_f64() / sweeps
    });
    Ok(batches.fold(f64::INFINITY, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_trial_is_extrapolated() {
        let point = |k: usize| Point {
            iteration: k,
            seconds: 0.01 * k as f64,
            residual: 0.1f64.powf(k as f64 / 10.0),
        };
        let trace: Vec<Point> = (0..=20).map(point).collect();
        // From 1 to 0.01 in 0.2 s: another 0.4 s to 1e-6.
        let whole = seconds_to(1e-6, &trace).unwrap();
        assert!((whole - 0.6).abs() < 1e-9, "{whole}");
        assert_eq!(seconds_to(0.5, &trace), Some(0.2));
        assert_eq!(trace[20].seconds_of(200), 2.0);
        let still: Vec<Point> = trace
            .iter()
            .map(|at| Point {
                residual: 1.0,
                ..*at
            })
            .collect();
        assert_eq!(seconds_to(1e-6, &still), None);
        assert_eq!(seconds_to(1e-6, &[]), None);
    }
}
