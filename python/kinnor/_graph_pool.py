"""Graphs of a loaded model for calls from several threads, and the lock under which they are built.

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
"""How many graphs for inputs of one shape there are, unless calls hold all of them for long."""

_PATIENCE = 2.0
"""Seconds that a call waits for one of them."""

_pools: WeakSet[GraphPool[Any]] = WeakSet()
_locks: WeakSet[BuildLock] = WeakSet()


class GraphPool(Generic[Graph]):
    """Equal graphs for inputs of one shape. A call has one for itself, so that calls run side by side.

    A call that finds none builds another one; if there are many already, it waits for one first.
    """

    __slots__ = ("__weakref__", "_free", "_n_made", "get", "give")

    def __init__(self) -> None:
        self._renew()
        _pools.add(self)

    def _renew(self) -> None:
        self._free: SimpleQueue[Graph] = SimpleQueue()
        self._n_made = 0
        self.get = self._free.get_nowait  # as `free`, but raises `queue.Empty` if there is none
        self.give = self._free.put  # gives a graph back

    def free(self) -> Graph | None:
        """A graph that no call has, if there is one."""
        try:
            return self._free.get_nowait()
        except Empty:
            return None

    def take(self) -> Graph | None:
        """As `free`, but waits for a graph if there are many; None if one is to be built."""
        if self._n_made < _MOST:
            return self.free()
        try:
            return self._free.get(timeout=_PATIENCE)
        except Empty:
            return None

    def add(self) -> None:
        """Count a graph that is built; the call that built it gives it back."""
        self._n_made += 1

    def _after_fork(self) -> None:
        """Keep the graphs that no call had: the threads of the other calls are not in the child."""
        free = self._free
        self._renew()
        for _ in range(free.qsize()):
            self.give(free.get_nowait())
            self._n_made += 1


class BuildLock:
    """A lock for building graphs, which is free again in a forked child. A copy is another lock.

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
            GraphError: If this thread is in such a block, as the handler of a signal may be.
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
