//! The gradient of the weight in Winograd's way: 36 sums over tiles for each channel and map, in parts that are added in
//! order.

use super::isa;
use super::strip::{SLACK, apart};
use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep, WeightTransform};
use super::uneven::{Energies, UnevenTerms, even_scales};
use super::winograd::{CHAIN, Factors, factors, whole};
use super::{Algorithm, Geometry, algorithm};
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch, stop};

/// Elements of partial sums of a gradient of the weight, and how many there should be.
const PARTIAL: usize = 2 << 20;
const PARTS: usize = 16;
/// Outputs of all images below which direct sums are so short that their error is less than half.
const LEAST_OUTPUTS: usize = 1024;
/// Fewer parts would leave threads without work.
const LEAST_PARTS: usize = 4;

impl Geometry {
    /// Parts of the sum over images of a gradient of the weight: none if they take too much memory to be worth it.
    pub(super) fn winograd_parts(&self) -> Option<usize> {
        let sums = PRODUCTS * self.channels * self.maps / self.group;
        let parts = (PARTIAL / sums).min(PARTS);
        let enough = self.images * self.positions() >= LEAST_OUTPUTS || algorithm() == Algorithm::Winograd;
        (parts >= LEAST_PARTS && enough).then_some(parts)
    }
}

/// Computes the gradient of the weight, in so many parts.
///
/// # Safety
/// The arrays are there, and nobody else uses the gradient meanwhile.
pub(super) unsafe fn weight_gradient<T: Float>(
    g: &Geometry,
    parts: usize,
    x: *const T,
    gy: *const T,
    gw: *mut T,
    accumulate: bool,
) -> Result<(), OutOfMemory> {
    let (kernels, wide) = (isa::kernels::<T>(), kernels::<T>().panel());
    let (channels, maps) = (g.channels / g.group, g.maps / g.group);
    let (of_channel, of_map) = (whole::<T>(channels), whole::<T>(maps));
    let (sums, directly) = (apart(channels * of_map), 9 * channels * of_map);
    let tiles = Tiles::new(g.images, g.output_size(), channels + maps, 1);
    let parts = EvenSplit::new(tiles.blocks(), parts.min(tiles.blocks()));
    let tasks = parts.parts() * g.group;
    let memory = Workspace::<T>::new(tasks * (PRODUCTS * sums + directly))?;
    let partial = Shared::new(memory.ptr());
    // The direct sums of uneven tiles, where there are any.
    let direct = Shared::new(memory.ptr().wrapping_add(tasks * PRODUCTS * sums));
    let (are_uneven, scales) = (List::repeat(false, tasks), even_scales::<T>(channels.max(maps)));
    let uneven = Shared::new(are_uneven.as_ptr().cast_mut());
    let sides = [Shared::read_only(x), Shared::read_only(gy)];
    parallel(tasks, |task| {
        let (part, group) = (task / g.group, task % g.group);
        let to = partial.get().wrapping_add(task * PRODUCTS * sums);
        let (inputs, outputs) =
            (apart(tiles.most * of_channel), apart(tiles.most * maps.next_multiple_of(wide)));
        let rows = tiles.rows.part(0).len();
        let strip = (OUT * (rows - 1) + IN) * (OUT * (tiles.across - 1) + IN) * wide;
        let images = tiles.images.part(0).len();
        let planes = [g.input[1], g.output[1]].map(|width| Energies::<T>::memory(images, rows, width));
        let of_planes = planes[0].0 + planes[1].0;
        scratch::with(of_planes + strip + PRODUCTS * (inputs + outputs) + SLACK, |memory: &mut [T]| {
            let (of_x, memory) = memory.split_at_mut(planes[0].0);
            let (of_gy, memory) = memory.split_at_mut(planes[1].0);
            let strip_at = memory.as_mut_ptr();
            let p = strip_at.wrapping_add(strip.next_multiple_of(SLACK));
            let v = Factors { p, factor: inputs, tile: of_channel, panel: wide };
            let p = p.wrapping_add(PRODUCTS * inputs);
            let d = Factors { p, factor: outputs, tile: wide, panel: tiles.most * wide };
            let (x, gy) = (
                g.input_planes(sides[0].get().cast_const()),
                g.output_planes(sides[1].get().cast_const(), (0, 0)),
            );
            let scales = scales.as_ptr();
            let energies = [
                Energies { scales, p: of_x.as_mut_ptr(), plane: planes[0].1 },
                Energies { scales, p: of_gy.as_mut_ptr(), plane: planes[1].1 },
            ];
            let terms = UnevenTerms { g, x: &x, gy: &gy, energies };
            let direct = direct.get().wrapping_add(task * directly);
            for i in parts.part(part) {
                stop::poll();
                let (images, rows) = tiles.block(i);
                let block = (&images, &rows);
                // SAFETY: there is room for all, and each task has its own sums; the rest is the caller's promise.
                unsafe {
                    factors(
                        &x,
                        (TransformStep::Input, IN),
                        tiles.across,
                        block,
                        group,
                        strip_at,
                        v,
                        &energies[0],
                    );
                    factors(
                        &gy,
                        (TransformStep::OutputGradient, OUT),
                        tiles.across,
                        block,
                        group,
                        strip_at,
                        d,
                        &energies[1],
                    );
                    terms.take_out(&tiles, block, group, (&v, &d), (uneven.get().add(task), direct, of_map));
                    for q in 0..PRODUCTS {
                        PanelProduct {
                            m: channels,
                            n: maps,
                            k: images.len() * rows.len() * tiles.across,
                            a: MatrixOperand { p: v.p.add(q * inputs), row: 1, col: of_channel as isize },
                            b: Panels { p: d.p.add(q * outputs), row: wide, next: d.panel },
                            c: to.add(q * sums),
                            c_row: of_map,
                            table: Table::None,
                            batch: ONCE,
                            epilogue: Epilogue::plain(i > parts.part(part).start),
                        }
                        .run_in_chains(CHAIN);
                    }
                }
            }
        });
    });
    let gw = Shared::new(gw);
    parallel(g.group * channels, |i| {
        let (group, c) = (i / channels, i % channels);
        // SAFETY: each channel has its own sums and its own part of the gradient.
        unsafe {
            let of = |part: usize, q: usize| {
                let at = ((part * g.group + group) * PRODUCTS + q) * sums + c * of_map;
                std::slice::from_raw_parts_mut(partial.get().add(at), maps)
            };
            for (part, q) in (1..parts.parts()).flat_map(|part| (0..PRODUCTS).map(move |q| (part, q))) {
                of(0, q).iter_mut().zip(of(part, q)).for_each(|(s, v)| *s = *s + *v);
            }
            for map in (0..maps).step_by(wide / 2) {
                (kernels.transform_weights)(&WeightTransform {
                    weights: gw.get().add(((group * maps + map) * channels + c) * 9),
                    apart: channels * 9,
                    targets: maps - map,
                    flipped: false,
                    factors: of(0, 0).as_mut_ptr().add(map),
                    factor: sums,
                    back: Some(accumulate),
                });
            }
            let gw = |map: usize| gw.get().add(((group * maps + map) * channels + c) * 9);
            for part in (0..parts.parts()).filter(|part| are_uneven[part * g.group + group]) {
                let sums = direct.get().add((part * g.group + group) * directly + c * 9 * of_map);
                for (map, t) in (0..maps).flat_map(|map| (0..9).map(move |t| (map, t))) {
                    *gw(map).add(t) = *gw(map).add(t) + *sums.add(t * of_map + map);
                }
            }
        }
    });
    Ok(())
}
