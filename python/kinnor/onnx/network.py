"""Networks in ONNX: read once, called with arrays or variables of any shape.

Knows how graphs are built of rows and kept; knows no operators.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import CallError, Error, UnsupportedError, Variable, forward_all
from ..display import Parameters
from ..files.progress import each
from ..folding import Folding
from ..modes import auto_forward
from . import reading
from .containers import Absent, InputType, Items, counts, entered, input_type, parts
from .definitions import definition
from .static_graph import StaticGraph, cast
from .tables import TABLE
from .values import (
    COMPUTES,
    MOST_FIXED,
    NeedsValuesError,
    Node,
    OnnxError,
    Value,
    check_size,
    check_whole,
    may_outgrow,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Model", "load"]

_MOST_GRAPHS = 8
"""How many shapes of inputs a model keeps graphs for."""

_FROZEN = {"BatchNormalization": (3, 4)}
"""Inputs that are statistics, not trained."""


class Model:
    """A network from an ONNX file, which is called like a function.

    Of arrays it gives arrays, by a static graph that it builds when shapes come for the first time and keeps. Of
    variables it makes a graph, and gives its outputs as variables, to be trained. In both, the floating-point
    initializers of the file are the parameters. Until somebody asks for them, or calls the model with variables, graphs
    are folded: what follows from parameters alone is computed once, and batch normalizations go into the weights before
    them; from then on graphs are as the file says, and follow the values of the parameters. Whole numbers that are
    computed are exact up to 2^24 (float32), and refused beyond, also inside (of variables, nobody looks); those that
    follow from shapes and constants are exact.

    Args:
        proto: The `ModelProto`.
        folder: The folder that files of tensors are in.

    Attributes:
        inputs: The names of the inputs, in the order of a call.
        outputs: The names of the outputs.

    Raises:
        UnsupportedError: If operators or element types are missing.
        OnnxError: If the model is malformed.
    """

    def __init__(self, proto: Any, folder: Path | None = None) -> None:
        proto = reading.inlined(proto)
        reading.check(proto)
        self._proto = proto
        self._folder = folder
        self._versions = reading.versions_of(proto)
        graph = proto.graph
        self._constants: dict[str, Value] = {}
        frozen = {node.input[i] for node in graph.node for i in _FROZEN.get(node.op_type, ()) if i < len(node.input)}
        self._parameters: OrderedDict[str, Variable] = OrderedDict()
        for tensor in each(graph.initializer, "read ONNX"):
            self._constants[tensor.name] = self._initializer(tensor, tensor.name not in frozen)
        self._types: dict[str, InputType] = {}
        for held in graph.input:
            if held.name not in self._constants:
                self._types[held.name] = input_type(held.type, held.name)
        self.inputs = list(self._types)
        self.outputs = [held.name for held in graph.output]
        self._attributes: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._fixed: frozenset[str] = frozenset()
        self._is_computed_at_once = False
        # The node before which variables had to be computed, since their values decide on shapes.
        self._split: int | None = None
        self._at = 0
        self._computed: set[Variable] = set()
        self._watched: dict[str, Variable] = {}
        self._graphs: dict[Any, StaticGraph] = {}
        # The same by shapes and types alone: arrays of which a graph was built before need no other look.
        self._known: dict[Any, StaticGraph] = {}
        self._folding: Folding | None = Folding(self._parameters.values())
        for node in graph.node:
            self._attributes_of(node)

    def __repr__(self) -> str:
        return f"<onnx.Model {self._proto.graph.name!r} {self.inputs} -> {self.outputs}>"

    def _initializer(self, tensor: Any, is_trained: bool) -> Value:
        array = reading.array_of(tensor, self._folder)
        if array.dtype.kind in "iub":
            return Value(array)
        parameter = Variable.from_numpy_array(array.astype(np.float32), need_grad=is_trained)
        self._parameters[tensor.name] = parameter
        return Value(array, parameter=parameter)

    def _attributes_of(self, node: Any) -> dict[str, Any]:
        # The message is kept beside them, so that its place in memory names it.
        found = self._attributes.get(id(node))
        if found is None:
            found = self._attributes[id(node)] = node, reading.attributes_of(node, self._folder)
        return found[1]

    @property
    def shapes(self) -> dict[str, tuple[int | None, ...] | None]:
        """The shapes of the inputs by name; None for lengths that are open, or for a shape that is.

        Of a sequence it is that of its tensors.
        """
        return {key: held.shape for key, held in self._types.items()}

    def written(self) -> tuple[Any, dict[str, Any]]:
        """A copy of the message without initializers, and these by name: the parameters with their values of now."""
        proto = type(self._proto)()
        proto.CopyFrom(self._proto)
        proto.graph.ClearField("initializer")
        held = {}
        for key, value in self._constants.items():
            parameter = self._parameters.get(key)
            held[key] = value.array if parameter is None else parameter.d.astype(value.dtype)
        return proto, held

    def get_parameters(self, grad_only: bool = False) -> Parameters:
        """The floating-point initializers by name, as solvers take them.

        Args:
            grad_only: Whether to leave out those that need no gradient.
        """
        self._unfold()
        return Parameters((key, x) for key, x in self._parameters.items() if x.need_grad or not grad_only)

    def _unfold(self) -> None:
        """Parameters may change from now on."""
        if self._folding is not None:
            self._folding = None
            self._graphs.clear()
            self._known.clear()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            args: The inputs, in the order of `inputs`: arrays, or variables; lists of them for sequences, and None for
                optional ones that are absent.
            named: Inputs by name, after those.

        Returns:
            The output, or a tuple of the outputs in the order of `outputs`: arrays of the element types of the file,
            or variables if one of the inputs is one. Sequences are lists of these, absent values None.

        Raises:
            CallError: If an input is missing.
            ShapeError: If an input has not the shape that the file says.
            OnnxError: If the network cannot be built for these inputs, or inputs or outputs are whole numbers that
                float32 rounds.
        """
        if not named and self._known:
            graph = self._known.get(tuple([(type(x), x.shape, x.dtype) for x in args if isinstance(x, np.ndarray)]))
            if graph is not None:
                return graph.run(args)
        given = dict(zip(self.inputs, args, strict=False))
        if len(args) > len(self.inputs) or given.keys() & named.keys() or {*given, *named} != set(self.inputs):
            raise CallError(f"onnx.Model: expected inputs {self.inputs}, got {len(args)} and {list(named)}")
        given.update(named)
        given = {name: self._types[name].checked(name, given[name]) for name in self.inputs}
        tensors = parts(given)
        if any(isinstance(x, Variable) for x in tensors.values()):
            self._unfold()
            made = [_variables(value) for value in _named(self._proto.graph, self._built(given)[1])]
            return made[0] if len(made) == 1 else tuple(made)
        if self._split is not None and not self._is_computed_at_once:
            return self._run_in_stages(given)
        graph = self._graph(given)
        is_kept = not self._fixed and not self._is_computed_at_once and self._split is None
        if is_kept and tensors.keys() == given.keys():
            self._known[tuple((np.ndarray, x.shape, x.dtype) for x in given.values())] = graph
        return graph.run([x for name, x in tensors.items() if name not in self._fixed])

    def _key(self, given: Mapping[str, Any]) -> Any:
        tensors = parts(given).items()
        return counts(list(given.values())), tuple(
            (name, x.shape, x.dtype.str, x.tobytes() if name in self._fixed else None) for name, x in tensors
        )

    def _graph(self, given: Mapping[str, Any]) -> StaticGraph:
        key = self._key(given)
        graph = self._graphs.get(key)
        if graph is None:
            inputs, values = self._built(given)
            graph = self._folded(given, inputs, _named(self._proto.graph, values))
            if not self._is_computed_at_once and self._split is None:
                self._keep(self._key(given), graph)
        return graph

    def _folded(self, given: Mapping[str, Any], inputs: list[Variable], outputs: list[Value]) -> StaticGraph:
        """A graph that is run on arrays, of inputs and outputs."""
        names = [f"onnx.Model: input {name!r}" for name in parts(given) if name not in self._fixed]
        graph = StaticGraph(inputs, outputs, (names, self._called()), self._watched)
        if self._folding is not None:
            self._folding.fold(graph.roots, graph.inputs)
        return graph

    def _called(self) -> list[str]:
        """What errors call the outputs."""
        return [f"onnx.Model: output {name!r}" for name in self.outputs]

    def _keep(self, key: Any, graph: StaticGraph) -> None:
        if len(self._graphs) >= _MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        self._known.clear()
        self._graphs[key] = graph

    def _run_in_stages(self, given: Mapping[str, Any]) -> Any:
        """The outputs, by a graph that is kept, up to the values that decide on shapes, and one of what follows.

        Args:
            given: The inputs, all of them arrays.
        """
        nodes = self._proto.graph
        split, first = self._split or 0, self._graphs.get(self._key(given))
        while first is None:
            inputs, values = self._built(given, split)
            if self._split != split:  # Of these shapes an earlier node has to know values.
                split = self._split or 0
                continue
            wanted = reading.names_read(nodes.node[split:]) | set(self.outputs)
            held = {name: x for name, x in values.items() if name in wanted and name not in self._constants}
            first = self._folded(given, inputs, [x for x in held.values() if x is not None])
            first.read = list(held.items())
            self._keep(self._key(given), first)
        tensors = parts(given)
        first.compute([x for name, x in tensors.items() if name not in self._fixed])
        self._computed.clear()
        values = {**self._constants, **{name: self._beyond(x) for name, x in first.read}}
        self._watched.clear()
        with auto_forward(False), _computing(lambda held: self._compute(held, tensors)):
            self._run(nodes, values, start=split)
        return StaticGraph([], _named(nodes, values), ([], self._called()), self._watched).run([])

    def _beyond(self, value: Value | None) -> Value | None:
        """A value of one stage as an input of the next."""
        if isinstance(value, Items):
            return Items([self._beyond(item) for item in value.items], value.dtype)  # type: ignore[misc]
        if value is None or value.array is not None:
            return value
        found = value.variable.get_unlinked_variable(need_grad=False)
        self._computed.add(found)
        return Value(found, value.dtype, sources=value.sources)

    def _built(
        self, given: Mapping[str, Any], stop: int | None = None
    ) -> tuple[list[Variable], dict[str, Value | None]]:
        """The values of the nodes before `stop` for some inputs; those that decide on shapes become constants."""
        tensors = parts(given)
        while True:
            inputs: list[Variable] = []
            values: dict[str, Value | None] = dict(self._constants)
            if self._is_computed_at_once:
                values.update(
                    (key, Value(x.d.astype(self._constants[key].dtype))) for key, x in self._parameters.items()
                )
            for name in self.inputs:

                def enter(part: str, x: Any, dtype: Any = self._types[name].dtype) -> Value:
                    if part in self._fixed and not isinstance(x, Variable):
                        return Value(x.astype(dtype))
                    inputs.append(x if isinstance(x, Variable) else Variable.from_numpy_array(_readable(x)))  # noqa: B023
                    return Value(inputs[-1], dtype, sources=frozenset([part]))  # noqa: B023

                values[name] = entered(name, given[name], enter)
            try:
                self._watched.clear()
                with auto_forward(False), _computing(lambda held: self._compute(held, tensors)):
                    self._run(self._proto.graph, values, stop=stop)
                    return inputs, values
            except NeedsValuesError as needed:
                names = needed.names - self._fixed
                if (
                    not needed.names and not self._is_computed_at_once
                ):  # Parameters decide, too, with their values of now.
                    self._is_computed_at_once = True
                    continue
                fit = [x for x in names if not isinstance(tensors[x], Variable) and tensors[x].size <= MOST_FIXED]
                if not names or len(fit) < len(names):
                    raise OnnxError(
                        f"onnx.Model: expected shapes that follow from shapes and constants, got some that depend on "
                        f"the values of {sorted(needed.names)}"
                    ) from None
                self._fixed |= names
                self._graphs.clear()

    def _compute(self, held: list[Value], tensors: Mapping[str, Any]) -> bool:
        """Make constants of variables that decide on shapes, if they follow from real numbers or from large inputs."""
        given = [tensors[name] for name in frozenset[str]().union(*(value.sources for value in held))]
        leaves = [value.variable for value in held if value.variable.parent is None]
        if any(isinstance(x, Variable) for x in given) or (
            leaves[:1] == [held[0].variable] and not self._computed.issuperset(leaves[:1])
        ):
            return False
        if not any(x.dtype.kind == "f" or x.size > MOST_FIXED for x in given):
            return False
        forward_all([value.variable for value in held if value.variable.parent is not None])
        for value in held:
            array = cast(value.variable.d, value.dtype)
            check_whole(array, "a value that decides on shapes", is_computed=True)
            value.becomes(array)
        self._split = self._at if self._split is None else min(self._split, self._at)
        return True

    def _run(
        self,
        graph: Any,
        values: dict[str, Value | None],
        versions: Mapping[str, int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Build a graph or a part of it, or the definition of an operator, which has versions of its own.

        Adds to the values.
        """
        known = self._versions if versions is None else versions
        is_whole = graph is self._proto.graph
        nodes = graph.node[start:stop]
        for at, node in enumerate(each(nodes, "build ONNX") if is_whole and not start else nodes, start):
            if is_whole:
                self._at = at
            inputs = [values[name] if name else None for name in node.input]
            domain = "" if node.domain == "ai.onnx" else node.domain

            def inside(held: Any, given: Sequence[Value] = (), outer: dict[str, Value | None] = values) -> list[Value]:
                inner = {**outer, **dict(zip((x.name for x in held.input), given, strict=False))}
                for tensor in held.initializer:
                    inner[tensor.name] = Value(reading.array_of(tensor, self._folder))
                self._run(held, inner, versions)
                return _named(held, inner)

            attributes = self._attributes_of(node) if versions is None else reading.attributes_of(node, self._folder)
            held = Node(node, attributes, inputs, known.get(domain, 1), inside)
            try:
                made = _apply(held, domain) if (domain, node.op_type) in TABLE else self._defined(held, known)
            except (NeedsValuesError, UnsupportedError):
                raise
            except Exception as error:
                shapes = [value.shape if value is not None else None for value in inputs]
                raise OnnxError(
                    f"onnx.Model: node {node.name or list(node.output)!r}, {node.op_type}-{held.version} of shapes "
                    f"{shapes}: {error}"
                ) from error
            values.update((name, value) for name, value in zip(node.output, made, strict=False) if name)
            if made and may_outgrow(made[0], node.op_type):
                self._watched[f"onnx.Model: {node.op_type} {node.output[0]!r}"] = made[0].variable
            for name in node.output[len(made) :]:
                if name:
                    raise held.unsupported(f"expected {len(made)} outputs, got {len(node.output)}")

    def _defined(self, held: Node, versions: Mapping[str, int]) -> list[Value]:
        """The outputs of a node whose operator is defined by others."""
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


@contextmanager
def _computing(compute: Callable[[list[Value]], bool]) -> Iterator[None]:
    """Have values computed in a block that builds a graph."""
    token = COMPUTES.set(compute)
    try:
        yield
    finally:
        COMPUTES.reset(token)


def _named(graph: Any, values: Mapping[str, Value | None]) -> list[Value]:
    """The outputs of a graph."""
    return [found for held in graph.output if (found := values[held.name]) is not None]


def _readable(x: Any) -> Any:
    return x if x.dtype.kind in "fiub" else x.astype(np.float32)


def _apply(node: Node, domain: str) -> list[Value]:
    """The outputs of a node."""
    row = TABLE[domain, node.proto.op_type]
    given = [value for value in node.inputs if value is not None]
    sources = frozenset[str]().union(*(value.sources for value in given))
    is_known = all(value.known for value in given)
    made = (row.fold if row.fold is not None and is_known else row.build)(node)
    default = row.dtype if row.dtype is not None else given[0].dtype if given else np.dtype(np.float32)
    outputs = []
    for content in made if isinstance(made, (tuple, list)) else [made]:
        value = content if isinstance(content, Value) else None
        if value is None:
            value = Value(content, default if isinstance(content, Variable) else None, sources=sources)
        elif value.array is None:
            value.sources |= sources
        check_size([(held.shape, held.dtype.itemsize) for held in (*given, value)])
        if is_known and value.array is None:
            value = _folded(value)
        outputs.append(value)
    return outputs


def _folded(value: Value) -> Value:
    """What follows from constants alone, computed at once."""
    variable = value.variable
    if variable.parent is not None:
        variable.forward()
    return Value(cast(variable.d, value.dtype))


def _variables(value: Value) -> Any:
    """An output as variables."""
    if isinstance(value, Items):
        return [_variables(item) for item in value.items]
    return None if isinstance(value, Absent) else value.variable


def load(path: str | os.PathLike[str]) -> Model:
    """Read a network from an ONNX file.

    Args:
        path: Path; files of tensors must be in its folder or below.

    Returns:
        The model: nothing of it is built before it is called.

    Raises:
        UnsupportedError: If operators are missing: with their versions and nodes.
        OnnxError: If the file is malformed.
        OSError: If it cannot be read.
        ImportError: If the package `onnx` is not installed.
    """
    try:
        return Model(reading.read(path), Path(path).parent)
    except (Error, OSError, ImportError):
        raise
    except Exception as error:
        raise OnnxError(f"onnx.load: expected a well-formed model in {path}, got {error}") from error
