"""Rounding to steps of a range, whose ends are parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import functions as F
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from .._core import NdArray, Variable
    from ..initializer import Initializer

__all__ = ["min_max_quantize"]


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


def _level(op: str, x: Variable, name: str, level: Any) -> Variable:
    """A level as a parameter, unless it is a variable."""
    if isinstance(level, (int, float)):
        return get_parameter_or_create(name, (1,) * x.ndim, np.array(level).reshape((1,) * x.ndim), False, False)
    check_input(op, level, min_ndim=0)
    return cast("Variable", level)
