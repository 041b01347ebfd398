"""Functions: each connects an operation to variables, or evaluates it eagerly if an NdArray is among its inputs."""

# Written by `make stubs`; do not edit.

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._core import NdArray, Variable
from ._core import PythonFunction as PythonFunction

T = TypeVar("T", Variable, NdArray)

__all__ = [
    "PythonFunction",
    "abs",
    "absolute_error",
    "acos",
    "acosh",
    "adaptive_separable_convolution",
    "add2",
    "add_n",
    "add_scalar",
    "affine",
    "affine_grid",
    "arange",
    "asin",
    "asinh",
    "assign",
    "atan",
    "atan2",
    "atanh",
    "average_pooling",
    "batch_cholesky",
    "batch_det",
    "batch_inv",
    "batch_logdet",
    "batch_matmul",
    "batch_normalization",
    "bc_add2",
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_cross_entropy",
    "binary_error",
    "binary_sigmoid",
    "binary_tanh",
    "binary_weight_affine",
    "binary_weight_convolution",
    "bit_shift",
    "bool_fill",
    "bool_gather",
    "bool_scatter",
    "broadcast",
    "broadcast_to",
    "categorical_cross_entropy",
    "ceil",
    "celu",
    "clip_by_norm",
    "clip_by_value",
    "clip_grad_by_norm",
    "clip_grad_by_value",
    "concatenate",
    "concatenate_parts",
    "concatenate_uint8",
    "confusion_matrix",
    "constant",
    "convolution",
    "cos",
    "cosh",
    "crelu",
    "cumprod",
    "cumsum",
    "deconvolution",
    "deformable_convolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
    "dequantize_linear",
    "dequantize_uint8",
    "div2",
    "dot",
    "dropout",
    "dynamic_quantize_uint8",
    "einsum",
    "elu",
    "embed",
    "epsilon_insensitive_loss",
    "equal",
    "equal_scalar",
    "erf",
    "exp",
    "eye_like",
    "fft",
    "fixed_point_quantize",
    "flip",
    "floor",
    "forget",
    "fused_batch_normalization",
    "fused_convolution",
    "gather",
    "gather_nd",
    "gelu",
    "global_average_pooling",
    "greater",
    "greater_equal",
    "greater_equal_scalar",
    "greater_scalar",
    "group_normalization",
    "gru",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "huber_loss",
    "identity",
    "ifft",
    "image_augmentation",
    "inq_affine",
    "inq_convolution",
    "instance_normalization",
    "interpolate",
    "isinf",
    "isnan",
    "istft",
    "kl_multinomial",
    "layer_normalization",
    "leaky_relu",
    "less",
    "less_equal",
    "less_equal_scalar",
    "less_scalar",
    "linspace",
    "log",
    "log_sigmoid",
    "log_softmax",
    "logical_and",
    "logical_and_scalar",
    "logical_not",
    "logical_or",
    "logical_or_scalar",
    "logical_xor",
    "logical_xor_scalar",
    "lookup_uint8",
    "lstm",
    "matrix_diag",
    "matrix_diag_part",
    "max",
    "max_pooling",
    "max_pooling_backward",
    "max_pooling_uint8",
    "maximum2",
    "maximum_scalar",
    "mean",
    "mean_subtraction",
    "meshgrid",
    "min",
    "min_max_quantize",
    "minimum2",
    "minimum_scalar",
    "mish",
    "mod2",
    "modulated_convolution",
    "mul2",
    "mul_n",
    "mul_scalar",
    "multi_head_attention",
    "nms_detection2d",
    "nonzero",
    "norm",
    "norm_normalization",
    "not_equal",
    "not_equal_scalar",
    "one_hot",
    "onnx_non_max_suppression",
    "onnx_resize",
    "pack_padded_sequence",
    "pad",
    "pad_packed_sequence",
    "pad_uint8",
    "patch_correlation",
    "pow2",
    "pow2_quantize",
    "pow_scalar",
    "prelu",
    "prod",
    "prune",
    "quantize_linear",
    "quantize_uint8",
    "quantized_add2",
    "quantized_affine",
    "quantized_average_pooling",
    "quantized_batch_matmul",
    "quantized_convolution",
    "quantized_lstm",
    "quantized_mul2",
    "r_div_scalar",
    "r_pow_scalar",
    "r_sub_scalar",
    "rand",
    "rand_beta",
    "rand_binomial",
    "rand_gamma",
    "randint",
    "randn",
    "random_choice",
    "random_crop",
    "random_erase",
    "random_flip",
    "random_shift",
    "reduce",
    "reduce_mean",
    "reduce_sum",
    "relu",
    "relu6",
    "rescale_uint8",
    "reset_inf",
    "reset_nan",
    "reshape",
    "rnn",
    "roi_align",
    "round",
    "scaled_dot_product_attention",
    "scatter_add",
    "scatter_nd",
    "searchsorted",
    "selu",
    "shape",
    "shift",
    "sigmoid",
    "sigmoid_cross_entropy",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sink",
    "slice",
    "slice_uint8",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
    "sort",
    "spectral_norm",
    "split",
    "squared_error",
    "stack",
    "stft",
    "sub2",
    "sum",
    "sum_pooling",
    "swish",
    "sync_batch_normalization",
    "tan",
    "tanh",
    "tanh_shrink",
    "tensor_normalization",
    "tile",
    "top_k_data",
    "top_k_grad",
    "top_n_error",
    "transpose",
    "transpose_uint8",
    "trilu",
    "unique",
    "unlink",
    "unpooling",
    "vat_noise",
    "warp_by_flow",
    "warp_by_grid",
    "weight_normalization",
    "weight_standardization",
    "where",
]

def abs(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Absolute value, elementwise: `y = |x|`. The derivative at zero is 1.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def absolute_error(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Absolute error, elementwise: `y = |x0 - x1|`. The derivative by `x0` is -1 where they are equal.

    Args:
        x0: Input of any shape.
        x1: Input with as many axes as `x0`.

    Returns:
        Loss of each element.

    Raises:
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def acos(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse cosine, elementwise, in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def acosh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse hyperbolic cosine, elementwise.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def adaptive_separable_convolution(
    x: T,
    vertical_kernel: T,
    horizontal_kernel: T,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution of images with a separate kernel for each position. All channels share it, and it is the product of
    a column and a row: `y[c, h, w] = sum over j, i of v[j, h, w] u[i, h, w] x[c, h + j, w + i]`.

    Args:
        x: Images, shape (n, channels, height, width).
        vertical_kernel: Columns `v`, shape (n, rows, height, width). Only the positions of the output are read.
        horizontal_kernel: Rows `u`, shape (n, columns, height, width). Only the positions of the output are read.

    Returns:
        Array of shape (n, channels, height - rows + 1, width - columns + 1).

    Raises:
        ShapeError: If the shapes do not fit together, or a kernel is larger than the image.

    Source:
        Niklaus, Mai and Liu, Video Frame Interpolation via Adaptive Separable Convolution, 2017, arXiv:1708.01692.
    """

def add2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum, elementwise: `y = x0 + x1`.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def add_n(*x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Sum of arrays, elementwise: `y = x[0] + x[1] + ...`.

    Args:
        x: One or more inputs of one shape.

    Returns:
        Array of that shape.

    Raises:
        ShapeError: If the shapes differ.
    """

def add_scalar(
    x: T,
    val: float = 1.0,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum with a number, elementwise: `y = x + val`.

    Args:
        x: Input of any shape.
        val: The number.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape of `x`.
    """

def affine(
    x: T,
    weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Affine map, a fully connected layer: `y = x W + b`, where the axes of `x` from `base_axis` on are flattened to
    one.

    Args:
        x: Input, shape (batch..., features...); the axes before `base_axis` are the batch.
        weight: Weight matrix `W`, shape (inputs, outputs...), where inputs is the number of features.
        bias: Bias `b`, shape (outputs...); none by default.
        base_axis: First axis of the features; a negative one counts from the end.

    Returns:
        Array of shape (batch..., outputs...).

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ShapeError: If the shapes do not fit together.
    """

def affine_grid(
    theta: T,
    size: int | Sequence[int],
    align_corners: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sampling grid of an affine map, for `warp_by_grid`: `theta @ (x, y, 1)` or `theta @ (x, y, z, 1)` for each
    element of an image, with coordinates between -1 and 1.

    Args:
        theta: Affine maps, shape (n, 2, 3), or (n, 3, 4) in three dimensions.
        size: Lengths of the image: (height, width), or (depth, height, width).
        align_corners: The first and last elements of an axis are at -1 and 1. If off, the outer edges of these
            elements are.

    Returns:
        Array of shape (n, *size, 2) or (n, *size, 3): x (along the width), y and z. On an axis of length one the
        element is at 0.

    Raises:
        ShapeError: If `theta` has another shape.
        ArgumentError: If `size` does not have the number of axes of `theta`, or a length is not positive.

    Source:
        Jaderberg et al., Spatial Transformer Networks, 2015, arXiv:1506.02025.
    """

def arange(
    start: float,
    stop: float,
    step: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Evenly spaced numbers from `start` up to but not including `stop`: `y[i] = start + i * step`.

    Args:
        start: The first number.
        stop: The number to stop before.
        step: The distance between numbers.

    Returns:
        Array with one axis. Empty if steps from `start` lead away from `stop`.

    Raises:
        ArgumentError: If `step` is zero or a number is not finite.
    """

def asin(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse sine, elementwise, in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def asinh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse hyperbolic sine, elementwise.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def assign(dst: T, src: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Overwrites an array with another: `dst = src`, and `y = src`. The gradient goes to `dst`, not to `src`.

    Args:
        dst: Array to overwrite.
        src: Its new values, of the same shape.

    Returns:
        The new values.

    Raises:
        ShapeError: If the shapes differ.
    """

def atan(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse tangent, elementwise, in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def atan2(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Angle of the point (`x1`, `x0`), elementwise, in radians from -pi to pi.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def atanh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverse hyperbolic tangent, elementwise.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def average_pooling(
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ignore_border: bool = True,
    pad: int | Sequence[int] | None = None,
    channel_last: bool = False,
    including_pad: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Average pooling: the mean over windows along the last axes.

    Args:
        x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
        kernel: Size of the windows along each spatial axis; one to three axes.
        stride: Step of the windows along each spatial axis, `kernel` by default.
        ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
            window, and `pad` is added at the start only.
        pad: Zeros added at both ends of each spatial axis; none by default.
        channel_last: The last axis is the channels and is not pooled.
        including_pad: Count the zeros of `pad` as elements. If off, the average of a window with only padding is
            NaN.

    Returns:
        Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
        `ceil((in + pad) / stride)` without `ignore_border`.

    Raises:
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If `x` has too few axes, or no window fits.
    """

def batch_cholesky(
    x: T,
    upper: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Cholesky decomposition of symmetric positive definite matrices: triangular `y` with `y y' = x`, or `y' y = x`
    with `upper`.

    Reads only the lower triangle of `x`. The result is NaN if `x` is not positive definite. The gradient is a
    symmetric matrix.

    Args:
        x: Matrices, shape (batch..., n, n).
        upper: Return upper triangular matrices, else lower ones.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If the matrices are not square.

    Source:
        Gradient: Murray, Differentiation of the Cholesky decomposition, 2016, arXiv:1602.07527.
    """

def batch_det(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Determinants of square matrices: `y[i] = det(x[i])`.

    The gradient uses the inverse: it is NaN for a singular matrix.

    Args:
        x: Matrices, shape (batch..., n, n).

    Returns:
        Array of shape (batch...).

    Raises:
        ShapeError: If the matrices are not square.
    """

def batch_inv(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Inverses of square matrices. The inverse of a singular matrix is infinite or NaN.

    Args:
        x: Matrices, shape (batch..., n, n).

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If the matrices are not square.
    """

def batch_logdet(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logarithms of the absolute values of determinants: `y[i] = log(|det(x[i])|)`, without overflow.

    Args:
        x: Matrices, shape (batch..., n, n).

    Returns:
        Array of shape (batch...), negative infinity for a singular matrix.

    Raises:
        ShapeError: If the matrices are not square.
    """

def batch_matmul(
    a: T,
    b: T,
    transpose_a: bool = False,
    transpose_b: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Matrix products over the last two axes: `y[i] = a[i] b[i]` for each index `i` of the batch axes.

    Args:
        a: Left matrices, shape (batch..., m, k).
        b: Right matrices, shape (batch..., k, n); each batch axis has the length of `a`, or one of the two has
            length one.
        transpose_a: The matrices of `a` are transposed, with shape (k, m).
        transpose_b: The matrices of `b` are transposed, with shape (n, k).

    Returns:
        Array of shape (batch..., m, n).

    Raises:
        ShapeError: If the shapes do not fit together.
    """

@overload
def batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    output_stat: Literal[False] = False,
    n_outputs: int | None = None,
) -> T:
    """Batch normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    index of `axes`.

    With `batch_stat`, mean and variance are computed from `x`, and each forward run updates the running statistics:
    `mean = decay_rate * mean + (1 - decay_rate) * mean(x)`, and likewise the variance, with its unbiased estimate.
    Without `batch_stat`, the running statistics are used and do not change.

    Args:
        x: Input of any shape.
        beta: Offset, of the shape of `x` with length one along all other axes; none by default.
        gamma: Scale, of the same shape; none by default.
        mean: Running mean, of the same shape. With `batch_stat` it is updated, and optional.
        variance: Running variance, of the same shape. With `batch_stat` it is updated, and optional.
        axes: Axes with separate statistics for each index.
        decay_rate: Weight of the old running statistics in an update, from 0 to 1.
        eps: Added to the variance, not negative.
        batch_stat: Use the statistics of `x`; if off, the running statistics.
        output_stat: Return the statistics of `x` too.
        n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all
        other axes. Gradients flow through them.

    Raises:
        ArgumentError: If `decay_rate` or `eps` is out of range.
        AxisError: If `x` has no such axis.
        ShapeError: If another input has the wrong shape.
        ValueError: If running statistics are needed and missing, or `output_stat` is set without `batch_stat`.

    Source:
        Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
    """

@overload
def batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    *,
    output_stat: Literal[True],
    n_outputs: int | None = None,
) -> tuple[T, T, T]: ...

@overload
def batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> T | tuple[T, T, T]: ...

def bc_add2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum with broadcasting, elementwise: `y = x0 + x1`. The same as `add2`, under NNabla's older name.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def binary_connect_affine(
    x: T,
    weight: T,
    binary_weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Affine map with the signs of a weight: `y = x @ sign(w) + b`.

    The gradient by the signs is used for the weight: it passes straight through. Each forward run writes the signs
    to `binary_weight`, which has no gradient.

    Args:
        x: Input, shape (batch..., inputs...).
        weight: Weight `w`, shape (inputs, outputs...).
        binary_weight: Array of the shape of `weight`; overwritten.
        bias: Bias `b`, shape (outputs...); none by default.
        base_axis: First axis of the inputs of the map.
        quantize_zero_to: The sign of zero.

    Returns:
        Array of shape (batch..., outputs...).

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ShapeError: If the shapes do not fit together.

    Source:
        Courbariaux, Bengio and David, BinaryConnect, 2015, arXiv:1511.00363.
    """

def binary_connect_convolution(
    x: T,
    weight: T,
    binary_weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution with the signs of a weight.

    The gradient by the signs is used for the weight: it passes straight through. Each forward run writes the signs
    to `binary_weight`, which has no gradient.

    Args:
        x: Input, shape (batch..., channels, spatial...).
        weight: Weight, shape (maps, channels / group, kernel...).
        binary_weight: Array of the shape of `weight`; overwritten.
        bias: Bias, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: As in `convolution`.
        stride: As in `convolution`.
        dilation: As in `convolution`.
        group: As in `convolution`.
        quantize_zero_to: The sign of zero.

    Returns:
        Array of shape (batch..., maps, out...), as by `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.

    Source:
        Courbariaux, Bengio and David, BinaryConnect, 2015, arXiv:1511.00363.
    """

def binary_cross_entropy(x: T, target: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Cross entropy of targets and probabilities, elementwise: `y = -(target * log(x) + (1 - target) * log(1 - x))`.

    Args:
        x: Probabilities of any shape, for instance from `sigmoid`.
        target: Probability of each, 0 or 1 for a label, with as many axes as `x`.

    Returns:
        Loss of each element.

    Raises:
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def binary_error(x: T, target: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Error of a binary classification: 1 if probability and target are on different sides of one half, or if one is
    NaN; else 0.

    Args:
        x: Probabilities of any shape.
        target: 0 or 1 for each, with as many axes as `x`.

    Returns:
        0 or 1 for each element.

    Raises:
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def binary_sigmoid(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Binary sigmoid, elementwise: 1 where `x > 0`, else 0. Its gradient is the gradient of `(x + 1) / 2` clipped to
    [0, 1]: one half where `|x| < 1`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, of zeros and ones.

    Source:
        Courbariaux and Bengio, BinaryNet, 2016, arXiv:1602.02830.
    """

def binary_tanh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Binary hyperbolic tangent, elementwise: 1 where `x > 0`, else -1. Its gradient is the gradient of `x` clipped to
    [-1, 1]: one where `|x| < 1`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, of ones and minus ones.

    Source:
        Courbariaux and Bengio, BinaryNet, 2016, arXiv:1602.02830.
    """

def binary_weight_affine(
    x: T,
    weight: T,
    binary_weight: T,
    alpha: T,
    bias: T | None = None,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Affine map with the signs of a weight, scaled by the mean magnitude of the weights of each output:
    `y = x @ (alpha sign(w)) + b` with `alpha[j] = mean over i of |w[i, j]|`.

    The gradient by the binary weight is used for the weight: it passes straight through. Each forward run writes
    the signs to `binary_weight` and the means to `alpha`, which have no gradient.

    Args:
        x: Input, shape (batch..., inputs...).
        weight: Weight `w`, shape (inputs, outputs...).
        binary_weight: Array of the shape of `weight`; overwritten.
        alpha: Array of as many elements as there are outputs; overwritten.
        bias: Bias `b`, shape (outputs...); none by default.
        base_axis: First axis of the inputs of the map.
        quantize_zero_to: The sign of zero.

    Returns:
        Array of shape (batch..., outputs...).

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ShapeError: If the shapes do not fit together.

    Source:
        Rastegari et al., XNOR-Net, 2016, arXiv:1603.05279.
    """

def binary_weight_convolution(
    x: T,
    weight: T,
    binary_weight: T,
    alpha: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution with the signs of a weight, scaled by the mean magnitude of the weights of each map.

    The gradient by the binary weight is used for the weight: it passes straight through. Each forward run writes
    the signs to `binary_weight` and the means to `alpha`, which have no gradient.

    Args:
        x: Input, shape (batch..., channels, spatial...).
        weight: Weight, shape (maps, channels / group, kernel...).
        binary_weight: Array of the shape of `weight`; overwritten.
        alpha: Array of as many elements as there are maps; overwritten.
        bias: Bias, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: As in `convolution`.
        stride: As in `convolution`.
        dilation: As in `convolution`.
        group: As in `convolution`.
        quantize_zero_to: The sign of zero.

    Returns:
        Array of shape (batch..., maps, out...), as by `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.

    Source:
        Rastegari et al., XNOR-Net, 2016, arXiv:1603.05279.
    """

def bit_shift(x: T, shift: T, direction: str = "LEFT") -> T:
    """Bit shift of integers, elementwise: `y = x * 2^shift`, or `y = x / 2^shift` rounded down.

    The gradient is zero. For unsigned types, bits beyond the width of the type of `x` are lost. Other types have 63
    bits.

    Args:
        x: Non-negative integers of any shape.
        shift: Number of bits, zero or more; broadcasts with `x`.
        direction: `LEFT` or `RIGHT`.

    Returns:
        Integers of the broadcast shape.

    Raises:
        ArgumentError: If `direction` is unknown.
        ShapeError: If the shapes do not broadcast.
        IndexError: If an element is not an integer.
        ValueError: If an element is negative.
    """

def bool_fill(
    data: T,
    mask: T,
    value: float = 0.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Replaces elements by a number where a mask is not zero.

    Args:
        data: Input of any shape.
        mask: Mask of the elements to replace. Its shape broadcasts to the shape of `data`.
        value: The number.

    Returns:
        Array of the shape of `data`.

    Raises:
        ShapeError: If `mask` does not broadcast to the shape of `data`.
    """

def bool_gather(input: T, mask: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """The elements or slices of an array that a mask selects, in order. The shape of the result depends on the values
    of the mask, which must be known when the function is built.

    Args:
        input: Input of any shape.
        mask: Mask (not zero to select). Its shape is a prefix of the shape of `input`.

    Returns:
        Array of shape (n, ...), where n is the number of selected elements.

    Raises:
        ShapeError: If the shapes do not fit.
    """

def bool_scatter(
    input: T,
    mask: T,
    output: T | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Writes elements or slices in order to the positions that a mask selects, in zeros or in an array.

    Args:
        input: The slices to write, shape (n, ...), one for each selected position.
        mask: Mask of the positions (not zero to select).
        output: Array to write to in place. Zeros by default.

    Returns:
        Array of shape (*mask.shape, ...), or `output`.

    Raises:
        ShapeError: If the shapes do not fit.
        ValueError: If the mask does not select n positions.
    """

def broadcast(
    x: T,
    shape: int | Sequence[int],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Broadcasting to a shape: repeats the array along axes of length one and along new leading axes.

    Args:
        x: Input of any shape.
        shape: The new shape, with at least as many axes as `x`. Its last axes correspond to the axes of `x`.

    Returns:
        Array of shape `shape`.

    Raises:
        ShapeError: If an axis of another length than one would change, or `x` has more axes.
    """

def broadcast_to(
    x: T,
    y: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Broadcasts `y` to the shape of `x`.

    Args:
        x: Array with the target shape. Its values are not used.
        y: Input whose shape is part of the shape of `x`.
        axis: Axis of `x` at which the shape of `y` starts. By default the last axes are aligned.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If the shape of `y` is not found there.
    """

def categorical_cross_entropy(
    x: T,
    target: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Cross entropy of probabilities and labels, for each sample: `y = -log(x[target])`.

    Args:
        x: Probabilities of the classes along `axis`, for instance from `softmax`.
        target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
            negative label is ignored: its loss and its gradient are zero.
        axis: Axis of the classes, the last one by default.

    Returns:
        Loss of each sample, array of the shape of `target`.

    Raises:
        ShapeError: If the shapes of `target` and `x` do not fit together.
        IndexError: If a label is not a whole number or not less than the number of classes.
    """

def ceil(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rounding up, elementwise: the smallest whole number `y >= x`. Its gradient passes straight through.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def celu(
    x: T,
    alpha: float = 1.0,
    axis: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Concatenated exponential linear unit: `y = (elu(x), elu(-x))`, concatenated along `axis`.

    Args:
        x: Input of any shape.
        alpha: As in `elu`.
        axis: Axis of the concatenation.

    Returns:
        Array of the shape of `x`, twice as long along `axis`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def clip_by_norm(x: T, clip_norm: T | float, axis: int | Sequence[int] | None = None) -> T:
    """Clip the norm: `y = clip_norm * x / norm(x)` where the norm is larger than `clip_norm`, else `y = x`.

    Args:
        x: Input of any shape.
        clip_norm: Largest Euclidean norm, a positive number or an array that broadcasts.
        axis: Axis or axes of the norm, all by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        ValueError: If `clip_norm` is a number that is not positive.
        TypeError: If `clip_norm` is not a number, Variable or NdArray.
    """

def clip_by_value(x: T, min: T | float, max: T | float) -> T:
    """Clip to a range, elementwise: `y = min(max(x, min), max)`.

    Args:
        x: Input of any shape.
        min: Lower bound, a number or an array of the shape of `x`.
        max: Upper bound, a number or an array of the shape of `x`.

    Returns:
        Array of the shape of `x`.

    Raises:
        TypeError: If a bound is not a number, Variable or NdArray.
    """

def clip_grad_by_norm(
    x: T,
    clip_norm: float = 1.0,
    axes: int | Sequence[int] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Identity that scales its gradient to a norm: `gx = clip_norm * gy / norm(gy)`, and zero where `gy` is zero.

    Args:
        x: Input of any shape.
        clip_norm: Euclidean norm of the gradient.
        axes: Axes of the norm, all by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def clip_grad_by_value(x: T, min: T, max: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Identity that clips its gradient to a range: `gx = max` where `gy > max`, else `min` where `gy < min`, else
    `gy`.

    Args:
        x: Input of any shape.
        min: Lower bound of each element of the gradient, of the shape of `x`.
        max: Upper bound, of the same shape.

    Returns:
        Array of the shape of `x`. The bounds have no gradient.

    Raises:
        ShapeError: If the bounds have another shape.
    """

def concatenate(*x: T, axis: int = -1, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Concatenation along an axis.

    Args:
        x: Inputs whose shapes differ along `axis` alone.
        axis: The axis; a negative one counts from the end.

    Returns:
        Array as long along `axis` as all inputs together.

    Raises:
        AxisError: If the inputs have no such axis.
        ShapeError: If the inputs differ along another axis.
    """

def concatenate_parts(
    *x: T,
    axis: int,
    along: int,
    start: int | Sequence[int],
    stop: int | Sequence[int],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Concatenation of slices of arrays along an axis: `y = concatenate(x[0][start[0]:stop[0]], ...)`.

    Avoids a copy of each slice. Useful for attention caches, to which keys are added.

    Args:
        x: Inputs whose shapes differ along `axis` and `along` alone.
        axis: The axis of concatenation.
        along: The axis of slicing, which is before `axis`.
        start: The first index of the slice of each input.
        stop: The index after the last one of each slice.

    Returns:
        Array whose length along `axis` is the sum over the inputs, and along `along` the length of a slice.

    Raises:
        AxisError: If the inputs have no such axis.
        ArgumentError: If `along` is not before `axis`, a slice exceeds an input, or an input has no start or stop.
        ShapeError: If the inputs differ along another axis, or the slices along `along`.
    """

def concatenate_uint8(
    a: T,
    b: T,
    axis: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Concatenation of two arrays of 8-bit levels along an axis. There is no gradient.

    Args:
        a: Levels, of any shape.
        b: Levels, of a shape that differs along `axis` alone.
        axis: The axis; a negative one counts from the end.

    Returns:
        Array as long along `axis` as both together, of type `uint8`.

    Raises:
        AxisError: If `a` has no such axis.
        ShapeError: If the inputs differ along another axis.
    """

def confusion_matrix(
    x: T,
    target: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Confusion matrix: `y[i, j]` is the number of samples of class `i` with the highest score at class `j`. Of equal
    scores, the first counts. Its gradient is zero.

    Args:
        x: Scores of the classes along `axis`.
        target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
            negative label is ignored.
        axis: Axis of the classes, the last one by default.

    Returns:
        Whole numbers, shape (classes, classes), summed over all samples.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If the shapes of `target` and `x` do not fit together.
        IndexError: If a label is not a whole number or not less than the number of classes.
    """

def constant(
    val: float = 0.0,
    shape: int | Sequence[int] = (),
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """An array filled with a number.

    Args:
        val: The number.
        shape: Shape of the array.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If a length is negative.
    """

def convolution(
    x: T,
    weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution over one or more spatial axes (cross-correlation, as usual in deep learning):
    `y[k, o] = b[k] + sum over c, t of w[k, c, t] x[c, o * stride + t * dilation - pad]`.

    Args:
        x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
        weight: Weight `w`, shape (maps, channels / group, kernel...), or (maps, kernel..., channels / group).
        bias: Bias `b`, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Zeros added at both ends of each spatial axis, none by default.
        stride: Step of the kernel along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        group: Number of groups of channels and maps; each map reads only the channels of its group.
        channel_last: Channels are the last axis of `x`, `weight` and the output.

    Returns:
        Array of shape (batch..., maps, out...), or (batch..., out..., maps), where
        `out = floor((in + 2 * pad - dilation * (kernel - 1) - 1) / stride) + 1`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    """

def cos(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Cosine, elementwise; `x` in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def cosh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Hyperbolic cosine, elementwise.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def crelu(x: T, axis: int = 1, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Concatenated rectified linear unit: `y = (max(x, 0), max(-x, 0))`, concatenated along `axis`. At zero the
    derivative is the one of the second part.

    Args:
        x: Input of any shape.
        axis: Axis of the concatenation.

    Returns:
        Array of the shape of `x`, twice as long along `axis`.

    Raises:
        AxisError: If `x` has no such axis.

    Source:
        Shang, Sohn, Almeida and Lee, Concatenated Rectified Linear Units, 2016, arXiv:1603.05201.
    """

def cumprod(
    x: T,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Running product along an axis: `y[i] = x[0] * ... * x[i]`. Its gradient is exact even if elements are zero.

    Args:
        x: Input of any shape.
        axis: The axis, the first one by default; a negative one counts from the end.
        exclusive: Leave out the element itself: `y[i] = x[0] * ... * x[i - 1]`.
        reverse: Run from the end to the start.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def cumsum(
    x: T,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Running sum along an axis: `y[i] = x[0] + ... + x[i]`.

    Args:
        x: Input of any shape.
        axis: The axis, the first one by default; a negative one counts from the end.
        exclusive: Leave out the element itself: `y[i] = x[0] + ... + x[i - 1]`.
        reverse: Run from the end to the start.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def deconvolution(
    x: T,
    weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    output_padding: int | Sequence[int] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Deconvolution, also called transposed convolution: the gradient by the input of the convolution with the same
    arguments, as a layer of its own. `y[k, o * stride + t * dilation - pad]` gets `w[c, k, t] x[c, o]` from each
    `c`, `t` and `o`, and `b[k]`.

    Args:
        x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
        weight: Weight `w`, shape (channels, maps / group, kernel...), or (channels, kernel..., maps / group).
        bias: Bias `b`, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Elements cut off at both ends of each spatial axis of the output, none by default.
        stride: Step in the output for each step in the input along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        group: Number of groups of channels and maps; each map reads only the channels of its group.
        channel_last: Channels are the last axis of `x`, `weight` and the output.
        output_padding: Elements added at the end of each spatial axis of the output, fewer than `stride`. Selects
            one of the input sizes for which a convolution has the size of `x`.

    Returns:
        Array of shape (batch..., maps, out...), or (batch..., out..., maps), where
        `out = stride * (in - 1) + dilation * (kernel - 1) + 1 - 2 * pad + output_padding`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If the shapes do not fit together, or `pad` leaves nothing of the output.
    """

def deformable_convolution(
    x: T,
    weight: T,
    offset: T,
    mask: T | None = None,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    deformable_group: int = 1,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution of images whose kernel elements read at given offsets: `y[k, o] = b[k] + sum over c, t of w[k, c, t]
    m[t, o] x[c, o * stride + t * dilation - pad + offset[t, o]]`, where `x` is interpolated between its elements,
    and zero outside.

    Args:
        x: Images, shape (batch..., channels, height, width).
        weight: Weight `w`, shape (maps, channels / group, kernel height, kernel width).
        offset: Offset of each kernel element along height and width, shape (batch..., deformable_group * 2 * kernel
            size, out...). It may have the height and width of `x` instead; then every `stride`-th position is read.
        mask: Factors `m`, shape (batch..., deformable_group * kernel size, out...) or with the height and width of
            `x`; ones by default.
        bias: Bias `b`, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Zeros added at both ends of each spatial axis, none by default.
        stride: Step of the kernel along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        group: Number of groups of channels and maps; each map reads only the channels of its group.
        deformable_group: Number of groups of channels with separate offsets and factors.
        channel_last: Must be False: channels are before the spatial axes.

    Returns:
        Array of shape (batch..., maps, out...), with `out` as in `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument is out of range, or `channel_last` is True.
        ShapeError: If the shapes do not fit together, or there are not two spatial axes.
        NotImplementedError: If the gradient by `offset` is differentiated again.

    Source:
        Dai et al., Deformable Convolutional Networks, 2017, arXiv:1703.06211; Zhu et al., Deformable ConvNets v2,
        2018, arXiv:1811.11168.
    """

def depthwise_convolution(
    x: T,
    weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    multiplier: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Depthwise convolution: each channel has its own kernels.
    `y[k, o] = b[k] + sum over t of w[k, t] x[k // multiplier, o * stride + t * dilation - pad]`.

    Args:
        x: Input, shape (batch..., channels, spatial...).
        weight: Weight `w`, shape (channels * multiplier, kernel...).
        bias: Bias `b`, shape (channels * multiplier,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Zeros added at both ends of each spatial axis, none by default.
        stride: Step of the kernel along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        multiplier: Number of outputs of each channel.

    Returns:
        Array of shape (batch..., channels * multiplier, out...), with `out` as in `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    """

def depthwise_deconvolution(
    x: T,
    weight: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    divisor: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Depthwise deconvolution: each channel has its own kernel, and the outputs of `divisor` channels are summed.
    `y[k, o * stride + t * dilation - pad]` gets `w[c, t] x[c, o]` from each `c` with `c // divisor = k`, and
    `b[k]`.

    Args:
        x: Input, shape (batch..., channels, spatial...).
        weight: Weight `w`, shape (channels, kernel...).
        bias: Bias `b`, shape (channels / divisor,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Elements cut off at both ends of each spatial axis of the output, none by default.
        stride: Step in the output for each step in the input along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        divisor: Number of channels of each output.

    Returns:
        Array of shape (batch..., channels / divisor, out...), with `out` as in `deconvolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If the shapes do not fit together, or `pad` leaves nothing of the output.
    """

def dequantize_linear(
    x: T,
    scale: T,
    zero_point: T,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Dequantization of the levels of a linear quantization: `y = (x - zero_point) * scale`. Only `x` has a gradient.
    The other gradients are zero.

    Args:
        x: Levels, of any shape.
        scale: Distance between levels, positive. Its shape is the shape of `x` with length one along some axes.
        zero_point: Level of the number zero, likewise.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `scale` or `zero_point` does not broadcast to `x`.
    """

def dequantize_uint8(
    x: T,
    scale: T,
    zero_point: T,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Dequantization of 8-bit levels: `y = (x - zero_point) * scale`. Unlike `dequantize_linear`, it reads `uint8` and
    has no gradient.

    Args:
        x: Levels, of any shape.
        scale: Distance of two levels, one positive number.
        zero_point: The level that stands for zero, one number.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If `scale` or `zero_point` is not one number.
    """

def div2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quotient, elementwise: `y = x0 / x1`.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product of arrays, like `numpy.dot`: the last axis of `a` with the second to last of `b`.

    Args:
        a: An array of any shape, or a number.
        b: An array of any shape, or a number; two vectors give a scalar, a scalar multiplies.
        out: Array to write the result to, of the same class, shape and element type. A Variable becomes the result in
            the graph. It is ignored if the result is a NumPy number.

    Returns:
        The product, which is `out` if given. It is a NumPy array or number if neither `a` nor `b` is a Variable or
        NdArray.

    Raises:
        ShapeError: If the lengths of these axes differ.
        ValueError: If `out` does not fit.
        TypeError: If one operand is a Variable or NdArray, and the other a NumPy array.
    """

def dropout(
    x: T,
    p: float = 0.5,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Dropout: sets elements to zero at random and scales up the others. `y = x / (1 - p)` with probability `1 - p`,
    else 0. It is always active: leave it out for inference.

    Args:
        x: Input of any shape.
        p: Probability of zero, at least 0 and less than 1.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `p` is out of range.

    Source:
        Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
    """

def dynamic_quantize_uint8(
    x: T,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]:
    """Quantization to 8-bit levels over the range of the numbers, extended to zero:
    `scale = (max(x, 0) - min(x, 0)) / 255`, or 1 if all are zero,
    `zero_point = saturate(round(-min(x, 0) / scale))` and `y = saturate(round(x / scale) + zero_point)`, halves
    rounded to the even number. There is no gradient.

    Args:
        x: Numbers, of any shape.

    Returns:
        The levels, an array of the shape of `x` of type `uint8`; the scale and the zero point, of shape ().

    Source:
        The operator DynamicQuantizeLinear of ONNX.
    """

def einsum(*x: T, equation: str = "") -> T:
    """Einstein summation, like `numpy.einsum`: products of arrays, summed over labels that the result lacks.

    Arrays are multiplied two at a time by matrix products, in an order that keeps the work small. The same holds for
    gradients of any order.

    Args:
        x: Arrays. Axes with the same label have equal lengths, or broadcast from length 1.
        equation: A letter for each axis of each array, separated by commas, then `->` and the letters of the result.
            A repeated letter within an array takes its diagonal. Without `->` the result has the letters that occur
            once, in alphabetical order. `...` means any number of axes, which broadcast.

    Returns:
        The sum.

    Raises:
        ArgumentError: If `equation` is malformed.
        ShapeError: If the shapes do not fit `equation`.
        TypeError: If there is no array, or an argument is not a Variable or NdArray.

        >>> import numpy as np, kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array(np.arange(6.0).reshape(2, 3))
        >>> F.einsum(x, x, equation="ij,kj->ik").data.tolist()
        [[5.0, 14.0], [14.0, 50.0]]
    """

def elu(x: T, alpha: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Exponential linear unit, elementwise: `y = x` where `x >= 0`, else `y = alpha * (exp(x) - 1)`.

    Args:
        x: Input of any shape.
        alpha: The negated limit for large negative `x`.

    Returns:
        Array of the shape of `x`.

    Source:
        Clevert, Unterthiner and Hochreiter, Exponential Linear Units, 2015, arXiv:1511.07289.
    """

def embed(x0: T, w: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Lookup of table rows: `y[i, ...] = w[x0[i], ...]`. The usual first layer for words.

    Args:
        x0: Indices of rows, whole numbers from 0 on, of any shape.
        w: The table, shape (rows, features...).

    Returns:
        Array of the shape of `x0` followed by the features.

    Raises:
        ShapeError: If `w` has no axis.
        IndexError: If an index is not a whole number, negative or not less than the number of rows.
    """

def epsilon_insensitive_loss(
    x0: T,
    x1: T,
    epsilon: float,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Absolute error beyond a tolerance, elementwise: `y = max(|x0 - x1| - epsilon, 0)`.

    Args:
        x0: Input of any shape.
        x1: Input with as many axes as `x0`.
        epsilon: Difference up to which the loss is zero, not negative.

    Returns:
        Loss of each element.

    Raises:
        ArgumentError: If `epsilon` is negative or NaN.
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def equal(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 == x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def equal_scalar(x0: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison with a number, elementwise: `y = x0 == val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

def erf(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Error function, elementwise: `y = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def exp(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Exponential, elementwise: `y = e ** x`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def eye_like(x: T, k: int = 0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """A matrix with ones on a diagonal, zeros elsewhere. Its gradient is zero.

    Args:
        x: Matrix whose shape is wanted; its values are not used.
        k: The diagonal: 0 is the main one, positive ones lie above it.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` does not have two axes.
    """

def fft(
    x: T,
    signal_ndim: int,
    normalized: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Discrete Fourier transform of complex numbers along the last axes:
    `y[k] = sum(x[t] exp(-2 pi i (k1 t1 / n1 + ...)))`.

    Args:
        x: Signals, shape (batch..., n1, ..., 2), with `signal_ndim` axes of lengths `n1`, ..., and real and
            imaginary parts along the last one.
        signal_ndim: Number of axes of a signal, one at least.
        normalized: Divide by the root of the number of elements of a signal.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `signal_ndim` is less than one.
        ShapeError: If `x` has too few axes, or the last one is not of length 2.

    Source:
        Cooley and Tukey, 1965, implemented by `rustfft`.
    """

def fixed_point_quantize(
    x: T,
    sign: bool = True,
    n: int = 8,
    delta: float = 0.0625,
    quantize: bool = True,
    ste_fine_grained: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Fixed-point quantization, elementwise: the nearest multiple of `delta` within a range.

    Halves are rounded away from zero. The range is from `-(2 ** (n - 1) - 1) * delta` to
    `(2 ** (n - 1) - 1) * delta`; without `sign`, from 0 to `(2 ** n - 1) * delta`. Quantization is simulated: results
    are floating-point numbers.

    Args:
        x: Input of any shape.
        sign: Whether the range includes negative numbers; the sign takes one bit.
        n: Number of bits, 1 to 64.
        delta: Step between quantized numbers, positive.
        quantize: If False, `x` itself is returned.
        ste_fine_grained: Whether the gradient is zero where `x` is out of range. Otherwise it is passed unchanged, as
            it always is within the range.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` or `delta` is out of range.
    """

def flip(
    x: T,
    axes: int | Sequence[int] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The elements in reverse order along axes.

    Args:
        x: Input of any shape.
        axes: Axis or axes to reverse, the last one by default; negative ones count from the end.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def floor(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rounding down, elementwise: the largest whole number `y <= x`. Its gradient passes straight through.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def forget(
    func: Callable[..., Any],
    *xs: Any,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
) -> Any:
    """Calls a function without saving its intermediate results. They are recomputed for the backward run.

    This trades time for memory (activation checkpointing): only inputs and outputs of `func(*xs)` are saved. In eager
    execution (`auto_forward`), `func` is called once without a graph, and again with a graph in each backward run. In a
    static graph `func` is called once, and its values are recomputed as with `kinnor.recompute`. Parameters and other
    outer variables that `func` reads get ordinary gradients, of any order.

    `func` must be deterministic. Random functions draw the same numbers in each call, and batch normalization updates
    its statistics once. `kinnor.config.in_recomputing` is True in later calls.

    Args:
        func: A function from variables to a variable or a tuple of variables.
        xs: The arguments of `func`; arrays become variables.
        preserve_rng_state: Whether later calls draw the same random numbers.
        determinism_check: Comparison of later calls with the first: `"default"` compares number, shapes and types of
            the outputs, `"values"` also a hash of their values, `"none"` only number and shapes.

    Returns:
        The result of `func`; a tuple of one becomes a single variable.

    Raises:
        TypeError: If `func` is not callable.
        RuntimeError: If `func` returns anything but variables.
        RecomputeError: In a backward run, if the result of `func` differs from the first call.
        ShapeError: If an input has another shape in a later forward run.
    Source:
        `chainer.functions.forget`.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable.from_numpy_array([0.5, 1.0], need_grad=True)
        >>> with nn.auto_forward():
        ...     y = F.sum(F.forget(lambda x: F.exp(F.sin(x)), x))
        >>> y.backward()
        >>> [f"{v:.4f}" for v in x.g.tolist()]
        ['1.4174', '1.2534']
    """

@overload
def fused_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: Literal[False] = False,
    n_outputs: int | None = None,
) -> T:
    """Batch normalization, an addition and an activation, as one function:
    `y = relu(batch_normalization(x, ...) + z)`.

    Args:
        x: Input of any shape.
        beta: Offset, as in `batch_normalization`.
        gamma: Scale, as in `batch_normalization`.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        z: Array of the shape of `x` to add before the activation; none by default.
        axes: Axes with separate statistics for each index.
        decay_rate: Share of the running statistics that stays in each run, from 0 to 1.
        eps: Added to the variance, not negative.
        batch_stat: Use the statistics of `x`, else the running ones.
        nonlinearity: The activation: `relu`.
        output_stat: Return the statistics of `x` too.
        n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance.

    Raises:
        ArgumentError: If `nonlinearity` is not `relu`, or an argument of `batch_normalization` is out of range.
        AxisError: If `x` has no such axis.
        ShapeError: If an input has the wrong shape.
    """

@overload
def fused_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    *,
    output_stat: Literal[True],
    n_outputs: int | None = None,
) -> tuple[T, T, T]: ...

@overload
def fused_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> T | tuple[T, T, T]: ...

def fused_convolution(
    x: T,
    weight: T,
    bias: T | None = None,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    nonlinearity: str | None = "relu",
    nonlinearity_args: Sequence[float] = (),
    pad_mode: str = "constant",
    constant_value: float = 0.0,
) -> T:
    """Padding, convolution, batch normalization, an addition and an activation, as one function. All layers but the
    convolution are optional.

    Args:
        x: Input, as of `convolution`.
        weight: Weight, as of `convolution`.
        bias: Bias, as of `convolution`; none by default.
        beta: Offset of the batch normalization. Give all of `beta`, `gamma`, `mean` and `variance`, or none.
        gamma: Scale of the batch normalization.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        z: Array of the shape of the output that is added before the activation; none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Elements added at both ends of each spatial axis; or at either end of each axis, as in `pad`.
        stride: As in `convolution`.
        dilation: As in `convolution`.
        group: As in `convolution`.
        channel_last: As in `convolution`.
        decay_rate: As in `batch_normalization`.
        eps: As in `batch_normalization`.
        batch_stat: As in `batch_normalization`.
        nonlinearity: The activation: `identity`, `relu`, `sigmoid`, `tanh`, `leaky_relu`, `elu`, `relu6`.
        nonlinearity_args: Its arguments: `alpha` of `leaky_relu` and `elu`.
        pad_mode: As `mode` of `pad`.
        constant_value: As in `pad`.

    Returns:
        Array of the shape of the convolution's output.

    Raises:
        ArgumentError: If the activation is unknown or has the wrong arguments, or an argument of a layer is out of
            range. Also if only some inputs of the batch normalization are given.
        AxisError: If `x` has no axis `base_axis`.
        ShapeError: If the shapes do not fit together.
    """

def gather(
    x: T,
    Indices: T,
    axis: int | None = None,
    batch_dims: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Selects slices of an array by index along an axis.

    Args:
        x: Input with one axis at least.
        Indices: Indices along `axis`; negative ones count from the end.
        axis: The axis; a negative one counts from the end.
        batch_dims: Number of leading batch axes of both inputs. Each batch element has its own indices.

    Returns:
        Array of the shape of `x` with `axis` replaced by the shape of `Indices` without its batch axes.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If the batch axes differ.
        IndexError: If an index is out of range or not a whole number.
    """

def gather_nd(data: T, indices: T | ArrayLike) -> T:
    """Selects elements of an array by index along its first axes: `y[j] = data[indices[0][j], indices[1][j], ...]`.

    Args:
        data: Input with at least n axes.
        indices: Indices, shape (n, ...); negative ones count from the end.

    Returns:
        Array of the shape of `indices` without its first axis and of `data` without its first n.

    Raises:
        ShapeError: If `indices` refers to more axes than `data` has.
        IndexError: If an index is out of range or not a whole number.
    """

def gelu(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Gaussian error linear unit, elementwise, approximated by the hyperbolic tangent:
    `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.

    Source:
        Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    """

def global_average_pooling(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Average over all axes but the first two.

    Args:
        x: Input, shape (n, c, ...).

    Returns:
        Array of shape (n, c, 1, 1).

    Raises:
        ShapeError: If `x` has fewer than two axes, or no elements to average.
    """

def greater(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 > x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def greater_equal(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 >= x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def greater_equal_scalar(
    x0: T,
    val: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Comparison with a number, elementwise: `y = x0 >= val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

def greater_scalar(x0: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison with a number, elementwise: `y = x0 > val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

@overload
def group_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    num_groups: int = 1,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: Literal[False] = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Group normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    group of channels of each sample.

    Args:
        x: Input of any shape.
        beta: Offset, of the shape of `x` with length one along all axes but `channel_axis`; none by default.
        gamma: Scale, of the same shape; none by default.
        num_groups: Number of groups. It must divide the number of channels.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the samples.
        eps: Added to the variance, not negative.
        output_stat: Return the statistics too.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance: the axis of the channels
        becomes two, of length `num_groups` and one, and all axes but `batch_axis` have length one.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `x` has no such axis.
        ShapeError: If beta or gamma has the wrong shape.
        ValueError: If `num_groups` does not divide the number of channels.

    Source:
        Wu and He, Group Normalization, 2018, arXiv:1803.08494.
    """

@overload
def group_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    num_groups: int = 1,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    *,
    output_stat: Literal[True],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]: ...

@overload
def group_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    num_groups: int = 1,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T, T]: ...

def gru(
    x: T,
    h: T,
    weight_l0: T,
    weight: T | None = None,
    bias: T | None = None,
    num_layers: int = 1,
    dropout: float | None = None,
    bidirectional: bool = False,
    training: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]:
    """Gated recurrent units of several layers over whole sequences: for each time step `h[t] = (1 - z) n + z h[t - 1]`
    with `r = sigmoid(w_x x[t] + w_h h[t - 1] + b)`, z likewise with weights of its own, and
    `n = tanh(w_x x[t] + b + r (w_h h[t - 1] + b'))`.

    Args:
        x: Sequences, shape (time, batch, inputs).
        h: States at the start, shape (layers, directions, batch, hidden).
        weight_l0: Weights of the first layer, shape (directions, 3, hidden, inputs + hidden): of r, z, n in this
            order, and of the inputs, then of the state.
        weight: Weights of the other layers, shape (layers - 1, directions, 3, hidden, directions * hidden +
            hidden); none if there is one layer.
        bias: Biases, shape (layers, directions, 4, hidden), of r, z, n and the second one of n; none by default.
        num_layers: Number of layers.
        dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
            Applies only if `training`. 0 by default.
        bidirectional: Each layer runs in both directions of time and concatenates the outputs.
        training: Save values for a backward run.

    Returns:
        Outputs of the last layer, shape (time, batch, directions * hidden), and the states at the end, in the shape
        of `h`.

    Raises:
        ArgumentError: If an argument is out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014, arXiv:1406.1078.
    """

def hard_sigmoid(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Piecewise linear logistic function, elementwise: `y = min(max(0.2 * x + 0.5, 0), 1)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [0, 1].
    """

def hard_swish(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Swish with a piecewise linear gate, elementwise: `y = x * min(max(x + 3, 0), 6) / 6`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.

    Source:
        Howard and others, Searching for MobileNetV3, 2019, arXiv:1905.02244.
    """

def hard_tanh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Piecewise linear hyperbolic tangent, elementwise: `y = min(max(x, -1), 1)`. The derivative at -1 and 1 is 1.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [-1, 1].
    """

def huber_loss(
    x0: T,
    x1: T,
    delta: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Huber's loss, elementwise: with `d = x0 - x1`, `y = d^2` where `|d| < delta`, else
    `y = delta * (2 * |d| - delta)`.

    Args:
        x0: Input of any shape.
        x1: Input with as many axes as `x0`.
        delta: Difference above which the loss is linear, not negative.

    Returns:
        Loss of each element.

    Raises:
        ArgumentError: If `delta` is negative or NaN.
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.

    Source:
        Huber, Robust Estimation of a Location Parameter, 1964.
    """

def identity(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """The same values: `y = x`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def ifft(
    x: T,
    signal_ndim: int,
    normalized: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Inverse discrete Fourier transform of complex numbers along the last axes:
    `y[t] = sum(x[k] exp(2 pi i (k1 t1 / n1 + ...))) / (n1 ...)`.

    Args:
        x: Frequencies, shape (batch..., n1, ..., 2), with `signal_ndim` axes of lengths `n1`, ..., and real and
            imaginary parts along the last one.
        signal_ndim: Number of axes of a signal, one at least.
        normalized: Divide by the root of the number of elements of a signal, instead of by that number.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `signal_ndim` is less than one.
        ShapeError: If `x` has too few axes, or the last one is not of length 2.

    Source:
        Cooley and Tukey, 1965, implemented by `rustfft`.
    """

def image_augmentation(
    x: T,
    shape: int | Sequence[int] | None = None,
    pad: int | Sequence[int] = (0, 0),
    min_scale: float = 1.0,
    max_scale: float = 1.0,
    angle: float = 0.0,
    aspect_ratio: float = 1.0,
    distortion: float = 0.0,
    flip_lr: bool = False,
    flip_ud: bool = False,
    brightness: float = 0.0,
    brightness_each: bool = False,
    contrast: float = 1.0,
    contrast_center: float = 0.0,
    contrast_each: bool = False,
    noise: float = 0.0,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random changes of images, different for each: scale, crop, rotation, flips, distortion, brightness, contrast and
    noise.

    Output pixels are interpolated between four neighbours. Outside of the image, its border is repeated. The
    gradient is zero.

    Args:
        x: Images, shape (..., channels, height, width), or one image of shape (height, width).
        shape: Lengths of at least the last two axes of the output. The number of channels cannot change. By default
            the shape of `x`.
        pad: Height and width of the padding on each side before the crop.
        min_scale: Least scale, positive.
        max_scale: Largest scale; its logarithm is drawn uniformly.
        angle: Largest angle of rotation in either direction, in radians.
        aspect_ratio: Largest ratio of the scales of width and height, in either direction. Positive.
        distortion: Largest strength of a lens distortion, not negative.
        flip_lr: Flip half of the images from left to right.
        flip_ud: Flip half of the images upside down.
        brightness: Largest number to add or subtract.
        brightness_each: Draw brightness for each channel; if off, for each image.
        contrast: Largest factor of contrast, positive. The least factor is its inverse. The logarithm is drawn
            uniformly.
        contrast_center: The number that contrast does not change.
        contrast_each: Draw contrast for each channel; if off, for each image.
        noise: Largest standard deviation of the normally distributed noise of an image.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of the shape of `x` but for the last axes.

    Raises:
        ShapeError: If `x` has fewer than two axes or no elements in an image.
        ArgumentError: If `shape` or `pad` does not fit, or a number is out of range.
    """

def inq_affine(
    x: T,
    weight: T,
    indicator_fixedweights: T,
    bias: T | None = None,
    base_axis: int = 1,
    num_bits: int = 4,
    inq_iterations: int | Sequence[int] = (),
    selection_algorithm: str = 'largest_abs',
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Affine map whose weights become powers of two during training, by incremental network quantization.

    The function counts its forward runs. In each run listed in `inq_iterations`, half of the remaining weights
    become fixed; in the last one, all of them. A fixed weight is the nearest power of two, or zero. It never
    changes again: forward runs write it back to `weight`, and the mask of fixed weights to
    `indicator_fixedweights`. The gradient is the gradient of an affine map with these weights.

    Args:
        x: Input, shape (batch..., inputs...).
        weight: Weight, shape (inputs, outputs...); forward runs overwrite fixed weights.
        indicator_fixedweights: Array of the shape of `weight`, 1 for fixed weights and 0 elsewhere; overwritten.
        bias: Bias, shape (outputs...); none by default.
        base_axis: First axis of the inputs of the map.
        num_bits: Bits of a fixed weight, at least two. There are `2 ** (num_bits - 2)` powers, the largest one next
            to the largest weight.
        inq_iterations: Numbers of the forward runs, counted from 0, in which weights are fixed.
        selection_algorithm: How the half is selected: `largest_abs`, the larger weights, or `random`.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape (batch..., outputs...).

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If `num_bits` or `selection_algorithm` is out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Zhou et al., Incremental Network Quantization, 2017, arXiv:1702.03044.
    """

def inq_convolution(
    x: T,
    weight: T,
    indicator_fixedweights: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    num_bits: int = 4,
    inq_iterations: int | Sequence[int] = (),
    selection_algorithm: str = 'largest_abs',
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution whose weights become powers of two during training, by incremental network quantization, as in
    `inq_affine`.

    Args:
        x: Input, shape (batch..., channels, spatial...).
        weight: Weight, shape (maps, channels / group, kernel...); forward runs overwrite fixed weights.
        indicator_fixedweights: Array of the shape of `weight`, 1 for fixed weights and 0 elsewhere; overwritten.
        bias: Bias, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: As in `convolution`.
        stride: As in `convolution`.
        dilation: As in `convolution`.
        group: As in `convolution`.
        num_bits: Bits of a fixed weight, at least two.
        inq_iterations: Numbers of the forward runs, counted from 0, in which weights are fixed.
        selection_algorithm: How the half is selected: `largest_abs`, the larger weights, or `random`.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape (batch..., maps, out...), as by `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If `num_bits` or `selection_algorithm` is out of range, or an argument has not one number for
            each spatial axis.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.

    Source:
        Zhou et al., Incremental Network Quantization, 2017, arXiv:1702.03044.
    """

@overload
def instance_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: Literal[False] = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Instance normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for
    each channel of each sample.

    Args:
        x: Input of any shape.
        beta: Offset, with the length of `x` along `channel_axis` and optionally along `batch_axis`, and length one
            along all other axes; none by default.
        gamma: Scale, of the same shape; none by default.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the samples.
        eps: Added to the variance, not negative.
        output_stat: Return the statistics too.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all axes
        but `batch_axis` and `channel_axis`.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `x` has no such axis.
        ShapeError: If beta or gamma has the wrong shape.

    Source:
        Ulyanov, Vedaldi and Lempitsky, Instance Normalization, 2016, arXiv:1607.08022.
    """

@overload
def instance_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    *,
    output_stat: Literal[True],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]: ...

@overload
def instance_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T, T]: ...

def interpolate(
    x: T,
    scale: float | Sequence[float] | None = None,
    output_size: int | Sequence[int] | None = None,
    mode: str = 'linear',
    align_corners: bool = False,
    half_pixel: bool = False,
    half_pixel_for_nn: bool = False,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Resizes the last axes by interpolation.

    Args:
        x: Input of any shape, usually (n, channels, height, width).
        scale: Factor for each of the last axes that is resized. Give either `scale` or `output_size`.
        output_size: Length of each of the last axes that is resized.
        mode: `linear`, between the two elements on either side, or `nearest`.
        align_corners: The first and last elements of input and output coincide.
        half_pixel: The position of an element is its centre, not its start.
        half_pixel_for_nn: Like `half_pixel`, for mode `nearest`, as defined by TensorFlow.
        channel_last: The channels are the last axis, and the axes before it are resized.

    Returns:
        Array of the shape of `x` but for the axes that are resized.

    Raises:
        ArgumentError: If both or neither of `scale` and `output_size` are given, `x` has too few axes, a length is
            not positive, or the mode is unknown.
    """

def isinf(x0: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """1 where `x0` is infinite, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.

    Returns:
        Array of the shape of `x0`.
    """

def isnan(x0: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """1 where `x0` is NaN, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.

    Returns:
        Array of the shape of `x0`.
    """

def istft(
    y_r: T,
    y_i: T,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_stft_backward: bool = False,
) -> T:
    """Inverse short-time Fourier transform: signals from the frequencies of their overlapping frames.

    Args:
        y_r: Real parts, shape (batch, fft_size // 2 + 1, frames).
        y_i: Imaginary parts, of the same shape.
        window_size: Samples of the window, which is centred in a frame.
        stride: Samples from one frame to the next. It must divide `fft_size`.
        fft_size: Samples of a frame, at least `window_size`.
        window_type: `hanning`, `hamming` or `rectangular`.
        center: Remove half of `fft_size` at either end, which `stft` added as padding.
        pad_mode: Used only with `as_stft_backward`.
        as_stft_backward: Compute the gradient of `stft` from the gradients of its outputs.

    Returns:
        Signals, shape (batch, samples).

    Raises:
        ArgumentError: If a size is out of range or a mode has another name.
        ShapeError: If the inputs differ in shape, or have the wrong number of frequencies.
        ValueError: If some samples are in no window.
    """

def kl_multinomial(
    p: T,
    q: T,
    base_axis: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Kullback-Leibler divergence of multinomial distributions: `D = sum(p * log((p + e) / (q + e)))` over all axes
    from `base_axis` on, with `e = 1e-8` for probabilities of zero.

    Args:
        p: Probabilities.
        q: Probabilities, of the shape of `p`.
        base_axis: First axis of a sample. The axes before it are the batch.

    Returns:
        Divergence of each sample: the batch axes, followed by an axis of length one.

    Raises:
        AxisError: If `p` has no such axis.
        ShapeError: If the inputs differ in shape.
    """

@overload
def layer_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: Literal[False] = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Layer normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    sample.

    Args:
        x: Input of any shape.
        beta: Offset, of the shape of `x` with length one along `batch_axis`; none by default.
        gamma: Scale, of the same shape; none by default.
        batch_axis: Axis or axes of the samples.
        eps: Added to the variance, not negative.
        output_stat: Return the statistics too.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all axes
        but `batch_axis`.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `x` has no such axis.
        ShapeError: If beta or gamma has the wrong shape.

    Source:
        Ba, Kiros and Hinton, Layer Normalization, 2016, arXiv:1607.06450.
    """

@overload
def layer_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    *,
    output_stat: Literal[True],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]: ...

@overload
def layer_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    batch_axis: int | Sequence[int] = (0,),
    eps: float = 1e-5,
    output_stat: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T, T]: ...

def leaky_relu(
    x: T,
    alpha: float = 0.1,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Leaky rectified linear unit, elementwise: `y = x` where `x > 0`, else `y = alpha * x`. The derivative at zero is
    `alpha`.

    Args:
        x: Input of any shape.
        alpha: Slope of the negative side.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape of `x`.
    """

def less(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 < x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def less_equal(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 <= x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def less_equal_scalar(
    x0: T,
    val: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Comparison with a number, elementwise: `y = x0 <= val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

def less_scalar(x0: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison with a number, elementwise: `y = x0 < val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

def linspace(
    start: float,
    stop: float,
    num: int,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Evenly spaced numbers from `start` to `stop`, both included.

    Args:
        start: The first number.
        stop: The last number.
        num: Number of elements.

    Returns:
        Array of shape (num,).

    Raises:
        ArgumentError: If `num` is negative.
    """

def log(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Natural logarithm, elementwise: `y = ln(x)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def log_sigmoid(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logarithm of the logistic function, elementwise: `y = -log(1 + exp(-x))`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def log_softmax(
    x: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Logarithm of softmax along an axis: `y = x - log(sum(exp(x)))`.

    Args:
        x: Input of any shape with at least one axis.
        axis: Axis of the softmax, the last one by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def logical_and(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic, elementwise: 1 where both are not zero, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def logical_and_scalar(x0: T, val: bool, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic with a constant, elementwise: 1 where both are true, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The constant.

    Returns:
        Array of the shape of `x0`.
    """

def logical_not(x0: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic, elementwise: 1 where `x0` is zero, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.

    Returns:
        Array of the shape of `x0`.
    """

def logical_or(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic, elementwise: 1 where either is not zero, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def logical_or_scalar(x0: T, val: bool, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic with a constant, elementwise: 1 where either is true, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The constant.

    Returns:
        Array of the shape of `x0`.
    """

def logical_xor(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic, elementwise: 1 where exactly one is not zero, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def logical_xor_scalar(x0: T, val: bool, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logic with a constant, elementwise: 1 where exactly one is true, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The constant.

    Returns:
        Array of the shape of `x0`.
    """

def lookup_uint8(x: T, table: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Table lookup for 8-bit levels: `y = table[x]`. Any function from levels to levels can be such a table. There is
    no gradient.

    Args:
        x: Levels, of any shape.
        table: The result for each level, shape (256,).

    Returns:
        Array of the shape of `x`, of type `uint8`.

    Raises:
        ShapeError: If `table` has another shape.
    """

def lstm(
    x: T,
    h: T,
    c: T,
    weight_l0: T,
    weight: T | None = None,
    bias: T | None = None,
    num_layers: int = 1,
    dropout: float | None = None,
    bidirectional: bool = False,
    training: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]:
    """Long short-term memory of several layers over whole sequences: for each time step
    `c[t] = sigmoid(f) c[t - 1] + sigmoid(i) tanh(g)` and `h[t] = sigmoid(o) tanh(c[t])`, where each of i, f, g, o
    is `w_x x[t] + w_h h[t - 1] + b` with weights of its own.

    Args:
        x: Sequences, shape (time, batch, inputs).
        h: States at the start, shape (layers, directions, batch, hidden).
        c: Cells at the start, of the same shape.
        weight_l0: Weights of the first layer, shape (directions, 4, hidden, inputs + hidden): of i, f, g, o in this
            order, and of the inputs, then of the state.
        weight: Weights of the other layers, shape (layers - 1, directions, 4, hidden, directions * hidden +
            hidden); none if there is one layer.
        bias: Biases, shape (layers, directions, 4, hidden); none by default.
        num_layers: Number of layers.
        dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
            Applies only if `training`. 0 by default.
        bidirectional: Each layer runs in both directions of time and concatenates the outputs.
        training: Save values for a backward run.

    Returns:
        Outputs of the last layer, shape (time, batch, directions * hidden), and the states and cells at the end, in
        the shape of `h`.

    Raises:
        ArgumentError: If an argument is out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Hochreiter and Schmidhuber, Long Short-Term Memory, 1997.
    """

def matrix_diag(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Square matrices with the last axis of `x` on their diagonals, zeros elsewhere.

    Args:
        x: Diagonals, shape (..., n).

    Returns:
        Matrices, shape (..., n, n).

    Raises:
        ShapeError: If `x` is a scalar.
    """

def matrix_diag_part(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """The diagonals of square matrices.

    Args:
        x: Matrices, shape (..., n, n).

    Returns:
        Diagonals, shape (..., n).

    Raises:
        ShapeError: If the last two axes differ.
    """

@overload
def max(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    with_index: Literal[False] = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Largest element along axes; the first one if several are equal. A NaN counts as larger than everything.

    Args:
        x: Input of any shape.
        axis: Axis or axes to reduce, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.
        with_index: Return the index too.
        only_index: Return only the index.

    Returns:
        Array of the shape of `x` without `axis`, the index of each element along `axis`, or both. Along several
        axes, elements are counted row by row.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If there is no element to choose from.
    """

@overload
def max(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    with_index: Literal[True],
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]: ...

@overload
def max(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    with_index: bool = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T]: ...

def max_pooling(
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ignore_border: bool = True,
    pad: int | Sequence[int] | None = None,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Maximum over windows along the last axes. The gradient goes to the first of equal elements.

    Args:
        x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
        kernel: Size of the windows along each spatial axis; one to three axes.
        stride: Step of the windows along each spatial axis, `kernel` by default.
        ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
            window, and `pad` is added at the start only.
        pad: Elements added at both ends of each spatial axis, fewer than `kernel`, which are never the largest;
            none by default.
        channel_last: The last axis is the channels and is not pooled.

    Returns:
        Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
        `ceil((in + pad) / stride)` without `ignore_border`.

    Raises:
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If `x` has too few axes, or no window fits.
    """

def max_pooling_backward(
    dy: T,
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ignore_border: bool = True,
    pad: int | Sequence[int] | None = None,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The gradient of `max_pooling`: each number is added to the largest element of its window of `x`.

    Args:
        dy: Gradient of the output of `max_pooling`.
        x: Input of `max_pooling`.
        kernel: As given to `max_pooling`.
        stride: As given to `max_pooling`.
        ignore_border: As given to `max_pooling`.
        pad: As given to `max_pooling`.
        channel_last: As given to `max_pooling`.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If `dy` does not have the shape of the output of `max_pooling`.
    """

def max_pooling_uint8(
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    pad: int | Sequence[int] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Maximum of 8-bit levels over windows of images, channels last. There is no gradient.

    Args:
        x: Levels, shape (batch..., height, width, channels).
        kernel: Size of the windows along both spatial axes.
        stride: Step of the windows along each spatial axis, `kernel` by default.
        pad: Elements added at both ends of each spatial axis, fewer than `kernel`, which are never the largest;
            none by default.

    Returns:
        Array of type `uint8`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements.

    Raises:
        ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
        ShapeError: If `x` has too few axes, or no window fits.
    """

def maximum2(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Maximum of two arrays, elementwise: `y = max(x0, x1)`, NaN where either is NaN. The gradient goes to the larger
    input, to `x1` where both are equal.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def maximum_scalar(x: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Maximum with a number, elementwise: `y = max(x, val)`. The derivative is zero where both are equal, or where `x`
    is NaN.

    Args:
        x: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x`.
    """

def mean(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Mean along axes. The mean of no elements is NaN.

    Args:
        x: Input of any shape.
        axis: Axis or axes to average over, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.

    Returns:
        Array of the shape of `x` without `axis`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def mean_subtraction(
    x: T,
    mean: T,
    t: T,
    base_axis: int = 1,
    update_running_mean: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Subtraction of a running mean over the axes before `base_axis`: `y = x - mean`, after the update `t = t + 1` and
    `mean = mean + (mean(x) - mean) / t`.

    The gradient takes the mean of earlier runs as constant.

    Args:
        x: Input with `base_axis` batch axes.
        mean: Running mean, of the shape of `x` from `base_axis` on. Updated by forward runs.
        t: Number of runs in the mean, one element. Updated by forward runs.
        base_axis: First axis of a sample.
        update_running_mean: Update the mean in each run; if off, use it as it is.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If `mean` or `t` has the wrong shape.
    """

def meshgrid(
    *x: T,
    ij_indexing: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, ...]:
    """Coordinates on a grid: each input varies along one axis and is repeated along the others.

    Args:
        x: Inputs with one axis, the positions along the axes of the grid.
        ij_indexing: Let the axes of the grid follow the inputs in order; otherwise the first two are swapped.

    Returns:
        For each input an array of the shape of the grid.

    Raises:
        ShapeError: If an input does not have one axis.
    """

@overload
def min(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    with_index: Literal[False] = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Smallest element along axes; the first one if several are equal. A NaN counts as smaller than everything.

    Args:
        x: Input of any shape.
        axis: Axis or axes to reduce, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.
        with_index: Return the index too.
        only_index: Return only the index.

    Returns:
        Array of the shape of `x` without `axis`, the index of each element along `axis`, or both. Along several
        axes, elements are counted row by row.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If there is no element to choose from.
    """

@overload
def min(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    with_index: Literal[True],
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]: ...

@overload
def min(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    with_index: bool = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T]: ...

def min_max_quantize(
    x: T,
    qr_min: T,
    qr_max: T,
    ql_min: T,
    ql_max: T,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    quantize: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to evenly spaced numbers between two bounds `m` and `M`.

    `y = round((min(max(x, m), M) - m) / scale) * scale + m`, with `scale = (qr_max - qr_min) / (ql_max - ql_min)`.
    `m` and `M` are `qr_min` and `qr_max`, shifted so that zero is representable. The range is at least `eps` wide.
    Quantization is simulated: results are floating-point numbers.

    With `x_min_max` each forward run writes the range of `x` to `qr_min` and `qr_max`. With `ema` as well, it updates a
    moving average: `qr_min = decay * qr_min + (1 - decay) * min(x)`. With neither, `qr_min` and `qr_max` have
    gradients: sums of the output's gradient where `x` is below `m`, and above `M`.

    Args:
        x: Input of any shape.
        qr_min: Smallest number, of the shape of `x` or of length 1 along shared axes.
        qr_max: Largest number, of the same shape.
        ql_min: Smallest level, of the same shape, usually 0.
        ql_max: Largest level, of the same shape, usually 255.
        decay: Weight of the old `qr_min` and `qr_max` in an update, from 0 to 1.
        x_min_max: Whether to take the range from `x`.
        ema: Whether to use moving averages of the range; without `x_min_max`, they are used but not updated.
        ste_fine_grained: Whether the gradient of `x` is zero where `x` is out of range. Otherwise it is passed
            unchanged, as it always is within the range.
        eps: Smallest width of the range, positive.
        quantize: If False, `x` itself is returned.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `decay` or `eps` is out of range.
        ShapeError: If the other inputs have different shapes, or a length other than 1 or the length of `x`.

    Source:
        Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2017, arXiv:1712.05877.
    """

def minimum2(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Minimum of two arrays, elementwise: `y = min(x0, x1)`, NaN where either is NaN. The gradient goes to the smaller
    input, to `x1` where both are equal.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def minimum_scalar(x: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Minimum with a number, elementwise: `y = min(x, val)`. The derivative is zero where both are equal, or where `x`
    is NaN.

    Args:
        x: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x`.
    """

def mish(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Mish, elementwise: `y = x * tanh(log(1 + exp(x)))`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.

    Source:
        Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019, arXiv:1908.08681.
    """

def mod2(x0: T, x1: T, fmod: bool = False) -> T:
    """Remainder of a division, elementwise.

    With `fmod` it has the sign of `x0`, like `numpy.fmod`; else it has the sign of `x1`, like `numpy.mod`. The
    remainder of a division by zero is NaN. | | As a function of Python, it always acts like `numpy.fmod` if `x0`
    has real numbers. If `x0` has whole numbers, it computes in float64 in any context, so that integers up to 2^53
    are exact.

    Args:
        x0: The dividend, of any shape.
        x1: The divisor. Its shape broadcasts with `x0`.
        fmod: Round the quotient towards zero; if off, round it down.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def modulated_convolution(
    x: T,
    weight: T,
    scale: T,
    bias: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution whose weight is scaled by a factor for each sample and input channel:
    `y[n, k, o] = b[k] + sum over c, t of s[n, c] w[k, c, t] x[n, c, o * stride + t * dilation - pad]`.

    Equals the convolution of `s * x` up to rounding. It is faster if an image has more positions than the weight
    has maps.

    Args:
        x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
        weight: Weight `w`, shape (maps, channels / group, kernel...), or (maps, kernel..., channels / group).
        scale: Scale `s` of the channels of each sample, shape (batch..., channels).
        bias: Bias `b`, shape (maps,); none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Zeros added at both ends of each spatial axis, none by default.
        stride: Step of the kernel along each spatial axis, 1 by default.
        dilation: Distance between kernel elements along each spatial axis, 1 by default.
        group: Number of groups of channels and maps; each map reads only the channels of its group.
        channel_last: Channels are the last axis of `x`, `weight` and the output.

    Returns:
        Array of the shape of the output of `convolution`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.

    Source:
        Karras et al., Analyzing and Improving the Image Quality of StyleGAN, 2020, arXiv:1912.04958, without its
        demodulation.
    """

def mul2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Product, elementwise: `y = x0 * x1`.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def mul_n(*x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Product of arrays, elementwise: `y = x[0] * x[1] * ...`.

    Args:
        x: One or more inputs of one shape.

    Returns:
        Array of that shape.

    Raises:
        ShapeError: If the shapes differ.
    """

def mul_scalar(
    x: T,
    val: float = 1.0,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Product with a number, elementwise: `y = val * x`.

    Args:
        x: Input of any shape.
        val: The number.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape of `x`.
    """

def multi_head_attention(
    query: T,
    key: T,
    value: T,
    num_heads: int,
    q_weight: T,
    k_weight: T,
    v_weight: T,
    out_weight: T,
    q_bias: T | None = None,
    k_bias: T | None = None,
    v_bias: T | None = None,
    out_bias: T | None = None,
    attn_bias_k: T | None = None,
    attn_bias_v: T | None = None,
    dropout: float = 0.0,
    additive_mask: T | None = None,
    key_padding_mask: T | None = None,
) -> tuple[T, T]:
    """Multi-head attention: each head attends to its own affine maps of queries, keys and values.

    The returned weights are the ones before dropout. The output does not depend on them: a static graph computes them
    only on request, so that memory grows with the lengths and not with their product.

    Args:
        query: Queries, shape (targets, batch, width of queries).
        key: Keys, shape (sources, batch, width of keys).
        value: Values, shape (sources, batch, width of values).
        num_heads: Number of heads; width and depth are multiples of it.
        q_weight: Weights of the queries, shape (width of queries, width).
        k_weight: Weights of the keys, shape (width of keys, width).
        v_weight: Weights of the values, shape (width of values, depth).
        out_weight: Weights of the output, shape (depth, width of the output).
        q_bias: Bias of the queries, shape (width,).
        k_bias: Bias of the keys, shape (width,).
        v_bias: Bias of the values, shape (depth,).
        out_bias: Bias of the output, shape (width of the output,).
        attn_bias_k: A further key, shape (width,).
        attn_bias_v: A further value, shape (depth,).
        dropout: Probability with which a weight is set to zero, from 0 up to but not including 1.
        additive_mask: Added to the products of queries and keys, shape (targets, sources).
        key_padding_mask: Nonzero for keys to ignore, shape (batch, sources).

    Returns:
        The output, shape (targets, batch, width of the output), and the weights of all heads, shape
        (batch * num_heads, targets, sources). If all keys of a query are masked, its weights are zero.

    Raises:
        ShapeError: If the shapes do not fit together.
        ArgumentError: If `dropout` is out of range.
    Source:
        Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762.
    """

def nms_detection2d(
    x: T,
    thresh: float = 0.5,
    nms: float = 0.45,
    nms_per_class: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Non-maximum suppression of detected boxes. Probabilities are multiplied by objectness, and set to zero if they
    are low or if the box overlaps a better one. The gradient is zero.

    Args:
        x: Boxes, shape (n, boxes, 5 + classes): x and y of the centre, width, height, objectness, and a probability
            for each class.
        thresh: Objectness and probabilities below this become zero.
        nms: Intersection over union above which the worse of two boxes is suppressed.
        nms_per_class: Compare boxes class by class, and suppress the probability of that class. If off, compare
            them by objectness, and suppress objectness and all probabilities.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` has another shape.

    Source:
        Redmon and Farhadi, YOLO9000, 2016, arXiv:1612.08242.
    """

def nonzero(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """The indices of the nonzero elements, row by row. The shape of the result depends on the values of `x`, which
    must be known when the function is built. Its gradient is zero.

    Args:
        x: Input with one axis at least.

    Returns:
        Indices, shape (number of axes, number of nonzero elements).

    Raises:
        ShapeError: If `x` is a scalar.
    """

def norm(
    x: T,
    p: float | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Norm along axes: `y = (sum |x|^p)^(1 / p)`. The gradient is zero where the norm is zero.

    Args:
        x: Input of any shape.
        p: Order of the norm, a finite number of 1 or more; 2 by default.
        axis: Axis or axes to take the norm over, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.

    Returns:
        Array of the shape of `x` without `axis`.

    Raises:
        ArgumentError: If `p` is less than 1 or not finite: the norm of infinite order is `max(abs(x))`.
        AxisError: If `x` has no such axis.
    """

def norm_normalization(
    x: T,
    p: float | None = None,
    axes: int | Sequence[int] | None = None,
    eps: float = 1e-12,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Normalization by the p-norm along axes: `y = x / (sum(|x|^p) + eps)^(1 / p)`. Zeros stay zeros, even if `eps` is
    zero.

    Args:
        x: Input of any shape.
        p: Order of the norm, a finite number above zero; 2 by default.
        axes: Axis or axes to sum over, all of them by default; negative ones count from the end.
        eps: Added to the sum, zero or more.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `p` or `eps` is out of range.
        AxisError: If `x` has no such axis.
    """

def not_equal(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Comparison, elementwise: `y = x0 != x1`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def not_equal_scalar(
    x0: T,
    val: float = 1.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Comparison with a number, elementwise: `y = x0 != val`, 1 where it holds, else 0. Its gradient is zero.

    Args:
        x0: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x0`.
    """

def one_hot(
    x: T,
    shape: int | Sequence[int],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """One-hot encoding: ones at the given indices, zeros elsewhere. Its gradient is zero.

    If one of the n indices is out of range, all elements are zero. This can mark a label to ignore.

    Args:
        x: Indices, shape (..., n); negative ones count from the end.
        shape: Lengths of the n axes that they index.

    Returns:
        Array of shape (..., *shape).

    Raises:
        ShapeError: If the last axis of `x` is not as long as `shape`.
        IndexError: If an index is not a whole number.
    """

def onnx_non_max_suppression(
    boxes: T,
    scores: T,
    center_point_box: int = 0,
    max_output_boxes_per_class: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = 0.0,
) -> T:
    """Non-maximum suppression for each class: the indices of the selected boxes.

    Boxes of a class are visited by descending score. A box is selected unless its intersection over union with a
    selected box is above `iou_threshold`. The number of selected boxes depends on the values, which must be known when
    the function is built.

    Args:
        boxes: Boxes, shape (n, boxes, 4).
        scores: Scores, shape (n, classes, boxes).
        center_point_box: 0 if a box is two opposite corners (y, x, y, x), 1 if it is centre and size (x, y, width,
            height).
        max_output_boxes_per_class: Largest number of boxes for each image and class; by default 0, which selects none.
        iou_threshold: Largest intersection over union of two selected boxes, from 0 to 1.
        score_threshold: Selected boxes have a score above this.

    Returns:
        Array of int64 of shape (m, 3): image, class and box, by descending score within a class.

    Raises:
        ShapeError: If the shapes do not fit.
        ArgumentError: If an argument is out of range.

    Source:
        ONNX, NonMaxSuppression.

        >>> import kinnor as nn, kinnor.functions as F
        >>> boxes = nn.Variable.from_numpy_array([[[0, 0, 2, 2], [0, 0, 2, 1.8], [3, 3, 4, 4]]])
        >>> scores = nn.Variable.from_numpy_array([[[0.5, 0.9, 0.3]]])
        >>> y = F.onnx_non_max_suppression(boxes, scores, 0, 2, 0.5)
        >>> y.forward()
        >>> y.d.tolist()
        [[0, 0, 1], [0, 0, 2]]
    """

def onnx_resize(
    x: T,
    roi: Sequence[float] = (),
    scales: Sequence[float] = (),
    sizes: Sequence[int] = (),
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    nearest_mode: str = "round_prefer_floor",
) -> T:
    """Resize an array like ONNX's operator `Resize`, by interpolation along each axis.

    As in ONNX Runtime, an axis with a factor of 1 is unchanged, independent of `roi`. Coordinates are computed in
    float32 to choose the nearest element and to detect positions outside of `x`.

    Args:
        x: Input of any shape.
        roi: For `tf_crop_and_resize`, the start of the resized part along each axis, followed by the ends. 0 is the
            first element of an axis, 1 the last.
        scales: Factor for each axis; give this or `sizes`.
        sizes: Length of each axis of the output.
        mode: `nearest`, `linear` (of two elements) or `cubic` (of four elements).
        coordinate_transformation_mode: Map from output to input coordinates: `half_pixel`, `pytorch_half_pixel`,
            `align_corners`, `asymmetric`, `tf_half_pixel_for_nn` or `tf_crop_and_resize`.
        cubic_coeff_a: Coefficient of the cubic interpolation.
        exclude_outside: 1 to ignore elements outside of `x`, 0 to replace them by the element at the border.
        extrapolation_value: For `tf_crop_and_resize`, the value at positions outside of `x`.
        nearest_mode: `round_prefer_floor`, `round_prefer_ceil`, `floor` or `ceil`.

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a mode is unknown, or `scales`, `sizes` or `roi` do not fit the axes of `x`.

    Source:
        ONNX operators, https://github.com/onnx/onnx/blob/main/docs/Operators.md.
    """

def pack_padded_sequence(
    padded_sequence: T,
    lengths: T,
    batch_first: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]:
    """Packs sequences of different lengths: their elements at the first time step, then at the second one without the
    sequences that have ended, and so on. The number of elements depends on the lengths, which must be known when
    the function is built.

    Args:
        padded_sequence: Sequences, shape (time, batch, ...), or (batch, time, ...) with `batch_first`, the longest
            first.
        lengths: Length of each, shape (batch,).
        batch_first: The batch is the first axis.

    Returns:
        Elements, shape (sum of the lengths, ...), and the number of running sequences at each time step, shape
        (time,).

    Raises:
        ShapeError: If the inputs do not fit.
        ValueError: If the lengths rise, or one of them is negative or longer than the axis of time.
    """

def pad(
    x: T,
    pad_width: int | Sequence[int],
    mode: str = 'constant',
    constant_value: float = 0.0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Padding with a constant, with the mirrored array, or with its outermost elements.

    Args:
        x: Input of any shape.
        pad_width: Elements before and after each axis, in pairs, for the last axes.
        mode: "constant"; "reflect", which mirrors at the outermost element; or "repeat", which repeats the
            outermost element.
        constant_value: The padding value for "constant".

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a width is negative, there are not pairs for at most all axes, or there is no such mode.
        ShapeError: If an axis without elements is to be mirrored or repeated.
    """

def pad_packed_sequence(
    packed_sequence: T,
    batch_sizes: T,
    batch_first: bool = False,
    padding_value: float | None = None,
    total_length: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]:
    """Pads packed sequences to the length of the longest: the inverse of `pack_padded_sequence`. The shape depends on
    the batch sizes, which must be known when the function is built.

    Args:
        packed_sequence: Elements, shape (sum of the batch sizes, ...).
        batch_sizes: Number of running sequences at each time step, shape (time,).
        batch_first: The batch is the first axis of the output.
        padding_value: Value of the elements after the end of a sequence, 0 by default.
        total_length: Length of the axis of time; as long as `batch_sizes` if left out or negative.

    Returns:
        Sequences, shape (time, batch, ...), or (batch, time, ...) with `batch_first`, and the length of each, shape
        (batch,).

    Raises:
        ArgumentError: If `total_length` is too short.
        ShapeError: If the inputs do not fit.
        ValueError: If the batch sizes rise, or one of them is negative.
    """

def pad_uint8(
    x: T,
    pad_width: int | Sequence[int],
    level: int = 0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Padding of an array of 8-bit levels with one level. There is no gradient.

    Args:
        x: Levels, of any shape.
        pad_width: Elements before and after each axis, in pairs, for the last axes.
        level: The padding level.

    Returns:
        Array with as many axes as `x`, of type `uint8`.

    Raises:
        ArgumentError: If a width is negative, there are not pairs for at most all axes, or `level` is out of range.
    """

def patch_correlation(
    x1: T,
    x2: T,
    patch: int | Sequence[int] = (1, 1),
    shift: int | Sequence[int] = (0, 0),
    patch_step: int | Sequence[int] = (1, 1),
    shift_step: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0, 0, 0),
    channel_last: bool = False,
) -> T:
    """Correlation of patches of two images, at all shifts within a range.

    `y[n, i, j, h, w] = sum over k, l, c of x1[n, c, h + k, w + l] x2[n, c, h + k + s_i, w + l + s_j]`.

    Args:
        x1: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
        x2: Images of the same shape.
        patch: Height and width of a patch; one number is both.
        shift: Largest shift, in both directions, along height and width.
        patch_step: Stride of patches.
        shift_step: Stride of shifts.
        padding: Zeros above, below, left and right of the images. Two numbers apply to height and width.
        channel_last: Whether channels are the last axis of the images, and shifts the last axes of the output.

    Returns:
        Array of shape (n, shifts along height, shifts along width, rows, columns), or (n, rows, columns, shifts along
        height, shifts along width) if `channel_last`.

    Raises:
        ShapeError: If the images differ in shape, do not have four axes, or are smaller than a patch.
        ArgumentError: If an argument has the wrong number of values, or a value out of range.

    Source:
        Fischer et al., FlowNet, 2015, arXiv:1504.06852.

        >>> import numpy as np, kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable.from_numpy_array(np.ones((1, 2, 3, 4)))
        >>> y = F.patch_correlation(x, x, (3, 1), shift=(0, 1))
        >>> y.forward()
        >>> y.d.squeeze().tolist()
        [[0.0, 6.0, 6.0, 6.0], [6.0, 6.0, 6.0, 6.0], [6.0, 6.0, 6.0, 0.0]]
    """

def pow2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Power, elementwise: `y = x0 ** x1`.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def pow2_quantize(
    x: T,
    sign: bool = True,
    with_zero: bool = True,
    n: int = 8,
    m: int = 1,
    quantize: bool = True,
    ste_fine_grained: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to powers of two, elementwise: `sign(x) * 2 ** round(log2(|x|))` within a range.

    The largest magnitude is `2 ** m`, the smallest `2 ** (m - (2 ** bits - 1))`, where `bits` is `n` minus one for
    `sign` and minus one for `with_zero`. Without `sign`, negative numbers become the smallest value. Quantization is
    simulated: results are floating-point numbers.

    Args:
        x: Input of any shape.
        sign: Whether negative powers of two are allowed.
        with_zero: Whether zero is allowed. Numbers below the smallest power of two by more than a factor of `sqrt(2)`
            become zero.
        n: Number of bits, at most 64, with at least one left for the exponent.
        m: Exponent of the largest value.
        quantize: If False, `x` itself is returned.
        ste_fine_grained: Whether the gradient is zero where `x` is out of range. Otherwise it is passed unchanged, as
            it always is within the range.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` leaves no bits.

    Source:
        Miyashita, Lee and Murmann, Convolutional Neural Networks using Logarithmic Data Representation, 2016,
        arXiv:1603.01025.
    """

def pow_scalar(
    x: T,
    val: float = 1.0,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Power with a number, elementwise: `y = x ** val`.

    Args:
        x: Input of any shape.
        val: The number.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape of `x`.
    """

def prelu(x0: T, x1: T, base_axis: int = 1, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rectified linear unit with a learned slope: `y = max(x0, 0) + x1 * min(x0, 0)`. The derivative at zero is 1.

    Args:
        x0: Input of any shape.
        x1: Slope of the negative side: one for all, of shape (), or one for each channel, of shape (c,).
        base_axis: Axis of the channels; a negative one counts from the end.

    Returns:
        Array of the shape of `x0`.

    Raises:
        AxisError: If `x0` has no such axis.
        ShapeError: If there is neither one slope nor one for each channel.

    Source:
        He, Zhang, Ren and Sun, Delving Deep into Rectifiers, 2015, arXiv:1502.01852.
    """

def prod(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Product along axes. Its gradient is exact even if elements are zero.

    Args:
        x: Input of any shape.
        axis: Axis or axes to multiply over, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.

    Returns:
        Array of the shape of `x` without `axis`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def prune(x: T, rate: float = 0.9, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Sets the smallest numbers of an array to zero. The threshold is number `floor((size - 1) * rate)` of the
    absolute values in ascending order. The gradient passes straight through.

    Args:
        x: Input of any shape.
        rate: Share of the numbers that become zero, from 0 to 1; at 1 all of them.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `rate` is out of range.
    """

def quantize_linear(
    x: T,
    scale: T,
    zero_point: T,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    dtype: DTypeLike = np.int8,
) -> T:
    """Linear quantization: `y = saturate(round(x / scale) + zero_point)`.

    `zero_point` is rounded and saturated as well. The gradient of `x` equals the gradient of `x / scale` everywhere.
    Other gradients are zero.

    Args:
        x: Input of any shape.
        scale: Step between levels, positive, of the shape of `x` or of length 1 along shared axes.
        zero_point: Level of the number zero, of such a shape as well.
        round_mode: `HALF_AWAY_FROM_ZERO` or `HALF_TO_EVEN`.
        narrow_range: Whether to leave out the smallest level.
        dtype: Type of the levels: `numpy.int8` or `numpy.uint8`.

    Returns:
        Array of the shape of `x`: integers as floating-point numbers.

    Raises:
        ArgumentError: If `round_mode` or `dtype` is unknown.
        ShapeError: If `scale` or `zero_point` has a length other than 1 or the length of `x`.
    """

def quantize_uint8(
    x: T,
    scale: T,
    zero_point: T,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to 8-bit levels: `y = saturate(round(x / scale) + zero_point)`, halves rounded to the even number.
    Unlike `quantize_linear`, it returns `uint8` and has no gradient.

    Args:
        x: Numbers, of any shape.
        scale: Distance of two levels, one positive number.
        zero_point: The level that stands for zero, one number.
        least: The smallest level.
        most: The largest level.

    Returns:
        Array of the shape of `x`, of type `uint8`.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If `scale` or `zero_point` is not one number.
    """

def quantized_add2(
    a: T,
    b: T,
    a_scale: float = 1.0,
    b_scale: float = 1.0,
    a_zero: int = 0,
    b_zero: int = 0,
    y_zero: int = 0,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum of two arrays of 8-bit levels, quantized with a third scale:
    `y = saturate(round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + y_zero)`, halves rounded to the even
    number. There is no gradient.

    Args:
        a: Levels, of any shape.
        b: Levels, of the same shape.
        a_scale: Distance of two levels of `a`, in levels of the result.
        b_scale: Distance of two levels of `b`, in levels of the result.
        a_zero: The level of `a` that stands for zero.
        b_zero: The level of `b` that stands for zero.
        y_zero: The level of the result that stands for zero.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of the shape of `a`, of type `uint8`.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If `a` and `b` have different shapes.
    """

def quantized_affine(
    x: T,
    weight: T,
    x_zero: T,
    w_zero: T,
    bias: T,
    scale: T,
    shift: T | None = None,
    y_zero: int | None = None,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Affine map of 8-bit levels along the last axis:
    `y = saturate(round(((x - x_zero) (W - w_zero) + b) * scale) + y_zero)`, or without `y_zero` the numbers
    `((x - x_zero) (W - w_zero) + b) * scale + shift`. Sums are exact (modulo `2^32`). Halves are rounded to the
    even number. There is no gradient.

    Args:
        x: Levels, shape (batch..., inputs).
        weight: Signed levels `W`, shape (inputs, outputs).
        x_zero: The level of `x` that stands for zero, one number.
        w_zero: The level of the weight that stands for zero, one number or one for each output.
        bias: Whole numbers `b` that are added to the sums, shape (outputs,).
        scale: Factor of the sums, one number or one for each output.
        shift: Number to add if `y_zero` is None: one number or one for each output; none by default.
        y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of shape (batch..., outputs), of type `uint8` unless `y_zero` is None.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If the shapes do not fit together.
    """

def quantized_average_pooling(
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    scale: float = 1.0,
    x_zero: int = 0,
    y_zero: int = 0,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Mean of 8-bit levels over windows of images, channels last, quantized with another scale:
    `y = saturate(round(mean(x - x_zero) * scale) + y_zero)`, halves rounded to the even number. There is no
    gradient.

    Args:
        x: Levels, shape (batch..., height, width, channels).
        kernel: Size of the windows along both spatial axes.
        stride: Step of the windows along each spatial axis, `kernel` by default.
        scale: Distance of two levels of `x`, in levels of the result.
        x_zero: The level of `x` that stands for zero.
        y_zero: The level of the result that stands for zero.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of type `uint8`, each spatial axis having `(in - kernel) // stride + 1` elements.

    Raises:
        ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
        ShapeError: If `x` has too few axes, or no window fits.
    """

def quantized_batch_matmul(
    a: T,
    b: T,
    a_zero: T,
    b_zero: T,
    scale: T,
    transpose_b: bool = False,
    y_zero: int | None = None,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Matrix products of 8-bit levels over the last two axes, for each index of the batch axes:
    `y = saturate(round((a - a_zero) (b - b_zero) * scale) + y_zero)`, or without `y_zero` the numbers
    `(a - a_zero) (b - b_zero) * scale`. Sums are exact (modulo `2^32`). Halves are rounded to the even number.
    There is no gradient.

    Args:
        a: Levels of left matrices, shape (batch..., m, k).
        b: Levels of right matrices, shape (batch..., k, n); each batch axis has the length of `a`, or one of the
            two has length one.
        a_zero: The level of `a` that stands for zero, one number.
        b_zero: The level of `b` that stands for zero, one number.
        scale: Factor of the sums, one number.
        transpose_b: The matrices of `b` are transposed, with shape (n, k).
        y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of shape (batch..., m, n), of type `uint8` unless `y_zero` is None.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If the shapes do not fit together.
    """

def quantized_convolution(
    x: T,
    weight: T,
    x_zero: T,
    w_zero: T,
    bias: T,
    scale: T,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    y_zero: int | None = None,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Convolution of images of 8-bit levels, channels last:
    `y = saturate(round((sum((x - x_zero) * (w - w_zero)) + b) * scale) + y_zero)`, or without `y_zero` the numbers
    `(sum(...) + b) * scale`. Sums are exact (modulo `2^32`).
    Halves are rounded to the even number. There is no gradient.

    Args:
        x: Levels, shape (batch..., height, width, channels).
        weight: Signed levels `w`, shape (maps, kernel height, kernel width, channels), with one channel if `group`
            is more than 1.
        x_zero: The level of `x` that stands for zero, one number. Also the level of the padding.
        w_zero: The level of the weight that stands for zero, one number or one for each map.
        bias: Whole numbers `b` that are added to the sums, shape (maps,).
        scale: Factor of the sums, one number or one for each map.
        pad: Elements added at both ends of each spatial axis; none by default.
        stride: Step of the kernel along each spatial axis; 1 by default.
        dilation: Distance between kernel elements along each spatial axis; 1 by default.
        group: 1, or the number of channels and maps for a depthwise convolution.
        y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of shape (batch..., height, width, maps), of type `uint8` unless `y_zero` is None.

    Raises:
        ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2018, arXiv:1712.05877.
    """

def quantized_lstm(
    x: T,
    h: T,
    c: T,
    weight: T,
    w_zero: T,
    w_scale: T,
    lengths: T,
    bias: T | None = None,
    peephole: T | None = None,
    reverse: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """LSTM with 8-bit levels as weights. The inputs of all steps become levels with one scale, the states of each step
    with another one, before they are multiplied by the weights. Sums of products are exact. There is no gradient.

    The axis of gates has the gates of input, output, forgetting and cell. Each gate of each unit has two scales and
    two zero points: of its weights for the inputs, and of its weights for the state.

    Args:
        x: Sequences, shape (time, batch, inputs).
        h: First states, shape (directions, batch, hidden).
        c: First cells, of the same shape.
        weight: Signed levels: first of the inputs, then of the states, shape (directions, inputs + hidden,
            4 * hidden).
        w_zero: The levels that stand for zero, shape (directions, 2, 4 * hidden).
        w_scale: Distances of two levels, shape (directions, 2, 4 * hidden).
        lengths: Steps of each sequence, shape (batch,). Outputs after the last step are zero.
        bias: Numbers that are added to the gates, shape (directions, 4 * hidden).
        peephole: Weights of the cells for the gates of input, output and forgetting, shape
            (directions, 3 * hidden).
        reverse: The first direction goes from the last step to the first. The second one always does.

    Returns:
        Outputs of shape (time, directions, batch, hidden), and states and cells after the last step of each
        sequence, of the shape of `h`.

    Raises:
        ShapeError: If the shapes do not fit together.
        ValueError: If a length is negative or larger than the axis of time.
    """

def quantized_mul2(
    a: T,
    b: T,
    scale: float = 1.0,
    a_zero: int = 0,
    b_zero: int = 0,
    y_zero: int = 0,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Product of two arrays of 8-bit levels, quantized with a third scale:
    `y = saturate(round((a - a_zero) * (b - b_zero) * scale) + y_zero)`, halves rounded to the even number. There is
    no gradient.

    Args:
        a: Levels, of any shape.
        b: Levels, of the same shape.
        scale: Product of the distances of two levels of `a` and of `b`, in levels of the result.
        a_zero: The level of `a` that stands for zero.
        b_zero: The level of `b` that stands for zero.
        y_zero: The level of the result that stands for zero.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of the shape of `a`, of type `uint8`.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If `a` and `b` have different shapes.
    """

def r_div_scalar(x: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Quotient of a number, elementwise: `y = val / x`.

    Args:
        x: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x`.
    """

def r_pow_scalar(x: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Power of a number, elementwise: `y = val ** x`.

    Args:
        x: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x`.
    """

def r_sub_scalar(x: T, val: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Difference from a number, elementwise: `y = val - x`.

    Args:
        x: Input of any shape.
        val: The number.

    Returns:
        Array of the shape of `x`.
    """

def rand(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random numbers with a uniform distribution.

    Args:
        low: Start of the range.
        high: End of the range, which is excluded.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If `high` is not larger than `low`.
    """

def rand_beta(
    alpha: float = 0.5,
    beta: float = 0.5,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random numbers with a beta distribution.

    Args:
        alpha: Weight towards 1.
        beta: Weight towards 0.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If a parameter is not positive.
    """

def rand_binomial(
    n: int = 1,
    p: float = 0.5,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random numbers with a binomial distribution: the number of successes in `n` trials of probability `p`.

    Args:
        n: Number of trials.
        p: Probability of success, from 0 to 1.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If `n` is negative or `p` is out of range.
    """

def rand_gamma(
    k: float = 0.5,
    theta: float = 1.0,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random numbers with a gamma distribution.

    Args:
        k: Shape of the distribution.
        theta: Scale.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If a parameter is not positive.
    """

def randint(
    low: int = 0,
    high: int = 1,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random whole numbers with a uniform distribution.

    Args:
        low: Start of the range.
        high: End of the range, which is excluded.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Whole numbers, of shape `shape`.

    Raises:
        ArgumentError: If `high` is not larger than `low`.
    """

def randn(
    mu: float = 0.0,
    sigma: float = 1.0,
    shape: int | Sequence[int] = (),
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Variable:
    """Random numbers with a normal distribution.

    Args:
        mu: Mean.
        sigma: Standard deviation, zero or more.
        shape: Shape of the array.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape `shape`.

    Raises:
        ArgumentError: If `sigma` is negative or not finite.
    """

def random_choice(
    x: T,
    w: T,
    shape: int | Sequence[int] = (),
    replace: bool = True,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random samples from populations: elements of the last axis of `x`, drawn with probabilities in proportion to
    their weights.

    The gradient of a sample goes to the element that was drawn and to its weight.

    Args:
        x: Populations, shape (..., n).
        w: Weights of the same shape, not negative, with a positive sum.
        shape: Shape of the samples of each population; one sample if empty.
        replace: An element may be drawn several times; if off, at most once.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of shape (..., *shape).

    Raises:
        ShapeError: If `x` and `w` differ in shape or have no axis.
        ArgumentError: If a length of `shape` is negative or there are more samples than elements to draw.
        ValueError: If a weight is negative or NaN, or too few are positive; when it runs.
    """

def random_crop(
    x: T,
    shape: int | Sequence[int] | None = None,
    base_axis: int = 1,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random crop of each sample.

    Args:
        x: Input of any shape.
        shape: Lengths of the last axes of the output, no longer than in `x`, which is the default. Along a batch
            axis, neighbours stay together: the position is drawn once for each index of the axes before it.
        base_axis: First axis of a sample. Each sample has its own position.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of the shape of `x` but for the last axes.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If `shape` has a length out of range.
    """

def random_erase(
    x: T,
    prob: float = 0.5,
    area_ratios: float | Sequence[float] = (0.02, 0.4),
    aspect_ratios: float | Sequence[float] = (0.3, 3.3333),
    replacements: float | Sequence[float] = (0.0, 255.0),
    n: int = 1,
    share: bool = True,
    inplace: bool = False,
    base_axis: int = 1,
    seed: int = -1,
    channel_last: bool = False,
    ste_fine_grained: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random erasing: covers images with random patches, as augmentation for training.

    Args:
        x: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
        prob: Probability of each patch, from 0 to 1.
        area_ratios: Least and greatest share of the image that a patch covers.
        aspect_ratios: Least and greatest height of a patch relative to its width.
        replacements: Range that the values of patches are drawn from.
        n: Number of patches of an image.
        share: Use the same patches for all channels of an image.
        inplace: Ignored; exists for NNabla programs.
        base_axis: Axis of the channels. The axes before it are the batch.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.
        channel_last: The channels are the last axis.
        ste_fine_grained: No gradient flows through patches; if off, it flows as if there were none.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` does not have three axes from `base_axis` on.
        ArgumentError: If a range is not a pair, a ratio or `prob` is out of range, or `n` is negative or above
            65536.

    Source:
        Zhong et al., "Random erasing data augmentation", 2017.
    """

def random_flip(
    x: T,
    axes: int | Sequence[int] | None = None,
    base_axis: int = 1,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random flip of each sample along axes, with probability one half for each axis.

    Args:
        x: Input of any shape.
        axes: The axes, the last one by default; negative ones count from the end. Along a batch axis, samples are
            reversed together: the flip is drawn once for each index of the axes before it.
        base_axis: First axis of a sample. Each sample has its own flips.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def random_shift(
    x: T,
    shifts: int | Sequence[int] | None = None,
    border_mode: str = 'nearest',
    constant_value: float = 0.0,
    base_axis: int = 1,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Random shift of each sample along axes.

    Args:
        x: Input of any shape.
        shifts: For each of the last axes, the largest shift in either direction, none by default. Along a batch
            axis, whole samples are shifted.
        border_mode: The values that enter at the border: `nearest`, the element at the border; `reflect`, the
            mirror image; `constant`, a number.
        constant_value: The number for `constant`.
        base_axis: First axis of a sample. Each sample has its own shifts.
        seed: Seed of a separate random sequence; if negative, the library's sequence is used.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no axis `base_axis`.
        ArgumentError: If a shift is negative or of an axis that `x` does not have, or the mode is unknown.
    """

def reduce(x: T, op: str = "sum") -> T:
    """Sum or mean of all elements. `sum` and `mean` do the same, and accept axes.

    Args:
        x: Input of any shape.
        op: `sum` or `mean`.

    Returns:
        A scalar.

    Raises:
        ArgumentError: If `op` is neither.
    """

def reduce_mean(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Mean of all elements. The same as `mean` over all axes, under NNabla's older name.

    Args:
        x: Input of any shape.

    Returns:
        A scalar.
    """

def reduce_sum(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Sum of all elements. The same as `sum` over all axes, under NNabla's older name.

    Args:
        x: Input of any shape.

    Returns:
        A scalar.
    """

def relu(x: T, inplace: bool = False, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rectified linear unit, elementwise: `y = max(x, 0)`, NaN where `x` is NaN. The derivative at zero is zero.

    Args:
        x: Input of any shape.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape of `x`.
    """

def relu6(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rectified linear unit with a ceiling, elementwise: `y = min(max(x, 0), 6)`. The derivative at 0 and 6 is zero.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [0, 6].
    """

def rescale_uint8(
    x: T,
    scale: T,
    shift: T,
    x_zero: int = 0,
    y_zero: int = 0,
    least: int = 0,
    most: int = 255,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Requantization of 8-bit levels, with a scale for each channel (the last axis):
    `y = saturate(round((x - x_zero) * scale + shift) + y_zero)`, halves rounded to the even number. Computes a
    batch normalization or a bias on levels. There is no gradient.

    Args:
        x: Levels, shape (..., channels).
        scale: Factor, in levels of the result, shape (channels,).
        shift: Number to add, in levels of the result, shape (channels,).
        x_zero: The level of `x` that stands for zero.
        y_zero: The level of the result that stands for zero.
        least: The smallest level of the result.
        most: The largest level of the result.

    Returns:
        Array of the shape of `x`, of type `uint8`.

    Raises:
        ArgumentError: If a level is out of range.
        ShapeError: If `scale` or `shift` has not one number for each channel.
    """

def reset_inf(x0: T, val: float = 0.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Replaces infinity, elementwise: `y = val` where `x0` is infinite, else `x0`.

    Args:
        x0: Input of any shape.
        val: The replacement.

    Returns:
        Array of the shape of `x0`.
    """

def reset_nan(x0: T, val: float = 0.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Replaces NaN, elementwise: `y = val` where `x0` is NaN, else `x0`.

    Args:
        x0: Input of any shape.
        val: The replacement.

    Returns:
        Array of the shape of `x0`.
    """

def reshape(
    x: T,
    shape: int | Sequence[int],
    inplace: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The same elements in another shape. Shares memory with its input if `inplace`.

    Args:
        x: Input of any shape.
        shape: The new shape. One length may be -1 and is then inferred from the others.
        inplace: Share memory with `x`.

    Returns:
        Array of shape `shape`.

    Raises:
        ShapeError: If the number of elements differs.
    """

def rnn(
    x: T,
    h: T,
    weight_l0: T,
    weight: T | None = None,
    bias: T | None = None,
    num_layers: int = 1,
    nonlinearity: str = 'tanh',
    dropout: float | None = None,
    bidirectional: bool = False,
    training: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]:
    """Recurrent network of several layers over whole sequences: `h[t] = f(w_x x[t] + w_h h[t - 1] + b)` for each time
    step. The outputs of a layer are the inputs of the next one.

    Args:
        x: Sequences, shape (time, batch, inputs).
        h: States at the start, shape (layers, directions, batch, hidden).
        weight_l0: Weights of the first layer, shape (directions, hidden, inputs + hidden): of the inputs, then of
            the state.
        weight: Weights of the other layers, shape (layers - 1, directions, hidden, directions * hidden + hidden);
            none if there is one layer.
        bias: Biases, shape (layers, directions, hidden); none by default.
        num_layers: Number of layers.
        nonlinearity: The function `f`, `tanh` or `relu`.
        dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
            Applies only if `training`. 0 by default.
        bidirectional: Each layer runs in both directions of time and concatenates the outputs.
        training: Save values for a backward run.

    Returns:
        Outputs of the last layer, shape (time, batch, directions * hidden), and the states at the end, in the shape
        of `h`.

    Raises:
        ArgumentError: If an argument is out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Elman, Finding Structure in Time, 1990.
    """

def roi_align(
    input: T,
    boxes: T,
    output_size: int | Sequence[int],
    spatial_scale: float | Sequence[float] = (1.0, 1.0),
    sampling_ratio: int = -1,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """RoI align: resizes boxes of images to one size. Each element is the mean of the image at the points of a grid in
    its cell of the box, interpolated between neighbours.

    Args:
        input: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
        boxes: Boxes, shape (k, 5): number of the image, x and y of one corner, x and y of the opposite one. They
            have no gradient.
        output_size: Height and width of the output.
        spatial_scale: Factors from box coordinates to pixels, for y and x.
        sampling_ratio: Points along each axis in a cell, up to 1,000. If not positive, the size of the cell in
            pixels.
        channel_last: The channels are the last axis of `input` and of the output.

    Returns:
        Array of shape (k, channels, *output_size), or (k, *output_size, channels).

    Raises:
        ShapeError: If the inputs have other shapes.
        ArgumentError: If `output_size` is not two positive numbers, `spatial_scale` is not two numbers, or
            `sampling_ratio` is too large.
        IndexError: If the image of a box does not exist; raised by forward runs.

    Source:
        He et al., Mask R-CNN, 2017, arXiv:1703.06870.
    """

def round(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Rounding to the nearest whole number, halves away from zero, elementwise. Its gradient passes straight through.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def scaled_dot_product_attention(
    query: T,
    key: T,
    value: T,
    mask: T | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
    seed: int = -1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Scaled dot-product attention for each head, with a softmax over the keys: `y = softmax(scale q k' + mask) v`.

    The matrix of weights is never stored: memory grows with the number of queries and of keys, not with their
    product. This holds for the backward run too, unless its gradient is differentiated again.

    Args:
        query: Queries, shape (batch..., queries, width).
        key: Keys, shape (batch..., keys, width).
        value: Values, shape (batch..., keys, depth).
        mask: Added to the products; its shape broadcasts to (batch..., queries, keys). Negative infinity hides a
            key. If all keys are hidden from a query, its output and its gradients are zero.
        causal: Hide from each query the keys that come after it.
        dropout: Probability of setting a weight to zero, at least 0 and less than 1. Other weights are divided by
            `1 - dropout`.
        scale: Factor of the products, `1 / sqrt(width)` by default.
        seed: Seed of a separate random sequence for `dropout`; if negative, the library's sequence is used.

    Returns:
        Array of shape (batch..., queries, depth).

    Raises:
        ArgumentError: If `dropout` is out of range.
        ShapeError: If the shapes do not fit together.

    Source:
        Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762; Dao et al., FlashAttention, 2022,
        arXiv:2205.14135.
    """

def scatter_add(
    x0: T,
    indices: T,
    x1: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Adds elements to an array at indices along an axis: `y[indices[i][j]][j] += x1[i][j]` for the first axis.

    Args:
        x0: Input of any shape.
        indices: Indices along `axis`, with as many axes as `x0`, and no longer than it along other axes. Negative
            ones count from the end.
        x1: The elements to add, at least as long along each axis as `indices`. Further elements are ignored.
        axis: The axis, the first by default; a negative one counts from the end.

    Returns:
        Array of the shape of `x0`.

    Raises:
        AxisError: If `x0` has no such axis.
        ShapeError: If the shapes do not fit.
        IndexError: If an index is out of range or not a whole number.
    """

def scatter_nd(
    data: T,
    indices: T | ArrayLike,
    shape: Sequence[int] | None = None,
    out: T | None = None,
    add: bool = False,
) -> T:
    """Writes or adds elements to zeros, or to an array, at indices along the first axes:
    `y[indices[0][j], indices[1][j], ...] = data[j]`.

    If an index occurs several times without `add`, the last element is written, but each gets the gradient.

    Args:
        data: The elements to write.
        indices: Indices, shape (n, ...); negative ones count from the end.
        out: Array to write to in place. Zeros by default.
        shape: Shape of the output if `out` is not given.
        add: Add to the present elements.

    Returns:
        Array of shape `shape`, or `out`.

    Raises:
        ArgumentError: If there is neither `shape` nor `out`, or they differ.
        ShapeError: If `data` or `indices` do not fit.
        IndexError: If an index is out of range or not a whole number.
    """

def searchsorted(
    sorted_sequence: T,
    values: T,
    right: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Positions at which numbers can be inserted into ascending sequences to keep them sorted. The gradient is zero.

    Args:
        sorted_sequence: Sequences along the last axis, each in ascending order.
        values: Numbers to look for in them, with the same leading axes.
        right: Insert after equal elements; if off, before them.

    Returns:
        Positions, of the shape of `values`.

    Raises:
        ShapeError: If the shapes differ along another axis than the last.
    """

def selu(
    x: T,
    scale: float = 1.05070098735548,
    alpha: float = 1.673263242354377,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Scaled exponential linear unit, elementwise: `y = scale * x` where `x > 0`, else
    `y = scale * alpha * (exp(x) - 1)`.

    Args:
        x: Input of any shape.
        scale: Factor on both sides.
        alpha: Factor on the negative side.

    Returns:
        Array of the shape of `x`.

    Source:
        Klambauer, Unterthiner, Mayr and Hochreiter, Self-Normalizing Neural Networks, 2017, arXiv:1706.02515.
    """

def shape(
    x: T,
    start: int | None = None,
    end: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The lengths of an array along its axes. Its gradient is zero.

    Args:
        x: Input of any shape.
        start: First axis, counted from the end if negative; 0 if left out.
        end: Axis to stop before, counted from the end if negative; 0 and None are behind the last one.

    Returns:
        Whole numbers, one for each axis. Axes that `x` does not have are left out.
    """

def shift(
    x: T,
    shifts: int | Sequence[int] | None = None,
    border_mode: str = 'nearest',
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Elements shifted along axes: `y[i] = x[i - shift]`.

    Args:
        x: Input of any shape.
        shifts: Number of elements to shift along each of the last axes, 0 by default.
        border_mode: The values that enter at the border: "nearest", the outermost element, or "reflect", the mirror
            image (`1 0 | 0 1 2 | 2 1`).

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If there are more shifts than axes, or there is no such mode.
    """

def sigmoid(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Logistic function, elementwise: `y = 1 / (1 + exp(-x))`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [0, 1].
    """

def sigmoid_cross_entropy(x: T, target: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Cross entropy of targets and the logistic function of scores, elementwise:
    `y = -(target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x)))`.

    Takes the output of the last layer: logistic function and logarithm are computed together.

    Args:
        x: Scores of any shape.
        target: Probability of each, 0 or 1 for a label, with as many axes as `x`.

    Returns:
        Loss of each element.

    Raises:
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def sign(x: T, alpha: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Sign, elementwise: 1 where `x > 0`, -1 where `x < 0`, `alpha` where `x = 0`, NaN where `x` is NaN. Its gradient
    passes straight through.

    Args:
        x: Input of any shape.
        alpha: Value at zero.

    Returns:
        Array of the shape of `x`.
    """

def sin(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Sine, elementwise; `x` in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def sinc(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Cardinal sine, elementwise: `y = sin(x) / x`, and 1 at zero.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def sinh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Hyperbolic sine, elementwise.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def sink(*x: T, one_input_grad: bool = True, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Joins the ends of several branches, so that one call runs all of them forward or backward. Runs do not clear its
    inputs.

    Args:
        x: Inputs of any shapes.
        one_input_grad: Start a backward run with ones as gradients of the inputs; if off, with the gradients that
            the inputs have.

    Returns:
        A scalar without meaning.

    Raises:
        TypeError: If there is no input.
    """

def slice(
    x: T,
    start: int | Iterable[int | None] | None = None,
    stop: int | Iterable[int | None] | None = None,
    step: int | Iterable[int | None] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """A slice of the array: for each axis, every `step`-th element from `start` up to but not including `stop`.

    As in Python, negative positions count from the end, positions beyond the ends are clipped, and a negative step
    runs backward. None means the end of the axis, even if `x` gets another shape later. `x[...]` is a shorter form.

    Args:
        x: Input of any shape.
        start: First position along each axis. None, for all axes or for one, is the start (the end if `step` is
            negative). Here and below, fewer entries than axes apply to the last axes.
        stop: Position along each axis to stop before; None is the end (the start if `step` is negative).
        step: Step along each axis; None is 1.
        n_outputs: No effect.
        outputs: Array to write to.

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a step is zero, or there are more entries than axes.
    """

def slice_uint8(
    x: T,
    start: int,
    stop: int,
    axis: int = 0,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Slice of an array of 8-bit levels: along one axis, the elements from `start` up to but not including `stop`.
    There is no gradient.

    Args:
        x: Levels, of any shape.
        start: The first position.
        stop: The position after the last.
        axis: The axis; a negative one counts from the end.

    Returns:
        Array of `stop - start` elements along `axis`, of type `uint8`.

    Raises:
        ArgumentError: If there are no such positions.
        AxisError: If `x` has no such axis.
    """

def softmax(x: T, axis: int | None = None, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Softmax along an axis: `y = exp(x) / sum(exp(x))`.

    Args:
        x: Input of any shape with at least one axis.
        axis: Axis along which the results sum up to one, the last one by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def softmax_cross_entropy(
    x: T,
    target: T,
    axis: int | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Cross entropy of the softmax of scores and labels, for each sample: `y = -log(softmax(x)[target])`.

    Takes the output of the last layer: softmax and logarithm are computed together, without overflow.

    Args:
        x: Scores of the classes along `axis`.
        target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
            negative label is ignored: its loss and its gradient are zero.
        axis: Axis of the classes, the last one by default.

    Returns:
        Loss of each sample, array of the shape of `target`.

    Raises:
        ShapeError: If the shapes of `target` and `x` do not fit together.
        IndexError: If a label is not a whole number or not less than the number of classes.
    """

def softplus(x: T, beta: float = 1.0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Softplus, elementwise: `y = log(1 + exp(beta * x)) / beta`.

    Args:
        x: Input of any shape.
        beta: Sharpness, not zero. A larger one is closer to `relu`.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `beta` is zero or NaN.
    """

def softsign(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Softsign, elementwise: `y = x / (1 + |x|)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [-1, 1].
    """

@overload
def sort(
    x: T,
    axis: int = -1,
    reverse: bool = False,
    with_index: Literal[False] = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The elements along an axis in ascending order. Equal ones keep their order; a NaN counts as the largest.

    The gradient goes to the original position of each element. Under NNabla's names it is permuted the other way,
    as in NNabla (`docs/differences.md`).

    Args:
        x: Input of any shape.
        axis: The axis; a negative one counts from the end.
        reverse: Sort in descending order.
        with_index: Return the original index of each element too.
        only_index: Return only the original index of each element.

    Returns:
        Array of the shape of `x`, the index along `axis` that each of its elements had, or both.

    Raises:
        AxisError: If `x` has no such axis.
    """

@overload
def sort(
    x: T,
    axis: int = -1,
    reverse: bool = False,
    *,
    with_index: Literal[True],
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]: ...

@overload
def sort(
    x: T,
    axis: int = -1,
    reverse: bool = False,
    with_index: bool = False,
    only_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T]: ...

def spectral_norm(
    w: T,
    u: T,
    dim: int = 0,
    itr: int = 1,
    eps: float = 1e-12,
    test: bool = False,
    output_u: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Any:
    """Spectral normalization: `y = w / s`, where `s = u' w v` approximates the largest singular value of `w` as a
    matrix of `w.shape[dim]` rows.

    The singular vectors are found by power iteration: `itr` times `v = w' u`, `u = w v`, each scaled to length one.
    The gradient takes them as constant. Zero weights stay zero and have a gradient of zero.

    Args:
        w: Weights of any shape with one axis at least.
        u: Start vector of the iteration, shape `(w.shape[dim],)`. Overwritten by the final vector, unless `test` is
            set or the final vector is zero.
        dim: Axis of the rows.
        itr: Number of iterations, 1 to 10,000.
        eps: Added to squared lengths before the root, not negative.
        test: Do not overwrite `u`.
        output_u: Return the start vector too.

    Returns:
        Array of the shape of `w`; with `output_u` also the old `u`.

    Raises:
        ArgumentError: If `itr` or `eps` is out of range.
        AxisError: If `w` has no such axis.
        ShapeError: If `u` has the wrong shape.

    Source:
        Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018, arXiv:1802.05957.
    """

def split(x: T, axis: int = 0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> tuple[T, ...]:
    """Splits an array into slices of length one along an axis, which is removed.

    Args:
        x: Input of any shape.
        axis: The axis; a negative one counts from the end.

    Returns:
        One array for each index of `axis`.

    Raises:
        AxisError: If `x` has no such axis.
        ShapeError: If it has no elements along it.
    """

def squared_error(x0: T, x1: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Squared error, elementwise: `y = (x0 - x1)^2`.

    Args:
        x0: Input of any shape.
        x1: Input with as many axes as `x0`.

    Returns:
        Loss of each element.

    Raises:
        ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    """

def stack(*x: T, axis: int = 0, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Concatenation along a new axis.

    Args:
        x: Inputs of one shape.
        axis: Position of the new axis; a negative one counts from the end of the result.

    Returns:
        Array with one axis more.

    Raises:
        AxisError: If the result has no such axis.
        ShapeError: If the shapes differ.
    """

def stft(
    x: T,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_istft_backward: bool = False,
) -> tuple[T, T]:
    """Short-time Fourier transform: frequencies of overlapping frames of signals, each multiplied by a window.

    Args:
        x: Signals, shape (batch, samples).
        window_size: Samples of the window, which is centred in a frame.
        stride: Samples from a part to the next.
        fft_size: Samples of a frame, at least `window_size`.
        window_type: `hanning`, `hamming` or `rectangular`.
        center: Pad the signals by half of `fft_size` at either end, so that frame `i` is centred at sample
            `i * stride`.
        pad_mode: The padding: `reflect` for the mirrored signal, `constant` for zeros.
        as_istft_backward: Compute the gradient of `istft` from the gradient `x` of its output. `pad_mode` is
            ignored then.

    Returns:
        Real parts and imaginary parts, each of shape (batch, fft_size // 2 + 1, frames).

    Raises:
        ArgumentError: If a size is out of range or a mode has another name.
        ShapeError: If `x` has not two axes, or its signals are too short.
    """

def sub2(
    x0: T,
    x1: T,
    inplace: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Difference, elementwise: `y = x0 - x1`.

    Args:
        x0: Input of any shape.
        x1: Input whose shape broadcasts with `x0`.
        inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.

    Returns:
        Array of the shape that the two broadcast to.

    Raises:
        ShapeError: If the shapes do not broadcast together.
    """

def sum(
    x: T,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum along axes.

    Args:
        x: Input of any shape.
        axis: Axis or axes to sum over, all of them by default; negative ones count from the end.
        keepdims: Keep the axes, with length one.

    Returns:
        Array of the shape of `x` without `axis`.

    Raises:
        AxisError: If `x` has no such axis.
    """

def sum_pooling(
    x: T,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ignore_border: bool = True,
    pad: int | Sequence[int] | None = None,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Sum pooling: the sum over windows along the last axes.

    Args:
        x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
        kernel: Size of the windows along each spatial axis; one to three axes.
        stride: Step of the windows along each spatial axis, `kernel` by default.
        ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
            window, and `pad` is added at the start only.
        pad: Zeros added at both ends of each spatial axis; none by default.
        channel_last: The last axis is the channels and is not pooled.

    Returns:
        Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
        `ceil((in + pad) / stride)` without `ignore_border`.

    Raises:
        ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
        ShapeError: If `x` has too few axes, or no window fits.
    """

def swish(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Swish (SiLU), elementwise: `y = x * sigmoid(x)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.

    Source:
        Ramachandran, Zoph and Le, Searching for Activation Functions, 2017, arXiv:1710.05941.
    """

@overload
def sync_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    comm: Any = None,
    group: str = "world",
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    output_stat: Literal[False] = False,
    n_outputs: int | None = None,
) -> T:
    """Batch normalization with the statistics of all processes' examples. All must have the same number of examples.

    In one process it equals `batch_normalization`.

    Args:
        x: Input of any shape.
        beta: Offset, as in `batch_normalization`.
        gamma: Scale, as in `batch_normalization`.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        comm: Communicator of the processes, or None for one process.
        group: Group of its processes.
        axes: Axes with separate statistics.
        decay_rate: Weight of the old running statistics in an update, from 0 to 1.
        eps: Added to the variance, zero or more.
        batch_stat: Whether to use the statistics of `x`; otherwise the running statistics.
        output_stat: Whether to return the statistics of `x` as well.
        n_outputs: Number of outputs, 1 or 3. 3 has the same effect as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance.

    Raises:
        ArgumentError: If an argument of `batch_normalization` is out of range.
        ShapeError: If an input has the wrong shape.
    """

@overload
def sync_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    comm: Any = None,
    group: str = "world",
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    *,
    output_stat: Literal[True],
    n_outputs: int | None = None,
) -> tuple[T, T, T]: ...

@overload
def sync_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    comm: Any = None,
    group: str = "world",
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-05,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> T | tuple[T, T, T]: ...

def tan(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Tangent, elementwise; `x` in radians.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def tanh(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Hyperbolic tangent, elementwise: `y = tanh(x)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`, each element within [-1, 1].
    """

def tanh_shrink(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Difference to the hyperbolic tangent, elementwise: `y = x - tanh(x)`.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

@overload
def tensor_normalization(
    x: T,
    axes: int | Sequence[int],
    beta: T | None = None,
    gamma: T | None = None,
    eps: float = 1e-05,
    output_stat: Literal[False] = False,
) -> T:
    """Normalization with a mean and a variance for each index of `axes`:
    `y = (x - mean) / sqrt(variance + eps) * gamma + beta`.

    Args:
        x: Input of any shape.
        beta: Offset, of the shape of `x` with length one along all other axes; none by default.
        gamma: Scale, of the same shape; none by default.
        axes: Axes with separate statistics for each index.
        eps: Added to the variance, not negative.
        output_stat: Return the statistics too.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all
        other axes.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `x` has no such axis.
        ShapeError: If beta or gamma has the wrong shape.
    """

@overload
def tensor_normalization(
    x: T,
    axes: int | Sequence[int],
    beta: T | None = None,
    gamma: T | None = None,
    eps: float = 1e-05,
    *,
    output_stat: Literal[True],
) -> tuple[T, T, T]: ...

@overload
def tensor_normalization(
    x: T,
    axes: int | Sequence[int],
    beta: T | None = None,
    gamma: T | None = None,
    eps: float = 1e-05,
    output_stat: bool = False,
) -> T | tuple[T, T, T]: ...

def tile(x: T, reps: int | Sequence[int], n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Repeats an array along its axes.

    Args:
        x: Input of any shape.
        reps: Number of repetitions along each of the last axes. More numbers than axes create new leading axes.

    Returns:
        Array `reps` times as long.

    Raises:
        ArgumentError: If a number is negative.
    """

@overload
def top_k_data(
    x: T,
    k: int,
    abs: bool = False,
    reduce: bool = True,
    base_axis: int = 1,
    largest: bool = True,
    with_index: Literal[False] = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The `k` largest elements of each sample.

    With `reduce`, the gradient goes to the selected elements. Without, it passes straight through to all.

    Args:
        x: Input of any shape; the axes from `base_axis` on make one sample.
        k: Number of elements, from 1 to the size of a sample.
        abs: Compare by absolute value.
        reduce: Return the elements in descending order; if off, return them in place, with zeros elsewhere.
        base_axis: First axis of a sample; a negative one counts from the end.
        largest: Select the largest elements; if off, the smallest, in ascending order.
        with_index: Return the index of each element in its sample too, in the same order.

    Returns:
        Array of shape `(*x.shape[:base_axis], k)`, or of the shape of `x` without `reduce`. With `with_index`, also
        whole numbers of the former shape.

    Raises:
        AxisError: If `x` has no such axis.
        ArgumentError: If `k` is out of range.
    """

@overload
def top_k_data(
    x: T,
    k: int,
    abs: bool = False,
    reduce: bool = True,
    base_axis: int = 1,
    largest: bool = True,
    *,
    with_index: Literal[True],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T]: ...

@overload
def top_k_data(
    x: T,
    k: int,
    abs: bool = False,
    reduce: bool = True,
    base_axis: int = 1,
    largest: bool = True,
    with_index: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T]: ...

def top_k_grad(
    x: T,
    k: int,
    abs: bool = False,
    base_axis: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Identity that keeps only the `k` largest elements of the gradient of each sample. The others become zero.

    Args:
        x: Input of any shape; the axes from `base_axis` on make one sample.
        k: Number of elements of the gradient to keep, from 1 to the size of a sample.
        abs: Compare by absolute value.
        base_axis: First axis of a sample; a negative one counts from the end.

    Returns:
        Array of the shape of `x`.

    Raises:
        AxisError: If `x` has no such axis.
        ArgumentError: If `k` is out of range.
    """

def top_n_error(
    x: T,
    target: T,
    axis: int | None = None,
    n: int = 1,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Top-n error: 1 if the labelled class is not among the `n` highest scores, else 0. A tie counts as an error.

    Args:
        x: Scores of the classes along `axis`.
        target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
            negative label is no error.
        axis: Axis of the classes, the last one by default.
        n: Number of highest scores to consider.

    Returns:
        0 or 1 for each sample, array of the shape of `target`.

    Raises:
        ShapeError: If the shapes of `target` and `x` do not fit together.
        ArgumentError: If `n` is less than one.
        IndexError: If a label is not a whole number or not less than the number of classes.
    """

def transpose(
    x: T,
    axes: int | Sequence[int],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The same elements with the axes in another order.

    Args:
        x: Input of any shape.
        axes: Axis `i` of the result is axis `axes[i]` of `x`.

    Returns:
        Array whose shape is the reordered shape of `x`.

    Raises:
        ArgumentError: If `axes` is not a permutation of all axes.
    """

def transpose_uint8(
    x: T,
    axes: int | Sequence[int],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Transposition of 8-bit levels, like `transpose` of numbers. There is no gradient.

    Args:
        x: Levels, of any shape.
        axes: Axis `i` of the result is axis `axes[i]` of `x`.

    Returns:
        Array of type `uint8` whose shape is the reordered shape of `x`.

    Raises:
        ArgumentError: If `axes` is not a permutation of all axes.
    """

def trilu(
    x: T,
    k: int = 0,
    upper: bool = True,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """The upper or lower triangle of matrices, zeros elsewhere.

    Args:
        x: Matrices, shape (..., m, n).
        k: Diagonal up to which the triangle reaches: 0 is the main one, positive ones lie above it.
        upper: Keep what is on and above the diagonal, rather than on and below.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` has fewer than two axes.
    """

def unique(
    x: T,
    flatten: bool = True,
    axis: int | None = None,
    sorted: bool = True,
    with_index: bool = False,
    with_inverse: bool = False,
    with_counts: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> Any:
    """The distinct elements of an array. Their number depends on the values of `x`, which must be known when the
    function is built. Each NaN is distinct.

    The gradient of a distinct element goes to its first occurrence.

    Args:
        x: Input of any shape.
        flatten: Compare single elements; if off, compare the slices of `x` along `axis`.
        axis: Axis of the slices. Required if `flatten` is False, otherwise ignored.
        sorted: Return them in ascending order (slices in lexicographic order); if off, in order of their first
            occurrence.
        with_index: Return the index of the first occurrence of each.
        with_inverse: Return, for each element of `x`, its index in the result.
        with_counts: Return the number of occurrences of each.

    Returns:
        Array with one axis, or with the axes of `x` if `flatten` is False. Then the requested index arrays, in the
        order of the arguments, each with one axis.

    Raises:
        ArgumentError: If `flatten` is False and there is no `axis`.
        AxisError: If `x` has no such axis.
    """

def unlink(x: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """The same array without a gradient: `y = x`. Shares memory with its input.

    Args:
        x: Input of any shape.

    Returns:
        Array of the shape of `x`.
    """

def unpooling(
    x: T,
    kernel: int | Sequence[int],
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Repeats each element over a window along the last axes: the reverse of a pooling.

    Args:
        x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
        kernel: Size of the windows along each spatial axis.
        channel_last: The last axis is the channels and is not repeated.

    Returns:
        Array of the shape of `x`, each spatial axis being `kernel` times as long.

    Raises:
        ArgumentError: If `kernel` is empty or holds a number below one.
        ShapeError: If `x` has too few axes.
    """

def vat_noise(x: Variable, w: Variable, base_axis: int = 1, eps: float = 1.0) -> Variable:
    """Noise for virtual adversarial training: each sample scaled to norm `eps`.

    `y = eps * x / sqrt(sum(x ** 2) + 1e-8)`, with the sum over each sample. A backward run writes `eps` times the
    gradient of `y` to `w`, as the noise of the next round. The gradients of `x` and `w` are zero.

    Args:
        x: Noise; the axes from `base_axis` on make one sample.
        w: Array of the shape of `x`; overwritten by a backward run.
        base_axis: First axis of a sample, 1 or more; a negative one counts from the end.
        eps: Euclidean norm of a sample's noise.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` and `w` differ in shape.
        ArgumentError: If `base_axis` is out of range.

    Source:
        Miyato et al., Distributional Smoothing with Virtual Adversarial Training, 2015, arXiv:1507.00677.
    """

def warp_by_flow(data: T, flow: T, n_outputs: int = -1, outputs: Sequence[NdArray | None] | None = None) -> T:
    """Samples images at displaced positions, with linear interpolation. Outside of the image, its border is repeated.

    Args:
        data: Images, shape (n, channels, height, width).
        flow: Displacement of each element in pixels, shape (n, 2, height, width): along the width, then along the
            height.

    Returns:
        Array of the shape of `data`.

    Raises:
        ShapeError: If the shapes do not fit together.
    """

def warp_by_grid(
    x: T,
    grid: T,
    mode: str = 'linear',
    padding_mode: str = 'zero',
    align_corners: bool = False,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Samples images at the positions of a grid.

    Args:
        x: Images, shape (n, channels, height, width) or (n, channels, depth, height, width); (n, ..., channels) if
            `channel_last`.
        grid: Positions, shape (n, height_out, width_out, 2) or (n, depth_out, height_out, width_out, 3): x (along
            the width), y and z, from -1 to 1.
        mode: `linear`, which interpolates between neighbours, or `nearest`.
        padding_mode: The values outside of the image: `zero`, zeros; `repeat`, the element at the border;
            `reflect`, the mirror image.
        align_corners: The first and last elements of an axis are at -1 and 1. If off, the outer edges of these
            elements are.
        channel_last: The channels are the last axis of `x` and of the output.

    Returns:
        Array of shape (n, channels, height_out, width_out), or as `x` and `grid` have their axes.

    Raises:
        ShapeError: If the shapes do not fit together.
        ArgumentError: If a mode is unknown.

    Source:
        Jaderberg et al., Spatial Transformer Networks, 2015, arXiv:1506.02025.
    """

def weight_normalization(
    w: T,
    g: T,
    dim: int = 0,
    eps: float = 1e-12,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Weight normalization: `w_wn = g * w / sqrt(sum(w^2) + eps)`, with a norm for each index of `dim`.

    Args:
        w: Weight of any shape.
        g: Scale, of shape (n,) for the length n of `w` along `dim`.
        dim: Axis of the output maps, which the norm does not sum over.
        eps: Added to the sum of squares.

    Returns:
        Array of the shape of `w`.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `w` has no such axis.
        ShapeError: If `g` has the wrong shape.

    Source:
        Salimans and Kingma, Weight Normalization, 2016, arXiv:1602.07868.
    """

@overload
def weight_standardization(
    w: T,
    channel_axis: int = 0,
    eps: float = 1e-5,
    output_stat: Literal[False] = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Weight standardization: `y = (w - mean) / sqrt(variance + eps)`, with a mean and a variance for each output map.

    Args:
        w: Weight of any shape.
        channel_axis: Axis of the output maps: 0 for a convolution, 1 for an affine layer.
        eps: Added to the variance, not negative.
        output_stat: Return the statistics too.

    Returns:
        Array of the shape of `w`; with `output_stat` also its mean and its variance, with length one along all axes
        but `channel_axis`.

    Raises:
        ArgumentError: If `eps` is negative or NaN.
        AxisError: If `w` has no such axis.

    Source:
        Qiao, Wang, Liu, Shen and Yuille, Weight Standardization, 2019, arXiv:1903.10520.
    """

@overload
def weight_standardization(
    w: T,
    channel_axis: int = 0,
    eps: float = 1e-5,
    *,
    output_stat: Literal[True],
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> tuple[T, T, T]: ...

@overload
def weight_standardization(
    w: T,
    channel_axis: int = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T | tuple[T, T, T]: ...

def where(
    condition: T,
    x_true: T,
    x_false: T,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Selection, elementwise: `y = x_true` where `condition` is not zero, else `x_false`.

    Args:
        condition: The condition. Its shape is the shape of the other inputs, or a prefix of it.
        x_true: The values where `condition` is not zero.
        x_false: The values elsewhere, of the shape of `x_true`.

    Returns:
        Array of the shape of `x_true`.

    Raises:
        ShapeError: If the shapes do not fit.
    """
