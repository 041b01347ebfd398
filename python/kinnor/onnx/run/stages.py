"""Cached graphs of a model, whole or in stages. A stage ends before a node that needs computed values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Variable, forward_all
from ..._graph_pool import keep
from ...modes import auto_forward
from ..read import reading
from ..read.building import outputs_of
from ..read.containers import Absent, Items, Maps, Words
from ..read.values import MOST_FIXED, NeedsValuesError, OnnxError, Value, cast, check_whole
from .static_graph import StaticGraph, computed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ...rewrite.folding import Folding
    from ..read.building import Builder
    from ..read.following import Following
    from ..read.values import Node

__all__ = ["RenewedValue", "RepeatedNode", "StageEndsError", "Stages", "numbers", "readable"]


class RenewedValue(Value):
    """A constant with the value that a graph computed last.

    Args:
        computed: A value of that graph.
    """

    def __init__(self, computed: Value) -> None:
        super().__init__(computed.variable.get_unlinked_variable(need_grad=False), computed.dtype)

    @property
    def array(self) -> NDArray[Any]:
        """The current elements.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        return numbers(self)

    @property
    def is_computed(self) -> bool:
        """False: it is a constant of the node that reads it, which is built after the graph has run."""
        return False

    @property
    def known(self) -> bool:
        """True: it counts as a constant."""
        return True


class RepeatedNode:
    """A node whose inputs are constants, including values that a graph before it has computed.

    Args:
        builder: The builder of the model.
        at: Index of the node.
        gives: The names of its outputs.
        takes: Its inputs by name.
        are_fixed: Whether parameters count as constants, because they never change.

    Attributes:
        known: The inputs as constants, by name.
    """

    __slots__ = ("_at", "_builder", "_gives", "_node", "known")

    def __init__(
        self, builder: Builder, at: int, gives: list[str], takes: Mapping[str, Value | None], are_fixed: bool
    ) -> None:
        self.known = dict(takes)
        self._builder, self._at, self._gives = builder, at, gives
        self._node: Node | None = None
        for name, value in takes.items():
            if value is None or value.known:
                continue
            if value.is_computed:
                self.known[name] = RenewedValue(value)
            elif are_fixed:
                self.known[name] = Value(value.static())

    def outputs(self) -> dict[str, Value | None]:
        """The outputs by name, for the current input values."""
        node = self._node
        if node is None:
            node = self._builder.node(self._at, self.known)
            self._node = node if node.run is None else None  # nodes with inner graphs are rebuilt in each call
        return {name: value for name, value in zip(self._gives, self._builder.again(node), strict=False) if name}


def numbers(value: Value) -> NDArray[Any]:
    """The elements of a computed value, in its ONNX element type.

    Args:
        value: The value.

    Raises:
        OnnxError: If an integer is too large for float64.
    """
    array = cast(value.variable.d, value.dtype)
    check_whole(array, "a value that decides on shapes", is_computed=True)
    return array


class StageEndsError(NeedsValuesError):
    """Raised while building a graph, at a node that needs computed values.

    Args:
        at: Index of the node.
    """

    def __init__(self, at: int) -> None:
        super().__init__(frozenset())
        self.at = at


class Stages:
    """Builds and runs the graphs of a model.

    If shapes depend on computed values, a graph ends before the node that needs them. That node is computed separately
    in each call. If its outputs are arrays, as for `NonZero`, they are inputs of a next graph, which is cached by their
    shapes. Otherwise, as for `Slice`, the rest of the model is rebuilt in each call.

    Args:
        graph: The `GraphProto`.
        builder: The builder of its nodes.
        constants: Its initializers by name.
        folding: The folding of graphs.
    """

    def __init__(self, graph: Any, builder: Builder, constants: Mapping[str, Value], folding: Folding | None) -> None:
        self._graph = graph
        self._builder = builder
        self.folding = folding
        self._constants = constants
        # Variables that a stage gets from earlier ones.
        self._carried: set[Variable] = set()

    @property
    def folding(self) -> Folding | None:
        """The folding of graphs; None if parameters may change."""
        return self._builder.folding

    @folding.setter
    def folding(self, folding: Folding | None) -> None:
        """Sets the folding of graphs."""
        self._builder.folding = folding

    def begin(self) -> None:
        """Marks the start of a call of the model."""
        self._builder.begin()

    def graph(
        self,
        inputs: Sequence[tuple[str, Variable]],
        values: Mapping[str, Value | None],
        stop: int | None = None,
        following: Following | None = None,
    ) -> StaticGraph:
        """A static graph of built values. Its outputs are the model's outputs, or the inputs of nodes from `stop` on.

        Args:
            inputs: The inputs by name.
            values: The values from `build`.
            stop: Index of the node after the last one; None for the whole model.
            following: Makes the graph fit for inputs of other lengths.
        """
        outputs: list[tuple[str, Value | None]]
        if stop is None:
            outputs = list(outputs_of(self._graph, values))
        else:
            read = reading.names_read(self._graph.node[stop:]) | {held.name for held in self._graph.output}
            read.difference_update(self._constants)
            outputs = [(name, value) for name, value in values.items() if name in read]
        if self.folding is not None:
            self.folding.share(self._builder.shared_variables())
        if following is not None:
            self._fold_apart(following, inputs, values, outputs)
        made = StaticGraph(inputs, outputs, self._builder.watched)
        made.following = following
        if stop is not None:
            made.stop = stop
        if self.folding is not None and following is None:
            self.folding.fold(made.roots, [*made.inputs, *self._carried])
        return made

    def _fold_apart(
        self,
        following: Following,
        inputs: Sequence[tuple[str, Variable]],
        values: Mapping[str, Value | None],
        outputs: Sequence[tuple[str, Value | None]],
    ) -> None:
        """Folds a graph without the nodes that depend on lengths, and then each of them."""
        found = computed(outputs)
        more, given = following.parts(values)
        if self.folding is not None:
            whole = [x for x in found if x.parent is not None]
            self.folding.fold([*whole, *more], [*(variable for _, variable in inputs), *given])
        with auto_forward(False):
            following.join(values, self._builder.watched, self.folding, found)

    def move(self, graph: StaticGraph, given: Mapping[str, Any]) -> None:
        """Gives a graph inputs of other lengths. After an error the graph cannot be used.

        Args:
            graph: The graph.
            given: The inputs by name.

        Raises:
            OnnxError: If the graph for these inputs has other functions.
        """
        following = graph.following
        if following is None:
            raise OnnxError("expected a graph that can be given other lengths, got another")
        with auto_forward(False):
            now = following.move(self._builder, self.folding, given, computed(graph.outputs))
        graph.outputs = [(name, now.get(name, value)) for name, value in graph.outputs]

    def build(
        self,
        values: dict[str, Value | None],
        tensors: Mapping[str, Any],
        start: int,
        stop: int | None = None,
        is_kept: bool = True,
        following: Following | None = None,
    ) -> None:
        """Builds nodes.

        Args:
            values: Values by name. Outputs of the nodes are added.
            tensors: The inputs of the model.
            start: Index of the first node.
            stop: Index of the node after the last one.
            is_kept: Whether the graph will be cached for other values. If not, needed values are computed immediately.
            following: Notes what depends on lengths of the inputs.

        Raises:
            StageEndsError: If a node of a cached graph needs computed values.
            NeedsValuesError: If shapes depend on values of inputs.
        """

        def compute(held: list[Value]) -> bool:
            """Turns variables into constants if no cached graph depends on it. Returns True if it did."""
            if not self._may_compute(held, tensors):
                return False
            if is_kept:
                raise StageEndsError(self._builder.at)
            _compute(held)
            return True

        self._builder.build(values, compute, start=start, stop=stop, following=following)

    def _may_compute(self, held: list[Value], tensors: Mapping[str, Any]) -> bool:
        """True if variables depend on floats or large inputs, so that no graph can be cached for their values."""
        given = [tensors[name] for name in frozenset[str]().union(*(value.sources for value in held))]
        first = held[0].variable
        is_input = first.parent is None and first not in self._carried
        if is_input or any(isinstance(x, Variable) for x in given):
            return False
        return any(x.dtype.kind == "f" or x.size > MOST_FIXED for x in given)

    def run(
        self, stage: StaticGraph, arrays: Sequence[Any], tensors: Mapping[str, Any], are_whole: bool = False
    ) -> Any:
        """Computes the outputs of the model by a graph, and by later stages if it is not the last.

        Args:
            stage: The graph.
            arrays: Its inputs.
            tensors: The inputs of the model by name.
            are_whole: Whether integers among `arrays` were already checked to be exact in float64.
        """
        if stage.stop is None:
            return stage.run(arrays, are_whole)
        try:
            stage.compute(arrays, are_whole)
            if stage.later:  # the node had arrays as outputs before
                if stage.repeated is None:
                    stage.repeated = self._repeated(stage, stage.stop)
                made = stage.repeated.outputs()
            else:
                values = self._values_after(stage)
                self.build(values, tensors, stage.stop, stage.stop + 1, is_kept=False)
                made = {name: values[name] for name in self._graph.node[stage.stop].output if name}
            if not all(map(_is_array, made.values())):  # the outputs cannot be inputs of a cached graph
                if stage.repeated is not None:
                    values = {**self._values_after(stage), **stage.repeated.known, **made}
                watched = dict(self._builder.watched)
                self.build(values, tensors, stage.stop + 1, is_kept=False)
                return StaticGraph([], outputs_of(self._graph, values), watched | self._builder.watched).run([])
            key = tuple((value.shape, value.dtype) for value in made.values())  # type: ignore[union-attr]
            later = stage.later.get(key)
            if later is None:
                later = self._next_stage(stage, made, tensors)
                keep(stage.later, key, later)
            given = [made[name].array for name in later.names]  # type: ignore[union-attr]
            return self.run(later, given, tensors, are_whole=True)
        finally:
            stage.release()

    def _repeated(self, stage: StaticGraph, stop: int) -> RepeatedNode:
        """The node after a stage, with constant inputs."""
        proto, outputs = self._graph.node[stop], dict(stage.outputs)
        takes = {name: outputs.get(name) or self._constants.get(name) for name in reading.names_read([proto])}
        return RepeatedNode(self._builder, stop, list(proto.output), takes, self.folding is not None)

    def _values_after(self, stage: StaticGraph) -> dict[str, Value | None]:
        """The values that nodes after a stage can read, by name."""
        self._carried.clear()
        return {**self._constants, **{name: self._as_next_input(x) for name, x in stage.outputs}}

    def _next_stage(
        self, stage: StaticGraph, made: Mapping[str, Value | None], tensors: Mapping[str, Any]
    ) -> StaticGraph:
        """The next stage: a graph from the node after a stage up to the next node that needs computed values.

        Args:
            stage: The stage.
            made: The outputs of the node. They become inputs of the graph, which then works for all values.
            tensors: The inputs of the model.
        """
        sources = frozenset[str]().union(*(value.sources for _, value in stage.outputs if value is not None))
        stop: int | None = None
        while True:
            values = self._values_after(stage)
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

    def _as_next_input(self, value: Value | None) -> Value | None:
        """A value of one stage as an input of the next."""
        if isinstance(value, Items):
            return Items([self._as_next_input(item) for item in value.items], value.dtype)  # type: ignore[misc]
        if isinstance(value, Words):
            return Words(self._as_next_input(value.places), value.vocabulary)  # type: ignore[arg-type]
        if isinstance(value, Maps):
            return Maps(self._as_next_input(value.scores), value.names)  # type: ignore[arg-type]
        if value is None or not value.is_computed:
            return value
        found = value.variable.get_unlinked_variable(need_grad=False)
        self._carried.add(found)
        return Value(found, value.dtype, sources=value.sources)


def _compute(held: list[Value]) -> None:
    """Computes variables and turns them into constants."""
    forward_all([value.variable for value in held if value.variable.parent is not None])
    for value in held:
        value.becomes(numbers(value))


def _is_array(value: Value | None) -> bool:
    """True if a node's output is a constant array that can be an input of a graph."""
    if value is None or isinstance(value, (Absent, Items, Maps, Words)) or not value.known:
        return False
    try:
        check_whole(value.static(), "an array")
    except OnnxError:
        return False
    return True


def readable(x: Any) -> Any:
    """An array in an element type that variables support: float32 instead of bfloat16 and the like.

    Args:
        x: An array of any number type.
    """
    return x if x.dtype.kind in "fiub" else x.astype(np.float32)
