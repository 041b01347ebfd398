//! The microkernel with the instruction `bfmmla`: it adds the products of two rows of four numbers with two columns of
//! four to a block of 2 x 2 sums.
//!
//! Four numbers are two pairs, a quad. A panel has its quads first: the quad of each column, then the next quad of each
//! column. A last pair without partner follows as a row of pairs.

use std::arch::aarch64::{
    float32x4_t, uint16x8_t, vcombine_u16, vdupq_n_f32, vdupq_n_u16, vdupq_n_u32, vld1_u16, vld1q_u16,
    vld1q_u32, vreinterpretq_f32_f64, vreinterpretq_f64_f32, vreinterpretq_u16_u8, vreinterpretq_u16_u32,
    vsetq_lane_u32, vst1q_f32, vzip1q_f64, vzip1q_u32, vzip2q_f64, vzip2q_u32,
};
use std::arch::asm;

use super::super::pair_tile::{PairKernel, PairTile, TileEpilogue};
use crate::kernels::simd::neon::joined_rows;
use crate::kernels::sixteen_bits::bits_of;

/// Rows of the tallest tile.
pub(in super::super) const ROWS: usize = 12;
/// Columns of a register of sums.
pub(in super::super) const WIDTH: usize = 4;
/// Columns of the widest tile, and of a packed panel.
pub(in super::super) const PANEL: usize = 2 * WIDTH;

/// Kernels by number of registers minus one, then by number of rows minus one.
pub(in super::super) static KERNELS: [[PairKernel; ROWS]; 2] = {
    macro_rules! by_rows {
        ($n:literal: $($m:literal)+) => { [$(tile::<$m, $n>),+] };
    }
    [by_rows!(1: 1 2 3 4 5 6 7 8 9 10 11 12), by_rows!(2: 1 2 3 4 5 6 7 8 9 10 11 12)]
};

/// Adds the products of two rows and two columns to their sums: row 0 with both columns, then row 1.
///
/// # Safety
/// The machine must have FEAT_BF16.
#[inline(always)]
unsafe fn multiply_add(sums: &mut float32x4_t, rows: uint16x8_t, columns: uint16x8_t) {
    // SAFETY: guaranteed by the caller. The instruction changes registers only.
    unsafe {
        asm!(
            ".arch_extension bf16",
            "bfmmla {sums:v}.4s, {rows:v}.8h, {columns:v}.8h",
            sums = inout(vreg) *sums, rows = in(vreg) rows, columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// # Safety
/// The machine must have FEAT_BF16, and the memory of the tile must be valid.
#[target_feature(enable = "neon,bf16")]
#[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
unsafe fn tile<const M: usize, const N: usize>(t: &PairTile) {
    const BLOCKS: usize = ROWS / 2;
    // Rows of a block, where the last row may be its own neighbour, whose sums are not stored.
    let rows = |block: usize| (2 * block, (2 * block + 1).min(M - 1));
    let is_packed = t.a_pair != 4;
    let quads = t.pairs / 2;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sums = [[[vdupq_n_f32(0.0); 2]; N]; BLOCKS];
        let mut b = t.b;
        let blocks = M.div_ceil(2);
        let columns = |b: *const u32| {
            let mut columns = [[vdupq_n_u16(0); 2]; N];
            for j in 0..N {
                for half in 0..2 {
                    columns[j][half] = vld1q_u16(b.add(2 * WIDTH * j + 4 * half).cast());
                }
            }
            columns
        };
        if is_packed {
            let mut a = t.a;
            for _ in 0..quads {
                let columns = columns(b);
                for i in 0..blocks {
                    let (row, next) = rows(i);
                    let of_rows = match next > row {
                        true => vld1q_u16(a.add(8 * row).cast()),
                        false => {
                            vcombine_u16(vld1_u16(a.add(8 * row).cast()), vld1_u16(a.add(8 * row).cast()))
                        }
                    };
                    for j in 0..N {
                        multiply_add(&mut sums[i][j][0], of_rows, columns[j][0]);
                        multiply_add(&mut sums[i][j][1], of_rows, columns[j][1]);
                    }
                }
                a = a.add(8 * M);
                b = b.add(2 * PANEL);
            }
        } else {
            let mut a = [t.a; ROWS];
            for i in 0..M {
                a[i] = t.a.wrapping_add(i * t.a_row);
            }
            for quad in 0..quads {
                let columns = columns(b);
                for i in 0..blocks {
                    let (row, next) = rows(i);
                    let of_rows = vreinterpretq_u16_u8(joined_rows(a[row], a[next], 8 * quad));
                    for j in 0..N {
                        multiply_add(&mut sums[i][j][0], of_rows, columns[j][0]);
                        multiply_add(&mut sums[i][j][1], of_rows, columns[j][1]);
                    }
                }
                b = b.add(2 * PANEL);
            }
        }
        if t.pairs % 2 == 1 {
            // A pair of each row and column, with zeros for the second one of a quad.
            let (a, step) = match is_packed {
                true => (t.a.add(quads * 8 * M), 4),
                false => (t.a.wrapping_add(8 * quads), t.a_row),
            };
            let zero = vdupq_n_u32(0);
            for i in 0..blocks {
                let (row, next) = rows(i);
                let pair = |i: usize| a.wrapping_add(i * step).cast::<u32>().read_unaligned();
                let of_rows = vsetq_lane_u32::<2>(pair(next), vsetq_lane_u32::<0>(pair(row), zero));
                let of_rows = vreinterpretq_u16_u32(of_rows);
                for j in 0..N {
                    let columns = vld1q_u32(b.add(j * WIDTH));
                    multiply_add(
                        &mut sums[i][j][0],
                        of_rows,
                        vreinterpretq_u16_u32(vzip1q_u32(columns, zero)),
                    );
                    multiply_add(
                        &mut sums[i][j][1],
                        of_rows,
                        vreinterpretq_u16_u32(vzip2q_u32(columns, zero)),
                    );
                }
            }
        }
        let mut memory = BlockSums([0.0; PANEL * ROWS]);
        for i in 0..blocks {
            for j in 0..N {
                let [left, right] = sums[i][j].map(|v| vreinterpretq_f64_f32(v));
                let to = memory.0.as_mut_ptr().add(2 * i * PANEL + j * WIDTH);
                vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
                vst1q_f32(to.add(PANEL), vreinterpretq_f32_f64(vzip2q_f64(left, right)));
            }
        }
        store(t, &memory, M);
    }
}

/// The sums of a tile, row by row. The epilogue reads them from memory, so that there is one copy of it.
#[repr(align(64))]
struct BlockSums([f32; PANEL * ROWS]);

/// Stores a tile of sums with `m` rows.
///
/// # Safety
/// As [`tile`].
unsafe fn store(t: &PairTile, sums: &BlockSums, m: usize) {
    let TileEpilogue { accumulate, row_bias, column_bias, relu } = t.epilogue;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for j in (0..t.n).step_by(WIDTH) {
            let n = WIDTH.min(t.n - j);
            let columns = match column_bias.is_null() {
                true => [-0.0; WIDTH], // changes no sum
                false => read(column_bias.wrapping_add(j), n),
            };
            for i in 0..m {
                let mut v: [f32; WIDTH] = read(sums.0.as_ptr().add(i * PANEL + j), WIDTH);
                let at = (i as isize * t.c_row).wrapping_add_unsigned(j);
                let (wide, narrowed) =
                    (t.c.cast::<f32>().wrapping_offset(at), t.c.cast::<u16>().wrapping_offset(at));
                if accumulate {
                    let before = match t.is_narrow {
                        true => read(narrowed, n).map(|bits| f32::from_bits(u32::from(bits) << 16)),
                        false => read(wide, n),
                    };
                    v = sum(v, before);
                }
                if !row_bias.is_null() {
                    v = sum(v, [*row_bias.add(i); WIDTH]);
                }
                v = sum(v, columns);
                if relu {
                    v = v.map(|v| if v < 0.0 { 0.0 } else { v });
                }
                match t.is_narrow {
                    true => write(narrowed, v.map(bits_of), n),
                    false => write(wide, v, n),
                }
            }
        }
    }
}

#[inline(always)]
fn sum(a: [f32; WIDTH], b: [f32; WIDTH]) -> [f32; WIDTH] {
    std::array::from_fn(|i| a[i] + b[i])
}

/// The first `n` elements at `from`, and zeros.
///
/// # Safety
/// The elements must exist.
#[inline(always)]
unsafe fn read<T: Copy + Default>(from: *const T, n: usize) -> [T; WIDTH] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if n == WIDTH {
            return from.cast::<[T; WIDTH]>().read_unaligned();
        }
        std::array::from_fn(|i| if i < n { from.add(i).read_unaligned() } else { T::default() })
    }
}

/// Writes the first `n` elements.
///
/// # Safety
/// The elements must exist.
#[inline(always)]
unsafe fn write<T: Copy>(to: *mut T, values: [T; WIDTH], n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if n == WIDTH {
            return to.cast::<[T; WIDTH]>().write_unaligned(values);
        }
        for (i, v) in values.into_iter().enumerate().take(n) {
            to.add(i).write_unaligned(v);
        }
    }
}
