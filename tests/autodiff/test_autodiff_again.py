"""Repeated differentiation of one static graph: cached plans change no result and hold no memory."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DOUBLE, chain, leaf
from test_random_graphs import QUICK, build, graphs, leaf_value, near

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff


def chain_loss(x, w, n=5):
    """Returns the sum of squares after `n` layers of tanh with the weight `w`."""
    h = chain(x, n, lambda h: F.tanh(h * w))
    return F.sum(h * h)


def fresh(xs, build=chain_loss):
    """Builds a graph on copies of the leaves `xs`, runs it, and returns the gradient of each leaf."""
    copies = [nn.Variable.from_numpy_array(x.d, need_grad=True) for x in xs]
    y = build(*copies)
    y.forward()
    return [g.d for g in autodiff.grad(y, copies)]


def test_other_values_and_other_gradients_to_start_from():
    """A cached plan is right for other values of leaves and other initial gradients."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * w * x
    for step in range(4):
        x.d, w.d = [step, 1], [1, -step]
        y.forward()
        gx, gw = autodiff.grad(y, [x, w], np.array([1, step]))
        assert gx.d.tolist() == [2 * step, -2 * step * step]
        assert gw.d.tolist() == [step * step, step]
        seed = np.array([2, 2], np.float32)
        y.forward()
        x.grad.zero()
        autodiff.backward(y, seed, inputs=x)
        assert x.g.tolist() == [4 * step, -4 * step]
        assert seed.tolist() == [2, 2]


def test_returned_gradients_stay_unchanged():
    """Gradients from `autodiff.grad` keep their values when the graph is differentiated again."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = chain_loss(x, w)
    found = []
    for value in (0.1, 0.2, 0.3):
        x.d = value
        y.forward()
        found.append((value, autodiff.grad(y, [x, w, y])))
    for value, (gx, gw, gy) in found:
        x.d = value
        np.testing.assert_array_equal([gx.d, gw.d], fresh([x, w]))
        assert gy.d == 1


def test_gradients_are_added_or_overwritten():
    """`backward` adds to existing gradients, and overwrites gradients that were zeroed or removed."""
    x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
    y = chain_loss(x, w)
    expected = fresh([x, w])
    for times in (1, 2, 3):
        y.forward()
        autodiff.backward(y)
        np.testing.assert_allclose([x.g, w.g], times * np.array(expected), rtol=1e-6)
    for how in (lambda: x.grad.zero(), lambda: setattr(x, "grad", None), lambda: setattr(x, "g", 0)):
        how()
        y.forward()
        autodiff.backward(y, inputs=[x])
        np.testing.assert_array_equal(x.g, expected[0])


def test_a_given_initial_gradient_is_not_changed():
    """`backward` does not write to the array of the initial gradient."""
    x = leaf(1, 2)
    y, given_ = x * 3, leaf(1, 10, need_grad=False)
    z = x * 1
    z.forward()
    for times in (1, 2):
        y.forward()
        autodiff.backward(y, given_)
        autodiff.backward(x, given_)
        assert given_.d.tolist() == [1, 10]
        assert x.g.tolist() == [4 * times, 40 * times]


def edits(x, w, h, y):
    """Yields edits of a graph that a cached plan must notice, each with its name."""
    yield "need_grad", lambda: setattr(w, "need_grad", False)
    yield "need_grad", lambda: setattr(w, "need_grad", True)
    yield "hook", lambda: h.register_hook(lambda g: g * 2)
    yield "hook on a leaf", lambda: x.register_hook(lambda g: g * 3)
    yield "other memory", lambda: setattr(x, "data", nn.NdArray.from_numpy_array(np.array([0.3, 0.1], np.float32)))
    yield "other gradient", lambda: setattr(x, "grad", nn.NdArray((2,)))
    yield "recompute", lambda: setattr(h, "recompute", True)
    yield "no recompute", lambda: setattr(h, "recompute", False)
    yield "persistent", lambda: setattr(h, "persistent", True)
    yield "retain", h.retain_grad
    yield "another use", lambda: F.sum(h * 5).forward()
    yield "rewire", lambda: h.rewire_on(x * w * 7)
    yield "shape", lambda: [(v.reset_shape((3,), True), setattr(v, "d", [0.1, 0.2, 0.3])) for v in (x, w)]


def test_changes_to_the_graph_are_seen():
    """After each edit of a static graph, `autodiff.grad` returns the gradients of the edited graph."""
    x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
    h = x * w
    y = F.sum(F.tanh(h) * x)
    for what, change in edits(x, w, h, y):
        change()
        y.forward()
        y.forward(clear_no_need_grad=True)
        twice = [autodiff.grad(y, [x, h], retain_graph=True) for _ in range(2)]
        with nn.auto_forward():
            (by_rules,) = autodiff.grad(y, x, create_graph=True, retain_graph=True)
        for gx, _ in twice:
            np.testing.assert_allclose(gx.d, by_rules.d, rtol=1e-5, err_msg=what)
        np.testing.assert_array_equal(twice[0][1].d, twice[1][1].d, err_msg=what)
        x.grad = w.grad = None
        autodiff.backward(y, retain_graph=True)
        np.testing.assert_allclose(x.g, by_rules.d, rtol=1e-5, err_msg=what)
        assert w.has_grad == w.need_grad, what


def test_runs_under_a_budget_between():
    """Gradients keep their bits if runs under a memory budget alternate with plain ones."""
    x, w = leaf(*np.linspace(0, 1, 500)), leaf(*np.linspace(1, 0, 500))
    y = chain_loss(x, w, 10)
    expected = fresh([x, w], lambda x, w: chain_loss(x, w, 10))
    for budget in (None, 40_000, None, 40_000):
        y.forward(memory_budget=budget)
        for _ in range(2):
            gx, gw = autodiff.grad(y, [x, w], retain_graph=True)
            np.testing.assert_array_equal([gx.d, gw.d], expected)


def test_second_passes_without_retain_are_refused():
    """A second `grad` without a new forward run fails, as does one after a changed leaf."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = chain_loss(x, w)
    for _ in range(3):
        y.forward()
        autodiff.grad(y, x)
        with pytest.raises(autodiff.GraphFreedError):
            autodiff.grad(y, x)
        y.forward()
        w.d = 0.5
        with pytest.raises(autodiff.ModifiedError):
            autodiff.grad(y, x)


def test_no_memory_is_held():
    """Repeated differentiation of one graph does not increase the live memory."""
    n = 100_000
    x = nn.Variable.from_numpy_array(np.full(n, 0.5, np.float32), need_grad=True)
    w = nn.Variable.from_numpy_array(np.full(n, 0.5, np.float32), need_grad=True)
    y = chain_loss(x, w, 20)
    y.forward()
    autodiff.backward(y, retain_graph=True)
    live = nn.memory_stats()["live"]
    for _ in range(3):
        autodiff.backward(y, retain_graph=True)
        autodiff.grad(y, [x, w], retain_graph=True)
    assert nn.memory_stats()["live"] - live < 10_000
    nn.reset_peak_memory()
    x.grad.zero(), w.grad.zero()
    autodiff.backward(y, retain_graph=True)
    # Allow for two gradients of intermediate values and the sum of `h * h`, but not for second gradients of leaves.
    assert nn.memory_stats()["peak"] - live < 3.5 * 4 * n
    kept = autodiff.grad(y, [x], retain_graph=True)
    assert nn.memory_stats()["live"] - live < 1.1 * 4 * n
    del kept, y
    gc.collect()
    assert nn.memory_stats()["live"] < 5 * 4 * n


@QUICK
@given(graphs(), st.lists(st.integers(0, 9), min_size=2, max_size=4), st.data())
def test_random_graphs(nodes, numbers, data):
    """Random leaves and seeds, the same or other variables, in any order."""
    with nn.context_scope(DOUBLE):
        variables, end = build(nodes), nodes[-1]
        if not variables[end].requires_grad:
            return
        leaves = [node for node in nodes if node.op is None]
        wanted = [node for node, takes_part in end.wanted().items() if takes_part]
        choices = [data.draw(st.lists(st.sampled_from(wanted), min_size=1, max_size=3)) for _ in range(2)]
        for number in numbers:
            for i, node in enumerate(leaves):
                node.value = leaf_value(10 * number + i)
                variables[node].d = node.value
                variables[node].grad = None
            variables[end].forward()
            seed = leaf_value(100 + number)
            expected = end.gradients(seed)
            for chosen in choices:
                inputs = [variables[node] for node in chosen]
                found = autodiff.grad(variables[end], inputs, seed, retain_graph=True, materialize_grads=True)
                for node, g in zip(chosen, found, strict=True):
                    near(g.d, expected.get(node, np.zeros((2, 3))))
            autodiff.backward(variables[end], seed, retain_graph=data.draw(st.booleans()))
            for node in leaves:
                near(variables[node].g, expected.get(node, 0 * node.value))
