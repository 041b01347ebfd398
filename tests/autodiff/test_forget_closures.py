"""Closures held by `F.forget` are collected once they are unreachable."""

import gc
import weakref

import numpy as np
from budgets import wide_leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff


class Counted:
    """An object with a weak reference, so that its collection can be observed."""


def test_a_closure_that_holds_an_output_is_collected():
    def cycle(build):
        """Makes a reference cycle of a closure and its output. Returns a weak reference to its token."""
        token = Counted()
        cell = [token]

        def func(h):
            """A segment that refers to `cell`, and so to its own output."""
            return F.tanh(h) if cell else h

        y = build(func, wide_leaf())
        cell.append(y)
        return weakref.ref(token)

    gc.collect()
    variables = _core.live_variables()
    ways = [
        lambda func, x: F.forget(func, x),
        lambda func, x: F.sum(F.forget(func, F.sin(x))),
        lambda func, x: F.forget(func, F.forget(func, x)),
        differentiated,
    ]
    for build in ways:
        with nn.auto_forward():
            token = cycle(build)
        gc.collect()
        assert token() is None
    assert _core.live_variables() == variables


def differentiated(func, x):
    """Differentiates a loss twice, and returns it."""
    loss = F.sum(F.forget(func, x))
    loss.backward()
    autodiff.backward(loss)
    return loss


def test_a_closure_stays_while_it_is_reachable():
    with nn.auto_forward():
        x = wide_leaf()
        cell = []

        def func(h):
            """A segment that refers to `cell`."""
            return F.tanh(h) if cell is not None else h

        y = F.forget(func, x)
        cell.append(y)
        loss = F.sum(y)
        del func, y
        gc.collect()
        loss.backward()
        assert np.abs(x.g - (1 - np.tanh(x.d) ** 2)).max() < 1e-5
