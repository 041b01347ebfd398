//! Maxima over windows, and their positions.

use std::ops::Range;

use super::{PoolingAxis, PoolingRow, Span, WidePlanes, Windows};
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::List;
use crate::kernels::simd::WIDEST;
use crate::kernels::simd::{Vector, Work, vectorised, vectorised_of};
use crate::kernels::sixteen_bits::{StoredElements, is_narrow};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, Movable, Stored};

/// Writes for each window the largest element and its position in the plane: the first of equal ones, or the first
/// NaN.
pub fn max<E: Stored>(w: &Windows, x: &[E], y: &mut [E], at: &mut [u32]) {
    assert!(x.len() == w.inputs() && y.len() == w.outputs() && at.len() == y.len());
    let at = Shared::new(at.as_mut_ptr());
    if is_narrow::<E>() {
        max_of::<_, true>(w, StoredElements::of(x), StoredElements::of_mut(y), at);
    } else {
        max_of::<_, false>(w, StoredElements::of(x), StoredElements::of_mut(y), at);
    }
}

/// As [`max`], for all inputs and outputs of the windows.
fn max_of<T: Float, const NARROW: bool>(
    w: &Windows,
    x: StoredElements<T, NARROW>,
    y: StoredElements<T, NARROW>,
    to_at: Shared<u32>,
) {
    if fits_registers::<T>(w) {
        return max_in_registers(w, x, y, to_at);
    }
    let ([depth, height, width], line) = (w.axes, LineLayout::of(w));
    let (inputs, outputs, is_padded) = (w.input_plane(), w.output_plane(), line.len > width.input);
    let together = WidePlanes::<T, NARROW>::together(w);
    // The number of elements of a padded plane.
    let padded = if is_padded { depth.input * height.input * line.len } else { 0 };
    w.for_each::<_, NARROW>(
        together,
        move || (WidePlanes::<T, NARROW>::new(w), List::repeat(T::NEG_INFINITY, together * padded)),
        #[inline(always)]
        move |(wide, copy), first, n| {
            // SAFETY: the planes are within the input.
            unsafe { x.widen(first * inputs, n * inputs, wide.x.ptr()) };
            if !is_padded {
                return;
            }
            let planes = match NARROW {
                true => wide.x.ptr(),
                // SAFETY: as above.
                false => unsafe { x.numbers().add(first * inputs) },
            };
            // SAFETY: as above.
            let planes = unsafe { std::slice::from_raw_parts(planes.cast_const(), n * inputs) };
            for (to, from) in copy.chunks_exact_mut(line.len).zip(planes.chunks_exact(width.input)) {
                to[line.before..][..width.input].copy_from_slice(from);
            }
        },
        #[inline(always)]
        move |(wide, copy), row| {
            // SAFETY: each row of outputs is visited once.
            let (x, y, at) = unsafe {
                let at = to_at.get().add(row.to);
                if NARROW {
                    let x = wide.x.ptr().add(row.among * inputs).cast_const();
                    (x, wide.outputs(row), at)
                } else {
                    (x.numbers().add(row.plane).cast_const(), y.numbers().add(row.to), at)
                }
            };
            if is_padded {
                let x = copy[row.among * padded..].as_ptr();
                Maxima::<T, true> { w, row, x, padded: line, y, at }.find_all();
            } else {
                Maxima::<T, false> { w, row, x, padded: line, y, at }.find_all();
            }
        },
        #[inline(always)]
        // SAFETY: each plane of the output is visited once.
        move |(wide, _), first, n| unsafe { y.narrow(first * outputs, n * outputs, wide.y.ptr()) },
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

/// True if registers hold windows of adjacent outputs. Their stride is one or two, and they are within their lines,
/// which may be copied with padding. Positions are as long as numbers, so registers of numbers hold them, too.
fn fits_registers<T>(w: &Windows) -> bool {
    let PoolingAxis { input, kernel, stride, .. } = w.axes[2];
    let is_filled = w.outputs() > 0 && w.input_plane() > 0;
    size_of::<T>() == size_of::<u32>() && w.inner == 1 && stride <= 2 && kernel <= input && is_filled
}

/// As [`max`], in registers.
fn max_in_registers<T: Float, const NARROW: bool>(
    w: &Windows,
    x: StoredElements<T, NARROW>,
    y: StoredElements<T, NARROW>,
    to_at: Shared<u32>,
) {
    let spans = w.axes.each_ref().map(PoolingAxis::spans);
    let spans = spans.each_ref().map(|spans| &**spans);
    let ([depth, height, width], line) = (w.axes, LineLayout::of(w));
    let (inputs, outputs) = (w.input_plane(), w.output_plane());
    let padded = if line.len > width.input { depth.input * height.input * line.len } else { 0 };
    threads::ranges(w.outer, (GRAIN / inputs).max(1), |planes| {
        let (wide, mut copy) = (WidePlanes::<T, NARROW>::new(w), List::repeat(T::NEG_INFINITY, padded));
        let together = if NARROW { WidePlanes::<T, NARROW>::together(w) } else { planes.len().max(1) };
        for first in planes.clone().step_by(together) {
            let n = together.min(planes.end - first);
            let (inputs, outputs) = ((first * inputs, n * inputs), (first * outputs, n * outputs));
            let at = to_at.get().wrapping_add(outputs.0);
            // SAFETY: the planes are within the arrays, and each plane is visited once.
            vectorised_of::<_, NARROW>(|| unsafe { x.widen(inputs.0, inputs.1, wide.x.ptr()) });
            let (x, to) = match NARROW {
                true => (wide.x.ptr(), wide.y.ptr()),
                false => (x.numbers().wrapping_add(inputs.0), y.numbers().wrapping_add(outputs.0)),
            };
            T::in_registers(PlaneMaxima { w, n, spans, x, copy: &mut copy, y: to, at });
            // SAFETY: as above.
            vectorised_of::<_, NARROW>(|| unsafe { y.narrow(outputs.0, outputs.1, wide.y.ptr()) });
        }
    });
}

/// The maxima of adjacent planes.
struct PlaneMaxima<'a, T> {
    /// All windows, which fit registers.
    w: &'a Windows,
    /// The number of planes.
    n: usize,
    /// The windows along depth, height and width.
    spans: [&'a [Span]; 3],
    /// The inputs.
    x: *const T,
    /// Memory for a plane with padded lines, with the padding. Empty without padding.
    copy: &'a mut [T],
    /// The maxima, which are written.
    y: *mut T,
    /// The position of each maximum, which is written.
    at: *mut u32,
}

impl<T: Float> Work<T> for PlaneMaxima<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { w, n, spans: [depths, heights, widths], x, copy, y, at } = self;
        let (plane, row, input, padded) = (w.output_plane(), w.row(), w.input_plane(), LineLayout::of(w));
        let width = w.axes[2];
        for i in 0..n {
            let mut x = x.wrapping_add(i * input);
            if !copy.is_empty() {
                // SAFETY: guaranteed by the caller.
                let lines = unsafe { std::slice::from_raw_parts(x, input) }.chunks_exact(width.input);
                for (to, from) in copy.chunks_exact_mut(padded.len).zip(lines) {
                    to[padded.before..][..width.input].copy_from_slice(from);
                }
                x = copy.as_ptr();
            }
            let mut to = i * plane;
            for depth in depths {
                for height in heights {
                    let row_of = PoolingRow { plane: 0, among: 0, to, at: to, depth, height, widths };
                    // SAFETY: the caller guarantees the instructions, and each row of outputs is visited once.
                    unsafe {
                        let (y, at) = (y.add(to), at.add(to));
                        let m = Maxima::<T, true> { w, row: &row_of, x, padded, y, at };
                        if width.stride == 1 { m.in_registers::<V, 1>() } else { m.in_registers::<V, 2>() }
                    };
                    to += row;
                }
            }
        }
    }
}

impl<T: Float> Maxima<'_, T, true> {
    /// Finds the largest element of each window of the row, whose stride is `S`. Registers with NaN, or with windows of
    /// nothing but negative infinity, are left to [`Self::find`].
    ///
    /// # Safety
    /// The instructions of `V` must be available, and the windows within the lines.
    #[inline(always)]
    unsafe fn in_registers<V: Vector<T = T>, const S: usize>(&self) {
        let (axes, LineLayout { len, before }) = (&self.w.axes, self.padded);
        let (kernel, n) = (axes[2].kernel, axes[2].output);
        let (depth, height) = (&self.row.depth.range, &self.row.height.range);
        let first = depth.start * axes[1].input + height.start;
        for j in (0..n).step_by(V::WIDTH) {
            let left = (n - j).min(V::WIDTH);
            // SAFETY: guaranteed by the caller, and masks keep within the windows and the row.
            unsafe {
                let masks: [V::Mask; S] =
                    std::array::from_fn(|i| V::first((S * (left - 1) + 1).saturating_sub(i * V::WIDTH)));
                let mut best = V::all(T::NEG_INFINITY);
                // Bits of integers, which are moved only.
                let mut at = V::zero();
                let lanes = (1u32 << left) - 1;
                let mut numbers = lanes;
                for z in depth.clone() {
                    for y in height.clone() {
                        let line = z * axes[1].input + y;
                        let from = self.x.add(line * len + j * S);
                        for x in 0..kernel {
                            let load =
                                |i: usize| V::load_masked(from.wrapping_add(x + i * V::WIDTH), masks[i]);
                            let v = if S == 1 { load(0) } else { V::evens(load(0), load(S - 1)) };
                            let place = [((line - first) * axes[2].input + x) as u32; WIDEST];
                            at = v.where_larger(best, V::load(place.as_ptr().cast()), at);
                            best = v.where_larger(best, v, best);
                            numbers &= v.equal(v);
                        }
                    }
                }
                if numbers != lanes || best.equal(V::all(T::NEG_INFINITY)) & lanes != 0 {
                    for o in j..j + left {
                        self.find::<1, 1>(o, &(o * S..o * S + kernel), 0);
                    }
                    continue;
                }
                best.store_masked(self.y.add(j), V::first(left));
                // Whole registers, since a load of what a masked store has written would wait.
                let mut places = [0u32; WIDEST];
                at.store(places.as_mut_ptr().cast());
                let start = ((first * axes[2].input + j * S) as u32).wrapping_sub(before as u32);
                for (l, place) in places.iter_mut().enumerate() {
                    *place = place.wrapping_add(start).wrapping_add((l * S) as u32);
                }
                V::load(places.as_ptr().cast()).store_masked(self.at.add(j).cast(), V::first(left));
            }
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

#[cfg(test)]
mod tests {
    use super::{PoolingAxis, Windows, max};

    /// The first largest element of each window of a plane, or its first NaN, in plain loops: its bits and position.
    fn naive(rows: PoolingAxis, columns: PoolingAxis, x: &[f32]) -> Vec<(u32, u32)> {
        let span = |axis: PoolingAxis, o: usize| {
            let start = o * axis.stride;
            start.max(axis.pad) - axis.pad..(start + axis.kernel).saturating_sub(axis.pad).min(axis.input)
        };
        let windows = (0..rows.output).flat_map(|r| (0..columns.output).map(move |c| (r, c)));
        let largest = |(r, c)| {
            let places = span(rows, r).flat_map(|y| span(columns, c).map(move |x| y * columns.input + x));
            let better = |best: usize, at: usize| {
                let is_better = (x[at] > x[best] || x[at].is_nan()) && !x[best].is_nan();
                if is_better { at } else { best }
            };
            let at = places.reduce(better).expect("a window has an element");
            (x[at].to_bits(), at as u32)
        };
        windows.map(largest).collect()
    }

    #[test]
    fn maxima_are_the_first_largest_elements_for_odd_sizes_and_special_values() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, f32::MIN];
        let mut numbers = 0u32;
        let mut below = |n: usize| {
            numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (numbers >> 8) as usize % n
        };
        for round in 0..400 {
            let mut axis = |longest: usize| {
                let (kernel, stride) = (1 + below(4), 1 + below(5) / 2);
                let (input, pad) = (kernel + below(longest), below(kernel));
                let output = (input + 2 * pad - kernel) / stride + 1;
                PoolingAxis { input, output, kernel, stride, pad }
            };
            let (rows, columns, planes) = (axis(6), axis(40), 3);
            let plane = rows.input * columns.input;
            // Most rounds have no special values, some have nothing else.
            let share = [0, 0, 1, 2][round % 4];
            let x: Vec<f32> = (0..planes * plane)
                .map(|_| match below(2) < share {
                    true => special[below(special.len())],
                    false => below(9) as f32 - 4.0,
                })
                .collect();
            let w = Windows::new(planes, &[rows, columns], 1);
            let (mut y, mut at) = (vec![0.0; w.outputs()], vec![0; w.outputs()]);
            max(&w, &x, &mut y, &mut at);
            let expected: Vec<_> = x.chunks_exact(plane).flat_map(|x| naive(rows, columns, x)).collect();
            let got: Vec<_> = y.iter().map(|v| v.to_bits()).zip(at).collect();
            assert_eq!(got, expected, "{rows:?} {columns:?}");
        }
    }
}
