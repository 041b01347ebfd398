"""Weights made of other weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from ..initializer import WeightNormalizationScaleInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input, index_of_axis
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["weight_normalization"]


@parametric_function_api("wn", [("g", "Length of the weight of each output", "(w.shape[dim],)", True)])
def weight_normalization(
    w: Variable,
    dim: int = 0,
    eps: float = 1e-12,
    g_init: Initializer | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """A weight whose length is a parameter of its own, for `apply_w` of other parametric functions: `y = g w / ||w||`.

    Args:
        w: Weight, any shape.
        dim: Axis of the outputs, each of which has a length.
        eps: Small number that keeps the norm away from 0.
        g_init: Initial lengths; by default those that the weight has.
        fix_parameters: Whether to use the lengths without a gradient.
        name: Name of a scope around the parameters.

    Returns:
        Weight of the same shape.

    Source:
        Salimans, Kingma: Weight normalization, 2016.
    """
    op = "weight_normalization"
    check_input(op, w)
    outmaps = w.shape[index_of_axis(op, w, dim)]
    init = WeightNormalizationScaleInitializer(w, dim, eps) if g_init is None else g_init
    g = get_parameter_or_create("g", (outmaps,), init, True, not fix_parameters)
    return F.weight_normalization(w, g, dim, eps)
