"""`StopIteration` raised by a program's own code becomes a RuntimeError, as in generators (PEP 479)."""

import numpy as np
import pytest

from kinnor.data.batches import DataIterator
from kinnor.utils.data_iterator import data_iterator, data_iterator_concat_datasets, data_iterator_simple
from kinnor.utils.data_source import DataSource


class Source(DataSource):
    """A source of numbers that raises StopIteration before the end of an epoch."""

    def __init__(self, stops_at=12):
        """Makes a source whose example `stops_at` raises StopIteration."""
        super().__init__()
        self._size, self._variables, self.stops_at = 20, ("x",), stops_at

    def _get_data(self, position):
        """Returns the position as an array; raises StopIteration at `stops_at`."""
        if position == self.stops_at:
            raise StopIteration("a generator of mine ran out")
        return (np.full(1, position, np.float32),)


def loader(stops_at=12):
    """Returns a loading function that raises StopIteration at call number `stops_at`."""
    left = [stops_at]

    def load(i):
        """Returns an example, or raises StopIteration at the chosen call."""
        left[0] -= 1
        if left[0] == 0:
            raise StopIteration
        return (np.full(1, i, np.float32),)

    return load


def stop(_):
    """A callback that raises StopIteration."""
    raise StopIteration


ITERATORS = {
    "simple": lambda thread: data_iterator_simple(loader(), 20, 5, shuffle=False, use_thread=thread),
    "source": lambda thread: data_iterator(Source(), 5, use_thread=thread, with_memory_cache=False),
    "cache": lambda thread: data_iterator(Source(), 5, use_thread=thread, with_memory_cache=True),
    "one epoch": lambda thread: data_iterator(Source(), 5, use_thread=thread, stop_exhausted=True),
    "concatenated": lambda thread: data_iterator_concat_datasets(
        [Source(30), Source(2)], 5, use_thread=thread, with_memory_cache=False
    ),
    "slice": lambda thread: data_iterator(Source(), 5, use_thread=thread, with_memory_cache=False).slice(
        None, slice_start=0, slice_end=20
    ),
    "end of an epoch": lambda thread: data_iterator(Source(99), 5, use_thread=thread, epoch_end_callbacks=[stop]),
    "begin of an epoch": lambda thread: data_iterator(Source(99), 5, use_thread=thread, epoch_begin_callbacks=[stop]),
}
"""By name: makes an iterator whose source raises `StopIteration`. Takes `use_thread`."""


@pytest.mark.parametrize("use_thread", [False, True])
@pytest.mark.parametrize("name", ITERATORS)
def test_a_loop_over_batches(name, use_thread):
    """StopIteration in a source, loader or callback raises RuntimeError in the loop over batches."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        for n, _ in enumerate(ITERATORS[name](use_thread)):
            assert n < 50


def test_a_source_that_is_iterated_over_itself():
    """StopIteration in a source that is read without an iterator raises RuntimeError."""
    source = Source(2)
    assert [float(next(source)[0][0]) for _ in range(2)] == [0, 1]
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(source)


def test_an_iterator_that_is_exhausted_stops():
    """An iterator whose batches are used up raises StopIteration, in a loop and in `next`."""
    batches = DataIterator(Source(99), 5, stop_exhausted=True, use_thread=False)
    assert len(list(batches)) == 4
    with pytest.raises(StopIteration):
        batches.next()


@pytest.mark.parametrize("thread", [False, True])
def test_each_loop_goes_over_an_epoch(thread):
    """With `stop_exhausted`, each `for` loop yields the whole batches of one epoch."""
    with data_iterator_simple(
        lambda i: (np.int32(i),), 10, 4, shuffle=True, stop_exhausted=True, use_thread=thread
    ) as batches:
        epochs = [np.concatenate([x for (x,) in batches]) for _ in range(3)]
        assert [len(set(epoch)) for epoch in epochs] == [8, 8, 8] and batches.epoch == 2
        assert any(not np.array_equal(epochs[0], epoch) for epoch in epochs), "each epoch has an order of its own"
        with pytest.raises(StopIteration):
            batches.next()
        next(iter(batches))
        assert len(list(batches)) == 1, "a loop that was left goes on"
