//! The packed planes from which all phases of a stride are computed, for the gradient of a strided input.

use smallvec::SmallVec;

use super::blocking;
use super::packed_planes::PlaneLayout;
use crate::kernels::convolution::geometry::Geometry;
use crate::kernels::convolution::window::{Window, WindowAxis};

/// The packed planes that all phases of a stride read.
pub(in super::super) struct StridePhases {
    /// The axes of a window that covers the taps and positions of all phases.
    axes: SmallVec<[WindowAxis; 3]>,
    /// The layout of the planes.
    pub(super) layout: PlaneLayout,
    /// For each phase: the index of the element that the first position reads, for each channel of a chunk and each
    /// tap.
    pub(super) tables: Vec<Vec<isize>>,
    /// The number of phases along the last axis.
    pub(super) turns: usize,
}

impl StridePhases {
    /// The planes for the windows of a gradient. None without a stride, or if an axis has no taps.
    pub(in super::super) fn new(g: &Geometry, windows: &[&Window]) -> Option<Self> {
        let n_axes = g.input.len();
        let is_strided = g.stride.iter().any(|s| *s > 1);
        if !is_strided || g.images * g.area() * g.positions() * g.channels * g.maps == 0 {
            return None;
        }
        let axes: SmallVec<[WindowAxis; 3]> = (0..n_axes)
            .map(|i| WindowAxis::union(windows.iter().map(|w| &w.axes[i])))
            .collect::<Option<_>>()?;
        let work = windows.iter().map(|w| w.positions() * w.taps.len()).sum();
        let layout = blocking::layout_of_phases(g, &axes, work);
        let tables = windows.iter().map(|w| layout.table_of(w)).collect();
        Some(Self { axes, layout, tables, turns: g.stride[n_axes - 1].min(g.input[n_axes - 1]) })
    }

    /// The size of the lists that may be long.
    pub(in super::super) fn numbers(&self) -> usize {
        self.layout.table.len() + self.tables.iter().map(Vec::len).sum::<usize>()
    }

    /// The row of a window for a row of all positions. None if the window has no such row.
    pub(super) fn row_of(&self, window: &Window, mut row: usize) -> Option<usize> {
        let (mut own, mut scale) = (0, 1);
        for (all, axis) in self.axes.iter().zip(&window.axes).rev().skip(1) {
            let at = row % all.positions;
            if at >= axis.positions {
                return None;
            }
            (own, scale, row) = (own + at * scale, scale * axis.positions, row / all.positions);
        }
        Some(own)
    }
}
