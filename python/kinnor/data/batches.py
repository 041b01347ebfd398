"""Iterators over batches of a data source, with prefetching in a thread.

Knows batches, epochs and the thread. Sources load the examples.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from .. import _check, _core
from .._core import CallError
from .._suggest import lacks
from .cache_data_source import DataSourceWithFileCache
from .data_source import (
    DEFAULT_SEED,
    DataError,
    DataSource,
    DataSourceWithMemoryCache,
    InterleavedDataSource,
    SlicedDataSource,
    check_source,
    knows_epochs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.random import RandomState
    from numpy.typing import NDArray
    from typing_extensions import Self

__all__ = ["DataIterator"]


_last_reads: WeakKeyDictionary[DataSource, tuple[int, threading.Event]] = WeakKeyDictionary()
"""Last reads under NNabla's names: the process that reads, and the end of the read.

The key is a source of examples. All iterators over it or over slices of it share the entry.
"""

_thread = threading.local()
"""State of the current thread: `reads` is true while the thread reads a source."""


def _last_read(source: DataSource) -> threading.Event | None:
    """The end of the last read of a source that this process has begun, or None."""
    if getattr(_thread, "reads", False):
        return None  # A source may use another iterator while it is read. Waiting for this read would never end.
    try:
        process, end = _last_reads[source]
    except (KeyError, TypeError):
        return None
    return end if process == os.getpid() else None


class _Batch(NamedTuple):
    """A prefetched batch, the number of epochs that ended in it, and the position after it."""

    data: tuple[NDArray[Any], ...]
    """One array for each variable of the source, with a row for each example."""
    epochs: int
    position: int


class _Rows:
    """The examples of a batch. Each is copied when it is read, because a loader may return one buffer again and again.

    Args:
        size: Number of examples in a batch.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._n = 0
        # Arrays of the batch, filled up to `_n`; or examples one by one, if they differ in number, shape or type.
        self._whole: list[tuple[NDArray[Any], tuple[int, ...], np.dtype[Any]]] = []
        self._apart: list[Sequence[Any]] | None = None

    def __len__(self) -> int:
        return self._n

    def append(self, row: Sequence[Any]) -> None:
        """Copy the arrays of an example."""
        n = self._n
        if self._apart is None and not (n and self._fill(row)):
            arrays = _arrays(row)
            if n:
                self._apart = self._taken_apart()
            else:
                self._whole = [(np.empty((self._size, *x.shape), x.dtype), x.shape, x.dtype) for x in arrays]
                self._fill(arrays)
        if self._apart is not None:
            self._apart.append([array.copy() for array in _arrays(row)])
        self._n = n + 1

    def _fill(self, row: Sequence[Any]) -> bool:
        """Copies an example into the arrays of the batch. Returns False if it does not fit."""
        if not hasattr(row, "__len__") or len(row) != len(self._whole):
            return False
        for (whole, shape, dtype), value in zip(self._whole, row, strict=True):
            array = value if type(value) is np.ndarray else np.asarray(value)
            if array.shape != shape or array.dtype != dtype:
                return False
            whole[self._n] = array
        return True

    def _taken_apart(self) -> list[Sequence[Any]]:
        """The examples one by one."""
        return [[whole[i] for whole, *_ in self._whole] for i in range(self._n)]

    def stacked(self, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
        """The batch: one array for each variable.

        Args:
            names: Names of the variables.

        Raises:
            DataError: If an example has another number of arrays, or if shapes differ.
        """
        if self._apart is None and len(self._whole) == len(names):
            return tuple(whole for whole, *_ in self._whole)
        return _stack(names, self._taken_apart() if self._apart is None else self._apart)


def _arrays(row: Sequence[Any]) -> list[NDArray[Any]]:
    """The values of an example as arrays; none if it is no sequence."""
    return [np.asarray(value) for value in row] if hasattr(row, "__len__") else []


class DataIterator:
    """An endless iterator over the batches of a source. After the last example it starts the next epoch.

    Each epoch returns each example once. If the batch size does not divide the number of examples, the last batch of an
    epoch is filled up from the next epoch. A thread prefetches one batch. `next()` raises the errors of the thread, and
    the following call continues where reading stopped. Several threads may share an iterator: each batch goes to one of
    them, and the thread whose batch ends an epoch runs the callbacks. Close the iterator, or use it in a `with` block.

    Args:
        data_source: The source. The iterator closes it.
        batch_size: Examples in a batch.
        rng: Without effect, as in NNabla: the source draws the order.
        use_thread: Whether to prefetch.
        epoch_begin_callbacks: Functions called at the start of each epoch except the first, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch, without the examples that do not fill a batch. Each `for` loop
            then goes over one epoch, and `len` is the number of its batches.

    Raises:
        DataError: If `batch_size` is less than 1 or the source is empty.

    Examples:
        >>> from kinnor.data.data_iterator import data_iterator_simple
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
        self._rng = np.random.RandomState(DEFAULT_SEED) if rng is None else rng  # Programs of NNabla read it.
        self._batch_size = _check.count("DataIterator", "batch_size", batch_size, DataError)
        self._stop_exhausted = stop_exhausted
        self._epoch_begin_callbacks = list(epoch_begin_callbacks)
        self._epoch_end_callbacks = list(epoch_end_callbacks)
        self._epoch = 0
        self._closed = False
        self._is_over = False
        self._lock = threading.RLock()
        self._reader: int | None = None  # id of the thread that is reading the source
        self._rows = _Rows(self._batch_size)  # examples of the batch that is being read
        self._wraps = 0
        self._turns = 0  # number of ended epochs of the source
        self._threaded = use_thread
        self._process = os.getpid()
        self._ahead: Future[_Batch | None] | None = None
        *_, self._origin = _below(data_source)
        self._await_reads()
        data_source.reset()
        self._position = data_source.position
        self._thread = ThreadPoolExecutor(1, "kinnor-data") if use_thread else None
        self._read_ahead()

    def __iter__(self) -> Self:
        if self._is_over and not _core.is_nnabla():  # A second loop goes over the next epoch.
            self._reset()
            self._is_over = False
            self._epoch += 1
        return self

    def __len__(self) -> int:
        if not self._stop_exhausted:
            raise CallError(
                "len: expected a DataIterator with stop_exhausted=True, got one that goes on with the next epoch; "
                "iterator.size // iterator.batch_size is the number of whole batches"
            )
        return self.size // self._batch_size

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            lacks(self, name, "ITERATOR")

    def __next__(self) -> tuple[NDArray[Any], ...]:
        return self.next()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "DataIterator: expected no copy, as it would read the same source; make an iterator with the same "
            "arguments, and call set_state(state()) on it"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the thread and close the source. Repeated calls have no effect."""
        if os.getpid() != self._process:  # The source is still the other process's.
            self._closed = True
            return
        with self._alone("close"):
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                self._thread.shutdown(wait=True, cancel_futures=True)
            self._data_source.close()

    @contextmanager
    def _alone(self, op: str) -> Iterator[None]:
        """Hold the lock of the iterator. Raises DataError if the source itself calls back while it is read."""
        if self._thread is not None and os.getpid() != self._process:
            raise DataError(
                f"DataIterator.{op}: expected the process that made the iterator, got a fork of it, which has no "
                "thread that reads; make iterators after a fork, or with use_thread=False"
            )
        if self._reader == threading.get_ident():
            raise DataError(f"DataIterator.{op}: expected a call from outside of the source, got one while it is read")
        with self._lock:
            yield

    @property
    def epoch(self) -> int:
        """Number of ended epochs."""
        return self._epoch

    @property
    def position(self) -> int:
        """Number of examples of this epoch in the batches so far."""
        return self._position

    @property
    def size(self) -> int:
        """Number of examples in an epoch."""
        return self._data_source.size

    @property
    def variables(self) -> Sequence[str]:
        """The names of the arrays of a batch."""
        return self._data_source.variables

    # Attributes that programs of NNabla read.
    _size, _variables, _current_epoch = size, variables, epoch

    @property
    def _shuffle(self) -> bool:
        """Whether the source is shuffled."""
        return self._data_source.shuffle

    @property
    def _use_thread(self) -> bool:
        """Whether batches are prefetched."""
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
            StopIteration: If `stop_exhausted` is set and no full batch is left. A StopIteration of the source or a
                callback becomes a RuntimeError, as in generators.
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
            self._is_over = True
            raise StopIteration
        return batch

    @property
    def stops(self) -> bool:
        """True if the iterator stops after an epoch."""
        return self._stop_exhausted

    def restart(self) -> None:
        """Start the epoch again, unless the next example is its first one."""
        if self._position or self._is_over:
            self._reset()
            self._is_over = False

    def _next(self) -> tuple[NDArray[Any], ...] | None:
        """The next batch, or None at the end. Starts the next read."""
        if self._closed:
            raise DataError("DataIterator.next: expected an open iterator, got a closed one")
        ahead, self._ahead = self._ahead, None
        try:
            batch = self._read(_last_read(self._origin)) if ahead is None else ahead.result()
        except BaseException:
            # An interrupted wait must not lose the batch, and only one thread may read.
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

    def _await_reads(self) -> None:
        """Wait for the read ahead, and under NNabla's names for reads of other iterators over the same examples.

        In NNabla the slices of a source share its position and orders, and their threads read at the same time. Here
        they read in the order of the calls, so that a program gets the same examples in each run.
        """
        if self._ahead is not None:
            wait([self._ahead])
        if (end := _last_read(self._origin)) is not None:
            end.wait()

    def _reset(self) -> None:
        """Restart the epoch. NNabla programs do this between two users of an iterator. The epoch count stays."""
        with self._alone("_reset"):
            self._await_reads()
            if _core.is_nnabla():
                self._data_source.reset()  # The prefetched batch comes before the new epoch, as in NNabla.
                return
            self._ahead, self._rows, self._wraps = None, _Rows(self._batch_size), 0
            self._data_source.reset()
            self._data_source.apply_order()
            self._turns += 1
            self._position = self._data_source.position
            self._read_ahead()

    def _read_ahead(self) -> None:
        """Start to read the next batch in the thread."""
        if self._thread is None:
            return
        ends_epoch = self._data_source.position + self._batch_size >= self._data_source.size
        self._ahead = self._thread.submit(self._read, _last_read(self._origin))
        if _core.is_nnabla():
            end = threading.Event()
            self._ahead.add_done_callback(lambda _: end.set())
            with suppress(TypeError):  # a user-defined source without weak references or hash
                _last_reads[self._origin] = os.getpid(), end
        if ends_epoch and _core.is_nnabla() and self._data_source.shuffle:
            # The read draws an order from a generator that others may share: wait, so that their orders are
            # reproducible.
            wait([self._ahead])

    def _read(self, earlier: threading.Event | None = None) -> _Batch | None:
        """Read a batch after the end of an earlier read, and mark this thread as the reader meanwhile."""
        if earlier is not None:
            earlier.wait()
        self._reader, outer = threading.get_ident(), getattr(_thread, "reads", False)
        _thread.reads = True
        try:
            return self._read_batch()
        finally:
            self._reader, _thread.reads = None, outer

    def _read_batch(self) -> _Batch | None:
        """Read a batch from the source; None if no full batch is left."""
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
            source.apply_order()  # NNabla fills the batch up in the previous order.
        try:
            data = self._rows.stacked(source.variables)
        finally:
            self._rows = _Rows(self._batch_size)  # Stacking them again would fail again.
        wraps, self._wraps = self._wraps, 0
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
        """An iterator over a part of the examples, such as the share of one of several workers.

        Give either `num_of_slices` and `slice_pos`, or `slice_start` and `slice_end`. All slices of an iterator
        together return each example once per epoch, unless `drop_last` changes that. For data-parallel training use
        `shard`.

        Args:
            rng: Random generator for the order of a cache.
            num_of_slices: Number of slices.
            slice_pos: Index of the slice, from 0.
            slice_start: The first position.
            slice_end: The position after the last one.
            cache_dir: Folder for a file cache of the slice, which is written before the first epoch.
            use_cache: Whether to cache the examples in memory.
            drop_last: Handling of sizes that do not divide equally. None makes some slices longer by one example. True
                drops examples. False returns some examples twice, as NNabla does.

        Returns:
            The iterator, with this iterator's batch size.

        Raises:
            DataError: If neither pair of arguments is given, or if the slice does not exist.
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
            self._await_reads()  # The read may end an epoch. All slices must begin in the same epoch.
            source: DataSource = SlicedDataSource(
                self._data_source, self._data_source.shuffle, slice_start=slice_start, slice_end=slice_end
            )
        is_nnabla = _core.is_nnabla()
        in_files: Any = cache_dir
        if use_cache and is_nnabla and cache_dir is None:
            in_files = any(isinstance(each, DataSourceWithFileCache) for each in _below(source))
        if in_files and (use_cache or not is_nnabla):
            prefix = f"cache_sliced_{slice_start:08d}_{slice_end:08d}"
            source = DataSourceWithFileCache(source, cache_dir, prefix, self._data_source.shuffle, rng)
        if use_cache and (not in_files or is_nnabla):
            source = DataSourceWithMemoryCache(source, self._data_source.shuffle, rng)
        return DataIterator(source, self._batch_size)

    def shard(self, rank: int, size: int) -> DataIterator:
        """An iterator over the share of one process of several: every `size`-th example, starting at number `rank`.

        All shares together return each example once per epoch. The batches of all `size` processes together are the
        batches that a single process gets with `size` times the batch size.

        Args:
            rank: Number of the process, from 0.
            size: Number of processes.

        Returns:
            The iterator, with this iterator's batch size.

        Raises:
            DataError: If the share does not exist.

        Examples:
            >>> from kinnor.data.data_iterator import data_iterator_simple
            >>> examples = data_iterator_simple(lambda i: (i,), 7, batch_size=2, shuffle=False)
            >>> first, second = examples.shard(0, 2), examples.shard(1, 2)
            >>> [int(i) for batch in (first.next(), second.next()) for i in batch[0]], first.size, second.size
            ([0, 2, 1, 3], 4, 3)
        """
        with self._alone("shard"):
            self._await_reads()
            return DataIterator(
                InterleavedDataSource(self._data_source, rank, size), self._batch_size, use_thread=self._threaded
            )

    def state(self) -> dict[str, int]:
        """The position of the iterator, for `set_state` of an equal iterator.

        Returns:
            The epoch, the number of its examples that all shares have returned, and the number of shares. Of an
            iterator that stops after an epoch and has stopped, `over` as well.
        """
        source = self._data_source
        shares = source._step if isinstance(source, InterleavedDataSource) else 1
        state = {"epoch": self._epoch, "position": self._position * shares, "shares": shares}
        return state | ({"over": 1} if self._is_over else {})

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue at the position of another iterator over the same source. The number of shares may differ.

        Args:
            state: The other iterator's `state()`.

        Raises:
            DataError: If the source cannot seek to that epoch. The iterator stays where it is then.
        """
        with self._alone("set_state"):
            if self._closed:
                raise DataError("DataIterator.set_state: expected an open iterator, got a closed one")
            self._await_reads()
            if _core.is_nnabla() and dict(state) == self.state():
                return  # It is there, and what it has read ahead cannot be read again.
            before = self._rows, self._wraps, self._ahead
            self._rows, self._wraps, self._ahead = _Rows(self._batch_size), 0, None
            try:
                self._seek(int(state["epoch"]), int(state["position"]))
            except BaseException:
                self._rows, self._wraps, self._ahead = before
                raise
            self._is_over = bool(state.get("over", False))

    def _seek(self, epoch: int, position: int) -> None:
        """Moves to a position in an epoch, and starts to read there. Raises DataError if the source cannot."""
        source = self._data_source
        if _core.is_nnabla() and not isinstance(source, InterleavedDataSource):
            self._repeat(epoch, position)
            return
        if source.shuffle and self._turns and not knows_epochs(source):
            raise DataError(
                f"DataIterator.set_state: expected a new iterator, as {type(source).__name__} is shuffled and cannot "
                f"return to an epoch, got one that has begun epoch {self._turns}"
            )
        if isinstance(source, InterleavedDataSource):
            position = -(-(position - source._first) // source._step)
        while position >= source.size:  # The share is shorter than others, and has ended already.
            epoch, position = epoch + 1, position - source.size
        source.seek(epoch, position)
        self._epoch, self._position = epoch, position
        self._read_ahead()

    def _repeat(self, epoch: int, position: int) -> None:
        """Seek by redrawing the orders of the earlier epochs, because NNabla's sources do not store them."""
        source = self._data_source
        if epoch < self._turns:
            raise DataError(
                f"DataIterator.set_state: expected an iterator that has not read beyond epoch {epoch}, got one in "
                f"epoch {self._turns}"
            )
        # A cache in memory holds the examples by the order in which they were read: read them again in that order.
        reads = any(isinstance(each, DataSourceWithMemoryCache) and each._on_memory for each in _below(source))
        n_read, is_over = 0, False
        while (self._turns, source.position) < (epoch, position):
            end = position if self._turns == epoch else source.size
            step = min(end - source.position, self._batch_size - n_read % self._batch_size)
            for _ in range(step if reads else 0):
                source.next()
            source._position += 0 if reads else step
            n_read += step
            if source.position >= source.size:
                source.reset()
                self._turns += 1
                is_over = True
            if is_over and n_read % self._batch_size == 0:
                source.apply_order()
                is_over = False
        if is_over:
            source.apply_order()
        source._position = position
        self._epoch, self._position = epoch, position
        self._read_ahead()

    def register_epoch_end_callback(self, callback: Callable[[int], object]) -> None:
        """Add a function called at the end of each epoch, with its number."""
        self._epoch_end_callbacks.append(callback)

    def register_epoch_begin_callback(self, callback: Callable[[int], object]) -> None:
        """Add a function called at the start of each epoch, with its number."""
        self._epoch_begin_callbacks.append(callback)


def _stack(names: Sequence[str], rows: list[Sequence[Any]]) -> tuple[NDArray[Any], ...]:
    """Stack examples: one array for each variable."""
    counts = {len(row) for row in rows}
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


def _below(source: DataSource | None) -> Iterator[DataSource]:
    """Yields a source, and the sources that it reads in turn."""
    while source is not None:
        yield source
        source = getattr(source, "_data_source", None)


def _part(size: int, n_parts: int, part: int, drop_last: bool | None) -> tuple[int, int]:
    """The first position of a slice, and the position after its last one."""
    if not 0 <= part < n_parts or (n_parts > size and drop_last is not False):
        raise DataError(
            f"DataIterator.slice: expected 0 <= slice_pos < num_of_slices <= {size}, got {part} and {n_parts}"
        )
    if drop_last is None:
        return size * part // n_parts, size * (part + 1) // n_parts
    length = size // n_parts if drop_last else -(-size // n_parts)
    start = length * part if drop_last else length * part % size
    start = min(start, size - length)
    return start, start + length
