"""The engine from Python: exceptions, interrupts, threads, deep graphs, callbacks, users' functions."""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from support import UnaryFunction, chain, leaf_of

import kinnor as nn
import kinnor.functions as F


class Custom(Exception):
    """An exception that only this file raises."""


@pytest.mark.parametrize("hook", ["function_pre_hook", "function_post_hook"])
@pytest.mark.parametrize("run", ["forward", "backward"])
def test_an_exception_in_a_hook_is_not_wrapped(hook: str, run: str) -> None:
    x = leaf_of([1.0, 2.0])
    y = F.exp(F.sin(x))
    y.forward()

    def fail(f: Any) -> None:
        """A hook that raises."""
        raise Custom(f.name)

    with pytest.raises(Custom):
        getattr(y, run)(**{hook: fail})
    y.forward()
    x.grad.zero()
    y.backward()
    np.testing.assert_allclose(x.g, np.exp(np.sin([1.0, 2.0])) * np.cos([1.0, 2.0]), rtol=1e-5)


def test_global_hooks_run_around_local_hooks() -> None:
    """Hooks set for all runs are called outside of hooks passed to one run."""
    seen: list[str] = []
    y = F.exp(F.sin(leaf_of([1.0])))
    nn.set_function_pre_hook("a", lambda f: seen.append("global pre " + f.name))
    nn.set_function_post_hook("b", lambda f: seen.append("global post " + f.name))
    try:
        y.forward(
            function_pre_hook=lambda f: seen.append("pre " + f.name),
            function_post_hook=lambda f: seen.append("post " + f.name),
        )
    finally:
        nn.unset_function_pre_hook("a")
        nn.unset_function_post_hook("b")
    steps = ["global pre ", "pre ", "post ", "global post "]
    assert seen == [s + f for f in ("Sin", "Exp") for s in steps]
    y.forward()
    assert len(seen) == 8


def test_invalid_hooks_are_refused_immediately() -> None:
    """A hook that cannot be called is refused before any function runs."""
    y = F.exp(leaf_of([1.0]))
    with pytest.raises(TypeError, match="function_pre_hook"):
        y.forward(function_pre_hook=3)


def test_callbacks_follow_the_backward_run() -> None:
    """Communicator callbacks are called after each function and at the end of a backward run."""
    seen: list[str] = []

    class Callback(nn.CommunicatorBackwardCallback):
        """Records the functions that a backward run completes, and its end."""

        def on_finish_function_backward(self, f: Any) -> None:
            """Records the function's name."""
            seen.append(f.name)

        def on_finish_backward(self) -> None:
            """Records the end of the run."""
            seen.append("end")

    x = leaf_of([1.0])
    y = F.exp(F.sin(x))
    y.forward()
    y.backward(communicator_callbacks=[Callback(), Callback()])
    assert seen == ["Exp", "Exp", "Sin", "Sin", "end", "end"]
    with pytest.raises(TypeError, match="communicator_callbacks"):
        y.backward(communicator_callbacks=object())


def test_the_seed_of_a_backward_run() -> None:
    """The initial gradient is ones, the array `grad`, or the variable's own gradient if None is given."""
    x = leaf_of([1.0, 2.0])
    y = x * 3
    y.forward()
    y.g = 7
    y.backward()
    assert x.g.tolist() == [3, 3] and y.g.tolist() == [7, 7]
    x.grad.zero()
    y.backward(grad=None)
    assert x.g.tolist() == [21, 21]
    x.grad.zero()
    y.backward(np.array([1.0, 2.0]))
    assert x.g.tolist() == [3, 6]
    with pytest.raises(RuntimeError, match="shape"):
        y.backward(np.ones(3))


def test_a_deep_graph_runs_and_is_freed_without_recursion() -> None:
    x = leaf_of([0.0])
    y = chain(x, 100_000, lambda h: F.add_scalar(h, 1.0))
    y.forward()
    y.backward()
    assert y.d[0] == 100_000 and x.g[0] == 1
    seen: list[int] = []
    y.visit(lambda f: seen.append(1))
    assert len(seen) == 100_000
    del y
    assert len(x.function_references) == 0


def test_an_interrupt_ends_a_run_and_leaves_the_graph_usable() -> None:
    x = leaf_of(np.full((512, 512), 0.5))
    y = x
    for _ in range(600):
        y = F.tanh(y)
    y.forward()  # warm up, so that memory is allocated
    start = time.perf_counter()
    # A shell makes programs in the background ignore interrupts, and Python keeps that setting.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            while time.perf_counter() - start < 60:
                y.forward()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() - start < 30
    y.forward()
    assert np.isfinite(y.d).all()


def test_two_threads_train_two_graphs() -> None:
    """Threads that train their own graphs at the same time get equal gradients."""

    def train(results: dict[int, np.ndarray], n: int) -> None:
        """Trains a graph of its own and stores the gradient."""
        x = leaf_of(np.linspace(-1, 1, 4096))
        y = x
        for _ in range(20):
            y = F.sin(y)
        for _ in range(50):
            y.forward()
            y.backward()
        results[n] = x.g.copy()

    results: dict[int, np.ndarray] = {}
    threads = [threading.Thread(target=train, args=(results, n)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(results[0], results[n]) for n in (1, 2))


def test_modes_in_a_with_block_hold_for_their_thread() -> None:
    seen: list[bool] = []
    with nn.auto_forward(), nn.no_grad():
        thread = threading.Thread(target=lambda: seen.extend([nn.get_auto_forward(), F.exp(leaf_of([1.0])).need_grad]))
        thread.start()
        thread.join()
        assert nn.get_auto_forward() and not F.exp(leaf_of([1.0])).need_grad
    assert seen == [False, True]


def test_cleared_values_are_refused_by_name() -> None:
    """The error for a cleared value names the variable."""
    x = leaf_of([0.5])
    h = F.sin(x)
    h.name = "hidden"
    y = F.sin(F.sin(h))
    y.forward(clear_buffer=True)
    with pytest.raises(nn.ClearedError, match="hidden"):
        _ = h.d
    with pytest.raises(RuntimeError, match="clear"):
        y.backward()
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    with pytest.raises(RuntimeError, match="forward\\(\\) again"):
        y.backward()


def test_cleared_gradients_that_are_added_to_are_refused_by_name() -> None:
    """An unlinked copy shares the gradient of its original, which a backward run may clear."""
    h = F.sin(leaf_of([0.5]))
    copy = h.get_unlinked_variable(need_grad=True)
    copy.name = "start"
    y, z = F.sin(h), F.exp(copy)
    y.forward()
    y.backward(clear_buffer=True)
    nn.forward_all([h, z])
    with pytest.raises(nn.ClearedError, match=r"a gradient of its input 0, variable .start.* to add to.*zero it"):
        z.backward()
    copy.grad.zero()
    z.backward()
    np.testing.assert_array_equal(copy.g, z.d)


def test_partial_results_of_a_failed_function_are_cleared() -> None:
    scores, labels = nn.Variable((4, 5), need_grad=True), nn.Variable((4, 1))
    scores.d, labels.d = 1, [[0], [1], [2], [3]]
    loss = F.softmax_cross_entropy(scores, labels)
    loss.forward()
    good = loss.d.copy()
    labels.d = [[0], [1], [2], [77]]
    with pytest.raises(nn.IndexRangeError, match="below 5, got 77"):
        loss.forward()
    with pytest.raises(nn.ClearedError, match="run forward"):
        _ = loss.d
    labels.d = [[0], [1], [2], [3]]
    loss.forward()
    np.testing.assert_array_equal(loss.d, good)


def test_two_losses_over_one_trunk_with_clearing() -> None:
    """Two clearing backward runs over a shared trunk give right gradients."""
    x = leaf_of([0.3])
    h = F.tanh(x)
    a, b = F.exp(h), F.sin(h)
    nn.forward_all([a, b])
    a.backward(clear_buffer=True)
    b.backward(clear_buffer=True)
    t = np.tanh(0.3)
    np.testing.assert_allclose(x.g, [(np.exp(t) + np.cos(t)) * (1 - t * t)], rtol=1e-5)


class Scale(UnaryFunction):
    """`y = k x`, which raises in the method named by `fail`."""

    def __init__(self, k: float, fail: str = "") -> None:
        """Makes `y = k x`, which raises in the method named by `fail`."""
        super().__init__()
        self.k, self.fail, self.args = k, fail, {"k": k}

    def step(self, name: str) -> None:
        """Raises `Custom` if `fail` names this method."""
        if self.fail == name:
            raise Custom(name)

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Gives the output the shape of the input. May raise."""
        self.step("setup")
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Computes `k x`. May raise."""
        self.step("forward")
        outputs[0].d = self.k * inputs[0].d

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        self.step("backward")
        if propagate_down[0]:
            g = self.k * outputs[0].g
            inputs[0].g = inputs[0].g + g if accum[0] else g


def test_a_users_own_function() -> None:
    """A function of a user works in static, eager and array calls, and after a changed shape."""
    x = leaf_of([1.0, 2.0])
    y = F.sum(Scale(3.0)(x * 2))
    y.forward()
    y.backward()
    assert y.d == 18 and x.g.tolist() == [6, 6]
    f = y.parent.inputs[0].parent
    assert f.name == f.info.type_name == "Scale" and f.info.args == {"k": 3.0}
    with nn.auto_forward():
        assert Scale(2.0)(x).d.tolist() == [2, 4]
    assert Scale(2.0)(x.data).data.tolist() == [2, 4]
    x.reset_shape((3,), True)
    x.d = 1
    y.forward()
    assert y.d == 18


@pytest.mark.parametrize("when", ["setup", "forward", "backward"])
def test_exceptions_of_a_users_own_function_are_not_wrapped(when: str) -> None:
    x = leaf_of([1.0])
    with pytest.raises(Custom, match=when):
        y = Scale(2.0, fail=when)(x)
        y.forward()
        y.backward()
    y = x * 2
    y.forward()
    assert y.d[0] == 2


def test_a_users_own_function_is_freed_with_its_graph() -> None:
    f = Scale(2.0)
    gone = weakref.ref(f)
    y = f(leaf_of([1.0]))
    del f
    gc.collect()
    assert gone() is not None
    del y
    gc.collect()
    assert gone() is None


def test_equality_and_hash_follow_data_and_gradient() -> None:
    x = leaf_of([1.0])
    other = x.get_unlinked_variable(need_grad=False)
    assert x == other and hash(x) == hash(other) and {x: 1}[other] == 1
    assert x != leaf_of([1.0]) and (x == None) is False and (x == 3) is False  # noqa: E711
    y = F.exp(x)
    assert y.parent == x.function_references[0] and y.parent is not y.parent


def test_numpy_scalars_may_be_either_operand() -> None:
    """Operators accept NumPy scalars on both sides, and refuse text."""
    x = leaf_of([1.0, 2.0])
    for y in (np.float64(2) * x, x * np.float32(2), 2 * x):
        assert isinstance(y, nn.Variable)
        y.forward()
        assert y.d.tolist() == [2, 4]
    with pytest.raises(TypeError):
        _ = x + "a"  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = x + np.array(["a", "b"])


def test_truncated_backpropagation_cuts_all_links() -> None:
    """After `clear_all_graph_links`, no gradient reaches the earlier graph."""
    x = leaf_of([0.5])
    h = F.tanh(F.tanh(x))
    h.forward()
    h.clear_all_graph_links()
    assert h.parent is None
    y = F.exp(h)
    y.forward()
    y.backward()
    assert x.g[0] == 0


def test_dynamic_mode_keeps_memory_that_a_reshaped_variable_shares():
    x = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32), need_grad=True)
    with nn.auto_forward():
        h = x * 2.0
        y = F.sum(F.transpose(F.reshape(h, (2, 3)), (1, 0)) ** 2)
        del h
    x.grad.zero()
    y.backward(clear_buffer=True)
    np.testing.assert_array_equal(x.g, 8.0 * np.arange(6))


def test_deep_copies_share_nothing():
    """Deep copies have memory of their own and no parent, in the requested type."""
    v = nn.Variable.from_numpy_array(np.arange(3.0, dtype=np.float64), need_grad=True)
    v.g = 2
    y = v * 1
    y.forward()
    for other in (
        v.create_deep_copy(),
        v.create_deep_copy(nn.Context(["cpu:float"]), copy_grad=True),
        copy.deepcopy(v),
    ):
        assert other.parent is None
        assert other.need_grad
        assert other.data.dtype == np.float64
        assert other.d.tolist() == [0, 1, 2]
        assert other.g.tolist() == [2, 2, 2]
        other.d, other.g = 7, 8
    assert v.d.tolist() == [0, 1, 2]
    assert v.g.tolist() == [2, 2, 2]
    assert v.create_deep_copy(copy_grad=False).g.tolist() == [0, 0, 0]
    assert y.create_deep_copy().parent is None
    with pytest.raises(RuntimeError, match="expected one of the backends"):
        v.create_deep_copy(nn.Context(["cuda:float"]))


def test_a_parent_that_is_restored():
    """A variable that was cut off its function can get the function back."""
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
    h = F.sin(x)
    y = F.sum(F.exp(h))
    y.forward()
    expected, f = y.d.copy(), h.parent
    h.parent = f  # it is its parent already
    h.parent = None
    h.d = 0
    y.forward()
    assert y.d == 2
    h.parent = f
    assert h.parent == f
    assert h.need_grad
    y.forward()
    y.backward()
    assert y.d == expected
    np.testing.assert_allclose(x.g, np.cos(x.d) * np.exp(np.sin(x.d)), rtol=1e-5)

    other = h.get_unlinked_variable()
    with pytest.raises(nn.GraphError, match="another variable on that data"):
        other.parent = f
    h.parent = None
    other.parent = f
    other.forward()
    np.testing.assert_allclose(other.d, np.sin([1, 2]), rtol=1e-6)


def test_invalid_parents():
    """A parent must compute the data of its variable. Otherwise, setting it is refused."""
    x = nn.Variable((2,), need_grad=True)
    h = F.sin(x)
    f, g = h.parent, F.exp(h).parent
    for v, parent, said in [
        (nn.Variable((2,)), f, "computes other data"),
        (nn.Variable((3,)), f, "computes other data"),
        (x, f, "computes other data"),
        (x.get_unlinked_variable(), g, "computes other data"),
    ]:
        with pytest.raises(nn.GraphError, match=f"parent: expected a function .*{said}"):
            v.parent = parent
        assert v.parent is None
    with pytest.raises(nn.CallError, match="parent: expected a Function or None, got 3"):
        x.parent = 3


def test_a_function_of_many_inputs_takes_linear_time():
    def seconds(n):
        """Returns the CPU time of a run of a function with `n` inputs."""
        xs = [nn.Variable((1,), need_grad=True) for _ in range(n)]
        for x in xs:
            x.data.fill(1.0)
        y = F.add_n(*xs)
        start = time.process_time()
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True)
        taken = time.process_time() - start
        assert y.d == n
        assert xs[-1].g == 1
        return taken

    few = min(seconds(3000) for _ in range(3))
    # 20 times as many inputs; quadratic time would be 400 times as much
    assert min(seconds(60000) for _ in range(3)) < 100 * few
