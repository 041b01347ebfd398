"""Graphs of a loaded model for calls from several threads, and the lock for building them.

Knows threads and forks; knows nothing of models.
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

__all__ = ["BuildLock", "GraphPool"]

Graph = TypeVar("Graph")

_MOST = max(4, os.cpu_count() or 1)
"""Number of graphs for one input shape before a call waits for a free one."""

_PATIENCE = 2.0
"""Seconds that a call waits for a free graph."""

_pools: WeakSet[GraphPool[Any]] = WeakSet()
_locks: WeakSet[BuildLock] = WeakSet()


class GraphPool(Generic[Graph]):
    """Equal graphs for one input shape. Each call uses its own, so calls run in parallel.

    A call that finds no free graph builds another one. If there are many already, it first waits for a free one.
    """

    __slots__ = ("__weakref__", "_free", "_n_made", "get", "give")

    def __init__(self) -> None:
        self._renew()
        _pools.add(self)

    def _renew(self) -> None:
        self._free: SimpleQueue[Graph] = SimpleQueue()
        self._n_made = 0
        self.get = self._free.get_nowait  # like `free`, but raises `queue.Empty` if no graph is free
        self.give = self._free.put  # returns a graph to the pool

    def free(self) -> Graph | None:
        """Take a graph that no call uses, or None."""
        try:
            return self._free.get_nowait()
        except Empty:
            return None

    def take(self) -> Graph | None:
        """Like `free`, but waits if there are many graphs. None if the caller has to build one."""
        if self._n_made < _MOST:
            return self.free()
        try:
            return self._free.get(timeout=_PATIENCE)
        except Empty:
            return None

    def add(self) -> None:
        """Count a new graph. The call that built it returns it by `give`."""
        self._n_made += 1

    def _after_fork(self) -> None:
        """Keep the free graphs. The threads that used the others do not exist in the child."""
        free = self._free
        self._renew()
        for _ in range(free.qsize()):
            self.give(free.get_nowait())
            self._n_made += 1


class BuildLock:
    """A lock for building graphs. It is free in a forked child. A copy is another lock.

    Args:
        title: What errors call the owner.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._renew()
        _locks.add(self)

    def __reduce__(self) -> tuple[type[BuildLock], tuple[str]]:
        return BuildLock, (self._title,)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in a block.

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


def _after_fork() -> None:
    for pool in tuple(_pools):
        pool._after_fork()
    for lock in tuple(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
