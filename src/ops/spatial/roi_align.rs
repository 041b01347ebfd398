//! `roi_align`: boxes of images, resized to one size.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::List;
use crate::kernels::threads::{self, SharedCells};
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<RoiAlign>()];

op! {
    /// RoI align: resizes boxes of images to one size. Each element is the mean of the image at the points of a grid in
    /// its cell of the box, interpolated between neighbours.
    ///
    /// Args:
    ///     input: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
    ///     boxes: Boxes, shape (k, 5): number of the image, x and y of one corner, x and y of the opposite one. They
    ///         have no gradient.
    ///     output_size: Height and width of the output.
    ///     spatial_scale: Factors from box coordinates to pixels, for y and x.
    ///     sampling_ratio: Points along each axis in a cell, up to 1,000. If not positive, the size of the cell in
    ///         pixels.
    ///     channel_last: The channels are the last axis of `input` and of the output.
    ///
    /// Returns:
    ///     Array of shape (k, channels, *output_size), or (k, *output_size, channels).
    ///
    /// Raises:
    ///     ShapeError: If the inputs have other shapes.
    ///     ArgumentError: If `output_size` is not two positive numbers, `spatial_scale` is not two numbers, or
    ///         `sampling_ratio` is too large.
    ///     IndexError: If the image of a box does not exist; raised by forward runs.
    ///
    /// Source:
    ///     He et al., Mask R-CNN, 2017, arXiv:1703.06870.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.arange(16.0).reshape(1, 1, 4, 4))
    ///     >>> boxes = nn.NdArray.from_numpy_array([[0, 0, 0, 4, 4]])  # number of the image, then two corners
    ///     >>> F.roi_align(x, boxes, (2, 2)).data
    ///     array([[[[ 2.5,  4.5],
    ///              [10.5, 12.5]]]], dtype=float32)
    /// ```
    RoiAlign = roi_align(input, boxes; output_size: Vec<i64>, spatial_scale: Vec<f64> = [1.0, 1.0],
        sampling_ratio: i64 = -1, channel_last: bool = false)
}

/// Sizes of images and output.
#[derive(Clone, Copy)]
struct RoiSizes {
    /// The number of images.
    images: usize,
    /// The number of channels of an image.
    channels: usize,
    /// Height and width of an image.
    x: [usize; 2],
    /// The number of boxes.
    boxes: usize,
    /// Height and width of the output of a box.
    y: [usize; 2],
    /// True if channels are the last axis.
    channel_last: bool,
}

/// A linear interpolation along an axis: two neighbours and their weights.
type BilinearTap = (usize, usize, f64, f64);

/// The sample points of a box along one axis, for each element of the output.
struct AlongAxis {
    /// The sample points of each output element. None for a point outside of the image.
    taps: List<Option<BilinearTap>>,
    /// The number of sample points of an output element.
    points: usize,
}

/// The image of a box, and its sample points along height and width.
struct RoiLookup {
    /// The index of the image.
    image: usize,
    /// The sample points along height and width.
    axes: [AlongAxis; 2],
}

/// The most sample points computed for one output element. A box of finite size does not exceed it.
const MOST_POINTS: f64 = 65536.0;

impl RoiAlign {
    /// Checks shapes and arguments. Returns the sizes.
    fn sizes(&self, x: &Shape, boxes: &Shape) -> Result<RoiSizes> {
        let op = "roi_align";
        if x.ndim() != 4 || boxes.ndim() != 2 || boxes[1] != 5 {
            return Err(Error::shape(op, "images with four axes and boxes of shape (k, 5)", [x, boxes]));
        }
        let [c, h, w] = if self.channel_last { [3, 1, 2] } else { [1, 2, 3] };
        if x[h] == 0 || x[w] == 0 {
            return Err(Error::shape(op, "images with elements", [x, boxes]));
        }
        let fits = self.output_size.len() == 2 && self.output_size.iter().all(|n| (1..1 << 31).contains(n));
        if !fits {
            let got = format!("{:?}", self.output_size);
            return Err(Error::argument(op, "output_size", "two positive numbers", got));
        }
        if self.spatial_scale.len() != 2 {
            let got = format!("{:?}", self.spatial_scale);
            return Err(Error::argument(op, "spatial_scale", "two numbers, of y and of x", got));
        }
        if self.sampling_ratio > 1000 {
            return Err(Error::argument(op, "sampling_ratio", "at most 1,000", self.sampling_ratio));
        }
        let y = [self.output_size[0] as usize, self.output_size[1] as usize];
        let channel_last = self.channel_last;
        Ok(RoiSizes { images: x[0], channels: x[c], x: [x[h], x[w]], boxes: boxes[0], y, channel_last })
    }

    /// The sample points of a box.
    fn lookup<T: Float>(&self, s: &RoiSizes, given: &[T]) -> Result<RoiLookup> {
        let v = [0, 1, 2, 3, 4].map(|i| given[i].real());
        if !(v[0] >= 0.0 && v[0] < s.images as f64 && v[0].fract() == 0.0) {
            let got = v[0];
            return Err(Error::Index(format!(
                "roi_align: expected a box of one of {} images, got {got}",
                s.images
            )));
        }
        let along = |axis: usize| {
            let (first, last) =
                (v[2 - axis] * self.spatial_scale[axis], v[4 - axis] * self.spatial_scale[axis]);
            // Pixels are centred in their cells.
            let start = first - 0.5;
            let (n, step) = (s.x[axis], (last - first) / s.y[axis] as f64);
            let points = match self.sampling_ratio {
                ratio if ratio > 0 => ratio as usize,
                _ => step.ceil().clamp(0.0, MOST_POINTS) as usize,
            };
            let mut taps = List::with_capacity(s.y[axis] * points);
            for i in 0..s.y[axis] * points {
                let at = start + step * ((i / points) as f64 + ((i % points) as f64 + 0.5) / points as f64);
                taps.push((at >= -1.0 && at <= n as f64).then(|| {
                    let at = at.clamp(0.0, (n - 1) as f64);
                    let low = at as usize;
                    (low, (low + 1).min(n - 1), 1.0 - at.fract(), at.fract())
                }));
            }
            AlongAxis { taps, points }
        };
        Ok(RoiLookup { image: v[0] as usize, axes: [along(0), along(1)] })
    }
}

impl RoiSizes {
    /// The offset of an image element.
    fn x_at(&self, image: usize, channel: usize, row: usize, column: usize) -> usize {
        let [h, w] = self.x;
        match self.channel_last {
            true => ((image * h + row) * w + column) * self.channels + channel,
            false => ((image * self.channels + channel) * h + row) * w + column,
        }
    }

    /// The offset of an output element.
    fn y_at(&self, k: usize, channel: usize, row: usize, column: usize) -> usize {
        let [h, w] = self.y;
        match self.channel_last {
            true => ((k * h + row) * w + column) * self.channels + channel,
            false => ((k * self.channels + channel) * h + row) * w + column,
        }
    }

    /// For a channel of a box, calls `f` with each output element, each neighbour of its sample points with a nonzero
    /// weight, and that weight.
    fn each(&self, k: usize, channel: usize, of: &RoiLookup, mut f: impl FnMut(usize, usize, f64)) {
        let [rows, columns] = &of.axes;
        let share = 1.0 / (rows.points * columns.points).max(1) as f64;
        for (row, ys) in rows.taps.chunks(rows.points.max(1)).enumerate() {
            for (column, xs) in columns.taps.chunks(columns.points.max(1)).enumerate() {
                let to = self.y_at(k, channel, row, column);
                for (y0, y1, above, below) in ys.iter().flatten() {
                    for (x0, x1, left, right) in xs.iter().flatten() {
                        for (y, v) in [(y0, above), (y1, below)] {
                            for (x, u) in [(x0, left), (x1, right)] {
                                // A pixel with zero weight may be infinite.
                                if v * u > 0.0 {
                                    f(to, self.x_at(of.image, channel, *y, *x), v * u * share);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Compute for RoiAlign {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let s = self.sizes(x.get(0), x.get(1))?;
        let ([h, w], c) = (s.y, s.channels);
        let shape = Shape::from(if self.channel_last { [s.boxes, h, w, c] } else { [s.boxes, c, h, w] });
        shape.checked_size()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let s = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let (x, boxes, y) = (run.x(0), run.x(1), run.y(0));
        y.fill(T::ZERO);
        let y = SharedCells::of(y);
        for k in 0..s.boxes {
            let of = self.lookup(&s, &boxes[k * 5..][..5])?;
            let work = 4 * of.axes[0].taps.len() * of.axes[1].taps.len();
            threads::ranges(s.channels, (GRAIN / work.max(1)).max(1), |channels| {
                for channel in channels {
                    s.each(k, channel, &of, |to, at, share| y.add(to, x[at] * T::of(share)));
                }
            });
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let s = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            let boxes = run.x(1);
            let gx = SharedCells::of(gx);
            for k in 0..s.boxes {
                let of = self.lookup(&s, &boxes[k * 5..][..5])?;
                let work = 4 * of.axes[0].taps.len() * of.axes[1].taps.len();
                threads::ranges(s.channels, (GRAIN / work.max(1)).max(1), |channels| {
                    for channel in channels {
                        s.each(k, channel, &of, |from, at, share| gx.add(at, gy[from] * T::of(share)));
                    }
                });
            }
        }
        if let Some(gb) = run.gx(1) {
            gb.put(|_| T::ZERO);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let mut found = by_kernel(self, s, |_| true);
        found.truncate(1);
        found
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b10) } else { Reads::NOTHING }
    }

    fn symbol_reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::INPUTS } else { Reads::NOTHING }
    }
}

impl ByKernel for RoiAlign {
    fn is_linear(&self, _: usize) -> bool {
        true
    }
}
