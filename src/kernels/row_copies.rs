//! Copies of rows between two arrays, with arbitrary offsets for each row. Knows slices and threads, not shapes.
//!
//! Elements that are written several times are written in the order of the rows, for any number of threads. Elements
//! to which very many float32 rows are added are summed in float64.

use std::ops::Range;

use super::Movable;
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
    pub fn put<T: Movable>(&self, x: &[T], y: &mut [T], accumulate: bool) {
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
    pub fn put_in_order<T: Movable>(&self, x: &[T], y: &mut [T], accumulate: bool) {
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
        if self.n == 1 {
            return threads::in_turn(self.count, GRAIN, |rows| {
                for i in rows {
                    let to = (self.to)(i);
                    assert!(to < len);
                    // SAFETY: the element is within `y`, which is borrowed alone.
                    let y = unsafe { &mut *y.get().add(to) };
                    let x = x[(self.from)(i)];
                    *y = if accumulate { y.plus(x) } else { x };
                }
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
    pub fn add_here<T: Movable>(&self, x: &[T], y: &mut [T]) {
        let len = y.len();
        if let Some(crowded) = Crowded::find::<T>(self.count, len, self.n, |i| (self.to)(i)) {
            // SAFETY: the array is borrowed alone.
            return unsafe { self.add_crowded(x, (Shared::new(y.as_mut_ptr()), len), &crowded, 0..self.n) };
        }
        if self.n == 1 {
            (0..self.count).for_each(|i| y[(self.to)(i)] = y[(self.to)(i)].plus(x[(self.from)(i)]));
            return;
        }
        for i in 0..self.count {
            let (from, to) = ((self.from)(i), (self.to)(i));
            move_row(&x[from..from + self.n], &mut y[to..to + self.n], true);
        }
    }

    /// As [`Rows::add_crowded`] for rows of one element.
    ///
    /// # Safety
    /// As for [`Rows::add_crowded`].
    unsafe fn add_crowded_elements<T: Movable>(
        &self,
        x: &[T],
        (y, len): (Shared<T>, usize),
        crowded: &Crowded,
    ) {
        // Sums of other elements, which are not used. There are several, so that additions do not wait.
        const OTHERS: usize = 8;
        let n = crowded.rows.len();
        let mut sums = Zeros::<f64>::new(n + OTHERS);
        let element = |to: usize| {
            assert!(to < len);
            // SAFETY: the element is within `y`, and no other thread uses it.
            unsafe { &mut *y.get().add(to) }
        };
        threads::in_turn(self.count, GRAIN, |rows| {
            for i in rows {
                let (x, to) = (x[(self.from)(i)], (self.to)(i));
                let k = crowded.place(to).unwrap_or(n + i % OTHERS);
                sums[k] += x.real();
                // Without branches, which a processor cannot predict here. Adding -0 changes nothing.
                *element(to) = element(to).plus(if k < n { T::of(-0.0) } else { x });
            }
        });
        for (to, sum) in crowded.rows.iter().zip(&*sums) {
            *element(*to) = T::of(element(*to).real() + sum);
        }
    }

    /// Adds some columns of the rows. Crowded rows are summed in float64.
    ///
    /// # Safety
    /// `y` must have `len` elements, and no other thread may use these columns.
    unsafe fn add_crowded<T: Movable>(
        &self,
        x: &[T],
        (y, len): (Shared<T>, usize),
        crowded: &Crowded,
        columns: Range<usize>,
    ) {
        let width = columns.len();
        if self.n == 1 {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.add_crowded_elements(x, (y, len), crowded) };
        }
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
    /// For each hash of a row: [`NO_ROW`], the number of the only crowded row with that hash, or [`SEVERAL_ROWS`].
    places: List<u32>,
    /// The number of bits by which a product is shifted to make the hash.
    shift: u32,
    /// The sorted starts of the crowded rows.
    rows: Vec<usize>,
}

/// In `places`: no crowded row has this hash.
const NO_ROW: u32 = u32::MAX;
/// In `places`: several crowded rows have this hash. A binary search in `rows` tells them apart.
const SEVERAL_ROWS: u32 = u32::MAX - 1;

impl Crowded {
    /// Finds the crowded rows of `n` elements in an array of `len`, to which row `i` is added at `to(i)`.
    fn find<T>(count: usize, len: usize, n: usize, to: impl Fn(usize) -> usize) -> Option<Self> {
        if count <= MANY || n == 0 || size_of::<T>() == size_of::<f64>() {
            return None;
        }
        // Several rows share a count, so that even a long array has few counts.
        let bits = |counts: usize| counts.next_power_of_two().trailing_zeros().max(1);
        let all = bits((len / n).clamp(1, (count / 1024).max(1 << 16)));
        // The groups of rows that share a count are united to fewer groups first, because these counts stay in the
        // cache. Usually not even such a group is crowded.
        if !has_crowded(bits((count / 1024).max(1 << 8)).min(all), (0..count).map(&to)) {
            return None;
        }
        let groups = RowGroups::of(all, (0..count).map(&to));
        let mut rows: Vec<usize> = groups.all.iter().filter(|g| g.is_crowded()).map(|g| g.first).collect();
        if rows.is_empty() {
            return None;
        }
        if groups.all.iter().any(|group| group.is_crowded() && group.has_several) {
            // Sorted and deduplicated now and then, because few rows may have many additions.
            for to in (0..count).map(to).filter(|to| groups.of_row(*to).is_several(*to)) {
                if rows.len() >= MANY && rows.len() == rows.capacity() {
                    rows.sort_unstable();
                    rows.dedup();
                }
                rows.push(to);
            }
        }
        rows.sort_unstable();
        rows.dedup();
        let mut places = List::repeat(NO_ROW, groups.all.len());
        for (k, to) in rows.iter().enumerate() {
            let place = &mut places[slot(*to, groups.shift)];
            let only = u32::try_from(k).ok().filter(|k| *k < SEVERAL_ROWS && *place == NO_ROW);
            *place = only.unwrap_or(SEVERAL_ROWS);
        }
        Some(Self { places, shift: groups.shift, rows })
    }

    /// The number of the crowded row that begins at `to`.
    #[inline(always)]
    fn place(&self, to: usize) -> Option<usize> {
        match self.places[slot(to, self.shift)] {
            NO_ROW => None,
            SEVERAL_ROWS => self.rows.binary_search(&to).ok(),
            k => Some(k as usize),
        }
    }
}

/// A hash of the start of a row, without the last `shift` of its 64 bits.
#[inline(always)]
fn slot(to: usize, shift: u32) -> usize {
    // The upper bits of a product by the golden ratio differ for neighbours.
    ((to as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

/// Counts rows by hashes of `bits` bits. Returns true if a count exceeds [`MANY`].
fn has_crowded(bits: u32, rows: impl Iterator<Item = usize>) -> bool {
    // Additions for equal rows often follow each other. Four counters alternate, so that they do not wait.
    let mut counts = List::repeat([0_u32; 4], 1 << bits);
    for (turn, to) in rows.enumerate() {
        let count = &mut counts[slot(to, u64::BITS - bits)][turn % 4];
        *count = count.saturating_add(1);
    }
    counts.iter().any(|parts| parts.iter().fold(0, |sum: u32, n| sum.saturating_add(*n)) as usize > MANY)
}

/// The additions to rows that have one hash.
#[derive(Clone, Copy)]
struct Group {
    /// The number of additions.
    count: u32,
    /// True if they are to different rows.
    has_several: bool,
    /// The first row.
    first: usize,
}

impl Group {
    /// True if more than [`MANY`] rows are added.
    fn is_crowded(self) -> bool {
        self.count as usize > MANY
    }

    /// True if the group is crowded, and the row is not its first one.
    fn is_several(self, to: usize) -> bool {
        self.has_several && self.is_crowded() && self.first != to
    }
}

/// The groups of rows with equal hashes.
struct RowGroups {
    /// The group of each hash.
    all: List<Group>,
    /// The number of bits by which a product is shifted to make the hash.
    shift: u32,
}

impl RowGroups {
    /// Groups rows by hashes of `bits` bits.
    fn of(bits: u32, rows: impl Iterator<Item = usize>) -> Self {
        let shift = u64::BITS - bits;
        let mut all = List::repeat(Group { count: 0, has_several: false, first: 0 }, 1 << bits);
        for to in rows {
            let group = &mut all[slot(to, shift)];
            // Without branches, which a processor cannot predict here.
            group.first = if group.count == 0 { to } else { group.first };
            group.has_several |= group.first != to;
            group.count = group.count.saturating_add(1);
        }
        Self { all, shift }
    }

    /// The group of a row.
    fn of_row(&self, to: usize) -> Group {
        self.all[slot(to, self.shift)]
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
    pub fn put<T: Movable>(&self, x: &[T], y: &mut [T], accumulate: bool) {
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
fn move_row<T: Movable>(x: &[T], y: &mut [T], accumulate: bool) {
    if accumulate {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = y.plus(*x));
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
    fn crowded_rows_with_equal_hashes_are_summed_apart() {
        // Few rows share few hashes. All but the last one are crowded.
        for (n, rows) in [(1, 2), (1, 3), (2, 5), (3, 40)] {
            let all = (0..2 * MANY * rows).map(|i| (i * i % 7 + i / 3) % (rows - 1));
            let to: Vec<usize> = all.chain([rows - 1]).collect();
            let x: Vec<f32> = (0..n * to.len()).map(|i| 0.1 + i as f32 * 1e-7).collect();
            let copies = Rows { n, count: to.len(), from: |i| i * n, to: |i| to[i] * n };
            let mut sums = vec![0.0_f64; n * rows];
            for (row, x) in to.iter().zip(x.chunks_exact(n)) {
                sums[row * n..][..n].iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            let expected: Vec<f32> = sums.iter().map(|sum| *sum as f32).collect();
            let (mut here, mut shared) = (vec![0.0_f32; n * rows], vec![0.0_f32; n * rows]);
            copies.add_here(&x, &mut here);
            copies.put_in_order(&x, &mut shared, true);
            assert_eq!((&here, &shared), (&expected, &expected), "{rows} rows of {n}");
        }
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
