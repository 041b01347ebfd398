//! Packing: copies parts of matrices into the layout that the kernels read.

use std::cmp::Ordering;
use std::ops::Range;

use super::split::EvenSplit;
use crate::kernels::Movable;
use crate::kernels::simd::Vector;

/// Up to two registers of columns of the right matrix, `k` rows each, to be packed row by row: `to[p * 2 WIDTH + j]`.
/// Columns beyond `n` become zeros. If columns are adjacent in memory, there may be more: every two registers of them
/// follow the ones before.
pub(in crate::kernels) struct ColumnsToPack<T> {
    /// The first element of the first column.
    pub(in crate::kernels) from: *const T,
    /// The distance from a row of the matrix to the next.
    pub(in crate::kernels) row: isize,
    /// The distance from a column of the matrix to the next.
    pub(in crate::kernels) col: isize,
    /// The number of rows.
    pub(in crate::kernels) k: usize,
    /// The number of columns.
    pub(in crate::kernels) n: usize,
    /// The destination.
    pub(in crate::kernels) to: *mut T,
}

/// Packs columns.
///
/// # Safety
/// The instructions of `V` must be available, and the memory valid.
#[inline(always)]
pub(super) unsafe fn columns<V: Vector>(c: &ColumnsToPack<V::T>) {
    // SAFETY: guaranteed by the caller, and masks and counts keep within `k` and `n`.
    unsafe {
        if c.col == 1 {
            return rows_of_columns::<V>(c);
        }
        for part in 0..2 {
            let first = part * V::WIDTH;
            let from = c.from.wrapping_offset(first as isize * c.col);
            let (n, to) = (c.n.saturating_sub(first).min(V::WIDTH), c.to.add(first));
            if c.row == 1 {
                for p in (0..c.k).step_by(V::WIDTH) {
                    transpose::<V>(
                        from.wrapping_add(p),
                        c.col,
                        n,
                        to.add(p * 2 * V::WIDTH),
                        V::WIDTH.min(c.k - p),
                    );
                }
            } else {
                for p in 0..c.k {
                    for j in 0..V::WIDTH {
                        let at = p as isize * c.row + j as isize * c.col;
                        let v = if j < n { *from.offset(at) } else { V::T::ZERO };
                        *to.add(p * 2 * V::WIDTH + j) = v;
                    }
                }
            }
        }
    }
}

/// Packs adjacent columns, row by row. Copies whole rows, since a row may be alone on its page of memory.
#[inline(always)]
unsafe fn rows_of_columns<V: Vector>(c: &ColumnsToPack<V::T>) {
    let (whole, parts) = (c.n / V::WIDTH, c.n.div_ceil(2 * V::WIDTH) * 2);
    // SAFETY: as above.
    unsafe {
        let mask = V::first(c.n % V::WIDTH);
        for p in 0..c.k {
            let row = c.from.wrapping_offset(p as isize * c.row);
            for j in 0..parts {
                let from = row.wrapping_add(j * V::WIDTH);
                let v = match j.cmp(&whole) {
                    Ordering::Less => V::load(from),
                    Ordering::Equal => V::load_masked(from, mask),
                    Ordering::Greater => V::zero(),
                };
                v.store(c.to.add(j / 2 * c.k * 2 * V::WIDTH + p * 2 * V::WIDTH + j % 2 * V::WIDTH));
                V::prefetch(from.wrapping_offset(8 * c.row));
            }
        }
    }
}

/// Transposes `n` columns `step` apart into `k` rows: at most a square of one register.
#[inline(always)]
unsafe fn transpose<V: Vector>(from: *const V::T, step: isize, n: usize, to: *mut V::T, k: usize) {
    // SAFETY: as above.
    unsafe {
        let mut v = [V::zero(); 16];
        let mask = V::first(k);
        for (j, v) in v.iter_mut().enumerate().take(n) {
            let column = from.wrapping_offset(j as isize * step);
            *v = if k == V::WIDTH { V::load(column) } else { V::load_masked(column, mask) };
        }
        V::transpose(&mut v);
        for (p, v) in v.iter().enumerate().take(V::WIDTH) {
            if p < k {
                v.store(to.add(p * 2 * V::WIDTH));
            }
        }
    }
}

/// Some rows of tiles of the left matrix, `k` long, and their destination: tile after tile.
pub(super) struct RowsToPack<T> {
    /// The first row.
    pub(super) from: *const T,
    /// The distance from a row of the matrix to the next.
    pub(super) row: isize,
    /// The distance of adjacent columns.
    pub(super) col: isize,
    /// The length of the rows.
    pub(super) k: usize,
    /// Rows of the matrix in each row of tiles.
    pub(super) heights: EvenSplit,
    /// The rows of tiles to pack.
    pub(super) tiles: Range<usize>,
    /// The destination of the first tile.
    pub(super) to: *mut T,
}

impl<T> RowsToPack<T> {
    /// True if rows are packed one after the other. Otherwise element p of all rows of a tile is packed together, in
    /// memory order.
    pub(super) fn one_by_one(row: isize) -> bool {
        row != 1
    }
}

/// Packs rows.
///
/// # Safety
/// The instructions of `V` must be available, and the memory valid.
#[inline(always)]
pub(super) unsafe fn rows<V: Vector>(r: &RowsToPack<V::T>) {
    let &RowsToPack { from, row, col, k, heights, ref tiles, to } = r;
    let first = heights.part(tiles.start).start;
    // SAFETY: guaranteed by the caller. A register that is wider than a tile also writes to the place of element p +
    // 1, which is written next. Masks keep the last register within its tile.
    unsafe {
        if !RowsToPack::<V::T>::one_by_one(row) {
            // For one p, rows of all tiles are adjacent: each cache line is read once, by the one or two tiles that
            // share it.
            let taller = tiles.clone().take_while(|tile| heights.has_one_more(*tile)).count();
            let heights = [(taller, heights.part(tiles.start).len()), (tiles.len() - taller, heights.each())];
            for p in 0..k {
                let (mut from, mut to) = (from.wrapping_offset(p as isize * col), to);
                for (tiles, n) in heights {
                    for _ in 0..tiles {
                        V::prefetch(from.wrapping_offset(8 * col));
                        let to_p = to.add(p * n);
                        for i in (0..n).step_by(V::WIDTH) {
                            let mask = V::first(n - i);
                            let v = V::load_masked(from.add(i), mask);
                            if n - i >= V::WIDTH || (p + 1 < k && V::WIDTH <= 2 * n - i) {
                                v.store(to_p.add(i));
                            } else {
                                v.store_masked(to_p.add(i), mask);
                            }
                        }
                        (from, to) = (from.add(n), to.add(n * k));
                    }
                }
            }
            return;
        }
        for i in 0..heights.part(tiles.end - 1).end - first {
            let (from, to) = (from.offset(i as isize * row), to.add(i * k));
            (0..k).for_each(|p| *to.add(p) = *from.offset(p as isize * col));
        }
    }
}
