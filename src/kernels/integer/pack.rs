//! Packing of weights into the layout of the kernels: panels of columns, with the four terms of a group adjacent.

use std::ops::Range;

use super::tile::{GROUP, Kernels};
use crate::array::{InputCache, Lent};
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, parallel};

/// A matrix of 8-bit weights with any strides.
#[derive(Clone, Copy)]
pub struct QuantizedWeights<'a> {
    /// The weights as bytes.
    data: &'a [u8],
    /// The distance between two terms of a column, and between two columns.
    steps: [usize; 2],
    /// The number of columns.
    columns: usize,
    /// The number of terms of a column.
    terms: usize,
    /// The bits to flip in order to make signed weights of bytes. Zero points change accordingly.
    shift: u8,
}

impl<'a> QuantizedWeights<'a> {
    /// Signed weights, with the terms of each column contiguous.
    pub fn of_columns(data: &'a [i8], columns: usize, terms: usize) -> Self {
        Self { steps: [1, terms], ..Self::of_rows(data, terms, columns) }
    }

    /// Signed weights, with one row per term.
    pub fn of_rows(data: &'a [i8], terms: usize, columns: usize) -> Self {
        assert_eq!(data.len(), terms * columns, "weights that have not the shape");
        // SAFETY: `i8` and `u8` have the same layout.
        let data = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), data.len()) };
        Self { data, steps: [columns, 1], columns, terms, shift: 0 }
    }

    /// Levels, row-major or column-major, as weights that are 128 less.
    pub fn of_levels(data: &'a [u8], terms: usize, columns: usize, in_columns: bool) -> Self {
        assert_eq!(data.len(), terms * columns, "levels that have not the shape");
        let steps = if in_columns { [1, terms] } else { [columns, 1] };
        Self { data, steps, columns, terms, shift: 128 }
    }
}

/// The layout of the terms of a column: contiguous runs of equal length, one for each tap.
#[derive(Clone, Copy)]
pub(super) struct Stretches {
    /// The number of runs.
    pub(super) count: usize,
    /// The number of terms of a run.
    pub(super) length: usize,
}

impl Stretches {
    /// Groups of four in a run.
    pub(super) fn groups(self) -> usize {
        self.length.div_ceil(GROUP)
    }
}

/// Packed weights.
pub(super) struct Packed<'a> {
    /// The addresses of the panels.
    panels: WeightPanels,
    /// Keeps the memory alive.
    _memory: PackedMemory<'a>,
}

/// The memory of packed weights: of the cache, or its own.
#[allow(dead_code)] // keeps the memory alive
enum PackedMemory<'a> {
    Kept(Lent<'a, u8>),
    Own(List<u8>),
}

/// The addresses of packed weights.
#[derive(Clone, Copy)]
pub(super) struct WeightPanels {
    /// The kernels that read the panels.
    kernels: &'static Kernels,
    /// The first byte.
    start: Shared<u8>,
    /// The number of columns.
    pub(super) columns: usize,
    /// Groups of all runs.
    groups: usize,
    /// Columns, padded to whole registers.
    padded: usize,
}

impl<'a> Packed<'a> {
    /// Packs weights, or returns the cached packed form.
    pub(super) fn new(
        kernels: &'static Kernels,
        weights: QuantizedWeights<'_>,
        stretches: Stretches,
        input_cache: Option<InputCache<'a>>,
    ) -> Self {
        assert_eq!(stretches.count * stretches.length, weights.terms, "stretches that are not the terms");
        let columns = weights.columns;
        let padded = columns.next_multiple_of(kernels.width);
        let size = WeightPanels::bytes(kernels, columns, stretches);
        let at = |start| WeightPanels::at(kernels, start, columns, stretches);
        if let Some(mut lent) =
            input_cache.and_then(|array| array.lend(0, [stretches.count, columns, padded], size))
        {
            let panels = at(lent.ptr());
            if !lent.is_made() {
                panels.pack(weights, stretches);
                lent.made();
            }
            return Self { panels, _memory: PackedMemory::Kept(lent) };
        }
        let own = List::<u8>::with_capacity(size);
        let panels = at(own.as_ptr().cast_mut());
        panels.pack(weights, stretches);
        Self { panels, _memory: PackedMemory::Own(own) }
    }

    /// The addresses, valid while this is alive.
    pub(super) fn panels(&self) -> WeightPanels {
        self.panels
    }
}

impl WeightPanels {
    /// Panels at an address, with [`WeightPanels::bytes`] bytes.
    pub(super) fn at(
        kernels: &'static Kernels,
        start: *mut u8,
        columns: usize,
        stretches: Stretches,
    ) -> Self {
        let groups = stretches.count * stretches.groups();
        let padded = columns.next_multiple_of(kernels.width);
        Self { kernels, start: Shared::new(start), columns, groups, padded }
    }

    /// Bytes of packed weights.
    pub(super) fn bytes(kernels: &Kernels, columns: usize, stretches: Stretches) -> usize {
        let groups = stretches.count * stretches.groups();
        columns.next_multiple_of(kernels.width) * (groups * GROUP + size_of::<i32>()) + kernels.excess()
    }

    /// The panel that begins at a column, which must be a multiple of the panel width, and its number of registers.
    pub(super) fn panel(&self, column: usize) -> (*const i8, usize) {
        let registers = (self.padded - column).min(self.kernels.panel()) / self.kernels.width;
        (self.start.get().wrapping_add(column * self.groups * GROUP).cast(), registers)
    }

    /// The sums of the weights of each column.
    fn sums_ptr(&self) -> *mut i32 {
        self.start.get().wrapping_add(self.padded * self.groups * GROUP).cast()
    }

    /// The sum of the weights of a column.
    pub(super) fn sum(&self, column: usize) -> i32 {
        assert!(column < self.columns);
        // SAFETY: the sums follow the panels, and were written.
        unsafe { *self.sums_ptr().add(column) }
    }

    /// Packs the weights panel by panel, and sums their columns.
    pub(super) fn pack(&self, weights: QuantizedWeights<'_>, stretches: Stretches) {
        let Self { kernels, start: to, columns, groups, padded } = *self;
        let (sums, wide) = (Shared::new(self.sums_ptr()), kernels.panel());
        parallel(columns.div_ceil(wide), |i| {
            let first = i * wide;
            let (n, size) = (wide.min(columns - first), wide.min(padded - first));
            // SAFETY: panels, and the sums of their columns, are disjoint.
            let (panel, sums) = unsafe {
                (
                    std::slice::from_raw_parts_mut(
                        to.get().add(first * groups * GROUP),
                        size * groups * GROUP,
                    ),
                    std::slice::from_raw_parts_mut(sums.get().add(first), n),
                )
            };
            sums.fill(0);
            vectorised(
                #[inline(always)]
                || fill(weights, stretches, first, kernels.joins_groups, panel, sums),
            );
        });
    }
}

/// Packs a panel of the columns from `first` on, one for each sum. With `joins`, two adjacent groups of a column are
/// packed as one.
#[inline(always)]
fn fill(
    weights: QuantizedWeights<'_>,
    stretches: Stretches,
    first: usize,
    joins: bool,
    panel: &mut [u8],
    sums: &mut [i32],
) {
    let per_stretch = stretches.groups();
    let all = panel.len() / GROUP / (stretches.count * per_stretch).max(1);
    let columns = panel.as_chunks_mut::<GROUP>().0;
    for g in 0..columns.len() / all.max(1) {
        let (stretch, group) = (g / per_stretch, g % per_stretch);
        let terms = (stretch * stretches.length, group * GROUP..stretches.length.min((group + 1) * GROUP));
        if joins && group | 1 < per_stretch {
            let pair = columns[(g - group % 2) * all..][..2 * all].as_chunks_mut::<2>().0;
            fill_group(weights, terms, first, |to: &mut [[u8; GROUP]; 2]| &mut to[group % 2], pair, sums);
        } else {
            fill_group(weights, terms, first, |to| to, &mut columns[g * all..][..all], sums);
        }
    }
}

/// Packs the terms `within` a group that starts after `start` terms. `four` returns the memory of a column.
#[inline(always)]
fn fill_group<T>(
    weights: QuantizedWeights<'_>,
    (start, within): (usize, Range<usize>),
    first: usize,
    four: impl Fn(&mut T) -> &mut [u8; GROUP],
    to: &mut [T],
    sums: &mut [i32],
) {
    let QuantizedWeights { data, steps: [term, column], shift, .. } = weights;
    let (columns, n) = (sums.len(), within.len());
    let (mask, lasts) = ([shift; GROUP], (columns - 1) * column);
    let start = (start + within.start) * term + first * column;
    let (to, rest) = to.split_at_mut(columns);
    for to in rest {
        *four(to) = [0; GROUP];
    }
    if n == GROUP && column == 1 {
        let rows: [&[u8]; GROUP] = std::array::from_fn(|k| &data[start + k * term..][..columns]);
        for (c, to) in to.iter_mut().enumerate() {
            *four(to) = flipped([rows[0][c], rows[1][c], rows[2][c], rows[3][c]], mask);
        }
    } else if n == GROUP && term == 1 {
        let data = &data[start..][..lasts + GROUP];
        for (c, to) in to.iter_mut().enumerate() {
            *four(to) = flipped(std::array::from_fn(|k| data[c * column + k]), mask);
        }
    } else {
        for (c, to) in to.iter_mut().enumerate() {
            let weight = |k: usize| data[start + c * column + k * term] ^ shift;
            *four(to) = std::array::from_fn(|k| if k < n { weight(k) } else { 0 });
        }
    }
    for (sum, to) in sums.iter_mut().zip(to) {
        let four = four(to).map(|byte| i32::from(byte.cast_signed()));
        *sum = sum.wrapping_add(four[0] + four[1] + four[2] + four[3]);
    }
}

/// Flips the bits of the mask in each byte.
#[inline(always)]
fn flipped(bytes: [u8; GROUP], mask: [u8; GROUP]) -> [u8; GROUP] {
    (u32::from_le_bytes(bytes) ^ u32::from_le_bytes(mask)).to_le_bytes()
}
