"""A stage of a pipeline: the part of a static graph that one process runs, with its inputs and outputs.

Sending and receiving is up to `pipeline`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .. import functions as F
from ..placement import place_of
from .transport import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._core import Function, NdArray, Variable

__all__ = ["Edge", "Stage", "describe"]


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
        _check(functions, at, parameters, places)
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


def _check(functions: Sequence[Function], at: Sequence[int], parameters: Mapping[NdArray, str], places: int) -> None:
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
