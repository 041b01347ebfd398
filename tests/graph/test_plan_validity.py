"""Lifetime of cached plans: changes of a graph invalidate the plans that visited it, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff

if TYPE_CHECKING:
    from collections.abc import Callable


def ramp(n: int = 16, *, need_grad: bool = True) -> nn.Variable:
    """Returns a variable of `n` values from -1 to 1, with gradients unless `need_grad` is false."""
    return nn.Variable.from_numpy_array(np.linspace(-1, 1, n).astype(np.float32), need_grad=need_grad)


class Net:
    """A static graph with a branch, its leaves and its results."""

    def __init__(self) -> None:
        """Builds the graph, which has not run."""
        self.x, self.w = ramp(need_grad=False), ramp()
        self.h = F.tanh(self.x * self.w)
        self.y = F.exp(self.h)
        self.loss = F.sum(self.y + self.h)

    def step(self) -> None:
        """Runs forward and `Variable.backward`."""
        self.loss.forward(clear_no_need_grad=True)
        self.w.grad.zero()
        self.loss.backward(clear_buffer=True)

    def differentiate(self) -> None:
        """Runs forward and `autodiff.backward`."""
        self.loss.forward(clear_no_need_grad=True)
        self.w.grad.zero()
        autodiff.backward(self.loss)


def made(run: Callable[[], object]) -> int:
    """Calls `run`. Returns how many plans the engine made during it."""
    before = _core.plans_made()
    run()
    return _core.plans_made() - before


def eager(*, backward: Callable[[nn.Variable], Any] = nn.Variable.backward) -> None:
    """Builds, runs and differentiates an eager graph."""
    with nn.auto_forward():
        y = F.sum(F.tanh(ramp()) * 2)
        backward(y)


def elsewhere() -> None:
    """Does everything that can happen to another static graph, which must not outdate a plan of this one."""
    other = Net()
    other.step()
    other.w.need_grad = False
    other.x.need_grad = True
    other.step()
    other.y.persistent = True
    other.step()
    other.x.reset_shape((4,), force=True)
    other.w.reset_shape((4,), force=True)
    other.x.d, other.w.d = 1, 2
    other.step()
    other.w.need_grad = True
    other.w.register_hook(lambda g: None)
    other.y.retain_grad()
    other.differentiate()
    other.h.rewire_on(F.identity(other.w))
    other.step()
    other.y.clear_all_graph_links()


def under_a_budget() -> None:
    """Runs another graph under a memory budget, which must not outdate a plan of this one."""
    other = Net()
    with nn.memory_budget(1 << 20):
        nn.forward_all([other.loss, other.y])
        other.loss.backward()


OTHERS = {
    "eager backward": eager,
    "eager autodiff.backward": lambda: eager(backward=autodiff.backward),
    "another static graph": elsewhere,
    "a static graph that is built anew": lambda: Net().step(),
    "a budget": under_a_budget,
}
"""Uses of another graph. None of them may invalidate the plans of this one."""


@pytest.mark.parametrize("step", [Net.step, Net.differentiate])
@pytest.mark.parametrize("other", OTHERS)
def test_uses_of_other_graphs_keep_plans(step: Callable[[Net], None], other: str) -> None:
    """Cached plans stay valid when other graphs are built or run on the same leaves."""
    net = Net()
    copy = net.y.get_unlinked_variable()
    assert made(lambda: step(net)) == 2
    del copy
    for _ in range(3):
        OTHERS[other]()
        assert made(lambda: step(net)) == 0


def test_an_eager_use_of_a_parameter_keeps_plans() -> None:
    net = Net()
    net.step()
    for _ in range(3):
        with nn.auto_forward():
            F.sum(F.sin(net.w) * net.x).backward()
        assert made(net.step) == 0


def test_another_static_graph_on_the_same_parameters_keeps_plans() -> None:
    net = Net()
    net.step()
    for _ in range(3):
        other = F.sum(F.sin(net.w) * net.x)
        other.forward()
        other.backward()
        del other
        assert made(net.step) == 0


def test_the_plan_of_a_second_eager_backward_run_is_cached() -> None:
    """The third backward run of an eager graph makes no plan."""
    with nn.auto_forward():
        y = F.sum(F.tanh(ramp()) * 2)
    assert [made(y.backward) for _ in range(4)] == [1, 1, 0, 0]


def taken(net: Net) -> Any:
    """Uses a result in another function."""
    return F.sin(net.y)


def hooked(net: Net) -> Any:
    """Registers a hook on a leaf."""
    return net.w.register_hook(lambda g: None)


def copied(net: Net) -> Any:
    """Registers a hook on an unlinked copy of a leaf."""
    copy = net.w.get_unlinked_variable(need_grad=True)
    return copy, copy.register_hook(lambda g: None)


def needs_gradient(net: Net) -> None:
    """Makes the input need a gradient."""
    net.x.need_grad = True


def persists(net: Net) -> None:
    """Makes a result persistent."""
    net.y.persistent = True


def recomputes(net: Net) -> None:
    """Marks a result for recomputation."""
    net.h.recompute = True


def keeps_gradient(net: Net) -> None:
    """Retains the gradient of a result."""
    net.y.retain_grad()


def other_shape(net: Net) -> None:
    """Changes the shapes of the leaves."""
    for v in net.x, net.w:
        v.reset_shape((8,), force=True)
        v.d = 0.5


def rewired(net: Net) -> None:
    """Replaces the function of a result."""
    net.h.rewire_on(F.sin(net.w))


def cut(net: Net) -> None:
    """Turns a result into a leaf."""
    net.y.forward()
    net.y.parent = None


@pytest.mark.parametrize("step", [Net.step, Net.differentiate])
@pytest.mark.parametrize(
    "change",
    [taken, hooked, copied, needs_gradient, persists, recomputes, keeps_gradient, other_shape, rewired, cut],
)
def test_changes_of_a_graph_invalidate_its_plans(change: Callable[[Net], Any], step: Callable[[Net], None]) -> None:
    net = Net()
    for _ in range(3):
        step(net)
    held = change(net)
    assert made(lambda: step(net)) > 0
    other = Net()
    change(other)
    step(other)
    for a, b in (net.w, other.w), (net.x, other.x):
        np.testing.assert_array_equal(a.g, b.g)
    del held


def test_a_gradient_needed_later_by_another_graph_keeps_its_inputs() -> None:
    h = F.tanh(ramp())
    w = ramp(need_grad=False)
    a, b = F.sum(F.sin(h) * 2), F.sum(h.get_unlinked_variable(need_grad=False) * 1 + F.mul2(h, w))
    for _ in range(3):
        b.forward(clear_no_need_grad=True)
        a.forward(clear_no_need_grad=True)
    w.need_grad = True
    b.forward(clear_no_need_grad=True)
    a.forward(clear_no_need_grad=True)
    b.backward()
    np.testing.assert_array_equal(w.g, h.d)


def test_plans_use_the_current_arrays_of_variables() -> None:
    net = Net()
    for n in range(6):
        net.step()
        expected = net.w.g.copy()
        if n % 2:
            net.w.grad = nn.NdArray((16,))
            net.x.data = nn.NdArray.from_numpy_array(net.x.d * 1)
            assert made(net.step) == 0
            np.testing.assert_array_equal(net.w.g, expected)
