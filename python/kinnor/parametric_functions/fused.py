"""Further normalizations: batch normalization fused with an activation or over processes, and mean subtraction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input, index_of_axis
from .decorator import parametric_function_api
from .normalizations import STATISTICS, statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from .._core import Variable
    from ..initializer import Initializer
    from .normalizations import Normalized

__all__ = ["fused_batch_normalization", "mean_subtraction", "sync_batch_normalization"]


@parametric_function_api("bn", STATISTICS)
def fused_batch_normalization(
    inp: Variable,
    z: Variable | None = None,
    axes: Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initializer] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Normalized:
    """Fused batch normalization, addition and activation: `y = f(batch_normalization(x) + z)`.

    Args:
        inp: Input, any shape.
        z: Array to add before the activation, shape of the input; by default none.
        axes: Axes with separate statistics, usually the channels.
        decay_rate: Weight of the old running statistics in an update.
        eps: Small number added to the variance.
        batch_stat: Whether to use the statistics of the batch; True for training, False for evaluation.
        nonlinearity: The activation: `relu`, or the empty string for none.
        output_stat: Whether to return mean and variance of the batch, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta`, `gamma`, `mean`, `var`; by default 0, 1, 0, 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.fused_batch_normalization(x, z=x, name="demo-fused-batch-normalization").shape
        (8, 3, 16, 16)
    """
    own = statistics("fused_batch_normalization", inp, axes, param_init, fix_parameters, no_scale, no_bias)
    return F.fused_batch_normalization(inp, *own, z, axes, decay_rate, eps, batch_stat, nonlinearity, output_stat)


@parametric_function_api("bn", STATISTICS)
def sync_batch_normalization(
    inp: Variable,
    comm: Any,
    group: str = "world",
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
    """Batch normalization with statistics over the batches of all processes.

    Args:
        inp: Input, any shape.
        comm: The communicator of the processes.
        group: Name of the group of processes.
        axes: Axes with separate statistics, usually the channels.
        decay_rate: Weight of the old running statistics in an update.
        eps: Small number added to the variance.
        batch_stat: Whether to use the statistics of the batches; True for training, False for evaluation.
        output_stat: Whether to return mean and variance of the batches, too.
        fix_parameters: Whether to use shift and scale without a gradient.
        param_init: Initial values for `beta`, `gamma`, `mean`, `var`; by default 0, 1, 0, 1.
        no_scale: Whether to leave out the scale.
        no_bias: Whether to leave out the shift.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input; with `output_stat` a tuple of output, mean and variance.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((8, 3, 16, 16))
        >>> PF.sync_batch_normalization(x, comm=None, name="demo-sync-batch-normalization").shape
        (8, 3, 16, 16)
    """
    own = statistics("sync_batch_normalization", inp, axes, param_init, fix_parameters, no_scale, no_bias)
    return F.sync_batch_normalization(inp, *own, comm, group, axes, decay_rate, eps, batch_stat, output_stat)


@parametric_function_api(
    "mean_subtraction",
    [
        ("mean", "Running mean", "of the input from base_axis", False),
        ("t", "Number of batches in the mean", "(1,)", False),
    ],
)
def mean_subtraction(
    inp: Variable,
    base_axis: int = 1,
    update_running_mean: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """The input minus the running mean over all batches so far.

    Args:
        inp: Input, shape (*batch, *features).
        base_axis: First axis of the features.
        update_running_mean: Whether a run includes its batch in the mean; False for evaluation.
        fix_parameters: No effect: nothing is trained.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape of the input.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable.from_numpy_array([[1.0, 10.0], [3.0, 30.0]])
        >>> y = PF.mean_subtraction(x, name="demo-mean-subtraction")
        >>> y.forward()
        >>> y.d
        array([[ -1., -10.],
               [  1.,  10.]], dtype=float32)
    """
    op = "mean_subtraction"
    check_input(op, inp)
    shape = inp.shape[index_of_axis(op, inp, base_axis) :]
    mean = get_parameter_or_create("mean", shape, ConstantInitializer(0), False)
    t = get_parameter_or_create("t", (1,), ConstantInitializer(0), False)
    return F.mean_subtraction(inp, mean, t, base_axis, update_running_mean)
