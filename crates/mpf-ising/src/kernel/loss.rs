//! φ, the function of the margin that an objective sums.

use super::lanes::{Lanes, Portable};

/// φ, a convex decreasing function of the margin a = s_i (h_i + Σ_j K_ij s_j). The margin is large
/// where unit i is much likelier in its own state than flipped.
pub trait MarginLoss: Copy + Send + Sync {
    /// Returns (φ(a), φ′(a)) of four margins. Mark it `#[inline(always)]`: it becomes part of
    /// vector code. Overflow is ±∞; only a NaN may give NaN.
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V);

    /// Returns φ″(a) ≥ 0, for standard errors; +∞ on overflow.
    fn curvature(self, margin: f64) -> f64;

    /// Returns whether φ(a) is exactly exp(−a), which admits a shortcut.
    fn is_exponential(self) -> bool {
        false
    }
}

/// Returns φ and φ′ at one margin.
pub(crate) fn at_one_margin(loss: impl MarginLoss, margin: f64) -> (f64, f64) {
    let (value, slope) = loss.value_and_slope(Portable::splat(margin));
    let (mut values, mut slopes) = ([0.0; 4], [0.0; 4]);
    value.store(&mut values);
    slope.store(&mut slopes);
    (values[0], slopes[0])
}

/// φ(a) = exp(−a − shift): the rate of the flip, which MPF (and RISE) sum. +∞ from an exponent of
/// 710 on.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowRate {
    /// Taken out of every exponent; 0 for the flow itself.
    pub shift: f64,
}

impl MarginLoss for FlowRate {
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let rate = (-margin - V::splat(self.shift)).exp();
        (rate, -rate)
    }

    fn curvature(self, margin: f64) -> f64 {
        (-margin - self.shift).exp()
    }

    fn is_exponential(self) -> bool {
        self.shift == 0.0
    }
}
