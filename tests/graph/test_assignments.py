"""Assignments to parts within a graph: values computed before do not change, as in NumPy."""

import random
import time

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

DOUBLE = nn.Context(["cpu:double"])
"""A context that computes in float64."""


class InNumPy:
    """The functions that the programs below use, for NumPy arrays."""

    tanh = staticmethod(np.tanh)

    @staticmethod
    def reshape(x, shape):
        """Reshapes into a copy."""
        return x.reshape(shape).copy()

    @staticmethod
    def transpose(x, axes):
        """Transposes into a copy."""
        return x.transpose(axes).copy()

    @staticmethod
    def identity(x):
        """Returns a copy."""
        return x.copy()

    @staticmethod
    def part(x, key):
        """Returns a copy of a part."""
        return np.array(x[key])


class InKinnor:
    """The same functions for variables."""

    tanh, reshape, transpose, identity = F.tanh, F.reshape, F.transpose, F.identity

    @staticmethod
    def part(x, key):
        """Returns a part."""
        return x[key]


KEYS = [
    np.s_[1],
    np.s_[-1],
    np.s_[:, 0],
    np.s_[1:3],
    np.s_[:, 1:3],
    np.s_[::-1],
    np.s_[::2, 1],
    np.s_[...],
    np.s_[0, 0],
]
"""Basic keys for arrays of two axes, to read from or assign to."""
PLACES = [np.s_[[0, 2]], np.s_[[1, 3], [2, 0]]]
"""Keys with lists of indices."""


def program(seed, lib, x, w):
    """Runs a random program of functions and assignments. Returns an array of the shape of `x`."""
    draw = random.Random(seed)
    held = [x * 1.0, w * 1.0, x + w]
    for _ in range(draw.randrange(3, 12)):
        i, j = draw.randrange(len(held)), draw.randrange(len(held))
        a, b = held[i], held[j]
        key = draw.choice(KEYS)
        match draw.randrange(12):
            case 0:
                held.append(lib.tanh(a))
            case 1:
                held.append(a + b)
            case 2:
                held.append(lib.reshape(lib.reshape(a, (a.size,)), a.shape))
            case 3:
                a[draw.randrange(4)] = b[draw.randrange(4)] * 2.0
            case 4:
                a[key] = lib.part(b, key) * 0.5
            case 5:
                k = lib.reshape(a, (2, 8))
                k[0] = lib.reshape(b[0:2], (8,))
                held.append(lib.reshape(k, (4, 4)))
            case 6:
                held.append(a * b)
            case 7:
                a[...] = lib.transpose(b, (1, 0))
            case 8:
                held[i] = a * 0.5
            case 9:
                held.append(lib.identity(a))
                a[key] = draw.uniform(-1, 1)
            case 10:
                a[key] = a[2, 1]
            case 11:
                at = draw.choice(PLACES)
                a[at] = lib.part(b, at) + 1.0
    y = held[0] * 0.0
    for k, v in enumerate(held):
        y = y + v * (0.1 * (k + 1))
    return y * y


def starts(seed):
    """Returns random initial values."""
    return np.random.RandomState(seed).randn(3, 2, 4, 4)


def in_kinnor(seed, how):
    """Runs program number `seed` in mode `how`. Returns its values and the gradients of their sum."""
    at = starts(seed)
    x, w = (nn.Variable.from_numpy_array(start, need_grad=True) for start in at[0])
    with nn.context_scope(DOUBLE), nn.auto_forward(how == "dynamic"):
        y = program(seed, InKinnor, x, w)
        loss = F.sum(y)
        for _ in range(1 if nn.get_auto_forward() else 3):
            x.grad.zero()
            w.grad.zero()
            if not nn.get_auto_forward():
                y.persistent = True
                loss.forward(clear_no_need_grad=how == "clearing")
            loss.backward(clear_buffer=how == "clearing")
    return y.d.copy(), np.stack([x.g, w.g])


@pytest.mark.parametrize("seeds", [range(n, n + 15) for n in range(0, 90, 15)])
def test_random_programs_match_numpy(seeds):
    """Random programs of assignments to parts give the values and slopes of NumPy."""
    for seed in seeds:
        start, _, direction = starts(seed)
        expected = program(seed, InNumPy, *start)
        step = 1e-6
        ends = [program(seed, InNumPy, *(start + sign * step * direction)).sum() for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        for how in ("static", "clearing", "dynamic"):
            y, g = in_kinnor(seed, how)
            np.testing.assert_allclose(y, expected, 1e-9, 1e-9, err_msg=f"{seed} {how}")
            scale = max(1.0, np.abs(g).max())
            assert abs((g * direction).sum() - slope) < 1e-4 * scale * 10, (seed, how)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("key", [0, [0], np.s_[:]])
def test_earlier_results_keep_their_values(dynamic, key):
    """An assignment to a part does not change results that were computed before it."""
    x = nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True)
    with nn.auto_forward(dynamic):
        v = x * 1
        before = F.sin(v)
        v[key] = 9
        after = F.sin(v)
        y = F.sum(before) + 2 * F.sum(after)
    if not dynamic:
        for _ in range(3):
            nn.forward_all([before, after, y])
    changed = np.ones(2, np.float32)
    changed[key] = 9
    np.testing.assert_allclose(before.d, np.sin([1, 1]), 1e-6)
    np.testing.assert_allclose(after.d, np.sin(changed), 1e-6)
    x.grad.zero()
    y.backward()
    np.testing.assert_allclose(x.g, np.cos(1) * (1 + 2 * (changed == 1)), 1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_assignment_to_a_leaf_keeps_earlier_results(dynamic):
    x = nn.Variable.from_numpy_array(np.ones(2, np.float32))
    with nn.auto_forward(dynamic):
        before = F.exp(x)
        x[0] = 3
        after = F.exp(x)
    for _ in range(0 if dynamic else 2):
        nn.forward_all([before, after])
    np.testing.assert_allclose(before.d, np.exp([1, 1]), 1e-6)
    np.testing.assert_allclose(after.d, np.exp([3, 1]), 1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_values_that_a_gradient_needs_and_views_are_assigned_to(dynamic):
    """Assignments to values that a gradient reads are right."""
    x = nn.Variable.from_numpy_array(np.array([0.0, 1.0], np.float32), need_grad=True)
    with nn.auto_forward(dynamic):
        e = F.exp(x)  # the gradient of `exp` reads its output
        e[0] = 5
        view = F.reshape(e, (2, 1))
        view[1] = 7
        y = F.sum(e * e) + F.sum(view)
    if not dynamic:
        y.forward()
    assert y.item() == pytest.approx(25 + np.exp(2) + 5 + 7, 1e-6)
    x.grad.zero()
    y.backward()
    np.testing.assert_allclose(x.g, [0, 2 * np.exp(2)], 1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_constant_that_is_assigned_to_requires_grad(dynamic):
    """Also in eager mode, where no later run could notice it."""
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
    with nn.auto_forward(dynamic):
        h = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32)) * 1.0
        h[:, 1] = x[:, 2] * 2.0
        y = F.sum(h * h)
    if not dynamic:
        y.forward()
    assert h.need_grad and y.need_grad
    for differentiate in (lambda: y.backward(), lambda: autodiff.backward(y)):
        x.grad.zero()
        differentiate()
        assert x.g.tolist() == [[0, 0, 8]] * 2


def test_unobserved_assignments_are_in_place():
    """An assignment to a part reuses the memory if nothing else reads the old values."""
    v = nn.Variable.from_numpy_array(np.zeros(4, np.float32)) * 1
    for i in range(4):
        v[i] = i
        assert v.parent.inplace_data(0)
    v.forward()
    assert v.d.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loop_of_assignments_takes_linear_time(dynamic):
    def seconds(n):
        """Returns the CPU time of a loop of `n` assignments."""
        x = nn.Variable.from_numpy_array(np.ones(8, np.float32), need_grad=True)
        with nn.auto_forward(dynamic):
            v, seen = x * 1, []
            begin = time.process_time()
            for i in range(n):
                v[i % 8] = v[(i + 1) % 8] * 0.5
                seen.append(F.sin(v))
            return time.process_time() - begin

    seconds(50)
    short, long = min(seconds(200) for _ in range(3)), min(seconds(1600) for _ in range(2))
    assert long < 8 * 4 * short


def test_an_assignment_that_is_refused_changes_nothing():
    x = nn.Variable.from_numpy_array(np.ones(3, np.float32))
    h = x * 2
    for taken in (False, True):
        k = F.exp(h) if taken else None
        parent = h.parent
        with pytest.raises(nn.ShapeError):
            h[0] = np.zeros(3)
        assert h.parent == parent
        assert h.function_references == ([k.parent] if taken else [])
    k.forward()
    np.testing.assert_allclose(k.d, np.exp([2, 2, 2]), 1e-6)
