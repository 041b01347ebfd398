"""Training steps within a budget of memory: they keep to it, and give the same gradients to the bit."""

import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import _core

SHAPE = (64, 1024)
BYTES = 4 * 64 * 1024
"""Large enough for its memory to be counted at once, not in batches."""


def leaf(seed=0, shape=SHAPE):
    values = np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)
    return nn.Variable.from_numpy_array(values, need_grad=True)


def chain(n, f=F.tanh):
    h = x = leaf()
    for _ in range(n):
        h = f(h)
    return x, F.mean(h)


def net(seed):
    """A random graph: branches, skips, random numbers, several outputs, in-place views."""
    rng = np.random.RandomState(seed)
    leaves = [leaf(seed + i) for i in range(2)]
    nodes = list(leaves)
    for _ in range(rng.randint(5, 40)):
        a, b = (nodes[-1 - min(int(rng.exponential(2)), len(nodes) - 1)] for _ in range(2))
        pick = rng.randint(10)
        if pick < 3:
            nodes.append([F.tanh, F.sin, F.identity][pick](a))
        elif pick < 5:
            nodes.append([F.add2, F.mul2][pick - 3](a, b))
        elif pick == 5:
            nodes.append(F.dropout(a, 0.3))
        elif pick == 6:
            nodes.append(F.reshape(F.relu(F.reshape(a, (1024, 64))), SHAPE))
        elif pick == 7:
            nodes.append(F.stack(*reversed(F.split(F.reshape(a, (4, 16, 1024))))).reshape(SHAPE))
        elif pick == 8:
            nodes.append(F.add2(a, a))
        else:
            nodes.append(F.sum(F.reshape(a, (4, 16, 1024)), 0, keepdims=True) * F.reshape(b, (4, 16, 1024)))
            nodes.append(F.reshape(nodes.pop(), SHAPE))
    loss = F.mean(nodes[-1] * F.identity(leaves[0]) + nodes[len(nodes) // 2])
    return leaves, loss


def step(loss, leaves, **options):
    """Gradients of a training step, and the bytes of its arrays at the worst moment."""
    nn.seed(5)
    own = 2 * sum(4 * x.size for x in leaves)
    for x in leaves:
        x.g[...] = 0
    before = nn.memory_stats()["live"]
    nn.reset_peak_memory()
    loss.forward(**options)
    loss.backward(clear_buffer=True)
    return [x.g.copy() for x in leaves], nn.memory_stats()["peak"] - before + own


def facts(loss, budget=None):
    return _core.plan_facts(loss, budget)


def same(a, b):
    return all((x == y).all() for x, y in zip(a, b, strict=True))


def least(loss):
    with pytest.raises(nn.BudgetError) as caught:
        loss.forward(memory_budget=0)
    return int(str(caught.value).split("at least ")[1].split()[0])


@pytest.mark.parametrize("n", [1, 2, 3, 9, 64])
def test_a_chain_takes_as_much_as_was_said(n):
    x, loss = chain(n)
    plain, peak = step(loss, [x])
    assert abs(peak - facts(loss)["peak_clearing"]) < 4096
    for budget in {*np.linspace(least(loss), peak, 5).round()}:
        gradients, real = step(loss, [x], memory_budget=int(budget))
        assert same(plain, gradients)
        said = facts(loss, int(budget))["peak"]
        assert said <= budget
        assert abs(real - said) < 4096


def test_a_chain_needs_about_twice_the_root_of_its_length():
    _, loss = chain(100)
    assert least(loss) < (2 * 10 + 6) * BYTES
    assert facts(loss, least(loss))["extra"] < 0.34


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_keeps_to_its_budget(seed):
    leaves, loss = net(seed)
    plain, _ = step(loss, leaves)
    low, high = least(loss), facts(loss)["peak_clearing"]
    for budget in {low, (low + high) // 2, high}:
        for _ in range(2):
            gradients, real = step(loss, leaves, memory_budget=budget)
            assert same(plain, gradients)
            assert abs(real - facts(loss, budget)["peak"]) < 4096
    assert same(plain, step(loss, leaves)[0])
