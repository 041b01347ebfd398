"""Hooks on gradients in `Variable.backward`, which writes `.g` of every variable on its way."""

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F

pytestmark = pytest.mark.usefixtures("mode")


def test_hooks_see_the_sum_once_in_every_run():
    x = leaf(1, 2)
    h = x * x
    seen = []
    h.register_hook(lambda g: seen.append(g.d.tolist()))
    x.register_hook(lambda g: seen.append(g.d.tolist()))
    y = run(F.sum(h * 2 + h * 3))
    for _ in range(2):
        y.backward()
    assert seen == [[5, 5], [10, 20]] * 2
    assert x.g.tolist() == [20, 40]


def test_a_returned_gradient_replaces_the_gradient():
    """The value that a hook returns replaces the gradient for later hooks and functions."""
    x = leaf(1, 2)
    h = x * x
    h.register_hook(lambda g: g + 1)
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g - 5)
    y = run(F.sum(h))
    for times in (1, 2, 3):
        y.backward()
        assert h.g.tolist() == [20, 20]
        assert x.g.tolist() == [35 * times, 75 * times]


def test_they_are_registered_and_removed_between_runs():
    """Hooks that are registered or removed between runs take effect in the next run."""
    x, w = leaf(1, 2), leaf(3, 4)
    h = x * w
    y = run(F.sum(h))
    y.backward()
    on_h, on_x = h.register_hook(lambda g: g * 10), x.register_hook(lambda g: g * 10)
    y.backward()
    on_h.remove()
    y.backward()
    on_x.remove()
    y.backward()
    assert x.g.tolist() == [3 * 112, 4 * 112]
    assert w.g.tolist() == [13, 26]


def test_a_hook_on_the_root_keeps_the_callers_gradient():
    x = leaf(1, 2)
    y = x * 3
    y.register_hook(lambda g: g * 2)
    run(y)
    given = nn.NdArray.from_numpy_array(np.array([1, 10], np.float32))
    y.g = 7
    y.backward(given)
    assert (given.data.tolist(), x.g.tolist(), y.g.tolist()) == ([1, 10], [6, 60], [7, 7])
    y.backward()
    assert x.g.tolist() == [12, 66]
    y.backward(None)
    assert (x.g.tolist(), y.g.tolist()) == ([54, 108], [7, 7])


def test_a_view_of_the_gradient_sees_later_sums():
    x = leaf(1, 2)
    x.g = 1
    view = x.g
    x.register_hook(lambda g: -g)
    run(F.sum(x * 2)).backward()
    assert view.tolist() == [-1, -1]


def test_hooks_skip_outputs_without_contributions():
    """A hook on an output that the root does not depend on is not called."""
    x, seen = leaf(1, 2), []
    first, second = F.split(x * 3, axis=0)
    for v in (first, second):
        v.register_hook(lambda g: seen.append(g.d.tolist()))
    run(F.sum(second * 5)).backward()
    assert seen == [5]
    assert x.g.tolist() == [0, 15]


def test_runs_that_clear():
    """Hooks are called in backward runs that clear values."""
    x = leaf(1, 2)
    h = x * x
    h.register_hook(lambda g: g * 2)
    y = run(F.sum(F.exp(h) * 1))
    y.backward(clear_buffer=True)
    np.testing.assert_allclose(x.g, 4 * np.array([1, 2]) * np.exp([1, 4]), rtol=1e-6)


def test_retained_gradients_are_not_cleared():
    """A clearing backward run keeps gradients marked by `retain_grad`."""
    x = leaf(1, 2)
    h, k = x * x, x * 2
    h.retain_grad()
    run(F.sum(h * 3 + k)).backward(clear_buffer=True)
    assert h.g.tolist() == [3, 3]
    with pytest.raises(nn.ClearedError):
        k.g  # noqa: B018


def test_hooks_after_accumulation():
    """A hook on accumulation is called with the leaf once in each run, after other hooks."""
    x, w = leaf(1, 2), leaf(3, 4)
    seen = []
    x.register_post_accumulate_grad_hook(lambda v: seen.append((v == x, v.g.tolist())))
    x.register_hook(lambda g: g * 2)
    y = run(F.sum(x * w * x))
    y.backward()
    y.backward()
    assert seen == [(True, [12, 32]), (True, [24, 64])]
    assert w.g.tolist() == [2, 8]


def test_a_solver_may_step_in_a_hook():
    x = leaf(1, 2)
    solver = nn.solvers.Sgd(lr=0.5)
    solver.set_parameters({"x": x})

    def step(_):
        """A hook that updates the parameters."""
        solver.update()
        solver.zero_grad()

    x.register_post_accumulate_grad_hook(step)
    run(F.sum(x * x)).backward()
    assert x.d.tolist() == [0, 0] and not x.has_grad


@pytest.mark.parametrize(
    ("hook", "error", "words"),
    [
        (lambda g: 3, TypeError, "None or a Variable"),
        (lambda g: F.sum(g), RuntimeError, r"shape \(2,\)"),
        (lambda g: 1 / 0, ZeroDivisionError, "division"),
    ],
)
@pytest.mark.parametrize("on_leaf", [False, True])
def test_hooks_that_fail(hook, error, words, on_leaf):
    """An exception in a hook ends the run. No gradient changes, and the next run is right."""
    x = leaf(1, 2)
    h = x * x
    handle = (x if on_leaf else h).register_hook(hook)
    y = run(F.sum(h))
    x.g = 1
    with pytest.raises(error, match=words):
        y.backward()
    assert x.g.tolist() == [1, 1]
    handle.remove()
    y.backward()
    assert x.g.tolist() == [3, 5]


def test_another_graph_may_run_in_a_hook(mode):
    x, w = leaf(1, 2), leaf(3, 4)
    h = x * x
    y, z = run(F.sum(h * 3)), run(F.sum(w * w))
    h.register_hook(lambda g: z.backward())
    y.backward()
    assert (x.g.tolist(), w.g.tolist()) == ([6, 12], [6, 8])
    h.register_hook(lambda g: y.backward())
    with pytest.raises(RuntimeError, match="at rest"):
        y.backward()


def test_a_result_under_no_gradient_is_overwritten():
    """Backward overwrites the gradient of a result without `need_grad`, as in NNabla."""
    c = leaf(2, need_grad=False)
    k = c * 2
    k.need_grad = True
    k.register_hook(lambda g: g * 10)
    y = run(k * k)
    y.backward()
    y.backward()
    assert k.g.tolist() == [80]


def test_hooks_under_a_memory_budget(mode):
    """Hooks may replace gradients under a memory budget."""
    if mode == "dynamic":
        return
    x = leaf(*np.linspace(-1, 1, 1000))
    h = x
    for _ in range(8):
        h = F.tanh(h)
    y = F.sum(h)
    y.forward()
    y.backward()
    expected = x.g * 2
    h.register_hook(lambda g: g * 2)
    x.grad.zero()
    y.forward(memory_budget=40_000)
    y.backward()
    np.testing.assert_array_equal(x.g, expected)
