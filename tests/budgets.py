"""What tests of memory budgets share: programs that run as they are built, and what a step of them takes."""

import gc

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

SHAPE = (64, 1024)
BYTES = 4 * 64 * 1024
"""Large enough for its memory to be counted at once, not in batches."""
SLACK = 8192
"""Scalars, and what the allocator counts in batches."""
BATCH = 65536
"""What a thread may have allocated or freed before others see it."""


def leaf(seed=0, shape=SHAPE):
    values = np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)
    return nn.Variable.from_numpy_array(values, need_grad=True)


def chain(x, n, f=F.tanh):
    h = x
    for _ in range(n):
        h = f(h)
    return F.mean(h)


def by_backward(loss, leaves):
    loss.backward()
    return [x.g.copy() for x in leaves]


def by_autodiff(loss, leaves):
    autodiff.backward(loss)
    return [x.g.copy() for x in leaves]


def by_grad(loss, leaves):
    return [g.d.copy() for g in autodiff.grad(loss, leaves)]


def retained(loss, leaves):
    autodiff.grad(loss, leaves, retain_graph=True)
    return [g.d.copy() for g in autodiff.grad(loss, leaves)]


WAYS = [by_backward, by_autodiff, by_grad, retained]
ways = pytest.mark.parametrize("way", WAYS)


def step(program, leaves, budget, way=by_backward, seed=5):
    """Gradients of a step of `program`, and the bytes of its arrays at the worst moment."""
    nn.seed(seed)
    for x in leaves:
        x.grad = None
    others = beside(leaves)
    nn.reset_peak_memory()
    with nn.auto_forward(), nn.memory_budget(budget if budget is None else others + budget):
        loss = program(*leaves)
        gradients = way(loss, leaves)
    return gradients, nn.memory_stats()["peak"] - others


def rest(*leaves):
    """Bytes in memory beside the data of leaves, and for some scalars: what other tests have left counts too."""
    gc.collect()
    return beside(leaves)


def beside(leaves):
    """As `rest`, of a program that goes on."""
    return nn.memory_stats()["live"] - sum(x.d.nbytes for x in leaves) + 256


def same(a, b):
    return all((x == y).all() for x, y in zip(a, b, strict=True))


def least(run, most):
    """About the least budget that does: `run` takes one and returns gradients and bytes."""
    low, high = 0, most
    while high - low > BYTES // 2:
        middle = (low + high) // 2
        try:
            run(middle)
            high = middle
        except nn.BudgetError:
            low = middle
    return high


def refused(error, call):
    """The text of an error that a call ends with. (The error itself has hold of variables, which may not go then.)"""
    try:
        call()
    except error as e:
        return str(e)
    finally:
        gc.collect()
    return pytest.fail("nothing was raised")
