//! Finds the tiles that Winograd's algorithm would compute with large errors.
//!
//! A tile shares 36 inputs among 16 outputs, so each output gets rounding errors of all 36. That is harmless if the
//! nine inputs of every output are about as large as the others. It is not if one input is infinite or very large, or
//! if an output sees only zeros. The energies of pixels, sums of squares over channels, show such tiles.
//! [`direct_tiles`](super::direct_tiles) computes them by the definition.

use std::ops::Range;

use super::Factors;
use super::energies::{EnergyPlane, EnergyRange, least};
use super::phases::{SourcePlane, SourcePlanes};
use super::tiles::Tiles;
use super::transforms::{IN, OUT};
use crate::kernels::convolution::geometry::Geometry;
use crate::kernels::convolution::implicit_gemm::packed_planes::SLACK;
use crate::kernels::convolution::isa;
use crate::kernels::scratch::List;
use crate::kernels::{Float, scratch};

/// Largest ratio of the energy of a tile to the energy of the nine inputs of an output. The ratio is four if all pixels
/// have the same energy. The error of Winograd's algorithm grows with its root: here at most by a factor of 16.
const RATIO: f64 = 1024.0;
/// Largest ratio of the energy of one pixel of a gradient to the energy of the rest of its tile.
const SHARE: f64 = 1024.0;
/// Outputs of a tile.
const OUTPUTS: usize = OUT * OUT;
/// Inputs of an output: a 3 x 3 kernel.
const TAPS: usize = 9;

/// The energies of the pixels that some rows of tiles read: a plane for each image.
#[derive(Clone, Copy)]
pub(super) struct Energies<T> {
    /// A scale for each channel.
    pub(super) scales: *const T,
    /// The first plane.
    pub(super) p: *mut T,
    /// The distance of planes.
    pub(super) plane: usize,
}

/// The rows of a plane that some rows of tiles cover. A tile has `side` rows. The first tile starts `pad` rows above
/// the plane.
pub(super) fn covered(rows: &Range<usize>, side: usize, pad: isize, height: usize) -> Range<usize> {
    let clip = |y: usize| (y as isize - pad).clamp(0, height as isize) as usize;
    clip(OUT * rows.start)..clip(OUT * (rows.end - 1) + side)
}

impl<T: Float> Energies<T> {
    /// Number of elements for the planes of some images with up to `rows` rows of tiles, and the distance of planes.
    pub(super) fn memory(images: usize, rows: usize, width: usize) -> (usize, usize) {
        let plane = (OUT * rows + 2) * width;
        ((images * plane).next_multiple_of(SLACK), plane)
    }

    /// The energies of the first `pixels` pixels of an image.
    ///
    /// # Safety
    /// The energies must have been computed.
    unsafe fn of(&self, image: usize, pixels: usize) -> &[T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.p.add(image * self.plane), pixels) }
    }
}

/// The range of energies. With the distances of rows and of columns, also the least sum of four neighbouring pixels.
fn range<T: Float>(energies: &[T], apart: Option<(usize, usize)>) -> EnergyRange<T> {
    let order = EnergyPlane { p: energies.as_ptr(), pixels: energies.len(), apart };
    // SAFETY: the table was chosen for this machine, and the energies are readable.
    unsafe { (isa::kernels::<T>().energy_range)(&order) }
}

/// A plane of energies with zeros around it.
struct Padded<'a, T> {
    /// The energies, row by row.
    of: &'a [T],
    /// The length of a row.
    width: usize,
    /// Row and column of the first pixel, relative to the plane.
    at: (isize, isize),
}

impl<T: Float> Padded<'_, T> {
    /// Writes the pixels of row `r` to `to`.
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
    /// Flags the uneven tiles in some rows of tiles of a plane of the given size. Reads the energies of plane `i` of a
    /// block. Returns true if there is one.
    ///
    /// Tiles that reach beyond the target have fewer pixels, and not every tap sees all of them. With `by_taps`, the
    /// pixels of each tap must be even, too. Such tiles are compared with the least pixel of these rows.
    ///
    /// # Safety
    /// The planes must be readable, and the energies must have been computed.
    pub(super) unsafe fn find_uneven(
        &self,
        (plane, group): (usize, usize),
        rows: &Range<usize>,
        size: (usize, usize),
        (energies, i): (&Energies<T>, usize),
        by_taps: bool,
        flags: &mut [bool],
    ) -> bool {
        flags.fill(false);
        let (across, source) = (flags.len() / rows.len(), self.plane(plane, group));
        let covered = covered(rows, IN, source.pad.0, source.height);
        let tile_row = self.tile_row();
        let (columns, apart) = (tile_row.columns(IN), tile_row.dilation);
        let (top, width, deep) = (covered.start, tile_row.columns(OUT), OUT * rows.len() + 2);
        if covered.is_empty() || self.width == 0 {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        let plane = unsafe { energies.of(i, covered.len() * self.width) };
        // With at most one row of padding on each side, each output sees four neighbouring pixels.
        let is_near = |pad: isize, input: usize, output: usize, apart: usize| {
            pad <= apart as isize && (output + apart) as isize - pad <= input as isize && input >= 2 * apart
        };
        let has_fours = is_near(source.pad.0, source.height, size.0, 1)
            && is_near(source.pad.1, self.width, size.1, apart)
            && covered.len() > 1;
        let extremes = range(plane, has_fours.then_some((self.width, apart)));
        // Usually all pixels are similar, and no tile has to be examined.
        let tile = extremes.most * T::all((IN * IN) as f64);
        if extremes.sum < T::INFINITY && extremes.four > T::ZERO && tile <= T::all(RATIO) * extremes.four {
            let is_whole = size.0 % OUT + size.1 % (apart * OUT) == 0;
            if !by_taps || is_whole || extremes.are_within(RATIO) {
                return false;
            }
        }
        let at = ((OUT * rows.start) as isize - source.pad.0 - top as isize, -source.pad.1);
        let padded = Padded { of: plane, width: self.width, at };
        scratch::with((deep + 2) * width + columns, |memory: &mut [T]| {
            let (row, memory) = memory.split_at_mut(columns);
            // `threes`: sums of three neighbours in a row of a phase. For a row of tiles, by column: `fewest` is the
            // least sum of nine inputs of an output, and `all` the sum of all rows.
            let (threes, memory) = memory.split_at_mut(deep * width);
            let (fewest, all) = memory.split_at_mut(width);
            for (r, threes) in threes.chunks_exact_mut(width).enumerate() {
                padded.row(r, row);
                let of = row.iter().zip(&row[apart..]).zip(&row[2 * apart..]);
                threes.iter_mut().zip(of).for_each(|(three, ((a, b), c))| *three = *a + *b + *c);
            }
            let mut any = false;
            for (i, flags) in flags.chunks_exact_mut(across).enumerate() {
                let of = |r: usize| &threes[(OUT * i + r) * width..][..width];
                let outputs = size.0.saturating_sub(OUT * (rows.start + i)).min(OUT);
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
                    let first = tile_row.column(t);
                    let columns = (first..size.1).step_by(apart).take(OUT);
                    let all = all[first] + all[first + 3 * apart];
                    let is_partial = by_taps && outputs * columns.len() < OUTPUTS;
                    let few = columns.map(|x| fewest[x]).fold(T::INFINITY, least);
                    let few =
                        if is_partial { least(few, extremes.least * T::all((IN * IN) as f64)) } else { few };
                    *flag = if all > T::ZERO {
                        !(all < T::INFINITY && all <= T::all(RATIO) * few)
                    } else {
                        all != T::ZERO || !self.is_blank(&source, (rows.start + i, t))
                    };
                    any |= *flag;
                }
            }
            any
        })
    }

    /// Rows and columns of a plane within a tile.
    fn pixels_of(
        &self,
        plane: &SourcePlane<T>,
        tile: (usize, usize),
    ) -> (impl Iterator<Item = usize> + Clone, impl Iterator<Item = usize> + Clone) {
        let row = self.tile_row();
        let clip = |first: usize, pad: isize, end: usize, apart: usize| {
            let places = (0..IN).map(move |i| (first + i * apart) as isize - pad);
            places.filter(move |at| (0..end as isize).contains(at)).map(|at| at as usize)
        };
        (
            clip(OUT * tile.0, plane.pad.0, plane.height, 1),
            clip(row.column(tile.1), plane.pad.1, self.width, row.dilation),
        )
    }

    /// True if a tile contains only zeros.
    fn is_blank(&self, plane: &SourcePlane<T>, tile: (usize, usize)) -> bool {
        let (ys, xs) = self.pixels_of(plane, tile);
        (0..self.array.channels).all(|c| {
            ys.clone().all(|y| {
                let row = plane.p.wrapping_add(c * self.array.channel + y * plane.row);
                // SAFETY: these pixels are within the plane.
                xs.clone().all(|x| unsafe { *row.add(x) } == T::ZERO)
            })
        })
    }
}

/// Flags the uneven tiles of an output gradient: the energy of one pixel is far above the energies of the others.
fn find_dominated<T: Float>(
    gy: &SourcePlanes<T>,
    at: (usize, usize),
    rows: &Range<usize>,
    plane: &[T],
    flags: &mut [bool],
) {
    let across = flags.len() / rows.len();
    if plane.is_empty() {
        return; // these rows are beyond a short phase
    }
    let extremes = range(plane, None);
    if extremes.are_within(SHARE) {
        return;
    }
    let (source, tile_row) = (gy.plane(at.0, at.1), gy.tile_row());
    for (t, flag) in flags.iter_mut().enumerate() {
        let (row, column) = (t / across, tile_row.column(t % across));
        let (mut most, mut sum, mut pixels) = (T::ZERO, T::ZERO, 0);
        for row in plane.chunks_exact(gy.width).skip(OUT * row).take(OUT) {
            for v in row.iter().skip(column).step_by(tile_row.dilation).take(OUT) {
                pixels += 1;
                most = if *v > most { *v } else { most };
                sum = sum + *v;
            }
        }
        // Not every tap sees the pixels of a tile that reaches beyond the plane.
        let others = if pixels < OUTPUTS { extremes.least } else { sum - most };
        *flag |= if sum > T::ZERO {
            !(sum < T::INFINITY && most <= T::all(SHARE) * others)
        } else {
            sum != T::ZERO || !gy.is_blank(&source, (rows.start + row, t % across))
        };
    }
}

/// The contributions of uneven tiles to a gradient of the weight.
pub(super) struct UnevenTerms<'a, T> {
    /// The sizes of the convolution.
    pub(super) g: &'a Geometry,
    /// The planes of the input.
    pub(super) x: &'a SourcePlanes<T>,
    /// The planes of the gradient of the output.
    pub(super) gy: &'a SourcePlanes<T>,
    /// The energies of a block of `x` and of `gy`.
    pub(super) energies: [Energies<T>; 2],
}

impl<T: Float> UnevenTerms<'_, T> {
    /// Flags the uneven tiles of plane `i` of a block. Returns true if there is one.
    ///
    /// # Safety
    /// As [`SourcePlanes::find_uneven`].
    unsafe fn find(&self, at: (usize, usize), i: usize, rows: &Range<usize>, flags: &mut [bool]) -> bool {
        let [x, gy] = &self.energies;
        let pixels = covered(rows, OUT, 0, self.gy.plane(at.0, at.1).height).len() * self.gy.width;
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.x.find_uneven(at, rows, self.g.output_phases().size(at.0), (x, i), true, flags);
            find_dominated(self.gy, at, rows, gy.of(i, pixels), flags);
        }
        flags.contains(&true)
    }

    /// Sets the factors of uneven tiles of a block to zero, and adds their contributions to `sums`. If `is_used` is
    /// false, clears `sums` first and sets it.
    ///
    /// # Safety
    /// As for [`UnevenTerms::add`] and [`SourcePlanes::find_uneven`]. No other thread may use the factors.
    pub(super) unsafe fn take_out(
        &self,
        tiles: &Tiles,
        (planes, rows): (&Range<usize>, &Range<usize>),
        group: usize,
        (v, d): (&Factors<T>, &Factors<T>),
        (is_used, sums, row): (*mut bool, *mut T, usize),
    ) {
        let (channels, maps, of_plane) =
            (self.x.array.channels, self.gy.array.channels, rows.len() * tiles.across);
        let mut flags = List::repeat(false, of_plane);
        for (n, plane) in planes.clone().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe {
                if !self.find((plane, group), n, rows, &mut flags) {
                    continue;
                }
                if !is_used.replace(true) {
                    sums.write_bytes(0, TAPS * channels * row);
                }
                for (t, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
                    self.add((plane, group), (rows.start + t / tiles.across, t % tiles.across), sums, row);
                    v.clear(n * of_plane + t, channels);
                    d.clear(n * of_plane + t, maps);
                }
            }
        }
    }
}
