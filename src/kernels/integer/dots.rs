//! Registers of sums of 8-bit products. Knows one register, not loops.

/// A register of sums, one for each of `WIDTH` columns. A step adds four products to each, exactly modulo 2^32.
///
/// # Safety
/// Every function requires the instructions of the type, and valid memory for its pointers. All must be inlined into
/// a function that has the instructions.
#[allow(missing_docs, clippy::missing_safety_doc)] // documented for all
pub(super) unsafe trait IntegerDots: Copy {
    /// The number of columns.
    const WIDTH: usize;
    /// The number that [`IntegerDots::levels`] subtracts from each level.
    const LEVELS_LESS: u8 = 0;
    /// Four terms of each column.
    type Weights: Copy;
    /// Four terms that are the same for each column.
    type Levels: Copy;

    /// All sums zero.
    unsafe fn zero() -> Self;
    /// Reads four bytes of each column, one column after the other.
    unsafe fn weights(p: *const i8) -> Self::Weights;
    /// Reads four bytes.
    unsafe fn levels(p: *const u8) -> Self::Levels;
    /// Adds the products of these terms.
    unsafe fn add(self, levels: Self::Levels, weights: Self::Weights) -> Self;
    /// Writes the `WIDTH` sums.
    unsafe fn store(self, p: *mut i32);
    /// Adds one number for each column.
    unsafe fn plus(self, p: *const i32) -> Self;
    /// Subtracts `by` times one number for each column.
    unsafe fn minus_product(self, p: *const i32, by: i32) -> Self;
    /// Writes the level of each sum times the scale of its column: `WIDTH` bytes.
    unsafe fn write_levels(self, scales: *const f32, rounding: Rounding, to: *mut u8);
    /// Writes each sum times the scale of its column, plus the shift of the column: `WIDTH` numbers.
    unsafe fn write_numbers(self, scales: *const f32, shifts: *const f32, to: *mut f32);
}

/// Conversion of numbers to levels: `saturate(round(number) + zero)`, with ties to even. NaN becomes the lowest
/// level.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// The level that represents zero.
    pub(super) zero: u8,
    /// The least number that is not clamped.
    pub(super) least: f32,
    /// The largest number that is not clamped.
    pub(super) most: f32,
}

impl Rounding {
    /// Levels between two bounds, with the given zero point.
    pub fn new(zero: u8, bounds: [u8; 2]) -> Self {
        let [least, most] = bounds.map(|bound| f32::from(bound) - f32::from(zero));
        Self { zero, least, most }
    }

    /// The level of a number.
    #[inline(always)]
    pub fn level(self, v: f32) -> u8 {
        /// Adding this constant leaves a small number, rounded to a whole one, in the low bits of the sum.
        const ROUND: f32 = 12_582_912.0;
        let v = if v > self.least { v } else { self.least };
        let v = if v < self.most { v } else { self.most };
        ((v + ROUND).to_bits() as u8).wrapping_add(self.zero)
    }
}

/// Four columns, in an array that the compiler may vectorize. `LESS` is subtracted from each level.
#[derive(Clone, Copy)]
pub(super) struct Portable<const LESS: u8>([i32; 4]);

// SAFETY: plain instructions.
unsafe impl<const LESS: u8> IntegerDots for Portable<LESS> {
    const WIDTH: usize = 4;
    const LEVELS_LESS: u8 = LESS;
    type Weights = [[i8; 4]; 4];
    type Levels = [u8; 4];

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 4])
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> Self::Weights {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe { p.cast::<Self::Weights>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn levels(p: *const u8) -> Self::Levels {
        // SAFETY: as above.
        unsafe { p.cast::<Self::Levels>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn add(mut self, levels: Self::Levels, weights: Self::Weights) -> Self {
        for (sum, weights) in self.0.iter_mut().zip(weights) {
            let product = |k: usize| (i32::from(levels[k]) - i32::from(LESS)) * i32::from(weights[k]);
            *sum = sum.wrapping_add(product(0) + product(1) + product(2) + product(3));
        }
        self
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut i32) {
        // SAFETY: as above.
        unsafe { p.cast::<[i32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn plus(self, p: *const i32) -> Self {
        // SAFETY: as above.
        Self(std::array::from_fn(|i| self.0[i].wrapping_add(unsafe { *p.add(i) })))
    }
    #[inline(always)]
    unsafe fn minus_product(self, p: *const i32, by: i32) -> Self {
        // SAFETY: as above.
        Self(std::array::from_fn(|i| self.0[i].wrapping_sub(unsafe { *p.add(i) }.wrapping_mul(by))))
    }
    #[inline(always)]
    unsafe fn write_levels(self, scales: *const f32, rounding: Rounding, to: *mut u8) {
        for (i, sum) in self.0.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(i).write(rounding.level(sum as f32 * *scales.add(i))) };
        }
    }
    #[inline(always)]
    unsafe fn write_numbers(self, scales: *const f32, shifts: *const f32, to: *mut f32) {
        for (i, sum) in self.0.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(i).write(sum as f32 * *scales.add(i) + *shifts.add(i)) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use super::{IntegerDots, Rounding};

    /// The conversion of eight sums.
    macro_rules! finish_avx2 {
        () => {
            /// Adds 32-bit integers from memory.
            #[inline(always)]
            unsafe fn plus(self, p: *const i32) -> Self {
                // SAFETY: the trait guarantees the instructions, and the elements are readable. Same below.
                Self(unsafe { _mm256_add_epi32(self.0, _mm256_loadu_si256(p.cast())) })
            }
            /// Subtracts 32-bit integers from memory, multiplied by `by`.
            #[inline(always)]
            unsafe fn minus_product(self, p: *const i32, by: i32) -> Self {
                // SAFETY: as above.
                unsafe {
                    let product = _mm256_mullo_epi32(_mm256_loadu_si256(p.cast()), _mm256_set1_epi32(by));
                    Self(_mm256_sub_epi32(self.0, product))
                }
            }
            /// Scales, rounds and saturates the sums, and writes them as bytes.
            #[inline(always)]
            unsafe fn write_levels(self, scales: *const f32, rounding: Rounding, to: *mut u8) {
                // SAFETY: as above, and the bytes are writable. The maximum returns its second operand if one is NaN.
                unsafe {
                    let v = _mm256_mul_ps(_mm256_cvtepi32_ps(self.0), _mm256_loadu_ps(scales));
                    let v = _mm256_max_ps(v, _mm256_set1_ps(rounding.least));
                    let v = _mm256_cvtps_epi32(_mm256_min_ps(v, _mm256_set1_ps(rounding.most)));
                    let v = _mm256_add_epi32(v, _mm256_set1_epi32(rounding.zero.into()));
                    // The low byte of each of four, in each half.
                    let v = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0C08_0400));
                    let (low, high) = (_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
                    _mm_storel_epi64(to.cast(), _mm_unpacklo_epi32(low, high));
                }
            }
            /// Scales and shifts the sums, and writes them as `f32`.
            #[inline(always)]
            unsafe fn write_numbers(self, scales: *const f32, shifts: *const f32, to: *mut f32) {
                // SAFETY: as above.
                unsafe {
                    let v = _mm256_mul_ps(_mm256_cvtepi32_ps(self.0), _mm256_loadu_ps(scales));
                    _mm256_storeu_ps(to, _mm256_add_ps(v, _mm256_loadu_ps(shifts)));
                }
            }
        };
    }

    /// Sixteen columns, with one instruction per step.
    #[derive(Clone, Copy)]
    pub(in crate::kernels::integer) struct Avx512Vnni(__m512i);

    // SAFETY: the functions implement the trait as specified.
    unsafe impl IntegerDots for Avx512Vnni {
        const WIDTH: usize = 16;
        type Weights = __m512i;
        type Levels = __m512i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait guarantees the instructions. Same below.
            Self(unsafe { _mm512_setzero_si512() })
        }
        #[inline(always)]
        unsafe fn weights(p: *const i8) -> __m512i {
            // SAFETY: as above, and the bytes are readable.
            unsafe { _mm512_loadu_si512(p.cast()) }
        }
        #[inline(always)]
        unsafe fn levels(p: *const u8) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
        }
        #[inline(always)]
        unsafe fn add(self, levels: __m512i, weights: __m512i) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm512_dpbusd_epi32(self.0, levels, weights) })
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut i32) {
            // SAFETY: as above, and the elements are writable.
            unsafe { _mm512_storeu_si512(p.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn plus(self, p: *const i32) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm512_add_epi32(self.0, _mm512_loadu_si512(p.cast())) })
        }
        #[inline(always)]
        unsafe fn minus_product(self, p: *const i32, by: i32) -> Self {
            // SAFETY: as above.
            unsafe {
                let product = _mm512_mullo_epi32(_mm512_loadu_si512(p.cast()), _mm512_set1_epi32(by));
                Self(_mm512_sub_epi32(self.0, product))
            }
        }
        #[inline(always)]
        unsafe fn write_levels(self, scales: *const f32, rounding: Rounding, to: *mut u8) {
            // SAFETY: as above, and the bytes are writable. The maximum returns its second operand if one is NaN.
            unsafe {
                let v = _mm512_mul_ps(_mm512_cvtepi32_ps(self.0), _mm512_loadu_ps(scales));
                let v = _mm512_max_ps(v, _mm512_set1_ps(rounding.least));
                let v = _mm512_cvtps_epi32(_mm512_min_ps(v, _mm512_set1_ps(rounding.most)));
                let v = _mm512_add_epi32(v, _mm512_set1_epi32(rounding.zero.into()));
                _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(v));
            }
        }
        #[inline(always)]
        unsafe fn write_numbers(self, scales: *const f32, shifts: *const f32, to: *mut f32) {
            // SAFETY: as above.
            unsafe {
                let v = _mm512_mul_ps(_mm512_cvtepi32_ps(self.0), _mm512_loadu_ps(scales));
                _mm512_storeu_ps(to, _mm512_add_ps(v, _mm512_loadu_ps(shifts)));
            }
        }
    }

    /// Eight columns, with one instruction per step.
    #[derive(Clone, Copy)]
    pub(in crate::kernels::integer) struct AvxVnni(__m256i);

    // SAFETY: the functions implement the trait as specified.
    unsafe impl IntegerDots for AvxVnni {
        const WIDTH: usize = 8;
        type Weights = __m256i;
        type Levels = __m256i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait guarantees the instructions. Same below.
            Self(unsafe { _mm256_setzero_si256() })
        }
        #[inline(always)]
        unsafe fn weights(p: *const i8) -> __m256i {
            // SAFETY: as above, and the bytes are readable.
            unsafe { _mm256_loadu_si256(p.cast()) }
        }
        #[inline(always)]
        unsafe fn levels(p: *const u8) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
        }
        #[inline(always)]
        unsafe fn add(self, levels: __m256i, weights: __m256i) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm256_dpbusd_avx_epi32(self.0, levels, weights) })
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut i32) {
            // SAFETY: as above, and the elements are writable.
            unsafe { _mm256_storeu_si256(p.cast(), self.0) }
        }
        finish_avx2!();
    }

    /// Eight columns. Adding 8-bit products directly would saturate, so products are computed in 16 bits: of the
    /// first and third terms, and of the second and fourth.
    #[derive(Clone, Copy)]
    pub(in crate::kernels::integer) struct Avx2(__m256i);

    // SAFETY: the functions implement the trait as specified.
    unsafe impl IntegerDots for Avx2 {
        const WIDTH: usize = 8;
        type Weights = [__m256i; 2];
        type Levels = [__m256i; 2];

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait guarantees the instructions. Same below.
            Self(unsafe { _mm256_setzero_si256() })
        }
        #[inline(always)]
        unsafe fn weights(p: *const i8) -> Self::Weights {
            // SAFETY: as above, and the bytes are readable.
            unsafe {
                let all = _mm256_loadu_si256(p.cast());
                [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(all)), _mm256_srai_epi16::<8>(all)]
            }
        }
        #[inline(always)]
        unsafe fn levels(p: *const u8) -> Self::Levels {
            // SAFETY: as above.
            unsafe {
                let all = _mm256_set1_epi32(p.cast::<i32>().read_unaligned());
                [_mm256_and_si256(all, _mm256_set1_epi16(255)), _mm256_srli_epi16::<8>(all)]
            }
        }
        #[inline(always)]
        unsafe fn add(self, levels: Self::Levels, weights: Self::Weights) -> Self {
            // SAFETY: as above.
            unsafe {
                let some = _mm256_add_epi32(self.0, _mm256_madd_epi16(levels[0], weights[0]));
                Self(_mm256_add_epi32(some, _mm256_madd_epi16(levels[1], weights[1])))
            }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut i32) {
            // SAFETY: as above, and the elements are writable.
            unsafe { _mm256_storeu_si256(p.cast(), self.0) }
        }
        finish_avx2!();
    }
}
