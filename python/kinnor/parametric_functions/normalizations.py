"""Normalizations with learned shift and scale as parametric functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import functions as F
from .._check import mapping
from .._core import CallError, RangeError
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input, index_of_axis, sizes
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._core import Variable
    from ..initializer import Initializer
    from .decorator import ParameterDescription

__all__ = ["batch_normalization", "group_normalization", "instance_normalization", "layer_normalization"]

#: A variable; with `output_stat` a tuple of three.
Normalized: TypeAlias = Any

_DEFAULTS = {"beta": 0, "gamma": 1, "mean": 0, "var": 1}
"""The initial value of each parameter of a normalization."""


def described(shape: str, *, has_statistics: bool = False) -> list[ParameterDescription]:
    """Descriptions of the parameters of a normalization, which have this shape."""
    own = [("beta", "Shift; not with no_bias", shape, True), ("gamma", "Scale; not with no_scale", shape, True)]
    running = [("mean", "Running mean", shape, False), ("var", "Running variance", shape, False)]
    return [*own, *running] if has_statistics else own


STATISTICS = described("of the input on `axes`, 1 elsewhere", has_statistics=True)
"""Descriptions of the parameters of a batch normalization."""


@parametric_function_api("bn", STATISTICS)
def batch_normalization(
    inp: Variable,
    axes: Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Normalized:
    """Batch normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics over all axes but `axes`.

    With `batch_stat` the batch's statistics are used, and a forward run updates the running statistics:
    `mean <- decay_rate mean + (1 - decay_rate) batch mean`. Without it the running statistics are used.

    Args:
        inp: Input, any shape.
        axes: Axes with separate statistics, usually the channels.
        decay_rate: Weight of the old running statistics in an update.
        eps: Small number added to the variance.
        batch_stat: Whether to use the statistics of the batch; True for training, False for evaluation.
        output_stat: Whether to return mean and variance of the batch, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta`, `gamma`, `mean`, `var`; by default 0, 1, 0, 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Source:
        Ioffe, Szegedy: Batch normalization, 2015.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> with nn.parameter_scope("demo-batch"):
        ...     y = PF.batch_normalization(x)
        ...     list(nn.get_parameters(grad_only=False))
        ['bn/beta', 'bn/gamma', 'bn/mean', 'bn/var']
        >>> y.shape
        (8, 3, 16, 16)
    """
    own = statistics("batch_normalization", inp, axes, param_init, fix_parameters, no_scale, no_bias)
    return F.batch_normalization(inp, *own, axes, decay_rate, eps, batch_stat, output_stat)


@parametric_function_api("layer_normalization", described("of the input, 1 on `batch_axis`"))
def layer_normalization(
    inp: Variable,
    batch_axis: int | Sequence[int] = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Normalized:
    """Layer normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics of each sample.

    Args:
        inp: Input, any shape.
        batch_axis: Axis or axes of the samples.
        eps: Small number added to the variance.
        output_stat: Whether to return mean and variance, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta` and `gamma`; by default 0 and 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Source:
        Ba, Kiros, Hinton: Layer normalization, 2016.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((2, 5, 8))  # batch, time, width
        >>> PF.layer_normalization(x, batch_axis=(0, 1), name="demo-layer-normalization").shape
        (2, 5, 8)
    """
    op = "layer_normalization"
    check_input(op, inp)
    batch = [index_of_axis(op, inp, axis) for axis in np.atleast_1d(batch_axis)]
    shape = [1 if axis in batch else size for axis, size in enumerate(inp.shape)]
    beta, gamma = _shift_and_scale(shape, _checked_initial(op, param_init), fix_parameters, no_scale, no_bias)
    return F.layer_normalization(inp, beta, gamma, batch_axis, eps, output_stat)


@parametric_function_api("instance_normalization", described("of the input on `channel_axis`, 1 elsewhere"))
def instance_normalization(
    inp: Variable,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Normalized:
    """Instance normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics of each channel and sample.

    Args:
        inp: Input, any shape.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the samples.
        eps: Small number added to the variance.
        output_stat: Whether to return mean and variance, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta` and `gamma`; by default 0 and 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Source:
        Ulyanov, Vedaldi, Lempitsky: Instance normalization, 2016.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.instance_normalization(x, name="demo-instance-normalization").shape
        (8, 3, 16, 16)
    """
    op = "instance_normalization"
    shape = _statistics_shape(op, inp, (channel_axis,))
    beta, gamma = _shift_and_scale(shape, _checked_initial(op, param_init), fix_parameters, no_scale, no_bias)
    return F.instance_normalization(inp, beta, gamma, channel_axis, batch_axis, eps, output_stat)


@parametric_function_api("group_normalization", described("of the input on `channel_axis`, 1 elsewhere"))
def group_normalization(
    inp: Variable,
    num_groups: int,
    channel_axis: int = 1,
    batch_axis: int | Sequence[int] = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Normalized:
    """Group normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics of groups of channels.

    Args:
        inp: Input, any shape.
        num_groups: Number of groups; the number of channels is a multiple of it.
        channel_axis: Axis of the channels.
        batch_axis: Axis or axes of the samples.
        eps: Small number added to the variance.
        output_stat: Whether to return mean and variance, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta` and `gamma`; by default 0 and 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Source:
        Wu, He: Group normalization, 2018.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 6, 16, 16))
        >>> PF.group_normalization(x, num_groups=2, name="demo-group-normalization").shape
        (8, 6, 16, 16)
    """
    op = "group_normalization"
    shape = _statistics_shape(op, inp, (channel_axis,))
    (num_groups,) = sizes(op, "num_groups", num_groups, single=True)
    beta, gamma = _shift_and_scale(shape, _checked_initial(op, param_init), fix_parameters, no_scale, no_bias)
    return F.group_normalization(inp, beta, gamma, num_groups, channel_axis, batch_axis, eps, output_stat)


def statistics(
    op: str,
    inp: Variable,
    axes: Sequence[int],
    param_init: Mapping[str, Initializer] | None,
    fix_parameters: bool,
    no_scale: bool,
    no_bias: bool,
) -> tuple[Variable | None, Variable | None, Variable, Variable]:
    """The parameters of a batch normalization: shift, scale, running mean and running variance."""
    shape = _statistics_shape(op, inp, axes)
    init = _checked_initial(op, param_init, ("beta", "gamma", "mean", "var"))
    beta, gamma = _shift_and_scale(shape, init, fix_parameters, no_scale, no_bias)
    mean = _parameter("mean", shape, init, False, False)
    return beta, gamma, mean, _parameter("var", shape, init, False, False)


def _statistics_shape(op: str, inp: Variable, axes: Sequence[int]) -> list[int]:
    """The input's shape with all axes except `axes` set to 1."""
    check_input(op, inp)
    if not isinstance(axes, Iterable):
        raise CallError(f"{op}: expected `axes` to be a sequence of axes, got {axes!r}")
    kept = [index_of_axis(op, inp, axis) for axis in axes]
    return [size if axis in kept else 1 for axis, size in enumerate(inp.shape)]


def _checked_initial(
    op: str, param_init: Mapping[str, Initializer] | None, names: tuple[str, ...] = ("beta", "gamma")
) -> Mapping[str, Initializer]:
    """The checked argument `param_init`. Raises RangeError for unknown names."""
    init = mapping(op, "param_init", param_init)
    unknown = [key for key in init if key not in names]
    if unknown:
        raise RangeError(f"{op}: expected `param_init` for {', '.join(names)}, got one for {unknown[0]!r}")
    return init


def _shift_and_scale(
    shape: list[int], init: Mapping[str, Initializer], fix_parameters: bool, no_scale: bool, no_bias: bool
) -> tuple[Variable | None, Variable | None]:
    """The parameters `beta` and `gamma`, or None for omitted ones."""
    beta = None if no_bias else _parameter("beta", shape, init, True, not fix_parameters)
    gamma = None if no_scale else _parameter("gamma", shape, init, True, not fix_parameters)
    return beta, gamma


def _parameter(
    name: str, shape: list[int], init: Mapping[str, Initializer], need_grad: bool, as_need_grad: bool
) -> Variable:
    """A parameter of a normalization with its initial value."""
    initializer = init[name] if name in init else ConstantInitializer(_DEFAULTS[name])
    return get_parameter_or_create(name, shape, initializer, need_grad, as_need_grad)
