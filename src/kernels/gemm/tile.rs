//! The microkernel: a tile of the result that stays in registers during the sums. One source, compiled for each
//! instruction set.

use super::pack;
use crate::kernels::epilogue::{Activation, Epilogue};
use crate::kernels::simd::{Vector, tables};
use crate::kernels::{Float, Movable};

/// One tile: `c = epilogue(sum over items and k of a b)`, `rows` x `n` of it.
///
/// Element (i, p) of `a` is at `i a_row + p a_col`, row p of `b` at `p b_row`, row i of `c` at `i c_row`. Each item
/// of the batch moves `a` and `b` by its offsets, so a convolution is one batch over the taps of its kernel.
pub(super) struct ProductTile<'a, T> {
    /// The number of terms of each item of the batch.
    pub(super) k: usize,
    /// For [`CHAINED`], the number of terms that are added up before they are added to the previous sum.
    pub(super) chain: usize,
    /// The number of columns.
    pub(super) n: usize,
    /// The offsets of each item of the batch in `a` and in `b`.
    pub(super) batch: &'a [(isize, isize)],
    /// The first element of the left matrix.
    pub(super) a: *const T,
    /// The distance from a row of the left matrix to the next.
    pub(super) a_row: isize,
    /// The distance from a column of the left matrix to the next.
    pub(super) a_col: isize,
    /// The first element of the right matrix.
    pub(super) b: *const T,
    /// The distance from a row of the right matrix to the next.
    pub(super) b_row: isize,
    /// For [`SCATTERED_B`], the offset of each row of `b`. For [`SCATTERED_A`], of each row of `a`.
    pub(super) table: *const isize,
    /// For [`PACKING`], the destination of the packed rows of `b`.
    pub(super) packed: *mut T,
    /// The first element of the result.
    pub(super) c: *mut T,
    /// The distance from a row of the result to the next.
    pub(super) c_row: isize,
    /// The epilogue, which is applied to each sum.
    pub(super) epilogue: Epilogue<'a, T>,
    /// The address to prefetch: two registers with each step of `k`.
    pub(super) ahead: *const T,
    /// The distance from a prefetched address to the next.
    pub(super) ahead_step: isize,
}

/// Kind of kernel: both matrices have regular strides.
pub(super) const REGULAR: usize = 0;
/// Kind of kernel: rows of `b` at offsets from a table, in the order of columns of `a`.
pub(super) const SCATTERED_B: usize = 1;
/// Kind of kernel: rows of `a` at offsets from a table, with contiguous elements.
pub(super) const SCATTERED_A: usize = 2;
/// Kind of kernel: regular strides, and rows of `b` are packed on the fly.
pub(super) const PACKING: usize = 3;
/// Kind of kernel: regular strides, with sums in short chains, for smaller rounding errors.
pub(super) const CHAINED: usize = 4;

/// The kernel for one number of rows. It requires the instructions of its table and valid memory.
pub(super) type Kernel<T> = unsafe fn(&ProductTile<'_, T>);

/// Kernels of products for one instruction set.
pub(in crate::kernels) struct Kernels<T: 'static> {
    /// Numbers in a register. A tile is up to two registers wide. Tiles of few rows may be wider.
    pub(super) width: usize,
    /// By kind, then by number of registers minus one, then by number of rows minus one.
    pub(super) tiles: [[&'static [Kernel<T>]; 2]; 4],
    /// Tiles of the kind [`CHAINED`], which need twice as many registers: of one register, by number of rows minus
    /// one, and of two registers, by twice the number of rows minus two.
    pub(super) chained: [&'static [Kernel<T>]; 2],
    /// Tiles of four registers for up to three rows, of the kind [`SCATTERED_B`], by number of rows minus one.
    pub(super) low: [Kernel<T>; 3],
    /// Packs columns, see [`pack::columns`].
    pub(in crate::kernels) pack_columns: unsafe fn(&pack::ColumnsToPack<T>),
    /// Packs rows, see [`pack::rows`].
    pub(super) pack_rows: unsafe fn(&pack::RowsToPack<T>),
}

impl<T> Kernels<T> {
    /// Rows of the tallest tile.
    pub(in crate::kernels) fn tallest(&self) -> usize {
        self.tiles[REGULAR][0].len()
    }

    /// Columns of a packed panel: the widest tile.
    pub(in crate::kernels) fn panel(&self) -> usize {
        2 * self.width
    }
}

/// Prefetches the result of a tile, which is far away, so that it is available when the sums are complete.
#[inline(always)]
unsafe fn prefetch_result<V: Vector, const M: usize, const N: usize>(t: &ProductTile<'_, V::T>) {
    for i in 0..M {
        for j in 0..N {
            // SAFETY: the caller guarantees the instruction set. A prefetch may have any address.
            unsafe { V::prefetch(t.c.wrapping_offset(i as isize * t.c_row).wrapping_add(j * V::WIDTH)) };
        }
    }
}

/// Adds the sums of a chain to the totals, and sets them to zero. The sums of the first chain are the first totals.
#[inline(always)]
unsafe fn add_to_totals<V: Vector, const M: usize, const N: usize>(
    totals: &mut [[V; N]; M],
    sums: &mut [[V; N]; M],
    is_first: bool,
) {
    for (totals, sums) in totals.iter_mut().zip(sums) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            // SAFETY: the caller guarantees the instruction set.
            unsafe { (*total, *sum) = (if is_first { *sum } else { total.add(*sum) }, V::zero()) };
        }
    }
}

/// The sums of a tile of `M` rows and `N` registers of columns. If `MASKED`, the masks hide columns beyond the last.
#[inline(always)]
unsafe fn sums<V: Vector, const KIND: usize, const M: usize, const N: usize, const MASKED: bool>(
    t: &ProductTile<'_, V::T>,
    masks: [V::Mask; N],
) -> [[V; N]; M] {
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        let (mut totals, mut is_first) = (sums, true);
        if KIND == REGULAR || KIND == PACKING {
            prefetch_result::<V, M, N>(t);
        }
        let (mut ahead, mut packed) = (t.ahead, t.packed);
        for &(a_offset, b_offset) in t.batch {
            let a = t.a.offset(a_offset);
            let mut b = t.b.offset(b_offset);
            // Three rows share a pointer: address computation adds one or two strides for free.
            let mut groups = [a; 4];
            for (g, p) in groups.iter_mut().enumerate() {
                *p = a.wrapping_offset(3 * g as isize * t.a_row);
            }
            let scattered: [*const V::T; M] =
                std::array::from_fn(|i| if KIND == SCATTERED_A { a.offset(*t.table.add(i)) } else { a });
            let mut start = 0;
            loop {
                let end = if KIND == CHAINED { t.k.min(start + t.chain) } else { t.k };
                let mut next = start;
                // The condition starts with constants: other dead code would change the registers of the loop below.
                if V::HAS_LANES && !MASKED && (KIND == SCATTERED_A || t.a_col == 1) {
                    let runs = (end - start) / V::WIDTH;
                    let (rows, written) = ((&mut groups, &scattered), (&mut packed, &mut ahead));
                    add_runs::<V, KIND, M, N>(t, &mut sums, rows, (&mut b, b_offset), written, (start, runs));
                    next += runs * V::WIDTH;
                }
                for p in next..end {
                    if KIND == SCATTERED_B {
                        b = t.b.offset(b_offset + *t.table.add(p));
                    }
                    let mut row = [V::zero(); N];
                    for j in 0..N {
                        let p = b.add(j * V::WIDTH);
                        row[j] = if MASKED { V::load_masked(p, masks[j]) } else { V::load(p) };
                        if KIND == PACKING {
                            row[j].store(packed.add(j * V::WIDTH));
                        }
                        if KIND == REGULAR || KIND == PACKING {
                            V::prefetch(ahead.wrapping_add(j * V::WIDTH));
                        }
                    }
                    for i in 0..M {
                        let x = if KIND == SCATTERED_A {
                            *scattered[i].add(p)
                        } else {
                            *groups[i / 3].offset((i % 3) as isize * t.a_row)
                        };
                        let x = V::all(x);
                        for j in 0..N {
                            sums[i][j] = x.mul_add(row[j], sums[i][j]);
                        }
                    }
                    if KIND != SCATTERED_A {
                        for p in groups.iter_mut().take(M.div_ceil(3)) {
                            *p = p.wrapping_offset(t.a_col);
                        }
                    }
                    if KIND != SCATTERED_B {
                        b = b.wrapping_offset(t.b_row);
                    }
                    if KIND == PACKING {
                        packed = packed.add(N * V::WIDTH);
                    }
                    ahead = ahead.wrapping_offset(t.ahead_step);
                }
                if KIND != CHAINED {
                    break;
                }
                add_to_totals(&mut totals, &mut sums, is_first);
                (start, is_first) = (end, false);
                if start == t.k {
                    break;
                }
            }
        }
        if KIND == CHAINED { totals } else { sums }
    }
}

/// Adds `runs` times `WIDTH` terms to each sum, from term `start` on, and moves all addresses behind them. `b_offset`
/// is the offset of `b` in this item of the batch.
#[inline(always)]
unsafe fn add_runs<V: Vector, const KIND: usize, const M: usize, const N: usize>(
    t: &ProductTile<'_, V::T>,
    sums: &mut [[V; N]; M],
    (groups, scattered): (&mut [*const V::T; 4], &[*const V::T; M]),
    (b, b_offset): (&mut *const V::T, isize),
    (packed, ahead): (&mut *mut V::T, &mut *const V::T),
    (start, runs): (usize, usize),
) {
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        for run in 0..runs {
            let p = start + run * V::WIDTH;
            let left = |i: usize| match KIND == SCATTERED_A {
                true => scattered[i].add(p),
                false => groups[i / 3].offset((i % 3) as isize * t.a_row),
            };
            let right = |l: usize| match KIND == SCATTERED_B {
                true => t.b.offset(b_offset + *t.table.add(p + l)),
                false => b.wrapping_offset(l as isize * t.b_row),
            };
            add_run::<V, M, N>(sums, left, right, |l, row| {
                if KIND == PACKING {
                    for (j, v) in row.iter().enumerate() {
                        v.store(packed.add((l * N + j) * V::WIDTH));
                    }
                }
                if KIND == REGULAR || KIND == PACKING {
                    V::prefetch(ahead.wrapping_offset(l as isize * t.ahead_step)); // both registers are near
                }
            });
            *b = right(V::WIDTH - 1).wrapping_offset(if KIND == SCATTERED_B { 0 } else { t.b_row });
            if KIND != SCATTERED_A {
                groups.iter_mut().take(M.div_ceil(3)).for_each(|p| *p = p.wrapping_add(V::WIDTH));
            }
            if KIND == PACKING {
                *packed = packed.add(V::WIDTH * N * V::WIDTH);
            }
            *ahead = ahead.wrapping_offset(V::WIDTH as isize * t.ahead_step);
        }
    }
}

/// Adds `WIDTH` terms to each sum, from a register of each row of the left matrix, instead of one number at a time.
///
/// `left` gives the address of a row of the left matrix, and `right` of a row of the right one. `seen` gets each row of
/// the right one once.
#[inline(always)]
unsafe fn add_run<V: Vector, const M: usize, const N: usize>(
    sums: &mut [[V; N]; M],
    left: impl Fn(usize) -> *const V::T,
    right: impl Fn(usize) -> *const V::T,
    mut seen: impl FnMut(usize, [V; N]),
) {
    /// Rows of the left matrix whose registers fit beside the sums.
    const ROWS: usize = 4;
    // SAFETY: the caller guarantees the instruction set and the addresses.
    unsafe {
        for first in (0..M.div_ceil(ROWS)).map(|group| group * ROWS) {
            let a: [V; ROWS] = std::array::from_fn(|r| match first + r < M {
                true => V::load(left(first + r)),
                false => V::zero(),
            });
            for l in 0..V::WIDTH {
                let row: [V; N] = std::array::from_fn(|j| V::load(right(l).add(j * V::WIDTH)));
                if first == 0 {
                    seen(l, row);
                }
                for r in 0..ROWS {
                    if first + r < M {
                        let sums = &mut sums[first + r];
                        for j in 0..N {
                            sums[j] = a[r].lane_mul_add(l, row[j], sums[j]);
                        }
                    }
                }
            }
        }
    }
}

/// Computes a tile of `M` rows and up to `N` registers of columns.
#[inline(always)]
unsafe fn tile<V: Vector, const KIND: usize, const M: usize, const N: usize>(t: &ProductTile<'_, V::T>) {
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let masks: [V::Mask; N] = std::array::from_fn(|j| V::first(t.n.saturating_sub(j * V::WIDTH)));
        if t.n >= N * V::WIDTH {
            let sums = sums::<V, KIND, M, N, false>(t, masks);
            store::<V, M, N, false>(t, masks, sums);
        } else {
            let sums = sums::<V, KIND, M, N, true>(t, masks);
            store::<V, M, N, true>(t, masks, sums);
        }
    }
}

/// Stores a tile of sums, by one of two branch-free paths: plain sums, and all others.
#[inline(always)]
unsafe fn store<V: Vector, const M: usize, const N: usize, const MASKED: bool>(
    t: &ProductTile<'_, V::T>,
    masks: [V::Mask; N],
    mut sums: [[V; N]; M],
) {
    let Epilogue { accumulate, row_bias, column_bias, tail } = &t.epilogue;
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let c = |i: usize, j: usize| t.c.offset(i as isize * t.c_row).add(j * V::WIDTH);
        let put = |v: V, i, j| if MASKED { v.store_masked(c(i, j), masks[j]) } else { v.store(c(i, j)) };
        if *accumulate {
            let load = |i, j| if MASKED { V::load_masked(c(i, j), masks[j]) } else { V::load(c(i, j)) };
            each::<M, N>(|i, j| sums[i][j] = sums[i][j].add(load(i, j)));
        }
        if row_bias.is_none() && column_bias.is_none() && tail.activation == Activation::Identity {
            return each::<M, N>(|i, j| put(sums[i][j], i, j));
        }
        // Adding negative zero changes no sum, and the maximum with negative infinity changes no number.
        let nothing = -V::T::ZERO;
        let (rows, step) = row_bias.map_or((&raw const nothing, 0), |bias| (bias.as_ptr(), 1));
        let columns: [V; N] = std::array::from_fn(|j| match column_bias {
            Some(bias) => V::load_masked(bias.as_ptr().wrapping_add(j * V::WIDTH), masks[j]),
            None => V::all(nothing),
        });
        let least = V::all(if tail.activation == Activation::Relu { V::T::ZERO } else { V::T::NEG_INFINITY });
        each::<M, N>(|i, j| {
            put(least.max(sums[i][j].add(V::all(*rows.add(i * step))).add(columns[j])), i, j);
        });
    }
}

/// Calls `f` for each register of a tile.
#[inline(always)]
fn each<const M: usize, const N: usize>(mut f: impl FnMut(usize, usize)) {
    for i in 0..M {
        for j in 0..N {
            f(i, j);
        }
    }
}

/// Makes the table of kernels for one instruction set and type, compiled with its instructions.
macro_rules! make {
    ($name:ident, $vector:ty, $t:ty, [$($m:literal)+] $(, $feature:literal)?) => {
        static $name: Kernels<$t> = {
            $(#[target_feature(enable = $feature)])?
            /// Computes a tile of `M` rows by `N` registers with the instructions of this table.
            unsafe fn kernel<const KIND: usize, const M: usize, const N: usize>(t: &ProductTile<'_, $t>) {
                // SAFETY: the function has the instruction set, and the caller guarantees the memory.
                unsafe { tile::<$vector, KIND, M, N>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            /// Packs columns with the instructions of this table.
            unsafe fn pack_columns(columns: &pack::ColumnsToPack<$t>) {
                // SAFETY: as above.
                unsafe { pack::columns::<$vector>(columns) }
            }
            $(#[target_feature(enable = $feature)])?
            /// Packs rows with the instructions of this table.
            unsafe fn pack_rows(rows: &pack::RowsToPack<$t>) {
                // SAFETY: as above.
                unsafe { pack::rows::<$vector>(rows) }
            }
            Kernels {
                width: <$vector as Vector>::WIDTH,
                tiles: [
                    [&[$(kernel::<REGULAR, $m, 1>),+], &[$(kernel::<REGULAR, $m, 2>),+]],
                    [&[$(kernel::<SCATTERED_B, $m, 1>),+], &[$(kernel::<SCATTERED_B, $m, 2>),+]],
                    [&[$(kernel::<SCATTERED_A, $m, 1>),+], &[$(kernel::<SCATTERED_A, $m, 2>),+]],
                    [&[], &[$(kernel::<PACKING, $m, 2>),+]],
                ],
                chained: [
                    &[$(kernel::<CHAINED, $m, 1>),+],
                    &[$(kernel::<CHAINED, { usize::div_ceil($m, 2) }, 2>),+],
                ],
                low: [
                    kernel::<SCATTERED_B, 1, 4>,
                    kernel::<SCATTERED_B, 2, 4>,
                    kernel::<SCATTERED_B, 3, 4>,
                ],
                pack_columns,
                pack_rows,
            }
        };
    };
}

tables!(make);

/// Kernels for matrices whose elements are words of two bfloat16 numbers, with sums in `f32`.
#[cfg(target_arch = "x86_64")]
mod pairs {
    #[allow(clippy::wildcard_imports)]
    use super::*;
    use crate::kernels::simd::x86::PairsX16;

    make!(AVX512_PAIRS, PairsX16, f32, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f,avx512bf16");

    /// The table of a machine with AVX-512 and BF16.
    pub(super) fn table() -> &'static Kernels<f32> {
        &AVX512_PAIRS
    }
}

/// The table of kernels for words of pairs, for each type of number.
struct PairsOfMachine;

impl crate::kernels::PerFloat for PairsOfMachine {
    type Of<T: Float> = Option<&'static Kernels<T>>;

    fn f32() -> Option<&'static Kernels<f32>> {
        #[cfg(target_arch = "x86_64")]
        if crate::kernels::simd::has_pairs() {
            return Some(pairs::table());
        }
        None
    }

    fn f64() -> Option<&'static Kernels<f64>> {
        None
    }
}

/// The kernels for words of two bfloat16 numbers, if this machine multiplies them and `T` is `f32`. Tiles have the size
/// of tiles of [`kernels`].
pub(in crate::kernels) fn kernels_of_pairs<T: Float>() -> Option<&'static Kernels<T>> {
    T::choose::<PairsOfMachine>()
}
