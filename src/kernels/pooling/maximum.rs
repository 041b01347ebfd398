//! Maxima over windows, and their positions.

use std::ops::Range;

use super::{PoolingAxis, PoolingRow, Windows};
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, Movable};

/// Writes for each window the largest element and its position in the plane: the first of equal ones, or the first
/// NaN.
pub fn max<T: Float>(w: &Windows, x: &[T], y: &mut [T], at: &mut [u32]) {
    assert!(x.len() == w.inputs() && y.len() == w.outputs() && at.len() == y.len());
    let (to, to_at) = (Shared::new(y.as_mut_ptr()), Shared::new(at.as_mut_ptr()));
    let ([depth, height, width], line) = (w.axes, LineLayout::of(w));
    w.for_each_with(
        move || match line.len > width.input {
            true => List::repeat(T::NEG_INFINITY, depth.input * height.input * line.len),
            false => List::with_capacity(0),
        },
        #[inline(always)]
        move |copy: &mut List<T>, plane| {
            if copy.is_empty() {
                return;
            }
            let lines = x[plane..].chunks_exact(width.input);
            for (to, from) in copy.chunks_exact_mut(line.len).zip(lines) {
                to[line.before..][..width.input].copy_from_slice(from);
            }
        },
        #[inline(always)]
        move |copy, row| {
            // SAFETY: each row of outputs is visited once.
            let (y, at) = unsafe { (to.get().add(row.to), to_at.get().add(row.to)) };
            if copy.is_empty() {
                Maxima::<T, false> { w, row, x: x[row.plane..].as_ptr(), padded: line, y, at }.find_all();
            } else {
                Maxima::<T, true> { w, row, x: copy.as_ptr(), padded: line, y, at }.find_all();
            }
        },
    );
}

/// The layout of a line of a plane: its length, including `before` elements of padding before the input.
#[derive(Clone, Copy)]
struct LineLayout {
    /// The number of elements.
    len: usize,
    /// The number of elements of padding at the start.
    before: usize,
}

impl LineLayout {
    /// The layout of planes that are copied with padding, so that windows on the border need no special case, or of
    /// the input in place.
    fn of(w: &Windows) -> Self {
        let PoolingAxis { input, output, kernel, stride, pad } = w.axes[2];
        let end = output.saturating_sub(1).saturating_mul(stride).saturating_add(kernel);
        let is_copied = w.inner == 1 && stride <= FAR && kernel <= input && (pad > 0 || end > input);
        if is_copied {
            Self { len: end.max(pad + input), before: pad }
        } else {
            Self { len: input, before: 0 }
        }
    }
}

/// The largest stride of windows that are processed together.
const FAR: usize = 4;

/// A row of outputs being written, and the plane of its windows, which is a padded copy if `IS_PADDED`. Otherwise
/// positions are element numbers, and the compiler knows that.
struct Maxima<'a, T, const IS_PADDED: bool> {
    /// All windows.
    w: &'a Windows,
    /// The row of outputs.
    row: &'a PoolingRow<'a>,
    /// The plane.
    x: *const T,
    /// The layout of the lines of a copy.
    padded: LineLayout,
    /// The maxima, which are written.
    y: *mut T,
    /// The position of each maximum, which is written.
    at: *mut u32,
}

impl<T: Float, const IS_PADDED: bool> Maxima<'_, T, IS_PADDED> {
    /// Finds the largest element of each window of the row.
    #[inline(always)]
    fn find_all(&self) {
        if self.w.inner > 1 {
            self.of_channels();
        } else {
            self.of_columns();
        }
    }

    /// The layout of lines.
    #[inline(always)]
    fn line(&self) -> LineLayout {
        if IS_PADDED { self.padded } else { LineLayout { len: self.w.axes[2].input, before: 0 } }
    }

    /// Finds the maxima for windows whose outputs are adjacent channels.
    #[inline(always)]
    fn of_channels(&self) {
        let n = self.w.inner;
        for (o, width) in self.row.widths.iter().enumerate() {
            // SAFETY: the blocks are channels of one window.
            unsafe {
                match n {
                    16.. => blocks(
                        n,
                        16,
                        #[inline(always)]
                        |c| self.find::<16, 1>(o * n + c, &width.range, c),
                    ),
                    4.. => blocks(
                        n,
                        4,
                        #[inline(always)]
                        |c| self.find::<4, 1>(o * n + c, &width.range, c),
                    ),
                    _ => blocks(
                        n,
                        1,
                        #[inline(always)]
                        |c| self.find::<1, 1>(o * n + c, &width.range, c),
                    ),
                }
            }
        }
    }

    /// Finds the maxima of a line of outputs. Windows are processed together unless they extend over padding that is
    /// not stored.
    #[inline(always)]
    fn of_columns(&self) {
        let (axis, pad) = (self.w.axes[2], self.missing());
        let first = pad.div_ceil(axis.stride).min(axis.output);
        let end = (self.line().len + pad + 1).saturating_sub(axis.kernel).div_ceil(axis.stride);
        let end = end.min(axis.output).max(first);
        for o in (0..first).chain(end..axis.output) {
            // SAFETY: a window of the row.
            unsafe { self.find::<1, 1>(o, &self.row.widths[o].range, 0) };
        }
        // SAFETY: these windows are within the lines.
        unsafe {
            match axis.stride {
                1 => self.side_by_side::<1>(first, end - first),
                2 => self.side_by_side::<2>(first, end - first),
                3 => self.side_by_side::<3>(first, end - first),
                FAR => self.side_by_side::<FAR>(first, end - first),
                _ => (first..end).for_each(|o| self.find::<1, 1>(o, &self.row.widths[o].range, 0)),
            }
        }
    }

    /// Padding before a line that is not stored.
    #[inline(always)]
    fn missing(&self) -> usize {
        self.w.axes[2].pad - self.line().before
    }

    /// Processes the `n` windows from `first` on, with a stride of `S` elements.
    #[inline(always)]
    unsafe fn side_by_side<const S: usize>(&self, first: usize, n: usize) {
        let range = |o: usize| {
            let start = (first + o) * S - self.missing();
            start..start + self.w.axes[2].kernel
        };
        // SAFETY: as above.
        unsafe {
            match n {
                16.. => blocks(
                    n,
                    16,
                    #[inline(always)]
                    |o| self.find::<16, S>(first + o, &range(o), 0),
                ),
                8.. => blocks(
                    n,
                    8,
                    #[inline(always)]
                    |o| self.find::<8, S>(first + o, &range(o), 0),
                ),
                4.. => blocks(
                    n,
                    4,
                    #[inline(always)]
                    |o| self.find::<4, S>(first + o, &range(o), 0),
                ),
                _ => blocks(
                    n,
                    1,
                    #[inline(always)]
                    |o| self.find::<1, S>(first + o, &range(o), 0),
                ),
            }
        }
    }

    /// Computes outputs `to` to `to + L`, for inner element `c` of their windows. The first window covers `columns`
    /// of the lines, and the stride of the next ones is `S` elements.
    ///
    /// # Safety
    /// The outputs must be in the row, and their windows in the plane.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // indexes several arrays
    #[allow(clippy::neg_cmp_op_on_partial_ord)] // one comparison for numbers and NaN
    unsafe fn find<const L: usize, const S: usize>(&self, to: usize, columns: &Range<usize>, c: usize) {
        let (axes, inner, LineLayout { len, before }) = (&self.w.axes, self.w.inner, self.line());
        let line = |z: usize, y: usize| z * axes[1].input + y;
        let place =
            |line: usize, at: usize| (line * axes[2].input * inner + at + c).wrapping_sub(before) as u32;
        let (depth, height) = (&self.row.depth.range, &self.row.height.range);
        let first = line(depth.start, height.start);
        let mut best = [T::NEG_INFINITY; L];
        // The first element of a window, which is not padding.
        let (first, start, before) = (place(first, 0), (columns.start * inner) as u32, before as u32);
        let mut at: [u32; L] =
            std::array::from_fn(|l| first.wrapping_add((start + (l * S) as u32).max(before)));
        for z in depth.clone() {
            for y in height.clone() {
                let line = line(z, y);
                for x in columns.clone() {
                    let from = (line * len + x) * inner + c;
                    let mut v = [T::ZERO; L];
                    for l in 0..L {
                        // SAFETY: guaranteed by the caller.
                        v[l] = unsafe { self.x.add(from + l * S).read() };
                    }
                    let from = place(line, x * inner);
                    for l in 0..L {
                        // NaN beats numbers, and nothing beats NaN, so padding is never chosen.
                        let better = !(v[l] <= best[l]) & !best[l].is_nan();
                        best[l] = if better { v[l] } else { best[l] };
                        at[l] = if better { from.wrapping_add((l * S) as u32) } else { at[l] };
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            self.y.add(to).cast::<[T; L]>().write(best);
            self.at.add(to).cast::<[u32; L]>().write(at);
        }
    }
}

/// Calls `f` with the starts of blocks of `each` elements that cover `0..n`. The last two may overlap. `n` must be at
/// least `each`.
#[inline(always)]
fn blocks(n: usize, each: usize, mut f: impl FnMut(usize)) {
    let mut i = 0;
    while i + each <= n {
        f(i);
        i += each;
    }
    if i < n {
        f(n - each);
    }
}

/// Calls `f` with the first input and output element of each plane, in parallel.
fn for_each_plane(w: &Windows, at: &[u32], f: impl Fn(usize, usize) + Sync) {
    let (input, output) = (w.input_plane(), w.output_plane());
    // Positions may come from elsewhere, so they are checked once, here.
    let last = vectorised(
        #[inline(always)]
        || at.iter().fold(0, |last, at| last.max(*at)),
    );
    assert!(at.len() == w.outputs() && (at.is_empty() || (last as usize) < input));
    threads::ranges(w.outer, (GRAIN / input.max(1)).max(1), |planes| {
        planes.for_each(|plane| f(plane * input, plane * output));
    });
}

/// Writes for each window the element of `x` that [`max`] found.
pub fn take<T: Float>(w: &Windows, at: &[u32], x: &[T], y: &mut [T]) {
    assert!(x.len() == w.inputs() && y.len() == w.outputs());
    let (to, output) = (Shared::new(y.as_mut_ptr()), w.output_plane());
    for_each_plane(w, at, |first, start| {
        for (o, i) in (start..).zip(&at[start..start + output]) {
            // SAFETY: each output is visited once.
            unsafe { to.get().add(o).write(x[first + *i as usize]) };
        }
    });
}

/// Writes or adds each element of `gy` at the position that [`max`] found, and zeros elsewhere: the gradient of
/// [`take`].
pub fn put_taken<T: Movable>(w: &Windows, at: &[u32], gy: &[T], gx: &mut [T], accumulate: bool) {
    assert!(gx.len() == w.inputs() && gy.len() == w.outputs());
    let to = Shared::new(gx.as_mut_ptr());
    let (input, output) = (w.input_plane(), w.output_plane());
    for_each_plane(w, at, |first, start| {
        // SAFETY: the plane is within the gradient, and one thread processes all of it.
        let plane = unsafe { std::slice::from_raw_parts_mut(to.get().add(first), input) };
        if !accumulate {
            plane.fill(T::ZERO);
        }
        for (g, i) in gy[start..start + output].iter().zip(&at[start..start + output]) {
            // SAFETY: positions were checked to be within the plane.
            let gx = unsafe { plane.get_unchecked_mut(*i as usize) };
            *gx = gx.plus(*g);
        }
    });
}
