//! Convolution by implicit GEMM: blocks of the input are packed in the cache, and a matrix product computes each block
//! of results. The division into blocks depends on the shape only.

pub(super) mod blocking;
mod column_order;
pub(super) mod im2row;
pub(super) mod in_tiles;
mod nchw;
mod nhwc;
pub(super) mod packed_planes;
pub(super) mod position_layout;
mod position_rows;
pub(super) mod regions;
mod store;
pub(super) mod stride_layout;
pub(super) mod stride_phases;
pub(super) mod tap_rows;
pub(super) mod weight_gradient;

use super::correlation::Correlation;
use super::descriptor::Descriptor;
use crate::array::OutOfMemory;
use crate::array::Workspace;
use crate::kernels::Float;
use crate::kernels::gemm::{ColumnsToPack, kernels};
use crate::kernels::threads::{Shared, parallel};
use packed_planes::SLACK;

/// Weights in the layout of the products: a left matrix of targets by sources and taps, or with channels last, the
/// right matrix in panels.
pub(super) struct Weights<T> {
    /// The first weight.
    pub(super) p: *const T,
    /// The distance from the weights of a group to the next.
    pub(super) group: usize,
    /// Keeps the memory of packed weights alive, if they are packed for this run.
    _owner: Option<Workspace<T>>,
}

// SAFETY: as above.
unsafe impl<T> Sync for Weights<T> {}

impl<T> Weights<T> {
    /// Weights in this memory, with the distance from the weights of a group to the next.
    fn packed(memory: Workspace<T>, group: usize) -> Self {
        Self { p: memory.ptr().cast_const(), group, _owner: Some(memory) }
    }
}

/// Computes the sums of a window.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>) -> Result<(), OutOfMemory> {
    if let Some(rows) = &sum.descriptor.position_rows {
        // SAFETY: guaranteed by the caller.
        return unsafe { position_rows::run(sum, rows) };
    }
    let weights = pack_weights(sum)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        match &sum.descriptor.layout {
            Some(layout) => nchw::run(sum, &weights, layout),
            None => nhwc::run(sum, &weights),
        }
    }
    Ok(())
}

/// Computes the sums of windows that are phases of a dilation, which share the weights and are tasks of their own.
///
/// # Safety
/// As [`run`].
pub(super) unsafe fn run_phases<T: Float>(
    sum: &Correlation<'_, T>,
    phases: &[Descriptor],
) -> Result<(), OutOfMemory> {
    let weights = pack_weights(sum)?;
    parallel(phases.len(), |i| {
        let sum = Correlation { descriptor: &phases[i], ..*sum };
        if let Some(layout) = &sum.descriptor.layout {
            // SAFETY: guaranteed by the caller, and each phase has its own rows of the target.
            unsafe { nchw::run(&sum, &weights, layout) };
        }
    });
    Ok(())
}

/// The weights in the order that the tiles read them, packed unless they have it already.
fn pack_weights<T: Float>(sum: &Correlation<'_, T>) -> Result<Weights<T>, OutOfMemory> {
    if let Some(channels) = sum.in_tiles {
        return in_tiles::pack_weights(sum, channels);
    }
    let (g, taps) = (sum.g, &sum.window().taps);
    let (map, channel, tap) = g.weight_strides();
    let (target, source) = if sum.forward { (map, channel) } else { (channel, map) };
    let (targets, sources, depth) = (sum.targets.channels, sum.sources.channels, sum.depth());
    let of_group = g.maps / g.group * map;
    if sum.forward && !g.channel_last {
        return Ok(Weights { p: sum.weight, group: of_group, _owner: None });
    }
    let wide = if g.channel_last { kernels::<T>().panel() } else { 1 };
    let group = targets.next_multiple_of(wide) * depth;
    let memory = Workspace::<T>::new(group * g.group + SLACK)?;
    let (to, from) = (Shared::new(memory.ptr()), Shared::read_only(sum.weight));
    let panels = targets.div_ceil(wide);
    parallel(g.group * panels, |i| {
        let (from, first) = (from.get().cast_const().wrapping_add(i / panels * of_group), i % panels * wide);
        let to = to.get().wrapping_add(i / panels * group + first * depth);
        let from = from.wrapping_add(first * target);
        // SAFETY: the weights are valid, and the memory holds all panels.
        unsafe {
            if !g.channel_last {
                // The terms of a row of taps, or of all taps, follow each other channel by channel.
                let columns =
                    if sum.descriptor.by_tap_rows { sum.window().columns.len() } else { taps.len() };
                let mut to = to;
                for taps in taps.chunks(columns.max(1)) {
                    for s in 0..sources {
                        for t in taps {
                            to.write(*from.add(s * source + t * tap));
                            to = to.add(1);
                        }
                    }
                }
                return;
            }
            for (i, t) in taps.iter().enumerate() {
                (kernels::<T>().pack_columns)(&ColumnsToPack {
                    from: from.add(t * tap),
                    row: source as isize,
                    col: target as isize,
                    k: sources,
                    n: wide.min(targets - first),
                    to: to.add(i * sources * wide),
                });
            }
        }
    });
    Ok(Weights::packed(memory, group))
}
