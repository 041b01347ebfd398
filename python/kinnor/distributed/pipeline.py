"""Pipeline parallelism: layers of a network on different processes, and batches in micro-batches.

Each process has only the parameters and values of its own place. `Stage` has the part of the graph that it runs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from .. import _check
from .. import functions as F
from .._core import CallError, Variable
from ..modes import auto_forward
from ..parameter import get_parameters, pop_parameter
from ..placement import building_for, place_of
from .communicator import members_of
from .transport import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from .._core import Function, NdArray
    from .communicator import Communicator

__all__ = ["Edge", "Pipeline", "Stage", "describe", "schedule"]


class Edge(NamedTuple):
    """A value that is sent from one place to a later one.

    Attributes:
        number: Its number, the same on all processes.
        value: The variable.
        source: The place that computes it.
        target: The place that reads it.
        has_gradient: Whether its gradient is sent back.
    """

    number: int
    value: Variable
    source: int
    target: int
    has_gradient: bool


class Stage:
    """The part of a graph at one place. The parts of other places are detached and freed.

    Args:
        loss: The loss, at the last place.
        inputs: Inputs of the whole network.
        parameters: Names of parameters by their arrays.
        own: The place.
        places: Number of places.

    Raises:
        CommunicatorError: If the graph cannot be divided. All processes raise the same error.
    """

    def __init__(
        self, loss: Variable, inputs: Sequence[Variable], parameters: Mapping[NdArray, str], own: int, places: int
    ) -> None:
        functions = _functions(loss)
        at = _places(functions, places)
        edges = _edges(functions, at)
        _check_stages(functions, at, parameters, places)
        mine = [f for f, place in zip(functions, at, strict=True) if place == own]
        used = {v for f in mine for v in f.inputs}
        self.inputs = [v if v in used else None for v in inputs]
        self.parameters = {parameters[v.data] for v in used if v.parent is None and v.data in parameters}
        self.received = [edge for edge in edges if edge.target == own]
        self.sent = [edge for edge in edges if edge.source == own]
        self.loss = loss if own == places - 1 else None
        for edge in self.received:
            edge.value._clear_parent()
            edge.value.need_grad = edge.has_gradient
        outputs = list(dict.fromkeys(edge.value for edge in self.sent))
        for v in outputs:
            v.persistent = True
        self.outputs = outputs
        self._end = loss if self.loss is not None else outputs[0]
        if len(outputs) > 1:
            self._end = F.sink(*outputs, one_input_grad=False)
        self.has_gradient = any(f.need_grad for f in mine)

    def forward(self) -> None:
        """Computes the outputs of the stage, or the loss."""
        self._end.forward(clear_no_need_grad=True)

    def backward(self, scale: float) -> None:
        """Computes gradients, starting from the gradients of the outputs, or from the loss.

        Args:
            scale: Factor of the loss.
        """
        for edge in self.received:
            edge.value.grad.zero()
        if self.loss is not None:
            self.loss.backward(scale, clear_buffer=True)
        elif len(self.outputs) > 1:
            self._end.backward(clear_buffer=True)
        else:
            self._end.backward(self._end.grad, clear_buffer=True)


def describe(loss: Variable) -> str:
    """A text of the functions, places and shapes of a graph, for comparison between processes."""
    return "\n".join(
        f"{f.name} at {place_of(f)} of {[v.shape for v in f.inputs]} {sorted(map(str, f.arguments.items()))}"
        for f in _functions(loss)
    )


def _functions(loss: Variable) -> list[Function]:
    """The functions that compute the loss, in the order of a run."""
    found: list[Function] = []
    loss.visit(found.append)
    return found


def _places(functions: Sequence[Function], places: int) -> list[int]:
    """The place of each function: the assigned one, or else the latest place of its inputs."""
    of: dict[Variable, int] = {}
    at = []
    for f in functions:
        given = place_of(f) if places > 1 else 0
        before = max((of.get(v, 0) for v in f.inputs), default=0)
        place = before if given is None else given
        if place >= places:
            raise CommunicatorError(
                f"Pipeline: expected places from 0 to {places - 1}, one for each process, got {f.name} at place {place}"
            )
        if place < before:
            raise CommunicatorError(
                f"Pipeline: expected values to go to later places, got {f.name} at place {place} with an input from "
                f"place {before}"
            )
        of.update(dict.fromkeys(f.outputs, place))
        at.append(place)
    return at


def _edges(functions: Sequence[Function], at: Sequence[int]) -> list[Edge]:
    """All values that are sent between places."""
    of: dict[Variable, int] = {}
    found: dict[tuple[Variable, int], Edge] = {}
    for f, place in zip(functions, at, strict=True):
        for v in f.inputs:
            source = of.get(v, place)
            if source != place and (v, place) not in found:
                found[v, place] = Edge(len(found), v, source, place, bool(v.need_grad))
        of.update(dict.fromkeys(f.outputs, place))
    return list(found.values())


def _check_stages(
    functions: Sequence[Function], at: Sequence[int], parameters: Mapping[NdArray, str], places: int
) -> None:
    """Raises CommunicatorError unless all places have functions, the loss is last, and no parameter is shared."""
    idle = sorted(set(range(places)) - set(at))
    if idle:
        raise CommunicatorError(
            f"Pipeline: expected each of the {places} processes to have a part of the network, got no function that "
            f"leads to the loss at place {idle[0]}"
        )
    if at[-1] != places - 1:
        raise CommunicatorError(f"Pipeline: expected the loss at the last place, {places - 1}, got place {at[-1]}")
    homes: dict[str, int] = {}
    for f, place in zip(functions, at, strict=True):
        for v in f.inputs:
            name = parameters.get(v.data) if v.parent is None else None
            if name is not None and homes.setdefault(name, place) != place:
                raise CommunicatorError(
                    f"Pipeline: expected parameter {name!r} to be used at one place, got places {homes[name]} and "
                    f"{place}"
                )


def schedule(place: int, places: int, micro_batches: int) -> Iterator[tuple[Literal["forward", "backward"], int]]:
    """The order of forward and backward runs of one process in a step: the 1F1B schedule.

    Args:
        place: The place of the process.
        places: Number of places.
        micro_batches: Number of micro-batches.

    Yields:
        `"forward"` or `"backward"`, and the number of the micro-batch. At any time, at most `places - place`
        micro-batches have run forward but not backward.

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
    """A static network over several processes. Each runs the functions that `nn.place` assigns to its rank.

    All processes build the whole network, but allocate memory for their own part only. Afterwards,
    `nn.get_parameters()` returns the parameters of the own part, and each process updates them by its own solver.
    Initial values are the same as in one process with the same seed. Functions outside of any `nn.place` block belong
    to the latest place of their inputs.

    Args:
        build: A function from the input variables to the loss, the mean over the examples.
        communicator: The processes, after `init`.
        shapes: The shapes of the inputs for a whole batch.
        micro_batches: Number of micro-batches in a batch.
        group: Name of the group of processes; places are ranks within it.

    Raises:
        CommunicatorError: If the network cannot be divided, if `micro_batches` does not divide the batch, or if the
            processes build different networks. It is raised on every process, and new parameters are removed.
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
            batch: The inputs of the whole batch. A process reads only the inputs that its own part uses.
        """
        return self._run((("forward", n) for n in range(self._micro_batches)), batch)

    def forward_backward(self, *batch: ArrayLike) -> float:
        """Run a batch forward and backward, and add its gradients to the `grad` of the parameters.

        Args:
            batch: The inputs of the whole batch. A process reads only the inputs that its own part uses.

        Returns:
            The loss, on all processes.

        Raises:
            CommunicatorError: If the inputs do not have the shapes of the pipeline.
        """
        return self._run(schedule(self._members.rank, self._members.size, self._micro_batches), batch)

    # --- Building

    def _stage(self, build: Callable[..., Variable]) -> tuple[Stage, str]:
        """Builds the network for a micro-batch. Returns this process's stage, and a hash of the whole network."""
        inputs = [Variable((shape[0] // self._micro_batches, *shape[1:])) for shape in self._shapes]
        own, places = self._members.rank, self._members.size
        with auto_forward(False), building_for(own if places > 1 else None):
            loss: Any = build(*inputs)
        if not isinstance(loss, Variable) or loss.parent is None or loss.size != 1:
            raise CommunicatorError(f"Pipeline: expected `build` to give the loss, one value, got {loss!r}")
        names = {v.data: name for name, v in get_parameters(grad_only=False).items()}
        told = hashlib.sha256(describe(loss).encode()).hexdigest()  # before the stage frees the other parts
        return Stage(loss, inputs, names, own, places), told

    def _agreed(self, build: Callable[..., Variable]) -> Stage:
        """Builds the first stage. Raises on all processes if one failed or built another network."""
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
        """Runs a schedule on a batch. Returns the loss, on all processes."""
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
        """Runs micro-batch `n` forward, and sends its outputs. Returns the loss at the last place, else 0."""
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
        """Runs micro-batch `n` backward, and sends the gradients of its inputs."""
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
        """Receives the value (`back` is 0) or gradient (1) of an edge for micro-batch `n`."""
        what = "gradient" if back else "value"
        with self._communicator._watched(f"a {what} of {values.shape} of part {n} from place {source}"):
            self._members.receive(values, source, _tag(edge, back))

    def _send(self, values: NDArray[Any], target: int, edge: Edge, back: int) -> None:
        """Starts to send a copy of the value (`back` is 0) or gradient (1) of an edge."""
        self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
        kept = np.array(values, np.float32)
        self._sending.append((self._members.start_sending(kept, target, _tag(edge, back)), kept))


def _shapes(given: Any) -> list[tuple[int, ...]]:
    """The checked shapes of the inputs as tuples."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(shape, (list, tuple)) for shape in given):
        raise CallError(f"Pipeline: expected `shapes` to be a list of shapes, got {given!r}")
    return [tuple(_check.whole("Pipeline", "shapes", length) for length in shape) for shape in given]


def _tag(edge: Edge, back: int) -> int:
    """The MPI tag of values (`back` is 0) or gradients (1) of an edge. Micro-batches arrive in order."""
    return 2 * edge.number + back


def _forget(kept: set[str]) -> None:
    """Removes all registered parameters except those named in `kept`."""
    for name in get_parameters(grad_only=False):
        if name not in kept:
            pop_parameter(name)
