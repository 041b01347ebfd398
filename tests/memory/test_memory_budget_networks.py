"""Measured memory stays within the budget, for networks whose parameter gradients are allocated during the run."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from support import same

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

DEPTH = 50
"""Number of layers."""
BATCH = 65536
"""Bytes that a thread may allocate or free before other threads see it."""
SHAPES = {"affine": (512, 64), "convolution": (4, 8, 24, 24)}
"""Shape of the input for each kind of layer."""
WAYS = {"affine": lambda h: PF.affine(h, 64), "convolution": lambda h: PF.convolution(h, 8, (3, 3), pad=(1, 1))}
"""The layer of each kind. A network has `DEPTH` of them."""


@pytest.fixture(params=["affine", "convolution"])
def network(request):
    """Returns a function that builds a chain of layers. Its parameters exist already."""
    kind = request.param
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(*SHAPES[kind]).astype(np.float32))

    def build():
        """Builds the chain and its loss."""
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
    """Runs an eager step under a budget.

    Drops the gradients before it if `fresh`. Returns gradients and peak memory.
    """
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


def refusal(build, budget):
    """Returns the bytes that the error of a step under a too small budget reports, or None if it runs."""
    try:
        step(build, budget)
    except nn.BudgetError as error:
        return error.least
    finally:
        gc.collect()
    return None


@pytest.mark.parametrize("fresh", [True, False])
def test_measured_memory_is_within_the_budget(network, fresh):
    """Eager steps of deep networks stay within budgets, with unchanged gradients."""
    build, _ = network
    plain, most = step(build, None)
    there = nn.memory_stats()["live"]
    for part in (1.0, 0.7, 0.5, 0.33, 0.25):
        budget = int(there + part * (most - there))
        gradients, peak = step(build, budget, fresh)
        assert peak <= budget
        same(plain, gradients)


def test_the_error_reports_the_need(network):
    """The error for a small budget states a need that suffices when it is raised to it."""
    build, x = network
    step(build, None)
    there = nn.memory_stats()["live"]
    needs = [refusal(build, budget) for budget in (0, there // 2, there, there + x.d.nbytes)]
    assert all(need is not None for need in needs)
    assert all(need > budget for need, budget in zip(needs, (0, there // 2, there, there + x.d.nbytes), strict=True))
    # Raising the budget to the reported need must succeed in the end.
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


def test_the_need_includes_later_gradients(network, request):
    """Forward fails early if the backward run of the graph so far would not fit.

    In a process of its own, because leftovers of other tests may be evicted between two measurements.
    """
    if "KINNOR_TEST_ALONE" not in os.environ:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            request.node.nodeid,
        ]
        alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"KINNOR_TEST_ALONE": "1"}
        done = subprocess.run(
            command, cwd=request.config.rootpath, env=alone, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]
        return
    build, x = network
    if x.ndim == 4:
        return  # the parameters of convolutions are small compared with their values
    parameters = sum(p.d.nbytes for p in nn.get_parameters().values())
    gc.collect()  # so that leftovers of other tests are not freed during the measurement
    there = nn.memory_stats()["live"]
    for p in nn.get_parameters().values():
        p.grad = None
    budget = there + 3 * x.d.nbytes + parameters // 3
    refused = pytest.raises(nn.BudgetError, match="the backward run of")
    with nn.auto_forward(), nn.memory_budget(budget), refused:
        build()


def test_threads_keep_to_the_sum_of_their_budgets():
    """Each thread counts the memory that existed before and its own, but no memory of other threads."""
    nn.clear_parameters()
    shape, n = (256, 256), 30
    leaves = [nn.Variable.from_numpy_array(np.full(shape, 0.1 * i, np.float32), need_grad=True) for i in range(3)]
    gc.collect()
    there = nn.memory_stats()["live"]
    size = leaves[0].d.nbytes
    errors = []

    def work(x):
        """Trains under a budget of its own."""
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
