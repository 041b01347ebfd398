//! Sampling of images at given positions: warping, and the grids for affine maps.

use std::ops::Range;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::sampling::{Border, LARGEST_PLANE, Lookup, Points, Sampling};
use crate::ops::arrangement::array::lengths;
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::{
    Backward, Compares, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<AffineGrid>(), Entry::of::<WarpByGrid>(), Entry::of::<WarpByFlow>()];

op! {
    /// Sampling grid of an affine map, for `warp_by_grid`: `theta @ (x, y, 1)` or `theta @ (x, y, z, 1)` for each
    /// element of an image, with coordinates between -1 and 1.
    ///
    /// Args:
    ///     theta: Affine maps, shape (n, 2, 3), or (n, 3, 4) in three dimensions.
    ///     size: Lengths of the image: (height, width), or (depth, height, width).
    ///     align_corners: The first and last elements of an axis are at -1 and 1. If off, the outer edges of these
    ///         elements are.
    ///
    /// Returns:
    ///     Array of shape (n, *size, 2) or (n, *size, 3): x (along the width), y and z. On an axis of length one the
    ///     element is at 0.
    ///
    /// Raises:
    ///     ShapeError: If `theta` has another shape.
    ///     ArgumentError: If `size` does not have the number of axes of `theta`, or a length is not positive.
    ///
    /// Source:
    ///     Jaderberg et al., Spatial Transformer Networks, 2015, arXiv:1506.02025.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> identity = nn.NdArray.from_numpy_array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    ///     >>> F.affine_grid(identity, (2, 2), align_corners=True).data[0, 0]  # x and y of the first row
    ///     array([[-1., -1.],
    ///            [ 1., -1.]], dtype=float32)
    /// ```
    AffineGrid = affine_grid(theta; size: Vec<i64>, align_corners: bool = false)
}

op! {
    /// Samples images at the positions of a grid.
    ///
    /// Args:
    ///     x: Images, shape (n, channels, height, width) or (n, channels, depth, height, width); (n, ..., channels) if
    ///         `channel_last`.
    ///     grid: Positions, shape (n, height_out, width_out, 2) or (n, depth_out, height_out, width_out, 3): x (along
    ///         the width), y and z, from -1 to 1.
    ///     mode: `linear`, which interpolates between neighbours, or `nearest`.
    ///     padding_mode: The values outside of the image: `zero`, zeros; `repeat`, the element at the border;
    ///         `reflect`, the mirror image.
    ///     align_corners: The first and last elements of an axis are at -1 and 1. If off, the outer edges of these
    ///         elements are.
    ///     channel_last: The channels are the last axis of `x` and of the output.
    ///
    /// Returns:
    ///     Array of shape (n, channels, height_out, width_out), or as `x` and `grid` have their axes.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit together.
    ///     ArgumentError: If a mode is unknown.
    ///
    /// Source:
    ///     Jaderberg et al., Spatial Transformer Networks, 2015, arXiv:1506.02025.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 2.0], [3.0, 4.0]]]])
    ///     >>> grid = nn.NdArray.from_numpy_array([[[[0.0, 0.0], [1.0, -1.0]]]])  # the centre, a corner
    ///     >>> F.warp_by_grid(x, grid, align_corners=True).data
    ///     array([[[[2.5, 2. ]]]], dtype=float32)
    /// ```
    WarpByGrid = warp_by_grid(x, grid; mode: String = "linear", padding_mode: String = "zero",
        align_corners: bool = false, channel_last: bool = false)
}

op! {
    /// Samples images at displaced positions, with linear interpolation. Outside of the image, its border is repeated.
    ///
    /// Args:
    ///     data: Images, shape (n, channels, height, width).
    ///     flow: Displacement of each element in pixels, shape (n, 2, height, width): along the width, then along the
    ///         height.
    ///
    /// Returns:
    ///     Array of the shape of `data`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 2.0, 4.0]]]])
    ///     >>> flow = nn.NdArray.from_numpy_array([[[[1.0, 0.5, 0.0]], [[0.0, 0.0, 0.0]]]])
    ///     >>> F.warp_by_flow(x, flow).data
    ///     array([[[[2., 3., 4.]]]], dtype=float32)
    /// ```
    WarpByFlow = warp_by_flow(data, flow)
}

/// The coordinate, between -1 and 1, of element `i` of `n`.
fn place(i: usize, n: usize, align_corners: bool) -> f64 {
    match (n, align_corners) {
        (1, _) => 0.0,
        (_, true) => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
        _ => (2 * i + 1) as f64 / n as f64 - 1.0,
    }
}

impl AffineGrid {
    /// Lengths of the image, last axis first, and the number of maps.
    fn sizes(&self, theta: &Shape) -> Result<(Shape, usize)> {
        let d = self.size.len();
        if !matches!(d, 2 | 3) || self.size.iter().any(|n| *n < 1) {
            let got = format!("{:?}", self.size);
            return Err(Error::argument("affine_grid", "size", "two or three positive lengths", got));
        }
        if theta.ndim() != 3 || theta[1..] != [d, d + 1] {
            let expected = format!("theta of shape (n, {d}, {}) for {d} lengths", d + 1);
            return Err(Error::shape("affine_grid", expected, [theta]));
        }
        Ok((lengths("affine_grid", &self.size)?, theta[0]))
    }

    /// Calls `f` with the index of each element of an image and its coordinates.
    fn each(&self, size: &Shape, mut f: impl FnMut(usize, [f64; 4])) {
        let d = size.ndim();
        let n = size.size();
        for p in 0..n {
            let (mut left, mut at) = (p, [1.0; 4]);
            for (axis, at) in at.iter_mut().enumerate().take(d) {
                let n = size[d - 1 - axis];
                *at = place(left % n, n, self.align_corners);
                left /= n;
            }
            f(p, at);
        }
    }
}

impl Compute for AffineGrid {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (size, n) = self.sizes(x.get(0))?;
        one([n].into_iter().chain(size.iter().copied()).chain([size.ndim()]).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (size, n) = self.sizes(run.x_shape(0))?;
        let (d, theta, y) = (size.ndim(), run.x(0), run.y(0));
        self.each(&size, |p, at| {
            for i in 0..n {
                for (r, row) in theta[i * d * (d + 1)..][..d * (d + 1)].chunks_exact(d + 1).enumerate() {
                    let sum = row.iter().zip(&at[..]).map(|(t, at)| *t * T::of(*at));
                    let sum = sum.fold(T::ZERO, |a, b| a + b);
                    y[(i * size.size() + p) * d + r] = sum;
                }
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (size, n) = self.sizes(run.x_shape(0))?;
        let (d, gy) = (size.ndim(), run.gy(0));
        let Some(gx) = run.gx(0).map(Grad::adding) else { return Ok(()) };
        let mut sums = crate::kernels::scratch::Zeros::<f64>::new(gx.len());
        self.each(&size, |p, at| {
            for i in 0..n {
                for r in 0..d {
                    let g = gy[(i * size.size() + p) * d + r].real();
                    for (k, at) in at.iter().enumerate().take(d + 1) {
                        sums[(i * d + r) * (d + 1) + k] += g * at;
                    }
                }
            }
        });
        gx.iter_mut().zip(&*sums).for_each(|(g, sum)| *g = *g + T::of(*sum));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for AffineGrid {
    fn is_linear(&self, _: usize) -> bool {
        true
    }
}

impl WarpByGrid {
    /// The images, and the sampling.
    fn sizes(&self, x: &Shape, grid: &Shape) -> Result<(Sampling, Lookup)> {
        let fail = |expected: &str| Err(Error::shape("warp_by_grid", expected, [x, grid]));
        let n = x.ndim();
        if !matches!(n, 4 | 5) || grid.ndim() != n || grid[n - 1] != n - 2 || grid[0] != x[0] {
            return fail(
                "images with two or three spatial axes, and for each a grid with as many numbers in a place",
            );
        }
        let axes = n - 2;
        let first = if self.channel_last { 1 } else { 2 };
        let spatial = &x[first..first + axes];
        if spatial.contains(&0) && grid.size() > 0 {
            return fail("images with elements");
        }
        if spatial.iter().product::<usize>() > LARGEST_PLANE {
            return fail("images of at most 2147483647 elements in a channel");
        }
        let mut sizes = [1; 3];
        spatial.iter().rev().zip(&mut sizes).for_each(|(n, size)| *size = *n);
        let border = match self.padding_mode.as_str() {
            "zero" => Border::Zero,
            "repeat" => Border::Repeat,
            _ => Border::Reflect { corners: self.align_corners },
        };
        let sampling = Sampling {
            images: x[0],
            channels: if self.channel_last { x[n - 1] } else { x[1] },
            plane: spatial.iter().product(),
            points: grid[1..n - 1].iter().product(),
            channel_last: self.channel_last,
        };
        Ok((sampling, Lookup { sizes, axes, border, nearest: self.mode == "nearest" }))
    }

    /// Finds the sample points for grid positions from `first` on. If `wanted`, also finds the derivatives of their
    /// weights by the grid.
    fn find<T: Float>(
        &self,
        lookup: &Lookup,
        grid: &[T],
        (first, n): (usize, usize),
        wanted: bool,
        to: &mut Points<T>,
    ) {
        let grid = &grid[first * lookup.axes..][..n * lookup.axes];
        match lookup.axes {
            2 => self.find_along::<T, 2>(lookup, grid.as_chunks().0, wanted, to),
            _ => self.find_along::<T, 3>(lookup, grid.as_chunks().0, wanted, to),
        }
    }

    /// [`WarpByGrid::find`] for `A` axes.
    fn find_along<T: Float, const A: usize>(
        &self,
        lookup: &Lookup,
        grid: &[[T; A]],
        wanted: bool,
        to: &mut Points<T>,
    ) {
        let less = if self.align_corners { 1.0 } else { 0.0 };
        let scales: [f64; A] = std::array::from_fn(|a| (lookup.sizes[a] as f64 - less) / 2.0);
        let starts: [f64; A] = std::array::from_fn(|a| (lookup.sizes[a] as f64 - 1.0) / 2.0);
        let places = grid.iter().map(
            #[inline(always)]
            move |given| std::array::from_fn(|a| (given[a], starts[a])),
        );
        lookup.find(places, (scales, wanted), to);
    }
}

impl Compute for WarpByGrid {
    // As for `interpolate`, elements are multiplied by one.
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, i: usize) -> bool {
        i == 0 && self.mode == "nearest"
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !["linear", "nearest"].contains(&self.mode.as_str()) {
            return Err(Error::argument("warp_by_grid", "mode", "linear or nearest", &self.mode));
        }
        if !["zero", "repeat", "reflect"].contains(&self.padding_mode.as_str()) {
            let expected = "zero, repeat or reflect";
            return Err(Error::argument("warp_by_grid", "padding_mode", expected, &self.padding_mode));
        }
        let (sampling, _) = self.sizes(x.get(0), x.get(1))?;
        let grid = x.get(1);
        let spatial = grid[1..grid.ndim() - 1].iter().copied();
        let (n, c) = (sampling.images, sampling.channels);
        one(match self.channel_last {
            true => [n].into_iter().chain(spatial).chain([c]).collect::<Shape>(),
            false => [n, c].into_iter().chain(spatial).collect::<Shape>(),
        })
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (sampling, lookup) = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let grid = run.x(1);
        sampling.forward(run.x(0), run.y(0), |image, range, points| {
            self.find(&lookup, grid, (image * sampling.points + range.start, range.len()), false, points);
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (sampling, lookup) = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let (gy, grid) = (run.gy(0), run.x(1));
        let part = |image: usize, range: Range<usize>| (image * sampling.points + range.start, range.len());
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            sampling.give_back(gy, gx, |image, range, points| {
                self.find(&lookup, grid, part(image, range), false, points);
            });
        }
        if lookup.nearest {
            run.gx(1).into_iter().for_each(|grad| grad.put(|_| T::ZERO));
        } else if let Some(Grad { data, accumulate }) = run.gx(1) {
            let (given, to) = ([run.x(0), gy], (data, accumulate));
            sampling.put_slopes(given, to, (lookup.axes, true), |image, range, points| {
                self.find(&lookup, grid, part(image, range), true, points);
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b10 } else { 0b11 })
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for WarpByGrid {
    fn is_linear(&self, i: usize) -> bool {
        i == 0
    }
}

impl WarpByFlow {
    /// Checks the shapes. Returns how points are sampled.
    fn sizes(x: &Shape, flow: &Shape) -> Result<(Sampling, Lookup)> {
        let fits =
            x.ndim() == 4 && flow.ndim() == 4 && flow[0] == x[0] && flow[1] == 2 && flow[2..] == x[2..];
        if !fits {
            let expected = "images (n, channels, height, width) and a flow (n, 2, height, width)";
            return Err(Error::shape("warp_by_flow", expected, [x, flow]));
        }
        let plane = x[2] * x[3];
        if plane > LARGEST_PLANE {
            let expected = "images of at most 2147483647 elements in a channel";
            return Err(Error::shape("warp_by_flow", expected, [x, flow]));
        }
        let sampling = Sampling { images: x[0], channels: x[1], plane, points: plane, channel_last: false };
        Ok((sampling, Lookup { sizes: [x[3], x[2], 1], axes: 2, border: Border::Repeat, nearest: false }))
    }

    /// Finds sample points of an image. If `wanted`, also finds the derivatives of their weights by the flow.
    fn find<T: Float>(
        lookup: &Lookup,
        flow: &[T],
        (image, range): (usize, Range<usize>),
        wanted: bool,
        to: &mut Points<T>,
    ) {
        let (width, plane) = (lookup.sizes[0], lookup.sizes[0] * lookup.sizes[1]);
        let [along, down] = [0, 1].map(|a| &flow[(2 * image + a) * plane..][..plane][range.clone()]);
        let places = range.zip(along.iter().zip(down)).map(
            #[inline(always)]
            move |(at, (x, y))| [(*x, (at % width) as f64), (*y, (at / width) as f64)],
        );
        lookup.find(places, ([1.0; 2], wanted), to);
    }
}

impl Compute for WarpByFlow {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        Self::sizes(x.get(0), x.get(1))?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (sampling, lookup) = Self::sizes(run.x_shape(0), run.x_shape(1))?;
        let flow = run.x(1);
        sampling.forward(run.x(0), run.y(0), |image, range, points| {
            Self::find(&lookup, flow, (image, range), false, points);
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (sampling, lookup) = Self::sizes(run.x_shape(0), run.x_shape(1))?;
        let (gy, flow) = (run.gy(0), run.x(1));
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            sampling.give_back(gy, gx, |image, range, points| {
                Self::find(&lookup, flow, (image, range), false, points);
            });
        }
        if let Some(Grad { data, accumulate }) = run.gx(1) {
            let (given, to) = ([run.x(0), gy], (data, accumulate));
            sampling.put_slopes(given, to, (2, false), |image, range, points| {
                Self::find(&lookup, flow, (image, range), true, points);
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b10 } else { 0b11 })
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for WarpByFlow {
    fn is_linear(&self, i: usize) -> bool {
        i == 0
    }
}
