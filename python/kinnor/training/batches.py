"""Batches of an epoch, from arrays, data iterators or any other collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _check
from .._core import CallError, ShapeError
from ..data.data_iterator import DataIterator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

__all__ = ["Batch", "Batches", "batches"]

Batch: TypeAlias = "tuple[NDArray[Any], ...]"

SEED = 313
"""The orders of epochs follow from it, so that a run that goes on has the orders of one that was not interrupted."""


class Batches:
    """The batches of each epoch: their number, and an iterator over them."""

    iterator: DataIterator | None = None
    """The data iterator, whose position is part of a checkpoint."""

    def __len__(self) -> int:
        raise NotImplementedError

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        raise NotImplementedError


class OfArrays(Batches):
    """Rows of arrays, in a random order that depends on the number of the epoch."""

    def __init__(self, arrays: tuple[Any, ...], batch_size: int, is_training: bool, shuffle: bool) -> None:
        self.arrays = [np.asarray(each) for each in arrays]
        sizes = {each.shape[:1] for each in self.arrays}
        if len(sizes) != 1 or sizes in ({()}, {(0,)}):
            shapes = [each.shape for each in self.arrays]
            raise ShapeError(f"fit: expected arrays with one and the same number of rows, got shapes {shapes}")
        self.size = len(self.arrays[0])
        self.batch_size = min(_check.count("fit", "batch_size", batch_size), self.size)
        self.is_training, self.shuffle = is_training, shuffle and is_training

    def __len__(self) -> int:
        whole, rest = divmod(self.size, self.batch_size)
        return whole if self.is_training or not rest else whole + 1

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        order = np.random.RandomState([SEED, number]).permutation(self.size) if self.shuffle else np.arange(self.size)
        for place in range(len(self)):
            rows = order[place * self.batch_size : (place + 1) * self.batch_size]
            yield tuple(each[rows] for each in self.arrays)


class OfIterator(Batches):
    """The whole batches of a data iterator, which goes on from epoch to epoch."""

    def __init__(self, iterator: DataIterator) -> None:
        self.iterator: DataIterator = iterator
        if iterator.stops and iterator.size < iterator.batch_size:
            expected = f"a DataIterator with at least one batch of {iterator.batch_size} examples"
            raise ShapeError(f"fit: expected {expected}, got {iterator.size} examples and stop_exhausted=True")

    def __len__(self) -> int:
        return max(1, self.iterator.size // self.iterator.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        for _ in range(len(self)):
            try:
                batch = self.iterator.next()
            except StopIteration:
                batch = iter(self.iterator).next()
            yield batch


class OfWholeEpochs(OfIterator):
    """All examples of a data iterator, each once in an epoch. The last batch is cut to the examples that are left."""

    def __len__(self) -> int:
        iterator = self.iterator
        return len(iterator) if iterator.stops else -(-iterator.size // iterator.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        left = self.iterator.size
        self.iterator.restart()
        for _ in range(len(self)):
            batch = self.iterator.next()
            yield tuple(each[:left] for each in batch)
            left -= self.iterator.batch_size


class OfCollection(Batches):
    """A collection that is iterated over in each epoch."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection

    def __len__(self) -> int:
        return len(self.collection)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        for batch in self.collection:
            given = batch if isinstance(batch, (tuple, list)) else (batch,)
            yield tuple(np.asarray(each) for each in given)


def _holds_arrays(items: list[Any]) -> bool:
    """True for a batch: a list of arrays."""
    return all(hasattr(each, "shape") for each in items)


def batches(data: Any, batch_size: int, is_training: bool, shuffle: bool = True) -> Batches:
    """The batches of data as `fit` takes it.

    Args:
        data: A tuple of arrays, a `DataIterator`, or a collection of batches with a length.
        batch_size: Number of rows of a batch, of arrays.
        is_training: True to leave out rows that do not fill a batch, of arrays, or to take them in the next epoch, of
            an iterator.
        shuffle: True for a random order, of arrays for training.

    Raises:
        CallError: If it is something else.
    """
    if isinstance(data, DataIterator):
        return OfIterator(data) if is_training else OfWholeEpochs(data)
    if isinstance(data, tuple) and data and all(hasattr(each, "shape") for each in data):
        return OfArrays(data, batch_size, is_training, shuffle)
    if isinstance(data, tuple) and data and all(isinstance(each, list) and not _holds_arrays(each) for each in data):
        raise CallError("fit: expected a tuple of arrays, got a tuple of lists; numpy.asarray makes an array of each")
    is_other = isinstance(data, dict) or hasattr(data, "shape")
    if not is_other and hasattr(data, "__len__") and hasattr(data, "__iter__") and len(data):
        return OfCollection(data)
    hint = "; inputs and targets are one tuple: (inputs, targets)" if hasattr(data, "shape") else ""
    if isinstance(data, dict):
        hint = "; tuple(data.values()) has its arrays"
    told = f"fit: expected a tuple of arrays, a DataIterator or a list of batches as data, got {type(data).__name__}"
    raise CallError(told + hint)
