//! The blocks and tasks that the packed planes of an image are cut into.

use super::packed_planes::PlaneLayout;
use crate::kernels::convolution::geometry::{Geometry, Images};
use crate::kernels::convolution::window::Window;

/// Weights of a group that are too many for a part of the second cache.
const LARGE: usize = 1 << 18;
/// Tasks that are wanted, so that threads end together, of so many multiplications at least.
const TASKS: usize = 16;
const TASK: usize = 1 << 20;
/// Rows of a product, but for a single channel: their part of the sums stays in the cache.
const DEPTH: usize = 320;

/// Tasks that are wanted for a window.
pub(super) fn tasks(g: &Geometry, window: &Window, sources: Images, targets: Images) -> usize {
    let of_group = window.positions() * window.taps.len() * sources.channels * targets.channels;
    (g.images * g.group * of_group / TASK).clamp(1, TASKS)
}

/// How what a window sees of the sources is laid out.
pub(in super::super) fn layout(
    g: &Geometry,
    window: &Window,
    sources: Images,
    targets: Images,
) -> PlaneLayout {
    // Weights that leave no room in the second cache are read for several images at once.
    let together = targets.channels * sources.channels * window.taps.len() > LARGE;
    let wanted = tasks(g, window, sources, targets) / g.group;
    PlaneLayout::new(&window.axes, g.images, sources.channels, usize::MAX, wanted, together)
}

/// How what the outputs see of the input is laid out.
pub(in super::super) fn weight_gradient_layout(g: &Geometry, window: &Window) -> PlaneLayout {
    let channels = g.channels / g.group;
    let chunk = (DEPTH / g.taps()).clamp(1, channels.max(1));
    PlaneLayout::new(&window.axes, g.images, channels, chunk, 1, true)
}
