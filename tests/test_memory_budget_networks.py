"""Budgets of memory hold what the allocator measures: networks with parameters, whose gradients come on the way."""

import gc
import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

DEPTH = 50
BATCH = 65536
"""What a thread may have allocated or freed before others see it."""
SHAPES = {"affine": (512, 64), "convolution": (4, 8, 24, 24)}
WAYS = {"affine": lambda h: PF.affine(h, 64), "convolution": lambda h: PF.convolution(h, 8, (3, 3), pad=(1, 1))}


@pytest.fixture(params=["affine", "convolution"])
def network(request):
    """A chain of layers and what it starts from; its parameters are there."""
    kind = request.param
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(*SHAPES[kind]).astype(np.float32))

    def build():
        h = x
        for i in range(DEPTH):
            with nn.parameter_scope(f"{kind}{i}"):
                h = F.relu(WAYS[kind](h))
        return F.mean(h * h)

    nn.clear_parameters()
    nn.seed(1)
    with nn.no_grad():
        build()
    gc.collect()
    yield build, x
    nn.clear_parameters()


def step(build, budget, fresh=False):
    """Gradients of a step at once, and the most memory that there was in it."""
    parameters = nn.get_parameters().values()
    for p in parameters:
        if fresh:
            p.grad = None
        p.grad.zero()
    nn.reset_peak_memory()
    with nn.auto_forward(), nn.memory_budget(budget):
        build().backward()
    peak = nn.memory_stats()["peak"]
    return [p.g.copy() for p in parameters], peak


def same(a, b):
    return all((x == y).all() for x, y in zip(a, b, strict=True))


def refusal(build, budget):
    """The need that the error tells."""
    try:
        step(build, budget)
    except nn.BudgetError as error:
        return error.least
    finally:
        gc.collect()
    return None


@pytest.mark.parametrize("fresh", [True, False])
def test_what_is_measured_is_within_the_budget(network, fresh):
    build, _ = network
    plain, most = step(build, None)
    there = nn.memory_stats()["live"]
    for part in (1.0, 0.7, 0.5, 0.33, 0.25):
        budget = int(there + part * (most - there))
        gradients, peak = step(build, budget, fresh)
        assert peak <= budget
        assert same(plain, gradients)


def test_what_is_too_little_is_told(network):
    build, x = network
    step(build, None)
    there = nn.memory_stats()["live"]
    needs = [refusal(build, budget) for budget in (0, there // 2, there, there + x.d.nbytes)]
    assert all(need is not None for need in needs)
    assert all(need > budget for need, budget in zip(needs, (0, there // 2, there, there + x.d.nbytes), strict=True))
    # Whoever raises the budget by what is told gets there.
    budget = there
    for _ in range(100):
        need = refusal(build, budget)
        if need is None:
            break
        assert need > budget
        budget = need
    assert need is None
    assert budget < there + 8 * x.d.nbytes
    assert step(build, budget)[1] <= budget


def test_gradients_that_will_come_are_told_of_beforehand(network):
    """Forward finds that the backward run of what is built so far has no room."""
    build, x = network
    if x.ndim == 4:
        return  # the parameters of convolutions are small beside their values
    parameters = sum(p.d.nbytes for p in nn.get_parameters().values())
    there = nn.memory_stats()["live"]
    for p in nn.get_parameters().values():
        p.grad = None
    budget = there + 3 * x.d.nbytes + parameters // 3
    refused = pytest.raises(nn.BudgetError, match="the backward run of")
    with nn.auto_forward(), nn.memory_budget(budget), refused:
        build()


def test_threads_keep_to_the_sum_of_their_budgets():
    """Each counts what was there and what it makes itself, not what the others make."""
    nn.clear_parameters()
    shape, n = (256, 256), 30
    leaves = [nn.Variable.from_numpy_array(np.full(shape, 0.1 * i, np.float32), need_grad=True) for i in range(3)]
    gc.collect()
    there = nn.memory_stats()["live"]
    size = leaves[0].d.nbytes
    errors = []

    def work(x):
        try:
            for _ in range(10):
                x.grad.zero()
                with nn.auto_forward(), nn.memory_budget(there + 8 * size + BATCH):
                    h = x
                    for _ in range(n):
                        h = F.tanh(F.affine(h, x))
                    loss = F.mean(h)
                    del h
                    loss.backward()
                    del loss
        except Exception as error:
            errors.append(error)

    nn.reset_peak_memory()
    threads = [threading.Thread(target=work, args=(x,)) for x in leaves]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert nn.memory_stats()["peak"] - there <= 3 * (8 * size + BATCH)
