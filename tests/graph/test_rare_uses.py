"""Rare uses and edge cases of several parts."""

import gc
import weakref

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F


class Held:
    """An object with a weak reference, so that its collection can be observed."""


@pytest.mark.parametrize("kind", [nn.Variable, type("Derived", (nn.Variable,), {})])
def test_a_cycle_through_info_is_collected(kind):
    """A variable or array whose `info` refers to it is garbage collected."""
    ends = []
    for _ in range(300):  # more than are cached for reuse
        held = Held()
        held.variable = kind((2,), info=held)
        ends.append(weakref.ref(held))
    del held
    gc.collect()
    assert all(end() is None for end in ends)


def test_a_derived_class_may_have_its_own_constructor():
    class Named(nn.Variable):
        """A variable with its own constructor."""

        def __new__(cls, name):
            """Makes a variable of a fixed shape."""
            return super().__new__(cls, (2,), need_grad=True)

        def __init__(self, name):
            self.name = name

    assert Named("w").name == "w"
    assert Named("w").need_grad


@pytest.mark.parametrize("with_parent", [False, True])
def test_a_variable_is_rewired_on_itself_only_if_a_function_computes_it(with_parent):
    x = leaf(1.0)
    if with_parent:
        y = F.sin(x)
        y.rewire_on(y)
        y.forward()
        assert y.d == np.sin(np.float32(1.0))
    else:
        with pytest.raises(nn.GraphError, match=r"rewire_on: expected a variable that .*no parent"):
            x.rewire_on(x)


@pytest.mark.parametrize("how", [{}, {"clear_no_need_grad": True}])
def test_roots_of_forward_all_stay_after_a_backward_run(how):
    x = leaf(0.1, 0.2)
    h = F.sin(x).apply(recompute=True)
    k = F.sigmoid(h).apply(recompute=True)
    y, z = F.sin(k), k - k
    for _ in range(3):
        nn.forward_all([h, z, y], **how)
        assert not h.data.clear_called
        x.grad.zero()
        y.backward()
        assert not h.data.clear_called
        np.testing.assert_allclose(h.d, np.sin(x.d), rtol=1e-6)
    s = 1 / (1 + np.exp(-np.sin(x.d)))
    np.testing.assert_allclose(x.g, np.cos(s) * s * (1 - s) * np.cos(x.d), rtol=1e-5)


def test_a_recomputed_chain_frees_values_that_no_gradient_reads():
    x = leaf(0.5)
    a = F.sin(x).apply(recompute=True)
    b = (a + 1).apply(recompute=True)
    c = F.sin(b).apply(recompute=True)
    y = F.sum(c)
    y.forward()
    y.backward()
    assert a.data.clear_called
    assert c.data.clear_called


def test_softsign_and_tanh_shrink_at_the_ends():
    """`softsign` and `tanh_shrink` are right for infinities, huge and tiny numbers."""
    x = nn.NdArray.from_numpy_array(np.array([np.inf, -np.inf, 3e38, -3e38, 0, np.nan], np.float32))
    assert F.softsign(x).data.tolist()[:5] == [1, -1, 1, -1, 0]
    assert np.isnan(F.softsign(x).data[5])
    x = nn.NdArray.from_numpy_array(np.array([1e-30, 1e-10, -1e-3, 0.5, 1.0, 2.0, np.inf, -np.inf], np.float32))
    exact = np.array([0, 1e-30 / 3, -(1e-9 / 3 - 2e-15 / 15), 0.5 - np.tanh(0.5), 1 - np.tanh(1), 2 - np.tanh(2)])
    np.testing.assert_allclose(F.tanh_shrink(x).data[:6], exact, rtol=3e-7)
    assert F.tanh_shrink(x).data[6:].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("part", [0, 1])
def test_the_output_part_of_a_failed_function_reads_as_nan(part):
    whole = nn.NdArray.from_numpy_array(np.ones((2, 3, 1), np.float32))
    into = whole.narrow(0, part, 1).view((3, 1))
    x = nn.Variable.from_numpy_array(np.zeros((3, 4), np.float32))
    labels = nn.Variable.from_numpy_array(np.array([[0], [1], [9]]))
    with nn.auto_forward():
        with pytest.raises(nn.IndexRangeError):
            F.softmax_cross_entropy(x, labels, outputs=[into])
        assert np.isnan(into.data).all()
        assert whole.data[1 - part].tolist() == [[1], [1], [1]]
        labels.d = np.array([[0], [1], [2]])
        F.softmax_cross_entropy(x, labels, outputs=[into])
    np.testing.assert_allclose(into.data, np.log(4), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_real_labels_are_checked_again_after_each_change(dtype):
    t = nn.Variable.from_numpy_array(np.array([[0], [1]], dtype))
    y = F.softmax_cross_entropy(leaf(1, 2, 3, 4).reshape((2, 2)), t)
    for _ in range(3):
        y.forward()
    view = t.d
    changes = [
        lambda: setattr(t, "d", np.array([[0.5], [1]], dtype)),
        lambda: t.data.fill(0.5),
        lambda: view.__setitem__((0, 0), 0.5),
        lambda: setattr(t, "data", nn.NdArray.from_numpy_array(np.array([[0], [np.nan]], dtype))),
    ]
    for change in changes:
        y.forward()
        y.forward()
        change()
        for _ in range(2):
            with pytest.raises(nn.IndexRangeError, match="expected whole numbers"):
                y.forward()
        t.d = np.array([[1], [1]], dtype)
        y.forward()
        assert np.isfinite(y.d).all()
        if change is not changes[-1]:
            view = t.d
            t.d = np.array([[0], [1]], dtype)
