//! The gradient of the weight where each group has a single channel: for each map and tap one product of two planes.

use super::strip::{Block, Layout, Strips};
use super::weight::WeightGradient;
use crate::kernels::simd::Vector;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};

/// Taps whose sums are kept in registers together.
const TAPS: usize = 9;

/// An order to add to `sums[t]` the products of rows of `gy` with what tap `t` sees: `x[table[t] + at + i] gy[from + i]`
/// over all rows `(at, from)`.
pub(in crate::kernels) struct Dots<'a, T> {
    x: *const T,
    gy: *const T,
    table: &'a [isize],
    rows: &'a [(usize, usize)],
    width: usize,
    sums: &'a mut [T],
}

impl<T: Float> Dots<'_, T> {
    /// Adds the products.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so are the rows.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&mut self) {
        for (taps, sums) in self.table.chunks(TAPS).zip(self.sums.chunks_mut(TAPS)) {
            // The last of several chunks sees some taps twice rather than having code of its own.
            let taps: [isize; TAPS] = std::array::from_fn(|t| taps[t % taps.len()]);
            // SAFETY: the caller's promise; masks keep within the rows.
            unsafe {
                let mut parts = [V::zero(); TAPS];
                for (at, from) in self.rows {
                    let (x, gy) = (self.x.add(*at), self.gy.add(*from));
                    for j in (0..self.width).step_by(V::WIDTH) {
                        if j + V::WIDTH <= self.width {
                            let g = V::load(gy.add(j));
                            for (part, tap) in parts.iter_mut().zip(taps) {
                                *part = V::load(x.offset(tap).add(j)).mul_add(g, *part);
                            }
                        } else {
                            let mask = V::first(self.width - j);
                            let g = V::load_masked(gy.add(j), mask);
                            for (part, tap) in parts.iter_mut().zip(taps) {
                                *part = V::load_masked(x.offset(tap).add(j), mask).mul_add(g, *part);
                            }
                        }
                    }
                }
                for (sum, part) in sums.iter_mut().zip(parts) {
                    let mut lanes = [T::ZERO; 16];
                    part.store(lanes.as_mut_ptr());
                    *sum = *sum + lanes.into_iter().take(V::WIDTH).fold(T::ZERO, |s, v| s + v);
                }
            }
        }
    }
}

impl<T: Float> WeightGradient<'_, T> {
    /// Computes the gradient of a convolution with one channel in each group, channels first.
    ///
    /// # Safety
    /// The arrays are there, and nobody else uses the gradient meanwhile.
    pub(super) unsafe fn run_depthwise(&self) {
        let (g, kernels, gw) = (self.g, T::kernels(), Shared::new(self.gw));
        let strips = Strips::new(&g.forward_window().axes, 1, 1, 1, g.group, false);
        let (maps, taps, area) = (g.maps / g.group, g.taps(), g.area());
        let each_map = |channel: usize| channel * maps..(channel + 1) * maps;
        parallel(g.group, |channel| {
            let mut rows = Vec::new();
            scratch::with(strips.room() + maps * taps, |memory: &mut [T]| {
                let (planes, sums) = memory.split_at_mut(strips.room());
                sums.fill(T::ZERO);
                for (image, i) in (0..g.images).flat_map(|n| (0..strips.blocks()).map(move |i| (n, i))) {
                    let block = &Block { images: 0..1, ..strips.block(i) };
                    let from = self.x.wrapping_add((image * g.channels + channel) * area);
                    rows.clear();
                    strips
                        .each_row(block, |_, row, column, at| rows.push((at, row * strips.width() + column)));
                    let x = if strips.in_place {
                        from.wrapping_add(strips.origin(block))
                    } else {
                        let to = planes.as_mut_ptr();
                        let layout = Layout { strips: &strips, block, image: 0, from, channels: 1, area, to };
                        // SAFETY: the table was chosen for this machine, and there is room.
                        unsafe { (kernels.lay_out)(&layout) };
                        planes.as_ptr()
                    };
                    for (map, sums) in each_map(channel).zip(sums.chunks_exact_mut(taps)) {
                        let gy = self.gy.wrapping_add((image * g.maps + map) * g.positions());
                        let (table, width) = (&strips.table[..], block.columns.len());
                        // SAFETY: the rows lie in the planes and in the gradient.
                        unsafe { (kernels.dots)(&mut Dots { x, gy, table, rows: &rows, width, sums }) };
                    }
                }
                for (i, sum) in sums.iter().enumerate() {
                    // SAFETY: each channel has its own part of the gradient.
                    unsafe {
                        let to = gw.get().add(channel * maps * taps + i);
                        *to = if self.accumulate { *to + *sum } else { *sum };
                    }
                }
            });
        });
    }
}
