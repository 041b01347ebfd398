"""Quantization to equal steps of a range, and layers with such weights and biases."""

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
        ("qr_min", "Minimum of the range", "of `ql_min`", False),
        ("qr_max", "Maximum of the range", "of `ql_max`", False),
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
    """Rounding to equal steps of a range. The range is trained, taken from the input, or a moving average of it.

    Args:
        x: Input, any shape.
        ql_min: Smallest quantization level, or a variable of levels.
        ql_max: Largest quantization level, or a variable of levels.
        decay: Weight of the old range in an update, with `ema`.
        x_min_max: Whether to use the current range of the input instead of a trained one.
        ema: Whether to use a moving average of the input's range, with `x_min_max`.
        ste_fine_grained: Whether gradients are zero where the input was clipped.
        eps: Smallest width of the range.
        qr_min_init: Initial minimum; by default -6.
        qr_max_init: Initial maximum; by default 6.
        fix_parameters: Whether to use the parameters without a gradient.
        outputs: An array to write the result to.
        name: Name of an outer scope for the parameters.

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
            "(1, ..., 1), with the axes of weight or bias",
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
    """Affine transformation with a weight and a bias rounded to equal steps between a minimum and a maximum.

    Solvers train the parameters in full precision, which get the gradients. `W_q` and `b_q` show the values in use.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        quantize_w: Whether to quantize the weight.
        ql_min_w: Smallest quantization level of the weight.
        ql_max_w: Largest quantization level of the weight.
        w_min_max: Whether to use the current range of the weight instead of a trained one.
        qr_min_w_init: Initial minimum of the weight; by default -2.
        qr_max_w_init: Initial maximum of the weight; by default 2.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        ql_min_b: Smallest quantization level of the bias.
        ql_max_b: Largest quantization level of the bias.
        b_min_max: Whether to use the current range of the bias instead of a trained one.
        qr_min_b_init: Initial minimum of the bias; by default -6.
        qr_max_b_init: Initial maximum of the bias; by default 6.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        eps: Smallest width of a range.
        name: Name of an outer scope for the parameters.

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
            "(1, ..., 1), with the axes of weight or bias",
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
    """Convolution with a weight and a bias rounded to equal steps between a minimum and a maximum.

    Solvers train the parameters in full precision, which get the gradients. `W_q` and `b_q` show the values in use.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        channel_last: Whether the channels are the last axis.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        quantize_w: Whether to quantize the weight.
        ql_min_w: Smallest quantization level of the weight.
        ql_max_w: Largest quantization level of the weight.
        w_min_max: Whether to use the current range of the weight instead of a trained one.
        qr_min_w_init: Initial minimum of the weight; by default -2.
        qr_max_w_init: Initial maximum of the weight; by default 2.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        ql_min_b: Smallest quantization level of the bias.
        ql_max_b: Largest quantization level of the bias.
        b_min_max: Whether to use the current range of the bias instead of a trained one.
        qr_min_b_init: Initial minimum of the bias; by default -6.
        qr_max_b_init: Initial maximum of the bias; by default 6.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        eps: Smallest width of a range.
        name: Name of an outer scope for the parameters.

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
    """A quantization level as a parameter, or the variable that was given."""
    if isinstance(level, (int, float)):
        return get_parameter_or_create(name, (1,) * x.ndim, np.array(level).reshape((1,) * x.ndim), False, False)
    check_input(op, level, min_ndim=0)
    return cast("Variable", level)
