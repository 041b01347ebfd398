//! Registers of x86-64: AVX-512, and AVX2 with FMA.

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

use super::Vector;
use crate::array::sixteen::bits_of;

/// The class of subnormal numbers.
pub(crate) const SUBNORMAL: i32 = 0x20;

/// The part of [`Vector`] in which AVX2 and AVX-512 differ only in the names of intrinsics.
macro_rules! common {
    ($t:ident, $width:expr, $zero:ident, $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident,
     $fma:ident, $max:ident) => {
        type T = $t;
        const WIDTH: usize = $width;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait guarantees the instructions. Same below.
            Self(unsafe { $zero() })
        }
        #[inline(always)]
        unsafe fn all(v: $t) -> Self {
            // SAFETY: as above.
            Self(unsafe { $set(v) })
        }
        #[inline(always)]
        unsafe fn load(p: *const $t) -> Self {
            // SAFETY: as above, and the elements are readable.
            Self(unsafe { $load(p) })
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut $t) {
            // SAFETY: as above, and the elements are writable.
            unsafe { $store(p, self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $add(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $sub(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $mul(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn mul_add(self, a: Self, b: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $fma(self.0, a.0, b.0) })
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $max(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn relu(self) -> Self {
            // The maximum returns its second operand if one is NaN, or both are zero.
            // SAFETY: as above.
            Self(unsafe { $max($zero(), self.0) })
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const $t) {
            // SAFETY: a prefetch accepts any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
    };
}

/// Makes a register type of AVX-512 from its intrinsics.
macro_rules! avx512 {
    ($name:ident, $t:ident, $reg:ident, $mask:ident, $width:expr, $zero:ident, $set:ident, $load:ident, $store:ident,
     $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $loadm:ident, $storem:ident, $moved:ident,
     $compare:ident, $blend:ident,
     $permute:ident, $index:ident, $int:ident, $gather:ident, $numbers:ident, $($further:item),+) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($reg);

        // SAFETY: the functions implement the trait as specified.
        unsafe impl Vector for $name {
            type Mask = $mask;
            common!($t, $width, $zero, $set, $load, $store, $add, $sub, $mul, $fma, $max);

            #[inline(always)]
            unsafe fn gather(p: *const $t, numbers: *const i32) -> Self {
                // SAFETY: as above.
                Self(unsafe { $gather::<{ size_of::<$t>() as i32 }>($numbers(numbers.cast()), p) })
            }
            #[inline(always)]
            unsafe fn first(n: usize) -> $mask {
                if n >= $width { $mask::MAX } else { (1 << n) - 1 }
            }
            #[inline(always)]
            unsafe fn between(start: usize, end: usize) -> $mask {
                // SAFETY: as above.
                unsafe { Self::first(end) & !Self::first(start) }
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, mask: $mask) -> Self {
                // SAFETY: as above, and masked elements are not accessed.
                Self(unsafe { $loadm(mask, p) })
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, mask: $mask) {
                // SAFETY: as above, and masked elements are not accessed.
                unsafe { $storem(p, mask, self.0) }
            }
            #[inline(always)]
            unsafe fn where_larger(self, other: Self, yes: Self, no: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $blend($compare::<_CMP_GT_OQ>(self.0, other.0), no.0, yes.0) })
            }
            #[inline(always)]
            unsafe fn equal(self, other: Self) -> u32 {
                // SAFETY: as above.
                u32::from(unsafe { $compare::<_CMP_EQ_OQ>(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn keep(self, mask: $mask) -> Self {
                // SAFETY: as above.
                Self(unsafe { $moved(mask, self.0) })
            }
            #[inline(always)]
            unsafe fn evens(a: Self, b: Self) -> Self {
                let evens: [$int; $width] = std::array::from_fn(|i| 2 * i as $int);
                // SAFETY: as above, and the indices fill a register.
                unsafe { Self($permute(a.0, $index(evens.as_ptr().cast()), b.0)) }
            }
            #[inline(always)]
            unsafe fn weave(a: Self, b: Self) -> (Self, Self) {
                let low: [$int; $width] = std::array::from_fn(|i| (i / 2 + i % 2 * $width) as $int);
                let high: [$int; $width] =
                    std::array::from_fn(|i| (i / 2 + i % 2 * $width + $width / 2) as $int);
                // SAFETY: as above, and the indices fill a register.
                unsafe {
                    let (low, high) = ($index(low.as_ptr().cast()), $index(high.as_ptr().cast()));
                    (Self($permute(a.0, low, b.0)), Self($permute(a.0, high, b.0)))
                }
            }
            $(#[inline(always)] $further)+
        }
    };
}

/// Makes a register type of 16 lanes of `f32` with this instruction for multiplying and adding.
macro_rules! f32x16 {
    ($name:ident, $fma:ident) => {
        avx512!(
            $name,
            f32,
            __m512,
            __mmask16,
            16,
            _mm512_setzero_ps,
            _mm512_set1_ps,
            _mm512_loadu_ps,
            _mm512_storeu_ps,
            _mm512_add_ps,
            _mm512_sub_ps,
            _mm512_mul_ps,
            $fma,
            _mm512_max_ps,
            _mm512_maskz_loadu_ps,
            _mm512_mask_storeu_ps,
            _mm512_maskz_mov_ps,
            _mm512_cmp_ps_mask,
            _mm512_mask_blend_ps,
            _mm512_permutex2var_ps,
            _mm512_loadu_epi32,
            i32,
            _mm512_i32gather_ps,
            _mm512_loadu_si512,
            // Moves blocks within quarters of registers, or whole quarters, which is faster than selecting each number.
            unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
                let (a, b) = (a.0, b.0);
                // SAFETY: as above.
                let (low, high) = unsafe {
                    match D {
                        1 => (
                            _mm512_mask_moveldup_ps(a, 0b1010_1010_1010_1010, b),
                            _mm512_mask_movehdup_ps(b, 0b0101_0101_0101_0101, a),
                        ),
                        2 => (
                            _mm512_shuffle_ps::<0b01_00_01_00>(a, b),
                            _mm512_shuffle_ps::<0b11_10_11_10>(a, b),
                        ),
                        4 => (
                            _mm512_mask_shuffle_f32x4::<0b10_00_00_00>(a, 0b1111_0000_1111_0000, b, b),
                            _mm512_mask_shuffle_f32x4::<0b00_11_00_01>(b, 0b0000_1111_0000_1111, a, a),
                        ),
                        _ => (
                            _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b),
                            _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b),
                        ),
                    }
                };
                (Self(low), Self(high))
            },
            unsafe fn widen<const HALF: bool>(p: *const u16, left: Option<__mmask16>) -> Self {
                // SAFETY: as above, and masked elements are not accessed.
                unsafe {
                    let bits = match left {
                        None => _mm256_loadu_si256(p.cast()),
                        Some(mask) => _mm256_maskz_loadu_epi16(mask, p.cast()),
                    };
                    if HALF {
                        return Self(_mm512_cvtph_ps(bits));
                    }
                    Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))))
                }
            },
            unsafe fn narrow<const HALF: bool>(self, p: *mut u16, left: Option<__mmask16>) {
                // SAFETY: as above, and masked elements are not accessed.
                unsafe {
                    let bits = if HALF {
                        _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)
                    } else if _mm512_fpclass_ps_mask::<SUBNORMAL>(self.0) == 0 {
                        std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(self.0))
                    } else {
                        // The instruction flushes subnormal numbers.
                        let mut numbers = [0.0; 16];
                        _mm512_storeu_ps(numbers.as_mut_ptr(), self.0);
                        _mm256_loadu_si256(rounded_bits(&numbers).as_ptr().cast())
                    };
                    match left {
                        None => _mm256_storeu_si256(p.cast(), bits),
                        Some(mask) => _mm256_mask_storeu_epi16(p.cast(), mask, bits),
                    }
                }
            }
        );
    };
}

/// Rounds numbers to bfloat16, subnormal ones too.
#[cold]
#[inline(never)]
fn rounded_bits(numbers: &[f32; 16]) -> [u16; 16] {
    numbers.map(bits_of)
}

/// Adds to each sum the products of the two bfloat16 numbers in a lane of `a` and of `b`.
#[inline(always)]
unsafe fn add_pairs(a: __m512, b: __m512, sums: __m512) -> __m512 {
    // SAFETY: the caller guarantees AVX-512 with BF16, and both types are registers of 512 bits.
    unsafe {
        let of = |v: __m512| std::mem::transmute::<__m512, __m512bh>(v);
        _mm512_dpbf16_ps(sums, of(a), of(b))
    }
}

f32x16!(F32x16, _mm512_fmadd_ps);
// Lanes are sums in `f32`, or words of two bfloat16 numbers, which `mul_add` multiplies. Requires AVX-512 with BF16.
f32x16!(PairsX16, add_pairs);
avx512!(
    F64x8,
    f64,
    __m512d,
    __mmask8,
    8,
    _mm512_setzero_pd,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_add_pd,
    _mm512_sub_pd,
    _mm512_mul_pd,
    _mm512_fmadd_pd,
    _mm512_max_pd,
    _mm512_maskz_loadu_pd,
    _mm512_mask_storeu_pd,
    _mm512_maskz_mov_pd,
    _mm512_cmp_pd_mask,
    _mm512_mask_blend_pd,
    _mm512_permutex2var_pd,
    _mm512_loadu_epi64,
    i64,
    _mm512_i32gather_pd,
    _mm256_loadu_si256,
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        let (a, b) = (a.0, b.0);
        // SAFETY: as above.
        let (low, high) = unsafe {
            match D {
                1 => (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b)),
                2 => (
                    _mm512_mask_shuffle_f64x2::<0b10_00_00_00>(a, 0b1100_1100, b, b),
                    _mm512_mask_shuffle_f64x2::<0b00_11_00_01>(b, 0b0011_0011, a, a),
                ),
                _ => {
                    (_mm512_shuffle_f64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_f64x2::<0b11_10_11_10>(a, b))
                }
            }
        };
        (Self(low), Self(high))
    }
);

/// Makes a register type of AVX2 from its intrinsics.
macro_rules! avx2 {
    ($name:ident, $t:ident, $reg:ident, $width:expr, $zero:ident, $set:ident, $load:ident, $store:ident,
     $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $and:ident, $cast:ident, $compare:ident,
     $blend:ident, $signs:ident, $loadm:ident, $storem:ident,
     $int:ident, $low:ident, $high:ident, $halves:ident, $evens:item, $exchange:item) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($reg);

        // SAFETY: the functions implement the trait as specified.
        unsafe impl Vector for $name {
            type Mask = __m256i;
            common!($t, $width, $zero, $set, $load, $store, $add, $sub, $mul, $fma, $max);

            #[inline(always)]
            unsafe fn first(n: usize) -> __m256i {
                const SIGNS: [$int; 2 * $width] = {
                    let mut signs = [0; 2 * $width];
                    let mut i = 0;
                    while i < $width {
                        signs[i] = -1;
                        i += 1;
                    }
                    signs
                };
                // SAFETY: a window of one register within two.
                unsafe { _mm256_loadu_si256(SIGNS.as_ptr().add($width - n.min($width)).cast()) }
            }
            #[inline(always)]
            unsafe fn between(start: usize, end: usize) -> __m256i {
                // SAFETY: as above.
                unsafe { _mm256_andnot_si256(Self::first(start), Self::first(end)) }
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, mask: __m256i) -> Self {
                // SAFETY: as above, and masked elements are not accessed.
                Self(unsafe { $loadm(p, mask) })
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, mask: __m256i) {
                // SAFETY: as above, and masked elements are not accessed.
                unsafe { $storem(p, mask, self.0) }
            }
            #[inline(always)]
            unsafe fn where_larger(self, other: Self, yes: Self, no: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $blend(no.0, yes.0, $compare::<_CMP_GT_OQ>(self.0, other.0)) })
            }
            #[inline(always)]
            unsafe fn equal(self, other: Self) -> u32 {
                // SAFETY: as above.
                unsafe { $signs($compare::<_CMP_EQ_OQ>(self.0, other.0)) as u32 }
            }
            #[inline(always)]
            unsafe fn keep(self, mask: __m256i) -> Self {
                // SAFETY: as above.
                Self(unsafe { $and(self.0, $cast(mask)) })
            }
            #[inline(always)]
            unsafe fn weave(a: Self, b: Self) -> (Self, Self) {
                // SAFETY: as above.
                unsafe {
                    // Interleaves within the halves of registers.
                    let (low, high) = ($low(a.0, b.0), $high(a.0, b.0));
                    (Self($halves::<0x20>(low, high)), Self($halves::<0x31>(low, high)))
                }
            }
            #[inline(always)]
            $evens
            #[inline(always)]
            $exchange
        }
    };
}

avx2!(
    F32x8,
    f32,
    __m256,
    8,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    _mm256_and_ps,
    _mm256_castsi256_ps,
    _mm256_cmp_ps,
    _mm256_blendv_ps,
    _mm256_movemask_ps,
    _mm256_maskload_ps,
    _mm256_maskstore_ps,
    i32,
    _mm256_unpacklo_ps,
    _mm256_unpackhi_ps,
    _mm256_permute2f128_ps,
    unsafe fn evens(a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let halves = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(a.0, b.0));
            Self(_mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(halves)))
        }
    },
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            match D {
                1 => (
                    Self(_mm256_blend_ps::<0b1010_1010>(a.0, _mm256_moveldup_ps(b.0))),
                    Self(_mm256_blend_ps::<0b1010_1010>(_mm256_movehdup_ps(a.0), b.0)),
                ),
                2 => (
                    Self(_mm256_shuffle_ps::<0b01_00_01_00>(a.0, b.0)),
                    Self(_mm256_shuffle_ps::<0b11_10_11_10>(a.0, b.0)),
                ),
                _ => (
                    Self(_mm256_permute2f128_ps::<0x20>(a.0, b.0)),
                    Self(_mm256_permute2f128_ps::<0x31>(a.0, b.0)),
                ),
            }
        }
    }
);
avx2!(
    F64x4,
    f64,
    __m256d,
    4,
    _mm256_setzero_pd,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_fmadd_pd,
    _mm256_max_pd,
    _mm256_and_pd,
    _mm256_castsi256_pd,
    _mm256_cmp_pd,
    _mm256_blendv_pd,
    _mm256_movemask_pd,
    _mm256_maskload_pd,
    _mm256_maskstore_pd,
    i64,
    _mm256_unpacklo_pd,
    _mm256_unpackhi_pd,
    _mm256_permute2f128_pd,
    unsafe fn evens(a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_unpacklo_pd(a.0, b.0))) }
    },
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            match D {
                1 => (Self(_mm256_unpacklo_pd(a.0, b.0)), Self(_mm256_unpackhi_pd(a.0, b.0))),
                _ => (
                    Self(_mm256_permute2f128_pd::<0x20>(a.0, b.0)),
                    Self(_mm256_permute2f128_pd::<0x31>(a.0, b.0)),
                ),
            }
        }
    }
);
