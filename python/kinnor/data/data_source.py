"""Data sources: they return one example at a time.

Knows positions, orders and examples, but no batches and threads.

Under NNabla's names orders are drawn at the same moments as in NNabla. Most sources then draw one in `reset()`, which
an iterator also calls before it reads, instead of in `apply_order()`.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import _core
from .._core import CallError, Error
from ..config import nnabla_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from numpy.random import RandomState
    from numpy.typing import NDArray
    from typing_extensions import Self

__all__ = [
    "DataError",
    "DataSource",
    "DataSourceWithMemoryCache",
    "InterleavedDataSource",
    "MappedDataSource",
    "Orders",
    "SlicedDataSource",
]

DEFAULT_SEED = 313
"""Seed of the generator if the caller gives none."""


class DataError(Error, ValueError):
    """The examples are inconsistent, or the source does not support the requested use."""


class _Lock:
    """A lock that can be part of a copy, which gets a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[_Lock], tuple[()]]:
        return _Lock, ()


class Orders:
    """The order of the examples in each epoch ("generation"). It is drawn once, and is the same for all readers.

    Iterators over slices of a source proceed at different speeds. Because each asks for the order of its own
    generation, the slices stay disjoint.

    Args:
        size: Number of examples.
        shuffle: Whether orders are random; otherwise all are 0, 1, 2, ...
        rng: Random generator of the orders.
        first_is_plain: Whether the order of generation 0 is always 0, 1, 2, ...
    """

    KEPT = 15
    """The number of epochs whose orders are kept."""

    def __init__(self, size: int, shuffle: bool, rng: RandomState, first_is_plain: bool = False) -> None:
        self._size = size
        self.shuffle = shuffle
        self._rng = rng
        self._orders: deque[NDArray[np.int64]] = deque(maxlen=self.KEPT)
        self._drawn = 0
        self._lock = _Lock()
        # The first order comes from the generator itself, later orders from a copy. Prefetching threads draw at any
        # time, so iterators that share a generator would otherwise affect each other's orders.
        self._draw(shuffle and not first_is_plain)
        if shuffle and not _core.is_nnabla():  # NNabla draws all orders from the generator itself
            self._rng = _copy(rng)

    def __getitem__(self, generation: int) -> NDArray[np.int64]:
        """The order of one epoch.

        Args:
            generation: The epoch, from 0.

        Raises:
            DataError: If the generation is so old that its order was dropped.
        """
        with self._lock:
            while self._drawn <= generation:
                self._draw(self.shuffle)
            behind = self._drawn - generation
            if behind > len(self._orders):
                raise DataError(
                    f"data source: expected slices to stay within {self.KEPT} epochs of each other, got one in epoch "
                    f"{generation} while another is in epoch {self._drawn - 1}"
                )
            return self._orders[-behind]

    def replace(self, generation: int, order: Sequence[int]) -> None:
        """Replace the order of an epoch.

        Args:
            generation: The epoch, from 0.
            order: Number of the example at each position.

        Raises:
            DataError: If `order` is not a permutation of the examples, or if the order of the epoch was dropped.
        """
        given = np.asarray(order)
        if given.shape != (self._size,) or given.dtype.kind not in "iu" or not np.isin(given, range(self._size)).all():
            raise DataError(f"data source: expected {self._size} numbers of examples, below {self._size}, got {order}")
        self[generation][:] = given

    def _draw(self, shuffle: bool) -> None:
        """Append the order of the next generation."""
        self._orders.append(self._permutation() if shuffle else np.arange(self._size))
        self._drawn += 1

    def _permutation(self) -> NDArray[np.int64]:
        """A random order."""
        return self._rng.permutation(self._size)


_shared: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Number of copies made of each generator."""


def _copy(rng: Any) -> Any:
    """A copy of a generator. The first copy continues the same sequence, further copies have sequences of their own."""
    made = copy.deepcopy(rng)
    try:
        n_before = _shared.get(rng, 0)
        _shared[rng] = n_before + 1
    except TypeError:  # a user-defined generator without weak references
        return made
    return np.random.RandomState([n_before, *made.permutation(4096)[:8]]) if n_before else made


class DataSource:
    """The base class of data sources.

    A subclass defines `_get_data(position)`, which returns the arrays of one example. After calling this class's
    constructor it sets `_size` and `_variables` (the names of the arrays). A shuffled subclass draws a new order in
    `reset()` or `apply_order()`, which are called at the end of each epoch.

    Args:
        shuffle: Whether to shuffle the examples.
        rng: Random generator of the order; None is `RandomState(313)`.

    Examples:
        >>> class Squares(DataSource):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self._size, self._variables = 10, ("x", "y")
        ...     def _get_data(self, position):
        ...         return position, position**2
        >>> source = Squares()
        >>> source.next(), source.next()
        ((0, 0), (1, 1))
    """

    def __init__(self, shuffle: bool = False, rng: RandomState | None = None) -> None:
        if rng is not None and not hasattr(rng, "permutation"):
            raise CallError(f"{type(self).__name__}: expected `rng` to be a RandomState or None, got {rng!r}")
        self._rng = np.random.RandomState(DEFAULT_SEED) if rng is None else rng
        self._variables: Sequence[str] = ()
        self._generation = 0
        self._shuffle = shuffle
        self._position = 0
        self._size = 0
        self._closed = False
        self._original_source_uri: str | None = None  # Programs of NNabla read it.

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the current order. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__}._get_data: expected the class to define it")

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """The example at a position in the order of one epoch, for sources that distinguish epochs."""
        return self._get_data(position)

    def __next__(self) -> Sequence[Any]:
        try:
            return self.next()
        except StopIteration as error:
            text = f"{type(self).__name__}: expected an example, got StopIteration from what loads it"
            raise RuntimeError(text) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the resources of the source. Repeated calls have no effect."""
        self._closed = True

    @property
    def variables(self) -> Sequence[str]:
        """The names of the arrays of an example."""
        return tuple(self._variables) if _core.is_nnabla() else self._variables

    def next(self) -> Sequence[Any]:
        """The next example.

        Returns:
            One array for each of `variables`.
        """
        data = self._get_data(self._position)
        self._position += 1
        return data

    @property
    def position(self) -> int:
        """Number of examples of this epoch read so far."""
        return self._position

    @property
    def size(self) -> int:
        """Number of examples."""
        return self._size

    @property
    def order(self) -> NDArray[np.int64]:
        """The numbers of the examples in the order of this epoch; 0, 1, 2, ... without shuffling."""
        orders: Orders | None = getattr(self, "_orders", None)
        return np.arange(self._size) if orders is None else orders[self._generation].copy()

    @property
    def shuffle(self) -> bool:
        """Whether the examples are shuffled."""
        return self._shuffle

    @shuffle.setter
    def shuffle(self, value: bool) -> None:
        self._shuffle = value

    def reset(self) -> None:
        """Return to the first position."""
        self._position = 0

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""

    def _generate_order(self, generation: int) -> None:
        """Draw the order of an epoch, in sources that distinguish epochs. Slices call it under NNabla's names."""

    def map(self, function: Callable[..., Sequence[Any]]) -> MappedDataSource:
        """A source with the examples that a function makes of the examples of this one.

        Args:
            function: Takes the arrays of an example, and returns a tuple of arrays.

        Returns:
            The source.

        Examples:
            >>> from kinnor.data.data_iterator import data_iterator
            >>> from kinnor.data.data_source_implements import SimpleDataSource
            >>> source = SimpleDataSource(lambda i: (i, i**2), 10).map(lambda x, y: (x, y + 1))
            >>> with data_iterator(source, batch_size=4) as batches:
            ...     batches.next()
            (array([0, 1, 2, 3]), array([ 1,  2,  5, 10]))
        """
        return MappedDataSource(self, function)

    def seek(self, generation: int, position: int) -> None:
        """Move to a position in the order of an epoch, to resume a program.

        Args:
            generation: The epoch, from 0.
            position: Number of its examples read so far.

        Raises:
            DataError: If the source does not distinguish epochs.
        """
        if generation and not knows_epochs(self):
            raise DataError(
                f"{type(self).__name__}.seek: expected a source that defines _get_data_of_generation, got one that "
                f"cannot go to epoch {generation}"
            )
        self._generation, self._position = generation, position


class DrawingDataSource(DataSource):
    """A source whose `_orders`, set by the constructor of a subclass, holds an order for each epoch.

    Under NNabla's names `reset()` draws the next order, otherwise `apply_order()` does.
    """

    _orders: Orders

    _follows_reads = False
    """True if a read moves the source to the position that it reads, under NNabla's names."""

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the current order."""
        if self._follows_reads and _core.is_nnabla():
            self._position = position
        return self._get_data_of_generation(position, self._generation)

    def reset(self) -> None:
        """Return to the first position."""
        super().reset()
        if _core.is_nnabla():
            self._draw()

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        if not _core.is_nnabla():
            self._generation += 1

    def _draw(self) -> None:
        """Draw the next order now, because other users of the generator may draw from it later."""
        self._generation += 1
        self._orders.shuffle = self._shuffle
        self._orders[self._generation]


def copied(example: Sequence[Any]) -> Sequence[Any]:
    """An example with copies of its arrays, to keep: a loader may return one buffer again and again.

    Args:
        example: The arrays of an example.
    """
    if not isinstance(example, (tuple, list)):
        return copy.copy(example)
    return tuple(np.array(value) if isinstance(value, np.ndarray) else copy.copy(value) for value in example)


def check_source(op: str, source: Any) -> None:
    """Raise CallError if `source` is not a data source."""
    if not isinstance(source, DataSource):
        raise CallError(f"{op}: expected a DataSource, got {type(source).__name__}")


def knows_epochs(source: DataSource) -> bool:
    """True if a source distinguishes epochs, so that a reader can return to one."""
    while isinstance(source, MappedDataSource) or (
        isinstance(source, DataSourceWithMemoryCache) and not source._on_memory
    ):
        source = source._data_source
    return type(source)._get_data_of_generation is not DataSource._get_data_of_generation


class WrappingDataSource(DataSource):
    """A source whose examples come from another one, `_data_source`, which moves through the epochs with it."""

    _data_source: DataSource

    @property
    def _is_read(self) -> bool:
        """True if the other source is read, so that it has to be at the same position."""
        return True

    def close(self) -> None:
        """Close the other source."""
        if not self._closed:
            self._data_source.close()
        super().close()

    def reset(self) -> None:
        """Return to the first position."""
        self._data_source.reset()
        self._generation = self._data_source._generation
        super().reset()

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        self._data_source.apply_order()
        self._generation = self._data_source._generation

    def seek(self, generation: int, position: int) -> None:
        """Move to a position in the order of an epoch.

        Args:
            generation: The epoch, from 0.
            position: Number of its examples read so far.
        """
        if self._is_read:
            self._data_source.seek(generation, position)
        super().seek(generation, position)


class MappedDataSource(WrappingDataSource):
    """The examples that a function makes of the examples of another source, in the same order; see `DataSource.map`.

    Args:
        data_source: The source, which is closed with this one.
        function: Takes the arrays of an example, and returns a tuple of arrays.

    Raises:
        DataError: If the function returns no tuple.
    """

    def __init__(self, data_source: DataSource, function: Callable[..., Sequence[Any]]) -> None:
        check_source("MappedDataSource", data_source)
        super().__init__(data_source.shuffle)
        self._data_source, self._function = data_source, function
        self._size, self._generation = data_source.size, data_source._generation
        first = self._mapped(data_source._get_data(0))
        names = data_source.variables
        self._variables = names if len(first) == len(names) else [f"x{i}" for i in range(len(first))]

    def _mapped(self, example: Sequence[Any]) -> Sequence[Any]:
        """Applies the function to an example and checks that it returned a tuple or list."""
        made = self._function(*example)
        if not isinstance(made, (tuple, list)):
            raise DataError(f"MappedDataSource: expected a tuple of arrays, got {type(made).__name__}")
        return made

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the function of the example at a position of the current order."""
        return self._mapped(self._data_source._get_data(position))

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the function of the example at a position of an epoch's order."""
        return self._mapped(self._data_source._get_data_of_generation(position, generation))


class DataSourceWithMemoryCache(WrappingDataSource):
    """Reads each example of another source once and caches it, if all examples fit in memory.

    The first epoch has the other source's order, later epochs have orders of their own. The size limit is
    `data_source_buffer_max_size` in `kinnor.config`, by default 1 GiB. A larger source is read again in each epoch.

    Args:
        data_source: The source to read.
        shuffle: Whether to shuffle the examples.
        rng: Random generator of the order; None is `RandomState(313)`.
    """

    def __init__(self, data_source: DataSource, shuffle: bool = False, rng: RandomState | None = None) -> None:
        super().__init__(shuffle, rng)
        self._data_source = data_source
        self._size = data_source.size
        self._variables = data_source.variables
        n_bytes = sum(np.asarray(value).nbytes for value in data_source._get_data(0)) * self._size
        limit = int(nnabla_config.get("DATA_ITERATOR", "data_source_buffer_max_size"))
        self._cache: dict[int, Sequence[Any]] | None = {} if n_bytes < limit else None
        self._loading = _Lock()  # Slices read the same source, each in a thread of its own.
        self._generation = self._cached_generation = data_source._generation
        self._orders = Orders(self._size, shuffle, self._rng, first_is_plain=_core.is_nnabla() or data_source.shuffle)
        self._turns = -1
        self._order: NDArray[np.int64] | None = np.arange(self._size) if _core.is_nnabla() else None
        self._in_turn: list[Sequence[Any]] = []  # NNabla's cache: examples by the order in which they were read

    @property
    def _on_memory(self) -> bool:
        """True if examples are cached. Programs of NNabla read it, and set it to False."""
        return self._cache is not None

    @_on_memory.setter
    def _on_memory(self, value: bool) -> None:
        self._cache = ({} if self._cache is None else self._cache) if value else None

    @property
    def _is_read(self) -> bool:
        """True if the other source is read, as it does not fit in memory."""
        return self._cache is None

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the current order, from the cache once it is filled."""
        if self._order is None:
            return self._get_data_of_generation(position, self._generation)
        self._position = position
        if self._cache is None:
            return self._data_source._get_data(position)
        return self._as_nnabla(position, int(self._order[position]))

    def _as_nnabla(self, position: int, index: int) -> Sequence[Any]:
        """An example from NNabla's cache, which takes the number of examples read so far for the next index.

        Programs that skip positions, such as slices, get the examples that NNabla gives them.
        """
        with self._loading:
            if index < len(self._in_turn):
                return self._in_turn[index]
            example = copied(self._data_source._get_data(position))
            self._in_turn.append(example)
            return example

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of an epoch's order, from the cache once it is filled."""
        if self._cache is None:
            return self._data_source._get_data_of_generation(position, generation)
        return self._cached(self._cache, int(self._orders[generation][position]))

    def _cached(self, cache: dict[int, Sequence[Any]], index: int) -> Sequence[Any]:
        """An example from the cache, loaded on first use."""
        if index not in cache:
            with self._loading:
                if index not in cache:
                    cache[index] = copied(self._data_source._get_data_of_generation(index, self._cached_generation))
        return cache[index]

    def close(self) -> None:
        """Release the cache and close the original source."""
        if not self._closed:
            self._cache = None
            self._in_turn = []
        super().close()

    def reset(self) -> None:
        """Return to the first position."""
        if self._cache is None:
            self._data_source.reset()
        elif self._order is not None:
            self._turn()
        self._position = 0

    def _turn(self) -> None:
        """Switch to the next order as NNabla does: the first two epochs have the source's order."""
        self._turns += 1
        is_drawn = self._shuffle and self._turns > 0
        self._order = self._rng.permutation(self._size) if is_drawn else np.arange(self._size)
        if self._position == 0:
            self._turns = -1
        else:
            self._data_source._position = self._position
            self._data_source.reset()

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        if self._order is not None:
            return
        if self._cache is None:
            self._data_source.apply_order()
        self._generation += 1


class SlicedDataSource(DataSource):
    """A slice of another source: its positions from `slice_start` up to, not including, `slice_end`.

    Slices of a shuffled source have other examples in each epoch; together they have each example once. A source that
    does not distinguish epochs, because it does not define `_get_data_of_generation`, is shuffled within each slice.

    Args:
        data_source: The source, which can be shared.
        shuffle: Whether the source is shuffled.
        rng: Random generator for an order within the slice; None is `RandomState(313)`.
        slice_start: The first position.
        slice_end: The position after the last one.

    Raises:
        DataError: If the slice does not exist.
    """

    def __init__(
        self,
        data_source: DataSource,
        shuffle: bool = False,
        rng: RandomState | None = None,
        slice_start: int | None = None,
        slice_end: int | None = None,
    ) -> None:
        super().__init__(shuffle, rng)
        start = 0 if slice_start is None else slice_start
        end = data_source.size if slice_end is None else slice_end
        if not 0 <= start < end <= data_source.size:
            raise DataError(
                f"SlicedDataSource: expected 0 <= slice_start < slice_end <= {data_source.size}, got {start} and {end}"
            )
        self._data_source = data_source
        self._variables = data_source.variables
        self._slice_start = start
        self._slice_end = end
        self._as_nnabla = _core.is_nnabla()
        self._generation = 0 if self._as_nnabla else data_source._generation
        self._size = end - start
        has_orders = shuffle and not knows_epochs(data_source) and not self._as_nnabla
        self._orders = Orders(self._size, has_orders, self._rng)

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the slice, in the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of the slice, in an epoch's order."""
        position = self._slice_start + int(self._orders[generation][position])
        inner = self._data_source
        if self._as_nnabla and isinstance(inner, (DrawingDataSource, DataSourceWithMemoryCache, SlicedDataSource)):
            return inner._get_data(position)  # NNabla has one order of these sources at a time.
        return self._data_source._get_data_of_generation(position, generation)

    def reset(self) -> None:
        """Return to the first position."""
        if self._as_nnabla:
            self._data_source.reset()
            self._data_source._position = self._slice_start
        super().reset()

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        self._generation += 1
        if self._as_nnabla:
            self._data_source._generate_order(self._generation)


class InterleavedDataSource(DataSource):
    """Every `step`-th example of another source, in the order of each epoch: the share of one of `step` processes.

    All shares together have each example once per epoch. Their lengths differ by one at most. After equal numbers of
    reads, the examples read by all shares are a prefix of the epoch's order. Another number of processes can therefore
    continue from there.

    Args:
        data_source: The source, which can be shared.
        first: Position of the first example, from 0.
        step: Number of shares.

    Raises:
        DataError: If the share does not exist, or if a shuffled source does not distinguish epochs.
    """

    def __init__(self, data_source: DataSource, first: int, step: int) -> None:
        super().__init__(data_source.shuffle)
        if not 0 <= first < step <= data_source.size:
            raise DataError(
                f"InterleavedDataSource: expected 0 <= first < step <= {data_source.size}, got {first} and {step}"
            )
        if data_source.shuffle and not knows_epochs(data_source):
            raise DataError(
                "InterleavedDataSource: expected a source that defines _get_data_of_generation, as it is shuffled, got "
                f"{type(data_source).__name__}"
            )
        self._data_source = data_source
        self._variables = data_source.variables
        self._generation = data_source._generation
        self._first, self._step = first, step
        self._size = -(-(data_source.size - first) // step)

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of this source's share, in the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of this source's share, in an epoch's order."""
        return self._data_source._get_data_of_generation(self._first + position * self._step, generation)

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        self._generation += 1
