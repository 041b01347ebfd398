//! Winograd's algorithm for 3 x 3 kernels with stride 1: a tile of 4 x 4 outputs takes 36 products instead of 144,
//! with larger rounding errors. Tiles whose errors would be too large are computed directly, see [`uneven`]. Blocks of
//! tiles are transformed in the cache. Phases of a dilated kernel have tiles of their own, see [`phases`].

mod direct_tiles;
pub(super) mod energies;
pub(super) mod few_tiles;
pub(super) mod phases;
pub(super) mod tiles;
pub(super) mod transforms;
pub(super) mod uneven;
pub(super) mod weight_gradient;
pub(super) mod weight_scales;

use std::ops::Range;

use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::convolution::geometry::{Geometry, Images};
use crate::kernels::convolution::implicit_gemm::packed_planes::{SLACK, padded_stride};
use crate::kernels::convolution::isa;
use crate::kernels::convolution::weight::WeightCache;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, num_threads, parallel};
use crate::kernels::{Float, scratch};
use energies::PixelsToPack;
use phases::{Phases, SourcePlanes, TileRow};
use tiles::Tiles;
use transforms::{IN, OUT, PRODUCTS, PixelGrid, ToPlanes, Transform, TransformStep, WeightTransform};
use uneven::{Energies, covered};

/// Transformed tiles of a block: 36 factors for each tile and channel. `factor` and `tile` are the distances of
/// factors and of tiles. Panels of channels are `panel` apart.
#[derive(Clone, Copy)]
pub(super) struct Factors<T> {
    /// The first factor.
    pub(super) p: *mut T,
    /// The distance from a factor of a tile to the next.
    pub(super) factor: usize,
    /// The distance from a tile to the next.
    pub(super) tile: usize,
    /// The distance from a panel of channels to the next.
    pub(super) panel: usize,
}

impl<T: Float> Factors<T> {
    /// Sets the factors of some channels of a tile to zero.
    ///
    /// # Safety
    /// The factors must be valid, and nothing else may use them meanwhile.
    pub(super) unsafe fn clear(&self, tile: usize, channels: usize) {
        let wide = kernels::<T>().panel();
        for (q, first) in (0..PRODUCTS).flat_map(|q| (0..channels).step_by(wide).map(move |c| (q, c))) {
            let at = first / wide * self.panel + q * self.factor + tile * self.tile;
            // SAFETY: guaranteed by the caller.
            unsafe { self.p.add(at).write_bytes(0, wide.min(channels - first)) };
        }
    }
}

/// The layout of transformed weights: the distances of factors, of panels of targets, and of groups.
pub(super) struct Transforms {
    /// The distance from a factor to the next.
    pub(super) factor: usize,
    /// The distance from a panel of targets to the next.
    pub(super) panel: usize,
    /// The distance from a group to the next.
    pub(super) group: usize,
}

/// The most products that are added sequentially before the sum is added to the previous one, for accuracy. Sums of
/// many terms round more, and have shorter chains.
pub(super) const fn chain(terms: usize) -> usize {
    if terms < 256 { 16 } else { 8 }
}

/// Rounds a number of channels up to whole registers.
pub(super) fn whole<T: Float>(channels: usize) -> usize {
    channels.next_multiple_of(kernels::<T>().panel() / 2)
}

/// Transforms `side` x `side` pixels of each tile, for some rows of tiles of some planes, into factors. Computes the
/// energies of the pixels, too. `strip` is scratch memory for the pixels of one plane and panel.
unsafe fn factors<T: Float>(
    of: &SourcePlanes<T>,
    (step, side): (TransformStep, usize),
    tile_row: TileRow,
    (planes, rows): (&Range<usize>, &Range<usize>),
    group: usize,
    strip: *mut T,
    to: Factors<T>,
    energies: &Energies<T>,
) {
    let (kernels, wide) = (isa::kernels::<T>(), kernels::<T>().panel());
    let (height, width, across) = (OUT * (rows.len() - 1) + side, tile_row.columns(side), tile_row.tiles());
    for first in (0..of.array.channels).step_by(wide) {
        let channels = wide.min(of.array.channels - first);
        for (i, number) in planes.clone().enumerate() {
            let source = of.plane(number, group);
            let covered = covered(rows, side, source.pad.0, source.height);
            // Pixels in the padding are zero. The others are transposed channel by channel.
            let (start, end) = (of.pad.1.max(0) as usize, (of.width as isize + of.pad.1).max(0) as usize);
            let (start, end) = (start.min(width), end.clamp(start.min(width), width));
            let (plane, top) = (energies.p.wrapping_add(i * energies.plane), covered.start);
            if end - start < of.width && first == 0 {
                // No tile sees the other pixels.
                // SAFETY: the plane is within the allocated memory.
                unsafe { plane.write_bytes(0, covered.len() * of.width) };
            }
            for r in 0..height {
                let y = (OUT * rows.start + r) as isize - source.pad.0;
                let row = strip.wrapping_add(r * width * wide);
                let outside = y < 0 || y >= source.height as isize;
                let (start, end) = if outside { (width, width) } else { (start, end) };
                // SAFETY: the strip holds the pixels, and only elements of the plane are read.
                unsafe {
                    row.write_bytes(0, start * wide);
                    row.add(end * wide).write_bytes(0, (width - end) * wide);
                    if start < end {
                        let x = start as isize - of.pad.1;
                        (kernels.pack_pixels)(&PixelsToPack {
                            from: source.p.add(first * of.array.channel).offset(y * source.row as isize + x),
                            channel: of.array.channel,
                            channels,
                            pixels: end - start,
                            to: row.add(start * wide),
                            scales: energies.scales.add(first),
                            energies: plane.add((y as usize - top) * of.width + x as usize),
                            are_first: first == 0,
                        });
                    }
                }
            }
            for (r, phase) in (0..rows.len()).flat_map(|r| (0..tile_row.phases).map(move |phase| (r, phase)))
            {
                let tile = (i * rows.len() + r) * across + phase * tile_row.of_phase;
                let p = strip.wrapping_add((OUT * r * width + phase) * wide);
                let transform = Transform {
                    step,
                    tiles: tile_row.of_phase,
                    channels,
                    image: PixelGrid { p, row: width * wide, column: tile_row.dilation * wide },
                    factors: to.p.wrapping_add(first / wide * to.panel + tile * to.tile),
                    factor: to.factor,
                    tile: to.tile,
                };
                // SAFETY: the table was chosen for this machine; the factors are within their memory.
                unsafe { (kernels.transform)(&transform) };
            }
        }
    }
}

/// A convolution with 3 x 3 kernels and stride 1, or the gradient of its input, which is one, too.
pub(super) struct Winograd<'a, T> {
    /// The sizes of the convolution.
    pub(super) g: &'a Geometry,
    /// The planes that are read: of the input, or of the gradient of the output.
    pub(super) source: SourcePlanes<T>,
    /// The array that is written.
    target: *mut T,
    /// The strides of the target.
    pub(super) targets: Images,
    /// The planes of each image of the target.
    pub(super) phases: Phases,
    /// The weight of all groups.
    pub(super) weight: *const T,
    /// True for the output, false for the gradient of the input.
    pub(super) forward: bool,
    /// The epilogue, which is applied to each sum before it is stored.
    epilogue: Epilogue<'a, T>,
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Sync for Winograd<'_, T> {}

impl Geometry {
    /// Height and width of the input.
    fn input_size(&self) -> (usize, usize) {
        (self.input[0], self.input[1])
    }

    /// Height and width of the output.
    pub(super) fn output_size(&self) -> (usize, usize) {
        (self.output[0], self.output[1])
    }

    /// The planes of the input `x`, with its padding.
    pub(super) fn input_planes<T>(&self, x: *const T) -> SourcePlanes<T> {
        let (size, pad) = (self.input_size(), (self.pad[0] as isize, self.pad[1] as isize));
        SourcePlanes::new(x, self.inputs(), size, pad, self.output_phases())
    }

    /// The phases of the output.
    pub(super) fn output_phases(&self) -> Phases {
        Phases::new(self.output_size(), (self.dilation[0], self.dilation[1]))
    }

    /// The planes of the gradient `gy` of the output, with this padding, for a target with these phases.
    pub(super) fn output_planes<T>(
        &self,
        gy: *const T,
        pad: (isize, isize),
        phases: Phases,
    ) -> SourcePlanes<T> {
        SourcePlanes::new(gy, self.outputs(), self.output_size(), pad, phases)
    }
}

impl<'a, T: Float> Winograd<'a, T> {
    /// A convolution that computes the output.
    pub(super) fn forward(
        g: &'a Geometry,
        x: *const T,
        w: *const T,
        y: *mut T,
        epilogue: Epilogue<'a, T>,
    ) -> Self {
        let (source, targets, phases) = (g.input_planes(x), g.outputs(), g.output_phases());
        Self { g, source, target: y, targets, phases, weight: w, forward: true, epilogue }
    }

    /// A convolution that computes the gradient of the input.
    pub(super) fn backward(
        g: &'a Geometry,
        gy: *const T,
        w: *const T,
        gx: *mut T,
        epilogue: Epilogue<'a, T>,
    ) -> Self {
        let phases = Phases::new(g.input_size(), (g.dilation[0], g.dilation[1]));
        let pad = |i: usize| (2 * g.dilation[i]) as isize - g.pad[i] as isize;
        let pad = (pad(0), pad(1));
        let (source, targets) = (g.output_planes(gy, pad, phases), g.inputs());
        Self { g, source, target: gx, targets, phases, weight: w, forward: false, epilogue }
    }

    /// Computes the convolution. Returns false, and computes nothing, if the weights would cause large rounding
    /// errors.
    ///
    /// # Safety
    /// The arrays must be valid, and nothing else may use the target meanwhile.
    pub(super) unsafe fn run(&self, known: WeightCache<'_>) -> Result<bool, OutOfMemory> {
        let of = self.transforms();
        let Transforms { factor, panel, group } = of;
        let way = [size_of::<T>(), self.g.channels, self.g.group];
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        // The scales of sources are stored after the weights.
        let (behind, n_scales) = (self.g.group * group, self.g.group * sources);
        let kept = known.and_then(|(of, kept)| Some((kept.lend::<T>(of, way, behind + n_scales)?, kept)));
        if self.has_few_tiles() {
            let own = if kept.is_none() { Some(Workspace::<T>::new(n_scales)?) } else { None };
            let (scales, made) = match (&kept, &own) {
                (Some(((memory, made), _)), _) => (memory.ptr().wrapping_add(behind), *made),
                (None, own) => (own.as_ref().map_or(std::ptr::null_mut(), Workspace::ptr), false),
            };
            // SAFETY: guaranteed by the caller, and the memory holds the scales.
            return unsafe {
                if !made && !self.weigh(scales) {
                    return Ok(false);
                }
                self.run_by_panels(kept, scales)?;
                Ok(true)
            };
        }
        let wide = kernels::<T>().panel();
        let ((memory, made), kept) = match kept {
            Some((lent, kept)) => (lent, Some(kept)),
            None => ((Workspace::<T>::new(behind + n_scales)?, false), None),
        };
        let scales = Shared::new(memory.ptr().wrapping_add(behind));
        // SAFETY: as above.
        if !made && !unsafe { self.weigh(scales.get()) } {
            return Ok(false);
        }
        let weights = Shared::new(memory.ptr());
        if !made {
            parallel(self.g.group * sources, |i| {
                let (of, c) = (i / sources, i % sources);
                // SAFETY: each source has its own part of the memory.
                unsafe {
                    self.transform_weights((of, c), 0..targets, weights.get().add(of * group), factor, panel);
                };
            });
            if let Some(kept) = kept {
                kept.made();
            }
        }
        let tiles = Tiles::new(&self.phases, self.g.images, sources + targets, num_threads());
        parallel(tiles.blocks() * self.g.group, |task| {
            let (block, of) = (task / self.g.group, task % self.g.group);
            let p = weights.get().wrapping_add(of * group);
            // SAFETY: each task has its own part of the target.
            unsafe {
                let scales = scales.get().add(of * sources);
                self.block(&tiles, tiles.block(block), of, Factors { p, factor, tile: wide, panel }, scales);
            };
        });
        Ok(true)
    }

    /// The layout of all transformed weights.
    pub(super) fn transforms(&self) -> Transforms {
        let wide = kernels::<T>().panel();
        let panel = self.source.array.channels * wide;
        let factor = padded_stride(self.targets.channels.div_ceil(wide) * panel);
        Transforms { factor, panel, group: PRODUCTS * factor }
    }

    /// Transforms the weights of a source and some targets, from the first of a panel on.
    ///
    /// # Safety
    /// `to` must have space for the factors.
    pub(super) unsafe fn transform_weights(
        &self,
        (group, source): (usize, usize),
        targets: Range<usize>,
        to: *mut T,
        factor: usize,
        panel: usize,
    ) {
        let (kernels, g) = (kernels::<T>(), self.g);
        let wide = kernels.panel();
        let (map, channel) = (g.channels / g.group * 9, 9);
        let (of_source, of_target) = if self.forward { (channel, map) } else { (map, channel) };
        let first = group * (g.maps / g.group) * map + source * of_source;
        for target in targets.clone().step_by(wide / 2) {
            let at = target - targets.start;
            let transform = WeightTransform {
                weights: self.weight.wrapping_add(first + target * of_target).cast_mut(),
                apart: of_target,
                targets: targets.end - target,
                flipped: !self.forward,
                factors: to.wrapping_add(at / wide * panel + source * wide + at % wide),
                factor,
                back: None,
            };
            // SAFETY: the table was chosen for this machine, the weights are valid, and the caller guarantees the
            // space.
            unsafe { (isa::kernels::<T>().transform_weights)(&transform) };
        }
    }

    /// Computes some rows of tiles of some planes.
    unsafe fn block(
        &self,
        tiles: &Tiles,
        (planes, rows): (Range<usize>, Range<usize>),
        group: usize,
        weights: Factors<T>,
        scales: *const T,
    ) {
        let wide = kernels::<T>().panel();
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        let (of_source, of_target) = (whole::<T>(sources), whole::<T>(targets));
        let (inputs, outputs) =
            (padded_stride(tiles.most * of_source), padded_stride(tiles.most * of_target));
        // The pixels of inputs and outputs use the same scratch memory.
        let strip = (OUT * (rows.len() - 1) + IN) * tiles.row.columns(IN) * wide;
        let (all, plane) = Energies::<T>::memory(planes.len(), rows.len(), self.source.width);
        scratch::with(all + strip + PRODUCTS * (inputs + outputs) + SLACK, |memory: &mut [T]| {
            let (all, memory) = memory.split_at_mut(all);
            let energies = Energies { scales, p: all.as_mut_ptr(), plane };
            let strip_at = memory.as_mut_ptr();
            let p = strip_at.wrapping_add(strip.next_multiple_of(SLACK));
            let v = Factors { p, factor: inputs, tile: of_source, panel: wide };
            let p = p.wrapping_add(PRODUCTS * inputs);
            let m = Factors { p, factor: outputs, tile: of_target, panel: wide };
            let of_plane = rows.len() * tiles.across;
            let mut flags = List::repeat(false, planes.len() * of_plane);
            // SAFETY: the memory holds all; the rest is guaranteed by the caller.
            unsafe {
                factors(
                    &self.source,
                    (TransformStep::Input, IN),
                    tiles.row,
                    (&planes, &rows),
                    group,
                    strip_at,
                    v,
                    &energies,
                );
                for (i, (plane, flags)) in planes.clone().zip(flags.chunks_exact_mut(of_plane)).enumerate() {
                    let (energies, size) = ((&energies, i), self.phases.size(plane));
                    self.source.find_uneven((plane, group), &rows, size, energies, false, flags);
                }
                for q in 0..PRODUCTS {
                    PanelProduct {
                        kernels: kernels(),
                        m: planes.len() * of_plane,
                        n: targets,
                        k: sources,
                        a: MatrixOperand { p: v.p.add(q * inputs), row: of_source as isize, col: 1 },
                        b: Panels { p: weights.p.add(q * weights.factor), row: wide, next: weights.panel },
                        table: Table::None,
                        batch: ONCE,
                        c: m.p.add(q * outputs),
                        c_row: of_target,
                        epilogue: Epilogue::NONE,
                    }
                    .run_in_chains(chain(sources));
                }
                for first in (0..targets).step_by(wide) {
                    for (i, plane) in planes.clone().enumerate() {
                        let flags = &flags[i * of_plane..][..of_plane];
                        self.results(tiles, (i * of_plane, flags), plane, &rows, group, first, strip_at, m);
                    }
                }
            }
        });
    }

    /// Transforms products to outputs, for some rows of tiles of a plane and a panel of target channels. Flagged tiles
    /// are computed directly.
    pub(super) unsafe fn results(
        &self,
        tiles: &Tiles,
        (tile, flags): (usize, &[bool]),
        plane: usize,
        rows: &Range<usize>,
        group: usize,
        first: usize,
        strip: *mut T,
        m: Factors<T>,
    ) {
        let (kernels, wide) = (isa::kernels::<T>(), kernels::<T>().panel());
        let ((height, width), t) = (self.phases.size(plane), &self.targets);
        let channels = wide.min(t.channels - first);
        let columns = tiles.row.columns(OUT);
        let (image, top, row) = self.phases.place(plane);
        let target = self.target.wrapping_add(image * t.image + group * t.group + first * t.channel + top);
        let planes = |y: usize, pixels: usize| {
            let order = ToPlanes {
                from: strip.wrapping_add((y - OUT * rows.start) * columns * wide),
                pixel: wide,
                pixels,
                channels,
                to: target.wrapping_add(y * row),
                plane: t.channel,
                end: self.epilogue.part(group * t.channels + first, 0),
            };
            // SAFETY: the table was chosen for this machine, and the pixels are within the strip and the target.
            unsafe { (kernels.to_planes)(&order) };
        };
        let TileRow { phases, of_phase, dilation } = tiles.row;
        for (r, phase) in (0..rows.len()).flat_map(|r| (0..phases).map(move |phase| (r, phase))) {
            let tile = tile + r * tiles.across + phase * of_phase;
            let transform = Transform {
                step: TransformStep::Output,
                tiles: of_phase,
                channels,
                image: PixelGrid {
                    p: strip.wrapping_add((OUT * r * columns + phase) * wide),
                    row: columns * wide,
                    column: dilation * wide,
                },
                factors: m.p.wrapping_add(first / wide * m.panel + tile * m.tile),
                factor: m.factor,
                tile: m.tile,
            };
            // SAFETY: as above.
            unsafe { (kernels.transform)(&transform) };
        }
        if flags.contains(&true) {
            let (targets, to) =
                (first..first + channels, PixelGrid { p: strip, row: columns * wide, column: wide });
            // SAFETY: as above.
            unsafe { self.mend(tiles, (plane, group), rows, targets, flags, to) };
        }
        // A phase may be shorter than the first one.
        let (start, end) = ((OUT * rows.start).min(height), (OUT * rows.end).min(height));
        if columns == width && row == width {
            planes(start, (end - start) * width);
        } else {
            (start..end).for_each(|y| planes(y, width));
        }
        let finish = |y: usize, pixels: usize| {
            // SAFETY: these rows of the target were just written, and belong to this task alone.
            unsafe { self.epilogue.tail.finish(target.wrapping_add(y * row), t.channel, channels, pixels) };
        };
        if row == width {
            finish(start, (end - start) * width);
        } else {
            (start..end).for_each(|y| finish(y, width));
        }
    }
}
