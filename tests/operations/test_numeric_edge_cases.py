"""Numeric edge cases: invalid indices are refused, NaN stays NaN, and meaningless arguments are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import leaf_of

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

NAN, INF = np.nan, np.inf
SCORES = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
"""Scores of two rows for three classes."""

INDEXED = {
    "softmax_cross_entropy": lambda i: F.softmax_cross_entropy(leaf_of(SCORES), i),
    "categorical_cross_entropy": lambda i: F.categorical_cross_entropy(leaf_of(SCORES / 10), i),
    "top_n_error": lambda i: F.top_n_error(leaf_of(SCORES), i),
    "embed": lambda i: F.embed(i, leaf_of(SCORES)),
    "gather": lambda i: F.gather(leaf_of(SCORES), i, axis=1),
    "gather_nd": lambda i: F.gather_nd(leaf_of(SCORES), i),
    "scatter_nd": lambda i: F.scatter_nd(leaf_of([1.0]), i, shape=(2, 3)),
    "scatter_add": lambda i: F.scatter_add(leaf_of(SCORES), i, leaf_of(np.ones((2, 1))), axis=1),
    "one_hot": lambda i: F.one_hot(i, (3,)),
}
"""Operations that take indices of shape (2, 1), by name."""


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("wrong", [1.7, 0.9995, -0.4, NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_indices_are_whole_numbers(name, wrong, dtype):
    """Indices that are fractions, infinite or NaN raise IndexRangeError, which names the position."""
    index = leaf_of([[0.0], [wrong]], dtype, need_grad=False)
    y = INDEXED[name](index)
    with pytest.raises(nn.IndexRangeError, match=rf"^{name}: expected whole numbers in \w+, got \S+ at \(1, 0\)$"):
        y.forward()
    index.d = [[0.0], [1.0]]
    y.forward()
    expected = INDEXED[name](leaf_of([[0], [1]], np.int64, need_grad=False))
    expected.forward()
    assert np.array_equal(y.d, expected.d)


@pytest.mark.parametrize("name", INDEXED)
def test_fractional_indices_are_truncated_under_nnabla_names(name):
    before = _core.dialect()
    _core.set_dialect("nnabla")
    try:
        y, z = (INDEXED[name](leaf_of([[0.0], [last]], need_grad=False)) for last in (1.9, NAN))
        y.forward()
        with pytest.raises(nn.IndexRangeError, match="got NaN at"):
            z.forward()
    finally:
        _core.set_dialect(before)
    expected = INDEXED[name](leaf_of([[0], [1]], np.int64, need_grad=False))
    expected.forward()
    assert np.array_equal(y.d, expected.d)


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "categorical_cross_entropy", "embed", "gather", "gather_nd"])
def test_indices_are_checked_again_in_backward(name):
    """Backward checks indices that were changed after forward."""
    index = leaf_of([[0.0], [1.0]], need_grad=False)
    y = INDEXED[name](index)
    y.forward()
    index.d = [[0.0], [0.5]]
    with pytest.warns(UserWarning, match="was changed since"), pytest.raises(nn.IndexRangeError, match=r"got 0.5 at"):
        y.backward()


def test_indices_written_through_a_view():
    """A cached integer copy must not hide later writes through the view."""
    index = leaf_of([0.0, 2.0, 1.0], need_grad=False)
    y = F.embed(index, leaf_of(SCORES.T))
    y.forward()
    view = index.d
    view[2] = NAN
    with pytest.raises(nn.IndexRangeError, match=r"embed: expected whole numbers in x0, got NaN at \(2\)|\(2,\)"):
        y.forward()
    index.data.fill(0.5)
    with pytest.raises(nn.IndexRangeError, match=r"got 0\.5"):
        y.forward()


def test_large_whole_numbers_are_out_of_range():
    """`gather` refuses float indices of 2**52 and more as out of range."""
    for large in (1e30, -1e30, 2.0**52, 2.0**63):
        with pytest.raises(nn.IndexRangeError, match="gather"):
            F.gather(leaf_of(SCORES), leaf_of([large], np.float64, need_grad=False)).forward()


KEEP = {
    "relu": 1.0,
    "relu6": None,
    "leaky_relu": None,
    "elu": None,
    "selu": None,
    "hard_sigmoid": None,
    "hard_tanh": None,
    "hard_swish": None,
    "sign": 1.0,
    "abs": None,
    "softplus": None,
    "maximum_scalar": 0.0,
    "minimum_scalar": 0.0,
    "sigmoid": None,
    "tanh": None,
    "gelu": None,
    "swish": None,
    "mish": None,
    "round": 1.0,
}
"""Functions that map NaN to NaN, with the derivative there if it is a number."""


@pytest.mark.parametrize("name", KEEP)
@pytest.mark.parametrize("n", [1, 67])
def test_nan_stays_nan(name, n):
    """Functions of one input return NaN for NaN, and pass the declared slope to it."""
    x = leaf_of(np.where(np.arange(n) % 3 == 0, NAN, np.arange(n) - 30.0))
    y = getattr(F, name)(x)
    for _ in range(2):
        y.forward()
        assert np.array_equal(np.isnan(y.d), np.isnan(x.d))
    if (slope := KEEP[name]) is not None:
        x.grad.zero()
        y.backward(np.full(n, 3.0))
        assert (x.g[np.isnan(x.d)] == 3.0 * slope).all()


def test_nan_stays_nan_in_pairs():
    """Maxima and minima of two inputs return NaN if either is NaN."""
    one, other = leaf_of([NAN, 1.0, NAN, 2.0]), leaf_of([1.0, NAN, NAN, 3.0])
    for f in (F.maximum2, F.minimum2):
        y = f(one, other)
        y.forward()
        assert np.isnan(y.d[:3]).all() and y.d[3] in (2.0, 3.0)
    y = F.crelu(leaf_of([[NAN, 1.0]]))
    y.forward()
    assert np.isnan(y.d[0, [0, 2]]).all() and y.d[0, [1, 3]].tolist() == [1.0, 0.0]
    for bound in (F.maximum_scalar, F.minimum_scalar):
        y = bound(leaf_of([1.0, -1.0]), NAN)
        y.forward()
        assert np.isnan(y.d).all()


def test_nan_is_an_error_in_metrics():
    """Metrics count a NaN score as an error."""
    y = F.top_n_error(leaf_of([[NAN, 0.1], [0.5, 0.1]]), leaf_of([[0.0], [0.0]]))
    y.forward()
    assert y.d.tolist() == [[1.0], [0.0]]
    y = F.binary_error(leaf_of([[NAN, 0.1]]), leaf_of([[0.0, NAN]]))
    y.forward()
    assert y.d.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("kind", ["affine", "convolution", "add"])
def test_fused_relu_keeps_bits(kind):
    """Fused with the function that computes its input, `relu` treats NaN and signed zeros as it does alone."""
    special = np.array([NAN, -0.0, 0.0, INF, -INF, 1e-45, -1e-45, -2.0, 3.0] * 3, np.float32)
    if kind == "add":
        x, h = special, lambda v: F.add_scalar(v, -0.0)
    elif kind == "affine":
        x, h = special[:, None], lambda v: F.affine(v, leaf_of(np.ones((1, 37))))
    else:
        x, h = special.reshape(1, 1, 3, 9), lambda v: F.convolution(v, leaf_of(np.ones((5, 1, 1, 1))))
    together = F.relu(h(leaf_of(x)))
    before = h(leaf_of(x))
    before.forward()
    alone = F.relu(leaf_of(before.d))
    alone.forward()
    for _ in range(3):
        together.forward(clear_no_need_grad=True)
        assert together.d.tobytes() == alone.d.tobytes()
    assert np.isnan(alone.d).any()


X = np.arange(6, dtype=np.float32).reshape(2, 3)
"""A small float32 input."""
REFUSED = [
    ("batch_normalization", {"decay_rate": 5.0}),
    ("batch_normalization", {"decay_rate": NAN}),
    *((f"{kind}_normalization", {"eps": eps}) for kind in ("batch", "layer", "instance") for eps in (-1.0, NAN)),
    ("tensor_normalization", {"eps": -1.0, "axes": [1]}),
    ("weight_standardization", {"eps": -1.0}),
    ("norm_normalization", {"eps": -1.0}),
    ("norm_normalization", {"p": INF}),
    ("norm_normalization", {"p": 0.0}),
    ("norm", {"p": INF}),
    ("norm", {"p": NAN}),
    ("norm", {"p": 0.5}),
    ("softplus", {"beta": 0.0}),
    ("softplus", {"beta": NAN}),
    ("dropout", {"p": 1.0}),
    ("dropout", {"p": NAN}),
]
"""Functions, each with one argument (the first of the dict) that must raise `ArgumentError`."""


@pytest.mark.parametrize(("name", "args"), REFUSED)
def test_arguments_without_meaning_are_refused(name, args):
    """Arguments without a valid meaning raise ArgumentError."""
    argument = next(iter(args))
    with pytest.raises(nn.ArgumentError, match=f"^{name}: expected `{argument}` to be"):
        getattr(F, name)(leaf_of(X), **args)


@pytest.mark.parametrize("wrong", [-1.0, NAN])
def test_tolerances_of_losses_are_not_negative(wrong):
    """Negative and NaN tolerances of losses are refused."""
    for f, argument in ((F.huber_loss, "delta"), (F.epsilon_insensitive_loss, "epsilon")):
        with pytest.raises(nn.ArgumentError, match=f"expected `{argument}` to be zero or more"):
            f(leaf_of(X), leaf_of(X), wrong)


def test_random_arguments():
    """An infinite `sigma` and a probability above one are refused."""
    with pytest.raises(nn.ArgumentError, match="sigma"):
        F.randn(0, INF, (3,))
    with pytest.raises(nn.ArgumentError, match="prob"):
        F.random_erase(leaf_of(np.ones((1, 1, 4, 4))), prob=5.0)


def test_ranges_wider_than_the_largest_number():
    """`F.rand` draws from a range that is wider than the largest number."""
    y = F.rand(-3e38, 3e38, (1000,), seed=1)
    y.forward()
    assert np.isfinite(y.d).all() and len(np.unique(y.d)) > 900 and abs(np.sign(y.d).mean()) < 0.2
    narrow = F.rand(-0.3, 0.3, (1000,), seed=1)
    narrow.forward()
    assert np.allclose(y.d / 3e38, narrow.d / 0.3, atol=1e-6)


@pytest.mark.parametrize("val", [0.5, 1.5, 2.5, -0.5, -1.5, 1.0, 2.0, 3.0, -1.0, -2.0, 0.0, 1.7])
def test_powers_have_the_special_cases_of_c(val):
    x = np.array([-INF, INF, -0.0, 0.0, 1.0, -1.0, NAN], np.float32)
    y = F.pow_scalar(leaf_of(x), val)
    y.forward()
    # NumPy computes the power of a half as a square root, which has other special cases.
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), np.full(7, val)).astype(np.float32)
    assert np.array_equal(y.d, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y.d[2:4]), np.signbit(expected[2:4]))


ANCHORS = Path(__file__).with_name("anchors.py")
"""The program that compares functions at fixed points."""


@pytest.mark.parametrize("isa", ["", "avx2", "portable"])
def test_anchors(isa):
    """If the true value is a number or a multiple of an eighth of a turn, the result is the nearest float."""
    done = subprocess.run(
        [sys.executable, str(ANCHORS)], env=os.environ | {"KINNOR_ISA": isa}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
