"""`Model`: a network from an ONNX file, callable with arrays or variables. It caches graphs by input shapes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Error, Variable
from ..._graph_pool import GraphPool
from ...core.loaded import LoadedNetwork
from ...rewrite.folding import Folding
from ..read import reading
from ..read.array_function import DIFFERENTIATES
from ..read.building import Builder, outputs_of
from ..read.containers import (
    NEW_STRINGS,
    Absent,
    InputType,
    Items,
    Maps,
    Words,
    counts,
    entered,
    input_type,
    leaves,
    parts,
)
from ..read.following import Following
from ..read.reading import described, metadata_of
from ..read.tensors import Folder
from ..read.values import MOST_FIXED, NeedsValuesError, OnnxError, Value
from .stages import StageEndsError, Stages, readable
from .static_graph import ShapeCache, StaticGraph
from .weights import Weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..read.message import TensorFile

__all__ = ["Model"]

_WITH_LEVELS = ("QGemm", "QuantizeLinear")
"""Operators that quantize with a constant scale."""


class Model(LoadedNetwork[StaticGraph]):
    """A network from an ONNX file, called like a function.

    Called with arrays it returns arrays. It builds a static graph for each new combination of input shapes and caches
    it. Called with variables it returns variables of a new graph, which can be trained. Parameters are the
    floating-point initializers and the weights in `Constant` nodes, except scalars and arrays that merely configure an
    operator.

    Graphs are folded at first: constants are computed once, batch normalizations are merged into weights, and quantized
    layers compute with 8-bit integers. Folding ends with the first access to the parameters or call with variables.
    Then graphs match the file and follow changes of the parameters. Parameters that no folded graph reads directly are
    freed, and reloaded on demand. The file stays open for that; it may be renamed or deleted.

    Computed integers are exact up to 2^53. A call with arrays raises an error for larger ones. Integers that depend on
    shapes and constants only are always exact.

    Several threads may call one model. Calls with arrays run in parallel, each on its own graph with shared parameters.
    Graphs are built one at a time. Models whose shapes depend on computed values also run one call at a time.

    Args:
        proto: The `ModelProto`.
        folder: The folder with external tensor files.
        tensors: The file in which large tensors were left.

    Attributes:
        inputs: The names of the inputs, in the order of a call.
        outputs: The names of the outputs.
        input_info: Names, element types and shapes of the inputs as the file says them, with the names of open axes.
        output_info: The same of the outputs.
        metadata: The producer of the file, its version, and the entries of its `metadata_props`.

    Raises:
        UnsupportedError: If an operator or element type is not supported.
        OnnxError: If the model is malformed.
    """

    def __init__(self, proto: Any, folder: Path | Folder | None = None, tensors: TensorFile | None = None) -> None:
        folder = Folder(folder) if isinstance(folder, Path) else folder
        proto = reading.inlined(proto)
        every = reading.check(proto)
        graph = proto.graph
        self._weights = Weights(proto, every, folder, tensors)
        constants = self._weights.constants
        vocabulary = cache(lambda: {text: at for at, text in enumerate(reading.strings_of(every))})
        given = [held for held in graph.input if held.name not in constants]
        keys = reading.map_keys(graph)
        self._types: dict[str, InputType] = {
            held.name: input_type(held.type, held.name, vocabulary, keys.get(held.name)) for held in given
        }
        super().__init__("onnx.Model", list(self._types), [held.name for held in graph.output], ShapeCache())
        self._takes_strings = any(held.vocabulary is not None for held in self._types.values())
        self.input_info = tuple(map(described, given))
        self.output_info = tuple(map(described, graph.output))
        self.metadata = metadata_of(proto)
        self._fixed: frozenset[str] = frozenset()
        self._is_computed_at_once = False
        # Index of the node that ends the first stage because shapes depend on its input values.
        self._split: int | None = None
        # Layers of levels are found by shapes.
        self._may_follow = bool(self.inputs) and not any(
            "QLinear" in node.op_type or node.op_type in _WITH_LEVELS for node in graph.node
        )
        self._proto = reading.without_arrays(proto, self._weights.moved)
        floats = [value.variable for value in constants.values() if value.dtype.kind == "f"]
        folding = Folding(floats, self._weights.restore)
        self._stages = Stages(self._proto.graph, Builder(self._proto, folder, constants), constants, folding)

    def __repr__(self) -> str:
        return f"<onnx.Model {self._proto.graph.name!r} {self.inputs} -> {self.outputs}>"

    @property
    def shapes(self) -> dict[str, tuple[int | None, ...] | None]:
        """The declared shapes of the inputs by name. Symbolic lengths, and undeclared shapes, are None.

        The shape of a sequence is the shape of its tensors.
        """
        return {key: held.shape for key, held in self._types.items()}

    def written(self) -> tuple[Any, dict[str, Any]]:
        """A copy of the `ModelProto` without initializers, and the initializers by name, with current values.

        Raises:
            OnnxError: If parameters must be reloaded, and the file has changed.
        """
        with self._lock.held():
            self._weights.restore()
        proto = type(self._proto)()
        proto.CopyFrom(self._proto)
        return proto, {key: value.array for key, value in self._weights.constants.items()}

    def _all_parameters(self) -> Mapping[str, Variable]:
        """All parameters by name."""
        return self._weights.parameters

    def _is_trained(self, name: str, variable: Variable) -> bool:
        """False for running statistics."""
        return name not in self._weights.statistics

    def _unfold(self) -> None:
        """Ends folding and drops the folded graphs, because parameters may change from now on.

        Raises:
            OnnxError: If parameters must be reloaded, and the file has changed.
        """
        if self._stages.folding is not None:
            self._weights.keep()
            self._stages.folding = None
            self._cache.forget()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to copy or pickle: all parameters, and no built graphs."""
        with self._lock.held():
            self._weights.restore()
        return self.__dict__

    def _release(self) -> None:
        """Frees parameters that no graph reads, unless later stages of the model are still to be built."""
        if self._stages.folding is None or self._split is not None or self._is_computed_at_once:
            return
        self._weights.release(self._cache.taken())

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            args: The inputs, in the order of `inputs`: arrays or variables, lists of them for sequences, dictionaries
                for tables of features, and None for absent optional values.
            named: Further inputs by name.

        Returns:
            The output, or a tuple of the outputs in the order of `outputs`: arrays of the element types of the file,
            or variables if one of the inputs is one. Sequences are lists of these, absent values None. Strings are
            arrays of objects; as variables they are places in the list of labels. Tables of scores are dictionaries.

        Raises:
            CallError: If an input is missing.
            ShapeError: If an input does not have the declared shape.
            OnnxError: If the network cannot be built for these inputs, or an integer is too large for float64. Also if
                parameters must be reloaded and the file has changed.
        """
        known = self._cache.known
        if known:
            arrays = args if not named else [named[name] for name in self.inputs if name in named]
            pool = known.get(tuple([(type(x), x.shape, x.dtype) for x in arrays if isinstance(x, np.ndarray)]))
            if pool is not None and len(arrays) == len(args) + len(named) == len(self.inputs):
                try:
                    graph = pool.get()
                except Empty:
                    pass
                else:
                    if graph.stop is not None:
                        return self._run(pool, graph, arrays)
                    try:
                        return graph.run(arrays)
                    finally:
                        pool.give(graph)
        given = self._given(args, named)
        if self._takes_strings:
            NEW_STRINGS.set({})
        given = {name: self._types[name].checked(name, given[name]) for name in self.inputs}
        tensors = parts(given)
        if any(isinstance(x, Variable) for x in tensors.values()):
            with self._lock.held():
                self._unfold()
                self._stages.begin()
                token = DIFFERENTIATES.set(True)
                try:
                    values = self._built(given, is_whole=True)[1]
                finally:
                    DIFFERENTIATES.reset(token)
            made = [_variables(value) for _, value in outputs_of(self._proto.graph, values)]
            return made[0] if len(made) == 1 else tuple(made)
        pool, graph = self._taken(self._key(given), lambda: self._graph(given))
        return self._run(pool, graph, [tensors[name] for name in graph.names], tensors)

    def _run(
        self,
        pool: GraphPool[StaticGraph],
        graph: StaticGraph,
        arrays: Sequence[Any],
        tensors: Mapping[str, Any] | None = None,
    ) -> Any:
        """Computes the outputs by a graph taken from a pool, and returns the graph to the pool."""
        if graph.stop is None:
            try:
                return graph.run(arrays)
            finally:
                pool.give(graph)
        with self._lock.held():  # the call builds nodes
            self._stages.begin()
            try:
                return self._stages.run(graph, arrays, tensors or dict(zip(self.inputs, arrays, strict=True)))
            finally:
                pool.give(graph)

    def _key(self, given: Mapping[str, Any]) -> Any:
        """The cache key of inputs: structure, shapes, types, and values of inputs on which shapes depend."""
        tensors = parts(given).items()
        return counts(list(given.values())), tuple(
            (name, x.shape, x.dtype.str, x.tobytes() if name in self._fixed else None) for name, x in tensors
        )

    def _graph(self, given: Mapping[str, Any]) -> tuple[GraphPool[StaticGraph], StaticGraph]:
        """Builds a graph for input arrays. Returns it and the pool to return it to.

        If shapes depend on computed values, it is the first stage only.
        """
        self._stages.begin()
        if self._key(given) not in self._cache.pools and (moved := self._moved(given)) is not None:
            return moved
        while True:
            try:
                inputs, values, following = self._built(given)
                break
            except StageEndsError as end:
                self._split = end.at  # with these shapes, an earlier node needs values
        if self._split is not None or self._is_computed_at_once:
            self._weights.restore()  # later stages may read any parameter
        if self._is_computed_at_once:
            return GraphPool(), self._stages.graph(inputs, values)
        graph = self._stages.graph(inputs, values, self._split, following)
        # The key is computed again, as building may have found inputs on which shapes depend.
        pool = self._cache.add(self._key(given), graph)
        taken = self._cache.read_by(graph, set(self._weights.parameters.values()))
        self._cache.note_taken(pool, taken)
        self._weights.restore(taken)
        self._release()
        self._note_known(given, pool)
        return pool, graph

    def _note_known(self, given: Mapping[str, Any], pool: GraphPool[StaticGraph]) -> None:
        """Enters a pool for the fast lookup, if no shape depends on a value."""
        if not self._fixed:
            self._cache.note_known(given, pool)

    def _moved(self, given: Mapping[str, Any]) -> tuple[GraphPool[StaticGraph], StaticGraph] | None:
        """Gives the oldest free graph inputs of other lengths. Returns it and its new pool, or None if none fits."""
        key = self._key(given)
        for graph, taken in self._cache.take_other(key, given):
            try:
                self._stages.move(graph, given)
            except (Error, NeedsValuesError):
                return None  # these lengths need other functions, or are wrong: building the graph anew shows it
            pool = self._cache.add(key, graph)
            self._cache.note_taken(pool, taken)
            self._note_known(given, pool)
            return pool, graph
        return None

    def _built(
        self, given: Mapping[str, Any], is_whole: bool = False
    ) -> tuple[list[tuple[str, Variable]], dict[str, Value | None], Following | None]:
        """Input variables, and values of all nodes or the first stage. Inputs on which shapes depend are constants.

        Also what gives the graph inputs of other lengths, if that is possible.
        """
        tensors = parts(given)
        while True:
            inputs: list[tuple[str, Variable]] = []
            values: dict[str, Value | None] = dict(self._weights.constants)
            if self._is_computed_at_once:
                weights = self._weights
                values.update((key, Value(weights.constants[key].static())) for key in weights.parameters)
            for name in self.inputs:
                words = self._types[name].vocabulary

                def enter(part: str, x: Any, dtype: Any = self._types[name].dtype) -> Value:
                    """Makes an input variable, or a constant if shapes depend on the input."""
                    if words is not None:  # noqa: B023
                        places = np.dtype(np.int64)
                        return Words(number(part, x, places), list(words))  # noqa: B023
                    return number(part, x, dtype)

                def number(part: str, x: Any, dtype: Any) -> Value:
                    """Makes an input variable and notes it. If shapes depend on the input, makes a constant instead."""
                    if part in self._fixed and not isinstance(x, Variable):
                        return Value(x.astype(dtype))
                    variable = x if isinstance(x, Variable) else Variable.from_numpy_array(readable(x))
                    inputs.append((part, variable))  # noqa: B023
                    return Value(variable, dtype, sources=frozenset([part]))

                values[name] = entered(name, given[name], enter)
            try:
                is_whole |= self._is_computed_at_once
                following = None
                is_followed = self._may_follow and not is_whole and self._split is None
                if is_followed and all(x.size for x in tensors.values()):
                    following = Following({name: values[name] for name in self.inputs})
                stop = None if is_whole else self._split
                self._stages.build(values, tensors, 0, stop, is_kept=not is_whole, following=following)
                if following is not None and not following.is_possible:
                    self._may_follow = False
                    continue
                return inputs, values, following
            except StageEndsError:
                raise
            except NeedsValuesError as needed:
                names = needed.names - self._fixed
                if not needed.names and not self._is_computed_at_once:
                    self._is_computed_at_once = True  # shapes depend on current parameter values, too
                    continue
                fit = [x for x in names if not isinstance(tensors[x], Variable) and tensors[x].size <= MOST_FIXED]
                if not names or len(fit) < len(names):
                    raise OnnxError(
                        f"onnx.Model: expected shapes that follow from shapes and constants, got some that depend on "
                        f"the values of {sorted(needed.names)}"
                    ) from None
                self._fixed |= names
                self._cache.forget()


def _variables(value: Value) -> Any:
    """An output as a variable, a list of them, or None."""
    if isinstance(value, Items):
        return [_variables(item) for item in value.items]
    if isinstance(value, (Words, Maps)):
        return leaves(value)[0].variable
    return None if isinstance(value, Absent) else value.variable
