"""Reading of examples ahead, in several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .. import _check, _core
from .data_source import DataError, DataSource, check_source, copied, knows_epochs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataSourceWithWorkers"]


class DataSourceWithWorkers(DataSource):
    """Another source whose examples are read ahead by several threads, in the same order.

    It is of use where reading waits for files, or is done by code that other threads may run beside, such as Pillow's
    for images. The threads start with the first example.

    Args:
        data_source: The source, which is closed with this one. Several threads read its examples in parallel.
        n_workers: Number of threads; by default `kinnor.get_num_threads()`.

    Raises:
        DataError: If the source is shuffled and cannot tell epochs apart, or if `n_workers` is less than 1.

    Examples:
        >>> from kinnor.data.data_source_implements import SimpleDataSource
        >>> source = DataSourceWithWorkers(SimpleDataSource(lambda i: (i, i**2), 10), n_workers=2)
        >>> [source.next() for _ in range(3)]
        [(0, 0), (1, 1), (2, 4)]
        >>> source.close()
    """

    AHEAD = 4
    """Number of examples that are read ahead for each thread."""

    def __init__(self, data_source: DataSource, n_workers: int | None = None) -> None:
        check_source("DataSourceWithWorkers", data_source)
        super().__init__(data_source.shuffle)
        if data_source.shuffle and not knows_epochs(data_source):
            raise DataError(
                "DataSourceWithWorkers: expected a source that defines _get_data_of_generation, as it is shuffled, got "
                f"{type(data_source).__name__}"
            )
        n_workers = _core.get_num_threads() if n_workers is None else n_workers
        self._n_workers: int = _check.count("DataSourceWithWorkers", "n_workers", n_workers, DataError)
        self._data_source = data_source
        self._variables, self._size = data_source.variables, data_source.size
        self._generation = data_source._generation
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: OrderedDict[tuple[int, int], Future[Sequence[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns an example that a worker has read, and lets workers read the next ones ahead."""
        window = self.AHEAD * self._n_workers
        with self._lock:
            if self._closed:
                raise DataError("DataSourceWithWorkers: expected an open source, got a closed one")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._n_workers, "kinnor-worker")
            for each in range(position, min(position + window, self._size)):
                key = (generation, each)
                if key not in self._ahead:
                    self._ahead[key] = self._pool.submit(self._read, each, generation)
            found = self._ahead.pop((generation, position))
            while len(self._ahead) > 4 * window:  # Readers that went elsewhere have left examples behind.
                _, left = self._ahead.popitem(last=False)
                left.cancel()
        return found.result()

    def _read(self, position: int, generation: int) -> Sequence[Any]:
        """Reads an example in a thread."""
        return copied(self._data_source._get_data_of_generation(position, generation))

    def close(self) -> None:
        """End the threads and close the source that is read."""
        with self._lock:
            is_open, self._closed = not self._closed, True
            pool, self._pool = self._pool, None
            self._ahead.clear()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if is_open:
            self._data_source.close()

    def reset(self) -> None:
        """Go back to the first position."""
        self._data_source.reset()
        self._generation = self._data_source._generation
        super().reset()

    def apply_order(self) -> None:
        """Go on to the order of the next epoch."""
        self._data_source.apply_order()
        self._generation += 1

    def seek(self, generation: int, position: int) -> None:
        """Go to a position in the order of an epoch.

        Args:
            generation: The epoch, from 0.
            position: How many of its examples have been read.
        """
        self._data_source.seek(generation, position)
        super().seek(generation, position)
