//! Packs a block of the padded input into planes, one for each phase of the stride, so that every tap reads contiguous
//! rows (implicit im2col). A product reads them through a table with the start of each channel and tap, so no element
//! is copied twice.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernels::Float;
use crate::kernels::convolution::window::{Window, WindowAxis};
use crate::kernels::gemm::EvenSplit;
use crate::kernels::index::{IndexAxes, IndexAxis, walk};
use crate::kernels::scratch::List;
use crate::kernels::simd::{Vector, vectorised};

/// The most elements that a copy may write beyond its end.
pub(in super::super) const SLACK: usize = 16;
/// The number of elements in the planes of a block, a part of a small second-level cache.
const BLOCK: usize = 48 << 10;
/// The number of positions in a block, including padding between them.
const POSITIONS: usize = 384;
/// The largest number of positions in a block of few channels.
const MOST_POSITIONS: usize = 4096;
/// The largest number of positions in a row of a block.
const ROW: usize = 512;
/// The number of columns of a narrow tile.
const WIDE: usize = 16;
/// The most rows of the right matrix of a block.
const DEPTH: usize = 1024;

/// The distance between rows of `n` elements in scratch memory. It has space for the excess of a copy. It is an odd
/// number of cache lines, so that rows do not map to the same cache sets.
pub(in super::super) fn padded_stride(n: usize) -> usize {
    ((n + SLACK).div_ceil(SLACK) | 1) * SLACK
}

/// The layout of blocks of images. Along each axis, element `e` of a plane with residue `r` is element `(e + least)
/// step + r` of the image. `least` counts from the first position of the block.
pub(in super::super) struct PlaneLayout {
    /// The window along each axis.
    axes: SmallVec<[WindowAxis; 3]>,
    /// For each axis, the `least` of the formula above.
    least: SmallVec<[isize; 3]>,
    /// The lengths of a plane.
    pub(super) extents: SmallVec<[usize; 3]>,
    /// The strides of a plane.
    strides: SmallVec<[usize; 3]>,
    /// The residues modulo the stride of each plane.
    planes: Vec<SmallVec<[usize; 3]>>,
    /// The size of a plane of one image.
    plane: usize,
    /// The size of a plane of all images of a block.
    of_images: usize,
    /// The size of all planes of a channel.
    pub(super) channel: usize,
    /// For each channel of a chunk and each tap, the index of the element that the first position reads.
    pub(in super::super) table: Vec<isize>,
    /// The number of channels.
    channels: usize,
    /// The number of channels that are packed at a time.
    pub(super) chunk: usize,
    /// The images of each block.
    pub(in super::super) images: EvenSplit,
    /// The positions of each block along the first axis.
    pub(in super::super) rows: EvenSplit,
    /// The positions of each block along the last axis.
    pub(in super::super) columns: EvenSplit,
    /// True if images are read in place.
    pub(super) in_place: bool,
}

/// A tap: for each axis its residue, and the plane element that the first position reads.
type PlaneTap = (SmallVec<[usize; 3]>, SmallVec<[usize; 3]>);

/// A block: ranges of images, of positions along the first axis, and along the last.
#[derive(Clone)]
pub(in super::super) struct PlaneBlock {
    /// The images.
    pub(in super::super) images: Range<usize>,
    /// The positions along the first axis.
    pub(in super::super) rows: Range<usize>,
    /// The positions along the last axis.
    pub(in super::super) columns: Range<usize>,
}

impl PlaneLayout {
    /// A layout for images of `channels` with at least `wanted` blocks if possible. At most `chunk` channels are
    /// packed at a time. A block combines images if `together` is set, or if they are too small to fill a register.
    pub(in super::super) fn new(
        axes: &[WindowAxis],
        images: usize,
        channels: usize,
        chunk: usize,
        wanted: usize,
        together: bool,
    ) -> Self {
        let mut axes: SmallVec<[WindowAxis; 3]> = axes.into();
        if axes.len() == 1 {
            axes.insert(0, WindowAxis::of_one());
        }
        let last = axes.len() - 1;
        let place = |a: &WindowAxis, offset: isize| {
            (offset.div_euclid(a.step as isize), offset.rem_euclid(a.step as isize) as usize)
        };
        let bounds = |a: &WindowAxis| {
            let places = || a.offsets.iter().map(|o| place(a, *o).0);
            (places().min().unwrap_or(0), places().max().unwrap_or(0))
        };
        let least: SmallVec<[isize; 3]> = axes.iter().map(|a| bounds(a).0).collect();
        let more: SmallVec<[usize; 3]> = axes.iter().map(|a| (bounds(a).1 - bounds(a).0) as usize).collect();
        // The taps as (residue, element), axis by axis.
        let mut taps: Vec<PlaneTap> = vec![PlaneTap::default()];
        for (a, least) in axes.iter().zip(&least) {
            let of_axis: Vec<_> = a.offsets.iter().map(|o| place(a, *o)).collect();
            taps = taps
                .into_iter()
                .flat_map(|(residues, elements)| {
                    of_axis.iter().map(move |(e, r)| {
                        let (mut residues, mut elements) = (residues.clone(), elements.clone());
                        residues.push(*r);
                        elements.push((e - least) as usize);
                        (residues, elements)
                    })
                })
                .collect();
        }
        let mut planes: Vec<_> = taps.iter().map(|t| t.0.clone()).collect();
        planes.sort();
        planes.dedup();

        let width = axes[last].positions;
        let columns = EvenSplit::new(width, width.div_ceil(ROW));
        let columns_each = columns.part(0).len();
        let across: usize = (1..last).map(|i| axes[i].positions + more[i]).product::<usize>();
        let row = across * (columns_each + more[last]);
        let height = axes[0].positions;
        let most = if together { POSITIONS } else { MOST_POSITIONS };
        let positions = (BLOCK / (8 * channels.max(1))).clamp(POSITIONS, most);
        let rows_each = (positions / row).clamp(1, height);
        let fewest = (wanted / (images.max(1) * columns.parts())).min(height);
        let parts = height.div_ceil(rows_each).max(fewest);
        let rows = EvenSplit::new(height, parts);
        let rows_each = rows.part(0).len();
        let whole = rows.parts() == 1 && columns.parts() == 1;
        let image = row * (rows_each + more[0]);
        let together = whole && (together || image <= WIDE);
        let images_each = if together { (POSITIONS / image).clamp(1, images) } else { 1 };
        let images = EvenSplit::new(images, images.div_ceil(images_each));
        let images_each = images.part(0).len().max(1);

        let mut extents: SmallVec<[usize; 3]> =
            axes.iter().zip(&more).map(|(a, m)| a.positions + m).collect();
        extents[0] = rows_each + more[0];
        extents[last] = columns_each + more[last];
        // Without padding and stride, the image can be read in place. It is packed anyway if it is too large for a
        // cache, or if its planes map to the same cache sets.
        let fits = |(a, (least, more)): (&WindowAxis, (&isize, &usize))| {
            a.step == 1 && *least >= 0 && *least as usize + a.positions + more <= a.len
        };
        let area: usize = axes.iter().map(|a| a.len).product();
        let in_place = images_each == 1
            && channels * area <= BLOCK
            && (!area.is_multiple_of(256) || channels < 8)
            && axes.iter().zip(least.iter().zip(&more)).all(fits);
        if in_place {
            extents = axes.iter().map(|a| a.len).collect();
        }
        let mut strides: SmallVec<[usize; 3]> = SmallVec::from_elem(1, extents.len());
        for i in (0..last).rev() {
            strides[i] = strides[i + 1] * extents[i + 1];
        }
        let plane = strides[0] * extents[0];
        let of_images = images_each * plane + SLACK;
        let channel = if in_place { area } else { padded_stride(planes.len() * of_images) };
        let most = (BLOCK / channel).min(DEPTH / taps.len().max(1)).min(chunk).clamp(1, channels.max(1));
        let chunk = channels.div_ceil(channels.div_ceil(most).max(1)).max(1);
        let of_tap = |(residues, elements): &PlaneTap| {
            let which = planes.binary_search(residues).unwrap_or_else(|_| unreachable!("is one of them"));
            let within: usize = elements.iter().zip(&strides).map(|(e, s)| e * s).sum();
            which * of_images + within
        };
        let taps: Vec<usize> = taps.iter().map(of_tap).collect();
        let table = (0..chunk).flat_map(|c| taps.iter().map(move |t| (c * channel + t) as isize)).collect();
        Self {
            axes,
            least,
            extents,
            strides,
            planes,
            plane,
            of_images,
            channel,
            table,
            channels,
            chunk,
            images,
            rows,
            columns,
            in_place,
        }
    }

    /// The number of blocks.
    pub(in super::super) fn blocks(&self) -> usize {
        self.images.parts() * self.rows.parts() * self.columns.parts()
    }

    /// The number of rows that are packed for an image. A row counts once for each block that packs it.
    pub(in super::super) fn packed_rows(&self) -> usize {
        if self.in_place { self.axes[0].len } else { self.rows.parts() * self.extents[0] }
    }

    /// The images, rows and columns of block `i`.
    pub(in super::super) fn block(&self, i: usize) -> PlaneBlock {
        let (rows, columns) = (self.rows.parts(), self.columns.parts());
        PlaneBlock {
            images: self.images.part(i / columns / rows),
            rows: self.rows.part(i / columns % rows),
            columns: self.columns.part(i % columns),
        }
    }

    /// True if each tap has a plane of its own, so that no element is read through two taps.
    pub(super) fn has_plane_for_each_tap(&self) -> bool {
        self.planes.len() * self.chunk == self.table.len()
    }

    /// The number of positions along the last axis.
    pub(in super::super) fn width(&self) -> usize {
        self.axes[self.axes.len() - 1].positions
    }

    /// The number of positions of the largest block, without gaps.
    pub(in super::super) fn positions(&self) -> usize {
        let inner: usize = self.axes[1..self.axes.len() - 1].iter().map(|a| a.positions).product();
        self.images.part(0).len() * self.rows.part(0).len() * inner * self.columns.part(0).len()
    }

    /// The number of elements of scratch memory for a chunk of a block.
    pub(in super::super) fn capacity(&self) -> usize {
        if self.in_place { 0 } else { self.chunk * self.channel + SLACK }
    }

    /// The number of elements from the first to the last position of a block, including gaps.
    pub(in super::super) fn len(&self, block: &PlaneBlock) -> usize {
        let last = self.axes.len() - 1;
        let end = |i: usize| match i {
            0 => block.rows.len() - 1,
            _ if i == last => block.columns.len() - 1,
            _ => self.axes[i].positions - 1,
        };
        (block.images.len() - 1) * self.plane
            + (0..=last).map(|i| end(i) * self.strides[i]).sum::<usize>()
            + 1
    }

    /// Calls `f(image, row in the window, first column, start in the block)` for each row of a block.
    pub(super) fn each_row(&self, block: &PlaneBlock, mut f: impl FnMut(usize, usize, usize, usize)) {
        let last = self.axes.len() - 1;
        let inner = &self.axes[1..last];
        let across: usize = inner.iter().map(|a| a.positions).product();
        let axes: IndexAxes<1> = inner
            .iter()
            .zip(&self.strides[1..last])
            .map(|(axis, stride)| IndexAxis { n: axis.positions, strides: [*stride] })
            .collect();
        for (i, image) in block.images.clone().enumerate() {
            for (r, row) in block.rows.clone().enumerate() {
                let mut position = row * across;
                walk(&axes, [i * self.plane + r * self.strides[0]], 0..across, |[at]| {
                    f(image, position, block.columns.start, at);
                    position += 1;
                });
            }
        }
    }

    /// The start of each row in a block.
    pub(in super::super) fn row_starts(&self, block: &PlaneBlock) -> List<usize> {
        let mut starts = List::with_capacity(64);
        self.each_row(block, |_, _, _, at| starts.push(at));
        starts
    }

    /// The table for the taps of a window, which are some of the taps of this layout. It reads adjacent elements.
    pub(super) fn table_of(&self, window: &Window) -> Vec<isize> {
        let missing = self.axes.len() - window.axes.len();
        let mut taps = vec![0];
        for (i, axis) in window.axes.iter().enumerate() {
            let (least, stride) = (self.least[missing + i], self.strides[missing + i] as isize);
            taps = taps
                .iter()
                .flat_map(|at| axis.offsets.iter().map(move |offset| at + (offset - least) * stride))
                .collect();
        }
        (0..self.chunk).flat_map(|c| taps.iter().map(move |t| (c * self.channel) as isize + t)).collect()
    }

    /// Orders the table by rows of taps, then by channels and columns of taps. Returns false without a change if
    /// channels are packed in several chunks.
    pub(in super::super) fn order_by_tap_rows(&mut self, window: &Window) -> bool {
        let (columns, taps) = (window.columns.len(), window.taps.len());
        if self.table.len() != self.channels * taps || columns == 0 {
            return false;
        }
        let table = (0..window.outer).flat_map(|row| {
            let of_channel = |taps: &'_ [isize]| taps[row * columns..][..columns].to_vec();
            self.table.chunks_exact(taps).flat_map(of_channel).collect::<Vec<_>>()
        });
        self.table = table.collect();
        true
    }

    /// The index of the first position of a block in an image that is read in place.
    pub(super) fn origin(&self, block: &PlaneBlock) -> usize {
        let last = self.axes.len() - 1;
        let least: usize = self.least.iter().zip(&self.strides).map(|(l, s)| *l as usize * s).sum();
        least + block.rows.start * self.strides[0] + block.columns.start * self.strides[last]
    }
}

/// Copies the elements at these indices of the planes for rows of `width` positions, without gaps between rows, to
/// lines that are `apart`.
///
/// # Safety
/// The rows must be valid and at most [`SLACK`] long, with as many readable elements after each.
pub(super) unsafe fn copy_rows<T: Copy>(
    table: &[isize],
    planes: *const T,
    starts: &[usize],
    width: usize,
    to: *mut T,
    apart: usize,
) {
    vectorised(
        #[inline(always)]
        || {
            for (i, at) in table.iter().enumerate() {
                for (row, start) in starts.iter().enumerate() {
                    // SAFETY: guaranteed by the caller, and what is copied too much is overwritten by the next row.
                    unsafe {
                        let from = planes.offset(*at).add(*start).cast::<[T; SLACK]>();
                        let to = to.add(i * apart + row * width).cast::<[T; SLACK]>();
                        to.write_unaligned(from.read_unaligned());
                    }
                }
            }
        },
    );
}

/// Packs some channels of one image of a block.
pub(in crate::kernels) struct PackImage<'a, T> {
    /// The layout of blocks.
    pub(in super::super) layout: &'a PlaneLayout,
    /// The block.
    pub(in super::super) block: &'a PlaneBlock,
    /// The number of the image in the block.
    pub(in super::super) image: usize,
    /// The first channel of the image.
    pub(in super::super) from: *const T,
    /// The number of channels to pack.
    pub(in super::super) channels: usize,
    /// The distance from a channel of the image to the next.
    pub(in super::super) area: usize,
    /// The destination of the first channel in the block.
    pub(in super::super) to: *mut T,
}

impl<T: Float> PackImage<'_, T> {
    /// Packs the image.
    ///
    /// # Safety
    /// The instruction set of `V` must be available, and `to` must hold [`PlaneLayout::capacity`] elements for a
    /// chunk.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let s = self.layout;
        let last = s.axes.len() - 1;
        let axis = &s.axes[last];
        let (least, width) = (s.least[last] + self.block.columns.start as isize, s.extents[last]);
        let rows = s.plane / width;
        for (p, residues) in s.planes.iter().enumerate() {
            // Elements `start` to `end` of a row are within the image, the others are padding.
            let limit = |v: isize| (v.max(0) as usize).div_ceil(axis.step).min(width);
            let from = least * axis.step as isize + residues[last] as isize;
            let (start, end) = (limit(-from), limit(axis.len as isize - from));
            let end = end.max(start);
            // A row that fits a register is written as one, padding included.
            let is_short = width <= V::WIDTH && axis.step <= 2;
            let (first, last_read) = match axis.step {
                _ if start == end => (0, 0),
                2 => (2 * start, 2 * end - 1),
                _ => (start, end),
            };
            let beyond = |element: usize| element.saturating_sub(V::WIDTH);
            // SAFETY: guaranteed by the caller.
            let masks =
                unsafe { [V::between(first, last_read), V::between(beyond(first), beyond(last_read))] };
            let mut place: SmallVec<[usize; 3]> = SmallVec::from_elem(0, last);
            for row in 0..rows {
                let (mut base, mut inside) = (0, true);
                for (i, e) in place.iter().enumerate() {
                    let (axis, residue) = (&s.axes[i], residues[i] as isize);
                    let first = s.least[i] + if i == 0 { self.block.rows.start as isize } else { 0 };
                    let e = (first + *e as isize) * axis.step as isize + residue;
                    inside &= e >= 0 && e < axis.len as isize;
                    base = base * axis.len as isize + e;
                }
                base *= axis.len as isize;
                for i in (0..last).rev() {
                    place[i] += 1;
                    if place[i] < s.extents[i] {
                        break;
                    }
                    place[i] = 0;
                }
                let at = p * s.of_images + self.image * s.plane + row * width;
                // SAFETY: guaranteed by the caller, and only elements of the image are read.
                unsafe {
                    for c in 0..self.channels {
                        let to = self.to.add(c * s.channel + at);
                        if is_short && inside {
                            let from = self.from.add(c * self.area).wrapping_offset(base + from);
                            let row = V::load_masked(from, masks[0]);
                            let row = match axis.step {
                                2 => V::evens(row, V::load_masked(from.wrapping_add(V::WIDTH), masks[1])),
                                _ => row,
                            };
                            row.store(to);
                            continue;
                        }
                        if !inside || start == end {
                            clear::<V>(to, width);
                            continue;
                        }
                        let from =
                            self.from.add(c * self.area).offset(base + from + (start * axis.step) as isize);
                        clear::<V>(to, start);
                        copy::<V>(from, axis.step, end - start, to.add(start));
                        clear::<V>(to.add(end), width - end);
                    }
                }
            }
        }
    }
}

/// Writes `n` zeros, and up to a register more.
#[inline(always)]
pub(in super::super) unsafe fn clear<V: Vector>(to: *mut V::T, n: usize) {
    for j in (0..n).step_by(V::WIDTH) {
        // SAFETY: guaranteed by the caller.
        unsafe { V::zero().store(to.add(j)) };
    }
}

/// Copies `n` elements that are `step` apart, and writes up to a register more.
#[inline(always)]
pub(super) unsafe fn copy<V: Vector>(from: *const V::T, step: usize, n: usize, to: *mut V::T) {
    // SAFETY: guaranteed by the caller; masks keep within what is read.
    unsafe {
        match step {
            1 => {
                let whole = n - n % V::WIDTH;
                for j in (0..whole).step_by(V::WIDTH) {
                    V::load(from.add(j)).store(to.add(j));
                }
                if whole < n {
                    V::load_masked(from.add(whole), V::first(n - whole)).store(to.add(whole));
                }
            }
            2 => {
                // Registers whose second half is within the row.
                let whole = n.saturating_sub(1) / V::WIDTH * V::WIDTH;
                for j in (0..whole).step_by(V::WIDTH) {
                    let from = from.add(2 * j);
                    V::evens(V::load(from), V::load(from.add(V::WIDTH))).store(to.add(j));
                }
                for j in (whole..n).step_by(V::WIDTH) {
                    let (left, from) = (2 * (n - j) - 1, from.wrapping_add(2 * j));
                    let a = V::load_masked(from, V::first(left));
                    let b =
                        V::load_masked(from.wrapping_add(V::WIDTH), V::first(left.saturating_sub(V::WIDTH)));
                    V::evens(a, b).store(to.add(j));
                }
            }
            4 => {
                for j in (0..n).step_by(V::WIDTH) {
                    let (left, from) = (4 * (n - j) - 3, from.wrapping_add(4 * j));
                    let part = |i: usize| {
                        let mask = V::first(left.saturating_sub(i * V::WIDTH));
                        V::load_masked(from.wrapping_add(i * V::WIDTH), mask)
                    };
                    let (a, b) = (V::evens(part(0), part(1)), V::evens(part(2), part(3)));
                    V::evens(a, b).store(to.add(j));
                }
            }
            _ => (0..n).for_each(|j| *to.add(j) = *from.add(j * step)),
        }
    }
}
