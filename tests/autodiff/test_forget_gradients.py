"""Gradients through `functions.forget`: by captured variables, of higher order, in nested segments."""

import numpy as np
import pytest
from support import random_leaf, same
from test_forget import MODES, call_directly, gradients

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff


@MODES
def test_captured_values_get_their_gradients(dynamic):
    """Variables that the segment captures get the same gradients as without `forget`."""
    w, x = random_leaf(3), random_leaf(3, seed=1)

    def build(call):
        """Returns a loss with captured variables. `call` is `forget` or a plain call."""
        h = F.exp(w)  # computed outside, so gradients flow through it once
        k = F.sin(h)
        return F.sum(call(lambda x: F.sin(x * h) * k + w, x))

    got = gradients(lambda: build(F.forget), [w, x], dynamic)
    expected = gradients(lambda: build(call_directly), [w, x], dynamic)
    assert all(np.allclose(g, e, rtol=1e-6) for g, e in zip(got, expected, strict=True))


def test_grad_changes_no_other_gradient():
    """`autodiff.grad` through a segment writes no gradient to captured variables."""
    w, x = random_leaf(3), random_leaf(3, seed=1)
    with nn.auto_forward():
        y = F.sum(F.forget(lambda x: F.sin(x * w), x))
        (gx,) = autodiff.grad(y, x)
        (gw,) = autodiff.grad(F.sum(F.forget(lambda x: F.sin(x * w), x)), w)
        y = F.sum(F.forget(lambda x: F.sin(x * w), x))
        autodiff.backward(y, inputs=[x])
    assert not w.g.any()
    assert np.allclose(gx.d, w.d * np.cos(x.d * w.d))
    assert np.allclose(gw.d, x.d * np.cos(x.d * w.d))
    assert (x.g == gx.d).all()


def test_hooks_are_called_once():
    """A hook on a captured leaf is called once, with the whole gradient."""
    w, x = random_leaf(3), random_leaf(3, seed=1)
    seen = []
    w.register_hook(lambda g: seen.append(g.d.copy()))
    with nn.auto_forward():
        autodiff.backward(F.sum(F.forget(lambda x: F.sin(x * w), x)))
    assert len(seen) == 1
    assert (seen[0] == w.g).all()


def test_gradients_of_gradients():
    """Gradients of third order through a segment equal those without `forget`."""
    w, x = random_leaf(3), random_leaf(3, seed=1)

    def third(call):
        """Returns gradients of third order."""
        with nn.auto_forward():
            y = F.sum(call(lambda x: F.sin(x * w) * x, x))
            (g1,) = autodiff.grad(y, x, create_graph=True)
            (g2,) = autodiff.grad(F.sum(g1 * g1), x, create_graph=True)
            return [g.d.copy() for g in autodiff.grad(F.sum(g2), [x, w])]

    for got, expected in zip(third(F.forget), third(call_directly), strict=True):
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


@MODES
def test_nn_grad_through_a_segment(dynamic):
    """`nn.grad` through a segment can be differentiated, static and eagerly."""
    w, x = random_leaf(3), random_leaf(3, seed=1)

    def second(call):
        """Returns the gradients of a gradient from `nn.grad`."""
        with nn.auto_forward(dynamic):
            y = F.sum(call(lambda x: F.sin(x * w), x))
            (g,) = nn.grad([y], [x])
            z = F.sum(g * g)
        return gradients(lambda: z, [x, w], dynamic)

    for got, expected in zip(second(F.forget), second(call_directly), strict=True):
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


@MODES
def test_the_same_variable_twice(dynamic):
    """A variable passed twice to a segment gets the sum of both gradients."""
    x = random_leaf(3)
    got = gradients(lambda: F.sum(F.forget(lambda a, b: a * F.sin(b), x, x)), [x], dynamic)
    assert np.allclose(got[0], np.sin(x.d) + x.d * np.cos(x.d), rtol=1e-5)
    if dynamic:
        with nn.auto_forward():
            y = F.sum(F.forget(lambda a, b: a * F.sin(b), x, x))
            (g,) = autodiff.grad(y, x, create_graph=True)
        assert np.allclose(g.d, got[0], rtol=1e-6)


@MODES
def test_inputs_returned_unchanged(dynamic):
    """A segment may return its inputs or captured variables unchanged."""
    w, x = random_leaf(3), random_leaf(3, seed=1)
    for func in (lambda x: x, lambda x: w, lambda x: (x, w, F.sin(x)), lambda x: F.reshape(x, (3, 1))):
        build = lambda call, func=func: sum(F.sum(F.sin(y)) for y in several(call(func, x)))  # noqa: E731
        got = gradients(lambda: build(F.forget), [w, x], dynamic)  # noqa: B023
        same(got, gradients(lambda: build(call_directly), [w, x], dynamic))  # noqa: B023


def several(ys):
    """Returns the outputs of a function, which may be one variable, as a tuple."""
    return ys if isinstance(ys, tuple) else (ys,)


@MODES
def test_nesting(dynamic):
    """A segment within a segment has the gradients of a direct call, with the same dropout when recomputed."""
    w, x = random_leaf(40), random_leaf(40, seed=1)
    calls = []

    def inner(x):
        """The inner segment, with dropout."""
        calls.append(nn.config.in_recomputing)
        return F.dropout(F.sin(x * w), 0.5)

    def outer(call):
        """Returns the outer segment, which contains the inner one."""
        return lambda x: F.tanh(call(inner, F.exp(x))) * w

    got = gradients(lambda: F.sum(F.forget(outer(F.forget), x)), [w, x], dynamic)
    assert calls == ([False, True, True] if dynamic else [False])
    same(got, gradients(lambda: F.sum(outer(call_directly)(x)), [w, x], dynamic))


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_that_no_segment_uses_keeps_the_precision_of_the_others(dynamic):
    def segment(u, unused, v):
        """Returns a value that depends on `u` and `v` only; `forget` is given another input too."""
        return F.forget(lambda a, _: F.tanh(a * 0.5), u, unused) * F.sigmoid(u) + v * 0.5

    with nn.context_scope(nn.Context(["cpu:double"])):
        x = nn.Variable.from_numpy_array(np.array([0.1, 0.2, 0.3]), need_grad=True)
        with nn.auto_forward(dynamic):
            y = F.forget(segment, x, x, x)
        y.forward()
        x.grad.zero()
        y.backward()
        seen = x.g
        y.forward()
        y.backward()
    t, s = np.tanh(x.d * 0.5), 1 / (1 + np.exp(-x.d))
    np.testing.assert_allclose(seen, 2 * (0.5 * (1 - t * t) * s + t * s * (1 - s) + 0.5), 1e-14)


@pytest.mark.parametrize("order", [1, 2])
def test_static_gradients_through_an_eager_segment_wait_for_forward(order):
    """The seed of the segment comes from a static graph that no run has computed."""
    x = nn.Variable.from_numpy_array(np.array([0.5, 1.0]), need_grad=True)
    with nn.auto_forward():
        y = F.forget(lambda h: F.sin(h) * h, x)
    g = F.reshape(F.exp(y), (1, 2))
    for _ in range(order):
        (g,) = nn.grad([g], [x])
    with pytest.raises(nn.NotComputedError):
        g.d  # noqa: B018 - the refused read
    for values in ([0.5, 1.0], [0.2, 0.3]):
        x.d = values
        g.forward()
        a = np.array(values)
        f, slope = np.sin(a) * a, np.cos(a) * a + np.sin(a)
        expected = np.exp(f) * (slope if order == 1 else slope**2 + 2 * np.cos(a) - np.sin(a) * a)
        np.testing.assert_allclose(g.d, expected, rtol=1e-5)


def test_an_unused_input_does_not_change_the_type_of_a_gradient():
    """The gradient of the output is float64, and the inner segment passes no gradient to its unused input."""
    x = nn.Variable.from_numpy_array(np.array([0.5, 1.0], np.float32), need_grad=True)

    def segment(u, unused, v):
        """Passes `unused` on to an inner segment that does not use it either."""
        return F.forget(lambda a, _: F.tanh(a), u, unused) * v

    with nn.auto_forward():
        y = F.forget(segment, x, x, x)
    view = x.g
    y.backward(nn.NdArray.from_numpy_array(np.array([1.0, -2.0])), clear_buffer=False)
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(view, x.g)
    a = np.array([0.5, 1.0])
    np.testing.assert_allclose(view, np.array([1.0, -2.0]) * (np.tanh(a) + a * (1 - np.tanh(a) ** 2)), rtol=1e-5)
