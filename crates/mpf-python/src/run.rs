//! Runs work beside Python: without the GIL, on threads of its own, until Ctrl-C.

use mpf_cli::embed::{FAILED, Failure, Step};
use mpf_core::Cancel;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often signals are looked for, and progress is shown.
const PATIENCE: Duration = Duration::from_millis(50);
/// The time in which work may end by itself after Ctrl-C. A decomposition, say, hears nothing: it is
/// left to itself.
const GRACE: Duration = Duration::from_millis(500);

/// What stands in Python for options that have no parameter of their name, or one of other form.
const INSTEAD: [(&str, &str); 15] = [
    ("--assume", "assume=\"binary\" or \"spins\""),
    ("--binarize", "binarize=True, or a threshold"),
    ("--checkpoint", "in the program `mpf` alone"),
    ("--counts", "sample_weight"),
    ("--drop", "numpy.delete(X, column, axis=1)"),
    ("--force", "force=True"),
    ("--levels", "levels=(a, b)"),
    (
        "--missing",
        "missing=\"drop\" or \"mask\", and a missing entry is NaN",
    ),
    ("--model ising", "Ising"),
    ("--model k-pairwise", "KPairwise"),
    ("--model rbm", "RBM"),
    ("--nodewise", "nodewise=True"),
    ("--seed", "random_state"),
    ("--spins", "spins=True"),
    ("--transpose", "X.T"),
];

/// Adds what the options in a message of the command line are in Python, where that is not their name.
#[pyfunction]
pub fn in_python(message: String) -> String {
    let special = INSTEAD
        .iter()
        .filter(|(option, _)| message.contains(option));
    let special = special.map(|(option, python)| format!("{option} is {python}"));
    let words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let parameters = words.filter_map(|word| {
        let name = word.strip_prefix("--").filter(|name| name.contains('-'))?;
        Some(format!("{word} is {}", name.replace('-', "_")))
    });
    let all: BTreeSet<String> = special.chain(parameters).collect();
    match all.is_empty() {
        true => message,
        false => {
            let all = Vec::from_iter(all).join("; ");
            format!("{message}\nin Python: {all}")
        }
    }
}

/// Makes a Python exception, with the words of the command line.
pub fn exception(failure: Failure) -> PyErr {
    let text = in_python(match failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message,
    });
    match failure.code {
        mpf_cli::embed::INTERRUPTED => PyKeyboardInterrupt::new_err(text),
        FAILED if text.starts_with("cannot write") => PyOSError::new_err(text),
        FAILED => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// Makes a `ValueError` of an error of a library.
pub fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Runs `work`; a panic, which is a bug, becomes an exception.
pub fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str);
        let why = why.or_else(|| panic.downcast_ref::<&str>().copied());
        PyRuntimeError::new_err(format!(
            "a bug in minprobflow, please report it: {}",
            why.unwrap_or("no message")
        ))
    })
}

/// Panics on a thread of the pool, for the test of [`guarded`].
#[cfg(debug_assertions)]
#[pyfunction]
pub fn _panic(py: Python<'_>) -> PyResult<()> {
    run(py, 2, None, |_, _| -> Result<(), Failure> {
        panic!("asked to panic")
    })
}

/// Where work says how far it is.
pub type Progress<'a> = &'a (dyn Fn(&Step) + Sync);

/// Runs `work` on `n_threads` threads, 0 for all cores. Calls `show` with the name of a step, what is
/// done of it, its total and its latest numbers.
pub fn run<T: Send + 'static, E: Into<Failure> + Send + 'static>(
    py: Python<'_>,
    n_threads: usize,
    show: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Cancel, Progress<'_>) -> Result<T, E> + Send + 'static,
) -> PyResult<T> {
    // A pool for each call: one that is kept would not survive a fork.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
    let pool = pool.build().map_err(|error| {
        PyRuntimeError::new_err(format!("cannot start {n_threads} threads: {error}"))
    })?;
    let cancel = Cancel::new();
    let latest: Arc<Mutex<Option<Step>>> = Arc::default();
    let (sender, mut receiver) = channel();
    let (stop, written) = (cancel.clone(), latest.clone());
    pool.spawn(move || {
        let note = |step: &Step| {
            *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(step.clone());
        };
        let outcome = guarded(|| work(&stop, &note));
        // Nobody listens after an interruption.
        let _ = sender.send(outcome);
    });
    let mut interruption: Option<(PyErr, Instant)> = None;
    loop {
        let received = py.detach(move || (receiver.recv_timeout(PATIENCE), receiver));
        receiver = received.1;
        let outcome = match received.0 {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work ended without a result"));
            }
        };
        if let Some((error, since)) = interruption {
            if outcome.is_some() || since.elapsed() >= GRACE {
                return Err(error);
            }
            interruption = Some((error, since));
            continue;
        }
        match outcome {
            Some(Ok(result)) => return result.map_err(|error| exception(error.into())),
            Some(Err(panic)) => return Err(panic),
            None => {}
        }
        let step = latest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shown = match (step, show) {
            (Some(step), Some(show)) => show
                .call1((step.name, step.done, step.total, step.message))
                .map(drop),
            _ => Ok(()),
        };
        if let Err(error) = py.check_signals().and(shown) {
            cancel.cancel();
            interruption = Some((error, Instant::now()));
        }
    }
}
