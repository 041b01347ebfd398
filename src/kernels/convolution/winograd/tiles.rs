//! Divides planes into tiles of Winograd's algorithm, and these into blocks.

use std::ops::Range;

use super::phases::{Phases, TileRow};
use super::transforms::{OUT, PRODUCTS};
use crate::kernels::gemm::EvenSplit;

/// The most tiles in a block. More tiles use the weights better.
const MOST: usize = 48;
/// The fewest tiles in a block.
const LEAST: usize = 12;
/// The number of factors and products of a block that fit the second-level cache.
const BLOCK: usize = 512 << 10;

/// The tiles over the target, divided into blocks.
#[derive(Clone, Copy)]
pub(in super::super) struct Tiles {
    /// A row of tiles.
    pub(in super::super) row: TileRow,
    /// The number of tiles in a row of tiles.
    pub(in super::super) across: usize,
    /// The planes of each block.
    pub(in super::super) planes: EvenSplit,
    /// The rows of tiles of each block.
    pub(in super::super) rows: EvenSplit,
    /// The number of tiles in the largest block.
    pub(in super::super) most: usize,
}

impl Tiles {
    /// Blocks that fit the cache and divide evenly among this number of threads.
    pub(in super::super) fn new(phases: &Phases, images: usize, channels: usize, threads: usize) -> Self {
        let (planes, row) = (phases.planes(images), phases.row());
        let (down, across) = (phases.size(0).0.div_ceil(OUT), row.tiles());
        let wanted = (BLOCK / (PRODUCTS * channels)).clamp(LEAST, MOST);
        let rows = EvenSplit::new(down, down.div_ceil((wanted / across).max(1)));
        let together = if rows.parts() == 1 { (wanted / (down * across)).clamp(1, planes) } else { 1 };
        let even = |parts: usize, most: usize| parts.next_multiple_of(threads).min(most.max(parts));
        let parts = even(planes.div_ceil(together), planes);
        // A single plane is divided by rows.
        let rows = if parts == 1 { EvenSplit::new(down, even(rows.parts(), down)) } else { rows };
        let planes = EvenSplit::new(planes, parts);
        Self { row, across, planes, rows, most: planes.part(0).len() * rows.part(0).len() * across }
    }

    /// All tiles in one block.
    pub(in super::super) fn all(phases: &Phases, images: usize) -> Self {
        let (planes, row) = (phases.planes(images), phases.row());
        let (down, across) = (phases.size(0).0.div_ceil(OUT), row.tiles());
        Self {
            row,
            across,
            planes: EvenSplit::new(planes, 1),
            rows: EvenSplit::new(down, 1),
            most: planes * down * across,
        }
    }

    /// The number of blocks.
    pub(in super::super) fn blocks(&self) -> usize {
        self.planes.parts() * self.rows.parts()
    }

    /// The planes and the rows of tiles of block `i`.
    pub(in super::super) fn block(&self, i: usize) -> (Range<usize>, Range<usize>) {
        (self.planes.part(i / self.rows.parts()), self.rows.part(i % self.rows.parts()))
    }
}
