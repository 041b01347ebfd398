//! The microkernel with the instruction `vdpbf16ps`: a tile of sums in registers, from pairs of bfloat16 numbers.

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, _CMP_UNORD_Q, _mm256_mask_storeu_epi16, _mm256_maskz_loadu_epi16,
    _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32, _mm512_dpbf16_ps, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_mask_blend_epi32, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps,
    _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
    _mm512_srli_epi32, _mm512_storeu_ps,
};

use super::pair_tile::{PairKernel, PairTile, TileEpilogue};

/// Rows of the tallest tile in registers.
pub(super) const ROWS: usize = 12;
/// Columns of a register.
pub(super) const WIDTH: usize = 16;
/// Columns of the widest tile, and of a packed panel.
pub(super) const PANEL: usize = 2 * WIDTH;

/// Kernels by number of registers minus one, then by number of rows minus one.
pub(super) static KERNELS: [[PairKernel; ROWS]; 2] = {
    macro_rules! by_rows {
        ($n:literal: $($m:literal)+) => { [$(tile::<$m, $n>),+] };
    }
    [by_rows!(1: 1 2 3 4 5 6 7 8 9 10 11 12), by_rows!(2: 1 2 3 4 5 6 7 8 9 10 11 12)]
};

/// Rounds to bfloat16, to the nearest number and ties to even. The instruction for it would flush subnormal numbers.
///
/// # Safety
/// The machine must have AVX-512.
#[inline(always)]
pub(super) unsafe fn narrow(v: __m512) -> __m256i {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let high = _mm512_srli_epi32::<16>(bits);
        let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32::<16>(rounded), quiet))
    }
}

/// Converts 16 bfloat16 numbers to `f32`.
///
/// # Safety
/// The machine must have AVX-512.
#[inline(always)]
pub(super) unsafe fn widen(v: __m256i) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(v))) }
}

/// # Safety
/// The machine must have AVX-512 with BF16, and the memory of the tile must be valid.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
#[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
unsafe fn tile<const M: usize, const N: usize>(t: &PairTile) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); N]; M];
        // Three rows share a pointer: address computation adds one or two strides for free.
        let mut groups = [t.a; 4];
        for (g, p) in groups.iter_mut().enumerate() {
            *p = t.a.wrapping_add(3 * g * t.a_row);
        }
        let mut b = t.b;
        for _ in 0..t.pairs {
            let mut row = [std::mem::transmute::<__m512, __m512bh>(_mm512_setzero_ps()); N];
            for j in 0..N {
                row[j] = std::mem::transmute::<std::arch::x86_64::__m512i, __m512bh>(_mm512_loadu_si512(
                    b.add(j * WIDTH).cast(),
                ));
            }
            for i in 0..M {
                let x = groups[i / 3].wrapping_add(i % 3 * t.a_row).cast::<i32>().read_unaligned();
                let x: __m512bh = std::mem::transmute(_mm512_set1_epi32(x));
                for j in 0..N {
                    sums[i][j] = _mm512_dpbf16_ps(sums[i][j], row[j], x);
                }
            }
            for p in groups.iter_mut().take(M.div_ceil(3)) {
                *p = p.wrapping_add(t.a_pair);
            }
            b = b.wrapping_add(PANEL);
        }
        let mut memory = RegisterSums([0.0; PANEL * ROWS]);
        for i in 0..M {
            for j in 0..N {
                _mm512_storeu_ps(memory.0.as_mut_ptr().add(i * PANEL + j * WIDTH), sums[i][j]);
            }
        }
        store(t, memory.0.as_ptr(), M, N);
    }
}

/// The sums of a tile, row by row. The epilogue reads them from memory, so that there is one copy of it.
#[repr(align(64))]
struct RegisterSums([f32; PANEL * ROWS]);

/// Stores a tile of sums with `m` rows and `n` registers. Rows of `sums` are [`PANEL`] apart.
///
/// # Safety
/// As [`tile`], and the sums must be readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn store(t: &PairTile, sums: *const f32, m: usize, n: usize) {
    let TileEpilogue { accumulate, row_bias, column_bias, relu } = t.epilogue;
    // SAFETY: guaranteed by the caller, and masks keep within `t.n` columns.
    unsafe {
        for j in 0..n {
            let mask = match t.n.saturating_sub(j * WIDTH) {
                left @ 0..16 => (1_u16 << left) - 1,
                _ => u16::MAX,
            };
            let columns = match column_bias.is_null() {
                true => _mm512_set1_ps(-0.0), // changes no sum
                false => _mm512_maskz_loadu_ps(mask, column_bias.wrapping_add(j * WIDTH)),
            };
            for i in 0..m {
                let mut v = _mm512_loadu_ps(sums.add(i * PANEL + j * WIDTH));
                let at = (i as isize * t.c_row).wrapping_add_unsigned(j * WIDTH);
                let (wide, narrowed) =
                    (t.c.cast::<f32>().wrapping_offset(at), t.c.cast::<i16>().wrapping_offset(at));
                if accumulate {
                    let before = match t.is_narrow {
                        true => widen(_mm256_maskz_loadu_epi16(mask, narrowed)),
                        false => _mm512_maskz_loadu_ps(mask, wide),
                    };
                    v = _mm512_add_ps(v, before);
                }
                if !row_bias.is_null() {
                    v = _mm512_add_ps(v, _mm512_set1_ps(*row_bias.add(i)));
                }
                v = _mm512_add_ps(v, columns);
                if relu {
                    // The maximum is its second operand where one is NaN, or both are zero.
                    v = _mm512_max_ps(_mm512_setzero_ps(), v);
                }
                match t.is_narrow {
                    true => _mm256_mask_storeu_epi16(narrowed, mask, narrow(v)),
                    false => _mm512_mask_storeu_ps(wide, mask, v),
                }
            }
        }
    }
}
