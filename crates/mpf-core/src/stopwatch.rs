//! Measures learning time: observers, checkpoints and diagnostics run off the clock.

use std::time::{Duration, Instant};

/// A stopwatch that starts at once and can be paused.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    elapsed: Duration,
    since: Instant,
}

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Self {
        Self::start_at(0.0)
    }

    /// Starts at `seconds`, the reading of an earlier run. A negative or non-finite reading counts
    /// as zero.
    pub fn start_at(seconds: f64) -> Self {
        Self {
            elapsed: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            since: Instant::now(),
        }
    }

    /// Returns the seconds on the clock.
    pub fn seconds(&self) -> f64 {
        self.elapsed
            .saturating_add(self.since.elapsed())
            .as_secs_f64()
    }

    /// Runs `f` off the clock.
    pub fn pause<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.elapsed = self.elapsed.saturating_add(self.since.elapsed());
        let result = f();
        self.since = Instant::now();
        result
    }

    /// Subtracts `time` that another thread spent off the clock.
    pub fn discount(&mut self, time: Duration) {
        let now = Instant::now();
        let total = self.elapsed.saturating_add(now - self.since);
        self.elapsed = total.saturating_sub(time);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count_and_bad_readings_are_zero() {
        let mut watch = Stopwatch::start_at(100.0);
        watch.pause(|| std::thread::sleep(Duration::from_millis(30)));
        watch.discount(Duration::from_secs(50));
        let seconds = watch.seconds();
        assert!((50.0..50.02).contains(&seconds), "{seconds}");
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(Stopwatch::start_at(bad).seconds() < 1.0);
        }
    }
}
