//! Products of levels in tiles of AMX. Weights are packed as for `vdpbusd`: 16 groups of a register are a right tile.
//!
//! Rows of levels become left tiles, in place or as copies. Sums are stored in memory, and the registers of `vdpbusd`
//! convert them.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // other processors have no tiles

use std::sync::OnceLock;

use super::pack::Stretches;
use super::tile::{GROUP, IntegerKernel, TALL, WIDE};
use crate::kernels::amx::{
    AmxState, TILE_BYTES, TILE_ROWS, TileFactors, TileNumbers, TileSums, TilesInUse, multiply_levels,
};
use crate::kernels::scratch::List;
use crate::kernels::threads::Shared;

/// Rows of sums that are computed together.
const TALLEST: usize = 2 * TILE_ROWS;
/// Bytes of a row of sums.
const SUMS: usize = WIDE * size_of::<i32>();
/// Groups of a step.
const GROUPS: usize = TILE_BYTES / GROUP;
/// The fewest rows for which tiles are used. From here on, at least half of the rows of all tiles are used.
const LEAST: usize = TILE_ROWS / 2;
/// Cycles of the two products of a step: 16 rows and the columns of two registers.
const OF_STEP: usize = 32;
/// Cycles that sums of a row and a register take on their way through memory.
const OF_SUMS: usize = 4;
/// Cycles that a copy of the levels of a step takes for a row, and a copy of a run beyond that.
const OF_COPY: (usize, usize) = (4, 12);
/// Steps whose right tiles of two registers stay in an L1 cache of 48 KiB. Longer sums are computed in parts.
const NEAR: usize = 16;
/// Bytes of copies that stay in an L2 cache of 2 MiB, beside a panel.
const COPIES: usize = 1 << 18;
/// Bytes after packed weights that tiles may read: a last step of one group, and a last register without a partner.
pub(super) const EXCESS: usize = GROUPS * SUMS;

/// Kernels for products in tiles.
pub(super) struct TileKernels {
    /// True if tiles pay for this number of rows, these terms, and this number of columns.
    pub(super) pays: fn(usize, Stretches, usize) -> bool,
    /// Kernels that convert sums in memory: the rows of a tile are rows of sums. By number of registers minus one, then
    /// by number of rows minus one.
    pub(super) convert: &'static [&'static [IntegerKernel]],
}

/// Rows of levels as left tiles.
pub(super) struct LeftTiles {
    /// For each [`TALLEST`] rows, the first byte and the distance of rows.
    tiles: List<(Shared<u8>, usize)>,
    /// The number of rows.
    rows: usize,
    /// The groups of a run.
    groups: usize,
    /// The number of runs.
    runs: usize,
    /// Copies of rows.
    _copies: List<u8>,
}

/// Packed weights of some columns.
#[derive(Clone, Copy)]
pub(super) struct WeightPanel {
    /// The weights.
    pub(super) weights: *const i8,
    /// The number of registers.
    pub(super) registers: usize,
}

/// True if tiles take less time than `vdpbusd`, which adds two registers in a cycle. A tile takes the same time if part
/// of its rows and terms is unused.
pub(super) fn pays(rows: usize, stretches: Stretches, columns: usize) -> bool {
    let (groups, registers) = (stretches.count * stretches.groups(), columns.div_ceil(WIDE / 4));
    let steps = stretches.count * stretches.groups().div_ceil(GROUPS);
    let in_registers = rows * groups * registers / 2;
    let products = rows.div_ceil(TILE_ROWS) * steps * registers.div_ceil(2) * OF_STEP;
    let of_row = registers * OF_SUMS + steps * OF_COPY.0 + stretches.count * OF_COPY.1;
    rows >= LEAST && products + rows * of_row < in_registers
}

/// The number of rows whose copies stay in the cache.
pub(super) fn rows_of_copies(stretches: Stretches) -> usize {
    (COPIES / row_of_copies(stretches.count, stretches.groups()) / TALLEST * TALLEST).max(TALLEST)
}

/// Bytes of a copy of a row.
fn row_of_copies(runs: usize, groups: usize) -> usize {
    (runs * groups.next_multiple_of(GROUPS) * GROUP).max(TILE_BYTES)
}

impl LeftTiles {
    /// Rows with these addresses, with runs of `length` levels at `taps`. Rows are copied unless tiles can read them in
    /// place.
    ///
    /// # Safety
    /// The levels must be readable while this is alive.
    pub(super) unsafe fn new(starts: &[*const u8], taps: &[isize], length: usize) -> Self {
        let (rows, groups) = (starts.len(), length.div_ceil(GROUP));
        let row = row_of_copies(taps.len(), groups);
        let (of_tap, distance) = (groups.next_multiple_of(GROUPS) * GROUP, distance(starts));
        let is_whole = taps.len() == 1 && length.is_multiple_of(TILE_BYTES) && length > 0;
        let distance = distance.filter(|_| is_whole);
        // The first row that is copied.
        let first = distance.map_or(0, |_| rows / TALLEST * TALLEST);
        let copied = (rows - first).next_multiple_of(TILE_ROWS);
        let mut copies = List::with_capacity(copied * row);
        for (start, tap) in starts[first..].iter().flat_map(|start| taps.iter().map(move |tap| (start, tap)))
        {
            // SAFETY: guaranteed by the caller.
            copies.extend_from_slice(unsafe { std::slice::from_raw_parts(start.offset(*tap), length) });
            copies.extend_with(0, of_tap - length);
        }
        copies.extend_with(0, copied * row - copies.len());
        let tile = |i: usize| match distance.filter(|_| i < first) {
            Some(by) => (Shared::read_only(starts[i].wrapping_offset(taps[0])), by),
            None => (Shared::read_only(copies[(i - first) * row..].as_ptr()), row),
        };
        let tiles = (0..rows).step_by(TALLEST).map(tile).collect();
        Self { tiles, rows, groups, runs: taps.len(), _copies: copies }
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Computes the sums of all rows with a panel. `then` receives the number of the first of up to [`TALL`] rows, and
    /// the address of the sums of each.
    ///
    /// # Safety
    /// The panel must have weights for all groups, followed by [`EXCESS`] bytes. Whole tiles of this thread must be in
    /// use.
    pub(super) unsafe fn multiply(&self, panel: WeightPanel, mut then: impl FnMut(usize, &[*const u8])) {
        let row = panel.registers * WIDE;
        let per_run = self.groups.div_ceil(GROUPS);
        let place = |i: usize| ((i / per_run * self.groups + i % per_run * GROUPS) * row) as isize;
        let steps: List<isize> = (0..self.runs * per_run).map(place).collect();
        let memory = self.rows.next_multiple_of(TILE_ROWS) * WIDE;
        let memory = List::<i32>::with_capacity(memory);
        let sums = memory.as_ptr().cast_mut().cast::<u8>();
        // Without terms there is still one part, which writes zeros.
        for first in (0..steps.len().max(1)).step_by(NEAR) {
            let part = &steps[first..steps.len().min(first + NEAR)];
            for register in (0..panel.registers).step_by(2) {
                for (i, (a, a_row)) in self.tiles.iter().enumerate() {
                    let factors = TileFactors {
                        a: a.get().wrapping_add(first * TILE_BYTES),
                        a_row: *a_row,
                        b: panel.weights.wrapping_add(register * TILE_BYTES).cast(),
                        b_row: row,
                        steps: part,
                    };
                    let p = sums.wrapping_add(i * TALLEST * SUMS + register * TILE_BYTES);
                    let to = TileSums { p, row: SUMS, accumulate: first > 0 };
                    // SAFETY: guaranteed by the caller. There are rows and sums for whole tiles.
                    unsafe { multiply_levels(&factors, self.rows - i * TALLEST, to) };
                }
            }
        }
        for first in (0..self.rows).step_by(TALL) {
            let rows: [*const u8; TALL] =
                std::array::from_fn(|i| sums.wrapping_add((first + i) * SUMS).cast_const());
            then(first, &rows[..TALL.min(self.rows - first)]);
        }
    }
}

/// The distance of rows that are evenly spaced.
fn distance(starts: &[*const u8]) -> Option<usize> {
    let [first, second, ..] = starts else { return None };
    let by = second.addr().checked_sub(first.addr())?;
    starts.windows(2).all(|two| two[0].addr() + by == two[1].addr()).then_some(by)
}

/// True if products of levels use AMX. The machine must have AVX-512 with VNNI.
pub(super) fn are_used() -> bool {
    state() == AmxState::On
}

/// True if AMX is off because its first product was wrong. Only after [`are_used`].
pub(super) fn are_wrong() -> bool {
    STATE.get() == Some(&AmxState::Wrong)
}

/// The use of AMX in this process.
static STATE: OnceLock<AmxState> = OnceLock::new();

/// The use of AMX in this process, decided at the first call.
fn state() -> AmxState {
    // SAFETY: the machine has the instructions, and the system permits them.
    *STATE.get_or_init(|| AmxState::of(TileNumbers::Integers, || unsafe { is_right() }))
}

/// True if a product with whole tiles, parts of tiles, and more terms than stay near has the sums of plain Rust.
///
/// # Safety
/// The machine must have the instructions, and the system must permit them.
unsafe fn is_right() -> bool {
    let (rows, groups, columns) = (53, NEAR * GROUPS + 5, WIDE);
    let byte = |i: usize| ((i * 7919 + 31) % 1009 % 256) as u8;
    let levels: List<u8> = (0..rows * groups * GROUP).map(byte).collect();
    let weights: List<u8> = (0..groups * columns * GROUP + EXCESS).map(|i| byte(i + 5)).collect();
    let starts: List<*const u8> = levels.chunks_exact(groups * GROUP).map(<[u8]>::as_ptr).collect();
    let mut is_right = true;
    // SAFETY: guaranteed by the caller, and the matrices have these sizes.
    unsafe {
        let _tiles = TilesInUse::new();
        let panel = WeightPanel { weights: weights.as_ptr().cast(), registers: SUMS / TILE_BYTES };
        LeftTiles::new(&starts, &[0], groups * GROUP).multiply(panel, |first, sums| {
            for (i, sums) in sums.iter().enumerate() {
                let sums = std::slice::from_raw_parts(sums.cast::<i32>(), columns);
                let row = &levels[(first + i) * groups * GROUP..][..groups * GROUP];
                for (column, sum) in sums.iter().enumerate() {
                    let term = |(k, level): (usize, &u8)| {
                        let weight = weights[(k / GROUP * columns + column) * GROUP + k % GROUP];
                        i32::from(*level) * i32::from(weight.cast_signed())
                    };
                    is_right &= *sum == row.iter().enumerate().map(term).sum::<i32>();
                }
            }
        });
    }
    is_right
}

#[cfg(test)]
mod tests {
    use super::{Stretches, distance, pays};

    #[test]
    fn tiles_that_are_mostly_empty_do_not_pay() {
        let rows = |length| Stretches { count: 1, length };
        assert!(pays(8, rows(1024), 64) && !pays(7, rows(1024), 64) && !pays(0, rows(1024), 64));
        assert!(pays(64, rows(128), 64) && !pays(64, rows(16), 64) && !pays(64, rows(128), 4));
        assert!(pays(1000, Stretches { count: 3, length: 192 }, 32));
        assert!(!pays(1000, Stretches { count: 9, length: 8 }, 32));
    }

    #[test]
    fn only_evenly_spaced_rows_have_a_distance() {
        let levels = [0_u8; 9];
        let at = |places: &[usize]| places.iter().map(|at| levels[*at..].as_ptr()).collect::<Vec<_>>();
        assert_eq!(distance(&at(&[1, 4, 7])), Some(3));
        assert_eq!(distance(&at(&[1, 4, 8])), None);
        assert_eq!(distance(&at(&[4, 1])), None);
        assert_eq!(distance(&at(&[4])), None);
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn the_first_product_is_right() {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
            crate::kernels::amx::trap();
            // SAFETY: the instructions run.
            assert!(unsafe { super::is_right() });
        }
    }
}
