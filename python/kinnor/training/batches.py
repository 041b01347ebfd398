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
"""The arrays of a batch, with a row for each example."""

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
    """The whole batches of a data iterator."""

    def __init__(self, iterator: DataIterator) -> None:
        self.iterator: DataIterator = iterator

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


def batches(data: Any, batch_size: int, is_training: bool, shuffle: bool = True) -> Batches:
    """The batches of data as `fit` takes it.

    Args:
        data: A tuple of arrays, a `DataIterator`, or a collection of batches with a length.
        batch_size: Number of rows of a batch, of arrays.
        is_training: True to leave out rows that do not fill a batch, of arrays.
        shuffle: True for a random order, of arrays for training.

    Raises:
        CallError: If it is something else.
    """
    if isinstance(data, DataIterator):
        return OfIterator(data)
    if isinstance(data, tuple) and data and all(hasattr(each, "shape") for each in data):
        return OfArrays(data, batch_size, is_training, shuffle)
    if hasattr(data, "__len__") and hasattr(data, "__iter__") and not hasattr(data, "shape") and len(data):
        return OfCollection(data)
    got = type(data).__name__
    raise CallError(f"fit: expected a tuple of arrays, a DataIterator or a list of batches as data, got {got}")
