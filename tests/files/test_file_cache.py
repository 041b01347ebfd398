"""Data sets cached in files: iterators that write the cache, and iterators that read it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kinnor.utils.cache_data_source import write_cache
from kinnor.utils.create_cache import CreateCache
from kinnor.utils.data_iterator import (
    data_iterator,
    data_iterator_cache,
    data_iterator_csv_dataset,
    data_iterator_simple,
)
from kinnor.utils.data_source import DataSourceWithFileCache, DataSourceWithFileCacheError
from kinnor.utils.data_source_implements import CacheDataSource, SimpleDataSource


def test_file_caches():
    """With a file cache each example is loaded once, and the cache is removed at the end."""
    read = []

    def load(i):
        """Loads an example and records its index."""
        read.append(i)
        return np.float32(i), np.arange(2) + i

    with data_iterator_simple(load, 250, 50, with_file_cache=True, shuffle=True) as batches:
        folder = Path(batches._data_source._folder)
        assert len(list(folder.glob("*.npy"))) == 3
        first, second = ([batches.next() for _ in range(5)] for _ in range(2))
    assert not folder.exists()
    assert len(read) == 1 + 250
    for epoch in (first, second):
        numbers = np.concatenate([x for x, _ in epoch])
        assert sorted(numbers) == list(range(250))
        np.testing.assert_array_equal(np.concatenate([y for _, y in epoch])[:, 1], numbers + 1)
    assert not np.array_equal(first[0][0], second[0][0])


def test_a_file_cache_stays_in_the_given_folder(tmp_path):
    with data_iterator_simple(lambda i: (np.float32(i),), 10, 2, cache_dir=tmp_path / "all") as batches:
        assert batches.next()[0].tolist() == [0, 1]
        with batches.slice(None, 2, 1, cache_dir=tmp_path / "part") as part:
            assert part.next()[0].tolist() == [5, 6]
    with data_iterator_cache(tmp_path / "all", 10) as batches:
        assert batches.next()[0].tolist() == list(range(10))
    with data_iterator_cache(tmp_path / "part", 5) as batches:
        assert batches.next()[0].tolist() == [5, 6, 7, 8, 9]
    ragged = SimpleDataSource(lambda i: (np.zeros(i),), 3)
    with pytest.raises(DataSourceWithFileCacheError, match="expected arrays of one shape for 'x0'"):
        DataSourceWithFileCache(ragged)


def test_a_shuffled_cache_goes_through_one_file_after_the_other(tmp_path, monkeypatch):
    """A shuffled cache shuffles files, and examples within a file, so each file is read once."""
    write_cache(SimpleDataSource(lambda i: (np.int64(i),), 950), tmp_path)
    read = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda file, **given: read.append(file.name) or load(file, **given))
    epochs = []
    with CacheDataSource(tmp_path, shuffle=True, rng=np.random.RandomState(5)) as source:
        for _ in range(3):
            epochs.append([int(source.next()[0]) for _ in range(950)])
            source.reset()
            source.apply_order()
    # as NNabla draws: the order of the files, then the order within each file when it is read
    rng = np.random.RandomState(5)
    expected = [i * 100 + j for i in rng.permutation(10) for j in rng.permutation(100 if i < 9 else 50)]
    assert epochs[0] == expected
    assert all(sorted(epoch) == list(range(950)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert all(len({i // 100 for i in epoch[:50]}) == 1 for epoch in epochs)
    assert len(read) <= 3 * 10


def test_a_shuffled_cache_in_parts_gives_each_example_once(tmp_path):
    write_cache(SimpleDataSource(lambda i: (np.int64(i),), 250), tmp_path)
    with data_iterator(CacheDataSource(tmp_path, shuffle=True), 25, with_memory_cache=False) as batches:
        parts = [batches.slice(None, 2, i) for i in range(2)]
        for _ in range(2):
            found = [int(x) for part in parts for _ in range(5) for x in part.next()[0]]
            assert sorted(found) == list(range(250))


def test_a_cache_of_a_csv_file(tmp_path):
    """`CreateCache` converts a CSV file, and records the order of its examples."""
    path = tmp_path / "a.csv"
    path.write_text("x,y__0,y__1\n1,2,3\n4,5,6\n7,8,9\n")
    CreateCache(path, shuffle=True).create(tmp_path / "cache", cache_file_name_prefix="part")
    assert (tmp_path / "cache/original.csv").read_text() == path.read_text()
    order = np.loadtxt(tmp_path / "cache/order.csv", delimiter=",", dtype=int)
    with data_iterator_cache(tmp_path / "cache", 3) as batches:
        x, y = batches.next()
    np.testing.assert_array_equal(x[:, 0], 1 + 3 * order[:, 1])
    np.testing.assert_array_equal(y, x + np.array([1, 2]))
    with data_iterator_csv_dataset(path.as_uri(), 3, cache_dir=tmp_path / "other") as batches:
        assert batches.next()[0].tolist() == [[1], [4], [7]]
    assert (tmp_path / "other/cache_info.csv").read_text() == "x\ny\n"


def numbers(start, size=250):
    """Returns a source of numbers from `start` on."""
    return SimpleDataSource(lambda i: (np.int64(start + i),), size)


def read(source):
    """Returns all examples of an epoch."""
    return [int(source._get_data(i)[0]) for i in range(source.size)]


def test_two_writers_of_one_folder_keep_their_examples(tmp_path):
    """Each reads what it wrote itself, if the other has the same examples; otherwise the older one raises."""
    first = DataSourceWithFileCache(numbers(0), tmp_path)
    same = DataSourceWithFileCache(numbers(0), tmp_path)
    assert read(first) == read(same) == list(range(250))
    assert len(list(tmp_path.glob("*.npy"))) == 3
    old = CacheDataSource(tmp_path)
    newer = DataSourceWithFileCache(numbers(1000), tmp_path)
    assert read(newer) == list(range(1000, 1250))
    with pytest.raises(OSError, match="cache_00000000_00000099"):
        read(old)
    assert len(list(tmp_path.glob("*.npy"))) == 3, "files of the older examples are removed"


def test_a_write_that_ends_early_leaves_the_older_data_set(tmp_path):
    """Not some files of the new one, which a reader would mix with the old ones."""

    def load(i):
        """Returns an example, and fails in the second file."""
        if i > 150:
            raise KeyError(i)
        return (np.int64(-1),)

    write_cache(numbers(0), tmp_path)
    with pytest.raises(KeyError):
        write_cache(SimpleDataSource(load, 250), tmp_path)
    assert read(CacheDataSource(tmp_path)) == list(range(250))


def test_objects_are_not_cached():
    source = SimpleDataSource(lambda i: (np.array([{}]),), 3)
    with pytest.raises(DataSourceWithFileCacheError, match="expected arrays of numbers for 'x0', got objects"):
        DataSourceWithFileCache(source)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("use_thread", [False, True])
@pytest.mark.parametrize("ends", ["close", "drop", "exit"])
def test_a_fork_leaves_the_cache_and_does_not_wait_for_a_thread(use_thread, ends):
    """A thread that reads is in the first process only, and so is the folder of the cache."""
    code = f"""
import os, signal, sys
import numpy as np
from kinnor.data.data_iterator import data_iterator_simple
from kinnor.data.data_source import DataError
batches = data_iterator_simple(lambda i: (np.int64(i),), 6, 2, use_thread={use_thread}, with_file_cache=True)
batches.next()
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        assert batches.next()[0].tolist() == [2, 3] and not {use_thread}
    except DataError as error:
        assert {use_thread} and "after a fork" in str(error)
    if {ends!r} == "close":
        batches.close()
    elif {ends!r} == "drop":
        del batches
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert [batches.next()[0].tolist() for _ in range(2)] == [[2, 3], [4, 5]]
folder = batches._data_source._folder
assert folder.exists()
batches.close()
assert not folder.exists()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
