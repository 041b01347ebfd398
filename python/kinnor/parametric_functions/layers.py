"""Basic parametric functions: `affine`, `embed` and `prelu`."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

from .. import functions as F
from .._core import Variable, use_known_parameter
from ..initializer import ConstantInitializer, UniformInitializer
from ..parameter import get_parameter_or_create
from .arguments import applied, bias, check_input, index_of_axis, sizes, weight
from .decorator import parametric, parametric_function_api

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

    from ..initializer import Initializer
    from ..parameter.tree import Scope

__all__ = ["affine", "embed", "prelu"]


def affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    apply_w: Callable[[Variable], Variable] | None = None,
    apply_b: Callable[[Variable], Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """Affine transformation, also called fully connected or dense layer: `y = x W + b`.

    Args:
        inp: Input, shape (*batch, *inputs); the axes from `base_axis` on are flattened.
        n_outmaps: Number of outputs, or their shape.
        base_axis: First axis of the inputs.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        apply_w: Function that is applied to the weight before use.
        apply_b: Function that is applied to the bias before use.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, *n_outmaps).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((2, 3))
        >>> with nn.parameter_scope("demo-affine"):
        ...     y = PF.affine(x, 4)
        ...     nn.get_parameters()
        name      shape   type     gradient  size
        affine/W  (3, 4)  float32  yes         12
        affine/b  (4,)    float32  yes          4
        2 parameters, 16 elements, 64 bytes
        >>> y.shape
        (2, 4)
    """
    check_input("affine", inp)
    inputs = prod(inp.shape[index_of_axis("affine", inp, base_axis) :])
    outputs = sizes("affine", "n_outmaps", n_outmaps, single=True)
    w = weight((inputs, *outputs), w_init, (inputs, prod(outputs), (1, 1)), rng, fix_parameters, apply_w)
    b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
    return F.affine(inp, w, b, base_axis)


def _affine_again(
    scope: Scope,
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    apply_w: Callable[[Variable], Variable] | None = None,
    apply_b: Callable[[Variable], Variable] | None = None,
) -> Variable | None:
    """`affine` with the parameters of a scope, or None if they are missing or a function is applied to one."""
    if type(inp) is not Variable or type(n_outmaps) is not int or apply_w is not None or apply_b is not None:
        return None
    shape = inp.shape
    if type(base_axis) is not int or not 0 <= base_axis < len(shape):
        return None
    inputs = shape[-1] if base_axis == len(shape) - 1 else prod(shape[base_axis:])
    w = use_known_parameter(scope, "W", (inputs, n_outmaps), True, not fix_parameters)
    if w is None:
        return None
    if not with_bias:
        return F.affine(inp, w, None, base_axis)
    b = use_known_parameter(scope, "b", (n_outmaps,), True, not fix_parameters)
    if b is None:
        return None
    return F.affine(inp, w, b) if base_axis == 1 else F.affine(inp, w, b, base_axis)


affine = parametric(
    affine,
    "affine",
    [
        ("W", "Weight", "(inputs, *n_outmaps), inputs being the size of the axes from base_axis", True),
        ("b", "Bias", "n_outmaps", True),
    ],
    _affine_again,
)


@parametric_function_api("embed", [("W", "Vectors", "(n_inputs, n_features)", True)])
def embed(
    inp: Variable,
    n_inputs: int,
    n_features: int,
    initializer: Initializer | None = None,
    fix_parameters: bool = False,
    apply_w: Callable[[Variable], Variable] | None = None,
    name: str | None = None,
) -> Variable:
    """A learned vector for each index: `y = W[x]`.

    Args:
        inp: Indices from 0 to `n_inputs` - 1, any shape.
        n_inputs: Number of different indices.
        n_features: Length of the vectors.
        initializer: Initial vectors; by default uniform from -sqrt(3) to sqrt(3), which has variance 1.
        fix_parameters: Whether to use the vectors without a gradient.
        apply_w: Function that is applied to the vectors before use.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*inp.shape, n_features).

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> tokens = nn.Variable((2, 5))
        >>> PF.embed(tokens, 100, 8, name="demo-embed").shape
        (2, 5, 8)
    """
    check_input("embed", inp, min_ndim=0)
    shape = sizes("embed", "(n_inputs, n_features)", (n_inputs, n_features))
    if initializer is None:
        initializer = UniformInitializer((-sqrt(3.0), sqrt(3.0)))
    w = get_parameter_or_create("W", shape, initializer, True, not fix_parameters)
    return F.embed(inp, applied("apply_w", apply_w, w))


@parametric_function_api(
    "prelu", [("slope", "Slope for negative values", "() if shared, otherwise (inp.shape[base_axis],)", True)]
)
def prelu(
    inp: Variable,
    base_axis: int = 1,
    shared: bool = True,
    fix_parameters: bool = False,
    slope_init: Initializer | None = None,
    name: str | None = None,
) -> Variable:
    """ReLU with a learned slope for negative values: `y = max(0, x) + slope min(0, x)`.

    Args:
        inp: Input, any shape.
        base_axis: Axis of the channels.
        shared: Whether all channels have one slope.
        fix_parameters: Whether to use the slope without a gradient.
        slope_init: Initial slope; by default 0.25.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input.

    Source:
        He, Zhang, Ren, Sun: Delving deep into rectifiers, 2015.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable.from_numpy_array([[-1.0, 2.0]])
        >>> y = PF.prelu(x, name="demo-prelu")
        >>> y.forward()
        >>> y.d  # the slope is 0.25 at first
        array([[-0.25,  2.  ]], dtype=float32)
    """
    check_input("prelu", inp)
    shape = () if shared else (inp.shape[index_of_axis("prelu", inp, base_axis)],)
    if slope_init is None:
        slope_init = ConstantInitializer(0.25)
    slope = get_parameter_or_create("slope", shape, slope_init, True, not fix_parameters)
    return F.prelu(inp, slope, base_axis)
