//! Depthwise convolution, channels first, plane by plane.

use std::ops::Range;

use super::narrow::{NarrowSum, PaddedPlane};
use super::plane::{LANES, TALL};
use super::sliding_sum::{InterleaveWindows, PlaneSteps, SlidingSum};
use super::tap_sum::TapSum;
use super::weight_gradient::PlaneDots;
use crate::kernels::convolution::correlation::{Correlation, WeightGradient};
use crate::kernels::convolution::descriptor::{Descriptor, Descriptors};
use crate::kernels::convolution::isa;
use crate::kernels::convolution::select::fills_lanes;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::kernels;
use crate::kernels::threads::{Shared, ranges};
use crate::kernels::{Float, scratch};

/// The number of elements that a thread processes at a time.
const GRAIN: usize = 1 << 13;
/// The number of elements that all taps are summed for at a time, so that the sums stay in the first-level cache.
const BLOCK: usize = 4 << 10;
/// The number of positions in a partial sum of the gradient of the weight.
const PRODUCTS: usize = 1 << 10;

/// Computes the sums of all windows of a convolution with one channel in each group, channels first.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(in super::super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>, descriptors: &Descriptors) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match &descriptors.each[..] {
            [Descriptor { window, lanes: Some(plane), .. }] if fills_lanes::<T>(sum.g, window) => {
                narrow(sum, plane);
            }
            _ => slide(sum, &descriptors.each),
        }
    }
}

/// Computes the sums of rows, for all windows.
unsafe fn slide<T: Float>(sum: &Correlation<'_, T>, all: &[Descriptor]) {
    let g = sum.g;
    let (sources, targets) = (sum.sources.channels, sum.targets.channels);
    let most = g.area().max(g.positions()) * sources.max(targets);
    // The number of windows whose targets are interleaved along rows, and of adjacent planes that are processed
    // together.
    let turns = all[0].window.apart.min(g.input[g.input.len() - 1]);
    let together = if sources == 1 && targets == 1 { (BLOCK / most.max(1)).max(1) } else { 1 };
    ranges(g.images * g.group, GRAIN / most.max(1), |some| {
        let mut first = some.start;
        while first < some.end {
            let (image, group) = (first / g.group, first % g.group);
            let n = together.min(some.end - first).min(g.group - group);
            for descriptors in all.chunks(turns) {
                for target in 0..targets {
                    // SAFETY: each task has its own targets.
                    unsafe { slide_planes(sum, descriptors, [image, group, target], n) };
                }
            }
            first += n;
        }
    });
}

/// Computes one target of `n` groups, for windows that are interleaved.
unsafe fn slide_planes<T: Float>(
    sum: &Correlation<'_, T>,
    descriptors: &[Descriptor],
    [image, group, target]: [usize; 3],
    n: usize,
) {
    let w = &descriptors[0].window;
    let blocks =
        descriptors.iter().map(|t| t.plane.as_ref().map_or(0, |plane| plane.blocks.len())).sum::<usize>();
    // Elements that no tap reaches change only if there is a bias.
    if blocks == 0 && sum.epilogue.row_bias.is_none() {
        return;
    }
    let (height, to) = (w.targets.len(), sum.target(image, group, target));
    let each = (BLOCK / w.length.max(w.width * descriptors.len())).max(1).next_multiple_of(TALL);
    let to_row = if height > 1 { w.targets[1] - w.targets[0] } else { w.width };
    let (end, then) = (sum.end(group, target), sum.epilogue.tail);
    let planes = PlaneSteps { n, from: sum.sources.group, to: sum.targets.group, taps: sum.g.taps() };
    for start in (0..height).step_by(each) {
        let rows = start..(start + each).min(height);
        // SAFETY: guaranteed by the caller, and the tables were chosen for this machine, and the memory holds the sums.
        unsafe {
            if w.apart == 1 && blocks > 0 {
                let to = to.add(w.targets[start]);
                sum_rows(sum, &descriptors[0], [image, group, target], &rows, planes, (to, to_row), end);
                if w.whole {
                    (0..n).for_each(|p| then.finish(to.add(p * planes.to), w.width, rows.len(), w.width));
                }
                continue;
            }
            let apart = n * rows.len() * w.width;
            scratch::with(descriptors.len() * apart, |sums: &mut [T]| {
                for (descriptor, sums) in descriptors.iter().zip(sums.chunks_exact_mut(apart)) {
                    let (width, to) = (descriptor.window.width, sums.as_mut_ptr());
                    if descriptor.window.taps.is_empty() {
                        sums.fill(T::ZERO);
                    }
                    let planes = PlaneSteps { to: rows.len() * width, ..planes };
                    sum_rows(
                        sum,
                        descriptor,
                        [image, group, target],
                        &rows,
                        planes,
                        (to, width),
                        Epilogue::NONE,
                    );
                }
                let (from, rows) = (sums.as_ptr(), rows.clone());
                (isa::kernels::<T>().interleave)(&InterleaveWindows {
                    descriptors,
                    rows,
                    planes,
                    from,
                    apart,
                    to,
                    end,
                });
            });
        }
    }
}

/// Computes some rows of the sums of a window, for each source and block of taps.
unsafe fn sum_rows<T: Float>(
    sum: &Correlation<'_, T>,
    descriptor: &Descriptor,
    [image, group, target]: [usize; 3],
    rows: &Range<usize>,
    planes: PlaneSteps,
    (to, to_row): (*mut T, usize),
    end: Epilogue<'_, T>,
) {
    let (g, sources) = (sum.g, sum.sources.channels);
    let Some(plane) = &descriptor.plane else { return };
    for source in 0..sources {
        let map = group * (g.maps / g.group) + source + target;
        let (weights, from) = (sum.weight.wrapping_add(map * g.taps()), sum.source(image, group, source));
        let end_of = |is_first: bool, is_last: bool| Epilogue {
            row_bias: end.row_bias.filter(|_| is_first),
            accumulate: end.accumulate || !is_first,
            tail: end.tail.in_registers(is_last),
            ..end
        };
        if plane.is_row {
            let end = end_of(source == 0, source + 1 == sources);
            let taps = TapSum { window: &descriptor.window, planes, weights, from, to, end };
            // SAFETY: guaranteed by the caller.
            unsafe { (isa::kernels::<T>().tap_sum)(&taps) };
            continue;
        }
        for (i, block) in plane.blocks.iter().enumerate() {
            let (is_first, is_last) = (source + i == 0, source + 1 == sources && i + 1 == plane.blocks.len());
            let slide = SlidingSum {
                sees: (plane, &descriptor.window),
                block,
                rows: rows.clone(),
                planes,
                weights,
                from,
                to,
                to_row,
                end: end_of(is_first, is_last),
            };
            // SAFETY: guaranteed by the caller.
            unsafe { (isa::kernels::<T>().sliding_sum)(&slide) };
        }
    }
}

/// Computes short rows, for one input and one output channel in each group.
unsafe fn narrow<T: Float>(sum: &Correlation<'_, T>, plane: &PaddedPlane) {
    let (g, lanes) = (sum.g, kernels::<T>().panel() / 2);
    let (parts, most) = (g.group.div_ceil(lanes), plane.places.len().max(plane.starts.len()));
    ranges(g.images * parts, GRAIN / (lanes * most), |some| {
        scratch::with(plane.capacity(lanes, g.taps()), |memory: &mut [T]| {
            memory[..plane.pixels * lanes].fill(T::ZERO);
            for i in some {
                let (image, first) = (i / parts, i % parts * lanes);
                let planes = lanes.min(g.group - first);
                let to = sum.target(image, first, 0);
                // SAFETY: the table was chosen for this machine, each task has its own targets, and the memory is
                // large enough.
                unsafe {
                    (isa::kernels::<T>().narrow_sum)(&NarrowSum {
                        plane,
                        planes,
                        elements: g.taps(),
                        from: sum.source(image, first, 0),
                        weights: sum.weight.wrapping_add(first * g.taps()),
                        to,
                        memory: memory.as_mut_ptr(),
                        end: sum.end(first, 0),
                    });
                    let n = plane.starts.len();
                    sum.epilogue.tail.finish(to, n, planes, n);
                }
            }
        });
    });
}

/// Computes the gradient of the weight of a convolution with one channel in each group, channels first.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the gradient meanwhile.
pub(in super::super) unsafe fn weight_gradient<T: Float>(
    gradient: &WeightGradient<'_, T>,
    descriptor: &Descriptor,
) {
    let Some(plane) = &descriptor.plane else { return };
    let sees = (plane, &descriptor.window);
    let (g, kernels, gw) = (gradient.g, kernels::<T>(), Shared::new(gradient.gw));
    let (maps, taps) = (g.maps / g.group, g.taps());
    let lanes = kernels.panel() / 2;
    let grain = (GRAIN / (g.area() * g.images)).max(1);
    // The number of images in a partial sum, which is larger for small planes.
    let together = (PRODUCTS / g.positions()).max(1);
    ranges(g.group, grain, |channels| {
        scratch::with(maps * taps * LANES, |sums: &mut [T]| {
            for channel in channels {
                sums.fill(T::ZERO);
                for (image, map) in
                    (0..g.images).step_by(together).flat_map(|n| (0..maps).map(move |m| (n, m)))
                {
                    let of_map = image * g.maps + channel * maps + map;
                    // SAFETY: the arrays are valid, and so is a register for each tap of a map.
                    unsafe {
                        (isa::kernels::<T>().plane_dots)(&PlaneDots {
                            sees,
                            images: together.min(g.images - image),
                            x_image: g.channels * g.area(),
                            gy_image: g.maps * g.positions(),
                            x: gradient.x.add((image * g.channels + channel) * g.area()),
                            gy: gradient.gy.add(of_map * g.positions()),
                            sums: sums.as_mut_ptr().add(map * taps * LANES),
                        });
                    }
                }
                for (i, sums) in sums.chunks_exact(LANES).enumerate() {
                    let sum = sums[..lanes].iter().fold(T::ZERO, |s, v| s + *v);
                    // SAFETY: each channel has its own part of the gradient.
                    unsafe {
                        let to = gw.get().add(channel * maps * taps + i);
                        *to = if gradient.accumulate { *to + sum } else { sum };
                    }
                }
            }
        });
    });
}
