"""Eager memory budgets together with users' functions, errors, threads, element types, `forget` and the report."""

import gc
import threading

from budgets import BATCH, BYTES, SLACK, chain_loss, refused, rest, step, ways, wide_leaf
from support import UnaryFunction, same

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff


class Double(UnaryFunction):
    """A user's function that doubles its input and counts its calls."""

    def __init__(self, calls, fail=False):
        """Makes a function that appends each call to `calls`, and fails backward if `fail`."""
        super().__init__()
        self.calls, self.fail = calls, fail

    def forward_impl(self, inputs, outputs):
        self.calls.append(1)
        outputs[0].d = inputs[0].d * 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if self.fail:
            raise KeyError("no")
        inputs[0].g = inputs[0].g * accum[0] + outputs[0].g * 2


def test_functions_of_users_run_once():
    """A user's function is not run again to restore values, because it may not be repeatable."""
    x = wide_leaf()
    calls = []

    def program(x):
        """A chain with two of the user's functions."""
        h = x
        for i in range(20):
            h = F.tanh(Double(calls)(h)) if i % 10 == 5 else F.tanh(h)
        return F.mean(h)

    plain, _ = step(program, [x], None)
    calls.clear()
    gradients, _ = step(program, [x], 12 * BYTES)
    same(plain, gradients)
    assert len(calls) == 2


@ways
def test_an_exception_in_the_middle_leaves_the_graph_usable(way):
    x = wide_leaf()
    others = rest(x)
    calls = []
    with nn.auto_forward(), nn.memory_budget(others + 13 * BYTES):
        culprit = Double(calls, fail=True)
        h = x
        for i in range(20):
            h = F.tanh(h)
            if i == 10:
                h = culprit(h)
        loss = F.mean(h)
        del h
        for run in (lambda: autodiff.grad(loss, x, retain_graph=True), loss.backward):
            assert "no" in refused(KeyError, run)
        culprit.fail = False
        x.g = 0
        gradients = way(loss, [x])

    def program(x):
        """A chain with a user's function whose backward raises."""
        h = x
        for i in range(20):
            h = F.tanh(h)
            if i == 10:
                h = Double(calls)(h)
        return F.mean(h)

    same(step(program, [x], None, way)[0], gradients)
    with nn.auto_forward(), nn.memory_budget(others + 10 * BYTES):
        assert refused(nn.Error, lambda: F.add2(x, nn.Variable((3, 5))))
        assert refused(ZeroDivisionError, lambda: chain_loss(x, 20, lambda h: F.tanh(h * (1 // 0))))
    step(program, [x], 10 * BYTES, way)


def test_threads_have_budgets_of_their_own():
    """Threads with different budgets each stay within their own."""
    plain, _ = step(lambda x: chain_loss(x, 40), [wide_leaf()], None)
    leaves = [wide_leaf() for _ in range(3)]
    for x in leaves:
        x.g[...] = 0
    others = rest()
    budgets = [5 * BYTES + BATCH, 9 * BYTES + BATCH, 19 * BYTES + BATCH]

    def work(x, budget):
        """Runs steps under a budget of its own."""
        for _ in range(10):
            with nn.auto_forward(), nn.memory_budget(others + budget):
                x.g = 0
                chain_loss(x, 40).backward()

    nn.reset_peak_memory()
    threads = [threading.Thread(target=work, args=both) for both in zip(leaves, budgets, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert nn.memory_stats()["peak"] - others <= sum(budgets)
    for x in leaves:
        same(plain, [x.g])


def test_another_thread_may_run_backward():
    """A graph built under a budget may run backward on another thread."""
    x = wide_leaf()
    others = rest(x)
    plain, _ = step(lambda x: chain_loss(x, 20), [x], None)
    x.g = 0
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        loss = chain_loss(x, 20)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    same(plain, [x.g])


def test_old_graphs_do_not_use_up_the_budget():
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 9 * BYTES):
        losses = []
        for _ in range(10):
            losses.append(chain_loss(x, 20))
            losses[-1].backward()
        for i in range(20):
            F.mean(F.tanh(wide_leaf(i)) * 2).backward()
    del losses
    gc.collect()


def test_values_of_half_the_size_and_other_types():
    """Budgets hold in half, double and bfloat16 precision, with the same gradients."""
    x = wide_leaf()
    for context in ("cpu:half", "cpu:double", "cpu:bfloat16"):
        with nn.context_scope(nn.Context([context])):
            plain, most = step(lambda x: chain_loss(x, 20), [x], None)
            gradients, peak = step(lambda x: chain_loss(x, 20), [x], int(0.6 * most))
        same(plain, gradients)
        assert peak <= 0.6 * most + SLACK


def test_persistent_values_stay():
    """Persistent values are not evicted."""
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 9 * BYTES):
        h = F.tanh(x)
        h.persistent = True
        loss = chain_loss(h, 20)
        del h
        loss.backward()
    first = []
    loss.visit(lambda f: first.append(f))
    assert not first[0].outputs[0].data.clear_called
    with nn.auto_forward(), nn.memory_budget(None):
        chain_loss(x, 3).backward()


def test_forget_under_a_budget():
    """`forget` works within a memory budget."""
    x = wide_leaf()

    def program(x):
        """A chain with a forgotten segment."""
        return chain_loss(F.forget(lambda h: F.tanh(F.sin(h)), chain_of(x, 10)), 10)

    def chain_of(x, n):
        """Applies `tanh` `n` times."""
        for _ in range(n):
            x = F.tanh(x)
        return x

    plain, _ = step(program, [x], None)
    gradients, _ = step(program, [x], 14 * BYTES)
    same(plain, gradients)


def test_a_report_lists_evicted_values():
    """`plan_report` of an eager graph lists which values are kept, evicted and dropped."""
    x = wide_leaf()
    others = rest(x)
    with nn.auto_forward(), nn.memory_budget(others + 8 * BYTES):
        loss = chain_loss(x, 30, lambda h: F.tanh(F.identity(h)))
    lines = nn.plan_report(loss).splitlines()
    fates = [line.split()[-2] for line in lines[1:62]]
    assert fates.count("kept") + fates.count("evicted") == 31
    assert 20 < fates.count("evicted") < 30
    assert fates.count("dropped") == 30
    assert "MiB now, under the budget of " in lines[-1]
