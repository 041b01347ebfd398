//! Elementwise kernels on levels: conversion from and to numbers, sums of two arrays, tables, and windows over
//! channels-last images.

use std::ops::Range;

use super::dots::Rounding;
use super::lookup;
use super::window::ImageWindow;
use crate::kernels::Float;
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::List;
use crate::kernels::simd::{Vector, Work, vectorised};
use crate::kernels::threads;

/// A scale and a zero point.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The distance between two levels.
    pub step: f32,
    /// The level that represents zero.
    pub zero: u8,
}

impl Scale {
    /// The number that a level represents.
    #[inline(always)]
    fn number(self, level: u8) -> f32 {
        (i32::from(level) - i32::from(self.zero)) as f32 * self.step
    }
}

/// Calls `f` with chunks of `y` and their ranges.
fn pieces<T: Send>(y: &mut [T], f: impl Fn(Range<usize>, &mut [T]) + Sync) {
    threads::row_ranges_mut(y, 1, GRAIN, f);
}

/// The levels of numbers divided by a step.
pub fn quantize<T: Float>(x: &[T], step: T, rounding: Rounding, y: &mut [u8]) {
    pieces(y, |range, y| {
        let x = &x[range];
        vectorised(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = rounding.level((*x / step).real() as f32);
                }
            },
        );
    });
}

/// The numbers that levels represent.
pub fn dequantize<T: Float>(x: &[u8], step: T, zero: u8, y: &mut [T]) {
    pieces(y, |range, y| {
        let x = &x[range];
        vectorised(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = T::all(f64::from(i32::from(*x) - i32::from(zero))) * step;
                }
            },
        );
    });
}

/// The levels of `f` of the numbers that two arrays of levels represent. `f` must be `#[inline(always)]`.
#[inline(always)]
fn pairs(
    [a, b]: [&[u8]; 2],
    [of_a, of_b]: [Scale; 2],
    rounding: Rounding,
    y: &mut [u8],
    f: impl Fn(f32, f32) -> f32 + Sync + Copy,
) {
    pieces(y, |range, y| {
        let (a, b) = (&a[range.clone()], &b[range]);
        vectorised(
            #[inline(always)]
            || {
                for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
                    *y = rounding.level(f(of_a.number(*a), of_b.number(*b)));
                }
            },
        );
    });
}

/// The levels of the sums of the numbers that two arrays of levels represent, in steps of the result.
pub fn add(x: [&[u8]; 2], of: [Scale; 2], rounding: Rounding, y: &mut [u8]) {
    pairs(
        x,
        of,
        rounding,
        y,
        #[inline(always)]
        |a, b| a + b,
    );
}

/// The levels of the products of the numbers that two arrays of levels represent, in steps of the result.
pub fn multiply(x: [&[u8]; 2], of: [Scale; 2], rounding: Rounding, y: &mut [u8]) {
    pairs(
        x,
        of,
        rounding,
        y,
        #[inline(always)]
        |a, b| a * b,
    );
}

/// Subtracts the zero point from levels, multiplies by a number per channel, adds another one, and converts to
/// levels.
pub fn rescale(x: &[u8], zero: u8, [scales, shifts]: [&[f32]; 2], rounding: Rounding, y: &mut [u8]) {
    let (channels, of) = (scales.len(), Scale { step: 1.0, zero });
    threads::row_ranges_mut(y, channels, (GRAIN / channels.max(1)).max(1), |rows, y| {
        let x = &x[rows.start * channels..rows.end * channels];
        vectorised(
            #[inline(always)]
            || {
                for (y, x) in y.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
                    for (((y, x), scale), shift) in y.iter_mut().zip(x).zip(scales).zip(shifts) {
                        *y = rounding.level(of.number(*x) * scale + shift);
                    }
                }
            },
        );
    });
}

/// Looks up each level in a table.
pub fn look_up(x: &[u8], table: &[u8; 256], y: &mut [u8]) {
    pieces(y, |range, y| lookup::in_table(&x[range], table, y));
}

/// Copies `n` levels from each row of `x` to the corresponding row of `y`, at fixed positions in rows of two lengths.
pub fn copy_rows(x: &[u8], from: RowPlace, y: &mut [u8], to: RowPlace, n: usize) {
    threads::row_ranges_mut(y, to.row, (GRAIN / to.row.max(1)).max(1), |rows, y| {
        for (i, y) in rows.zip(y.chunks_exact_mut(to.row)) {
            y[to.at..][..n].copy_from_slice(&x[i * from.row + from.at..][..n]);
        }
    });
}

/// Copies an array of this `shape` into a frame of a constant level. `widths` are the numbers of elements before and
/// after each axis.
pub fn pad(x: &[u8], shape: &[usize], widths: &[(usize, usize)], level: u8, y: &mut [u8]) {
    let Some((n, outer)) = shape.split_last() else { return y.copy_from_slice(x) };
    let Some(((before, after), widths)) = widths.split_last() else { return };
    let row = before + n + after;
    threads::row_ranges_mut(y, row, (GRAIN / row.max(1)).max(1), |rows, y| {
        for (mut left, y) in rows.zip(y.chunks_exact_mut(row)) {
            // The row of `x` that this row contains, from the last axis on. None within the frame.
            let (mut from, mut step) = (Some(0), 1);
            for (n, (before, after)) in outer.iter().zip(widths).rev() {
                let length = before + n + after;
                let at = (left % length).checked_sub(*before).filter(|at| at < n);
                from = from.zip(at).map(|(from, at)| from + at * step);
                (left, step) = (left / length, step * n);
            }
            y.fill(level);
            if let Some(from) = from {
                y[*before..before + n].copy_from_slice(&x[from * n..][..*n]);
            }
        }
    });
}

/// A position in each row.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    /// The position.
    pub at: usize,
    /// Elements of a row.
    pub row: usize,
}

/// The minimum and maximum of numbers and zero. Ignores NaN.
pub fn bounds<T: Float>(x: &[T]) -> (T, T) {
    let mut of_pieces = List::repeat((T::ZERO, T::ZERO), x.len().div_ceil(GRAIN));
    threads::rows_mut(&mut of_pieces, 1, 1, |i, bounds| {
        bounds[0] = T::in_registers(Bounds { x: &x[i * GRAIN..x.len().min((i + 1) * GRAIN)] });
    });
    all_bounds(of_pieces.iter().copied())
}

/// Computes the [`bounds`] of a chunk.
struct Bounds<'a, T> {
    /// The numbers.
    x: &'a [T],
}

impl<T: Float> Work<T> for Bounds<'_, T> {
    type Output = (T, T);

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) -> (T, T) {
        /// Registers for each bound.
        const N: usize = 4;
        let (mut least, mut most) = ([T::ZERO; 16], [T::ZERO; 16]);
        let whole = self.x.len() / (N * V::WIDTH);
        // SAFETY: the caller guarantees the instruction set, this many numbers are readable, and no register has more
        // than 16.
        unsafe {
            let (mut low, mut high) = ([V::zero(); N], [V::zero(); N]);
            for i in 0..whole {
                for j in 0..N {
                    let x = V::load(self.x.as_ptr().add((i * N + j) * V::WIDTH));
                    high[j] = x.max(high[j]);
                    low[j] = V::zero().sub(x).max(low[j]);
                }
            }
            low[0].max(low[1]).max(low[2].max(low[3])).store(least.as_mut_ptr());
            high[0].max(high[1]).max(high[2].max(high[3])).store(most.as_mut_ptr());
        }
        let rest = self.x[whole * N * V::WIDTH..].iter().map(|x| (*x, *x));
        let lanes = least.into_iter().zip(most).map(|(low, high)| (-low, high));
        all_bounds(rest.chain(lanes))
    }
}

/// The minimum and maximum of several pairs and zero.
fn all_bounds<T: Float>(of: impl IntoIterator<Item = (T, T)>) -> (T, T) {
    of.into_iter().fold((T::ZERO, T::ZERO), |(least, most), (low, high)| {
        (if low < least { low } else { least }, if high > most { high } else { most })
    })
}

/// The largest level of each channel within windows. Ignores positions outside the images.
pub fn max_pool(x: &[u8], window: &ImageWindow, y: &mut [u8]) {
    let ImageWindow { channels, input: [height, width], output: [lines, columns], .. } = *window;
    let seen = |axis: usize, at: usize| {
        let (pad, dilation) = (window.pad[axis], window.dilation[axis]);
        let places = (0..window.kernel[axis]).map(move |i| at * window.stride[axis] + i * dilation);
        places.filter_map(move |place| place.checked_sub(pad).filter(|at| *at < window.input[axis]))
    };
    threads::rows_mut(y, columns * channels, 1, |i, y| {
        let (image, line) = (i / lines, i % lines);
        for (column, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
            y.fill(0);
            for row in seen(0, line) {
                for at in seen(1, column) {
                    let x = &x[((image * height + row) * width + at) * channels..][..channels];
                    vectorised(
                        #[inline(always)]
                        || y.iter_mut().zip(x).for_each(|(y, x)| *y = (*y).max(*x)),
                    );
                }
            }
        }
    });
}

/// The levels of averages over windows that do not exceed the image: the sum without zero points, times the step.
pub fn average(x: &[u8], window: &ImageWindow, of_x: Scale, rounding: Rounding, y: &mut [u8]) {
    let ImageWindow { channels, input: [height, width], output: [lines, columns], stride, .. } = *window;
    let size = window.kernel[0] * window.kernel[1];
    let zeros = i32::from(of_x.zero).wrapping_mul(size as i32);
    threads::rows_mut(y, columns * channels, 1, |i, y| {
        let (image, line) = (i / lines, i % lines);
        let mut sums: List<i32> = List::repeat(0, channels);
        for (column, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
            sums.fill(0);
            for place in 0..size {
                let (row, at) = (place / window.kernel[1], place % window.kernel[1]);
                let pixel = (image * height + line * stride[0] + row) * width + column * stride[1] + at;
                let x = &x[pixel * channels..][..channels];
                vectorised(
                    #[inline(always)]
                    || sums.iter_mut().zip(x).for_each(|(sum, x)| *sum = sum.wrapping_add(i32::from(*x))),
                );
            }
            for (y, sum) in y.iter_mut().zip(&*sums) {
                *y = rounding.level(sum.wrapping_sub(zeros) as f32 * of_x.step);
            }
        }
    });
}
