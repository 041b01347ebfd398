"""Parametric functions whose weights and biases are rounded to steps of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import functions as F
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input
from .decorator import parametric_function_api
from .weights import Filters, Matrix, kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from .._core import NdArray, Variable
    from ..initializer import Initializer

__all__ = ["min_max_quantize", "min_max_quantized_affine", "min_max_quantized_convolution"]


@parametric_function_api(
    "min_max_quantize",
    [
        ("qr_min", "Least number", "of `ql_min`", False),
        ("qr_max", "Greatest number", "of `ql_max`", False),
    ],
)
def min_max_quantize(
    x: Variable,
    ql_min: int | Variable = 0,
    ql_max: int | Variable = 255,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    qr_min_init: Initializer | None = None,
    qr_max_init: Initializer | None = None,
    fix_parameters: bool = False,
    outputs: list[NdArray] | None = None,
    name: str | None = None,
) -> Variable:
    """Rounding to equal steps between two numbers, which are trained, given by the input, or averaged.

    Args:
        x: Input, any shape.
        ql_min: Least level, or a variable of levels.
        ql_max: Greatest level, or a variable of levels.
        decay: How much of the range a step keeps, with `ema`.
        x_min_max: Whether the range is that of the input's values, not a trained one.
        ema: Whether the range of the input is averaged over steps, with `x_min_max`.
        ste_fine_grained: Whether gradients are zero where the input was clipped.
        eps: The range is at least this wide.
        qr_min_init: Initial least number; by default -6.
        qr_max_init: Initial greatest number; by default 6.
        fix_parameters: Whether to use the parameters without a gradient.
        outputs: An array to write the result to.
        name: Name of a scope around the parameters.

    Returns:
        Array of the shape of the input.

    Source:
        Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only inference,
        2017.
    """
    op = "min_max_quantize"
    check_input(op, x)
    low, high = _level(op, x, "ql_min", ql_min), _level(op, x, "ql_max", ql_max)
    trained = not (x_min_max and ema)
    first = qr_min_init or ConstantInitializer(-6.0), qr_max_init or ConstantInitializer(6.0)
    least = get_parameter_or_create("qr_min", low.shape, first[0], trained, not fix_parameters)
    greatest = get_parameter_or_create("qr_max", low.shape, first[1], trained, not fix_parameters)
    how = (decay, x_min_max, ema, ste_fine_grained, eps)
    return F.min_max_quantize(x, least, greatest, low, high, *how, outputs=outputs)


@parametric_function_api(
    "min_max_quantized_affine",
    [
        ("W", "Weight in full precision", "(inputs, *n_outmaps)", True),
        ("b", "Bias in full precision", "n_outmaps", True),
        ("W_q", "Quantized weight", "(inputs, *n_outmaps)", False),
        ("b_q", "Quantized bias", "n_outmaps", False),
        (
            "min_max_quantize_{w,b}/min_max_quantize/qr_{min,max}",
            "Range of weight and bias",
            "one element, with the axes of what it is for",
            True,
        ),
    ],
)
def min_max_quantized_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: int = 0,
    ql_max_w: int = 255,
    w_min_max: bool = False,
    qr_min_w_init: Initializer | None = None,
    qr_max_w_init: Initializer | None = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: int = 0,
    ql_max_b: int = 255,
    b_min_max: bool = False,
    qr_min_b_init: Initializer | None = None,
    qr_max_b_init: Initializer | None = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """Affine transformation with a weight and a bias rounded to steps between a least and a greatest number.

    Gradients reach the values in full precision, which solvers train; `W_q` and `b_q` hold what was used.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` are taken as one.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        quantize_w: Whether to quantize the weight.
        ql_min_w: Least level of the weight.
        ql_max_w: Greatest level of the weight.
        w_min_max: Whether the range is that of the weight's values, not a trained one.
        qr_min_w_init: Initial least number of the weight; by default -2.
        qr_max_w_init: Initial greatest number of the weight; by default 2.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        ql_min_b: Least level of the bias.
        ql_max_b: Greatest level of the bias.
        b_min_max: Whether the range is that of the bias's values, not a trained one.
        qr_min_b_init: Initial least number of the bias; by default -6.
        qr_max_b_init: Initial greatest number of the bias; by default 6.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        eps: A range is at least this wide.
        name: Name of a scope around the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Source:
        Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only inference,
        2017.
    """
    layer = Matrix("min_max_quantized_affine", inp, n_outmaps, base_axis)
    w_init = layer.initializer(w_init, rng)
    b_init = ConstantInitializer() if b_init is None else b_init
    w = get_parameter_or_create("W", layer.shape, w_init, True, not fix_parameters)
    if quantize_w:
        w_q = get_parameter_or_create("W_q", layer.shape, w_init, False)
        w = kept(
            min_max_quantize(
                w,
                ql_min_w,
                ql_max_w,
                0.999,
                w_min_max,
                False,
                ste_fine_grained_w,
                eps,
                ConstantInitializer(-2.0) if qr_min_w_init is None else qr_min_w_init,
                ConstantInitializer(2.0) if qr_max_w_init is None else qr_max_w_init,
                fix_parameters,
                [w_q.data],
                name="min_max_quantize_w",
            )
        )
    b = None
    if with_bias:
        b = get_parameter_or_create("b", layer.maps, b_init, True, not fix_parameters)
        if quantize_b:
            b_q = get_parameter_or_create("b_q", layer.maps, b_init, False)
            b = kept(
                min_max_quantize(
                    b,
                    ql_min_b,
                    ql_max_b,
                    0.999,
                    b_min_max,
                    False,
                    ste_fine_grained_b,
                    eps,
                    ConstantInitializer(-6.0) if qr_min_b_init is None else qr_min_b_init,
                    ConstantInitializer(6.0) if qr_max_b_init is None else qr_max_b_init,
                    fix_parameters,
                    [b_q.data],
                    name="min_max_quantize_b",
                )
            )
    return F.affine(inp, w, b, base_axis)


@parametric_function_api(
    "min_max_quantized_conv",
    [
        ("W", "Weight in full precision", "(outmaps, inmaps / group, *kernel)", True),
        ("b", "Bias in full precision", "(outmaps,)", True),
        ("W_q", "Quantized weight", "(outmaps, inmaps / group, *kernel)", False),
        ("b_q", "Quantized bias", "(outmaps,)", False),
        (
            "min_max_quantize_{w,b}/min_max_quantize/qr_{min,max}",
            "Range of weight and bias",
            "one element, with the axes of what it is for",
            True,
        ),
    ],
)
def min_max_quantized_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: int = 0,
    ql_max_w: int = 255,
    w_min_max: bool = False,
    qr_min_w_init: Initializer | None = None,
    qr_max_w_init: Initializer | None = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: int = 0,
    ql_max_b: int = 255,
    b_min_max: bool = False,
    qr_min_b_init: Initializer | None = None,
    qr_max_b_init: Initializer | None = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """Convolution with a weight and a bias rounded to steps between a least and a greatest number.

    Gradients reach the values in full precision, which solvers train; `W_q` and `b_q` hold what was used.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Distance of neighbouring outputs; by default 1.
        dilation: Distance of neighbouring taps; by default 1.
        group: Number of groups of channels that are convolved apart.
        channel_last: Whether the channels are the last axis.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; those before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        quantize_w: Whether to quantize the weight.
        ql_min_w: Least level of the weight.
        ql_max_w: Greatest level of the weight.
        w_min_max: Whether the range is that of the weight's values, not a trained one.
        qr_min_w_init: Initial least number of the weight; by default -2.
        qr_max_w_init: Initial greatest number of the weight; by default 2.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        ql_min_b: Least level of the bias.
        ql_max_b: Greatest level of the bias.
        b_min_max: Whether the range is that of the bias's values, not a trained one.
        qr_min_b_init: Initial least number of the bias; by default -6.
        qr_max_b_init: Initial greatest number of the bias; by default 6.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        eps: A range is at least this wide.
        name: Name of a scope around the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only inference,
        2017.
    """
    layer = Filters("min_max_quantized_convolution", inp, outmaps, kernel, base_axis, group, channel_last)
    w_init = layer.initializer(w_init, rng)
    b_init = ConstantInitializer() if b_init is None else b_init
    w = get_parameter_or_create("W", layer.shape, w_init, True, not fix_parameters)
    if quantize_w:
        w_q = get_parameter_or_create("W_q", layer.shape, w_init, False)
        w = kept(
            min_max_quantize(
                w,
                ql_min_w,
                ql_max_w,
                0.999,
                w_min_max,
                False,
                ste_fine_grained_w,
                eps,
                ConstantInitializer(-2.0) if qr_min_w_init is None else qr_min_w_init,
                ConstantInitializer(2.0) if qr_max_w_init is None else qr_max_w_init,
                fix_parameters,
                [w_q.data],
                name="min_max_quantize_w",
            )
        )
    b = None
    if with_bias:
        b = get_parameter_or_create("b", layer.maps, b_init, True, not fix_parameters)
        if quantize_b:
            b_q = get_parameter_or_create("b_q", layer.maps, b_init, False)
            b = kept(
                min_max_quantize(
                    b,
                    ql_min_b,
                    ql_max_b,
                    0.999,
                    b_min_max,
                    False,
                    ste_fine_grained_b,
                    eps,
                    ConstantInitializer(-6.0) if qr_min_b_init is None else qr_min_b_init,
                    ConstantInitializer(6.0) if qr_max_b_init is None else qr_max_b_init,
                    fix_parameters,
                    [b_q.data],
                    name="min_max_quantize_b",
                )
            )
    return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last)


def _level(op: str, x: Variable, name: str, level: Any) -> Variable:
    """A level as a parameter, unless it is a variable."""
    if isinstance(level, (int, float)):
        return get_parameter_or_create(name, (1,) * x.ndim, np.array(level).reshape((1,) * x.ndim), False, False)
    check_input(op, level, min_ndim=0)
    return cast("Variable", level)
