"""Collectives as functions of a graph, with their gradients."""

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
    """A linear map of the arrays of all processes; its gradient is the transposed map, a collective as well."""

    def __init__(self, communicator: Communicator, group: str, **args: Any) -> None:
        super().__init__()
        self.communicator, self.group = communicator, group
        self.members: Transport = members_of(self.name, communicator, group)
        self.args = {"communicator": communicator, "group": group, **args}

    @property
    def name(self) -> str:
        return type(self).__name__

    def min_outputs(self) -> int:
        return 1

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        return False

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        return False

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the output."""
        return shape

    def run(self, x: Any) -> Any:
        """The values of the output."""
        raise NotImplementedError

    def transposed(self) -> _Collective:
        """The function that gives the gradient of the input by that of the output."""
        raise NotImplementedError

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        outputs[0].reset_shape(self.output_shape(inputs[0].shape), True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        what = f"{self.name} of shape {tuple(inputs[0].shape)}"
        self.communicator._agree(self.members, what, "function")
        with self.communicator._watched(what):
            outputs[0].data.data[...] = self.run(np.ascontiguousarray(inputs[0].data.get_data("r")))

    def recompute_impl(self, inputs: Any, outputs: Any) -> None:
        self.forward_impl(inputs, outputs)

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        back = self.transposed()
        what = f"the gradient of {self.name} of shape {tuple(inputs[0].shape)}"
        self.communicator._agree(self.members, what, "function")
        with self.communicator._watched(what):
            g = back.run(np.ascontiguousarray(outputs[0].grad.get_data("r")))
        inputs[0].grad.data[...] = g + (inputs[0].grad.data if accum[0] else 0)

    def gradient_impl(
        self, inputs: Any, outputs: Any, grad_outputs: Any, propagate_down: Any
    ) -> Sequence[Variable | None]:
        return [self.transposed()(grad_outputs[0]) if propagate_down[0] else None]


class AllReduce(_Collective):
    """The sum over all processes."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        super().__init__(communicator, group, division=division)
        self.division = division

    def run(self, x: Any) -> Any:
        total = x.copy()
        self.members.all_reduce(total)
        return total / self.members.size if self.division else total

    def transposed(self) -> _Collective:
        return AllReduce(self.communicator, self.group, self.division)


class AllGather(_Collective):
    """The arrays of all processes along a new first axis."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.members.size, *shape)

    def run(self, x: Any) -> Any:
        parts = np.empty((self.members.size, *x.shape), x.dtype)
        self.members.all_gather(x, parts, [x.size] * self.members.size)
        return parts

    def transposed(self) -> _Collective:
        return ReduceScatter(self.communicator, self.group, False)


class ReduceScatter(_Collective):
    """The sum over all processes of that part of the first axis that belongs to this one."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        super().__init__(communicator, group, division=division)
        self.division = division

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if not shape or shape[0] != self.members.size:
            raise CommunicatorError(
                f"reduce_scatter: expected a first axis of {self.members.size}, the number of processes, got {shape}"
            )
        return shape[1:]

    def run(self, x: Any) -> Any:
        own = np.empty(x.shape[1:], x.dtype)
        self.members.reduce_scatter(x, own, [own.size] * self.members.size)
        return own / self.members.size if self.division else own

    def transposed(self) -> _Collective:
        return _Scaled(self.communicator, self.group, self.division)


class _Scaled(AllGather):
    """The gradient of a sum that was scattered, which was perhaps divided."""

    def __init__(self, communicator: Communicator, group: str, division: bool) -> None:
        _Collective.__init__(self, communicator, group)
        self.division = division

    def run(self, x: Any) -> Any:
        parts = super().run(x)
        return parts / self.members.size if self.division else parts

    def transposed(self) -> _Collective:
        return ReduceScatter(self.communicator, self.group, self.division)


class Broadcast(_Collective):
    """The array of one process, for all."""

    def __init__(self, communicator: Communicator, group: str, src: int) -> None:
        super().__init__(communicator, group, src=src)
        if src not in self.members.ranks:
            raise CommunicatorError(f"broadcast: expected one of the ranks {self.members.ranks}, got {src!r}")
        self.src = src

    def run(self, x: Any) -> Any:
        values = x.copy()
        self.members.broadcast(values, self.members.ranks.index(self.src))
        return values

    def transposed(self) -> _Collective:
        return _Reduce(self.communicator, self.group, self.src)


class _Reduce(Broadcast):
    """The sum over all processes, for one; zeros for the others."""

    def run(self, x: Any) -> Any:
        root = self.members.ranks.index(self.src)
        total = x.copy()
        self.members.reduce(total, root)
        return total if self.members.rank == root else np.zeros_like(total)

    def transposed(self) -> _Collective:
        return Broadcast(self.communicator, self.group, self.src)


# --- Between arrays that are the same on all processes and arrays of which each has a part. A loss that all compute
# counts once here: the gradient of what is the same everywhere is the same everywhere, too.


class Copied(_Collective):
    """The same array, for use in different ways: each process gives a part of its gradient."""

    def run(self, x: Any) -> Any:
        return x

    def transposed(self) -> _Collective:
        return Summed(self.communicator, self.group)


class Summed(_Collective):
    """The sum of different arrays, the same for all: each array's gradient is that of the sum."""

    def run(self, x: Any) -> Any:
        total = x.copy()
        self.members.all_reduce(total)
        return total

    def transposed(self) -> _Collective:
        return Copied(self.communicator, self.group)


class Joined(_Collective):
    """The parts of all processes, one after the other along the last axis."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] * self.members.size)

    def run(self, x: Any) -> Any:
        parts = np.empty((self.members.size, *x.shape), x.dtype)
        self.members.all_gather(x, parts, [x.size] * self.members.size)
        return np.moveaxis(parts, 0, -2).reshape(self.output_shape(x.shape))

    def transposed(self) -> _Collective:
        return Part(self.communicator, self.group)


class Part(_Collective):
    """This process's part of the last axis of an array that is the same on all."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if not shape or shape[-1] % self.members.size:
            raise CommunicatorError(
                f"Part: expected a last axis that {self.members.size} processes divide, got shape {shape}"
            )
        return (*shape[:-1], shape[-1] // self.members.size)

    def run(self, x: Any) -> Any:
        width = x.shape[-1] // self.members.size
        return x[..., width * self.members.rank : width * (self.members.rank + 1)]

    def transposed(self) -> _Collective:
        return Joined(self.communicator, self.group)


# --- What programs call


def all_reduce(x: Variable, comm: Communicator, group: str = "world", division: bool = False) -> Variable:
    """Sum an array over all processes. Each gets the sum, and each gives its part of the gradient.

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
        >>> from kinnor.communicators import MultiProcessDataParallelCommunicator
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


class _RunningStatistics(PythonFunction):
    """Passes mean and variance of a batch through, and updates the running ones from them."""

    def __init__(self, decay_rate: float, unbiased: float) -> None:
        super().__init__()
        self.decay_rate, self.unbiased = decay_rate, unbiased

    @property
    def name(self) -> str:
        return "RunningStatistics"

    def min_outputs(self) -> int:
        return 2

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        return False

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        return False

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        for x, y in zip(inputs, outputs, strict=False):
            y.reset_shape(x.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        self.recompute_impl(inputs, outputs)
        for batch, running, factor in ((*inputs[::2], 1.0), (*inputs[1::2], self.unbiased)):
            values = running.data.data
            values[...] = self.decay_rate * values + (1 - self.decay_rate) * factor * batch.data.data

    def recompute_impl(self, inputs: Any, outputs: Any) -> None:
        for x, y in zip(inputs, outputs, strict=False):
            y.data.data[...] = x.data.data

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        for n in (0, 1):
            if propagate_down[n]:
                g = outputs[n].grad.data
                inputs[n].grad.data[...] = g + (inputs[n].grad.data if accum[n] else 0)

    def gradient_impl(
        self, inputs: Any, outputs: Any, grad_outputs: Any, propagate_down: Any
    ) -> Sequence[Variable | None]:
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
    """Batch normalization with the statistics of the examples of all processes, which have as many each.

    Args:
        x: Input, any shape.
        beta: Shift, of the shape of `x` on `axes` and 1 on the others; None for none.
        gamma: Scale, of the shape of `beta`; None for none.
        mean: Running mean, of the shape of `beta`; it is updated where `batch_stat` is True.
        variance: Running variance, likewise.
        comm: The communicator.
        group: Name of the group.
        axes: Axes that have statistics of their own.
        decay_rate: How much of the running statistics an update keeps.
        eps: Small number that keeps the root away from 0.
        batch_stat: Whether to use the statistics of the batch; otherwise the running ones.
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
    # Squares and a variance in 16 bits would overflow from deviations of 256 on.
    is_short = get_current_context().compute_type in ("half", "bfloat16")
    with context_scope(Context(["cpu:float"])) if is_short else nullcontext():
        mu = all_reduce(F.mean(x, over, keepdims=True), comm, group, division=True)
        var = all_reduce(F.mean((x - mu) ** 2.0, over, keepdims=True), comm, group, division=True)
        mu, var = _RunningStatistics(decay_rate, count / max(count - 1, 1))(mu, var, mean, variance)
        scale = (var + eps) ** -0.5
    y = (x - mu) * scale
    if gamma is not None:
        y = y * gamma
    if beta is not None:
        y = y + beta
    return (y, mu, var) if output_stat else y
