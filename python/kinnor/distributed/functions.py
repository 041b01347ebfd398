"""Differentiable collectives: functions of a graph that communicate between processes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functions as F
from ..context import Context, context_scope, get_current_context
from ..function import PythonFunction
from .communicator import members_of
from .transport import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import Variable
    from .communicator import Communicator
    from .transport import Transport

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter", "sync_batch_normalization"]


class _Collective(PythonFunction):
    """A linear map of the arrays of all processes. Its gradient is the transposed map, another collective."""

    def __init__(self, communicator: Communicator, group: str, **args: Any) -> None:
        super().__init__()
        self.communicator, self.group = communicator, group
        self.members: Transport = members_of(self.name, communicator, group)
        self.args = {"communicator": communicator, "group": group, **args}

    def min_outputs(self) -> int:
        """The number of outputs."""
        return 1

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """False: the map is linear."""
        return False

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: the map is linear."""
        return False

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the output."""
        return shape

    def run(self, x: Any) -> Any:
        """The values of the output for input values `x`."""
        raise NotImplementedError

    def transposed(self) -> _Collective:
        """The function from the gradient of the output to the gradient of the input."""
        raise NotImplementedError

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Sets the shape of the output."""
        outputs[0].reset_shape(self.output_shape(inputs[0].shape), True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Runs the collective."""
        what = f"{self.name} of shape {tuple(inputs[0].shape)}"
        self.communicator._agree(self.members, what, "function")
        with self.communicator._watched(what):
            outputs[0].data.data[...] = self.run(np.ascontiguousarray(inputs[0].data.get_data("r")))

    def recompute_impl(self, inputs: Any, outputs: Any) -> None:
        """Runs the collective again."""
        self.forward_impl(inputs, outputs)

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Runs the transposed collective on the gradient."""
        back = self.transposed()
        what = f"the gradient of {self.name} of shape {tuple(inputs[0].shape)}"
        self.communicator._agree(self.members, what, "function")
        with self.communicator._watched(what):
            g = back.run(np.ascontiguousarray(outputs[0].grad.get_data("r")))
        inputs[0].grad.data[...] = g + (inputs[0].grad.data if accum[0] else 0)

    def gradient_impl(
        self, inputs: Any, outputs: Any, grad_outputs: Any, propagate_down: Any
    ) -> Sequence[Variable | None]:
        """The gradient as a function of the graph."""
        return [self.transposed()(grad_outputs[0]) if propagate_down[0] else None]


class AllReduce(_Collective):
    """The sum over all processes."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        super().__init__(communicator, group, division=division)
        self.division = division

    def run(self, x: Any) -> Any:
        """Sums over processes."""
        total = x.copy()
        self.members.all_reduce(total)
        return total / self.members.size if self.division else total

    def transposed(self) -> _Collective:
        """The sum over processes, which is its own transpose."""
        return AllReduce(self.communicator, self.group, self.division)


class AllGather(_Collective):
    """The arrays of all processes, stacked along a new first axis. Its gradient is `ReduceScatter`."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the number of processes in front."""
        return (self.members.size, *shape)

    def run(self, x: Any) -> Any:
        """Gathers the arrays."""
        parts = np.empty((self.members.size, *x.shape), x.dtype)
        self.members.all_gather(x, parts, [x.size] * self.members.size)
        return parts

    def transposed(self) -> _Collective:
        """A sum, scattered."""
        return ReduceScatter(self.communicator, self.group, False)


class ReduceScatter(_Collective):
    """This process's slice, along the first axis, of the sum over all processes."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        super().__init__(communicator, group, division=division)
        self.division = division

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape without the first axis."""
        if not shape or shape[0] != self.members.size:
            raise CommunicatorError(
                f"reduce_scatter: expected a first axis of {self.members.size}, the number of processes, got {shape}"
            )
        return shape[1:]

    def run(self, x: Any) -> Any:
        """Sums over processes, and keeps the own slice."""
        own = np.empty(x.shape[1:], x.dtype)
        self.members.reduce_scatter(x, own, [own.size] * self.members.size)
        return own / self.members.size if self.division else own

    def transposed(self) -> _Collective:
        """A gather with the same division."""
        return _Scaled(self.communicator, self.group, self.division)


class _Scaled(AllGather):
    """The gradient of `ReduceScatter`: a gather, divided by the number of processes with `division`."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        _Collective.__init__(self, communicator, group)
        self.division = division

    def run(self, x: Any) -> Any:
        """Gathers and divides."""
        parts = super().run(x)
        return parts / self.members.size if self.division else parts

    def transposed(self) -> _Collective:
        """A scattered sum with the same division."""
        return ReduceScatter(self.communicator, self.group, self.division)


class Broadcast(_Collective):
    """The array of one process, copied to all."""

    def __init__(self, communicator: Communicator, group: str, src: int) -> None:
        super().__init__(communicator, group, src=src)
        if src not in self.members.ranks:
            raise CommunicatorError(f"broadcast: expected one of the ranks {self.members.ranks}, got {src!r}")
        self.src = src

    def run(self, x: Any) -> Any:
        """Copies the array of process `src`."""
        values = x.copy()
        self.members.broadcast(values, self.members.ranks.index(self.src))
        return values

    def transposed(self) -> _Collective:
        """A sum on process `src`."""
        return _Reduce(self.communicator, self.group, self.src)


class _Reduce(Broadcast):
    """The sum over all processes on one process, and zeros on the others. The gradient of `Broadcast`."""

    def run(self, x: Any) -> Any:
        """Sums on process `src`; zeros elsewhere."""
        root = self.members.ranks.index(self.src)
        total = x.copy()
        self.members.reduce(total, root)
        return total if self.members.rank == root else np.zeros_like(total)

    def transposed(self) -> _Collective:
        """A copy from process `src`."""
        return Broadcast(self.communicator, self.group, self.src)


# --- Functions between replicated arrays, which are the same on all processes, and divided arrays. A loss that all
# processes compute counts once: the gradient of a replicated array is replicated, too.


class Copied(_Collective):
    """Identity of a replicated array that each process uses differently. Gradients are summed over processes."""

    def run(self, x: Any) -> Any:
        """Returns the input."""
        return x

    def transposed(self) -> _Collective:
        """A sum over processes."""
        return Summed(self.communicator, self.group)


class Summed(_Collective):
    """The sum of the processes' arrays, replicated. Its gradient is passed on unchanged."""

    def run(self, x: Any) -> Any:
        """Sums over processes."""
        total = x.copy()
        self.members.all_reduce(total)
        return total

    def transposed(self) -> _Collective:
        """The identity."""
        return Copied(self.communicator, self.group)


class Joined(_Collective):
    """The parts of all processes, concatenated along the last axis."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the last axis multiplied by the number of processes."""
        return (*shape[:-1], shape[-1] * self.members.size)

    def run(self, x: Any) -> Any:
        """Gathers and concatenates the parts."""
        parts = np.empty((self.members.size, *x.shape), x.dtype)
        self.members.all_gather(x, parts, [x.size] * self.members.size)
        return np.moveaxis(parts, 0, -2).reshape(self.output_shape(x.shape))

    def transposed(self) -> _Collective:
        """The own part."""
        return Part(self.communicator, self.group)


class Part(_Collective):
    """This process's part of a replicated array, along the last axis."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the last axis divided by the number of processes."""
        if not shape or shape[-1] % self.members.size:
            raise CommunicatorError(
                f"Part: expected a last axis that {self.members.size} processes divide, got shape {shape}"
            )
        return (*shape[:-1], shape[-1] // self.members.size)

    def run(self, x: Any) -> Any:
        """Slices the own part."""
        width = x.shape[-1] // self.members.size
        return x[..., width * self.members.rank : width * (self.members.rank + 1)]

    def transposed(self) -> _Collective:
        """The concatenation of all parts."""
        return Joined(self.communicator, self.group)


# --- Public functions


def all_reduce(x: Variable, comm: Communicator, group: str = "world", division: bool = False) -> Variable:
    """Sum an array over all processes, on all of them. The gradient is summed as well.

    Args:
        x: The array, of one shape on all processes.
        comm: The communicator.
        group: Name of the group.
        division: Whether to divide by the number of processes.

    Returns:
        The sum.

    Examples:
        >>> import numpy as np
        >>> import kinnor as nn
        >>> from kinnor.distributed import MultiProcessDataParallelCommunicator
        >>> comm = MultiProcessDataParallelCommunicator()
        >>> comm.init()
        >>> x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32))
        >>> y = all_reduce(x, comm)
        >>> y.forward()
        >>> y.d.tolist()
        [1.0, 2.0]
    """
    return AllReduce(comm, group, division)(x)  # type: ignore[no-any-return]


def all_gather(x: Variable, comm: Communicator, group: str = "world") -> Variable:
    """Gather the arrays of all processes along a new first axis.

    Args:
        x: The array, of one shape on all processes.
        comm: The communicator.
        group: Name of the group.

    Returns:
        The arrays, in the order of ranks.
    """
    return AllGather(comm, group)(x)  # type: ignore[no-any-return]


def reduce_scatter(x: Variable, comm: Communicator, group: str = "world", division: bool = False) -> Variable:
    """Sum an array over all processes, and keep the part of this one.

    Args:
        x: The array, of one shape on all processes; its first axis is as long as there are processes.
        comm: The communicator.
        group: Name of the group.
        division: Whether to divide by the number of processes.

    Returns:
        The part of the sum whose index is the rank of this process.
    """
    return ReduceScatter(comm, group, division)(x)  # type: ignore[no-any-return]


def broadcast(x: Variable, comm: Communicator, src: int = 0, group: str = "world") -> Variable:
    """Copy the array of one process to all.

    Args:
        x: The array, of one shape on all processes.
        comm: The communicator.
        src: The rank whose array is copied.
        group: Name of the group.

    Returns:
        The array of `src`.
    """
    return Broadcast(comm, group, src)(x)  # type: ignore[no-any-return]


class RunningStatistics(PythonFunction):
    """Identity of a batch's mean and variance. It updates the running statistics from them."""

    def __init__(self, decay_rate: float, unbiased: float) -> None:
        super().__init__()
        self.decay_rate, self.unbiased = decay_rate, unbiased

    def min_outputs(self) -> int:
        """The number of outputs: mean and variance."""
        return 2

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """False: the function is the identity."""
        return False

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: the function is the identity."""
        return False

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Sets the shapes of the outputs."""
        for x, y in zip(inputs, outputs, strict=False):
            y.reset_shape(x.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Copies the statistics of the batch, and updates the running statistics."""
        self.recompute_impl(inputs, outputs)
        for batch, running, factor in ((*inputs[::2], 1.0), (*inputs[1::2], self.unbiased)):
            values = running.data.data
            values[...] = self.decay_rate * values + (1 - self.decay_rate) * factor * batch.data.data

    def recompute_impl(self, inputs: Any, outputs: Any) -> None:
        """Copies the statistics of the batch, without an update."""
        for x, y in zip(inputs, outputs, strict=False):
            y.data.data[...] = x.data.data

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Passes the gradients on."""
        for n in (0, 1):
            if propagate_down[n]:
                g = outputs[n].grad.data
                inputs[n].grad.data[...] = g + (inputs[n].grad.data if accum[n] else 0)

    def gradient_impl(
        self, inputs: Any, outputs: Any, grad_outputs: Any, propagate_down: Any
    ) -> Sequence[Variable | None]:
        """Passes the gradients on; running statistics have none."""
        return [*grad_outputs, None, None]


def sync_batch_normalization(
    x: Variable,
    beta: Variable | None,
    gamma: Variable | None,
    mean: Variable,
    variance: Variable,
    comm: Communicator,
    group: str = "world",
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> Any:
    """Batch normalization with the statistics of all processes' examples. All must have the same number of examples.

    Args:
        x: Input, any shape.
        beta: Shift, of the shape of `x` on `axes` and 1 on the others; None for none.
        gamma: Scale, of the shape of `beta`; None for none.
        mean: Running mean, of the shape of `beta`; it is updated where `batch_stat` is True.
        variance: Running variance, updated like `mean`.
        comm: The communicator.
        group: Name of the group.
        axes: Axes with separate statistics.
        decay_rate: Weight of the old running statistics in an update.
        eps: Small number that keeps the root away from 0.
        batch_stat: Whether to use the statistics of the batch; otherwise the running statistics.
        output_stat: Whether to return mean and variance of the batch, too.
        n_outputs: Without effect.

    Returns:
        The output, of the shape of `x`; with `output_stat` a tuple of output, mean and variance.

    Source:
        Ioffe, Szegedy: Batch normalization, 2015; over processes as in Zhang et al., Context encoding, 2018.
    """
    members = members_of("sync_batch_normalization", comm, group)
    if not batch_stat or members.size == 1:
        return F.batch_normalization(x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat)
    kept = {axis % len(x.shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    over = [axis for axis in range(len(x.shape)) if axis not in kept]
    count = members.size * int(np.prod([x.shape[axis] for axis in over]))
    # In half precision, squares of deviations from 256 on overflow.
    is_short = get_current_context().compute_type in ("half", "bfloat16")
    with context_scope(Context(["cpu:float"])) if is_short else nullcontext():
        mu = all_reduce(F.mean(x, over, keepdims=True), comm, group, division=True)
        var = all_reduce(F.mean((x - mu) ** 2.0, over, keepdims=True), comm, group, division=True)
        mu, var = RunningStatistics(decay_rate, count / max(count - 1, 1))(mu, var, mean, variance)
        scale = (var + eps) ** -0.5
    y = (x - mu) * scale
    if gamma is not None:
        y = y * gamma
    if beta is not None:
        y = y + beta
    return (y, mu, var) if output_stat else y
