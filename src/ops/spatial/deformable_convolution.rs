//! `deformable_convolution`: convolution whose kernels read at given offsets.

use std::ops::Range;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::channel_sums::add_sums;
use crate::kernels::convolution::Geometry;
use crate::kernels::gemm::{Matrix, MatrixMut, gemm};
use crate::kernels::sampling::{Border, LARGEST_PLANE, Lookup, Points, Sampling};
use crate::kernels::scratch::Zeros;
use crate::kernels::threads::SharedCells;
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::spatial::kernel_passes::bias_gradient;
use crate::ops::spatial::layout::{self, SpatialLayout};
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<DeformableConvolution>()];

op! {
    /// Convolution of images whose kernel elements read at given offsets: `y[k, o] = b[k] + sum over c, t of w[k, c, t]
    /// m[t, o] x[c, o * stride + t * dilation - pad + offset[t, o]]`, where `x` is interpolated between its elements,
    /// and zero outside.
    ///
    /// Args:
    ///     x: Images, shape (batch..., channels, height, width).
    ///     weight: Weight `w`, shape (maps, channels / group, kernel height, kernel width).
    ///     offset: Offset of each kernel element along height and width, shape (batch..., deformable_group * 2 * kernel
    ///         size, out...). It may have the height and width of `x` instead; then every `stride`-th position is read.
    ///     mask: Factors `m`, shape (batch..., deformable_group * kernel size, out...) or with the height and width of
    ///         `x`; ones by default.
    ///     bias: Bias `b`, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Zeros added at both ends of each spatial axis, none by default.
    ///     stride: Step of the kernel along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     group: Number of groups of channels and maps; each map reads only the channels of its group.
    ///     deformable_group: Number of groups of channels with separate offsets and factors.
    ///     channel_last: Must be False: channels are before the spatial axes.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), with `out` as in `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument is out of range, or `channel_last` is True.
    ///     ShapeError: If the shapes do not fit together, or there are not two spatial axes.
    ///     NotImplementedError: If the gradient by `offset` is differentiated again.
    ///
    /// Source:
    ///     Dai et al., Deformable Convolutional Networks, 2017, arXiv:1703.06211; Zhu et al., Deformable ConvNets v2,
    ///     2018, arXiv:1811.11168.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 2.0, 3.0]]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[[1.0]]]])
    ///     >>> offset = nn.NdArray.from_numpy_array([[[[0.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]]])  # height, then width
    ///     >>> F.deformable_convolution(x, w, offset).data
    ///     array([[[[1.5, 2.5, 3. ]]]], dtype=float32)
    /// ```
    DeformableConvolution = deformable_convolution(x, weight, offset, mask: optional, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        deformable_group: i64 = 1,
        channel_last: bool = false,
    )
}

/// Sizes: elements that are read for each position and kernel element, and positions.
#[derive(Clone)]
struct Parts {
    /// The sizes of the convolution.
    g: Geometry,
    /// Groups of channels with separate offsets.
    groups: usize,
    /// Elements of a kernel.
    kernel: usize,
    /// Positions of the output.
    places: usize,
    /// Elements of an input plane.
    plane: usize,
    /// Strides along height and width for reading offsets and masks that have the size of the input. None if they have
    /// the size of the output.
    steps: Option<[usize; 2]>,
}

impl DeformableConvolution {
    /// The arguments that the operation shares with a convolution.
    fn layout(&self) -> SpatialLayout<'_> {
        SpatialLayout {
            op: "deformable_convolution",
            base_axis: self.base_axis,
            pad: self.pad.as_deref(),
            stride: self.stride.as_deref(),
            dilation: self.dilation.as_deref(),
            group: self.group,
            channel_last: false,
        }
    }

    /// Checks the shapes. Returns the parts of the computation and the output shape.
    fn parts(&self, x: &Shape, w: &Shape, offset: &Shape) -> Result<(Parts, Shape)> {
        let op = "deformable_convolution";
        if self.channel_last {
            return Err(Error::argument(op, "channel_last", "False", "True"));
        }
        let (g, shape) = self.layout().convolution(x, w)?;
        if g.kernel.len() != 2 {
            return Err(Error::shape(op, "images with two spatial axes", [x, w]));
        }
        if g.input.iter().product::<usize>() > LARGEST_PLANE {
            return Err(Error::shape(op, "images of at most 2147483647 elements in a channel", [x, w]));
        }
        let groups = usize::try_from(self.deformable_group).unwrap_or(0);
        if groups == 0 || !g.channels.is_multiple_of(groups) {
            let expected = format!("a divisor of the number of channels, which is {}", g.channels);
            return Err(Error::argument(op, "deformable_group", expected, self.deformable_group));
        }
        let (kernel, places) = (g.kernel.iter().product(), g.output.iter().product());
        let plane = g.input.iter().product();
        let of_input = offset.ndim() >= 2 && offset[offset.ndim() - 2..] == g.input[..];
        let within = (0..2).all(|i| g.output[i] > 0 && (g.output[i] - 1) * g.stride[i] < g.input[i]);
        let steps = (of_input && within && g.output[..] != g.input[..]).then(|| [g.stride[0], g.stride[1]]);
        Ok((Parts { g, groups, kernel, places, plane, steps }, shape))
    }
}

impl Parts {
    /// The index in an array of offsets or masks of row `row` at output position `p`.
    fn given(&self, row: usize, p: usize) -> usize {
        match self.steps {
            None => row * self.places + p,
            Some([down, along]) => {
                let (o, width) = (self.g.output[1], self.g.input[1]);
                row * self.plane + p / o * down * width + p % o * along
            }
        }
    }

    /// Offsets or masks at output positions only. `read` stores them if a copy is needed.
    fn at_places<'a, T: Float>(&self, given: &'a [T], read: &'a mut Option<Zeros<T>>) -> &'a [T] {
        if self.steps.is_none() {
            return given;
        }
        let rows = given.len() / self.plane.max(1);
        let read = read.insert(Zeros::new(rows * self.places));
        for (i, to) in read.iter_mut().enumerate() {
            *to = given[self.given(i / self.places, i % self.places)];
        }
        read
    }

    /// The sampling of the channels of a group.
    fn sampling(&self) -> Sampling {
        Sampling {
            images: 1,
            channels: self.g.channels / self.groups,
            plane: self.plane,
            points: self.kernel * self.places,
            channel_last: false,
        }
    }

    /// Finds the sample points of one group for all images: point `i` is for kernel element `i / places` at position
    /// `i % places`. With `slopes`, also finds the derivatives along the last two axes.
    fn find<T: Float>(
        &self,
        offset: &[T],
        (group, range): (usize, Range<usize>),
        slopes: bool,
        to: &mut Points<T>,
    ) {
        let g = &self.g;
        let place = |i: usize, axis: usize| {
            let (k, p) = (i / self.places, i % self.places);
            let (t, o) = match axis {
                0 => (k / g.kernel[1], p / g.output[1]),
                _ => (k % g.kernel[1], p % g.output[1]),
            };
            let fixed = (o * g.stride[axis] + t * g.dilation[axis]) as f64 - g.pad[axis] as f64;
            (offset[((group * self.kernel + k) * 2 + axis) * self.places + p], fixed)
        };
        let lookup =
            Lookup { sizes: [g.input[1], g.input[0], 1], axes: 2, border: Border::Zero, nearest: false };
        lookup.find(range.map(|i| [place(i, 1), place(i, 0)]), ([1.0; 2], slopes), to);
    }

    /// Like [`Parts::find`], with weights multiplied by the mask.
    fn masked<T: Float>(
        &self,
        offset: &[T],
        mask: Option<&[T]>,
        (group, range): (usize, Range<usize>),
        to: &mut Points<T>,
    ) {
        self.find(offset, (group, range.clone()), false, to);
        if let Some(mask) = mask {
            to.scale(&mask[group * self.kernel * self.places..][range]);
        }
    }

    /// Elements of an image, and of one group of its channels.
    fn image(&self) -> (usize, usize) {
        (self.g.channels * self.plane, self.g.channels / self.groups * self.plane)
    }

    /// Samples image `n` (im2col): a row of all positions for each channel and kernel element.
    fn columns<T: Float>(&self, x: &[T], offset: &[T], mask: Option<&[T]>, n: usize, columns: &mut [T]) {
        let ((image, group), part) = (self.image(), columns.len() / self.groups);
        for d in 0..self.groups {
            let x = &x[n * image + d * group..][..group];
            let to = &mut columns[d * part..][..part];
            let at = n * self.groups + d;
            self.sampling().forward(x, to, |_, range, points| {
                self.masked(offset, mask, (at, range), points);
            });
        }
    }

    /// The sizes of a group's matrix product: maps, kernel elements, positions.
    fn product(&self) -> [usize; 3] {
        let g = &self.g;
        [g.maps / g.group, g.channels / g.group * self.kernel, self.places]
    }
}

impl Compute for DeformableConvolution {
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, w) = (x.get(0), x.get(1));
        let (parts, shape) = self.parts(x0, w, x.get(2))?;
        self.layout().check_bias(x.find(4), parts.g.maps, [x0, w])?;
        let base = x0.ndim() - 3;
        let spatial = if parts.steps.is_some() { &x0[base + 1..] } else { &shape[base + 1..] };
        let of = |n: usize| -> Shape {
            x0[..base]
                .iter()
                .copied()
                .chain([parts.groups * n * parts.kernel])
                .chain(spatial.iter().copied())
                .collect()
        };
        for (i, name, n) in [(2, "offset", 2), (3, "mask", 1)] {
            if let Some(given) = x.find(i).filter(|given| **given != of(n)) {
                let expected = format!("{name} of shape {}", of(n));
                return Err(Error::shape("deformable_convolution", expected, [x0, w, given]));
            }
        }
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1).size_from(1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (parts, _) = self.parts(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let (x, w, mut read) = (run.x(0), run.x(1), [None, None]);
        let [of_offset, of_mask] = &mut read;
        let offset = parts.at_places(run.x(2), of_offset);
        let mask = run.has(3).then(|| parts.at_places(run.x(3), of_mask));
        let bias = run.has(4).then(|| run.x(4));
        let ([maps, inner, places], groups) = (parts.product(), parts.g.group);
        let y = run.y(0);
        let mut columns = Zeros::<T>::new(groups * inner * places);
        for n in 0..parts.g.images {
            parts.columns(x, offset, mask, n, &mut columns);
            for g in 0..groups {
                let to = &mut y[(n * groups + g) * maps * places..][..maps * places];
                let w = Matrix::of_rows(&w[g * maps * inner..][..maps * inner], maps, inner);
                let columns =
                    Matrix::of_rows(&columns[g * inner * places..][..inner * places], inner, places);
                gemm(MatrixMut::of_rows(to, maps, places), false, w, columns);
            }
        }
        if let Some(bias) = bias {
            for (row, y) in y.chunks_exact_mut(places.max(1)).enumerate() {
                let b = bias[row % parts.g.maps];
                for y in y.iter_mut() {
                    *y = *y + b;
                }
            }
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (parts, _) = self.parts(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let ([maps, inner, places], groups) = (parts.product(), parts.g.group);
        let gy = run.gy(0);
        if let Some(gb) = run.gx(4) {
            add_sums(gy, gb.adding(), places);
        }
        let [mut gx, mut gw, mut go, mut gm] = [0, 1, 2, 3].map(|i| run.gx(i).map(Grad::adding));
        if gx.is_none() && gw.is_none() && go.is_none() && gm.is_none() {
            return Ok(());
        }
        let mut read = [None, None];
        let [of_offset, of_mask] = &mut read;
        let offset = parts.at_places(run.x(2), of_offset);
        let mask = run.has(3).then(|| parts.at_places(run.x(3), of_mask));
        let mut columns = Zeros::<T>::new(groups * inner * places);
        let (image, group) = parts.image();
        for n in 0..parts.g.images {
            let of_group = |g: usize| {
                Matrix::of_rows(&gy[(n * groups + g) * maps * places..][..maps * places], maps, places)
            };
            if let Some(gw) = gw.as_deref_mut() {
                parts.columns(run.x(0), offset, mask, n, &mut columns);
                for g in 0..groups {
                    let to = MatrixMut::of_rows(&mut gw[g * maps * inner..][..maps * inner], maps, inner);
                    let columns =
                        Matrix::of_rows(&columns[g * inner * places..][..inner * places], inner, places);
                    gemm(to, true, of_group(g), columns.t());
                }
            }
            if gx.is_none() && go.is_none() && gm.is_none() {
                continue;
            }
            for g in 0..groups {
                let w = Matrix::of_rows(&run.x(1)[g * maps * inner..][..maps * inner], maps, inner);
                let to = &mut columns[g * inner * places..][..inner * places];
                gemm(MatrixMut::of_rows(to, inner, places), false, w.t(), of_group(g));
            }
            let part = columns.len() / parts.groups;
            for d in 0..parts.groups {
                let (at, of) = (n * parts.groups + d, &columns[d * part..][..part]);
                if let Some(gx) = gx.as_deref_mut() {
                    let gx = &mut gx[n * image + d * group..][..group];
                    parts.sampling().give_back(of, gx, |_, range, points| {
                        parts.masked(offset, mask, (at, range), points);
                    });
                }
                if go.is_none() && gm.is_none() {
                    continue;
                }
                let x = &run.x(0)[n * image + d * group..][..group];
                let (to_offset, to_mask) =
                    (go.as_deref_mut().map(SharedCells::of), gm.as_deref_mut().map(SharedCells::of));
                let add = |to: &Option<SharedCells<'_, T>>, place: usize, v: T| {
                    if let Some(to) = to {
                        to.add(place, v); // each comes once
                    }
                };
                let find = |_: usize, range: Range<usize>, points: &mut Points<T>| {
                    parts.find(offset, (at, range), true, points);
                };
                parts.sampling().slopes([x, of], 4, find, |_, first, slopes| {
                    let [along, down, _, values] = slopes else { return };
                    for (n, i) in (first..first + values.len()).enumerate() {
                        let (k, p) = (i / parts.places, i % parts.places);
                        let m = mask.map_or(T::ONE, |mask| mask[at * parts.kernel * parts.places + i]);
                        let row = at * parts.kernel + k;
                        add(&to_offset, parts.given(2 * row, p), down[n] * m);
                        add(&to_offset, parts.given(2 * row + 1, p), along[n] * m);
                        add(&to_mask, parts.given(row, p), values[n]);
                    }
                });
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let mut found = by_kernel(self, s, |i| i != 4);
        found[4] = s.wants(4).then(|| bias_gradient(s.gy(0), false, 2));
        found
    }

    fn reads(&self, gx: usize) -> Reads {
        match gx {
            0 => Reads::inputs(0b01110),
            1 => Reads::inputs(0b01101),
            2 | 3 => Reads::inputs(0b01111),
            _ => Reads::NOTHING,
        }
    }

    fn symbol_reads(&self, gx: usize) -> Reads {
        if gx == 4 { Reads::NOTHING } else { Reads::inputs(0b01111) }
    }
}

impl ByKernel for DeformableConvolution {
    fn is_linear(&self, i: usize) -> bool {
        i != 2
    }
}
