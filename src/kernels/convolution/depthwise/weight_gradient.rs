//! The kernel of the gradient of a depthwise weight, channels first: for each tap, the product of a plane of the
//! output gradient and the elements of the input at that tap.

use std::ops::Range;

use super::plane::{ANY, LANES, Lanes, Plane, TALL, TapBlock};
use crate::kernels::Float;
use crate::kernels::convolution::window::Window;
use crate::kernels::simd::Vector;

/// The number of rows that are processed register by register, so that they stay in the first-level cache.
const TOGETHER: usize = 32;

/// Adds to register `t` of `sums` the products of rows of `gy` and the elements of `x` at tap `t`, over some images.
pub(in crate::kernels) struct PlaneDots<'a, T> {
    /// The source rows and the window.
    pub(super) sees: (&'a Plane, &'a Window),
    /// The number of images.
    pub(in super::super) images: usize,
    /// The distance of the planes of two images in `x`.
    pub(super) x_image: usize,
    /// The distance of the planes of two images in `gy`.
    pub(super) gy_image: usize,
    /// The plane of the first image in the input.
    pub(in super::super) x: *const T,
    /// The plane of the first image in the gradient of the output.
    pub(in super::super) gy: *const T,
    /// The sums that are added to, a register for each tap.
    pub(in super::super) sums: *mut T,
}

impl<T: Float> PlaneDots<'_, T> {
    /// Adds the products.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe {
            for block in &self.sees.0.blocks {
                match self.sees.1.step {
                    1 => self.block::<V, 1>(block),
                    2 => self.block::<V, 2>(block),
                    _ => self.taps::<V, ANY, 1, 1>(block),
                }
            }
        }
    }

    /// Chooses the code for the number of rows of the block of taps.
    #[inline(always)]
    unsafe fn block<V: Vector<T = T>, const STEP: usize>(&self, block: &TapBlock) {
        // SAFETY: as above.
        unsafe {
            match block.rows {
                1 => self.columns::<V, STEP, 1>(block),
                2 => self.columns::<V, STEP, 2>(block),
                _ => self.columns::<V, STEP, 3>(block),
            }
        }
    }

    /// Chooses the code for the number of columns of the block of taps.
    #[inline(always)]
    unsafe fn columns<V: Vector<T = T>, const STEP: usize, const R: usize>(&self, block: &TapBlock) {
        // SAFETY: as above.
        unsafe {
            match block.columns {
                _ if V::IS_RARE => self.taps::<V, STEP, R, 3>(block),
                1 => self.taps::<V, STEP, R, 1>(block),
                2 => self.taps::<V, STEP, R, 2>(block),
                _ => self.taps::<V, STEP, R, 3>(block),
            }
        }
    }

    /// Adds up the gradients of `R` x `C` taps over all images.
    #[inline(always)]
    unsafe fn taps<V: Vector<T = T>, const STEP: usize, const R: usize, const C: usize>(
        &self,
        block: &TapBlock,
    ) {
        let (plane, w) = self.sees;
        // SAFETY: as above; there is a register for each tap.
        unsafe {
            let mut parts = [[V::zero(); C]; R];
            for start in (0..w.targets.len()).step_by(TOGETHER) {
                let rows = start..(start + TOGETHER).min(w.targets.len());
                for j in (0..w.width).step_by(V::WIDTH) {
                    let (lanes, whole) = Lanes::of(w, block, j);
                    for i in 0..self.images {
                        let at = (i, block, j);
                        if whole {
                            self.rows::<V, STEP, R, C, true>(rows.clone(), at, &lanes, &mut parts);
                        } else {
                            self.rows::<V, STEP, R, C, false>(rows.clone(), at, &lanes, &mut parts);
                        }
                    }
                }
            }
            for (r, parts) in parts.into_iter().enumerate() {
                for (c, part) in parts.into_iter().enumerate().take(block.columns_in::<V, C>()) {
                    let to = self.sums.offset((block.element + plane.tap(r, c)) * LANES as isize);
                    part.add(V::load(to)).store(to);
                }
            }
        }
    }

    /// Adds the products of a register of positions in some rows.
    #[inline(always)]
    unsafe fn rows<V: Vector<T = T>, const STEP: usize, const R: usize, const C: usize, const WHOLE: bool>(
        &self,
        rows: Range<usize>,
        at: (usize, &TapBlock, usize),
        lanes: &[Lanes<V, STEP>; C],
        parts: &mut [[V; C]; R],
    ) {
        let (mut sums, mut row) = (*parts, rows.start);
        // SAFETY: as above.
        unsafe {
            while row + TALL <= rows.end {
                self.band::<V, STEP, R, C, TALL, WHOLE>(row, at, lanes, &mut sums);
                row += TALL;
            }
            while row < rows.end {
                self.band::<V, STEP, R, C, 1, WHOLE>(row, at, lanes, &mut sums);
                row += 1;
            }
        }
        *parts = sums;
    }

    /// Adds the products of `M` rows to the sums of the taps.
    #[inline(always)]
    unsafe fn band<
        V: Vector<T = T>,
        const STEP: usize,
        const R: usize,
        const C: usize,
        const M: usize,
        const WHOLE: bool,
    >(
        &self,
        row: usize,
        (image, block, j): (usize, &TapBlock, usize),
        lanes: &[Lanes<V, STEP>; C],
        sums: &mut [[V; C]; R],
    ) {
        let (plane, w) = self.sees;
        let [n, step, apart] = plane.seen::<STEP, R>(M);
        let first = (row * plane.step) as isize + block.offset;
        let columns = block.columns_in::<V, C>();
        let mut x_row = self.x.wrapping_offset((image * self.x_image) as isize + first * w.length as isize);
        // SAFETY: as above; masks keep within the rows of `gy`, and what is behind them counts for nothing.
        unsafe {
            let mask = V::first(w.width - j);
            let gy: [V; M] = std::array::from_fn(|i| {
                let gy = self.gy.add(image * self.gy_image + (row + i) * w.width + j);
                if WHOLE { V::load(gy) } else { V::load_masked(gy, mask) }
            });
            for y in 0..n {
                if ((first + (y * apart) as isize) as usize) < plane.rows {
                    for (c, lanes) in lanes.iter().enumerate().take(columns) {
                        let x = lanes.load::<WHOLE>(x_row);
                        for (i, gy) in gy.iter().enumerate() {
                            if y >= i * step && y - i * step < R {
                                let sum = &mut sums[y - i * step][c];
                                *sum = x.mul_add(*gy, *sum);
                            }
                        }
                    }
                }
                x_row = x_row.wrapping_add(apart * w.length);
            }
        }
    }
}
