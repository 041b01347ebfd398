"""Memory budgets for graphs with several losses: each can run backward, in any order, within the budget."""

import itertools

import numpy as np
import pytest
from support import chain, random_leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

SHAPE = (64, 1024)
"""Shape of each value of a chain."""
BYTES = 4 * 64 * 1024
"""Size of one array of the shape."""
SLACK = 4096
"""Bytes by which a measured peak may exceed the budget."""


def two(n):
    """Returns the leaf, and two losses over one trunk of `n` functions."""
    x = random_leaf(*SHAPE)
    trunk = chain(x, n)
    return x, [F.mean(chain(trunk, 3, F.sin)), F.mean(chain(trunk, 3))]


def three(n):
    """Returns the leaf, and three losses: one on top of another, and a separate one."""
    x = random_leaf(*SHAPE)
    middle = chain(x, n)
    upper = chain(middle + x, n, F.sin)
    return x, [F.mean(upper * middle), F.mean(middle), F.mean(chain(upper, n))]


def apart(n):
    """Returns the leaf, and two losses that share only the leaf."""
    x = random_leaf(*SHAPE)
    return x, [F.mean(chain(x, n)), F.mean(chain(x, n, F.sin))]


NETS = [two, three, apart]
"""Networks of several losses. Each takes the number of layers and returns the input and the losses."""


def step(x, losses, order, budget=None):
    """Runs all losses backward. Returns the gradient and the peak bytes of the graph's arrays."""
    x.g[...] = 0
    before = nn.memory_stats()["live"] - x.d.nbytes - x.g.nbytes
    nn.reset_peak_memory()
    with nn.memory_budget(budget):
        nn.forward_all(losses)
    for i in order:
        losses[i].backward()
    return x.g.copy(), nn.memory_stats()["peak"] - before


def least(losses):
    """Returns the least budget that suffices."""
    with pytest.raises(nn.BudgetError) as caught, nn.memory_budget(0):
        nn.forward_all(losses)
    return caught.value.least


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("n", [1, 2, 8, 30])
def test_every_order_stays_within_the_budget(net, n):
    """Several losses of one graph may run backward in any order within the budget."""
    x, losses = net(n)
    plain = [step(x, losses, order)[0] for order in itertools.permutations(range(len(losses)))]
    most = (2 * n + 12) * 2 * BYTES
    low = least(losses)
    for budget in (low, (low + most) // 2, most):
        for order, expected in zip(itertools.permutations(range(len(losses))), plain, strict=True):
            gradient, peak = step(x, losses, order, budget)
            assert peak <= budget + SLACK
            assert (gradient == expected).all()


def test_a_trunk_is_not_kept_for_both():
    """Two losses over a shared chain need less memory than keeping the chain."""
    _, losses = two(64)
    assert least(losses) < 30 * BYTES


def test_one_of_two_losses_alone():
    """Each of two losses can run alone, under a budget too."""
    x, losses = two(8)
    together = step(x, losses, (0, 1))[0]
    x.g = 0
    for loss in losses:
        loss.forward()
        loss.backward(clear_buffer=True)
    np.testing.assert_allclose(x.g, together, rtol=1e-6)
    budget = least(losses)
    for _ in range(2):
        x.g = 0
        for loss in losses:
            loss.forward(memory_budget=budget)
            loss.backward()
        np.testing.assert_allclose(x.g, together, rtol=1e-6)
        assert (step(x, losses, (0, 1), budget)[0] == together).all()
        assert (step(x, losses, (0, 1))[0] == together).all()


def test_a_loss_that_is_not_differentiated():
    """A loss without a backward run does not take memory from the other one."""
    x, losses = two(12)
    plain, _ = step(x, losses, (1,))
    budget = least(losses)
    for _ in range(2):
        gradient, peak = step(x, losses, (1,), budget)
        assert (gradient == plain).all()
        assert peak <= budget + SLACK


def test_autodiff_goes_through_several_ends():
    """`autodiff.backward` of several losses after a budgeted `forward_all` is right."""
    x, losses = two(12)
    plain, _ = step(x, losses, (0, 1))
    with nn.memory_budget(least(losses)):
        nn.forward_all(losses)
    x.grad = None
    autodiff.backward(losses)
    np.testing.assert_allclose(x.g, plain, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("need_grad", [True, False])
@pytest.mark.parametrize("in_place", [F.unlink, lambda x: F.reshape(x, (3, 2))])
def test_a_leaf_stays_if_the_end_aliases_it(in_place, need_grad):
    """A leaf that the loss aliases is not cleared under a budget."""
    x = nn.Variable.from_numpy_array(np.full((2, 3), 4, np.float32), need_grad=need_grad)
    y = in_place(x)
    for _ in range(2):
        y.forward(memory_budget=1 << 30)
        y.backward()
        assert (x.d == 4).all() and (y.d == 4).all()
