"""Ties between two branches of a function: the branch of the gradient, by kernels and graph rules, of any order.

The numbers are NNabla's. `docs/differences.md` lists the exceptions.
"""

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

TIES = {
    "maximum2": (F.maximum2, ([0, 2, -1], [0, 2, -1]), ([0, 0, 0], [1, 1, 1])),
    "minimum2": (F.minimum2, ([0, 2, -1], [0, 2, -1]), ([0, 0, 0], [1, 1, 1])),
    "maximum2 of zeros": (F.maximum2, ([-0.0, 0.0], [0.0, -0.0]), ([0, 0], [1, 1])),
    "maximum_scalar": (lambda x: F.maximum_scalar(x, 0.5), ([0.4, 0.5, 0.6],), ([0, 0, 1],)),
    "minimum_scalar": (lambda x: F.minimum_scalar(x, 0.5), ([0.4, 0.5, 0.6],), ([1, 0, 0],)),
    "clip_by_value": (lambda x: F.clip_by_value(x, -1, 1), ([-2, -1, 0, 1, 2],), ([0, 0, 1, 0, 0],)),
    "clip_by_value with arrays": (
        F.clip_by_value,
        ([-1, 0, 1], [-1, -1, -1], [1, 1, 1]),
        ([0, 1, 0], [1, 0, 0], [0, 0, 1]),
    ),
    "clip_by_norm": (lambda x: F.clip_by_norm(x, 1.0), ([0.6, 0.8],), ([1, 1],)),
    "abs": (F.abs, ([-1, -0.0, 0, 1],), ([-1, 1, 1, 1],)),
    "norm of order 1": (lambda x: F.norm(x, p=1.0), ([0, -2, 1],), ([1, -1, 1],)),
    "norm of order 1 of zeros": (lambda x: F.norm(x, p=1.0), ([0, 0],), ([1, 1],)),
    "absolute_error": (F.absolute_error, ([0, 1], [0, 1]), ([-1, -1], [1, 1])),
    "relu": (F.relu, ([-1, 0, 1],), ([0, 0, 1],)),
    "relu6": (F.relu6, ([0, 6],), ([0, 0],)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.25), ([0],), ([0.25],)),
    "hard_tanh": (F.hard_tanh, ([-1, 1],), ([1, 1],)),
    "hard_swish": (F.hard_swish, ([-3, 3],), ([0, 1],)),
    "max": (F.max, ([1, 1],), ([1, 0],)),
    "min": (F.min, ([1, 1],), ([1, 0],)),
}
"""By name: a function, its inputs, and the gradients of the sum of its output by each."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TIES)
def test_the_gradient_at_a_tie(name, dynamic):
    """The gradient at a tie is the documented one, by the kernel and by the graph rule."""
    f, inputs, expected = TIES[name]
    x = [leaf(*values) for values in inputs]
    with nn.auto_forward(dynamic):
        y = F.sum(f(*x))
        y.forward()
        y.backward()
        assert [v.g.tolist() for v in x] == [pytest.approx(e, abs=1e-6) for e in expected]
        by_rule = autodiff.grad(y, x, create_graph=True, allow_unused=True)
    found = [np.zeros(v.shape) if g is None else g.d for v, g in zip(x, by_rule, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["maximum2", "minimum2", "maximum_scalar", "minimum_scalar", "clip_by_value", "abs"])
def test_gradients_of_gradients_take_the_same_branch(name):
    f, inputs, first = TIES[name]
    x = [leaf(*values) for values in inputs]
    with nn.auto_forward():
        g = autodiff.grad(F.sum(F.pow_scalar(f(*x), 3.0)), x, create_graph=True)
        twice = autodiff.grad(F.sum(sum(g[1:], g[0])), x)
    # The second derivative of y^3 is 6 y (dy/dx)^2, because each branch is linear.
    y = f(*(nn.NdArray.from_numpy_array(np.array(v, np.float32)) for v in inputs)).data
    np.testing.assert_allclose([v.d for v in twice], [6 * y * np.square(e) for e in first], atol=1e-5)


def test_values_at_a_tie_keep_nan():
    """The gradient of a maximum with one NaN input reaches exactly one input."""
    nan = float("nan")
    for f in (F.maximum2, F.minimum2):
        for a, b in ((nan, 1), (1, nan)):
            x, y = leaf(a), leaf(b)
            z = f(x, y)
            z.forward()
            z.backward()
            assert np.isnan(z.d).all()
            assert (x.g + y.g).tolist() == [1]
