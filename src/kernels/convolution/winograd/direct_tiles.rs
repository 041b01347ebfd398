//! Tiles that Winograd's algorithm would compute with large errors, computed by the definition.

use std::ops::Range;

use super::Winograd;
use super::phases::SourcePlanes;
use super::tiles::Tiles;
use super::transforms::{OUT, PixelGrid};
use super::uneven::UnevenTerms;
use crate::kernels::convolution::implicit_gemm::packed_planes::SLACK;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::{Float, scratch};

/// Terms of a sum that are added sequentially before the sum is added to the previous ones.
const CHAIN: usize = 256;
/// Weights of a 3 x 3 kernel.
const TAPS: usize = 9;
/// Outputs of a tile.
const OUTPUTS: usize = OUT * OUT;

impl<T: Float> SourcePlanes<T> {
    /// Writes the inputs of each output of a tile: a row of channels and taps for each output. Rows of outputs beyond
    /// `size` are zero.
    ///
    /// # Safety
    /// The planes must be readable.
    unsafe fn gather(
        &self,
        (plane, group): (usize, usize),
        tile: (usize, usize),
        size: (usize, usize),
        seen: &mut [T],
    ) {
        let (plane, depth, row) = (self.plane(plane, group), self.array.channels * TAPS, self.tile_row());
        seen.fill(T::ZERO);
        for (o, seen) in seen.chunks_exact_mut(depth).enumerate() {
            let (y, x) = row.pixel(tile, o);
            if y >= size.0 || x >= size.1 {
                continue;
            }
            for t in 0..TAPS {
                let (y, x) =
                    ((y + t / 3) as isize - plane.pad.0, (x + row.dilation * (t % 3)) as isize - plane.pad.1);
                if (0..plane.height as isize).contains(&y) && (0..self.width as isize).contains(&x) {
                    let from = plane.p.wrapping_offset(y * plane.row as isize + x);
                    for (c, seen) in seen.iter_mut().skip(t).step_by(TAPS).enumerate() {
                        // SAFETY: the pixel is within the plane.
                        *seen = unsafe { *from.add(c * self.array.channel) };
                    }
                }
            }
        }
    }
}

impl<T: Float> UnevenTerms<'_, T> {
    /// Adds the contribution of a tile to `sums`: a row of maps for each channel and tap. Rows are `sums_row` apart.
    ///
    /// # Safety
    /// The arrays must be valid, and no other thread may use the sums.
    pub(super) unsafe fn add(&self, at: (usize, usize), tile: (usize, usize), sums: *mut T, sums_row: usize) {
        let (depth, maps, wide) =
            (self.x.array.channels * TAPS, self.gy.array.channels, kernels::<T>().panel());
        let phases = self.g.output_phases();
        let ((height, width), row) = (phases.size(at.0), phases.row());
        let outputs = OUTPUTS * maps.next_multiple_of(wide);
        let gy = self.gy.plane(at.0, at.1);
        scratch::with(OUTPUTS * depth + outputs + SLACK, |memory: &mut [T]| {
            let (right, left) = memory.split_at_mut(outputs);
            let left = &mut left[..OUTPUTS * depth];
            right.fill(T::ZERO);
            for o in 0..OUTPUTS {
                let (y, x) = row.pixel(tile, o);
                if y < height && x < width {
                    let from = gy.p.wrapping_add(y * gy.row + x);
                    for map in 0..maps {
                        // SAFETY: the pixel is within the plane.
                        right[(map / wide * OUTPUTS + o) * wide + map % wide] =
                            unsafe { *from.add(map * self.gy.array.channel) };
                    }
                }
            }
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.x.gather(at, tile, (height, width), left);
                PanelProduct {
                    kernels: kernels(),
                    m: depth,
                    n: maps,
                    k: OUTPUTS,
                    a: MatrixOperand { p: left.as_ptr(), row: 1, col: depth as isize },
                    b: Panels { p: right.as_ptr(), row: wide, next: OUTPUTS * wide },
                    c: sums,
                    c_row: sums_row,
                    table: Table::None,
                    batch: ONCE,
                    epilogue: Epilogue::plain(true),
                }
                .run_in_chains(OUTPUTS);
            }
        });
    }
}

impl<T: Float> Winograd<'_, T> {
    /// Addresses of the nine weights between a target and each source channel.
    pub(super) fn weights_of(&self, group: usize, target: usize) -> impl Iterator<Item = *const T> {
        let (channels, maps) = (self.g.channels / self.g.group, self.g.maps / self.g.group);
        let (first, source, target) = if self.forward {
            (group * maps * channels + target * channels, 1, 0)
        } else {
            (group * maps * channels, channels, target)
        };
        let p = self.weight;
        (0..self.source.array.channels).map(move |c| p.wrapping_add((first + c * source + target) * TAPS))
    }

    /// Writes the direct sums of the flagged tiles to the pixels of some rows of tiles, for up to a panel of targets.
    ///
    /// # Safety
    /// The arrays must be valid, and `to` must hold a panel of targets for each pixel.
    pub(super) unsafe fn mend(
        &self,
        tiles: &Tiles,
        (plane, group): (usize, usize),
        rows: &Range<usize>,
        targets: Range<usize>,
        flags: &[bool],
        to: PixelGrid<T>,
    ) {
        let (depth, wide) = (self.source.array.channels * TAPS, kernels::<T>().panel());
        scratch::with(depth * wide + OUTPUTS * (depth + wide) + SLACK, |memory: &mut [T]| {
            let (weights, memory) = memory.split_at_mut(depth * wide);
            let (sums, seen) = memory.split_at_mut(OUTPUTS * wide);
            let seen = &mut seen[..OUTPUTS * depth];
            weights.fill(T::ZERO);
            for (lane, target) in targets.clone().enumerate() {
                for (c, from) in self.weights_of(group, target).enumerate() {
                    for t in 0..TAPS {
                        let tap = if self.forward { t } else { TAPS - 1 - t };
                        // SAFETY: the weights are readable.
                        weights[(c * TAPS + t) * wide + lane] = unsafe { *from.add(tap) };
                    }
                }
            }
            for (t, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
                let (row, column) = (t / tiles.across, t % tiles.across);
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let size = self.phases.size(plane);
                    self.source.gather((plane, group), (rows.start + row, column), size, seen);
                    PanelProduct {
                        kernels: kernels(),
                        m: OUTPUTS,
                        n: targets.len(),
                        k: depth,
                        a: MatrixOperand { p: seen.as_ptr(), row: depth as isize, col: 1 },
                        b: Panels { p: weights.as_ptr(), row: wide, next: 0 },
                        c: sums.as_mut_ptr(),
                        c_row: wide,
                        table: Table::None,
                        batch: ONCE,
                        epilogue: Epilogue::NONE,
                    }
                    .run_in_chains(CHAIN);
                    for (o, sums) in sums.chunks_exact(wide).enumerate() {
                        let (y, x) = tiles.row.pixel((row, column), o);
                        let pixel = to.at(y, x);
                        pixel.copy_from_nonoverlapping(sums.as_ptr(), targets.len());
                    }
                }
            }
        });
    }
}
