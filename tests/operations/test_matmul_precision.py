"""Products of float32 matrices in reduced precision: how far results are off, and what never changes."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

SHAPES = [(64, 96, 80), (5, 7, 300), (1, 50, 40), (50, 1, 40), (130, 40, 1100)]
LIMITS = {"highest": 1e-6, "high": 2e-5, "medium": 2.0**-7}
"""The largest error of a sum, relative to the sum of the magnitudes of its terms."""


@pytest.fixture(autouse=True)
def highest():
    """Restores the default after each test."""
    yield
    nn.set_matmul_precision("highest")


def operands(m, n, k):
    """Returns two random matrices and the gradient of their product."""
    rng = np.random.default_rng(m * n + k)
    return [rng.normal(size=shape).astype(np.float32) for shape in [(m, k), (k, n), (m, n)]]


def run(x, w, gy, function):
    """Returns the product of two matrices by `function`, and the gradients of both."""
    a, b = (nn.Variable.from_numpy_array(v, need_grad=True) for v in (x, w))
    y = function(a, b)
    y.forward()
    y.backward(gy)
    return [y.d.copy(), a.g.copy(), b.g.copy()]


@pytest.mark.parametrize(
    "function", [F.affine, F.batch_matmul, lambda a, b: a @ b], ids=["affine", "batch_matmul", "@"]
)
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_stay_within_the_documented_limits(shape, name, function):
    x, w, gy = operands(*shape)
    nn.set_matmul_precision(name)
    found = run(x, w, gy, function)
    products = [(x, w), (gy, w.T), (x.T, gy)]
    for got, (a, b) in zip(found, products, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        assert np.all(np.abs(got - a @ b) <= LIMITS[name] * (np.abs(a) @ np.abs(b)))


@pytest.mark.parametrize("name", ["high", "medium"])
def test_threads_change_no_bit(name):
    nn.set_matmul_precision(name)
    threads = nn.get_num_threads()
    found = []
    for n in (1, 2):
        nn.set_num_threads(n)
        found.append(run(*operands(300, 260, 700), F.affine))
    nn.set_num_threads(threads)
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["high", "medium"])
def test_double_precision_does_not_change(name):
    x, w, gy = operands(40, 50, 60)
    with nn.context_scope(nn.Context(["cpu:double"])):
        exact = run(x, w, gy, F.affine)
        nn.set_matmul_precision(name)
        assert all(np.array_equal(a, b) for a, b in zip(exact, run(x, w, gy, F.affine), strict=True))


@pytest.mark.parametrize("name", ["high", "medium"])
def test_whole_numbers_of_few_digits_are_exact(name):
    x, w = (np.random.default_rng(i).integers(-99, 100, (70, 70)).astype(np.float32) for i in range(2))
    nn.set_matmul_precision(name)
    assert np.array_equal(run(x, w, x, F.affine)[0], x @ w)


def test_names_are_checked():
    assert nn.get_matmul_precision() == "highest"
    with pytest.raises(ValueError, match="set_matmul_precision: expected `name` to be 'highest', 'high' or 'medium'"):
        nn.set_matmul_precision("low")
    assert nn.get_matmul_precision() == "highest"
