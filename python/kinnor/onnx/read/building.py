"""Builds graphs of ONNX models: each node by the table row of its operator, or by the operator's definition."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import UnsupportedError, Variable, scope_auto_forward
from ...context import number_of, numbered_context
from ...files.progress import each
from ...modes import auto_forward
from . import reading
from .body import Body
from .containers import Words, words_of
from .expansion import BUDGET, Budget, definition
from .shared import SharedValues
from .tables import TABLE
from .values import (
    COMPUTES,
    DOUBLE,
    NeedsValuesError,
    Node,
    OnnxError,
    Value,
    cast,
    check_size,
    may_outgrow,
    note_lengths,
    note_same,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ...rewrite.folding import Folding
    from .following import Following
    from .tensors import Folder
    from .values import Row

__all__ = ["Builder", "Prepared", "constant", "outputs_of"]

_MOVES = frozenset(
    [
        *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze", "ArrayFeatureExtractor"),
    ]
)
"""Operators that move elements and do not look at them: they take strings as well."""

_REPEATING = ("Expand", "Tile")
"""Operators that repeat elements."""

_AT_INDICES = ("GatherElements", "Scatter", "ScatterElements")
"""Operators that also read what a node made their indices of by repeating elements, after their inputs."""


class Prepared:
    """The parts of a node that are equal in all graphs.

    Args:
        proto: The `NodeProto`.
        attributes: Its attributes by name, as Python values.

    Attributes:
        made: Objects that graphs have derived from its constants, by name.
        inputs: The names of its inputs.
        reads: The names of other values that it reads if there are any, after the inputs.
        outputs: The names of its outputs.
        operator: The name of its operator.
        domain: The domain of its operator.
        has_graphs: True if it has inner graphs.
    """

    __slots__ = ("attributes", "domain", "has_graphs", "inputs", "made", "operator", "outputs", "proto", "reads")

    def __init__(self, proto: Any, attributes: dict[str, Any]) -> None:
        self.proto = proto
        self.attributes = attributes
        self.made: dict[str, Any] = {}
        self.inputs: list[str] = proto.input[:]
        self.outputs: list[str] = proto.output[:]
        self.reads: list[str] = []
        self.operator: str = proto.op_type
        domain = proto.domain
        self.domain: str = "" if domain == "ai.onnx" else domain
        self.has_graphs = reading.has_graphs(proto)


class Builder:
    """Builds the graph of a model, or a part of it, from values of its inputs.

    Args:
        proto: The `ModelProto`.
        folder: The folder with external tensor files.
        constants: The initializers by name.

    Attributes:
        at: Index of the current node.
        folding: The folding of graphs; None if parameters may change.
        watched: Integer variables of the last built graph that may become too large for float64, by name in errors.
    """

    def __init__(self, proto: Any, folder: Folder | None, constants: Mapping[str, Value]) -> None:
        self._graph = proto.graph
        self._folder = folder
        self._versions = reading.versions_of(proto)
        # Nodes of inner graphs by their place in memory, and nodes of the graph of the model.
        self._prepared: dict[int, Prepared] = {}
        self._nodes = [Prepared(node, reading.attributes_of(node, folder)) for node in proto.graph.node]
        self._shared = SharedValues(self._nodes, constants)
        self.at = 0
        self.folding: Folding | None = None
        self.watched: dict[str, Variable] = {}
        self._budget = Budget()
        repeated: dict[str, str] = {}
        for at, held in enumerate(self._nodes):
            if held.domain:
                continue
            if held.operator == "Constant" and len(held.outputs) == 1:
                array = held.attributes.get("value")
                if isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
                    self._shared.hold(at, held.outputs[0], Value(array))
            elif held.operator in _REPEATING:
                repeated[held.outputs[0]] = held.inputs[0]
            elif held.operator in _AT_INDICES and held.inputs[1] in repeated:
                held.reads.append(repeated[held.inputs[1]])

    def build(
        self,
        values: dict[str, Value | None],
        compute: Callable[[list[Value]], bool],
        start: int = 0,
        stop: int | None = None,
        following: Following | None = None,
    ) -> None:
        """Builds nodes, and adds their outputs to the values.

        Args:
            values: The inputs and constants by name.
            compute: Turns variables on which shapes depend into constants. Returns True if it did.
            start: Index of the first node.
            stop: Index of the node after the last one.
            following: Notes what depends on lengths of the inputs.

        Raises:
            NeedsValuesError: If shapes depend on values of inputs.
            UnsupportedError: If an operator or a variant of it is not supported.
            OnnxError: If a node cannot be built.
        """
        self.watched.clear()
        with auto_forward(False), _computing(compute, self._budget):
            self._run(self._graph, values, start=start, stop=stop, following=following)

    def shared_variables(self) -> list[Variable]:
        """The constants that all graphs of the model share, as far as graphs read them."""
        return self._shared.variables()

    def begin(self) -> None:
        """Marks the start of a call of the model: its budget of nodes is full again."""
        self._budget = Budget()

    def _prepare(self, node: Any) -> Prepared:
        """Returns the parts of a node of an inner graph that are equal in all graphs."""
        # The message is kept beside them, so that its place in memory names it; in a copy that is another.
        found = self._prepared.get(id(node))
        if found is None or found.proto is not node:
            found = self._prepared[id(node)] = Prepared(node, reading.attributes_of(node, self._folder))
        return found

    def _run(
        self,
        graph: Any,
        values: dict[str, Value | None],
        versions: Mapping[str, int] | None = None,
        start: int = 0,
        stop: int | None = None,
        following: Following | None = None,
    ) -> None:
        """Builds a graph, a part of it, or an operator's definition, and adds the outputs to `values`.

        A definition has its own `versions` of operators.
        """
        if graph is not self._graph:
            self._budget.take(len(graph.node))
            for node in graph.node:
                self._add(self._parts(node, versions), values, versions)
            note_same(None)  # what an inner node noted does not hold for the outer one
            return
        values.update(self._shared.values)
        nodes = self._nodes[start:stop]
        for at, held in enumerate(each(nodes, "build ONNX") if not start else nodes, start):
            self.at = at
            if at in self._shared.nodes:
                continue
            if held.operator == "Identity" and _is_computed_here(value := values.get(held.inputs[0])):
                values[held.outputs[0]] = value  # without a copy
                if following is not None:
                    following.pass_on(held.proto)
            elif following is None:
                self._add(held, values, versions)
            else:
                with following.node(at, held.proto, [*held.inputs, *held.reads], values):
                    self._add(held, values, versions)
            self._shared.note(at, held, values)

    def node(self, at: int, values: Mapping[str, Value | None]) -> Node:
        """A node of the model with its inputs.

        Args:
            at: Index of the node.
            values: Values by name.
        """
        return self._with_inputs(self._nodes[at], values, None)

    def again(self, node: Node) -> list[Value]:
        """The outputs of a node with constant inputs.

        Args:
            node: The node.

        Raises:
            OnnxError: If it cannot be built.
        """
        with self.repeating():
            return self.made(node)

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Lets a `with` block build nodes of the model again by `made`."""
        outer = scope_auto_forward(False)
        token = BUDGET.set(self._budget)
        try:
            yield
        finally:
            BUDGET.reset(token)
            scope_auto_forward(outer)

    def made(self, node: Node) -> list[Value]:
        """The outputs of a node of the model, in a block of `repeating`.

        Args:
            node: The node.

        Raises:
            OnnxError: If it cannot be built.
        """
        return self._made(node, self._versions)

    def direct(self, node: Node, is_computed: bool) -> Callable[[Node], Any] | None:
        """Returns what makes the output of a node without a look at types and names. None if nothing does.

        Args:
            node: The node.
            is_computed: True if a run computes the output, False if all inputs are constants.
        """
        row = TABLE.get((node.domain, node.operator))
        if row is None or node.run is not None or any(isinstance(value, Words) for value in node.inputs):
            return None
        if not is_computed:
            return row.fold
        given = [value for value in node.inputs if value is not None]
        return row.build if node.n_outputs == 1 and not _is_double(node, given) else None

    def _parts(self, node: Any, versions: Mapping[str, int] | None) -> Prepared:
        """Returns the parts of a node of an inner graph, or of a definition, that are equal in all graphs."""
        return self._prepare(node) if versions is None else Prepared(node, reading.attributes_of(node, self._folder))

    def _with_inputs(
        self, held: Prepared, values: Mapping[str, Value | None], versions: Mapping[str, int] | None
    ) -> Node:
        """A prepared node with its inputs."""
        node, known = held.proto, self._versions if versions is None else versions
        inputs = [values[name] if name else None for name in held.inputs]
        if held.reads:
            inputs += [values.get(name) for name in held.reads]
        version = known.get(held.domain, 1)
        if not held.has_graphs:
            return Node(node, held.domain, held.attributes, inputs, version, made=held.made)

        def inside(held: Any, given: Sequence[Value] = ()) -> list[Value]:
            """Builds an inner graph of the node. Returns its outputs."""
            return self._inside(held, given, values, versions)

        def apart(graph: Any, places: Sequence[int], n_steps: int, given: Sequence[Value], **more: Any) -> Body | None:
            """Builds an inner graph apart from the outer one, or returns None if that is not possible."""
            scope = {name: values.get(name) for name in names}
            return self._body(graph, places, n_steps, given, scope=scope, versions=versions, **more)

        names = reading.names_read([node])
        captured = [value for name in names if (value := values.get(name))]
        return Node(node, held.domain, held.attributes, inputs, version, inside, captured, values, held.made, apart)

    def _body(
        self,
        graph: Any,
        places: Sequence[int],
        n_steps: int,
        given: Sequence[Value],
        scope: Mapping[str, Value | None],
        versions: Mapping[str, int] | None,
        read: Sequence[tuple[Variable, Variable]] = (),
        changing: Sequence[Value] = (),
    ) -> Body | None:
        """Returns the graph of a loop's body, or None if it must be built for each step.

        Args:
            graph: A `GraphProto`.
            places: Places of the outputs to compute.
            n_steps: Number of steps.
            given: Its inputs.
            scope: Values of the outer graph that it may read, by name.
            versions: Versions of operators in an operator's definition.
            read: Pairs of another outer variable that the inputs follow from and the variable of the body in its place.
            changing: Other values that the inputs follow from and that change between steps.
        """
        inner = dict(scope)
        captured, parameters = list(read), set[Variable]()
        for name, value in scope.items():
            if value is None or value.known:
                continue
            if type(value) is not Value:
                return None
            if value.is_computed:
                variable = Variable(value.shape, need_grad=False)
                inner[name] = Value(variable, value.dtype)
                captured.append((value.variable, variable))
            else:
                parameters.add(value.variable)
        outer_watched, self.watched = self.watched, {}
        token = COMPUTES.set(lambda _: False)
        try:
            outputs = self._inside(graph, given, inner, versions)
        except NeedsValuesError:
            return None
        finally:
            COMPUTES.reset(token)
            watched, self.watched = self.watched, outer_watched
        outputs = [outputs[place] for place in places]
        if not all(type(value) is Value for value in outputs):
            return None
        if self.folding is not None:
            self.folding.share(self.shared_variables())
        return Body([*given, *changing], outputs, captured, watched, parameters, n_steps, self.folding)

    def _inside(
        self,
        graph: Any,
        given: Sequence[Value],
        values: Mapping[str, Value | None],
        versions: Mapping[str, int] | None,
    ) -> list[Value]:
        """Builds an inner graph. Returns its outputs."""
        inner = {**values, **dict(zip((x.name for x in graph.input), given, strict=False))}
        for tensor in graph.initializer:
            inner[tensor.name] = constant(reading.array_of(tensor, self._folder))
        self._run(graph, inner, versions)
        return [value for _, value in outputs_of(graph, inner)]

    def _made(self, held: Node, known: Mapping[str, int]) -> list[Value]:
        """The outputs of a node, by its table row or its definition."""
        try:
            row = TABLE.get((held.domain, held.operator))
            return self._defined(held, known) if row is None else _apply(held, row)
        except (NeedsValuesError, UnsupportedError):
            raise
        except Exception as error:
            shapes = [value.shape if value is not None else None for value in held.inputs]
            name = held.proto.name or list(held.proto.output)
            raise OnnxError(
                f"onnx.Model: node {name!r}, {held.operator}-{held.version} of shapes {shapes}: {error}"
            ) from error

    def _add(self, parts: Prepared, values: dict[str, Value | None], versions: Mapping[str, int] | None) -> None:
        """Builds a node of a graph, or of an operator's definition, and adds its outputs to the values."""
        held, outputs = self._with_inputs(parts, values, versions), parts.outputs
        made = self._made(held, self._versions if versions is None else versions)
        for name, value in zip(outputs, made, strict=False):
            if name:
                values[name] = value
        if made and may_outgrow(made[0], held.operator):
            self.watched[f"onnx.Model: {held.operator} {outputs[0]!r}"] = made[0].variable
        for name in outputs[len(made) :]:
            if name:
                raise held.unsupported(f"expected {len(made)} outputs, got {len(outputs)}")

    def _defined(self, held: Node, versions: Mapping[str, int]) -> list[Value]:
        """The outputs of a node whose operator is defined by other operators."""
        note_lengths()
        try:
            function = definition(held.proto, versions, held.inputs)
        except LookupError:
            raise held.unsupported("expected an operator of docs/onnx.md") from None
        given = [*held.inputs, *[None] * (len(function.input) - len(held.inputs))]
        values = dict(zip(function.input, given, strict=False))
        self._run(function, values, reading.versions_of(function))
        found = []
        for wanted, name in zip(held.proto.output, function.output, strict=False):
            value = values.get(name)
            if wanted and value is None:
                raise held.unsupported(f"expected {wanted!r} in the definition of the operator, got nothing")
            found.append(value if value is not None else Value(np.zeros(0, np.float32)))
        return found


def _is_computed_here(value: Value | None) -> bool:
    """True if a function computes a value, so that it is neither an input nor a constant of the model."""
    return type(value) is Value and value.is_computed and value.variable.parent is not None


_FLOAT64 = np.dtype(np.float64)


def _is_double(node: Node, given: Sequence[Value]) -> bool:
    """True if a node computes in double precision: for float64, and for integers of 16 bits and more.

    Float32 rounds integers from 2^24 on. Casts of integers to narrower floats keep the default precision.
    """
    has_reals = is_double = is_wide = False
    for value in given:
        dtype = value.dtype
        kind = dtype.kind
        if kind == "f":
            has_reals, is_double = True, is_double or dtype == _FLOAT64
        elif kind in "iu" and dtype.itemsize > 1:
            is_wide = True
    if not has_reals and node.operator == "Cast":
        to = reading.dtype_of(node.get("to"))
        has_reals, is_double = to.kind == "f", to == _FLOAT64
    return is_double if has_reals else is_wide


@contextmanager
def _computing(compute: Callable[[list[Value]], bool], budget: Budget) -> Iterator[None]:
    """Sets `COMPUTES` and `BUDGET` for a block that builds a graph."""
    token, other = COMPUTES.set(compute), BUDGET.set(budget)
    try:
        yield
    finally:
        BUDGET.reset(other)
        COMPUTES.reset(token)


def outputs_of(graph: Any, values: Mapping[str, Value | None]) -> list[tuple[str, Value]]:
    """The outputs of a graph by name, without absent ones.

    Args:
        graph: The `GraphProto`.
        values: Values by name.
    """
    return [(held.name, found) for held in graph.output if (found := values[held.name]) is not None]


def constant(array: Any) -> Value:
    """Returns an array as a constant.

    Args:
        array: Numbers or strings.
    """
    return words_of(array) if array.dtype.kind == "O" else Value(array)


def _moved_words(node: Node, row: Row) -> list[Value]:
    """Returns the outputs of a node that moves strings, such as `Gather`: it moves their places in the vocabulary."""
    first = next(value for value in node.inputs if isinstance(value, Words))
    inputs = [value.places if isinstance(value, Words) else value for value in node.inputs]
    others = [value for value in node.inputs if isinstance(value, Words) and value.vocabulary != first.vocabulary]
    if node.operator not in _MOVES or others:
        raise node.unsupported("expected numbers, got strings")
    inner = Node(node.proto, node.domain, node.attributes, inputs, node.version)
    return [Words(value, first.vocabulary) for value in _apply(inner, row)]


_DOUBLE = number_of(DOUBLE)
"""The engine's number for the context that computes in float64."""

_NO_SOURCES: frozenset[str] = frozenset()
"""The sources of a value that no other value leads to."""


def _apply(node: Node, row: Row) -> list[Value]:
    """The outputs of a node by a table row, folded if all inputs are constants."""
    given = [value for value in node.inputs if value is not None]
    if not row.takes_words:
        for held in given:
            if isinstance(held, Words):
                return _moved_words(node, row)
    if not row.is_free:
        note_lengths()
    is_known, sources = True, _NO_SOURCES
    for held in (*given, *node.captured) if node.captured else given:
        if is_known and not held.known:
            is_known = False
        if held.sources and held.sources is not sources:
            sources = sources | held.sources if sources else held.sources
    if row.fold is not None and is_known:
        made = row.fold(node)
    elif _is_double(node, given):
        with numbered_context(_DOUBLE):
            made = row.build(node)
    else:
        made = row.build(node)
    if is_known and isinstance(made, np.ndarray) and made.dtype.kind == "O":
        return [words_of(made)]
    if is_known and isinstance(made, np.ndarray) and made.flags.c_contiguous:  # it is in memory as it is
        return [Value(made, sources=sources)]
    default = row.dtype if row.dtype is not None else given[0].dtype if given else np.dtype(np.float32)
    outputs, n_bytes = [], sum([held.n_bytes for held in given])
    for content in made if isinstance(made, (tuple, list)) else [made]:
        value = content if isinstance(content, Value) else None
        if value is None:
            value = Value(content, default if isinstance(content, Variable) else None, sources=sources)
        elif value.is_computed:
            value.sources |= sources
        check_size(n_bytes + value.n_bytes)
        if is_known and value.is_computed:
            value = _folded(value)
        outputs.append(value)
    return outputs


def _folded(value: Value) -> Value:
    """A value that depends on constants only, computed immediately."""
    variable = value.variable
    if variable.parent is None:
        return Value(cast(variable.d, value.dtype))
    variable.forward()
    found = Value(cast(variable.d, value.dtype))
    if found.dtype == variable.data.dtype == np.float32:
        variable.parent = None
        found._variable = variable  # without another copy
    return found
