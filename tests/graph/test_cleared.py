"""Reading arrays that a program has cleared: an error for integers, and for values that a run still needs."""

import copy
import pickle
import signal
import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

TYPES = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
"""Element types of integers. A cleared array of them is an error to read."""
TABLE = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(3, 2))
"""A float table that integers index."""
SCORES = np.ones((2, 3), np.float32)
"""Scores of two rows for three classes."""


def scores():
    """Returns the scores as a variable without a gradient."""
    return nn.Variable.from_numpy_array(SCORES)


READERS = {
    "d": lambda v: v.d,
    "data": lambda v: v.data.data,
    "cast": lambda v: v.data.cast(np.float32),
    "cast to itself": lambda v: v.data.cast(v.data.dtype),
    "copy": lambda v: nn.NdArray(v.shape).copy_from(v.data),
    "deep copy": lambda v: v.create_deep_copy(),
    "numpy": lambda v: np.asarray(v.d),
    "pickle": lambda v: pickle.dumps(v),
    "deepcopy": lambda v: copy.deepcopy(v),
    "dlpack": lambda v: np.from_dlpack(v.data),
    "part": lambda v: v.data.narrow(0, 0, 1).data,
    "identity": lambda v: F.identity(v),
    "add": lambda v: v + 1,
    "slice": lambda v: v[:1],
    "transpose": lambda v: F.transpose(v, (1, 0)),
    "concatenate": lambda v: F.concatenate(v, v, axis=0),
    "embed": lambda v: F.embed(v, TABLE),
    "one_hot": lambda v: F.one_hot(v, (3,)),
    "gather": lambda v: F.gather(TABLE, v, axis=0),
    "gather_nd": lambda v: F.gather_nd(TABLE, v),
    "index": lambda v: TABLE[v[:, 0]],
    "softmax_cross_entropy": lambda v: F.softmax_cross_entropy(scores(), v),
    "categorical_cross_entropy": lambda v: F.categorical_cross_entropy(scores(), v),
    "top_n_error": lambda v: F.top_n_error(scores(), v),
    "sigmoid_cross_entropy": lambda v: F.sigmoid_cross_entropy(nn.Variable((2, 1)), v),
    "where": lambda v: F.where(v, nn.Variable((2, 1)), nn.Variable((2, 1))),
    "array": lambda v: F.sin(v.data),
    "assigned": lambda v: nn.Variable((2, 1)).__setitem__(slice(None), v),
}
"""Ways to read the value of a variable, some of them through a function."""


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_integers_that_were_cleared_are_an_error_to_read(name, at_once):
    for dtype in TYPES:
        v = nn.Variable.from_numpy_array(np.array([[1], [0]]).astype(dtype))
        v.data.clear()
        assert v.data.clear_called
        with pytest.raises(nn.ClearedError), nn.auto_forward(at_once):
            y = READERS[name](v)
            if isinstance(y, nn.Variable) and y.parent is not None:
                y.forward()
            if name == "assigned":
                F.identity(v).forward()
        repr(v), str(v)
        v.d = np.array([[1], [0]])  # it can be written again
        with nn.auto_forward(at_once):
            y = READERS[name](v)
            if isinstance(y, nn.Variable) and y.parent is not None:
                y.forward()


@pytest.mark.parametrize("dtype", TYPES)
def test_no_integers_at_all_and_writes_are_no_error(dtype):
    """Cleared integer arrays can be written. Empty ones can also be read."""
    v = nn.Variable.from_numpy_array(np.zeros((0, 2), dtype))
    v.data.clear()
    assert v.d.shape == (0, 2)
    v = nn.Variable.from_numpy_array(np.ones((2, 2), dtype))
    for write in (
        lambda: v.data.zero(),
        lambda: v.data.fill(1),
        lambda: setattr(v, "d", np.ones((2, 2), dtype)),
        lambda: v.data.copy_from(nn.NdArray.from_numpy_array(np.ones((2, 2), dtype))),
    ):
        v.data.clear()
        write()
        assert v.d.shape == (2, 2)


def test_real_numbers_that_were_cleared_stay_so_as_integers():
    a = nn.NdArray.from_numpy_array(np.ones(2, np.float32))
    a.clear()
    with pytest.raises(nn.ClearedError):
        a.cast(np.int32)
    assert np.isnan(a.data).all()


def network():
    """Returns leaf, two persistent values and loss of a small network."""
    x = nn.Variable.from_numpy_array(np.ones((3, 4), np.float32), need_grad=True)
    h = F.sort(x * 2.0, axis=1)
    h.persistent = True
    g = F.tanh(h)
    g.persistent = True
    return x, h, g, F.sum(g * h)


@pytest.mark.parametrize("plan", ["plain", "optimised"])
@pytest.mark.parametrize("which", [1, 2])
def test_a_value_cleared_by_a_hook_is_an_error_in_the_forward_run(which, plan):
    *variables, y = network()
    nn.config.plan = plan
    try:
        y.forward()
        expected = y.d.copy()

        def clear(f):
            """A hook that clears one of the values."""
            if f.outputs[0] == variables[which]:
                variables[which].data.clear()

        for _ in range(3):
            with pytest.raises(nn.ClearedError):
                y.forward(function_post_hook=clear)
            y.forward()
            np.testing.assert_array_equal(y.d, expected)
    finally:
        nn.config.plan = "optimised"


def test_a_value_cleared_by_a_hook_is_an_error_in_the_backward_run():
    x, h, g, y = network()
    for v in (h, g):
        y.forward()
        v.data.clear()
        x.grad.zero()
        with pytest.raises(nn.ClearedError):
            y.backward()
        y.forward()
        v.data.clear()
        with pytest.raises(nn.ClearedError):
            nn.autodiff.backward([y])
        y.forward()

        def clear(f, v=v):
            """A hook that clears `v` at the last function."""
            if f.outputs[0] == y:
                v.data.clear()

        with pytest.raises(nn.ClearedError):
            y.backward(function_post_hook=clear)


def test_functions_refuse_cleared_eager_results():
    """Using an eager result whose memory was cleared raises ClearedError."""
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
        h = F.exp(x)
        h.data.clear()
        with pytest.raises(nn.ClearedError):
            F.sin(h)


@pytest.mark.parametrize("way", ["signal", "thread"])
def test_a_value_that_is_cleared_from_outside_in_mid_run(way):
    """A run ends well with the right value, or with an error."""
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).rand(600, 500).astype(np.float32))
    h = F.sort(x * 2.0, axis=1)
    h.persistent = True
    y = F.sum(h * h)
    y.forward()
    expected = float(y.d)
    ends = set()
    for i in range(25):
        delay = (i + 1) * 4e-4
        if way == "thread":
            timer = threading.Timer(delay, h.data.clear)
            timer.start()
        else:
            before = signal.signal(signal.SIGALRM, lambda *_: h.data.clear())
            signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            y.forward()
            ends.add(float(y.d) == expected)
        except nn.ClearedError:
            ends.add(True)
        finally:
            if way == "thread":
                timer.join()
            else:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
    assert ends == {True}


def test_a_leaf_that_is_cleared_in_mid_run_reads_as_nan():
    x, _, _, y = network()

    def clear(f):
        """A hook that clears the leaf."""
        if f.name.lower().startswith("mulscalar"):
            x.data.clear()

    y.forward(function_pre_hook=clear)
    assert np.isnan(y.d)


def test_a_cleared_gradient_is_an_error_to_add_to():
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
    h = F.tanh(x)
    h.forward()
    with nn.auto_forward():
        y = F.tanh(h)
    h.need_grad, x.need_grad = True, False
    y.backward(clear_buffer=True)
    h.forward()
    with pytest.raises(nn.ClearedError, match=r"a gradient of a variable of shape \(2, 3\) to add to.*zero it first"):
        nn.autodiff.backward(h, nn.NdArray.from_numpy_array(np.ones((2, 3))))
    h.name = "hidden"
    with pytest.raises(nn.ClearedError, match=r"a gradient of variable 'hidden' of shape \(2, 3\) to add to"):
        nn.autodiff.backward(h, nn.NdArray.from_numpy_array(np.ones((2, 3))))
    h.grad.zero()
    nn.autodiff.backward(h, nn.NdArray.from_numpy_array(np.ones((2, 3))))
    assert (h.g == 1).all()
