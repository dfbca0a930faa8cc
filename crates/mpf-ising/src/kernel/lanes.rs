//! Four numbers at once.
//!
//! Kernels are written once, over [`Lanes`]; [`Portable`] is plain Rust, and the module `simd`
//! has the vector registers. The elementary functions are ours, so both compute the same
//! formula.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Four `f64` that are worked on together.
///
/// Not for general use: it has what the kernels need. Operators and methods act lane by lane.
pub trait Lanes:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Returns `value` in all lanes.
    fn splat(value: f64) -> Self;
    /// Reads four numbers.
    fn load(from: &[f64; 4]) -> Self;
    /// Writes four numbers.
    fn store(self, to: &mut [f64; 4]);
    /// Returns a · b + c, rounded once where the machine can.
    fn times_plus(self, factor: Self, summand: Self) -> Self;
    /// Returns the smaller of the two; NaN stays NaN.
    fn at_most(self, bound: Self) -> Self;
    /// Returns the larger of the two; NaN stays NaN.
    fn at_least(self, bound: Self) -> Self;
    /// Returns the bits that are set in both.
    fn and(self, mask: Self) -> Self;
    /// Returns the bits that are set in exactly one.
    fn xor(self, mask: Self) -> Self;
    /// Returns `yes` in the lanes whose mask is all ones, `no` in those where it is all zeros.
    fn select(mask: Self, yes: Self, no: Self) -> Self;
    /// Returns 2ⁿ, given n + 1.5 · 2⁵² with −1022 ≤ n ≤ 1023: the integer sits in the low bits.
    fn power_of_two(shifted: Self) -> Self;
    /// Returns the sum of the lanes, in the order (a₀ + a₂) + (a₁ + a₃).
    fn sum(self) -> f64;

    /// Returns |a|.
    #[inline(always)]
    fn abs(self) -> Self {
        self.and(Self::splat(f64::from_bits(!(1 << 63))))
    }

    /// Returns eᵃ to about one unit in the last place; overflows to +∞, underflows to 0.
    ///
    /// a = n ln 2 + r with |r| ≤ ½ ln 2; eʳ by its Taylor polynomial of degree 13, whose
    /// remainder is below 2⁻⁵⁶; 2ⁿ in two factors, so that neither leaves the range of `f64`
    /// before the result does.
    #[inline(always)]
    fn exp(self) -> Self {
        const SHIFT: f64 = 1.5 * (1u64 << 52) as f64;
        // ln 2 in two parts; n times the first is exact for |n| < 2¹¹.
        const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
        const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
        // 1/k!, from k = 13 down to 0; every k! here is exact.
        const TAYLOR: [f64; 14] = {
            let mut coefficients = [1.0; 14];
            let mut factorial = 1.0;
            let mut k = 1;
            while k < 14 {
                factorial *= k as f64;
                coefficients[13 - k] = 1.0 / factorial;
                k += 1;
            }
            coefficients
        };
        // Beyond these the result is 0 or +∞ in any case.
        let a = self
            .at_least(Self::splat(-760.0))
            .at_most(Self::splat(720.0));
        let shift = Self::splat(SHIFT);
        let n = a.times_plus(Self::splat(std::f64::consts::LOG2_E), shift) - shift;
        let r = n.times_plus(Self::splat(-LN2_HIGH), a);
        let r = n.times_plus(Self::splat(-LN2_LOW), r);
        let mut p = Self::splat(TAYLOR[0]);
        for c in &TAYLOR[1..] {
            p = p.times_plus(r, Self::splat(*c));
        }
        let half = n.times_plus(Self::splat(0.5), shift);
        let rest = n - (half - shift) + shift;
        p * Self::power_of_two(half) * Self::power_of_two(rest)
    }

    /// Returns ln(1 + a) for 0 ≤ a ≤ 1, to about one unit in the last place.
    ///
    /// ln(1 + a) = 2 artanh y with y = a/(2 + a) ≤ ⅓, by the series Σ y^{2k+1}/(2k + 1); the
    /// first term left out is below 2⁻⁵⁵ of the sum.
    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        let y = self / (self + Self::splat(2.0));
        let square = y * y;
        let mut series = Self::splat(1.0 / 35.0);
        let mut k = 33.0;
        while k > 2.0 {
            series = series.times_plus(square, Self::splat(1.0 / k));
            k -= 2.0;
        }
        let cubed = square * series;
        let twice = y + y;
        cubed.times_plus(twice, twice)
    }
}

/// Four numbers in plain Rust; the compiler uses the vectors that the target has.
#[derive(Clone, Copy, Debug)]
pub struct Portable([f64; 4]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let (a, b) = (self.0, other.0);
        Self([f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])])
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operator:tt) => {
        impl $trait for Portable {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| a $operator b)
            }
        }
    };
}

operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);
operator!(Div, div, /);

impl Neg for Portable {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        self.xor(Self::splat(-0.0))
    }
}

impl Lanes for Portable {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    fn load(from: &[f64; 4]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f64; 4]) {
        *to = self.0;
    }

    /// Rounds twice: without the instruction, rounding once would be a slow library call.
    #[inline(always)]
    fn times_plus(self, factor: Self, summand: Self) -> Self {
        self * factor + summand
    }

    #[inline(always)]
    fn at_most(self, bound: Self) -> Self {
        self.zip(bound, |a, b| if a > b { b } else { a })
    }

    #[inline(always)]
    fn at_least(self, bound: Self) -> Self {
        self.zip(bound, |a, b| if a < b { b } else { a })
    }

    #[inline(always)]
    fn and(self, mask: Self) -> Self {
        self.zip(mask, |a, b| f64::from_bits(a.to_bits() & b.to_bits()))
    }

    #[inline(always)]
    fn xor(self, mask: Self) -> Self {
        self.zip(mask, |a, b| f64::from_bits(a.to_bits() ^ b.to_bits()))
    }

    #[inline(always)]
    fn select(mask: Self, yes: Self, no: Self) -> Self {
        let not = mask.zip(mask, |m, _| f64::from_bits(!m.to_bits()));
        yes.and(mask).zip(no.and(not), |a, b| {
            f64::from_bits(a.to_bits() | b.to_bits())
        })
    }

    #[inline(always)]
    fn power_of_two(shifted: Self) -> Self {
        shifted.zip(shifted, |n, _| {
            f64::from_bits(n.to_bits().wrapping_add(1023) << 52)
        })
    }

    #[inline(always)]
    fn sum(self) -> f64 {
        (self.0[0] + self.0[2]) + (self.0[1] + self.0[3])
    }
}

/// Keeps `T` at the start of a cache line: a load that straddles two lines costs twice.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// For every pattern of four bits, a mask of all ones in the lanes whose bit is set.
pub(crate) static MASKS: Aligned<[[f64; 4]; 16]> = {
    let mut masks = [[0.0; 4]; 16];
    let mut pattern = 0;
    while pattern < 16 {
        let mut lane = 0;
        while lane < 4 {
            if pattern >> lane & 1 == 1 {
                masks[pattern][lane] = f64::from_bits(u64::MAX);
            }
            lane += 1;
        }
        pattern += 1;
    }
    Aligned(masks)
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::simd;
    use mpf_core::rng::stream;
    use rand::RngExt;

    /// The distance to the right result in units of its last place.
    fn ulps(found: f64, expected: f64) -> f64 {
        if found == expected {
            return 0.0;
        }
        let unit = f64::from_bits(expected.to_bits() + 1) - expected;
        ((found - expected) / unit).abs()
    }

    fn worst_ulps(f: fn([f64; 4]) -> [f64; 4], exact: fn(f64) -> f64, low: f64, high: f64) -> f64 {
        let mut rng = stream(1, 0);
        let mut worst = 0.0f64;
        for _ in 0..50_000 {
            let a: [f64; 4] = std::array::from_fn(|_| rng.random_range(low..high));
            let found = f(a);
            for (a, found) in a.into_iter().zip(found) {
                worst = worst.max(ulps(found, exact(a)));
            }
        }
        worst
    }

    /// Portable, and the machine's own vectors where it has them.
    fn each_implementation(check: impl Fn(fn([f64; 4]) -> [f64; 4], fn([f64; 4]) -> [f64; 4])) {
        fn on<V: Lanes>(a: [f64; 4], f: fn(V) -> V) -> [f64; 4] {
            let mut out = [0.0; 4];
            f(V::load(&a)).store(&mut out);
            out
        }
        check(
            |a| on::<Portable>(a, Portable::exp),
            |a| on::<Portable>(a, Portable::ln_1p_unit),
        );
        if simd::available() {
            check(simd::test_exp, simd::test_ln_1p_unit);
        }
    }

    // (Miri's own exp and ln_1p err by a few ulps on purpose.)
    #[test]
    #[cfg_attr(miri, ignore)]
    fn exp_is_right_to_an_ulp_or_two_everywhere() {
        each_implementation(|exp, _| {
            // The standard library is itself within 1 ulp.
            assert!(worst_ulps(exp, f64::exp, -1.0, 1.0) <= 2.0);
            assert!(worst_ulps(exp, f64::exp, -708.0, 709.7) <= 2.0);
            let edges = exp([0.0, -0.0, 709.78, -745.0]);
            assert_eq!(&edges[..2], &[1.0, 1.0]);
            assert!((edges[2] / 709.78f64.exp() - 1.0).abs() < 1e-15);
            assert!(edges[3] > 0.0 && edges[3] <= 1e-323);
            let beyond = exp([709.79, 1e300, -746.0, f64::NEG_INFINITY]);
            assert_eq!(beyond, [f64::INFINITY, f64::INFINITY, 0.0, 0.0]);
            assert!(exp([f64::NAN; 4]).iter().all(|e| e.is_nan()));
        });
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn ln_1p_is_right_to_an_ulp_or_two() {
        each_implementation(|_, ln_1p| {
            assert!(worst_ulps(ln_1p, f64::ln_1p, 0.0, 1.0) <= 3.0);
            assert!(worst_ulps(ln_1p, f64::ln_1p, 0.0, 1e-8) <= 3.0);
            assert_eq!(ln_1p([0.0; 4]), [0.0; 4]);
            assert_eq!(ln_1p([1.0; 4])[0], 2f64.ln());
        });
    }

    #[test]
    fn masks_select_by_bits() {
        let (yes, no) = (Portable::splat(1.0), Portable::splat(2.0));
        for (pattern, mask) in MASKS.0.iter().enumerate() {
            let mut out = [0.0; 4];
            Portable::select(Portable::load(mask), yes, no).store(&mut out);
            for (lane, value) in out.into_iter().enumerate() {
                assert_eq!(value, if pattern >> lane & 1 == 1 { 1.0 } else { 2.0 });
            }
        }
    }
}
