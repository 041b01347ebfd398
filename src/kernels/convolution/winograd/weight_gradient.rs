//! The gradient of the weight with Winograd's algorithm: 36 sums over tiles for each pair of channels, in parts that
//! are added in order.

use super::tiles::Tiles;
use super::transforms::{IN, OUT, PRODUCTS, TransformStep, WeightTransform};
use super::uneven::{Energies, UnevenTerms};
use super::weight_scales::even_scales;
use super::{CHAIN, Factors, factors, whole};
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::convolution::geometry::Geometry;
use crate::kernels::convolution::implicit_gemm::packed_planes::{SLACK, padded_stride};
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch, stop};

/// Computes the gradient of the weight in up to `parts` partial sums.
///
/// # Safety
/// The arrays must be valid, and nothing else may use the gradient meanwhile.
#[allow(clippy::too_many_lines)] // three passes over the same scratch memory
pub(in super::super) unsafe fn weight_gradient<T: Float>(
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
    let (sums, directly) = (padded_stride(channels * of_map), 9 * channels * of_map);
    let tiles = Tiles::new(g.images, g.output_size(), channels + maps, 1);
    let parts = EvenSplit::new(tiles.blocks(), parts.min(tiles.blocks()));
    let tasks = parts.parts() * g.group;
    let memory = Workspace::<T>::new(tasks * (PRODUCTS * sums + directly))?;
    let partial = Shared::new(memory.ptr());
    // The direct sums of uneven tiles, if any.
    let direct = Shared::new(memory.ptr().wrapping_add(tasks * PRODUCTS * sums));
    let (are_uneven, scales) = (List::repeat(false, tasks), even_scales::<T>(channels.max(maps)));
    let uneven = Shared::new(are_uneven.as_ptr().cast_mut());
    let sides = [Shared::read_only(x), Shared::read_only(gy)];
    parallel(tasks, |task| {
        let (part, group) = (task / g.group, task % g.group);
        let to = partial.get().wrapping_add(task * PRODUCTS * sums);
        let (inputs, outputs) =
            (padded_stride(tiles.most * of_channel), padded_stride(tiles.most * maps.next_multiple_of(wide)));
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
