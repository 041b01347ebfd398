//! Products of matrices whose sums run along contiguous memory: registers hold terms of a sum, not columns. For
//! matrices with few rows or few columns, whose registers would otherwise be partly empty.

use std::ops::Range;

use super::operand::MatrixOperand;
use crate::array::Workspace;
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::{Shared, num_threads, ranges};
use crate::kernels::{Float, Movable};

/// The number of parallel sums of an element: four registers for a single column, otherwise one.
const LANES_OF_ONE: usize = 64;
/// The number of parallel sums of an element, or if there are few terms.
const LANES: usize = 16;
/// The number of terms up to which adding up many lanes would take longer than the sums.
const FEW: usize = 64;
/// Terms that one lane adds up before its sum is added to the total.
const BLOCK: usize = 256;
/// The number of terms in a chunk of a single column, which waits for memory.
const GRAIN_OF_ONE: usize = 1 << 15;
/// The number of multiplications in a chunk of more columns.
const GRAIN: usize = 300_000;
/// Chunks per thread, so that threads finish at about the same time.
const CHUNKS: usize = 4;
/// The most columns.
const COLUMNS: usize = 32;
/// The cost of adding up the lanes of an element and of storing it, in terms of its sum.
const FINISH: usize = 200;
/// The cost of packing a term of a column for tiles, in terms of a sum.
const PACK: usize = 7;
/// The cost of copying a term of a column, in multiplications of a whole register.
const COPY: usize = 48;
/// The most bytes of the columns, so that they stay in the L2 cache.
const CACHED: usize = 1 << 19;

/// True if inner products are the fastest way to compute `m` x `n` sums of `k` terms, where columns are not more than
/// rows. Tiles would compute a multiple of `wide` columns. `packs` is true if they need a packed matrix, and `copies`
/// if inner products need a copy of the columns.
pub(super) fn pays<T>((m, n, k): (usize, usize, usize), wide: usize, packs: bool, copies: bool) -> bool {
    if n == 1 {
        return !copies || m >= 8;
    }
    if n > COLUMNS || n * k * size_of::<T>() > CACHED || k < FEW || (copies && m < 2 * n) {
        return false;
    }
    let tiles = n.next_multiple_of(wide) * k + if packs { PACK * k } else { 0 };
    let inner = n * (k + FINISH) + if copies { n * k * COPY / m } else { 0 };
    inner < tiles
}

/// Calls `put(i, j, sum)` with each element of the product of `a`, whose `m` rows are contiguous, and `b`, which has
/// `n` columns of `k` elements. Copies `b` if its columns are not contiguous. Returns false without memory for that.
///
/// # Safety
/// The elements must be readable.
pub(super) unsafe fn by_rows<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: MatrixOperand<T>,
    put: impl Fn(usize, usize, T) + Sync,
) -> bool {
    let row = k.next_multiple_of(LANES);
    let copy = if b.row == 1 { Ok(None) } else { Workspace::<T>::new(n * row).map(Some) };
    let Ok(copy) = copy else { return false };
    let b = match &copy {
        None => b,
        Some(copy) => {
            let to = copy.ptr();
            for j in 0..n {
                // SAFETY: guaranteed by the caller, and the workspace has `n` rows.
                (0..k).for_each(|p| unsafe { *to.add(j * row + p) = *b.at(p, j) });
            }
            MatrixOperand { p: to.cast_const(), row: 1, col: row as isize }
        }
    };
    let least = if n == 1 { GRAIN_OF_ONE / k.max(1) } else { GRAIN / (n * k.max(1)) };
    let grain = least.max(m.div_ceil(CHUNKS * num_threads())).next_multiple_of(LANES);
    let (a_first, b_first) = (Shared::read_only(a.p), Shared::read_only(b.p));
    ranges(m, grain, |rows| {
        let a = MatrixOperand { p: a_first.get().cast_const(), ..a };
        let b = MatrixOperand { p: b_first.get().cast_const(), ..b };
        T::in_registers(InnerProducts { a, b, rows, n, k, put: &put });
    });
    true
}

/// Some rows of a product.
struct InnerProducts<'a, T, F> {
    /// The matrix whose rows are contiguous.
    a: MatrixOperand<T>,
    /// The matrix whose columns are contiguous.
    b: MatrixOperand<T>,
    /// The rows to compute.
    rows: Range<usize>,
    /// The number of columns.
    n: usize,
    /// The number of terms.
    k: usize,
    /// Receives the row and the column of each sum, and the sum.
    put: &'a F,
}

impl<T: Float, F: Fn(usize, usize, T)> Work<T> for InnerProducts<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            // The sums of a tile fill half of the registers.
            if size_of::<V>() == 64 { self.tiles::<V, 4, 4, 16>() } else { self.tiles::<V, 2, 4, 8>() }
        }
    }
}

impl<T: Float, F: Fn(usize, usize, T)> InnerProducts<'_, T, F> {
    /// Computes all rows in tiles of `R` rows and `C` columns. Short rows of a single column are computed `S` at a
    /// time.
    #[inline(always)]
    unsafe fn tiles<V: Vector<T = T>, const R: usize, const C: usize, const S: usize>(&self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut sums =
                UnfoldedSums { sums: [V::zero(); 16], places: [(0, 0); 16], count: 0, put: self.put };
            let mut i = self.rows.start;
            if self.n == 1 && self.k <= FEW {
                while i + S <= self.rows.end {
                    self.tile::<V, S, 1, 1, LANES>(i, 0, &mut sums);
                    i += S;
                }
            }
            while i + R <= self.rows.end {
                self.tiles_of_rows::<V, R, C>(i, &mut sums);
                i += R;
            }
            for i in i..self.rows.end {
                self.tiles_of_rows::<V, 1, C>(i, &mut sums);
            }
            sums.finish();
        }
    }

    /// Computes `R` rows from row `i` on.
    #[inline(always)]
    unsafe fn tiles_of_rows<V: Vector<T = T>, const R: usize, const C: usize>(
        &self,
        i: usize,
        sums: &mut UnfoldedSums<'_, V, F>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.n == 1 && self.k > FEW {
                return self.tile::<V, R, 1, 4, LANES_OF_ONE>(i, 0, sums);
            }
            let whole = self.n / C * C;
            for j in (0..whole).step_by(C) {
                self.tile::<V, R, C, 1, LANES>(i, j, sums);
            }
            let mut j = whole;
            if self.n - j >= 2 {
                self.tile::<V, R, 2, 1, LANES>(i, j, sums);
                j += 2;
            }
            if j < self.n {
                self.tile::<V, R, 1, 1, LANES>(i, j, sums);
            }
        }
    }

    /// Computes a tile from row `i` and column `j` on, each element as `L` sums.
    /// `U` registers of them are added to at a time.
    #[inline(always)]
    unsafe fn tile<V: Vector<T = T>, const R: usize, const C: usize, const U: usize, const L: usize>(
        &self,
        i: usize,
        j: usize,
        sums: &mut UnfoldedSums<'_, V, F>,
    ) {
        let a: [*const T; R] = std::array::from_fn(|r| self.a.at(i + r, 0));
        let b: [*const T; C] = std::array::from_fn(|c| self.b.at(0, j + c));
        // SAFETY: the caller guarantees the instruction set, and masks keep within `k` terms.
        unsafe {
            let mut totals = [[V::zero(); C]; R];
            for start in (0..self.k).step_by(BLOCK * L) {
                let terms = start..self.k.min(start + BLOCK * L);
                let sums = if L == U * V::WIDTH {
                    halved::<V, R, C, U>(terms_from::<V, R, C, U, L>(terms, a, b))
                } else {
                    let mut of_lanes = [[[V::zero(); C]; R]; 32];
                    for first in (0..L / V::WIDTH).step_by(U) {
                        let terms = start + first * V::WIDTH..terms.end;
                        of_lanes[first..first + U].copy_from_slice(&terms_from::<V, R, C, U, L>(terms, a, b));
                    }
                    halved::<V, R, C, 32>(of_lanes)
                };
                for (totals, sums) in totals.iter_mut().zip(sums) {
                    for (total, sum) in totals.iter_mut().zip(sums) {
                        *total = if start == 0 { sum } else { total.add(sum) };
                    }
                }
            }
            if R * C == V::WIDTH {
                let totals: [V; 16] =
                    std::array::from_fn(|l| if l < R * C { totals[l / C][l % C] } else { V::zero() });
                let found = lanes_added_up(totals);
                return (0..R * C).for_each(|l| (self.put)(i + l / C, j + l % C, found[l]));
            }
            for (r, totals) in totals.iter().enumerate() {
                for (c, total) in totals.iter().enumerate() {
                    sums.push(*total, (i + r, j + c));
                }
            }
        }
    }
}

/// The sums of a tile over every `L` terms, `U` registers of them, from the first term on.
#[inline(always)]
unsafe fn terms_from<V: Vector, const R: usize, const C: usize, const U: usize, const L: usize>(
    terms: Range<usize>,
    a: [*const V::T; R],
    b: [*const V::T; C],
) -> [[[V; C]; R]; U] {
    let (mut p, end) = (terms.start, terms.end);
    // SAFETY: the caller guarantees the instruction set, and masks keep within the terms.
    unsafe {
        let mut sums = [[[V::zero(); C]; R]; U];
        while p + U * V::WIDTH <= end {
            add_terms(&mut sums, |u, q| V::load(q.add(p + u * V::WIDTH)), a, b);
            p += L;
        }
        if p < end {
            let load = |u: usize, q: *const V::T| {
                let at = end.min(p + u * V::WIDTH);
                V::load_masked(q.add(at), V::first(end - at))
            };
            add_terms(&mut sums, load, a, b);
        }
        sums
    }
}

/// Adds `U` registers of terms to each sum of a tile.
#[inline(always)]
unsafe fn add_terms<V: Vector, const R: usize, const C: usize, const U: usize>(
    sums: &mut [[[V; C]; R]; U],
    load: impl Fn(usize, *const V::T) -> V,
    a: [*const V::T; R],
    b: [*const V::T; C],
) {
    for (u, sums) in sums.iter_mut().enumerate() {
        let b = b.map(|b| load(u, b));
        for (a, sums) in a.into_iter().zip(sums) {
            let a = load(u, a);
            for (b, sum) in b.into_iter().zip(sums) {
                // SAFETY: the caller guarantees the instruction set.
                *sum = unsafe { a.mul_add(b, *sum) };
            }
        }
    }
}

/// Adds up the registers of each element: the second half to the first, and so on.
#[inline(always)]
unsafe fn halved<V: Vector, const R: usize, const C: usize, const U: usize>(
    sums: [[[V; C]; R]; U],
) -> [[V; C]; R] {
    let element = |r: usize, c: usize| {
        let (mut sums, mut half) = (sums.map(|sums| sums[r][c]), U / 2);
        while half > 0 {
            for l in 0..half {
                // SAFETY: the caller guarantees the instruction set.
                sums[l] = unsafe { sums[l].add(sums[l + half]) };
            }
            half /= 2;
        }
        sums[0]
    };
    std::array::from_fn(|r| std::array::from_fn(|c| element(r, c)))
}

/// Adds the second half of each group of `2 D` lanes to the first, and joins two registers with what is left.
#[inline(always)]
unsafe fn fold<V: Vector, const D: usize>(sums: &mut [V; 16]) {
    for i in 0..if D < V::WIDTH { D } else { 0 } {
        // SAFETY: the caller guarantees the instruction set.
        unsafe {
            let (first, second) = V::exchange::<D>(sums[i], sums[i + D]);
            sums[i] = first.add(second);
        }
    }
}

/// The sum of the lanes of each register, for as many registers as one has lanes.
#[inline(always)]
unsafe fn lanes_added_up<V: Vector>(mut sums: [V; 16]) -> [V::T; 16] {
    // SAFETY: the caller guarantees the instruction set, and the buffer holds a register.
    unsafe {
        fold::<V, 8>(&mut sums);
        fold::<V, 4>(&mut sums);
        fold::<V, 2>(&mut sums);
        fold::<V, 1>(&mut sums);
        let mut found = [V::T::ZERO; 16];
        sums[0].store(found.as_mut_ptr());
        found
    }
}

/// Registers whose lanes remain to be added up: as many as a register has lanes, since a transposition then adds up
/// all of them.
struct UnfoldedSums<'a, V, F> {
    /// The registers.
    sums: [V; 16],
    /// The row and column of each.
    places: [(usize, usize); 16],
    /// The number of registers.
    count: usize,
    /// Receives the row and the column of each sum, and the sum.
    put: &'a F,
}

impl<V: Vector, F: Fn(usize, usize, V::T)> UnfoldedSums<'_, V, F> {
    /// Adds a register.
    #[inline(always)]
    unsafe fn push(&mut self, sum: V, place: (usize, usize)) {
        (self.sums[self.count], self.places[self.count]) = (sum, place);
        self.count += 1;
        if self.count == V::WIDTH {
            // SAFETY: the caller guarantees the instruction set.
            unsafe { self.finish() };
        }
    }

    /// Adds up the lanes of all registers.
    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller guarantees the instruction set.
        let found = unsafe { lanes_added_up(self.sums) };
        for (sum, (i, j)) in found.into_iter().zip(self.places).take(self.count) {
            (self.put)(i, j, sum);
        }
        self.count = 0;
    }
}
