//! Conversion of sums to levels of another scale, or to numbers.

use super::dots::Rounding;
use super::pack::WeightPanels;
use super::tile::{Finish, SumTarget, TALL, WIDE};
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::Shared;
use crate::kernels::{Activation, Float, Tail};

/// Terms added to the sums of each column.
pub struct ColumnTerms<'a> {
    /// One whole number for each column, or empty.
    pub bias: &'a [i64],
    /// The zero points of weights: one per column, one for all, or empty.
    pub zeros: &'a [i64],
}

/// Corrections that remove the zero points from sums, padded to whole registers.
pub(super) struct Offsets {
    /// The number added to each sum of a column.
    added: List<i32>,
    /// The factors of the sum of a row of levels.
    zeros: List<i32>,
}

/// A value for each column, padded to whole registers.
fn filled<T: Copy + Default>(columns: usize, value: impl Fn(usize) -> T) -> List<T> {
    let all = columns.next_multiple_of(WIDE);
    (0..all).map(|i| if i < columns { value(i) } else { T::default() }).collect()
}

/// The value of a column, from one for each column or one for all.
fn of_column<T: Copy>(values: &[T], column: usize) -> T {
    values[if values.len() == 1 { 0 } else { column }]
}

impl ColumnTerms<'_> {
    /// True if the sums of rows of levels are needed.
    pub(super) fn has_zeros(&self) -> bool {
        self.zeros.iter().any(|zero| *zero != 0)
    }

    /// The bias of a column.
    pub(super) fn bias(&self, column: usize) -> i32 {
        self.bias.get(column).map_or(0, |bias| *bias as i32)
    }

    /// The zero point of a column.
    pub(super) fn zero(&self, column: usize) -> i32 {
        if self.zeros.is_empty() { 0 } else { of_column(self.zeros, column) as i32 }
    }

    /// The corrections of sums of this many terms, for levels with this zero point, by kernels that subtract a number
    /// from each level.
    pub(super) fn offsets(&self, packed: WeightPanels, zero: u8, levels_less: u8, terms: usize) -> Offsets {
        let (zero, left) = (i32::from(zero), i32::from(zero) - i32::from(levels_less));
        let added = |i| {
            let both = zero.wrapping_mul(self.zero(i)).wrapping_mul(terms as i32);
            self.bias(i).wrapping_sub(left.wrapping_mul(packed.sum(i))).wrapping_add(both)
        };
        let zeros = if self.has_zeros() { packed.columns } else { 0 };
        Offsets { added: filled(packed.columns, added), zeros: filled(zeros, |i| self.zero(i)) }
    }
}

impl Offsets {
    /// The conversion for a tile whose first column is `column`. The sums of its rows of levels must be given if they
    /// are needed.
    pub(super) fn finish<'a>(
        &'a self,
        column: usize,
        rows: Option<&'a [i32]>,
        target: SumTarget,
    ) -> Finish<'a> {
        let zeros = rows.map(|rows| (self.zeros[column..].as_ptr(), rows));
        Finish { added: self.added[column..].as_ptr(), zeros, target }
    }
}

/// A buffer for the sums of a tile.
pub(super) type Sums = [i32; TALL * WIDE];

/// Some columns of some rows of a result.
#[derive(Clone, Copy)]
pub struct ResultPart {
    /// The first row.
    pub(super) row: usize,
    /// The number of rows.
    pub(super) rows: usize,
    /// The first column.
    pub(super) column: usize,
    /// The number of columns.
    pub(super) columns: usize,
}

/// The destination of results.
#[allow(private_interfaces)] // only kernels call them
pub trait SumOutput: Sync {
    /// The destination of the sums of a part.
    fn target(&self, part: ResultPart, sums: &mut Sums) -> SumTarget;
    /// Receives sums that were written to `sums`.
    fn take(&self, part: ResultPart, sums: &Sums);
    /// Receives the sums of a whole row.
    fn write(&self, row: usize, sums: &[i32]);
    /// Applies the tail to a part that is completely written.
    fn finish(&self, part: ResultPart);
    /// Bytes of an element.
    fn element(&self) -> usize;
}

/// Rows of results.
struct ResultRows<T> {
    /// The first result.
    y: Shared<T>,
    /// Elements of all rows.
    len: usize,
    /// Elements of a row.
    columns: usize,
}

impl<T> ResultRows<T> {
    /// The rows of `y`, of `columns` elements each.
    fn new(y: &mut [T], columns: usize) -> Self {
        Self { y: Shared::new(y.as_mut_ptr()), len: y.len(), columns }
    }

    /// A row.
    #[allow(clippy::mut_from_ref)] // each row is used once
    fn row(&self, row: usize) -> &mut [T] {
        let at = self.at(ResultPart { row, rows: 1, column: 0, columns: self.columns });
        // SAFETY: the row is within the result, and is used once.
        unsafe { std::slice::from_raw_parts_mut(at, self.columns) }
    }

    /// The address of a part.
    fn at(&self, part: ResultPart) -> *mut T {
        let fits = (part.row + part.rows) * self.columns <= self.len;
        assert!(fits && part.column + part.columns <= self.columns, "a part beyond the result");
        self.y.get().wrapping_add(part.row * self.columns + part.column)
    }
}

/// Output as levels: sums times the scale of their column, rounded.
pub struct ToLevels {
    /// The results.
    rows: ResultRows<u8>,
    /// The factor of each column.
    scales: List<f32>,
    /// The conversion to levels.
    rounding: Rounding,
}

impl ToLevels {
    /// Rows of `y`, with one scale for each column or for all.
    pub fn new<T: Float>(y: &mut [u8], columns: usize, scales: &[T], rounding: Rounding) -> Self {
        let scales = filled(columns, |i| of_column(scales, i).real() as f32);
        Self { rows: ResultRows::new(y, columns), scales, rounding }
    }
}

#[allow(private_interfaces)]
impl SumOutput for ToLevels {
    fn target(&self, part: ResultPart, _: &mut Sums) -> SumTarget {
        let (to, row, columns) = (self.rows.at(part), self.rows.columns, part.columns);
        SumTarget::Levels {
            to,
            row,
            columns,
            scales: self.scales[part.column..].as_ptr(),
            rounding: self.rounding,
        }
    }

    fn take(&self, _: ResultPart, _: &Sums) {}

    fn write(&self, row: usize, sums: &[i32]) {
        let (levels, rounding, scales) = (self.rows.row(row), self.rounding, &*self.scales);
        vectorised(
            #[inline(always)]
            || {
                for ((y, sum), scale) in levels.iter_mut().zip(sums).zip(scales) {
                    *y = rounding.level(*sum as f32 * scale);
                }
            },
        );
    }

    fn finish(&self, _: ResultPart) {}

    fn element(&self) -> usize {
        size_of::<u8>()
    }
}

/// Output as numbers: sums times the scale of their column, plus the shift of the column.
pub struct ToNumbers<'a, T> {
    /// The results.
    rows: ResultRows<T>,
    /// The factor of each column.
    scales: List<T>,
    /// The number added to each column after its factor.
    shifts: List<T>,
    /// Functions applied to complete rows.
    tail: Tail<'a>,
}

impl<'a, T: Float> ToNumbers<'a, T> {
    /// Rows of `y`, with one scale for each column or for all, and optional shifts in the same form.
    pub fn new(y: &mut [T], columns: usize, scales: &[T], shifts: &[T], tail: Tail<'a>) -> Self {
        let shift = |i| if shifts.is_empty() { T::ZERO } else { of_column(shifts, i) };
        let scales = filled(columns, |i| of_column(scales, i));
        Self { rows: ResultRows::new(y, columns), scales, shifts: filled(columns, shift), tail }
    }

    /// True if the output has elements of 32 bits.
    fn is_single() -> bool {
        size_of::<T>() == size_of::<f32>()
    }
}

#[allow(private_interfaces)]
impl<T: Float> SumOutput for ToNumbers<'_, T> {
    fn target(&self, part: ResultPart, sums: &mut Sums) -> SumTarget {
        if !Self::is_single() {
            return SumTarget::Sums(sums.as_mut_ptr());
        }
        // The numbers are `f32`.
        let of = |list: &List<T>| list[part.column..].as_ptr().cast();
        let (to, row, columns) = (self.rows.at(part).cast(), self.rows.columns, part.columns);
        SumTarget::Numbers { to, row, columns, scales: of(&self.scales), shifts: of(&self.shifts) }
    }

    fn take(&self, part: ResultPart, sums: &Sums) {
        if Self::is_single() {
            return;
        }
        let (scales, shifts) = (&self.scales[part.column..], &self.shifts[part.column..]);
        for (i, sums) in sums.chunks_exact(WIDE).take(part.rows).enumerate() {
            let row = self.rows.at(ResultPart { row: part.row + i, rows: 1, ..part });
            for (j, sum) in sums[..part.columns].iter().enumerate() {
                // SAFETY: the part is within the result, and is used once.
                unsafe { row.add(j).write(T::all(f64::from(*sum)) * scales[j] + shifts[j]) };
            }
        }
    }

    fn write(&self, row: usize, sums: &[i32]) {
        let numbers = self.rows.row(row);
        for (i, (y, sum)) in numbers.iter_mut().zip(sums).enumerate() {
            *y = T::all(f64::from(*sum)) * self.scales[i] + self.shifts[i];
        }
        self.finish(ResultPart { row, rows: 1, column: 0, columns: sums.len() });
    }

    fn finish(&self, part: ResultPart) {
        if self.tail.rows.is_none() && self.tail.activation == Activation::Identity {
            return;
        }
        for i in 0..part.rows {
            let row = self.rows.at(ResultPart { row: part.row + i, rows: 1, ..part });
            // SAFETY: the part is within the result, was written, and is used once.
            unsafe {
                let numbers = std::slice::from_raw_parts_mut(row, part.columns);
                for v in &mut *numbers {
                    *v = self.tail.activation.of(*v);
                }
                self.tail.finish(row, part.columns, 1, part.columns);
            }
        }
    }

    fn element(&self) -> usize {
        size_of::<T>()
    }
}
