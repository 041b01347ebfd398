//! Convolution at few positions: one product of the patches of all images, a row for each position, and the transposed
//! weight. The packed weight is cached.

use super::geometry::Geometry;
use super::implicit_gemm::packed_planes::SLACK;
use super::isa;
use super::weight::Weight;
use super::winograd::transforms::ToPlanes;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{Matrix, MatrixMut, gemm_then, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{Shared, ranges, row_ranges_mut};

/// The number of elements that a thread copies at a time.
const GRAIN: usize = 1 << 13;
/// The index of padding.
const OUTSIDE: usize = usize::MAX;

impl Geometry {
    /// Writes the patch of each position, a row of channels and taps.
    fn gather<T: Float>(&self, x: &[T], seen: &mut [T]) {
        let (positions, taps, area, places) = (self.positions(), self.taps(), self.area(), self.places());
        let (terms, image) = (self.channels * taps, self.channels * area);
        row_ranges_mut(seen, terms, GRAIN / terms + 1, |some, seen| {
            for (row, seen) in some.zip(seen.chunks_exact_mut(terms)) {
                let x = &x[row / positions * image..][..image];
                let places = &places[row % positions * taps..][..taps];
                for (plane, seen) in x.chunks_exact(area).zip(seen.chunks_exact_mut(taps)) {
                    for (seen, place) in seen.iter_mut().zip(places) {
                        *seen = plane.get(*place).copied().unwrap_or(T::ZERO);
                    }
                }
            }
        });
    }

    /// Transposes sums, a row of output channels for each position, into the planes of the output.
    fn scatter<T: Float>(&self, sums: &[T], y: &mut [T], end: Epilogue<'_, T>) {
        let (positions, maps, wide) = (self.positions(), self.maps, kernels::<T>().panel());
        assert!(
            sums.len() >= self.images * positions * maps + SLACK && y.len() == self.images * maps * positions
        );
        let (panels, to) = (maps.div_ceil(wide), Shared::new(y.as_mut_ptr()));
        ranges(self.images * panels, GRAIN / (positions * wide) + 1, |some| {
            for (image, first) in some.map(|i| (i / panels, i % panels * wide)) {
                let channels = wide.min(maps - first);
                let order = ToPlanes {
                    from: sums[image * positions * maps + first..].as_ptr(),
                    pixel: maps,
                    pixels: positions,
                    channels,
                    to: to.get().wrapping_add((image * maps + first) * positions),
                    plane: positions,
                    end,
                };
                // SAFETY: the table was chosen for this machine, a whole register follows the sums, and these planes
                // belong to this task alone.
                unsafe {
                    (isa::kernels::<T>().to_planes)(&order);
                    end.tail.finish(order.to, positions, channels, positions);
                }
            }
        });
    }

    /// For each position and tap, its index in a plane of the input, or [`OUTSIDE`].
    fn places(&self) -> List<usize> {
        let mut places = List::with_capacity(self.positions() * self.taps());
        for position in 0..self.positions() {
            for tap in 0..self.taps() {
                let (mut position, mut tap, mut at, mut step) = (position, tap, 0, 1);
                for axis in (0..self.input.len()).rev() {
                    let (o, t) = (position % self.output[axis], tap % self.kernel[axis]);
                    let i = (o * self.stride[axis] + t * self.dilation[axis]).wrapping_sub(self.pad[axis]);
                    at = if at == OUTSIDE || i >= self.input[axis] { OUTSIDE } else { at + i * step };
                    step *= self.input[axis];
                    (position, tap) = (position / self.output[axis], tap / self.kernel[axis]);
                }
                places.push(at);
            }
        }
        places
    }
}

/// Computes the output.
pub(super) fn forward<T: Float>(
    g: &Geometry,
    x: &[T],
    Weight { values: w, input_cache, .. }: Weight<'_, T>,
    y: &mut [T],
    epilogue: Epilogue<'_, T>,
) {
    let (rows, terms, maps) = (g.images * g.positions(), g.channels * g.taps(), g.maps);
    let w = Matrix::of_rows(w, maps, terms).of(input_cache).t();
    if g.is_one_pixel() && !epilogue.accumulate {
        let x = Matrix::of_rows(x, rows, terms);
        return gemm_then(MatrixMut::of_rows(y, rows, maps), x, w, epilogue.transposed());
    }
    let end = Epilogue { column_bias: epilogue.row_bias, ..Epilogue::NONE };
    scratch::with(rows * maps + SLACK, |sums: &mut [T]| {
        let to = MatrixMut::of_rows(&mut sums[..rows * maps], rows, maps);
        if g.images == 1 && g.reads_each_pixel() {
            gemm_then(to, Matrix::of_rows(x, terms, rows).t(), w, end);
        } else {
            scratch::with(rows * terms, |seen: &mut [T]| {
                g.gather(x, seen);
                gemm_then(to, Matrix::of_rows(seen, rows, terms), w, end);
            });
        }
        g.scatter(sums, y, Epilogue { row_bias: None, ..epilogue });
    });
}
