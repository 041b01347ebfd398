"""Layers with binary weights, and layers with weights gradually quantized to powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from ..parameter import get_parameter_or_create
from .arguments import bias
from .decorator import parametric_function_api
from .weights import Filters, Matrix, constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = [
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "inq_affine",
    "inq_convolution",
]


@parametric_function_api(
    "bicon_affine",
    [
        ("W", "Weight in full precision", "(inputs, *n_outmaps)", True),
        ("Wb", "Binary weight", "(inputs, *n_outmaps)", False),
        ("b", "Bias", "n_outmaps", True),
    ],
)
def binary_connect_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None,
    wb_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Affine transformation by the signs of the weight: `y = x sign(W) + b`.

    The gradient is passed unchanged to the weight in full precision, which solvers train.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        quantize_zero_to: Binary value of weights that are exactly zero: 1, -1 or 0.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        wb_init: Initial binary weight, which the first run overwrites; by default uniform.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Source:
        Courbariaux, Bengio, David: BinaryConnect, 2015.
    """
    matrix = Matrix("binary_connect_affine", inp, n_outmaps, base_axis)
    w = matrix.weight(w_init, rng, fix_parameters)
    wb = matrix.other("Wb", wb_init, rng)
    b = bias(matrix.maps, b_init, with_bias, fix_parameters)
    return F.binary_connect_affine(inp, w, wb, b, base_axis, quantize_zero_to)


@parametric_function_api(
    "bicon_conv",
    [
        ("W", "Weight in full precision", "(outmaps, inmaps, *kernel)", True),
        ("Wb", "Binary weight", "(outmaps, inmaps, *kernel)", False),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def binary_connect_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None,
    wb_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution by the signs of the weight: `y = x * sign(W) + b`.

    The gradient is passed unchanged to the weight in full precision, which solvers train.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        quantize_zero_to: Binary value of weights that are exactly zero: 1, -1 or 0.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        wb_init: Initial binary weight, which the first run overwrites; by default uniform.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Courbariaux, Bengio, David: BinaryConnect, 2015.
    """
    op = "binary_connect_convolution"
    filters = Filters(op, inp, outmaps, kernel, base_axis)
    w = filters.weight(w_init, rng, fix_parameters)
    wb = filters.other("Wb", wb_init, rng)
    b = bias(filters.maps, b_init, with_bias, fix_parameters)
    return F.binary_connect_convolution(inp, w, wb, b, base_axis, pad, stride, dilation, group, quantize_zero_to)


@parametric_function_api(
    "bwn_affine",
    [
        ("W", "Weight in full precision", "(inputs, *n_outmaps)", True),
        ("Wb", "Binary weight", "(inputs, *n_outmaps)", False),
        ("alpha", "Scale, the mean absolute weight of each output", "n_outmaps", False),
        ("b", "Bias", "n_outmaps", True),
    ],
)
def binary_weight_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None,
    wb_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Affine transformation by the signs of the weight and a scale for each output: `y = alpha x sign(W) + b`.

    The gradient is passed unchanged to the weight in full precision, which solvers train.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        quantize_zero_to: Binary value of weights that are exactly zero: 1, -1 or 0.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        wb_init: Initial binary weight, which the first run overwrites; by default uniform.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Source:
        Rastegari, Ordonez, Redmon, Farhadi: XNOR-Net, 2016.
    """
    matrix = Matrix("binary_weight_affine", inp, n_outmaps, base_axis)
    w = matrix.weight(w_init, rng, fix_parameters)
    wb = matrix.other("Wb", wb_init, rng)
    alpha = constant("alpha", matrix.maps)
    b = bias(matrix.maps, b_init, with_bias, fix_parameters)
    return F.binary_weight_affine(inp, w, wb, alpha, b, base_axis, quantize_zero_to)


@parametric_function_api(
    "bwn_conv",
    [
        ("W", "Weight in full precision", "(outmaps, inmaps, *kernel)", True),
        ("Wb", "Binary weight", "(outmaps, inmaps, *kernel)", False),
        ("alpha", "Scale, the mean absolute weight of each output", "(outmaps,)", False),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def binary_weight_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None,
    wb_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution by the signs of the weight and a scale for each output: `y = alpha x * sign(W) + b`.

    The gradient is passed unchanged to the weight in full precision, which solvers train.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        quantize_zero_to: Binary value of weights that are exactly zero: 1, -1 or 0.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        wb_init: Initial binary weight, which the first run overwrites; by default uniform.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Rastegari, Ordonez, Redmon, Farhadi: XNOR-Net, 2016.
    """
    op = "binary_weight_convolution"
    filters = Filters(op, inp, outmaps, kernel, base_axis)
    w = filters.weight(w_init, rng, fix_parameters)
    wb = filters.other("Wb", wb_init, rng)
    alpha = constant("alpha", filters.maps)
    b = bias(filters.maps, b_init, with_bias, fix_parameters)
    return F.binary_weight_convolution(inp, w, wb, alpha, b, base_axis, pad, stride, dilation, group, quantize_zero_to)


@parametric_function_api(
    "inq_affine",
    [
        ("W", "Weight in full precision", "(inputs, *n_outmaps)", True),
        ("I", "Mask of fixed weights", "(inputs, *n_outmaps)", False),
        ("b", "Bias", "n_outmaps", True),
    ],
)
def inq_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Initializer | None = None,
    i_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Affine transformation whose weights become powers of two, step by step.

    After each of `inq_iterations` forward runs, more weights are rounded and fixed. Training continues for the others.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        num_bits: Number of bits of a fixed weight, including one for zero.
        inq_iterations: Numbers of forward runs after which half of the free weights are fixed; after the last one,
            all.
        selection_algorithm: Order in which weights are fixed: `largest_abs` or `random`.
        seed: Seed of the random selection; -1 for a different seed each time.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        i_init: Initial mask of fixed weights; by default no weight is fixed.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Source:
        Zhou, Yao, Guo, Xu, Chen: Incremental network quantization, 2017.
    """
    matrix = Matrix("inq_affine", inp, n_outmaps, base_axis)
    w = matrix.weight(w_init, rng, fix_parameters)
    i = constant("I", matrix.shape) if i_init is None else get_parameter_or_create("I", matrix.shape, i_init, False)
    b = bias(matrix.maps, b_init, with_bias, fix_parameters)
    return F.inq_affine(inp, w, i, b, base_axis, num_bits, inq_iterations, selection_algorithm, seed)


@parametric_function_api(
    "inq_conv",
    [
        ("W", "Weight in full precision", "(outmaps, inmaps, *kernel)", True),
        ("I", "Mask of fixed weights", "(outmaps, inmaps, *kernel)", False),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def inq_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Initializer | None = None,
    i_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution whose weights become powers of two, step by step.

    After each of `inq_iterations` forward runs, more weights are rounded and fixed. Training continues for the others.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        num_bits: Number of bits of a fixed weight, including one for zero.
        inq_iterations: Numbers of forward runs after which half of the free weights are fixed; after the last one,
            all.
        selection_algorithm: Order in which weights are fixed: `largest_abs` or `random`.
        seed: Seed of the random selection; -1 for a different seed each time.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        i_init: Initial mask of fixed weights; by default no weight is fixed.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Zhou, Yao, Guo, Xu, Chen: Incremental network quantization, 2017.
    """
    filters = Filters("inq_convolution", inp, outmaps, kernel, base_axis)
    w = filters.weight(w_init, rng, fix_parameters)
    i = constant("I", filters.shape) if i_init is None else get_parameter_or_create("I", filters.shape, i_init, False)
    b = bias(filters.maps, b_init, with_bias, fix_parameters)
    place = (base_axis, pad, stride, dilation, group)
    return F.inq_convolution(inp, w, i, b, *place, num_bits, inq_iterations, selection_algorithm, seed)
