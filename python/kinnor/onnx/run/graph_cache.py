"""The graphs of a model by the shapes of its inputs, and the pools from which calls take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ..._core import Variable
from ..._graph_pool import MOST_GRAPHS, GraphCache, GraphPool
from ..read.containers import leaves, parts
from .static_graph import StaticGraph

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

__all__ = ["ShapeCache"]

_MOST_LEFT = 256
"""Limit on the shapes that are remembered after their graph was given inputs of other lengths."""


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
        # Keys whose graph was given inputs of other lengths.
        self._left: dict[Any, None] = {}
        # The parameters that graphs read, including graphs that are out of the cache but still run.
        self._taken: WeakKeyDictionary[GraphPool[StaticGraph], set[Variable]] = WeakKeyDictionary()

    def forget(self) -> None:
        """Empties the cache. Running calls keep their graphs."""
        super().forget()
        self.known.clear()
        self._left.clear()

    def add(self, key: Any, graph: StaticGraph) -> GraphPool[StaticGraph]:
        """Counts a graph in the pool of its key, which it opens if there is none. Returns the pool.

        Args:
            key: The key.
            graph: The graph. The caller puts it into the pool after its use.
        """
        if key not in self.pools:
            self.known.clear()
        return super().add(key, graph)

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

        Shapes that come back after their graph was taken get a graph of their own, unless the cache is full. So do
        arrays without elements, for which nodes may differ.

        Args:
            key: The key of the inputs.
            given: The inputs by name.

        Yields:
            The oldest free graph that fits, and the parameters that it reads; or nothing.
        """
        arrays = {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        is_own = key in self._left and len(self.graphs) < MOST_GRAPHS
        if is_own or not all(x.size for x in arrays.values()):
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
            self._left[old] = None
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
