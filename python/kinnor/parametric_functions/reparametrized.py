"""Weights made of other weights: normalized by their largest singular value or by their length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from ..initializer import NormalInitializer, WeightNormalizationScaleInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input, index_of_axis
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["spectral_norm", "weight_normalization"]


@parametric_function_api("spectral-norm", [("u", "Left singular vector", "(w.shape[dim],)", False)])
def spectral_norm(
    w: Variable,
    dim: int = 0,
    itr: int = 1,
    eps: float = 1e-12,
    test: bool = False,
    u_init: Initializer | None = None,
    fix_parameters: bool = True,
    name: str | None = None,
) -> Variable:
    """A weight divided by its largest singular value, for `apply_w` of other parametric functions.

    The singular value is followed by power iterations, whose vector `u` is kept from run to run.

    Args:
        w: Weight, any shape.
        dim: Axis of the outputs; the weight is taken as a matrix of this axis and all others.
        itr: Iterations at each run.
        eps: Small number that keeps norms away from 0.
        test: Whether to leave `u` as it is.
        u_init: Initial vector; by default normal.
        fix_parameters: Without effect: the vector is not trained.
        name: Name of a scope around the parameters.

    Returns:
        Weight of the same shape.

    Source:
        Miyato, Kataoka, Koyama, Yoshida: Spectral normalization for generative adversarial networks, 2018.
    """
    op = "spectral_norm"
    check_input(op, w)
    dim = index_of_axis(op, w, dim)
    init = NormalInitializer() if u_init is None else u_init
    u = get_parameter_or_create("u", (w.shape[dim],), init, False, False)
    normalized: Variable = F.spectral_norm(w, u, dim=dim, itr=itr, eps=eps, test=test)
    return normalized


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
