//! Divides packed planes into blocks and tasks.

use super::packed_planes::PlaneLayout;
use crate::kernels::convolution::geometry::{Geometry, Images};
use crate::kernels::convolution::window::{Window, WindowAxis};

/// The number of weights of a group that fill a large part of the second-level cache.
const LARGE: usize = 1 << 18;
/// The wanted number of tasks, so that threads finish together.
pub(super) const TASKS: usize = 16;
/// The fewest multiplications of a task.
const TASK: usize = 1 << 20;
/// The most rows of a product for the gradient of the weight, unless it has a single channel. Their sums stay in the
/// cache.
const DEPTH: usize = 320;

/// The wanted number of tasks for a window.
fn tasks(g: &Geometry, window: &Window, sources: Images, targets: Images) -> usize {
    tasks_of(g, window.positions() * window.taps.len(), sources, targets)
}

/// The wanted number of tasks for this many products of each source and target of an image.
pub(super) fn tasks_of(g: &Geometry, products: usize, sources: Images, targets: Images) -> usize {
    let of_group = products * sources.channels * targets.channels;
    (g.images * g.group * of_group / TASK).clamp(1, TASKS)
}

/// The layout of the sources of a window.
pub(in super::super) fn layout(
    g: &Geometry,
    window: &Window,
    sources: Images,
    targets: Images,
) -> PlaneLayout {
    // Such a large weight is read once for several images.
    let together = targets.channels * sources.channels * window.taps.len() > LARGE;
    let wanted = tasks(g, window, sources, targets) / g.group;
    PlaneLayout::new(&window.axes, g.images, sources.channels, usize::MAX, wanted, together)
}

/// The layout of the sources of all phases of a stride, which these axes cover. Each source and target of an image has
/// this many products.
pub(super) fn layout_of_phases(g: &Geometry, axes: &[WindowAxis], products: usize) -> PlaneLayout {
    let (sources, targets) = (g.outputs(), g.inputs());
    let together = targets.channels * sources.channels * g.taps() > LARGE;
    let wanted = tasks_of(g, products, sources, targets) / g.group;
    PlaneLayout::new(axes, g.images, sources.channels, usize::MAX, wanted, together)
}

/// The layout of the input for the gradient of the weight.
pub(in super::super) fn weight_gradient_layout(g: &Geometry, window: &Window) -> PlaneLayout {
    let channels = g.channels / g.group;
    let chunk = (DEPTH / g.taps()).clamp(1, channels.max(1));
    PlaneLayout::new(&window.axes, g.images, channels, chunk, 1, true)
}
