//! Implicit GEMM, channels first, of a product with a row for each position and a column for each output channel.
//! Output channels often fill tiles that the positions of a small image do not. The left matrix is a padded image in
//! place: neighbouring taps of a row are neighbouring terms, so no patch is copied. Results are transposed.

use std::ops::Range;

use super::Weights;
use super::blocking::tasks_of;
use super::packed_planes::SLACK;
use super::position_layout::PositionRows;
use super::tap_rows::TapRows;
use crate::array::{OutOfMemory, Workspace};
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::isa;
use crate::kernels::convolution::winograd::transforms::ToPlanes;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{ColumnsToPack, EvenSplit, MatrixOperand, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{Shared, parallel};

/// Terms of a sum that are added up before they are added to the previous sum, for smaller rounding errors.
const DEPTH: usize = 512;

/// Computes the sums.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>, rows: &PositionRows) -> Result<(), OutOfMemory> {
    let (g, w, wide) = (sum.g, sum.window(), kernels::<T>().panel());
    let panels = sum.targets.channels.div_ceil(wide);
    let weights = pack_weights(sum)?;
    // The offsets of the taps of each row and channel in the two matrices.
    let taps = w.columns.len();
    let first = w.axes[0].offsets[0];
    let area = if rows.padded.is_some() { rows.area } else { sum.sources.channel };
    let batch: List<(isize, isize)> = (0..sum.sources.channels * w.outer)
        .map(|i| {
            let down = (w.axes[0].offsets[i % w.outer] - first) as usize;
            let at = i / w.outer * area + down * rows.width;
            (at as isize, (i * taps * wide) as isize)
        })
        .collect();
    let wanted = tasks_of(g, w.positions() * w.taps.len(), sum.sources, sum.targets);
    let parts = EvenSplit::new(panels, (wanted / (g.images * g.group)).min(panels));
    parallel(g.images * g.group * parts.parts(), |task| {
        let (image, rest) = (task / (g.group * parts.parts()), task % (g.group * parts.parts()));
        let (group, panels) = (rest / parts.parts(), parts.part(rest % parts.parts()));
        // SAFETY: each task has its own part of the target.
        unsafe { sum_image(sum, rows, &weights, &batch, (image, group), panels) };
    });
    Ok(())
}

/// Packs the weights: panels of output channels, with a row for each channel and tap.
fn pack_weights<T: Float>(sum: &Correlation<'_, T>) -> Result<Weights<T>, OutOfMemory> {
    let (targets, depth, wide) = (sum.targets.channels, sum.depth(), kernels::<T>().panel());
    let panels = targets.div_ceil(wide);
    let group = panels * wide * depth;
    let memory = Workspace::<T>::new(group * sum.g.group)?;
    let (to, from) = (Shared::new(memory.ptr()), Shared::read_only(sum.weight));
    parallel(sum.g.group * panels, |i| {
        let (of, first) = (i / panels, i % panels * wide);
        // SAFETY: the table was chosen for this machine, the weights are valid, and the memory holds all panels.
        unsafe {
            (kernels::<T>().pack_columns)(&ColumnsToPack {
                from: from.get().cast_const().add((of * targets + first) * depth),
                row: 1,
                col: depth as isize,
                k: depth,
                n: wide.min(targets - first),
                to: to.get().add(of * group + first * depth),
            });
        }
    });
    Ok(Weights::packed(memory, group))
}

/// Computes some panels of the output channels of an image and a group.
unsafe fn sum_image<T: Float>(
    sum: &Correlation<'_, T>,
    rows: &PositionRows,
    weights: &Weights<T>,
    batch: &[(isize, isize)],
    (image, group): (usize, usize),
    panels: Range<usize>,
) {
    let (w, depth, wide) = (sum.window(), sum.depth(), kernels::<T>().panel());
    let (positions, taps, row) = (rows.starts.len(), w.columns.len(), panels.len() * wide);
    let of_planes = if rows.padded.is_some() { sum.sources.channels * rows.area + SLACK } else { 0 };
    let parts = EvenSplit::new(batch.len(), (batch.len() * taps).div_ceil(DEPTH));
    scratch::with(of_planes + positions * row, |memory: &mut [T]| {
        let (planes, results) = memory.split_at_mut(of_planes);
        let mut image_at = sum.source(image, group, 0);
        if let Some(window) = &rows.padded {
            let all: List<_> = (0..window.targets.len()).map(|row| (0, row)).collect();
            let order = TapRows {
                window,
                rows: &all,
                from: image_at,
                area: sum.sources.channel,
                image: 0,
                channels: sum.sources.channels,
                to: planes.as_mut_ptr(),
                apart: rows.area,
            };
            // SAFETY: the table was chosen for this machine, and the memory holds the padded image.
            unsafe { (isa::kernels::<T>().tap_rows)(&order) };
            image_at = planes.as_ptr();
        }
        for (i, panel) in panels.enumerate() {
            let first = panel * wide;
            let n = wide.min(sum.targets.channels - first);
            let c = results.as_mut_ptr().wrapping_add(i * wide);
            for part in 0..parts.parts() {
                let product = PanelProduct {
                    kernels: sum.kernels,
                    m: positions,
                    n,
                    k: taps,
                    a: MatrixOperand { p: image_at, row: 0, col: 1 },
                    b: Panels {
                        p: weights.p.wrapping_add(group * weights.group + first * depth),
                        row: wide,
                        next: wide * depth,
                    },
                    table: Table::OfLeft(&rows.starts),
                    batch: &batch[parts.part(part)],
                    c,
                    c_row: row,
                    epilogue: Epilogue::plain(part > 0),
                };
                // SAFETY: all taps of all positions read the image or its padded copy.
                unsafe { product.run() };
            }
            let to = sum.target(image, group, first);
            let order = ToPlanes {
                from: c.cast_const(),
                pixel: row,
                pixels: positions,
                channels: n,
                to,
                plane: sum.targets.channel,
                end: sum.end(group, first),
            };
            // SAFETY: the table was chosen for this machine, and these planes belong to this task alone.
            unsafe {
                (isa::kernels::<T>().to_planes)(&order);
                sum.epilogue.tail.finish(to, sum.targets.channel, n, positions);
            }
        }
    });
}
