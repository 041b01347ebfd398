"""The first run of `functions.forget` builds no graph, and frees memory as soon as it is unused."""

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import autodiff

N = 1 << 16
"""Elements of an array."""
ONE = 4 * N
"""Bytes of an array of `N` elements."""


def sines(x, n=24):
    """Applies `sin` `n` times."""
    for _ in range(n):
        x = F.sin(x)
    return x


def big():
    """Returns a leaf of `N` elements."""
    return nn.Variable.from_numpy_array(np.linspace(-1, 1, N, dtype=np.float32), need_grad=True)


def test_a_chain_takes_the_memory_of_three_arrays():
    """An eager segment needs its input, its output and one value between."""
    x = big()
    with nn.auto_forward():
        nn.reset_peak_memory()
        before = nn.memory_stats()["live"]
        y = F.forget(sines, x)
        assert nn.memory_stats()["peak"] - before <= 3 * ONE
        assert nn.memory_stats()["live"] - before == ONE
        plain = sines(x)
    assert np.array_equal(y.d, plain.d)
    assert nn.memory_stats()["live"] - before >= 20 * ONE


def test_a_second_forward_run_takes_as_much_memory():
    x = big()
    with nn.auto_forward():
        y = F.forget(sines, x)
    nn.reset_peak_memory()
    before = nn.memory_stats()["live"]
    y.forward()
    assert nn.memory_stats()["peak"] - before <= 3 * ONE


def test_nothing_requires_grad_the_first_time():
    """A segment runs without gradients at first, and with gradients in the backward run."""
    seen = []

    def func(x):
        """A segment that records flags of its variables."""
        h = F.sin(x)
        seen.append((x.requires_grad, x.need_grad, h.requires_grad, h.parent is None, autodiff.is_grad_enabled()))
        return h * h

    x = leaf(0.5)
    with nn.auto_forward():
        y = F.forget(func, x)
    y.backward()
    assert seen == [(False, False, False, True, False), (True, True, True, False, True)]
    np.testing.assert_allclose(x.g, np.sin(1.0), rtol=1e-6)


def test_captured_results_of_the_first_run_have_no_graph():
    kept = []

    def func(x):
        """A segment that keeps an inner variable."""
        kept.append(F.exp(x))
        return F.sin(kept[-1])

    with nn.auto_forward():
        y = F.forget(func, leaf(0.5))
    assert kept[0].parent is None
    functions = []
    y.visit(lambda f: functions.append(f.info.type_name))
    assert functions == ["PythonFunction"] or len(functions) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_variable_passed_and_captured_gets_both_gradients(dynamic):
    x, w = leaf(2.0, 3.0), leaf(5.0, 7.0)
    with nn.auto_forward(dynamic):
        y = F.sum(F.forget(lambda a: a * x * w, x))
        y.forward()
        y.backward()
    assert x.g.tolist() == [20.0, 42.0]
    assert w.g.tolist() == [4.0, 9.0]


def test_captured_parameters_and_values_are_found_without_a_graph():
    x = leaf(1.0, 2.0)
    with nn.auto_forward(), nn.parameter_scope("", {}):
        outer = F.exp(x)

        def func(h):
            """A segment with a captured graph and parameters."""
            with autodiff.enable_grad():
                deep = F.sin(outer)  # in a graph that the result depends on
            return PF.affine(F.reshape(h * deep, (1, 2)), 1)

        y = F.sum(F.forget(func, x * 1))
        y.backward()
        weights = list(nn.get_parameters().values())
        got = [v.g.copy() for v in (x, *weights)]
        for v in (x, *weights):
            v.grad.zero()
        F.sum(func(x * 1)).backward()
    for a, v in zip(got, (x, *weights), strict=True):
        np.testing.assert_allclose(a, v.g, rtol=1e-6)
    assert any(a.any() for a in got)


def test_an_assignment_inside_does_not_change_outer_values():
    def func(x):
        """A segment that assigns to a value and to its input."""
        h = x * 2
        h[0] = 7.0
        x[1] = 3.0
        return h + x

    frozen = leaf(1.0, 2.0, need_grad=False)
    with nn.auto_forward():
        y = F.forget(func, frozen)
        assert y.d.tolist() == [8.0, 7.0]
        assert frozen.d.tolist() == [1.0, 2.0]


def test_a_parameter_that_is_changed_in_place_is_refused():
    w = leaf(1.0, 2.0)

    def func(x):
        """A segment that assigns to a captured parameter."""
        w[0] = 0.0
        return x * w

    with nn.auto_forward(), pytest.raises(nn.GraphError, match="leaf that requires grad"):
        F.forget(func, leaf(1.0, 1.0))
    assert w.d.tolist() == [1.0, 2.0]


def test_another_shape_is_refused():
    """A segment refuses to run again if an input has another shape."""
    x = leaf(1.0, 2.0)
    with nn.auto_forward():
        y = F.sum(F.forget(F.sin, x))
    x.reset_shape((3,), True)
    x.d = 1.0
    with pytest.raises(nn.ShapeError, match=r"forget: expected inputs of the shapes of its call, .*2,.*, got .*3,"):
        y.forward()
    x.reset_shape((2,), True)
    x.d = 1.0
    y.forward()
    assert y.item() == pytest.approx(2 * np.sin(1.0))
