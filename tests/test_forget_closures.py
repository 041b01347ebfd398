"""Closures that `F.forget` holds are collected once nothing leads to them."""

import gc
import weakref

import numpy as np
from budgets import (
    leaf,
)

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff


class Counted:
    """Something whose death can be seen."""


def test_a_closure_that_holds_an_output_is_collected():
    def cycle(build):
        token = Counted()
        cell = [token]

        def func(h):
            return F.tanh(h) if cell else h

        y = build(func, leaf())
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
    loss = F.sum(F.forget(func, x))
    loss.backward()
    autodiff.backward(loss)
    return loss


def test_a_closure_stays_as_long_as_anything_leads_to_it():
    with nn.auto_forward():
        x = leaf()
        cell = []

        def func(h):
            return F.tanh(h) if cell is not None else h

        y = F.forget(func, x)
        cell.append(y)
        loss = F.sum(y)
        del func, y
        gc.collect()
        loss.backward()
        assert np.abs(x.g - (1 - np.tanh(x.d) ** 2)).max() < 1e-5
