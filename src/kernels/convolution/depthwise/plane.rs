//! The rows of a plane that positions read through the taps of a kernel, in place. Lanes in the padding are masked,
//! and rows of padding are skipped.

use smallvec::SmallVec;

use crate::kernels::Movable;
use crate::kernels::convolution::window::{Column, Window, WindowAxis};
use crate::kernels::simd::Vector;

/// The number of lanes of the longest register.
pub(super) const LANES: usize = 16;

/// The size of a block of taps along an axis with `n` left, at most `most`, for which a loop is compiled.
fn together(n: usize, most: usize) -> usize {
    match n {
        0..=3 => n,
        5.. if most >= 5 => 5,
        _ => 3,
    }
    .min(most)
}

/// The number of rows of positions that are computed together.
pub(super) const TALL: usize = 4;
/// A step for which no loop is compiled.
pub(super) const ANY: usize = 0;

/// A block of taps. From the same position, its rows read consecutive rows of the source.
pub(in super::super) struct TapBlock {
    /// The source row that the first row of positions reads through the first row of taps.
    pub(in super::super) offset: isize,
    /// The number of rows.
    pub(in super::super) rows: usize,
    /// The first column of the window that the block covers.
    pub(in super::super) column: usize,
    /// The number of columns of taps.
    pub(in super::super) columns: usize,
    /// The kernel element of the first tap.
    pub(in super::super) element: isize,
}

impl TapBlock {
    /// The number of columns for a loop that was compiled for `C` columns. It is the number of the block if the loop
    /// counts at run time.
    #[inline(always)]
    pub(super) fn columns_in<V: Vector, const C: usize>(&self) -> usize {
        if V::IS_RARE { self.columns.min(C) } else { C }
    }
}

/// The rows of the source that rows of positions read.
pub(in super::super) struct Plane {
    /// The number of source rows.
    pub(in super::super) rows: usize,
    /// The step between rows of positions, in source rows.
    pub(in super::super) step: usize,
    /// The blocks of taps.
    pub(in super::super) blocks: SmallVec<[TapBlock; 4]>,
    /// True if there is a single row of adjacent positions.
    pub(super) is_row: bool,
    /// The distance of kernel elements from one row of taps to the next.
    pub(super) next_row: isize,
    /// The distance of kernel elements from one column of taps to the next.
    pub(super) next_column: isize,
}

impl Plane {
    /// Divides the taps into blocks of up to `most` rows and columns. `None` for windows of more than two axes.
    pub(in super::super) fn new(window: &Window, most: usize) -> Option<Self> {
        let (rows, columns) = match &window.axes[..] {
            [columns] => (WindowAxis::of_one(), columns),
            [rows, columns] => (rows.clone(), columns),
            _ => return None,
        };
        let n = columns.offsets.len();
        let element =
            |row: usize, column: usize| window.taps.get(row * n + column).map_or(0, |t| *t as isize);
        let mut order: SmallVec<[usize; 8]> = (0..rows.offsets.len()).collect();
        order.sort_by_key(|row| rows.offsets[*row]);
        // Loops are compiled for equal steps along rows and columns.
        let is_regular = rows.step == columns.step;
        let wide = if columns.step <= 2 { most } else { 1 };
        let tall = if is_regular { wide } else { 1 };
        let follows = |pair: &[usize]| rows.offsets[pair[0]] + 1 == rows.offsets[pair[1]];
        let mut blocks: SmallVec<[TapBlock; 4]> = SmallVec::new();
        let mut column = 0;
        while column < n {
            let columns = together(n - column, wide);
            let mut rest = &order[..];
            while let Some(row) = rest.first() {
                let run = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
                let n_rows = together(run, tall);
                let (offset, element) = (rows.offsets[*row], element(*row, column));
                blocks.push(TapBlock { offset, rows: n_rows, column, columns, element });
                rest = &rest[n_rows..];
            }
            column += columns;
        }
        let next_row = order.get(1).map_or(0, |row| element(*row, 0) - element(order[0], 0));
        let next_column = if n > 1 { element(0, 1) - element(0, 0) } else { 0 };
        let is_row = columns.step == 1 && rows.positions == 1 && !blocks.is_empty();
        Some(Self { rows: rows.len, step: rows.step, blocks, is_row, next_row, next_column })
    }

    /// The distance between the kernel elements of the first tap of a block and of the tap at a row and a column.
    #[inline(always)]
    pub(in super::super) fn tap(&self, row: usize, column: usize) -> isize {
        row as isize * self.next_row + column as isize * self.next_column
    }

    /// For `m` rows of positions and `R` rows of taps: the number of source rows that they read, the number of source
    /// rows between two rows of positions, and the distance of those source rows.
    #[inline(always)]
    pub(in super::super) fn seen<const STEP: usize, const R: usize>(&self, m: usize) -> [usize; 3] {
        if R == 1 { [m, 1, self.step] } else { [(m - 1) * STEP + R, STEP, 1] }
    }
}

/// The elements that a register of positions reads through a tap, `STEP` apart.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V: Vector, const STEP: usize> {
    /// The index of the element for the first lane.
    at: isize,
    /// The first lane within the row.
    start: usize,
    /// The end of the lanes within the row.
    end: usize,
    /// The distance of the elements of adjacent lanes.
    step: usize,
    /// The masks of the one or two registers that are loaded.
    masks: [V::Mask; 2],
    /// True if all lanes, and all loaded registers, are within the row.
    whole: bool,
}

impl<V: Vector, const STEP: usize> Lanes<V, STEP> {
    /// The lanes of each column of a block from position `j` on, and whether all are whole.
    ///
    /// # Safety
    /// The instruction set of `V` must be available, and the columns must exist. Same below.
    #[inline(always)]
    pub(in super::super) unsafe fn of<const C: usize>(
        window: &Window,
        block: &TapBlock,
        j: usize,
    ) -> ([Self; C], bool) {
        let last = block.columns_in::<V, C>() - 1;
        let column = |c: usize| window.columns[block.column + c.min(last)];
        // SAFETY: guaranteed by the caller.
        let lanes = std::array::from_fn(|c| unsafe { Self::new(window, column(c), j) });
        let whole = lanes.iter().all(|lanes: &Self| lanes.whole);
        (lanes, whole)
    }

    /// The index of the element for the first lane.
    #[inline(always)]
    pub(in super::super) fn at(&self) -> isize {
        self.at
    }

    /// The lanes of the `WIDTH` positions from `j` on, for one column of taps. `masks` and `whole` follow from the part
    /// of the row that the column covers.
    #[inline(always)]
    unsafe fn new(window: &Window, column: Column, j: usize) -> Self {
        let lane = |position: usize| position.saturating_sub(j).min(V::WIDTH);
        let (start, end) = (lane(column.start), lane(column.end));
        let at = (j * window.step) as isize + column.offset;
        let (first, last) = if STEP == 2 { (2 * start, (2 * end).saturating_sub(1)) } else { (start, end) };
        let whole = end - start == V::WIDTH && at + (STEP * V::WIDTH) as isize <= window.length as isize;
        // SAFETY: guaranteed by the caller.
        let masks = unsafe {
            let beyond = |element: usize| element.saturating_sub(V::WIDTH);
            [V::between(first, last), V::between(beyond(first), beyond(last))]
        };
        Self { at, start, end, step: window.step, masks, whole }
    }

    /// Loads the elements of a source row, with zeros for padding. `WHOLE` requires that all lanes are within the row.
    ///
    /// # Safety
    /// The row must be valid.
    #[inline(always)]
    pub(in super::super) unsafe fn load<const WHOLE: bool>(&self, row: *const V::T) -> V {
        let from = row.wrapping_offset(self.at);
        // SAFETY: guaranteed by the caller, and masks keep within the row.
        unsafe {
            let load = |i: usize| {
                let from = from.wrapping_add(i * V::WIDTH);
                if WHOLE { V::load(from) } else { V::load_masked(from, self.masks[i]) }
            };
            match STEP {
                1 => load(0),
                2 => V::evens(load(0), load(1)),
                _ => {
                    let mut lanes = [V::T::ZERO; LANES];
                    for (i, lane) in lanes.iter_mut().enumerate().take(self.end).skip(self.start) {
                        *lane = *from.wrapping_add(i * self.step);
                    }
                    V::load(lanes.as_ptr())
                }
            }
        }
    }
}
