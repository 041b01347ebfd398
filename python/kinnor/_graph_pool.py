"""Shared parts of models from files: pools of equal graphs for parallel calls, and the lock for building graphs.

Both work across threads and forks, and do not depend on the format of the file.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from ._core import GraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

__all__ = ["MOST_GRAPHS", "BuildLock", "GraphCache", "GraphPool", "keep"]

Graph = TypeVar("Graph")

_MOST = max(4, os.cpu_count() or 1)
"""A call waits for a free graph if this many exist for its input shape."""

_PATIENCE = 2.0
"""Longest time that a call waits for a free graph, in seconds."""

MOST_GRAPHS = 8
"""Limit on cached graphs, one for each combination of shapes."""

_pools: WeakSet[GraphPool[Any]] = WeakSet()
"""All pools, to be reset in a forked child."""
_locks: WeakSet[BuildLock] = WeakSet()
"""All locks, to be reset in a forked child."""


class GraphPool(Generic[Graph]):
    """Equal graphs for one input shape. Each call uses its own, so calls run in parallel.

    A call that finds no free graph builds another one. If the pool has many graphs, the call first waits for one.
    """

    __slots__ = ("__weakref__", "_free", "_n_made", "get", "give")

    def __init__(self) -> None:
        self._renew()
        _pools.add(self)

    def _renew(self) -> None:
        """Empties the pool."""
        self._free: SimpleQueue[Graph] = SimpleQueue()
        self._n_made = 0
        self.get = self._free.get_nowait  # like `free`, but raises `queue.Empty` if no graph is free
        self.give = self._free.put  # returns a graph to the pool

    def free(self) -> Graph | None:
        """Takes a free graph out of the pool. Returns None if there is none."""
        try:
            return self._free.get_nowait()
        except Empty:
            return None

    def take(self) -> Graph | None:
        """Takes a free graph, and waits for one if there are many. Returns None if the caller has to build one."""
        if self._n_made < _MOST:
            return self.free()
        try:
            return self._free.get(timeout=_PATIENCE)
        except Empty:
            return None

    def add(self) -> None:
        """Counts a graph that the caller has built. The caller puts it into the pool by `give`."""
        self._n_made += 1

    def remove(self) -> bool:
        """Counts a graph that the caller has taken out for good. Returns True if the pool has others."""
        self._n_made -= 1
        return self._n_made > 0

    def _after_fork(self) -> None:
        """Keeps only the free graphs in a forked child. The threads that used the others do not exist there."""
        free = self._free
        self._renew()
        for _ in range(free.qsize()):
            self.give(free.get_nowait())
            self._n_made += 1


class BuildLock:
    """A lock for building graphs, which a thread cannot take twice. Copies and forked children get a free lock.

    Args:
        title: Name of the owner in error messages.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._renew()
        _locks.add(self)

    def __reduce__(self) -> tuple[type[BuildLock], tuple[str]]:
        """Copies and unpickles as a new free lock."""
        return BuildLock, (self._title,)

    def _renew(self) -> None:
        """Replaces the lock by a free one."""
        self._lock = threading.RLock()
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock in a `with` block.

        Raises:
            GraphError: If this thread holds the lock already, for example in a signal handler.
        """
        with self._lock:
            if self._is_held:
                raise GraphError(f"{self._title}: expected no call while this thread builds its graph, got one")
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False


class GraphCache(Generic[Graph]):
    """Caches the graphs of a model. It is used under the lock of the model; only the lookup of a pool is safe without.

    Attributes:
        graphs: The first graph by key, such as the shapes and types of the inputs.
        pools: The pool of all graphs for a key.
    """

    def __init__(self) -> None:
        self.graphs: dict[Any, Graph] = {}
        self.pools: dict[Any, GraphPool[Graph]] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()  # a copy of a model builds graphs of its own

    def forget(self) -> None:
        """Empties the cache. Running calls keep their graphs."""
        self.graphs.clear()
        self.pools.clear()

    def add(self, key: Any, graph: Graph) -> GraphPool[Graph]:
        """Counts a graph in the pool of its key, which it opens if there is none. Returns the pool.

        Args:
            key: The key.
            graph: The graph. The caller puts it into the pool after its use.
        """
        pool = self.pools.get(key)
        if pool is None:
            self._open()
            pool = GraphPool()
            keep(self.graphs, key, graph)
            self.pools = {k: self.pools.get(k, pool) for k in self.graphs}
        pool.add()
        return pool

    def _open(self) -> None:
        """Called before the first graph of a key is added. Derived caches drop lookups that it outdates."""


def keep(graphs: dict[Any, Graph], key: Any, graph: Graph) -> None:
    """Adds a graph to a cache. If the cache is full, its oldest graph is removed.

    Args:
        graphs: The cache.
        key: The key.
        graph: The graph.
    """
    if len(graphs) >= MOST_GRAPHS:
        del graphs[next(iter(graphs))]
    graphs[key] = graph


def _after_fork() -> None:
    """Resets all pools and locks in a forked child."""
    for pool in tuple(_pools):
        pool._after_fork()
    for lock in tuple(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
