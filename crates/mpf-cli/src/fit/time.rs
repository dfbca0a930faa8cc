//! The time that the steps of a fit take: evaluations of the flow and sweeps of a Gibbs chain, both
//! timed on these data, times how many of them a step usually needs.
//!
//! ```text
//! fit          60 evaluations; 30 for one that is refined, and 35 of the refinement
//! penalty      22 λ's, 32 evaluations each for all data and every fold
//! held out     35 evaluations, 2·10⁵ sweeps of annealing (or 2^d states), at most 10⁵ of drifting chains
//! polishing    4000 sweeps an update, for all data and for the part
//! error bars   35 evaluations a resample; or p³ for a Hessian, three times
//! ```
//!
//! The counts are those of lattices and recordings. Strong couplings take several times as many.

use crate::failure::Failure;
use mpf_baselines::{Drift, ErrorBarsBy, Method, Polish, Recipe, Takes};
use mpf_core::rng::stream;
use mpf_ising::{Couplings, Preflight, Samples, Support};
use mpf_samplers::{Gibbs, Sampler};
use ndarray::Array2;
use std::time::{Duration, Instant};

/// Evaluations of a fit from a start without couplings.
const PLAIN: f64 = 60.0;
/// Evaluations of a fit that is refined.
const ROUGH: f64 = 30.0;
/// Evaluations of a refinement.
const REFINED: f64 = 35.0;
/// Evaluations of a fit that starts from one to similar data.
const AGAIN: f64 = 35.0;
/// The λ's of a path, and the evaluations of each fit along it.
const PATH: (f64, f64) = (22.0, 32.0);
/// Chains that polishing sweeps in an update.
const POLISHED: f64 = 4000.0;
/// Sweeps of annealed importance sampling.
const ANNEALING: f64 = 2e5;
/// The most units whose states are enumerated, and that are annealed.
const ENUMERATED: usize = 24;
const ANNEALED: usize = 400;
/// Seconds of simple steps: of a sum over states, a factorisation, a decomposition, a product, the
/// moment of a pair.
const PER_STATE: f64 = 2.5e-9;
const PER_PIVOT: f64 = 5e-10;
const PER_ROTATION: f64 = 7.5e-9;
const PER_PRODUCT: f64 = 1.2e-10;
const PER_PAIR: f64 = 1e-9;

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
    n_distinct: f64,
    evaluation: f64,
    sweep: f64,
}

impl Expected {
    /// Adds up the steps of `recipe`.
    pub(super) fn new(
        recipe: &Recipe,
        samples: &Samples,
        preflight: &Preflight,
    ) -> Result<Self, Failure> {
        let d = samples.n_units();
        let threads = rayon::current_num_threads() as f64;
        let pace = Pace {
            recipe,
            d,
            n_distinct: samples.n_distinct() as f64,
            evaluation: preflight.seconds / PLAIN,
            sweep: seconds_per_sweep(samples, &recipe.options.support)? / threads,
        };
        let last = recipe.last(d);
        let is_refined = !std::ptr::addr_eq(last, recipe.method);
        let is_judged = recipe.held_out > 0.0;
        let fit = match (&recipe.choose, is_refined) {
            (Some(path), _) => {
                let folds = path.n_folds as f64 + 1.0;
                PATH.0 * folds * pace.fit(last, PATH.1)
            }
            (None, true) => pace.fit(recipe.method, ROUGH) + pace.fit(last, REFINED),
            (None, false) => pace.fit(last, PLAIN),
        };
        let judged = if is_judged {
            pace.fit(last, AGAIN) + pace.log_z()
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
            Polish::IfDrifting if last.describe().is_local => {
                (0.0, updates(Polish::DEFAULT_UPDATES))
            }
            Polish::IfDrifting => (0.0, 0.0),
        };
        let drift = (Drift::n_chains(d) * Drift::SWEEPS) as f64;
        let seconds = fit + drift * pace.sweep + judged + polished + pace.errors(samples);
        Ok(Self { seconds, polishing })
    }
}

impl Pace<'_> {
    /// Returns the seconds of a fit with so many evaluations.
    fn fit(&self, method: &dyn Method, evaluations: f64) -> f64 {
        let description = method.describe();
        let options = &self.recipe.options;
        let takes = |what: &Takes| description.takes.contains(what);
        if takes(&Takes::Updates) {
            let sweeps = (options.updates * options.sweeps) as f64 * self.n_distinct;
            let pairs = 0.5 * (self.d * self.d) as f64;
            let moments = options.updates as f64 * self.n_distinct * pairs * PER_PAIR;
            return sweeps * self.sweep + moments / rayon::current_num_threads() as f64;
        }
        if takes(&Takes::Damping) {
            return PER_ROTATION * (self.d as f64).powi(3);
        }
        let one = match description.name {
            "ml" => self.states(),
            // Of repeated rows, a logarithm each.
            "pl" => 2.2 * self.evaluation,
            "independent" => 0.0,
            _ => self.evaluation,
        };
        evaluations * one
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
            ErrorBarsBy::Bootstrap(resamples) => resamples as f64 * self.fit(last, AGAIN),
            ErrorBarsBy::Sandwich => {
                let d = self.d as f64;
                let n_couplings = self.recipe.options.support.most_pairs(self.d) as f64;
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
    const ENOUGH: Duration = Duration::from_millis(1);
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
