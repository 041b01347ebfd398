//! The tiles that Winograd's algorithm cannot compute well, and their direct sums.
//!
//! A tile shares 36 inputs among 16 outputs, so that each output gets rounding errors of all 36. That does no harm while
//! the nine inputs of an output are about as large as the others. It does where one input is infinite or very large, and
//! where an output sees zeros only. Such tiles are found by the energy of their pixels, the sum of the squares over
//! channels, and are computed as the definition says.

use std::ops::Range;

use super::energies::{EnergyPlane, EnergyRange, PixelEnergies, TOGETHER, energies, least};
use super::tiles::Tiles;
use super::transforms::{IN, OUT, PixelGrid};
use super::{Factors, SourcePlanes, Winograd};
use crate::kernels::convolution::geometry::Geometry;
use crate::kernels::convolution::implicit_gemm::packed_planes::SLACK;
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};

/// The most by which the energy of a tile may exceed that of the nine inputs of an output. It is four where all pixels
/// have the same energy, and the error of Winograd's algorithm grows with its root: at most by a factor of 16.
const RATIO: f64 = 1024.0;
/// The most by which the energy of one pixel of a gradient may exceed that of the rest of its tile.
const SHARE: f64 = 1024.0;
/// Numbers are scaled before they are squared: squares neither vanish nor overflow from 1e-25 to 1e13.
const SCALE: f64 = (1 << 20) as f64;
/// The least energy of weights that are not too small for this.
const LEAST: f64 = 1e-30;
/// The most terms of a direct sum that are added up before they are added to those before.
const CHAIN: usize = 256;
const TAPS: usize = 9;
/// Outputs of a tile.
const OUTPUTS: usize = OUT * OUT;
/// Columns of weights that a thread adds up at a time.
const COLUMNS: usize = 64 * TAPS;

/// True if there are numbers on one side of zero and none on the other.
pub(in super::super) fn have_one_sign<'a, T: Float>(values: impl IntoIterator<Item = &'a T>) -> bool {
    let (mut above, mut below) = (false, false);
    for v in values {
        above |= *v > T::ZERO;
        below |= *v < T::ZERO;
        if above && below {
            return false;
        }
    }
    above || below
}

/// Scales for energies where channels have no weights.
pub(super) fn even_scales<T: Float>(channels: usize) -> List<T> {
    List::repeat(T::all(SCALE), channels)
}

/// The energies of the pixels that some rows of tiles see, for some images: a plane for each.
#[derive(Clone, Copy)]
pub(super) struct Energies<T> {
    /// A scale for each channel.
    pub(super) scales: *const T,
    /// The first plane.
    pub(super) p: *mut T,
    /// The distance of planes.
    pub(super) plane: usize,
}

/// The rows of a plane that `side` pixels of each tile in some rows of tiles cover, where tiles start `pad` rows above.
pub(super) fn covered(rows: &Range<usize>, side: usize, pad: isize, height: usize) -> Range<usize> {
    let clip = |y: usize| (y as isize - pad).clamp(0, height as isize) as usize;
    clip(OUT * rows.start)..clip(OUT * (rows.end - 1) + side)
}

impl<T: Float> Energies<T> {
    /// Elements of memory for the planes of some images of up to so many rows of tiles, and the distance of planes.
    pub(super) fn memory(images: usize, rows: usize, width: usize) -> (usize, usize) {
        let plane = (OUT * rows + 2) * width;
        ((images * plane).next_multiple_of(SLACK), plane)
    }

    /// The energies of an image, of so many pixels.
    ///
    /// # Safety
    /// They were computed.
    unsafe fn of(&self, image: usize, pixels: usize) -> &[T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.p.add(image * self.plane), pixels) }
    }
}

/// The range of some energies; with a width, the least sum of four pixels, too.
fn range<T: Float>(energies: &[T], width: Option<usize>) -> EnergyRange<T> {
    let order = EnergyPlane { p: energies.as_ptr(), pixels: energies.len(), width };
    // SAFETY: the table was chosen for this machine; the energies are there.
    unsafe { (isa::kernels::<T>().energy_range)(&order) }
}

/// Pixels of a plane of energies, which are zero outside the plane.
struct Padded<'a, T> {
    of: &'a [T],
    width: usize,
    /// The row and the column of the plane that the first pixel is.
    at: (isize, isize),
}

impl<T: Float> Padded<'_, T> {
    /// Writes the pixels of a row.
    fn row(&self, r: usize, to: &mut [T]) {
        let (y, x) = (self.at.0 + r as isize, self.at.1);
        to.fill(T::ZERO);
        let from = usize::try_from(y).ok().and_then(|y| self.of.get(y * self.width..(y + 1) * self.width));
        let start = (-x).max(0) as usize;
        if let (Some(from), Some(to)) = (from, to.get_mut(start..)) {
            let from = from.get((start as isize + x) as usize..).unwrap_or_default();
            to.iter_mut().zip(from).for_each(|(to, v)| *to = *v);
        }
    }
}

impl<T: Float> SourcePlanes<T> {
    /// Finds the uneven tiles among some rows of tiles over a target of a certain size, from the energies of image `i` of a
    /// block. True if there is one.
    ///
    /// With `by_taps`, in tiles that reach beyond the target, what each tap sees must be even too: its few pixels are not
    /// seen by all taps. They are compared with the least pixel of these rows.
    ///
    /// # Safety
    /// The planes are there, and the energies were computed.
    pub(super) unsafe fn find_uneven(
        &self,
        (image, group): (usize, usize),
        rows: &Range<usize>,
        size: (usize, usize),
        (energies, i): (&Energies<T>, usize),
        by_taps: bool,
        flags: &mut [bool],
    ) -> bool {
        flags.fill(false);
        let across = flags.len() / rows.len();
        let covered = covered(rows, IN, self.pad.0, self.height);
        let (top, width, deep) = (covered.start, OUT * across, OUT * rows.len() + 2);
        if covered.is_empty() || self.width == 0 {
            return false;
        }
        // SAFETY: the caller's promise.
        let plane = unsafe { energies.of(i, covered.len() * self.width) };
        let first = self.at(image, group);
        // With so little padding each output sees four such pixels.
        let has_fours = self.pad.0.max(self.pad.1) <= 1 && covered.len() > 1 && self.width > 1;
        let extremes = range(plane, has_fours.then_some(self.width));
        // Mostly all pixels are similar, and nothing else is to be done.
        let tile = extremes.most * T::all((IN * IN) as f64);
        if extremes.sum < T::INFINITY && extremes.four > T::ZERO && tile <= T::all(RATIO) * extremes.four {
            let is_whole = size.0 % OUT + size.1 % OUT == 0;
            if !by_taps || is_whole || extremes.are_within(RATIO) {
                return false;
            }
        }
        let at = ((OUT * rows.start) as isize - self.pad.0 - top as isize, -self.pad.1);
        let padded = Padded { of: plane, width: self.width, at };
        scratch::with((deep + 3) * width + 2, |memory: &mut [T]| {
            let (row, memory) = memory.split_at_mut(width + 2);
            // Sums of three neighbours of a row. For a row of tiles, column by column, the least sum of nine that an output
            // sees, and the sum of all rows.
            let (threes, memory) = memory.split_at_mut(deep * width);
            let (fewest, all) = memory.split_at_mut(width);
            for (r, threes) in threes.chunks_exact_mut(width).enumerate() {
                padded.row(r, row);
                let of = row.iter().zip(&row[1..]).zip(&row[2..]);
                threes.iter_mut().zip(of).for_each(|(three, ((a, b), c))| *three = *a + *b + *c);
            }
            let mut any = false;
            for (i, flags) in flags.chunks_exact_mut(across).enumerate() {
                let of = |r: usize| &threes[(OUT * i + r) * width..][..width];
                let outputs = (size.0 - OUT * (rows.start + i)).min(OUT);
                fewest.fill(T::INFINITY);
                all.copy_from_slice(of(0));
                for r in 1..IN {
                    all.iter_mut().zip(of(r)).for_each(|(all, v)| *all = *all + *v);
                }
                for y in 0..outputs {
                    let nines = of(y).iter().zip(of(y + 1)).zip(of(y + 2));
                    let nines = nines.map(|((a, b), c)| *a + *b + *c);
                    fewest.iter_mut().zip(nines).for_each(|(few, nine)| *few = least(*few, nine));
                }
                for (t, flag) in flags.iter_mut().enumerate() {
                    let columns = OUT * t..(OUT * (t + 1)).min(size.1);
                    let all = all[OUT * t] + all[OUT * t + 3];
                    let is_partial = by_taps && outputs * columns.len() < OUTPUTS;
                    let few = fewest[columns].iter().copied().fold(T::INFINITY, least);
                    let few =
                        if is_partial { least(few, extremes.least * T::all((IN * IN) as f64)) } else { few };
                    *flag = if all > T::ZERO {
                        !(all < T::INFINITY && all <= T::all(RATIO) * few)
                    } else {
                        all != T::ZERO || !self.is_blank(first, (rows.start + i, t))
                    };
                    any |= *flag;
                }
            }
            any
        })
    }

    /// The first pixel of an image and a group.
    fn at(&self, image: usize, group: usize) -> *const T {
        self.p.wrapping_add(image * self.array.image + group * self.array.group)
    }

    /// The pixels of a plane that lie in a tile.
    fn pixels_of(&self, tile: (usize, usize)) -> (Range<usize>, Range<usize>) {
        let clip = |t: usize, pad: isize, end: usize| {
            let start = (OUT * t) as isize - pad;
            start.clamp(0, end as isize) as usize..(start + IN as isize).clamp(0, end as isize) as usize
        };
        (clip(tile.0, self.pad.0, self.height), clip(tile.1, self.pad.1, self.width))
    }

    /// True if a tile of the image and group that start at `first` has zeros only.
    fn is_blank(&self, first: *const T, tile: (usize, usize)) -> bool {
        let (ys, xs) = self.pixels_of(tile);
        (0..self.array.channels).all(|c| {
            ys.clone().all(|y| {
                let row = first.wrapping_add(c * self.array.channel + y * self.width);
                // SAFETY: these pixels lie in the plane.
                xs.clone().all(|x| unsafe { *row.add(x) } == T::ZERO)
            })
        })
    }

    /// Writes the inputs of each output of a tile, a row of channels and taps each. Rows are zero for outputs beyond `size`.
    ///
    /// # Safety
    /// The planes are there.
    unsafe fn gather(
        &self,
        (image, group): (usize, usize),
        tile: (usize, usize),
        size: (usize, usize),
        seen: &mut [T],
    ) {
        let (first, depth) = (self.at(image, group), self.array.channels * TAPS);
        seen.fill(T::ZERO);
        for (o, seen) in seen.chunks_exact_mut(depth).enumerate() {
            let (y, x) = (OUT * tile.0 + o / OUT, OUT * tile.1 + o % OUT);
            if y >= size.0 || x >= size.1 {
                continue;
            }
            for t in 0..TAPS {
                let (y, x) = ((y + t / 3) as isize - self.pad.0, (x + t % 3) as isize - self.pad.1);
                if (0..self.height as isize).contains(&y) && (0..self.width as isize).contains(&x) {
                    let from = first.wrapping_offset(y * self.width as isize + x);
                    for (c, seen) in seen.iter_mut().skip(t).step_by(TAPS).enumerate() {
                        // SAFETY: the pixel lies in the plane.
                        *seen = unsafe { *from.add(c * self.array.channel) };
                    }
                }
            }
        }
    }
}

/// Uneven tiles of an image of an output gradient: those in which the energy of one pixel is far above that of the others.
/// Adds them to `flags`.
fn find_dominated<T: Float>(
    gy: &SourcePlanes<T>,
    at: (usize, usize),
    rows: &Range<usize>,
    plane: &[T],
    flags: &mut [bool],
) {
    let across = flags.len() / rows.len();
    let extremes = range(plane, None);
    if extremes.are_within(SHARE) {
        return;
    }
    for (t, flag) in flags.iter_mut().enumerate() {
        let (row, column) = (t / across, OUT * (t % across));
        let (mut most, mut sum, mut pixels) = (T::ZERO, T::ZERO, 0);
        for row in plane.chunks_exact(gy.width).skip(OUT * row).take(OUT) {
            let row = &row[column..(column + OUT).min(gy.width)];
            pixels += row.len();
            for v in row {
                most = if *v > most { *v } else { most };
                sum = sum + *v;
            }
        }
        // The few pixels of a tile that reaches beyond the plane are not seen by all taps.
        let others = if pixels < OUTPUTS { extremes.least } else { sum - most };
        let first = gy.at(at.0, at.1);
        *flag |= if sum > T::ZERO {
            !(sum < T::INFINITY && most <= T::all(SHARE) * others)
        } else {
            sum != T::ZERO || !gy.is_blank(first, (rows.start + row, t % across))
        };
    }
}

/// Which tiles of a gradient of the weight go the direct way, and its sums.
pub(super) struct UnevenTerms<'a, T> {
    pub(super) g: &'a Geometry,
    pub(super) x: &'a SourcePlanes<T>,
    pub(super) gy: &'a SourcePlanes<T>,
    /// The energies of a block of `x` and of `gy`.
    pub(super) energies: [Energies<T>; 2],
}

impl<T: Float> UnevenTerms<'_, T> {
    /// Finds the tiles of image `i` of a block. True if there is one.
    ///
    /// # Safety
    /// As [`SourcePlanes::find_uneven`].
    unsafe fn find(&self, at: (usize, usize), i: usize, rows: &Range<usize>, flags: &mut [bool]) -> bool {
        let [x, gy] = &self.energies;
        let pixels = covered(rows, OUT, 0, self.gy.height).len() * self.gy.width;
        // SAFETY: the caller's promise.
        unsafe {
            self.x.find_uneven(at, rows, self.g.output_size(), (x, i), true, flags);
            find_dominated(self.gy, at, rows, gy.of(i, pixels), flags);
        }
        flags.contains(&true)
    }

    /// Sets the factors of uneven tiles of a block to zero, and adds what they contribute to `sums`, which are zeros where
    /// `is_used` is not yet set.
    ///
    /// # Safety
    /// As [`UnevenTerms::add`] and [`SourcePlanes::find_uneven`]; the factors of both sides are the caller's, too.
    pub(super) unsafe fn take_out(
        &self,
        tiles: &Tiles,
        (images, rows): (&Range<usize>, &Range<usize>),
        group: usize,
        (v, d): (&Factors<T>, &Factors<T>),
        (is_used, sums, row): (*mut bool, *mut T, usize),
    ) {
        let (channels, maps, of_image) =
            (self.x.array.channels, self.gy.array.channels, rows.len() * tiles.across);
        let mut flags = List::repeat(false, of_image);
        for (n, image) in images.clone().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                if !self.find((image, group), n, rows, &mut flags) {
                    continue;
                }
                if !is_used.replace(true) {
                    sums.write_bytes(0, TAPS * channels * row);
                }
                for (t, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
                    self.add((image, group), (rows.start + t / tiles.across, t % tiles.across), sums, row);
                    v.clear(n * of_image + t, channels);
                    d.clear(n * of_image + t, maps);
                }
            }
        }
    }

    /// Adds what a tile contributes: a row of maps for each channel and tap, `sums_row` apart.
    ///
    /// # Safety
    /// The arrays are there, and nobody else uses the sums meanwhile.
    unsafe fn add(&self, at: (usize, usize), tile: (usize, usize), sums: *mut T, sums_row: usize) {
        let (depth, maps, wide) =
            (self.x.array.channels * TAPS, self.gy.array.channels, kernels::<T>().panel());
        let (height, width) = self.g.output_size();
        let outputs = OUTPUTS * maps.next_multiple_of(wide);
        scratch::with(OUTPUTS * depth + outputs + SLACK, |memory: &mut [T]| {
            let (right, left) = memory.split_at_mut(outputs);
            let left = &mut left[..OUTPUTS * depth];
            right.fill(T::ZERO);
            for o in 0..OUTPUTS {
                let (y, x) = (OUT * tile.0 + o / OUT, OUT * tile.1 + o % OUT);
                if y < height && x < width {
                    let from = self.gy.at(at.0, at.1).wrapping_add(y * width + x);
                    for map in 0..maps {
                        // SAFETY: the pixel lies in the plane.
                        right[(map / wide * OUTPUTS + o) * wide + map % wide] =
                            unsafe { *from.add(map * self.gy.array.channel) };
                    }
                }
            }
            // SAFETY: the caller's promise.
            unsafe {
                self.x.gather(at, tile, (height, width), left);
                PanelProduct {
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
    /// The weights of a source, as nine and nine, and the distance of targets.
    fn weights_of(&self, group: usize, target: usize) -> impl Iterator<Item = *const T> {
        let (channels, maps) = (self.g.channels / self.g.group, self.g.maps / self.g.group);
        let (first, source, target) = if self.forward {
            (group * maps * channels + target * channels, 1, 0)
        } else {
            (group * maps * channels, channels, target)
        };
        let p = self.weight;
        (0..self.source.array.channels).map(move |c| p.wrapping_add((first + c * source + target) * TAPS))
    }

    /// Finds the scales of sources from the energies of their weights. False if the weights must not be taken in
    /// Winograd's way: they are infinite or no numbers, too large or too small, or those of a target have one sign, so that
    /// inputs of one sign must give outputs of one sign.
    ///
    /// # Safety
    /// The weights are there, and room for as many scales as there are sources in all groups.
    pub(super) unsafe fn weigh(&self, scales: *mut T) -> bool {
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        let (channels, maps, group) =
            (self.g.channels / self.g.group, self.g.maps / self.g.group, self.g.group);
        let (row, even, to) =
            (channels * TAPS, even_scales::<T>(maps.max(row_parts(channels * TAPS))), Shared::new(scales));
        let weight = Shared::read_only(self.weight);
        let one_sign = |group: usize, target: usize| {
            // SAFETY: the weights are there.
            let nines =
                self.weights_of(group, target).flat_map(|p| unsafe { std::slice::from_raw_parts(p, TAPS) });
            have_one_sign(nines)
        };
        if (0..group).any(|group| (0..targets).any(|target| one_sign(group, target))) {
            return false;
        }
        let parts = if self.forward { row.div_ceil(COLUMNS) } else { maps };
        parallel(group * parts, |task| {
            let (of, part) = (task / parts, task % parts);
            let first = weight.get().cast_const().wrapping_add(of * maps * row);
            let to = to.get().wrapping_add(of * sources);
            let mut sums = [T::ZERO; COLUMNS];
            if self.forward {
                let columns = part * COLUMNS..row.min((part + 1) * COLUMNS);
                energies(&PixelEnergies {
                    from: first.wrapping_add(columns.start),
                    channel: row,
                    channels: maps,
                    scales: even.as_ptr(),
                    pixels: columns.len(),
                    to: sums.as_mut_ptr(),
                });
                for (i, nine) in sums[..columns.len()].chunks_exact(TAPS).enumerate() {
                    // SAFETY: there is room for all; each task has its own.
                    unsafe { to.add(columns.start / TAPS + i).write(nine.iter().copied().sum()) };
                }
            } else {
                // A row is as many short ones, and a rest.
                let first = first.wrapping_add(part * row);
                let order = |from: usize, channels: usize, pixels: usize, to: *mut T| {
                    energies(&PixelEnergies {
                        from: first.wrapping_add(from),
                        channel: TOGETHER * OUTPUTS,
                        channels,
                        scales: even.as_ptr(),
                        pixels,
                        to,
                    });
                };
                let (all, pixels) = (row_parts(row) - 1, TOGETHER * OUTPUTS);
                order(0, all, pixels, sums.as_mut_ptr());
                order(all * pixels, 1, row - all * pixels, sums[pixels..].as_mut_ptr());
                // SAFETY: as above.
                unsafe { to.add(part).write(sums[..2 * pixels].iter().copied().sum()) };
            }
        });
        (0..group).all(|of| {
            // SAFETY: they were all written.
            let scales = unsafe { std::slice::from_raw_parts_mut(scales.add(of * sources), sources) };
            let all: T = scales.iter().copied().sum();
            if all < T::INFINITY && all >= T::all(LEAST) {
                let by = T::all(sources as f64) / all;
                for v in scales {
                    *v = T::all(SCALE) * (*v * by).sqrt();
                }
                return true;
            }
            scales.fill(T::all(SCALE));
            // SAFETY: the weights are there.
            let weights = unsafe { std::slice::from_raw_parts(self.weight.add(of * maps * row), maps * row) };
            weights.iter().all(|v| *v == T::ZERO)
        })
    }

    /// Puts the direct sums of uneven tiles into the pixels of some rows of tiles of an image, for up to a panel of targets.
    ///
    /// # Safety
    /// The arrays are there, and `to` has room for a panel of targets for each pixel.
    pub(super) unsafe fn mend(
        &self,
        tiles: &Tiles,
        (image, group): (usize, usize),
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
                        // SAFETY: the weights are there.
                        weights[(c * TAPS + t) * wide + lane] = unsafe { *from.add(tap) };
                    }
                }
            }
            for (t, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
                let (row, column) = (t / tiles.across, t % tiles.across);
                // SAFETY: the caller's promise.
                unsafe {
                    self.source.gather((image, group), (rows.start + row, column), self.size, seen);
                    PanelProduct {
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
                        let pixel = to.at(OUT * row + o / OUT, OUT * column + o % OUT);
                        pixel.copy_from_nonoverlapping(sums.as_ptr(), targets.len());
                    }
                }
            }
        });
    }
}

/// Short rows that a row of weights is added up by, the last of which may be shorter.
fn row_parts(row: usize) -> usize {
    row.div_ceil(TOGETHER * OUTPUTS)
}
