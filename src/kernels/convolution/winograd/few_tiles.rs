//! Winograd's algorithm for few tiles. The transformed weights are then most of the data. Each thread transforms the
//! weights of some targets and uses them while they are in its cache. The sums are the same as for many tiles.

use std::ops::Range;

use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep};
use super::uneven::Energies;
use super::{Factors, Transforms, Winograd, chain, factors, whole};
use crate::array::OutOfMemory;
use crate::array::{DerivedCache, Workspace};
use crate::kernels::convolution::implicit_gemm::packed_planes::{SLACK, padded_stride};
use crate::kernels::convolution::select::has_few_tiles;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};

impl<T: Float> Winograd<'_, T> {
    /// The tiles of all planes in one block.
    fn all_tiles(&self) -> Tiles {
        Tiles::all(&self.phases, self.g.images)
    }

    /// True if this variant is faster.
    pub(super) fn has_few_tiles(&self) -> bool {
        let tiles = self.all_tiles().most;
        let panels = self.targets.channels.div_ceil(kernels::<T>().panel()) * self.g.group;
        has_few_tiles(tiles, self.targets.channels, panels)
    }

    /// Computes the convolution in two parallel loops. The first transforms all tiles. Each task of the second
    /// multiplies them by one panel of output channels.
    ///
    /// # Safety
    /// The arrays must be valid, and nothing else may use the target meanwhile.
    pub(super) unsafe fn run_by_panels(
        &self,
        kept: Option<((Workspace<T>, bool), &mut DerivedCache)>,
        scales: *const T,
    ) -> Result<(), OutOfMemory> {
        let tiles = self.all_tiles();
        let (planes, rows) = tiles.block(0);
        let (wide, sources) = (kernels::<T>().panel(), self.source.array.channels);
        let of_source = whole::<T>(sources);
        let inputs = padded_stride(tiles.most * of_source);
        let strip = ((OUT * (rows.len() - 1) + IN) * tiles.row.columns(IN) * wide).next_multiple_of(SLACK);
        let memory = Workspace::<T>::new(self.g.group * PRODUCTS * inputs)?;
        let flags = List::repeat(false, self.g.group * tiles.most);
        let all = &AllTiles {
            of: self,
            tiles,
            rows,
            strip,
            of_source,
            inputs,
            factors: Shared::new(memory.ptr()),
            flags: Shared::new(flags.as_ptr().cast_mut()),
        };
        let scales = Shared::read_only(scales);
        parallel(self.g.group * planes.len(), |task| {
            let (group, plane) = (task / planes.len(), task % planes.len());
            // SAFETY: each task has its own factors and flags; the rest is the caller's promise.
            unsafe { all.transform(group, plane, scales.get().cast_const().wrapping_add(group * sources)) };
        });
        // Cached weights are in memory that all tasks share.
        let (lent, kept) = kept.unzip();
        let weights = TransformedWeights {
            made: lent.as_ref().is_some_and(|(_, made)| *made),
            lent: lent.as_ref().map(|(memory, _)| (Shared::new(memory.ptr()), self.transforms())),
        };
        let panels = self.targets.channels.div_ceil(wide);
        parallel(self.g.group * panels, |task| {
            // SAFETY: all factors have been computed, and each task has its own targets.
            unsafe { all.multiply(task / panels, task % panels * wide, planes.clone(), &weights) };
        });
        if let Some(kept) = kept {
            kept.made();
        }
        Ok(())
    }
}

/// Transformed weights.
struct TransformedWeights<T> {
    /// True if they have been computed in an earlier run.
    made: bool,
    /// The memory in which they are cached, if they are.
    lent: Option<(Shared<T>, Transforms)>,
}

/// The tiles of all planes as one block.
struct AllTiles<'a, T> {
    /// The convolution.
    of: &'a Winograd<'a, T>,
    /// The tiles.
    tiles: Tiles,
    /// The rows of tiles of a plane.
    rows: Range<usize>,
    /// Elements of the pixels of a plane.
    strip: usize,
    /// The channels of the source in whole registers.
    of_source: usize,
    /// The factors of a group: [`PRODUCTS`] times `inputs` numbers.
    factors: Shared<T>,
    /// The number of inputs of a group: tiles times channels.
    inputs: usize,
    /// For each group and tile, true if the tile is uneven.
    flags: Shared<bool>,
}

impl<T: Float> AllTiles<'_, T> {
    /// The number of tiles of a plane.
    fn of_plane(&self) -> usize {
        self.rows.len() * self.tiles.across
    }

    /// The factors of a plane.
    fn factors(&self, group: usize, plane: usize) -> Factors<T> {
        let at = group * PRODUCTS * self.inputs + plane * self.of_plane() * self.of_source;
        Factors {
            p: self.factors.get().wrapping_add(at),
            factor: self.inputs,
            tile: self.of_source,
            panel: kernels::<T>().panel(),
        }
    }

    /// The flags of a plane.
    ///
    /// # Safety
    /// No other thread may write them meanwhile.
    #[allow(clippy::mut_from_ref)] // each task writes its own
    unsafe fn flags(&self, group: usize, plane: usize) -> &mut [bool] {
        // SAFETY: there are as many flags.
        unsafe {
            let first = self.flags.get().add(group * self.tiles.most + plane * self.of_plane());
            std::slice::from_raw_parts_mut(first, self.of_plane())
        }
    }

    /// Computes the factors of a plane, and finds its uneven tiles. `scales` has a scale for each channel of
    /// the group.
    ///
    /// # Safety
    /// The source must be valid, and no other thread may use the factors and flags of this plane and group.
    unsafe fn transform(&self, group: usize, plane: usize, scales: *const T) {
        let (source, rows) = (&self.of.source, &self.rows);
        let (n, distance) = Energies::<T>::memory(1, rows.len(), source.width);
        scratch::with(n + self.strip + SLACK, |memory: &mut [T]| {
            let (energies, memory) = memory.split_at_mut(n);
            let (side, some) = ((TransformStep::Input, IN), (&(plane..plane + 1), rows));
            let energies = Energies { scales, p: energies.as_mut_ptr(), plane: distance };
            let (strip, to) = (memory.as_mut_ptr(), self.factors(group, plane));
            // SAFETY: the scratch buffer holds the pixels of a plane; the rest is the caller's promise.
            unsafe {
                factors(source, side, self.tiles.row, some, group, strip, to, &energies);
                let (flags, size) = (self.flags(group, plane), self.of.phases.size(plane));
                source.find_uneven((plane, group), rows, size, (&energies, 0), false, flags);
            }
        });
    }

    /// Computes the targets of a panel that begins with target `first`.
    ///
    /// # Safety
    /// The factors must have been computed, and no other thread may use these targets.
    unsafe fn multiply(
        &self,
        group: usize,
        first: usize,
        planes: Range<usize>,
        weights: &TransformedWeights<T>,
    ) {
        let &Self { of, tiles, strip, inputs, .. } = self;
        let (wide, sources) = (kernels::<T>().panel(), of.source.array.channels);
        let factor = weights.lent.as_ref().map_or(padded_stride(sources * wide), |(_, of)| of.factor);
        let own = if weights.lent.is_some() { 0 } else { PRODUCTS * factor };
        let outputs = padded_stride(tiles.most * wide);
        let targets = first..of.targets.channels.min(first + wide);
        scratch::with(strip + own + PRODUCTS * outputs + SLACK, |memory: &mut [T]| {
            let strip_at = memory.as_mut_ptr();
            let p = strip_at.wrapping_add(strip);
            let at = weights.lent.as_ref().map_or(p, |(memory, of)| {
                memory.get().wrapping_add(group * of.group + first / wide * of.panel)
            });
            let p = p.wrapping_add(own);
            // Results are addressed by target, but this memory holds one panel.
            let m = Factors { p, factor: outputs, tile: wide, panel: 0 };
            // SAFETY: the memory holds all; the rest is the caller's promise.
            unsafe {
                for source in if weights.made { 0..0 } else { 0..sources } {
                    of.transform_weights((group, source), targets.clone(), at, factor, 0);
                }
                let v = self.factors(group, 0);
                for q in 0..PRODUCTS {
                    PanelProduct {
                        kernels: kernels(),
                        m: tiles.most,
                        n: targets.len(),
                        k: sources,
                        a: MatrixOperand { p: v.p.add(q * inputs), row: self.of_source as isize, col: 1 },
                        b: Panels { p: at.add(q * factor), row: wide, next: 0 },
                        c: p.add(q * outputs),
                        c_row: wide,
                        table: Table::None,
                        batch: ONCE,
                        epilogue: Epilogue::NONE,
                    }
                    .run_in_chains(chain(sources));
                }
                for plane in planes {
                    let tile = (plane * self.of_plane(), &*self.flags(group, plane));
                    of.results(&tiles, tile, plane, &self.rows, group, first, strip_at, m);
                }
            }
        });
    }
}
