//! One plane of an image and what positions see of it through the taps of a kernel, read where it lies: lanes that see
//! padding are masked, and rows of padding are left out. What depthwise convolution is made of.

use smallvec::SmallVec;

use crate::kernels::Float;
use crate::kernels::convolution::window::{Column, Window, WindowAxis};
use crate::kernels::simd::Vector;

/// Numbers in the longest register.
pub(super) const LANES: usize = 16;

/// Rows and columns of taps that are taken together: of so many, for as many registers.
fn together(n: usize, most: usize) -> usize {
    match n {
        0..=3 => n,
        5.. if most >= 5 => 5,
        _ => 3,
    }
    .min(most)
}

/// Rows of positions that are taken together.
pub(super) const TALL: usize = 4;
/// A step along rows that is none of those that registers know.
pub(super) const ANY: usize = 0;

/// Taps that are taken together: their rows see, from the same position, rows of the source that follow each other.
pub(in super::super) struct TapBlock {
    /// The row of the source that the first row of positions sees first.
    pub(in super::super) offset: isize,
    pub(in super::super) rows: usize,
    /// The first column of the window, and how many there are.
    pub(in super::super) column: usize,
    pub(in super::super) columns: usize,
    /// The element of the kernel that is the first tap.
    pub(in super::super) element: isize,
}

impl TapBlock {
    /// How many columns a loop in registers `V` takes that was compiled for `C`: so many, or, if it counts at run time, the block's.
    #[inline(always)]
    pub(super) fn columns_in<V: Vector, const C: usize>(&self) -> usize {
        if V::IS_PORTABLE { self.columns.min(C) } else { C }
    }
}

/// What the rows of positions of a window see.
pub(in super::super) struct Plane {
    /// Rows of the source, and the step from one row of positions to the next.
    pub(in super::super) rows: usize,
    pub(in super::super) step: usize,
    pub(in super::super) blocks: SmallVec<[TapBlock; 4]>,
    /// From an element of the kernel to that which sees the next row of the source, and to the next tap of a row.
    pub(super) next_row: isize,
    pub(super) next_column: isize,
}

impl Plane {
    /// Blocks of up to `most` rows and columns of taps. `None` for windows of more than two axes.
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
        // Kernels know how far rows of positions are apart where it is as far as columns are.
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
        Some(Self { rows: rows.len, step: rows.step, blocks, next_row, next_column })
    }

    /// From the first tap of a block, in elements of the kernel, to that of a row and a column.
    #[inline(always)]
    pub(in super::super) fn tap(&self, row: usize, column: usize) -> isize {
        row as isize * self.next_row + column as isize * self.next_column
    }

    /// How many rows of the source `m` rows of positions see through `R` rows of taps, how many of them a row of positions is
    /// on from the one before, and how far they are apart: those of one row of taps as far as may be; several rows of taps
    /// see all in between, too.
    #[inline(always)]
    pub(in super::super) fn seen<const STEP: usize, const R: usize>(&self, m: usize) -> [usize; 3] {
        if R == 1 { [m, 1, self.step] } else { [(m - 1) * STEP + R, STEP, 1] }
    }
}

/// What a register of positions sees through a tap of a row, `STEP` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V: Vector, const STEP: usize> {
    /// The element that the first lane sees, and the lanes that do see one.
    at: isize,
    start: usize,
    end: usize,
    step: usize,
    /// Elements in the first register of them, and in the second where they are twice as many.
    masks: [V::Mask; 2],
    /// Whether all lanes see an element, and the registers that are read lie on the row.
    whole: bool,
}

impl<V: Vector, const STEP: usize> Lanes<V, STEP> {
    /// Those of all columns of a block from position `j` on, and whether all of them are whole.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so are the columns. So below.
    #[inline(always)]
    pub(in super::super) unsafe fn of<const C: usize>(
        window: &Window,
        block: &TapBlock,
        j: usize,
    ) -> ([Self; C], bool) {
        let last = block.columns_in::<V, C>() - 1;
        let column = |c: usize| window.columns[block.column + c.min(last)];
        // SAFETY: the caller's promise.
        let lanes = std::array::from_fn(|c| unsafe { Self::new(window, column(c), j) });
        let whole = lanes.iter().all(|lanes: &Self| lanes.whole);
        (lanes, whole)
    }

    /// The element that the first lane sees.
    #[inline(always)]
    pub(in super::super) fn at(&self) -> isize {
        self.at
    }

    #[inline(always)]
    unsafe fn new(window: &Window, column: Column, j: usize) -> Self {
        let lane = |position: usize| position.saturating_sub(j).min(V::WIDTH);
        let (start, end) = (lane(column.start), lane(column.end));
        let at = (j * window.step) as isize + column.offset;
        let (first, last) = if STEP == 2 { (2 * start, (2 * end).saturating_sub(1)) } else { (start, end) };
        let whole = end - start == V::WIDTH && at + (STEP * V::WIDTH) as isize <= window.length as isize;
        // SAFETY: the caller's promise.
        let masks = unsafe {
            let beyond = |element: usize| element.saturating_sub(V::WIDTH);
            [V::between(first, last), V::between(beyond(first), beyond(last))]
        };
        Self { at, start, end, step: window.step, masks, whole }
    }

    /// What is seen in a row of the source, zeros where that is nothing; all lanes see something if `WHOLE` is set.
    ///
    /// # Safety
    /// The row is there.
    #[inline(always)]
    pub(in super::super) unsafe fn load<const WHOLE: bool>(&self, row: *const V::T) -> V {
        let from = row.wrapping_offset(self.at);
        // SAFETY: the caller's promise; masks keep within the row.
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
