"""Decisions that depend on `need_grad` are made when a graph runs, not when it is built."""

import contextlib

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

VALUES = np.array([[0.3, -0.7, 1.1], [-0.2, 0.9, 0.4]], np.float32)
"""Values of the input."""

FUNCTIONS = {
    "exp": F.exp,
    "tanh": F.tanh,
    "relu": F.relu,
    "sigmoid": F.sigmoid,
    "elu": F.elu,
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "pow": lambda x: F.pow_scalar(F.abs(x), 0.5),
    "cumprod": lambda x: F.cumprod(x, axis=1),
    "norm": lambda x: F.norm_normalization(x, p=2, axes=1),
    "sin": F.sin,
    "dense": lambda x: F.relu(x * 2.0),
}
"""Functions of one array. Their gradient is needed only after the graph was built."""

KEYS = {
    "slice": slice(0, 1),
    "integer": 1,
    "steps": (slice(None), slice(None, None, 2)),
    "array": np.array([1]),
    "mask": np.array([[True, False, True], [False, True, False]]),
    "everything": Ellipsis,
}
"""Keys of the part that is assigned."""


def graph(f, key, need_grad):
    """Builds a graph that assigns to `f(leaf)[key]` in place. Returns the leaf, the assigned variable and the loss."""
    a = nn.Variable.from_numpy_array(VALUES, need_grad=need_grad)
    y = f(a)
    y[key] = 0.5
    return a, y, F.sum(F.sin(y) * y)


def gradient(a, z):
    """Runs forward and backward. Returns a copy of the gradient of the leaf `a`."""
    z.forward()
    a.grad.zero()
    z.backward()
    return a.g.copy()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_part_is_assigned_before_the_gradient_is_needed(name, key, at_once):
    """An assignment to a part gives the same gradient if `need_grad` is set only after the graph was built."""
    f, key = FUNCTIONS[name], KEYS[key]
    a, y, z = graph(f, key, True)
    expected = gradient(a, z)
    value = y.d.copy()
    for first_run in (False, True):
        with nn.auto_forward(at_once):
            a, y, z = graph(f, key, False)
        if first_run:
            z.forward()
        a.need_grad = True
        for _ in range(3):  # the plan is made, kept and fused
            np.testing.assert_array_equal(gradient(a, z), expected)
        np.testing.assert_array_equal(y.d, value)
        a.need_grad = False
        z.forward(clear_buffer=True)
        a.need_grad = True
        np.testing.assert_array_equal(gradient(a, z), expected)


@pytest.mark.parametrize("at_once", [False, True])
def test_two_parts_are_assigned(at_once):
    """After two assignments to parts, a late `need_grad` gives the gradients of an early one."""

    def built(need_grad):
        """Builds a graph with two assignments."""
        a = nn.Variable.from_numpy_array(VALUES, need_grad=need_grad)
        y = F.exp(a)
        y[0:1] = 0.5
        y[:, 1] = F.tanh(a)[:, 0]
        h = F.relu(y)
        h[1, 2] = 3.0
        return a, F.sum(F.sin(h))

    a, z = built(True)
    expected = gradient(a, z)
    with nn.auto_forward(at_once):
        a, z = built(False)
    a.need_grad = True
    np.testing.assert_array_equal(gradient(a, z), expected)


def test_memory_is_changed_in_place_where_no_gradient_reads_it():
    """Assigning to a part of a result without gradient makes no copy."""
    a = nn.Variable.from_numpy_array(VALUES, need_grad=False)
    y = F.exp(a)
    before = y.data
    y[0:1] = 0.5
    y.forward()
    assert before is y.data or before == y.data or np.shares_memory(before.data, y.d)


@pytest.mark.parametrize("mode", ["static", "at once"])
def test_a_leaf_that_is_changed_in_place_is_looked_at_in_each_run(mode):
    """As if `need_grad` had been set when the function was built."""
    index = nn.Variable.from_numpy_array(np.array([[0]]))
    value = nn.Variable.from_numpy_array(VALUES[:1])
    a = nn.Variable.from_numpy_array(VALUES, need_grad=False)
    with nn.auto_forward() if mode == "at once" else contextlib.nullcontext():
        y = F.scatter_nd(value, index, out=a)
    y.forward()
    a.need_grad = True
    with pytest.raises(nn.GraphError, match="leaf that requires grad"):
        y.forward()
    with pytest.raises(nn.GraphError, match="leaf that requires grad"):
        F.scatter_nd(value, index, out=a)
    a.need_grad = False
    y.forward()


@pytest.mark.parametrize("inplace", [False, True])
def test_functions_that_may_share_memory(inplace):
    """A gradient is needed from the start, or only from the second run on."""
    for f in (F.relu, F.sigmoid, lambda h: F.reshape(h, (6,), inplace=inplace), F.identity):

        def built(need_grad, f=f):
            """Builds a graph with `f` between two functions."""
            a = nn.Variable.from_numpy_array(VALUES, need_grad=need_grad)
            return a, F.sum(F.exp(f(F.tanh(a))))

        a, z = built(True)
        expected = gradient(a, z)
        a, z = built(False)
        z.forward(clear_no_need_grad=True)
        a.need_grad = True
        np.testing.assert_array_equal(gradient(a, z), expected)


def test_a_hook_on_a_result_whose_inputs_need_a_gradient_only_later():
    """The hook of a result is called once in each run if the result was a leaf when the hook was registered."""
    x, w = (nn.Variable.from_numpy_array(np.array([v])) for v in (0.5, 2.0))
    h = F.sin(x)
    h.need_grad = True  # a leaf of the gradients, until `x` needs one
    y = h * w
    calls = []
    h.register_hook(lambda g: calls.append(g.d.tolist()) or g * 10)
    x.need_grad = True
    for _ in range(2):
        y.forward()
        x.grad.zero()
        y.backward()
        np.testing.assert_allclose(x.g, 20 * np.cos(0.5), 1e-6)
    x.need_grad = False
    y.forward()
    h.grad.zero()
    y.backward()
    np.testing.assert_allclose(h.g, 20, 1e-6)
    assert calls == [[2.0]] * 3


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_of_a_built_graph_need_a_gradient_at_once(name, at_once):
    """A backward run without another forward run gives the gradient, or a ClearedError if a value is gone."""
    f = FUNCTIONS[name]

    def built(need_grad):
        """Returns a leaf, a result, one that needs no gradient, and the loss."""
        with nn.auto_forward(at_once):
            a = nn.Variable.from_numpy_array(VALUES, need_grad=need_grad)
            h = f(a)
            with nn.no_grad():
                apart = F.sin(a)
            return a, h, apart, F.sum(F.sin(h) * h)

    a, _, _, z = built(True)
    expected = gradient(a, z)
    a, h, apart, z = built(False)
    if not at_once:
        z.forward()
    assert not (h.need_grad or z.need_grad)
    a.need_grad = True
    assert h.need_grad and z.need_grad and not apart.need_grad
    assert h.parent.need_grad and z.requires_grad
    a.grad.zero()
    try:
        z.backward()
    except nn.ClearedError:
        z.forward()
        z.backward()
    np.testing.assert_array_equal(a.g, expected)
    np.testing.assert_array_equal(gradient(a, z), expected)


def test_a_setting_that_stops_gradients_stays():
    """`need_grad = False` on a value between stops the need of a gradient that is set later below it."""
    x = nn.Variable((2,))
    h = F.sin(x)
    y = F.sin(h)
    h.need_grad = False
    x.need_grad = True
    assert (h.need_grad, y.need_grad) == (False, False)
    h.need_grad = True
    assert (h.need_grad, y.need_grad) == (True, True)


def freeze(leaf):
    """Turns off the gradient of a leaf."""
    leaf.need_grad = False


def rewire(leaf):
    """Replaces a leaf by a value that needs no gradient."""
    leaf.rewire_on(F.sin(nn.Variable.from_numpy_array(VALUES, need_grad=False)))


@pytest.mark.parametrize("run", ["backward", "autodiff.backward", "autodiff.grad"])
@pytest.mark.parametrize("change", [freeze, rewire])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_hook_is_called_after_the_inputs_need_no_gradient_any_more(run, change, at_once):
    """The variable with the hook still needs a gradient, as it was set explicitly."""
    x = nn.Variable.from_numpy_array(VALUES, need_grad=True)
    with nn.auto_forward(at_once):
        h = F.tanh(x)
        h.need_grad = True
        calls = []
        h.register_hook(lambda g: calls.append(g.d.copy()) or g * 10)
        y = F.sum(h * h)
    change(x)
    y.forward()
    expected = 2 * h.d
    if run == "autodiff.grad":
        (found,) = nn.autodiff.grad(y, [h])
        found = found.d
    else:
        h.grad.zero()
        (y if run == "backward" else nn.autodiff).backward(*([] if run == "backward" else [y]))
        found = h.g
    assert len(calls) == 1
    np.testing.assert_allclose(calls[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found, 10 * expected, rtol=1e-6)
