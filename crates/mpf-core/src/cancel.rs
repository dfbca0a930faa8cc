//! A stop button for long computations.

use crate::Result;
use crate::error::Error;
use crate::minimize::StopReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A flag that stops a computation from another thread or a signal handler, or at a time.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Cancel {
    /// Returns a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the same flag, which is also set after so many seconds from now; an earlier limit
    /// stays. Times that no clock can show set no limit.
    #[must_use]
    pub fn within(&self, seconds: f64) -> Self {
        let limit = Duration::try_from_secs_f64(seconds).ok();
        let limit = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self {
            asked: self.asked.clone(),
            deadline: self.deadline.into_iter().chain(limit).min(),
        }
    }

    /// Asks for a stop before the next step. Results so far are kept.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether to stop: it was asked for, or the time is over.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Returns an error if the work is to stop.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Returns why to stop: [`StopReason::Cancelled`] or [`StopReason::TimeLimit`].
    pub fn reason(&self) -> Option<StopReason> {
        if self.asked.load(Ordering::Relaxed) {
            return Some(StopReason::Cancelled);
        }
        let is_late = self.deadline.is_some_and(|at| Instant::now() >= at);
        is_late.then_some(StopReason::TimeLimit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_asked_for_or_comes_with_time() {
        let plain = Cancel::new();
        let (late, early) = (plain.within(0.0), plain.within(1e6));
        assert_eq!(late.reason(), Some(StopReason::TimeLimit));
        assert_eq!(late.within(1e6).reason(), Some(StopReason::TimeLimit));
        assert_eq!((plain.reason(), early.reason()), (None, None));
        assert!(!plain.within(f64::INFINITY).is_cancelled());
        early.cancel();
        for flag in [&plain, &early, &late] {
            assert_eq!(flag.reason(), Some(StopReason::Cancelled));
        }
    }
}
