//! The gradient of the weight by implicit GEMM: a product of packed inputs and gradients of the output. Images are
//! summed in a few parts, which depend on the shape only and are added in order.

use std::ops::Range;

use super::im2row::Im2Row;
use super::in_tiles::TileWeightSums;
use super::packed_planes::{PackImage, PlaneLayout, SLACK, padded_stride};
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::convolution::correlation::WeightGradient;
use crate::kernels::convolution::descriptor::Descriptor;
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{
    ColumnsToPack, EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels,
};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch, stop};

/// The wanted number of elements in the patches of a block.
const BLOCK: usize = 48 << 10;
/// The smallest number of positions in a block, unless an image has fewer.
const LEAST: usize = 64;
/// The largest number of positions in a block.
const MOST: usize = 512;
/// The wanted number of tasks, so that threads finish together.
const TASKS: usize = 16;
/// The most elements in all partial sums.
const PARTIAL: usize = 1 << 20;

/// Computes the gradient.
///
/// # Safety
/// The arrays must be valid, and nothing else may use the gradient meanwhile.
pub(in super::super) unsafe fn run<T: Float>(
    gradient: &WeightGradient<'_, T>,
    descriptor: &Descriptor,
) -> Result<(), OutOfMemory> {
    let g = gradient.g;
    let (channels, maps, taps) = (g.channels / g.group, g.maps / g.group, g.taps());
    let sums = channels * taps * maps;
    // Blocks are summed in a few parts.
    let n = (BLOCK / (channels * taps)).clamp(LEAST, MOST).min(g.positions());
    let steps = EvenSplit::new(g.positions(), g.positions().div_ceil(n));
    let (chunks, blocks) = match &descriptor.layout {
        Some(layout) => (channels.div_ceil(layout.chunk), layout.blocks()),
        None => (1, g.images * steps.parts()),
    };
    let wanted = TASKS.div_ceil(g.group * chunks).min(PARTIAL / (sums * g.group));
    let parts = EvenSplit::new(blocks, wanted.min(blocks));
    let memory = Workspace::<T>::new(parts.parts() * g.group * sums)?;
    let partial = Shared::new(memory.ptr());
    parallel(parts.parts() * g.group * chunks, |task| {
        let (part, rest) = (task / (g.group * chunks), task % (g.group * chunks));
        let (group, chunk) = (rest / chunks, rest % chunks);
        let to = partial.get().wrapping_add((part * g.group + group) * sums);
        // SAFETY: each task has its own part of the sums.
        unsafe {
            if let Some(layout) = &descriptor.layout {
                let channels = chunk * layout.chunk..((chunk + 1) * layout.chunk).min(channels);
                nchw(gradient, layout, parts.part(part), group, channels, to);
            } else {
                nhwc(gradient, &descriptor.window, steps, parts.part(part), group, to);
            }
        }
    });
    // SAFETY: the sums are valid.
    unsafe { add_up(gradient, parts.parts(), partial) };
    Ok(())
}

/// Channels first: sums of (channel, tap) by output channels, from packed planes of the input and the transposed
/// gradient.
unsafe fn nchw<T: Float>(
    gradient: &WeightGradient<'_, T>,
    layout: &PlaneLayout,
    blocks: Range<usize>,
    group: usize,
    channels: Range<usize>,
    to: *mut T,
) {
    let (g, kernels, inputs) = (gradient.g, kernels::<T>(), gradient.g.inputs());
    let (maps, taps, wide, positions) = (g.maps / g.group, g.taps(), kernels.panel(), g.positions());
    let depth = channels.len() * taps;
    let to = to.wrapping_add(channels.start * taps * maps);
    let tiles = gradient.in_tiles.then(|| TileWeightSums::new(taps, channels.len(), maps));
    let (largest, capacity, of_sums) = match &tiles {
        Some(tiles) => (TileWeightSums::longest(layout), tiles.capacity(layout), tiles.size()),
        None => (layout.positions(), layout.capacity(), 0),
    };
    let panels = maps.div_ceil(wide);
    let mut batch = List::with_capacity(0);
    scratch::with(capacity + panels * wide * largest + of_sums, |memory: &mut [T]| {
        let (planes, rest) = memory.split_at_mut(capacity);
        let (transposed, sums) = rest.split_at_mut(panels * wide * largest);
        if tiles.is_some() {
            // Tiles read what lies between rows, and multiply it by zeros.
            planes.fill(T::ZERO);
        }
        let first = blocks.start;
        for i in blocks {
            stop::poll();
            let block = &layout.block(i);
            let width = block.columns.len();
            let mut n = 0;
            batch.clear();
            if tiles.is_some() {
                transposed.fill(T::ZERO);
            }
            let transposed = Shared::new(transposed.as_mut_ptr());
            // SAFETY: the memory holds the planes and the transposed gradient; the rest is guaranteed by the caller.
            unsafe {
                let pack = |(image, position, k, at): (usize, usize, usize, usize)| {
                    for map in (0..maps).step_by(wide) {
                        let from = gradient.gy(image, group, position).add(map * positions);
                        let (col, n) = (positions as isize, wide.min(maps - map));
                        let to = transposed.get().add(map * largest + at * wide);
                        (kernels.pack_columns)(&ColumnsToPack { from, row: 1, col, k, n, to });
                    }
                };
                // Contiguous rows are packed together: image, first position, length, and destination.
                let mut run = (block.images.start, 0, 0, 0);
                layout.each_row(block, |image, row, column, at| {
                    batch.push((at as isize, (n * wide) as isize));
                    let position = row * layout.width() + column;
                    let to = if tiles.is_some() { at } else { n };
                    if run.2 > 0 && (run.0, run.1 + run.2, run.3 + run.2) == (image, position, to) {
                        run.2 += width;
                    } else {
                        pack(run);
                        run = (image, position, width, to);
                    }
                    n += width;
                });
                pack(run);
                let of = |image: usize| {
                    gradient
                        .x
                        .add(image * inputs.image + group * inputs.group + channels.start * inputs.channel)
                };
                let a = if layout.in_place {
                    of(block.images.start).add(layout.origin(block))
                } else {
                    for (image, i) in block.images.clone().enumerate() {
                        let (to, channels, area) = (planes.as_mut_ptr(), channels.len(), inputs.channel);
                        (isa::kernels::<T>().pack_image)(&PackImage {
                            layout,
                            block,
                            image,
                            from: of(i),
                            channels,
                            area,
                            to,
                        });
                    }
                    planes.as_ptr()
                };
                if let Some(tiles) = &tiles {
                    let b = (transposed.get().cast_const(), wide * largest);
                    tiles.add(layout, layout.len(block), a, b, (sums.as_mut_ptr(), i > first));
                    continue;
                }
                PanelProduct {
                    kernels: gradient.kernels,
                    m: depth,
                    n: maps,
                    k: width,
                    a: MatrixOperand { p: a, row: 0, col: 1 },
                    b: Panels { p: transposed.get(), row: wide, next: wide * largest },
                    table: Table::OfLeft(&layout.table),
                    batch: &batch,
                    c: to,
                    c_row: maps,
                    epilogue: Epilogue::plain(i > first),
                }
                .run();
            }
        }
        if let Some(tiles) = tiles {
            // SAFETY: the sums of these channels belong to this task.
            tiles.copy(sums, unsafe { std::slice::from_raw_parts_mut(to, depth * maps) });
        }
    });
}

/// Channels last: sums of output channels by (tap, channel), from the gradient in place and patches of the input.
unsafe fn nhwc<T: Float>(
    gradient: &WeightGradient<'_, T>,
    window: &Window,
    steps: EvenSplit,
    blocks: Range<usize>,
    group: usize,
    to: *mut T,
) {
    let (g, inputs) = (gradient.g, gradient.g.inputs());
    let (maps, depth) = (g.maps / g.group, inputs.channels * g.taps());
    let row = padded_stride(depth);
    scratch::with(steps.part(0).len() * row + SLACK, |matrix: &mut [T]| {
        let first = blocks.start;
        for i in blocks {
            stop::poll();
            let (image, positions) = (i / steps.parts(), steps.part(i % steps.parts()));
            // SAFETY: as for planes.
            unsafe {
                let gy = gradient.gy(image, group, positions.start);
                let k = positions.len();
                (isa::kernels::<T>().im2row)(&Im2Row {
                    window,
                    from: gradient.x.add(image * inputs.image + group * inputs.group),
                    channels: inputs.channels,
                    pixel: inputs.pixel,
                    positions,
                    to: matrix.as_mut_ptr(),
                    apart: row,
                });
                PanelProduct {
                    kernels: gradient.kernels,
                    m: maps,
                    n: depth,
                    k,
                    a: MatrixOperand { p: gy, row: 1, col: g.outputs().pixel as isize },
                    b: Panels { p: matrix.as_ptr(), row, next: kernels::<T>().panel() },
                    table: Table::None,
                    batch: ONCE,
                    c: to,
                    c_row: depth,
                    epilogue: Epilogue::plain(i > first),
                }
                .run();
            }
        }
    });
}

/// Adds the parts in order, and the previous gradient if it accumulates.
unsafe fn add_up<T: Float>(gradient: &WeightGradient<'_, T>, parts: usize, partial: Shared<T>) {
    let g = gradient.g;
    let (maps, wide) = (g.maps / g.group, kernels::<T>().panel());
    let depth = g.channels / g.group * g.taps();
    let sums = maps * depth;
    let gw = Shared::new(gradient.gw);
    // The rows of the partial sums that a task adds up.
    let (rows, len) = if g.channel_last { (maps, depth) } else { (depth, maps) };
    let pieces = rows.div_ceil(wide);
    parallel(g.group * pieces, |i| {
        let (group, first) = (i / pieces, i % pieces * wide);
        let n = wide.min(rows - first);
        // SAFETY: each piece has its own rows of the sums and its own part of the gradient.
        unsafe {
            let of = |part: usize| partial.get().add((part * g.group + group) * sums + first * len);
            let total = std::slice::from_raw_parts_mut(of(0), n * len);
            for part in 1..parts {
                let more = std::slice::from_raw_parts(of(part), n * len);
                total.iter_mut().zip(more).for_each(|(t, v)| *t = *t + *v);
            }
            let gw = gw.get().add(group * sums);
            let put = |to: &mut [T], from: &[T]| {
                if gradient.accumulate {
                    to.iter_mut().zip(from).for_each(|(t, v)| *t = *t + *v);
                } else {
                    to.copy_from_slice(from);
                }
            };
            if g.channel_last {
                return put(std::slice::from_raw_parts_mut(gw.add(first * len), n * len), total);
            }
            scratch::with(maps * wide, |transposed: &mut [T]| {
                (kernels::<T>().pack_columns)(&ColumnsToPack {
                    from: total.as_ptr(),
                    row: 1,
                    col: maps as isize,
                    k: maps,
                    n,
                    to: transposed.as_mut_ptr(),
                });
                for map in 0..maps {
                    let to = std::slice::from_raw_parts_mut(gw.add(map * depth + first), n);
                    put(to, &transposed[map * wide..][..n]);
                }
            });
        }
    });
}
