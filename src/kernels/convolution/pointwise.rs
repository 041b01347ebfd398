//! Convolution with kernels of one element and without padding, as products of matrices. Only a strided input is
//! copied first. So is convolution of one channel along one axis: a strided view of the input is the matrix of its
//! patches.

use super::descriptor::{Descriptors, Pass};
use super::geometry::Geometry;
use super::window::Window;
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, Matrix, MatrixMut, gemm, gemm_then};
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::kernels::threads::{Shared, num_threads, parallel, ranges};
use crate::kernels::{Float, scratch};
use std::sync::Arc;

/// The number of products from which each is a task of its own. Fewer products are tasks too if all threads get as
/// many. Otherwise each product is divided among the threads.
const TASKS: usize = 16;
/// The most elements in the partial sums of a gradient.
const PARTIAL: usize = 1 << 20;
/// The number of elements of a gradient that a thread adds up at a time.
const PIECE: usize = 1 << 12;

/// The sizes of the products, and the window of a strided input.
pub(super) struct Pointwise<'a> {
    /// The sizes of the convolution.
    g: &'a Geometry,
    /// Input channels of a group, or taps of the only channel.
    channels: usize,
    /// Output channels of a group.
    maps: usize,
    /// The window of a strided convolution with kernels of one element. None if the stride is one.
    descriptors: Option<Arc<Descriptors>>,
}

impl<'a> Pointwise<'a> {
    /// The products of a convolution for which [`select`](super::select::select) chose this algorithm.
    pub(super) fn new(g: &'a Geometry) -> Self {
        let strided = g.taps() == 1 && g.stride.iter().any(|s| *s > 1);
        let descriptors = strided.then(|| g.descriptors(Pass::Output));
        Self { g, channels: g.channels / g.group * g.taps(), maps: g.maps / g.group, descriptors }
    }

    /// The input pixels that a strided convolution reads. None if the stride is one.
    fn window(&self) -> Option<&Window> {
        self.descriptors.as_ref().map(|all| &all.each[0].window)
    }

    /// The weight of a group as a matrix, with a row for each output channel.
    fn weight<'w, T: Float>(&self, w: Values<'w, T>, group: usize) -> Matrix<'w, T> {
        let size = self.maps * self.channels;
        Matrix::of_values(w.part(group * size, size), self.maps, self.channels)
    }

    /// Calls `f(image, group)` for each pair, as [`each`] does.
    fn each(&self, f: impl Fn(usize, usize) + Sync) {
        let groups = self.g.group;
        each(self.g.images * groups, |i| f(i / groups, i % groups));
    }

    /// Calls `f` with the elements of a group that outputs read, a row for each channel, or for each tap of the only
    /// channel.
    fn seen<T: Float>(&self, x: Values<'_, T>, image: usize, group: usize, f: impl FnOnce(Matrix<'_, T>)) {
        let (area, n) = (self.g.area(), self.g.positions());
        if self.g.taps() > 1 {
            return self.patches(x.part(image * area, area), f);
        }
        let start = (image * self.g.channels + group * self.channels) * area;
        let x = x.part(start, self.channels * area);
        let Some(w) = self.window() else { return f(Matrix::of_values(x, self.channels, area)) };
        scratch::with(self.channels * n, |seen: &mut [T]| {
            x.widened(|x| {
                for (x, seen) in x.chunks_exact(area).zip(seen.chunks_exact_mut(n)) {
                    for (base, seen) in w.bases.iter().zip(seen.chunks_exact_mut(w.width)) {
                        let row = x[*base as usize..].iter().step_by(w.step);
                        seen.iter_mut().zip(row).for_each(|(to, v)| *to = *v);
                    }
                }
            });
            f(Matrix::of_values(x.with(seen), self.channels, n));
        });
    }

    /// Calls `f` with the patches of a line, a row for each tap. Only a padded line is copied.
    fn patches<T: Float>(&self, x: Values<'_, T>, f: impl FnOnce(Matrix<'_, T>)) {
        let (g, last) = (self.g, self.g.input.len() - 1);
        let (taps, n, pad) = (g.taps(), g.positions(), g.pad[last]);
        let (apart, step) = (g.dilation[last], g.stride[last]);
        let length = (n - 1) * step + (taps - 1) * apart + 1;
        if pad == 0 && length <= x.len() {
            return f(Matrix::strided_values(x, taps, n, apart, step));
        }
        scratch::with(length, |padded: &mut [T]| {
            padded.fill(T::ZERO);
            x.widened(|x| padded.iter_mut().skip(pad).zip(x).for_each(|(to, v)| *to = *v));
            f(Matrix::strided_values(x.with(padded), taps, n, apart, step));
        });
    }

    /// Computes the output.
    pub(super) fn forward<T: Float>(
        &self,
        x: Values<'_, T>,
        w: &[T],
        mut y: ValuesMut<'_, T>,
        epilogue: Epilogue<'_, T>,
    ) {
        let w = x.with(w);
        let (g, maps, n) = (self.g, self.maps, self.g.positions());
        let bias = |group: usize| epilogue.row_bias.map(|b| &b[group * maps..][..maps]);
        let plain = Epilogue { row_bias: None, ..epilogue };
        if g.channel_last {
            for group in 0..g.group {
                let rows = g.images * n;
                let x = x.from(group * self.channels);
                let x = Matrix::strided_values(x, rows, self.channels, g.channels, 1);
                let y = MatrixMut::strided_values(y.from(group * maps), rows, maps, g.maps, 1);
                gemm_then(y, x, self.weight(w, group).t(), Epilogue { column_bias: bias(group), ..plain });
            }
            return;
        }
        let to = y.shared();
        self.each(|image, group| {
            // SAFETY: each image and group has its own part of the output.
            let y = unsafe { to.part((image * g.maps + group * maps) * n, maps * n) };
            self.seen(x, image, group, |x| {
                let epilogue = Epilogue { row_bias: bias(group), ..plain };
                gemm_then(MatrixMut::of_values(y, maps, n), self.weight(w, group), x, epilogue);
            });
        });
    }

    /// Computes the gradient of the input. There must be no bias if the input is strided, because elements are
    /// skipped.
    pub(super) fn input_gradient<T: Float>(
        &self,
        gy: Values<'_, T>,
        w: &[T],
        mut gx: ValuesMut<'_, T>,
        epilogue: Epilogue<'_, T>,
    ) {
        let w = gy.with(w);
        let (g, channels, n, area) = (self.g, self.channels, self.g.positions(), self.g.area());
        let bias = |group: usize| epilogue.row_bias.map(|b| &b[group * channels..][..channels]);
        let plain = Epilogue { row_bias: None, ..epilogue };
        if g.channel_last {
            for group in 0..g.group {
                let rows = g.images * n;
                let gy = Matrix::strided_values(gy.from(group * self.maps), rows, self.maps, g.maps, 1);
                let gx = MatrixMut::strided_values(gx.from(group * channels), rows, channels, g.channels, 1);
                gemm_then(gx, gy, self.weight(w, group), Epilogue { column_bias: bias(group), ..plain });
            }
            return;
        }
        let to = gx.shared();
        self.each(|image, group| {
            // SAFETY: each image and group has its own part of the gradient.
            let gx = unsafe { to.part((image * g.channels + group * channels) * area, channels * area) };
            let w = self.weight(w, group).t();
            let gy = gy.part((image * g.maps + group * self.maps) * n, self.maps * n);
            let gy = Matrix::of_values(gy, self.maps, n);
            let Some(window) = self.window() else {
                let epilogue = Epilogue { row_bias: bias(group), ..plain };
                return gemm_then(MatrixMut::of_values(gx, channels, n), w, gy, epilogue);
            };
            scratch::with(channels * n, |seen: &mut [T]| {
                gemm(MatrixMut::of_rows(seen, channels, n), false, w, gy);
                gx.widened(epilogue.accumulate, |gx| {
                    if !epilogue.accumulate {
                        gx.fill(T::ZERO);
                    }
                    for (gx, seen) in gx.chunks_exact_mut(area).zip(seen.chunks_exact(n)) {
                        for (base, seen) in window.bases.iter().zip(seen.chunks_exact(window.width)) {
                            let row = gx[*base as usize..].iter_mut().step_by(window.step);
                            row.zip(seen).for_each(|(to, v)| *to = *to + *v);
                        }
                    }
                });
            });
        });
    }

    /// Computes the gradient of the weight in partial sums over images.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the partial sums cannot be allocated.
    pub(super) fn weight_gradient<T: Float>(
        &self,
        x: Values<'_, T>,
        gy: Values<'_, T>,
        gw: &mut [T],
        accumulate: bool,
    ) -> Result<(), OutOfMemory> {
        let (g, channels, maps, n) = (self.g, self.channels, self.maps, self.g.positions());
        let size = maps * channels;
        if g.channel_last {
            for (group, gw) in gw.chunks_exact_mut(size).enumerate() {
                let rows = g.images * n;
                let x = Matrix::strided_values(x.from(group * channels), rows, channels, g.channels, 1);
                let gy = Matrix::strided_values(gy.from(group * maps), rows, maps, g.maps, 1);
                gemm(MatrixMut::of_rows(gw, maps, channels), accumulate, gy.t(), x);
            }
            return Ok(());
        }
        let wanted = TASKS.div_ceil(g.group).min(PARTIAL / gw.len()).min(g.images);
        let parts = EvenSplit::new(g.images, wanted);
        let memory = Workspace::<T>::new(parts.parts() * gw.len())?;
        let (sums, all) = (Shared::new(memory.ptr()), gw.len());
        let one = |task: usize| {
            let (images, group) = (parts.part(task / g.group), task % g.group);
            // SAFETY: each task has its own sums.
            let sum = unsafe { part(sums, task / g.group * all + group * size, size) };
            for image in images.clone() {
                let gy = gy.part((image * g.maps + group * maps) * n, maps * n);
                let gy = Matrix::of_values(gy, maps, n);
                self.seen(x, image, group, |x| {
                    let sum = MatrixMut::of_rows(&mut *sum, maps, channels);
                    gemm(sum, image > images.start, gy, x.t());
                });
            }
        };
        let tasks = parts.parts() * g.group;
        if tasks > 1 {
            parallel(tasks, one);
        } else {
            one(0);
        }
        let to = Shared::new(gw.as_mut_ptr());
        ranges(all, PIECE, |some| {
            // SAFETY: the range is its own, and the sums are valid.
            let gw = unsafe { part(to, some.start, some.len()) };
            for i in 0..parts.parts() {
                // SAFETY: as above.
                let sums = unsafe { part(sums, i * all + some.start, some.len()) };
                if i == 0 && !accumulate {
                    gw.copy_from_slice(sums);
                } else {
                    gw.iter_mut().zip(sums).for_each(|(to, v)| *to = *to + *v);
                }
            }
        });
        Ok(())
    }
}

/// Calls `f` with each number below `count`. The calls run in parallel if they are many or divide evenly among the
/// threads. The output of an image then stays in the cache of one core.
pub(super) fn each(count: usize, f: impl Fn(usize) + Sync) {
    let together = count >= TASKS || (count > 1 && count.is_multiple_of(num_threads()));
    if together { parallel(count, f) } else { (0..count).for_each(f) }
}

/// A range of elements as a slice.
///
/// # Safety
/// The range must be valid, and nothing else may use it meanwhile.
unsafe fn part<'a, T>(all: Shared<T>, start: usize, n: usize) -> &'a mut [T] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(all.get().add(start), n) }
}
