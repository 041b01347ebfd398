//! Layers with binary weights: the sign of each weight, optionally times the mean magnitude of the weights of its
//! output.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, map};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::{
    Backward, Compute, Declared, Entry, InputShapes, Memory, Reads, Run, Shapes, Spec, Sym, Symbols, Value,
    like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<BinarizedLayer<BinaryConnectAffine>>(),
    Entry::of::<BinarizedLayer<BinaryConnectConvolution>>(),
    Entry::of::<BinarizedLayer<BinaryWeightAffine>>(),
    Entry::of::<BinarizedLayer<BinaryWeightConvolution>>(),
];

op! {
    /// Affine map with the signs of a weight: `y = x @ sign(w) + b`.
    ///
    /// The gradient by the signs is used for the weight: it passes straight through. Each forward run writes the signs
    /// to `binary_weight`, which has no gradient.
    ///
    /// Args:
    ///     x: Input, shape (batch..., inputs...).
    ///     weight: Weight `w`, shape (inputs, outputs...).
    ///     binary_weight: Array of the shape of `weight`; overwritten.
    ///     bias: Bias `b`, shape (outputs...); none by default.
    ///     base_axis: First axis of the inputs of the map.
    ///     quantize_zero_to: The sign of zero.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs...).
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Courbariaux, Bengio and David, BinaryConnect, 2015, arXiv:1511.00363.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0]])
    ///     >>> w = nn.NdArray.from_numpy_array([[0.3, -0.7], [-0.2, 0.1]])
    ///     >>> b = nn.NdArray((2, 2))
    ///     >>> F.binary_connect_affine(x, w, b).data
    ///     array([[-1.,  1.]], dtype=float32)
    ///     >>> b.data
    ///     array([[ 1., -1.],
    ///            [-1.,  1.]], dtype=float32)
    /// ```
    BinaryConnectAffine = binary_connect_affine(x, weight, binary_weight, bias: optional;
        base_axis: i64 = 1, quantize_zero_to: f64 = 1.0)
}

op! {
    /// Convolution with the signs of a weight.
    ///
    /// The gradient by the signs is used for the weight: it passes straight through. Each forward run writes the signs
    /// to `binary_weight`, which has no gradient.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...).
    ///     weight: Weight, shape (maps, channels / group, kernel...).
    ///     binary_weight: Array of the shape of `weight`; overwritten.
    ///     bias: Bias, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: As in `convolution`.
    ///     stride: As in `convolution`.
    ///     dilation: As in `convolution`.
    ///     group: As in `convolution`.
    ///     quantize_zero_to: The sign of zero.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), as by `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Source:
    ///     Courbariaux, Bengio and David, BinaryConnect, 2015, arXiv:1511.00363.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 4.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[0.3, -0.7]]])
    ///     >>> b = nn.NdArray((1, 1, 2))
    ///     >>> F.binary_connect_convolution(x, w, b).data
    ///     array([[[-1., -2.]]], dtype=float32)
    /// ```
    BinaryConnectConvolution = binary_connect_convolution(x, weight, binary_weight, bias: optional;
        base_axis: i64 = 1, pad: Option<Vec<i64>> = None, stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None, group: i64 = 1, quantize_zero_to: f64 = 1.0)
}

op! {
    /// Affine map with the signs of a weight, scaled by the mean magnitude of the weights of each output:
    /// `y = x @ (alpha sign(w)) + b` with `alpha[j] = mean over i of |w[i, j]|`.
    ///
    /// The gradient by the binary weight is used for the weight: it passes straight through. Each forward run writes
    /// the signs to `binary_weight` and the means to `alpha`, which have no gradient.
    ///
    /// Args:
    ///     x: Input, shape (batch..., inputs...).
    ///     weight: Weight `w`, shape (inputs, outputs...).
    ///     binary_weight: Array of the shape of `weight`; overwritten.
    ///     alpha: Array of as many elements as there are outputs; overwritten.
    ///     bias: Bias `b`, shape (outputs...); none by default.
    ///     base_axis: First axis of the inputs of the map.
    ///     quantize_zero_to: The sign of zero.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs...).
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Rastegari et al., XNOR-Net, 2016, arXiv:1603.05279.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0]])
    ///     >>> w = nn.NdArray.from_numpy_array([[0.5, -1.0], [-0.5, 3.0]])
    ///     >>> b, alpha = nn.NdArray((2, 2)), nn.NdArray((2,))
    ///     >>> F.binary_weight_affine(x, w, b, alpha).data
    ///     array([[-0.5,  2. ]], dtype=float32)
    ///     >>> alpha.data
    ///     array([0.5, 2. ], dtype=float32)
    /// ```
    BinaryWeightAffine = binary_weight_affine(x, weight, binary_weight, alpha, bias: optional;
        base_axis: i64 = 1, quantize_zero_to: f64 = 1.0)
}

op! {
    /// Convolution with the signs of a weight, scaled by the mean magnitude of the weights of each map.
    ///
    /// The gradient by the binary weight is used for the weight: it passes straight through. Each forward run writes
    /// the signs to `binary_weight` and the means to `alpha`, which have no gradient.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...).
    ///     weight: Weight, shape (maps, channels / group, kernel...).
    ///     binary_weight: Array of the shape of `weight`; overwritten.
    ///     alpha: Array of as many elements as there are maps; overwritten.
    ///     bias: Bias, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: As in `convolution`.
    ///     stride: As in `convolution`.
    ///     dilation: As in `convolution`.
    ///     group: As in `convolution`.
    ///     quantize_zero_to: The sign of zero.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), as by `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Source:
    ///     Rastegari et al., XNOR-Net, 2016, arXiv:1603.05279.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 4.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[0.25, -0.75]]])
    ///     >>> b, alpha = nn.NdArray((1, 1, 2)), nn.NdArray((1,))
    ///     >>> F.binary_weight_convolution(x, w, b, alpha).data
    ///     array([[[-0.5, -1. ]]], dtype=float32)
    /// ```
    BinaryWeightConvolution = binary_weight_convolution(x, weight, binary_weight, alpha, bias: optional;
        base_axis: i64 = 1, pad: Option<Vec<i64>> = None, stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None, group: i64 = 1, quantize_zero_to: f64 = 1.0)
}

/// A layer that computes another operation with a modified weight.
pub(crate) trait Weighted: Declared {
    /// The operation that is computed with the modified weight.
    type Plain: Compute;
    /// That operation, with the arguments of the layer.
    fn plain(&self) -> Self::Plain;
    /// Shape of the output for an input and a weight, with an optional bias.
    ///
    /// # Errors
    /// If the shapes do not fit together.
    fn output(&self, x: [&Shape; 2], bias: Option<&Shape>) -> Result<Shapes>;
    /// As [`Compute::open`].
    fn open(&self, arg: &str, x: &Shape) -> Value;
}

/// Implements [`Weighted`] for an operation with the arguments of `affine` or `convolution`.
macro_rules! weighted {
    (affine: $($ty:ident)+) => {$(
        impl $crate::ops::quantization::binary_layers::Weighted for $ty {
            type Plain = $crate::ops::products::affine::Affine;
            fn plain(&self) -> Self::Plain {
                $crate::ops::products::affine::Affine { base_axis: self.base_axis }
            }
            fn output(
                &self,
                x: [&$crate::array::Shape; 2],
                bias: Option<&$crate::array::Shape>,
            ) -> $crate::Result<$crate::ops::Shapes> {
                let name = <Self as $crate::ops::Declared>::SPEC.name;
                $crate::ops::products::affine::shapes(name, self.base_axis, x, bias)
            }
            fn open(&self, _: &str, _: &$crate::array::Shape) -> $crate::ops::Value {
                $crate::ops::Value::None
            }
        }
    )+};
    (convolution: $($ty:ident)+) => {$(
        impl $ty {
            /// The arguments that the layer shares with a convolution.
            fn layout(&self) -> $crate::ops::spatial::layout::SpatialLayout<'_> {
                $crate::ops::spatial::layout::SpatialLayout {
                    op: <Self as $crate::ops::Declared>::SPEC.name,
                    base_axis: self.base_axis,
                    pad: self.pad.as_deref(),
                    stride: self.stride.as_deref(),
                    dilation: self.dilation.as_deref(),
                    group: self.group,
                    channel_last: false,
                }
            }
        }

        impl $crate::ops::quantization::binary_layers::Weighted for $ty {
            type Plain = $crate::ops::spatial::convolution::Convolution;
            fn plain(&self) -> Self::Plain {
                $crate::ops::spatial::convolution::Convolution::laid_out(&self.layout())
            }
            fn output(
                &self,
                [x, w]: [&$crate::array::Shape; 2],
                bias: Option<&$crate::array::Shape>,
            ) -> $crate::Result<$crate::ops::Shapes> {
                let (g, shape) = self.layout().convolution(x, w)?;
                self.layout().check_bias(bias, g.maps, [x, w])?;
                $crate::ops::one(shape)
            }
            fn open(&self, arg: &str, x: &$crate::array::Shape) -> $crate::ops::Value {
                $crate::ops::spatial::layout::open(arg, self.base_axis, x)
            }
        }
    )+};
}
pub(crate) use weighted;

weighted!(affine: BinaryConnectAffine BinaryWeightAffine);
weighted!(convolution: BinaryConnectConvolution BinaryWeightConvolution);

/// The position of outputs in a weight matrix: its rows or its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BinaryOutputs {
    Rows,
    Columns,
}

/// The binary form of a weight: signs, or signs times the mean magnitude for each output.
#[derive(Clone, Copy)]
struct Signs {
    /// The sign of zero.
    zero: f64,
    /// The position of outputs, if the signs of each are multiplied by a mean magnitude.
    scaled: Option<BinaryOutputs>,
}
only_in_gradients! {
    Signs = "signs", " The signs of a weight, or its signs times mean magnitudes.";
}

impl Signs {
    /// The mean magnitude of the weights of each output.
    fn alpha<T: Float>(w: &[T], rows: usize, outputs: BinaryOutputs) -> List<T> {
        let columns = w.len() / rows.max(1);
        let n = if outputs == BinaryOutputs::Rows { rows } else { columns };
        let mut sums = List::repeat(0.0, n);
        for (row, w) in w.chunks_exact(columns.max(1)).enumerate() {
            match outputs {
                BinaryOutputs::Rows => sums[row] = w.iter().map(|v| v.real().abs()).sum(),
                BinaryOutputs::Columns => sums.iter_mut().zip(w).for_each(|(sum, v)| *sum += v.real().abs()),
            }
        }
        let each = (w.len() / n.max(1)).max(1) as f64;
        sums.iter().map(|sum| T::of(sum / each)).collect()
    }

    /// The sign of a number, or the given value for zero.
    fn sign<T: Float>(self, v: T) -> T {
        match () {
            () if v > T::ZERO => T::ONE,
            () if v < T::ZERO => -T::ONE,
            () if v.is_nan() => v,
            () => T::of(self.zero),
        }
    }

    /// Writes the binary form of `w`.
    fn write<T: Float>(self, w: &[T], rows: usize, y: &mut [T]) {
        map::put(y, false, |i| self.sign(w[i]));
        let Some(outputs) = self.scaled else { return };
        let alpha = Self::alpha(w, rows, outputs);
        let columns = (w.len() / rows.max(1)).max(1);
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            match outputs {
                BinaryOutputs::Rows => y.iter_mut().for_each(|y| *y = *y * alpha[row]),
                BinaryOutputs::Columns => y.iter_mut().zip(&*alpha).for_each(|(y, a)| *y = *y * *a),
            }
        }
    }
}

impl Compute for Signs {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.write(run.x(0), run.x_shape(0)[0], run.y(0));
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

/// A [`Weighted`] layer with binary weights.
pub(crate) trait BinaryLayer: Weighted {
    /// The value for a zero weight, and how weights are scaled: by the mean magnitude of rows (true), of columns
    /// (false), or not (None).
    fn signs(&self) -> (f64, Option<bool>);
}

/// Implements [`BinaryLayer`] for layers and their scaling.
macro_rules! binary {
    ($($ty:ident: $scaled:expr;)+) => {$(
        impl BinaryLayer for $ty {
            fn signs(&self) -> (f64, Option<bool>) {
                (self.quantize_zero_to, $scaled)
            }
        }
    )+};
}
binary! {
    BinaryConnectAffine: None;
    BinaryConnectConvolution: None;
    BinaryWeightAffine: Some(false);
    BinaryWeightConvolution: Some(true);
}

/// Adapts a [`BinaryLayer`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct BinarizedLayer<C>(C);

impl<C: Declared> Declared for BinarizedLayer<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        C::bind(values).map(Self)
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
}

impl<C: BinaryLayer> BinarizedLayer<C> {
    /// How zeros become signs, and which outputs have scales of their own.
    fn signs(&self) -> Signs {
        let (zero, rows) = self.0.signs();
        let outputs = |rows| if rows { BinaryOutputs::Rows } else { BinaryOutputs::Columns };
        Signs { zero, scaled: rows.map(outputs) }
    }

    /// Index of the input that is the bias.
    fn bias(&self) -> usize {
        3 + usize::from(self.signs().scaled.is_some())
    }

    /// Memory with the binary form of the weight.
    fn weight<T: Float>(&self, w: &[T], shape: &Shape) -> Zeros<T> {
        let mut weight = Zeros::new(w.len());
        self.signs().write(w, shape[0], &mut weight);
        weight
    }
}

/// A temporary array as an input of a kernel.
pub(crate) fn memory<'a, T: Float>(values: &'a mut [T], shape: &'a Shape) -> Memory<'a> {
    assert!(values.len() == shape.size());
    Memory { ptr: values.as_mut_ptr().cast(), shape }
}

impl<C: BinaryLayer> Compute for BinarizedLayer<C> {
    const HOSTS_EPILOGUE: bool = true;

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        self.0.open(arg, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (name, x0, w) = (C::SPEC.name, x.get(0), x.get(1));
        let shapes = self.0.output([x0, w], x.find(self.bias()))?;
        if x.get(2) != w {
            return Err(Error::shape(name, "binary_weight of the shape of weight", [w, x.get(2)]));
        }
        if let Some(outputs) = self.signs().scaled {
            let n = if outputs == BinaryOutputs::Rows { w[0] } else { w.size_from(1) };
            if x.get(3).size() != n {
                return Err(Error::shape(
                    name,
                    format!("alpha of {n} elements, one for each output"),
                    [w, x.get(3)],
                ));
            }
        }
        Ok(shapes)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        let plain = [x.get(0), x.get(1)];
        self.0.plain().multiplications(&InputShapes { x: &plain, present: u64::MAX, values: None }, y)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (w, shape) = (run.x(1), run.x_shape(1));
        let mut weight = self.weight(w, shape);
        if !run.is_recomputation() {
            let signs = Signs { scaled: None, ..self.signs() };
            signs.write(w, shape[0], run.overwrite(2));
            if let Some(outputs) = self.signs().scaled {
                run.overwrite(3).copy_from_slice(&Signs::alpha(w, shape[0], outputs));
            }
        }
        let bias = self.bias();
        let mut inputs: SmallVec<[Memory<'_>; 3]> = SmallVec::new();
        inputs.extend([run.x_memory(0), memory(&mut weight, shape)]);
        inputs.extend(run.has(bias).then(|| run.x_memory(bias)));
        self.0.plain().forward(&mut run.on(&inputs))
    }

    /// The gradients of the plain layer at the binarized weights, straight through to the real ones. The inputs that
    /// store binarized weights and scales get zeros.
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let shape = run.x_shape(1);
        let mut weight = if run.wants(0) { self.weight(run.x(1), shape) } else { Zeros::new(0) };
        for i in 2..self.bias() {
            if let Some(gx) = run.gx(i) {
                gx.put(|_| T::ZERO);
            }
        }
        let bias = self.bias();
        let w = if run.wants(0) { memory(&mut weight, shape) } else { run.x_memory(1) };
        let mut inputs: SmallVec<[Memory<'_>; 3]> = SmallVec::new();
        inputs.extend([run.x_memory(0), w]);
        inputs.extend(run.has(bias).then(|| run.x_memory(bias)));
        let gradients = [0, 1, bias].map(|i| run.gx_memory(i));
        self.0.plain().backward(&mut run.on(&inputs, &gradients[..inputs.len()]))
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let bias = self.bias();
        let of = |i: usize| if i == 2 { bias } else { i };
        let mut inputs: SmallVec<[Sym; 3]> = SmallVec::new();
        inputs.extend([s.x(0), Sym::apply(self.signs(), &[s.x(1)])]);
        inputs.extend(s.has(bias).then(|| s.x(bias)));
        let wanted = [0, 1, 2].map(|i| s.wants(of(i)));
        let found = self.0.plain().gradient(&Symbols::new(&inputs, &[], &[s.gy(0)], &wanted));
        let found = |i: usize| found.get(i).copied().flatten();
        (0..=bias)
            .map(|i| match i {
                0 | 1 => found(i),
                _ if i == bias => found(2),
                _ => None,
            })
            .collect()
    }

    fn reads(&self, gx: usize) -> Reads {
        match gx {
            0 => Reads::inputs(0b10),
            1 => Reads::inputs(0b01),
            _ => Reads::NOTHING,
        }
    }

    // The binary form of the weight, and its factors if it has any.
    fn overwrites(&self, i: usize) -> bool {
        (2..self.bias()).contains(&i)
    }
}
