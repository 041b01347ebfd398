//! Rows of elements, each at a place of its own in two arrays. Knows slices and threads; knows no shapes.
//!
//! What is written several times is written in the order of the rows, whatever the number of threads.

use std::ops::Range;

use super::Float;
use super::map::GRAIN;
use super::threads::{self, Shared};

/// Fewest elements of a row that a thread takes for itself.
const COLUMNS: usize = 64;

/// Rows of `n` elements that move from `x` to `y`: row `i` begins at `from(i)` and at `to(i)`.
pub struct Rows<From, To> {
    /// Elements of a row.
    pub n: usize,
    /// Number of rows.
    pub count: usize,
    /// Where a row begins in `x`.
    pub from: From,
    /// Where it begins in `y`.
    pub to: To,
}

impl<From: Fn(usize) -> usize + Sync, To: Fn(usize) -> usize + Sync> Rows<From, To> {
    /// Writes the rows, or adds them. No two have an element of `y` in common.
    pub fn put<T: Float>(&self, x: &[T], y: &mut [T], accumulate: bool) {
        let (len, y) = (y.len(), Shared::new(y.as_mut_ptr()));
        let put = |i: usize, part: Range<usize>| {
            let (from, to) = ((self.from)(i), (self.to)(i));
            assert!(to + self.n <= len);
            // SAFETY: the row lies within `y`, and no other has elements of it, nor does another part.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(to + part.start), part.len()) };
            move_row(&x[from + part.start..from + part.end], y, accumulate);
        };
        // Rows are shared out, or the parts of long ones.
        let parts = (self.n / GRAIN).max(1);
        let start = |part: usize| part * self.n / parts;
        threads::ranges(self.count * parts, (GRAIN / self.n.max(1)).max(1), |range| match parts {
            1 => range.for_each(|i| put(i, 0..self.n)),
            _ => range.for_each(|i| put(i / parts, start(i % parts)..start(i % parts + 1))),
        });
    }

    /// Writes the rows, or adds them, one after the other: the last one stays where several meet.
    pub fn put_in_order<T: Float>(&self, x: &[T], y: &mut [T], accumulate: bool) {
        let (len, y) = (y.len(), Shared::new(y.as_mut_ptr()));
        let grain = (GRAIN / self.count.max(1)).max(COLUMNS);
        threads::ranges(self.n, grain, |columns| {
            threads::in_turn(self.count, GRAIN / columns.len(), |rows| {
                for i in rows {
                    let (from, to) = ((self.from)(i), (self.to)(i));
                    assert!(to + self.n <= len);
                    // SAFETY: the row lies within `y`, and no other thread has these columns.
                    let y = unsafe {
                        std::slice::from_raw_parts_mut(y.get().add(to + columns.start), columns.len())
                    };
                    move_row(&x[from + columns.start..from + columns.end], y, accumulate);
                }
            });
        });
    }
}

/// Rows at regular distances in both arrays: how long and how many they are, and where the first begins and how far the others
/// lie apart in `x` and in `y`.
#[derive(Clone, Copy)]
pub struct EvenRows {
    /// Elements of a row.
    pub n: usize,
    /// Number of rows.
    pub count: usize,
    /// In `x`.
    pub from: (usize, usize),
    /// In `y`, where they do not meet.
    pub to: (usize, usize),
}

impl EvenRows {
    /// Writes the rows, or adds them.
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
            // SAFETY: these rows lie within `y`, and others lie before them or behind.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(to.0 + rows.start * to.1), len) };
            copy_short(&x[from.0 + rows.start * from.1..], from.1, y, to.1, n, rows.len());
        });
    }
}

/// Elements of a short row.
pub(super) const SHORT: usize = 16;

/// Copies `count` short rows of `n` elements, `from` and `to` apart.
pub(super) fn copy_short<T: Copy>(x: &[T], from: usize, y: &mut [T], to: usize, n: usize, count: usize) {
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

#[inline(always)]
fn move_row<T: Float>(x: &[T], y: &mut [T], accumulate: bool) {
    if accumulate {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = *y + *x);
    } else {
        copy(x, y);
    }
}

/// Copies a row, as long as the other, without a call of the library if it is short: that takes longer than such a row.
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

/// Copies the first and the last `N` elements, which meet or overlap.
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
    use super::{EvenRows, copy};

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
