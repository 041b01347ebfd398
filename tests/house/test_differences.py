"""Runs every row of the section on numbers and gradients in `docs/differences.md`."""

from pathlib import Path

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.utils.learning_rate_scheduler import CosineScheduler

PAGE = (Path(__file__).parents[2] / "docs/differences.md").read_text()
"""The page that lists differences to NNabla."""
ROWS = {}
"""The checks, by the beginning of the row of the page that each one runs. `row` fills it."""


def row(text):
    """A decorator: the function checks the row of `docs/differences.md` that begins with `text`."""

    def add(check):
        """Adds the check to `ROWS`."""
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
    for f in (F.gelu, F.leaky_relu, F.swish, lambda x: F.mul_n(x, x), F.prod, F.norm):
        h = F.identity(x)
        y = f(h)
        F.sum(y).forward(clear_no_need_grad=True)
        assert not h.data.clear_called
        assert y.data.clear_called is (f is not F.norm)
    h = F.identity(x)
    y = h[0]
    F.sum(y).forward(clear_no_need_grad=True)
    assert h.data.clear_called
    assert y.data.clear_called


@row("`y.d` and the rank of `y` after `nn.grad([y], [x])` ran")
def not_run():
    """Running a gradient graph does not run the differentiated output."""
    x = leaf(1, 2)
    y = F.sin(x) * x
    (g,) = nn.grad([y], [x])
    g.forward()
    with pytest.raises(nn.NotComputedError):
        y.d  # noqa: B018
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


@row("The slope of `warp_by_grid` at the last row and column")
def slopes_at_the_border():
    """At the last row and column `warp_by_grid` has the slope towards the inside."""
    x, grid = array([[[[1, 3], [1, 3]]]]), array([[[[1, 1], [-1, 1]]]])
    for border in ("repeat", "reflect"):
        assert gradient(F.warp_by_grid(x, grid, "linear", border, True), grid) == [[[[1, 0], [1, 0]]]]


@row("`warp_by_grid` with `reflect` at places beyond")
def places_far_out():
    """Reflection at a distant place returns an element of the image."""
    x, grid = array([[[[1, 2, 3]]]]), array([[[[1e10, 0]]]])
    y = F.warp_by_grid(x, grid, "linear", "reflect", True)
    y.forward()
    assert y.d.ravel().tolist() == [2]


@row("The derivative of `pow2` by a base of zero")
def powers_of_zero():
    """The derivative of `pow2` by a base of zero is finite for exponents 0 and 2."""
    x, y = array([0]), array([0])
    assert gradient(F.pow2(x, y), x) == [0]
    y = array([2])
    assert gradient(F.r_pow_scalar(y, 0.0), y) == [0]


@row("Derivatives of `div2`, `atan2`, `asinh` and `acosh`")
def squares_out_of_range():
    """Derivatives are right although squares of the arguments overflow or underflow."""
    a, b = array([3e30]), array([1e25])
    np.testing.assert_allclose(gradient(F.div2(a, b), b), [-3e-20], rtol=1e-6)
    np.testing.assert_allclose(gradient(F.atan2(b, b), b), [0], atol=1e-30)
    np.testing.assert_allclose(gradient(F.asinh(b), b), [1e-25], rtol=1e-6)
    np.testing.assert_allclose(gradient(F.acosh(b), b), [1e-25], rtol=1e-6)


@row("The learning rate of `CosineScheduler` beyond")
def rates_beyond_the_end():
    """The learning rate is zero after the last iteration."""
    assert CosineScheduler(0.1, 10).get_learning_rate(20) == 0


@row("`spectral_norm` of zeros")
def norms_of_zeros():
    """`spectral_norm` of zeros is zero, and so is its gradient."""
    w, u = array([[0, 0]]), array([1])
    y = F.spectral_norm(w, u)
    assert gradient(F.sum(y), w) == y.d.tolist() == [[0, 0]]
    assert u.d.tolist() == [1]


@row("`swish`, `gelu` and `mish` of infinities, and their derivatives")
def limits():
    """Values and derivatives at infinity are the limits."""
    for f in (F.swish, F.gelu, F.mish):
        x = leaf(np.inf, -np.inf)
        y = f(x)
        assert gradient(y, x) == [1, 0]
        assert y.d.tolist() == [np.inf, 0]


@row("`sigmoid_cross_entropy` of infinite scores")
def infinite_scores():
    """The loss of infinite scores is zero or infinite, with finite gradients."""
    x = leaf(np.inf, np.inf, -np.inf, -np.inf)
    y = F.sigmoid_cross_entropy(x, array([1, 0, 0, 1]))
    assert gradient(y, x) == [0, 1, 0, -1]
    assert y.d.tolist() == [0, np.inf, 0, np.inf]


@row("The gradient of `prod` whose product leaves the range of the type")
def lost_products():
    """The gradient of `prod` is right although the product overflows or underflows."""
    x = leaf(1e-30, 1e-30, 1e30)
    np.testing.assert_allclose(gradient(F.prod(x), x), [1, 1, 0], rtol=1e-6)


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


@row("`need_grad` of results of a built graph")
def late_need_grad():
    """Results need a gradient as soon as a leaf does, and a backward run gives it."""
    x = leaf(2, 3, need_grad=False)
    y = F.sum(F.sin(x * 2.0))
    y.forward()
    x.need_grad = True
    assert y.need_grad
    x.grad.zero()
    y.backward()
    np.testing.assert_allclose(x.g, 2 * np.cos([4, 6]), rtol=1e-6)


@row("Normalizations of values whose spread is small")
def small_spread():
    """Normalizations are accurate if the spread of the values is small against their mean."""
    values = 5.28 + 1e-3 * np.random.RandomState(0).uniform(-1, 1, (2, 2, 5, 5))
    x, eps = array(values), 1e-8
    zeros, ones = array(np.zeros((1, 2, 1, 1))), array(np.ones((1, 2, 1, 1)))
    for y, axes in (
        (F.group_normalization(x, zeros, ones, num_groups=1, eps=eps), (1, 2, 3)),
        (F.layer_normalization(x, None, None, batch_axis=0, eps=eps), (1, 2, 3)),
        (F.instance_normalization(x, zeros, ones, eps=eps), (2, 3)),
        (
            F.batch_normalization(x, zeros, ones, array(np.zeros((1, 2, 1, 1))), array(np.ones((1, 2, 1, 1))), eps=eps),
            (0, 2, 3),
        ),
        (F.weight_standardization(x, channel_axis=0, eps=eps), (1, 2, 3)),
    ):
        y.forward()
        given = x.d.astype(np.float64)
        centred = given - given.mean(axes, keepdims=True)
        np.testing.assert_allclose(y.d, centred / np.sqrt(given.var(axes, keepdims=True) + eps), atol=2e-6)


@row("One variable as input and `gamma` of a normalization")
def normalized_by_itself():
    """A variable given as input and as `gamma` gets the sum of both gradients."""
    values, weights = np.random.RandomState(0).uniform(-2, 2, (2, 1, 3, 4))
    x, eps = array(values), 0.01

    def by_hand(v):
        """Returns the loss of the values `v`, in NumPy."""
        return ((v - v.mean()) / np.sqrt(v.var() + eps) * v * weights).sum()

    def slope(i):
        """Returns the derivative of the loss by element `i`, by central differences."""
        step = np.zeros(values.shape)
        step[i] = 1e-6
        return (by_hand(values + step) - by_hand(values - step)) / 2e-6

    h = x * 1.0
    y = F.sum(F.layer_normalization(h, None, h, eps=eps) * array(weights))
    expected = [slope(i) for i in np.ndindex(values.shape)]
    np.testing.assert_allclose(np.ravel(gradient(y, x)), expected, rtol=1e-4, atol=1e-5)


@row("The order of equal elements from `top_k_data`")
def equals_in_order():
    """`top_k_data` returns equal elements in the order of their indices."""
    _, index = F.top_k_data(array([[1, 3, 3, 3, 2, 3]]), 3, with_index=True)
    index.forward()
    assert index.d.tolist() == [[1, 2, 3]]


@row("Two parameters of one solver on one array")
def parameters_in_order():
    """Two parameters of a solver that share an array are updated one after the other, by name."""
    for names in ("ab", "ba"):
        a = leaf(0.5, 0.25)
        b = nn.Variable((2,), need_grad=True)
        b.data = a.data
        a.g, b.g = [1, -1], [0, 0]
        solver = S.SgdW(lr=0.05, wd=0.1)
        solver.set_parameters({name: {"a": a, "b": b}[name] for name in names})
        solver.update()
        w = np.array([0.5, 0.25])
        for name in names:
            w = w * 0.9 - 0.05 * (np.array([1, -1]) if name == "a" else 0)
        np.testing.assert_allclose(a.d, w, rtol=1e-6)


@row("`need_grad` of values that follow from a leaf, after")
def rewired():
    """After a leaf without gradient is rewired onto a graph that needs one, dependent values need a gradient."""
    x = leaf(0.3)
    h = F.sin(x)
    a = nn.Variable((1,), need_grad=False)
    y = F.exp(a)
    a.rewire_on(h)
    y.forward()
    u = y.get_unlinked_variable(need_grad=None)
    assert u.need_grad
    np.testing.assert_allclose(gradient(F.tanh(u), u), 1 - np.tanh(y.d) ** 2, rtol=1e-5)
    np.testing.assert_allclose(gradient(y, x), np.exp(np.sin(0.3)) * np.cos([0.3]), rtol=1e-6)


@row("`y[0:1] = 0.5` of a `y` that needs no gradient")
def need_grad_later():
    """A gradient that is needed after an assignment in place leaves out the assigned element."""
    a = leaf(0.3, 0.7, need_grad=False)
    y = F.sin(a)
    y[0:1] = 0.5
    a.need_grad = True
    z = F.sin(y)
    np.testing.assert_allclose(gradient(z, a), [0, np.cos(np.sin(0.7)) * np.cos(0.7)], rtol=1e-6)
    np.testing.assert_allclose(z.d, np.sin([0.5, np.sin(0.7)]), rtol=1e-6)


@row("A call that fails, and `h` that it was to take")
def failed_call():
    """A call that raises leaves its inputs as they were: a clearing run still clears them."""
    h = leaf(1, 2) * 2.0
    y = F.sum(h)
    with pytest.raises(nn.Error):
        F.transpose(h, axes=(0, 1, 2))
    y.forward(clear_no_need_grad=True)
    assert h.data.clear_called


@pytest.mark.parametrize("text", ROWS)
def test_the_page_is_right(text):
    """The statement of a row of the page is true."""
    assert sum(line.startswith(f"| {text}") for line in PAGE.splitlines()) == 1
    ROWS[text]()


def test_each_row_is_run():
    """Every row of the section has a check in `ROWS`."""
    section = PAGE.partition("## Gradients and numbers")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ROWS)
