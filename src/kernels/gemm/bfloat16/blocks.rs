//! A product in bfloat16, cut into chunks for threads and into blocks that fit the L2 cache. The division into tiles
//! and sums depends only on the shape.

use std::marker::PhantomData;
use std::ops::Range;

use super::pack;
use super::pair_tile::{PairTile, TileEpilogue, TilePart};
use super::source::PairOperand;
use super::tile::{KERNELS, PANEL, ROWS, WIDTH};
use crate::array::Workspace;
use crate::kernels::epilogue::{Activation, Epilogue};
use crate::kernels::gemm::blocks::TileGrid;
use crate::kernels::gemm::split::EvenSplit;
use crate::kernels::stop;
use crate::kernels::threads::{Shared, parallel};

/// The most terms of a sum in a block. Longer sums are completed in the result, or in `f32` memory.
pub(super) const DEPTH: usize = 2048;
/// Pairs of a sum up to which most time is spent on the result, which is then visited row by row.
const SHALLOW: usize = 64;
/// Bytes after a packed row, so that rows do not map to the same sets of the L1 cache.
const GAP: usize = 64;

/// Packs rows of a left matrix, as [`pack::rows`].
pub(super) type PackRows = unsafe fn(PairOperand, usize, usize, usize, *mut u8, usize);

/// Kernels for the tiles of a product, and the blocks that suit them.
pub(super) trait PairKernels {
    /// Rows of the tallest tile.
    const TALLEST: usize;
    /// Tiles start at multiples of this number of rows.
    const ROWS: usize;
    /// Packed sums have a multiple of this number of pairs.
    const PAIRS: usize;
    /// The most pairs of a panel of the right matrix that stay near. More are multiplied in parts, each by all rows.
    const NEAR: usize;
    /// Packs a left matrix of any strides in contiguous rows. If none, it is packed tile after tile.
    const TURNED_ROWS: Option<PackRows>;
    /// Words of the packed right matrix in a block.
    const RIGHT: usize;
    /// Words of the packed left matrix in a block.
    const LEFT: usize;
    /// Panels up to which a left matrix of contiguous rows of bfloat16 is read in place.
    const IN_PLACE: usize;
    /// The number of these multiplications that take the time of one in `f32`.
    const SPEED: usize;
    /// The state that a thread holds while it computes tiles.
    type Registers;

    /// Prepares this thread.
    ///
    /// # Safety
    /// The machine must have the instructions. Also below.
    unsafe fn prepare() -> Self::Registers;

    /// Computes a tile with this number of rows.
    ///
    /// # Safety
    /// The thread must be prepared, and the memory of the tile valid, the left one up to a multiple of
    /// [`PairKernels::ROWS`].
    unsafe fn tile(tile: &PairTile, rows: usize);
}

/// Kernels in registers, with the instruction `vdpbf16ps`, or `bfmmla`.
pub(super) struct InRegisters;

impl PairKernels for InRegisters {
    const TALLEST: usize = ROWS;
    const ROWS: usize = 1;
    const PAIRS: usize = 1;
    const NEAR: usize = usize::MAX;
    const TURNED_ROWS: Option<PackRows> = None;
    const RIGHT: usize = 1 << 17;
    const LEFT: usize = 1 << 16;
    const IN_PLACE: usize = 2;
    const SPEED: usize = 1;
    type Registers = ();

    unsafe fn prepare() {}

    #[inline(always)]
    unsafe fn tile(tile: &PairTile, rows: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { KERNELS[usize::from(tile.n > WIDTH)][rows - 1](tile) };
    }
}

/// A product `c = epilogue(a b)`: `a` has `m` rows, `b` has `n` columns. Rows of `c` are contiguous and `c_row`
/// elements apart, of bfloat16 if `is_narrow`. Then sums have at most [`DEPTH`] terms, and there is no
/// function of written rows.
pub(super) struct PairProduct<'a> {
    /// Rows of the result.
    pub(super) m: usize,
    /// Columns of the result.
    pub(super) n: usize,
    /// Terms of each sum.
    pub(super) k: usize,
    /// The left matrix.
    pub(super) a: PairOperand,
    /// The right matrix.
    pub(super) b: PairOperand,
    /// The first element of the result.
    pub(super) c: *mut u8,
    /// The distance from a row of the result to the next, in elements.
    pub(super) c_row: isize,
    /// True if the result is in bfloat16.
    pub(super) is_narrow: bool,
    /// The epilogue, which is applied to each sum.
    pub(super) epilogue: Epilogue<'a, f32>,
}

// SAFETY: only addresses. Users of the addresses ensure safe access.
unsafe impl Sync for PairProduct<'_> {}

/// Some rows and columns of tiles.
struct PairChunk<'a, K> {
    /// The whole product.
    product: &'a PairProduct<'a>,
    /// The kernels that compute the tiles.
    kernels: PhantomData<K>,
    /// Rows of the matrix in each row of tiles, in units of [`PairKernels::ROWS`].
    heights: EvenSplit,
    /// Rows of tiles.
    rows: Range<usize>,
    /// Columns of tiles.
    columns: Range<usize>,
    /// Terms in a block, a multiple of two times [`PairKernels::PAIRS`].
    depth: usize,
    /// The whole right matrix, block after block, or null if the chunk packs its columns.
    right: *const u32,
    /// True if the left matrix is packed before the tiles read it.
    packs_left: bool,
}

/// The packed left matrix of some tiles, or the left matrix in place.
#[derive(Clone, Copy)]
enum LeftPairs {
    /// Rows this number of bytes apart.
    Rows(*const u8, usize),
    /// PairTile after tile, pair after pair.
    Tiles(*const u32),
}

impl PairProduct<'_> {
    /// Computes the product.
    ///
    /// # Safety
    /// The machine must have the instructions of the kernels, and of packing: on x86-64 AVX-512 with BF16. The matrices
    /// must be valid, and `c` must not be accessed concurrently.
    pub(super) unsafe fn run<K: PairKernels>(&self) {
        let Self { m, n, k, .. } = *self;
        let panels = n.div_ceil(PANEL);
        let depth = k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1).next_multiple_of(2 * K::PAIRS);
        let is_whole = k.is_multiple_of(2 * K::PAIRS) && m.is_multiple_of(K::ROWS);
        let packs_left = !(self.a.is_narrow && self.a.col == 1 && is_whole && panels <= K::IN_PLACE);
        let grid = TileGrid::new((m, n, k.div_ceil(K::SPEED)), (K::TALLEST, PANEL), packs_left);
        let heights = EvenSplit::new(m.div_ceil(K::ROWS), grid.heights.parts());
        let shares = !grid.by_columns && grid.chunks.parts() > 1;
        let all = shares.then(|| memory(pairs::<K>(k) * panels * PANEL));
        if let Some(all) = &all {
            let (blocks, to) = (k.div_ceil(depth), Shared::new(all.ptr()));
            parallel(blocks * panels, |i| {
                let (p, panel) = (i / panels * depth, i % panels);
                // SAFETY: guaranteed by the caller, and each task writes its own part.
                unsafe {
                    let to = to.get().add(at::<K>(p, depth.min(k - p), panel, panels));
                    self.pack_panel::<K>(p, depth, panel, to);
                }
            });
        }
        let right = all.as_ref().map_or(std::ptr::null(), |all| all.ptr().cast_const());
        let right = Shared::read_only(right);
        let chunk = |i: usize| {
            let (rows, columns) = grid.chunk(i);
            let (right, kernels) = (right.get().cast_const(), PhantomData::<K>);
            let chunk =
                PairChunk { product: self, kernels, heights, rows, columns, depth, right, packs_left };
            // SAFETY: guaranteed by the caller, and each chunk has its own part of the result.
            unsafe { chunk.run() };
        };
        match grid.chunks.parts() {
            1 => chunk(0),
            count => parallel(count, chunk),
        }
    }

    /// Packs the terms from `p` on of a panel.
    unsafe fn pack_panel<K: PairKernels>(&self, p: usize, depth: usize, panel: usize, to: *mut u32) {
        let (j, k) = (panel * PANEL, depth.min(self.k - p));
        // SAFETY: guaranteed by the caller.
        unsafe { pack::panel(self.b.part(p, j), k, PANEL.min(self.n - j), pairs::<K>(k), to) };
    }
}

/// Scratch memory for packed words.
fn memory(n: usize) -> Workspace<u32> {
    Workspace::new(n).unwrap_or_else(|error| stop::raise(error.into()))
}

/// The number of pairs of `k` terms in packed memory.
fn pairs<K: PairKernels>(k: usize) -> usize {
    k.div_ceil(2).next_multiple_of(K::PAIRS)
}

/// The place of a panel in a packed matrix of this many panels, for the block of `k` terms from `p` on.
fn at<K: PairKernels>(p: usize, k: usize, panel: usize, panels: usize) -> usize {
    (p / 2 * panels + pairs::<K>(k) * panel) * PANEL
}

impl<K: PairKernels> PairChunk<'_, K> {
    /// Computes this part of the product.
    ///
    /// # Safety
    /// As [`PairProduct::run`].
    unsafe fn run(&self) {
        let (product, depth) = (self.product, self.depth);
        let pairs = pairs::<K>(depth.min(product.k)).max(1);
        let wide = (K::RIGHT / (pairs * PANEL)).max(1).min(self.columns.len());
        let tall = (K::LEFT / (pairs * K::TALLEST)).max(1).min(self.rows.len());
        let of_b = if self.right.is_null() { pairs * wide * PANEL } else { 0 };
        let row = (2 * pairs * 2).next_multiple_of(64) + GAP;
        let of_a = if self.packs_left { tall * K::TALLEST * row.div_ceil(4) } else { 0 };
        let of_sums = if pairs > K::NEAR { tall * K::TALLEST * PANEL } else { 0 };
        let packed = memory(of_a + of_b + of_sums);
        let (b, a) = (packed.ptr(), packed.ptr().wrapping_add(of_b));
        let sums = if of_sums > 0 { a.wrapping_add(of_a).cast() } else { std::ptr::null_mut() };
        let parts = EvenSplit::new(self.rows.len(), self.rows.len().div_ceil(tall));
        // SAFETY: guaranteed by the caller.
        let _registers = unsafe { K::prepare() };
        for first in self.columns.clone().step_by(wide) {
            let columns = first..self.columns.end.min(first + wide);
            for p in (0..product.k.max(1)).step_by(depth) {
                for part in 0..parts.parts() {
                    if part > 0 || p > 0 {
                        stop::poll();
                    }
                    let some = parts.part(part);
                    let rows = self.rows.start + some.start..self.rows.start + some.end;
                    // SAFETY: guaranteed by the caller, and the workspace holds the largest block.
                    unsafe {
                        let left = self.left(rows.clone(), p, a, row);
                        self.block(&rows, &columns, p, left, (b, sums));
                    }
                }
            }
        }
    }

    /// The rows of the matrix in some rows of tiles.
    #[inline(always)]
    fn in_matrix(&self, tiles: Range<usize>) -> Range<usize> {
        let (first, last) = (self.heights.part(tiles.start), self.heights.part(tiles.end - 1));
        first.start * K::ROWS..(last.end * K::ROWS).min(self.product.m)
    }

    /// The left matrix of some rows of tiles, packed at `to` if it is not read in place.
    unsafe fn left(&self, rows: Range<usize>, p: usize, to: *mut u32, row: usize) -> LeftPairs {
        let a = self.product.a;
        let k = self.depth.min(self.product.k - p);
        let Range { start: i, end } = self.in_matrix(rows.clone());
        if !self.packs_left {
            return LeftPairs::Rows(a.at(i, p), a.row as usize * 2);
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            let part = a.part(i, p);
            let Some(pack) = (if a.col == 1 { Some(pack::rows as PackRows) } else { K::TURNED_ROWS }) else {
                pack::columns(part, self.heights, rows, k, to);
                return LeftPairs::Tiles(to);
            };
            pack(part, end - i, k, pairs::<K>(k), to.cast(), row);
        }
        LeftPairs::Rows(to.cast(), row)
    }

    /// Computes the tiles of these rows and columns of tiles, for the terms from `p` on. `packed` is scratch for the
    /// right matrix, which the first row of tiles fills unless the matrix is packed already. `sums` is scratch for the
    /// sums of a column of tiles, if pairs come in parts.
    unsafe fn block(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        p: usize,
        left: LeftPairs,
        (packed, sums): (*mut u32, *mut f32),
    ) {
        let product = self.product;
        let k = self.depth.min(product.k - p);
        let (pairs, panels) = (pairs::<K>(k), product.n.div_ceil(PANEL));
        let first = self.in_matrix(rows.clone()).start;
        let packs = self.right.is_null() && rows.start == self.rows.start;
        let tile = |row: usize, column: usize, some: Range<usize>| {
            let b = if self.right.is_null() {
                packed.cast_const().wrapping_add((column - columns.start) * pairs * PANEL)
            } else {
                self.right.wrapping_add(at::<K>(p, k, column, panels))
            };
            if packs && row == rows.start && some.start == 0 {
                // SAFETY: guaranteed by the caller.
                unsafe { product.pack_panel::<K>(p, self.depth, column, b.cast_mut()) };
            }
            let of = self.in_matrix(row..row + 1);
            let (a, a_row, a_pair) = match left {
                LeftPairs::Rows(a, row) => (a.wrapping_add((of.start - first) * row), row, 4),
                LeftPairs::Tiles(a) => (a.wrapping_add((of.start - first) * pairs).cast(), 4, 4 * of.len()),
            };
            let (i, j) = (of.start, column * PANEL);
            let size = if product.is_narrow { 2 } else { 4 };
            let epilogue = product.epilogue.of_part(p == 0, p + k == product.k).part(i, j);
            let tile = PairTile {
                pairs: some.len(),
                n: PANEL.min(product.n - j),
                a: a.wrapping_add(some.start * a_pair),
                a_row,
                a_pair,
                b: b.wrapping_add(some.start * PANEL),
                c: product.c.wrapping_offset((i as isize * product.c_row + j as isize) * size),
                c_row: product.c_row,
                is_narrow: product.is_narrow,
                epilogue: TileEpilogue {
                    accumulate: epilogue.accumulate,
                    row_bias: epilogue.row_bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
                    column_bias: epilogue.column_bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
                    relu: epilogue.tail.activation == Activation::Relu,
                },
                sums: sums.wrapping_add((row - rows.start) * K::TALLEST * PANEL),
                part: TilePart { is_first: some.start == 0, is_last: some.end == pairs },
            };
            // SAFETY: guaranteed by the caller, and the tile is within the matrices.
            unsafe { K::tile(&tile, of.len()) };
        };
        if pairs <= SHALLOW {
            for row in rows.clone() {
                columns.clone().for_each(|column| tile(row, column, 0..pairs));
                self.finish(row..row + 1, columns, p + k);
            }
        } else {
            for column in columns.clone() {
                for start in (0..pairs).step_by(K::NEAR.min(pairs)) {
                    let some = start..pairs.min(start.saturating_add(K::NEAR));
                    rows.clone().for_each(|row| tile(row, column, some.clone()));
                }
            }
            self.finish(rows.clone(), columns, p + k);
        }
    }

    /// Applies functions of written rows to tiles whose sums have `done` terms.
    fn finish(&self, rows: Range<usize>, columns: &Range<usize>, done: usize) {
        let product = self.product;
        if done < product.k || product.epilogue.tail.rows.is_none() || product.is_narrow {
            return;
        }
        let Range { start: i, end } = self.in_matrix(rows);
        let j = columns.start * PANEL;
        let n = (columns.end * PANEL).min(product.n) - j;
        let c = product.c.cast::<f32>().wrapping_offset(i as isize * product.c_row).wrapping_add(j);
        // SAFETY: these tiles were just written and belong to this chunk only, and rows of the result are contiguous.
        unsafe { product.epilogue.tail.finish(c, product.c_row as usize, end - i, n) };
    }
}
