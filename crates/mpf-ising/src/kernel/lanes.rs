//! One cache line of numbers at once: eight `f64` or sixteen `f32`.
//!
//! Kernels are written once, over [`Lanes`]; [`Plain`] is plain Rust, and the module `simd` has the
//! vector registers. The elementary functions are ours, so all compute the same formula.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Keeps `T` at the start of a cache line: a load that straddles two lines costs twice.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Aligned<T>(pub T);

impl<T, const N: usize> AsRef<[T]> for Aligned<[T; N]> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> AsMut<[T]> for Aligned<[T; N]> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// `f64` or `f32`, with the constants of its elementary functions.
pub trait Number:
    Copy
    + PartialOrd
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// e to this power is far from the ends of the range, even summed 10⁹ times.
    const SAFE_EXPONENT: f64;
    /// 2^p, where p + 1 is the number of digits: a sum with it has smaller integers in its low bits.
    const INTEGERS: f64;
    /// The exponent field of 1.
    const BIAS: f64;
    /// ln 2 in two parts; an exponent times the first is exact.
    const LN2: [f64; 2];
    /// eᵃ is 0 below the first and +∞ above the second.
    const EXP_ENDS: [f64; 2];
    /// The degree of the Taylor polynomial of eʳ for |r| ≤ ½ ln 2.
    const EXP_DEGREE: usize;
    /// The terms of the series of ln(1 + a) for 0 ≤ a ≤ 1.
    const LN_TERMS: usize;

    /// Rounds to this type.
    fn nearest(value: f64) -> Self;
    /// Returns 2ⁿ, given n + 1.5 · 2^p.
    fn power_of_two(shifted: Self) -> Self;
    /// Returns e + 2^p and f of a = f · 2^(e − bias), 1 ≤ f < 2, for a > 0.
    fn split(self) -> (Self, Self);
}

macro_rules! number {
    ($float:ident, $bits:ident, $($constants:tt)*) => {
        impl Number for $float {
            $($constants)*
            const INTEGERS: f64 = (1u64 << (Self::MANTISSA_DIGITS - 1)) as f64;
            const BIAS: f64 = (Self::MAX_EXP - 1) as f64;

            #[inline(always)]
            fn nearest(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn power_of_two(shifted: Self) -> Self {
                let biased = shifted.to_bits().wrapping_add(Self::BIAS as $bits);
                Self::from_bits(biased << (Self::MANTISSA_DIGITS - 1))
            }

            #[inline(always)]
            fn split(self) -> (Self, Self) {
                let (bits, digits) = (self.to_bits(), Self::MANTISSA_DIGITS - 1);
                let exponent = bits >> digits | Self::nearest(Self::INTEGERS).to_bits();
                let fraction = bits & ((1 << digits) - 1) | Self::nearest(1.0).to_bits();
                (Self::from_bits(exponent), Self::from_bits(fraction))
            }
        }
    };
}

number! { f64, u64,
    const SAFE_EXPONENT: f64 = 600.0;
    const LN2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    const EXP_ENDS: [f64; 2] = [-760.0, 720.0];
    const EXP_DEGREE: usize = 13;
    const LN_TERMS: usize = 18;
}
number! { f32, u32,
    const SAFE_EXPONENT: f64 = 60.0;
    const LN2: [f64; 2] = [0.693_359_375, -2.121_944_400_546_905_8e-4];
    const EXP_ENDS: [f64; 2] = [-110.0, 95.0];
    const EXP_DEGREE: usize = 7;
    const LN_TERMS: usize = 8;
}

/// Memory that the tasks of one thread share.
#[derive(Debug, Default)]
pub struct Scratch {
    double: Vec<Aligned<[f64; 8]>>,
    single: Vec<Aligned<[f32; 16]>>,
}

impl Scratch {
    /// Returns the lines of `f64`.
    pub fn f64(&mut self) -> &mut Vec<Aligned<[f64; 8]>> {
        &mut self.double
    }

    /// Returns the lines of `f32`.
    pub fn f32(&mut self) -> &mut Vec<Aligned<[f32; 16]>> {
        &mut self.single
    }
}

/// A cache line of numbers that are worked on together.
///
/// Not for general use: it has what the kernels need. Operators and methods act lane by lane; bit k
/// of a mask stands for lane k.
pub trait Lanes:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The type of one lane.
    type Number: Number;
    /// The lanes in memory.
    type Line: Copy + Send + Sync + AsRef<[Self::Number]> + AsMut<[Self::Number]>;
    /// The number of lanes.
    const LANES: usize;
    /// The number of registers that they take.
    #[doc(hidden)]
    const REGISTERS: usize = 2;
    /// A line of zeros.
    const ZEROS: Self::Line;

    /// Returns the lines of this type in `scratch`.
    #[doc(hidden)]
    fn lines(scratch: &mut Scratch) -> &mut Vec<Self::Line>;
    /// Returns `value` in all lanes.
    fn splat(value: f64) -> Self;
    /// Reads a line.
    fn load(from: &Self::Line) -> Self;
    /// Writes a line.
    fn store(self, to: &mut Self::Line);
    /// Reads the first numbers of a slice, and rounds them to the type of a lane.
    fn round(from: &[f64]) -> Self;
    /// Returns a · b + c, rounded once where the machine can.
    fn times_plus(self, factor: Self, summand: Self) -> Self;
    /// Returns the smaller of the two; NaN stays NaN.
    fn at_most(self, bound: Self) -> Self;
    /// Returns the larger of the two; NaN stays NaN.
    fn at_least(self, bound: Self) -> Self;
    /// Returns |a|.
    fn abs(self) -> Self;
    /// Returns zero in the lanes that are not in the mask.
    fn keep(self, mask: u32) -> Self;
    /// Returns −a in the lanes of the mask.
    fn flip(self, mask: u32) -> Self;
    /// Returns `yes` in the lanes of the mask and `no` in the others.
    fn select(mask: u32, yes: Self, no: Self) -> Self;
    /// [`Number::power_of_two`].
    fn power_of_two(shifted: Self) -> Self;
    /// [`Number::split`].
    fn split(self) -> (Self, Self);

    /// Returns `word` turned right, in one instruction.
    #[doc(hidden)]
    #[inline(always)]
    fn turn_right<const BITS: u32>(word: u64) -> u64 {
        word.rotate_right(BITS)
    }

    /// Adds the lanes to the first of `sums`.
    #[inline(always)]
    fn add_to(self, sums: &mut [f64]) {
        let mut line = Self::ZEROS;
        self.store(&mut line);
        for (sum, &value) in sums.iter_mut().zip(line.as_ref()) {
            *sum += value.into();
        }
    }

    /// Returns the sum of the lanes, in the same order on every machine.
    #[inline(always)]
    fn sum(self) -> f64 {
        let mut four = [0.0; 4];
        let mut line = Self::ZEROS;
        self.store(&mut line);
        for (k, &value) in line.as_ref().iter().enumerate() {
            four[k % 4] += value.into();
        }
        (four[0] + four[2]) + (four[1] + four[3])
    }

    /// Returns eᵃ to about one unit in the last place; overflows to +∞, underflows to 0.
    #[inline(always)]
    fn exp(self) -> Self {
        exp(self)
    }

    /// Returns ln(1 + a) for 0 ≤ a ≤ 1, to about one unit in the last place.
    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        ln_1p_unit(self)
    }

    /// Returns ln(1 + a) for a ≥ 0, to a few units in the last place.
    #[inline(always)]
    fn ln_1p(self) -> Self {
        ln_1p(self)
    }
}

/// [`Lanes::exp`]:
/// a = n ln 2 + r with |r| ≤ ½ ln 2; eʳ by its Taylor polynomial, whose remainder is below an
/// eighth of the last place; 2ⁿ in two factors, so that neither leaves the range before the
/// result does.
#[inline(always)]
fn exp<V: Lanes>(a: V) -> V {
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
    let [lowest, highest] = V::Number::EXP_ENDS;
    let a = a.at_least(V::splat(lowest)).at_most(V::splat(highest));
    let shift = V::splat(1.5 * V::Number::INTEGERS);
    let n = a.times_plus(V::splat(std::f64::consts::LOG2_E), shift) - shift;
    let [high, low] = V::Number::LN2;
    let r = n.times_plus(V::splat(-high), a);
    let r = n.times_plus(V::splat(-low), r);
    let coefficients = &TAYLOR[13 - V::Number::EXP_DEGREE..];
    let mut p = V::splat(coefficients[0]);
    for c in &coefficients[1..] {
        p = p.times_plus(r, V::splat(*c));
    }
    let half = n.times_plus(V::splat(0.5), shift);
    let rest = n - (half - shift) + shift;
    p * V::power_of_two(half) * V::power_of_two(rest)
}

/// [`Lanes::ln_1p_unit`]:
/// ln(1 + a) = 2 artanh y with y = a/(2 + a) ≤ ⅓, by the series Σ y^{2k+1}/(2k + 1); the
/// first term left out is below a quarter of the last place.
#[inline(always)]
fn ln_1p_unit<V: Lanes>(a: V) -> V {
    let y = a / (a + V::splat(2.0));
    let square = y * y;
    let mut series = V::splat(1.0 / (2 * V::Number::LN_TERMS - 1) as f64);
    for k in (1..V::Number::LN_TERMS - 1).rev() {
        series = series.times_plus(square, V::splat(1.0 / (2 * k + 1) as f64));
    }
    let cubed = square * series;
    let twice = y + y;
    cubed.times_plus(twice, twice)
}

/// [`Lanes::ln_1p`]:
/// with u = 1 + a as rounded, and u = f · 2ⁿ: n ln 2 + ln f + (a − (u − 1))/u.
#[inline(always)]
fn ln_1p<V: Lanes>(a: V) -> V {
    let one = V::splat(1.0);
    let u = a + one;
    let lost = (a - (u - one)) / u;
    let (exponent, fraction) = u.split();
    let n = exponent - V::splat(V::Number::INTEGERS + V::Number::BIAS);
    let [high, low] = V::Number::LN2;
    let rest = n.times_plus(V::splat(low), (fraction - one).ln_1p_unit() + lost);
    n.times_plus(V::splat(high), rest)
}

/// A line of numbers in plain Rust; the compiler uses the vectors that the target has.
#[derive(Clone, Copy, Debug)]
pub struct Plain<T, const N: usize>([T; N]);

/// Eight `f64` in plain Rust.
pub type Portable = Plain<f64, 8>;

impl<T: Number, const N: usize> Plain<T, N> {
    #[inline(always)]
    fn zip(mut self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = f(*a, b);
        }
        self
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operator:tt) => {
        impl<T: Number, const N: usize> $trait for Plain<T, N> {
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

impl<T: Number, const N: usize> Neg for Plain<T, N> {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        self.zip(self, |a, _| -a)
    }
}

macro_rules! plain {
    ($number:ident, $lanes:literal) => {
        impl Lanes for Plain<$number, $lanes> {
            type Number = $number;
            type Line = Aligned<[$number; $lanes]>;
            const LANES: usize = $lanes;
            const ZEROS: Self::Line = Aligned([0.0; $lanes]);

            fn lines(scratch: &mut Scratch) -> &mut Vec<Self::Line> {
                scratch.$number()
            }

            #[inline(always)]
            fn splat(value: f64) -> Self {
                Self([value as $number; $lanes])
            }

            #[inline(always)]
            fn load(from: &Self::Line) -> Self {
                Self(from.0)
            }

            #[inline(always)]
            fn store(self, to: &mut Self::Line) {
                to.0 = self.0;
            }

            #[inline(always)]
            fn round(from: &[f64]) -> Self {
                let mut lanes = [0.0; $lanes];
                for (lane, &value) in lanes.iter_mut().zip(&from[..$lanes]) {
                    *lane = value as $number;
                }
                Self(lanes)
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
            fn abs(self) -> Self {
                self.zip(self, |a, _| a.abs())
            }

            #[inline(always)]
            fn keep(self, mask: u32) -> Self {
                Self::select(mask, self, Self::splat(0.0))
            }

            #[inline(always)]
            fn flip(self, mask: u32) -> Self {
                Self::select(mask, -self, self)
            }

            #[inline(always)]
            fn select(mask: u32, yes: Self, no: Self) -> Self {
                let mut chosen = no;
                for (lane, (chosen, yes)) in chosen.0.iter_mut().zip(yes.0).enumerate() {
                    *chosen = if mask >> lane & 1 == 1 { yes } else { *chosen };
                }
                chosen
            }

            // Calls: these are long in plain Rust, and every copy takes its time to compile.
            #[inline(never)]
            fn exp(self) -> Self {
                exp(self)
            }

            #[inline(never)]
            fn ln_1p_unit(self) -> Self {
                ln_1p_unit(self)
            }

            #[inline(never)]
            fn ln_1p(self) -> Self {
                ln_1p(self)
            }

            #[inline(always)]
            fn power_of_two(shifted: Self) -> Self {
                shifted.zip(shifted, |n, _| Number::power_of_two(n))
            }

            #[inline(always)]
            fn split(self) -> (Self, Self) {
                (
                    self.zip(self, |a, _| Number::split(a).0),
                    self.zip(self, |a, _| Number::split(a).1),
                )
            }
        }
    };
}

plain!(f64, 8);
plain!(f32, 16);

/// Applies `f` to a line of numbers, for tests.
#[cfg(test)]
macro_rules! on_a_line {
    ($name:ident, $method:ident) => {
        #[inline(always)]
        pub(super) fn $name<V: Lanes>(numbers: &mut [f64]) {
            let line = V::round(numbers).$method();
            numbers.fill(0.0);
            line.add_to(numbers);
        }
    };
}

#[cfg(test)]
on_a_line!(exp_of_line, exp);
#[cfg(test)]
on_a_line!(ln_1p_of_line, ln_1p);

/// Checks what lanes of `f64` do with masks, and what they do with words.
#[cfg(test)]
#[inline(always)]
pub(super) fn check_masks<V: Lanes>(mask: u32) {
    let numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let a = V::round(&numbers);
    let [mut kept, mut flipped, mut chosen] = [[0.0; 8]; 3];
    a.keep(mask).add_to(&mut kept);
    a.flip(mask).add_to(&mut flipped);
    V::select(mask, a, V::splat(9.0)).add_to(&mut chosen);
    for (lane, a) in numbers.into_iter().enumerate() {
        let is_in = mask >> lane & 1 == 1;
        assert_eq!(kept[lane], if is_in { a } else { 0.0 });
        assert_eq!(flipped[lane], if is_in { -a } else { a });
        assert_eq!(chosen[lane], if is_in { a } else { 9.0 });
    }
    let word = u64::from(mask) << 3 | 0b101;
    assert_eq!(V::turn_right::<5>(word), word.rotate_right(5));
}

#[cfg(test)]
mod tests {
    use crate::kernel::Vectors;
    use crate::kernel::simd;
    use mpf_core::rng::stream;
    use rand::RngExt;

    /// The distance to the right result in units of its last place.
    fn ulps(found: f64, expected: f64, next: fn(f64) -> f64) -> f64 {
        if found == expected {
            return 0.0;
        }
        ((found - expected) / (next(expected) - expected)).abs()
    }

    type Function = fn(Vectors, &mut [f64]);

    fn worst_ulps(
        f: impl Fn(&mut [f64]),
        exact: fn(f64) -> f64,
        next: fn(f64) -> f64,
        low: f64,
        high: f64,
    ) -> f64 {
        let mut rng = stream(1, 0);
        let mut worst = 0.0f64;
        for _ in 0..20_000 {
            // Numbers that both types have.
            let mut a = [0.0; 16].map(|_: f64| f64::from(rng.random_range(low..high) as f32));
            let expected = a.map(exact);
            f(&mut a);
            for (found, expected) in a.into_iter().zip(expected) {
                worst = worst.max(ulps(found, expected, next));
            }
        }
        worst
    }

    #[expect(clippy::print_stdout, reason = "the log should say what was run")]
    fn each_implementation(check: impl Fn(Vectors)) {
        for vectors in Vectors::available() {
            println!("with {vectors} vectors");
            check(vectors);
        }
    }

    /// Eight at a time, twice.
    fn in_double(f: Function, vectors: Vectors) -> impl Fn(&mut [f64]) {
        move |numbers| {
            numbers
                .chunks_exact_mut(8)
                .for_each(|line| f(vectors, line));
        }
    }

    fn next_single(a: f64) -> f64 {
        f64::from((a as f32).next_up())
    }

    // (Miri's own exp and ln_1p err by a few ulps on purpose.)
    #[test]
    #[cfg_attr(miri, ignore)]
    fn exp_is_right_to_an_ulp_or_two_everywhere() {
        each_implementation(|vectors| {
            let exp = in_double(simd::exp_f64, vectors);
            // The standard library is itself within 1 ulp.
            assert!(worst_ulps(&exp, f64::exp, f64::next_up, -1.0, 1.0) <= 2.0);
            assert!(worst_ulps(&exp, f64::exp, f64::next_up, -708.0, 709.7) <= 2.0);
            let mut edges = [0.0, -0.0, 709.78, -745.0, 0.0, 0.0, 0.0, 0.0];
            exp(&mut edges);
            assert_eq!(&edges[..2], &[1.0, 1.0]);
            assert!((edges[2] / 709.78f64.exp() - 1.0).abs() < 1e-15);
            assert!(edges[3] > 0.0 && edges[3] <= 1e-323);
            let mut beyond = [709.79, 1e300, -746.0, f64::NEG_INFINITY, 0.0, 0.0, 0.0, 0.0];
            exp(&mut beyond);
            assert_eq!(&beyond[..4], &[f64::INFINITY, f64::INFINITY, 0.0, 0.0]);
            let mut unknown = [f64::NAN; 8];
            exp(&mut unknown);
            assert!(unknown.iter().all(|e| e.is_nan()));

            let single = |numbers: &mut [f64]| simd::exp_f32(vectors, numbers);
            assert!(worst_ulps(single, f64::exp, next_single, -87.0, 88.7) <= 2.0);
            let mut beyond = [1e30; 16];
            single(&mut beyond);
            assert_eq!(beyond, [f64::INFINITY; 16]);
            beyond = [-1e30; 16];
            single(&mut beyond);
            assert_eq!(beyond, [0.0; 16]);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn ln_1p_is_right_to_a_few_ulps() {
        each_implementation(|vectors| {
            let ln_1p = in_double(simd::ln_1p_f64, vectors);
            let single = |numbers: &mut [f64]| simd::ln_1p_f32(vectors, numbers);
            for high in [1e-8, 1.0, 3.0, 1e30] {
                assert!(worst_ulps(&ln_1p, f64::ln_1p, f64::next_up, 0.0, high) <= 4.0);
                assert!(worst_ulps(single, f64::ln_1p, next_single, 0.0, high) <= 4.0);
            }
            let mut edges = [0.0, 1.0, 1e-300, 1e300, 3.0, 7.0, 1e-17, 5.0];
            let expected = edges.map(f64::ln_1p);
            ln_1p(&mut edges);
            for (found, expected) in edges.into_iter().zip(expected) {
                assert!(ulps(found, expected, f64::next_up) <= 4.0);
            }
        });
    }

    #[test]
    fn masks_choose_lanes_and_words_turn() {
        each_implementation(|vectors| {
            for mask in 0..256 {
                simd::check_masks(vectors, mask);
            }
        });
    }
}
