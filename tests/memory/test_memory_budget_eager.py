"""Memory budgets in eager mode: programs stay within them, and gradients keep the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from budgets import (
    BYTES,
    SHAPE,
    SLACK,
    WAYS,
    by_autodiff,
    by_grad,
    chain_loss,
    least,
    refused,
    rest,
    retained,
    step,
    ways,
    wide_leaf,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import same

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import _core, autodiff


@ways
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_a_chain_stays_within_its_budget(n, way):
    """An eager chain stays within any sufficient budget, with unchanged gradients."""
    x = wide_leaf()
    plain, _ = step(lambda x: chain_loss(x, n), [x], None, way)
    for values in (5, 6, 8, 12, 25, 60):
        gradients, peak = step(lambda x: chain_loss(x, n), [x], values * BYTES, way)
        same(plain, gradients)
        assert peak <= values * BYTES + SLACK


def test_a_chain_is_computed_about_twice_with_twice_the_root_of_its_length():
    x, n = wide_leaf(), 100
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + (2 * 10 + 5) * BYTES):
        loss = chain_loss(x, n)
        _core.record_clear_flags(True)
        loss.backward()
    # There is one record for each function in backward, and one for each recomputed function.
    again = len(_core.recorded_clear_flags()) - (n + 1)
    _core.record_clear_flags(False)
    assert again <= n


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_program_stays_within_its_budget(data):
    """Branches, skips, random numbers, several outputs and views. Some variables are held to the end."""
    n = data.draw(st.integers(3, 30))
    picks = [
        (data.draw(st.integers(0, 10)), data.draw(st.integers(0, 4)), data.draw(st.integers(0, 8))) for _ in range(n)
    ]
    held = data.draw(st.sets(st.integers(0, n), max_size=2))
    way = data.draw(st.sampled_from(WAYS))
    part = data.draw(st.floats(0, 1))
    leaves = [wide_leaf(1), wide_leaf(2)]
    kept = []

    def program(x, y):
        """Builds the random graph."""
        base = x * y
        nodes = [x, y]
        for i, (pick, near, far) in enumerate(picks):
            a, b = nodes[-1 - min(near, len(nodes) - 1)], nodes[-1 - min(far, len(nodes) - 1)]
            nodes.append(apply(pick, a, b))
            # Drop old values, as at the end of a user's function.
            del nodes[: max(0, len(nodes) - 9)]
            if i in held:
                kept.append(nodes[-1])
            del a, b
        return F.mean(nodes[-1] * base + nodes[len(nodes) // 2])

    def run(budget):
        """Runs a step of the program under a budget. Returns its gradients and its peak bytes."""
        kept.clear()
        return step(program, leaves, budget, way)

    plain, most = run(None)
    values = [v.d.copy() for v in kept]
    low = least(run, most)
    for budget in (low, int(low + part * (most - low))):
        gradients, peak = run(budget)
        same(plain, gradients)
        assert peak <= budget + SLACK
        same(values, [v.d for v in kept])


def apply(pick, a, b):
    """Applies the function number `pick` to `a`, or to `a` and `b`."""
    if pick < 3:
        return [F.tanh, F.sin, F.identity][pick](a)
    if pick < 5:
        return [F.add2, F.mul2][pick - 3](a, b)
    if pick == 5:
        return F.dropout(a, 0.3)
    if pick == 6:
        return F.reshape(F.relu(F.reshape(a, (1024, 64))), SHAPE)
    if pick == 7:
        return F.stack(*reversed(F.split(F.reshape(a, (4, 16, 1024))))).reshape(SHAPE)
    if pick == 8:
        return F.add2(a, a)
    if pick == 9:
        return F.relu(a * b, inplace=True)
    return F.reshape(F.sum(F.reshape(a, (4, 16, 1024)), 0, keepdims=True) * F.reshape(b, (4, 16, 1024)), SHAPE)


def test_a_budget_that_is_too_small_is_refused_and_the_graph_stays_usable():
    """In a process of its own, because leftovers of other tests may be evicted between two measurements."""
    program = f"import {Path(__file__).stem} as test; test.refuse_too_small_budgets()"
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def refuse_too_small_budgets():
    """Asserts that too small budgets are refused, and that a sufficient one then gives the same bits."""
    x = wide_leaf()
    others = rest(x)
    plain, _ = step(lambda x: chain_loss(x, 20), [x], None)
    x.grad = None
    with nn.auto_forward(), nn.memory_budget(others + 3 * BYTES):
        with pytest.raises(MemoryError) as caught:
            chain_loss(x, 20)
        assert abs(caught.value.least - others - 4 * BYTES) < SLACK
        assert isinstance(caught.value, nn.Error)
        del caught
        assert "which the backward run of tanh takes" in refused(nn.BudgetError, lambda: chain_loss(x, 20))
    same(plain, step(lambda x: chain_loss(x, 20), [x], 4 * BYTES)[0])
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        loss = chain_loss(x, 20)
    for run in (loss.backward, lambda: autodiff.grad(loss, x, retain_graph=True)):
        with nn.memory_budget(others + 3 * BYTES):
            assert "expected at least" in refused(nn.BudgetError, run)
    x.g = 0
    with nn.memory_budget(others + 8 * BYTES):
        loss.backward()
    same(plain, [x.g])


def test_one_function_may_be_too_large():
    """A function whose inputs and outputs alone pass the budget is refused by name."""
    others = rest()
    with nn.auto_forward(), nn.memory_budget(others + BYTES):
        x = nn.Variable.from_numpy_array(np.ones((64, 512), np.float32))
        assert "which sin takes" in refused(nn.BudgetError, lambda: F.sin(F.broadcast(x, (64, 512))))
        assert (F.tanh(x).d == F.tanh(x.data).data).all()


def test_held_values_stay():
    """Values that the program holds, as variables, views or arrays, are not dropped."""
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        first = F.tanh(x)
        view = F.sin(first).d
        array = F.cos(first).data
        loss = chain_loss(first, 30)
        assert not first.data.clear_called
        assert not array.clear_called
        loss.backward()
    assert (first.d == F.tanh(x.data).data).all()
    assert (view == F.sin(first.data).data).all()
    assert (array.data == F.cos(first.data).data).all()
    held = []
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES), pytest.raises(nn.BudgetError):
        h = x
        for _ in range(10):
            h = F.tanh(h)
            held.append(h)
    for h in held:
        h.d  # noqa: B018


def values_of(loss):
    """Returns the variables of a chain, in order."""
    functions = []
    loss.visit(functions.append)
    return [f.outputs[0] for f in functions[:-1]]


def test_evicted_values_are_recomputed_when_read():
    """Reading an evicted value restores it."""
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        loss = chain_loss(x, 30)
    functions = []
    loss.visit(functions.append)
    expected = nn.NdArray.from_numpy_array(x.d)
    before = nn.memory_stats()["live"]
    nn.reset_peak_memory()
    for i, f in enumerate(functions[:-1]):
        expected = F.tanh(expected)
        if i % 3 == 0:
            assert (f.outputs[0].d == expected.data).all()
        elif i % 3 == 1:
            assert (f.outputs[0].data.data == expected.data).all()
        else:
            with nn.auto_forward(), nn.no_grad():
                assert (F.identity(f.outputs[0]).d == expected.data).all()
    assert nn.memory_stats()["peak"] - before <= 6 * BYTES + SLACK
    assert "computing again tanh" in refused(nn.BudgetError, lambda: [v.d for v in values_of(loss)])
    with nn.memory_budget(others + 40 * BYTES):
        [v.d for v in values_of(loss)]


def test_a_recomputation_that_would_differ_is_refused():
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        loss = chain_loss(x, 30)
    x.d = 0.5
    assert "changed since" in refused(autodiff.ModifiedError, lambda: [v.d for v in values_of(loss)])
    assert "changed since" in refused(autodiff.ModifiedError, lambda: autodiff.backward(loss))


def test_a_network_learns_the_same():
    """Batch statistics and dropout are repeated exactly, and running statistics are updated once."""

    def network(x):
        """Returns the loss of a residual network."""
        h = x
        for i in range(8):
            with nn.parameter_scope(f"block{i}"):
                a = F.relu(PF.batch_normalization(PF.convolution(h, 8, (3, 3), pad=(1, 1), with_bias=False)))
                h = h + F.dropout(a, 0.2)
        return F.mean(F.softmax_cross_entropy(PF.affine(h, 10), nn.Variable((4, 1))))

    def train(budget, way):
        """Trains some steps. Returns loss, gradient and parameters, and the peak of memory."""
        nn.seed(3)
        x = wide_leaf(3, (4, 8, 32, 32))
        with nn.parameter_scope("", {}), nn.auto_forward():
            with nn.no_grad():
                network(x)  # create the parameters first, since creating them evicts nothing
            peaks = []
            for _ in range(3):
                leaves = [x, *nn.get_parameters().values()]
                before = nn.memory_stats()["live"]
                nn.reset_peak_memory()
                for p in leaves:
                    p.grad.zero()
                with nn.memory_budget(budget):
                    loss = network(x)
                    if way == "backward":
                        loss.backward()
                    else:
                        autodiff.backward(loss)
                peaks.append(nn.memory_stats()["peak"] - before)
                for p in nn.get_parameters().values():
                    p.d = p.d - 0.01 * p.g
            parameters = nn.get_parameters(grad_only=False).values()
            return [loss.d.copy(), x.g.copy(), *(p.d.copy() for p in parameters)], max(peaks)

    plain, most = train(None, "backward")
    for part in (0.75, 0.5, 0.4):
        for way in ("backward", "autodiff"):
            budget = int(part * most)
            learnt, peak = train(budget, way)
            same(plain, learnt)
            assert peak <= budget + 8 * SLACK


@ways
def test_several_losses_over_one_trunk(way):
    """Losses over shared functions are differentiated in any order under a budget."""
    x = wide_leaf()

    def both(x):
        """Returns two losses over one trunk."""
        trunk = x
        for _ in range(12):
            trunk = F.tanh(trunk)
        return F.mean(trunk * trunk), F.mean(F.sin(trunk))

    def one_by_one(losses, leaves):
        """Differentiates one loss after the other, and returns the gradients of both."""
        return [*way(losses[0], leaves), *way(losses[1], leaves)]

    def through_both(loss, leaves):
        """Differentiates both losses on one graph, and returns the sums of their gradients."""
        if way in (by_autodiff, by_grad, retained):
            autodiff.backward(loss[0], retain_graph=True)
            autodiff.backward(loss[1])
            return [x.g.copy() for x in leaves]
        return one_by_one(loss, leaves)

    plain, _ = step(both, [x], None, through_both)
    gradients, peak = step(both, [x], 9 * BYTES, through_both)
    same(plain, gradients)
    assert peak <= 9 * BYTES + SLACK


def test_gradients_of_gradients():
    """Under a budget of 70 percent of the peak, gradients of gradients are the same."""
    x = wide_leaf()

    def penalty(x):
        """A gradient penalty."""
        (g,) = autodiff.grad(chain_loss(x, 6), x, create_graph=True)
        return F.sum(g * g)

    plain, most = step(penalty, [x], None)
    gradients, peak = step(penalty, [x], int(0.7 * most))
    same(plain, gradients)
    assert peak <= 0.7 * most + SLACK


def test_a_second_backward_run_gives_the_same():
    x = wide_leaf()

    def twice(loss, leaves):
        """Runs backward twice."""
        loss.backward()
        loss.backward()
        return [x.g.copy() for x in leaves]

    plain, _ = step(lambda x: chain_loss(x, 20), [x], None, twice)
    gradients, peak = step(lambda x: chain_loss(x, 20), [x], 8 * BYTES, twice)
    same(plain, gradients)
    assert peak <= 8 * BYTES + SLACK
