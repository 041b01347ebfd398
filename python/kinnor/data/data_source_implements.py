"""Data sources for common cases."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _check, _core
from .cache_data_source import CacheDataSource
from .csv_data_source import CsvDataSource
from .data_source import DataError, DataSource, DrawingDataSource, Orders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

__all__ = ["CacheDataSource", "ConcatDataSource", "CsvDataSource", "SimpleDataSource"]


class SimpleDataSource(DataSource):
    """Examples loaded by a function: the one at `position` is `load_func(order[position])`.

    The function is called once with 0, to count the arrays of an example. They are named `x0`, `x1` and so on.

    Args:
        load_func: Function from an example's index to a tuple of its arrays. The thread of an iterator calls it.
        num_examples: Number of examples.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.

    Raises:
        DataError: If there are no examples, or if the function does not return a tuple.
    """

    def __init__(
        self,
        load_func: Callable[[int], Sequence[Any]],
        num_examples: int,
        shuffle: bool = False,
        rng: RandomState | None = None,
    ) -> None:
        super().__init__(shuffle, rng)
        _check.callee("SimpleDataSource", "load_func", load_func)
        num_examples = _check.count("SimpleDataSource", "num_examples", num_examples, DataError)
        first = load_func(0)
        if not hasattr(first, "__len__"):
            raise DataError(
                "SimpleDataSource: expected `load_func` to return a tuple with the arrays of an example, "
                f"got {type(first).__name__}"
            )
        if isinstance(first, np.ndarray) and not _core.is_nnabla():
            raise DataError(
                "SimpleDataSource: expected `load_func` to return a tuple of arrays, got one array of shape "
                f"{first.shape}; a comma after it, `return x,`, makes a tuple"
            )
        self._load_func = load_func
        self._size = num_examples
        self._variables = [f"x{i}" for i in range(len(first))]
        self._orders = Orders(num_examples, shuffle, self._rng)

    def _get_data(self, position: int) -> Sequence[Any]:
        """Loads the example at a position of the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Loads the example at a position of an epoch's order."""
        return self._load_func(int(self._orders[generation][position]))

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        self._generation += 1
        if _core.is_nnabla():
            self._generate_order(self._generation)

    def _generate_order(self, generation: int) -> None:
        """Draw the orders up to this generation."""
        self._orders[generation]


class ConcatDataSource(DrawingDataSource):
    """Several sources, one after the other, as a single source.

    Args:
        data_source_list: The sources. They have the same variables.
        shuffle: Whether to shuffle the examples of all sources, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.

    Raises:
        DataError: If there are no sources, or if their variables differ.
    """

    def __init__(
        self, data_source_list: Sequence[DataSource], shuffle: bool = True, rng: RandomState | None = None
    ) -> None:
        super().__init__(shuffle, rng)
        names = [list(source.variables) for source in data_source_list]
        if not names or any(other != names[0] for other in names):
            raise DataError(f"ConcatDataSource: expected sources with the same variables, got {names}")
        self._data_sources = list(data_source_list)
        self._ends = list(accumulate(source.size for source in data_source_list))
        self._size = self._ends[-1]
        self._variables = names[0]
        self._orders = Orders(self._size, shuffle, self._rng)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of an epoch's order, from the source that has it."""
        index = int(self._orders[generation][position])
        which = bisect_right(self._ends, index)
        start = self._ends[which - 1] if which else 0
        return self._data_sources[which]._get_data(index - start)

    def close(self) -> None:
        """Close all sources."""
        if not self._closed:
            for source in self._data_sources:
                source.close()
        super().close()
