//! One plane of an image laid out so that every tap of a kernel sees rows of neighbours: padded, and with the columns of
//! each residue of the stride side by side. What depthwise convolution reads; the planes of many channels are strips.

use smallvec::SmallVec;

use super::strip::{SLACK, clear, copy};
use super::window::{Axis, Window};
use crate::kernels::Float;
use crate::kernels::gemm::Split;
use crate::kernels::simd::Vector;

/// Elements of a plane that are laid out at a time: they stay in the second cache.
const BLOCK: usize = 32 << 10;

/// Elements of an image that are fetched before they are needed.
const AHEAD: usize = 1 << 10;

/// Columns of one residue: the first lies at `from` of a row of the image, and those from `start` to `end` are on it.
#[derive(Clone, Copy)]
struct Phase {
    from: isize,
    start: usize,
    end: usize,
}

/// Where the first position sees each tap.
pub(super) type Taps = SmallVec<[isize; 16]>;

/// Rows and columns.
fn axes(window: &Window) -> Option<(Axis, Axis)> {
    match &window.axes[..] {
        [columns] => Some((Axis::of_one(), columns.clone())),
        [rows, columns] => Some((rows.clone(), columns.clone())),
        _ => None,
    }
}

/// How blocks of rows of a plane are laid out.
pub(super) struct Plane {
    rows: Axis,
    columns: Axis,
    residues: SmallVec<[isize; 4]>,
    /// The row of the image that the first row of positions sees first, and the first column of any residue.
    top: isize,
    left: isize,
    phases: SmallVec<[Phase; 4]>,
    /// Elements of a row of one residue, and of all.
    phase: usize,
    pitch: usize,
    /// Rows of positions, and of the plane beyond those that they move along.
    pub(super) blocks: Split,
    more: usize,
}

impl Plane {
    /// What several windows see, which differ in their taps and first elements alone. `None`: they have more than two
    /// axes, or no taps.
    pub(super) fn new(windows: &[Window]) -> Option<Self> {
        let (mut rows, mut columns) = axes(windows.iter().find(|w| !w.taps.is_empty())?)?;
        for (more_rows, more_columns) in windows.iter().filter_map(axes) {
            for (axis, more) in [(&mut rows, more_rows), (&mut columns, more_columns)] {
                axis.positions = axis.positions.max(more.positions);
                axis.offsets.extend(more.offsets);
            }
        }
        let bounds = |v: &mut dyn Iterator<Item = isize>| {
            v.fold((isize::MAX, isize::MIN), |(low, high), v| (low.min(v), high.max(v)))
        };
        let step = columns.step as isize;
        let (top, bottom) = bounds(&mut rows.offsets.iter().copied());
        let (left, right) = bounds(&mut columns.offsets.iter().map(|o| o.div_euclid(step)));
        let mut residues: SmallVec<[isize; 4]> = columns.offsets.iter().map(|o| o.rem_euclid(step)).collect();
        residues.sort_unstable();
        residues.dedup();
        let phase = columns.positions + (right - left) as usize;
        let limit = |v: isize| (v.max(0) as usize).div_ceil(columns.step).min(phase);
        let phases: SmallVec<[Phase; 4]> = residues
            .iter()
            .map(|residue| {
                let from = left * step + residue;
                let start = limit(-from);
                Phase { from, start, end: limit(columns.len as isize - from).max(start) }
            })
            .collect();
        let pitch = phase * phases.len();
        let more = (bottom - top) as usize + 1 - rows.step.min((bottom - top) as usize + 1);
        let each = (BLOCK / (pitch * rows.step).max(1)).clamp(1, rows.positions.max(1));
        let blocks = Split::new(rows.positions, rows.positions.div_ceil(each));
        Some(Self { rows, columns, residues, top, left, phases, phase, pitch, blocks, more })
    }

    /// Where the first position of one of the windows sees each tap.
    pub(super) fn taps(&self, window: &Window) -> Taps {
        let step = self.columns.step as isize;
        let tap = |y: isize, x: isize| {
            let at = self.residues.iter().position(|r| *r == x.rem_euclid(step)).unwrap_or(0);
            (y - self.top) * self.pitch as isize + (at * self.phase) as isize + x.div_euclid(step) - self.left
        };
        let (rows, columns) = axes(window).unwrap_or_else(|| (Axis::of_one(), Axis::of_one()));
        rows.offsets.iter().flat_map(|y| columns.offsets.iter().map(move |x| tap(*y, *x))).collect()
    }

    /// Elements of memory for the largest block, and for what is read beyond it.
    pub(super) fn room(&self) -> usize {
        self.height(self.blocks.part(0).len()) * self.pitch + 4 * SLACK
    }

    /// Rows of the plane that so many rows of positions see.
    fn height(&self, rows: usize) -> usize {
        rows * self.rows.step + self.more
    }

    /// From one row of positions to the next.
    pub(super) fn row(&self) -> usize {
        self.rows.step * self.pitch
    }

    pub(super) fn width(&self) -> usize {
        self.columns.positions
    }
}

/// An order to lay out what a block of positions sees of a plane.
pub(in crate::kernels) struct LayPlane<'a, T> {
    pub(super) plane: &'a Plane,
    pub(super) block: usize,
    pub(super) from: *const T,
    pub(super) to: *mut T,
}

impl<T: Float> LayPlane<'_, T> {
    /// Lays out the rows.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory: [`Plane::room`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let plane = self.plane;
        let rows = plane.blocks.part(self.block);
        let first = (rows.start * plane.rows.step) as isize + plane.top;
        for i in 0..plane.height(rows.len()) {
            let (row, to) = (first + i as isize, self.to.wrapping_add(i * plane.pitch));
            // SAFETY: the caller's promise; what is read lies on the image. What is written beyond a row is overwritten by
            // the next one.
            unsafe {
                if row < 0 || row >= plane.rows.len as isize {
                    clear::<V>(to, plane.pitch);
                    continue;
                }
                let from = self.from.wrapping_add(row as usize * plane.columns.len);
                for j in (0..plane.columns.len).step_by(V::WIDTH) {
                    V::prefetch(from.wrapping_add(AHEAD + j));
                }
                for (p, phase) in plane.phases.iter().enumerate() {
                    let Phase { from: at, start, end } = *phase;
                    let (step, to) = (plane.columns.step, to.wrapping_add(p * plane.phase));
                    clear::<V>(to, start);
                    let from = from.wrapping_offset(at + (start * step) as isize);
                    copy::<V>(from, step, end - start, to.wrapping_add(start));
                    // Behind the last element a copy leaves zeros until its register ends.
                    let zeros = start + (end - start).next_multiple_of(if step > 2 { 1 } else { V::WIDTH });
                    clear::<V>(to.wrapping_add(zeros), plane.phase.saturating_sub(zeros));
                }
            }
        }
    }
}
