"""A network whose layers are on several processes, and whose batches go through it in parts.

Each process has the parameters and values of its own place alone. Knows schedules and messages; `stage` divides graphs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import _check
from .._core import CallError, Variable
from ..modes import auto_forward
from ..parameter import get_parameters, pop_parameter
from ..placement import building_for
from .communicator import members_of
from .stage import Stage, describe
from .transport import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from .communicator import Communicator
    from .stage import Edge

__all__ = ["Pipeline", "schedule"]


def schedule(place: int, places: int, micro_batches: int) -> Iterator[tuple[Literal["forward", "backward"], int]]:
    """What a process of a pipeline does in a step, in order: one forward run, one backward run.

    Args:
        place: Its place.
        places: Number of places.
        micro_batches: Number of parts of a batch.

    Yields:
        `"forward"` or `"backward"`, and the number of the part. At most `places - place` parts have run forward and
        not yet backward.

    Source:
        Narayanan et al.: PipeDream, 2019.

    Examples:
        >>> [f"{what[0]}{n}" for what, n in schedule(0, 2, 3)]
        ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
        >>> [f"{what[0]}{n}" for what, n in schedule(1, 2, 3)]
        ['f0', 'b0', 'f1', 'b1', 'f2', 'b2']
    """
    ahead = min(places - place - 1, micro_batches)
    for n in range(ahead):
        yield "forward", n
    for n in range(micro_batches):
        if n + ahead < micro_batches:
            yield "forward", n + ahead
        yield "backward", n


class Pipeline:
    """A static network over processes: each has the functions that `nn.place` of its rank gives it.

    All processes build the whole network, but keep memory for their own part of it. `nn.get_parameters()` gives those
    of the own part afterwards; each process updates them by a solver of its own. Initial values are those of one
    process with the same seed. Functions outside of any place belong to the last place of their inputs.

    Args:
        build: A function that takes the inputs as variables and gives the loss, the mean over the examples.
        communicator: The processes, after `init`.
        shapes: The shapes of the inputs for a whole batch.
        micro_batches: How many parts a batch goes through in.
        group: Name of the group of processes; places are numbers within it.

    Raises:
        CommunicatorError: If the network cannot be divided, if `micro_batches` does not divide the batch, or if the
            processes build different networks: on every process. Parameters that were made are forgotten.
    """

    def __init__(
        self,
        build: Callable[..., Variable],
        communicator: Communicator,
        shapes: Sequence[Sequence[int]],
        micro_batches: int,
        group: str = "world",
    ) -> None:
        _check.callee("Pipeline", "build", build)
        self._members = members = members_of("Pipeline", communicator, group)
        self._communicator = communicator
        self._shapes = _shapes(shapes)
        self._micro_batches = _check.count("Pipeline", "micro_batches", micro_batches, CommunicatorError)
        communicator._agree(members, f"Pipeline of inputs {self._shapes} in {self._micro_batches} parts")
        wrong = next((s for s in self._shapes if not s or s[0] % self._micro_batches), None)
        if wrong is not None or not self._shapes:
            raise CommunicatorError(
                f"Pipeline: expected inputs whose first axis {self._micro_batches} micro-batches divide, got "
                f"{'none' if wrong is None else f'shape {wrong}'}"
            )
        before = set(get_parameters(grad_only=False))
        try:
            self._stages = [self._agreed(build)]
            copies = min(members.size - members.rank, self._micro_batches)
            self._stages += [self._stage(build)[0] for _ in range(copies - 1)]
        except BaseException:
            _forget(before)
            raise
        _forget(before | self._stages[0].parameters)
        self._sending: list[tuple[Any, NDArray[Any]]] = []

    def forward(self, *batch: ArrayLike) -> float:
        """The loss of a batch, on all processes.

        Args:
            batch: The inputs of the whole batch. A process looks at those that its own part uses.
        """
        return self._run((("forward", n) for n in range(self._micro_batches)), batch)

    def forward_backward(self, *batch: ArrayLike) -> float:
        """Add the gradients of a batch to those of the parameters.

        Args:
            batch: The inputs of the whole batch. A process looks at those that its own part uses.

        Returns:
            The loss, on all processes.

        Raises:
            CommunicatorError: If the inputs do not have the shapes of the pipeline.
        """
        return self._run(schedule(self._members.rank, self._members.size, self._micro_batches), batch)

    # --- Building

    def _stage(self, build: Callable[..., Variable]) -> tuple[Stage, str]:
        inputs = [Variable((shape[0] // self._micro_batches, *shape[1:])) for shape in self._shapes]
        own, places = self._members.rank, self._members.size
        with auto_forward(False), building_for(own if places > 1 else None):
            loss: Any = build(*inputs)
        if not isinstance(loss, Variable) or loss.parent is None or loss.size != 1:
            raise CommunicatorError(f"Pipeline: expected `build` to give the loss, one value, got {loss!r}")
        names = {v.data: name for name, v in get_parameters(grad_only=False).items()}
        told = hashlib.sha256(describe(loss).encode()).hexdigest()  # before the stage lets go of the others' parts
        return Stage(loss, inputs, names, own, places), told

    def _agreed(self, build: Callable[..., Variable]) -> Stage:
        """Build, and learn whether the others have built the same."""
        stage, failure = None, None
        try:
            stage, told = self._stage(build)
        except Exception as error:
            failure, told = error, f"{type(error).__name__}: {error}"
        with self._communicator._watched("Pipeline"):
            all_told = self._members.exchange(told)
        if failure is not None or stage is None:
            raise failure or CommunicatorError("Pipeline: expected a network, got none")
        for rank, text in zip(self._members.ranks, all_told, strict=True):
            if text != told:
                got = text if ":" in text else "another one"
                raise CommunicatorError(
                    f"Pipeline: expected the same network on all processes, got on rank {rank}: {got}"
                )
        return stage

    # --- Running

    def _run(self, steps: Any, batch: Sequence[ArrayLike]) -> float:
        arrays = [np.asarray(values) for values in batch]
        shapes = [array.shape for array in arrays]
        self._communicator._agree(self._members, f"a step of Pipeline with {shapes}")
        if shapes != self._shapes:
            raise CommunicatorError(f"Pipeline: expected inputs of shapes {self._shapes}, got {shapes}")
        total = np.zeros(1, np.float64)
        for what, n in steps:
            stage = self._stages[n % len(self._stages)]
            if what == "forward":
                total += self._forward(stage, n, arrays)
            elif stage.has_gradient:
                self._backward(stage, n)
        for request, _ in self._sending:
            with self._communicator._watched("the end of a step of Pipeline"):
                self._members.finish(request)
        self._sending.clear()
        with self._communicator._watched("the loss of Pipeline"):
            self._members.broadcast(total, self._members.size - 1)
        return float(total[0]) / self._micro_batches

    def _forward(self, stage: Stage, n: int, arrays: Sequence[NDArray[Any]]) -> float:
        for v, values in zip(stage.inputs, arrays, strict=True):
            if v is not None:
                rows = len(values) // self._micro_batches
                v.d = values[n * rows : (n + 1) * rows]
        for edge in stage.received:
            values = edge.value.data.get_data("w", dtype=np.float32)
            self._receive(values, edge.source, edge, n, 0)
        stage.forward()
        for edge in stage.sent:
            self._send(edge.value.data.get_data("r"), edge.target, edge, 0)
        return 0.0 if stage.loss is None else float(stage.loss.d)

    def _backward(self, stage: Stage, n: int) -> None:
        for v in stage.outputs:
            v.grad.zero()
        for edge in stage.sent:
            if edge.has_gradient:
                values = np.empty(edge.value.shape, np.float32)
                self._receive(values, edge.target, edge, n, 1)
                edge.value.grad.get_data("rw")[...] += values
        stage.backward(1.0 / self._micro_batches)
        for edge in stage.received:
            if edge.has_gradient:
                self._send(edge.value.grad.get_data("r"), edge.source, edge, 1)

    def _receive(self, values: NDArray[Any], source: int, edge: Edge, n: int, back: int) -> None:
        what = "gradient" if back else "value"
        with self._communicator._watched(f"a {what} of {values.shape} of part {n} from place {source}"):
            self._members.receive(values, source, _tag(edge, back))

    def _send(self, values: NDArray[Any], target: int, edge: Edge, back: int) -> None:
        self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
        kept = np.array(values, np.float32)
        self._sending.append((self._members.start_sending(kept, target, _tag(edge, back)), kept))


def _shapes(given: Any) -> list[tuple[int, ...]]:
    """The shapes of the inputs; refuse what are none."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(shape, (list, tuple)) for shape in given):
        raise CallError(f"Pipeline: expected `shapes` to be a list of shapes, got {given!r}")
    return [tuple(_check.whole("Pipeline", "shapes", length) for length in shape) for shape in given]


def _tag(edge: Edge, back: int) -> int:
    """A number for what goes one way along an edge: parts of a batch go in their order."""
    return 2 * edge.number + back


def _forget(kept: set[str]) -> None:
    """Forget the parameters of others."""
    for name in get_parameters(grad_only=False):
        if name not in kept:
            pop_parameter(name)
