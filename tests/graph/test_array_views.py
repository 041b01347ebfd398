"""NumPy views of live memory: visibility of writes, and lifetimes."""

import gc
import threading

import numpy as np
import pytest
from test_arrays import array, variable

import kinnor as nn
import kinnor.functions as F


def test_a_view_reads_and_writes_the_variable():
    v = variable([1, 2, 3])
    view = v.d
    view[0] = 10
    v.d[1] += 5
    assert v.d.tolist() == view.tolist() == [10, 7, 3]
    v.d = np.array([4, 5, 6], np.float32)
    assert view.tolist() == [4, 5, 6]
    v.g = 7
    v.g[...] += 1
    assert v.g.tolist() == [8, 8, 8]


def test_a_forward_run_writes_through_a_view():
    x = variable([1, 2])
    y = x * 2
    y.forward()
    view = y.d
    x.d = [5, 6]
    y.forward()
    assert view.tolist() == [10, 12]


def test_a_write_through_a_view_is_seen_by_the_next_run():
    x = variable([1, 2])
    y = F.exp(x)
    view = x.d
    for value in (0, 1, 2):
        view[...] = value
        y.forward()
        np.testing.assert_allclose(y.d, np.exp([value] * 2), rtol=1e-6)


def test_a_write_through_a_view_of_another_type_is_seen_too():
    w = variable([1, 2], np.float64)
    view = w.d
    y = w * 3
    y.forward()
    view[0] = 4  # the run caches a float32 copy, which must not be used again
    y.forward()
    assert y.d.tolist() == [12, 6]


@pytest.mark.parametrize(
    "end",
    [
        lambda v: v.data.clear(),
        lambda v: v.data.zero(),
        lambda v: v.data.fill(9),
        lambda v: setattr(v, "d", 0),
        lambda v: setattr(v, "data", array([7, 8])),
        lambda v: setattr(v, "d", np.array([7, 8], np.float64)),
        lambda v: v.data.cast(np.int32),
        lambda v: v.reset_shape((3,), force=True),
    ],
)
def test_a_view_keeps_its_values_when_the_memory_is_replaced(end):
    v = variable([1, 2])
    view = v.d
    end(v)
    assert view.tolist() == [1, 2]
    v.data.data[...] = 5
    assert view.tolist() == [1, 2]
    view[...] = 3
    assert set(v.d.flat) == {5}


def test_a_view_outlives_its_variable():
    """A view keeps its memory alive after its variable and graph are freed."""
    y = variable([1, 2, 3]) * 0
    y.forward()
    view = y.d
    del y
    part = array([[1, 2], [3, 4]]).narrow(0, 1, 1).data
    gc.collect()
    nn.clear_memory_cache()
    others = [nn.Variable((3,)) for _ in range(100)]
    for v in others:
        v.d[...] = 7
    assert view.tolist() == [0, 0, 0]
    assert part.tolist() == [[3, 4]]


def test_a_view_survives_runs_that_clear():
    """A view keeps its values when a run clears the variable's memory."""
    x = variable([1, 2], need_grad=True)
    h = x * 2
    y = F.sum(h * h)
    y.forward()
    view = h.d
    y.forward(clear_buffer=True)
    assert view.tolist() == [2, 4]


def test_reading_only_gives_a_view_that_cannot_write():
    a = array([1, 2])
    count = a.modification_count
    view = a.get_data("r")
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    assert a.get_data("r", np.int32).dtype == np.int32
    assert a.dtype == np.float32
    assert a.modification_count == count
    assert a.get_data("w", np.int32).dtype == a.dtype == np.int32
    with pytest.raises(ValueError, match="mode"):
        a.get_data("x")


def test_threads_may_make_and_drop_views():
    """Threads increment elements through views while another thread casts the array."""
    v = nn.Variable((1000,))

    def work(n):
        """Increments elements through views, while one thread casts the array."""
        for _ in range(200):
            view = v.d
            view[n] += 1
            if n == 0:
                v.data.cast(np.float32)
            del view

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert v.d[:4].tolist() == [200] * 4
