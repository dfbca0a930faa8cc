//! Shifts of the margins that depend on how many units of a sample are active.
//!
//! ```text
//! E(x) = xᵀJx + V(n), n = Σ_i x_i:   a_mi += ½ [V(n_m ∓ 1) − V(n_m)]     − where x_mi = 1, + where 0
//! ```
//!
//! Two numbers per sample, one for its silent and one for its active units, and back come the two sums
//! of their slopes.

use super::lanes::Lanes;
use crate::bits::Samples;

/// The number of active units of every sample, and the shifts by number.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    of_sample: Vec<u32>,
    /// Of silent and of active units; +∞ leaves their flips out.
    shifts: Vec<[f64; 2]>,
    /// exp(−shift).
    rates: Vec<[f64; 2]>,
}

/// By number of active units, the sums of w φ′ over silent and over active units.
pub(super) type CountSums<V> = Vec<[<V as Lanes>::Line; 2]>;

impl Counts {
    /// Counts, with shifts of 0.
    pub(crate) fn new(samples: &Samples) -> Self {
        let numbers = samples.n_units() + 1;
        let mut counts = Self {
            of_sample: Vec::new(),
            shifts: vec![[0.0; 2]; numbers],
            rates: vec![[1.0; 2]; numbers],
        };
        counts.recount(samples);
        counts
    }

    /// Counts other samples, with the same shifts.
    pub(super) fn recount(&mut self, samples: &Samples) {
        let count = |row: &[u64]| row.iter().map(|w| w.count_ones()).sum::<u32>();
        self.of_sample.clear();
        self.of_sample.extend(samples.states().rows().map(count));
    }

    /// Sets the shifts of the silent and the active units of samples with `n` of them.
    pub(crate) fn set(&mut self, n: usize, shifts: [f64; 2]) {
        self.shifts[n] = shifts;
        self.rates[n] = shifts.map(|s| (-s).exp());
    }

    /// Returns the largest shift that is not infinite.
    pub(super) fn bound(&self) -> f64 {
        let shifts = self.shifts.as_flattened().iter();
        let finite = shifts.filter(|s| **s != f64::INFINITY);
        // A NaN must not get lost: it bounds nothing.
        let larger = |m: f64, s: f64| if s.abs() <= m { m } else { s.abs() };
        finite.copied().fold(0.0, larger)
    }

    /// Returns n of a sample.
    #[inline(always)]
    pub(super) fn of(&self, m: usize) -> usize {
        self.of_sample[m] as usize
    }

    /// Returns the units of a sample whose flips are kept, given those that are active.
    #[inline(always)]
    pub(super) fn kept(&self, n: usize, on: u32) -> u32 {
        let [silent, active] = self.shifts[n];
        let keep = |shift: f64, units: u32| if shift == f64::INFINITY { 0 } else { units };
        keep(silent, !on) | keep(active, on)
    }

    /// Returns the shift of every unit, or exp(−shift) for `RATES`. Flips left out have none.
    #[inline(always)]
    pub(super) fn shift<V: Lanes, const RATES: bool>(&self, n: usize, on: u32) -> V {
        let [silent, active] = if RATES { self.rates[n] } else { self.shifts[n] };
        let number = |shift: f64| if shift.is_finite() { shift } else { 0.0 };
        V::select(on, V::splat(number(active)), V::splat(number(silent)))
    }

    /// Begins the sums of one task.
    pub(super) fn no_sums<V: Lanes>(&self) -> CountSums<V> {
        vec![[V::ZEROS; 2]; self.shifts.len()]
    }
}

/// Adds w φ′ of some units of a sample to the sums.
#[inline(always)]
pub(super) fn add<V: Lanes>(sums: &mut [V::Line; 2], slope: V, on: u32) {
    let [silent, active] = sums;
    (V::load(silent) + slope.keep(!on)).store(silent);
    (V::load(active) + slope.keep(on)).store(active);
}

/// Returns the sums as numbers.
#[inline(always)]
pub(super) fn finish<V: Lanes>(sums: &CountSums<V>) -> Vec<[f64; 2]> {
    let mut all = vec![[0.0; 2]; sums.len()];
    for (numbers, sums) in all.iter_mut().zip(sums) {
        for (number, sum) in numbers.iter_mut().zip(sums) {
            *number = V::load(sum).sum();
        }
    }
    all
}
