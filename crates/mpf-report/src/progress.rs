//! Shows progress on a terminal, and nothing in a pipe.

use crate::text::duration;
pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Shows no bar and no spinner of this process from now on.
pub fn hide() {
    HIDDEN.store(true, Ordering::Relaxed);
}

fn target() -> ProgressDrawTarget {
    if HIDDEN.load(Ordering::Relaxed) {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(5)
    }
}

/// Returns a bar of `length` steps with the time that is left, hidden unless standard error is a
/// terminal.
pub fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target());
    let style = ProgressStyle::with_template("{prefix} [{bar:28}] {pos}/{len} {left} {msg}")
        .expect("the template is valid")
        .with_key("left", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", left(state.pos(), state.elapsed(), state.eta()));
        })
        .progress_chars("=> ");
    bar.with_style(style)
}

/// Says how long a bar has run and, after its first step, how long it will go on.
fn left(steps: u64, elapsed: Duration, eta: Duration) -> String {
    // Whole seconds do not flicker.
    let elapsed = duration(elapsed.as_secs_f64().round().max(1.0));
    match steps {
        0 => elapsed,
        _ => format!(
            "{elapsed}, {} left",
            duration(eta.as_secs_f64().round().max(1.0))
        ),
    }
}

/// Returns a spinner for work without steps to count, hidden like [`bar`].
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, target());
    let style =
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is valid");
    spinner.set_style(style);
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_long_it_will_go_on() {
        let [short, long] = [Duration::from_millis(300), Duration::from_secs(185)];
        assert_eq!(left(0, long, short), "3 min 5 s");
        assert_eq!(
            left(7, Duration::from_secs(12), long),
            "12 s, 3 min 5 s left"
        );
    }
}
