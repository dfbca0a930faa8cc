//! Progress bars of `mpf fit`, one for every step of its recipe.

use crate::console::Console;
use mpf_baselines::{ErrorBarsBy, Polish, Recipe, RecipeProgress};
use mpf_ising::FitProgress;
use mpf_report::progress::{ProgressBar, bar, spinner};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The bar of the step under way.
pub(super) struct Bars<'a> {
    recipe: &'a Recipe,
    n_units: usize,
    console: Console,
    current: Mutex<Option<Step>>,
}

struct Step {
    name: &'static str,
    start: Instant,
    bar: ProgressBar,
}

impl<'a> Bars<'a> {
    pub(super) fn new(recipe: &'a Recipe, n_units: usize, console: Console) -> Self {
        Self {
            recipe,
            n_units,
            console,
            current: Mutex::new(None),
        }
    }

    /// Shows a step.
    pub(super) fn show(&self, progress: &RecipeProgress<'_>) {
        match progress {
            RecipeProgress::Penalty(path) => {
                let bar = self.bar("penalties", Some(path.total));
                bar.set_position(path.done as u64);
            }
            RecipeProgress::Fit(title, step) => {
                let (what, total) = self.recipe.method.steps(self.n_units, &self.recipe.options);
                show_fit(&self.bar(title, total), step, what, total.is_some());
            }
            RecipeProgress::HeldOut => {
                self.bar("held-out check", None);
            }
            RecipeProgress::Drifting(..) => self.clear(),
            RecipeProgress::Polish(step) => {
                let total = match self.recipe.polish {
                    Polish::Updates(updates) => updates,
                    Polish::IfDrifting => Polish::DEFAULT_UPDATES,
                };
                show_fit(&self.bar("updates", Some(total)), step, "updates", true);
            }
            RecipeProgress::Sandwich => {
                self.bar("error bars", None);
            }
            RecipeProgress::Resample => {
                let total = match self.recipe.errors {
                    ErrorBarsBy::Bootstrap(resamples) => Some(resamples),
                    _ => None,
                };
                self.bar("resamples", total).inc(1);
            }
        }
    }

    /// Removes the bar; with `--verbose` says how long its step took.
    pub(super) fn clear(&self) {
        self.end(self.current().take());
    }

    fn end(&self, step: Option<Step>) {
        if let Some(step) = step {
            step.bar.finish_and_clear();
            self.console.stage(step.name, step.start.elapsed());
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Step>> {
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
        *current = Some(Step {
            name: what,
            start: Instant::now(),
            bar: bar.clone(),
        });
        bar
    }
}

/// Shows a step of a learner. A bar counts by itself, and contrastive divergence has no objective.
fn show_fit(bar: &ProgressBar, step: &FitProgress<'_>, what: &str, counted: bool) {
    bar.set_position(step.iteration as u64);
    bar.set_message(match (what, counted) {
        ("updates", _) => format!("moments differ by {:.1e}", step.value),
        (_, true) => format!("objective {:.6}", step.value),
        (_, false) => format!(
            "{} {what}, objective {:.6}, gradient {:.1e}",
            step.iteration, step.value, step.gradient_norm
        ),
    });
}
