//! Shared arguments of operations on spatial axes, and the sizes that follow from them.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::kernels::convolution::{Geometry, Spatial};
use crate::kernels::pooling::{PoolingAxis, Windows};
use crate::ops::Value;
use crate::{Error, Result};

/// Reads one whole number for each of `n` spatial axes. `default` if none are given.
pub(crate) fn per_axis(
    op: &str,
    arg: &str,
    given: Option<&[i64]>,
    n: usize,
    least: i64,
    default: usize,
) -> Result<Spatial> {
    let Some(given) = given else { return Ok(Spatial::from_elem(default, n)) };
    // The upper bound keeps sums of products of two numbers within 64 bits.
    let fits = given.len() == n && given.iter().all(|v| (least..1 << 31).contains(v));
    if fits {
        return Ok(given.iter().map(|v| *v as usize).collect());
    }
    let axes = if n == 1 { "one number".into() } else { format!("{n} numbers") };
    let given = given.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    Err(Error::argument(
        op,
        arg,
        format!("{axes}, {least} or more, for the spatial axes"),
        format!("({given})"),
    ))
}

/// The value of an open argument of a convolution: one number for each spatial axis of `x`.
pub(crate) fn open(arg: &str, base_axis: i64, x: &Shape) -> Value {
    let n = x.axis("", base_axis).map_or(0, |base| x.ndim() - base - 1);
    Value::Ints(vec![i64::from(matches!(arg, "stride" | "dilation")); n])
}

/// The arguments shared by convolution and related operations: how a kernel moves over the spatial axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpatialLayout<'a> {
    /// The name of the operation, for messages.
    pub(crate) op: &'static str,
    /// The axis of the channels. Axes before it are the batch.
    pub(crate) base_axis: i64,
    /// The padding at both ends of each axis, 0 by default.
    pub(crate) pad: Option<&'a [i64]>,
    /// The distance of adjacent outputs along each axis, 1 by default.
    pub(crate) stride: Option<&'a [i64]>,
    /// The distance of adjacent kernel elements along each axis, 1 by default.
    pub(crate) dilation: Option<&'a [i64]>,
    /// The number of groups of channels.
    pub(crate) group: i64,
    /// True if channels are the last axis.
    pub(crate) channel_last: bool,
}

/// Implements `layout()`, which collects the [`SpatialLayout`] from the arguments of an operation.
macro_rules! has_layout {
    ($ty:ident) => {
        impl $ty {
            /// The arguments of the operation as a `SpatialLayout`.
            fn layout(&self) -> $crate::ops::spatial::layout::SpatialLayout<'_> {
                $crate::ops::spatial::layout::SpatialLayout {
                    op: <Self as $crate::ops::Declared>::SPEC.name,
                    base_axis: self.base_axis,
                    pad: self.pad.as_deref(),
                    stride: self.stride.as_deref(),
                    dilation: self.dilation.as_deref(),
                    group: self.group,
                    channel_last: self.channel_last,
                }
            }
        }
    };
}
pub(crate) use has_layout;

/// Like [`has_layout`], with the reverse conversion too: an operation from a [`SpatialLayout`] and at most one further
/// argument.
macro_rules! laid_out {
    ($ty:ident $(, $arg:ident: $arg_ty:ty)?) => {
        $crate::ops::spatial::layout::has_layout!($ty);

        impl $ty {
            /// An operation with the arguments of a layout.
            pub(crate) fn laid_out(
                layout: &$crate::ops::spatial::layout::SpatialLayout<'_>
                $(, $arg: $arg_ty)?
            ) -> Self {
                let $crate::ops::spatial::layout::SpatialLayout {
                    base_axis, pad, stride, dilation, group, channel_last, ..
                } = *layout;
                let [pad, stride, dilation] = [pad, stride, dilation].map(|v| v.map(<[i64]>::to_vec));
                Self { base_axis, pad, stride, dilation, group, channel_last $(, $arg)? }
            }
        }
    };
}
pub(crate) use laid_out;

impl SpatialLayout<'_> {
    /// The geometry of a convolution without the output sizes, from its weight and the shape of the side that is
    /// `given`.
    fn geometry(&self, given: &Shape, w: &Shape) -> Result<(Geometry, usize, Spatial)> {
        let op = self.op;
        let base = given.axis(op, self.base_axis)?;
        let n = given.ndim() - base - 1;
        if n == 0 {
            let expected = "channels and at least one spatial axis from `base_axis` on";
            return Err(Error::shape(op, expected, [given, w]));
        }
        if w.ndim() != n + 2 {
            let expected = format!("a weight with {} axes for an input with {n} spatial axes", n + 2);
            return Err(Error::shape(op, expected, [given, w]));
        }
        let group = usize::try_from(self.group).unwrap_or(0);
        if group == 0 {
            return Err(Error::argument(op, "group", "1 or more", self.group));
        }
        let split = |s: &[usize]| -> (usize, Spatial) {
            if self.channel_last { (s[n], s[..n].into()) } else { (s[0], s[1..].into()) }
        };
        let ((given_channels, spatial), (in_group, kernel)) = (split(&given[base..]), split(&w[1..]));
        if kernel.contains(&0) {
            return Err(Error::shape(op, "a kernel of at least one element", [given, w]));
        }
        if !w[0].is_multiple_of(group) {
            let expected = format!("a weight whose first axis is a multiple of group, which is {group}");
            return Err(Error::shape(op, expected, [given, w]));
        }
        let geometry = Geometry {
            images: given.size_to(base),
            channels: in_group.saturating_mul(group),
            maps: w[0],
            group,
            input: Spatial::new(),
            kernel,
            output: Spatial::new(),
            pad: per_axis(op, "pad", self.pad, n, 0, 0)?,
            stride: per_axis(op, "stride", self.stride, n, 1, 1)?,
            dilation: per_axis(op, "dilation", self.dilation, n, 1, 1)?,
            channel_last: self.channel_last,
        };
        Ok((geometry, given_channels, spatial))
    }

    /// A shape with the batch axes of `given`, in the layout of the operation.
    fn shape(&self, given: &Shape, channels: usize, spatial: &[usize]) -> Result<Shape> {
        let batch = given[..given.ndim() - spatial.len() - 1].iter().copied();
        let spatial = spatial.iter().copied();
        let shape: Shape = match self.channel_last {
            true => batch.chain(spatial).chain([channels]).collect(),
            false => batch.chain([channels]).chain(spatial).collect(),
        };
        shape.checked_size()?;
        Ok(shape)
    }

    /// The geometry of a convolution of `x` with `w`, and the shape of its output.
    pub(crate) fn convolution(&self, x: &Shape, w: &Shape) -> Result<(Geometry, Shape)> {
        let (mut g, channels, input) = self.geometry(x, w)?;
        if g.channels != channels {
            let per_group = g.channels / g.group;
            let expected = format!(
                "{} input channels ({per_group} of the weight for each of {} groups)",
                g.channels, g.group
            );
            return Err(Error::shape(self.op, expected, [x, w]));
        }
        g.input = input;
        for i in 0..g.input.len() {
            let over = g.input[i] as i128 + 2 * g.pad[i] as i128 - reach(&g, i);
            if over < 0 {
                return Err(self.too_small(i, &g, g.input[i], [x, w]));
            }
            g.output.push((over / g.stride[i] as i128 + 1) as usize);
        }
        let shape = self.shape(x, g.maps, &g.output)?;
        Ok((g, shape))
    }

    /// The geometry of the convolution whose transpose is a deconvolution of `x` with `w`, and the output shape of the
    /// deconvolution.
    pub(crate) fn deconvolution(
        &self,
        x: &Shape,
        w: &Shape,
        output_padding: Option<&[i64]>,
    ) -> Result<(Geometry, Shape)> {
        let (mut g, channels, output) = self.geometry(x, w)?;
        if g.maps != channels {
            let expected = format!("{} input channels, as the first axis of the weight has", g.maps);
            return Err(Error::shape(self.op, expected, [x, w]));
        }
        g.output = output;
        let extra = per_axis(self.op, "output_padding", output_padding, g.output.len(), 0, 0)?;
        for i in 0..g.output.len() {
            if extra[i] >= g.stride[i] {
                let expected = format!("less than stride, which is {:?}", &g.stride[..]);
                return Err(Error::argument(
                    self.op,
                    "output_padding",
                    expected,
                    format!("{:?}", &extra[..]),
                ));
            }
            let steps = (g.output[i] as i128 - 1) * g.stride[i] as i128;
            let input = steps + reach(&g, i) - 2 * g.pad[i] as i128 + extra[i] as i128;
            match usize::try_from(input) {
                Ok(input) if input > 0 => g.input.push(input),
                _ => return Err(self.too_small(i, &g, g.output[i], [x, w])),
            }
        }
        let shape = self.shape(x, g.channels, &g.input)?;
        Ok((g, shape))
    }

    /// The error for an empty output along spatial axis `i`.
    fn too_small(&self, i: usize, g: &Geometry, input: usize, got: [&Shape; 2]) -> Error {
        let (kernel, pad, stride, dilation) = (g.kernel[i], g.pad[i], g.stride[i], g.dilation[i]);
        let expected = format!(
            "an output of length one or more along spatial axis {i}, where input is {input}, kernel {kernel}, \
             pad {pad}, stride {stride}, dilation {dilation}"
        );
        Error::shape(self.op, expected, got)
    }

    /// The output padding with which [`SpatialLayout::deconvolution`] restores the input size of a convolution.
    pub(crate) fn output_padding(g: &Geometry) -> Vec<i64> {
        let extra = |i: usize| {
            let steps = (g.output[i] as i128 - 1) * g.stride[i] as i128;
            (g.input[i] as i128 + 2 * g.pad[i] as i128 - steps - reach(g, i)) as i64
        };
        (0..g.input.len()).map(extra).collect()
    }

    /// Returns an error unless a bias has one number for each of `channels`.
    pub(crate) fn check_bias(
        &self,
        bias: Option<&Shape>,
        channels: usize,
        others: [&Shape; 2],
    ) -> Result<()> {
        match bias {
            Some(bias) if **bias != [channels] => {
                let expected = format!("a bias of shape ({channels},)");
                Err(Error::shape(self.op, expected, [others[0], others[1], bias]))
            }
            _ => Ok(()),
        }
    }
}

/// Number of elements along an axis from the first to the last that a kernel touches.
fn reach(g: &Geometry, i: usize) -> i128 {
    g.dilation[i] as i128 * (g.kernel[i] as i128 - 1) + 1
}

/// The arguments of a pooling.
pub(crate) struct PoolingArguments<'a> {
    /// The name of the operation, for messages.
    pub(crate) op: &'static str,
    /// The shape of the window.
    pub(crate) kernel: &'a [i64],
    /// The distance of adjacent windows, by default the size of the kernel.
    pub(crate) stride: Option<&'a [i64]>,
    /// False if windows may begin inside and end outside of the padded input.
    pub(crate) ignore_border: bool,
    /// The padding along each axis, 0 by default.
    pub(crate) pad: Option<&'a [i64]>,
    /// True if channels are the last axis.
    pub(crate) channel_last: bool,
}

/// Implements `pool()`, which collects the [`PoolingArguments`] from the arguments of an operation.
macro_rules! pools {
    ($($ty:ident)+) => {$(
        impl $ty {
            /// The arguments of the operation as `PoolingArguments`.
            fn pool(&self) -> $crate::ops::spatial::layout::PoolingArguments<'_> {
                $crate::ops::spatial::layout::PoolingArguments {
                    op: <Self as $crate::ops::Declared>::SPEC.name,
                    kernel: &self.kernel,
                    stride: self.stride.as_deref(),
                    ignore_border: self.ignore_border,
                    pad: self.pad.as_deref(),
                    channel_last: self.channel_last,
                }
            }
        }
    )+};
}
pub(crate) use pools;

impl PoolingArguments<'_> {
    /// The windows over an input of shape `x`, and the shape of the output.
    pub(crate) fn windows(&self, x: &Shape) -> Result<(Windows, Shape)> {
        let n = self.kernel.len();
        if !(1..=3).contains(&n) {
            let got = format!("{:?}", self.kernel);
            return Err(Error::argument(self.op, "kernel", "one to three numbers", got));
        }
        let kernel = per_axis(self.op, "kernel", Some(self.kernel), n, 1, 1)?;
        let stride = per_axis(self.op, "stride", self.stride.or(Some(self.kernel)), n, 1, 1)?;
        let pad = per_axis(self.op, "pad", self.pad, n, 0, 0)?;
        let Some(first) = x.ndim().checked_sub(n + usize::from(self.channel_last)) else {
            let channels = if self.channel_last { " and one of channels" } else { "" };
            let expected = format!("an input with the {n} axes of `kernel`{channels}");
            return Err(Error::shape(self.op, expected, [x]));
        };
        let (mut y, mut axes) = (x.clone(), SmallVec::<[PoolingAxis; 3]>::new());
        for i in 0..n {
            let (input, kernel, stride, pad) = (x[first + i], kernel[i], stride[i], pad[i]);
            // Like NNabla's, the division truncates toward zero: one window may be larger than a small input.
            let last = match self.ignore_border {
                true => (input as i128 + 2 * pad as i128 - kernel as i128) / stride as i128,
                false => (input as i128 + pad as i128 - 1) / stride as i128,
            };
            if last < 0 || input == 0 {
                let expected = format!(
                    "at least one window along spatial axis {i}, where input is {input}, kernel {kernel}, pad {pad}, \
                     stride {stride}"
                );
                return Err(Error::shape(self.op, expected, [x]));
            }
            y[first + i] = last as usize + 1;
            axes.push(PoolingAxis { input, output: y[first + i], kernel, stride, pad });
        }
        y.checked_size()?;
        let inner = if self.channel_last { x[x.ndim() - 1] } else { 1 };
        Ok((Windows::new(x.size_to(first), &axes, inner), y))
    }

    /// Returns an error if a window could contain only padding.
    pub(crate) fn check_filled(&self) -> Result<()> {
        let pad = self.pad.unwrap_or_default();
        if pad.iter().zip(self.kernel).all(|(pad, kernel)| pad < kernel) {
            return Ok(());
        }
        let expected = format!("less than kernel, which is {:?}", self.kernel);
        Err(Error::argument(self.op, "pad", expected, format!("{pad:?}")))
    }

    /// The value of an open argument, which depends on `kernel`.
    pub(crate) fn open(&self, arg: &str) -> Value {
        match arg {
            "stride" => Value::Ints(self.kernel.to_vec()),
            _ => Value::Ints(vec![0; self.kernel.len()]),
        }
    }
}
