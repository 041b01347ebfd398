//! Sums over channels and taps, block by block: what a block of positions sees is laid out in the cache, and one product
//! gives its results. Blocks are cut by shape alone.

pub(super) mod column_order;
pub(super) mod nhwc;
pub(super) mod packed_planes;
pub(super) mod store;
pub(super) mod tap_rows;
pub(super) mod unfold;
pub(super) mod weight_gradient;

use std::ops::Range;

use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::Float;
use crate::kernels::convolution::Geometry;
use crate::kernels::convolution::descriptor::{All, Tables};
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{
    ColumnsToPack, EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels,
};
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{Shared, parallel, ranges};
use column_order::{Arrangement, ColumnOrder};
use packed_planes::{ImageLayout, SLACK, StripBlock, Strips};
use tap_rows::TapRows;

/// Weights of a group that are too many for a part of the second cache.
const LARGE: usize = 1 << 18;
/// Tasks that are wanted, so that threads end together, of so many multiplications at least.
const TASKS: usize = 16;
const TASK: usize = 1 << 20;
/// Tasks beyond this number are taken several at a time.
const MANY: usize = 128;

/// An array of images: channels of one group, and how far apart things are.
#[derive(Clone, Copy)]
pub(super) struct Images {
    pub(super) channels: usize,
    pub(super) image: usize,
    pub(super) group: usize,
    pub(super) channel: usize,
    pub(super) pixel: usize,
}

impl Geometry {
    pub(super) fn array(&self, channels: usize, area: usize) -> Images {
        let (channel, pixel) = if self.channel_last { (1, channels) } else { (area, 1) };
        let of_group = channels / self.group;
        Images { channels: of_group, image: channels * area, group: of_group * channel, channel, pixel }
    }

    pub(super) fn inputs(&self) -> Images {
        self.array(self.channels, self.area())
    }

    pub(super) fn outputs(&self) -> Images {
        self.array(self.maps, self.positions())
    }

    /// The distance of weights of neighbouring maps, channels and taps.
    fn weight_strides(&self) -> (usize, usize, usize) {
        let (channels, taps) = (self.channels / self.group, self.taps());
        if self.channel_last { (channels * taps, 1, channels) } else { (channels * taps, taps, 1) }
    }
}

/// Tasks that are wanted for a window.
fn tasks(g: &Geometry, window: &Window, sources: Images, targets: Images) -> usize {
    let of_group = window.positions() * window.taps.len() * sources.channels * targets.channels;
    (g.images * g.group * of_group / TASK).clamp(1, TASKS)
}

/// How what a window sees of the sources is laid out.
pub(super) fn strips(g: &Geometry, window: &Window, sources: Images, targets: Images) -> Strips {
    // Weights that leave no room in the second cache are read for several images at once.
    let together = targets.channels * sources.channels * window.taps.len() > LARGE;
    let wanted = tasks(g, window, sources, targets) / g.group;
    Strips::new(&window.axes, g.images, sources.channels, usize::MAX, wanted, together)
}

/// `target[k, o] = sum over c, t of w[k, c, t] source[c, what o sees through t]`, for each image and group.
pub(super) struct Correlation<'a, T> {
    pub(super) g: &'a Geometry,
    pub(super) tables: &'a Tables,
    pub(super) source: *const T,
    pub(super) sources: Images,
    pub(super) target: *mut T,
    pub(super) targets: Images,
    pub(super) weight: *const T,
    /// Whether sources are the channels of the weight, as in a convolution, or its maps.
    pub(super) forward: bool,
    pub(super) epilogue: Epilogue<'a, T>,
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Sync for Correlation<'_, T> {}

/// Weights as a product wants them: a left matrix of targets by sources and taps, or the same in panels as a right one.
pub(super) struct Weights<T> {
    pub(super) p: *const T,
    pub(super) group: usize,
    _owner: Option<Workspace<T>>,
}

// SAFETY: as above.
unsafe impl<T> Sync for Weights<T> {}

impl<T: Float> Correlation<'_, T> {
    pub(super) fn window(&self) -> &Window {
        &self.tables.window
    }

    pub(super) fn depth(&self) -> usize {
        self.sources.channels * self.window().taps.len()
    }

    /// Computes the sums of a window; of channels that are groups of their own, and first, those of all windows.
    ///
    /// # Safety
    /// The arrays are there, and nobody else uses the target meanwhile.
    pub(super) unsafe fn run(&self, all: &All) -> Result<(), OutOfMemory> {
        if self.window().positions() == 0 || self.targets.channels == 0 || self.g.images == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise. So below.
        if unsafe { self.run_depthwise(all) } {
            return Ok(());
        }
        let weights = self.weights()?;
        // SAFETY: as above.
        unsafe {
            match &self.tables.strips {
                Some(strips) => self.planes(&weights, strips),
                None => self.pixels(&weights),
            }
        }
        Ok(())
    }

    fn weights(&self) -> Result<Weights<T>, OutOfMemory> {
        let (g, taps) = (self.g, &self.window().taps);
        let (map, channel, tap) = g.weight_strides();
        let (target, source) = if self.forward { (map, channel) } else { (channel, map) };
        let (targets, sources, depth) = (self.targets.channels, self.sources.channels, self.depth());
        let of_group = g.maps / g.group * map;
        if self.forward && !g.channel_last {
            return Ok(Weights { p: self.weight, group: of_group, _owner: None });
        }
        let wide = if g.channel_last { kernels::<T>().panel() } else { 1 };
        let group = targets.next_multiple_of(wide) * depth;
        let memory = Workspace::<T>::new(group * g.group + SLACK)?;
        let (to, from) = (Shared::new(memory.ptr()), Shared::read_only(self.weight));
        let panels = targets.div_ceil(wide);
        parallel(g.group * panels, |i| {
            let (from, first) =
                (from.get().cast_const().wrapping_add(i / panels * of_group), i % panels * wide);
            let to = to.get().wrapping_add(i / panels * group + first * depth);
            let from = from.wrapping_add(first * target);
            // SAFETY: the weights are there, and there is room for all panels.
            unsafe {
                if !g.channel_last {
                    for s in 0..sources {
                        for (i, t) in taps.iter().enumerate() {
                            *to.add(s * taps.len() + i) = *from.add(s * source + t * tap);
                        }
                    }
                    return;
                }
                for (i, t) in taps.iter().enumerate() {
                    (kernels::<T>().pack_columns)(&ColumnsToPack {
                        from: from.add(t * tap),
                        row: source as isize,
                        col: target as isize,
                        k: sources,
                        n: wide.min(targets - first),
                        to: to.add(i * sources * wide),
                    });
                }
            }
        });
        Ok(Weights { p: memory.ptr().cast_const(), group, _owner: Some(memory) })
    }
}

impl<T: Float> Correlation<'_, T> {
    /// Where channel `channel` of a group starts.
    pub(super) fn source(&self, image: usize, group: usize, channel: usize) -> *const T {
        let s = &self.sources;
        self.source.wrapping_add(image * s.image + group * s.group + channel * s.channel)
    }

    pub(super) fn target(&self, image: usize, group: usize, channel: usize) -> *mut T {
        let t = &self.targets;
        self.target.wrapping_add(image * t.image + group * t.group + channel * t.channel)
    }

    /// The bias of the targets of a group from `first` on.
    pub(super) fn bias(&self, group: usize, first: usize) -> Option<&'_ [T]> {
        self.epilogue.row_bias.map(|b| &b[group * self.targets.channels + first..])
    }

    /// Channels first: a left matrix of weights, a right one with a column a position, read from strips.
    unsafe fn planes(&self, weights: &Weights<T>, strips: &Strips) {
        let g = self.g;
        // Where there are few positions, each task has a part of the targets
        // (few of them, as each lays out the positions anew).
        let many = self.targets.channels / (2 * kernels::<T>().panel());
        let wanted = tasks(g, self.window(), self.sources, self.targets);
        let parts = (wanted / (strips.blocks() * g.group)).min(many.min(2).max(many / 2));
        let targets = EvenSplit::new(self.targets.channels, parts);
        let parts = targets.parts();
        let tasks = strips.blocks() * g.group * parts;
        ranges(tasks, tasks / MANY, |some| {
            for task in some {
                let (block, rest) = (strips.block(task / (g.group * parts)), task % (g.group * parts));
                // SAFETY: each task has its own part of the target.
                unsafe { self.block(weights, strips, &block, rest / parts, targets.part(rest % parts)) };
            }
        });
    }

    /// Lays out some channels of a group.
    ///
    /// # Safety
    /// There is [`Strips::room`] for them.
    unsafe fn lay_out(
        &self,
        strips: &Strips,
        block: &StripBlock,
        group: usize,
        channels: Range<usize>,
        planes: &mut [T],
    ) {
        for (image, i) in block.images.clone().enumerate() {
            let (from, area) = (self.source(i, group, channels.start), self.sources.channel);
            let (channels, to) = (channels.len(), planes.as_mut_ptr());
            // SAFETY: the table was chosen for this machine, and there is room.
            unsafe {
                (isa::kernels::<T>().lay_out)(&ImageLayout {
                    strips,
                    block,
                    image,
                    from,
                    channels,
                    area,
                    to,
                });
            };
        }
    }

    /// Copies what the positions of a block see of some channels of a group, to lines that are `apart`.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn tap_rows(
        &self,
        strips: &Strips,
        block: &StripBlock,
        group: usize,
        channels: Range<usize>,
        to: *mut T,
        apart: usize,
    ) {
        let mut rows = List::with_capacity(64);
        strips.each_row(block, |image, row, _, _| rows.push((image, row)));
        let order = TapRows {
            window: self.window(),
            rows: &rows,
            from: self.source(0, group, channels.start),
            area: self.sources.channel,
            image: self.sources.image,
            channels: channels.len(),
            to,
            apart,
        };
        // SAFETY: the table was chosen for this machine, and the images are there.
        unsafe { (isa::kernels::<T>().tap_rows)(&order) };
    }

    unsafe fn block(
        &self,
        weights: &Weights<T>,
        strips: &Strips,
        block: &StripBlock,
        group: usize,
        rows: Range<usize>,
    ) {
        let Arrangement { columns, direct, n, each, line } = self.arrangement(strips, block, rows.len());
        let (w, depth, sources) = (self.window(), self.depth(), self.sources.channels);
        let (taps, width) = (w.taps.len(), block.columns.len());
        let (close, straight) = (columns.are_close(), columns == ColumnOrder::Straight);
        let of_close = if close { strips.chunk * taps * line } else { 0 };
        let of_results = if direct { 0 } else { rows.len() * line };
        let room = if straight { 0 } else { strips.room() };
        let starts = strips.starts(block);
        scratch::with(room + of_results + of_close + SLACK, |memory: &mut [T]| {
            let (planes, results) = memory.split_at_mut(room);
            let (results, together) = results.split_at_mut(of_results);
            let results = Shared::new(results.as_mut_ptr());
            let chunks = sources.div_ceil(strips.chunk).max(1);
            for i in 0..chunks {
                let first = i * strips.chunk;
                let channels = strips.chunk.min(sources - first);
                let b = if strips.in_place {
                    self.source(block.images.start, group, first).wrapping_add(strips.origin(block))
                } else {
                    if !straight {
                        // SAFETY: there is room for a chunk.
                        unsafe { self.lay_out(strips, block, group, first..first + channels, planes) };
                    }
                    planes.as_ptr()
                };
                let weights =
                    weights.p.wrapping_add(weights.group * group + rows.start * depth + first * taps);
                let k = channels * taps;
                let (mut b, mut b_row, mut table) = (b, 0, Table::OfRight(&strips.table));
                if close {
                    let to = together.as_mut_ptr();
                    // SAFETY: the rows lie in the images or in the planes; there is room for all, and for what is copied too
                    // much.
                    unsafe {
                        if straight {
                            self.tap_rows(strips, block, group, first..first + channels, to, line);
                        } else {
                            strips.close(k, b, &starts, width, to, line);
                        }
                    }
                    (b, b_row, table) = (together.as_ptr(), line, Table::None);
                }
                let multiply = |image: usize, position: usize, at: usize, n: usize| {
                    let (c, c_row) = if direct {
                        let first = self.target(image, group, rows.start).wrapping_add(position);
                        (first, self.targets.channel)
                    } else {
                        (results.get().wrapping_add(at), line)
                    };
                    let product = PanelProduct {
                        m: rows.len(),
                        n,
                        k,
                        a: MatrixOperand { p: weights, row: depth as isize, col: 1 },
                        b: Panels { p: b.wrapping_add(at), row: b_row, next: kernels::<T>().panel() },
                        table,
                        batch: ONCE,
                        c,
                        c_row,
                        epilogue: Epilogue {
                            accumulate: i > 0 || direct && self.epilogue.accumulate,
                            row_bias: self.bias(group, rows.start).filter(|_| direct && i + 1 == chunks),
                            column_bias: None,
                            tail: self.epilogue.tail.in_registers(direct && i + 1 == chunks),
                        },
                    };
                    // SAFETY: the table keeps within the planes; the rest is the caller's promise.
                    unsafe { product.run() };
                };
                if columns == ColumnOrder::ByRow {
                    strips.each_row(block, |image, row, column, at| {
                        multiply(image, row * w.width + column, at, n);
                    });
                } else {
                    let position = block.rows.start * w.inner * w.width + block.columns.start;
                    for at in (0..n).step_by(each) {
                        multiply(block.images.start, position + at, at, each.min(n - at));
                    }
                }
            }
            if !direct {
                let results = results.get().cast_const();
                // SAFETY: these are results of all rows and positions; the target has an element for each.
                unsafe { self.move_results(strips, block, group, rows.clone(), results, (line, close)) };
            }
            if self.epilogue.tail.rows.is_some() {
                self.finish_rows(strips, block, group, rows);
            }
        });
    }
}
