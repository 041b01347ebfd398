"""Graphs of a model that are kept, whole or in stages: one ends where a node has to know values.

Knows nodes by number and values by name; knows no files and no calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Variable, forward_all
from ..read import reading
from ..read.building import outputs_of
from ..read.containers import Absent, Items, Maps, Words
from ..read.values import MOST_FIXED, NeedsValuesError, OnnxError, Value, check_whole
from .repeated import RepeatedNode, numbers
from .static_graph import StaticGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...rewrite.folding import Folding
    from ..read.building import Builder

__all__ = ["StageEndsError", "Stages", "keep", "readable"]

_MOST_GRAPHS = 8
"""How many graphs are kept beside each other, each for other shapes."""


class StageEndsError(NeedsValuesError):
    """A node has to know values that are computed.

    Args:
        at: The node.
    """

    def __init__(self, at: int) -> None:
        super().__init__(frozenset())
        self.at = at


class Stages:
    """Makes and runs the graphs of a model.

    Where values that are computed decide on shapes, a graph ends before the node that has to know them. That node is
    computed by itself in each call. If it gives arrays, as `NonZero` does, they enter a graph of what follows, which is
    kept for their shapes; if not, as with `Slice`, what follows is built anew.

    Args:
        graph: The `GraphProto`.
        builder: Builds its nodes.
        constants: Its initializers by name.
        folding: What folds graphs.

    Attributes:
        folding: Likewise; None where parameters may change.
    """

    def __init__(self, graph: Any, builder: Builder, constants: Mapping[str, Value], folding: Folding | None) -> None:
        self.folding = folding
        self._graph = graph
        self._builder = builder
        self._constants = constants
        # What a stage takes from earlier ones.
        self._carried: set[Variable] = set()

    def begin(self) -> None:
        """Say that a call of the model begins."""
        self._builder.begin()

    def graph(
        self, inputs: Sequence[tuple[str, Variable]], values: Mapping[str, Value | None], stop: int | None = None
    ) -> StaticGraph:
        """The graph of values, with what the nodes from `stop` on take, or the outputs of the model.

        Args:
            inputs: What each call gives, by name.
            values: What `build` has made.
            stop: The node after the last.
        """
        outputs: list[tuple[str, Value | None]]
        if stop is None:
            outputs = list(outputs_of(self._graph, values))
        else:
            read = reading.names_read(self._graph.node[stop:]) | {held.name for held in self._graph.output}
            read.difference_update(self._constants)
            outputs = [(name, value) for name, value in values.items() if name in read]
        made = StaticGraph(inputs, outputs, self._builder.watched)
        if stop is not None:
            made.stop = stop
        if self.folding is not None:
            self.folding.fold(made.roots, [*made.inputs, *self._carried])
        return made

    def build(
        self,
        values: dict[str, Value | None],
        tensors: Mapping[str, Any],
        start: int,
        stop: int | None = None,
        is_kept: bool = True,
    ) -> None:
        """Build nodes.

        Args:
            values: Values by name, to which those of the nodes are added.
            tensors: The inputs of the model.
            start: The first node.
            stop: The node after the last.
            is_kept: Whether the graph serves for other values, too; if not, those that decide on shapes are computed.

        Raises:
            StageEndsError: If a node of a graph that is kept has to know values that are computed.
            NeedsValuesError: If values of inputs decide on shapes.
        """

        def compute(held: list[Value]) -> bool:
            if not self._may_compute(held, tensors):
                return False
            if is_kept:
                raise StageEndsError(self._builder.at)
            _compute(held)
            return True

        self._builder.build(values, compute, start=start, stop=stop)

    def _may_compute(self, held: list[Value], tensors: Mapping[str, Any]) -> bool:
        """Whether variables follow from real numbers or from large inputs: no graph is kept for their values."""
        given = [tensors[name] for name in frozenset[str]().union(*(value.sources for value in held))]
        first = held[0].variable
        is_input = first.parent is None and first not in self._carried
        if is_input or any(isinstance(x, Variable) for x in given):
            return False
        return any(x.dtype.kind == "f" or x.size > MOST_FIXED for x in given)

    def run(
        self, stage: StaticGraph, arrays: Sequence[Any], tensors: Mapping[str, Any], are_whole: bool = False
    ) -> Any:
        """Compute the outputs of the model by a graph, and by those after it if it is not the last.

        Args:
            stage: The graph.
            arrays: Its inputs.
            tensors: The inputs of the model by name.
            are_whole: Whether it is known that float32 has their whole numbers.
        """
        if stage.stop is None:
            return stage.run(arrays, are_whole)
        try:
            stage.compute(arrays, are_whole)
            if stage.later:  # The node has given arrays before.
                if stage.repeated is None:
                    stage.repeated = self._repeated(stage, stage.stop)
                made = stage.repeated.outputs()
            else:
                values = self._taken(stage)
                self.build(values, tensors, stage.stop, stage.stop + 1, is_kept=False)
                made = {name: values[name] for name in self._graph.node[stage.stop].output if name}
            if not all(map(_is_array, made.values())):  # The node is another one for other values.
                if stage.repeated is not None:
                    values = {**self._taken(stage), **stage.repeated.known, **made}
                watched = dict(self._builder.watched)
                self.build(values, tensors, stage.stop + 1, is_kept=False)
                return StaticGraph([], outputs_of(self._graph, values), watched | self._builder.watched).run([])
            key = tuple((value.shape, value.dtype) for value in made.values())  # type: ignore[union-attr]
            later = stage.later.get(key)
            if later is None:
                later = self._after(stage, made, tensors)
                keep(stage.later, key, later)
            given = [made[name].array for name in later.names]  # type: ignore[union-attr]
            return self.run(later, given, tensors, are_whole=True)
        finally:
            stage.release()

    def _repeated(self, stage: StaticGraph, stop: int) -> RepeatedNode:
        """The node after a stage, on constants."""
        proto, outputs = self._graph.node[stop], dict(stage.outputs)
        takes = {name: outputs.get(name) or self._constants.get(name) for name in reading.names_read([proto])}
        return RepeatedNode(self._builder, stop, list(proto.output), takes, self.folding is not None)

    def _taken(self, stage: StaticGraph) -> dict[str, Value | None]:
        """What nodes after a stage take."""
        self._carried.clear()
        return {**self._constants, **{name: self._beyond(x) for name, x in stage.outputs}}

    def _after(self, stage: StaticGraph, made: Mapping[str, Value | None], tensors: Mapping[str, Any]) -> StaticGraph:
        """What follows the node after a stage, up to the next one that has to know values.

        Args:
            stage: The stage.
            made: What the node gives; it enters as variables, so that the graph is one for all values.
            tensors: The inputs of the model.
        """
        sources = frozenset[str]().union(*(value.sources for _, value in stage.outputs if value is not None))
        stop: int | None = None
        while True:
            values = self._taken(stage)
            inputs = []
            for name, value in made.items():
                variable = Variable.from_numpy_array(readable(value.array))  # type: ignore[union-attr]
                self._carried.add(variable)
                inputs.append((name, variable))
                values[name] = Value(variable, value.dtype, sources=sources)  # type: ignore[union-attr]
            try:
                self.build(values, tensors, stage.stop + 1, stop)  # type: ignore[operator]
                return self.graph(inputs, values, stop)
            except StageEndsError as end:
                stop = end.at

    def _beyond(self, value: Value | None) -> Value | None:
        """A value of one stage as an input of the next."""
        if isinstance(value, Items):
            return Items([self._beyond(item) for item in value.items], value.dtype)  # type: ignore[misc]
        if isinstance(value, Words):
            return Words(self._beyond(value.places), value.vocabulary)  # type: ignore[arg-type]
        if isinstance(value, Maps):
            return Maps(self._beyond(value.scores), value.names)  # type: ignore[arg-type]
        if value is None or not value.is_computed:
            return value
        found = value.variable.get_unlinked_variable(need_grad=False)
        self._carried.add(found)
        return Value(found, value.dtype, sources=value.sources)


def _compute(held: list[Value]) -> None:
    """Make constants of variables."""
    forward_all([value.variable for value in held if value.variable.parent is not None])
    for value in held:
        value.becomes(numbers(value))


def keep(graphs: dict[Any, StaticGraph], key: Any, graph: StaticGraph) -> None:
    """Keep a graph; where there are too many, the oldest goes.

    Args:
        graphs: The graphs that are kept.
        key: What it is kept for.
        graph: The graph.
    """
    if len(graphs) >= _MOST_GRAPHS:
        del graphs[next(iter(graphs))]
    graphs[key] = graph


def _is_array(value: Value | None) -> bool:
    """Whether what a node gives is an array that a graph can take."""
    if value is None or isinstance(value, (Absent, Items, Maps, Words)) or not value.known:
        return False
    try:
        check_whole(value.static(), "an array")
    except OnnxError:
        return False
    return True


def readable(x: Any) -> Any:
    """An array of a type that variables have.

    Args:
        x: An array of any type of numbers.
    """
    return x if x.dtype.kind in "fiub" else x.astype(np.float32)
