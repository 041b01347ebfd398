//! The transforms of Winograd's F(4, 3) in two dimensions, on a register of channels: `y = A' ((G w G') * (B' x B))
//! A`, and its gradient by `w`. Knows registers, not images.
//!
//! The interpolation points are 0, 3/2, -3/2, 2/3, -2/3 and infinity. They are close to the best points of the form 0,
//! a, -a, b, -b and infinity. The common points 0, 1, -1, 2, -2 and infinity have more than twice the rounding error.
//! The rows of `A` and `B` are scaled so that their numbers are exact. The inverse scale is in `G`.

use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::Vector;
use crate::kernels::{Float, Number};

/// The number of outputs of a tile along an axis.
pub(in super::super) const OUT: usize = 4;
/// The number of inputs of a tile along an axis.
pub(super) const IN: usize = 6;
/// The number of products of a tile.
pub(in super::super) const PRODUCTS: usize = IN * IN;
/// Weights of a 3 x 3 kernel.
const TAPS: usize = 9;

/// The scale of the rows of `G` for the points 0 and infinity.
const END: f64 = 4.0 / 9.0;
/// The scale of the rows of `G` for the other four points.
const MIDDLE: f64 = 32.0 / 585.0;

/// A grid of registers in memory: row `i`, column `j` at `i row + j column`.
#[derive(Clone, Copy)]
pub(in super::super) struct PixelGrid<T> {
    /// The register in row 0 and column 0.
    pub(in super::super) p: *mut T,
    /// The distance from a row to the next.
    pub(in super::super) row: usize,
    /// The distance from a column to the next.
    pub(in super::super) column: usize,
}

/// Loads `$a` x `$a` registers from a grid. Applies `$f` to the columns, then to the rows of the result. Returns `$b`
/// x `$b` registers. Uses loops, since closures would not inherit the target features of the function.
macro_rules! square {
    ($f:ident, $a:expr, $b:expr, $from:expr) => {{
        let mut columns = [[V::zero(); $b]; $a];
        for j in 0..$a {
            let mut column = [V::zero(); $a];
            for i in 0..$a {
                column[i] = V::load($from.at(i, j));
            }
            columns[j] = $f(column);
        }
        let mut result = [[V::zero(); $b]; $b];
        for i in 0..$b {
            let mut row = [V::zero(); $a];
            for j in 0..$a {
                row[j] = columns[j][i];
            }
            result[i] = $f(row);
        }
        result
    }};
}

impl<T> PixelGrid<T> {
    /// The address of the register in row `i` and column `j`.
    #[inline(always)]
    pub(in super::super) fn at(&self, i: usize, j: usize) -> *mut T {
        self.p.wrapping_add(i * self.row + j * self.column)
    }

    /// Stores registers to the grid.
    #[inline(always)]
    unsafe fn store<V: Vector<T = T>, const N: usize>(&self, v: [[V; N]; N]) {
        for (i, row) in v.into_iter().enumerate() {
            for (j, v) in row.into_iter().enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe { v.store(self.at(i, j)) };
            }
        }
    }
}

/// Arithmetic on registers, for functions with the instruction set.
#[inline(always)]
unsafe fn scaled<V: Vector>(v: V, by: f64) -> V {
    // SAFETY: the caller has the instructions. So below.
    unsafe { v.mul(V::all(V::T::all(by))) }
}
/// `a + by b`.
#[inline(always)]
unsafe fn plus<V: Vector>(a: V, by: f64, b: V) -> V {
    // SAFETY: as above.
    unsafe { b.mul_add(V::all(V::T::all(by)), a) }
}

/// The transform of the inputs of a tile along an axis: `B^T d`.
#[inline(always)]
unsafe fn input<V: Vector>(d: [V; IN]) -> [V; IN] {
    // SAFETY: as above.
    unsafe {
        let (far_even, far_odd) = (plus(d[2], -2.25, d[4]), plus(d[1], -2.25, d[3]));
        let (near_even, near_odd) = (plus(d[4], -2.25, d[2]), plus(d[3], -2.25, d[1]));
        // Sums and differences use other units of the processor than products.
        let (far, near) = (scaled(far_odd, 1.5), scaled(near_even, 1.5));
        [
            plus(far_even, -2.25, plus(d[0], -2.25, d[2])),
            far_even.add(far),
            far_even.sub(far),
            near_odd.add(near),
            near_odd.sub(near),
            plus(near_odd, -2.25, plus(d[5], -2.25, d[3])),
        ]
    }
}

/// The transform of the products of a tile along an axis to outputs: `A^T m`.
#[inline(always)]
unsafe fn output<V: Vector>(m: [V; IN]) -> [V; OUT] {
    // SAFETY: as above.
    unsafe {
        let (far_even, far_odd) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (near_even, near_odd) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            plus(m[0].add(far_even), 3.375, near_even),
            plus(scaled(far_odd, 1.5), 2.25, near_odd),
            plus(scaled(near_even, 1.5), 2.25, far_even),
            plus(m[5].add(near_odd), 3.375, far_odd),
        ]
    }
}

/// The transpose of [`output`].
#[inline(always)]
unsafe fn output_gradient<V: Vector>(y: [V; OUT]) -> [V; IN] {
    // SAFETY: as above.
    unsafe {
        let (far_even, far_odd) = (plus(y[0], 2.25, y[2]), plus(y[1], 2.25, y[3]));
        let (near_even, near_odd) = (scaled(plus(y[2], 2.25, y[0]), 1.5), plus(y[3], 2.25, y[1]));
        let far = scaled(far_odd, 1.5);
        [y[0], far_even.add(far), far_even.sub(far), near_even.add(near_odd), near_even.sub(near_odd), y[3]]
    }
}

/// The transform of a kernel along an axis: `G w`.
#[inline(always)]
unsafe fn weight<V: Vector>(w: [V; 3]) -> [V; IN] {
    // SAFETY: as above.
    unsafe {
        let (far, near) = (plus(w[0], 2.25, w[2]), plus(w[2], 2.25, w[0]));
        [
            scaled(w[0], -END),
            scaled(plus(far, 1.5, w[1]), -MIDDLE),
            scaled(plus(far, -1.5, w[1]), -MIDDLE),
            scaled(plus(near, 1.5, w[1]), -MIDDLE),
            scaled(plus(near, -1.5, w[1]), MIDDLE),
            scaled(w[2], -END),
        ]
    }
}

/// The transpose of [`weight`].
#[inline(always)]
unsafe fn weight_gradient<V: Vector>(m: [V; IN]) -> [V; 3] {
    // SAFETY: as above.
    unsafe {
        let (far_even, far_odd) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (near_even, near_odd) = (m[4].sub(m[3]), m[3].add(m[4]));
        [
            plus(scaled(m[0], -END), MIDDLE, plus(scaled(near_even, 2.25), -1.0, far_even)),
            scaled(far_odd.add(near_odd), -1.5 * MIDDLE),
            plus(scaled(m[5], -END), MIDDLE, plus(near_even, -2.25, far_even)),
        ]
    }
}

/// A transform of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum TransformStep {
    /// `B' x B`: 6 x 6 of the input to 36 factors.
    Input,
    /// `A' m A`: 36 products to 4 x 4 of the output.
    Output,
    /// `A gy A'`: 4 x 4 of the gradient of the output to 36 factors.
    OutputGradient,
}

/// Transforms a row of tiles. Tile `t` is `t OUT` columns further in the image, and `t` rows in each factor.
pub(in crate::kernels) struct Transform<T> {
    /// The transform.
    pub(in super::super) step: TransformStep,
    /// The number of tiles.
    pub(in super::super) tiles: usize,
    /// The number of channels, in whole registers.
    pub(in super::super) channels: usize,
    /// The first pixel of the first tile. Channels are contiguous.
    pub(in super::super) image: PixelGrid<T>,
    /// The first factor. Factors are `factor` apart, and tiles are `tile` apart.
    pub(super) factors: *mut T,
    /// The distance from a factor of a tile to the next.
    pub(super) factor: usize,
    /// The distance from a tile to the next, in each factor.
    pub(super) tile: usize,
}

impl<T: Float> Transform<T> {
    /// Computes the transform.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        for t in 0..self.tiles {
            for c in (0..self.channels).step_by(V::WIDTH) {
                let (row, column) = (self.image.row, self.image.column);
                let image = PixelGrid { p: self.image.p.wrapping_add(t * OUT * column + c), row, column };
                let p = self.factors.wrapping_add(t * self.tile + c);
                let factors = PixelGrid { p, row: IN * self.factor, column: self.factor };
                // SAFETY: guaranteed by the caller.
                unsafe {
                    match self.step {
                        TransformStep::Input => factors.store(square!(input, IN, IN, image)),
                        TransformStep::Output => image.store(square!(output, IN, OUT, factors)),
                        TransformStep::OutputGradient => {
                            factors.store(square!(output_gradient, OUT, IN, image));
                        }
                    }
                }
            }
        }
    }
}

/// Transforms the weights of one source and up to a register of targets, or transforms their gradient back.
pub(in crate::kernels) struct WeightTransform<T> {
    /// The nine weights of the first target.
    pub(in super::super) weights: *mut T,
    /// The distance from the weights of a target to the weights of the next.
    pub(in super::super) apart: usize,
    /// The number of targets, up to a register.
    pub(in super::super) targets: usize,
    /// True if the weights are reversed.
    pub(super) flipped: bool,
    /// The first of 36 factors, which are registers of targets.
    pub(super) factors: *mut T,
    /// The distance from a factor to the next.
    pub(super) factor: usize,
    /// Transforms factors back to weights, and adds them if true. None transforms weights to factors.
    pub(in super::super) back: Option<bool>,
}

impl<T: Float> WeightTransform<T> {
    /// Computes the transform.
    ///
    /// # Safety
    /// As [`Transform::run`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let factors = PixelGrid { p: self.factors, row: IN * self.factor, column: self.factor };
        // SAFETY: guaranteed by the caller, and masks keep within the weights.
        unsafe {
            let mut taps = [V::zero(); TAPS];
            if let Some(accumulate) = self.back {
                let weights = square!(weight_gradient, IN, 3, factors);
                for t in 0..TAPS {
                    taps[t] = weights[t / 3][t % 3];
                }
                self.store_taps(taps, accumulate);
                return;
            }
            self.load_taps(&mut taps);
            if self.flipped {
                taps.reverse();
            }
            let mut columns = [[V::zero(); IN]; 3];
            for j in 0..3 {
                columns[j] = weight([taps[j], taps[3 + j], taps[6 + j]]);
            }
            let mut result = [[V::zero(); IN]; IN];
            for i in 0..IN {
                result[i] = weight([columns[0][i], columns[1][i], columns[2][i]]);
            }
            factors.store(result);
        }
    }

    /// Loads the kernels of up to a register of targets: register `t` holds tap `t` of each.
    #[inline(always)]
    unsafe fn load_taps<V: Vector<T = T>>(&self, taps: &mut [V; TAPS]) {
        for first in (0..TAPS).step_by(V::WIDTH) {
            // SAFETY: as above.
            unsafe {
                let (mut v, mask) = ([V::zero(); 16], V::first(TAPS - first));
                for (i, v) in v.iter_mut().enumerate().take(self.targets.min(V::WIDTH)) {
                    *v = V::load_masked(self.weights.add(i * self.apart + first), mask);
                }
                V::transpose(&mut v);
                let n = V::WIDTH.min(TAPS - first);
                taps[first..first + n].copy_from_slice(&v[..n]);
            }
        }
    }

    /// Stores the kernels of up to a register of targets, or adds to them. Register `t` holds tap `t` of each.
    #[inline(always)]
    unsafe fn store_taps<V: Vector<T = T>>(&self, taps: [V; TAPS], accumulate: bool) {
        for first in (0..TAPS).step_by(V::WIDTH) {
            // SAFETY: as above.
            unsafe {
                let (mut v, mask) = ([V::zero(); 16], V::first(TAPS - first));
                let n = V::WIDTH.min(TAPS - first);
                v[..n].copy_from_slice(&taps[first..first + n]);
                V::transpose(&mut v);
                for (i, v) in v.into_iter().enumerate().take(self.targets.min(V::WIDTH)) {
                    let to = self.weights.add(i * self.apart + first);
                    let v = if accumulate { v.add(V::load_masked(to, mask)) } else { v };
                    v.store_masked(to, mask);
                }
            }
        }
    }
}

/// Transposes pixels of up to a panel of channels into planes, with a bias for each channel.
pub(in crate::kernels) struct ToPlanes<'a, T> {
    /// The first pixel. Whole registers of channels must be readable.
    pub(in super::super) from: *const T,
    /// The distance from a pixel to the next.
    pub(in super::super) pixel: usize,
    /// The number of pixels.
    pub(in super::super) pixels: usize,
    /// The number of channels, up to a panel.
    pub(in super::super) channels: usize,
    /// The first pixel of the first plane.
    pub(in super::super) to: *mut T,
    /// The distance from a plane to the next.
    pub(in super::super) plane: usize,
    /// The epilogue, with a bias for each channel.
    pub(in super::super) end: Epilogue<'a, T>,
}

impl<T: Float> ToPlanes<'_, T> {
    /// Transposes the pixels.
    ///
    /// # Safety
    /// As [`Transform::run`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        for first in (0..self.channels).step_by(V::WIDTH) {
            for pixel in (0..self.pixels).step_by(V::WIDTH) {
                let n = V::WIDTH.min(self.pixels - pixel);
                // SAFETY: guaranteed by the caller, and masks keep within the planes.
                unsafe {
                    let (mut v, mask) = ([V::zero(); 16], V::first(n));
                    for (i, v) in v.iter_mut().enumerate().take(n) {
                        *v = V::load(self.from.add((pixel + i) * self.pixel + first));
                    }
                    V::transpose(&mut v);
                    for (c, mut v) in v.into_iter().enumerate().take(V::WIDTH.min(self.channels - first)) {
                        let to = self.to.add((first + c) * self.plane + pixel);
                        if let Some(bias) = self.end.row_bias {
                            v = v.add(V::all(*bias.get_unchecked(first + c)));
                        }
                        if self.end.accumulate {
                            v = v.add(V::load_masked(to, mask));
                        }
                        self.end.tail.activation.on(v).store_masked(to, mask);
                    }
                }
            }
        }
    }
}
