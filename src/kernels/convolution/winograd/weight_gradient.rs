//! The gradient of the weight with Winograd's algorithm: 36 sums over tiles for each pair of channels, in parts that
//! are added in order.

use std::ops::Range;

use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep, WeightTransform};
use super::uneven::{Energies, UnevenTerms};
use super::weight_scales::even_scales;
use super::{Factors, chain, factors, whole};
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::convolution::geometry::Geometry;
use crate::kernels::convolution::implicit_gemm::packed_planes::{SLACK, padded_stride};
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch, stop};

/// Weights of a 3 x 3 kernel.
const TAPS: usize = 9;
/// Sums of one product that a thread adds up in a row.
const TOGETHER: usize = 64;

/// The sums behind the gradient of the weight. A task adds up the blocks of a part for one group of channels.
struct WeightGradientSums<'a, T> {
    /// The sizes of the convolution.
    g: &'a Geometry,
    /// The tiles, in blocks.
    tiles: Tiles,
    /// The division of the blocks into parts, one for each partial sum.
    parts: EvenSplit,
    /// Input channels of a group.
    channels: usize,
    /// Output channels of a group.
    maps: usize,
    /// The length of a row of sums: the maps in whole registers.
    of_map: usize,
    /// The sums of all tasks: [`PRODUCTS`] times `sums` numbers for each task.
    partial: Shared<T>,
    /// The number of sums of one product of a task.
    sums: usize,
    /// The direct sums of uneven tiles, if any, for all tasks.
    direct: Shared<T>,
    /// The number of direct sums of a task.
    directly: usize,
    /// For each task, true if it has uneven tiles.
    uneven: Shared<bool>,
}

/// Computes the gradient of the weight in up to `parts` partial sums.
///
/// # Safety
/// The arrays must be valid, and nothing else may use the gradient meanwhile.
pub(in super::super) unsafe fn weight_gradient<T: Float>(
    g: &Geometry,
    parts: usize,
    x: *const T,
    gy: *const T,
    gw: *mut T,
    accumulate: bool,
) -> Result<(), OutOfMemory> {
    let (channels, maps) = (g.channels / g.group, g.maps / g.group);
    let of_map = whole::<T>(maps);
    let (sums, directly) = (padded_stride(channels * of_map), TAPS * channels * of_map);
    let tiles = Tiles::new(&g.output_phases(), g.images, channels + maps, 1);
    let parts = EvenSplit::new(tiles.blocks(), parts.min(tiles.blocks()));
    let tasks = parts.parts() * g.group;
    let memory = Workspace::<T>::new(tasks * (PRODUCTS * sums + directly))?;
    let (are_uneven, scales) = (List::repeat(false, tasks), even_scales::<T>(channels.max(maps)));
    let all = &WeightGradientSums {
        g,
        tiles,
        parts,
        channels,
        maps,
        of_map,
        partial: Shared::new(memory.ptr()),
        sums,
        direct: Shared::new(memory.ptr().wrapping_add(tasks * PRODUCTS * sums)),
        directly,
        uneven: Shared::new(are_uneven.as_ptr().cast_mut()),
    };
    let sides = [Shared::read_only(x), Shared::read_only(gy)];
    // SAFETY: each task has its own sums; the rest is the caller's promise.
    parallel(tasks, |task| unsafe { all.add_up(task, sides.map(|side| side.get().cast_const()), &scales) });
    let gw = Shared::new(gw);
    let together = EvenSplit::new(channels, channels.div_ceil((TOGETHER / of_map).max(1)));
    parallel(g.group * together.parts(), |i| {
        let (group, channels) = (i / together.parts(), together.part(i % together.parts()));
        // SAFETY: each channel has its own sums and its own part of the gradient.
        unsafe { all.write(group, channels, gw.get(), accumulate) };
    });
    Ok(())
}

impl<T: Float> WeightGradientSums<'_, T> {
    /// Computes the sums of a task.
    ///
    /// # Safety
    /// The arrays must be valid, and no other thread may use the sums of this task.
    unsafe fn add_up(&self, task: usize, sides: [*const T; 2], scales: &[T]) {
        let &Self { g, tiles, maps, sums, .. } = self;
        let (blocks, group, wide) = (self.parts.part(task / g.group), task % g.group, kernels::<T>().panel());
        let of_channel = whole::<T>(self.channels);
        let (inputs, outputs) =
            (padded_stride(tiles.most * of_channel), padded_stride(tiles.most * maps.next_multiple_of(wide)));
        let rows = tiles.rows.part(0).len();
        let strip = (OUT * (rows - 1) + IN) * tiles.row.columns(IN) * wide;
        let planes = tiles.planes.part(0).len();
        let of_energies = [g.input[1], g.output[1]].map(|width| Energies::<T>::memory(planes, rows, width));
        let of_factors = of_energies[0].0 + of_energies[1].0 + strip + PRODUCTS * (inputs + outputs);
        scratch::with(of_factors + SLACK, |memory: &mut [T]| {
            let (of_x, memory) = memory.split_at_mut(of_energies[0].0);
            let (of_gy, memory) = memory.split_at_mut(of_energies[1].0);
            let strip_at = memory.as_mut_ptr();
            let p = strip_at.wrapping_add(strip.next_multiple_of(SLACK));
            let v = Factors { p, factor: inputs, tile: of_channel, panel: wide };
            let p = p.wrapping_add(PRODUCTS * inputs);
            let d = Factors { p, factor: outputs, tile: wide, panel: tiles.most * wide };
            let (x, gy) = (g.input_planes(sides[0]), g.output_planes(sides[1], (0, 0), g.output_phases()));
            let scales = scales.as_ptr();
            let energies = [
                Energies { scales, p: of_x.as_mut_ptr(), plane: of_energies[0].1 },
                Energies { scales, p: of_gy.as_mut_ptr(), plane: of_energies[1].1 },
            ];
            let terms = UnevenTerms { g, x: &x, gy: &gy, energies };
            let (input, gradient) = ((TransformStep::Input, IN), (TransformStep::OutputGradient, OUT));
            let to = self.partial.get().wrapping_add(task * PRODUCTS * sums);
            let direct = self.direct.get().wrapping_add(task * self.directly);
            for i in blocks.clone() {
                stop::poll();
                let (planes, rows) = tiles.block(i);
                let (block, row) = ((&planes, &rows), tiles.row);
                // SAFETY: the scratch buffer holds all factors; the rest is the caller's promise.
                unsafe {
                    factors(&x, input, row, block, group, strip_at, v, &energies[0]);
                    factors(&gy, gradient, row, block, group, strip_at, d, &energies[1]);
                    let uneven = (self.uneven.get().add(task), direct, self.of_map);
                    terms.take_out(&tiles, block, group, (&v, &d), uneven);
                    self.multiply(planes.len() * rows.len() * tiles.across, (v, d), to, i > blocks.start);
                }
            }
        });
    }

    /// Writes or adds the products of the factors of some tiles.
    ///
    /// # Safety
    /// The factors must be valid, and no other thread may use the sums.
    unsafe fn multiply(&self, tiles: usize, (v, d): (Factors<T>, Factors<T>), to: *mut T, accumulate: bool) {
        for q in 0..PRODUCTS {
            // SAFETY: guaranteed by the caller.
            unsafe {
                PanelProduct {
                    kernels: kernels(),
                    m: self.channels,
                    n: self.maps,
                    k: tiles,
                    a: MatrixOperand { p: v.p.add(q * v.factor), row: 1, col: v.tile as isize },
                    b: Panels { p: d.p.add(q * d.factor), row: d.tile, next: d.panel },
                    c: to.add(q * self.sums),
                    c_row: self.of_map,
                    table: Table::None,
                    batch: ONCE,
                    epilogue: Epilogue::plain(accumulate),
                }
                .run_in_chains(chain(tiles));
            }
        }
    }

    /// Writes or adds the gradient of some channels of a group. Adds up the parts and transforms the sums in double
    /// precision: there are few sums, and their rounding errors would be most of the error of the result.
    ///
    /// # Safety
    /// All sums must have been computed, and no other thread may use the sums or the gradient of these channels.
    unsafe fn write(&self, group: usize, channels: Range<usize>, gw: *mut T, accumulate: bool) {
        let &Self { g, maps, of_map, sums, .. } = self;
        let row = channels.len() * of_map;
        let (parts, zeros) = (self.parts.parts(), &*List::repeat(T::ZERO, row));
        let (at, of_taps) = (PRODUCTS * row, maps * TAPS);
        scratch::with(at + of_taps + SLACK, |memory: &mut [f64]| {
            let (factors, memory) = memory.split_at_mut(at);
            let taps = &mut memory[..of_taps];
            let of = |part: usize, q: usize| {
                let at = ((part * g.group + group) * PRODUCTS + q) * sums + channels.start * of_map;
                // SAFETY: guaranteed by the caller. Sums of no map are undefined, and no result reads them.
                unsafe { std::slice::from_raw_parts(self.partial.get().add(at), row) }
            };
            vectorised(
                #[inline(always)]
                || {
                    for (q, row) in factors.chunks_exact_mut(row).enumerate() {
                        // Parts in pairs, the last one with zeros if there is no other: fewer passes over the row.
                        for first in (0..parts).step_by(2) {
                            let second = if first + 1 < parts { of(first + 1, q) } else { zeros };
                            let pairs = row.iter_mut().zip(of(first, q)).zip(second);
                            if first == 0 {
                                pairs.for_each(|((s, a), b)| *s = a.real() + b.real());
                            } else {
                                pairs.for_each(|((s, a), b)| *s += a.real() + b.real());
                            }
                        }
                    }
                },
            );
            for (i, c) in channels.clone().enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    self.write_channel(group, c, (&mut factors[i * of_map..], row), taps, gw, accumulate);
                }
            }
        });
    }

    /// Transforms the sums of one channel, and writes or adds its gradient. `factors` has the sums of the products, and
    /// their distance.
    ///
    /// # Safety
    /// As [`WeightGradientSums::write`].
    unsafe fn write_channel(
        &self,
        group: usize,
        c: usize,
        (factors, factor): (&mut [f64], usize),
        taps: &mut [f64],
        gw: *mut T,
        accumulate: bool,
    ) {
        let &Self { g, channels, maps, of_map, .. } = self;
        let wide = kernels::<f64>().panel() / 2;
        for map in (0..maps).step_by(wide) {
            let transform = WeightTransform {
                weights: taps[map * TAPS..].as_mut_ptr(),
                apart: TAPS,
                targets: maps - map,
                flipped: false,
                factors: factors[map..].as_mut_ptr(),
                factor,
                back: Some(false),
            };
            // SAFETY: the table was chosen for this machine. Rows of factors and taps are within the memory.
            unsafe { (isa::kernels::<f64>().transform_weights)(&transform) };
        }
        for task in (0..self.parts.parts()).map(|part| part * g.group + group) {
            // SAFETY: guaranteed by the caller.
            if unsafe { self.uneven.get().add(task).read() } {
                let sums = self.direct.get().wrapping_add(task * self.directly + c * TAPS * of_map);
                for (i, tap) in taps.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *tap += unsafe { *sums.add(i % TAPS * of_map + i / TAPS) }.real();
                }
            }
        }
        let first = gw.wrapping_add((group * maps * channels + c) * TAPS).cast::<[T; TAPS]>();
        vectorised(
            #[inline(always)]
            || {
                for (map, taps) in taps.as_chunks::<TAPS>().0.iter().enumerate() {
                    // SAFETY: as above.
                    let to = unsafe { &mut *first.add(map * channels) };
                    let before = if accumulate { to.map(T::real) } else { [0.0; TAPS] };
                    *to = std::array::from_fn(|t| T::of(before[t] + taps[t]));
                }
            },
        );
    }
}
