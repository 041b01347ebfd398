"""Layers with weights and biases quantized to powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .decorator import parametric_function_api
from .weights import Filters, Matrix, kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["pow2_quantized_affine", "pow2_quantized_convolution"]


@parametric_function_api(
    "pow2_quantized_affine",
    [
        ("W", "Weight in full precision", "(inputs, *n_outmaps)", True),
        ("b", "Bias in full precision", "n_outmaps", True),
        ("W_q", "Quantized weight", "(inputs, *n_outmaps)", False),
        ("b_q", "Quantized bias", "n_outmaps", False),
    ],
)
def pow2_quantized_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    with_zero_w: bool = False,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    with_zero_b: bool = False,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Affine transformation with a weight and a bias rounded to powers of two.

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
        sign_w: Whether quantized weights are signed.
        with_zero_w: Whether quantized weights can be zero.
        n_w: Number of bits of a weight, including the bits for sign and zero.
        m_w: Exponent of the largest quantized weight, `2**m_w`.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        sign_b: Whether quantized biases are signed.
        with_zero_b: Whether quantized biases can be zero.
        n_b: Number of bits of a bias, including the bits for sign and zero.
        m_b: Exponent of the largest quantized bias, `2**m_b`.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).
    """
    layer = Matrix("pow2_quantized_affine", inp, n_outmaps, base_axis)
    w_init = layer.initializer(w_init, rng)
    b_init = ConstantInitializer() if b_init is None else b_init
    w = get_parameter_or_create("W", layer.shape, w_init, True, not fix_parameters)
    if quantize_w:
        w_q = get_parameter_or_create("W_q", layer.shape, w_init, False)
        w = kept(
            F.pow2_quantize(
                w,
                quantize=quantize_w,
                sign=sign_w,
                with_zero=with_zero_w,
                n=n_w,
                m=m_w,
                ste_fine_grained=ste_fine_grained_w,
                outputs=[w_q.data],
            )
        )
    b = None
    if with_bias:
        b = get_parameter_or_create("b", layer.maps, b_init, True, not fix_parameters)
        if quantize_b:
            b_q = get_parameter_or_create("b_q", layer.maps, b_init, False)
            b = kept(
                F.pow2_quantize(
                    b,
                    quantize=quantize_b,
                    sign=sign_b,
                    with_zero=with_zero_b,
                    n=n_b,
                    m=m_b,
                    ste_fine_grained=ste_fine_grained_b,
                    outputs=[b_q.data],
                )
            )
    return F.affine(inp, w, b, base_axis)


@parametric_function_api(
    "pow2_quantized_conv",
    [
        ("W", "Weight in full precision", "(outmaps, inmaps / group, *kernel)", True),
        ("b", "Bias in full precision", "(outmaps,)", True),
        ("W_q", "Quantized weight", "(outmaps, inmaps / group, *kernel)", False),
        ("b_q", "Quantized bias", "(outmaps,)", False),
    ],
)
def pow2_quantized_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    with_zero_w: bool = False,
    sign_w: bool = True,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    with_zero_b: bool = False,
    sign_b: bool = True,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution with a weight and a bias rounded to powers of two.

    Solvers train the parameters in full precision, which get the gradients. `W_q` and `b_q` show the values in use.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        quantize_w: Whether to quantize the weight.
        with_zero_w: Whether quantized weights can be zero.
        sign_w: Whether quantized weights are signed.
        n_w: Number of bits of a weight, including the bits for sign and zero.
        m_w: Exponent of the largest quantized weight, `2**m_w`.
        ste_fine_grained_w: Whether gradients of the weight are zero where it was clipped.
        quantize_b: Whether to quantize the bias.
        with_zero_b: Whether quantized biases can be zero.
        sign_b: Whether quantized biases are signed.
        n_b: Number of bits of a bias, including the bits for sign and zero.
        m_b: Exponent of the largest quantized bias, `2**m_b`.
        ste_fine_grained_b: Whether gradients of the bias are zero where it was clipped.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).
    """
    layer = Filters("pow2_quantized_convolution", inp, outmaps, kernel, base_axis, group, False)
    w_init = layer.initializer(w_init, rng)
    b_init = ConstantInitializer() if b_init is None else b_init
    w = get_parameter_or_create("W", layer.shape, w_init, True, not fix_parameters)
    if quantize_w:
        w_q = get_parameter_or_create("W_q", layer.shape, w_init, False)
        w = kept(
            F.pow2_quantize(
                w,
                quantize=quantize_w,
                sign=sign_w,
                with_zero=with_zero_w,
                n=n_w,
                m=m_w,
                ste_fine_grained=ste_fine_grained_w,
                outputs=[w_q.data],
            )
        )
    b = None
    if with_bias:
        b = get_parameter_or_create("b", layer.maps, b_init, True, not fix_parameters)
        if quantize_b:
            b_q = get_parameter_or_create("b_q", layer.maps, b_init, False)
            b = kept(
                F.pow2_quantize(
                    b,
                    quantize=quantize_b,
                    sign=sign_b,
                    with_zero=with_zero_b,
                    n=n_b,
                    m=m_b,
                    ste_fine_grained=ste_fine_grained_b,
                    outputs=[b_q.data],
                )
            )
    return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group)
