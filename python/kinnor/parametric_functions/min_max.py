"""Quantization to equal steps of a range, and layers with such weights and biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import functions as F
from .._check import is_truth
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

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable.from_numpy_array([0.0, 1.2, 3.0])
        >>> y = PF.min_max_quantize(x, ql_max=3, x_min_max=True, name="demo-min-max-quantize")
        >>> y.forward()
        >>> y.d
        array([0., 1., 3.], dtype=float32)
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
    """A quantization level as a parameter, or the variable that was given."""
    if isinstance(level, (int, float)) and not is_truth(level):
        return get_parameter_or_create(name, (1,) * x.ndim, np.array(level).reshape((1,) * x.ndim), False, False)
    check_input(op, level, min_ndim=0)
    return cast("Variable", level)
