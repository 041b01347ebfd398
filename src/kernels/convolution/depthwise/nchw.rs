//! Convolution of each channel with kernels of its own, channels first: one plane after the other.

use std::ops::Range;

use super::plane::{Plane, TALL};
use super::sliding_sum::{PlaneSteps, Slide, SpreadOrder};
use super::weight_gradient::Dots;
use crate::kernels::convolution::descriptor::{All, Tables};
use crate::kernels::convolution::implicit_gemm::Correlation;
use crate::kernels::convolution::implicit_gemm::weight_gradient::WeightGradient;
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::kernels;
use crate::kernels::threads::{Shared, ranges};
use crate::kernels::{Float, scratch};

/// Elements of planes that a thread takes at a time.
const GRAIN: usize = 1 << 13;
/// Elements of planes that are summed up before others go over them: they stay in the first cache.
const BLOCK: usize = 4 << 10;
/// Positions whose products are summed up together.
const PRODUCTS: usize = 1 << 10;
/// Numbers in the longest register.
pub(super) const LANES: usize = 16;

impl<T: Float> Correlation<'_, T> {
    /// Computes the sums if each group has a single channel and there is a way of its own for that.
    ///
    /// # Safety
    /// As [`Correlation::run`].
    pub(in super::super) unsafe fn run_depthwise(&self, all: &All) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if all.is_planar() {
                if all.each.len() > 1 || !self.lanes_of_channels() {
                    self.slide(&all.each);
                }
            } else if self.g.is_pixelwise() {
                self.slide_pixels();
            } else {
                return false;
            }
        }
        true
    }

    /// Channels first, all windows.
    unsafe fn slide(&self, all: &[Tables]) {
        let g = self.g;
        let (sources, targets) = (self.sources.channels, self.targets.channels);
        let most = g.area().max(g.positions()) * sources.max(targets);
        // Windows whose targets take turns along rows; and planes at a time, which follow each other.
        let turns = all[0].window.apart.min(g.input[g.input.len() - 1]);
        let together = if sources == 1 && targets == 1 { (BLOCK / most.max(1)).max(1) } else { 1 };
        ranges(g.images * g.group, GRAIN / most.max(1), |some| {
            let mut first = some.start;
            while first < some.end {
                let (image, group) = (first / g.group, first % g.group);
                let n = together.min(some.end - first).min(g.group - group);
                for tables in all.chunks(turns) {
                    for target in 0..targets {
                        // SAFETY: each task has its own targets.
                        unsafe { self.slide_planes(tables, [image, group, target], n) };
                    }
                }
                first += n;
            }
        });
    }

    /// Sums of as many groups from one on, for one target of each.
    unsafe fn slide_planes(&self, tables: &[Tables], [image, group, target]: [usize; 3], n: usize) {
        let w = &tables[0].window;
        let blocks =
            tables.iter().map(|t| t.plane.as_ref().map_or(0, |plane| plane.blocks.len())).sum::<usize>();
        // Elements that no tap reaches are what they are, but for a bias.
        if blocks == 0 && self.epilogue.row_bias.is_none() {
            return;
        }
        let (height, to) = (w.targets.len(), self.target(image, group, target));
        let each = (BLOCK / w.length.max(w.width * tables.len())).max(1).next_multiple_of(TALL);
        let to_row = if height > 1 { w.targets[1] - w.targets[0] } else { w.width };
        let (end, then) = (self.end(group, target), self.epilogue.tail);
        let planes = PlaneSteps { n, from: self.sources.group, to: self.targets.group, taps: self.g.taps() };
        for start in (0..height).step_by(each) {
            let rows = start..(start + each).min(height);
            // SAFETY: the caller's promise; the tables were chosen for this machine, and there is room for the sums.
            unsafe {
                if w.apart == 1 && blocks > 0 {
                    let to = to.add(w.targets[start]);
                    self.sums(&tables[0], [image, group, target], &rows, planes, (to, to_row), end);
                    if w.whole {
                        (0..n).for_each(|p| then.finish(to.add(p * planes.to), w.width, rows.len(), w.width));
                    }
                    continue;
                }
                let apart = n * rows.len() * w.width;
                scratch::with(tables.len() * apart, |sums: &mut [T]| {
                    for (tables, sums) in tables.iter().zip(sums.chunks_exact_mut(apart)) {
                        let (width, to) = (tables.window.width, sums.as_mut_ptr());
                        if tables.window.taps.is_empty() {
                            sums.fill(T::ZERO);
                        }
                        let planes = PlaneSteps { to: rows.len() * width, ..planes };
                        self.sums(tables, [image, group, target], &rows, planes, (to, width), Epilogue::NONE);
                    }
                    let (from, rows) = (sums.as_ptr(), rows.clone());
                    (isa::kernels::<T>().spread)(&SpreadOrder { tables, rows, planes, from, apart, to, end });
                });
            }
        }
    }

    /// Some rows of the sums of a window, block by block of the taps of one source after the other.
    unsafe fn sums(
        &self,
        tables: &Tables,
        [image, group, target]: [usize; 3],
        rows: &Range<usize>,
        planes: PlaneSteps,
        (to, to_row): (*mut T, usize),
        end: Epilogue<'_, T>,
    ) {
        let (g, sources) = (self.g, self.sources.channels);
        let Some(plane) = &tables.plane else { return };
        for source in 0..sources {
            let map = group * (g.maps / g.group) + source + target;
            for (i, block) in plane.blocks.iter().enumerate() {
                let (is_first, is_last) =
                    (source + i == 0, source + 1 == sources && i + 1 == plane.blocks.len());
                let slide = Slide {
                    sees: (plane, &tables.window),
                    block,
                    rows: rows.clone(),
                    planes,
                    weights: self.weight.wrapping_add(map * g.taps()),
                    from: self.source(image, group, source),
                    to,
                    to_row,
                    end: Epilogue {
                        row_bias: end.row_bias.filter(|_| is_first),
                        accumulate: end.accumulate || !is_first,
                        tail: end.tail.in_registers(is_last),
                        ..end
                    },
                };
                // SAFETY: the caller's promise.
                unsafe { (isa::kernels::<T>().slide)(&slide) };
            }
        }
    }
}

impl<T: Float> WeightGradient<'_, T> {
    /// As for the sums; there is one window.
    ///
    /// # Safety
    /// As [`WeightGradient::run`].
    pub(in super::super) unsafe fn run_depthwise(&self, all: &All) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(plane) = &all.each[0].plane {
                self.slide((plane, &all.each[0].window));
            } else if self.g.is_pixelwise() {
                self.slide_pixels(&all.each[0].window);
            } else {
                return false;
            }
        }
        true
    }

    /// Channels first.
    unsafe fn slide(&self, sees: (&Plane, &Window)) {
        let (g, kernels, gw) = (self.g, kernels::<T>(), Shared::new(self.gw));
        let (maps, taps) = (g.maps / g.group, g.taps());
        let lanes = kernels.panel() / 2;
        let grain = (GRAIN / (g.area() * g.images)).max(1);
        // Images whose products are summed up before they are joined to others: many where there are few products.
        let together = (PRODUCTS / g.positions()).max(1);
        ranges(g.group, grain, |channels| {
            scratch::with(maps * taps * LANES, |sums: &mut [T]| {
                for channel in channels {
                    sums.fill(T::ZERO);
                    for (image, map) in
                        (0..g.images).step_by(together).flat_map(|n| (0..maps).map(move |m| (n, m)))
                    {
                        let of_map = image * g.maps + channel * maps + map;
                        // SAFETY: the arrays are there, and so is a register for each tap of a map.
                        unsafe {
                            (isa::kernels::<T>().dots)(&Dots {
                                sees,
                                images: together.min(g.images - image),
                                x_image: g.channels * g.area(),
                                gy_image: g.maps * g.positions(),
                                x: self.x.add((image * g.channels + channel) * g.area()),
                                gy: self.gy.add(of_map * g.positions()),
                                sums: sums.as_mut_ptr().add(map * taps * LANES),
                            });
                        }
                    }
                    for (i, sums) in sums.chunks_exact(LANES).enumerate() {
                        let sum = sums[..lanes].iter().fold(T::ZERO, |s, v| s + *v);
                        // SAFETY: each channel has its own part of the gradient.
                        unsafe {
                            let to = gw.get().add(channel * maps * taps + i);
                            *to = if self.accumulate { *to + sum } else { sum };
                        }
                    }
                }
            });
        });
    }
}
