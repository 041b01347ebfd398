"""Batches from a source of examples, read ahead in a thread.

Knows batches, epochs and the thread; where examples come from is the sources' business.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _check, _core
from .cache_data_source import DataSourceWithFileCache
from .data_source import (
    DEFAULT_SEED,
    DataError,
    DataSource,
    DataSourceWithMemoryCache,
    InterleavedDataSource,
    SlicedDataSource,
    check_source,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.random import RandomState
    from numpy.typing import NDArray
    from typing_extensions import Self

__all__ = ["DataIterator"]


class _Batch(NamedTuple):
    data: tuple[NDArray[Any], ...]
    epochs: int
    position: int


class DataIterator:
    """Batches of a source, without end: after the last example comes the first one of the next epoch.

    Each epoch gives each example once; where the batch size does not divide the number of examples, the batch at the
    end of an epoch is filled up from the next one. One batch is read ahead in a thread; what fails there is raised by
    `next()`, which then goes on where it stopped. Several threads may share an iterator: each batch goes to one of
    them, and callbacks run in the one whose batch ends the epoch. Close the iterator, or use it in a `with` block.

    Args:
        data_source: The source. The iterator closes it.
        batch_size: Examples in a batch.
        rng: Without effect, as in NNabla: orders are the source's.
        use_thread: Whether to read ahead.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins; not for the first.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
        stop_exhausted: Whether to stop after one epoch, without the examples that do not fill a batch.

    Raises:
        DataError: If `batch_size` is less than 1 or the source is empty.

    Examples:
        >>> from kinnor.utils.data_iterator import data_iterator_simple
        >>> with data_iterator_simple(lambda i: (i, i**2), 5, batch_size=2, shuffle=False) as batches:
        ...     batches.next(), batches.next(), batches.next(), batches.epoch
        ((array([0, 1]), array([0, 1])), (array([2, 3]), array([4, 9])), (array([4, 0]), array([16, 0])), 1)
    """

    def __init__(
        self,
        data_source: DataSource,
        batch_size: int,
        rng: RandomState | None = None,
        use_thread: bool = True,
        epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
        epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
        stop_exhausted: bool = False,
    ) -> None:
        check_source("DataIterator", data_source)
        if data_source.size < 1:
            raise DataError("DataIterator: expected a source with examples, got an empty one")
        self._data_source = data_source
        self._rng = np.random.RandomState(DEFAULT_SEED) if rng is None else rng  # Which programs of NNabla read.
        self._batch_size = _check.count("DataIterator", "batch_size", batch_size, DataError)
        self._stop_exhausted = stop_exhausted
        self._epoch_begin_callbacks = list(epoch_begin_callbacks)
        self._epoch_end_callbacks = list(epoch_end_callbacks)
        self._epoch = 0
        self._closed = False
        self._lock = threading.RLock()
        self._reader: int | None = None  # the thread in which the source is being read
        self._rows: list[Sequence[Any]] = []  # of the batch that is being read
        self._wraps = 0
        self._turns = 0  # epochs of the source that have ended
        self._threaded = use_thread
        data_source.reset()
        self._position = data_source.position
        self._thread = ThreadPoolExecutor(1, "kinnor-data") if use_thread else None
        self._ahead: Future[_Batch | None] | None = None
        self._read_ahead()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[NDArray[Any], ...]:
        return self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the thread to end and close the source. It may be called more than once."""
        with self._alone("close"):
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                self._thread.shutdown(wait=True, cancel_futures=True)
            self._data_source.close()

    @contextmanager
    def _alone(self, op: str) -> Iterator[None]:
        """Keep other threads out; the source itself, which they may wait for, must not call back."""
        if self._reader == threading.get_ident():
            raise DataError(f"DataIterator.{op}: expected a call from outside of the source, got one while it is read")
        with self._lock:
            yield

    @property
    def epoch(self) -> int:
        """How many epochs have ended."""
        return self._epoch

    @property
    def position(self) -> int:
        """How many examples of this epoch have been given out."""
        return self._position

    @property
    def size(self) -> int:
        """Number of examples in an epoch."""
        return self._data_source.size

    @property
    def variables(self) -> Sequence[str]:
        """The names of the arrays of a batch."""
        return self._data_source.variables

    # Names of NNabla's that programs read.
    _size, _variables, _current_epoch = size, variables, epoch

    @property
    def _shuffle(self) -> bool:
        """Whether the examples come in random order."""
        return self._data_source.shuffle

    @property
    def _use_thread(self) -> bool:
        """Whether batches are read ahead."""
        return self._threaded

    @property
    def batch_size(self) -> int:
        """Examples in a batch."""
        return self._batch_size

    def next(self) -> tuple[NDArray[Any], ...]:
        """The next batch.

        Returns:
            One array for each of `variables`; its first axis has `batch_size` examples.

        Raises:
            StopIteration: If `stop_exhausted` is set and no full batch is left. One that the source or a callback
                raises becomes a RuntimeError, as in a generator.
            DataError: If the iterator is closed, or if the examples' shapes differ.
        """
        with self._alone("next"):
            try:
                batch = self._next()
            except StopIteration as error:
                raise RuntimeError(
                    "DataIterator.next: expected a batch, got StopIteration from the source or a callback"
                ) from error
        if batch is None:
            raise StopIteration
        return batch

    def _next(self) -> tuple[NDArray[Any], ...] | None:
        if self._closed:
            raise DataError("DataIterator.next: expected an open iterator, got a closed one")
        ahead, self._ahead = self._ahead, None
        try:
            batch = self._read() if ahead is None else ahead.result()
        except BaseException:
            # A wait that was interrupted must not lose the batch, nor may two threads read at once.
            self._ahead = ahead if ahead is not None and not ahead.done() else None
            raise
        if batch is None:
            return None
        self._position = batch.position
        self._read_ahead()
        for _ in range(batch.epochs):
            for callback in self._epoch_end_callbacks:
                callback(self._epoch)
            self._epoch += 1
            for callback in self._epoch_begin_callbacks:
                callback(self._epoch)
        return batch.data

    def _reset(self) -> None:
        """Begin an epoch anew, as programs of NNabla do between two that share an iterator; the count stays."""
        with self._alone("_reset"):
            if self._ahead is not None:
                wait([self._ahead])
            if _core.is_nnabla():
                self._data_source.reset()  # The batch that was read ahead comes before the new epoch, as in NNabla.
                return
            self._ahead, self._rows, self._wraps = None, [], 0
            self._data_source.reset()
            self._data_source.apply_order()
            self._position = self._data_source.position
            self._read_ahead()

    def _read_ahead(self) -> None:
        if self._thread is None:
            return
        ends_epoch = self._data_source.position + self._batch_size >= self._data_source.size
        self._ahead = self._thread.submit(self._read)
        if ends_epoch and _core.is_nnabla() and self._data_source.shuffle:
            # It draws an order from a generator that others may share: without the wait their orders go by chance.
            wait([self._ahead])

    def _read(self) -> _Batch | None:
        self._reader = threading.get_ident()
        try:
            return self._read_batch()
        finally:
            self._reader = None

    def _read_batch(self) -> _Batch | None:
        source = self._data_source
        if self._stop_exhausted and source.position - len(self._rows) + self._batch_size > source.size:
            return None
        while len(self._rows) < self._batch_size:
            self._rows.append(source.next())
            if source.position >= source.size and not self._stop_exhausted:
                source.reset()
                self._turns += 1
                self._wraps += 1
                if not _core.is_nnabla():
                    source.apply_order()
        if self._wraps and _core.is_nnabla():
            source.apply_order()  # NNabla fills the batch up from the order of before.
        try:
            data = _stack(source.variables, self._rows)
        except DataError:
            self._rows = []  # They will never fit together.
            raise
        self._rows, wraps, self._wraps = [], self._wraps, 0
        return _Batch(data, wraps, source.position)

    def slice(
        self,
        rng: RandomState | None,
        num_of_slices: int | None = None,
        slice_pos: int | None = None,
        slice_start: int | None = None,
        slice_end: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        use_cache: bool = False,
        drop_last: bool | None = None,
    ) -> DataIterator:
        """An iterator over a part of the examples, such as the share of one worker of many.

        Give either `num_of_slices` and `slice_pos` or `slice_start` and `slice_end`. All slices of one iterator
        together give each example once an epoch, unless `drop_last` says otherwise. `shard` is what several processes
        that train together want.

        Args:
            rng: What the order of a cache is drawn from.
            num_of_slices: Into how many parts the examples are divided.
            slice_pos: Which of them, from 0.
            slice_start: The first position.
            slice_end: The one after the last position.
            cache_dir: A folder to keep the part's examples in as files, which are read from the first epoch on.
            use_cache: Whether to keep examples in memory.
            drop_last: What is done if the parts cannot be equal: None makes some of them longer by one example, True
                leaves examples out, False gives some of them twice, as NNabla does.

        Returns:
            The iterator; its batches are as large as this one's.

        Raises:
            DataError: If the part is not given in one of the two ways, or if it does not exist.
        """
        by_number = num_of_slices is not None and slice_pos is not None
        by_range = slice_start is not None and slice_end is not None
        given = [argument is not None for argument in (num_of_slices, slice_pos, slice_start, slice_end)]
        if by_number == by_range or sum(given) != 2:
            raise DataError(
                "DataIterator.slice: expected either `num_of_slices` and `slice_pos` or `slice_start` and `slice_end`, "
                f"got {num_of_slices}, {slice_pos}, {slice_start} and {slice_end}"
            )
        if num_of_slices is not None and slice_pos is not None:
            if drop_last is None and _core.is_nnabla():
                drop_last = False
            slice_start, slice_end = _part(self.size, num_of_slices, slice_pos, drop_last)
        with self._alone("slice"):
            if self._ahead is not None:
                wait([self._ahead])  # Which may end an epoch: slices made one after the other begin in the same one.
            source: DataSource = SlicedDataSource(
                self._data_source, self._data_source.shuffle, slice_start=slice_start, slice_end=slice_end
            )
        if cache_dir is not None and (use_cache or not _core.is_nnabla()):
            source = DataSourceWithFileCache(source, cache_dir, shuffle=self._data_source.shuffle, rng=rng)
        if use_cache and (cache_dir is None or _core.is_nnabla()):
            source = DataSourceWithMemoryCache(source, self._data_source.shuffle, rng)
        return DataIterator(source, self._batch_size)

    def shard(self, rank: int, size: int) -> DataIterator:
        """An iterator over the share of one process of several: every `size`-th example from number `rank` on.

        All shares together give each example once an epoch. Batches of `batch_size` examples on each of `size`
        processes are together the batches that one process with `size` times as many examples gets.

        Args:
            rank: Number of the process, from 0.
            size: Number of processes.

        Returns:
            The iterator; its batches are as large as this one's.

        Raises:
            DataError: If there is no such share.

        Examples:
            >>> from kinnor.utils.data_iterator import data_iterator_simple
        >>> examples = data_iterator_simple(lambda i: (i,), 7, batch_size=2, shuffle=False)
            >>> first, second = examples.shard(0, 2), examples.shard(1, 2)
            >>> [int(i) for batch in (first.next(), second.next()) for i in batch[0]], first.size, second.size
            ([0, 2, 1, 3], 4, 3)
        """
        with self._alone("shard"):
            if self._ahead is not None:
                wait([self._ahead])
            return DataIterator(
                InterleavedDataSource(self._data_source, rank, size), self._batch_size, use_thread=self._threaded
            )

    def state(self) -> dict[str, int]:
        """Where the iterator is, for `set_state` of an iterator that was made the same way.

        Returns:
            The epoch, how many of its examples all shares have given out, and the number of shares.
        """
        source = self._data_source
        shares = source._step if isinstance(source, InterleavedDataSource) else 1
        return {"epoch": self._epoch, "position": self._position * shares, "shares": shares}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on where another iterator was: over the same source, perhaps divided into another number of shares.

        Args:
            state: What `state` of the other one gave.

        Raises:
            DataError: If the source cannot go to that epoch.
        """
        with self._alone("set_state"):
            if self._ahead is not None:
                wait([self._ahead])
            self._rows, self._wraps, self._ahead = [], 0, None
            epoch, position = int(state["epoch"]), int(state["position"])
            source = self._data_source
            if _core.is_nnabla() and not isinstance(source, InterleavedDataSource):
                self._repeat(epoch, position)
                return
            if isinstance(source, InterleavedDataSource):
                position = -(-(position - source._first) // source._step)
            while position >= source.size:  # The share is shorter than the others, and at its end already.
                epoch, position = epoch + 1, position - source.size
            source.seek(epoch, position)
            self._epoch, self._position = epoch, position
            self._read_ahead()

    def _repeat(self, epoch: int, position: int) -> None:
        """Go to a position in an epoch by drawing the orders of those before, which NNabla's sources do not keep."""
        source = self._data_source
        if epoch < self._turns:
            raise DataError(
                f"DataIterator.set_state: expected an iterator that has not read beyond epoch {epoch}, got one in "
                f"epoch {self._turns}"
            )
        while self._turns < epoch:
            source._position = source.size
            source.reset()
            source.apply_order()
            self._turns += 1
        source._position = position
        self._epoch, self._position = epoch, position
        self._read_ahead()

    def register_epoch_end_callback(self, callback: Callable[[int], object]) -> None:
        """Call a function with the number of an epoch when it ends."""
        self._epoch_end_callbacks.append(callback)

    def register_epoch_begin_callback(self, callback: Callable[[int], object]) -> None:
        """Call a function with the number of an epoch when it begins."""
        self._epoch_begin_callbacks.append(callback)


def _stack(names: Sequence[str], rows: list[Sequence[Any]]) -> tuple[NDArray[Any], ...]:
    """One array for each variable of several examples."""
    counts = {len(row) if hasattr(row, "__len__") else 0 for row in rows}
    if counts != {len(names)}:
        raise DataError(
            f"data iterator: expected {len(names)} arrays in each example, got {sorted(counts)} of them in a batch"
        )
    data = []
    for i, name in enumerate(names):
        arrays = [np.asarray(row[i]) for row in rows]
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise DataError(f"data iterator: expected all examples of {name} to have one shape, got {sorted(shapes)}")
        data.append(np.stack(arrays))
    return tuple(data)


def _part(size: int, n_parts: int, part: int, drop_last: bool | None) -> tuple[int, int]:
    if not 0 <= part < n_parts <= size:
        raise DataError(
            f"DataIterator.slice: expected 0 <= slice_pos < num_of_slices <= {size}, got {part} and {n_parts}"
        )
    if drop_last is None:
        return size * part // n_parts, size * (part + 1) // n_parts
    length = size // n_parts if drop_last else -(-size // n_parts)
    start = length * part if drop_last else length * part % size
    start = min(start, size - length)
    return start, start + length
