//! Shows progress on a terminal, and nothing in a pipe.

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Returns a bar of `length` steps, hidden unless standard error is a terminal.
pub fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{prefix} [{bar:28}] {pos}/{len} {elapsed} {msg}")
        .expect("the template is valid")
        .progress_chars("=> ");
    bar.with_style(style)
}

/// Returns a spinner for work without steps to count, hidden like [`bar`].
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style =
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is valid");
    spinner.set_style(style);
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}
