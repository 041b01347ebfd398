//! Maps positions and taps of a sum to elements of its source. A convolution has one window. The gradient of its input
//! has one for each phase of the stride. A window with a large dilation is split into one for each phase of the
//! dilation.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::geometry::Geometry;

/// One axis of a window: tap `t` of position `o` reads element `o step + offsets[t]` of a source of `len` elements, or
/// padding outside. Position `o` is element `first + o apart` of the target.
#[derive(Clone, Debug)]
pub(super) struct WindowAxis {
    /// The number of positions.
    pub(super) positions: usize,
    /// The distance in the source of adjacent positions.
    pub(super) step: usize,
    /// The source element of each tap, relative to the position.
    pub(super) offsets: SmallVec<[isize; 8]>,
    /// The number of elements of the source.
    pub(super) len: usize,
    /// The target element of position 0.
    pub(super) first: usize,
    /// The distance in the target of adjacent positions.
    pub(super) apart: usize,
    /// Elements of the target along this axis.
    pub(super) target: usize,
    /// The kernel element of each tap.
    taps: SmallVec<[usize; 8]>,
}

impl WindowAxis {
    /// The greatest common divisor of the distances between taps, zero for a single tap.
    fn dilation(&self) -> usize {
        let apart = |o: &isize| o.abs_diff(self.offsets[0]);
        self.offsets.iter().map(apart).fold(0, |a, b| {
            let (mut a, mut b) = (a, b);
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        })
    }

    /// Divides an axis of adjacent positions into those whose taps read the source through the same taps. The other
    /// taps, which read padding, are left out.
    fn segments(&self) -> Vec<Self> {
        let reads = |offset: isize| {
            let clip = |at: isize| at.clamp(0, self.positions as isize) as usize;
            clip(-offset)..clip(self.len as isize - offset)
        };
        let mut ends: Vec<usize> = self
            .offsets
            .iter()
            .flat_map(|o| [reads(*o).start, reads(*o).end])
            .chain([0, self.positions])
            .collect();
        ends.sort_unstable();
        ends.dedup();
        let segment = |pair: &[usize]| {
            let (start, end) = (pair[0], pair[1]);
            let is_read = |t: &usize| reads(self.offsets[*t]).contains(&start);
            let taps: SmallVec<[usize; 8]> = (0..self.offsets.len()).filter(is_read).collect();
            Self {
                positions: end - start,
                offsets: taps.iter().map(|t| self.offsets[*t] + start as isize).collect(),
                first: self.first + start * self.apart,
                taps: taps.iter().map(|t| self.taps[*t]).collect(),
                ..self.clone()
            }
        };
        ends.windows(2).map(segment).collect()
    }

    /// An axis with the taps and positions of all of these, whose positions read adjacent elements of the same source.
    /// None if there are no taps. Its taps name no elements of a kernel.
    pub(super) fn union<'a>(axes: impl Iterator<Item = &'a Self> + Clone) -> Option<Self> {
        let longest = axes.clone().max_by_key(|axis| axis.positions)?;
        let mut offsets: SmallVec<[isize; 8]> = axes.flat_map(|axis| axis.offsets.iter().copied()).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let is_adjacent = longest.step == 1 && !offsets.is_empty();
        is_adjacent.then(|| Self { offsets, first: 0, taps: smallvec![], ..longest.clone() })
    }

    /// The axis of the positions `first`, `first + dilation`, and so on. Their taps read adjacent elements of a phase
    /// of the source.
    fn phase(&self, first: usize, dilation: usize) -> Self {
        Self {
            positions: (self.positions - first).div_ceil(dilation),
            step: dilation,
            offsets: self.offsets.iter().map(|o| o + first as isize).collect(),
            first: self.first + first * self.apart,
            apart: self.apart * dilation,
            ..self.clone()
        }
    }
}

/// A tap along the last axis. Positions from `start` to `end` read the source through it, the others read padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Position `o` reads element `o step + offset` of the row.
    pub(super) offset: isize,
    /// The first position that reads the source.
    pub(super) start: usize,
    /// After the last position that reads the source.
    pub(super) end: usize,
}

impl WindowAxis {
    /// An axis of one element.
    pub(super) fn of_one() -> Self {
        let (offsets, taps) = (smallvec![0], smallvec![0]);
        Self { positions: 1, step: 1, offsets, len: 1, first: 0, apart: 1, target: 1, taps }
    }
}

/// All axes. The positions along the last axis form a row, and the other axes have rows.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The axes, outermost first.
    pub(super) axes: SmallVec<[WindowAxis; 3]>,
    /// The number of positions in a row.
    pub(super) width: usize,
    /// The number of rows for each position of the first axis.
    pub(super) inner: usize,
    /// The distance in the source between adjacent positions of a row.
    pub(super) step: usize,
    /// The length of a row of the source.
    pub(super) length: usize,
    /// The taps along the last axis.
    pub(super) columns: SmallVec<[Column; 8]>,
    /// For each row and each tap along the outer axes: the index of the source row that it reads in a plane, or
    /// [`OUTSIDE`].
    pub(super) bases: Vec<isize>,
    /// The number of taps along the outer axes.
    pub(super) outer: usize,
    /// The first target element of each row. The next ones of a row are `apart`.
    pub(super) targets: Vec<usize>,
    /// The distance of adjacent target elements of a row.
    pub(super) apart: usize,
    /// The kernel elements that are taps, in order.
    pub(super) taps: Vec<usize>,
    /// True if the positions are all target elements in order.
    pub(super) whole: bool,
}

/// The index of a source row that is padding.
pub(super) const OUTSIDE: isize = isize::MIN;

impl Geometry {
    /// The window of the outputs over the input.
    pub(super) fn forward_window(&self) -> Window {
        let axis = |i: usize| WindowAxis {
            positions: self.output[i],
            step: self.stride[i],
            offsets: (0..self.kernel[i])
                .map(|t| (t * self.dilation[i]) as isize - self.pad[i] as isize)
                .collect(),
            len: self.input[i],
            first: 0,
            apart: 1,
            target: self.output[i],
            taps: (0..self.kernel[i]).collect(),
        };
        Window::new(&(0..self.input.len()).map(axis).collect::<Vec<_>>(), &self.kernel)
    }

    /// The windows of the input elements over the output. There is one for each residue of `element + pad` modulo the
    /// strides, since only the taps with that residue reach such elements. Windows without positions are omitted.
    pub(super) fn backward_windows(&self) -> Vec<Window> {
        let mut residues: Vec<SmallVec<[WindowAxis; 3]>> = vec![smallvec![]];
        for i in 0..self.input.len() {
            let axes: Vec<WindowAxis> =
                (0..self.stride[i].min(self.input[i])).map(|n| self.backward_axis(i, n)).collect();
            residues = residues
                .into_iter()
                .flat_map(|outer| axes.iter().map(move |axis| outer.iter().chain([axis]).cloned().collect()))
                .collect();
        }
        residues.iter().map(|axes| Window::new(axes, &self.kernel)).collect()
    }

    /// The axis of the elements `first`, `first + stride`, and so on.
    fn backward_axis(&self, i: usize, first: usize) -> WindowAxis {
        // Tap t of element x reads element (x + pad - t dilation) / stride of the output.
        let (stride, dilation) = (self.stride[i], self.dilation[i]);
        let place = first + self.pad[i];
        let (start, residue) = (place / stride, place % stride);
        let reach = |t: &usize| t * dilation % stride == residue;
        let taps: SmallVec<[usize; 8]> = (0..self.kernel[i]).filter(reach).collect();
        WindowAxis {
            positions: (self.input[i] - first).div_ceil(stride),
            step: 1,
            offsets: taps.iter().map(|t| start as isize - (t * dilation / stride) as isize).collect(),
            len: self.output[i],
            first,
            apart: stride,
            target: self.input[i],
            taps,
        }
    }
}

/// All multi-indices below the lengths, in row-major order.
fn indices(lengths: impl Iterator<Item = usize>) -> Vec<SmallVec<[usize; 3]>> {
    lengths.fold(vec![smallvec![]], |all, n| {
        let longer = |i: SmallVec<[usize; 3]>| (0..n).map(move |k| i.iter().copied().chain([k]).collect());
        all.into_iter().flat_map(longer).collect()
    })
}

impl Window {
    /// Combines the axes, outermost first, for a kernel of this shape. Computes the source row of each row of positions
    /// and each outer tap.
    fn new(axes: &[WindowAxis], kernel: &[usize]) -> Self {
        let outer = &axes[..axes.len() - 1];
        let last = &axes[axes.len() - 1];
        let rows = indices(outer.iter().map(|a| a.positions));
        let outer_taps = indices(outer.iter().map(|a| a.offsets.len()));
        let base = |row: &[usize], taps: &[usize]| {
            let mut at = 0;
            for ((axis, o), t) in outer.iter().zip(row).zip(taps) {
                let place = (o * axis.step) as isize + axis.offsets[*t];
                if place < 0 || place >= axis.len as isize {
                    return OUTSIDE;
                }
                at = at * axis.len as isize + place;
            }
            at * last.len as isize
        };
        let column = |offset: &isize| {
            let beyond = |limit: isize| (limit.max(0) as usize).div_ceil(last.step).min(last.positions);
            let start = beyond(-offset);
            Column { offset: *offset, start, end: beyond(last.len as isize - offset).max(start) }
        };
        let target = |row: &SmallVec<[usize; 3]>| {
            let place = |at, (axis, o): (&WindowAxis, &usize)| at * axis.target + axis.first + o * axis.apart;
            outer.iter().zip(row).fold(0, place) * last.target + last.first
        };
        let tap = |outer_tap: &SmallVec<[usize; 3]>| {
            let of_axis = |at, ((axis, t), n): ((&WindowAxis, &usize), &usize)| at * n + axis.taps[*t];
            outer.iter().zip(outer_tap).zip(kernel).fold(0, of_axis) * kernel[kernel.len() - 1]
        };
        let starts: Vec<usize> = outer_taps.iter().map(tap).collect();
        Self {
            axes: axes.into(),
            inner: axes[1..].iter().rev().skip(1).map(|a| a.positions).product(),
            width: last.positions,
            step: last.step,
            length: last.len,
            columns: last.offsets.iter().map(column).collect(),
            bases: rows.iter().flat_map(|r| outer_taps.iter().map(move |t| base(r, t))).collect(),
            outer: outer_taps.len(),
            targets: rows.iter().map(target).collect(),
            apart: last.apart,
            taps: starts.iter().flat_map(|s| last.taps.iter().map(move |t| s + t)).collect(),
            whole: axes.iter().all(|a| a.positions == a.target && a.apart == 1),
        }
    }

    /// The distance between taps along the first of several axes, if its positions are adjacent. Else one.
    pub(super) fn dilation(&self) -> usize {
        let first = &self.axes[0];
        if self.axes.len() > 1 && first.step == 1 { first.dilation().max(1) } else { 1 }
    }

    /// True if taps along an axis of adjacent positions are apart.
    pub(super) fn is_dilated(&self) -> bool {
        self.axes.iter().all(|axis| axis.step == 1) && self.axes.iter().any(|axis| axis.dilation() > 1)
    }

    /// The windows of each phase of the [dilation](Self::dilation), for a kernel of this shape.
    pub(super) fn phases(&self, kernel: &[usize]) -> Vec<Self> {
        let dilation = self.dilation();
        let phase = |first: usize| {
            let mut axes = self.axes.clone();
            axes[0] = axes[0].phase(first, dilation);
            Self::new(&axes, kernel)
        };
        (0..dilation.min(self.axes[0].positions)).map(phase).collect()
    }

    /// Divides adjacent positions into regions whose taps all read the source, for a kernel of this shape.
    pub(super) fn regions(&self, kernel: &[usize]) -> Vec<Self> {
        let mut regions: Vec<SmallVec<[WindowAxis; 3]>> = vec![smallvec![]];
        for axis in &self.axes {
            let segments = axis.segments();
            regions = regions
                .iter()
                .flat_map(|outer| segments.iter().map(|axis| outer.iter().chain([axis]).cloned().collect()))
                .collect();
        }
        regions.iter().map(|axes| Self::new(axes, kernel)).collect()
    }

    /// A window of one tap with a position for each element of the padded source that these positions read. `None` if
    /// they read no padding.
    pub(super) fn padded(&self) -> Option<Self> {
        let axis = |axis: &WindowAxis| {
            let (least, most) = axis.offsets.iter().fold((0, 0), |(a, b), o| (a.min(*o), b.max(*o)));
            let seen = axis.positions.max(1).saturating_sub(1) * axis.step + most.unsigned_abs() + 1;
            let (first, positions) = (least, least.unsigned_abs() + seen);
            (first, positions, first == 0 && positions <= axis.len)
        };
        if self.axes.iter().map(axis).all(|(.., is_within)| is_within) {
            return None;
        }
        let of_axis = |source: &WindowAxis| {
            let (first, positions, _) = axis(source);
            WindowAxis {
                positions,
                step: 1,
                offsets: smallvec![first],
                len: source.len,
                first: 0,
                apart: 1,
                target: positions,
                taps: smallvec![0],
            }
        };
        let axes: SmallVec<[WindowAxis; 3]> = self.axes.iter().map(of_axis).collect();
        Some(Self::new(&axes, &[1; 3][..axes.len()]))
    }

    /// True for two axes if some row of positions reads padding through all taps of a row.
    pub(super) fn has_padded_rows(&self) -> bool {
        self.axes.len() == 2 && self.bases.contains(&OUTSIDE)
    }

    /// The rows of taps through which a row of positions reads the source, for two axes.
    pub(super) fn tap_rows_of(&self, row: usize) -> Range<usize> {
        let bases = &self.bases[row * self.outer..][..self.outer];
        let is_read = |base: &isize| *base != OUTSIDE;
        let start = bases.iter().position(is_read).unwrap_or(0);
        start..bases.iter().rposition(is_read).map_or(start, |last| last + 1)
    }

    /// The number of outputs.
    pub(super) fn positions(&self) -> usize {
        self.targets.len() * self.width
    }
}
