"""Convolutions and transposed convolutions as parametric functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from .arguments import Filters, bias, channels, multiple, sizes, taps, weight
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["convolution", "deconvolution", "deformable_convolution", "depthwise_convolution", "depthwise_deconvolution"]


@parametric_function_api(
    "conv",
    [
        ("W", "Filters", "(outmaps, inmaps / group, *kernel); channels last if channel_last", True),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def convolution(
    inp: Variable,
    outmaps: int,
    kernel: int | Sequence[int],
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    apply_w: Callable[[Variable], Variable] | None = None,
    apply_b: Callable[[Variable], Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """Convolution over one to three spatial axes: `y[o, p] = sum_{i, k} W[o, i, k] x[i, stride p + dilation k] + b[o]`.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        channel_last: Whether the channels are the last axis.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        apply_w: Function that is applied to the filters before use.
        apply_b: Function that is applied to the bias before use.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> with nn.parameter_scope("demo-convolution"):
        ...     y = PF.convolution(x, 4, (3, 3), pad=(1, 1))
        ...     nn.get_parameters()
        name    shape         type     gradient  size
        conv/W  (4, 3, 3, 3)  float32  yes        108
        conv/b  (4,)          float32  yes          4
        2 parameters, 112 elements, 448 bytes
        >>> y.shape
        (8, 4, 16, 16)
    """
    filters = Filters("convolution", inp, outmaps, kernel, base_axis, group, channel_last)
    w = weight(filters.shape, w_init, filters.fans, rng, fix_parameters, apply_w)
    b = bias(filters.maps, b_init, with_bias, fix_parameters, apply_b)
    return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last)


@parametric_function_api(
    "depthwise_conv",
    [("W", "Filters", "(inmaps * multiplier, *kernel)", True), ("b", "Bias", "(inmaps * multiplier,)", True)],
)
def depthwise_convolution(
    inp: Variable,
    kernel: int | Sequence[int],
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    multiplier: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution of each channel with separate filters: `y[o, p] = sum_k W[o, k] x[o / multiplier, p + k] + b[o]`.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial), one or two spatial axes.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        multiplier: Number of filters for each channel.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, inmaps * multiplier, *spatial of the output).

    Source:
        Chollet: Xception: Deep learning with depthwise separable convolutions, 2016.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.depthwise_convolution(x, (3, 3), pad=(1, 1), name="demo-depthwise-convolution").shape
        (8, 3, 16, 16)
    """
    op = "depthwise_convolution"
    inmaps = channels(op, inp, base_axis)
    size = taps(op, inp, base_axis, kernel)
    (multiplier,) = sizes(op, "multiplier", multiplier, single=True)
    outmaps = inmaps * multiplier
    w = weight((outmaps, *size), w_init, (outmaps, inmaps, size), rng, fix_parameters)
    b = bias((outmaps,), b_init, with_bias, fix_parameters)
    return F.depthwise_convolution(inp, w, b, base_axis, pad, stride, dilation, multiplier)


@parametric_function_api(
    "deconv",
    [
        ("W", "Filters", "(inmaps, outmaps / group, *kernel); channels last if channel_last", True),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def deconvolution(
    inp: Variable,
    outmaps: int,
    kernel: int | Sequence[int],
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    output_padding: int | Sequence[int] | None = None,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    apply_w: Callable[[Variable], Variable] | None = None,
    apply_b: Callable[[Variable], Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """Transposed convolution: the map of `convolution`'s gradient from output to input, plus `b`.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of output maps.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        pad: Number of values cropped at both ends of each spatial axis of the output; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        channel_last: Whether the channels are the last axis.
        output_padding: Size to add to each spatial axis of the output at its end; by default none.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        apply_w: Function that is applied to the filters before use.
        apply_b: Function that is applied to the bias before use.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 4, 16, 16))
        >>> PF.deconvolution(x, 3, (2, 2), stride=(2, 2), name="demo-deconvolution").shape
        (8, 3, 32, 32)
    """
    filters = Filters("deconvolution", inp, outmaps, kernel, base_axis, group, channel_last, True)
    w = weight(filters.shape, w_init, filters.fans, rng, fix_parameters, apply_w)
    b = bias(filters.maps, b_init, with_bias, fix_parameters, apply_b)
    return F.deconvolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last, output_padding)


@parametric_function_api(
    "depthwise_deconv",
    [("W", "Filters", "(inmaps, *kernel)", True), ("b", "Bias", "(inmaps / divisor,)", True)],
)
def depthwise_deconvolution(
    inp: Variable,
    kernel: int | Sequence[int],
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    divisor: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Transposed depthwise convolution: the map of `depthwise_convolution`'s gradient from output to input, plus `b`.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial), one or two spatial axes.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        pad: Number of values cropped at both ends of each spatial axis of the output; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        divisor: Number of input maps that are summed into each output map.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, inmaps / divisor, *spatial of the output).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.depthwise_deconvolution(x, (2, 2), stride=(2, 2), name="demo-depthwise-deconvolution").shape
        (8, 3, 32, 32)
    """
    op = "depthwise_deconvolution"
    inmaps = channels(op, inp, base_axis)
    size = taps(op, inp, base_axis, kernel)
    outmaps = multiple(op, "the channels of the input", inmaps, divisor, "divisor")
    w = weight((inmaps, *size), w_init, (inmaps, inmaps, size), rng, fix_parameters)
    b = bias((outmaps,), b_init, with_bias, fix_parameters)
    return F.depthwise_deconvolution(inp, w, b, base_axis, pad, stride, dilation, divisor)


@parametric_function_api(
    "deformable_conv",
    [
        ("W", "Filters", "(outmaps, inmaps / group, *kernel); channels last if channel_last", True),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def deformable_convolution(
    inp: Variable,
    outmaps: int,
    kernel: int | Sequence[int],
    offset: Variable,
    mask: Variable | None = None,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    deformable_group: int = 1,
    channel_last: bool = False,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    apply_w: Callable[[Variable], Variable] | None = None,
    apply_b: Callable[[Variable], Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """Deformable convolution of images: each tap is shifted by an offset, and weighted by a mask.

    Args:
        inp: Input, shape (*batch, inmaps, height, width).
        outmaps: Number of filters.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        offset: Offset of each tap, shape (*batch, 2 * deformable_group * taps, *spatial of the output).
        mask: Weight of each tap, shape (*batch, deformable_group * taps, *spatial of the output); by default 1.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels with separate filters.
        deformable_group: Number of groups of channels with separate offsets.
        channel_last: Whether the channels are the last axis.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        apply_w: Function that is applied to the filters before use.
        apply_b: Function that is applied to the bias before use.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Dai et al.: Deformable convolutional networks, 2017; with the masks of Zhu et al., 2018.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x, offset = nn.Variable((8, 3, 16, 16)), nn.Variable((8, 18, 14, 14))
        >>> PF.deformable_convolution(x, 4, (3, 3), offset, name="demo-deformable-convolution").shape
        (8, 4, 14, 14)
    """
    filters = Filters("deformable_convolution", inp, outmaps, kernel, base_axis, group, channel_last)
    w = weight(filters.shape, w_init, filters.fans, rng, fix_parameters, apply_w)
    b = bias(filters.maps, b_init, with_bias, fix_parameters, apply_b)
    place = (base_axis, pad, stride, dilation, group, deformable_group, channel_last)
    return F.deformable_convolution(inp, w, offset, mask, b, *place)
