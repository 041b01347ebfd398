//! Sums and maxima over windows that slide along up to three axes. Knows planes of positions; knows no graphs.

use std::ops::Range;

use super::{Float, channels};

/// How windows slide along one axis.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Axis {
    pub input: usize,
    pub output: usize,
    pub kernel: usize,
    pub stride: usize,
    pub pad: usize,
}

/// The part of an axis that one window covers.
#[derive(Clone, Debug)]
struct Span {
    /// What lies on the input.
    range: Range<usize>,
    /// Its length together with what lies on padding.
    padded: usize,
}

impl Axis {
    /// An axis that is as if it were not there.
    const NONE: Self = Self { input: 1, output: 1, kernel: 1, stride: 1, pad: 0 };

    fn spans(&self) -> Vec<Span> {
        let span = |o: usize| {
            let (start, end) = (o * self.stride, o * self.stride + self.kernel);
            let on_input = |at: usize| at.saturating_sub(self.pad).min(self.input);
            Span { range: on_input(start)..on_input(end), padded: end.min(self.input + 2 * self.pad) - start }
        };
        (0..self.output).map(span).collect()
    }
}

/// What the sum over a window is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// Nothing: it stays a sum.
    One,
    /// The number of elements of the input in the window.
    Inside,
    /// The same, padding counted too.
    Padded,
}

/// Windows over arrays of (outer, axes..., inner) elements; each of the inner ones is taken by itself.
#[derive(Clone, Debug)]
pub struct Windows {
    outer: usize,
    inner: usize,
    axes: [Axis; 3],
}

/// One window over a plane.
struct Window<'a> {
    spans: [&'a Span; 3],
}

impl Window<'_> {
    fn divisor(&self, divisor: Divisor) -> usize {
        match divisor {
            Divisor::One => 1,
            Divisor::Inside => self.spans.iter().map(|s| s.range.len()).product(),
            Divisor::Padded => self.spans.iter().map(|s| s.padded).product(),
        }
    }
}

impl Windows {
    /// Windows along `axes`, three at most.
    pub fn new(outer: usize, axes: &[Axis], inner: usize) -> Self {
        let mut all = [Axis::NONE; 3];
        all[3 - axes.len()..].copy_from_slice(axes);
        Self { outer, inner, axes: all }
    }

    /// Elements of the input in one plane.
    pub fn input_plane(&self) -> usize {
        self.axes.iter().map(|a| a.input).product::<usize>() * self.inner
    }

    /// Elements of the output in one plane.
    pub fn output_plane(&self) -> usize {
        self.axes.iter().map(|a| a.output).product::<usize>() * self.inner
    }

    /// Number of windows times inner elements, in all planes.
    pub fn outputs(&self) -> usize {
        self.outer * self.output_plane()
    }

    /// Calls `f(first input element of the plane, first output element of the window, window)`.
    fn for_each(&self, mut f: impl FnMut(usize, usize, &Window<'_>)) {
        if self.outputs() == 0 || self.input_plane() == 0 {
            return;
        }
        let [zs, ys, xs] = self.axes.each_ref().map(Axis::spans);
        let mut to = 0;
        for plane in 0..self.outer {
            for z in &zs {
                for y in &ys {
                    for x in &xs {
                        f(plane * self.input_plane(), to, &Window { spans: [z, y, x] });
                        to += self.inner;
                    }
                }
            }
        }
    }

    /// The rows of a window, as ranges of elements of its plane.
    fn rows<'a>(&'a self, window: &'a Window<'_>) -> impl Iterator<Item = Range<usize>> + 'a {
        let [zs, ys, xs] = window.spans.each_ref().map(|s| s.range.clone());
        let (height, width, inner) = (self.axes[1].input, self.axes[2].input, self.inner);
        zs.flat_map(move |z| {
            let xs = xs.clone();
            ys.clone().map(move |y| {
                let row = (z * height + y) * width;
                (row + xs.start) * inner..(row + xs.end) * inner
            })
        })
    }
}

/// Writes the sum of each window, divided as told.
pub fn sum<T: Float>(w: &Windows, x: &[T], y: &mut [T], divisor: Divisor) {
    y.fill(T::ZERO);
    w.for_each(|plane, to, window| {
        let y = &mut y[to..to + w.inner];
        for row in w.rows(window) {
            let row = &x[plane + row.start..plane + row.end];
            match w.inner {
                1 => y[0] = y[0] + channels::sum(row),
                n => row.chunks_exact(n).for_each(|x| y.iter_mut().zip(x).for_each(|(y, x)| *y = *y + *x)),
            }
        }
        let n = T::of(window.divisor(divisor) as f64);
        for y in y {
            *y = *y / n;
        }
    });
}

/// Adds the gradient of [`sum`].
pub fn add_sum_gradient<T: Float>(w: &Windows, gy: &[T], gx: &mut [T], divisor: Divisor) {
    w.for_each(|plane, from, window| {
        let n = T::of(window.divisor(divisor) as f64);
        let gy = &gy[from..from + w.inner];
        for row in w.rows(window) {
            let gx = &mut gx[plane + row.start..plane + row.end];
            gx.chunks_exact_mut(w.inner)
                .for_each(|gx| gx.iter_mut().zip(gy).for_each(|(gx, gy)| *gx = *gx + *gy / n));
        }
    });
}

/// Writes for each window where in its plane the largest element lies: the first of equals, or the first NaN.
pub fn argmax<T: Float>(w: &Windows, x: &[T], at: &mut [u32]) {
    w.for_each(|plane, to, window| {
        let x = &x[plane..plane + w.input_plane()];
        for inner in 0..w.inner {
            let mut rows = w.rows(window).peekable();
            let first = rows.peek().map_or(0, |row| row.start + inner);
            let mut best = (x[first], first);
            for row in rows {
                for i in (row.start + inner..row.end).step_by(w.inner) {
                    let larger = x[i] > best.0 || x[i].is_nan();
                    if larger && !best.0.is_nan() {
                        best = (x[i], i);
                    }
                }
            }
            at[to + inner] = best.1 as u32;
        }
    });
}

/// Calls `f(element of the input, output)` with what [`argmax`] found.
fn for_each_found(w: &Windows, at: &[u32], mut f: impl FnMut(usize, usize)) {
    if w.outputs() == 0 {
        return;
    }
    for (plane, at) in at.chunks_exact(w.output_plane()).enumerate() {
        let (x, y) = (plane * w.input_plane(), plane * w.output_plane());
        at.iter().enumerate().for_each(|(i, at)| f(x + *at as usize, y + i));
    }
}

/// Writes for each window the element of `x` that [`argmax`] found.
pub fn take<T: Float>(w: &Windows, at: &[u32], x: &[T], y: &mut [T]) {
    for_each_found(w, at, |i, o| y[o] = x[i]);
}

/// Adds each element of `gy` to the place that [`argmax`] found: the gradient of [`take`].
pub fn add_taken<T: Float>(w: &Windows, at: &[u32], gy: &[T], gx: &mut [T]) {
    for_each_found(w, at, |i, o| gx[i] = gx[i] + gy[o]);
}
