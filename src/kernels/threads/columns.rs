//! Columns of matrices that several threads write. Knows addresses, not the meaning.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Shared, ranges};

/// Adjacent columns of a row-major matrix, exclusively borrowed.
pub struct Columns<'a, T> {
    /// The first element.
    first: *mut T,
    /// The number of rows.
    rows: usize,
    /// Distance between rows.
    step: usize,
    /// The number of columns.
    n: usize,
    /// Borrows the elements.
    of: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// The part of a row in these columns.
    ///
    /// # Panics
    /// If the matrix has no such row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        let [row] = self.rows([row]);
        row
    }

    /// The parts of several rows in these columns, in order.
    ///
    /// # Panics
    /// If the matrix has no such row, or the rows are not ascending.
    #[inline(always)]
    pub fn rows<const N: usize>(&mut self, rows: [usize; N]) -> [&mut [T]; N] {
        assert!(rows.is_sorted_by(|a, b| a < b), "rows of a matrix in order");
        rows.map(|row| {
            assert!(row < self.rows, "a row that a matrix has not");
            // SAFETY: the matrix has the row, and the row has these columns.
            unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.step), self.n) }
        })
    }
}

/// Calls `work` on groups of `width` columns of the consecutive matrices in each array of `all`. Its arguments are the
/// number of the matrix, the range of columns and these columns. A task has `grain` times `width` columns. A matrix is
/// `rows` x `columns`.
///
/// # Panics
/// If the arrays differ in length.
pub fn columns_mut<T: Send, const N: usize>(
    mut all: [&mut [T]; N],
    [rows, columns]: [usize; 2],
    width: usize,
    grain: usize,
    work: impl Fn(usize, Range<usize>, [Columns<'_, T>; N]) + Sync,
) {
    let len = all.first().map_or(0, |first| first.len());
    assert!(all.iter().all(|of| of.len() == len), "matrices of different arrays");
    let Some(matrices) = rows.checked_mul(columns).and_then(|size| len.checked_div(size)) else { return };
    let (cuts, first) =
        (columns.div_ceil(width.max(1)), all.each_mut().map(|of| Shared::new(of.as_mut_ptr())));
    ranges(matrices * cuts, grain, |some| {
        for i in some {
            let (matrix, start) = (i / cuts, i % cuts * width.max(1));
            let some = start..columns.min(start + width.max(1));
            let of = |first: Shared<T>| {
                // SAFETY: the first row of the matrix has the column. No other task has these columns of this matrix.
                let first = unsafe { first.get().add(matrix * rows * columns + start) };
                Columns { first, rows, step: columns, n: some.len(), of: PhantomData }
            };
            work(matrix, some.clone(), first.map(of));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::columns_mut;

    #[test]
    fn each_column_is_visited_once() {
        for (matrices, rows, columns, width) in
            [(2, 3, 7, 2), (3, 1, 4, 9), (1, 5, 6, 1), (2, 4, 3, 0), (0, 2, 2, 1)]
        {
            let n = matrices * rows * columns;
            let (mut a, mut b) = (vec![0; n], vec![1; n]);
            columns_mut([&mut a, &mut b], [rows, columns], width, 2, |matrix, some, [mut a, mut b]| {
                for row in 0..rows {
                    let of = (matrix * rows + row) * columns;
                    a.row(row).iter_mut().zip(some.clone()).for_each(|(a, i)| *a += of + i);
                    b.row(row).iter_mut().zip(some.clone()).for_each(|(b, i)| *b += of + i);
                    assert_eq!(a.row(row).len(), some.len());
                }
            });
            assert!(a.into_iter().eq(0..n) && b.into_iter().eq(1..=n));
        }
        columns_mut([&mut [0; 3]], [0, 3], 1, 1, |_, _, _| panic!("matrices without rows"));
    }

    #[test]
    #[should_panic(expected = "a row that a matrix has not")]
    fn rows_beyond_the_last_are_refused() {
        columns_mut([&mut [0; 6]], [2, 3], 3, 1, |_, _, [mut all]| all.row(2).fill(1));
    }
}
