"""Programs and measurements that tests of memory budgets share."""

import gc

import pytest
from support import chain, random_leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

SHAPE = (64, 1024)
"""Shape of each value of a chain."""
BYTES = 4 * 64 * 1024
"""Bytes of an array that is large enough to be counted immediately, not in batches."""
SLACK = 8192
"""Tolerance in bytes for scalars, and for small blocks that the allocator counts in batches."""
BATCH = 65536
"""Bytes that a thread may allocate or free before other threads see it."""


def wide_leaf(seed=0, shape=SHAPE):
    """Returns a variable of random values that requires a gradient, large enough to be counted immediately."""
    return random_leaf(*shape, seed=seed)


def chain_loss(x, n, f=F.tanh):
    """Applies `f` to `x` `n` times in succession. Returns the mean of the last result."""
    return F.mean(chain(x, n, f))


def by_backward(loss, leaves):
    """Returns the gradients of the leaves by `Variable.backward`."""
    loss.backward()
    return [x.g.copy() for x in leaves]


def by_autodiff(loss, leaves):
    """Returns the gradients of the leaves by `autodiff.backward`."""
    autodiff.backward(loss)
    return [x.g.copy() for x in leaves]


def by_grad(loss, leaves):
    """Returns the gradients of the leaves by `autodiff.grad`."""
    return [g.d.copy() for g in autodiff.grad(loss, leaves)]


def retained(loss, leaves):
    """Returns the gradients of the second of two `autodiff.grad` calls on a retained graph."""
    autodiff.grad(loss, leaves, retain_graph=True)
    return [g.d.copy() for g in autodiff.grad(loss, leaves)]


WAYS = [by_backward, by_autodiff, by_grad, retained]
"""Ways to differentiate a loss."""
ways = pytest.mark.parametrize("way", WAYS)
"""Runs a test for each way to differentiate."""


def step(program, leaves, budget, way=by_backward, seed=5):
    """Runs an eager step of `program` with `budget` bytes beyond the leaves.

    Returns its gradients and its peak bytes.
    """
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
    """Returns the live bytes besides the data of the leaves, after garbage collection.

    Includes leftovers of other tests.
    """
    gc.collect()
    return beside(leaves)


def beside(leaves):
    """As `rest`, without garbage collection, for a program that is still running."""
    return nn.memory_stats()["live"] - sum(x.d.nbytes for x in leaves) + 256


def least(run, most):
    """Returns the least budget that `run(budget)` accepts, to half a block. `run(most)` must succeed."""
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
    """Asserts that `call` raises `error`. Returns only its text, because the error itself keeps variables alive."""
    try:
        call()
    except error as e:
        return str(e)
    finally:
        gc.collect()
    return pytest.fail("nothing was raised")
