//! φ, the function of the margin that an objective sums.

use super::lanes::{Lanes, Number, Portable};

/// φ, a convex decreasing function of the margin a = s_i (h_i + Σ_j K_ij s_j). The margin is large
/// where unit i is much likelier in its own state than flipped.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum MarginLoss {
    /// φ(a) = exp(−a − shift): the rate of the flip, which MPF (and RISE) sum. +∞ from an exponent
    /// of 710 on.
    FlowRate {
        /// Taken out of every exponent; 0 for the flow itself.
        shift: f64,
    },
    /// φ(a) = ln(1 + exp(−2a)) = −ln p(x_i | the others), which pseudolikelihood sums.
    Logistic,
}

impl MarginLoss {
    /// The flow itself.
    pub const FLOW: Self = Self::FlowRate { shift: 0.0 };

    /// Returns (φ(a), φ′(a)) of one margin. Overflow is ±∞; only a NaN gives NaN.
    pub fn value_and_slope(self, margin: f64) -> (f64, f64) {
        let (value, slope) = self.of_margins(Portable::splat(margin));
        (first(value), first(slope))
    }

    /// Returns (φ(a), φ′(a)) of the margins in all lanes.
    #[inline(always)]
    pub(super) fn of_margins<V: Lanes>(self, margins: V) -> (V, V) {
        match self {
            Self::FlowRate { shift } => FlowRate { shift }.value_and_slope(margins),
            Self::Logistic => Logistic.value_and_slope(margins),
        }
    }

    /// Returns φ″(a) ≥ 0, for standard errors; +∞ on overflow.
    pub fn curvature(self, margin: f64) -> f64 {
        match self {
            Self::FlowRate { shift } => (-margin - shift).exp(),
            // Even in a.
            Self::Logistic => {
                let odds = (-2.0 * margin.abs()).exp();
                4.0 * odds / ((1.0 + odds) * (1.0 + odds))
            }
        }
    }
}

/// A loss in vector code: one type each, so that kernels are compiled for it.
pub(super) trait LaneLoss: Copy + Send + Sync {
    /// Returns (φ(a), φ′(a)) of the margins in all lanes. Mark it `#[inline(always)]`: it becomes
    /// part of vector code.
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V);

    /// Returns φ and φ′ given exp(−a), if that takes no exponential: kernels can then multiply
    /// tabulated exponentials. Mark it `#[inline(always)]`.
    fn of_rate<V: Lanes>(self, rate: V) -> Option<(Term<V>, V)>;
}

/// One φ of a sum of many.
#[derive(Clone, Copy, Debug)]
pub(super) enum Term<V> {
    /// φ itself.
    Plain(V),
    /// t of φ = ln(1 + t): one logarithm serves the product of many 1 + t.
    LnOnePlus(V),
}

/// Σ w φ in the making.
pub(super) struct Total<V> {
    sum: V,
    /// Π (1 + t) − 1 over the last `n` terms; small t keep their digits.
    product: V,
    n: usize,
    most: usize,
}

impl<V: Lanes> Total<V> {
    /// Begins with nothing. A product may take as many terms as [`terms_per_product`] says.
    #[inline(always)]
    pub(super) fn new(terms_per_product: Option<usize>) -> Self {
        Self {
            sum: V::splat(0.0),
            product: V::splat(0.0),
            n: 0,
            most: terms_per_product.unwrap_or(1),
        }
    }

    /// Adds w φ in the lanes that are `kept`.
    #[inline(always)]
    pub(super) fn add(&mut self, phi: V, weight: V, kept: u32) {
        self.sum = phi.keep(kept).times_plus(weight, self.sum);
    }

    /// Adds w φ at exp(−a) in the lanes that are `kept`, and returns φ′ in all.
    #[inline(always)]
    pub(super) fn add_of_rate(&mut self, loss: impl LaneLoss, rate: V, weight: V, kept: u32) -> V {
        let (term, slope) = loss.of_rate(rate).expect("a loss of rates, as was checked");
        match term {
            Term::Plain(phi) => self.add(phi, weight, kept),
            Term::LnOnePlus(t) => {
                let others = self.product + V::splat(1.0);
                self.product = t.keep(kept).times_plus(others, self.product);
                self.n += 1;
                if self.n == self.most {
                    self.end_product(weight);
                }
            }
        }
        slope
    }

    #[inline(always)]
    fn end_product(&mut self, weight: V) {
        self.sum = self.product.ln_1p().times_plus(weight, self.sum);
        self.product = V::splat(0.0);
        self.n = 0;
    }

    /// Returns the sum.
    #[inline(always)]
    pub(super) fn finish(mut self) -> f64 {
        if self.n > 0 {
            // Products of several terms are of weight 1.
            self.end_product(V::splat(1.0));
        }
        self.sum.sum()
    }
}

/// Returns how many terms a product can take while |a| ≤ `bound`, or `None` if the loss does not
/// follow from exp(−a) or even one term may leave the range of `N`. Weights need a logarithm each.
pub(super) fn terms_per_product<N: Number>(
    loss: MarginLoss,
    bound: f64,
    is_weighted: bool,
) -> Option<usize> {
    /// Enough that logarithms cost next to nothing.
    const MOST: usize = 64;
    // A bound that is NaN bounds nothing.
    if bound.is_nan() || bound >= N::SAFE_EXPONENT {
        return None;
    }
    let rate = Portable::splat(bound.exp());
    let term = match loss {
        MarginLoss::FlowRate { shift } => FlowRate { shift }.of_rate(rate),
        MarginLoss::Logistic => Logistic.of_rate(rate),
    };
    match term?.0 {
        Term::Plain(_) => Some(1),
        Term::LnOnePlus(t) => {
            let terms = (N::SAFE_EXPONENT / first(t).ln_1p()) as usize;
            let most = if is_weighted { 1 } else { MOST };
            (terms > 0).then_some(terms.min(most))
        }
    }
}

fn first(lanes: Portable) -> f64 {
    let mut line = Portable::ZEROS;
    lanes.store(&mut line);
    line.0[0]
}

/// [`MarginLoss::FlowRate`].
#[derive(Clone, Copy)]
pub(super) struct FlowRate {
    pub(super) shift: f64,
}

impl LaneLoss for FlowRate {
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let rate = (-margin - V::splat(self.shift)).exp();
        (rate, -rate)
    }

    #[inline(always)]
    fn of_rate<V: Lanes>(self, rate: V) -> Option<(Term<V>, V)> {
        (self.shift == 0.0).then_some((Term::Plain(rate), -rate))
    }
}

/// [`MarginLoss::Logistic`].
#[derive(Clone, Copy)]
pub(super) struct Logistic;

impl LaneLoss for Logistic {
    /// Only exp(−2|a|) is ever taken, so that nothing overflows and small losses keep their
    /// digits.
    ///
    /// φ = y + ln(1 + q) and φ′ = −2 min(q + y, 1)/(1 + q), with q = exp(−2|a|) and
    /// y = max(−2a, 0): for a ≥ 0 the minimum is q, and below 0 it is 1, since e^{−y} + y ≥ 1.
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let (one, two) = (V::splat(1.0), V::splat(2.0));
        let q = (-two * margin.abs()).exp();
        let y = (-two * margin).at_least(V::splat(0.0));
        (
            y + q.ln_1p_unit(),
            -two * ((q + y).at_most(one) / (one + q)),
        )
    }

    /// With t = exp(−2a): φ = ln(1 + t) and φ′ = −2 t/(1 + t).
    #[inline(always)]
    fn of_rate<V: Lanes>(self, rate: V) -> Option<(Term<V>, V)> {
        let t = rate * rate;
        let slope = V::splat(-2.0) * t / (V::splat(1.0) + t);
        Some((Term::LnOnePlus(t), slope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logistic_loss_is_safe_and_right() {
        let loss = |a| MarginLoss::Logistic.value_and_slope(a);
        // ln(1 + e^{−2a}) and −2/(1 + e^{2a}), where nothing overflows.
        for a in [-30.0f64, -3.0, -0.4, -1e-9, 0.0, 1e-9, 0.7, 12.0] {
            let (value, slope) = loss(a);
            let expected = (-2.0 * a).exp().ln_1p();
            // A few roundings each.
            assert!((value - expected).abs() <= 8.0 * f64::EPSILON * expected);
            let expected = -2.0 / (1.0 + (2.0 * a).exp());
            assert!((slope - expected).abs() <= 8.0 * f64::EPSILON * expected.abs());
            let expected = 1.0 / a.cosh().powi(2);
            let curvature = MarginLoss::Logistic.curvature(a);
            // e^{2a} and cosh a each err by |a| roundings of the exponent.
            assert!((curvature - expected).abs() <= 1e-13 * expected);
        }
        assert_eq!(loss(-1e6), (2e6, -2.0));
        assert_eq!(loss(1e6), (0.0, -0.0));
        assert!((loss(20.0).0 / (-40f64).exp() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn the_flow_rate_is_an_exponential() {
        let loss = MarginLoss::FlowRate { shift: 0.5 };
        let expected = f64::exp(-0.8);
        let (value, slope) = loss.value_and_slope(0.3);
        assert!((value - expected).abs() < 1e-15 && (slope + expected).abs() < 1e-15);
        assert!((loss.curvature(0.3) - expected).abs() < 1e-15);
    }

    #[test]
    fn one_logarithm_serves_a_product_and_keeps_small_terms() {
        for exponent in [-599.0, -40.0, -1.0, 0.0, 3.0, 90.0, 299.0] {
            let bound = f64::abs(exponent / 2.0).max(1.0);
            let most = terms_per_product::<f64>(MarginLoss::Logistic, bound, false);
            let mut total = Total::<Portable>::new(most);
            let one = Portable::splat(1.0);
            for _ in 0..100 {
                let rate = Portable::splat(f64::exp(exponent / 2.0));
                // Three of eight lanes count.
                let _ = total.add_of_rate(Logistic, rate, one, 0b1001_0001);
            }
            let expected = 300.0 * f64::exp(exponent).ln_1p();
            let off = total.finish() / expected - 1.0;
            assert!(off.abs() < 1e-13, "{exponent}: {off:e}");
        }
        assert_eq!(
            terms_per_product::<f64>(MarginLoss::Logistic, 1.0, true),
            Some(1)
        );
        assert_eq!(
            terms_per_product::<f64>(MarginLoss::Logistic, 301.0, false),
            None
        );
        assert_eq!(
            terms_per_product::<f64>(MarginLoss::Logistic, f64::NAN, false),
            None
        );
        assert_eq!(
            terms_per_product::<f32>(MarginLoss::Logistic, 31.0, false),
            None
        );
        assert_eq!(
            terms_per_product::<f64>(MarginLoss::FlowRate { shift: 1.0 }, 1.0, false),
            None
        );
    }
}
