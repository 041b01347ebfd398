//! A packed matrix of weights for products with few rows of levels, many times in a row.

use std::marker::PhantomData;
use std::ops::Range;

use super::in_tiles::{LeftTiles, TileKernels, WeightPanel, rows_of_copies};
use super::output::{ResultPart, Sums};
use super::pack::{QuantizedWeights, Stretches, WeightPanels};
use super::tile::{Finish, GROUP, IntegerTile, Kernels, SumTarget, TALL, WIDE, kernels};
use crate::kernels::Float;
use crate::kernels::amx::TilesInUse;
use crate::kernels::gemm::EvenSplit;
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};

/// The fewest multiplications of a task.
const GRAIN: usize = 1 << 18;

/// The size of a matrix.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct MatrixSize {
    /// The rows, which a product adds over.
    pub(in crate::kernels) terms: usize,
    /// The columns, each with a result.
    pub(in crate::kernels) columns: usize,
}

/// Rows of levels with a scale and a zero point.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct LevelRows<'a, T> {
    /// The rows, `row` bytes apart, followed by `GROUP` readable bytes.
    pub(in crate::kernels) levels: &'a [u8],
    /// Bytes from a row to the next.
    pub(in crate::kernels) row: usize,
    /// The number of rows.
    pub(in crate::kernels) count: usize,
    /// The number that a difference of one level represents.
    pub(in crate::kernels) scale: T,
    /// The level that represents zero.
    pub(in crate::kernels) zero: u8,
}

/// A packed matrix and the parameters of its columns.
pub(in crate::kernels) struct LevelMatrix<'a, T> {
    /// The kernels of this machine.
    kernels: &'static Kernels,
    /// The number of terms and columns.
    size: MatrixSize,
    /// The packed weights.
    panels: WeightPanels,
    /// The zero points of the columns, padded to whole registers.
    zeros: List<i32>,
    /// The scales of the columns, padded to whole registers.
    scales: List<T>,
    /// The sum of each column with its zero point subtracted from each weight, padded likewise.
    sums: List<i32>,
    /// True if any column has a zero point other than 0.
    has_zeros: bool,
    /// Borrows the packed weights.
    _memory: PhantomData<&'a [u8]>,
}

/// Bytes after a row of levels that a product may read.
pub(in crate::kernels) const SPARE: usize = GROUP;

impl MatrixSize {
    /// The terms of a column as one run.
    fn stretches(self) -> Stretches {
        Stretches { count: 1, length: self.terms }
    }

    /// Bytes of the packed form.
    pub(in crate::kernels) fn bytes(self) -> usize {
        self.bytes_for(kernels())
    }

    /// As [`MatrixSize::bytes`], for these kernels.
    pub(super) fn bytes_for(self, kernels: &Kernels) -> usize {
        WeightPanels::bytes(kernels, self.columns, self.stretches()).next_multiple_of(WIDE)
    }

    /// Packs a matrix.
    pub(in crate::kernels) fn pack(self, weights: &[i8], to: &mut [u8]) {
        self.pack_for(kernels(), weights, to);
    }

    /// As [`MatrixSize::pack`], for these kernels.
    pub(super) fn pack_for(self, kernels: &'static Kernels, weights: &[i8], to: &mut [u8]) {
        assert!(to.len() == self.bytes_for(kernels), "memory of another size");
        let panels = WeightPanels::at(kernels, to.as_mut_ptr(), self.columns, self.stretches());
        panels.pack(QuantizedWeights::of_rows(weights, self.terms, self.columns), self.stretches());
    }
}

impl<'a, T: Float> LevelMatrix<'a, T> {
    /// A matrix packed by [`MatrixSize::pack`], with a zero point and a scale for each column.
    pub(in crate::kernels) fn new(
        size: MatrixSize,
        packed: &'a [u8],
        zeros: impl Fn(usize) -> i32,
        scales: impl Fn(usize) -> T,
    ) -> Self {
        Self::of_kernels(kernels(), size, packed, zeros, scales)
    }

    /// As [`LevelMatrix::new`], for these kernels.
    pub(super) fn of_kernels(
        kernels: &'static Kernels,
        size: MatrixSize,
        packed: &'a [u8],
        zeros: impl Fn(usize) -> i32,
        scales: impl Fn(usize) -> T,
    ) -> Self {
        assert!(packed.len() == size.bytes_for(kernels), "memory of another size");
        let panels = WeightPanels::at(kernels, packed.as_ptr().cast_mut(), size.columns, size.stretches());
        let all = size.columns.next_multiple_of(WIDE);
        let zeros: List<i32> = (0..all).map(|i| if i < size.columns { zeros(i) } else { 0 }).collect();
        let sum = |i: usize| panels.sum(i).wrapping_sub(zeros[i].wrapping_mul(size.terms as i32));
        let sums = (0..all).map(|i| if i < size.columns { sum(i) } else { 0 }).collect();
        let scales = (0..all).map(|i| if i < size.columns { scales(i) } else { T::ZERO }).collect();
        let has_zeros = zeros.iter().any(|zero| *zero != 0);
        Self { kernels, size, panels, zeros, scales, sums, has_zeros, _memory: PhantomData }
    }

    /// Writes the products of rows with the columns, plus a number of each column. Rows of the result follow each
    /// other.
    pub(in crate::kernels) fn multiply(&self, x: LevelRows<'_, T>, shifts: &[T], y: &mut [T]) {
        let MatrixSize { terms, columns } = self.size;
        assert!(x.row >= terms && y.len() == x.count * columns && shifts.len() >= self.scales.len());
        assert!(x.count == 0 || (x.count - 1) * x.row + terms.next_multiple_of(GROUP) <= x.levels.len());
        let less = i32::from(self.kernels.levels_less);
        let (zero, less_of_zeros) = (less - i32::from(x.zero), less.wrapping_mul(terms as i32));
        let (mut added, mut scales) =
            (List::repeat(0, self.sums.len()), List::repeat(T::ZERO, self.sums.len()));
        vectorised(
            #[inline(always)]
            || {
                added.iter_mut().zip(&*self.sums).for_each(|(to, sum)| *to = zero.wrapping_mul(*sum));
                if less != 0 && self.has_zeros {
                    let both = added.iter_mut().zip(&*self.zeros);
                    both.for_each(|(to, zero)| *to = to.wrapping_add(less_of_zeros.wrapping_mul(*zero)));
                }
                scales.iter_mut().zip(&*self.scales).for_each(|(to, scale)| *to = *scale * x.scale);
            },
        );
        let row = |i: usize| &x.levels[i * x.row..][..terms];
        let sum = |i: usize| row(i).iter().map(|level| i32::from(*level)).sum::<i32>();
        let sums_of_rows: List<i32> = (0..if self.has_zeros { x.count } else { 0 }).map(sum).collect();
        let conversion = SumConversion {
            zeros: if self.has_zeros { &self.zeros } else { &[] },
            sums_of_rows: &sums_of_rows,
            added: &added,
            scales: &scales,
            shifts,
            to: Shared::new(y.as_mut_ptr()),
            columns,
        };
        let stretches = self.size.stretches();
        match self.kernels.in_tiles.filter(|tiles| (tiles.pays)(x.count, stretches, self.size.columns)) {
            Some(kernels) => {
                let starts: List<*const u8> = (0..x.count).map(|i| row(i).as_ptr()).collect();
                let most = rows_of_copies(stretches);
                for (i, starts) in starts.chunks(most).enumerate() {
                    // SAFETY: each row has all terms.
                    let left = unsafe { LeftTiles::new(starts, &[0], terms) };
                    self.in_tiles(kernels, &left, i * most, &conversion);
                }
            }
            None => self.in_registers(x, &conversion),
        }
    }

    /// Calls `work` with panels of columns that this number of rows is multiplied by, on all threads.
    fn share_panels(&self, rows: usize, work: impl Fn(Range<usize>) + Sync) {
        let MatrixSize { terms, columns } = self.size;
        let (panels, all) = (columns.div_ceil(self.kernels.panel()), rows * terms * columns);
        // Tasks of the same size, so that no thread waits for another one.
        let tasks = EvenSplit::new(panels, (all / GRAIN).clamp(1, panels.max(1)));
        threads::parallel(tasks.parts(), |task| work(tasks.part(task)));
    }

    /// The first column of a panel, its weights and registers, and the number of its columns.
    fn panel(&self, panel: usize) -> (usize, (*const i8, usize), usize) {
        let column = panel * self.kernels.panel();
        let (weights, registers) = self.panels.panel(column);
        (column, (weights, registers), (registers * self.kernels.width).min(self.size.columns - column))
    }

    /// Computes tiles of sums in registers.
    fn in_registers(&self, x: LevelRows<'_, T>, conversion: &SumConversion<'_, T>) {
        self.share_panels(x.count, |panels| {
            let mut sums: Sums = [0; TALL * WIDE];
            for panel in panels {
                let (column, (weights, registers), columns) = self.panel(panel);
                let tiles = self.kernels.tiles[registers - 1];
                for row in (0..x.count).step_by(tiles.len()) {
                    let part = ResultPart { row, rows: tiles.len().min(x.count - row), column, columns };
                    let mut rows = [std::ptr::null(); TALL];
                    for (i, start) in rows[..part.rows].iter_mut().enumerate() {
                        *start = x.levels[(row + i) * x.row..].as_ptr();
                    }
                    let tile = IntegerTile {
                        rows,
                        taps: &[0],
                        groups: self.size.terms.div_ceil(GROUP),
                        weights,
                        finish: conversion.finish(part, &mut sums),
                    };
                    // SAFETY: the kernel runs on this machine, and the panel has its weights. The rest of its last
                    // group follows each row. Each thread writes separate columns.
                    unsafe { tiles[part.rows - 1](&tile) };
                    conversion.take(part, &sums);
                }
            }
        });
    }

    /// As [`LevelMatrix::in_registers`], in tiles of AMX. `first` is the number of the first row.
    fn in_tiles(
        &self,
        kernels: &TileKernels,
        left: &LeftTiles,
        first: usize,
        conversion: &SumConversion<'_, T>,
    ) {
        self.share_panels(left.rows(), |panels| {
            let mut sums: Sums = [0; TALL * WIDE];
            // SAFETY: the machine has tiles.
            let _tiles = unsafe { TilesInUse::new() };
            for panel in panels {
                let (column, (weights, registers), columns) = self.panel(panel);
                let convert = |row: usize, rows: &[*const u8]| {
                    let part = ResultPart { row: first + row, rows: rows.len(), column, columns };
                    let tile = IntegerTile::of_sums(rows, conversion.finish(part, &mut sums));
                    // SAFETY: the kernel runs on this machine. Each thread writes separate columns.
                    unsafe { kernels.convert[registers - 1][part.rows - 1](&tile) };
                    conversion.take(part, &sums);
                };
                // SAFETY: the panel has its weights, and tiles are in use.
                unsafe { left.multiply(WeightPanel { weights, registers }, convert) };
            }
        });
    }
}

/// The conversion of sums to numbers.
struct SumConversion<'a, T> {
    /// The zero points of the columns. Empty if all are zero.
    zeros: &'a [i32],
    /// The sums of the rows of levels, if there are zero points.
    sums_of_rows: &'a [i32],
    /// The number added to each sum of a column.
    added: &'a [i32],
    /// The factors of the columns.
    scales: &'a [T],
    /// The number added to each column after its factor.
    shifts: &'a [T],
    /// The result, in contiguous rows.
    to: Shared<T>,
    /// The columns of the result.
    columns: usize,
}

impl<T: Float> SumConversion<'_, T> {
    /// True if numbers are `f32`, so that kernels write them.
    const IS_SINGLE: bool = size_of::<T>() == size_of::<f32>();

    /// The address of the first number of a part.
    fn at(&self, part: ResultPart) -> *mut T {
        self.to.get().wrapping_add(part.row * self.columns + part.column)
    }

    /// The conversion of a part by a kernel. It writes sums if numbers are not `f32`.
    #[inline(always)]
    fn finish(&self, part: ResultPart, sums: &mut Sums) -> Finish<'_> {
        let ResultPart { row, rows, column, columns } = part;
        let has_zeros = !self.zeros.is_empty();
        let zeros = has_zeros.then(|| (self.zeros[column..].as_ptr(), &self.sums_of_rows[row..row + rows]));
        let target = if Self::IS_SINGLE {
            // The numbers are `f32`.
            SumTarget::Numbers {
                to: self.at(part).cast(),
                row: self.columns,
                columns,
                scales: self.scales[column..].as_ptr().cast(),
                shifts: self.shifts[column..].as_ptr().cast(),
            }
        } else {
            SumTarget::Sums(sums.as_mut_ptr())
        };
        Finish { added: self.added[column..].as_ptr(), zeros, target }
    }

    /// Converts the sums of a part, unless a kernel did.
    #[inline(always)]
    fn take(&self, part: ResultPart, sums: &Sums) {
        if Self::IS_SINGLE {
            return;
        }
        for (i, sums) in sums.chunks_exact(WIDE).take(part.rows).enumerate() {
            let columns = part.column..part.column + part.columns;
            let numbers = self.scales[columns.clone()].iter().zip(&self.shifts[columns]);
            for (j, (sum, (scale, shift))) in sums.iter().zip(numbers).enumerate() {
                let number = T::all(f64::from(*sum)) * *scale + *shift;
                // SAFETY: the part is within the result, and each thread writes separate columns.
                unsafe { self.at(part).add(i * self.columns + j).write(number) };
            }
        }
    }
}
