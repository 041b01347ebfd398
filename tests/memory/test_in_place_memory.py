"""Memory shared by in-place functions: a clearing run frees it after its last use, unless the caller holds it."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

N = 1 << 18
"""Elements of an array."""


def live():
    """Returns the live bytes."""
    return nn.memory_stats()["live"]


def reshaped_chain(x, n, keep):
    """Returns the result of `n` links. Each reshapes a value in place and reads both.

    Adds each view to `keep`.
    """
    h = x
    for k in range(n):
        h = F.exp(h * -0.5)
        r = F.reshape(h, (N // 4, 4), inplace=True)
        flat = F.reshape(r, (4, N // 4), inplace=True)
        h = F.reshape(F.sin(r) + F.reshape(F.cos(flat), r.shape, inplace=True), (N,), inplace=True)
        keep.append((f"{k}", r))
    return F.tanh(h)


def expected(x, n):
    """Returns the result of `reshaped_chain` in NumPy."""
    for _ in range(n):
        h = np.exp(x * -0.5)
        x = np.sin(h) + np.cos(h)
    return np.tanh(x)


@pytest.fixture
def x():
    """Returns an input of random values."""
    return nn.Variable.from_numpy_array(np.random.default_rng(0).standard_normal(N).astype(np.float32))


def test_memory_is_freed_after_its_last_use(x):
    y = reshaped_chain(x, 6, [])
    nn.clear_memory_cache()
    before = live()
    for _ in range(4):
        nn.reset_peak_memory()
        y.forward(clear_buffer=True)
        np.testing.assert_allclose(y.d, expected(x.d, 6), rtol=1e-4, atol=1e-6)
        assert live() - before <= 2 * 4 * N
        assert nn.memory_stats()["peak"] - before <= 7 * 4 * N
        x.d = x.d + 0.25


def test_memory_of_held_variables_stays(x):
    """A clearing run keeps memory that a variable held by the program reaches."""
    seen = []
    y = reshaped_chain(x, 3, seen)
    for _ in range(3):
        y.forward(clear_buffer=True)
        h = x.d
        for _, r in seen:
            h = np.exp(h * -0.5)
            np.testing.assert_allclose(r.d.ravel(), h, rtol=1e-4)
            h = np.sin(h) + np.cos(h)
    y.forward()
    np.testing.assert_allclose(y.d, expected(x.d, 3), rtol=1e-4, atol=1e-6)


def test_leaves_and_values_with_other_readers_stay(x):
    y = F.sin(F.reshape(x, (4, N // 4), inplace=True))
    h = F.exp(x)
    a, b = F.sin(F.reshape(h, (4, N // 4), inplace=True)), F.cos(h)
    persistent = F.reshape(F.exp(x), (N // 4, 4), inplace=True).apply(persistent=True)
    c = F.sin(persistent)
    del h
    for _ in range(3):
        for v in (y, a, b, c):
            v.forward(clear_buffer=True)
        np.testing.assert_allclose(y.d.ravel(), np.sin(x.d), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a.d.ravel(), np.sin(np.exp(x.d)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(b.d, np.cos(np.exp(x.d)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(persistent.d.ravel(), np.exp(x.d), rtol=1e-5)
        nn.forward_all([a, b], clear_buffer=True)
        np.testing.assert_allclose(b.d, np.cos(np.exp(x.d)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(c.d.ravel(), np.sin(np.exp(x.d)), rtol=1e-4, atol=1e-4)


def test_gradients_do_not_change(x):
    """Clearing memory that functions share in place changes no gradient."""
    x.need_grad = True
    y = reshaped_chain(x, 3, [])
    loss = F.mean(y)
    loss.forward(clear_buffer=True)
    loss.forward(clear_no_need_grad=True)
    x.grad.zero()
    loss.backward(clear_buffer=True)
    first = x.g.copy()
    loss.forward()
    x.grad.zero()
    loss.backward()
    np.testing.assert_array_equal(x.g, first)
