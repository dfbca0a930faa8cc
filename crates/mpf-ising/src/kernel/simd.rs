//! The one module with `unsafe`: AVX2 and FMA registers behind run-time detection.
//!
//! Kernels are generic over [`Lanes`] and forced inline into the functions here that carry
//! `#[target_feature]`: the same source becomes vector code. Every function has a safe wrapper that
//! detects the machine's features and falls back to [`Portable`].
#![allow(unsafe_code)]

use super::lanes::{Lanes, Portable};
use super::{MarginLoss, dense, peak, row, sparse};

/// Returns whether this machine has the vectors that this module uses.
pub fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // Cached by the standard library after the first call.
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Runs a kernel with vectors where the machine has them, unless `portable` forbids it.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $kernel:ident) => {
        $(#[$doc])*
        pub(super) fn $name<L: MarginLoss>(task: &$kernel::Task<'_>, loss: L, portable: bool) -> $kernel::Partial {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn vectors<L: MarginLoss>(task: &$kernel::Task<'_>, loss: L) -> $kernel::Partial {
                    $kernel::sum::<avx2::F64x4, L>(task, loss)
                }
                if !portable && available() {
                    // SAFETY: the machine has AVX2 and FMA, as was just detected.
                    return unsafe { vectors(task, loss) };
                }
            }
            let _ = portable;
            $kernel::sum::<Portable, L>(task, loss)
        }
    };
}

dispatch!(
    /// [`dense::sum`].
    dense_sum, dense
);
dispatch!(
    /// [`sparse::sum`].
    sparse_sum, sparse
);
dispatch!(
    /// [`row::sum`].
    row_sum, row
);

/// [`peak::multiply_adds`].
pub(super) fn multiply_adds(factor: f64) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn vectors(factor: f64) -> f64 {
            peak::multiply_adds::<avx2::F64x4>(factor)
        }
        if available() {
            // SAFETY: the machine has AVX2 and FMA, as was just detected.
            return unsafe { vectors(factor) };
        }
    }
    peak::multiply_adds::<Portable>(factor)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Lanes;
    use std::arch::x86_64::*;
    use std::ops::{Add, Div, Mul, Neg, Sub};

    /// Four numbers in one AVX2 register.
    ///
    /// Values exist only inside functions that are called after [`super::available`] returned true,
    /// which makes the intrinsics below sound.
    #[derive(Clone, Copy)]
    pub(super) struct F64x4(__m256d);

    macro_rules! operator {
        ($trait:ident, $method:ident, $instruction:ident) => {
            impl $trait for F64x4 {
                type Output = Self;

                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // SAFETY: see the type.
                    Self(unsafe { $instruction(self.0, other.0) })
                }
            }
        };
    }

    operator!(Add, add, _mm256_add_pd);
    operator!(Sub, sub, _mm256_sub_pd);
    operator!(Mul, mul, _mm256_mul_pd);
    operator!(Div, div, _mm256_div_pd);

    impl Neg for F64x4 {
        type Output = Self;

        #[inline(always)]
        fn neg(self) -> Self {
            self.xor(Self::splat(-0.0))
        }
    }

    // SAFETY (all blocks below): see the type. Loads and stores go through references to four
    // `f64` and use the unaligned instructions.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Lanes for F64x4 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            Self(unsafe { _mm256_set1_pd(value) })
        }

        #[inline(always)]
        fn load(from: &[f64; 4]) -> Self {
            Self(unsafe { _mm256_loadu_pd(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; 4]) {
            unsafe { _mm256_storeu_pd(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn times_plus(self, factor: Self, summand: Self) -> Self {
            Self(unsafe { _mm256_fmadd_pd(self.0, factor.0, summand.0) })
        }

        #[inline(always)]
        fn at_most(self, bound: Self) -> Self {
            // The instruction returns its second operand when one is NaN.
            Self(unsafe { _mm256_min_pd(bound.0, self.0) })
        }

        #[inline(always)]
        fn at_least(self, bound: Self) -> Self {
            Self(unsafe { _mm256_max_pd(bound.0, self.0) })
        }

        #[inline(always)]
        fn and(self, mask: Self) -> Self {
            Self(unsafe { _mm256_and_pd(self.0, mask.0) })
        }

        #[inline(always)]
        fn xor(self, mask: Self) -> Self {
            Self(unsafe { _mm256_xor_pd(self.0, mask.0) })
        }

        #[inline(always)]
        fn select(mask: Self, yes: Self, no: Self) -> Self {
            Self(unsafe { _mm256_blendv_pd(no.0, yes.0, mask.0) })
        }

        #[inline(always)]
        fn power_of_two(shifted: Self) -> Self {
            unsafe {
                let n = _mm256_add_epi64(_mm256_castpd_si256(shifted.0), _mm256_set1_epi64x(1023));
                Self(_mm256_castsi256_pd(_mm256_slli_epi64::<52>(n)))
            }
        }

        #[inline(always)]
        fn sum(self) -> f64 {
            unsafe {
                // (a₀ + a₂, a₁ + a₃), then across.
                let halves = _mm_add_pd(
                    _mm256_castpd256_pd128(self.0),
                    _mm256_extractf128_pd::<1>(self.0),
                );
                _mm_cvtsd_f64(_mm_add_sd(halves, _mm_unpackhi_pd(halves, halves)))
            }
        }
    }
}

/// The elementary functions in vectors, for the tests of `lanes`.
#[cfg(test)]
macro_rules! test_function {
    ($name:ident, $method:ident) => {
        pub(super) fn $name(a: [f64; 4]) -> [f64; 4] {
            assert!(available());
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn vectors(a: [f64; 4]) -> [f64; 4] {
                    let mut out = [0.0; 4];
                    avx2::F64x4::load(&a).$method().store(&mut out);
                    out
                }
                // SAFETY: detected by the assertion.
                return unsafe { vectors(a) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            unreachable!("no vectors on this machine")
        }
    };
}

#[cfg(test)]
test_function!(test_exp, exp);
#[cfg(test)]
test_function!(test_ln_1p_unit, ln_1p_unit);
