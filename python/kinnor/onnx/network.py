"""Networks in ONNX: read once, called with arrays or variables of any shape.

Knows which graphs are kept, and for what inputs; knows no operators.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import CallError, Error, Variable, forward_all
from ..display import Parameters
from ..files.progress import each
from ..folding import Folding
from . import reading
from .building import Builder, outputs_of
from .containers import Absent, InputType, Items, counts, entered, input_type, parts
from .static_graph import StaticGraph
from .values import MOST_FIXED, NeedsValuesError, OnnxError, Value, cast, check_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

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
    are folded: what follows from parameters alone is computed once, batch normalizations go into the weights before
    them, and layers between levels of 8 bits are computed with the levels; from then on graphs are as the file says,
    and follow the values of the parameters. Whole numbers that are computed are exact up to 2^24 (float32), and refused
    beyond, also inside (of variables, nobody looks); those that follow from shapes and constants are exact.

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
        self._folder = folder
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
        self._fixed: frozenset[str] = frozenset()
        self._is_computed_at_once = False
        # The node before which variables had to be computed, since their values decide on shapes: a stage begins there.
        self._split: int | None = None
        # What the later stage takes from the earlier one.
        self._carried: set[Variable] = set()
        self._graphs: dict[Any, StaticGraph] = {}
        # The same by shapes and types alone: arrays of which a graph was built before need no other look.
        self._known: dict[Any, StaticGraph] = {}
        self._folding: Folding | None = Folding(self._parameters.values())
        self._proto = reading.without_initializers(proto)
        self._builder = Builder(self._proto, folder)

    def __repr__(self) -> str:
        return f"<onnx.Model {self._proto.graph.name!r} {self.inputs} -> {self.outputs}>"

    def _initializer(self, tensor: Any, is_trained: bool) -> Value:
        array = reading.array_of(tensor, self._folder)
        if array.dtype.kind in "iub":
            return Value(array)
        parameter = Variable.from_numpy_array(array.astype(np.float32, copy=False), need_grad=is_trained)
        self._parameters[tensor.name] = parameter
        return Value(array, parameter=parameter)

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
            made = [_variables(value) for _, value in self._outputs(self._built(given)[1])]
            return made[0] if len(made) == 1 else tuple(made)
        if self._split is not None and not self._is_computed_at_once:
            return self._run_in_stages(given, tensors)
        graph = self._graph(given)
        is_kept = not self._fixed and not self._is_computed_at_once and self._split is None
        if is_kept and tensors.keys() == given.keys():
            self._known[tuple((np.ndarray, x.shape, x.dtype) for x in given.values())] = graph
        return graph.run([tensors[name] for name in graph.names])

    def _key(self, given: Mapping[str, Any]) -> Any:
        tensors = parts(given).items()
        return counts(list(given.values())), tuple(
            (name, x.shape, x.dtype.str, x.tobytes() if name in self._fixed else None) for name, x in tensors
        )

    def _graph(self, given: Mapping[str, Any]) -> StaticGraph:
        graph = self._graphs.get(self._key(given))
        if graph is None:
            inputs, values = self._built(given)
            graph = self._folded(inputs, self._outputs(values))
            if not self._is_computed_at_once and self._split is None:
                self._keep(given, graph)
        return graph

    def _outputs(self, values: Mapping[str, Value | None]) -> list[tuple[str, Value]]:
        return outputs_of(self._proto.graph, values)

    def _folded(
        self, inputs: Sequence[tuple[str, Variable]], outputs: Sequence[tuple[str, Value | None]]
    ) -> StaticGraph:
        """A graph that is run on arrays, of inputs and outputs by name."""
        graph = StaticGraph(inputs, outputs, self._builder.watched)
        if self._folding is not None:
            self._folding.fold(graph.roots, graph.inputs)
        return graph

    def _keep(self, given: Mapping[str, Any], graph: StaticGraph) -> None:
        """Keep a graph under the key that its inputs have now: to build it may have made constants of some."""
        if len(self._graphs) >= _MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        self._known.clear()
        self._graphs[self._key(given)] = graph

    def _run_in_stages(self, given: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
        """The outputs, by a graph that is kept, up to the values that decide on shapes, and one of what follows.

        Args:
            given: The inputs, all of them arrays.
            tensors: Their tensors by name.
        """
        first = self._graphs.get(self._key(given))
        while first is None:
            split = self._split
            inputs, values = self._built(given, split)
            if split == self._split:  # If not, of these shapes an earlier node has to know values.
                read = reading.names_read(self._proto.graph.node[split:]) | set(self.outputs)
                read.difference_update(self._constants)
                first = self._folded(inputs, [(name, x) for name, x in values.items() if name in read])
                self._keep(given, first)
        first.compute([tensors[name] for name in first.names])
        self._carried.clear()
        values = {**self._constants, **{name: self._beyond(x) for name, x in first.outputs}}
        self._builder.build(values, lambda held: self._compute(held, tensors), start=self._split or 0)
        return StaticGraph([], self._outputs(values), self._builder.watched).run([])

    def _beyond(self, value: Value | None) -> Value | None:
        """A value of one stage as an input of the next."""
        if isinstance(value, Items):
            return Items([self._beyond(item) for item in value.items], value.dtype)  # type: ignore[misc]
        if value is None or value.array is not None:
            return value
        found = value.variable.get_unlinked_variable(need_grad=False)
        self._carried.add(found)
        return Value(found, value.dtype, sources=value.sources)

    def _built(
        self, given: Mapping[str, Any], stop: int | None = None
    ) -> tuple[list[tuple[str, Variable]], dict[str, Value | None]]:
        """The inputs, and the values of the nodes before `stop`; inputs that decide on shapes become constants."""
        tensors = parts(given)
        while True:
            inputs: list[tuple[str, Variable]] = []
            values: dict[str, Value | None] = dict(self._constants)
            if self._is_computed_at_once:
                values.update(
                    (key, Value(x.d.astype(self._constants[key].dtype))) for key, x in self._parameters.items()
                )
            for name in self.inputs:

                def enter(part: str, x: Any, dtype: Any = self._types[name].dtype) -> Value:
                    if part in self._fixed and not isinstance(x, Variable):
                        return Value(x.astype(dtype))
                    variable = x if isinstance(x, Variable) else Variable.from_numpy_array(_readable(x))
                    inputs.append((part, variable))  # noqa: B023
                    return Value(variable, dtype, sources=frozenset([part]))

                values[name] = entered(name, given[name], enter)
            try:
                self._builder.build(values, lambda held: self._compute(held, tensors), stop=stop)
                return inputs, values
            except NeedsValuesError as needed:
                names = needed.names - self._fixed
                if not needed.names and not self._is_computed_at_once:
                    self._is_computed_at_once = True  # Parameters decide, too, with their values of now.
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
        first = held[0].variable
        is_input = first.parent is None and first not in self._carried
        if is_input or any(isinstance(x, Variable) for x in given):
            return False
        if not any(x.dtype.kind == "f" or x.size > MOST_FIXED for x in given):
            return False
        forward_all([value.variable for value in held if value.variable.parent is not None])
        for value in held:
            array = cast(value.variable.d, value.dtype)
            check_whole(array, "a value that decides on shapes", is_computed=True)
            value.becomes(array)
        at = self._builder.at
        self._split = at if self._split is None else min(self._split, at)
        return True


def _readable(x: Any) -> Any:
    return x if x.dtype.kind in "fiub" else x.astype(np.float32)


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
