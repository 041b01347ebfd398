//! The gradient of the input of a convolution without padding whose kernel is as large as its stride, or the same
//! deconvolution. Patches do not overlap: one product computes all taps, and its results are interleaved.

use std::ops::Range;

use super::depthwise::sliding_sum::{InterleaveWindows, PlaneSteps};
use super::descriptor::{Descriptors, Pass};
use super::geometry::Geometry;
use super::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, Matrix, MatrixMut, gemm};
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};
use std::sync::Arc;

/// The number of results in a block, which stay in the second-level cache until they are stored.
const RESULTS: usize = 1 << 16;

/// The geometry, and the windows that results are stored to.
pub(super) struct StrideEqualsKernel<'a> {
    /// The sizes of the convolution.
    g: &'a Geometry,
    /// The windows that results are stored to.
    descriptors: Arc<Descriptors>,
}

impl<'a> StrideEqualsKernel<'a> {
    /// The product of a convolution for which [`select`](super::select::select) chose this algorithm.
    pub(super) fn new(g: &'a Geometry) -> Self {
        Self { g, descriptors: g.descriptors(Pass::InputGradient) }
    }

    /// Computes the gradient.
    pub(super) fn input_gradient<T: Float>(
        &self,
        gy: &[T],
        w: &[T],
        gx: &mut [T],
        epilogue: Epilogue<'_, T>,
    ) {
        let (g, to) = (self.g, Shared::new(gx.as_mut_ptr()));
        let (rows, width) =
            (self.descriptors.each[0].window.targets.len(), self.descriptors.each[0].window.width);
        let each = (RESULTS / (g.channels / g.group * g.taps() * width)).clamp(1, rows);
        let parts = EvenSplit::new(rows, rows.div_ceil(each));
        parallel(g.images * g.group * parts.parts(), |task| {
            let (i, rows) = (task / parts.parts(), parts.part(task % parts.parts()));
            // SAFETY: each task has its own rows of the positions of an image and a group.
            unsafe { self.rows([i / g.group, i % g.group], rows, [gy, w], to.get(), epilogue) };
        });
    }

    /// Computes the patches of some rows of positions.
    unsafe fn rows<T: Float>(
        &self,
        [image, group]: [usize; 2],
        rows: Range<usize>,
        [gy, w]: [&[T]; 2],
        to: *mut T,
        epilogue: Epilogue<'_, T>,
    ) {
        let (g, windows, taps) = (self.g, &self.descriptors.each, self.g.taps());
        let (channels, maps, width) = (g.channels / g.group, g.maps / g.group, windows[0].window.width);
        let (n, turns) = (rows.len() * width, g.stride[g.stride.len() - 1]);
        let first = (image * g.maps + group * maps) * g.positions() + rows.start * width;
        let gy = Matrix::new(&gy[first..], maps, n, g.positions(), 1);
        let w = Matrix::of_rows(
            &w[group * maps * channels * taps..][..maps * channels * taps],
            maps,
            channels * taps,
        );
        scratch::with(channels * taps * n, |results: &mut [T]| {
            gemm(MatrixMut::of_rows(results, channels * taps, n), false, w.t(), gy);
            for (channel, results) in results.chunks_exact(taps * n).enumerate() {
                let of_all = group * channels + channel;
                let end = Epilogue { row_bias: epilogue.row_bias.map(|b| &b[of_all..]), ..epilogue };
                for (descriptors, results) in windows.chunks(turns).zip(results.chunks_exact(turns * n)) {
                    // SAFETY: the table was chosen for this machine; the targets are the caller's promise.
                    unsafe {
                        (isa::kernels::<T>().interleave)(&InterleaveWindows {
                            descriptors,
                            rows: rows.clone(),
                            planes: PlaneSteps { n: 1, from: 0, to: 0, taps },
                            from: results.as_ptr(),
                            apart: n,
                            to: to.add((image * g.channels + of_all) * g.area()),
                            end,
                        });
                    }
                }
            }
        });
    }
}
