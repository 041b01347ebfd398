"""Static graphs of an ONNX model, which run on arrays, and their cache by the shapes of the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ..._core import Function, NdArray, Variable, forward_all
from ..._graph_pool import MOST_GRAPHS, GraphCache, GraphPool
from ...rewrite.patterns import above
from ..read.containers import Absent, Items, Maps, Words, leaves, parts
from ..read.values import OnnxError, Value, cast, check_computed, check_whole

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from ..read.following import Following
    from .stages import RepeatedNode

__all__ = ["ShapeCache", "StaticGraph", "computed"]

_MOVES = frozenset(
    [
        *("BoolFill", "Broadcast", "Concatenate", "Gather", "GatherNd", "Identity", "Pad", "Reshape", "ScatterNd"),
        *("Slice", "Split", "Stack", "Tile", "Transpose"),
    ]
)
"""Functions that move elements of their inputs and change none."""

_BORROWED_FROM = 1 << 15
"""Inputs from this size in bytes are borrowed. Smaller ones are copied, which is faster."""


class StaticGraph:
    """A static graph with its inputs, which runs on arrays.

    Args:
        inputs: The inputs by name, in the order of `run`.
        outputs: The outputs by name; None for absent ones.
        watched: Integer variables that may become too large for float64, by their names in errors.

    Attributes:
        stop: Index of the node that ends the graph because it needs computed values. None if the graph is complete.
        repeated: That node with constant inputs; None before its second run.
        later: Graphs of the nodes after it, by the shapes of its outputs.
        following: Gives the graph inputs of other lengths. None if that is not possible.
    """

    __slots__ = (
        "_borrowed",
        "_titles",
        "following",
        "inputs",
        "later",
        "names",
        "outputs",
        "repeated",
        "roots",
        "stop",
        "watched",
    )

    def __init__(
        self,
        inputs: Sequence[tuple[str, Variable]],
        outputs: Sequence[tuple[str, Value | None]],
        watched: Mapping[str, Variable],
    ) -> None:
        self.names = [name for name, _ in inputs]
        self.inputs = [variable for _, variable in inputs]
        self.outputs = outputs
        self._borrowed: list[NdArray] = []
        self.stop: int | None = None
        self.repeated: RepeatedNode | None = None
        self.later: dict[Any, StaticGraph] = {}
        self.following: Following | None = None
        # Names of inputs and outputs in errors.
        self._titles = (
            [f"onnx.Model: input {name!r}" for name in self.names],
            [f"onnx.Model: output {name!r}" for name, _ in outputs],
        )
        ends = computed(outputs)
        self.roots = [variable for variable in ends if variable.parent is not None]
        above: set[Variable] = set()
        for root in self.roots if watched else ():
            root.visit(lambda f: above.update(f.outputs))
        above.difference_update(ends)  # `_result` checks these
        self.watched = {name: variable for name, variable in watched.items() if variable in above}
        for variable in self.watched.values():
            variable.persistent = True

    def run(self, arrays: Sequence[Any], are_whole: bool = False) -> Any:
        """Computes the outputs.

        Args:
            arrays: The inputs.
            are_whole: Whether integers among them were already checked to be exact in float64.

        Returns:
            The output, or a tuple of the outputs.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        try:
            self.compute(arrays, are_whole)
            found = [_result(value, title) for (_, value), title in zip(self.outputs, self._titles[1], strict=True)]
        finally:
            self.release()
        return found[0] if len(found) == 1 else tuple(found)

    def compute(self, arrays: Sequence[Any], are_whole: bool = False) -> None:
        """Computes the variables of the outputs. Large input arrays stay borrowed until `release` is called.

        Args:
            arrays: The inputs.
            are_whole: Whether integers among them were already checked to be exact in float64.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        for variable, array, title in zip(self.inputs, arrays, self._titles[0], strict=True):
            if not are_whole and array.dtype.kind != "f":
                self._check(variable, array, title)
            if array.nbytes < _BORROWED_FROM or array.dtype != np.float32 or array.shape != variable.shape:
                variable.d = array
            else:
                held = variable.data
                held._borrow(array, True)  # no function writes to an input
                self._borrowed.append(held)
        if self.roots:
            forward_all(self.roots, clear_buffer=True)
        for name, variable in self.watched.items():
            check_computed(variable.d, name)

    def _check(self, variable: Variable, array: Any, title: str) -> None:
        """Raises OnnxError if an input has integers that float64 rounds, unless functions only move them."""
        try:
            check_whole(array, title)
        except OnnxError:
            if self.stop is not None or not self._is_moved(variable):
                raise

    def _is_moved(self, variable: Variable) -> bool:
        """True if all functions that follow from an input only move elements."""
        readers: dict[Variable, list[Function]] = {}
        for f in above(self.roots):
            for x in f.inputs:
                readers.setdefault(x, []).append(f)
        path, found = [variable], set[Function]()
        while path:
            for f in readers.get(path.pop(), ()):
                if f in found:
                    continue
                if f.name not in _MOVES:
                    return False
                found.add(f)
                path += f.outputs
        return True

    def release(self) -> None:
        """Returns borrowed input arrays."""
        while self._borrowed:
            self._borrowed.pop().clear()


def computed(outputs: Sequence[tuple[str, Value | None]]) -> list[Variable]:
    """Returns the variables of the outputs that are no constants.

    Args:
        outputs: The outputs by name.
    """
    present = [held for _, held in outputs if held is not None]
    return [value.variable for held in present for value in leaves(held) if not value.known]


def _result(value: Value | None, name: str) -> Any:
    """An output as an array of its ONNX type in its own memory. A list for sequences, None if absent."""
    if isinstance(value, Items):
        return [_result(item, f"{name}[{i}]") for i, item in enumerate(value.items)]
    if value is None or isinstance(value, Absent):
        return None
    if isinstance(value, Words):
        return value.strings(_result(value.places, name))
    if isinstance(value, Maps):
        order = sorted(range(len(value.names)), key=lambda at: value.names[at])
        return [{value.names[at]: row[at] for at in order} for row in _result(value.scores, name).tolist()]
    if value.known:
        return np.array(value.array)
    variable = value.variable
    result = variable._handed_out()
    is_moved = result.dtype.kind in "iu"  # computed integers are real numbers
    if result.dtype != value.dtype:
        result = cast(result, value.dtype)
    if not is_moved:
        check_whole(result, name, is_computed=True)
    return result


_MOST_LEFT = 256
"""Limit on the shapes that are remembered after their graph was given inputs of other lengths."""

_OFTEN = 6
"""Shapes that come back this often get a graph of their own. It takes as long as a few moves of another graph."""


class ShapeCache(GraphCache[StaticGraph]):
    """Caches the graphs of a model. Only the lookup of `known` is safe without the lock of the model.

    Attributes:
        graphs: The first graph by key: structure, shapes and types of the inputs.
        pools: The pool of all graphs for a key.
        known: Pools by types and shapes of arrays alone, for a fast lookup in calls with arrays only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, GraphPool[StaticGraph]] = {}
        # Keys whose graph was given inputs of other lengths, and how often they came back since.
        self._left: dict[Any, int] = {}
        # The parameters that graphs read, including graphs that are out of the cache but still run.
        self._taken: WeakKeyDictionary[GraphPool[StaticGraph], set[Variable]] = WeakKeyDictionary()

    def forget(self) -> None:
        """Empties the cache. Running calls keep their graphs."""
        super().forget()
        self.known.clear()
        self._left.clear()

    def _open(self) -> None:
        """Drops the fast lookup, in which inputs of the key may have another pool."""
        self.known.clear()

    def note_known(self, given: Mapping[str, Any], pool: GraphPool[StaticGraph]) -> None:
        """Enters a pool for the fast lookup, if all inputs are arrays.

        Args:
            given: The inputs by name.
            pool: The pool.
        """
        if parts(given).keys() == given.keys():
            self.known[tuple((np.ndarray, x.shape, x.dtype) for x in given.values())] = pool

    def take_other(self, key: Any, given: Mapping[str, Any]) -> Iterator[tuple[StaticGraph, set[Variable]]]:
        """Takes a free graph for inputs of other lengths out of the cache.

        Shapes that come back often after their graph was taken get a graph of their own, unless the cache is full. So
        do arrays without elements, for which nodes may differ.

        Args:
            key: The key of the inputs.
            given: The inputs by name.

        Yields:
            The oldest free graph that fits, and the parameters that it reads; or nothing.
        """
        arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        if not all(x.size for x in arrays.values()):
            return
        if key in self._left:
            self._left[key] += 1
            if self._left[key] >= _OFTEN and len(self.graphs) < MOST_GRAPHS:
                del self._left[key]
                return
        kinds = [(name, x.ndim, x.dtype) for name, x in arrays.items()]
        for old, first in self.graphs.items():
            pool = self.pools[old]
            if first.following is None or [(n, len(shape), np.dtype(d)) for n, shape, d, _ in old[1]] != kinds:
                continue
            graph = pool.free()
            if graph is None:
                continue
            taken = self._taken.get(pool, set())
            if not pool.remove():
                del self.graphs[old], self.pools[old]
                self.known.clear()
            while len(self._left) >= _MOST_LEFT:
                del self._left[next(iter(self._left))]
            self._left.setdefault(old, 0)
            yield graph, taken
            return

    def read_by(self, graph: StaticGraph, parameters: Container[Variable]) -> set[Variable]:
        """Returns the parameters that a graph reads.

        Args:
            graph: The graph.
            parameters: The parameters of the model.
        """
        found: set[Variable] = set()
        for root in graph.roots:
            root.visit(lambda f: found.update(f.inputs))
        given = (value for _, held in graph.outputs if held is not None for value in leaves(held))
        found.update(value.variable for value in given if not value.known)
        return {x for x in found if x in parameters}

    def note_taken(self, pool: GraphPool[StaticGraph], taken: set[Variable]) -> None:
        """Notes parameters that the graphs of a pool read.

        Args:
            pool: The pool.
            taken: The parameters.
        """
        self._taken.setdefault(pool, set()).update(taken)

    def taken(self) -> set[Variable]:
        """Returns the parameters that any graph reads."""
        return set[Variable]().union(*self._taken.values())
