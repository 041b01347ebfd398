//! Winograd's way where there are few tiles: the transformed weights are far more than all else then, so that each thread
//! makes those of some targets and uses them while they are in its cache. The sums are those of blocks of tiles.

use super::strip::{SLACK, apart};
use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep};
use super::uneven::Energies;
use super::winograd::{CHAIN, Factors, Winograd, factors, whole};
use crate::array::OutOfMemory;
use crate::array::{DerivedCache, Workspace};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, num_threads, parallel};
use crate::kernels::{Float, scratch};

/// Tiles of all images that are too few to be shared out themselves.
const FEW: usize = 12;

impl<T: Float> Winograd<'_, T> {
    /// Whether this is the quicker way.
    pub(super) fn is_of_few_tiles(&self) -> bool {
        let tiles = Tiles::all(self.g.images, self.size).most;
        let panels = self.targets.channels.div_ceil(kernels::<T>().panel()) * self.g.group;
        tiles <= FEW || 2 * tiles <= self.targets.channels && panels >= num_threads()
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// The arrays are there, and nobody else uses the target meanwhile.
    pub(super) unsafe fn run_by_panels(
        &self,
        kept: Option<((Workspace<T>, bool), &mut DerivedCache)>,
        scales: *const T,
    ) -> Result<(), OutOfMemory> {
        let tiles = Tiles::all(self.g.images, self.size);
        let (images, rows) = tiles.block(0);
        let (wide, sources, of_source) =
            (kernels::<T>().panel(), self.source.array.channels, whole::<T>(self.source.array.channels));
        let inputs = apart(tiles.most * of_source);
        let strip =
            ((OUT * (rows.len() - 1) + IN) * (OUT * (tiles.across - 1) + IN) * wide).next_multiple_of(SLACK);
        let memory = Workspace::<T>::new(self.g.group * PRODUCTS * inputs)?;
        let all = Shared::new(memory.ptr());
        let (of_image, scales) = (rows.len() * tiles.across, Shared::read_only(scales));
        let flags = List::repeat(false, self.g.group * tiles.most);
        let flagged = Shared::new(flags.as_ptr().cast_mut());
        let flags_of = |group: usize, image: usize| {
            // SAFETY: there are so many; those of an image and a group are written by one task, and read when all are done.
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
        // Weights that are kept lie in memory for all.
        let (lent, kept) = kept.unzip();
        let made = lent.as_ref().is_some_and(|(_, made)| *made);
        let lent = lent.as_ref().map(|(memory, _)| (Shared::new(memory.ptr()), self.transforms()));
        let factor = lent.as_ref().map_or(apart(sources * wide), |(_, of)| of.factor);
        let (own, outputs) = (if lent.is_some() { 0 } else { PRODUCTS * factor }, apart(tiles.most * wide));
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
                // Results are asked for by target, of which this memory has those of one panel.
                let m = Factors { p, factor: outputs, tile: wide, panel: 0 };
                // SAFETY: there is room for all, and each task has its own targets.
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
