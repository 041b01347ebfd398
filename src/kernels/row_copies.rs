//! Copies of rows between two arrays, with arbitrary offsets for each row. Knows slices and threads, not shapes.
//!
//! Elements that are written several times are written in the order of the rows, for any number of threads. Elements
//! to which very many float32 rows are added are summed in float64.

use std::ops::Range;

use super::Float;
use super::map::GRAIN;
use super::scratch::{List, Zeros};
use super::threads::{self, Shared};

/// Minimum number of elements of a row that a thread takes.
const COLUMNS: usize = 64;

/// Rows of `n` elements to copy from `x` to `y`: row `i` starts at `from(i)` and at `to(i)`.
pub struct Rows<From, To> {
    /// Elements of a row.
    pub n: usize,
    /// Number of rows.
    pub count: usize,
    /// Start of a row in `x`.
    pub from: From,
    /// Start of a row in `y`.
    pub to: To,
}

impl<From: Fn(usize) -> usize + Sync, To: Fn(usize) -> usize + Sync> Rows<From, To> {
    /// Writes or adds the rows, in parallel. No two rows may overlap in `y`.
    pub fn put<T: Float>(&self, x: &[T], y: &mut [T], accumulate: bool) {
        let (len, y) = (y.len(), Shared::new(y.as_mut_ptr()));
        let put = |i: usize, part: Range<usize>| {
            let (from, to) = ((self.from)(i), (self.to)(i));
            assert!(to + self.n <= len);
            // SAFETY: the row is within `y`, and no other row or part overlaps it.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(to + part.start), part.len()) };
            move_row(&x[from + part.start..from + part.end], y, accumulate);
        };
        // Tasks are rows, or parts of long rows.
        let parts = (self.n / GRAIN).max(1);
        let start = |part: usize| part * self.n / parts;
        threads::ranges(self.count * parts, (GRAIN / self.n.max(1)).max(1), |range| match parts {
            1 => range.for_each(|i| put(i, 0..self.n)),
            _ => range.for_each(|i| put(i / parts, start(i % parts)..start(i % parts + 1))),
        });
    }

    /// Writes or adds the rows in order, so the last row wins if several have the same destination. Destinations are
    /// equal or disjoint.
    pub fn put_in_order<T: Float>(&self, x: &[T], y: &mut [T], accumulate: bool) {
        let len = y.len();
        let find = || Crowded::find::<T>(self.count, len, self.n, |i| (self.to)(i));
        let crowded = if accumulate { find() } else { None };
        let y = Shared::new(y.as_mut_ptr());
        let grain = (GRAIN / self.count.max(1)).max(COLUMNS);
        if let Some(crowded) = crowded {
            return threads::ranges(self.n, grain, |columns| {
                // SAFETY: no other thread has these columns.
                unsafe { self.add_crowded(x, (y, len), &crowded, columns) };
            });
        }
        threads::ranges(self.n, grain, |columns| {
            threads::in_turn(self.count, GRAIN / columns.len(), |rows| {
                for i in rows {
                    let (from, to) = ((self.from)(i), (self.to)(i));
                    assert!(to + self.n <= len);
                    // SAFETY: the row is within `y`, and no other thread has these columns.
                    let y = unsafe {
                        std::slice::from_raw_parts_mut(y.get().add(to + columns.start), columns.len())
                    };
                    move_row(&x[from + columns.start..from + columns.end], y, accumulate);
                }
            });
        });
    }

    /// Adds the rows in order, on this thread.
    pub fn add_here<T: Float>(&self, x: &[T], y: &mut [T]) {
        let len = y.len();
        if let Some(crowded) = Crowded::find::<T>(self.count, len, self.n, |i| (self.to)(i)) {
            // SAFETY: the array is borrowed alone.
            return unsafe { self.add_crowded(x, (Shared::new(y.as_mut_ptr()), len), &crowded, 0..self.n) };
        }
        for i in 0..self.count {
            let (from, to) = ((self.from)(i), (self.to)(i));
            move_row(&x[from..from + self.n], &mut y[to..to + self.n], true);
        }
    }

    /// Adds some columns of the rows. Crowded rows are summed in float64.
    ///
    /// # Safety
    /// `y` must have `len` elements, and no other thread may use these columns.
    unsafe fn add_crowded<T: Float>(
        &self,
        x: &[T],
        (y, len): (Shared<T>, usize),
        crowded: &Crowded,
        columns: Range<usize>,
    ) {
        let width = columns.len();
        let mut sums = Zeros::<f64>::new(crowded.rows.len() * width);
        let row_of = |to: usize| {
            assert!(to + self.n <= len);
            // SAFETY: the row lies within `y`, and the columns are this thread's.
            unsafe { std::slice::from_raw_parts_mut(y.get().add(to + columns.start), width) }
        };
        threads::in_turn(self.count, (GRAIN / width).max(1), |rows| {
            for i in rows {
                let (from, to) = ((self.from)(i), (self.to)(i));
                let x = &x[from + columns.start..from + columns.end];
                match crowded.place(to) {
                    Some(k) => {
                        let sums = &mut sums[k * width..(k + 1) * width];
                        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.real());
                    }
                    None => move_row(x, row_of(to), true),
                }
            }
        });
        for (to, sums) in crowded.rows.iter().zip(sums.chunks_exact(width)) {
            row_of(*to).iter_mut().zip(sums).for_each(|(y, sum)| *y = T::of(y.real() + sum));
        }
    }
}

/// The number of rows that are added to one destination before rounding errors matter. Beyond it, sums run in float64.
pub const MANY: usize = 1 << 12;

/// Destination rows to which more than [`MANY`] rows may be added.
struct Crowded {
    /// The number of additions for each hash of a row.
    counts: List<u32>,
    shift: u32,
    /// The sorted starts of these rows.
    rows: Vec<usize>,
}

impl Crowded {
    /// Finds the crowded rows of `n` elements in an array of `len`, to which row `i` is added at `to(i)`.
    fn find<T>(count: usize, len: usize, n: usize, to: impl Fn(usize) -> usize) -> Option<Self> {
        if count <= MANY || n == 0 || size_of::<T>() == size_of::<f64>() {
            return None;
        }
        // Several rows share a count, so that even a long array has few counts.
        let counts = (len / n).clamp(1, (count / 1024).max(1 << 16)).next_power_of_two();
        let shift = 64 - counts.trailing_zeros().max(1);
        let mut all = Self { counts: List::repeat(0, counts.max(2)), shift, rows: Vec::new() };
        for i in 0..count {
            let slot = all.slot(to(i));
            all.counts[slot] = all.counts[slot].saturating_add(1);
        }
        if all.counts.iter().all(|count| *count as usize <= MANY) {
            return None;
        }
        // Sorted and deduplicated now and then, because few rows may have many additions.
        for i in 0..count {
            let to = to(i);
            if all.is_crowded(to) {
                if all.rows.len() >= MANY && all.rows.len() == all.rows.capacity() {
                    all.rows.sort_unstable();
                    all.rows.dedup();
                }
                all.rows.push(to);
            }
        }
        all.rows.sort_unstable();
        all.rows.dedup();
        Some(all)
    }

    /// The counter of a row.
    #[inline(always)]
    fn slot(&self, to: usize) -> usize {
        // The upper bits of a product by the golden ratio differ for neighbours.
        ((to as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// True if more than `MANY` rows may be added to this row.
    #[inline(always)]
    fn is_crowded(&self, to: usize) -> bool {
        self.counts[self.slot(to)] as usize > MANY
    }

    /// The number of the crowded row that begins at `to`.
    #[inline(always)]
    fn place(&self, to: usize) -> Option<usize> {
        if self.is_crowded(to) { self.rows.binary_search(&to).ok() } else { None }
    }
}

/// Equidistant rows in both arrays. `from` and `to` hold the start of the first row and the distance between rows.
#[derive(Clone, Copy)]
pub struct EvenRows {
    /// Elements of a row.
    pub n: usize,
    /// Number of rows.
    pub count: usize,
    /// Start and distance in `x`.
    pub from: (usize, usize),
    /// Start and distance in `y`. Rows do not overlap there.
    pub to: (usize, usize),
}

impl EvenRows {
    /// Writes or adds the rows.
    pub fn put<T: Float>(&self, x: &[T], y: &mut [T], accumulate: bool) {
        let Self { n, count, from, to } = *self;
        if accumulate || n > SHORT || n > to.1 || n > from.1 {
            let (from, to) = (|i| from.0 + i * from.1, |i| to.0 + i * to.1);
            return Rows { n, count, from, to }.put(x, y, accumulate);
        }
        if n == 0 || count == 0 {
            return;
        }
        assert!(to.0 + (count - 1) * to.1 + n <= y.len());
        let y = Shared::new(y.as_mut_ptr());
        threads::ranges(count, GRAIN / n, |rows| {
            let len = (rows.len() - 1) * to.1 + n;
            // SAFETY: these rows are within `y`, and the rows of other tasks lie before or after them.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(to.0 + rows.start * to.1), len) };
            copy_short(&x[from.0 + rows.start * from.1..], from.1, y, to.1, n, rows.len());
        });
    }
}

/// Maximum length of a short row.
pub(super) const SHORT: usize = 16;

/// Copies `count` short rows of `n` elements. `from` and `to` are the distances between rows.
pub(super) fn copy_short<T: Copy>(x: &[T], from: usize, y: &mut [T], to: usize, n: usize, count: usize) {
    /// Copies rows of `N` elements at these distances.
    #[inline(always)]
    fn each<T: Copy, const N: usize>(x: &[T], from: usize, y: &mut [T], to: usize, count: usize) {
        for (x, y) in x.chunks(from).zip(y.chunks_mut(to)).take(count) {
            if let (Some(x), Some(y)) = (x.first_chunk::<N>(), y.first_chunk_mut::<N>()) {
                *y = *x;
            }
        }
    }
    match n {
        1 => each::<T, 1>(x, from, y, to, count),
        2 => each::<T, 2>(x, from, y, to, count),
        3 => each::<T, 3>(x, from, y, to, count),
        4 => each::<T, 4>(x, from, y, to, count),
        5 => each::<T, 5>(x, from, y, to, count),
        6 => each::<T, 6>(x, from, y, to, count),
        8 => each::<T, 8>(x, from, y, to, count),
        _ => {
            for (x, y) in x.chunks(from).zip(y.chunks_mut(to)).take(count) {
                copy(&x[..n], &mut y[..n]);
            }
        }
    }
}

/// Copies a row, or adds it if `accumulate`.
#[inline(always)]
fn move_row<T: Float>(x: &[T], y: &mut [T], accumulate: bool) {
    if accumulate {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = *y + *x);
    } else {
        copy(x, y);
    }
}

/// Copies a row of equal length. A short row is copied inline, because a library call takes longer than the copy.
#[inline(always)]
pub(super) fn copy<T: Copy>(x: &[T], y: &mut [T]) {
    match x.len() {
        1 => y[0] = x[0],
        2 | 3 => copy_ends::<T, 2>(x, y),
        4..=8 => copy_ends::<T, 4>(x, y),
        9..=16 => copy_ends::<T, 8>(x, y),
        _ => y.copy_from_slice(x),
    }
}

/// Copies the first and the last `N` elements, which may overlap.
#[inline(always)]
fn copy_ends<T: Copy, const N: usize>(x: &[T], y: &mut [T]) {
    let ends = (x.first_chunk::<N>().copied(), x.last_chunk::<N>().copied());
    if let (Some(first), Some(last)) = ends {
        y.first_chunk_mut::<N>().into_iter().for_each(|y| *y = first);
        y.last_chunk_mut::<N>().into_iter().for_each(|y| *y = last);
    }
}

#[cfg(test)]
mod tests {
    use super::{EvenRows, MANY, Rows, copy};

    #[test]
    fn rows_that_very_many_are_added_to_are_summed_in_float64() {
        let (n, count) = (2, 3 * MANY);
        let to: Vec<usize> = (0..count).map(|i| if i % 100 == 0 { 65_541 } else { 5 }).collect();
        let x: Vec<f32> = (0..n * count).map(|i| if i % 2 == 0 { 0.1 } else { 1.0 }).collect();
        let rows = Rows { n, count, from: |i| i * n, to: |i| to[i] * n };
        let (mut here, mut shared) = (vec![0.5_f32; n * 65_600], vec![0.5_f32; n * 65_600]);
        rows.add_here(&x, &mut here);
        rows.put_in_order(&x, &mut shared, true);
        assert_eq!(here, shared);
        let times = to.iter().filter(|to| **to == 5).count() as f64;
        assert_eq!(here[5 * n..6 * n], [(0.5 + f64::from(0.1_f32) * times) as f32, (0.5 + times) as f32]);
        assert_eq!(here.iter().filter(|v| **v == 0.5).count(), n * 65_598);
    }

    #[test]
    fn rows_of_every_length_are_copied() {
        let x: Vec<f32> = (0..40).map(|i| i as f32).collect();
        for n in 0..x.len() {
            let mut y = vec![-1.0; n + 2];
            copy(&x[1..=n], &mut y[1..=n]);
            assert_eq!(y[1..=n], x[1..=n], "{n}");
            assert_eq!((y[0], y[n + 1]), (-1.0, -1.0), "{n}");
        }
    }

    #[test]
    fn rows_at_regular_distances_are_moved() {
        let x: Vec<f32> = (0..4000).map(|i| i as f32).collect();
        for (n, accumulate) in (0..20).flat_map(|n| [(n, false), (n, true)]) {
            let rows = EvenRows { n, count: 100, from: (3, 22), to: (5, 31) };
            let mut y = vec![1.0; 4000];
            rows.put(&x, &mut y, accumulate);
            for (i, y) in y.iter().enumerate() {
                let (row, at) = (i.wrapping_sub(5) / 31, i.wrapping_sub(5) % 31);
                let moved = if row < 100 && at < n { x[3 + row * 22 + at] } else { f32::NAN };
                let kept = if accumulate || moved.is_nan() { 1.0 } else { 0.0 };
                assert_eq!(*y, kept + if moved.is_nan() { 0.0 } else { moved }, "{n} {accumulate} {i}");
            }
        }
    }
}
