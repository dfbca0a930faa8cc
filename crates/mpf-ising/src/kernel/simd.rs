//! The one module with `unsafe`: AVX2 and AVX-512 registers behind run-time detection.
//!
//! Kernels are generic over [`Lanes`] and forced inline into the functions here that carry
//! `#[target_feature]`: the same source becomes vector code of either width. Every function has a
//! safe wrapper that detects the machine's features and falls back to [`Plain`].
#![allow(unsafe_code)]

#[cfg(test)]
use super::lanes;
use super::lanes::{Lanes, Plain, Scratch};
use super::panel::{Panel, Partial};
use super::{MarginLoss, Precision, dense, peak, row, sparse};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Which vector instructions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// None but those that the compiler finds for the target.
    Portable,
    /// 256 bits, with fused multiply-adds.
    Avx2,
    /// 512 bits.
    Avx512,
}

impl Vectors {
    /// Returns every kind that this machine has, the widest last.
    pub fn available() -> impl Iterator<Item = Self> {
        let all = [Self::Portable, Self::Avx2, Self::Avx512];
        all.into_iter().filter(|kind| *kind <= Self::default())
    }

    /// Returns the widest of this machine.
    fn detected() -> Self {
        // Cached by the standard library after the first call.
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma")
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self::Avx512;
            }
            return Self::Avx2;
        }
        Self::Portable
    }
}

/// The widest vectors that [`limit_vectors`] allows.
static LIMIT: AtomicU8 = AtomicU8::new(Vectors::Avx512 as u8);

/// Uses no wider vectors than these in this process from now on, to compare widths on one machine.
pub fn limit_vectors(widest: Vectors) {
    LIMIT.store(widest as u8, Ordering::Relaxed);
}

/// The widest of this machine, within the limit.
impl Default for Vectors {
    fn default() -> Self {
        let limit = match LIMIT.load(Ordering::Relaxed) {
            0 => Self::Portable,
            1 => Self::Avx2,
            _ => Self::Avx512,
        };
        Self::detected().min(limit)
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}

/// Makes the safe function `$name`, which runs the generic `$kernel` with the vectors that are asked
/// for, or the widest below them that the machine has.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident = $($kernel:ident)::+, $f64:tt, ($($arg:ident: $type:ty),*) -> $result:ty) => {
        $(#[$doc])*
        pub(super) fn $name(vectors: Vectors, $($arg: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi2,fma")]
                fn avx2($($arg: $type),*) -> $result {
                    $($kernel)::+::<registers::avx2::$f64>($($arg),*)
                }
                #[target_feature(enable = "avx2,bmi2,fma,avx512f,avx512dq")]
                fn avx512($($arg: $type),*) -> $result {
                    $($kernel)::+::<registers::avx512::$f64>($($arg),*)
                }
                match vectors.min(Vectors::default()) {
                    // SAFETY: the machine has these and AVX-512 F and DQ, as was just detected.
                    Vectors::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the machine has AVX2, BMI2 and FMA, as was just detected.
                    Vectors::Avx2 => return unsafe { avx2($($arg),*) },
                    Vectors::Portable => {}
                }
            }
            let _ = vectors;
            $($kernel)::+::<plain::$f64>($($arg),*)
        }
    };
}

mod plain {
    pub(super) type F64 = super::Plain<f64, 8>;
    pub(super) type F32 = super::Plain<f32, 16>;
}

dispatch!(dense_f64 = dense::sum, F64, (task: &dense::Task<'_>, loss: MarginLoss, scratch: &mut Scratch, grads: Vec<f64>) -> Partial);
dispatch!(dense_f32 = dense::sum, F32, (task: &dense::Task<'_>, loss: MarginLoss, scratch: &mut Scratch, grads: Vec<f64>) -> Partial);
dispatch!(
    /// [`sparse::sum`].
    sparse_sum = sparse::sum, F64, (panel: &Panel<'_>, set_bits: &sparse::SetBits, loss: MarginLoss, scratch: &mut Scratch, grads: Vec<f64>) -> Partial
);
dispatch!(
    /// [`row::sum`].
    row_sum = row::sum, F64, (task: &row::Task<'_>, loss: MarginLoss) -> row::Partial
);
dispatch!(
    /// [`peak::multiply_adds`].
    multiply_adds = peak::multiply_adds, F64, (factor: f64) -> f64
);

/// Work of another crate that is compiled once for every kind of vectors.
pub trait VectorWork {
    /// What the work returns.
    type Output;

    /// Does the work. Mark the implementation, and the loops it calls, `#[inline(always)]`: what is
    /// not inlined is compiled for the target's baseline.
    fn run<D: Lanes<Number = f64>, S: Lanes<Number = f32>>(self) -> Self::Output;
}

/// Runs `work` with the vectors that are asked for, or the widest below them that the machine has.
pub fn vectorised<W: VectorWork>(vectors: Vectors, work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi2,fma")]
        fn avx2<W: VectorWork>(work: W) -> W::Output {
            work.run::<registers::avx2::F64, registers::avx2::F32>()
        }
        #[target_feature(enable = "avx2,bmi2,fma,avx512f,avx512dq")]
        fn avx512<W: VectorWork>(work: W) -> W::Output {
            work.run::<registers::avx512::F64, registers::avx512::F32>()
        }
        match vectors.min(Vectors::default()) {
            // SAFETY: the machine has these and AVX-512 F and DQ, as was just detected.
            Vectors::Avx512 => return unsafe { avx512(work) },
            // SAFETY: the machine has AVX2, BMI2 and FMA, as was just detected.
            Vectors::Avx2 => return unsafe { avx2(work) },
            Vectors::Portable => {}
        }
    }
    let _ = vectors;
    work.run::<plain::F64, plain::F32>()
}

#[cfg(test)]
dispatch!(exp_f64 = lanes::exp_of_line, F64, (numbers: &mut [f64]) -> ());
#[cfg(test)]
dispatch!(exp_f32 = lanes::exp_of_line, F32, (numbers: &mut [f64]) -> ());
#[cfg(test)]
dispatch!(ln_1p_f64 = lanes::ln_1p_of_line, F64, (numbers: &mut [f64]) -> ());
#[cfg(test)]
dispatch!(ln_1p_f32 = lanes::ln_1p_of_line, F32, (numbers: &mut [f64]) -> ());

#[cfg(test)]
dispatch!(check_masks = lanes::check_masks, F64, (mask: u32) -> ());

/// [`dense::sum`].
pub(super) fn dense_sum(
    vectors: Vectors,
    precision: Precision,
    task: &dense::Task<'_>,
    loss: MarginLoss,
    scratch: &mut Scratch,
    grads: Vec<f64>,
) -> Partial {
    match precision {
        Precision::Double => dense_f64(vectors, task, loss, scratch, grads),
        Precision::Single => dense_f32(vectors, task, loss, scratch, grads),
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::super::lanes::{Aligned, Lanes, Number, Scratch};
    use std::arch::x86_64::*;
    use std::ops::{Add, Div, Mul, Neg, Sub};

    /// A line of numbers in one register or two.
    ///
    /// Values exist only inside functions that are called after the instructions were detected,
    /// which makes the intrinsics below sound. Loads and stores go through references to whole
    /// lines and use the unaligned instructions.
    macro_rules! line {
        ($name:ident, $number:ident, $lanes:literal, [$register:ident; $n:literal],
         $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident, $min:ident, $max:ident,
         $xor:ident, $andnot:ident, $set:ident, $load:ident, $store:ident) => {
            #[derive(Clone, Copy)]
            pub(in super::super) struct $name([$register; $n]);

            impl $name {
                #[inline(always)]
                fn zip(mut self, other: Self, f: impl Fn($register, $register) -> $register) -> Self {
                    for k in 0..$n {
                        self.0[k] = f(self.0[k], other.0[k]);
                    }
                    self
                }

                /// Applies `f` to each register and the part of the mask that is its own.
                #[inline(always)]
                fn masked(mut self, mask: u32, f: impl Fn($register, u32) -> $register) -> Self {
                    for k in 0..$n {
                        self.0[k] = f(self.0[k], mask >> ($lanes / $n * k));
                    }
                    self
                }

                /// Applies `f` to each number.
                #[inline(always)]
                fn map(self, f: impl Fn($number) -> $number) -> Self {
                    let mut line = Self::ZEROS;
                    self.store(&mut line);
                    for lane in &mut line.0 {
                        *lane = f(*lane);
                    }
                    Self::load(&line)
                }
            }

            line!(@operator $name, Add, add, $add);
            line!(@operator $name, Sub, sub, $sub);
            line!(@operator $name, Mul, mul, $mul);
            line!(@operator $name, Div, div, $div);

            impl Neg for $name {
                type Output = Self;

                #[inline(always)]
                fn neg(self) -> Self {
                    // SAFETY: see the type.
                    self.zip(Self::splat(-0.0), |a, b| unsafe { $xor(a, b) })
                }
            }

            // SAFETY (all blocks below): see the type.
            #[allow(clippy::undocumented_unsafe_blocks)]
            impl Lanes for $name {
                type Number = $number;
                type Line = Aligned<[$number; $lanes]>;
                const LANES: usize = $lanes;
                const REGISTERS: usize = $n;
                const ZEROS: Self::Line = Aligned([0.0; $lanes]);

                fn lines(scratch: &mut Scratch) -> &mut Vec<Self::Line> {
                    scratch.$number()
                }

                #[inline(always)]
                fn splat(value: f64) -> Self {
                    Self([unsafe { $set(value as $number) }; $n])
                }

                #[inline(always)]
                fn load(from: &Self::Line) -> Self {
                    let mut registers = Self::splat(0.0);
                    for (register, part) in registers.0.iter_mut().zip(from.0.as_chunks::<{ $lanes / $n }>().0) {
                        *register = unsafe { $load(part.as_ptr()) };
                    }
                    registers
                }

                #[inline(always)]
                fn store(self, to: &mut Self::Line) {
                    for (register, part) in self.0.into_iter().zip(to.0.as_chunks_mut::<{ $lanes / $n }>().0) {
                        unsafe { $store(part.as_mut_ptr(), register) }
                    }
                }

                #[inline(always)]
                fn round(from: &[f64]) -> Self {
                    let mut line = Self::ZEROS;
                    for (lane, &value) in line.0.iter_mut().zip(&from[..$lanes]) {
                        *lane = value as $number;
                    }
                    Self::load(&line)
                }

                #[inline(always)]
                fn times_plus(mut self, factor: Self, summand: Self) -> Self {
                    for k in 0..$n {
                        self.0[k] = unsafe { $fma(self.0[k], factor.0[k], summand.0[k]) };
                    }
                    self
                }

                // Minimum and maximum return their second operand when one is NaN.
                #[inline(always)]
                fn at_most(self, bound: Self) -> Self {
                    self.zip(bound, |a, b| unsafe { $min(b, a) })
                }

                #[inline(always)]
                fn at_least(self, bound: Self) -> Self {
                    self.zip(bound, |a, b| unsafe { $max(b, a) })
                }

                #[inline(always)]
                fn abs(self) -> Self {
                    self.zip(Self::splat(-0.0), |a, sign| unsafe { $andnot(sign, a) })
                }

                #[inline(always)]
                fn keep(self, mask: u32) -> Self {
                    self.masked(mask, |a, mask| unsafe { $name::keep_in(a, mask) })
                }

                #[inline(always)]
                fn flip(self, mask: u32) -> Self {
                    self.masked(mask, |a, mask| unsafe { $name::flip_in(a, mask) })
                }

                #[inline(always)]
                fn select(mask: u32, yes: Self, mut no: Self) -> Self {
                    for k in 0..$n {
                        let mask = mask >> ($lanes / $n * k);
                        no.0[k] = unsafe { $name::select_in(mask, yes.0[k], no.0[k]) };
                    }
                    no
                }

                #[inline(always)]
                fn power_of_two(shifted: Self) -> Self {
                    shifted.map(Number::power_of_two)
                }

                /// The compiler would make shifts, masks and copies of many turns in a row, and
                /// the look-up of tables has no time for them.
                #[inline(always)]
                fn turn_right<const BITS: u32>(word: u64) -> u64 {
                    let turned;
                    unsafe {
                        std::arch::asm!(
                            "rorx {}, {}, {}",
                            out(reg) turned,
                            in(reg) word,
                            const BITS,
                            options(pure, nomem, nostack, preserves_flags)
                        );
                    }
                    turned
                }

                #[inline(always)]
                fn split(self) -> (Self, Self) {
                    (self.map(|a| a.split().0), self.map(|a| a.split().1))
                }
            }
        };
        (@operator $name:ident, $trait:ident, $method:ident, $instruction:ident) => {
            impl $trait for $name {
                type Output = Self;

                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // SAFETY: see the type.
                    self.zip(other, |a, b| unsafe { $instruction(a, b) })
                }
            }
        };
    }

    pub(super) mod avx2 {
        use super::*;

        line!(
            F64,
            f64,
            8,
            [__m256d; 2],
            _mm256_add_pd,
            _mm256_sub_pd,
            _mm256_mul_pd,
            _mm256_div_pd,
            _mm256_fmadd_pd,
            _mm256_min_pd,
            _mm256_max_pd,
            _mm256_xor_pd,
            _mm256_andnot_pd,
            _mm256_set1_pd,
            _mm256_loadu_pd,
            _mm256_storeu_pd
        );
        line!(
            F32,
            f32,
            16,
            [__m256; 2],
            _mm256_add_ps,
            _mm256_sub_ps,
            _mm256_mul_ps,
            _mm256_div_ps,
            _mm256_fmadd_ps,
            _mm256_min_ps,
            _mm256_max_ps,
            _mm256_xor_ps,
            _mm256_andnot_ps,
            _mm256_set1_ps,
            _mm256_loadu_ps,
            _mm256_storeu_ps
        );

        // AVX2 has masks as registers: all ones in the lanes whose bit is set.
        macro_rules! masks {
            ($name:ident, $register:ident, $bits:expr, $cast:ident, $equal:ident, $splat:ident,
             $and:ident, $xor:ident, $blend:ident) => {
                // SAFETY (all blocks below): see the type.
                #[allow(clippy::undocumented_unsafe_blocks)]
                impl $name {
                    #[inline(always)]
                    unsafe fn ones_in(mask: u32) -> $register {
                        unsafe {
                            let bits = $bits;
                            let set = _mm256_and_si256($splat(mask as _), bits);
                            $cast($equal(set, bits))
                        }
                    }

                    #[inline(always)]
                    unsafe fn keep_in(a: $register, mask: u32) -> $register {
                        unsafe { $and(a, Self::ones_in(mask)) }
                    }

                    #[inline(always)]
                    unsafe fn flip_in(a: $register, mask: u32) -> $register {
                        unsafe { $xor(a, $and(Self::ones_in(mask), Self::splat(-0.0).0[0])) }
                    }

                    #[inline(always)]
                    unsafe fn select_in(mask: u32, yes: $register, no: $register) -> $register {
                        unsafe { $blend(no, yes, Self::ones_in(mask)) }
                    }
                }
            };
        }

        masks!(
            F64,
            __m256d,
            _mm256_set_epi64x(8, 4, 2, 1),
            _mm256_castsi256_pd,
            _mm256_cmpeq_epi64,
            _mm256_set1_epi64x,
            _mm256_and_pd,
            _mm256_xor_pd,
            _mm256_blendv_pd
        );
        masks!(
            F32,
            __m256,
            _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1),
            _mm256_castsi256_ps,
            _mm256_cmpeq_epi32,
            _mm256_set1_epi32,
            _mm256_and_ps,
            _mm256_xor_ps,
            _mm256_blendv_ps
        );
    }

    pub(super) mod avx512 {
        use super::*;

        line!(
            F64,
            f64,
            8,
            [__m512d; 1],
            _mm512_add_pd,
            _mm512_sub_pd,
            _mm512_mul_pd,
            _mm512_div_pd,
            _mm512_fmadd_pd,
            _mm512_min_pd,
            _mm512_max_pd,
            _mm512_xor_pd,
            _mm512_andnot_pd,
            _mm512_set1_pd,
            _mm512_loadu_pd,
            _mm512_storeu_pd
        );
        line!(
            F32,
            f32,
            16,
            [__m512; 1],
            _mm512_add_ps,
            _mm512_sub_ps,
            _mm512_mul_ps,
            _mm512_div_ps,
            _mm512_fmadd_ps,
            _mm512_min_ps,
            _mm512_max_ps,
            _mm512_xor_ps,
            _mm512_andnot_ps,
            _mm512_set1_ps,
            _mm512_loadu_ps,
            _mm512_storeu_ps
        );

        macro_rules! masks {
            ($name:ident, $register:ident, $keep:ident, $flip:ident, $blend:ident) => {
                // SAFETY (all blocks below): see the type.
                #[allow(clippy::undocumented_unsafe_blocks)]
                impl $name {
                    #[inline(always)]
                    unsafe fn keep_in(a: $register, mask: u32) -> $register {
                        unsafe { $keep(mask as _, a) }
                    }

                    #[inline(always)]
                    unsafe fn flip_in(a: $register, mask: u32) -> $register {
                        unsafe { $flip(a, mask as _, a, Self::splat(-0.0).0[0]) }
                    }

                    #[inline(always)]
                    unsafe fn select_in(mask: u32, yes: $register, no: $register) -> $register {
                        unsafe { $blend(mask as _, no, yes) }
                    }
                }
            };
        }

        masks!(
            F64,
            __m512d,
            _mm512_maskz_mov_pd,
            _mm512_mask_xor_pd,
            _mm512_mask_blend_pd
        );
        masks!(
            F32,
            __m512,
            _mm512_maskz_mov_ps,
            _mm512_mask_xor_ps,
            _mm512_mask_blend_ps
        );
    }
}
