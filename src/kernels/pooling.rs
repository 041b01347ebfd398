//! Sums and maxima over windows that slide along up to three axes. Knows planes of positions, not graphs.

mod maximum;

use std::ops::Range;

use super::map::GRAIN;
use super::scratch::List;
use super::simd::vectorised_of;
use super::sixteen_bits::{StoredElements, is_narrow, memory};
use super::threads::{self, Shared};
use super::{Float, Stored, channel_sums};
use crate::array::Workspace;
pub use maximum::{max, put_taken, take};

/// The windows along one axis.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct PoolingAxis {
    /// The length of the input.
    pub input: usize,
    /// The number of windows.
    pub output: usize,
    /// The length of a window.
    pub kernel: usize,
    /// The distance of adjacent windows.
    pub stride: usize,
    /// The padding at each end.
    pub pad: usize,
}

/// The part of an axis that one window covers.
#[derive(Clone, Debug)]
struct Span {
    /// The part on the input.
    range: Range<usize>,
    /// The length including padding.
    padded: usize,
}

impl PoolingAxis {
    /// A placeholder for an axis that does not exist.
    const NONE: Self = Self { input: 1, output: 1, kernel: 1, stride: 1, pad: 0 };

    /// The window of each output along one axis: its range on the input, and its length with padding.
    fn spans(&self) -> List<Span> {
        let padded = self.pad.saturating_mul(2).saturating_add(self.input);
        let span = |o: usize| {
            let start = o * self.stride;
            let end = start.saturating_add(self.kernel).min(padded);
            let on_input = |at: usize| at.saturating_sub(self.pad).min(self.input);
            Span { range: on_input(start)..on_input(end), padded: end - start }
        };
        (0..self.output).map(span).collect()
    }
}

/// The divisor of the sum over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// One: the result is a sum.
    One,
    /// The number of input elements in the window.
    Inside,
    /// The number of elements in the window, including padding.
    Padded,
}

/// Windows over arrays of (outer, axes..., inner) elements. Each inner element is pooled separately.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The number of elements before the pooled axes.
    outer: usize,
    /// The number of elements after the pooled axes.
    inner: usize,
    /// The windows along depth, height and width. Missing axes have length 1.
    axes: [PoolingAxis; 3],
}

/// The windows of one row of outputs, which cover the same planes and rows of the input.
struct PoolingRow<'a> {
    /// The first input element of this plane.
    plane: usize,
    /// The position of this plane in the group of planes that are processed together.
    among: usize,
    /// The first output.
    to: usize,
    /// The position of the first output in the group.
    at: usize,
    /// The windows along depth.
    depth: &'a Span,
    /// The windows along height.
    height: &'a Span,
    /// The windows along width, one for each output.
    widths: &'a [Span],
}

impl PoolingRow<'_> {
    /// Calls `f` with the input ranges of the lines of the window at `width`, in a single call if they are
    /// contiguous.
    #[inline(always)]
    fn lines(&self, w: &Windows, width: &Span, mut f: impl FnMut(Range<usize>)) {
        let (width, [_, rows, columns]) = (&width.range, &w.axes);
        for z in self.depth.range.clone() {
            let line = |y: usize| self.plane + (z * rows.input + y) * columns.input;
            if width.len() == columns.input {
                f(line(self.height.range.start)..line(self.height.range.end));
            } else {
                self.height.range.clone().for_each(|y| f(line(y) + width.start..line(y) + width.end));
            }
        }
    }

    /// The largest number of elements in a window.
    fn most(&self, w: &Windows) -> usize {
        self.depth.range.len() * self.height.range.len() * w.axes[2].kernel
    }

    /// The divisor of the sum of window `i`.
    fn divisor(&self, i: usize, divisor: Divisor) -> usize {
        [self.depth, self.height, &self.widths[i]].map(|span| divisor.length(span)).iter().product()
    }

    /// Divides the values of a row by their divisors. `lengths` come from [`Windows::lengths`].
    #[inline(always)]
    fn divide<T: Float>(&self, y: &mut [T], inner: usize, lengths: &[T], divisor: Divisor) {
        // The product below is rounded once, as the product of whole numbers would be.
        let rows = T::of((divisor.length(self.depth) * divisor.length(self.height)) as f64);
        if inner == 1 {
            for (y, length) in y.iter_mut().zip(lengths) {
                *y = *y / (*length * rows);
            }
            return;
        }
        for (y, length) in y.chunks_exact_mut(inner).zip(lengths) {
            let n = *length * rows;
            for y in y {
                *y = *y / n;
            }
        }
    }
}

impl Divisor {
    /// The number of elements by which one side of a window counts.
    fn length(self, side: &Span) -> usize {
        match self {
            Self::One => 1,
            Self::Inside => side.range.len(),
            Self::Padded => side.padded,
        }
    }
}

impl Windows {
    /// True if no two windows share an element.
    pub fn are_apart(&self) -> bool {
        self.axes.iter().all(|axis| axis.output <= 1 || axis.stride >= axis.kernel)
    }

    /// Windows along `axes`, at most three.
    pub fn new(outer: usize, axes: &[PoolingAxis], inner: usize) -> Self {
        let mut all = [PoolingAxis::NONE; 3];
        all[3 - axes.len()..].copy_from_slice(axes);
        Self { outer, inner, axes: all }
    }

    /// The number of input elements in one plane.
    pub fn input_plane(&self) -> usize {
        self.axes.iter().map(|a| a.input).product::<usize>() * self.inner
    }

    /// The number of output elements in one plane.
    pub fn output_plane(&self) -> usize {
        self.axes.iter().map(|a| a.output).product::<usize>() * self.inner
    }

    /// The number of windows times inner elements, in all planes.
    pub fn outputs(&self) -> usize {
        self.outer * self.output_plane()
    }

    /// The number of input elements.
    pub fn inputs(&self) -> usize {
        self.outer * self.input_plane()
    }

    /// True if the elements of a window are processed consecutively, false if all windows are processed element by
    /// element.
    fn along_windows(&self) -> bool {
        let PoolingAxis { kernel, output, .. } = self.axes[2];
        self.inner == 1 && (kernel >= WIDE || (kernel > 3 && output < kernel))
    }

    /// The number of elements in one row of outputs.
    fn row(&self) -> usize {
        self.axes[2].output * self.inner
    }

    /// The lengths along the last axis by which the windows count in their divisors.
    fn lengths<T: Float>(&self, divisor: Divisor) -> List<T> {
        self.axes[2].spans().iter().map(|span| T::of(divisor.length(span) as f64)).collect()
    }

    /// Calls `f` for each row of outputs, plane by plane, with planes in parallel. Closures must be
    /// `#[inline(always)]`.
    ///
    /// `make` creates a state for `together` planes. `begin` gets it before these planes, and `end` after them, with
    /// the number of the first plane and the number of planes.
    #[inline(always)]
    fn for_each<M, const NARROW: bool>(
        &self,
        together: usize,
        make: impl Fn() -> M + Sync + Copy,
        begin: impl Fn(&mut M, usize, usize) + Sync + Copy,
        f: impl Fn(&mut M, &PoolingRow<'_>) + Sync + Copy,
        end: impl Fn(&mut M, usize, usize) + Sync + Copy,
    ) {
        if self.outputs() == 0 || self.input_plane() == 0 {
            return;
        }
        let [depths, heights, widths] = self.axes.each_ref().map(PoolingAxis::spans);
        let (outputs, row, input) = (self.output_plane(), self.row(), self.input_plane());
        let (depths, heights, widths) = (&*depths, &*heights, &*widths);
        threads::ranges(self.outer, (GRAIN / input).max(1), move |planes| {
            let mut made = make();
            vectorised_of::<_, NARROW>(
                #[inline(always)]
                move || {
                    let mut first = planes.start;
                    while first < planes.end {
                        let n = together.min(planes.end - first);
                        begin(&mut made, first, n);
                        for among in 0..n {
                            let i = first + among;
                            let mut to = i * outputs;
                            for depth in depths {
                                for height in heights {
                                    let plane = i * input;
                                    let at = to - first * outputs;
                                    f(&mut made, &PoolingRow { plane, among, to, at, depth, height, widths });
                                    to += row;
                                }
                            }
                        }
                        end(&mut made, first, n);
                        first += n;
                    }
                },
            );
        });
    }

    /// Calls `f(output, input)` for each element of each window, with the positions in the row of outputs and in the
    /// plane of inputs. Elements of a window come in memory order. `f` must be `#[inline(always)]`.
    #[inline(always)]
    fn taps(&self, row: &PoolingRow<'_>, mut f: impl FnMut(usize, usize)) {
        let PoolingAxis { input, output, kernel, stride, pad } = self.axes[2];
        for z in row.depth.range.clone() {
            for y in row.height.range.clone() {
                let line = (z * self.axes[1].input + y) * input;
                // The windows whose elements `k` to `last` are on the input.
                let windows = |k: usize, last: usize| {
                    let first = pad.saturating_sub(k).div_ceil(stride).min(output);
                    first..(input + pad).saturating_sub(last).div_ceil(stride).min(output).max(first)
                };
                if self.inner == 1 && (kernel == 2 || kernel == 3) {
                    // Complete windows are processed together. Windows on the border come before or after.
                    let whole = windows(0, kernel - 1);
                    let from = |w: usize| line + w * stride - pad;
                    for w in (0..whole.start).chain(whole.end..output) {
                        let start = (w * stride).max(pad) - pad;
                        for i in start..(w * stride + kernel).saturating_sub(pad).min(input) {
                            f(w, line + i);
                        }
                    }
                    if whole.is_empty() {
                        continue;
                    }
                    let (first, start) = (whole.start, from(whole.start));
                    // Constant strides and counts allow the compiler to vectorize.
                    match (kernel, stride) {
                        (2, 1) => Self::along::<2>(first, start, 1, whole.len(), &mut f),
                        (2, 2) => Self::along::<2>(first, start, 2, whole.len(), &mut f),
                        (2, _) => Self::along::<2>(first, start, stride, whole.len(), &mut f),
                        (_, 1) => Self::along::<3>(first, start, 1, whole.len(), &mut f),
                        (_, 2) => Self::along::<3>(first, start, 2, whole.len(), &mut f),
                        _ => Self::along::<3>(first, start, stride, whole.len(), &mut f),
                    }
                    continue;
                }
                for k in 0..kernel {
                    let windows = windows(k, k);
                    if windows.is_empty() {
                        continue;
                    }
                    let from = line + windows.start * stride + k - pad;
                    if self.inner > 1 {
                        for w in windows.clone() {
                            let from = (from + (w - windows.start) * stride) * self.inner;
                            for c in 0..self.inner {
                                f(w * self.inner + c, from + c);
                            }
                        }
                        continue;
                    }
                    match stride {
                        1 => Self::along::<1>(windows.start, from, 1, windows.len(), &mut f),
                        2 => Self::along::<1>(windows.start, from, 2, windows.len(), &mut f),
                        _ => Self::along::<1>(windows.start, from, stride, windows.len(), &mut f),
                    }
                }
            }
        }
    }

    /// Calls `f(window, element)` for the next `K` elements of each of `n` windows.
    #[inline(always)]
    fn along<const K: usize>(
        first: usize,
        from: usize,
        stride: usize,
        n: usize,
        f: &mut impl FnMut(usize, usize),
    ) {
        for w in 0..n {
            for k in 0..K {
                f(first + w, from + w * stride + k);
            }
        }
    }
}

/// Rows of windows at least this wide are summed along the window, narrower ones along the outputs, unless there are
/// few outputs.
const WIDE: usize = 16;

/// Elements of 16 bits that are converted together, at least.
const CONVERTED: usize = 1 << 10;

/// Planes of the input and of the output in scratch memory, for elements of 16 bits. Empty for other types.
struct WidePlanes<T, const NARROW: bool> {
    /// Planes of the input, or of its gradient.
    x: Workspace<T>,
    /// Planes of the output, or of its gradient.
    y: Workspace<T>,
}

impl<T: Float, const NARROW: bool> WidePlanes<T, NARROW> {
    /// The number of planes that are processed together.
    fn together(w: &Windows) -> usize {
        if NARROW { CONVERTED.div_ceil(w.input_plane().max(1)).min(w.outer) } else { 1 }
    }

    /// Memory for planes, if elements are of 16 bits.
    fn new(w: &Windows) -> Self {
        let n = if NARROW { Self::together(w) } else { 0 };
        let [x, y] = [w.input_plane(), w.output_plane()].map(|plane| memory(n * plane));
        Self { x, y }
    }

    /// The first output of a row.
    #[inline(always)]
    fn outputs(&self, row: &PoolingRow<'_>) -> *mut T {
        self.y.ptr().wrapping_add(row.at)
    }
}

/// Writes the sum of each window, divided by `divisor`.
pub fn sum<E: Stored>(w: &Windows, x: &[E], y: &mut [E], divisor: Divisor) {
    assert!(x.len() == w.inputs() && y.len() == w.outputs());
    if is_narrow::<E>() {
        sum_of::<_, true>(w, StoredElements::of(x), StoredElements::of_mut(y), divisor);
    } else {
        sum_of::<_, false>(w, StoredElements::of(x), StoredElements::of_mut(y), divisor);
    }
}

/// As [`sum`], for all inputs and outputs of the windows.
fn sum_of<T: Float, const NARROW: bool>(
    w: &Windows,
    x: StoredElements<T, NARROW>,
    y: StoredElements<T, NARROW>,
    divisor: Divisor,
) {
    let lengths = &*w.lengths(divisor);
    let (inputs, outputs) = (w.input_plane(), w.output_plane());
    w.for_each::<_, NARROW>(
        WidePlanes::<T, NARROW>::together(w),
        move || WidePlanes::<T, NARROW>::new(w),
        #[inline(always)]
        // SAFETY: the planes are within the input.
        move |wide, first, n| unsafe { x.widen(first * inputs, n * inputs, wide.x.ptr()) },
        #[inline(always)]
        move |wide, row| {
            // SAFETY: each row of outputs is visited once, and both arrays have the sizes of the windows.
            let (x, y, plane) = unsafe {
                if NARROW {
                    let planes = (row.among + 1) * inputs;
                    let x = std::slice::from_raw_parts(wide.x.ptr().cast_const(), planes);
                    (x, wide.outputs(row), row.among * inputs)
                } else {
                    let x = std::slice::from_raw_parts(x.numbers().cast_const(), w.inputs());
                    (x, y.numbers().add(row.to), row.plane)
                }
            };
            let row = &PoolingRow { plane, ..*row };
            // SAFETY: as above.
            let y = unsafe { std::slice::from_raw_parts_mut(y, w.row()) };
            y.fill(T::ZERO);
            if w.along_windows() {
                for (y, width) in y.iter_mut().zip(row.widths) {
                    row.lines(w, width, |line| *y = *y + channel_sums::sum(&x[line]));
                }
            } else if size_of::<T>() < size_of::<f64>() && row.most(w) > MANY {
                sum_wide(w, row, x, y, Divisor::One);
            } else {
                let (x, y) = (x[row.plane..].as_ptr(), y.as_mut_ptr());
                w.taps(
                    row,
                    #[inline(always)]
                    // SAFETY: the positions are within the plane and the row.
                    move |o, i| unsafe { y.add(o).write(y.add(o).read() + x.add(i).read()) },
                );
            }
            if divisor != Divisor::One {
                row.divide(y, w.inner, lengths, divisor);
            }
            // A separate loop without early exit, which the compiler vectorizes.
            if !y.iter().fold(true, |all, y| all & (y.abs() <= T::MAX)) {
                sum_wide(w, row, x, y, divisor);
            }
        },
        #[inline(always)]
        // SAFETY: each plane of the output is visited once.
        move |wide, first, n| unsafe { y.narrow(first * outputs, n * outputs, wide.y.ptr()) },
    );
}

/// The number of elements of a window that are summed sequentially in their own precision.
const MANY: usize = 1 << 12;

/// Writes the sums of a row of windows, divided by `divisor`, in float64: windows may be long, or sums may overflow
/// the element type.
#[cold]
fn sum_wide<T: Float>(w: &Windows, row: &PoolingRow<'_>, x: &[T], y: &mut [T], divisor: Divisor) {
    // Numbers of float64 are scaled, so that their sum stays finite.
    /// The factor by which float64 numbers are scaled, so that their sum stays finite.
    const DOWN: f64 = f64::from_bits((1023 - 64) << 52);
    let factor = if size_of::<T>() == size_of::<f64>() { DOWN } else { 1.0 };
    let mut sums = List::repeat(0.0, y.len());
    w.taps(row, |o, i| sums[o] += x[row.plane + i].real() * factor);
    for (i, (y, sum)) in y.iter_mut().zip(&*sums).enumerate() {
        *y = T::of(*sum / row.divisor(i / w.inner, divisor) as f64 / factor);
    }
}

/// Adds the gradient of [`sum`].
pub fn add_sum_gradient<E: Stored>(w: &Windows, gy: &[E], gx: &mut [E], divisor: Divisor) {
    assert!(gx.len() == w.inputs() && gy.len() == w.outputs());
    if is_narrow::<E>() {
        add_sum_gradient_of::<_, true>(w, StoredElements::of(gy), StoredElements::of_mut(gx), divisor);
    } else {
        add_sum_gradient_of::<_, false>(w, StoredElements::of(gy), StoredElements::of_mut(gx), divisor);
    }
}

/// As [`add_sum_gradient`], for all inputs and outputs of the windows.
fn add_sum_gradient_of<T: Float, const NARROW: bool>(
    w: &Windows,
    gy: StoredElements<T, NARROW>,
    gx: StoredElements<T, NARROW>,
    divisor: Divisor,
) {
    let lengths = &*w.lengths(divisor);
    let (inputs, outputs) = (w.input_plane(), w.output_plane());
    w.for_each::<_, NARROW>(
        WidePlanes::<T, NARROW>::together(w),
        move || WidePlanes::<T, NARROW>::new(w),
        #[inline(always)]
        // SAFETY: the planes are within the arrays.
        move |wide, first, n| unsafe {
            gx.widen(first * inputs, n * inputs, wide.x.ptr());
            gy.widen(first * outputs, n * outputs, wide.y.ptr());
        },
        #[inline(always)]
        move |wide, row| {
            // SAFETY: as above, and one thread processes all rows of a plane.
            let (gy, to, plane) = unsafe {
                if NARROW {
                    let gy = wide.outputs(row).cast_const();
                    (gy, wide.x.ptr(), row.among * inputs)
                } else {
                    (gy.numbers().add(row.to).cast_const(), gx.numbers(), row.plane)
                }
            };
            let (row, to) = (&PoolingRow { plane, ..*row }, Shared::new(to));
            let mut shares = List::repeat(T::ZERO, w.row());
            // SAFETY: as above.
            shares.copy_from_slice(unsafe { std::slice::from_raw_parts(gy, w.row()) });
            if divisor != Divisor::One {
                row.divide(&mut shares, w.inner, lengths, divisor);
            }
            if w.along_windows() {
                for (share, width) in shares.iter().zip(row.widths) {
                    row.lines(w, width, |line| {
                        // SAFETY: the line belongs to this plane, and one thread processes all of its rows.
                        let gx =
                            unsafe { std::slice::from_raw_parts_mut(to.get().add(line.start), line.len()) };
                        for gx in gx {
                            *gx = *gx + *share;
                        }
                    });
                }
                return;
            }
            let shares = shares.as_ptr();
            w.taps(
                row,
                #[inline(always)]
                // SAFETY: the positions are within the row and the plane, and one thread processes all rows of a
                // plane.
                move |o, i| unsafe {
                    let gx = to.get().add(row.plane + i);
                    gx.write(gx.read() + shares.add(o).read());
                },
            );
        },
        #[inline(always)]
        // SAFETY: as above.
        move |wide, first, n| unsafe {
            gx.narrow(first * inputs, n * inputs, wide.x.ptr());
        },
    );
}
