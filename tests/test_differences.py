"""Runs every row of the section on numbers and gradients in `docs/differences.md`."""

from pathlib import Path

import numpy as np
import pytest
from bed import leaf

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

PAGE = (Path(__file__).parent.parent / "docs/differences.md").read_text()
ROWS = {}


def row(text):
    """Decorator: registers the check of the row of the page that begins with `text`."""

    def add(check):
        ROWS[text] = check
        return check

    return add


def array(values):
    """Returns a float32 leaf."""
    return nn.Variable.from_numpy_array(np.array(values, np.float32), need_grad=True)


def gradient(y, x):
    """Returns the gradient of `y` by `x`."""
    y.forward()
    x.grad.zero()
    y.backward()
    return x.g.tolist()


@row("`h[1] = 0.5` on what a function computes")
def assignment():
    """Assignments in place leave earlier values unchanged."""
    x = leaf(2, 3)
    h = x * x
    h[1] = 0.5
    assert gradient(h, x) == [4, 0]
    assert h.d.tolist() == [4, 0.5]


@row("`norm_normalization(x, p, axes, eps)`")
def eps():
    """The normalization adds `eps` before the root."""
    y = F.norm_normalization(array([[3, 4], [0, 0]]), p=2.0, axes=[1], eps=11.0)
    y.forward()
    np.testing.assert_allclose(y.d, [[0.5, 2 / 3], [0, 0]], rtol=1e-6)


@row("The gradient of `nn.grad` through `tile`")
def tiled():
    """The gradient graph through `tile` sums over the repeats."""
    x = leaf(1, 2)
    (g,) = nn.grad([F.tile(x, (3,))], [x])
    g.forward()
    assert g.d.tolist() == [3, 3]


@row("One variable as `beta` and `gamma`")
def shared():
    """A variable given as two inputs gets both gradients."""
    b = array([[1]])
    y = F.batch_normalization(array([[1], [2], [6]]), b, b, array([[0]]), array([[1]]), batch_stat=True)
    np.testing.assert_allclose(gradient(y, b), [[3]], atol=1e-5)


@row("Gradients of `mul_n`, `prod` and `norm` at zero")
def at_zero():
    """Gradients at zero are finite."""
    x = leaf(0, 2)
    assert gradient(F.mul_n(x), x) == [1, 1]
    assert gradient(F.prod(x), x) == [2, 0]
    assert gradient(F.norm(x * 0.0), x) == [0, 0]


@row("`x[None, 2]`")
def keys():
    """Indices with None match NumPy."""
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    for key in ((None, 2), (2, None), (slice(1, 3), None), (None, 1, None, 2), (..., None)):
        y = array(values)[key]
        y.forward()
        assert np.array_equal(y.d, values[key])


@row("`w.g` after `Lars` with `weight_decay`")
def decayed():
    """Solvers do not change the gradient."""
    w = leaf(1, 2)
    w.g = [0.5, -0.25]
    solver = S.Lars(lr=0.05, coefficient=0.1)
    solver.set_parameters({"w": w})
    solver.weight_decay(0.1)
    solver.update()
    assert w.g.tolist() == [0.5, -0.25]
    np.testing.assert_allclose(w.d, [0.99142855, 2.0007143], rtol=1e-6)


@row("`x.d` of the inputs that `forward(clear_no_need_grad=True)` leaves")
def left():
    """Clearing runs keep the inputs of these functions, and clear their outputs, except for `norm`."""
    x = leaf(1, 2)
    for f in (F.gelu, F.leaky_relu, lambda x: F.mul_n(x, x), F.prod, F.norm):
        h = F.identity(x)
        y = f(h)
        F.sum(y).forward(clear_no_need_grad=True)
        assert not h.data.clear_called
        assert y.data.clear_called is (f is not F.norm)


@row("`y.d` and the rank of `y` after `nn.grad([y], [x])` ran")
def not_run():
    """Running a gradient graph does not run the differentiated output."""
    x = leaf(1, 2)
    y = F.sin(x) * x
    (g,) = nn.grad([y], [x])
    g.forward()
    assert y.d.tolist() == [0, 0]
    y.d = 7
    g.forward()
    assert y.d.tolist() == [7, 7]
    nn.forward_all([y, g])
    np.testing.assert_allclose(y.d, np.sin(x.d) * x.d, rtol=1e-6)
    np.testing.assert_allclose(g.d, np.sin(x.d) + np.cos(x.d) * x.d, rtol=1e-6)


@row("A variable twice in `forward_all`")
def twice():
    """A variable listed twice does not become persistent."""
    y = F.sin(leaf(0))
    nn.forward_all([y, y])
    assert not y.persistent


@row("`convolution` with a kernel that reaches beyond")
def too_large():
    """A dilated kernel larger than its input is refused."""
    with pytest.raises(nn.ShapeError):
        F.convolution(nn.Variable((1, 1, 4, 5)), nn.Variable((1, 1, 3, 3)), stride=(2, 2), dilation=(2, 2))


@row("`pad` that leaves windows of `max_pooling` on padding alone")
def padding_alone():
    """Windows with padding only: max pooling refuses them, sum pooling returns zero."""
    x = array([[[[-1, -2, -3], [-4, -5, -6]]]])
    with pytest.raises(nn.ArgumentError, match="max_pooling: expected `pad` to be less than kernel"):
        F.max_pooling(x, (2, 2), (1, 1), pad=(2, 0))
    y = F.sum_pooling(x, (2, 2), (1, 1), pad=(2, 0))
    y.forward()
    assert y.d.tolist() == [[[[0, 0], [-3, -5], [-12, -16], [-9, -11], [0, 0]]]]
    x.grad.zero()
    y.backward(np.arange(1, 11).reshape(y.shape))
    assert x.g.tolist() == [[[[8, 18, 10], [12, 26, 14]]]]
    y = F.average_pooling(x, (1, 1), (1, 1), pad=(3, 0))
    y.forward()
    assert y.d.tolist() == [[[[0] * 3] * 3 + [[-1, -2, -3], [-4, -5, -6]] + [[0] * 3] * 3]]
    y = F.average_pooling(x, (2, 2), (1, 1), pad=(2, 0), including_pad=False)
    y.forward()
    nan = [np.nan, np.nan]
    np.testing.assert_array_equal(y.d, [[[nan, [-1.5, -2.5], [-3, -4], [-4.5, -5.5], nan]]])


@row("The derivative of `sinc` near zero")
def near_zero():
    """The gradient near zero is accurate."""
    x = leaf(1e-2, 1e-3, 1e-4)
    np.testing.assert_allclose(gradient(F.sinc(x), x), -x.d / 3, rtol=1e-4)


@row("`softsign` of infinity")
def at_infinity():
    """The gradient at infinity is zero."""
    x = leaf(np.inf, -np.inf)
    assert gradient(F.softsign(x), x) == [0, 0]
    y = F.softsign(x)
    y.forward()
    assert y.d.tolist() == [1, -1]


@row("The gradient of `spectral_norm` with `test`")
def in_test_mode():
    """In test mode `spectral_norm` also differentiates through the norm."""
    w, u = array([[3, 0], [0, 4]]), array([0, 1])
    y = F.spectral_norm(w, u, dim=0, itr=1, test=True)
    # The norm comes from the last row alone, so only that row has a gradient through it.
    np.testing.assert_allclose(gradient(F.sum(y), w), [[0.25, 0.25], [0.25, 0.25 - 7 / 16]], rtol=1e-5)


@row("`u` of several `spectral_norm` of one weight, after `backward`")
def power_iterations():
    """Power iterations run once for each forward run."""
    w, u = array([[3, 1], [1, 4]]), array([1, 0])
    y = F.sum(F.add_n(*[F.spectral_norm(w, u, dim=0, itr=1) for _ in range(3)]))
    y.forward()
    left = u.d.tolist()
    w.grad.zero()
    y.backward()
    assert u.d.tolist() == left


@pytest.mark.parametrize("text", ROWS)
def test_the_page_is_right(text):
    assert sum(line.startswith(f"| {text}") for line in PAGE.splitlines()) == 1
    ROWS[text]()


def test_each_row_is_run():
    section = PAGE.partition("## Gradients and numbers")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ROWS)
