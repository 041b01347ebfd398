//! The padded image from which products with a row for each position are computed.

use crate::kernels::convolution::window::Window;

/// The padded image that positions read.
pub(in super::super) struct PositionRows {
    /// A window with a position for each element of the padded image. None if images are read in place.
    pub(super) padded: Option<Window>,
    /// The length of a row of the padded image.
    pub(super) width: usize,
    /// The number of elements of a padded channel.
    pub(super) area: usize,
    /// The element of the padded image that each position reads through the first tap.
    pub(super) starts: Vec<isize>,
}

impl PositionRows {
    /// The padded image for a window of two axes that covers the target.
    pub(in super::super) fn new(window: &Window) -> Self {
        let [rows, columns] = [&window.axes[0], &window.axes[1]];
        let padded = window.padded();
        let [height, width] = padded.as_ref().map_or([rows.len, columns.len], |w| [w.targets.len(), w.width]);
        let row = |o: usize| (o * rows.step * width) as isize;
        let starts =
            (0..rows.positions).flat_map(|r| (0..columns.positions).map(move |c| (r, c * columns.step)));
        let starts = starts.map(|(r, c)| row(r) + c as isize).collect();
        Self { padded, width, area: height * width, starts }
    }

    /// The size of the list of positions.
    pub(in super::super) fn numbers(&self) -> usize {
        self.starts.len() + self.padded.as_ref().map_or(0, |window| window.bases.len())
    }
}
