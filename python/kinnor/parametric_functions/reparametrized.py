"""Weight transforms for `apply_w`: spectral normalization and weight normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from .._check import count, number
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

    The singular value is estimated by power iteration. Its vector `u` is stored between runs.

    Args:
        w: Weight, any shape.
        dim: Axis of the outputs; all other axes are flattened to a matrix.
        itr: Number of iterations in each run.
        eps: Small number that avoids division by 0.
        test: Whether to leave `u` unchanged.
        u_init: Initial vector; by default normal.
        fix_parameters: No effect: the vector is not trained.
        name: Name of an outer scope for the parameters.

    Returns:
        Weight of the same shape.

    Source:
        Miyato, Kataoka, Koyama, Yoshida: Spectral normalization for generative adversarial networks, 2018.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((2, 3))
        >>> with nn.parameter_scope("demo-spectral"):
        ...     y = PF.affine(x, 4, apply_w=PF.spectral_norm)
        ...     list(nn.get_parameters(grad_only=False))
        ['affine/W', 'affine/spectral-norm/u', 'affine/b']
    """
    op = "spectral_norm"
    check_input(op, w)
    dim = index_of_axis(op, w, dim)
    init = NormalInitializer() if u_init is None else u_init
    u = get_parameter_or_create("u", (w.shape[dim],), init, False, False)
    normalized: Variable = F.spectral_norm(
        w, u, dim=dim, itr=count(op, "itr", itr), eps=number(op, "eps", eps), test=test
    )
    return normalized


@parametric_function_api("wn", [("g", "Norm of the weight of each output", "(w.shape[dim],)", True)])
def weight_normalization(
    w: Variable,
    dim: int = 0,
    eps: float = 1e-12,
    g_init: Initializer | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """A weight with a separate parameter for its norm, for `apply_w` of other parametric functions: `y = g w / ||w||`.

    Args:
        w: Weight, any shape.
        dim: Axis of the outputs; each output has its own norm.
        eps: Small number that avoids division by 0.
        g_init: Initial norms; by default the norms of the weight.
        fix_parameters: Whether to use the norms without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Weight of the same shape.

    Source:
        Salimans, Kingma: Weight normalization, 2016.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((2, 3))
        >>> with nn.parameter_scope("demo-weight-norm"):
        ...     y = PF.affine(x, 4, apply_w=PF.weight_normalization)
        ...     list(nn.get_parameters())
        ['affine/W', 'affine/wn/g', 'affine/b']
    """
    op = "weight_normalization"
    check_input(op, w)
    outmaps = w.shape[index_of_axis(op, w, dim)]
    init = WeightNormalizationScaleInitializer(w, dim, eps) if g_init is None else g_init
    g = get_parameter_or_create("g", (outmaps,), init, True, not fix_parameters)
    return F.weight_normalization(w, g, dim, eps)
