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

#[inline(always)]
fn move_row<T: Float>(x: &[T], y: &mut [T], accumulate: bool) {
    match (accumulate, x.len()) {
        (true, _) => y.iter_mut().zip(x).for_each(|(y, x)| *y = *y + *x),
        // Calls of the library cost more than such a row.
        (false, ..8) => y.iter_mut().zip(x).for_each(|(y, x)| *y = *x),
        (false, _) => y.copy_from_slice(x),
    }
}
