"""All ways to differentiate agree with a plain NumPy tape, with other runs, failures and recomputation in between."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plain_graph import OPS, near
from support import DOUBLE, UnaryFunction
from test_random_graphs import build, graphs, leaf_value

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff

QUICK = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=60
)
"""Settings of Hypothesis: the same examples in each run, without a time limit."""


def leaves_of(nodes):
    """Returns the leaves among the nodes."""
    return [node for node in nodes if node.op is None]


@QUICK
@given(graphs(), st.booleans(), st.booleans())
def test_backward_of_both_engines(nodes, at_once, recompute):
    """`Variable.backward` and `autodiff.backward` give the same bits: both run the same kernels in the same order."""
    with nn.context_scope(DOUBLE):
        flags = {"persistent": (), "recompute": range(25) if recompute else (), "need_grad": {}}
        variables, end = build(nodes, flags, at_once), nodes[-1]
        y = variables[end]
        if not y.requires_grad:
            return
        y.forward()
        seed = leaf_value(7)
        expected = end.gradients(seed)
        found = []
        for run in (
            lambda: y.backward(seed),
            lambda: autodiff.backward(y, seed, retain_graph=True),
            lambda: autodiff.backward([y, y], [seed * 0.5, seed * 0.5], retain_graph=True),
            lambda: autodiff.backward(y, seed, create_graph=True),
            lambda: autodiff.backward(y, seed),
        ):
            for node in leaves_of(nodes):
                variables[node].grad = None
            run()
            found.append([variables[node].g.copy() for node in leaves_of(nodes)])
            for node in leaves_of(nodes):
                near(variables[node].g, expected.get(node, 0 * node.value))
        for other in (found[1], found[2], found[4]):
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
        for node in leaves_of(nodes):
            variables[node].grad = None


@QUICK
@given(graphs(), st.booleans(), st.data())
def test_gradients_by_any_variables(nodes, at_once, data):
    """`autodiff.grad` by any variables of a random graph matches the NumPy tape, by kernels and as graphs."""
    with nn.context_scope(DOUBLE):
        variables, end = build(nodes, at_once=at_once), nodes[-1]
        y = variables[end]
        if not y.requires_grad:
            return
        y.forward()
        wanted = [node for node, takes_part in end.wanted().items() if takes_part]
        chosen = data.draw(st.lists(st.sampled_from(wanted), min_size=1, max_size=4))
        inputs, seed = [variables[node] for node in chosen], leaf_value(7)
        expected = end.gradients(seed)
        by_kernels = autodiff.grad(y, inputs, seed, retain_graph=True, materialize_grads=True)
        as_graphs = autodiff.grad(y, inputs, seed, create_graph=True, materialize_grads=True)
        static = nn.grad(y, inputs, [seed])
        nn.forward_all(static)
        for node, a, b, c in zip(chosen, by_kernels, as_graphs, static, strict=True):
            for g in (a, b, c):
                near(g.d, expected.get(node, np.zeros((2, 3))))
            np.testing.assert_array_equal(b.d, c.d)
        assert not any(v.has_grad for v in variables.values())


@QUICK
@given(graphs(), st.data())
def test_several_ends_and_chosen_leaves(nodes, data):
    """`autodiff.backward` from several roots to chosen leaves matches the sum of the tape's gradients."""
    with nn.context_scope(DOUBLE):
        variables = build(nodes)
        inner = [n for n in nodes if n.op is not None and variables[n].requires_grad]
        if not inner:
            return
        ends = data.draw(st.lists(st.sampled_from(inner), min_size=1, max_size=4))
        nn.forward_all([variables[n] for n in ends])
        expected = {}
        for i, end in enumerate(ends):
            for node, g in end.gradients(leaf_value(i)).items():
                expected[node] = expected.get(node, 0) + g
        chosen = [n for n in leaves_of(nodes) if n.need_grad is not False and data.draw(st.booleans())]
        chosen = [n for n in chosen if variables[n].requires_grad]
        seeds = [leaf_value(i) for i in range(len(ends))]
        autodiff.backward([variables[n] for n in ends], seeds, inputs=[variables[n] for n in chosen] or None)
        for node in leaves_of(nodes):
            takes_part = variables[node].requires_grad and (node in chosen or not chosen)
            near(variables[node].g, expected.get(node, 0 * node.value) if takes_part else 0 * node.value)


@QUICK
@given(graphs(), st.booleans())
def test_second_order(nodes, at_once):
    """Second derivatives match finite differences of the NumPy tape's first derivatives along a direction."""
    assume(all(node.op != "unlink" for node in nodes))
    with nn.context_scope(DOUBLE):
        variables, end = build(nodes, at_once=at_once), nodes[-1]
        y, leaves, seed = variables[end], [n for n in leaves_of(nodes) if n.need_grad], leaf_value(7)
        if not y.requires_grad:
            return
        y.forward()
        xs, ways = [variables[node] for node in leaves], [leaf_value(20 + i) for i in range(len(leaves))]
        options = {"create_graph": True, "materialize_grads": True}
        found = autodiff.grad(y, xs, seed, **options)
        with nn.auto_forward():
            along = F.add_n(*(F.sum(g * nn.Variable.from_numpy_array(d)) for g, d in zip(found, ways, strict=True)))
        second = autodiff.grad(along, xs, **options)
        step, sides = 1e-5, []
        for sign in (1, -1):
            for node, x, d in zip(leaves, xs, ways, strict=True):
                node.value = x.d + sign * step * d
            sides.append(end.gradients(seed))
        for node, g in zip(leaves, second, strict=True):
            above, below = (side.get(node, np.zeros((2, 3))) for side in sides)
            np.testing.assert_allclose(g.d, (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


@QUICK
@given(graphs(), st.sets(st.integers(0, 25)), st.sets(st.integers(0, 25)), st.booleans())
def test_forgetting_and_recomputing(nodes, forgetting, marked, at_once):
    """Recomputation gives the same gradients as kept values, by kernels and by graph rules.

    One function or several are forgotten at a time. Sums may differ in order, so results agree up to rounding.
    """
    with nn.context_scope(DOUBLE):
        made, end, seed = {}, nodes[-1], leaf_value(7)
        for i, node in enumerate(nodes):
            if node.op is None:
                made[node] = nn.Variable.from_numpy_array(node.value, need_grad=node.need_grad)
                continue
            func, inputs = OPS[node.op].build, [made[x] for x in node.inputs]
            with nn.auto_forward(at_once), nn.recompute(i in marked):
                made[node] = F.forget(func, *inputs) if i in forgetting else func(*inputs)
        if not made[end].requires_grad:
            return
        if not at_once:
            made[end].forward()
        expected, leaves = end.gradients(seed), leaves_of(nodes)
        for options in ({"retain_graph": True}, {"create_graph": True}, {"retain_graph": True}):
            for node in leaves:
                made[node].grad = None
            autodiff.backward(made[end], seed, **options)
            for node in leaves:
                near(made[node].g, expected.get(node, 0 * node.value))
        wanted = [node for node in leaves if node.need_grad]
        for options in ({"create_graph": True}, {}):
            found = autodiff.grad(made[end], [made[n] for n in wanted], seed, materialize_grads=True, **options)
            for node, g in zip(wanted, found, strict=True):
                near(g.d, expected.get(node, 0 * node.value))


class Square(UnaryFunction):
    """Squares its input. `backward_impl` raises if `fails` is set, and otherwise runs an eager graph of its own."""

    reads_input = True

    def __init__(self):
        super().__init__()
        self.fails = False

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].d = inputs[0].d ** 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if self.fails:
            raise ZeroDivisionError
        with nn.auto_forward():
            x = nn.Variable.from_numpy_array(inputs[0].d, need_grad=True)
            (g,) = autodiff.grad(x * x, x, outputs[0].g)
        inputs[0].g = g.d + (inputs[0].g if accum[0] else 0)


@pytest.mark.parametrize("at_once", [False, True])
def test_functions_written_in_python(at_once):
    """Functions of users are differentiated. If one raises, gradients stay as they were."""
    with nn.auto_forward(at_once):
        x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
        square = Square()
        y = F.sum(square(x) * 3 + square(x * 2))
        y.forward()
        autodiff.backward(y, retain_graph=True)
        assert x.g.tolist() == [14, 28]
        square.fails = True
        with pytest.raises(ZeroDivisionError):
            autodiff.backward(y, retain_graph=True)
        assert x.g.tolist() == [14, 28]
        square.fails = False
        autodiff.backward(y, retain_graph=True)
        assert x.g.tolist() == [28, 56]
        with pytest.raises(NotImplementedError, match="gradient_impl"):
            autodiff.grad(y, x, create_graph=True)
        (g,) = autodiff.grad(y, x)
        assert g.d.tolist() == [14, 28]
        y.forward()
        (g,) = autodiff.grad(y, x)
        assert g.d.tolist() == [14, 28]


def test_no_arrays_are_left_behind():
    """Differentiation of eager graphs, with and without `create_graph`, leaves no live variables."""
    gc.collect()
    x = nn.Variable.from_numpy_array(np.ones(1000, np.float32), need_grad=True)
    before = _core.live_variables()
    for create_graph in (False, True):
        with nn.auto_forward():
            for _ in range(5):
                y = F.sum(F.tanh(x) * F.exp(x))
                autodiff.grad(y, x, create_graph=create_graph, retain_graph=True)
                autodiff.backward(y, create_graph=create_graph)
                del y
                x.grad = None
    assert _core.live_variables() == before


def test_a_long_chain_needs_little_memory_for_gradients():
    n, size = 50, 100_000
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.ones(size, np.float32), need_grad=True)
        y = x
        for _ in range(n):
            y = F.tanh(y)
        loss = F.sum(y)
        live = nn.memory_stats()["live"]
        autodiff.backward(loss, retain_graph=True)
        # Only the gradient of the leaf is new.
        assert nn.memory_stats()["live"] - live < 2.5 * 4 * size
        autodiff.backward(loss)
        assert nn.memory_stats()["live"] < live - 0.9 * n * 4 * size


def test_two_threads_differentiate_two_graphs():
    """Threads that differentiate their own graphs at the same time get right gradients."""
    errors = []

    def work(seed):
        """Differentiates graphs of this thread many times, and records errors."""
        try:
            values = np.random.RandomState(seed).uniform(-1, 1, (20, 20)).astype(np.float32)
            with nn.auto_forward():
                for _ in range(30):
                    x = nn.Variable.from_numpy_array(values, need_grad=True)
                    (g,) = autodiff.grad(F.sum(F.sin(x) * x), x, create_graph=True)
                    autodiff.backward(F.sum(g))
                    expected = 2 * np.cos(values) - values * np.sin(values)
                    np.testing.assert_allclose(x.g, expected, rtol=1e-4, atol=1e-4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_two_threads_on_one_graph_get_right_gradients_or_errors():
    x = nn.Variable.from_numpy_array(np.ones((300, 300), np.float32), need_grad=True)
    y = F.sum(F.tanh(F.tanh(x) * 2))
    y.forward()
    (expected,) = autodiff.grad(y, x, retain_graph=True)
    wrong, refused = [], []

    def work():
        """Differentiates the shared graph. Each call must give the right gradient or be refused."""
        for _ in range(20):
            try:
                (g,) = autodiff.grad(y, x, retain_graph=True)
                if not np.array_equal(g.d, expected.d):
                    wrong.append(g)
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all("at rest" in text for text in refused)


def test_second_order_through_an_unheld_output():
    """Second derivatives are right if other outputs of the function were dropped."""
    with nn.context_scope(DOUBLE), nn.auto_forward():
        values = np.random.RandomState(1).uniform(-1, 1, (4, 3))

        def normalized(x):
            """Batch normalization whose other outputs are dropped."""
            beta, gamma, mean, variance = (nn.Variable.from_numpy_array(np.full((1, 3), v)) for v in (0.0, 1, 0, 1))
            return F.batch_normalization(x, beta, gamma, mean, variance)

        assert autodiff.gradgradcheck(lambda x: normalized(x) ** 2, values, atol=1e-4)
        assert autodiff.gradgradcheck(lambda x: F.split(F.exp(x), axis=1)[1] * F.split(x, axis=1)[0], values)


def test_gradients_use_the_context_of_each_function():
    with nn.context_scope(DOUBLE):
        x = nn.Variable.from_numpy_array(np.array(1 / 3), need_grad=True)
        y = F.exp(x * x)
        y.forward()
    (g,) = autodiff.grad(y, x, create_graph=True)
    assert g.d.dtype == np.float64
    assert g.item() == pytest.approx(2 / 3 * np.exp(1 / 9), rel=1e-15)
    autodiff.backward(y)
    assert x.g.dtype == np.float64


def test_half_precision():
    """Gradients of a graph in half precision are stored and added in half precision."""
    with nn.context_scope(nn.Context(["cpu:half"])), nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float16), need_grad=True)
        y = F.sum(x * x * 0.5)
        autodiff.backward(y, retain_graph=True)
        autodiff.backward(y)
    assert x.g.dtype == np.float16 and x.g.tolist() == [2, 4]


def test_need_grad_of_results_follows_inputs_in_forward():
    """Differentiation starts at the result, so the result must know that an input needs a gradient."""
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=False)
    y = F.sum(F.sin(x))
    y.forward()
    x.need_grad = True
    y.forward()
    assert y.need_grad
    autodiff.backward(y)
    np.testing.assert_allclose(x.g, np.cos(x.d), rtol=1e-6)
    x.need_grad = False
    y.forward()
    assert not y.need_grad


def test_a_variable_that_replaces_a_result_inherits_need_grad():
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
    a = nn.Variable((2, 3), need_grad=False)
    a.rewire_on(F.sin(x))
    y = F.sum(a)
    y.forward()
    assert a.need_grad and y.need_grad
    (g,) = autodiff.grad(y, [x])
    np.testing.assert_allclose(g.d, np.cos(x.d), rtol=1e-6)
