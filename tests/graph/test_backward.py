"""`Variable.backward` in cases where NNabla is silently wrong or crashes."""

import threading

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F


def test_values_that_a_forward_run_cleared():
    """A backward run is refused if a forward run cleared a value that it reads."""
    x = leaf(0.5, 1)
    y = F.sum(F.exp(F.exp(x)))
    y.forward(clear_buffer=True)
    with pytest.raises(RuntimeError, match="clear"):
        y.backward()
    y.forward()
    y.backward()
    expected = np.exp([0.5, 1]) * np.exp(np.exp([0.5, 1]))
    np.testing.assert_allclose(x.g, expected, rtol=1e-6)


def test_values_that_a_backward_run_cleared():
    """A second backward run is refused if the first one cleared a value that it reads."""
    x = leaf(0.5, 1)
    y = F.sum(F.exp(F.exp(x)))
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    once = x.g.copy()
    with pytest.raises(RuntimeError, match=r"forward\(\) again"):
        y.backward(clear_buffer=True)
    np.testing.assert_array_equal(x.g, once)


def test_values_without_readers_may_be_cleared():
    """Backward works after a forward run cleared values that no gradient reads."""
    x = leaf(1, 2)
    y = F.identity(x) + 3
    y.forward(clear_buffer=True)
    y.backward()
    assert x.g.tolist() == [1, 1]


def test_a_leaf_has_no_parent():
    """`backward` of a leaf is refused."""
    with pytest.raises(RuntimeError, match="has no parent"):
        leaf(1).backward()


def test_gradients_of_new_variables_are_zero():
    """A variable that never had a gradient shows zeros, and `has_grad` is False."""
    for v in (leaf(1, 2), nn.Variable((3, 4)), leaf(1) * 2):
        assert not v.has_grad and not v.g.any()


def test_setting_a_gradient():
    """An assigned gradient array is shared; assigning None zeroes a new one."""
    x = leaf(1, 2)
    shared = nn.NdArray.from_numpy_array(np.array([3, 4], np.float64))
    x.grad = shared
    assert x.g.dtype == np.float64
    y = x * 2
    y.forward()
    y.backward()
    assert shared.data.tolist() == [5, 6]
    x.grad = np.array([7, 8], np.int32)
    assert shared.data.tolist() == [7, 8]
    x.grad = None
    assert x.g.tolist() == [0, 0] and shared.data.tolist() == [7, 8]


def test_masks_of_bool_fill_may_be_arrays():
    """The mask of `bool_fill_` may be an `NdArray`."""
    x, mask = nn.Variable.from_numpy_array(np.zeros(3, np.float32)), np.array([1, 0, 1])
    y = x.bool_fill_(nn.NdArray.from_numpy_array(mask), 5)
    assert type(y) is nn.Variable and y != x
    y.forward()
    assert x.d.tolist() == y.d.tolist() == [5, 0, 5]


def test_shapes_that_change_are_set_up_again():
    """A graph whose leaf changed its shape is set up again by the next forward run."""
    x = leaf(1, 2)
    y = F.sum(x * x)
    y.forward()
    x.reset_shape((3,), True)
    x.d = [1, 2, 3]
    y.forward()
    y.backward()
    assert x.g.tolist() == [2, 4, 6]


def test_other_outputs_get_zeros():
    """The other outputs of a function count as zero gradients, although their `.g` has values."""
    x = leaf(1, 2)
    first, second = F.split(x, axis=0)
    first.forward()
    second.g = 9
    first.backward()
    assert x.g.tolist() == [1, 0]
    assert second.g == 9


def test_modes_of_other_threads():
    """Modes of one thread do not apply in other threads."""
    seen = []

    def look():
        """Records the modes that another thread sees."""
        x = leaf(1) * 2
        seen.append((nn.get_auto_forward(), x.recompute, x.need_grad))

    with nn.auto_forward(), nn.recompute(), nn.no_grad():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [(False, False, True)]
