//! Winograd's way to convolve with 3 x 3 taps that move by one: tiles of 4 x 4 outputs from 36 products instead of 144,
//! at the price of more rounding. Tiles that would round too much are computed directly, see [`uneven`](super::uneven). Blocks
//! of tiles are transformed in the cache; the products are sums over channels.

use std::ops::Range;

use super::direct::Images;
use super::energies::PixelsToPack;
use super::strip::{SLACK, apart};
use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, PixelGrid, ToPlanes, Transform, TransformStep, WeightTransform};
use super::uneven::{Energies, covered};
use super::{Geometry, Known, isa};
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, num_threads, parallel};
use crate::kernels::{Float, scratch};

/// Images of planes that are seen through a window shifted by `pad`.
#[derive(Clone, Copy)]
pub(super) struct SourcePlanes<T> {
    pub(super) p: *const T,
    pub(super) array: Images,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) pad: (isize, isize),
}

/// Factors of the tiles of a block: the first one of the first tile, and the distance of factors and of tiles. Channels
/// lie in panels that are `panel` apart.
#[derive(Clone, Copy)]
pub(super) struct Factors<T> {
    pub(super) p: *mut T,
    pub(super) factor: usize,
    pub(super) tile: usize,
    pub(super) panel: usize,
}

impl<T: Float> Factors<T> {
    /// Sets the factors of some channels of a tile to zero.
    ///
    /// # Safety
    /// The factors are there, and are of the caller alone.
    pub(super) unsafe fn clear(&self, tile: usize, channels: usize) {
        let wide = kernels::<T>().panel();
        for (q, first) in (0..PRODUCTS).flat_map(|q| (0..channels).step_by(wide).map(move |c| (q, c))) {
            let at = first / wide * self.panel + q * self.factor + tile * self.tile;
            // SAFETY: the caller's promise.
            unsafe { self.p.add(at).write_bytes(0, wide.min(channels - first)) };
        }
    }
}

/// The distance of factors of transformed weights, of panels of targets, and of groups.
pub(super) struct Transforms {
    pub(super) factor: usize,
    pub(super) panel: usize,
    pub(super) group: usize,
}

/// The most channels, or tiles, whose products are added up before they are added to the sum of those before.
pub(super) const CHAIN: usize = 16;
/// Channels rounded up to whole registers.
pub(super) fn whole<T: Float>(channels: usize) -> usize {
    channels.next_multiple_of(kernels::<T>().panel() / 2)
}

/// Transforms `side` x `side` pixels of each tile of some rows of tiles of some images into factors. `strip` has room for
/// the pixels of one image and panel. Computes the energies of the pixels on the way.
pub(super) unsafe fn factors<T: Float>(
    of: &SourcePlanes<T>,
    (step, side): (TransformStep, usize),
    across: usize,
    (images, rows): (&Range<usize>, &Range<usize>),
    group: usize,
    strip: *mut T,
    to: Factors<T>,
    energies: &Energies<T>,
) {
    let (kernels, wide) = (isa::kernels::<T>(), kernels::<T>().panel());
    let (height, width) = (OUT * (rows.len() - 1) + side, OUT * (across - 1) + side);
    let covered = covered(rows, side, of.pad.0, of.height);
    for first in (0..of.array.channels).step_by(wide) {
        let channels = wide.min(of.array.channels - first);
        for (i, image) in images.clone().enumerate() {
            let at = image * of.array.image + group * of.array.group + first * of.array.channel;
            // Pixels of padding are zeros, the others come channel by channel.
            let (start, end) = (of.pad.1.max(0) as usize, (of.width as isize + of.pad.1).max(0) as usize);
            let (start, end) = (start.min(width), end.clamp(start.min(width), width));
            let (plane, top) = (energies.p.wrapping_add(i * energies.plane), covered.start);
            if end - start < of.width && first == 0 {
                // No tile sees the other pixels.
                // SAFETY: there is room for the plane.
                unsafe { plane.write_bytes(0, covered.len() * of.width) };
            }
            for r in 0..height {
                let y = (OUT * rows.start + r) as isize - of.pad.0;
                let row = strip.wrapping_add(r * width * wide);
                let outside = y < 0 || y >= of.height as isize;
                let (start, end) = if outside { (width, width) } else { (start, end) };
                // SAFETY: the strip has room for the pixels; what is read lies in the plane.
                unsafe {
                    row.write_bytes(0, start * wide);
                    row.add(end * wide).write_bytes(0, (width - end) * wide);
                    if start < end {
                        let x = start as isize - of.pad.1;
                        (kernels.pack_pixels)(&PixelsToPack {
                            from: of.p.add(at).offset(y * of.width as isize + x),
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
            for r in 0..rows.len() {
                let tile = (i * rows.len() + r) * across;
                let p = strip.wrapping_add(OUT * r * width * wide);
                let transform = Transform {
                    step,
                    tiles: across,
                    channels,
                    image: PixelGrid { p, row: width * wide, column: wide },
                    factors: to.p.wrapping_add(first / wide * to.panel + tile * to.tile),
                    factor: to.factor,
                    tile: to.tile,
                };
                // SAFETY: the table was chosen for this machine; there is room for the factors.
                unsafe { (kernels.transform)(&transform) };
            }
        }
    }
}

/// A convolution with 3 x 3 taps that move by one, or the gradient of its input, which is another.
pub(super) struct Winograd<'a, T> {
    pub(super) g: &'a Geometry,
    pub(super) source: SourcePlanes<T>,
    target: *mut T,
    pub(super) targets: Images,
    /// Height and width of the target.
    pub(super) size: (usize, usize),
    pub(super) weight: *const T,
    pub(super) forward: bool,
    epilogue: Epilogue<'a, T>,
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Sync for Winograd<'_, T> {}

impl Geometry {
    /// Whether Winograd's way is a way to compute this convolution.
    pub(super) fn fits_winograd(&self) -> bool {
        let all = |v: &[usize], n: usize| v.iter().all(|v| *v == n);
        self.input.len() == 2
            && all(&self.kernel, 3)
            && all(&self.stride, 1)
            && all(&self.dilation, 1)
            && !self.channel_last
            && self.images * self.channels * self.maps * self.area() * self.positions() > 0
    }

    fn input_size(&self) -> (usize, usize) {
        (self.input[0], self.input[1])
    }

    pub(super) fn output_size(&self) -> (usize, usize) {
        (self.output[0], self.output[1])
    }

    pub(super) fn input_planes<T>(&self, x: *const T) -> SourcePlanes<T> {
        let ((height, width), pad) = (self.input_size(), (self.pad[0] as isize, self.pad[1] as isize));
        SourcePlanes { p: x, array: self.inputs(), height, width, pad }
    }

    pub(super) fn output_planes<T>(&self, gy: *const T, pad: (isize, isize)) -> SourcePlanes<T> {
        let (height, width) = self.output_size();
        SourcePlanes { p: gy, array: self.outputs(), height, width, pad }
    }
}

impl<'a, T: Float> Winograd<'a, T> {
    pub(super) fn forward(
        g: &'a Geometry,
        x: *const T,
        w: *const T,
        y: *mut T,
        epilogue: Epilogue<'a, T>,
    ) -> Self {
        let (source, targets, size) = (g.input_planes(x), g.outputs(), g.output_size());
        Self { g, source, target: y, targets, size, weight: w, forward: true, epilogue }
    }

    pub(super) fn backward(
        g: &'a Geometry,
        gy: *const T,
        w: *const T,
        gx: *mut T,
        epilogue: Epilogue<'a, T>,
    ) -> Self {
        let pad = (2 - g.pad[0] as isize, 2 - g.pad[1] as isize);
        let (source, targets, size) = (g.output_planes(gy, pad), g.inputs(), g.input_size());
        Self { g, source, target: gx, targets, size, weight: w, forward: false, epilogue }
    }

    /// Computes the convolution. False if nothing was done, as the weights must go the direct way.
    ///
    /// # Safety
    /// The arrays are there, and nobody else uses the target meanwhile.
    pub(super) unsafe fn run(&self, known: Known<'_>) -> Result<bool, OutOfMemory> {
        let of = self.transforms();
        let Transforms { factor, panel, group } = of;
        let way = [size_of::<T>(), self.g.channels, self.g.group];
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        // The scales of sources come behind the weights.
        let (behind, n_scales) = (self.g.group * group, self.g.group * sources);
        let kept = known.and_then(|(name, kept)| Some((kept.lend::<T>(name, way, behind + n_scales)?, kept)));
        if self.is_of_few_tiles() {
            let own = if kept.is_none() { Some(Workspace::<T>::new(n_scales)?) } else { None };
            let (scales, made) = match (&kept, &own) {
                (Some(((memory, made), _)), _) => (memory.ptr().wrapping_add(behind), *made),
                (None, own) => (own.as_ref().map_or(std::ptr::null_mut(), Workspace::ptr), false),
            };
            // SAFETY: the caller's promise; there is room for the scales.
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
                // SAFETY: each source has its own place in memory that has room for all.
                unsafe {
                    self.transform_weights((of, c), 0..targets, weights.get().add(of * group), factor, panel);
                };
            });
            if let Some(kept) = kept {
                kept.made();
            }
        }
        let tiles = Tiles::new(self.g.images, self.size, sources + targets, num_threads());
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

    /// How transformed weights lie in memory that has room for all.
    pub(super) fn transforms(&self) -> Transforms {
        let wide = kernels::<T>().panel();
        let panel = self.source.array.channels * wide;
        let factor = apart(self.targets.channels.div_ceil(wide) * panel);
        Transforms { factor, panel, group: PRODUCTS * factor }
    }

    /// Transforms the weights of a source and of some targets, of which the first is the first of a panel.
    ///
    /// # Safety
    /// There is room for the factors from `to` on.
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
            // SAFETY: the table was chosen for this machine; the weights are there, and the caller has room.
            unsafe { (isa::kernels::<T>().transform_weights)(&transform) };
        }
    }

    unsafe fn block(
        &self,
        tiles: &Tiles,
        (images, rows): (Range<usize>, Range<usize>),
        group: usize,
        weights: Factors<T>,
        scales: *const T,
    ) {
        let wide = kernels::<T>().panel();
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        let (of_source, of_target) = (whole::<T>(sources), whole::<T>(targets));
        let (inputs, outputs) = (apart(tiles.most * of_source), apart(tiles.most * of_target));
        // The strip serves the pixels of both sides.
        let strip = (OUT * (rows.len() - 1) + IN) * (OUT * (tiles.across - 1) + IN) * wide;
        let (planes, plane) = Energies::<T>::memory(images.len(), rows.len(), self.source.width);
        scratch::with(planes + strip + PRODUCTS * (inputs + outputs) + SLACK, |memory: &mut [T]| {
            let (planes, memory) = memory.split_at_mut(planes);
            let energies = Energies { scales, p: planes.as_mut_ptr(), plane };
            let strip_at = memory.as_mut_ptr();
            let p = strip_at.wrapping_add(strip.next_multiple_of(SLACK));
            let v = Factors { p, factor: inputs, tile: of_source, panel: wide };
            let p = p.wrapping_add(PRODUCTS * inputs);
            let m = Factors { p, factor: outputs, tile: of_target, panel: wide };
            let of_image = rows.len() * tiles.across;
            let mut flags = List::repeat(false, images.len() * of_image);
            // SAFETY: there is room for all; the rest is the caller's promise.
            unsafe {
                factors(
                    &self.source,
                    (TransformStep::Input, IN),
                    tiles.across,
                    (&images, &rows),
                    group,
                    strip_at,
                    v,
                    &energies,
                );
                for (i, (image, flags)) in images.clone().zip(flags.chunks_exact_mut(of_image)).enumerate() {
                    let energies = (&energies, i);
                    self.source.find_uneven((image, group), &rows, self.size, energies, false, flags);
                }
                for q in 0..PRODUCTS {
                    PanelProduct {
                        m: images.len() * of_image,
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
                    .run_in_chains(CHAIN);
                }
                for first in (0..targets).step_by(wide) {
                    for (i, image) in images.clone().enumerate() {
                        let flags = &flags[i * of_image..][..of_image];
                        self.results(tiles, (i * of_image, flags), image, &rows, group, first, strip_at, m);
                    }
                }
            }
        });
    }

    /// From the products of some rows of tiles to a panel of channels of the target. The tiles that are flagged are
    /// computed directly.
    pub(super) unsafe fn results(
        &self,
        tiles: &Tiles,
        (tile, flags): (usize, &[bool]),
        image: usize,
        rows: &Range<usize>,
        group: usize,
        first: usize,
        strip: *mut T,
        m: Factors<T>,
    ) {
        let (kernels, wide, (height, width)) = (isa::kernels::<T>(), kernels::<T>().panel(), self.size);
        let channels = wide.min(self.targets.channels - first);
        let columns = OUT * tiles.across;
        let planes = |y: usize, pixels: usize| {
            let t = &self.targets;
            let at = image * t.image + group * t.group + first * t.channel;
            let order = ToPlanes {
                from: strip.wrapping_add((y - OUT * rows.start) * columns * wide),
                pixel: wide,
                pixels,
                channels,
                to: self.target.wrapping_add(at + y * width),
                plane: t.channel,
                end: self.epilogue.part(group * t.channels + first, 0),
            };
            // SAFETY: the table was chosen for this machine; the pixels lie in the strip and in the target.
            unsafe { (kernels.to_planes)(&order) };
        };
        for r in 0..rows.len() {
            let transform = Transform {
                step: TransformStep::Output,
                tiles: tiles.across,
                channels,
                image: PixelGrid {
                    p: strip.wrapping_add(OUT * r * columns * wide),
                    row: columns * wide,
                    column: wide,
                },
                factors: m.p.wrapping_add(first / wide * m.panel + (tile + r * tiles.across) * m.tile),
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
            unsafe { self.mend(tiles, (image, group), rows, targets, flags, to) };
        }
        let (start, end) = (OUT * rows.start, (OUT * rows.end).min(height));
        if columns == width {
            planes(start, (end - start) * width);
        } else {
            (start..end).for_each(|y| planes(y, width));
        }
        let t = &self.targets;
        let at = image * t.image + group * t.group + first * t.channel + start * width;
        // SAFETY: these rows of the target were just written, and are of this task alone.
        unsafe {
            let n = (end - start) * width;
            self.epilogue.tail.finish(self.target.add(at), t.channel, channels, n);
        }
    }
}
