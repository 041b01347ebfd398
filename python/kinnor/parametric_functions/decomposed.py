"""Layers with factorized weights, which need fewer parameters and multiplications."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functions as F
from .._check import callee, count
from .._core import ParameterError, Variable
from ..parameter import get_parameter, get_parameter_or_create, set_parameter
from .arguments import Filters, Matrix, bias
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState
    from numpy.typing import NDArray

    from ..initializer import Initializer
    from .arguments import Weights

__all__ = ["cpd3_convolution", "svd_affine", "svd_convolution"]


@parametric_function_api(
    "svd_affine",
    [
        ("U", "First factor", "(inputs, r)", True),
        ("V", "Second factor", "(r, *n_outmaps)", True),
        ("b", "Bias", "n_outmaps", True),
    ],
)
def svd_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    r: int,
    base_axis: int = 1,
    uv_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Affine transformation with a weight in two factors: `y = x U V + b`.

    Initially they are the best rank-r factors of a weight, from its singular value decomposition.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        r: Rank.
        base_axis: First axis of the inputs.
        uv_init: Initial weight to factorize; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `uv_init`.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((2, 30))
        >>> with nn.parameter_scope("demo-svd"):
        ...     y = PF.svd_affine(x, 20, r=4)  # 200 weights instead of 600
        ...     list(nn.get_parameters())
        ['svd_affine/U', 'svd_affine/V', 'svd_affine/b']
        >>> y.shape
        (2, 20)
    """
    op = "svd_affine"
    matrix, r = Matrix(op, inp, n_outmaps, base_axis), count(op, "r", r)

    def factors() -> dict[str, NDArray[Any]]:
        """The initial factors."""
        u, s, v = np.linalg.svd(
            _weight_to_factorize(op, matrix, uv_init, rng).reshape(matrix.shape[0], -1), full_matrices=False
        )
        return {"U": (u * s)[:, :r], "V": v[:r].reshape(-1, *matrix.maps)}

    u, v = _factors(op, {"U": (matrix.shape[0], r), "V": (r, *matrix.maps)}, factors, fix_parameters)
    b = bias(matrix.maps, b_init, with_bias, fix_parameters)
    return F.affine(F.affine(inp, u, None, base_axis), v, b, base_axis)


@parametric_function_api(
    "svd_conv",
    [
        ("U", "Filters of each input map", "(inmaps * r, *kernel)", True),
        ("V", "Their combinations", "(outmaps, inmaps * r, 1, ...)", True),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def svd_convolution(
    inp: Variable,
    outmaps: int,
    kernel: int | Sequence[int],
    r: int,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    uv_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution with filters in two factors: r filters for each input map, then combinations of them.

    Initially they are the best rank-r factors of filters, from a singular value decomposition for each input map.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        r: Rank.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        uv_init: Initial filters to factorize; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `uv_init`.
        with_bias: Whether to add a bias.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.svd_convolution(x, 4, (3, 3), r=2, name="demo-svd-convolution").shape
        (8, 4, 14, 14)
    """
    op = "svd_convolution"
    filters, r = Filters(op, inp, outmaps, kernel, base_axis), count(op, "r", r)
    (out, inmaps, *taps), ones = filters.shape, (1,) * len(filters.shape[2:])

    def factors() -> dict[str, NDArray[Any]]:
        """The initial factors."""
        whole = _weight_to_factorize(op, filters, uv_init, rng).reshape(out, inmaps, -1).transpose(1, 2, 0)
        u, s, v = np.linalg.svd(whole, full_matrices=False)  # For each input map.
        u, v = (u * s[:, None])[:, :, :r], v[:, :r]
        return {
            "U": u.transpose(0, 2, 1).reshape(-1, *taps),
            "V": v.transpose(2, 0, 1).reshape(out, -1, *ones),
        }

    shapes = {"U": (inmaps * r, *taps), "V": (out, inmaps * r, *ones)}
    u, v = _factors(op, shapes, factors, fix_parameters)
    b = bias(filters.maps, b_init, with_bias, fix_parameters)
    y = F.depthwise_convolution(inp, u, None, base_axis, pad, stride, dilation, r)
    return F.convolution(y, v, b, base_axis)


@parametric_function_api(
    "cpd3_conv",
    [
        ("I", "Combinations of the input maps", "(r, inmaps, 1, ...)", True),
        ("K", "Filters", "(r, *kernel)", True),
        ("O", "Combinations that are the output maps", "(outmaps, r, 1, ...)", True),
        ("b", "Bias", "(outmaps,)", True),
    ],
)
def cpd3_convolution(
    inp: Variable,
    outmaps: int,
    kernel: int | Sequence[int],
    r: int,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    oik_init: Initializer | None = None,
    b_init: Initializer | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    max_iter: int = 500,
    stopping_criterion: float = 1e-5,
    lambda_reg: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Convolution with filters in three factors: combinations of input maps, one filter each, combinations of these.

    Initially they are factors of filters, from a canonical polyadic decomposition.

    Args:
        inp: Input, shape (*batch, inmaps, *spatial).
        outmaps: Number of filters.
        kernel: Shape of the filters, as (3, 3) for images; a number stands for that size along each axis.
        r: Rank.
        pad: Zeros to add at both ends of each spatial axis; by default none.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        oik_init: Initial filters to factorize; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `oik_init` and for the decomposition.
        with_bias: Whether to add a bias.
        max_iter: Largest number of iterations of the decomposition.
        stopping_criterion: The decomposition stops if the fit changes by less.
        lambda_reg: Weight of an L2 penalty on the factors.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, outmaps, *spatial of the output).

    Source:
        Lebedev et al.: Speeding-up convolutional neural networks using fine-tuned CP-decomposition, 2015.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((1, 2, 8, 8))
        >>> PF.cpd3_convolution(x, 4, (3, 3), r=2, name="demo-cpd").shape
        (1, 4, 6, 6)
    """
    op = "cpd3_convolution"
    filters, r = Filters(op, inp, outmaps, kernel, base_axis), count(op, "r", r)
    (out, inmaps, *taps), ones = filters.shape, (1,) * len(filters.shape[2:])

    def factors() -> dict[str, NDArray[Any]]:
        """The initial factors."""
        from . import cpd

        whole = _weight_to_factorize(op, filters, oik_init, rng).reshape(out, inmaps, prod(taps))
        (o, i, k), scale = cpd.ALS().solve(
            whole, r, max_iter, stopping_criterion, lambda_reg, dtype=whole.dtype, rng=rng
        )
        return {
            "I": i.T.reshape(r, inmaps, *ones),
            "O": (o * scale).reshape(out, r, *ones),
            "K": k.T.reshape(r, *taps),
        }

    shapes = {"I": (r, inmaps, *ones), "O": (out, r, *ones), "K": (r, *taps)}
    i, o, k = _factors(op, shapes, factors, fix_parameters)
    b = bias(filters.maps, b_init, with_bias, fix_parameters)
    y = F.convolution(inp, i, None, base_axis)
    y = F.depthwise_convolution(y, k, None, base_axis, pad, stride, dilation)
    return F.convolution(y, o, b, base_axis)


def _weight_to_factorize(op: str, weights: Weights, init: Initializer | None, rng: RandomState | None) -> NDArray[Any]:
    """The initial weight to factorize."""
    given = weights.initializer(init, rng)
    found = np.asarray(
        given if isinstance(given, np.ndarray) else callee(op, "initializer", given)(list(weights.shape))
    )
    if found.size != prod(weights.shape):
        raise ParameterError(f"{op}: expected initial values of shape {weights.shape}, got shape {found.shape}")
    return found


def _factors(op: str, shapes: dict[str, tuple[int, ...]], make: Any, fix_parameters: bool) -> list[Variable]:
    """The factors as parameters. If one of them is missing, all are made by `make`."""
    if any(get_parameter(name) is None for name in shapes):
        for name, values in make().items():
            if values.shape != shapes[name]:
                raise ParameterError(
                    f"{op}: expected a rank that initial weights of these shapes have, got `r` for {name} of shape "
                    f"{shapes[name]}, where the decomposition gives {values.shape}"
                )
            parameter = Variable(shapes[name], need_grad=True)
            parameter.d = values
            set_parameter(name, parameter)
    return [get_parameter_or_create(name, shape, None, True, not fix_parameters) for name, shape in shapes.items()]
