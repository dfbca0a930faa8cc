//! The opt-in backend: the C code of the crate `lbfgsb`, through its reverse-communication call.
//!
//! The C code keeps some of its state in static variables, and two minimisations at once disturb
//! each other: one lock serialises them. Its safe front end hides the iterations and the reason for
//! stopping, hence the direct call.

use super::search::{Halt, Search};
use std::sync::{Mutex, PoisonError};

/// Serialises the C minimisations.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The requests of the C code (`lbfgsb.h`).
mod task {
    pub(super) const START: i64 = 1;
    pub(super) const NEW_X: i64 = 2;
    /// "Evaluate at x": 10 to 15.
    pub(super) const FG: std::ops::RangeInclusive<i64> = 10..=15;
}

/// Minimises within the search's orthant, from its last accepted point.
#[allow(unsafe_code)]
pub(super) fn run(search: &mut Search<'_>) -> Halt {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let start = search.accepted.as_ref();
    let mut x = start.expect("the start is accepted first").theta.clone();
    let n = x.len();
    let m = search.options.memory;
    let (lower, upper) = search.orthant.bounds();
    // 0: no bound, 1: a lower one, 3: an upper one. Every finite bound is zero.
    let kinds: Vec<i64> = lower
        .iter()
        .zip(&upper)
        .map(|(l, u)| i64::from(l.is_finite()) + 3 * i64::from(u.is_finite()))
        .collect();
    let zeros = vec![0.0; n];
    let (n_c, m_c) = (n as i64, m as i64);
    let (mut f, mut g) = (0.0, vec![0.0; n]);
    let mut wa = vec![0.0; 2 * m * n + 5 * n + 11 * m * m + 8 * m];
    let mut iwa = vec![0i64; 3 * n];
    let mut csave = [0i64; 60];
    let mut lsave = [0i64; 4];
    let mut isave = [0i64; 44];
    let mut dsave = [0.0f64; 29];
    let mut task = task::START;
    loop {
        // SAFETY: every pointer is to a live buffer of the length that `setulb` documents for n
        // variables and m corrections, none of them alias, and the lock keeps its static
        // variables to this call.
        unsafe {
            lbfgsb::setulb(
                &raw const n_c,
                &raw const m_c,
                x.as_mut_ptr(),
                zeros.as_ptr(),
                zeros.as_ptr(),
                kinds.as_ptr(),
                &raw mut f,
                g.as_mut_ptr(),
                &raw const NO_VALUE_TEST,
                &raw const search.options.gradient_tolerance,
                wa.as_mut_ptr(),
                iwa.as_mut_ptr(),
                &raw mut task,
                &raw const SILENT,
                csave.as_mut_ptr(),
                lsave.as_mut_ptr(),
                isave.as_mut_ptr(),
                dsave.as_mut_ptr(),
            );
        }
        if task::FG.contains(&task) {
            match search.evaluate(&x, &mut g) {
                Ok(value) => f = value,
                Err(stop) => return stop.into(),
            }
        } else if task == task::NEW_X {
            if let Err(halt) = search.accept(&x, f, &g, || None, false) {
                return halt;
            }
        } else {
            return Halt::Orthant;
        }
    }
}

/// Never stops because the value changes little.
static NO_VALUE_TEST: f64 = 0.0;
/// Prints nothing.
static SILENT: i64 = -1;
