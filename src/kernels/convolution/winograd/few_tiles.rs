//! Winograd's algorithm for few tiles. The transformed weights are then most of the data. Each thread transforms the
//! weights of some targets and uses them while they are in its cache. The sums are the same as for many tiles.

use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep};
use super::uneven::Energies;
use super::{CHAIN, Factors, Winograd, factors, whole};
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
    /// True if this variant is faster.
    pub(super) fn has_few_tiles(&self) -> bool {
        let tiles = Tiles::all(self.g.images, self.size).most;
        let panels = self.targets.channels.div_ceil(kernels::<T>().panel()) * self.g.group;
        has_few_tiles(tiles, self.targets.channels, panels)
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// The arrays must be valid, and nothing else may use the target meanwhile.
    #[allow(clippy::too_many_lines)] // three passes over the same scratch memory
    pub(super) unsafe fn run_by_panels(
        &self,
        kept: Option<((Workspace<T>, bool), &mut DerivedCache)>,
        scales: *const T,
    ) -> Result<(), OutOfMemory> {
        let tiles = Tiles::all(self.g.images, self.size);
        let (images, rows) = tiles.block(0);
        let (wide, sources, of_source) =
            (kernels::<T>().panel(), self.source.array.channels, whole::<T>(self.source.array.channels));
        let inputs = padded_stride(tiles.most * of_source);
        let strip =
            ((OUT * (rows.len() - 1) + IN) * (OUT * (tiles.across - 1) + IN) * wide).next_multiple_of(SLACK);
        let memory = Workspace::<T>::new(self.g.group * PRODUCTS * inputs)?;
        let all = Shared::new(memory.ptr());
        let (of_image, scales) = (rows.len() * tiles.across, Shared::read_only(scales));
        let flags = List::repeat(false, self.g.group * tiles.most);
        let flagged = Shared::new(flags.as_ptr().cast_mut());
        let flags_of = |group: usize, image: usize| {
            // SAFETY: there are as many flags. One task writes the flags of an image and a group, and they are read
            // when all tasks are done.
            unsafe {
                let first = flagged.get().add(group * tiles.most + image * of_image);
                std::slice::from_raw_parts_mut(first, of_image)
            }
        };
        let of = |group: usize, image: usize| Factors {
            p: all
                .get()
                .wrapping_add(group * PRODUCTS * inputs + image * rows.len() * tiles.across * of_source),
            factor: inputs,
            tile: of_source,
            panel: wide,
        };
        parallel(self.g.group * images.len(), |task| {
            let (group, image) = (task / images.len(), task % images.len());
            let (planes, plane) = Energies::<T>::memory(1, rows.len(), self.source.width);
            scratch::with(planes + strip + SLACK, |memory: &mut [T]| {
                let (planes, memory) = memory.split_at_mut(planes);
                let side = (TransformStep::Input, IN);
                let some = (&(image..image + 1), &rows);
                let scales = scales.get().cast_const().wrapping_add(group * sources);
                let energies = Energies { scales, p: planes.as_mut_ptr(), plane };
                // SAFETY: there is room for the pixels of an image, and for its factors, which are its own.
                unsafe {
                    factors(
                        &self.source,
                        side,
                        tiles.across,
                        some,
                        group,
                        memory.as_mut_ptr(),
                        of(group, image),
                        &energies,
                    );
                    let (flags, energies) = (flags_of(group, image), (&energies, 0));
                    self.source.find_uneven((image, group), &rows, self.size, energies, false, flags);
                }
            });
        });
        // Cached weights are in memory that all tasks share.
        let (lent, kept) = kept.unzip();
        let made = lent.as_ref().is_some_and(|(_, made)| *made);
        let lent = lent.as_ref().map(|(memory, _)| (Shared::new(memory.ptr()), self.transforms()));
        let factor = lent.as_ref().map_or(padded_stride(sources * wide), |(_, of)| of.factor);
        let (own, outputs) =
            (if lent.is_some() { 0 } else { PRODUCTS * factor }, padded_stride(tiles.most * wide));
        let panels = self.targets.channels.div_ceil(wide);
        parallel(self.g.group * panels, |task| {
            let (group, first) = (task / panels, task % panels * wide);
            let targets = first..self.targets.channels.min(first + wide);
            scratch::with(strip + own + PRODUCTS * outputs + SLACK, |memory: &mut [T]| {
                let strip_at = memory.as_mut_ptr();
                let p = strip_at.wrapping_add(strip);
                let weights = lent.as_ref().map_or(p, |(memory, of)| {
                    memory.get().wrapping_add(group * of.group + first / wide * of.panel)
                });
                let p = p.wrapping_add(own);
                // Results are addressed by target, but this memory holds one panel.
                let m = Factors { p, factor: outputs, tile: wide, panel: 0 };
                // SAFETY: the memory holds all, and each task has its own targets.
                unsafe {
                    for source in if made { 0..0 } else { 0..sources } {
                        self.transform_weights((group, source), targets.clone(), weights, factor, 0);
                    }
                    for q in 0..PRODUCTS {
                        PanelProduct {
                            m: tiles.most,
                            n: targets.len(),
                            k: sources,
                            a: MatrixOperand {
                                p: of(group, 0).p.add(q * inputs),
                                row: of_source as isize,
                                col: 1,
                            },
                            b: Panels { p: weights.add(q * factor), row: wide, next: 0 },
                            c: p.add(q * outputs),
                            c_row: wide,
                            table: Table::None,
                            batch: ONCE,
                            epilogue: Epilogue::NONE,
                        }
                        .run_in_chains(CHAIN);
                    }
                    for image in images.clone() {
                        let tile = (image * of_image, &*flags_of(group, image));
                        self.results(&tiles, tile, image, &rows, group, first, strip_at, m);
                    }
                }
            });
        });
        if let Some(kept) = kept {
            kept.made();
        }
        Ok(())
    }
}
