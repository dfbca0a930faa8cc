//! Progress bars of `mpf fit`, one for every step of its recipe.

use crate::console::Console;
use mpf_baselines::{ErrorBarsBy, Polish, Recipe, RecipeProgress};
use mpf_ising::FitProgress;
use mpf_report::progress::{ProgressBar, bar, spinner};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where a fit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is being done; empty between two steps.
    pub name: &'static str,
    /// How much of it is done; `None` for one more, or where nothing is counted.
    pub done: Option<usize>,
    /// How much there is, if that is known.
    pub total: Option<usize>,
    /// The latest numbers.
    pub message: Option<String>,
}

/// Shows a step to the user.
pub type Show<'a> = &'a (dyn Fn(&Step) + Sync);

impl Step {
    /// Describes the step that `recipe` is at.
    pub(super) fn new(recipe: &Recipe, n_units: usize, progress: &RecipeProgress<'_>) -> Self {
        let step = |name, done, total| Self {
            name,
            done,
            total,
            message: None,
        };
        match progress {
            RecipeProgress::Penalty(path) => step("penalties", Some(path.done), Some(path.total)),
            RecipeProgress::Fit(method, at) => {
                let (what, total) = method.steps(n_units, &recipe.options);
                Self::of_fit(method.describe().title, total, at, what)
            }
            RecipeProgress::HeldOut => step("held-out check", None, None),
            RecipeProgress::Drifting(..) => step("", None, None),
            RecipeProgress::Polish(at) => {
                let total = match recipe.polish {
                    Polish::Updates(updates) => updates,
                    Polish::IfDrifting => Polish::DEFAULT_UPDATES,
                };
                Self::of_fit("updates", Some(total), at, "updates")
            }
            RecipeProgress::Sandwich => step("error bars", None, None),
            RecipeProgress::Resample => {
                let total = match recipe.errors {
                    ErrorBarsBy::Bootstrap(resamples) => Some(resamples),
                    _ => None,
                };
                step("resamples", None, total)
            }
        }
    }

    /// Describes a step of a learner. A bar counts by itself, and contrastive divergence has no
    /// objective.
    fn of_fit(name: &'static str, total: Option<usize>, at: &FitProgress<'_>, what: &str) -> Self {
        Self {
            name,
            done: Some(at.iteration),
            total,
            message: Some(match (what, total) {
                ("updates", _) => format!("moments differ by {:.1e}", at.value),
                (_, Some(_)) => format!("objective {:.6}", at.value),
                (_, None) => format!(
                    "{} {what}, objective {:.6}, gradient {:.1e}",
                    at.iteration, at.value, at.gradient_norm
                ),
            }),
        }
    }
}

/// The bar of the step under way.
pub(crate) struct Bars {
    console: Console,
    current: Mutex<Option<Shown>>,
}

struct Shown {
    name: &'static str,
    start: Instant,
    bar: ProgressBar,
}

impl Bars {
    pub(crate) fn new(console: Console) -> Self {
        Self {
            console,
            current: Mutex::new(None),
        }
    }

    /// Shows a step.
    pub(crate) fn show(&self, step: &Step) {
        if step.name.is_empty() {
            return self.clear();
        }
        let bar = self.bar(step.name, step.total);
        match step.done {
            Some(done) => bar.set_position(done as u64),
            None if step.total.is_some() => bar.inc(1),
            None => {}
        }
        if let Some(message) = &step.message {
            bar.set_message(message.clone());
        }
    }

    /// Removes the bar; with `--verbose` says how long its step took.
    pub(crate) fn clear(&self) {
        self.end(self.current().take());
    }

    fn end(&self, step: Option<Shown>) {
        if let Some(step) = step {
            step.bar.finish_and_clear();
            self.console.stage(step.name, step.start.elapsed());
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Shown>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bar that counts `what`; it replaces that of the step before.
    fn bar(&self, what: &'static str, total: Option<usize>) -> ProgressBar {
        let mut current = self.current();
        if let Some(step) = current.as_ref().filter(|step| step.name == what) {
            return step.bar.clone();
        }
        self.end(current.take());
        let bar = match total {
            Some(total) => bar(total as u64).with_prefix(what),
            None => spinner(what),
        };
        *current = Some(Shown {
            name: what,
            start: Instant::now(),
            bar: bar.clone(),
        });
        bar
    }
}
