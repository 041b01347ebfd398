//! Phases of rows and of columns: every `dilation`-th one of an image, from the first, the second and so on.
//!
//! A dilated kernel computes each phase of the target from one phase of the source, by a convolution without dilation.
//! Each phase of rows of an image is a plane, and planes are numbered over phases and images. Columns stay in their
//! order: tiles of a phase of columns have pixels that are `dilation` columns apart.

use super::transforms::OUT;
use crate::kernels::convolution::geometry::Images;

/// The division of the rows and the columns of an array into phases.
#[derive(Clone, Copy)]
pub(in super::super) struct Phases {
    /// Height and width of an image.
    size: (usize, usize),
    /// The distance of the rows of a phase.
    dilation: usize,
    /// The number of phases that have rows.
    phases: usize,
    /// The tiles over the columns.
    row: TileRow,
}

/// A row of tiles, phase of columns by phase of columns.
#[derive(Clone, Copy)]
pub(in super::super) struct TileRow {
    /// The distance of the columns of a phase.
    pub(in super::super) dilation: usize,
    /// The number of phases that have columns.
    pub(super) phases: usize,
    /// The number of tiles of each phase.
    pub(super) of_phase: usize,
}

impl TileRow {
    /// The tiles over this many columns.
    fn new(width: usize, dilation: usize) -> Self {
        Self {
            dilation,
            phases: dilation.min(width).max(1),
            of_phase: rows(width, 0, dilation).div_ceil(OUT),
        }
    }

    /// The number of tiles.
    pub(in super::super) fn tiles(&self) -> usize {
        self.phases * self.of_phase
    }

    /// The first column of tile `t`. The next ones of the tile are `dilation` apart.
    pub(super) fn column(&self, t: usize) -> usize {
        t / self.of_phase + t % self.of_phase * OUT * self.dilation
    }

    /// Row and column of output `o` of a tile, which is given by its row of tiles and its place in the row.
    pub(super) fn pixel(&self, tile: (usize, usize), o: usize) -> (usize, usize) {
        (OUT * tile.0 + o / OUT, self.column(tile.1) + o % OUT * self.dilation)
    }

    /// The number of columns of tiles with `side` columns, in all phases.
    pub(super) fn columns(&self, side: usize) -> usize {
        self.dilation * (OUT * (self.of_phase - 1) + side)
    }
}

impl Phases {
    /// The phases of images of this height and width, for a kernel with this dilation along both axes.
    pub(in super::super) fn new(size: (usize, usize), dilation: (usize, usize)) -> Self {
        let (rows, columns) = dilation;
        Self { size, dilation: rows, phases: rows.min(size.0).max(1), row: TileRow::new(size.1, columns) }
    }

    /// A row of tiles.
    pub(in super::super) fn row(&self) -> TileRow {
        self.row
    }

    /// The number of planes of all images.
    pub(in super::super) fn planes(&self, images: usize) -> usize {
        images * self.phases
    }

    /// Height and width of a plane, which has the columns of all phases. The first plane is the highest.
    pub(in super::super) fn size(&self, plane: usize) -> (usize, usize) {
        (rows(self.size.0, plane % self.phases, self.dilation), self.size.1)
    }

    /// The image of a plane, the index of its first pixel in the image, and the distance of its rows.
    pub(super) fn place(&self, plane: usize) -> (usize, usize, usize) {
        (plane / self.phases, plane % self.phases * self.size.1, self.dilation * self.size.1)
    }
}

/// The rows of a phase.
fn rows(height: usize, phase: usize, dilation: usize) -> usize {
    height.saturating_sub(phase).div_ceil(dilation)
}

/// Planes of images, read through a window that is shifted by `pad`.
#[derive(Clone, Copy)]
pub(in super::super) struct SourcePlanes<T> {
    /// The first element.
    p: *const T,
    /// The strides of the array.
    pub(super) array: Images,
    /// The height of an image.
    height: usize,
    /// The width of an image and of a plane.
    pub(super) width: usize,
    /// The shift of the window along height and width of an image.
    pub(super) pad: (isize, isize),
    /// The phases of the target.
    target: Phases,
}

/// The pixels of one phase of an image that the windows of a plane of the target cover.
pub(super) struct SourcePlane<T> {
    /// The first pixel of the group.
    pub(super) p: *const T,
    /// The number of rows.
    pub(super) height: usize,
    /// The distance of rows.
    pub(super) row: usize,
    /// The shift of the window along height and width.
    pub(super) pad: (isize, isize),
}

impl<T> SourcePlanes<T> {
    /// The planes of an array of images of this height and width, for a target with these phases.
    pub(super) fn new(
        p: *const T,
        array: Images,
        (height, width): (usize, usize),
        pad: (isize, isize),
        target: Phases,
    ) -> Self {
        Self { p, array, height, width, pad, target }
    }

    /// A row of tiles of the target.
    pub(super) fn tile_row(&self) -> TileRow {
        self.target.row
    }

    /// The pixels for a plane of the target, of one group of channels.
    pub(super) fn plane(&self, plane: usize, group: usize) -> SourcePlane<T> {
        let Phases { dilation, phases, .. } = self.target;
        let (image, first) = (plane / phases, (plane % phases) as isize - self.pad.0);
        let phase = first.rem_euclid(dilation as isize) as usize;
        let at = image * self.array.image + group * self.array.group + phase * self.width;
        SourcePlane {
            p: self.p.wrapping_add(at),
            height: rows(self.height, phase, dilation),
            row: dilation * self.width,
            pad: (-first.div_euclid(dilation as isize), self.pad.1),
        }
    }
}
