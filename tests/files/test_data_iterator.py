"""Data iterators: order of batches, epochs, slices, the loader thread, and its errors."""

import contextlib
import copy
import pickle
import re
import threading
import time

import numpy as np
import pytest

import kinnor
from kinnor.config import nnabla_config
from kinnor.utils.data_iterator import (
    DataIterator,
    data_iterator,
    data_iterator_concat_datasets,
    data_iterator_simple,
)
from kinnor.utils.data_source import DataError, DataSource, DataSourceWithMemoryCache, Orders, SlicedDataSource
from kinnor.utils.data_source_implements import ConcatDataSource, SimpleDataSource

both = pytest.mark.parametrize("use_thread", [False, True], ids=["direct", "thread"])
"""Runs a test with and without a prefetching thread."""


def number(i):
    """Returns example number `i`: a tuple of the number itself."""
    return (np.float32(i),)


def take(batches, n):
    """Returns the next `n` batches as lists."""
    return [batches.next()[0].astype(int).tolist() for _ in range(n)]


def examples(batches, n):
    """Returns the examples of the next `n` batches in one list."""
    return np.concatenate([batches.next()[0] for _ in range(n)]).astype(int).tolist()


@both
def test_batches_come_in_order_and_wrap(use_thread):
    """Batches follow the order of examples, and the last batch of an epoch is filled from the next."""
    with data_iterator_simple(number, 5, 2, use_thread=use_thread) as batches:
        assert take(batches, 2) == [[0, 1], [2, 3]]
        assert (batches.epoch, batches.position) == (0, 4)
        assert take(batches, 1) == [[4, 0]]
        assert (batches.epoch, batches.position) == (1, 1)
        assert take(batches, 5) == [[1, 2], [3, 4], [0, 1], [2, 3], [4, 0]]
        assert (batches.epoch, batches.size, batches.batch_size) == (3, 5, 2)


@both
def test_shuffled_order_matches_nnabla(use_thread):
    # RandomState(313) draws the order of each epoch. The batches are from NNabla 1.39.
    with data_iterator_simple(number, 6, 2, shuffle=True, use_thread=use_thread) as batches:
        assert take(batches, 9) == [[5, 4], [1, 3], [2, 0], [1, 4], [3, 2], [5, 0], [3, 1], [2, 4], [5, 0]]


@both
@pytest.mark.parametrize("cached", [False, True])
def test_each_epoch_has_each_example_once(use_thread, cached):
    """A shuffled iterator yields each example once in every epoch, in changing orders."""
    with data_iterator_simple(number, 7, 3, shuffle=True, use_thread=use_thread, with_memory_cache=cached) as batches:
        epochs = np.reshape(examples(batches, 28), (12, 7))
    assert (np.sort(epochs) == np.arange(7)).all()
    assert len({tuple(epoch) for epoch in epochs}) > 10


def test_rng_seeds_the_order():
    """Generators with the same seed give the same order of examples."""

    def first(rng):
        """Returns the first batch of a shuffled iterator."""
        with data_iterator_simple(number, 100, 100, shuffle=True, rng=rng) as batches:
            return take(batches, 1)

    assert first(np.random.RandomState(1)) == first(np.random.RandomState(1)) != first(None)


def test_batch_larger_than_the_source():
    """A batch larger than the source repeats the examples, and counts the epochs."""
    with data_iterator_simple(number, 2, 5) as batches:
        assert take(batches, 1) == [[0, 1, 0, 1, 0]]
        assert batches.epoch == 2


@both
def test_stop_exhausted_drops_the_tail_and_each_loop_is_an_epoch(use_thread):
    with data_iterator_simple(number, 5, 2, use_thread=use_thread, stop_exhausted=True) as batches:
        for _ in range(3):
            assert [batch[0].tolist() for batch in batches] == [[0, 1], [2, 3]]
            with pytest.raises(StopIteration):
                batches.next()


@both
def test_stop_exhausted_gives_all_where_the_batch_size_divides(use_thread):
    with data_iterator_simple(number, 6, 2, use_thread=use_thread, stop_exhausted=True) as batches:
        assert len(list(batches)) == 3
        with pytest.raises(StopIteration):
            batches.next()


def test_arrays_keep_dtype_and_shape():
    """Batches stack examples and keep their element types and shapes."""
    with data_iterator_simple(lambda i: (np.full((1, 4, 4), i, np.uint8), np.array([i])), 8, 4) as batches:
        images, labels = batches.next()
        assert batches.variables == ["x0", "x1"]
    assert (images.shape, images.dtype) == ((4, 1, 4, 4), np.uint8)
    assert labels.tolist() == [[0], [1], [2], [3]]


@both
def test_epoch_callbacks(use_thread):
    """Callbacks are called at the end and the beginning of each epoch."""
    calls = []
    batches = data_iterator_simple(
        number, 4, 2, use_thread=use_thread, epoch_end_callbacks=[lambda epoch: calls.append(("end", epoch))]
    )
    batches.register_epoch_begin_callback(lambda epoch: calls.append(("begin", epoch)))
    with batches:
        take(batches, 1)
        assert calls == []
        take(batches, 3)
    assert calls == [("end", 0), ("begin", 1), ("end", 1), ("begin", 2)]


@both
def test_failure_is_raised_by_next_and_loses_no_example(use_thread):
    failures = iter([OSError("disk"), OSError("disk again")])

    def load(i):
        """Loads an example. Raises the next of `failures` at example 3."""
        if i == 3 and (error := next(failures, None)) is not None:
            raise error
        return number(i)

    with data_iterator_simple(load, 5, 2, use_thread=use_thread) as batches:
        assert take(batches, 1) == [[0, 1]]
        with pytest.raises(OSError, match="disk"):
            batches.next()
        with pytest.raises(OSError, match="again"):
            batches.next()
        assert take(batches, 2) == [[2, 3], [4, 0]]


def test_reads_one_batch_ahead_in_one_other_thread():
    seen = []

    def load(i):
        """Loads an example and records its thread."""
        seen.append((i, threading.current_thread().name))
        return number(i)

    with data_iterator_simple(load, 10, 2) as batches:
        batches.next()
        deadline = time.monotonic() + 10
        while len(seen) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert [i for i, _ in seen] == [0, 0, 1, 2, 3]
    assert len({name for _, name in seen[1:]} - {threading.current_thread().name}) == 1


def in_threads(n_threads, work):
    """Calls `work` in several threads, and raises the first error."""
    failures = []

    def guarded():
        """Calls `work` and records its error."""
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@both
@pytest.mark.parametrize("shuffle", [False, True])
def test_threads_that_share_an_iterator_get_each_example_once_an_epoch(use_thread, shuffle):
    batches_left, got, epochs = iter(range(100)), [], []
    with data_iterator_simple(
        lambda i: (time.sleep(0), i)[1:], 20, 8, shuffle, use_thread=use_thread, epoch_end_callbacks=[epochs.append]
    ) as batches:

        def work():
            """Takes batches until the shared count is used up."""
            for _ in batches_left:
                got.extend(batches.next()[0].tolist())

        in_threads(8, work)
        assert batches.epoch == 40
    assert np.bincount(got).tolist() == [40] * 20
    assert epochs == list(range(40))


def test_threads_that_stop_together_share_one_epoch():
    with data_iterator_simple(number, 50, 2, stop_exhausted=True) as batches:
        got = []

        def take_all():
            """Takes batches until none is left. A loop that starts after the end would start another epoch."""
            with contextlib.suppress(StopIteration):
                while True:
                    got.extend(int(i) for i in batches.next()[0])

        in_threads(4, take_all)
    assert sorted(got) == list(range(50))


def test_an_iterator_that_another_thread_closes():
    """`next` raises DataError if another thread closes the iterator meanwhile."""
    for _ in range(20):
        batches = data_iterator_simple(number, 10, 2)
        opened = threading.Event()

        def work(batches=batches, opened=opened):
            """Takes batches until the iterator is closed."""
            with pytest.raises(DataError, match="expected an open iterator, got a closed one"):
                while True:
                    batches.next()
                    opened.set()

        def close(batches=batches, opened=opened):
            """Closes the iterator once the other thread has started."""
            opened.wait()
            batches.close()

        closer = threading.Thread(target=close)
        closer.start()
        in_threads(3, work)
        closer.join()
        assert batches._data_source._closed


def test_slices_that_threads_make_begin_together():
    """Slices that several threads create together partition each epoch."""
    with data_iterator_simple(number, 12, 3, shuffle=True, with_memory_cache=True) as batches:
        examples(batches, 2)
        parts, places = [], iter(range(4))
        in_threads(4, lambda: parts.append(batches.slice(None, 4, next(places))))
        for _ in range(3):
            assert sorted(i for part in parts for i in examples(part, 1)) == list(range(12))
        for part in parts:
            part.close()


def test_slices_in_threads_load_each_example_of_a_cache_once():
    source = Own(40)
    with data_iterator(source, 5) as batches:
        places = iter(range(4))

        def work():
            """Reads one slice of the iterator."""
            with batches.slice(None, 4, next(places)) as part:
                examples(part, 20)

        in_threads(4, work)
        examples(batches, 8)
    assert source.n_loaded == 40 + 1


@both
@pytest.mark.parametrize("act", ["next", "close", "slice"])
def test_a_source_that_calls_its_iterator_is_refused(use_thread, act):
    arguments = (None, 2, 0) if act == "slice" else ()
    made = []

    def load(i):
        """Calls the iterator from its own source at example 4."""
        if made and i == 4:
            getattr(made[0], act)(*arguments)
        return number(i)

    batches = data_iterator_simple(load, 6, 2, use_thread=use_thread)
    examples(batches, 1)
    made.append(batches)
    with pytest.raises(DataError, match=f"DataIterator.{act}: expected a call from outside of the source"):
        examples(batches, 3)
    batches.close()


@both
def test_examples_with_changing_numbers_of_arrays_are_refused(use_thread):
    counts = {3: 1, 5: 3}
    with data_iterator_simple(lambda i: (i,) * counts.get(i, 2), 6, 2, use_thread=use_thread) as batches:
        assert [x.tolist() for x in batches.next()] == [[0, 1], [0, 1]]
        for got in ("[1, 2]", "[2, 3]"):
            with pytest.raises(DataError, match=re.escape(f"expected 2 arrays in each example, got {got}")):
                batches.next()
        # The batch that did not fit is lost, but its epoch has ended.
        assert [x.tolist() for x in batches.next()] == [[0, 1], [0, 1]]
        assert (batches.epoch, batches.position) == (1, 2)


def test_close_ends_the_thread_and_closes_the_source():
    source = SimpleDataSource(number, 10)
    before = threading.active_count()
    batches = DataIterator(source, 2)
    batches.next()
    batches.close()
    batches.close()
    assert threading.active_count() == before
    assert source._closed
    with pytest.raises(DataError, match="closed"):
        batches.next()


def test_dropped_iterator_ends_its_thread():
    """The prefetching thread ends when the iterator is dropped without `close`."""
    before = threading.active_count()
    batches = data_iterator_simple(number, 10, 2)
    batches.next()
    del batches
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threading.active_count() == before


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("use_cache", [False, True])
def test_slices_partition_each_epoch(shuffle, use_cache):
    """The slices of an iterator together yield each example once in every epoch."""
    with data_iterator_simple(number, 12, 2, shuffle=shuffle) as batches:
        slices = [batches.slice(None, num_of_slices=3, slice_pos=i, use_cache=use_cache) for i in range(3)]
        # Read each at its own pace.
        epochs = [np.reshape(examples(part, 10), (5, 4)) for part in slices]
        for part in slices:
            part.close()
        assert len(examples(batches, 1)) == 2
    assert (np.sort(np.concatenate(epochs, axis=1)) == np.arange(12)).all()


def test_slices_that_cannot_be_equal():
    """If slices cannot be equal, they differ, overlap or drop examples, as `drop_last` says."""
    with data_iterator_simple(number, 10, 1) as batches:
        unequal = [batches.slice(None, 3, i) for i in range(3)]
        assert [[part.next()[0].item() for _ in range(part.size)] for part in unequal] == [
            [0, 1, 2],
            [3, 4, 5],
            [6, 7, 8, 9],
        ]
        shared = [batches.slice(None, 3, i, drop_last=False) for i in range(3)]
        dropped = [batches.slice(None, 3, i, drop_last=True) for i in range(3)]
        assert [examples(part, 4) for part in shared] == [[0, 1, 2, 3], [4, 5, 6, 7], [6, 7, 8, 9]]
        assert [examples(part, 3) for part in dropped] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        for part in unequal + shared + dropped:
            part.close()
        with batches.slice(None, 12, 11, drop_last=False) as part:
            assert examples(part, 2) == [1, 1]
        with pytest.raises(DataError, match="slice_pos < num_of_slices <= 10, got 11 and 12"):
            batches.slice(None, 12, 11, drop_last=True)


def test_slice_by_range_and_of_a_slice():
    """A slice may be given by a range, and may itself be sliced."""
    with (
        data_iterator_simple(number, 10, 2) as batches,
        batches.slice(None, slice_start=2, slice_end=8) as part,
        part.slice(None, slice_start=1, slice_end=3) as inner,
    ):
        assert take(part, 4) == [[2, 3], [4, 5], [6, 7], [2, 3]]
        assert take(inner, 2) == [[3, 4], [3, 4]]


def test_slice_after_many_epochs():
    """Slices that are made after many epochs still partition each epoch."""
    with data_iterator_simple(number, 4, 4, shuffle=True) as batches:
        examples(batches, 40)
        with batches.slice(None, 2, 0) as part, batches.slice(None, 2, 1) as other:
            epochs = np.reshape([examples(part, 5), examples(other, 5)], (2, 10, 2))
        assert (np.sort(epochs.transpose(1, 0, 2).reshape(10, 4)) == np.arange(4)).all()


@pytest.mark.parametrize(
    "arguments", [{}, {"num_of_slices": 2}, {"slice_start": 1}, {"num_of_slices": 2, "slice_pos": 0, "slice_start": 1}]
)
def test_slice_needs_exactly_one_way_to_select(arguments):
    with data_iterator_simple(number, 4, 2) as batches, pytest.raises(DataError, match="either"):
        batches.slice(None, **arguments)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 2), (3, 2), (0, 5)])
def test_slice_out_of_range(start, end):
    """Slices outside the source are refused."""
    with pytest.raises(DataError, match="slice_start"):
        SlicedDataSource(SimpleDataSource(number, 4), slice_start=start, slice_end=end)
    with data_iterator_simple(number, 4, 2) as batches, pytest.raises(DataError, match="slice_pos"):
        batches.slice(None, num_of_slices=2, slice_pos=2)


@pytest.mark.parametrize("shuffle", [False, True])
def test_order_lists_the_examples_of_an_epoch(shuffle):
    source = SimpleDataSource(number, 6, shuffle=shuffle)
    for _ in range(3):
        order = source.order
        assert [int(source.next()[0]) for _ in range(6)] == order.tolist()
        source.reset()
        source.apply_order()
    assert Own(3).order.tolist() == [0, 1, 2]


def test_old_orders_are_dropped():
    """Only the orders of the most recent epochs can be read."""
    orders = Orders(4, True, np.random.RandomState(0))
    first = orders[0]
    assert sorted(orders[Orders.KEPT - 1]) == [0, 1, 2, 3]
    assert orders[0] is first
    orders[Orders.KEPT]
    with pytest.raises(DataError, match="within 15 epochs"):
        orders[0]


class Own(DataSource):
    """A source as a user of NNabla writes it, shuffled again at each reset."""

    def __init__(self, size, shuffle=False, rng=None):
        """Makes a source of `size` pairs of numbers."""
        super().__init__(shuffle=shuffle, rng=rng)
        self._size = size
        self._variables = ("x", "y")
        self.n_loaded = 0
        self.reset()

    def reset(self):
        """Draws a new order of the examples if the source shuffles, and starts at the first."""
        self._indexes = self._rng.permutation(self._size) if self._shuffle else np.arange(self._size)
        super().reset()

    def _get_data(self, position):
        """Loads a pair (i, i * i) and counts the loads."""
        self.n_loaded += 1
        i = self._indexes[position]
        return i, i * i


@both
@pytest.mark.parametrize("cached", [False, True])
def test_own_source(use_thread, cached):
    """A data source of a user works in an iterator, with and without cache and thread."""
    with data_iterator(Own(6, shuffle=True), 4, use_thread=use_thread, with_memory_cache=cached) as batches:
        assert batches.variables == ("x", "y")
        pairs = [np.stack(batches.next()) for _ in range(6)]
    x, y = np.concatenate(pairs, axis=1)
    assert (np.sort(x.reshape(4, 6)) == np.arange(6)).all()
    assert (y == x * x).all()
    assert len({tuple(epoch) for epoch in x.reshape(4, 6)}) > 1


def test_slice_of_own_source_is_shuffled_within():
    """A shuffled slice of a user's source yields the examples of its range only."""
    with (
        data_iterator(Own(10), 1, with_memory_cache=False) as batches,
        DataIterator(SlicedDataSource(batches._data_source, True, slice_start=2, slice_end=6), 1) as part,
    ):
        epochs = np.reshape(examples(part, 12), (3, 4))
    assert (np.sort(epochs) == np.arange(2, 6)).all()
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_memory_cache_loads_each_example_once():
    """With a memory cache, each example of the source is loaded once."""
    source = Own(6, shuffle=True)
    with data_iterator(source, 3) as batches:
        examples(batches, 8)
    assert source.n_loaded == 6 + 1  # and one load to find the size


def test_a_cache_begins_in_the_order_of_the_source_that_shares_its_generator():
    """The first order is the same with a cache."""
    orders = [np.random.RandomState(1).permutation(10).tolist()]
    for cached in (False, True):
        rng = np.random.RandomState(1)
        with data_iterator_simple(number, 10, 10, True, rng, with_memory_cache=cached) as batches:
            orders.append(examples(batches, 1))
            assert sorted(examples(batches, 1)) == list(range(10))
    assert orders[0] == orders[1] == orders[2]


def test_memory_cache_that_is_too_small_passes_through(monkeypatch):
    """A memory cache below the size of the data still gives each example once per epoch, shuffled."""
    monkeypatch.setitem(nnabla_config["DATA_ITERATOR"], "data_source_buffer_max_size", "8")
    source = SimpleDataSource(number, 4, shuffle=True)
    with DataIterator(DataSourceWithMemoryCache(source, shuffle=True), 2) as batches:
        epochs = np.reshape(examples(batches, 8), (4, 4))
    assert (np.sort(epochs) == np.arange(4)).all()
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_concatenated_sources():
    """`data_iterator_concat_datasets` reads sources one after the other, or shuffles all examples."""

    def parts():
        """Returns a source of three numbers from 0, and one of two numbers from 10."""
        return [SimpleDataSource(number, 3), SimpleDataSource(lambda i: (10 + i,), 2)]

    with data_iterator_concat_datasets(parts(), 5) as batches:
        assert take(batches, 1) == [[0, 1, 2, 10, 11]]
    with data_iterator_concat_datasets(parts(), 5, shuffle=True) as batches:
        epochs = take(batches, 4)
        assert all(sorted(epoch) == [0, 1, 2, 10, 11] for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) > 1
    with pytest.raises(DataError, match="same variables"):
        ConcatDataSource([SimpleDataSource(number, 3), Own(3)])
    with pytest.raises(DataError, match="same variables"):
        ConcatDataSource([])


def test_source_by_itself():
    """A source can be read without an iterator."""
    with SimpleDataSource(number, 3) as source:
        assert (source.next(), next(source), source.position, source.size) == ((0.0,), (1.0,), 2, 3)
        source.reset()
        assert source.position == 0
        assert not source.shuffle


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data_iterator_simple(number, 4, 0), "`batch_size` to be at least 1, got 0"),
        (lambda: data_iterator_simple(number, 0, 4), "`num_examples` to be at least 1, got 0"),
        (lambda: data_iterator_simple(float, 4, 2), "to return a tuple"),
        (
            lambda: data_iterator_simple(lambda i: np.zeros((1, 8, 8)), 4, 2),
            r"got one array of shape \(1, 8, 8\); a comma",
        ),
        (lambda: data_iterator_simple(lambda i: np.zeros(3), 4, 2), r"got one array of shape \(3,\)"),
        (lambda: data_iterator(Own(0), 2, with_memory_cache=False), "an empty one"),
        (lambda: data_iterator_simple(lambda i: (np.zeros(i),), 4, 2, use_thread=False).next(), "one shape"),
    ],
)
def test_unsupported_sources_are_refused(call, message):
    with pytest.raises(DataError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, kinnor.Error)


def test_invalid_batch_size():
    """A batch size that is not an integer is refused."""
    with pytest.raises(TypeError):
        data_iterator_simple(number, 4, 2.5)


@pytest.mark.parametrize("shuffle", [False, True])
def test_shards_match_one_process_and_resume_in_another_number(shuffle):
    def iterator(size):
        """Returns an iterator of batches of `size` examples."""
        return data_iterator_simple(number, 10, size, shuffle=shuffle, rng=np.random.RandomState(3))

    with iterator(4) as whole:
        expected = [examples(whole, 1) for _ in range(5)]
        states = whole.state()
    halves = [iterator(2).shard(rank, 2) for rank in range(2)]
    assert [half.size for half in halves] == [5, 5]
    for batch in expected[:3]:
        assert sorted(i for half in halves for i in examples(half, 1)) == sorted(batch)
    assert halves[0].state() == {"epoch": 1, "position": 2, "shares": 2}
    quarters = [iterator(1).shard(rank, 4) for rank in range(4)]
    for quarter in quarters:
        quarter.set_state(halves[0].state())
    again = iterator(4)
    again.set_state(halves[0].state())
    assert examples(again, 1) == expected[3]
    assert sorted(i for quarter in quarters for i in examples(quarter, 1)) == sorted(expected[3])
    assert states == {"epoch": 2, "position": 0, "shares": 1}
    for each in (*halves, *quarters, again):
        each.close()


def test_invalid_shards():
    """A shard that begins beyond the step is refused."""
    with data_iterator_simple(number, 3, 1) as batches, pytest.raises(DataError, match="0 <= first < step <= 3"):
        batches.shard(3, 3)


SHARED = {
    "plain": {"with_memory_cache": False},
    "memory": {"with_memory_cache": True},
    "files": {"with_memory_cache": False, "with_file_cache": True},
    "slice": {"with_memory_cache": False},
}
"""Caches of two iterators with one generator, by name. They must not change each other's order."""


@both
@pytest.mark.parametrize("kind", SHARED)
def test_iterators_that_share_a_generator_do_not_change_each_others_orders(kind, use_thread):
    def orders(turns):
        """Returns the orders in which two iterators with one generator give their examples. `turns` says which iterator
        is next.
        """
        rng = np.random.RandomState(1)
        made = [data_iterator_simple(number, 12, 4, True, rng, use_thread, **SHARED[kind]) for _ in range(2)]
        if kind == "slice":
            made = [batches.slice(rng, 2, 0, use_cache=True) for batches in made]
        found = [[], []]
        for which in turns:
            found[which] += examples(made[which], 1)
            if use_thread:
                time.sleep(0.002)
        for batches in made:
            batches.close()
        return found, rng.randint(1 << 30)

    first = orders([0] * 12 + [1] * 12)
    assert first == orders([1] * 12 + [0] * 12) == orders([0, 1] * 12)
    assert first[0][0] != first[0][1]


@both
def test_an_iterator_draws_its_orders_as_its_generator_does(use_thread):
    """The orders are the permutations that the generator draws."""
    rng = np.random.RandomState(5)
    wanted = [i for _ in range(4) for i in rng.permutation(10)]
    rng = np.random.RandomState(5)
    with data_iterator_simple(number, 10, 5, True, rng, use_thread) as batches:
        assert examples(batches, 8) == wanted


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("num_workers", "`n_workers` of data_iterator"),
        ("drop_last", ".* filled from the next epoch"),
        ("generator", "did you mean 'rng'"),
        ("collate_fn", "arrays of one shape are stacked"),
        ("shuffel", "did you mean 'shuffle'"),
        ("color_mode", r"images have three channels; shape=\(1, height, width\)"),
    ],
)
def test_arguments_of_other_libraries_are_explained(name, told):
    calls = (
        lambda **more: data_iterator_simple(number, 4, 2, **more),
        lambda **more: kinnor.data.data_iterator.data_iterator_csv_dataset("none.csv", 2, **more),
        lambda **more: kinnor.data.data_iterator.data_iterator_image_folder("none", 2, **more),
    )
    for call in calls:
        with pytest.raises(TypeError, match=f"got an argument '{name}'; {told}"):
            call(**{name: 1})


def test_errors_list_the_arguments_if_no_other_is_near():
    known = "num_examples, batch_size, shuffle, rng, use_thread, with_memory_cache, with_file_cache, cache_dir"
    with pytest.raises(TypeError, match=f"expected \\(load_func, {known}.*\\), got an argument 'zebra'$"):
        data_iterator_simple(number, 4, 2, zebra=1)


def one_epoch(batches):
    """Returns the batches of a `for` loop as lists."""
    return [each[0].astype(int).tolist() for each in batches]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"use_thread": False}, {"with_memory_cache": True}])
@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_an_iterator_that_stops_goes_on_where_another_one_was(shuffle, arguments, stop):
    """Also if either of them has stopped, which `stop` 4 is: the next loop is the next epoch then."""

    def iterator():
        """Returns an iterator that stops after each three batches."""
        rng = np.random.RandomState(3)
        return data_iterator_simple(number, 13, 4, shuffle=shuffle, rng=rng, stop_exhausted=True, **arguments)

    with iterator() as first, iterator() as second:
        for _ in range(stop):
            next(first, None)
        state = first.state()
        expected = [one_epoch(first) for _ in range(3)]
        assert [len(each) for each in expected] == [3 - stop % 4 if stop else 3, 3, 3]
        for _ in range(2):  # The second time the iterator has stopped, in a later epoch.
            second.set_state(state)
            assert second.state() == state
            assert [one_epoch(second) for _ in range(3)] == expected


@both
@pytest.mark.parametrize("mapped", [False, True])
def test_an_iterator_that_cannot_go_to_a_state_loses_no_batch(use_thread, mapped):
    """A source that cannot return to an epoch refuses, and does not give another order than that epoch's."""
    source = Own(6, shuffle=True)
    source = source.map(lambda x, y: (x, y)) if mapped else source
    with DataIterator(source, 2, use_thread=use_thread) as batches:
        start = batches.state()
        assert sorted(examples(batches, 3)) == list(range(6))
        first = examples(batches, 1)
        for state in (start, {"epoch": 3, "position": 0, "shares": 1}):
            with pytest.raises(DataError, match="cannot"):
                batches.set_state(state)
        assert sorted(first + examples(batches, 2)) == list(range(6))
    with pytest.raises(DataError, match="set_state: expected an open iterator"):
        batches.set_state(start)


@pytest.mark.parametrize("share", ["shard", "n_workers"])
def test_a_shuffled_source_that_knows_no_epochs_is_not_read_in_parallel(share):
    """Neither if its examples are mapped: its order may change while others read."""
    with pytest.raises(DataError, match="_get_data_of_generation"):
        mapped = Own(6, shuffle=True).map(lambda x, y: (x, y))
        if share == "n_workers":
            data_iterator(mapped, 2, n_workers=2)
        with DataIterator(mapped, 2, use_thread=False) as batches:
            batches.shard(0, 2)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda source: pickle.loads(pickle.dumps(source))])
@pytest.mark.parametrize(
    "make",
    [
        lambda: SimpleDataSource(number, 9, shuffle=True),
        lambda: DataSourceWithMemoryCache(SimpleDataSource(number, 9, shuffle=True), shuffle=True),
        lambda: ConcatDataSource([SimpleDataSource(number, 9)], shuffle=True),
        lambda: SlicedDataSource(Own(9, shuffle=True), shuffle=True, slice_start=2, slice_end=8),
        lambda: Own(9, shuffle=True),
    ],
)
def test_a_copy_of_a_source_goes_on_from_the_same_place(make, duplicate):
    """It has its own position, and the orders of the original."""
    first = make()
    first.next()
    second = duplicate(first)
    expected = [int(first.next()[0]) for _ in range(4)]
    assert [int(second.next()[0]) for _ in range(4)] == expected
    for source in (first, second):
        source.reset()
        source.apply_order()
    assert int(first.next()[0]) == int(second.next()[0])


@both
@pytest.mark.parametrize("kind", ["plain", "memory", "files", "workers", "map", "slice", "views", "mixed types"])
def test_a_loader_may_return_one_buffer_again(kind, use_thread):
    """Batches hold the values of each example as it was loaded, also if examples are kept or read ahead."""
    buffer, label = np.zeros((2, 3)), np.zeros(1, np.int64)

    def load(i):
        """Writes the example into the buffers, and returns the same buffers for each example."""
        buffer[...] = label[...] = i
        if kind == "mixed types":
            return buffer if i % 2 else buffer.astype(np.float32), label
        return (buffer[:], label.reshape(1)) if kind == "views" else (buffer, label)

    source = SimpleDataSource(load, 10)
    source = source.map(lambda x, y: (np.add(x, 0, out=x), y)) if kind == "map" else source
    more = {"with_memory_cache": kind == "memory", "with_file_cache": kind == "files", "use_thread": use_thread}
    if kind == "workers":
        more["n_workers"] = 1
    with data_iterator(source, 4, **more) as whole:
        batches = whole.slice(None, slice_start=0, slice_end=10) if kind == "slice" else whole
        found = [batches.next() for _ in range(5)]
        for i, (x, y) in enumerate(found):
            wanted = [(4 * i + k) % 10 for k in range(4)]
            assert x.shape == (4, 2, 3)
            assert x[:, 1, 2].tolist() == wanted
            assert y.ravel().tolist() == wanted
        batches.close()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_iterator_is_not_copied(duplicate):
    with data_iterator_simple(number, 9, 2) as batches:
        with pytest.raises(TypeError, match=r"call set_state\(state\(\)\)"):
            duplicate(batches)
        assert take(batches, 1) == [[0, 1]]
